//! The repository itself: imports, dependencies, words, the modules of tests, and the tables of COMPARE.md.

mod compare;
mod dependencies;
mod floors;
mod modules;
mod words;
