//! Recomputed cells: outputs, gradients, dropout and running statistics are the same as without, bit for bit, with less
//! memory.

use std::ops::Range;

use precast::{
    Grads,
    policy::{Rule, RunAs},
    prelude::*,
    sequential,
};

use crate::nets::{self, Task};

use crate::common::tensors::{assert_same, random};

#[track_caller]
fn assert_same_option(a: Option<Tensor>, b: Option<Tensor>, what: &str) {
    match (a, b) {
        (None, None) => {}
        (Some(a), Some(b)) => assert_same(&a, &b, what),
        (a, b) => panic!("{what}: {a:?} against {b:?}"),
    }
}

/// Recomputes the cells at these depths. Returns their number.
fn recompute(net: &mut Child, depths: Range<usize>) -> usize {
    let mut count = 0;
    net.walk_mut(&mut |path, slot| {
        let depth = if path.is_empty() { 0 } else { path.split('.').count() };
        slot.set_recompute(depths.contains(&depth));
        count += usize::from(slot.is_recomputed());
    });
    count
}

/// Runs two steps of gradient descent; returns after each the loss, the gradients, and all parameters and buffers.
fn two_steps(net: &Child, x: &Tensor, y: &Tensor) -> Vec<(Tensor, Grads, Vec<Tensor>)> {
    let mut optimizer = Sgd::new(net.params(), 0.01);
    let step = |_| {
        let loss = net.call(x)?.cast(DType::F32).cross_entropy(y)?;
        let grads = loss.backward()?;
        optimizer.update(&grads)?;
        Ok((loss, grads, net.named_params().iter().map(|(_, param)| param.value()).collect()))
    };
    (0..2).map(step).collect::<Result<Vec<_>>>().unwrap()
}

/// Trains two equal networks, one of them recomputed, and compares all results.
fn trains_alike(plain: &Child, lean: &Child, x: &Tensor, y: &Tensor, what: &str) {
    let (wanted, found) = (two_steps(plain, x, y), two_steps(lean, x, y));
    for (i, ((loss, grads, values), (lean_loss, lean_grads, lean_values))) in wanted.into_iter().zip(found).enumerate()
    {
        let what = format!("{what}, step {i}");
        assert_same(&loss, &lean_loss, &what);
        for ((path, param), (_, lean_param)) in plain.named_params().iter().zip(lean.named_params()) {
            assert_same_option(grads.get(param), lean_grads.get(&lean_param), &format!("{what}, gradient of {path}"));
        }
        for (((path, _), value), lean_value) in plain.named_params().iter().zip(values).zip(lean_values) {
            assert_same(&value, &lean_value, &format!("{what}, {path}"));
        }
    }
}

fn task(name: &str, policy: &Policy) -> Task {
    let Task { mut net, x, y, adamw } = nets::task(name, 1).unwrap();
    let x = x.slice(0, 0..2).unwrap();
    let y = y.slice(0, 0..y.len() / if name == "gpt" { 4 } else { 1 }).unwrap();
    let y = if name == "gpt" { y } else { y.slice(0, 0..2).unwrap() };
    net.set_train(true);
    let _applied = policy.apply(&mut net).unwrap();
    Task { net, x, y, adamw }
}

#[test]
fn every_network_trains_alike_at_every_level() {
    let policies = [
        Policy::new(Level::O0, DType::F16).unwrap(),
        Policy::new(Level::O1, DType::F16).unwrap(),
        Policy::new(Level::O2, DType::Bf16).unwrap(),
        Policy::new(Level::Auto, DType::Bf16).unwrap(),
    ];
    for name in nets::NAMES {
        for policy in &policies {
            for depths in [0..1, 1..2, 2..9] {
                let (plain, mut lean) = (task(name, policy), task(name, policy));
                if recompute(&mut lean.net, depths.clone()) > 0 {
                    let what = format!("{name} at {}, cells at depth {depths:?}", policy.level);
                    trains_alike(&plain.net, &lean.net, &plain.x, &plain.y, &what);
                }
            }
        }
    }
}

