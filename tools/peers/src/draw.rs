//! Random cases: shapes, views and values.

use std::ops::{Range, RangeInclusive};

use precast::{DType, Result, Tensor};
use rand::{Rng, SeedableRng, seq::IndexedRandom};
use rand_chacha::ChaCha8Rng;
use serde_json::{Map, Value};

use crate::ops::Specials;

/// Kinds of numbers in floating-point inputs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Values {
    /// Uniform in the requested range.
    Plain,
    /// Magnitudes from far below to far above 1.
    Wide,
    /// Plain ones mixed with zeros, infinities, NaN, subnormal and the largest numbers.
    Special,
}

/// Seeded random inputs in one dtype.
pub struct Draw {
    rng: ChaCha8Rng,
    pub dtype: DType,
    pub values: Values,
    pub specials: Specials,
}

impl Draw {
    pub fn new(seed: u64, dtype: DType, values: Values) -> Draw {
        Draw { rng: ChaCha8Rng::seed_from_u64(seed), dtype, values, specials: Specials::All }
    }

    pub fn size(&mut self, range: RangeInclusive<usize>) -> usize {
        self.rng.random_range(range)
    }

    pub fn flag(&mut self) -> bool {
        self.rng.random()
    }

    pub fn one_of<T: Copy>(&mut self, choices: &[T]) -> T {
        *choices.choose(&mut self.rng).expect("there are choices")
    }

    /// Draws a number of few digits, which every dtype represents about equally well.
    pub fn number(&mut self, range: Range<f64>) -> f64 {
        (self.rng.random_range(range) * 64.0).round() / 64.0
    }

    /// Draws a shape of such a rank. One axis may be long enough for whole vectors and a remainder.
    pub fn shape(&mut self, rank: RangeInclusive<usize>) -> Vec<usize> {
        let mut shape: Vec<usize> = (0..self.size(rank)).map(|_| self.size(1..=5)).collect();
        if !shape.is_empty() && self.size(0..=2) == 0 {
            let axis = self.size(0..=shape.len() - 1);
            shape[axis] = self.size(6..=70);
        }
        shape
    }

    /// Draws an axis, counted from the front or from the back.
    pub fn axis(&mut self, rank: usize) -> isize {
        let axis = self.size(0..=rank - 1) as isize;
        if self.flag() { axis } else { axis - rank as isize }
    }

    /// Draws some axes, or none, which means all.
    pub fn axes(&mut self, rank: usize) -> Vec<isize> {
        (0..rank as isize).filter(|_| self.flag()).collect()
    }

    /// Draws a floating-point tensor of numbers between -3 and 3, or as `values` says.
    pub fn float(&mut self, shape: &[usize]) -> Result<Tensor> {
        self.between(shape, -3.0..3.0)
    }

    /// Draws a floating-point tensor of numbers in the range, or as `values` says.
    pub fn between(&mut self, shape: &[usize], range: Range<f64>) -> Result<Tensor> {
        let (dtype, values) = (self.dtype, self.values);
        self.viewed(shape, dtype, |draw| draw.element(values, range.clone()))
    }

    /// Draws a floating-point tensor of plain numbers in the range, whatever `values` says.
    pub fn plain(&mut self, shape: &[usize], range: Range<f64>) -> Result<Tensor> {
        let dtype = self.dtype;
        self.viewed(shape, dtype, |draw| draw.element(Values::Plain, range.clone()))
    }

    /// Draws indices from 0 to `n - 1`.
    pub fn indices(&mut self, shape: &[usize], n: usize) -> Result<Tensor> {
        self.viewed(shape, DType::I64, |draw| draw.size(0..=n - 1) as f64)
    }

    /// Draws `count` distinct indices from 0 to `n - 1`.
    pub fn places(&mut self, count: usize, n: usize) -> Result<Tensor> {
        let chosen = rand::seq::index::sample(&mut self.rng, n, count);
        Tensor::from_vec(chosen.iter().map(|i| i as i64).collect(), &[count])
    }

    pub fn booleans(&mut self, shape: &[usize]) -> Result<Tensor> {
        self.viewed(shape, DType::Bool, |draw| f64::from(u8::from(draw.flag())))
    }

