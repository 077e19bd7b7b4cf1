//! A network of candle that runs by a plan.

use std::{
    collections::HashSet,
    fmt,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
};

use candle_core::{DType, Device, Tensor, Var};
use candle_nn::{VarBuilder, VarMap};
use precast_base::printable;
use precast_policy::{self as policy, Plan, Policy};

use crate::{
    Amp, Result,
    amp::Age,
    border::{Backend, Border, Borders, Mode, kind_of},
    device,
    dtype::is_castable,
    learned::{Learned, Variable, kind_here},
    planning,
};

/// Constructor of the user's network.
type Constructor<N> = Box<dyn Fn(VarBuilder<'static>) -> candle_core::Result<N> + Send + Sync>;

/// A network that is built from a `VarBuilder`, with its variables, and the plan by which it runs.
///
/// The variables stay f32 in their `VarMap`. [`build`](Network::build) runs the user's constructor again, with each
/// variable in its planned dtype: a cast on the tape, so gradients and optimizers see f32. Without a plan, networks are
/// those that candle builds, bit for bit.
///
/// ```
/// use candle_core::Device;
/// use candle_nn::{Linear, VarMap, linear};
/// use precast_candle::{Network, Policy};
///
/// let mut net = Network::new(&VarMap::new(), &Device::Cpu, |vb| linear(4, 2, vb.pp("fc")))?;
/// let plan = net.plan(&Policy::named("o2")?)?;
/// assert_eq!(plan.decision("fc")?.run.to_string(), "f16");
/// net.apply(plan)?;
/// assert_eq!(net.build()?.inner().weight().dtype(), candle_core::DType::F16);
/// # Ok::<(), precast_candle::Error>(())
/// ```
pub struct Network<N> {
    constructor: Constructor<N>,
    var_map: VarMap,
    device: Device,
    learned: Learned,
    /// Names of the variables.
    names: Arc<HashSet<String>>,
    plan: Option<Plan>,
    borders: Arc<Borders>,
    /// Counts changes of the variables.
    now: Arc<AtomicU64>,
    /// Running statistics as of the last step.
    statistics: Vec<(Var, Tensor)>,
}

impl<N> Network<N> {
    /// Learns a network by running its constructor once: the paths, names and shapes of its variables. Those that the map
    /// does not have yet are created in it, in f32, with candle's initial values.
    ///
    /// # Errors
    /// Those of the constructor; [`ErrorKind::DType`](policy::ErrorKind::DType) when the map has a 16-bit variable.
    pub fn new<F>(vars: &VarMap, device: &Device, constructor: F) -> Result<Self>
    where
        F: Fn(VarBuilder<'static>) -> candle_core::Result<N> + Send + Sync + 'static,
    {
        let learning = Arc::new(Mutex::new(Learned::new(kind_of::<N>())));
        let backend = Backend { vars: vars.clone(), borders: Arc::default(), mode: Mode::Learn(learning.clone()) };
        constructor(VarBuilder::from_backend(Box::new(backend), DType::F32, device.clone()))?;
        let learned = learning.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).clone();
        let low = |variable: &&Variable| is_castable(variable.dtype) && variable.dtype != DType::F32;
        if let Some(Variable { name, dtype, .. }) = learned.variables.iter().find(low) {
            let (name, dtype) = (printable(name), dtype.as_str());
            let words = format!(
                "the variable `{name}` is {dtype} in the `VarMap`, and variables are f32: a plan casts them. Begin with an empty \
                 map, and read 16-bit files by `load`"
            );
            return Err(policy::Error::dtype(words).into());
        }
        let mut net = Network {
            constructor: Box::new(constructor),
            var_map: vars.clone(),
            device: device.clone(),
            names: Arc::new(learned.variables.iter().map(|variable| variable.name.clone()).collect()),
            learned,
            plan: None,
            borders: Arc::default(),
            now: Arc::default(),
            statistics: Vec::new(),
        };
        net.keep_statistics()?;
        Ok(net)
    }

    /// Corrects the kind of the cell at a path, where names and shapes say too little: `net.kind("proj_in", "Linear")`.
    /// Lists and rules for kinds go by it.
    ///
    /// # Errors
    /// [`ErrorKind::Path`](policy::ErrorKind::Path) when there is no such cell; [`ErrorKind::List`](policy::ErrorKind::List)
    /// for a kind that is written in another case, such as `layernorm`.
    pub fn kind(mut self, path: &str, kind: &str) -> Result<Self> {
        self.learned.check_cell(path)?;
        self.learned.kinds.insert(path.to_string(), kind_here(kind)?);
        Ok(self)
    }

    /// Requests a dtype for the cell at a path and all inside it, over every policy.
    ///
    /// # Errors
    /// [`ErrorKind::Path`](policy::ErrorKind::Path) when there is no such cell; [`ErrorKind::DType`](policy::ErrorKind::DType)
    /// unless the dtype is f32, f16 or bf16.
    pub fn to_float(mut self, path: &str, dtype: DType) -> Result<Self> {
        self.learned.check_cell(path)?;
        let Some(dtype) = crate::dtype::from_candle(dtype).filter(|dtype| dtype.is_castable()) else {
            let (path, met) = (printable(path), dtype.as_str());
            let words = format!("`{path}` cannot run in {met}; allowed: f32, f16, bf16");
            return Err(policy::Error::dtype(words).into());
        };
        self.learned.to_float.insert(path.to_string(), dtype);
        Ok(self)
    }

    /// Declares that the user's code casts the inputs and outputs of the cell at a path, so that it needs no
    /// [`Amp`].
    ///
    /// # Errors
    /// [`ErrorKind::Path`](policy::ErrorKind::Path) when there is no such cell.
    pub fn by_hand(mut self, path: &str) -> Result<Self> {
        self.learned.check_cell(path)?;
        self.learned.by_hand.insert(path.to_string());
        Ok(self)
    }

    /// Excludes a variable, or all variables of a cell, from training: they are not among [`vars`](Network::vars), and
    /// need no gradient.
    ///
    /// # Errors
    /// [`ErrorKind::Path`](policy::ErrorKind::Path) when there is neither.
    pub fn frozen(mut self, name: &str) -> Result<Self> {
        self.learned.check_selected(name)?;
        self.learned.frozen.insert(name.to_string());
        Ok(self)
    }

    /// Declares that a variable, or those of a cell, get no gradient in some steps: a branch, an expert.
    ///
    /// # Errors
    /// [`ErrorKind::Path`](policy::ErrorKind::Path) when there is neither.
    pub fn optional(mut self, name: &str) -> Result<Self> {
        self.learned.check_selected(name)?;
        self.learned.optional.insert(name.to_string());
        Ok(self)
    }

    /// Decides for each cell in which precision it runs, and why. Changes nothing.
    ///
    /// The op lists of packs, at O1 and O2, have no effect on candle: the plan shows `as is` around the layers that O1
    /// lowers.
    ///
    /// # Errors
    /// Those of [`Policy::plan_outline`]; [`ErrorKind::Unsupported`](policy::ErrorKind::Unsupported) for level auto and
    /// whatever else candle cannot do.
    pub fn plan(&self, policy: &Policy) -> Result<Plan> {
        Ok(planning::for_candle(policy)?.plan_outline(self.learned.outline()?)?)
    }

    /// Makes the network run by a plan: the networks that are built from now on.
    ///
    /// # Errors
    /// [`ErrorKind::Path`](policy::ErrorKind::Path) for a plan of another network; [`ErrorKind::Plan`](policy::ErrorKind::Plan)
    /// for a cell that needs an [`Amp`] and has none, and for a 16-bit batch norm;
    /// [`ErrorKind::DType`](policy::ErrorKind::DType) for a dtype in which the device cannot compute. Nothing is changed then.
    pub fn apply(&mut self, plan: Plan) -> Result<()> {
        plan.check_fits(&self.learned.outline()?)?;
        if plan
            .decisions
            .iter()
            .any(|decision| matches!(decision.run, policy::plan::Region::Lists(_) | policy::plan::Region::Except(_)))
        {
            let words =
                "the plan treats ops by lists, and candle's ops cannot be intercepted; make it by `net.plan(&policy)`";
            return Err(policy::Error::new(policy::ErrorKind::Unsupported, words).into());
        }
        planning::check(&plan, &self.learned)?;
        device::check(&plan, &self.device)?;
        self.borders = Arc::new(Border::of(&plan));
        self.plan = Some(plan);
        self.changed();
        Ok(())
    }

    /// Removes the plan: networks are again built as candle builds them.
    pub fn undo(&mut self) {
        (self.plan, self.borders) = (None, Arc::default());
        self.changed();
    }

    /// Returns the plan by which the network runs.
    pub fn applied(&self) -> Option<&Plan> {
        self.plan.as_ref()
    }

    /// Builds the network by its plan, from the present values of its variables, in an [`Amp`] with the casts of the whole
    /// network. Weights are cast when they are read, so each step needs a network of its own. That is cheap: f32 weights
    /// are not copied.
    ///
    /// # Errors
    /// Those of the constructor.
    pub fn build(&self) -> Result<Amp<N>> {
        let root = self.borders.get("").copied().unwrap_or_default();
        let backend = Backend {
            vars: self.var_map.clone(),
            borders: self.borders.clone(),
            mode: Mode::Build(self.names.clone()),
        };
        let dtype = root.inward.unwrap_or(DType::F32);
        let module = (self.constructor)(VarBuilder::from_backend(Box::new(backend), dtype, self.device.clone()))?;
        let age = Age { built: self.now.load(Ordering::Acquire), now: self.now.clone() };
        Ok(Amp::root(module, root, age))
    }

    /// Returns the trained variables, for an optimizer, in the order of the constructor: without the
    /// [frozen](Network::frozen) ones and running statistics.
    pub fn vars(&self) -> Vec<Var> {
        self.trained().map(|(_, var)| var).collect()
    }

    /// Returns the device of the network.
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// Iterates over all variables with their facts.
    pub(crate) fn variables(&self) -> impl Iterator<Item = (&Variable, Var)> {
        let data = self.var_map.data().lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        let all: Vec<_> =
            self.learned.variables.iter().filter_map(|one| Some((one, data.get(&one.name)?.clone()))).collect();
        all.into_iter()
    }

    /// Iterates over the trained variables.
    pub(crate) fn trained(&self) -> impl Iterator<Item = (&Variable, Var)> {
        let frozen = &self.learned.frozen;
        let trains = move |variable: &Variable| {
            variable.dtype.is_float() && !variable.is_statistic() && !Learned::is_among(frozen, variable)
        };
        self.variables().filter(move |(variable, _)| trains(variable))
    }

    /// Returns whether a trained variable may lack a gradient.
    pub(crate) fn may_lack(&self, variable: &Variable) -> bool {
        Learned::is_among(&self.learned.optional, variable)
    }

    /// Returns the dtype in which the plan has a variable.
    pub(crate) fn planned(&self, variable: &Variable) -> DType {
        let border = self.borders.get(policy::weights::cell_of(&variable.name).0);
        border.and_then(|border| border.inward).filter(|_| variable.dtype == DType::F32).unwrap_or(variable.dtype)
    }

    /// Notes that the variables or the plan changed: networks built before are out of date.
    pub(crate) fn changed(&self) {
        self.now.fetch_add(1, Ordering::AcqRel);
    }

    /// Remembers the running statistics, for a later step that is skipped.
    pub(crate) fn keep_statistics(&mut self) -> Result<()> {
        let statistics = self.variables().filter(|(variable, _)| variable.is_statistic());
        let copies = statistics.map(|(_, var)| Ok((var.clone(), var.as_tensor().detach().copy()?)));
        self.statistics = copies.collect::<candle_core::Result<_>>()?;
        Ok(())
    }

    /// Sets the running statistics back to those of the last step.
    pub(crate) fn restore_statistics(&self) -> Result<()> {
        for (var, value) in &self.statistics {
            var.set(value)?;
        }
        Ok(())
    }
}

impl<N> fmt::Debug for Network<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Network { learned, plan, device, .. } = self;
        f.debug_struct("Network")
            .field("root", &learned.root)
            .field("variables", &learned.variables.len())
            .field("device", &device.location())
            .field("planned", &plan.is_some())
            .finish()
    }
}
