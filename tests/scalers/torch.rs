//! The recorded events of `torch.amp.GradScaler`, one by one.
//!
//! Each event is done twice: by the library, and by the rule, which is plain arithmetic. Both must say the same.
//! What torch said is the same, too, or the rule names the differences that the trace has met.

use precast::{
    DType, Error, Grads, LossScale, Outcome, Param, Result, Sgd, Tensor,
    cell::Params,
    policy::{DynamicScale, LossScaleSpec},
    scale::{ScaleState, ScaledGrads},
};
use serde_json::Value;

use crate::{
    golden::golden,
    numbers::{Number, Numbers, dtype, number, text},
    tally::Tally,
    torch_rule::Rule,
};

/// Numbers of a scaler, as its constructor and its state have them.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    pub init: f64,
    pub growth: f64,
    pub backoff: f64,
    pub interval: i64,
    pub enabled: bool,
}

/// The parameters of an optimizer, which is plain gradient descent.
#[derive(Clone, Debug)]
pub struct Recorded {
    pub params: Vec<Vec<f64>>,
    pub dtype: DType,
    pub lr: f64,
}

/// What is called. Optimizers go by their number; a gradient that is not there is `None`.
#[derive(Clone, Debug)]
pub enum Event {
    Scale(Vec<(f64, DType)>),
    Grads(usize, Vec<Option<Vec<f64>>>),
    AddGrads(usize, Vec<Option<Vec<f64>>>),
    /// The places of the elements, and the dense gradient: elements at one place are added.
    Sparse(usize, Vec<f64>, Vec<Option<Vec<f64>>>),
    ZeroGrad(usize),
    Unscale(usize),
    Clip(usize, f64),
    Step(usize),
    Update,
    /// `update(new_scale)`, which ends a step without counting it.
    SetScale(f64),
    GetScale,
    IsEnabled,
    /// A number of the constructor, by its name.
    Get(String),
    Set(String, f64),
    State,
    /// Settings and tracker; `None` for a state that lacks some, and how many it has.
    Load(Option<(Settings, i64)>, usize),
    /// The state goes to a new scaler.
    Reload,
    /// The whole scaler is written and read.
    Pickle,
    /// A call that has no counterpart, because it does not compile; and the error that it is for torch.
    NoSuchForm(&'static str),
}

/// What an optimizer has done since the last update.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Stage {
    Ready,
    Unscaled,
    Stepped,
}

/// What is seen after an event.
#[derive(Clone, Debug, PartialEq)]
pub struct Seen {
    pub failed: bool,
    pub returns: Vec<Numbers>,
    pub scale: Number,
    pub tracker: i64,
    /// Updates by each optimizer.
    pub stepped: Vec<usize>,
    pub params: Vec<Vec<Numbers>>,
    pub grads: Vec<Vec<Option<Numbers>>>,
    /// torch has no stages where it does not scale.
    pub stages: Vec<Stage>,
}

fn settings(config: &Value, usual: &Settings) -> Option<Settings> {
    let or = |key: &str, usual: f64| config.get(key).map_or(Some(usual), number);
    Some(Settings {
        init: or("init_scale", usual.init)?,
        growth: or("growth_factor", usual.growth)?,
        backoff: or("backoff_factor", usual.backoff)?,
        interval: or("growth_interval", usual.interval as f64)? as i64,
        enabled: config.get("enabled").map_or(Some(usual.enabled), Value::as_bool)?,
    })
}

fn optimizer(recorded: &Value) -> Option<Recorded> {
    let params: Option<Vec<_>> = recorded["params"].as_array()?.iter().map(numbers).collect();
    let dtype = recorded.get("dtype").map_or(Some(DType::F32), |name| dtype(name.as_str()?))?;
    Some(Recorded { params: params?, dtype, lr: recorded.get("lr").map_or(Some(1.0), number)? })
}

fn numbers(list: &Value) -> Option<Vec<f64>> {
    list.as_array()?.iter().map(number).collect()
}

