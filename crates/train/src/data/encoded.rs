//! Columns of a table as numbers and indices.

use precast_base::printable;

/// The encoded columns of a table.
#[derive(Default)]
pub(super) struct Encoded {
    pub numbers: Vec<Numbers>,
    pub indices: Vec<Vec<i64>>,
}

/// Numbers of a column of a table.
pub(super) enum Numbers {
    Of(Vec<f64>),
    /// Columns of 0, of which one at most is 1 for each example.
    OneHot {
        columns: usize,
        ones: Vec<Option<usize>>,
    },
}

impl Numbers {
    /// Returns the number of columns.
    pub fn columns(&self) -> usize {
        match self {
            Numbers::Of(_) => 1,
            Numbers::OneHot { columns, .. } => *columns,
        }
    }

    /// Writes the numbers of an example, which are 0.
    pub fn put(&self, example: usize, into: &mut [f32]) {
        match self {
            Numbers::Of(values) => into[0] = values[example] as f32,
            Numbers::OneHot { ones, .. } => {
                if let Some(one) = ones[example] {
                    into[one] = 1.0;
                }
            }
        }
    }

    /// Returns the digits that f32 cannot represent, for each column; `name` is that of the first.
    pub fn into_wide(self, name: &str) -> Vec<Option<(String, Vec<f64>)>> {
        match self {
            Numbers::Of(values) if values.iter().any(|&x| f64::from(x as f32) != x) => {
                vec![Some((format!("column `{}`", printable(name)), values))]
            }
            other => vec![None; other.columns()],
        }
    }
}
