//! Losses on whole rows: margins between scores, between distances, and likelihoods with a variance.

use crate::{
    DType, Op, Tensor,
    error::{Error, Result},
    ops::{
        Reduction, call, composed::composed, elementwise::pairwise::broadcast_shape, index::pick::checked_indices,
        loss::elementwise::domain, one_float_dtype,
    },
};

fn reduced(losses: Tensor, reduction: Reduction) -> Result<Tensor> {
    match reduction {
        Reduction::Mean => losses.mean_all(),
        Reduction::Sum => losses.sum_all(),
        Reduction::None => Ok(losses),
    }
}

fn one_shape(inputs: &[Tensor]) -> Result<()> {
    match inputs.iter().find(|x| x.shape() != inputs[0].shape()) {
        None => Ok(()),
        Some(other) => Err(Error::shape(format!("{:?} and {:?} differ", inputs[0].shape(), other.shape()))),
    }
}

/// Converts labels to the floating dtype of `like`, off the tape.
fn as_floats(labels: &Tensor, like: &Tensor) -> Tensor {
    if labels.dtype().is_float() { labels.clone() } else { labels.cast(like.dtype()) }
}

/// Returns `[samples, classes]` of scores; a single sample may omit its axis.
fn scores(x: &Tensor) -> Result<[usize; 2]> {
    match *x.shape() {
        [classes] if classes > 0 => Ok([1, classes]),
        [samples, classes] if classes > 0 => Ok([samples, classes]),
        ref met => Err(Error::shape(format!("needs [samples, classes] or [classes], got {met:?}"))),
    }
}

impl Tensor {
    /// Computes the negative log-likelihood of `target` under normal distributions with the means of this tensor and
    /// these variances: `(ln(var) + (x - target)² / var) / 2`. Variances are clamped to at least `eps`. Shapes
    /// broadcast; dtypes promote.
    ///
    /// # Errors
    /// [`ErrorKind::Shape`](crate::ErrorKind::Shape) when the shapes do not broadcast,
    /// [`ErrorKind::Value`](crate::ErrorKind::Value) when `eps` is not above 0 or a variance is negative,
    /// [`ErrorKind::DType`](crate::ErrorKind::DType) for an integer or boolean tensor.
    pub fn gaussian_nll_loss(&self, target: &Tensor, var: &Tensor, eps: f64, reduction: Reduction) -> Result<Tensor> {
        composed(call!(Op::GaussianNllLoss, &[self, target, var]; eps, reduction), |inputs| {
            one_float_dtype(inputs)?;
            if eps.is_nan() || eps <= 0.0 {
                return Err(Error::value(format!("eps = {eps}; allowed: above 0")));
            }
            domain(&inputs[2], "variance", "0 and above", |var| var >= 0.0 || var.is_nan())?;
            broadcast_shape(&broadcast_shape(inputs[0].shape(), inputs[1].shape())?, inputs[2].shape())?;
            Ok(move |x: &[Tensor]| {
                let var = x[2].clamp(eps, f64::INFINITY)?;
                let difference = x[0].sub(&x[1])?;
                // In this order no square overflows.
                let losses = var.log()?.add(&difference.div(&var)?.mul(&difference)?)? * 0.5;
                reduced(losses?, reduction)
            })
        })
    }

    /// Computes `max(0, margin - target * (self - other))`: a target of 1 ranks this tensor's score higher, -1 the
    /// other's. Shapes broadcast; dtypes promote; targets may be integers.
    ///
    /// # Errors
    /// [`ErrorKind::Shape`](crate::ErrorKind::Shape) when the shapes do not broadcast,
    /// [`ErrorKind::DType`](crate::ErrorKind::DType) for integer or boolean scores.
    pub fn margin_ranking_loss(
        &self,
        other: &Tensor,
        target: &Tensor,
        margin: f64,
        reduction: Reduction,
    ) -> Result<Tensor> {
        composed(call!(Op::MarginRankingLoss, &[self, other, &as_floats(target, self)]; margin, reduction), |inputs| {
            one_float_dtype(inputs)?;
            broadcast_shape(&broadcast_shape(inputs[0].shape(), inputs[1].shape())?, inputs[2].shape())?;
            Ok(move |x: &[Tensor]| {
                let behind = x[1].sub(&x[0])?.mul(&x[2])? + margin;
                reduced(behind?.relu()?, reduction)
            })
        })
    }

