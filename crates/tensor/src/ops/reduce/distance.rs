//! Vectors along an axis: cross products, lengths, angles and distances.

use precast_kernels::{
    float::{Float, Real},
    memory::room,
    reduce::power_below,
};

use crate::{
    DType, Op, Tensor,
    error::{Error, Result},
    ops::{
        by_float, call,
        composed::{composed, inside},
        elements,
        elementwise::pairwise::broadcast_shape,
        index::shape::axis_at,
        one_float_dtype,
        spatial::windows::checked_shape,
    },
    precision::Frame,
    tensor::context,
};

impl Tensor {
    /// Computes the cross products of vectors of length 3 along an axis, rounded once. The other axes broadcast;
    /// floating dtypes promote.
    ///
    /// # Errors
    /// [`ErrorKind::Shape`](crate::ErrorKind::Shape) when the shapes do not fit or the axis does not have 3 elements,
    /// [`ErrorKind::DType`](crate::ErrorKind::DType) for an integer or boolean tensor.
    pub fn cross(&self, other: &Tensor, axis: isize) -> Result<Tensor> {
        composed(call!(Op::Cross, &[self, other]; axis), |inputs| {
            one_float_dtype(inputs)?;
            let (a, b) = (inputs[0].shape(), inputs[1].shape());
            if a.len() != b.len() {
                return Err(Error::shape(format!("{a:?} and {b:?} have different numbers of axes")));
            }
            let at = axis_at(axis, a.len())?;
            if (a[at], b[at]) != (3, 3) {
                return Err(Error::shape(format!("axis {at} of {a:?} and {b:?} must have 3 elements")));
            }
            broadcast_shape(a, b)?;
            Ok(move |inputs: &[Tensor]| {
                let next = Tensor::from_vec(vec![1i64, 2, 0], &[3])?;
                let last = Tensor::from_vec(vec![2i64, 0, 1], &[3])?;
                let turned = |x: &Tensor, by: &Tensor| x.index_select(axis, by);
                let (a, b) = (&inputs[0], &inputs[1]);
                turned(a, &next)?.mul(&turned(b, &last)?)?.sub(&turned(a, &last)?.mul(&turned(b, &next)?)?)
            })
        })
    }

    /// Computes the p-norms of the differences between every vector of one set and every vector of another:
    /// `[..., m, d]`, `[..., n, d] -> [..., m, n]`, rounded once. Leading axes broadcast; floating dtypes promote.
    ///
    /// The gradient is 0 where the distance is 0.
    ///
    /// # Errors
    /// [`ErrorKind::Shape`](crate::ErrorKind::Shape) when the shapes do not fit,
    /// [`ErrorKind::Value`](crate::ErrorKind::Value) when p is not above 0,
    /// [`ErrorKind::DType`](crate::ErrorKind::DType) for an integer or boolean tensor.
    ///
    /// ```
    /// # use precast_tensor as precast;
    /// # use precast::Tensor;
    /// let x = Tensor::from_vec(vec![0f32, 0., 3., 4.], &[2, 2])?;
    /// assert_eq!(x.cdist(&x, 2.0)?.to_f64(), [0., 5., 5., 0.]);
    /// # Ok::<(), precast::Error>(())
    /// ```
    pub fn cdist(&self, other: &Tensor, p: f64) -> Result<Tensor> {
        composed(call!(Op::Cdist, &[self, other]; p), |inputs| {
            one_float_dtype(inputs)?;
            positive_p(p)?;
            let (a, b) = (inputs[0].shape(), inputs[1].shape());
            let ([a_batch @ .., m, d], [b_batch @ .., n, bd]) = (a, b) else {
                return Err(Error::shape(format!("needs [..., m, d] and [..., n, d], got {a:?} and {b:?}")));
            };
            if d != bd {
                return Err(Error::shape(format!("{a:?} and {b:?} do not fit: vectors of length {d} and {bd}")));
            }
            let batch = broadcast_shape(a_batch, b_batch)
                .map_err(|_| Error::shape(format!("the leading axes of {a:?} and {b:?} do not broadcast")))?;
            checked_shape([&batch[..], &[*m, *n, *d]].concat())?;
            Ok(move |inputs: &[Tensor]| inputs[0].unsqueeze(-2)?.sub(&inputs[1].unsqueeze(-3)?)?.norm(p, &[-1], false))
        })
    }

