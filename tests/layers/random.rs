//! Random tensors and the checks that every layer op passes.

use std::cell::RefCell;

use precast::{DType, Result, Tensor, check};
use rand::{Rng, SeedableRng, seq::SliceRandom};
use rand_chacha::ChaCha8Rng;

/// Random sizes and f64 tensors from a seed.
pub struct Random(RefCell<ChaCha8Rng>);

impl Random {
    pub fn new(seed: u64) -> Self {
        Random(RefCell::new(ChaCha8Rng::seed_from_u64(seed)))
    }

    /// A number from `low` to `high`, both possible.
    pub fn size(&self, low: usize, high: usize) -> usize {
        self.0.borrow_mut().random_range(low..=high)
    }

    pub fn sizes(&self, count: usize, low: usize, high: usize) -> Vec<usize> {
        (0..count).map(|_| self.size(low, high)).collect()
    }

    pub fn flag(&self) -> bool {
        self.0.borrow_mut().random()
    }

    /// Numbers between -1 and 1.
    pub fn tensor(&self, shape: &[usize]) -> Tensor {
        self.between(-1.0, 1.0, shape)
    }

    pub fn between(&self, low: f64, high: f64, shape: &[usize]) -> Tensor {
        let data = (0..shape.iter().product()).map(|_| self.0.borrow_mut().random_range(low..high)).collect();
        Tensor::from_vec::<f64>(data, shape).unwrap()
    }

    /// Numbers no two of which are near each other, so that no step of a difference quotient changes their order.
    pub fn apart(&self, shape: &[usize]) -> Tensor {
        let len: usize = shape.iter().product();
        let mut data: Vec<f64> = (0..len).map(|i| (i as f64 - len as f64 / 2.0) / 16.0).collect();
        data.shuffle(&mut self.0.borrow_mut());
        Tensor::from_vec(data, shape).unwrap()
    }

    pub fn indices(&self, below: usize, shape: &[usize]) -> Tensor {
        let data = (0..shape.iter().product()).map(|_| self.0.borrow_mut().random_range(0..below as i64)).collect();
        Tensor::from_vec::<i64>(data, shape).unwrap()
    }
}

/// Checks an op on f64 inputs: gradients against central differences; the result in 16 bit is the f32 result rounded
/// once, bit for bit; gradients in 16 bit lie within one epsilon (of the largest) of those in f32.
pub fn check_op(name: &str, inputs: &[Tensor], f: impl Fn(&[Tensor]) -> Result<Tensor>) {
    let shapes: Vec<&[usize]> = inputs.iter().map(Tensor::shape).collect();
    let found = check::gradients(inputs, &f).unwrap_or_else(|e| panic!("{name} {shapes:?}: {e}"));
    assert!(found.relative <= 1e-6, "{name} {shapes:?}: {found:?}");
    for low in DType::LOW {
        let lowered: Vec<Tensor> =
            inputs.iter().map(|x| if x.dtype().is_float() { x.cast(low) } else { x.clone() }).collect();
        let widened: Vec<Tensor> =
            lowered.iter().map(|x| if x.dtype().is_float() { x.cast(DType::F32) } else { x.clone() }).collect();
        let (y, wide) = (f(&lowered).unwrap(), f(&widened).unwrap());
        assert_eq!((y.dtype(), wide.dtype()), (low, DType::F32), "{name}");
        assert_eq!(bits(&y), bits(&wide.cast(DType::F64).cast(DType::F32).cast(low)), "{name} {shapes:?} {low}");
        let found = check::low_gradients(inputs, low, &f).unwrap();
        assert!(found.relative <= 1.0, "{name} {shapes:?} {low}: {found:?}");
    }
}

/// Exact values, NaN equal to itself.
pub fn bits(x: &Tensor) -> Vec<u64> {
    x.to_f64().into_iter().map(f64::to_bits).collect()
}
