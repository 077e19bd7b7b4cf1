//! TensorFlow's loss scales: traces of `DynamicLossScale` and of optimizers that scale their loss, and refusals.

use precast::{
    DType, Error, ErrorKind, Grads, LossScale, Outcome, Param, Result, Sgd, Tensor,
    cell::Params,
    policy::{DynamicScale, LossScaleSpec},
    scale::all_finite,
};
use precast_graph::tensorflow::IntoLossScale;
use serde_json::Value;

use crate::common::golden::golden;
use crate::replay::{Tally, Verdict, entries, replay};
use crate::scalers::{
    model::is_sound,
    numbers::{self, text},
};

/// Reads a recorded number; non-finite ones are words.
fn number(value: &Value) -> Option<f32> {
    numbers::number(value).map(|x| x as f32)
}

/// Reads a recorded gradient: a word, or a number.
fn gradient(value: &Value) -> Option<f32> {
    match value.as_str() {
        Some("ok") => Some(1.0),
        Some("zero") => Some(0.0),
        Some("tiny") => Some(1e-30),
        _ => number(value),
    }
}

/// Returns the words of a trace that serve as its name.
fn words(trace: &[Value], key: &str) -> String {
    trace.iter().map(|step| step[key].as_str().unwrap_or("number")).collect::<Vec<_>>().join(" ")
}

/// Returns whether both are equal, both NaN, or within a rounding or two.
fn same(a: f32, b: f32) -> bool {
    a == b || (a.is_nan() && b.is_nan()) || (a - b).abs() <= 1e-6 * a.abs().max(b.abs())
}

/// Returns the numbers of a `DynamicLossScale`; unrecorded ones are the defaults.
fn dynamic(config: &Value) -> DynamicScale {
    let or = |key: &str, usual: f32| config.get(key).and_then(number).unwrap_or(usual);
    let multiplier = f64::from(or("multiplier", 2.0));
    let interval = or("increment_period", 2000.0) as u32;
    let init = or("initial_loss_scale", 32768.0);
    DynamicScale::tensorflow().init(init).growth(multiplier).backoff(1.0 / multiplier).interval(interval)
}

/// Makes a dynamic scale of recorded numbers, with which TensorFlow went through a trace. `None` if it is refused, as
/// our rule demands; the case is then counted.
fn sound(tally: &mut Tally, case: &str, numbers: DynamicScale, trace: &[Value]) -> Option<LossScale> {
    let is_sound = is_sound(&numbers);
    match (LossScale::new(LossScaleSpec::Dynamic(numbers)), is_sound) {
        _ if trace.is_empty() => tally.fail(case, "a trace without steps"),
        (Ok(scale), true) => return Some(scale),
        (Err(error), false) if error.kind() == ErrorKind::Value => tally.differs(case),
        (Ok(_), false) => tally.fail(case, "unsound numbers are taken"),
        (Err(error), _) => tally.fail(case, error),
    }
    None
}

fn dynamic_trace(tally: &mut Tally, recorded: &Value) {
    let trace = recorded["trace"].as_array().unwrap();
    let numbers = dynamic(&recorded["config"]);
    let DynamicScale { init, growth, interval, .. } = numbers;
    let case = format!("DynamicLossScale({init}, {interval}, {growth}) {}", words(trace, "grad"));
    let Some(mut scale) = sound(tally, &case, numbers, trace) else { return };
    for (i, step) in trace.iter().enumerate() {
        let Some(grad) = gradient(&step["grad"]) else {
            return tally.fail(case, format!("step {i}: a gradient that is not known"));
        };
        let before = scale.value();
        let finite = is_finite(&[Some(grad)]);
        scale.adjust(finite);
        let ours = (before, scale.value(), Some(u64::from(scale.state().counter)), Some(finite));
        let number = |key: &str| number(&step[key]).unwrap_or(f32::NAN);
        let theirs = (
            number("scale_before"),
            number("scale_after"),
            step["good_steps"].as_u64(),
            step["should_apply"].as_bool(),
        );
        if ours != theirs {
            return tally.fail(case, format!("step {i}: ours {ours:?}, TensorFlow's {theirs:?}"));
        }
    }
    tally.agree(case);
}

