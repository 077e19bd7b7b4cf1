//! Transposed, strided and broadcast inputs of every op with a kernel: the same bits as for their contiguous copies,
//! forward and backward.

use std::collections::HashSet;

use half::{bf16, f16};
use precast::{
    ConvOptions, ConvTransposeOptions, DType, GridPadding, Interpolation, Op, RecurrentWeights, Reduction, Resize,
    Result, Tensor, observe,
};

/// Contents of an input; paired with its shape.
#[derive(Clone, Copy, Debug)]
enum Kind {
    /// Numbers of the tested dtype.
    Float,
    /// 0 and 1.
    Index,
    Bool,
}
use Kind::{Bool, Float, Index};

type Inputs = &'static [(Kind, &'static [usize])];
type Outputs = Result<Vec<Tensor>>;
type Call = fn(&[Tensor]) -> Outputs;

/// Inputs for the ops that take only tensors; every op runs on some of them.
const TENSORS_ONLY: &[Inputs] = &[
    &[(Float, &[3, 4])],
    &[(Float, &[4, 4])],
    &[(Bool, &[3, 4])],
    &[(Float, &[3, 4]), (Float, &[3, 4])],
    &[(Float, &[3, 4]), (Float, &[4])],
    &[(Float, &[3, 4]), (Float, &[4, 5])],
    &[(Float, &[2, 3, 4]), (Float, &[2, 4, 5])],
    &[(Float, &[4]), (Float, &[4])],
    &[(Float, &[3, 2]), (Index, &[3])],
    &[(Index, &[3, 2]), (Float, &[2, 5])],
    &[(Bool, &[3, 4]), (Bool, &[3, 4])],
    &[(Bool, &[3, 4]), (Float, &[3, 4]), (Float, &[4])],
    &[(Float, &[3, 5]), (Float, &[3, 4]), (Float, &[4, 5])],
    &[(Float, &[2, 3, 5]), (Float, &[2, 3, 4]), (Float, &[2, 4, 5])],
    &[(Float, &[3, 5]), (Float, &[2, 3, 4]), (Float, &[2, 4, 5])],
    &[(Float, &[3]), (Float, &[3, 4]), (Float, &[4])],
    &[(Float, &[3, 4]), (Float, &[3]), (Float, &[4])],
    &[(Float, &[3, 4]), (Float, &[5, 4]), (Float, &[5])],
    &[(Float, &[3, 4]), (Float, &[3, 5]), (Float, &[2, 4, 5]), (Float, &[2])],
];

fn one(y: Result<Tensor>) -> Outputs {
    y.map(|y| vec![y])
}

fn two((a, b): (Tensor, Tensor)) -> Vec<Tensor> {
    vec![a, b]
}

const NONE: Reduction = Reduction::None;
const EPS: f64 = 1e-5;

fn weights(x: &[Tensor]) -> RecurrentWeights<'_> {
    RecurrentWeights { ih: &x[0], hh: &x[1], biases: Some((&x[2], &x[3])) }
}

macro_rules! calls {
    ($($name:literal [$($kind:ident $shape:expr),*] |$x:ident| $y:expr;)*) => {
        &[$(($name, &[$(($kind, &$shape)),*], |$x| one($y))),*]
    };
}

