//! Seeded inputs: shapes of every form, and numbers in a range.

use std::ops::{Range, RangeInclusive};

use precast::Tensor;
use rand::{Rng, SeedableRng, seq::SliceRandom};
use rand_chacha::ChaCha8Rng;

/// Number of cases of each row.
pub const CASES: usize = 24;

/// Form of the sizes of a case.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Form {
    /// No axes if the op allows it, else one element.
    Scalar,
    /// One element.
    One,
    /// No element: one axis has length 0.
    Empty,
    /// Axes of length 1 to 9, shorter with more axes.
    Random,
    /// This many samples or rows, and every other axis of length 2.
    Tall(usize),
}

/// Draws the inputs and options of one case.
pub struct Draw {
    rng: ChaCha8Rng,
    case: usize,
    pub form: Form,
}

impl Draw {
    pub fn new(case: usize) -> Self {
        let form = match case {
            0 => Form::Scalar,
            1 => Form::One,
            2 | 3 => Form::Empty,
            _ => Form::Random,
        };
        Draw { rng: ChaCha8Rng::seed_from_u64(case as u64), case, form }
    }

    /// Draws one of the cases of random form, with this many samples or rows.
    pub fn tall(case: usize, rows: usize) -> Self {
        Draw { form: Form::Tall(rows), ..Draw::new(case) }
    }

    /// Draws an integer, for options of any kind.
    pub fn number(&mut self, range: RangeInclusive<usize>) -> usize {
        self.rng.random_range(range)
    }

    /// Draws the length of an axis that cannot be empty: the smallest if one element is requested.
    pub fn size(&mut self, range: RangeInclusive<usize>) -> usize {
        match self.form {
            Form::Scalar | Form::One => *range.start(),
            Form::Tall(_) => *range.end().min(range.start().max(&2)),
            _ => self.number(range),
        }
    }

    /// Draws the length of an axis that can be empty, such as that of samples.
    pub fn samples(&mut self, most: usize) -> usize {
        match self.form {
            Form::Empty => 0,
            Form::Tall(rows) => rows,
            _ => self.size(1..=most),
        }
    }

    /// Returns the one length that decides the shape: another in each case.
    pub fn length(&self) -> usize {
        if self.form == Form::Empty { 0 } else { self.case.max(1) }
    }

    /// Draws the lengths of several axes that cannot be empty.
    pub fn sizes(&mut self, count: usize, range: RangeInclusive<usize>) -> Vec<usize> {
        (0..count).map(|_| self.size(range.clone())).collect()
    }

    pub fn flag(&mut self) -> bool {
        self.rng.random()
    }

    /// Picks each in turn.
    pub fn pick<T: Copy>(&self, all: &[T]) -> T {
        // Ranks and layouts cycle with other periods, so 7 keeps all pairs possible.
        all[(self.case / 7 + self.case) % all.len()]
    }

    /// Draws a shape of such a rank; random ones have each rank in turn.
    pub fn shape(&mut self, rank: RangeInclusive<usize>) -> Vec<usize> {
        let (low, high) = (*rank.start(), *rank.end());
        if let Form::Tall(rows) = self.form {
            return if high > 3 { vec![rows, 2] } else { vec![rows] };
        }
        let rank = match self.form {
            Form::Scalar => low,
            Form::One => low.max(1),
            // Without axes there is only one shape, that of a scalar.
            _ => low.max(1) + self.case % (high - low.max(1) + 1),
        };
        // With one axis there are as many shapes as lengths; with many axes, long ones make too many differences to
        // compute.
        let mut shape = self.sizes(rank, 1..=[9, 4, 4, 3][rank.clamp(1, 4) - 1]);
        if self.form == Form::Empty {
            let axis = self.number(0..=rank - 1);
            shape[axis] = 0;
        }
        shape
    }

    /// Draws a shape, and one of its axes that is not empty.
    pub fn shape_and_axis(&mut self, most: usize) -> (Vec<usize>, usize) {
        let shape = self.shape(if self.form == Form::Empty { 2..=most.max(2) } else { 1..=most });
        let full: Vec<usize> = (0..shape.len()).filter(|&axis| shape[axis] > 0).collect();
        let axis = full[self.number(0..=full.len() - 1)];
        (shape, axis)
    }

    /// Draws `count` shapes that broadcast: axes of one shape, some of length 1, and leading ones dropped. The first is
    /// whole in every fourth case and where it is empty, so that only the others are summed.
    pub fn broadcast<const COUNT: usize>(&mut self) -> [Vec<usize>; COUNT] {
        let shape = self.shape(0..=4);
        let whole = self.case.is_multiple_of(4) || self.form == Form::Empty;
        std::array::from_fn(|i| {
            if whole && i == 0 {
                return shape.clone();
            }
            let drop = if self.number(0..=2) == 0 { self.number(0..=shape.len()) } else { 0 };
            shape[drop..].iter().map(|&len| if self.number(0..=3) == 0 { 1 } else { len }).collect()
        })
    }

    /// Draws numbers in the range.
    pub fn tensor(&mut self, shape: &[usize], range: Range<f64>) -> Tensor {
        self.away(shape, range, &[])
    }

    /// Draws numbers in the range and at least 0.05 away from the kinks, where there is no slope to compare.
    pub fn away(&mut self, shape: &[usize], range: Range<f64>, kinks: &[f64]) -> Tensor {
        let mut number = || loop {
            let x = self.rng.random_range(range.clone());
            if kinks.iter().all(|kink| (x - kink).abs() > 0.05) {
                return x;
            }
        };
        let data: Vec<f64> = (0..shape.iter().product()).map(|_| number()).collect();
        Tensor::from_vec(data, shape).expect("as many numbers as the shape has")
    }

    /// Draws numbers at least 1/16 apart, so that neither a difference step nor rounding to 16 bit changes their order.
    pub fn apart(&mut self, shape: &[usize]) -> Tensor {
        let len: usize = shape.iter().product();
        let mut data: Vec<f64> = (0..len).map(|i| (i as f64 - len as f64 / 2.0) / 16.0).collect();
        data.shuffle(&mut self.rng);
        Tensor::from_vec(data, shape).expect("as many numbers as the shape has")
    }

    /// Draws indices below a length, some of them equal.
    pub fn indices(&mut self, below: usize, shape: &[usize]) -> Tensor {
        let data: Vec<i64> = (0..shape.iter().product()).map(|_| self.rng.random_range(0..below as i64)).collect();
        Tensor::from_vec(data, shape).expect("as many indices as the shape has")
    }

    /// Draws 1 or -1, as integers.
    pub fn signs(&mut self, shape: &[usize]) -> Tensor {
        let data: Vec<i64> = (0..shape.iter().product()).map(|_| if self.flag() { 1 } else { -1 }).collect();
        Tensor::from_vec(data, shape).expect("as many signs as the shape has")
    }

    pub fn mask(&mut self, shape: &[usize]) -> Tensor {
        let data: Vec<bool> = (0..shape.iter().product()).map(|_| self.flag()).collect();
        Tensor::from_vec(data, shape).expect("as many truth values as the shape has")
    }
}
