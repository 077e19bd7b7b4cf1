//! Checkpoints: the complete state of a training run in one file, resumable bit for bit.

mod counters;

use precast_tensor::internals::ParamInternals as _;
use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
};

use counters::{counters, operands, set_counters, set_operands};
use serde::{Deserialize, Serialize};

use crate::{
    Child, DType, LossScale, Optimizer, Param, Policy, Tensor,
    cell::AsCell,
    error::{Error, Result},
    io::json,
    optim::{Average, OptimizerState},
    policy::LossScaleSpec,
    printable::printable,
    scale::ScaleState,
    storage::weights::{self, File, Named},
};

/// The state of a training run: parameters, buffers and masters of a network, counters of its cells (the calls of
/// dropout), optimizers, and the loss scale. A run resumed from it is bitwise identical to one that was not stopped.
///
/// The file is a safetensors file with a checksum. Parameters are stored under their paths, those with an f32 master as
/// the master, so [`weights::load_with`] reads them for another network or in another dtype:
/// `LoadOptions::new().ignore("@optimizer.**").cast(true)`, with `.ignore("@average.**")` where an average is stored.
///
/// ```
/// use precast::prelude::*;
/// let file = std::env::temp_dir().join(format!("precast-doc-checkpoint-{}.safetensors", std::process::id()));
/// let mut net = Child::new(Dense::new(2, 1, &mut Rng::seed(1)));
/// let (mut optimizer, mut scale) = (Adam::new(net.params(), 0.1), LossScale::dynamic());
/// # let loss = net.call(&Tensor::ones(&[1, 2], DType::F32))?.sum_all()?;
/// # assert_eq!(scale.step(&mut optimizer, &loss)?, Outcome::Stepped);
/// Checkpoint::of(&net, &[&optimizer], &scale).counting("epoch", 3).save(&file)?;
///
/// let checkpoint = Checkpoint::load(&file)?;
/// checkpoint.restore(&mut net, &mut [&mut optimizer], &mut scale)?; // all of it, or an error and nothing
/// assert_eq!(checkpoint.count("epoch"), Some(3));
/// # std::fs::remove_file(file).unwrap();
/// # Ok::<(), precast::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Checkpoint {
    head: Head,
    /// Parameters by their first paths, and the tensors of optimizers.
    tensors: BTreeMap<String, Tensor>,
}

/// Version of the head.
const VERSION: u32 = 1;
/// Metadata entry that holds the head.
const HEAD: &str = "precast_checkpoint";

/// Everything but the tensors.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Head {
    version: u32,
    params: BTreeMap<String, Storage>,
    /// Counters of each cell, by path.
    counters: BTreeMap<String, Vec<u64>>,
    /// State of quantized operands, by cell.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    operands: BTreeMap<String, Vec<u64>>,
    optimizers: Vec<Steps>,
    /// Number of updates of the average of weights, if there is one, and the paths of its parameters.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    average: Option<(u64, Vec<String>)>,
    scale: ScaleState,
    /// Kind of the loss scale. Absent from older files.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    scale_kind: Option<ScaleKind>,
    /// Counters of the training loop.
    counts: BTreeMap<String, u64>,
    policy: Option<String>,
}

/// Kind of a loss scale.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum ScaleKind {
    None,
    Fixed,
    Dynamic,
}

impl ScaleKind {
    fn of(scale: &LossScale) -> Self {
        match scale.spec() {
            LossScaleSpec::None => ScaleKind::None,
            LossScaleSpec::Fixed { .. } => ScaleKind::Fixed,
            _ => ScaleKind::Dynamic,
        }
    }
}

/// Storage of a parameter in the network.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Storage {
    dtype: DType,
    has_master: bool,
    /// Other paths of a tied parameter.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    tied: Vec<String>,
}

impl Storage {
    fn of(param: &Param, tied: Vec<String>) -> Self {
        Storage { dtype: param.dtype(), has_master: param.master().is_some(), tied }
    }

