//! Each rule of the lint on a network whose numbers are known, and on one that just passes.

use precast::{
    optim::{Method, SgdOptions},
    policy::LossScaleSpec,
    prelude::*,
    storage::{Decorate, decorate},
};
use precast_diagnose::lint::{Finding, Lint, Rule, Severity};
use precast_train::{Fit, FitOptions, data::Dataset};

type Run = fn(&Tensor) -> Result<Tensor>;

/// A cell of a few ops.
#[derive(Cell, Debug)]
struct Code {
    run: Run,
}

impl Forward for Code {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        (self.run)(x)
    }
}

fn number(x: f64) -> Tensor {
    Tensor::scalar(x, DType::F32)
}

/// Lints code in a region of a dtype. The loss is the sum of its results, every second one halved.
fn found_in(run: Run, x: &Tensor, dtype: DType, scale: f32) -> Vec<Finding> {
    let mut net = Child::new(Code { run });
    let lint = Lint::new().loss_scale(LossScaleSpec::Fixed { scale });
    // The input is on the tape, so that gradients flow to it.
    let x = x.requires_grad();
    let loss = |net: &Child<Code>| {
        let y = net.call(&x)?;
        let weights = (0..y.len()).map(|i| if i % 2 == 0 { 1f32 } else { 0.5 }).collect();
        y.mul(&Tensor::from_vec::<f32>(weights, y.shape())?)?.sum_all()
    };
    lint.under(&Policy::new("O3", dtype).unwrap(), &mut net, loss).unwrap()
}

fn rules_in(run: Run, x: &Tensor, dtype: DType) -> Vec<(Rule, Severity)> {
    found_in(run, x, dtype, 1.0).iter().map(|finding| (finding.rule, finding.severity)).collect()
}

fn full(len: usize, x: f64) -> Tensor {
    Tensor::full(&[1, len], x, DType::F32)
}

use DType::{Bf16, F16};
use Severity::{Error, Warning};

#[test]
fn a_number_beyond_the_largest_f16_is_an_error_and_one_near_it_a_warning() {
    let run: Run = |x| x.mul(&number(256.0));
    assert_eq!(rules_in(run, &full(4, 256.0), F16), [(Rule::Overflow, Error)]);
    assert_eq!(rules_in(run, &full(4, 200.0), F16), [(Rule::Overflow, Warning)]);
    assert_eq!(rules_in(run, &full(4, 128.0), F16), []);
    assert_eq!(rules_in(run, &full(4, 256.0), Bf16), []);
    let finding = &found_in(run, &full(4, 256.0), F16, 1.0)[0];
    assert_eq!((finding.number, finding.limit), (65536.0, 65504.0));
    assert!(finding.to_string().starts_with("error overflow: Mul in the root cell reaches 65536 in f32"), "{finding}");
}

#[test]
fn numbers_of_half_the_smallest_f16_become_0() {
    let run: Run = |x| x.mul(&number(2f64.powi(-13)));
    assert_eq!(rules_in(run, &full(4, 2f64.powi(-12)), F16), [(Rule::Underflow, Error)]);
    assert_eq!(rules_in(run, &full(4, 2f64.powi(-11)), F16), []);
    assert_eq!(rules_in(run, &full(4, 2f64.powi(-12)), Bf16), []);
    // Small numbers next to large ones carry none of the norm.
    let mixed = Tensor::from_vec(vec![1f32, 2f32.powi(-12), 2f32.powi(-12), 2f32.powi(-12)], &[1, 4]).unwrap();
    assert_eq!(rules_in(run, &mixed, F16), []);
}

