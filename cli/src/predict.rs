//! `precast predict`: predictions of a trained network for new examples.

use std::{fmt::Write as _, path::PathBuf};

use precast_policy::files;
use precast_train::{
    Prediction, Predictor, RunFile,
    data::{Column, Source},
};

use super::{
    Cli, Failure, Result,
    outputs::Output,
    print, print_as_it_is,
    run::{model, say_line},
};

/// Predict with the best weights of a run
#[derive(Debug, clap::Args)]
#[command(after_help = "\
The examples are read as those of the run were: a CSV with the same columns (those of the targets may be missing), an image or a
folder of images, an array, a text. The output is CSV with a line for each example: the class and its probability, or the
numbers. With --score it is how well the network does on examples whose targets are known: images in a folder for each class,
rows with their targets.

Examples:
  precast predict runs/o2 new.csv
  precast predict runs/o2 new.csv --output predictions.csv
  precast predict runs/o2 photos --score                   photos/CLASS/NAME.png")]
pub(super) struct Args {
    /// The folder of a run
    run: PathBuf,
    /// The examples
    #[arg(value_name = "FILE")]
    examples: PathBuf,
    #[command(flatten)]
    output: Output,
    /// Report the score of the network; the file must contain the targets
    #[arg(long, conflicts_with = "file")]
    score: bool,
}

pub(super) fn run(cli: &Cli, args: &Args) -> Result {
    args.output.check()?;
    let file = RunFile::of_folder(&args.run)?;
    let predictor = Predictor::of_folder(&args.run, model(cli, &file)?)?;
    if args.score {
        let score = predictor.score(&args.examples)?;
        print(format_args!("{}: {score}", score.name()))?;
        return match score.not_finite() {
            0 => Ok(()),
            count => Err(Failure::Work(format!(
                "{count} of the answers {} not finite",
                if count == 1 { "is" } else { "are" }
            ))),
        };
    }
    let examples = predictor.read(&args.examples)?;
    predictor.notes_on(&examples).iter().for_each(|note| say_line(note));
    let predictions = predictor.predict_all(examples)?;
    let text = csv(&predictions, &targets(&file));
    match &args.output.file {
        Some(output) => files::replace(output, text.as_bytes())?,
        None => print_as_it_is(text.trim_end())?,
    }
    let spoilt: Vec<usize> = (1..).zip(&predictions).filter(|(_, said)| !said.is_finite()).map(|(i, _)| i).collect();
    match spoilt.first() {
        None => Ok(()),
        Some(first) => {
            let (count, all) = (spoilt.len(), predictions.len());
            let are = if count == 1 { "is" } else { "are" };
            let words = format!("{count} of {all} predictions {are} not finite; the first is that of example {first}");
            Err(Failure::Work(words))
        }
    }
}

/// Returns the names of the targets, if the data has some.
fn targets(file: &RunFile) -> Vec<String> {
    let Source::Csv(csv) = &file.data else { return Vec::new() };
    let name = |column: &Column| match column {
        Column::Name(name) => Some(field(name)),
        _ => None,
    };
    csv.target.0.iter().map(name).collect::<Option<_>>().unwrap_or_default()
}

/// Formats predictions as CSV. `targets` are the names of the numbers, if their count agrees.
fn csv(predictions: &[Prediction], targets: &[String]) -> String {
    let mut text = match predictions.iter().find(|said| **said != Prediction::NotFinite).or(predictions.first()) {
        Some(Prediction::Sequence { text: Some(_), .. }) => "text\n".into(),
        Some(Prediction::Sequence { text: None, .. }) => "classes\n".into(),
        Some(Prediction::Numbers(numbers)) if numbers.len() == targets.len() => targets.join(",") + "\n",
        Some(Prediction::Numbers(numbers)) => {
            let names: Vec<String> = (1..=numbers.len()).map(|i| format!("output_{i}")).collect();
            names.join(",") + "\n"
        }
        Some(_) => "class,probability\n".to_string(),
        None => String::new(),
    };
    // A line without an answer has the same fields as the others.
    let without = if text.starts_with("class,") { ",NaN" } else { "NaN" };
    for prediction in predictions {
        let line = match prediction {
            Prediction::Class { name, probability, .. } => format!("{},{probability}", field(name)),
            Prediction::Sequence { text: Some(text), .. } => field(text),
            Prediction::Sequence { indices, text: None } => {
                indices.iter().map(i64::to_string).collect::<Vec<_>>().join(" ")
            }
            Prediction::Numbers(numbers) => numbers.iter().map(f32::to_string).collect::<Vec<_>>().join(","),
            _ => without.into(),
        };
        writeln!(text, "{line}").expect("writing to a string");
    }
    text
}

/// Formats a field of CSV, in quotes where it needs them (RFC 4180).
fn field(text: &str) -> String {
    match text.contains([',', '"', '\n', '\r']) {
        true => format!("\"{}\"", text.replace('"', "\"\"")),
        false => text.to_string(),
    }
}
