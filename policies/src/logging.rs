//! Events for subscribers of the crate `tracing`.

/// Sends an event of a level (`INFO`) if the calling crate enables the feature `tracing`; otherwise evaluates nothing.
#[doc(hidden)]
#[macro_export]
macro_rules! __event {
    ($level:ident, $($fields:tt)*) => {
        #[cfg(feature = "tracing")]
        tracing::event!(target: "precast", tracing::Level::$level, $($fields)*)
    };
}

#[doc(hidden)]
pub use __event as event;