/// Ops with arguments other than tensors.
const WITH_OPTIONS: &[(&str, Inputs, Call)] = calls! {
    "adaptive_avg_pool1d" [Float [2, 3, 4]] |x| x[0].adaptive_avg_pool1d(&[2]);
    "adaptive_avg_pool2d" [Float [2, 3, 4, 5]] |x| x[0].adaptive_avg_pool2d(&[2, 3]);
    "adaptive_avg_pool3d" [Float [2, 2, 3, 4, 3]] |x| x[0].adaptive_avg_pool3d(&[2, 3, 2]);
    "adaptive_max_pool1d" [Float [2, 3, 4]] |x| x[0].adaptive_max_pool1d(&[2]);
    "adaptive_max_pool2d" [Float [2, 3, 4, 5]] |x| x[0].adaptive_max_pool2d(&[2, 3]);
    "adaptive_max_pool3d" [Float [2, 2, 3, 4, 3]] |x| x[0].adaptive_max_pool3d(&[2, 3, 2]);
    "addcdiv" [Float [3, 4], Float [3, 4], Float [3, 4]] |x| x[0].addcdiv(&x[1], &x[2], 0.5);
    "addcmul" [Float [3, 4], Float [3, 4], Float [3, 4]] |x| x[0].addcmul(&x[1], &x[2], 0.5);
    "affine_grid" [Float [2, 2, 3]] |x| x[0].affine_grid(&[2, 1, 3, 2], false);
    "argmax" [Float [3, 4]] |x| x[0].argmax(-1, false);
    "argmin" [Float [3, 4]] |x| x[0].argmin(0, false);
    "avg_pool1d" [Float [2, 3, 4]] |x| x[0].avg_pool1d(2, 1);
    "avg_pool2d" [Float [2, 3, 4, 5]] |x| x[0].avg_pool2d(2, 1);
    "avg_pool3d" [Float [2, 2, 3, 4, 3]] |x| x[0].avg_pool3d(2, 1);
    "max_pool1d" [Float [2, 3, 4]] |x| x[0].max_pool1d(2, 1);
    "max_pool2d" [Float [2, 3, 4, 5]] |x| x[0].max_pool2d(2, 1);
    "max_pool3d" [Float [2, 2, 3, 4, 3]] |x| x[0].max_pool3d(2, 1);
    "batch_norm" [Float [2, 3, 4], Float [3], Float [3], Float [3], Float [3]]
        |x| x[0].batch_norm(&x[1], &x[2], Some(&x[3]), Some(&x[4]), EPS);
    "batch_norm_train" [Float [2, 3, 4], Float [3], Float [3]]
        |x| x[0].batch_norm_train(Some(&x[1]), Some(&x[2]), EPS).map(|y| y.0);
    "layer_norm" [Float [3, 4], Float [4], Float [4]] |x| x[0].layer_norm(&[4], Some(&x[1]), Some(&x[2]), EPS);
    "group_norm" [Float [2, 4, 3], Float [4], Float [4]] |x| x[0].group_norm(2, Some(&x[1]), Some(&x[2]), EPS);
    "instance_norm" [Float [2, 3, 4], Float [3], Float [3]] |x| x[0].instance_norm(Some(&x[1]), Some(&x[2]), EPS);
    "rms_norm" [Float [3, 4], Float [4]] |x| x[0].rms_norm(Some(&x[1]), EPS);
    "bce_with_logits" [Float [3, 4], Float [3, 4]] |x| x[0].bce_with_logits(&x[1], NONE);
    "binary_cross_entropy" [Float [3, 4], Float [3, 4]] |x| x[0].binary_cross_entropy(&x[1], NONE);
    "kl_div" [Float [3, 4], Float [3, 4]] |x| x[0].kl_div(&x[1], NONE);
    "mse_loss" [Float [3, 4], Float [3, 4]] |x| x[0].mse_loss(&x[1], Reduction::Mean);
    "l1_loss" [Float [3, 4], Float [3, 4]] |x| x[0].l1_loss(&x[1], NONE);
    "smooth_l1_loss" [Float [3, 4], Float [3, 4]] |x| x[0].smooth_l1_loss(&x[1], 0.3, NONE);
    "huber_loss" [Float [3, 4], Float [3, 4]] |x| x[0].huber_loss(&x[1], 0.3, NONE);
    "poisson_nll_loss" [Float [3, 4], Float [3, 4]] |x| x[0].poisson_nll_loss(&x[1], true, NONE);
    "gaussian_nll_loss" [Float [3, 4], Float [3, 4], Float [3, 4]] |x| x[0].gaussian_nll_loss(&x[1], &x[2], EPS, NONE);
    "soft_margin_loss" [Float [3, 4], Float [3, 4]] |x| x[0].soft_margin_loss(&x[1], NONE);
    "hinge_embedding_loss" [Float [3, 4], Index [3, 4]] |x| x[0].hinge_embedding_loss(&signs(&x[1]), 1.0, NONE);
    "margin_ranking_loss" [Float [3, 4], Float [3, 4], Index [3, 4]]
        |x| x[0].margin_ranking_loss(&x[1], &signs(&x[2]), 0.5, NONE);
    "cosine_embedding_loss" [Float [3, 4], Float [3, 4], Index [3]]
        |x| x[0].cosine_embedding_loss(&x[1], &signs(&x[2]), 0.5, NONE);
    "triplet_margin_loss" [Float [3, 4], Float [3, 4], Float [3, 4]]
        |x| x[0].triplet_margin_loss(&x[1], &x[2], 1.0, 2.0, NONE);
    "multi_margin_loss" [Float [3, 4], Index [3]] |x| x[0].multi_margin_loss(&x[1], 1, 1.0, NONE);
    "multilabel_margin_loss" [Float [3, 4], Index [3, 4]] |x| x[0].multilabel_margin_loss(&x[1], NONE);
    "ctc_loss" [Float [4, 2, 3], Index [2, 1]] |x| {
        let lengths = [4i64, 1].map(|length| Tensor::from([length; 2]));
        x[0].ctc_loss(&x[1], &lengths[0], &lengths[1], 2, false, NONE)
    };
    "nll_loss" [Float [3, 4], Index [3]] |x| x[0].nll_loss(&x[1], NONE);
    "broadcast_to" [Float [3, 4]] |x| x[0].broadcast_to(&[2, 3, 4]);
    "cast" [Float [3, 4]] |x| Ok(x[0].cast(if x[0].dtype() == DType::Bf16 { DType::F16 } else { DType::Bf16 }));
    "cdist" [Float [3, 4], Float [2, 4]] |x| x[0].cdist(&x[1], 2.0);
    "dist" [Float [3, 4], Float [3, 4]] |x| x[0].dist(&x[1], 3.0);
    "pdist" [Float [3, 4]] |x| x[0].pdist(2.0);
    "cross" [Float [2, 3], Float [2, 3]] |x| x[0].cross(&x[1], -1);
    "cosine_similarity" [Float [3, 4], Float [3, 4]] |x| x[0].cosine_similarity(&x[1], -1, 1e-8);
    "renorm" [Float [3, 4]] |x| x[0].renorm(2.0, 0, 1.0);
    "celu" [Float [3, 4]] |x| x[0].celu(0.7);
    "elu" [Float [3, 4]] |x| x[0].elu(0.7);
    "leaky_relu" [Float [3, 4]] |x| x[0].leaky_relu(0.1);
    "clamp" [Float [3, 4]] |x| x[0].clamp(0.5, 1.0);
    "softshrink" [Float [3, 4]] |x| x[0].softshrink(0.5);
    "dropout" [Float [3, 4]] |x| x[0].dropout(0.5, 1);
    "glu" [Float [3, 4]] |x| x[0].glu(-1);
    "rotary_embedding" [Float [3, 4]] |x| x[0].rotary_embedding(100.0, 2, false);
    "concat" [Float [3, 4], Float [2, 4]] |x| Tensor::concat(&[&x[0], &x[1]], 0);
    "stack" [Float [3, 4], Float [3, 4]] |x| Tensor::stack(&[&x[0], &x[1]], 1);
    "einsum" [Float [3, 4], Float [4, 5]] |x| Tensor::einsum("ij,jk->ki", &[&x[0], &x[1]]);
    "tensordot" [Float [3, 4], Float [5, 4]] |x| x[0].tensordot(&x[1], &[1], &[1]);
    "kron" [Float [2, 3], Float [3, 2]] |x| x[0].kron(&x[1]);
    "conv1d" [Float [2, 4, 6], Float [6, 2, 3], Float [6]]
        |x| x[0].conv1d(&x[1], Some(&x[2]), &ConvOptions::default().groups(2));
    "conv2d" [Float [2, 2, 4, 5], Float [3, 2, 2, 3], Float [3]] |x| x[0].conv2d(&x[1], Some(&x[2]), &ConvOptions::default());
    "conv3d" [Float [2, 2, 3, 4, 3], Float [3, 2, 2, 2, 2], Float [3]]
        |x| x[0].conv3d(&x[1], Some(&x[2]), &ConvOptions::default());
    "conv_transpose1d" [Float [2, 4, 6], Float [4, 3, 3], Float [6]]
        |x| x[0].conv_transpose1d(&x[1], Some(&x[2]), &ConvTransposeOptions::default().groups(2));
    "conv_transpose2d" [Float [2, 2, 4, 5], Float [2, 3, 2, 3], Float [3]]
        |x| x[0].conv_transpose2d(&x[1], Some(&x[2]), &ConvTransposeOptions::default());
    "conv_transpose3d" [Float [2, 2, 3, 4, 3], Float [2, 3, 2, 2, 2], Float [3]]
        |x| x[0].conv_transpose3d(&x[1], Some(&x[2]), &ConvTransposeOptions::default());
    "cumprod" [Float [3, 4]] |x| x[0].cumprod(0);
    "cumsum" [Float [3, 4]] |x| x[0].cumsum(-1);
    "sum" [Float [3, 4]] |x| x[0].sum(&[0], false);
    "mean" [Float [3, 4]] |x| x[0].mean(&[-1], true);
    "max" [Float [3, 4]] |x| x[0].max(&[0], false);
    "min" [Float [3, 4]] |x| x[0].min(&[-1], false);
    "prod" [Float [3, 4]] |x| x[0].prod(&[-1], false);
    "norm" [Float [3, 4]] |x| x[0].norm(2.0, &[0], false);
    "std" [Float [3, 4]] |x| x[0].std(&[-1], 1, false);
    "var" [Float [3, 4]] |x| x[0].var(&[0], 0, false);
    "logsumexp" [Float [3, 4]] |x| x[0].logsumexp(&[0], false);
    "softmax" [Float [3, 4]] |x| x[0].softmax(-1);
    "softmax of columns" [Float [3, 4]] |x| x[0].softmax(0);
    "log_softmax" [Float [3, 4]] |x| x[0].log_softmax(0);
    "softmin" [Float [3, 4]] |x| x[0].softmin(-1);
    "flatten" [Float [2, 3, 4]] |x| x[0].flatten(1);
    "reshape" [Float [3, 4]] |x| x[0].reshape(&[2, 6]);
    "squeeze" [Float [3, 1, 4]] |x| x[0].squeeze(1);
    "unsqueeze" [Float [3, 4]] |x| x[0].unsqueeze(1);
    "transpose" [Float [3, 4]] |x| x[0].transpose(0, 1);
    "slice" [Float [3, 4]] |x| x[0].slice(1, 1..3);
    "pad" [Float [3, 4]] |x| x[0].pad(&[(1, 0), (0, 2)], 0.5);
    "reflection_pad" [Float [2, 3, 4]] |x| x[0].reflection_pad(&[(0, 0), (0, 0), (1, 1)]);
    "replication_pad" [Float [2, 3, 4]] |x| x[0].replication_pad(&[(0, 0), (0, 0), (1, 1)]);
    "pixel_shuffle" [Float [2, 4, 2, 3]] |x| x[0].pixel_shuffle(2);
    "pixel_unshuffle" [Float [2, 1, 4, 2]] |x| x[0].pixel_unshuffle(2);
    "unfold" [Float [2, 3, 4, 5]] |x| x[0].unfold(&[2, 2], &[1, 1], &[0, 0], &[1, 1]);
    "flip" [Float [3, 4]] |x| x[0].flip(&[0, -1]);
    "roll" [Float [3, 4]] |x| x[0].roll(&[1, -1], &[0, 1]);
    "tile" [Float [3, 4]] |x| x[0].tile(&[2, 1, 3]);
    "tril" [Float [3, 4]] |x| x[0].tril(1);
    "triu" [Float [3, 4]] |x| x[0].triu(-1);
    "one_hot" [Index [3, 4]] |x| x[0].one_hot(2);
    "gather" [Float [3, 4], Index [3, 2]] |x| x[0].gather(1, &x[1]);
    "index_select" [Float [3, 4], Index [5]] |x| x[0].index_select(0, &x[1]);
    "index_add" [Float [3, 4], Index [2], Float [2, 4]] |x| x[0].index_add(0, &x[1], &x[2]);
    "index_copy" [Float [3, 4], Index [2], Float [2, 4]] |x| x[0].index_copy(0, &x[1], &x[2]);
    "index_put" [Float [3, 4], Index [2], Float [2, 4]] |x| x[0].index_put(&x[1], &x[2], true);
    "scatter" [Float [3, 4], Index [3, 4], Float [3, 4]] |x| x[0].scatter(0, &x[1], &x[2]);
    "scatter_add" [Float [3, 4], Index [3, 4], Float [3, 4]] |x| x[0].scatter_add(0, &x[1], &x[2]);
    "masked_fill" [Float [3, 4], Bool [3, 4]] |x| x[0].masked_fill(&x[1], 0.5);
    "grid_sample" [Float [2, 3, 4, 5], Float [2, 3, 2, 2]]
        |x| x[0].grid_sample(&x[1], Interpolation::Linear, GridPadding::Zeros, false);
    "grid_sample of volumes" [Float [2, 2, 3, 4, 3], Float [2, 2, 3, 2, 3]]
        |x| x[0].grid_sample(&x[1], Interpolation::Linear, GridPadding::Border, true);
    "interpolate" [Float [2, 3, 4, 5]] |x| x[0].interpolate(&Resize::To(vec![6, 3]), Interpolation::Linear, false);
    "lerp" [Float [3, 4], Float [3, 4]] |x| x[0].lerp(&x[1], 0.3);
    "scaled_dot_product_attention" [Float [2, 3, 4], Float [2, 5, 4], Float [2, 5, 3], Float [3, 5]]
        |x| x[0].scaled_dot_product_attention(&x[1], &x[2], Some(&x[3]), false, None);
    "rnn_cell" [Float [3, 4], Float [3, 3], Float [3], Float [3], Float [2, 4], Float [2, 3]]
        |x| x[4].rnn_cell(&RecurrentWeights { ih: &x[0], ..weights(x) }, &x[5], false);
    "gru_cell" [Float [9, 4], Float [9, 3], Float [9], Float [9], Float [2, 4], Float [2, 3]]
        |x| x[4].gru_cell(&weights(x), &x[5]);
};

