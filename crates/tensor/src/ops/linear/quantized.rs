//! The three products of a layer with quantized operands. Codes and scales are those of [`Recipe`]; sums are in f32, over
//! numbers that are exact in bf16, and multiplied by the scales at the end.

use std::{cell::RefCell, rc::Rc};

use half::{bf16, f16};
use precast_kernels::{
    codes::{Factors, Operand, ScaleRule, amax_to_scale, factors, scaled, transposed},
    conv::{Geometry, add_patches, patches},
    elementwise::peak::Magnitude,
    float::Float,
    gemm::{Added, Gemm, Layout, unrounded},
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
        Array, Backward, Forward, Stored, Written,
        context::{
            self, Quantizing,
            Which::{self, G, W, X},
        },
        listener::Codes,
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

/// The numbers of an operand: 32 or 16 bits.
trait Number: Stored + Gemm + Float<Wide = f32> + Magnitude {}
impl<T: Stored + Gemm + Float<Wide = f32> + Magnitude> Number for T {}

/// A matrix, row by row, or the transpose of one.
#[derive(Clone, Copy)]
struct View<'a, T = f32> {
    x: &'a [T],
    rows: usize,
    columns: usize,
    transposed: bool,
}

impl<'a, T: Number> View<'a, T> {
    /// Creates the view of a matrix with rows of this length.
    fn new(x: &'a [T], rows: usize, columns: usize) -> Self {
        View { x, rows, columns, transposed: false }
    }

    fn t(self) -> Self {
        View { transposed: !self.transposed, ..self }
    }

    /// Returns rows and columns of the view.
    fn shape(self) -> (usize, usize) {
        if self.transposed { (self.columns, self.rows) } else { (self.rows, self.columns) }
    }

    /// Returns the same numbers with rows of zeros after them, up to a multiple of this number of rows; a copy, if any are
    /// missing.
    fn padded(self, multiple: usize, space: &'a mut Vec<T>) -> Self {
        let missing = self.rows.next_multiple_of(multiple) - self.rows;
        if missing == 0 {
            return self;
        }
        space.extend_from_slice(self.x);
        space.resize(self.x.len() + missing * self.columns, T::default());
        View { x: space, rows: self.rows + missing, ..self }
    }
}

