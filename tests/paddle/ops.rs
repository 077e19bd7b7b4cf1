//! `paddle.amp.auto_cast`: what each function returns under each level, and in which dtype its ops ran.

use std::sync::LazyLock;

use precast::{Autocast, DType, Op, Result, Tensor, autocast, observe, precision};
use serde::Deserialize;

use super::{
    examples::{Example, Odd},
    forms::{FORMS, Form, Input, Run, Written},
    names::{BESIDE, dtype, is_listed_so, named},
    tally::Tally,
};

/// The differences on purpose, as COMPARE.md names them.
const ONE_OP: &str = "what is one op here is one op";
const TWINS: &str = "ops under two names are treated alike";
const ANY_DTYPE: &str = "no dtype is refused that an op can run in";
const EVERY_OP: &str = "every op goes by the lists, and by them alone";
pub const HEEDED: &str = "a name on a custom list is heeded";
pub const ANYWHERE: &str = "regions work on every device";

static PADDLE: LazyLock<Autocast> = LazyLock::new(|| Autocast::new("paddle-3.3").unwrap());

/// A region under Paddle's lists.
pub fn region() -> Autocast {
    PADDLE.clone()
}

#[derive(Deserialize)]
struct Golden {
    #[serde(default)]
    eager_op_names: serde_json::Map<String, serde_json::Value>,
    #[serde(default)]
    cases: Vec<Case>,
    #[serde(default)]
    custom_cases: Vec<Case>,
    #[serde(default)]
    seed_examples: Vec<Example>,
    #[serde(default)]
    documented_seed_result: Vec<String>,
    #[serde(default)]
    odd_dtypes: Vec<Odd>,
}

/// One function in one region.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Case {
    api: String,
    level: String,
    dtype: String,
    inputs: String,
    use_promote: Option<bool>,
    /// An entry of a custom list, which list, and what Python calls the list; all of them are one here.
    list_entry: Option<String>,
    list: Option<String>,
    list_type: Option<String>,
    /// The dtype of the result, and the ops with the dtypes of theirs, casts and constants among them.
    out: Option<String>,
    #[serde(default)]
    ops: Vec<String>,
    /// `no_kernel`: the machine could not run `op` on an `input` that had been cast to `amp_dest`. Or Python's words.
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

/// What came out, and the ops in order.
#[derive(Debug)]
pub struct Outcome {
    pub out: DType,
    pub ops: Vec<Ran>,
}

#[derive(Debug)]
pub enum Verdict {
    Agree,
    OnPurpose(&'static str),
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
    let inputs = precision::resolve(precision::current().as_ref(), op, &dtypes)?.after(&dtypes);
    let widest = inputs.iter().copied().filter(|dtype| dtype.is_float()).reduce(DType::promote);
    let output = gives.or(widest).expect("the function has floating inputs");
    Ok(Outcome { out: output, ops: vec![Ran { op, inputs, output }] })
}

impl Written {
    /// What one writes here.
    pub fn usual(&self, x: &[Tensor]) -> Result<Outcome> {
        match *self {
            Written::Ops(run) | Written::Whole(run) | Written::Instead(run, _) | Written::Twin(run, _) => ran(run, x),
            Written::Decided(op) => decided(op, None, x),
            Written::Tells(op, dtype) => decided(op, Some(dtype), x),
        }
    }

    /// What runs the very ops that Paddle runs, if it can be said here.
    fn same_ops(&self, x: &[Tensor]) -> Option<Result<Outcome>> {
        match *self {
            Written::Whole(_) => None,
            Written::Instead(_, run) => Some(ran(run, x)),
            Written::Twin(_, op) => Some(decided(op, None, x)),
            _ => Some(self.usual(x)),
        }
    }
}

impl Case {
    fn region(&self) -> Option<Autocast> {
        let mut region = region().level(&self.level).dtype(dtype(&self.dtype)?);
        if self.use_promote == Some(false) {
            region = region.use_promote(false);
        }
        Some(region)
    }

    fn custom(&self, region: Autocast) -> Option<Autocast> {
        match (self.list.as_deref(), &self.list_entry, self.list_type.as_deref()) {
            (None, None, None) => Some(region),
            (Some("white"), Some(entry), Some("set" | "list" | "tuple")) => Some(region.white([entry])),
            (Some("black"), Some(entry), Some("set" | "list" | "tuple")) => Some(region.black([entry])),
            _ => None,
        }
    }

    fn no_kernel(&self) -> Option<(&str, DType)> {
        match self.error.as_deref()? {
            "no_kernel" => Some((self.op.as_deref()?, dtype(self.amp_dest.as_deref()?)?)),
            _ => None,
        }
    }

    /// The recorded ops of the function, and the dtype to which an input of each was cast before it.
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

