//! The recorded forms of ops: the shapes of their floating-point arguments, and their equivalents here.

use std::sync::LazyLock;

use precast::{
    Child, ConvOptions, ConvTransposeOptions, DType, GridPadding, Interpolation, Op, Padding, RecurrentWeights,
    Reduction, Resize, Result, Tensor,
    layers::{BatchNorm1d, Dense, GroupNorm, LayerNorm, MultiheadAttention, PReLU, Rng},
};

/// Equivalent here of a form.
#[derive(Clone, Copy)]
pub enum Written {
    One(fn(&[Tensor]) -> Result<Tensor>),
    Many(fn(&[Tensor]) -> Result<Vec<Tensor>>),
    /// The first of several results there.
    First(fn(&[Tensor]) -> Result<Tensor>),
    /// An op without a kernel: the effect on its inputs is compared.
    Decided(Op),
    /// A recognized form without an equivalent here.
    Nothing,
}

use Written::{Decided, First, Many, Nothing, One};

#[derive(Clone, Copy)]
pub struct Form {
    pub name: &'static str,
    /// Shapes of the floating-point arguments.
    pub shapes: &'static [&'static [usize]],
    pub written: Written,
}

const SQUARE: &[usize] = &[4, 4];
const M: &[&[usize]] = &[SQUARE];
const MM: &[&[usize]] = &[SQUARE, SQUARE];
const MMM: &[&[usize]] = &[SQUARE, SQUARE, SQUARE];
const MEAN: Reduction = Reduction::Mean;

fn classes() -> Tensor {
    Tensor::arange(4)
}

fn rows(n: usize) -> Tensor {
    Tensor::arange(n)
}

fn eye() -> Result<Tensor> {
    Tensor::arange(4).unsqueeze(-1)?.eq(&Tensor::arange(4))
}

fn rng() -> Rng {
    Rng::seed(0)
}

fn same() -> ConvOptions {
    ConvOptions::default().padding(Padding::Same)
}

fn conv() -> ConvOptions {
    ConvOptions::default()
}

fn transposed() -> ConvTransposeOptions {
    ConvTransposeOptions::default()
}

fn double() -> Resize {
    Resize::By(vec![2.0])
}

fn weights<'a>(ih: &'a Tensor, hh: &'a Tensor, biases: (&'a Tensor, &'a Tensor)) -> RecurrentWeights<'a> {
    RecurrentWeights { ih, hh, biases: Some(biases) }
}

fn lstm_cell(x: &[Tensor]) -> Result<Vec<Tensor>> {
    x[0].lstm_cell(&weights(&x[3], &x[4], (&x[5], &x[6])), (&x[1], &x[2])).map(|(h, c)| vec![h, c])
}

fn gru_cell(x: &[Tensor]) -> Result<Tensor> {
    x[0].gru_cell(&weights(&x[2], &x[3], (&x[4], &x[5])), &x[1])
}

fn rnn_cell(x: &[Tensor], relu: bool) -> Result<Tensor> {
    x[0].rnn_cell(&weights(&x[2], &x[3], (&x[4], &x[5])), &x[1], relu)
}

