//! Applying a plan to a network, and undoing it.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
};

use burn::{
    module::{Module, ModuleDisplay, ModuleMapper, ModuleVisitor, Param},
    tensor::{Device, FloatDType, Tensor},
};
use precast_base::printable;
use precast_policy::{
    Adapter, DType, Error, Level, Plan, Result,
    catalogue::System,
    host::Wrap,
    kinds,
    plan::{Decision, Region},
};

use crate::{
    Amp,
    dtype::{float_dtype, is_castable, is_low},
    outline::{Walked, walked},
    walk::{self, Border, Met, Settings},
    weight::Attach,
};

/// The changes that a plan made to a network.
#[derive(Clone, Debug)]
#[must_use = "keep it: its method `undo` takes the plan back"]
pub struct Applied {
    plan: Plan,
    before: Settings,
    notes: Vec<String>,
}

impl Applied {
    /// Returns what the plan says and burn cannot do, one sentence each. Empty where the whole plan is in force.
    pub fn notes(&self) -> &[String] {
        &self.notes
    }

    /// Restores the casts that the network had before: none, unless a plan had been applied to it. Weights are stored
    /// in f32 in either case, so it computes the same bits as a network that was never changed.
    ///
    /// Several plans are undone in reverse order. A parameter that was stored in 16 bits stays in f32.
    ///
    /// Each weight keeps a cast that does nothing; [`materialize`](Module::materialize) removes it, so that another
    /// reparameterization of burn's, such as LoRA, can take its place.
    ///
    /// # Errors
    /// [`ErrorKind::Path`](crate::ErrorKind::Path) for another network.
    pub fn undo<M: Module + ModuleDisplay>(&self, net: &mut Amp<M>) -> Result<()> {
        self.plan.check_fits(&walked(net).outline)?;
        set(net, &self.before);
        Ok(())
    }
}

impl fmt::Display for Applied {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.notes.iter().try_for_each(|note| writeln!(f, "note: {note}"))
    }
}

impl<M: Module + ModuleDisplay> Wrap for Amp<M> {
    type Applied = Applied;

    /// # Errors
    /// [`ErrorKind::Path`](crate::ErrorKind::Path) for a plan of another network;
    /// [`ErrorKind::Unsupported`](crate::ErrorKind::Unsupported) for a dtype that the device does not support, a module
    /// that runs in another precision than its surroundings without an [`Amp`] around it, level `auto`, and a weight
    /// that burn cannot read in another dtype; [`ErrorKind::Weights`](crate::ErrorKind::Weights) for weights with numbers
    /// beyond their planned dtype. The network is unchanged after an error.
    fn wrap(&mut self, plan: Plan) -> Result<Applied> {
        let walked = walked(self);
        plan.check_fits(&walked.outline)?;
        if plan.policy.level == Level::Auto {
            return Err(Error::unsupported(
                "level auto decides op by op, and burn does not report its ops while it runs; use level O1, O2 or O3. \
                 `precast_burn::graph` shows what the lists would do",
            ));
        }
        check_devices(&plan, &self.devices())?;
        check_kinds(&plan, &walked.met)?;
        check_wrappers(&plan, &walked.met)?;
        let (settings, widened) = (settings(&plan, &walked), walked.stored_low());
        let mut changed = self.clone().map(&mut Widen);
        set(&mut changed, &settings);
        check_weights(&settings, &crate::outline::walked(&changed))?;
        check_numbers(&changed, &settings.weights)?;
        *self = changed;
        let notes = notes(&plan, &walked, widened);
        Ok(Applied { plan, before: settings_of(&walked.met), notes })
    }
}