/// Ops that return two tensors.
const OF_TWO: &[(&str, Inputs, Call)] = &[
    ("topk", &[(Float, &[3, 4])], |x| x[0].topk(2, -1, true).map(two)),
    ("sort", &[(Float, &[3, 4])], |x| x[0].sort(0, true).map(two)),
    ("split", &[(Float, &[3, 4])], |x| x[0].split(&[1, 3], 1)),
    (
        "lstm_cell",
        &[(Float, &[12, 4]), (Float, &[12, 3]), (Float, &[12]), (Float, &[12]), (Float, &[2, 4]), (Float, &[2, 3])],
        |x| x[4].lstm_cell(&weights(x), (&x[5], &x[5])).map(two),
    ),
    (
        "lstm",
        &[(Float, &[12, 4]), (Float, &[12, 3]), (Float, &[12]), (Float, &[12]), (Float, &[2, 5, 4]), (Float, &[2, 3])],
        |x| x[4].lstm(&weights(x), Some((&x[5], &x[5])), true).map(|(y, (h, c))| vec![y, h, c]),
    ),
];

/// Maps 1 and 0 to 1 and -1.
fn signs(index: &Tensor) -> Tensor {
    (&(index * 2.0).unwrap() - 1.0).unwrap()
}

/// Memory layout of an input.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Layout {
    /// Axes in reverse order in memory.
    Transposed,
    /// Part of a larger tensor.
    Strided,
    /// First element along axis 0, repeated by a stride of 0.
    Broadcast,
}

