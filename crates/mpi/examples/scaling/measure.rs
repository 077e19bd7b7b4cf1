//! The constants of this machine, and sums beside the model.

use std::{error::Error, hint::black_box, sync::Arc, time::Instant};

use precast_mpi::{Engine, Pending, Ranks, Wire, to_bf16};

use crate::{
    model::{Pattern, Speeds, Sum, Wires, vote},
    say,
};

type Done<T = ()> = Result<T, Box<dyn Error>>;

/// Returns the least time of some runs in seconds: other work on the machine only adds to it.
fn least(ranks: &Ranks, runs: usize, mut work: impl FnMut() -> Done) -> Done<f64> {
    let mut least = f64::INFINITY;
    // The first run finds the memory.
    for run in 0..=runs {
        ranks.barrier()?;
        let begun = Instant::now();
        work()?;
        ranks.barrier()?;
        let time = begun.elapsed().as_secs_f64();
        least = if run == 0 { least } else { least.min(time) };
    }
    Ok(least)
}

/// Sends as many messages of a length to all other ranks, and receives theirs.
fn send_all(engine: &dyn Engine, count: usize, message: &Arc<Vec<u8>>, memory: &mut Vec<Vec<u8>>) -> Done {
    let (rank, size) = (engine.rank(), engine.size());
    let mut pending: Vec<Pending> = Vec::new();
    for _ in 0..count {
        for step in 1..size {
            let place = memory.pop().unwrap_or_else(|| vec![0; message.len()]);
            pending.push(engine.receive((rank + size - step) % size, 0, place)?);
            pending.push(engine.send((rank + step) % size, 0, message.clone())?);
        }
    }
    // The first ones first, as an exchange does.
    for message in &pending {
        let bytes = loop {
            match engine.poll(message)? {
                Some(bytes) => break bytes,
                None => std::thread::yield_now(),
            }
        };
        if !bytes.is_empty() {
            memory.push(bytes);
        }
    }
    Ok(())
}

/// Measures the network between these ranks, and the speed of one thread while all ranks compute.
fn constants(ranks: &Ranks, numbers: &[f32]) -> Done<(Wires, Speeds)> {
    // Its messages are apart from those of `ranks` by their tag: no call of `ranks` is under way.
    let engine = ranks.engine();
    let others = ranks.size() as f64 - 1.0;
    let (small, mut memory) = (Arc::new(vec![1; 64]), Vec::new());
    let message = least(ranks, 15, || send_all(engine, 1000, &small, &mut memory))? / 1000.0 / others;
    let large = Arc::new(vec![1; 1 << 20]);
    memory.clear();
    let sent = least(ranks, 15, || {
        // As many at a time as an exchange has under way.
        (0..16).try_for_each(|_| send_all(engine, 4, &large, &mut memory))
    })?;
    let bandwidth = 64.0 * others * large.len() as f64 / sent;
    let votes = least(ranks, 15, || (0..1000).try_for_each(|_| Ok(ranks.vote(&[1, 2, 3]).map(drop)?)))? / 1000.0;
    let latency = (votes - others * message).max(0.0);
    let wires = Wires { name: "here".into(), latency, message, bandwidth, by_processor: true };

    let each = 1.0 / numbers.len() as f64;
    let chunk = 1 << 18;
    let mut places = vec![vec![0f32; chunk]; 4];
    let copy = least(ranks, 15, || {
        numbers.chunks(chunk).enumerate().for_each(|(i, from)| places[i % 4][..from.len()].copy_from_slice(from));
        black_box(&mut places);
        Ok(())
    })?;
    let add = least(ranks, 15, || {
        for (i, from) in numbers.chunks(chunk).enumerate() {
            places[i % 4].iter_mut().zip(from).for_each(|(sum, x)| *sum += x);
        }
        black_box(&mut places);
        Ok(())
    })?;
    let mut rounded = vec![vec![0u16; chunk]; 4];
    let round = least(ranks, 15, || {
        for (i, from) in numbers.chunks(chunk).enumerate() {
            rounded[i % 4].iter_mut().zip(from).for_each(|(place, x)| *place = to_bf16(*x));
        }
        black_box(&mut rounded);
        Ok(())
    })?;
    Ok((wires, Speeds { add: add * each, copy: copy * each, round: round * each }))
}

/// Measures sums and a vote on the ranks of the launcher, and says how far the model is off.
pub fn run(millions: f64) -> Done {
    let ranks = Ranks::of_launcher()?;
    ranks.abort_on_panic();
    let done = compare(&ranks, millions);
    ranks.or_abort(done)?;
    Ok(ranks.finish()?)
}

fn compare(ranks: &Ranks, millions: f64) -> Done {
    let size = ranks.size();
    if size == 1 {
        return Err("measuring needs at least two ranks: `mpirun -n 2 scaling measure`".into());
    }
    let len = (millions * 1e6) as usize;
    let mine: Vec<f32> = (0..len).map(|i| (i as f32 * 0.37 + ranks.rank() as f32).sin()).collect();
    let (wires, speeds) = constants(ranks, &mine)?;
    let lead = |line: &str| if ranks.rank() == 0 { say(line) } else { Ok(()) };
    let Wires { latency, message, bandwidth, .. } = wires;
    lead(&format!(
        "{size} ranks: latency {:.2} us, a message {:.2} us, {:.1} GB/s; a number: adding {:.2} ns, copying {:.2}, rounding {:.2}",
        latency * 1e6,
        message * 1e6,
        bandwidth / 1e9,
        speeds.add * 1e9,
        speeds.copy * 1e9,
        speeds.round * 1e9,
    ))?;
    let mut total = vec![0.0; len];
    for wire in [Wire::Float32, Wire::BFloat16Both] {
        for bucket in [1 << 14, 1 << 16, 1 << 18, 1 << 20] {
            let mut exchange = ranks.exchange(size, wire)?.with_bucket(bucket)?;
            let met = least(ranks, 15, || Ok(exchange.sum(&[&mine], &mut total)?))?;
            let sum = Sum {
                ranks: size,
                shards: size,
                numbers: len as f64,
                bucket: bucket as f64,
                wire,
                pattern: Pattern::Flat,
            };
            let before = ranks.bytes_sent();
            exchange.sum(&[&mine], &mut total)?;
            let sent = (ranks.bytes_sent() - before) as f64;
            let model = sum.parts(&wires, &speeds).whole;
            lead(&format!(
                "{wire:14} buckets of {bucket:8}: measured {:6.1} ms, model {:6.1} ({:+.0} %); sent {:.0} bytes, model {:.0}",
                met * 1e3,
                model * 1e3,
                (model / met - 1.0) * 100.0,
                sent,
                sum.bytes(),
            ))?;
        }
    }
    let met = least(ranks, 15, || (0..1000).try_for_each(|_| Ok(ranks.vote(&[0; 32]).map(drop)?)))? / 1000.0;
    let model = vote(size, 32.0, &wires);
    lead(&format!("vote of 32 words: measured {:.2} us, model {:.2}", met * 1e6, model * 1e6))
}
