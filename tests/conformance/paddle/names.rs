//! Paddle's names: of dtypes, and of ops in its lists and in its graphs.

use precast::{DType, Op, Result, catalogue::System};

use crate::replay::table;

/// Parses Paddle's name of a dtype, or the printed form of one of its dtype objects: `float16`, `'float16'`,
/// `paddle.float16`, `DataType.FLOAT16`, `<VarType.FP16: 4>`, or the bare number of one. An integer is an integer here.
pub fn dtype(printed: &str) -> Option<DType> {
    let printed = printed.trim().trim_matches(['\'', '"', '<', '>']);
    let name = printed.split(':').next()?.rsplit('.').next()?.trim().to_lowercase();
    Some(match name.as_str() {
        "float16" | "fp16" | "half" => DType::F16,
        // `uint16` is the name of bf16 in Paddle's checks.
        "bfloat16" | "bf16" | "uint16" => DType::Bf16,
        "float32" | "fp32" | "float" => DType::F32,
        "float64" | "fp64" | "double" => DType::F64,
        "int64" | "int32" | "int16" | "int8" | "uint8" => DType::I64,
        "bool" => DType::Bool,
        // `VarType` and `DataType` share no number of a floating-point dtype.
        "4" | "15" => DType::F16,
        "22" | "16" => DType::Bf16,
        "5" | "10" => DType::F32,
        "6" | "11" => DType::F64,
        _ => return None,
    })
}

/// Returns whether a dtype is written as a Paddle object, not as a quoted word.
pub fn is_object(printed: &str) -> bool {
    !printed.trim().starts_with(['\'', '"'])
}

/// Paddle's lists use the original names of ops; its graphs use others.
const RENAMED: &str = "
    add: elementwise_add; amax: reduce_amax; amin: reduce_amin; argmax: arg_max; batch_norm_: batch_norm;
    bicubic_interp: bicubic_interp_v2; bilinear_interp: bilinear_interp_v2;
    cross_entropy_with_softmax: softmax_with_cross_entropy; divide: elementwise_div; embedding: lookup_table_v2;
    expand: expand_v2; flatten: flatten_contiguous_range; floor_divide: elementwise_floordiv; fmax: elementwise_fmax;
    fmin: elementwise_fmin; full_like: fill_any_like; hardsigmoid: hard_sigmoid; hardswish: hard_swish;
    hardtanh: brelu; isfinite: isfinite_v2; isnan: isnan_v2; matmul: matmul_v2; max: reduce_max;
    maximum: elementwise_max; mean: reduce_mean; mean_all: mean; min: reduce_min; minimum: elementwise_min;
    multiply: elementwise_mul; nearest_interp: nearest_interp_v2; prod: reduce_prod; remainder: elementwise_mod;
    squeeze: squeeze2; subtract: elementwise_sub; sum: reduce_sum; topk: top_k_v2; transpose: transpose2;
    unsqueeze: unsqueeze2;
";

/// Entries of a graph other than the ops of a function: casts, constants, numbers of elements, and lists of tensors.
pub const BESIDE: &[&str] =
    &["assign", "builtin.combine", "builtin.split", "cast", "full", "full_int_array", "full_like", "numel"];

/// Returns the ops that Paddle's name may mean.
pub fn named(name: &str) -> Result<Vec<Op>> {
    if name == "scale" {
        // Multiplies by a number and adds one: three functions here.
        return Ok(vec![Op::Scale, Op::Mul, Op::Add, Op::Neg]);
    }
    Op::named(&format!("{}:{}", System::Paddle, listed(name)))
}

/// Returns the name on Paddle's lists for an op of its graphs.
pub fn listed(name: &str) -> &str {
    table(RENAMED).find(|(renamed, _)| *renamed == name).map_or(name, |(_, listed)| listed)
}

