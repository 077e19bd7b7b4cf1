//! The largest magnitude of every result of the last steps: cheap enough for every step.

use std::{collections::HashMap, mem, rc::Rc};

use precast::{
    Child,
    cell::AsCell,
    observe::{Codes, Edge, Subject, observed_by},
};

use super::{
    fault::Fault,
    headroom::{Headroom, of_cells, with_codes},
    names::Names,
    peaks::Peaks,
    record::Record,
    steps::{Site, Steps},
    watcher::{Watched, Watcher},
};

/// Record of the largest magnitudes in the last 64 steps, cheap enough to be on in every step.
///
/// It reads each 16-bit result once, right after the op that wrote it: the results of ops, casts, gradients and their
/// sums. A number that is not finite shows in the largest magnitude, so the first one of a step is known with its place,
/// also when the step was taken because an op such as `tanh` made a finite number of it. Results of more than 4096
/// numbers in f32 are read in the first step, and in a step that follows one with a number that was not finite; low
/// copies of parameters then, and in every 16th step. When a later result of the step is not finite, those that are still
/// there are read after all, so that the first one is named in every step.
///
/// It sees the ops of the thread that runs the step, and of threads into which [`carry`](precast::precision::carry) carries
/// its precision. In any other thread it sees nothing: an infinity from there is found at the first op of this thread that
/// reads it, whose [inputs](Edge::good_inputs) are then not good.
///
/// ```
/// use precast::{prelude::*, sequential};
/// use precast_diagnose::Monitor;
/// let rng = &mut Rng::seed(1);
/// let mut net = Child::new(sequential![Dense::new(4, 64, rng), Tanh, Dense::new(64, 1, rng)]);
/// auto_mixed_precision(&mut net, Level::O3, DType::F16)?;
/// let mut optimizer = Sgd::new(net.params(), 0.01);
/// let (mut scale, mut monitor) = (LossScale::dynamic(), Monitor::default());
/// let x = Tensor::full(&[1, 4], 65000.0, DType::F32);
/// let outcome = monitor.watch(&net, |net| scale.step(&mut optimizer, net.call(&x)?.mean_all()?))?;
/// let fault = monitor.fault().expect("the sums of the first layer exceed the range of f16");
/// assert!(fault.to_string().starts_with("Linear in `0`, forward pass: "), "{fault}");
/// # let _ = outcome;
/// # Ok::<(), Error>(())
/// ```
#[derive(Debug, Default)]
pub struct Monitor {
    steps: Steps,
    /// Results of the last step that were not finite, and those that read them.
    bad: Record,
    /// `true` when all numbers of the last step were finite, so that not all are looked at.
    was_sound: bool,
    /// Codes of quantized operands in the last step that counted them, which is every 16th.
    codes: Vec<Codes>,
    /// Names of the network, read when one is needed.
    names: Option<Names>,
}

impl Monitor {
    /// Runs a step of a network, and keeps the magnitudes of its results.
    pub fn watch<C: ?Sized + AsCell, R>(&mut self, net: &Child<C>, step: impl FnOnce(&Child<C>) -> R) -> R {
        /// Gives the steps back, also after a panic of the step.
        struct Watching<'a>(&'a mut Steps, Rc<Watcher>);
        impl Drop for Watching<'_> {
            fn drop(&mut self) {
                *self.0 = self.1.take_steps();
            }
        }
        let watcher = Rc::new(Watcher::new(mem::take(&mut self.steps), !self.was_sound));
        let watching = Watching(&mut self.steps, watcher.clone());
        let result = observed_by(watcher.clone(), || step(net));
        drop(watching);
        let Watched { bad, overflowed, codes } = watcher.take();
        if let Some(codes) = codes {
            self.codes = codes;
        }
        self.bad = Record::default();
        if !bad.is_empty() {
            let known = self.names.take().filter(|names| names.know(&bad)).unwrap_or_else(|| Names::read(net));
            self.bad = Record { edges: known.edges(bad) };
            self.names = Some(known);
        }
        self.was_sound = !overflowed && self.fault().is_none();
        result
    }

    /// Returns the first result of the last step, in time, with a number that is not finite and is not harmless. In a
    /// backward pass, its [inputs](Edge::good_inputs) are good where the gradient that it read is finite.
    pub fn fault(&self) -> Option<Fault<'_>> {
        self.bad.fault()
    }

    /// Returns whether all numbers of the last step were finite, so that the next one need not look at all.
    pub fn was_sound(&self) -> bool {
        self.was_sound
    }

    /// Makes the next step look at all numbers, as after one that was not sound.
    pub fn doubt(&mut self) {
        self.was_sound = false;
    }

    /// Returns the number of results of the last step, not all finite, that have the same place as this one.
    pub fn calls_at(&self, edge: &Edge) -> usize {
        let is_there = |met: &&Edge| {
            (met.phase, &met.cell, met.op, &met.subject) == (edge.phase, &edge.cell, edge.op, &edge.subject)
        };
        self.bad.edges.iter().filter(is_there).count()
    }

    /// Returns the results of the last step with numbers that are not finite and not harmless, in time.
    pub fn not_finite(&self) -> impl Iterator<Item = &Edge> {
        self.bad.not_finite()
    }

    /// Returns the results of the last step with infinities that had no effect, such as those of a mask.
    pub fn harmless(&self) -> impl Iterator<Item = &Edge> {
        self.bad.harmless_infinities()
    }

    /// Returns the range of the 16-bit results of each cell in the last steps, with the codes of its quantized operands.
    pub fn headroom<C: ?Sized + AsCell>(&self, net: &Child<C>) -> Vec<Headroom> {
        with_codes(of_cells(&self.peaks(net)), &self.codes, &Names::read(net))
    }

    /// Returns the largest magnitudes of each result, in the order in which they are written.
    pub fn peaks<C: ?Sized + AsCell>(&self, net: &Child<C>) -> Vec<Peaks> {
        let (steps, names) = (&self.steps, Names::read(net));
        let mut calls = HashMap::new();
        let of = |(at, site): (usize, &Site)| {
            let (cell, param) = names.of(site.slot, site.leaf);
            let subject = param.map_or(site.which.subject(), Subject::Param);
            let call = calls.entry((site.phase, cell.clone(), site.op)).or_insert(0);
            *call += 1;
            let (zero, subnormal) = steps.small(at);
            let Site { phase, op, dtype, .. } = *site;
            let (call, peaks) = (*call - 1, steps.peaks(at).collect());
            Peaks { phase, cell, op, subject, call, dtype, peaks, zero, subnormal }
        };
        steps.sites().iter().enumerate().map(of).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};

    use super::*;
    use precast::prelude::*;

    #[test]
    fn a_step_that_panics_takes_nothing_known_away() {
        let mut net = Child::new(Dense::new(4, 2, &mut Rng::seed(1)));
        let _ = Policy::named("o3-bf16").unwrap().apply(&mut net).unwrap();
        let mut monitor = Monitor::default();
        let x = Tensor::ones(&[1, 4], DType::F32);
        let _ = monitor.watch(&net, |net| net.call(&x)).unwrap();
        let before = monitor.headroom(&net);
        assert!(!before.is_empty());
        let panics = || monitor.watch(&net, |_| panic!("in a step"));
        assert!(catch_unwind(AssertUnwindSafe(panics)).is_err());
        assert_eq!(monitor.headroom(&net), before);
    }
}
