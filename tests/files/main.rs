//! Files: weights, stored models and their conversion, and models.

#[path = "../common/mod.rs"]
mod common;
mod conversion;
mod converted_folders;
mod damaged;
mod made;
mod measured;
mod models;
mod saved_like;
mod weights;
