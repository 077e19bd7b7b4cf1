//! Text that a trained language model writes.

use precast::{
    DType, Tensor,
    error::{Error, Result},
    layers::Rng,
    no_grad,
};

use crate::{Predictor, data::Source};

/// Options of [`Predictor::generate`].
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Generate {
    /// Number of tokens to write. Default: 200.
    pub tokens: usize,
    /// Divisor of the logits, of at least 0: below 1, likely tokens become likelier, and 0 takes the likeliest. Default: 1.
    pub temperature: f64,
    /// Seed of the draws. Default: 0.
    pub seed: u64,
}

impl Default for Generate {
    fn default() -> Self {
        Generate { tokens: 200, temperature: 1.0, seed: 0 }
    }
}

impl Predictor {
    /// Continues a text token by token, each drawn from the probabilities that the network gives after the tokens before, of
    /// which it reads as many as an example of the run has. Returns what follows the prompt.
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`](precast::ErrorKind::Unsupported) for a run whose data is not a text,
    /// [`ErrorKind::Data`](precast::ErrorKind::Data) for an empty prompt, and one with a character that the vocabulary of the
    /// run does not have, [`ErrorKind::Value`](precast::ErrorKind::Value) for a temperature below 0 and outputs that are not
    /// finite, and the errors of the network.
    pub fn generate(&self, prompt: &str, options: &Generate) -> Result<String> {
        let data = self.data();
        let (Source::Text(text), Some(vocabulary)) = (data, data.vocabulary()) else {
            return Err(Error::unsupported("the data of the run is not a text, which alone can be continued"));
        };
        if !(options.temperature >= 0.0 && options.temperature.is_finite()) {
            return Err(Error::value(format!("a temperature of {}; allowed: 0 and above", options.temperature)));
        }
        let mut tokens = vocabulary.encode(prompt).map_err(|error| error.context("the prompt"))?;
        let begin = tokens.len();
        if begin == 0 {
            return Err(Error::data("the prompt is empty; one token at least is needed to continue from"));
        }
        let rng = &mut Rng::seed(options.seed);
        for _ in 0..options.tokens {
            let window = &tokens[tokens.len().saturating_sub(text.length)..];
            let x = Tensor::from_vec(window.to_vec(), &[1, window.len()])?;
            let outputs = no_grad(|| self.net().call(&x)).map_err(|error| match window.len() < text.length {
                true => error.context(format_args!(
                    "{} tokens, and the network was trained with {}; a longer prompt may be needed",
                    window.len(),
                    text.length
                )),
                false => error,
            })?;
            let classes = vocabulary.size();
            let logits = outputs.cast(DType::F32).to_f64();
            // A network may have more outputs than there are tokens, which are never drawn.
            let each = outputs.shape().last().copied().unwrap_or(0);
            if logits.len() != window.len() * each || each < classes {
                let met = outputs.shape();
                return Err(Error::shape(format!(
                    "outputs of shape {met:?}; allowed: {classes} for each token, or more"
                )));
            }
            tokens.push(drawn(&logits[logits.len() - each..][..classes], options.temperature, rng)?);
        }
        vocabulary.decode(&tokens[begin..])
    }
}

/// Draws an index by the softmax of logits that are divided by the temperature.
fn drawn(logits: &[f64], temperature: f64, rng: &mut Rng) -> Result<i64> {
    if logits.iter().any(|logit| logit.is_nan()) || logits.iter().all(|logit| logit.is_infinite()) {
        return Err(Error::value("the outputs of the network are not finite"));
    }
    let largest = logits.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    if temperature == 0.0 {
        // The first of equal ones.
        return Ok(logits.iter().position(|logit| *logit == largest).unwrap_or_default() as i64);
    }
    let weights = logits.iter().map(|logit| match largest.is_infinite() {
        true => f64::from(u8::from(*logit == largest)),
        false => ((logit - largest) / temperature).exp(),
    });
    let weights = Tensor::from_vec(weights.collect::<Vec<f64>>(), &[logits.len()])?;
    Ok(weights.multinomial(1, true, rng)?.to_vec::<i64>()?[0])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_are_drawn_by_their_probabilities() {
        let rng = &mut Rng::seed(1);
        let logits = [0.0, 3f64.ln(), f64::NEG_INFINITY];
        let count = |temperature, rng: &mut Rng| {
            let mut counts = [0; 3];
            (0..4000).for_each(|_| counts[drawn(&logits, temperature, rng).unwrap() as usize] += 1);
            counts.map(|count| f64::from(count) / 4000.0)
        };
        // 1 : 3, and at half the temperature 1 : 9; a deviation is 0.007.
        let [first, second, never] = count(1.0, rng);
        assert!((first - 0.25).abs() < 0.03 && (second - 0.75).abs() < 0.03 && never == 0.0, "{first} {second}");
        let [first, ..] = count(0.5, rng);
        assert!((first - 0.1).abs() < 0.02, "{first}");
        assert_eq!(count(0.0, rng), [0.0, 1.0, 0.0]);
        assert!(drawn(&[f64::NAN, 1.0], 1.0, rng).is_err() && drawn(&[f64::INFINITY; 2], 1.0, rng).is_err());
    }
}