/// The operands of the products of one backward pass that are quantized as a whole, so that none is quantized twice.
type Known = RefCell<Vec<(Which, Operand, Rc<Factors>)>>;

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

    /// Computes `left · rightᵀ`, plus a bias for each column, with operands quantized by the recipe, or in f32 where there is none,
    /// or where a number is not finite: infinities and NaN reach the result as they do without quantization.
    fn product<T: Number, R: Float<Wide = f32>>(
        &self,
        by: Option<Product>,
        operands: [(Which, View<'_, T>); 2],
        bias: Option<&[f32]>,
        known: &Known,
    ) -> Result<Pooled<R>> {
        let [left, right] = operands.map(|(_, view)| view);
        let ((m, k), (n, _)) = (left.shape(), right.shape());
        let mut sums = uninit_vec(m * n);
        let peaks = [left, right].map(|view| T::peak(view.x));
        let Some(by) = by.filter(|_| peaks.iter().all(|peak| peak.is_finite())) else {
            unrounded(layout(left, right), (m, k, n), (left.x, right.x), Added::Nothing, &mut sums);
            return Ok(scaled(&sums, n, [&[1.0], &[1.0]], bias));
        };
        let by = [by.left, by.right];
        let mut spaces = [Vec::new(), Vec::new()];
        let [of_left, of_right] = &mut spaces;
        let (left, right) = match left.transposed && right.transposed {
            // The sum is over rows of a batch, of which there may be any number.
            true => {
                let multiple = by.iter().map(multiple).max().unwrap_or(1);
                (left.padded(multiple, of_left), right.padded(multiple, of_right))
            }
            false => (left, right),
        };
        // A scale of the whole tensor does not depend on its rows.
        let is_whole = |by: &Operand| by.granularity == Granularity::Tensor && !by.hadamard;
        let natural = by.iter().all(is_whole);
        let factors = |i: usize, of: View<'_, T>| {
            let (by, which) = (&by[i], operands[i].0);
            let is_known = |(of, known, _): &&(Which, Operand, _)| (*of, known) == (which, by);
            if let Some((.., known)) = known.borrow().iter().find(is_known).filter(|_| natural) {
                return Ok(known.clone());
            }
            let amax = peaks[i] as f32;
            let scale = match by.scale {
                ScaleRule::Delayed(rule) => Some(self.call.scale(which, by.format, rule, amax)?),
                ScaleRule::F32 { power_of_two, eps } if is_whole(by) && by.format.is_floating() => {
                    Some(amax_to_scale(by.format, amax, power_of_two, eps)?)
                }
                _ => None,
            };
            let (shape, stream) = ([of.rows, of.columns], self.call.stream(which));
            let made = Rc::new(factors(by, of.x, shape, of.transposed && !natural, scale, stream)?);
            count_codes(which, by, of.x, &made, scale);
            if natural {
                known.borrow_mut().push((which, *by, made.clone()));
            }
            Ok::<_, Error>(made)
        };
        let (a, b) = (factors(0, left)?, factors(1, right)?);
        let layout = if natural { layout(left, right) } else { Layout::NT };
        unrounded(layout, (m, left.shape().1, n), (&a.numbers, &b.numbers), Added::Nothing, &mut sums);
        Ok(scaled(&sums, n, [&a.scales, &b.scales], bias))
    }

    /// Computes `x · wᵀ`, for x `[rows, in]` and w `[out, in]`, plus a bias `[out]`.
    fn output<T: Number, R: Float<Wide = f32>>(
        &self,
        x: View<'_, T>,
        w: View<'_, T>,
        bias: Option<&[f32]>,
    ) -> Result<Pooled<R>> {
        self.product(Some(self.recipe.output), [(X, x), (W, w)], bias, &Known::default())
    }

    /// Computes `g · w`, for the gradient g `[rows, out]` of the output.
    fn grad_input<T: Number, R: Float<Wide = f32>>(
        &self,
        g: View<'_, T>,
        w: View<'_, T>,
        known: &Known,
    ) -> Result<Pooled<R>> {
        self.product(Some(self.recipe.grad_input), [(G, g), (W, w.t())], None, known)
    }

    /// Computes `gᵀ · x`, or its transpose, `xᵀ · g`.
    fn grad_weight<T: Number, R: Float<Wide = f32>>(
        &self,
        g: View<'_, T>,
        x: View<'_, T>,
        transposed: bool,
        known: &Known,
    ) -> Result<Pooled<R>> {
        let by = self.recipe.grad_weight;
        match transposed {
            false => self.product(by, [(G, g.t()), (X, x.t())], None, known),
            true => {
                let by = by.map(|Product { left, right }| Product { left: right, right: left });
                self.product(by, [(X, x.t()), (G, g.t())], None, known)
            }
        }
    }

    /// Checks that blocks divide the sizes of a layer in all its products, before the first runs.
    fn check(&self, n: usize, k: usize) -> Result<()> {
        let needed = self.recipe.multiples();
        let each = [("n", n, needed[0]), ("k", k, needed[1])];
        match each.into_iter().find(|(_, size, multiple)| size % multiple != 0) {
            None => Ok(()),
            Some((name, size, multiple)) => Err(Error::shape(format!(
                "blocks of `operands: {}` need a multiple of {multiple}, and {name}, the number of {}, is {size}; `operands: none` leaves \
                 this cell out",
                self.call.operands(),
                if name == "n" { "outputs" } else { "numbers summed for an output" }
            ))),
        }
    }

    /// Runs `x · wᵀ + b`, for x `[..., in]`, w `[out, in]` and b `[out]`.
    pub fn linear(self, inputs: &[Tensor], sizes: (usize, usize, usize)) -> Result<Forward> {
        self.check(sizes.2, sizes.1)?;
        let shape = [&inputs[0].shape()[..inputs[0].rank() - 1], &[sizes.2]].concat();
        let bias = inputs.get(2).map(wide);
        let value = match inputs[0].dtype() {
            DType::F16 => self.linear_of::<f16>(inputs, sizes, bias.as_deref(), &shape),
            DType::Bf16 => self.linear_of::<bf16>(inputs, sizes, bias.as_deref(), &shape),
            _ => self.linear_of::<f32>(inputs, sizes, bias.as_deref(), &shape),
        };
        finished(value?, inputs, move |b| match b.grad.dtype() {
            DType::F16 => self.linear_gradients::<f16>(b, sizes),
            DType::Bf16 => self.linear_gradients::<bf16>(b, sizes),
            _ => self.linear_gradients::<f32>(b, sizes),
        })
    }

    fn linear_of<T: Number>(
        &self,
        inputs: &[Tensor],
        (rows, width, out): (usize, usize, usize),
        bias: Option<&[f32]>,
        shape: &[usize],
    ) -> Result<Array> {
        let (x, w) = (elements::<T>(&inputs[0]), elements::<T>(&inputs[1]));
        let y: Pooled<T> = self.output(View::new(&x, rows, width), View::new(&w, out, width), bias)?;
        Array::from_vec(y, shape)
    }

    fn linear_gradients<T: Number>(
        &self,
        b: &Backward<'_>,
        (rows, width, out): (usize, usize, usize),
    ) -> Result<[Option<Array>; 2]> {
        let (g, known) = (elements::<T>(b.grad), Known::default());
        let g = View::new(&g, rows, out);
        let array = |grad: Pooled<T>, i: usize| Array::from_vec(grad, b.saved[i].shape());
        let of_x = || {
            let w = b.restored(1);
            array(self.grad_input(g, View::new(&elements::<T>(&w), out, width), &known)?, 0)
        };
        let of_w = || {
            let x = b.restored(0);
            array(self.grad_weight(g, View::new(&elements::<T>(&x), rows, width), false, &known)?, 1)
        };
        Ok([b.needs[0].then(of_x).transpose()?, b.needs[1].then(of_w).transpose()?])
    }

    /// Runs a convolution, as a product with the patches of its input, for each group of channels; or the transpose of one, whose
    /// product makes patches, which are added up.
    pub fn conv(self, g: Geometry, transposed: bool, inputs: &[Tensor], shape: &[usize]) -> Result<Forward> {
        let (rows, k, out) = (g.batch * g.out_volume(), g.patch(), g.out_channels);
        match transposed {
            true => self.check(k, out)?,
            false => self.check(out, k)?,
        }
        let weights = move |group: usize| group * out * k..(group + 1) * out * k;
        let (x, w) = (wide(&inputs[0]), wide(&inputs[1]));
        let (of_x, of_y) = if transposed { (Side::Channels, Side::Patches) } else { (Side::Patches, Side::Channels) };
        let mut y = zeros(shape.iter().product());
        for group in 0..g.groups {
            let (x, w) = (of_x.rows(&g, &x, group), View::new(&w[weights(group)], out, k));
            let w = if transposed { w.t() } else { w };
            let made: Pooled<f32> = self.output(View::new(&x, rows, of_x.width(&g)), w, None)?;
            of_y.write(&g, &made, group, &mut y);
        }
        add_bias(&mut y, inputs, shape[2..].iter().product());
        let gradients = move |b: &Backward<'_>| {
            let grad = wide(b.grad);
            let [x, w] = [(1, 0), (0, 1)].map(|(needs, i)| b.needs[needs].then(|| wide(&b.restored(i))));
            let [mut grad_x, mut grad_w] = [0, 1].map(|i| b.needs[i].then(|| zeros(b.saved[i].len())));
            for group in 0..g.groups {
                let (grad, known) = (of_y.rows(&g, &grad, group), Known::default());
                let grad = View::new(&grad, rows, of_y.width(&g));
                if let (Some(grad_x), Some(w)) = (&mut grad_x, &w) {
                    let w = View::new(&w[weights(group)], out, k);
                    let made: Pooled<f32> = self.grad_input(grad, if transposed { w.t() } else { w }, &known)?;
                    of_x.write(&g, &made, group, grad_x);
                }
                if let (Some(grad_w), Some(x)) = (&mut grad_w, &x) {
                    let x = of_x.rows(&g, x, group);
                    let x = View::new(&x, rows, of_x.width(&g));
                    let made: Pooled<f32> = self.grad_weight(grad, x, transposed, &known)?;
                    grad_w[weights(group)].copy_from_slice(&made);
                }
            }
            arrays(b, [grad_x, grad_w])
        };
        finished(rounded(y, inputs[0].dtype(), shape)?, inputs, gradients)
    }
}

