//! Classification losses: cross entropy and negative log-likelihood.

use half::{bf16, f16};
use precast_base::Element;
use precast_kernels::{
    float::{Float, Real},
    memory::uninit_vec,
    reduce,
    reduce::cross_entropy::{Targets, Wanted},
};

use crate::{
    DType, Op, Tensor,
    catalogue::Attributes,
    error::{Error, Result},
    ops::{
        Call, Reduction, by_float, call, dispatch, elements,
        loss::heads::check_head,
        reduce::axes::{Lanes, reduced},
    },
    tensor::{Array, Backward, Forward, Stored},
};

/// Options of [`Tensor::cross_entropy_with`]. The default is the mean, without smoothing and weights.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct CrossEntropy {
    /// Reduction of the losses of the samples. The mean is over the samples that are not ignored, weighted by the
    /// weights of their classes; with soft targets, over all samples.
    pub reduction: Reduction,
    /// Class index whose samples are ignored. Default: -100, as in torch.
    pub ignore_index: Option<i64>,
    /// Fraction of each target, in [0, 1], that is spread evenly over all classes (Szegedy et al. 2015).
    pub label_smoothing: f64,
    /// One factor per class, treated as a constant.
    pub weight: Option<Tensor>,
}

precast_base::setters! {
    CrossEntropy: reduction reduction: Reduction, label_smoothing label_smoothing: f64;
    optional ignore_index ignore_index: i64, weight weight: Tensor
}

impl CrossEntropy {
    /// Class index that is ignored where none is named, as in torch.
    pub const IGNORED: i64 = -100;

    /// Returns the class index whose samples are ignored.
    pub fn ignored(&self) -> i64 {
        self.ignore_index.unwrap_or(Self::IGNORED)
    }

    fn attributes(&self) -> Attributes {
        let mut attributes = Attributes::default();
        attributes.set("reduction", &self.reduction);
        attributes.set("label_smoothing", &self.label_smoothing);
        if let Some(index) = &self.ignore_index {
            attributes.set("ignore_index", index);
        }
        if let Some(weight) = &self.weight {
            attributes.set("weight", &weight.to_f64());
            attributes.set("weight_dtype", &weight.dtype());
        }
        attributes
    }

    /// Reads the options from attributes.
    ///
    /// # Errors
    /// [`ErrorKind::Value`](crate::ErrorKind::Value) when an attribute has another type.
    pub fn of_attributes(attributes: &Attributes) -> Result<CrossEntropy> {
        let mut options = CrossEntropy::default();
        if attributes.has("reduction") {
            options.reduction = attributes.get("reduction")?;
        }
        if attributes.has("label_smoothing") {
            options.label_smoothing = attributes.get("label_smoothing")?;
        }
        if attributes.has("ignore_index") {
            options.ignore_index = Some(attributes.get("ignore_index")?);
        }
        if attributes.has("weight") {
            let (weight, dtype): (Vec<f64>, DType) = (attributes.get("weight")?, attributes.get("weight_dtype")?);
            options.weight = Some(Tensor::from_f64(&weight, &[weight.len()], dtype)?);
        }
        Ok(options)
    }

    fn check(&self, classes: usize) -> Result<()> {
        if !(0.0..=1.0).contains(&self.label_smoothing) {
            return Err(Error::value(format!("label smoothing {}; allowed: 0 to 1", self.label_smoothing)));
        }
        match &self.weight {
            Some(w) if w.shape() != [classes] => {
                Err(Error::shape(format!("class weights of shape {:?}; allowed: [{classes}]", w.shape())))
            }
            Some(w) if !w.dtype().is_float() => {
                Err(Error::dtype(format!("class weights of dtype {}; allowed: floating", w.dtype())))
            }
            _ => Ok(()),
        }
    }

