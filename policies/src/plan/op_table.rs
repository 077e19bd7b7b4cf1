//! A plan op by op: the ops of a traced call, their dtypes, and the reasons.

use std::{
    collections::{HashMap, hash_map::Entry as Place},
    fmt,
    sync::Arc,
};

use precast_base::{DType, Result, path::shown, printable::printable};
use serde::{Deserialize, Serialize};

use super::{Decision, Plan, Reason, Region};
use crate::{Op, Precision, host::Recorded, policy::Entry, precision::Treatment};

/// The ops of a traced call, each with its cell, its dtypes, and the reason. `println!("{table}")` is aligned text.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct OpsTable {
    /// One row for each op of a cell, in the order of their first calls. An op that had other dtypes in a later call
    /// has another row.
    pub rows: Vec<OpRow>,
}

/// An op of one cell.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct OpRow {
    /// Path of the innermost cell it ran in; the root's is empty.
    pub path: String,
    /// The op.
    pub op: Op,
    /// Dtypes of the inputs of the kernel, after casts.
    pub inputs: Vec<DType>,
    /// Dtype of the kernel's result. A listed op casts it back to f32 at O1, and to the low dtype at O2.
    pub output: DType,
    /// Number of calls with these dtypes.
    pub calls: usize,
    /// The reason for the dtypes.
    pub because: OpReason,
}

/// The reason for the dtypes of an op.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum OpReason {
    /// An entry for the op in a list of ops.
    Listed(Entry),
    /// Op lists apply, and none has the op: the treatment of all others.
    Unlisted(Treatment),
    /// A custom op on no list, with the precision that it declares.
    Declared(Precision),
    /// The region of the cell at this path, in whose dtype every op runs.
    Region(Arc<str>),
    /// No casts here.
    AsIs,
}

impl Plan {
    /// Returns the ops of a traced forward call under this plan. Casts and ops of a backward pass are left out.
    ///
    /// # Errors
    /// [`ErrorKind::Path`](crate::ErrorKind::Path) when an op ran in a cell that the plan does not have.
    pub fn ops(&self, trace: &impl Recorded) -> Result<OpsTable> {
        let decisions: HashMap<&str, &Decision> = self.decisions.iter().map(|of| (of.path.as_str(), of)).collect();
        let (mut rows, mut places): (Vec<OpRow>, HashMap<_, usize>) = (Vec::new(), HashMap::new());
        for ran in trace.ran_ops().filter(|ran| ran.op != Op::Cast && !ran.backward) {
            match places.entry((ran.path, ran.op, ran.inputs, ran.output)) {
                Place::Occupied(place) => rows[*place.get()].calls += 1,
                Place::Vacant(place) => {
                    let decision = decisions.get(ran.path).copied().map_or_else(|| self.decision(ran.path), Ok)?;
                    place.insert(rows.len());
                    rows.push(OpRow {
                        path: ran.path.to_string(),
                        op: ran.op,
                        inputs: ran.inputs.to_vec(),
                        output: ran.output,
                        calls: 1,
                        because: self.why(decision, ran.op),
                    });
                }
            }
        }
        Ok(OpsTable { rows })
    }

    fn why(&self, decision: &Decision, op: Op) -> OpReason {
        let declared = if let Op::Custom(op) = op { Some(op.precision()) } else { None };
        match (decision.run, declared) {
            (Region::AsIs, _) => OpReason::AsIs,
            (Region::Lists(_), _) => match (self.listed.get(&op), declared) {
                (Some(entry), _) => OpReason::Listed(entry.clone()),
                (None, Some(precision)) => OpReason::Declared(precision),
                (None, None) => OpReason::Unlisted(self.unlisted),
            },
            (Region::Except(_), _) if self.listed.contains_key(&op) => OpReason::Listed(self.listed[&op].clone()),
            (Region::Fixed(_) | Region::Except(_), Some(precision @ Precision::Fixed(_))) => {
                OpReason::Declared(precision)
            }
            (Region::Fixed(_) | Region::Except(_), _) => OpReason::Region(match &decision.because {
                Reason::Inside(owner) => owner.clone(),
                Reason::Level(_) => "".into(),
                _ => decision.path.as_str().into(),
            }),
        }
    }
}

impl fmt::Display for OpReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            OpReason::Listed(Entry { treatment, because, origin, .. }) => {
                write!(f, "{treatment} list of ops, {origin}")?;
                because.as_ref().map_or(Ok(()), |because| write!(f, ": {}", printable(because)))
            }
            OpReason::Unlisted(treatment) => write!(f, "on no list: {}", treatment.meaning()),
            OpReason::Declared(precision) => write!(f, "custom op, on no list: declares {precision}"),
            OpReason::Region(path) => write!(f, "region of {}", shown(path)),
            OpReason::AsIs => f.write_str("nothing is cast"),
        }
    }
}

impl fmt::Display for OpsTable {
    /// Prints a line for each row: path, op, number of calls, dtypes, reason. Of consecutive inputs with equal dtypes,
    /// one is shown.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let header = ["path", "op", "calls", "dtypes", "because"].map(String::from);
        let rows = self.rows.iter().map(|row| {
            let mut inputs: Vec<&str> = row.inputs.iter().map(|dtype| dtype.name()).collect();
            inputs.dedup();
            let dtypes = format!("{} -> {}", inputs.join(", "), row.output);
            [shown(&row.path).into_owned(), row.op.to_string(), row.calls.to_string(), dtypes, row.because.to_string()]
        });
        let lines: Vec<[String; 5]> = std::iter::once(header).chain(rows).collect();
        let width = |column: usize| lines.iter().map(|line| line[column].chars().count()).max().unwrap_or(0);
        let [paths, ops, calls, dtypes] = [0, 1, 2, 3].map(width);
        for (i, [path, op, called, dtype, because]) in lines.iter().enumerate() {
            let end = if i + 1 == lines.len() { "" } else { "\n" };
            write!(f, "{path:paths$}  {op:ops$}  {called:>calls$}  {dtype:dtypes$}  {because}{end}")?;
        }
        Ok(())
    }
}
