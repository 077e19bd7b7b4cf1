//! Search for the first number that is not finite.

use std::{cell::Cell as Place, rc::Rc};

use super::{CastCall, CastRole, GradientCall, Hears, OpCall, heard_by};
use crate::{DType, Op, Tensor};

/// The op that produced a number that is not finite.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Found {
    pub slot: Option<usize>,
    pub op: Op,
    pub backward: bool,
    pub came_in: bool,
    /// Role of the tensor and target dtype, for a cast.
    pub cast: Option<(CastRole, DType)>,
}

/// Runs `f` and returns its result along with the first op that produced a number that is not finite. Reads the inputs
/// and outputs of each op.
pub(crate) fn seek<R>(f: impl FnOnce() -> R) -> (R, Option<Found>) {
    let seek = Rc::new(Seek::default());
    let result = heard_by(seek.clone(), f);
    (result, seek.0.take())
}

#[derive(Default)]
struct Seek(Place<Option<Found>>);

impl Seek {
    fn look<'a>(&self, inputs: &[Tensor], outputs: impl IntoIterator<Item = &'a Tensor>, found: Found) {
        let finite = Tensor::has_only_finite;
        if self.0.get().is_none() && !outputs.into_iter().all(finite) {
            self.0.set(Some(Found { came_in: !inputs.iter().all(finite), ..found }));
        }
    }
}

impl Hears for Seek {
    fn op(&self, call: &OpCall<'_>) {
        let &OpCall { slot, op, backward, .. } = call;
        self.look(call.inputs, [call.output], Found { slot, op, backward, came_in: false, cast: None });
    }

    fn cast(&self, cast: &CastCall<'_>) {
        let &CastCall { slot, backward, .. } = cast;
        let what = Some((cast.of, cast.output.dtype()));
        let found = Found { slot, op: Op::Cast, backward, came_in: false, cast: what };
        self.look(std::slice::from_ref(cast.input), [cast.output], found);
    }

    fn gradient(&self, call: &GradientCall<'_>) {
        let (Some(op), slot) = (call.op, call.slot) else { return };
        let found = Found { slot, op, backward: true, came_in: false, cast: None };
        self.look(std::slice::from_ref(call.grad), call.gradients.iter().flatten(), found);
    }
}