    /// Computes the cosine embedding loss for rows `[..., d]` labeled similar (1) or not (-1): `1 - cos` for similar
    /// rows, `max(0, cos - margin)` for the others, where cos is the cosine of the angle between this tensor's row and
    /// the other's. Targets are `[...]`, and may be integers.
    ///
    /// # Errors
    /// [`ErrorKind::Shape`](crate::ErrorKind::Shape) when the shapes do not fit,
    /// [`ErrorKind::DType`](crate::ErrorKind::DType) for integer or boolean rows.
    pub fn cosine_embedding_loss(
        &self,
        other: &Tensor,
        target: &Tensor,
        margin: f64,
        reduction: Reduction,
    ) -> Result<Tensor> {
        composed(
            call!(Op::CosineEmbeddingLoss, &[self, other, &as_floats(target, self)]; margin, reduction),
            |inputs| {
                one_float_dtype(inputs)?;
                one_shape(&inputs[..2])?;
                match inputs[0].shape() {
                    [rows @ .., _] if rows == inputs[2].shape() => {}
                    met => return Err(Error::shape(format!("rows {met:?} with targets {:?}", inputs[2].shape()))),
                }
                Ok(move |x: &[Tensor]| {
                    // Squared lengths are clamped to at least 1e-12 (torch adds that).
                    let cosine = x[0].cosine_similarity(&x[1], -1, 1e-6)?;
                    let one = Tensor::ones(&[], cosine.dtype());
                    let apart = (&cosine - margin)?.relu()?;
                    let losses = x[2].gt(&Tensor::zeros(&[], x[2].dtype()))?.select(&one.sub(&cosine)?, &apart)?;
                    reduced(losses, reduction)
                })
            },
        )
    }

    /// Computes `max(0, |self - positive| - |self - negative| + margin)` with p-norms over the last axis, which pulls
    /// this tensor's rows closer to the positive ones. Shapes are equal; dtypes promote.
    ///
    /// # Errors
    /// [`ErrorKind::Shape`](crate::ErrorKind::Shape) when the shapes differ or are those of scalars,
    /// [`ErrorKind::Value`](crate::ErrorKind::Value) when p is not above 0,
    /// [`ErrorKind::DType`](crate::ErrorKind::DType) for an integer or boolean tensor.
    pub fn triplet_margin_loss(
        &self,
        alike: &Tensor,
        different: &Tensor,
        margin: f64,
        p: f64,
        reduction: Reduction,
    ) -> Result<Tensor> {
        composed(call!(Op::TripletMarginLoss, &[self, alike, different]; margin, p, reduction), |inputs| {
            one_float_dtype(inputs)?;
            one_shape(inputs)?;
            if inputs[0].rank() == 0 {
                return Err(Error::shape("a scalar has no last axis to measure distances along"));
            }
            if p.is_nan() || p <= 0.0 {
                return Err(Error::value(format!("p = {p}; allowed: above 0, or infinite")));
            }
            Ok(move |x: &[Tensor]| {
                // The small number that torch adds defines the slope at a distance of 0.
                let distance = |other: &Tensor| (x[0].sub(other)? + 1e-6)?.norm(p, &[-1], false);
                let losses = distance(&x[1])?.sub(&distance(&x[2])?)? + margin;
                reduced(losses?.relu()?, reduction)
            })
        })
    }

    /// Computes the multi-class margin loss for scores `[samples, classes]` and the correct classes `[samples]` (i64):
    /// the mean over classes of `max(0, margin - correct score + score)^p` over the wrong ones; p is 1 or 2. (Crammer,
    /// Singer 2001, as in torch.)
    ///
    /// # Errors
    /// [`ErrorKind::Shape`](crate::ErrorKind::Shape) when the shapes do not fit,
    /// [`ErrorKind::Value`](crate::ErrorKind::Value) for a class out of range or another p,
    /// [`ErrorKind::DType`](crate::ErrorKind::DType) when scores are not floating or classes not i64.
    pub fn multi_margin_loss(&self, target: &Tensor, p: u32, margin: f64, reduction: Reduction) -> Result<Tensor> {
        composed(call!(Op::MultiMarginLoss, &[self, target]; p, margin, reduction), |inputs| {
            let [samples, classes] = scores(&inputs[0])?;
            if !(1..=2).contains(&p) {
                return Err(Error::value(format!("p = {p}; allowed: 1, 2")));
            }
            if inputs[1].shape() != &inputs[0].shape()[..inputs[0].rank() - 1] {
                let (scores, target) = (inputs[0].shape(), inputs[1].shape());
                return Err(Error::shape(format!("scores {scores:?} and classes {target:?} do not fit")));
            }
            let right = checked_indices(&inputs[1], classes)?;
            let wrong = (0..samples * classes).map(|i| right[i / classes] != i % classes).collect();
            let wrong = Tensor::from_vec::<bool>(wrong, &[samples, classes])?;
            Ok(move |x: &[Tensor]| {
                let rows = x[0].reshape(&[samples, classes])?;
                let target = x[1].reshape(&[samples, 1])?;
                let behind = rows.sub(&rows.gather(1, &target)?)? + margin;
                let behind = wrong.select(&behind?, &Tensor::zeros(&[], rows.dtype()))?.relu()?;
                let losses = if p == 1 { behind } else { behind.square()? }.mean(&[1], false)?;
                reduced(if x[0].rank() == 1 { losses.squeeze(0)? } else { losses }, reduction)
            })
        })
    }

