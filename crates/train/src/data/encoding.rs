//! Encoding of tables as numbers.

use std::collections::BTreeSet;

use precast::error::{Error, Result};
use precast_base::printable;
use serde::{Deserialize, Serialize};

use super::{
    Dataset, Inputs,
    encoded::{Encoded, Numbers},
    numbers::Wide,
    table::{Cells, Empty, Table, TableColumn, WordForm},
};

/// Numbers for the words and the empty cells of a [`Table`], learnt from examples for [encoding](Dataset::encoded) these
/// and others.
///
/// | column | becomes |
/// | --- | --- |
/// | numbers | the same; an empty cell becomes the mean or the median of the learnt examples, and if the table has some, a column of flags follows: 1 where the cell is empty |
/// | words, [`OneHot`](WordForm::OneHot) | a column for each word, in order: 1 where the cell has it, 0 elsewhere |
/// | words, [`Indices`](WordForm::Indices) | an index from 1, in the order of the words; 0 for another word |
///
/// If some columns become indices and others numbers, the numbers are the first input of an example and the indices a
/// [further](Dataset::with_further) one, which a [`ColumnEmbedding`](precast::layers::ColumnEmbedding) joins.
///
/// The columns are those of the whole table, whatever part of it is learnt from. A word or a flag that no learnt example
/// has is 0, as a network has not learnt what it means.
///
/// ```
/// use precast_train::data::{Cells, Dataset, Empty, Encoding, Inputs, Table, TableColumn, Targets, WordForm};
/// let years = Cells::Numbers { values: vec![Some(1990.0), None, Some(2010.0)], empty: Empty::Mean };
/// let words = vec!["Bergen".to_string(), "Oslo".to_string()].into();
/// let city = Cells::Words { words, values: vec![1, 0, 1], form: WordForm::OneHot };
/// let columns = [("year", years), ("city", city)].map(|(name, cells)| TableColumn { name: name.into(), cells });
/// let houses = Dataset::of(Inputs::Table(Table::new(columns.into())?), &[2], Targets::None)?;
///
/// let encoded = houses.encoded(&Encoding::of(&houses)?)?;
/// assert_eq!(encoded.input_names(), ["year", "year is empty", "city=Bergen", "city=Oslo"]);
/// let rows = [1990.0, 0.0, 0.0, 1.0, 2000.0, 1.0, 1.0, 0.0, 2010.0, 0.0, 0.0, 1.0];
/// assert_eq!(*encoded.inputs(), Inputs::Numbers(rows.into()));
/// # Ok::<(), precast::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Encoding {
    columns: Vec<Learnt>,
}

/// A column as it is encoded.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Learnt {
    name: String,
    #[serde(flatten)]
    code: Code,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Code {
    Number {
        /// Replacement of an empty cell.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        empty: Option<f64>,
        #[serde(default, skip_serializing_if = "Flag::is_none")]
        flag: Flag,
    },
    OneHot(Words),
    Indices(Words),
}

/// Column of flags of a column with empty cells.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Flag {
    #[default]
    None,
    /// Only 0, because no learnt cell is empty.
    Zero,
    Learnt,
}

impl Flag {
    fn is_none(&self) -> bool {
        *self == Flag::None
    }
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Words {
    /// Words, sorted.
    words: Vec<String>,
    /// Those among them that no learnt example has.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    unseen: BTreeSet<String>,
}

impl Words {
    /// Returns the index of each of some words; `None` for one that has not been learnt.
    fn places(&self, words: &[String]) -> Vec<Option<usize>> {
        words.iter().map(|word| self.place(word)).collect()
    }

