//! The loop, its losses and scores, checkpoints, several ranks, and the record of a run.

mod augment;
mod data_parallel;
mod evaluation;
pub(crate) mod fit;
mod history;
mod lint;
mod loss;
mod measure;
mod outgoing;
pub(crate) mod score;
pub(crate) mod shards;

pub use augment::Augment;
pub use data_parallel::DataParallel;
pub use evaluation::{ClassScore, ClassScores, Evaluation, NumberScore, NumberScores};
pub use fit::{Event, Fit, FitOptions, GroupOptions, fit};
pub use history::{Ended, Epoch, History, Raised, Step, Tested};
pub use loss::Loss;
pub use score::{Score, accuracy, mean_squared_error};
