//! Initial values of parameters.

use precast_tensor::random::filled;
pub(super) use precast_tensor::random::{Rng, with_reading_rng};

use crate::{
    Tensor,
    error::{Error, Result},
};

/// Distribution of the initial values of a parameter.
///
/// `fan_in` is the number of values that contribute to one output, `fan_out` the number of outputs that one value
/// contributes to: for a weight `[a, b, k...]` they are `b * k...` and `a * k...`, as in torch (`torch/nn/init.py`,
/// `_calculate_fan_in_and_fan_out`) and MindSpore (`common/initializer.py`).
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum Init {
    /// All 0.
    Zeros,
    /// All 1.
    Ones,
    /// All equal to this number.
    Constant(f64),
    /// Uniform between `-bound` and `bound`.
    Uniform {
        /// The largest absolute value.
        bound: f64,
    },
    /// Normal with mean 0.
    Normal {
        /// Standard deviation.
        std: f64,
    },
    /// Uniform with the bound `gain * sqrt(6 / (fan_in + fan_out))` (Glorot & Bengio 2010, eq. 16).
    XavierUniform {
        /// 1 for linear and sigmoid units.
        gain: f64,
    },
    /// Normal with the standard deviation `gain * sqrt(2 / (fan_in + fan_out))` (Glorot & Bengio 2010).
    XavierNormal {
        /// 1 for linear and sigmoid units.
        gain: f64,
    },
    /// Uniform with the bound `sqrt(6 / ((1 + a^2) * fan_in))` (He et al. 2015, eq. 15).
    HeUniform {
        /// The `a` of the formula: the slope of the following rectifier below zero.
        negative_slope: f64,
    },
    /// Normal with the standard deviation `sqrt(2 / ((1 + a^2) * fan_in))` (He et al. 2015, eq. 15).
    HeNormal {
        /// The `a` of the formula: the slope of the following rectifier below zero.
        negative_slope: f64,
    },
}

impl Init {
    /// Returns the initialisation of dense and convolution weights in torch and MindSpore: uniform with the bound
    /// `1 / sqrt(fan_in)`.
    pub(super) fn weight() -> Init {
        Init::HeUniform { negative_slope: 5f64.sqrt() }
    }

    /// Returns the initialisation of biases (fan = fan-in of the weight) and recurrent cells (fan = hidden size) in
    /// torch and MindSpore: uniform with the bound `1 / sqrt(fan)`. All 0 when the fan is 0.
    pub(super) fn uniform_of(fan: usize) -> Init {
        Init::Uniform { bound: if fan == 0 { 0.0 } else { 1.0 / (fan as f64).sqrt() } }
    }

    /// Returns an f32 tensor of such values, each drawn in f64 and rounded once.
    ///
    /// # Errors
    /// [`ErrorKind::Shape`](crate::ErrorKind::Shape) when a formula needs a fan and the shape has fewer than 2 axes, or
    /// when the tensor does not fit into memory.
    ///
    /// ```
    /// use precast::layers::{Init, Rng};
    /// let weight = Init::XavierUniform { gain: 1.0 }.sample(&[4, 2], &mut Rng::seed(0))?;
    /// assert!(weight.to_f64().iter().all(|w| w.abs() <= 1.0));
    /// # Ok::<(), precast::Error>(())
    /// ```
    pub fn sample(self, shape: &[usize], rng: &mut Rng) -> Result<Tensor> {
        let draw: Box<dyn FnMut() -> f64 + '_> = match self {
            Init::Zeros => Box::new(|| 0.0),
            Init::Ones => Box::new(|| 1.0),
            Init::Constant(value) => Box::new(move || value),
            Init::Uniform { bound } => Box::new(move || rng.uniform(-bound, bound)),
            Init::Normal { std } => Box::new(move || rng.normal(0.0, std)),
            Init::XavierUniform { gain } => {
                let bound = gain * spread(6.0, fans(shape)?.iter().sum());
                Box::new(move || rng.uniform(-bound, bound))
            }
            Init::XavierNormal { gain } => {
                let std = gain * spread(2.0, fans(shape)?.iter().sum());
                Box::new(move || rng.normal(0.0, std))
            }
            Init::HeUniform { negative_slope } => {
                let bound = spread(6.0 / (1.0 + negative_slope * negative_slope), fans(shape)?[0]);
                Box::new(move || rng.uniform(-bound, bound))
            }
            Init::HeNormal { negative_slope } => {
                let std = spread(2.0 / (1.0 + negative_slope * negative_slope), fans(shape)?[0]);
                Box::new(move || rng.normal(0.0, std))
            }
        };
        filled(shape, draw)
    }
}

/// Returns an f32 tensor with every element `value`, for a parameter without random initial values.
///
/// # Errors
/// As [`Init::sample`].
pub(super) fn constant(shape: &[usize], value: f64) -> Result<Tensor> {
    filled(shape, || value)
}

