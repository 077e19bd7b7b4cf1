//! Loss scale requested by a policy, as plain data.

use std::str::FromStr;

use precast_base::{DType, Error, Result, names::by_name};
use serde::{Deserialize, Serialize};

use super::Level;

/// Loss scale for training.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "lowercase", deny_unknown_fields)]
#[non_exhaustive]
pub enum LossScaleSpec {
    /// No loss scaling.
    None,
    /// Constant scale.
    Fixed {
        /// Scale, above 0.
        scale: f32,
    },
    /// Scale that adapts towards the largest one without overflow.
    Dynamic(DynamicScale),
}

/// Parameters of a dynamic loss scale.
///
/// ```
/// use precast_policy::policy::{DynamicScale, LossScaleSpec};
/// let spec = LossScaleSpec::Dynamic(DynamicScale::default().init(1024.0));
/// assert!(spec.check().is_ok());
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[non_exhaustive]
pub struct DynamicScale {
    /// Initial scale, from `min` to `max`. Default: 65536.
    pub init: f32,
    /// Growth factor after `interval` consecutive finite steps, at least 1. Default: 2.
    pub growth: f64,
    /// Shrink factor after non-finite steps, above 0 and at most 1. Default: 0.5.
    pub backoff: f64,
    /// Number of consecutive finite steps before the scale grows, at least 1. Default: 2000.
    pub interval: u32,
    /// Smallest scale, above 0. Default: 1.
    pub min: f32,
    /// Largest scale, at least `min`. Default: 16777216.
    pub max: f32,
    /// Number of non-finite steps before the scale shrinks, at least 1. Default: 1.
    pub hysteresis: u32,
    /// Event that resets the count of non-finite steps. Default: [`Forgive::Shrink`].
    pub forgive: Forgive,
}

/// Event after which a dynamic scale forgets the non-finite steps that have not shrunk it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum Forgive {
    /// A finite step or a shrink: every shrink takes `hysteresis` non-finite steps in a row. (Paddle.)
    #[default]
    Shrink,
    /// A finite step: once `hysteresis` non-finite steps in a row have shrunk the scale, each further one shrinks it.
    /// (DeepSpeed with `consecutive_hysteresis`.)
    Finite,
    /// Growth of the scale, after `interval` finite steps. (DeepSpeed.)
    Growth,
}

impl Forgive {
    const ALL: [Forgive; 3] = [Forgive::Shrink, Forgive::Finite, Forgive::Growth];

    /// Returns the name used in policy files.
    pub fn name(self) -> &'static str {
        match self {
            Forgive::Shrink => "shrink",
            Forgive::Finite => "finite",
            Forgive::Growth => "growth",
        }
    }
}

impl FromStr for Forgive {
    type Err = Error;
    fn from_str(name: &str) -> Result<Self> {
        by_name(name, Forgive::ALL, Forgive::name, "unknown word for `forgive`").map_err(Error::policy)
    }
}

type Preset = fn() -> DynamicScale;

/// Dynamic scales of other systems, by their names in policy files.
const PRESETS: [(&str, Preset); 6] = [
    ("torch", DynamicScale::torch),
    ("mindspore", DynamicScale::mindspore_manager),
    ("paddle", DynamicScale::paddle),
    ("paddle-amp-scaler", DynamicScale::paddle_amp_scaler),
    ("tensorflow", DynamicScale::tensorflow),
    ("deepspeed", DynamicScale::deepspeed),
];

impl DynamicScale {
    /// Returns the dynamic scale of another system: `torch`, `mindspore`, `paddle`, `paddle-amp-scaler`, `tensorflow`
    /// or `deepspeed`.
    ///
    /// # Errors
    /// [`ErrorKind::Value`](crate::ErrorKind::Value) for any other name.
    ///
    /// ```
    /// use precast_policy::policy::DynamicScale;
    /// assert_eq!(DynamicScale::named("deepspeed")?.interval, 1000);
    /// assert!(DynamicScale::named("pytorch").unwrap_err().to_string().contains("did you mean `torch`?"));
    /// # Ok::<(), precast_policy::Error>(())
    /// ```
    pub fn named(name: &str) -> Result<Self> {
        let (_, preset) =
            by_name(name, PRESETS, |(name, _)| name, "unknown preset of a loss scale").map_err(Error::value)?;
        Ok(preset())
    }

    /// Returns the scale of `torch.amp.GradScaler` in torch 2.15: starts at 65536, doubles after 2000 finite steps,
    /// halves after each non-finite one, limited only to normal float32 numbers.
    pub fn torch() -> Self {
        DynamicScale { min: f32::MIN_POSITIVE, max: f32::MAX, ..DynamicScale::default() }
    }

