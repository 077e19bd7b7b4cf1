//! Paddle's `GradScaler` and `AmpScaler`: their defaults, recorded traces, and calls of all kinds.

use precast::{
    Adam, AdamW, Autocast, DType, Grads, LossScale, Optimizer, Outcome, Param, Result, Sgd, Tensor, autocast,
    cell::Params,
    policy::{DynamicScale, LossScaleSpec},
    scale::ScaleState,
};
use serde_json::Value;

use crate::common::golden::golden;
use crate::replay::{Judged, Tally, Verdict, entries, replay};
use crate::scalers::{
    model::{Model, is_sound},
    numbers::{number, text},
};

/// Returns a number of a configuration, or the default one. Ratios are f32 there.
fn or(config: &Value, key: &str, usual: f64) -> Option<f64> {
    config.get(key).map_or(Some(usual), |x| Some(f64::from(number(x)? as f32)))
}

/// Returns the numbers that a scaler is made with.
fn dynamic(config: &Value) -> Option<DynamicScale> {
    let usual = DynamicScale::paddle();
    let count = |key: &str, usual: u32| Some(or(config, key, usual.into())?.max(0.0) as u32);
    Some(
        DynamicScale::paddle()
            .init(or(config, "init_loss_scaling", usual.init.into())? as f32)
            .growth(or(config, "incr_ratio", usual.growth)?)
            .backoff(or(config, "decr_ratio", usual.backoff)?)
            .interval(count("incr_every_n_steps", usual.interval)?)
            .hysteresis(count("decr_every_n_nan_or_inf", usual.hysteresis)?),
    )
}

fn spec(config: &Value) -> Option<LossScaleSpec> {
    let numbers = dynamic(config)?;
    match config.get("use_dynamic_loss_scaling").and_then(Value::as_bool) {
        Some(false) => Some(LossScaleSpec::Fixed { scale: numbers.init }),
        _ => Some(LossScaleSpec::Dynamic(numbers)),
    }
}

/// One number, trained from 1 by its own optimizer.
struct Side {
    param: Param,
    optimizer: Box<dyn Optimizer>,
}

impl Side {
    fn new(optimizer: &str, lr: f64) -> Option<Side> {
        let param = Param::new(Tensor::ones(&[1], DType::F32));
        let params: Params = [param.clone()].into_iter().collect();
        let optimizer: Box<dyn Optimizer> = match optimizer {
            "SGD" => Box::new(Sgd::new(params, lr)),
            "Adam" => Box::new(Adam::new(params, lr)),
            "AdamW" => Box::new(AdamW::new(params, lr).weight_decay(0.01)),
            _ => return None,
        };
        Some(Side { param, optimizer })
    }

    fn value(&self) -> f32 {
        self.param.value().item().expect("one number") as f32
    }

    /// Returns the unscaled gradients of a loss with this gradient.
    fn unscale(&self, scale: &LossScale, grad: f32) -> Result<Grads> {
        let mut grads = Grads::default();
        grads.set(&self.param, Tensor::full(&[1], (grad * scale.value()).into(), DType::F32));
        scale.already_scaled(grads).unscale(self.optimizer.params())
    }
}

fn trace(tally: &mut Tally, recorded: &Value) {
    let steps = recorded["trace"].as_array().cloned().unwrap_or_default();
    let (how, optimizer) = (text(&recorded["how"]), text(&recorded["optimizer"]));
    let words: Vec<String> = steps.iter().map(|step| text(&step["grad"])).collect();
    let case = format!("{} {optimizer} {how}: {}", recorded["config"], words.join(" "));
    let lr = number(&recorded["lr"]);
    let (Some(spec), Some(side)) = (spec(&recorded["config"]), lr.and_then(|lr| Side::new(&optimizer, lr))) else {
        return tally.fail(case, "a configuration that is not understood");
    };
    let updates = match &how[..] {
        "step_update" | "unscale_step_update" | "minimize" | "unscale_minimize" => true,
        "step_only" => false,
        _ => return tally.fail(case, "a loop that is not known"),
    };
    let mut model = match &spec {
        LossScaleSpec::Dynamic(numbers) if !is_sound(numbers) => {
            return match LossScale::new(spec) {
                Err(_) => tally.differs(case),
                Ok(scale) => tally.fail(case, format!("{scale:?}")),
            };
        }
        LossScaleSpec::Dynamic(numbers) => Some(Model::new(numbers.clone())),
        _ => None,
    };
    let scale = LossScale::new(spec).expect("sound numbers");
    let lr = lr.filter(|_| optimizer == "SGD").map(|lr| lr as f32);
    tally.count(case, follow(scale, side, model.as_mut(), lr, updates, &steps).map(Verdict::of));
}

