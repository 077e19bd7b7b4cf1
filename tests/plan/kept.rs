//! Activations kept in 8 bits: `kept` in a rule.

use precast::{policy::Kept, prelude::*, sequential};

use crate::common::tensors::{assert_same, random};

/// Keeps the activations of all cells in a form, in a network that runs in this dtype.
fn policy(dtype: &str, kept: &str) -> Policy {
    let (low, run) = if dtype == "float32" { ("bfloat16", "float32") } else { (dtype, "low") };
    let rules = format!("  - {{ path: \"**\", run: {run} }}\n  - {{ path: \"**\", kept: {kept} }}\n");
    Policy::parse(&format!("version: 1\nlevel: O2\ndtype: {low}\nrules:\n{rules}"), "kept.yaml").unwrap()
}

fn applied(mut net: Child, dtype: &str, kept: &str) -> Child {
    let _applied = policy(dtype, kept).apply(&mut net).unwrap();
    net
}

/// Returns the output, the gradient of the input, those of the parameters in order, and the bytes that were kept.
fn run(net: &Child, x: &Tensor, seed: &Tensor) -> (Vec<Tensor>, usize) {
    // Not a leaf, so that it is an activation.
    let leaf = x.requires_grad();
    let x = leaf.neg().unwrap();
    let y = net.call(&x).unwrap();
    let bytes = y.tape_bytes();
    let grads = y.backward_from(&seed.cast(y.dtype())).unwrap();
    let params = net.params();
    let of_params = params.iter().map(|(_, param)| grads.get(param).unwrap());
    ([y, grads.of(&leaf).unwrap()].into_iter().chain(of_params).collect(), bytes)
}

/// Returns a row, without 0, rounded to the nearest of 127 steps of its largest magnitude on each side.
fn rounded(row: &[f64]) -> Vec<f64> {
    let step = f64::from(row.iter().fold(0f64, |most, x| most.max(x.abs())) as f32 / 127.0);
    row.iter().map(|x| (x / step).round_ties_even().abs().max(1.0).copysign(*x) * step).collect()
}

#[test]
fn gradients_are_those_of_the_numbers_as_kept() {
    let [rows, width, out] = [5, 64, 3];
    let (x, seed) = (random(&[rows, width], 1), random(&[rows, out], 2));
    let net = |kept| applied(Dense::new(width, out, &mut Rng::seed(3)).into(), "float32", kept);
    let (found, bytes) = run(&net("int8-rows"), &x, &seed);
    let (wanted, _) = run(&net("none"), &x, &seed);
    assert_same(&found[0], &wanted[0], "results are not rounded");
    assert_same(&found[1], &wanted[1], "the gradient of the input is of the weight, which is not rounded");
    assert_same(&found[3], &wanted[3], "nor is that of the bias");
    assert_eq!(bytes, rows * width + rows * 4, "codes and scales");
    let kept: Vec<Vec<f64>> = x.neg().unwrap().to_f64().chunks(width).map(rounded).collect();
    let (of_weight, seed) = (found[2].to_f64(), seed.to_f64());
    for (i, found) in of_weight.iter().enumerate() {
        let wanted: f64 = (0..rows).map(|row| seed[row * out + i / width] * kept[row][i % width]).sum();
        assert!((found - wanted).abs() < 2e-6, "{i}: {found} for {wanted}");
    }
    assert!(of_weight != wanted[2].to_f64());
}

