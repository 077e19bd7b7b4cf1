//! Requirements of our rule on a form: the dtypes of the results, or the kind of error.
//!
//! It is written from COMPARE.md and torch's recorded lists, and is independent of `precision::resolve`, the packs and
//! the catalogue of ops: a list swapped there, or an op that mixes dtypes differently, leads to another answer than
//! this one.

use std::{collections::BTreeMap, sync::LazyLock};

use precast::{DType, ErrorKind};
use serde_json::Value;

use crate::replay::table;
use DType::{Bf16, Bool, F16, F32, F64, I64};

/// The dtypes of the results, or the kind of error.
pub type Answer = Result<Vec<DType>, ErrorKind>;

/// torch's policies of each device by the name of the op, without overloads.
static POLICIES: LazyLock<Value> = LazyLock::new(|| {
    let recorded = include_str!("../../goldens/torch/op_policy.json");
    serde_json::from_str(recorded).expect("the recorded policies")
});

/// Unlisted ops of torch that run like the listed op they are made of; here each is one op.
const MADE_OF: &[(&str, &str, Policy)] = &[
    ("cpu", "affine_grid_generator", Policy::Low),
    ("cpu", "einsum", Policy::Low),
    ("cpu", "inner", Policy::Low),
    ("cpu", "linalg_multi_dot", Policy::Low),
    ("cpu", "rnn_tanh_cell", Policy::Low),
    ("cpu", "tensordot", Policy::Low),
    ("cuda", "cross_entropy_loss", Policy::Full),
    ("cuda", "inner", Policy::Widest),
    ("cuda", "softmin", Policy::Full),
    ("cuda", "square", Policy::Full),
];

/// Effect of a region on the inputs of an op.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Policy {
    AsTheyCome,
    Low,
    Full,
    Widest,
    Banned,
}

fn policy(device: &str, op: &str) -> Policy {
    static BY_NAME: LazyLock<BTreeMap<(&str, &str), Policy>> = LazyLock::new(|| {
        let mut policies: BTreeMap<_, _> =
            MADE_OF.iter().map(|(device, op, policy)| ((*device, *op), *policy)).collect();
        for device in ["cpu", "cuda"] {
            for (name, policy) in POLICIES[device].as_object().expect("policies by op") {
                let policy = match policy.as_str().expect("a policy") {
                    "lower_precision_fp" => Policy::Low,
                    "fp32" | "fp32_set_opt_dtype" | "fp32_append_dtype" => Policy::Full,
                    "promote" => Policy::Widest,
                    "banned" => Policy::Banned,
                    custom if custom.contains("to lower_precision_fp") => Policy::Low,
                    other => panic!("{name} has the policy {other}"),
                };
                let name = name.strip_prefix("aten::").expect("an op of aten");
                policies.insert((device, name.split('.').next().expect("a name")), policy);
            }
        }
        policies
    });
    BY_NAME.get(&(device, op)).copied().unwrap_or(Policy::AsTheyCome)
}

/// Treatment of floating-point inputs whose dtypes differ after the region has cast.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Mixing {
    /// Like arithmetic: all become the widest.
    Promote,
    /// Like matrix products: an error.
    Refuse,
    /// Like norms: the result has the first input's dtype.
    First,
}

/// Returns the narrowest dtype that holds the numbers of both.
fn wider(a: DType, b: DType) -> DType {
    match (a, b) {
        (a, b) if a == b => a,
        (F64, _) | (_, F64) => F64,
        // f16 has more digits, bf16 more range: neither holds the other.
        _ => F32,
    }
}

/// A region; outside of any, `low` is `None`.
#[derive(Clone, Copy)]
pub struct Region {
    pub device: &'static str,
    pub low: Option<DType>,
}

impl Region {
    fn policy(self, op: &str) -> Policy {
        match self.low {
            None => Policy::AsTheyCome,
            Some(_) => policy(self.device, op),
        }
    }

    /// Returns the dtypes of an op's inputs after the region has cast. f64 is never cast.
    fn cast(self, op: &str, x: &[DType]) -> Answer {
        let castable = |dtype: DType| matches!(dtype, F32 | F16 | Bf16);
        let to = match self.policy(op) {
            Policy::AsTheyCome => None,
            Policy::Low => self.low,
            Policy::Full => Some(F32),
            Policy::Widest => x.iter().copied().filter(|dtype| castable(*dtype)).reduce(wider),
            Policy::Banned => return Err(ErrorKind::List),
        };
        Ok(x.iter().map(|dtype| if castable(*dtype) { to.unwrap_or(*dtype) } else { *dtype }).collect())
    }

