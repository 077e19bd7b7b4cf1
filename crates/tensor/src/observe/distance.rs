//! Distances of tensors from exact ones, read once, without copies in f64.

use std::ops::AddAssign;

use precast_kernels::{
    elementwise::distance::{distance, projection},
    threads,
};

use crate::{
    Tensor,
    tensor::{Array, with_float},
};

/// Sums of squares of the difference of numbers from exact ones, and of the exact ones.
#[derive(Clone, Copy, Debug, Default)]
pub struct Distance {
    /// Sum of the squares of the differences.
    pub apart: f64,
    /// Sum of the squares of the exact numbers.
    pub whole: f64,
}

impl Distance {
    /// Measures floating tensors of one shape. Numbers whose exact one is not finite do not count: they are not a fault of
    /// `found`.
    pub fn between(found: &Tensor, exact: &Tensor) -> Self {
        Distance::between_scaled(found, exact, 1.0)
    }

    /// Measures as [`between`](Distance::between) does, with `found` divided by a scale.
    pub fn between_scaled(found: &Tensor, exact: &Tensor, scale: f64) -> Self {
        let (found, exact) = (numbers(found), numbers(exact));
        let sums = with_float!(&found, a: A => with_float!(&exact, b: B => {
            let (a, b) = (a.as_slice().expect("contiguous"), b.as_slice().expect("contiguous"));
            let len = a.len().min(b.len());
            threads::by_parts(&[len], [0.0; 2], |_, part| distance(&a[part.clone()], &b[part], 1.0 / scale))
        }, else Vec::new()), else Vec::new());
        let mut all = Distance::default();
        sums.into_iter().for_each(|(_, [apart, whole])| all += Distance { apart, whole });
        all
    }

    /// Returns the norm of the difference, divided by the norm of the exact numbers; 0 if there is no difference.
    pub fn relative(self) -> f64 {
        if self.apart == 0.0 { 0.0 } else { (self.apart / self.whole).sqrt() }
    }
}

impl AddAssign for Distance {
    fn add_assign(&mut self, other: Self) {
        self.apart += other.apart;
        self.whole += other.whole;
    }
}

/// Adds, for each row, the products of `gradient` and the difference of `found` and `exact`. Both have one dtype, that
/// of the exact numbers, and each row the same number of elements. Numbers count as in [`Distance::between`].
pub fn add_projections(found: &Tensor, exact: &Tensor, gradient: &Tensor, rows: &mut [f64]) {
    let length = exact.len() / rows.len().max(1);
    if length == 0 || found.len() != exact.len() || gradient.len() != exact.len() {
        return;
    }
    let (found, exact, gradient) = (numbers(found), numbers(exact), numbers(gradient));
    with_float!(&found, a: A => with_float!(&exact, b: B => {
        let (a, b) = (a.as_slice().expect("contiguous"), b.as_slice().expect("contiguous"));
        let Some(gradient) = gradient.slice::<B>() else { return };
        threads::chunks(rows, 1, b.len() * threads::PASSED, |row, sum| {
            let row = row * length..(row + 1) * length;
            sum[0] += projection(&a[row.clone()], &b[row.clone()], &gradient[row]);
        });
    }, else {}), else {});
}

/// Returns the numbers of a tensor in row-major order; those of a widening from its source.
fn numbers(x: &Tensor) -> Array {
    x.source().unwrap_or(x).array().contiguous()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::DType;

    #[test]
    fn tensors_of_any_layout_are_compared_without_their_infinite_numbers() {
        let exact = Tensor::from_f64(&[1.0, 2.0, f64::INFINITY, 2.0, 0.0, 4.0], &[2, 3], DType::F32).unwrap();
        let found = Tensor::from_f64(&[1.0, 2.0, 2.0, 3.0, 9.0, 8.0], &[3, 2], DType::F16).unwrap();
        // [[1, 2, 9], [2, 3, 8]], which differs by 3 and by 4; the exact numbers have the squares 1, 4, 4, 0 and 16.
        let found = found.transpose(0, 1).unwrap();
        let distance = Distance::between(&found, &exact);
        assert_eq!((distance.apart, distance.whole), (9.0 + 16.0, 25.0));
        assert_eq!(distance.relative(), 1.0);
        let halves = Distance::between_scaled(&exact.cast(DType::Bf16), &exact, 0.5);
        assert_eq!(halves.relative(), 1.0);
        assert_eq!(Distance::between(&exact, &exact).relative(), 0.0);
        let gradient = Tensor::from_f64(&[1.0, 1.0, 1.0, 1.0, 10.0, 100.0], &[2, 3], DType::F32).unwrap();
        let mut rows = [1.0, 0.0];
        add_projections(&found, &exact, &gradient, &mut rows);
        assert_eq!(rows, [1.0, 30.0 + 400.0]);
        let mut all = [0.0];
        add_projections(&found, &exact, &gradient, &mut all);
        assert_eq!(all, [430.0]);
    }
}
