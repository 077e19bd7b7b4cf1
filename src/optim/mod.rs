//! Optimizers. Their state and their arithmetic are f32, or f64 for f64 parameters.
//!
//! | optimizer | keeps of each element |
//! | --- | --- |
//! | [`Sgd`] | nothing, or one number with momentum |
//! | [`Adam`], AdamW by [`Adam::decoupled`] | two numbers, three with AMSGrad; in 8 bits on request |
//! | [`Adagrad`] | one number |
//! | [`RmsProp`] | one number to three |
//! | [`Lion`] | one number; in 8 bits on request |
//! | [`Lamb`] | two numbers |
//! | [`Adafactor`] | two numbers for a row and a column of a matrix; one number of a vector |
//! | [`Muon`] | one number; for matrices only |

mod adafactor;
mod adagrad;
mod adam;
mod beside;
mod group;
mod lamb;
mod lion;
mod lost;
mod muon;
mod overflow;
mod rms_prop;
mod rule;
mod sgd;
mod state;
mod trained;

use std::fmt::Debug;

pub use adafactor::Adafactor;
pub use adagrad::Adagrad;
pub use adam::Adam;
pub(crate) use beside::beside;
pub use group::Group;
pub use lamb::Lamb;
pub use lion::Lion;
pub use lost::LostUpdates;
pub use muon::Muon;
pub use rms_prop::RmsProp;
pub use sgd::Sgd;
pub use state::OptimizerState;

use crate::{Grads, cell::Params, error::Result};

/// Changes parameters by their gradients.
pub trait Optimizer: Debug + Send {
    /// The parameters it trains, by path.
    fn params(&self) -> &Params;

    /// One step. A parameter without a gradient is left alone. On an error no parameter has changed, but for the error of an
    /// update that leaves the range of a dtype.
    ///
    /// That one is found while the update is written. A number that was finite and would become infinite in the dtype of the
    /// parameter, or NaN, keeps its old value, and its old master where it has one; all other numbers, and the running averages, are
    /// updated. So no parameter is infinite after the error, and a loop can continue after it.
    ///
    /// # Errors
    /// [`ErrorKind::Value`](crate::ErrorKind::Value) for a hyperparameter outside its range, for an optimizer without parameters,
    /// where none of its parameters has a gradient, and where numbers would become infinite or NaN in the dtype of their parameter, with the
    /// parameters, how many numbers, and what can be done,
    /// [`ErrorKind::Shape`](crate::ErrorKind::Shape) for a gradient that has not its parameter's shape.
    fn update(&mut self, grads: &Grads) -> Result<()>;

    /// Checks the hyperparameters, as [`update`](Optimizer::update) does before it changes anything.
    ///
    /// # Errors
    /// [`ErrorKind::Value`](crate::ErrorKind::Value) for one outside its range.
    fn check(&self) -> Result<()>;

    /// The learning rate.
    fn lr(&self) -> f64;

    /// Sets the learning rate, as schedules do.
    fn set_lr(&mut self, lr: f64);

    /// The updates of each parameter that rounding swallowed in the last step, if they are counted.
    fn lost_updates(&self) -> &[LostUpdates] {
        &[]
    }

    /// Its state, to be saved.
    fn state(&self) -> OptimizerState;

    /// Goes on from a state of the same optimizer, with the same options, over parameters of the same paths and shapes that are
    /// stored in the same way: the next steps have the bits that they would have had.
    ///
    /// # Errors
    /// [`ErrorKind::Value`](crate::ErrorKind::Value) with everything that differs. The optimizer is as it was then.
    fn restore(&mut self, state: OptimizerState) -> Result<()>;
}
