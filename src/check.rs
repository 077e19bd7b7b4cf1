//! Checking gradients against central differences: for every op here, and for users' own cells.

use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

use crate::{
    DType, Tensor,
    error::{Error, Result},
    no_grad,
};

/// The largest disagreement found, relative to the largest gradient of that input (at least 1).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Disagreement {
    /// The disagreement.
    pub relative: f64,
    /// Which input.
    pub input: usize,
    /// Which of its elements, in row-major order.
    pub element: usize,
}

/// Compares the gradients of `sum(f(inputs) * r)`, r random, with central differences in f64.
///
/// Inputs that are not f64 (indices, masks) are held fixed. `f` must be smooth near the inputs.
///
/// # Errors
/// What `f` reports, and [`ErrorKind::DType`](crate::ErrorKind::DType) when its result is not f64.
///
/// ```
/// use precast::{DType, Tensor, check};
/// let x = Tensor::from_vec(vec![0.3, -1.2, 2.0], &[3])?;
/// assert!(check::gradients(&[x], |xs| xs[0].tanh())?.relative < 1e-6);
/// # Ok::<(), precast::Error>(())
/// ```
pub fn gradients(inputs: &[Tensor], f: impl Fn(&[Tensor]) -> Result<Tensor>) -> Result<Disagreement> {
    let leaves: Vec<Tensor> = inputs.iter().map(leaf).collect();
    let y = f(&leaves)?;
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
    let mut worst = Disagreement { relative: 0.0, input: 0, element: 0 };
    for (input, x) in inputs.iter().enumerate().filter(|(_, x)| x.dtype() == DType::F64) {
        let values = x.to_f64();
        let analytic = grads.of(&leaves[input]).map_or(vec![0.0; values.len()], Tensor::to_f64);
        let scale = analytic.iter().fold(1.0, |m: f64, g| m.max(g.abs()));
        for element in 0..values.len() {
            let step = 1e-5 * values[element].abs().max(1.0);
            let moved = |by: f64| -> Result<f64> {
                let mut values = values.clone();
                values[element] += by;
                let mut xs = inputs.to_vec();
                xs[input] = Tensor::from_vec(values, x.shape())?;
                loss(&xs)
            };
            let numeric = (moved(step)? - moved(-step)?) / (2.0 * step);
            let relative = (numeric - analytic[element]).abs() / scale;
            // A NaN on either side is the worst disagreement there is.
            if relative.is_nan() || relative > worst.relative {
                worst =
                    Disagreement { relative: if relative.is_nan() { f64::INFINITY } else { relative }, input, element };
            }
        }
    }
    Ok(worst)
}

/// Compares the gradients of `sum(f(inputs) * r)` when f runs in `low` with those when it runs in f32, on inputs that
/// both can hold. The disagreement is in units of the format's epsilon times the largest f32 gradient of that input.
///
/// # Errors
/// What `f` reports.
pub fn low_gradients(inputs: &[Tensor], low: DType, f: impl Fn(&[Tensor]) -> Result<Tensor>) -> Result<Disagreement> {
    let run = |dtype: DType| -> Result<Vec<Option<Vec<f64>>>> {
        let as_dtype =
            |x: &Tensor| if x.dtype().is_float() { x.cast(low).cast(DType::F64).cast(dtype) } else { x.clone() };
        let leaves: Vec<Tensor> = inputs.iter().map(|x| leaf(&as_dtype(x))).collect();
        let y = f(&leaves)?;
        let weights = random(y.shape()).cast(low).cast(DType::F64).cast(y.dtype());
        let grads = y.backward_from(&weights)?;
        Ok(leaves.iter().map(|x| grads.of(x).map(Tensor::to_f64)).collect())
    };
    let (full, lowered) = (run(DType::F32)?, run(low)?);
    let mut worst = Disagreement { relative: 0.0, input: 0, element: 0 };
    for (input, pair) in full.iter().zip(&lowered).enumerate() {
        let (Some(full), Some(lowered)) = pair else { continue };
        let scale = full.iter().fold(f64::MIN_POSITIVE, |m, g| m.max(g.abs())) * low.epsilon();
        for (element, (a, b)) in full.iter().zip(lowered).enumerate() {
            let relative = (a - b).abs() / scale;
            if relative.is_nan() || relative > worst.relative {
                worst =
                    Disagreement { relative: if relative.is_nan() { f64::INFINITY } else { relative }, input, element };
            }
        }
    }
    Ok(worst)
}

fn leaf(x: &Tensor) -> Tensor {
    if x.dtype().is_float() { x.requires_grad() } else { x.clone() }
}

/// Numbers between -1 and 1, the same for the same shape.
fn random(shape: &[usize]) -> Tensor {
    let mut rng = ChaCha8Rng::seed_from_u64(7);
    let data: Vec<f64> = (0..shape.iter().product()).map(|_| rng.random_range(-1.0..1.0)).collect();
    Tensor::from_vec(data, shape).expect("as many numbers as the shape has")
}
