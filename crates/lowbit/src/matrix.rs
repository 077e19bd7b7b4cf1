//! Views of the numbers that are quantized.

use std::borrow::Cow;

use precast_base::{Error, Result};

use crate::stream::Stream;

/// A row-major matrix of f32, or its transpose, as an operand of a product whose sums run along the rows of both
/// operands: `left`, [m, k], times the transpose of `right`, [n, k].
#[derive(Clone, Copy, Debug)]
pub struct Matrix<'a> {
    numbers: &'a [f32],
    /// Rows and columns of `numbers`.
    shape: [usize; 2],
    is_transposed: bool,
    first: usize,
}

impl<'a> Matrix<'a> {
    /// Creates a view of a row-major matrix. Leading axes of a tensor count as rows.
    ///
    /// # Errors
    /// [`ErrorKind::Shape`](precast_base::ErrorKind::Shape) when there are not as many numbers as the shape says.
    pub fn new(numbers: &'a [f32], rows: usize, columns: usize) -> Result<Self> {
        if rows.checked_mul(columns) != Some(numbers.len()) {
            return Err(Error::shape(format!(
                "a matrix of shape [{rows}, {columns}] does not have {} numbers",
                numbers.len()
            )));
        }
        Ok(Matrix { numbers, shape: [rows, columns], is_transposed: false, first: 0 })
    }

    /// Returns the transpose, a view of the same numbers.
    #[must_use]
    pub fn t(self) -> Self {
        Matrix { is_transposed: !self.is_transposed, ..self }
    }

    /// Declares the matrix a part of a larger one, whose number `first` (in row-major order) is the first here. So the part
    /// of a batch has the random bits that it has in the whole batch.
    #[must_use]
    pub fn starting_at(self, first: usize) -> Self {
        Matrix { first, ..self }
    }

    /// Returns the number of rows.
    pub fn rows(&self) -> usize {
        self.shape[usize::from(self.is_transposed)]
    }

    /// Returns the number of columns, which is the length of the sums of a product.
    pub fn columns(&self) -> usize {
        self.shape[usize::from(!self.is_transposed)]
    }

    /// Returns the largest magnitude; 0 for an empty matrix.
    ///
    /// # Errors
    /// [`ErrorKind::Value`](precast_base::ErrorKind::Value) with the place of the first number that is not finite.
    pub fn amax(&self) -> Result<f32> {
        let amax = magnitude(self.numbers);
        if amax.is_finite() {
            return Ok(amax);
        }
        let at = self.numbers.iter().position(|x| !x.is_finite()).unwrap_or_default();
        let (row, column) = (at / self.shape[1], at % self.shape[1]);
        Err(Error::value(format!("expected finite numbers, got {} in row {row}, column {column}", self.numbers[at])))
    }

    /// Returns the numbers of this view, row by row.
    pub(crate) fn row_major(&self) -> Cow<'a, [f32]> {
        if !self.is_transposed {
            return Cow::Borrowed(self.numbers);
        }
        let [rows, columns] = self.shape;
        Cow::Owned((0..columns).flat_map(|c| (0..rows).map(move |r| self.numbers[r * columns + c])).collect())
    }

    /// Writes the random bits of a row, which are those of its numbers in the whole matrix, transposed or not.
    pub(crate) fn random(&self, row: usize, stream: Stream, bits: &mut [u32]) {
        if !self.is_transposed {
            return stream.fill(self.first.wrapping_add(row * self.shape[1]), bits);
        }
        for (column, bit) in bits.iter_mut().enumerate() {
            let place = self.first.wrapping_add(column * self.shape[1] + row);
            stream.fill(place, std::slice::from_mut(bit));
        }
    }
}

/// Returns the largest magnitude; one that is not finite if there is one. Bits without sign are in the order of magnitudes,
/// with infinity and then NaN above them.
#[inline(always)]
pub fn magnitude(x: &[f32]) -> f32 {
    f32::from_bits(x.iter().fold(0, |most, x| most.max(x.to_bits() & !(1 << 31))))
}
