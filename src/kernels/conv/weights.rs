//! Weights in the order in which tiles read them.

use crate::kernels::{
    gemm::{DEPTH, pack, scratch::Scratch},
    simd::{Kernel, Lanes, Vector},
};

/// Numbers behind packed weights that are written without use.
const SLACK: usize = 64;

/// Weights of which some channels shall stand side by side, term by term.
#[derive(Clone)]
pub(super) enum Weights<'a, T> {
    /// A channel's terms follow one another.
    Rows(&'a [T]),
    /// Those of output channel o, channel c and a tap are at `(o * channels + c) * taps + tap`; the terms are those of
    /// each output channel and, for each, the taps that were chosen.
    Taps { weight: &'a [T], channels: usize, taps: usize, chosen: Vec<usize> },
}

impl<T: Clone> Weights<'_, T> {
    /// Those of one of several groups, which follow one another.
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

/// Packs `count` channels from `first` on: `to[p * width + i]` is term p of channel `first + i`, and 0 from `count` on.
pub(super) struct Packed<'a, T> {
    pub weights: &'a Weights<'a, T>,
    pub first: usize,
    pub count: usize,
    /// Terms of a channel.
    pub depth: usize,
    pub width: usize,
    pub to: &'a mut Scratch,
    pub wide: &'a mut Scratch,
}

impl<T: Lanes> Kernel for Packed<'_, T> {
    /// Where the weights were packed.
    type Output = *const f32;

    // SAFETY: every read lies inside the weights, as the slices' bounds show; there is room for all that is written.
    #[inline(always)]
    unsafe fn run<V: Vector>(self) -> *const f32 {
        let Packed { weights, first, count, depth, width, to, wide } = self;
        assert!(count <= width);
        let to = to.room(depth.next_multiple_of(pack::STEP) * width + SLACK);
        match *weights {
            _ if depth == 0 => {}
            Weights::Rows(weight) => {
                let weight = &weight[first * depth..(first + count) * depth];
                let mut eight: pack::Eight = [[0.0; DEPTH]; pack::STEP];
                let mut block = 0;
                while block < depth {
                    let terms = DEPTH.min(depth - block);
                    // SAFETY: the terms from `block` on of `count` channels are in the slice; there is room for them.
                    unsafe {
                        let (from, to) = (weight.as_ptr().add(block), to[block * width..].as_mut_ptr());
                        pack::across::<V, T>(from, depth, count, terms, to, width, &mut eight);
                    }
                    block += terms;
                }
            }
            Weights::Taps { weight, channels, taps: 1, ref chosen } if chosen.len() == 1 => {
                assert!((depth - 1) * channels + first + count <= weight.len(), "the weights of all terms");
                let from = weight[first..].as_ptr();
                // SAFETY: asserted; there is room for all terms.
                unsafe { pack::along::<V, T>(from, channels, count, depth, to.as_mut_ptr(), width) };
            }
            Weights::Taps { weight, channels, taps, ref chosen } => {
                // A transpose may read beyond the last tap.
                let wide = wide.room((width + pack::STEP) * taps + SLACK);
                wide.fill(0.0);
                let transposed = if chosen.len() == taps { taps / pack::STEP * pack::STEP } else { 0 };
                for (o, weight) in weight.chunks_exact(channels * taps).enumerate() {
                    let weight = &weight[first * taps..(first + count) * taps];
                    let to = &mut to[o * chosen.len() * width..];
                    // SAFETY: `wide` has room for whole vectors and transposes, and `to` for all terms. Where `width` is no
                    // multiple of STEP a store reaches into the next term, which is written after it, or into slack.
                    unsafe {
                        pack::widen::<V, T>(weight.as_ptr(), weight.len(), wide.as_mut_ptr());
                        let mut t = 0;
                        while t < transposed {
                            let mut c = 0;
                            while c < width {
                                let to = to.as_mut_ptr().add(t * width + c);
                                V::transpose(wide.as_ptr().add(c * taps + t), taps, to, width);
                                c += pack::STEP;
                            }
                            t += pack::STEP;
                        }
                    }
                    for (t, tap) in chosen.iter().enumerate().skip(transposed) {
                        for (to, from) in
                            to[t * width..(t + 1) * width].iter_mut().zip(wide[*tap..].iter().step_by(taps))
                        {
                            *to = *from;
                        }
                    }
                }
            }
        }
        to.as_ptr()
    }
}
