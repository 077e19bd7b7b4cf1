//! Small messages of every rank to every rank: votes, agreed errors, broadcasts, gathered bytes.

use std::{fmt, sync::Arc};

use crate::{
    call::{Call, Kind},
    error::{Error, ErrorKind, Result},
    ranks::Ranks,
    transfers::Transfers,
};

/// The words of all ranks in one vote, the same on every rank.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Votes {
    /// In the order of ranks.
    words: Vec<u64>,
    ranks: usize,
    step: u64,
}

impl Votes {
    /// Returns the words of a rank.
    ///
    /// # Panics
    /// If there is no such rank.
    pub fn of(&self, rank: usize) -> &[u64] {
        let each = self.words.len() / self.ranks;
        &self.words[rank * each..(rank + 1) * each]
    }

    /// Returns one word of every rank, in the order of ranks.
    ///
    /// # Panics
    /// If ranks have sent fewer words.
    pub fn word(&self, word: usize) -> impl Iterator<Item = u64> + '_ {
        (0..self.ranks).map(move |rank| self.of(rank)[word])
    }

    /// Returns the bits of a word that every rank has set.
    pub fn all(&self, word: usize) -> u64 {
        self.word(word).fold(u64::MAX, |all, met| all & met)
    }

    /// Returns the bits of a word that some rank has set.
    pub fn any(&self, word: usize) -> u64 {
        self.word(word).fold(0, |any, met| any | met)
    }

    /// Returns the largest value of a word.
    pub fn max(&self, word: usize) -> u64 {
        self.word(word).fold(0, u64::max)
    }

    /// Returns the least value of a word.
    pub fn min(&self, word: usize) -> u64 {
        self.word(word).fold(u64::MAX, u64::min)
    }

    /// Returns the first rank that has another value of a word than rank 0.
    pub fn differing(&self, word: usize) -> Option<usize> {
        let expected = self.of(0)[word];
        self.word(word).position(|met| met != expected)
    }

    /// Returns the value of a word that must be the same on all ranks.
    ///
    /// # Errors
    /// [`ErrorKind::Diverged`] with the first rank whose value differs from that of rank 0; `name` is the noun.
    pub fn equal(&self, word: usize, name: impl fmt::Display) -> Result<u64> {
        let expected = self.of(0)[word];
        match self.differing(word) {
            None => Ok(expected),
            Some(rank) => {
                let met = self.of(rank)[word];
                let words = format!(
                    "rank {rank} has another {name} than rank 0, step {}: met {met:#x}; expected {expected:#x}",
                    self.step
                );
                Err(Error::new(ErrorKind::Diverged, words))
            }
        }
    }
}

impl Ranks {
    /// Gathers words, as many of every rank.
    ///
    /// # Errors
    /// [`ErrorKind::Silent`], [`ErrorKind::Diverged`], and those of the engine.
    pub fn vote(&self, words: &[u64]) -> Result<Votes> {
        let call = self.call(Kind::Vote, words.len(), 0)?;
        let bytes = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        let got = self.to_all(call, bytes, &vec![words.len() * 8; self.size()])?;
        let words = got.iter().flat_map(|bytes| bytes.as_chunks::<8>().0).map(|word| u64::from_le_bytes(*word));
        Ok(Votes { words: words.collect(), ranks: self.size(), step: call.step })
    }

    /// Waits until all ranks have made this call.
    ///
    /// # Errors
    /// Those of [`Ranks::vote`].
    pub fn barrier(&self) -> Result<()> {
        self.vote(&[]).map(drop)
    }

    /// Gathers bytes, which may be more on one rank than on another, in the order of ranks.
    ///
    /// # Errors
    /// Those of [`Ranks::vote`].
    pub fn gather(&self, bytes: &[u8]) -> Result<Vec<Vec<u8>>> {
        let lengths: Vec<usize> = self.vote(&[bytes.len() as u64])?.word(0).map(|length| length as usize).collect();
        let call = self.call(Kind::Gather, lengths.iter().sum(), 0)?;
        self.to_all(call, bytes.to_vec(), &lengths)
    }

    /// Returns the bytes of rank 0; those of other ranks are ignored.
    ///
    /// # Errors
    /// Those of [`Ranks::vote`].
    pub fn broadcast(&self, bytes: Vec<u8>) -> Result<Vec<u8>> {
        self.broadcast_from(0, bytes)
    }

