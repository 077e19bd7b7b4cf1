//! Copies of networks that share nothing with the original, and target networks that follow it.

use std::collections::{HashMap, HashSet};

use precast_tensor::{LeafId, context, internals::ParamInternals as _};

use super::{AsCell, Child, Copies, InSlot, Member, PartMut, SlotMut, no_such_path};
use crate::{
    DType, Param, Tensor,
    error::{Error, Result},
    no_grad,
    precision::{self, Frame},
};

impl Copies {
    /// Returns a copy of a [`Member`] that is `Clone`: its clone, with copies of its parameters and of those in its
    /// cells.
    pub fn of_clone<M: Member + Clone>(&mut self, member: &M) -> M {
        fn replace(copies: &mut Copies, part: PartMut<'_>) {
            match part {
                PartMut::Param(param) => *param = copies.param(param),
                PartMut::Cell(SlotMut { cell, .. }) => cell.visit_mut(&mut |_, part| replace(copies, part)),
            }
        }
        let mut copy = member.clone();
        copy.visit_mut("", &mut |_, part| replace(self, part));
        copy
    }
}

/// A move of a value towards another by a share of the way.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Towards(f64);

impl Towards {
    /// Checks a share.
    pub fn new(name: &str, share: f64) -> Result<Self> {
        match (0.0..=1.0).contains(&share) {
            true => Ok(Towards(share)),
            false => Err(Error::value(format!("the {name} is {share}; allowed: 0 to 1"))),
        }
    }

    /// Checks the share that is left, and moves by the rest.
    pub fn rest(name: &str, left: f64) -> Result<Self> {
        Towards::new(name, left).map(|Towards(left)| Towards(1.0 - left))
    }

    /// Returns a move by at least this share.
    pub fn at_least(self, share: f64) -> Self {
        Towards(self.0.max(share))
    }

    /// Returns `(1 - share) * from + share * to` of equal shapes, in at least f32. Both ends are exact.
    pub fn of(self, from: &Tensor, to: &Tensor) -> Result<Tensor> {
        if from.shape() != to.shape() {
            return Err(Error::shape(format!("a value of shape {:?} moves towards {:?}", from.shape(), to.shape())));
        }
        let _hidden = context::enter_op();
        let _off = precision::enter(Frame::Off);
        let wide = |x: &Tensor| x.cast(if from.dtype() == DType::F64 { DType::F64 } else { x.dtype().wide() });
        let (from, to) = (wide(from), wide(to));
        no_grad(|| match self.0 {
            0.0 => Ok(from.clone()),
            1.0 => Ok(to.clone()),
            share => from.add(&to.sub(&from)?.mul(&Tensor::scalar(share, from.dtype()))?),
        })
    }
}

impl<C: ?Sized + AsCell> Child<C> {
    /// Copies the network with its weights: the two share nothing. Parameters that are tied in one are tied in the
    /// other; masters, frozen parameters, counters of dropouts, requests and the adapters of a plan are copied as well.
    ///
    /// A clone of a slot shares the parameters instead: it is the same layer in a second place.
    ///
    /// ```
    /// use precast::prelude::*;
    /// let online = Child::new(Dense::new(2, 2, &mut Rng::seed(1)));
    /// let target = online.deep_copy()?;
    /// target.freeze("**")?;                       // a target network has no gradients
    /// let zero = Tensor::zeros(&[2, 2], DType::F32);
    /// online.cell().weight.set(&zero)?;           // a step of training
    /// target.soft_update(&online, 0.01)?;         // 99 parts of the target and 1 of the other
    /// assert_ne!(target.cell().weight.value().to_f64(), zero.to_f64());
    /// # Ok::<(), precast::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`ErrorKind::Value`](crate::ErrorKind::Value) for a cell with plain data that is not `Clone`, and for one with a
    /// [`Member`] written by hand without [`copied`](Member::copied).
    #[doc(alias = "deepcopy")]
    pub fn deep_copy(&self) -> Result<Self>
    where
        Self: Sized,
    {
        let mut copy = self.copied_with(&mut Copies::default())?;
        if self.site.is_some() {
            copy.number_adapters();
        }
        Ok(copy)
    }

    pub(super) fn copied_with(&self, copies: &mut Copies) -> Result<Self> {
        let Child { to_float, recompute, planned, cell, .. } = self;
        let cell: Box<InSlot<C>> = AsCell::copied(&**cell, copies)?;
        Ok(Child { to_float: *to_float, recompute: *recompute, planned: planned.clone(), site: None, cell })
    }

    /// Moves every parameter towards that of another network of the same structure, `(1 - share) * self + share *
    /// other`, and copies the buffers. With a `share` of 1 the values are equal. A parameter stored low is rounded once,
    /// so that small shares are lost unless it has a master.
    ///
    /// # Errors
    /// [`ErrorKind::Value`](crate::ErrorKind::Value) for a share outside 0 to 1, and for networks that share all their
    /// parameters;
    /// [`ErrorKind::Path`](crate::ErrorKind::Path) when a parameter of one network is not in the other, and
    /// [`ErrorKind::Shape`](crate::ErrorKind::Shape) or [`ErrorKind::DType`](crate::ErrorKind::DType) for one of another
    /// shape or storage. Nothing is changed then.
    pub fn soft_update<D: ?Sized + AsCell>(&self, other: &Child<D>, share: f64) -> Result<()> {
        self.moved_towards(other, share).map_err(|e| e.context("soft_update"))
    }

    fn moved_towards<D: ?Sized + AsCell>(&self, other: &Child<D>, share: f64) -> Result<()> {
        let towards = Towards::new("share", share)?;
        let (own, others) = (self.named_params(), other.named_params());
        let known: HashMap<&str, &Param> = others.iter().map(|(path, param)| (path.as_str(), param)).collect();
        let is_shared =
            |(path, param): &(String, Param)| known.get(path.as_str()).is_some_and(|of| of.id() == param.id());
        if !own.is_empty() && own.iter().all(is_shared) {
            return Err(Error::value(
                "both networks have the same parameters, as after `clone`; `deep_copy` makes a network with its own",
            ));
        }
        let mut new: HashMap<LeafId, _> = HashMap::new();
        for (path, param) in &own {
            let Some(from) = known.get(path.as_str()) else {
                return Err(no_such_path(path, known.keys().copied()).context("the other network"));
            };
            let (shape, other) = (param.shape(), from.shape());
            if shape != other {
                return Err(Error::shape(format!(
                    "`{path}` has the shape {shape:?} in this network and {other:?} in the other"
                )));
            }
            let value = match param.is_buffer() {
                true => from.full(),
                false => towards.of(&param.full(), &from.full()).map_err(|e| e.context(format_args!("`{path}`")))?,
            };
            let value = if value.dtype() == param.full().dtype() { value } else { value.cast(param.full().dtype()) };
            param.check(&value).map_err(|e| e.context(format_args!("`{path}`")))?;
            new.entry(param.id()).or_insert((param, value));
        }
        let own: HashSet<&str> = own.iter().map(|(path, _)| path.as_str()).collect();
        if let Some((path, _)) = others.iter().find(|(path, _)| !own.contains(path.as_str())) {
            return Err(no_such_path(path, own.iter().copied()).context("this network"));
        }
        new.into_values().try_for_each(|(param, value)| param.set(&value))
    }
}
