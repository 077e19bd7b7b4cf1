//! The repository itself: imports, words, and the tables of COMPARE.md.

mod compare;
mod floors;
mod words;
