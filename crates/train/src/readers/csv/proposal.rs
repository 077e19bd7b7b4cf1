//! The options with which a table is read, found in its cells once it was not.

use std::collections::{BTreeMap, BTreeSet};

use precast::error::{Error, ErrorKind};
use precast_base::quoted;

use super::{
    Columns, Csv, TargetKind,
    cells::{MARKS, is_error},
    columns::Column,
    number_format::NumberFormat,
    table::Table,
};
use crate::data::Empty;

/// Most words of a column that become columns of 0 and 1, and the least number of rows for each of them.
const FEW: (usize, usize) = (32, 3);

/// Least number of rows that show a column to be of no use.
const MANY: usize = 10;

/// The cells of a column under each format of numbers.
#[derive(Default)]
struct Tally {
    numbers: Vec<usize>,
    empty: usize,
    marks: BTreeMap<String, usize>,
    words: BTreeSet<String>,
    rows: usize,
}

impl Tally {
    fn is_of_numbers(&self, format: usize) -> bool {
        let marks: usize = self.marks.values().sum();
        self.numbers[format] > marks + self.empty && self.numbers[format] + marks + self.empty == self.rows
    }
}

impl Csv {
    /// Adds to an error about the cells of a text the keys with which all of it is read, if it lacks them. Without bytes, the
    /// text is that of the file.
    pub(super) fn with_proposal(&self, error: Error, bytes: Option<&[u8]>) -> Error {
        let is_of_cells = error.kind() == ErrorKind::Data;
        let keys = if is_of_cells { self.proposal(bytes).unwrap_or_default() } else { Vec::new() };
        let words = error.to_string();
        match keys.iter().all(|key| words.contains(key)) {
            true => error,
            false => error.ending(format_args!("; keys that read the whole table: `{}`", keys.join(", "))),
        }
    }

