//! Values: op outputs under autocast, bit for bit.

use std::collections::BTreeMap;

use half::{bf16, f16};
use precast::{Autocast, ConvOptions, ConvTransposeOptions, DType, Padding, Reduction, Result, Tensor, autocast};
use serde_json::Value;

use crate::common::golden::golden;
use crate::replay::{Verdict, entries, replay};
use crate::torch::rounding::patterns;

/// The recorded inputs, by name.
struct Inputs(BTreeMap<String, Tensor>);

impl std::ops::Index<&str> for Inputs {
    type Output = Tensor;
    fn index(&self, name: &str) -> &Tensor {
        &self.0[name]
    }
}

fn dtype(name: &str) -> DType {
    name.parse().unwrap_or_else(|e| panic!("{e}"))
}

fn bits(array: &Value) -> Vec<u64> {
    array["bits"].as_array().expect("bits").iter().map(|v| v.as_u64().expect("a pattern")).collect()
}

fn shape(array: &Value) -> Vec<usize> {
    array["shape"].as_array().expect("a shape").iter().map(|v| v.as_u64().expect("a length") as usize).collect()
}

fn tensor(array: &Value) -> Tensor {
    let (bits, shape) = (bits(array), shape(array));
    match dtype(array["dtype"].as_str().expect("a dtype")) {
        DType::F32 => Tensor::from_vec(bits.iter().map(|&b| f32::from_bits(b as u32)).collect(), &shape),
        DType::F16 => Tensor::from_vec(bits.iter().map(|&b| f16::from_bits(b as u16)).collect(), &shape),
        DType::Bf16 => Tensor::from_vec(bits.iter().map(|&b| bf16::from_bits(b as u16)).collect(), &shape),
        other => panic!("{other} has no recorded bits"),
    }
    .unwrap()
}

/// A recorded case, as written here: the input tensors of an op, and the op.
struct Case {
    name: &'static str,
    arriving: fn(&Inputs) -> Result<Vec<Tensor>>,
    op: fn(&[Tensor]) -> Result<Tensor>,
}

const fn case(
    name: &'static str,
    arriving: fn(&Inputs) -> Result<Vec<Tensor>>,
    op: fn(&[Tensor]) -> Result<Tensor>,
) -> Case {
    Case { name, arriving, op }
}