/// Returns four networks, with the shape of their input.
fn networks() -> [(&'static str, Child, Vec<usize>); 4] {
    let rng = &mut Rng::seed(5);
    let mlp =
        sequential![Dense::new(64, 128, rng), ReLU, LayerNorm::new(&[128]), Dense::new(128, 64, rng), GELU::default()];
    let conv = sequential![Conv2d::new(3, 8, 3, rng), BatchNorm2d::new(8), ReLU, Conv2d::new(8, 4, 3, rng)];
    let layer = TransformerEncoderLayerSpec::new(64, 4).dim_feedforward(128).build(rng).unwrap();
    [
        ("mlp", mlp.into(), vec![6, 64]),
        ("conv", conv.into(), vec![2, 3, 12, 12]),
        ("transformer", layer.into(), vec![2, 16, 64]),
        ("lstm", LSTM::new(64, 64, rng).into(), vec![4, 6, 64]),
    ]
}

#[test]
fn half_the_bytes_are_kept_and_results_are_the_same() {
    for (i, (name, _, shape)) in networks().into_iter().enumerate() {
        let x = random(&shape, 1);
        for dtype in ["bfloat16", "float16", "float32"] {
            let mut all = Vec::new();
            for kept in Kept::ALL {
                let (_, net, _) = networks().into_iter().nth(i).unwrap();
                let mut net = applied(net, dtype, kept.name());
                net.set_train(true);
                let seed = random(net.call(&x).unwrap().shape(), 2);
                all.push(run(&net, &x, &seed));
            }
            let (exact, bytes) = &all[0];
            for ((found, of_kept), kept) in all[1..].iter().zip(&Kept::ALL[1..]) {
                assert_same(&found[0], &exact[0], &format!("{name} {dtype} {kept}: result"));
                let most = if dtype == "float32" { 0.36 } else { 0.6 };
                let ratio = *of_kept as f64 / *bytes as f64;
                assert!(ratio < most, "{name} {dtype} {kept}: {ratio}");
                // All gradients together: those of a bias before a norm are 0.
                let all = |of: &[Tensor]| of.iter().flat_map(Tensor::to_f64).collect::<Vec<_>>();
                let (found, exact) = (all(&found[1..]), all(&exact[1..]));
                let off: f64 = found.iter().zip(&exact).map(|(x, y)| (x - y).powi(2)).sum::<f64>().sqrt();
                let size: f64 = exact.iter().map(|y| y * y).sum::<f64>().sqrt();
                let most = match kept {
                    Kept::Int8Rows => 0.012,
                    Kept::E4m3Rows => 0.06,
                    _ => 0.12,
                };
                assert!(off < most * size, "{name} {dtype} {kept}: {}", off / size);
            }
        }
    }
}

#[test]
fn cells_inside_follow_and_an_exception_ends_it() {
    let text = "version: 1\nlevel: O2\ndtype: bfloat16\nrules:\n  - { path: encoder.last, kept: none }\n  \
                - { path: encoder, kept: int8-rows, because: memory }\n";
    let policy = Policy::parse(text, "kept.yaml").unwrap();
    let rng = &mut Rng::seed(1);
    let encoder = sequential![first: Dense::new(64, 64, rng), relu: ReLU, last: Dense::new(64, 64, rng)];
    let mut net = Child::of(sequential![encoder: encoder, head: Dense::new(64, 64, rng)]);
    let plan = policy.plan(&net).unwrap();
    let kept = |path: &str| plan.decision(path).unwrap().kept();
    let (int8, none) = (Some(Kept::Int8Rows), None);
    assert_eq!(
        ["", "encoder", "encoder.first", "encoder.relu", "encoder.last", "head"].map(kept),
        [none, int8, int8, int8, none, none]
    );
    assert_eq!(plan.decision("encoder.first").unwrap().effect(), "runs bf16, activations int8-rows");
    let explained = plan.explain("encoder.first").unwrap().to_string();
    assert!(explained.contains("keeps    rule path encoder (kept: int8-rows), kept.yaml:6:5: memory"), "{explained}");
    assert_eq!(plan.diff(&Policy::named("o2-bf16").unwrap().plan(&net).unwrap()).changes.len(), 3);

    let x = random(&[4, 64], 1).requires_grad().neg().unwrap();
    let bytes = |net: &Child<_>| net.call(&x).unwrap().sum_all().unwrap().tape_bytes();
    let usual = Policy::named("o2-bf16").unwrap().apply(&mut net).unwrap();
    let exact = bytes(&net);
    usual.undo(&mut net).unwrap();
    let applied = policy.apply(&mut net).unwrap();
    // The input of the first layer, and the result of ReLU, which the last layer keeps as it is.
    let [before, after] = [64 * 4 * 2, 64 * 4 + 4 * 4];
    assert_eq!((exact, bytes(&net)), (3 * before, 2 * after + 2 * before));
    applied.undo(&mut net).unwrap();
    Policy::named("o2-bf16").unwrap().apply(&mut net).unwrap();
    assert_eq!(bytes(&net), exact);
}

#[test]
fn levels_and_forms_that_change_nothing_have_the_same_bits() {
    let (x, seed) = (random(&[6, 64], 1), random(&[6, 64], 2));
    let net = || networks().into_iter().next().unwrap().1;
    let (exact, bytes) = run(&applied(net(), "bfloat16", "none"), &x, &seed);
    let recomputed = |kept: &str| {
        let rules = format!(
            "rules: [{{ path: '**', run: low }}, {{ kind: Sequential, checkpoint: true }}, {{ path: '**', kept: {kept} }}]"
        );
        let policy =
            Policy::parse(&format!("version: 1\nlevel: O2\ndtype: bfloat16\n{rules}\n"), "again.yaml").unwrap();
        let mut net = net();
        let _applied = policy.apply(&mut net).unwrap();
        run(&net, &x, &seed)
    };
    let [(found, kept), (_, usual)] = ["int8-rows", "none"].map(recomputed);
    assert_eq!(kept, usual, "a recomputed cell keeps its inputs as they are");
    for (i, (found, exact)) in found.iter().zip(&exact).enumerate() {
        assert_same(found, exact, &format!("recomputed: tensor {i}"));
    }
    let text = "version: 1\nlevel: O0\ndtype: bfloat16\nrules: [{ path: '**', kept: int8-rows }]\n";
    let mut at_o0 = net();
    let _applied = Policy::parse(text, "o0.yaml").unwrap().apply(&mut at_o0).unwrap();
    let (_, of_o0) = run(&at_o0, &x, &seed);
    assert!(of_o0 > bytes, "O0 changes nothing");
}

/// An overflow stays one: what is not finite is kept as it is.
#[test]
fn numbers_that_are_not_finite_reach_the_gradients() {
    let mut numbers = random(&[4, 64], 1).to_f64();
    (numbers[70], numbers[130]) = (f64::INFINITY, f64::NAN);
    let (x, seed) = (Tensor::from_f64(&numbers, &[4, 64], DType::F32).unwrap(), random(&[4, 3], 2));
    let net = |kept| applied(Dense::new(64, 3, &mut Rng::seed(3)).into(), "bfloat16", kept);
    let [found, exact] = ["int8-rows", "none"].map(|kept| run(&net(kept), &x, &seed).0);
    for (i, (found, exact)) in found.iter().zip(&exact).enumerate() {
        assert_same(found, exact, &format!("tensor {i}"));
    }
    assert!(!found[2].has_only_finite());
}

#[test]
fn bits_do_not_depend_on_threads_or_on_the_batch() {
    let (x, seed) = (random(&[256, 64], 1), random(&[256, 64], 2));
    let net = || applied(networks().into_iter().next().unwrap().1, "bfloat16", "e4m3-rows");
    let [one, four] = [1, 4].map(|threads| {
        precast::set_threads(threads);
        run(&net(), &x, &seed).0
    });
    precast::set_threads(0);
    for (i, (found, wanted)) in four.iter().zip(&one).enumerate() {
        assert_same(found, wanted, &format!("tensor {i}"));
    }
    let half = |of: &Tensor| of.slice(0, 0..128).unwrap();
    let of_half = run(&net(), &half(&x), &half(&seed)).0;
    assert_same(&of_half[1], &half(&one[1]), "the gradient of the input, row by row");
}
