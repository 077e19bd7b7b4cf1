//! Events for subscribers of the crate `tracing`.

use std::{
    io::{self, IsTerminal, Write},
    sync::Once,
};

use tracing::{dispatcher, subscriber::NoSubscriber};

/// Warns on standard error in a program without a subscriber, which misses the event. Callers make sure to warn only
/// once.
pub fn warn(message: &str) {
    if dispatcher::get_default(|subscriber| subscriber.is::<NoSubscriber>()) {
        // A training run continues if nobody reads standard error.
        let _ = writeln!(io::stderr(), "precast: {message}");
    }
}

/// Warns once in a process, on a terminal, that training is slow because the kernels were built without optimization.
pub fn warn_if_unoptimized() {
    static WARNED: Once = Once::new();
    if !precast_kernels::OPTIMIZED {
        WARNED.call_once(|| {
            tracing::warn!(target: "precast", "built without optimization");
            if io::stderr().is_terminal() {
                warn(
                    "built without optimization, so training is about 70 times slower; use `--release`, or \
                     `[profile.dev.package.\"*\"]` with `opt-level = 3` in Cargo.toml",
                );
            }
        });
    }
}