#[test]
fn gradients_are_those_at_the_loss_scale_and_the_scale_that_is_written_fits() {
    let large: Run = |x| x.mul(&number(64.0));
    let small: Run = |x| x.mul(&number(2f64.powi(-13)));
    let x = full(4, 1.0);
    for (run, rule, scale, near) in
        [(large, Rule::GradOverflow, 1024.0, 512.0), (small, Rule::GradUnderflow, 2f32.powi(-12), 2f32.powi(-10))]
    {
        let found = found_in(run, &x, F16, scale);
        assert_eq!(found.iter().map(|finding| finding.rule).collect::<Vec<_>>(), [rule], "{found:?}");
        let near = found_in(run, &x, F16, near);
        assert_eq!(near, [], "{rule}");
        let written = found[0].write.split("fixed, scale: ").nth(1).and_then(|rest| rest.split(' ').next());
        let written: f32 = written.and_then(|number| number.parse().ok()).unwrap_or_else(|| panic!("{}", found[0]));
        assert_eq!(found_in(run, &x, F16, written), []);
    }
}

#[test]
fn gradients_that_fit_alone_and_not_together() {
    let run: Run = |x| {
        let y = x.mul(&number(1.0))?;
        y.add(&y)
    };
    let found = found_in(run, &full(4, 1.0), F16, 40_000.0);
    let first = found[0].place.as_ref().unwrap();
    assert_eq!(
        (found[0].rule, first.op.to_string().as_str(), first.amax),
        (Rule::GradOverflow, "Accumulate", 80_000.0)
    );
    assert_eq!(found_in(run, &full(4, 1.0), F16, 16_384.0), []);
}

#[test]
fn no_loss_scale_fits_gradients_of_both_ends() {
    let run: Run = |x| (0..3).try_fold(x.clone(), |x, _| x.mul(&number(16384.0)));
    // The gradients are 1, 2^14, 2^28 and 2^42: f16 has 2^-24 to 2^16. The numbers are 0.
    let found = found_in(run, &full(4, 0.0), F16, 1.0);
    assert_eq!(rules(&found), [Rule::GradOverflow]);
    assert!(found[0].what.contains("no loss scale fits"), "{}", found[0]);
}

#[test]
fn differences_of_nearly_equal_numbers_lose_digits() {
    // The product rounds to 1024 + 1 or to 1024: of the difference of 1/4, nothing is right.
    let run: Run = |x| x.mul(&number(1.0 + 1.0 / 4096.0))?.sub(x);
    let rules = rules_in(run, &full(4, 1024.0), F16);
    assert_eq!(rules, [(Rule::Cancellation, Warning)]);
    let run: Run = |x| x.mul(&number(1.125))?.sub(x);
    assert_eq!(rules_in(run, &full(4, 1024.0), F16), []);
}

#[test]
fn small_numbers_next_to_a_large_one_are_lost() {
    let run: Run = |x| x.add(&number(2048.0))?.sub(&number(2048.0));
    assert_eq!(rules_in(run, &full(4, 0.75), F16), [(Rule::Absorbed, Warning)]);
    assert_eq!(rules_in(run, &full(4, 2.0), F16), []);
}

#[test]
fn a_sum_that_is_rounded_after_every_term_stands_still() {
    fn sum(x: &Tensor, terms: usize) -> Result<Tensor> {
        (1..terms).try_fold(x.clone(), |sum, _| sum.add(x))
    }
    // bf16 has no 257: a sum of ones ends at 256.
    assert_eq!(rules_in(|x| sum(x, 400), &full(4, 1.0), Bf16), [(Rule::Depth, Warning)]);
    assert_eq!(rules_in(|x| sum(x, 256), &full(4, 1.0), Bf16), []);
    assert_eq!(rules_in(|x| sum(x, 400), &full(4, 1.0), F16), []);
}

