//! Columns of a table as text.

use std::collections::HashMap;

use precast::error::{Error, Result};
use precast_base::files;

use super::{Column, Columns, Csv, table::Table};
use crate::readers::{MOST_BYTES, gzip::unpacked};

impl Csv {
    /// Reads some columns as text, whatever their use: for each row, or for the last one of each window of a
    /// [`series`](Csv::series), a cell of each column. Cells may be empty.
    ///
    /// # Errors
    /// [`ErrorKind::Data`](precast::ErrorKind::Data) for a column that the file does not have, and as
    /// [`read`](Csv::read).
    pub fn texts(&self, columns: &Columns) -> Result<Vec<Vec<String>>> {
        let (bytes, origin) = (files::read_within(&self.file, MOST_BYTES)?, self.origin());
        let bytes = unpacked(&bytes, MOST_BYTES).map_err(|error| error.in_file(&origin))?;
        let table = Table::of(self, &origin, &bytes)?;
        let places = columns.0.iter().map(|column| table.place(column)).collect::<Result<Vec<usize>>>()?;
        let cell = |row: &super::table::Row, place: usize| row.fields.get(place).unwrap_or_default().to_string();
        let rows = table.rows().map(|row| row.map(|row| places.iter().map(|place| cell(&row, *place)).collect()));
        Ok(self.predicted(rows.collect::<Result<Vec<_>>>()?))
    }

    /// Reads the group of each row, counted from 0: that of the rows with the same word in a column, whatever its use.
    ///
    /// # Errors
    /// As [`texts`](Csv::texts), but for the length of the file; and for an empty cell.
    pub(crate) fn groups(&self, column: &Column) -> Result<(Vec<usize>, Vec<String>)> {
        let origin = self.origin();
        if self.series.is_some() {
            return Err(
                Error::data("`split: {by}` is of rows, and windows of a `series` are split in order").in_file(origin)
            );
        }
        let table = Table::of_file(self, &origin)?;
        let place = table.place(column)?;
        let (mut groups, mut names) = (HashMap::<String, usize>::new(), Vec::new());
        let group = |row: Result<super::table::Row>| {
            let row = row?;
            let cell = table.cell(&row, place)?;
            Ok(groups.get(cell).copied().unwrap_or_else(|| {
                names.push(cell.to_string());
                *groups.entry(cell.into()).or_insert(names.len() - 1)
            }))
        };
        let of_rows = table.rows().map(group).collect::<Result<_>>()?;
        Ok((of_rows, names))
    }
}