/// Returns the result of `all_finite` for these gradients.
fn is_finite(grads: &[Option<f32>]) -> bool {
    let params: Vec<Param> = grads.iter().map(|_| Param::new(Tensor::ones(&[1], DType::F32))).collect();
    let mut all = Grads::default();
    for (param, grad) in params.iter().zip(grads) {
        grad.iter().for_each(|&x| all.set(param, Tensor::full(&[1], x.into(), DType::F32)));
    }
    all_finite(&all, &params.into_iter().collect())
}

/// State after a step.
#[derive(Clone, Copy, Debug)]
struct State {
    scale_before: f32,
    unscaled: f32,
    scale: f32,
    good_steps: u32,
    var: f32,
    /// Number of updates so far.
    global_step: u64,
}

/// One number, trained by gradient descent from 1, with a loss scale.
struct Run {
    var: Param,
    optimizer: Sgd,
    scale: LossScale,
    global_step: u64,
}

impl Run {
    fn new(lr: f64, scale: LossScale) -> Self {
        let var = Param::new(Tensor::ones(&[1], DType::F32));
        let optimizer = Sgd::new([var.clone()].into_iter().collect(), lr);
        Run { var, optimizer, scale, global_step: 0 }
    }

    /// Makes a finite loss of this gradient. The slope of a root at 0 is infinite, and 0 times that is NaN.
    fn loss(&self, grad: f32) -> Result<Tensor> {
        let var = self.var.tensor();
        let root = var.sub(&var.detach())?.sqrt()?;
        let factor = |x: f32| Tensor::full(&[1], x.into(), DType::F32);
        match grad {
            x if x.is_nan() => root.mul(&factor(0.0)),
            x if x.is_infinite() => root.mul(&factor(x.signum())),
            x => var.mul(&factor(x)),
        }
    }

    fn step(&mut self, grad: f32) -> Result<State> {
        let scale_before = self.scale.value();
        let params: Params = [self.var.clone()].into_iter().collect();
        let grads = self.scale.scale(&self.loss(grad)?)?.backward()?.unscale(&params)?;
        let unscaled = grads.get(&self.var).ok_or_else(|| Error::value("no gradient"))?.item()? as f32;
        let loss = self.loss(grad)?;
        let outcome = self.scale.step(&mut self.optimizer, &loss)?;
        self.global_step += u64::from(outcome == Outcome::Stepped);
        let (scale, good_steps) = (self.scale.value(), self.scale.state().counter);
        let var = self.var.value().item()? as f32;
        Ok(State { scale_before, unscaled, scale, good_steps, var, global_step: self.global_step })
    }
}

/// Returns the first deviation of a state from the recorded numbers, each under its recorded name.
fn differs(ours: State, recorded: &Value) -> Option<String> {
    let numbers = [
        ("scale_before", ours.scale_before),
        ("unscaled_grad", ours.unscaled),
        ("scale_after", ours.scale),
        ("scale", ours.scale),
        ("var", ours.var),
    ];
    let counts = [
        ("global_step", ours.global_step),
        ("iterations", ours.global_step),
        ("good_steps", ours.good_steps.into()),
        ("step_counter", ours.good_steps.into()),
    ];
    let number = |(key, ours): &(&str, f32)| match recorded.get(key).map(|theirs| number(theirs).unwrap_or(f32::NAN)) {
        Some(theirs) if !same(*ours, theirs) => Some(format!("{key}: ours {ours}, recorded {theirs}")),
        _ => None,
    };
    let count = |(key, ours): &(&str, u64)| match recorded.get(key) {
        Some(theirs) if theirs.as_u64() != Some(*ours) => Some(format!("{key}: ours {ours}, recorded {theirs}")),
        _ => None,
    };
    numbers.iter().find_map(number).or_else(|| counts.iter().find_map(count))
}