    /// Returns the scale of `mindspore.amp.DynamicLossScaler(scale, factor, window)` in MindSpore 2.10: at least 1.
    pub fn mindspore(scale: f32, factor: u32, window: u32) -> Self {
        let (growth, backoff) = (f64::from(factor), 1.0 / f64::from(factor));
        DynamicScale { init: scale, growth, backoff, interval: window, max: f32::MAX, ..DynamicScale::default() }
    }

    /// Returns the scale of `mindspore.amp.DynamicLossScaleManager` in MindSpore 2.10: starts at 2^24, doubles after
    /// 2000 finite steps, halves after each non-finite one, at least 1.
    pub fn mindspore_manager() -> Self {
        DynamicScale::mindspore(16_777_216.0, 2, 2000)
    }

    /// Returns the scale of `paddle.amp.GradScaler` in Paddle 3.3, the same as torch's. Its `decr_every_n_nan_or_inf`
    /// is [`hysteresis`](Self::hysteresis).
    pub fn paddle() -> Self {
        DynamicScale::torch()
    }

    /// Returns the scale of `paddle.amp.AmpScaler` in Paddle 3.3: like [`paddle`](DynamicScale::paddle), but starts at
    /// 32768 and doubles after 1000 finite steps.
    pub fn paddle_amp_scaler() -> Self {
        DynamicScale { init: 32768.0, interval: 1000, ..DynamicScale::paddle() }
    }

    /// Returns the scale of TensorFlow 2.21's `DynamicLossScale`: starts at 32768, doubles after 2000 finite steps,
    /// halves after each non-finite one, at least 1.
    pub fn tensorflow() -> Self {
        DynamicScale { init: 32768.0, max: f32::MAX, ..DynamicScale::default() }
    }

    /// Returns the scale of DeepSpeed's `fp16` section with its defaults: starts at 65536, doubles after 1000 finite
    /// steps, at least 1. The first non-finite step after growth is ignored, each further one halves the scale.
    /// (`loss_scale_window: 1000`, `hysteresis: 2`, `consecutive_hysteresis: false`,
    /// <https://www.deepspeed.ai/docs/config-json/>.)
    pub fn deepspeed() -> Self {
        let (hysteresis, forgive) = (2, Forgive::Growth);
        DynamicScale { interval: 1000, max: f32::MAX, hysteresis, forgive, ..DynamicScale::default() }
    }
}

precast_base::setters! {
    DynamicScale: init init: f32, growth growth: f64, backoff backoff: f64, interval interval: u32, min min: f32, max max: f32,
        hysteresis hysteresis: u32, forgive forgive: Forgive
}

impl Default for DynamicScale {
    fn default() -> Self {
        DynamicScale {
            init: 65536.0,
            growth: 2.0,
            backoff: 0.5,
            interval: 2000,
            min: 1.0,
            max: 16_777_216.0,
            hysteresis: 1,
            forgive: Forgive::Shrink,
        }
    }
}

impl LossScaleSpec {
    /// Returns the default loss scale of a policy: dynamic for f16, whose gradients underflow without it; none for
    /// bf16, which has the range of f32, and none at O0, where nothing is low.
    pub fn usual(level: Level, dtype: DType) -> Self {
        if level == Level::O0 { LossScaleSpec::None } else { LossScaleSpec::of_dtype(dtype) }
    }

    /// Returns the default loss scale where a dtype is used: dynamic for f16, none for others.
    pub fn of_dtype(dtype: DType) -> Self {
        match dtype {
            DType::F16 => LossScaleSpec::Dynamic(DynamicScale::default()),
            _ => LossScaleSpec::None,
        }
    }

    /// Checks every number.
    ///
    /// # Errors
    /// [`ErrorKind::Value`](crate::ErrorKind::Value) with the key, the number and the allowed range.
    pub fn check(&self) -> Result<()> {
        match self.fault() {
            None => Ok(()),
            Some((_, message)) => Err(Error::value(message)),
        }
    }

    /// Returns the first key whose number is not allowed, with a message. The file reader points at the key.
    pub(super) fn fault(&self) -> Option<(&'static str, String)> {
        let unless = |good: bool, key: &'static str, met: f64, allowed: &str| {
            (!good).then(|| (key, format!("the loss scale has `{key}: {met}`; allowed: {allowed}")))
        };
        // For subnormal scales, 1 / scale overflows.
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
                .or_else(|| unless(d.interval >= 1, "interval", d.interval.into(), "a whole number of at least 1"))
                .or_else(|| {
                    unless(d.hysteresis >= 1, "hysteresis", d.hysteresis.into(), "a whole number of at least 1")
                }),
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
            ("hysteresis", dynamic(|d| d.hysteresis = 0)),
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