fn check_devices(plan: &Plan, devices: &[Device]) -> Result<()> {
    let used: BTreeSet<DType> = plan.decisions.iter().filter_map(|decision| decision.run.dtype()).collect();
    for (dtype, theirs) in used.into_iter().filter_map(|dtype| Some((dtype, float_dtype(dtype)?))) {
        if let Some(device) = devices.iter().find(|device| !device.supports_dtype(theirs)) {
            let supported = [DType::F16, DType::Bf16].into_iter();
            let supported =
                supported.filter(|other| float_dtype(*other).is_some_and(|other| device.supports_dtype(other)));
            let supported: Vec<&str> = supported.map(DType::long_name).collect();
            let remedy = match &supported[..] {
                [] => "it has no 16-bit dtype".to_string(),
                names => format!("it has {}", names.join(" and ")),
            };
            return Err(Error::unsupported(format!("{device:?} does not support {}; {remedy}", dtype.long_name())));
        }
    }
    Ok(())
}

/// Kinds of burn's modules that create f32 tensors themselves: states of recurrent layers, tables of positions.
const WIDE: &[&str] = &["Lstm", "BiLstm", "Gru", "BiGru", "Rnn", "BiRnn", "PositionalEncoding", "RotaryEncoding"];

/// Kind of burn's batch norm, whose running states stay f32.
const BATCH_NORM: &str = "BatchNorm";

/// Refuses 16 bits for modules of burn that cannot compute in them.
fn check_kinds(plan: &Plan, met: &Met) -> Result<()> {
    for decision in plan.decisions.iter().filter(|decision| decision.run.dtype().is_some_and(DType::is_low)) {
        let wrapped = met.wrappers.contains_key(&decision.path);
        let why = match &*decision.kind {
            kind if WIDE.contains(&kind) => "burn creates tensors inside it in the default dtype of the device",
            BATCH_NORM if decision.run.dtype() == Some(DType::F16) => {
                "the variance of numbers above 256 is beyond f16, and burn computes it in the dtype of the input"
            }
            BATCH_NORM if !wrapped => {
                "its running states stay f32, and burn's own call would add two dtypes: a call of its `Amp` keeps them apart"
            }
            _ => continue,
        };
        let (path, kind) = (printable(&decision.path), printable(&decision.kind));
        let declare = if wrapped { String::new() } else { format!(", and declare its field as `Amp<{kind}>`") };
        return Err(Error::unsupported(format!(
            "`{path}` ({kind}) cannot run in {}: {why}. Keep it in f32 by a rule, `{{ path: {path}, run: float32-inside }}`{declare}",
            decision.run
        )));
    }
    Ok(())
}

/// Names every module whose border must cast and has no wrapper.
fn check_wrappers(plan: &Plan, met: &Met) -> Result<()> {
    let own: BTreeSet<&str> = kinds::of(System::Burn).into_iter().map(|(kind, _)| kind).collect();
    let remedy = |path: &str, kind: &str| {
        let (parent, name) = path.rsplit_once('.').unwrap_or(("", path));
        match plan.decision(parent).ok().map(|parent| &*parent.kind) {
            Some("Vec" | "Array" | "Tuple") => format!("wrap each in its list, as `Vec<Amp<{kind}>>`"),
            Some(parent) if own.contains(parent) => format!(
                "`{name}` is a field of burn's {parent}, so keep it in the precision around it by a rule with \
                 `path: '**.{name}'` and `run: inherit`, or run the whole {parent} in f32"
            ),
            _ if path.is_empty() => "wrap the network: `Amp::new(net)`".to_string(),
            _ => format!("declare its field as `Amp<{kind}>`"),
        }
    };
    let missing: Vec<String> = plan
        .decisions
        .iter()
        .filter(|decision| border(decision.adapter.as_ref()).is_some() && !met.wrappers.contains_key(&decision.path))
        .map(|decision| {
            let (path, kind) = (printable(&decision.path), printable(&decision.kind));
            format!("  `{path}` ({kind}) {}: {}", decision.effect(), remedy(&decision.path, &kind))
        })
        .collect();
    if missing.is_empty() {
        return Ok(());
    }
    Err(Error::unsupported(format!(
        "modules that run in another precision than their surroundings have no `Amp` that casts at their border:\n{}",
        missing.join("\n")
    )))
}

