//! The recorded functions of Paddle: their inputs, and their equivalents here.

use precast::{
    ConvOptions, ConvTransposeOptions, CrossEntropy, DType, Interpolation, Op, Reduction, Resize, Result, Tensor,
};

/// An input of a function.
pub enum Input {
    /// Floating-point, in the dtype given by the case.
    Given(&'static [usize]),
    /// Always f32: the parameters of a norm.
    Full(&'static [usize]),
    /// Indices: 0, 1, 2, 0, ...
    Index(&'static [usize]),
    Mask(&'static [usize]),
}

pub type Run = fn(&[Tensor]) -> Result<Tensor>;

/// Equivalent here of a Paddle function.
pub enum Written {
    /// The same ops.
    Ops(Run),
    /// Other ops than Paddle's, or another number of them.
    Whole(Run),
    /// Several ops, like [`Whole`](Written::Whole): each with its inputs, which are inputs of the function or, numbered
    /// after these, results of earlier ops.
    Steps(&'static [(Op, &'static [usize])], Run),
    /// This one op where Paddle uses several, along with the same ops as Paddle's, one by one.
    Instead(Op, Run, Run),
    /// This op, where Paddle splits its ops differently and uses the one with this name on its lists.
    Twin(Op, Run, &'static str),
    /// An op without a kernel: the effect of a region on its inputs is compared, and the result has their dtype.
    Decided(Op),
    /// An op without a kernel, whose result has this dtype.
    Tells(Op, DType),
}

use Written::{Decided, Instead, Ops, Steps, Tells, Twin, Whole};

pub struct Form {
    pub api: &'static str,
    pub inputs: &'static [Input],
    pub written: Written,
}

const fn form(api: &'static str, inputs: &'static [Input], written: Written) -> Form {
    Form { api, inputs, written }
}

const A: Input = Input::Given(&[4, 4]);
const ROW: Input = Input::Given(&[4]);
const IMAGE: Input = Input::Given(&[2, 4, 8, 8]);
const KERNEL: Input = Input::Given(&[3, 4, 3, 3]);
const FULL: Input = Input::Full(&[4]);
const ONE: &[Input] = &[A];
const TWO: &[Input] = &[A, A];
const PICTURE: &[Input] = &[IMAGE];
const MEAN: Reduction = Reduction::Mean;
const EACH: Reduction = Reduction::None;

fn conv() -> ConvOptions {
    ConvOptions::default()
}

fn grouped() -> ConvOptions {
    ConvOptions::default().groups(4)
}

fn transposed() -> ConvTransposeOptions {
    ConvTransposeOptions::default()
}

fn half() -> Resize {
    Resize::To(vec![4, 4])
}

fn each() -> CrossEntropy {
    CrossEntropy::default().reduction(EACH)
}

/// Computes attention over `[batch, sequence, heads, size]`, op by op.
fn attention(x: &[Tensor]) -> Result<Tensor> {
    let (q, k, v) = (x[0].transpose(1, 2)?, x[1].permute(&[0, 2, 3, 1])?, x[2].transpose(1, 2)?);
    let scores = (q * 0.35355339)?.matmul_ext(&k)?;
    scores.softmax(-1)?.matmul_ext(&v)?.transpose(1, 2)
}

/// Divides the product of two vectors by the root of the product of their squared lengths, op by op.
fn similarity(x: &[Tensor]) -> Result<Tensor> {
    let product = |i: usize, j: usize| x[i].mul(&x[j])?.sum(&[1], false);
    let (both, first, second) = (product(0, 1)?, product(0, 0)?, product(1, 1)?);
    both.div(&first.mul(&second)?.clamp(1e-16, f64::INFINITY)?.sqrt()?)
}

/// Computes the sum of the squared deviations from the mean, divided by one less than their number, op by op; at the
/// end in the dtype of the input again.
fn variance(x: &[Tensor]) -> Result<Tensor> {
    let off = x[0].sub(&x[0].mean(&[], true)?)?;
    let sum = off.powf(2.0)?.sum(&[], false)?;
    let (number, one) = (Tensor::scalar(x[0].len() as f64, DType::F32), Tensor::scalar(1.0, DType::F32));
    let freedom = (number.div(&one)? + -1.0)?.maximum(&one)?;
    Ok(sum.div(&freedom)?.cast(x[0].dtype()))
}

fn conv1d_as_conv2d(x: &[Tensor]) -> Result<Tensor> {
    let (weight, x) = (x[1].unsqueeze(-2)?, x[0].unsqueeze(-2)?);
    x.conv2d(&weight, None, &conv())?.squeeze(-2)
}

pub const FORMS: &[Form] = &[
    // products
    form("matmul", TWO, Ops(|x| x[0].matmul(&x[1]))),
    form("mm", TWO, Ops(|x| x[0].matmul(&x[1]))),
    form("bmm", &[Input::Given(&[2, 3, 4]), Input::Given(&[2, 4, 5])], Ops(|x| x[0].batch_matmul(&x[1]))),
    form("mv", &[A, ROW], Ops(|x| x[0].mv(&x[1]))),
    form("dot", &[ROW, ROW], Ops(|x| x[0].dot(&x[1]))),
    form("einsum", TWO, Ops(|x| Tensor::einsum("ij,jk->ik", &[&x[0], &x[1]]))),
    form("addmm", &[A, A, A], Ops(|x| x[0].addmm(&x[1], &x[2]))),
    form("outer", &[ROW, ROW], Whole(|x| x[0].outer(&x[1]))),
    form("cross", &[Input::Given(&[4, 3]), Input::Given(&[4, 3])], Ops(|x| x[0].cross(&x[1], 1))),
    form("bilinear_kron", TWO, {
        Steps(&[(Op::Reshape, &[0]), (Op::Reshape, &[1]), (Op::Mul, &[2, 3]), (Op::Reshape, &[4])], |x| {
            x[0].kron(&x[1])
        })
    }),
    form(
        "linear",
        &[A, A, ROW],
        Instead(Op::Linear, |x| x[0].linear(&x[1], Some(&x[2])), |x| x[0].matmul(&x[1])?.add(&x[2])),
    ),
    form("linear_nobias", TWO, Instead(Op::Linear, |x| x[0].linear(&x[1], None), |x| x[0].matmul(&x[1]))),
    form("F.sdpa", &[Input::Given(&[2, 4, 2, 8]), Input::Given(&[2, 4, 2, 8]), Input::Given(&[2, 4, 2, 8])], {
        Instead(
            Op::ScaledDotProductAttention,
            |x| x[0].scaled_dot_product_attention(&x[1], &x[2], None, false, None),
            attention,
        )
    }),
    // convolutions
    form("conv1d", &[Input::Given(&[2, 4, 8]), Input::Given(&[3, 4, 3])], {
        Instead(Op::Conv1d, |x| x[0].conv1d(&x[1], None, &conv()), conv1d_as_conv2d)
    }),
    form("conv2d", &[IMAGE, KERNEL], Ops(|x| x[0].conv2d(&x[1], None, &conv()))),
    form("conv2d_bias", &[IMAGE, KERNEL, Input::Given(&[3])], {
        Instead(
            Op::Conv2d,
            |x| x[0].conv2d(&x[1], Some(&x[2]), &conv()),
            |x| x[0].conv2d(&x[1], None, &conv())?.add(&x[2].reshape(&[1, 3, 1, 1])?),
        )
    }),
    form("depthwise_conv2d", &[IMAGE, Input::Given(&[4, 1, 3, 3])], {
        Twin(Op::Conv2d, |x| x[0].conv2d(&x[1], None, &grouped()), "depthwise_conv2d")
    }),
    form("conv2d_transpose", &[IMAGE, Input::Given(&[4, 3, 3, 3])], {
        Ops(|x| x[0].conv_transpose2d(&x[1], None, &transposed()))
    }),
    form("conv3d", &[Input::Given(&[1, 2, 4, 4, 4]), Input::Given(&[3, 2, 3, 3, 3])], {
        Ops(|x| x[0].conv3d(&x[1], None, &conv()))
    }),
    // functions of one number
    form("tan", ONE, Ops(|x| x[0].tan())),
    form("acos", ONE, Ops(|x| x[0].acos())),
    form("asin", ONE, Ops(|x| x[0].asin())),
    form("sinh", ONE, Ops(|x| x[0].sinh())),
    form("cosh", ONE, Ops(|x| x[0].cosh())),
    form("atanh", ONE, Ops(|x| x[0].atanh())),
    form("erfinv", ONE, Ops(|x| x[0].erfinv())),
    form("exp", ONE, Ops(|x| x[0].exp())),
    form("expm1", ONE, Ops(|x| x[0].expm1())),
    form("log", ONE, Ops(|x| x[0].log())),
    form("log10", ONE, Ops(|x| x[0].log10())),
    form("log2", ONE, Ops(|x| x[0].log2())),
    form("log1p", ONE, Ops(|x| x[0].log1p())),
    form("reciprocal", ONE, Ops(|x| x[0].reciprocal())),
    form("rsqrt", ONE, Ops(|x| x[0].rsqrt())),
    form("square", ONE, Ops(|x| x[0].square())),
    form("sqrt", ONE, Ops(|x| x[0].sqrt())),
    form("abs", ONE, Ops(|x| x[0].abs())),
    form("sin", ONE, Ops(|x| x[0].sin())),
    form("cos", ONE, Ops(|x| x[0].cos())),
    form("tanh", ONE, Ops(|x| x[0].tanh())),
    form("floor", ONE, Ops(|x| x[0].floor())),
    form("ceil", ONE, Ops(|x| x[0].ceil())),
    form("round", ONE, Ops(|x| x[0].round())),
    form("sign", ONE, Ops(|x| x[0].sign())),
    form("erf", ONE, Ops(|x| x[0].erf())),
    form("neg", ONE, Twin(Op::Neg, |x| x[0].neg(), "scale")),
    form("sigmoid", ONE, Ops(|x| x[0].sigmoid())),
    form("trunc", ONE, Ops(|x| x[0].trunc())),
    form("asinh", ONE, Ops(|x| x[0].asinh())),
    form("acosh", ONE, Ops(|x| x[0].acosh())),
    form("atan", ONE, Ops(|x| x[0].atan())),
    form("isnan", ONE, Ops(|x| x[0].is_nan())),
    form("isfinite", ONE, Ops(|x| x[0].is_finite())),
    form("pow_scalar", ONE, Ops(|x| x[0].powf(2.0))),
    form("pow_tensor", TWO, Twin(Op::Pow, |x| x[0].pow(&x[1]), "elementwise_pow")),
    form("add_scalar", ONE, Twin(Op::Add, |x| &x[0] + 1.0, "scale")),
    form("mul_scalar", ONE, Twin(Op::Mul, |x| &x[0] * 2.0, "scale")),
    form("scale", ONE, Twin(Op::Mul, |x| &x[0] * 2.0, "scale")),
    form("clip", ONE, Ops(|x| x[0].clamp(-1.0, 1.0))),
    // sums and other reductions
    form("cumsum", ONE, Ops(|x| x[0].cumsum(0))),
    form("cumprod", ONE, Ops(|x| x[0].cumprod(0))),
    form("sum", ONE, Ops(|x| x[0].sum_all())),
    form("mean", ONE, Ops(|x| x[0].mean_all())),
    form("max", ONE, Ops(|x| x[0].max(&[], false))),
    form("min", ONE, Ops(|x| x[0].min(&[], false))),
    form("amax", ONE, Ops(|x| x[0].max(&[], false))),
    form("amin", ONE, Ops(|x| x[0].min(&[], false))),
    form("prod", ONE, Ops(|x| x[0].prod(&[], false))),
    form("logsumexp", ONE, Ops(|x| x[0].logsumexp(&[], false))),
    form("var", ONE, Instead(Op::Var, |x| x[0].var(&[], 1, false), variance)),
    form("std", ONE, Instead(Op::Std, |x| x[0].std(&[], 1, false), |x| variance(x)?.sqrt())),
    form("median", ONE, Decided(Op::Median)),
    form("norm_p2", ONE, Ops(|x| x[0].norm(2.0, &[1], false))),
    form("norm_fro", ONE, Ops(|x| x[0].norm(2.0, &[], false))),
    form("renorm", ONE, Ops(|x| x[0].renorm(2.0, 0, 1.0))),
    form("dist", TWO, Ops(|x| x[0].dist(&x[1], 2.0))),
    form("argmax", ONE, Ops(|x| x[0].argmax(-1, false))),
    form("topk", ONE, Ops(|x| Ok(x[0].topk(2, -1, true)?.0))),
    form("sort", ONE, Ops(|x| Ok(x[0].sort(-1, false)?.0))),
    // functions of two numbers
    form("add", TWO, Ops(|x| x[0].add(&x[1]))),
    form("subtract", TWO, Ops(|x| x[0].sub(&x[1]))),
    form("multiply", TWO, Ops(|x| x[0].mul(&x[1]))),
    form("divide", TWO, Ops(|x| x[0].div(&x[1]))),
    form("maximum", TWO, Ops(|x| x[0].maximum(&x[1]))),
    form("minimum", TWO, Ops(|x| x[0].minimum(&x[1]))),
    form("remainder", TWO, Ops(|x| x[0].remainder(&x[1]))),
    form("floor_divide", TWO, Decided(Op::FloorDiv)),
    form("fmax", TWO, Decided(Op::Fmax)),
    form("fmin", TWO, Decided(Op::Fmin)),
    form("atan2", TWO, Ops(|x| x[0].atan2(&x[1]))),
    form("less_than", TWO, Ops(|x| x[0].lt(&x[1]))),
    form("equal", TWO, Ops(|x| x[0].eq(&x[1]))),
    form("greater_equal", TWO, Ops(|x| x[0].ge(&x[1]))),
    // Here it is an op of booleans; Paddle's takes numbers, too.
    form("logical_and", TWO, Tells(Op::LogicalAnd, DType::Bool)),
    form("add_n", TWO, Decided(Op::AddN)),
    form("lerp", TWO, Ops(|x| x[0].lerp(&x[1], 0.5))),
    // activations
    form("F.relu", ONE, Ops(|x| x[0].relu())),
    form("F.gelu", ONE, Ops(|x| x[0].gelu())),
    form("F.silu", ONE, Ops(|x| x[0].silu())),
    form("F.swish", ONE, Ops(|x| x[0].silu())),
    form("F.leaky_relu", ONE, Ops(|x| x[0].leaky_relu(0.01))),
    form("F.elu", ONE, Ops(|x| x[0].elu(1.0))),
    form("F.selu", ONE, Ops(|x| x[0].selu())),
    form("F.softplus", ONE, Ops(|x| x[0].softplus())),
    form("F.softsign", ONE, Ops(|x| x[0].softsign())),
    form("F.hardswish", ONE, Ops(|x| x[0].hard_swish())),
    form("F.hardsigmoid", ONE, Ops(|x| x[0].hard_sigmoid())),
    form("F.relu6", ONE, Ops(|x| x[0].relu6())),
    form("F.mish", ONE, Ops(|x| x[0].mish())),
    form("F.tanhshrink", ONE, Ops(|x| x[0].tanh_shrink())),
    form("F.hardtanh", ONE, Ops(|x| x[0].hard_tanh())),
    form("F.celu", ONE, Ops(|x| x[0].celu(1.0))),
    form("F.log_sigmoid", ONE, Ops(|x| x[0].log_sigmoid())),
    form("F.softshrink", ONE, Ops(|x| x[0].softshrink(0.5))),
    form("F.softmax", ONE, Ops(|x| x[0].softmax(-1))),
    form("F.log_softmax", ONE, Ops(|x| x[0].log_softmax(-1))),
    form("F.prelu", &[IMAGE, Input::Given(&[1])], Ops(|x| x[0].prelu(&x[1]))),
    form("F.dropout", ONE, Ops(|x| x[0].dropout(0.5, 0))),
    // norms
    form("F.layer_norm", &[A, FULL, FULL], Ops(|x| x[0].layer_norm(&[4], Some(&x[1]), Some(&x[2]), 1e-5))),
    form("F.layer_norm_nowb", ONE, Ops(|x| x[0].layer_norm(&[4], None, None, 1e-5))),
    form("F.batch_norm", &[IMAGE, FULL, FULL, FULL, FULL], {
        Ops(|x| x[0].batch_norm(&x[1], &x[2], Some(&x[3]), Some(&x[4]), 1e-5))
    }),
    form("F.instance_norm", PICTURE, Ops(|x| x[0].instance_norm(None, None, 1e-5))),
    form("F.group_norm", &[IMAGE, FULL, FULL], Ops(|x| x[0].group_norm(2, Some(&x[1]), Some(&x[2]), 1e-5))),
    form("F.normalize", ONE, {
        Steps(&[(Op::Norm, &[0]), (Op::Clamp, &[1]), (Op::Div, &[0, 2])], |x| x[0].normalize(2.0, 1, 1e-12))
    }),
    form(
        "cosine_similarity",
        TWO,
        Instead(Op::CosineSimilarity, |x| x[0].cosine_similarity(&x[1], 1, 1e-8), similarity),
    ),
    // pools and images
    form("F.max_pool2d", PICTURE, Ops(|x| x[0].max_pool2d(2, 2))),
    form("F.max_pool2d_mask", PICTURE, Decided(Op::MaxPool2dWithIndex)),
    form("F.avg_pool2d", PICTURE, Ops(|x| x[0].avg_pool2d(2, 2))),
    form("F.adaptive_avg_pool2d", PICTURE, Ops(|x| x[0].adaptive_avg_pool2d(&[2]))),
    form("F.interpolate_nearest", PICTURE, Ops(|x| x[0].interpolate(&half(), Interpolation::Nearest, false))),
    form("F.interpolate_bilinear", PICTURE, Ops(|x| x[0].interpolate(&half(), Interpolation::Linear, false))),
    form("F.interpolate_bicubic", PICTURE, Ops(|x| x[0].interpolate(&half(), Interpolation::Cubic, false))),
    // losses
    form("F.cross_entropy", &[A, Input::Index(&[4])], Whole(|x| x[0].cross_entropy(&x[1]))),
    form("F.softmax_with_cross_entropy", &[A, Input::Index(&[4])], Ops(|x| x[0].cross_entropy_with(&x[1], &each()))),
    form("F.nll_loss", &[A, Input::Index(&[4])], Ops(|x| x[0].nll_loss(&x[1], MEAN))),
    form(
        "F.mse_loss",
        TWO,
        Instead(Op::MseLoss, |x| x[0].mse_loss(&x[1], MEAN), |x| x[0].sub(&x[1])?.square()?.mean_all()),
    ),
    form("F.l1_loss", TWO, Instead(Op::L1Loss, |x| x[0].l1_loss(&x[1], MEAN), |x| x[0].sub(&x[1])?.abs()?.mean_all())),
    form("F.smooth_l1_loss", TWO, {
        Instead(
            Op::SmoothL1Loss,
            |x| x[0].smooth_l1_loss(&x[1], 1.0, MEAN),
            |x| x[0].huber_loss(&x[1], 1.0, EACH)?.mean_all(),
        )
    }),
    form("F.bce", TWO, {
        Instead(
            Op::BinaryCrossEntropy,
            |x| x[0].binary_cross_entropy(&x[1], MEAN),
            |x| x[0].binary_cross_entropy(&x[1], EACH)?.mean_all(),
        )
    }),
    form("F.bce_with_logits", TWO, Whole(|x| x[0].bce_with_logits(&x[1], MEAN))),
    form("F.kl_div", TWO, Instead(Op::KlDiv, |x| x[0].kl_div(&x[1], MEAN), |x| x[0].kl_div(&x[1], EACH)?.mean_all())),
    // moving elements
    form("reshape", ONE, Ops(|x| x[0].reshape(&[2, 8]))),
    form("transpose", ONE, Ops(|x| x[0].transpose(0, 1))),
    form("flatten", ONE, Ops(|x| x[0].flatten(0))),
    form("squeeze", &[Input::Given(&[1, 4])], Ops(|x| x[0].squeeze(0))),
    form("unsqueeze", ONE, Ops(|x| x[0].unsqueeze(0))),
    form("concat", TWO, Ops(|x| Tensor::concat(&[&x[0], &x[1]], 0))),
    form("stack", TWO, Ops(|x| Tensor::stack(&[&x[0], &x[1]], 0))),
    form("split", ONE, Whole(|x| Ok(x[0].chunk(2, 0)?[0].clone()))),
    form("slice", ONE, Ops(|x| x[0].slice(0, 0..2))),
    form("tile", ONE, Ops(|x| x[0].tile(&[2, 1]))),
    form("expand", ONE, Ops(|x| x[0].unsqueeze(0)?.broadcast_to(&[2, 4, 4]))),
    form("where", &[Input::Mask(&[4, 4]), A, A], Ops(|x| x[0].select(&x[1], &x[2]))),
    form("gather", &[A, Input::Index(&[3])], Ops(|x| x[0].index_select(0, &x[1]))),
    form("F.embedding", &[Input::Index(&[3]), A], Ops(|x| x[0].embedding(&x[1]))),
    form("scatter", &[A, Input::Index(&[2, 4]), Input::Given(&[2, 4])], Ops(|x| x[0].scatter(0, &x[1], &x[2]))),
    form("pad", ONE, Ops(|x| x[0].pad(&[(0, 0), (1, 1)], 0.0))),
    form("tril", ONE, Ops(|x| x[0].tril(0))),
    form("flip", ONE, Ops(|x| x[0].flip(&[0]))),
    form("masked_fill", &[A, Input::Mask(&[4, 4])], Ops(|x| x[0].masked_fill(&x[1], 1.0))),
    form("zeros_like", ONE, Whole(|x| Ok(Tensor::zeros(x[0].shape(), x[0].dtype())))),
    form("assign", ONE, Ops(|x| Ok(x[0].clone()))),
    form("cast_f32", ONE, Ops(|x| Ok(x[0].cast(DType::F32)))),
    form("cast_f16", ONE, Ops(|x| Ok(x[0].cast(DType::F16)))),
];
