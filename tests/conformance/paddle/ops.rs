//! `paddle.amp.auto_cast`: the result of each function under each level, and the dtypes in which its ops ran.

use precast::{DType, ErrorKind, Op, Result, Tensor, autocast, observe, precision};
use serde::Deserialize;
use serde_json::Value;

use super::{
    examples,
    forms::{FORMS, Form, Input, Run, Written},
    names::{BESIDE, dtype, named},
    rule::{Region, gives, widest},
};
use crate::{
    common::golden::golden,
    replay::{self, Judged, Verdict, each, replay},
};

/// One function in one region.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Case {
    api: String,
    level: String,
    dtype: String,
    inputs: String,
    use_promote: Option<bool>,
    /// An entry of a custom list, the list, and its Python type; all types are equivalent here.
    list_entry: Option<String>,
    list: Option<String>,
    list_type: Option<String>,
    /// Dtype of the result, and the ops with their dtypes, including casts and constants.
    out: Option<String>,
    #[serde(default)]
    ops: Vec<String>,
    /// Either `no_kernel`: the machine could not run `op` on an `input` cast to `amp_dest`; or Python's message.
    error: Option<String>,
    op: Option<String>,
    amp_dest: Option<String>,
    #[serde(rename = "input")]
    _input: Option<String>,
    #[serde(rename = "kernel_dtypes")]
    _kernel_dtypes: Option<Vec<String>>,
}

/// One op as it ran.
#[derive(Debug)]
pub struct Ran {
    op: Op,
    inputs: Vec<DType>,
    output: DType,
}

/// The result, and the ops in order.
#[derive(Debug)]
pub struct Outcome {
    pub out: DType,
    pub ops: Vec<Ran>,
}

pub fn tensor(shape: &[usize], dtype: DType) -> Tensor {
    let n = shape.iter().product::<usize>();
    let data: Vec<f64> = (0..n).map(|i| 0.25 + 0.5 * (i as f64 * 0.618_034).fract()).collect();
    Tensor::from_f64(&data, shape, dtype).unwrap()
}

fn inputs(form: &Form, low: DType, which: &str) -> Option<Vec<Tensor>> {
    let dtypes = match which {
        "f32" => [DType::F32; 2],
        "low" => [low; 2],
        "mixed_first_low" => [low, DType::F32],
        "mixed_first_f32" => [DType::F32, low],
        _ => return None,
    };
    let mut given = 0;
    let tensors = form.inputs.iter().map(|input| match input {
        Input::Given(shape) => {
            given += 1;
            tensor(shape, dtypes[usize::from(given > 1)])
        }
        Input::Full(shape) => tensor(shape, DType::F32),
        Input::Index(shape) => {
            let n = shape.iter().product::<usize>();
            let data: Vec<f64> = (0..n).map(|i| (i % 3) as f64).collect();
            Tensor::from_f64(&data, shape, DType::I64).unwrap()
        }
        Input::Mask(shape) => Tensor::ones(shape, DType::Bool),
    });
    Some(tensors.collect())
}

fn ran(run: Run, x: &[Tensor]) -> Result<Outcome> {
    let (result, events) = observe::watch(|| run(x));
    let ops = events.into_iter().filter(|event| event.op != Op::Cast);
    let ops = ops.map(|event| Ran { op: event.op, inputs: event.inputs, output: event.output }).collect();
    Ok(Outcome { out: result?.dtype(), ops })
}

fn decided(op: Op, gives: Option<DType>, x: &[Tensor]) -> Result<Outcome> {
    let dtypes: Vec<DType> = x.iter().map(Tensor::dtype).collect();
    let inputs = precision::resolve(precast::precision::current().as_ref(), op, &dtypes)?.after(&dtypes);
    let output = gives.or(widest(&inputs)).expect("the function has floating inputs");
    Ok(Outcome { out: output, ops: vec![Ran { op, inputs, output }] })
}

impl Written {
    /// Runs the usual equivalent here.
    pub fn usual(&self, x: &[Tensor]) -> Result<Outcome> {
        match *self {
            Written::Ops(run) | Written::Whole(run) | Written::Steps(_, run) | Written::One(_, run) => ran(run, x),
            Written::Decided(op) => decided(op, None, x),
            Written::Tells(op, dtype) => decided(op, Some(dtype), x),
        }
    }

