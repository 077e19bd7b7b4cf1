//! Ranges of the values of a model, measured by runs in float32.

use std::collections::HashMap;

use super::{
    import::observe,
    keep::{Kept, Then},
    model::OnnxModel,
    tensor::Elem,
    values::{Placed, Values},
};
use precast::{
    DType, Tensor,
    error::{Error, Result},
    policy::GraphPolicy,
};

/// Other inputs may give larger values than those that were measured: the largest of 10,000 batches of normal numbers is
/// half as large again as that of one.
const HEADROOM: f64 = 1.5;

/// Largest magnitudes of the values of a model, as measured by [`OnnxModel::measure`].
#[derive(Clone, Debug, Default, PartialEq)]
pub struct OnnxRanges {
    largest: HashMap<String, f64>,
}

impl OnnxRanges {
    /// Notes the numbers of a value. Infinities are meant: a mask has them.
    fn note(&mut self, name: &str, x: &Tensor) {
        if !x.dtype().is_float() {
            return;
        }
        let sizes = x.to_f64().into_iter().map(f64::abs).filter(|size| size.is_finite());
        let largest = sizes.fold(0.0, f64::max);
        let known = self.largest.entry(name.into()).or_insert(0.0);
        *known = known.max(largest);
    }

    /// Adds ranges that were measured on other inputs.
    pub fn merge(&mut self, others: &OnnxRanges) {
        for (name, size) in &others.largest {
            let known = self.largest.entry(name.clone()).or_insert(0.0);
            *known = known.max(*size);
        }
    }

    /// Returns the largest finite magnitude of a value by its name; `None` for a value that was not met.
    pub fn largest(&self, value: &str) -> Option<f64> {
        self.largest.get(value).copied()
    }

    /// Finds the nodes whose values come too near the largest number of the low dtype.
    pub(super) fn kept(&self, values: &Values<'_>, elems: &[Elem], policy: &GraphPolicy) -> HashMap<usize, Kept> {
        let low = policy.dtype.long_name();
        let largest = match policy.dtype {
            DType::F16 => f64::from(half::f16::MAX),
            _ => f64::from(half::bf16::MAX),
        };
        let limit = policy.keep.values_beyond.unwrap_or(largest / HEADROOM);
        let over = |placed: &Placed<'_>| {
            let met = placed.inputs.iter().chain(&placed.outputs).flatten().filter(|&&value| elems[value] == Elem::F32);
            let met =
                met.filter_map(|&value| Some((values.values[value].name, self.largest(values.values[value].name)?)));
            met.max_by(|a, b| a.1.total_cmp(&b.1)).filter(|(_, size)| *size > limit)
        };
        let kept = |(index, placed)| {
            let (name, size) = over(placed)?;
            let because = match policy.keep.values_beyond {
                Some(limit) => format!("`{name}` reached {size:e}, beyond the {limit:e} of the policy"),
                None => format!("`{name}` reached {size:e}, and {low} has room up to {limit:.0}"),
            };
            Some((index, Kept { because, then: Then::Free }))
        };
        values.nodes.iter().enumerate().filter_map(kept).collect()
    }
}

impl OnnxModel {
    /// Runs the model in float32 and returns the largest magnitudes of its values, for
    /// [`OnnxPlanOptions::ranges`](super::OnnxPlanOptions::ranges). Inputs are given by name; random ones say nothing
    /// about ids, images or masks.
    ///
    /// # Errors
    /// Those of a run: a missing input, one of another shape or dtype, or a node that precast cannot run; an input with NaN,
    /// or of infinities alone.
    pub fn measure(&self, inputs: &[(String, Tensor)]) -> Result<OnnxRanges> {
        let mut ranges = OnnxRanges::default();
        for (name, x) in inputs {
            let numbers = if x.dtype().is_float() { x.to_f64() } else { Vec::new() };
            if numbers.iter().any(|number| number.is_nan()) {
                return Err(Error::value(format!("the input `{name}` has NaN, which has no range")));
            }
            if !numbers.is_empty() && numbers.iter().all(|number| number.is_infinite()) {
                return Err(Error::value(format!("the input `{name}` has infinities alone, which have no range")));
            }
            ranges.note(name, x);
        }
        observe(self, inputs, &mut |name, x| ranges.note(name, x))?;
        Ok(ranges)
    }
}
