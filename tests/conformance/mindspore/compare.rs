//! Comparison of the recording with the run here.
//!
//! The correspondence:
//! - a cell's flag (`to_float`) is the dtype of its region here; a cell without a flag has none, or runs under op lists
//!   (O1), or, if white-listed, is one low region that returns f32. `_OutputTo16(t)` and `_OutputTo32` around a cell
//!   are the outward cast of its adapter; the same wrapper twice casts once. A flag set by the user has no wrapper in
//!   MindSpore (the next op casts), so for such a cell only the flag is compared.
//! - an op is compared by path, name, the dtype it computed in and the dtype it returned, in order. `Cast` and `typeof`
//!   compute nothing; a `MatMul` with `transpose_b` is `Transpose`, `MatMul` here; a `Split` is one op for each piece
//!   here; with several outputs the first is compared, and for an integer result the dtype inside is not. A shared cell
//!   has its first path. An op that only moves elements may come before the cast in PyNative and after it in a graph:
//!   the numbers are the same, so its dtype is not compared.
//! - the names of the cells in a SequentialCell that is itself the root are lost when O1 regenerates it; there, ops are
//!   compared without paths.
//! - in a graph, equal ops of a path are merged and reordered, so the two are compared as sets. `+` is one function for
//!   the whole graph, and every `Add` is shown in the cell that reached it first, so its path is not compared.
//! - int32 is i64 here.
//!
//! PyNative's values are the reference. Numbers computed in low precision must be equal, bit for bit. For those
//! computed in f32, sums may be taken in another order and functions approximated by other polynomials (MindSpore's f32
//! sigmoid is off by 7e-7): 2 units in the last place for each op that sums or approximates, relative to the largest
//! magnitude of the result, at least 1, since a sigmoid's small result comes from larger numbers. The graph's values
//! count only where there are no others, since a graph omits roundings. MindSpore's f16 sigmoid, softmax and norms round
//! every step, so a case may be listed with other values; these are within 2 low units for each op.

use precast::{DType, ErrorKind, Op, Tensor, catalogue::System, cell::Adapter, error::Error, plan::Region};

use crate::mindspore::{
    case::{Case, Effect, Ours},
    golden::{Array, Mode, OpRow, Raised, Run, dtype},
};

/// The points of disagreement.
#[derive(Debug, Default)]
pub struct Found {
    /// Those that no intentional difference explains.
    pub wrong: Vec<String>,
    /// Other cells or dtypes of ops than there, and calls that only MindSpore refuses: ours are those of our rule.
    pub differ: Vec<String>,
    /// Outputs with other values, within a few units.
    pub values: Vec<String>,
    /// Those that are farther off, as where MindSpore runs other cells.
    pub far: Vec<String>,
}

/// The dtype an op computed in, and the one it returned.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Dtypes {
    inside: DType,
    result: DType,
}

/// Returns every point in which the recording and the run disagree.
pub fn compare(case: &Case<'_>, ours: Result<&Ours, Error>) -> Found {
    let mut found = Found::default();
    let raised = case.record.convert_error.as_ref();
    let ours = match ours {
        Ok(ours) if raised.is_none() => ours,
        other => {
            let error = other.map_or_else(Some, |ours| ours.outputs.as_ref().err().cloned());
            compare_refusals(raised, error.as_ref(), &mut found);
            return found;
        }
    };
    compare_cells(case, ours, &mut found);
    let low = case.record.param_dtypes.iter().filter(|code| dtype(code) != DType::F32);
    found.wrong.extend(low.map(|code| format!("a {code} parameter there")));
    let Some(run) = case.recorded_run() else { return found };
    compare_refusals(run.error.as_ref(), ours.outputs.as_ref().err(), &mut found);
    if let Some(theirs) = their_ops(run) {
        let in_order = case.mode == Mode::PyNative;
        compare_ops(case, theirs, our_ops(case, ours), in_order, &mut found);
    }
    if let (Some(theirs), Ok(ours_out)) = (&run.out, &ours.outputs) {
        compare_outputs(case, &theirs.leaves(), ours_out, ours, &mut found);
    }
    found
}