/// Names the weights that cannot be read in another dtype.
fn check_weights(settings: &Settings, walked: &Walked) -> Result<()> {
    let met = &walked.met.weights;
    let stays = settings.weights.iter().find(|(path, dtype)| met.get(*path) != Some(&Some(**dtype)));
    let Some((path, dtype)) = stays else { return Ok(()) };
    let (path, dtype) = (path.as_str(), burn::tensor::DType::from(*dtype).name());
    let owner = printable(owner(path));
    let why = match walked.reparameterized.get(path) {
        Some(name) => {
            format!("it has the reparameterization `{}` of burn's, and a weight has room for one", printable(name))
        }
        None => "it is a running state, which burn computes in f32".to_string(),
    };
    Err(Error::unsupported(format!(
        "`{}` cannot be read in {dtype}: {why}. Keep its module in f32 by a rule: `{{ path: {owner}, run: float32-inside }}`",
        printable(path)
    )))
}

/// Names the weights with numbers that are infinite where they are read by the plan in force.
pub(crate) fn check_read<M: Module>(net: &M) -> Result<()> {
    let ((), met) = walk::walk(None, || net.visit(&mut Beyond { weights: &BTreeMap::new(), found: Vec::new() }));
    check_numbers(net, &settings_of(&met).weights)
}

/// Names the weights with numbers that would be infinite in the dtypes in which they will be read.
fn check_numbers<M: Module>(net: &M, weights: &BTreeMap<String, FloatDType>) -> Result<()> {
    let mut beyond = Beyond { weights, found: Vec::new() };
    let _ = walk::walk(None, || net.visit(&mut beyond));
    let words = beyond.found.join("; ");
    if words.is_empty() { Ok(()) } else { Err(Error::weights(words)) }
}

/// Looks for finite numbers that are infinite in f16. bf16 has the range of f32, but for its last number.
struct Beyond<'a> {
    weights: &'a BTreeMap<String, FloatDType>,
    found: Vec<String>,
}

impl ModuleVisitor for Beyond<'_> {
    fn enter_module(&mut self, name: &str, _: &str) {
        walk::enter(name);
    }

    fn exit_module(&mut self, _: &str, _: &str) {
        walk::exit();
    }

    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        /// Least number that rounds to infinity.
        const INFINITE: f32 = 65520.0;
        let here = walk::here().unwrap_or_default();
        if self.weights.get(&here) != Some(&FloatDType::F16) || !param.is_initialized() {
            return;
        }
        let largest = param.base().detach().cast(FloatDType::F32).abs().max().into_scalar::<f32>();
        if largest.is_finite() && largest >= INFINITE {
            self.found.push(format!("`{}` has the number {largest}, which would be infinite in f16", printable(&here)));
        }
    }
}

/// Returns the path of the module that has a parameter or a constant.
fn owner(path: &str) -> &str {
    path.rsplit_once('.').map_or("", |(owner, _)| owner)
}

/// Returns the single dtype in which a module runs, if there is one.
fn runs_in(plan: &Plan, path: &str) -> Option<DType> {
    plan.decision(path).ok()?.run.dtype()
}

fn border(adapter: Option<&Adapter>) -> Option<Border> {
    let cast = adapter?.cast()?;
    Some(Border { inward: float_dtype(cast.inward)?, outward: float_dtype(cast.outward)? })
}

/// Returns the settings that put a plan into force.
fn settings(plan: &Plan, walked: &Walked) -> Settings {
    let mut settings = Settings::default();
    for decision in &plan.decisions {
        if let Some(border) = border(decision.adapter.as_ref()) {
            settings.borders.insert(decision.path.clone(), border);
        }
    }
    for param in &walked.floats {
        let (owner, name) = (owner(&param.path), param.path.rsplit('.').next().unwrap_or_default());
        let Some(dtype) = runs_in(plan, owner).and_then(float_dtype) else { continue };
        if name.starts_with("running_") && plan.decision(owner).is_ok_and(|owner| owner.kind == BATCH_NORM) {
            continue;
        }
        // All are stored in f32: those in 16 bits are widened.
        let castable = param.stored.is_none_or(is_castable);
        if castable && dtype != FloatDType::F32 {
            settings.weights.insert(param.path.clone(), dtype);
        }
    }
    settings
}

