//! Pooling over 1, 2 and 3 spatial axes.

use serde::{Deserialize, Serialize};

use super::{
    axes::{PerAxis, padding},
    spec::{is_no, is_none, is_yes, setters, yes},
};
use crate::{Cell, Padding, PoolOptions, Tensor, cell::Forward, error::Result};

/// The maximum of each window over `N` spatial axes: [`MaxPool1d`], [`MaxPool2d`] and [`MaxPool3d`].
///
/// `[n, c, spatial...]`. In files: `{kind: MaxPool2d, kernel_size: 2}`, and `stride`, `padding`, `ceil`.
#[derive(Cell, Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cell(saved, kinds(MaxPool1d, MaxPool2d, MaxPool3d))]
#[serde(deny_unknown_fields)]
pub struct MaxPool<const N: usize> {
    /// Size of the window.
    pub kernel_size: PerAxis<N>,
    /// Stride of the window. Default: the kernel size, as in torch (MindSpore's default is 1).
    #[serde(default, skip_serializing_if = "is_none")]
    pub stride: Option<PerAxis<N>>,
    /// Padding of the input, which is never the maximum. Default: none.
    #[serde(default, with = "padding", skip_serializing_if = "padding::is_valid")]
    pub padding: Padding,
    /// `true` when a last window that begins inside the input and ends outside is included. Default: false.
    #[serde(default, skip_serializing_if = "is_no")]
    pub ceil: bool,
}

/// The average of each window over `N` spatial axes: [`AvgPool1d`], [`AvgPool2d`] and [`AvgPool3d`].
///
/// `[n, c, spatial...]`. In files: `{kind: AvgPool2d, kernel_size: 2}`, and `stride`, `padding`, `ceil`,
/// `count_include_pad`.
#[derive(Cell, Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cell(saved, kinds(AvgPool1d, AvgPool2d, AvgPool3d))]
#[serde(deny_unknown_fields)]
pub struct AvgPool<const N: usize> {
    /// Size of the window.
    pub kernel_size: PerAxis<N>,
    /// Stride of the window. Default: the kernel size, as in torch (MindSpore's default is 1).
    #[serde(default, skip_serializing_if = "is_none")]
    pub stride: Option<PerAxis<N>>,
    /// Zero padding of the input. Default: none.
    #[serde(default, with = "padding", skip_serializing_if = "padding::is_valid")]
    pub padding: Padding,
    /// `true` when a last window that begins inside the input and ends outside is included. Default: false.
    #[serde(default, skip_serializing_if = "is_no")]
    pub ceil: bool,
    /// `true` when padded elements count in the divisor of the average. Default: true.
    #[serde(default = "yes", skip_serializing_if = "is_yes")]
    pub count_include_pad: bool,
}

/// The average over `N` spatial axes, with windows chosen to give an output of fixed size: [`AdaptiveAvgPool1d`],
/// [`AdaptiveAvgPool2d`] and [`AdaptiveAvgPool3d`].
///
/// `[n, c, spatial...] -> [n, c, output_size...]`. In files: `{kind: AdaptiveAvgPool2d, output_size: 1}`.
#[derive(Cell, Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cell(saved, kinds(AdaptiveAvgPool1d, AdaptiveAvgPool2d, AdaptiveAvgPool3d))]
#[serde(deny_unknown_fields)]
pub struct AdaptiveAvgPool<const N: usize> {
    /// Size of the output's spatial axes.
    pub output_size: PerAxis<N>,
}

impl<const N: usize> MaxPool<N> {
    /// Creates a pool with adjacent windows and no padding.
    pub fn new(kernel_size: impl Into<PerAxis<N>>) -> Self {
        MaxPool { kernel_size: kernel_size.into(), stride: None, padding: Padding::Valid, ceil: false }
    }

    /// Sets the stride of the window.
    #[must_use]
    pub fn stride(mut self, stride: impl Into<PerAxis<N>>) -> Self {
        self.stride = Some(stride.into());
        self
    }

