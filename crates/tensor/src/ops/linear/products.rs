//! Products of tensors beyond matrix products: over chosen axes, of many factors, of all pairs.

use crate::{
    Op, Tensor,
    error::{Error, Result},
    ops::{
        call, composed::composed, elementwise::pairwise::broadcast_shape, index::shape::axis_at, one_float_dtype,
        spatial::windows::checked_shape,
    },
};

/// Moves the chosen axes of a tensor after (or before) the others, and returns it with the lengths of the others.
fn gathered(x: &Tensor, axes: &[usize], behind: bool) -> Result<(Tensor, Vec<usize>)> {
    let others: Vec<usize> = (0..x.rank()).filter(|axis| !axes.contains(axis)).collect();
    let order = if behind { [&others[..], axes].concat() } else { [axes, &others[..]].concat() };
    let lengths: Vec<usize> = others.iter().map(|&axis| x.shape()[axis]).collect();
    let (chosen, left) = (axes.iter().map(|&axis| x.shape()[axis]).product(), lengths.iter().product());
    let matrix: [usize; 2] = if behind { [left, chosen] } else { [chosen, left] };
    Ok((x.permute(&order)?.reshape(&matrix)?, lengths))
}

impl Tensor {
    /// Contracts pairs of axes: axis `axes[i]` of this tensor with axis `others[i]` of the other. The result has this
    /// tensor's remaining axes, then the other's. Computed in f32, rounded once.
    ///
    /// # Errors
    /// [`ErrorKind::Shape`](crate::ErrorKind::Shape) when the axes do not pair or their lengths differ,
    /// [`ErrorKind::DType`](crate::ErrorKind::DType) when dtypes differ and no policy casts them.
    ///
    /// ```
    /// # use precast_tensor as precast;
    /// # use precast::{DType, Tensor};
    /// let (a, b) = (Tensor::ones(&[2, 3, 4], DType::F32), Tensor::ones(&[4, 3, 5], DType::F32));
    /// let product = a.tensordot(&b, &[1, 2], &[1, 0])?;
    /// assert_eq!((product.shape(), product.to_f64()), (&[2, 5][..], vec![12.0; 10]));
    /// # Ok::<(), precast::Error>(())
    /// ```
    pub fn tensordot(&self, other: &Tensor, axes: &[isize], others: &[isize]) -> Result<Tensor> {
        composed(call!(Op::Tensordot, &[self, other]; axes, others), |inputs| {
            one_float_dtype(inputs)?;
            let (a, b) = (inputs[0].shape(), inputs[1].shape());
            let resolve = |axes: &[isize], rank: usize| -> Result<Vec<usize>> {
                let axes = axes.iter().map(|&axis| axis_at(axis, rank)).collect::<Result<Vec<_>>>()?;
                match (1..axes.len()).find(|&i| axes[..i].contains(&axes[i])) {
                    Some(i) => Err(Error::shape(format!("axis {} is named twice", axes[i]))),
                    None => Ok(axes),
                }
            };
            let (axes, others) = (resolve(axes, a.len())?, resolve(others, b.len())?);
            let lengths = |shape: &[usize], axes: &[usize]| axes.iter().map(|&axis| shape[axis]).collect::<Vec<_>>();
            if lengths(a, &axes) != lengths(b, &others) {
                return Err(Error::shape(format!("the axes {axes:?} of {a:?} do not pair with {others:?} of {b:?}")));
            }
            let left = |shape: &[usize], axes: &[usize]| -> Vec<usize> {
                (0..shape.len()).filter(|axis| !axes.contains(axis)).map(|axis| shape[axis]).collect()
            };
            checked_shape([left(a, &axes), left(b, &others)].concat())?;
            Ok(move |x: &[Tensor]| {
                let (a, rows) = gathered(&x[0], &axes, true)?;
                let (b, columns) = gathered(&x[1], &others, false)?;
                a.matmul(&b)?.reshape(&[rows, columns].concat())
            })
        })
    }

