//! Part of a convolution that one call of a kernel computes.

use std::ops::Range;

use super::{pack_weights::Weights, padded::SLACK};
use crate::{
    memory::{Pooled, Scratch},
    threads::Shared,
};

/// Outputs with the same terms: all outputs of a convolution, or those of one phase of an input gradient.
pub(super) struct Phase<'a, T> {
    /// Offset at which each term is read, relative to the start of an output.
    pub offsets: Pooled<usize>,
    /// Runs of outputs: the start of the first output in the padded image, and its index in its channel of the result.
    pub runs: Pooled<(usize, usize)>,
    /// Number of outputs per run.
    pub length: usize,
    /// Distance between adjacent outputs of a run, in the padded image and in the result.
    pub steps: (usize, usize),
    /// Weights of all groups.
    pub weights: Weights<'a, T>,
}

impl<T> Phase<'_, T> {
    /// Returns the number of outputs of an image.
    pub fn outputs(&self) -> usize {
        self.runs.len() * self.length
    }
}

/// Runs of outputs of some images, for some channels of a group.
pub(super) struct Task<'a, T> {
    /// Channels of the group in the padded layout, image by image, and the number of elements of an image.
    pub padded: &'a [f32],
    pub padded_image: usize,
    pub phase: &'a Phase<'a, T>,
    pub runs: &'a [(usize, usize)],
    pub images: usize,
    /// Weights of the group.
    pub weights: Weights<'a, T>,
    pub channels: Range<usize>,
    pub bias: Option<&'a [T]>,
    pub out: Shared<'a, T>,
    /// First element of the group in the result of the first image, and numbers of elements of an image and of a
    /// channel.
    pub start: usize,
    pub image: usize,
    pub channel: usize,
    /// Memory for packed weights, and for widened ones.
    pub panel: &'a mut Scratch,
    pub wide: &'a mut Scratch,
}

impl<T> Task<'_, T> {
    /// Panics unless all reads are inside the padded images, and all writes inside their channels.
    pub fn check(&self) {
        let greatest = |indices: &mut dyn Iterator<Item = usize>| indices.max().unwrap_or(0);
        let (steps, last) = (self.phase.steps, self.phase.length - 1);
        let from = greatest(&mut self.runs.iter().map(|run| run.0)) + greatest(&mut self.phase.offsets.iter().copied());
        let from = (self.images - 1) * self.padded_image + from + last * steps.0;
        assert!(from + SLACK <= self.padded.len(), "windows are inside the padded images");
        let to = greatest(&mut self.runs.iter().map(|run| run.1)) + last * steps.1;
        assert!(to < self.channel, "outputs are inside their channel");
    }
}
