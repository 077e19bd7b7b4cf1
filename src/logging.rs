//! Events for subscribers of the crate `tracing`.

/// Sends an event of a level (`INFO`), where the feature `tracing` is on; otherwise nothing is evaluated.
macro_rules! event {
    ($level:ident, $($fields:tt)*) => {
        #[cfg(feature = "tracing")]
        tracing::event!(target: "precast", tracing::Level::$level, $($fields)*)
    };
}

pub(crate) use event;

/// Tells people on standard error of what will probably go wrong, where the feature `tracing` is off and no event tells it.
/// Callers see to it that it is told once.
pub(crate) fn warn(message: &str) {
    if cfg!(not(feature = "tracing")) {
        eprintln!("precast: {message}");
    }
}