    /// Checks that the run follows our rule: for every op the dtypes that its kernel saw, and the dtype it returned.
    pub fn holds(&self, region: &Region, x: &[Tensor], ours: &Outcome) -> Result<(), String> {
        let one = match *self {
            Written::One(op, _) | Written::Decided(op) | Written::Tells(op, _) => Some(op),
            Written::Ops(_) | Written::Whole(_) | Written::Steps(..) => None,
        };
        if let Some(op) = one
            && !matches!(&ours.ops[..], [ran] if ran.op == op)
        {
            return Err(format!("{op} alone is to run, but {:?} did", ours.ops));
        }
        let floats = |dtypes: &[DType]| dtypes.iter().copied().filter(|dtype| dtype.is_float()).collect::<Vec<_>>();
        let mut known: Vec<DType> = x.iter().map(Tensor::dtype).collect();
        let given = known.len();
        for (i, ran) in ours.ops.iter().enumerate() {
            let mut before = match *self {
                Written::Steps(steps, _) => match steps.get(i) {
                    Some((op, reads)) if *op == ran.op => reads.iter().map(|at| known[*at]).collect(),
                    step => return Err(format!("{step:?} is to run, not {}", ran.op)),
                },
                // Ops after the first read the result of the first.
                _ if i > 0 => vec![known[given + i - 1]],
                _ => known.clone(),
            };
            // A number takes the tensor's dtype.
            before.resize(before.len().max(ran.inputs.len()), before[0]);
            let seen = region.ours(ran.op, &before).map_err(|kind| format!("{kind:?} is demanded of {}", ran.op))?;
            let output = match *self {
                Written::Tells(_, dtype) => dtype,
                _ => gives(ran.op, &seen),
            };
            if floats(&seen) != floats(&ran.inputs) || output != ran.output {
                return Err(format!("{} shall see {seen:?} and return {output}, but {ran:?}", ran.op));
            }
            known.push(ran.output);
        }
        match ours.ops.last() {
            Some(last) if last.output != ours.out => {
                Err(format!("the last op returned {}, not {}", last.output, ours.out))
            }
            _ => Ok(()),
        }
    }
}

impl Case {
    fn region(&self) -> Option<Region> {
        let mut region = Region {
            level: self.level.clone(),
            dtype: Some(dtype(&self.dtype)?),
            promote: self.use_promote != Some(false),
            ..Region::default()
        };
        match (self.list.as_deref(), &self.list_entry, self.list_type.as_deref()) {
            (None, None, None) => {}
            (Some("white"), Some(entry), Some("set" | "list" | "tuple")) => region.white.push(entry.clone()),
            (Some("black"), Some(entry), Some("set" | "list" | "tuple")) => region.black.push(entry.clone()),
            _ => return None,
        }
        Some(region)
    }

    fn no_kernel(&self) -> Option<(&str, DType)> {
        match self.error.as_deref()? {
            "no_kernel" => Some((self.op.as_deref()?, dtype(self.amp_dest.as_deref()?)?)),
            _ => None,
        }
    }

    /// Returns the recorded ops of the function, and the dtype to which an input of each was cast.
    fn theirs(&self) -> Vec<(&str, Option<DType>, Option<DType>)> {
        let mut cast = None;
        let mut ops = vec![];
        for op in &self.ops {
            let (name, result) = op.split_once(':').unwrap_or((op, ""));
            match name {
                "cast" => cast = dtype(result),
                name if BESIDE.contains(&name) => {}
                name => ops.push((name, dtype(result), cast.take())),
            }
        }
        ops
    }