    fn targets<T: Stored + Float>(&self, target: &Tensor, lanes: &Lanes) -> Result<Targets<T::Wide>>
    where
        T::Wide: Stored,
    {
        let wide = |x: &Tensor| Tensor::from_array(x.array().cast(T::Wide::DTYPE));
        let wanted = match target.dtype() {
            DType::I64 => Wanted::Classes(classes(target, lanes.n, self.ignored())?),
            _ => Wanted::Probabilities(lanes.pack::<T::Wide>(&wide(target)).to_vec()),
        };
        let weight = match &self.weight {
            Some(weight) => elements::<T::Wide>(&wide(weight)).to_vec(),
            None => vec![T::Wide::of(1.0); lanes.n],
        };
        Ok(Targets { wanted, weight, smoothing: T::Wide::of(self.label_smoothing) })
    }

    /// Computes the loss in `T` from logits in `X`.
    fn forward<X: Stored + Float<Wide = T::Wide>, T: Stored + Float>(
        &self,
        x: &Tensor,
        target: &Tensor,
        lanes: &Lanes,
        out: &[usize],
    ) -> Result<Array>
    where
        T::Wide: Stored,
    {
        let targets = self.targets::<T>(target, lanes)?;
        let x = lanes.pack::<X>(x);
        let [mut wide, mut space] = [(); 2].map(|()| vec![T::Wide::default(); lanes.n]);
        let loss = |i: usize| targets.loss(i, X::widened(&x[lanes.lane(i)], &mut wide), &mut space);
        let losses: Vec<T::Wide> = (0..lanes.count).map(loss).collect();
        let losses = match self.reduction {
            Reduction::None => losses,
            Reduction::Sum => vec![reduce::sum(&losses)],
            Reduction::Mean => vec![reduce::sum(&losses) / targets.mean_divisor(lanes.count)],
        };
        Array::from_vec(T::narrow_vec(losses.into()), out)
    }

    /// Computes the gradients in `T` from logits `x` in `X`; that of the logits is rounded to `D`.
    fn backward<X, T, D>(&self, back: &Backward<'_>, x: &Tensor, lanes: &Lanes) -> Result<Vec<Option<Tensor>>>
    where
        X: Stored + Float<Wide = T::Wide>,
        T: Stored + Float,
        D: Stored + Float<Wide = T::Wide>,
        T::Wide: Stored,
    {
        let target = &back.saved[1];
        let targets = self.targets::<T>(target, lanes)?;
        let divisor = match self.reduction {
            Reduction::Mean => targets.mean_divisor(lanes.count),
            _ => T::Wide::of(1.0),
        };
        let (x, grad) = (lanes.pack::<X>(x), elements::<T>(back.grad));
        // Sample by sample, so that nothing as large as all logits is wide.
        let [mut wide, mut space] = [(); 2].map(|()| vec![T::Wide::default(); lanes.n]);
        let g = |i: usize| grad[if self.reduction == Reduction::None { i } else { 0 }].widen() / divisor;
        let mut grads = vec![None, None];
        if back.needs[0] {
            let mut dx = uninit_vec::<D>(x.len());
            for i in 0..lanes.count {
                targets.backward(i, X::widened(&x[lanes.lane(i)], &mut wide), g(i), &mut space);
                D::narrow_into(&space, &mut dx[lanes.lane(i)]);
            }
            grads[0] = Some(Tensor::from_array(lanes.unpack(dx)?).cast(T::DTYPE));
        }
        if back.needs[1] {
            let mut dt = uninit_vec(x.len());
            for i in 0..lanes.count {
                targets.backward_targets(X::widened(&x[lanes.lane(i)], &mut wide), g(i), &mut dt[lanes.lane(i)]);
            }
            grads[1] = Some(Tensor::from_array(lanes.unpack(dt)?.cast(target.dtype())));
        }
        Ok(grads)
    }
}

/// Returns the axis of the classes: the only one of a single sample, else the one after the batch.
fn class_axis(x: &Tensor) -> Result<usize> {
    match x.rank() {
        0 => Err(Error::shape("a scalar has no classes; allowed: [classes] or [batch, classes, ...]")),
        1 => Ok(0),
        _ => Ok(1),
    }
}

/// Returns the class of each sample, or `None` for an ignored one.
fn classes(target: &Tensor, classes: usize, ignored: i64) -> Result<Vec<Option<usize>>> {
    let class = |&index: &i64| match usize::try_from(index) {
        _ if index == ignored => Ok(None),
        Ok(class) if class < classes => Ok(Some(class)),
        _ => Err(Error::value(format!(
            "class index {index} with {classes} classes; allowed: 0 to {}",
            classes as i64 - 1
        ))),
    };
    elements::<i64>(target).iter().map(class).collect()
}

impl Tensor {
    /// Computes the mean cross entropy of `softmax(self)` and the targets; see
    /// [`cross_entropy_with`](Tensor::cross_entropy_with).
    ///
    /// # Errors
    /// As for [`cross_entropy_with`](Tensor::cross_entropy_with).
    ///
    /// ```
    /// # use precast_tensor as precast;
    /// use precast::Tensor;
    /// let logits = Tensor::from_vec(vec![0f64, 0., 0., 0.], &[1, 4])?;
    /// let loss = logits.cross_entropy(&Tensor::from_vec(vec![2i64], &[1])?)?;
    /// assert!((loss.item()? - 4f64.ln()).abs() < 1e-15);
    /// # Ok::<(), precast::Error>(())
    /// ```
    pub fn cross_entropy(&self, target: &Tensor) -> Result<Tensor> {
        self.cross_entropy_with(target, &CrossEntropy::default())
    }

