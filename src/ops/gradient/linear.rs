//! Ops that are linear in each of their floating inputs.

use std::ops::Range;

use crate::{Op, Tensor, catalogue::Attributes};

/// The inputs of an op that are multiplied with one of its inputs, that one among them, if the op is linear in each of
/// its floating inputs. All other inputs are added to what these give.
pub(super) fn factors(op: Op, input: usize) -> Option<Range<usize>> {
    use Op::*;
    let product = match op {
        Einsum | MultiDot => 0..usize::MAX,
        Bilinear => 0..3,
        Addcmul | Addr => 1..3,
        MatMul | MatMulExt | BatchMatMul | Linear | Ger | Dot | Mv | Inner | Vecdot | Tensordot | Cross | Mul
        // Their sum comes last.
        | Addmm | Addbmm | Baddbmm | Addmv
        | Conv1d | Conv2d | Conv3d | ConvTranspose1d | ConvTranspose2d | ConvTranspose3d => 0..2,
        Cast | Neg | Add | Sub | BiasAdd | Lerp | Where | MaskedFill | Dropout | Sum | Mean | CumSum | Trace | NllLoss
        | Reshape | Flatten | Unsqueeze | Squeeze | Transpose | Broadcast | Slice | Split | Concat | Stack
        | Pad | ReflectionPad | ReplicationPad | PixelShuffle | SpaceToDepth
        | Gather | IndexSelect | Embedding | Scatter | ScatterAdd | IndexAdd | IndexCopy | IndexPut
        | AvgPool1d | AvgPool2d | AvgPool3d | AdaptiveAvgPool1d | AdaptiveAvgPool2d | AdaptiveAvgPool3d
        | Interpolate | AffineGrid | RotaryEmbedding => 0..0,
        _ => return None,
    };
    Some(if product.contains(&input) { product } else { input..input + 1 })
}

/// The inputs with another tensor in the place of one; what is added to the product is 0.
pub(super) fn with(inputs: &[Tensor], input: usize, other: &Tensor, factors: &Range<usize>) -> Vec<Tensor> {
    let of = |(i, x): (usize, &Tensor)| match (i == input, factors.contains(&i) || !x.dtype().is_float()) {
        (true, _) => other.clone(),
        (_, true) => x.clone(),
        (_, false) => Tensor::zeros(x.shape(), x.dtype()),
    };
    inputs.iter().enumerate().map(of).collect()
}

/// The attributes of the op without the number that it puts beside its input.
pub(super) fn without_constant(op: Op, attributes: &Attributes) -> Attributes {
    let mut attributes = attributes.clone();
    if matches!(op, Op::MaskedFill | Op::Pad) {
        attributes.set("value", &0.0);
    }
    attributes
}
