//! Events for subscribers of the crate `tracing`.

/// Sends an event of a level (`INFO`). Fields are evaluated only for a subscriber.
#[doc(hidden)]
#[macro_export]
macro_rules! __event {
    ($level:ident, $($fields:tt)*) => {
        tracing::event!(target: "precast", tracing::Level::$level, $($fields)*)
    };
}

#[doc(hidden)]
pub use __event as event;
