//! Groups of parameters with their own hyperparameters.

use crate::policy::Pattern;

/// Hyperparameters of a group, set in the closure passed to `group` of an optimizer.
///
/// ```
/// use precast::prelude::*;
/// let rng = &mut Rng::seed(1);
/// let net = Child::new(sequential![Dense::new(4, 8, rng), LayerNorm::new(&[8]), Dense::new(8, 2, rng)]);
/// let optimizer = AdamW::new(net.params(), 1e-3)
///     .group("**.bias", |group| group.weight_decay(0.0))?
///     .group("0.**", |group| group.lr_factor(0.1))?; // `0.bias` has both
///
/// let error = Adam::new(net.params(), 1e-3).group("0.weights", |group| group.lr_factor(0.1)).unwrap_err();
/// assert_eq!(error.to_string(), "the group `0.weights` matches no parameter (did you mean `0.weight`?)");
/// # Ok::<(), precast::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Group {
    pub(super) lr_factor: Option<f64>,
    pub(super) weight_decay: Option<f64>,
    pub(super) state_8bit: Option<bool>,
}

impl Group {
    /// Returns whether the group of a pattern has the parameter at a path: the path matches, or that of a cell around it.
    pub fn has(pattern: &Pattern, path: &str) -> bool {
        let mut around = path.match_indices('.').map(|(end, _)| &path[..end]);
        pattern.matches(path) || around.any(|cell| pattern.matches(cell))
    }

    /// Multiplies the optimizer's learning rate by a factor of at least 0, checked when a step is taken.
    #[must_use]
    pub fn lr_factor(mut self, factor: f64) -> Self {
        self.lr_factor = Some(factor);
        self
    }

    /// Replaces the optimizer's weight decay, at least 0, checked when a step is taken.
    #[must_use]
    pub fn weight_decay(mut self, weight_decay: f64) -> Self {
        self.weight_decay = Some(weight_decay);
        self
    }

    /// Sets whether running averages are kept in 8 bits, as by `state_8bit` of the optimizer: embeddings and heads may keep full
    /// ones. That the optimizer has states in 8 bits is checked when a step is taken.
    #[must_use]
    pub fn state_8bit(mut self, in_8_bits: bool) -> Self {
        self.state_8bit = Some(in_8_bits);
        self
    }
}
