//! Inputs of columns with words or empty cells.

use std::collections::HashMap;

use precast::error::{Error, Result};

use super::{
    Columns, Csv,
    proposal::has_unit,
    table::{Row, Table, marked},
};
use crate::{
    data::{Cells, Empty, Table as Cellular, TableColumn, WordForm},
    readers::numbers::Numbers,
};

/// Words that often mark an empty cell; pandas reads them so.
pub(super) const MARKS: [&str; 20] = [
    "NA", "N/A", "n/a", "N.A.", "n.a.", "k.A.", "NaN", "nan", "NULL", "null", "Null", "None", "none", "missing",
    "unknown", "?", "-", "--", ".", "#N/A",
];

/// Returns whether a cell has an error of a spreadsheet: `#N/A`, which is `#NV` in German, `#DIV/0!`, `#NAME?`, `Err:502`.
pub(super) fn is_error(cell: &str) -> bool {
    match cell.strip_prefix('#') {
        Some(name) => ["N/A", "NA", "NV"].contains(&name) || name.ends_with(['!', '?']) && !name.contains(' '),
        None => cell.strip_prefix("Err:").is_some_and(|code| code.parse::<u32>().is_ok()),
    }
}

impl Csv {
    /// Returns whether inputs are read as a table, which an encoding makes numbers of.
    pub(super) fn is_encoded(&self) -> bool {
        !self.one_hot.is_empty() || !self.indices.is_empty() || self.empty != Empty::Error
    }
}

