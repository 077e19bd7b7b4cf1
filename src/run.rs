//! Any op by its name in the catalogue, for programs that learn only at run time what to call.

use crate::{
    Op, Tensor,
    error::{Error, Result},
    policy::Pack,
};

/// How an op is called.
enum Call {
    One(fn(&Tensor) -> Result<Tensor>),
    Two(fn(&Tensor, &Tensor) -> Result<Tensor>),
    Three(fn(&Tensor, &Tensor, &Tensor) -> Result<Tensor>),
    /// Two tensors and, if one likes, a third: a bias.
    TwoOrThree(fn(&Tensor, &Tensor, Option<&Tensor>) -> Result<Tensor>),
    ThreeOrFour(fn(&Tensor, &Tensor, &Tensor, Option<&Tensor>) -> Result<Tensor>),
    /// As many tensors as one likes.
    Any(fn(&[&Tensor]) -> Result<Tensor>),
    /// Needs more than tensors: its method, with what that takes.
    Method(&'static str),
}

macro_rules! calls {
    (
        $($how:ident { $($op:ident $f:ident),* $(,)? })*
        ; methods { $($needy:ident $method:ident $arguments:literal),* $(,)? }
    ) => {
        /// The call of an op; `None` when it has no kernel.
        fn call(op: Op) -> Option<Call> {
            Some(match op {
                $($(Op::$op => Call::$how(Tensor::$f),)*)*
                $(Op::$needy => {
                    let _exists = Tensor::$method;
                    Call::Method(concat!(stringify!($method), "(", $arguments, ")"))
                })*
                _ => return None,
            })
        }
    };
}

calls! {
    One {
        Abs abs, Acos acos, Acosh acosh, Asin asin, Asinh asinh, Atan atan, Atanh atanh, Ceil ceil, Cos cos, Cosh cosh,
        Erf erf, Erfc erfc, Erfinv erfinv, Exp exp, Expm1 expm1, Floor floor, Gelu gelu, HardSigmoid hard_sigmoid,
        HardSwish hard_swish, HardTanh hard_tanh, IsFinite is_finite, Log log, Log10 log10, Log1p log1p, Log2 log2,
        LogSigmoid log_sigmoid, LogicalNot logical_not, Mish mish, Neg neg, Reciprocal reciprocal, Relu relu,
        Relu6 relu6, Round round, Rsqrt rsqrt, Selu selu, Sigmoid sigmoid, Sign sign, Silu silu, Sin sin, Sinh sinh,
        Softplus softplus, Softsign softsign, Sqrt sqrt, Square square, Tan tan, Tanh tanh, TanhShrink tanh_shrink,
        Trace trace, Trunc trunc,
    }
    Two {
        Add add, Atan2 atan2, BatchMatMul batch_matmul, BiasAdd bias_add, CrossEntropy cross_entropy, Div div, Dot dot,
        Embedding embedding, Equal eq, Fmod fmod, Ger outer, Greater gt, GreaterEqual ge, Hypot hypot, Inner inner, Less lt,
        LessEqual le, LogicalAnd logical_and, LogicalOr logical_or, MatMul matmul, MatMulExt matmul_ext,
        Maximum maximum, Minimum minimum, Mul mul, Mv mv, NotEqual ne, Pow pow, Prelu prelu, Remainder remainder, Sub sub,
        Vecdot vecdot,
    }
    Three {
        Addbmm addbmm, Addmm addmm, Addmv addmv, Addr addr, Baddbmm baddbmm, Where select,
    }
    TwoOrThree { Linear linear }
    ThreeOrFour { Bilinear bilinear }
    Any { MultiDot multi_dot }
    ;
    methods {
        AdaptiveAvgPool1d adaptive_avg_pool1d "output", AdaptiveAvgPool2d adaptive_avg_pool2d "output",
        AdaptiveAvgPool3d adaptive_avg_pool3d "output", AdaptiveMaxPool1d adaptive_max_pool1d "output",
        AdaptiveMaxPool2d adaptive_max_pool2d "output", AdaptiveMaxPool3d adaptive_max_pool3d "output",
        Addcdiv addcdiv "a, b, value", Addcmul addcmul "a, b, value", AffineGrid affine_grid "size, align_corners",
        ArgMax argmax "axis, keep_dims", ArgMin argmin "axis, keep_dims", AvgPool1d avg_pool1d "kernel, stride",
        AvgPool2d avg_pool2d "kernel, stride", AvgPool3d avg_pool3d "kernel, stride",
        BatchNorm batch_norm "mean, var, gamma, beta, eps", BceWithLogits bce_with_logits "target, reduction",
        BinaryCrossEntropy binary_cross_entropy "target, reduction", Broadcast broadcast_to "shape", Cast cast "dtype",
        Cdist cdist "other, p", Celu celu "alpha", Clamp clamp "min, max", Concat concat "tensors, axis",
        Conv1d conv1d "weight, bias, options", Conv2d conv2d "weight, bias, options",
        Conv3d conv3d "weight, bias, options", ConvTranspose1d conv_transpose1d "weight, bias, options",
        ConvTranspose2d conv_transpose2d "weight, bias, options",
        ConvTranspose3d conv_transpose3d "weight, bias, options",
        CosineEmbeddingLoss cosine_embedding_loss "other, target, margin, reduction",
        CosineSimilarity cosine_similarity "other, axis, eps", Cross cross "other, axis", CumProd cumprod "axis",
        CumSum cumsum "axis", Dist dist "other, p", Dropout dropout "p, seed", Einsum einsum "equation, operands",
        Elu elu "alpha", Flatten flatten "start_axis",
        FusedRnn lstm "weights, state, reverse", Gather gather "axis, index",
        GaussianNllLoss gaussian_nll_loss "target, var, eps, reduction", Glu glu "axis",
        GridSampler2d grid_sample "grid, mode, padding, align_corners",
        GridSampler3d grid_sample "grid, mode, padding, align_corners", GroupNorm group_norm "groups, gamma, beta, eps",
        GruCell gru_cell "weights, h",
        HingeEmbeddingLoss hinge_embedding_loss "target, margin, reduction",
        HuberLoss huber_loss "target, delta, reduction", IndexAdd index_add "axis, index, values",
        IndexCopy index_copy "axis, index, values", IndexPut index_put "index, values, accumulate",
        IndexSelect index_select "axis, index", InstanceNorm instance_norm "gamma, beta, eps",
        Interpolate interpolate "size, mode, align_corners", KlDiv kl_div "target, reduction",
        L1Loss l1_loss "target, reduction", LayerNorm layer_norm "normalized_shape, gamma, beta, eps",
        LeakyRelu leaky_relu "slope", Lerp lerp "end, weight", LogSoftmax log_softmax "axis",
        LogSumExp logsumexp "axes, keep_dims", LstmCell lstm_cell "weights, state",
        MarginRankingLoss margin_ranking_loss "other, target, margin, reduction",
        MaskedFill masked_fill "mask, value", Max max "axes, keep_dims", MaxPool1d max_pool1d "kernel, stride",
        MaxPool2d max_pool2d "kernel, stride", MaxPool3d max_pool3d "kernel, stride", Mean mean "axes, keep_dims",
        Min min "axes, keep_dims", MseLoss mse_loss "target, reduction",
        MultiMarginLoss multi_margin_loss "target, p, margin, reduction",
        MultilabelMarginLoss multilabel_margin_loss "target, reduction", NllLoss nll_loss "target, reduction",
        Norm norm "p, axes, keep_dims", Pad pad "pairs, value", Pdist pdist "p", PixelShuffle pixel_shuffle "r",
        PoissonNllLoss poisson_nll_loss "target, log_input, reduction", Prod prod "axes, keep_dims",
        ReflectionPad reflection_pad "pairs", ReplicationPad replication_pad "pairs", Reshape reshape "shape",
        Renorm renorm "p, axis, max_norm", RmsNorm rms_norm "gamma, eps", RnnCell rnn_cell "weights, h, relu",
        ScaledDotProductAttention scaled_dot_product_attention "k, v, mask, causal, scale",
        Scatter scatter "axis, index, src", ScatterAdd scatter_add "axis, index, src", Slice slice "axis, range",
        SmoothL1Loss smooth_l1_loss "target, beta, reduction", SoftMarginLoss soft_margin_loss "target, reduction",
        Softmax softmax "axis", Softmin softmin "axis", Softshrink softshrink "lambda", Sort sort "axis, descending",
        SpaceToDepth pixel_unshuffle "r", Split split "lengths, axis", Squeeze squeeze "axis",
        Stack stack "tensors, axis", Std std "axes, correction, keep_dims", Sum sum "axes, keep_dims",
        Tensordot tensordot "other, axes, others", TopK topk "k, axis, largest", Transpose transpose "a, b",
        TripletMarginLoss triplet_margin_loss "alike, different, margin, p, reduction", Unsqueeze unsqueeze "axis",
        Var var "axes, correction, keep_dims",
    }
}

/// Runs an op whose arguments are tensors only, as its method of [`Tensor`] does: the first input is the tensor on which
/// that is called.
///
/// # Errors
/// [`ErrorKind::Unsupported`](crate::ErrorKind::Unsupported) for an op without a kernel;
/// [`ErrorKind::Value`](crate::ErrorKind::Value) for an op that needs more than tensors, with the method to call, and for a
/// wrong number of tensors; then those of the op.
///
/// ```
/// use precast::{Op, prelude::*};
/// let x = Tensor::from_vec(vec![-1f32, 2.], &[2])?;
/// let [op] = Op::named("aten::relu")?[..] else { unreachable!("one op") };
/// assert_eq!(precast::run(op, &[&x])?.to_f64(), [0., 2.]);
/// assert_eq!(precast::run(Op::Add, &[&x, &x])?.to_f64(), [-2., 4.]);
/// let error = precast::run(Op::Softmax, &[&x]).unwrap_err().to_string();
/// assert_eq!(error, "Softmax: needs more than tensors; call Tensor::softmax(axis)");
/// # Ok::<(), precast::Error>(())
/// ```
pub fn run(op: Op, inputs: &[&Tensor]) -> Result<Tensor> {
    let Some(call) = call(op) else { return Err(no_kernel(op)) };
    let takes = match (call, inputs) {
        (Call::One(f), [x]) => return f(x),
        (Call::Two(f), [a, b]) => return f(a, b),
        (Call::Three(f), [a, b, c]) => return f(a, b, c),
        (Call::TwoOrThree(f), [a, b, rest @ ..]) if rest.len() < 2 => return f(a, b, rest.first().copied()),
        (Call::ThreeOrFour(f), [a, b, c, rest @ ..]) if rest.len() < 2 => return f(a, b, c, rest.first().copied()),
        (Call::Any(f), tensors) => return f(tensors),
        (Call::Method(method), _) => {
            let words = format!("needs more than tensors; call Tensor::{method}");
            return Err(Error::value(words).in_op(op.name()));
        }
        (Call::One(_), _) => "1 tensor",
        (Call::Two(_), _) => "2 tensors",
        (Call::Three(_), _) => "3 tensors",
        (Call::TwoOrThree(_), _) => "2 or 3 tensors",
        (Call::ThreeOrFour(_), _) => "3 or 4 tensors",
    };
    Err(Error::value(format!("takes {takes}, got {}", inputs.len())).in_op(op.name()))
}

/// Says what precast does know of the op: which packs list it, and as what.
fn no_kernel(op: Op) -> Error {
    let listed = |name| {
        let pack = Pack::shared(name).ok()?;
        let lists = pack.region(None).ok()?;
        Some(format!("{}: {}", lists.name, lists.ops().get(&op)?.treatment))
    };
    let listed: Vec<String> = Pack::names().filter_map(listed).collect();
    let decided = match &listed[..] {
        [] => String::new(),
        listed => format!(" ({})", listed.join(", ")),
    };
    Error::unsupported(format!("no kernel; precast decides its precision{decided} and does not run it"))
        .in_op(op.name())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{DType, ErrorKind};

    #[test]
    fn every_op_runs_or_says_why_not() {
        let x = Tensor::ones(&[1], DType::F32);
        for op in Op::ALL {
            assert_eq!(call(*op).is_some(), op.has_kernel(), "{op}");
            let kind = if op.has_kernel() { ErrorKind::Value } else { ErrorKind::Unsupported };
            if let Some(Call::Any(_)) = call(*op) {
                continue;
            }
            // No other op takes five tensors, and none takes none.
            for inputs in [&[][..], &[&x; 5]] {
                let error = run(*op, inputs).unwrap_err();
                assert_eq!((error.kind(), error.op()), (kind, Some(op.name())), "{error}");
            }
        }
    }

    #[test]
    fn tensors_go_to_the_op_in_the_order_of_its_method() {
        let vector = |x: &[f32]| Tensor::from_vec(x.to_vec(), &[x.len()]).unwrap();
        let (a, b, c) = (vector(&[1.0, 2.0]), vector(&[4.0, 8.0]), vector(&[0.5, 0.25]));
        let table = |x: &Tensor| x.reshape(&[1, 2]).unwrap();
        let mask = Tensor::from_vec(vec![true, false], &[2]).unwrap();
        let of = |op, inputs: &[&Tensor]| run(op, inputs).unwrap().to_f64();
        assert_eq!(of(Op::Neg, &[&a]), [-1.0, -2.0]);
        assert_eq!(of(Op::Div, &[&a, &b]), [0.25, 0.25]);
        assert_eq!(of(Op::Pow, &[&b, &a]), [4.0, 64.0]);
        assert_eq!(of(Op::Where, &[&mask, &a, &b]), [1.0, 8.0]);
        assert_eq!(of(Op::Addmv, &[&c.slice(0, 0..1).unwrap(), &table(&a), &b]), [20.5]);
        assert_eq!(of(Op::MultiDot, &[&table(&a), &b.reshape(&[2, 1]).unwrap()]), [20.0]);
        assert_eq!(of(Op::Linear, &[&a, &table(&b)]), [20.0]);
        assert_eq!(of(Op::Linear, &[&a, &table(&b), &c.slice(0, 0..1).unwrap()]), [20.5]);
        let index = Tensor::from_vec(vec![1i64], &[1]).unwrap();
        assert_eq!(of(Op::Embedding, &[&index, &b.reshape(&[2, 1]).unwrap()]), [8.0]);
    }

    #[test]
    fn an_op_without_kernel_tells_what_is_known_of_it() {
        let message = run(Op::Stft, &[]).unwrap_err().to_string();
        let known = "precast-1: full, torch-2.15-cpu: full";
        assert_eq!(message, format!("Stft: no kernel; precast decides its precision ({known}) and does not run it"));
        let message = run(Op::Size, &[]).unwrap_err().to_string();
        assert!(message.starts_with("Size: no kernel; precast decides its precision"), "{message}");
        let message = run(Op::Add, &[]).unwrap_err().to_string();
        assert_eq!(message, "Add: takes 2 tensors, got 0");
    }
}