    /// Returns the index of a learnt word.
    fn place(&self, word: &str) -> Option<usize> {
        if self.unseen.contains(word) {
            return None;
        }
        self.words.binary_search_by(|met| met.as_str().cmp(word)).ok()
    }
}

impl Encoding {
    /// Learns the encoding of examples whose inputs are a [`Table`].
    ///
    /// # Errors
    /// [`ErrorKind::Data`](precast::ErrorKind::Data) when the inputs are not a table, there are no examples, and when a column
    /// of numbers has only empty cells.
    pub fn of(data: &Dataset) -> Result<Self> {
        let Inputs::Table(table) = data.form() else {
            return Err(Error::data("the inputs are numbers already; an encoding is learnt from a table"));
        };
        if data.is_empty() {
            return Err(Error::data("there are no examples to learn the encoding from"));
        }
        let columns = table.columns().iter().enumerate().map(|(i, column)| {
            let mut met = Met::default();
            data.each_part(|part| {
                if let Inputs::Table(table) = part.inputs() {
                    met.put(&table.columns()[i].cells);
                }
                Ok(())
            })?;
            let code = code(column, met, table.some_empty(i))?;
            Ok(Learnt { name: column.name.clone(), code })
        });
        Ok(Encoding { columns: columns.collect::<Result<_>>()? })
    }

    /// Returns whether all columns become indices.
    pub(crate) fn is_of_indices(&self) -> bool {
        self.columns.iter().all(|learnt| matches!(learnt.code, Code::Indices(_)))
    }

    /// Returns the columns that become indices: the name of each with the number of its indices, which is one more than
    /// that of its words, for 0.
    pub fn indices(&self) -> Vec<(String, usize)> {
        let of = |Learnt { name, code }: &Learnt| match code {
            Code::Indices(known) => Some((name.clone(), known.words.len() + 1)),
            _ => None,
        };
        self.columns.iter().filter_map(of).collect()
    }

    /// Returns the number of elements of the first input of an encoded example.
    pub(crate) fn width(&self) -> usize {
        let all = self.is_of_indices();
        let of = |Learnt { code, .. }: &Learnt| match code {
            Code::Number { flag: Flag::Zero | Flag::Learnt, .. } => 2,
            Code::OneHot(known) => known.words.len(),
            Code::Indices(_) if !all => 0,
            _ => 1,
        };
        self.columns.iter().map(of).sum()
    }

    /// Returns the names of the elements of the first input of an encoded example: the numbers, or the indices if there
    /// are only these.
    pub fn names(&self) -> Vec<String> {
        let all = self.is_of_indices();
        let of = |Learnt { name, code }: &Learnt| match code {
            Code::Number { flag: Flag::Zero | Flag::Learnt, .. } => vec![name.clone(), format!("{name} is empty")],
            Code::OneHot(known) => known.words.iter().map(|word| named(name, word)).collect(),
            Code::Indices(_) if !all => Vec::new(),
            _ => vec![name.clone()],
        };
        self.columns.iter().flat_map(of).collect()
    }

    /// Returns notes on the words and the empty cells of a table that have not been learnt, one for each column that has
    /// some.
    pub fn notes_on(&self, data: &Dataset) -> Vec<String> {
        let mut found = vec![(0, None); self.columns.len()];
        // An error of reading stored examples is that of their first batch.
        let _ = data.each_part(|part| {
            let Inputs::Table(table) = part.inputs() else { return Ok(()) };
            for ((learnt, column), (count, first)) in self.columns.iter().zip(table.columns()).zip(&mut found) {
                let (more, word) = learnt.new_in(&column.cells);
                *count += more;
                *first = first.take().or(word);
            }
            Ok(())
        });
        self.columns.iter().zip(found).filter_map(|(learnt, (count, first))| learnt.note(count, first)).collect()
    }

    /// Returns the encoded columns of a table: those of numbers, and those of indices.
    fn encoded(&self, table: &Table) -> Result<Encoded> {
        let (learnt, met) = (self.columns.len(), table.columns().len());
        if learnt != met {
            return Err(Error::data(format!("a table of {met} columns; the encoding was learnt from {learnt}")));
        }
        let Encoded { mut numbers, mut indices } = Encoded::default();
        for (Learnt { name, code }, column) in self.columns.iter().zip(table.columns()) {
            let wrong = |words: String| Err(Error::data(format!("column `{}`: {words}", printable(name))));
            match (code, &column.cells) {
                (Code::Number { empty, flag }, Cells::Numbers { values, .. }) => {
                    if let (None, Some(i)) = (empty, values.iter().position(Option::is_none)) {
                        return wrong(format!("the cell of example {i} is empty"));
                    }
                    let values_of = values.iter().map(|value| value.or(*empty).unwrap_or_default());
                    numbers.push(Numbers::Of(values_of.collect()));
                    let is_flagged = |value: &Option<f64>| value.is_none() && *flag == Flag::Learnt;
                    if *flag != Flag::None {
                        let flags = values.iter().map(|value| is_flagged(value).then_some(0));
                        numbers.push(Numbers::OneHot { columns: 1, ones: flags.collect() });
                    }
                }
                (Code::OneHot(known), Cells::Words { words, values, .. }) => {
                    let place = known.places(words);
                    let ones = values.iter().map(|&index| place[index]).collect();
                    numbers.push(Numbers::OneHot { columns: known.words.len(), ones });
                }
                (Code::Indices(known), Cells::Words { words, values, .. }) => {
                    let place = known.places(words);
                    indices.push(values.iter().map(|&index| place[index].map_or(0, |i| i as i64 + 1)).collect());
                }
                (Code::Number { .. }, _) => return wrong("words; the encoding was learnt from numbers".into()),
                _ => return wrong("numbers; the encoding was learnt from words".into()),
            }
        }
        Ok(Encoded { numbers, indices })
    }

