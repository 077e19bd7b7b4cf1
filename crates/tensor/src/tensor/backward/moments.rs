//! Moments of a backward pass, for those who use gradients before it ends.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    mem,
};

use super::{Parameters, Widened};
use crate::{
    Grads, Param, Tensor,
    error::Result,
    tensor::{LeafId, Place},
};

/// A moment of a backward pass; see [`Tensor::into_grads_with`].
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum Moment<'a> {
    /// The gradients of the inputs of an op have been computed.
    Op,
    /// The last part of the gradient of a parameter has arrived.
    #[non_exhaustive]
    Final {
        /// Path among the parameters.
        path: &'a str,
        /// The parameter.
        param: &'a Param,
        /// The gradient, in the dtype of the parameter.
        grad: &'a Tensor,
    },
}

impl Tensor {
    /// Computes gradients as [`into_grads`](Tensor::into_grads) does, and calls `hook` after each op, and for each of these
    /// parameters once its gradient is final: to send it on while the others are computed, for example. The last layers
    /// come first. A parameter that the loss does not depend on has no call.
    ///
    /// ```
    /// # use precast_tensor as precast;
    /// use precast::{DType, Moment, Param, Tensor};
    /// let params = ["first", "last"].map(|path| (path, Param::new(Tensor::ones(&[2], DType::F32))));
    /// let [first, last] = params.each_ref().map(|(_, param)| param.tensor());
    /// let loss = first.relu()?.mul(&last)?.mean_all()?;
    /// let mut order = Vec::new();
    /// let named = params.iter().map(|(path, param)| (*path, param));
    /// let grads = loss.into_grads_with(named, |moment| {
    ///     if let Moment::Final { path, .. } = moment {
    ///         order.push(path.to_string());
    ///     }
    ///     Ok(())
    /// })?;
    /// assert_eq!(grads.len(), 2);
    /// assert_eq!(order, ["last", "first"]);
    /// # Ok::<(), precast::Error>(())
    /// ```
    ///
    /// # Errors
    /// Those of [`backward`](Tensor::backward), and those of `hook`, which end the pass.
    pub fn into_grads_with<'p>(
        self,
        params: impl IntoIterator<Item = (&'p str, &'p Param)>,
        mut hook: impl FnMut(Moment<'_>) -> Result<()>,
    ) -> Result<Grads> {
        let by_leaf: HashMap<LeafId, (&str, &Param)> =
            params.into_iter().map(|(path, param)| (param.id(), (path, param))).collect();
        self.walk(
            Parameters::Stay,
            Some(&mut |moment| match moment {
                Walked::Op => hook(Moment::Op),
                Walked::Final(leaf, grads) => match (by_leaf.get(&leaf), grads.lying(leaf)) {
                    (Some(&(path, param)), Some(grad)) => hook(Moment::Final { path, param, grad }),
                    _ => Ok(()),
                },
            }),
        )
    }

    /// Computes gradients as [`into_grads`](Tensor::into_grads) does, and calls `hook` for each leaf once its gradient is
    /// final. The hook may take the gradient out and change the parameter.
    pub(crate) fn into_grads_taken(self, mut hook: impl FnMut(LeafId, &mut Grads) -> Result<()>) -> Result<Grads> {
        let mut taking = |moment: Walked<'_>| match moment {
            Walked::Op => Ok(()),
            Walked::Final(leaf, grads) => hook(leaf, grads),
        };
        self.walk(Parameters::Change, Some(&mut taking))
    }
}

/// Function called during a walk.
pub(super) type Hook<'a> = &'a mut dyn FnMut(Walked<'_>) -> Result<()>;

/// A moment of a walk.
pub(super) enum Walked<'a> {
    Op,
    Final(LeafId, &'a mut Grads),
}

/// A hook, with the number of parts that may still arrive at each leaf.
pub(super) struct Counted<'a> {
    hook: Hook<'a>,
    parts: BTreeMap<LeafId, usize>,
}

impl<'a> Counted<'a> {
    pub fn new(hook: Hook<'a>, start: &Place) -> Self {
        let (mut parts, mut seen) = (BTreeMap::new(), HashSet::new());
        let mut pending = vec![start.clone()];
        while let Some(place) = pending.pop() {
            match place {
                Place::None => {}
                Place::Leaf(id) => *parts.entry(id).or_default() += 1,
                Place::Node(node) if seen.insert(node.id) => pending.extend(node.inputs.iter().cloned()),
                Place::Node(_) => {}
            }
        }
        Counted { hook, parts }
    }

    /// Calls the hook after the backward pass of a node with these leaves among its inputs.
    pub fn after(&mut self, inputs: &[LeafId], grads: &mut Grads, widened: &mut Widened<'_>) -> Result<()> {
        for &id in inputs {
            if let Some(parts) = self.parts.get_mut(&id) {
                *parts -= 1;
                if *parts == 0 {
                    self.parts.remove(&id);
                    self.is_final(id, grads, widened)?;
                }
            }
        }
        (self.hook)(Walked::Op)
    }

    /// Calls the hook for the leaves that some op gave no gradient, at the end of the walk.
    pub fn end(&mut self, grads: &mut Grads, widened: &mut Widened<'_>) -> Result<()> {
        mem::take(&mut self.parts).into_keys().try_for_each(|id| self.is_final(id, grads, widened))
    }

    fn is_final(&mut self, id: LeafId, grads: &mut Grads, widened: &mut Widened<'_>) -> Result<()> {
        widened.round(id, grads);
        if grads.lying(id).is_some() { (self.hook)(Walked::Final(id, grads)) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{DType, Error};

    /// A weight in f16 that is read three times, one in f32 that is read twice by one op, and one that is not read.
    #[test]
    fn each_gradient_is_final_once_and_has_its_value() {
        let low = Param::new(Tensor::full(&[3], 0.1, DType::F16));
        let twice = Param::new(Tensor::full(&[3], 0.3, DType::F32));
        let unread = Param::new(Tensor::ones(&[3], DType::F32));
        let params = [("twice", twice.clone()), ("low", low.clone()), ("unread", unread)];
        let params = || params.iter().map(|(path, param)| (*path, param));
        let loss = || -> Result<Tensor> {
            let x = low.tensor().mul(&Tensor::full(&[3], 1.7, DType::F16))?.add(&low.tensor())?.mul(&low.tensor())?;
            x.cast(DType::F32).mul(&twice.tensor().mul(&twice.tensor())?)?.sum_all()
        };
        let (mut ops, mut met) = (0, Vec::new());
        let hook = |moment: Moment<'_>| {
            match moment {
                Moment::Op => ops += 1,
                Moment::Final { path, grad, .. } => met.push((path.to_string(), grad.dtype(), grad.to_f64())),
            }
            Ok(())
        };
        let grads = loss().unwrap().into_grads_with(params(), hook).unwrap();
        let expected = loss().unwrap().into_grads().unwrap();
        met.sort_by(|a, b| a.0.cmp(&b.0));
        let all: Vec<_> = params().filter_map(|(path, param)| Some((path, expected.get(param)?))).collect();
        let mut all: Vec<_> = all.iter().map(|(path, grad)| (path.to_string(), grad.dtype(), grad.to_f64())).collect();
        all.sort_by(|a, b| a.0.cmp(&b.0));
        assert_eq!(met, all);
        assert_eq!((met.len(), grads.len()), (2, 2));
        assert_eq!(ops, 7);
        let error = loss().unwrap().into_grads_with(params(), |_| Err(Error::value("enough"))).unwrap_err();
        assert_eq!(error.to_string(), "enough");
    }
}
