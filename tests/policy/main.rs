//! Policies: their files and schema, the semantics of levels, and the capabilities of packs.

mod capabilities;
#[path = "../common/mod.rs"]
mod common;
mod files;
mod levels;
mod schema;
mod shipped;
