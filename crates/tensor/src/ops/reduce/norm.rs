//! Batch, layer, group, instance and root-mean-square normalization.
//!
//! Statistics, parameters and arithmetic are in f32 (f64 for f64); the result is rounded once to the dtype of x.
//! Parameters may have a different floating dtype from x.

use half::{bf16, f16};
use precast_kernels::{
    float::{Float, Real},
    memory::{Elements, Pooled, copied},
    reduce::{
        channels::Channels,
        norm,
        norm::{Rows, Statistics},
    },
};

use crate::{
    DType, Op, Tensor,
    error::{Error, Result},
    ops::{Call, by_float, call, dispatch, elements, not_floating},
    tensor::{Array, Backward, Forward, Stored, Unread, UnreadNorm, Value, context},
};

/// A normalization. Its inputs are x, the mean and the variance if they are given, gamma if any, and beta if any.
struct Norm {
    rows: Rows,
    statistics: Statistics,
    eps: f64,
    with_gamma: bool,
}

/// Statistics used by a normalization, one number per row.
struct Moments {
    mean: Tensor,
    variance: Tensor,
    deviation: Tensor,
}

/// Returns the elements of a floating tensor in the dtype of kernel arithmetic.
fn wide<R: Stored>(x: &Tensor) -> Result<Elements<'_, R>> {
    match x.dtype() {
        dtype if dtype == R::DTYPE => Ok(elements(x)),
        dtype if dtype.is_float() => Ok(Elements::Pooled(Tensor::from_array(x.array().cast(R::DTYPE)).to_buffer())),
        dtype => Err(not_floating("floating tensors", &[dtype])),
    }
}

fn tensor_of<R: Stored>(data: impl Into<Pooled<R>>, shape: &[usize]) -> Result<Tensor> {
    Array::from_vec(data, shape).map(Tensor::from_array)
}

impl Norm {
    /// Returns the position of gamma among the inputs.
    fn gamma_at(&self) -> usize {
        if self.statistics == Statistics::Given { 3 } else { 1 }
    }

    fn gamma<'a>(&self, inputs: &'a [Tensor]) -> Option<&'a Tensor> {
        if self.with_gamma { inputs.get(self.gamma_at()) } else { None }
    }

    fn beta<'a>(&self, inputs: &'a [Tensor]) -> Option<&'a Tensor> {
        inputs.get(self.gamma_at() + usize::from(self.with_gamma))
    }

    /// Computes the result in `T` from the elements of x in `X`.
    fn forward<X: Stored + Float<Wide = T::Wide>, T: Stored + Float>(
        &self,
        x: &Tensor,
        inputs: &[Tensor],
    ) -> Result<(Value, Moments)>
    where
        T::Wide: Stored + Real,
    {
        let x = elements::<X>(x);
        let given = match self.statistics {
            Statistics::Given => (wide(&inputs[1])?.into_buffer(), wide(&inputs[2])?.into_buffer()),
            _ => Default::default(),
        };
        let gamma = self.gamma(inputs).map(wide).transpose()?;
        let beta = self.beta(inputs).map(wide).transpose()?;
        let used = norm::normalize::<X, T>(
            &self.rows,
            self.statistics,
            self.eps,
            &x,
            given,
            gamma.as_deref(),
            beta.as_deref(),
        );
        let each_row = |data: Pooled<T::Wide>| tensor_of(data, &[self.rows.rows]);
        let moments = Moments {
            mean: each_row(used.means)?,
            variance: each_row(used.variances)?,
            deviation: each_row(used.deviations)?,
        };
        Ok((Array::from_vec(used.y, inputs[0].shape())?.into(), moments))
    }

    /// Returns the result of a batch norm still to be computed, if it can be: not for f64, and not where a channel must be
    /// brought into range.
    fn unread(&self, x: &Tensor, inputs: &[Tensor]) -> Result<Option<(Value, Moments)>> {
        let dtype = inputs[0].dtype();
        if context::is_heard() || dtype == DType::F64 || !dtype.is_float() {
            return Ok(None);
        }
        let [means, variances, deviations] = match self.statistics {
            Statistics::Given => {
                // So that norms of norms do not become chains of what is to be computed.
                let _ = x.array();
                let (means, variances) = (wide::<f32>(&inputs[1])?, wide::<f32>(&inputs[2])?);
                let deviations =
                    variances.iter().map(|variance| (variance + self.eps as f32).sqrt()).collect::<Vec<_>>();
                [means.into_buffer(), variances.into_buffer(), deviations.into()]
            }
            _ => {
                let statistics = match x.dtype() {
                    DType::F16 => norm::statistics::<f16>(&self.rows, self.eps, &elements(x)),
                    DType::Bf16 => norm::statistics::<bf16>(&self.rows, self.eps, &elements(x)),
                    _ => norm::statistics::<f32>(&self.rows, self.eps, &elements(x)),
                };
                let Some(statistics) = statistics else { return Ok(None) };
                statistics
            }
        };
        let gamma = self.gamma(inputs).map(wide::<f32>).transpose()?;
        let beta = self.beta(inputs).map(wide::<f32>).transpose()?;
        let each_row = |data: &[f32]| tensor_of(copied(data), &[self.rows.rows]);
        let (mean, variance, deviation) = (each_row(&means)?, each_row(&variances)?, each_row(&deviations)?);
        let channels = Channels::new(self.rows, means, &deviations, gamma.as_deref(), beta.as_deref());
        let unread = Unread::Norm(UnreadNorm::new(x, dtype, channels));
        Ok(Some((unread.into(), Moments { mean, variance, deviation })))
    }

    /// Computes the gradients of the inputs: that of x has the shape of the output gradient, all others the shape
    /// `params`, computed in `T` from the elements of x and of the output gradient in `X`. The saved tensors are x, the
    /// mean, the deviation, and gamma if any.
    fn backward<X: Stored + Float<Wide = T::Wide>, T: Stored + Float>(
        &self,
        b: &Backward<'_>,
        (x, grad): (&Tensor, &Tensor),
        params: &[usize],
    ) -> Result<Vec<Tensor>>
    where
        T::Wide: Stored + Real,
    {
        let mask = grad.unread_mask();
        let (grad, kept) = mask.as_ref().map_or((grad, None), |mask| (&mask.grad, Some(&mask.kept)));
        let (x, grad, kept) = (elements::<X>(x), elements::<X>(grad), kept.map(elements::<X>));
        let (mean, deviation) = (wide::<T::Wide>(&b.saved[1])?, wide::<T::Wide>(&b.saved[2])?);
        let gamma = b.saved.get(3).map(wide::<T::Wide>).transpose()?;
        let gamma = gamma.as_deref();
        let to =
            norm::backward::<X, T>(&self.rows, self.statistics, &x, &mean, &deviation, gamma, (&grad, kept.as_deref()));
        let mut grads = vec![tensor_of(to.x, b.grad.shape())?];
        if self.statistics == Statistics::Given {
            let (mean, variance) = norm::given_gradients(&deviation, gamma, &to.gamma, &to.beta);
            grads.extend([tensor_of(mean, params)?, tensor_of(variance, params)?]);
        }
        if self.with_gamma {
            grads.push(tensor_of(to.gamma, params)?);
        }
        grads.push(tensor_of(to.beta, params)?);
        Ok(grads)
    }
}

