//! Muon for matrices and AdamW for the rest, as one optimizer.

use precast_tensor::internals::GradsInternals as _;
use std::{
    collections::{BTreeMap, HashSet},
    fmt,
};

use super::{Group, Optimizer, OptimizerState, no_member, overflow::Overflow, rule::Rule, trained::Trained};
use crate::{
    Grads,
    cell::Params,
    error::{Error, Result},
};

/// Two optimizers with one learning rate, each over its own parameters.
struct Beside<M, O> {
    params: Params,
    matrices: Trained<M>,
    others: Trained<O>,
}

/// Combines two optimizers that train no parameter in common. The learning rate is that of the first.
pub(super) fn beside<M: Rule + 'static, O: Rule + 'static>(
    matrices: Trained<M>,
    mut others: Trained<O>,
) -> Box<dyn Optimizer> {
    others.lr = matrices.lr;
    let params = matrices.params.clone().and(others.params.clone());
    Box::new(Beside { params, matrices, others })
}

/// Returns the name of the combined state.
fn name<M: Rule, O: Rule>() -> String {
    format!("{}+{}", M::NAME, O::NAME)
}

impl<M: Rule, O: Rule> Optimizer for Beside<M, O> {
    fn params(&self) -> &Params {
        &self.params
    }

    fn update(&mut self, grads: &Grads) -> Result<()> {
        let Beside { matrices, others, .. } = self;
        // One of them may have nothing to do. If both do, the first reports it.
        let (all_matrices, all_others) = (matrices.all(), others.all());
        let of_matrices = matrices.has_gradients(grads, all_matrices.clone());
        let of_others = others.has_gradients(grads, all_others.clone());
        if of_matrices || !of_others {
            matrices.check()?;
            matrices.prepare(grads, all_matrices.clone())?;
        }
        if of_others {
            others.check()?;
            others.prepare(grads, all_others.clone())?;
        }
        grads.warn_of_late(self.params.iter().map(|(_, param)| param));
        let mut overflows = Vec::new();
        if of_matrices {
            overflows.extend(matrices.apply(grads, all_matrices));
        }
        if of_others {
            overflows.extend(others.apply(grads, all_others));
        }
        Overflow::check(&overflows)
    }

    fn update_one(&mut self, place: usize, grads: &Grads) -> Result<()> {
        match place.checked_sub(self.matrices.params.len()) {
            None => self.matrices.update_one(place, grads),
            Some(place) => self.others.update_one(place, grads),
        }
    }

    fn check(&self) -> Result<()> {
        self.matrices.check()?;
        self.others.check()
    }

    fn lr(&self) -> f64 {
        self.matrices.lr
    }

    fn set_lr(&mut self, lr: f64) {
        self.matrices.lr = lr;
        self.others.lr = lr;
    }

    fn set_group(&mut self, pattern: &str, group: Group) -> Result<()> {
        let (of_matrices, of_others) = (self.matrices.joins(pattern, group)?, self.others.joins(pattern, group)?);
        if of_matrices || of_others { Ok(()) } else { Err(no_member(pattern, &self.params)) }
    }

    fn state(&self) -> OptimizerState {
        let (mut state, others) = (self.matrices.state(), self.others.state());
        state.optimizer = name::<M, O>();
        state.steps.extend(others.steps);
        state.tensors.extend(others.tensors);
        state
    }

    fn restore(&mut self, state: OptimizerState) -> Result<()> {
        let OptimizerState { optimizer, steps, tensors } = state;
        let this = name::<M, O>();
        if optimizer != this {
            return Err(Error::value(format!("the state is one of the optimizer `{optimizer}`; this is `{this}`")));
        }
        let matrices: HashSet<&str> = self.matrices.params.iter().map(|(path, _)| path).collect();
        let is_matrix = |path: &str| matrices.contains(path);
        let (of_matrices, of_others): (BTreeMap<_, _>, _) = steps.into_iter().partition(|(path, _)| is_matrix(path));
        let owner = |name: &str| is_matrix(name.rsplit_once('/').map_or(name, |(path, _)| path));
        let (matrices, others) = tensors.into_iter().partition(|(name, _)| owner(name));
        let state = |name: &str, steps, tensors| OptimizerState { optimizer: name.into(), steps, tensors };
        let matrices = self.matrices.restored(state(M::NAME, of_matrices, matrices))?;
        let others = self.others.restored(state(O::NAME, of_others, others))?;
        (self.matrices.memory, self.others.memory) = (matrices, others);
        Ok(())
    }
}

impl<M, O> fmt::Debug for Beside<M, O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} beside {:?}", self.matrices, self.others)
    }
}
