//! Writing the weights of a network as its optimizer has them, as its cells compute with them, or both.

use std::{
    collections::{BTreeMap, HashMap},
    fmt,
    path::Path,
    str::FromStr,
};

use precast_base::names::by_name;
use precast_policy::host::Stored;
use precast_tensor::{Beyond, internals::TensorInternals as _};

use crate::{
    DType, Tensor,
    cell::{AsCell, Child, no_such_path},
    error::{Error, Result},
    plan::{Decision, Plan},
    printable::printable,
    storage::{
        stored::is_weight,
        weights::{File, Named, by_param},
    },
};

/// The precision of the weights written by [`Plan::save_weights`].
///
/// ```
/// use precast::{storage::{weights, SaveMode}, prelude::*};
/// # let file = std::env::temp_dir().join(format!("precast-doc-save-mode-{}.safetensors", std::process::id()));
/// let rng = &mut Rng::seed(1);
/// let net = Child::new(sequential![Dense::new(2, 3, rng), LayerNorm::new(&[3])]);
/// let plan = Policy::named("o2-bf16")?.plan(&net)?;
/// plan.save_weights(&net, &file, SaveMode::Compute)?;
/// let written = weights::read(&file)?;
/// assert_eq!((written["0.weight"].dtype(), written["1.weight"].dtype()), (DType::Bf16, DType::F32));
///
/// plan.save_weights(&net, &file, SaveMode::Both)?;
/// let names: Vec<String> = weights::read(&file)?.into_keys().collect();
/// assert_eq!(names, ["0.bias", "0.weight", "1.bias", "1.weight", "@compute.0.bias", "@compute.0.weight"]);
/// # std::fs::remove_file(file).unwrap();
/// # Ok::<(), precast::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SaveMode {
    /// Full precision: the [master](crate::Param::master) of each weight if it has one, else the value.
    Master,
    /// Weights of cells that run low in the dtype in which they run, rounded once; all others as
    /// [`Master`](SaveMode::Master). The others include buffers that are not weights, such as running statistics and
    /// tables.
    Compute,
    /// As [`Master`](SaveMode::Master), and for each weight that [`Compute`](SaveMode::Compute) rounds a second tensor
    /// with the rounded numbers. Its name is the path prefixed with `@compute.`, so
    /// [`LoadOptions::ignore("@compute.**")`](crate::storage::weights::LoadOptions::ignore) reads the masters.
    Both,
}

impl SaveMode {
    /// All modes.
    pub const ALL: [SaveMode; 3] = [SaveMode::Master, SaveMode::Compute, SaveMode::Both];

    /// Returns the name.
    pub fn name(self) -> &'static str {
        match self {
            SaveMode::Master => "master",
            SaveMode::Compute => "compute",
            SaveMode::Both => "both",
        }
    }
}

impl fmt::Display for SaveMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for SaveMode {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        by_name(text, SaveMode::ALL, SaveMode::name, "unknown weights").map_err(Error::value)
    }
}

impl<C: ?Sized + AsCell> Stored for Child<C> {
    type Options = SaveMode;
    type Written = ();

    fn store(&self, plan: &Plan, to: &Path, mode: SaveMode, _progress: &mut dyn FnMut(u64)) -> Result<()> {
        let runs: HashMap<&str, &Decision> = plan.decisions.iter().map(|d| (d.path.as_str(), d)).collect();
        let (mut tied, mut tensors) = (BTreeMap::new(), Vec::new());
        for Named { paths, param } in by_param(self) {
            // A tied parameter keeps all digits if one of its cells needs them.
            let mut low = None;
            for (i, path) in paths.iter().enumerate() {
                let (cell, own) = path.rsplit_once('.').unwrap_or(("", path));
                let decision = *runs.get(cell).ok_or_else(|| no_such_path(cell, runs.keys().copied()))?;
                let is_weight = !param.is_buffer() || is_weight(cell, &decision.kind, own, param.shape().len());
                let dtype = decision.run.dtype().filter(|dtype| dtype.is_low() && is_weight);
                low = if i == 0 { dtype } else { low.filter(|low| dtype == Some(*low)) };
            }
            let full = param.full();
            let rounded = match low.filter(|low| full.dtype().is_castable() && full.dtype() != *low) {
                Some(low) if mode != SaveMode::Master => Some(rounded(&paths[0], &full, low)?),
                _ => None,
            };
            let mut paths = paths.into_iter();
            let Some(first) = paths.next() else { continue };
            tied.extend(paths.map(|path| (path, first.clone())));
            match (mode, rounded) {
                (SaveMode::Compute, Some(rounded)) => tensors.push((first, rounded)),
                (_, rounded) => {
                    tensors.extend(rounded.map(|rounded| (format!("@compute.{first}"), rounded)));
                    tensors.push((first, full));
                }
            }
        }
        File { tied, words: None }.write(to, &tensors)
    }
}

/// Rounds a parameter to a low dtype, unless that makes a number infinite.
fn rounded(path: &str, full: &Tensor, low: DType) -> Result<Tensor> {
    match Beyond::check(full.array(), low) {
        Ok(()) => Ok(full.cast(low)),
        Err(Beyond { largest, .. }) => {
            let words = format!("`{}` has {largest:e}, which {} cannot hold", printable(path), low.long_name());
            Err(Error::value(words))
        }
    }
}
