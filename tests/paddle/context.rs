//! `paddle.amp.auto_cast` itself: its arguments, what it says of wrong ones, nesting, and how it ends.

use precast::{Autocast, DType, Tensor, autocast, precision};
use serde::Deserialize;
use serde_json::Value;

use super::{
    names::dtype,
    ops::{ANYWHERE, HEEDED, region as paddle},
    tally::Tally,
};

/// The differences on purpose, as COMPARE.md names them.
const EXACT: &str = "names are exact";
const CHECKED: &str = "a region is checked also where it does nothing";
const BY_TYPE: &str = "what cannot be said need not be checked";
const NOTHING_LEFT: &str = "a region leaves nothing behind";
const O2_ALONE: &str = "`use_promote` is O2's";
const AGAIN: &str = "a region can be entered any number of times";

#[derive(Deserialize)]
struct Golden {
    #[serde(default)]
    cases: Vec<Case>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Case {
    case: String,
    result: Option<Value>,
    error: Option<String>,
    #[serde(rename = "message")]
    _message: Option<String>,
    #[serde(rename = "warnings", default)]
    _warnings: Vec<String>,
}

#[derive(Debug)]
enum Verdict {
    Agree,
    OnPurpose(&'static str),
    Outside,
}

const KEYWORDS: [&str; 6] = ["enable", "level", "dtype", "use_promote", "custom_white_list", "custom_black_list"];

/// A call as it is written in Python.
struct Call<'a>(Vec<(&'a str, &'a str)>);

impl<'a> Call<'a> {
    fn read(text: &'a str) -> Option<Self> {
        let inside = text.strip_prefix("auto_cast(")?.strip_suffix(')')?;
        let (mut depth, mut start, mut arguments) = (0, 0, vec![]);
        for (at, c) in inside.char_indices() {
            match c {
                '{' | '[' | '(' => depth += 1,
                '}' | ']' | ')' => depth -= 1,
                ',' if depth == 0 => {
                    arguments.push(&inside[start..at]);
                    start = at + 1;
                }
                _ => {}
            }
        }
        arguments.push(&inside[start..]);
        let pair = |argument: &'a str| argument.trim().split_once('=');
        let arguments = arguments.into_iter().filter(|argument| !argument.trim().is_empty());
        let call = Call(arguments.map(pair).collect::<Option<_>>()?);
        call.0.iter().all(|(key, _)| KEYWORDS.contains(key)).then_some(call)
    }

    fn get(&self, key: &str) -> Option<&'a str> {
        self.0.iter().find(|(name, _)| *name == key).map(|(_, value)| *value)
    }

    /// The names between quotes.
    fn names(&self, key: &str) -> Vec<&'a str> {
        self.get(key).map(|list| list.split('\'').skip(1).step_by(2).collect()).unwrap_or_default()
    }

    /// What has no counterpart: a level that is a number, a list that is a word or holds numbers.
    fn cannot_be_said(&self) -> bool {
        let no_list = |list: &str| list.starts_with('\'') || list.contains(char::is_numeric) && !list.contains('\'');
        self.get("level").is_some_and(|level| !level.starts_with('\''))
            || ["custom_white_list", "custom_black_list"].into_iter().filter_map(|key| self.get(key)).any(no_list)
    }

    fn region(&self) -> precast::Result<Autocast> {
        let mut region = paddle().enabled(self.get("enable") != Some("False"));
        if let Some(level) = self.names("level").first() {
            region = region.level(*level);
        }
        if let Some(dtype) = self.get("dtype") {
            // A word, or an object: 'bfloat16', paddle.bfloat16.
            region = region.dtype(dtype.trim_matches('\'').trim_start_matches("paddle.").parse()?);
        }
        if self.get("use_promote") == Some("False") {
            region = region.use_promote(false);
        }
        Ok(region.white(self.names("custom_white_list")).black(self.names("custom_black_list")))
    }
}

