//! Forms of ops, with inputs of every dtype, in regions and outside: the dtype of the result.
//!
//! For every row our answer must be the one required by our rule (`rule.rs`), whether torch agrees or not.

use precast::{Autocast, DType, ErrorKind, Tensor, autocast, precision};
use serde_json::Value;

use crate::common::golden::golden;
use crate::replay::{
    Judged, Tally,
    Verdict::{Absent, Agree, Differs, NotCovered},
    items, replay,
};
use crate::torch::{
    forms::{FORMS, Form, Written},
    rule::{Answer, Region, decides, demands},
};

/// One recorded row.
struct Row<'a> {
    /// Name of the row among the verdicts.
    name: String,
    form: &'a Form,
    /// Dtypes of the floating-point arguments.
    inputs: Vec<DType>,
    region: Region,
    /// Dtypes of the results, or the error.
    theirs: Result<Vec<String>, Said>,
}

/// Meaning of a torch error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Said {
    /// Dtypes that may not be mixed.
    Mixed,
    /// There is no kernel for a dtype, in torch or in a library it uses.
    NoKernel,
    /// A number out of range.
    Number,
    Banned,
    /// An op that needs numbers, or a driver, was not run.
    NotRun,
    /// A list of ops to promote contained the other 16-bit format, or a library cannot run a layer on this machine.
    Other,
}

/// Words in the messages, the first that are found.
const WORDS: &[(Said, &[&str])] = &[
    (Said::Other, &["at::autocast::prioritize", "could not create a primitive descriptor"]),
    (Said::NoKernel, &["not implemented for", "Low precision dtypes not supported", "Unsupported dtype"]),
    (Said::NoKernel, &["doesn't support tensors of type", "input tensor must be either float or double"]),
    (Said::Number, &["cannot be converted to type"]),
    (Said::Banned, &["unsafe to autocast"]),
    (Said::NotRun, &["CUDA error", "NVIDIA driver"]),
    (Said::Mixed, &["same dtype", "same datatype", "same scalar type", "be the same", "dtypes match", "did not match"]),
    (Said::Mixed, &["does not match weight dtype", "expected scalar type", "expect parameter to have scalar type"]),
    (Said::Mixed, &["but expected", "expected dtype", "Expected out tensor", "Type promoting not supported"]),
    (Said::Mixed, &["to be equal to src.dtype"]),
];

fn said(message: &str) -> Option<Said> {
    if message.starts_with("aten.") {
        return Some(Said::NotRun);
    }
    let found = |(_, words): &&(Said, &[&str])| words.iter().any(|words| message.contains(words));
    WORDS.iter().find(found).map(|(said, _)| *said)
}

/// Parses `f32`, or `f32+f16` for alternating arguments.
fn inputs(form: &Form, name: &str) -> Option<Vec<DType>> {
    let dtypes: Vec<DType> = name.split('+').map(str::parse).collect::<Result<_, _>>().ok()?;
    Some((0..form.shapes.len()).map(|i| dtypes[i % dtypes.len()]).collect())
}

/// Returns the leaves of `"f32"` or `["f32", ["f32", "i64"]]`.
fn leaves(out: &Value) -> Option<Vec<String>> {
    match out.as_array() {
        Some(items) => items.iter().map(leaves).collect::<Option<Vec<_>>>().map(|items| items.concat()),
        None => Some(vec![out.as_str()?.to_string()]),
    }
}

