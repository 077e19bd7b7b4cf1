//! Storms of overflows: the state preserved by a skipped step, and training afterwards.

use precast::{
    Adam, AdamW, DType, LossScale, Optimizer, Outcome, Param, Result, Sgd, Tensor,
    cell::Params,
    policy::{DynamicScale, LossScaleSpec},
    scale::Cause,
};

use crate::scalers::model::Model;

/// A line through points: the weights, an optimizer and a loss scale.
struct Training {
    weights: Param,
    optimizer: Box<dyn Optimizer>,
    scale: LossScale,
    /// Dtype of the product.
    dtype: DType,
}

/// Kind of step in a storm.
#[derive(Clone, Copy, PartialEq)]
enum Step {
    Good,
    /// The loss is finite, and its gradient is infinite at every scale.
    Overflow,
    /// The loss is NaN.
    BadLoss,
}

const OPTIMIZERS: [fn(Params) -> Box<dyn Optimizer>; 3] = [
    |params| Box::new(Sgd::new(params, 0.01).momentum(0.9)),
    |params| Box::new(Adam::new(params, 0.01)),
    |params| Box::new(AdamW::new(params, 0.01).weight_decay(0.1)),
];

fn scales() -> Vec<LossScale> {
    let dynamic = |numbers| LossScale::new(LossScaleSpec::Dynamic(numbers)).unwrap();
    let mut scales = vec![LossScale::none(), LossScale::fixed(1024.0).unwrap(), LossScale::dynamic()];
    // Without a floor: a storm brings these down to 2^-126, from where they do not return.
    let names = ["mindspore", "tensorflow", "deepspeed"];
    scales.extend(names.iter().map(|name| dynamic(DynamicScale::named(name).unwrap())));
    scales
}

impl Training {
    fn new(optimizer: fn(Params) -> Box<dyn Optimizer>, scale: LossScale, dtype: DType) -> Training {
        let start = Tensor::from_f64(&[0.5, -0.25, 0.125], &[3, 1], DType::F32).unwrap();
        let weights = Param::new(start);
        let optimizer = optimizer([weights.clone()].into_iter().collect());
        Training { weights, optimizer, scale, dtype }
    }

    fn loss(&self) -> Result<Tensor> {
        let points: Vec<f64> = (0..24).map(|i| f64::from(i * 7 % 11) / 11.0 - 0.5).collect();
        let points = Tensor::from_f64(&points, &[8, 3], self.dtype)?;
        let target = points.cast(DType::F32).matmul(&Tensor::from_f64(&[1.0, 2.0, -1.5], &[3, 1], DType::F32)?)?;
        let error = points.matmul(&self.weights.tensor().cast(self.dtype))?.cast(DType::F32).sub(&target)?;
        error.mul(&error)?.sum_all()
    }

    fn step(&mut self, step: Step) -> Result<Outcome> {
        let sum = self.weights.tensor().sum_all()?;
        // The slope of a root at 0 is infinite.
        let root = sum.sub(&sum.detach())?.sqrt()?;
        let loss = match step {
            Step::Good => self.loss()?,
            Step::Overflow => self.loss()?.add(&root)?,
            Step::BadLoss => self.loss()?.mul(&Tensor::scalar(f64::NAN, DType::F32))?,
        };
        self.scale.step(&mut *self.optimizer, &loss)
    }

    /// Runs the steps of a storm, which leave the weights unchanged, bit for bit.
    fn run(&mut self, steps: impl IntoIterator<Item = Step>) {
        for (i, step) in steps.into_iter().enumerate() {
            let before = self.bits();
            let outcome = self.step(step).unwrap();
            match (step, &outcome) {
                (Step::Good, Outcome::Stepped) => assert_ne!(self.bits(), before, "step {i}"),
                (Step::Overflow, Outcome::Skipped { cause: Cause::Overflow { .. } })
                | (Step::Overflow, Outcome::Stalled { cause: Cause::Overflow { .. }, .. })
                | (Step::BadLoss, Outcome::Skipped { cause: Cause::Loss { .. } })
                | (Step::BadLoss, Outcome::Stalled { cause: Cause::Loss { .. }, .. }) => {
                    assert_eq!(self.bits(), before, "step {i}");
                }
                _ => panic!("step {i}: {outcome:?}"),
            }
        }
    }

