//! The repository itself: dependencies, ops, words, the modules of tests, and the tables of COMPARE.md.

mod compare;
mod dependencies;
mod files;
mod modules;
mod ops;
mod words;
