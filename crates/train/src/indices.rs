//! Columns of indices, compared with the tables of the model that takes them.

use precast::{
    Child, DType,
    cell::Part,
    error::{Error, Result},
    io::models::Model,
};
use precast_base::printable;

use crate::data::Encoding;

/// Checks that a model which takes indices beside numbers has a table for each column of indices, with enough rows.
pub(crate) fn check(model: &Model, encoding: Option<&Encoding>) -> Result<()> {
    let Some(encoding) = encoding.filter(|encoding| !encoding.is_of_indices()) else { return Ok(()) };
    let columns = encoding.indices();
    let needed: Vec<usize> = columns.iter().map(|(_, indices)| *indices).collect();
    let cure = format!("{{kind: ColumnEmbedding, vocab_sizes: {needed:?}}}");
    let names: Vec<String> = columns.iter().map(|(name, _)| format!("`{}`", printable(name))).collect();
    let Some((path, rows)) = tables(&model.net).filter(|_| !columns.is_empty()) else {
        return match columns.first() {
            None => Ok(()),
            Some(_) => Err(Error::data(format!(
                "the model takes numbers alone, and of the data {} become indices as well; `{cure}` as the first cell \
                 joins them, or `one_hot` makes numbers of the words",
                names.join(", ")
            ))),
        };
    };
    if model.input_dtype == DType::I64 {
        let words = "the model has `input_dtype: int64`; with numbers in the data, its first input is float32, and the indices \
                     are a second one";
        return Err(Error::data(words));
    }
    if rows.len() != columns.len() {
        let (names, n) = (names.join(", "), columns.len());
        let met = if rows.len() == 1 { "1 column".into() } else { format!("{} columns", rows.len()) };
        let words = format!("cell `{path}` takes {met} of indices, and the data has {n} ({names})");
        return Err(Error::data(format!("{words}; expected `{cure}`")));
    }
    let short = columns.iter().zip(&rows).find(|((_, needed), rows)| *rows < needed);
    match short {
        Some(((name, needed), rows)) => {
            let name = printable(name);
            let words = format!("cell `{path}`: a table of {rows} rows, and column `{name}` has {needed} indices");
            Err(Error::data(format!("{words}; expected `{cure}`")))
        }
        None => Ok(()),
    }
}

/// Returns the path of the first cell that takes columns of indices, and the number of rows of each table.
fn tables(net: &Child) -> Option<(String, Vec<usize>)> {
    let mut found = None;
    net.walk(&mut |entry| {
        if found.is_none() && entry.slot.cell.kind() == "ColumnEmbedding" {
            let mut rows = Vec::new();
            entry.slot.cell.visit(&mut |_, part| {
                let Part::Cell(table) = part else { return };
                table.cell.visit(&mut |_, part| {
                    if let Part::Param(param) = part {
                        rows.extend(param.value().shape().first());
                    }
                });
            });
            found = Some((entry.path.to_string(), rows));
        }
    });
    found
}
