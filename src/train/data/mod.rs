//! Training examples: a [`Dataset`] from memory, and the [`digits`] shipped with the library. The package
//! `precast-train` reads examples from CSV, images, NumPy arrays and text.

mod dataset;
mod digits;
mod exact;
mod fitted;
mod lines;
pub(crate) mod numbers;
pub(crate) mod origin;
pub(crate) mod resize;
mod standardization;

pub(super) use dataset::check_batch;
pub use dataset::{Batch, Dataset, IGNORED, Inputs, Split, Targets, batches_of_epoch};
pub use digits::{digits, parse_digits, read_digits};
pub use standardization::Standardization;
