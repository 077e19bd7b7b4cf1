//! `precast show cells`: the kinds of cells that model files can name.

use precast::{
    DType, Level,
    io::kinds::{KindInfo, describe, in_yaml},
    layers::kinds,
    policy::{Lists, Pack},
};
use precast_base::printable;
use serde::Serialize;

use super::{Cli, Format, Result, print, print_json, table::table};

/// List the kinds of cells that model files can name, or show the options of one
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  precast show cells              every kind, those of this program among them
  precast show cells Conv2d       its options, as a model file writes them
  precast show cells nn.Linear    a name of torch or MindSpore")]
pub(super) struct Args {
    /// A kind, by its name here or in torch or MindSpore
    kind: Option<String>,
    /// Output format
    #[arg(long, default_value = "text")]
    format: Format,
}

#[derive(Serialize)]
struct Cells {
    pack: &'static str,
    cells: Vec<Cell>,
}

/// A kind, and its treatment by the default lists.
#[derive(Serialize)]
struct Cell {
    #[serde(flatten)]
    info: KindInfo,
    /// `low` for kinds that level O1 lowers, otherwise nothing.
    o1: Option<&'static str>,
    /// `float32` for kinds that level O2 keeps, otherwise `low`.
    o2: &'static str,
}

pub(super) fn run(cli: &Cli, args: &Args) -> Result {
    let pack = Pack::named(Pack::DEFAULT)?;
    let (o1, o2) = (pack.lists(Level::O1)?, pack.lists(Level::O2)?);
    let listed = |lists: &Lists, kind: &str| lists.cell(kind, DType::F16).is_some();
    let cell = |name: &str| -> Result<Cell> {
        let info = describe(name)?;
        let o1 = listed(&o1, info.kind).then_some("low");
        let o2 = if listed(&o2, info.kind) { "float32" } else { "low" };
        Ok(Cell { info, o1, o2 })
    };
    if let Some(kind) = &args.kind {
        let cell = cell(kind).map_err(|failure| match failure {
            super::Failure::Usage(error) => {
                super::Failure::Usage(format!("{error}; `{} show cells` lists every kind", cli.program))
            }
            other => other,
        })?;
        return match args.format {
            Format::Json => print_json(&cell),
            Format::Text => print(one(&cell, kind)),
        };
    }
    let cells = kinds()?.into_iter().map(cell).collect::<Result<_>>()?;
    let cells = Cells { pack: Pack::DEFAULT, cells };
    match args.format {
        Format::Json => print_json(&cells),
        Format::Text => print(all(&cells, cli)),
    }
}

/// Returns the text up to a full stop before a capital letter or a backtick; that of "et al. 2016" is not followed by
/// one.
fn first_sentence(text: &str) -> &str {
    let ends = text.match_indices(". ").map(|(at, _)| at);
    let mut ends = ends.filter(|at| text[at + 2..].starts_with(|c: char| c.is_uppercase() || c == '`'));
    text[..ends.next().unwrap_or(text.len())].trim_end_matches('.')
}

/// Formats names of another library, or a dash.
fn names(names: Option<&[&str]>) -> String {
    names.filter(|names| !names.is_empty()).map_or("-".into(), |names| names.join(", "))
}

fn all(cells: &Cells, cli: &Cli) -> String {
    let rows = cells.cells.iter().map(|cell| {
        let (elsewhere, about) = (cell.info.elsewhere, &cell.info.about);
        let about = first_sentence(about);
        [
            printable(cell.info.kind).into_owned(),
            printable(about).into_owned(),
            names(elsewhere.map(|names| names.torch)),
            names(elsewhere.map(|names| names.mindspore)),
            cell.o1.unwrap_or("-").into(),
            cell.o2.into(),
        ]
    });
    format!(
        "{}\n\nO1, O2: what these levels do by the lists of {}; `-` is nothing, float32 stays.\n\
         `{} show cells KIND` shows the options of one.",
        table(&["kind", "what it is", "torch", "MindSpore", "O1", "O2"], rows, &[]),
        cells.pack,
        cli.program
    )
}

fn one(cell: &Cell, asked: &str) -> String {
    let KindInfo { kind, about, elsewhere, example, options, .. } = &cell.info;
    let mut text = match asked == *kind {
        true => String::new(),
        false => format!("`{}` is {} here.\n\n", printable(asked), printable(kind)),
    };
    let mut line = |name: &str, value: &str| {
        if !value.is_empty() {
            text += &format!("{name:<12}{}\n", printable(value));
        }
    };
    line("kind", kind);
    line("what it is", about);
    line("torch", &names(elsewhere.map(|names| names.torch)));
    line("MindSpore", &names(elsewhere.map(|names| names.mindspore)));
    line("O1", if cell.o1.is_some() { "runs low: on the low list" } else { "is left as it is" });
    line("O2", if cell.o2 == "low" { "runs low" } else { "stays float32: on the full list" });
    line("example", example.as_deref().unwrap_or_default());
    if options.is_empty() {
        return text + if example.is_some() { "\nIt has no options." } else { "\nIts options could not be read." };
    }
    let rows = options.iter().map(|option| {
        let default = match &option.default {
            _ if option.required => "(required)".into(),
            None => "(may be left out)".into(),
            Some(serde_json::Value::Null) => format!("({})", option.shown),
            Some(value) => in_yaml(value),
        };
        [&option.name, &option.takes, &default].map(|text| printable(text).into_owned())
    });
    text + "\n" + &table(&["option", "takes", "default"], rows, &[])
}
