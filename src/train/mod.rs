//! Training: data, the loop, and the record of what happened.

mod checkpoint;
pub mod data;
mod fit;
mod folder;
mod history;
mod lint;
mod load;
mod loss;
mod positions;
mod predict;
mod run;
mod run_file;
mod schedule;
mod score;
mod storage;
mod test_data;
mod written;

pub use crate::optim::{
    AdafactorOptions, AdagradOptions, AdamOptions, AdamWOptions, LambOptions, LionOptions, Method, MuonOptions,
    RmsPropOptions, SgdOptions,
};
pub use checkpoint::Checkpoint;
pub use fit::{Event, Fit, FitOptions, fit};
#[cfg(feature = "cli")]
pub(crate) use folder::{About, about_of, history_of};
pub use history::{Epoch, History, Step};
pub use loss::Loss;
pub use predict::{Prediction, Predictor};
pub use run::{EndReason, Run};
pub use run_file::{CheckpointOptions, RunFile};
pub use schedule::Schedule;
pub use score::{Score, accuracy, mean_squared_error};
pub use storage::{LowStorage, Storage};
pub use test_data::Test;
