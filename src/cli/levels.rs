//! `precast levels`: what a policy can ask for.

use precast::{
    DType, Level, Policy,
    policy::{List, Pack},
    precision::Treatment,
};
use serde::Serialize;

use super::{Format, Result, print, print_json, table::table};

/// List the levels, the built-in policies, and the lists of cells and ops that the levels go by
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Output format
    #[arg(long, default_value = "text")]
    format: Format,
}

#[derive(Serialize)]
struct Levels {
    levels: Vec<LevelRow>,
    pack: &'static str,
    lists: Vec<ListRow>,
}

#[derive(Serialize)]
struct LevelRow {
    level: Level,
    meaning: &'static str,
    /// The built-in ones.
    policies: Vec<PolicyRow>,
}

#[derive(Serialize)]
struct PolicyRow {
    name: &'static str,
    dtype: DType,
}

#[derive(Serialize)]
struct ListRow {
    list: &'static str,
    level: Level,
    cells: Vec<String>,
    ops: Vec<&'static str>,
}

pub(super) fn run(args: &Args) -> Result {
    let pack = Pack::named(Pack::DEFAULT)?;
    let row = |list, level, names: &List| ListRow {
        list,
        level,
        cells: names.cells().keys().cloned().collect(),
        ops: names.ops().keys().map(|op| op.name()).collect(),
    };
    let auto = |treatment: Treatment| ListRow {
        list: treatment.name(),
        level: Level::Auto,
        cells: Vec::new(),
        ops: pack.auto().list(treatment).map(|(op, _)| op.name()).collect(),
    };
    let by_level = [row("white", Level::O1, &pack.white), row("black", Level::O2, &pack.black)];
    let lists =
        by_level.into_iter().chain(Treatment::ALL.map(auto).into_iter().filter(|row| !row.ops.is_empty())).collect();
    let mut levels: Vec<LevelRow> =
        Level::ALL.map(|level| LevelRow { level, meaning: level.meaning(), policies: Vec::new() }).into();
    for name in Policy::names() {
        let policy = Policy::named(name)?;
        if let Some(row) = levels.iter_mut().find(|row| row.level == policy.level) {
            row.policies.push(PolicyRow { name, dtype: policy.dtype });
        }
    }
    let all = Levels { levels, pack: Pack::DEFAULT, lists };
    match args.format {
        Format::Json => print_json(&all),
        Format::Text => print(text(&all)),
    }
}

fn text(all: &Levels) -> String {
    let policies = |row: &LevelRow| -> String {
        let one = |policy: &PolicyRow| format!("{} ({})", policy.name, policy.dtype.long_name());
        row.policies.iter().map(one).collect::<Vec<_>>().join(", ")
    };
    let levels = all.levels.iter().map(|row| [row.level.to_string(), row.meaning.to_string(), policies(row)]);
    let lists = all
        .lists
        .iter()
        .map(|row| [format!("{}, read at {}", row.list, row.level), row.cells.join(", "), row.ops.join(", ")]);
    format!(
        "{}\n\nlists of {}\n\n{}",
        table(&["level", "meaning", "built-in policies"], levels, &[]),
        all.pack,
        table(&["list", "cells", "ops"], lists, &[])
    )
}
