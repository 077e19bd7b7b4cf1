//! `precast show ops`: the treatment of ops by packs.

use std::collections::{BTreeMap, BTreeSet};

use precast::{
    DType, Level, Op,
    catalogue::System,
    policy::{GraphList, Lists, Pack},
    precision::Treatment,
};
use serde::Serialize;

use super::{Format, Result, print, print_json, table::table};

/// Show how the lists of packs treat ops: one op in all packs, or all ops of one pack
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// An op, by its name here or in MindSpore, Paddle, torch, TensorFlow or ONNX: `MatMul`, `elementwise_add`,
    /// `aten::softmax`, `Gemm`
    op: Option<String>,
    /// The pack whose lists are shown; with an op, only that pack
    #[arg(long, short)]
    pack: Option<String>,
    /// Output format
    #[arg(long, default_value = "text")]
    format: Format,
}

/// An op and its treatment by every pack.
#[derive(Serialize)]
struct OpRow {
    op: Op,
    kernel: bool,
    names: BTreeMap<System, Vec<&'static str>>,
    decisions: Vec<Decision>,
}

/// The treatment by packs of the ops with a name.
#[derive(Serialize)]
struct OpRows {
    ops: Vec<OpRow>,
}

/// The treatment of an op by one level of one pack.
#[derive(Serialize)]
struct Decision {
    #[serde(skip_serializing_if = "Option::is_none")]
    pack: Option<String>,
    level: String,
    /// `None`: the pack does not support that dtype.
    float16: Option<Treatment>,
    bfloat16: Option<Treatment>,
    /// `true` when the op is on a list of that level.
    listed: bool,
    because: String,
}

/// The lists of one pack.
#[derive(Serialize)]
struct PackRows {
    pack: String,
    source: String,
    system: Option<System>,
    /// The treatment of every other op by each level.
    unlisted: BTreeMap<String, Treatment>,
    ops: Vec<OpRow>,
}

pub(super) fn run(args: &Args) -> Result {
    let packs = || Pack::names().map(Pack::named).collect::<precast::Result<Vec<Pack>>>();
    match (&args.op, &args.pack) {
        (Some(name), None) => {
            let in_onnx = |error| Op::named_in(System::Onnx, name).map_err(|_| error);
            show_ops(&Op::named(name).or_else(in_onnx)?, &packs()?, args.format)
        }
        (Some(name), Some(pack)) => {
            let pack = Pack::named(pack)?;
            show_ops(&pack.op(name)?, &[pack], args.format)
        }
        (None, pack) => show_pack(&Pack::named(pack.as_deref().unwrap_or(Pack::DEFAULT))?, args.format),
    }
}

fn show_ops(ops: &[Op], packs: &[Pack], format: Format) -> Result {
    let rows: Vec<OpRow> = ops
        .iter()
        .map(|&op| {
            let of = |pack: &Pack| decisions(op, pack, Some(pack.name.to_string()));
            OpRow { op, kernel: op.has_kernel(), names: names(op), decisions: packs.iter().flat_map(of).collect() }
        })
        .collect();
    match format {
        Format::Json => print_json(&OpRows { ops: rows }),
        Format::Text => print(rows.iter().map(op_text).collect::<Vec<_>>().join("\n\n")),
    }
}

fn show_pack(pack: &Pack, format: Format) -> Result {
    let all = lists_of(pack);
    let listed: BTreeSet<Op> = all.iter().flat_map(|(_, lists, _)| lists.ops().keys().copied()).collect();
    let unlisted = all.into_iter().map(|(level, _, unlisted)| (level, unlisted)).collect();
    let rows = PackRows {
        pack: pack.name.to_string(),
        source: pack.source.clone(),
        system: pack.system,
        unlisted,
        ops: listed
            .into_iter()
            .map(|op| OpRow { op, kernel: op.has_kernel(), names: names(op), decisions: decisions(op, pack, None) })
            .collect(),
    };
    match format {
        Format::Json => print_json(&rows),
        Format::Text => print(pack_text(pack, &rows)),
    }
}