/// Compares refusals; equivalent kinds of error agree.
fn compare_refusals(raised: Option<&Raised>, ours: Option<&Error>, found: &mut Found) {
    let Some(Raised { kind, message }) = raised else {
        return found.wrong.extend(ours.map(|error| format!("error here: {error}")));
    };
    let same: &[ErrorKind] = match kind.as_str() {
        "TypeError" => &[ErrorKind::DType],
        "ValueError" => &[ErrorKind::Value, ErrorKind::Shape, ErrorKind::Level, ErrorKind::List],
        _ => &[],
    };
    match ours {
        None => found.differ.push(format!("{kind} there: {message}")),
        Some(error) if same.contains(&error.kind()) => {}
        Some(error) => found.wrong.push(format!("{kind} there: {message}; {:?} here: {error}", error.kind())),
    }
}

fn compare_cells(case: &Case<'_>, ours: &Ours, found: &mut Found) {
    let seats = case.record.seats();
    for seat in &seats {
        let Ok(decision) = ours.plan.decision(&seat.path) else {
            found.wrong.push(format!("cell `{}` only there", seat.path));
            continue;
        };
        let user_flagged = case.original(&seat.path).is_some_and(|row| row.flag.is_some());
        let mut wrappers: Vec<DType> = seat.wrappers.iter().map(|name| wrapper_dtype(name, case.low)).collect();
        wrappers.dedup();
        let border = match (&decision.adapter, decision.run) {
            // White-listed cells return f32; MindSpore writes that into the generated class.
            (Some(Adapter::Cast(cast)), _) if !(seat.flag.is_none() && cast.outward == DType::F32) => {
                Some(cast.outward)
            }
            _ => None,
        };
        let run = match decision.run {
            Region::Fixed(_) if seat.flag.is_none() && in_white_cell(case, &seat.path) => None,
            run => run.dtype(),
        };
        let flag = seat.flag.as_deref().map(dtype);
        let agree = flag == run && (user_flagged || wrappers == border.into_iter().collect::<Vec<_>>());
        let kind = decision.kind.as_ref();
        if !agree || seat.class != kind {
            let wrapped =
                if seat.wrappers.is_empty() { String::new() } else { format!(" {}", seat.wrappers.join(" ")) };
            let theirs = format!("{} {}{wrapped}", seat.class, seat.flag.as_deref().unwrap_or("without flag"));
            let adapter = match &decision.adapter {
                Some(Adapter::Cast(cast)) => format!(", {cast}"),
                Some(_) => ", by op lists".into(),
                None => String::new(),
            };
            let ours = format!("{kind} {}{adapter}", decision.run);
            found.differ.push(format!("cell `{}`: {theirs} there, {ours} here", seat.path));
        }
    }
    let unknown = ours.plan.decisions.iter().filter(|d| !seats.iter().any(|seat| seat.path == d.path));
    found.wrong.extend(unknown.map(|decision| format!("cell `{}` only here", decision.path)));
}

/// Returns whether a cell or an enclosing one is white-listed.
fn in_white_cell(case: &Case<'_>, path: &str) -> bool {
    match case.effect() {
        Effect::Listed(list) => case.around(path).any(|row| list.cells().contains_key(&row.class)),
        _ => false,
    }
}

fn wrapper_dtype(name: &str, low: DType) -> DType {
    match name {
        "_OutputTo32" => DType::F32,
        "_OutputTo16(f16)" => DType::F16,
        "_OutputTo16(bf16)" => DType::Bf16,
        "_OutputTo16" => low,
        name => panic!("a wrapper is not understood: `{name}`"),
    }
}

impl Dtypes {
    fn of(inputs: impl Iterator<Item = DType>, result: DType) -> Self {
        let inside = inputs.reduce(DType::promote).filter(|_| result.is_float());
        Dtypes { inside: inside.unwrap_or(result), result }
    }
}

/// Returns whether an op only moves elements.
fn moves(op: Op) -> bool {
    matches!(op, Op::Reshape | Op::Unsqueeze | Op::Squeeze | Op::Flatten)
}