    fn bits(&self) -> Vec<u64> {
        self.weights.value().to_f64().into_iter().map(f64::to_bits).collect()
    }
}

/// Checks that a run with a storm ends with the weights of the run without it, bit for bit, so that the optimizer's
/// state is unchanged as well. Scales are powers of two, so that scaling f32 gradients is exact.
fn leaves_no_trace(steps: &[Step]) {
    for optimizer in OPTIMIZERS {
        for scale in scales() {
            let calm = || steps.iter().copied().filter(|step| *step == Step::Good);
            let mut disturbed = Training::new(optimizer, scale.clone(), DType::F32);
            let mut undisturbed = Training::new(optimizer, scale.clone(), DType::F32);
            disturbed.run(steps.iter().copied());
            undisturbed.run(calm());
            assert_eq!(disturbed.bits(), undisturbed.bits(), "{:?}, {:?}", disturbed.optimizer, scale);
        }
    }
}

#[test]
fn overflows_change_no_weight_and_no_state() {
    leaves_no_trace(&[vec![Step::Good; 20], vec![Step::Overflow; 1000], vec![Step::Good; 20]].concat());
    leaves_no_trace(&[Step::Good, Step::Overflow].repeat(100));
    leaves_no_trace(&[Step::Overflow, Step::Good, Step::BadLoss].repeat(50));
}

#[test]
fn a_loss_that_is_nan_for_a_thousand_steps_leaves_the_scale_too() {
    leaves_no_trace(&[vec![Step::Good; 5], vec![Step::BadLoss; 1000], vec![Step::Good; 5]].concat());
    for scale in scales() {
        let mut training = Training::new(OPTIMIZERS[0], scale.clone(), DType::F32);
        training.run([Step::BadLoss; 1000]);
        assert_eq!((training.scale.value(), training.scale.state().skipped), (scale.value(), 1000));
    }
}

/// The scale of each step of a storm is that of the model.
#[test]
fn a_scale_falls_to_its_floor_and_grows_to_its_ceiling() {
    let (min, max) = (0.5, 4096.0);
    let numbers = DynamicScale::default().init(64.0).interval(2).min(min).max(max);
    let spec = LossScaleSpec::Dynamic(numbers.clone());
    let mut training = Training::new(OPTIMIZERS[1], LossScale::new(spec).unwrap(), DType::F32);
    let mut model = Model::new(numbers);
    let mut seen = vec![];
    for step in [vec![Step::Overflow; 20], vec![Step::Good; 40], vec![Step::Overflow; 3]].concat() {
        training.run([step]);
        model.adjust(step == Step::Good);
        assert!(model.is(&training.scale), "{:?}, {model:?}", training.scale);
        seen.push(training.scale.value());
    }
    assert_eq!((seen[6], seen[7], seen[19]), (min, min, min));
    assert_eq!((seen[44], seen[45], seen[59], seen[62]), (2048.0, max, max, max / 8.0));
}

/// In f16 gradients depend on the scale. After a storm that brought it to its floor, the loss matches that of a run
/// without.
#[test]
fn training_in_f16_recovers_from_a_storm() {
    let numbers = DynamicScale::default().init(16_777_216.0).interval(20);
    let spec = LossScaleSpec::Dynamic(numbers);
    for optimizer in OPTIMIZERS {
        let loss_after = |storm: usize| {
            let mut training = Training::new(optimizer, LossScale::new(spec.clone()).unwrap(), DType::F16);
            let mut stepped = 0;
            while stepped < 150 {
                stepped += usize::from(training.step(Step::Good).unwrap() == Outcome::Stepped);
                if stepped == 50 && storm > 0 && training.scale.state().skipped == 0 {
                    training.run(vec![Step::Overflow; storm]);
                    assert_eq!(training.scale.value(), 1.0);
                }
            }
            (training.loss().unwrap().item().unwrap(), training.scale.value())
        };
        let ((undisturbed, _), (disturbed, scale)) = (loss_after(0), loss_after(1000));
        assert!((disturbed / undisturbed - 1.0).abs() < 0.01, "{disturbed} after the storm, {undisturbed} without");
        assert!(scale >= 16.0, "the scale grows again: {scale}");
    }
}
