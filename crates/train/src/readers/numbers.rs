//! Numbers from files: f32 where exact, and f64 until they are standardized.

use std::collections::BTreeMap;

use crate::data::numbers::Wide;

/// Numbers of a file as they are read, one example after another. All are kept in f32, and columns that need more
/// digits in f64 as well.
pub(super) struct Numbers {
    each: usize,
    values: Vec<f32>,
    columns: Vec<Vec<f64>>,
    /// Integers that f64 may round, by column.
    large: BTreeMap<usize, Vec<i128>>,
}

impl Numbers {
    /// First integer that f64 cannot distinguish from its neighbour.
    pub const LARGE: f64 = 9007199254740992.0;

    /// Creates an empty collection for examples of `each` columns.
    pub fn new(each: usize) -> Self {
        Numbers { each: each.max(1), values: Vec::new(), columns: Vec::new(), large: BTreeMap::new() }
    }

    /// Appends a number; its column follows from the count so far.
    pub fn push(&mut self, x: f64) {
        let (rounded, column) = (x as f32, self.values.len() % self.each);
        if x.is_finite() && f64::from(rounded) != x || self.columns.get(column).is_some_and(|wide| !wide.is_empty()) {
            if self.columns.is_empty() {
                self.columns.resize(self.each, Vec::new());
            }
            let wide = &mut self.columns[column];
            if wide.is_empty() {
                wide.extend(self.values.iter().skip(column).step_by(self.each).map(|&x| f64::from(x)));
            }
            wide.push(x);
        }
        self.values.push(rounded);
    }

    /// Appends an integer.
    pub fn push_integer(&mut self, x: i128) {
        if (x as f64).abs() >= Self::LARGE {
            self.large.entry(self.values.len() % self.each).or_default().push(x);
        }
        self.push(x as f64);
    }

    /// Returns whether there are none.
    pub fn is_empty(&self) -> bool {
        self.values.is_empty()
    }

    /// Returns the numbers in f32, the digits that f32 cannot represent, and notes on those that f64 cannot. `name` is
    /// the display name of a column, in the file `origin`.
    pub fn into_parts(self, origin: &str, name: impl Fn(usize) -> String) -> (Vec<f32>, Wide, Vec<String>) {
        let mut notes = Vec::new();
        for (column, mut integers) in self.large {
            integers.sort_unstable();
            let same = |pair: &&[i128]| pair[0] != pair[1] && pair[0] as f64 == pair[1] as f64;
            if let Some(pair) = integers.windows(2).find(same) {
                notes.push(format!(
                    "{origin}: {}: {} and {} become one number; f64 does not hold all integers beyond 2^53",
                    name(column),
                    pair[0],
                    pair[1]
                ));
            }
        }
        let wide = |(i, numbers): (usize, Vec<f64>)| (!numbers.is_empty()).then(|| (name(i), numbers));
        let columns = self.columns.into_iter().enumerate().map(wide).collect();
        (self.values, Wide::new(columns), notes)
    }
}