    /// Computes the multi-label margin loss for scores `[samples, classes]` and several correct classes per sample: an
    /// i64 `[samples, classes]` that lists them first and ends with -1. It is the sum over correct and wrong classes of
    /// `max(0, 1 - (correct score - wrong score))`, divided by the number of classes, as in torch.
    ///
    /// # Errors
    /// [`ErrorKind::Shape`](crate::ErrorKind::Shape) when the shapes differ,
    /// [`ErrorKind::Value`](crate::ErrorKind::Value) for a class out of range,
    /// [`ErrorKind::DType`](crate::ErrorKind::DType) when scores are not floating or classes not i64.
    pub fn multilabel_margin_loss(&self, target: &Tensor, reduction: Reduction) -> Result<Tensor> {
        composed(call!(Op::MultilabelMarginLoss, &[self, target]; reduction), |inputs| {
            let [samples, classes] = scores(&inputs[0])?;
            one_shape(inputs)?;
            if inputs[1].dtype() != DType::I64 {
                return Err(Error::dtype(format!(
                    "classes are i64, got {}; `cast(DType::I64)` makes classes",
                    inputs[1].dtype()
                )));
            }
            // Counts per class and sample: a pair of a correct and a wrong class has the count of the former.
            let mut named = vec![0i64; samples * classes];
            for (sample, listed) in inputs[1].to_vec::<i64>()?.chunks(classes).enumerate() {
                for &class in listed.iter().take_while(|&&class| class != -1) {
                    match usize::try_from(class) {
                        Ok(at) if at < classes => named[sample * classes + at] += 1,
                        _ => {
                            let allowed = format!("-1 to {} are allowed", classes - 1);
                            return Err(Error::value(format!("the class {class} is out of range: {allowed}")));
                        }
                    }
                }
            }
            let named = Tensor::from_vec(named, &[samples, classes])?;
            Ok(move |x: &[Tensor]| {
                let rows = x[0].reshape(&[samples, classes])?;
                let right = named.cast(rows.dtype());
                let wrong = named.eq(0)?.cast(rows.dtype());
                // [samples, right, wrong]
                let behind = rows.unsqueeze(1)?.sub(&rows.unsqueeze(2)?)? + 1.0;
                let pairs = right.unsqueeze(2)?.mul(&wrong.unsqueeze(1)?)?;
                // The difference of two correct scores may be NaN, and does not count.
                let zero = Tensor::zeros(&[], rows.dtype());
                let behind = pairs.gt(&zero)?.select(&behind?, &zero)?;
                let losses = (behind.relu()?.mul(&pairs)?.sum(&[1, 2], false)? / classes as f64)?;
                reduced(if x[0].rank() == 1 { losses.squeeze(0)? } else { losses }, reduction)
            })
        })
    }

    /// Computes the mean over the last axis of the cross entropies of `sigmoid(self)` and the probabilities `target`,
    /// composed of ops that lists know. Shapes are equal; dtypes promote.
    ///
    /// # Errors
    /// [`ErrorKind::Shape`](crate::ErrorKind::Shape) when the shapes differ or are those of scalars,
    /// [`ErrorKind::DType`](crate::ErrorKind::DType) for an integer or boolean tensor.
    pub fn multilabel_soft_margin_loss(&self, target: &Tensor, reduction: Reduction) -> Result<Tensor> {
        one_shape(&[self.clone(), target.clone()]).map_err(|e| e.in_op("multilabel_soft_margin_loss"))?;
        let other = Tensor::ones(&[], target.dtype()).sub(target)?;
        let part = |target: &Tensor, log: Tensor| {
            // A target of 0 costs nothing, even if the logarithm is minus infinity.
            let zero = |x: &Tensor| Tensor::zeros(&[], x.dtype());
            let counts = log.is_finite()?.logical_or(&target.ne(&zero(target))?)?;
            target.mul(&counts.select(&log, &zero(&log))?)
        };
        let losses = part(target, self.log_sigmoid()?)?.add(&part(&other, self.neg()?.log_sigmoid()?)?)?.neg()?;
        let classes = self.shape().last().copied().unwrap_or(1);
        reduced((losses.sum(&[-1], false)? / classes as f64)?, reduction)
    }
}