    /// Whether op for op the dtypes are Paddle's. `Err` says what is not understood.
    fn is_the_same(&self, ours: &Outcome, names_count: bool) -> Result<bool, String> {
        let is_named = |ran: &Ran, name: &str| -> Result<bool, String> {
            Ok(named(name).map_err(|error| error.to_string())?.contains(&ran.op) || !names_count)
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
            // Of an op that returns integers or booleans, only its inputs tell in which dtype it ran.
            let input = ran.output.is_float() || cast.is_none_or(|cast| ran.inputs.contains(&cast));
            if !is_named(ran, name)? || !output || !input {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Whether the result has Paddle's dtype; where Paddle could not compute it, whether an op ran in the dtype that stopped
    /// it.
    fn has_the_same_result(&self, ours: &Outcome) -> bool {
        match self.no_kernel() {
            Some((_, low)) => ours.ops.iter().any(|ran| ran.inputs.contains(&low)),
            None => self.out.as_deref().and_then(dtype) == Some(ours.out),
        }
    }

    fn agrees(&self, form: &Form, ours: &Outcome) -> Result<bool, String> {
        match form.written {
            Written::Whole(_) | Written::Instead(..) | Written::Twin(..) => Ok(self.has_the_same_result(ours)),
            _ => self.is_the_same(ours, true),
        }
    }

    fn judge(&self) -> Result<Verdict, String> {
        let not_understood = || "not understood".to_string();
        let words = |error: precast::Error| error.to_string();
        let form = FORMS.iter().find(|form| form.api == self.api).ok_or_else(not_understood)?;
        let low = dtype(&self.dtype).ok_or_else(not_understood)?;
        let x = inputs(form, low, &self.inputs).ok_or_else(not_understood)?;
        let plain = self.region().ok_or_else(not_understood)?;
        let region = self.custom(plain.clone()).ok_or_else(not_understood)?;
        let ours = autocast(&region, || form.written.usual(&x)).map_err(words)?;
        if self.error.as_ref().is_some_and(|error| error.starts_with("TypeError: ")) {
            // Python refused a dtype before anything ran.
            return Ok(Verdict::OnPurpose(ANY_DTYPE));
        }
        if self.error.is_some() && self.no_kernel().is_none() {
            return Err(not_understood());
        }
        // Whatever one writes usually, Paddle's own ops run in Paddle's dtypes.
        let same_ops = autocast(&region, || form.written.same_ops(&x).transpose()).map_err(words)?;
        let same = match &same_ops {
            Some(outcome) => self.is_the_same(outcome, !matches!(form.written, Written::Twin(..)))?,
            None => true,
        };
        let agrees = self.agrees(form, &ours)?;
        match form.written {
            _ if agrees && same => return Ok(Verdict::Agree),
            Written::Instead(..) if same => return Ok(Verdict::OnPurpose(ONE_OP)),
            Written::Twin(..) if same => return Ok(Verdict::OnPurpose(TWINS)),
            _ => {}
        }
        if self.list_entry.is_some() {
            // Paddle knows no op of that name, and does as if it had not been listed.
            let unlisted = autocast(&plain, || form.written.usual(&x)).map_err(words)?;
            let known = self.list_entry.as_ref().is_some_and(|entry| is_listed_so(entry));
            if self.agrees(form, &unlisted)? && !known {
                return Ok(Verdict::OnPurpose(HEEDED));
            }
        }
        match self.api.as_str() {
            // In a graph it is passed by, as if it ran outside.
            "F.batch_norm" if self.agrees(form, &form.written.usual(&x).map_err(words)?)? => {
                Ok(Verdict::OnPurpose(EVERY_OP))
            }
            // It widens low inputs itself, before the lists are asked.
            "median" if self.theirs().iter().all(|op| op.1 == Some(DType::F32)) && ours.out == low => {
                Ok(Verdict::OnPurpose(EVERY_OP))
            }
            _ => Err(format!("ours {ours:?}; with their ops {same_ops:?}")),
        }
    }

    fn describe(&self) -> String {
        let promote = if self.use_promote == Some(false) { ", no promotion" } else { "" };
        let custom = match (&self.list, &self.list_entry) {
            (Some(list), Some(entry)) => format!(", {list} {entry}"),
            _ => String::new(),
        };
        let theirs = match (&self.out, &self.error) {
            (Some(out), _) => format!("{out} by {}", self.ops.join(" ")),
            (None, error) => format!("{error:?} {:?} {:?}", self.op, self.amp_dest),
        };
        format!("{} {} {} of {}{promote}{custom}: theirs {theirs}", self.api, self.level, self.dtype, self.inputs)
    }
}

#[test]
fn every_recorded_case() {
    let Some(golden) = crate::common::golden("paddle/ops.json") else { return };
    let golden: Golden = serde_json::from_value(golden).expect("the file is as it was recorded");
    let mut tally = Tally::new("paddle", "ops");
    let verbose = std::env::var_os("PRECAST_GOLDENS_VERBOSE").is_some_and(|v| v == "1");
    let mut count = |what: String, verdict: Result<Verdict, String>| {
        if verbose {
            println!("{what}: {verdict:?}");
        }
        match verdict {
            Ok(Verdict::Agree) => tally.agree(),
            Ok(Verdict::OnPurpose(difference)) => tally.on_purpose(difference),
            Err(why) => tally.fail(format!("{what}: {why}")),
        }
    };
    for api in golden.eager_op_names.keys().filter(|api| !FORMS.iter().any(|form| form.api == *api)) {
        count(api.clone(), Err("not understood".into()));
    }
    for case in golden.cases.iter().chain(&golden.custom_cases) {
        count(case.describe(), case.judge());
    }
    let default: Vec<&Example> = golden.seed_examples.iter().filter(|e| e.dtype == "default(float16)").collect();
    for example in &golden.seed_examples {
        let of_its_mode = default.iter().filter(|other| other.mode == example.mode);
        let place = of_its_mode.clone().position(|other| std::ptr::eq(*other, example));
        let documented = place
            .filter(|_| of_its_mode.count() == golden.documented_seed_result.len())
            .and_then(|place| dtype(&golden.documented_seed_result[place]));
        count(format!("{} {} {}", example.mode, example.dtype, example.example), example.judge(documented));
    }
    for odd in &golden.odd_dtypes {
        count(format!("{} of {:?}", odd.case, odd.inputs), odd.judge());
    }
    tally.close();
}
