//! Examples read ahead, on a thread.

use std::{
    sync::mpsc::{Receiver, sync_channel},
    thread::{self, JoinHandle},
};

use precast::error::{Error, ErrorKind, Result};

use super::stored::Stored;

/// Number of parts that wait to be used.
const FEW: usize = 2;

/// Parts of stored examples, read in order on a thread that is a few parts ahead. The thread ends when this is dropped.
#[derive(Debug)]
pub struct Ahead<D> {
    parts: Option<Receiver<Result<D>>>,
    thread: Option<JoinHandle<()>>,
}

impl<D: Send + Sync + 'static> Ahead<D> {
    /// Begins to read parts, each given by the indices of its examples.
    ///
    /// # Errors
    /// [`ErrorKind::Io`] when the system has no thread for it.
    pub fn of(stored: &Stored<D>, parts: impl Iterator<Item = Vec<usize>> + Send + 'static) -> Result<Self> {
        let (put, received) = sync_channel(FEW);
        let stored = stored.clone();
        let read = move || {
            for part in parts {
                let read = stored.some(&part);
                let ends = read.is_err();
                if put.send(read).is_err() || ends {
                    break;
                }
            }
        };
        let thread = thread::Builder::new().name("precast-data".into()).spawn(read);
        let no_thread = |error| Error::new(ErrorKind::Io, format!("no thread to read the examples on: {error}"));
        Ok(Ahead { parts: Some(received), thread: Some(thread.map_err(no_thread)?) })
    }

    /// Waits for the next part.
    ///
    /// # Errors
    /// Those of reading it; none follows.
    pub fn part(&mut self) -> Result<D> {
        let next = self.parts.as_ref().and_then(|parts| parts.recv().ok());
        next.unwrap_or_else(|| Err(Error::data("the examples were read to their end, or to an error")))
    }
}

impl<D> Drop for Ahead<D> {
    fn drop(&mut self) {
        // Without a receiver, the thread ends after the part that it reads.
        drop(self.parts.take());
        let _ = self.thread.take().map(JoinHandle::join);
    }
}