    /// Returns the bytes of one rank; those of others are ignored.
    ///
    /// # Errors
    /// Those of [`Ranks::vote`]; [`ErrorKind::Argument`] for a rank that does not exist.
    pub fn broadcast_from(&self, rank: usize, bytes: Vec<u8>) -> Result<Vec<u8>> {
        if rank >= self.size() {
            return Err(Error::new(ErrorKind::Argument, format!("rank {rank} of {}; they count from 0", self.size())));
        }
        let lengths = self.vote(&[bytes.len() as u64])?;
        self.spread(rank, bytes, lengths.of(rank)[0] as usize)
    }

    /// Makes an error of one rank the same error on all ranks. If several ranks have one, it is that of the first.
    /// Other calls can follow.
    ///
    /// # Errors
    /// [`ErrorKind::OfRank`] with the rank and its words; those of [`Ranks::vote`].
    pub fn agree<T, E: fmt::Display>(&self, result: std::result::Result<T, E>) -> Result<T> {
        let words = result.as_ref().err().map(ToString::to_string).unwrap_or_default();
        let votes = self.vote(&[result.is_err().into(), words.len() as u64])?;
        let failed = votes.word(0).position(|failed| failed != 0);
        match (failed, result) {
            (None, Ok(value)) => Ok(value),
            (failed, _) => {
                let rank = failed.unwrap_or_default();
                let words = self.spread(rank, words.into_bytes(), votes.of(rank)[1] as usize)?;
                let words = format!("rank {rank}: {}", String::from_utf8_lossy(&words));
                Err(Error::new(ErrorKind::OfRank(rank), words))
            }
        }
    }

    /// Sends bytes to all ranks, and returns theirs in the order of ranks, which have these lengths.
    fn to_all(&self, call: Call, bytes: Vec<u8>, lengths: &[usize]) -> Result<Vec<Vec<u8>>> {
        let (rank, size) = (self.rank(), self.size());
        if size == 1 {
            return Ok(vec![bytes]);
        }
        let mut message = vec![0; Call::HEAD];
        call.write(&mut message);
        message.extend_from_slice(&bytes);
        let message = Arc::new(message);
        let mut transfers = Transfers::new(call);
        let begun = (1..size).try_for_each(|step| {
            let from = (rank + size - step) % size;
            transfers.receive(&self.link, from, vec![0; Call::HEAD + lengths[from]])?;
            transfers.send(&self.link, (rank + step) % size, message.clone())
        });
        self.broken(begun)?;
        self.wait(&mut transfers)?;
        let mut all: Vec<Vec<u8>> = vec![Vec::new(); size];
        for (from, mut met) in transfers.got {
            met.drain(..Call::HEAD);
            all[from] = met;
        }
        all[rank] = bytes;
        Ok(all)
    }

    /// Returns the bytes of one rank on all of them, by a binomial tree.
    fn spread(&self, root: usize, bytes: Vec<u8>, length: usize) -> Result<Vec<u8>> {
        let (rank, size) = (self.rank(), self.size());
        let call = self.call(Kind::Broadcast, length, root as u32)?;
        // Counted from the root, each rank receives from the one without its lowest bit.
        let place = (rank + size - root) % size;
        let lowest = if place == 0 { size.next_power_of_two() } else { place & place.wrapping_neg() };
        let message = if place == 0 {
            let mut message = vec![0; Call::HEAD];
            call.write(&mut message);
            message.extend_from_slice(&bytes);
            message
        } else {
            let from = (place - lowest + root) % size;
            let mut transfers = Transfers::new(call);
            self.broken(transfers.receive(&self.link, from, vec![0; Call::HEAD + length]))?;
            self.wait(&mut transfers)?;
            transfers.got.pop().map(|(_, bytes)| bytes).unwrap_or_default()
        };
        let message = Arc::new(message);
        let mut transfers = Transfers::new(call);
        let below = std::iter::successors(Some(lowest / 2), |bit| Some(bit / 2)).take_while(|bit| *bit > 0);
        let sent = below
            .filter(|bit| place + bit < size)
            .try_for_each(|bit| transfers.send(&self.link, (place + bit + root) % size, message.clone()));
        self.broken(sent)?;
        self.wait(&mut transfers)?;
        drop(transfers);
        let mut message = Arc::try_unwrap(message).unwrap_or_else(|shared| shared.to_vec());
        message.drain(..Call::HEAD);
        Ok(message)
    }
}
