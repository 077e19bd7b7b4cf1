//! Files: weights, stored models and their conversion, models, and mutated files for every reader.

#[path = "../common/mod.rs"]
mod common;
mod conversion;
mod converted_folders;
mod damaged;
mod made;
mod measured;
mod models;
mod mutated;
mod saved_like;
mod weights;
