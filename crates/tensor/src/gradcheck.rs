//! Gradient checks against central differences, for built-in ops and for user-defined cells.
//!
//! The functions measure the error of gradients; the caller decides on a tolerance. A missing gradient is not a matter
//! of degree: it is an error of kind [`Gradient`](crate::ErrorKind::Gradient), and so is a result that depends on no
//! input.
//!
//! An op whose slope is 0 (floor, sign) has gradients of zeros. An op whose result is integer or boolean (a comparison,
//! argmax) has none by definition and is refused with [`DType`](crate::ErrorKind::DType).

use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

use crate::{
    DType, Tensor,
    error::{Error, Result},
    no_grad,
    tensor::with_recording,
    twice_differentiable,
};

/// The largest disagreement found.
#[derive(Clone, Copy, Debug, PartialEq)]
#[must_use = "gradients that are off are not an error: compare `relative` with a bound"]
#[non_exhaustive]
pub struct Disagreement {
    /// The disagreement, in the unit documented by the function; infinite when a gradient is NaN.
    pub relative: f64,
    /// Index of the input.
    pub input: usize,
    /// Index of the element in that input, in row-major order.
    pub element: usize,
    /// The gradient that was checked.
    pub found: f64,
    /// The value it was compared with.
    pub expected: f64,
}

impl Disagreement {
    const NONE: Disagreement = Disagreement { relative: 0.0, input: 0, element: 0, found: 0.0, expected: 0.0 };

    /// Returns the larger of the two. A NaN is the largest.
    fn or(self, mut other: Disagreement) -> Disagreement {
        if other.relative.is_nan() {
            other.relative = f64::INFINITY;
        }
        if other.relative > self.relative { other } else { self }
    }
}

/// Compares the gradients of `sum(f(inputs) * r)`, r random, with central differences in f64. The disagreement is relative
/// to the largest gradient of that input, or to 0.01 if all are smaller.
///
/// Inputs that are not f64 (indices, masks, floating tensors of other dtypes) are held fixed. `f` must be smooth near the
/// inputs.
///
/// # Errors
/// Those of `f`; [`ErrorKind::DType`](crate::ErrorKind::DType) when no input is f64, or the result is not;
/// [`ErrorKind::Gradient`](crate::ErrorKind::Gradient) when the result changes with an input that no gradient reaches,
/// and when no gradient reaches any input.
///
/// ```
/// # use precast_tensor as precast;
/// use precast::{ErrorKind, Tensor, gradcheck};
/// let x = Tensor::from_vec(vec![0.3, -1.2, 2.0], &[3])?;
/// assert!(gradcheck::gradients(&[x.clone()], |xs| xs[0].tanh())?.relative < 1e-6);
/// let error = gradcheck::gradients(&[x], |xs| xs[0].detach().tanh()).unwrap_err();
/// assert_eq!(error.kind(), ErrorKind::Gradient);
/// # Ok::<(), precast::Error>(())
/// ```
pub fn gradients(inputs: &[Tensor], f: impl Fn(&[Tensor]) -> Result<Tensor>) -> Result<Disagreement> {
    if inputs.iter().all(|x| x.dtype() != DType::F64) {
        return Err(Error::dtype(format!("gradients are checked in f64; the inputs are {}", dtypes(inputs))));
    }
    let leaves: Vec<Tensor> = inputs.iter().map(leaf).collect();
    // Also within `no_grad`.
    let y = with_recording(true, || f(&leaves))?;
    if y.dtype() != DType::F64 {
        return Err(Error::dtype(format!("gradients are checked in f64; the result is {}", y.dtype())));
    }
    let weights = random(y.shape());
    let grads = y.backward_from(&weights)?;
    let weights = weights.to_f64();
    let loss = |xs: &[Tensor]| -> Result<f64> {
        let y = no_grad(|| f(xs))?.to_f64();
        Ok(y.iter().zip(&weights).map(|(y, w)| y * w).sum())
    };
    let mut worst = Disagreement::NONE;
    let mut reached = false;
    for (input, x) in inputs.iter().enumerate().filter(|(_, x)| x.dtype() == DType::F64) {
        let values = x.to_f64();
        let analytic = grads.of(&leaves[input]).map(|grad| grad.to_f64());
        reached |= analytic.is_some();
        let scale = analytic.iter().flatten().fold(0.01, |m: f64, g| m.max(g.abs()));
        for element in 0..values.len() {
            let step = 1e-5 * values[element].abs().max(1.0);
            let moved = |by: f64| -> Result<f64> {
                let mut values = values.clone();
                values[element] += by;
                let mut xs = inputs.to_vec();
                xs[input] = Tensor::from_vec(values, x.shape())?;
                loss(&xs)
            };
            let expected = (moved(step)? - moved(-step)?) / (2.0 * step);
            match &analytic {
                Some(analytic) => {
                    let found = analytic[element];
                    let relative = (expected - found).abs() / scale;
                    worst = worst.or(Disagreement { relative, input, element, found, expected });
                }
                None if expected == 0.0 => {}
                None => {
                    return Err(Error::gradient(format!(
                        "no gradient reaches input {input}, but the result changes with its element {element} (slope \
                         {expected:.3e})"
                    )));
                }
            }
        }
    }
    if reached { Ok(worst) } else { Err(unreached("")) }
}

