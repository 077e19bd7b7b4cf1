//! `precast predict`: predictions of a trained network for new examples.

use std::path::PathBuf;

use precast_base::printable;
use precast_train::Loss;
use precast_train::{
    Prediction, Predictor, RunFile,
    data::{Column, Columns, Source},
    report::evaluation_table_by,
};

use super::{
    Cli, Failure, Result,
    outputs::{self, Output},
    print, print_as_it_is,
    run::{model, say_line},
    table::library_table,
};

/// Predict with the best weights of a run
#[derive(Debug, clap::Args)]
#[command(after_help = "\
The examples are read as those of the run were: a CSV with the same columns (those of the targets may be missing), an image or a
folder of images, an array, a text. The output is CSV with a line for each example: the class and its probability, or the
numbers; for the loss bce_with_logits, probabilities and 0 or 1 for each; for images, first the file. With --score it is how well the network does on examples whose targets are known: images
in a folder for each class, rows with their targets. With --score and --output, the lines are written to the file.

Examples:
  precast predict runs/o2 new.csv
  precast predict runs/o2 new.csv --output predictions.csv
  precast predict runs/o2 new.csv --keep id,name --probabilities
  precast predict runs/o2 new.csv --at encoder             features
  precast predict runs/o2 photos --score                   photos/CLASS/NAME.png")]
pub(super) struct Args {
    /// The folder of a run
    run: PathBuf,
    /// The examples
    #[arg(value_name = "FILE")]
    examples: PathBuf,
    #[command(flatten)]
    output: Output,
    /// Report the scores of the network in detail; the file must contain the targets
    #[arg(long)]
    score: bool,
    /// Also write the probability of every class, in a column for each
    #[arg(long)]
    probabilities: bool,
    /// Write the numbers that a cell of the network gives, such as the features of an encoder, in place of predictions
    #[arg(long, value_name = "CELL", conflicts_with_all = ["score", "probabilities"])]
    at: Option<String>,
    /// Copy these columns of the file, such as ids, in front; a list, or once for each
    #[arg(long, value_name = "COLUMN", value_delimiter = ',')]
    keep: Vec<String>,
}

pub(super) fn run(cli: &Cli, args: &Args) -> Result {
    args.output.check(&[("EXAMPLES", Some(&args.examples))])?;
    outputs::check_ending("--output", args.output.file.as_deref(), &["csv"])?;
    let file = RunFile::of_folder(&args.run)?;
    let read: Vec<_> = file.files_read().into_iter().map(|file| ("the data of the run", Some(file))).collect();
    outputs::check_unread(&read, &[("--output", args.output.file.as_deref())], args.output.force)?;
    let predictor = Predictor::of_folder(&args.run, model(cli, &file)?)?;
    if args.score && args.output.file.is_none() && (args.probabilities || !args.keep.is_empty()) {
        let words = "--score prints scores and no lines of examples; --output FILE writes these, with the columns of --keep and \
                     --probabilities";
        return Err(Failure::Usage(words.into()));
    }
    let scored = if args.score { score(args, &predictor) } else { Ok(()) };
    let has_lines = !args.score || args.output.file.is_some();
    match scored {
        // Answers that are not finite have lines as well.
        Ok(()) | Err(Failure::Work(_)) if has_lines => write(args, &file, &predictor).and(scored),
        scored => scored,
    }
}

/// Prints the scores on the examples.
fn score(args: &Args, predictor: &Predictor) -> Result {
    let found = predictor.evaluate(&args.examples)?;
    let score = found.score();
    print(format_args!("{}: {score}\n\n{}", score.name(), evaluation_table_by(&found, library_table)))?;
    match score.not_finite() {
        0 => Ok(()),
        count => {
            let are = if count == 1 { "is" } else { "are" };
            Err(Failure::Work(format!("{count} of the answers {are} not finite")))
        }
    }
}

