//! Matrix products with f32 accumulation: 16-bit operands are widened, multiplied by `matrixmultiply`, and the result
//! is rounded once.

use crate::dtype::Float;

/// Which of the operands is transposed before the product.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Layout {
    /// `a · b`
    NN,
    /// `a · bᵀ`
    NT,
    /// `aᵀ · b`
    TN,
}

/// Adds the product of two contiguous matrices to a wide one: `m x k` times `k x n` after the layout's transposition.
pub(crate) fn add_product<T: Float>(
    layout: Layout,
    (m, k, n): (usize, usize, usize),
    a: &[T],
    b: &[T],
    c: &mut [T::Wide],
) where
    T::Wide: Gemm,
{
    let (sa, sb) = match layout {
        Layout::NN => (Strides::rows_of(k), Strides::rows_of(n)),
        Layout::NT => (Strides::rows_of(k), Strides::transposed(k)),
        Layout::TN => (Strides::transposed(m), Strides::rows_of(n)),
    };
    Gemm::gemm((m, k, n), &T::widen_slice(a), sa, &T::widen_slice(b), sb, c);
}

/// How a matrix lies in its slice: the distances between rows and between columns, in elements.
#[derive(Clone, Copy)]
pub(crate) struct Strides {
    pub row: isize,
    pub col: isize,
}

impl Strides {
    /// A contiguous matrix of `cols` columns.
    pub fn rows_of(cols: usize) -> Self {
        Strides { row: cols as isize, col: 1 }
    }

    /// The transpose of a contiguous matrix whose rows have `cols` columns.
    pub fn transposed(cols: usize) -> Self {
        Strides { row: 1, col: cols as isize }
    }
}

/// A type that `matrixmultiply` multiplies.
pub(crate) trait Gemm: Copy {
    /// `c += a · b` where a is m x k, b is k x n and c is m x n, contiguous.
    fn gemm(mkn: (usize, usize, usize), a: &[Self], sa: Strides, b: &[Self], sb: Strides, c: &mut [Self]);
}

/// Panics (a bug of ours, never of a user's) unless the last element lies inside the slice.
fn check(rows: usize, cols: usize, strides: Strides, len: usize) {
    if rows > 0 && cols > 0 {
        let last = (rows as isize - 1) * strides.row + (cols as isize - 1) * strides.col;
        assert!(strides.row >= 0 && strides.col >= 0 && (last as usize) < len, "matrix lies outside its slice");
    }
}

macro_rules! gemm {
    ($t:ty, $f:path) => {
        impl Gemm for $t {
            fn gemm(
                (m, k, n): (usize, usize, usize),
                a: &[Self],
                sa: Strides,
                b: &[Self],
                sb: Strides,
                c: &mut [Self],
            ) {
                check(m, k, sa, a.len());
                check(k, n, sb, b.len());
                check(m, n, Strides::rows_of(n), c.len());
                // SAFETY: the three checks above keep every access inside its slice, and `c` is borrowed mutably.
                unsafe {
                    $f(
                        m,
                        k,
                        n,
                        1.0,
                        a.as_ptr(),
                        sa.row,
                        sa.col,
                        b.as_ptr(),
                        sb.row,
                        sb.col,
                        1.0,
                        c.as_mut_ptr(),
                        n as isize,
                        1,
                    );
                }
            }
        }
    };
}
gemm!(f32, matrixmultiply::sgemm);
gemm!(f64, matrixmultiply::dgemm);