/// Compares the gradients of `sum(f(inputs) * r)` when f runs in `low` with those when it runs in the dtype in which
/// `low` is computed (f32 for 16 bit) or, where `low` is f32, in f64. The inputs are values that both dtypes represent
/// exactly.
///
/// The disagreement is in units of the format's epsilon times the largest gradient of that input in the wider dtype: a
/// 16-bit op that computes in f32 and rounds once is off by 0.5 at most. An op whose backward pass reads its rounded
/// result is off by more where its slope is small: `1 - y²` of [`tanh`](Tensor::tanh) loses digits near 1, as it does
/// in torch.
///
/// A missing gradient is detected by comparing the two dtypes; [`gradients`] detects it by differences.
///
/// # Errors
/// Those of `f`; [`ErrorKind::DType`](crate::ErrorKind::DType) when `low` is none of these three, when the result is
/// not floating, or no input is; [`ErrorKind::Gradient`](crate::ErrorKind::Gradient) when an input gets a gradient in
/// one dtype and not in the other, and when no gradient reaches any input.
pub fn low_gradients(inputs: &[Tensor], low: DType, f: impl Fn(&[Tensor]) -> Result<Tensor>) -> Result<Disagreement> {
    let wide = match low {
        DType::F16 | DType::Bf16 => DType::F32,
        DType::F32 => DType::F64,
        _ => return Err(Error::dtype(format!("gradients are compared in f32, f16 or bf16, not in {low}"))),
    };
    if inputs.iter().all(|x| !x.dtype().is_float()) {
        return Err(Error::dtype(format!("no input is floating; the inputs are {}", dtypes(inputs))));
    }
    let run = |dtype: DType| -> Result<Vec<Option<Vec<f64>>>> {
        let as_dtype =
            |x: &Tensor| if x.dtype().is_float() { x.cast(low).cast(DType::F64).cast(dtype) } else { x.clone() };
        let leaves: Vec<Tensor> = inputs.iter().map(|x| leaf(&as_dtype(x))).collect();
        let y = with_recording(true, || f(&leaves))?;
        if !y.dtype().is_float() {
            return Err(Error::dtype(format!("a result of {} has no gradient", y.dtype())));
        }
        let weights = random(y.shape()).cast(low).cast(DType::F64).cast(y.dtype());
        let grads = y.backward_from(&weights)?;
        Ok(leaves.iter().map(|x| grads.of(x).map(|grad| grad.to_f64())).collect())
    };
    let (full, lowered) = (run(wide)?, run(low)?);
    let mut worst = Disagreement::NONE;
    let mut reached = false;
    for (input, pair) in full.iter().zip(&lowered).enumerate() {
        let (full, lowered) = match pair {
            (Some(full), Some(lowered)) => (full, lowered),
            (None, None) => continue,
            (Some(_), None) => return Err(one_sided(input, wide, low)),
            (None, Some(_)) => return Err(one_sided(input, low, wide)),
        };
        reached = true;
        let scale = full.iter().fold(f64::MIN_POSITIVE, |m, g| m.max(g.abs())) * low.epsilon();
        for (element, (&expected, &found)) in full.iter().zip(lowered).enumerate() {
            let relative = (expected - found).abs() / scale;
            worst = worst.or(Disagreement { relative, input, element, found, expected });
        }
    }
    if reached { Ok(worst) } else { Err(unreached(&format!(" in {low} or {wide}"))) }
}

