//! The order of sums: the bits of one process, for every number of ranks and every length of buckets.

use precast_mpi::{Fault, Node, Shards, Tree, Wire};
use proptest::prelude::*;

use crate::{add, numbers, own_sums, run, same, sum};

/// The tree, written as a recursion: the left child has the largest power of two of shards that is less than all.
fn reference(shards: &[Vec<f32>]) -> Vec<f32> {
    match shards {
        [] => Vec::new(),
        [one] => one.clone(),
        _ => {
            let left = 1 << (shards.len() - 1).ilog2();
            let (left, right) = (reference(&shards[..left]), reference(&shards[left..]));
            left.iter().zip(right).map(|(left, right)| left + right).collect()
        }
    }
}

fn shards_of(shards: usize, len: usize, seed: u64) -> Vec<Vec<f32>> {
    (0..shards).map(|shard| numbers(seed + shard as u64, len)).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]
    #[test]
    fn bits_do_not_depend_on_ranks_and_buckets(
        ranks in 1usize..=8, shards in 1usize..=16, len in prop::sample::select(vec![0usize, 1, 7, 64, 1000]),
        bucket in 0u32..=18, seed in 0u64..1 << 40,
    ) {
        let all = shards_of(shards, len, seed);
        let late = [Fault::Late { seed }];
        let (met, _) = sum(ranks, shards, Wire::Float32, 1 << bucket, &late, len, |shard| all[shard].clone());
        prop_assert!(same(&met, &reference(&all)), "{} ranks, {} shards, {} numbers", ranks, shards, len);
    }
}

#[test]
fn long_sums_have_the_bits_of_one_process() {
    let len = 100_003;
    for (ranks, shards, bucket) in
        [(1, 7, 1 << 18), (2, 6, 1 << 12), (3, 8, 1 << 18), (4, 16, 1 << 15), (5, 3, 1 << 14)]
    {
        let all = shards_of(shards, len, 7);
        let (met, _) = sum(ranks, shards, Wire::Float32, bucket, &[], len, |shard| all[shard].clone());
        assert!(same(&met, &reference(&all)), "{ranks} ranks, {shards} shards");
    }
}

/// The test above would show nothing if these sums were exact.
#[test]
fn another_order_has_other_bits() {
    let all = shards_of(8, 1000, 1);
    let mut in_a_row = all[0].clone();
    all[1..].iter().for_each(|shard| add(&mut in_a_row, shard));
    let tree = reference(&all);
    let other = in_a_row.iter().zip(&tree).filter(|(one, other)| one.to_bits() != other.to_bits()).count();
    assert!(other > 300, "{other} of 1000 numbers");
}

#[test]
fn ranks_have_the_largest_nodes_of_neighbouring_shards() {
    let nodes = |shards, ranks, rank| Shards::new(shards, ranks).unwrap().nodes(rank);
    assert_eq!(nodes(8, 2, 1), [Node { level: 2, at: 1 }]);
    assert_eq!(nodes(6, 2, 0), [Node { level: 1, at: 0 }, Node { level: 0, at: 2 }]);
    assert_eq!(nodes(6, 2, 1), [Node { level: 0, at: 3 }, Node { level: 1, at: 2 }]);
    assert_eq!(nodes(1, 4, 2), []);
    for (shards, ranks) in (1..=20).flat_map(|shards| (1..=24).map(move |ranks| (shards, ranks))) {
        let all: Vec<usize> = (0..ranks).flat_map(|rank| Shards::new(shards, ranks).unwrap().run(rank)).collect();
        assert_eq!(all, (0..shards).collect::<Vec<_>>());
        let of_nodes: Vec<usize> = (0..ranks)
            .flat_map(|rank| nodes(shards, ranks, rank))
            .flat_map(|node| node.at << node.level..(node.at + 1) << node.level)
            .collect();
        assert_eq!(of_nodes, all);
    }
    assert!(Shards::new(0, 1).is_err() && Shards::new(1, 0).is_err() && Shards::new(usize::MAX, 1).is_err());
}

