//! The derive writes the walk over the children; what the cell computes is not written.

use precast::prelude::*;

#[derive(Cell, Debug)]
struct Head {
    fc: Child<Dense>,
}

fn main() {}