fn event(recorded: &Value) -> Option<Event> {
    let event = recorded.as_array()?;
    let which = || Some(event.get(1)?.as_u64()? as usize);
    let float = |at: usize| number(event.get(at)?);
    let grads = || grads_of(event.get(2)?);
    Some(match event.first()?.as_str()? {
        "scale" => {
            let dtype = event.get(2).map_or(Some(DType::F32), |name| dtype(name.as_str()?))?;
            Event::Scale(vec![(float(1)?, dtype)])
        }
        "scale_list" => Event::Scale(numbers(event.get(1)?)?.into_iter().map(|x| (x, DType::F32)).collect()),
        "grads" => Event::Grads(which()?, grads()?),
        "add_grads" => Event::AddGrads(which()?, grads()?),
        "zero_grad" => Event::ZeroGrad(which()?),
        "sparse_grad" => {
            let (places, values) = (numbers(event.get(2)?)?, numbers(event.get(3)?)?);
            let grad = dense(&places, &values)?;
            Event::Sparse(which()?, places, vec![Some(grad)])
        }
        "unscale" => Event::Unscale(which()?),
        "clip" => Event::Clip(which()?, float(2)?),
        "step" => Event::Step(which()?),
        "update" => Event::Update,
        "update_new" => {
            let new = event.get(1)?;
            Event::SetScale(number(new).or_else(|| numbers(new)?.first().copied())?)
        }
        "get_scale" => Event::GetScale,
        "is_enabled" => Event::IsEnabled,
        "set" => Event::Set(event.get(1)?.as_str()?.into(), float(2)?),
        "state_dict" => Event::State,
        "load_state_dict" => {
            let keys = event.get(1)?.as_object()?;
            let has = |key: &&str| keys.contains_key(*key);
            let all = ["scale", "growth_factor", "backoff_factor", "growth_interval", "_growth_tracker"];
            let known = all.iter().filter(|key| has(key)).count();
            let f = |key: &str| number(&keys[key]);
            let whole = || {
                let (growth, backoff) = (f("growth_factor")?, f("backoff_factor")?);
                let interval = f("growth_interval")? as i64;
                Some((
                    Settings { init: f("scale")?, growth, backoff, interval, enabled: true },
                    f("_growth_tracker")? as i64,
                ))
            };
            Event::Load(if known == all.len() { Some(whole()?) } else { None }, known)
        }
        "reload" => Event::Reload,
        "pickle" => Event::Pickle,
        "scale_bad" => Event::NoSuchForm("ValueError"),
        "step_closure" => Event::NoSuchForm("RuntimeError"),
        "update_int" => Event::NoSuchForm("AttributeError"),
        "update_tensor2" | "update_tensor_grad" => Event::NoSuchForm("AssertionError"),
        name => Event::Get(name.strip_prefix("get_")?.into()),
    })
}

fn grads_of(list: &Value) -> Option<Vec<Option<Vec<f64>>>> {
    list.as_array()?.iter().map(|g| Some(if g.is_null() { None } else { Some(numbers(g)?) })).collect()
}

/// Two elements.
fn dense(places: &[f64], values: &[f64]) -> Option<Vec<f64>> {
    let mut sums = vec![0.0_f32; 2];
    for (place, value) in places.iter().zip(values) {
        *sums.get_mut(*place as usize)? += *value as f32;
    }
    Some(sums.into_iter().map(f64::from).collect())
}

