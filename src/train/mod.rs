//! Training: data, the loop, and the record of what happened.

pub mod data;
mod fit;
mod history;

pub use fit::{Event, Fit, FitOptions, Method, accuracy, fit};
pub use history::{Epoch, History, Step};
