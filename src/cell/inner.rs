//! A cell inside of a network, called as it runs there.

use super::{AsCell, Cell, Child, Forward, Part, Slot, no_such_path};
use crate::{Tensor, error::Result};

/// A cell inside of a network, which is called within the adapters of all cells around it.
///
/// The code of the cells around it does not run: the inputs are cast as theirs are, then as its own, and its result on the
/// way back. See [`Child::part`].
#[derive(Clone, Debug)]
pub struct Inner<'a> {
    root: Slot<'a>,
    path: String,
}

impl<C: ?Sized + AsCell> Child<C> {
    /// Returns the cell at a path, to be called alone, in the precision that it has within this network: features of an
    /// encoder, a teacher's head. A call of `net.cell().encoder` goes past the slots around it, which is an error where a
    /// plan changes their precision.
    ///
    /// ```
    /// use precast::prelude::*;
    /// let rng = &mut Rng::seed(1);
    /// let encoder = sequential![Dense::new(4, 8, rng), ReLU];
    /// let mut net = Child::new(sequential![encoder, Dense::new(8, 2, rng)]);
    /// auto_mixed_precision(&mut net, Level::O2, DType::Bf16)?;
    /// let x = Tensor::ones(&[3, 4], DType::F32);
    /// assert_eq!(net.part("0")?.call(&x)?.shape(), [3, 8]);
    /// assert!(net.cell()[0].call(&x).is_err());
    /// assert!(net.part("2").is_err());
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// [`ErrorKind::Path`](crate::ErrorKind::Path) when there is no cell at the path, with the nearest path.
    #[doc(alias = "get_submodule")]
    pub fn part(&self, path: &str) -> Result<Inner<'_>> {
        self.at(path, |_| ())?;
        Ok(Inner { root: self.slot(), path: path.into() })
    }
}

impl Inner<'_> {
    /// Runs the cell on one tensor.
    ///
    /// # Errors
    /// Those of the cell, with the path of the innermost cell in which the error occurred.
    pub fn call(&self, x: &Tensor) -> Result<Tensor> {
        let body: Body = |cell, inputs| inputs.iter().map(|x| Forward::forward(cell, x)).collect();
        let outputs = reach(self.root, &self.path, vec![x.clone()], body)?;
        outputs.into_iter().next().ok_or_else(|| no_such_path(&self.path, []))
    }

    /// Runs the cell on a list of tensors.
    ///
    /// # Errors
    /// As [`call`](Inner::call).
    pub fn call_many(&self, inputs: &[Tensor]) -> Result<Vec<Tensor>> {
        reach(self.root, &self.path, inputs.to_vec(), Forward::forward_many)
    }
}

type Body = fn(&dyn Cell, &[Tensor]) -> Result<Vec<Tensor>>;

/// Enters a slot, and those inside of it down to the one at the path.
fn reach(slot: Slot<'_>, path: &str, inputs: Vec<Tensor>, body: Body) -> Result<Vec<Tensor>> {
    slot.run(inputs, |inputs| {
        if path.is_empty() {
            return body(&**slot.cell, &inputs);
        }
        let (mut inputs, mut outputs) = (Some(inputs), None);
        slot.cell.visit(&mut |name, part| {
            if let Part::Cell(inner) = part
                && let Some(rest) = inside(path, name)
                && let Some(inputs) = inputs.take()
            {
                outputs = Some(reach(inner, rest, inputs, body));
            }
        });
        outputs.unwrap_or_else(|| Err(no_such_path(path, [])))
    })
}

/// Returns the rest of a path below a cell.
fn inside<'a>(path: &'a str, name: &str) -> Option<&'a str> {
    let rest = path.strip_prefix(name)?;
    if rest.is_empty() { Some(rest) } else { rest.strip_prefix('.') }
}
