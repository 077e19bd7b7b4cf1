//! Cells that run in another way than their plan says.

use precast::prelude::*;

/// A cell that bypasses the slot of its child on purpose.
#[derive(Cell, Debug)]
pub struct Bypass {
    pub inner: Child<Dense>,
}

impl Forward for Bypass {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        Forward::forward(&**self.inner.cell(), x)
    }
}

/// Hides a cell from the tree.
#[derive(Debug)]
pub struct Holder {
    hidden: Child<Dense>,
}

#[derive(Cell, Debug)]
pub struct Hides {
    seen: Child<Dense>,
    holder: Holder,
}

impl Forward for Hides {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        // A parameterless cell made on the fly runs like the enclosing cell.
        self.holder.hidden.call(&Child::new(Tanh).call(&self.seen.call(x)?)?)
    }
}

impl Hides {
    pub fn new() -> Child<Hides> {
        let rng = &mut Rng::seed(1);
        let (seen, hidden) = (Child::new(Dense::new(4, 4, rng)), Child::new(Dense::new(4, 4, rng)));
        Child::new(Hides { seen, holder: Holder { hidden } })
    }
}

pub const HIDDEN: &str = "a cell with parameters (Dense) ran that the network does not show, so no plan, optimizer or weight file \
                      knows it: hold it in a field of type `Child`, or in a `Vec`, `Option` or `BTreeMap` of these";
