//! Training: data, the loop, and what it has seen.

pub mod data;
