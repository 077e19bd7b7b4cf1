//! The largest magnitudes of the results of the last steps, by their position in a step.

use precast::{
    DType, LeafId,
    observe::{CastRole, EdgeOp, Phase, Subject},
};

/// Number of steps that are kept.
const KEPT: usize = 64;

/// Results whose numbers near 0 are counted in one step of so many.
const SAMPLED: usize = 16;

/// Place of a result, which is the same in every step.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Site {
    pub phase: Phase,
    pub op: EdgeOp,
    pub which: Which,
    pub slot: Option<usize>,
    pub leaf: Option<LeafId>,
    pub dtype: DType,
}

/// Tensor that a result holds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Which {
    Output,
    Cast(CastRole),
    Gradient(usize),
    Param,
}

impl Which {
    /// Returns the same for an [`Edge`](super::Edge).
    pub fn subject(self) -> Subject {
        match self {
            Which::Output => Subject::Output,
            Which::Gradient(input) => Subject::Gradient(input),
            Which::Cast(role) => Subject::of_cast(role),
            Which::Param => Subject::Other,
        }
    }
}

/// A ring of steps: 4 bytes for each result and step.
#[derive(Clone, Debug, Default)]
pub(super) struct Steps {
    sites: Vec<Site>,
    /// Magnitudes by step, and in it by site.
    peaks: Vec<f32>,
    /// Shares of zeros and subnormal numbers by site.
    small: Vec<(f32, f32)>,
    /// Number of steps begun.
    begun: usize,
    /// Position in the current step.
    at: usize,
}

impl Steps {
    /// Begins a step.
    pub fn begin(&mut self) {
        let met = self.at.min(self.sites.len());
        if self.begun > 0 && met < self.sites.len() {
            // The last step ended early or had fewer results.
            self.restart(met);
        }
        (self.begun, self.at) = (self.begun + 1, 0);
        let row = self.row();
        if self.peaks.len() < (row + 1) * self.sites.len() {
            self.peaks.resize((row + 1) * self.sites.len(), 0.0);
        }
    }

    /// Returns whether this step counts numbers near 0.
    pub fn samples(&self) -> bool {
        self.begun % SAMPLED == 1
    }

    fn row(&self) -> usize {
        (self.begun - 1) % KEPT
    }

    /// Forgets all steps but the last, from which the first `kept` results are kept.
    fn restart(&mut self, kept: usize) {
        let start = self.row() * self.sites.len();
        self.peaks = self.peaks[start..start + kept].to_vec();
        self.sites.truncate(kept);
        self.small.truncate(kept);
        self.begun = 1;
    }

    /// Adds the next result of the step.
    pub fn push(&mut self, site: Site, peak: f64, small: Option<(f32, f32)>) {
        if self.sites.get(self.at) != Some(&site) {
            // The first step, or a step that differs from those before.
            if self.at < self.sites.len() || self.begun > 1 {
                self.restart(self.at);
            }
            self.sites.push(site);
            self.peaks.push(0.0);
            self.small.push((0.0, 0.0));
        }
        let at = self.row() * self.sites.len() + self.at;
        self.peaks[at] = peak as f32;
        if let Some(small) = small {
            self.small[self.at] = small;
        }
        self.at += 1;
    }

    /// Adds the next result of the step with the magnitude of the last step; `false` if that is not known.
    pub fn push_again(&mut self, site: Site) -> bool {
        let known = self.begun > 1 && self.sites.get(self.at) == Some(&site);
        if known {
            let before = (self.begun - 2) % KEPT * self.sites.len() + self.at;
            self.push(site, self.peaks[before].into(), None);
        }
        known
    }

    pub fn sites(&self) -> &[Site] {
        &self.sites
    }

    /// Returns the magnitudes of a site, the last step at the end.
    pub fn peaks(&self, site: usize) -> impl Iterator<Item = f32> {
        let (len, rows) = (self.sites.len(), self.begun.min(KEPT));
        let first = if self.begun > KEPT { self.begun % KEPT } else { 0 };
        (0..rows).map(move |row| self.peaks[(first + row) % KEPT * len + site])
    }

    /// Returns the shares of zeros and subnormal numbers.
    pub fn small(&self, site: usize) -> (f32, f32) {
        self.small[site]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use precast::Op;

    fn site(slot: usize) -> Site {
        let (phase, op, which) = (Phase::Forward, EdgeOp::Op(Op::Exp), Which::Output);
        Site { phase, op, which, slot: Some(slot), leaf: None, dtype: DType::F16 }
    }

    fn step(steps: &mut Steps, peaks: &[(usize, f64)]) {
        steps.begin();
        peaks.iter().for_each(|&(slot, peak)| steps.push(site(slot), peak, None));
    }

    fn all(steps: &Steps, at: usize) -> Vec<f32> {
        steps.peaks(at).collect()
    }

    #[test]
    fn the_last_steps_are_kept_in_order() {
        let mut steps = Steps::default();
        for i in 0..3 {
            step(&mut steps, &[(0, f64::from(i)), (1, 10.0)]);
        }
        assert_eq!((all(&steps, 0), all(&steps, 1)), (vec![0.0, 1.0, 2.0], vec![10.0; 3]));
        for i in 3..100 {
            step(&mut steps, &[(0, f64::from(i)), (1, 10.0)]);
        }
        let last: Vec<f32> = (36..100).map(|i| i as f32).collect();
        assert_eq!(all(&steps, 0), last);
        assert_eq!(steps.peaks.len(), 2 * KEPT);
    }

    #[test]
    fn a_step_of_other_results_begins_anew() {
        let mut steps = Steps::default();
        step(&mut steps, &[(0, 1.0), (1, 2.0), (2, 3.0)]);
        step(&mut steps, &[(0, 4.0), (5, 5.0)]);
        assert_eq!(steps.sites(), [site(0), site(5)]);
        assert_eq!((all(&steps, 0), all(&steps, 1)), (vec![4.0], vec![5.0]));
        // The magnitude of a result that is not looked at.
        steps.begin();
        assert!(steps.push_again(site(0)) && !steps.push_again(site(6)));
        assert_eq!(all(&steps, 0), [4.0, 4.0]);
        steps.push(site(5), 5.0, None);
        assert_eq!((all(&steps, 0), all(&steps, 1)), (vec![4.0, 4.0], vec![5.0, 5.0]));
        // A step that ended early: its rest is not that of the step before.
        step(&mut steps, &[(0, 6.0)]);
        step(&mut steps, &[(0, 7.0)]);
        assert_eq!((steps.sites().len(), all(&steps, 0)), (1, vec![6.0, 7.0]));
    }

    #[test]
    fn two_hundred_results_take_at_most_128_kib() {
        let mut steps = Steps::default();
        let all: Vec<(usize, f64)> = (0..200).map(|i| (i, 1.0)).collect();
        (0..200).for_each(|_| step(&mut steps, &all));
        let bytes = size_of_val(&*steps.peaks) + size_of_val(&*steps.sites) + size_of_val(&*steps.small);
        assert!(bytes <= 128 << 10, "{bytes}");
    }
}
