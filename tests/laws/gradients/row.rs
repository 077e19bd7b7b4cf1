//! A row of the table, and its checks.

use std::collections::BTreeSet;

use precast::{
    DType::{self, F32, F64},
    Op, Result, Tensor, gradcheck, observe,
};

use crate::gradients::inputs::{CASES, Draw};

/// Tolerance of a central difference, relative to the largest gradient: its step is 1e-5, so the next term of the
/// series is 1e-10 times a third derivative, and rounding in f64 is 1e-11 times the result.
const SLOPE: f64 = 1e-6;

/// Tolerance of f32 results and gradients relative to those in f64, in epsilons of f32 and relative to the largest:
/// each of some roundings is half of one, and the terms of a sum cancel in part.
const SINGLE: f64 = 64.0;

/// Tolerance of a 16-bit gradient, in epsilons: computed in f32 and rounded once, half of one. The part above the half
/// is the loss in f32, which is 2^-13 of an epsilon of f16 for each rounding.
pub const ONCE: f64 = 0.505;

type Call = dyn Fn(&[Tensor]) -> Result<Tensor>;

/// A call of an op on inputs in some memory layout.
pub type Run<'a> = dyn Fn(&[Tensor]) -> Result<Tensor> + 'a;

/// The inputs of a call, and the call with its options.
pub struct Case {
    inputs: Vec<Tensor>,
    call: Box<Call>,
    /// See [`SLOPE`].
    slope: f64,
    /// `true` when the result is the exact one, rounded once.
    once: bool,
    /// See [`SINGLE`].
    single: f64,
    /// Tolerance of its 16-bit gradients, in epsilons of the dtype.
    low: f64,
    reference: Option<Box<Reference>>,
}

/// A formula in f64 that rounds to the 16-bit dtype where the op documents it.
type Reference = dyn Fn(&[Tensor], DType) -> Result<Tensor>;

impl Case {
    pub fn new(inputs: impl Into<Vec<Tensor>>, call: impl Fn(&[Tensor]) -> Result<Tensor> + 'static) -> Self {
        Case {
            inputs: inputs.into(),
            call: Box::new(call),
            slope: SLOPE,
            single: SINGLE,
            low: ONCE,
            once: true,
            reference: None,
        }
    }

    /// Sets the bound of the 16-bit gradients if more than the gradients is rounded. Document it at the call.
    pub fn low(mut self, epsilons: f64) -> Self {
        self.low = epsilons;
        self
    }

    /// Sets the tolerance of f32 results and gradients, in epsilons of f32. Give the reason at the call.
    pub fn single(mut self, epsilons: f64) -> Self {
        self.single = epsilons;
        self
    }

    /// Sets the reference for 16-bit gradients, if the op rounds more than its result and its gradients.
    pub fn reference(mut self, formula: impl Fn(&[Tensor], DType) -> Result<Tensor> + 'static) -> Self {
        self.once = false;
        self.reference_of_gradients(formula)
    }

    /// Sets the reference if the op rounds more only in its backward pass.
    pub fn reference_of_gradients(mut self, formula: impl Fn(&[Tensor], DType) -> Result<Tensor> + 'static) -> Self {
        self.reference = Some(Box::new(formula));
        self
    }

    /// Runs the op on views of the inputs in a layout.
    fn run(&self, layout: Layout, inputs: &[Tensor]) -> Result<Tensor> {
        (self.call)(&layout.views(inputs)?)
    }

    /// Runs the op as [`run`](Case::run) does; in f32 it runs the f64 reference, if there is one.
    fn run_to_compare(&self, layout: Layout, inputs: &[Tensor], low: DType) -> Result<Tensor> {
        let views = layout.views(inputs)?;
        match &self.reference {
            Some(formula) if views[0].dtype() == F32 => {
                let wide = |x: &Tensor| if x.dtype() == F32 { x.cast(F64) } else { x.clone() };
                formula(&views.iter().map(wide).collect::<Vec<_>>(), low)
            }
            _ => (self.call)(&views),
        }
    }

    /// Sets the bound of the central differences, if the op itself rounds.
    pub fn slope(mut self, relative: f64) -> Self {
        self.slope = relative;
        self
    }
}

/// An op's call, and the expectations on its gradients.
pub struct Row {
    pub op: Op,
    /// Name of the function, if the op has several.
    name: &'static str,
    pub has_gradient: bool,
    draw: Box<dyn Fn(&mut Draw) -> Case>,
}

