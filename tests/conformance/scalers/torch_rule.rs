//! Our rule for torch's events, in plain arithmetic: the oracle of ours where torch's results are others.

use precast::DType;

use crate::scalers::{
    numbers::{Number, Numbers, round},
    torch_events::{Event, Given, Loss, Recorded, Seen, Settings, Stage},
};

/// Gradients held by a loop for an optimizer.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Held {
    /// From before any loss was scaled, or none at all.
    Raw,
    /// Multiplied by this scale.
    Scaled(f32),
    /// Unscaled; with the flag of their application.
    Unscaled { used: bool },
}

#[derive(Debug)]
struct Side {
    dtype: DType,
    lr: f64,
    params: Vec<Vec<f64>>,
    grads: Given,
    held: Held,
    /// `true` when a gradient was not finite when unscaled.
    bad: bool,
    /// `true` when it was applied since the last update; then also whether with a gradient that was not finite.
    applied: bool,
    overflowed: bool,
}

#[derive(Debug)]
pub struct Rule {
    settings: Settings,
    scale: f32,
    counter: i64,
    has_scaled: bool,
    sides: Vec<Side>,
}

fn is_normal(x: f32) -> bool {
    x.is_normal() && x > 0.0
}

/// Returns whether our rule accepts these numbers.
fn is_sound(s: &Settings) -> bool {
    let factors = s.growth.is_finite() && s.growth >= 1.0 && s.backoff > 0.0 && s.backoff <= 1.0;
    !s.enabled || is_normal(s.init as f32) && factors && s.interval >= 1
}

fn all_finite(grads: &Given) -> bool {
    grads.iter().flatten().flatten().all(|x| x.is_finite())
}

/// Replaces each element.
fn each(grads: &Given, f: impl Fn(f64) -> f64) -> Given {
    grads.iter().map(|grad| Some(grad.as_ref()?.iter().map(|x| f(*x)).collect())).collect()
}

impl Side {
    /// Returns the dtype in which unscaled gradients are read.
    fn wide(&self) -> DType {
        if self.dtype == DType::F64 { DType::F64 } else { DType::F32 }
    }

    fn divided(&self, scale: f32) -> Given {
        each(&self.grads, |x| round(x * f64::from(1.0 / scale), self.wide()))
    }

    fn seen_grads(&self) -> Vec<Option<Numbers>> {
        let (dtype, grads) = match self.held {
            Held::Scaled(scale) => (self.wide(), self.divided(scale)),
            Held::Unscaled { .. } => (self.wide(), self.grads.clone()),
            Held::Raw => (self.dtype, self.grads.clone()),
        };
        grads.into_iter().map(|grad| Some(Numbers::new(dtype, grad?))).collect()
    }

    fn stage(&self) -> Stage {
        match self.held {
            _ if self.applied => Stage::Stepped,
            Held::Unscaled { used: false } => Stage::Unscaled,
            _ => Stage::Ready,
        }
    }
}

impl Rule {
    /// Creates the rule at the beginning of a trace; `None` if it refuses the numbers.
    pub fn new(settings: &Settings, optimizers: &[Recorded]) -> Option<Rule> {
        let side = |recorded: &Recorded| {
            let Recorded { params, dtype, lr } = recorded.clone();
            let grads = vec![None; params.len()];
            Side { dtype, lr, params, grads, held: Held::Raw, bad: false, applied: false, overflowed: false }
        };
        is_sound(settings).then(|| Rule {
            settings: settings.clone(),
            scale: if settings.enabled { settings.init as f32 } else { 1.0 },
            counter: 0,
            has_scaled: !settings.enabled,
            sides: optimizers.iter().map(side).collect(),
        })
    }

    /// Converts a recording: scaled gradients are read without their scale, and low ones in f32.
    pub fn as_read(&self, recorded: &mut Seen) {
        for (side, grads) in self.sides.iter().zip(&mut recorded.grads) {
            if let Held::Scaled(scale) = side.held {
                let (wide, inverse) = (side.wide(), f64::from(1.0 / scale));
                for grad in grads.iter_mut().flatten() {
                    *grad = Numbers::new(wide, grad.numbers.iter().map(|x| round(x.0 * inverse, wide)));
                }
            }
        }
    }