    /// Contracts the last axes: `[a..., n]`, `[b..., n] -> [a..., b...]`. Computed in f32, rounded once.
    ///
    /// # Errors
    /// [`ErrorKind::Shape`](crate::ErrorKind::Shape) when a tensor is a scalar or the last axes differ,
    /// [`ErrorKind::DType`](crate::ErrorKind::DType) when dtypes differ and no policy casts them.
    pub fn inner(&self, other: &Tensor) -> Result<Tensor> {
        composed(call!(Op::Inner, &[self, other]), |inputs| {
            one_float_dtype(inputs)?;
            let ([rows @ .., m], [columns @ .., n]) = (inputs[0].shape(), inputs[1].shape()) else {
                return Err(Error::shape("a scalar has no last axis"));
            };
            if m != n {
                let (a, b) = (inputs[0].shape(), inputs[1].shape());
                return Err(Error::shape(format!("the last axes of {a:?} and {b:?} differ")));
            }
            checked_shape([rows, columns].concat())?;
            Ok(|x: &[Tensor]| x[0].tensordot(&x[1], &[-1], &[-1]))
        })
    }

    /// Computes dot products of the vectors along the last axis; leading axes broadcast. Computed in f32, rounded once.
    ///
    /// # Errors
    /// [`ErrorKind::Shape`](crate::ErrorKind::Shape) when a tensor is a scalar or the shapes do not fit,
    /// [`ErrorKind::DType`](crate::ErrorKind::DType) when dtypes differ and no policy casts them.
    pub fn vecdot(&self, other: &Tensor) -> Result<Tensor> {
        composed(call!(Op::Vecdot, &[self, other]), |inputs| {
            one_float_dtype(inputs)?;
            let (a, b) = (inputs[0].shape(), inputs[1].shape());
            let ([left @ .., m], [right @ .., n]) = (a, b) else {
                return Err(Error::shape("a scalar has no last axis"));
            };
            if m != n {
                return Err(Error::shape(format!("vectors of length {m} and {n}")));
            }
            broadcast_shape(left, right)?;
            Ok(|x: &[Tensor]| x[0].mul(&x[1])?.sum(&[-1], false))
        })
    }

    /// Computes the Kronecker product: every element of this tensor times the whole other one, laid out in blocks.
    /// Missing leading axes count as 1. Floating dtypes promote.
    ///
    /// # Errors
    /// [`ErrorKind::Shape`](crate::ErrorKind::Shape) when the result does not fit into memory,
    /// [`ErrorKind::DType`](crate::ErrorKind::DType) when the dtypes cannot be multiplied.
    pub fn kron(&self, other: &Tensor) -> Result<Tensor> {
        let rank = self.rank().max(other.rank());
        let padded = |shape: &[usize]| [&vec![1; rank - shape.len()][..], shape].concat();
        let (a, b) = (padded(self.shape()), padded(other.shape()));
        let blocks: Vec<usize> = a.iter().flat_map(|&len| [len, 1]).collect();
        let block: Vec<usize> = b.iter().flat_map(|&len| [1, len]).collect();
        let lengths = a.iter().zip(&b).map(|(a, b)| a.saturating_mul(*b)).collect();
        let shape = checked_shape(lengths).map_err(|e| e.in_op("kron"))?;
        self.reshape(&blocks)?.mul(&other.reshape(&block)?)?.reshape(&shape)
    }

    /// Computes the matrix product of two or more matrices, from left to right, rounded once.
    ///
    /// # Errors
    /// [`ErrorKind::Shape`](crate::ErrorKind::Shape) when there are fewer than two matrices or their shapes do not
    /// match,
    /// [`ErrorKind::DType`](crate::ErrorKind::DType) when dtypes differ and no policy casts them.
    pub fn multi_dot(matrices: &[&Tensor]) -> Result<Tensor> {
        composed(call!(Op::MultiDot, matrices), |inputs| {
            if inputs.len() < 2 {
                return Err(Error::shape(format!("needs at least two matrices, got {}", inputs.len())));
            }
            one_float_dtype(inputs)?;
            if let Some(x) = inputs.iter().find(|x| x.rank() != 2) {
                return Err(Error::shape(format!("needs matrices, got {:?}", x.shape())));
            }
            Ok(|x: &[Tensor]| x[2..].iter().try_fold(x[0].matmul(&x[1])?, |product, next| product.matmul(next)))
        })
    }

