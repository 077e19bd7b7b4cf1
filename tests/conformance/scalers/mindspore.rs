//! MindSpore's loss scalers, loss scale managers and `all_finite`.

use precast::{
    DType, ErrorKind, Grads, LossScale, Outcome, Param, Result, Sgd, Tensor,
    cell::Params,
    layers::{Dense, Rng},
    policy::{DynamicScale, LossScaleSpec},
    scale::all_finite,
};
use precast_train::{
    FitOptions,
    data::{Dataset, Split},
    mindspore::{BuildOptions, build_train_network},
};
use serde_json::Value;

use crate::{
    common::golden::golden,
    mindspore::misc::is_of_a_scaler,
    replay::{Tally, Verdict, entries, replay},
    scalers::{
        model::{Model, is_sound},
        numbers::{Number, Numbers, dtype, number, round},
    },
};

fn params(all: &[&Param]) -> Params {
    all.iter().map(|&param| param.clone()).collect()
}

fn vector(x: &[f64], dtype: DType) -> Tensor {
    Tensor::from_f64(x, &[x.len()], dtype).expect("a vector")
}

/// Makes a dynamic scale of these numbers, or returns `None` if both our rule and our code refuse them; the case is
/// then counted.
fn sound(tally: &mut Tally, case: &str, numbers: DynamicScale) -> Option<(LossScale, Model)> {
    let is_sound = is_sound(&numbers);
    match (LossScale::new(LossScaleSpec::Dynamic(numbers.clone())), is_sound) {
        (Ok(scale), true) => return Some((scale, Model::new(numbers))),
        (Err(_), false) => tally.differs(case),
        (made, _) => tally.fail(case, format!("{made:?}")),
    }
    None
}

/// A step of a recorded trace: whether it was finite, and the scale and the number of finite steps after it.
struct Step {
    finite: bool,
    scale: f64,
    counter: u32,
}

/// Follows a trace with `adjust`, and with the model.
fn follow(tally: &mut Tally, case: &str, numbers: DynamicScale, steps: Option<Vec<Step>>) {
    let Some(steps) = steps else { return tally.fail(case, "a trace that is not understood") };
    let Some((mut scale, mut model)) = sound(tally, case, numbers) else { return };
    let mut is_finite = true;
    for (i, step) in steps.iter().enumerate() {
        scale.adjust(step.finite);
        model.adjust(step.finite);
        if !model.is(&scale) {
            return tally.fail(case, format!("step {i}: ours {:?}, by our rule {model:?}", scale.state()));
        }
        // Managers compute in f64.
        let near = (f64::from(scale.value()) - step.scale).abs() <= 1e-6 * step.scale;
        is_finite &= (step.scale as f32).is_finite();
        if is_finite && (!near || scale.state().counter != step.counter) {
            let (theirs, ours) = ((step.scale, step.counter), scale.state());
            return tally.fail(case, format!("step {i}: ours {ours:?}, MindSpore's {theirs:?}"));
        }
    }
    tally.count(case, Ok(Verdict::of(is_finite)));
}

fn flags(recorded: &Value) -> Option<Vec<bool>> {
    recorded.as_array()?.iter().map(|flag| Some(flag.as_u64()? == 1)).collect()
}

/// Judges a trace of `DynamicLossScaler.adjust`.
fn scaler_trace(tally: &mut Tally, trace: &Value) {
    let factors = || {
        let (init, window) = (number(&trace["scale_value"])?, trace["scale_window"].as_u64()? as u32);
        Some((init, trace["scale_factor"].as_u64()? as u32, window))
    };
    let Some((init, factor, window)) = factors() else {
        return tally.fail("DynamicLossScaler", "a trace that is not understood");
    };
    let steps = || {
        let after = trace["scale_and_counter_after"].as_array()?;
        let steps = flags(&trace["finite_flags"])?.into_iter().zip(after);
        steps
            .map(|(finite, after)| Some(Step { finite, scale: number(&after[0])?, counter: after[1].as_u64()? as u32 }))
            .collect()
    };
    let case = format!("DynamicLossScaler({init}, {factor}, {window}) adjust");
    follow(tally, &case, DynamicScale::mindspore(init as f32, factor, window), steps());
}

