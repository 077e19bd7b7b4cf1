//! Events for subscribers of the crate `tracing`.

/// Emits an event at a level (`INFO`) with the feature `tracing`; otherwise nothing is evaluated.
macro_rules! event {
    ($level:ident, $($fields:tt)*) => {
        #[cfg(feature = "tracing")]
        tracing::event!(target: "precast", tracing::Level::$level, $($fields)*)
    };
}

pub(crate) use event;

/// Warns on standard error if the feature `tracing` is off and no event is emitted instead. Callers make sure to warn
/// only once.
pub(crate) fn warn(message: &str) {
    if cfg!(not(feature = "tracing")) {
        eprintln!("precast: {message}");
    }
}