/// Returns the settings in force.
fn settings_of(met: &Met) -> Settings {
    let borders = met.wrappers.iter().filter_map(|(path, border)| Some((path.clone(), (*border)?)));
    let weights = met.weights.iter().filter_map(|(path, dtype)| Some((path.clone(), (*dtype)?)));
    Settings { borders: borders.collect(), weights: weights.collect() }
}

/// Puts settings into force.
fn set<M: Module>(net: &mut Amp<M>, settings: &Settings) {
    let taken = net.clone();
    let (mapped, _) = walk::walk(Some(settings.clone()), || taken.map(&mut Walks));
    // Parameters that have a cast already keep it: the walk has set it.
    *net = mapped.apply_reparameterization(Attach(Some(settings)));
}

/// Stores parameters of 16 bits in f32: as masters, small updates would be lost in them.
struct Widen;

impl ModuleMapper for Widen {
    fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
        if !param.is_initialized() || !is_low(param.base().dtype()) {
            return param;
        }
        let trained = param.base().is_require_grad();
        param.map(|tensor| tensor.cast(FloatDType::F32).detach().set_require_grad(trained))
    }
}

/// Takes the walk through the network, and leaves the parameters as they are.
struct Walks;

impl ModuleMapper for Walks {
    fn enter_module(&mut self, name: &str, _: &str) {
        walk::enter(name);
    }

    fn exit_module(&mut self, _: &str, _: &str) {
        walk::exit();
    }
}

fn notes(plan: &Plan, walked: &Walked, widened: usize) -> Vec<String> {
    let by_ops = |region: Region| matches!(region, Region::Lists(_) | Region::Except(_));
    let mut notes = Vec::new();
    if widened > 0 {
        notes.push(format!("{widened} parameters that were stored in 16 bits are stored in f32 now"));
    }
    for path in &walked.constants {
        if let Some(dtype) = runs_in(plan, owner(path)).filter(|dtype| dtype.is_low()) {
            let path = printable(path);
            notes.push(format!(
                "`{path}` is a tensor and no parameter, so it stays as it is while its module runs in {dtype}: if it is \
                 floating, cast it in code to the dtype of what it meets"
            ));
        }
    }
    let low_table =
        |decision: &&Decision| decision.kind == "Embedding" && decision.run.dtype().is_some_and(DType::is_low);
    for table in plan.decisions.iter().filter(low_table).filter(|table| !walked.met.wrappers.contains_key(&table.path))
    {
        let path = printable(&table.path);
        notes.push(format!(
            "`{path}` (Embedding): burn adds the gradients of a row in {0}, so that a row that is read often, such as that of \
             padding, has one that is too small; declare its field as `Amp<Embedding>`, which adds them in f32",
            table.run
        ));
    }
    if plan.decisions.iter().any(|decision| decision.wide_weight_grads) {
        notes.push(
            "`weight_grad: float32` has no effect: burn computes the gradient of a weight in the dtype in which it is read"
                .to_string(),
        );
    }
    if plan.decisions.iter().any(|decision| by_ops(decision.run)) {
        notes.push(
            "the op lists of the policy are not in force, since burn does not report its ops while it runs: ops that code calls \
             between modules take their inputs as they come. `precast_burn::in_f32` computes one in f32"
                .to_string(),
        );
    }
    let changes = |decision: &Decision| !decision.later.is_empty() || decision.raise_after_stall;
    if plan.decisions.iter().any(changes) {
        notes.push(
            "rules with `until` or `after_stall` do not change the network while it trains: make and apply another plan there"
                .to_string(),
        );
    }
    if plan.decisions.iter().any(|decision| decision.recompute.is_some()) {
        notes.push(
            "activations are not recomputed by a rule: use `Device::gradient_checkpointing` of burn for the whole network".to_string(),
        );
    }
    notes
}
