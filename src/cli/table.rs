//! Tables as wide as the terminal.

use comfy_table::{CellAlignment, ContentArrangement, Table, presets};

/// Columns where no terminal tells; the texts in wider tables are wrapped.
const WIDTH: u16 = 120;

/// A table that Markdown reads, too. The columns of `numbers` are aligned to the right.
pub(super) fn table<R>(header: &[&str], rows: impl IntoIterator<Item = R>, numbers: &[usize]) -> String
where
    R: IntoIterator<Item = String>,
{
    let mut table = Table::new();
    let width = table.width().unwrap_or(WIDTH);
    table
        .load_style(presets::ASCII_MARKDOWN)
        .set_header(header.to_vec())
        .add_rows(rows.into_iter().map(Vec::from_iter));
    table.set_content_arrangement(ContentArrangement::Dynamic).set_width(width);
    for &column in numbers {
        if let Some(column) = table.column_mut(column) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    table.trim_fmt()
}

/// A table as the library lays it out: each row one line, however long. On a terminal that is narrower, texts are wrapped.
pub(super) fn library_table(header: &[&str], rows: Vec<Vec<String>>, numbers: &[usize]) -> String {
    let plain = crate::table::table(header, rows.iter().cloned(), |column| numbers.contains(&column));
    match Table::new().width() {
        Some(width) if plain.lines().any(|line| line.chars().count() > width.into()) => table(header, rows, numbers),
        _ => plain,
    }
}