    /// Computes the cross entropy of `softmax(self)` and the targets, by log-sum-exp in f32 with one rounding.
    ///
    /// This tensor holds logits, `[n, classes, ...]` or `[classes]`. `target` holds class indices (i64, in the shape of
    /// the logits without the class axis) or probabilities (floating, in the shape of the logits; they receive a
    /// gradient too).
    ///
    /// # Errors
    /// [`ErrorKind::Shape`](crate::ErrorKind::Shape) when the shapes do not fit,
    /// [`ErrorKind::DType`](crate::ErrorKind::DType) when the dtypes do not fit,
    /// [`ErrorKind::Value`](crate::ErrorKind::Value) for a class index out of range or a smoothing outside [0, 1].
    pub fn cross_entropy_with(&self, target: &Tensor, options: &CrossEntropy) -> Result<Tensor> {
        check_head(Op::CrossEntropy, self);
        let attributes = || options.attributes();
        let call = Call { op: Op::CrossEntropy, inputs: &[self, target], attributes: &attributes, again: None };
        dispatch(call, |inputs| {
            let [x, target] = inputs else { unreachable!("two inputs") };
            let options = options.clone();
            let axis = class_axis(x)?;
            options.check(x.shape()[axis])?;
            let (lanes, samples) = (Lanes::new(x.shape(), &[axis]), reduced(x.shape(), &[axis], false));
            let wanted = match target.dtype() {
                DType::Bool => {
                    return Err(Error::dtype("targets of dtype bool; allowed: i64 indices, or probabilities"));
                }
                DType::I64 => &samples[..],
                _ => x.shape(),
            };
            if target.dtype().is_float() && target.shape() == samples {
                return Err(Error::dtype(format!(
                    "targets of dtype {} and shape {samples:?}; allowed: classes as i64 of shape {samples:?}, or probabilities of \
                     shape {:?}",
                    target.dtype(),
                    x.shape()
                )));
            }
            fits(x, target, wanted)?;
            let out = if options.reduction == Reduction::None { &samples[..] } else { &[] };
            // An unread widening is read in 16 bits.
            let least = x.least();
            let value = match (least.dtype(), x.dtype()) {
                (DType::F16, DType::F32) => options.forward::<f16, f32>(least, target, &lanes, out),
                (DType::Bf16, DType::F32) => options.forward::<bf16, f32>(least, target, &lanes, out),
                _ => by_float!(x, T => options.forward::<T, T>(x, target, &lanes, out)),
            };
            Ok(Forward::new(value?, vec![x.clone(), target.clone()], move |back| {
                let least = back.saved[0].least();
                match (least.dtype(), back.grad.dtype()) {
                    (DType::F16, DType::F32) if back.narrows => options.backward::<f16, f32, f16>(back, least, &lanes),
                    (DType::Bf16, DType::F32) if back.narrows => {
                        options.backward::<bf16, f32, bf16>(back, least, &lanes)
                    }
                    (DType::F16, DType::F32) => options.backward::<f16, f32, f32>(back, least, &lanes),
                    (DType::Bf16, DType::F32) => options.backward::<bf16, f32, f32>(back, least, &lanes),
                    _ => by_float!(back.grad, T => options.backward::<T, T, T>(back, &back.saved[0], &lanes)),
                }
            }))
        })
    }

