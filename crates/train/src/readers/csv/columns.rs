//! Columns in the options of a table.

use precast::options::{Range, Takes};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// A column of a table: its name in the header, or its number, counted from 1. In files: `species`, or `5`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged, expecting = "the name of a column, or its number, counted from 1")]
#[non_exhaustive]
pub enum Column {
    /// Number of the column, counted from 1.
    Number(usize),
    /// Name of the column.
    Name(String),
}

/// Columns of a table. In files: one, or a list.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "OneOrMany", into = "OneOrMany")]
#[non_exhaustive]
pub struct Columns(pub Vec<Column>);

#[derive(Serialize, Deserialize)]
#[serde(untagged, expecting = "the name of a column, or its number, counted from 1; or a list of these")]
enum OneOrMany {
    One(Column),
    Many(Vec<Column>),
}

impl Columns {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl Takes for Columns {
    fn takes(_: &Range) -> String {
        "the name of a column, or its number, counted from 1; or a list of these".into()
    }

    fn schema(_: &Range) -> Value {
        let column = || json!({"anyOf": [{"type": "string"}, {"type": "integer", "minimum": 1}]});
        json!({"anyOf": [column(), {"type": "array", "items": column()}]})
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
