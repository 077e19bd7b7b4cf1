//! A loss so small that its gradients underflow in f16: the purpose of a loss scale, and the effect of its absence.

use precast::{
    observe,
    observe::{Edge, EdgeOp, FaultKind, Phase, Subject},
    prelude::*,
    scale::Cause,
    sequential,
};
use precast_diagnose::Monitor;
use precast_train as train;
use precast_train::data::digits;

fn net() -> Child {
    let rng = &mut Rng::seed(1);
    sequential![Flatten::default(), Dense::new(64, 32, rng), ReLU, Dense::new(32, 10, rng)].into()
}

/// Trains on the digits with the loss times 1e-6 and the learning rate times 1e6. Returns the accuracy on others, and
/// the share of gradients that were 0 in the first step.
fn learn(seed: u64, level: Level, dtype: DType, mut scale: LossScale) -> Result<(f64, f64)> {
    let data = digits()?.split(1200, seed)?;
    let mut net = net();
    let _applied = Policy::new(level, dtype)?.apply(&mut net)?;
    let mut optimizer = Sgd::new(net.params(), 0.05e6).momentum(0.9);
    let small = Tensor::scalar(1e-6, DType::F32);
    let mut zeros = None;
    for epoch in 0..12 {
        for batch in data.train.shuffled_batches(32, seed, epoch).unwrap() {
            let loss = net.call(&batch.x)?.cross_entropy(&batch.y)?.mul(&small)?;
            if zeros.is_none() {
                let grads = scale.scale(&loss)?.backward()?.unscale(optimizer.params())?;
                let all: Vec<f64> = net.params().iter().flat_map(|(_, p)| grads.get(p).unwrap().to_f64()).collect();
                zeros = Some(all.iter().filter(|g| **g == 0.0).count() as f64 / all.len() as f64);
            }
            let _outcome = scale.step(&mut optimizer, &loss)?;
        }
    }
    Ok((train::accuracy(&net, &data.test, 64)?, zeros.unwrap()))
}

/// `cargo test --test train -- --nocapture`
#[test]
fn with_a_scaler_f16_learns_as_f32_does_and_without_it_does_not() {
    let mean = |level, dtype, scale: fn() -> LossScale| {
        let runs: Vec<(f64, f64)> = (0..3).map(|seed| learn(seed, level, dtype, scale()).unwrap()).collect();
        let mean = |of: fn(&(f64, f64)) -> f64| runs.iter().map(of).sum::<f64>() / runs.len() as f64;
        (mean(|run| run.0), mean(|run| run.1))
    };
    let (full, _) = mean(Level::O0, DType::F16, LossScale::none);
    let (scaled, _) = mean(Level::O2, DType::F16, LossScale::dynamic);
    let (bare, zeros) = mean(Level::O2, DType::F16, LossScale::none);
    let (bf16, _) = mean(Level::O2, DType::Bf16, LossScale::none);
    println!("accuracy: f32 {full:.4}, f16 with a scaler {scaled:.4}, bf16 {bf16:.4}, f16 without {bare:.4}");
    println!("zero gradients of f16 without a scaler: {:.1} %", 100.0 * zeros);
    assert!(full > 0.93, "{full}");
    assert!((scaled - full).abs() <= 0.003, "{scaled} beside {full}");
    assert!((bf16 - full).abs() <= 0.01, "{bf16} beside {full}");
    assert!(bare < 0.3 && zeros > 0.9, "{bare}, {zeros}");
}

/// Makes a network, and one loss of it.
fn one(dtype: DType, scaler: &str) -> (Child, Tensor) {
    let mut net = net();
    let text = format!("version: 1\nlevel: O2\ndtype: {dtype}\nscaler: {scaler}\n");
    let _applied = Policy::parse(&text, "scaler.yaml").unwrap().apply(&mut net).unwrap();
    let loss = net.call(&Tensor::ones(&[4, 8, 8], DType::F32)).unwrap().mean_all().unwrap();
    (net, loss)
}

