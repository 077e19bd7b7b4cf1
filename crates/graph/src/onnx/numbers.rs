//! The numbers of initialisers and constants, as far as they decide a precision: those that a low dtype cannot hold.

use std::collections::HashMap;

use super::{
    graph::Node,
    model::OnnxModel,
    tensor::{Elem, Tensor},
    values::{Origin, Value, Values},
};
use precast::{DType, error::Result};

/// Share of the numbers that may lose more than four of their bits: as many as may be flushed to zero before a lint
/// reports it.
const LOST: f64 = 1.0 / 16.0;

/// The largest number of a bound that differs from place to place.
const SMALL_BOUND: f32 = 1e-3;

/// Room for numbers that are larger or smaller than factors say.
const ROOM: f64 = 16.0;

/// The numbers of a tensor that a low dtype does not hold.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Unfit {
    /// The largest magnitude, which would be infinite.
    Beyond(f32),
    /// The smallest magnitude, where too many numbers would lose their bits or become 0.
    Below(f32),
}

/// Limits of a low dtype.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    /// Magnitudes from here on are rounded to infinity.
    infinite: f32,
    /// Magnitudes below lose more than four bits: they are less than 8 of the smallest steps, of which rounding takes
    /// half a one.
    lossy: f32,
    /// The share of numbers that may be below.
    pub lost: f64,
    dtype: DType,
    /// `true` for limits of the policy.
    own: bool,
}

impl Limits {
    pub fn of(dtype: DType) -> Self {
        // Halfway between the largest number and the power of two after it; 8 of the smallest subnormal numbers.
        let (infinite, lossy) = match dtype {
            DType::F16 => (65520.0, 2f32.powi(-21)),
            _ => (f32::from_bits(0x7f7f_8000), 2f32.powi(-130)),
        };
        Limits { infinite, lossy, lost: LOST, dtype, own: false }
    }

    /// Sets the magnitudes that are accepted.
    pub fn within(mut self, beyond: Option<f64>, below: Option<f64>) -> Self {
        self.own = beyond.is_some() || below.is_some();
        if let Some(beyond) = beyond {
            // A number at the limit is accepted.
            self.infinite = self.infinite.min((beyond as f32).next_up());
        }
        if let Some(below) = below {
            self.lossy = below as f32;
        }
        self
    }

    /// Returns whether some of the numbers that factors give a magnitude may be infinite.
    pub fn may_overflow(&self, size: f64) -> bool {
        self.is_beyond(size * ROOM)
    }

    /// Returns whether some of the numbers that factors give a magnitude may lose their bits.
    pub fn may_vanish(&self, size: f64) -> bool {
        self.is_below(size / ROOM)
    }

    /// Returns whether numbers near 1 lose their digits in a sum with one of a magnitude.
    pub fn hides(&self, size: f64) -> bool {
        let ulp = match self.dtype {
            DType::F16 => half::f16::EPSILON.to_f64(),
            _ => half::bf16::EPSILON.to_f64(),
        };
        size * ulp >= 1.0
    }

    /// Returns whether a magnitude is rounded to infinity.
    pub fn is_beyond(&self, size: f64) -> bool {
        size >= f64::from(Limits::of(self.dtype).infinite)
    }

    /// Returns whether a magnitude loses its bits.
    pub fn is_below(&self, size: f64) -> bool {
        size < f64::from(Limits::of(self.dtype).lossy)
    }

    /// Returns the name of the dtype.
    pub fn dtype(&self) -> &'static str {
        self.dtype.long_name()
    }

    /// Returns the sentence for a tensor that does not fit.
    pub fn reason(&self, what: &str, unfit: &Unfit) -> String {
        let whose = match self.own {
            true => "the limits of the policy".into(),
            false => format!("the range of {}", self.dtype.long_name()),
        };
        match unfit {
            Unfit::Beyond(largest) => format!("{what} reaches {largest:e}, beyond {whose}"),
            Unfit::Below(smallest) => format!("{what} has numbers down to {smallest:e}, below {whose}"),
        }
    }
}

