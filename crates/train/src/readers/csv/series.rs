//! Windows of the rows of a table, as of a time series.

use precast::{
    error::{Error, Result},
    options::options,
};

use super::{Column, Columns, Csv, TargetKind};
use crate::data::{Dataset, Inputs, Targets};

/// Most numbers in all windows: 1 GiB in f32.
const MOST: usize = 1 << 28;

/// Windows of the rows of a table in their order: inputs of shape `[length, columns]`, which are the input columns and then
/// those of the targets, and the targets of a later row.
#[options(written)]
#[derive(Clone, Debug, PartialEq)]
pub struct Series {
    /// Number of rows of a window.
    #[option(at_least = 1)]
    pub length: usize,
    /// Number of rows from the last one of a window to that of its targets.
    #[option(default = 1, at_least = 1)]
    pub ahead: usize,
    /// Number of rows between the starts of two windows.
    #[option(default = 1, at_least = 1)]
    pub stride: usize,
}

impl Series {
    /// Returns the number of windows after each with which it shares rows.
    pub(in crate::readers) fn overlap(&self) -> usize {
        (self.length + self.ahead).div_ceil(self.stride).saturating_sub(1)
    }

    /// Returns the place of the last row of each window, of so many rows. A window for predictions ends with the last row of
    /// all.
    fn ends(&self, rows: usize, with_targets: bool) -> Vec<usize> {
        let Some(last) = rows.checked_sub(if with_targets { self.ahead + 1 } else { 1 }) else { return Vec::new() };
        let Some(most) = (last + 1).checked_sub(self.length) else { return Vec::new() };
        let first = if with_targets { self.length - 1 } else { self.length - 1 + most % self.stride };
        (first..=last).step_by(self.stride).collect()
    }

    /// Returns the windows of rows, whose columns are named.
    pub(super) fn windows(&self, rows: &Dataset, names: &[String], origin: &str) -> Result<Dataset> {
        let wrong = |words: String| Err(Error::data(words).in_file(origin));
        let (Inputs::Numbers(_), &[width]) = (rows.inputs(), rows.shape()) else {
            return wrong("`series` is of columns of numbers without empty cells, which `empty` does not fill; `ignore` leaves others out".into());
        };
        let with_targets = !matches!(rows.targets(), Targets::None);
        let ends = self.ends(rows.len(), with_targets);
        if ends.is_empty() {
            let needed = self.length + if with_targets { self.ahead } else { 0 };
            return wrong(format!("{} rows; a window needs {needed}, by `series`", rows.len()));
        }
        if ends.len().saturating_mul(self.length * width) > MOST {
            let words =
                "windows of `length` rows; allowed: 2^28 numbers in all windows, which a larger `stride` makes fewer";
            return wrong(format!("{} {words}", ends.len()));
        }
        let later: Vec<usize> = ends.iter().map(|end| end + if with_targets { self.ahead } else { 0 }).collect();
        rows.windows(self.length, &ends, &later, names)
    }
}

impl Csv {
    /// Returns the kind of the targets: those of a series are numbers, unless it is given.
    pub(super) fn kind(&self) -> Option<TargetKind> {
        self.r#as.or(self.series.as_ref().map(|_| TargetKind::Numbers))
    }

    /// Returns the columns of the targets if the inputs of a series have them: numbers that are not inputs anyway.
    pub(super) fn past(&self) -> Columns {
        match (&self.series, self.kind()) {
            (Some(_), Some(TargetKind::Numbers)) => self.target.clone(),
            _ => Columns::default(),
        }
    }

    /// Returns the input columns of windows by the names of their last rows.
    pub(super) fn columns_of_windows(&self, names: &[String], width: usize) -> Columns {
        let last = &names[names.len().saturating_sub(width)..];
        let is_past = |name: &String| self.past().0.contains(&Column::Name(name.clone()));
        Columns(last.iter().filter(|name| !is_past(name)).cloned().map(Column::Name).collect())
    }

    /// Returns the row of the targets of an example.
    pub(super) fn row_of(&self, example: usize) -> usize {
        match &self.series {
            None => example,
            Some(series) => example * series.stride + series.length - 1 + series.ahead,
        }
    }

    /// Returns rows of a table of which predictions are made.
    pub(super) fn predicted<T>(&self, rows: Vec<T>) -> Vec<T> {
        let Some(series) = &self.series else { return rows };
        let mut ends = series.ends(rows.len(), false).into_iter().peekable();
        let rows = rows.into_iter().enumerate();
        rows.filter_map(|(place, row)| ends.next_if_eq(&place).map(|_| row)).collect()
    }
}