/// Notifies observers that count the codes of an operand. Only a scale that is given can be too small for its numbers.
fn count_codes<T: Number>(which: Which, by: &Operand, x: &[T], made: &Factors, scale: Option<f32>) {
    context::tell(|observer| {
        if !observer.counts_codes() || by.hadamard {
            return;
        }
        let count = |is: &dyn Fn(f32) -> bool| x.iter().filter(|x| is(x.widen())).count() as u64;
        let left = made.numbers.iter().filter(|code| **code != bf16::ZERO).count() as u64;
        let numbers = count(&|x| x != 0.0);
        let saturated = scale.map_or(0, |scale| count(&|x| x.abs() * scale > by.format.largest()));
        let (slot, operand, format) = (context::slot_of_call(), which.name(), by.format.name());
        observer.codes(&Codes { slot, operand, format, numbers, zero: numbers - left, saturated });
    });
}

/// A tensor of a convolution, as the rows of a product: one for each output of it.
#[derive(Clone, Copy)]
enum Side {
    /// The patches of the images.
    Patches,
    /// The channels of the outputs.
    Channels,
}

impl Side {
    /// Returns the length of a row.
    fn width(self, g: &Geometry) -> usize {
        match self {
            Side::Patches => g.patch(),
            Side::Channels => g.out_channels,
        }
    }

