//! Common code of the specs of cells. A spec is plain data that is read from and written to files, validates itself,
//! and builds the cell.

use serde::{Deserialize, Serialize, Serializer, ser::Error as _};

use crate::cell::{Cell, Part, join};

/// The written form of a cell without options: nothing but its kind.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct NoOptions {}

/// Writes a cell as its spec, unless an inner cell was replaced by one of a kind that the spec does not build.
pub(super) fn write_as_spec<S: Serializer>(
    cell: &dyn Cell,
    spec: &impl Serialize,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    const BUILT: [&str; 8] = [
        "Dense",
        "Dropout",
        "Embedding",
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
    (options: $cell:ty, $spec:ty $(, const $n:ident)?) => {
        impl $(<const $n: usize>)? $crate::options::Options for $cell {
            const CALLED: &'static str = <$spec as $crate::options::Options>::CALLED;
            fn options() -> Vec<$crate::options::OptionInfo> {
                <$spec as $crate::options::Options>::options()
            }
            fn out_of_range(&self) -> Option<(&'static str, $crate::Error)> {
                $crate::options::Options::out_of_range(&self.spec)
            }
        }
    };
    (open slots: $cell:ty, $spec:ty) => {
        impl TryFrom<$spec> for $cell {
            type Error = $crate::Error;
            fn try_from(spec: $spec) -> $crate::Result<Self> {
                precast_tensor::random::with_reading_rng(|rng| spec.build(rng))
            }
        }

        impl serde::Serialize for $cell {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
                $crate::layers::spec::write_as_spec(self, &self.spec, serializer)
            }
        }

        $crate::layers::spec::written_as_spec!(options: $cell, $spec);
    };
    (nothing random: $cell:ty, $spec:ty $(, const $n:ident)?) => {
        $crate::layers::spec::written_as_spec!(@ |spec| spec.build(), $cell, $spec $(, const $n)?);
    };
    ($cell:ty, $spec:ty $(, const $n:ident)?) => {
        $crate::layers::spec::written_as_spec!(
            @ |spec| precast_tensor::random::with_reading_rng(|rng| spec.build(rng)), $cell, $spec $(, const $n)?
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

        $crate::layers::spec::written_as_spec!(options: $cell, $spec $(, const $n)?);
    };
}

pub(super) use written_as_spec;
