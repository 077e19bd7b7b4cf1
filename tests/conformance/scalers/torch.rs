//! The recorded events of `torch.amp.GradScaler`, one by one.
//!
//! Each event is run twice: by the library, and by the rule, which is plain arithmetic. Both must agree.

use precast::{
    DType, Error, Grads, LossScale, Outcome, Param, Result, Sgd, Tensor,
    cell::Params,
    policy::{DynamicScale, LossScaleSpec},
    scale::{ScaleState, ScaledGrads},
};
use serde_json::Value;

use crate::common::golden::{golden, recorded_beside};
use crate::replay::{Tally, Verdict, entries, items, replay};
use crate::scalers::{
    numbers::{Number, Numbers, text},
    torch_events::{Event, Loss, Recorded, Seen, Settings, Stage, event, optimizer, seen, settings},
    torch_rule::Rule,
};

/// Returns our specification for a constructor.
fn spec(settings: &Settings) -> Result<LossScaleSpec> {
    if !settings.enabled {
        return Ok(LossScaleSpec::None);
    }
    let interval = u32::try_from(settings.interval).map_err(refused)?;
    let (growth, backoff) = (settings.growth, settings.backoff);
    Ok(LossScaleSpec::Dynamic(
        DynamicScale::torch().init(settings.init as f32).growth(growth).backoff(backoff).interval(interval),
    ))
}

/// One of our optimizers, with the gradients that a training loop holds for it.
#[derive(Debug)]
struct Side {
    params: Vec<Param>,
    all: Params,
    sgd: Sgd,
    dtype: DType,
    /// Gradients injected before any loss was scaled.
    raw: Option<Grads>,
    scaled: Option<ScaledGrads>,
    unscaled: Option<Grads>,
    /// `true` when the unscaled gradients were applied.
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
    /// `true` once a loss was scaled: before that, gradients have no scale.
    has_scaled: bool,
    sides: Vec<Side>,
}

