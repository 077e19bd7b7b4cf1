//! Training with [`precast`]: examples, the loop, and runs: a network, examples and a policy in a file, trained in a folder of
//! its own.
//!
//! [`data`] has examples in memory and reads CSV, images, NumPy arrays and text. [`fit()`] trains on them, with a [`Loss`] and
//! [scores](Evaluation); [`DataParallel`] divides steps among ranks. A [`RunFile`] names a model, a policy and a
//! [source](data::Source) of examples. A [`Run`] trains it: it writes metrics, checkpoints and the best weights, can be stopped
//! at any step and continues with the same bits. A [`Predictor`] answers with the best weights; [`report`] makes tables,
//! charts and a page of plans and runs.
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
//! It decides no precision and has no kernels. Its invariants:
//!
//! - A step is taken whole or not at all, whatever fails, and on all ranks alike.
//! - A run that is resumed has the bits of one that was never stopped, on any number of threads and ranks.
//! - Examples that are not in memory have the bits of those in memory.
//! - Files are read within limits and written whole; a mistake in one has a line and a column.
#![deny(missing_docs)]
#![cfg_attr(not(test), deny(clippy::print_stdout, clippy::print_stderr))]
#![warn(missing_debug_implementations)]
#![forbid(unsafe_code)]

mod about;
mod batch;
mod classes;
pub mod data;
mod faults;
mod file_name;
mod folder;
mod generate;
mod indices;
mod load;
mod memory;
mod metrics;
pub mod mindspore;
mod model_source;
mod over_ranks;
mod partition;
mod parts;
mod predict;
mod prepared;
mod readers;
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
mod training;
mod weights_source;
mod wire;

pub(crate) use about::About;
pub use faults::{SavedFault, SavedResult};
pub use generate::Generate;
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
pub use training::{
    Augment, ClassScore, ClassScores, DataParallel, Ended, Epoch, Evaluation, Event, Fit, FitOptions, GroupOptions,
    History, Loss, NumberScore, NumberScores, Raised, Score, Step, Tested, accuracy, fit, mean_squared_error,
};
pub use weights_source::{Rename, Split, Weights};

/// A run file with every key and its default in comments, to begin with.
pub static EXAMPLE: &str = include_str!("../run.yaml");
