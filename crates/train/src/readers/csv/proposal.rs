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
    marks: usize,
    /// The other cells, up to a number of different ones, with the rows of each.
    words: BTreeMap<String, usize>,
    /// Cells that are numbers with a unit, in parentheses or the like.
    odd: usize,
    rows: usize,
}

impl Tally {
    /// Returns the words that mark empty cells, if all others are numbers in a format: those that often do, and a few that most
    /// numbers are without and that are met again and again.
    fn marks_among_numbers(&self, format: usize) -> Option<Vec<String>> {
        let numbers = self.numbers[format];
        let others = self.rows - self.empty - numbers;
        let is_read = |(word, _): &(&String, &usize)| MARKS.contains(&&word[..]) || is_error(word);
        let unread: Vec<usize> = self.words.iter().filter(|of| !is_read(of)).map(|(_, count)| *count).collect();
        let is_mark = unread.len() <= 2 && unread.iter().all(|count| *count > 2) && 2 * others < self.rows;
        let known: usize = self.words.values().sum();
        let are_marks = (unread.is_empty() || is_mark) && known == others && numbers > 0;
        are_marks.then(|| self.words.keys().cloned().collect())
    }
}

/// Returns whether a cell is a number with a unit of a few letters behind it: `5 kg`, `2.5km`.
pub(super) fn has_unit(cell: &str) -> bool {
    let unit = cell.trim_start_matches(|c: char| c.is_ascii_digit() || "+-., ".contains(c));
    let number = cell[..cell.len() - unit.len()].trim_end();
    let is_short = (1..=4).contains(&unit.chars().count()) && unit.chars().all(char::is_alphabetic);
    is_short && number.ends_with(|c: char| c.is_ascii_digit()) && !number.contains(' ')
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
        // A column of words may be the target that is not named.
        if self.target.is_empty() {
            return None;
        }
        let origin = self.origin();
        let table = Table::of_either(self, &origin, bytes).ok()?;
        let delimiter = table.other_delimiter.unwrap_or(self.delimiter);
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
                if table.is_empty(cell) {
                    tally.empty += 1;
                    continue;
                }
                let mut is_number = false;
                for (count, format) in tally.numbers.iter_mut().zip(&formats) {
                    let reads = format.number(cell).is_some_and(|number| (number as f32).is_finite());
                    *count += usize::from(reads);
                    is_number |= reads;
                }
                tally.marks += usize::from(MARKS.contains(&cell));
                if !is_number && (tally.words.len() <= FEW.0 || tally.words.contains_key(cell)) {
                    *tally.words.entry(cell.into()).or_default() += 1;
                }
                tally.odd += usize::from(!is_number && (table.format.told_of(cell).is_some() || has_unit(cell)));
            }
        }
        // The format of most columns, and of these the nearest one. Two that are as near are not told apart.
        let own = NumberFormat::new(self.decimal, self.thousands).ok()?;
        let rank = |place: usize| {
            let columns = tallies.iter().filter(|tally| tally.marks_among_numbers(place).is_some()).count();
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
            let met = tally.rows - tally.empty;
            let is_few = tally.words.len() <= FEW.0 && tally.words.len() * FEW.1 <= tally.rows;
            if let Some(of_column) = tally.marks_among_numbers(best) {
                some_empty |= tally.empty + of_column.len() > 0;
                marks.extend(of_column);
            } else if is_word(&place) {
                some_empty |= tally.empty > 0;
            } else if met == tally.marks {
                // Nothing is known of it.
                found.ignore.0.push(name(place));
            } else if 2 * tally.odd > met || formats.iter().enumerate().any(|(i, _)| 2 * tally.numbers[i] > met) {
                // Numbers that are written in another way, or some cells that are wrong.
                return None;
            } else if is_few {
                some_empty |= tally.empty > 0;
                found.one_hot.0.push(name(place));
            } else if tally.rows < MANY {
                return None;
            } else {
                found.ignore.0.push(name(place));
            }
        }
        marks.retain(|mark| !self.missing.contains(mark));
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
        let columns = |columns: &Columns| match &columns.0[..] {
            [one] => column(one),
            all => list(all.iter().map(column).collect()),
        };
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