fn names(op: Op) -> BTreeMap<System, Vec<&'static str>> {
    System::ALL.iter().filter(|system| !system.is_open()).map(|&system| (system, op.names(system).collect())).collect()
}

/// Returns every set of op lists of a pack, by the level that reads it, with the treatment of its other ops: the levels
/// of networks that list ops (`nets O1`), the op levels of regions, and graphs.
fn lists_of(pack: &Pack) -> Vec<(String, &Lists, Treatment)> {
    let networks = pack.levels.iter().filter(|(_, lists)| !lists.ops().is_empty()).map(|(level, lists)| {
        let unlisted = if *level == Level::O2 { Treatment::Low } else { lists.unlisted };
        (format!("nets {level}"), lists, unlisted)
    });
    let regions = pack.regions.iter().map(|(op_level, lists)| (op_level.to_string(), lists, lists.unlisted));
    let graph = pack.graph.iter().map(|lists| {
        let unlisted = GraphList::of(lists.unlisted).map_or(Treatment::Full, GraphList::treatment);
        ("graph".to_string(), lists, unlisted)
    });
    networks.chain(regions).chain(graph).collect()
}

/// Returns the treatment of an op by each level of a pack.
fn decisions(op: Op, pack: &Pack, name: Option<String>) -> Vec<Decision> {
    let decision = |(level, lists, unlisted): (String, &Lists, Treatment)| {
        let treatment = |dtype: DType| {
            let listed = lists.op(op, dtype).map_or(unlisted, |entry| entry.treatment);
            pack.dtypes.contains(&dtype).then_some(listed)
        };
        Decision {
            pack: name.clone(),
            level,
            float16: treatment(DType::F16),
            bfloat16: treatment(DType::Bf16),
            listed: lists.ops().contains_key(&op),
            because: because(op, lists, unlisted),
        }
    };
    lists_of(pack).into_iter().map(decision).collect()
}

/// Returns the pack's own words if it has some, otherwise the meaning of the list.
fn because(op: Op, lists: &Lists, unlisted: Treatment) -> String {
    let entry = lists.ops().get(&op);
    let mut words = match entry {
        Some(entry) => match &entry.because {
            Some(words) => words.to_string(),
            None => format!("list `{}`: {}", entry.treatment, entry.treatment.meaning()),
        },
        None => format!("on no list: {}", unlisted.meaning()),
    };
    if let Some(only) = entry.and_then(|entry| entry.only) {
        words += &format!("; listed for {} only", only.long_name());
    }
    if let (None, Some(unpromoted)) = (entry, lists.unlisted_unpromoted) {
        words += &format!("; without promotion {unpromoted}");
    }
    if lists.by_first.contains(&op) {
        words += "; its first input decides";
    }
    words
}

/// Returns `low`, or `low / full` if the two dtypes differ.
fn treatments(decision: &Decision) -> String {
    match (decision.float16, decision.bfloat16) {
        (Some(one), Some(other)) if one != other => format!("{one} / {other}"),
        (Some(one), _) | (None, Some(one)) => one.to_string(),
        (None, None) => "-".into(),
    }
}

fn op_text(row: &OpRow) -> String {
    let kernel = if row.kernel { "yes" } else { "no: precast decides its precision and does not run it" };
    let mut text = format!("{:<12}{}\n{:<12}{kernel}", "op", row.op, "kernel");
    for (system, names) in &row.names {
        let names = if names.is_empty() { "-".into() } else { names.join(", ") };
        text += &format!("\n{:<12}{names}", system.name());
    }
    let cell = |treatment: Option<Treatment>| treatment.map_or_else(|| "-".into(), |t| t.to_string());
    let rows = row.decisions.iter().map(|decision| {
        let pack = decision.pack.clone().unwrap_or_default();
        let treatments = [cell(decision.float16), cell(decision.bfloat16)];
        [vec![pack, decision.level.clone()], treatments.into(), vec![decision.because.clone()]].concat()
    });
    format!("{text}\n\n{}", table(&["pack", "level", "float16", "bfloat16", "because"], rows, &[]))
}