#[test]
fn an_epsilon_below_the_smallest_number_is_none() {
    fn rms(x: &Tensor, eps: f64) -> Result<Tensor> {
        x.mul(&x.square()?.mean(&[-1], true)?.add(&number(eps))?.rsqrt()?)
    }
    let (small, fits): (Run, Run) = (|x| rms(x, 2f64.powi(-26)), |x| rms(x, 2f64.powi(-24)));
    assert_eq!(rules_in(small, &full(4, 1.0), F16), [(Rule::EpsTooSmall, Error)]);
    assert_eq!(rules_in(fits, &full(4, 1.0), F16), []);
    assert_eq!(rules_in(small, &full(4, 1.0), Bf16), []);
    // Inside a norm, the epsilon is f32.
    assert_eq!(rules_in(|x| x.rms_norm(None, 2f64.powi(-26)), &full(4, 1.0), F16), []);
    assert_eq!(rules_in(|x| x.clamp(1e-9, 1e3)?.log(), &full(4, 1.0), F16), [(Rule::EpsTooSmall, Error)]);
    // Added to something that nothing divides by, it is harmless.
    assert_eq!(rules_in(|x| x.add(&number(1e-9)), &full(4, 1.0), F16), []);
}

#[test]
fn a_mask_that_becomes_infinite_is_named_and_breaks_rows_that_it_masks_whole() {
    fn masked(x: &Tensor, rows: [f32; 4]) -> Result<Tensor> {
        x.add(&Tensor::from_vec(rows.to_vec(), &[2, 2])?)?.softmax(-1)
    }
    let x = Tensor::ones(&[2, 2], DType::F32);
    assert_eq!(rules_in(|x| masked(x, [0.0, -1e9, 0.0, 0.0]), &x, F16), [(Rule::MaskConstant, Warning)]);
    assert_eq!(rules_in(|x| masked(x, [-1e9, -1e9, 0.0, 0.0]), &x, F16), [(Rule::MaskConstant, Error)]);
    assert_eq!(rules_in(|x| masked(x, [0.0, -1e4, 0.0, 0.0]), &x, F16), []);
    assert_eq!(rules_in(|x| masked(x, [0.0, -1e9, 0.0, 0.0]), &x, Bf16), []);
    // Two planes that fit, and whose sum does not.
    let planes: Run = |x| {
        let plane = Tensor::from_vec(vec![0f32, -4e4, 0.0, 0.0], &[2, 2])?;
        x.add(&plane.add(&plane)?)?.softmax(-1)
    };
    assert_eq!(rules_in(planes, &x, F16), [(Rule::MaskConstant, Error)]);
    // Without a softmax, it is an overflow.
    let added: Run = |x| x.add(&Tensor::from_vec(vec![0f32, -1e9, 0.0, 0.0], &[2, 2])?);
    assert_eq!(rules_in(added, &x, F16), [(Rule::Overflow, Error)]);
}

#[test]
fn sums_softmaxes_and_variances_by_hand_are_named_where_they_break() {
    let rules = |run: Run, x: &Tensor| rules_in(run, x, F16).into_iter().map(|(rule, _)| rule).collect::<Vec<_>>();
    let mean: Run = |x| x.sum(&[-1], true)?.mul(&number(1.0 / 64.0));
    assert_eq!(rules(mean, &full(64, 2000.0)), [Rule::Overflow, Rule::SumBeforeDiv]);
    assert_eq!(rules(mean, &full(64, 500.0)), []);
    assert_eq!(rules(|x| x.mean(&[-1], true), &full(64, 2000.0)), []);
    let softmax: Run = |x| {
        let y = x.exp()?;
        y.div(&y.sum(&[-1], true)?)
    };
    assert_eq!(rules(softmax, &full(4, 12.0)), [Rule::Overflow, Rule::SoftmaxByHand]);
    assert_eq!(rules(softmax, &full(4, 5.0)), []);
    assert_eq!(rules(|x| x.softmax(-1), &full(4, 12.0)), []);
    let variance: Run = |x| x.square()?.mean(&[-1], true)?.sub(&x.mean(&[-1], true)?.square()?);
    let row = |of: [f32; 3]| Tensor::from_vec(of.to_vec(), &[1, 3]).unwrap();
    assert_eq!(rules(variance, &row([127.0, 128.0, 129.5])), [Rule::Cancellation, Rule::VarianceByHand]);
    assert_eq!(rules(variance, &row([-1.0, 0.0, 2.0])), []);
}

