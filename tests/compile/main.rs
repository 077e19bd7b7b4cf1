//! Mistakes that are found before a program runs: by the compiler, or by the registry of kinds.

mod duplicate_kinds;
mod errors;
