//! The end of all ranks by one of them, also by a panic.

use std::{
    io::Write as _,
    panic,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    thread,
    time::Duration,
};

/// The exit code of a job that a rank ends: `EX_SOFTWARE` of sysexits.
pub(crate) const EXIT_CODE: u8 = 70;

/// Writes a line to stderr, and gives the launcher time to read it: that of MPICH drops what it has not read when a rank ends
/// the job.
pub(crate) fn say_last(line: &str) {
    let _ = std::io::stderr().write_all(line.as_bytes());
    thread::sleep(Duration::from_millis(100));
}

/// Adds to the panic hook that a panic ends all ranks.
pub(crate) fn abort_on_panic(rank: usize, step: Arc<AtomicU64>, abort: fn(u8)) {
    let before = panic::take_hook();
    panic::set_hook(Box::new(move |info| {
        before(info);
        let step = step.load(Ordering::Relaxed);
        say_last(&format!("rank {rank}: a panic ends all ranks, step {step}\n"));
        abort(EXIT_CODE);
    }));
}