impl Row {
    /// Creates a row for an op whose gradients reach every floating-point input.
    pub fn new(op: Op, draw: impl Fn(&mut Draw) -> Case + 'static) -> Self {
        Row { op, name: "", has_gradient: true, draw: Box::new(draw) }
    }

    /// Creates a row for an op without a gradient: its result consists of integers or booleans.
    pub fn without_gradient(op: Op, draw: impl Fn(&mut Draw) -> Case + 'static) -> Self {
        Row { has_gradient: false, ..Row::new(op, draw) }
    }

    pub fn named(mut self, name: &'static str) -> Self {
        self.name = name;
        self
    }

    /// Returns a failure in one case, if any.
    fn failure(&self, number: usize, draw: &mut Draw) -> Option<String> {
        self.failure_of(number, draw, |case, layout| {
            let check = if self.has_gradient { slopes } else { no_slope };
            self.runs_the_op(case).and_then(|()| check(case, layout))
        })
    }

    /// Returns a failure of `check` in one case, given the inputs, the call, and the bound of central differences.
    pub fn failure_in(
        &self,
        number: usize,
        check: impl Fn(&[Tensor], &Run, f64) -> Result<(), String>,
    ) -> Option<String> {
        self.failure_of(number, &mut Draw::new(number), |case, layout| {
            check(&layout.bases(&case.inputs), &|inputs| case.run(layout, inputs), case.slope)
        })
    }

    fn failure_of(
        &self,
        number: usize,
        draw: &mut Draw,
        check: impl Fn(&Case, Layout) -> Result<(), String>,
    ) -> Option<String> {
        let case = (self.draw)(draw);
        let shapes: Vec<&[usize]> = case.inputs.iter().map(Tensor::shape).collect();
        let layout = [Layout::Plain, Layout::Transposed, Layout::Strided][number % 3];
        let words = check(&case, layout).err()?;
        Some(format!("{} {} {shapes:?} {layout:?}: {words}", self.op, self.name))
    }

    fn runs_the_op(&self, case: &Case) -> Result<(), String> {
        let (y, events) = observe::watch(|| (case.call)(&case.inputs));
        y.map_err(|e| e.to_string())?;
        let ops: Vec<Op> = events.iter().map(|event| event.op).collect();
        if ops.contains(&self.op) { Ok(()) } else { Err(format!("the row runs {ops:?}")) }
    }
}

/// Number of distinct inputs of an op, by their shapes. Memory layouts cycle with the cases.
const FORMS: usize = 20;

/// Ops whose first input always has more than one element, whatever its shape: two positions along each axis, two
/// halves, three coordinates, two numbers that have a deviation, a matrix of six.
const NEVER_ONE: &[Op] = &[
    Op::ConvTranspose1d,
    Op::ConvTranspose2d,
    Op::ConvTranspose3d,
    Op::Glu,
    Op::Cross,
    Op::Std,
    Op::AffineGrid,
    Op::RotaryEmbedding,
];

/// Returns what the inputs in the rows of one op lack: many shapes, no elements, one element, no axes, shapes that
/// broadcast.
pub fn lacks(rows: &[&Row]) -> Option<String> {
    let op = rows[0].op;
    let cases: Vec<Case> =
        rows.iter().flat_map(|row| (0..CASES).map(|number| (row.draw)(&mut Draw::new(number)))).collect();
    let shapes = |case: &Case| case.inputs.iter().map(|x| x.shape().to_vec()).collect::<Vec<_>>();
    let forms: BTreeSet<_> = cases.iter().map(shapes).collect();
    let any = |is: fn(&Tensor) -> bool| cases.iter().any(|case| case.inputs.iter().any(is));
    let one = cases.iter().any(|case| case.inputs.first().is_some_and(|x| x.len() == 1));
    let wrong = [
        (forms.len() < FORMS, "has few shapes"),
        (!any(Tensor::is_empty), "has no input without elements"),
        (one == NEVER_ONE.contains(&op), "has no first input of one element, or is listed with one"),
        (!any(|x| x.rank() == 0) && cases.iter().any(takes_scalars), "takes scalars and is given none"),
        (
            cases.iter().any(broadcasts) && cases.iter().all(has_one_shape),
            "broadcasts and is given inputs of one shape",
        ),
    ];
    let wrong: Vec<&str> = wrong.into_iter().filter(|(wrong, _)| *wrong).map(|(_, words)| words).collect();
    (!wrong.is_empty()).then(|| format!("{op} with {} forms: {}", forms.len(), wrong.join("; ")))
}

