//! Paddle's checks of tensors: lists of ops, the range of steps, and the response.

use precast::{
    Op,
    observe::{EdgeOp, Phase},
    prelude::*,
};
use precast_diagnose::{
    Record,
    paddle::{DebugMode, TensorCheckerConfig, compare_accuracy, enable_tensor_checker},
};

/// A network whose first sums exceed f16 where the inputs are large.
fn net() -> Child {
    let rng = &mut Rng::seed(1);
    let mut net: Child = sequential![Dense::new(4, 64, rng), Tanh, Dense::new(64, 1, rng)].into();
    auto_mixed_precision(&mut net, Level::O3, DType::F16).unwrap();
    net
}

fn step(net: &Child, large: bool) -> Result<Tensor> {
    net.call(&Tensor::full(&[2, 4], if large { 65000.0 } else { 1.0 }, DType::F32))?.sum_all()
}

#[test]
fn the_checker_stops_or_goes_on() {
    let net = net();
    let mut stops = enable_tensor_checker(TensorCheckerConfig::new(true));
    assert!(stops.step(&net, |net| step(net, false)).is_ok() && stops.results().is_empty());
    let error = stops.step(&net, |net| step(net, true)).unwrap_err().to_string();
    assert!(error.starts_with("Linear in `0`, forward pass: 0 NaN and ") && error.ends_with(" in step 1"), "{error}");

    let mut goes_on = enable_tensor_checker(TensorCheckerConfig::new(true).debug_mode(DebugMode::CheckNanInf));
    assert!(goes_on.step(&net, |net| step(net, true)).is_ok());
    assert!(goes_on.results().iter().any(|edge| edge.op == EdgeOp::Op(Op::Linear) && edge.cell == "0"));
    // The step after it is clean.
    assert!(goes_on.step(&net, |net| step(net, false)).is_ok() && goes_on.results().is_empty());

    let mut all = enable_tensor_checker(TensorCheckerConfig::new(true).debug_mode(DebugMode::CheckAll));
    assert!(all.step(&net, |net| step(net, false)).is_ok());
    assert!(all.results().iter().any(|edge| edge.op == EdgeOp::Op(Op::Tanh)), "finite ones, too");

    let mut off = enable_tensor_checker(TensorCheckerConfig::new(false));
    assert!(off.step(&net, |net| step(net, true)).is_ok() && off.results().is_empty());
}

#[test]
fn ops_and_steps_are_selected() {
    let net = net();
    let finds = |config: TensorCheckerConfig, steps: usize| {
        let mut checker = enable_tensor_checker(config);
        (0..steps).map(|_| checker.step(&net, |net| step(net, true)).is_err()).collect::<Vec<bool>>()
    };
    let config = || TensorCheckerConfig::new(true);
    assert_eq!(finds(config().debug_step(1..3), 4), [false, true, true, false]);
    assert_eq!(finds(config().checked_op_list(["linear"]).unwrap(), 1), [true]);
    assert_eq!(finds(config().checked_op_list(["tanh"]).unwrap(), 1), [false]);
    // The skipped list wins.
    let both = config().checked_op_list(["linear", "tanh"]).unwrap().skipped_op_list(["linear"]).unwrap();
    assert_eq!(finds(both, 1), [false]);
    assert!(config().checked_op_list(["sofmax"]).is_err());
}

/// The gradients of the scaled loss are those of the other one, times the scale.
#[test]
fn two_runs_are_compared_op_by_op() {
    let rng = &mut Rng::seed(3);
    let net: Child = sequential![Dense::new(4, 8, rng), Tanh, Dense::new(8, 1, rng)].into();
    let record = |factor: f64| {
        let x = Tensor::full(&[2, 4], 0.5, DType::F32);
        let (done, record) =
            Record::of(&net, |net| net.call(&x)?.sum_all()?.mul(&Tensor::scalar(factor, DType::F32))?.backward());
        done.unwrap();
        record
    };
    let (one, scaled) = (record(1.0), record(64.0));
    let gradients = |scale| {
        let compared = compare_accuracy(&one, &scaled, scale);
        compared
            .into_iter()
            .filter(|met| met.edge.phase == Phase::Backward)
            .map(|met| met.difference())
            .fold(0.0, f64::max)
    };
    assert_eq!(gradients(64.0), 0.0);
    assert!(gradients(1.0) > 0.9);
    assert!(compare_accuracy(&one, &one, 1.0).iter().all(|met| met.difference() == 0.0));
}
