//! Runs to train, and the comparison of their folders.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use crate::shell::Result;
use crate::shell::in_file;

/// A run: its name, its model file, and the other keys of its run file.
#[derive(Clone, Copy)]
pub struct Run {
    pub name: &'static str,
    model: &'static str,
    keys: &'static str,
}

/// A convolution, a batch norm and a dropout in f16, a transformer in bf16, and an LSTM in f32: 20 steps of 8 shards each.
pub const NETWORKS: [Run; 3] = [
    Run {
        name: "convolution in f16",
        model: "\
version: 1
input: [1, 8, 8]
net:
  kind: Sequential
  cells:
  - {kind: Conv2d, in_channels: 1, out_channels: 8, kernel_size: 3}
  - {kind: BatchNorm2d, num_features: 8}
  - {kind: ReLU}
  - {kind: Dropout, p: 0.2}
  - {kind: Flatten}
  - {kind: Dense, in_features: 288, out_features: 10}
",
        keys: "policy: o2\ndata: digits\ntest: 1157\nepochs: 2\nbatch: 64\nshards: 8\ncheckpoint: {every: 5}\n",
    },
    Run {
        name: "transformer in bf16",
        model: "\
version: 1
input: [8]
input_dtype: int64
net:
  kind: Sequential
  cells:
  - {kind: Embedding, vocab_size: 12, embedding_size: 16}
  - kind: TransformerEncoder
    layer: {d_model: 16, nhead: 2, dim_feedforward: 32, dropout: 0.1, norm_first: true, causal: true}
    num_layers: 2
  - {kind: Dense, in_features: 16, out_features: 12}
",
        keys: "policy: o2-bf16\ndata: {addition: {digits: 2, examples: 800}}\ntest: 160\nepochs: 2\nbatch: 64\nshards: 8\n",
    },
    Run {
        name: "LSTM in f32",
        model: "\
version: 1
input: [8]
input_dtype: int64
net:
  kind: Sequential
  cells:
  - {kind: Embedding, vocab_size: 12, embedding_size: 16}
  - {kind: LSTM, input_size: 16, hidden_size: 24}
  - {kind: Dense, in_features: 24, out_features: 12}
",
        keys: "policy: o0\ndata: {addition: {digits: 2, examples: 800}}\ntest: 160\nepochs: 2\nbatch: 64\nshards: 8\noptimizer: adamw\n",
    },
];

/// Checkpoints of 13 MB after each step, whose writing takes long enough to be hit.
pub const LARGE: Run = Run {
    name: "large checkpoints",
    model: "\
version: 1
input: [1, 8, 8]
net:
  kind: Sequential
  cells:
  - {kind: Conv2d, in_channels: 1, out_channels: 16, kernel_size: 3}
  - {kind: BatchNorm2d, num_features: 16}
  - {kind: ReLU}
  - {kind: Dropout, p: 0.2}
  - {kind: Flatten}
  - {kind: Dense, in_features: 576, out_features: 1024}
  - {kind: ReLU}
  - {kind: Dense, in_features: 1024, out_features: 512}
  - {kind: ReLU}
  - {kind: Dense, in_features: 512, out_features: 10}
",
    keys: "policy: o2\ndata: digits\ntest: 1157\nepochs: 2\nbatch: 64\nshards: 8\noptimizer: adam\ncheckpoint: {every: 3}\n",
};

/// A table of points, which ranks read below their own folders; `planted` alone knows the cell.
pub const POINTS: Run = Run {
    name: "points",
    model: "\
version: 1
input: [2]
net:
  kind: Sequential
  cells:
  - {kind: Dense, in_features: 2, out_features: 16}
  - {kind: ReLU}
  - {kind: Dense, in_features: 16, out_features: 2}
",
    keys: "policy: policy.yaml\ntest: test.csv\nbatch: 32\nshards: 8\noptimizer: adam\n",
};

impl Run {
    /// Writes the run file with further keys and the model, and returns the path of the run file.
    pub fn write(&self, folder: &Path, further: &str) -> Result<PathBuf> {
        self.write_with(folder, further, self.model)
    }

    /// Writes the run file with a cell in front of all others.
    pub fn write_planted(&self, folder: &Path, further: &str, cell: &str) -> Result<PathBuf> {
        self.write_with(folder, further, &self.model.replacen("  cells:\n", &format!("  cells:\n  - {cell}\n"), 1))
    }

    fn write_with(&self, folder: &Path, further: &str, model: &str) -> Result<PathBuf> {
        put(&folder.join("net.yaml"), model)?;
        let file = folder.join("run.yaml");
        put(&file, &format!("version: 1\nmodel: net.yaml\n{}{further}", self.keys))?;
        Ok(file)
    }
}

pub fn put(file: &Path, text: &str) -> Result {
    fs::write(file, text).map_err(|error| in_file(file, error))
}

/// Adds the arguments that train a run file into a folder.
pub fn train<'c>(command: &'c mut Command, run: &Path, output: &Path) -> &'c mut Command {
    command.args(["train", "--quiet", "--color", "never"]).arg(run).arg("--output").arg(output)
}

/// Adds the arguments that resume a run.
pub fn resume<'c>(command: &'c mut Command, folder: &Path) -> &'c mut Command {
    command.args(["train", "--quiet", "--color", "never", "--resume"]).arg(folder)
}

/// Returns the number of steps in the metrics of a run.
pub fn steps(folder: &Path) -> usize {
    lines(folder).iter().filter(|line| line.contains(r#""kind":"step""#) && line.ends_with('}')).count()
}

/// Returns the causes for which steps of a run were skipped.
pub fn skipped(folder: &Path) -> Vec<String> {
    let of = |line: &String| Some(line.split_once(r#""outcome":{"skipped":{"cause":"#)?.1.to_string());
    lines(folder).iter().filter_map(of).collect()
}

fn lines(folder: &Path) -> Vec<String> {
    let text = fs::read_to_string(folder.join("metrics.jsonl")).unwrap_or_default();
    text.lines().map(str::to_string).collect()
}

/// Returns the files of a run that do not depend on the number of processes: weights, checkpoints, scores, and the metrics
/// without times and without what describes rank 0.
fn same(folder: &Path) -> Result<BTreeMap<String, Vec<u8>>> {
    let mut files = BTreeMap::new();
    for entry in fs::read_dir(folder).map_err(|error| in_file(folder, error))?.flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        if name.ends_with(".safetensors") || name == "scores.json" {
            files.insert(name, fs::read(entry.path()).map_err(|error| in_file(&entry.path(), error))?);
        }
    }
    let of_all = lines(folder).into_iter().filter(|line| !line.contains(r#""kind":"memory""#));
    let metrics: Vec<String> =
        of_all.map(|line| line.split(r#","seconds":"#).next().unwrap_or_default().to_string()).collect();
    files.insert("metrics.jsonl".into(), metrics.join("\n").into_bytes());
    Ok(files)
}

/// Compares the folders of two runs, of which the first has ended.
pub fn compare(one: &Path, other: &Path) -> Result {
    let (one, other) = (same(one)?, same(other)?);
    if one.len() < 4 {
        return Err(format!("a run has only these files: {:?}", one.keys()));
    }
    if let Some(name) = one.keys().chain(other.keys()).find(|name| one.contains_key(*name) != other.contains_key(*name))
    {
        return Err(format!("only one of them has `{name}`"));
    }
    match one.iter().find(|(name, bytes)| other[*name] != **bytes) {
        Some((name, _)) => Err(format!("`{name}` has other bits")),
        None => Ok(()),
    }
}
