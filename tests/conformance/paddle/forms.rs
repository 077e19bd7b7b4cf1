//! The recorded functions of Paddle: their inputs, and their equivalents here.

use std::{borrow::Cow, sync::LazyLock};

use precast::{
    ConvOptions, ConvTransposeOptions, CrossEntropy, DType, Interpolation, Op, Reduction, Resize, Result, Tensor,
};

use crate::torch::forms as torch;

/// An input of a function.
#[derive(Clone, Copy)]
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
#[derive(Clone, Copy)]
pub enum Written {
    /// The same ops.
    Ops(Run),
    /// Other ops than Paddle's, or another number of them.
    Whole(Run),
    /// Several ops, like [`Whole`](Written::Whole): each with its inputs, which are inputs of the function or, numbered
    /// after these, results of earlier ops.
    Steps(&'static [(Op, &'static [usize])], Run),
    /// This one op, where Paddle uses several, or splits its ops differently.
    One(Op, Run),
    /// An op without a kernel: the effect of a region on its inputs is compared, and the result has their dtype.
    Decided(Op),
    /// An op without a kernel, whose result has this dtype.
    Tells(Op, DType),
}

use Written::{Decided, One, Ops, Steps, Tells, Whole};

pub struct Form {
    pub api: &'static str,
    pub inputs: Cow<'static, [Input]>,
    pub written: Written,
}

/// Functions that are written as torch's of the same name.
const AS_IN_TORCH: &str = "
    matmul mm einsum tan acos asin sinh cosh erfinv exp expm1 log log10 log2 log1p reciprocal rsqrt square sqrt abs sin
    cos tanh floor round sign erf sigmoid cumsum cumprod sum mean max amax prod renorm dist add maximum minimum atan2
    equal lerp F.relu F.gelu F.silu F.leaky_relu F.elu F.selu F.softplus F.softsign F.hardswish F.hardsigmoid F.mish
    F.tanhshrink F.hardtanh F.celu F.softshrink F.softmax F.log_softmax F.instance_norm F.max_pool2d F.avg_pool2d
    F.adaptive_avg_pool2d stack
";

/// The recorded functions.
pub static FORMS: LazyLock<Vec<Form>> = LazyLock::new(|| {
    let shared = AS_IN_TORCH.split_whitespace().map(|api| {
        let known =
            torch::FORMS.iter().find(|known| known.name == api.trim_start_matches("F.")).expect("a form of torch");
        let torch::Written::One(run) = known.written else { panic!("{api} is one call") };
        Form { api, inputs: known.shapes.iter().map(|shape| Input::Given(shape)).collect(), written: Ops(run) }
    });
    let own = OWN.iter().map(|&(api, inputs, written)| Form { api, inputs: inputs.into(), written });
    shared.chain(own).collect()
});

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

