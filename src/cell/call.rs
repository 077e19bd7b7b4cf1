//! The call of a cell through its slot: enter, cast, run, cast, leave.

use precast_tensor::{
    context,
    context::{Quantizer, Scope},
    internals::TensorInternals as _,
    listener::{CastRole, CellCall, CellEntry},
    pass,
};

use super::{
    Adapter, AsCell, Cast, Castable, Cell, Child, Part, Slot,
    recompute::recomputed,
    site::{HOLD_IT, Site},
};
use crate::{
    DType, Tensor,
    error::{Error, Result},
    precision::{self, Frame},
};

/// The actions of an adapter at the border of a cell.
struct Border {
    /// The frame to be entered.
    frame: Option<Frame>,
    /// The dtype to which inputs are cast.
    inward: Option<DType>,
    /// The dtype to which outputs are cast.
    outward: Option<DType>,
}

fn cast(what: CastRole, x: Tensor, to: Option<DType>) -> Tensor {
    match to {
        Some(dtype) if x.dtype().is_castable() => x.cast_as(what, dtype),
        _ => x,
    }
}

impl<C: ?Sized + AsCell> Child<C> {
    /// Runs any method of the cell through the adapter, with inputs and outputs of any [`Castable`] shape.
    ///
    /// # Errors
    /// As [`call`](Child::call).
    pub fn with<I: Castable, O: Castable>(
        &self,
        inputs: I,
        body: impl FnOnce(&C, I::Owned) -> Result<O>,
    ) -> Result<O::Owned> {
        self.slot().run(inputs, |inputs| body(&self.cell, inputs))
    }
}

