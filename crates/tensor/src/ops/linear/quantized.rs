//! The three products of a layer with quantized operands. Codes and scales are those of [`Recipe`]; sums are in f32, over
//! numbers that are exact in bf16, and multiplied by the scales at the end.

use half::{bf16, f16};
use precast_kernels::{
    codes::{Matrix, Operand, factors},
    conv::{Geometry, add_patches, patches, transposed},
    elementwise::finite::all_finite,
    float::Float,
    gemm::{Added, Layout, unrounded},
    memory::{Pooled, uninit_vec, zeros},
};
use precast_policy::policy::{Granularity, Product, Recipe};

use crate::{
    DType, Op, Tensor,
    error::{Error, Result},
    ops::{
        elements,
        linear::dense::{add_to_channels, channel_sums},
    },
    tensor::{
        Array, Backward, Forward, Written,
        context::{
            self, Quantizing,
            Which::{self, G, W, X},
        },
    },
};

/// Returns whether an op multiplies weights, whose operands a recipe may quantize.
pub(crate) fn multiplies_weights(op: Op) -> bool {
    op.has_weight() || matches!(op, Op::FusedRnn | Op::RnnCell | Op::GruCell | Op::LstmCell)
}

/// The quantization of one call of an op.
pub(in crate::ops) struct Quantized {
    call: Quantizing,
    recipe: Recipe,
}

/// A matrix, row by row, or the transpose of one.
#[derive(Clone, Copy)]
pub(in crate::ops) struct View<'a> {
    x: &'a [f32],
    rows: usize,
    columns: usize,
    transposed: bool,
}

impl<'a> View<'a> {
    /// Creates the view of a matrix with rows of this length.
    pub fn new(x: &'a [f32], rows: usize, columns: usize) -> Self {
        View { x, rows, columns, transposed: false }
    }

    pub fn t(self) -> Self {
        View { transposed: !self.transposed, ..self }
    }

    /// Returns rows and columns of the view.
    fn shape(self) -> (usize, usize) {
        if self.transposed { (self.columns, self.rows) } else { (self.rows, self.columns) }
    }

    /// Returns the same numbers with rows of zeros after them, up to a multiple of this number of rows; a copy, if any are
    /// missing.
    fn padded(self, multiple: usize, space: &'a mut Vec<f32>) -> Self {
        let missing = self.rows.next_multiple_of(multiple) - self.rows;
        if missing == 0 {
            return self;
        }
        space.extend_from_slice(self.x);
        space.resize(self.x.len() + missing * self.columns, 0.0);
        View { x: space, rows: self.rows + missing, ..self }
    }
}