/// The variable by our rule, in plain arithmetic; the recorded optimizer applies non-finite gradients under a fixed
/// scale, and flushes the inverse of a large scale to 0.
struct Rule {
    lr: f32,
    var: f32,
    global_step: u64,
}

impl Rule {
    /// Returns the recording of a step, with our rule's numbers in place of those affected by a difference.
    fn step(&mut self, grad: f32, scale: f32, recorded: &Value) -> Value {
        let mut demanded = recorded.clone();
        if grad.is_finite() {
            let unscaled = grad * scale * (1.0 / scale);
            self.var -= self.lr * unscaled;
            self.global_step += 1;
            demanded["unscaled_grad"] = unscaled.into();
        }
        demanded["var"] = self.var.into();
        demanded["global_step"] = self.global_step.into();
        demanded
    }
}

/// Returns the learning rate in `GradientDescent(0.125)`.
fn learning_rate(optimizer: &str) -> Option<f64> {
    optimizer.strip_prefix("GradientDescent(")?.strip_suffix(')')?.parse().ok()
}

fn optimizer_trace(tally: &mut Tally, recorded: &Value) {
    let trace = list(&recorded["trace"]);
    let (given, optimizer) = (&recorded["loss_scale"], text(&recorded["optimizer"]));
    let name = match given.as_str() {
        Some(word) => word.to_string(),
        None => {
            let DynamicScale { init, interval, growth, .. } = dynamic(given);
            format!("DynamicLossScale({init}, {interval}, {growth})")
        }
    };
    let case = format!("{optimizer} with {name}: {}", words(trace, "loss_grad"));
    let Some(lr) = learning_rate(&optimizer) else { return tally.fail(case, "an optimizer that is not known") };
    let scale = match given.as_str() {
        None => sound(tally, &case, dynamic(given), trace),
        Some(word) => match identifier(word) {
            Some(Ok(scale)) => Some(scale),
            _ => return tally.fail(case, "a loss scale that is not known"),
        },
    };
    let Some(scale) = scale else { return };
    let mut rule = Rule { lr: lr as f32, var: 1.0, global_step: 0 };
    let mut run = Run::new(lr, scale);
    let mut agrees = true;
    for (i, step) in trace.iter().enumerate() {
        let Some(grad) = gradient(&step["loss_grad"]) else {
            return tally.fail(case, format!("step {i}: a gradient that is not known"));
        };
        let demanded = rule.step(grad, run.scale.value(), step);
        let ours = match run.step(grad) {
            Ok(ours) => ours,
            Err(error) => return tally.fail(case, format!("step {i}: {error}")),
        };
        if let Some(what) = differs(ours, &demanded) {
            return tally.fail(case, format!("step {i}, by our rule: {what}"));
        }
        agrees &= differs(ours, step).is_none();
    }
    tally.count(case, Ok(Verdict::of(agrees)));
}

/// Judges a trace in which nothing may differ.
fn same_trace(tally: &mut Tally, case: String, mut run: Run, trace: &[Value]) {
    for (i, step) in trace.iter().enumerate() {
        let Some(grad) = gradient(&step["grad"]) else {
            return tally.fail(case, format!("step {i}: a gradient that is not known"));
        };
        match run.step(grad).map(|ours| differs(ours, step)) {
            Ok(None) => {}
            Ok(Some(what)) => return tally.fail(case, format!("step {i}: {what}")),
            Err(error) => return tally.fail(case, format!("step {i}: {error}")),
        }
    }
    tally.agree(case);
}

