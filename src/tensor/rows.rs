//! Tensors from rows: numbers, arrays of them, and rows of different lengths.

use half::{bf16, f16};

use super::{Tensor, TensorElement};

/// Element of a tensor, or an array of such rows of equal lengths: `f32`, `[f32; 4]`, `[[i64; 2]; 3]`. Elements are f32,
/// f16, bf16, i64 or bool: a literal `1.0` is f32 as in torch, and f64 numbers become tensors by
/// [`from_vec`](Tensor::from_vec) or [`from_f64`](Tensor::from_f64).
#[allow(private_bounds, reason = "elements and arrays of them are all there are")]
#[diagnostic::on_unimplemented(
    message = "`{Self}` is no row of a tensor",
    label = "allowed: `f32`, `f16`, `bf16`, `i64`, `bool`, and arrays of them",
    note = "numbers of `f64` become a tensor by `Tensor::from_vec`, or rounded to another dtype by `Tensor::from_f64`",
    note = "rows that are a `Vec` or a slice have no length that is known: write arrays, or use `Tensor::padded`"
)]
pub trait Row: Nested {}
impl<R: Nested> Row for R {}

#[diagnostic::on_unimplemented(
    message = "`{Self}` is no row of a tensor",
    label = "allowed: `f32`, `f16`, `bf16`, `i64`, `bool`, and arrays of them",
    note = "numbers of `f64` become a tensor by `Tensor::from_vec`, or rounded to another dtype by `Tensor::from_f64`",
    note = "rows that are a `Vec` or a slice have no length that is known: write arrays, or use `Tensor::padded`"
)]
trait Nested {
    type Element: TensorElement;
    /// Appends the lengths of the axes.
    fn shape(axes: &mut Vec<usize>);
    /// Appends the elements in row-major order.
    fn append(self, elements: &mut Vec<Self::Element>);
}

/// Without f64, so that a literal has one type: `1.0` is f32, and `1` is i64.
macro_rules! elements {
    ($($element:ty),*) => { $(
        impl Nested for $element {
            type Element = $element;
            fn shape(_axes: &mut Vec<usize>) {}
            fn append(self, elements: &mut Vec<$element>) {
                elements.push(self);
            }
        }
    )* };
}
elements!(f32, f16, bf16, i64, bool);

impl<R: Nested, const N: usize> Nested for [R; N] {
    type Element = R::Element;
    fn shape(axes: &mut Vec<usize>) {
        axes.push(N);
        R::shape(axes);
    }
    fn append(self, elements: &mut Vec<R::Element>) {
        self.into_iter().for_each(|row| row.append(elements));
    }
}

impl<R: Row> From<R> for Tensor {
    /// Creates a tensor from an array, or a scalar from a number, in the dtype of the elements.
    ///
    /// ```
    /// use precast::{DType, Tensor};
    /// let x = Tensor::from([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]);
    /// assert_eq!((x.shape(), x.dtype()), (&[2, 3][..], DType::F32));
    /// ```
    fn from(row: R) -> Tensor {
        let (mut shape, mut elements) = (Vec::new(), Vec::new());
        R::shape(&mut shape);
        row.append(&mut elements);
        of_shape(elements, &shape)
    }
}

impl<R: Row> From<Vec<R>> for Tensor {
    /// Creates a tensor from rows of equal shapes: of shape [n] from n numbers, [n, 4] from n arrays of 4 numbers.
    fn from(rows: Vec<R>) -> Tensor {
        rows.into_iter().collect()
    }
}

impl<R: Row> FromIterator<R> for Tensor {
    /// Creates a tensor from rows of equal shapes: of shape [n] from n numbers, [n, 4] from n arrays of 4 numbers.
    /// [`unzip`](Tensor::unzip) makes several tensors in one pass.
    ///
    /// ```
    /// use precast::Tensor;
    /// let points: Tensor = (0..3).map(|i| [i as f32, 0.5]).collect();
    /// assert_eq!(points.shape(), [3, 2]);
    /// ```
    fn from_iter<I: IntoIterator<Item = R>>(rows: I) -> Tensor {
        let mut column = Column::default();
        rows.into_iter().for_each(|row| column.push(row));
        column.into()
    }
}

/// Rows of equal shapes that become a tensor.
struct Column<R: Nested> {
    rows: usize,
    elements: Vec<R::Element>,
}

impl<R: Nested> Default for Column<R> {
    fn default() -> Self {
        Column { rows: 0, elements: Vec::new() }
    }
}

impl<R: Nested> Column<R> {
    fn push(&mut self, row: R) {
        row.append(&mut self.elements);
        self.rows += 1;
    }

    /// Creates a tensor whose first axes have these lengths, which hold the rows.
    fn of(self, mut shape: Vec<usize>) -> Tensor {
        R::shape(&mut shape);
        of_shape(self.elements, &shape)
    }
}

impl<R: Nested> From<Column<R>> for Tensor {
    fn from(column: Column<R>) -> Tensor {
        let rows = column.rows;
        column.of(vec![rows])
    }
}

/// Tuple of two to six rows, whose columns become tensors; see [`Tensor::unzip`].
#[diagnostic::on_unimplemented(
    message = "`{Self}` is no tuple of rows",
    label = "allowed: tuples of 2 to 6 rows",
    note = "a row is an `f32`, `f16`, `bf16`, `i64` or `bool`, or an array of them"
)]
#[allow(private_bounds, reason = "tuples of rows are all there are")]
pub trait Columns: Tuple {
    /// Tuple of one tensor for each column.
    type Tensors;
    /// Creates the tensors.
    #[doc(hidden)]
    fn unzip(tuples: impl Iterator<Item = Self>) -> Self::Tensors
    where
        Self: Sized;
}

/// Keeps [`Columns`] to the tuples here.
trait Tuple {}

macro_rules! tuples {
    ($($row:ident $column:ident $one:ident),*) => {
        impl<$($row: Row),*> Tuple for ($($row,)*) {}
        impl<$($row: Row),*> Columns for ($($row,)*) {
            type Tensors = ($(tuples!(@ $row),)*);
            fn unzip(tuples: impl Iterator<Item = Self>) -> Self::Tensors {
                $(let mut $column = Column::<$row>::default();)*
                for tuple in tuples {
                    let ($($one,)*) = tuple;
                    $($column.push($one);)*
                }
                ($($column.into(),)*)
            }
        }
    };
    (@ $row:ident) => { Tensor };
}
tuples!(A a x, B b y);
tuples!(A a u, B b v, C c w);
tuples!(A a u, B b v, C c w, D d x);
tuples!(A a u, B b v, C c w, D d x, E e y);
tuples!(A a u, B b v, C c w, D d x, E e y, F f z);
/// Creates a tensor of a shape that the elements fill.
fn of_shape<T: TensorElement>(elements: Vec<T>, shape: &[usize]) -> Tensor {
    Tensor::from_vec(elements, shape).expect("as many elements as the shape has")
}

impl Tensor {
    /// Creates a tensor `[rows, longest, ...]` from rows of different lengths, which are filled at the end with `value`. (As
    /// torch's `pad_sequence` with `batch_first=True`.)
    ///
    /// ```
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
        column.of(vec![rows.len(), longest])
    }

    /// Creates one tensor for each column of an iterator of tuples of 2 to 6 rows, each as `collect` does.
    ///
    /// ```
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
