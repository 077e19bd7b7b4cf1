//! Cases in folders: a model, its inputs, and its outputs.

use std::{
    fs,
    panic::{AssertUnwindSafe, catch_unwind},
    path::Path,
};

use precast::{DType, ErrorKind, Tensor};
use precast_graph::onnx::OnnxModel;

use super::pb;

/// The result of a case.
pub enum Verdict {
    Agrees,
    /// An output differs; the words say how.
    Wrong(String),
    /// The import or the run refuses it.
    Refused(String),
    Panics(String),
}

/// The tolerances of a case. With `largest`, `relative` is one of the largest number of the output.
#[derive(Clone, Copy)]
pub struct Bound {
    pub relative: f64,
    pub absolute: f64,
    pub largest: bool,
}

/// Reads the inputs or the outputs of a case.
pub fn tensors(folder: &Path, kind: &str) -> Option<Vec<Tensor>> {
    let file = |index| fs::read(folder.join(format!("{kind}_{index}.pb"))).ok();
    (0..).map_while(file).map(|bytes| pb::tensor(&bytes)).collect()
}

/// Runs the model of a folder on the inputs in it, and compares the outputs.
pub fn run(folder: &Path, bound: Bound) -> Verdict {
    catch_unwind(AssertUnwindSafe(|| {
        let more = (1..).map(|number| folder.join(number.to_string())).take_while(|folder| folder.is_dir());
        let model = folder.join("model.onnx");
        for folder in std::iter::once(folder.to_path_buf()).chain(more) {
            match once(&model, &folder, bound) {
                Verdict::Agrees => {}
                other => return other,
            }
        }
        Verdict::Agrees
    }))
    .unwrap_or_else(|panic| {
        let words = panic.downcast_ref::<String>().cloned();
        let words = words.or_else(|| panic.downcast_ref::<&str>().map(|words| words.to_string()));
        Verdict::Panics(words.unwrap_or_default())
    })
}

fn once(model: &Path, folder: &Path, bound: Bound) -> Verdict {
    let refused = |words: &str| Verdict::Refused(words.to_string());
    let Some(inputs) = tensors(folder, "input") else { return refused("an input of a type without tensors") };
    let Some(outputs) = tensors(folder, "output") else { return refused("an output of a type without tensors") };
    let made = OnnxModel::open(model).and_then(|model| {
        let network = model.import(&Default::default())?;
        precast::no_grad(|| network.call_many(&inputs))
    });
    let made = match made {
        Ok(made) => made,
        Err(e) if e.kind() == ErrorKind::Unsupported => return Verdict::Refused(e.to_string()),
        Err(e) => return Verdict::Wrong(format!("error: {e}")),
    };
    if made.len() != outputs.len() {
        return Verdict::Wrong(format!("{} outputs; expected {}", made.len(), outputs.len()));
    }
    for (index, (made, expected)) in made.iter().zip(&outputs).enumerate() {
        if let Some(words) = difference(made, expected, bound) {
            return Verdict::Wrong(format!("output {index}: {words}"));
        }
    }
    Verdict::Agrees
}

/// Returns in words how a tensor differs from the expected one.
pub fn difference(made: &Tensor, expected: &Tensor, bound: Bound) -> Option<String> {
    if (made.shape(), made.dtype()) != (expected.shape(), expected.dtype()) {
        return Some(format!(
            "{} {:?}; expected {} {:?}",
            made.dtype(),
            made.shape(),
            expected.dtype(),
            expected.shape()
        ));
    }
    // Two units in the last place, as ONNX's runner allows for bf16: its references add in 16 bits.
    let relative = match made.dtype() {
        DType::Bf16 => bound.relative.max(2f64.powi(-6)),
        DType::F16 => bound.relative.max(2f64.powi(-9)),
        _ => bound.relative,
    };
    let (made, expected) = (made.to_f64(), expected.to_f64());
    let largest = expected.iter().filter(|x| x.is_finite()).fold(0.0f64, |most, x| most.max(x.abs()));
    let within = |a: f64, b: f64| {
        let scale = if bound.largest { largest } else { b.abs() };
        a == b || a.is_nan() && b.is_nan() || (a - b).abs() <= bound.absolute + relative * scale
    };
    let place = made.iter().zip(&expected).position(|(a, b)| !within(*a, *b))?;
    let count = made.iter().zip(&expected).filter(|(a, b)| !within(**a, **b)).count();
    Some(format!("{} at {place}; expected {}; {count} of {} differ", made[place], expected[place], made.len()))
}
