//! Numbers of a step on their way to the other ranks, while the backward pass of the last shard runs.

use std::{borrow::Cow, collections::HashMap, mem, ops::Range};

use half::{bf16, f16, slice::HalfFloatSliceExt};
use precast::{
    LeafId, Moment, Param, Tensor,
    cell::Params,
    error::{Error, Result},
    scale::{ScaledGrads, ScaledLoss},
};
use precast_mpi::{Exchange, Tree};

use super::shards::{Buffers, Sum};

/// The sum of a step over ranks: gradients from the last parameter to the first, and then the moves of buffers. A bucket
/// of numbers leaves as soon as all of its gradients are final. Every rank sends all buckets, also after an error, so that
/// the ranks need not agree before.
pub(super) struct Outgoing<'a, 'r> {
    exchange: &'a mut Exchange<'r>,
    params: &'a Params,
    /// The parameters from the last to the first, and the place of each, by leaf.
    order: &'a [&'a Param],
    places: HashMap<LeafId, usize>,
    /// End of each parameter or buffer among the numbers, in their order.
    ends: Vec<usize>,
    is_filled: Vec<bool>,
    /// The numbers of each node of this rank.
    terms: &'a mut Vec<Vec<f32>>,
    /// Parameters and buffers, from the first, that are filled.
    filled: usize,
    /// Numbers that have left.
    sent: usize,
    total: Vec<f32>,
    /// Numbers of the total that are there.
    taken: usize,
}

/// The shards of a rank: the sums of those before the last, and the last.
pub(super) struct Own {
    pub before: Tree<Sum>,
    pub last: Option<Sum>,
}

impl Own {
    /// Returns the sums, of which some are not added yet.
    pub fn sums(&self) -> impl Iterator<Item = &Sum> {
        self.before.nodes().iter().map(|(_, sum)| sum).chain(&self.last)
    }
}

