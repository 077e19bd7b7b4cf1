//! Cases that another folder of recordings (`PRECAST_GOLDENS`) may lack.

/// Says that a case is not here. Among our own recordings it must be.
#[track_caller]
pub fn left_out(case: &str) {
    assert!(std::env::var_os("PRECAST_GOLDENS").is_some(), "not in tests/goldens: {case}");
    println!("left out, for it is not here: {case}");
}
