//! Steps of two ranks on a network of their own: the work of the exchange, the time for which it waits for bytes, and the
//! share of the waiting that hides behind the backward pass. Ranks are threads, each with one thread of computation; the
//! network has a rate: `cargo bench --bench ranks`.

use std::{
    cell::{Cell, RefCell},
    collections::{HashMap, VecDeque, hash_map::Entry},
    hint::black_box,
    sync::{Arc, Mutex},
    thread,
    time::{Duration, Instant},
};

use precast::prelude::*;
use precast_mpi::{Alone, Engine, Pending, Ranks, Threads, Wire};
use precast_train::{DataParallel, data::Batch};

/// When messages arrive, by sender, receiver and tag, in their order.
type Arrivals = Arc<Mutex<HashMap<(usize, usize, u16), VecDeque<Instant>>>>;

/// A rank that sends at a rate. What is sent moves while the rank computes.
#[derive(Debug)]
struct Network {
    threads: Threads,
    bytes_per_second: f64,
    arrivals: Arrivals,
    /// When the last message that this rank sent arrives.
    busy: Cell<Instant>,
    /// The sender and tag of messages to receive, and those that are there too early.
    wanted: RefCell<HashMap<usize, (usize, u16)>>,
    early: RefCell<HashMap<usize, (Instant, Vec<u8>)>>,
}

impl Engine for Network {
    fn rank(&self) -> usize {
        self.threads.rank()
    }

    fn size(&self) -> usize {
        self.threads.size()
    }

    fn send(&self, to: usize, tag: u16, bytes: Arc<Vec<u8>>) -> precast_mpi::Result<Pending> {
        let time = Duration::from_secs_f64(bytes.len() as f64 / self.bytes_per_second);
        self.busy.set(self.busy.get().max(Instant::now()) + time);
        let key = (self.rank(), to, tag);
        self.arrivals.lock().unwrap().entry(key).or_default().push_back(self.busy.get());
        self.threads.send(to, tag, bytes)
    }

    fn receive(&self, from: usize, tag: u16, memory: Vec<u8>) -> precast_mpi::Result<Pending> {
        let pending = self.threads.receive(from, tag, memory)?;
        self.wanted.borrow_mut().insert(pending.0, (from, tag));
        Ok(pending)
    }

    fn poll(&self, pending: &Pending) -> precast_mpi::Result<Option<Vec<u8>>> {
        let mut early = self.early.borrow_mut();
        if let Entry::Vacant(new) = early.entry(pending.0) {
            let wanted = self.wanted.borrow().get(&pending.0).copied();
            // What was sent has ended for its sender.
            let Some((from, tag)) = wanted else { return self.threads.poll(pending) };
            let Some(bytes) = self.threads.poll(pending)? else { return Ok(None) };
            let mut arrivals = self.arrivals.lock().unwrap();
            let time = arrivals.get_mut(&(from, self.rank(), tag)).and_then(VecDeque::pop_front).unwrap();
            new.insert((time, bytes));
        }
        let is_there = early.get(&pending.0).is_some_and(|(time, _)| *time <= Instant::now());
        if is_there {
            self.wanted.borrow_mut().remove(&pending.0);
        }
        Ok(if is_there { early.remove(&pending.0).map(|(_, bytes)| bytes) } else { None })
    }

    fn abort(&self, code: u8) {
        self.threads.abort(code);
    }
}

/// Runs two ranks on a network of so many Gbit/s.
fn on<T: Send>(rate: f64, work: impl Fn(&Ranks) -> T + Sync) -> Vec<T> {
    let (work, arrivals) = (&work, Arrivals::default());
    thread::scope(|scope| {
        let ranks: Vec<_> = Threads::engines(2, &[])
            .into_iter()
            .map(|threads| {
                let engine = Network {
                    threads,
                    bytes_per_second: rate * 1e9 / 8.0,
                    arrivals: arrivals.clone(),
                    busy: Cell::new(Instant::now()),
                    wanted: RefCell::default(),
                    early: RefCell::default(),
                };
                scope.spawn(move || work(&Ranks::new(Box::new(engine))))
            })
            .collect();
        ranks.into_iter().map(|rank| rank.join().unwrap()).collect()
    })
}

/// 4.3 million weights, in a few large layers or in many.
fn net(many: bool) -> Child<Sequential> {
    let rng = &mut Rng::seed(1);
    let widths: Vec<usize> = if many { vec![512; 17] } else { vec![512, 1024, 2048, 832] };
    let mut cells: Vec<Child> = Vec::new();
    for pair in widths.windows(2) {
        cells.extend([Dense::new(pair[0], pair[1], rng).into(), ReLU.into()]);
    }
    cells.push(Dense::new(widths[widths.len() - 1], 10, rng).into());
    Child::new(Sequential::new(cells))
}

