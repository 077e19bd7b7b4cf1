//! Runs: their files and folders, the readers of examples, and the reports; mutated files for every reader.

mod changing;
#[path = "../../../tests/common/mod.rs"]
mod common;
mod fine_tuned;
mod folders;
mod mutated;
mod onnx;
mod over_ranks;
mod planted;
mod readers;
mod replayed;
mod reports;
mod schema;
mod standardized;
mod stored;
mod tables;
mod validated;
