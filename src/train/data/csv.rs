//! Tables in text files.

use std::{collections::BTreeSet, path::PathBuf};

use ::csv::{ReaderBuilder, StringRecord, Trim};
use serde::{Deserialize, Serialize};

use super::{Dataset, Inputs, MOST_BYTES, Targets, class_names::ClassNames};
use crate::{
    error::{Error, Result, did_you_mean_or_some},
    io::files,
    printable::printable,
};

/// A table in a text file, packed by gzip or not: a row for each example, numbers in all columns but those of classes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Csv {
    /// The file.
    pub file: PathBuf,
    /// The columns of the targets: one of classes, or one or several of numbers. Without any, examples have no targets.
    #[serde(default, skip_serializing_if = "Columns::is_empty")]
    pub target: Columns,
    /// Whether targets are classes or numbers. Unless it is said, text and integers are classes, and numbers with a
    /// decimal point or an exponent are numbers, as are the targets of several columns.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub r#as: Option<TargetKind>,
    /// Whether the first row has the names of the columns; yes.
    #[serde(default = "yes")]
    pub header: bool,
    /// The columns of the inputs, in this order; all but the targets and those that are ignored.
    #[serde(default, skip_serializing_if = "Columns::is_empty")]
    pub columns: Columns,
    /// Columns that are neither inputs nor targets.
    #[serde(default, skip_serializing_if = "Columns::is_empty")]
    pub ignore: Columns,
    /// The names of the classes in the order of their indices; those in the file, sorted.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
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

impl Columns {
    fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
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

    /// The rows as examples of shape `[columns]`. A class is an index; numbers are of shape `[targets]`.
    ///
    /// # Errors
    /// [`ErrorKind::Io`](crate::ErrorKind::Io) when the file cannot be read or is longer than 1 GiB, and as
    /// [`parse`](Csv::parse).
    pub fn read(&self) -> Result<Dataset> {
        self.parse(&files::read_within(&self.file, MOST_BYTES)?)
    }

    /// As [`read`](Csv::read), from the bytes of the file.
    ///
    /// ```
    /// # use precast::data::Csv;
    /// let table = "petal,colour,species\n1.5,0,iris\n0.5,1,rose\n1.0,1,iris\n";
    /// let flowers = Csv::new("flowers.csv").target("species").parse(table.as_bytes())?;
    /// assert_eq!((flowers.len(), flowers.shape(), flowers.labels()), (3, &[2][..], &[0, 1, 0][..]));
    /// assert_eq!(flowers.class_names(), ["iris", "rose"]);
    /// # Ok::<(), precast::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`ErrorKind::Data`](crate::ErrorKind::Data) with file and line for a row of another length than the first, an
    /// empty cell, a cell that is no finite number where one is wanted, a class that is none of
    /// [`class_names`](Csv::class_names), two columns of one name, a column that is not there or has two uses, and a
    /// file that is empty, not UTF-8 or unpacks to more than 1 GiB; [`ErrorKind::Value`](crate::ErrorKind::Value) for a
    /// character that is no delimiter, and classes in several columns.
    pub fn parse(&self, bytes: &[u8]) -> Result<Dataset> {
        let origin = self.origin();
        let bytes = files::unpacked(bytes, MOST_BYTES).map_err(|error| error.context(&origin))?;
        let table = Table::of(self, &origin, &bytes)?;
        let uses = table.uses(self, true)?;
        let inputs = Inputs::Numbers(table.numbers(&uses.inputs)?);
        let (targets, class_names) = table.targets(self, &uses.targets)?;
        let data = Dataset::of(inputs, &[uses.inputs.len()], targets)?.with_class_names(class_names)?;
        Ok(data.with_input_names(table.names(&uses.inputs)))
    }

    /// As [`read`](Csv::read), without targets. Their columns, and those that are ignored, may be missing.
    ///
    /// # Errors
    /// As [`read`](Csv::read).
    pub fn read_inputs(&self) -> Result<Dataset> {
        let origin = self.origin();
        let bytes = files::read_within(&self.file, MOST_BYTES)?;
        let bytes = files::unpacked(&bytes, MOST_BYTES).map_err(|error| error.context(&origin))?;
        let table = Table::of(self, &origin, &bytes)?;
        let uses = table.uses(self, false)?;
        let inputs = Inputs::Numbers(table.numbers(&uses.inputs)?);
        Ok(Dataset::of(inputs, &[uses.inputs.len()], Targets::None)?.with_input_names(table.names(&uses.inputs)))
    }

