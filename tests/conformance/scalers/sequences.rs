//! Random sequences of calls compared with a model of them: a loss scale, two optimizers, and everything that can go
//! wrong.
//!
//! `PROPTEST_CASES=1000000` tries more.

use precast::{
    DType, Grads, LossScale, Outcome, Param, Sgd, Tensor,
    cell::Params,
    policy::{DynamicScale, Forgive, LossScaleSpec},
    scale::{Cause, ScaleState, ScaledGrads},
};
use proptest::prelude::{
    Just, ProptestConfig, Strategy, TestCaseError, prop_assert, prop_assert_eq, prop_oneof, proptest,
};

use crate::scalers::model::Model;

/// So small that no weight overflows; a power of two, so that multiplication is exact.
const LR: f32 = 1.0 / 1024.0;

/// A call, for the first or the second optimizer.
#[derive(Clone, Debug)]
enum Call {
    /// A backward pass whose gradient is this number times the scale.
    Backward(usize, f32),
    /// A backward pass of a loss that is NaN.
    BadLoss(usize),
    Accumulate(usize, f32),
    /// Unscales the gradient if necessary, and replaces it by this number, as clipping does.
    Replace(usize, f32),
    Apply(usize),
    Update,
    SetScale(f32),
    /// The state is written and read; then this many steps in a row were skipped.
    Restore(u32),
}

/// Gradients as held by a loop: scaled ones with their scale and whether the loss was finite, and unscaled ones.
#[derive(Clone, Debug, Default)]
struct Held {
    scaled: Option<(Option<f32>, f32, bool)>,
    unscaled: Option<Unscaled>,
}

#[derive(Clone, Debug)]
struct Unscaled {
    grad: f32,
    /// `true` when it was not finite when unscaled.
    bad: bool,
    cause: Cause,
}

impl Held {
    fn unscale(&mut self) -> Option<&mut Unscaled> {
        if self.unscaled.is_none() {
            let (grad, scale, finite_loss) = self.scaled.as_mut()?;
            let (grad, scale) = (grad.take()? * (1.0 / *scale), *scale);
            let cause = if *finite_loss {
                Cause::Overflow { scale, first: "0".into(), origin: None }
            } else {
                Cause::Loss { origin: None }
            };
            self.unscaled = Some(Unscaled { grad, bad: !grad.is_finite(), cause });
        }
        self.unscaled.as_mut()
    }
}

/// Expected outcome. `None` is an error.
#[derive(Clone, Debug)]
struct Expected {
    /// Without its numbers if the scale is not dynamic.
    model: Model,
    spec: LossScaleSpec,
    applied: [bool; 2],
    worst: Option<Cause>,
    held: [Held; 2],
    weights: [f32; 2],
}

impl Expected {
    fn call(&mut self, call: &Call) -> Option<Option<Outcome>> {
        let scale = self.model.scale;
        match *call {
            Call::Backward(k, grad) => {
                self.held[k] = Held { scaled: Some((Some(grad * scale), scale, true)), unscaled: None }
            }
            Call::BadLoss(k) => self.held[k] = Held { scaled: Some((Some(f32::NAN), scale, false)), unscaled: None },
            Call::Accumulate(k, grad) => {
                let (before, at, _) = self.held[k].scaled.as_mut().filter(|(_, at, _)| *at == scale)?;
                *before = Some(before.unwrap_or(0.0) + grad * *at);
            }
            Call::Replace(k, grad) => self.held[k].unscale()?.grad = grad,
            Call::Apply(k) => return self.apply(k).map(Some),
            Call::Update => {
                self.applied.contains(&true).then_some(())?;
                match (self.worst.take(), &self.spec) {
                    (Some(Cause::Loss { origin: None }), _) => self.model.skipped += 1,
                    (worst, LossScaleSpec::Dynamic(_)) => self.model.adjust(worst.is_none()),
                    (worst, _) => self.model.skipped = if worst.is_some() { self.model.skipped + 1 } else { 0 },
                }
                self.applied = [false; 2];
            }
            Call::SetScale(to) => {
                let normal = to.is_normal() && to > 0.0;
                match &mut self.spec {
                    LossScaleSpec::Fixed { scale } if normal => *scale = to,
                    LossScaleSpec::Dynamic(d) if (d.min..=d.max).contains(&to) => {}
                    _ => return None,
                }
                self.model.scale = to;
            }
            Call::Restore(skipped) => (self.model.skipped, self.applied, self.worst) = (skipped, [false; 2], None),
        }
        Some(None)
    }

