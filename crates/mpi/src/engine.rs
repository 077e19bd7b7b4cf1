//! The engine of ranks: bytes from one rank to another, without waiting.

use std::{fmt, sync::Arc};

use crate::error::{Error, ErrorKind, Result};

/// A message under way, known to the engine that returned it.
#[derive(Debug, PartialEq, Eq)]
pub struct Pending(pub usize);

/// An engine, in six functions over bytes and two optional ones for its end. No call waits for another rank.
///
/// Messages between two ranks that have the same tag arrive in the order in which they were sent. The engine owns the
/// memory of a message until [`Engine::poll`] returns it, so a message that is forgotten is never written to freed
/// memory.
pub trait Engine: fmt::Debug {
    /// Returns the number of this rank, below [`Engine::size`].
    fn rank(&self) -> usize;

    /// Returns the number of ranks, at least 1.
    fn size(&self) -> usize;

    /// Begins to send bytes to another rank. Tags are below 32768.
    ///
    /// # Errors
    /// Those of the library behind the engine.
    fn send(&self, to: usize, tag: u16, bytes: Arc<Vec<u8>>) -> Result<Pending>;

    /// Begins to receive as many bytes as `memory` has, or fewer, from another rank.
    ///
    /// # Errors
    /// Those of the library behind the engine.
    fn receive(&self, from: usize, tag: u16, memory: Vec<u8>) -> Result<Pending>;

    /// Moves messages, and returns the bytes of this one once it has ended; they are empty for one that was sent. A
    /// message that has ended is forgotten by the engine.
    ///
    /// # Errors
    /// Those of the library behind the engine, such as a message that is longer than its memory.
    fn poll(&self, pending: &Pending) -> Result<Option<Vec<u8>>>;

    /// Ends all ranks with an exit code. Returns if ranks are threads, whose calls are errors from then on, or if there is
    /// one.
    fn abort(&self, code: u8);

    /// Returns a function that ends all ranks from any thread, for [`Ranks::abort_on_panic`](crate::Ranks::abort_on_panic).
    /// Default: none, of ranks that are threads.
    fn aborter(&self) -> Option<fn(u8)> {
        None
    }

    /// Ends the engine of this rank, after its last message. Default: nothing to do.
    ///
    /// # Errors
    /// Those of the library behind the engine.
    fn finish(&self) -> Result<()> {
        Ok(())
    }
}

/// The engine of one rank, without messages.
#[derive(Debug, Clone, Copy, Default)]
pub struct Alone;

impl Alone {
    fn error<T>() -> Result<T> {
        Err(Error::new(ErrorKind::Argument, "there is one rank, which sends itself no messages"))
    }
}

impl Engine for Alone {
    fn rank(&self) -> usize {
        0
    }

    fn size(&self) -> usize {
        1
    }

    fn send(&self, _: usize, _: u16, _: Arc<Vec<u8>>) -> Result<Pending> {
        Alone::error()
    }

    fn receive(&self, _: usize, _: u16, _: Vec<u8>) -> Result<Pending> {
        Alone::error()
    }

    fn poll(&self, _: &Pending) -> Result<Option<Vec<u8>>> {
        Alone::error()
    }

    fn abort(&self, _: u8) {}
}
