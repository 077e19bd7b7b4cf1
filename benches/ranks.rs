//! Steps of two ranks on a network of their own: the time of the exchange, and the share of it that hides behind the
//! backward pass. Ranks are threads, each with one thread of computation; the network has a rate: `cargo bench --bench
//! ranks`.

use std::{
    cell::{Cell, RefCell},
    collections::{HashMap, hash_map::Entry},
    hint::black_box,
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use precast::{
    data::Batch,
    prelude::*,
    ranks::{Alone, Engine, Pending, Ranks, Threads, Wire},
    train::DataParallel,
};

/// A rank whose messages arrive at a rate.
#[derive(Debug)]
struct Network {
    threads: Threads,
    bytes_per_second: f64,
    /// When the last message will be there.
    busy: Cell<Instant>,
    /// Messages on their way.
    arriving: RefCell<HashMap<usize, (Instant, Vec<u8>)>>,
}

impl Engine for Network {
    fn rank(&self) -> usize {
        self.threads.rank()
    }

    fn size(&self) -> usize {
        self.threads.size()
    }

    fn send(&self, to: usize, tag: u16, bytes: Arc<Vec<u8>>) -> precast::ranks::Result<Pending> {
        self.threads.send(to, tag, bytes)
    }

    fn receive(&self, from: usize, tag: u16, memory: Vec<u8>) -> precast::ranks::Result<Pending> {
        self.threads.receive(from, tag, memory)
    }

    fn poll(&self, pending: &Pending) -> precast::ranks::Result<Option<Vec<u8>>> {
        let mut arriving = self.arriving.borrow_mut();
        if let Entry::Vacant(new) = arriving.entry(pending.0) {
            match self.threads.poll(pending)? {
                Some(bytes) if !bytes.is_empty() => {
                    let time = Duration::from_secs_f64(bytes.len() as f64 / self.bytes_per_second);
                    self.busy.set(self.busy.get().max(Instant::now()) + time);
                    new.insert((self.busy.get(), bytes));
                }
                met => return Ok(met),
            }
        }
        let is_there = arriving.get(&pending.0).is_some_and(|(time, _)| *time <= Instant::now());
        Ok(if is_there { arriving.remove(&pending.0).map(|(_, bytes)| bytes) } else { None })
    }

    fn abort(&self, code: u8) {
        self.threads.abort(code);
    }
}

/// Runs two ranks on a network of so many Gbit/s.
fn on<T: Send>(rate: f64, work: impl Fn(&Ranks) -> T + Sync) -> Vec<T> {
    let work = &work;
    thread::scope(|scope| {
        let ranks: Vec<_> = Threads::engines(2, &[])
            .into_iter()
            .map(|threads| {
                let (busy, arriving) = (Cell::new(Instant::now()), RefCell::default());
                let engine = Network { threads, bytes_per_second: rate * 1e9 / 8.0, busy, arriving };
                scope.spawn(move || work(&Ranks::new(Box::new(engine))))
            })
            .collect();
        ranks.into_iter().map(|rank| rank.join().unwrap()).collect()
    })
}

/// 4.3 million weights.
fn net() -> Child<Sequential> {
    let rng = &mut Rng::seed(1);
    let layers = [Dense::new(512, 1024, rng), Dense::new(1024, 2048, rng), Dense::new(2048, 832, rng)];
    let [a, b, c] = layers;
    let net = sequential![a, ReLU, b, ReLU, c, ReLU, Dense::new(832, 10, rng)];
    Child::new(net)
}

/// Median times in seconds of a step alone, of one over the ranks, and of the exchange.
fn times(ranks: &Ranks, dtype: DType) -> [f64; 3] {
    let mut net = net();
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
    let net = net();
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
    println!("| dtype | Gbit/s | step alone, ms | over 2 ranks | exchange | hidden |");
    println!("| --- | --- | --- | --- | --- | --- |");
    for dtype in [DType::F32, DType::Bf16] {
        for rate in [2.5, 10.0, 25.0, 100.0] {
            let [alone, over, exchange] = on(rate, |ranks| times(ranks, dtype))[0];
            let hidden = 100.0 * (1.0 - (over - alone) / exchange);
            let [alone, over, exchange] = [alone, over, exchange].map(|time| 1e3 * time);
            println!("| {dtype} | {rate} | {alone:.1} | {over:.1} | {exchange:.1} | {hidden:.0} % |");
        }
    }
}
