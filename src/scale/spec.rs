//! What a loss scale is made from: plain data, as it stands in a policy file.

use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};

/// Which loss scale to use.
///
/// Written as `{ kind: none }`, `{ kind: fixed, scale: 1024 }`, or
/// `{ kind: dynamic, init: 65536, growth: 2, backoff: 0.5, interval: 2000, min: 1, max: 16777216 }`, where every number
/// of the last may be left out. Reading checks the numbers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "Written", into = "Written")]
pub enum ScaleSpec {
    /// No scaling.
    None,
    /// One scale for the whole training.
    Fixed(f32),
    /// A scale that looks for the largest that does not overflow.
    Dynamic(Dynamic),
}

/// Numbers of the dynamic loss scale.
#[derive(Clone, Debug, PartialEq)]
pub struct Dynamic {
    /// The first scale, from `min` to `max`.
    pub init: f32,
    /// Factor after `interval` finite steps, at least 1.
    pub growth: f64,
    /// Factor after a step that was not finite, above 0 and at most 1.
    pub backoff: f64,
    /// How many finite steps in a row let the scale grow, at least 1.
    pub interval: u32,
    /// The least scale, at least 1.
    pub min: f32,
    /// The largest scale, finite, at least `min`. Growth that would exceed it is not done.
    pub max: f32,
}

impl Default for Dynamic {
    fn default() -> Self {
        Dynamic { init: 65536.0, growth: 2.0, backoff: 0.5, interval: 2000, min: 1.0, max: 16_777_216.0 }
    }
}

impl ScaleSpec {
    /// Checks every number.
    ///
    /// # Errors
    /// [`ErrorKind::Value`](crate::ErrorKind::Value) with the name, the number and what is allowed.
    pub fn check(&self) -> Result<()> {
        let require = |name: &str, value: f64, allowed: bool, range: &str| match value.is_finite() && allowed {
            true => Ok(()),
            false => Err(Error::value(format!("loss_scale: `{name}` is {value}; allowed: {range}"))),
        };
        match self {
            ScaleSpec::None => Ok(()),
            ScaleSpec::Fixed(scale) => require("scale", f64::from(*scale), *scale >= 1.0, "finite, at least 1"),
            ScaleSpec::Dynamic(d) => {
                require("min", f64::from(d.min), d.min >= 1.0, "finite, at least 1")?;
                require("max", f64::from(d.max), d.max >= d.min, &format!("finite, at least `min` ({})", d.min))?;
                let between = format!("from `min` ({}) to `max` ({})", d.min, d.max);
                require("init", f64::from(d.init), (d.min..=d.max).contains(&d.init), &between)?;
                require("growth", d.growth, d.growth >= 1.0, "finite, at least 1")?;
                require("backoff", d.backoff, d.backoff > 0.0 && d.backoff <= 1.0, "above 0, at most 1")?;
                require("interval", f64::from(d.interval), d.interval >= 1, "an integer of at least 1")
            }
        }
    }
}

/// The three kinds, flat: serde's tagged enums would lose the position of an error in the file.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    kind: Kind,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    scale: Option<f32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    init: Option<f32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    growth: Option<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    backoff: Option<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    interval: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    min: Option<f32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    max: Option<f32>,
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Kind {
    None,
    Fixed,
    Dynamic,
}

impl TryFrom<Written> for ScaleSpec {
    type Error = Error;

    fn try_from(written: Written) -> Result<Self> {
        let Written { kind, scale, init, growth, backoff, interval, min, max } = written;
        let dynamic_only = [
            ("init", init.is_some()),
            ("growth", growth.is_some()),
            ("backoff", backoff.is_some()),
            ("interval", interval.is_some()),
            ("min", min.is_some()),
            ("max", max.is_some()),
        ];
        let stray = match kind {
            Kind::Dynamic => scale.map(|_| ("scale", "init, growth, backoff, interval, min, max")),
            Kind::Fixed => dynamic_only.iter().find(|(_, met)| *met).map(|(name, _)| (*name, "scale")),
            Kind::None => {
                let mut all = std::iter::once(("scale", scale.is_some())).chain(dynamic_only);
                all.find(|(_, met)| *met).map(|(name, _)| (name, "nothing more"))
            }
        };
        if let Some((name, allowed)) = stray {
            let kind = format!("{kind:?}").to_lowercase();
            return Err(Error::value(format!(
                "loss_scale: `{name}` means nothing for kind {kind}; allowed: {allowed}"
            )));
        }
        let spec = match kind {
            Kind::None => ScaleSpec::None,
            Kind::Fixed => ScaleSpec::Fixed(
                scale.ok_or_else(|| Error::value("loss_scale: kind fixed needs `scale`, a number of at least 1"))?,
            ),
            Kind::Dynamic => {
                let d = Dynamic::default();
                ScaleSpec::Dynamic(Dynamic {
                    init: init.unwrap_or(d.init),
                    growth: growth.unwrap_or(d.growth),
                    backoff: backoff.unwrap_or(d.backoff),
                    interval: interval.unwrap_or(d.interval),
                    min: min.unwrap_or(d.min),
                    max: max.unwrap_or(d.max),
                })
            }
        };
        spec.check()?;
        Ok(spec)
    }
}

impl From<ScaleSpec> for Written {
    fn from(spec: ScaleSpec) -> Self {
        let empty = |kind| Written {
            kind,
            scale: None,
            init: None,
            growth: None,
            backoff: None,
            interval: None,
            min: None,
            max: None,
        };
        match spec {
            ScaleSpec::None => empty(Kind::None),
            ScaleSpec::Fixed(scale) => Written { scale: Some(scale), ..empty(Kind::Fixed) },
            ScaleSpec::Dynamic(d) => Written {
                init: Some(d.init),
                growth: Some(d.growth),
                backoff: Some(d.backoff),
                interval: Some(d.interval),
                min: Some(d.min),
                max: Some(d.max),
                ..empty(Kind::Dynamic)
            },
        }
    }
}