/// Judges a trace of `DynamicLossScaleManager.update_loss_scale`, or of `DynamicLossScaleUpdateCell`, which computes in
/// f32.
fn manager_trace(tally: &mut Tally, class: &str, trace: &Value) {
    let after = trace.as_object().and_then(|all| all.iter().find(|(key, _)| key.starts_with("after[")));
    let factors = || Some((number(&trace["init"])?, number(&trace["factor"])?, trace["window"].as_u64()? as u32));
    let (Some((names, after)), Some((init, factor, window))) = (after, factors()) else {
        return tally.fail(class, "a trace that is not understood");
    };
    let backoff = if class.ends_with("Cell") { f64::from(1.0 / factor as f32) } else { 1.0 / factor };
    let usual = DynamicScale::mindspore_manager();
    let numbers = usual.init(init as f32).growth(factor).backoff(backoff).interval(window);
    let case = format!("{class}({init}, {factor}, {window}) {}", trace["overflow_flags"]);
    if let Some(times) = trace["overflow_flags"].as_str().and_then(|all| all.strip_prefix("all 1 x ")) {
        return match times.parse() {
            Ok(times) => stalls(tally, &case, numbers, times, after),
            Err(_) => tally.fail(case, "flags that are not understood"),
        };
    }
    let columns: Vec<&str> = names.trim_start_matches("after[").trim_end_matches(']').split(',').collect();
    let column = |row: &Value, name: &str| row.get(columns.iter().position(|column| *column == name)?).cloned();
    let steps = || {
        let steps = flags(&trace["overflow_flags"])?.into_iter().zip(after.as_array()?);
        let step = |(overflow, row): (bool, &Value)| {
            let iterations = |name: &str| column(row, name)?.as_u64();
            let since = iterations("cur_iter")? - 1 - iterations("last_overflow_iter")?;
            let scale = number(&column(row, "scale")?)?;
            Some(Step { finite: !overflow, scale, counter: (since % u64::from(window)) as u32 })
        };
        steps.map(step).collect()
    };
    follow(tally, &case, numbers, steps());
}

/// Judges endless overflows: the manager raises after a thousand of them, here steps are stalled.
fn stalls(tally: &mut Tally, case: &str, numbers: DynamicScale, times: usize, recorded: &Value) {
    let floor = numbers.min;
    let Some((mut scale, mut model)) = sound(tally, case, numbers) else { return };
    let param = Param::new(Tensor::ones(&[1], DType::F32));
    let mut sgd = Sgd::new(params(&[&param]), 0.1);
    let mut seen = vec![];
    for step in 1..=times {
        let at_floor = scale.value() == floor;
        let outcome = overflow(&mut scale, &mut sgd, &param);
        model.adjust(false);
        let demanded = step >= 20 && at_floor;
        let stalled = matches!(outcome, Ok(Outcome::Stalled { skipped, .. }) if skipped as usize == step);
        if stalled != demanded || !model.is(&scale) {
            return tally.fail(case, format!("step {step}: {outcome:?}, {:?}, by our rule {model:?}", scale.state()));
        }
        seen.push((f64::from(scale.value()), u64::from(scale.state().skipped)));
    }
    let rows = recorded.as_array().cloned().unwrap_or_default();
    let same = |row: &Value, at: usize| number(&row[0]) == Some(seen[at].0) && row[4].as_u64() == Some(seen[at].1);
    let first = rows.iter().take_while(|row| row.is_array()).enumerate().all(|(i, row)| same(row, i));
    // After the omitted part, rows name their iteration.
    let mut last = rows.iter().skip_while(|row| row.is_array()).filter(|row| row.is_array());
    let last = last.all(|row| row[2].as_u64().map_or(row[0] == "RuntimeError", |next| same(row, next as usize - 2)));
    if first && last { tally.differs(case) } else { tally.fail(case, format!("ours {seen:?}")) }
}

/// Runs a step with an infinite gradient.
fn overflow(scale: &mut LossScale, sgd: &mut Sgd, param: &Param) -> Result<Outcome> {
    let mut grads = Grads::default();
    grads.set(param, Tensor::full(&[1], f64::INFINITY, DType::F32));
    let grads = scale.already_scaled(grads).unscale(&params(&[param]))?;
    let outcome = scale.apply(sgd, &grads);
    scale.update()?;
    outcome
}

