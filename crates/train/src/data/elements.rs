//! Numbers of examples, one after the other in memory.

use precast::error::{Error, Result};

/// Returns some of the rows of `each` elements.
pub(super) fn rows<T: Copy>(values: &[T], each: usize, order: &[usize]) -> Vec<T> {
    order.iter().flat_map(|&i| &values[i * each..(i + 1) * each]).copied().collect()
}

/// Returns the number of elements of one example; `None` on overflow.
pub(super) fn elements(shape: &[usize]) -> Option<usize> {
    shape.iter().try_fold(1usize, |all, &axis| all.checked_mul(axis))
}

/// Returns the number of elements of one example in memory.
pub(super) fn elements_in_memory(shape: &[usize]) -> usize {
    shape.iter().product()
}

/// Returns the number of tensors of a shape in `values` values.
pub(super) fn count(values: usize, shape: &[usize], are_none: &str) -> Result<usize> {
    match elements(shape) {
        Some(each) if each > 0 && values.is_multiple_of(each) => Ok(values / each),
        _ => Err(Error::data(format!("{values} {are_none} of shape {shape:?}"))),
    }
}

/// Checks that the numbers of `n` examples are finite.
pub(super) fn all_finite(what: &str, values: &[f32], n: usize) -> Result<()> {
    let Some(i) = values.iter().position(|value| !value.is_finite()) else { return Ok(()) };
    let (example, place, value) = (i / (values.len() / n), i % (values.len() / n), values[i]);
    Err(Error::data(format!("{what} {place} of example {example} is {value}; allowed: finite numbers")))
}