    /// These options with what the file said of itself: the names of its input columns and of its classes. So they read
    /// another file as this one was read, whatever the order of its columns. `dataset` is what [`read`](Csv::read)
    /// returned, or a part.
    pub fn found(&self, dataset: &Dataset) -> Csv {
        let mut found = self.clone();
        if !dataset.input_names().is_empty() {
            found.columns = Columns(dataset.input_names().iter().cloned().map(Column::Name).collect());
        }
        found.class_names = dataset.class_names().to_vec();
        found.r#as = match dataset.targets() {
            Targets::Classes { .. } => Some(TargetKind::Classes),
            Targets::Numbers { .. } => Some(TargetKind::Numbers),
            Targets::None => self.r#as,
        };
        found
    }

    /// The file, as errors name it.
    fn origin(&self) -> String {
        printable(&self.file.display().to_string()).into_owned()
    }
}

/// The text of a file, and what its first row says.
struct Table<'a> {
    origin: &'a str,
    text: &'a str,
    delimiter: u8,
    /// The names of the columns, if it has a header.
    header: Option<StringRecord>,
    /// How many columns each row has.
    width: usize,
}

/// Which columns are read, counted from 0.
struct Uses {
    inputs: Vec<usize>,
    targets: Vec<usize>,
}

/// A row with the line at which it begins, counted from 1.
type Row = (u64, StringRecord);

fn fields(count: usize) -> String {
    if count == 1 { "1 field".into() } else { format!("{count} fields") }
}

impl<'a> Table<'a> {
    fn of(csv: &Csv, origin: &'a str, bytes: &'a [u8]) -> Result<Self> {
        let delimiter = u8::try_from(csv.delimiter).ok().filter(|c| c.is_ascii() && !b"\"\r\n".contains(c));
        let delimiter = delimiter.ok_or_else(|| {
            let met = csv.delimiter.escape_debug();
            Error::value(format!("the delimiter `{met}`; allowed: characters of ASCII but quotes and line ends"))
        })?;
        let text = std::str::from_utf8(bytes).map_err(|error| {
            let line = 1 + bytes[..error.valid_up_to()].iter().filter(|byte| **byte == b'\n').count();
            Error::data(format!("{origin}:{line}: not a text in UTF-8"))
        })?;
        let text = text.strip_prefix('\u{feff}').unwrap_or(text);
        let mut table = Table { origin, text, delimiter, header: None, width: 0 };
        let Some(first) = table.all_rows().next().transpose()? else {
            return Err(Error::data(format!("{origin}: the file is empty")));
        };
        table.width = first.1.len();
        table.check_quotes()?;
        if csv.header {
            table.check_header(&first)?;
            table.header = Some(first.1);
        }
        Ok(table)
    }

    fn at(&self, line: u64, words: impl std::fmt::Display) -> Error {
        Error::data(format!("{}:{line}: {words}", self.origin))
    }

    /// Refuses a quote that is not closed: all that follows it would be one cell.
    fn check_quotes(&self) -> Result<()> {
        let odd = |text: &str| text.bytes().filter(|byte| *byte == b'"').count() % 2 == 1;
        if !odd(self.text) {
            return Ok(());
        }
        let Some((line, last)) = self.all_rows().last().transpose()? else { return Ok(()) };
        let from = last.position().map_or(0, |place| place.byte() as usize);
        match odd(self.text.get(from..).unwrap_or_default()) {
            true => Err(self.at(line, "a quote is not closed")),
            false => Ok(()),
        }
    }

