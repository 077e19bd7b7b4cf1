//! Numbers of files: in f32 where that is exact, and in f64 until they are standardized.

#[cfg(feature = "data")]
use std::collections::BTreeMap;

/// The numbers of a file as they are read, one example after another. Each is kept in f32, and those of a column of which
/// one needs more digits in f64, too.
#[cfg(feature = "data")]
pub(super) struct Numbers {
    each: usize,
    values: Vec<f32>,
    columns: Vec<Vec<f64>>,
    /// Integers that f64 may round, by their column.
    large: BTreeMap<usize, Vec<i128>>,
}

#[cfg(feature = "data")]
impl Numbers {
    /// The first integer that f64 does not tell from its neighbour.
    pub const LARGE: f64 = 9007199254740992.0;

    /// None yet, of examples of so many columns.
    pub fn new(each: usize) -> Self {
        Numbers { each: each.max(1), values: Vec::new(), columns: Vec::new(), large: BTreeMap::new() }
    }

    /// Adds a number; its column is known by how many there are before.
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

    /// Adds an integer.
    pub fn push_integer(&mut self, x: i128) {
        if (x as f64).abs() >= Self::LARGE {
            self.large.entry(self.values.len() % self.each).or_default().push(x);
        }
        self.push(x as f64);
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.values.is_empty()
    }

    /// The numbers in f32, what f32 does not hold of them, and notes on what f64 does not hold. `name` is that of a column for
    /// people, in the file `origin`.
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

/// The columns of some numbers that f32 does not hold, in f64. A column is a place within an example.
#[derive(Clone, Default, PartialEq)]
pub(super) struct Wide {
    /// By their places; empty where f32 holds all.
    columns: Vec<Option<Column>>,
}

#[derive(Clone, PartialEq)]
struct Column {
    /// For people.
    name: String,
    /// One for each example.
    numbers: Vec<f64>,
}

impl Wide {
    /// Those of some examples.
    pub fn take(&self, order: &[usize]) -> Wide {
        let taken = |column: &Column| Column {
            name: column.name.clone(),
            numbers: order.iter().map(|&i| column.numbers[i]).collect(),
        };
        Wide { columns: self.columns.iter().map(|column| column.as_ref().map(taken)).collect() }
    }

    /// The numbers of which `values` are the rounded ones, as the file has them.
    pub fn exact<'a>(&'a self, values: &'a [f32], each: usize) -> impl Iterator<Item = f64> + 'a {
        let example = move |(row, example): (usize, &'a [f32])| {
            example.iter().enumerate().map(move |(place, &rounded)| match self.columns.get(place) {
                Some(Some(column)) => column.numbers[row],
                _ => f64::from(rounded),
            })
        };
        values.chunks(each.max(1)).enumerate().flat_map(example)
    }

    /// A note on different numbers of one column that are the same in f32, with an example and the option that helps.
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
    /// Two different numbers that are one in f32, such that stay apart when they are standardized if there are any. What f64
    /// rounded, as 0.1 + 0.2 beside 0.3, is no difference unless it stays apart.
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

/// Whether two numbers differ by what sums in f64 are rounded; integers do not.
fn is_rounding(pair: &[f64; 2]) -> bool {
    let [a, b] = *pair;
    (a.fract(), b.fract()) != (0.0, 0.0) && (a - b).abs() < 1e-12 * a.abs().max(b.abs())
}

fn is_apart(pair: &[f64; 2], mean: f64, deviation: f64) -> bool {
    let [a, b] = pair.map(|x| ((x - mean) / deviation) as f32);
    a != b
}

/// A number with all its digits, without many zeros.
fn shown(x: f64) -> String {
    if x == 0.0 || (1e-5..1e17).contains(&x.abs()) { x.to_string() } else { format!("{x:e}") }
}
