//! Numbers of files that f32 cannot represent, in f64 until they are standardized.

use super::sums::Sums;

/// Columns that f32 cannot represent, in f64. A column is a position within an example.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Wide {
    /// Columns by position; empty if f32 is exact for all.
    columns: Vec<Option<Column>>,
}

#[derive(Clone, Debug, PartialEq)]
struct Column {
    /// Display name.
    name: String,
    /// One number per example.
    numbers: Vec<f64>,
}

impl Wide {
    /// Creates columns from their display names and numbers, one number per example; `None` where f32 is exact.
    pub fn new(columns: Vec<Option<(String, Vec<f64>)>>) -> Self {
        let column = |(name, numbers)| Column { name, numbers };
        Wide { columns: columns.into_iter().map(|of| of.map(column)).collect() }
    }

    /// Returns the columns of some examples.
    pub fn take(&self, order: &[usize]) -> Wide {
        let taken = |column: &Column| Column {
            name: column.name.clone(),
            numbers: order.iter().map(|&i| column.numbers[i]).collect(),
        };
        Wide { columns: self.columns.iter().map(|column| column.as_ref().map(taken)).collect() }
    }

    /// Returns the name and the numbers of each of `width` columns; `None` where f32 is exact.
    pub fn into_columns(self, width: usize) -> Vec<Option<(String, Vec<f64>)>> {
        let mut columns: Vec<_> = self.columns.into_iter().map(|of| of.map(|of| (of.name, of.numbers))).collect();
        columns.resize(width, None);
        columns
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
        let by = self.mean_and_deviation();
        pairs().find(|pair| is_apart(pair, by)).or_else(|| pairs().find(|pair| !is_rounding(pair)))
    }

    fn are_apart_when_standardized(&self, a: f64, b: f64) -> bool {
        is_apart(&[a, b], self.mean_and_deviation())
    }

    fn mean_and_deviation(&self) -> (f64, Option<f64>) {
        let sums = Sums::of(|| self.numbers.iter().copied(), &[]);
        sums.ok().and_then(|sums| sums.features().pop()).unwrap_or_default()
    }
}

/// Returns whether two numbers differ only by the rounding error of f64 sums; integers do not.
fn is_rounding(pair: &[f64; 2]) -> bool {
    let [a, b] = *pair;
    (a.fract(), b.fract()) != (0.0, 0.0) && (a - b).abs() < 1e-12 * a.abs().max(b.abs())
}

/// Returns whether two numbers of a column differ after standardization, which only centres a constant.
fn is_apart(pair: &[f64; 2], (mean, deviation): (f64, Option<f64>)) -> bool {
    let Some(deviation) = deviation else { return false };
    let [a, b] = pair.map(|x| ((x - mean) / deviation) as f32);
    a != b
}

/// Formats a number with all its digits, without many zeros.
fn shown(x: f64) -> String {
    if x == 0.0 || (1e-5..1e17).contains(&x.abs()) { x.to_string() } else { format!("{x:e}") }
}
