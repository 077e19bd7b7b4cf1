//! The choice of what fills vectors.

use super::{geometry::Geometry, padded::PaddedLayout};
use crate::kernels::{elementwise::finite::all_finite, float::Float, simd::Width};

/// What the lanes of a vector are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Across {
    /// Channels of the result.
    Channels,
    /// Neighbouring outputs.
    Outputs,
}

impl Across {
    /// The faster choice between so many channels and outputs, which reach `other` percent of the machine's multiply-adds. The
    /// percentages were measured.
    fn faster(vectors: Width, channels: usize, other: usize) -> Across {
        let lanes = lanes(vectors);
        // With one vector of columns, the multiply-adds wait for loads.
        let (reached, whole) = if channels <= lanes { (65, lanes) } else { (90, 2 * lanes) };
        match reached * channels / channels.next_multiple_of(whole).max(1) > other {
            true => Across::Channels,
            false => Across::Outputs,
        }
    }

    /// For a convolution whose outputs come in runs of `length`.
    pub fn of_windows(vectors: Width, channels: usize, length: usize) -> (Width, Across) {
        let length_in_vectors = length.next_multiple_of(lanes(vectors)).max(1);
        (vectors, Across::faster(vectors, channels, 85 * length / length_in_vectors))
    }

    /// For the gradient of the weight. By outputs, it multiplies rows with their padding, which needs finite images: 0 times
    /// infinity is not 0.
    pub fn of_weight<T: Float>(vectors: Width, g: &Geometry, x: &[T]) -> (Width, Across) {
        let filled = 60 * g.out_volume() / PaddedLayout::phase_split(g).plane().max(1);
        match Across::faster(vectors, g.out_channels, filled) {
            Across::Outputs if all_finite(x) => (vectors, Across::Outputs),
            _ => (vectors, Across::Channels),
        }
    }
}

fn lanes(vectors: Width) -> usize {
    if vectors == Width::Sixteen { 16 } else { 8 }
}
