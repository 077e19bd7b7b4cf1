//! Optimizers. Their state and arithmetic are f32, or f64 for f64 parameters.
//!
//! | optimizer | state per element |
//! | --- | --- |
//! | [`Sgd`] | nothing, or one number with momentum |
//! | [`Adam`], [`AdamW`] | two numbers, three with AMSGrad; in 8 bits on request |
//! | [`Adagrad`] | one number |
//! | [`RmsProp`] | one to three numbers |
//! | [`Lion`] | one number; in 8 bits on request |
//! | [`Lamb`] | two numbers |
//! | [`Adafactor`] | one number per row and per column of a matrix; one per element of a vector |
//! | [`Muon`] | one number; for matrices only |

mod adafactor;
mod adagrad;
mod adam;
mod average;
mod beside;
mod group;
mod lamb;
mod lion;
mod lost;
mod makes;
mod method;
mod muon;
mod overflow;
mod rms_prop;
mod rule;
mod schedule;
mod sgd;
mod state;
mod trained;
mod update;

use std::fmt::Debug;

pub use adafactor::{Adafactor, AdafactorOptions};
pub use adagrad::{Adagrad, AdagradOptions};
pub use adam::{Adam, AdamLikeOptions, AdamOptions, AdamW, AdamWOptions};
pub use average::Average;
use beside::beside;
pub use group::Group;
pub use lamb::{Lamb, LambOptions};
pub use lion::{Lion, LionOptions};
pub use lost::LostUpdates;
pub use method::Method;
pub use muon::{Muon, MuonOptions};
pub use rms_prop::{RmsProp, RmsPropOptions};
pub use schedule::Schedule;
pub use sgd::{Sgd, SgdOptions};
pub use state::OptimizerState;

use precast_base::names::did_you_mean_or_some;

use crate::{
    Grads,
    cell::Params,
    error::{Error, Result},
};

/// An optimizer, which updates parameters from their gradients.
pub trait Optimizer: Debug + Send {
    /// Returns the trained parameters, by path.
    fn params(&self) -> &Params;

    /// Takes one step. A parameter without a gradient is left alone. On an error no parameter changes, except when an
    /// update exceeds the range of a dtype.
    ///
    /// That error is detected while the update is written. A finite number that would become infinite in the dtype of
    /// the parameter, or NaN, keeps its old value, and its old master value if it has one; all other numbers and the
    /// running averages are updated. So no parameter is infinite after the error, and a training loop can continue.
    ///
    /// # Errors
    /// [`ErrorKind::Value`](crate::ErrorKind::Value) for a hyperparameter outside its range, for an optimizer without
    /// parameters, when none of its parameters has a gradient, and when numbers would become infinite or NaN in the
    /// dtype of their parameter, with the parameters, the count, and a remedy;
    /// [`ErrorKind::Shape`](crate::ErrorKind::Shape) for a gradient whose shape differs from its parameter's.
    fn update(&mut self, grads: &Grads) -> Result<()>;

    /// Updates the parameter at a place of [`params`](Optimizer::params), from gradients that have its gradient alone: a
    /// part of the step that [`step_in_backward`](crate::LossScale::step_in_backward) takes, which
    /// [checks](Optimizer::check) the hyperparameters before the first. It should not visit other parameters. Default:
    /// [`update`](Optimizer::update), which may.
    ///
    /// # Errors
    /// As [`update`](Optimizer::update).
    fn update_one(&mut self, place: usize, grads: &Grads) -> Result<()> {
        let _ = place;
        self.update(grads)
    }

    /// Checks the hyperparameters, as [`update`](Optimizer::update) does before it changes anything.
    ///
    /// # Errors
    /// [`ErrorKind::Value`](crate::ErrorKind::Value) for one outside its range.
    fn check(&self) -> Result<()>;

    /// Returns the learning rate.
    fn lr(&self) -> f64;

    /// Sets the learning rate, as schedules do.
    fn set_lr(&mut self, lr: f64);

    /// Sets hyperparameters for the parameters whose path matches a [pattern](crate::policy::Pattern), as `group` of the
    /// optimizers does. By default an optimizer has no groups.
    ///
    /// # Errors
    /// [`ErrorKind::Policy`](crate::ErrorKind::Policy) for a malformed pattern,
    /// [`ErrorKind::Path`](crate::ErrorKind::Path) when no parameter matches,
    /// [`ErrorKind::Value`](crate::ErrorKind::Value) for an optimizer without groups.
    fn set_group(&mut self, pattern: &str, group: Group) -> Result<()> {
        let _ = group;
        Err(Error::value(format!("the optimizer has no groups, so it has none for `{pattern}`")))
    }

    /// Returns the updates of each parameter lost to rounding in the last step, if they are counted.
    fn lost_updates(&self) -> &[LostUpdates] {
        &[]
    }

    /// Returns the state, to be saved.
    fn state(&self) -> OptimizerState;

    /// Continues from a state of the same optimizer with the same options, over parameters with the same paths, shapes
    /// and storage. The next steps are bit-identical to those of an uninterrupted run.
    ///
    /// # Errors
    /// [`ErrorKind::Value`](crate::ErrorKind::Value) with every difference. The optimizer is then unchanged.
    fn restore(&mut self, state: OptimizerState) -> Result<()>;
}

/// Returns the error for a group that matches none of some parameters.
fn no_member(pattern: &str, params: &Params) -> Error {
    let near = did_you_mean_or_some(pattern, params.paths().map(|(path, _)| path));
    Error::path(format!("the group `{pattern}` matches no parameter{near}"))
}