/// Level, whether anything is cast, and the low dtype; where nothing is cast Paddle says f16, and it means nothing.
fn state() -> (String, bool, DType) {
    match (precision::current(), precision::region()) {
        (Some(precision::Frame::Lists(rules)), Some(region)) => {
            (rules.name.trim_start_matches("paddle-3.3 ").to_string(), region.enabled, region.dtype)
        }
        _ => ("O0".into(), false, DType::F16),
    }
}

/// `["AmpLevel.O1", true, "float16"]`
fn stated(value: &Value) -> Option<(String, bool, DType)> {
    let level = value[0].as_str()?.trim_start_matches("AmpLevel.");
    Some((level.into(), value[1].as_bool()?, dtype(value[2].as_str()?)?))
}

/// `["O1", "bfloat16", false, 10, 53]`: level and dtype, which means nothing at O0; then the use of promotion and the lengths
/// of the lists.
fn nested(value: &Value) -> Option<(String, Option<DType>)> {
    let level = value[0].as_str()?.to_string();
    let dtype = dtype(value[1].as_str()?)?;
    let low = (level != "O0").then_some(dtype);
    Some((level, low))
}

fn here() -> (String, Option<DType>) {
    let (level, enabled, dtype) = state();
    (level, enabled.then_some(dtype))
}

fn region(level: &str, dtype: DType) -> Autocast {
    paddle().level(level).dtype(dtype)
}

/// The recorded script of nested regions, told by the names of its places.
fn nesting() -> Vec<(&'static str, (String, Option<DType>))> {
    let mut met = vec![("outside", here())];
    let exp_is_low = || Tensor::ones(&[2], DType::F32).exp().unwrap().dtype().is_low();
    let o1 = region("O1", DType::Bf16);
    autocast(&o1, || {
        met.push(("O1", here()));
        autocast(paddle().enabled(false), || {
            met.push(("O1>off", here()));
            autocast(region("O2", DType::F16).use_promote(false), || {
                met.push(("O1>off>O2np", here()));
                Ok(())
            })?;
            met.push(("O1>off (after)", here()));
            Ok(())
        })?;
        met.push(("O1 (after)", here()));
        autocast(region("OD", DType::Bf16).white(["exp"]), || {
            assert!(exp_is_low());
            met.push(("O1>OD+exp", here()));
            Ok(())
        })?;
        autocast(o1.clone().white(["exp"]), || {
            assert!(exp_is_low());
            autocast(&o1, || {
                assert!(!exp_is_low());
                met.push(("O1>O1 (custom lists not inherited)", here()));
                Ok(())
            })
        })?;
        let failed = autocast(region("O2", DType::F16), || Tensor::ones(&[2], DType::F32).reshape(&[3]));
        assert!(failed.is_err());
        met.push(("O1 after exception inside", here()));
        assert!(autocast(region("O3", DType::F16), || Ok(())).is_err());
        met.push(("O1 after ctor error", here()));
        Ok(())
    })
    .unwrap();
    met.push(("after", here()));
    met
}