    fn check_header(&self, (line, names): &Row) -> Result<()> {
        let is_number = |name: &str| name.parse::<f64>().is_ok();
        if names.iter().all(is_number) && names.iter().any(|name| name.parse::<u64>().is_err()) {
            let words = "the header has numbers and no names; a file without a header is read with `header: false`";
            return Err(self.at(*line, words));
        }
        for (i, name) in names.iter().enumerate() {
            if let Some(first) = names.iter().take(i).position(|before| before == name) {
                let words = format!("columns {} and {} have the same name, `{}`", first + 1, i + 1, printable(name));
                return Err(self.at(*line, words));
            }
        }
        Ok(())
    }

    /// All rows, the header among them. Lines that are empty are none.
    fn all_rows(&self) -> impl Iterator<Item = Result<Row>> {
        let mut reader = ReaderBuilder::new();
        reader.delimiter(self.delimiter).has_headers(false).flexible(true).trim(Trim::All);
        reader.from_reader(self.text.as_bytes()).into_records().map(|row| {
            let row = row.map_err(|error| Error::data(format!("{}: {error}", self.origin)))?;
            // The position is that of the end of the row before, so empty lines may follow.
            let (line, byte) = row.position().map_or((1, 0), |place| (place.line(), place.byte() as usize));
            let after = self.text.as_bytes().get(byte..).unwrap_or_default();
            let empty = after.iter().take_while(|byte| b"\r\n".contains(byte)).filter(|byte| **byte == b'\n').count();
            Ok((line + empty as u64, row))
        })
    }

    /// The rows of examples, all of the length of the first row.
    fn rows(&self) -> impl Iterator<Item = Result<Row>> {
        self.all_rows().skip(usize::from(self.header.is_some())).map(|row| {
            let (line, row) = row?;
            if row.len() == self.width {
                return Ok((line, row));
            }
            let first = if self.header.is_some() { "header" } else { "first row" };
            Err(self.at(line, format!("{}; the {first} has {}", fields(row.len()), self.width)))
        })
    }

    /// A column with its name, for people.
    fn shown(&self, place: usize) -> String {
        match self.header.as_ref().and_then(|names| names.get(place)) {
            Some(name) => format!("column {} (`{}`)", place + 1, printable(name)),
            None => format!("column {}", place + 1),
        }
    }

    /// The names of some columns; none without a header.
    fn names(&self, places: &[usize]) -> Vec<String> {
        let Some(names) = &self.header else { return Vec::new() };
        places.iter().map(|&place| names[place].to_string()).collect()
    }

    /// Where a column is.
    fn place(&self, column: &Column) -> Result<usize> {
        let unknown = |words: String| Err(Error::data(format!("{}: {words}", self.origin)));
        match column {
            Column::Number(number) if (1..=self.width).contains(number) => Ok(number - 1),
            Column::Number(number) => {
                unknown(format!("there is no column {number}; the file has {}, counted from 1", self.width))
            }
            Column::Name(name) => {
                let shown = printable(name);
                let Some(names) = &self.header else {
                    return unknown(format!("a file without a header has no column `{shown}`; allowed: numbers"));
                };
                match names.iter().position(|other| other == name) {
                    Some(place) => Ok(place),
                    None => unknown(format!("there is no column `{shown}`{}", did_you_mean_or_some(name, names))),
                }
            }
        }
    }