    /// Computes the p-norm of the difference, a scalar, rounded once. Shapes broadcast; floating dtypes promote.
    ///
    /// # Errors
    /// [`ErrorKind::Shape`](crate::ErrorKind::Shape) when the shapes do not broadcast,
    /// [`ErrorKind::Value`](crate::ErrorKind::Value) when p is not above 0,
    /// [`ErrorKind::DType`](crate::ErrorKind::DType) for an integer or boolean tensor.
    pub fn dist(&self, other: &Tensor, p: f64) -> Result<Tensor> {
        composed(call!(Op::Dist, &[self, other]; p), |inputs| {
            one_float_dtype(inputs)?;
            broadcast_shape(inputs[0].shape(), inputs[1].shape())?;
            positive_p(p)?;
            Ok(move |x: &[Tensor]| x[0].sub(&x[1])?.norm(p, &[], false))
        })
    }

    /// Computes the p-norms of the differences between all pairs of rows: `[n, d] -> [n (n - 1) / 2]`, with the pairs
    /// in the order (0, 1), (0, 2), ..., (1, 2), ...; rounded once.
    ///
    /// # Errors
    /// [`ErrorKind::Shape`](crate::ErrorKind::Shape) when this is not a matrix,
    /// [`ErrorKind::Value`](crate::ErrorKind::Value) when p is not above 0,
    /// [`ErrorKind::DType`](crate::ErrorKind::DType) for an integer or boolean tensor.
    pub fn pdist(&self, p: f64) -> Result<Tensor> {
        composed(call!(Op::Pdist, &[self]; p), |inputs| {
            positive_p(p)?;
            let &[n, d] = inputs[0].shape() else {
                return Err(Error::shape(format!("needs a matrix, got {:?}", inputs[0].shape())));
            };
            let pairs = n.saturating_mul(n.saturating_sub(1)) / 2;
            checked_shape(vec![pairs, d])?;
            let (mut first, mut second) = (room(pairs), room(pairs));
            for (i, j) in (0..n as i64).flat_map(|i| (i + 1..n as i64).map(move |j| (i, j))) {
                first.push(i);
                second.push(j);
            }
            let (first, second) = (Tensor::from_vec(first, &[pairs])?, Tensor::from_vec(second, &[pairs])?);
            Ok(move |x: &[Tensor]| {
                x[0].index_select(0, &first)?.sub(&x[0].index_select(0, &second)?)?.norm(p, &[-1], false)
            })
        })
    }

    /// Computes the cosines of the angles between the vectors along an axis, rounded once. Lengths are clamped to at
    /// least `eps`. Shapes broadcast; floating dtypes promote.
    ///
    /// # Errors
    /// [`ErrorKind::Shape`](crate::ErrorKind::Shape) when the shapes do not broadcast or have no such axis,
    /// [`ErrorKind::DType`](crate::ErrorKind::DType) for an integer or boolean tensor.
    ///
    /// ```
    /// # use precast_tensor as precast;
    /// # use precast::Tensor;
    /// let a = Tensor::from_vec(vec![3f32, 0., 1., 1.], &[2, 2])?;
    /// let b = Tensor::from_vec(vec![0f32, 2.], &[2])?;
    /// let cosines = a.cosine_similarity(&b, -1, 1e-8)?.to_f64();
    /// assert!(cosines[0] == 0.0 && (cosines[1] - 0.5f64.sqrt()).abs() < 1e-7);
    /// # Ok::<(), precast::Error>(())
    /// ```
    pub fn cosine_similarity(&self, other: &Tensor, axis: isize, eps: f64) -> Result<Tensor> {
        composed(call!(Op::CosineSimilarity, &[self, other]; axis, eps), |inputs| {
            one_float_dtype(inputs)?;
            let shape = broadcast_shape(inputs[0].shape(), inputs[1].shape())?;
            axis_at(axis, shape.len())?;
            Ok(move |x: &[Tensor]| {
                let (a, b) = (x[0].broadcast_to(&shape)?, x[1].broadcast_to(&shape)?);
                unit(&a, 2.0, axis, eps)?.mul(&unit(&b, 2.0, axis, eps)?)?.sum(&[axis], false)
            })
        })
    }