/// What torch showed after an event.
fn seen(event: &Event, recorded: &Value) -> Option<Seen> {
    let array = |value: &Value| Some(Numbers::new(dtype(value["dtype"].as_str()?)?, numbers(&value["v"])?));
    let tensor = |value: &Value| match value["sparse"].as_bool() {
        Some(true) => {
            let (places, values) = (numbers(&value["indices"][0])?, numbers(&value["values"])?);
            Some(Numbers::new(dtype(value["dtype"].as_str()?)?, dense(&places, &values)?))
        }
        _ => array(value),
    };
    let one = |x: f64| vec![Numbers::new(DType::F64, [x])];
    let returned = &recorded["returns"];
    let returns = match event {
        _ if recorded.get("error").is_some() => vec![],
        Event::Scale(_) if returned.is_array() => returned.as_array()?.iter().map(array).collect::<Option<_>>()?,
        Event::Scale(_) => vec![array(returned)?],
        Event::Clip(..) | Event::GetScale | Event::Get(_) => one(number(returned)?),
        Event::IsEnabled => one(f64::from(returned.as_bool()?)),
        Event::State => {
            let keys = ["scale", "growth_factor", "backoff_factor", "growth_interval", "_growth_tracker"];
            let state: Vec<f64> = keys.iter().filter_map(|key| number(returned.get(key)?)).collect();
            vec![Numbers::new(DType::F64, state)]
        }
        _ => vec![],
    };
    let each = |list: &Value, read: &dyn Fn(&Value) -> Option<Option<Numbers>>| {
        let optimizer = |list: &Value| list.as_array()?.iter().map(read).collect::<Option<Vec<_>>>();
        list.as_array()?.iter().map(optimizer).collect::<Option<Vec<_>>>()
    };
    let maybe = |value: &Value| if value.is_null() { Some(None) } else { Some(Some(tensor(value)?)) };
    let params = each(&recorded["params"], &|value| Some(Some(tensor(value)?)))?;
    let stage = |name: &Value| match name.as_str()? {
        "READY" => Some(Stage::Ready),
        "UNSCALED" => Some(Stage::Unscaled),
        "STEPPED" => Some(Stage::Stepped),
        _ => None,
    };
    Some(Seen {
        failed: recorded.get("error").is_some(),
        returns,
        scale: Number(number(&recorded["scale"])?),
        tracker: recorded["growth_tracker"].as_i64()?,
        stepped: recorded["step_taken"]
            .as_array()?
            .iter()
            .map(|n| Some(n.as_u64()? as usize))
            .collect::<Option<_>>()?,
        params: params.into_iter().map(|params| params.into_iter().flatten().collect()).collect(),
        grads: each(&recorded["grads"], &maybe)?,
        stages: recorded["stage"].as_array().map_or(Some(vec![]), |all| all.iter().map(stage).collect())?,
    })
}

/// The specification of ours that a constructor asks for.
fn spec(settings: &Settings) -> Result<LossScaleSpec> {
    if !settings.enabled {
        return Ok(LossScaleSpec::None);
    }
    let interval = u32::try_from(settings.interval).map_err(refused)?;
    let (growth, backoff) = (settings.growth, settings.backoff);
    Ok(LossScaleSpec::Dynamic(DynamicScale {
        init: settings.init as f32,
        growth,
        backoff,
        interval,
        ..DynamicScale::torch()
    }))
}

/// An optimizer of ours, and the gradients that a training loop holds for it.
#[derive(Debug)]
struct Side {
    params: Vec<Param>,
    all: Params,
    sgd: Sgd,
    dtype: DType,
    /// Gradients that were injected before any loss was scaled.
    raw: Option<Grads>,
    scaled: Option<ScaledGrads>,
    unscaled: Option<Grads>,
    /// Whether the unscaled gradients were applied.
    used: bool,
}

impl Side {
    fn new(recorded: &Recorded) -> Side {
        let param = |x: &Vec<f64>| Param::new(Tensor::from_f64(x, &[x.len()], recorded.dtype).expect("a vector"));
        let params: Vec<Param> = recorded.params.iter().map(param).collect();
        let all: Params = params.iter().cloned().collect();
        let sgd = Sgd::new(all.clone(), recorded.lr);
        Side { params, all, sgd, dtype: recorded.dtype, raw: None, scaled: None, unscaled: None, used: false }
    }

    fn grads(&self, given: &[Option<Vec<f64>>]) -> Result<Grads> {
        let mut grads = Grads::default();
        for (param, given) in self.params.iter().zip(given) {
            if let Some(x) = given {
                grads.set(param, Tensor::from_f64(x, &[x.len()], self.dtype)?);
            }
        }
        Ok(grads)
    }
}

/// A training loop with the library.
struct Ours {
    scale: LossScale,
    /// Whether a loss was scaled: before that, gradients have no scale.
    has_scaled: bool,
    sides: Vec<Side>,
}

