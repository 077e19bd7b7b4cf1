//! The table of ops: each with its names in four systems.

use super::System;

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

/// A row is `Op Mixing [MindSpore, Paddle, torch, TensorFlow]`; names are separated by spaces, and `""` is none. torch's
/// names are those of `aten`, without the overload.
macro_rules! catalogue {
    (
        kernels { $($(#[$doc:meta])* $op:ident $mixing:ident [$($names:literal),*];)* }
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
        }

        impl Op {
            /// Every op of the catalogue.
            pub const ALL: &[Op] = &[$(Op::$op,)* $(Op::$without,)*];

            /// The name in this library.
            pub fn name(self) -> &'static str {
                match self {
                    $(Op::$op => stringify!($op),)*
                    $(Op::$without => stringify!($without),)*
                }
            }

            /// Whether this library can run it. Of an op without a kernel it says the precision only.
            pub fn has_kernel(self) -> bool {
                match self {
                    $(Op::$op => true,)*
                    $(Op::$without => false,)*
                }
            }

            /// The names that a system has for this op; empty when it has none.
            pub fn names(self, system: System) -> impl Iterator<Item = &'static str> + Clone {
                let columns: [&'static str; 4] = match self {
                    $(Op::$op => [$($names),*],)*
                    $(Op::$without => [$($without_names),*],)*
                };
                columns[system as usize].split_whitespace()
            }

            pub(crate) fn mixing(self) -> Mixing {
                match self {
                    $(Op::$op => Mixing::$mixing,)*
                    $(Op::$without => Mixing::Keeps,)*
                }
            }
        }
    };
}

