//! The `VarBuilder` that a network is built from: it hands out each variable in its planned dtype, and says to wrappers
//! which casts the plan has for their path.

use std::{
    collections::{HashMap, HashSet},
    sync::{Arc, Mutex},
};

use candle_core::{DType, Device, Result, Shape, Tensor};
use candle_nn::{Init, VarBuilder, VarMap, var_builder::SimpleBackend};
use precast_base::printable;
use precast_policy::{
    self as policy, Plan,
    infer::CONTAINER,
    plan::{Decision, Region},
    weights::cell_of,
};

use crate::{
    dtype::{cast, is_castable, to_candle},
    learned::Learned,
};

/// The casts at the border of a cell; `None` where tensors pass as they are.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Border {
    /// Dtype inside the cell: that of its inputs and variables.
    pub inward: Option<DType>,
    /// Dtype of its outputs.
    pub outward: Option<DType>,
}

/// The border of each cell, by path.
pub(crate) type Borders = HashMap<String, Border>;

/// Name under which a wrapper asks for its border. No variable can have it, and no other backend answers.
const QUESTION: &str = "\u{1}precast border of ";

const CODES: [DType; 3] = [DType::F32, DType::F16, DType::BF16];

impl Border {
    /// Returns the borders of a plan.
    pub fn of(plan: &Plan) -> Borders {
        let borders = plan.decisions.iter().map(|decision| {
            let inside = decision.run.dtype();
            let outward = match decision.adapter.as_ref().and_then(|adapter| adapter.cast()) {
                Some(cast) => Some(cast.outward),
                // A plan of O0 has no adapters, and `to_float` holds nevertheless.
                None if changes(plan, decision) => Some(around(plan, decision).dtype().unwrap_or(policy::DType::F32)),
                None => inside,
            };
            let inward = inside.and_then(to_candle);
            (decision.path.clone(), Border { inward, outward: outward.and_then(to_candle) })
        });
        borders.collect()
    }

    /// Asks a `VarBuilder` for the border of the cell at its path, whose kind is the name of the type `M`. From a builder
    /// that is not a network's, tensors pass as they are.
    pub fn at<M>(vb: &VarBuilder) -> Border {
        let Ok(answer) = vb.get_unchecked_dtype(&format!("{QUESTION}{}", kind_of::<M>()), DType::U8) else {
            return Border::default();
        };
        let codes = answer.to_vec1::<u8>().unwrap_or_default();
        let dtype = |i: usize| codes.get(i).and_then(|&code| CODES.get(usize::from(code)).copied());
        Border { inward: dtype(0), outward: dtype(1) }
    }

    fn answer(self) -> Result<Tensor> {
        let code = |dtype: Option<DType>| {
            let position = CODES.iter().position(|&one| Some(one) == dtype);
            position.unwrap_or(CODES.len()) as u8
        };
        Tensor::new(&[code(self.inward), code(self.outward)], &Device::Cpu)
    }
}

/// Returns whether a cell runs in another dtype than the cell around it.
pub(crate) fn changes(plan: &Plan, decision: &Decision) -> bool {
    decision.run.dtype().is_some() && decision.run != around(plan, decision)
}

/// Returns the precision around a cell.
fn around(plan: &Plan, decision: &Decision) -> Region {
    let path = decision.path.as_str();
    let mut above = path.rmatch_indices('.').map(|(dot, _)| &path[..dot]).chain((!path.is_empty()).then_some(""));
    above.find_map(|above| plan.decision(above).ok()).map_or(Region::AsIs, |above| above.run)
}

/// Returns the name of a type without its path and parameters; that of the wrapped type for an `Amp`.
pub(crate) fn kind_of<M>() -> &'static str {
    let mut name = std::any::type_name::<M>();
    loop {
        let (outer, inside) = name.split_once('<').unwrap_or((name.trim_end_matches('>'), ""));
        match outer.rsplit("::").next() {
            Some("Amp") if !inside.is_empty() => name = inside,
            Some(last) if last.chars().all(|c| c.is_alphanumeric() || c == '_') && !last.is_empty() => {
                return last;
            }
            // A tuple, or a trait object.
            _ => return CONTAINER,
        }
    }
}

/// Backend of the `VarBuilder` of a network.
pub(crate) struct Backend {
    pub vars: VarMap,
    pub borders: Arc<Borders>,
    pub mode: Mode,
}

/// Use of a [`Backend`].
pub(crate) enum Mode {
    /// Collects what the constructor asks for.
    Learn(Arc<Mutex<Learned>>),
    /// Builds a network of the variables with these names.
    Build(Arc<HashSet<String>>),
}

impl Backend {
    /// Returns a variable in the dtype of its cell. A variable that is not an f32 has a dtype that its code asked for.
    fn planned(&self, name: &str, variable: &Tensor) -> Result<Tensor> {
        self.learn(|learned| learned.variable(name, variable));
        let border = self.borders.get(cell_of(name).0).copied().unwrap_or_default();
        if variable.dtype() == DType::F32 { cast(variable, border.inward) } else { Ok(variable.clone()) }
    }

    fn learn(&self, note: impl FnOnce(&mut Learned)) {
        if let Mode::Learn(learned) = &self.mode {
            note(&mut learned.lock().unwrap_or_else(|poisoned| poisoned.into_inner()));
        }
    }

    /// Refuses a variable of which the plan does not know.
    fn check(&self, name: &str) -> Result<()> {
        match &self.mode {
            Mode::Build(names) if !names.contains(name) => candle_core::bail!(
                "the constructor asks for `{}`, and did not when the network was learned: it asks for the same variables in \
                 every run",
                printable(name)
            ),
            _ => Ok(()),
        }
    }

    fn find(&self, name: &str) -> Option<Tensor> {
        let vars = self.vars.data().lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        vars.get(name).map(|var| var.as_tensor().clone())
    }
}

impl SimpleBackend for Backend {
    fn get(&self, shape: Shape, name: &str, init: Init, dtype: DType, device: &Device) -> Result<Tensor> {
        self.check(name)?;
        // `vb.dtype()` is that of the planned network, and variables are f32 nevertheless.
        let dtype = if is_castable(dtype) { DType::F32 } else { dtype };
        let variable = self.vars.get(shape, name, init, dtype, device)?;
        self.planned(name, &variable)
    }

    fn get_unchecked(&self, name: &str, _: DType, _: &Device) -> Result<Tensor> {
        if let Some((path, kind)) = name.split_once(QUESTION) {
            let path = path.strip_suffix('.').unwrap_or(path);
            self.learn(|learned| learned.border(path, kind));
            return self.borders.get(path).copied().unwrap_or_default().answer();
        }
        self.check(name)?;
        match self.find(name) {
            Some(variable) => self.planned(name, &variable),
            None => candle_core::bail!("no variable `{}`", printable(name)),
        }
    }

    fn contains_tensor(&self, name: &str) -> bool {
        self.find(name).is_some()
    }
}