/// A tally of the numbers of a tensor.
#[derive(Clone, Copy, Debug)]
pub(super) struct Tally {
    pub largest: f32,
    pub smallest: f32,
    lossy: u64,
    nonzero: u64,
    pub count: u64,
    /// `true` when all are integers.
    pub whole: bool,
    /// `true` when one is below 0.
    pub negative: bool,
    /// The sum of numbers of which none is below 0.
    pub sum: f64,
    /// `true` when all numbers of a row are so large that others lose their digits next to them.
    pub hides: bool,
    /// The length of a row, and the number of such numbers up to here.
    row: (u64, u64),
}

impl Tally {
    /// Creates the tally of a tensor whose rows have a length.
    pub fn new(row: usize) -> Self {
        let row = (row.max(1) as u64, 0);
        let (lossy, nonzero, count) = (0, 0, 0);
        let (largest, smallest, whole, negative, sum, hides) = (0.0, f32::INFINITY, true, false, 0.0, false);
        Tally { largest, smallest, lossy, nonzero, count, whole, negative, sum, hides, row }
    }

    /// Adds numbers. Infinities are meant, and NaN has no size.
    pub fn add(&mut self, numbers: &[f32], limits: &Limits) {
        for &number in numbers {
            let size = number.abs();
            let finite = size < f32::INFINITY;
            self.largest = if finite { self.largest.max(size) } else { self.largest };
            let counts = finite && size > 0.0;
            self.smallest = if counts { self.smallest.min(size) } else { self.smallest };
            self.nonzero += u64::from(counts);
            self.lossy += u64::from(counts && size < limits.lossy);
        }
        if limits.hides(self.largest.into()) && !self.hides {
            self.rows(numbers, limits);
        }
        self.count += numbers.len() as u64;
        // The first number of most weights says no.
        self.whole = self.whole && numbers.iter().all(|number| number.fract() == 0.0);
        self.negative = self.negative || numbers.iter().any(|number| *number < 0.0);
        if !self.negative {
            self.sum += numbers.iter().copied().map(f64::from).sum::<f64>();
        }
    }

    fn rows(&mut self, numbers: &[f32], limits: &Limits) {
        for (at, number) in (self.count..).zip(numbers) {
            let (len, known) = self.row;
            let known = if at % len == 0 { 0 } else { known };
            self.row.1 = known + u64::from(number.is_finite() && limits.hides(number.abs().into()));
            self.hides = self.hides || self.row.1 == len;
        }
    }

    pub fn unfit(&self, limits: &Limits) -> Option<Unfit> {
        if self.largest >= limits.infinite {
            return Some(Unfit::Beyond(self.largest));
        }
        let too_many = self.lossy as f64 > limits.lost * self.nonzero as f64;
        too_many.then_some(Unfit::Below(self.smallest))
    }

    /// Returns whether it has one positive number, once or many times.
    pub fn is_one(&self) -> bool {
        self.is_uniform() && !self.negative
    }

    /// Returns the least of numbers that are all positive, if it is one number, or all are small.
    pub fn bound(&self) -> Option<f64> {
        let is_small = !self.negative && self.nonzero == self.count && self.largest <= SMALL_BOUND;
        Some(self.smallest.into()).filter(|_| self.is_one() || is_small)
    }

    /// Returns whether others lose their digits in a sum with any of them, as with an offset; a mask has small ones.
    pub fn is_offset(&self, limits: &Limits) -> bool {
        self.nonzero == self.count && limits.hides(self.smallest.into())
    }

    /// Returns whether all are zeros and ones, most of them ones, as in a triangle of ones.
    pub fn is_triangle(&self) -> bool {
        let ones = self.whole && !self.negative && self.largest == 1.0;
        ones && self.nonzero < self.count && 2 * self.nonzero > self.count
    }

