//! The committed report: the comparisons with torch, and the largest errors.

use std::{fmt::Write as _, fs, io, path::Path};

use crate::{Options, bounds};

/// Writes the report, and the tables that it summarizes.
pub fn write(options: &Options, torch: &str, tables: &[(&str, String)], failures: usize) -> io::Result<()> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"));
    fs::create_dir_all(folder.join("data"))?;
    for (name, table) in tables {
        fs::write(folder.join(format!("data/{name}.tsv")), table)?;
    }
    fs::write(folder.join("REPORT.md"), text(options, torch, tables, failures))
}

/// Returns the cells of a table, without its first line.
fn rows(table: &str) -> Vec<Vec<&str>> {
    table.lines().skip(1).map(|line| line.split('\t').collect()).collect()
}

fn text(options: &Options, torch: &str, tables: &[(&str, String)], failures: usize) -> String {
    let table = |wanted: &str| tables.iter().find(|(name, _)| *name == wanted).map_or("", |(_, table)| table);
    let mut text = format!(
        "# precast beside torch\n\n\
         Written by `cargo xtask peers --python PATH --write`, with seed {} and {} cases of each op and dtype. {torch}.\n\
         {failures} failures. The tables are in `data/`.\n\n\
         ## Ops\n\n\
         Every op that has a kernel, with random shapes, views and values, against torch in f64 on the same rounded inputs.\n\
         In f32 a unit is the distance of neighbouring numbers at the exact result, or at the size of the terms that it is a\n\
         sum of; in f16 and bf16 that of the dtype at the exact result, and 16 of f32 at the terms. What is computed in f32 and\n\
         rounded once is half a unit away. A gradient that reads a number kept in 16 bit, as that of tanh reads its result, is\n\
         measured against the size of its terms. `tools/peers/src/bounds.rs` has the bounds. The largest error of a family, forward /\n\
         backward:\n\n\
         | family | ops | cases | f32 | f16 | bf16 | torch f32 | torch f16 | torch bf16 |\n\
         | --- | --- | --- | --- | --- | --- | --- | --- | --- |\n",
        options.seed, options.cases,
    );
    let ops = rows(table("ops"));
    let mut families: Vec<&str> = ops.iter().map(|row| row[0]).collect();
    families.sort_unstable();
    families.dedup();
    let number = |text: &str| text.parse::<f64>().unwrap_or(0.0);
    for family in families {
        let mine: Vec<_> = ops.iter().filter(|row| row[0] == family).collect();
        let cases: f64 = mine.iter().map(|row| number(row[3])).sum();
        let most = |dtype: &str, column: usize| {
            let of = mine.iter().filter(|row| row[2] == dtype);
            let most = of.map(|row| number(row[column])).fold(0.0, f64::max);
            if most > 1e4 { "far".to_string() } else { format!("{most:.2}") }
        };
        let _ = write!(text, "| {family} | {} | {cases} |", mine.len() / 3);
        for first in [4, 6] {
            for dtype in ["f32", "f16", "bf16"] {
                let _ = write!(text, " {} / {} |", most(dtype, first), most(dtype, first + 1));
            }
        }
        text.push('\n');
    }
    text.push_str("\n`far`: more than 10,000 units, where a kernel of torch's cancels or overflows in the dtype.\n");
    let without: Vec<&str> =
        ops.iter().filter(|row| row[2] == "f32" && row[9] == "formula").map(|row| row[1]).collect();
    let _ = writeln!(
        text,
        "The reference is a formula in f64 where torch lacks the op, or a gradient of it: {}.",
        without.join(", ")
    );
    let lists: [(&str, &[(precast::Op, &str)]); 4] = [
        ("Gradients that are compared for plain numbers only", bounds::PLAIN_GRADIENTS),
        ("Zeros whose sign may be another", bounds::SIGNS),
        ("Results that may be NaN where torch's are not", bounds::OTHER_KINDS),
        ("Gradients that may be NaN where torch's are not", bounds::OTHER_SLOPES),
    ];
    for (what, ops) in lists {
        let _ = writeln!(text, "\n{what}:\n");
        ops.iter().for_each(|(op, why)| {
            let _ = writeln!(text, "- `{op}`: {why}.");
        });
    }
    let layers = rows(table("layers"));
    let most = |column: usize| layers.iter().map(|row| number(row[column])).fold(0.0, f64::max);
    let _ = writeln!(
        text,
        "\n## Layers\n\n{} configurations of layers beside torch.nn in f64: results, gradients of inputs and parameters, running\n\
         statistics. Largest error, in f32 epsilons of the largest number of a tensor: {:.2} (torch in f32: {:.2}).",
        layers.len(),
        most(1),
        most(2),
    );
    for (name, title, about) in [
        ("curves", "Training in f32", "The same parameters and batches; losses at each step, relative to torch's."),
        (
            "scaled",
            "Training with a loss scale",
            "Under torch's autocast and GradScaler: the same skips and scales at each step.",
        ),
        (
            "penalized",
            "Training with a penalty on gradients",
            "The norm of all gradients of the scaled loss is added to the loss, as in torch's notes on AMP; in f32, and under\n\
             autocast and GradScaler.",
        ),
    ] {
        let _ = writeln!(
            text,
            "\n## {title}\n\n{about}\n\n| run | steps | skipped | losses apart |\n| --- | --- | --- | --- |"
        );
        for row in rows(table(name)) {
            let _ = writeln!(text, "| {} |", row.join(" | "));
        }
    }
    let _ = writeln!(
        text,
        "\n## Steps over ranks\n\n\
         The gradients of one batch of 32 examples in f32: torch's `DistributedDataParallel` over gloo on 1, 2 and 4 processes,\n\
         beside a step of `DataParallel` over 4 shards on as many ranks. Checksums are of all bits; differences are the largest\n\
         of a number, relative to the largest of its tensor. The whole is the gradient of torch in one process, in f64. Where\n\
         targets are ignored, torch takes the mean of the means of its processes.\n\n\
         | run | ranks | torch | ours | ours from torch | torch from the whole | ours from the whole |\n\
         | --- | --- | --- | --- | --- | --- | --- |"
    );
    for row in rows(table("data_parallel")) {
        let _ = writeln!(text, "| {} |", row.join(" | "));
    }
    text
}
