//! Inputs of work: the same in every process.

use precast::{DType, Tensor, prelude::Rng};

/// Draws tensors, and remembers those that get gradients.
pub struct Draw {
    rng: Rng,
    pub dtype: DType,
    pub leaves: Vec<Tensor>,
}

impl Draw {
    pub fn new(dtype: DType) -> Self {
        Draw { rng: Rng::seed(0), dtype, leaves: vec![] }
    }

    fn leaf(&mut self, numbers: Vec<f64>, shape: &[usize]) -> Tensor {
        let leaf = Tensor::from_f64(&numbers, shape, self.dtype).unwrap().requires_grad();
        self.leaves.push(leaf.clone());
        leaf
    }

    /// Of the standard normal distribution.
    pub fn normal(&mut self, shape: &[usize]) -> Tensor {
        let numbers = (0..shape.iter().product()).map(|_| self.rng.normal(0.0, 1.0)).collect();
        self.leaf(numbers, shape)
    }

    /// Between 0 and 1, and neither.
    pub fn unit(&mut self, shape: &[usize]) -> Tensor {
        let numbers = (0..shape.iter().product()).map(|_| self.rng.uniform(0.05, 0.95)).collect();
        self.leaf(numbers, shape)
    }

    /// Whole numbers below `end`.
    pub fn index(&mut self, end: usize, shape: &[usize]) -> Tensor {
        let numbers = (0..shape.iter().product()).map(|_| self.rng.uniform(0.0, end as f64) as i64).collect();
        Tensor::from_vec(numbers, shape).unwrap()
    }

    pub fn mask(&mut self, shape: &[usize]) -> Tensor {
        let numbers = (0..shape.iter().product()).map(|_| self.rng.uniform(0.0, 1.0) < 0.5).collect();
        Tensor::from_vec(numbers, shape).unwrap()
    }
}
