//! Sizes of the cells of a network under a plan: parameters, bytes, shapes and multiply-adds.

use std::{
    collections::{HashMap, HashSet},
    fmt,
};

use precast_base::{printable, table::table};
use serde::Serialize;

use super::Plan;
use crate::{
    DType, Op,
    cell::{AsCell, Child, Part, Trace, no_such_path},
    cost,
    error::{Error, Result},
};

/// Table of the cells of a network with their sizes, by [`Child::summary`].
///
/// Displayed, it is a table with totals, also valid Markdown.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct ModelSummary {
    /// A row for each cell of the plan, in its order: the root, then its cells.
    pub cells: Vec<CellSummary>,
    /// Number of numbers of all parameters, trained or frozen; those of a shared parameter are counted once.
    pub parameters: u64,
    /// Number of those that are trained: all but the frozen ones.
    pub trained: u64,
    /// Size of the parameters in bytes, in the planned dtypes.
    pub bytes: u64,
    /// Number of multiply-adds of one forward pass; `None` without a call.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub multiply_adds: Option<u64>,
}

/// Sizes of one cell, without the cells inside it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct CellSummary {
    /// Path of the cell; the root's is empty.
    pub path: String,
    /// Kind of the cell.
    pub kind: String,
    /// Shapes of the outputs of its first call; empty without a call.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub outputs: Vec<Vec<usize>>,
    /// Number of its calls in the traced call.
    #[serde(skip_serializing_if = "is_0")]
    pub calls: usize,
    /// Number of numbers of its parameters that no earlier cell has.
    pub parameters: u64,
    /// Number of those that are trained: all but the frozen ones.
    pub trained: u64,
    /// Dtype of its parameters in a planned call; f32 where the plan decides op by op.
    pub dtype: DType,
    /// Size of its parameters in bytes, in that dtype.
    pub bytes: u64,
    /// Number of multiply-adds of its ops in one forward pass. An op that multiplies no matrices has none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub multiply_adds: Option<u64>,
}

fn is_0(number: &usize) -> bool {
    *number == 0
}

impl CellSummary {
    pub(crate) fn new(path: String, kind: &str, dtype: DType) -> Self {
        let kind = kind.to_string();
        let (outputs, multiply_adds) = (Vec::new(), None);
        CellSummary { path, kind, outputs, calls: 0, parameters: 0, trained: 0, dtype, bytes: 0, multiply_adds }
    }

    /// Adds the numbers of a parameter.
    pub(crate) fn add(&mut self, count: u64, is_trained: bool) {
        self.parameters = self.parameters.saturating_add(count);
        self.trained = self.trained.saturating_add(if is_trained { count } else { 0 });
        self.bytes = self.parameters.saturating_mul(self.dtype.bytes() as u64);
    }
}

impl ModelSummary {
    /// Adds up the rows.
    pub(crate) fn of(cells: Vec<CellSummary>) -> Self {
        let sum = |f: fn(&CellSummary) -> u64| cells.iter().map(f).fold(0, u64::saturating_add);
        let called = cells.iter().any(|cell| cell.multiply_adds.is_some());
        ModelSummary {
            parameters: sum(|cell| cell.parameters),
            trained: sum(|cell| cell.trained),
            bytes: sum(|cell| cell.bytes),
            multiply_adds: called.then(|| sum(|cell| cell.multiply_adds.unwrap_or(0))),
            cells,
        }
    }
}

impl<C: ?Sized + AsCell> Child<C> {
    /// Returns the sizes of each cell under a plan for this network. A [trace](Child::trace) of a call on an example
    /// adds the shapes of outputs and the multiply-adds, which the network alone does not determine.
    ///
    /// # Errors
    /// [`ErrorKind::Path`](crate::ErrorKind::Path) when the plan or the trace is of another network.
    ///
    /// ```
    /// use precast::{prelude::*, sequential};
    /// let rng = &mut Rng::seed(1);
    /// let net = Child::new(sequential![Dense::new(4, 8, rng), ReLU, Dense::new(8, 2, rng)]);
    /// let plan = Policy::new("O2", DType::F16)?.plan(&net)?;
    /// let x = Tensor::ones(&[3, 4], DType::F32);
    /// let (_, trace) = net.trace(|net| net.call(&x));
    /// let summary = net.summary(&plan, Some(&trace))?;
    /// assert_eq!(summary.cells[1].outputs, [[3, 8]]);
    /// assert_eq!(summary.cells[1].multiply_adds, Some(3 * 4 * 8));
    /// assert_eq!((summary.parameters, summary.bytes), (4 * 8 + 8 + 8 * 2 + 2, 2 * 58));
    /// # Ok::<(), precast::Error>(())
    /// ```
    #[doc(alias = "torchinfo")]
    #[doc(alias = "flops")]
    pub fn summary(&self, plan: &Plan, trace: Option<&Trace>) -> Result<ModelSummary> {
        let dtypes: HashMap<&str, DType> = plan
            .decisions
            .iter()
            .map(|decision| (decision.path.as_str(), decision.run.dtype().unwrap_or(DType::F32)))
            .collect();
        let (mut cells, mut met, mut unknown) = (Vec::<CellSummary>::new(), HashSet::new(), None);
        self.walk(&mut |entry| {
            let path = entry.path.to_string();
            let Some(&dtype) = dtypes.get(path.as_str()) else {
                return unknown = unknown.take().or(Some(path));
            };
            let mut row = CellSummary::new(path, entry.slot.cell.kind(), dtype);
            entry.slot.cell.visit(&mut |_, node| {
                if let Part::Param(param) = node
                    && !param.is_buffer()
                    && met.insert(param.id())
                {
                    row.add(param.value().len() as u64, param.is_trained());
                }
            });
            cells.push(row);
        });
        if let Some(path) = unknown {
            return Err(no_such_path(&path, dtypes.keys().copied()).context("the plan is of another network"));
        }
        if let Some(trace) = trace {
            traced(&mut cells, trace)?;
        }
        Ok(ModelSummary::of(cells))
    }
}

