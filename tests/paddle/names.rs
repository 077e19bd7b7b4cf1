//! Paddle's names: of dtypes, and of ops in its lists and in its graphs.

use precast::{DType, Op, Result, catalogue::System};

/// The dtype of a name of Paddle's, or of the printed form of one of its dtype objects: `float16`, `'float16'`,
/// `paddle.float16`, `DataType.FLOAT16`, `<VarType.FP16: 4>`, or the bare number of one. An integer is an integer here.
pub fn dtype(printed: &str) -> Option<DType> {
    let printed = printed.trim().trim_matches(['\'', '"', '<', '>']);
    let name = printed.split(':').next()?.rsplit('.').next()?.trim().to_lowercase();
    Some(match name.as_str() {
        "float16" | "fp16" | "half" => DType::F16,
        // `uint16` is how Paddle's checks call bf16.
        "bfloat16" | "bf16" | "uint16" => DType::Bf16,
        "float32" | "fp32" | "float" => DType::F32,
        "float64" | "fp64" | "double" => DType::F64,
        "int64" | "int32" | "int16" | "int8" | "uint8" => DType::I64,
        "bool" => DType::Bool,
        // `VarType` and `DataType` share no number of a floating dtype.
        "4" | "15" => DType::F16,
        "22" | "16" => DType::Bf16,
        "5" | "10" => DType::F32,
        "6" | "11" => DType::F64,
        _ => return None,
    })
}

/// Whether a dtype is written as an object of Paddle's, not as a word between quotes.
pub fn is_object(printed: &str) -> bool {
    !printed.trim().starts_with(['\'', '"'])
}

/// Paddle's lists go by the names that ops have had since its first version; its graphs say others.
const RENAMED: &[(&str, &str)] = &[
    ("add", "elementwise_add"),
    ("amax", "reduce_amax"),
    ("amin", "reduce_amin"),
    ("argmax", "arg_max"),
    ("batch_norm_", "batch_norm"),
    ("bicubic_interp", "bicubic_interp_v2"),
    ("bilinear_interp", "bilinear_interp_v2"),
    ("cross_entropy_with_softmax", "softmax_with_cross_entropy"),
    ("divide", "elementwise_div"),
    ("embedding", "lookup_table_v2"),
    ("expand", "expand_v2"),
    ("flatten", "flatten_contiguous_range"),
    ("floor_divide", "elementwise_floordiv"),
    ("fmax", "elementwise_fmax"),
    ("fmin", "elementwise_fmin"),
    ("full_like", "fill_any_like"),
    ("hardsigmoid", "hard_sigmoid"),
    ("hardswish", "hard_swish"),
    ("hardtanh", "brelu"),
    ("isfinite", "isfinite_v2"),
    ("isnan", "isnan_v2"),
    ("matmul", "matmul_v2"),
    ("max", "reduce_max"),
    ("maximum", "elementwise_max"),
    ("mean", "reduce_mean"),
    ("mean_all", "mean"),
    ("min", "reduce_min"),
    ("minimum", "elementwise_min"),
    ("multiply", "elementwise_mul"),
    ("nearest_interp", "nearest_interp_v2"),
    ("prod", "reduce_prod"),
    ("remainder", "elementwise_mod"),
    ("squeeze", "squeeze2"),
    ("subtract", "elementwise_sub"),
    ("sum", "reduce_sum"),
    ("topk", "top_k_v2"),
    ("transpose", "transpose2"),
    ("unsqueeze", "unsqueeze2"),
];

/// What stands in a graph beside the ops of a function: casts, constants, numbers of elements, and lists of tensors.
pub const BESIDE: &[&str] =
    &["assign", "builtin.combine", "builtin.split", "cast", "full", "full_int_array", "full_like", "numel"];

/// The ops that Paddle's name may stand for.
pub fn named(name: &str) -> Result<Vec<Op>> {
    if name == "scale" {
        // Multiplies by a number and adds one: three functions here.
        return Ok(vec![Op::Scale, Op::Mul, Op::Add, Op::Neg]);
    }
    Op::named(&format!("{}:{}", System::Paddle, listed(name)))
}

/// The name by which Paddle's lists go for an op of its graphs.
pub fn listed(name: &str) -> &str {
    RENAMED.iter().find(|(renamed, _)| *renamed == name).map_or(name, |(_, listed)| listed)
}
