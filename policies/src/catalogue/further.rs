//! Op names in further systems, one table per system. Systems whose lists precast records have a column in `table.rs`
//! instead.

use super::Op;

/// Ops with their names in a system.
pub(super) type Names = &'static [(Op, &'static [&'static str])];

/// Returns the names of an op in a table.
pub(super) fn names(table: Names, op: Op) -> &'static [&'static str] {
    table.iter().find(|(known, _)| *known == op).map_or(&[], |(_, names)| names)
}

/// Operators of ONNX's default domain, with their names in opset 22.
pub(super) const ONNX: Names = &[
    (Op::Cast, &["Cast", "CastLike"]),
    (Op::MatMul, &["MatMul"]),
    (Op::Einsum, &["Einsum"]),
    (Op::Addmm, &["Gemm"]),
    (Op::Conv1d, &["Conv"]),
    (Op::Conv2d, &["Conv"]),
    (Op::Conv3d, &["Conv"]),
    (Op::ConvTranspose1d, &["ConvTranspose"]),
    (Op::ConvTranspose2d, &["ConvTranspose"]),
    (Op::ConvTranspose3d, &["ConvTranspose"]),
    (Op::FusedRnn, &["RNN", "GRU", "LSTM"]),
    (Op::MaxPool1d, &["MaxPool"]),
    (Op::MaxPool2d, &["MaxPool"]),
    (Op::MaxPool3d, &["MaxPool"]),
    (Op::AvgPool1d, &["AveragePool"]),
    (Op::AvgPool2d, &["AveragePool"]),
    (Op::AvgPool3d, &["AveragePool"]),
    (Op::BatchNorm, &["BatchNormalization"]),
    (Op::LayerNorm, &["LayerNormalization"]),
    (Op::GroupNorm, &["GroupNormalization"]),
    (Op::InstanceNorm, &["InstanceNormalization"]),
    (Op::Relu, &["Relu"]),
    (Op::Prelu, &["PRelu"]),
    (Op::LeakyRelu, &["LeakyRelu"]),
    (Op::Elu, &["Elu"]),
    (Op::Gelu, &["Gelu"]),
    (Op::Sigmoid, &["Sigmoid"]),
    (Op::Tanh, &["Tanh"]),
    (Op::Mish, &["Mish"]),
    (Op::Softplus, &["Softplus"]),
    (Op::HardSigmoid, &["HardSigmoid"]),
    (Op::HardSwish, &["HardSwish"]),
    (Op::Softmax, &["Softmax"]),
    (Op::LogSoftmax, &["LogSoftmax"]),
    (Op::Dropout, &["Dropout"]),
    (Op::Selu, &["Selu"]),
    (Op::Celu, &["Celu"]),
    (Op::Softsign, &["Softsign"]),
    (Op::Add, &["Add"]),
    (Op::Sub, &["Sub"]),
    (Op::Mul, &["Mul"]),
    (Op::Div, &["Div"]),
    (Op::Maximum, &["Max"]),
    (Op::Minimum, &["Min"]),
    (Op::Pow, &["Pow"]),
    (Op::Neg, &["Neg"]),
    (Op::Exp, &["Exp"]),
    (Op::Log, &["Log"]),
    (Op::Sqrt, &["Sqrt"]),
    (Op::Reciprocal, &["Reciprocal"]),
    (Op::Abs, &["Abs"]),
    (Op::Sign, &["Sign"]),
    (Op::Floor, &["Floor"]),
    (Op::Ceil, &["Ceil"]),
    (Op::Round, &["Round"]),
    (Op::Sin, &["Sin"]),
    (Op::Cos, &["Cos"]),
    (Op::Tan, &["Tan"]),
    (Op::Asin, &["Asin"]),
    (Op::Acos, &["Acos"]),
    (Op::Atan, &["Atan"]),
    (Op::Sinh, &["Sinh"]),
    (Op::Cosh, &["Cosh"]),
    (Op::Asinh, &["Asinh"]),
    (Op::Acosh, &["Acosh"]),
    (Op::Atanh, &["Atanh"]),
    (Op::Erf, &["Erf"]),
    (Op::Clamp, &["Clip"]),
    (Op::Equal, &["Equal"]),
    (Op::Less, &["Less"]),
    (Op::LessEqual, &["LessOrEqual"]),
    (Op::Greater, &["Greater"]),
    (Op::GreaterEqual, &["GreaterOrEqual"]),
    (Op::Where, &["Where"]),
    (Op::LogicalNot, &["Not"]),
    (Op::LogicalAnd, &["And"]),
    (Op::LogicalOr, &["Or"]),
    (Op::Sum, &["ReduceSum"]),
    (Op::Mean, &["ReduceMean"]),
    (Op::Max, &["ReduceMax"]),
    (Op::Min, &["ReduceMin"]),
    (Op::Prod, &["ReduceProd"]),
    (Op::CumSum, &["CumSum"]),
    (Op::ArgMax, &["ArgMax"]),
    (Op::ArgMin, &["ArgMin"]),
    (Op::LogSumExp, &["ReduceLogSumExp"]),
    (Op::Reshape, &["Reshape"]),
    (Op::Flatten, &["Flatten"]),
    (Op::Unsqueeze, &["Unsqueeze"]),
    (Op::Squeeze, &["Squeeze"]),
    (Op::Transpose, &["Transpose"]),
    (Op::Broadcast, &["Expand"]),
    (Op::Slice, &["Slice"]),
    (Op::Concat, &["Concat"]),
    (Op::Split, &["Split"]),
    (Op::Pad, &["Pad"]),
    (Op::IndexSelect, &["Gather"]),
    (Op::Gather, &["GatherElements"]),
    (Op::GatherNd, &["GatherND"]),
    (Op::TopK, &["TopK"]),
    (Op::Interpolate, &["Resize"]),
    (Op::GridSampler2d, &["GridSample"]),
    (Op::GridSampler3d, &["GridSample"]),
    (Op::AffineGrid, &["AffineGrid"]),
    (Op::Tile, &["Tile"]),
    (Op::Identity, &["Identity"]),
    (Op::Shape, &["Shape"]),
    (Op::Size, &["Size"]),
    (Op::IsInf, &["IsInf"]),
    (Op::IsNan, &["IsNaN"]),
    (Op::Nonzero, &["NonZero"]),
    (Op::OneHot, &["OneHot"]),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_op_has_one_row() {
        for (i, (op, names)) in ONNX.iter().enumerate() {
            assert!(!names.is_empty() && ONNX[..i].iter().all(|(other, _)| other != op), "{op}");
        }
    }
}
