//! Choice of the axis over which a convolution is vectorized.

use super::{geometry::Geometry, padded::PaddedLayout};
use crate::{elementwise::finite::all_finite, float::Float, simd::Width};

/// Contents of a vector's lanes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum VectorAxis {
    /// Channels of the result.
    Channels,
    /// Adjacent outputs.
    Outputs,
}

impl VectorAxis {
    /// Returns the faster choice for numbers of channels and outputs; outputs reach `other` percent of the machine's
    /// multiply-adds. The percentages were measured.
    fn faster(vectors: Width, channels: usize, other: usize) -> VectorAxis {
        let lanes = vectors.lanes();
        // With one vector of columns, the multiply-adds wait for loads.
        let (reached, whole) = if channels <= lanes { (65, lanes) } else { (90, 2 * lanes) };
        match reached * channels / channels.next_multiple_of(whole).max(1) > other {
            true => VectorAxis::Channels,
            false => VectorAxis::Outputs,
        }
    }

    /// Chooses for a convolution whose outputs come in runs of `length`.
    pub fn of_windows(vectors: Width, channels: usize, length: usize) -> (Width, VectorAxis) {
        let length_in_vectors = length.next_multiple_of(vectors.lanes()).max(1);
        (vectors, VectorAxis::faster(vectors, channels, 85 * length / length_in_vectors))
    }

    /// Chooses for the gradient of the weight. By outputs, it multiplies rows including their padding, which needs
    /// finite images: 0 times infinity is not 0.
    pub fn of_weight<T: Float>(vectors: Width, g: &Geometry, x: &[T]) -> (Width, VectorAxis) {
        match VectorAxis::of_finite_weight(vectors, g) {
            VectorAxis::Outputs if all_finite(x) => (vectors, VectorAxis::Outputs),
            _ => (vectors, VectorAxis::Channels),
        }
    }

    /// Chooses as [`of_weight`](VectorAxis::of_weight) does for finite images.
    pub fn of_finite_weight(vectors: Width, g: &Geometry) -> VectorAxis {
        let filled = 60 * g.out_volume() / PaddedLayout::phase_split(g).plane().max(1);
        VectorAxis::faster(vectors, g.out_channels, filled)
    }
}
