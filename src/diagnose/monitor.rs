//! The largest magnitude of every result of the last steps: cheap enough for every step.

use std::{collections::HashMap, mem, rc::Rc};

use half::{bf16, f16};
use serde::{Deserialize, Serialize};

use super::{
    edge::{Edge, EdgeOp, Phase},
    fault::Fault,
    names::Names,
    record::Record,
    steps::{Site, Steps},
    watcher::Watcher,
};
use crate::{Child, DType, cell::AsCell, observe::heard_by};

/// Record of the largest magnitudes in the last 64 steps, cheap enough to be on in every step.
///
/// It reads each result once, right after the op that wrote it: the results of ops, casts, gradients and their sums. A
/// number that is not finite shows in the largest magnitude, so the first one of a step is known with its place,
/// also when the step was taken because an op such as `tanh` made a finite number of it.
///
/// ```
/// use precast::{diagnose::Monitor, prelude::*, sequential};
/// let rng = &mut Rng::seed(1);
/// let mut net = Child::new(sequential![Dense::new(4, 64, rng), Tanh, Dense::new(64, 1, rng)]);
/// auto_mixed_precision(&mut net, Level::O3, DType::F16)?;
/// let mut optimizer = Sgd::new(net.params(), 0.01);
/// let (mut scale, mut monitor) = (LossScale::dynamic(), Monitor::default());
/// let x = Tensor::full(&[1, 4], 65000.0, DType::F32);
/// let outcome = monitor.watch(&net, |net| scale.step(&mut optimizer, net.call(&x)?.mean_all()?))?;
/// let fault = monitor.fault().expect("the sums of the first layer exceed the range of f16");
/// assert!(fault.to_string().starts_with("Linear in cell `0`, forward pass: "), "{fault}");
/// # let _ = outcome;
/// # Ok::<(), Error>(())
/// ```
#[derive(Debug, Default)]
pub struct Monitor {
    steps: Steps,
    /// Results of the last step that were not finite, and those that read them.
    bad: Record,
    /// Names of the network, read when one is needed.
    names: Option<Names>,
}

/// Largest magnitudes of one result in the last steps.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Peaks {
    /// Phase in which it is written.
    pub phase: Phase,
    /// Path of the cell; empty for the root, and outside every cell.
    pub cell: String,
    /// Operation that writes it.
    pub op: EdgeOp,
    /// Call of the operation in its cell, from 0.
    pub call: usize,
    /// Dtype of its numbers.
    pub dtype: DType,
    /// Largest magnitude in each step, the last step at the end.
    pub peaks: Vec<f32>,
    /// Share of the numbers that were 0 in the last step that counted them, which is every 16th.
    pub zero: f32,
    /// Share of the numbers that were subnormal in that step, and so had fewer digits.
    pub subnormal: f32,
}

impl Peaks {
    /// Returns the number of times that its largest magnitude can be doubled within its dtype; `None` where all numbers
    /// were 0.
    pub fn headroom(&self) -> Option<f64> {
        let most =
            self.peaks.iter().fold(0f32, |most, peak| if peak.is_nan() { f32::INFINITY } else { most.max(*peak) });
        let limit = match self.dtype {
            DType::F16 => f16::MAX.to_f64(),
            DType::Bf16 => bf16::MAX.to_f64(),
            _ => f32::MAX.into(),
        };
        (most > 0.0).then(|| (limit / f64::from(most)).log2())
    }
}

impl Monitor {
    /// Runs a step of a network, and keeps the magnitudes of its results.
    pub fn watch<C: ?Sized + AsCell, R>(&mut self, net: &Child<C>, step: impl FnOnce(&Child<C>) -> R) -> R {
        let watcher = Rc::new(Watcher::new(mem::take(&mut self.steps)));
        let result = heard_by(watcher.clone(), || step(net));
        let (steps, bad) = watcher.take();
        self.steps = steps;
        self.bad = Record::default();
        if !bad.is_empty() {
            let known = self.names.take().filter(|names| names.know(&bad)).unwrap_or_else(|| Names::read(net));
            self.bad = Record { edges: known.edges(bad) };
            self.names = Some(known);
        }
        result
    }

    /// Returns the first result of the last step, in time, with a number that is not finite and is not harmless. In a
    /// backward pass, its [inputs](Edge::good_inputs) are good where the gradient that it read is finite.
    pub fn fault(&self) -> Option<Fault<'_>> {
        self.bad.fault()
    }

    /// Returns the results of the last step with infinities that had no effect, such as those of a mask.
    pub fn harmless(&self) -> impl Iterator<Item = &Edge> {
        self.bad.harmless_infinities()
    }

    /// Returns the largest magnitudes of each result, in the order in which they are written.
    pub fn peaks<C: ?Sized + AsCell>(&self, net: &Child<C>) -> Vec<Peaks> {
        let (steps, names) = (&self.steps, Names::read(net));
        let mut calls = HashMap::new();
        let of = |(at, site): (usize, &Site)| {
            let (cell, _) = names.of(site.slot, site.leaf);
            let call = calls.entry((site.phase, cell.clone(), site.op)).or_insert(0);
            *call += 1;
            let (zero, subnormal) = steps.small(at);
            let Site { phase, op, dtype, .. } = *site;
            Peaks { phase, cell, op, call: *call - 1, dtype, peaks: steps.peaks(at).collect(), zero, subnormal }
        };
        steps.sites().iter().enumerate().map(of).collect()
    }
}