catalogue! {
    kernels {
        Cast Keeps ["Cast", "cast", "to _to_copy", "Cast"];
        // products
        MatMul Refuses ["MatMul", "matmul_v2 matmul mul", "matmul mm", "MatMul"];
        /// Matrix product with broadcast batch dimensions and vectors.
        MatMulExt Refuses ["MatMulExt", "matmul_v2 matmul", "matmul", "BatchMatMulV2"];
        BatchMatMul Refuses ["BatchMatMul BatchMatMulExt", "bmm", "bmm", "BatchMatMul BatchMatMulV2"];
        /// `x · wᵀ + b` with one rounding.
        Linear Refuses ["Dense", "linear_v2 fused_gemm_epilogue", "linear", ""];
        BiasAdd Refuses ["BiasAdd", "", "", "BiasAdd BiasAddV1"];
        Ger Promotes ["Ger", "outer", "outer ger", ""];
        Dot Promotes ["Dot", "dot", "dot", ""];
        Einsum Refuses ["Einsum", "einsum", "einsum", "Einsum"];
        Addmm Refuses ["Addmm", "addmm", "addmm", ""];
        Addbmm Refuses ["Addbmm", "", "addbmm", ""];
        Baddbmm Refuses ["Baddbmm", "baddbmm", "baddbmm", ""];
        Addmv Refuses ["Addmv", "", "addmv", ""];
        Mv Refuses ["Mv", "mv", "mv", ""];
        Conv1d Refuses ["Conv1DExt", "", "conv1d convolution _convolution cudnn_convolution", ""];
        Conv2d Refuses [
            "Conv2D Conv2DExt Convolution", "conv2d", "conv2d convolution _convolution cudnn_convolution",
            "Conv2D FusedConv2DBiasActivation FusedPadConv2D"
        ];
        Conv3d Refuses ["Conv3D Conv3DExt", "conv3d", "conv3d convolution _convolution cudnn_convolution", "Conv3D"];
        ConvTranspose1d Refuses ["", "", "conv_transpose1d convolution _convolution cudnn_convolution_transpose", ""];
        ConvTranspose2d Refuses [
            "Conv2DTranspose ConvTranspose2D Conv2DBackpropInput", "conv2d_transpose",
            "conv_transpose2d convolution _convolution cudnn_convolution_transpose", "Conv2DBackpropInput"
        ];
        ConvTranspose3d Refuses [
            "Conv3DTranspose", "conv3d_transpose",
            "conv_transpose3d convolution _convolution cudnn_convolution_transpose",
            "Conv3DBackpropInput Conv3DBackpropInputV2"
        ];
        ScaledDotProductAttention Refuses [
            "", "flash_attn",
            "scaled_dot_product_attention _scaled_dot_product_flash_attention _scaled_dot_product_flash_attention_for_cpu",
            ""
        ];
        /// Matrix product of several matrices.
        MultiDot Refuses ["", "multi_dot", "linalg_multi_dot chain_matmul", ""];
        Inner Refuses ["", "", "inner", ""];
        Vecdot Refuses ["", "", "linalg_vecdot", ""];
        Tensordot Refuses ["", "", "tensordot", ""];
        Bilinear Refuses ["", "bilinear", "bilinear", ""];
        Addr Promotes ["", "", "addr", ""];
        // recurrent networks
        RnnCell Keeps ["", "", "rnn_tanh_cell rnn_relu_cell", ""];
        GruCell Keeps ["", "", "gru_cell _thnn_fused_gru_cell", "GRUBlockCell"];
        LstmCell Keeps ["", "", "lstm_cell _thnn_fused_lstm_cell", "LSTMBlockCell"];
        /// Whole recurrent layers in one call.
        FusedRnn Keeps ["", "", "_cudnn_rnn mkldnn_rnn_layer", "BlockLSTM BlockLSTMV2 CudnnRNN CudnnRNNV2 CudnnRNNV3"];
        // pools
        MaxPool1d Keeps ["", "", "max_pool1d", ""];
        MaxPool2d Keeps ["MaxPool", "pool2d", "max_pool2d", "MaxPool MaxPoolV2"];
        MaxPool3d Keeps ["MaxPool3D", "pool3d", "max_pool3d", "MaxPool3D"];
        AvgPool1d Keeps ["", "", "avg_pool1d", ""];
        AvgPool2d Keeps ["AvgPool", "pool2d", "avg_pool2d", "AvgPool"];
        AvgPool3d Keeps ["AvgPool3D", "pool3d", "avg_pool3d", "AvgPool3D"];
        AdaptiveAvgPool1d Keeps ["", "", "adaptive_avg_pool1d", ""];
        AdaptiveAvgPool2d Keeps ["AdaptiveAvgPool2D", "pool2d", "adaptive_avg_pool2d", ""];
        AdaptiveAvgPool3d Keeps ["AdaptiveAvgPool3D", "pool3d", "adaptive_avg_pool3d", ""];
        AdaptiveMaxPool1d Keeps ["", "", "adaptive_max_pool1d", ""];
        AdaptiveMaxPool2d Keeps ["", "", "adaptive_max_pool2d", ""];
        AdaptiveMaxPool3d Keeps ["", "", "adaptive_max_pool3d", ""];
        // normalisation
        BatchNorm Keeps [
            "BatchNorm BatchNormExt", "batch_norm sync_batch_norm", "batch_norm native_batch_norm",
            "FusedBatchNorm FusedBatchNormV2 FusedBatchNormV3 _FusedBatchNormEx"
        ];
        LayerNorm Keeps ["LayerNorm LayerNormExt", "layer_norm", "layer_norm native_layer_norm", ""];
        GroupNorm Keeps ["GroupNorm", "group_norm", "group_norm native_group_norm", ""];
        InstanceNorm Keeps ["InstanceNorm", "instance_norm", "instance_norm", ""];
        RmsNorm Keeps ["RmsNorm", "rms_norm", "rms_norm", ""];
        // activations
        Relu Keeps ["ReLU", "relu", "relu", "Relu"];
        Prelu Refuses ["PReLU", "prelu", "prelu", ""];
        LeakyRelu Keeps ["LeakyReLU", "leaky_relu", "leaky_relu", "LeakyRelu"];
        Elu Keeps ["Elu", "elu", "elu", "Elu"];
        Gelu Keeps ["GeLU", "gelu", "gelu", ""];
        Silu Keeps ["SiLU", "silu swish", "silu", ""];
        Sigmoid Keeps ["Sigmoid", "sigmoid", "sigmoid", "Sigmoid"];
        Tanh Keeps ["Tanh", "tanh", "tanh", "Tanh"];
        Mish Keeps ["Mish", "mish", "mish", ""];
        LogSigmoid Keeps ["LogSigmoid", "logsigmoid", "log_sigmoid", ""];
        Softplus Keeps ["Softplus SoftplusExt", "softplus", "softplus", "Softplus"];
        HardSigmoid Keeps ["HSigmoid", "hard_sigmoid", "hardsigmoid", ""];
        HardSwish Keeps ["HSwish", "hard_swish", "hardswish", ""];
        HardTanh Keeps ["HardTanh", "brelu", "hardtanh", ""];
        Relu6 Keeps ["ReLU6", "relu6", "relu6", "Relu6"];
        Softmax Keeps ["Softmax", "softmax", "softmax _softmax", "Softmax"];
        LogSoftmax Keeps ["LogSoftmax LogSoftmaxExt", "log_softmax", "log_softmax _log_softmax", "LogSoftmax"];
        Dropout Keeps ["Dropout", "dropout", "dropout native_dropout", ""];
        Selu Keeps ["", "selu", "selu", "Selu"];
        Celu Keeps ["", "celu", "celu", ""];
        Glu Keeps ["", "", "glu", ""];
        Softsign Keeps ["", "softsign", "softsign", "Softsign"];
        Softmin Keeps ["", "softmin", "softmin", ""];
        TanhShrink Keeps ["", "tanh_shrink", "tanhshrink", ""];
        Softshrink Keeps ["", "softshrink", "softshrink", ""];
        // arithmetic
        Add Promotes ["Add AddExt", "elementwise_add", "add", "Add AddV2"];
        Sub Promotes ["Sub SubExt", "elementwise_sub", "sub subtract rsub", "Sub"];
        Mul Promotes ["Mul Muls", "elementwise_mul", "mul multiply", "Mul"];
        Div Promotes ["Div RealDiv", "elementwise_div", "div divide true_divide", "RealDiv Div"];
        Maximum Promotes ["Maximum", "elementwise_max", "maximum", "Maximum"];
        Minimum Promotes ["Minimum", "elementwise_min", "minimum", "Minimum"];
        Pow Promotes ["Pow", "pow elementwise_pow", "pow", "Pow"];
        Addcdiv Promotes ["Addcdiv", "", "addcdiv", ""];
        Addcmul Promotes ["Addcmul", "", "addcmul", ""];
        Cross Promotes ["Cross _PyboostCrossPrim", "cross", "cross linalg_cross", "Cross"];
        Neg Keeps ["Neg", "", "neg negative", "Neg"];
        Exp Keeps ["Exp", "exp", "exp", "Exp"];
        Expm1 Keeps ["Expm1", "expm1", "expm1", "Expm1"];
        Log Keeps ["Log", "log", "log", "Log"];
        Log2 Keeps ["Log2", "log2", "log2", ""];
        Log10 Keeps ["Log10", "log10", "log10", ""];
        Log1p Keeps ["Log1p", "log1p", "log1p", "Log1p"];
        Sqrt Keeps ["Sqrt", "sqrt", "sqrt", "Sqrt"];
        Rsqrt Keeps ["Rsqrt", "rsqrt", "rsqrt", "Rsqrt"];
        Reciprocal Keeps ["Reciprocal", "reciprocal", "reciprocal", "Reciprocal Inv"];
        Square Keeps ["Square", "square", "square", "Square"];
        Abs Keeps ["Abs", "abs", "abs absolute", "Abs"];
        Sign Keeps ["Sign", "sign", "sign", "Sign"];
        Floor Keeps ["Floor", "floor", "floor", "Floor"];
        Ceil Keeps ["Ceil", "ceil", "ceil", "Ceil"];
        Round Keeps ["Round", "round", "round", "Round"];
        Sin Keeps ["Sin", "sin", "sin", "Sin"];
        Cos Keeps ["Cos", "cos", "cos", "Cos"];
        Tan Keeps ["Tan", "tan", "tan", "Tan"];
        Asin Keeps ["Asin", "asin", "asin", "Asin"];
        Acos Keeps ["ACos", "acos", "acos", "Acos"];
        Atan Keeps ["Atan", "atan", "atan", "Atan"];
        Sinh Keeps ["Sinh", "sinh", "sinh", "Sinh"];
        Cosh Keeps ["Cosh", "cosh", "cosh", "Cosh"];
        Erf Keeps ["Erf", "erf", "erf", "Erf"];
        Erfinv Keeps ["Erfinv", "erfinv", "erfinv", "Erfinv"];
        Clamp Keeps ["ClampScalar", "clip", "clamp clip", "ClipByValue"];
        Fmod Promotes ["", "", "fmod", ""];
        Remainder Promotes ["", "elementwise_mod", "remainder", ""];
        Atan2 Promotes ["", "atan2", "atan2", ""];
        Hypot Promotes ["", "", "hypot", ""];
        Lerp Promotes ["", "lerp", "lerp", ""];
        Erfc Keeps ["", "", "erfc", "Erfc"];
        Asinh Keeps ["", "asinh", "asinh", ""];
        Acosh Keeps ["", "acosh", "acosh", ""];
        Atanh Keeps ["", "atanh", "atanh", ""];
        Trunc Keeps ["", "trunc", "trunc", ""];
        // comparison and choice
        Equal Promotes ["Equal", "equal", "eq", "Equal"];
        NotEqual Promotes ["NotEqual", "not_equal", "ne", "NotEqual"];
        Less Promotes ["Less", "less_than", "lt", "Less"];
        LessEqual Promotes ["LessEqual", "less_equal", "le", "LessEqual"];
        Greater Promotes ["Greater", "greater_than", "gt", "Greater"];
        GreaterEqual Promotes ["GreaterEqual", "greater_equal", "ge", "GreaterEqual"];
        Where Promotes ["Select", "where", "where", "Select SelectV2"];
        LogicalNot Keeps ["LogicalNot", "logical_not", "logical_not", "LogicalNot"];
        LogicalAnd Keeps ["LogicalAnd", "logical_and", "logical_and", "LogicalAnd"];
        LogicalOr Keeps ["LogicalOr", "logical_or", "logical_or", "LogicalOr"];
        IsFinite Keeps ["IsFinite", "isfinite_v2", "isfinite", "IsFinite"];
        // reductions
        Sum Keeps ["ReduceSum SumExt", "reduce_sum sum", "sum", "Sum"];
        Mean Keeps ["ReduceMean", "reduce_mean mean", "mean", "Mean"];
        Var Keeps ["Var", "", "var", ""];
        Max Keeps ["ReduceMax", "reduce_max reduce_amax", "max amax", "Max"];
        Min Keeps ["ReduceMin", "reduce_min reduce_amin", "min amin", "Min"];
        Prod Keeps ["ReduceProd ProdExt", "reduce_prod", "prod", "Prod"];
        CumSum Keeps ["CumSum CumsumExt", "cumsum", "cumsum", "Cumsum"];
        CumProd Keeps ["CumProd", "cumprod", "cumprod", "Cumprod"];
        Norm Keeps ["Norm", "p_norm pnorm", "norm linalg_vector_norm", ""];
        ArgMax Keeps ["Argmax", "arg_max", "argmax", "ArgMax"];
        ArgMin Keeps ["Argmin", "arg_min", "argmin", "ArgMin"];
        LogSumExp Keeps ["", "logsumexp", "logsumexp", ""];
        Std Keeps ["", "", "std", ""];
        Renorm Keeps ["Renorm", "renorm", "renorm", ""];
        Dist Promotes ["", "dist", "dist", ""];
        Pdist Keeps ["Pdist", "", "pdist", ""];
        CosineSimilarity Promotes ["", "", "cosine_similarity", ""];
        Trace Keeps ["", "", "trace", ""];
        // places
        Reshape Keeps ["Reshape", "reshape reshape2", "reshape view", "Reshape"];
        Flatten Keeps ["Flatten", "flatten_contiguous_range", "flatten", ""];
        Unsqueeze Keeps ["ExpandDims", "unsqueeze2", "unsqueeze", "ExpandDims"];
        Squeeze Keeps ["Squeeze", "squeeze2", "squeeze", "Squeeze"];
        Transpose Keeps ["Transpose", "transpose2", "transpose permute t", "Transpose"];
        Broadcast Keeps ["BroadcastTo", "expand_v2", "expand", "BroadcastTo"];
        Slice Keeps ["Slice StridedSlice", "slice", "slice select", "Slice StridedSlice"];
        Concat Promotes ["Concat", "concat", "cat", "Concat ConcatV2"];
        Stack Promotes ["Stack", "stack", "stack", "Pack"];
        Split Keeps ["Split", "split split_with_num", "split chunk", "Split SplitV"];
        Pad Keeps ["Pad", "pad", "constant_pad_nd", "Pad PadV2"];
        Gather Keeps ["GatherD", "take_along_axis", "gather", ""];
        IndexSelect Keeps ["IndexSelect", "index_select gather", "index_select", ""];
        Embedding Keeps ["Gather", "lookup_table_v2 lookup_table", "embedding", "Gather GatherV2"];
        ScatterAdd Promotes ["ScatterAddExt", "", "scatter_add", ""];
        IndexPut Promotes ["IndexPut", "index_put", "index_put", ""];
        TopK Keeps ["TopK TopkExt", "top_k_v2", "topk", "TopK TopKV2"];
        Sort Keeps ["Sort SortExt", "argsort", "sort", ""];
        Interpolate Keeps [
            "UpsampleNearest1D UpsampleNearest2D UpsampleNearest3D UpsampleLinear1D UpsampleBilinear2D UpsampleTrilinear3D",
            "nearest_interp_v2 linear_interp_v2 bilinear_interp_v2 bicubic_interp_v2 trilinear_interp_v2",
            "upsample_nearest1d upsample_nearest2d upsample_nearest3d upsample_linear1d upsample_bilinear2d
             upsample_bicubic2d upsample_trilinear3d _upsample_nearest_exact1d _upsample_nearest_exact2d
             _upsample_nearest_exact3d _upsample_bilinear2d_aa _upsample_bicubic2d_aa",
            "ResizeBilinear ResizeNearestNeighbor"
        ];
        GridSampler2d Promotes [
            "GridSampler2D", "grid_sampler", "grid_sampler grid_sampler_2d _grid_sampler_2d_cpu_fallback", ""
        ];
        AffineGrid Keeps ["", "", "affine_grid_generator", ""];
        GridSampler3d Promotes ["GridSampler3D", "grid_sampler", "grid_sampler grid_sampler_3d", ""];
        ReflectionPad Keeps ["", "", "reflection_pad1d reflection_pad2d reflection_pad3d", "MirrorPad"];
        ReplicationPad Keeps ["", "", "replication_pad1d replication_pad2d replication_pad3d", ""];
        PixelShuffle Keeps ["", "", "pixel_shuffle", "DepthToSpace"];
        SpaceToDepth Keeps ["", "", "pixel_unshuffle", "SpaceToDepth"];
        Scatter Promotes ["", "scatter", "scatter", "ScatterNd"];
        IndexCopy Promotes ["", "", "index_copy", ""];
        IndexAdd Promotes ["", "", "index_add", ""];
        MaskedFill Keeps ["", "masked_fill", "masked_fill", ""];
        // losses
        CrossEntropy Promotes [
            "", "softmax_with_cross_entropy cross_entropy cross_entropy2", "cross_entropy_loss",
            "SparseSoftmaxCrossEntropyWithLogits SoftmaxCrossEntropyWithLogits"
        ];
        NllLoss Keeps ["NLLLoss", "nll_loss", "nll_loss nll_loss2d", ""];
        MseLoss Promotes ["MSELossExt", "", "mse_loss", ""];
        L1Loss Promotes ["L1LossExt", "", "l1_loss", ""];
        SmoothL1Loss Promotes ["SmoothL1Loss", "", "smooth_l1_loss", ""];
        BceWithLogits Promotes [
            "BCEWithLogitsLoss", "sigmoid_cross_entropy_with_logits", "binary_cross_entropy_with_logits", ""
        ];
        KlDiv Promotes ["KLDivLoss", "kldiv_loss", "kl_div", ""];
        Cdist Promotes ["Cdist", "", "cdist _cdist_forward", ""];
        BinaryCrossEntropy Promotes ["", "bce_loss", "binary_cross_entropy", ""];
        CosineEmbeddingLoss Promotes ["", "", "cosine_embedding_loss", ""];
        HingeEmbeddingLoss Promotes ["", "", "hinge_embedding_loss", ""];
        HuberLoss Promotes ["", "huber_loss", "huber_loss", ""];
        MarginRankingLoss Promotes ["", "", "margin_ranking_loss", ""];
        MultilabelMarginLoss Keeps ["MultilabelMarginLoss", "", "multilabel_margin_loss multilabel_margin_loss_forward", ""];
        MultiMarginLoss Keeps ["MultiMarginLoss", "", "multi_margin_loss", ""];
        PoissonNllLoss Promotes ["", "", "poisson_nll_loss", ""];
        SoftMarginLoss Promotes ["SoftMarginLoss", "", "soft_margin_loss", ""];
        TripletMarginLoss Promotes ["TripletMarginLoss", "triplet_margin_loss", "triplet_margin_loss", ""];
        GaussianNllLoss Promotes ["", "", "gaussian_nll_loss", ""];
    }

    decided_only {
        // products
        Vdot ["", "", "vdot", ""];
        AddmmActivation ["", "", "_addmm_activation", ""];
        ConvTbc ["", "", "conv_tbc", ""];
        DepthwiseConv2d ["", "depthwise_conv2d", "", "DepthwiseConv2dNative"];
        FusedAttention ["", "fused_attention", "_native_multi_head_attention", "Mha MhaV2"];
        FusedFeedforward ["", "fused_feedforward", "", ""];
        FusedRotaryPositionEmbedding ["", "fused_rotary_position_embedding", "", ""];
        FakeQuantize [
            "", "fake_quantize_dequantize_abs_max fake_quantize_dequantize_moving_average_abs_max",
            "fake_quantize_per_tensor_affine", ""
        ];
        MovingAverageAbsMaxScale ["", "moving_average_abs_max_scale", "", ""];
        WeightOnlyLinear ["", "weight_only_linear", "", ""];
        SparseConv ["", "", "", "FusedSparseConvGpuV2"];
        Pmlp ["", "", "", "Pmlp"];
        Tmlp ["", "", "", "Tmlp TmlpV2 TmlpV3"];
        SegmentMax ["", "", "", "FastUnsortedSegmentMax VoxelMax"];
        // pools and places
        MaxPool2dWithIndex ["", "max_pool2d_with_index", "max_pool2d_with_indices", "MaxPoolWithArgmax"];
        FractionalMaxPool ["", "", "fractional_max_pool2d fractional_max_pool3d", ""];
        MaxUnpool ["", "", "max_unpool2d max_unpool3d", ""];
        BatchToSpace ["", "", "", "BatchToSpace BatchToSpaceND"];
        SpaceToBatch ["", "", "", "SpaceToBatch SpaceToBatchND"];
        Tile ["", "tile", "repeat tile", "Tile"];
        Reverse ["", "flip", "flip", "Reverse ReverseV2 ReverseSequence"];
        Tril ["", "tril", "tril", ""];
        Unstack ["", "", "unbind", "Unpack"];
        GatherNd ["", "", "", "GatherNd"];
        MaskedScatter ["", "", "masked_scatter", ""];
        DynamicPartition ["", "", "", "DynamicPartition"];
        DynamicStitch ["", "", "", "DynamicStitch"];
        OneHot ["", "", "one_hot", "OneHot"];
        OnesLike ["", "", "ones_like", "OnesLike"];
        ZerosLike ["", "fill_any_like", "zeros_like", "ZerosLike"];
        Fill ["", "fill_constant", "full", "Fill"];
        /// The places that are true.
        Nonzero ["", "", "nonzero", "Where"];
        Shape ["", "", "", "Shape ShapeN"];
        Size ["", "size", "", "Size"];
        Rank ["", "", "", "Rank"];
        Identity ["", "assign", "clone", "Identity IdentityN Snapshot EnsureShape PreventGradient StopGradient"];
        CheckNumerics ["", "check_numerics", "", "CheckNumerics"];
        ViewAsComplex ["", "", "view_as_complex", ""];
        // arithmetic
        AddN ["AddN", "add_n", "", "AddN"];
        Scale ["", "scale", "", ""];
        FloorDiv ["", "elementwise_floordiv", "floor_divide", "FloorDiv"];
        Fmax ["", "elementwise_fmax", "fmax", ""];
        Fmin ["", "elementwise_fmin", "fmin", ""];
        SquaredDifference ["", "", "", "SquaredDifference"];
        Polar ["", "", "polar", ""];
        IsInf ["", "isinf_v2", "isinf", "IsInf"];
        IsNan ["", "isnan_v2", "isnan", "IsNan"];
        // reductions and linear algebra
        L2Loss ["", "", "", "L2Loss"];
        Median ["", "median", "median", ""];
        Quantile ["", "", "quantile nanquantile", ""];
        MatrixNorm ["", "", "linalg_matrix_norm", ""];
        NuclearNorm ["", "", "nuclear_norm", ""];
        FrobeniusNorm ["", "frobenius_norm", "frobenius_norm", ""];
        Fft [
            "", "",
            "fft_fft fft_fft2 fft_fftn fft_hfft fft_ifft fft_ifft2 fft_ifftn fft_ihfft fft_irfft fft_irfft2 fft_irfftn
             fft_rfft fft_rfft2 fft_rfftn",
            ""
        ];
        Stft ["", "", "stft", ""];
        Cholesky ["", "", "linalg_cholesky linalg_cholesky_ex cholesky_inverse cholesky_solve", ""];
        Eigen ["", "", "linalg_eig linalg_eigvals linalg_eigh linalg_eigvalsh", ""];
        Inverse ["", "", "inverse linalg_inv linalg_inv_ex pinverse linalg_tensorinv", ""];
        Lu ["", "", "_lu_with_info lu_solve", ""];
        MatrixCondition ["", "", "linalg_cond", ""];
        MatrixRank ["", "", "linalg_matrix_rank", ""];
        MatrixSqrt ["", "", "linalg_matrix_sqrth", ""];
        Qr ["", "", "linalg_qr geqrf orgqr ormqr linalg_householder_product", ""];
        Solve ["", "", "linalg_solve linalg_lstsq linalg_tensorsolve triangular_solve", ""];
        Svd ["", "", "svd linalg_svd linalg_svdvals", ""];
        // losses
        NllLoss2d ["NLLLoss2d", "", "nll_loss2d", ""];
        CtcLoss ["", "", "ctc_loss", ""];
        HierarchicalSigmoidLoss ["", "hsigmoid_loss", "", ""];
        LogLoss ["", "log_loss", "", ""];
        MarginCrossEntropy ["", "margin_cross_entropy", "", ""];
        ParallelCrossEntropy [
            "", "c_softmax_with_cross_entropy c_softmax_with_multi_label_cross_entropy", "", ""
        ];
        // what a graph has beside arithmetic
        LoopControl ["", "", "", "Enter Exit Merge NextIteration Switch"];
        While ["", "while", "", "While StatelessWhile"];
        Save ["", "", "", "SaveV2"];
        TensorList [
            "", "", "",
            "TensorListConcat TensorListConcatLists TensorListConcatV2 TensorListFromTensor TensorListGather
             TensorListGetItem TensorListPopBack TensorListPushBack TensorListPushBackBatch TensorListScatter
             TensorListScatterIntoExistingList TensorListScatterV2 TensorListSetItem TensorListSplit TensorListStack"
        ];
        // gradients that a graph holds as nodes; here the backward pass runs in the dtypes of the forward
        AvgPoolGrad ["", "", "", "AvgPoolGrad AvgPool3DGrad"];
        BatchNormGrad ["", "", "", "FusedBatchNormGrad FusedBatchNormGradV2 FusedBatchNormGradV3"];
        BiasAddGrad ["", "", "", "BiasAddGrad"];
        ConvGrad [
            "", "", "",
            "Conv2DBackpropFilter Conv3DBackpropFilter Conv3DBackpropFilterV2 DepthwiseConv2dNativeBackpropFilter
             DepthwiseConv2dNativeBackpropInput"
        ];
        EluGrad ["", "", "", "EluGrad"];
        LeakyReluGrad ["", "", "", "LeakyReluGrad"];
        MaxPoolGrad [
            "", "", "", "MaxPoolGrad MaxPoolGradGrad MaxPoolGradGradV2 MaxPoolGradV2 MaxPool3DGrad MaxPool3DGradGrad"
        ];
        MirrorPadGrad ["", "", "", "MirrorPadGrad"];
        ReluGrad ["", "", "", "ReluGrad Relu6Grad"];
        ResizeGrad ["", "", "", "ResizeNearestNeighborGrad"];
        RnnGrad [
            "", "", "",
            "BlockLSTMGrad BlockLSTMGradV2 CudnnRNNBackprop CudnnRNNBackpropV2 CudnnRNNBackpropV3 GRUBlockCellGrad
             LSTMBlockCellGrad"
        ];
        SeluGrad ["", "", "", "SeluGrad"];
        SigmoidGrad ["", "", "", "SigmoidGrad"];
        SoftplusGrad ["", "", "", "SoftplusGrad"];
        SoftsignGrad ["", "", "", "SoftsignGrad"];
        StridedSliceGrad ["", "", "", "StridedSliceGrad"];
        TanhGrad ["", "", "", "TanhGrad"];
    }
}
