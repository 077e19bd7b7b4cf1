//! Tables in text files.

mod columns;
mod first_row;
mod header;
mod number_format;
mod table;
mod targets;

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

pub use columns::{Column, Columns};
use table::Table;

use super::MOST_BYTES;
use precast::{
    __train::{Parts, Read},
    data::{Dataset, Inputs, Targets},
};
use precast::{error::Result, io::files::unpacked};
use precast_policy::{files, printable};

/// A table in a text file, gzipped or not: one row per example, with numbers in all columns but those of classes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Csv {
    /// The file.
    pub file: PathBuf,
    /// Target columns: one of classes, or one or several of numbers. Without any, examples have no targets.
    #[serde(default, skip_serializing_if = "Columns::is_empty")]
    pub target: Columns,
    /// Kind of the targets, classes or numbers. By default, text and integers are classes, and numbers with a decimal
    /// point or an exponent are numbers, as are the targets of several columns.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub r#as: Option<TargetKind>,
    /// `true` when the first row has the names of the columns. Default: true.
    #[serde(default = "yes")]
    pub header: bool,
    /// Input columns, in this order. Default: all but the targets and the ignored ones.
    #[serde(default, skip_serializing_if = "Columns::is_empty")]
    pub columns: Columns,
    /// Columns that are neither inputs nor targets.
    #[serde(default, skip_serializing_if = "Columns::is_empty")]
    pub ignore: Columns,
    /// Names of the classes in the order of their indices. Default: those in the file, sorted.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub class_names: Vec<String>,
    /// Field separator, an ASCII character. Default: a comma.
    #[serde(default = "comma")]
    pub delimiter: char,
    /// Decimal separator, a point or a comma. Default: a point.
    #[serde(default = "point", skip_serializing_if = "is_point")]
    pub decimal: char,
    /// Thousands separator: a comma, a point, a space (also a no-break space), an apostrophe or an underscore. Default:
    /// none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub thousands: Option<char>,
}

fn yes() -> bool {
    true
}

fn comma() -> char {
    ','
}

fn point() -> char {
    '.'
}

fn is_point(decimal: &char) -> bool {
    *decimal == point()
}

/// Kind of the values of a target column.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum TargetKind {
    /// Classes: one for each distinct text.
    Classes,
    /// Numbers.
    Numbers,
}

