//! Text tables that are also valid Markdown.

/// Formats rows under a header. A column is as wide as its longest cell in characters; columns for which `right`
/// returns true are aligned to the right.
pub fn table<R>(header: &[&str], rows: impl IntoIterator<Item = R>, right: impl Fn(usize) -> bool) -> String
where
    R: IntoIterator<Item = String>,
{
    let header: Vec<String> = header.iter().map(|name| name.to_string()).collect();
    let rows: Vec<Vec<String>> =
        std::iter::once(header).chain(rows.into_iter().map(|row| row.into_iter().collect())).collect();
    let width = |column: usize| {
        rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..rows[0].len()).map(width).collect();
    let line = |row: &Vec<String>| {
        let cells = row.iter().zip(&widths).enumerate().map(|(column, (cell, &width))| {
            if right(column) { format!(" {cell:>width$} |") } else { format!(" {cell:<width$} |") }
        });
        format!("|{}", cells.collect::<String>())
    };
    let under_header: String = widths.iter().map(|width| format!("{}|", "-".repeat(width + 2))).collect();
    let mut lines: Vec<String> = rows.iter().map(line).collect();
    lines.insert(1, format!("|{under_header}"));
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::table;

    #[test]
    fn columns_are_aligned() {
        let rows = [["Größe", "1"], ["", "1000"]].map(|row| row.map(String::from));
        let expected = "\
            | name  | calls |\n\
            |-------|-------|\n\
            | Größe |     1 |\n\
            |       |  1000 |";
        assert_eq!(table(&["name", "calls"], rows, |column| column == 1), expected);
    }

    #[test]
    fn a_table_without_rows_is_a_header() {
        assert_eq!(table(&["a", "bcd"], Vec::<[String; 2]>::new(), |_| false), "| a | bcd |\n|---|-----|");
    }
}
