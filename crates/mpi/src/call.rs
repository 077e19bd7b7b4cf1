//! Calls that all ranks make in the same order, and the head of their messages, by which a divergence is found.

use std::fmt;

use crate::error::{Error, ErrorKind, Result};

/// The kinds of calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Kind {
    Vote,
    Gather,
    Broadcast,
    Parts,
    Sums,
}

impl Kind {
    const ALL: [Kind; 5] = [Kind::Vote, Kind::Gather, Kind::Broadcast, Kind::Parts, Kind::Sums];

    /// Returns the noun, and the unit of the size.
    fn words(self) -> (&'static str, &'static str) {
        match self {
            Kind::Vote => ("a vote", "words"),
            Kind::Gather => ("a gather", "bytes"),
            Kind::Broadcast => ("a broadcast", "bytes"),
            Kind::Parts => ("the first half of a sum", "numbers"),
            Kind::Sums => ("the second half of a sum", "numbers"),
        }
    }
}

/// One call of this rank.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Call {
    /// Number of calls before this one.
    pub sequence: u64,
    pub step: u64,
    pub kind: Kind,
    /// Words, bytes or numbers, which are as many on every rank.
    pub size: u64,
    /// Options that are the same on every rank.
    pub form: u32,
}

impl Call {
    /// Bytes of the head of a message.
    pub const HEAD: usize = 32;

    /// Returns the tag of the messages: MPI promises tags up to 32767.
    pub fn tag(&self) -> u16 {
        (self.sequence % 0x8000) as u16
    }

    /// Writes the head of a message.
    pub fn write(&self, bytes: &mut [u8]) {
        let words = [self.sequence, self.step, u64::from(self.kind as u8) | u64::from(self.form) << 32, self.size];
        bytes.as_chunks_mut::<8>().0.iter_mut().zip(words).for_each(|(place, word)| *place = word.to_le_bytes());
    }

    /// Reads the head of a message.
    fn read(bytes: &[u8]) -> Option<Call> {
        let words = bytes.get(..Call::HEAD)?.as_chunks::<8>().0;
        let word = |at: usize| words.get(at).map(|word| u64::from_le_bytes(*word));
        let (kind, form) = (word(2)? as u32, (word(2)? >> 32) as u32);
        let kind = Kind::ALL.into_iter().find(|known| *known as u32 == kind)?;
        Some(Call { sequence: word(0)?, step: word(1)?, kind, size: word(3)?, form })
    }

    /// Refuses a message of another call than this one.
    pub fn check(&self, rank: usize, from: usize, bytes: &[u8]) -> Result<()> {
        let met = Call::read(bytes);
        if met == Some(*self) {
            return Ok(());
        }
        let met = match met {
            Some(Call { form, .. }) if form != self.form && met == Some(Call { form, ..*self }) => {
                format!("{self}, in another form: with other shards or another wire")
            }
            Some(met) => met.to_string(),
            None => "something that is not a call".into(),
        };
        let words =
            format!("rank {rank}: rank {from} makes another call, step {}: met {met}; expected {self}", self.step);
        Err(Error::new(ErrorKind::Diverged, words))
    }
}

impl fmt::Display for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Call { sequence, step, kind, size, .. } = self;
        let (noun, unit) = kind.words();
        write!(f, "call {sequence} in step {step}, {noun} of {size} {unit}")
    }
}