/// Makes a dropout, a batch norm that trains, a softmax and a custom cast: the cells that torch and Transformer Engine
/// get wrong.
fn block(seed: u64) -> Sequential {
    let rng = &mut Rng::seed(seed);
    sequential![
        Dense::new(6, 6, rng),
        BatchNorm1d::new(6),
        Dropout::new(0.4, rng),
        ReLU,
        sequential![Dense::new(6, 5, rng), Dropout::new(0.4, rng), Softmax::default()],
    ]
}

#[test]
fn dropout_is_the_same_and_running_statistics_move_once() {
    let (mut plain, mut lean) = (Child::of(block(3)), Child::of(block(3)));
    plain.set_train(true);
    lean.set_train(true);
    // Nested: the inner ones are part of the outer one.
    assert_eq!(recompute(&mut lean, 0..9), 9);
    let y = Tensor::from_vec((0..8).map(|i| i % 5).collect::<Vec<i64>>(), &[8]).unwrap();
    trains_alike(&plain, &lean, &random(&[8, 6], 1), &y, "block");
    // In evaluation and without gradients nothing is recorded.
    plain.set_train(false);
    lean.set_train(false);
    let x = random(&[3, 6], 2);
    assert_same(&lean.call(&x).unwrap(), &plain.call(&x).unwrap(), "evaluation");
    assert!(!no_grad(|| lean.call(&x)).unwrap().is_tracked());
}

/// The backward pass runs in a region of another dtype, long after the region of the forward pass was left.
#[test]
fn the_precision_is_that_of_the_forward_pass() {
    let (plain, lean) = (Child::of(block(5)), Child::of(block(5)).recompute());
    let x = random(&[4, 6], 7);
    let in_region =
        |net: &Child| autocast(Autocast::new("torch-2.15-cpu")?.dtype(DType::Bf16), || net.call(&x)?.sum_all());
    let (a, b) = (in_region(&plain).unwrap(), in_region(&lean).unwrap());
    assert_same(&a, &b, "loss");
    let grads = a.backward().unwrap();
    let lean_grads = autocast(Autocast::new("torch-2.15-cpu").unwrap().dtype(DType::F16), || b.backward()).unwrap();
    for ((path, param), (_, lean_param)) in plain.named_params().iter().zip(lean.named_params()) {
        assert_same_option(grads.get(param), lean_grads.get(&lean_param), path);
    }
    // A second backward pass through the same loss gives the same again.
    let again = b.backward().unwrap();
    for (path, param) in lean.named_params() {
        assert_same_option(again.get(&param), lean_grads.get(&param), &path);
    }
}

#[test]
fn cells_with_several_inputs_and_outputs_are_recomputed() {
    for level in [Level::O0, Level::O2] {
        let make = || {
            let mut net: Child = LSTM::new(4, 3, &mut Rng::seed(2)).into();
            let _applied = Policy::new(level, DType::Bf16).unwrap().apply(&mut net).unwrap();
            net
        };
        let (plain, lean) = (make(), make().recompute());
        // Both outputs and the input get gradients; one output is left out in the second round.
        for used in [0..3, 1..2] {
            let back = |net: &Child| {
                let x = random(&[2, 5, 4], 8).requires_grad();
                let outputs = net.call_many(std::slice::from_ref(&x)).unwrap();
                assert_eq!(outputs.len(), 3);
                let sums: Vec<Tensor> = (outputs[used.clone()].iter().zip(1..))
                    .map(|(y, i)| y.mul(&random(y.shape(), i).cast(y.dtype())).unwrap().sum_all().unwrap())
                    .collect();
                let loss = Tensor::stack(&sums.iter().collect::<Vec<_>>(), 0).unwrap().sum_all().unwrap();
                let grads = loss.backward().unwrap();
                (outputs, grads.of(&x), net.params().iter().map(|(_, param)| grads.get(param)).collect::<Vec<_>>())
            };
            let ((outputs, of_x, grads), (lean_outputs, lean_of_x, lean_grads)) = (back(&plain), back(&lean));
            outputs.iter().zip(&lean_outputs).for_each(|(a, b)| assert_same(a, b, "output"));
            assert_same_option(of_x, lean_of_x, "gradient of the input");
            grads.into_iter().zip(lean_grads).for_each(|(a, b)| assert_same_option(a, b, "gradient"));
        }
    }
}