#[test]
fn counts_beyond_the_whole_numbers_of_a_dtype() {
    let count: Run = |x| x.cumsum(-1);
    assert_eq!(rules_in(count, &full(2100, 1.0), F16), [(Rule::CountsInFloat, Warning)]);
    assert_eq!(rules_in(count, &full(2048, 1.0), F16), []);
    assert_eq!(rules_in(count, &full(300, 1.0), Bf16), [(Rule::CountsInFloat, Warning)]);
    // Numbers that are not whole are not counts.
    assert_eq!(rules_in(count, &full(2100, 0.75), F16), []);
}

#[test]
fn what_is_not_finite_in_f32_is_not_the_fault_of_a_policy() {
    assert_eq!(rules_in(|x| x.log(), &full(4, -1.0), F16), [(Rule::NotFinite, Error)]);
}

fn dense(rng: &mut Rng, of: [usize; 2]) -> Child<Sequential> {
    Child::new(sequential![Dense::new(of[0], of[1], rng), ReLU, Dense::new(of[1], 8, rng)])
}

fn rules(findings: &[Finding]) -> Vec<Rule> {
    findings.iter().map(|finding| finding.rule).collect()
}

#[test]
fn shapes_are_information() {
    let o2 = Policy::new("O2", Bf16).unwrap();
    let of = |sides: [usize; 2]| {
        let mut net = dense(&mut Rng::seed(1), sides);
        let x = Tensor::ones(&[3, sides[0]], DType::F32);
        Lint::new().under(&o2, &mut net, |net| net.call(&x)?.sum_all()).unwrap()
    };
    let odd = of([8, 12]);
    assert_eq!(rules(&odd), [Rule::ShapeOf8, Rule::ShapeOf8]);
    assert_eq!((odd[0].severity, odd[0].cell.as_str(), odd[0].number), (Severity::Information, "0", 12.0));
    assert_eq!(of([8, 16]), []);
}

#[test]
fn a_loss_in_16_bits() {
    let x = Tensor::ones(&[4, 8], DType::F32);
    let of = |level: &str, wide: bool| {
        let mut net = dense(&mut Rng::seed(1), [8, 8]);
        let loss = |net: &Child<Sequential>| {
            let y = net.call(&x)?;
            if wide { y.cast(DType::F32) } else { y }.square()?.mean_all()
        };
        rules(&Lint::new().under(&Policy::new(level, Bf16).unwrap(), &mut net, loss).unwrap())
    };
    assert_eq!(of("auto", false), [Rule::LowOutputIntoLoss]);
    assert_eq!(of("auto", true), []);
    assert_eq!(of("O2", false), []);
}

#[test]
fn two_wrappings_of_one_network() {
    let x = Tensor::ones(&[4, 8], DType::F32);
    let loss = |net: &Child<Sequential>| net.call(&x)?.sum_all();
    let [o2, o1] = ["O2", "O1"].map(|level| Policy::new(level, Bf16).unwrap());
    let mut net = dense(&mut Rng::seed(1), [8, 8]);
    let applied = o2.apply(&mut net).unwrap();
    let under = |policy: &Policy, net: &mut Child<Sequential>| -> Vec<(Rule, Severity)> {
        let found = Lint::new().under(policy, net, loss).unwrap();
        found.iter().map(|finding| (finding.rule, finding.severity)).collect()
    };
    assert_eq!(under(&o2, &mut net), [(Rule::DoubleWrapping, Severity::Information)]);
    assert_eq!(under(&o1, &mut net), [(Rule::DoubleWrapping, Warning)]);
    let region =
        |net: &Child<Sequential>| autocast(Autocast::new("precast-1")?.dtype(Bf16), || net.call(&x))?.sum_all();
    assert!(rules(&Lint::new().run(&net, region).unwrap()).contains(&Rule::DoubleWrapping));
    // The lint leaves the network as it was.
    applied.undo(&mut net).unwrap();
    assert!(!rules(&Lint::new().run(&net, region).unwrap()).contains(&Rule::DoubleWrapping));
}