/// Makes the f32 weights of a layer of 4 units with 4 inputs.
fn layer<R>(gates: usize, f: impl FnOnce(&RecurrentWeights<'_>) -> Result<R>) -> Result<R> {
    let weight = Tensor::full(&[gates * 4, 4], 0.5, DType::F32);
    let bias = Tensor::full(&[gates * 4], 0.5, DType::F32);
    f(&weights(&weight, &weight, (&bias, &bias)))
}

fn lstm(x: &[Tensor]) -> Result<Vec<Tensor>> {
    layer(4, |w| x[0].lstm(w, None, false).map(|(y, (h, c))| vec![y, h, c]))
}

fn gru(x: &[Tensor]) -> Result<Vec<Tensor>> {
    layer(3, |w| x[0].gru(w, None, false).map(|(y, h)| vec![y, h]))
}

const fn form(name: &'static str, shapes: &'static [&'static [usize]], written: Written) -> Form {
    Form { name, shapes, written }
}

macro_rules! one {
    ($name:literal, $shapes:expr, $f:expr) => {
        form($name, $shapes, One($f))
    };
}

/// Makes forms of methods of the same name, of one tensor.
macro_rules! of_one {
    ($($name:ident)*) => { [$(form(stringify!($name), M, One(|x| x[0].$name()))),*] };
}

/// The same, of two tensors.
macro_rules! of_two {
    ($($name:ident)*) => { [$(form(stringify!($name), MM, One(|x| x[0].$name(&x[1])))),*] };
}

pub static FORMS: LazyLock<Vec<Form>> = LazyLock::new(|| {
    let one = of_one! {
        relu gelu silu mish selu softplus softsign sigmoid tanh sqrt abs neg floor sin cos erf square sign round exp
        expm1 log log10 log2 log1p acos asin cosh sinh tan erfinv reciprocal rsqrt trace
    };
    let two = of_two! { matmul inner kron add sub mul div maximum minimum fmod atan2 hypot eq lt };
    one.iter().chain(&two).chain(OTHERS).copied().collect()
});

const OTHERS: &[Form] = &[
    // products
    one!("__matmul__", MM, |x| x[0].matmul_ext(&x[1])),
    one!("mm", MM, |x| x[0].matmul(&x[1])),
    one!("mv", &[SQUARE, &[4]], |x| x[0].mv(&x[1])),
    one!("bmm", &[&[2, 4, 4], &[2, 4, 4]], |x| x[0].batch_matmul(&x[1])),
    one!("addmm", MMM, |x| x[0].addmm(&x[1], &x[2])),
    one!("addmv", &[&[4], SQUARE, &[4]], |x| x[0].addmv(&x[1], &x[2])),
    one!("addr", &[SQUARE, &[4], &[4]], |x| x[0].addr(&x[1], &x[2])),
    one!("addbmm", &[SQUARE, &[2, 4, 4], &[2, 4, 4]], |x| x[0].addbmm(&x[1], &x[2])),
    one!("baddbmm", &[&[2, 4, 4], &[2, 4, 4], &[2, 4, 4]], |x| x[0].baddbmm(&x[1], &x[2])),
    one!("linear", &[&[3, 4], &[5, 4], &[5]], |x| x[0].linear(&x[1], Some(&x[2]))),
    one!("linear_nobias", &[&[3, 4], &[5, 4]], |x| x[0].linear(&x[1], None)),
    one!("einsum", MM, |x| Tensor::einsum("ij,jk->ik", &[&x[0], &x[1]])),
    one!("einsum_hadamard", MM, |x| Tensor::einsum("ij,ij->ij", &[&x[0], &x[1]])),
    one!("chain_matmul", MMM, |x| Tensor::multi_dot(&[&x[0], &x[1], &x[2]])),
    one!("linalg_multi_dot", MMM, |x| Tensor::multi_dot(&[&x[0], &x[1], &x[2]])),
    one!("linalg_vecdot", MM, |x| x[0].vecdot(&x[1])),
    one!("dot", &[&[4], &[4]], |x| x[0].dot(&x[1])),
    one!("vdot", &[&[4], &[4]], |x| x[0].dot(&x[1])),
    one!("outer", &[&[4], &[4]], |x| x[0].outer(&x[1])),
    one!("tensordot", MM, |x| x[0].tensordot(&x[1], &[1], &[0])),
    one!("bilinear", &[&[3, 4], &[3, 5], &[2, 4, 5], &[2]], |x| x[0].bilinear(&x[1], &x[2], Some(&x[3]))),
    form("_addmm_activation", &[&[4], SQUARE, SQUARE], Decided(Op::AddmmActivation)),
    // convolutions
    one!("conv1d", &[&[1, 2, 8], &[3, 2, 3], &[3]], |x| x[0].conv1d(&x[1], Some(&x[2]), &conv())),
    one!("conv1d_padding_same", &[&[1, 2, 8], &[3, 2, 3], &[3]], |x| x[0].conv1d(&x[1], Some(&x[2]), &same())),
    one!("conv2d", &[&[1, 2, 6, 6], &[3, 2, 3, 3], &[3]], |x| x[0].conv2d(&x[1], Some(&x[2]), &conv())),
    one!("conv2d_padding_same", &[&[1, 2, 6, 6], &[3, 2, 3, 3], &[3]], |x| x[0].conv2d(&x[1], Some(&x[2]), &same())),
    one!("conv3d", &[&[1, 2, 5, 5, 5], &[3, 2, 3, 3, 3], &[3]], |x| x[0].conv3d(&x[1], Some(&x[2]), &conv())),
    one!("conv_transpose1d", &[&[1, 2, 8], &[2, 3, 3], &[3]], |x| {
        x[0].conv_transpose1d(&x[1], Some(&x[2]), &transposed())
    }),
    one!("conv_transpose2d", &[&[1, 2, 6, 6], &[2, 3, 3, 3], &[3]], |x| {
        x[0].conv_transpose2d(&x[1], Some(&x[2]), &transposed())
    }),
    one!("conv_transpose3d", &[&[1, 2, 4, 4, 4], &[2, 3, 3, 3, 3], &[3]], |x| {
        x[0].conv_transpose3d(&x[1], Some(&x[2]), &transposed())
    }),
    form("conv_tbc", &[&[10, 7, 3], &[5, 3, 5], &[5]], Decided(Op::ConvTbc)),
    one!("convolution", &[&[1, 2, 6, 6], &[3, 2, 3, 3], &[3]], |x| x[0].conv2d(&x[1], Some(&x[2]), &conv())),
    one!("unfold_im2col", &[&[1, 2, 6, 6]], |x| x[0].unfold(&[3], &[1], &[0], &[1])),
    // attention and recurrent cells
    one!("scaled_dot_product_attention", &[&[1, 2, 4, 8], &[1, 2, 4, 8], &[1, 2, 4, 8]], |x| {
        x[0].scaled_dot_product_attention(&x[1], &x[2], None, false, None)
    }),
    one!("sdpa_float_mask", &[&[1, 2, 4, 8], &[1, 2, 4, 8], &[1, 2, 4, 8], SQUARE], |x| {
        x[0].scaled_dot_product_attention(&x[1], &x[2], Some(&x[3]), false, None)
    }),
    form("lstm_cell", &[&[3, 4], &[3, 4], &[3, 4], &[16, 4], &[16, 4], &[16], &[16]], Many(lstm_cell)),
    one!("gru_cell", &[&[3, 4], &[3, 4], &[12, 4], &[12, 4], &[12], &[12]], gru_cell),
    one!("rnn_tanh_cell", &[&[3, 4], &[3, 4], SQUARE, SQUARE, &[4], &[4]], |x| rnn_cell(x, false)),
    one!("rnn_relu_cell", &[&[3, 4], &[3, 4], SQUARE, SQUARE, &[4], &[4]], |x| rnn_cell(x, true)),
    form("nn.LSTM(f32 params)", &[&[3, 2, 4]], Many(lstm)),
    form("nn.GRU(f32 params)", &[&[3, 2, 4]], Many(gru)),
    form(
        "nn.MultiheadAttention(f32 params)",
        &[&[3, 1, 8], &[3, 1, 8], &[3, 1, 8]],
        First(|x| Child::new(MultiheadAttention::new(8, 2, &mut rng())).attend(&x[0], &x[1], &x[2], None)),
    ),
    one!("nn.Linear(f32 params)", &[&[3, 4]], |x| Child::new(Dense::new(4, 5, &mut rng())).call(&x[0])),
    one!("nn.LayerNorm(f32 params)", &[&[3, 4]], |x| Child::new(LayerNorm::new(&[4])).call(&x[0])),
    one!("nn.BatchNorm1d(f32 params)", &[&[3, 4]], |x| Child::new(BatchNorm1d::new(4)).call(&x[0])),
    one!("nn.GroupNorm(f32 params)", &[&[3, 4, 2]], |x| Child::new(GroupNorm::new(2, 4)).call(&x[0])),
    one!("nn.PReLU(f32 params)", &[&[3, 4]], |x| Child::new(PReLU::new(1)).call(&x[0])),
    // activations
    one!("prelu", &[&[2, 3], &[1]], |x| x[0].prelu(&x[1])),
    one!("elu", M, |x| x[0].elu(1.0)),
    one!("celu", M, |x| x[0].celu(1.0)),
    one!("leaky_relu", M, |x| x[0].leaky_relu(0.01)),
    one!("hardtanh", M, |x| x[0].hard_tanh()),
    one!("hardswish", M, |x| x[0].hard_swish()),
    one!("hardsigmoid", M, |x| x[0].hard_sigmoid()),
    one!("logsigmoid", M, |x| x[0].log_sigmoid()),
    one!("tanhshrink", M, |x| x[0].tanh_shrink()),
    one!("softshrink", M, |x| x[0].softshrink(0.5)),
    one!("glu", M, |x| x[0].glu(-1)),
    one!("dropout_p0", M, |x| x[0].dropout(0.0, 0)),
    one!("softmax", M, |x| x[0].softmax(-1)),
    one!("softmax_dtype_f32", M, |x| x[0].softmax_as(-1, DType::F32)),
    one!("softmax_dtype_f16", M, |x| x[0].softmax_as(-1, DType::F16)),
    one!("log_softmax", M, |x| x[0].log_softmax(-1)),
    one!("softmin", M, |x| x[0].softmin(-1)),
    one!("logsumexp", M, |x| x[0].logsumexp(&[-1], false)),
    one!("gumbel_softmax", M, |x| x[0].add(&Tensor::full(SQUARE, 0.5, x[0].dtype()))?.softmax(-1)),
    // functions
    one!("pow_scalar_exp", M, |x| x[0].powf(2.0)),
    one!("pow_tensor_tensor", MM, |x| x[0].pow(&x[1])),
    one!("pow_scalar_base", M, |x| Tensor::scalar(2.0, x[0].dtype()).pow(&x[0])),
    one!("__rpow__", M, |x| Tensor::scalar(2.0, x[0].dtype()).pow(&x[0])),
    one!("__rtruediv__", M, |x| x[0].reciprocal()? * 1.0),
    // norms
    one!("layer_norm", &[SQUARE, &[4], &[4]], |x| x[0].layer_norm(&[4], Some(&x[1]), Some(&x[2]), 1e-5)),
    one!("layer_norm_noaffine", M, |x| x[0].layer_norm(&[4], None, None, 1e-5)),
    one!("rms_norm", &[SQUARE, &[4]], |x| x[0].rms_norm(Some(&x[1]), 1e-5)),
    one!("group_norm", &[&[2, 4, 3], &[4], &[4]], |x| x[0].group_norm(2, Some(&x[1]), Some(&x[2]), 1e-5)),
    one!("batch_norm_train", &[&[3, 4], &[4], &[4]], |x| {
        Ok(x[0].batch_norm_train(Some(&x[1]), Some(&x[2]), 1e-5)?.0)
    }),
    one!("batch_norm_eval", &[&[3, 4], &[4], &[4], &[4], &[4]], |x| {
        x[0].batch_norm(&x[1], &x[2], Some(&x[3]), Some(&x[4]), 1e-5)
    }),
    one!("instance_norm", &[&[2, 3, 5]], |x| x[0].instance_norm(None, None, 1e-5)),
    one!("normalize", M, |x| x[0].normalize(2.0, 1, 1e-12)),
    one!("local_response_norm", &[&[2, 4, 5]], |x| {
        let squares = x[0].square()?.unsqueeze(1)?.pad(&[(0, 0), (0, 0), (1, 0), (0, 0)], 0.0)?;
        let mean = squares.slice(2, 0..4)?.add(&squares.slice(2, 1..5)?)?.squeeze(1)? * 0.5;
        x[0].div(&((mean? * 1e-4)? + 1.0)?.powf(0.75)?)
    }),
    // reductions
    one!("sum", M, |x| x[0].sum_all()),
    one!("sum_dim", M, |x| x[0].sum(&[0], false)),
    one!("sum_dtype_f16", M, |x| x[0].sum_as(&[], false, DType::F16)),
    one!("mean", M, |x| x[0].mean_all()),
    one!("var", M, |x| x[0].var(&[], 1, false)),
    one!("std", M, |x| x[0].std(&[], 1, false)),
    one!("prod", M, |x| x[0].prod(&[], false)),
    one!("prod_dim", M, |x| x[0].prod(&[0], false)),
    one!("prod_dtype_f16", M, |x| x[0].prod_as(&[], false, DType::F16)),
    one!("cumsum", M, |x| x[0].cumsum(0)),
    one!("cumprod", M, |x| x[0].cumprod(0)),
    one!("norm", M, |x| x[0].norm(2.0, &[], false)),
    one!("norm_p1_dim", M, |x| x[0].norm(1.0, &[0], false)),
    one!("linalg_vector_norm", M, |x| x[0].norm(2.0, &[], false)),
    one!("linalg_matrix_norm", M, |x| x[0].norm(2.0, &[-2, -1], false)),
    one!("frobenius_norm", M, |x| x[0].norm(2.0, &[0, 1], false)),
    form("nuclear_norm", M, Decided(Op::NuclearNorm)),
    one!("max", M, |x| x[0].max(&[], false)),
    one!("argmax", M, |x| x[0].flatten(0)?.argmax(0, false)),
    one!("amax", M, |x| x[0].max(&[], false)),
    one!("dist", MM, |x| x[0].dist(&x[1], 2.0)),
    one!("cdist", MM, |x| x[0].cdist(&x[1], 2.0)),
    one!("pdist", M, |x| x[0].pdist(2.0)),
    one!("renorm", M, |x| x[0].renorm(2.0, 0, 1.0)),
    one!("cosine_similarity", MM, |x| x[0].cosine_similarity(&x[1], 1, 1e-8)),
    form("quantile", M, Decided(Op::Quantile)),
    form("topk", M, Many(|x| x[0].topk(2, -1, true).map(|(a, b)| vec![a, b]))),
    form("sort", M, Many(|x| x[0].sort(-1, false).map(|(a, b)| vec![a, b]))),
    // losses
    one!("cross_entropy", M, |x| x[0].cross_entropy(&classes())),
    one!("cross_entropy_soft", MM, |x| x[0].cross_entropy(&x[1])),
    one!("nll_loss", M, |x| x[0].nll_loss(&classes(), MEAN)),
    one!("mse_loss", MM, |x| x[0].mse_loss(&x[1], MEAN)),
    one!("l1_loss", MM, |x| x[0].l1_loss(&x[1], MEAN)),
    one!("smooth_l1_loss", MM, |x| x[0].smooth_l1_loss(&x[1], 1.0, MEAN)),
    one!("huber_loss", MM, |x| x[0].huber_loss(&x[1], 1.0, MEAN)),
    one!("kl_div", MM, |x| x[0].kl_div(&x[1], Reduction::Sum)),
    one!("binary_cross_entropy", MM, |x| x[0].binary_cross_entropy(&x[1], MEAN)),
    one!("binary_cross_entropy_with_logits", MM, |x| x[0].bce_with_logits(&x[1], MEAN)),
    one!("poisson_nll_loss", MM, |x| x[0].poisson_nll_loss(&x[1], true, MEAN)),
    one!("gaussian_nll_loss", MMM, |x| x[0].gaussian_nll_loss(&x[1], &x[2], 1e-6, MEAN)),
    one!("hinge_embedding_loss", M, |x| { x[0].hinge_embedding_loss(&Tensor::ones(SQUARE, DType::I64), 1.0, MEAN) }),
    one!("cosine_embedding_loss", MM, |x| {
        x[0].cosine_embedding_loss(&x[1], &Tensor::ones(&[4], DType::I64), 0.0, MEAN)
    }),
    one!("margin_ranking_loss", &[&[4], &[4], &[4]], |x| x[0].margin_ranking_loss(&x[1], &x[2], 0.0, MEAN)),
    one!("triplet_margin_loss", MMM, |x| x[0].triplet_margin_loss(&x[1], &x[2], 1.0, 2.0, MEAN)),
    one!("soft_margin_loss", MM, |x| x[0].soft_margin_loss(&x[1], MEAN)),
    one!("multi_margin_loss", M, |x| x[0].multi_margin_loss(&classes(), 1, 1.0, MEAN)),
    one!("multilabel_margin_loss", M, |x| x[0].multilabel_margin_loss(&Tensor::zeros(SQUARE, DType::I64), MEAN)),
    one!("multilabel_soft_margin_loss", MM, |x| x[0].multilabel_soft_margin_loss(&x[1], MEAN)),
    one!("ctc_loss", &[&[6, 1, 4]], |x| {
        let [labels, lengths, counts] =
            [&[1i64, 2][..], &[6], &[2]].map(|row| Tensor::from_vec(row.to_vec(), &[row.len()]));
        x[0].ctc_loss(&labels?, &lengths?, &counts?, 0, false, MEAN)
    }),
    // joining and picking
    one!("cat", MM, |x| Tensor::concat(&[&x[0], &x[1]], 0)),
    one!("stack", MM, |x| Tensor::stack(&[&x[0], &x[1]], 0)),
    one!("hstack", MM, |x| Tensor::concat(&[&x[0], &x[1]], 1)),
    one!("where", MM, |x| eye()?.select(&x[0], &x[1])),
    one!("index_copy", &[SQUARE, &[2, 4]], |x| x[0].index_copy(0, &rows(2), &x[1])),
    one!("index_put", &[SQUARE, &[2, 4]], |x| x[0].index_put(&rows(2), &x[1], false)),
    one!("index_add", &[SQUARE, &[2, 4]], |x| x[0].index_add(0, &rows(2), &x[1])),
    one!("scatter_add", &[SQUARE, &[2, 4]], |x| x[0].scatter_add(0, &Tensor::zeros(&[2, 4], DType::I64), &x[1])),
    one!("scatter", &[SQUARE, &[2, 4]], |x| x[0].scatter(0, &Tensor::zeros(&[2, 4], DType::I64), &x[1])),
    one!("masked_fill", M, |x| x[0].masked_fill(&eye()?, -1e9)),
    form("masked_scatter", MM, Decided(Op::MaskedScatter)),
    one!("embedding", M, |x| classes().embedding(&x[0])),
    one!("gather", M, |x| x[0].gather(0, &Tensor::zeros(&[2, 4], DType::I64))),
    // pairs
    one!("add_scalar", M, |x| &x[0] + 1.0),
    one!("mul_scalar_int", M, |x| &x[0] * 2.0),
    one!("mul_0dim_f32_tensor", M, |x| x[0].mul(&Tensor::scalar(2.0, DType::F32))),
    one!("mul_0dim_f64_tensor", M, |x| x[0].mul(&Tensor::scalar(2.0, DType::F64))),
    one!("mul_1dim_f32_tensor", M, |x| x[0].mul(&Tensor::ones(&[1], DType::F32))),
    one!("addcmul", MMM, |x| x[0].addcmul(&x[1], &x[2], 1.0)),
    one!("addcdiv", MMM, |x| x[0].addcdiv(&x[1], &x[2], 1.0)),
    one!("lerp", MM, |x| x[0].lerp(&x[1], 0.5)),
    one!("cross", &[&[4, 3], &[4, 3]], |x| x[0].cross(&x[1], -1)),
    // Equality of all elements: a tensor of one truth value here, a bool there.
    one!("equal", MM, |x| x[0].eq(&x[1])),
    one!("allclose", MM, |x| x[0].sub(&x[1])?.abs()?.lt(&Tensor::scalar(1e-5, DType::F64))),
    one!("clamp", M, |x| x[0].clamp(0.0, 1.0)),
    // images
    one!("grid_sample", &[&[1, 2, 4, 4], &[1, 3, 3, 2]], |x| {
        x[0].grid_sample(&x[1], Interpolation::Linear, GridPadding::Zeros, false)
    }),
    one!("affine_grid", &[&[1, 2, 3]], |x| x[0].affine_grid(&[1, 2, 3, 3], false)),
    one!("avg_pool1d", &[&[1, 2, 6]], |x| x[0].avg_pool1d(2, 2)),
    one!("avg_pool2d", &[&[1, 2, 6, 6]], |x| x[0].avg_pool2d(2, 2)),
    one!("avg_pool3d", &[&[1, 2, 4, 4, 4]], |x| x[0].avg_pool3d(2, 2)),
    one!("max_pool1d", &[&[1, 2, 6]], |x| x[0].max_pool1d(2, 2)),
    one!("max_pool2d", &[&[1, 2, 6, 6]], |x| x[0].max_pool2d(2, 2)),
    one!("max_pool3d", &[&[1, 2, 4, 4, 4]], |x| x[0].max_pool3d(2, 2)),
    one!("adaptive_avg_pool1d", &[&[1, 2, 6]], |x| x[0].adaptive_avg_pool1d(&[2])),
    one!("adaptive_avg_pool2d", &[&[1, 2, 6, 6]], |x| x[0].adaptive_avg_pool2d(&[2])),
    one!("adaptive_avg_pool3d", &[&[1, 2, 4, 4, 4]], |x| x[0].adaptive_avg_pool3d(&[2])),
    one!("adaptive_max_pool2d", &[&[1, 2, 6, 6]], |x| x[0].adaptive_max_pool2d(&[2])),
    one!("adaptive_max_pool3d", &[&[1, 2, 4, 4, 4]], |x| x[0].adaptive_max_pool3d(&[2])),
    one!("interpolate_nearest2d", &[&[1, 2, 4, 4]], |x| x[0].interpolate(&double(), Interpolation::Nearest, false)),
    one!("interpolate_linear1d", &[&[1, 2, 4]], |x| x[0].interpolate(&double(), Interpolation::Linear, false)),
    one!("interpolate_bilinear2d", &[&[1, 2, 4, 4]], |x| x[0].interpolate(&double(), Interpolation::Linear, false)),
    one!("interpolate_bicubic2d", &[&[1, 2, 4, 4]], |x| x[0].interpolate(&double(), Interpolation::Cubic, false)),
    one!("interpolate_trilinear3d", &[&[1, 2, 4, 4, 4]], |x| {
        x[0].interpolate(&double(), Interpolation::Linear, false)
    }),
    one!("pixel_shuffle", &[&[1, 4, 2, 2]], |x| x[0].pixel_shuffle(2)),
    one!("reflection_pad1d", &[&[1, 2, 6]], |x| x[0].reflection_pad(&[(0, 0), (0, 0), (1, 1)])),
    one!("reflection_pad2d", &[&[1, 2, 6, 6]], |x| x[0].reflection_pad(&[(0, 0), (0, 0), (1, 1), (1, 1)])),
    one!("replication_pad2d", &[&[1, 2, 6, 6]], |x| x[0].replication_pad(&[(0, 0), (0, 0), (1, 1), (1, 1)])),
    one!("constant_pad", M, |x| x[0].pad(&[(0, 0), (1, 1)], 0.0)),
    // transforms and decompositions
    form("fft_fft", M, Decided(Op::Fft)),
    form("fft_rfft", M, Decided(Op::Fft)),
    form("stft", &[&[16]], Decided(Op::Stft)),
    form("linalg_inv", M, Decided(Op::Inverse)),
    form("linalg_solve", MM, Decided(Op::Solve)),
    form("linalg_svdvals", M, Decided(Op::Svd)),
    form("linalg_qr", M, Decided(Op::Qr)),
    form("linalg_det", M, Nothing),
    form("linalg_cholesky", M, Decided(Op::Cholesky)),
    form("linalg_eigh", M, Decided(Op::Eigen)),
    form("linalg_lu", M, Nothing),
    one!("linalg_norm", M, |x| x[0].norm(2.0, &[], false)),
    form("linalg_matrix_sqrth", M, Decided(Op::MatrixSqrt)),
    // in place, and into a given tensor
    form("addmm_ (in-place)", MMM, Nothing),
    form("exp_ (in-place)", M, Nothing),
    form("add_ (in-place)", MM, Nothing),
    form("mm(out=f32)", MM, Nothing),
    form("mm(out=f16)", MM, Nothing),
    form("exp(out=f32)", M, Nothing),
    form("matmul(out=f32)", MM, Nothing),
    form("sum(out=f32)", M, Nothing),
    // casts and new tensors
    one!("to_f32", M, |x| Ok(x[0].cast(DType::F32))),
    one!("clone", M, |x| Ok(x[0].clone())),
    one!("zeros_like", M, |x| Ok(Tensor::zeros(x[0].shape(), x[0].dtype()))),
    one!("creation_rand", M, |_| Ok(Tensor::full(&[3], 0.5, DType::F32))),
];
