//! Ops and their properties, generated from the rows of the op table.

use super::{Custom, Foreign, System};
use crate::op_table;

/// Handling of floating inputs of different dtypes when no policy decides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mixing {
    /// All inputs are promoted to the widest dtype, as in arithmetic.
    Promotes,
    /// An error, since silently widening a matrix product would hide a forgotten cast.
    Refuses,
    /// Each input keeps its dtype, and the op itself handles the mix.
    Keeps,
}

/// Kind of work of an op, which determines the machine rate that applies to it and its number of multiplications.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Family {
    /// Another shape for the same elements, without moving data.
    View,
    /// Matrix product of the first two inputs, plus an optional third.
    Product,
    /// Like `Product`, summed over the batch.
    SummedProduct,
    /// Product over arbitrary axes.
    Contraction,
    /// `a · w · b` for each output.
    Bilinear,
    /// Sequence of matrix products.
    ProductChain,
    /// Scaled dot-product attention with its softmax.
    Attention,
    /// Products of input and state with their weights at each step.
    Recurrent,
    /// Convolution.
    Convolution,
    /// Transposed convolution.
    TransposedConvolution,
    /// Normalisation.
    Norm,
    /// Pooling.
    Pool,
    /// One number for each pair of rows, computed from all their elements.
    Distance,
    /// Expensive work per element: tanh, gelu, softmax.
    Function,
    /// Cheap work per element: relu, sums, copies.
    Elementwise,
}

macro_rules! op_enum {
    (
        kernels {
            $($(#[$doc:meta])* $op:ident $mixing:ident $family:ident $method:ident $arguments:tt [$($names:literal),*];)*
        }
        decided_only { $($(#[$without_doc:meta])* $without:ident [$($without_names:literal),*];)* }
    ) => {
        /// Primitive op.
        ///
        /// The catalogue has every op named in a list of MindSpore, Paddle, torch or TensorFlow. Those used by networks
        /// have a [kernel](Op::has_kernel). For the others, precast only decides the precision they would run in.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[non_exhaustive]
        #[allow(missing_docs, reason = "the name says it; ops with a kernel are documented at their function")]
        pub enum Op {
            $($(#[$doc])* $op,)*
            $($(#[$without_doc])* $without,)*
            /// User-defined op: see `CustomOp` of precast.
            Custom(Custom),
            /// Op of another library: see [`Op::foreign`] and [`System::is_open`].
            Foreign(Foreign),
        }

        impl Op {
            /// All ops of the catalogue, without [custom](Op::Custom) and [foreign](Op::Foreign) ops.
            pub const ALL: &[Op] = &[$(Op::$op,)* $(Op::$without,)*];

            /// Returns the name in this library.
            pub fn name(self) -> &'static str {
                match self {
                    $(Op::$op => stringify!($op),)*
                    $(Op::$without => stringify!($without),)*
                    Op::Custom(op) => op.name(),
                    Op::Foreign(op) => op.name(),
                }
            }

            /// Returns the names of this op in a system, if any.
            pub fn names(self, system: System) -> impl Iterator<Item = &'static str> + Clone {
                let columns: &'static [&'static str] = match self {
                    $(Op::$op => &[$($names),*],)*
                    $(Op::$without => &[$($without_names),*],)*
                    Op::Custom(_) | Op::Foreign(_) => &[],
                };
                let here = columns.get(system as usize).copied().unwrap_or_default().split_whitespace();
                let own = match self {
                    Op::Foreign(op) => Some(op.parts()).filter(|(library, _)| *library == system.name()),
                    _ => None,
                };
                here.chain(system.further_names(self).iter().copied()).chain(own.map(|(_, name)| name))
            }

            pub(crate) fn mixing(self) -> Mixing {
                match self {
                    $(Op::$op => Mixing::$mixing,)*
                    $(Op::$without => Mixing::Keeps,)*
                    Op::Foreign(_) => Mixing::Keeps,
                    // Lets a simple backward pass return gradients of the right dtype.
                    Op::Custom(_) => Mixing::Promotes,
                }
            }

            /// Returns the kind of work, or `None` for an op that this library cannot run.
            pub fn family(self) -> Option<Family> {
                match self {
                    $(Op::$op => Some(Family::$family),)*
                    $(Op::$without => None,)*
                    Op::Foreign(_) => None,
                    Op::Custom(_) => Some(Family::Function),
                }
            }
        }
    };
}
op_table!(op_enum);

impl Op {
    /// Returns whether the second input is a weight, the optional third a bias, and the gradients are computed from the
    /// first two inputs.
    pub fn has_weight(self) -> bool {
        matches!(
            self,
            Op::Linear
                | Op::Conv1d
                | Op::Conv2d
                | Op::Conv3d
                | Op::ConvTranspose1d
                | Op::ConvTranspose2d
                | Op::ConvTranspose3d
        )
    }

    /// Returns whether this library can run the op. For an op without a kernel, it only decides the precision.
    pub fn has_kernel(self) -> bool {
        self.family().is_some()
    }
}
