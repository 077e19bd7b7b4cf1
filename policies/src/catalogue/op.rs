//! The ops themselves, and what the row of each says of it.

use super::{Custom, Foreign, System, table::op_table};

/// How an op treats floating inputs of different dtypes when no policy has spoken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[doc(hidden)]
pub enum Mixing {
    /// All are promoted to the widest, as arithmetic does.
    Promotes,
    /// An error: silently widening a matrix product would hide that a cast was forgotten.
    Refuses,
    /// Each input keeps its dtype; the op itself says what that means.
    Keeps,
}

/// What kind of work an op is: which of a machine's rates it goes by, and how many multiplications it has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[doc(hidden)]
pub enum Family {
    /// Another shape for the same elements; nothing is moved.
    View,
    /// A matrix product of the first two inputs, to which a third may be added.
    Product,
    /// As `Product`, summed over the batch.
    SummedProduct,
    /// A product over any axes.
    Contraction,
    /// `a · w · b` for each output.
    Bilinear,
    /// Matrix products one after the other.
    ProductChain,
    /// Scaled dot products with their softmax.
    Attention,
    /// The products of input and state with their weights, at each step.
    Recurrent,
    /// A convolution.
    Convolution,
    /// A transposed convolution.
    TransposedConvolution,
    /// A normalisation.
    Norm,
    /// A pool.
    Pool,
    /// A number for each pair of rows, of all their elements.
    Distance,
    /// Much work for each element: tanh, gelu, softmax.
    Function,
    /// Little work for each element: relu, sums, copies.
    Elementwise,
}

macro_rules! op_enum {
    (
        kernels {
            $($(#[$doc:meta])* $op:ident $mixing:ident $family:ident $method:ident $arguments:tt [$($names:literal),*];)*
        }
        decided_only { $($(#[$without_doc:meta])* $without:ident [$($without_names:literal),*];)* }
    ) => {
        /// One primitive operation.
        ///
        /// The catalogue knows every op that a list of MindSpore, Paddle, torch or TensorFlow names. Those that networks
        /// use have a [kernel](Op::has_kernel) here; of the others precast says in which precision they would run.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[non_exhaustive]
        #[allow(missing_docs, reason = "the name says it; ops with a kernel are documented at their function")]
        pub enum Op {
            $($(#[$doc])* $op,)*
            $($(#[$without_doc])* $without,)*
            /// An op of a user: see `CustomOp` of precast.
            Custom(Custom),
            /// An op of another library: see [`Op::foreign`] and [`System::is_open`].
            Foreign(Foreign),
        }

        impl Op {
            /// Every op of the catalogue; [custom](Op::Custom) and [foreign](Op::Foreign) ops are not among them.
            pub const ALL: &[Op] = &[$(Op::$op,)* $(Op::$without,)*];

            /// The name in this library.
            pub fn name(self) -> &'static str {
                match self {
                    $(Op::$op => stringify!($op),)*
                    $(Op::$without => stringify!($without),)*
                    Op::Custom(op) => op.name(),
                    Op::Foreign(op) => op.name(),
                }
            }

            /// The names that a system has for this op; empty when it has none.
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

            #[doc(hidden)]
pub fn mixing(self) -> Mixing {
                match self {
                    $(Op::$op => Mixing::$mixing,)*
                    $(Op::$without => Mixing::Keeps,)*
                    Op::Foreign(_) => Mixing::Keeps,
                    // So a backward pass of a few lines returns gradients of the right dtype.
                    Op::Custom(_) => Mixing::Promotes,
                }
            }

            /// `None` for an op that this library cannot run.
            #[doc(hidden)]
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
    /// Whether its second input is a weight and its third, if there is one, a bias, and its gradients are computed from the
    /// first two inputs.
    #[doc(hidden)]
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

    /// Whether this library can run it. Of an op without a kernel it says the precision only.
    pub fn has_kernel(self) -> bool {
        self.family().is_some()
    }
}
