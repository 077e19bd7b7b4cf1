//! Cost of a region: on an op of four elements, and of entering and leaving: `cargo bench --bench region`.
//!
//! The op inside a region and the same op outside are timed alternately, and the median of the differences is the cost.

use std::{hint::black_box, time::Instant};

use precast::{precision::Frame, prelude::*};

type Case = (&'static str, Box<dyn Fn() -> Tensor>);

fn region(pack: &str) -> Autocast {
    Autocast::new(pack).unwrap().dtype(DType::Bf16)
}

/// Ops whose inputs need no cast, so that only the lookup is timed.
fn cases() -> Vec<Case> {
    let x = Tensor::full(&[4], 1.5, DType::F32);
    let (a, b) = (x.clone(), Tensor::full(&[4], 0.5, DType::F32));
    let y = x.clone();
    let (m, n) = (Tensor::ones(&[2, 2], DType::Bf16), Tensor::ones(&[2, 2], DType::Bf16));
    vec![
        // Nothing is computed: only the dispatch remains.
        ("reshape of f32 (unlisted)", Box::new(move || y.reshape(&[2, 2]).unwrap())),
        ("relu of f32 (unlisted)", Box::new(move || x.relu().unwrap())),
        ("add of f32 (unlisted)", Box::new(move || a.add(&b).unwrap())),
        ("matmul of bf16 (low)", Box::new(move || m.matmul(&n).unwrap())),
    ]
}

/// Returns the nanoseconds per call, averaged over many.
fn time<R>(op: &dyn Fn() -> R) -> f64 {
    const CALLS: u32 = 2_000;
    let start = Instant::now();
    for _ in 0..CALLS {
        black_box(op());
    }
    start.elapsed().as_secs_f64() * 1e9 / f64::from(CALLS)
}

fn main() {
    for pack in ["torch-2.15-cpu", "paddle-3.3"] {
        let region = region(pack);
        for (name, op) in cases() {
            let once = |_| {
                let bare = time(&*op);
                let _region = region.enter().unwrap();
                (time(&*op) - bare, bare)
            };
            let mut rounds: Vec<(f64, f64)> = (0..301).map(once).collect();
            rounds.sort_by(|a, b| a.0.total_cmp(&b.0));
            let (added, bare) = rounds[rounds.len() / 2];
            println!("region of {pack} on {name}: {added:.0} ns more than {bare:.0} ns");
        }
    }
    let region = region("torch-2.15-cpu");
    println!("enter and leave a region: {:.0} ns", time(&|| drop(black_box(region.enter().unwrap()))));
    println!("enter and leave a frame: {:.0} ns", time(&|| drop(black_box(precast::precision::enter(Frame::Off)))));
}