impl<'a, 'r> Outgoing<'a, 'r> {
    /// Begins a step. `terms` and `total` are memory of the steps before.
    pub fn new(
        exchange: &'a mut Exchange<'r>,
        (terms, total): (&'a mut Vec<Vec<f32>>, &'a mut Vec<f32>),
        (params, order): (&'a Params, &'a [&'a Param]),
        buffers: &Buffers,
    ) -> Self {
        let of_params = order.iter().map(|param| param.shape().iter().product());
        let ends: Vec<usize> = of_params
            .chain(buffers.lengths())
            .scan(0, |end, len: usize| {
                *end += len;
                Some(*end)
            })
            .collect();
        let len = ends.last().copied().unwrap_or(0);
        terms.resize(exchange.nodes().len(), Vec::new());
        terms.iter_mut().for_each(|numbers| numbers.resize(len, 0.0));
        let mut total = mem::take(total);
        total.resize(len, 0.0);
        Outgoing {
            exchange,
            params,
            order,
            places: order.iter().enumerate().map(|(place, param)| (param.id(), place)).collect(),
            is_filled: vec![false; ends.len()],
            ends,
            terms,
            filled: 0,
            sent: 0,
            total,
            taken: 0,
        }
    }

    /// Runs the backward pass of the last shard, whose gradients are added to `earlier` ones of the same shard, and sends
    /// the sums with the shards `before` as soon as they are final.
    pub fn backward(
        &mut self,
        loss: ScaledLoss,
        earlier: Option<&ScaledGrads>,
        before: &Tree<Sum>,
    ) -> Result<ScaledGrads> {
        let params = self.params;
        loss.into_grads_with(params, |moment| match moment {
            Moment::Final { param, grad, .. } => {
                let earlier = earlier.and_then(|sum| sum.stored(param)).map(|(grad, _)| numbers(grad));
                self.fill(self.places[&param.id()], before, [Some(numbers(grad)), earlier]);
                self.send()
            }
            _ => self.poll(),
        })
    }

    /// Sends what is left, and returns the sum over ranks. After an error of this rank, its numbers are absent.
    pub fn finish(mut self, own: &Result<Own>) -> Result<Totals> {
        let none = (Tree::default(), None);
        let (before, last) = own.as_ref().map_or((&none.0, &none.1), |own| (&own.before, &own.last));
        for place in 0..self.ends.len() {
            if !self.is_filled[place] {
                let last = last.as_ref().and_then(|last| of_sum(self.order, last, place));
                self.fill(place, before, [last, None]);
            }
        }
        self.send()?;
        self.exchange.finish().map_err(Error::ranks)?;
        self.take()?;
        Ok(Totals { total: self.total, ends: self.ends, params: self.order.len() })
    }

    /// Fills in the numbers of each node: those of the nodes `before`, to the last of which those of the last shard are
    /// added, in the order of the tree.
    fn fill(&mut self, place: usize, before: &Tree<Sum>, last: [Option<Cow<'_, [f32]>>; 2]) {
        let range = range(&self.ends, place);
        let Some((into, ready)) = self.terms.split_last_mut() else { return };
        for (into, (_, sum)) in ready.iter_mut().zip(before.nodes()) {
            write(of_sum(self.order, sum, place), &mut into[range.clone()]);
        }
        let [first, second] = last;
        let into = &mut into[range];
        write(first, into);
        add(second, into);
        for (_, sum) in before.nodes().iter().skip(ready.len()).rev() {
            add(of_sum(self.order, sum, place), into);
        }
        self.is_filled[place] = true;
    }

    /// Sends the buckets that are complete.
    fn send(&mut self) -> Result<()> {
        while self.is_filled.get(self.filled) == Some(&true) {
            self.filled += 1;
        }
        let ready = self.filled.checked_sub(1).map_or(0, |last| self.ends[last]);
        let (is_all, bucket) = (self.filled == self.ends.len(), self.exchange.bucket());
        while ready - self.sent >= bucket || is_all && ready > self.sent {
            let range = self.sent..ready.min(self.sent + bucket);
            let slices: Vec<&[f32]> = self.terms.iter().map(|numbers| &numbers[range.clone()]).collect();
            self.exchange.add(range.len(), &slices).map_err(Error::ranks)?;
            self.sent = range.end;
            self.poll()?;
        }
        Ok(())
    }

    /// Moves messages, and takes the sums that are there.
    fn poll(&mut self) -> Result<()> {
        self.exchange.poll().map_err(Error::ranks)?;
        self.take()
    }

    fn take(&mut self) -> Result<()> {
        while self.taken < self.sent {
            let end = self.sent.min(self.taken + self.exchange.bucket());
            if !self.exchange.take(&mut self.total[self.taken..end]).map_err(Error::ranks)? {
                break;
            }
            self.taken = end;
        }
        Ok(())
    }
}

/// The sum over ranks.
pub(super) struct Totals {
    pub total: Vec<f32>,
    ends: Vec<usize>,
    params: usize,
}

impl Totals {
    /// Returns the sum of the gradients of a parameter, in f32, by its place from the last.
    pub fn of_param(&self, place: usize, shape: &[usize]) -> Tensor {
        Tensor::from_slice(self.at(place), shape).expect("as many numbers")
    }

    /// Returns the sum of the moves of a buffer.
    pub fn of_buffer(&self, index: usize) -> Vec<f32> {
        self.at(self.params + index).to_vec()
    }

    fn at(&self, place: usize) -> &[f32] {
        &self.total[range(&self.ends, place)]
    }
}

/// Returns the numbers at a place.
fn range(ends: &[usize], place: usize) -> Range<usize> {
    place.checked_sub(1).map_or(0, |before| ends[before])..ends[place]
}

/// Returns the numbers of a sum at a place, if it has some.
fn of_sum<'s>(order: &[&Param], sum: &'s Sum, place: usize) -> Option<Cow<'s, [f32]>> {
    match place.checked_sub(order.len()) {
        Some(buffer) => sum.moves.get(buffer)?.as_deref().map(Cow::Borrowed),
        None => sum.grads.as_ref()?.stored(order[place]).map(|(grad, _)| numbers(grad)),
    }
}

/// Returns the numbers of a gradient or a parameter in f32, which represents them.
pub(super) fn numbers(x: &Tensor) -> Cow<'_, [f32]> {
    if let Some(numbers) = x.as_slice::<f32>() {
        return Cow::Borrowed(numbers);
    }
    let low = || match x.as_slice::<f16>() {
        Some(numbers) => Some(numbers.to_f32_vec()),
        None => Some(x.as_slice::<bf16>()?.to_f32_vec()),
    };
    Cow::Owned(low().unwrap_or_else(|| x.to_f64().into_iter().map(|number| number as f32).collect()))
}