/// Returns whether a trace agrees. Ours must be what our rule demands in any case.
fn follow(
    mut scale: LossScale,
    mut side: Side,
    mut model: Option<&mut Model>,
    lr: Option<f32>,
    updates: bool,
    steps: &[Value],
) -> Result<bool, String> {
    let mut agrees = true;
    let mut param = side.value();
    for (i, step) in steps.iter().enumerate() {
        let grad = if step["grad"] == "ok" { Some(1.0) } else { number(&step["grad"]).map(|x| x as f32) };
        let read = |key: &str| number(&step[key]).map(|x| x as f32);
        let (Some(grad), Some(scale_after), Some(theirs)) = (grad, read("scale_after"), read("param")) else {
            return Err(format!("step {i} is not understood"));
        };
        let before = scale.value();
        let outcome = side.unscale(&scale, grad).and_then(|grads| scale.apply(&mut *side.optimizer, &grads));
        // By our rule, an optimizer is applied once until the next update.
        let again = !updates && i > 0;
        if outcome.is_err() != again {
            return Err(format!("step {i}: {outcome:?}"));
        }
        agrees &= again != step["error"].is_null();
        let finite = grad.is_finite();
        match (lr, again || !finite) {
            (_, true) if side.value() != param => {
                return Err(format!("step {i}: {} is no longer {param}", side.value()));
            }
            (Some(lr), false) if side.value() != param - lr * (grad * before * (1.0 / before)) => {
                return Err(format!("step {i}: {} after {param}", side.value()));
            }
            _ => param = side.value(),
        }
        if updates {
            scale.update().map_err(|error| error.to_string())?;
            if let Some(model) = &mut model {
                model.adjust(finite);
                if !model.is(&scale) {
                    return Err(format!("step {i}: ours {:?}, by our rule {model:?}", scale.state()));
                }
            }
        }
        if agrees {
            let state = scale.state();
            let counts = (Some(state.counter.into()), Some(state.spared.into()), Some(!finite));
            let recorded = (step["incr_count"].as_u64(), step["decr_count"].as_u64(), step["found_inf"].as_bool());
            let same = (before, scale.value()) == (read("scale_before").unwrap_or(f32::NAN), scale_after);
            // Adam's corrections of 1 - 0.999^t are f32 there, and lose digits.
            let near = (param - theirs).abs() <= if lr.is_some() { 0.0 } else { 1e-5 };
            agrees = same && near && (again || !updates || counts == recorded);
        }
    }
    Ok(agrees)
}

fn defaults(tally: &mut Tally, class: &str, recorded: &Value) {
    let preset = match class {
        "GradScaler" => DynamicScale::paddle(),
        "AmpScaler" => DynamicScale::paddle_amp_scaler(),
        _ => return tally.fail(class, "a class that is not known"),
    };
    let same = dynamic(recorded) == Some(preset) && recorded["use_dynamic_loss_scaling"] == true;
    let case = format!("defaults {class}");
    if same { tally.agree(case) } else { tally.fail(case, recorded) }
}

/// Judges the constructor with a Python dict, such as `{'incr_ratio': 1.0}`.
fn constructor(tally: &mut Tally, case: &str, given: &str, refused: bool) {
    let json = given.replace('\'', "\"").replace("nan", "\"nan\"").replace("False", "false").replace("True", "true");
    let Some((config, numbers)) = serde_json::from_str(&json).ok().and_then(|c: Value| Some((c.clone(), dynamic(&c)?)))
    else {
        return tally.fail(case, "a constructor that is not understood");
    };
    if config["enable"] == false {
        let is_one = !refused && LossScale::none().value() == 1.0;
        return if is_one { tally.agree(case) } else { tally.fail(case, "it is refused there") };
    }
    let sound = is_sound(&numbers);
    match (LossScale::new(LossScaleSpec::Dynamic(numbers)).is_ok(), refused) {
        (ours, _) if ours != sound => tally.fail(case, "not by our rule"),
        (ours, refused) => tally.count(case, Ok(Verdict::of(ours != refused))),
    }
}

/// Makes a scaler for the recorded calls, which begins at 8, grows after 3 steps and shrinks after 2.
fn scaler() -> LossScale {
    let numbers = DynamicScale::paddle().init(8.0).interval(3).hysteresis(2);
    LossScale::new(LossScaleSpec::Dynamic(numbers)).expect("sound numbers")
}

fn sgd() -> Side {
    Side::new("SGD", 0.125).expect("a known optimizer")
}

