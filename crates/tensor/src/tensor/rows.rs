//! Tensors from rows: numbers, arrays of them, and rows of different lengths.

use half::{bf16, f16};

use super::{Tensor, TensorElement};

/// Element of a tensor, or an array of such rows of equal lengths: `f32`, `[f32; 4]`, `[[i64; 2]; 3]`. Elements are f32,
/// f16, bf16, i64 or bool: a literal `1.0` is f32 as in torch, and f64 numbers become tensors by
/// [`from_vec`](Tensor::from_vec) or [`from_f64`](Tensor::from_f64).
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a row of a tensor",
    label = "allowed: `f32`, `f16`, `bf16`, `i64`, `bool`, and arrays of them",
    note = "numbers of `f64` become a tensor by `Tensor::from_vec`, or rounded to another dtype by `Tensor::from_f64`; those of \
            other types are converted first",
    note = "a row has a known length: write an array, or use `Tensor::padded` for rows that are a `Vec` or a slice"
)]
pub trait Row {
    type Element: TensorElement;
    /// Appends the lengths of the axes.
    fn shape(axes: &mut Vec<usize>);
    /// Appends the elements in row-major order.
    fn append(self, elements: &mut Vec<Self::Element>);
}

/// Without f64, so that a literal has one type: `1.0` is f32, and `1` is i64.
macro_rules! elements {
    ($($element:ty),*) => { $(
        impl Row for $element {
            type Element = $element;
            fn shape(_axes: &mut Vec<usize>) {}
            fn append(self, elements: &mut Vec<$element>) {
                elements.push(self);
            }
        }
    )* };
}
elements!(f32, f16, bf16, i64, bool);

impl<R: Row, const N: usize> Row for [R; N] {
    type Element = R::Element;
    fn shape(axes: &mut Vec<usize>) {
        axes.push(N);
        R::shape(axes);
    }
    fn append(self, elements: &mut Vec<R::Element>) {
        self.into_iter().for_each(|row| row.append(elements));
    }
}

/// One row, or a `Vec` of rows of equal shapes.
#[diagnostic::on_unimplemented(
    message = "no tensor is made from `{Self}`",
    label = "allowed: `f32`, `f16`, `bf16`, `i64`, `bool`, arrays of them, and a `Vec` of these",
    note = "a row has a known length: write an array, or use `Tensor::padded` for rows that are a `Vec` or a slice"
)]
pub trait Rows {
    fn into_tensor(self) -> Tensor;
}

impl<R: Row> Rows for R {
    fn into_tensor(self) -> Tensor {
        let mut row = Column::default();
        row.push(self);
        row.into_tensor(vec![])
    }
}

impl<R: Row> Rows for Vec<R> {
    fn into_tensor(self) -> Tensor {
        self.into_iter().collect()
    }
}

impl<R: Rows> From<R> for Tensor {
    /// Creates a tensor from an array, a scalar from a number, or the tensor of a `Vec` of rows of equal shapes, in the dtype
    /// of the elements.
    ///
    /// ```
    /// # use precast_tensor as precast;
    /// use precast::{DType, Tensor};
    /// let x = Tensor::from([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]);
    /// assert_eq!((x.shape(), x.dtype()), (&[2, 3][..], DType::F32));
    /// assert_eq!(Tensor::from(vec![1, 2]).dtype(), DType::I64);
    /// ```
    fn from(rows: R) -> Tensor {
        rows.into_tensor()
    }
}

impl<R: Row> FromIterator<R> for Tensor {
    /// Creates a tensor from rows of equal shapes: of shape `[n]` from n numbers, `[n, 4]` from n arrays of 4 numbers.
    /// [`unzip`](Tensor::unzip) makes several tensors in one pass.
    ///
    /// ```
    /// # use precast_tensor as precast;
    /// use precast::Tensor;
    /// let points: Tensor = (0..3).map(|i| [i as f32, 0.5]).collect();
    /// assert_eq!(points.shape(), [3, 2]);
    /// ```
    fn from_iter<I: IntoIterator<Item = R>>(rows: I) -> Tensor {
        let mut column = Column::default();
        rows.into_iter().for_each(|row| column.push(row));
        column.into_rows()
    }
}

/// Rows of equal shapes that become a tensor.
struct Column<R: Row> {
    rows: usize,
    elements: Vec<R::Element>,
}