#[test]
fn a_policy_can_require_a_scaler() {
    let (mut net, loss) = one(DType::F16, "required");
    let mut optimizer = Sgd::new(net.params(), 0.1);
    let before: Vec<Vec<f64>> = net.params().iter().map(|(_, param)| param.value().to_f64()).collect();
    let by_hand = optimizer.update(&loss.backward().unwrap()).unwrap_err().to_string();
    let none = LossScale::none().step(&mut optimizer, &loss).unwrap_err().to_string();
    for message in [by_hand, none] {
        assert!(message.contains("gradients of `1` come through ops in float16"), "{message}");
        assert!(message.contains("scaler: required"), "{message}");
    }
    let after: Vec<Vec<f64>> = net.params().iter().map(|(_, param)| param.value().to_f64()).collect();
    assert_eq!(before, after);
    // With any scale it is trained.
    assert_eq!(LossScale::fixed(1.0).unwrap().step(&mut optimizer, &loss).unwrap(), Outcome::Stepped);
    // Another policy withdraws the requirement, and so does undo.
    let _applied = Policy::new(Level::O2, DType::F16).unwrap().apply(&mut net).unwrap();
    optimizer.update(&loss.backward().unwrap()).unwrap();
    let (mut net, loss) = one(DType::F16, "required");
    precast::plan::undo(&mut net);
    Sgd::new(net.params(), 0.1).update(&loss.backward().unwrap()).unwrap();
    // bf16 needs none.
    let (net, loss) = one(DType::Bf16, "required");
    Sgd::new(net.params(), 0.1).update(&loss.backward().unwrap()).unwrap();
}

/// Body of the child process of the next test; by itself it proves nothing.
#[test]
fn trains_three_steps_without_a_scaler() {
    for dtype in [DType::F16, DType::Bf16] {
        let (net, loss) = one(dtype, "advised");
        let mut optimizer = Sgd::new(net.params(), 0.1);
        for _ in 0..3 {
            optimizer.update(&loss.backward().unwrap()).unwrap();
        }
    }
    // An f16 region in code, and weights stored in f16.
    let net = net();
    let x = Tensor::ones(&[4, 8, 8], DType::F32);
    let region = Autocast::new("torch-2.15-cuda").unwrap().dtype(DType::F16);
    let loss = autocast(region, || net.call(&x)?.mean_all()).unwrap();
    Sgd::new(net.params(), 0.1).update(&loss.backward().unwrap()).unwrap();
    decorate(&net, Decorate::new(DType::F16)).unwrap();
    let loss = net.call(&x.cast(DType::F16)).unwrap().mean_all().unwrap();
    Sgd::new(net.params(), 0.1).update(&loss.backward().unwrap()).unwrap();
}

/// Without a subscriber, for which there are events, tested in `tests/events`.
#[test]
fn missing_scalers_are_reported_once_for_each_optimizer() {
    let output = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "underflow::trains_three_steps_without_a_scaler", "--nocapture"])
        .output()
        .unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    let told: Vec<&str> = said.lines().filter(|line| line.starts_with("precast: ")).collect();
    assert_eq!(told.len(), 3, "{said}");
    assert!(told.iter().all(|line| line.contains("gradients of `1` come through ops in float16")), "{said}");
}

