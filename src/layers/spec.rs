//! Common code of the specs of cells. A spec is plain data that is read from and written to files, validates itself,
//! and builds the cell.

use std::cell::Cell as Place;

use serde::{Deserialize, Serialize, Serializer, ser::Error as _};

use crate::cell::{Cell, Part, join};

/// The written form of a cell without options: nothing but its kind.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct NoOptions {}

/// Returns the default of switches that are on.
pub(super) fn yes() -> bool {
    true
}

thread_local! {
    /// `true` when options with their default value are written.
    static WRITTEN_ALL: Place<bool> = const { Place::new(false) };
}

/// Calls `write` such that cells of this library write every option. Otherwise they omit options with their default
/// value.
pub(crate) fn with_all_written<R>(write: impl FnOnce() -> R) -> R {
    /// A guard that restores the outer setting, also on panic.
    struct Restore(bool);
    impl Drop for Restore {
        fn drop(&mut self) {
            WRITTEN_ALL.set(self.0);
        }
    }
    let _restore = Restore(WRITTEN_ALL.replace(true));
    write()
}

/// Returns whether an option is omitted, given whether it has its default value.
pub(super) fn left_out(has_default: bool) -> bool {
    has_default && !WRITTEN_ALL.get()
}

pub(super) fn is_yes(switch: &bool) -> bool {
    left_out(*switch)
}

pub(super) fn is_no(switch: &bool) -> bool {
    left_out(!*switch)
}

pub(super) fn is_none<T>(option: &Option<T>) -> bool {
    left_out(option.is_none())
}

pub(super) fn one() -> usize {
    1
}

pub(super) fn is_one(count: &usize) -> bool {
    left_out(*count == 1)
}

/// Defines chainable setters of a spec's options. A `usize` is taken by type, so that a literal needs no suffix.
macro_rules! setters {
    () => {};
    ($(#[$doc:meta])* $field:ident: usize; $($rest:tt)*) => {
        $(#[$doc])*
        #[must_use]
        pub fn $field(mut self, $field: usize) -> Self {
            self.$field = $field;
            self
        }
        $crate::layers::spec::setters!($($rest)*);
    };
    ($(#[$doc:meta])* $field:ident: $type:ty; $($rest:tt)*) => {
        $(#[$doc])*
        #[must_use]
        pub fn $field(mut self, $field: impl Into<$type>) -> Self {
            self.$field = $field.into();
            self
        }
        $crate::layers::spec::setters!($($rest)*);
    };
}

/// Writes a cell as its spec, unless an inner cell was replaced by one of a kind that the spec does not build.
pub(super) fn write_as_spec<S: Serializer>(
    cell: &dyn Cell,
    spec: &impl Serialize,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    const BUILT: [&str; 7] = [
        "Dense",
        "Dropout",
        "LayerNorm",
        "MultiheadAttention",
        "RotaryEmbedding",
        "TransformerEncoderLayer",
        "TransformerDecoderLayer",
    ];
    fn replaced(cell: &dyn Cell) -> Option<(String, &'static str)> {
        let mut found = None;
        cell.visit(&mut |name, node| {
            if let (Part::Cell(slot), None) = (node, &found) {
                let kind = slot.cell.kind();
                found = match BUILT.contains(&kind) {
                    false => Some((name.to_string(), kind)),
                    true => replaced(&**slot.cell).map(|(path, kind)| (join(name, &path), kind)),
                };
            }
        });
        found
    }
    if let Some((path, kind)) = replaced(cell) {
        let own = cell.kind();
        return Err(S::Error::custom(format!(
            "`{path}` of the {own} is a {kind}, which the options of a {own} do not say; merge it before, or save weights alone"
        )));
    }
    spec.serialize(serializer)
}

/// Makes a cell read and write as its spec, which it holds in its field `spec`. With `nothing random`, the spec builds
/// the cell without a generator. With `open slots`, cells of any kind may replace those that were built.
macro_rules! written_as_spec {
    (open slots: $cell:ty, $spec:ty) => {
        impl TryFrom<$spec> for $cell {
            type Error = $crate::Error;
            fn try_from(spec: $spec) -> $crate::Result<Self> {
                $crate::layers::init::with_reading_rng(|rng| spec.build(rng))
            }
        }

        impl serde::Serialize for $cell {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
                $crate::layers::spec::write_as_spec(self, &self.spec, serializer)
            }
        }
    };
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
