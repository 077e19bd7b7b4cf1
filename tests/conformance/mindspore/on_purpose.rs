//! Intentional differences from MindSpore in numbers, compared with numbers computed by hand; and one of two levels. The
//! others show in recorded cases.

use precast::{ConvOptions, prelude::*};

use crate::mindspore::{
    case::mindspore,
    networks::{Kit, build},
};

const LOW: DType = DType::F16;

/// Makes a recorded network with other weights.
fn network(name: &str) -> Child {
    let net = build(name, Kit::Unfused).expect("a network of this name");
    fill(&net);
    net
}

fn fill(net: &Child) {
    let mut rng = Rng::seed(7);
    for (name, param) in net.named_params() {
        // Variances are positive.
        let low = if name.ends_with("variance") { 0.5 } else { -0.9 };
        let numbers: Vec<f64> = (0..param.tensor().len()).map(|_| rng.uniform(low, 1.1)).collect();
        param.set(&Tensor::from_f64(&numbers, &param.shape(), DType::F32).unwrap()).unwrap();
    }
}

fn input(shape: &[usize]) -> Tensor {
    let mut rng = Rng::seed(8);
    let numbers: Vec<f64> = (0..shape.iter().product()).map(|_| rng.uniform(-1.5, 1.5)).collect();
    Tensor::from_f64(&numbers, shape, DType::F32).unwrap()
}

fn param(net: &Child, name: &str) -> Tensor {
    let params = net.named_params();
    params.iter().find(|(path, _)| path == name).unwrap_or_else(|| panic!("no parameter `{name}`")).1.value()
}

/// Asserts the same dtype and bits.
fn same(a: &Tensor, b: &Tensor) {
    assert_eq!((a.dtype(), a.shape()), (b.dtype(), b.shape()));
    let bits = |x: &Tensor| x.to_f64().iter().map(|x| x.to_bits()).collect::<Vec<_>>();
    assert_eq!(bits(a), bits(b), "{:?}\n{:?}", a.to_f64(), b.to_f64());
}

fn lowered(name: &str, level: Level, dtype: DType) -> Child {
    let mut net = network(name);
    let _applied = mindspore(level, dtype).unwrap().apply(&mut net).unwrap();
    net
}

/// MindSpore leaves wrappers of the first level behind, lets O1 over O2 run batch norms in f16, and after O1 twice may
/// raise a NameError.
#[test]
fn a_second_level_replaces_the_first() {
    for name in ["mlp_bn1d", "nested_sequential"] {
        let x = if name == "mlp_bn1d" { input(&[2, 4]) } else { input(&[1, 1, 4, 4]) };
        for (first, second) in Level::ALL.into_iter().flat_map(|a| Level::ALL.map(|b| (a, b))) {
            let mut net = lowered(name, first, LOW);
            let applied = mindspore(second, LOW).unwrap().apply(&mut net).unwrap();
            let alone = lowered(name, second, LOW);
            assert!(first != second || applied.changed == 0, "{name} {first} {second}");
            assert_eq!(applied.plan, mindspore(second, LOW).unwrap().plan(&alone).unwrap());
            let ran = |net: &Child| net.trace(|net| net.call(&x).unwrap());
            let ((y, trace), (y_alone, trace_alone)) = (ran(&net), ran(&alone));
            same(&y, &y_alone);
            assert_eq!(trace, trace_alone);
        }
    }
}

/// MindSpore's norm layers cast gamma and beta to the dtype of their input: recorded for the second layer norm of a
/// transformer block at O2, whose kernel is f32 and whose parameters were rounded to f16.
#[test]
fn a_norm_reads_its_parameters_as_they_are() {
    let net = lowered("groupnorm", Level::Auto, LOW);
    let x = input(&[1, 2, 3, 3]);
    let ours = net.call(&x).unwrap();
    let conv = x.cast(LOW).conv2d(&param(&net, "conv.weight").cast(LOW), None, &ConvOptions::default()).unwrap();
    // The textbook's formula in f64, over two groups of two channels.
    let (h, gamma, beta) = (conv.to_f64(), param(&net, "gn.gamma").to_f64(), param(&net, "gn.beta").to_f64());
    for (group, h) in h.chunks(18).enumerate() {
        let mean = h.iter().sum::<f64>() / 18.0;
        let variance = h.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / 18.0;
        for (i, x) in h.iter().enumerate() {
            let c = 2 * group + i / 9;
            let exact = ((x - mean) / (variance + 1e-5).sqrt() * gamma[c] + beta[c]).max(0.0);
            assert!((ours.to_f64()[18 * group + i] - exact).abs() < 1e-6);
        }
    }
    let rounded = gamma.iter().chain(&beta).filter(|w| Tensor::scalar(**w, LOW).item().unwrap() != **w);
    assert_eq!((ours.dtype(), rounded.count()), (DType::F32, 8));
}

