//! `precast show levels`: the choices for a policy.

use precast::{
    DType, Level,
    policy::{GraphList, Lists, Pack, PolicyFile},
    precision::Treatment,
};
use serde::Serialize;

use super::{Format, Result, print, print_json, table::table};

/// List the levels, the built-in policies, and the lists of cells and ops that the levels use
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Output format
    #[arg(long, default_value = "text")]
    format: Format,
}

#[derive(Serialize)]
struct Levels {
    levels: Vec<LevelRow>,
    graph: LevelRow,
    pack: &'static str,
    lists: Vec<ListRow>,
}

#[derive(Serialize)]
struct LevelRow {
    /// The level; none for graphs.
    #[serde(skip_serializing_if = "Option::is_none")]
    level: Option<Level>,
    meaning: &'static str,
    /// The built-in policies.
    policies: Vec<PolicyRow>,
}

#[derive(Serialize)]
struct PolicyRow {
    name: &'static str,
    dtype: DType,
}

#[derive(Clone, Serialize)]
struct ListRow {
    list: &'static str,
    /// The level; none for graphs.
    #[serde(skip_serializing_if = "Option::is_none")]
    level: Option<Level>,
    cells: Vec<String>,
    ops: Vec<&'static str>,
}

pub(super) fn run(args: &Args) -> Result {
    let pack = Pack::named(Pack::DEFAULT)?;
    let mut lists = Vec::new();
    for level in [Level::O1, Level::O2, Level::Auto] {
        lists.extend(rows(Some(level), &pack.lists(level)?));
    }
    lists.extend(rows(None, pack.graph_lists()?));
    let row =
        |level: Option<Level>| LevelRow { level, meaning: level.map_or(OF_GRAPHS, Level::meaning), policies: vec![] };
    let mut levels: Vec<LevelRow> = Level::ALL.map(|level| row(Some(level))).into();
    let mut graph = row(None);
    for name in PolicyFile::names() {
        let policy = PolicyFile::named(name)?;
        // Those with lists of their own are for files of nodes: `precast show` lists them.
        if matches!(&policy, PolicyFile::Graph(policy) if policy.pack.as_deref() != Some(Pack::DEFAULT)) {
            continue;
        }
        if let Some(row) = levels.iter_mut().chain([&mut graph]).find(|row| row.level == policy.level()) {
            row.policies.push(PolicyRow { name, dtype: policy.dtype() });
        }
    }
    let all = Levels { levels, graph, pack: Pack::DEFAULT, lists };
    match args.format {
        Format::Json => print_json(&all),
        Format::Text => print(text(&all)),
    }
}

/// The meaning of a policy for graphs.
const OF_GRAPHS: &str = "a graph is rewritten: low spreads from products to neighbours";

/// Returns the lists of a level, or of graphs, that have an entry, by treatment.
fn rows(level: Option<Level>, lists: &Lists) -> Vec<ListRow> {
    let name = |treatment: Treatment| match GraphList::of(treatment) {
        Some(list) if level.is_none() => list.name(),
        _ => treatment.name(),
    };
    let row = |treatment: Treatment| ListRow {
        list: name(treatment),
        level,
        cells: lists
            .cells()
            .iter()
            .filter(|(_, entry)| entry.treatment == treatment)
            .map(|(kind, _)| kind.clone())
            .collect(),
        ops: lists.ops_with(treatment).map(|op| op.name()).collect(),
    };
    Treatment::ALL.map(row).into_iter().filter(|row| !row.cells.is_empty() || !row.ops.is_empty()).collect()
}

fn text(all: &Levels) -> String {
    let policies = |row: &LevelRow| -> String {
        let one = |policy: &PolicyRow| format!("{} ({})", policy.name, policy.dtype);
        row.policies.iter().map(one).collect::<Vec<_>>().join(", ")
    };
    let levels = all.levels.iter().chain([&all.graph]).map(|row| {
        let level = row.level.map_or("graph: {}".into(), |level| format!("level: {level}"));
        [level, row.meaning.to_string(), policies(row)]
    });
    let lists = all.lists.iter().map(|row| {
        [
            format!("{}, read {}", row.list, row.level.map_or("in graphs".into(), |level| format!("at {level}"))),
            row.cells.join(", "),
            row.ops.join(", "),
        ]
    });
    format!(
        "{}\n\nlists of {}\n\n{}",
        table(&["in a policy", "meaning", "built-in policies"], levels, &[]),
        all.pack,
        table(&["list", "cells", "ops"], lists, &[])
    )
}
