//! Encoding of tables as numbers.

use std::collections::BTreeSet;

use precast_policy::printable;
use serde::{Deserialize, Serialize};

use super::{
    Dataset, Inputs,
    numbers::Wide,
    table::{Cells, Empty, Table, TableColumn, WordForm},
};
use crate::error::{Error, Result};

/// Numbers for the words and the empty cells of a [`Table`], learnt from examples for [encoding](Dataset::encoded) these
/// and others.
///
/// | column | becomes |
/// | --- | --- |
/// | numbers | the same; an empty cell becomes the mean or the median of the learnt examples, and if the table has some, a column of flags follows: 1 where the cell is empty |
/// | words, [`OneHot`](WordForm::OneHot) | a column for each word, in order: 1 where the cell has it, 0 elsewhere |
/// | words, [`Indices`](WordForm::Indices) | an index from 1, in the order of the words; 0 for another word |
///
/// The columns are those of the whole table, whatever part of it is learnt from. A word or a flag that no learnt example
/// has is 0, as a network has not learnt what it means.
///
/// ```
/// use precast::data::{Cells, Dataset, Empty, Encoding, Inputs, Table, TableColumn, Targets, WordForm};
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
    /// [`ErrorKind::Data`](crate::ErrorKind::Data) when the inputs are no table, there are no examples, a column of
    /// numbers has only empty cells, and when some columns become indices and others do not.
    pub fn of(data: &Dataset) -> Result<Self> {
        let Inputs::Table(table) = data.inputs() else {
            return Err(Error::data("the inputs are numbers already; an encoding is learnt from a table"));
        };
        if data.is_empty() {
            return Err(Error::data("there are no examples to learn the encoding from"));
        }
        let columns = table.columns().iter().enumerate().map(|(i, column)| {
            let code = code(column, table.some_empty(i))?;
            Ok(Learnt { name: column.name.clone(), code })
        });
        let encoding = Encoding { columns: columns.collect::<Result<_>>()? };
        encoding.check_forms()?;
        Ok(encoding)
    }

    /// Refuses indices beside numbers, which a batch of one dtype cannot hold.
    fn check_forms(&self) -> Result<()> {
        let is_index = |learnt: &&Learnt| matches!(learnt.code, Code::Indices(_));
        let (Some(index), Some(other)) =
            (self.columns.iter().find(is_index), self.columns.iter().find(|learnt| !is_index(learnt)))
        else {
            return Ok(());
        };
        Err(Error::data(format!(
            "column `{}` becomes indices and column `{}` numbers, and inputs have one dtype; as `one_hot`, words become \
             numbers",
            printable(&index.name),
            printable(&other.name)
        ))
        .about("indices"))
    }

    /// Returns whether all columns become indices.
    #[doc(hidden)]
    pub fn is_of_indices(&self) -> bool {
        self.columns.iter().all(|learnt| matches!(learnt.code, Code::Indices(_)))
    }

    /// Returns the names of the elements of an encoded input.
    pub fn names(&self) -> Vec<String> {
        let of = |Learnt { name, code }: &Learnt| match code {
            Code::Number { flag: Flag::Zero | Flag::Learnt, .. } => vec![name.clone(), format!("{name} is empty")],
            Code::OneHot(known) => known.words.iter().map(|word| named(name, word)).collect(),
            _ => vec![name.clone()],
        };
        self.columns.iter().flat_map(of).collect()
    }

    /// Returns notes on the words and the empty cells of a table that have not been learnt, one for each column that has
    /// some.
    pub fn notes_on(&self, data: &Dataset) -> Vec<String> {
        let Inputs::Table(table) = data.inputs() else { return Vec::new() };
        let note = |(Learnt { name, code }, column): (&Learnt, &TableColumn)| {
            // Where training examples had empty cells, a flag says so to the network.
            if let (Code::Number { empty: Some(empty), flag: Flag::None | Flag::Zero }, Cells::Numbers { values, .. }) =
                (code, &column.cells)
            {
                let count = values.iter().filter(|value| value.is_none()).count();
                let examples = if count == 1 { "example has" } else { "examples have" };
                let name = printable(name);
                return (count > 0).then(|| {
                    format!(
                        "column `{name}`: {count} {examples} an empty cell and no training example has, read as {empty}"
                    )
                });
            }
            let (Code::OneHot(known) | Code::Indices(known), Cells::Words { words, values, .. }) =
                (code, &column.cells)
            else {
                return None;
            };
            let is_new: Vec<bool> = words.iter().map(|word| known.place(word).is_none()).collect();
            let count = values.iter().filter(|&&index| is_new[index]).count();
            let first = values.iter().find(|&&index| is_new[index])?;
            let word = match words[*first].as_str() {
                "" => "an empty cell".into(),
                word => format!("`{}`", printable(word)),
            };
            let examples = if count == 1 { "example has" } else { "examples have" };
            let becomes = if matches!(code, Code::OneHot(_)) { "0 in all its columns" } else { "the index 0" };
            Some(format!(
                "column `{}`: {count} {examples} a word that no training example has, such as {word}, which becomes \
                 {becomes}",
                printable(name)
            ))
        };
        self.columns.iter().zip(table.columns()).filter_map(note).collect()
    }
}

