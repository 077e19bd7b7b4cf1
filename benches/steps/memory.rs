//! Memory of training: the library's own count of the tape compared with the system's figures for a process.
//!
//! Each network trains at each level in a separate process, since a process's peak never falls. Before the whole batch
//! come steps on one of its samples, which allocate everything that does not grow with the batch: code, gradients, the
//! optimizer's state, low-precision copies of the parameters. The rise of the peak from there is due to the batch:
//! activations and temporaries.

use std::{fs, process::Command};

use precast::prelude::*;

use crate::{
    Column, Trainer,
    peers::{Options, python},
};

/// Each with the way in which it saves memory.
const COLUMNS: [(Column, Saving); 7] = [
    (Column::Torch("f32"), Saving::Nothing),
    (Column::Ours(Some(Level::O0), DType::F16), Saving::Nothing),
    (Column::Ours(Some(Level::O2), DType::F16), Saving::Nothing),
    (Column::Ours(Some(Level::O2), DType::Bf16), Saving::Nothing),
    (Column::Ours(Some(Level::O2), DType::Bf16), Saving::Blocks),
    (Column::Ours(Some(Level::O2), DType::Bf16), Saving::Within),
    (Column::Ours(Some(Level::O2), DType::Bf16), Saving::WithinOfLow),
];

/// Memory that a step saves.
#[derive(Clone, Copy, PartialEq)]
pub enum Saving {
    Nothing,
    /// The activations within blocks, which are recomputed.
    Blocks,
    /// Gradients: parameters are updated in the backward pass.
    Within,
    /// Gradients as well, and the f32 weights: they are stored in bf16 alone and rounded stochastically.
    WithinOfLow,
}

fn name_of((column, saving): (Column, Saving)) -> String {
    match saving {
        Saving::Nothing => column.name(),
        Saving::Blocks => format!("{} recomputed", column.name()),
        Saving::Within => format!("{} within", column.name()),
        Saving::WithinOfLow => format!("{} within, low", column.name()),
    }
}

/// Argument with which the bench asks a child process for one line.
pub const ASKED: &str = "memory-of";

/// Number of steps on one sample and on the whole batch: the first ones reserve memory that the later ones reuse.
const STEPS: usize = 3;

/// Figures of one process, in bytes: kept by the tape for the whole batch (0 if not counted), and resident memory with
/// the network and its data, after steps on one sample, and at its peak with the whole batch.
type Figures = [f64; 4];

/// Prints one network at every level.
pub fn row(name: &str, options: &Options) -> Result<()> {
    println!("\n{name}: MiB, in brackets relative to O0");
    println!(
        "  {:20} {:>16} {:>8} {:>10} {:>16} {:>12} {:>18}",
        "", "kept", "built", "one sample", "peak", "- built", "- one sample"
    );
    let (threads, times) = (options.threads.to_string(), options.times.to_string());
    let mut rows = Vec::new();
    for named in COLUMNS {
        let (column, _) = named;
        let mut asked = match (column, &options.python) {
            (Column::Torch(mode), Some(path)) => {
                let mut torch = python(path, "torch_steps.py");
                torch.args(["memory", &threads, &STEPS.to_string(), name, mode, &times]);
                torch
            }
            (Column::Torch(_), None) => continue,
            (Column::Ours(..), _) => {
                let this = std::env::current_exe().map_err(|e| Error::io("this bench".as_ref(), &e))?;
                let mut ours = Command::new(this);
                ours.args(["--threads", &threads, "--times", &times, ASKED, name, &name_of(named)]);
                ours
            }
        };
        let output = asked.output().map_err(|e| Error::io(asked.get_program().as_ref(), &e))?;
        let failed = !output.status.success();
        let said = String::from_utf8_lossy(if failed { &output.stderr } else { &output.stdout });
        let line = said.lines().next_back().unwrap_or_default();
        let numbers: Vec<f64> = line.split_whitespace().map_while(|word| word.parse().ok()).collect();
        match Figures::try_from(numbers) {
            Ok(figures) => rows.push((named, figures)),
            // A peer that cannot run still gets a row of the table.
            Err(_) if failed && matches!(column, Column::Ours(..)) => return Err(Error::value(line)),
            Err(_) => println!("  {:20} {line}", column.name()),
        }
    }
    let Some((_, base)) = rows.iter().find(|((column, _), _)| matches!(column, Column::Ours(Some(Level::O0), _)))
    else {
        return Ok(());
    };
    for (named, [kept, built, one, peak]) in &rows {
        let grown = peak - one;
        let (of_kept, of_grown) = (kept / base[0], grown / (base[3] - base[2]));
        let kept = if *kept > 0.0 { format!("{:.2} ({of_kept:.2})", mib(*kept)) } else { String::new() };
        println!(
            "  {:20} {kept:>16} {:8.1} {:10.1} {:>16} {:12.1} {:>18}",
            name_of(*named),
            mib(*built),
            mib(*one),
            format!("{:.1} ({:.2})", mib(*peak), peak / base[3]),
            mib(peak - built),
            format!("{:.1} ({of_grown:.2})", mib(grown)),
        );
    }
    Ok(())
}

/// Trains one network in this process, and prints its [`Figures`].
pub fn answer(name: &str, times: usize, column: &str) -> Result<()> {
    let column = COLUMNS.into_iter().find(|known| name_of(*known) == column);
    let Some((Column::Ours(level, dtype), saving)) = column else { return Err(Error::value("no such column")) };
    let mut trainer = Trainer::untouched(name, times, level, dtype)?;
    trainer.saving = saving;
    match saving {
        Saving::Blocks => trainer.task.net.walk_mut(&mut |_, slot| {
            slot.set_recompute(["Residual", "Bottleneck", "Block"].contains(&slot.cell.kind()));
        }),
        Saving::WithinOfLow => {
            let _ = decorate(&trainer.task.net, Decorate::new(DType::Bf16).stochastic_rounding(1))?;
        }
        Saving::Nothing | Saving::Within => {}
    }
    let built = resident("VmRSS");
    let (x, y) = (trainer.task.x.clone(), trainer.task.y.clone());
    let samples = x.shape()[0];
    trainer.task.x = x.slice(0, 0..1)?;
    trainer.task.y = y.slice(0, 0..y.shape()[0] / samples)?;
    trainer.time(STEPS)?;
    let one = resident("VmRSS");
    // Resets the peak, so that the building of the network does not count.
    let _ = fs::write("/proc/self/clear_refs", "5");
    (trainer.task.x, trainer.task.y) = (x, y);
    trainer.time(STEPS)?;
    let peak = resident("VmHWM");
    // Not before the steps: the first of them would read the weights again, and so keep all of their low copies.
    let kept = trainer.loss()?.tape_bytes();
    match (built, one, peak) {
        (Some(built), Some(one), Some(peak)) => println!("{kept} {built} {one} {peak}"),
        _ => println!("{:.1} KiB kept; resident memory is not known here", kept as f64 / 1024.0),
    }
    Ok(())
}

pub fn mib(bytes: f64) -> f64 {
    bytes / f64::from(1 << 20)
}

/// Returns the current (`VmRSS`) or peak (`VmHWM`) resident bytes of this process, on Linux.
pub fn resident(field: &str) -> Option<usize> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'))?;
    line.trim().strip_suffix(" kB")?.parse::<usize>().ok().map(|kib| kib * 1024)
}
