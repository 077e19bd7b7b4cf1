//! Training: data, the loop, and the record of what happened.

pub mod data;
mod fit;
mod history;
mod schedule;
mod score;

pub use fit::{Event, Fit, FitOptions, Method, fit};
pub use history::{Epoch, History, Step};
pub use schedule::Schedule;
pub use score::{Score, accuracy, mean_squared_error};
