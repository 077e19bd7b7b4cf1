//! Gradients as ranks divide them and put them together.

use super::Grads;
use crate::{Param, Tensor, tensor::pass::Pass};

impl Grads {
    /// Creates gradients of parameters, which are the sums over ranks; see
    /// [`ScaledGrads::of_ranks`](crate::scale::ScaledGrads::of_ranks).
    pub(crate) fn of_ranks<'a>(sums: impl Iterator<Item = (&'a Param, Tensor, bool)>, refused: Option<String>) -> Self {
        let mut grads = Grads { passes: refused.map(Pass::refusing).into_iter().collect(), ..Grads::default() };
        for (param, sum, through_f16) in sums {
            if through_f16 {
                grads.came_through_f16(param.id());
            }
            grads.put(param.id(), sum);
        }
        grads
    }

    /// Returns whether the gradient of a parameter came out of an op in f16.
    pub(crate) fn is_through_f16(&self, param: &Param) -> bool {
        self.through_f16.contains(&param.id())
    }

    /// Forgets the order in which gradients arrived.
    pub(crate) fn forget_arrivals(&mut self) {
        self.arrivals.clear();
    }

    /// Returns the gradients of these parameters alone.
    pub fn only(&self, params: &[&Param]) -> Grads {
        let by_leaf = params.iter().filter_map(|param| Some((param.id(), self.by_leaf.get(&param.id())?.clone())));
        Grads { by_leaf: by_leaf.collect(), ..self.clone() }
    }
}
