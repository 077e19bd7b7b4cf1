//! The sum over ranks, in the order of the tree.

use std::{collections::VecDeque, mem, ops::Range, sync::Arc};

use crate::{
    call::{Call, Kind},
    error::{Error, ErrorKind, Result},
    ranks::{Ranks, Work},
    transfers::{Link, Transfers},
    tree::{Node, Shards, Tree},
    wire::{Format, Wire},
};

/// Buckets under way for which [`Exchange::add`] does not wait.
const MOST: usize = 512;

/// Unfinished buckets, from the first, whose messages a poll looks at. Any of them moves all messages of the engine.
const LOOKED_AT: usize = 4;

/// A sum over shards on all ranks, one bucket of numbers after another. It is moved by [`Exchange::poll`], so that a rank
/// can compute meanwhile.
///
/// A rank adds the numbers of its shards in the order of a [`Tree`], and hands over one slice of numbers for each node
/// that remains ([`Exchange::nodes`]). Each bucket is cut into as many parts as there are ranks; a rank receives its
/// part from all others, adds the nodes in the order of the tree, and sends the sum to all. So with the wire `float32` no
/// bit of a sum depends on the number of ranks or on the buckets, apart from the payload of NaNs.
///
/// All ranks add buckets of the same lengths, in the same order, with no other difference in the order of their calls. An
/// exchange serves any number of steps, and keeps its memory between them. Finish it before it is dropped: until then the
/// engine has its messages.
///
/// ```
/// use precast_mpi::{Ranks, Wire};
///
/// let ranks = Ranks::of_launcher()?;
/// let mut exchange = ranks.exchange(1, Wire::Float32)?;
/// exchange.add(2, &[&[1.0, 2.0]])?; // a rank without shards adds no slices
/// while !exchange.poll()? { /* compute */ }
/// let mut sum = [0.0; 2];
/// assert!(exchange.take(&mut sum)?);
/// assert_eq!(sum, [1.0, 2.0]);
/// # Ok::<(), precast_mpi::Error>(())
/// ```
#[derive(Debug)]
pub struct Exchange<'a> {
    ranks: &'a Ranks,
    /// The nodes of each rank.
    nodes: Vec<Vec<Node>>,
    there: Format,
    back: Format,
    form: u32,
    bucket: usize,
    /// In the order in which they were added.
    buckets: VecDeque<Bucket>,
    /// Buckets at the front that are whole.
    whole: usize,
    /// Memory of messages.
    spare: Vec<Vec<u8>>,
    adder: Adder,
}

#[derive(Debug)]
struct Bucket {
    len: usize,
    state: State,
}

#[derive(Debug)]
enum State {
    /// The nodes of the own part come in; `own` are those of this rank, with a head.
    Parts { transfers: Transfers, sums: Call, own: Vec<u8> },
    /// The sums of the other parts come in; `own` is the sum of this rank's part, with a head. The nodes that were sent
    /// may still be leaving.
    Sums { leaving: Transfers, transfers: Transfers, own: Arc<Vec<u8>> },
    /// The sums of all parts, by rank, with heads.
    Whole(Vec<(usize, Vec<u8>)>),
}

/// A term of a sum: as it came in, or as numbers.
enum Term<'b> {
    Bytes(&'b [u8]),
    Numbers(Vec<f32>),
}

/// Sums of parts, with memory that is used again.
#[derive(Debug, Default)]
struct Adder {
    spare: Vec<Vec<f32>>,
}

impl Adder {
    /// Adds the nodes of one part, which ranks have sent, in the order of the tree.
    fn sum(&mut self, nodes: &[Vec<Node>], by_rank: &[&[u8]], format: Format, len: usize) -> Vec<f32> {
        let each = len * format.width();
        let mut tree = Tree::default();
        for (nodes, bytes) in nodes.iter().zip(by_rank) {
            for (k, node) in nodes.iter().enumerate() {
                let term = Term::Bytes(&bytes[k * each..(k + 1) * each]);
                tree.push_with(*node, term, |left, right| self.add(left, right, format, len));
            }
        }
        match tree.fold_with(|left, right| self.add(left, right, format, len)) {
            Some(Term::Numbers(sum)) => sum,
            Some(Term::Bytes(bytes)) => {
                let mut sum = self.numbers(len);
                format.read(bytes, &mut sum);
                sum
            }
            None => self.numbers(len),
        }
    }

