//! Tables and text in HTML.

use std::fmt::Write as _;

use precast_base::printable;

/// Returns a table; an empty header is left out.
pub(super) fn html_table(header: &[&str], rows: Vec<Vec<String>>, numbers: &[usize]) -> String {
    html_rows(header, rows.into_iter().map(|row| ("", row)), numbers)
}

/// Returns a table as [`html_table`] does, of rows with their class.
pub(super) fn html_rows(
    header: &[&str],
    rows: impl Iterator<Item = (&'static str, Vec<String>)>,
    numbers: &[usize],
) -> String {
    let mut html = String::from("<div class=\"table\"><table>\n");
    let class = |column: usize| if numbers.contains(&column) { " class=\"number\"" } else { "" };
    if header.iter().any(|name| !name.is_empty()) {
        let cells = header.iter().enumerate().map(|(i, name)| format!("<th{}>{}</th>", class(i), escaped(name)));
        writeln!(html, "<tr>{}</tr>", cells.collect::<String>()).expect("writing to a string");
    }
    for (of_row, row) in rows {
        let cells = row.iter().enumerate().map(|(i, text)| format!("<td{}>{}</td>", class(i), escaped(text)));
        let of_row = if of_row.is_empty() { String::new() } else { format!(" class=\"{of_row}\"") };
        writeln!(html, "<tr{of_row}>{}</tr>", cells.collect::<String>()).expect("writing to a string");
    }
    html + "</table></div>"
}

/// Escapes text for HTML. Names come from files, so nothing in them may be read as markup.
pub(super) fn escaped(text: &str) -> String {
    let mut html = String::with_capacity(text.len());
    for line in text.split_inclusive('\n') {
        let (line, end) = line.strip_suffix('\n').map_or((line, ""), |line| (line, "\n"));
        for c in printable(line).chars() {
            match c {
                '<' => html.push_str("&lt;"),
                '>' => html.push_str("&gt;"),
                '&' => html.push_str("&amp;"),
                '"' => html.push_str("&quot;"),
                c => html.push(c),
            }
        }
        html.push_str(end);
    }
    html
}
