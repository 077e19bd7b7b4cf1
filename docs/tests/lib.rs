//! The guide and the README as doc tests.

// The list of pages. Its own tests are those of the library.
#[cfg(doctest)]
#[path = "../../src/guide.rs"]
mod guide;

#[cfg(doctest)]
#[doc = include_str!("../../README.md")]
struct Readme;