    /// Returns whether a number other than 0 is rounded to 0.
    pub fn vanishes(&self, limits: &Limits) -> bool {
        // 8 of the smallest steps, of which half a one is rounded to 0.
        self.smallest <= Limits::of(limits.dtype).lossy / 16.0
    }

    /// Returns whether all numbers have the same magnitude.
    pub fn is_uniform(&self) -> bool {
        self.smallest == self.largest && self.nonzero == self.count
    }

    /// Returns the least and the largest magnitude as factors: 1 where numbers are 0 as well, as in masks.
    pub fn size(&self, limits: &Limits) -> (f64, f64) {
        if self.nonzero < self.count || self.count == 0 {
            return (1.0, 1.0);
        }
        let least = if matches!(self.unfit(limits), Some(Unfit::Below(_))) { self.smallest } else { self.largest };
        (f64::from(least), f64::from(self.largest))
    }
}

/// Numbers of another floating type that are looked at, at most: factors, which a cast may make float32.
const FEW: u64 = 4096;

/// Returns the tally of each value that is an initialiser or a constant of float32, or that nodes take out of a small one,
/// or a few numbers of another floating type. `progress` is called with the bytes that were read.
pub(super) fn tallies(
    values: &Values<'_>,
    elems: &[Elem],
    limits: &Limits,
    progress: &mut dyn FnMut(u64),
) -> Result<HashMap<usize, Tally>> {
    let mut found = HashMap::new();
    for (index, value) in values.values.iter().enumerate() {
        let row = values.tensor(index).and_then(|tensor| tensor.dims.last().copied());
        let mut tally = Tally::new(row.unwrap_or(1));
        if elems[index] != Elem::F32 {
            let is_float = |of: &&Tensor| [Elem::F64, Elem::F16, Elem::BF16].contains(&of.elem);
            let few = values.tensor(index).filter(is_float).filter(|of| of.count().is_ok_and(|count| count <= FEW));
            if let Some(few) = few {
                let numbers: Vec<f32> = super::import::numbers(values.model, few)?
                    .to_f64()
                    .into_iter()
                    .map(|number| number as f32)
                    .collect();
                tally.add(&numbers, limits);
                found.insert(index, tally);
            }
            continue;
        }
        each_number(values, value, &mut |numbers| {
            tally.add(numbers, limits);
            progress(numbers.len() as u64 * 4);
            Ok(())
        })?;
        if tally.count > 0 {
            found.insert(index, tally);
        }
    }
    for (index, x) in super::import::taken(values).into_iter().filter(|(index, _)| elems[*index] == Elem::F32) {
        let mut tally = Tally::new(x.shape().last().copied().unwrap_or(1));
        tally.add(&x.to_vec::<f32>()?, limits);
        found.insert(index, tally);
    }
    Ok(found)
}

/// Calls `each` with the numbers of a value that is known without a run.
fn each_number(values: &Values<'_>, value: &Value<'_>, each: &mut dyn FnMut(&[f32]) -> Result<()>) -> Result<()> {
    let (model, graph) = (values.model, values.scopes[value.scope].graph);
    if let Some(index) = value.initialiser {
        return model.floats(&graph.initialisers[index], each);
    }
    if value.origin == Origin::Sparse {
        return graph.sparse.iter().find(|known| known.name == value.name).map_or(Ok(()), |of| model.floats(of, each));
    }
    let Origin::Node { node } = value.origin else { return Ok(()) };
    let node = values.nodes[node].node;
    if !node.domain.is_empty() || !["Constant", "ConstantOfShape"].contains(&&node.op[..]) {
        return Ok(());
    }
    match constant(model, node)? {
        Some(Constant::Tensor(tensor)) if tensor.elem == Elem::F32 => model.floats(tensor, each),
        Some(Constant::Numbers { numbers, .. }) => each(&numbers),
        Some(Constant::Tensor(_)) => Ok(()),
        None => {
            node.attribute("sparse_value").and_then(|of| of.sparse.as_ref()).map_or(Ok(()), |of| model.floats(of, each))
        }
    }
}

