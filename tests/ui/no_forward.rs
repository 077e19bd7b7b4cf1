//! The derive generates the walk over the children, but not the computation of the cell.

use precast::prelude::*;

#[derive(Cell, Debug)]
struct Head {
    fc: Child<Dense>,
}

fn main() {}
