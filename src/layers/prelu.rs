//! The rectifier with a learned slope.

use serde::{Deserialize, Serialize};

use super::{init::constant, spec::written_as_spec};
use crate::{Cell, Param, Tensor, cell::Forward, error::Result, options::options};

/// Options of a [`PReLU`].
#[options(of_cell)]
#[derive(Clone, Debug, PartialEq)]
pub struct PReLUSpec {
    /// 1, or the length of axis 1.
    pub channels: usize,
    /// Initial value of the slopes.
    #[option(default = 0.25)]
    pub slope: f64,
}

impl PReLUSpec {
    /// Builds the cell.
    ///
    /// # Errors
    /// [`ErrorKind::Shape`](crate::ErrorKind::Shape) when the slopes do not fit into memory.
    pub fn build(self) -> Result<PReLU> {
        Ok(PReLU { weight: Param::new(constant(&[self.channels], self.slope)?), spec: self })
    }
}

/// `x` where it is positive, else `weight * x` (He et al. 2015), with one learned slope in total or one per channel.
///
/// In files: `{kind: PReLU, channels: 1}`, and `slope`.
#[derive(Cell, Clone, Debug, Serialize, Deserialize)]
#[cell(saved)]
#[serde(try_from = "PReLUSpec", into = "PReLUSpec")]
pub struct PReLU {
    /// The slopes, `[channels]`.
    pub weight: Param,
    spec: PReLUSpec,
}

impl PReLU {
    /// Creates a cell with slopes initialised to 0.25.
    ///
    /// # Panics
    /// When the slopes do not fit into memory, as with `Vec`.
    pub fn new(channels: usize) -> Self {
        PReLUSpec::new(channels).build().expect("slopes that fit into memory")
    }
}

written_as_spec!(nothing random: PReLU, PReLUSpec);

impl Forward for PReLU {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        x.prelu(&self.weight.tensor())
    }
}
