//! Events for subscribers of the crate `tracing`.

/// Sends an event of a level (`INFO`), where the feature `tracing` of the calling crate is on; otherwise nothing is evaluated.
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
