//! Delayed scales of quantized operands, in steps of several shards.

use std::collections::BTreeMap;

use super::{AsCell, Child};
use crate::error::Result;

/// Words of an operand: the number of the cell, product, operand, and bits of its largest magnitude.
const WORDS: usize = 4;

impl<C: ?Sized + AsCell> Child<C> {
    /// Collects the largest magnitudes of operands with delayed scales in the shards that follow, as a step of several shards
    /// does before the first one. Returns `false` if no plan has delayed scales.
    pub fn collect_amaxima(&self) -> bool {
        let mut any = false;
        self.walk(&mut |entry| any |= entry.slot.quantizer().is_some_and(|of| of.collect_amaxima()));
        any
    }

    /// Ends the collection, and returns the magnitudes of the shards of this process in words, which
    /// [`update_scales`](Child::update_scales) reads.
    pub fn amaxima(&self) -> Vec<u64> {
        let (mut all, mut cell) = (Vec::new(), 0);
        self.walk(&mut |entry| {
            let of_cell = entry.slot.quantizer().map_or_else(Vec::new, |of| of.amaxima());
            all.extend(of_cell.into_iter().flat_map(|[product, which, amax]| [cell, product, which, amax]));
            cell += 1;
        });
        all
    }

    /// Updates each delayed scale with the largest magnitude over all processes, so that it is the same on each.
    ///
    /// # Errors
    /// [`ErrorKind::Value`](crate::ErrorKind::Value) for words of a network with other operands.
    pub fn update_scales(&self, of_processes: &[Vec<u64>]) -> Result<()> {
        let mut largest = BTreeMap::<[u64; 3], u64>::new();
        for words in of_processes.iter().flat_map(|words| words.chunks_exact(WORDS)) {
            // Magnitudes are ordered as their bits.
            let known = largest.entry([words[0], words[1], words[2]]).or_default();
            *known = words[3].max(*known);
        }
        let (mut result, mut cell) = (Ok(()), 0);
        self.walk(&mut |entry| {
            for (&[_, product, which], &amax) in largest.range([cell, 0, 0]..[cell + 1, 0, 0]) {
                if let (Ok(()), Some(of)) = (&result, entry.slot.quantizer()) {
                    result = of.update([product, which, amax]);
                }
            }
            cell += 1;
        });
        result
    }
}
