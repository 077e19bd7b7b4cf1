//! A row of the table, checked in a graph.

#[allow(dead_code, reason = "slopes are checked by the tests of the library")]
#[path = "../../../../../tests/laws/gradients/row.rs"]
mod table;

use super::{inputs::CASES, recorded::same_in_a_graph};
pub use table::{Case, ONCE, Row, Run};

/// Checks every row in graphs.
#[track_caller]
pub fn check_all(rows: Vec<Row>) {
    let failures = rows.iter().flat_map(|row| {
        let differs = |number| row.failure_in(number, |inputs, run, _| same_in_a_graph(row.op, inputs, run));
        (0..CASES).filter_map(differs)
    });
    let failures: Vec<String> = failures.collect();
    assert!(failures.is_empty(), "{} cases fail:\n{}", failures.len(), failures.join("\n"));
}