/// Runs two optimizers, one with an infinite gradient: returns both numbers, the count of finite steps and that of
/// others.
fn two(grads: [f32; 2], unscale_first: bool) -> Result<([f32; 2], u32, u32)> {
    let (mut scale, mut sides) = (scaler(), [sgd(), sgd()]);
    if unscale_first {
        let unscaled = [sides[0].unscale(&scale, grads[0])?, sides[1].unscale(&scale, grads[1])?];
        for (side, grads) in sides.iter_mut().zip(&unscaled) {
            _ = scale.apply(&mut *side.optimizer, grads)?;
        }
    } else {
        for (side, grad) in sides.iter_mut().zip(grads) {
            let grads = side.unscale(&scale, grad)?;
            _ = scale.apply(&mut *side.optimizer, &grads)?;
        }
    }
    scale.update()?;
    let state = scale.state();
    Ok((sides.map(|side| side.value()), state.counter, state.spared))
}

/// Judges a call. `result` is `ok` or the name of the raised error, `value` the outcome.
fn judge(case: &str, result: &str, value: &str) -> Judged {
    let is_ok = result == "ok";
    let inf = f32::INFINITY;
    let (mut scale, mut side) = (scaler(), sgd());
    let dtype_of = |dtype| scaler().scale(Tensor::scalar(1.0, dtype)).map(|scaled| scaled.dtype().long_name());
    let check = |holds: bool, agrees: bool| match holds {
        true => Ok(Verdict::of(agrees)),
        false => Err(format!("it does not hold here; there {result} {value}")),
    };
    let once = |scale: &mut LossScale, side: &mut Side| {
        let grads = side.unscale(scale, 1.0).unwrap();
        scale.apply(&mut *side.optimizer, &grads)
    };
    match case {
        "unscale_ twice" | "unscale_ after step" => {
            let mut grads = Grads::default();
            grads.set(&side.param, Tensor::ones(&[1], DType::F32));
            let mut scaled = scale.already_scaled(grads);
            let unscaled = scaled.unscale(side.optimizer.params()).unwrap();
            if case.ends_with("step") {
                _ = scale.apply(&mut *side.optimizer, &unscaled).unwrap();
            }
            check(result == "RuntimeError" && scaled.unscale(side.optimizer.params()).is_err(), true)
        }
        "step twice" => {
            let first = once(&mut scale, &mut side) == Ok(Outcome::Stepped);
            check(
                result == "RuntimeError" && first && once(&mut scale, &mut side).is_err() && side.value() == 0.875,
                true,
            )
        }
        "step then minimize (minimize has no STEPPED check)" => {
            let first = once(&mut scale, &mut side) == Ok(Outcome::Stepped);
            let refused = once(&mut scale, &mut side).is_err() && side.value() == 0.875;
            check(is_ok && value == "0.75" && first && refused, false)
        }
        "non-dynamic: step twice" => {
            let mut fixed = LossScale::fixed(8.0).unwrap();
            let first = once(&mut fixed, &mut side) == Ok(Outcome::Stepped);
            let refused = once(&mut fixed, &mut side).is_err() && side.value() == 0.875;
            check(is_ok && value == "0.84375" && first && refused, false)
        }
        "update without step (fresh scaler; cached found_inf None counts as good)" => {
            let refused = scale.update().is_err();
            check(is_ok && value == "(1, 0)" && refused && scale == scaler(), false)
        }
        "step with no grads" => {
            let none = scale.already_scaled(Grads::default()).unscale(side.optimizer.params());
            check(is_ok && value == "(1.0, 1)" && none.is_err(), false)
        }
        "scale(non tensor)" | "scale list" => check(result == "AttributeError", false),
        "scale of f16 tensor" => {
            check(dtype_of(DType::F16).as_deref() == Ok("float32") && value.ends_with("float32"), true)
        }
        "scale of bf16 tensor" => {
            check(dtype_of(DType::Bf16).as_deref() == Ok("float32") && value.ends_with("float32"), true)
        }
        "scale of f64 tensor" => {
            check(dtype_of(DType::F64).as_deref() == Ok("float64") && value.ends_with("float64"), true)
        }
        "scale of int tensor" => check(result == "TypeError" && dtype_of(DType::I64).is_err(), true),
        "load_state_dict({})" => {
            check(result == "RuntimeError" && serde_json::from_str::<ScaleState>("{}").is_err(), true)
        }
        "disabled load {} & state_dict" => {
            let state = LossScale::none().state();
            let is_one = state == ScaleState { scale: 1.0, counter: 0, skipped: 0, spared: 0 };
            check(value == "{}" && is_one && LossScale::none().restore(state).is_ok(), false)
        }
        "set_incr_ratio(1.0)" | "set_decr_ratio(1.0)" => {
            let mut numbers = DynamicScale::paddle();
            let ratio = if case.starts_with("set_incr") { &mut numbers.growth } else { &mut numbers.backoff };
            *ratio = 1.0;
            check(result == "AssertionError" && LossScale::new(LossScaleSpec::Dynamic(numbers)).is_ok(), false)
        }
        "state_dict roundtrip" => {
            for _ in 0..2 {
                _ = once(&mut scale, &mut side).unwrap();
                scale.update().unwrap();
            }
            let (LossScaleSpec::Dynamic(d), state) = (scale.spec().clone(), scale.state()) else { panic!("{scale:?}") };
            let mut restored = LossScale::new(scale.spec().clone()).unwrap();
            restored.restore(serde_json::from_str(&serde_json::to_string(&state).unwrap()).unwrap()).unwrap();
            let ours = format!(
                "{{'scale': '[{}.]', 'incr_ratio': '{:?}', 'decr_ratio': '{:?}', 'incr_every_n_steps': '{}', \
                 'decr_every_n_nan_or_inf': '{}', 'incr_count': '{}', 'decr_count': '{}', \
                 'use_dynamic_loss_scaling': 'True'}}",
                state.scale, d.growth, d.backoff, d.interval, d.hysteresis, state.counter, state.spared
            );
            check(restored == scale && ours == value, true)
        }
        "set_init_loss_scaling resets current scale" => {
            check(scale.set_scale(64.0).is_ok() && format!("({:?}, {})", scale.value(), scale.value()) == value, true)
        }
        "scale() with amp dtype bfloat16 disables scaler"
        | "scale() before any auto_cast (amp_dtype float32 initial)" => {
            let in_region = autocast(Autocast::new("paddle-3.3").unwrap().dtype(DType::Bf16), || {
                scale.scale(Tensor::scalar(1.0, DType::F32))?.item()
            });
            let outside = scale.scale(Tensor::scalar(1.0, DType::F32)).unwrap().item();
            check(in_region == Ok(8.0) && outside == Ok(8.0) && value.starts_with("(1.0, False"), false)
        }
        "bfloat16 with use_dynamic_loss_scaling=False" => {
            let fixed = LossScale::fixed(8.0).unwrap();
            let scaled = autocast(Autocast::new("paddle-3.3").unwrap().dtype(DType::Bf16), || {
                fixed.scale(Tensor::scalar(1.0, DType::F32))?.item()
            });
            check(scaled == Ok(8.0) && value == "(8.0, True)", true)
        }
        "two optimizers, FIRST has inf, second ok" => {
            check(two([inf, 1.0], false) == Ok(([1.0, 0.875], 0, 1)) && value == "(1.0, 0.875, 1, 0, 8.0)", false)
        }
        "two optimizers, SECOND has inf" => {
            check(two([1.0, inf], false) == Ok(([0.875, 1.0], 0, 1)) && value == "(0.875, 1.0, 0, 1, 8.0)", true)
        }
        "two optimizers, unscale_ both first then step, SECOND inf: shared found_inf skips both" => {
            check(two([1.0, inf], true) == Ok(([0.875, 1.0], 0, 1)) && value == "(1.0, 1.0, 0, 1)", false)
        }
        "two optimizers, unscale_ both first then step, FIRST inf: found_inf overwritten" => {
            check(two([inf, 1.0], true) == Ok(([1.0, 0.875], 0, 1)) && value == "(nan, 0.875, 1, 0)", false)
        }
        _ => Err("a call that is not known".into()),
    }
}