/// Runs a normalization whose rows and shape of parameters follow from the shape of x.
fn normalized(
    call: Call<'_>,
    statistics: Statistics,
    with_gamma: bool,
    eps: f64,
    layout: impl FnOnce(&[usize]) -> Result<(Rows, Vec<usize>)>,
) -> Result<(Tensor, Moments)> {
    let mut used = None;
    let y = dispatch(call, |inputs| {
        let x = &inputs[0];
        let (rows, params) = layout(x.shape())?;
        if let Some(p) = inputs[1..].iter().find(|p| p.shape() != params) {
            let (x, p) = (x.shape(), p.shape());
            return Err(Error::shape(format!("{x:?} needs parameters of the shape {params:?}, got {p:?}")));
        }
        if !(eps.is_finite() && eps >= 0.0) {
            return Err(Error::value(format!("eps {eps} must be a finite number, at least 0")));
        }
        let norm = Norm { rows, statistics, eps, with_gamma };
        let is_batch = call.op == Op::BatchNorm;
        // An unread widening is read in 16 bits.
        let least = x.least();
        let unread = if is_batch { norm.unread(least, inputs)? } else { None };
        let (value, moments): (Value, Moments) = match (unread, least.dtype(), x.dtype()) {
            (Some(unread), ..) => unread,
            (_, DType::F16, DType::F32) => norm.forward::<f16, f32>(least, inputs)?,
            (_, DType::Bf16, DType::F32) => norm.forward::<bf16, f32>(least, inputs)?,
            _ => by_float!(x, T => norm.forward::<T, T>(x, inputs))?,
        };
        let dtypes: Vec<DType> = inputs.iter().map(Tensor::dtype).collect();
        let mut saved = vec![x.clone(), moments.mean.clone(), moments.deviation.clone()];
        saved.extend(norm.gamma(inputs).cloned());
        let more = if is_batch && statistics == Statistics::Moments {
            vec![moments.mean.clone(), moments.variance.clone()]
        } else {
            vec![]
        };
        used = Some(moments);
        let forward = Forward::new(value, saved, move |b| {
            let both @ (x, grad) = (b.saved[0].least(), b.grad.least());
            let grads = match (x.dtype(), grad.dtype(), b.grad.dtype()) {
                (DType::F16, DType::F16, DType::F32) if b.narrows => norm.backward::<f16, f16>(b, both, &params)?,
                (DType::Bf16, DType::Bf16, DType::F32) if b.narrows => norm.backward::<bf16, bf16>(b, both, &params)?,
                (DType::F16, DType::F16, DType::F32) => norm.backward::<f16, f32>(b, both, &params)?,
                (DType::Bf16, DType::Bf16, DType::F32) => norm.backward::<bf16, f32>(b, both, &params)?,
                _ => by_float!(b.grad, T => norm.backward::<T, T>(b, (&b.saved[0], b.grad), &params))?,
            };
            let wanted = grads.into_iter().zip(b.needs).zip(&dtypes);
            Ok(wanted.map(|((grad, need), dtype)| need.then(|| grad.cast(*dtype))).collect())
        });
        Ok(forward.with_more(more))
    })?;
    Ok((y, used.expect("the kernel ran")))
}