impl Ours {
    fn event(&mut self, event: &Event) -> Result<(Vec<Numbers>, Option<usize>)> {
        let one = |x: f64| Ok((vec![Numbers::new(DType::F64, [x])], None));
        let none = Ok((vec![], None));
        match event {
            Event::Scale(losses) => {
                let scaled = |loss: &Loss| {
                    let scaled = self.scale.scale(loss.tensor())?;
                    Ok(Numbers::new(scaled.dtype(), [scaled.item()?]))
                };
                let scaled = losses.iter().map(scaled).collect::<Result<_>>()?;
                self.begin_scaling();
                Ok((scaled, None))
            }
            Event::Grads(which, given) => {
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
                self.add_grads(*which, given)?;
                none
            }
            Event::Backward(reached) => {
                self.begin_scaling();
                reached.iter().try_for_each(|(which, given)| self.add_grads(*which, given))?;
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
                // The application is forgotten: the step is not counted.
                self.scale.restore(self.scale.state())?;
                none
            }
            Event::GetScale => one(self.scale.value().into()),
            Event::IsEnabled => one(f64::from(*self.scale.spec() != LossScaleSpec::None)),
            Event::Get(name) => match (self.scale.spec(), &name[..]) {
                (_, "growth_tracker") => one(self.scale.state().counter.into()),
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
            Event::Load(loaded) => {
                // An incomplete state cannot be read.
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
                // In the middle of a step, the state is read and the step continues.
                if self.stages().iter().all(|stage| *stage == Stage::Ready) {
                    self.scale = copy;
                }
                none
            }
            Event::NoSuchForm(_) => Err(no_such_form()),
        }
    }

    /// Begins scaling: existing gradients then have its scale.
    fn begin_scaling(&mut self) {
        self.has_scaled = true;
        for side in &mut self.sides {
            side.scaled = side.raw.take().map(|raw| self.scale.already_scaled(raw)).or(side.scaled.take());
        }
    }

    fn add_grads(&mut self, which: usize, given: &[Option<Vec<f64>>]) -> Result<()> {
        let side = &mut self.sides[which];
        let more = self.scale.already_scaled(side.grads(given)?);
        match &mut side.scaled {
            Some(scaled) if side.unscaled.is_none() => scaled.accumulate(more)?,
            _ => (side.scaled, side.unscaled, side.used) = (Some(more), None, false),
        }
        Ok(())
    }

    /// Makes a new scale with the state of this one, through text.
    fn copy(&self) -> Result<LossScale> {
        let state = serde_json::to_string(&self.scale.state()).map_err(refused)?;
        let mut copy = LossScale::new(self.scale.spec().clone())?;
        copy.restore(serde_json::from_str(&state).map_err(refused)?)?;
        Ok(copy)
    }

    /// Determines whether each optimizer was applied, with a copy of the scale and an optimizer that changes nothing.
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

/// Returns whether two are the same except for rounding: the norm for clipping is f32 in torch, and f64 here.
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

/// Returns the effective settings of a torch scaler, and those requested, if it is off because the machine lacks its
/// device.
fn on_this_machine(recorded: &Value, asked: Settings) -> (Settings, Option<Settings>) {
    let device = [&recorded["config"]["device"], &recorded["device"]].into_iter().find_map(Value::as_str);
    let warned = recorded.to_string().contains("CUDA is not available");
    // A disabled scaler has no stages.
    let events = recorded["events"].as_array().map(Vec::as_slice).unwrap_or_default();
    let is_off = !events.is_empty() && events.iter().all(|step| step.get("stage").is_none());
    let lacks = asked.enabled && (warned || is_off || device.is_some_and(|device| !device.starts_with("cpu")));
    let made = Settings { enabled: asked.enabled && !lacks, ..asked.clone() };
    (made, lacks.then_some(asked))
}

fn trace(tally: &mut Tally, name: &str, recorded: &Value) {
    let usual = Settings { init: 65536.0, growth: 2.0, backoff: 0.5, interval: 2000, enabled: true };
    let events = recorded["events"].as_array().cloned().unwrap_or_default();
    let optimizers: Option<Vec<_>> = items(&recorded["optimizers"]).map(optimizer).collect();
    let (Some(settings), Some(optimizers)) = (settings(&recorded["config"], &usual), optimizers) else {
        return tally.fail(name, "a configuration that is not known");
    };
    let (settings, lacks_device) = on_this_machine(recorded, settings);
    let made = spec(&settings).and_then(LossScale::new);
    let rule = Rule::new(&settings, &optimizers);
    let raised = recorded.get("constructor_error").is_some();
    let constructor = format!("{name} constructor");
    if let Some(asked) = lacks_device {
        // It is disabled there, whatever its numbers.
        let made = spec(&asked).and_then(LossScale::new).is_ok_and(|scale| *scale.spec() != LossScaleSpec::None);
        match made == Rule::new(&asked, &optimizers).is_some() {
            true => tally.differs(constructor.clone()),
            false => return tally.fail(constructor, format!("made {made}, and not by our rule")),
        }
    }
    let (scale, mut rule) = match (made, rule) {
        (Ok(_), Some(_)) if raised => return tally.differs(constructor),
        (Ok(scale), Some(rule)) => (scale, rule),
        (Err(_), None) if raised => return tally.agree(constructor),
        (Err(_), None) => {
            tally.differs(constructor);
            return events.iter().enumerate().for_each(|(i, step)| tally.differs(case(name, i, step)));
        }
        (made, rule) => return tally.fail(constructor, format!("ours {made:?}, by our rule {rule:?}")),
    };
    let mut ours = Ours { scale, has_scaled: !settings.enabled, sides: optimizers.iter().map(Side::new).collect() };
    let clips = events.iter().any(|step| step["event"][0] == "clip");
    for (i, step) in events.iter().enumerate() {
        let case = case(name, i, step);
        let Some(event) = event(step, i.checked_sub(1).map(|i| &events[i])) else {
            return tally.fail(case, "an event that is not known");
        };
        let Some(mut theirs) = seen(&event, step) else { return tally.fail(case, "a record that is not understood") };
        if let Event::NoSuchForm(error) = event
            && settings.enabled
            && if error.is_empty() { step["error"].is_null() } else { step["error"]["type"] != error }
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
        tally.count(case, Ok(Verdict::of(ours == theirs || clips && near(&theirs, &ours))));
    }
}

fn case(name: &str, i: usize, step: &Value) -> String {
    format!("{name} {i} {}", text(&step["event"][0]))
}

fn judge(recorded: &Value, tally: &mut Tally) {
    for (name, recorded) in entries(&recorded["traces"]) {
        trace(tally, name, recorded);
    }
}

#[test]
fn the_grad_scaler_of_torch() {
    replay("torch", "scaler", golden("torch/grad_scaler.json"), judge);
}

/// Real backward passes of one and of several losses, scalers for a device that the machine lacks, and losses of every
/// form, recorded by `tools/peers/torch/scaler.py`.
#[test]
fn backward_passes_of_torch() {
    replay("torch", "scaler-backward", recorded_beside("torch/grad_scaler.json"), judge);
}