    fn apply(&mut self, k: usize) -> Option<Outcome> {
        let Unscaled { grad, bad, cause } = self.held[k].unscale()?.clone();
        if std::mem::replace(&mut self.applied[k], true) {
            return None;
        }
        if !bad && grad.is_finite() {
            self.weights[k] -= LR * grad;
            return Some(Outcome::Stepped);
        }
        if !matches!(self.worst, Some(Cause::Overflow { .. })) {
            self.worst = Some(cause.clone());
        }
        let falls = match (&self.spec, &cause) {
            (LossScaleSpec::Dynamic(d), Cause::Overflow { .. }) => d.backoff < 1.0 && self.model.scale > d.min,
            _ => false,
        };
        let skipped = self.model.skipped + 1;
        Some(match skipped >= 20 && !falls {
            true => Outcome::Stalled { cause, skipped },
            false => Outcome::Skipped { cause },
        })
    }
}

/// The same with the library.
struct Real {
    scale: LossScale,
    sides: [Side; 2],
}

struct Side {
    weight: Param,
    params: Params,
    sgd: Sgd,
    scaled: Option<ScaledGrads>,
    unscaled: Option<Grads>,
}

impl Side {
    fn new() -> Side {
        let weight = Param::new(Tensor::ones(&[1], DType::F32));
        let params: Params = [weight.clone()].into_iter().collect();
        let sgd = Sgd::new(params.clone(), LR.into());
        Side { weight, params, sgd, scaled: None, unscaled: None }
    }

    fn grads(&self, scale: &LossScale, grad: f32) -> ScaledGrads {
        let mut grads = Grads::default();
        grads.set(&self.weight, Tensor::full(&[1], (grad * scale.value()).into(), DType::F32));
        scale.already_scaled(grads)
    }

    fn unscale(&mut self) -> precast::Result<&mut Grads> {
        if self.unscaled.is_none() {
            self.unscaled = Some(self.scaled.as_mut().ok_or_else(nothing)?.unscale(&self.params)?);
        }
        self.unscaled.as_mut().ok_or_else(nothing)
    }
}

fn nothing() -> precast::Error {
    precast::Error::value("nothing is held")
}

impl Real {
    fn call(&mut self, call: &Call) -> precast::Result<Option<Outcome>> {
        match *call {
            Call::Backward(k, grad) => {
                let side = &mut self.sides[k];
                (side.scaled, side.unscaled) = (Some(side.grads(&self.scale, grad)), None);
            }
            Call::BadLoss(k) => {
                let side = &mut self.sides[k];
                let loss = side.weight.tensor().mul(&Tensor::full(&[1], f64::NAN, DType::F32))?;
                (side.scaled, side.unscaled) = (Some(self.scale.scale(&loss)?.backward()?), None);
            }
            Call::Accumulate(k, grad) => {
                let side = &mut self.sides[k];
                let more = side.grads(&self.scale, grad);
                side.scaled.as_mut().ok_or_else(nothing)?.accumulate(more)?;
            }
            Call::Replace(k, grad) => {
                let side = &mut self.sides[k];
                let weight = side.weight.clone();
                side.unscale()?.set(&weight, Tensor::full(&[1], grad.into(), DType::F32));
            }
            Call::Apply(k) => {
                let side = &mut self.sides[k];
                side.unscale()?;
                let grads = side.unscaled.as_ref().expect("unscaled");
                return self.scale.apply(&mut side.sgd, grads).map(Some);
            }
            Call::Update => self.scale.update()?,
            Call::SetScale(to) => self.scale.set_scale(to)?,
            Call::Restore(skipped) => {
                let text = serde_json::to_string(&self.scale.state()).expect("a state");
                let state: ScaleState = serde_json::from_str(&text).expect("a state");
                self.scale.restore(ScaleState { skipped, ..state })?;
            }
        }
        Ok(None)
    }
}