    fn words(&self) -> String {
        format!("{}{}", self.dtype.long_name(), if self.has_master { " with a float32 master" } else { "" })
    }
}

/// State of an optimizer, with the names of its tensors.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Steps {
    optimizer: String,
    steps: BTreeMap<String, u64>,
    tensors: Vec<String>,
}

/// Returns the name in the file of the average of a parameter.
fn of_average(path: &str) -> String {
    format!("@average.{path}")
}

/// Returns the name in the file of a tensor of the i-th optimizer. No path of a network begins with `@`, unless a key
/// of a map does.
fn of_optimizer(i: usize, name: &str) -> String {
    format!("@optimizer.{i}.{name}")
}

impl Checkpoint {
    /// Captures the current state of a run, with the optimizers in the order later given to
    /// [`restore`](Checkpoint::restore).
    pub fn of<C: ?Sized + AsCell>(net: &Child<C>, optimizers: &[&dyn Optimizer], scale: &LossScale) -> Self {
        let states = optimizers.iter().map(|optimizer| optimizer.state()).collect();
        Checkpoint::of_states(states, scale).with_net(net)
    }

    /// Captures states of optimizers and the loss scale, without a network.
    pub fn of_states(states: Vec<OptimizerState>, scale: &LossScale) -> Self {
        let (mut optimizers, mut tensors) = (Vec::new(), BTreeMap::new());
        for (i, OptimizerState { optimizer, steps, tensors: kept }) in states.into_iter().enumerate() {
            optimizers.push(Steps { optimizer, steps, tensors: kept.iter().map(|(name, _)| name.clone()).collect() });
            tensors.extend(kept.into_iter().map(|(name, tensor)| (of_optimizer(i, &name), tensor)));
        }
        let head = Head {
            version: VERSION,
            params: BTreeMap::new(),
            counters: BTreeMap::new(),
            operands: BTreeMap::new(),
            optimizers,
            average: None,
            scale: scale.state(),
            scale_kind: Some(ScaleKind::of(scale)),
            counts: BTreeMap::new(),
            policy: None,
        };
        Checkpoint { head, tensors }
    }

    /// Adds the parameters and counters of a network.
    pub fn with_net<C: ?Sized + AsCell>(mut self, net: &Child<C>) -> Self {
        for Named { mut paths, param } in weights::by_param(net) {
            let path = paths.remove(0);
            self.head.params.insert(path.clone(), Storage::of(&param, paths));
            self.tensors.insert(path, param.full());
        }
        self.head.counters = counters(net);
        self.head.operands = operands(net);
        self
    }

    /// Returns a checksum of the state.
    ///
    /// # Errors
    /// Those of [`to_bytes`](Checkpoint::to_bytes).
    pub fn checksum(&self) -> Result<u32> {
        let head = serde_json::to_vec(&self.head).map_err(|e| Error::weights(e.to_string()))?;
        let mut sum = crc32fast::Hasher::new();
        sum.update(&head);
        for tensor in self.tensors.values() {
            weights::each_part(tensor, &mut |part| {
                sum.update(part);
                Ok(())
            })?;
        }
        Ok(sum.finalize())
    }

    /// Returns the states of the optimizers.
    pub fn states(&self) -> Vec<OptimizerState> {
        (0..self.head.optimizers.len()).map(|i| self.state(i)).collect()
    }

    /// Stores an average of weights.
    #[must_use]
    pub fn averaging(mut self, average: &Average) -> Self {
        let paths = average.values().map(|(path, _)| path.to_string()).collect();
        self.head.average = Some((average.updates(), paths));
        self.tensors.extend(average.values().map(|(path, value)| (of_average(path), value.clone())));
        self
    }

