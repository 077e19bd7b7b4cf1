//! Forms of ops, with inputs of every dtype, in regions and outside: the dtype that comes out.

use precast::{Autocast, DType, Tensor, autocast, precision};
use serde_json::Value;

use crate::{
    forms::{FORMS, Form, Written},
    tally::Tally,
};

/// One recorded row.
struct Row<'a> {
    form: &'a Form,
    /// The dtypes of the floating arguments.
    inputs: Vec<DType>,
    low: Option<DType>,
    /// The dtypes that came out, or what was said instead.
    theirs: Result<Vec<String>, String>,
}

type Ours = Result<Vec<DType>, String>;

/// `f32`, or `f32+f16` for alternating arguments.
fn inputs(form: &Form, name: &str) -> Option<Vec<DType>> {
    let dtypes: Vec<DType> = name.split('+').map(str::parse).collect::<Result<_, _>>().ok()?;
    Some((0..form.shapes.len()).map(|i| dtypes[i % dtypes.len()]).collect())
}

/// The leaves of `"f32"` or `["f32", ["f32", "i64"]]`.
fn leaves(out: &Value) -> Option<Vec<String>> {
    match out.as_array() {
        Some(items) => items.iter().map(leaves).collect::<Option<Vec<_>>>().map(|items| items.concat()),
        None => Some(vec![out.as_str()?.to_string()]),
    }
}

fn row<'a>(record: &Value) -> Option<Row<'a>> {
    let form = FORMS.iter().find(|form| Some(form.name) == record["op"].as_str())?;
    let low = match record["autocast"].as_str()? {
        "off" => None,
        "fp16" => Some(DType::F16),
        "bf16" => Some(DType::Bf16),
        _ => return None,
    };
    let theirs = match record.get("error") {
        Some(error) => Err(error["message"].as_str()?.to_string()),
        None => Ok(leaves(&record["out"])?),
    };
    Some(Row { form, inputs: inputs(form, record["inputs"].as_str()?)?, low, theirs })
}

/// Whether a recorded dtype is ours. A complex number has the precision of its parts; of bf16 parts there is none there.
fn same(ours: DType, theirs: &str) -> bool {
    match theirs {
        "c32" => ours == DType::F16,
        "c64" => matches!(ours, DType::F32 | DType::Bf16),
        "c128" => ours == DType::F64,
        "py:bool" => ours == DType::Bool,
        name => name.parse() == Ok(ours),
    }
}

/// Numbers between 0.1 and 0.9, so that every function has a value.
fn tensor(shape: &[usize], dtype: DType) -> Tensor {
    let n = shape.iter().product::<usize>();
    let data: Vec<f64> = (0..n).map(|i| 0.1 + 0.8 * (i as f64 * 0.618_034).fract()).collect();
    Tensor::from_f64(&data, shape, dtype).unwrap()
}

impl Row<'_> {
    fn ours(&self, regions: &[Autocast; 2]) -> Ours {
        let x: Vec<Tensor> = self.form.shapes.iter().zip(&self.inputs).map(|(s, d)| tensor(s, *d)).collect();
        let widest = |dtypes: Vec<DType>| dtypes.into_iter().reduce(DType::promote).into_iter().collect();
        let run = || match self.form.written {
            Written::One(f) | Written::First(f) => Ok(vec![f(&x)?.dtype()]),
            Written::Many(f) => Ok(f(&x)?.iter().map(Tensor::dtype).collect()),
            Written::Decided(op) => {
                let casts = precision::resolve(precision::current().as_ref(), op, &self.inputs)?;
                Ok(widest(casts.after(&self.inputs)))
            }
            Written::Unlisted | Written::Outside => Ok(widest(self.inputs.clone())),
        };
        let result = match self.low {
            None => run(),
            Some(low) => autocast(&regions[usize::from(low == DType::Bf16)], run),
        };
        result.map_err(|error: precast::Error| error.to_string())
    }

    fn agrees(&self, ours: &Ours) -> bool {
        match (ours, &self.theirs, &self.form.written) {
            (Err(_), Err(_), _) => true,
            (Ok(ours), Ok(theirs), Written::First(_)) => same(ours[0], &theirs[0]),
            // One dtype was decided for all that comes out.
            (Ok(ours), Ok(theirs), Written::Decided(_) | Written::Unlisted) => theirs.iter().all(|t| same(ours[0], t)),
            (Ok(ours), Ok(theirs), _) => {
                ours.len() == theirs.len() && ours.iter().zip(theirs).all(|(o, t)| same(*o, t))
            }
            _ => false,
        }
    }

    /// Whether dtypes meet, those of the arguments or of parameters.
    fn is_mixed(&self) -> bool {
        self.form.has_f32_parameters() || self.inputs.iter().any(|dtype| *dtype != self.inputs[0])
    }

    /// Whether this is what a region casts to, what the inputs promote to, or the dtype of what is normalised.
    fn is_settled(&self, ours: &[DType]) -> bool {
        let widest = self.inputs.iter().copied().reduce(DType::promote);
        let cast = self.low.map(|_| DType::F32);
        ours.iter().all(|d| [widest, self.low, cast, Some(self.inputs[0]), Some(DType::Bool)].contains(&Some(*d)))
    }

    /// The difference on purpose that explains why ours is another; its name in COMPARE.md.
    fn difference(&self, ours: &Ours) -> Option<&'static str> {
        let form = self.form.name;
        let low = |ours: &[DType]| ours.iter().all(|dtype| Some(*dtype) == self.low);
        let said =
            |words: &[&str]| self.theirs.as_ref().is_err_and(|said| words.iter().any(|word| said.contains(word)));
        match (ours, &self.theirs) {
            (Ok(_), Err(_)) if said(&["at::autocast::prioritize"]) => Some("promotion looks at no order"),
            (Ok(_), Err(_)) if said(NO_KERNEL) => Some("no op lacks a 16-bit kernel"),
            (Ok(ours), Err(_)) if self.is_mixed() && self.is_settled(ours) => {
                Some("a region and promotion settle mixed inputs")
            }
            (Ok(ours), Ok(_)) if form == "einsum_hadamard" && low(ours) => Some("einsum is one op"),
            (Err(_), Ok(_)) if form == "einsum_hadamard" && self.is_mixed() => Some("einsum is one op"),
            (Ok(ours), Ok(_)) if form == "convolution" && low(ours) => Some("one op under two names is treated alike"),
            (Ok(_), _) if form == "nn.LSTM(f32 params)" || form == "nn.GRU(f32 params)" => {
                Some("a recurrent layer is one op")
            }
            (Ok(_), Ok(_)) if form.starts_with("mul_0dim_") => Some("a tensor without axes is a tensor"),
            (Ok(ours), Ok(theirs)) if self.is_mixed() && wider(ours, theirs) => Some("mixed inputs meet in the widest"),
            _ => None,
        }
    }
}