/// Returns numbers between 0.1 and 0.9, all different; the same for the same shape.
fn filled(kind: Kind, dtype: DType, shape: &[usize]) -> Tensor {
    let len: usize = shape.iter().product();
    let numbers = (0..len).map(|i| 0.1 + 0.8 * ((i * 29 + 7) % 61) as f64 / 61.0);
    match kind {
        Float => Tensor::from_vec(numbers.collect::<Vec<f64>>(), shape).unwrap().cast(dtype),
        Index => Tensor::from_vec(numbers.map(|x| i64::from(x > 0.5)).collect::<Vec<i64>>(), shape).unwrap(),
        Bool => Tensor::from_vec(numbers.map(|x| x > 0.5).collect::<Vec<bool>>(), shape).unwrap(),
    }
}

fn laid_out(layout: Layout, kind: Kind, dtype: DType, shape: &[usize]) -> Tensor {
    let reversed: Vec<usize> = (0..shape.len()).rev().collect();
    match layout {
        Layout::Transposed => {
            let other: Vec<usize> = shape.iter().rev().copied().collect();
            filled(kind, dtype, &other).permute(&reversed).unwrap()
        }
        Layout::Strided => {
            let larger: Vec<usize> = shape.iter().map(|len| len + 2).collect();
            let whole = filled(kind, dtype, &larger);
            (0..shape.len()).fold(whole, |x, axis| x.slice(axis as isize, 1..shape[axis] + 1).unwrap())
        }
        Layout::Broadcast => filled(kind, dtype, &[&[1], &shape[1..]].concat()).broadcast_to(shape).unwrap(),
    }
}

