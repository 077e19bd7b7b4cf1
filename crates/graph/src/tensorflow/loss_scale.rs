//! Loss scales in the forms accepted by TensorFlow.

use precast::{
    LossScale,
    error::{Error, Result},
    policy::{DynamicScale, LossScaleSpec},
};
use precast_base::names::did_you_mean;

/// A loss scale in the form accepted by TensorFlow's graph rewrite: a word, a number, or a [`LossScale`].
///
/// | given | loss scale |
/// | --- | --- |
/// | `"dynamic"` | TensorFlow's: starts at 32768, doubles after 2000 finite steps, halves after a non-finite one, at least 1 |
/// | `"none"` | none; specific to precast, since TensorFlow refuses `None` |
/// | a number of at least 1 | fixed |
/// | a [`LossScale`] or a [`LossScaleSpec`] | itself |
///
/// ```
/// use precast::{LossScale, Result};
/// use precast_graph::tensorflow::IntoLossScale;
/// fn scale_of(given: impl IntoLossScale) -> Result<f32> {
///     Ok(given.into_loss_scale()?.value())
/// }
/// assert_eq!(scale_of("dynamic")?, 32768.0);
/// assert_eq!(scale_of(128.0)?, 128.0);
/// assert_eq!(scale_of(LossScale::none())?, 1.0);
/// assert!(scale_of("dynamik").unwrap_err().to_string().contains("did you mean `dynamic`?"));
/// assert!(scale_of(0.5).is_err());
/// # Ok::<(), precast::Error>(())
/// ```
pub trait IntoLossScale {
    /// Converts the value to a loss scale.
    ///
    /// # Errors
    /// [`ErrorKind::Value`](precast::ErrorKind::Value) for any other word, and for a number below 1 or not finite in
    /// float32.
    fn into_loss_scale(self) -> Result<LossScale>;
}

impl IntoLossScale for LossScale {
    fn into_loss_scale(self) -> Result<LossScale> {
        Ok(self)
    }
}

impl IntoLossScale for LossScaleSpec {
    fn into_loss_scale(self) -> Result<LossScale> {
        LossScale::new(self)
    }
}

impl IntoLossScale for &str {
    fn into_loss_scale(self) -> Result<LossScale> {
        match self {
            "dynamic" => LossScale::new(LossScaleSpec::Dynamic(DynamicScale::tensorflow())),
            "none" => Ok(LossScale::none()),
            number if number.parse::<f64>().is_ok() => Err(Error::value(format!(
                "the loss scale is the text \"{number}\"; write a number without quotes: {number}"
            ))),
            other => {
                let near = did_you_mean(other, ["dynamic", "none"]);
                Err(Error::value(format!(
                    "unknown loss scale `{other}`{near}; allowed: dynamic, none, a number of at least 1, a `LossScale`"
                )))
            }
        }
    }
}

macro_rules! numbers {
    ($($number:ty)*) => { $(
        impl IntoLossScale for $number {
            fn into_loss_scale(self) -> Result<LossScale> {
                fixed(self.into())
            }
        }
    )* };
}

// The types of a literal with and without a decimal point, and f32.
numbers! { f64 f32 i32 }

fn fixed(number: f64) -> Result<LossScale> {
    let scale = number as f32;
    if number >= 1.0 && scale.is_finite() {
        return LossScale::fixed(scale);
    }
    Err(Error::value(format!("a loss scale of {number}; allowed: at least 1, and finite in float32")))
}
