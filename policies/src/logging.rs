//! Events for subscribers of the crate `tracing`.

/// Sends an event of a level (`INFO`). Fields are evaluated only for a subscriber.
macro_rules! event {
    ($level:ident, $($fields:tt)*) => {
        tracing::event!(target: "precast", tracing::Level::$level, $($fields)*)
    };
}

pub(crate) use event;