/// The value of a node `Constant`.
pub(super) enum Constant<'a> {
    Tensor(&'a Tensor),
    /// `value_float` or `value_floats`.
    Numbers {
        numbers: Vec<f32>,
        is_scalar: bool,
    },
}

/// Returns the value of a constant of floats; `None` for another one.
pub(super) fn constant<'a>(model: &OnnxModel, node: &'a Node) -> Result<Option<Constant<'a>>> {
    if let Some(value) = node.attribute("value") {
        return Ok(value.tensor.as_ref().map(Constant::Tensor));
    }
    for (name, is_scalar) in [("value_float", true), ("value_floats", false)] {
        if let Some(numbers) = model.float_numbers(node, name)? {
            return Ok(Some(Constant::Numbers { numbers, is_scalar }));
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn unfit_of(numbers: &[f32], dtype: DType) -> Option<Unfit> {
        let limits = Limits::of(dtype);
        let mut tally = Tally::new(1);
        tally.add(numbers, &limits);
        tally.unfit(&limits)
    }

    /// Rows of three, read in parts.
    #[test]
    fn a_row_hides_others_if_all_its_numbers_do() {
        for (numbers, hides) in [
            ([0.0, -1e4, -1e4, -1e4, 0.0, -1e4], false),
            ([0.0, 0.0, -1e4, -1e4, -2e4, 1024.0], true),
            ([1.0, 1.0, 1.0, f32::NEG_INFINITY, -1e4, -1e4], false),
            ([1.0, 1.0, 1.0, 1023.0, 1e4, 1e4], false),
        ] {
            for parts in [1, 2, 6] {
                let mut tally = Tally::new(3);
                numbers.chunks(parts).for_each(|part| tally.add(part, &Limits::of(DType::F16)));
                assert_eq!(tally.hides, hides, "{numbers:?}");
            }
        }
    }

    /// The limits are those of rounding itself.
    #[test]
    fn a_number_is_beyond_exactly_if_it_would_be_infinite() {
        for (dtype, largest) in [(DType::F16, 65504.0f32), (DType::Bf16, 3.389_531_4e38)] {
            let rounds = |number: f32| match dtype {
                DType::F16 => half::f16::from_f32(number).to_f32(),
                _ => half::bf16::from_f32(number).to_f32(),
            };
            let limit = Limits::of(dtype).infinite;
            assert!(rounds(limit).is_infinite() && rounds(limit.next_down()) == largest, "{dtype}");
            assert_eq!(unfit_of(&[1.0, -limit], dtype), Some(Unfit::Beyond(limit)));
            assert_eq!(unfit_of(&[1.0, limit.next_down(), f32::NEG_INFINITY, f32::NAN], dtype), None);
        }
    }

    #[test]
    fn small_numbers_count_where_they_are_many() {
        assert_eq!(unfit_of(&[1e-12], DType::F16), Some(Unfit::Below(1e-12)));
        assert_eq!(unfit_of(&[1e-12], DType::Bf16), None);
        let mut many = vec![1.0; 31];
        many.extend([0.0, 1e-9]);
        assert_eq!(unfit_of(&many, DType::F16), None);
        assert_eq!(unfit_of(&many[20..], DType::F16), Some(Unfit::Below(1e-9)));
        // The error of the smallest accepted number is a sixteenth of it.
        let least = Limits::of(DType::F16).lossy;
        let error = |number: f32| (half::f16::from_f32(number).to_f32() - number).abs() / number;
        assert!(error(least * 1.062_5) <= 1.0 / 16.0 && error(least * 0.9375) > 1.0 / 16.0);
    }
}