    /// Computes the negative log-likelihood of each sample's class. This tensor holds log-probabilities,
    /// `[n, classes, ...]` or `[classes]`, and `target` class indices (i64). Samples of class -100 are ignored.
    ///
    /// # Errors
    /// As for [`cross_entropy_with`](Tensor::cross_entropy_with).
    pub fn nll_loss(&self, target: &Tensor, reduction: Reduction) -> Result<Tensor> {
        check_head(Op::NllLoss, self);
        dispatch(call!(Op::NllLoss, &[self, target]; reduction), move |inputs| {
            let [x, target] = inputs else { unreachable!("two inputs") };
            let axis = class_axis(x)?;
            let (lanes, samples) = (Lanes::new(x.shape(), &[axis]), reduced(x.shape(), &[axis], false));
            if target.dtype() != DType::I64 {
                return Err(Error::dtype(format!(
                    "targets of dtype {}; allowed: classes as i64 of shape {samples:?}",
                    target.dtype()
                )));
            }
            fits(x, target, &samples)?;
            let places: Vec<Option<usize>> = classes(target, lanes.n, CrossEntropy::IGNORED)?
                .into_iter()
                .enumerate()
                .map(|(i, class)| class.map(|class| i * lanes.n + class))
                .collect();
            let divisor = reduction.divisor(places.iter().flatten().count());
            let value = by_float!(x, T => {
                let x = lanes.pack::<T>(x);
                let zero = <T as Float>::Wide::of(0.0);
                let losses: Vec<_> = places.iter().map(|place| place.map_or(zero, |place| -x[place].widen())).collect();
                match reduction {
                    Reduction::None => Array::from_vec(T::narrow_vec(losses.into()), &samples),
                    _ => Array::from_vec(vec![T::narrow(reduce::sum(&losses) / <T as Float>::Wide::of(divisor))], &[]),
                }
            })?;
            Ok(Forward::new(value, vec![], move |back| {
                let grad = by_float!(back.grad, T => {
                let grad = elements::<T>(back.grad);
                    let mut dx = vec![T::default(); lanes.count * lanes.n];
                    for (i, place) in places.iter().enumerate() {
                        let Some(place) = *place else { continue };
                        let g = if reduction == Reduction::None { grad[i] } else { grad[0] };
                        dx[place] = T::narrow(-g.widen() / <T as Float>::Wide::of(divisor));
                    }
                    lanes.unpack(dx)
                })?;
                Ok(vec![Some(Tensor::from_array(grad)), None])
            }))
        })
    }
}

fn fits(x: &Tensor, target: &Tensor, wanted: &[usize]) -> Result<()> {
    if target.shape() == wanted {
        return Ok(());
    }
    // `[batch, length, classes]`, as a layer returns it for each place of a sequence.
    let are_last = x.rank() > 2 && target.shape() == &x.shape()[..x.rank() - 1];
    let cure = if are_last { ", as the classes are axis 1; `move_axis(-1, 1)` moves the last axis there" } else { "" };
    Err(Error::shape(format!(
        "inputs of shape {:?} and {} targets of shape {:?}; allowed: {wanted:?}{cure}",
        x.shape(),
        target.dtype(),
        target.shape()
    )))
}
