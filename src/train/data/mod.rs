//! Training examples: a [`Dataset`] from memory, and the [`digits`] shipped with the library. The package
//! `precast-train` reads examples from CSV, images, NumPy arrays and text.

pub(in crate::train) mod ahead;
pub(crate) mod batches;
mod dataset;
mod digits;
mod elements;
mod encoded;
mod encoding;
mod exact;
mod fitted;
pub(in crate::train) mod later;
mod lines;
pub(crate) mod numbers;
pub(crate) mod origin;
pub(crate) mod resize;
mod standardization;
mod stored;
pub(super) mod sums;
mod table;
mod targets;

pub use batches::{Batch, batches_of_epoch};
pub use dataset::{Dataset, FurtherInputs, Inputs, Split};
pub use digits::{digits, parse_digits, read_digits};
pub use encoding::Encoding;
pub use standardization::Standardization;
pub use stored::Stored;
pub use table::{Cells, Empty, Table, TableColumn, WordForm};
pub use targets::{IGNORED, Targets};