/// A cell that stops a gradient, returns its input, reads a value to choose a branch, and holds a tensor.
#[derive(Cell, Debug)]
struct Odd {
    inner: Child<Dense>,
    seen: std::sync::atomic::AtomicUsize,
}

impl Forward for Odd {
    fn forward_many(&self, inputs: &[Tensor]) -> Result<Vec<Tensor>> {
        let x = &inputs[0];
        self.seen.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let y = self.inner.call(x)?;
        let y = if y.sum_all()?.item()? > 0.0 { y.tanh()? } else { y.sigmoid()? };
        let held = Tensor::full(y.shape(), 0.5, y.dtype());
        Ok(vec![y.mul(&y.detach())?.add(&held)?, x.clone(), y.detach(), inputs[1].add(x)?])
    }
}

#[test]
fn odd_cells_are_recomputed() {
    let make = || Odd { inner: Child::new(Dense::new(3, 3, &mut Rng::seed(4))), seen: Default::default() };
    let (plain, lean) = (Child::new(make()), Child::new(make()).recompute());
    for sign in [1.0, -1.0] {
        let back = |net: &Child<Odd>| {
            let x = random(&[2, 3], 5).mul(&Tensor::scalar(sign, DType::F32)).unwrap().requires_grad();
            // The same tensor twice, first off the tape.
            let outputs = net.call_many(&[x.clone(), x.detach()]).unwrap();
            let loss = Tensor::stack(&outputs.iter().collect::<Vec<_>>(), 0).unwrap().sum_all().unwrap();
            let grads = loss.backward().unwrap();
            (outputs, grads.of(&x), net.params().iter().map(|(_, param)| grads.get(param)).collect::<Vec<_>>())
        };
        let ((outputs, of_x, grads), (lean_outputs, lean_of_x, lean_grads)) = (back(&plain), back(&lean));
        outputs.iter().zip(&lean_outputs).for_each(|(a, b)| {
            assert_same(a, b, "output");
            assert_eq!(a.is_tracked(), b.is_tracked());
        });
        // The input is used three times, twice inside the cell: the order of the sum differs.
        for (a, b) in of_x.unwrap().to_f64().into_iter().zip(lean_of_x.unwrap().to_f64()) {
            assert!((a - b).abs() <= 2.0 * DType::F32.epsilon() * a.abs().max(1.0), "{a} against {b}");
        }
        grads.into_iter().zip(lean_grads).for_each(|(a, b)| assert_same_option(a, b, "gradient"));
    }
    // The ops run twice, the code once.
    assert_eq!(lean.cell().seen.load(std::sync::atomic::Ordering::Relaxed), 2);
}

/// A 16-bit cell that returns f32.
#[derive(Cell, Debug)]
struct Widening {
    inner: Child<Dense>,
}

impl Forward for Widening {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        Ok(self.inner.call(x)?.cast(DType::Bf16).cast(DType::F32))
    }
}

