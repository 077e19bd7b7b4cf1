//! Tables in text files.

mod cells;
mod columns;
mod first_row;
mod header;
mod kept;
mod number_format;
mod proposal;
mod series;
mod stored;
mod table;
mod targets;
mod text;

use std::{
    fs::File,
    io::{self, Read as _},
    path::{Path, PathBuf},
};

use precast::{
    error::{Error, Result},
    options::options,
};
use precast_base::{files, printable};

pub use columns::{Column, Columns};
pub use series::Series;
use table::Table;

use super::{
    MOST_BYTES,
    gzip::{is_packed, unpacked, unpacking},
};
use crate::data::{
    Cells, Dataset, Empty, Inputs, Table as Cellular, TableColumn, Targets, WordForm,
    numbers::Wide,
    origin::{Parts, Read},
};

/// A table in a text file, gzipped or not: one row per example, with numbers in all columns but those of classes, and of
/// words that are named.
///
/// With columns of words, or empty cells, the inputs are a [`Table`](crate::data::Table), and an
/// [`Encoding`](crate::data::Encoding) of the training examples makes numbers of it; a run does so by itself.
///
/// ```
/// # use precast_train::data::Csv;
/// let csv = Csv::new("de.csv").target("preis").delimiter(';').decimal(',').thousands('.');
/// let data = csv.parse(b"flaeche;preis\n20,5;1.060,25\n21;63,5\n")?;
/// assert_eq!(data.batches(2)?.next().unwrap().y.to_f64(), [1060.25, 63.5]);
/// # Ok::<(), precast::Error>(())
/// ```
#[options(written)]
#[derive(Clone, Debug, PartialEq)]
pub struct Csv {
    /// The file.
    pub file: PathBuf,
    /// Target columns, such as `"species"`, `5` or `["x", "y"]`: one of classes, or one or several of numbers. Without
    /// any, examples have no targets.
    #[option(default, left_out)]
    pub target: Columns,
    /// Kind of the targets, classes or numbers.
    #[option(
        default = None,
        shown = "classes for text and integers; numbers for those with a decimal point or an exponent, and for the \
                 targets of several columns",
        no_setter
    )]
    pub r#as: Option<TargetKind>,
    /// `true` when the first row has the names of the columns.
    #[option(default = true)]
    pub header: bool,
    /// Input columns, in this order.
    #[option(default, shown = "all but the targets and the ignored ones", left_out)]
    pub columns: Columns,
    /// Columns that are neither inputs nor targets.
    #[option(default, left_out)]
    pub ignore: Columns,
    /// Input columns of words, each of which becomes a column of 0 and 1.
    #[option(default, left_out)]
    pub one_hot: Columns,
    /// Input columns of words that become indices for an embedding, from 1; 0 is for a word that no training example has.
    #[option(default, left_out)]
    pub indices: Columns,
    /// Handling of empty cells of the inputs. A replacement is learnt from the training examples, and a column of flags
    /// added. An empty cell in a column of words is a word of its own, unless it is an error.
    #[option(default = Empty::Error, left_out)]
    pub empty: Empty,
    /// Words that mark an empty cell: `NA`, `?`.
    #[option(default, left_out)]
    pub missing: Vec<String>,
    /// Names of the classes in the order of their indices.
    #[option(default, shown = "those in the file, sorted", left_out)]
    pub class_names: Vec<String>,
    /// Windows of the rows, in their order: `{length: 24, ahead: 1}`. The inputs are the columns and, of numbers, the targets
    /// up to the last row of a window; a run splits them in order.
    #[option(default = None, shown = "each row is an example", left_out)]
    pub series: Option<Series>,
    /// Encoding of the text, by its name in the Encoding Standard: `windows-1251`, `shift_jis`.
    #[option(
        default = None,
        shown = "UTF-8, or UTF-16 if the text begins so; a text that is neither is read as windows-1252, with a note",
        left_out
    )]
    pub encoding: Option<String>,
    /// Field separator, an ASCII character. A space is any number of spaces.
    #[option(default = ',', shown = "a comma")]
    pub delimiter: char,
    /// Decimal separator, a point or a comma.
    #[option(default = '.', shown = "a point", left_out)]
    pub decimal: char,
    /// Thousands separator: a comma, a point, a space (also a no-break space), an apostrophe or an underscore.
    #[option(default = None)]
    pub thousands: Option<char>,
}