/// Returns the path under which an op is compared.
fn path_of(case: &Case<'_>, path: &str) -> String {
    let names_lost = matches!(case.effect(), Effect::Listed(_))
        && case.original("").is_some_and(|root| root.class == "SequentialCell");
    if names_lost { String::new() } else { case.first_path(path) }
}

/// Returns whether an op computes nothing that depends on the dtype it runs in.
pub fn places(op: Op) -> bool {
    moves(op)
        || matches!(op, Op::Cast | Op::Transpose | Op::Split | Op::Embedding | Op::ArgMax | Op::MaxPool2d | Op::Dropout)
}

struct OurOp {
    path: String,
    op: Op,
    dtypes: Dtypes,
}

/// Returns the recorded ops that compute something or move elements.
fn their_ops(run: &Run) -> Option<Vec<OpRow>> {
    Some(run.ops()?.into_iter().filter(|row| !matches!(row.name.as_str(), "Cast" | "typeof")).collect())
}

fn our_ops(case: &Case<'_>, ours: &Ours) -> Vec<OurOp> {
    let shown = ours.trace.ops.iter().filter(|op| !matches!(op.op, Op::Cast | Op::Transpose));
    shown
        .map(|op| {
            let inputs = op.inputs.iter().copied().filter(|d| d.is_float());
            OurOp { path: path_of(case, &op.path), op: op.op, dtypes: Dtypes::of(inputs, op.output) }
        })
        .collect()
}

fn their_dtypes(row: &OpRow) -> Dtypes {
    let result = row.outputs.first().map_or(DType::F32, |code| dtype(code));
    let inputs = row.inputs.iter().map(|code| dtype(code)).filter(|d| d.is_float() && !row.before_cast);
    Dtypes::of(inputs, result)
}

/// Returns whether a recorded op and one of ours are the same op in the same cell.
fn same_op(case: &Case<'_>, row: &OpRow, op: &OurOp) -> bool {
    path_of(case, &row.path) == op.path && op.op.names(System::MindSpore).any(|name| name == row.name)
}

/// Aligns recorded ops with ours: the longest common subsequence, so that a missing or extra op appears as such and not
/// as a shift of all later ones. A `Split`, which is one op for each piece here, appears once.
fn aligned<'a>(case: &Case<'_>, theirs: &'a [OpRow], ours: &'a [OurOp]) -> Vec<(Option<&'a OpRow>, Option<&'a OurOp>)> {
    let mut theirs: Vec<&OpRow> = theirs.iter().collect();
    theirs.dedup_by(|a, b| a.name == "Split" && b.name == "Split" && a.path == b.path);
    let mut ours: Vec<&OurOp> = ours.iter().collect();
    ours.dedup_by(|a, b| a.op == Op::Split && b.op == Op::Split && a.path == b.path && a.dtypes == b.dtypes);
    let (n, m) = (theirs.len(), ours.len());
    let mut longest = vec![vec![0; m + 1]; n + 1];
    for i in (0..n).rev() {
        for j in (0..m).rev() {
            let skip = longest[i + 1][j].max(longest[i][j + 1]);
            longest[i][j] = if same_op(case, theirs[i], ours[j]) { skip.max(longest[i + 1][j + 1] + 1) } else { skip };
        }
    }
    let (mut i, mut j) = (0, 0);
    let mut pairs = vec![];
    while i < n || j < m {
        if i < n && j < m && same_op(case, theirs[i], ours[j]) {
            pairs.push((Some(theirs[i]), Some(ours[j])));
            (i, j) = (i + 1, j + 1);
        } else if j == m || (i < n && longest[i + 1][j] >= longest[i][j + 1]) {
            pairs.push((Some(theirs[i]), None));
            i += 1;
        } else {
            pairs.push((None, Some(ours[j])));
            j += 1;
        }
    }
    pairs
}

