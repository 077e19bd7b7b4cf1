//! What the cells with options share: a spec is plain data that reads and writes as a file, checks itself, and builds
//! the cell.

use serde::{Deserialize, Serialize};

/// The written form of a cell without options: nothing but its kind.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct NoOptions {}

/// Default of switches that are on.
pub(super) fn yes() -> bool {
    true
}

pub(super) fn is_yes(switch: &bool) -> bool {
    *switch
}

/// Chainable setters of a spec's options.
macro_rules! setters {
    ($($(#[$doc:meta])* $field:ident: $type:ty;)*) => { $(
        $(#[$doc])*
        #[must_use]
        pub fn $field(mut self, $field: impl Into<$type>) -> Self {
            self.$field = $field.into();
            self
        }
    )* };
}

/// Lets a cell read and write as its spec, which it holds in its field `spec`. A cell of which `nothing random` is drawn has a
/// spec that builds it without a generator.
macro_rules! written_as_spec {
    (nothing random: $cell:ty, $spec:ty $(, const $n:ident)?) => {
        $crate::layers::spec::written_as_spec!(@ |spec| spec.build(), $cell, $spec $(, const $n)?);
    };
    ($cell:ty, $spec:ty $(, const $n:ident)?) => {
        $crate::layers::spec::written_as_spec!(
            @ |spec| $crate::layers::init::with_reading_rng(|rng| spec.build(rng)), $cell, $spec $(, const $n)?
        );
    };
    (@ |$given:ident| $build:expr, $cell:ty, $spec:ty $(, const $n:ident)?) => {
        impl $(<const $n: usize>)? TryFrom<$spec> for $cell {
            type Error = $crate::Error;
            fn try_from($given: $spec) -> $crate::Result<Self> {
                $build
            }
        }

        impl $(<const $n: usize>)? From<$cell> for $spec {
            fn from(cell: $cell) -> Self {
                cell.spec
            }
        }
    };
}

pub(super) use {setters, written_as_spec};