const CASES: &[Case] = &[
    case("mm", |v| v.of(["a", "b"]), |x| x[0].matmul(&x[1])),
    case("linear", |v| v.of(["x", "w", "bias"]), |x| x[0].linear(&x[1], Some(&x[2]))),
    case("linear_k512", |v| v.of(["long", "lw"]), |x| x[0].linear(&x[1], None)),
    case("addmm", |v| v.of(["a", "b"]), |x| x[0].addmm(&x[0], &x[1])),
    case("bmm", |v| v.of(["a", "b"]), |x| x[0].reshape(&[2, 4, 8])?.batch_matmul(&x[1].reshape(&[2, 8, 4])?)),
    case("conv2d", |v| v.of(["img", "k", "kb"]), |x| x[0].conv2d(&x[1], Some(&x[2]), &padded())),
    case(
        "conv_transpose2d",
        |v| v.of(["img", "k"]),
        |x| x[0].conv_transpose2d(&x[1].transpose(0, 1)?, None, &ConvTransposeOptions::default()),
    ),
    case("prelu", |v| v.of(["x", "sl"]), |x| x[0].prelu(&x[1])),
    case("sdpa", |v| v.of(["q", "kk", "vv"]), |x| x[0].scaled_dot_product_attention(&x[1], &x[2], None, false, None)),
    case("softmax_of_mm", mm, |x| x[0].softmax(-1)),
    case("log_softmax_of_mm", mm, |x| x[0].log_softmax(-1)),
    case("layer_norm_of_linear", linear, |x| x[0].layer_norm(&[8], None, None, 1e-5)),
    case("sum_of_mm", mm, |x| x[0].sum_all()),
    case("mean_of_mm", mm, |x| x[0].mean_all()),
    case("sum_dim_of_mm", mm, |x| x[0].sum(&[0], false)),
    case("cumsum_of_mm", mm, |x| x[0].cumsum(0)),
    case("exp_of_mm", |v| Ok(vec![(&mm(v)?[0] * 0.25)?]), |x| x[0].exp()),
    case("gelu_of_mm", mm, |x| x[0].gelu()),
    case("sigmoid_of_mm", mm, |x| x[0].sigmoid()),
    case("tanh_of_mm", mm, |x| x[0].tanh()),
    case("silu_of_mm", mm, |x| x[0].silu()),
    case("relu_of_mm", mm, |x| x[0].relu()),
    case("norm_of_mm", mm, |x| x[0].norm(2.0, &[], false)),
    case("prod_of_linear", |v| Ok(vec![(&linear(v)?[0] * 0.3)?]), |x| x[0].prod(&[1], false)),
    case("mse_of_mm", |v| mm_and(v, "a"), |x| x[0].mse_loss(&x[1], Reduction::Mean)),
    case("l1_of_mm", |v| mm_and(v, "a"), |x| x[0].l1_loss(&x[1], Reduction::Mean)),
    case("cross_entropy_of_linear", linear, |x| x[0].cross_entropy(&Tensor::from_vec(vec![0i64, 3, 5, 7], &[4])?)),
    case("bce_logits_of_linear", linear, |x| {
        x[0].bce_with_logits(&Tensor::ones(x[0].shape(), x[0].dtype()), Reduction::Mean)
    }),
    case("add_mixed", |v| mm_and(v, "a"), |x| x[0].add(&x[1])),
    case("mul_low", mm_twice, |x| x[0].mul(&x[1])),
    case("div_low", mm_twice, |x| x[0].div(&x[1])),
    case("mul_scalar_0.1", mm, |x| &x[0] * 0.1),
    case("add_scalar_1e-3", mm, |x| &x[0] + 1e-3),
    case("cat_mixed", |v| mm_and(v, "a"), |x| Tensor::concat(&[&x[0], &x[1]], 0)),
    case("avg_pool2d_of_conv", conv, |x| x[0].avg_pool2d(2, 2)),
    case("max_pool2d_of_conv", conv, |x| x[0].max_pool2d(2, 2)),
    case("batch_norm_of_conv", conv, |x| Ok(x[0].batch_norm_train(None, None, 1e-5)?.0)),
    case("two_layer", |v| Ok(vec![linear(v)?[0].relu()?, v["b"].clone()]), |x| x[0].linear(&x[1], None)),
];

impl Inputs {
    fn of<const N: usize>(&self, names: [&str; N]) -> Result<Vec<Tensor>> {
        Ok(names.map(|name| self[name].clone()).into())
    }
}

fn mm(v: &Inputs) -> Result<Vec<Tensor>> {
    Ok(vec![v["a"].matmul(&v["b"])?])
}

fn mm_and(v: &Inputs, other: &str) -> Result<Vec<Tensor>> {
    Ok(vec![v["a"].matmul(&v["b"])?, v[other].clone()])
}

fn mm_twice(v: &Inputs) -> Result<Vec<Tensor>> {
    Ok(vec![v["a"].matmul(&v["b"])?, v["b"].matmul(&v["a"])?])
}

fn linear(v: &Inputs) -> Result<Vec<Tensor>> {
    Ok(vec![v["x"].linear(&v["w"], Some(&v["bias"]))?])
}

fn conv(v: &Inputs) -> Result<Vec<Tensor>> {
    Ok(vec![v["img"].conv2d(&v["k"], Some(&v["kb"]), &ConvOptions::default())?])
}

fn padded() -> ConvOptions {
    ConvOptions::default().padding(Padding::Explicit(vec![(1, 1), (1, 1)]))
}

/// Runs in `torch.autocast("cpu")`'s region, or in none.
fn region<R>(low: Option<DType>, f: impl FnOnce() -> Result<R>) -> Result<R> {
    match low {
        None => f(),
        Some(low) => autocast(Autocast::new("torch-2.15-cpu")?.dtype(low), f),
    }
}

/// Error of f32 arithmetic, in units of the largest number: sums have another order, functions other last digits.
const F32_NOISE: f64 = 16.0 * f32::EPSILON as f64;

fn largest(numbers: &[f64]) -> f64 {
    numbers.iter().fold(0.0, |m, x| m.max(x.abs()))
}

/// Returns the spacing of a low dtype at such a number.
fn spacing(x: f64, dtype: DType) -> f64 {
    let normal = if dtype == DType::F16 { 2f64.powi(-14) } else { f32::MIN_POSITIVE as f64 };
    2f64.powi(x.abs().max(normal).log2().floor() as i32) * dtype.epsilon()
}

