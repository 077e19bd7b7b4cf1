//! The repository itself: imports, words, the modules of tests, and the tables of COMPARE.md.

mod compare;
mod floors;
mod modules;
mod words;