    pub fn event(&mut self, event: &Event) -> Seen {
        let mut stepped = vec![0; self.sides.len()];
        let done = self.does(event, &mut stepped);
        let params = |side: &Side| side.params.iter().map(|p| Numbers::new(side.dtype, p.clone())).collect();
        Seen {
            failed: done.is_none(),
            returns: done.unwrap_or_default(),
            scale: Number(self.scale.into()),
            tracker: self.counter,
            stepped,
            params: self.sides.iter().map(params).collect(),
            grads: self.sides.iter().map(Side::seen_grads).collect(),
            stages: self.sides.iter().map(Side::stage).collect(),
        }
    }

    /// Returns the result of an event; `None` for an error.
    fn does(&mut self, event: &Event, stepped: &mut [usize]) -> Option<Vec<Numbers>> {
        let one = |x: f64| Some(vec![Numbers::new(DType::F64, [x])]);
        let Settings { growth, backoff, interval, enabled, .. } = self.settings.clone();
        let done = match event {
            Event::Scale(losses) => {
                if !losses.iter().all(Loss::is_scalar) {
                    return None;
                }
                let scale = f64::from(self.scale);
                self.begin_scaling();
                let scaled = losses.iter().map(|loss| {
                    let wide = if loss.dtype == DType::F64 { DType::F64 } else { DType::F32 };
                    Numbers::new(wide, loss.values.iter().map(|x| round(round(*x, loss.dtype) * scale, wide)))
                });
                return Some(scaled.collect());
            }
            Event::Backward(reached) => {
                self.begin_scaling();
                reached.iter().all(|(which, given)| self.add_grads(*which, given))
            }
            Event::Grads(which, given) => {
                let held = if self.has_scaled { Held::Scaled(self.scale) } else { Held::Raw };
                let side = &mut self.sides[*which];
                let given = each(given, |x| round(x, side.dtype));
                if side.held == (Held::Unscaled { used: false }) {
                    side.grads.iter_mut().zip(given).for_each(|(grad, given)| *grad = given.or(grad.take()));
                } else {
                    (side.grads, side.held) = (given, held);
                }
                true
            }
            Event::AddGrads(which, given) => self.add_grads(*which, given),
            Event::ZeroGrad(which) => {
                let side = &mut self.sides[*which];
                (side.grads, side.held) = (vec![None; side.params.len()], Held::Raw);
                true
            }
            Event::Unscale(which) => self.unscale(*which),
            Event::Clip(which, max) => {
                let side = &mut self.sides[*which];
                if !matches!(side.held, Held::Unscaled { .. }) {
                    return None;
                }
                let norm = side.grads.iter().flatten().flatten().map(|x| x * x).sum::<f64>().sqrt();
                let factor = f64::from((max / (norm + 1e-6)) as f32);
                if norm.is_finite() && factor < 1.0 {
                    side.grads = each(&side.grads, |x| round(x * factor, side.wide()));
                }
                return one(norm);
            }
            Event::Step(which) => self.step(*which, &mut stepped[*which]),
            Event::Update => self.update(),
            Event::SetScale(x) if enabled && is_normal(*x as f32) => {
                self.scale = *x as f32;
                self.forget();
                true
            }
            Event::GetScale => return one(self.scale.into()),
            Event::IsEnabled => return one(f64::from(enabled)),
            Event::Get(name) => match (&name[..], enabled) {
                ("growth_tracker", _) => return one(self.counter as f64),
                ("growth_factor", true) => return one(growth),
                ("backoff_factor", true) => return one(backoff),
                ("growth_interval", true) => return one(interval as f64),
                _ => false,
            },
            Event::Set(name, x) => {
                let mut changed = self.settings.clone();
                match &name[..] {
                    "growth_factor" => changed.growth = *x,
                    "backoff_factor" => changed.backoff = *x,
                    "growth_interval" => changed.interval = *x as i64,
                    _ => return None,
                }
                enabled && self.take_on(changed, self.scale, self.counter)
            }
            Event::State => {
                let factors = [growth, backoff, interval as f64];
                let kept = if enabled { &factors[..] } else { &[] };
                let numbers = [f64::from(self.scale)].into_iter().chain(kept.iter().copied());
                return Some(vec![Numbers::new(DType::F64, numbers.chain([self.counter as f64]))]);
            }
            Event::Load(Some((settings, counter))) => self.take_on(settings.clone(), settings.init as f32, *counter),
            Event::Reload => {
                self.forget();
                true
            }
            Event::Pickle => true,
            Event::SetScale(_) | Event::Load(None) | Event::NoSuchForm(_) => false,
        };
        done.then_some(vec![])
    }

