//! The command `precast`, run as a program: its output, files and exit codes, and the documents that show them.

mod commands;
#[path = "../../../../tests/common/mod.rs"]
mod common;
mod documents;
mod failures;
mod faults;
mod graph;
mod lint;
mod logs;
mod mistakes;
mod onnx;
mod outputs;
mod plan_page;
mod plans;
mod plans_of_runs;
mod png;
mod program;
mod runs;
mod scores;
mod show;
mod stored_models;
mod training;
mod tune;