#[test]
fn a_widening_that_comes_out_is_cast_back_for_nothing() {
    let make = || Widening { inner: Child::new(Dense::new(5, 4, &mut Rng::seed(4))) };
    let (plain, lean) = (Child::new(make()), Child::new(make()).recompute());
    let back = |net: &Child<Widening>| {
        let x = random(&[3, 5], 5).requires_grad();
        let y = net.call(&x).unwrap();
        // Gradients accumulate at the 16-bit tensor, where each sum is rounded.
        let uses = (0..6).map(|seed| {
            let factor = random(&[3, 4], seed).cast(DType::Bf16);
            y.cast(DType::Bf16).mul(&factor).unwrap().cast(DType::F32).sum_all().unwrap()
        });
        let loss = Tensor::stack(&uses.collect::<Vec<_>>().iter().collect::<Vec<_>>(), 0).unwrap().sum_all().unwrap();
        let grads = loss.backward().unwrap();
        (y, grads.of(&x), net.params().iter().map(|(_, param)| grads.get(param)).collect::<Vec<_>>())
    };
    let ((y, of_x, grads), (lean_y, lean_of_x, lean_grads)) = (back(&plain), back(&lean));
    assert_same(&y, &lean_y, "output");
    assert_same_option(of_x, lean_of_x, "gradient of the input");
    grads.into_iter().zip(lean_grads).for_each(|(a, b)| assert_same_option(a, b, "gradient"));
}

#[test]
fn errors_inside_name_the_cell() {
    let net = Child::of(sequential![Dense::new(3, 3, &mut Rng::seed(4)), Dense::new(4, 3, &mut Rng::seed(4))]);
    let error = |net: &Child| net.call(&random(&[2, 3], 1)).unwrap_err().to_string();
    let plain = error(&net);
    assert_eq!(error(&net.recompute()), plain);
    assert!(plain.contains("`1`"), "{plain}");
}

/// Gradients of weights in f32, and the warning about f16 without a loss scale, are those of the first run as well.
#[test]
fn what_else_a_plan_says_holds_in_the_second_run() {
    for level in ["O1", "O2"] {
        let make = |checkpoint: bool| {
            let mut net = Child::of(block(2));
            let rules = "{path: '4.0', run: {forward: low, weight_grad: float32}}, {path: '0', run: {forward: low, \
                         weight_grad: float32}}";
            let again = if checkpoint { ", {path: '4', checkpoint: true}" } else { "" };
            let text = format!("{{version: 1, level: {level}, dtype: bfloat16, rules: [{rules}{again}]}}");
            let _applied = Policy::parse(&text, "both.yaml").unwrap().apply(&mut net).unwrap();
            net
        };
        let (plain, mut lean) = (make(false), make(true));
        lean.walk_mut(&mut |path, slot| slot.set_recompute(path == "0"));
        let y = Tensor::from_vec((0..8).map(|i| i % 5).collect::<Vec<i64>>(), &[8]).unwrap();
        trains_alike(&plain, &lean, &random(&[8, 6], 1), &y, level);
        let grads =
            lean.call(&random(&[8, 6], 1)).unwrap().cast(DType::F32).cross_entropy(&y).unwrap().backward().unwrap();
        let weight = &lean.named_params()[0].1;
        let grad = grads.get(weight).unwrap();
        assert_ne!(grad.cast(DType::Bf16).to_f64(), grad.to_f64(), "{level}");
    }
    let mut net = Child::of(block(2));
    let text = "{version: 1, level: O2, dtype: float16, scaler: required, rules: [{path: '**', checkpoint: true}]}";
    let _applied = Policy::parse(text, "scaler.yaml").unwrap().apply(&mut net).unwrap();
    let loss = net.call(&random(&[8, 6], 1)).unwrap().mean_all().unwrap();
    let error = Sgd::new(net.params(), 0.1).update(&loss.backward().unwrap()).unwrap_err().to_string();
    assert!(error.contains("gradients of `0` come through ops in float16"), "{error}");
}

#[test]
fn a_long_chain_of_recomputed_cells_is_dropped() {
    let cell = Child::of(Tanh).recompute();
    let mut x = Tensor::ones(&[1], DType::F32).requires_grad();
    for _ in 0..50_000 {
        x = cell.call(&x).unwrap();
    }
    drop(x);
}