/// Returns `[fan_in, fan_out]` as floating-point numbers, which do not overflow.
fn fans(shape: &[usize]) -> Result<[f64; 2]> {
    let [outputs, inputs, kernel @ ..] = shape else {
        return Err(Error::shape(format!(
            "the fan-in of the shape {shape:?} is not defined: at least 2 axes are needed"
        )));
    };
    let field: f64 = kernel.iter().map(|&k| k as f64).product();
    Ok([*inputs as f64 * field, *outputs as f64 * field])
}

/// Returns `sqrt(numerator / fan)`, or 0 for an empty weight.
fn spread(numerator: f64, fan: f64) -> f64 {
    if fan == 0.0 { 0.0 } else { (numerator / fan).sqrt() }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the mean and standard deviation of 20,000 draws, and the largest absolute value.
    fn moments(init: Init, shape: &[usize]) -> (f64, f64, f64) {
        let x = init.sample(shape, &mut Rng::seed(5)).unwrap().to_f64();
        let n = x.len() as f64;
        let mean = x.iter().sum::<f64>() / n;
        let std = (x.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / n).sqrt();
        (mean, std, x.iter().fold(0.0, |m, x| x.abs().max(m)))
    }

    #[test]
    fn distributions_have_their_closed_form_moments() {
        // A weight [100, 20, 2, 5]: fan_in 200, fan_out 1000. A uniform distribution of bound b has the deviation b /
        // sqrt(3).
        let shape = [100, 20, 2, 5];
        let s = |x: f64| x.sqrt();
        let uniforms = [
            (Init::Uniform { bound: 0.3 }, 0.3),
            (Init::XavierUniform { gain: 2.0 }, 2.0 * s(6.0 / 1200.0)),
            (Init::HeUniform { negative_slope: 0.5 }, s(6.0 / 1.25 / 200.0)),
            (Init::weight(), 1.0 / s(200.0)),
            (Init::uniform_of(25), 0.2),
        ];
        for (init, bound) in uniforms {
            let (mean, std, max) = moments(init, &shape);
            assert!(max <= bound && max > 0.999 * bound, "{init:?}: {max} against {bound}");
            assert!((std / (bound / s(3.0)) - 1.0).abs() < 0.02 && mean.abs() < 0.02 * bound, "{init:?}: {mean} {std}");
        }
        let normals = [
            (Init::Normal { std: 0.7 }, 0.7),
            (Init::XavierNormal { gain: 1.0 }, s(2.0 / 1200.0)),
            (Init::HeNormal { negative_slope: 0.0 }, s(2.0 / 200.0)),
        ];
        for (init, expected) in normals {
            let (mean, std, max) = moments(init, &shape);
            assert!((std / expected - 1.0).abs() < 0.02 && mean.abs() < 0.03 * expected, "{init:?}: {mean} {std}");
            assert!(max > 3.0 * expected && max < 6.0 * expected, "{init:?}: {max}");
        }
    }

    #[test]
    fn shapes_without_a_fan_or_too_large_are_errors() {
        let mut rng = Rng::seed(0);
        let error = Init::weight().sample(&[3], &mut rng).unwrap_err();
        assert_eq!(error.to_string(), "the fan-in of the shape [3] is not defined: at least 2 axes are needed");
        for shape in [vec![usize::MAX, 2], vec![usize::MAX / 2]] {
            assert!(Init::Ones.sample(&shape, &mut rng).unwrap_err().to_string().contains("does not fit into memory"));
        }
        assert!(Init::weight().sample(&[4, 0], &mut rng).unwrap().is_empty());
    }

    #[test]
    fn a_fork_does_not_move_its_origin() {
        let (mut a, mut b) = (Rng::seed(3), Rng::seed(3));
        let mut fork = a.fork();
        b.fork();
        let from_fork: Vec<f64> = (0..4).map(|_| fork.uniform(0.0, 1.0)).collect();
        let rest: Vec<f64> = (0..4).map(|_| a.uniform(0.0, 1.0)).collect();
        assert_eq!(rest, (0..4).map(|_| b.uniform(0.0, 1.0)).collect::<Vec<_>>());
        assert_ne!(rest, from_fork);
    }

    #[test]
    fn reading_nests_and_gives_back_the_advanced_generator() {
        let draw = || with_reading_rng(|rng| Ok(rng.bits()));
        assert!(draw().is_err());
        let (mut outer, mut same) = (Rng::seed(1), Rng::seed(1));
        let inside = outer.reading(|| {
            let first = draw().unwrap();
            let inner = Rng::seed(2).reading(|| draw().unwrap());
            [first, inner, draw().unwrap()]
        });
        assert_eq!(inside, [same.bits(), Rng::seed(2).bits(), same.bits()]);
        assert_eq!(outer, same);
        assert!(draw().is_err());
    }

    #[test]
    fn a_cell_that_panics_leaves_the_generator() {
        let draw = |rng: &mut Rng| Ok(rng.normal(0.0, 1.0));
        let [whole, after] = [false, true].map(|panics| {
            Rng::seed(1).reading(|| {
                if panics {
                    assert!(
                        std::panic::catch_unwind(|| with_reading_rng(|_| -> Result<f64> { panic!("in a cell") }))
                            .is_err()
                    );
                }
                with_reading_rng(draw)
            })
        });
        assert_eq!(after.unwrap(), whole.unwrap());
    }
}
