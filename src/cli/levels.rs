//! `precast levels`: the choices for a policy.

use crate::{
    DType, Level, Policy,
    policy::{GraphList, Lists, Pack},
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
    pack: &'static str,
    lists: Vec<ListRow>,
}

#[derive(Serialize)]
struct LevelRow {
    level: Level,
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
    level: Level,
    cells: Vec<String>,
    ops: Vec<&'static str>,
}

pub(super) fn run(args: &Args) -> Result {
    let pack = Pack::named(Pack::DEFAULT)?;
    let of_level = |level| pack.lists(level).map(|lists| rows(level, &lists));
    let lists = [Level::O1, Level::O2, Level::Auto, Level::Graph]
        .map(of_level)
        .into_iter()
        .collect::<crate::Result<Vec<_>>>()?;
    let lists = lists.concat();
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

/// Returns the lists of a level that have an entry, by treatment.
fn rows(level: Level, lists: &Lists) -> Vec<ListRow> {
    let name = |treatment: Treatment| match GraphList::of(treatment) {
        Some(list) if level == Level::Graph => list.name(),
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
