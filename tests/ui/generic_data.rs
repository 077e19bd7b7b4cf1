//! A type parameter may be anything, including a cell.

use precast::prelude::*;

#[derive(Cell, Debug)]
struct Scaled<T> {
    by: T,
    all: Vec<T>,
}

impl<T> Forward for Scaled<T> {}

fn main() {}