/// Writes numbers, or if there are none, the one that leaves every other as it is when it is added: -0.
fn write(numbers: Option<Cow<'_, [f32]>>, into: &mut [f32]) {
    match numbers {
        Some(numbers) => into.copy_from_slice(&numbers),
        None => into.fill(-0.0),
    }
}

fn add(numbers: Option<Cow<'_, [f32]>>, into: &mut [f32]) {
    let numbers = numbers.unwrap_or_default();
    into.iter_mut().zip(numbers.iter()).for_each(|(sum, x)| *sum += x);
}

#[cfg(test)]
mod tests {
    use std::{
        cell::{Cell, RefCell},
        sync::Arc,
        thread,
    };

    use precast_mpi::{Engine, Pending, Ranks, Result, Threads, Wire};

    use crate::training::DataParallel;
    use precast::{
        observe::{GradientCall, Listener, listen},
        prelude::*,
    };

    thread_local! {
        /// Ops of this thread that have their gradients.
        static DONE: Cell<usize> = const { Cell::new(0) };
        /// The number of these when each message was sent.
        static SENT: RefCell<Vec<usize>> = const { RefCell::new(Vec::new()) };
    }

    struct Counts;

    impl Listener for Counts {
        fn gradient(&mut self, _: &GradientCall<'_>) {
            DONE.set(DONE.get() + 1);
        }
    }

    /// An engine that notes when it sends a message.
    #[derive(Debug)]
    struct Watched(Threads);

    impl Engine for Watched {
        fn rank(&self) -> usize {
            self.0.rank()
        }

        fn size(&self) -> usize {
            self.0.size()
        }

        fn send(&self, to: usize, tag: u16, bytes: Arc<Vec<u8>>) -> Result<Pending> {
            SENT.with_borrow_mut(|sent| sent.push(DONE.get()));
            self.0.send(to, tag, bytes)
        }

        fn receive(&self, from: usize, tag: u16, memory: Vec<u8>) -> Result<Pending> {
            self.0.receive(from, tag, memory)
        }

        fn poll(&self, pending: &Pending) -> Result<Option<Vec<u8>>> {
            self.0.poll(pending)
        }

        fn abort(&self, code: u8) {
            self.0.abort(code);
        }
    }

    #[test]
    fn numbers_leave_while_the_backward_pass_runs() {
        thread::scope(|scope| {
            for engine in Threads::engines(2, &[]) {
                scope.spawn(move || {
                    let ranks = Ranks::new(Box::new(Watched(engine)));
                    let rng = &mut Rng::seed(1);
                    let (first, wide) = (Dense::new(64, 600, rng), Dense::new(600, 600, rng));
                    let net = Child::new(sequential![Flatten::default(), first, wide, Dense::new(600, 10, rng)]);
                    let mut optimizer = Sgd::new(net.params(), 0.1);
                    let mut parallel = DataParallel::new(&ranks, 2, Wire::Float32).unwrap();
                    let batch = crate::data::digits().unwrap().batches(8).unwrap().next().unwrap();
                    let loss = |net: &Child<_>, shard: &crate::data::Batch| net.call(&shard.x)?.cross_entropy(&shard.y);
                    let step = || parallel.step(&net, &mut optimizer, &mut LossScale::none(), &batch, loss);
                    let _ = listen(Counts, step).0.unwrap();
                    // The wide layer fills a bucket, whose parts go to the other rank before the first layer has its gradient.
                    let (all, sent) = (DONE.get(), SENT.take());
                    assert!(sent.iter().any(|done| (1..all).contains(done)), "{sent:?} of {all}");
                });
            }
        });
    }
}
