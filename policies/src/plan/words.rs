//! Numbers in words.

/// Formats a number of cells: `1 cell`, `2 cells`.
pub(crate) fn cells(count: usize) -> String {
    if count == 1 { "1 cell".into() } else { format!("{count} cells") }
}
