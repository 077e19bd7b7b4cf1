//! Training: data, the loop, and the record of what happened.

mod checkpoint;
pub mod data;
mod fit;
mod graph_rewrite;
mod history;
mod loss;
mod schedule;
mod score;

pub use checkpoint::Checkpoint;
pub use fit::{Event, Fit, FitOptions, Method, fit};
pub use graph_rewrite::{GraphRewrite, enable_mixed_precision_graph_rewrite};
pub use history::{Epoch, History, Step};
pub use loss::Loss;
pub use schedule::Schedule;
pub use score::{Score, accuracy, mean_squared_error};