fn row(device: &'static str, record: &Value) -> Option<Row<'static>> {
    let form = FORMS.iter().find(|form| Some(form.name) == record["op"].as_str())?;
    let low = match record["autocast"].as_str()? {
        "off" => None,
        "fp16" => Some(DType::F16),
        "bf16" => Some(DType::Bf16),
        _ => return None,
    };
    let theirs = match record.get("error") {
        Some(error) => Err(said(error["message"].as_str()?)?),
        None => Ok(leaves(&record["out"])?),
    };
    let dtypes = record["inputs"].as_str()?;
    let name = format!("{} {dtypes} {}", form.name, low.map_or("off", DType::name));
    Some(Row { name, form, inputs: inputs(form, dtypes)?, region: Region { device, low }, theirs })
}

/// Returns whether a recorded dtype is ours. A complex number has the precision of its parts; torch has none with bf16
/// parts.
fn same(ours: DType, theirs: &str) -> bool {
    match theirs {
        "c32" => ours == DType::F16,
        "c64" => matches!(ours, DType::F32 | DType::Bf16),
        "c128" => ours == DType::F64,
        "py:bool" => ours == DType::Bool,
        name => name.parse() == Ok(ours),
    }
}

/// Makes numbers between 0.1 and 0.9, so that every function has a value.
fn tensor(shape: &[usize], dtype: DType) -> Tensor {
    let n = shape.iter().product::<usize>();
    let data: Vec<f64> = (0..n).map(|i| 0.1 + 0.8 * (i as f64 * 0.618_034).fract()).collect();
    Tensor::from_f64(&data, shape, dtype).unwrap()
}

impl Row<'_> {
    fn ours(&self, regions: &[Autocast; 2]) -> Answer {
        let dtypes = |x: &[Tensor]| x.iter().map(Tensor::dtype).collect();
        self.in_region(regions, |x| match self.form.written {
            Written::One(f) | Written::First(f) => Ok(vec![f(x)?.dtype()]),
            Written::Many(f) => Ok(dtypes(&f(x)?)),
            Written::Decided(op) => {
                Ok(precision::resolve(precast::precision::current().as_ref(), op, &self.inputs)?.after(&self.inputs))
            }
            Written::Nothing => unreachable!("judged above"),
        })
    }

    fn in_region(&self, regions: &[Autocast; 2], f: impl FnOnce(&[Tensor]) -> precast::Result<Vec<DType>>) -> Answer {
        let x: Vec<Tensor> = self.form.shapes.iter().zip(&self.inputs).map(|(s, d)| tensor(s, *d)).collect();
        let result = match self.region.low {
            None => f(&x),
            Some(low) => autocast(&regions[usize::from(low == DType::Bf16)], || f(&x)),
        };
        result.map_err(|error: precast::Error| error.kind())
    }

    /// Returns the answer required by our rule, derived in this test.
    fn demanded(&self) -> Answer {
        match self.form.written {
            Written::Decided(_) => decides(self.form.name, self.region, &self.inputs),
            _ => demands(self.form.name, self.region, &self.inputs),
        }
    }

    fn judge(&self, regions: &[Autocast; 2]) -> Judged {
        if let Written::Nothing = self.form.written {
            return Ok(Absent);
        }
        let (ours, demanded) = (self.ours(regions), self.demanded());
        if ours != demanded {
            return Err(format!("ours {ours:?}, our rule demands {demanded:?}, torch's {:?}", self.theirs));
        }
        Ok(match (&ours, &self.theirs) {
            (Ok(ours), Ok(theirs)) if self.same(ours, theirs) => Agree,
            (Ok(after), _) if self.is_decided() && after.iter().any(|dtype| *dtype != after[0]) => {
                NotCovered("no kernel says what becomes of dtypes that the region leaves mixed")
            }
            // `nuclear_norm` is on a list of CUDA's; torch actually runs `linalg_matrix_norm`, which is on none.
            (Ok(after), Err(Said::NoKernel))
                if self.is_decided()
                    && (after.iter().any(|dtype| dtype.is_low()) || self.form.name == "nuclear_norm") =>
            {
                NotCovered("there is no kernel here, and torch's refuses the dtype")
            }
            (Err(ErrorKind::DType), Err(Said::Mixed))
            | (Err(ErrorKind::Value), Err(Said::Number))
            | (Err(ErrorKind::List), Err(Said::Banned)) => Agree,
            (_, Err(Said::NotRun)) => {
                NotCovered("recorded without a GPU: torch gave no result; ours is what our rule demands")
            }
            _ => Differs,
        })
    }

    fn is_decided(&self) -> bool {
        matches!(self.form.written, Written::Decided(_))
    }

    fn same(&self, ours: &[DType], theirs: &[String]) -> bool {
        match self.form.written {
            Written::First(_) => same(ours[0], &theirs[0]),
            // A single input dtype is also that of all results.
            Written::Decided(_) => {
                ours.iter().all(|dtype| *dtype == ours[0]) && theirs.iter().all(|t| same(ours[0], t))
            }
            _ => ours.len() == theirs.len() && ours.iter().zip(theirs).all(|(o, t)| same(*o, t)),
        }
    }
}

fn every_row(golden: &Value, device: &'static str, tally: &mut Tally) {
    let pack = format!("torch-2.15-{device}");
    let regions = [DType::F16, DType::Bf16].map(|low| Autocast::new(&pack).unwrap().dtype(low));
    for named in items(&golden["ops"]) {
        if !FORMS.iter().any(|form| Some(form.name) == named["op"].as_str()) {
            tally.fail(named["op"].to_string(), "the form is not understood");
        }
    }
    for record in items(&golden["rows"]) {
        let Some(row) = row(device, record) else {
            tally.fail(record.to_string(), "not understood");
            continue;
        };
        tally.count(&row.name, row.judge(&regions));
    }
}

/// An op with a kernel here is run, and not only decided.
#[test]
fn what_is_only_decided_has_no_kernel() {
    for form in FORMS.iter() {
        if let Written::Decided(op) = form.written {
            assert!(!op.has_kernel(), "{}", form.name);
        }
    }
}

#[test]
fn on_a_cpu() {
    replay("torch", "ops", golden("torch/ops.json"), |recorded, tally| every_row(recorded, "cpu", tally));
}

/// Recorded without a GPU: the regions are torch's, the kernels pretend.
#[test]
fn on_cuda() {
    replay("torch", "ops_cuda", golden("torch/ops_cuda.json"), |recorded, tally| every_row(recorded, "cuda", tally));
}