/// Judges `scale` and `unscale` of tensors of both dtypes.
fn scale_unscale(tally: &mut Tally, recorded: &Value) {
    let read = |key: &str| recorded[key].as_array()?.iter().map(number).collect::<Option<Vec<f64>>>();
    let given = || Some((number(&recorded["scale_value"])?, dtype(recorded["in_dtype"].as_str()?)?, read("in")?));
    let (Some((by, low, given)), Some(scaled), Some(unscaled)) = (given(), read("scale"), read("unscale")) else {
        return tally.fail("scale_unscale", "a record that is not understood");
    };
    let scale = LossScale::fixed(by as f32).expect("a sound scale");
    let numbers = |dtype, x: &[f64]| Numbers::new(dtype, x.iter().copied());
    let wide = |factor: f32| {
        numbers(DType::F32, &given.iter().map(|x| round(x * f64::from(factor), DType::F32)).collect::<Vec<_>>())
    };

    let losses: Result<Vec<f64>> = given.iter().map(|&x| scale.scale(Tensor::scalar(x, low))?.item()).collect();
    let ours = numbers(DType::F32, &losses.unwrap_or_default());
    judge(tally, format!("scale {low} by {by}"), &ours, &wide(scale.value()), &numbers(low, &scaled));

    let param = Param::new(vector(&vec![1.0; given.len()], low));
    let mut grads = Grads::default();
    grads.set(&param, vector(&given, low));
    let grads = scale.already_scaled(grads).unscale(&params(&[&param]));
    let ours = grads.map(|grads| Numbers::of(&grads.get(&param).expect("set"))).unwrap_or(numbers(DType::Bool, &[]));
    let demanded = wide(1.0 / scale.value());
    judge(tally, format!("unscale {low} by {by}"), &ours, &demanded, &numbers(low, &unscaled));
}

fn judge(tally: &mut Tally, case: String, ours: &Numbers, demanded: &Numbers, theirs: &Numbers) {
    match ours == demanded {
        true => tally.count(case, Ok(Verdict::of(ours == theirs))),
        false => tally.fail(case, format!("ours {ours:?}, by our rule {demanded:?}")),
    }
}

/// Returns the gradients passed to `all_finite`, by the recorded name: one parameter each.
fn finite_case(name: &str) -> Option<Vec<Tensor>> {
    let f32s = |x: &[f64]| vector(x, DType::F32);
    Some(match name {
        "ok" | "list" => vec![f32s(&[1.0, 2.0]), f32s(&[3.0])],
        "nan" => vec![f32s(&[1.0, f64::NAN])],
        "inf second" => vec![f32s(&[1.0]), f32s(&[f64::INFINITY])],
        "-inf f16" => vec![vector(&[f64::NEG_INFINITY], DType::F16)],
        "mixed dtypes" => vec![f32s(&[1.0]), vector(&[f64::INFINITY], DType::F16)],
        "f64" => vec![vector(&[1e300], DType::F64)],
        "int" => vec![vector(&[1.0], DType::I64)],
        "bool" => vec![vector(&[1.0], DType::Bool)],
        "f16 65504" => vec![vector(&[65504.0], DType::F16)],
        "scalar" => vec![Tensor::scalar(f64::NAN, DType::F32)],
        "bf16 inf" => vec![vector(&[f64::INFINITY], DType::Bf16)],
        "empty tuple" => vec![],
        _ => return None,
    })
}

/// Returns the recorded exception.
fn raised(recorded: &Value) -> Option<&str> {
    recorded.get("error").or(recorded.get("type")).and_then(Value::as_str)
}

/// Judges a form that does not compile. MindSpore refuses it by its type, but some calls accept a bool as a number.
fn wrong_form(tally: &mut Tally, case: &str, recorded: &Value) {
    let has_bool = case.contains("True") || case.contains("False");
    match raised(recorded) {
        Some("TypeError" | "AttributeError") => tally.differs(case),
        None if has_bool && recorded.get("ok").is_some() => tally.differs(case),
        _ => tally.fail(case, format!("no wrong form there: {recorded}")),
    }
}

