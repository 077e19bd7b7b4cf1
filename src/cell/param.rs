//! Parameters: named places for tensors, shared by handle.

use std::{
    fmt,
    sync::{Arc, RwLock},
};

use crate::{
    Tensor,
    error::{Error, Result},
    tensor::LeafId,
};

/// A place for a tensor that is trained, or for a buffer that is not. A handle: clones share it, so tied weights are one
/// `Param` under two paths. Its value is f32 unless it was made otherwise; policies cast copies and never the value.
///
/// Low copies are kept with the value and vanish when the value changes, so a parameter is cast once for each dtype
/// between two updates, however often it is used.
#[derive(Clone)]
pub struct Param(Arc<Inner>);

struct Inner {
    id: LeafId,
    trained: bool,
    /// On the tape when trained; its low copies live with it.
    value: RwLock<Tensor>,
}

impl Param {
    /// A parameter that is trained.
    pub fn new(value: Tensor) -> Self {
        Param::make(value, true)
    }

    /// A buffer: saved with the weights, never trained.
    pub fn buffer(value: Tensor) -> Self {
        Param::make(value, false)
    }

    fn make(value: Tensor, trained: bool) -> Self {
        let id = LeafId::fresh();
        let value = RwLock::new(Tensor::parameter(value.array().contiguous(), trained.then_some(id)));
        Param(Arc::new(Inner { id, trained, value }))
    }

    /// The value, on the tape when the parameter is trained: what `forward` reads.
    pub fn tensor(&self) -> Tensor {
        self.0.value.read().unwrap_or_else(|poisoned| poisoned.into_inner()).clone()
    }

    /// The value, off the tape.
    pub fn value(&self) -> Tensor {
        self.tensor().detach()
    }

    /// Replaces the value. Low copies of the old one are gone.
    ///
    /// # Errors
    /// [`ErrorKind::Shape`](crate::ErrorKind::Shape) or [`ErrorKind::DType`](crate::ErrorKind::DType) when the new value differs in shape or dtype.
    pub fn set(&self, value: &Tensor) -> Result<()> {
        let mut slot = self.0.value.write().unwrap_or_else(|poisoned| poisoned.into_inner());
        if value.shape() != slot.shape() {
            return Err(Error::shape(format!(
                "a parameter of shape {:?} cannot take a value of shape {:?}",
                slot.shape(),
                value.shape()
            )));
        }
        if value.dtype() != slot.dtype() {
            return Err(Error::dtype(format!(
                "a {} parameter cannot take a {} value; cast it first",
                slot.dtype(),
                value.dtype()
            )));
        }
        *slot = Tensor::parameter(value.array().contiguous(), self.0.trained.then_some(self.0.id));
        Ok(())
    }

    /// Whether it is trained; a buffer is not.
    pub fn is_trained(&self) -> bool {
        self.0.trained
    }

    /// Lengths of the axes.
    pub fn shape(&self) -> Vec<usize> {
        self.tensor().shape().to_vec()
    }

    /// Whether both are handles of one parameter.
    pub fn is_same(&self, other: &Param) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    pub(crate) fn id(&self) -> LeafId {
        self.0.id
    }
}

impl crate::Grads {
    /// The gradient of a parameter, in the parameter's dtype; `None` when the loss does not depend on it.
    pub fn get(&self, param: &Param) -> Option<&Tensor> {
        self.of_leaf(param.id())
    }

    /// Replaces the gradient of a parameter, as clipping does.
    pub fn set(&mut self, param: &Param, grad: Tensor) {
        self.replace(param.id(), grad);
    }
}

impl fmt::Debug for Param {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let value = self.tensor();
        let name = if self.0.trained { "Param" } else { "Buffer" };
        write!(f, "{name}({} {:?})", value.dtype(), value.shape())
    }
}
