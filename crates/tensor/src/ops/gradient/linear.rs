//! Ops that are linear in each of their floating inputs.

use std::ops::Range;

use crate::{Op, Tensor, catalogue::Attributes};

/// Returns the inputs that are multiplied with one input, including itself, if the op is linear in each of its floating
/// inputs. All other inputs are added to the product.
pub(super) fn factors(op: Op, input: usize) -> Option<Range<usize>> {
    use Op::*;
    let product = match op {
        Einsum | MultiDot => 0..usize::MAX,
        Bilinear => 0..3,
        Addcmul | Addr => 1..3,
        MatMul | MatMulExt | BatchMatMul | Linear | Ger | Dot | Mv | Inner | Vecdot | Tensordot | Cross | Mul
        // Their addend comes last.
        | Addmm | Addbmm | Baddbmm | Addmv
        | Conv1d | Conv2d | Conv3d | ConvTranspose1d | ConvTranspose2d | ConvTranspose3d => 0..2,
        Cast | Neg | Add | Sub | BiasAdd | Lerp | Where | MaskedFill | Dropout | Sum | Mean | CumSum | Trace | NllLoss
        | Reshape | Flatten | Unsqueeze | Squeeze | Transpose | Broadcast | Slice | Split | Concat | Stack
        | Pad | ReflectionPad | ReplicationPad | PixelShuffle | SpaceToDepth | Reverse | Roll | Tile | Tril | Triu
        | Gather | IndexSelect | Embedding | Scatter | ScatterAdd | IndexAdd | IndexCopy | IndexPut
        | AvgPool1d | AvgPool2d | AvgPool3d | AdaptiveAvgPool1d | AdaptiveAvgPool2d | AdaptiveAvgPool3d
        | Interpolate | AffineGrid | RotaryEmbedding => 0..0,
        _ => return None,
    };
    Some(if product.contains(&input) { product } else { input..input + 1 })
}

/// Replaces one input by another tensor. Inputs that are added to the product become 0.
pub(super) fn with(inputs: &[Tensor], input: usize, other: &Tensor, factors: &Range<usize>) -> Vec<Tensor> {
    let of = |(i, x): (usize, &Tensor)| match (i == input, factors.contains(&i) || !x.dtype().is_float()) {
        (true, _) => other.clone(),
        (_, true) => x.clone(),
        (_, false) => Tensor::zeros(x.shape(), x.dtype()),
    };
    inputs.iter().enumerate().map(of).collect()
}

/// Returns the attributes of the op with its additive constant set to 0.
pub(super) fn without_constant(op: Op, attributes: &Attributes) -> Attributes {
    let mut attributes = attributes.clone();
    if matches!(op, Op::MaskedFill | Op::Pad) {
        attributes.set("value", &0.0);
    }
    attributes
}
