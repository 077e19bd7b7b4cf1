//! Events for subscribers of the crate `tracing`.

/// Sends an event of a level (`INFO`), where the feature `tracing` is on; otherwise nothing is evaluated.
macro_rules! event {
    ($level:ident, $($fields:tt)*) => {
        #[cfg(feature = "tracing")]
        tracing::event!(target: "precast", tracing::Level::$level, $($fields)*)
    };
}

pub(crate) use event;
