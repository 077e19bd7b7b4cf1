//! Readers of examples: small files with known contents, files from other programs, and every mistake with its message.

mod csv;
mod dataset;
mod exact;
mod formats;
pub mod images;
mod mistakes;
pub mod npy;
mod python;
mod resize;
mod series;
mod source;
mod text;

use std::path::Path;

use precast_train::data::Dataset;

use crate::common::folder::Folder;

fn files() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/runs/readers/files"))
}

/// Returns the inputs of all examples, concatenated.
fn inputs(data: &Dataset) -> Vec<f64> {
    data.input_batches(7).unwrap().flat_map(|x| x.to_f64()).collect()
}

/// Returns the targets of all examples, concatenated.
fn targets(data: &Dataset) -> Vec<f64> {
    data.batches(7).unwrap().flat_map(|batch| batch.y.to_f64()).collect()
}