/// Kind of the values of a target column.
#[options]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum TargetKind {
    /// Classes: one for each distinct text.
    Classes,
    /// Numbers.
    Numbers,
}

impl Csv {
    /// Treats targets as classes.
    pub fn classes(self) -> Self {
        Csv { r#as: Some(TargetKind::Classes), ..self }
    }

    /// Treats targets as numbers.
    pub fn numbers(self) -> Self {
        Csv { r#as: Some(TargetKind::Numbers), ..self }
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
    /// empty cell unless [`empty`](Csv::empty) replaces it, a cell that is not a finite f32 number where one is expected, a class not among the
    /// [`class_names`](Csv::class_names), targets that look like numbers with a decimal comma or with thousands, two
    /// columns with the same name, an input without a name, a header that looks like a row of numbers and is never
    /// referred to by name, a column that is missing or has two uses, and a file that is empty, not in its
    /// [`encoding`](Csv::encoding), or decompresses to more than 1 GiB; [`ErrorKind::Value`](precast::ErrorKind::Value) for an unknown encoding, an invalid delimiter or
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

    /// Reads the rows as [`read`](Csv::read) does. Inputs that take more than `memory` bytes, as text or as the numbers that
    /// columns of words become, are [stored](Dataset::stored): their numbers are written to a temporary file, of 8 bytes for each cell, and read when
    /// they are needed.
    ///
    /// # Errors
    /// As [`parse`](Csv::parse), but for the length of the file, and [`ErrorKind::Io`](precast::ErrorKind::Io) when a file
    /// cannot be read or written.
    pub fn read_within(&self, memory: u64) -> Result<Dataset> {
        self.dataset_within(memory, true)
    }

    /// Reads inputs as [`read_within`](Csv::read_within) does, without targets. Target and ignored columns may be missing.
    ///
    /// # Errors
    /// As [`read_within`](Csv::read_within).
    pub fn read_inputs_within(&self, memory: u64) -> Result<Dataset> {
        self.dataset_within(memory, false)
    }

    fn dataset_within(&self, memory: u64, with_targets: bool) -> Result<Dataset> {
        if is_longer(&self.file, memory).map_err(|error| Error::io(&self.file, &error))? {
            return match self.series {
                None => self.stored(with_targets),
                Some(_) => {
                    Err(Error::data("`series` is of a table in memory; a larger `memory` holds it")
                        .in_file(self.origin()))
                }
            };
        }
        let limit = usize::try_from(memory).unwrap_or(usize::MAX).clamp(MOST_BYTES, isize::MAX as usize);
        let data = self.dataset_of(&files::read_within(&self.file, limit)?, limit, with_targets)?;
        match data.inputs() {
            // A pipe can be read once.
            Inputs::Table(table) if self.file.is_file() && encoded_bytes(table, data.len()) > memory => {
                self.stored(with_targets)
            }
            _ => Ok(data),
        }
    }

    fn dataset(&self, bytes: &[u8], with_targets: bool) -> Result<Dataset> {
        self.dataset_of(bytes, MOST_BYTES, with_targets)
    }

    fn dataset_of(&self, bytes: &[u8], limit: usize, with_targets: bool) -> Result<Dataset> {
        let origin = self.origin();
        let bytes = unpacked(bytes, limit).map_err(|error| error.in_file(&origin))?;
        let read = self.dataset_read(&bytes, with_targets);
        read.map_err(|error| if with_targets { self.with_proposal(error, Some(&bytes)) } else { error })
    }

    fn dataset_read(&self, bytes: &[u8], with_targets: bool) -> Result<Dataset> {
        let origin = self.origin();
        let table = Table::of(self, &origin, bytes)?;
        let mut uses = table.uses(self, with_targets || !self.past().is_empty())?;
        if !self.past().is_empty() {
            uses.inputs.extend(&uses.targets);
        }
        let (inputs, inputs_wide, mut notes) = if self.is_encoded() {
            let (cells, notes) = table.cells(self, &uses.inputs)?;
            (Inputs::Table(cells), Wide::default(), notes)
        } else {
            let (values, wide, notes) = table.numbers(&uses.inputs, true)?;
            (Inputs::Numbers(values), wide, notes)
        };
        let found = table.targets(self, if with_targets { &uses.targets } else { &[] })?;
        notes.extend(found.notes.into_iter().chain(table.note.clone()));
        let data = Dataset::of(inputs, &[uses.inputs.len()], found.targets)?
            .with_class_names(found.class_names)?
            .with_input_names(table.names(&uses.inputs));
        let origins = Parts { inputs: origin.clone(), targets: origin.clone() };
        let data = data.with_origin(Parts { inputs: inputs_wide, targets: found.wide }, Read { origins, notes });
        match &self.series {
            None => Ok(data),
            Some(series) => series.windows(&data, &table.names(&uses.inputs), &origin),
        }
    }

    /// Returns the line of an example in the file, counted from 1.
    pub(crate) fn line_of(&self, example: usize, folder: &Path) -> Result<usize> {
        let (file, origin) = (folder.join(&self.file), self.origin());
        let bytes = files::read_within(&file, MOST_BYTES)?;
        let bytes = unpacked(&bytes, MOST_BYTES).map_err(|error| error.in_file(&origin))?;
        let row = Table::of(self, &origin, &bytes)?.rows().nth(self.row_of(example)).transpose()?;
        Ok(row.map_or(0, |row| row.line))
    }

    /// Returns these options with the settings found in the file: the names of its input columns and of its classes.
    /// They read another file like this one, whatever the order of its columns. `dataset` is the result of
    /// [`read`](Csv::read), or a part of it.
    pub fn found(&self, dataset: &Dataset) -> Csv {
        let mut found = self.clone();
        if let (Some(_), &[_, width], false) = (&self.series, dataset.shape(), dataset.input_names().is_empty()) {
            found.columns = self.columns_of_windows(dataset.input_names(), width);
        } else if !dataset.input_names().is_empty() {
            found.columns = Columns(dataset.input_names().iter().cloned().map(Column::Name).collect());
            // The names of columns, unlike their numbers, hold for a file with another order.
            if let Inputs::Table(table) = dataset.form() {
                let of = |form: WordForm| {
                    let is = |cells: &Cells| matches!(cells, Cells::Words { form: met, .. } if *met == form);
                    let columns = table.columns().iter().filter(|column| is(&column.cells));
                    Columns(columns.map(|column| Column::Name(column.name.clone())).collect())
                };
                (found.one_hot, found.indices) = (of(WordForm::OneHot), of(WordForm::Indices));
            }
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

/// Returns whether the text of a file, unpacked, is longer than `most` bytes. A pipe is not.
fn is_longer(file: &Path, most: u64) -> io::Result<bool> {
    let opened = File::open(file)?;
    let met = opened.metadata()?;
    if !met.is_file() || met.len() > most {
        return Ok(met.is_file());
    }
    let mut start = [0; 2];
    let packed = met.len() >= 2 && File::open(file)?.read_exact(&mut start).is_ok() && is_packed(&start);
    // A damaged file is refused when it is read.
    let length = || io::copy(&mut unpacking(opened)?.take(most.saturating_add(1)), &mut io::sink());
    Ok(packed && length().is_ok_and(|length| length > most))
}

/// Returns the bytes of the numbers that a table is encoded as.
fn encoded_bytes(table: &Cellular, examples: usize) -> u64 {
    let width = |column: &TableColumn| match &column.cells {
        Cells::Words { words, form: WordForm::OneHot, .. } => words.len(),
        _ => 1,
    };
    let width: usize = table.columns().iter().map(width).sum();
    width.saturating_mul(examples).saturating_mul(size_of::<f32>()) as u64
}
