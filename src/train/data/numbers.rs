//! Numbers from files: f32 where exact, and f64 until they are standardized.

#[cfg(feature = "data")]
use std::collections::BTreeMap;

/// Numbers of a file as they are read, one example after another. All are kept in f32, and columns that need more
/// digits in f64, too.
#[cfg(feature = "data")]
pub(super) struct Numbers {
    each: usize,
    values: Vec<f32>,
    columns: Vec<Vec<f64>>,
    /// Integers that f64 may round, by column.
    large: BTreeMap<usize, Vec<i128>>,
}

#[cfg(feature = "data")]
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
        let wide = |(i, numbers): (usize, Vec<f64>)| (!numbers.is_empty()).then(|| Column { name: name(i), numbers });
        let columns = self.columns.into_iter().enumerate().map(wide).collect();
        (self.values, Wide { columns }, notes)
    }
}

/// Columns that f32 cannot represent, in f64. A column is a position within an example.
#[derive(Clone, Default, PartialEq)]
pub(super) struct Wide {
    /// Columns by position; empty if f32 is exact for all.
    columns: Vec<Option<Column>>,
}

#[derive(Clone, PartialEq)]
struct Column {
    /// Display name.
    name: String,
    /// One number per example.
    numbers: Vec<f64>,
}

impl Wide {
    /// Returns the columns of some examples.
    pub fn take(&self, order: &[usize]) -> Wide {
        let taken = |column: &Column| Column {
            name: column.name.clone(),
            numbers: order.iter().map(|&i| column.numbers[i]).collect(),
        };
        Wide { columns: self.columns.iter().map(|column| column.as_ref().map(taken)).collect() }
    }

    /// Returns the numbers of the file whose rounded form is `values`.
    pub fn exact<'a>(&'a self, values: &'a [f32], each: usize) -> impl Iterator<Item = f64> + 'a {
        let example = move |(row, example): (usize, &'a [f32])| {
            example.iter().enumerate().map(move |(place, &rounded)| match self.columns.get(place) {
                Some(Some(column)) => column.numbers[row],
                _ => f64::from(rounded),
            })
        };
        values.chunks(each.max(1)).enumerate().flat_map(example)
    }

    /// Returns a note on distinct numbers of one column that are equal in f32, with an example and the option that
    /// helps.
    pub fn note(&self, origin: &str, option: &str) -> Option<String> {
        let mut met = self.columns.iter().flatten().filter_map(|column| Some((column, column.one_in_f32()?)));
        let (column, [a, b]) = met.next()?;
        let more = match met.count() {
            0 => String::new(),
            1 => " (and so in another column)".into(),
            more => format!(" (and so in {more} other columns)"),
        };
        let cure = match column.are_apart_when_standardized(a, b) {
            true => format!("; with `{option}: true` they stay apart"),
            false => format!("; they are so near that `{option}: true` does not keep them apart either"),
        };
        Some(format!(
            "{origin}: {}: {} and {} become one number in float32{more}{cure}",
            column.name,
            shown(a),
            shown(b)
        ))
    }
}

impl Column {
    /// Returns two distinct numbers that are equal in f32, preferably two that differ after standardization. Rounding
    /// errors of f64, as in 0.1 + 0.2 and 0.3, do not count unless they differ after it.
    fn one_in_f32(&self) -> Option<[f64; 2]> {
        let mut sorted = self.numbers.clone();
        sorted.sort_unstable_by(f64::total_cmp);
        let same = |pair: &&[f64]| pair[0] != pair[1] && pair[0] as f32 == pair[1] as f32;
        let pairs = || sorted.windows(2).filter(same).map(|pair| [pair[0], pair[1]]);
        let (mean, deviation) = self.mean_and_deviation();
        pairs().find(|pair| is_apart(pair, mean, deviation)).or_else(|| pairs().find(|pair| !is_rounding(pair)))
    }

    fn are_apart_when_standardized(&self, a: f64, b: f64) -> bool {
        let (mean, deviation) = self.mean_and_deviation();
        is_apart(&[a, b], mean, deviation)
    }

    fn mean_and_deviation(&self) -> (f64, f64) {
        let count = self.numbers.len() as f64;
        let mean = self.numbers.iter().map(|x| x / count).sum::<f64>();
        (mean, self.numbers.iter().map(|x| (x - mean).powi(2) / count).sum::<f64>().sqrt())
    }
}

/// Returns whether two numbers differ only by the rounding error of f64 sums; integers do not.
fn is_rounding(pair: &[f64; 2]) -> bool {
    let [a, b] = *pair;
    (a.fract(), b.fract()) != (0.0, 0.0) && (a - b).abs() < 1e-12 * a.abs().max(b.abs())
}

fn is_apart(pair: &[f64; 2], mean: f64, deviation: f64) -> bool {
    let [a, b] = pair.map(|x| ((x - mean) / deviation) as f32);
    a != b
}

/// Formats a number with all its digits, without many zeros.
fn shown(x: f64) -> String {
    if x == 0.0 || (1e-5..1e17).contains(&x.abs()) { x.to_string() } else { format!("{x:e}") }
}
