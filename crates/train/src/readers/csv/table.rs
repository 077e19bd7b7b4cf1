//! The rows of a table and the roles of its columns.

use csv::{ReaderBuilder, StringRecord, Trim};
use precast::error::{Error, Result};
use precast_base::{names::did_you_mean_or_some, printable, quoted};

use super::{
    Csv,
    cells::{MARKS, is_error},
    columns::{Column, Columns},
    header::Header,
    number_format::NumberFormat,
    text::{Kept, Text},
};
use crate::{
    classes::has_no_width,
    data::numbers::Wide,
    readers::{in_message, numbers::Numbers},
};

/// The text of a file, with its parsed header.
pub(super) struct Table<'a> {
    origin: &'a str,
    text: Text<'a>,
    /// A note on its encoding.
    pub(super) note: Option<String>,
    delimiter: u8,
    pub(super) format: NumberFormat,
    /// Names of the columns, if there is a header.
    pub(super) header: Option<Header>,
    /// Number of columns of each row.
    pub(super) width: usize,
    /// Words that mark empty cells, each with its number if it has one.
    missing: Vec<(String, Option<f64>)>,
    /// A delimiter that makes several columns of the only one.
    pub(super) other_delimiter: Option<char>,
    /// Number of columns of the targets.
    pub(super) targets: usize,
    /// Columns of the targets whose past a series reads.
    past: Columns,
    /// `true` when the rows are those of a series.
    pub(super) is_series: bool,
}

/// Columns to read, counted from 0.
pub(super) struct Uses {
    pub inputs: Vec<usize>,
    pub targets: Vec<usize>,
}

/// A row with its line number, counted from 1.
pub(super) struct Row {
    pub line: usize,
    pub fields: StringRecord,
}

/// Hint for a row that begins with `#`.
const COMMENT: &str = "; the line begins with `#`, and a table has no comments: remove it";

/// Delimiters besides the comma.
const OTHERS: [char; 3] = [';', '\t', '|'];

/// Returns the delimiter of several numbers in one cell.
fn between_numbers(cell: &str) -> Option<char> {
    let is_number = |part: &str| {
        part.contains(|c: char| c.is_ascii_digit()) && part.chars().all(|c| c.is_ascii_digit() || ".,-+eE".contains(c))
    };
    OTHERS.into_iter().find(|&met| cell.contains(met) && cell.split(met).all(is_number))
}

/// Returns the words for the mark of an empty cell.
pub(super) fn marked(cell: &str) -> String {
    if cell.is_empty() { String::new() } else { format!(", as `missing` marks `{}`", printable(cell)) }
}

fn fields(count: usize) -> String {
    if count == 1 { "1 field".into() } else { format!("{count} fields") }
}

impl<'a> Table<'a> {
    pub fn of(csv: &Csv, origin: &'a str, bytes: &'a [u8]) -> Result<Self> {
        Table::of_text(csv, origin, Text::of(bytes, csv.encoding.as_deref(), origin))
    }

    /// Reads a table from its file again for each pass over its rows.
    pub fn of_file(csv: &'a Csv, origin: &'a str) -> Result<Self> {
        Table::of_text(csv, origin, Text::of_file(&csv.file, csv.encoding.as_deref(), origin))
    }

    /// Reads a table from bytes, or from its file.
    pub fn of_either(csv: &'a Csv, origin: &'a str, bytes: Option<&'a [u8]>) -> Result<Self> {
        match bytes {
            Some(bytes) => Table::of(csv, origin, bytes),
            None => Table::of_file(csv, origin),
        }
    }