impl Slot<'_> {
    /// Runs code of the cell through the adapter.
    pub(super) fn run<I: Castable, O: Castable>(
        &self,
        inputs: I,
        body: impl FnOnce(I::Owned) -> Result<O>,
    ) -> Result<O::Owned> {
        // The outermost call is a forward pass.
        let pass = context::slot().is_none().then(pass::open);
        let Border { frame, inward, outward } = self.border();
        let mut heard = self.tell_enter();
        let (mut heard_in, mut heard_out) = heard.as_mut().map(|(inputs, outputs)| (inputs, outputs)).unzip();
        let mut cast_in = |x: Tensor| {
            heard_in.iter_mut().for_each(|inputs| inputs.push(x.clone()));
            cast(CastRole::IntoCell, x, inward)
        };
        // Looked up at the first output that is on the tape, when the cell has run.
        let mut passes: Option<Vec<_>> = None;
        let mut cast_out = |y: Tensor| {
            heard_out.iter_mut().for_each(|outputs| outputs.push(y.clone()));
            let y = cast(CastRole::OutOfCell, y, outward);
            if pass.is_some() && y.is_tracked() {
                pass::note_passes(&y, passes.get_or_insert_with(|| self.noted().into_iter().collect()));
            }
            y
        };
        let result = self.check_site().and_then(|()| {
            let _inside = self.enter(frame);
            let outputs = if self.is_recomputed() {
                recomputed(inputs, &mut cast_in, body, &mut cast_out)
            } else {
                body(inputs.map(&mut cast_in)).map(|outputs| outputs.map(&mut cast_out))
            };
            if outputs.is_ok() && self.site.is_some_and(|site| site.quantizer().is_some()) {
                context::warn_of_no_products();
            }
            outputs
        });
        if let Some((inputs, outputs)) = &heard {
            self.tell_leave(inputs, result.is_ok().then_some(outputs));
        }
        let result = result.map_err(|e| e.in_slot(self.id));
        match pass {
            Some(pass) => pass
                .end(result, |param| self.path_of_param(param))
                .map_err(|e| e.resolve_cell(|slot| self.path_of(slot))),
            None => result,
        }
    }

    fn border(&self) -> Border {
        let adapter = self.in_force();
        let (frame, cast) = (adapter.as_ref().map(Adapter::frame), adapter.as_ref().and_then(Adapter::cast));
        // In a region of one dtype, each op casts its inputs itself, so it still has the original input for the
        // gradient of a weight.
        let wide = self.planned.wide_weight_grads == Some(true);
        let by_op = wide && matches!(frame, Some(Frame::Fixed(_))) && self.cell.is_leaf();
        let cast = cast.filter(|_| !context::is_all_in_f32());
        let inward = cast.map(|cast| cast.inward).filter(|_| !by_op);
        Border { frame, inward, outward: cast.map(|cast| cast.outward) }
    }

    /// Returns the adapter in force: the plan's or, without a plan, the one requested by `to_float`. In the latter case
    /// the surrounding region is known only while the cell runs: a root returns its result as computed, an inner cell
    /// returns f32.
    fn in_force(&self) -> Option<Adapter> {
        if self.planned.adapter.is_some() {
            return self.planned.adapter.clone();
        }
        let inward = self.to_float?;
        let outward = match precision::current() {
            Some(Frame::Fixed(dtype)) => dtype,
            _ if context::slot().is_none() => inward,
            _ => DType::F32,
        };
        Some(Adapter::Cast(Cast { inward, outward }))
    }

    /// Checks that the cell is called at the site where a plan found it.
    fn check_site(&self) -> Result<()> {
        match self.site {
            Some(site) => site.check(self.to_float),
            None => check_unplanned(&**self.cell),
        }
    }

    /// Enters the slot and everything its plan demands; left in the reverse order.
    fn enter(&self, frame: Option<Frame>) -> (Option<Scope>, Option<Scope>, Option<Scope>, Option<Scope>, Scope) {
        let slot = context::enter_slot(self.id);
        let quantizer = self.site.and_then(Site::quantizer);
        let operands = (quantizer.is_some() || context::quantizes())
            .then(|| context::enter_operands(quantizer.map(Quantizer::begin)));
        let number = self.site.and_then(Site::number);
        let region = frame.map(|frame| context::enter_adapter(frame, number));
        let kept = self.planned.kept.map(|kept| context::enter_kept(kept.format()));
        (self.planned.wide_weight_grads.map(context::enter_weight_grads), region, operands, kept, slot)
    }

    /// Notifies listeners that the cell is entered. If there are any, returns room for its tensors.
    fn tell_enter(&self) -> Option<(Vec<Tensor>, Vec<Tensor>)> {
        context::is_heard_in_full().then(|| {
            let entry = CellEntry::new(self.id, self.cell.kind());
            context::tell(|listener| listener.enter(&entry));
            Default::default()
        })
    }

    fn tell_leave(&self, inputs: &[Tensor], outputs: Option<&Vec<Tensor>>) {
        let cell = &**self.cell;
        let has_params = || has_params(cell);
        let entry = CellEntry::new(self.id, cell.kind());
        let call = CellCall::new(entry, &has_params, inputs, outputs.map(Vec::as_slice));
        context::tell(|listener| listener.leave(&call));
    }
}

/// Checks a call of a cell unknown to any plan: inside a network with an applied plan it may have no parameters.
fn check_unplanned(cell: &dyn Cell) -> Result<()> {
    if precast_tensor::context::adapter().is_none() || !has_params(cell) {
        return Ok(());
    }
    Err(Error::plan(format!(
        "a cell with parameters ({}) is called that the applied plan does not know: it came into the network after the plan \
         (then apply the policy again), or the network does not show it (then {HOLD_IT})",
        cell.kind()
    )))
}

/// Returns whether a cell, or one inside it, has parameters or buffers. It visits no cell after the first that has.
fn has_params(cell: &dyn Cell) -> bool {
    let mut found = false;
    cell.visit(&mut |_, node| {
        found = found
            || match node {
                Part::Param(_) => true,
                Part::Cell(slot) => has_params(&**slot.cell),
            }
    });
    found
}
