//! Cells without parameters that run a single op: activations, and `Flatten`.

use serde::{Deserialize, Serialize};

use super::spec::NoOptions;
use crate::{Cell, Tensor, cell::Forward, error::Result, options::options};

/// Defines cells without options that run one op.
macro_rules! plain {
    ($($(#[$doc:meta])* $name:ident => $method:ident;)*) => { $(
        $(#[$doc])*
        #[derive(Cell, Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
        #[cell(saved)]
        #[serde(from = "NoOptions", into = "NoOptions")]
        pub struct $name;

        impl $name {
            /// Returns the cell, whose name alone does so.
            pub const fn new() -> Self {
                $name
            }
        }

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

        impl Forward for $name {
            fn forward(&self, x: &Tensor) -> Result<Tensor> {
                x.$method()
            }
        }
    )* };
}

/// Defines cells with one option, which has a default.
macro_rules! with_option {
    ($($(#[$doc:meta])* $name:ident { $(#[$of:meta])* $field:ident: $type:ty } => |$x:ident| $body:expr;)*) => { $(
        $(#[$doc])*
        #[options(of_cell)]
        #[derive(Cell, Clone, Copy, Debug, PartialEq)]
        #[cell(saved)]
        pub struct $name {
            $(#[$of])*
            pub $field: $type,
        }

        impl Forward for $name {
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
    /// `min(max(x, 0), 6)`.
    ReLU6 => relu6;
    /// `x * sigmoid(x)`.
    SiLU => silu;
    /// The logistic function `1 / (1 + exp(-x))`.
    Sigmoid => sigmoid;
    /// `tanh(x)`.
    Tanh => tanh;
    /// `log(1 + exp(x))`.
    Softplus => softplus;
    /// `relu6(x + 3) / 6`.
    HSigmoid => hard_sigmoid;
    /// `x * relu6(x + 3) / 6`.
    HSwish => hard_swish;
    /// `min(max(x, -1), 1)`.
    HardTanh => hard_tanh;
}

with_option! {
    /// `x` where it is positive, else `slope * x`. In files: `{kind: LeakyReLU, slope: 0.01}`.
    LeakyReLU {
        /// The slope below zero.
        #[option(default = 0.01, note = "as in torch (MindSpore: 0.2)")]
        slope: f64
    } => |x| x.leaky_relu(slope);
    /// `x` where it is positive, else `alpha * (exp(x) - 1)`. In files: `{kind: ELU, alpha: 1.0}`.
    ELU {
        /// The negative of the limit far below zero.
        #[option(default = 1.0)]
        alpha: f64
    } => |x| x.elu(alpha);
    /// `x * Phi(x)` with the cumulative distribution function Phi of the normal distribution (Hendrycks & Gimpel 2016).
    /// In files: `{kind: GELU}`, `{kind: GELU, approximate: true}`.
    GELU {
        /// `true` when Phi is approximated with tanh.
        #[option(default = false, note = "as in torch (MindSpore: true)")]
        approximate: bool
    } => |x| if approximate { x.gelu_tanh() } else { x.gelu() };
    /// `exp(x)` divided by its sum along an axis. In files: `{kind: Softmax, axis: -1}`.
    Softmax {
        /// The axis; negative counts from the end.
        #[option(default = -1)]
        axis: isize
    } => |x| x.softmax(axis);
    /// The logarithm of [`Softmax`]. In files: `{kind: LogSoftmax, axis: -1}`.
    LogSoftmax {
        /// The axis; negative counts from the end.
        #[option(default = -1)]
        axis: isize
    } => |x| x.log_softmax(axis);
    /// Flattening of all axes from `start_axis` on. In files: `{kind: Flatten, start_axis: 1}`.
    Flatten {
        /// The first axis to flatten.
        #[option(default = 1, note = "which preserves the batch")]
        start_axis: usize
    } => |x| x.flatten(start_axis);
}
