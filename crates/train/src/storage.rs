//! Parameter storage of a run.

use precast::{
    Child, DType, Level, Policy,
    error::{Error, Result},
    options::options,
    policy::Pattern,
    storage::{Decorate, Decorated, decorate},
};

/// Storage of a network's parameters during training. Low-precision storage is that of [`decorate`], so the kinds of
/// cells that the pack keeps in f32 stay f32.
///
/// ```
/// use precast::DType;
/// use precast_train::{LowStorage, RunFile, Storage};
/// let text = "
/// version: 1
/// model: lenet5
/// policy: o2-bf16
/// data: digits
/// storage: stochastic_rounding   # or {masters: {exclude: ['fc3.**']}}, kahan, low
/// ";
/// let run = RunFile::parse(text, "run.yaml")?;
/// assert_eq!(run.storage, Storage::StochasticRounding(LowStorage::default()));
/// # Ok::<(), precast::Error>(())
/// ```
#[options]
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub enum Storage {
    /// f32, as the network was built.
    #[default]
    Float32,
    /// Low precision, each with an f32 [master](Decorate::masters) that the optimizer updates.
    Masters(LowStorage),
    /// Low precision without masters: an update of less than half a unit in the last place is lost.
    Low(LowStorage),
    /// bf16 with [`Decorate::stochastic_rounding`], seeded by the run.
    StochasticRounding(LowStorage),
    /// bf16 with [`Decorate::kahan`].
    Kahan(LowStorage),
}

/// Parameters stored in low precision.
#[options]
#[derive(Clone, Debug, PartialEq)]
pub struct LowStorage {
    /// Storage dtype.
    #[option(default = None, shown = "that of the policy, unless its level is O0, which lowers nothing")]
    pub dtype: Option<DType>,
    /// Paths of cells or parameters left unchanged, such as `head.**`; see [`Decorate::exclude_path`].
    #[option(default)]
    pub exclude: Vec<String>,
}

impl Storage {
    /// Returns the parameters stored in low precision, if any.
    fn low(&self) -> Option<&LowStorage> {
        match self {
            Storage::Float32 => None,
            Storage::Masters(low) | Storage::Low(low) | Storage::StochasticRounding(low) | Storage::Kahan(low) => {
                Some(low)
            }
        }
    }

    /// Checks everything that does not need a network.
    ///
    /// # Errors
    /// As [`decorate`], for a dtype not available as low storage; [`ErrorKind::Policy`](precast::ErrorKind::Policy) for a
    /// malformed pattern.
    pub fn check(&self) -> Result<()> {
        let Some(LowStorage { dtype, exclude }) = self.low() else { return Ok(()) };
        if let Some(dtype) = dtype.filter(|dtype| !self.allowed().contains(dtype)) {
            let allowed = self.allowed().iter().map(|dtype| dtype.long_name()).collect::<Vec<_>>().join(", ");
            let words = format!("{} storage is {}; allowed: {allowed}", self.name(), dtype.long_name());
            return Err(Error::dtype(words));
        }
        exclude.iter().try_for_each(|path| path.parse::<Pattern>().map(drop).map_err(|error| error.about(path)))
    }

    /// Returns the dtype of low-precision storage under a policy; `None` if there is none.
    ///
    /// # Errors
    /// [`ErrorKind::DType`](precast::ErrorKind::DType) for a policy whose low dtype the storage does not support.
    pub(super) fn dtype(&self, policy: &Policy) -> Result<Option<DType>> {
        let Some(low) = self.low() else { return Ok(None) };
        let dtype = low.dtype.or((policy.level != Level::O0).then_some(policy.dtype));
        match dtype.filter(|dtype| !self.allowed().contains(dtype)) {
            None => Ok(dtype),
            Some(dtype) => Err(Error::dtype(format!(
                "`storage: {0}` is for bfloat16, and the low dtype of the policy is {1}; `{{{0}: {{dtype: bfloat16}}}}` is for every policy",
                self.name(),
                dtype.long_name()
            ))),
        }
    }

    /// Returns the dtypes allowed for low-precision storage.
    fn allowed(&self) -> &'static [DType] {
        match self {
            Storage::StochasticRounding(_) | Storage::Kahan(_) => &[DType::Bf16],
            _ => &[DType::F16, DType::Bf16],
        }
    }

    /// Applies the storage to the parameters of a network. A policy that lowers nothing gives no dtype.
    ///
    /// # Errors
    /// As [`Storage::dtype`] and [`decorate`].
    pub(super) fn put(&self, net: &Child, policy: &Policy, seed: u64) -> Result<Option<Decorated>> {
        let (Some(low), Some(dtype)) = (self.low(), self.dtype(policy)?) else { return Ok(None) };
        let how = Decorate::new(dtype);
        let how = match self {
            Storage::Float32 | Storage::Masters(_) => how,
            Storage::Low(_) => how.masters(false),
            Storage::StochasticRounding(_) => how.stochastic_rounding(seed),
            Storage::Kahan(_) => how.kahan(),
        };
        let how = low.exclude.iter().try_fold(how, |how, path| how.exclude_path(path));
        how.and_then(|how| decorate(net, how))
            .map(Some)
            .map_err(|error| error.context(format_args!("`storage: {}`", self.name())))
    }
}
