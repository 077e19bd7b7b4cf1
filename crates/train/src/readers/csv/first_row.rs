//! Recognizing a header that is really an example.

use precast::error::Result;
use precast_base::printable;

use super::{Csv, columns::Column, table::Table};

/// Returns whether a name is that of an index column: pandas writes an empty one, and reads it as `Unnamed: 0`.
fn is_unnamed(name: &str) -> bool {
    name.is_empty() || name.starts_with("Unnamed: ")
}

impl Table<'_> {
    /// Rejects a header that is a row of numbers: unless one of its names is used, or a numeric column has a
    /// non-numeric name, it is the first example of a file without a header.
    pub fn check_header(&self, csv: &Csv) -> Result<()> {
        let Some(header) = &self.header else { return Ok(()) };
        let all = || {
            [&csv.target, &csv.columns, &csv.ignore, &csv.one_hot, &csv.indices]
                .into_iter()
                .flat_map(|columns| &columns.0)
        };
        if all().any(|column| matches!(column, Column::Name(name) if header.place(name).is_some())) {
            return Ok(());
        }
        let is_input = |place: usize| {
            let mut others = csv.target.0.iter().chain(&csv.ignore.0);
            !others.any(|column| *column == Column::Number(place + 1))
        };
        let is_number = |name: &str| self.format.number(name).is_some_and(f64::is_finite);
        let mut inputs = header.names().iter().enumerate().filter(|(place, _)| is_input(*place));
        if !inputs.all(|(_, name)| is_number(name) || is_unnamed(name)) {
            return Ok(());
        }
        let Some(number) = header.names().iter().find(|name| is_number(name)) else { return Ok(()) };
        let words = "the header has numbers and no names; a file without a header is read with `header: false`";
        let number = printable(number);
        let cure =
            format!("where they are names, `target`, `columns` or `ignore` has one of them, as \"{number}\" in quotes");
        Err(self.at(header.line, format!("{words}; {cure}")))
    }

    /// Rejects an unnamed input that was not chosen explicitly, such as the index written by pandas: in a sorted table,
    /// it would reveal the target.
    pub fn check_inputs_are_named(&self, inputs: &[usize]) -> Result<()> {
        let Some(header) = &self.header else { return Ok(()) };
        let Some(&place) = inputs.iter().find(|&&place| is_unnamed(&header.names()[place])) else { return Ok(()) };
        let name = printable(&header.names()[place]);
        let is = match self.counts(place)? {
            true => "counts the rows, as an index of pandas does",
            false => "has no name",
        };
        let cure =
            format!("`ignore: \"{name}\"` leaves it out, `ignore: {}` too; `columns` names the inputs", place + 1);
        Err(self.at(header.line, format!("column {} (`{name}`) {is}; {cure}", place + 1)))
    }

    /// Returns whether a column counts 0, 1, 2 and so on.
    fn counts(&self, place: usize) -> Result<bool> {
        for (i, row) in self.rows().enumerate() {
            let row = row?;
            if row.fields.get(place) != Some(&*i.to_string()) {
                return Ok(false);
            }
        }
        Ok(true)
    }
}
