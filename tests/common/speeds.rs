//! Speeds of made-up machines.

use precast::cost::{Rate, Rates};

/// Returns one rate for every kind of op, and one for casts.
pub fn rates(rate: Rate, cast: f64) -> Rates {
    Rates {
        product: rate,
        convolution: rate,
        elementwise: rate,
        function: rate,
        norm: rate,
        pool: rate,
        attention: rate,
        cast,
    }
}
