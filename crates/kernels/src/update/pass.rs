//! One pass over memory, in blocks that stay in the nearest cache.

use std::sync::{Mutex, PoisonError};

use super::{
    eight_bit::{self, Blocks, Dither, Map},
    gradient::{Gradient, Multiplied},
    storage::{Count, Storage},
    values::Values,
};
use crate::{elementwise, float::Real, memory::Pooled, threads, threads::Shared};

/// Maximum number of running averages in the shape of a parameter.
pub const MOMENTS: usize = 3;

/// Number of elements updated together: enough that a call costs little, and few enough that widened gradients and
/// values stay in the nearest cache. Random bits and 8-bit averages need whole blocks of their own.
const BLOCK: usize = 4 * elementwise::BLOCK;

/// Approximate cost of an element, in multiply-adds.
const WORK: usize = 16;

/// Running averages of a parameter, one for each of its elements.
pub enum Moment<'a, R: Real> {
    /// In the type of the arithmetic.
    Full(&'a mut [R]),
    /// In 8 bits.
    Blocks(Blocks<'a>),
}

/// Data that an update reads and writes.
pub struct Pass<'a, R: Real> {
    /// Values of the parameter.
    pub storage: &'a mut dyn Storage<R>,
    /// Its gradient.
    pub grad: &'a dyn Gradient<R>,
    /// Running averages, at most [`MOMENTS`].
    pub moments: Vec<Moment<'a, R>>,
    /// `true` to count lost updates.
    pub count: bool,
    /// Number of the update.
    pub update: u64,
}

/// Formula for some elements: their start, values, gradients and running averages. If there are fewer averages, the
/// last slices are empty.
pub type Formula<'a, R> = dyn Fn(usize, &mut Values<'_, R>, Multiplied<'_, R>, [&mut [R]; MOMENTS]) + Sync + 'a;

/// Returns all values of a parameter in the dtype of the arithmetic: in memory, or written to `space`, which needs room
/// for them unless the storage is [wide](Storage::is_wide).
pub fn load_all<'s, R>(storage: &'s mut dyn Storage<R>, space: &'s mut [R]) -> &'s [R] {
    // SAFETY: the storage is borrowed for as long as the slice lives.
    unsafe { storage.load(0, storage.len(), space) }
}

/// A [`Moment`] split among threads.
enum Split<'a, R> {
    Full(Shared<'a, R>),
    Blocks { codes: Shared<'a, u8>, largest: Shared<'a, f32>, map: &'static Map },
}

impl<'a, R: Real> Split<'a, R> {
    fn new(moment: &'a mut Moment<'_, R>, len: usize) -> Self {
        match moment {
            Moment::Full(slice) => {
                assert_eq!(slice.len(), len, "a number for each element");
                Split::Full(Shared::new(slice))
            }
            Moment::Blocks(Blocks { codes, largest, map }) => {
                let blocks = len.div_ceil(eight_bit::BLOCK);
                assert_eq!((codes.len(), largest.len()), (len, blocks), "a code for each element");
                Split::Blocks { codes: Shared::new(codes), largest: Shared::new(largest), map }
            }
        }
    }

    /// Loads some numbers: in memory, or decoded to `space`.
    ///
    /// # Safety
    /// These elements are not accessed elsewhere while the slice lives.
    unsafe fn load<'s>(&'s self, start: usize, len: usize, space: &'s mut [R]) -> &'s mut [R] {
        match self {
            // SAFETY: guaranteed by the caller.
            Split::Full(all) => unsafe { all.part(start, len) },
            Split::Blocks { codes, largest, map } => {
                let space = &mut space[..len];
                let (first, blocks) = (start / eight_bit::BLOCK, len.div_ceil(eight_bit::BLOCK));
                // SAFETY: guaranteed by the caller.
                let (codes, largest) = unsafe { (codes.part(start, len), largest.part(first, blocks)) };
                map.decode(codes, largest, space);
                space
            }
        }
    }

    /// Encodes the numbers that were loaded to `space` and changed there.
    ///
    /// # Safety
    /// These elements are not accessed elsewhere meanwhile.
    unsafe fn store(&self, start: usize, len: usize, space: &[R], dither: Dither) {
        if let Split::Blocks { codes, largest, map } = self {
            let (first, blocks) = (start / eight_bit::BLOCK, len.div_ceil(eight_bit::BLOCK));
            // SAFETY: guaranteed by the caller.
            let (codes, largest) = unsafe { (codes.part(start, len), largest.part(first, blocks)) };
            map.encode(start, &space[..len], codes, largest, dither);
        }
    }
}

impl<R: Real> Pass<'_, R> {
    /// Updates all elements. The blocks of [`BLOCK`] elements begin at multiples of it, with any number of threads.
    pub fn run(self, formula: &Formula<'_, R>) -> Count {
        let Pass { storage, grad, mut moments, count, update } = self;
        let (storage, len) = (&*storage, storage.len());
        assert!(moments.len() <= MOMENTS && grad.len() == len, "a gradient for each element");
        let moments: Vec<Split<'_, R>> = moments.iter_mut().map(|moment| Split::new(moment, len)).collect();
        let all = Mutex::new(Count::default());
        threads::split(len, BLOCK, len * WORK, |range| {
            let mut spaces = Pooled::<R>::uninit((2 + MOMENTS) * BLOCK);
            let (value_space, rest) = spaces.split_at_mut(BLOCK);
            let (grad_space, moment_spaces) = rest.split_at_mut(BLOCK);
            for start in range.clone().step_by(BLOCK) {
                let len = BLOCK.min(range.end - start);
                let mut parts: [&mut [R]; MOMENTS] = Default::default();
                for ((part, moment), space) in parts.iter_mut().zip(&moments).zip(moment_spaces.chunks_exact_mut(BLOCK))
                {
                    // SAFETY: blocks do not overlap, and each goes to one thread.
                    *part = unsafe { moment.load(start, len, space) };
                }
                let grad = grad.read(start, &mut grad_space[..len]);
                // SAFETY: as above.
                let value = unsafe { storage.load(start, len, value_space) };
                let mut values = Values::new(&mut *value, storage.beyond());
                formula(start, &mut values, grad, parts);
                let infinite = values.infinite();
                // SAFETY: as above.
                let counted = Count { infinite, ..unsafe { storage.store(start, value, count) } };
                if counted != Count::default() {
                    let mut all = all.lock().unwrap_or_else(PoisonError::into_inner);
                    *all = all.and(counted);
                }
                for (i, (moment, space)) in moments.iter().zip(moment_spaces.chunks_exact(BLOCK)).enumerate() {
                    // SAFETY: as above.
                    unsafe { moment.store(start, len, space, Dither::new(update, i)) };
                }
            }
        });
        all.into_inner().unwrap_or_else(PoisonError::into_inner)
    }
}