/// Judges the recorded trace of a graph, which has no numbers; they are those of the first eager one.
fn graph_trace(tally: &mut Tally, recorded: &Value) {
    let trace = list(&recorded["trace"]);
    let numbers = DynamicScale::default().init(8.0).interval(2).max(f32::MAX);
    let run = Run::new(0.125, LossScale::new(LossScaleSpec::Dynamic(numbers)).unwrap());
    // The state includes everything that TensorFlow keeps in a checkpoint.
    let state = serde_json::to_value(run.scale.state()).unwrap();
    for variable in list(&recorded["variables"]) {
        let (case, kept) = match variable.as_str() {
            Some("current_loss_scale") => ("variable current_loss_scale", state["scale"].is_number()),
            Some("good_steps") => ("variable good_steps", state["counter"].is_number()),
            _ => ("a variable that is not known", false),
        };
        if kept { tally.agree(case) } else { tally.fail(case, variable) }
    }
    if !trace.is_empty() {
        same_trace(tally, format!("graph {}", words(trace, "grad")), run, trace);
    }
}

/// Returns the items of a list, which a folder may lack.
fn list(value: &Value) -> &[Value] {
    value.as_array().map(Vec::as_slice).unwrap_or_default()
}

/// Judges Keras 3's own loss scale, which follows the rule too, but has no floor.
fn keras(tally: &mut Tally, recorded: &Value) {
    let usual = "dynamic".into_loss_scale().unwrap();
    let LossScaleSpec::Dynamic(usual) = usual.spec() else { panic!("{usual:?}") };
    let expected = format!("initial_scale={:?}, dynamic_growth_steps={}", usual.init, usual.interval);
    match recorded["signature"].as_str() {
        None => {}
        Some(signature) if signature.contains(&expected) => tally.agree("Keras 3 signature"),
        Some(signature) => tally.fail("Keras 3 signature", signature),
    }
    for recorded in list(&recorded["traces"]) {
        let (config, trace) = (&recorded["config"], list(&recorded["trace"]));
        let numbers = DynamicScale::default()
            .init(number(&config["initial_scale"]).unwrap_or(32768.0))
            .interval(config["dynamic_growth_steps"].as_u64().unwrap_or(2000) as u32)
            .min(f32::MIN_POSITIVE)
            .max(f32::MAX);
        let case =
            format!("Keras 3 LossScaleOptimizer({}, {}) {}", numbers.init, numbers.interval, words(trace, "grad"));
        match LossScale::new(LossScaleSpec::Dynamic(numbers)) {
            Ok(scale) => same_trace(tally, case, Run::new(0.125, scale), trace),
            Err(error) => tally.fail(case, error),
        }
    }
}

/// Converts `'dynamic'`, `8.0`, `None` or another word, as accepted for `loss_scale`. `None` for anything else.
fn identifier(written: &str) -> Option<Result<LossScale>> {
    let unquoted = |quote| written.strip_prefix(quote)?.strip_suffix(quote);
    if let Some(word) = unquoted('"').or_else(|| unquoted('\'')) {
        return Some(word.into_loss_scale());
    }
    match written {
        "None" => Some(LossScale::none().into_loss_scale()),
        _ => Some(written.parse::<f64>().ok()?.into_loss_scale()),
    }
}

/// Returns a loss scale as printed by TensorFlow.
fn printed(case: &Value) -> Option<String> {
    let result = case.get("result")?.to_string();
    let scales = ["FixedLossScale(", "DynamicLossScale(current_loss_scale="];
    let (kind, rest) = scales.iter().find_map(|kind| Some((kind, result.split_once(kind)?.1)))?;
    let number: f32 = rest.split([')', ',', '"']).next()?.parse().ok()?;
    Some(format!("{kind}{number}"))
}

/// Formats ours in the same way.
fn shown(scale: &LossScale) -> String {
    match scale.spec() {
        LossScaleSpec::Dynamic(_) => format!("DynamicLossScale(current_loss_scale={}", scale.value()),
        LossScaleSpec::Fixed { .. } => format!("FixedLossScale({}", scale.value()),
        LossScaleSpec::None => "none".into(),
        other => unreachable!("{other:?}"),
    }
}