    /// Continues an average of the same parameters from the one that was [stored](Checkpoint::averaging). On an error it
    /// is unchanged.
    ///
    /// # Errors
    /// [`ErrorKind::Weights`](crate::ErrorKind::Weights) when the checkpoint has none, or one of other parameters.
    pub fn restore_average(&self, average: &mut Average) -> Result<()> {
        let Some((updates, paths)) = &self.head.average else {
            return Err(Error::weights("the checkpoint has no average of weights"));
        };
        let kept = paths.iter().map(|path| (path.clone(), self.tensors[&of_average(path)].clone()));
        *average = average.restored(*updates, kept.collect())?;
        Ok(())
    }

    /// Stores a number of the training loop: a step, an epoch, the position in the data.
    #[must_use]
    pub fn counting(mut self, name: impl Into<String>, count: u64) -> Self {
        self.head.counts.insert(name.into(), count);
        self
    }

    /// Returns the number stored under a name.
    pub fn count(&self, name: &str) -> Option<u64> {
        self.head.counts.get(name).copied()
    }

    /// Stores the text of a policy.
    ///
    /// # Errors
    /// As [`Policy::to_yaml`].
    pub fn under(mut self, policy: &Policy) -> Result<Self> {
        self.head.policy = Some(policy.to_yaml()?);
        Ok(self)
    }

    /// Returns the stored policy.
    ///
    /// # Errors
    /// As [`Policy::parse`], for a checkpoint of another version of the library.
    pub fn policy(&self) -> Result<Option<Policy>> {
        self.head.policy.as_ref().map(|text| Policy::parse(text, "the policy of the checkpoint")).transpose()
    }

    /// Writes the file. An existing one is replaced atomically: after a crash, the file is either the old or the new
    /// one.
    ///
    /// # Errors
    /// [`ErrorKind::Io`](crate::ErrorKind::Io) when the file cannot be written; an existing file is then unchanged.
    pub fn save(&self, path: impl AsRef<Path>) -> Result<()> {
        let (file, tensors) = self.contents()?;
        file.write(path.as_ref(), &tensors)
    }

    /// Returns the bytes of the file, for a process that does not share its folder.
    ///
    /// # Errors
    /// [`ErrorKind::Weights`](crate::ErrorKind::Weights) as for [`weights::write`].
    pub fn to_bytes(&self) -> Result<Vec<u8>> {
        let (file, tensors) = self.contents()?;
        file.encode(&tensors)
    }

    fn contents(&self) -> Result<(File, Vec<(String, &Tensor)>)> {
        let head = serde_json::to_string(&self.head).map_err(|e| Error::weights(e.to_string()))?;
        let tensors = self.tensors.iter().map(|(name, tensor)| (name.clone(), tensor)).collect();
        Ok((File { tied: self.tied(), words: Some((HEAD, head)) }, tensors))
    }

    /// Reads a file.
    ///
    /// # Errors
    /// [`ErrorKind::Io`](crate::ErrorKind::Io) when it cannot be read,
    /// [`ErrorKind::Weights`](crate::ErrorKind::Weights) when it is damaged or not a checkpoint.
    pub fn load(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        let contents = weights::read_with_words(path, HEAD)?;
        Checkpoint::of_contents(contents).map_err(|error| error.in_file(path.display()))
    }