impl Quantized {
    /// Returns the quantization of the next product of the running cell; `None` if its operands are not quantized.
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`](crate::ErrorKind::Unsupported) for numbers of float64.
    pub fn next(inputs: &[Tensor]) -> Result<Option<Self>> {
        let Some(call) = context::next_product() else { return Ok(None) };
        let Some(mut recipe) = call.operands().recipe() else { return Ok(None) };
        if inputs[0].dtype() == DType::F64 {
            return Err(Error::unsupported(
                "products of float64 have no quantized operands; `operands: none` leaves them as they are",
            ));
        }
        if context::wide_weight_grads() {
            recipe.grad_weight = None;
        }
        Ok(Some(Quantized { call, recipe }))
    }

    /// Computes `left · rightᵀ` with operands quantized by the recipe, or in f32 where there is none, or where a number is not
    /// finite: infinities and NaN reach the result as they do without quantization.
    fn product(&self, by: Option<Product>, left: View<'_>, right: View<'_>, which: [Which; 2]) -> Result<Pooled<f32>> {
        let ((m, k), (n, _)) = (left.shape(), right.shape());
        let mut y = uninit_vec(m * n);
        let Some(by) = by.filter(|_| all_finite(left.x) && all_finite(right.x)) else {
            unrounded(layout(left, right), (m, k, n), (left.x, right.x), Added::Nothing, &mut y);
            return Ok(y);
        };
        let mut spaces = [Vec::new(), Vec::new()];
        let [of_left, of_right] = &mut spaces;
        let (left, right) = match left.transposed && right.transposed {
            // The sum is over rows of a batch, of which there may be any number.
            true => {
                let multiple = multiple(&by.left).max(multiple(&by.right));
                (left.padded(multiple, of_left), right.padded(multiple, of_right))
            }
            false => (left, right),
        };
        // A scale of the whole tensor does not depend on its rows.
        let natural = [by.left, by.right].iter().all(|by| by.granularity == Granularity::Tensor && !by.hadamard);
        let operand = |by: &Operand, of: View<'_>, which: Which| {
            let matrix = Matrix::new(of.x, of.rows, of.columns)?;
            let scale = self.call.scale(which, by, matrix)?;
            factors(by, if of.transposed && !natural { matrix.t() } else { matrix }, scale, self.call.stream(which))
        };
        let (a, b) = (operand(&by.left, left, which[0])?, operand(&by.right, right, which[1])?);
        let layout = if natural { layout(left, right) } else { Layout::NT };
        unrounded(layout, (m, left.shape().1, n), (&a.numbers, &b.numbers), Added::Nothing, &mut y);
        for (i, row) in y.chunks_exact_mut(n.max(1)).enumerate() {
            let of_row = if a.scales.len() == 1 { a.scales[0] } else { a.scales[i] };
            match &b.scales[..] {
                &[one] => row.iter_mut().for_each(|y| *y = *y * of_row * one),
                each => row.iter_mut().zip(each).for_each(|(y, scale)| *y = *y * of_row * scale),
            }
        }
        Ok(y)
    }

    /// Computes `x · wᵀ`, for x `[rows, in]` and w `[out, in]`.
    fn output(&self, x: View<'_>, w: View<'_>) -> Result<Pooled<f32>> {
        self.product(Some(self.recipe.output), x, w, [X, W])
    }

    /// Computes `g · w`, for the gradient g `[rows, out]` of the output.
    fn grad_input(&self, g: View<'_>, w: View<'_>) -> Result<Pooled<f32>> {
        self.product(Some(self.recipe.grad_input), g, w.t(), [G, W])
    }

    /// Computes `gᵀ · x`, or its transpose, `xᵀ · g`.
    fn grad_weight(&self, g: View<'_>, x: View<'_>, transposed: bool) -> Result<Pooled<f32>> {
        let by = self.recipe.grad_weight;
        match transposed {
            false => self.product(by, g.t(), x.t(), [G, X]),
            true => {
                let by = by.map(|Product { left, right }| Product { left: right, right: left });
                self.product(by, x.t(), g.t(), [X, G])
            }
        }
    }

    /// Runs `x · wᵀ + b`, for x `[..., in]`, w `[out, in]` and b `[out]`.
    pub fn linear(self, inputs: &[Tensor], (rows, width, out): (usize, usize, usize)) -> Result<Forward> {
        let (x, w) = (wide(&inputs[0]), wide(&inputs[1]));
        let mut y = self.output(View::new(&x, rows, width), View::new(&w, out, width))?;
        let shape = [&inputs[0].shape()[..inputs[0].rank() - 1], &[out]].concat();
        add_bias(&mut y, inputs, 1);
        let gradients = move |b: &Backward<'_>| {
            let (g, x, w) = (wide(b.grad), wide(&b.saved[0]), wide(&b.saved[1]));
            let (g, x, w) = (View::new(&g, rows, out), View::new(&x, rows, width), View::new(&w, out, width));
            let of_x = b.needs[0].then(|| self.grad_input(g, w)).transpose()?;
            let of_w = b.needs[1].then(|| self.grad_weight(g, x, false)).transpose()?;
            Ok([of_x, of_w])
        };
        finished(y, inputs, &shape, gradients)
    }

    /// Runs a convolution, as a product with the patches of its input, for each group of channels.
    pub fn conv(self, g: Geometry, inputs: &[Tensor], shape: &[usize]) -> Result<Forward> {
        let (rows, k, out) = (g.batch * g.out_volume(), g.patch(), g.out_channels);
        let weight = move |w: &'_ [f32], group: usize| w[group * out * k..(group + 1) * out * k].to_vec();
        let (x, w) = (wide(&inputs[0]), wide(&inputs[1]));
        let mut y = zeros(g.batch * g.groups * out * g.out_volume());
        for group in 0..g.groups {
            let (x, w) = (patches(&g, &x, group), weight(&w, group));
            set_channels(&g, &self.output(View::new(&x, rows, k), View::new(&w, out, k))?, group, &mut y);
        }
        add_bias(&mut y, inputs, g.out_volume());
        let gradients = move |b: &Backward<'_>| {
            let (grad, x, w) = (wide(b.grad), wide(&b.saved[0]), wide(&b.saved[1]));
            let mut of_x = b.needs[0].then(|| zeros(x.len()));
            let mut of_w = b.needs[1].then(|| uninit_vec(w.len()));
            for group in 0..g.groups {
                let grad = channels(&g, &grad, group);
                let grad = View::new(&grad, rows, out);
                if let Some(of_x) = &mut of_x {
                    let w = weight(&w, group);
                    add_patches(&g, &self.grad_input(grad, View::new(&w, out, k))?, group, of_x);
                }
                if let Some(of_w) = &mut of_w {
                    let x = patches(&g, &x, group);
                    let one = self.grad_weight(grad, View::new(&x, rows, k), false)?;
                    of_w[group * out * k..(group + 1) * out * k].copy_from_slice(&one);
                }
            }
            Ok([of_x, of_w])
        };
        finished(y, inputs, shape, gradients)
    }

    /// Runs the transpose of a convolution of these sizes: a product that makes patches, which are added up.
    pub fn conv_transpose(self, g: Geometry, inputs: &[Tensor], shape: &[usize]) -> Result<Forward> {
        let (rows, k, from) = (g.batch * g.out_volume(), g.patch(), g.out_channels);
        let weight = move |w: &'_ [f32], group: usize| w[group * from * k..(group + 1) * from * k].to_vec();
        let (x, w) = (wide(&inputs[0]), wide(&inputs[1]));
        let mut y = zeros(shape.iter().product());
        for group in 0..g.groups {
            let (x, w) = (channels(&g, &x, group), weight(&w, group));
            add_patches(&g, &self.output(View::new(&x, rows, from), View::new(&w, from, k).t())?, group, &mut y);
        }
        add_bias(&mut y, inputs, g.in_volume());
        let gradients = move |b: &Backward<'_>| {
            let (grad, x, w) = (wide(b.grad), wide(&b.saved[0]), wide(&b.saved[1]));
            let mut of_x = b.needs[0].then(|| uninit_vec(x.len()));
            let mut of_w = b.needs[1].then(|| uninit_vec(w.len()));
            for group in 0..g.groups {
                let grad = patches(&g, &grad, group);
                let grad = View::new(&grad, rows, k);
                if let Some(of_x) = &mut of_x {
                    let w = weight(&w, group);
                    set_channels(&g, &self.grad_input(grad, View::new(&w, from, k).t())?, group, of_x);
                }
                if let Some(of_w) = &mut of_w {
                    let x = channels(&g, &x, group);
                    let one = self.grad_weight(grad, View::new(&x, rows, from), true)?;
                    of_w[group * from * k..(group + 1) * from * k].copy_from_slice(&one);
                }
            }
            Ok([of_x, of_w])
        };
        finished(y, inputs, shape, gradients)
    }
}

/// Returns the layout of `left · rightᵀ`. No left operand is transposed alone.
fn layout(left: View<'_>, right: View<'_>) -> Layout {
    match (left.transposed, right.transposed) {
        (false, false) => Layout::NT,
        (false, true) => Layout::NN,
        (true, _) => Layout::TN,
    }
}

/// Returns the number that must divide the length of the rows of an operand.
fn multiple(by: &Operand) -> usize {
    let of_transform = if by.hadamard { 16 } else { 1 };
    match by.granularity {
        Granularity::Block { columns, .. } => columns.max(of_transform),
        _ => of_transform,
    }
}

/// Returns the result of a product in f32, rounded to the dtype of the inputs, and its gradients: those of input and weight,
/// rounded to the dtype of the gradient of the result, and of the bias, if there is one.
fn finished(
    y: Pooled<f32>,
    inputs: &[Tensor],
    shape: &[usize],
    gradients: impl Fn(&Backward<'_>) -> Result<[Option<Pooled<f32>>; 2]> + Send + Sync + 'static,
) -> Result<Forward> {
    let with_bias = inputs.len() == 3;
    let channel_last = inputs[1].rank() == 2;
    let forward = Forward::new(rounded(y, inputs[0].dtype(), shape)?, inputs[..2].to_vec(), move |b| {
        let mut grads = Vec::with_capacity(3);
        for (grad, saved) in gradients(b)?.into_iter().zip(b.saved) {
            let grad = grad.map(|grad| rounded(grad, b.grad.dtype(), saved.shape()));
            grads.push(grad.transpose()?.map(Tensor::from_array));
        }
        if with_bias {
            let shape = b.grad.shape();
            let sizes = match channel_last {
                true => (shape[..shape.len() - 1].iter().product(), shape[shape.len() - 1], 1),
                false => (shape[0], shape[1], shape[2..].iter().product()),
            };
            grads.push(b.needs[2].then(|| channel_sums(b.grad, sizes).map(Tensor::from_array)).transpose()?);
        }
        Ok(grads)
    });
    Ok(forward.written(Written::Not("its operands are quantized (`operands`)")))
}

fn add_bias(y: &mut [f32], inputs: &[Tensor], inner: usize) {
    if let Some(bias) = inputs.get(2) {
        add_to_channels(y, &wide(bias), inner);
    }
}

/// Returns the outputs of a group of channels, a row for each place: `[n * outputs, out]`.
fn channels(g: &Geometry, y: &[f32], group: usize) -> Vec<f32> {
    let (outputs, len) = (g.out_volume(), g.out_channels * g.out_volume());
    let image = |image: usize| transposed(&y[(image * g.groups + group) * len..][..len], outputs);
    (0..g.batch).flat_map(image).collect()
}

/// Writes the outputs of a group of channels, given as [`channels`] returns them.
fn set_channels(g: &Geometry, rows: &[f32], group: usize, y: &mut [f32]) {
    let len = g.out_channels * g.out_volume();
    for (image, rows) in rows.chunks_exact(len.max(1)).enumerate() {
        y[(image * g.groups + group) * len..][..len].copy_from_slice(&transposed(rows, g.out_channels));
    }
}

/// Returns the numbers of a tensor of 32 or 16 bits.
fn wide(x: &Tensor) -> Pooled<f32> {
    match x.dtype() {
        DType::F16 => f16::widen_slice(&elements::<f16>(x)).into_buffer(),
        DType::Bf16 => bf16::widen_slice(&elements::<bf16>(x)).into_buffer(),
        _ => elements::<f32>(x).into_buffer(),
    }
}

fn rounded(y: Pooled<f32>, dtype: DType, shape: &[usize]) -> Result<Array> {
    match dtype {
        DType::F16 => Array::from_vec(f16::narrow_vec(y), shape),
        DType::Bf16 => Array::from_vec(bf16::narrow_vec(y), shape),
        _ => Array::from_vec(y, shape),
    }
}