impl Case {
    fn judge(&self) -> Result<Verdict, String> {
        let (place, what) = self.case.split_once(": ").unwrap_or(("", &self.case));
        match (place, what) {
            ("eager_cpu" | "pir", call) if call.starts_with("auto_cast(") => self.judge_call(place, Call::read(call)),
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
                let first = self.result.as_ref().and_then(|result| nested(&result[0])).ok_or("not understood")?;
                match twice == [first.clone(), first] {
                    true => Ok(Verdict::OnPurpose(AGAIN)),
                    false => Err(format!("ours {twice:?}")),
                }
            }
            ("pir", leak) if leak.starts_with("state left behind after the TypeError") => {
                let refused = autocast(paddle().white(["1"]), || Ok(()));
                match (refused.is_err(), precision::current()) {
                    (true, None) => Ok(Verdict::OnPurpose(NOTHING_LEFT)),
                    met => Err(format!("ours {met:?}")),
                }
            }
            // Which machine can do what is not asked here.
            _ if self.case.contains("float16_supported") => Ok(Verdict::Outside),
            _ => Err("not understood".into()),
        }
    }

    fn judge_call(&self, place: &str, call: Option<Call<'_>>) -> Result<Verdict, String> {
        let call = call.ok_or("not understood")?;
        if call.cannot_be_said() {
            return Ok(Verdict::OnPurpose(BY_TYPE));
        }
        let ours = call.region().and_then(|region| autocast(region, || Ok(state())));
        let (theirs, ours) = match (&self.result, ours) {
            (None, Err(_)) if self.error.is_some() => return Ok(Verdict::Agree),
            (Some(theirs), ours) => (stated(theirs).ok_or("not understood")?, ours),
            (None, ours) => return Err(format!("ours {ours:?}, theirs {:?}", self.error)),
        };
        match ours {
            Ok(ours) if ours == theirs => Ok(Verdict::Agree),
            // On a CPU Paddle warns and does nothing.
            Ok(ours) if place == "eager_cpu" && !theirs.1 && ours.1 => Ok(Verdict::OnPurpose(ANYWHERE)),
            Ok(ours) => Err(format!("ours {ours:?}, theirs {theirs:?}")),
            Err(error) => {
                let lower = |key| call.names(key).first().is_some_and(|name| name.to_uppercase() != *name);
                let upper = |key| call.names(key).first().is_some_and(|name| name.to_lowercase() != *name);
                let nothing_is_done = call.get("enable") == Some("False") || call.get("level") == Some("'O0'");
                match error.kind() {
                    precast::ErrorKind::Level if lower("level") => Ok(Verdict::OnPurpose(EXACT)),
                    precast::ErrorKind::Level if self.case.contains("use_promote") => Ok(Verdict::OnPurpose(O2_ALONE)),
                    precast::ErrorKind::DType if upper("dtype") => Ok(Verdict::OnPurpose(EXACT)),
                    _ if nothing_is_done => Ok(Verdict::OnPurpose(CHECKED)),
                    precast::ErrorKind::List if error.to_string().contains("no op is called") => {
                        Ok(Verdict::OnPurpose(HEEDED))
                    }
                    _ => Err(format!("ours {error}, theirs {theirs:?}")),
                }
            }
        }
    }

    fn judge_nesting(&self) -> Result<Verdict, String> {
        let theirs = self.result.as_ref().and_then(Value::as_object).ok_or("not understood")?;
        let ours = nesting();
        for (place, state) in theirs {
            // Paddle keeps the dtype of the last region for good, and its scaler reads it.
            if place == "amp_global dtype after (never restored)" {
                assert_eq!(precision::region(), None);
                continue;
            }
            let state = nested(state).ok_or("not understood")?;
            match ours.iter().find(|(name, _)| name == place) {
                Some((_, ours)) if *ours == state => {}
                ours => return Err(format!("at `{place}` ours {ours:?}, theirs {state:?}")),
            }
        }
        Ok(Verdict::Agree)
    }
}

#[test]
fn every_recorded_call() {
    let Some(golden) = crate::common::golden("paddle/context.json") else { return };
    let golden: Golden = serde_json::from_value(golden).expect("the file is as it was recorded");
    let mut tally = Tally::new("paddle", "context");
    let verbose = std::env::var_os("PRECAST_GOLDENS_VERBOSE").is_some_and(|v| v == "1");
    for case in &golden.cases {
        let verdict = case.judge();
        if verbose {
            println!("{}: {verdict:?}", case.case);
        }
        match verdict {
            Ok(Verdict::Agree) => tally.agree(),
            Ok(Verdict::OnPurpose(difference)) => tally.on_purpose(difference),
            Ok(Verdict::Outside) => tally.outside(1),
            Err(why) => tally.fail(format!("{}: {why}", case.case)),
        }
        assert_eq!(precision::current(), None, "{} leaves nothing", case.case);
    }
    tally.close();
}