impl Csv {
    /// Creates a reader for a file with a header, whose columns are all inputs.
    pub fn new(file: impl Into<PathBuf>) -> Self {
        let (target, columns, ignore) = (Columns::default(), Columns::default(), Columns::default());
        let (r#as, class_names) = (None, Vec::new());
        let (header, delimiter, decimal, thousands) = (yes(), comma(), point(), None);
        Csv { file: file.into(), target, r#as, header, columns, ignore, class_names, delimiter, decimal, thousands }
    }

    /// Sets [`target`](Csv::target): `"species"`, `5`, or several as `["x", "y"]`.
    pub fn target(self, target: impl Into<Columns>) -> Self {
        Csv { target: target.into(), ..self }
    }

    /// Treats targets as classes.
    pub fn classes(self) -> Self {
        Csv { r#as: Some(TargetKind::Classes), ..self }
    }

    /// Treats targets as numbers.
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

    /// Sets [`decimal`](Csv::decimal).
    ///
    /// ```
    /// # use precast_train::data::Csv;
    /// let csv = Csv::new("de.csv").target("preis").delimiter(';').decimal(',').thousands('.');
    /// let data = csv.parse(b"flaeche;preis\n20,5;1.060,25\n21;63,5\n")?;
    /// assert_eq!(data.batches(2)?.next().unwrap().y.to_f64(), [1060.25, 63.5]);
    /// # Ok::<(), precast::Error>(())
    /// ```
    pub fn decimal(self, decimal: char) -> Self {
        Csv { decimal, ..self }
    }

    /// Sets [`thousands`](Csv::thousands).
    pub fn thousands(self, thousands: char) -> Self {
        Csv { thousands: Some(thousands), ..self }
    }

    /// Reads the rows as examples of shape `[columns]`. A class is an index; numbers are of shape `[targets]`.
    ///
    /// # Errors
    /// [`ErrorKind::Io`](precast::ErrorKind::Io) when the file cannot be read or is longer than 1 GiB, and as
    /// [`parse`](Csv::parse).
    pub fn read(&self) -> Result<Dataset> {
        self.parse(&files::read_within(&self.file, MOST_BYTES)?)
    }

    /// Parses the bytes of the file as [`read`](Csv::read) does.
    ///
    /// ```
    /// # use precast_train::data::Csv;
    /// let table = "petal,colour,species\n1.5,0,iris\n0.5,1,rose\n1.0,1,iris\n";
    /// let flowers = Csv::new("flowers.csv").target("species").parse(table.as_bytes())?;
    /// assert_eq!((flowers.len(), flowers.shape(), flowers.labels()), (3, &[2][..], &[0, 1, 0][..]));
    /// assert_eq!(flowers.class_names(), ["iris", "rose"]);
    /// # Ok::<(), precast::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`ErrorKind::Data`](precast::ErrorKind::Data) with file and line for a row of another length than the first, an
    /// empty cell, a cell that is not a finite f32 number where one is expected, a class not among the
    /// [`class_names`](Csv::class_names), targets that look like numbers with a decimal comma or with thousands, two
    /// columns with the same name, an input without a name, a header that looks like a row of numbers and is never
    /// referred to by name, a column that is missing or has two uses, and a file that is empty, not UTF-8 or
    /// decompresses to more than 1 GiB; [`ErrorKind::Value`](precast::ErrorKind::Value) for an invalid delimiter or
    /// separator in numbers, and classes in several columns.
    pub fn parse(&self, bytes: &[u8]) -> Result<Dataset> {
        self.dataset(bytes, true)
    }

    /// Reads inputs as [`read`](Csv::read) does, without targets. Target and ignored columns may be missing.
    ///
    /// # Errors
    /// As [`read`](Csv::read).
    pub fn read_inputs(&self) -> Result<Dataset> {
        self.dataset(&files::read_within(&self.file, MOST_BYTES)?, false)
    }

    fn dataset(&self, bytes: &[u8], with_targets: bool) -> Result<Dataset> {
        let origin = self.origin();
        let bytes = unpacked(bytes, MOST_BYTES).map_err(|error| error.context(&origin))?;
        let table = Table::of(self, &origin, &bytes)?;
        let uses = table.uses(self, with_targets)?;
        let (values, inputs_wide, mut notes) = table.numbers(&uses.inputs)?;
        let found = table.targets(self, if with_targets { &uses.targets } else { &[] })?;
        notes.extend(found.notes);
        let data = Dataset::of(Inputs::Numbers(values), &[uses.inputs.len()], found.targets)?
            .with_class_names(found.class_names)?
            .with_input_names(table.names(&uses.inputs));
        let origins = Parts { inputs: origin.clone(), targets: origin };
        Ok(data.with_origin(Parts { inputs: inputs_wide, targets: found.wide }, Read { origins, notes }))
    }

    /// Returns these options with the settings found in the file: the names of its input columns and of its classes.
    /// They read another file like this one, whatever the order of its columns. `dataset` is the result of
    /// [`read`](Csv::read), or a part of it.
    pub fn found(&self, dataset: &Dataset) -> Csv {
        let mut found = self.clone();
        if !dataset.input_names().is_empty() {
            found.columns = Columns(dataset.input_names().iter().cloned().map(Column::Name).collect());
        }
        found.class_names = dataset.class_names().to_vec();
        found.r#as = match dataset.targets() {
            Targets::Classes { .. } => Some(TargetKind::Classes),
            Targets::Numbers { .. } => Some(TargetKind::Numbers),
            _ => self.r#as,
        };
        found
    }

    /// Returns the file, as named in errors.
    fn origin(&self) -> String {
        printable(&self.file.display().to_string()).into_owned()
    }
}
