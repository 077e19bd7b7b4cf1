//! The messages of one call of a rank.

use std::{cell::Cell, sync::Arc};

use crate::{
    call::Call,
    engine::{Engine, Pending},
    error::{Error, ErrorKind, Result},
};

/// An engine, with a count of the bytes that it sends.
#[derive(Debug)]
pub(crate) struct Link {
    pub engine: Box<dyn Engine>,
    pub sent: Cell<u64>,
}

/// The messages of one call, those under way and those received.
#[derive(Debug)]
pub(crate) struct Transfers {
    pub call: Call,
    sends: Vec<(usize, Pending, Arc<Vec<u8>>)>,
    /// With the length of the message.
    receives: Vec<(usize, Pending, usize)>,
    /// Contents received, by rank, with the head before them.
    pub got: Vec<(usize, Vec<u8>)>,
}

impl Transfers {
    pub fn new(call: Call) -> Self {
        Transfers { call, sends: Vec::new(), receives: Vec::new(), got: Vec::new() }
    }

    /// Begins to send a message, which has the head of the call.
    pub fn send(&mut self, link: &Link, to: usize, bytes: Arc<Vec<u8>>) -> Result<()> {
        link.sent.set(link.sent.get() + (bytes.len() - Call::HEAD) as u64);
        let pending =
            link.engine.send(to, self.call.tag(), bytes.clone()).map_err(|e| self.error(link, "to", to, e))?;
        self.sends.push((to, pending, bytes));
        Ok(())
    }

    /// Begins to receive a message as long as `memory`, with the head.
    pub fn receive(&mut self, link: &Link, from: usize, memory: Vec<u8>) -> Result<()> {
        let (tag, length) = (self.call.tag(), memory.len());
        let pending = link.engine.receive(from, tag, memory).map_err(|e| self.error(link, "from", from, e))?;
        self.receives.push((from, pending, length));
        Ok(())
    }

    /// Moves the messages, returns whether one has ended, and hands the memory of those sent to `spare`.
    pub fn advance(&mut self, link: &Link, mut spare: impl FnMut(Vec<u8>)) -> Result<bool> {
        let before = self.sends.len() + self.receives.len();
        let mut at = 0;
        while let Some((from, pending, length)) = self.receives.get(at) {
            let (from, length) = (*from, *length);
            match link.engine.poll(pending).map_err(|e| self.error(link, "from", from, e))? {
                Some(bytes) => {
                    self.receives.swap_remove(at);
                    self.call.check(link.engine.rank(), from, &bytes)?;
                    if bytes.len() != length {
                        let words = format!("message truncated: {} bytes met, {length} expected", bytes.len());
                        return Err(self.error(link, "from", from, Error::new(ErrorKind::Diverged, words)));
                    }
                    self.got.push((from, bytes));
                }
                None => at += 1,
            }
        }
        at = 0;
        while let Some((to, pending, _)) = self.sends.get(at) {
            if link.engine.poll(pending).map_err(|e| self.error(link, "to", *to, e))?.is_some() {
                let (_, _, bytes) = self.sends.swap_remove(at);
                let _ = Arc::try_unwrap(bytes).map(&mut spare);
            } else {
                at += 1;
            }
        }
        Ok(self.sends.len() + self.receives.len() < before)
    }

    /// Returns whether all messages have been received.
    pub fn has_received(&self) -> bool {
        self.receives.is_empty()
    }

    pub fn is_done(&self) -> bool {
        self.receives.is_empty() && self.sends.is_empty()
    }

    /// Returns the ranks that are waited for.
    pub fn awaited(&self) -> Vec<usize> {
        let mut ranks: Vec<usize> = match self.receives.is_empty() {
            true => self.sends.iter().map(|(to, ..)| *to).collect(),
            false => self.receives.iter().map(|(from, ..)| *from).collect(),
        };
        ranks.sort_unstable();
        ranks.dedup();
        ranks
    }

    /// Puts the place before an error of the engine. A message that does not fit is of another call.
    fn error(&self, link: &Link, way: &str, other: usize, error: Error) -> Error {
        let place = format!("rank {}: {}, {way} rank {other}", link.engine.rank(), self.call);
        if error.to_string().to_lowercase().contains("trunc") {
            let words = format!("{place}: rank {other} makes another call: {error}");
            return Error::new(ErrorKind::Diverged, words);
        }
        error.context(place)
    }
}