    /// Returns further keys with which a whole text is read that these options do not read: each column as numbers, as words,
    /// or left out. `None` if none are found.
    fn proposal(&self, bytes: Option<&[u8]>) -> Option<Vec<String>> {
        let origin = self.origin();
        let table = Table::of_either(self, &origin, bytes).ok()?;
        let delimiter = table.other_delimiter().unwrap_or(self.delimiter);
        let (split, mut found) = (Csv { delimiter, ..self.clone() }, Csv { delimiter, ..self.clone() });
        let table = Table::of_either(&split, &origin, bytes).ok()?;
        let places =
            |columns: &Columns| columns.0.iter().map(|column| table.place(column)).collect::<Result<Vec<_>, _>>();
        let targets = places(&self.target).ok()?;
        let [ignored, chosen, one_hot, indices] =
            [&self.ignore, &self.columns, &self.one_hot, &self.indices].map(|columns| places(columns).ok());
        let is_input = |place: &usize| {
            let is_left_out =
                ignored.as_ref().is_some_and(|ignored| ignored.contains(place)) || targets.contains(place);
            !is_left_out && chosen.as_ref().is_none_or(|chosen| chosen.is_empty() || chosen.contains(place))
        };
        let inputs: Vec<usize> = (0..table.width).filter(is_input).collect();
        // The targets show the format as well.
        let numbers: Vec<usize> = match self.kind() {
            Some(TargetKind::Classes) => inputs.clone(),
            _ => inputs.iter().chain(&targets).copied().collect(),
        };
        let formats = NumberFormat::all();
        let mut tallies: Vec<Tally> =
            numbers.iter().map(|_| Tally { numbers: vec![0; formats.len()], ..Tally::default() }).collect();
        for row in table.rows() {
            let row = row.ok()?;
            for (&place, tally) in numbers.iter().zip(&mut tallies) {
                let cell = row.fields.get(place).unwrap_or_default();
                tally.rows += 1;
                if cell.is_empty() || self.missing.iter().any(|mark| mark == cell) {
                    tally.empty += 1;
                    continue;
                }
                if MARKS.contains(&cell) || is_error(cell) {
                    *tally.marks.entry(cell.into()).or_default() += 1;
                } else {
                    let reads =
                        |format: &NumberFormat| format.number(cell).is_some_and(|number| (number as f32).is_finite());
                    let numbers = tally.numbers.iter_mut().zip(&formats);
                    numbers.for_each(|(count, format)| *count += usize::from(reads(format)));
                }
                if tally.words.len() <= FEW.0 {
                    tally.words.insert(cell.into());
                }
            }
        }
        // The format of most columns, and of these the nearest one. Two that are as near are not told apart.
        let own = NumberFormat::new(self.decimal, self.thousands).ok()?;
        let rank = |place: usize| {
            let columns = tallies.iter().filter(|tally| tally.is_of_numbers(place)).count();
            (columns, std::cmp::Reverse(own.differences(formats[place])))
        };
        let best = (0..formats.len()).max_by_key(|&place| rank(place))?;
        if (0..formats.len()).any(|place| place != best && rank(place) == rank(best)) {
            return None;
        }
        (found.decimal, found.thousands) = formats[best].separators();
        let is_word =
            |place: &usize| [&one_hot, &indices].iter().any(|of| of.as_ref().is_some_and(|of| of.contains(place)));
        let name = |place: usize| match &table.names(&[place])[..] {
            [name] => Column::Name(name.clone()),
            _ => Column::Number(place + 1),
        };
        let (mut some_empty, mut marks) = (false, BTreeSet::new());
        for (&place, tally) in inputs.iter().zip(&tallies) {
            let is_few = tally.words.len() <= FEW.0 && tally.words.len() * FEW.1 <= tally.rows;
            if tally.is_of_numbers(best) {
                for mark in tally.marks.keys().filter(|mark| !self.missing.contains(mark)) {
                    marks.insert(mark.clone());
                }
                some_empty |= tally.empty + tally.marks.len() > 0;
            } else if is_word(&place) || is_few {
                some_empty |= tally.empty > 0;
                if !is_word(&place) {
                    found.one_hot.0.push(name(place));
                }
            } else if 2 * tally.numbers[best] > tally.rows || tally.rows < MANY {
                // A cell is wrong, and not the column; or there are too few to tell.
                return None;
            } else {
                found.ignore.0.push(name(place));
            }
        }
        found.missing.extend(marks);
        if some_empty && self.empty == Empty::Error {
            found.empty = Empty::Median;
        }
        let read = match bytes {
            Some(bytes) => found.dataset_read(bytes, true),
            None => found.stored_read(true),
        };
        read.ok().map(|_| found.differing(self))
    }

    /// Returns the keys in which these options differ from others, as in a run file.
    fn differing(&self, from: &Csv) -> Vec<String> {
        let quote = |c: char| quoted(&c.to_string());
        let list = |items: Vec<String>| format!("[{}]", items.join(", "));
        let column = |column: &Column| match column {
            Column::Name(name) => quoted(name),
            Column::Number(number) => number.to_string(),
        };
        let columns = |columns: &Columns| list(columns.0.iter().map(column).collect());
        let keys = [
            (self.delimiter != from.delimiter).then(|| format!("delimiter: {}", quote(self.delimiter))),
            (self.decimal != from.decimal).then(|| format!("decimal: {}", quote(self.decimal))),
            self.thousands.filter(|_| self.thousands != from.thousands).map(|c| format!("thousands: {}", quote(c))),
            (self.one_hot != from.one_hot).then(|| format!("one_hot: {}", columns(&self.one_hot))),
            (self.ignore != from.ignore).then(|| format!("ignore: {}", columns(&self.ignore))),
            (self.missing != from.missing)
                .then(|| format!("missing: {}", list(self.missing.iter().map(|mark| quoted(mark)).collect()))),
            (self.empty != from.empty).then(|| "empty: median".to_string()),
        ];
        keys.into_iter().flatten().collect()
    }
}