const OWN: &[(&str, &[Input], Written)] = &[
    // products
    ("bmm", &[Input::Given(&[2, 3, 4]), Input::Given(&[2, 4, 5])], Ops(|x| x[0].batch_matmul(&x[1]))),
    ("mv", &[A, ROW], Ops(|x| x[0].mv(&x[1]))),
    ("dot", &[ROW, ROW], Ops(|x| x[0].dot(&x[1]))),
    ("addmm", &[A, A, A], Ops(|x| x[0].addmm(&x[1], &x[2]))),
    ("outer", &[ROW, ROW], Whole(|x| x[0].outer(&x[1]))),
    ("cross", &[Input::Given(&[4, 3]), Input::Given(&[4, 3])], Ops(|x| x[0].cross(&x[1], 1))),
    (
        "bilinear_kron",
        TWO,
        Steps(&[(Op::Reshape, &[0]), (Op::Reshape, &[1]), (Op::Mul, &[2, 3]), (Op::Reshape, &[4])], |x| {
            x[0].kron(&x[1])
        }),
    ),
    ("linear", &[A, A, ROW], One(Op::Linear, |x| x[0].linear(&x[1], Some(&x[2])))),
    ("linear_nobias", TWO, One(Op::Linear, |x| x[0].linear(&x[1], None))),
    (
        "F.sdpa",
        &[Input::Given(&[2, 4, 2, 8]), Input::Given(&[2, 4, 2, 8]), Input::Given(&[2, 4, 2, 8])],
        One(Op::ScaledDotProductAttention, |x| x[0].scaled_dot_product_attention(&x[1], &x[2], None, false, None)),
    ),
    // convolutions
    (
        "conv1d",
        &[Input::Given(&[2, 4, 8]), Input::Given(&[3, 4, 3])],
        One(Op::Conv1d, |x| x[0].conv1d(&x[1], None, &conv())),
    ),
    ("conv2d", &[IMAGE, KERNEL], Ops(|x| x[0].conv2d(&x[1], None, &conv()))),
    (
        "conv2d_bias",
        &[IMAGE, KERNEL, Input::Given(&[3])],
        One(Op::Conv2d, |x| x[0].conv2d(&x[1], Some(&x[2]), &conv())),
    ),
    (
        "depthwise_conv2d",
        &[IMAGE, Input::Given(&[4, 1, 3, 3])],
        One(Op::Conv2d, |x| x[0].conv2d(&x[1], None, &grouped())),
    ),
    (
        "conv2d_transpose",
        &[IMAGE, Input::Given(&[4, 3, 3, 3])],
        Ops(|x| x[0].conv_transpose2d(&x[1], None, &transposed())),
    ),
    (
        "conv3d",
        &[Input::Given(&[1, 2, 4, 4, 4]), Input::Given(&[3, 2, 3, 3, 3])],
        Ops(|x| x[0].conv3d(&x[1], None, &conv())),
    ),
    // functions of one number
    ("atanh", ONE, Ops(|x| x[0].atanh())),
    ("ceil", ONE, Ops(|x| x[0].ceil())),
    ("neg", ONE, One(Op::Neg, |x| x[0].neg())),
    ("trunc", ONE, Ops(|x| x[0].trunc())),
    ("asinh", ONE, Ops(|x| x[0].asinh())),
    ("acosh", ONE, Ops(|x| x[0].acosh())),
    ("atan", ONE, Ops(|x| x[0].atan())),
    ("isnan", ONE, Ops(|x| x[0].is_nan())),
    ("isfinite", ONE, Ops(|x| x[0].is_finite())),
    ("pow_scalar", ONE, Ops(|x| x[0].powf(2.0))),
    ("pow_tensor", TWO, One(Op::Pow, |x| x[0].pow(&x[1]))),
    ("add_scalar", ONE, One(Op::Add, |x| &x[0] + 1.0)),
    ("mul_scalar", ONE, One(Op::Mul, |x| &x[0] * 2.0)),
    ("scale", ONE, One(Op::Mul, |x| &x[0] * 2.0)),
    ("clip", ONE, Ops(|x| x[0].clamp(-1.0, 1.0))),
    // sums and other reductions
    ("min", ONE, Ops(|x| x[0].min(&[], false))),
    ("amin", ONE, Ops(|x| x[0].min(&[], false))),
    ("logsumexp", ONE, Ops(|x| x[0].logsumexp(&[], false))),
    ("var", ONE, One(Op::Var, |x| x[0].var(&[], 1, false))),
    ("std", ONE, One(Op::Std, |x| x[0].std(&[], 1, false))),
    ("median", ONE, Decided(Op::Median)),
    ("norm_p2", ONE, Ops(|x| x[0].norm(2.0, &[1], false))),
    ("norm_fro", ONE, Ops(|x| x[0].norm(2.0, &[], false))),
    ("argmax", ONE, Ops(|x| x[0].argmax(-1, false))),
    ("topk", ONE, Ops(|x| Ok(x[0].topk(2, -1, true)?.0))),
    ("sort", ONE, Ops(|x| Ok(x[0].sort(-1, false)?.0))),
    // functions of two numbers
    ("subtract", TWO, Ops(|x| x[0].sub(&x[1]))),
    ("multiply", TWO, Ops(|x| x[0].mul(&x[1]))),
    ("divide", TWO, Ops(|x| x[0].div(&x[1]))),
    ("remainder", TWO, Ops(|x| x[0].remainder(&x[1]))),
    ("floor_divide", TWO, Decided(Op::FloorDiv)),
    ("fmax", TWO, Decided(Op::Fmax)),
    ("fmin", TWO, Decided(Op::Fmin)),
    ("less_than", TWO, Ops(|x| x[0].lt(&x[1]))),
    ("greater_equal", TWO, Ops(|x| x[0].ge(&x[1]))),
    // Here it is an op of booleans; Paddle's takes numbers as well.
    ("logical_and", TWO, Tells(Op::LogicalAnd, DType::Bool)),
    ("add_n", TWO, Decided(Op::AddN)),
    // activations
    ("F.swish", ONE, Ops(|x| x[0].silu())),
    ("F.relu6", ONE, Ops(|x| x[0].relu6())),
    ("F.log_sigmoid", ONE, Ops(|x| x[0].log_sigmoid())),
    ("F.prelu", &[IMAGE, Input::Given(&[1])], Ops(|x| x[0].prelu(&x[1]))),
    ("F.dropout", ONE, Ops(|x| x[0].dropout(0.5, 0))),
    // norms
    ("F.layer_norm", &[A, FULL, FULL], Ops(|x| x[0].layer_norm(&[4], Some(&x[1]), Some(&x[2]), 1e-5))),
    ("F.layer_norm_nowb", ONE, Ops(|x| x[0].layer_norm(&[4], None, None, 1e-5))),
    (
        "F.batch_norm",
        &[IMAGE, FULL, FULL, FULL, FULL],
        Ops(|x| x[0].batch_norm(&x[1], &x[2], Some(&x[3]), Some(&x[4]), 1e-5)),
    ),
    ("F.group_norm", &[IMAGE, FULL, FULL], Ops(|x| x[0].group_norm(2, Some(&x[1]), Some(&x[2]), 1e-5))),
    (
        "F.normalize",
        ONE,
        Steps(&[(Op::Norm, &[0]), (Op::Clamp, &[1]), (Op::Div, &[0, 2])], |x| x[0].normalize(2.0, 1, 1e-12)),
    ),
    ("cosine_similarity", TWO, One(Op::CosineSimilarity, |x| x[0].cosine_similarity(&x[1], 1, 1e-8))),
    // pools and images
    ("F.max_pool2d_mask", PICTURE, Decided(Op::MaxPool2dWithIndex)),
    ("F.interpolate_nearest", PICTURE, Ops(|x| x[0].interpolate(&half(), Interpolation::Nearest, false))),
    ("F.interpolate_bilinear", PICTURE, Ops(|x| x[0].interpolate(&half(), Interpolation::Linear, false))),
    ("F.interpolate_bicubic", PICTURE, Ops(|x| x[0].interpolate(&half(), Interpolation::Cubic, false))),
    // losses
    ("F.cross_entropy", &[A, Input::Index(&[4])], Whole(|x| x[0].cross_entropy(&x[1]))),
    ("F.softmax_with_cross_entropy", &[A, Input::Index(&[4])], Ops(|x| x[0].cross_entropy_with(&x[1], &each()))),
    ("F.nll_loss", &[A, Input::Index(&[4])], Ops(|x| x[0].nll_loss(&x[1], MEAN))),
    ("F.mse_loss", TWO, One(Op::MseLoss, |x| x[0].mse_loss(&x[1], MEAN))),
    ("F.l1_loss", TWO, One(Op::L1Loss, |x| x[0].l1_loss(&x[1], MEAN))),
    ("F.smooth_l1_loss", TWO, One(Op::SmoothL1Loss, |x| x[0].smooth_l1_loss(&x[1], 1.0, MEAN))),
    ("F.bce", TWO, One(Op::BinaryCrossEntropy, |x| x[0].binary_cross_entropy(&x[1], MEAN))),
    ("F.bce_with_logits", TWO, Whole(|x| x[0].bce_with_logits(&x[1], MEAN))),
    ("F.kl_div", TWO, One(Op::KlDiv, |x| x[0].kl_div(&x[1], MEAN))),
    // moving elements
    ("reshape", ONE, Ops(|x| x[0].reshape(&[2, 8]))),
    ("transpose", ONE, Ops(|x| x[0].transpose(0, 1))),
    ("flatten", ONE, Ops(|x| x[0].flatten(0))),
    ("squeeze", &[Input::Given(&[1, 4])], Ops(|x| x[0].squeeze(0))),
    ("unsqueeze", ONE, Ops(|x| x[0].unsqueeze(0))),
    ("concat", TWO, Ops(|x| Tensor::concat(&[&x[0], &x[1]], 0))),
    ("split", ONE, Whole(|x| Ok(x[0].chunk(2, 0)?[0].clone()))),
    ("slice", ONE, Ops(|x| x[0].slice(0, 0..2))),
    ("tile", ONE, Ops(|x| x[0].tile(&[2, 1]))),
    ("expand", ONE, Ops(|x| x[0].unsqueeze(0)?.broadcast_to(&[2, 4, 4]))),
    ("where", &[Input::Mask(&[4, 4]), A, A], Ops(|x| x[0].select(&x[1], &x[2]))),
    ("gather", &[A, Input::Index(&[3])], Ops(|x| x[0].index_select(0, &x[1]))),
    ("F.embedding", &[Input::Index(&[3]), A], Ops(|x| x[0].embedding(&x[1]))),
    ("scatter", &[A, Input::Index(&[2, 4]), Input::Given(&[2, 4])], Ops(|x| x[0].scatter(0, &x[1], &x[2]))),
    ("pad", ONE, Ops(|x| x[0].pad(&[(0, 0), (1, 1)], 0.0))),
    ("tril", ONE, Ops(|x| x[0].tril(0))),
    ("flip", ONE, Ops(|x| x[0].flip(&[0]))),
    ("masked_fill", &[A, Input::Mask(&[4, 4])], Ops(|x| x[0].masked_fill(&x[1], 1.0))),
    ("zeros_like", ONE, Whole(|x| Ok(Tensor::zeros(x[0].shape(), x[0].dtype())))),
    ("assign", ONE, Ops(|x| Ok(x[0].clone()))),
    ("cast_f32", ONE, Ops(|x| Ok(x[0].cast(DType::F32)))),
    ("cast_f16", ONE, Ops(|x| Ok(x[0].cast(DType::F16)))),
];
