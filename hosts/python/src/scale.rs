//! The loss scale.

use std::sync::{Mutex, PoisonError};

use precast_base::Error;
use precast_policy::{
    policy::LossScaleSpec,
    scale::{self as engine, Outcome, ScaleState},
};
use pyo3::prelude::*;

use crate::error::{OrRaise, raised};

/// The scale of the next step, and the rule by which it changes.
#[pyclass(frozen, module = "precast._engine")]
pub struct ScaleMachine(Mutex<engine::ScaleMachine>);

impl From<engine::ScaleMachine> for ScaleMachine {
    fn from(machine: engine::ScaleMachine) -> Self {
        ScaleMachine(Mutex::new(machine))
    }
}

impl ScaleMachine {
    fn with<T>(&self, f: impl FnOnce(&mut engine::ScaleMachine) -> T) -> T {
        f(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

#[pymethods]
impl ScaleMachine {
    /// Returns the factor of the loss.
    #[getter]
    fn value(&self) -> f32 {
        self.with(|machine| machine.value())
    }

    /// Returns whether losses are scaled at all.
    #[getter]
    fn scales(&self) -> bool {
        self.with(|machine| *machine.spec() != LossScaleSpec::None)
    }

    /// Judges a step: whether it is taken, whether training has stalled, and the words for it.
    fn judge(&self, finite_loss: bool, first_non_finite: Option<String>) -> (bool, bool, String) {
        let outcome = self.with(|machine| machine.judge(finite_loss, first_non_finite));
        (outcome.is_step(), matches!(outcome, Outcome::Stalled { .. }), outcome.to_string())
    }

    /// Returns the state as JSON.
    fn state(&self) -> PyResult<String> {
        let state = self.with(|machine| machine.state());
        serde_json::to_string(&state).map_err(|error| raised(&Error::value(error.to_string())))
    }

    /// Continues from a state.
    fn restore(&self, state: &str) -> PyResult<()> {
        let state: ScaleState =
            serde_json::from_str(state).map_err(|error| raised(&Error::value(error.to_string())))?;
        self.with(|machine| machine.restore(state)).or_raise()
    }
}