    /// Reads the [bytes](Checkpoint::to_bytes) of a file.
    ///
    /// ```
    /// use precast::prelude::*;
    /// let mut net = Child::new(Dense::new(2, 1, &mut Rng::seed(1)));
    /// let (mut optimizer, mut scale) = (Sgd::new(net.params(), 0.1), LossScale::none());
    /// let bytes = Checkpoint::of(&net, &[&optimizer], &scale).counting("step", 7).to_bytes()?;
    /// let checkpoint = Checkpoint::from_bytes(&bytes)?;
    /// checkpoint.restore(&mut net, &mut [&mut optimizer], &mut scale)?;
    /// assert_eq!(checkpoint.count("step"), Some(7));
    /// assert!(Checkpoint::from_bytes(&bytes[..100]).is_err());
    /// # Ok::<(), precast::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`ErrorKind::Weights`](crate::ErrorKind::Weights) when they are damaged or no checkpoint.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self> {
        Checkpoint::of_contents(weights::tensors_with_words(bytes, HEAD)?)
    }

    fn of_contents((tensors, head): (BTreeMap<String, Tensor>, Option<String>)) -> Result<Self> {
        let words = "is not a checkpoint; use `weights::load` for files that contain only weights";
        let head: Head = json::read(head.ok_or_else(|| Error::weights(words))?.as_bytes())
            .map_err(|e| Error::weights(format!("the head of the checkpoint is not read: {e}")))?;
        if head.version != VERSION {
            let version = head.version;
            return Err(Error::weights(format!("a checkpoint of version {version}; this library reads {VERSION}")));
        }
        let of_optimizers = head.optimizers.iter().enumerate();
        let missing = (head.params.keys().cloned())
            .chain(of_optimizers.flat_map(|(i, of)| of.tensors.iter().map(move |name| of_optimizer(i, name))))
            .chain(head.average.iter().flat_map(|(_, paths)| paths.iter().map(|path| of_average(path))))
            .find(|name| !tensors.contains_key(name));
        match missing {
            None => Ok(Checkpoint { head, tensors }),
            Some(name) => Err(Error::weights(format!("the tensor `{}` is missing", printable(&name)))),
        }
    }

    /// Restores the state into a network, optimizers and a loss scale constructed like those of the checkpoint.
    ///
    /// A run can be continued in another dtype if its parameters are stored the same way: parameters and optimizers are
    /// independent of the loss scale. A loss scale of another kind than that of the checkpoint (dynamic, fixed or none)
    /// is left unchanged.
    ///
    /// # Errors
    /// [`ErrorKind::Weights`](crate::ErrorKind::Weights) with every difference in the network: parameters, their
    /// shapes, their storage, cells with counters; [`ErrorKind::Value`](crate::ErrorKind::Value) for another number of
    /// optimizers, and when one of them or the loss scale does not fit. Nothing is changed on error.
    pub fn restore<C: ?Sized + AsCell>(
        &self,
        net: &mut Child<C>,
        optimizers: &mut [&mut dyn Optimizer],
        scale: &mut LossScale,
    ) -> Result<()> {
        let values = self.values(net)?;
        if optimizers.len() != self.head.optimizers.len() {
            let (given, kept) = (optimizers.len(), self.head.optimizers.len());
            return Err(Error::value(format!(
                "the checkpoint has the state of {kept} optimizers, and {given} are given"
            )));
        }
        for (param, value) in &values {
            param.check(value)?;
        }
        let loss_scale = self.scale_for(scale)?;
        // Optimizers and counters are rolled back if a later one is rejected.
        let (mut before, counted, quantized) = (Vec::new(), counters(net), operands(net));
        let mut restored = set_counters(net, &self.head.counters).and_then(|()| set_operands(net, &self.head.operands));
        for (i, optimizer) in optimizers.iter_mut().enumerate() {
            if restored.is_ok() {
                before.push(optimizer.state());
                restored = optimizer.restore(self.state(i)).map_err(|e| e.context(format_args!("optimizer {i}")));
            }
        }
        if let Err(error) = restored {
            set_counters(net, &counted)?;
            set_operands(net, &quantized)?;
            for (optimizer, state) in optimizers.iter_mut().zip(before) {
                optimizer.restore(state)?;
            }
            return Err(error);
        }
        values.iter().try_for_each(|(param, value)| param.set(value))?;
        *scale = loss_scale;
        Ok(())
    }

    /// Returns the loss scale with the state of the checkpoint if it is of the same kind, else unchanged.
    fn scale_for(&self, given: &LossScale) -> Result<LossScale> {
        let (mut scale, here) = (given.clone(), ScaleKind::of(given));
        let same = match self.head.scale_kind {
            Some(kept) => kept == here,
            None => here != ScaleKind::None || self.head.scale.scale == 1.0,
        };
        if same {
            let mut state = self.head.scale;
            // A fixed scale is that of the run that resumes.
            if let (Some(ScaleKind::Fixed), LossScaleSpec::Fixed { scale }) = (self.head.scale_kind, given.spec()) {
                state.scale = *scale;
            }
            scale.restore(state)?;
        } else {
            tracing::info!(target: "precast", kept = ?self.head.scale_kind, here = ?here, "the loss scale begins anew");
        }
        Ok(scale)
    }

    fn tied(&self) -> BTreeMap<String, String> {
        let of = |(path, storage): (&String, &Storage)| {
            storage.tied.iter().map(|other| (other.clone(), path.clone())).collect::<Vec<_>>()
        };
        self.head.params.iter().flat_map(of).collect()
    }

    fn state(&self, i: usize) -> OptimizerState {
        let Steps { optimizer, steps, tensors } = self.head.optimizers[i].clone();
        let tensor = |name: String| (name.clone(), self.tensors[&of_optimizer(i, &name)].clone());
        OptimizerState { optimizer, steps, tensors: tensors.into_iter().map(tensor).collect() }
    }

    /// Returns the value of each parameter, or every difference in the network.
    fn values<C: ?Sized + AsCell>(&self, net: &Child<C>) -> Result<Vec<(Param, &Tensor)>> {
        let (mut values, mut differences, mut known) = (Vec::new(), Vec::new(), BTreeSet::new());
        for Named { mut paths, param } in weights::by_param(net) {
            let path = paths.remove(0);
            let name = printable(&path).into_owned();
            let Some(storage) = self.head.params.get(&path) else {
                differences.push(format!("`{name}` is not in the checkpoint"));
                continue;
            };
            let here = Storage::of(&param, paths);
            let value = &self.tensors[&path];
            if *storage != here && storage.tied != here.tied {
                let paths = |tied: &[String]| match tied {
                    [] => "nothing".to_string(),
                    tied => tied.iter().map(|path| format!("`{}`", printable(path))).collect::<Vec<_>>().join(", "),
                };
                let (kept, here) = (paths(&storage.tied), paths(&here.tied));
                differences.push(format!("`{name}` is tied to {kept} in the checkpoint, and to {here} here"));
            } else if *storage != here {
                let (kept, here) = (storage.words(), here.words());
                differences.push(format!("`{name}` is stored as {kept} in the checkpoint, and as {here} here"));
            } else if value.shape() != param.shape() {
                let (kept, here) = (value.shape(), param.shape());
                differences.push(format!("`{name}` has the shape {kept:?} in the checkpoint, and {here:?} here"));
            }
            known.insert(path);
            values.push((param, value));
        }
        let left = self.head.params.keys().filter(|path| !known.contains(*path));
        differences.extend(left.map(|path| format!("`{}` is not in the network", printable(path))));
        let counters = counters(net);
        let both: BTreeSet<&String> = counters.keys().chain(self.head.counters.keys()).collect();
        let lens = |of: &BTreeMap<String, Vec<u64>>, path: &String| of.get(path).map_or(0, Vec::len);
        for path in both.into_iter().filter(|path| lens(&counters, path) != lens(&self.head.counters, path)) {
            let (kept, here) = (lens(&self.head.counters, path), lens(&counters, path));
            differences
                .push(format!("the cell `{}` has {kept} counters in the checkpoint, and {here} here", printable(path)));
        }
        match &differences[..] {
            [] => Ok(values),
            [one] => Err(Error::weights(one.clone())),
            all => Err(Error::weights(format!("{} differences:\n- {}", all.len(), all.join("\n- ")))),
        }
    }
}