/// Compares second derivatives with central differences in f64: the gradients of `sum(g * s)`, where g are the
/// gradients of `sum(f(inputs) * r)`, with r and s random. The disagreement is defined as in [`gradients`]. r counts as
/// the last input.
///
/// `f` runs within [`twice_differentiable`](crate::twice_differentiable()).
///
/// # Errors
/// Those of [`gradients`] and of [`gradients_on_tape`](Tensor::gradients_on_tape).
///
/// ```
/// # use precast_tensor as precast;
/// use precast::{Tensor, gradcheck};
/// let x = Tensor::from_vec(vec![0.3, -1.2, 2.0], &[3])?;
/// assert!(gradcheck::second(&[x], |xs| xs[0].tanh())?.relative < 1e-6);
/// # Ok::<(), precast::Error>(())
/// ```
pub fn second(inputs: &[Tensor], f: impl Fn(&[Tensor]) -> Result<Tensor>) -> Result<Disagreement> {
    // A central difference needs no tape; the gradients always do.
    let run = |inputs: &[Tensor]| -> Result<(Tensor, Vec<Tensor>)> {
        let tracked = |x: &Tensor| if x.is_tracked() { x.clone() } else { leaf(x) };
        let inputs: Vec<Tensor> = inputs.iter().map(tracked).collect();
        Ok((with_recording(true, || twice_differentiable(|| f(&inputs)))?, inputs))
    };
    let y = run(inputs)?.0;
    if y.dtype() != DType::F64 {
        return Err(Error::dtype(format!("gradients are checked in f64; the result is {}", y.dtype())));
    }
    // The gradient of the result is also an input.
    let all: Vec<Tensor> = inputs.iter().cloned().chain([random(y.shape())]).collect();
    gradients(&all, |all| {
        let (seed, inputs) = all.split_last().expect("the gradient of the result");
        let (y, inputs) = run(inputs)?;
        let loss = with_recording(true, || twice_differentiable(|| y.mul(seed)?.sum_all()))?;
        let of: Vec<&Tensor> = inputs.iter().filter(|x| x.dtype() == DType::F64).collect();
        let mut sum = Tensor::zeros(&[], DType::F64);
        for grad in loss.gradients_on_tape(&of)?.into_iter().flatten() {
            sum = sum.add(&grad.mul(&random(grad.shape()))?.sum_all()?)?;
        }
        Ok(sum)
    })
}

fn unreached(place: &str) -> Error {
    Error::gradient(format!("no gradient reaches any input{place}: the result depends on none of them"))
}

fn one_sided(input: usize, with: DType, without: DType) -> Error {
    Error::gradient(format!("input {input} gets a gradient in {with} and none in {without}"))
}

fn dtypes(inputs: &[Tensor]) -> String {
    if inputs.is_empty() {
        return "none".into();
    }
    inputs.iter().map(|x| x.dtype().name()).collect::<Vec<_>>().join(", ")
}

fn leaf(x: &Tensor) -> Tensor {
    if x.dtype().is_float() { x.requires_grad() } else { x.clone() }
}

/// Returns numbers between -1 and 1, always the same for the same shape.
fn random(shape: &[usize]) -> Tensor {
    let mut rng = ChaCha8Rng::seed_from_u64(7);
    let data: Vec<f64> = (0..shape.iter().product()).map(|_| rng.random_range(-1.0..1.0)).collect();
    Tensor::from_vec(data, shape).expect("as many numbers as the shape has")
}