/// The parameter in which a skipped step was first noticed hardly reveals its origin.
#[test]
fn the_op_in_which_an_overflow_began_is_found() {
    // In the backward pass, where the scaled gradient of the mean overflows.
    let (net, _) = one(DType::F16, "advised");
    let mut optimizer = Sgd::new(net.params(), 0.1);
    let x = Tensor::ones(&[4, 8, 8], DType::F32);
    let mut monitor = Monitor::default();
    let outcome = monitor.watch(&net, |net| {
        LossScale::fixed(1e8).unwrap().step(&mut optimizer, net.call(&x).unwrap().sum_all().unwrap())
    });
    let cause = Cause::Overflow { scale: 1e8, first: "3.bias".into(), origin: None };
    assert_eq!(outcome.unwrap(), Outcome::Skipped { cause });
    let found = monitor.fault().unwrap();
    let Edge { phase, op, subject, dtype, good_inputs, .. } = found.edge;
    assert_eq!((*phase, *op, *good_inputs), (Phase::Backward, EdgeOp::Op(Op::Cast), true), "{found}");
    assert_eq!((subject, *dtype), (&Subject::Gradient(0), DType::F16));
    // In the forward pass of a cell: 300 * 300 overflows f16.
    let make = || -> Child {
        let mut dense = Dense::new(1, 1, &mut Rng::seed(1));
        dense.bias = None;
        dense.weight.set(&Tensor::full(&[1, 1], 300.0, DType::F32)).unwrap();
        Child::of(sequential![Tanh, dense, ReLU])
    };
    let mut net = make();
    let _applied = Policy::new(Level::O2, DType::F16).unwrap().apply(&mut net).unwrap();
    net.walk_mut(&mut |path, slot| slot.set_recompute(path == "1"));
    let called = monitor.watch(&net, |net| {
        let y = net.call(&Tensor::full(&[1, 1], 300.0, DType::F32)).unwrap();
        net.call(&y.mul(&Tensor::scalar(100.0, DType::F32)).unwrap())
    });
    assert!(called.is_ok() && monitor.fault().is_none(), "tanh is at most 1");
    let mut net: Child = sequential![Dense::new(1, 1, &mut Rng::seed(1)), make()].into();
    let set = |net: &Child, value: f64| {
        net.params().iter().for_each(|(_, param)| {
            param.set(&Tensor::full(&param.shape(), value, DType::F32)).unwrap();
        });
    };
    set(&net, 300.0);
    let _applied = Policy::new(Level::O2, DType::F16).unwrap().apply(&mut net).unwrap();
    let found = |net: &Child, x: f64| {
        let mut monitor = Monitor::default();
        monitor.watch(net, |net| net.call(&Tensor::full(&[1, 1], x, DType::F32))).unwrap();
        monitor.fault().unwrap().origin()
    };
    let here = found(&net, 300.0);
    assert_eq!((here.kind, here.edge.phase), (FaultKind::Inf, Phase::Forward));
    assert_eq!((here.edge.cell.as_str(), here.edge.op, here.edge.good_inputs), ("0", EdgeOp::Op(Op::Linear), true));
    let message = "Linear in `0`, forward pass: 1 of 1 numbers are infinite, by rounding: they are finite in f32";
    assert_eq!(here.to_string(), message);
    assert_eq!(here.edge.subject, Subject::Output);
    // A parameter or an input that does not fit into f16 is named.
    set(&net, 1e5);
    let param = found(&net, 1.0);
    assert_eq!((&param.edge.subject, param.edge.dtype), (&Subject::Param("0.weight".into()), DType::F16));
    assert!(param.to_string().starts_with("Cast of `0.weight`, forward pass: 1 of 1 numbers"), "{param}");
    set(&net, 1.0);
    let input = found(&net, 1e5);
    assert_eq!((&input.edge.subject, input.edge.dtype), (&Subject::CellInput, DType::F16));
    assert!(input.to_string().starts_with("Cast of the input of the root cell"), "{input}");
    // Inputs are distinguished; outside of a watch nothing is examined.
    let came = found(&net, f64::NAN);
    assert!(came.kind == FaultKind::Nan && !came.edge.good_inputs && came.edge.cell.is_empty(), "{came}");
    let (_, events) = observe::watch(|| net.call(&Tensor::full(&[1, 1], 300.0, DType::F32)));
    assert!(!events.is_empty());
}

#[test]
fn fit_finds_where_a_skipped_step_began() {
    let data = digits().unwrap().split(200, 0).unwrap();
    let mut net = net();
    let _applied = Policy::new(Level::O2, DType::F16).unwrap().apply(&mut net).unwrap();
    let loss_scale = precast::policy::LossScaleSpec::Dynamic(precast::policy::DynamicScale::mindspore_manager());
    let options = train::FitOptions::default().epochs(2).loss_scale(loss_scale);
    let history = train::fit(&mut net, &data, &options, &mut |_| {}).unwrap();
    assert!(history.skipped() > 0);
    assert!(history.steps.iter().all(|step| step.is_skipped() == step.fault().is_some()));
    let first = history.steps.iter().find_map(train::Step::fault).unwrap();
    assert_eq!((first.edge.phase, first.edge.good_inputs), (Phase::Backward, true), "{first}");
    // Without a monitor, only the parameter is known.
    let mut net = self::net();
    let _applied = Policy::new(Level::O2, DType::F16).unwrap().apply(&mut net).unwrap();
    let history = train::fit(&mut net, &data, &options.monitor(false), &mut |_| {}).unwrap();
    assert!(history.skipped() > 0 && history.steps.iter().all(|step| step.fault().is_none()));
}
