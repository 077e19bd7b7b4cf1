//! Two curves to be learnt, and a network that learns them.

use precast_train::data::{Dataset, Split};

pub const CURVE: &str = "
version: 1
name: curve
net:
  kind: Sequential
  cells:
  - {kind: Dense, in_features: 1, out_features: 32}
  - {kind: Tanh}
  - {kind: Dense, in_features: 32, out_features: 32}
  - {kind: ReLU}
  - {kind: Dense, in_features: 32, out_features: 2}
";

/// Returns half a wave of a sine and a parabola.
pub fn curve() -> Split {
    let x = points(600);
    let y = x.iter().flat_map(|x| [(3.0 * x).sin(), x * x]).collect();
    Dataset::regression(x, &[1], y, &[2]).unwrap().split(500, 0).unwrap()
}

/// Returns pseudo-random points from -1 to 1.
pub fn points(n: usize) -> Vec<f32> {
    (1..=n).map(|i| (i as f32 * 0.618_034).fract() * 2.0 - 1.0).collect()
}