/// A call that makes a loss scale, with its argument.
#[derive(Clone, Copy)]
enum Call<'a> {
    /// `FixedLossScale(...)`: `LossScale::fixed`.
    Fixed(&'a str),
    /// The argument `loss_scale` of other calls: `IntoLossScale`.
    Given(&'a str),
}

fn call(case: &str) -> Option<Call<'_>> {
    let inside = |begin: &str| case.strip_prefix(begin)?.strip_suffix(')');
    if let Some(argument) = inside("FixedLossScale(") {
        return Some(Call::Fixed(argument));
    }
    let given = inside("LossScaleOptimizer(opt,").or_else(|| inside("enable(opt, loss_scale="));
    given.or_else(|| case.strip_prefix("loss_scale=")).map(|argument| Call::Given(argument.trim()))
}

/// Forms that do not compile.
const WRONG_FORMS: [&str; 5] = [
    "LossScaleOptimizer(1)",
    "LossScaleOptimizer(LossScaleOptimizer)",
    "enable(None)",
    "enable(\"sgd\")",
    "enable(already wrapped)",
];

/// Words in what does not exist here: Keras and its policies, a switch for a whole program, nested and sparse gradients,
/// numbers of NumPy, replicas.
const ABSENT: [&str; 6] = ["keras", "option not set", "disable (", "nested structure", "numpy float32", "replica"];

fn error_or_state(tally: &mut Tally, recorded: &Value) {
    let case = text(&recorded["case"]);
    let raised = recorded["error"].as_str();
    if WRONG_FORMS.contains(&&*case) {
        return tally.differs(case);
    }
    if ABSENT.iter().any(|words| case.to_lowercase().contains(words)) {
        return tally.absent(case);
    }
    let says = |tally: &mut Tally, ours: &[bool]| match recorded["result"] == serde_json::json!(ours) {
        true => tally.agree(&case),
        false => tally.fail(&case, format!("ours {ours:?}")),
    };
    match &case[..] {
        "update with None grads ignored" => {
            return says(tally, &[is_finite(&[None, Some(1.0)]), is_finite(&[None, Some(f32::INFINITY)])]);
        }
        "update with all None / empty list" => return says(tally, &[is_finite(&[None, None]), is_finite(&[])]),
        "float16 variable with scale 2**17: loss_scale cast to loss dtype overflows" => {
            return match low_loss() {
                Ok(()) if raised == Some("InvalidArgumentError") => tally.differs(case),
                Ok(()) => tally.fail(case, format!("{recorded} there")),
                Err(error) => tally.fail(case, error),
            };
        }
        "enable(v1 SGD)" | "enable twice with fresh optimizers" => {
            let ours = "dynamic".into_loss_scale().map(|scale| shown(&scale)).ok();
            return match ours == printed(recorded) {
                true => tally.agree(case),
                false => tally.fail(case, format!("ours {ours:?}")),
            };
        }
        _ => {}
    }
    let theirs = match (raised, printed(recorded)) {
        (Some("ValueError"), None) => None,
        (None, Some(printed)) => Some(printed),
        _ => return tally.fail(case, format!("a record that is not understood: {recorded}")),
    };
    // What our rule demands, where TensorFlow may do otherwise.
    let (ours, demanded) = match call(&case) {
        None => return tally.fail(case, "a case that is not known"),
        // TensorFlow takes a bool as the number 1 or 0, and 0 is too small.
        Some(Call::Fixed(argument) | Call::Given(argument))
            if argument.starts_with("True") || argument.starts_with("False") =>
        {
            let number = argument.starts_with("True").then(|| "FixedLossScale(1".to_string());
            return match theirs == number {
                true => tally.differs(case),
                false => tally.fail(case, format!("{recorded} there")),
            };
        }
        Some(Call::Fixed(argument)) => match argument.parse::<f32>() {
            Ok(x) if x < 1.0 || !x.is_finite() => {
                (LossScale::fixed(x), Some((x > 0.0 && x.is_finite()).then(|| format!("FixedLossScale({x}"))))
            }
            Ok(x) => (LossScale::fixed(x), None),
            // A word is not a number here either.
            Err(_) => (argument.trim_matches(['"', '\'']).into_loss_scale(), None),
        },
        Some(Call::Given("None")) => (LossScale::none().into_loss_scale(), Some(Some("none".into()))),
        Some(Call::Given("FixedLossScale")) => (LossScale::fixed(4.0).and_then(IntoLossScale::into_loss_scale), None),
        Some(Call::Given(argument)) => match identifier(argument) {
            Some(ours) => {
                let refused = argument.parse::<f64>().is_ok_and(|x| !x.is_finite());
                (ours, refused.then_some(None))
            }
            None if argument.starts_with("DynamicLossScale") => ("dynamic".into_loss_scale(), None),
            // A list, a NumPy object or one of another class.
            None if raised == Some("ValueError") => return tally.differs(case),
            None => return tally.fail(case, "an argument that is not known"),
        },
    };
    let ours = match ours {
        Ok(scale) => Some(shown(&scale)),
        Err(error) if error.kind() == ErrorKind::Value => None,
        Err(error) => return tally.fail(case, error),
    };
    match demanded {
        Some(demanded) if demanded == ours => tally.count(case, Ok(Verdict::of(ours == theirs))),
        None if ours == theirs => tally.agree(case),
        _ => tally.fail(case, format!("ours {ours:?}, TensorFlow's {theirs:?}")),
    }
}