/// Returns whether the call accepts a scalar for each of its tensors.
fn takes_scalars(case: &Case) -> bool {
    let inputs: Vec<Tensor> = case.inputs.iter().map(|x| Tensor::full(&[], 0.5, x.dtype())).collect();
    (case.call)(&inputs).is_ok()
}

/// Returns whether the call accepts a second input of one element in place of one with the shape of the first.
fn broadcasts(case: &Case) -> bool {
    let [first, second, ..] = &case.inputs[..] else { return false };
    let mut inputs = case.inputs.clone();
    inputs[1] = Tensor::full(&vec![1; second.rank()], 0.5, second.dtype());
    first.shape() == second.shape() && first.len() > 1 && (case.call)(&inputs).is_ok()
}

fn has_one_shape(case: &Case) -> bool {
    case.inputs.windows(2).all(|pair| pair[0].shape() == pair[1].shape())
}

/// Checks every case of every row.
#[track_caller]
pub fn check_all(rows: Vec<Row>) {
    check(&rows, (0..CASES).map(|case| (case, Draw::new(case))));
}

/// Checks every row with inputs of this many samples, in each layout.
#[track_caller]
pub fn check_tall(rows: Vec<Row>, tall: [usize; 3]) {
    check(&rows, (CASES..).zip(tall).map(|(case, samples)| (case, Draw::tall(case, samples))));
}

#[track_caller]
fn check(rows: &[Row], draws: impl Iterator<Item = (usize, Draw)> + Clone) {
    let failures =
        rows.iter().flat_map(|row| draws.clone().filter_map(|(case, mut draw)| row.failure(case, &mut draw)));
    let failures: Vec<String> = failures.collect();
    assert!(failures.is_empty(), "{} cases fail:\n{}", failures.len(), failures.join("\n"));
}

/// Checks a single case without a row.
#[track_caller]
pub fn check_case(name: &str, case: &Case) {
    if let Err(words) = slopes(case, Layout::Plain) {
        panic!("{name}: {words}");
    }
}

/// Checks the gradients of a case with central differences, and those in 16 bit with those in f32.
fn slopes(case: &Case, layout: Layout) -> Result<(), String> {
    let inputs = layout.bases(&case.inputs);
    every_input_is_reached(case, &inputs, layout)?;
    let found = gradcheck::gradients(&inputs, |x| case.run(layout, x)).map_err(|e| e.to_string())?;
    if found.relative > case.slope {
        return Err(format!("in f64 {found:?}"));
    }
    close_in_f32(case, &inputs, layout)?;
    for low in DType::LOW {
        if case.once {
            rounds_once(case, &inputs, layout, low)?;
        }
        let found = gradcheck::low_gradients(&inputs, low, |x| case.run_to_compare(layout, x, low));
        let found = found.map_err(|e| e.to_string())?;
        if found.relative > case.low {
            return Err(format!("in {low} {found:?}"));
        }
    }
    Ok(())
}

/// Checks that results and gradients in f32, from which those in 16 bit are rounded, match those in f64 of the same
/// numbers.
fn close_in_f32(case: &Case, inputs: &[Tensor], layout: Layout) -> Result<(), String> {
    let run = |to: DType| {
        let cast = |x: &Tensor| if x.dtype().is_float() { x.cast(F32).cast(to) } else { x.clone() };
        case.run(layout, &inputs.iter().map(cast).collect::<Vec<_>>()).map_err(|e| e.to_string())
    };
    let (found, expected) = (run(F32)?.to_f64(), run(F64)?.to_f64());
    let largest = expected.iter().fold(f64::MIN_POSITIVE, |most, y| most.max(y.abs()));
    let unit = largest * F32.epsilon();
    let off = |(y, exact): (&f64, &f64)| (y - exact).abs() / unit;
    // NaN is not near.
    let near = |pair| off(pair) <= case.single;
    if let Some((y, exact)) = found.iter().zip(&expected).find(|pair| !near(*pair)) {
        return Err(format!("in f32 {y} is off {exact} by {:.2} epsilons", off((y, exact))));
    }
    let found = gradcheck::low_gradients(inputs, F32, |x| case.run(layout, x)).map_err(|e| e.to_string())?;
    if found.relative > case.single { Err(format!("in f32 {found:?}")) } else { Ok(()) }
}