/// Returns a contiguous copy.
fn copied(x: &Tensor) -> Tensor {
    let shape = x.shape();
    match x.dtype() {
        DType::F64 => Tensor::from_vec(x.to_vec::<f64>().unwrap(), shape),
        DType::F32 => Tensor::from_vec(x.to_vec::<f32>().unwrap(), shape),
        DType::F16 => Tensor::from_vec(x.to_vec::<f16>().unwrap(), shape),
        DType::Bf16 => Tensor::from_vec(x.to_vec::<bf16>().unwrap(), shape),
        DType::I64 => Tensor::from_vec(x.to_vec::<i64>().unwrap(), shape),
        _ => Tensor::from_vec(x.to_vec::<bool>().unwrap(), shape),
    }
    .unwrap()
}

/// Returns the outputs, and the gradients of all inputs that have one.
fn run(call: &dyn Fn(&[Tensor]) -> Outputs, inputs: &[Tensor]) -> Outputs {
    let leaf = |x: &Tensor| if x.dtype().is_float() { x.requires_grad() } else { x.clone() };
    let leaves: Vec<Tensor> = inputs.iter().map(leaf).collect();
    let mut all = call(&leaves)?;
    for y in all.clone().iter().filter(|y| y.dtype().is_float() && y.is_tracked()) {
        // Another number for each output, in another layout.
        let seed = filled(Float, y.dtype(), &y.shape().iter().rev().copied().collect::<Vec<_>>());
        let grads = y.backward_from(&seed.permute(&(0..y.rank()).rev().collect::<Vec<_>>())?)?;
        all.extend(leaves.iter().filter_map(|leaf| grads.of(leaf)));
    }
    Ok(all)
}