/// Computes an f16 loss times 2^17, in f32.
fn low_loss() -> Result<()> {
    let var = Param::new(Tensor::ones(&[1], DType::F16));
    let scaled = LossScale::fixed(131_072.0)?.scale(&var.tensor().sum_all()?)?;
    match (scaled.dtype(), scaled.item()?) {
        (DType::F32, 131_072.0) => Ok(()),
        other => Err(Error::value(format!("{other:?}"))),
    }
}

/// Judges the default numbers of the word `dynamic`, and of TensorFlow's constructor.
fn usual_numbers(tally: &mut Tally, case: &str, theirs: &[f64]) {
    let usual = "dynamic".into_loss_scale().unwrap();
    let LossScaleSpec::Dynamic(d) = usual.spec() else { panic!("{usual:?}") };
    let ours = [f64::from(d.init), f64::from(d.interval), d.growth];
    match ours == theirs && d.backoff == 1.0 / d.growth {
        true => tally.agree(case),
        false => tally.fail(case, format!("ours {ours:?}, TensorFlow's {theirs:?}")),
    }
}

#[test]
fn the_loss_scales_of_tensorflow() {
    replay("tensorflow", "scaler", golden("tensorflow/scaler.json"), |recorded, tally| {
        for (part, value) in entries(recorded) {
            let keys = ["initial_loss_scale", "increment_period", "multiplier"];
            match &part[..] {
                "tensorflow" => {}
                "defaults" => {
                    let theirs: Vec<f64> = keys.iter().filter_map(|key| value[key].as_f64()).collect();
                    usual_numbers(tally, "defaults", &theirs);
                }
                "repr" => {
                    let shown = text(value);
                    let after =
                        |key: &str| shown.split_once(&format!("{key}="))?.1.split([',', ')']).next()?.parse().ok();
                    let theirs: Vec<f64> = keys.iter().filter_map(|key| after(key)).collect();
                    usual_numbers(tally, "repr", &theirs);
                }
                "dynamic_loss_scale_traces" => list(value).iter().for_each(|trace| dynamic_trace(tally, trace)),
                "optimizer_eager_traces" => list(value).iter().for_each(|trace| optimizer_trace(tally, trace)),
                "optimizer_graph_trace" => graph_trace(tally, value),
                "errors_and_state" => list(value).iter().for_each(|case| error_or_state(tally, case)),
                "keras3_LossScaleOptimizer" => keras(tally, value),
                _ => tally.fail(part.clone(), "a part that is not known"),
            }
        }
    });
}