#[test]
fn updates_of_low_weights_are_lost_below_half_a_unit() {
    let x = Tensor::ones(&[4, 8], DType::F32);
    let loss = |net: &Child<Sequential>| net.call(&x)?.mean_all();
    let of = |masters: bool, lr: Option<f64>| {
        let mut net = dense(&mut Rng::seed(1), [8, 8]);
        let _ = decorate(&net, Decorate::new(Bf16).masters(masters)).unwrap();
        let lint = Lint::new();
        let lint = lr.map_or(lint.clone(), |lr| lint.update(Method::Sgd(SgdOptions::default()), lr));
        rules(&lint.under(&Policy::new("O2", Bf16).unwrap(), &mut net, loss).unwrap()).contains(&Rule::LowWeights)
    };
    assert!(of(false, None) && of(false, Some(1e-6)));
    assert!(!of(false, Some(1.0)) && !of(true, None) && !of(true, Some(1e-6)));
}

#[test]
fn statistics_stored_low_leave_the_range() {
    let of = |var: f64| {
        let mut net = Child::new(sequential![BatchNorm1d::new(4)]);
        let stored = net.named_params().into_iter().find(|(path, _)| path.ends_with("running_var")).unwrap().1;
        stored.set(&Tensor::full(&[4], var, DType::F32)).unwrap();
        net.set_train(true);
        let x = Tensor::rand(&[8, 4], &mut Rng::seed(1)).unwrap();
        let storage = Decorate::new(F16).masters(false).pack("torch-2.15-cuda").unwrap();
        let found = Lint::new().storage(storage).run(&net, |net| net.call(&x)?.square()?.mean_all()).unwrap();
        rules(&found).contains(&Rule::RunningVar)
    };
    assert!(of(1e6) && !of(6e4));
}

#[test]
fn a_lint_changes_nothing() {
    let made = || {
        let rng = &mut Rng::seed(1);
        let dropout = Dropout::new(0.5, rng);
        let mut net =
            Child::new(sequential![Dense::new(8, 8, rng), BatchNorm1d::new(8), dropout, Dense::new(8, 8, rng)]);
        net.set_train(true);
        net
    };
    let x = Tensor::rand(&[8, 8], &mut Rng::seed(2)).unwrap();
    let state = |net: &Child<Sequential>| {
        let params: Vec<Vec<f64>> = net.named_params().iter().map(|(_, param)| param.value().to_f64()).collect();
        (params, net.call(&x).unwrap().to_f64())
    };
    let mut net = made();
    let policy = Policy::new("O2", F16).unwrap();
    let _ = Lint::new().under(&policy, &mut net, |net| net.call(&x)?.square()?.mean_all()).unwrap();
    assert_eq!(state(&net), state(&made()));
}

#[test]
fn a_run_lints_its_first_batch_and_trains_as_without() {
    let x: Vec<f32> = (0..64).map(|i| (i % 7) as f32 * 2e4).collect();
    let y = (0..16).map(|i| i as f32).collect();
    let data = Dataset::regression(x, &[4], y, &[1]).unwrap().split(12, 0).unwrap();
    let trained = |lint: bool, dtype: DType| {
        let rng = &mut Rng::seed(1);
        let dropout = Dropout::new(0.5, rng);
        let mut net =
            Child::new(sequential![Dense::new(4, 8, rng), BatchNorm1d::new(8), dropout, Dense::new(8, 1, rng)]);
        let policy = Policy::new("O2", dtype).unwrap();
        policy.apply(&mut net).unwrap();
        let options = FitOptions::default().epochs(2).batch(4).lr(1e-3).lint(lint).loss_scale(policy.loss_scale);
        let mut fit = Fit::new(&net, &options).unwrap();
        while fit.advance(&mut net, &data).unwrap().is_some() {}
        let weights: Vec<Vec<f64>> = net.named_params().iter().map(|(_, param)| param.value().to_f64()).collect();
        (rules(fit.findings()), weights)
    };
    for (dtype, found) in [(F16, &[Rule::Overflow, Rule::FarData][..]), (Bf16, &[])] {
        let (with, without) = (trained(true, dtype), trained(false, dtype));
        assert_eq!((&with.0[..], with.1), (found, without.1), "{dtype}");
        assert_eq!(without.0, []);
    }
}

