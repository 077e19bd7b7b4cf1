//! Kernels that benchmarks call by themselves. No part of the interface.

use half::{bf16, f16};

use super::cast::Convert;

macro_rules! casts {
    ($($name:ident: $from:ty => $to:ty;)*) => { $(
        pub fn $name(from: &[$from], to: &mut [$to]) {
            Convert::convert(from, to);
        }
    )* };
}
casts! {
    f32_to_f16: f32 => f16;
    f32_to_bf16: f32 => bf16;
    f16_to_f32: f16 => f32;
    bf16_to_f32: bf16 => f32;
}
