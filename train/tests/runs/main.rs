//! Runs: their files and folders, the readers of examples, and the reports.

#[path = "../../../tests/common/mod.rs"]
mod common;
mod folders;
#[path = "../../../tests/common/json_schema.rs"]
mod json_schema;
mod readers;
mod replayed;
mod reports;
mod schema;
