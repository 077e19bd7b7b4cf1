//! Numbering the adapters of a network, once a plan has put them into their slots.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use precast_tensor::context::Quantizer;

use super::{
    AsCell, Child, PartMut, SlotMut,
    site::{Around, Site},
    walk::below,
};

impl<C: ?Sized + AsCell> Child<C> {
    /// Records the site of every slot. A plan calls this once all its adapters are in place.
    pub(crate) fn number_adapters(&mut self) {
        static NUMBERS: AtomicU64 = AtomicU64::new(0);

        fn go(slot: &mut SlotMut<'_>, path: &mut String, around: Option<&Around>) {
            let number = slot.adapts().then(|| NUMBERS.fetch_add(1, Ordering::Relaxed));
            let here: Arc<str> = path.as_str().into();
            let known = slot.site.take().and_then(|site| site.quantizer);
            let quantizer = slot.planned().operands.map(|operands| match known {
                Some(known) if known.operands() == operands => known,
                _ => Arc::new(Quantizer::new(operands, path)),
            });
            let (around_here, to_float) = (around.cloned(), slot.to_float());
            *slot.site = Some(Site { path: here.clone(), number, around: around_here, to_float, quantizer });
            let own = number.map(|number| Around { number, path: here });
            let around = own.as_ref().or(around);
            slot.cell.visit_mut(&mut |name, node| {
                if let PartMut::Cell(mut slot) = node {
                    below(path, name, |path| go(&mut slot, path, around));
                }
            });
        }
        go(&mut self.slot_mut(), &mut String::new(), None);
    }
}