/// Returns the rows of a batch norm: one per channel of `[n, c, ...]`.
fn channels(shape: &[usize]) -> Result<(Rows, Vec<usize>)> {
    let &[n, c, ref spatial @ ..] = shape else {
        return Err(Error::shape(format!("needs [n, c, ...], got {shape:?}")));
    };
    let segment = spatial.iter().product();
    Ok((Rows { rows: c, segments: n, segment, groups: c, per_row: 1, inner: segment }, vec![c]))
}

/// Returns the rows of a group norm: one per image and group of channels of `[n, c, ...]`.
fn channel_groups(shape: &[usize], groups: impl FnOnce(usize) -> usize) -> Result<(Rows, Vec<usize>)> {
    let &[n, c, ref spatial @ ..] = shape else {
        return Err(Error::shape(format!("needs [n, c, ...], got {shape:?}")));
    };
    let groups = groups(c);
    if groups == 0 || groups > c.max(1) || !c.is_multiple_of(groups) {
        return Err(Error::shape(format!("the {c} channels of {shape:?} do not divide into {groups} groups")));
    }
    let (per_row, inner) = (c / groups, spatial.iter().product());
    Ok((Rows { rows: n * groups, segments: 1, segment: per_row * inner, groups, per_row, inner }, vec![c]))
}

/// Returns the rows of a layer norm over the last axes, which have the lengths `normalized`.
fn last_axes(shape: &[usize], normalized: &[usize]) -> Result<(Rows, Vec<usize>)> {
    let Some(leading) = shape.strip_suffix(normalized).filter(|_| !normalized.is_empty()) else {
        return Err(Error::shape(format!("{shape:?} does not end with the normalized axes {normalized:?}")));
    };
    let (rows, len) = (leading.iter().product(), normalized.iter().product());
    Ok((Rows { rows, segments: 1, segment: len, groups: 1, per_row: len, inner: 1 }, normalized.to_vec()))
}

fn present<const N: usize>(tensors: [Option<&Tensor>; N]) -> Vec<&Tensor> {
    tensors.into_iter().flatten().collect()
}

impl Tensor {
    /// Applies batch normalization with given statistics, as in evaluation:
    /// `(x - mean) / sqrt(var + eps) * gamma + beta` for each channel of `[n, c, ...]`; the others are `[c]`. All
    /// tensors are inputs of the op, so a low region rounds them all.
    ///
    /// # Errors
    /// [`ErrorKind::Shape`](crate::ErrorKind::Shape) when the shapes do not fit,
    /// [`ErrorKind::DType`](crate::ErrorKind::DType) for tensors that are not floating.
    pub fn batch_norm(
        &self,
        mean: &Tensor,
        var: &Tensor,
        gamma: Option<&Tensor>,
        beta: Option<&Tensor>,
        eps: f64,
    ) -> Result<Tensor> {
        let (with_gamma, with_beta) = (gamma.is_some(), beta.is_some());
        let inputs = present([Some(self), Some(mean), Some(var), gamma, beta]);
        let call = call!(Op::BatchNorm, &inputs; eps, with_gamma, with_beta);
        Ok(normalized(call, Statistics::Given, with_gamma, eps, channels)?.0)
    }

