//! Tables as they are in their files: numbers, empty cells and words.

use std::sync::Arc;

use precast::error::{Error, Result};

/// Columns of a table, each with a cell for each example: numbers, of which some may be missing, or words. An
/// [`Encoding`](super::Encoding) makes numbers of them.
#[derive(Clone, Debug, PartialEq)]
pub struct Table {
    columns: Vec<TableColumn>,
    len: usize,
    /// For each column, `true` if a cell of the whole table is empty; a part of the table keeps it.
    some_empty: Vec<bool>,
}

/// A column of a [`Table`].
#[derive(Clone, Debug, PartialEq)]
pub struct TableColumn {
    /// Name.
    pub name: String,
    /// Cells, one for each example.
    pub cells: Cells,
}

/// Cells of a column of a [`Table`].
#[derive(Clone, Debug, PartialEq)]
pub enum Cells {
    /// Numbers.
    Numbers {
        /// The numbers; `None` where the cell is empty.
        values: Vec<Option<f64>>,
        /// Replacement of empty cells.
        empty: Empty,
    },
    /// Words.
    Words {
        /// The distinct words. An empty cell has the empty word.
        words: Arc<Vec<String>>,
        /// For each example, the index of its word.
        values: Vec<usize>,
        /// The numbers that words become.
        form: WordForm,
    },
}

/// Handling of the empty cells of columns of numbers.
#[precast::options::options]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Empty {
    /// An error.
    #[default]
    Error,
    /// The mean of the column, and a column of flags.
    Mean,
    /// The median of the column, and a column of flags.
    Median,
}

/// Form of a column of words as numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum WordForm {
    /// A column for each word: 1 where the cell has it, 0 elsewhere.
    OneHot,
    /// Indices from 1, for an embedding; 0 is for words that the training examples do not have.
    Indices,
}

impl Table {
    /// Creates a table from its columns.
    ///
    /// # Errors
    /// [`ErrorKind::Data`](precast::ErrorKind::Data) for no columns, columns of different lengths, a number that is not
    /// finite, and the index of a word that does not exist.
    pub fn new(columns: Vec<TableColumn>) -> Result<Self> {
        let Some(first) = columns.first() else { return Err(Error::data("a table without columns")) };
        let len = first.cells.len();
        for TableColumn { name, cells } in &columns {
            let wrong =
                |words: String| Err(Error::data(format!("column `{}`: {words}", precast_base::printable(name))));
            if cells.len() != len {
                return wrong(format!("{} cells; the first column has {len}", cells.len()));
            }
            match cells {
                Cells::Numbers { values, .. } => {
                    if let Some(value) = values.iter().flatten().find(|value| !value.is_finite()) {
                        return wrong(format!("{value} is not a finite number"));
                    }
                }
                Cells::Words { words, values, .. } => {
                    if let Some(index) = values.iter().find(|index| **index >= words.len()) {
                        return wrong(format!("there is no word {index}; there are {}, counted from 0", words.len()));
                    }
                }
            }
        }
        let some_empty = columns.iter().map(|column| column.cells.some_empty()).collect();
        Ok(Table { columns, len, some_empty })
    }

    /// Returns the columns.
    pub fn columns(&self) -> &[TableColumn] {
        &self.columns
    }

    /// Returns the number of examples.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Returns some of the examples.
    pub(super) fn take(&self, order: &[usize]) -> Table {
        let columns = self.columns.iter().map(|TableColumn { name, cells }| TableColumn {
            name: name.clone(),
            cells: match cells {
                Cells::Numbers { values, empty } => {
                    Cells::Numbers { values: order.iter().map(|&i| values[i]).collect(), empty: *empty }
                }
                Cells::Words { words, values, form } => Cells::Words {
                    words: words.clone(),
                    values: order.iter().map(|&i| values[i]).collect(),
                    form: *form,
                },
            },
        });
        Table { columns: columns.collect(), len: order.len(), some_empty: self.some_empty.clone() }
    }

    /// Returns whether a cell of a column is empty, in the whole table that this is a part of.
    pub(super) fn some_empty(&self, column: usize) -> bool {
        self.some_empty[column]
    }

    /// Records the columns of the whole table of which a cell is empty, for a part of it that was made anew.
    #[must_use]
    pub(crate) fn with_some_empty(self, some_empty: Vec<bool>) -> Self {
        Table { some_empty, ..self }
    }

    /// Passes the bytes of the cells of a column to a function.
    pub(super) fn bytes(&self, column: usize, put: &mut impl FnMut(&[u8])) {
        match &self.columns[column].cells {
            Cells::Numbers { values, .. } => {
                values.iter().for_each(|value| put(&value.unwrap_or(f64::NAN).to_le_bytes()));
            }
            Cells::Words { words, values, .. } => values.iter().for_each(|&index| {
                put(words[index].as_bytes());
                put(&[0]);
            }),
        }
    }
}

impl Cells {
    fn some_empty(&self) -> bool {
        matches!(self, Cells::Numbers { values, .. } if values.contains(&None))
    }

    fn len(&self) -> usize {
        match self {
            Cells::Numbers { values, .. } => values.len(),
            Cells::Words { values, .. } => values.len(),
        }
    }
}