fn compare_ops(case: &Case<'_>, theirs: Vec<OpRow>, ours: Vec<OurOp>, in_order: bool, found: &mut Found) {
    let same_dtypes = |row: &OpRow, op: &OurOp| moves(op.op) || their_dtypes(row) == op.dtypes;
    let mut compare = |row: Option<&OpRow>, op: Option<&OurOp>, same: bool| match (row, op) {
        (Some(row), Some(op)) if !same => {
            let said = |dtypes: Dtypes| format!("{} -> {}", dtypes.inside, dtypes.result);
            let (theirs, ours) = (said(their_dtypes(row)), said(op.dtypes));
            found.differ.push(format!("{} ({}) in `{}`: {theirs} there, {ours} here", op.op, row.name, op.path));
        }
        (Some(row), None) => found.wrong.push(format!("{} in `{}` only there", row.name, row.path)),
        // A repeated cell that is lost there.
        (None, Some(op)) => found.differ.push(format!("{} in `{}` only here", op.op, op.path)),
        _ => {}
    };
    if in_order {
        for (row, op) in aligned(case, &theirs, &ours) {
            compare(row, op, row.zip(op).is_none_or(|(row, op)| same_dtypes(row, op)));
        }
        return;
    }
    let same = |row: &OpRow, op: &OurOp| {
        same_op(case, row, op) || (op.op == Op::Add && op.op.names(System::MindSpore).any(|name| name == row.name))
    };
    for row in &theirs {
        let here: Vec<&OurOp> = ours.iter().filter(|op| same(row, op)).collect();
        compare(Some(row), here.first().copied(), here.iter().any(|op| same_dtypes(row, op)));
    }
    ours.iter().filter(|op| !theirs.iter().any(|row| same(row, op))).for_each(|op| compare(None, Some(op), true));
}

fn compare_outputs(case: &Case<'_>, theirs: &[&Array], outputs: &[Tensor], ours: &Ours, found: &mut Found) {
    if theirs.len() != outputs.len() {
        return found.wrong.push(format!("{} outputs there, {} here", theirs.len(), outputs.len()));
    }
    for (leaf, (theirs, y)) in theirs.iter().zip(outputs).enumerate() {
        let wanted = (dtype(&theirs.dtype), &theirs.shape[..]);
        if wanted != (y.dtype(), y.shape()) {
            found.wrong.push(format!("output {leaf}: {wanted:?} there, {} {:?} here", y.dtype(), y.shape()));
            if wanted.1 != y.shape() {
                continue;
            }
        }
        if case.mode == Mode::Graph && case.record.pynative.is_some() {
            continue;
        }
        let theirs = theirs.tensor();
        let off = largest_difference(&theirs.to_f64(), &y.to_f64());
        if off.is_nan() || off > allowed(&theirs, ours, case.low) {
            let units = 2.0 * ours.trace.ops.len() as f64 * case.low.epsilon() * magnitude(&theirs);
            let within = if off <= units { &mut found.values } else { &mut found.far };
            within.push(format!("output {leaf}: off by {off:.3e}"));
        }
    }
}

/// Returns the largest difference; NaN agrees with NaN, and infinities of the same sign with each other.
pub fn largest_difference(theirs: &[f64], ours: &[f64]) -> f64 {
    let same = |(a, b): (&f64, &f64)| a == b || (a.is_nan() && b.is_nan());
    let off = |(a, b): (&f64, &f64)| if same((a, b)) { 0.0 } else { (a - b).abs() };
    theirs.iter().zip(ours).map(off).fold(0.0, |worst: f64, off| if off.is_nan() { off } else { worst.max(off) })
}

/// Returns the largest magnitude, at least 1.
pub fn magnitude(x: &Tensor) -> f64 {
    x.to_f64().iter().fold(1.0, |m, x| m.max(x.abs()))
}

/// Returns the tolerance of a leaf: none if it is low throughout; else by the order of sums and the approximation of
/// functions in f32.
fn allowed(theirs: &Tensor, ours: &Ours, low: DType) -> f64 {
    if theirs.cast(low).to_f64() == theirs.to_f64() {
        return 0.0;
    }
    let exact =
        |op: Op| moves(op) || matches!(op, Op::Cast | Op::Relu | Op::Abs | Op::Split | Op::Concat | Op::Transpose);
    let ops = ours.trace.ops.iter().filter(|op| op.output == DType::F32 && !exact(op.op)).count();
    2.0 * ops as f64 * DType::F32.epsilon() * magnitude(theirs)
}
