//! Outcomes of cases, and of the cases of a file.

use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::replay::Tally;

#[derive(Clone, Debug, PartialEq)]
pub enum Verdict {
    Agree,
    /// Differences, as named in COMPARE.md.
    OnPurpose(Vec<&'static str>),
    /// Reason for comparing nothing.
    NotCovered(&'static str),
}

impl Verdict {
    pub fn on_purpose(difference: &'static str) -> Self {
        Verdict::OnPurpose(vec![difference])
    }
}

/// Result of judging; `Err` is the reason why it fails or is not recognized.
pub type Judged = Result<Verdict, String>;

/// A case's name and its outcome.
pub type Case = (String, Judged);

/// Judges the cases under a key, each parsed separately: an unrecognized one fails alone.
pub fn each<T: DeserializeOwned>(golden: &Value, key: &str, judge: impl Fn(T) -> Vec<Case>) -> Vec<Case> {
    let cases = golden.get(key).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    let judged = |case: &Value| match serde_json::from_value(case.clone()) {
        Ok(read) => judge(read),
        Err(error) => vec![(case.to_string(), Err(format!("not understood: {error}")))],
    };
    cases.iter().flat_map(judged).collect()
}

/// Counts the cases of one file.
pub fn count(file: &str, cases: Vec<Case>) {
    let verbose = std::env::var_os("PRECAST_GOLDENS_VERBOSE").is_some_and(|v| v == "1");
    let mut tally = Tally::new("paddle", file);
    for (case, judged) in cases {
        if verbose {
            println!("{case}: {judged:?}");
        }
        match judged {
            Ok(Verdict::Agree) => tally.agree(case),
            Ok(Verdict::OnPurpose(differences)) => tally.on_purpose_for(case, &differences),
            Ok(Verdict::NotCovered(why)) => tally.not_covered(case, why),
            Err(why) => tally.fail(case, why),
        }
    }
    tally.close();
}
