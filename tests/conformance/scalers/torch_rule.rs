//! Our rule for torch's events, in plain arithmetic, with torch's deviations.

use precast::DType;

use crate::scalers::{
    numbers::{Number, Numbers, round},
    torch_events::{Event, Loss, Recorded, Seen, Settings, Stage},
};

// The intentional differences, as named in COMPARE.md.
const SOUND: &str = "a dynamic scale has sound numbers";
const FACTOR: &str = "a factor of 1 is taken";
const NORMAL: &str = "a scale is a positive normal number";
const FORMS: &str = "wrong forms do not compile";
const LOW: &str = "gradients of low parameters are unscaled in f32";
const PRODUCT: &str = "the unscaled gradient is checked";
const CLIP: &str = "a norm that is not finite clips nothing";
const ENDS: &str = "every step ends with `update`";
const OWN: &str = "gradients are divided by their own scale";
const ONCE: &str = "gradients are unscaled once";
const FRESH: &str = "a backward pass begins with no gradients";
const APPLIED: &str = "gradients count when they are applied";
const EMPTY: &str = "a step without gradients is an error";
const NOTHING: &str = "an error changes nothing";
const OFF: &str = "no scale has a state, too";
const ANY_TIME: &str = "a state can be read in the middle of a step";
const DENSE: &str = "a gradient is a dense tensor";
const NEVER: &str = "a gradient that is not finite is never applied";
const STAGE: &str = "gradients have a stage, and no optimizer";
const BETWEEN: &str = "the numbers of a scale change between two steps";
const BEGINNING: &str = "a scale is there from the beginning";
const FLOATING: &str = "a loss is a floating number";
const LOSS: &str = "a low loss is scaled in f32";

/// Gradients held by a loop for an optimizer.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Held {
    Nothing,
    /// From before any loss was scaled.
    Raw,
    /// Multiplied by this scale.
    Scaled(f32),
    /// Unscaled; with the flag of their application.
    Unscaled {
        used: bool,
    },
}

#[derive(Debug)]
struct Side {
    dtype: DType,
    lr: f64,
    params: Vec<Vec<f64>>,
    grads: Vec<Option<Vec<f64>>>,
    held: Held,
    /// `true` when a gradient was not finite when unscaled.
    bad: bool,
    /// `true` when it was applied since the last update, with a gradient that was not finite.
    applied: bool,
    overflowed: bool,
}

#[derive(Debug)]
pub struct Rule {
    settings: Settings,
    scale: f32,
    counter: i64,
    has_scaled: bool,
    /// `true` once torch has made its scale, in the first `scale`.
    is_made: bool,
    sides: Vec<Side>,
    /// Differences found so far.
    pub differences: Vec<&'static str>,
}

fn is_normal(x: f32) -> bool {
    x.is_normal() && x > 0.0
}

/// Returns whether our rule accepts these numbers.
fn is_sound(s: &Settings) -> bool {
    let factors = s.growth.is_finite() && s.growth >= 1.0 && s.backoff > 0.0 && s.backoff <= 1.0;
    !s.enabled || is_normal(s.init as f32) && factors && s.interval >= 1
}

impl Side {
    /// Returns the dtype in which unscaled gradients are read.
    fn wide(&self) -> DType {
        if self.dtype == DType::F64 { DType::F64 } else { DType::F32 }
    }

    fn is_low(&self) -> bool {
        matches!(self.dtype, DType::F16 | DType::Bf16)
    }

    fn divided(&self, scale: f32) -> Vec<Option<Vec<f64>>> {
        let inverse = f64::from(1.0 / scale);
        let divide = |x: &f64| round(x * inverse, self.wide());
        self.grads.iter().map(|grad| Some(grad.as_ref()?.iter().map(divide).collect())).collect()
    }

    fn norm(&self) -> f64 {
        self.grads.iter().flatten().flatten().map(|x| x * x).sum::<f64>().sqrt()
    }
}

