//! Optimizers. Their state and their arithmetic are f32, or f64 for f64 parameters.

mod adam;
mod sgd;

use std::fmt::Debug;

pub use adam::Adam;
pub use sgd::Sgd;

use crate::{
    DType, Grads, Tensor,
    cell::Params,
    error::{Error, Result},
    kernels::{float::Float, memory::uninit_vec, threads},
    tensor::{Array, Stored, with_float},
};

/// Changes parameters by their gradients.
pub trait Optimizer: Debug + Send {
    /// The parameters it trains, by path.
    fn params(&self) -> &Params;

    /// One step. A parameter without a gradient is left alone. On an error no parameter has changed.
    ///
    /// # Errors
    /// [`ErrorKind::Value`](crate::ErrorKind::Value) for a hyperparameter outside its range,
    /// [`ErrorKind::Shape`](crate::ErrorKind::Shape) for a gradient that has not its parameter's shape.
    fn update(&mut self, grads: &Grads) -> Result<()>;

    /// The learning rate.
    fn lr(&self) -> f64;

    /// Sets the learning rate, as schedules do.
    fn set_lr(&mut self, lr: f64);
}

/// The formula of an optimizer for one parameter.
trait Rule: Sync {
    /// How many running averages it keeps of each parameter.
    fn moments(&self) -> usize;

    /// Updates some elements of the value. `steps` counts the updates of this parameter, this one included. `grad` has as
    /// many elements as `value`, and so has each of the [`moments`](Rule::moments), which begin as zeros.
    fn apply<T: Float>(&self, steps: u64, value: &mut [T], grad: &[T::Wide], moments: &mut [&mut [T::Wide]]);
}

/// The state that an optimizer keeps for one parameter.
#[derive(Clone)]
struct Memory {
    /// Updates so far.
    steps: u64,
    /// Running averages, in the dtype of the arithmetic.
    moments: Vec<Array>,
}

/// Parameters, and the state of each that has had a gradient.
#[derive(Clone)]
struct Trained {
    params: Params,
    memory: Vec<Option<Memory>>,
}

impl Trained {
    fn new(params: Params) -> Self {
        let memory = vec![None; params.len()];
        Trained { params, memory }
    }

    fn update(&mut self, rule: &impl Rule, grads: &Grads) -> Result<()> {
        for (path, param) in self.params.iter() {
            if let Some(grad) = grads.get(param)
                && (grad.shape() != param.shape() || !grad.dtype().is_float())
            {
                let (dtype, shape) = (grad.dtype(), grad.shape());
                return Err(Error::shape(format!(
                    "the gradient of `{path}` is {dtype} {shape:?}, the parameter has the shape {:?}",
                    param.shape()
                )));
            }
        }
        for ((_, param), memory) in self.params.iter().zip(&mut self.memory) {
            if let Some(grad) = grads.get(param) {
                param.set(&updated(rule, &param.full(), &grad, memory)?)?;
            }
        }
        Ok(())
    }
}

impl Debug for Trained {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} parameters", self.params.len())
    }
}

/// Cost of updating an element, in multiplications, by which work is divided among threads.
const WORK: usize = 16;

fn updated(rule: &impl Rule, value: &Tensor, grad: &Tensor, memory: &mut Option<Memory>) -> Result<Tensor> {
    fn go<T: Stored + Float>(rule: &impl Rule, value: &[T], grad: &Array, memory: &mut Memory) -> Vec<T>
    where
        T::Wide: Stored,
    {
        let grad = grad.slice::<T::Wide>().expect("cast and contiguous");
        let mut moments: Vec<&mut [T::Wide]> =
            memory.moments.iter_mut().map(|m| m.slice_mut::<T::Wide>().expect("made in this dtype")).collect();
        let (steps, mut new) = (memory.steps, uninit_vec(value.len()));
        threads::together(&mut new, &mut moments, value.len() * WORK, |range, new, moments| {
            new.copy_from_slice(&value[range.clone()]);
            rule.apply(steps, new, &grad[range], moments);
        });
        new
    }
    let wide = if value.dtype() == DType::F64 { DType::F64 } else { DType::F32 };
    // A momentum switched on between two steps starts afresh.
    let memory = match memory {
        Some(memory) if memory.moments.len() == rule.moments() => memory,
        stale => {
            let zeros = || Tensor::zeros(&[value.len()], wide).array().clone();
            let moments = std::iter::repeat_with(zeros).take(rule.moments()).collect();
            stale.insert(Memory { steps: 0, moments })
        }
    };
    memory.steps += 1;
    let grad = grad.cast(wide).array().contiguous();
    let value = value.array().contiguous();
    let new = with_float!(&value, a: T => {
        Array::from_vec(go::<T>(rule, a.as_slice().expect("contiguous"), &grad, memory), value.shape())?
    }, else return Err(Error::dtype(format!("a {} parameter cannot be trained", value.dtype()))));
    Ok(Tensor::from_array(new))
}

/// Checks a hyperparameter: a finite number for which `allowed` holds.
fn check(name: &str, value: f64, allowed: bool, range: &str) -> Result<()> {
    if value.is_finite() && allowed {
        return Ok(());
    }
    Err(Error::value(format!("the optimizer's {name} is {value}; allowed: {range}")))
}

/// The learning rate and weight decay that every optimizer has.
fn check_common(lr: f64, weight_decay: f64) -> Result<()> {
    check("learning rate", lr, lr >= 0.0, "a finite number of at least 0")?;
    check("weight decay", weight_decay, weight_decay >= 0.0, "a finite number of at least 0")
}
