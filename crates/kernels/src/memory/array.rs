//! Arrays that share a buffer.

use std::{ops::Deref, sync::Arc};

use ndarray::{ArrayRef, ArrayView, ArrayViewD, IxDyn};

use super::pool::{Item, Pooled};

/// An n-dimensional array on a shared buffer, with its own view. It dereferences to ndarray's [`ArrayRef`]. The last
/// array that holds the buffer frees it.
#[derive(Clone)]
pub struct SharedArray<T: Item> {
    buffer: Arc<Pooled<T>>,
    /// View of the buffer. It does not leave this array.
    view: ArrayView<'static, T, IxDyn>,
}

impl<T: Item> SharedArray<T> {
    /// Creates an array of all elements of a buffer in row-major order; `None` when the shape has another number of
    /// elements.
    pub fn new(buffer: Pooled<T>, shape: &[usize]) -> Option<Self> {
        let len = shape.iter().try_fold(1usize, |all, &axis| all.checked_mul(axis))?;
        // Also checks that the axes are bounded if one of them is 0.
        if len != buffer.len() || ArrayView::from_shape(IxDyn(shape), &buffer).is_err() {
            return None;
        }
        // SAFETY: the buffer has this many elements, and lives as long as the view, which never leaves this array. The
        // pointer is the buffer's own, so elements may be changed through the buffer while no view is read.
        let view = unsafe { ArrayView::from_shape_ptr(IxDyn(shape), buffer.start().as_ptr()) };
        Some(SharedArray { buffer: Arc::new(buffer), view })
    }

    /// Returns another view of the same buffer.
    pub fn viewed(&self, look: impl for<'a> FnOnce(ArrayViewD<'a, T>) -> ArrayViewD<'a, T>) -> Self {
        let view = look(self.view.view()).raw_view();
        // SAFETY: `look` knows no lifetime but that of its argument, so its result views the same buffer, which lives
        // as long as the new view.
        let view = unsafe { view.deref_into_view() };
        SharedArray { buffer: self.buffer.clone(), view }
    }

    /// Returns the same elements with another shape; `None` when it has another number of elements, or the layout has
    /// gaps.
    pub fn reshaped(&self, shape: &[usize]) -> Option<Self> {
        let view = self.view.clone().into_shape_with_order(IxDyn(shape)).ok()?;
        Some(SharedArray { buffer: self.buffer.clone(), view })
    }

    /// Returns whether this is the only handle of the buffer.
    pub fn is_alone(&mut self) -> bool {
        Arc::get_mut(&mut self.buffer).is_some()
    }

    /// Returns the elements in row-major order for mutation; `None` when the buffer is shared or the layout has gaps.
    pub fn alone_mut(&mut self) -> Option<&mut [T]> {
        if !self.view.is_standard_layout() {
            return None;
        }
        let first = (self.view.as_ptr() as usize).wrapping_sub(self.buffer.start().as_ptr() as usize) / size_of::<T>();
        let elements = first..first + self.view.len();
        let buffer = Arc::get_mut(&mut self.buffer)?;
        if elements.is_empty() { Some(&mut []) } else { buffer.get_mut(elements) }
    }
}

impl<T: Item> Deref for SharedArray<T> {
    type Target = ArrayRef<T, IxDyn>;
    fn deref(&self) -> &ArrayRef<T, IxDyn> {
        &self.view
    }
}

#[cfg(test)]
mod tests {
    use ndarray::{Axis, Slice};

    use super::*;

    #[test]
    fn views_share_the_buffer_and_the_last_one_may_write() {
        let mut whole = SharedArray::new(Pooled::from((0..6).collect::<Vec<i64>>()), &[2, 3]).unwrap();
        let turned = whole.viewed(|view| view.permuted_axes(IxDyn(&[1, 0])));
        let mut last = turned.viewed(|mut view| {
            view.slice_axis_inplace(Axis(1), Slice::from(1..2));
            view
        });
        assert_eq!(turned.iter().copied().collect::<Vec<_>>(), [0, 3, 1, 4, 2, 5]);
        assert!(!whole.is_alone() && whole.alone_mut().is_none());
        drop(turned);
        assert_eq!(last.iter().copied().collect::<Vec<_>>(), [3, 4, 5]);
        drop(whole);
        assert!(last.is_alone());
        assert!(last.reshaped(&[2]).is_none());
        let mut row = last.viewed(|view| view.permuted_axes(IxDyn(&[1, 0]))).reshaped(&[3, 1]).unwrap();
        drop(last);
        row.alone_mut().unwrap()[1] = 7;
        assert_eq!(row.iter().copied().collect::<Vec<_>>(), [3, 7, 5]);
    }

    #[test]
    fn a_shape_has_as_many_elements_as_the_buffer() {
        let of = |len: usize, shape: &[usize]| SharedArray::new(Pooled::<f32>::zeros(len), shape);
        assert!(of(6, &[2, 3]).is_some() && of(1, &[]).is_some() && of(0, &[0, 5]).is_some());
        assert!(of(6, &[2, 2]).is_none() && of(6, &[2, 4]).is_none() && of(0, &[0, usize::MAX, 2]).is_none());
        assert_eq!(of(0, &[0]).unwrap().alone_mut(), Some(&mut [][..]));
    }
}
