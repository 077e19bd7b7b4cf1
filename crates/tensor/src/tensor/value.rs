//! Values of tensors, which copies elsewhere on the tape share.

use std::{
    fmt,
    sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak},
};

use precast_kernels::codes::Rows;
use precast_policy::policy::Format;

use super::{Array, Tensor, Unread};
use crate::DType;

/// Value of a tensor. It never changes, so that its largest magnitude is computed once.
#[derive(Default)]
pub(crate) struct Value {
    array: OnceLock<Array>,
    peak: OnceLock<f64>,
    unread: Mutex<Option<Unread>>,
    /// The same numbers in 8 bits, as the tape keeps them; `None` where one is not finite.
    coded: OnceLock<Option<Arc<Rows>>>,
}

impl From<Array> for Value {
    fn from(array: Array) -> Self {
        Value { array: array.into(), ..Value::default() }
    }
}

impl From<Unread> for Value {
    fn from(unread: Unread) -> Self {
        Value { unread: Some(unread).into(), ..Value::default() }
    }
}

impl Value {
    pub fn filled(array: Array) -> Arc<Self> {
        Arc::new(array.into())
    }

    pub fn get(&self) -> Option<&Array> {
        self.array.get()
    }

    /// Returns the elements. `otherwise` computes those of a widening or a low copy.
    pub fn read(&self, otherwise: impl FnOnce() -> Array) -> &Array {
        self.array.get_or_init(|| {
            let unread = self.lock().take();
            unread.map_or_else(otherwise, Unread::compute)
        })
    }

    /// Returns the numbers in a format of 8 bits, which are made once.
    pub fn coded(&self, format: Format, make: impl Fn() -> Option<Arc<Rows>>) -> Option<Arc<Rows>> {
        match self.coded.get_or_init(&make) {
            Some(rows) if rows.format() != format => make(),
            known => known.clone(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Option<Unread>> {
        self.unread.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns how to compute the elements, if they are still to be computed.
    pub fn unread(&self) -> Option<Unread> {
        self.lock().clone()
    }

    /// Returns dtype and shape.
    pub fn layout(&self) -> (DType, Vec<usize>) {
        match (self.array.get(), &*self.lock()) {
            (Some(array), _) => (array.dtype(), array.shape().to_vec()),
            (None, Some(unread)) => (unread.dtype(), unread.shape().to_vec()),
            (None, None) => unreachable!("a value has elements, or is computed"),
        }
    }

    /// Returns the elements, unshared if this is the only handle; `None` for what was never read.
    pub fn into_array(value: Arc<Self>) -> Option<Array> {
        match Arc::try_unwrap(value) {
            Ok(value) => value.array.into_inner(),
            Err(shared) => shared.array.get().cloned(),
        }
    }

    /// Returns the largest magnitude, which was computed before.
    pub fn known_peak(&self) -> Option<f64> {
        self.peak.get().copied()
    }

    /// Remembers the largest magnitude.
    pub fn know_peak(&self, peak: f64) {
        let _ = self.peak.set(peak);
    }
}

/// Handle of a tensor whose numbers may be gone; see [`Tensor::downgrade`].
pub struct WeakTensor(Weak<Value>);

impl WeakTensor {
    pub(super) fn of(value: &Arc<Value>) -> Self {
        WeakTensor(Arc::downgrade(value))
    }

    /// Returns the [identity](Tensor::identity).
    pub fn identity(&self) -> usize {
        self.0.as_ptr() as usize
    }

    /// Returns the tensor off the tape; `None` if its numbers are gone or were never computed.
    pub fn upgrade(&self) -> Option<Tensor> {
        Some(Tensor::from_array(self.0.upgrade()?.get()?.clone()))
    }
}

impl fmt::Debug for WeakTensor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "WeakTensor({:#x})", self.identity())
    }
}

#[cfg(test)]
mod tests {
    use crate::{DType, Tensor};

    #[test]
    fn the_largest_magnitude_is_known_to_every_copy_of_a_value() {
        let low = Tensor::from_f64(&[1.0, -3.0], &[2], DType::F16).unwrap();
        let (copy, wide) = (low.requires_grad(), low.cast(DType::F32));
        assert!([&low, &copy, &wide].iter().all(|x| x.known_peak().is_none()));
        assert_eq!(low.peak(), 3.0);
        assert!([&low, &copy, &wide].iter().all(|x| x.known_peak() == Some(3.0)));
        let _ = wide.to_f64();
        assert_eq!((wide.known_peak(), wide.peak()), (Some(3.0), 3.0));
        assert_eq!(wide.neg().unwrap().known_peak(), None);
    }
}
