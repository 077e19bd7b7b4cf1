//! Loss scale in version 1 of policy files.

use precast_base::{
    Error, Result,
    document::{At, Source, placeless},
    names::did_you_mean,
};
use serde::{Deserialize, Serialize};

use super::super::{DynamicScale, LossScaleSpec};

/// All kinds of loss scale in one struct, because serde's tagged enums lose source positions.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct LossScaleV1 {
    kind: At<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    preset: Option<At<String>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    scale: Option<At<f32>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    init: Option<At<f32>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    growth: Option<At<f64>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    backoff: Option<At<f64>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    interval: Option<At<u32>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    min: Option<At<f32>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    max: Option<At<f32>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    hysteresis: Option<At<u32>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    forgive: Option<At<String>>,
}

/// Converts a written loss scale into its specification.
pub(super) fn read(written: At<LossScaleV1>, source: &Source<'_>) -> Result<LossScaleSpec> {
    let LossScaleV1 { kind, preset, scale, init, growth, backoff, interval, min, max, hysteresis, forgive } =
        written.value;
    let place = |number: &Option<At<f32>>| number.as_ref().map(|number| number.place);
    let wide = |number: &Option<At<f64>>| number.as_ref().map(|number| number.place);
    let word = |word: &Option<At<String>>| word.as_ref().map(|word| word.place);
    let count = |count: &Option<At<u32>>| count.as_ref().map(|count| count.place);
    let given = [
        ("preset", word(&preset)),
        ("scale", place(&scale)),
        ("init", place(&init)),
        ("growth", wide(&growth)),
        ("backoff", wide(&backoff)),
        ("interval", count(&interval)),
        ("min", place(&min)),
        ("max", place(&max)),
        ("hysteresis", count(&hysteresis)),
        ("forgive", word(&forgive)),
    ];
    let allowed: &[&str] = match kind.value.as_str() {
        "none" => &[],
        "fixed" => &["scale"],
        "dynamic" => &["preset", "init", "growth", "backoff", "interval", "min", "max", "hysteresis", "forgive"],
        other => {
            let near = did_you_mean(other, ["none", "fixed", "dynamic"]);
            let words = format!("unknown kind of loss scale `{other}`{near}; allowed: none, fixed, dynamic");
            return Err(source.error(kind.place, Error::policy(words)));
        }
    };
    for (key, place) in given {
        if let Some(place) = place.filter(|_| !allowed.contains(&key)) {
            let others = if allowed.is_empty() { "no other key".to_string() } else { allowed.join(", ") };
            let words = format!("`{key}` does not apply to `kind: {}`; allowed: {others}", kind.value);
            return Err(source.error(place, Error::policy(words)));
        }
    }
    let spec = match (kind.value.as_str(), scale) {
        ("none", _) => LossScaleSpec::None,
        ("fixed", Some(scale)) => LossScaleSpec::Fixed { scale: scale.value },
        ("fixed", None) => {
            return Err(source.error(written.place, Error::policy("`kind: fixed` needs the key `scale`")));
        }
        _ => {
            let usual = match &preset {
                None => DynamicScale::default(),
                Some(name) => DynamicScale::named(&name.value).map_err(|error| source.error(name.place, error))?,
            };
            let forgive = match forgive {
                None => usual.forgive,
                Some(word) => word.value.parse().map_err(|error| source.error(word.place, error))?,
            };
            LossScaleSpec::Dynamic(DynamicScale {
                init: init.map_or(usual.init, |number| number.value),
                growth: growth.map_or(usual.growth, |number| number.value),
                backoff: backoff.map_or(usual.backoff, |number| number.value),
                interval: interval.map_or(usual.interval, |number| number.value),
                min: min.map_or(usual.min, |number| number.value),
                max: max.map_or(usual.max, |number| number.value),
                hysteresis: hysteresis.map_or(usual.hysteresis, |number| number.value),
                forgive,
            })
        }
    };
    match spec.fault() {
        None => Ok(spec),
        Some((key, words)) => {
            let place = given.into_iter().find(|(name, _)| *name == key).and_then(|(_, place)| place);
            Err(source.error(place.unwrap_or(written.place), Error::value(words)))
        }
    }
}

/// Converts a specification into its written form.
pub(super) fn written(spec: &LossScaleSpec) -> LossScaleV1 {
    let of_kind = |kind: &str| LossScaleV1 {
        kind: placeless(kind.to_string()),
        preset: None,
        scale: None,
        init: None,
        growth: None,
        backoff: None,
        interval: None,
        min: None,
        max: None,
        hysteresis: None,
        forgive: None,
    };
    match spec {
        LossScaleSpec::None => of_kind("none"),
        LossScaleSpec::Fixed { scale } => LossScaleV1 { scale: Some(placeless(*scale)), ..of_kind("fixed") },
        LossScaleSpec::Dynamic(d) => LossScaleV1 {
            init: Some(placeless(d.init)),
            growth: Some(placeless(d.growth)),
            backoff: Some(placeless(d.backoff)),
            interval: Some(placeless(d.interval)),
            min: Some(placeless(d.min)),
            max: Some(placeless(d.max)),
            hysteresis: Some(placeless(d.hysteresis)),
            forgive: Some(placeless(d.forgive.name().to_string())),
            ..of_kind("dynamic")
        },
    }
}
