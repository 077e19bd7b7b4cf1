//! `precast show bench`: the limits of this machine, and the share of them that the kernels reach.

use std::path::PathBuf;

use precast::cost::{Bound, Limits, Measured, Speeds};
use serde::Serialize;

use super::{
    Failure, Format, Result,
    outputs::{self, Force},
    print, print_json, say,
    table::table,
};

/// Measure the limits of this machine on one thread and the share of them that kernels reach; about fifteen seconds.
/// Also renew the speeds used by policies that prefer speed
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Measure only these speeds, in about a second, and write them to this file instead
    #[arg(long, value_name = "FILE")]
    speeds: Option<PathBuf>,
    #[command(flatten)]
    force: Force,
    /// Output format
    #[arg(long, default_value = "text")]
    format: Format,
}

#[derive(Serialize)]
struct Report {
    limits: Limits,
    kernels: Vec<Measured>,
    speeds: Speeds,
}

pub(super) fn run(args: &Args) -> Result {
    outputs::check(&[("--speeds", args.speeds.as_deref())], args.force)?;
    outputs::check_ending("--speeds", args.speeds.as_deref(), &["json"])?;
    if let Some(file) = &args.speeds {
        Speeds::measure().save(file).map_err(Failure::work)?;
        return print(format_args!("written: {}", file.display()));
    }
    // Speeds are measured with all threads, limits with one.
    let speeds = Speeds::measure();
    let kept = match Speeds::cache_file() {
        None => "speeds for `prefer: speed` are not kept: there is no cache folder".to_string(),
        Some(file) => match speeds.save(&file) {
            Ok(()) => format!("speeds for `prefer: speed`: {}", file.display()),
            Err(error) => format!("speeds for `prefer: speed` are not kept: {error}"),
        },
    };
    precast::set_threads(1);
    say("limits of the machine");
    let limits = Limits::measure();
    let kernels = limits.kernels(|row| say(&format!("{} {}", row.work, row.dtype))).map_err(Failure::work)?;
    say("");
    let report = Report { limits, kernels, speeds };
    match args.format {
        Format::Json => print_json(&report),
        Format::Text => print(format_args!("{}\n\n{kept}", text(&report))),
    }
}

fn text(Report { limits, kernels, .. }: &Report) -> String {
    let gflops = |rate: Option<f64>| rate.map_or("unknown".into(), |rate| format!("{rate:.1} Gflop/s"));
    let unit = |bound| match bound {
        Bound::Arithmetic | Bound::Bf16Arithmetic => "Gflop/s",
        _ => "GB/s",
    };
    let of = |bound| match bound {
        Bound::Bf16Arithmetic if limits.bf16_gflops.is_some() => "bf16 multiply-adds",
        Bound::Arithmetic | Bound::Bf16Arithmetic => "multiply-adds",
        Bound::Copy => "copying, beyond the caches",
        Bound::CopyCached => "copying, in the caches",
        _ => "reading, beyond the caches",
    };
    let rows = kernels.iter().map(|row| {
        [
            row.work.clone(),
            row.dtype.to_string(),
            format!("{:.1} us", row.micros),
            format!("{:.1} {}", row.rate, unit(row.bound)),
            row.share.map_or(String::new(), |share| format!("{:.0} %", share * 100.0)),
            of(row.bound).into(),
        ]
    });
    let in_vain = std::env::var("PRECAST_AMX").is_ok_and(|set| set == "1") && !precast::uses_amx();
    let in_vain = if in_vain { " (PRECAST_AMX=1 has no effect)" } else { "" };
    let table = table(&["work", "dtype", "time", "rate", "share", "of"], rows, &[2, 3, 4]);
    format!(
        "one thread, vectors: {}{in_vain}\nmultiply-adds in registers  {}\nof bf16, in pairs or tiles  {}\n\
         copying, in the caches      {:.1} GB/s\ncopying, beyond the caches  {:.1} GB/s\n\
         reading, beyond the caches  {:.1} GB/s\n\n{}",
        limits.vectors,
        gflops(limits.gflops),
        limits.bf16_gflops.map_or("no instruction".into(), |rate| gflops(Some(rate))),
        limits.copy_cached,
        limits.copy,
        limits.read,
        table
    )
}
