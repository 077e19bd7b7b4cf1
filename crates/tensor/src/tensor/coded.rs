//! Activations that the tape keeps in 8 bits, by rules of a policy (`kept`). Their gradients are those of the rounded numbers.

use std::sync::Arc;

use half::{bf16, f16};
use precast_kernels::{codes::Rows, elementwise::peak::Magnitude, float::Float};
use precast_policy::policy::Format;

use super::{Array, Stored, Tensor, Unread, Value, context, elements, tape::Place};
use crate::{DType, Op, catalogue::Family};

/// Numbers in 8 bits, of which a tensor is made when it is read.
#[derive(Clone)]
pub(crate) struct Coded {
    pub rows: Arc<Rows>,
    pub dtype: DType,
    pub shape: Vec<usize>,
}

/// Fewest numbers of a row: of a shorter one, the scale takes more than a quarter of what its codes save.
const SHORTEST: usize = 16;
/// Numbers of a row up to which the axis before it is joined to it.
const SHORT: usize = 64;

impl Coded {
    pub fn compute(&self) -> Array {
        let array = match self.dtype {
            DType::F16 => Array::from_vec(self.rows.numbers::<f16>(), &self.shape),
            DType::Bf16 => Array::from_vec(self.rows.numbers::<bf16>(), &self.shape),
            _ => Array::from_vec(self.rows.numbers::<f32>(), &self.shape),
        };
        array.expect("one code for each element")
    }

    /// Returns a tensor whose elements are made when they are read, and dropped with it.
    pub fn into_tensor(self) -> Tensor {
        Tensor::new(Unread::Coded(self).into(), Place::None, None)
    }
}

impl Tensor {
    /// Returns the codes of which this tensor is still to be made; `None` for another one.
    pub(super) fn coded(&self) -> Option<Coded> {
        // Most are computed, which needs no lock.
        if self.0.data.get().is_some() {
            return None;
        }
        match self.0.data.unread()? {
            Unread::Coded(coded) => Some(coded),
            _ => None,
        }
    }

    /// Returns the codes in place of which the tape would keep a tensor that an op saves, if a rule says so. It is an input, the
    /// result, or as large as the result, so that statistics stay as they are; it has 32 or 16 bits, and finite numbers alone. A
    /// recomputed cell reads its activations at once, and keeps them as they are.
    pub(super) fn to_codes(&self, op: Op, inputs: &[Tensor], result: &Value) -> Option<Coded> {
        let format = context::kept().filter(|_| bears_rounding(op) && !context::in_backward())?;
        let source = self.0.narrow.as_ref().unwrap_or(self);
        if self.0.of_parameter || self.is_view_of_leaf() || source.0.data.get().is_none() {
            return None;
        }
        let address = |value: &Value| value.get().map(Array::address);
        let own = address(&source.0.data);
        let (is_input, is_result) = (inputs.iter().any(|x| x.identity() == self.identity()), address(result) == own);
        if !is_input && !is_result && self.len() < result.layout().1.iter().product() {
            return None;
        }
        let width = row(self.shape())?;
        let rows = match source.dtype() {
            DType::F16 => source.rows::<f16>(format, width),
            DType::Bf16 => source.rows::<bf16>(format, width),
            DType::F32 => source.rows::<f32>(format, width),
            _ => None,
        };
        let rows = rows?;
        // The ops that read the result save the same codes.
        if is_result && result.layout() == (source.dtype(), self.shape().to_vec()) {
            let _ = result.coded(format, || Some(rows.clone()));
        }
        Some(Coded { rows, dtype: self.dtype(), shape: self.shape().to_vec() })
    }

    fn rows<T: Stored + Float<Wide = f32> + Magnitude>(&self, format: Format, width: usize) -> Option<Arc<Rows>> {
        self.0.data.coded(format, || Rows::new(format, &elements::<T>(self), width).ok().flatten().map(Arc::new))
    }

    /// Returns whether the numbers are those of a leaf, as cast, reshaped or transposed: they are in memory anyway.
    fn is_view_of_leaf(&self) -> bool {
        let mut place = self.place();
        while let Place::Node(node) = place {
            let is_view = node.op.is_some_and(|op| op == Op::Cast || op.family() == Some(Family::View));
            let Some(input) = node.inputs.first().filter(|_| is_view) else { return false };
            place = input;
        }
        place.leaf().is_some()
    }
}

/// Returns the length of the rows of a tensor: the last axis, joined with those before it, but for the first, while it is
/// short; `None` where rows are too short.
fn row(shape: &[usize]) -> Option<usize> {
    let (&last, before) = shape.split_last()?;
    let joined = before.iter().skip(1).rev();
    let width = joined.fold(last, |width, axis| if width < SHORT { width * axis } else { width });
    (width >= SHORTEST).then_some(width)
}

/// Returns whether the gradients of an op depend little on the last digits of what it saves: products, norms, and functions
/// without poles. Logarithms, roots, quotients and losses keep their numbers.
fn bears_rounding(op: Op) -> bool {
    match op.family() {
        Some(
            Family::Product
            | Family::SummedProduct
            | Family::ProductChain
            | Family::Contraction
            | Family::Bilinear
            | Family::Convolution
            | Family::TransposedConvolution
            | Family::Attention
            | Family::Recurrent
            | Family::Norm,
        ) => true,
        _ => matches!(
            op,
            Op::Mul
                | Op::Relu
                | Op::Prelu
                | Op::LeakyRelu
                | Op::Elu
                | Op::Gelu
                | Op::Silu
                | Op::Sigmoid
                | Op::Tanh
                | Op::Mish
                | Op::Softplus
                | Op::HardSigmoid
                | Op::HardSwish
                | Op::HardTanh
                | Op::Relu6
                | Op::Softmax
                | Op::Selu
                | Op::Celu
                | Op::Glu
        ),
    }
}