    fn of_text(csv: &Csv, origin: &'a str, text: Result<(Text<'a>, Option<String>)>) -> Result<Self> {
        let delimiter = u8::try_from(csv.delimiter).ok().filter(|c| c.is_ascii() && !b"\"\r\n".contains(c));
        let delimiter = delimiter.ok_or_else(|| {
            let met = csv.delimiter.escape_debug();
            Error::value(format!("the delimiter `{met}`; allowed: characters of ASCII but quotes and line ends"))
        })?;
        let format = NumberFormat::new(csv.decimal, csv.thousands)?;
        let (text, note) = text?;
        let missing = csv.missing.iter().map(|mark| (mark.clone(), format.number(mark))).collect();
        let (header, width, other_delimiter) = (None, 0, None);
        let (targets, past, is_series) = (csv.target.0.len(), csv.past(), csv.series.is_some());
        let mut table = Table {
            origin,
            text,
            note,
            delimiter,
            format,
            header,
            width,
            missing,
            other_delimiter,
            targets,
            past,
            is_series,
        };
        let Some(first) = table.all_rows().next().transpose()? else {
            return Err(Error::data("the file is empty").in_file(origin));
        };
        if first.fields.get(0).is_some_and(|cell| cell.starts_with("sep=")) {
            let words =
                "`sep=` names the delimiter for Excel; remove this line, and `delimiter` of the run file names it";
            return Err(table.at(first.line, words));
        }
        let ends = [first.fields.get(0), first.fields.iter().next_back()].map(Option::unwrap_or_default);
        if ends[1].ends_with('|') || delimiter == b'|' && first.fields.len() > 2 && ends == ["", ""] {
            let words =
                "the row of a Markdown table, whose cells are between `|`; expected a table such as CSV: `x,y,side`";
            return Err(table.at(first.line, words));
        }
        table.width = first.fields.len();
        table.other_delimiter = match &first.fields {
            // Names have spaces as well, so these come last.
            cells if cells.len() == 1 => {
                let all = [','].into_iter().chain(OTHERS).chain([' ']);
                all.into_iter().find(|met| cells[0].contains(*met) && *met != csv.delimiter)
            }
            _ => None,
        };
        table.check_quotes()?;
        if csv.header {
            let names = first.fields.iter().map(str::to_string).collect();
            table.header = Some(Header::of(first.line, names).map_err(|words| table.at(first.line, words))?);
            table.check_header(csv)?;
        } else if let Some((place, met)) =
            first.fields.iter().enumerate().find_map(|(place, cell)| Some((place, between_numbers(cell)?)))
            && table.width > 1
        {
            let (cell, met) = (printable(&first.fields[place]), met.escape_debug());
            let words = format!(
                "column {}: `{cell}` has several numbers; `delimiter: \"{met}\"` makes columns of them",
                place + 1
            );
            return Err(table.at(first.line, words));
        }
        Ok(table)
    }

    pub fn at(&self, line: usize, words: impl std::fmt::Display) -> Error {
        Error::data(words.to_string()).at(self.origin, line, None)
    }

    pub fn origin(&self) -> &str {
        self.origin
    }

    /// Rejects an unclosed quote, which would make one cell of the rest of the file.
    fn check_quotes(&self) -> Result<()> {
        if !self.text.ends_in_quotes(self.delimiter)? {
            return Ok(());
        }
        let last = self.all_rows().last().transpose()?;
        Err(self.at(last.map_or(1, |row| row.line), "a quote is not closed"))
    }

    /// Iterates over all rows, including the header. Empty lines are skipped.
    fn all_rows(&self) -> impl Iterator<Item = Result<Row>> {
        let mut reader = ReaderBuilder::new();
        reader.delimiter(self.delimiter).has_headers(false).flexible(true).trim(Trim::All).buffer_capacity(1 << 16);
        let mut reader = Kept::new(&self.text).map(|text| reader.from_reader(text));
        let (mut line, mut fields) = (1, StringRecord::new());
        std::iter::from_fn(move || {
            let (start, read) = match &mut reader {
                Ok(reader) => (reader.position().byte(), reader.read_record(&mut fields)),
                Err(error) => return Some(Err(error.clone())),
            };
            match (read, &mut reader) {
                (Ok(false), _) => None,
                (Ok(true), Ok(reader)) => {
                    // The position is that of the end of the row before, so line ends may follow. The reader does not
                    // count a lone CR.
                    line += reader.get_mut().lines_until(start);
                    let fields = match self.delimiter {
                        // Columns are aligned by any number of spaces.
                        b' ' => fields.iter().filter(|field| !field.is_empty()).collect(),
                        _ => fields.clone(),
                    };
                    Some(Ok(Row { line, fields }))
                }
                (Err(error), Ok(met)) => {
                    let error = self.at(line + met.get_mut().lines_until(start), error);
                    reader = Err(error.clone());
                    Some(Err(error))
                }
                (_, Err(_)) => None,
            }
        })
    }

    /// Iterates over the rows of examples, all as long as the first row. Rows without a value, which spreadsheets write at the
    /// end, are left out.
    pub fn rows(&self) -> impl Iterator<Item = Result<Row>> {
        let has_value = |row: &Result<Row>| {
            row.as_ref()
                .is_ok_and(|row| row.fields.len() != self.width || row.fields.iter().any(|cell| !cell.is_empty()))
        };
        let rows = self.all_rows().skip(usize::from(self.header.is_some()));
        rows.filter(move |row| row.is_err() || self.width < 2 || has_value(row)).map(|row| {
            let row = row?;
            let met = row.fields.len();
            if met == self.width {
                return Ok(row);
            }
            let first = if self.header.is_some() { "header" } else { "first row" };
            let digits = |field: &str| field.bytes().all(|byte| byte.is_ascii_digit() || b"+-".contains(&byte));
            let hint = match () {
                () if row.fields.get(0).is_some_and(|cell| cell.starts_with('#')) => COMMENT,
                () if row.fields.iter().any(|cell| cell.contains('\0')) => {
                    "; the row has bytes of 0, as a file that was not written to its end"
                }
                () if self.delimiter == b',' && met > self.width && row.fields.iter().all(digits) => {
                    "; a number with a decimal comma, or with commas between thousands, is in quotes"
                }
                () => "",
            };
            Err(self
                .at(row.line, format!("{}; the {first} has {}{hint}{}", fields(met), self.width, self.header_hint())))
        })
    }

    /// Suggests what reads a header that is a comment, or rows of only one column.
    fn header_hint(&self) -> String {
        let name = self.header.as_ref().and_then(|header| header.names().first());
        if name.is_some_and(|name| name.starts_with('#')) {
            return "; the first line begins with `#`, and a table has no comments: remove it".into();
        }
        let Some(met) = self.other_delimiter else { return String::new() };
        let first = if self.header.is_some() { "header" } else { "first row" };
        format!("; the {first} has one column; `delimiter: \"{}\"` makes several of it", met.escape_debug())
    }

    /// Formats a column with its name, for display.
    pub fn shown(&self, place: usize) -> String {
        match self.header.as_ref().and_then(|header| header.names().get(place)) {
            Some(name) => format!("column {} (`{}`)", place + 1, printable(name)),
            None => format!("column {}", place + 1),
        }
    }

    /// Returns the names of some columns; empty without a header.
    pub fn names(&self, places: &[usize]) -> Vec<String> {
        let Some(header) = &self.header else { return Vec::new() };
        places.iter().map(|&place| header.names()[place].clone()).collect()
    }

    /// Returns the index of a column.
    pub fn place(&self, column: &Column) -> Result<usize> {
        let word = match column {
            Column::Number(number) => number.to_string(),
            Column::Name(name) => name.clone(),
        };
        let unknown = |words: String| Err(Error::data(words).in_file(self.origin).about(word));
        match column {
            Column::Number(number) if (1..=self.width).contains(number) => Ok(number - 1),
            Column::Number(number) => {
                let (width, hint) = (self.width, self.header_hint());
                unknown(format!("there is no column {number}; the file has {width}, counted from 1{hint}"))
            }
            Column::Name(name) => {
                let shown = printable(name);
                let Some(header) = &self.header else {
                    return unknown(format!("a file without a header has no column `{shown}`; allowed: numbers"));
                };
                header.place(name).map_or_else(
                    || {
                        let near = did_you_mean_or_some(name, header.names().iter().map(String::as_str));
                        unknown(format!("there is no column `{shown}`{near}{}", self.header_hint()))
                    },
                    Ok,
                )
            }
        }
    }

    /// Determines the input and the target columns. Targets and ignored columns may be missing if no targets are
    /// needed.
    pub fn uses(&self, csv: &Csv, targets_needed: bool) -> Result<Uses> {
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
                    return Err(Error::data(words).in_file(self.origin));
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
            self.check_inputs_are_named(&inputs)?;
        }
        if inputs.is_empty() && csv.past().is_empty() {
            return Err(Error::data("no column is left for the inputs").in_file(self.origin));
        }
        Ok(Uses { inputs, targets })
    }

    /// Returns the cell of a row in a column of targets.
    pub fn target<'r>(&self, row: &'r Row, place: usize) -> Result<&'r str> {
        self.cell(row, place).map_err(|error| error.ending("; a row whose target is not known is left out of the file"))
    }

    /// Returns the cell of a row in a column.
    pub fn cell<'r>(&self, row: &'r Row, place: usize) -> Result<&'r str> {
        match row.fields.get(place).unwrap_or_default() {
            cell if self.is_empty(cell) => {
                Err(self.at(row.line, format!("{}: the cell is empty{}", self.shown(place), marked(cell))))
            }
            cell => Ok(cell),
        }
    }

    /// Returns whether a cell is empty, or has a mark of such cells: the word itself, or its number in any form.
    pub fn is_empty(&self, cell: &str) -> bool {
        let is_mark = |(mark, number): &(String, Option<f64>)| {
            mark == cell || number.is_some() && *number == self.format.number(cell)
        };
        cell.is_empty() || self.missing.iter().any(is_mark)
    }

    /// Returns the numbers in some columns, row by row, the digits that f32 cannot represent, and notes on those that
    /// f64 cannot.
    pub fn numbers(&self, places: &[usize], are_inputs: bool) -> Result<(Vec<f32>, Wide, Vec<String>)> {
        let mut numbers = Numbers::new(places.len());
        for row in self.rows() {
            let row = row?;
            for &place in places {
                let cell = match row.fields.get(place).unwrap_or_default() {
                    _ if !are_inputs => self.target(&row, place)?,
                    cell if self.is_empty(cell) => return Err(self.empty_input(&row, place, cell)),
                    cell => cell,
                };
                match self.number_of(&row, place, cell, are_inputs)? {
                    (_, Some(large)) => numbers.push_integer(large),
                    (number, None) => numbers.push(number),
                }
            }
        }
        if numbers.is_empty() {
            return Err(Error::data("there are no rows but the header").in_file(self.origin));
        }
        Ok(numbers.into_parts(self.origin, |i| self.shown(places[i])))
    }

    /// Parses the number in a cell of a row as [`number`](Table::number) does, with an error that names its place.
    pub fn number_of(&self, row: &Row, place: usize, cell: &str, is_input: bool) -> Result<(f64, Option<i128>)> {
        self.number(cell).map_err(|words| {
            let is_comment = row.fields.get(0).is_some_and(|first| first.starts_with('#') && !is_error(first));
            let hint = if is_comment { COMMENT.into() } else { self.hint(place, cell, is_input) };
            self.at(row.line, format!("{}: `{}` {words}{hint}", self.shown(place), in_message(cell)))
        })
    }

    /// Parses the number in a cell, along with an integer that f64 may round.
    fn number(&self, cell: &str) -> Result<(f64, Option<i128>), String> {
        let number = self.format.number(cell).ok_or("is not a number")?;
        if !number.is_finite() && !cell.bytes().any(|byte| byte.is_ascii_digit()) {
            return Err("is not a finite number in f32".into());
        }
        if !(number as f32).is_finite() {
            return Err(format!("is not a finite number in f32, whose range ends at {:e}", f32::MAX));
        }
        let large = if number.abs() >= Numbers::LARGE { self.format.integer(cell) } else { None };
        Ok((number, large))
    }

    /// Suggests options that would read a cell of a column, if it looks like a number in another format.
    fn hint(&self, place: usize, cell: &str, is_input: bool) -> String {
        if let Some(c) = cell.chars().find(|c| has_no_width(*c)) {
            return format!("; it has the character {}, which is not visible", c.escape_unicode());
        }
        if self.format.number(cell).is_some_and(|number| !number.is_nan()) {
            return String::new();
        }
        let formats = self.formats(place, cell);
        if formats.is_empty() {
            let header = self.header_hint();
            return match header.is_empty() {
                true if is_input && self.is_series && self.is_alone(place, cell) => {
                    "; nearly all other cells are numbers: correct it".into()
                }
                true if is_input && self.format.told_of(cell).is_none() && self.is_alone(place, cell) => {
                    format!(
                        "; nearly all other cells are numbers: correct it, or `missing: [{}]` with `empty: median` takes it for an \
                         empty one",
                        quoted(cell)
                    )
                }
                true => self.word_hint(place, cell, is_input),
                false => header,
            };
        }
        format!("; it looks like one with {}", formats.join(", or with "))
    }

    /// Returns whether a column is a target whose past a series reads.
    pub(super) fn is_past(&self, place: usize) -> bool {
        self.past.0.iter().any(|column| self.place(column).is_ok_and(|past| past == place))
    }

    /// Returns whether a cell is one of few in a column of numbers.
    fn is_alone(&self, place: usize, cell: &str) -> bool {
        let (mut numbers, mut others) = (0, 0);
        for row in self.rows().map_while(Result::ok) {
            match row.fields.get(place).unwrap_or_default() {
                "" => {}
                met if self.format.number(met).is_some() => numbers += 1,
                _ => others += 1,
            }
        }
        !MARKS.contains(&cell) && !is_error(cell) && others * 20 <= numbers
    }

    /// Describes the other formats in which a cell looks like a number, in words: those of the whole column, if there
    /// are any.
    pub fn formats(&self, place: usize, cell: &str) -> Vec<String> {
        let column = self.rows().map_while(Result::ok).map(|row| row.fields.get(place).unwrap_or_default().to_string());
        let mut formats = self.format.others(&[cell]);
        if formats.len() > 1 {
            let of_all = self.format.others(&column.collect::<Vec<_>>());
            if !of_all.is_empty() {
                formats = of_all;
            }
        }
        formats.into_iter().map(|format| self.format.told_apart(format)).collect()
    }
}
