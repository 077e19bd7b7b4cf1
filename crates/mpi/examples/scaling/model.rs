//! The model of a step: the messages, bytes and additions of an exchange and of a vote.

use precast_mpi::{Shards, Wire};

/// Bytes of the head of a message.
const HEAD: f64 = 32.0;

/// A network between ranks.
#[derive(Debug, Clone)]
pub struct Wires {
    pub name: String,
    /// Seconds until a small message arrives.
    pub latency: f64,
    /// Seconds of the processor for a message that is sent and one that is received.
    pub message: f64,
    /// Bytes per second that a rank can send, while it receives as many.
    pub bandwidth: f64,
    /// The processor moves the bytes, and computes nothing meanwhile: as between processes of one machine.
    pub by_processor: bool,
}

/// Seconds of one thread for a number.
#[derive(Debug, Clone, Copy)]
pub struct Speeds {
    pub add: f64,
    pub copy: f64,
    /// To round it to bf16.
    pub round: f64,
}

/// A network that is trained.
#[derive(Debug, Clone)]
pub struct Trained {
    pub name: String,
    /// Weights.
    pub numbers: f64,
    /// Seconds of a rank for the gradients of its shards.
    pub step: f64,
}

/// The way of messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pattern {
    /// The messages of `Exchange`: parts to their owners, sums to all.
    Flat,
    /// By halves, with the neighbour, then the neighbours' neighbours: on paper.
    Halves,
}

/// A sum over ranks.
#[derive(Debug, Clone)]
pub struct Sum {
    pub ranks: usize,
    pub shards: usize,
    pub numbers: f64,
    /// Numbers of a bucket.
    pub bucket: f64,
    pub wire: Wire,
    pub pattern: Pattern,
}

/// Seconds of a rank for one sum, by what takes them.
#[derive(Debug, Clone, Copy)]
pub struct Parts {
    pub messages: f64,
    pub bytes: f64,
    pub adding: f64,
    pub latency: f64,
    pub whole: f64,
}

/// Bytes of a number, there and back.
fn widths(wire: Wire) -> (f64, f64) {
    match wire {
        Wire::BFloat16 => (2.0, 4.0),
        Wire::BFloat16Both => (2.0, 2.0),
        _ => (4.0, 4.0),
    }
}

impl Sum {
    /// Returns the most nodes of a rank, and those of all ranks.
    fn nodes(&self) -> (f64, f64) {
        let shards = Shards::new(self.shards, self.ranks);
        let of_rank = |rank| shards.as_ref().map_or(1, |shards| shards.nodes(rank).len());
        let nodes: Vec<usize> = (0..self.ranks).map(of_rank).collect();
        (nodes.iter().copied().max().unwrap_or(1) as f64, nodes.iter().sum::<usize>() as f64)
    }

    /// Returns the messages that a rank sends.
    pub fn messages(&self) -> f64 {
        let buckets = (self.numbers / self.bucket).ceil();
        let phase = match self.pattern {
            Pattern::Flat => self.ranks as f64 - 1.0,
            Pattern::Halves => (self.ranks as f64).log2().ceil(),
        };
        2.0 * buckets * phase
    }

    /// Returns the bytes that the rank with the most nodes sends, without heads.
    pub fn bytes(&self) -> f64 {
        let (there, back) = widths(self.wire);
        let share = (self.ranks as f64 - 1.0) / self.ranks as f64;
        self.numbers * share * (self.nodes().0 * there + back)
    }

    /// Returns the seconds of a rank.
    pub fn parts(&self, wires: &Wires, speeds: &Speeds) -> Parts {
        let (most, all) = self.nodes();
        let buckets = (self.numbers / self.bucket).ceil();
        let phases = if self.pattern == Pattern::Flat { 1.0 } else { (self.ranks as f64).log2().ceil() };
        let messages = self.messages() * wires.message;
        let bytes = (self.bytes() + self.messages() * HEAD) / wires.bandwidth;
        // Numbers are written to messages and sums are read from them; a rank adds the nodes of its part.
        let (there, back) = widths(self.wire);
        let written = if there < 4.0 { speeds.round } else { speeds.copy };
        let sums = if back < 4.0 { speeds.round } else { speeds.copy };
        let adding = self.numbers * (most * written + speeds.copy)
            + self.numbers / self.ranks as f64 * ((all - 1.0) * speeds.add + sums);
        let latency = 2.0 * phases * wires.latency;
        let (busy, sent) = (messages + adding, bytes);
        let whole = match wires.by_processor {
            true => busy + sent,
            // One bucket is computed while others are sent.
            false => busy.max(sent) + busy.min(sent) / buckets,
        };
        Parts { messages, bytes, adding, latency, whole: whole + latency }
    }
}

/// Returns the seconds of a vote: every rank sends its words to every other.
pub fn vote(ranks: usize, words: f64, wires: &Wires) -> f64 {
    let others = ranks as f64 - 1.0;
    others * wires.message.max((HEAD + 8.0 * words) / wires.bandwidth) + wires.latency
}

/// Returns the share of the time of a step in which a rank computes, if a share of the sending is hidden behind the backward
/// pass of its last shard, which takes two thirds of the time of a shard. Messages and additions are the work of the thread
/// that computes, so they are not hidden.
pub fn efficiency(trained: &Trained, shards_of_rank: f64, parts: &Parts, vote: f64, hidden: f64) -> f64 {
    let exposed = if hidden > 0.0 {
        let window = trained.step / shards_of_rank * 2.0 / 3.0;
        let sent = (parts.bytes * (1.0 - hidden)).max(parts.bytes - window);
        (parts.messages + parts.adding + parts.latency + sent).min(parts.whole)
    } else {
        parts.whole
    };
    trained.step / (trained.step + exposed + vote)
}
