//! The intentional differences from MindSpore, each with the cases it occurs in and the results it may affect.
//!
//! Everything else is still compared. Each has its reason in COMPARE.md and a test in `on_purpose.rs`.

use precast::{DType, Level, Op, Tensor, catalogue::System};

use crate::mindspore::{
    case::{Case, Effect},
    compare::{Mismatch, in_white_cell},
    golden::{CellRow, Lowering, Mode, dtype},
    replay::{How, merges, reproduces},
};

pub struct Difference {
    /// Name in COMPARE.md.
    pub name: &'static str,
    /// Returns whether the difference applies to a case.
    pub met: fn(&Case<'_>) -> bool,
    /// Returns whether it explains a disagreement.
    pub explains: fn(&Case<'_>, &Mismatch) -> bool,
}

pub const DIFFERENCES: &[Difference] = &[
    Difference {
        name: "to_float is honoured at every level",
        met: |case| matches!(case.effect(), Effect::AllBut(_)) && case.net.original_cells.iter().any(is_flagged),
        explains: |case, mismatch| match mismatch {
            Mismatch::Cell { path, .. } => case.original(path).is_some_and(is_flagged),
            Mismatch::Op { path, ours, .. } => flag(case, path) == Some(ours.inside),
            _ => comes_out(case, mismatch),
        },
    },
    Difference {
        name: "a to_float cell returns the dtype of its surroundings",
        met: |case| !matches!(case.effect(), Effect::AllBut(_)) && case.net.original_cells.iter().any(is_flagged),
        explains: |case, mismatch| match mismatch {
            // An f32 layer in an f16 one: its result is rounded there.
            Mismatch::Value { .. } => has_nested_flags(case) && comes_out(case, mismatch),
            // At level auto an unlisted op takes its inputs unchanged, which there still have the dtype of the previous
            // cell.
            Mismatch::Op { path, op, theirs, ours, .. } => {
                is_unlisted(case, *op)
                    && ours.inside == DType::F32
                    && flag(case, path).is_none()
                    && cell_before(case, path, *op).is_some_and(|before| flag(case, &before) == Some(theirs.inside))
            }
            _ => is_mixed_dtypes(mismatch),
        },
    },
    Difference {
        name: "a listed root is treated by the list",
        met: |case| root_is_listed(case),
        explains: |case, mismatch| match mismatch {
            Mismatch::Cell { ours, .. } => ours.contains("f32"),
            Mismatch::Op { ours, .. } => match case.effect() {
                Effect::AllBut(_) => ours.inside == DType::F32,
                _ => ours.inside == case.low,
            },
            _ => comes_out(case, mismatch),
        },
    },
    Difference {
        name: "a second level replaces the first",
        met: |case| matches!(case.lowering, Lowering::Twice(a, b) if a != Level::O0 && b != Level::O0),
        // Agreement with the second level alone is checked for every such case.
        explains: |case, mismatch| match mismatch {
            Mismatch::Cell { .. } | Mismatch::Op { .. } => true,
            Mismatch::TheyFail { kind, .. } => kind == "NameError",
            _ => comes_out(case, mismatch),
        },
    },
    Difference {
        name: "a black cell is wrapped at each of its places",
        met: |case| matches!(case.effect(), Effect::AllBut(_)) && case.net.original_cells.iter().any(is_alias),
        explains: |case, mismatch| match mismatch {
            Mismatch::Cell { path, .. } => case.original(path).is_some_and(is_alias),
            _ => false,
        },
    },
    Difference {
        name: "a repeated cell is run each time",
        met: |case| {
            let in_sequence = |row: &&CellRow| row.class == "SequentialCell";
            let repeats = |outer: &CellRow| {
                case.net.original_cells.iter().any(|row| is_alias(row) && parent(&row.path) == Some(&outer.path))
            };
            let has_black = |outer: &CellRow| {
                case.net.original_cells.iter().any(|row| is_black(case, row) && parent(&row.path) == Some(&outer.path))
            };
            case.net.original_cells.iter().filter(in_sequence).any(|outer| repeats(outer) && has_black(outer))
        },
        explains: |case, mismatch| match mismatch {
            Mismatch::Extra { path, .. } => {
                case.net.original_cells.iter().any(|row| row.same_object_as.as_ref() == Some(path))
            }
            // The recorded values are reproduced when the op that ran only here is skipped.
            _ => comes_out(case, mismatch),
        },
    },
    Difference {
        name: "rewriting needs no source code",
        met: |case| matches!(case.effect(), Effect::Listed(_)),
        // Rewriting raises at once, or leaves a name undefined in the class it generates.
        explains: |case, mismatch| match mismatch {
            Mismatch::TheyFail { kind, .. } => case.record.convert_error.is_some() || kind == "NameError",
            _ => false,
        },
    },
    Difference {
        name: "a black cell may return several tensors",
        met: |case| {
            let several = |row: &CellRow| row.class == "LSTMCell" && is_black(case, row);
            case.net.original_cells.iter().any(several)
        },
        explains: |_, mismatch| match mismatch {
            Mismatch::TheyFail { message, .. } => message.contains("Failed calling Cast") || is_mixed_dtypes(mismatch),
            _ => false,
        },
    },
    Difference {
        name: "a listed container is one low region",
        met: |case| case.net.original_cells.iter().any(|row| is_container(row) && in_white_cell(case, &row.path)),
        explains: |case, mismatch| match mismatch {
            Mismatch::Op { path, theirs, ours, .. } => {
                let inside = case.around(path).any(|row| is_container(row) && in_white_cell(case, &row.path));
                inside && ours.inside == case.low && theirs.inside == DType::F32
            }
            _ => comes_out(case, mismatch),
        },
    },
    Difference {
        name: "a white cell is one low region",
        met: |case| case.net.original_cells.iter().any(|row| !is_container(row) && in_white_cell(case, &row.path)),
        explains: |case, mismatch| match mismatch {
            Mismatch::Op { path, theirs, ours, .. } => {
                in_white_cell(case, path) && ours.inside == case.low && theirs.inside == DType::F32
            }
            Mismatch::Value { .. } => calls_operators(case) && comes_out(case, mismatch),
            _ => false,
        },
    },
    Difference {
        name: "a listed op is lowered wherever it runs",
        met: |case| matches!(case.effect(), Effect::Listed(_)),
        explains: |case, mismatch| match (mismatch, case.effect()) {
            (Mismatch::Op { path, op, theirs, ours, .. }, Effect::Listed(list)) => {
                list.ops().contains_key(op)
                    && !in_white_cell(case, path)
                    && ours.inside == case.low
                    && theirs.inside == DType::F32
            }
            (Mismatch::Value { .. }, _) => has_subclass(case) && comes_out(case, mismatch),
            _ => false,
        },
    },
    Difference {
        name: "kinds match exactly",
        met: |case| matches!(case.effect(), Effect::AllBut(_)) && has_subclass(case),
        explains: |case, mismatch| match mismatch {
            Mismatch::Cell { path, .. } => case.original(path).is_some_and(is_subclass),
            Mismatch::Op { path, ours, .. } => case.original(path).is_some_and(is_subclass) && ours.inside == case.low,
            _ => comes_out(case, mismatch),
        },
    },
    Difference {
        name: "a norm reads its parameters as they are",
        met: |case| case.net.original_cells.iter().any(|row| row.class == "GroupNorm"),
        explains: |case, mismatch| comes_out_by(How::Dtypes, case, mismatch),
    },
    Difference {
        name: "one op under two names is treated alike",
        met: |case| matches!(case.effect(), Effect::EachOp(_)),
        explains: |case, mismatch| match (mismatch, case.effect()) {
            // The name that ran there is on no list, and another name of the same op is on the white one.
            (Mismatch::Op { op, name, theirs, ours, .. }, Effect::EachOp(_)) => {
                let white = auto_white_names();
                !white.contains(name)
                    && op.names(System::MindSpore).any(|other| white.iter().any(|listed| listed == other))
                    && (theirs.inside, ours.inside) == (DType::F32, case.low)
            }
            _ => comes_out(case, mismatch),
        },
    },
    Difference {
        name: "inputs are cast at the border of a region",
        met: |case| matches!(case.effect(), Effect::AllBut(_)) && reads_raw_input(case),
        explains: comes_out,
    },
    Difference {
        name: "helper functions belong to the region they are called in",
        met: |case| matches!(case.effect(), Effect::AllBut(_)) && case.mode == Mode::Graph,
        explains: |_, mismatch| is_mixed_dtypes(mismatch),
    },
    Difference {
        name: "bf16 runs on the CPU",
        met: |case| {
            let asked = |row: &CellRow| row.flag.as_deref() == Some("bf16");
            case.low == DType::Bf16 || case.net.original_cells.iter().any(asked)
        },
        explains: |_, mismatch| match mismatch {
            Mismatch::TheyFail { kind, .. } => kind != "NameError" && !is_mixed_dtypes(mismatch),
            _ => false,
        },
    },
    Difference {
        name: "every op rounds its result",
        met: |case| case.mode == Mode::Graph,
        explains: |case, mismatch| matches!(mismatch, Mismatch::Value { leaf, .. } if merges(case, *leaf)),
    },
    Difference {
        name: "an op rounds once",
        met: |case| case.low == DType::F16 && !matches!(case.effect(), Effect::Nothing),
        // The same bits once these functions take MindSpore's steps.
        explains: |case, mismatch| comes_out_by(How::Steps, case, mismatch),
    },
    Difference {
        name: "f32 results have their own last digits",
        met: |case| case.low == DType::F16,
        explains: |case, mismatch| comes_out_by(How::Digits, case, mismatch),
    },
];

/// Returns the white list of level auto, name by name.
fn auto_white_names() -> Vec<String> {
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/policies/packs/mindspore-2.10.yaml");
    let pack: serde_json::Value = precast_policy::document::from_str(&std::fs::read_to_string(file).unwrap()).unwrap();
    let names = pack.pointer("/regions/0/low").and_then(|names| names.as_array()).expect("the list of level auto");
    names.iter().map(|name| name.as_str().expect("a name").to_string()).collect()
}

fn is_flagged(row: &CellRow) -> bool {
    row.flag.is_some()
}

fn is_alias(row: &CellRow) -> bool {
    row.same_object_as.is_some()
}

/// Returns the dtype requested by the user at a path.
fn flag(case: &Case<'_>, path: &str) -> Option<DType> {
    case.original(path)?.flag.as_deref().map(dtype)
}

/// Returns whether a cell was requested to run in another dtype than an enclosing one, also requested.
fn has_nested_flags(case: &Case<'_>) -> bool {
    let differs = |row: &&CellRow| {
        let outer = parent(&row.path).and_then(|path| case.original(path)).and_then(|outer| outer.flag.as_ref());
        row.flag.is_some() && outer.is_some() && outer != row.flag.as_ref()
    };
    case.net.original_cells.iter().any(|row| differs(&row))
}

fn parent(path: &str) -> Option<&str> {
    if path.is_empty() { None } else { Some(path.rsplit_once('.').map_or("", |(parent, _)| parent)) }
}

fn is_black(case: &Case<'_>, row: &CellRow) -> bool {
    matches!(case.effect(), Effect::AllBut(list) if list.cells().contains_key(&row.class))
}

fn root_is_listed(case: &Case<'_>) -> bool {
    let listed = |class: &String| match case.effect() {
        Effect::Listed(list) | Effect::AllBut(list) => list.cells().contains_key(class),
        Effect::Nothing | Effect::EachOp(_) => false,
    };
    case.original("").is_some_and(|root| listed(&root.class))
}

/// Returns whether ops are treated by lists, and this one is unlisted.
fn is_unlisted(case: &Case<'_>, op: Op) -> bool {
    matches!(case.effect(), Effect::EachOp(lists) if lists.op(op, case.low).is_none())
}

/// Returns the cell that ran before the cell of an op, as recorded.
fn cell_before(case: &Case<'_>, path: &str, op: Op) -> Option<String> {
    let rows = case.recorded_run()?.ops()?;
    let at =
        rows.iter().position(|row| row.path == path && op.names(System::MindSpore).any(|name| name == row.name))?;
    rows[..at].iter().rev().map(|row| &row.path).find(|before| *before != path).cloned()
}

/// Returns whether a cell only runs other cells.
fn is_container(row: &CellRow) -> bool {
    matches!(row.class.as_str(), "SequentialCell" | "CellList")
}

/// Returns whether a class of the recorded networks inherits from a listed one.
fn is_subclass(row: &CellRow) -> bool {
    matches!(row.class.as_str(), "MyDense" | "MyBN")
}

fn has_subclass(case: &Case<'_>) -> bool {
    case.net.original_cells.iter().any(is_subclass)
}

/// Returns whether a white cell of the network computes with Python operators.
fn calls_operators(case: &Case<'_>) -> bool {
    let operators = ["RNNCell", "GRUCell", "LSTMCell"];
    case.net.original_cells.iter().any(|row| operators.contains(&row.class.as_str()) && in_white_cell(case, &row.path))
}

/// Returns whether an input reaches an f32 island, or the result, without an op in between.
fn reads_raw_input(case: &Case<'_>) -> bool {
    let Some(run) = &case.record.pynative else { return false };
    let wide = |arriving: &[String]| arriving.iter().any(|code| code == "f32");
    let black = |path: &str| case.around(path).any(|row| is_black(case, row));
    let to_an_island = run.calls().any(|call| black(&call.path) && wide(call.arriving));
    let inputs = case.inputs();
    let is_input = |y: Tensor| y.dtype() == DType::F32 && inputs.iter().any(|x| x.to_f64() == y.to_f64());
    let returned = run.out.iter().flat_map(|out| out.leaves()).any(|leaf| is_input(leaf.tensor()));
    to_an_island || returned
}

/// Returns whether a value is reproduced when every op runs in its recorded dtype, which is not always ours.
fn comes_out(case: &Case<'_>, mismatch: &Mismatch) -> bool {
    matches!(mismatch, Mismatch::Value { leaf, .. } if reproduces(case, *leaf).is_some())
}

/// Returns whether a value is reproduced in this way and not in a simpler one.
fn comes_out_by(how: How, case: &Case<'_>, mismatch: &Mismatch) -> bool {
    matches!(mismatch, Mismatch::Value { leaf, .. } if reproduces(case, *leaf) == Some(how))
}

/// Returns whether this is MindSpore's refusal to multiply matrices of different dtypes.
fn is_mixed_dtypes(mismatch: &Mismatch) -> bool {
    let refusal = |message: &str| message.contains("should be same") || message.contains("must be same");
    matches!(mismatch, Mismatch::TheyFail { message, .. } if refusal(message))
}