    /// Checks that there is memory for so many examples.
    fn check_memory(&self, examples: usize) -> Result<()> {
        let words = |learnt: &Learnt| if let Code::OneHot(known) = &learnt.code { known.words.len() } else { 0 };
        let bytes = examples.saturating_mul(self.width()).saturating_mul(size_of::<f32>());
        let most = self.columns.iter().max_by_key(|learnt| words(learnt));
        match (most, Vec::<u8>::new().try_reserve_exact(bytes)) {
            (Some(most), Err(_)) => Err(Error::data(format!(
                "column `{}`: its {} words as columns of 0 and 1 of {examples} examples take {} GiB, more memory than \
                 there is; `indices` makes one number of each word, for an embedding",
                printable(&most.name),
                words(most),
                bytes >> 30
            ))
            .about("indices")),
            _ => Ok(()),
        }
    }
}

impl Learnt {
    /// Returns the number of cells that have not been learnt, and the first word among them.
    fn new_in(&self, cells: &Cells) -> (usize, Option<String>) {
        match (&self.code, cells) {
            // Where training examples had empty cells, a flag says so to the network.
            (Code::Number { empty: Some(_), flag: Flag::None | Flag::Zero }, Cells::Numbers { values, .. }) => {
                (values.iter().filter(|value| value.is_none()).count(), None)
            }
            (Code::OneHot(known) | Code::Indices(known), Cells::Words { words, values, .. }) => {
                let place = known.places(words);
                let is_new = |index: &&usize| place[**index].is_none();
                let first = values.iter().find(is_new).map(|&index| words[index].clone());
                (values.iter().filter(is_new).count(), first)
            }
            _ => (0, None),
        }
    }

