//! Sums of runs of elements at positions given by an index.

use crate::{
    float::{Float, Real},
    memory::{Pooled, zeros},
};

/// Maximum number of terms that are added in the type of the elements. More are added in f64.
pub const FEW: usize = 16;

/// Number of elements that are widened together.
const PART: usize = 4096;

/// Adds each run of `values` to the run of `sums` at its offset, which counts runs of `run` elements. If a run receives
/// more than [`FEW`], its sum is kept in f64 and rounded at the end.
pub fn add_runs<T: Float>(sums: &mut [T::Wide], at: &[usize], run: usize, values: &[T]) {
    if run == 0 {
        return;
    }
    let mut table = Sums64::of_crowded(sums, at, run);
    let some = (PART / run).max(1);
    let mut space = Pooled::uninit(run * some.min(at.len()));
    for (at, values) in at.chunks(some).zip(values.chunks(run * some)) {
        let values = T::widened(values, &mut space);
        if run == 1 {
            for (&i, value) in at.iter().zip(values) {
                match table.places.get(i) {
                    Some(&place @ 1..) => table.sums[place - 1] += value.as_f64(),
                    _ => sums[i] += *value,
                }
            }
            continue;
        }
        for (&i, values) in at.iter().zip(values.chunks_exact(run)) {
            match table.run(i) {
                Some(sums) => sums.iter_mut().zip(values).for_each(|(sum, value)| *sum += value.as_f64()),
                None => {
                    let sums = &mut sums[i * run..(i + 1) * run];
                    sums.iter_mut().zip(values).for_each(|(sum, value)| *sum += *value);
                }
            }
        }
    }
    table.round_into(sums);
}

/// Sums in f64 of the runs that receive many terms.
struct Sums64 {
    /// Position of the sums of each run, counted from 1; 0 for a run without. Empty if no run has any.
    places: Vec<usize>,
    sums: Pooled<f64>,
    run: usize,
}

impl Sums64 {
    fn of_crowded<R: Real>(start: &[R], at: &[usize], run: usize) -> Self {
        let none = Sums64 { places: vec![], sums: zeros(0), run };
        if at.len() <= FEW {
            return none;
        }
        let mut places = vec![0; start.len() / run];
        at.iter().for_each(|&i| places[i] += 1);
        let mut crowded = 0;
        for place in &mut places {
            *place = if *place > FEW {
                crowded += 1;
                crowded
            } else {
                0
            };
        }
        if crowded == 0 {
            return none;
        }
        let mut sums = Sums64 { places, sums: Pooled::uninit(crowded * run), run };
        for (i, start) in start.chunks_exact(run).enumerate() {
            if let Some(sums) = sums.run(i) {
                sums.iter_mut().zip(start).for_each(|(sum, start)| *sum = start.as_f64());
            }
        }
        sums
    }

    fn run(&mut self, i: usize) -> Option<&mut [f64]> {
        let place = self.places.get(i)?.checked_sub(1)?;
        Some(&mut self.sums[place * self.run..(place + 1) * self.run])
    }

    fn round_into<R: Real>(mut self, to: &mut [R]) {
        if self.places.is_empty() {
            return;
        }
        for (i, to) in to.chunks_exact_mut(self.run).enumerate() {
            if let Some(sums) = self.run(i) {
                to.iter_mut().zip(sums).for_each(|(to, sum)| *to = R::of(*sum));
            }
        }
    }
}
