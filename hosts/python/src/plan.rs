//! Plans and their differences.

use std::collections::HashMap;

use precast_base::Error;
use precast_policy::{
    self as engine,
    catalogue::System,
    kinds,
    plan::{Decision, Exporter, Region},
};
use pyo3::prelude::*;

use crate::{
    error::{OrRaise, raised},
    policy::Class,
};

/// The precision of each module of a network, with the reasons.
#[pyclass(frozen, eq, module = "precast._engine")]
#[derive(PartialEq)]
pub struct Plan(pub engine::Plan);

/// A decision: path, kind, region, its dtype, the dtype of outputs where something is cast, whether it is recomputed, effect,
/// reason, and the claims that were overridden.
type Row =
    (String, String, &'static str, Option<&'static str>, Option<&'static str>, bool, String, String, Vec<String>);

/// A module: region, its dtype, whether the precision changes at its border, the dtype of outputs where something is cast, and
/// whether it is recomputed.
type Run = (&'static str, Option<&'static str>, bool, Option<&'static str>, bool);

/// Returns a region in two words.
fn region(run: Region) -> (&'static str, Option<&'static str>) {
    match run {
        Region::AsIs => ("as is", None),
        Region::Lists(dtype) => ("lists", Some(dtype.long_name())),
        Region::Fixed(dtype) => ("fixed", Some(dtype.long_name())),
        Region::Except(dtype) => ("except", Some(dtype.long_name())),
        _ => ("unknown", None),
    }
}

/// Returns the dtype to which outputs are cast.
fn outward(decision: &Decision) -> Option<&'static str> {
    Some(decision.adapter.as_ref()?.cast()?.outward.long_name())
}

#[pymethods]
impl Plan {
    /// Returns all decisions, in the order of the modules.
    fn decisions(&self) -> Vec<Row> {
        let row = |decision: &Decision| {
            let (run, dtype) = region(decision.run);
            let overridden = decision.overridden.iter().map(ToString::to_string).collect();
            let recompute = decision.recompute.is_some();
            let (path, kind, because) =
                (decision.path.clone(), decision.kind.to_string(), decision.because.to_string());
            (path, kind, run, dtype, outward(decision), recompute, decision.effect(), because, overridden)
        };
        self.0.decisions.iter().map(row).collect()
    }

    /// Returns the precision of all modules, in order.
    fn runs(&self) -> Vec<Run> {
        let run = |decision: &Decision| {
            let (run, dtype) = region(decision.run);
            (run, dtype, decision.adapter.is_some(), outward(decision), decision.recompute.is_some())
        };
        self.0.decisions.iter().map(run).collect()
    }

    /// Returns the paths of the modules with quantized operands, and their recipes.
    fn operands(&self) -> Vec<(&str, String)> {
        let quantized = |decision: &Decision| Some(decision.quantized()?.to_string());
        self.0.decisions.iter().filter_map(|decision| Some((decision.path.as_str(), quantized(decision)?))).collect()
    }

    /// Returns the paths and kinds of all modules.
    fn cells(&self) -> Vec<(&str, &str)> {
        self.0.decisions.iter().map(|decision| (decision.path.as_str(), decision.kind.as_ref())).collect()
    }

    /// Returns the tree, in lines of at most `width` columns.
    #[pyo3(signature = (width = None))]
    fn tree(&self, width: Option<usize>) -> String {
        width.map_or_else(|| self.0.to_string(), |width| self.0.tree_within(width))
    }

    /// Returns the explanation of the decision for the module at a path.
    fn explain(&self, path: &str) -> PyResult<String> {
        self.0.explain(path).map(|explanation| explanation.to_string()).or_raise()
    }

    /// Compares two plans.
    fn diff(&self, other: &Plan) -> Diff {
        Diff(self.0.diff(&other.0))
    }

    /// Returns the plan as JSON, as `precast plan --format json` prints it.
    fn to_json(&self) -> PyResult<String> {
        serde_json::to_string_pretty(&self.0).map_err(|error| raised(&Error::value(error.to_string())))
    }

    /// Returns the file of another library, and what it cannot say. The classes are those of the modules, with their bases.
    fn export(&self, to: &str, classes: Vec<Class>) -> PyResult<(String, Vec<String>)> {
        let exporter = to.parse::<Exporter>().or_raise()?;
        let here: HashMap<&str, Vec<&'static str>> = kinds::of(System::Torch).into_iter().collect();
        let named = classes.iter().filter_map(|(kind, bases)| {
            let found = std::iter::once(kind).chain(bases).find_map(|name| here.get(name.as_str()));
            Some((kind.as_str(), *found?.first()?))
        });
        let named: HashMap<&str, &'static str> = named.collect();
        let mut plan = self.0.clone();
        for decision in &mut plan.decisions {
            if let Some(kind) = named.get(&*decision.kind) {
                decision.kind = (*kind).into();
            }
        }
        let exported = plan.export(exporter);
        Ok((exported.text, exported.cannot_say))
    }

    /// Returns the level, such as `O2`.
    #[getter]
    fn level(&self) -> String {
        self.0.policy.level.to_string()
    }

    /// Returns the low dtype.
    #[getter]
    fn dtype(&self) -> &'static str {
        self.0.policy.dtype.long_name()
    }

    /// Returns the pack of lists.
    #[getter]
    fn pack(&self) -> Option<&str> {
        self.0.policy.pack.as_deref()
    }

    fn __str__(&self) -> String {
        self.0.to_string()
    }
}

/// The modules about which two plans decide differently.
#[pyclass(frozen, module = "precast._engine")]
pub struct Diff(engine::plan::Diff);

#[pymethods]
impl Diff {
    /// Returns path, effect before and effect after of each change; `None` where there is no such module.
    #[getter]
    fn changes(&self) -> Vec<(&str, Option<String>, Option<String>)> {
        let effect = |decision: &Option<Decision>| decision.as_ref().map(Decision::effect);
        let changes = self.0.changes.iter();
        changes.map(|change| (change.path.as_str(), effect(&change.before), effect(&change.after))).collect()
    }

    fn __len__(&self) -> usize {
        self.0.changes.len()
    }

    fn __str__(&self) -> String {
        self.0.to_string()
    }
}
