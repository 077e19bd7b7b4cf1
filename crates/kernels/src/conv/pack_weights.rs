//! Packing of weights for the micro-kernel.

use crate::{
    gemm::{
        blocking::KC,
        micro_kernel::Wide,
        pack::{SLACK, STEP, pack_contiguous, pack_transposed, panel_len, widen},
    },
    memory::Scratch,
    simd::{Lanes, Simd},
};

/// Location of the weights of each channel's terms.
#[derive(Clone)]
pub(super) enum Weights<'a, T> {
    /// The terms of a channel are contiguous.
    Rows(&'a [T]),
    /// The weight of output channel o, channel c and a tap is at `(o * channels + c) * taps + tap`. The terms of
    /// channel c are the chosen taps of each output channel.
    Taps { weight: &'a [T], channels: usize, taps: usize, chosen: Vec<usize> },
}

impl<T: Clone> Weights<'_, T> {
    /// Returns the weights of one of several consecutive groups.
    pub fn of_group(&self, group: usize, groups: usize) -> Self {
        let mut some = self.clone();
        match &mut some {
            Weights::Rows(weight) | Weights::Taps { weight, .. } => {
                let len = weight.len() / groups;
                *weight = &weight[group * len..(group + 1) * len];
            }
        }
        some
    }
}

/// Packs the `depth` terms of `count` channels from `first` as a panel: `to[p * width + i]` is the weight of term p and
/// channel `first + i`, or 0 for i from `count`. Returns the panel.
#[inline(always)]
pub(super) fn pack_weights<'a, S: Simd, T: Lanes>(
    simd: S,
    weights: &Weights<T>,
    (first, count): (usize, usize),
    depth: usize,
    width: usize,
    (to, wide): (&'a mut Scratch, &mut Scratch),
) -> &'a [f32] {
    assert!(count <= width);
    let to = to.uninit(panel_len(width, depth) + SLACK);
    match *weights {
        _ if depth == 0 => {}
        Weights::Rows(weight) => pack_rows(simd, &weight[first * depth..(first + count) * depth], depth, to, width),
        Weights::Taps { weight, channels, taps: 1, ref chosen } if chosen.len() == 1 => {
            assert!((depth - 1) * channels + first + count <= weight.len(), "the weights of all terms");
            // SAFETY: asserted; there is room for all terms.
            unsafe {
                pack_contiguous(simd, &mut Wide, &weight[first..], channels, count, depth, to.as_mut_ptr(), width)
            };
        }
        Weights::Taps { weight, channels, taps, ref chosen } => {
            assert!(weight.len() / (channels * taps) * chosen.len() <= depth, "room for all terms");
            let wide = wide.uninit((width + STEP) * taps + SLACK);
            wide.fill(0.0);
            for (o, weight) in weight.chunks_exact(channels * taps).enumerate() {
                let weight = &weight[first * taps..(first + count) * taps];
                pack_taps(simd, weight, taps, chosen, &mut to[o * chosen.len() * width..], width, wide);
            }
        }
    }
    to
}

/// Packs channels with `depth` contiguous terms.
#[inline(always)]
fn pack_rows<S: Simd, T: Lanes>(simd: S, weight: &[T], depth: usize, to: &mut [f32], width: usize) {
    let channels = weight.len() / depth;
    let mut start = 0;
    while start < depth {
        let terms = KC.min(depth - start);
        let (from, to) = (&weight[start..], &mut to[start * width..]);
        assert!(to.len() >= panel_len(width, terms) + STEP);
        // SAFETY: these terms of all channels are inside the weights, and there is room for them.
        unsafe {
            pack_transposed(simd, &mut Wide, from.as_ptr(), depth, channels, terms, to.as_mut_ptr(), width);
        }
        start += terms;
    }
}

/// Packs the chosen taps of the channels of one output channel. `wide` is memory for them, with zeros after them.
#[inline(always)]
fn pack_taps<S: Simd, T: Lanes>(
    simd: S,
    weight: &[T],
    taps: usize,
    chosen: &[usize],
    to: &mut [f32],
    width: usize,
    wide: &mut [f32],
) {
    // Whole steps of taps are transposed together if all taps are chosen.
    let transposed = if chosen.len() == taps { taps / STEP * STEP } else { 0 };
    // A transpose may read past the last tap, and write up to one step past the last term.
    assert!(wide.len() >= (width + STEP) * taps + SLACK && weight.len() <= width * taps);
    assert!(to.len() >= chosen.len() * width + STEP);
    // SAFETY: asserted. If `width` is not a multiple of STEP, a store extends into the next term, which is written
    // after it, or into slack.
    unsafe {
        widen(simd, weight.as_ptr(), weight.len(), wide.as_mut_ptr());
        for t in (0..transposed).step_by(STEP) {
            for c in (0..width).step_by(STEP) {
                simd.transpose(wide.as_ptr().add(c * taps + t), taps, to.as_mut_ptr().add(t * width + c), width);
            }
        }
    }
    for (t, tap) in chosen.iter().enumerate().skip(transposed) {
        for (to, from) in to[t * width..(t + 1) * width].iter_mut().zip(wide[*tap..].iter().step_by(taps)) {
            *to = *from;
        }
    }
}