fn finite(tally: &mut Tally, name: &str, recorded: &Value) {
    let case = format!("all_finite {name}");
    if matches!(name, "single tensor" | "nested") {
        return wrong_form(tally, &case, recorded);
    }
    let Some(tensors) = finite_case(name) else { return tally.fail(case, "a case that is not known") };
    let all: Vec<Param> = tensors.iter().map(|_| Param::new(Tensor::ones(&[1], DType::F32))).collect();
    let mut grads = Grads::default();
    all.iter().zip(&tensors).for_each(|(param, x)| grads.set(param, x.clone()));
    let ours = all_finite(&grads, &all.iter().cloned().collect());
    let demanded = tensors.iter().flat_map(Tensor::to_f64).all(f64::is_finite);
    match (recorded["value"].as_bool(), raised(recorded)) {
        _ if ours != demanded => tally.fail(case, format!("ours {ours}, by our rule {demanded}")),
        (Some(theirs), None) => tally.count(case, Ok(Verdict::of(theirs == ours))),
        (None, Some("ValueError" | "TypeError")) => tally.differs(case),
        _ => tally.fail(case, recorded),
    }
}

/// Judges a recorded constructor call.
fn constructor(tally: &mut Tally, call: &str, outcome: &Value) {
    let Some((class, arguments)) = call.strip_suffix(')').and_then(|call| call.split_once('(')) else {
        return tally.fail(call, "a call that is not understood");
    };
    let arguments: Vec<&str> = arguments.split(',').map(str::trim).filter(|argument| !argument.is_empty()).collect();
    let float = |at: usize, usual: Option<f64>| arguments.get(at).map_or(usual, |text| text.parse::<f64>().ok());
    let whole = |at: usize, usual: Option<u32>| match arguments.get(at) {
        Some(text) => text.parse::<i64>().ok().map(|x| u32::try_from(x).unwrap_or(0)),
        None => usual,
    };
    let (number, spec) = match class {
        "StaticLossScaler" | "FixedLossScaleManager" => {
            let Some(scale) = float(0, (class == "FixedLossScaleManager").then_some(128.0)) else {
                return wrong_form(tally, call, outcome);
            };
            (scale, LossScaleSpec::Fixed { scale: scale as f32 })
        }
        "DynamicLossScaler" | "DynamicLossScaleManager" => {
            let managed = class == "DynamicLossScaleManager";
            let usual = DynamicScale::mindspore_manager();
            let init = float(0, managed.then_some(usual.init.into()));
            // A scaler's factor is an integer, like that of `DynamicScale::mindspore`.
            let factor = if managed { float(1, Some(usual.growth)) } else { whole(1, None).map(f64::from) };
            let window = whole(2, managed.then_some(usual.interval));
            let (Some(init), Some(growth), Some(interval)) = (init, factor, window) else {
                return wrong_form(tally, call, outcome);
            };
            let numbers = usual.init(init as f32).growth(growth).backoff(1.0 / growth).interval(interval);
            (init, LossScaleSpec::Dynamic(numbers))
        }
        "LossScaler" => return wrong_form(tally, call, outcome),
        _ => return tally.fail(call, "a class that is not known"),
    };
    let demanded = match &spec {
        LossScaleSpec::Dynamic(numbers) => is_sound(numbers),
        _ => (number as f32).is_normal() && number > 0.0,
    };
    let ours = LossScale::new(spec);
    match (outcome.get("ok").is_some(), &ours) {
        (_, ours) if ours.is_ok() != demanded => tally.fail(call, format!("{ours:?}")),
        (_, Err(error)) if error.kind() != ErrorKind::Value => tally.fail(call, error),
        (true, Ok(scale)) if arguments.get(1) == Some(&"False") => {
            // A number of overflowing steps was requested.
            let param = Param::new(Tensor::ones(&[1], DType::F32));
            let outcome = overflow(&mut scale.clone(), &mut Sgd::new(params(&[&param]), 0.1), &param);
            match (outcome, param.value().to_f64()[..] == [1.0]) {
                (Ok(Outcome::Skipped { .. }), true) => tally.differs(call),
                (outcome, _) => tally.fail(call, format!("{outcome:?}")),
            }
        }
        (false, Ok(_)) if raised(outcome) != Some("ValueError") => tally.fail(call, outcome),
        // It cannot represent the number.
        (false, Err(_)) if raised(outcome) != Some("ValueError") => tally.differs(call),
        (theirs, ours) => tally.count(call, Ok(Verdict::of(theirs == ours.is_ok()))),
    }
}

