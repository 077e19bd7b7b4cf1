//! `paddle.amp.auto_cast` itself: its arguments, errors for wrong ones, nesting, and exit.

use precast::{Autocast, DType, ErrorKind, Tensor, autocast, precision};
use serde::Deserialize;
use serde_json::Value;

use super::{call::Call, names::dtype, rule::Region};
use crate::{
    common::golden::golden,
    replay::{self, Judged, Verdict, each, replay},
};

const MACHINES: &str = "which machine can do what is not asked here";

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Case {
    case: String,
    result: Option<Value>,
    error: Option<String>,
    message: Option<String>,
    #[serde(rename = "warnings", default)]
    _warnings: Vec<String>,
}

/// Level, whether anything is cast, and the low dtype.
type State = (String, bool, DType);

/// Returns the state here; outside of regions nothing is cast.
fn state() -> State {
    match (precast::precision::current(), precision::region()) {
        (Some(precision::Frame::Lists(rules)), Some(region)) => {
            (rules.name.trim_start_matches("paddle-3.3 ").to_string(), region.enabled, region.dtype)
        }
        (_, Some(region)) => ("O0".into(), region.enabled, region.dtype),
        (_, None) => ("O0".into(), false, DType::F16),
    }
}

/// Returns the expected state of a region without faults.
fn demanded(region: &Region) -> State {
    let casts = region.enabled && region.level != "O0";
    (if casts { region.level.clone() } else { "O0".into() }, casts, region.low())
}

/// Returns the part of a state that matters: if nothing is cast the dtype does not.
fn meaning((level, casts, dtype): &State) -> (&str, Option<DType>) {
    (level, casts.then_some(*dtype))
}

/// Parses `["AmpLevel.O1", true, "float16"]`.
fn stated(value: &Value) -> Option<State> {
    let level = value[0].as_str()?.rsplit('.').next()?;
    Some((level.into(), value[1].as_bool()?, dtype(value[2].as_str()?)?))
}

/// Parses `["O1", "bfloat16", false, 10, 53]`: level and dtype, which is ignored at O0; then the use of promotion and
/// the lengths of the lists.
fn nested(value: &Value) -> Option<(String, Option<DType>)> {
    let level = value[0].as_str()?.rsplit('.').next()?.to_string();
    let dtype = dtype(value[1].as_str()?)?;
    let low = (level != "O0").then_some(dtype);
    Some((level, low))
}

fn here() -> (String, Option<DType>) {
    let (level, enabled, dtype) = state();
    (level, enabled.then_some(dtype))
}

fn region(level: &str, dtype: DType) -> Autocast {
    Region { level: level.into(), dtype: Some(dtype), ..Region::default() }.autocast()
}

/// Runs the recorded script of nested regions, and returns the state at each of its points, by name.
fn nesting() -> Vec<(&'static str, (String, Option<DType>))> {
    let mut met = vec![("outside", here())];
    let exp_is_low = || Tensor::ones(&[2], DType::F32).exp().unwrap().dtype().is_low();
    let o1 = region("O1", DType::Bf16);
    autocast(&o1, || {
        met.push(("O1", here()));
        autocast(o1.clone().enabled(false), || {
            met.push(("O1>off", here()));
            autocast(region("O2", DType::F16).use_promote(false), || {
                met.push(("O1>off>O2np", here()));
                Ok(())
            })?;
            met.push(("O1>off (after)", here()));
            Ok(())
        })?;
        met.push(("O1 (after)", here()));
        autocast(region("OD", DType::Bf16).low(["exp"]), || {
            assert!(exp_is_low());
            met.push(("O1>OD+exp", here()));
            Ok(())
        })?;
        autocast(o1.clone().low(["exp"]), || {
            assert!(exp_is_low());
            autocast(&o1, || {
                assert!(!exp_is_low());
                met.push(("O1>O1 (custom lists not inherited)", here()));
                Ok(())
            })
        })?;
        let failed = autocast(region("O2", DType::F16), || Tensor::ones(&[2], DType::F32).reshape(&[3]));
        assert_eq!(failed.unwrap_err().kind(), ErrorKind::Shape);
        met.push(("O1 after exception inside", here()));
        assert_eq!(autocast(region("O3", DType::F16), || Ok(())).unwrap_err().kind(), ErrorKind::Level);
        met.push(("O1 after ctor error", here()));
        Ok(())
    })
    .unwrap();
    met.push(("after", here()));
    met
}