/// Returns the name of the column of a word.
fn named(column: &str, word: &str) -> String {
    if word.is_empty() { format!("{column} is empty") } else { format!("{column}={word}") }
}

/// Learns the code of a column.
fn code(TableColumn { name, cells }: &TableColumn, some_empty: bool) -> Result<Code> {
    match cells {
        Cells::Words { words: all, values, form } => {
            let met: BTreeSet<usize> = values.iter().copied().collect();
            let unseen =
                all.iter().enumerate().filter(|(i, _)| !met.contains(i)).map(|(_, word)| word.clone()).collect();
            let words: BTreeSet<&String> = all.iter().collect();
            let words = Words { words: words.into_iter().cloned().collect(), unseen };
            Ok(if *form == WordForm::OneHot { Code::OneHot(words) } else { Code::Indices(words) })
        }
        Cells::Numbers { values, empty } => {
            let numbers: Vec<f64> = values.iter().copied().flatten().collect();
            let flag = match some_empty {
                false => Flag::None,
                true if numbers.len() == values.len() => Flag::Zero,
                true => Flag::Learnt,
            };
            if *empty == Empty::Error {
                return Ok(Code::Number { empty: None, flag: Flag::None });
            }
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
    /// Returns the examples with a table encoded as numbers, or as indices if all its columns become these.
    ///
    /// # Errors
    /// [`ErrorKind::Data`](crate::ErrorKind::Data) when the inputs are no table, or one with other columns, and for an
    /// empty cell in a column without a replacement.
    pub fn encoded(&self, by: &Encoding) -> Result<Dataset> {
        let Inputs::Table(table) = self.inputs() else {
            return Err(Error::data("the inputs are numbers already; an encoding is for a table"));
        };
        let columns = by.encoded(table)?;
        let names = by.names();
        let width = columns.len();
        if by.is_of_indices() {
            let row = |i: usize| columns.iter().map(move |column| column[i] as i64);
            let indices = (0..self.len()).flat_map(row).collect();
            return Ok(self.with_encoded(Inputs::Indices(indices), width, Wide::default()).with_input_names(names));
        }
        let row = |i: usize| columns.iter().map(move |column| column[i] as f32);
        let values: Vec<f32> = (0..self.len()).flat_map(row).collect();
        let is_exact = |column: &[f64]| column.iter().all(|&x| f64::from(x as f32) == x);
        let wide = columns
            .into_iter()
            .zip(&names)
            .map(|(column, name)| (!is_exact(&column)).then(|| (format!("column `{}`", printable(name)), column)));
        let wide = Wide::new(wide.collect());
        Ok(self.with_encoded(Inputs::Numbers(values), width, wide).with_input_names(names))
    }
}

impl Encoding {
    /// Returns the encoded columns of a table.
    fn encoded(&self, table: &Table) -> Result<Vec<Vec<f64>>> {
        let (learnt, met) = (self.columns.len(), table.columns().len());
        if learnt != met {
            return Err(Error::data(format!("a table of {met} columns; the encoding was learnt from {learnt}")));
        }
        let mut encoded = Vec::new();
        for (Learnt { name, code }, column) in self.columns.iter().zip(table.columns()) {
            let wrong = |words: String| Err(Error::data(format!("column `{}`: {words}", printable(name))));
            match (code, &column.cells) {
                (Code::Number { empty, flag }, Cells::Numbers { values, .. }) => {
                    if let (None, Some(i)) = (empty, values.iter().position(Option::is_none)) {
                        return wrong(format!("the cell of example {i} is empty"));
                    }
                    encoded.push(values.iter().map(|value| value.or(*empty).unwrap_or_default()).collect());
                    let is_flagged = |value: &Option<f64>| value.is_none() && *flag == Flag::Learnt;
                    if *flag != Flag::None {
                        encoded.push(values.iter().map(|value| f64::from(u8::from(is_flagged(value)))).collect());
                    }
                }
                (Code::OneHot(known) | Code::Indices(known), Cells::Words { words, values, .. }) => {
                    let place: Vec<Option<usize>> = words.iter().map(|word| known.place(word)).collect();
                    match code {
                        Code::OneHot(_) => encoded.extend((0..known.words.len()).map(|i| {
                            values.iter().map(|&index| f64::from(u8::from(place[index] == Some(i)))).collect()
                        })),
                        _ => encoded
                            .push(values.iter().map(|&index| place[index].map_or(0.0, |i| i as f64 + 1.0)).collect()),
                    }
                }
                (Code::Number { .. }, _) => return wrong("words; the encoding was learnt from numbers".into()),
                _ => return wrong("numbers; the encoding was learnt from words".into()),
            }
        }
        Ok(encoded)
    }
}
