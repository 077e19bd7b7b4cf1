//! Copies of views that are not in row-major order.

use ndarray::ArrayViewD;

use crate::memory::{Item, Pooled, copied, uninit_vec};

/// Length of one axis of a view, and its stride in elements.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Axis {
    len: usize,
    step: isize,
}

/// Number of rows and columns that are transposed together, so that both source and target stay in the nearest cache.
const TILE: usize = 16;

/// Returns the elements of a view in row-major order.
pub fn row_major<T: Item>(x: &ArrayViewD<'_, T>) -> Pooled<T> {
    if let Some(slice) = x.as_slice() {
        return copied(slice);
    }
    let mut out = uninit_vec(x.len());
    if !out.is_empty() {
        let axes = merged(x.shape(), x.strides());
        // SAFETY: every index within the axes is inside the view, and `out` has one element for each.
        unsafe { copy(x.as_ptr(), &axes, out.as_mut_ptr()) };
    }
    out
}

/// Returns the axes longer than 1. Adjacent axes with a common step are merged.
fn merged(shape: &[usize], steps: &[isize]) -> Vec<Axis> {
    let mut axes: Vec<Axis> = Vec::new();
    for (&len, &step) in shape.iter().zip(steps).filter(|(len, _)| **len != 1) {
        match axes.last_mut() {
            Some(outer) if outer.step == step * len as isize => *outer = Axis { len: outer.len * len, step },
            _ => axes.push(Axis { len, step }),
        }
    }
    axes
}

/// Copies the elements of some axes to row-major order.
///
/// # Safety
/// `from` plus any index within the axes is valid for reads, and `to` for writes of as many elements.
unsafe fn copy<T: Copy>(from: *const T, axes: &[Axis], to: *mut T) {
    let place = |i: usize, axis: Axis| i as isize * axis.step;
    let inner: usize = axes.iter().skip(1).map(|axis| axis.len).product();
    // SAFETY: guaranteed by the caller, for each part of the axes.
    unsafe {
        match axes {
            [] => *to = *from,
            [row] if row.step == 1 => std::ptr::copy_nonoverlapping(from, to, row.len),
            [row] => (0..row.len).for_each(|i| *to.add(i) = *from.offset(place(i, *row))),
            [rows, columns] if columns.step != 1 => transpose(from, [*rows, *columns], to),
            // The first axis is contiguous in the view: it is moved next to the last, and the two are transposed.
            [first, .., last] if last.step != 1 && first.step == 1 => {
                for i in 0..axes[1].len {
                    let rest: Vec<Axis> = std::iter::once(*first).chain(axes[2..].iter().copied()).collect();
                    copy_rows(from.offset(place(i, axes[1])), &rest, to.add(i * (inner / axes[1].len)), inner);
                }
            }
            [first, rest @ ..] => {
                for i in 0..first.len {
                    copy(from.offset(place(i, *first)), rest, to.add(i * inner));
                }
            }
        }
    }
}

/// Copies as [`copy`] does, with the elements of adjacent indices of the first axis `apart` in `to`.
///
/// # Safety
/// As for `copy`, with rows of `to` that are `apart`.
unsafe fn copy_rows<T: Copy>(from: *const T, axes: &[Axis], to: *mut T, apart: usize) {
    // SAFETY: guaranteed by the caller, for each part of the axes.
    unsafe {
        match axes {
            [rows, columns] => tiles(from, [*rows, *columns], to, apart),
            [first, next, rest @ ..] => {
                let inner: usize = rest.iter().map(|axis| axis.len).product();
                for i in 0..next.len {
                    let axes: Vec<Axis> = std::iter::once(*first).chain(rest.iter().copied()).collect();
                    copy_rows(from.offset(i as isize * next.step), &axes, to.add(i * inner), apart);
                }
            }
            _ => copy(from, axes, to),
        }
    }
}

/// Copies two axes. The first is contiguous in memory.
///
/// # Safety
/// As for [`copy`].
unsafe fn transpose<T: Copy>(from: *const T, axes: [Axis; 2], to: *mut T) {
    // SAFETY: guaranteed by the caller; rows of `to` are consecutive.
    unsafe { tiles(from, axes, to, axes[1].len) }
}

/// Copies two axes tile by tile.
///
/// # Safety
/// As for [`copy`], with rows of `to` that are `apart`.
unsafe fn tiles<T: Copy>(from: *const T, [rows, columns]: [Axis; 2], to: *mut T, apart: usize) {
    for top in (0..rows.len).step_by(TILE) {
        for left in (0..columns.len).step_by(TILE) {
            for row in top..rows.len.min(top + TILE) {
                for column in left..columns.len.min(left + TILE) {
                    let place = row as isize * rows.step + column as isize * columns.step;
                    // SAFETY: guaranteed by the caller; both indices are within the axes.
                    unsafe { *to.add(row * apart + column) = *from.offset(place) };
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use ndarray::{ArrayD, Axis, IxDyn, Slice};

    use super::*;

    /// Checks every order of the axes, also of slices and with inverted axes, against ndarray's traversal.
    #[test]
    fn views_are_copied_as_ndarray_walks_them() {
        let shape = [3, 1, 17, 5, 2];
        let len: usize = shape.iter().product();
        let whole = ArrayD::from_shape_vec(IxDyn(&shape), (0..len as i64).collect()).unwrap();
        let mut orders = vec![vec![]];
        for _ in 0..shape.len() {
            orders = orders
                .into_iter()
                .flat_map(|order: Vec<usize>| {
                    (0..shape.len())
                        .filter(|i| !order.contains(i))
                        .map(|i| [&order[..], &[i]].concat())
                        .collect::<Vec<_>>()
                })
                .collect();
        }
        assert_eq!(orders.len(), 120);
        for order in orders {
            for variant in 0..4 {
                let mut view = whole.view();
                if variant & 1 == 1 {
                    view.slice_axis_inplace(Axis(2), Slice::new(1, Some(16), 3));
                }
                if variant & 2 == 2 {
                    view.invert_axis(Axis(3));
                }
                let view = view.permuted_axes(IxDyn(&order));
                assert_eq!(row_major(&view)[..], view.iter().copied().collect::<Vec<_>>(), "{order:?} {variant}");
            }
        }
        let row = ArrayD::from_shape_vec(IxDyn(&[4]), vec![1i64, 2, 3, 4]).unwrap();
        let stretched = row.broadcast(IxDyn(&[3, 2, 4])).unwrap();
        assert_eq!(row_major(&stretched)[..], stretched.iter().copied().collect::<Vec<_>>());
        assert!(row_major(&whole.slice_axis(Axis(0), Slice::from(0..0))).is_empty());
    }
}