    /// Returns the dtype of one op's result.
    fn op(self, op: &str, mixing: Mixing, x: &[DType]) -> Result<DType, ErrorKind> {
        let x = self.cast(op, x)?;
        match mixing {
            Mixing::First => Ok(x[0]),
            Mixing::Promote => Ok(x.iter().copied().reduce(wider).expect("an input")),
            Mixing::Refuse if x.iter().all(|dtype| *dtype == x[0]) => Ok(x[0]),
            Mixing::Refuse => Err(ErrorKind::DType),
        }
    }
}

/// Ops of forms with a different name.
const CALLED: &str = "
    __matmul__: matmul; linear_nobias: linear; nn.Linear(f32 params): linear; einsum_hadamard: einsum; chain_matmul:
    linalg_multi_dot; conv1d_padding_same: conv1d; conv2d_padding_same: conv2d; convolution: conv2d; rnn_relu_cell:
    rnn_tanh_cell; vdot: dot; sdpa_float_mask: scaled_dot_product_attention; nn.LayerNorm(f32 params): layer_norm;
    nn.BatchNorm1d(f32 params): batch_norm; nn.GroupNorm(f32 params): group_norm; nn.PReLU(f32 params): prelu;
    layer_norm_noaffine: layer_norm; batch_norm_train: batch_norm; batch_norm_eval: batch_norm; softmax_dtype_f32:
    softmax; softmax_dtype_f16: softmax; pow_scalar_exp: pow; pow_tensor_tensor: pow; pow_scalar_base: pow;
    __rpow__: pow; __rtruediv__: reciprocal; sum_dim: sum; sum_dtype_f16: sum; prod_dim: prod; prod_dtype_f16: prod;
    norm_p1_dim: norm; linalg_norm: norm; frobenius_norm: norm; linalg_matrix_norm: norm; cross_entropy:
    cross_entropy_loss; cross_entropy_soft: cross_entropy_loss; hstack: cat; add_scalar: add; mul_scalar_int: mul;
    mul_0dim_f32_tensor: mul; mul_0dim_f64_tensor: mul; mul_1dim_f32_tensor: mul; grid_sample: grid_sampler;
    affine_grid: affine_grid_generator; interpolate_nearest2d: upsample_nearest2d; interpolate_linear1d:
    upsample_linear1d; interpolate_bilinear2d: upsample_bilinear2d; interpolate_bicubic2d: upsample_bicubic2d;
    interpolate_trilinear3d: upsample_trilinear3d; constant_pad: constant_pad_nd
";

/// Returns torch's name for whole recurrent layers; each device has its own, and here they are one op.
fn whole_layer(device: &str) -> &'static str {
    if device == "cpu" { "mkldnn_rnn_layer" } else { "_cudnn_rnn" }
}

/// Forms of several inputs that refuse mixed dtypes: products, and forms made of products.
const REFUSE: &str = "
    matmul mm mv bmm addmm addmv addbmm baddbmm linear einsum linalg_multi_dot linalg_vecdot inner tensordot
    bilinear conv1d conv2d conv3d conv_transpose1d conv_transpose2d conv_transpose3d scaled_dot_product_attention
    lstm_cell gru_cell rnn_tanh_cell mkldnn_rnn_layer _cudnn_rnn prelu
";

/// Norms, which return the dtype of their normalized input.
const FIRST: &[&str] = &["layer_norm", "rms_norm", "group_norm", "batch_norm"];

/// Forms whose result is a truth value, whatever the inputs are.
const TRUTH: &[&str] = &["eq", "lt", "equal", "allclose"];

/// Returns the op of a form.
fn op_of(form: &str, device: &str) -> &'static str {
    match form {
        "nn.LSTM(f32 params)" | "nn.GRU(f32 params)" => whole_layer(device),
        _ => match table(CALLED).find(|(called, _)| *called == form) {
            Some((_, op)) => op,
            None => crate::torch::forms::FORMS.iter().find(|known| known.name == form).expect("a known form").name,
        },
    }
}

/// Returns the dtypes of the further inputs of a form: parameters and other tensors.
fn beside(form: &str) -> &'static [DType] {
    match form {
        "nn.Linear(f32 params)" | "nn.LayerNorm(f32 params)" | "nn.BatchNorm1d(f32 params)" => &[F32, F32],
        // The running mean and variance are f32.
        "nn.GroupNorm(f32 params)" | "batch_norm_train" => &[F32, F32],
        "nn.LSTM(f32 params)" | "nn.GRU(f32 params)" => &[F32, F32, F32, F32],
        "nn.PReLU(f32 params)" | "mul_0dim_f32_tensor" | "mul_1dim_f32_tensor" => &[F32],
        "mul_0dim_f64_tensor" => &[F64],
        _ => &[],
    }
}

