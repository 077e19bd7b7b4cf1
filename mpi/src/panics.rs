//! The end of all ranks after a panic in one of them.

use std::{
    io::Write as _,
    panic,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use crate::mpi;

/// The exit code of a job that a rank ends: `EX_SOFTWARE` of sysexits.
pub(crate) const EXIT_CODE: u8 = 70;

/// Adds to the panic hook that a panic ends all ranks of MPI. Does nothing if MPI is not loaded.
pub(crate) fn abort_on_panic(rank: usize, step: Arc<AtomicU64>) {
    if !mpi::is_loaded() {
        return;
    }
    let before = panic::take_hook();
    panic::set_hook(Box::new(move |info| {
        before(info);
        let step = step.load(Ordering::Relaxed);
        let words = format!("rank {rank}: a panic ends all ranks, step {step}\n");
        let _ = std::io::stderr().write_all(words.as_bytes());
        mpi::end_all(EXIT_CODE);
    }));
}
