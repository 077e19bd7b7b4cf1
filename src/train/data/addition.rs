//! Sums in digits, made up: a task for language models whose answers are known.

use serde::{Deserialize, Serialize};

use super::{Dataset, Vocabulary};
use crate::error::{Error, Result};

/// Sums such as `12+345=0357` as indices of characters. The targets are the characters of the answer; before it they are
/// `IGNORED`. No question occurs twice, so the two parts of a split have none in common.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Addition {
    /// Digits of each of the two numbers.
    pub digits: usize,
    /// How many sums; 10,000, or all of them where there are fewer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub examples: Option<usize>,
    /// Seed of the sums that are drawn; 0.
    #[serde(default)]
    pub seed: u64,
}

impl Addition {
    /// Sums of two numbers of so many digits.
    pub fn new(digits: usize) -> Self {
        Addition { digits, examples: None, seed: 0 }
    }

    /// Sets [`examples`](Addition::examples).
    pub fn examples(self, examples: usize) -> Self {
        Addition { examples: Some(examples), ..self }
    }

    /// Sets [`seed`](Addition::seed).
    pub fn seed(self, seed: u64) -> Self {
        Addition { seed, ..self }
    }

    /// The ten digits, the plus and the equals sign.
    pub fn vocabulary() -> Vocabulary {
        Vocabulary::Chars("0123456789+=".into())
    }

    /// The sums.
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`](crate::ErrorKind::Unsupported): not written yet.
    pub fn read(&self) -> Result<Dataset> {
        Err(Error::unsupported("the sums are not written yet"))
    }
}