/// Compares low results bit for bit, f32 ones except for the order of their sums. Ours is in any case the nearest to the
/// exact result, within the error of f32 arithmetic.
fn compare(case: &Case, inputs: &Inputs, low: Option<DType>, theirs: &Tensor) -> Result<Verdict, String> {
    let words = |error: precast::Error| error.to_string();
    let run = || -> Result<_> {
        let arriving = (case.arriving)(inputs)?;
        let ours = (case.op)(&arriving)?;
        Ok((arriving, ours))
    };
    let (arriving, ours) = region(low, run).map_err(words)?;
    if (ours.dtype(), ours.shape()) != (theirs.dtype(), theirs.shape()) {
        let of = |x: &Tensor| format!("{} {:?}", x.dtype(), x.shape());
        return Err(format!("ours {}, torch's {}", of(&ours), of(theirs)));
    }
    if patterns(&ours) == patterns(theirs) {
        return Ok(Verdict::Agree);
    }
    let off = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
    let (a, b) = (ours.to_f64(), theirs.to_f64());
    if !ours.dtype().is_low() && off(&a, &b) <= F32_NOISE * largest(&b) {
        return Ok(Verdict::Agree);
    }
    // Result of the op for the same input tensors in f64.
    let exact: Vec<Tensor> = arriving.iter().map(|x| x.cast(ours.dtype()).cast(DType::F64)).collect();
    let exact = (case.op)(&exact).map_err(words)?.to_f64();
    let (dtype, noise) = (ours.dtype(), F32_NOISE * largest(&exact));
    // A number takes the tensor's dtype, so that it is rounded as well.
    let number = if case.name == "mul_scalar_0.1" { dtype.epsilon() / 2.0 } else { 0.0 };
    let allowed = |exact: f64| spacing(exact, dtype) / 2.0 + noise + number * exact.abs();
    match a.iter().zip(&exact).all(|(a, exact)| (a - exact).abs() <= allowed(*exact)) {
        true => Ok(Verdict::Differs),
        false => Err(format!("ours is off by up to {:e}, torch's by {:e}", off(&a, &exact), off(&b, &exact))),
    }
}

fn mode(name: &str) -> Option<Option<DType>> {
    match name {
        "off" => Some(None),
        "bf16" => Some(Some(DType::Bf16)),
        "fp16" => Some(Some(DType::F16)),
        _ => None,
    }
}

/// The recorded file.
pub struct Recorded {
    inputs: Inputs,
    results: Value,
}

impl Recorded {
    /// Reads the file, unless the folder lacks it.
    pub fn read() -> Option<Recorded> {
        let mut golden = golden("torch/values.json")?;
        let inputs = entries(&golden["inputs"]);
        let inputs = Inputs(inputs.map(|(name, array)| (name.clone(), tensor(array))).collect());
        Some(Recorded { inputs, results: golden["results"].take() })
    }

    /// Returns an input, unless it is not recorded.
    pub fn input(&self, name: &str) -> Option<&Tensor> {
        self.inputs.0.get(name)
    }

    /// Returns torch's result, unless it is not recorded.
    pub fn output(&self, case: &str, mode: &str) -> Option<Tensor> {
        let output = self.results.get(case)?.get(mode)?.get("out")?;
        Some(tensor(output))
    }
}

#[test]
fn every_recorded_number() {
    replay("torch", "values", Recorded::read(), |recorded, tally| {
        for (name, modes) in entries(&recorded.results) {
            for (mode_name, output) in entries(modes) {
                let (case, mode) = (CASES.iter().find(|case| case.name == name), mode(mode_name));
                let (Some(case), Some(low)) = (case, mode) else {
                    tally.fail(format!("{name} {mode_name}"), "not understood");
                    continue;
                };
                for (which, output) in entries(output) {
                    let named = match &which[..] {
                        "out" => format!("{name} {mode_name}"),
                        // If it differs from the usual one: torch's own kernels, not those of the library it uses.
                        "out_mkldnn_off" => format!("{name} {mode_name} without oneDNN"),
                        _ => {
                            tally.fail(format!("{name} {mode_name} {which}"), "not understood");
                            continue;
                        }
                    };
                    tally.count(named, compare(case, &recorded.inputs, low, &tensor(output)));
                }
            }
        }
    });
}