/// Names on Paddle's lists for ops here, if they are not the op's own name in lower case.
const CALLED: &str = "
    AdaptiveAvgPool2d: pool2d; Add: elementwise_add; AvgPool2d: pool2d; BatchMatMul: bmm;
    BatchNorm: batch_norm sync_batch_norm; BceWithLogits: sigmoid_cross_entropy_with_logits;
    BinaryCrossEntropy: bce_loss; Broadcast: expand_v2; Clamp: clip; Conv2d: conv2d depthwise_conv2d;
    ConvTranspose2d: conv2d_transpose; CrossEntropy: softmax_with_cross_entropy cross_entropy cross_entropy2;
    CumProd: cumprod; CumSum: cumsum; Div: elementwise_div; Embedding: lookup_table_v2 lookup_table;
    Flatten: flatten_contiguous_range; FloorDiv: elementwise_floordiv; Fmax: elementwise_fmax; Fmin: elementwise_fmin;
    Ger: outer; HardTanh: brelu; IndexSelect: gather index_select;
    Interpolate: nearest_interp_v2 linear_interp_v2 bilinear_interp_v2 bicubic_interp_v2 trilinear_interp_v2;
    IsFinite: isfinite_v2; IsNan: isnan_v2; KlDiv: kldiv_loss; Less: less_than; Linear: linear_v2 fused_gemm_epilogue;
    LogSigmoid: logsigmoid; LogSumExp: logsumexp; MatMul: matmul_v2 matmul mul; MatMulExt: matmul_v2 matmul;
    Max: reduce_max reduce_amax; MaxPool2d: pool2d; Maximum: elementwise_max; Mean: reduce_mean mean;
    Min: reduce_min reduce_amin; Minimum: elementwise_min; Mul: elementwise_mul; Norm: p_norm;
    Pow: pow elementwise_pow; Prod: reduce_prod; Remainder: elementwise_mod; Reverse: flip;
    ScaledDotProductAttention: flash_attn; Silu: silu swish; Sort: argsort; Split: split split_with_num;
    Squeeze: squeeze2; Sub: elementwise_sub; Sum: reduce_sum sum; TopK: top_k_v2; Transpose: transpose2;
    Unsqueeze: unsqueeze2;
";

/// Ops here that Paddle decomposes: these parts are on lists.
const IN_PIECES: &str = "
    Conv1d: conv2d; CosineSimilarity: reduce_sum; L1Loss: mean; MseLoss: square reduce_mean;
    SmoothL1Loss: huber_loss reduce_mean; Std: reduce_mean pow reduce_sum; Var: reduce_mean pow reduce_sum;
";

/// Returns whether a row of a table has the name.
fn has(names: &str, name: &str) -> bool {
    names.split(' ').any(|known| known == name)
}

fn row(rows: &'static str, op: Op) -> Option<&'static str> {
    table(rows).find(|(known, _)| *known == op.name()).map(|(_, names)| names)
}

/// Converts `LeakyRelu` to `leaky_relu`.
fn in_small_letters(op: Op) -> String {
    let mut small = String::new();
    for c in op.name().chars() {
        if c.is_uppercase() && !small.is_empty() {
            small.push('_');
        }
        small.extend(c.to_lowercase());
    }
    small
}

/// Returns whether a custom list means an op here by this name: one used for it by Paddle's lists or graphs, or its own
/// in lower case, unless that is another op of Paddle's, as `mul` is.
pub fn is_called(op: Op, name: &str) -> bool {
    let called = row(CALLED, op).unwrap_or_default();
    let is_anothers = || table(CALLED).any(|(_, names)| has(names, name));
    has(called, name) || has(called, listed(name)) || in_small_letters(op) == name && !is_anothers()
}

/// Returns whether an op here is covered by this name on one of Paddle's own lists.
pub fn stands_at(op: Op, name: &str) -> bool {
    row(IN_PIECES, op).map_or_else(|| is_called(op, name), |pieces| has(pieces, name))
}

/// Names of Paddle's graphs that have no effect on its lists, and that mean no op here.
pub const OF_GRAPHS_ALONE: &str = "
    batch_norm_ bicubic_interp bilinear_interp builtin.combine builtin.split cross_entropy_with_softmax
    full_int_array full_like kron mean_all nearest_interp numel reduce_any
";

/// Returns whether the tables here have the name.
pub fn is_in_a_table(name: &str) -> bool {
    let renamed = table(RENAMED).any(|(renamed, listed)| [renamed, listed].contains(&name));
    renamed || table(CALLED).any(|(_, names)| has(names, name))
}