/// Adds the shapes and the multiply-adds of a traced call.
fn traced(cells: &mut [CellSummary], trace: &Trace) -> Result<()> {
    let places: HashMap<String, usize> =
        cells.iter().enumerate().map(|(place, cell)| (cell.path.clone(), place)).collect();
    let of = |path: &str| -> Result<usize> {
        let no_path =
            || no_such_path(path, places.keys().map(String::as_str)).context("the trace is of another network");
        places.get(path).copied().ok_or_else(no_path)
    };
    if trace.cells.is_empty() {
        return Err(Error::value("the trace has no call of a cell: trace `net.trace(|net| net.call(&x))`"));
    }
    let mut sums = vec![0.0; cells.len()];
    for call in &trace.cells {
        // A cell that the walk does not reach has no row either.
        let Some(path) = &call.path else { continue };
        let cell = &mut cells[of(path)?];
        if cell.calls == 0 {
            cell.outputs.clone_from(&call.shapes);
        }
        cell.calls += 1;
    }
    for ran in trace.ops.iter().filter(|ran| ran.op != Op::Cast && !ran.backward) {
        sums[of(&ran.path)?] += cost::multiply_adds(ran.op, &ran.sizes);
    }
    for (cell, sum) in cells.iter_mut().zip(sums) {
        cell.multiply_adds = Some(sum as u64);
    }
    Ok(())
}

/// Returns a number with a comma after each three digits.
fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let comma = |i: usize| i > 0 && (digits.len() - i).is_multiple_of(3);
    let with = |(i, digit): (usize, char)| if comma(i) { vec![',', digit] } else { vec![digit] };
    digits.chars().enumerate().flat_map(with).collect()
}

impl ModelSummary {
    /// Returns the columns of the table, its rows with the totals as the last, and the columns of numbers.
    pub fn table(&self) -> (Vec<&'static str>, Vec<Vec<String>>, Vec<usize>) {
        let shape = |shape: &Vec<usize>| format!("{shape:?}");
        let row = |cell: &CellSummary| {
            let has = cell.parameters > 0;
            let mut row = vec![
                if cell.path.is_empty() { "(root)".into() } else { printable(&cell.path).into_owned() },
                printable(&cell.kind).into_owned(),
                match cell.calls {
                    0 | 1 => cell.outputs.iter().map(shape).collect::<Vec<_>>().join(" "),
                    calls => format!("{calls} × {}", cell.outputs.iter().map(shape).collect::<Vec<_>>().join(" ")),
                },
                match (cell.parameters, cell.trained) {
                    (0, _) => String::new(),
                    (parameters, 0) => format!("{}, frozen", grouped(parameters)),
                    (parameters, trained) if trained == parameters => grouped(parameters),
                    (parameters, trained) => format!("{}, {} trained", grouped(parameters), grouped(trained)),
                },
                if has { cell.dtype.to_string() } else { String::new() },
                if has { grouped(cell.bytes) } else { String::new() },
                cell.multiply_adds.filter(|n| *n > 0).map_or(String::new(), grouped),
            ];
            self.drop_unknown(&mut row);
            row
        };
        let mut rows: Vec<Vec<String>> = self.cells.iter().map(row).collect();
        let mut total = vec![
            "total".to_string(),
            String::new(),
            String::new(),
            match self.trained {
                trained if trained == self.parameters => grouped(self.parameters),
                trained => format!("{}, {} trained", grouped(self.parameters), grouped(trained)),
            },
            String::new(),
            grouped(self.bytes),
            self.multiply_adds.map_or(String::new(), grouped),
        ];
        self.drop_unknown(&mut total);
        rows.push(total);
        let mut header = vec!["path", "kind", "output", "parameters", "dtype", "bytes", "multiply-adds"];
        self.drop_unknown(&mut header);
        let numbers = if self.multiply_adds.is_some() { vec![3, 5, 6] } else { vec![2, 4] };
        (header, rows, numbers)
    }

    /// Removes the columns that are known only by a call.
    fn drop_unknown<T>(&self, row: &mut Vec<T>) {
        if self.multiply_adds.is_none() {
            row.pop();
            row.remove(2);
        }
    }
}

impl fmt::Display for ModelSummary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (header, rows, numbers) = self.table();
        f.write_str(&table(&header, rows, |column| numbers.contains(&column)))
    }
}
