//! Delayed scaling: the scale of a step from the largest magnitudes of the steps before.

use precast_base::{Error, Result};

use crate::format::Format;

/// The rule of delayed scaling, as the recipe of Transformer Engine has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct DelayedRule {
    /// Number of steps whose amax is kept. Default: 1024.
    pub history: usize,
    /// The amax from which the scale is computed. Default: the largest.
    pub amax: AmaxOf,
    /// The scale is divided by 2^margin. Default: 0.
    pub margin: i32,
    /// Leave history and scale as they are in a step whose amax is 0, since its layer was not used. Default: false.
    pub skip_unused: bool,
}

impl DelayedRule {
    /// The defaults.
    pub const DEFAULT: DelayedRule =
        DelayedRule { history: 1024, amax: AmaxOf::Largest, margin: 0, skip_unused: false };
}

impl Default for DelayedRule {
    fn default() -> Self {
        DelayedRule::DEFAULT
    }
}

/// The amax of a history from which a scale is computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum AmaxOf {
    /// The largest amax of the history.
    Largest,
    /// The amax of the last step.
    MostRecent,
}

/// The scale of one tensor in delayed scaling, and its history. It is state: a checkpoint has both.
///
/// In a step the tensor is quantized by [`scale`](Delayed::scale), and [`update`](Delayed::update) receives its amax
/// afterwards; with several ranks, the largest of them.
///
/// ```
/// use precast_lowbit::{Delayed, DelayedRule, Format};
///
/// let mut delayed = Delayed::new(Format::E4M3, DelayedRule::default())?;
/// assert_eq!(delayed.scale(), 1.0);
/// delayed.update(3.5);
/// assert_eq!(delayed.scale(), 128.0);
/// # Ok::<(), precast_base::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Delayed {
    format: Format,
    rule: DelayedRule,
    scale: f32,
    history: Vec<f32>,
}

impl Delayed {
    /// Creates the state before the first step: scale 1, and a history of zeros.
    ///
    /// # Errors
    /// [`ErrorKind::Value`](precast_base::ErrorKind::Value) when the history has no or more than 2^20 places.
    pub fn new(format: Format, rule: DelayedRule) -> Result<Self> {
        if !(1..=1 << 20).contains(&rule.history) {
            return Err(Error::value(format!("expected a history of 1 to {} steps, got {}", 1 << 20, rule.history)));
        }
        Ok(Delayed { format, rule, scale: 1.0, history: vec![0.0; rule.history] })
    }

    /// Returns the state with a saved scale and history.
    ///
    /// # Errors
    /// [`ErrorKind::Value`](precast_base::ErrorKind::Value) when the scale is not a positive finite number, or the history
    /// has another length.
    pub fn with_state(mut self, scale: f32, history: &[f32]) -> Result<Self> {
        check_scale(scale)?;
        if history.len() != self.history.len() {
            return Err(Error::value(format!(
                "expected a history of {} steps, got {}",
                self.history.len(),
                history.len()
            )));
        }
        self.scale = scale;
        self.history.copy_from_slice(history);
        Ok(self)
    }

    /// Returns the factor by which numbers are multiplied before they are rounded.
    pub fn scale(&self) -> f32 {
        self.scale
    }

    /// Returns the history; place 0 is that of the running step, and the last step is at the end.
    pub fn history(&self) -> &[f32] {
        &self.history
    }

    /// Ends a step in which the tensor had this amax. An amax that is infinite, NaN or 0 leaves the scale as it is; a NaN in
    /// the history is ignored.
    pub fn update(&mut self, amax: f32) {
        if self.rule.skip_unused && amax == 0.0 {
            return;
        }
        self.history[0] = amax;
        let used = match self.rule.amax {
            // `f32::max` ignores NaN.
            AmaxOf::Largest => self.history.iter().copied().fold(0.0, f32::max),
            AmaxOf::MostRecent => amax,
        };
        self.history.rotate_left(1);
        self.history[0] = 0.0;
        if used.is_finite() && used > 0.0 {
            let largest = f64::from(self.format.largest()) * 2f64.powi(-self.rule.margin);
            self.scale = (largest / f64::from(used)).clamp(f64::from(f32::from_bits(1)), f64::from(f32::MAX)) as f32;
        }
    }
}

/// Returns an error for a scale that is not a factor.
pub(crate) fn check_scale(scale: f32) -> Result<()> {
    match scale.is_finite() && scale > 0.0 {
        true => Ok(()),
        false => Err(Error::value(format!("a scale is positive and finite, got {scale}"))),
    }
}
