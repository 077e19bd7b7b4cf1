//! Table of ops. The row of an op defines everything about it outside its own file.
//!
//! A row is `Op Mixing Family method(arguments) [MindSpore, Paddle, torch, TensorFlow]`:
//!
//! - [`Mixing`](super::Mixing): the handling of floating inputs of different dtypes;
//! - [`Family`](super::Family): the kind of work, for the cost model;
//! - the method of `Tensor` that runs the op, and its arguments in order: tensors (`x`), optional tensors (`bias?`),
//!   all remaining tensors (`tensors..`), and attributes with their types after a colon (`axis: isize`). precast's
//!   `run_with` generates its calls from these. Four recurrent ops and the cast are called by hand there; their rows
//!   have a semicolon;
//! - the names in four systems, separated by spaces, or `""` for none. torch's names are those of `aten`, without the
//!   overload. Names in further systems are in `further.rs`.
//!
//! A row of `decided_only` has only names: lists name the op, but this library cannot run it.
//!
//! The table is passed to a macro that extracts the parts it needs: the enum here, the calls in `ops/run.rs` of
//! `precast-tensor`.

/// Calls a macro with the table of ops: a block `kernels` of rows such as `Cast Keeps Elementwise cast(x; dtype) ["Cast",
/// "cast", "to _to_copy", "Cast"];`, and a block `decided_only` of names alone. A row has the op, its mixing rule, its
/// [`Family`](crate::catalogue::Family), the method of a tensor with its arguments, and the names in four systems.
#[macro_export]
macro_rules! op_table {
    ($use:ident) => { $use! {
    kernels {
        Cast Keeps Elementwise cast(x; dtype) ["Cast", "cast", "to _to_copy", "Cast"];
        // products
        MatMul Refuses Product matmul(a, b) ["MatMul", "matmul_v2 matmul mul", "matmul mm", "MatMul"];
        /// Matrix product with broadcast batch dimensions and vectors.
        MatMulExt Refuses Product matmul_ext(a, b) ["MatMulExt", "matmul_v2 matmul", "matmul", "BatchMatMulV2"];
        BatchMatMul Refuses Product batch_matmul(a, b)
            ["BatchMatMul BatchMatMulExt", "bmm", "bmm", "BatchMatMul BatchMatMulV2"];
        /// `x · wᵀ + b` with one rounding.
        Linear Refuses Product linear(x, weight, bias?) ["Dense", "linear_v2 fused_gemm_epilogue", "linear", ""];
        BiasAdd Refuses Elementwise bias_add(a, b) ["BiasAdd", "", "", "BiasAdd BiasAddV1"];
        Ger Promotes Elementwise outer(a, b) ["Ger", "outer", "outer ger", ""];
        Dot Promotes Product dot(a, b) ["Dot", "dot", "dot", ""];
        Einsum Refuses Contraction einsum(equation: &str, operands..) ["Einsum", "einsum", "einsum", "Einsum"];
        Addmm Refuses Product addmm(a, b, c) ["Addmm", "addmm", "addmm", ""];
        Addbmm Refuses SummedProduct addbmm(a, b, c) ["Addbmm", "", "addbmm", ""];
        Baddbmm Refuses Product baddbmm(a, b, c) ["Baddbmm", "baddbmm", "baddbmm", ""];
        Addmv Refuses Product addmv(a, b, c) ["Addmv", "", "addmv", ""];
        Mv Refuses Product mv(a, b) ["Mv", "mv", "mv", ""];
        Conv1d Refuses Convolution conv1d(x, weight, bias?, options: &ConvOptions)
            ["Conv1DExt", "", "conv1d convolution _convolution cudnn_convolution", ""];
        Conv2d Refuses Convolution conv2d(x, weight, bias?, options: &ConvOptions) [
            "Conv2D Conv2DExt Convolution", "conv2d", "conv2d convolution _convolution cudnn_convolution",
            "Conv2D FusedConv2DBiasActivation FusedPadConv2D"
        ];
        Conv3d Refuses Convolution conv3d(x, weight, bias?, options: &ConvOptions)
            ["Conv3D Conv3DExt", "conv3d", "conv3d convolution _convolution cudnn_convolution", "Conv3D"];
        ConvTranspose1d Refuses TransposedConvolution conv_transpose1d(x, weight, bias?, options: &ConvTransposeOptions)
            ["", "", "conv_transpose1d convolution _convolution cudnn_convolution_transpose", ""];
        ConvTranspose2d Refuses TransposedConvolution
            conv_transpose2d(x, weight, bias?, options: &ConvTransposeOptions) [
            "Conv2DTranspose ConvTranspose2D Conv2DBackpropInput", "conv2d_transpose",
            "conv_transpose2d convolution _convolution cudnn_convolution_transpose", "Conv2DBackpropInput"
        ];
        ConvTranspose3d Refuses TransposedConvolution
            conv_transpose3d(x, weight, bias?, options: &ConvTransposeOptions) [
            "Conv3DTranspose", "conv3d_transpose",
            "conv_transpose3d convolution _convolution cudnn_convolution_transpose",
            "Conv3DBackpropInput Conv3DBackpropInputV2"
        ];
        ScaledDotProductAttention Refuses Attention
            scaled_dot_product_attention(x, k, v, mask?, causal: bool, scale: Option<f64>) [
            "", "flash_attn",
            "scaled_dot_product_attention _scaled_dot_product_flash_attention
             _scaled_dot_product_flash_attention_for_cpu", ""
        ];
        RotaryEmbedding Keeps Elementwise rotary_embedding(x, base: f64, offset: usize, interleaved: bool)
            ["", "fused_rotary_position_embedding", "", ""];
        /// Matrix product of several matrices.
        MultiDot Refuses ProductChain multi_dot(tensors..) ["", "multi_dot", "linalg_multi_dot chain_matmul", ""];
        Inner Refuses Product inner(a, b) ["", "", "inner", ""];
        Vecdot Refuses Product vecdot(a, b) ["", "", "linalg_vecdot", ""];
        Tensordot Refuses Contraction tensordot(x, other, axes: [isize], others: [isize]) ["", "", "tensordot", ""];
        Bilinear Refuses Bilinear bilinear(a, b, weight, bias?) ["", "bilinear", "bilinear", ""];
        Addr Promotes Elementwise addr(a, b, c) ["", "", "addr", ""];
        // recurrent networks
        RnnCell Keeps Recurrent rnn_cell(x; weights, h, relu) ["", "", "rnn_tanh_cell rnn_relu_cell", ""];
        GruCell Keeps Recurrent gru_cell(x; weights, h) ["", "", "gru_cell _thnn_fused_gru_cell", "GRUBlockCell"];
        LstmCell Keeps Recurrent lstm_cell(x; weights, state)
            ["", "", "lstm_cell _thnn_fused_lstm_cell", "LSTMBlockCell"];
        /// Whole recurrent layers in one call.
        FusedRnn Keeps Recurrent lstm(x; weights, state, reverse)
            ["", "", "_cudnn_rnn mkldnn_rnn_layer", "BlockLSTM BlockLSTMV2 CudnnRNN CudnnRNNV2 CudnnRNNV3"];
        // pools
        MaxPool1d Keeps Pool max_pool1d_with(x, options: &PoolOptions) ["", "", "max_pool1d", ""];
        MaxPool2d Keeps Pool max_pool2d_with(x, options: &PoolOptions)
            ["MaxPool", "pool2d", "max_pool2d", "MaxPool MaxPoolV2"];
        MaxPool3d Keeps Pool max_pool3d_with(x, options: &PoolOptions)
            ["MaxPool3D", "pool3d", "max_pool3d", "MaxPool3D"];
        AvgPool1d Keeps Pool avg_pool1d_with(x, options: &PoolOptions) ["", "", "avg_pool1d", ""];
        AvgPool2d Keeps Pool avg_pool2d_with(x, options: &PoolOptions) ["AvgPool", "pool2d", "avg_pool2d", "AvgPool"];
        AvgPool3d Keeps Pool avg_pool3d_with(x, options: &PoolOptions)
            ["AvgPool3D", "pool3d", "avg_pool3d", "AvgPool3D"];
        AdaptiveAvgPool1d Keeps Pool adaptive_avg_pool1d(x, output: [usize]) ["", "", "adaptive_avg_pool1d", ""];
        AdaptiveAvgPool2d Keeps Pool adaptive_avg_pool2d(x, output: [usize])
            ["AdaptiveAvgPool2D", "pool2d", "adaptive_avg_pool2d", ""];
        AdaptiveAvgPool3d Keeps Pool adaptive_avg_pool3d(x, output: [usize])
            ["AdaptiveAvgPool3D", "pool3d", "adaptive_avg_pool3d", ""];
        AdaptiveMaxPool1d Keeps Pool adaptive_max_pool1d(x, output: [usize]) ["", "", "adaptive_max_pool1d", ""];
        AdaptiveMaxPool2d Keeps Pool adaptive_max_pool2d(x, output: [usize]) ["", "", "adaptive_max_pool2d", ""];
        AdaptiveMaxPool3d Keeps Pool adaptive_max_pool3d(x, output: [usize]) ["", "", "adaptive_max_pool3d", ""];
        // normalisation
        BatchNorm Keeps Norm batch_norm(x, mean, var, gamma?, beta?, eps: f64) [
            "BatchNorm BatchNormExt", "batch_norm sync_batch_norm", "batch_norm native_batch_norm",
            "FusedBatchNorm FusedBatchNormV2 FusedBatchNormV3 _FusedBatchNormEx"
        ];
        LayerNorm Keeps Norm layer_norm(x, normalized_shape: [usize], gamma?, beta?, eps: f64)
            ["LayerNorm LayerNormExt", "layer_norm", "layer_norm native_layer_norm", ""];
        GroupNorm Keeps Norm group_norm(x, groups: usize, gamma?, beta?, eps: f64)
            ["GroupNorm", "group_norm", "group_norm native_group_norm", ""];
        InstanceNorm Keeps Norm instance_norm(x, gamma?, beta?, eps: f64)
            ["InstanceNorm", "instance_norm", "instance_norm", ""];
        RmsNorm Keeps Norm rms_norm(x, gamma?, eps: f64) ["RmsNorm", "rms_norm", "rms_norm", ""];
        // activations
        Relu Keeps Elementwise relu(x) ["ReLU", "relu", "relu", "Relu"];
        Prelu Refuses Elementwise prelu(a, b) ["PReLU", "prelu", "prelu", ""];
        LeakyRelu Keeps Elementwise leaky_relu(x, slope: f64) ["LeakyReLU", "leaky_relu", "leaky_relu", "LeakyRelu"];
        Elu Keeps Function elu(x, alpha: f64) ["Elu", "elu", "elu", "Elu"];
        Gelu Keeps Function gelu(x) ["GeLU", "gelu", "gelu", ""];
        Silu Keeps Function silu(x) ["SiLU", "silu swish", "silu", ""];
        Sigmoid Keeps Function sigmoid(x) ["Sigmoid", "sigmoid", "sigmoid", "Sigmoid"];
        Tanh Keeps Function tanh(x) ["Tanh", "tanh", "tanh", "Tanh"];
        Mish Keeps Function mish(x) ["Mish", "mish", "mish", ""];
        LogSigmoid Keeps Function log_sigmoid(x) ["LogSigmoid", "logsigmoid", "log_sigmoid", ""];
        Softplus Keeps Function softplus(x) ["Softplus SoftplusExt", "softplus", "softplus", "Softplus"];
        HardSigmoid Keeps Elementwise hard_sigmoid(x) ["HSigmoid", "hard_sigmoid", "hardsigmoid", ""];
        HardSwish Keeps Elementwise hard_swish(x) ["HSwish", "hard_swish", "hardswish", ""];
        HardTanh Keeps Elementwise hard_tanh(x) ["HardTanh", "brelu", "hardtanh", ""];
        Relu6 Keeps Elementwise relu6(x) ["ReLU6", "relu6", "relu6", "Relu6"];
        Softmax Keeps Function softmax(x, axis: isize) ["Softmax", "softmax", "softmax _softmax", "Softmax"];
        LogSoftmax Keeps Function log_softmax(x, axis: isize)
            ["LogSoftmax LogSoftmaxExt", "log_softmax", "log_softmax _log_softmax", "LogSoftmax"];
        Dropout Keeps Function dropout(x, p: f64, seed: u64) ["Dropout", "dropout", "dropout native_dropout", ""];
        Selu Keeps Function selu(x) ["", "selu", "selu", "Selu"];
        Celu Keeps Function celu(x, alpha: f64) ["", "celu", "celu", ""];
        Glu Keeps Function glu(x, axis: isize) ["", "", "glu", ""];
        Softsign Keeps Elementwise softsign(x) ["", "softsign", "softsign", "Softsign"];
        Softmin Keeps Function softmin(x, axis: isize) ["", "softmin", "softmin", ""];
        TanhShrink Keeps Function tanh_shrink(x) ["", "tanh_shrink", "tanhshrink", ""];
        Softshrink Keeps Elementwise softshrink(x, lambda: f64) ["", "softshrink", "softshrink", ""];
        // arithmetic
        Add Promotes Elementwise add(a, b) ["Add AddExt", "elementwise_add", "add", "Add AddV2"];
        Sub Promotes Elementwise sub(a, b) ["Sub SubExt", "elementwise_sub", "sub subtract rsub", "Sub"];
        Mul Promotes Elementwise mul(a, b) ["Mul Muls", "elementwise_mul", "mul multiply", "Mul"];
        Div Promotes Elementwise div(a, b) ["Div RealDiv", "elementwise_div", "div divide true_divide", "RealDiv Div"];
        Maximum Promotes Elementwise maximum(a, b) ["Maximum", "elementwise_max", "maximum", "Maximum"];
        Minimum Promotes Elementwise minimum(a, b) ["Minimum", "elementwise_min", "minimum", "Minimum"];
        Pow Promotes Function pow(a, b) ["Pow", "pow elementwise_pow", "pow", "Pow"];
        Addcdiv Promotes Elementwise addcdiv(x, a, b, value: f64) ["Addcdiv", "", "addcdiv", ""];
        Addcmul Promotes Elementwise addcmul(x, a, b, value: f64) ["Addcmul", "", "addcmul", ""];
        Cross Promotes Elementwise cross(x, other, axis: isize)
            ["Cross _PyboostCrossPrim", "cross", "cross linalg_cross", "Cross"];
        Neg Keeps Elementwise neg(x) ["Neg", "", "neg negative", "Neg"];
        Exp Keeps Function exp(x) ["Exp", "exp", "exp", "Exp"];
        Expm1 Keeps Function expm1(x) ["Expm1", "expm1", "expm1", "Expm1"];
        Log Keeps Function log(x) ["Log", "log", "log", "Log"];
        Log2 Keeps Function log2(x) ["Log2", "log2", "log2", ""];
        Log10 Keeps Function log10(x) ["Log10", "log10", "log10", ""];
        Log1p Keeps Function log1p(x) ["Log1p", "log1p", "log1p", "Log1p"];
        Sqrt Keeps Elementwise sqrt(x) ["Sqrt", "sqrt", "sqrt", "Sqrt"];
        Rsqrt Keeps Elementwise rsqrt(x) ["Rsqrt", "rsqrt", "rsqrt", "Rsqrt"];
        Reciprocal Keeps Elementwise reciprocal(x) ["Reciprocal", "reciprocal", "reciprocal", "Reciprocal Inv"];
        Square Keeps Elementwise square(x) ["Square", "square", "square", "Square"];
        Abs Keeps Elementwise abs(x) ["Abs", "abs", "abs absolute", "Abs"];
        Sign Keeps Elementwise sign(x) ["Sign", "sign", "sign", "Sign"];
        Floor Keeps Elementwise floor(x) ["Floor", "floor", "floor", "Floor"];
        Ceil Keeps Elementwise ceil(x) ["Ceil", "ceil", "ceil", "Ceil"];
        Round Keeps Elementwise round(x) ["Round", "round", "round", "Round"];
        Sin Keeps Function sin(x) ["Sin", "sin", "sin", "Sin"];
        Cos Keeps Function cos(x) ["Cos", "cos", "cos", "Cos"];
        Tan Keeps Function tan(x) ["Tan", "tan", "tan", "Tan"];
        Asin Keeps Function asin(x) ["Asin", "asin", "asin", "Asin"];
        Acos Keeps Function acos(x) ["ACos", "acos", "acos", "Acos"];
        Atan Keeps Function atan(x) ["Atan", "atan", "atan", "Atan"];
        Sinh Keeps Function sinh(x) ["Sinh", "sinh", "sinh", "Sinh"];
        Cosh Keeps Function cosh(x) ["Cosh", "cosh", "cosh", "Cosh"];
        Erf Keeps Function erf(x) ["Erf", "erf", "erf", "Erf"];
        Erfinv Keeps Function erfinv(x) ["Erfinv", "erfinv", "erfinv", "Erfinv"];
        Clamp Keeps Elementwise clamp(x, min: f64, max: f64) ["ClampScalar", "clip", "clamp clip", "ClipByValue"];
        Fmod Promotes Function fmod(a, b) ["", "", "fmod", ""];
        Remainder Promotes Function remainder(a, b) ["", "elementwise_mod", "remainder", ""];
        Atan2 Promotes Function atan2(a, b) ["", "atan2", "atan2", ""];
        Hypot Promotes Function hypot(a, b) ["", "", "hypot", ""];
        Lerp Promotes Elementwise lerp(x, end, weight: f64) ["", "lerp", "lerp", ""];
        Erfc Keeps Function erfc(x) ["", "", "erfc", "Erfc"];
        Asinh Keeps Function asinh(x) ["", "asinh", "asinh", ""];
        Acosh Keeps Function acosh(x) ["", "acosh", "acosh", ""];
        Atanh Keeps Function atanh(x) ["", "atanh", "atanh", ""];
        Trunc Keeps Elementwise trunc(x) ["", "trunc", "trunc", ""];
        // comparison and choice
        Equal Promotes Elementwise eq(a, b) ["Equal", "equal", "eq", "Equal"];
        NotEqual Promotes Elementwise ne(a, b) ["NotEqual", "not_equal", "ne", "NotEqual"];
        Less Promotes Elementwise lt(a, b) ["Less", "less_than", "lt", "Less"];
        LessEqual Promotes Elementwise le(a, b) ["LessEqual", "less_equal", "le", "LessEqual"];
        Greater Promotes Elementwise gt(a, b) ["Greater", "greater_than", "gt", "Greater"];
        GreaterEqual Promotes Elementwise ge(a, b) ["GreaterEqual", "greater_equal", "ge", "GreaterEqual"];
        Where Promotes Elementwise select(mask, a, b) ["Select", "where", "where", "Select SelectV2"];
        LogicalNot Keeps Elementwise logical_not(x) ["LogicalNot", "logical_not", "logical_not", "LogicalNot"];
        LogicalAnd Keeps Elementwise logical_and(a, b) ["LogicalAnd", "logical_and", "logical_and", "LogicalAnd"];
        LogicalOr Keeps Elementwise logical_or(a, b) ["LogicalOr", "logical_or", "logical_or", "LogicalOr"];
        IsFinite Keeps Elementwise is_finite(x) ["IsFinite", "isfinite_v2", "isfinite", "IsFinite"];
        IsInf Keeps Elementwise is_inf(x) ["IsInf", "isinf_v2", "isinf", "IsInf"];
        IsNan Keeps Elementwise is_nan(x) ["IsNan", "isnan_v2", "isnan", "IsNan"];
        // reductions
        Sum Keeps Elementwise sum(x, axes: [isize], keep_dims: bool)
            ["ReduceSum SumExt", "reduce_sum sum", "sum", "Sum"];
        Mean Keeps Elementwise mean(x, axes: [isize], keep_dims: bool)
            ["ReduceMean", "reduce_mean mean", "mean", "Mean"];
        Var Keeps Elementwise var(x, axes: [isize], correction: usize, keep_dims: bool) ["Var", "", "var", ""];
        Max Keeps Elementwise max(x, axes: [isize], keep_dims: bool)
            ["ReduceMax", "reduce_max reduce_amax", "max amax", "Max"];
        Min Keeps Elementwise min(x, axes: [isize], keep_dims: bool)
            ["ReduceMin", "reduce_min reduce_amin", "min amin", "Min"];
        Prod Keeps Elementwise prod(x, axes: [isize], keep_dims: bool)
            ["ReduceProd ProdExt", "reduce_prod", "prod", "Prod"];
        CumSum Keeps Elementwise cumsum(x, axis: isize) ["CumSum CumsumExt", "cumsum", "cumsum", "Cumsum"];
        CumProd Keeps Elementwise cumprod(x, axis: isize) ["CumProd", "cumprod", "cumprod", "Cumprod"];
        Norm Keeps Elementwise norm(x, p: f64, axes: [isize], keep_dims: bool)
            ["Norm", "p_norm pnorm", "norm linalg_vector_norm", ""];
        ArgMax Keeps Elementwise argmax(x, axis: isize, keep_dims: bool) ["Argmax", "arg_max", "argmax", "ArgMax"];
        ArgMin Keeps Elementwise argmin(x, axis: isize, keep_dims: bool) ["Argmin", "arg_min", "argmin", "ArgMin"];
        LogSumExp Keeps Function logsumexp(x, axes: [isize], keep_dims: bool) ["", "logsumexp", "logsumexp", ""];
        Std Keeps Elementwise std(x, axes: [isize], correction: usize, keep_dims: bool) ["", "", "std", ""];
        Renorm Keeps Elementwise renorm(x, p: f64, axis: isize, max_norm: f64) ["Renorm", "renorm", "renorm", ""];
        Dist Promotes Elementwise dist(x, other, p: f64) ["", "dist", "dist", ""];
        Pdist Keeps Distance pdist(x, p: f64) ["Pdist", "", "pdist", ""];
        CosineSimilarity Promotes Elementwise cosine_similarity(x, other, axis: isize, eps: f64)
            ["", "", "cosine_similarity", ""];
        Trace Keeps Elementwise trace(x) ["", "", "trace", ""];
        // shapes and indexing
        Reshape Keeps View reshape(x, shape: [isize]) ["Reshape", "reshape reshape2", "reshape view", "Reshape"];
        Flatten Keeps View flatten(x, start_axis: usize) ["Flatten", "flatten_contiguous_range", "flatten", ""];
        Unsqueeze Keeps View unsqueeze(x, axis: isize) ["ExpandDims", "unsqueeze2", "unsqueeze", "ExpandDims"];
        Squeeze Keeps View squeeze(x, axis: isize) ["Squeeze", "squeeze2", "squeeze", "Squeeze"];
        Transpose Keeps Elementwise permute(x, axes: [usize])
            ["Transpose", "transpose2", "transpose permute t", "Transpose"];
        Broadcast Keeps Elementwise broadcast_to(x, shape: [usize])
            ["BroadcastTo", "expand_v2", "expand", "BroadcastTo"];
        Slice Keeps Elementwise slice(x, axis: isize, range: Range<usize>)
            ["Slice StridedSlice", "slice", "slice select", "Slice StridedSlice"];
        Concat Promotes Elementwise concat(tensors.., axis: isize) ["Concat", "concat", "cat", "Concat ConcatV2"];
        Stack Promotes Elementwise stack(tensors.., axis: isize) ["Stack", "stack", "stack", "Pack"];
        Split Keeps Elementwise split(x, lengths: [usize], axis: isize)
            ["Split", "split split_with_num", "split chunk", "Split SplitV"];
        Pad Keeps Elementwise pad(x, pairs: [(usize, usize)], value: f64)
            ["Pad", "pad", "constant_pad_nd", "Pad PadV2"];
        Gather Keeps Elementwise gather(x, axis: isize, index) ["GatherD", "take_along_axis", "gather", ""];
        IndexSelect Keeps Elementwise index_select(x, axis: isize, index)
            ["IndexSelect", "index_select gather", "index_select", ""];
        Embedding Keeps Elementwise embedding(a, b)
            ["Gather", "lookup_table_v2 lookup_table", "embedding", "Gather GatherV2"];
        ScatterAdd Promotes Elementwise scatter_add(x, axis: isize, index, src)
            ["ScatterAddExt", "", "scatter_add", ""];
        IndexPut Promotes Elementwise index_put(x, index, values, accumulate: bool)
            ["IndexPut", "index_put", "index_put", ""];
        TopK Keeps Function topk(x, k: usize, axis: isize, largest: bool)
            ["TopK TopkExt", "top_k_v2", "topk", "TopK TopKV2"];
        Sort Keeps Function sort(x, axis: isize, descending: bool) ["Sort SortExt", "argsort", "sort", ""];
        Reverse Keeps Elementwise flip(x, axes: [isize])
            ["ReverseV2", "flip", "flip", "Reverse ReverseV2 ReverseSequence"];
        Roll Keeps Elementwise roll(x, shifts: [isize], axes: [isize]) ["Roll", "roll", "roll", "Roll"];
        Tile Keeps Elementwise tile(x, repeats: [usize]) ["Tile", "tile", "repeat tile", "Tile"];
        Tril Keeps Elementwise tril(x, diagonal: isize) ["Tril", "tril", "tril", ""];
        Triu Keeps Elementwise triu(x, diagonal: isize) ["Triu", "triu", "triu", ""];
        OneHot Keeps Elementwise one_hot(x, classes: usize) ["OneHot", "one_hot_v2", "one_hot", "OneHot"];
        Interpolate Keeps Function interpolate(x, size: &Resize, mode: Interpolation, align_corners: bool) [
            "UpsampleNearest1D UpsampleNearest2D UpsampleNearest3D UpsampleLinear1D UpsampleBilinear2D
             UpsampleTrilinear3D",
            "nearest_interp_v2 linear_interp_v2 bilinear_interp_v2 bicubic_interp_v2 trilinear_interp_v2",
            "upsample_nearest1d upsample_nearest2d upsample_nearest3d upsample_linear1d upsample_bilinear2d
             upsample_bicubic2d upsample_trilinear3d _upsample_nearest_exact1d _upsample_nearest_exact2d
             _upsample_nearest_exact3d _upsample_bilinear2d_aa _upsample_bicubic2d_aa",
            "ResizeBilinear ResizeNearestNeighbor"
        ];
        GridSampler2d Promotes Function
            grid_sample(x, grid, mode: Interpolation, padding: GridPadding, align_corners: bool)
            ["GridSampler2D", "grid_sampler", "grid_sampler grid_sampler_2d _grid_sampler_2d_cpu_fallback", ""];
        AffineGrid Keeps Elementwise affine_grid(x, size: [usize], align_corners: bool)
            ["", "", "affine_grid_generator", ""];
        GridSampler3d Promotes Function
            grid_sample(x, grid, mode: Interpolation, padding: GridPadding, align_corners: bool)
            ["GridSampler3D", "grid_sampler", "grid_sampler grid_sampler_3d", ""];
        ReflectionPad Keeps Elementwise reflection_pad(x, pairs: [(usize, usize)])
            ["", "", "reflection_pad1d reflection_pad2d reflection_pad3d", "MirrorPad"];
        ReplicationPad Keeps Elementwise replication_pad(x, pairs: [(usize, usize)])
            ["", "", "replication_pad1d replication_pad2d replication_pad3d", ""];
        PixelShuffle Keeps Elementwise pixel_shuffle(x, r: usize) ["", "", "pixel_shuffle", "DepthToSpace"];
        SpaceToDepth Keeps Elementwise pixel_unshuffle(x, r: usize) ["", "", "pixel_unshuffle", "SpaceToDepth"];
        Scatter Promotes Elementwise scatter(x, axis: isize, index, src) ["", "scatter", "scatter", "ScatterNd"];
        IndexCopy Promotes Elementwise index_copy(x, axis: isize, index, values) ["", "", "index_copy", ""];
        IndexAdd Promotes Elementwise index_add(x, axis: isize, index, values) ["", "", "index_add", ""];
        MaskedFill Keeps Elementwise masked_fill(x, mask, value: f64) ["", "masked_fill", "masked_fill", ""];
        // losses
        CrossEntropy Promotes Function cross_entropy(a, b) [
            "", "softmax_with_cross_entropy cross_entropy cross_entropy2", "cross_entropy_loss",
            "SparseSoftmaxCrossEntropyWithLogits SoftmaxCrossEntropyWithLogits"
        ];
        CtcLoss Keeps Elementwise
            ctc_loss(x, targets, input_lengths, target_lengths, blank: usize, zero_infinity: bool, reduction: Reduction)
            ["", "", "ctc_loss", ""];
        NllLoss Keeps Elementwise nll_loss(x, target, reduction: Reduction)
            ["NLLLoss", "nll_loss", "nll_loss nll_loss2d", ""];
        MseLoss Promotes Elementwise mse_loss(x, target, reduction: Reduction) ["MSELossExt", "", "mse_loss", ""];
        L1Loss Promotes Elementwise l1_loss(x, target, reduction: Reduction) ["L1LossExt", "", "l1_loss", ""];
        SmoothL1Loss Promotes Elementwise smooth_l1_loss(x, target, beta: f64, reduction: Reduction)
            ["SmoothL1Loss", "", "smooth_l1_loss", ""];
        BceWithLogits Promotes Function bce_with_logits(x, target, reduction: Reduction)
            ["BCEWithLogitsLoss", "sigmoid_cross_entropy_with_logits", "binary_cross_entropy_with_logits", ""];
        KlDiv Promotes Function kl_div(x, target, reduction: Reduction) ["KLDivLoss", "kldiv_loss", "kl_div", ""];
        Cdist Promotes Distance cdist(x, other, p: f64) ["Cdist", "", "cdist _cdist_forward", ""];
        BinaryCrossEntropy Promotes Function binary_cross_entropy(x, target, reduction: Reduction)
            ["", "bce_loss", "binary_cross_entropy", ""];
        CosineEmbeddingLoss Promotes Elementwise
            cosine_embedding_loss(x, other, target, margin: f64, reduction: Reduction)
            ["", "", "cosine_embedding_loss", ""];
        HingeEmbeddingLoss Promotes Elementwise hinge_embedding_loss(x, target, margin: f64, reduction: Reduction)
            ["", "", "hinge_embedding_loss", ""];
        HuberLoss Promotes Elementwise huber_loss(x, target, delta: f64, reduction: Reduction)
            ["", "huber_loss", "huber_loss", ""];
        MarginRankingLoss Promotes Elementwise margin_ranking_loss(x, other, target, margin: f64, reduction: Reduction)
            ["", "", "margin_ranking_loss", ""];
        MultilabelMarginLoss Keeps Elementwise multilabel_margin_loss(x, target, reduction: Reduction)
            ["MultilabelMarginLoss", "", "multilabel_margin_loss multilabel_margin_loss_forward", ""];
        MultiMarginLoss Keeps Elementwise multi_margin_loss(x, target, p: u32, margin: f64, reduction: Reduction)
            ["MultiMarginLoss", "", "multi_margin_loss", ""];
        PoissonNllLoss Promotes Function poisson_nll_loss(x, target, log_input: bool, reduction: Reduction)
            ["", "", "poisson_nll_loss", ""];
        SoftMarginLoss Promotes Function soft_margin_loss(x, target, reduction: Reduction)
            ["SoftMarginLoss", "", "soft_margin_loss", ""];
        TripletMarginLoss Promotes Elementwise
            triplet_margin_loss(x, alike, different, margin: f64, p: f64, reduction: Reduction)
            ["TripletMarginLoss", "triplet_margin_loss", "triplet_margin_loss", ""];
        GaussianNllLoss Promotes Function gaussian_nll_loss(x, target, var, eps: f64, reduction: Reduction)
            ["", "", "gaussian_nll_loss", ""];
    }

    decided_only {
        // products
        Vdot ["", "", "vdot", ""];
        AddmmActivation ["", "", "_addmm_activation", ""];
        ConvTbc ["", "", "conv_tbc", ""];
        DepthwiseConv2d ["", "depthwise_conv2d", "", "DepthwiseConv2dNative"];
        FusedAttention ["", "fused_attention", "_native_multi_head_attention", "Mha MhaV2"];
        FusedFeedforward ["", "fused_feedforward", "", ""];
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
        // pooling and indexing
        MaxPool2dWithIndex ["", "max_pool2d_with_index", "max_pool2d_with_indices", "MaxPoolWithArgmax"];
        FractionalMaxPool ["", "", "fractional_max_pool2d fractional_max_pool3d", ""];
        MaxUnpool ["", "", "max_unpool2d max_unpool3d", ""];
        BatchToSpace ["", "", "", "BatchToSpace BatchToSpaceND"];
        SpaceToBatch ["", "", "", "SpaceToBatch SpaceToBatchND"];
        Unstack ["", "", "unbind", "Unpack"];
        GatherNd ["", "", "", "GatherNd"];
        MaskedScatter ["", "", "masked_scatter", ""];
        DynamicPartition ["", "", "", "DynamicPartition"];
        DynamicStitch ["", "", "", "DynamicStitch"];
        OnesLike ["", "", "ones_like", "OnesLike"];
        ZerosLike ["", "fill_any_like", "zeros_like", "ZerosLike"];
        Fill ["", "fill_constant", "full", "Fill"];
        /// Indices of the nonzero elements.
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
        HierarchicalSigmoidLoss ["", "hsigmoid_loss", "", ""];
        LogLoss ["", "log_loss", "", ""];
        MarginCrossEntropy ["", "margin_cross_entropy", "", ""];
        ParallelCrossEntropy [
            "", "c_softmax_with_cross_entropy c_softmax_with_multi_label_cross_entropy", "", ""
        ];
        // graph nodes other than arithmetic
        LoopControl ["", "", "", "Enter Exit Merge NextIteration Switch"];
        While ["", "while", "", "While StatelessWhile"];
        Save ["", "", "", "SaveV2"];
        TensorList [
            "", "", "",
            "TensorListConcat TensorListConcatLists TensorListConcatV2 TensorListFromTensor TensorListGather
             TensorListGetItem TensorListPopBack TensorListPushBack TensorListPushBackBatch TensorListScatter
             TensorListScatterIntoExistingList TensorListScatterV2 TensorListSetItem TensorListSplit TensorListStack"
        ];
        // gradients as graph nodes; in precast, the backward pass runs in the dtypes of the forward pass
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
    } };
}
