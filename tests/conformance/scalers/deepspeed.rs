//! DeepSpeed's rule, from its documentation and source, compared with a scale that has its numbers.

use precast::{
    LossScale,
    policy::{DynamicScale, Forgive, LossScaleSpec},
};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

/// `DynamicLossScaler.update_scale(overflow)`.
struct DeepSpeed {
    scale: f32,
    iter: i64,
    last_overflow: i64,
    left: u32,
    window: i64,
    hysteresis: u32,
    consecutive: bool,
}

impl DeepSpeed {
    fn update_scale(&mut self, overflow: bool) {
        if overflow {
            if self.left == 1 {
                self.scale = (self.scale / 2.0).max(1.0);
            } else {
                self.left -= 1;
            }
            self.last_overflow = self.iter;
        } else {
            if self.consecutive {
                self.left = self.hysteresis;
            }
            if (self.iter - self.last_overflow) % self.window == 0 {
                if !self.consecutive {
                    self.left = self.hysteresis;
                }
                self.scale *= 2.0;
            }
        }
        self.iter += 1;
    }
}

#[test]
fn the_preset_has_the_documented_numbers() {
    let numbers = DynamicScale::deepspeed();
    // initial_scale_power, loss_scale_window, hysteresis, min_loss_scale; consecutive_hysteresis is false.
    assert_eq!((numbers.init, numbers.interval, numbers.hysteresis, numbers.min), (2f32.powi(16), 1000, 2, 1.0));
    assert_eq!((numbers.growth, numbers.backoff, numbers.forgive), (2.0, 0.5, Forgive::Growth));
}

#[test]
fn random_sequences_are_those_of_deepspeeds_rule() {
    let mut random = ChaCha8Rng::seed_from_u64(1);
    for sequence in 0..10_000 {
        let consecutive = sequence % 2 == 0;
        let forgive = if consecutive { Forgive::Finite } else { Forgive::Growth };
        let (window, hysteresis) = (random.random_range(1..6), random.random_range(1..5));
        let init = 2f32.powi(random.random_range(0..8));
        let numbers = DynamicScale::deepspeed().init(init).interval(window).hysteresis(hysteresis).forgive(forgive);
        let mut ours = LossScale::new(LossScaleSpec::Dynamic(numbers)).unwrap();
        // Counting begins at -1, so that the first window has as many steps as others.
        let window = i64::from(window);
        let mut theirs =
            DeepSpeed { scale: init, iter: 0, last_overflow: -1, left: hysteresis, window, hysteresis, consecutive };
        let odds = random.random_range(0.0..1.0);
        for step in 0..60 {
            let overflow = random.random_bool(odds);
            ours.adjust(!overflow);
            theirs.update_scale(overflow);
            let said = (consecutive, hysteresis, window, sequence, step);
            assert_eq!(ours.value(), theirs.scale, "consecutive, hysteresis, window, sequence, step: {said:?}");
            // `spared` is what has been used up, in DeepSpeed's terms.
            assert_eq!(ours.state().spared, hysteresis - theirs.left, "{said:?}");
        }
    }
}