/// What torch says where it has no kernel for a dtype, or for all that a library beside it lacks.
const NO_KERNEL: &[&str] = &[
    "not implemented for",
    "Low precision dtypes not supported",
    "Unsupported dtype",
    "doesn't support tensors of type",
    "input tensor must be either float or double",
    "could not create a primitive descriptor",
];

fn wider(ours: &[DType], theirs: &[String]) -> bool {
    let holds = |(ours, theirs): (&DType, &String)| theirs.parse().is_ok_and(|t: DType| ours.promote(t) == *ours);
    ours.len() == theirs.len() && ours.iter().zip(theirs).all(holds)
}

fn every_row(file: &'static str, pack: &str, unreliable: impl Fn(&Row<'_>, &Ours) -> Option<Unreliable>) {
    let Some(golden) = crate::common::golden(&format!("torch/{file}.json")) else { return };
    let regions = [DType::F16, DType::Bf16].map(|low| Autocast::new(pack).unwrap().dtype(low));
    let mut tally = Tally::new("torch", file);
    for named in golden["ops"].as_array().into_iter().flatten() {
        if !FORMS.iter().any(|form| Some(form.name) == named["op"].as_str()) {
            tally.fail(format!("the form {} is not understood", named["op"]));
        }
    }
    for record in golden["rows"].as_array().into_iter().flatten() {
        let Some(row) = row(record) else {
            tally.fail(format!("not understood: {record}"));
            continue;
        };
        if let Written::Outside = row.form.written {
            tally.outside(1);
            continue;
        }
        let ours = row.ours(&regions);
        if row.agrees(&ours) {
            tally.agree();
            continue;
        }
        match (unreliable(&row, &ours), row.difference(&ours)) {
            (Some(Unreliable::NotRun), _) => tally.outside(1),
            (Some(Unreliable::Unchecked), _) => tally.on_purpose("dtypes and numbers are checked"),
            (None, Some(difference)) => tally.on_purpose(difference),
            (None, None) => tally.fail(format!(
                "{} of {} in {}: ours {ours:?}, torch's {:?}",
                row.form.name, record["inputs"], record["autocast"], row.theirs
            )),
        }
    }
    tally.close();
}

/// Why a row of a device that only pretends to compute says nothing of torch's own.
enum Unreliable {
    /// What needs numbers, or a driver, was not run.
    NotRun,
    /// Nothing looked at the dtypes and numbers that a kernel refuses.
    Unchecked,
}

#[test]
fn on_a_cpu() {
    every_row("ops", "torch-2.15-cpu", |_, _| None);
}

/// Recorded without a GPU: the regions are torch's, the kernels pretend.
#[test]
fn on_cuda() {
    every_row("ops_cuda", "torch-2.15-cuda", |row, ours| match (ours, &row.theirs) {
        (_, Err(said))
            if said.starts_with("aten.") || said.contains("CUDA error") || said.contains("NVIDIA driver") =>
        {
            Some(Unreliable::NotRun)
        }
        (Err(_), Ok(_)) if row.is_mixed() || row.form.name == "masked_fill" => Some(Unreliable::Unchecked),
        _ => None,
    });
}
