//! Paddle's names: of dtypes, and of ops in its lists and in its graphs.

use precast::{DType, Op, Result, op::System};

/// The dtype of a name of Paddle's. An integer is an integer here.
pub fn dtype(name: &str) -> Option<DType> {
    let name = if name == "int32" { "int64" } else { name };
    DType::ALL.into_iter().find(|dtype| dtype.long_name() == name)
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

/// What stands in a graph beside the ops of a function: casts, constants, and lists of tensors.
pub const BESIDE: &[&str] = &["assign", "builtin.combine", "builtin.split", "cast", "full", "full_int_array"];

/// The ops that Paddle's name may stand for.
pub fn named(name: &str) -> Result<Vec<Op>> {
    if name == "scale" {
        // Multiplies by a number and adds one: three functions here.
        return Ok(vec![Op::Scale, Op::Mul, Op::Add, Op::Neg]);
    }
    let listed = RENAMED.iter().find(|(renamed, _)| *renamed == name).map_or(name, |(_, listed)| listed);
    Op::named(&format!("{}:{listed}", System::Paddle))
}

/// Whether Paddle's lists go by this name: some of those in our catalogue stand for an op under an older name.
pub fn is_listed_so(entry: &str) -> bool {
    !RENAMED.iter().any(|(renamed, _)| *renamed == entry)
}
