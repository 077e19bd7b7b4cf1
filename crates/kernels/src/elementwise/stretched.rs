//! Functions of slices that are broadcast to one shape.

use super::function::{BLOCK, Function, MapSlices};
use crate::{arrays::array_of, float::Float, memory::Pooled, strides::Broadcast};

/// Input of [`map_stretched`].
#[derive(Clone, Copy)]
pub enum Input<'a, T: Float> {
    /// Numbers of the format.
    Stored(&'a [T]),
    /// Numbers of the type of the arithmetic.
    Wide(&'a [T::Wide]),
}

impl<T: Float> Input<'_, T> {
    /// Fills `to` with the elements from `start`, or with the one there.
    fn read(self, start: usize, step: usize, to: &mut [T::Wide]) {
        match (self, step) {
            (Input::Stored(x), 0) => to.fill(x[start].widen()),
            (Input::Wide(x), 0) => to.fill(x[start]),
            (Input::Stored(x), _) => T::widen_into(&x[start..][..to.len()], to),
            (Input::Wide(x), _) => to.copy_from_slice(&x[start..][..to.len()]),
        }
    }
}

/// Computes a function of slices that are broadcast to one shape. `each` receives the unrounded results, block by block
/// in row-major order.
pub fn map_stretched<T: Float<Wide: MapSlices>, const N: usize>(
    f: &dyn Function,
    walk: &Broadcast<N>,
    x: [Input<'_, T>; N],
    each: &mut dyn FnMut(&[T::Wide]),
) {
    let size = BLOCK.min(walk.len());
    if size == 0 {
        return;
    }
    let mut spaces = Pooled::uninit(size * (N + 1));
    let (wide, spaces) = spaces.split_at_mut(size);
    let mut compute = |spaces: &[T::Wide], n: usize| {
        let parts: [&[T::Wide]; N] = array_of(|k| &spaces[k * size..][..n]);
        T::Wide::map_slices(f, &parts, &mut wide[..n]);
        each(&wide[..n]);
    };
    let mut filled = 0;
    walk.each_row(|len, runs| {
        let mut done = 0;
        while done < len {
            let n = (len - done).min(size - filled);
            for ((x, run), space) in x.iter().zip(runs).zip(spaces.chunks_exact_mut(size)) {
                x.read(run.start + done * run.step, run.step, &mut space[filled..][..n]);
            }
            (done, filled) = (done + n, filled + n);
            if filled == size {
                compute(spaces, size);
                filled = 0;
            }
        }
    });
    if filled > 0 {
        compute(spaces, filled);
    }
}

#[cfg(test)]
mod tests {
    use half::f16;

    use super::{
        super::function::{Pointwise, tests::Mixed},
        *,
    };

    /// Returns, by definition, the index of the element of an array of `shape` at position `i` of `to`.
    fn place(mut i: usize, to: &[usize], shape: &[usize]) -> usize {
        let (mut at, mut size) = (0, 1);
        for (axis, &len) in to.iter().enumerate().rev() {
            if let Some(own) = (axis + shape.len()).checked_sub(to.len()).map(|axis| shape[axis]) {
                at += size * if own == 1 { 0 } else { i % len };
                size *= own;
            }
            i /= len;
        }
        at
    }

    #[test]
    fn stretched_slices_are_as_numbers() {
        let long = if cfg!(miri) { 70 } else { 700 };
        let to = [3, long, 5];
        let shapes: [&[usize]; 6] = [&to, &[5], &[long, 1], &[3, 1, 5], &[1], &[3, 1, 1]];
        for a in shapes {
            for b in shapes {
                let numbers = |shape: &[usize], factor: f32| -> Vec<f16> {
                    (0..shape.iter().product()).map(|i: usize| f16::from_f32((i as f32 * factor).sin())).collect()
                };
                let (x, y) = (numbers(a, 0.7), numbers(b, 1.3));
                let wide: Vec<f32> = y.iter().map(|y| y.to_f32()).collect();
                let mut got = vec![];
                let inputs = [Input::Stored(&x[..]), Input::Wide(&wide)];
                map_stretched(&Mixed, &Broadcast::new(&to, [a, b]), inputs, &mut |part| got.extend_from_slice(part));
                let want: Vec<f32> = (0..to.iter().product())
                    .map(|i| Mixed.at(&[x[place(i, &to, a)].to_f32(), wide[place(i, &to, b)]]))
                    .collect();
                assert_eq!(got, want, "{a:?} {b:?}");
            }
        }
        let nothing = Broadcast::new(&[0, 3], [&[0, 3], &[1, 3]]);
        let inputs = [Input::<f32>::Stored(&[]), Input::Stored(&[1.0; 3])];
        map_stretched(&Mixed, &nothing, inputs, &mut |_| panic!("nothing is there"));
    }
}
