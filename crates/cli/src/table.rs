//! Tables as wide as the terminal.

use comfy_table::{CellAlignment, ColumnConstraint, ContentArrangement, Table, Width, presets};
use console::{Term, measure_text_width};
use precast::Plan;

/// Default number of columns without a terminal; texts in wider tables are wrapped.
const WIDTH: u16 = 120;

/// Returns a table that is also valid Markdown. The columns of `numbers` are aligned to the right. Texts are wrapped
/// between words; if not even their longest words fit, each row becomes a list.
pub(super) fn table<R>(header: &[&str], rows: impl IntoIterator<Item = R>, numbers: &[usize]) -> String
where
    R: IntoIterator<Item = String>,
{
    let rows: Vec<Vec<String>> = rows.into_iter().map(Vec::from_iter).collect();
    let mut table = Table::new();
    let words: Vec<usize> = (0..header.len()).map(|column| longest_word(header, &rows, column)).collect();
    // Each column has a blank on both sides and a line before it.
    let least = words.iter().map(|word| word + 3).sum::<usize>() + 1;
    let width = match terminal_width() {
        Some(width) if least > width.into() => return lists(header, &rows),
        Some(width) => width,
        None => WIDTH.max(u16::try_from(least).unwrap_or(u16::MAX)),
    };
    table.load_style(presets::ASCII_MARKDOWN).set_header(header.to_vec()).add_rows(rows);
    table.set_content_arrangement(ContentArrangement::Dynamic).set_width(width);
    for (column, word) in words.into_iter().enumerate() {
        if let Some(of_table) = table.column_mut(column) {
            of_table.set_constraint(ColumnConstraint::LowerBoundary(Width::Fixed(word as u16 + 2)));
            if numbers.contains(&column) {
                of_table.set_cell_alignment(CellAlignment::Right);
            }
        }
    }
    table.trim_fmt()
}

/// Returns the number of columns of the terminal; `None` if standard output is none.
fn terminal_width() -> Option<u16> {
    let terminal = Term::stdout();
    terminal.is_term().then(|| terminal.size_checked()).flatten().map(|(_, columns)| columns)
}

fn longest_word(header: &[&str], rows: &[Vec<String>], column: usize) -> usize {
    let cells = rows.iter().filter_map(|row| row.get(column)).map(String::as_str).chain([header[column]]);
    cells.flat_map(str::split_whitespace).map(|word| word.chars().count()).max().unwrap_or(0)
}

/// Returns a list for each row: each cell after the name of its column.
fn lists(header: &[&str], rows: &[Vec<String>]) -> String {
    let margin = header.iter().map(|name| name.chars().count()).max().unwrap_or(0);
    let list = |row: &Vec<String>| {
        let lines = header.iter().zip(row).filter(|(_, cell)| !cell.is_empty());
        lines.map(|(name, cell)| format!("{name:margin$}  {cell}")).collect::<Vec<_>>().join("\n")
    };
    rows.iter().map(list).collect::<Vec<_>>().join("\n\n")
}

/// Returns a table in the library's layout: each row one line, however long. On a narrower terminal, texts are wrapped.
pub(super) fn library_table(header: &[&str], rows: Vec<Vec<String>>, numbers: &[usize]) -> String {
    let plain = precast_base::table::table(header, rows.iter().cloned(), |column| numbers.contains(&column));
    match terminal_width() {
        Some(width) if plain.lines().any(|line| line.chars().count() > width.into()) => table(header, rows, numbers),
        _ => plain,
    }
}

/// Returns the table of runs. On a terminal too narrow for its columns, it has a row for each quantity and a column for
/// each run; if that does not fit either, a list for each run.
pub(super) fn runs_layout(header: &[&str], rows: Vec<Vec<String>>, numbers: &[usize]) -> String {
    runs_within(terminal_width().map(usize::from), header, rows, numbers)
}

fn runs_within(width: Option<usize>, header: &[&str], rows: Vec<Vec<String>>, numbers: &[usize]) -> String {
    let plain = precast_base::table::table(header, rows.iter().cloned(), |column| numbers.contains(&column));
    let fits = |text: &str| width.is_none_or(|width| text.lines().all(|line| measure_text_width(line) <= width));
    if fits(&plain) {
        return plain;
    }
    let names: Vec<&str> = rows.iter().map(|row| row[0].as_str()).collect();
    let head: Vec<&str> = [header[0]].into_iter().chain(names).collect();
    let turned = (1..header.len())
        .map(|i| [header[i].to_string()].into_iter().chain(rows.iter().map(|row| row[i].clone())).collect::<Vec<_>>());
    let turned = precast_base::table::table(&head, turned, |column| column > 0);
    if fits(&turned) { turned } else { lists(header, &rows) }
}

/// Returns the tree of a plan as wide as the terminal.
pub(super) fn plan_tree(plan: &Plan) -> String {
    plan.tree_within(terminal_width().map_or(usize::MAX, usize::from))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_that_do_not_fit_are_columns() {
        let rows = || vec![vec!["o0".to_string(), "97.00 %".into()], vec!["o2".into(), "96.50 %".into()]];
        let shown = |width| runs_within(width, &["run", "accuracy of all"], rows(), &[1]);
        assert!(shown(None).starts_with("| run | accuracy of all |"));
        assert_eq!(shown(Some(25)), shown(None));
        let long = vec![vec!["o0".to_string(), "97.00 %".into(), "1234".into(), "0.5".into()]; 1];
        let turned = runs_within(Some(22), &["run", "accuracy", "steps", "loss"], long.clone(), &[1, 2, 3]);
        assert!(turned.contains("| accuracy | 97.00 % |") && turned.contains("| steps    |    1234 |"), "{turned}");
        let list = runs_within(Some(18), &["run", "accuracy", "steps", "loss"], long, &[1, 2, 3]);
        assert!(list.contains("accuracy  97.00 %") && !list.contains('|'), "{list}");
    }

    #[test]
    fn what_does_not_fit_is_a_list_for_each_row() {
        let rows = [["a", "one two"], ["b", ""]].map(|row| row.map(String::from).to_vec());
        assert_eq!(lists(&["kind", "is"], &rows), "kind  a\nis    one two\n\nkind  b");
        // Without a terminal, the table is as wide as its words.
        let long = "x".repeat(80);
        let shown = table(&["a", "b"], [[long.clone(), long.clone()]], &[]);
        assert!(shown.contains(&format!("| {long} | {long} |")), "{shown}");
    }
}