    /// Returns the rows of a group of channels: `[n * outputs, width]`.
    fn rows(self, g: &Geometry, x: &[f32], group: usize) -> Vec<f32> {
        let len = g.out_channels * g.out_volume();
        if let Side::Patches = self {
            return patches(g, x, group);
        }
        let mut rows = Vec::with_capacity(g.batch * len);
        for image in 0..g.batch {
            let channels = &x[(image * g.groups + group) * len..][..len];
            rows.extend_from_slice(&transposed(channels, g.out_volume()));
        }
        rows
    }

    /// Writes the rows of a group of channels to a tensor that is 0 there.
    fn write(self, g: &Geometry, rows: &[f32], group: usize, x: &mut [f32]) {
        let len = g.out_channels * g.out_volume();
        match self {
            Side::Patches => add_patches(g, rows, group, x),
            Side::Channels => {
                for (image, rows) in rows.chunks_exact(len.max(1)).enumerate() {
                    x[(image * g.groups + group) * len..][..len].copy_from_slice(&transposed(rows, g.out_channels));
                }
            }
        }
    }
}

/// Returns the layout of `left · rightᵀ`. No left operand is transposed alone.
fn layout<T>(left: View<'_, T>, right: View<'_, T>) -> Layout {
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

/// Returns the result of a product, with the gradients of input and weight, and of the bias, if there is one.
fn finished(
    value: Array,
    inputs: &[Tensor],
    gradients: impl Fn(&Backward<'_>) -> Result<[Option<Array>; 2]> + Send + Sync + 'static,
) -> Result<Forward> {
    let (with_bias, channels_last) = (inputs.len() == 3, inputs[1].rank() == 2);
    let forward = Forward::new(value, inputs[..2].to_vec(), move |b| {
        let mut grads: Vec<_> = gradients(b)?.map(|grad| grad.map(Tensor::from_array)).into();
        if with_bias {
            let shape = b.grad.shape();
            let sizes = match channels_last {
                true => (shape[..shape.len() - 1].iter().product(), shape[shape.len() - 1], 1),
                false => (shape[0], shape[1], shape[2..].iter().product()),
            };
            grads.push(b.needs[2].then(|| channel_sums(b.grad, sizes).map(Tensor::from_array)).transpose()?);
        }
        Ok(grads)
    });
    Ok(forward.written(Written::Not("its operands are quantized (`operands`)")))
}

/// Returns the gradients of input and weight, rounded to the dtype of that of the result.
fn arrays(b: &Backward<'_>, [of_x, of_w]: [Option<Pooled<f32>>; 2]) -> Result<[Option<Array>; 2]> {
    let array = |grad: Option<Pooled<f32>>, i: usize| {
        grad.map(|grad| rounded(grad, b.grad.dtype(), b.saved[i].shape())).transpose()
    };
    Ok([array(of_x, 0)?, array(of_w, 1)?])
}

fn add_bias(y: &mut [f32], inputs: &[Tensor], inner: usize) {
    if let Some(bias) = inputs.get(2) {
        add_to_channels(y, &wide(bias), inner);
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