impl Table<'_> {
    /// Reads input columns as they are in the file, and notes on integers that f64 cannot represent.
    pub fn cells(&self, csv: &Csv, places: &[usize]) -> Result<(Cellular, Vec<String>)> {
        let forms = self.forms(csv, places)?;
        let mut readers: Vec<Reader> = forms.into_iter().map(Reader::new).collect();
        let mut notes = Vec::new();
        let mut is_empty = true;
        for row in self.rows() {
            let row = row?;
            is_empty = false;
            for (&place, reader) in places.iter().zip(&mut readers) {
                let cell = self.cell_or_none(csv, &row, place)?;
                match reader {
                    Reader::Words { .. } => {
                        let cell = cell.unwrap_or_default();
                        if is_error(cell) {
                            let words = format!("{}: `{cell}` is an error of a spreadsheet", self.shown(place));
                            let cure = format!("if it marks an empty cell: `missing: [\"{cell}\"]`");
                            return Err(self.at(row.line, format!("{words}, and no word; {cure}")));
                        }
                        reader.put_word(cell);
                    }
                    Reader::Numbers { values, large } => {
                        let number = cell.map(|cell| self.number_of(&row, place, cell, true)).transpose()?;
                        values.push(number.map(|(number, _)| number));
                        if let Some((_, Some(integer))) = number {
                            large.push_integer(integer);
                        }
                    }
                }
            }
        }
        if is_empty {
            return Err(Error::data("there are no rows but the header").in_file(self.origin()));
        }
        let columns =
            self.names_or_numbers(places).into_iter().zip(places).zip(readers).map(|((name, &place), reader)| {
                TableColumn {
                    name,
                    cells: match reader {
                        Reader::Words { values, words, form, .. } => Cells::Words { words: words.into(), values, form },
                        Reader::Numbers { values, large } => {
                            notes.extend(large.into_parts(self.origin(), |_| self.shown(place)).2);
                            Cells::Numbers { values, empty: csv.empty }
                        }
                    },
                }
            });
        Ok((Cellular::new(columns.collect())?, notes))
    }

    /// Returns the names of columns, or their numbers if they have none.
    pub(super) fn names_or_numbers(&self, places: &[usize]) -> Vec<String> {
        match self.names(places) {
            names if names.is_empty() => places.iter().map(|place| (place + 1).to_string()).collect(),
            names => names,
        }
    }

    /// Returns the form of the words of each input column; `None` for a column of numbers.
    pub(super) fn forms(&self, csv: &Csv, places: &[usize]) -> Result<Vec<Option<WordForm>>> {
        let one_hot = self.words_of(&csv.one_hot, "one_hot", places)?;
        let indices = self.words_of(&csv.indices, "indices", places)?;
        if let Some(&both) = one_hot.iter().find(|place| indices.contains(place)) {
            let words = format!("{} is named twice, in `one_hot` and in `indices`", self.shown(both));
            return Err(Error::data(words).in_file(self.origin()));
        }
        let form = |&place: &usize| match (one_hot.contains(&place), indices.contains(&place)) {
            (true, _) => Some(WordForm::OneHot),
            (_, true) => Some(WordForm::Indices),
            _ => None,
        };
        Ok(places.iter().map(form).collect())
    }

    /// Returns the places of columns of words, which must be inputs.
    fn words_of(&self, columns: &Columns, option: &str, inputs: &[usize]) -> Result<Vec<usize>> {
        columns
            .0
            .iter()
            .map(|column| match self.place(column)? {
                place if inputs.contains(&place) => Ok(place),
                place => {
                    let words = format!("{} is in `{option}` and is not an input", self.shown(place));
                    Err(Error::data(words).in_file(self.origin()))
                }
            })
            .collect()
    }

    /// Returns the cell of an input; `None` if it is empty and may be so.
    pub(super) fn cell_or_none<'r>(&self, csv: &Csv, row: &'r Row, place: usize) -> Result<Option<&'r str>> {
        let cell = row.fields.get(place).unwrap_or_default();
        if !self.is_empty(cell) {
            return Ok(Some(cell));
        }
        match csv.empty {
            Empty::Error => Err(self.empty_input(row, place, cell)),
            _ => Ok(None),
        }
    }

    /// Describes an empty cell of an input.
    pub(super) fn empty_input(&self, row: &Row, place: usize, cell: &str) -> Error {
        let met = marked(cell);
        let cure = match self.is_series {
            true => "a series has none: write a number, such as that before, or `ignore` leaves the column out",
            false => "`empty: median` or `empty: mean` replaces the empty cells of the inputs",
        };
        self.at(row.line, format!("{}: the cell is empty{met}; {cure}", self.shown(place)))
    }

    /// Suggests what reads a word in a column of numbers.
    pub(super) fn word_hint(&self, place: usize, cell: &str, is_input: bool) -> String {
        if let Some((what, how)) = self.format.told_of(cell) {
            return format!("; it looks like one {what}, and {how}");
        }
        let is_mark = MARKS.contains(&cell) || is_error(cell);
        if self.is_past(place) && !is_mark {
            return "; the target of a series is a number, which is also an input: words are classes with `as: classes`".into();
        }
        if !is_input {
            return match self.targets {
                1 => {
                    "; a row whose target is not known is left out of the file, or words are classes with `as: classes`"
                }
                _ => "; several targets are numbers: for classes, name one target, and put the others under `ignore`",
            }
            .into();
        }
        if is_mark && self.is_series {
            return "; if it marks an empty cell, a series has none: write a number, such as that before".into();
        }
        if is_mark {
            return format!("; if it marks an empty cell: `missing: [\"{cell}\"]` with `empty: median`");
        }
        if has_unit(cell) {
            return "; if it has a unit, numbers are written without".into();
        }
        "; a column of words belongs under `one_hot`, `indices` or `ignore`, or is a `target`".into()
    }
}

/// Cells of a column as they are read.
enum Reader {
    Numbers { values: Vec<Option<f64>>, large: Numbers },
    Words { values: Vec<usize>, words: Vec<String>, places: HashMap<String, usize>, form: WordForm },
}

impl Reader {
    fn new(form: Option<WordForm>) -> Self {
        match form {
            None => Reader::Numbers { values: Vec::new(), large: Numbers::new(1) },
            Some(form) => Reader::Words { values: Vec::new(), words: Vec::new(), places: HashMap::new(), form },
        }
    }

    fn put_word(&mut self, word: &str) {
        let Reader::Words { values, words, places, .. } = self else { return };
        let place = places.get(word).copied().unwrap_or_else(|| {
            words.push(word.into());
            places.insert(word.into(), words.len() - 1);
            words.len() - 1
        });
        values.push(place);
    }
}