/// Returns all dtypes combined in a form.
fn meeting(form: &str, inputs: &[DType]) -> Vec<DType> {
    match form {
        // For each argument the product with a parameter.
        "nn.MultiheadAttention(f32 params)" => [inputs, &[F32]].concat(),
        _ => [inputs, beside(form)].concat(),
    }
}

/// Returns the requirement of our rule on a form with a kernel.
pub fn demands(form: &str, region: Region, inputs: &[DType]) -> Answer {
    use Mixing::{First, Promote, Refuse};
    let x = meeting(form, inputs);
    let op = op_of(form, region.device);
    let mixing = match op {
        op if REFUSE.split_whitespace().any(|refuses| refuses == op) => Refuse,
        op if FIRST.contains(&op) => First,
        _ => Promote,
    };
    let result = || region.op(op, mixing, &x);
    match form {
        // Several ops in sequence.
        "nn.MultiheadAttention(f32 params)" => {
            let projected =
                inputs.iter().map(|x| region.op("linear", Refuse, &[*x, F32, F32])).collect::<Result<Vec<_>, _>>()?;
            let attended = region.op("scaled_dot_product_attention", Refuse, &projected)?;
            Ok(vec![region.op("linear", Refuse, &[attended, F32, F32])?])
        }
        "gumbel_softmax" => Ok(vec![region.op("softmax", First, &[region.op("add", Promote, &x)?])?]),
        "normalize" => Ok(vec![region.op("div", Promote, &[x[0], region.op("norm", First, &x)?])?]),
        "local_response_norm" => {
            let squares = region.op("square", First, &x)?;
            Ok(vec![region.op("div", Promote, &[x[0], region.op("pow", First, &[squares])?])?])
        }
        "multilabel_soft_margin_loss" => Ok(vec![region.op("sum", First, &[result()?])?]),
        // Dtype of the result given by the caller.
        "to_f32" | "creation_rand" | "softmax_dtype_f32" => Ok(vec![F32]),
        "softmax_dtype_f16" | "sum_dtype_f16" | "prod_dtype_f16" => Ok(vec![F16]),
        // A number out of range.
        "masked_fill" if result()? == F16 => Err(ErrorKind::Value),
        // Results of another kind than the inputs.
        "argmax" => result().map(|_| vec![I64]),
        "topk" | "sort" => Ok(vec![result()?, I64]),
        // On a CPU these cells are on no list, so a region runs them as the ops they are made of.
        "lstm_cell" if region.low.is_some() && region.device == "cpu" => {
            let (input, hidden) =
                (region.op("linear", Refuse, &[x[0], x[3], x[5]])?, region.op("linear", Refuse, &[x[1], x[4], x[6]])?);
            let gates = region.op("add", Promote, &[input, hidden])?;
            let gate = region.op("sigmoid", First, &[gates])?;
            let (old, new) = (
                region.op("mul", Promote, &[gate, x[2]])?,
                region.op("mul", Promote, &[gate, region.op("tanh", First, &[gates])?])?,
            );
            let c = region.op("add", Promote, &[old, new])?;
            Ok(vec![region.op("mul", Promote, &[gate, region.op("tanh", First, &[c])?])?, c])
        }
        "gru_cell" if region.low.is_some() && region.device == "cpu" => {
            let (input, hidden) =
                (region.op("linear", Refuse, &[x[0], x[2], x[4]])?, region.op("linear", Refuse, &[x[1], x[3], x[5]])?);
            let gate = region.op("sigmoid", First, &[region.op("add", Promote, &[input, hidden])?])?;
            let new = region.op("add", Promote, &[input, region.op("mul", Promote, &[gate, hidden])?])?;
            let new = region.op("tanh", First, &[new])?;
            let step = region.op("mul", Promote, &[gate, region.op("sub", Promote, &[x[1], new])?])?;
            Ok(vec![region.op("add", Promote, &[new, step])?])
        }
        "lstm_cell" => result().map(|dtype| vec![dtype; 2]),
        "nn.GRU(f32 params)" => result().map(|dtype| vec![dtype; 2]),
        "nn.LSTM(f32 params)" => result().map(|dtype| vec![dtype; 3]),
        _ if TRUTH.contains(&op) => result().map(|_| vec![Bool]),
        _ => Ok(vec![result()?]),
    }
}

/// Returns the requirement of our rule on an op that is only decided: the dtypes of its inputs after the casts.
pub fn decides(form: &str, region: Region, inputs: &[DType]) -> Answer {
    region.cast(op_of(form, region.device), inputs)
}
