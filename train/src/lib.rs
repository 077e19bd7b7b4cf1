//! Training runs with [`precast`]: a network, examples and a policy in a file, trained in a folder of its own.
//!
//! A [`RunFile`] names a model, a policy and a [source](data::Source) of examples. A [`Run`] trains it: it writes
//! metrics, checkpoints and the best weights, can be stopped at any step and continues with the same bits. A
//! [`Predictor`] answers with the best weights. [`data`] reads CSV, images, NumPy arrays and text; [`report`] makes
//! tables, charts and a page of plans and runs.
//!
//! ```no_run
//! use precast_train::{EndReason, Run};
//!
//! let mut run = Run::load("run.yaml")?; // into runs/NAME
//! assert_eq!(run.train()?, EndReason::Done);
//! println!("{}", run.history().epochs[0].score);
//! # Ok::<(), precast::Error>(())
//! ```
//!
//! The loop itself, without files, is that of the library: [`precast::train::fit`].
#![deny(missing_docs)]
#![warn(missing_debug_implementations)]
#![forbid(unsafe_code)]

mod about;
mod batch;
mod classes;
pub mod data;
mod faults;
mod file_name;
mod folder;
mod indices;
mod load;
mod memory;
mod metrics;
mod model_source;
mod over_ranks;
mod partition;
mod parts;
mod positions;
mod predict;
mod prepared;
mod records;
mod replay;
pub mod report;
mod resume;
mod run;
mod run_file;
mod run_words;
mod scores;
mod settled;
mod split;
mod standardizations;
mod steps;
mod storage;
mod test_data;
mod weights_source;
mod wire;
mod written;

pub(crate) use about::About;
pub use faults::{SavedFault, SavedResult};
pub use memory::Memory;
pub use model_source::{FixedNumber, ModelSource, OnnxSource, is_onnx};
pub use over_ranks::Follower;
pub use partition::Partition;
pub use predict::{Prediction, Predictor};
pub(crate) use records::about_of;
pub use records::{headroom_of, history_of};
pub use replay::{Replay, Replayed};
pub use resume::Change;
pub use run::{EndReason, Run};
pub use run_file::{CheckpointOptions, RunFile};
pub use scores::{Scores, scores_of};
pub use storage::{LowStorage, Storage};
pub use test_data::Test;
pub use weights_source::{Rename, Split, Weights};

/// A run file with every key and its default in comments, to begin with.
pub static EXAMPLE: &str = include_str!("../run.yaml");
