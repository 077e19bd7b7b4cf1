// Translation by an encoder and a decoder, in bf16: dates in words ("3 march 1997") become ISO dates ("1997-03-03").
//
// cargo run --release --example translate

use precast::prelude::*;

const PAD: i64 = 0;
const BEGIN: char = '^';
const END: char = '.';
const LONGEST: usize = 20; // characters of a text
const WIDTH: usize = 48;
const BATCH: usize = 64;
const STEPS: usize = 150;

#[derive(Cell, Debug)]
#[cell(new)]
struct Translator {
    characters: Child<Embedding>,
    positions: Child<Embedding>,
    encoder: Child<TransformerEncoder>,
    decoder: Child<TransformerDecoder>,
    head: Child<Dense>,
}

impl Forward for Translator {
    /// Maps two texts `[batch, length]` to logits `[batch, length, 128]` of the next character of the second.
    fn forward_many(&self, texts: &[Tensor]) -> Result<Vec<Tensor>> {
        let [source, target] = texts else { return Err(Error::shape("a translator takes two texts")) };
        let mask = source.ne(PAD)?.unsqueeze(1)?.unsqueeze(1)?; // [batch, heads, queries, keys]
        let memory = self.encoder.encode(&self.embed(source)?, Some(&mask))?;
        let y = self.decoder.decode(&self.embed(target)?, &memory, None, Some(&mask))?;
        Ok(vec![self.head.call(&y)?])
    }
}

impl Translator {
    fn embed(&self, text: &Tensor) -> Result<Tensor> {
        formula!(self.characters.call(text) + self.positions.call(&Tensor::arange(text.shape()[1])))
    }
}

fn main() -> Result<()> {
    let rng = &mut Rng::seed(1);
    let encoder = TransformerEncoderLayerSpec::new(WIDTH, 4).dim_feedforward(128).dropout(0.0);
    let decoder = TransformerDecoderLayerSpec::new(WIDTH, 4).dim_feedforward(128).dropout(0.0).causal(true);
    let mut net = Child::new(Translator::new(
        Embedding::new(128, WIDTH, rng),
        Embedding::new(LONGEST, WIDTH, rng),
        TransformerEncoderSpec::new(encoder, 2).build(rng)?,
        TransformerDecoderSpec::new(decoder, 2).build(rng)?,
        Dense::new(WIDTH, 128, rng),
    ));
    auto_mixed_precision(&mut net, Level::O2, DType::Bf16)?;
    let (mut optimizer, mut scale) = (AdamW::new(net.params(), 0.0), LossScale::none());

    net.set_train(true);
    for step in 0..STEPS {
        optimizer.set_lr(3e-3 * Schedule::Cosine.factor_after(50, step, STEPS));
        let (sources, targets): (Vec<String>, Vec<String>) = (0..BATCH).map(|_| date(rng)).unzip();
        let logits = translate(&net, &sources, &targets)?;
        let next = codes(targets.iter().map(|text| format!("{text}{END}")));
        let ignore_pads = CrossEntropy::default().ignore_index(PAD);
        let loss = logits.reshape(&[-1, 128])?.cross_entropy_with(&next.flatten(0)?, &ignore_pads)?;
        let _outcome = scale.step_clipped(&mut optimizer, loss, 1.0)?;
    }
    net.set_train(false);

    let (sources, targets): (Vec<String>, Vec<String>) = (0..200).map(|_| date(rng)).unzip();
    let mut written = vec![String::new(); sources.len()];
    for at in 0..10 {
        let logits = no_grad(|| translate(&net, &sources, &written))?;
        let best = logits.at(1, at)?.argmax(-1, false)?.to_vec::<i64>()?;
        written.iter_mut().zip(best).for_each(|(text, best)| text.push(best as u8 as char));
    }
    let right = written.iter().zip(&targets).filter(|(written, target)| written == target).count();
    println!("{} -> {} ({right} of {} dates are right)", sources[0], written[0], targets.len());
    Ok(())
}

fn translate(net: &Child<Translator>, sources: &[String], targets: &[String]) -> Result<Tensor> {
    let target = codes(targets.iter().map(|text| format!("{BEGIN}{text}")));
    Ok(net.call_many(&[codes(sources.iter().cloned()), target])?.remove(0))
}

/// Creates `[texts, longest]` of the codes of characters.
fn codes(texts: impl Iterator<Item = String>) -> Tensor {
    let codes: Vec<Vec<i64>> = texts.map(|text| text.bytes().map(i64::from).collect()).collect();
    Tensor::padded(&codes, PAD)
}

/// Draws a date, in words and in ISO form.
fn date(rng: &mut Rng) -> (String, String) {
    const MONTHS: [&str; 12] = [
        "january",
        "february",
        "march",
        "april",
        "may",
        "june",
        "july",
        "august",
        "september",
        "october",
        "november",
        "december",
    ];
    let (day, month, year) = (rng.integer(1, 29), rng.integer(0, 12), rng.integer(1900, 2100));
    (format!("{day} {} {year}", MONTHS[month as usize]), format!("{year}-{:02}-{day:02}", month + 1))
}
