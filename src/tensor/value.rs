//! Values of tensors, which copies elsewhere on the tape share.

use std::sync::{Arc, OnceLock, Weak};

use super::{Array, Tensor};

/// Value of a tensor. It never changes, so that its largest magnitude is computed once.
#[derive(Default)]
pub(super) struct Value {
    array: OnceLock<Array>,
    peak: OnceLock<f64>,
}

impl Value {
    pub fn filled(array: Array) -> Arc<Self> {
        Arc::new(Value { array: array.into(), peak: OnceLock::new() })
    }

    pub fn get(&self) -> Option<&Array> {
        self.array.get()
    }

    pub fn get_or_init(&self, f: impl FnOnce() -> Array) -> &Array {
        self.array.get_or_init(f)
    }

    /// Returns the elements, unshared if this is the only handle; `None` for a widening that was never read.
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

/// Identity of a value that may be gone.
pub(crate) struct HeldIdentity(Weak<Value>);

impl HeldIdentity {
    pub(super) fn of(value: &Arc<Value>) -> Self {
        HeldIdentity(Arc::downgrade(value))
    }

    /// Returns the [identity](Tensor::identity).
    pub fn identity(&self) -> usize {
        self.0.as_ptr() as usize
    }

    /// Returns the value, outside the tape; `None` if it is gone or was never computed.
    pub fn value(&self) -> Option<Tensor> {
        Some(Tensor::from_array(self.0.upgrade()?.get()?.clone()))
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
