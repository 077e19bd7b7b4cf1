//! Normalization of channels whose statistics are known, with the sum and the ReLU that follow it, in one pass.

use precast_base::DType;

use super::{norm::Rows, sum::replace};
use crate::{
    elementwise::BLOCK,
    float::Float,
    memory::{Pooled, uninit_vec},
    simd::{Body, vectorized},
    threads,
    threads::Shared,
};

/// The function of each channel: `(x - mean) * scale + shift`, as in [`normalize`](super::norm::normalize).
pub struct Channels {
    rows: Rows,
    means: Pooled<f32>,
    scales: Pooled<f32>,
    shifts: Pooled<f32>,
}

impl Channels {
    /// Creates the functions from the statistics; each row has one parameter.
    pub fn new(
        rows: Rows,
        means: Pooled<f32>,
        deviations: &[f32],
        gamma: Option<&[f32]>,
        beta: Option<&[f32]>,
    ) -> Self {
        let scales = (0..rows.rows).map(|row| gamma.map_or(1.0, |gamma| gamma[row]) / deviations[row]);
        let shifts = (0..rows.rows).map(|row| beta.map_or(0.0, |beta| beta[row]));
        let (scales, shifts) = (Pooled::collect(rows.rows, scales), Pooled::collect(rows.rows, shifts));
        Channels { rows, means, scales, shifts }
    }

    /// Computes the functions of x, rounds, adds `plus`, rounds, and takes ReLU, each as if it were an op of its own.
    pub fn of<X: Float<Wide = f32>, T: Float<Wide = f32>>(&self, x: &[X], plus: Option<&[T]>, relu: bool) -> Pooled<T> {
        let rows = &self.rows;
        let floor = if relu { -rounded_to_zero(T::DTYPE) } else { f32::NEG_INFINITY };
        let mut y = uninit_vec(x.len());
        let to = Shared::new(&mut y);
        threads::split(rows.rows, 1, rows.work(), |some| {
            let mut spaces = Pooled::uninit(2 * BLOCK);
            for row in some {
                let line = [self.means[row], self.scales[row], self.shifts[row]];
                for start in (0..rows.segments).map(|s| rows.start(s, row)) {
                    for at in (start..start + rows.segment).step_by(BLOCK) {
                        let n = BLOCK.min(start + rows.segment - at);
                        // SAFETY: rows have disjoint segments, and each row belongs to one thread.
                        let y = unsafe { to.part(at, n) };
                        block(line, &x[at..at + n], plus.map(|plus| &plus[at..at + n]), floor, y, &mut spaces);
                    }
                }
            }
        });
        y
    }
}

/// Fills `y` with a line of x, rounded; plus the numbers of `plus`, rounded. Results below `floor` become 0.
fn block<X: Float<Wide = f32>, T: Float<Wide = f32>>(
    line: [f32; 3],
    x: &[X],
    plus: Option<&[T]>,
    floor: f32,
    y: &mut [T],
    spaces: &mut [f32],
) {
    let (space, to) = spaces.split_at_mut(BLOCK);
    let x = X::widened(x, space);
    let first_floor = if plus.is_some() { f32::NEG_INFINITY } else { floor };
    if let Some(y) = T::wide_mut(y) {
        vectorized(Line { x, line, floor: first_floor, y });
        if let Some(plus) = plus {
            vectorized(Plus { plus: T::widened(plus, space), floor, y });
        }
        return;
    }
    let to = &mut to[..y.len()];
    vectorized(Line { x, line, floor: first_floor, y: to });
    T::narrow_into(to, y);
    if let Some(plus) = plus {
        T::widen_into(y, to);
        vectorized(Plus { plus: T::widened(plus, space), floor, y: to });
        T::narrow_into(to, y);
    }
}

/// Returns the largest magnitude that is rounded to 0. A negative number up to it becomes -0, which ReLU keeps.
fn rounded_to_zero(dtype: DType) -> f32 {
    match dtype {
        DType::F16 => 2f32.powi(-25),
        DType::Bf16 => f32::from_bits(1 << 15),
        _ => 0.0,
    }
}

/// The function of one channel, given its mean, scale and shift.
struct Line<'a> {
    x: &'a [f32],
    line: [f32; 3],
    floor: f32,
    y: &'a mut [f32],
}

impl Body for Line<'_> {
    type Output = ();
    #[inline(always)]
    fn run(self) {
        let Line { x, line: [mean, scale, shift], floor, y } = self;
        replace(y, [x], |_, [x]| above(floor, (x - mean) * scale + shift));
    }
}

/// The sum.
struct Plus<'a> {
    plus: &'a [f32],
    floor: f32,
    y: &'a mut [f32],
}

impl Body for Plus<'_> {
    type Output = ();
    #[inline(always)]
    fn run(self) {
        let Plus { plus, floor, y } = self;
        replace(y, [plus], |y, [plus]| above(floor, y + plus));
    }
}

/// Returns x, or 0 where it is below `floor`. NaN stays.
#[inline(always)]
fn above(floor: f32, x: f32) -> f32 {
    if x < floor { 0.0 } else { x }
}

#[cfg(test)]
mod tests {
    use half::{bf16, f16};

    use super::*;

    #[test]
    fn the_largest_number_that_is_rounded_to_zero_is() {
        let (half, brain) = (rounded_to_zero(DType::F16), rounded_to_zero(DType::Bf16));
        assert_eq!(
            (<f16 as Float>::narrow(-half).to_bits(), <bf16 as Float>::narrow(-brain).to_bits()),
            (1 << 15, 1 << 15)
        );
        assert_ne!(<f16 as Float>::narrow(-half.next_up()).to_bits(), 1 << 15);
        assert_ne!(<bf16 as Float>::narrow(-brain.next_up()).to_bits(), 1 << 15);
    }
}
