//! Matrix products plus a tensor, and products with vectors. Sum and product are rounded together, once.

use crate::{
    Op, Tensor,
    error::{Error, Result},
    ops::{call, dispatch, elementwise::pairwise::broadcast_shape, linear::matmul::Batched, one_float_dtype},
    tensor::Forward,
};

/// Returns the shapes, if the two tensors have the wanted numbers of axes.
fn ranks(inputs: &[Tensor], wanted: [usize; 2]) -> Result<[&[usize]; 2]> {
    let names = ["a scalar", "a vector", "a matrix", "a batch of matrices"];
    let (a, b) = (inputs[0].shape(), inputs[1].shape());
    match [a.len(), b.len()] == wanted {
        true => Ok([a, b]),
        false => Err(Error::shape(format!("needs {} and {}, got {a:?} and {b:?}", names[wanted[0]], names[wanted[1]]))),
    }
}

/// Computes the products plus the addend, broadcast to their shape.
fn sum(products: Batched, inputs: &[Tensor], shape: Vec<usize>) -> Result<Forward> {
    if let Some(added) = inputs.get(2)
        && broadcast_shape(added.shape(), &shape).ok().as_ref() != Some(&shape)
    {
        let message = format!("{:?} does not stretch to the product's shape {shape:?}", added.shape());
        return Err(Error::shape(message));
    }
    products.run(inputs, shape)
}

/// Multiplies a matrix by a vector.
fn matrix_vector(inputs: &[Tensor]) -> Result<Forward> {
    one_float_dtype(inputs)?;
    let [a, &[n]] = ranks(inputs, [2, 1])? else { unreachable!("a vector") };
    sum(Batched::new(a, &[n, 1])?, inputs, vec![a[0]])
}

impl Tensor {
    /// Computes `self + a · b` with `a [m, k]` and `b [k, n]`; this tensor broadcasts to `[m, n]`.
    ///
    /// # Errors
    /// [`ErrorKind::Shape`](crate::ErrorKind::Shape) when the shapes do not fit,
    /// [`ErrorKind::DType`](crate::ErrorKind::DType) when dtypes differ and no policy casts them.
    ///
    /// ```
    /// # use precast_tensor as precast;
    /// # use precast::{DType, Tensor};
    /// let (a, b) = (Tensor::ones(&[2, 3], DType::F32), Tensor::ones(&[3, 4], DType::F32));
    /// let bias = Tensor::full(&[4], 0.5, DType::F32);
    /// assert_eq!(bias.addmm(&a, &b)?.to_f64(), [3.5; 8]);
    /// # Ok::<(), precast::Error>(())
    /// ```
    pub fn addmm(&self, a: &Tensor, b: &Tensor) -> Result<Tensor> {
        dispatch(call!(Op::Addmm, &[a, b, self]), |inputs| {
            one_float_dtype(inputs)?;
            let [a, b] = ranks(inputs, [2, 2])?;
            sum(Batched::new(a, b)?, inputs, vec![a[0], b[1]])
        })
    }

    /// Computes `self + a · b` for each matrix of two batches `a [n, m, k]` and `b [n, k, p]`; this tensor broadcasts
    /// to `[n, m, p]`.
    ///
    /// # Errors
    /// As for [`addmm`](Tensor::addmm).
    pub fn baddbmm(&self, a: &Tensor, b: &Tensor) -> Result<Tensor> {
        dispatch(call!(Op::Baddbmm, &[a, b, self]), |inputs| {
            let products = batches(inputs)?;
            let shape = products.shape();
            sum(products, inputs, shape)
        })
    }

    /// Computes `self` plus the sum of the products of two batches `a [n, m, k]` and `b [n, k, p]`; this tensor
    /// broadcasts to `[m, p]`.
    ///
    /// # Errors
    /// As for [`addmm`](Tensor::addmm).
    pub fn addbmm(&self, a: &Tensor, b: &Tensor) -> Result<Tensor> {
        dispatch(call!(Op::Addbmm, &[a, b, self]), |inputs| {
            let products = batches(inputs)?.summed();
            let shape = products.shape();
            sum(products, inputs, shape)
        })
    }

    /// Computes `self + a · v` with `a [m, k]` and `v [k]`; this tensor broadcasts to `[m]`.
    ///
    /// # Errors
    /// As for [`addmm`](Tensor::addmm).
    pub fn addmv(&self, a: &Tensor, v: &Tensor) -> Result<Tensor> {
        dispatch(call!(Op::Addmv, &[a, v, self]), matrix_vector)
    }

    /// Multiplies this matrix by a vector: `[m, k] · [k] -> [m]`.
    ///
    /// # Errors
    /// As for [`addmm`](Tensor::addmm).
    pub fn mv(&self, v: &Tensor) -> Result<Tensor> {
        dispatch(call!(Op::Mv, &[self, v]), matrix_vector)
    }

    /// Computes the dot product of two vectors, a scalar. Floating dtypes promote.
    ///
    /// # Errors
    /// As for [`addmm`](Tensor::addmm).
    pub fn dot(&self, other: &Tensor) -> Result<Tensor> {
        dispatch(call!(Op::Dot, &[self, other]), |inputs| {
            one_float_dtype(inputs)?;
            let [&[m], &[n]] = ranks(inputs, [1, 1])? else { unreachable!("two vectors") };
            if m != n {
                return Err(Error::shape(format!("vectors of length {m} and {n}")));
            }
            Batched::new(&[1, m], &[n, 1])?.run(inputs, vec![])
        })
    }

    /// Computes the outer product of two vectors: `[m]`, `[n] -> [m, n]`.
    ///
    /// # Errors
    /// As for [`addmm`](Tensor::addmm).
    pub fn outer(&self, other: &Tensor) -> Result<Tensor> {
        dispatch(call!(Op::Ger, &[self, other]), |inputs| {
            one_float_dtype(inputs)?;
            let [&[m], &[n]] = ranks(inputs, [1, 1])? else { unreachable!("two vectors") };
            Batched::new(&[m, 1], &[1, n])?.run(inputs, vec![m, n])
        })
    }
}

/// Returns two batches with the same number of matrices.
fn batches(inputs: &[Tensor]) -> Result<Batched> {
    one_float_dtype(inputs)?;
    let [a, b] = ranks(inputs, [3, 3])?;
    match a[0] == b[0] {
        true => Batched::new(a, b),
        false => Err(Error::shape(format!("the batch axes of {a:?} and {b:?} differ"))),
    }
}
