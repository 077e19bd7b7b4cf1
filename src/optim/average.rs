//! Running averages of weights.

use std::collections::HashMap;

use precast_tensor::logging::warn;

use crate::{
    Child, Param, Tensor,
    cell::{AsCell, Params, Towards},
    error::{Error, Result},
};

/// The exponential moving average of the weights under training, which often generalizes better than the last weights.
/// (Polyak and Juditsky 1992; as `torch.optim.swa_utils` with `get_ema_multi_avg_fn`.)
///
/// Update n, counted from 0, moves the average to `d * average + (1 - d) * weights`, where d is the smaller of the decay
/// and `(1 + n) / (10 + n)`: the first weights are soon forgotten, as in TensorFlow's `ExponentialMovingAverage` with
/// `num_updates`. [`constant`](Average::constant) turns this off. Averages are f32, f64 for f64 parameters, in whatever
/// dtype weights are stored. [`statistics`](Average::statistics) adds the running statistics of batch norms; other buffers
/// are not averaged.
///
/// ```
/// use precast::{optim::Average, prelude::*, storage::weights};
/// let net = Child::new(Dense::new(2, 1, &mut Rng::seed(1)));
/// let (mut optimizer, mut scale) = (Adam::new(net.params(), 0.1), LossScale::none());
/// let mut average = Average::new(net.params(), 0.999)?;
/// for _ in 0..3 {
///     let loss = net.call(&Tensor::ones(&[4, 2], DType::F32))?.square()?.mean_all()?;
///     if scale.step(&mut optimizer, loss)? == Outcome::Stepped {
///         average.update()?;
///     }
/// }
/// let file = std::env::temp_dir().join(format!("precast-doc-average-{}.safetensors", std::process::id()));
/// average.with(|| weights::save(&net, &file))?; // or an evaluation; then the weights are the last ones again
/// # std::fs::remove_file(file).unwrap();
/// # Ok::<(), precast::Error>(())
/// ```
#[doc(alias = "AveragedModel")]
#[doc(alias = "EMA")]
#[derive(Clone, Debug)]
pub struct Average {
    params: Vec<(String, Param)>,
    towards: Towards,
    is_constant: bool,
    updates: u64,
    values: Vec<Tensor>,
}

impl Average {
    /// Creates the average of some parameters, beginning with their values now.
    ///
    /// # Errors
    /// [`ErrorKind::Value`](crate::ErrorKind::Value) for a decay outside 0 to 1.
    pub fn new(params: Params, decay: f64) -> Result<Self> {
        let towards = Towards::rest("decay of an average", decay)?;
        if decay < 0.5 {
            warn(&format!(
                "an average with the decay {decay} forgets more than half of itself at each update; 0.99 to 0.9999 are usual, and \
                 a rate r is the decay 1 - r"
            ));
        }
        let values = params.iter().map(|(_, param)| wide(&param.full())).collect();
        Ok(Average { params: params.into_iter().collect(), towards, is_constant: false, updates: 0, values })
    }

    /// Averages the running statistics of the batch norms of a network as well, unless they are frozen. An average that
    /// is behind the weights has other means and variances than those, which its evaluation would else use.
    #[must_use]
    pub fn statistics<C: ?Sized + AsCell>(mut self, net: &Child<C>) -> Self {
        let is_one =
            |path: &str| ["running_mean", "running_var"].contains(&path.rsplit('.').next().unwrap_or_default());
        let moving = |(path, param): &(String, Param)| is_one(path) && param.is_buffer() && !param.is_frozen();
        for (path, param) in net.named_params().into_iter().filter(moving) {
            self.values.push(wide(&param.full()));
            self.params.push((path, param));
        }
        self
    }

    /// Uses the full decay from the first update on.
    #[must_use]
    pub fn constant(mut self) -> Self {
        self.is_constant = true;
        self
    }

    /// Returns the number of updates.
    pub fn updates(&self) -> u64 {
        self.updates
    }

    /// Moves the average towards the weights now. Call it after each step that updated them.
    ///
    /// # Errors
    /// None for parameters as they were made; [`ErrorKind::Shape`](crate::ErrorKind::Shape) otherwise.
    pub fn update(&mut self) -> Result<()> {
        let n = self.updates as f64;
        let towards = if self.is_constant { self.towards } else { self.towards.at_least(9.0 / (10.0 + n)) };
        for ((_, param), value) in self.params.iter().zip(&mut self.values) {
            *value = towards.of(value, &param.full())?;
        }
        self.updates += 1;
        Ok(())
    }

    /// Returns the average of each parameter, with its path.
    pub fn values(&self) -> impl Iterator<Item = (&str, &Tensor)> {
        self.params.iter().map(|(path, _)| path.as_str()).zip(&self.values)
    }

    /// Runs `f` while the parameters have their averages, rounded once where they are stored low; then they have their
    /// values again, with every bit. Before the first [`update`](Average::update) there is no average, and `f` runs with
    /// the weights as they are.
    ///
    /// # Errors
    /// Those of `f`; [`ErrorKind::Value`](crate::ErrorKind::Value) when an average is beyond the range of a low dtype.
    pub fn with<R>(&self, f: impl FnOnce() -> Result<R>) -> Result<R> {
        let _before = Before(self.params.iter().map(|(_, param)| (param.clone(), param.full())).collect());
        self.put()?;
        f()
    }

    /// Sets the parameters to their averages for good; before the first [`update`](Average::update), to what they are.
    ///
    /// # Errors
    /// As [`with`](Average::with).
    pub fn put(&self) -> Result<()> {
        if self.updates == 0 {
            return Ok(());
        }
        let put = |((path, param), value): (&(String, Param), &Tensor)| {
            let value = value.cast(param.full().dtype());
            param.set(&value).map_err(|error| error.context(format_args!("the average of `{path}`")))
        };
        self.params.iter().zip(&self.values).try_for_each(put)
    }

    /// Continues from the averages and the number of updates of a checkpoint.
    pub(crate) fn restored(&self, updates: u64, mut kept: HashMap<String, Tensor>) -> Result<Self> {
        let mut values = Vec::new();
        for ((path, _), value) in self.params.iter().zip(&self.values) {
            let met = kept.remove(path).filter(|met| (met.shape(), met.dtype()) == (value.shape(), value.dtype()));
            let words =
                || Error::weights(format!("the checkpoint has no average of `{path}`, or one of another shape"));
            values.push(met.ok_or_else(words)?);
        }
        if let Some(path) = kept.keys().min() {
            return Err(Error::weights(format!(
                "the checkpoint has an average of `{path}`, which is not trained here"
            )));
        }
        Ok(Average { values, updates, ..self.clone() })
    }
}

/// Values of parameters, put back on drop.
struct Before(Vec<(Param, Tensor)>);

impl Drop for Before {
    fn drop(&mut self) {
        for (param, value) in &self.0 {
            // A parameter accepts its own value.
            let _ = param.set(value);
        }
    }
}

/// Returns a value in the dtype of averages.
fn wide(value: &Tensor) -> Tensor {
    value.cast(value.dtype().wide())
}