/// Judges `scale` and `unscale` of values that are not floating-point tensors.
fn odd(tally: &mut Tally, key: &str, recorded: &Value) {
    let scale = LossScale::fixed(4.0).expect("a sound scale");
    let [a, b] = [1.0, 2.0].map(|x| Param::new(Tensor::full(&[1], x, DType::F32)));
    let mut grads = Grads::default();
    grads.set(&a, Tensor::full(&[1], 4.0, DType::F32));
    let mut scaled = scale.already_scaled(grads);
    match key {
        "StaticLossScaler_adjust_returns" => {
            let mut adjusted = scale.clone();
            adjusted.adjust(true);
            adjusted.adjust(false);
            let stays = adjusted.value() == scale.value() && recorded.as_bool() == Some(false);
            if stays { tally.agree(key) } else { tally.fail(key, format!("{adjusted:?}")) }
        }
        "scale_int_input" | "scale_int_result" => match scale.scale(Tensor::scalar(1.0, DType::I64)) {
            Err(_) if raised(recorded).is_none() => tally.differs(key),
            other => tally.fail(key, format!("ours {other:?}, MindSpore's {recorded}")),
        },
        "scale_python_float" => wrong_form(tally, key, recorded),
        "unscale_empty_tuple" => match scaled.unscale(&Params::default()) {
            Err(_) if raised(recorded).is_none() => tally.differs(key),
            other => tally.fail(key, format!("ours {other:?}, MindSpore's {recorded}")),
        },
        // Gradients are a map by parameter.
        "unscale_nested_tuple" => tally.absent(key),
        _ if raised(recorded) != Some("TypeError") => tally.fail(key, recorded),
        _ => match scaled.unscale(&params(&[&a, &b])) {
            Ok(grads) if grads.get(&b).is_none() && Numbers::of(&grads.get(&a).unwrap()).numbers == [Number(1.0)] => {
                tally.differs(key);
            }
            other => tally.fail(key, format!("{other:?}")),
        },
    }
}

/// MindSpore's `build_train_network` refuses a scale that skips steps on a CPU. O2 has one by default.
#[test]
fn a_trained_network_has_its_loss_scale_on_a_cpu() {
    let manager = DynamicScale::mindspore_manager();
    for (asked, first) in [
        (None, 65_536.0),
        (Some(LossScaleSpec::Dynamic(manager)), 16_777_216.0),
        (Some(LossScaleSpec::Fixed { scale: 128.0 }), 128.0),
    ] {
        let net = Dense::new(4, 3, &mut Rng::seed(1));
        let fit = FitOptions::default().epochs(1);
        let options = BuildOptions::default().loss_scale_manager(asked).fit(fit);
        let mut model = build_train_network(net, |params| Sgd::new(params, 0.1), "O2", &options).unwrap();
        let examples = || Dataset::new((0..16).map(|x| x as f32 / 8.0).collect(), &[4], vec![0, 1, 2, 0]).unwrap();
        let data = Split { train: examples(), test: examples() };
        let _ = model.fit.advance(&mut model.net, &data).unwrap();
        assert_eq!(model.fit.history().steps[0].scale, first);
    }
}

#[test]
fn the_loss_scalers_of_mindspore() {
    replay("mindspore", "scaler", golden("mindspore/golden.json"), |recorded, tally| {
        let empty = vec![];
        // The rest of `misc` is read by tests/conformance/mindspore/misc.rs.
        for (key, value) in entries(&recorded["misc"]) {
            let list = value.as_array().unwrap_or(&empty);
            match &key[..] {
                "DynamicLossScaler_traces" => list.iter().for_each(|trace| scaler_trace(tally, trace)),
                "DynamicLossScaleManager_traces" | "DynamicLossScaleUpdateCell_traces" => {
                    let class = key.trim_end_matches("_traces");
                    list.iter().for_each(|trace| manager_trace(tally, class, trace));
                }
                "scale_unscale" => list.iter().for_each(|case| scale_unscale(tally, case)),
                "all_finite" => {
                    let cases = entries(value);
                    cases.for_each(|(name, case)| finite(tally, name, case));
                }
                "errors" => {
                    let calls = entries(value);
                    let calls = calls.filter(|(call, _)| call.contains("LossScale") && !call.starts_with("build_"));
                    calls.for_each(|(call, outcome)| constructor(tally, call, outcome));
                }
                key if is_of_a_scaler(key) => odd(tally, key, value),
                _ => {}
            }
        }
    });
}
