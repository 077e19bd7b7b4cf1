//! Which loss scale a policy asks for, as plain data.

use serde::{Deserialize, Serialize};

use super::Level;
use crate::{
    DType,
    error::{Error, Result},
};

/// Which loss scale to train with.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "lowercase", deny_unknown_fields)]
pub enum LossScaleSpec {
    /// The loss is not scaled.
    None,
    /// One scale for the whole training.
    Fixed {
        /// The scale, above 0.
        scale: f32,
    },
    /// A scale that looks for the largest that does not overflow.
    Dynamic(DynamicScale),
}

/// Numbers of a dynamic loss scale.
///
/// ```
/// use precast::policy::{DynamicScale, LossScaleSpec};
/// let spec = LossScaleSpec::Dynamic(DynamicScale { init: 1024.0, ..DynamicScale::default() });
/// assert!(spec.check().is_ok());
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct DynamicScale {
    /// The first scale, from `min` to `max`; 65536.
    pub init: f32,
    /// Factor after `interval` finite steps in a row, at least 1; 2.
    pub growth: f64,
    /// Factor after a step that was not finite, above 0 and at most 1; 0.5.
    pub backoff: f64,
    /// How many finite steps in a row let the scale grow, at least 1; 2000.
    pub interval: u32,
    /// The least scale, above 0; 1.
    pub min: f32,
    /// The largest scale, at least `min`; 16777216.
    pub max: f32,
}

impl Default for DynamicScale {
    fn default() -> Self {
        DynamicScale { init: 65536.0, growth: 2.0, backoff: 0.5, interval: 2000, min: 1.0, max: 16_777_216.0 }
    }
}

impl LossScaleSpec {
    /// What a policy gets that does not say: dynamic for f16, whose gradients underflow without it; none for bf16, which
    /// has the range of f32, and none at O0, where nothing is low.
    pub fn usual(level: Level, dtype: DType) -> Self {
        match (level, dtype) {
            (Level::O0, _) => LossScaleSpec::None,
            (_, DType::F16) => LossScaleSpec::Dynamic(DynamicScale::default()),
            _ => LossScaleSpec::None,
        }
    }

    /// Checks every number.
    ///
    /// # Errors
    /// [`ErrorKind::Value`](crate::ErrorKind::Value) with the key, the number and what is allowed.
    pub fn check(&self) -> Result<()> {
        match self.fault() {
            None => Ok(()),
            Some((_, message)) => Err(Error::value(message)),
        }
    }

    /// The first key whose number is not allowed, with the message; a reader of files points at the key.
    pub(super) fn fault(&self) -> Option<(&'static str, String)> {
        let unless = |good: bool, key: &'static str, met: f64, allowed: &str| {
            (!good).then(|| (key, format!("the loss scale has `{key}: {met}`; allowed: {allowed}")))
        };
        // Below the normal numbers 1 / scale overflows.
        let scale = |key, met: f32| unless(met.is_normal() && met > 0.0, key, met.into(), "a positive finite float32");
        match self {
            LossScaleSpec::None => None,
            LossScaleSpec::Fixed { scale: met } => scale("scale", *met),
            LossScaleSpec::Dynamic(d) => scale("min", d.min)
                .or_else(|| scale("max", d.max))
                .or_else(|| unless(d.min <= d.max, "max", d.max.into(), &format!("at least `min: {}`", d.min)))
                .or_else(|| {
                    let allowed = format!("from `min: {}` to `max: {}`", d.min, d.max);
                    unless((d.min..=d.max).contains(&d.init), "init", d.init.into(), &allowed)
                })
                .or_else(|| unless(d.growth.is_finite() && d.growth >= 1.0, "growth", d.growth, "finite, at least 1"))
                .or_else(|| unless(d.backoff > 0.0 && d.backoff <= 1.0, "backoff", d.backoff, "above 0, at most 1"))
                .or_else(|| unless(d.interval >= 1, "interval", d.interval.into(), "a whole number of at least 1")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_number_is_checked_and_named() {
        let dynamic = |change: fn(&mut DynamicScale)| {
            let mut d = DynamicScale::default();
            change(&mut d);
            LossScaleSpec::Dynamic(d)
        };
        let bad = [
            ("scale", LossScaleSpec::Fixed { scale: 0.0 }),
            ("scale", LossScaleSpec::Fixed { scale: f32::INFINITY }),
            ("scale", LossScaleSpec::Fixed { scale: -8.0 }),
            ("scale", LossScaleSpec::Fixed { scale: 1e-40 }),
            ("init", dynamic(|d| d.init = 0.5)),
            ("init", dynamic(|d| d.init = f32::NAN)),
            ("growth", dynamic(|d| d.growth = 0.9)),
            ("growth", dynamic(|d| d.growth = f64::INFINITY)),
            ("backoff", dynamic(|d| d.backoff = 1.5)),
            ("backoff", dynamic(|d| d.backoff = f64::NAN)),
            ("interval", dynamic(|d| d.interval = 0)),
            ("min", dynamic(|d| d.min = 0.0)),
            ("max", dynamic(|d| (d.min, d.max) = (8.0, 4.0))),
            ("max", dynamic(|d| d.max = f32::INFINITY)),
        ];
        for (key, spec) in bad {
            let message = spec.check().unwrap_err().to_string();
            assert!(message.contains(&format!("`{key}: ")), "{message}");
        }
        assert!(dynamic(|_| {}).check().is_ok());
        assert!(LossScaleSpec::Fixed { scale: 0.25 }.check().is_ok());
    }
}