    /// Returns a note on so many cells that have not been learnt, the first with this word.
    fn note(&self, count: usize, first: Option<String>) -> Option<String> {
        let name = printable(&self.name);
        let examples = if count == 1 { "example has" } else { "examples have" };
        let word = match (&self.code, first) {
            _ if count == 0 => return None,
            (Code::Number { empty, .. }, _) => {
                let empty = empty.unwrap_or_default();
                return Some(format!(
                    "column `{name}`: {count} {examples} an empty cell and no training example has, read as {empty}"
                ));
            }
            (_, Some(word)) if !word.is_empty() => format!("`{}`", printable(&word)),
            _ => "an empty cell".into(),
        };
        let becomes = if matches!(self.code, Code::OneHot(_)) { "0 in all its columns" } else { "the index 0" };
        Some(format!(
            "column `{name}`: {count} {examples} a word that no training example has, such as {word}, which becomes \
             {becomes}"
        ))
    }
}

/// Returns the name of the column of a word.
fn named(column: &str, word: &str) -> String {
    if word.is_empty() { format!("{column} is empty") } else { format!("{column}={word}") }
}

/// Cells of a column that were met.
#[derive(Default)]
struct Met {
    words: BTreeSet<usize>,
    /// Numbers, if they are needed.
    numbers: Vec<f64>,
    some_empty: bool,
}

impl Met {
    fn put(&mut self, cells: &Cells) {
        match cells {
            Cells::Words { values, .. } => self.words.extend(values),
            Cells::Numbers { empty: Empty::Error, .. } => {}
            Cells::Numbers { values, .. } => {
                self.numbers.extend(values.iter().flatten());
                self.some_empty |= values.contains(&None);
            }
        }
    }
}

/// Learns the code of a column from cells that were met.
fn code(TableColumn { name, cells }: &TableColumn, met: Met, some_empty: bool) -> Result<Code> {
    match cells {
        Cells::Words { words: all, form, .. } => {
            let met = met.words;
            let unseen =
                all.iter().enumerate().filter(|(i, _)| !met.contains(i)).map(|(_, word)| word.clone()).collect();
            let words: BTreeSet<&String> = all.iter().collect();
            let words = Words { words: words.into_iter().cloned().collect(), unseen };
            Ok(if *form == WordForm::OneHot { Code::OneHot(words) } else { Code::Indices(words) })
        }
        Cells::Numbers { empty: Empty::Error, .. } => Ok(Code::Number { empty: None, flag: Flag::None }),
        Cells::Numbers { empty, .. } => {
            let numbers = met.numbers;
            let flag = match (some_empty, met.some_empty) {
                (false, _) => Flag::None,
                (true, false) => Flag::Zero,
                (true, true) => Flag::Learnt,
            };
            if numbers.is_empty() {
                let name = printable(name);
                let words = format!("column `{name}` is empty in all training examples; `ignore` leaves it out");
                return Err(Error::data(words));
            }
            let empty = if *empty == Empty::Mean { mean(&numbers) } else { median(numbers) };
            Ok(Code::Number { empty: Some(empty), flag })
        }
    }
}

/// Returns the mean, as sums of parts, so that no sum leaves the range of f64.
fn mean(numbers: &[f64]) -> f64 {
    let count = numbers.len() as f64;
    let sum: f64 = numbers.iter().sum();
    if sum.is_finite() { sum / count } else { numbers.iter().map(|x| x / count).sum() }
}

/// Returns the number in the middle, or the mean of the two.
fn median(mut numbers: Vec<f64>) -> f64 {
    numbers.sort_unstable_by(f64::total_cmp);
    let middle = numbers.len() / 2;
    if numbers.len() % 2 == 1 { numbers[middle] } else { f64::midpoint(numbers[middle - 1], numbers[middle]) }
}

impl Dataset {
    /// Returns the examples with a table encoded as numbers and indices; see [`Encoding`].
    ///
    /// # Errors
    /// [`ErrorKind::Data`](precast::ErrorKind::Data) when the inputs are not a table, or one with other columns, and for an
    /// empty cell in a column without a replacement, and when the encoded examples do not fit into memory.
    pub fn encoded(&self, by: &Encoding) -> Result<Dataset> {
        if let (Inputs::Stored(_), Inputs::Table(_)) = (self.inputs(), self.form()) {
            let by = by.clone();
            return self.later(move |part| part.encoded(&by));
        }
        let Inputs::Table(table) = self.inputs() else {
            return Err(Error::data("the inputs are numbers already; an encoding is for a table"));
        };
        by.check_memory(self.len())?;
        let Encoded { numbers, indices } = by.encoded(table)?;
        let names = by.names();
        let index_row = |i: usize| indices.iter().map(move |column| column[i]);
        let index_rows = || Inputs::Indices((0..self.len()).flat_map(index_row).collect());
        if numbers.is_empty() {
            let encoded = self.with_encoded(index_rows(), indices.len(), Wide::default());
            return Ok(encoded.with_input_names(names));
        }
        let width = by.width();
        let mut values = vec![0f32; width * self.len()];
        for (example, mut row) in values.chunks_exact_mut(width.max(1)).enumerate() {
            for column in &numbers {
                let (own, rest) = row.split_at_mut(column.columns());
                column.put(example, own);
                row = rest;
            }
        }
        let mut wide = Vec::with_capacity(width);
        for column in numbers {
            wide.extend(column.into_wide(&names[wide.len()]));
        }
        let wide = Wide::new(wide);
        let encoded = self.with_encoded(Inputs::Numbers(values), width, wide).with_input_names(names);
        if indices.is_empty() { Ok(encoded) } else { encoded.with_further(index_rows(), &[indices.len()]) }
    }
}
