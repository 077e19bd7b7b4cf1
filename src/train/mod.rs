//! Training: data, the loop, and the record of what happened.

pub mod data;
mod history;

pub use history::{Epoch, History, Step};