fn pack_text(pack: &Pack, rows: &PackRows) -> String {
    let levels = rows.ops.first().map(|row| row.decisions.iter().map(|decision| decision.level.as_str()));
    let in_system = rows.system.map(|system| format!("in {system}"));
    // The pack's own words; the meaning of a list is stated once, below.
    let because = |op: &Op| pack.regions.iter().find_map(|(_, lists)| lists.ops().get(op)?.because.as_deref());
    let reasons = rows.ops.iter().any(|row| because(&row.op).is_some());
    let mut header = vec!["op"];
    header.extend(in_system.as_deref());
    header.extend(levels.into_iter().flatten());
    header.extend(reasons.then_some("because"));
    header.push("kernel");
    let cells = rows.ops.iter().map(|row| {
        let mut cells = vec![row.op.to_string()];
        cells.extend(rows.system.map(|system| row.op.names(system).collect::<Vec<_>>().join(" ")));
        cells.extend(row.decisions.iter().map(treatments));
        cells.extend(reasons.then(|| because(&row.op).unwrap_or_default().to_string()));
        cells.push(if row.kernel { "yes" } else { "no" }.into());
        cells
    });
    let mut text = format!("{}: {}", rows.pack, rows.source);
    if rows.ops.is_empty() {
        return text + &cells_text(pack);
    }
    text += &format!("\n\n{}\n", table(&header, cells, &[]));
    if rows.ops.iter().flat_map(|row| &row.decisions).any(|decision| treatments(decision).contains('/')) {
        text += "\n`a / b`: a for float16, b for bfloat16";
    }
    let unlisted: Vec<String> = rows.unlisted.iter().map(|(level, treatment)| format!("{level} {treatment}")).collect();
    text += &format!("\nany other op: {}\n", unlisted.join(", "));
    let decided = rows.ops.iter().flat_map(|row| &row.decisions);
    let met = decided.flat_map(|decision| [decision.float16, decision.bfloat16]).flatten();
    let met: BTreeSet<Treatment> = met.chain(rows.unlisted.values().copied()).collect();
    for treatment in met {
        text += &format!("\n{:<18}{}", treatment.name(), treatment.meaning());
    }
    text + &cells_text(pack)
}

/// Returns the lists of cells as a table; nothing for a pack without them.
fn cells_text(pack: &Pack) -> String {
    let kinds: BTreeSet<&str> =
        pack.levels.values().flat_map(|lists| lists.cells().keys()).map(String::as_str).collect();
    if kinds.is_empty() {
        return String::new();
    }
    let because = |kind: &str| pack.levels.values().find_map(|lists| lists.cells().get(kind)?.because.as_deref());
    let reasons = kinds.iter().any(|kind| because(kind).is_some());
    let levels: Vec<String> = pack.levels.keys().map(|level| format!("nets {level}")).collect();
    let mut header = vec!["cell"];
    header.extend(levels.iter().map(String::as_str));
    header.extend(reasons.then_some("because"));
    let rows = kinds.iter().map(|kind| {
        let treatment = |lists: &Lists| match lists.cells().get(*kind) {
            None => "-".to_string(),
            Some(entry) => match entry.only {
                None => entry.treatment.to_string(),
                Some(DType::F16) => format!("{} / -", entry.treatment),
                Some(_) => format!("- / {}", entry.treatment),
            },
        };
        let mut row = vec![kind.to_string()];
        row.extend(pack.levels.values().map(treatment));
        row.extend(reasons.then(|| because(kind).unwrap_or_default().to_string()));
        row
    });
    let by_dtype = pack.levels.values().flat_map(|lists| lists.cells().values()).any(|entry| entry.only.is_some());
    let meaning = if by_dtype { "\n\n`a / b`: a for float16, b for bfloat16" } else { "" };
    format!("\n\n{}{meaning}", table(&header, rows, &[]))
}
