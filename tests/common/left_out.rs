//! Cases that another folder of recordings (`PRECAST_GOLDENS`) may lack.

use std::io::Write;

/// Says that a case is not here. Among our own recordings it must be.
#[track_caller]
pub fn left_out(case: &str) {
    assert!(std::env::var_os("PRECAST_GOLDENS").is_some(), "not in tests/goldens: {case}");
    // Straight to the stream, which the harness does not catch.
    let _ = writeln!(std::io::stdout(), "left out, for it is not here: {case}");
}