    /// Adds `right` to `left`.
    fn add(&mut self, left: &mut Term<'_>, right: Term<'_>, format: Format, len: usize) {
        match (&mut *left, right) {
            (Term::Numbers(left), Term::Bytes(right)) => format.add(right, left),
            (Term::Numbers(left), Term::Numbers(right)) => {
                left.iter_mut().zip(&right).for_each(|(left, right)| *left += right);
                self.spare.push(right);
            }
            (Term::Bytes(bytes), right) => {
                let mut sum = self.numbers(len);
                match right {
                    Term::Bytes(right) => format.sum(bytes, right, &mut sum),
                    Term::Numbers(right) => {
                        format.read(bytes, &mut sum);
                        sum.iter_mut().zip(&right).for_each(|(left, right)| *left += right);
                        self.spare.push(right);
                    }
                }
                *left = Term::Numbers(sum);
            }
        }
    }

    /// Returns memory, with what it had.
    fn numbers(&mut self, len: usize) -> Vec<f32> {
        let mut numbers = self.spare.pop().unwrap_or_default();
        numbers.resize(len, 0.0);
        numbers
    }
}

/// Returns the part of a rank of so many numbers.
fn part(rank: usize, ranks: usize, len: usize) -> Range<usize> {
    rank * len / ranks..(rank + 1) * len / ranks
}

impl Ranks {
    /// Begins sums over so many shards, which are divided among the ranks by [`Shards`]. One rank alone uses no wire: its
    /// numbers remain f32.
    ///
    /// # Errors
    /// [`ErrorKind::Argument`] if there are no shards, or more than 2^20.
    pub fn exchange(&self, shards: usize, wire: Wire) -> Result<Exchange<'_>> {
        let size = self.size();
        let shards = Shards::new(shards, size)?;
        let wire = if size == 1 { Wire::Float32 } else { wire };
        Ok(Exchange {
            ranks: self,
            nodes: (0..size).map(|rank| shards.nodes(rank)).collect(),
            there: wire.there(),
            back: wire.back(),
            form: shards.shards() as u32 | (wire as u32) << 24,
            bucket: (size << 14).clamp(1 << 18, 1 << 24),
            buckets: VecDeque::new(),
            whole: 0,
            spare: Vec::new(),
            adder: Adder::default(),
        })
    }
}

