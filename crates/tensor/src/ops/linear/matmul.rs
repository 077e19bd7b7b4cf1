//! Matrix products.

use precast_kernels::{
    gemm::{Added, Layout, Products, products},
    memory::uninit_vec,
    strides::{broadcast_indices, row_major},
};

use crate::{
    Op, Tensor,
    error::{Error, Result},
    ops::{
        by_float, call, dispatch, elements,
        elementwise::pairwise::{broadcast_shape, stretched},
        index::shape::summed_to,
        one_float_dtype,
        spatial::windows::checked_shape,
    },
    tensor::{Array, Forward},
};

/// Pairs of operand matrices to multiply and sum, for each matrix of a batched result.
type Terms = Vec<Vec<(usize, usize)>>;

/// Computes sums of products of matrices, each `m x k` times `k x n` after the layout's transposition, rounded once
/// together with the addend. All tensors have one floating dtype.
fn sums_of_products(
    layout: Layout,
    mkn: (usize, usize, usize),
    [a, b]: [&Tensor; 2],
    terms: &Terms,
    added: Option<&Tensor>,
    shape: &[usize],
) -> Result<Array> {
    by_float!(a, T => {
        let (m, _, n) = mkn;
        let (a, b) = (elements::<T>(a), elements::<T>(b));
        let stretch = |added: &Tensor| stretched::<T>(added.array(), shape).map(|x| row_major(&x));
        let added = added.map(stretch).transpose()?;
        let added = added.as_deref().map_or(Added::Nothing, Added::ToEach);
        let mut sums = uninit_vec(terms.len() * m * n);
        products(&Products { layout, mkn, a: &a, b: &b, terms, added }, &mut sums);
        Array::from_vec(sums, shape)
    })
}

/// Computes one product of matrices, rounded once.
pub(in crate::ops) fn one_product(
    layout: Layout,
    mkn: (usize, usize, usize),
    a: &Tensor,
    b: &Tensor,
    shape: &[usize],
) -> Result<Array> {
    sums_of_products(layout, mkn, [a, b], &vec![vec![(0, 0)]], None, shape)
}

/// Two tensors viewed as batches of matrices.
pub(in crate::ops) struct Batched {
    mkn: (usize, usize, usize),
    /// Batch axes of each operand.
    a: Vec<usize>,
    b: Vec<usize>,
    /// Batch axes of the result, to which both broadcast.
    batch: Vec<usize>,
    /// `true` when all products are summed into one matrix.
    summed: bool,
}

impl Batched {
    pub fn new(a: &[usize], b: &[usize]) -> Result<Batched> {
        let ([a_batch @ .., m, k], [b_batch @ .., k2, n]) = (a, b) else {
            return Err(Error::shape(format!("needs two batches of matrices, got {a:?} and {b:?}")));
        };
        if k != k2 {
            return Err(Error::shape(format!("{a:?} and {b:?} do not fit: {k} columns meet {k2} rows")));
        }
        let batch = broadcast_shape(a_batch, b_batch)
            .map_err(|_| Error::shape(format!("the batch axes of {a:?} and {b:?} do not broadcast")))?;
        let batched = Batched { mkn: (*m, *k, *n), a: a_batch.to_vec(), b: b_batch.to_vec(), batch, summed: false };
        checked_shape(batched.shape())?;
        Ok(batched)
    }

    /// Sums the products of the batch into one matrix.
    pub fn summed(self) -> Batched {
        Batched { summed: true, ..self }
    }

    /// Returns the shape of the products.
    pub fn shape(&self) -> Vec<usize> {
        let (m, _, n) = self.mkn;
        if self.summed { vec![m, n] } else { [&self.batch[..], &[m, n]].concat() }
    }

    /// Computes the products of the first two inputs, in a shape with as many elements as [`shape`](Batched::shape),
    /// plus the third input, if there is one, broadcast to that shape.
    pub fn run(self, inputs: &[Tensor], shape: Vec<usize>) -> Result<Forward> {
        let (a, b, added) = (&inputs[0], &inputs[1], inputs.get(2));
        let products = self.batch.iter().product();
        // Corresponding matrices of a, b and the result.
        let pairs = broadcast_indices(&self.batch, &self.a)
            .into_iter()
            .zip(broadcast_indices(&self.batch, &self.b))
            .enumerate();
        let places: Vec<[usize; 3]> = pairs.map(|(i, (a, b))| [a, b, if self.summed { 0 } else { i }]).collect();
        let terms = move |of: usize, count: usize, [left, right]: [usize; 2]| {
            let mut terms: Terms = vec![vec![]; count];
            places.iter().for_each(|place| terms[place[of]].push((place[left], place[right])));
            terms
        };
        let sums = terms(2, if self.summed { 1 } else { products }, [0, 1]);
        let value = sums_of_products(Layout::NN, self.mkn, [a, b], &sums, added, &shape)?;
        let added = added.map(|added| added.shape().to_vec());
        Ok(Forward::new(value, vec![a.clone(), b.clone()], move |back| {
            let (m, k, n) = self.mkn;
            let mut grads = vec![None, None];
            if back.needs[0] {
                let (terms, b) = (terms(0, self.a.iter().product(), [2, 1]), back.restored(1));
                let grad =
                    sums_of_products(Layout::NT, (m, n, k), [back.grad, &b], &terms, None, back.saved[0].shape())?;
                grads[0] = Some(Tensor::from_array(grad));
            }
            if back.needs[1] {
                let (terms, a) = (terms(1, self.b.iter().product(), [0, 2]), back.restored(0));
                let grad =
                    sums_of_products(Layout::TN, (k, m, n), [&a, back.grad], &terms, None, back.saved[1].shape())?;
                grads[1] = Some(Tensor::from_array(grad));
            }
            if let Some(added) = &added {
                grads.push(back.needs[2].then(|| Tensor::from_array(summed_to(back.grad.array(), added))));
            }
            Ok(grads)
        }))
    }
}