/// Four examples with gradients of 2 * 2e5 / 4 = 1e5 per unit of the loss scale add up to 4e5 for the weight, which is
/// no f16 at a scale of 1, and is one at 1/16.
#[test]
fn a_dynamic_scale_that_cannot_fall_to_the_one_that_fits_is_an_error() {
    let found = |min: f32| {
        let mut net = Child::new(Dense::new(1, 1, &mut Rng::seed(1)));
        let dynamic = precast::policy::DynamicScale::default().min(min);
        let policy = Policy::new("O3", F16).unwrap().with_loss_scale(LossScaleSpec::Dynamic(dynamic));
        let (x, y) = (Tensor::ones(&[4, 1], DType::F32), Tensor::full(&[4, 1], 2e5, DType::F32));
        let found = Lint::new()
            .under(&policy, &mut net, |net| net.call(&x)?.cast(DType::F32).mse_loss(&y, precast::Reduction::Mean))
            .unwrap();
        found.into_iter().find(|finding| finding.rule == Rule::GradOverflow).unwrap()
    };
    assert_eq!(found(0.0625).severity, Severity::Information);
    let beyond = found(1.0);
    assert_eq!(beyond.severity, Error);
    // The largest power of two below 65504 / 1.5 / 4e5 = 0.11.
    let write = "loss_scale: { kind: dynamic, init: 0.0625, min: 0.00024414063 }";
    assert!(beyond.write.starts_with(write) && beyond.write.ends_with(", or a smaller loss"), "{}", beyond.write);
}

/// f16 has steps of 2 at 3000, so 2999 and 3001 become 3000, and 2998 and 3002 stay.
#[test]
fn inputs_whose_differences_are_lost_are_a_warning() {
    let found = |apart: f32| {
        let x = [3000.0 - apart, 3000.0 + apart].repeat(4);
        let x = Tensor::from_vec(x, &[8, 1]).unwrap();
        let mut net = Child::new(Dense::new(1, 1, &mut Rng::seed(1)));
        let policy = Policy::new("O2", F16).unwrap();
        let found = Lint::new().under(&policy, &mut net, |net| net.call(&x)?.mean_all()).unwrap();
        found.into_iter().find(|finding| finding.rule == Rule::InputDigits)
    };
    assert_eq!(found(2.0), None);
    let lost = found(1.0).expect("all differences are lost");
    assert_eq!((lost.severity, lost.number), (Warning, 1.0));
    assert!(
        lost.what.contains("loses 100 % of the differences") && lost.write.starts_with("inputs without their mean"),
        "{lost}"
    );
}

#[test]
fn gradients_in_f16_without_a_loss_scale_are_a_warning() {
    let found = |scale: LossScaleSpec, dtype| {
        let mut net = Child::new(Dense::new(1, 1, &mut Rng::seed(1)));
        let policy = Policy::new("O2", dtype).unwrap().with_loss_scale(scale);
        let found =
            Lint::new().under(&policy, &mut net, |net| net.call(&Tensor::ones(&[4, 1], DType::F32))?.mean_all());
        found.unwrap().iter().filter(|finding| finding.rule == Rule::GradUnderflow).count()
    };
    assert_eq!(found(LossScaleSpec::None, F16), 1);
    assert_eq!([found(LossScaleSpec::None, Bf16), found(LossScaleSpec::Fixed { scale: 1.0 }, F16)], [0, 0]);
}
