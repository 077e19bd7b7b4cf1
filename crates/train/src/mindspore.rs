//! Single-call construction of a network with its optimizer, loss and level, in the form of MindSpore.

use precast::{
    Child, DType, Level, Optimizer, Plan, Policy,
    cell::Params,
    error::{Error, Result},
    policy::LossScaleSpec,
};

use crate::{Fit, FitOptions, Loss};

/// Options of [`build_train_network`] besides the level: the further arguments of MindSpore's function of that name.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct BuildOptions {
    /// The loss. Default: the [usual](Loss::usual) one of the targets.
    pub loss: Option<Loss>,
    /// The low dtype. Default: f16.
    pub dtype: DType,
    /// At O2 and O3: whether batch norms, and the other kinds on the full list, stay f32. Default: by level, true at
    /// O2 and false at O3.
    pub keep_batchnorm_fp32: Option<bool>,
    /// f32: nothing is lowered at O2 and O3. f16 or bf16: everything is lowered to that dtype, at any level, except the
    /// cells kept by `keep_batchnorm_fp32`. Default: by level and dtype.
    pub cast_model_type: Option<DType>,
    /// The loss scale. Default: the [usual](LossScaleSpec::usual) one of the level and the dtype.
    pub loss_scale_manager: Option<LossScaleSpec>,
    /// Training options: epochs, batch, schedule, seed. The optimizer with its learning rate, the loss and the loss
    /// scale in it are ignored in favour of those above.
    pub fit: FitOptions,
}

impl Default for BuildOptions {
    fn default() -> Self {
        BuildOptions {
            loss: None,
            dtype: DType::F16,
            keep_batchnorm_fp32: None,
            cast_model_type: None,
            loss_scale_manager: None,
            fit: FitOptions::default(),
        }
    }
}

precast_base::setters! {
    BuildOptions: dtype dtype: DType, fit fit: FitOptions;
    optional loss loss: Loss, keep_batchnorm_fp32 keep_batchnorm_fp32: bool, cast_model_type cast_model_type: DType,
        loss_scale_manager loss_scale_manager: LossScaleSpec
}

impl BuildOptions {
    /// Resolves the arguments to a level and a dtype.
    fn resolved(&self, level: Level) -> Result<(Level, DType)> {
        let whole = match (self.cast_model_type, level) {
            (Some(DType::F32), Level::O2 | Level::O3) => return Ok((Level::O0, self.dtype)),
            (Some(dtype), _) if dtype.is_low() => Some(dtype),
            (Some(DType::F32) | None, _) => matches!(level, Level::O2 | Level::O3).then_some(self.dtype),
            (Some(dtype), _) => {
                let words = format!("`cast_model_type` is {}; allowed: float32, float16, bfloat16", dtype.long_name());
                return Err(Error::dtype(words));
            }
        };
        if whole.is_none() && self.keep_batchnorm_fp32 == Some(true) {
            let words = format!("`keep_batchnorm_fp32` says nothing at level {level}; allowed: at O2 and O3");
            return Err(Error::value(words));
        }
        match whole {
            None => Ok((level, self.dtype)),
            Some(dtype) if self.keep_batchnorm_fp32.unwrap_or(level == Level::O2) => Ok((Level::O2, dtype)),
            Some(dtype) => Ok((Level::O3, dtype)),
        }
    }
}

/// A network ready for training, made by [`build_train_network`].
#[derive(Debug)]
#[non_exhaustive]
pub struct TrainNetwork {
    /// The network, wrapped by the plan.
    pub net: Child,
    /// The plan that was applied.
    pub plan: Plan,
    /// The training run.
    pub fit: Fit,
}

