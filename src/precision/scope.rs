//! The stack of frames: thread-local, popped on return, error and panic alike.

use std::{cell::RefCell, marker::PhantomData};

use super::Frame;

thread_local! {
    static STACK: RefCell<Vec<Frame>> = const { RefCell::new(Vec::new()) };
}

/// Keeps a frame entered until dropped. It cannot leave its thread.
#[derive(Debug)]
#[must_use = "the frame is left again when this is dropped"]
pub struct Scope {
    depth: usize,
    _thread: PhantomData<*const ()>,
}

/// Enters a frame on this thread until the returned guard is dropped.
pub fn enter(frame: Frame) -> Scope {
    STACK.with_borrow_mut(|stack| {
        stack.push(frame);
        Scope { depth: stack.len() - 1, _thread: PhantomData }
    })
}

impl Drop for Scope {
    /// Truncates rather than pops, so that guards dropped out of order cannot leave a frame behind.
    fn drop(&mut self) {
        // The stack is gone when a thread is being torn down; then there is nothing to restore.
        let _ = STACK.try_with(|stack| stack.borrow_mut().truncate(self.depth));
    }
}

/// The innermost frame of this thread; a new thread has none.
pub fn current() -> Option<Frame> {
    STACK.with_borrow(|stack| stack.last().cloned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::DType;

    #[test]
    fn frames_nest_and_survive_a_panic() {
        let _outer = enter(Frame::Fixed(DType::F16));
        let caught = std::panic::catch_unwind(|| {
            let _inner = enter(Frame::Off);
            panic!("left by panic");
        });
        assert!(caught.is_err());
        assert_eq!(current(), Some(Frame::Fixed(DType::F16)));
    }

    #[test]
    fn guards_dropped_out_of_order_leave_nothing() {
        let outer = enter(Frame::Fixed(DType::F16));
        let inner = enter(Frame::Off);
        drop(outer);
        drop(inner);
        assert_eq!(current(), None);
    }

    #[test]
    fn a_new_thread_starts_without_a_frame() {
        let _here = enter(Frame::Fixed(DType::Bf16));
        std::thread::spawn(|| assert_eq!(current(), None)).join().unwrap();
    }
}
