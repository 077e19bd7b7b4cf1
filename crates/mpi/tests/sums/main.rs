//! Ranks as threads of one process: the order of sums, the wire, votes, and faults.

mod faults;
mod order;
mod votes;
mod wire;

use std::time::Duration;

use precast_mpi::{Fault, Node, Ranks, Shards, Threads, Tree, Wire};

/// A patience that no test without a planted silence uses up.
const LONG: Duration = Duration::from_secs(600);

/// Runs ranks, and returns their results.
fn run<T: Send>(size: usize, faults: &[Fault], work: impl Fn(&Ranks) -> T + Sync) -> Vec<T> {
    Threads::run(size, faults, LONG, work).unwrap()
}

/// Random f32 with 24 random bits of mantissa and sign, and exponents of a few octaves, so that sums are inexact.
fn numbers(seed: u64, len: usize) -> Vec<f32> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0x5851_f42d_4c95_7f2d;
    let mut next = || {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (state >> 32) as u32
    };
    (0..len)
        .map(|_| {
            let bits = next();
            f32::from_bits((bits & 0x807f_ffff) | ((124 + (bits >> 24) % 6) << 23))
        })
        .collect()
}

fn add(left: &mut [f32], right: &[f32]) {
    left.iter_mut().zip(right).for_each(|(left, right)| *left += right);
}

/// The sums of a rank's nodes, over the shards in its run.
fn own_sums(rank: usize, ranks: usize, shards: usize, shard: impl Fn(usize) -> Vec<f32>) -> Vec<Vec<f32>> {
    let mut tree = Tree::default();
    for at in Shards::new(shards, ranks).unwrap().run(rank) {
        tree.push_with(Node::shard(at), shard(at), |left, right| add(left, &right));
    }
    tree.into_values()
}

/// The sum over shards on so many ranks, and the bytes that the first has sent for it.
fn sum(
    ranks: usize,
    shards: usize,
    wire: Wire,
    bucket: usize,
    faults: &[Fault],
    len: usize,
    shard: impl Fn(usize) -> Vec<f32> + Sync,
) -> (Vec<f32>, u64) {
    let mut all = run(ranks, faults, |job| {
        let sums = own_sums(job.rank(), ranks, shards, &shard);
        let slices: Vec<&[f32]> = sums.iter().map(Vec::as_slice).collect();
        let mut total = vec![f32::NAN; len];
        let mut exchange = job.exchange(shards, wire).unwrap().with_bucket(bucket).unwrap();
        exchange.sum(&slices, &mut total).unwrap();
        (total, job.bytes_sent())
    });
    for (rank, (total, _)) in all.iter().enumerate() {
        assert!(same(total, &all[0].0), "rank {rank} of {ranks} has other bits");
    }
    all.swap_remove(0)
}

fn same(one: &[f32], other: &[f32]) -> bool {
    one.len() == other.len() && one.iter().zip(other).all(|(one, other)| one.to_bits() == other.to_bits())
}
