//! Tables as wide as a terminal.

use comfy_table::{CellAlignment, ContentArrangement, Table, presets};

/// Columns of the terminal; the texts in wider tables are wrapped.
const WIDTH: u16 = 120;

/// A table that Markdown reads, too. The columns of `numbers` are aligned to the right.
pub(super) fn table<R>(header: &[&str], rows: impl IntoIterator<Item = R>, numbers: &[usize]) -> String
where
    R: IntoIterator<Item = String>,
{
    let mut table = Table::new();
    table
        .load_style(presets::ASCII_MARKDOWN)
        .set_header(header.to_vec())
        .add_rows(rows.into_iter().map(Vec::from_iter));
    table.set_content_arrangement(ContentArrangement::Dynamic).set_width(WIDTH);
    for &column in numbers {
        if let Some(column) = table.column_mut(column) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    table.trim_fmt()
}
