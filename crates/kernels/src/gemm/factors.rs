//! Input and output of the loops: operands to be packed, and locations of the results.

use super::{
    pack::{Matrix, Operand},
    product::{Added, Layout, Product},
};

/// A sum of products for the [loops](super::loops), and the locations of its results.
pub trait Factors: Sync {
    /// Type of the operands.
    type Of;
    /// Type of the results and the addend.
    type Out;
    type Left: Operand<Self::Of>;
    type Right: Operand<Self::Of>;
    /// Returns the numbers of rows and columns of the result.
    fn size(&self) -> (usize, usize);
    /// Iterates over the number of terms of each of the products that are added up.
    fn depths(&self) -> impl Iterator<Item = usize>;
    /// Returns the operands of one of them.
    fn pair(&self, which: usize) -> (Self::Left, Self::Right);
    fn added(&self) -> Added<'_, Self::Out>;
    fn places(&self) -> Places;
}

/// Locations of the results of a product: row i of column j is at `j / columns * block + i * row + j % columns`.
#[derive(Clone, Copy)]
pub struct Places {
    pub row: usize,
    pub columns: usize,
    pub block: usize,
}

impl Places {
    /// Creates the locations of consecutive rows of `n`.
    pub fn rows_of(n: usize) -> Self {
        Places { row: n, columns: n, block: 0 }
    }

    /// Returns whether there is a location for each result of `m x n`.
    pub fn hold(self, m: usize, n: usize) -> bool {
        let blocks = n.checked_div(self.columns).unwrap_or(0);
        self.columns == n || (blocks * self.columns == n && self.row == self.columns && self.block == m * self.row)
    }

    /// Returns the number of columns from `j` to the end of its block.
    #[inline(always)]
    pub fn left(self, j: usize) -> usize {
        if j < self.columns { self.columns - j } else { self.columns - j % self.columns }
    }

    #[inline(always)]
    pub fn of_column(self, j: usize) -> usize {
        if j < self.columns { j } else { j / self.columns * self.block + j % self.columns }
    }
}

impl<'a, T: Copy + Sync, O: Copy + Sync> Factors for Product<'a, T, O>
where
    Matrix<'a, T>: Operand<T>,
{
    type Of = T;
    type Out = O;
    type Left = Matrix<'a, T>;
    type Right = Matrix<'a, T>;

    fn size(&self) -> (usize, usize) {
        (self.mkn.0, self.mkn.2)
    }

    fn depths(&self) -> impl Iterator<Item = usize> {
        self.terms.iter().map(|_| self.mkn.1)
    }

    fn pair(&self, which: usize) -> (Matrix<'a, T>, Matrix<'a, T>) {
        let ((m, k, n), (a, b)) = (self.mkn, self.operands(self.terms[which]));
        let left = Matrix::new(a, self.layout == Layout::TN, if self.layout == Layout::TN { m } else { k });
        (left, Matrix::right(self.layout, (k, n), b))
    }

    fn added(&self) -> Added<'_, O> {
        self.added
    }

    fn places(&self) -> Places {
        Places::rows_of(self.mkn.2)
    }
}
