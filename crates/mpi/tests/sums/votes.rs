//! Votes, agreed errors, broadcasts, and ranks that differ.

use precast_mpi::{Alone, ErrorKind, Fault, Ranks, Wire};

use crate::run;

#[test]
fn words_are_gathered_in_order() {
    for size in [1, 2, 3, 8, 17] {
        let late = [Fault::Late { seed: size as u64 }];
        let all = run(size, &late, |ranks| {
            assert_eq!(ranks.size(), size);
            for step in 0..20 {
                ranks.set_step(step);
                let votes = ranks.vote(&[ranks.rank() as u64, 6 | step, 1 << ranks.rank()]).unwrap();
                assert_eq!(votes.word(0).collect::<Vec<_>>(), (0..size as u64).collect::<Vec<_>>());
                assert_eq!(votes.of(size - 1)[0], size as u64 - 1);
                assert_eq!((votes.max(0), votes.min(0)), (size as u64 - 1, 0));
                assert_eq!(votes.equal(1, "word"), Ok(6 | step));
                assert_eq!(votes.any(2), (1 << size) - 1);
                assert_eq!(votes.all(2), u64::from(size == 1));
            }
            ranks.vote(&[7, 8]).unwrap()
        });
        assert!(all.iter().all(|votes| *votes == all[0]));
    }
}

#[test]
fn bytes_are_broadcast_and_gathered() {
    for size in [1, 2, 3, 4, 5, 8, 13] {
        run(size, &[Fault::Late { seed: 5 }], |ranks| {
            for len in [0, 1, 1000] {
                let mine = vec![ranks.rank() as u8 + 1; len + ranks.rank()];
                assert_eq!(ranks.broadcast(mine.clone()).unwrap(), vec![1; len]);
                let all = ranks.gather(&mine).unwrap();
                let expected: Vec<Vec<u8>> = (0..size).map(|rank| vec![rank as u8 + 1; len + rank]).collect();
                assert_eq!(all, expected);
            }
            ranks.barrier().unwrap();
        });
    }
}

#[test]
fn an_error_of_one_rank_is_that_of_all() {
    for size in [1, 2, 5] {
        for failing in 0..size {
            let all = run(size, &[], |ranks| {
                let mine = if ranks.rank() >= failing { Err(format!("disk {} is full", ranks.rank())) } else { Ok(1) };
                let error = ranks.agree(mine).unwrap_err();
                // Other calls can follow.
                assert_eq!(ranks.agree::<_, String>(Ok(ranks.rank())), Ok(ranks.rank()));
                error
            });
            for error in all {
                assert_eq!(error.kind(), ErrorKind::OfRank(failing));
                assert_eq!(error.to_string(), format!("rank {failing}: disk {failing} is full"));
            }
        }
    }
}

#[test]
fn a_value_that_differs_is_named() {
    run(3, &[], |ranks| {
        ranks.set_step(20);
        let votes = ranks.vote(&[if ranks.rank() == 2 { 16 } else { 32 }]).unwrap();
        let error = votes.equal(0, "loss scale").unwrap_err();
        assert_eq!(error.to_string(), "rank 2 has another loss scale than rank 0, step 20: met 0x10; expected 0x20");
        assert_eq!(error.kind(), ErrorKind::Diverged);
    });
}

/// Rank 1 makes another call than the others; each of its kinds is found by all.
#[test]
fn other_calls_are_found() {
    type Work = fn(&Ranks) -> precast_mpi::Result<()>;
    let vote: Work = |ranks| ranks.vote(&[1, 2, 3]).map(drop);
    let sum = |ranks: &Ranks, shards: usize, wire, len: usize| {
        let mut exchange = ranks.exchange(shards, wire)?;
        let slices = vec![&[1.0f32; 8][..len]; exchange.nodes().len()];
        exchange.sum(&slices, &mut vec![0.0; len])
    };
    let cases: &[(Work, &str)] = &[
        (|ranks| ranks.vote(&[1, 2]).map(drop), "a vote of 2 words"),
        (|ranks| ranks.vote(&[1, 2, 3, 4]).map(drop), "40 bytes met"),
        (|ranks| ranks.barrier(), "a vote of 0 words"),
        (
            |ranks| {
                ranks.set_step(8);
                ranks.vote(&[1, 2, 3]).map(drop)
            },
            "call 0 in step 8",
        ),
    ];
    for (other, words) in cases {
        let all = run(3, &[], |ranks| {
            ranks.set_step(7);
            let result = if ranks.rank() == 1 { other(ranks) } else { vote(ranks) };
            // No call has a sense after it.
            assert_eq!(ranks.barrier(), result);
            result.unwrap_err()
        });
        for error in &all {
            assert_eq!(error.kind(), ErrorKind::Diverged, "{error}");
        }
        // A message that is too long has words of the engine.
        let of_2 = all[2].to_string();
        assert!(of_2.contains("rank 2: ") && of_2.contains("rank 1 makes another call"), "{of_2}");
        assert!(of_2.contains("step 7"), "{of_2}");
        assert!(of_2.contains(words) || words.contains("40") && of_2.contains("64 bytes met"), "{of_2}");
    }
    for (shards, wire, len) in [(4, Wire::Float32, 8), (2, Wire::BFloat16, 8), (2, Wire::Float32, 4)] {
        let all = run(2, &[], |ranks| match ranks.rank() {
            1 => sum(ranks, shards, wire, len).unwrap_err(),
            _ => sum(ranks, 2, Wire::Float32, 8).unwrap_err(),
        });
        for error in all {
            assert_eq!(error.kind(), ErrorKind::Diverged, "{error}");
        }
    }
}

#[test]
fn a_rank_alone_sends_nothing() {
    let ranks = Ranks::new(Box::new(Alone));
    assert_eq!((ranks.rank(), ranks.size()), (0, 1));
    assert_eq!(ranks.vote(&[5]).unwrap().of(0), [5]);
    assert_eq!(ranks.broadcast(vec![1, 2]).unwrap(), [1, 2]);
    assert_eq!(ranks.gather(&[3]).unwrap(), [[3]]);
    let mut total = [0.0; 2];
    ranks.exchange(1, Wire::BFloat16).unwrap().sum(&[&[1.0 + 2f32.powi(-20), 2.0]], &mut total).unwrap();
    assert_eq!(total, [1.0 + 2f32.powi(-20), 2.0], "no wire, no rounding");
    assert_eq!(ranks.bytes_sent(), 0);
    assert_eq!(ranks.or_abort(Err::<(), _>("mine")), Err("mine"), "the program ends by itself");
    ranks.finish().unwrap();
}
