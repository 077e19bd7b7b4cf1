//! Arguments of a matrix product.

/// Operand that is transposed before the product.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layout {
    /// `a · b`
    NN,
    /// `a · bᵀ`
    NT,
    /// `aᵀ · b`
    TN,
}

/// Addend of a product of `m x n`, added before rounding.
#[derive(Clone, Copy, Debug)]
pub enum Added<'a, T> {
    /// No addend.
    Nothing,
    /// n numbers, one per column.
    ToColumns(&'a [T]),
    /// m numbers, one per row.
    ToRows(&'a [T]),
    /// As many numbers as the product has.
    ToEach(&'a [T]),
}

/// Several products of one size: result i is the sum over `terms[i]` of the products of those matrices of `a` and `b`,
/// each `m x k` times `k x n` after the layout's transposition, all contiguous.
#[derive(Clone, Copy, Debug)]
pub struct Products<'a, T> {
    /// Transposition of the operands.
    pub layout: Layout,
    /// Rows of the result, terms of each sum, columns of the result.
    pub mkn: (usize, usize, usize),
    /// Left matrices.
    pub a: &'a [T],
    /// Right matrices.
    pub b: &'a [T],
    /// Pairs of matrices of each result.
    pub terms: &'a [Vec<(usize, usize)>],
    /// Addend of all results, which are consecutive in [`ToEach`](Added::ToEach).
    pub added: Added<'a, T>,
}

/// One result of [`Products`], with numbers of type `O`.
#[derive(Clone, Copy)]
pub struct Product<'a, T, O = T> {
    pub layout: Layout,
    pub mkn: (usize, usize, usize),
    pub a: &'a [T],
    pub b: &'a [T],
    pub terms: &'a [(usize, usize)],
    pub added: Added<'a, O>,
}

impl<T> Added<'_, T> {
    /// Panics unless it has as many numbers as are added to `results` products of `m x n`.
    pub fn check(&self, results: usize, (m, n): (usize, usize)) {
        match self {
            Added::Nothing => {}
            Added::ToColumns(x) => assert_eq!(x.len(), n, "one number for each column"),
            Added::ToRows(x) => assert_eq!(x.len(), m, "one number for each row"),
            Added::ToEach(x) => assert_eq!(x.len(), results * m * n, "one number for each element"),
        }
    }
}

impl<'a, T> Products<'a, T> {
    /// Panics unless all operands are inside their slices, and `len` is the number of elements of all results.
    pub fn check(&self, len: usize) {
        let (m, k, n) = self.mkn;
        assert_eq!(len, self.terms.len() * m * n, "one place for each element");
        for &(a, b) in self.terms.iter().flatten() {
            assert!(
                (a + 1) * m * k <= self.a.len() && (b + 1) * k * n <= self.b.len(),
                "a matrix is outside its slice"
            );
        }
        self.added.check(self.terms.len(), (m, n));
    }

    /// Returns result `i`.
    pub fn get(&self, i: usize) -> Product<'_, T> {
        let len = self.mkn.0 * self.mkn.2;
        let added = match self.added {
            Added::Nothing => Added::Nothing,
            Added::ToColumns(x) => Added::ToColumns(x),
            Added::ToRows(x) => Added::ToRows(x),
            Added::ToEach(x) => Added::ToEach(&x[i * len..(i + 1) * len]),
        };
        Product { layout: self.layout, mkn: self.mkn, a: self.a, b: self.b, terms: &self.terms[i], added }
    }
}

impl<'a, T, O> Product<'a, T, O> {
    /// Returns the two matrices of a term.
    pub fn operands(&self, (a, b): (usize, usize)) -> (&'a [T], &'a [T]) {
        let (m, k, n) = self.mkn;
        (&self.a[a * m * k..(a + 1) * m * k], &self.b[b * k * n..(b + 1) * k * n])
    }
}

impl<T> Product<'_, T> {
    /// Calls `f` with the product of one term whose result is this column as a row: `(a · b)ᵀ = bᵀ · aᵀ`.
    pub fn with_transposed<R>(&self, f: impl FnOnce(&Product<T>) -> R) -> R
    where
        T: Copy,
    {
        let (m, k, _) = self.mkn;
        let (a, b) = self.operands(self.terms[0]);
        // Addend of the one column.
        let repeated;
        let added = match self.added {
            Added::ToColumns(x) => {
                repeated = vec![x[0]; m];
                Added::ToColumns(&repeated[..])
            }
            Added::ToRows(x) => Added::ToColumns(x),
            other => other,
        };
        let layout = if self.layout == Layout::TN { Layout::NN } else { Layout::NT };
        f(&Product { layout, mkn: (1, k, m), a: b, b: a, terms: &[(0, 0)], added })
    }
}