fn spec() -> impl Strategy<Value = LossScaleSpec> {
    let forgive = prop_oneof![Just(Forgive::Shrink), Just(Forgive::Finite), Just(Forgive::Growth)];
    let backoff = prop_oneof![Just(0.5), Just(0.3), Just(1.0)];
    let dynamic = (1..4_u32, 1..4_u32, forgive, backoff).prop_map(|(interval, hysteresis, forgive, backoff)| {
        let (init, growth, min, max) = (8.0, 2.0, 0.25, 64.0);
        LossScaleSpec::Dynamic(
            DynamicScale::default()
                .init(init)
                .growth(growth)
                .backoff(backoff)
                .interval(interval)
                .min(min)
                .max(max)
                .hysteresis(hysteresis)
                .forgive(forgive),
        )
    });
    prop_oneof![4 => dynamic, 1 => Just(LossScaleSpec::Fixed { scale: 8.0 }), 1 => Just(LossScaleSpec::None)]
}

fn call() -> impl Strategy<Value = Call> {
    let which = || 0..2_usize;
    // The last overflows once it is divided by a scale below 1.
    let grad = || prop_oneof![4 => Just(1.0_f32), 2 => Just(f32::INFINITY), 1 => Just(f32::NAN), 1 => Just(-0.75), 1 => Just(3e38)];
    let scale = prop_oneof![
        Just(2.0_f32),
        Just(0.25),
        Just(64.0),
        Just(0.0),
        Just(1e-40),
        Just(-8.0),
        Just(f32::NAN),
        Just(128.0)
    ];
    prop_oneof![
        4 => (which(), grad()).prop_map(|(k, grad)| Call::Backward(k, grad)),
        1 => which().prop_map(Call::BadLoss),
        1 => (which(), grad()).prop_map(|(k, grad)| Call::Accumulate(k, grad)),
        1 => (which(), grad()).prop_map(|(k, grad)| Call::Replace(k, grad)),
        5 => which().prop_map(Call::Apply),
        4 => Just(Call::Update),
        1 => scale.prop_map(Call::SetScale),
        1 => (0..40_u32).prop_map(Call::Restore),
    ]
}

fn run(spec: LossScaleSpec, calls: &[Call]) -> Result<(), TestCaseError> {
    let (init, numbers) = match &spec {
        LossScaleSpec::Dynamic(numbers) => (numbers.init, numbers.clone()),
        LossScaleSpec::Fixed { scale } => (*scale, DynamicScale::default()),
        LossScaleSpec::None => (1.0, DynamicScale::default()),
        other => unreachable!("{other:?}"),
    };
    let model = Model { scale: init, ..Model::new(numbers) };
    let mut real = Real { scale: LossScale::new(spec.clone()).unwrap(), sides: [Side::new(), Side::new()] };
    let mut expected =
        Expected { model, spec, applied: [false; 2], worst: None, held: Default::default(), weights: [1.0; 2] };
    for (i, call) in calls.iter().enumerate() {
        let (met, demanded) = (real.call(call), expected.call(call));
        prop_assert_eq!(&met.as_ref().ok(), &demanded.as_ref(), "call {}: {:?}", i, call);
        prop_assert!(expected.model.is(&real.scale), "call {}: {:?}, {:?}", i, real.scale, expected.model);
        for (side, weight) in real.sides.iter().zip(expected.weights) {
            let met = side.weight.value().item().unwrap() as f32;
            prop_assert!(met == weight || met.is_nan() && weight.is_nan(), "call {}: {}, {}", i, met, weight);
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: std::env::var("PROPTEST_CASES").ok().and_then(|cases| cases.parse().ok()).unwrap_or(100_000),
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn random_sequences_of_calls_do_what_the_model_says(
        spec in spec(),
        calls in proptest::collection::vec(call(), 1..10),
    ) {
        run(spec, &calls)?;
    }
}