fn all_finite(grads: &[Option<Vec<f64>>]) -> bool {
    grads.iter().flatten().flatten().all(|x| x.is_finite())
}

impl Rule {
    /// Creates the rule at the beginning of a trace, or returns the reason for refusing its numbers.
    pub fn new(settings: &Settings, optimizers: &[Recorded]) -> Result<Rule, &'static str> {
        if !is_sound(settings) {
            return Err(SOUND);
        }
        let side = |recorded: &Recorded| {
            let grads = vec![None; recorded.params.len()];
            let params = recorded.params.clone();
            let (dtype, lr) = (recorded.dtype, recorded.lr);
            Side { dtype, lr, params, grads, held: Held::Nothing, bad: false, applied: false, overflowed: false }
        };
        let takes_one = settings.enabled && (settings.growth == 1.0 || settings.backoff == 1.0);
        Ok(Rule {
            settings: settings.clone(),
            scale: if settings.enabled { settings.init as f32 } else { 1.0 },
            counter: 0,
            has_scaled: !settings.enabled,
            is_made: !settings.enabled,
            sides: optimizers.iter().map(side).collect(),
            differences: if takes_one { vec![FACTOR] } else { vec![] },
        })
    }

    /// Converts a recording: scaled gradients are read without their scale, and low ones in f32.
    pub fn as_read(&self, recorded: &mut Seen) {
        for (side, grads) in self.sides.iter().zip(&mut recorded.grads) {
            if let Held::Scaled(scale) = side.held {
                let inverse = f64::from(1.0 / scale);
                for grad in grads.iter_mut().flatten() {
                    let wide = side.wide();
                    *grad = Numbers::new(wide, grad.numbers.iter().map(|x| round(x.0 * inverse, wide)));
                }
            }
        }
    }

    pub fn event(&mut self, event: &Event) -> Seen {
        let mut stepped = vec![0; self.sides.len()];
        let is_made = self.is_made;
        let done = self.does(event, &mut stepped);
        let needs_scale = matches!(event, Event::Unscale(_) | Event::Step(_) | Event::Update | Event::SetScale(_));
        self.meet(needs_scale && !is_made && done.is_some(), BEGINNING);
        let stage = |side: &Side| match side.held {
            _ if side.applied => Stage::Stepped,
            Held::Unscaled { used: false } => Stage::Unscaled,
            _ => Stage::Ready,
        };
        let grads = |side: &Side| {
            let (dtype, grads) = match side.held {
                Held::Scaled(scale) => (side.wide(), side.divided(scale)),
                Held::Unscaled { .. } => (side.wide(), side.grads.clone()),
                Held::Raw | Held::Nothing => (side.dtype, side.grads.clone()),
            };
            grads.into_iter().map(|grad| Some(Numbers::new(dtype, grad?))).collect()
        };
        Seen {
            failed: done.is_none(),
            returns: done.unwrap_or_default(),
            scale: Number(self.scale.into()),
            tracker: self.counter,
            stepped,
            params: self
                .sides
                .iter()
                .map(|s| s.params.iter().map(|p| Numbers::new(s.dtype, p.clone())).collect())
                .collect(),
            grads: self.sides.iter().map(grads).collect(),
            stages: self.sides.iter().map(stage).collect(),
        }
    }

    fn meet(&mut self, met: bool, difference: &'static str) {
        if met && !self.differences.contains(&difference) {
            self.differences.push(difference);
        }
    }

    /// Returns the result of an event; `None` for an error.
    fn does(&mut self, event: &Event, stepped: &mut [usize]) -> Option<Vec<Numbers>> {
        let one = |x: f64| Some(vec![Numbers::new(DType::F64, [x])]);
        let done = Some(vec![]);
        match event {
            Event::Scale(losses) => {
                let taken = losses.iter().all(Loss::is_scalar);
                self.meet(!taken, FLOATING);
                // Without axes the dtype of the scale decides there, with axes that of the loss; and neither if it is
                // disabled.
                let stays_low = |loss: &Loss| loss.dtype.is_low() && (loss.has_axes || !self.settings.enabled);
                let low = losses.iter().any(stays_low);
                self.meet(low, LOSS);
                let scale = f64::from(self.scale);
                let scaled = losses.iter().map(|loss| {
                    let wide = if loss.dtype == DType::F64 { DType::F64 } else { DType::F32 };
                    Numbers::new(wide, loss.values.iter().map(|x| round(round(*x, loss.dtype) * scale, wide)))
                });
                let scaled = taken.then(|| scaled.collect());
                if taken {
                    self.begin_scaling();
                }
                scaled
            }
            Event::Backward(reached) => {
                self.begin_scaling();
                reached.iter().all(|(which, given)| self.add_grads(*which, given)).then_some(vec![])
            }
            Event::Grads(which, given) | Event::Sparse(which, _, given) => {
                if let Event::Sparse(_, places, _) = event {
                    let twice = (1..places.len()).any(|i| places[..i].contains(&places[i]));
                    self.meet(twice, DENSE);
                }
                let held = if self.has_scaled { Held::Scaled(self.scale) } else { Held::Raw };
                let side = &mut self.sides[*which];
                let rounded = |grad: &Vec<f64>| grad.iter().map(|x| round(*x, side.dtype)).collect();
                let given: Vec<Option<Vec<f64>>> = given.iter().map(|grad| grad.as_ref().map(rounded)).collect();
                if side.held == (Held::Unscaled { used: false }) {
                    let unseen = !side.bad && !all_finite(&given);
                    for (grad, given) in side.grads.iter_mut().zip(given) {
                        *grad = given.or(grad.take());
                    }
                    self.meet(unseen, NEVER);
                } else {
                    (side.grads, side.held) = (given, held);
                }
                done
            }
            Event::AddGrads(which, given) => self.add_grads(*which, given).then_some(vec![]),
            Event::ZeroGrad(which, stays) => {
                self.meet(*stays, FRESH);
                let side = &mut self.sides[*which];
                (side.grads, side.held) = (vec![None; side.params.len()], Held::Nothing);
                done
            }
            Event::Unscale(which) => self.unscale(*which).then_some(vec![]),
            Event::Clip(which, max) => {
                let side = &mut self.sides[*which];
                if !matches!(side.held, Held::Unscaled { .. }) {
                    self.meet(true, FORMS);
                    return None;
                }
                let norm = side.norm();
                let factor = f64::from((max / (norm + 1e-6)) as f32);
                let wide = side.wide();
                if norm.is_finite() && factor < 1.0 {
                    side.grads.iter_mut().flatten().flatten().for_each(|x| *x = round(*x * factor, wide));
                }
                self.meet(!norm.is_finite(), CLIP);
                one(norm)
            }
            Event::Step(which) => self.step(*which, &mut stepped[*which]).then_some(vec![]),
            Event::Update => self.update().then_some(vec![]),
            Event::SetScale(x) => {
                let enabled = self.settings.enabled;
                let good = enabled && is_normal(*x as f32);
                self.meet(!good, if enabled { NORMAL } else { OFF });
                if good {
                    self.scale = *x as f32;
                    self.forget();
                }
                good.then_some(vec![])
            }
            Event::GetScale => one(self.scale.into()),
            Event::IsEnabled => one(f64::from(self.settings.enabled)),
            Event::Get(name) => match &name[..] {
                "growth_tracker" => one(self.counter as f64),
                _ if !self.settings.enabled => None,
                "growth_factor" => one(self.settings.growth),
                "backoff_factor" => one(self.settings.backoff),
                "growth_interval" => one(self.settings.interval as f64),
                _ => None,
            },
            Event::Set(name, x) => {
                let mut changed = self.settings.clone();
                match &name[..] {
                    "growth_factor" => changed.growth = *x,
                    "backoff_factor" => changed.backoff = *x,
                    "growth_interval" => changed.interval = *x as i64,
                    _ => return None,
                }
                self.meet(!self.settings.enabled, OFF);
                self.settings.enabled.then_some(())?;
                self.take_on(changed, self.scale, self.counter)
            }
            Event::State => {
                let numbers =
                    [self.scale.into(), self.settings.growth, self.settings.backoff, self.settings.interval as f64];
                let enabled = self.settings.enabled;
                self.meet(!enabled, OFF);
                let kept = if enabled { &numbers[..] } else { &numbers[..1] };
                Some(vec![Numbers::new(DType::F64, kept.iter().copied().chain([self.counter as f64]))])
            }
            Event::Load(None, known) => {
                self.meet(*known > 0, NOTHING);
                self.meet(!self.settings.enabled, OFF);
                None
            }
            Event::Load(Some((settings, counter)), _) => self.take_on(settings.clone(), settings.init as f32, *counter),
            Event::Reload => {
                self.is_made = !self.settings.enabled;
                self.forget();
                done
            }
            Event::Pickle => {
                let unscaled = |side: &Side| side.applied || side.held == (Held::Unscaled { used: false });
                let in_a_step = self.sides.iter().any(unscaled);
                self.meet(in_a_step, ANY_TIME);
                self.is_made &= in_a_step || !self.settings.enabled;
                done
            }
            Event::NoSuchForm(_) => {
                // A disabled one checks nothing.
                self.meet(!self.settings.enabled, FORMS);
                None
            }
        }
    }

    /// Begins scaling: existing gradients then have its scale.
    fn begin_scaling(&mut self) {
        (self.has_scaled, self.is_made) = (true, true);
        for side in self.sides.iter_mut().filter(|side| side.held == Held::Raw) {
            side.held = Held::Scaled(self.scale);
        }
    }

    fn add_grads(&mut self, which: usize, given: &[Option<Vec<f64>>]) -> bool {
        let (scale, side) = (self.scale, &mut self.sides[which]);
        match side.held {
            Held::Scaled(before) if before == scale => {
                let low = side.is_low();
                for (grad, more) in side.grads.iter_mut().zip(given) {
                    let Some(more) = more else { continue };
                    let sum = grad.take().unwrap_or_else(|| vec![0.0; more.len()]);
                    let add = |(a, b): (&f64, &f64)| f64::from(*a as f32 + *b as f32);
                    *grad = Some(sum.iter().zip(more).map(add).collect());
                }
                self.meet(low, LOW);
            }
            Held::Scaled(_) => {
                self.meet(true, OWN);
                return false;
            }
            held => {
                let rounded = |grad: &Vec<f64>| grad.iter().map(|x| round(*x, side.dtype)).collect();
                let given = given.iter().map(|grad| grad.as_ref().map(rounded)).collect();
                (side.grads, side.held) = (given, Held::Scaled(scale));
                self.meet(matches!(held, Held::Unscaled { .. }), FRESH);
            }
        }
        true
    }

    fn unscale(&mut self, which: usize) -> bool {
        let side = &mut self.sides[which];
        match side.held {
            Held::Scaled(scale) if side.grads.iter().any(Option::is_some) => {
                let unscaled = side.divided(scale);
                let (bad, theirs_bad) = (!all_finite(&unscaled), !all_finite(&side.grads));
                let (low, applied) = (side.is_low(), side.applied);
                (side.grads, side.held, side.bad) = (unscaled, Held::Unscaled { used: false }, bad);
                // New gradients before the update: torch refuses to unscale them, but not in `step`.
                self.meet(applied, STAGE);
                self.meet(low, LOW);
                self.meet(bad != theirs_bad, PRODUCT);
                self.meet(scale != self.scale, OWN);
                true
            }
            Held::Unscaled { used } => {
                // torch divides once more in the next step.
                let ready = used && !side.applied;
                self.meet(ready || !self.settings.enabled, ONCE);
                false
            }
            Held::Raw => {
                self.meet(true, FORMS);
                false
            }
            Held::Nothing | Held::Scaled(_) => {
                self.meet(true, EMPTY);
                false
            }
        }
    }

    fn step(&mut self, which: usize, stepped: &mut usize) -> bool {
        let has_grads = self.sides[which].grads.iter().any(Option::is_some);
        let held = self.sides[which].held;
        match held {
            Held::Unscaled { used } => {
                let once = used && !self.sides[which].applied && self.scale != 1.0;
                self.meet(once, ONCE);
            }
            // An error in both, but torch counts the optimizer as unscaled.
            Held::Nothing | Held::Scaled(_) if !has_grads => {
                self.meet(self.settings.enabled, NOTHING);
                self.meet(!self.settings.enabled, EMPTY);
                return false;
            }
            Held::Scaled(_) if self.unscale(which) => {}
            _ => return false,
        }
        let enabled = self.settings.enabled;
        let side = &mut self.sides[which];
        if side.applied {
            self.meet(!enabled, ENDS);
            return false;
        }
        (side.applied, side.held) = (true, Held::Unscaled { used: true });
        side.bad |= !all_finite(&side.grads);
        let bad = side.bad;
        side.overflowed = bad;
        if !bad {
            for (param, grad) in side.params.iter_mut().zip(&side.grads) {
                let Some(grad) = grad else { continue };
                param.iter_mut().zip(grad).for_each(|(p, g)| *p = round(*p - side.lr * g, side.dtype));
            }
            *stepped = 1;
        }
        self.meet(!enabled && bad, NEVER);
        true
    }

    fn update(&mut self) -> bool {
        let pending = self.sides.iter().any(|side| !side.applied && side.held == (Held::Unscaled { used: false }));
        self.meet(pending, APPLIED);
        if !self.sides.iter().any(|side| side.applied) {
            self.meet(!self.settings.enabled, ENDS);
            return false;
        }
        let bad = self.sides.iter().any(|side| side.applied && side.overflowed);
        self.forget();
        let (scale, s) = (f64::from(self.scale), &self.settings);
        if !s.enabled {
            return true;
        }
        if bad {
            let shrunk = (scale * s.backoff) as f32;
            (self.scale, self.counter) = (shrunk.max(f32::MIN_POSITIVE), 0);
            self.meet(shrunk < f32::MIN_POSITIVE, NORMAL);
            return true;
        }
        self.counter += 1;
        if self.counter == s.interval {
            let grown = (scale * s.growth) as f32;
            (self.scale, self.counter) = (if grown.is_finite() { grown } else { self.scale }, 0);
        }
        true
    }

    /// Adopts other numbers, or fails without changing anything.
    fn take_on(&mut self, settings: Settings, scale: f32, counter: i64) -> Option<Vec<Numbers>> {
        let good = is_sound(&settings) && is_normal(scale) && (0..settings.interval).contains(&counter);
        self.meet(!good, SOUND);
        self.meet(good && (settings.growth == 1.0 || settings.backoff == 1.0), FACTOR);
        if good {
            (self.settings, self.scale, self.counter) = (settings, scale, counter);
            let in_a_step = self.sides.iter().any(|side| side.applied);
            self.meet(in_a_step, BETWEEN);
            self.forget();
        }
        good.then_some(vec![])
    }

    /// Begins a new step.
    fn forget(&mut self) {
        // torch would unscale them again.
        let pending = self.sides.iter().any(|side| !side.applied && side.held == (Held::Unscaled { used: false }));
        self.meet(pending && self.settings.enabled, ONCE);
        self.sides.iter_mut().for_each(|side| side.applied = false);
    }
}
