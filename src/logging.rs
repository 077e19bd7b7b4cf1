//! Events for subscribers of the crate `tracing`.

pub(crate) use precast_policy::__event as event;

/// Warns on standard error if the feature `tracing` is off and no event is emitted instead. Callers make sure to warn
/// only once.
pub(crate) fn warn(message: &str) {
    if cfg!(not(feature = "tracing")) {
        eprintln!("precast: {message}");
    }
}