    /// Which columns are inputs and which are targets. Targets and ignored columns may be missing where none are
    /// needed.
    fn uses(&self, csv: &Csv, targets_needed: bool) -> Result<Uses> {
        let mut uses: Vec<Option<&str>> = vec![None; self.width];
        let mut places = |columns: &Columns, named: &'static str, needed: bool| -> Result<Vec<usize>> {
            let mut places = Vec::new();
            for column in &columns.0 {
                let place = match self.place(column) {
                    Ok(place) => place,
                    Err(error) if needed => return Err(error),
                    Err(_) => continue,
                };
                if let Some(before) = uses[place].replace(named) {
                    let words = format!("{} is named twice, in `{before}` and in `{named}`", self.shown(place));
                    return Err(Error::data(format!("{}: {words}", self.origin)));
                }
                places.push(place);
            }
            Ok(places)
        };
        let targets = places(&csv.target, "target", targets_needed)?;
        places(&csv.ignore, "ignore", targets_needed)?;
        let mut inputs = places(&csv.columns, "columns", true)?;
        if csv.columns.is_empty() {
            inputs = (0..self.width).filter(|&place| uses[place].is_none()).collect();
        }
        if inputs.is_empty() {
            return Err(Error::data(format!("{}: no column is left for the inputs", self.origin)));
        }
        Ok(Uses { inputs, targets })
    }

    /// The cell of a row in a column.
    fn cell<'r>(&self, (line, row): &'r Row, place: usize) -> Result<&'r str> {
        match row.get(place).unwrap_or_default() {
            "" => Err(self.at(*line, format!("{}: the cell is empty", self.shown(place)))),
            cell => Ok(cell),
        }
    }

    /// The numbers in some columns, row after row.
    fn numbers(&self, places: &[usize]) -> Result<Vec<f32>> {
        let mut numbers = Vec::new();
        for row in self.rows() {
            let row = row?;
            for &place in places {
                let cell = self.cell(&row, place)?;
                let wrong =
                    |words: &str| self.at(row.0, format!("{}: `{}` {words}", self.shown(place), printable(cell)));
                let number: f32 = cell
                    .parse()
                    .map_err(|_| wrong("is no number; a column of words is a `target`, or stands under `ignore`"))?;
                if !number.is_finite() {
                    return Err(wrong("is no finite number in f32"));
                }
                numbers.push(number);
            }
        }
        if numbers.is_empty() {
            return Err(Error::data(format!("{}: there are no rows but the header", self.origin)));
        }
        Ok(numbers)
    }

    /// The targets in some columns, with the names of their classes.
    fn targets(&self, csv: &Csv, places: &[usize]) -> Result<(Targets, Vec<String>)> {
        let &[first, ref others @ ..] = places else { return Ok((Targets::None, Vec::new())) };
        let kind = match csv.r#as {
            Some(kind) => kind,
            None if !others.is_empty() => TargetKind::Numbers,
            None if !csv.class_names.is_empty() => TargetKind::Classes,
            None => self.kind(first)?,
        };
        match kind {
            TargetKind::Classes if !others.is_empty() => {
                Err(Error::value(format!("classes in {} columns; allowed: one column", places.len())))
            }
            TargetKind::Classes => {
                let (values, names) = self.classes(first, &csv.class_names)?;
                Ok((Targets::Classes { shape: vec![], values }, names))
            }
            TargetKind::Numbers => {
                let (shape, values) = (vec![places.len()], self.numbers(places)?);
                Ok((Targets::Numbers { shape, values }, Vec::new()))
            }
        }
    }

    /// Text and integers are classes, numbers with a decimal point or an exponent are numbers.
    fn kind(&self, place: usize) -> Result<TargetKind> {
        let (mut number, mut text) = (None, None);
        for row in self.rows() {
            let row = row?;
            let cell = self.cell(&row, place)?;
            if cell.parse::<f64>().is_err() {
                text.get_or_insert_with(|| (row.0, cell.to_string()));
            } else if cell.parse::<i64>().is_err() {
                number.get_or_insert_with(|| (row.0, cell.to_string()));
            }
        }
        match (number, text) {
            (Some((line, number)), Some((other, text))) => Err(self.at(
                other,
                format!(
                    "{}: `{}` is no number, but `{number}` in line {line} is; say `as: classes` or `as: numbers`",
                    self.shown(place),
                    printable(&text)
                ),
            )),
            (Some(_), None) => Ok(TargetKind::Numbers),
            (None, _) => Ok(TargetKind::Classes),
        }
    }

    /// The class of each row, and the names of the classes: those given, or those met.
    fn classes(&self, place: usize, given: &[String]) -> Result<(Vec<i64>, Vec<String>)> {
        let mut met = BTreeSet::new();
        if given.is_empty() {
            for row in self.rows() {
                let row = row?;
                let name = self.cell(&row, place)?;
                if !met.contains(name) {
                    met.insert(name.to_string());
                }
            }
        }
        let names = ClassNames::new(given, met)?;
        let index = |row: Result<Row>| {
            let row = row?;
            names
                .index(self.cell(&row, place)?)
                .map_err(|words| self.at(row.0, format!("{}: {words}", self.shown(place))))
        };
        Ok((self.rows().map(index).collect::<Result<_>>()?, names.into_vec()))
    }
}
