//! Ranks that stop answering, that end, and that end the others.

use std::{
    panic,
    sync::Barrier,
    time::{Duration, Instant},
};

use precast_mpi::{ErrorKind, Fault, Ranks, Result, Threads, Wire};

use crate::run;

/// Steps of a job, until an error.
fn steps(ranks: &Ranks) -> Result<()> {
    for step in 0..1000 {
        ranks.set_step(step);
        ranks.vote(&[step])?;
        let mut exchange = ranks.exchange(4, Wire::Float32)?.with_bucket(8)?;
        let slices = vec![&[1.0f32; 20][..]; exchange.nodes().len()];
        exchange.sum(&slices, &mut [0.0; 20])?;
    }
    Ok(())
}

#[test]
fn a_silent_rank_is_named_with_the_step() {
    let patience = Duration::from_millis(1500);
    for (silent, after) in [(1, 0), (0, 25), (3, 101), (2, 1000)] {
        let begun = Instant::now();
        let faults = [Fault::Silent { rank: silent, after }];
        // A rank that gives up first has not ended for the others.
        let all_gave_up = Barrier::new(4);
        let all = Threads::run(4, &faults, patience, |ranks| {
            let error = steps(ranks).unwrap_err();
            all_gave_up.wait();
            (error, ranks.step())
        })
        .unwrap();
        let first = all.iter().map(|(_, step)| *step).min().unwrap();
        let mut alone = 0;
        for (rank, (error, step)) in all.into_iter().enumerate().filter(|(rank, _)| *rank != silent) {
            assert_eq!(error.kind(), ErrorKind::Silent, "{error}");
            let words = error.to_string();
            // A rank that has the message for which another still waits waits for both.
            let who = words.strip_prefix(&format!("rank {rank}: rank")).unwrap();
            let (who, when) = who.split_once(" not answered").unwrap();
            assert!(who.contains(&silent.to_string()), "{words}");
            assert_eq!(when, format!(" for 1.5 s, step {step}"));
            alone += usize::from(who == format!(" {silent} has"));
            assert!(step <= first + 1, "{step} and {first}");
        }
        assert!(alone > 0, "nobody names rank {silent} alone");
        assert!(begun.elapsed() < Duration::from_secs(60), "it does not wait for ever");
    }
}

#[test]
fn a_rank_that_ends_is_named() {
    for after in [0, 10, 50] {
        let all = run(3, &[Fault::Ends { rank: 1, after }], |ranks| steps(ranks).unwrap_err());
        for error in &all {
            assert_eq!(error.kind(), ErrorKind::Ended, "{error}");
        }
        for other in [0, 2] {
            assert!(all[other].to_string().contains(" has ended"), "{}", all[other]);
        }
        assert!(all[1].to_string().contains("a planted fault ends this rank"), "{}", all[1]);
    }
}

#[test]
fn a_panic_does_not_let_the_others_wait() {
    let met = panic::catch_unwind(|| {
        run(3, &[], |ranks| {
            if ranks.rank() == 2 {
                panic::resume_unwind(Box::new("of rank 2"));
            }
            let error = steps(ranks).unwrap_err();
            assert!(error.to_string().contains("rank 2 has ended"), "{error}");
        })
    });
    assert_eq!(met.unwrap_err().downcast_ref(), Some(&"of rank 2"));
}

#[test]
fn an_abort_ends_all() {
    let all = run(3, &[], |ranks| {
        if ranks.rank() == 1 {
            return ranks.or_abort(Err::<(), _>("no space".to_string())).unwrap_err();
        }
        let error = steps(ranks).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Ended);
        error.to_string()
    });
    assert!(all[0].contains("rank 1 has ended all ranks with exit code 70"), "{}", all[0]);
    assert!(all[2].contains("rank 1 has ended all ranks with exit code 70"), "{}", all[2]);
    assert_eq!(all[1], "no space");
}

/// A rank that computes for a long time between polls is not silent itself, and others wait for it.
#[test]
fn slow_ranks_are_waited_for() {
    run(2, &[], |ranks| {
        if ranks.rank() == 1 {
            std::thread::sleep(Duration::from_millis(400));
        }
        ranks.barrier().unwrap();
    });
    assert!(Threads::run(1, &[], Duration::ZERO, |_| ()).is_err());
}
