//! Memory that the system does not have. A kernel returns numbers alone, so the request unwinds to the op that runs it,
//! which returns an error. Anywhere else it is a panic.

use std::{
    cell::Cell,
    fmt,
    panic::{AssertUnwindSafe, catch_unwind, panic_any, resume_unwind},
};

/// A request for more bytes than there are.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Shortage {
    bytes: usize,
}

thread_local! {
    static IS_CAUGHT: Cell<bool> = const { Cell::new(false) };
}

impl Shortage {
    /// Describes a request for `len` elements of type `T`.
    pub(super) fn of<T>(len: usize) -> Self {
        Shortage { bytes: len.saturating_mul(size_of::<T>()) }
    }

    /// Unwinds to [`within_memory`], if it is on the stack of this thread, without a message of the panic hook.
    pub(super) fn unwind(self) -> ! {
        match IS_CAUGHT.get() {
            true => resume_unwind(Box::new(self)),
            false => panic_any(self.to_string()),
        }
    }
}

impl fmt::Display for Shortage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "an array of {} bytes does not fit into memory", self.bytes)
    }
}

/// Runs `f`, which allocates no more than there is.
///
/// # Errors
/// The first request of a buffer that does not fit.
pub fn within_memory<R>(f: impl FnOnce() -> R) -> Result<R, Shortage> {
    struct Restore(bool);
    impl Drop for Restore {
        fn drop(&mut self) {
            IS_CAUGHT.set(self.0);
        }
    }
    let _restore = Restore(IS_CAUGHT.replace(true));
    catch_unwind(AssertUnwindSafe(f)).map_err(|panic| match panic.downcast::<Shortage>() {
        Ok(shortage) => *shortage,
        Err(other) => resume_unwind(other),
    })
}

#[cfg(test)]
mod tests {
    use std::panic::catch_unwind;

    use super::{super::Pooled, *};

    #[test]
    #[cfg_attr(miri, ignore = "Miri ends when a request does not fit")]
    fn a_request_for_too_much_is_an_error_within_and_a_panic_outside() {
        let shortage = within_memory(|| Pooled::<f64>::uninit(1 << 50)).err();
        assert_eq!(shortage, Some(Shortage { bytes: 1 << 53 }));
        // More bytes than there are addresses, also without elements.
        for len in [usize::MAX, 1 << 61] {
            assert!(within_memory(|| Pooled::<f64>::zeros(len)).is_err());
            assert!(super::super::reserved::<f64>(len).is_err());
        }
        let nested = within_memory(|| {
            (within_memory(|| Pooled::<i64>::uninit(1 << 50)).is_err(), Pooled::<i64>::zeros(3).len())
        });
        assert_eq!(nested, Ok((true, 3)));
        let panic = catch_unwind(|| Pooled::<f64>::uninit(1 << 50)).err().unwrap();
        assert_eq!(
            panic.downcast_ref::<String>().unwrap(),
            "an array of 9007199254740992 bytes does not fit into memory"
        );
        let other = catch_unwind(|| within_memory(|| panic!("another"))).err().unwrap();
        assert_eq!(other.downcast_ref::<&str>(), Some(&"another"));
        assert_eq!(Pooled::<f32>::zeros(1 << 20).iter().sum::<f32>(), 0.0, "the arena is usable afterwards");
    }
}
