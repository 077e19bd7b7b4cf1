//! A recorded case, run here: the network is built, gets its recorded values, and is lowered, called and traced.

use std::collections::BTreeMap;

use precast::{
    DType, Level, Param, Policy, Tensor,
    cell::{Child, Trace},
    compat::mindspore::{CustomLists, custom_mixed_precision},
    error::{Error, Result},
    plan::Plan,
    policy::{Lists, Pack},
};

use crate::mindspore::{
    golden::{CellRow, Lowering, Mode, Net, Record, Run, dtype},
    kept::param_names,
    networks::{Kit, build},
};

/// A case of the file, in one mode.
pub struct Case<'a> {
    pub name: &'a str,
    pub net: &'a Net,
    pub record: &'a Record,
    pub mode: Mode,
    pub lowering: Lowering,
    pub low: DType,
}

/// Results of the network here.
pub struct Ours {
    pub plan: Plan,
    /// Names of the parameters, once the network is lowered.
    pub param_names: Vec<String>,
    pub outputs: Result<Vec<Tensor>>,
    pub trace: Trace,
}

/// Effect of a lowering.
pub enum Effect {
    /// Nothing is lowered.
    Nothing,
    /// The cells on this list are lowered: O1 and a white list.
    Listed(Lists),
    /// Everything but the cells on this list is lowered: O2, O3 and a black list.
    AllBut(Lists),
    /// Every op is treated by its list: level auto.
    EachOp(Lists),
}

impl Case<'_> {
    /// Returns the recording of the call in this mode.
    pub fn recorded_run(&self) -> Option<&Run> {
        self.record.run(self.mode)
    }

    /// Returns the effective lowering: of two, the second.
    pub fn in_force(&self) -> Lowering {
        match &self.lowering {
            Lowering::Twice(_, last) => Lowering::Level(*last),
            one => one.clone(),
        }
    }

    pub fn effect(&self) -> Effect {
        let lists = |level| mindspore(level, DType::F16).expect("f16 is a low dtype").lists;
        match self.in_force() {
            Lowering::Level(Level::O1) => Effect::Listed(lists(Level::O1)),
            Lowering::Level(Level::O2) => Effect::AllBut(lists(Level::O2)),
            Lowering::Level(Level::O3) => Effect::AllBut(Lists::new()),
            Lowering::Level(Level::Auto) => Effect::EachOp(lists(Level::Auto)),
            Lowering::White(names) => Effect::Listed(list(&names, true, Kit::Unfused).expect("names of the library")),
            Lowering::Black(names) => Effect::AllBut(list(&names, false, Kit::Unfused).expect("names of the library")),
            _ => Effect::Nothing,
        }
    }

    /// Returns the original cell at a path.
    pub fn original(&self, path: &str) -> Option<&CellRow> {
        self.net.original_cells.iter().find(|row| row.path == path)
    }

    /// Returns the path under which MindSpore's log shows a cell: the first one of a shared cell.
    pub fn first_path(&self, path: &str) -> String {
        self.original(path).and_then(|row| row.same_object_as.clone()).unwrap_or_else(|| path.into())
    }

    /// Iterates over the original cells at a path and above it, the root first.
    pub fn around(&self, path: &str) -> impl Iterator<Item = &CellRow> {
        let holds = move |outer: &str| outer.is_empty() || path == outer || path.starts_with(&format!("{outer}."));
        self.net.original_cells.iter().filter(move |row| holds(&row.path))
    }

    /// Returns the tensors the network is called with; keyword arguments come last.
    pub fn inputs(&self) -> Vec<Tensor> {
        let given = self.net.inputs.iter().chain(self.net.kwargs.values());
        given.flat_map(|value| value.leaves()).map(|array| array.tensor()).collect()
    }

    /// Builds, lowers and runs the network.
    ///
    /// # Errors
    /// When the case is not recognized, and the errors of lowering.
    pub fn run(&self, kit: Kit) -> Result<Ours> {
        self.run_as(kit, &self.lowering)
    }

    pub fn run_as(&self, kit: Kit, lowering: &Lowering) -> Result<Ours> {
        let mut net = self.network(kit)?;
        let plan = lower(&mut net, lowering, self.low, kit)?;
        let param_names = param_names(&net);
        let (outputs, trace) = net.trace(|net| net.call_many(&self.inputs()));
        Ok(Ours { plan, param_names, outputs, trace })
    }

    /// Returns the network with the recorded parameters: each is either set, or tied to one that is.
    pub fn network(&self, kit: Kit) -> Result<Child> {
        let net = build(self.name, kit).ok_or_else(|| Error::path(format!("no network is called `{}`", self.name)))?;
        let params: BTreeMap<String, Param> = net.named_params().into_iter().collect();
        for (name, array) in &self.net.params {
            let name = if kit == Kit::Unfused { name.clone() } else { name_here(name, &params) };
            let param = params.get(&name).ok_or_else(|| Error::weights(format!("no parameter is called `{name}`")))?;
            let value = Tensor::from_f64(&array.numbers(), &param.shape(), dtype(&array.dtype))?;
            assert_eq!(value.len(), array.shape.iter().product::<usize>(), "{name}");
            param.set(&value)?;
        }
        let names: Vec<String> = self.net.params.keys().map(|name| name_here(name, &params)).collect();
        for (name, param) in &params {
            let tied = || names.iter().filter_map(|set| params.get(set)).any(|set| set.is_same(param));
            assert!(names.contains(name) || tied(), "{}: `{name}` was left unset", self.name);
        }
        Ok(net)
    }
}