    setters! {
        /// Sets the padding of the input.
        padding: Padding;
        /// Sets whether a last window that begins inside the input and ends outside is included.
        ceil: bool;
    }

    fn options(&self) -> PoolOptions {
        PoolOptions {
            kernel: self.kernel_size.to_vec(),
            stride: self.stride.unwrap_or(self.kernel_size).to_vec(),
            padding: self.padding.clone(),
            ceil: self.ceil,
            ..PoolOptions::default()
        }
    }
}

impl<const N: usize> AvgPool<N> {
    /// Creates a pool with adjacent windows and no padding.
    pub fn new(kernel_size: impl Into<PerAxis<N>>) -> Self {
        AvgPool {
            kernel_size: kernel_size.into(),
            stride: None,
            padding: Padding::Valid,
            ceil: false,
            count_include_pad: true,
        }
    }

    /// Sets the stride of the window.
    #[must_use]
    pub fn stride(mut self, stride: impl Into<PerAxis<N>>) -> Self {
        self.stride = Some(stride.into());
        self
    }

    setters! {
        /// Sets the zero padding of the input.
        padding: Padding;
        /// Sets whether a last window that begins inside the input and ends outside is included.
        ceil: bool;
        /// Sets whether padded elements count in the divisor of the average.
        count_include_pad: bool;
    }

    fn options(&self) -> PoolOptions {
        PoolOptions {
            kernel: self.kernel_size.to_vec(),
            stride: self.stride.unwrap_or(self.kernel_size).to_vec(),
            padding: self.padding.clone(),
            ceil: self.ceil,
            count_include_pad: self.count_include_pad,
        }
    }
}

impl<const N: usize> AdaptiveAvgPool<N> {
    /// Creates a pool with an output of this size.
    pub fn new(output_size: impl Into<PerAxis<N>>) -> Self {
        AdaptiveAvgPool { output_size: output_size.into() }
    }
}

macro_rules! kinds {
    ($($n:literal: $max:ident $max_name:literal $max_op:ident, $avg:ident $avg_name:literal $avg_op:ident, $adaptive:ident $adaptive_name:literal $adaptive_op:ident;)*) => { $(
        #[doc = concat!("The largest elements under windows with ", $n, " spatial axes.")]
        pub type $max = MaxPool<$n>;
        #[doc = concat!("Averages under windows with ", $n, " spatial axes.")]
        pub type $avg = AvgPool<$n>;
        #[doc = concat!("Averages with an output of a given size on ", $n, " spatial axes.")]
        pub type $adaptive = AdaptiveAvgPool<$n>;

        impl Forward for MaxPool<$n> {
            fn forward(&self, x: &Tensor) -> Result<Tensor> {
                x.$max_op(&self.options())
            }
        }

        impl Forward for AvgPool<$n> {
            fn forward(&self, x: &Tensor) -> Result<Tensor> {
                x.$avg_op(&self.options())
            }
        }

        impl Forward for AdaptiveAvgPool<$n> {
            fn forward(&self, x: &Tensor) -> Result<Tensor> {
                x.$adaptive_op(&self.output_size.to_vec())
            }
        }
    )* };
}
kinds! {
    1: MaxPool1d "MaxPool1d" max_pool1d_with, AvgPool1d "AvgPool1d" avg_pool1d_with, AdaptiveAvgPool1d "AdaptiveAvgPool1d" adaptive_avg_pool1d;
    2: MaxPool2d "MaxPool2d" max_pool2d_with, AvgPool2d "AvgPool2d" avg_pool2d_with, AdaptiveAvgPool2d "AdaptiveAvgPool2d" adaptive_avg_pool2d;
    3: MaxPool3d "MaxPool3d" max_pool3d_with, AvgPool3d "AvgPool3d" avg_pool3d_with, AdaptiveAvgPool3d "AdaptiveAvgPool3d" adaptive_avg_pool3d;
}
