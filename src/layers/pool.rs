//! Pooling over 1, 2 and 3 spatial axes.

use super::axes::{PerAxis, padding};
use crate::{Cell, Padding, PoolOptions, Tensor, cell::Forward, error::Result, options::options};

/// The maximum of each window over `N` spatial axes: [`MaxPool1d`], [`MaxPool2d`] and [`MaxPool3d`].
///
/// `[n, c, spatial...]`. In files: `{kind: MaxPool2d, kernel_size: 2}`, and `stride`, `padding`, `ceil`.
#[options(of_cell)]
#[derive(Cell, Clone, Debug, PartialEq)]
#[cell(saved, kinds(MaxPool1d, MaxPool2d, MaxPool3d))]
pub struct MaxPool<const N: usize> {
    /// Size of the window.
    #[option(at_least = 1)]
    pub kernel_size: PerAxis<N>,
    /// Stride of the window.
    #[option(default, shown = "the kernel size", note = "as in torch (MindSpore's default is 1)", at_least = 1)]
    pub stride: Option<PerAxis<N>>,
    /// Padding of the input, which is never the maximum.
    #[option(default = Padding::Valid, shown = "none")]
    #[serde(with = "padding")]
    pub padding: Padding,
    /// `true` when a last window that begins inside the input and ends outside is included.
    #[option(default = false)]
    pub ceil: bool,
}

/// The average of each window over `N` spatial axes: [`AvgPool1d`], [`AvgPool2d`] and [`AvgPool3d`].
///
/// `[n, c, spatial...]`. In files: `{kind: AvgPool2d, kernel_size: 2}`, and `stride`, `padding`, `ceil`,
/// `count_include_pad`.
#[options(of_cell)]
#[derive(Cell, Clone, Debug, PartialEq)]
#[cell(saved, kinds(AvgPool1d, AvgPool2d, AvgPool3d))]
pub struct AvgPool<const N: usize> {
    /// Size of the window.
    #[option(at_least = 1)]
    pub kernel_size: PerAxis<N>,
    /// Stride of the window.
    #[option(default, shown = "the kernel size", note = "as in torch (MindSpore's default is 1)", at_least = 1)]
    pub stride: Option<PerAxis<N>>,
    /// Zero padding of the input.
    #[option(default = Padding::Valid, shown = "none")]
    #[serde(with = "padding")]
    pub padding: Padding,
    /// `true` when a last window that begins inside the input and ends outside is included.
    #[option(default = false)]
    pub ceil: bool,
    /// `true` when padded elements count in the divisor of the average.
    #[option(default = true)]
    pub count_include_pad: bool,
}

/// The average over `N` spatial axes, with windows chosen to give an output of fixed size: [`AdaptiveAvgPool1d`],
/// [`AdaptiveAvgPool2d`] and [`AdaptiveAvgPool3d`].
///
/// `[n, c, spatial...] -> [n, c, output_size...]`. In files: `{kind: AdaptiveAvgPool2d, output_size: 1}`.
#[options(of_cell)]
#[derive(Cell, Clone, Debug, PartialEq)]
#[cell(saved, kinds(AdaptiveAvgPool1d, AdaptiveAvgPool2d, AdaptiveAvgPool3d))]
pub struct AdaptiveAvgPool<const N: usize> {
    /// Size of the output's spatial axes.
    pub output_size: PerAxis<N>,
}

impl<const N: usize> MaxPool<N> {
    fn options(&self) -> PoolOptions {
        let stride = self.stride.unwrap_or(self.kernel_size).to_vec();
        let options = PoolOptions::default().kernel(self.kernel_size.to_vec()).stride(stride);
        options.padding(self.padding.clone()).ceil(self.ceil)
    }
}

impl<const N: usize> AvgPool<N> {
    fn options(&self) -> PoolOptions {
        let stride = self.stride.unwrap_or(self.kernel_size).to_vec();
        let options = PoolOptions::default().kernel(self.kernel_size.to_vec()).stride(stride);
        options.padding(self.padding.clone()).ceil(self.ceil).count_include_pad(self.count_include_pad)
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