/// Returns the library's name for a parameter of MindSpore, if the network does not use MindSpore's.
fn name_here(name: &str, params: &BTreeMap<String, Param>) -> String {
    if params.contains_key(name) {
        return name.into();
    }
    let (cell, leaf) = name.rsplit_once('.').unwrap_or(("", name));
    let leaf = match leaf {
        "gamma" | "embedding_table" | "w" => "weight",
        "beta" => "bias",
        "moving_mean" => "running_mean",
        "moving_variance" => "running_var",
        leaf => leaf,
    };
    precast_base::path::join(cell.trim_end_matches(".bn2d"), leaf)
}

/// Returns a policy with MindSpore's own lists.
///
/// # Errors
/// As [`Policy::from_pack`].
pub fn mindspore(level: Level, low: DType) -> Result<Policy> {
    Policy::from_pack(level, low, Pack::named("mindspore-2.10")?)
}

/// Lowers a network and returns the last plan.
fn lower(net: &mut Child, lowering: &Lowering, low: DType, kit: Kit) -> Result<Plan> {
    let applied = match lowering {
        Lowering::Level(level) => mindspore(*level, low)?.apply(net)?,
        Lowering::White(names) => custom_mixed_precision(net, CustomLists::White(list(names, true, kit)?), low)?,
        Lowering::Black(names) => custom_mixed_precision(net, CustomLists::Black(list(names, false, kit)?), low)?,
        Lowering::Twice(first, second) => {
            let _first = mindspore(*first, low)?.apply(net)?;
            mindspore(*second, low)?.apply(net)?
        }
    };
    Ok(applied.plan)
}

/// Parses a custom list, white or black, as in the file: classes of cells, and ops as `ops.MatMul`.
fn list(names: &[String], white: bool, kit: Kit) -> Result<Lists> {
    names.iter().try_fold(Lists::new(), |lists, name| {
        let kind = if kit == Kit::Library && name == "SequentialCell" { "Sequential" } else { name };
        match (name.strip_prefix("ops."), white) {
            (Some(op), true) => lists.low_op(&format!("mindspore:{op}")),
            (Some(op), false) => lists.full_op(&format!("mindspore:{op}")),
            (None, true) => Ok(lists.low(kind)),
            (None, false) => Ok(lists.full(kind)),
        }
    })
}