/// MindSpore's f16 kernels of sigmoid, softmax, layer and group norm round after every step. Its numbers below were
/// recorded (dense_act_3d at O3); ours are the f16 numbers nearest to the exact values, within half a unit.
#[test]
fn an_op_rounds_once() {
    let x = [0.14978027, -0.045410156, -0.56152344, -0.66064453];
    let recorded = [0.537109375, 0.488525391, 0.363037109, 0.340332031];
    let ours = Tensor::from_f64(&x, &[4], LOW).unwrap();
    let (ours, x) = (ours.sigmoid().unwrap().to_f64(), ours.to_f64());
    let unit = |y: f64| 2f64.powi(y.log2().floor() as i32 - 10);
    for i in 0..4 {
        let exact = 1.0 / (1.0 + (-x[i]).exp());
        assert!((ours[i] - exact).abs() <= unit(exact) / 2.0, "{}", x[i]);
        assert!((recorded[i] - exact).abs() > (ours[i] - exact).abs());
    }
}

/// MindSpore's f32 exponential is accurate to about 7e-7, and recorded f32 sums have another order. If a low op reads
/// such a result, it may round to the neighbouring number. Recorded: conv3d at O0.
#[test]
fn f32_results_have_their_own_last_digits() {
    let recorded = 0.583341718;
    let x = Tensor::from_f64(&[0.33650397], &[1], DType::F32).unwrap();
    let exact = 1.0 / (1.0 + (-x.item().unwrap()).exp());
    let ours = x.sigmoid().unwrap().item().unwrap();
    assert!((ours - exact).abs() <= 2f64.powi(-24), "{ours} {exact}");
    assert!((recorded - exact) > 5e-7);
    // The numbers above and below are f16 neighbours as soon as a rounding point is between them.
    let rounding_point = 0.58349609375 - 2f64.powi(-12);
    let low = |x: f64| Tensor::scalar(x, DType::F32).cast(LOW).item().unwrap();
    assert_ne!(low(rounding_point + 3e-7), low(rounding_point - 3e-7));
}

/// Rounds to nearest even at 8 significant bits, straight from the definition.
fn to_bf16(x: f64) -> f64 {
    if x == 0.0 {
        return x;
    }
    let unit = 2f64.powi(x.abs().log2().floor() as i32 - 7);
    (x / unit).round_ties_even() * unit
}

/// Computes `x · wᵀ + b` on plain numbers, rounding both the product and the sum.
fn plain_dense(net: &Child, path: &str, rows: &[Vec<f64>]) -> Vec<Vec<f64>> {
    let weight = param(net, &format!("{path}.weight"));
    let (w, b) = (weight.to_f64(), param(net, &format!("{path}.bias")).to_f64());
    let k = weight.shape()[1];
    let product = |row: &Vec<f64>, o: usize| (0..k).map(|i| row[i] * to_bf16(w[o * k + i])).sum::<f64>();
    let out = |row: &Vec<f64>| (0..b.len()).map(|o| to_bf16(to_bf16(product(row, o)) + to_bf16(b[o]))).collect();
    rows.iter().map(out).collect()
}

/// MindSpore has no bf16 kernels for the CPU. A whole network is compared with plain loops over f64 numbers.
#[test]
fn bf16_runs_on_the_cpu() {
    let net = lowered("mlp_bn1d", Level::O2, DType::Bf16);
    let x = input(&[2, 4]);
    let rows: Vec<Vec<f64>> = x.to_f64().chunks(4).map(|row| row.iter().map(|&x| to_bf16(x)).collect()).collect();
    let of = |leaf: &str| param(&net, &format!("bn.{leaf}")).to_f64();
    let (mean, variance, gamma, beta) = (of("moving_mean"), of("moving_variance"), of("gamma"), of("beta"));
    let normalized = |(c, x): (usize, &f64)| {
        let y = (x - mean[c]) / (variance[c] + 1e-5).sqrt() * gamma[c] + beta[c];
        to_bf16(y).max(0.0)
    };
    let hidden = plain_dense(&net, "fc1", &rows);
    let hidden: Vec<Vec<f64>> = hidden.iter().map(|row| row.iter().enumerate().map(normalized).collect()).collect();
    let y = net.call(&x).unwrap();
    assert_eq!(y.dtype(), DType::F32);
    assert_eq!(y.to_f64(), plain_dense(&net, "fc2", &hidden).concat());
}