impl<R: Row> Default for Column<R> {
    fn default() -> Self {
        Column { rows: 0, elements: Vec::new() }
    }
}

impl<R: Row> Column<R> {
    fn push(&mut self, row: R) {
        row.append(&mut self.elements);
        self.rows += 1;
    }

    /// Creates a tensor with an axis of the rows.
    fn into_rows(self) -> Tensor {
        let rows = self.rows;
        self.into_tensor(vec![rows])
    }

    /// Creates a tensor whose first axes have these lengths, and hold all rows.
    fn into_tensor(self, mut shape: Vec<usize>) -> Tensor {
        R::shape(&mut shape);
        Tensor::from_vec(self.elements, &shape).expect("as many elements as the shape has")
    }
}

/// Tuple of two to six rows, whose columns become tensors; see [`Tensor::unzip`].
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a tuple of rows",
    label = "allowed: tuples of 2 to 6 rows",
    note = "a row is an `f32`, `f16`, `bf16`, `i64` or `bool`, or an array of them"
)]
pub trait Columns: Sized {
    /// Tuple of one tensor for each column.
    type Tensors;
    fn unzip(tuples: impl Iterator<Item = Self>) -> Self::Tensors;
}

macro_rules! tuples {
    ($($row:ident $at:tt),*) => {
        impl<$($row: Row),*> Columns for ($($row,)*) {
            type Tensors = ($(tuples!(@ $row),)*);
            fn unzip(tuples: impl Iterator<Item = Self>) -> Self::Tensors {
                let mut columns = ($(Column::<$row>::default(),)*);
                for tuple in tuples {
                    $(columns.$at.push(tuple.$at);)*
                }
                ($(columns.$at.into_rows(),)*)
            }
        }
    };
    (@ $row:ident) => { Tensor };
}
tuples!(A 0, B 1);
tuples!(A 0, B 1, C 2);
tuples!(A 0, B 1, C 2, D 3);
tuples!(A 0, B 1, C 2, D 3, E 4);
tuples!(A 0, B 1, C 2, D 3, E 4, F 5);

impl Tensor {
    /// Creates a tensor `[rows, longest, ...]` from rows of different lengths, which are filled at the end with `value`. (As
    /// torch's `pad_sequence` with `batch_first=True`.)
    ///
    /// ```
    /// # use precast_tensor as precast;
    /// use precast::Tensor;
    /// let texts = [vec![5, 2, 9], vec![7]];
    /// let x = Tensor::padded(&texts, 0);
    /// assert_eq!((x.shape(), x.to_vec::<i64>()?), (&[2, 3][..], vec![5, 2, 9, 7, 0, 0]));
    /// let is_word = x.ne(0)?; // true for words, false for the filling
    /// # assert_eq!(is_word.to_vec::<bool>()?, [true, true, true, true, false, false]);
    /// # Ok::<(), precast::Error>(())
    /// ```
    #[doc(alias = "pad_sequence")]
    pub fn padded<T: Row + Clone>(rows: &[impl AsRef<[T]>], value: T) -> Tensor {
        let longest = rows.iter().map(|row| row.as_ref().len()).max().unwrap_or(0);
        let mut column = Column::default();
        for row in rows {
            let filled = row.as_ref().iter().chain(std::iter::repeat(&value)).take(longest);
            filled.for_each(|element| column.push(element.clone()));
        }
        column.into_tensor(vec![rows.len(), longest])
    }

    /// Creates one tensor for each column of an iterator of tuples of 2 to 6 rows, each as `collect` does.
    ///
    /// ```
    /// # use precast_tensor as precast;
    /// use precast::Tensor;
    /// let batch = [([0.1, 0.2], 1, true), ([0.3, 0.4], 0, false)];
    /// let (states, actions, is_last) = Tensor::unzip(batch);
    /// assert_eq!((states.shape(), actions.to_vec::<i64>()?), (&[2, 2][..], vec![1, 0]));
    /// assert_eq!(is_last.to_vec::<bool>()?, [true, false]);
    /// # Ok::<(), precast::Error>(())
    /// ```
    pub fn unzip<C: Columns>(rows: impl IntoIterator<Item = C>) -> C::Tensors {
        C::unzip(rows.into_iter())
    }
}