impl Ours {
    fn event(&mut self, event: &Event) -> Result<(Vec<Numbers>, Option<usize>)> {
        let one = |x: f64| Ok((vec![Numbers::new(DType::F64, [x])], None));
        let none = Ok((vec![], None));
        match event {
            Event::Scale(losses) => {
                let scaled = |&(x, dtype): &(f64, DType)| {
                    let scaled = self.scale.scale(Tensor::scalar(x, dtype))?;
                    Ok(Numbers::new(scaled.dtype(), [scaled.item()?]))
                };
                let scaled = losses.iter().map(scaled).collect::<Result<_>>()?;
                self.has_scaled = true;
                for side in &mut self.sides {
                    side.scaled = side.raw.take().map(|raw| self.scale.already_scaled(raw)).or(side.scaled.take());
                }
                Ok((scaled, None))
            }
            Event::Grads(which, given) | Event::Sparse(which, _, given) => {
                let side = &mut self.sides[*which];
                let grads = side.grads(given)?;
                match &mut side.unscaled {
                    // A user who changes unscaled gradients.
                    Some(unscaled) if !side.used => {
                        for param in &side.params {
                            grads.get(param).into_iter().for_each(|grad| unscaled.set(param, grad));
                        }
                    }
                    _ if self.has_scaled => {
                        (side.scaled, side.unscaled) = (Some(self.scale.already_scaled(grads)), None);
                    }
                    _ => side.raw = Some(grads),
                }
                side.used = false;
                none
            }
            Event::AddGrads(which, given) => {
                let side = &mut self.sides[*which];
                let more = self.scale.already_scaled(side.grads(given)?);
                match &mut side.scaled {
                    Some(scaled) if side.unscaled.is_none() => scaled.accumulate(more)?,
                    _ => (side.scaled, side.unscaled, side.used) = (Some(more), None, false),
                }
                none
            }
            Event::ZeroGrad(which) => {
                let side = &mut self.sides[*which];
                (side.raw, side.scaled, side.unscaled, side.used) = (None, None, None, false);
                none
            }
            Event::Unscale(which) => {
                let side = &mut self.sides[*which];
                let scaled = side.scaled.as_mut().ok_or_else(no_such_form)?;
                side.unscaled = Some(scaled.unscale(&side.all)?);
                none
            }
            Event::Clip(which, max) => {
                let norm = self.sides[*which].unscaled.as_mut().ok_or_else(no_such_form)?.clip_norm(*max)?;
                one(norm)
            }
            Event::Step(which) => {
                let side = &mut self.sides[*which];
                if side.unscaled.is_none() {
                    side.unscaled = match (&mut side.scaled, side.raw.take()) {
                        (Some(scaled), _) => Some(scaled.unscale(&side.all)?),
                        (None, Some(raw)) => {
                            // Gradients of a loss that was never scaled.
                            let refused = self.scale.apply(&mut side.sgd, &raw);
                            side.raw = Some(raw);
                            return refused.map(|_| (vec![], Some(*which)));
                        }
                        (None, None) => return Err(Error::value("no gradients")),
                    };
                }
                let grads = side.unscaled.as_ref().expect("set above");
                let outcome = self.scale.apply(&mut side.sgd, grads)?;
                side.used = true;
                Ok((vec![], (outcome == Outcome::Stepped).then_some(*which)))
            }
            Event::Update => self.scale.update().map(|()| (vec![], None)),
            Event::SetScale(x) => {
                self.scale.set_scale(*x as f32)?;
                // What was applied is forgotten: the step is not counted.
                self.scale.restore(self.scale.state())?;
                none
            }
            Event::GetScale => one(self.scale.value().into()),
            Event::IsEnabled => one(f64::from(*self.scale.spec() != LossScaleSpec::None)),
            Event::Get(name) => match (self.scale.spec(), &name[..]) {
                (LossScaleSpec::Dynamic(d), "growth_factor") => one(d.growth),
                (LossScaleSpec::Dynamic(d), "backoff_factor") => one(d.backoff),
                (LossScaleSpec::Dynamic(d), "growth_interval") => one(d.interval.into()),
                _ => Err(no_such_form()),
            },
            Event::Set(name, x) => {
                let LossScaleSpec::Dynamic(mut d) = self.scale.spec().clone() else { return Err(no_such_form()) };
                match &name[..] {
                    "growth_factor" => d.growth = *x,
                    "backoff_factor" => d.backoff = *x,
                    "growth_interval" => d.interval = if *x >= 0.0 { *x as u32 } else { 0 },
                    _ => return Err(no_such_form()),
                }
                let votes = self.scale.clone();
                self.scale = LossScale::new(LossScaleSpec::Dynamic(d)).and_then(|mut changed| {
                    changed.restore(votes.state())?;
                    Ok(changed)
                })?;
                none
            }
            Event::State => {
                let state = self.scale.state();
                let numbers = match self.scale.spec() {
                    LossScaleSpec::Dynamic(d) => {
                        vec![state.scale.into(), d.growth, d.backoff, d.interval.into(), state.counter.into()]
                    }
                    _ => vec![state.scale.into(), state.counter.into()],
                };
                Ok((vec![Numbers::new(DType::F64, numbers)], None))
            }
            Event::Load(loaded, _) => {
                // A state that lacks a number cannot be read.
                let (settings, tracker) = match loaded {
                    Some(loaded) => loaded,
                    None => {
                        let refused = serde_json::from_str::<ScaleState>("{}").map_err(refused);
                        return refused.map(|_| (vec![], None));
                    }
                };
                let mut loaded = LossScale::new(spec(settings)?)?;
                let counter = u32::try_from(*tracker).map_err(refused)?;
                loaded.restore(ScaleState { counter, ..loaded.state() })?;
                self.scale = loaded;
                none
            }
            Event::Reload => {
                self.scale = self.copy()?;
                none
            }
            Event::Pickle => {
                let copy = self.copy()?;
                assert_eq!((copy.state(), copy.spec()), (self.scale.state(), self.scale.spec()));
                // In the middle of a step, the state is read and the step goes on.
                if self.stages().iter().all(|stage| *stage == Stage::Ready) {
                    self.scale = copy;
                }
                none
            }
            Event::NoSuchForm(_) => Err(no_such_form()),
        }
    }

