//! `Debug` and `Display`: `Tensor(f16 [2, 3]) [[...]]`, with long tensors abbreviated by ndarray.

use std::fmt;

use super::{Tensor, with_array};

impl fmt::Debug for Tensor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Tensor({} {:?})", self.dtype(), self.shape())
    }
}

impl fmt::Display for Tensor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self:?} ")?;
        with_array!(self.array(), a: T => a.map(|x| format!("{x:?}")).fmt(f))
    }
}
