//! Training: data, the loop, and the record of what happened.

pub mod data;
mod fit;
mod history;
mod schedule;

pub use fit::{Event, Fit, FitOptions, Method, accuracy, fit};
pub use history::{Epoch, History, Step};
pub use schedule::Schedule;
