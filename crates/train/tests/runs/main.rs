//! Runs: their files and folders, the readers of examples, and the reports; mutated files for every reader.

mod changing;
mod choices;
#[path = "../../../../tests/common/mod.rs"]
mod common;
#[path = "../training/curve.rs"]
mod curve;
mod fine_tuned;
mod folders;
mod killed;
mod mutated;
mod onnx;
#[allow(dead_code, reason = "the tests of models use more of it")]
#[path = "../../../graph/tests/onnx/build.rs"]
mod onnx_model;
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