/// Writes a line for each example.
fn write(args: &Args, file: &RunFile, predictor: &Predictor) -> Result {
    let in_front = in_front(args, file, predictor)?;
    let examples = predictor.read(&args.examples)?;
    predictor.notes_on(&examples).iter().for_each(|note| say_line(note));
    if let Some(path) = &args.at {
        let mut columns = in_front;
        columns.push(features(&predictor.features(path, examples)?, path));
        return put(args, &joined(&columns));
    }
    let predictions = predictor.predict_all(examples)?;
    let mut columns = in_front;
    // A kept target is what was measured, and has the name of the column.
    let named = |name: String| if args.keep.contains(&name) { format!("predicted_{name}") } else { name };
    let targets: Vec<String> = file.target_names().into_iter().map(&named).collect();
    columns.push(answers(&predictions, &targets, &named));
    if let (Some(Loss::BceWithLogits {}), false) = (&file.options.loss, predictions.is_empty()) {
        columns.push(sides(&predictions, &targets));
    }
    if args.probabilities {
        columns.push(probabilities(&predictions, predictor.class_names())?);
    }
    put(args, &joined(&columns))?;
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

/// Prints lines, or writes them to the file.
fn put(args: &Args, text: &str) -> Result {
    match &args.output.file {
        Some(output) => outputs::write(output, text),
        None => print_as_it_is(text.trim_end()),
    }
}

/// Returns the columns of the numbers of a cell.
fn features(rows: &[Vec<f32>], path: &str) -> Lines {
    let line = |cells: Vec<String>| cells.join(",");
    let width = rows.iter().map(Vec::len).max().unwrap_or(0);
    let header = line((1..=width).map(|place| field(&format!("{path} {place}"))).collect());
    let rows = rows.iter().map(|row| line(row.iter().map(f32::to_string).collect()));
    [header].into_iter().chain(rows).collect()
}

/// Lines of CSV, or a part of each: the header, then a line for each example.
type Lines = Vec<String>;

/// Returns what comes before the answers: the kept columns, and the files of images.
fn in_front(args: &Args, file: &RunFile, predictor: &Predictor) -> Result<Vec<Lines>> {
    let mut columns = Vec::new();
    if !args.keep.is_empty() {
        let Source::Csv(csv) = &file.data else {
            return Err(Failure::Usage("--keep copies columns of a CSV, and the data of the run is none".into()));
        };
        let twice = |(i, name): &(usize, &String)| args.keep[..*i].contains(name);
        if let Some((_, name)) = args.keep.iter().enumerate().find(twice) {
            return Err(Failure::Usage(format!("--keep names the column `{}` twice", printable(name))));
        }
        let column = |name: &String| match name.parse() {
            Ok(number) if !csv.header => Column::Number(number),
            _ => Column::Name(name.clone()),
        };
        let kept: Columns = args.keep.iter().map(column).collect::<Vec<Column>>().into();
        let rows = predictor.texts(&args.examples, &kept).map_err(|e| Failure::from(e.context("--keep")))?;
        let line = |cells: &[String]| cells.iter().map(|cell| field(cell)).collect::<Vec<_>>().join(",");
        columns.push([line(&args.keep)].into_iter().chain(rows.iter().map(|row| line(row))).collect());
    }
    let images = predictor.files(&args.examples)?;
    if !images.is_empty() {
        let files = images.iter().map(|image| field(&image.display().to_string()));
        columns.push(["file".to_string()].into_iter().chain(files).collect());
    }
    Ok(columns)
}

/// Joins parts of lines to a text.
fn joined(parts: &[Lines]) -> String {
    let lines = parts.iter().map(Vec::len).min().unwrap_or(0);
    (0..lines).fold(String::new(), |text, i| {
        let line: Vec<&str> = parts.iter().map(|part| part[i].as_str()).collect();
        text + &line.join(",") + "\n"
    })
}

/// Returns the columns of the probabilities of all classes.
fn probabilities(predictions: &[Prediction], names: &[String]) -> Result<Lines> {
    let classes = predictions.iter().find_map(|said| match said {
        Prediction::Class { probabilities, .. } => Some(probabilities.len()),
        _ => None,
    });
    let only_nan = predictions.iter().all(|said| *said == Prediction::NotFinite);
    let Some(classes) = classes.or(only_nan.then_some(names.len())) else {
        return Err(Failure::Usage("--probabilities is for runs that predict one class for each example".into()));
    };
    let name = |class: usize| names.get(class).map_or_else(|| format!("{class}"), |name| field(name));
    let line = |said: &Prediction| match said {
        Prediction::Class { probabilities, .. } => join(probabilities),
        _ => vec!["NaN"; classes].join(","),
    };
    let header = (0..classes).map(name).collect::<Vec<_>>().join(",");
    Ok([header].into_iter().chain(predictions.iter().map(line)).collect())
}

/// Returns the columns of the classes of probabilities: 1 above 0.5, else 0.
fn sides(predictions: &[Prediction], targets: &[String]) -> Lines {
    let side = |number: &f32| if number.is_nan() { f32::NAN } else { f32::from(u8::from(*number > 0.5)) };
    let numbers = |said: &Prediction| match said {
        Prediction::Numbers(numbers) => numbers.iter().map(side).collect(),
        _ => Vec::new(),
    };
    let names = names_of(predictions.first().map_or(0, |said| numbers(said).len()), targets);
    let header = names.iter().map(|name| field(&format!("{name}_class"))).collect::<Vec<_>>().join(",");
    [header].into_iter().chain(predictions.iter().map(|said| join(&numbers(said)))).collect()
}

/// Returns the names of so many numbers: those of the targets, if their count agrees.
fn names_of(count: usize, targets: &[String]) -> Vec<String> {
    if count == targets.len() { targets.to_vec() } else { (1..=count).map(|i| format!("output_{i}")).collect() }
}

fn join(numbers: &[f32]) -> String {
    numbers.iter().map(f32::to_string).collect::<Vec<_>>().join(",")
}

/// Returns the columns of the answers. `targets` are the names of the numbers, if their count agrees; `named` gives others theirs.
fn answers(predictions: &[Prediction], targets: &[String], named: &dyn Fn(String) -> String) -> Lines {
    let mut without = "NaN";
    let header = match predictions.iter().find(|said| **said != Prediction::NotFinite).or(predictions.first()) {
        Some(Prediction::Sequence { text: Some(_), .. }) => "text".into(),
        Some(Prediction::Sequence { text: None, .. }) => "classes".into(),
        Some(Prediction::Numbers(numbers)) => {
            names_of(numbers.len(), targets).iter().map(|name| field(name)).collect::<Vec<_>>().join(",")
        }
        Some(_) => {
            without = ",NaN";
            ["class", "probability"].map(|name| named(name.into())).join(",")
        }
        None => return Vec::new(),
    };
    // A line without an answer has the same fields as the others.
    let line = |prediction: &Prediction| match prediction {
        Prediction::Class { name, probability, .. } => format!("{},{probability}", field(name)),
        Prediction::Sequence { text: Some(text), .. } => field(text),
        Prediction::Sequence { indices, text: None } => {
            indices.iter().map(i64::to_string).collect::<Vec<_>>().join(" ")
        }
        Prediction::Numbers(numbers) => join(numbers),
        _ => without.into(),
    };
    let lines = predictions.iter().map(line);
    [header.clone()].into_iter().chain(lines).collect()
}

/// Formats a field of CSV, in quotes where it needs them (RFC 4180).
fn field(text: &str) -> String {
    match text.contains([',', '"', '\n', '\r']) {
        true => format!("\"{}\"", text.replace('"', "\"\"")),
        false => text.to_string(),
    }
}
