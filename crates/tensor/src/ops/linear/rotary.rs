//! Rotary position embedding (Su et al. 2021).

use precast_kernels::{
    float::{Float, Real},
    memory::with_capacity,
};

use crate::{
    Op, Tensor,
    error::{Error, Result},
    ops::{by_float, call, dispatch, elements},
    tensor::{Array, Forward, Stored},
};

impl Tensor {
    /// Applies rotary position embedding to queries or keys `[..., length, features]` (Su et al. 2021, "RoFormer"): at
    /// position m, the i-th of d / 2 pairs of features is rotated by the angle `m * base^(-2i / d)`. The product of a
    /// query and a key then depends only on the distance of their positions. The first position is `offset`.
    ///
    /// The i-th pair consists of features i and i + d / 2, or 2i and 2i + 1 when `interleaved`, as in the paper. The
    /// angles are computed in f64. Sine, cosine and the rotation are f32 even for 16-bit tensors, rounded once.
    ///
    /// # Errors
    /// [`ErrorKind::Shape`](crate::ErrorKind::Shape) unless there are at least two axes, the last of even length,
    /// [`ErrorKind::Value`](crate::ErrorKind::Value) for a base that is not positive and finite,
    /// [`ErrorKind::DType`](crate::ErrorKind::DType) for an integer or boolean tensor.
    ///
    /// ```
    /// # use precast_tensor as precast;
    /// # use precast::{DType, Tensor};
    /// let q = Tensor::ones(&[2, 3, 4], DType::F16);
    /// let rotated = q.rotary_embedding(10_000.0, 0, false)?;
    /// assert_eq!((rotated.shape(), rotated.dtype()), (q.shape(), DType::F16));
    /// assert_eq!(rotated.at(1, 0)?.to_f64(), [1.0; 8]); // the angles at position 0 are 0
    /// # Ok::<(), precast::Error>(())
    /// ```
    pub fn rotary_embedding(&self, base: f64, offset: usize, interleaved: bool) -> Result<Tensor> {
        dispatch(call!(Op::RotaryEmbedding, &[self]; base, offset, interleaved), |inputs| {
            let angles = Angles::new(inputs[0].shape(), base, offset, interleaved)?;
            let value = by_float!(inputs[0], T => angles.rotate::<T>(&inputs[0], 1.0))?;
            Ok(Forward::new(value, vec![], move |back| {
                let grad = by_float!(back.grad, T => angles.rotate::<T>(back.grad, -1.0))?;
                Ok(vec![Some(Tensor::from_array(grad))])
            }))
        })
    }
}

/// Rotation of the pairs of features at each position.
struct Angles {
    length: usize,
    features: usize,
    base: f64,
    offset: usize,
    interleaved: bool,
}

impl Angles {
    fn new(shape: &[usize], base: f64, offset: usize, interleaved: bool) -> Result<Angles> {
        let &[.., length, features] = shape else {
            return Err(Error::shape(format!("needs [..., length, features], got {shape:?}")));
        };
        if !features.is_multiple_of(2) {
            return Err(Error::shape(format!("{shape:?} has {features} features; allowed: an even number")));
        }
        if !(base > 0.0 && base.is_finite()) {
            return Err(Error::value(format!("a base of {base}; allowed: a finite number above 0")));
        }
        Ok(Angles { length, features, base, offset, interleaved })
    }

    /// Returns the cosine and sine of each pair, position by position.
    fn table<R: Real>(&self, sign: f64) -> Vec<(R, R)> {
        let pairs = self.features / 2;
        let frequency = |i: usize| self.base.powf(-((2 * i) as f64) / self.features as f64);
        let frequencies: Vec<f64> = (0..pairs).map(frequency).collect();
        let angle = |m: usize, i: usize| (self.offset as f64 + m as f64) * frequencies[i];
        let both = |angle: f64| (R::of(angle.cos()), R::of(sign * angle.sin()));
        (0..self.length).flat_map(|m| (0..pairs).map(move |i| (m, i))).map(|(m, i)| both(angle(m, i))).collect()
    }

    /// Rotates the pairs forward (`sign` 1) or back (-1), rounded once.
    fn rotate<T: Stored + Float>(&self, x: &Tensor, sign: f64) -> Result<Array> {
        // An empty tensor may have axes of any length.
        if x.is_empty() {
            return Ok(x.array().clone());
        }
        let own = elements::<T>(x);
        let wide = T::widen_slice(&own);
        let table = self.table::<T::Wide>(sign);
        let half = self.features / 2;
        let mut rotated = with_capacity(wide.len());
        rotated.extend_from_slice(&wide);
        for (x, turns) in rotated.chunks_exact_mut(self.features).zip(table.chunks_exact(half).cycle()) {
            for (i, &(cos, sin)) in turns.iter().enumerate() {
                let (a, b) = if self.interleaved { (2 * i, 2 * i + 1) } else { (i, i + half) };
                (x[a], x[b]) = (x[a] * cos - x[b] * sin, x[b] * cos + x[a] * sin);
            }
        }
        Array::from_vec(T::narrow_vec(rotated), x.shape())
    }
}
