//! Products with quantized operands: `operands` in a rule.

use precast::{
    Checkpoint, Outcome,
    layers::drawing_in_shard,
    policy::{Product, Recipe},
    precision,
    prelude::*,
    sequential,
};
use precast_kernels::codes::{Matrix, Operand, Stream};

use crate::common::tensors::{assert_same, bits, random};

/// Runs everything in this dtype, with these operands.
fn policy(dtype: &str, operands: &str) -> Policy {
    let (low, run) = if dtype == "float32" { ("bfloat16", "float32") } else { (dtype, "low") };
    let rule = format!("  - path: \"**\"\n    run: {run}\n    operands: {operands}\n");
    Policy::parse(&format!("version: 1\nlevel: O2\ndtype: {low}\nrules:\n{rule}"), "operands.yaml").unwrap()
}

fn applied(mut net: Child, run: &str, operands: &str) -> Child {
    let _applied = policy(run, operands).apply(&mut net).unwrap();
    net
}

/// Returns the output, the gradient of the input, and those of the parameters in order.
fn run(net: &Child, x: &Tensor, seed: &Tensor) -> Vec<Tensor> {
    let x = x.requires_grad();
    let y = net.call(&x).unwrap();
    let grads = y.backward_from(&seed.cast(y.dtype())).unwrap();
    let params = net.params();
    let of_params = params.iter().map(|(_, param)| grads.get(param).unwrap());
    [y, grads.of(&x).unwrap()].into_iter().chain(of_params).collect()
}

/// Returns integers of -7 to 7, each with 7 in its first place, so that all scales are powers of two.
fn integers(shape: &[usize], seed: u64) -> Tensor {
    let mut rng = Rng::seed(seed);
    let count: usize = shape.iter().product();
    let mut numbers: Vec<f64> = (0..count).map(|_| rng.integer(-7, 8) as f64).collect();
    numbers[0] = 7.0;
    Tensor::from_f64(&numbers, shape, DType::F32).unwrap()
}

/// Sets all parameters to such integers.
fn with_integers(net: Child) -> Child {
    for (seed, (_, param)) in net.named_params().iter().enumerate() {
        param.set(&integers(&param.shape(), 90 + seed as u64)).unwrap();
    }
    net
}

/// Codes have integers of three bits exactly, so that products of them are those without quantization.
#[test]
fn numbers_that_codes_have_are_multiplied_exactly() {
    type Make = fn(&mut Rng) -> Child;
    let make: [(&str, Make, &[usize], &[usize]); 6] = [
        ("dense", |r| Dense::new(128, 128, r).into(), &[2, 5, 128], &[2, 5, 128]),
        ("conv1d", |r| Conv1d::new(4, 6, 3, r).into(), &[3, 4, 9], &[3, 6, 7]),
        (
            "groups",
            |r| Conv2dSpec::new(4, 6, (3, 2)).stride((2, 1)).groups(2).build(r).unwrap().into(),
            &[2, 4, 7, 5],
            &[2, 6, 3, 4],
        ),
        ("conv3d", |r| Conv3d::new(2, 3, 2, r).into(), &[2, 2, 4, 3, 3], &[2, 3, 3, 2, 2]),
        ("transposed", |r| Conv2dTranspose::new(3, 4, 3, r).into(), &[2, 3, 5, 4], &[2, 4, 7, 6]),
        ("conv of mx", |r| Conv2d::new(32, 32, 1, r).into(), &[2, 32, 3, 5], &[2, 32, 3, 5]),
    ];
    for (name, make, shape, result) in make {
        for dtype in ["float32", "bfloat16"] {
            let (x, seed) = (integers(shape, 1), integers(result, 2));
            let wanted = run(&applied(with_integers(make(&mut Rng::seed(0))), dtype, "none"), &x, &seed);
            let operands: &[&str] = match name {
                "dense" => &["tensorwise", "rowwise", "rowwise-hp-grad", "block", "mxfp8"],
                "conv of mx" => &["mxfp8", "{ forward: e4m3, backward: e5m2, scale: mx }"],
                _ => &["tensorwise", "rowwise", "rowwise-hp-grad"],
            };
            for operands in operands {
                let found = run(&applied(with_integers(make(&mut Rng::seed(0))), dtype, operands), &x, &seed);
                for (i, (wanted, found)) in wanted.iter().zip(&found).enumerate() {
                    assert_same(found, wanted, &format!("{name} in {dtype}, {operands}, tensor {i}"));
                }
            }
        }
    }
}