fn misuse(tally: &mut Tally, recorded: &Value) {
    let case = text(&recorded["case"]);
    let result = text(&recorded["result"]);
    if let Some(given) = case.strip_prefix("ctor ") {
        return match &result[..] {
            "ok" => constructor(tally, &case, given, false),
            "AssertionError" => constructor(tally, &case, given, true),
            _ => tally.fail(case, "an error that is not known"),
        };
    }
    let judged = judge(&case, &result, recorded["value"].as_str().unwrap_or_default());
    tally.count(case, judged);
}

/// Judges a machine without accelerator, on which Paddle's scaler is off.
fn on_cpu(tally: &mut Tally, recorded: &Value) {
    let scaled = LossScale::dynamic().scale(Tensor::scalar(3.0, DType::F32)).and_then(|scaled| scaled.item());
    match scaled == Ok(3.0 * 65536.0) && recorded["is_enable"] == false && recorded["scale(3.0)"] == 3.0 {
        true => tally.differs("on a CPU"),
        false => tally.fail("on a CPU", recorded),
    }
}

#[test]
fn the_loss_scalers_of_paddle() {
    replay("paddle", "scaler", golden("paddle/scaler.json"), |recorded, tally| {
        let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
        for (part, value) in entries(recorded) {
            match &part[..] {
                "paddle" | "note" => {}
                "cpu_public" => on_cpu(tally, value),
                "defaults" => {
                    let classes = entries(value);
                    classes.for_each(|(class, recorded)| defaults(tally, class, recorded));
                }
                "traces" => list(value).iter().for_each(|recorded| trace(tally, recorded)),
                "misuse" => list(value).iter().for_each(|recorded| misuse(tally, recorded)),
                _ => tally.fail(part.clone(), "a part that is not known"),
            }
        }
    });
}
