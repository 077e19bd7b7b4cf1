//! Tables in text files.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::Dataset;
use crate::error::{Error, Result};

/// A table in a text file, packed by gzip or not: a row for each example, numbers in all columns but those of classes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Csv {
    /// The file.
    pub file: PathBuf,
    /// The columns of the targets: one of classes, or one or several of numbers. Without any, examples have no targets.
    #[serde(default)]
    pub target: Columns,
    /// Whether targets are classes or numbers. Unless it is said, text and integers are classes, and numbers with a decimal
    /// point or an exponent are numbers, as are the targets of several columns.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub r#as: Option<TargetKind>,
    /// Whether the first row has the names of the columns; yes.
    #[serde(default = "yes")]
    pub header: bool,
    /// The columns of the inputs, in this order; all but the targets and those that are ignored.
    #[serde(default)]
    pub columns: Columns,
    /// Columns that are neither inputs nor targets.
    #[serde(default)]
    pub ignore: Columns,
    /// The names of the classes in the order of their indices; those in the file, sorted.
    #[serde(default)]
    pub class_names: Vec<String>,
    /// What separates the fields of a row, a character of ASCII; a comma.
    #[serde(default = "comma")]
    pub delimiter: char,
}

fn yes() -> bool {
    true
}

fn comma() -> char {
    ','
}

/// What the values of a target column are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum TargetKind {
    /// Classes: a class for each different text.
    Classes,
    /// Numbers.
    Numbers,
}

/// A column of a table: its name in the header, or its number, counted from 1. In files: `species`, or `5`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged, expecting = "the name of a column, or its number, counted from 1")]
pub enum Column {
    /// By number, counted from 1.
    Number(usize),
    /// By name.
    Name(String),
}

/// Columns of a table. In files: one, or a list.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "OneOrMany", into = "OneOrMany")]
pub struct Columns(pub Vec<Column>);

#[derive(Serialize, Deserialize)]
#[serde(untagged, expecting = "the name of a column, or its number, counted from 1; or a list of these")]
enum OneOrMany {
    One(Column),
    Many(Vec<Column>),
}

impl From<OneOrMany> for Columns {
    fn from(written: OneOrMany) -> Self {
        match written {
            OneOrMany::One(column) => Columns(vec![column]),
            OneOrMany::Many(columns) => Columns(columns),
        }
    }
}

impl From<Columns> for OneOrMany {
    fn from(Columns(mut columns): Columns) -> Self {
        match columns.pop() {
            Some(column) if columns.is_empty() => OneOrMany::One(column),
            last => OneOrMany::Many(columns.into_iter().chain(last).collect()),
        }
    }
}

impl From<&str> for Column {
    fn from(name: &str) -> Self {
        Column::Name(name.into())
    }
}

impl From<usize> for Column {
    fn from(number: usize) -> Self {
        Column::Number(number)
    }
}

impl From<&str> for Columns {
    fn from(name: &str) -> Self {
        Columns(vec![name.into()])
    }
}

impl From<usize> for Columns {
    fn from(number: usize) -> Self {
        Columns(vec![number.into()])
    }
}

impl<const N: usize> From<[&str; N]> for Columns {
    fn from(names: [&str; N]) -> Self {
        Columns(names.map(Column::from).into())
    }
}

impl<const N: usize> From<[usize; N]> for Columns {
    fn from(numbers: [usize; N]) -> Self {
        Columns(numbers.map(Column::from).into())
    }
}

impl From<Vec<Column>> for Columns {
    fn from(columns: Vec<Column>) -> Self {
        Columns(columns)
    }
}

impl Csv {
    /// A file with a header, whose columns are all inputs.
    pub fn new(file: impl Into<PathBuf>) -> Self {
        let (target, columns, ignore) = (Columns::default(), Columns::default(), Columns::default());
        let (r#as, class_names) = (None, Vec::new());
        Csv { file: file.into(), target, r#as, header: yes(), columns, ignore, class_names, delimiter: comma() }
    }

    /// Sets [`target`](Csv::target): `"species"`, `5`, or several as `["x", "y"]`.
    pub fn target(self, target: impl Into<Columns>) -> Self {
        Csv { target: target.into(), ..self }
    }

    /// Targets are classes.
    pub fn classes(self) -> Self {
        Csv { r#as: Some(TargetKind::Classes), ..self }
    }

    /// Targets are numbers.
    pub fn numbers(self) -> Self {
        Csv { r#as: Some(TargetKind::Numbers), ..self }
    }

    /// Sets [`header`](Csv::header).
    pub fn header(self, header: bool) -> Self {
        Csv { header, ..self }
    }

    /// Sets [`columns`](Csv::columns).
    pub fn columns(self, columns: impl Into<Columns>) -> Self {
        Csv { columns: columns.into(), ..self }
    }

    /// Sets [`ignore`](Csv::ignore).
    pub fn ignore(self, ignore: impl Into<Columns>) -> Self {
        Csv { ignore: ignore.into(), ..self }
    }

    /// Sets [`class_names`](Csv::class_names).
    pub fn class_names(self, names: impl IntoIterator<Item = impl Into<String>>) -> Self {
        Csv { class_names: names.into_iter().map(Into::into).collect(), ..self }
    }

    /// Sets [`delimiter`](Csv::delimiter).
    pub fn delimiter(self, delimiter: char) -> Self {
        Csv { delimiter, ..self }
    }

    /// The rows as examples of shape `[columns]`.
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`](crate::ErrorKind::Unsupported): not written yet.
    pub fn read(&self) -> Result<Dataset> {
        Err(Error::unsupported("the reader of CSV is not written yet"))
    }

    /// As [`read`](Csv::read), without targets, whose columns may be missing.
    ///
    /// # Errors
    /// As [`read`](Csv::read).
    pub fn read_inputs(&self) -> Result<Dataset> {
        self.read()
    }

    /// These options with what the file said of itself: the names of its input columns and of the classes. They read another
    /// file as this one was read, whatever the order of its columns. `dataset` is what [`read`](Csv::read) returned, or a part.
    pub fn found(&self, _dataset: &Dataset) -> Csv {
        self.clone()
    }
}
