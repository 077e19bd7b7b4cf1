//! Cells without parameters that are one op each: activations, and `Flatten`.

use serde::{Deserialize, Serialize};

use super::spec::NoOptions;
use crate::{Tensor, cell::Cell, children, error::Result};

/// Cells without options: one op each.
macro_rules! plain {
    ($($(#[$doc:meta])* $name:ident => $method:ident;)*) => { $(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
        #[serde(from = "NoOptions", into = "NoOptions")]
        pub struct $name;

        impl From<NoOptions> for $name {
            fn from(_: NoOptions) -> Self {
                $name
            }
        }

        impl From<$name> for NoOptions {
            fn from(_: $name) -> Self {
                NoOptions {}
            }
        }

        #[typetag::serde]
        impl Cell for $name {
            children!(Self {});
            fn forward(&self, x: &Tensor) -> Result<Tensor> {
                x.$method()
            }
        }
    )* };
}

/// Cells with one option, which has a default.
macro_rules! with_option {
    ($($(#[$doc:meta])* $name:ident { $(#[$field_doc:meta])* $field:ident: $type:ty = $default:expr } => |$x:ident| $body:expr;)*) => { $(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
        #[serde(default, deny_unknown_fields)]
        pub struct $name {
            $(#[$field_doc])*
            pub $field: $type,
        }

        impl Default for $name {
            fn default() -> Self {
                $name { $field: $default }
            }
        }

        #[typetag::serde]
        impl Cell for $name {
            children!(Self { $field: _ });
            fn forward(&self, $x: &Tensor) -> Result<Tensor> {
                let $field = self.$field;
                $body
            }
        }
    )* };
}

plain! {
    /// `max(x, 0)`.
    ReLU => relu;
    /// The logistic function `1 / (1 + exp(-x))`.
    Sigmoid => sigmoid;
    /// `tanh(x)`.
    Tanh => tanh;
}

with_option! {
    /// Joins all axes from one on. In files: `{kind: Flatten, start_axis: 1}`.
    Flatten {
        /// The first axis that is joined: by default 1, so that the batch stays.
        start_axis: usize = 1
    } => |x| x.flatten(start_axis);
}
