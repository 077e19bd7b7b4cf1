//! Policies: their files and schema, the semantics of levels, and the capabilities of packs.

mod capabilities;
#[path = "../common/mod.rs"]
mod common;
mod files;
#[path = "../common/json_schema.rs"]
mod json_schema;
mod levels;
mod schema;
