//! Inputs of workloads: the same in every process.

use precast::{DType, Tensor};

/// A generator of tensors that remembers those that get gradients.
pub struct Draw {
    state: u64,
    pub dtype: DType,
    pub leaves: Vec<Tensor>,
}

impl Draw {
    pub fn new(dtype: DType) -> Self {
        Draw { state: 0, dtype, leaves: vec![] }
    }

    /// Draws numbers from 0 (inclusive) to 1 (exclusive) (G. L. Steele, D. Lea, C. H. Flood, "Fast splittable
    /// pseudorandom number generators", 2014): the library's own take longer than most of the work.
    fn numbers<T>(&mut self, shape: &[usize], of: impl Fn(f64) -> T) -> Vec<T> {
        let next = |_| {
            self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mut bits = self.state;
            bits = (bits ^ bits >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            bits = (bits ^ bits >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
            of((bits >> 11) as f64 / (1u64 << 53) as f64)
        };
        (0..shape.iter().product()).map(next).collect()
    }

    fn leaf(&mut self, shape: &[usize], of: impl Fn(f64) -> f64) -> Tensor {
        let numbers = self.numbers(shape, of);
        let leaf = Tensor::from_f64(&numbers, shape, self.dtype).unwrap().requires_grad();
        self.leaves.push(leaf.clone());
        leaf
    }

    /// Draws numbers on both sides of 0, with variance 1.
    pub fn noise(&mut self, shape: &[usize]) -> Tensor {
        self.leaf(shape, |x| (x - 0.5) * 12f64.sqrt())
    }

    /// Draws numbers strictly between 0 and 1.
    pub fn unit(&mut self, shape: &[usize]) -> Tensor {
        self.leaf(shape, |x| 0.05 + 0.9 * x)
    }

    /// Draws integers below `end`.
    pub fn index(&mut self, end: usize, shape: &[usize]) -> Tensor {
        Tensor::from_vec(self.numbers(shape, |x| (x * end as f64) as i64), shape).unwrap()
    }

    pub fn mask(&mut self, shape: &[usize]) -> Tensor {
        Tensor::from_vec(self.numbers(shape, |x| x < 0.5), shape).unwrap()
    }
}
