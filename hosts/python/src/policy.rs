//! Policies, and plans made from them.

use std::{collections::HashMap, path::PathBuf};

use precast_base::{DType, Error, ErrorKind};
use precast_policy::{
    self as engine, Level, Outline, OutlinedCell,
    catalogue::System,
    kinds,
    plan::Summary,
    policy::{Entry, Origin, Rule, RunAs},
};
use pyo3::prelude::*;

use crate::{
    error::{OrRaise, raised},
    plan::Plan,
    scale::ScaleMachine,
};

/// The requested precision of a network.
#[pyclass(frozen, eq, module = "precast._engine")]
#[derive(PartialEq)]
pub struct Policy(engine::Policy);

/// A class of modules: its name, and the names of its bases, nearest first.
pub type Class = (String, Vec<String>);

/// Modules, a list for each fact: path, number of modules above, place of the class, and shapes of parameters with two axes or
/// more. Python makes lists of plain values in half of the time of tuples.
type Modules = (Vec<String>, Vec<usize>, Vec<usize>, Vec<Vec<Vec<usize>>>);

#[pymethods]
impl Policy {
    /// Reads a policy file.
    #[staticmethod]
    fn load(path: PathBuf) -> PyResult<Self> {
        engine::Policy::load(path).map(Policy).or_raise()
    }

    /// Reads the text of a policy file; `name` is that of the file in errors.
    #[staticmethod]
    fn parse(text: &str, name: &str) -> PyResult<Self> {
        engine::Policy::parse(text, name).map(Policy).or_raise()
    }

    /// Returns a policy that ships, such as `o2-bf16`.
    #[staticmethod]
    fn named(name: &str) -> PyResult<Self> {
        engine::Policy::named(name).map(Policy).or_raise()
    }

    /// Returns the names of the policies that ship.
    #[staticmethod]
    fn names() -> Vec<&'static str> {
        engine::Policy::names().collect()
    }

    /// Returns the text of an equivalent policy file.
    fn to_yaml(&self) -> PyResult<String> {
        self.0.to_yaml().or_raise()
    }

    /// Returns the level, such as `O2`.
    #[getter]
    fn level(&self) -> String {
        self.0.level.to_string()
    }

    /// Returns the low dtype: `float16` or `bfloat16`.
    #[getter]
    fn dtype(&self) -> &'static str {
        self.0.dtype.long_name()
    }

    /// Returns the name of the pack of lists; `None` for lists given in code.
    #[getter]
    fn pack(&self) -> Option<&str> {
        self.0.pack.as_deref()
    }

    /// Returns the policy after a number of steps: without the rules that have ended.
    fn after_steps(&self, steps: usize) -> Self {
        Policy(self.0.after_steps(steps))
    }

    /// Returns the numbers of steps after which rules end.
    fn ends(&self) -> Vec<usize> {
        self.0.ends().into_iter().collect()
    }

    /// Decides for every module.
    fn plan(&self, py: Python<'_>, classes: Vec<Class>, modules: Modules) -> PyResult<Plan> {
        py.detach(|| {
            check(&self.0)?;
            self.0.plan_outline(outline(classes, modules)?)
        })
        .map(Plan)
        .or_raise()
    }

    /// Returns a loss scale as the policy specifies it.
    fn loss_scale(&self) -> PyResult<ScaleMachine> {
        ScaleMachine::new(&self.0)
    }

    fn __str__(&self) -> String {
        Summary::from(&self.0).to_string()
    }
}

/// Refuses the rules that torch has no means for.
fn check(policy: &engine::Policy) -> Result<(), Error> {
    let asks = |rule: &Rule| match rule {
        Rule { raise_after_stall: true, .. } => {
            Some("raises a cell after a stall; apply a plan with `run: float32` for it when `step` reports a stall")
        }
        Rule { run: Some(RunAs::LowForward), .. } => Some(
            "asks for gradients of weights in float32, which torch does not compute from low products; use `low` or `float32`",
        ),
        Rule { kept: Some(kept), .. } if kept.format().is_some() => {
            Some("keeps activations in 8 bits, which networks of precast do; `checkpoint: true` saves memory in torch")
        }
        _ => None,
    };
    let refused = |rule: &Rule| asks(rule).map(|asks| (rule.origin.clone(), rule.select.to_string(), asks));
    let by_hand = |entry: &&Entry| !matches!(entry.origin, Origin::Pack(_));
    if let Some((op, entry)) = policy.lists.ops().iter().find(|(_, entry)| by_hand(entry)) {
        let words = format!(
            "the op `{op}` is on a list, and `torch.autocast` has lists of its own; write a rule for the module that calls it"
        );
        return Err(entry.origin.error(Error::new(ErrorKind::Unsupported, words)));
    }
    match policy.rules.iter().filter(|_| policy.level != Level::O0).find_map(refused) {
        None => Ok(()),
        Some((origin, select, asks)) => {
            Err(origin.error(Error::new(ErrorKind::Unsupported, format!("the rule for {select} {asks}"))))
        }
    }
}

/// Returns the outline of modules in the order of a traversal. A class of torch also has the name of its kind here, so that a
/// file is the same for both.
fn outline(classes: Vec<Class>, (paths, depths, places, weights): Modules) -> Result<Outline, Error> {
    let here: HashMap<&str, Vec<&str>> = kinds::of(System::Torch).into_iter().collect();
    let with_names_here = |(kind, bases): Class| {
        let mut further: Vec<String> = Vec::new();
        for name in [vec![kind.clone()], bases].concat() {
            let names = here.get(name.as_str()).into_iter().flatten().map(ToString::to_string);
            let names = std::iter::once(name.clone()).chain(names).filter(|name| *name != kind);
            further.extend(names);
        }
        (kind, further)
    };
    let classes: Vec<Class> = classes.into_iter().map(with_names_here).collect();
    if [depths.len(), places.len(), weights.len()] != [paths.len(); 3] {
        return Err(Error::value(format!("the facts about {} modules have other lengths", paths.len())));
    }
    let facts = paths.into_iter().zip(depths).zip(places.into_iter().zip(weights));
    let cells = facts.map(|((path, depth), (class, weights))| {
        let (kind, bases) =
            classes.get(class).ok_or_else(|| Error::value(format!("class {class} of {}", classes.len())))?;
        let mut cell = OutlinedCell::new(path, kind.clone()).bases(bases.clone());
        cell.depth = depth;
        if bases.iter().any(|base| base == "Quantized") {
            cell = cell.to_float(DType::F32);
        }
        Ok(weights.iter().fold(cell, |cell, shape| cell.weight(shape)))
    });
    let outline = Outline::walked(cells.collect::<Result<_, Error>>()?).system(System::Torch);
    let known = kinds::of(System::Torch).into_iter().flat_map(|(there, here)| [vec![there], here].concat());
    let classes = classes.into_iter().flat_map(|(kind, bases)| std::iter::once(kind).chain(bases));
    Ok(outline.kinds(known.map(String::from).chain(classes)))
}

impl ScaleMachine {
    fn new(policy: &engine::Policy) -> PyResult<Self> {
        engine::scale::ScaleMachine::new(policy.loss_scale.clone())
            .map(ScaleMachine::from)
            .map_err(|error| raised(&error))
    }
}
