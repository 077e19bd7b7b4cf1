//! The catalogue of primitive operations, and the name each has in other systems.
//!
//! The catalogue says what an op *is*. Which precision it runs in is decided by lists, and those are data (`policies/packs/`).

use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::error::{Error, Result, did_you_mean};

/// How an op treats floating inputs of different dtypes when no policy has spoken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mixing {
    /// All are promoted to the widest, as arithmetic does.
    Promotes,
    /// An error: silently widening a matrix product would hide that a cast was forgotten.
    Refuses,
    /// Each input keeps its dtype; the op itself says what that means.
    Keeps,
}

macro_rules! catalogue {
    ($($(#[$doc:meta])* $op:ident $mixing:ident [$($mindspore:literal),*];)*) => {
        /// One primitive operation.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[non_exhaustive]
        #[allow(missing_docs, reason = "the name says it; ops with a kernel are documented at their function")]
        pub enum Op { $($(#[$doc])* $op),* }

        impl Op {
            /// Every op of the catalogue.
            pub const ALL: &[Op] = &[$(Op::$op),*];

            /// The name in this library.
            pub fn name(self) -> &'static str {
                match self { $(Op::$op => stringify!($op)),* }
            }

            /// The names of the primitives that are this op in MindSpore; empty when it has none.
            pub fn mindspore(self) -> &'static [&'static str] {
                match self { $(Op::$op => &[$($mindspore),*]),* }
            }

            pub(crate) fn mixing(self) -> Mixing {
                match self { $(Op::$op => Mixing::$mixing),* }
            }
        }
    };
}

catalogue! {
    Cast Keeps ["Cast"];
    // products
    MatMul Refuses ["MatMul"];
    /// Matrix product with broadcast batch dimensions and vectors.
    MatMulExt Refuses ["MatMulExt"];
    BatchMatMul Refuses ["BatchMatMul", "BatchMatMulExt"];
    /// `x · wᵀ + b` with one rounding.
    Linear Refuses ["Dense"];
    BiasAdd Refuses ["BiasAdd"];
    Ger Refuses ["Ger"];
    Dot Promotes ["Dot"];
    Einsum Refuses ["Einsum"];
    Addmm Refuses ["Addmm"];
    Addbmm Refuses ["Addbmm"];
    Baddbmm Refuses ["Baddbmm"];
    Addmv Refuses ["Addmv"];
    Mv Refuses ["Mv"];
    Conv1d Refuses ["Conv1DExt"];
    Conv2d Refuses ["Conv2D", "Conv2DExt", "Convolution"];
    Conv3d Refuses ["Conv3D", "Conv3DExt"];
    ConvTranspose1d Refuses [];
    ConvTranspose2d Refuses ["Conv2DTranspose", "ConvTranspose2D", "Conv2DBackpropInput"];
    ConvTranspose3d Refuses ["Conv3DTranspose"];
    // recurrent cells with their own rounding
    RnnCell Refuses [];
    GruCell Refuses [];
    LstmCell Refuses [];
    ScaledDotProductAttention Refuses [];
    // pools
    MaxPool1d Keeps [];
    MaxPool2d Keeps ["MaxPool"];
    MaxPool3d Keeps ["MaxPool3D"];
    AvgPool1d Keeps [];
    AvgPool2d Keeps ["AvgPool"];
    AvgPool3d Keeps ["AvgPool3D"];
    AdaptiveAvgPool1d Keeps [];
    AdaptiveAvgPool2d Keeps ["AdaptiveAvgPool2D"];
    AdaptiveAvgPool3d Keeps ["AdaptiveAvgPool3D"];
    // normalisation
    BatchNorm Keeps ["BatchNorm", "BatchNormExt"];
    LayerNorm Keeps ["LayerNorm", "LayerNormExt"];
    GroupNorm Keeps ["GroupNorm"];
    InstanceNorm Keeps ["InstanceNorm"];
    RmsNorm Keeps ["RmsNorm"];
    // activations
    Relu Keeps ["ReLU"];
    Prelu Refuses ["PReLU"];
    LeakyRelu Keeps ["LeakyReLU"];
    Elu Keeps ["Elu"];
    Gelu Keeps ["GeLU"];
    Silu Keeps ["SiLU"];
    Sigmoid Keeps ["Sigmoid"];
    Tanh Keeps ["Tanh"];
    Mish Keeps ["Mish"];
    LogSigmoid Keeps ["LogSigmoid"];
    Softplus Keeps ["Softplus", "SoftplusExt"];
    HardSigmoid Keeps ["HSigmoid"];
    HardSwish Keeps ["HSwish"];
    HardTanh Keeps ["HardTanh"];
    Relu6 Keeps ["ReLU6"];
    Softmax Keeps ["Softmax"];
    LogSoftmax Keeps ["LogSoftmax", "LogSoftmaxExt"];
    Dropout Keeps ["Dropout"];
    // arithmetic
    Add Promotes ["Add", "AddExt"];
    Sub Promotes ["Sub", "SubExt"];
    Mul Promotes ["Mul", "Muls"];
    Div Promotes ["Div", "RealDiv"];
    Maximum Promotes ["Maximum"];
    Minimum Promotes ["Minimum"];
    Pow Promotes ["Pow"];
    AddN Promotes ["AddN"];
    Addcdiv Promotes ["Addcdiv"];
    Addcmul Promotes ["Addcmul"];
    Cross Promotes ["Cross", "_PyboostCrossPrim"];
    Neg Keeps ["Neg"];
    Exp Keeps ["Exp"];
    Expm1 Keeps ["Expm1"];
    Log Keeps ["Log"];
    Log2 Keeps ["Log2"];
    Log10 Keeps ["Log10"];
    Log1p Keeps ["Log1p"];
    Sqrt Keeps ["Sqrt"];
    Rsqrt Keeps ["Rsqrt"];
    Reciprocal Keeps ["Reciprocal"];
    Square Keeps ["Square"];
    Abs Keeps ["Abs"];
    Sign Keeps ["Sign"];
    Floor Keeps ["Floor"];
    Ceil Keeps ["Ceil"];
    Round Keeps ["Round"];
    Sin Keeps ["Sin"];
    Cos Keeps ["Cos"];
    Tan Keeps ["Tan"];
    Asin Keeps ["Asin"];
    Acos Keeps ["ACos"];
    Atan Keeps ["Atan"];
    Sinh Keeps ["Sinh"];
    Cosh Keeps ["Cosh"];
    Erf Keeps ["Erf"];
    Erfinv Keeps ["Erfinv"];
    Clamp Keeps ["ClampScalar"];
    // comparison and choice
    Equal Promotes ["Equal"];
    NotEqual Promotes ["NotEqual"];
    Less Promotes ["Less"];
    LessEqual Promotes ["LessEqual"];
    Greater Promotes ["Greater"];
    GreaterEqual Promotes ["GreaterEqual"];
    Where Promotes ["Select"];
    LogicalNot Keeps ["LogicalNot"];
    LogicalAnd Keeps ["LogicalAnd"];
    LogicalOr Keeps ["LogicalOr"];
    IsFinite Keeps ["IsFinite"];
    // reductions
    Sum Keeps ["ReduceSum", "SumExt"];
    Mean Keeps ["ReduceMean"];
    Var Keeps ["Var"];
    Max Keeps ["ReduceMax"];
    Min Keeps ["ReduceMin"];
    Prod Keeps ["ReduceProd", "ProdExt"];
    CumSum Keeps ["CumSum", "CumsumExt"];
    CumProd Keeps ["CumProd"];
    Norm Keeps ["Norm"];
    Renorm Keeps ["Renorm"];
    ArgMax Keeps ["Argmax"];
    ArgMin Keeps ["Argmin"];
    // places
    Reshape Keeps ["Reshape"];
    Flatten Keeps ["Flatten"];
    Unsqueeze Keeps ["ExpandDims"];
    Squeeze Keeps ["Squeeze"];
    Transpose Keeps ["Transpose"];
    Broadcast Keeps ["BroadcastTo"];
    Slice Keeps ["Slice", "StridedSlice"];
    Concat Promotes ["Concat"];
    Stack Promotes ["Stack"];
    Split Keeps ["Split"];
    Pad Keeps ["Pad"];
    Gather Keeps ["GatherD"];
    IndexSelect Keeps ["IndexSelect"];
    Embedding Keeps ["Gather"];
    ScatterAdd Promotes ["ScatterAddExt"];
    IndexPut Promotes ["IndexPut"];
    TopK Keeps ["TopK", "TopkExt"];
    Sort Keeps ["Sort", "SortExt"];
    Interpolate Keeps [
        "UpsampleNearest1D", "UpsampleNearest2D", "UpsampleNearest3D", "UpsampleLinear1D", "UpsampleBilinear2D",
        "UpsampleTrilinear3D"
    ];
    GridSampler2d Promotes ["GridSampler2D"];
    GridSampler3d Promotes ["GridSampler3D"];
    // losses
    CrossEntropy Keeps [];
    NllLoss Keeps ["NLLLoss"];
    NllLoss2d Keeps ["NLLLoss2d"];
    MseLoss Promotes ["MSELossExt"];
    L1Loss Promotes ["L1LossExt"];
    SmoothL1Loss Promotes ["SmoothL1Loss"];
    BceWithLogits Promotes ["BCEWithLogitsLoss"];
    KlDiv Promotes ["KLDivLoss"];
    MultilabelMarginLoss Promotes ["MultilabelMarginLoss"];
    SoftMarginLoss Promotes ["SoftMarginLoss"];
    TripletMarginLoss Promotes ["TripletMarginLoss"];
    MultiMarginLoss Promotes ["MultiMarginLoss"];
    Pdist Promotes ["Pdist"];
    Cdist Promotes ["Cdist"];
}

impl Op {
    /// The ops of a name: of this library (`Relu`), or of MindSpore (`ReLU`).
    ///
    /// # Errors
    /// [`ErrorKind::List`](crate::ErrorKind::List) when no op has that name, with the nearest name that one has.
    ///
    /// ```
    /// use precast::Op;
    /// assert_eq!(Op::named("Relu")?, [Op::Relu]);
    /// assert_eq!(Op::named("ReLU")?, [Op::Relu]);
    /// assert!(Op::named("MatMull").unwrap_err().to_string().contains("did you mean `MatMul`"));
    /// # Ok::<(), precast::Error>(())
    /// ```
    pub fn named(name: &str) -> Result<Vec<Op>> {
        let hits: Vec<Op> =
            Op::ALL.iter().copied().filter(|op| op.name() == name || op.mindspore().contains(&name)).collect();
        if !hits.is_empty() {
            return Ok(hits);
        }
        let names = Op::ALL.iter().flat_map(|op| op.mindspore().iter().copied().chain([op.name()]));
        Err(Error::list(format!("no op is called `{name}`{}", did_you_mean(name, names))))
    }
}

impl fmt::Display for Op {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl Serialize for Op {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}

impl<'de> Deserialize<'de> for Op {
    /// By the name in this library.
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let name = std::borrow::Cow::<'de, str>::deserialize(deserializer)?;
        let op = Op::ALL.iter().find(|op| op.name() == name);
        op.copied().ok_or_else(|| serde::de::Error::custom(format!("no op is called `{name}`")))
    }
}