/// Returns a product of two matrices, of which the second is transposed, by the codes of a recipe, with sums in f64.
fn product(by: Product, [a, b]: [Matrix<'_>; 2], random: [Stream; 2]) -> Vec<f32> {
    let quantized = |by: Operand, x, random| by.quantize(x, random).unwrap();
    quantized(by.left, a, random[0]).matmul_t(&quantized(by.right, b, random[1])).unwrap()
}

#[track_caller]
fn assert_near(found: &Tensor, wanted: &[f32], what: &str) {
    let most = wanted.iter().fold(0f32, |most, x| most.max(x.abs()));
    let off = found.to_f64().iter().zip(wanted).fold(0.0, |off: f64, (x, y)| off.max((x - f64::from(*y)).abs()));
    assert!(off <= 4e-7 * f64::from(most), "{what}: {off:e} of {most:e}");
}

/// The three products of a dense layer have the codes and scales of each recipe.
#[test]
fn products_are_those_of_the_codes() {
    let [rows, width, out] = [128, 256, 384];
    let (x, seed) = (random(&[rows, width], 1), random(&[rows, out], 2));
    let net = || Dense::new(width, out, &mut Rng::seed(3));
    let (numbers, grad) = (x.to_vec::<f32>().unwrap(), seed.to_vec::<f32>().unwrap());
    let (weight, bias) = (net().weight.value(), net().bias.unwrap().value().to_vec::<f32>().unwrap());
    let weight = weight.to_vec::<f32>().unwrap();
    let matrix = |x, rows, columns| Matrix::new(x, rows, columns).unwrap();
    let (x_of, w, g) = (matrix(&numbers, rows, width), matrix(&weight, out, width), matrix(&grad, rows, out));
    for recipe in Recipe::ALL.into_iter().filter(|recipe| recipe.name != "delayed") {
        let found = run(&applied(net().into(), "float32", recipe.name), &x, &seed);
        let bits = |which| Stream::new(0, &format!("/0/{which}"), 0);
        let mut y = product(recipe.output, [x_of, w], [bits("X"), bits("W")]);
        y.chunks_exact_mut(out).for_each(|row| row.iter_mut().zip(&bias).for_each(|(y, b)| *y += b));
        assert_near(&found[0], &y, recipe.name);
        let of_x = product(recipe.grad_input, [g, w.t()], [bits("G"), bits("W")]);
        assert_near(&found[1], &of_x, recipe.name);
        let of_w = match recipe.grad_weight {
            Some(by) => product(by, [g.t(), x_of.t()], [bits("G"), bits("X")]),
            None => seed.transpose(0, 1).unwrap().matmul(&x).unwrap().to_vec().unwrap(),
        };
        assert_near(&found[2], &of_w, recipe.name);
        // The gradient of the bias is not a product.
        assert_near(&found[3], &seed.sum(&[0], false).unwrap().to_vec::<f32>().unwrap(), recipe.name);
    }
}

/// Sums over the examples of a batch may have any length, sums over features only one that blocks divide.
#[test]
fn blocks_divide_features_and_batches_of_any_size() {
    let net = |width| applied(Dense::new(width, 64, &mut Rng::seed(3)).into(), "bfloat16", "mxfp8");
    let (x, seed) = (random(&[7, 64], 1), random(&[7, 64], 2));
    let all = run(&net(64), &x, &seed);
    // Rows of zeros after them change nothing.
    let longer = |x: &Tensor| Tensor::concat(&[x, &Tensor::zeros(&[25, 64], DType::F32)], 0).unwrap();
    let padded = run(&net(64), &longer(&x), &longer(&seed));
    assert_same(&all[2], &padded[2], "the gradient of the weight");
    // A layer of other sizes is left out, and the plan says so.
    let (x, seed) = (random(&[7, 80], 1), random(&[7, 64], 2));
    let plain = applied(Dense::new(80, 64, &mut Rng::seed(3)).into(), "bfloat16", "none");
    for (found, wanted) in run(&net(80), &x, &seed).iter().zip(run(&plain, &x, &seed)) {
        assert_same(found, &wanted, "a layer that is left out");
    }
    let plan = policy("bfloat16", "mxfp8").plan(&net(80)).unwrap();
    let says = plan.decision("").unwrap().operands.clone().unwrap().says;
    assert_eq!(
        (says.left_out.as_deref(), plan.decision("").unwrap().quantized()),
        (Some("k 80 is not a multiple of 32"), None)
    );
    // Groups of a convolution are known at the call: 32 outputs are 16 in each, too few for the gradient of the input.
    let groups = Conv2dSpec::new(64, 32, 1).groups(2).build(&mut Rng::seed(3)).unwrap();
    let mut net = Child::of(sequential![conv: groups]);
    let _applied = policy("bfloat16", "mxfp8").apply(&mut net).unwrap();
    let error = net.call(&random(&[1, 64, 2, 2], 1)).unwrap_err().to_string();
    let words = "in cell `conv`: Conv2d: blocks of `operands: mxfp8` need a multiple of 32, and n, the number of outputs, is 16; \
                 `operands: none` leaves this cell out";
    assert!(error.contains(words), "{error}");
}

/// A number that is not finite here may be finite there, where nothing is rounded.
#[test]
fn nothing_is_quantized_where_every_op_runs_in_f32() {
    let net = |operands| applied(Dense::new(64, 64, &mut Rng::seed(3)).into(), "bfloat16", operands);
    let x = random(&[4, 64], 1);
    let [found, wanted] = ["tensorwise", "none"].map(|of| precision::all_in_f32(|| net(of).call(&x).unwrap()));
    assert_same(&found, &wanted, "in f32");
    assert!(bits(&net("tensorwise").call(&x).unwrap()) != bits(&net("none").call(&x).unwrap()));
}

fn nets() -> [(&'static str, Child, Vec<usize>); 4] {
    let rng = &mut Rng::seed(4);
    [
        ("mlp", sequential![Dense::new(32, 64, rng), ReLU, Dense::new(64, 32, rng)].into(), vec![6, 32]),
        ("lstm", LSTM::new(32, 64, rng).into(), vec![2, 5, 32]),
        ("gru", GRU::new(32, 32, rng).into(), vec![2, 5, 32]),
        ("attention", MultiheadAttention::new(64, 4, rng).into(), vec![2, 5, 64]),
    ]
}

fn outcome(net: &Child, x: &Tensor) -> Vec<Vec<u64>> {
    let x = x.requires_grad();
    let y = net.call_many(std::slice::from_ref(&x)).unwrap().swap_remove(0);
    let grads = y.mul(&random(y.shape(), 8).cast(y.dtype())).unwrap().sum_all().unwrap().backward().unwrap();
    let mut all = vec![bits(&y), bits(&grads.of(&x).unwrap())];
    all.extend(net.params().iter().map(|(_, param)| bits(&grads.get(param).unwrap())));
    all
}

/// With and without recomputation, and on any number of threads, each call has the same bits, also where gradients are
/// rounded at random; a second call has others then.
#[test]
fn bits_depend_on_calls_alone() {
    for ((name, net, shape), (_, lean, _)) in nets().into_iter().zip(nets()) {
        for operands in ["tensorwise", "nvfp4", "delayed"] {
            let x = random(&shape, 5);
            let plain = applied(net.deep_copy().unwrap(), "bfloat16", operands);
            let mut lean = lean.deep_copy().unwrap();
            lean.set_recompute(true);
            let lean = applied(lean, "bfloat16", operands);
            precast::set_threads(1);
            let (first, second) = (outcome(&plain, &x), outcome(&plain, &x));
            precast::set_threads(4);
            assert!(first == outcome(&lean, &x), "{name}, {operands}");
            assert!(second == outcome(&lean, &x), "{name}, {operands}, second call");
            assert_eq!(first != second, operands != "tensorwise", "{name}, {operands}");
        }
    }
}

/// A shard has its own random bits, whatever ran before.
#[test]
fn shards_have_their_own_bits() {
    let x = random(&[16, 32], 5);
    let net = || applied(Dense::new(32, 32, &mut Rng::seed(1)).into(), "bfloat16", "nvfp4");
    let (one, other) = (net(), net());
    let of = |net: &Child, shard| drawing_in_shard(7, shard, || outcome(net, &x));
    let wanted = [of(&one, 0), of(&one, 1)];
    assert!(wanted[0] != wanted[1]);
    assert!(wanted[1] == of(&other, 1) && wanted[0] == of(&other, 0));
    let delayed = applied(Dense::new(32, 32, &mut Rng::seed(1)).into(), "bfloat16", "delayed");
    let error = drawing_in_shard(7, 0, || delayed.call(&x)).unwrap_err().to_string();
    assert!(error.contains("`operands: tensorwise`"), "{error}");
}

/// Random bits and delayed scales go on from a checkpoint as without one.
#[test]
fn a_checkpoint_has_the_state_of_operands() {
    for operands in ["nvfp4", "delayed"] {
        let (x, net) =
            (random(&[16, 32], 5), || applied(Dense::new(32, 32, &mut Rng::seed(1)).into(), "bfloat16", operands));
        let straight = net();
        let _two = [outcome(&straight, &x), outcome(&straight, &x)];
        let bytes = Checkpoint::of(&straight, &[], &LossScale::none()).to_bytes().unwrap();
        let mut resumed = net();
        Checkpoint::from_bytes(&bytes).unwrap().restore(&mut resumed, &mut [], &mut LossScale::none()).unwrap();
        assert!(outcome(&straight, &x) == outcome(&resumed, &x), "{operands}");
        let mut other = applied(Dense::new(32, 32, &mut Rng::seed(1)).into(), "bfloat16", "tensorwise");
        if operands == "delayed" {
            let restored = Checkpoint::from_bytes(&bytes).unwrap().restore(&mut other, &mut [], &mut LossScale::none());
            assert!(restored.unwrap_err().to_string().contains("another recipe"));
        }
    }
}

/// Delayed scales by hand: that of a step is 448 over the largest magnitude before it.
#[test]
fn delayed_scales_follow_the_calls_before() {
    let mut net = Child::new(Dense::new(1, 1, &mut Rng::seed(1)));
    net.cell_mut().weight.set(&Tensor::from_f64(&[1.0], &[1, 1], DType::F32).unwrap()).unwrap();
    net.cell_mut().bias = None;
    let net = applied(net.erase(), "float32", "delayed");
    let call = |x: f64| net.call(&Tensor::from_f64(&[x], &[1, 1], DType::F32).unwrap()).unwrap().to_f64()[0];
    // Scale 1: 3.3 is between the codes 3.25 and 3.5, and 1000 is beyond the largest, 448.
    assert_eq!(call(3.3), 3.25);
    assert!((no_grad(|| call(1000.0)) - 3.3).abs() < 1e-6);
    // Evaluation left the history alone; after 1000 the scale is 0.448: 3.3 is 1.4784, between 1.375 and 1.5.
    let _ = call(1000.0);
    let found = call(3.3);
    assert!((found - 1.5 / 0.448).abs() < 1e-6, "{found}");
}

/// An infinity or a NaN is one in the result: a loss scale sees the overflow, and skips the step.
#[test]
fn numbers_that_are_not_finite_reach_the_result() {
    for operands in ["tensorwise", "mxfp8", "nvfp4", "delayed", "int8"] {
        let net = applied(Dense::new(32, 32, &mut Rng::seed(1)).into(), "float32", operands);
        let mut numbers = vec![1.0; 64];
        numbers[3] = f64::INFINITY;
        let y = net.call(&Tensor::from_f64(&numbers, &[2, 32], DType::F32).unwrap()).unwrap().to_f64();
        assert!(y[..32].iter().all(|y| !y.is_finite()) && y[32..].iter().all(|y| y.is_finite()), "{operands}");
    }
    let net = applied(Dense::new(32, 32, &mut Rng::seed(1)).into(), "float16", "tensorwise");
    let (mut scale, mut optimizer) = (LossScale::dynamic(), Sgd::new(net.params(), 0.1));
    let before = net.named_params()[0].1.value();
    let large = Tensor::scalar(1e5, DType::F32);
    let loss = net.call(&random(&[4, 32], 1)).unwrap().cast(DType::F32).mul(&large).unwrap().sum_all().unwrap();
    assert!(matches!(scale.step(&mut optimizer, loss).unwrap(), Outcome::Skipped { .. }));
    assert_same(&before, &net.named_params()[0].1.value(), "skipped");
}

/// Children have their own operands, and a plan without them takes them back.
#[test]
fn operands_are_those_of_each_cell() {
    let net = || {
        Child::of(sequential![head: Dense::new(32, 32, &mut Rng::seed(1)), tail: Dense::new(32, 32, &mut Rng::seed(2))])
    };
    let text = "version: 1\nlevel: O2\ndtype: bfloat16\nrules:\n  - { path: head, operands: none }\n  - { path: \"**\", operands: mxfp4 }\n";
    let mut both = net();
    let undo = Policy::parse(text, "p.yaml").unwrap().apply(&mut both).unwrap();
    let x = random(&[4, 32], 3);
    let mut low = net();
    let _applied = Policy::named("o2-bf16").unwrap().apply(&mut low).unwrap();
    let at = |net: &Child, part: &str| bits(&net.part(part).unwrap().call(&x).unwrap());
    assert!(at(&both, "head") == at(&low, "head"));
    assert!(at(&both, "tail") != at(&low, "tail"));
    undo.undo(&mut both).unwrap();
    assert!(bits(&both.call(&x).unwrap()) == bits(&net().call(&x).unwrap()));
}

/// With `weight_grad: float32`, the gradient of the weight is that without operands.
#[test]
fn gradients_of_weights_in_f32_are_not_quantized() {
    let net = |operands| {
        let mut net = Child::new(Dense::new(32, 64, &mut Rng::seed(1))).erase();
        let rule =
            format!("  - {{ path: \"**\", run: {{ forward: low, weight_grad: float32 }}, operands: {operands} }}\n");
        let text = format!("version: 1\nlevel: O2\ndtype: bfloat16\nrules:\n{rule}");
        let _applied = Policy::parse(&text, "operands.yaml").unwrap().apply(&mut net).unwrap();
        net
    };
    let (x, seed) = (random(&[6, 32], 3), random(&[6, 64], 4).cast(DType::Bf16));
    let (plain, quantized) = (run(&net("none"), &x, &seed), run(&net("mxfp8"), &x, &seed));
    assert!(bits(&plain[0]) != bits(&quantized[0]) && bits(&plain[1]) != bits(&quantized[1]));
    assert_same(&plain[2], &quantized[2], "the gradient of the weight");
}

/// Second derivatives are refused, with the reason.
#[test]
fn second_derivatives_are_refused() {
    let net = applied(Dense::new(32, 32, &mut Rng::seed(1)).into(), "float32", "tensorwise");
    let x = random(&[2, 32], 1).requires_grad();
    let gradients = precast::twice_differentiable(|| net.call(&x)?.mul(&x)?.sum_all()?.gradients_on_tape(&[&x]));
    let error = gradients.unwrap_err().to_string();
    assert!(error.contains("its operands are quantized (`operands`)"), "{error}");
}
