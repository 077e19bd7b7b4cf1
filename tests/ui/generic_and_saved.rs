//! A file identifies one type by each kind.

use precast::prelude::*;

#[derive(Cell, Debug, Serialize, Deserialize)]
#[cell(saved)]
struct Residual<C> {
    inner: Child<C>,
}

impl<C: Cell> Forward for Residual<C> {}

fn main() {}