impl Case {
    fn judge(&self) -> Judged {
        let (place, what) = self.case.split_once(": ").unwrap_or(("", &self.case));
        match (place, what) {
            ("eager_cpu" | "pir", call) if call.starts_with("auto_cast(") => self.judge_call(Call::read(call)),
            ("pir", "nesting state [level,dtype,use_promote,n_white,n_black]") => self.judge_nesting(),
            ("pir", "auto_cast as decorator (contextmanager generated)") => {
                let region = region("O1", DType::Bf16);
                let decorated = || autocast(&region, || Ok(here())).unwrap();
                let theirs = self.result.as_ref().and_then(Value::as_array).ok_or("not understood")?;
                let theirs: Vec<_> = theirs.iter().map(nested).collect::<Option<_>>().ok_or("not understood")?;
                let ours = vec![decorated(), decorated(), here()];
                if ours == theirs { Ok(Verdict::Agree) } else { Err(format!("ours {ours:?}, theirs {theirs:?}")) }
            }
            ("pir", "reuse of one context object") => {
                let region = region("O1", DType::Bf16);
                let twice = [0, 1].map(|_| autocast(&region, || Ok(here())).unwrap());
                let result = self.result.as_ref().ok_or("not understood")?;
                let first = nested(&result[0]).ok_or("not understood")?;
                let raised = result[1].as_str().is_some_and(|second| second.starts_with("AttributeError: "));
                match raised && twice == [first.clone(), first] {
                    true => Ok(Verdict::Differs),
                    false => Err(format!("ours {twice:?}")),
                }
            }
            ("pir", leak) if leak.starts_with("state left behind after the TypeError") => {
                let refused = autocast(region("O1", DType::F16).low(["1"]), || Ok(())).map_err(|error| error.kind());
                let left = self.result.as_ref().and_then(nested).ok_or("not understood")?;
                match (refused, precast::precision::current(), precision::region()) {
                    (Err(ErrorKind::List), None, None) if left.0 != "O0" => Ok(Verdict::Differs),
                    met => Err(format!("ours {met:?}")),
                }
            }
            _ if self.case.starts_with("is_float16_supported(") || self.case.starts_with("is_bfloat16_supported(") => {
                Ok(Verdict::NotCovered(MACHINES))
            }
            _ => Err("not understood".into()),
        }
    }

    /// Returns the kind of Paddle's error, in our terms.
    fn their_fault(&self) -> Option<ErrorKind> {
        let message = self.message.as_deref().unwrap_or_default();
        match self.error.as_deref()? {
            "ValueError" if message.starts_with("level should be") => Some(ErrorKind::Level),
            "ValueError" if message.contains("dtype should be") => Some(ErrorKind::DType),
            "ValueError" if message.starts_with("Custom white list overlap") => Some(ErrorKind::List),
            // A dtype without lists.
            "KeyError" => Some(ErrorKind::DType),
            _ => None,
        }
    }

    fn judge_call(&self, call: Option<Call<'_>>) -> Judged {
        let call = call.ok_or("not understood")?;
        let theirs = match (&self.result, &self.error) {
            (Some(state), None) => Ok(stated(state).ok_or("not understood")?),
            (None, Some(class)) => Err(class.as_str()),
            _ => return Err("not understood".into()),
        };
        if theirs == Err("AttributeError") && call.names_an_object() {
            return Ok(Verdict::Differs);
        }
        if call.has_no_form() {
            return Ok(Verdict::Differs);
        }
        let faults = call.faults();
        let ours = call.region().and_then(|region| Ok((autocast(region.autocast(), || Ok(state()))?, region)));
        // Whatever the difference, our result is the one required by our rule.
        let ours = match ours {
            Ok((ours, region)) if faults.is_empty() && ours == demanded(&region) => Some(ours),
            Err(error) if faults.contains(&error.kind()) => None,
            other => return Err(format!("ours {other:?}, by our rule wrong: {faults:?}")),
        };
        Ok(Verdict::of(match (&theirs, ours) {
            (Ok(theirs), Some(ours)) => meaning(theirs) == meaning(&ours),
            (Err(_), None) => self.their_fault().is_some_and(|kind| faults.contains(&kind)),
            // On a CPU Paddle's region does nothing; it takes names that are wrong here, and not our short ones.
            (Ok(_), None) | (Err(_), Some(_)) => false,
        }))
    }

    fn judge_nesting(&self) -> Judged {
        let theirs = self.result.as_ref().and_then(Value::as_object).ok_or("not understood")?;
        let ours = nesting();
        for (place, state) in theirs {
            // Paddle keeps the dtype of the last region permanently, and its scaler reads it.
            if place == "amp_global dtype after (never restored)" {
                if precision::region().is_some() || state.as_str().and_then(dtype).is_none_or(|left| left == DType::F32)
                {
                    return Err(format!("ours {:?}, theirs {state}", precision::region()));
                }
                continue;
            }
            let state = nested(state).ok_or("not understood")?;
            match ours.iter().find(|(name, _)| name == place) {
                Some((_, ours)) if *ours == state => {}
                ours => return Err(format!("at `{place}` ours {ours:?}, theirs {state:?}")),
            }
        }
        // The entry that Paddle keeps is named; the others are the same.
        Ok(Verdict::of(!theirs.contains_key("amp_global dtype after (never restored)")))
    }
}

/// Judges the calls in a file.
pub fn judge(golden: &Value) -> Vec<replay::Case> {
    each(golden, "cases", |case: Case| {
        let mut judged = case.judge();
        if (precast::precision::current(), precision::region()) != (None, None) {
            judged = Err("a region was left behind".into());
        }
        vec![(case.case, judged)]
    })
}

#[test]
fn every_recorded_call() {
    replay("paddle", "context", golden("paddle/context.json"), |recorded, tally| tally.count_all(judge(recorded)));
}