    /// Returns whether the names and dtypes are Paddle's, op by op. `Err` describes an unrecognized part.
    fn is_the_same(&self, ours: &Outcome) -> Result<bool, String> {
        let is_named = |ran: &Ran, name: &str| -> Result<bool, String> {
            Ok(named(name).map_err(|error| error.to_string())?.contains(&ran.op))
        };
        if let Some((name, low)) = self.no_kernel() {
            for ran in &ours.ops {
                if is_named(ran, name)? && ran.inputs.contains(&low) {
                    return Ok(true);
                }
            }
            return Ok(false);
        }
        let theirs = self.theirs();
        if self.out.as_deref().and_then(dtype) != Some(ours.out) || theirs.len() != ours.ops.len() {
            return Ok(false);
        }
        for (ran, (name, result, cast)) in ours.ops.iter().zip(theirs) {
            let output = result.is_none_or(|result| result == ran.output);
            // For an op that returns integers or booleans, only its inputs reveal the dtype in which it ran.
            let input = ran.output.is_float() || cast.is_none_or(|cast| ran.inputs.contains(&cast));
            if !is_named(ran, name)? || !output || !input {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Returns whether the result has Paddle's dtype; if Paddle could not compute it, whether an op ran in the dtype
    /// that stopped it.
    fn has_the_same_result(&self, ours: &Outcome) -> bool {
        match self.no_kernel() {
            Some((_, low)) => ours.ops.iter().any(|ran| ran.inputs.contains(&low)),
            None => self.out.as_deref().and_then(dtype) == Some(ours.out),
        }
    }

    fn agrees(&self, form: &Form, ours: &Outcome) -> Result<bool, String> {
        match form.written {
            Written::Ops(_) | Written::Decided(_) | Written::Tells(..) => self.is_the_same(ours),
            _ => Ok(self.has_the_same_result(ours)),
        }
    }

    /// Returns the names in graphs of the ops that Paddle ran, or could not run.
    fn ran(&self) -> Vec<&str> {
        let ran = self.theirs().into_iter().map(|(name, ..)| name);
        ran.chain(self.no_kernel().map(|(name, _)| name)).collect()
    }

    fn judge(&self) -> Judged {
        let not_understood = || "not understood".to_string();
        let form = FORMS.iter().find(|form| form.api == self.api).ok_or_else(not_understood)?;
        let region = self.region().ok_or_else(not_understood)?;
        let x = inputs(form, region.low(), &self.inputs).ok_or_else(not_understood)?;
        let ours = autocast(region.autocast(), || form.written.usual(&x));
        if region.names_an_unknown(&self.ran()) {
            return match ours {
                Err(error) if error.kind() == ErrorKind::List => Ok(Verdict::Differs),
                other => Err(format!("a custom list names an unknown op, and ours {other:?}")),
            };
        }
        let ours = ours.map_err(|error| error.to_string())?;
        // Whatever the difference, our result is the one required by our rule.
        form.written.holds(&region, &x, &ours)?;
        if self.error.as_deref().is_some_and(|error| error != "no_kernel" && !error.starts_with("TypeError: ")) {
            return Err(not_understood());
        }
        Ok(Verdict::of(self.agrees(form, &ours)?))
    }

    /// Returns a short name of the case that does not reveal its outcome.
    fn name(&self) -> String {
        let promote = if self.use_promote == Some(false) { " without promotion" } else { "" };
        let custom = match (&self.list, &self.list_entry, &self.list_type) {
            (Some(list), Some(entry), Some(form)) => format!(" {list} {form} {entry}"),
            _ => String::new(),
        };
        format!("{} {} {} {}{promote}{custom}", self.api, self.level, self.dtype, self.inputs)
    }
}

/// Judges the cases in a file.
pub fn judge(golden: &Value) -> Vec<replay::Case> {
    let apis = golden.get("eager_op_names").and_then(Value::as_object);
    let unknown = |api: &&String| !FORMS.iter().any(|form| form.api == **api);
    let mut judged: Vec<replay::Case> = apis
        .into_iter()
        .flat_map(|apis| apis.keys().filter(unknown))
        .map(|api| (api.clone(), Err("not understood".into())))
        .collect();
    for key in ["cases", "custom_cases"] {
        judged.extend(each(golden, key, |case: Case| vec![(case.name(), case.judge())]));
    }
    judged.extend(examples::judge(golden));
    judged
}

/// An op with a kernel here is run, and not only decided. `LogicalAnd` has one only for booleans.
#[test]
fn what_is_only_decided_has_no_kernel() {
    for form in FORMS.iter() {
        if let Written::Decided(op) | Written::Tells(op, _) = form.written {
            assert!(!op.has_kernel() || op == Op::LogicalAnd, "{}", form.api);
        }
    }
}

#[test]
fn every_recorded_case() {
    replay("paddle", "ops", golden("paddle/ops.json"), |recorded, tally| tally.count_all(judge(recorded)));
}