    /// Draws targets of 1 and -1.
    pub fn signs(&mut self, shape: &[usize]) -> Result<Tensor> {
        let dtype = self.dtype;
        self.viewed(shape, dtype, |draw| draw.one_of(&[-1.0, 1.0]))
    }

    /// Makes a tensor of single numbers: contiguous, as the transpose of one, or as a part of one.
    fn viewed(&mut self, shape: &[usize], dtype: DType, mut number: impl FnMut(&mut Draw) -> f64) -> Result<Tensor> {
        let rank = shape.len();
        let mut filled = |draw: &mut Draw, shape: &[usize]| {
            let data: Vec<f64> = (0..shape.iter().product()).map(|_| number(draw)).collect();
            Tensor::from_f64(&data, shape, dtype)
        };
        match self.size(0..=2) {
            1 if rank > 1 => {
                let (a, b) = (self.size(0..=rank - 1), self.size(0..=rank - 1));
                let mut swapped = shape.to_vec();
                swapped.swap(a, b);
                filled(self, &swapped)?.transpose(a as isize, b as isize)
            }
            2 if rank > 0 => {
                let axis = self.size(0..=rank - 1);
                let (before, after) = (self.size(0..=2), self.size(0..=2));
                let mut larger = shape.to_vec();
                larger[axis] += before + after;
                filled(self, &larger)?.slice(axis as isize, before..before + shape[axis])
            }
            _ => filled(self, shape),
        }
    }

    fn element(&mut self, values: Values, range: Range<f64>) -> f64 {
        let (least, largest) = limits(self.dtype);
        let values = if self.specials == Specials::None { Values::Plain } else { values };
        match values {
            Values::Plain => self.rng.random_range(range),
            Values::Wide => {
                let exponent = self.rng.random_range(-12.0..12.0f64);
                self.rng.random_range(-1.0..1.0f64) * exponent.exp2()
            }
            Values::Special if self.size(0..=2) > 0 => self.rng.random_range(range),
            Values::Special => {
                let subnormal = least * self.size(1..=900) as f64;
                let large = if self.specials == Specials::All { largest } else { largest.min(40f64.exp2()) };
                let (infinity, nan) = match self.specials {
                    Specials::Finite => (large, 0.0),
                    _ => (f64::INFINITY, f64::NAN),
                };
                let choices = [0.0, infinity, nan, subnormal, large, 1.0, 3.0];
                self.one_of(&choices) * self.one_of(&[-1.0, 1.0])
            }
        }
    }
}

/// Returns the smallest subnormal and the largest number of a dtype.
pub fn limits(dtype: DType) -> (f64, f64) {
    match dtype {
        DType::F16 => ((-24f64).exp2(), 65504.0),
        DType::Bf16 => ((-133f64).exp2(), (2.0 - (-7f64).exp2()) * 127f64.exp2()),
        DType::F64 => (f64::from_bits(1), f64::MAX),
        _ => ((-149f64).exp2(), f64::from(f32::MAX)),
    }
}

type Call = Box<dyn Fn(&[Tensor]) -> Result<Vec<Tensor>>>;

/// A call of an op: its inputs, the further arguments for torch, and the call itself.
pub struct Case {
    pub inputs: Vec<Tensor>,
    /// Inputs excluded from the backward pass.
    pub fixed: Vec<usize>,
    pub options: Map<String, Value>,
    pub call: Call,
}

impl Case {
    /// Creates a call with one result.
    pub fn new(inputs: Vec<Tensor>, call: impl Fn(&[Tensor]) -> Result<Tensor> + 'static) -> Case {
        Case::many(inputs, move |x| Ok(vec![call(x)?]))
    }

    pub fn many(inputs: Vec<Tensor>, call: impl Fn(&[Tensor]) -> Result<Vec<Tensor>> + 'static) -> Case {
        Case { inputs, fixed: Vec::new(), options: Map::new(), call: Box::new(call) }
    }

    pub fn option(mut self, name: &str, value: impl Into<Value>) -> Case {
        self.options.insert(name.into(), value.into());
        self
    }

    pub fn fixed(mut self, input: usize) -> Case {
        self.fixed.push(input);
        self
    }
}
