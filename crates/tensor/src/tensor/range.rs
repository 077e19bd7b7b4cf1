//! Range checks of dtypes: a finite number must not become infinite when it is stored.

use std::fmt;

use precast_kernels::{
    elementwise::{
        BLOCK,
        peak::{Magnitude as _, Small},
    },
    float::{Float, Real},
    simd::vectorized,
    threads,
};

use num_traits::{Float as _, ToPrimitive as _};

use super::{Array, Stored, Tensor, grads::peaks, with_float};
use crate::{
    DType,
    error::{Error, Result},
    printable::number,
};

/// Finite numbers outside the range of a dtype, which would become infinite and spread from there.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Beyond {
    /// Largest magnitude of a finite number.
    pub largest: f64,
    /// The dtype.
    pub dtype: DType,
}

impl Tensor {
    /// Checks that no finite number would become infinite in a dtype.
    ///
    /// # Errors
    /// [`ErrorKind::Value`](crate::ErrorKind::Value) with the largest number, and the dtypes that hold it.
    pub fn check_range(&self, dtype: DType) -> Result<()> {
        let words = |beyond: Beyond| Error::value(format!("{beyond}; {}", beyond.way_out()));
        Beyond::check(self.array(), dtype).map_err(words)
    }
}

impl Beyond {
    /// Returns an error for an array with such numbers.
    pub fn check(array: &Array, dtype: DType) -> Result<(), Beyond> {
        if !dtype.is_float() || dtype == array.dtype() {
            return Ok(());
        }
        let largest = largest(array);
        // Rounding is monotonic, so the largest magnitude decides for all.
        if holds(dtype, largest) { Ok(()) } else { Err(Beyond { largest, dtype }) }
    }

    /// Returns, in words, the dtypes that can hold the numbers.
    pub fn way_out(self) -> String {
        let can = [DType::Bf16, DType::F32, DType::F64].into_iter().filter(|dtype| holds(*dtype, self.largest)).take(2);
        let can: Vec<&str> = can.map(DType::long_name).collect();
        format!("{} can", can.join(" and "))
    }
}

impl fmt::Display for Beyond {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "holds numbers as large as {}, which {} cannot", number(self.largest), self.dtype.long_name())
    }
}

/// Returns whether a number stays finite when rounded to a floating dtype. Uses no op, so nothing is observed.
fn holds(dtype: DType, number: f64) -> bool {
    let rounded = Tensor::scalar(number, DType::F64).array().cast(dtype);
    Tensor::from_array(rounded).to_f64().iter().all(|x| x.is_finite())
}

/// Returns the largest magnitude among the finite numbers of an array; 0 if there are none.
fn largest(array: &Array) -> f64 {
    fn go<T: Stored + Float>(array: &Array) -> f64 {
        let array = array.contiguous();
        let sizes = array.slice::<T>().unwrap_or_default().iter().map(|x| x.widen().abs());
        let largest = sizes.filter(|size| size.is_finite()).fold(T::Wide::of(0.0), |a, b| if b > a { b } else { a });
        largest.to_f64().unwrap_or_default()
    }
    with_float!(array, a: T => { let _ = a; go::<T>(array) }, else 0.0)
}

impl Tensor {
    /// Returns the largest magnitude: infinite if a number is, NaN if one is, 0 for integers and booleans.
    pub fn peak(&self) -> f64 {
        // A widening is exact.
        let least = self.least();
        if let Some(known) = least.known_peak() {
            return known;
        }
        let array = least.array().contiguous();
        let peak = match self.len() * threads::PASSED < threads::SMALL {
            true => with_float!(&array, x: T => T::peak(x.as_slice().expect("contiguous")), else 0.0),
            false => peaks(&[array])[0],
        };
        least.know_peak(peak);
        peak
    }

    /// Returns the [largest magnitude](Tensor::peak) of this tensor if it was computed before.
    pub(super) fn known_peak(&self) -> Option<f64> {
        self.0.data.known_peak().or_else(|| self.source()?.known_peak())
    }

    pub(super) fn know_peak(&self, peak: f64) {
        self.0.data.know_peak(peak);
    }

    /// Returns the shares of zeros and of subnormal numbers among the elements.
    pub fn small_shares(&self) -> (f32, f32) {
        let array = self.least().array().contiguous();
        let Small { zero, subnormal } =
            with_float!(&array, x: T => T::small(x.as_slice().expect("contiguous")), else Small::default());
        let of = |count: usize| count as f32 / self.len().max(1) as f32;
        (of(zero), of(subnormal))
    }

    /// Counts NaN, positive and negative infinities, and returns the largest finite magnitude.
    pub fn not_finite(&self) -> (usize, usize, usize, f64) {
        fn go<T: Float>(x: &[T]) -> (usize, usize, usize, f64) {
            let mut wide = [T::Wide::default(); BLOCK];
            let mut all = (0, 0, 0, 0.0);
            for x in x.chunks(BLOCK) {
                let x = T::widened(x, &mut wide);
                let (nan, inf, neg_inf, amax) = vectorized(|| {
                    x.iter().fold((0u32, 0u32, 0u32, T::Wide::of(0.0)), |(nan, inf, neg_inf, amax), &x| {
                        let (size, infinity) = (x.abs(), T::Wide::of(f64::INFINITY));
                        let amax = if size > amax && size < infinity { size } else { amax };
                        let count = |n: u32, is: bool| n + u32::from(is);
                        (count(nan, x.is_nan()), count(inf, x == infinity), count(neg_inf, x == -infinity), amax)
                    })
                });
                let (nan, inf, neg_inf) = (nan as usize, inf as usize, neg_inf as usize);
                all = (all.0 + nan, all.1 + inf, all.2 + neg_inf, amax.as_f64().max(all.3));
            }
            all
        }
        let array = self.least().array().contiguous();
        with_float!(&array, x: T => go::<T>(x.as_slice().expect("contiguous")), else (0, 0, 0, 0.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_finite_number_decides_and_the_words_fit_the_dtype() {
        let check = |numbers: &[f64], from: DType, to: DType| {
            let tensor = Tensor::from_f64(numbers, &[numbers.len()], from).unwrap();
            Beyond::check(tensor.array(), to).map_err(|beyond| format!("{beyond}; {}", beyond.way_out()))
        };
        // Infinity and NaN do not become infinite. 65519 rounds to the largest number.
        let edge = [1.0, -65519.0, f64::INFINITY, f64::NEG_INFINITY, f64::NAN];
        assert_eq!(check(&edge, DType::F32, DType::F16), Ok(()));
        let refused = |numbers: &[f64], from: DType, to: DType| check(numbers, from, to).unwrap_err();
        assert_eq!(
            refused(&[-65520.0, 1.0], DType::F32, DType::F16),
            "holds numbers as large as 65520, which float16 cannot; bfloat16 and float32 can"
        );
        assert_eq!(
            refused(&[3.4e38], DType::F32, DType::Bf16),
            "holds numbers as large as 3.4e38, which bfloat16 cannot; float32 and float64 can"
        );
        for to in [DType::F32, DType::Bf16, DType::F16] {
            let words = refused(&[1.0, 1e300], DType::F64, to);
            assert_eq!(words, format!("holds numbers as large as 1e300, which {} cannot; float64 can", to.long_name()));
        }
        assert_eq!(
            check(&[1e5], DType::Bf16, DType::F16).unwrap_err().split(',').next(),
            Some("holds numbers as large as 99840")
        );
        assert_eq!(check(&[], DType::F64, DType::F16), Ok(()));
        assert_eq!(check(&[1e300], DType::F64, DType::F64), Ok(()));
    }
}
