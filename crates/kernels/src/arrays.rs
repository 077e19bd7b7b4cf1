//! Arrays made element by element in inner loops.
//!
//! `std::array::from_fn` and `map` call a function for each element where a build does not optimize across codegen units
//! (`lto = "off"`, incremental builds), and a function that is called does not use the vectors of its caller. These are
//! inlined in every build.

use std::mem::MaybeUninit;

/// Returns the array of `f(0)`, `f(1)`, and so on.
#[inline(always)]
pub fn array_of<T, const N: usize>(mut f: impl FnMut(usize) -> T) -> [T; N] {
    let mut array = MaybeUninit::<[T; N]>::uninit();
    let first = array.as_mut_ptr().cast::<T>();
    let mut i = 0;
    while i < N {
        // SAFETY: `i` is an index of the array. After a panic of `f` its elements are not dropped, which is safe.
        unsafe { first.add(i).write(f(i)) };
        i += 1;
    }
    // SAFETY: every element was written.
    unsafe { array.assume_init() }
}

/// Returns the array of `f` of each element.
#[inline(always)]
pub fn mapped<T: Copy, U, const N: usize>(array: [T; N], mut f: impl FnMut(T) -> U) -> [U; N] {
    array_of(|i| f(array[i]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arrays_are_those_of_the_standard_library() {
        assert_eq!(array_of::<_, 5>(|i| i.to_string()), std::array::from_fn(|i| i.to_string()));
        assert_eq!(array_of::<usize, 0>(|i| i), [0; 0]);
        assert_eq!(mapped([1, -2, 3], |x| x * x), [1, 4, 9]);
    }
}