#[test]
fn an_error_of_an_addition_is_returned() {
    let mut tree = Tree::default();
    let fails = |_: &mut i32, _: i32| Err("no");
    assert_eq!(tree.push(Node::shard(0), 1, fails), Ok(()));
    assert_eq!(tree.clone().push(Node::shard(1), 1, fails), Err("no"));
    assert_eq!(tree.push(Node::shard(2), 1, fails), Ok(()), "no sibling");
    assert_eq!(tree.fold(fails), Err("no"));
    assert_eq!(Tree::<i32>::default().fold(fails), Ok(None));
}

/// Buckets of any lengths are added while others are under way, with votes in between.
#[test]
fn an_exchange_is_polled_between_other_work() {
    let (shards, lens) = (6, [1000, 0, 1, 17, 4096, 3, 3, 3, 3, 3, 250]);
    let buckets: Vec<Vec<Vec<f32>>> =
        lens.iter().enumerate().map(|(k, len)| shards_of(shards, *len, 100 * k as u64)).collect();
    for ranks in 1..=4 {
        let late = [Fault::Late { seed: 3 }];
        run(ranks, &late, |job| {
            let mut exchange = job.exchange(shards, Wire::Float32).unwrap();
            assert_eq!(exchange.nodes(), Shards::new(shards, ranks).unwrap().nodes(job.rank()));
            let mut taken = 0;
            let mut take = |exchange: &mut precast_mpi::Exchange<'_>, must: bool| {
                while taken < lens.len() {
                    let mut total = vec![f32::NAN; lens[taken]];
                    match exchange.take(&mut total) {
                        Ok(true) => assert!(same(&total, &reference(&buckets[taken])), "bucket {taken}"),
                        Ok(false) | Err(_) if !must => return,
                        met => panic!("bucket {taken}: {met:?}"),
                    }
                    taken += 1;
                }
            };
            for (k, len) in lens.into_iter().enumerate() {
                let sums = own_sums(job.rank(), ranks, shards, |shard| buckets[k][shard].clone());
                let slices: Vec<&[f32]> = sums.iter().map(Vec::as_slice).collect();
                exchange.add(len, &slices).unwrap();
                exchange.poll().unwrap();
                assert_eq!(job.vote(&[k as u64]).unwrap().all(0), k as u64);
                take(&mut exchange, false);
            }
            exchange.finish().unwrap();
            take(&mut exchange, true);
            assert!(exchange.poll().unwrap());
            let error = exchange.take(&mut []).unwrap_err();
            assert_eq!(error.to_string(), "there is no bucket whose sum could be taken");
        });
    }
}

/// More buckets than may be under way: a rank that only adds waits for the others.
#[test]
fn buckets_without_end_are_added() {
    let count = 1500;
    run(3, &[], |job| {
        let mut exchange = job.exchange(3, Wire::Float32).unwrap();
        for k in 0..count {
            exchange.add(2, &[&[k as f32, 1.0]]).unwrap();
        }
        exchange.finish().unwrap();
        for k in 0..count {
            let mut total = [0.0; 2];
            assert!(exchange.take(&mut total).unwrap());
            assert_eq!(total, [3.0 * k as f32, 3.0]);
        }
    });
}

#[test]
fn slices_of_other_sizes_are_refused() {
    run(2, &[], |job| {
        let mut exchange = job.exchange(2, Wire::Float32).unwrap();
        let words = |result: precast_mpi::Result<()>| result.unwrap_err().to_string();
        assert_eq!(words(exchange.add(1, &[])), "0 slices for the 1 nodes of this rank");
        assert_eq!(words(exchange.add(1, &[&[1.0, 2.0]])), "a slice of 2 numbers in a bucket of 1");
        assert_eq!(words(exchange.sum(&[&[1.0]], &mut [0.0; 2])), "a slice of 1 numbers for a total of 2");
        exchange.add(1, &[&[1.0]]).unwrap();
        exchange.finish().unwrap();
        assert_eq!(words(exchange.take(&mut []).map(drop)), "the sum of a bucket of 1 numbers, into 0");
        assert_eq!(words(exchange.sum(&[&[1.0]], &mut [0.0])), "there are buckets whose sums have not been taken");
        assert!(exchange.take(&mut [0.0]).unwrap());
        assert!(exchange.with_bucket(0).is_err());
        assert!(job.exchange(0, Wire::Float32).is_err());
    });
}