/// Wraps a network by a level and prepares its training. The optimizer is made from the parameters of the wrapped
/// network.
///
/// ```
/// use precast::prelude::*;
/// use precast_train::{Evaluation, FitOptions, data, mindspore::{BuildOptions, build_train_network}};
/// # fn main() -> Result<()> {
/// let rng = &mut Rng::seed(1);
/// let net = sequential![Dense::new(64, 32, rng), BatchNorm1d::new(32), ReLU, Dense::new(32, 10, rng)];
/// let options = BuildOptions::default().fit(FitOptions::default().epochs(2));
/// let mut model = build_train_network(net, |params| Adam::new(params, 0.01), "O2", &options)?;
/// println!("{}", model.plan);
///
/// let data = data::digits()?.reshape(&[64])?.split(1500, 0)?;
/// while let Some(_event) = model.fit.advance(&mut model.net, &data)? {
///     // The place for callbacks.
/// }
/// assert_eq!(model.fit.history().epochs.len(), 2);
/// println!("{}", Evaluation::of(&model.net, &data.test, 64)?.score());
/// # Ok(())
/// # }
/// ```
///
/// # Errors
/// [`ErrorKind::Level`](precast::ErrorKind::Level) for an unknown level, [`ErrorKind::DType`](precast::ErrorKind::DType)
/// for a dtype other than those named above, [`ErrorKind::Value`](precast::ErrorKind::Value) for an argument without
/// effect at the level, and the errors of planning and [`Fit::new`].
pub fn build_train_network<O, L>(
    net: impl Into<Child>,
    optimizer: impl FnOnce(Params) -> O,
    level: L,
    options: &BuildOptions,
) -> Result<TrainNetwork>
where
    O: Optimizer + 'static,
    L: TryInto<Level>,
    Error: From<L::Error>,
{
    let (level, dtype) = options.resolved(level.try_into()?)?;
    let policy = wrapping(level, dtype);
    wrapped(net.into(), |params| Box::new(optimizer(params)), policy, options)
}

/// Returns the policy of a level. Not generic over the level, since its error type would be unknown.
fn wrapping(level: Level, dtype: DType) -> Result<Policy> {
    Policy::new(level, dtype)
}

fn wrapped(
    mut net: Child,
    optimizer: impl FnOnce(Params) -> Box<dyn Optimizer>,
    policy: Result<Policy>,
    options: &BuildOptions,
) -> Result<TrainNetwork> {
    let mut policy = policy?;
    if let Some(loss_scale) = &options.loss_scale_manager {
        policy.loss_scale = loss_scale.clone();
    }
    let plan = policy.plan(&net)?;
    let _ = plan.apply(&mut net)?;
    let optimizer = optimizer(net.params());
    let fit = FitOptions {
        lr: optimizer.lr(),
        loss: options.loss.clone(),
        loss_scale: policy.loss_scale.clone(),
        ..options.fit.clone()
    };
    Ok(TrainNetwork { fit: Fit::with_optimizer(optimizer, &fit)?, net, plan })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// By the table of defaults in MindSpore's `build_train_network`, and by what its branches do with the arguments.
    #[test]
    fn the_arguments_come_to_a_level() {
        let of = |level, keep, cast| {
            let options = BuildOptions { keep_batchnorm_fp32: keep, cast_model_type: cast, ..BuildOptions::default() };
            options.resolved(level).ok()
        };
        let (f16, bf16) = (DType::F16, DType::Bf16);
        for (level, keep, cast, expected) in [
            (Level::O0, None, None, Some((Level::O0, f16))),
            (Level::O1, None, None, Some((Level::O1, f16))),
            (Level::Auto, None, None, Some((Level::Auto, f16))),
            (Level::O2, None, None, Some((Level::O2, f16))),
            (Level::O2, Some(true), None, Some((Level::O2, f16))),
            (Level::O2, Some(false), None, Some((Level::O3, f16))),
            (Level::O3, None, None, Some((Level::O3, f16))),
            (Level::O3, Some(true), None, Some((Level::O2, f16))),
            (Level::O3, None, Some(DType::F32), Some((Level::O0, f16))),
            (Level::O2, None, Some(DType::F32), Some((Level::O0, f16))),
            (Level::O0, None, Some(f16), Some((Level::O3, f16))),
            (Level::O0, Some(true), Some(bf16), Some((Level::O2, bf16))),
            (Level::O2, None, Some(bf16), Some((Level::O2, bf16))),
            (Level::O1, Some(true), None, None),
            (Level::Auto, None, Some(f16), Some((Level::O3, f16))),
            (Level::O1, Some(true), Some(f16), Some((Level::O2, f16))),
            (Level::O1, None, Some(DType::F32), Some((Level::O1, f16))),
            (Level::O0, Some(false), Some(DType::F32), Some((Level::O0, f16))),
            (Level::O2, None, Some(DType::F64), None),
        ] {
            assert_eq!(of(level, keep, cast), expected, "{level} {keep:?} {cast:?}");
        }
    }
}