    /// A new scale with the state of this one, by way of a text.
    fn copy(&self) -> Result<LossScale> {
        let state = serde_json::to_string(&self.scale.state()).map_err(refused)?;
        let mut copy = LossScale::new(self.scale.spec().clone())?;
        copy.restore(serde_json::from_str(&state).map_err(refused)?)?;
        Ok(copy)
    }

    /// Whether an optimizer was applied, as a copy of the scale and an optimizer that changes nothing find out.
    fn stages(&self) -> Vec<Stage> {
        let stage = |side: &Side| {
            let nothing = |param: &Param| Some(vec![0.0; param.value().len()]);
            let zeros = side.grads(&side.params.iter().map(nothing).collect::<Vec<_>>()).expect("gradients");
            let zeros = self.scale.already_scaled(zeros).unscale(&side.all).expect("gradients");
            let values: Vec<Tensor> = side.params.iter().map(Param::value).collect();
            let applied = self.scale.clone().apply(&mut Sgd::new(side.all.clone(), 0.0), &zeros);
            // Zero times an infinite weight is NaN.
            side.params.iter().zip(&values).for_each(|(param, value)| param.set(value).expect("its own value"));
            match applied {
                Err(_) => Stage::Stepped,
                Ok(_) if side.unscaled.is_some() && !side.used => Stage::Unscaled,
                Ok(_) => Stage::Ready,
            }
        };
        let stages: Vec<Stage> = self.sides.iter().map(stage).collect();
        assert_eq!(self.scale.clone().update().is_ok(), stages.contains(&Stage::Stepped), "{stages:?}");
        stages
    }

    fn seen(&mut self, event: &Event) -> Seen {
        let done = self.event(event);
        let failed = done.is_err();
        let (returns, stepped) = done.unwrap_or_default();
        // Scaled gradients cannot be read by parameter, but by leaf, without their scale.
        let grads = |side: &Side| {
            let read = |param: &Param| match (&side.unscaled, &side.scaled, &side.raw) {
                (Some(grads), ..) => grads.get(param),
                (None, Some(scaled), _) => scaled.unscaled_of(&param.tensor()),
                (None, None, raw) => raw.as_ref()?.get(param),
            };
            side.params.iter().map(|param| Some(Numbers::of(&read(param)?))).collect()
        };
        Seen {
            failed,
            returns,
            scale: Number(self.scale.value().into()),
            tracker: self.scale.state().counter.into(),
            stepped: (0..self.sides.len()).map(|which| usize::from(stepped == Some(which))).collect(),
            params: self.sides.iter().map(|s| s.params.iter().map(|p| Numbers::of(&p.value())).collect()).collect(),
            grads: self.sides.iter().map(grads).collect(),
            stages: self.stages(),
        }
    }
}

fn refused(why: impl std::fmt::Display) -> Error {
    Error::value(why.to_string())
}

fn no_such_form() -> Error {
    Error::value("there is no such call")
}