    /// Begins scaling: existing gradients then have its scale.
    fn begin_scaling(&mut self) {
        self.has_scaled = true;
        for side in
            self.sides.iter_mut().filter(|side| side.held == Held::Raw && side.grads.iter().any(Option::is_some))
        {
            side.held = Held::Scaled(self.scale);
        }
    }

    fn add_grads(&mut self, which: usize, given: &Given) -> bool {
        let (scale, side) = (self.scale, &mut self.sides[which]);
        match side.held {
            Held::Scaled(before) if before == scale => {
                for (grad, more) in side.grads.iter_mut().zip(given) {
                    let Some(more) = more else { continue };
                    let sum = grad.take().unwrap_or_else(|| vec![0.0; more.len()]);
                    let add = |(a, b): (&f64, &f64)| f64::from(*a as f32 + *b as f32);
                    *grad = Some(sum.iter().zip(more).map(add).collect());
                }
                true
            }
            Held::Scaled(_) => false,
            _ => {
                (side.grads, side.held) = (each(given, |x| round(x, side.dtype)), Held::Scaled(scale));
                true
            }
        }
    }

    fn unscale(&mut self, which: usize) -> bool {
        let side = &mut self.sides[which];
        match side.held {
            Held::Scaled(scale) if side.grads.iter().any(Option::is_some) => {
                (side.grads, side.held) = (side.divided(scale), Held::Unscaled { used: false });
                side.bad = !all_finite(&side.grads);
                true
            }
            _ => false,
        }
    }

    fn step(&mut self, which: usize, stepped: &mut usize) -> bool {
        if !matches!(self.sides[which].held, Held::Unscaled { .. }) && !self.unscale(which) {
            return false;
        }
        let side = &mut self.sides[which];
        if side.applied {
            return false;
        }
        (side.applied, side.held) = (true, Held::Unscaled { used: true });
        side.bad |= !all_finite(&side.grads);
        side.overflowed = side.bad;
        if !side.bad {
            for (param, grad) in side.params.iter_mut().zip(&side.grads) {
                let Some(grad) = grad else { continue };
                param.iter_mut().zip(grad).for_each(|(p, g)| *p = round(*p - side.lr * g, side.dtype));
            }
            *stepped = 1;
        }
        true
    }

    fn update(&mut self) -> bool {
        if !self.sides.iter().any(|side| side.applied) {
            return false;
        }
        let bad = self.sides.iter().any(|side| side.applied && side.overflowed);
        self.forget();
        let (scale, s) = (f64::from(self.scale), &self.settings);
        if !s.enabled {
            return true;
        }
        self.counter = if bad { 0 } else { self.counter + 1 };
        if bad {
            self.scale = ((scale * s.backoff) as f32).max(f32::MIN_POSITIVE);
        } else if self.counter == s.interval {
            let grown = (scale * s.growth) as f32;
            (self.scale, self.counter) = (if grown.is_finite() { grown } else { self.scale }, 0);
        }
        true
    }

    /// Adopts other numbers, or fails without changing anything.
    fn take_on(&mut self, settings: Settings, scale: f32, counter: i64) -> bool {
        let good = is_sound(&settings) && is_normal(scale) && (0..settings.interval).contains(&counter);
        if good {
            (self.settings, self.scale, self.counter) = (settings, scale, counter);
            self.forget();
        }
        good
    }

    /// Begins a new step.
    fn forget(&mut self) {
        self.sides.iter_mut().for_each(|side| side.applied = false);
    }
}