    /// Applies batch normalization with the batch's own statistics, as in training. Returns the result, and the mean
    /// and biased variance of each channel in f32 (f64 for f64), off the tape, for running statistics.
    ///
    /// # Errors
    /// [`ErrorKind::Shape`](crate::ErrorKind::Shape) when the shapes do not fit or a channel has no elements,
    /// [`ErrorKind::DType`](crate::ErrorKind::DType) for tensors that are not floating.
    pub fn batch_norm_train(
        &self,
        gamma: Option<&Tensor>,
        beta: Option<&Tensor>,
        eps: f64,
    ) -> Result<(Tensor, Tensor, Tensor)> {
        let (training, with_gamma, with_beta) = (true, gamma.is_some(), beta.is_some());
        let inputs = present([Some(self), gamma, beta]);
        let layout = |shape: &[usize]| match channels(shape)? {
            (rows, _) if rows.len() == 0 => {
                Err(Error::shape(format!("the channels of {shape:?} have no elements to take statistics of")))
            }
            layout => Ok(layout),
        };
        let call = call!(Op::BatchNorm, &inputs; training, eps, with_gamma, with_beta);
        let (y, used) = normalized(call, Statistics::Moments, with_gamma, eps, layout)?;
        Ok((y, used.mean, used.variance))
    }

    /// Applies layer normalization over the last axes, which have the lengths `normalized`; gamma and beta have that
    /// shape.
    /// (J. L. Ba, J. R. Kiros, G. E. Hinton, "Layer normalization", 2016.)
    ///
    /// # Errors
    /// [`ErrorKind::Shape`](crate::ErrorKind::Shape) when the shapes do not fit,
    /// [`ErrorKind::DType`](crate::ErrorKind::DType) for tensors that are not floating.
    pub fn layer_norm(
        &self,
        normalized_shape: &[usize],
        gamma: Option<&Tensor>,
        beta: Option<&Tensor>,
        eps: f64,
    ) -> Result<Tensor> {
        let (with_gamma, with_beta) = (gamma.is_some(), beta.is_some());
        let inputs = present([Some(self), gamma, beta]);
        let layout = |shape: &[usize]| last_axes(shape, normalized_shape);
        let call = call!(Op::LayerNorm, &inputs; normalized_shape, eps, with_gamma, with_beta);
        Ok(normalized(call, Statistics::Moments, with_gamma, eps, layout)?.0)
    }

    /// Applies group normalization to the channels of each image of `[n, c, ...]`, in `groups` groups; gamma and beta
    /// are `[c]`.
    /// (Y. Wu, K. He, "Group normalization", 2018.)
    ///
    /// # Errors
    /// [`ErrorKind::Shape`](crate::ErrorKind::Shape) when the shapes do not fit or the channels are not divisible by
    /// `groups`,
    /// [`ErrorKind::DType`](crate::ErrorKind::DType) for tensors that are not floating.
    pub fn group_norm(&self, groups: usize, gamma: Option<&Tensor>, beta: Option<&Tensor>, eps: f64) -> Result<Tensor> {
        let (with_gamma, with_beta) = (gamma.is_some(), beta.is_some());
        let inputs = present([Some(self), gamma, beta]);
        let layout = |shape: &[usize]| channel_groups(shape, |_| groups);
        let call = call!(Op::GroupNorm, &inputs; groups, eps, with_gamma, with_beta);
        Ok(normalized(call, Statistics::Moments, with_gamma, eps, layout)?.0)
    }

    /// Applies instance normalization to each channel of each image of `[n, c, ...]` separately; gamma and beta are
    /// `[c]`.
    ///
    /// # Errors
    /// [`ErrorKind::Shape`](crate::ErrorKind::Shape) when the shapes do not fit,
    /// [`ErrorKind::DType`](crate::ErrorKind::DType) for tensors that are not floating.
    pub fn instance_norm(&self, gamma: Option<&Tensor>, beta: Option<&Tensor>, eps: f64) -> Result<Tensor> {
        let (with_gamma, with_beta) = (gamma.is_some(), beta.is_some());
        let inputs = present([Some(self), gamma, beta]);
        let layout = |shape: &[usize]| channel_groups(shape, |channels| channels.max(1));
        let call = call!(Op::InstanceNorm, &inputs; eps, with_gamma, with_beta);
        Ok(normalized(call, Statistics::Moments, with_gamma, eps, layout)?.0)
    }

    /// Applies root-mean-square normalization over the last axis: `x / sqrt(mean(x^2) + eps) * gamma`.
    /// (B. Zhang, R. Sennrich, "Root mean square layer normalization", 2019.)
    ///
    /// # Errors
    /// [`ErrorKind::Shape`](crate::ErrorKind::Shape) when the shapes do not fit,
    /// [`ErrorKind::DType`](crate::ErrorKind::DType) for tensors that are not floating.
    pub fn rms_norm(&self, gamma: Option<&Tensor>, eps: f64) -> Result<Tensor> {
        let with_gamma = gamma.is_some();
        let inputs = present([Some(self), gamma, None]);
        let layout = |shape: &[usize]| last_axes(shape, &shape[shape.len().saturating_sub(1)..]);
        let call = call!(Op::RmsNorm, &inputs; eps, with_gamma);
        Ok(normalized(call, Statistics::MeanSquare, with_gamma, eps, layout)?.0)
    }
}