/// Median times in seconds of a step alone, of one over the ranks, and of the exchange.
fn times(ranks: &Ranks, dtype: DType, many: bool) -> [f64; 3] {
    let mut net = net(many);
    if dtype.is_low() {
        Policy::new(Level::O2, dtype).unwrap().apply(&mut net).unwrap();
    }
    let (mut optimizer, mut scale) = (Sgd::new(net.params(), 1e-4), LossScale::fixed(1024.0).unwrap());
    let rng = &mut Rng::seed(2 + ranks.rank() as u64);
    let x = Tensor::from_vec((0..512 * 512).map(|_| rng.uniform(-1.0, 1.0) as f32).collect(), &[512, 512]).unwrap();
    let batch = Batch { x, further: Vec::new(), y: Tensor::from_vec(vec![3i64; 512], &[512]).unwrap() };
    let half = batch.shards(2).unwrap().swap_remove(0);
    let loss = |net: &Child<Sequential>, shard: &Batch| net.call(&shard.x)?.cross_entropy(&shard.y);
    let alone = Ranks::new(Box::new(Alone));
    let mut alone = DataParallel::new(&alone, 1, Wire::Float32).unwrap();
    let mut over = DataParallel::new(ranks, 2, Wire::Float32).unwrap();
    let mut exchange = ranks.exchange(2, Wire::Float32).unwrap();
    let numbers: Vec<f32> = net.params().iter().flat_map(|(_, param)| param.full().to_vec::<f32>().unwrap()).collect();
    let mut sum = vec![0.0; numbers.len()];
    let mut times = [(); 3].map(|()| Vec::new());
    for round in 0..16 {
        let mut timed = |which: usize, work: &mut dyn FnMut()| {
            ranks.barrier().unwrap();
            let start = Instant::now();
            work();
            if round > 1 {
                times[which].push(start.elapsed().as_secs_f64());
            }
        };
        timed(0, &mut || drop(alone.step(&net, &mut optimizer, &mut scale, &half, loss).unwrap()));
        timed(1, &mut || drop(over.step(&net, &mut optimizer, &mut scale, &batch, loss).unwrap()));
        timed(2, &mut || exchange.sum(&[&numbers], &mut sum).unwrap());
    }
    times.map(median)
}

fn median(mut times: Vec<f64>) -> f64 {
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}

/// Returns the time of copying all gradients into memory that is kept; sums are not copied back.
fn reading() -> f64 {
    let net = net(false);
    let loss = net.call(&Tensor::ones(&[8, 512], DType::F32)).unwrap().mean_all().unwrap();
    let grads = loss.into_grads().unwrap();
    let all: Vec<Tensor> = net.params().iter().map(|(_, param)| grads.get(param).unwrap()).collect();
    let mut kept: Vec<f32> = vec![1.0; all.iter().map(Tensor::len).sum()];
    let read = |kept: &mut Vec<f32>| {
        let start = Instant::now();
        let mut at = 0;
        for grad in &all {
            kept[at..at + grad.len()].copy_from_slice(grad.as_slice().unwrap());
            at += grad.len();
        }
        black_box(kept);
        start.elapsed().as_secs_f64()
    };
    median((0..25).map(|_| read(&mut kept)).collect())
}

fn main() {
    precast::set_threads(1);
    println!("gradients of 4.3 million weights, copied: {:.2} ms", 1e3 * reading());
    println!("| layers | dtype | step alone, ms | over 2 ranks | exchange | Gbit/s | waiting | hidden |");
    println!("| --- | --- | --- | --- | --- | --- | --- | --- |");
    for (many, dtype) in [false, true].into_iter().flat_map(|many| [DType::F32, DType::Bf16].map(|dtype| (many, dtype)))
    {
        let layers = if many { 17 } else { 4 };
        // Without a limit the exchange is the work of the two processors.
        let [alone, free, work] = on(f64::INFINITY, |ranks| times(ranks, dtype, many))[0];
        for rate in [2.5, 5.0, 10.0] {
            let [_, over, exchange] = on(rate, |ranks| times(ranks, dtype, many))[0];
            let hidden = 100.0 * (1.0 - (over - free) / (exchange - work));
            let [alone, free, work, waiting] = [alone, free, work, exchange - work].map(|time| 1e3 * time);
            println!(
                "| {layers} | {dtype} | {alone:.1} | {free:.1} | {work:.1} | {rate} | {waiting:.1} | {hidden:.0} % |"
            );
        }
    }
}
