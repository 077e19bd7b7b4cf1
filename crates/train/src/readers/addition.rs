//! Synthetic sums in digits: a task for language models with known answers.

use std::collections::HashSet;

use precast::{
    error::{Error, Result},
    options::{Options, options},
};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::{MOST_TOKENS, Vocabulary};
use crate::data::{Dataset, IGNORED, Inputs, Targets};

/// Sums such as `012+345=0357`, as indices of characters. An input is a sum without its last digit, and the target at
/// each position is the next character: [`IGNORED`] within the question, then the answer. No question occurs twice, so
/// the parts of a split are disjoint.
///
/// ```
/// use precast_train::data::{Addition, IGNORED};
/// let sums = Addition::new(1).read()?; // all hundred
/// assert_eq!((sums.len(), sums.shape(), sums.classes()), (100, &[5][..], 12));
/// let labels = &sums.labels()[..5];
/// assert_eq!(labels[..3], [IGNORED; 3]); // of `3+4=07`, the target is `07`
/// assert!(Addition::vocabulary().decode(&labels[3..])?.parse::<u32>().unwrap() <= 18);
/// # Ok::<(), precast::Error>(())
/// ```
#[options(written)]
#[derive(Clone, Debug, PartialEq)]
pub struct Addition {
    /// Number of digits of each operand.
    #[option(at_least = 1, at_most = 9)]
    pub digits: usize,
    /// Number of sums.
    #[option(default = None, shown = "10,000, or all of them if there are fewer", at_least = 1)]
    pub examples: Option<usize>,
    /// Seed for drawing the sums.
    #[option(default = 0)]
    pub seed: u64,
}

impl Addition {
    /// Returns the vocabulary: the ten digits, the plus and the equals sign.
    pub fn vocabulary() -> Vocabulary {
        Vocabulary::Chars("0123456789+=".into())
    }

    /// Generates the sums, in an order determined by the seed.
    ///
    /// # Errors
    /// [`ErrorKind::Value`](precast::ErrorKind::Value) for a number of digits outside 1 to 9, and for a number of
    /// examples that is zero, exceeds the number of sums, or yields more than 2^27 characters.
    pub fn read(&self) -> Result<Dataset> {
        self.check()?;
        let (digits, numbers) = (self.digits, 10u64.pow(self.digits as u32));
        // `aa+bb=cc`, where the answer has one more digit.
        let length = 3 * digits + 2;
        let sums = numbers * numbers;
        let most = sums.min((MOST_TOKENS / length) as u64);
        let examples = self.examples.map_or(most.min(USUAL), |examples| examples as u64);
        if examples > most {
            return Err(Error::value(format!("{examples} sums of numbers with {digits} digits; allowed: 1 to {most}")));
        }
        let mut rng = ChaCha8Rng::seed_from_u64(self.seed);
        let mut drawn = HashSet::new();
        let (mut inputs, mut targets) = (Vec::new(), Vec::new());
        while (drawn.len() as u64) < examples {
            let sum = rng.random_range(0..sums);
            if !drawn.insert(sum) {
                continue;
            }
            let (a, b) = (sum / numbers, sum % numbers);
            let text = format!("{a:0digits$}+{b:0digits$}={:0answer$}", a + b, answer = digits + 1);
            let tokens = Addition::vocabulary().encode(&text)?;
            let question = 2 * digits + 1;
            inputs.extend(&tokens[..length]);
            targets.extend([IGNORED].repeat(question));
            targets.extend(&tokens[question + 1..]);
        }
        let targets = Targets::Classes { shape: vec![length], values: targets };
        let names = Addition::vocabulary().tokens();
        Dataset::of(Inputs::Indices(inputs), &[length], targets)?.with_class_names(names)
    }
}

/// Default number of sums.
const USUAL: u64 = 10_000;
