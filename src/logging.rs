//! Events for subscribers of the crate `tracing`.

pub(crate) use precast_policy::__event as event;

/// Tells people on standard error of what will probably go wrong, where the feature `tracing` is off and no event tells it.
/// Callers see to it that it is told once.
pub(crate) fn warn(message: &str) {
    if cfg!(not(feature = "tracing")) {
        eprintln!("precast: {message}");
    }
}