/// Whether two are the same but for roundings: the norm by which is clipped is of f32 at torch, and of f64 here.
fn near(a: &Seen, b: &Seen) -> bool {
    let near = |a: &Numbers, b: &Numbers| {
        let close =
            |(a, b): (&Number, &Number)| a == b || (a.0 - b.0).abs() <= 1e-6 * a.0.abs().max(b.0.abs()).max(1.0);
        a.dtype == b.dtype && a.numbers.len() == b.numbers.len() && a.numbers.iter().zip(&b.numbers).all(close)
    };
    let params = |seen: &Seen| seen.params.iter().flatten().cloned().collect::<Vec<_>>();
    let grads = |seen: &Seen| seen.grads.iter().flatten().flatten().cloned().collect::<Vec<_>>();
    let all = |a: Vec<Numbers>, b: Vec<Numbers>| a.len() == b.len() && a.iter().zip(&b).all(|(a, b)| near(a, b));
    let rest = |seen: &Seen| (seen.failed, seen.scale, seen.tracker, seen.stepped.clone(), seen.stages.clone());
    all(params(a), params(b))
        && all(grads(a), grads(b))
        && all(a.returns.clone(), b.returns.clone())
        && rest(a) == rest(b)
}

fn trace(tally: &mut Tally, name: &str, recorded: &Value) {
    let usual = Settings { init: 65536.0, growth: 2.0, backoff: 0.5, interval: 2000, enabled: true };
    let events = recorded["events"].as_array().cloned().unwrap_or_default();
    let optimizers: Option<Vec<_>> = recorded["optimizers"].as_array().into_iter().flatten().map(optimizer).collect();
    let (Some(settings), Some(optimizers)) = (settings(&recorded["config"], &usual), optimizers) else {
        return tally.fail(name, "a configuration that is not known");
    };
    let made = spec(&settings).and_then(LossScale::new);
    let rule = Rule::new(&settings, &optimizers);
    let raised = recorded.get("constructor_error").is_some();
    let constructor = format!("{name} constructor");
    let (scale, mut rule) = match (made, rule) {
        (Ok(scale), Ok(rule)) => (scale, rule),
        (Err(_), Err(_)) if raised => return tally.agree(constructor),
        (Err(_), Err(difference)) => {
            tally.on_purpose(constructor, difference);
            for (i, step) in events.iter().enumerate() {
                tally.on_purpose(case(name, i, step), difference);
            }
            return;
        }
        (made, rule) => return tally.fail(constructor, format!("ours {made:?}, by our rule {:?}", rule.err())),
    };
    if raised {
        return match rule.differences.is_empty() {
            true => tally.fail(constructor, "torch raises"),
            false => tally.on_purpose_for(constructor, &rule.differences),
        };
    }
    let mut ours = Ours { scale, has_scaled: !settings.enabled, sides: optimizers.iter().map(Side::new).collect() };
    let clips = events.iter().any(|step| step["event"][0] == "clip");
    for (i, step) in events.iter().enumerate() {
        let case = case(name, i, step);
        let Some(event) = event(&step["event"]) else { return tally.fail(case, "an event that is not known") };
        let Some(mut theirs) = seen(&event, step) else { return tally.fail(case, "a record that is not understood") };
        if let Event::NoSuchForm(error) = event
            && settings.enabled
            && step["error"]["type"] != error
        {
            return tally.fail(case, format!("torch does not raise a {error}: {step}"));
        }
        let (ours, demanded) = (ours.seen(&event), rule.event(&event));
        if ours != demanded && !(clips && near(&demanded, &ours)) {
            return tally.fail(case, format!("\n  ours        {ours:?}\n  by our rule {demanded:?}"));
        }
        rule.as_read(&mut theirs);
        if theirs.stages.is_empty() {
            theirs.stages.clone_from(&ours.stages);
        }
        match ours == theirs || clips && near(&theirs, &ours) {
            true => tally.agree(case),
            false if rule.differences.is_empty() => {
                tally.fail(case, format!("\n  ours    {ours:?}\n  torch's {theirs:?}"));
            }
            false => tally.on_purpose_for(case, &rule.differences),
        }
    }
}

fn case(name: &str, i: usize, step: &Value) -> String {
    format!("{name} {i} {}", text(&step["event"][0]))
}

#[test]
fn the_grad_scaler_of_torch() {
    let Some(recorded) = golden("torch/grad_scaler.json") else { return };
    let mut tally = Tally::new("torch", "scaler");
    for (name, recorded) in recorded["traces"].as_object().into_iter().flatten() {
        trace(&mut tally, name, recorded);
    }
    tally.close();
}