fn bits(x: &Tensor) -> Vec<u64> {
    // The compiler may choose which of two NaN a product returns.
    x.to_f64().iter().map(|x| if x.is_nan() { f64::NAN.to_bits() } else { x.to_bits() }).collect()
}

/// Compares one call with itself on copies; returns whether it runs on such inputs at all.
fn check(name: &str, call: &dyn Fn(&[Tensor]) -> Outputs, inputs: Inputs) -> bool {
    for dtype in [DType::F32, DType::F64, DType::F16, DType::Bf16] {
        for layout in [Layout::Transposed, Layout::Strided, Layout::Broadcast] {
            let views: Vec<Tensor> = inputs.iter().map(|(kind, shape)| laid_out(layout, *kind, dtype, shape)).collect();
            let copies: Vec<Tensor> = views.iter().map(copied).collect();
            let (got, want) = match (run(call, &views), run(call, &copies)) {
                (Ok(got), Ok(want)) => (got, want),
                (Err(a), Err(b)) => {
                    assert_eq!(a.to_string(), b.to_string(), "{name} {layout:?} {dtype}");
                    return false;
                }
                (got, want) => panic!("{name} {layout:?} {dtype}: {got:?} instead of {want:?}"),
            };
            assert_eq!(got.len(), want.len(), "{name} {layout:?} {dtype}");
            for (i, (got, want)) in got.iter().zip(&want).enumerate() {
                assert_eq!((got.shape(), got.dtype()), (want.shape(), want.dtype()), "{name} {layout:?}");
                assert_eq!(bits(got), bits(want), "{name} {layout:?} {dtype}, tensor {i} of outputs and gradients");
            }
        }
    }
    true
}

#[test]
fn views_give_the_bits_of_their_contiguous_copies() {
    let mut seen = HashSet::new();
    let mut watched = |name: &str, call: &dyn Fn(&[Tensor]) -> Outputs, inputs: Inputs| {
        let (ran, events) = observe::watch(|| check(name, call, inputs));
        if ran {
            seen.extend(events.iter().filter(|event| !event.backward).map(|event| event.op));
        }
        ran
    };
    for op in Op::ALL.iter().filter(|op| op.has_kernel()) {
        let call = |x: &[Tensor]| one(precast::run(*op, &x.iter().collect::<Vec<_>>()));
        let needs_more = call(&[]).unwrap_err().to_string().contains("needs more than tensors");
        let runs = TENSORS_ONLY.iter().filter(|inputs| !needs_more && watched(op.name(), &call, inputs)).count();
        assert!(needs_more || runs > 0, "{op} runs on none of the inputs");
    }
    for (name, inputs, call) in WITH_OPTIONS.iter().chain(OF_TWO) {
        assert!(
            watched(name, call, inputs),
            "{name}: {:?}",
            run(call, &inputs.iter().map(|(kind, shape)| filled(*kind, DType::F32, shape)).collect::<Vec<_>>())
        );
    }
    let missing: Vec<&Op> = Op::ALL.iter().filter(|op| op.has_kernel() && !seen.contains(*op)).collect();
    assert!(missing.is_empty(), "no case for {missing:?}");
}