    /// Computes `self + a · bᵀ` with vectors `a [m]` and `b [n]`; this tensor broadcasts to `[m, n]`. Floating dtypes
    /// promote.
    ///
    /// # Errors
    /// [`ErrorKind::Shape`](crate::ErrorKind::Shape) when the shapes do not fit,
    /// [`ErrorKind::DType`](crate::ErrorKind::DType) for an integer or boolean tensor.
    pub fn addr(&self, a: &Tensor, b: &Tensor) -> Result<Tensor> {
        composed(call!(Op::Addr, &[self, a, b]), |inputs| {
            one_float_dtype(inputs)?;
            let (&[m], &[n]) = (inputs[1].shape(), inputs[2].shape()) else {
                let (a, b) = (inputs[1].shape(), inputs[2].shape());
                return Err(Error::shape(format!("needs two vectors, got {a:?} and {b:?}")));
            };
            let shape = checked_shape(vec![m, n])?;
            if broadcast_shape(inputs[0].shape(), &shape).ok().as_ref() != Some(&shape) {
                return Err(Error::shape(format!("{:?} does not stretch to {shape:?}", inputs[0].shape())));
            }
            Ok(|x: &[Tensor]| x[0].add(&x[1].outer(&x[2])?))
        })
    }

    /// Computes `yᵀ W x + b` for each output: `x [..., i]` (this tensor), `y [..., j]`, a weight `[o, i, j]` and a bias
    /// `[o]` give `[..., o]`. Computed in f32, rounded once.
    ///
    /// # Errors
    /// [`ErrorKind::Shape`](crate::ErrorKind::Shape) when the shapes do not fit,
    /// [`ErrorKind::DType`](crate::ErrorKind::DType) when dtypes differ and no policy casts them.
    pub fn bilinear(&self, y: &Tensor, weight: &Tensor, bias: Option<&Tensor>) -> Result<Tensor> {
        let inputs: Vec<&Tensor> = [Some(self), Some(y), Some(weight), bias].into_iter().flatten().collect();
        composed(call!(Op::Bilinear, &inputs), |inputs| {
            one_float_dtype(inputs)?;
            let (x, y, weight) = (inputs[0].shape(), inputs[1].shape(), inputs[2].shape());
            match (x, y, weight) {
                ([left @ .., i], [right @ .., j], [_, wi, wj]) if left == right && i == wi && j == wj => {}
                _ => {
                    let needed = "needs [..., i], [..., j] and [o, i, j]";
                    return Err(Error::shape(format!("{needed}, got {x:?}, {y:?} and {weight:?}")));
                }
            }
            if let Some(bias) = inputs.get(3)
                && bias.shape() != &weight[..1]
            {
                return Err(Error::shape(format!("a bias {:?} for {} outputs", bias.shape(), weight[0])));
            }
            Ok(|x: &[Tensor]| {
                let product = Tensor::einsum("...i,oij,...j->...o", &[&x[0], &x[2], &x[1]])?;
                x.get(3).map_or(Ok(product.clone()), |bias| product.add(bias))
            })
        })
    }

    /// Sums the diagonal of a matrix to a scalar.
    ///
    /// # Errors
    /// [`ErrorKind::Shape`](crate::ErrorKind::Shape) when this is not a square matrix,
    /// [`ErrorKind::DType`](crate::ErrorKind::DType) for an integer or boolean tensor.
    pub fn trace(&self) -> Result<Tensor> {
        composed(call!(Op::Trace, &[self]), |inputs| match inputs[0].shape() {
            [m, n] if m == n => Ok(|x: &[Tensor]| Tensor::einsum("ii", &[&x[0]])),
            met => Err(Error::shape(format!("needs a square matrix, got {met:?}"))),
        })
    }
}