impl Tensor {
    /// Computes the product of two matrices: `[m, k] · [k, n] -> [m, n]`, accumulated in f32, rounded once.
    ///
    /// # Errors
    /// [`ErrorKind::Shape`](crate::ErrorKind::Shape) when the tensors are not matrices of matching shapes,
    /// [`ErrorKind::DType`](crate::ErrorKind::DType) when their dtypes differ and no policy casts them.
    pub fn matmul(&self, other: &Tensor) -> Result<Tensor> {
        dispatch(call!(Op::MatMul, &[self, other]), |inputs| {
            one_float_dtype(inputs)?;
            let (a, b) = (inputs[0].shape(), inputs[1].shape());
            let (&[m, _], &[_, n]) = (a, b) else {
                return Err(Error::shape(format!("needs two matrices, got {a:?} and {b:?}")));
            };
            Batched::new(a, b)?.run(inputs, vec![m, n])
        })
    }

    /// Computes the products of two batches of matrices: `[..., m, k] · [..., k, n] -> [..., m, n]` with equal batch
    /// axes, accumulated in f32, rounded once.
    ///
    /// # Errors
    /// [`ErrorKind::Shape`](crate::ErrorKind::Shape) when the tensors are not batches of matrices of matching shapes,
    /// [`ErrorKind::DType`](crate::ErrorKind::DType) when their dtypes differ and no policy casts them.
    #[doc(alias = "bmm")]
    pub fn batch_matmul(&self, other: &Tensor) -> Result<Tensor> {
        dispatch(call!(Op::BatchMatMul, &[self, other]), |inputs| {
            one_float_dtype(inputs)?;
            let (a, b) = (inputs[0].shape(), inputs[1].shape());
            let batched = Batched::new(a, b)?;
            if batched.a != batched.b {
                return Err(Error::shape(format!("the batch axes of {a:?} and {b:?} differ")));
            }
            let shape = batched.shape();
            batched.run(inputs, shape)
        })
    }

    /// Computes the product by the rules of numpy's `matmul`: batch axes broadcast, and a vector is a row on the left
    /// and a column on the right, whose axis of length 1 is dropped from the result. Accumulated in f32, rounded once.
    ///
    /// # Errors
    /// [`ErrorKind::Shape`](crate::ErrorKind::Shape) when the shapes do not fit or one tensor is a scalar,
    /// [`ErrorKind::DType`](crate::ErrorKind::DType) when their dtypes differ and no policy casts them.
    ///
    /// ```
    /// # use precast_tensor as precast;
    /// # use precast::{DType, Tensor};
    /// let (batch, vector) = (Tensor::ones(&[5, 2, 3], DType::F32), Tensor::ones(&[3], DType::F32));
    /// assert_eq!(batch.matmul_ext(&vector)?.shape(), [5, 2]);
    /// # Ok::<(), precast::Error>(())
    /// ```
    pub fn matmul_ext(&self, other: &Tensor) -> Result<Tensor> {
        dispatch(call!(Op::MatMulExt, &[self, other]), |inputs| {
            one_float_dtype(inputs)?;
            let (a, b) = (inputs[0].shape(), inputs[1].shape());
            if a.is_empty() || b.is_empty() {
                return Err(Error::shape(format!("needs vectors or matrices, got {a:?} and {b:?}")));
            }
            let row = if let &[k] = a { vec![1, k] } else { a.to_vec() };
            let column = if let &[k] = b { vec![k, 1] } else { b.to_vec() };
            let batched = Batched::new(&row, &column)?;
            let mut shape = batched.shape();
            if b.len() == 1 {
                shape.pop();
            }
            if a.len() == 1 {
                shape.remove(batched.batch.len());
            }
            batched.run(inputs, shape)
        })
    }
}