/// Checks that the result in 16 bit is that in f32 of the same numbers, rounded once.
fn rounds_once(case: &Case, inputs: &[Tensor], layout: Layout, low: DType) -> Result<(), String> {
    let run = |to: DType| {
        let cast = |x: &Tensor| if x.dtype().is_float() { x.cast(low).cast(F64).cast(to) } else { x.clone() };
        case.run(layout, &inputs.iter().map(cast).collect::<Vec<_>>()).map_err(|e| e.to_string())
    };
    let (found, wide) = (run(low)?, run(F32)?);
    // An op that widens on purpose shows it by its dtype.
    let expected = wide.cast(F64).cast(F32).cast(found.dtype());
    let bits = |x: &Tensor| x.to_f64().into_iter().map(f64::to_bits).collect::<Vec<_>>();
    if bits(&found) == bits(&expected) { Ok(()) } else { Err(format!("{low} result {found:?} is not {expected:?}")) }
}

/// Checks inputs without elements, which have no slope to compare but must get gradients all the same.
fn every_input_is_reached(case: &Case, inputs: &[Tensor], layout: Layout) -> Result<(), String> {
    for dtype in [F64, DType::F16, DType::Bf16] {
        let leaf = |x: &Tensor| if x.dtype().is_float() { x.cast(dtype).requires_grad() } else { x.clone() };
        let leaves: Vec<Tensor> = inputs.iter().map(leaf).collect();
        let back = case.run(layout, &leaves).and_then(|y| y.backward_from(&Tensor::ones(y.shape(), y.dtype())));
        let grads = back.map_err(|e| e.to_string())?;
        for (i, x) in leaves.iter().enumerate().filter(|(_, x)| x.is_tracked()) {
            match grads.of(x) {
                None => return Err(format!("no gradient of input {i} in {dtype}")),
                Some(grad) if grad.shape() != x.shape() || grad.dtype() != dtype => {
                    return Err(format!("the gradient of input {i} is {} {:?} in {dtype}", grad.dtype(), grad.shape()));
                }
                Some(_) => {}
            }
        }
    }
    Ok(())
}

/// Checks that a result of integers or booleans has no gradient.
fn no_slope(case: &Case, layout: Layout) -> Result<(), String> {
    let tracked = |x: Tensor| if x.dtype().is_float() { x.requires_grad() } else { x };
    let inputs: Vec<Tensor> = layout.bases(&case.inputs).into_iter().map(tracked).collect();
    let y = case.run(layout, &inputs).map_err(|e| e.to_string())?;
    match (y.dtype().is_float(), y.is_tracked()) {
        (false, false) => Ok(()),
        (_, tracked) => Err(format!("the result is {} and its gradient is {tracked}", y.dtype())),
    }
}

/// Memory layout of the inputs of a case.
#[derive(Clone, Copy, Debug)]
enum Layout {
    /// Contiguous.
    Plain,
    /// First and last axis exchanged in memory.
    Transposed,
    /// A part of each row of a longer tensor, which is NaN elsewhere.
    Strided,
}

impl Layout {
    /// Returns the layout for a rank: tensors of less than two axes have nothing to exchange, and are strided instead.
    fn for_rank(self, rank: usize) -> Layout {
        match (self, rank) {
            (_, 0) => Layout::Plain,
            (Layout::Transposed, 1) => Layout::Strided,
            (layout, _) => layout,
        }
    }

    fn bases(self, inputs: &[Tensor]) -> Vec<Tensor> {
        inputs.iter().map(|x| self.base(x)).collect()
    }

    fn views(self, bases: &[Tensor]) -> Result<Vec<Tensor>> {
        bases.iter().map(|base| self.view(base)).collect()
    }

    /// Returns the tensor from which [`view`](Layout::view) makes this one.
    fn base(self, x: &Tensor) -> Tensor {
        let (data, shape) = match self.for_rank(x.rank()) {
            Layout::Plain => return x.clone(),
            Layout::Transposed => {
                let x = x.transpose(0, -1).expect("two axes");
                (x.to_f64(), x.shape().to_vec())
            }
            Layout::Strided => {
                let (mut shape, len) = (x.shape().to_vec(), x.shape()[x.rank() - 1]);
                *shape.last_mut().expect("an axis") += 2;
                let x = x.to_f64();
                let rows: usize = shape[..shape.len() - 1].iter().product();
                let row = |i: usize| [&[f64::NAN], &x[i * len..(i + 1) * len], &[f64::NAN]].concat();
                ((0..rows).flat_map(row).collect(), shape)
            }
        };
        Tensor::from_f64(&data, &shape, x.dtype()).expect("one number for each element")
    }

    fn view(self, base: &Tensor) -> Result<Tensor> {
        match self.for_rank(base.rank()) {
            Layout::Plain => Ok(base.clone()),
            Layout::Transposed => base.transpose(0, -1),
            Layout::Strided => base.slice(-1, 1..base.shape()[base.rank() - 1] - 1),
        }
    }
}