    /// Scales each slice of an axis whose p-norm exceeds `max_norm` down to that norm, rounded once. It bounds the rows
    /// of an embedding.
    ///
    /// # Errors
    /// [`ErrorKind::Shape`](crate::ErrorKind::Shape) when there is no such axis,
    /// [`ErrorKind::Value`](crate::ErrorKind::Value) when p is not above 0 or the largest norm is below 0 or NaN,
    /// [`ErrorKind::DType`](crate::ErrorKind::DType) for an integer or boolean tensor.
    pub fn renorm(&self, p: f64, axis: isize, max_norm: f64) -> Result<Tensor> {
        composed(call!(Op::Renorm, &[self]; p, axis, max_norm), |inputs| {
            positive_p(p)?;
            if max_norm.is_nan() || max_norm < 0.0 {
                return Err(Error::value(format!("max_norm = {max_norm}; allowed: 0 and above")));
            }
            let rank = inputs[0].rank();
            let axis = axis_at(axis, rank)?;
            let others: Vec<isize> = (0..rank as isize).filter(|&other| other != axis as isize).collect();
            Ok(move |x: &[Tensor]| {
                // In a vector, each element is a slice.
                let norms = if others.is_empty() { x[0].abs()? } else { x[0].norm(p, &others, true)? };
                let most = Tensor::scalar(max_norm, norms.dtype());
                // The small number that torch adds keeps the quotient finite.
                let short = match scales(&x[0], &norms, &others, 1e-7)? {
                    Some(scale) if !others.is_empty() => {
                        let x = x[0].div(&scale)?;
                        let least = Tensor::scalar(1e-7, x.dtype()).div(&scale)?;
                        x.div(&x.norm(p, &others, true)?.add(&least)?)?
                    }
                    _ => x[0].div(&(&norms + 1e-7)?)?,
                };
                let short = short.mul(&most)?;
                norms.gt(&most)?.select(&short, &x[0])
            })
        })
    }

    /// Divides each vector along an axis by its p-norm, clamped to at least `eps`. A low norm is not rounded before the
    /// division, so it cannot overflow. In a region with lists it runs as the ops that lists know, each in its dtype:
    /// one that may compute the norm in f32, or round it.
    ///
    /// # Errors
    /// As for [`norm`](Tensor::norm).
    pub fn normalize(&self, p: f64, axis: isize, eps: f64) -> Result<Tensor> {
        match context::dtype_of_all(self.dtype()) {
            Some(low) if low.is_low() => {
                let x = self.cast(low);
                let _off = context::enter(Frame::Off);
                Ok(unit(&x.cast(DType::F32), p, axis, eps)?.cast(low))
            }
            _ => unit(self, p, axis, eps),
        }
    }
}

/// Divides each vector along an axis by its p-norm, clamped to at least `eps`.
fn unit(x: &Tensor, p: f64, axis: isize, eps: f64) -> Result<Tensor> {
    let norm = x.norm(p, &[axis], true)?;
    let Some(scale) = scales(x, &norm, &[axis], eps)? else { return x.div(&norm.clamp(eps, f64::INFINITY)?) };
    let x = x.div(&scale)?;
    let least = Tensor::scalar(eps, x.dtype()).div(&scale)?;
    x.div(&x.norm(p, &[axis], true)?.maximum(&least)?)
}

/// Returns powers of two by which vectors along some axes are divided, so that their norms are in range; `None` if they
/// are already. Dividing by them changes no digit, and `eps`, the least norm, divided by them is finite.
fn scales(x: &Tensor, norm: &Tensor, axes: &[isize], eps: f64) -> Result<Option<Tensor>> {
    let least = match norm.dtype() {
        DType::F64 => f64::MIN_POSITIVE,
        DType::F16 => half::f16::MIN_POSITIVE.to_f64(),
        _ => f64::from(f32::MIN_POSITIVE),
    };
    let in_range = by_float!(norm, T => {
        let in_range = |norm: f64| norm == 0.0 || norm.is_finite() && norm >= least;
        Ok(elements::<T>(norm).iter().all(|norm| in_range(Real::as_f64(norm.widen()))))
    })?;
    if in_range {
        return Ok(None);
    }
    inside(false, || {
        let largest = x.detach().abs()?.max(axes, true)?;
        let power = |x: f64| if x > 0.0 && x.is_finite() { power_below(x.max(eps)) } else { 1.0 };
        let powers: Vec<f64> = largest.to_f64().into_iter().map(power).collect();
        Tensor::from_f64(&powers, largest.shape(), x.dtype()).map(Some)
    })
}

fn positive_p(p: f64) -> Result<()> {
    match p.is_nan() || p <= 0.0 {
        true => Err(Error::value(format!("p = {p}; allowed: above 0, or infinite"))),
        false => Ok(()),
    }
}
