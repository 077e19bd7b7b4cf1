//! Tables that are not held in memory: their cells as numbers, in a temporary file.

use std::{collections::HashMap, io::Write, sync::Arc};

use precast::error::{Error, Result};

use super::{Csv, table::Table};
use crate::{
    data::{
        Cells, Dataset, Empty, Inputs, Table as Cellular, TableColumn, Targets, WordForm,
        numbers::Wide,
        origin::{Parts, Read},
    },
    readers::{
        numbers::Numbers,
        rows::{Rows, failed},
    },
};

/// A column of the file of numbers.
#[derive(Clone)]
struct Column {
    /// Name, or number; and both for messages.
    name: String,
    shown: String,
    /// Words with the form of their numbers; `None` for numbers.
    words: Option<(WordForm, Arc<Vec<String>>)>,
    some_empty: bool,
}

/// Inputs of a table in a file of numbers: a row of f64 for each example. An empty cell is NaN, a word its index.
struct StoredTable {
    rows: Rows,
    columns: Vec<Column>,
    /// Handling of empty cells, if the inputs are read as a table.
    empty: Option<Empty>,
}

impl Csv {
    /// Reads the examples into a temporary file of numbers, from which they are read when they are needed.
    pub(super) fn stored(&self, with_targets: bool) -> Result<Dataset> {
        let read = self.stored_read(with_targets);
        read.map_err(|error| if with_targets { self.with_proposal(error, None) } else { error })
    }

    pub(super) fn stored_read(&self, with_targets: bool) -> Result<Dataset> {
        let origin = self.origin();
        let table = Table::of_file(self, &origin)?;
        let uses = table.uses(self, with_targets)?;
        let (inputs, len) = table.stored(self, &uses.inputs)?;
        let mut found = table.targets(self, if with_targets { &uses.targets } else { &[] })?;
        found.notes.extend(table.note.clone());
        let data = Dataset::stored(len, found.targets, move |places| inputs.read(places))?
            .with_class_names(found.class_names)?
            .with_input_names(table.names(&uses.inputs));
        let origins = Parts { inputs: origin.clone(), targets: origin.clone() };
        let wide = Parts { inputs: Wide::default(), targets: found.wide };
        Ok(data.with_origin(wide, Read { origins, notes: found.notes }))
    }
}

impl Table<'_> {
    /// Writes the inputs to a file of numbers, and returns it with the number of examples.
    fn stored(&self, csv: &Csv, places: &[usize]) -> Result<(StoredTable, usize)> {
        let forms = if csv.is_encoded() { self.forms(csv, places)? } else { vec![None; places.len()] };
        let mut words = vec![HashMap::<String, usize>::new(); places.len()];
        let mut some_empty = vec![false; places.len()];
        let write = |file: &mut dyn Write| {
            let mut len = 0;
            for row in self.rows() {
                let row = row?;
                len += 1;
                for (i, &place) in places.iter().enumerate() {
                    let cell = match csv.is_encoded() {
                        true => self.cell_or_none(csv, &row, place)?,
                        false => match row.fields.get(place).unwrap_or_default() {
                            "" => return Err(self.empty_input(&row, place, "")),
                            cell => Some(cell),
                        },
                    };
                    let number = match (forms[i], cell) {
                        (Some(_), cell) => {
                            let (word, next) = (cell.unwrap_or_default(), words[i].len());
                            let known = words[i].get(word).copied();
                            known.unwrap_or_else(|| *words[i].entry(word.into()).or_insert(next)) as f64
                        }
                        (None, None) => {
                            some_empty[i] = true;
                            f64::NAN
                        }
                        (None, Some(cell)) => match self.number_of(&row, place, cell, true)? {
                            (_, Some(integer)) => integer as f64,
                            (number, None) => number,
                        },
                    };
                    file.write_all(&number.to_le_bytes()).map_err(|error| failed("a temporary file", &error))?;
                }
            }
            Ok(len)
        };
        let (rows, len) = Rows::written(self.origin(), places.len() * size_of::<f64>(), write)?;
        if len == 0 {
            return Err(Error::data("there are no rows but the header").in_file(self.origin()));
        }
        let columns = self.names_or_numbers(places).into_iter().enumerate().map(|(i, name)| {
            let mut sorted: Vec<(String, usize)> = words[i].drain().collect();
            sorted.sort_unstable_by_key(|(_, index)| *index);
            let words = Arc::new(sorted.into_iter().map(|(word, _)| word).collect());
            let words = forms[i].map(|form| (form, words));
            Column { name, shown: self.shown(places[i]), words, some_empty: some_empty[i] }
        });
        let columns = columns.collect();
        Ok((StoredTable { rows, columns, empty: csv.is_encoded().then_some(csv.empty) }, len))
    }
}

impl StoredTable {
    fn read(&self, places: &[usize]) -> Result<Dataset> {
        let bytes = self.rows.read(places)?;
        let (cells, _) = bytes.as_chunks();
        let numbers = cells.iter().map(|cell| f64::from_le_bytes(*cell));
        let width = self.columns.len();
        let Some(empty) = self.empty else {
            let mut all = Numbers::new(width);
            numbers.for_each(|number| all.push(number));
            let (values, inputs, _) = all.into_parts(self.rows.origin(), |i| self.columns[i].shown.clone());
            let data = Dataset::of(Inputs::Numbers(values), &[width], Targets::None)?;
            return Ok(data.with_origin(Parts { inputs, targets: Wide::default() }, Read::default()));
        };
        let column = |(i, column): (usize, &Column)| {
            let cells = numbers.clone().skip(i).step_by(width);
            let cells = match &column.words {
                None => Cells::Numbers { values: cells.map(|x| (!x.is_nan()).then_some(x)).collect(), empty },
                Some((form, words)) => {
                    Cells::Words { words: words.clone(), values: cells.map(|x| x as usize).collect(), form: *form }
                }
            };
            TableColumn { name: column.name.clone(), cells }
        };
        let table = Cellular::new(self.columns.iter().enumerate().map(column).collect())?;
        let table = table.with_some_empty(self.columns.iter().map(|column| column.some_empty).collect());
        Dataset::of(Inputs::Table(table), &[width], Targets::None)
    }
}