#[test]
fn a_rule_of_a_policy_recomputes() {
    let mut net = Child::of(block(1));
    let text = "version: 1\nlevel: O2\ndtype: bfloat16\nrules:\n  - path: \"4\"\n    checkpoint: true\n";
    let policy = Policy::parse(text, "recompute.yaml").unwrap();
    let applied = policy.apply(&mut net).unwrap();
    let recomputed = |net: &Child| {
        let mut paths = vec![];
        net.walk(&mut |entry| paths.extend(entry.slot.planned.recompute.then(|| entry.path.to_string())));
        paths
    };
    assert_eq!(recomputed(&net), ["4"]);
    // It decides nothing about precision, and the plan shows it.
    assert!(applied.plan.to_string().contains("recomputed"), "{}", applied.plan);
    let told = applied.plan.explain("4").unwrap().to_string();
    assert!(told.contains("run again in the backward pass: rule path 4, recompute.yaml:5:5"), "{told}");
    let without = Policy::new(Level::O2, DType::Bf16).unwrap().plan(&net).unwrap();
    let runs = |plan: &Plan| plan.decisions.iter().map(|decision| decision.run).collect::<Vec<_>>();
    assert_eq!(runs(&applied.plan), runs(&without));
    let written = Policy::parse(&policy.to_yaml().unwrap(), "written.yaml").unwrap();
    assert_eq!((written.rules[0].run, written.rules[0].checkpoint), (None, Some(true)));
    applied.undo(&mut net).unwrap();
    assert!(recomputed(&net).is_empty());
}

#[test]
fn an_exact_path_decides_about_recomputing_wherever_it_stands() {
    let net = Child::of(block(1));
    let again = |rules: &[Rule]| {
        let policy = Policy::new(Level::O2, DType::Bf16).unwrap();
        let policy = rules.iter().cloned().try_fold(policy, Policy::rule).unwrap();
        let plan = policy.plan(&net).unwrap();
        let paths = plan.decisions.into_iter().filter(|decision| decision.recompute.is_some()).map(|d| d.path);
        paths.collect::<Vec<String>>()
    };
    let (many, kept) = (Rule::recompute("*").unwrap(), Rule::recompute("4").unwrap().checkpoint(false));
    let all = again(std::slice::from_ref(&many));
    assert!(all.contains(&"4".into()) && all.len() > 1, "{all:?}");
    let others: Vec<String> = all.iter().filter(|path| *path != "4").cloned().collect();
    assert_eq!(again(&[many.clone(), kept.clone()]), others);
    assert_eq!(again(&[kept, many.clone()]), others);
    // A rule about precision alone does not decide about recomputation.
    assert_eq!(again(&[Rule::path("4", RunAs::Full).unwrap(), many]), all);
}

/// Bytes kept by the tape of the bench networks: `cargo test --test plan -- --nocapture bytes`.
#[test]
fn bytes_kept_beside_o0() {
    for name in ["resnet18", "gpt"] {
        let bytes = |level: Level, recomputed: bool| {
            let Task { mut net, x, y, .. } = nets::task(name, 1).unwrap();
            net.set_train(true);
            let _applied = Policy::new(level, DType::Bf16).unwrap().apply(&mut net).unwrap();
            if recomputed {
                recompute(&mut net, if name == "gpt" { 2..3 } else { 1..2 });
            }
            net.call(&x).unwrap().cast(DType::F32).cross_entropy(&y).unwrap().tape_bytes()
        };
        let o0 = bytes(Level::O0, false);
        let share = |level, recomputed| bytes(level, recomputed) as f64 / o0 as f64;
        let (low, lean, both) = (share(Level::O2, false), share(Level::O0, true), share(Level::O2, true));
        println!("{name}: {o0} bytes at O0; O2 {low:.3}, O0 recomputed {lean:.3}, O2 recomputed {both:.3}");
        assert!(low < 1.0 && lean < 1.0 && both < low && both < lean, "{name}: {low} {lean} {both}");
    }
}