impl Exchange<'_> {
    /// Sets the numbers of the buckets into which [`Exchange::sum`] cuts. Default: 2^18, which are 1 MiB of f32; on more than
    /// 16 ranks, whose messages would be short, 2^14 for each rank, and at most 2^24.
    ///
    /// # Errors
    /// [`ErrorKind::Argument`] if it is 0.
    pub fn with_bucket(mut self, numbers: usize) -> Result<Self> {
        if numbers == 0 {
            return Err(Error::new(ErrorKind::Argument, "a bucket has 0 numbers; expected 1 at least"));
        }
        self.bucket = numbers;
        Ok(self)
    }

    /// Returns the numbers of the buckets into which [`Exchange::sum`] cuts.
    pub fn bucket(&self) -> usize {
        self.bucket
    }

    /// Returns the nodes whose sums this rank adds to a bucket, from left to right.
    pub fn nodes(&self) -> &[Node] {
        &self.nodes[self.ranks.rank()]
    }

    /// Adds a bucket of `len` numbers: one slice for each of [`Exchange::nodes`]. The numbers are copied. Waits only if
    /// 512 buckets are under way.
    ///
    /// # Errors
    /// [`ErrorKind::Argument`] for another number of slices, or one of another length; those of [`Ranks::vote`].
    pub fn add(&mut self, len: usize, sums: &[&[f32]]) -> Result<()> {
        if sums.len() != self.nodes().len() {
            let words = format!("{} slices for the {} nodes of this rank", sums.len(), self.nodes().len());
            return Err(Error::new(ErrorKind::Argument, words));
        }
        if let Some(met) = sums.iter().find(|sum| sum.len() != len) {
            let words = format!("a slice of {} numbers in a bucket of {len}", met.len());
            return Err(Error::new(ErrorKind::Argument, words));
        }
        if self.buckets.len() - self.whole >= MOST {
            self.wait_until(MOST - 1)?;
        }
        let call = self.ranks.call(Kind::Parts, len, self.form)?;
        let sums_call = self.ranks.call(Kind::Sums, len, self.form)?;
        let bucket = self.begin(call, sums_call, len, sums);
        let bucket = self.ranks.broken(bucket)?;
        self.buckets.push_back(bucket);
        Ok(())
    }

    fn begin(&mut self, call: Call, sums_call: Call, len: usize, sums: &[&[f32]]) -> Result<Bucket> {
        let (rank, size, width) = (self.ranks.rank(), self.ranks.size(), self.there.width());
        let mine = part(rank, size, len).len();
        let mut transfers = Transfers::new(call);
        for step in 1..size {
            let from = (rank + size - step) % size;
            let bytes = self.nodes[from].len() * mine * width;
            if bytes > 0 {
                let memory = memory(&mut self.spare, Call::HEAD + bytes);
                transfers.receive(&self.ranks.link, from, memory)?;
            }
        }
        let mut own = Vec::new();
        for step in 0..size {
            let to = (rank + step) % size;
            let part = part(to, size, len);
            let each = part.len() * width;
            if to != rank && each * sums.len() == 0 {
                continue;
            }
            let mut message = memory(&mut self.spare, Call::HEAD + each * sums.len());
            call.write(&mut message);
            for (k, sum) in sums.iter().enumerate() {
                self.there.write(&sum[part.clone()], &mut message[Call::HEAD + k * each..][..each]);
            }
            match to == rank {
                true => own = message,
                false => transfers.send(&self.ranks.link, to, Arc::new(message))?,
            }
        }
        Ok(Bucket { len, state: State::Parts { transfers, sums: sums_call, own } })
    }

    /// Moves messages without waiting, and returns whether the sums of all buckets are there.
    ///
    /// # Errors
    /// Those of [`Ranks::vote`], except [`ErrorKind::Silent`]: a rank that computes does not wait.
    pub fn poll(&mut self) -> Result<bool> {
        let ranks = self.ranks;
        ranks.broken(self.advance(&ranks.link))?;
        Ok(self.whole == self.buckets.len())
    }

    /// Waits for the sums of all buckets.
    ///
    /// # Errors
    /// Those of [`Ranks::vote`].
    pub fn finish(&mut self) -> Result<()> {
        self.wait_until(0)
    }

    /// Writes the sum of the next bucket, in the order in which they were added, and returns whether it was there.
    ///
    /// # Errors
    /// [`ErrorKind::Argument`] if there is no bucket, or one of another length.
    pub fn take(&mut self, sum: &mut [f32]) -> Result<bool> {
        let refused = |words: String| Err(Error::new(ErrorKind::Argument, words));
        match self.buckets.front() {
            None => return refused("there is no bucket whose sum could be taken".into()),
            Some(Bucket { len, .. }) if *len != sum.len() => {
                return refused(format!("the sum of a bucket of {len} numbers, into {}", sum.len()));
            }
            Some(Bucket { state: State::Whole(_), .. }) => {}
            Some(_) => return Ok(false),
        }
        if let Some(Bucket { len, state: State::Whole(parts) }) = self.buckets.pop_front() {
            self.whole -= 1;
            for (rank, bytes) in parts {
                self.back.read(&bytes[Call::HEAD..], &mut sum[part(rank, self.ranks.size(), len)]);
                self.spare.push(bytes);
            }
        }
        Ok(true)
    }

    /// Sums numbers bucket by bucket, and waits for the result. `sums` has a slice for each of [`Exchange::nodes`], as
    /// long as `total`.
    ///
    /// # Errors
    /// [`ErrorKind::Argument`] for other slices, or if a bucket that was added has not been taken; those of
    /// [`Ranks::vote`].
    pub fn sum(&mut self, sums: &[&[f32]], total: &mut [f32]) -> Result<()> {
        if !self.buckets.is_empty() {
            return Err(Error::new(ErrorKind::Argument, "there are buckets whose sums have not been taken"));
        }
        if let Some(met) = sums.iter().find(|sum| sum.len() != total.len()) {
            let words = format!("a slice of {} numbers for a total of {}", met.len(), total.len());
            return Err(Error::new(ErrorKind::Argument, words));
        }
        let (bucket, len) = (self.bucket, total.len());
        let mut taken = 0;
        let mut take_next = |exchange: &mut Self| {
            let end = len.min(taken + bucket);
            exchange.take(&mut total[mem::replace(&mut taken, end)..end])
        };
        for from in (0..len).step_by(bucket) {
            let range = from..len.min(from + bucket);
            let slices: Vec<&[f32]> = sums.iter().map(|sum| &sum[range.clone()]).collect();
            self.add(range.len(), &slices)?;
            self.poll()?;
            if self.buckets.len() > LOOKED_AT {
                self.wait_until(LOOKED_AT - 1)?;
            }
            while self.whole > 0 {
                take_next(self)?;
            }
        }
        self.finish()?;
        while self.whole > 0 {
            take_next(self)?;
        }
        Ok(())
    }

    /// Waits until at most `left` buckets are under way.
    fn wait_until(&mut self, left: usize) -> Result<()> {
        let ranks = self.ranks;
        ranks.wait(&mut Until { exchange: self, left })
    }

    /// Moves messages, and returns whether one has ended.
    fn advance(&mut self, link: &Link) -> Result<bool> {
        let mut moved = false;
        let (rank, size) = (self.ranks.rank(), self.ranks.size());
        let Exchange { buckets, spare, adder, nodes, .. } = self;
        for bucket in buckets.iter_mut().skip(self.whole).take(LOOKED_AT) {
            let len = bucket.len;
            if let State::Parts { transfers, sums, own } = &mut bucket.state {
                moved |= transfers.advance(link, |memory| spare.push(memory))?;
                if !transfers.has_received() {
                    continue;
                }
                moved = true;
                let got = mem::take(&mut transfers.got);
                let mut leaving = Transfers::new(transfers.call);
                mem::swap(&mut leaving, transfers);
                let mine = part(rank, size, len).len();
                let mut by_rank: Vec<&[u8]> = vec![&[]; size];
                got.iter().for_each(|(from, bytes)| by_rank[*from] = &bytes[Call::HEAD..]);
                by_rank[rank] = &own[Call::HEAD..];
                let sum = adder.sum(nodes, &by_rank, self.there, mine);
                let mut message = memory(spare, Call::HEAD + mine * self.back.width());
                sums.write(&mut message);
                self.back.write(&sum, &mut message[Call::HEAD..]);
                adder.spare.push(sum);
                spare.push(mem::take(own));
                spare.extend(got.into_iter().map(|(_, bytes)| bytes));
                let own = Arc::new(message);
                let mut transfers = Transfers::new(*sums);
                for step in 1..size {
                    let from = (rank + size - step) % size;
                    let bytes = part(from, size, len).len() * self.back.width();
                    if bytes > 0 {
                        transfers.receive(link, from, memory(spare, Call::HEAD + bytes))?;
                    }
                    if mine > 0 {
                        transfers.send(link, (rank + step) % size, own.clone())?;
                    }
                }
                bucket.state = State::Sums { leaving, transfers, own };
            }
            if let State::Sums { leaving, transfers, own } = &mut bucket.state {
                moved |= leaving.advance(link, |memory| spare.push(memory))?;
                moved |= transfers.advance(link, |memory| spare.push(memory))?;
                if leaving.is_done() && transfers.is_done() {
                    moved = true;
                    let own = mem::take(own);
                    let own = Arc::try_unwrap(own).unwrap_or_else(|shared| shared.to_vec());
                    let mut parts = mem::take(&mut transfers.got);
                    parts.push((rank, own));
                    bucket.state = State::Whole(parts);
                }
            }
        }
        self.whole += self.buckets.iter().skip(self.whole).take_while(|bucket| bucket.is_whole()).count();
        Ok(moved)
    }
}

impl Bucket {
    fn is_whole(&self) -> bool {
        matches!(self.state, State::Whole(_))
    }
}

/// Takes memory of a length from earlier messages, with what they had.
fn memory(spare: &mut Vec<Vec<u8>>, len: usize) -> Vec<u8> {
    let mut memory = spare.pop().unwrap_or_default();
    memory.resize(len, 0);
    memory
}

/// A wait until at most so many buckets are under way.
struct Until<'e, 'a> {
    exchange: &'e mut Exchange<'a>,
    left: usize,
}

impl Work for Until<'_, '_> {
    fn advance(&mut self, link: &Link) -> Result<bool> {
        self.exchange.advance(link)
    }

    fn is_done(&self) -> bool {
        self.exchange.buckets.len() - self.exchange.whole <= self.left
    }

    fn awaited(&self) -> Vec<usize> {
        match self.exchange.buckets.get(self.exchange.whole).map(|bucket| &bucket.state) {
            Some(State::Sums { leaving, transfers, .. }) if transfers.is_done() => leaving.awaited(),
            Some(State::Parts { transfers, .. } | State::Sums { transfers, .. }) => transfers.awaited(),
            _ => Vec::new(),
        }
    }
}
