//! Training: examples in memory, the loop, and the record of a run. Run files, run folders and readers of files are in
//! the package `precast-train`.

mod augment;
mod checkpoint;
pub mod data;
mod data_parallel;
mod evaluation;
pub(crate) mod fit;
mod history;
mod lint;
mod loss;
mod measure;
mod outgoing;
mod schedule;
pub(crate) mod score;
pub(crate) mod shards;

pub use crate::optim::{
    AdafactorOptions, AdagradOptions, AdamOptions, AdamWOptions, LambOptions, LionOptions, Method, MuonOptions,
    RmsPropOptions, SgdOptions,
};
pub use augment::Augment;
pub use checkpoint::Checkpoint;
pub use data_parallel::DataParallel;
pub use evaluation::{ClassScore, ClassScores, Evaluation, NumberScore, NumberScores};
pub use fit::{Event, Fit, FitOptions, GroupOptions, fit};
pub use history::{Ended, Epoch, History, Raised, Step, Tested};
pub use loss::Loss;
pub use schedule::Schedule;
pub use score::{Score, accuracy, mean_squared_error};
