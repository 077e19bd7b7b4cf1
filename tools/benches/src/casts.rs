//! Casts compared with half's slice casts, ndarray's `mapv` and candle.

use half::{bf16, f16, slice::HalfFloatSliceExt};
use ndarray::Array1;
use precast::DType;
use precast_kernels::bench;

use crate::{
    Options, Run,
    noise::{candle, candle_dtype, numbers, read_candle},
    run, try_run,
};

/// Lengths within the caches, and beyond them.
const LENGTHS: [usize; 2] = [64 << 10, 32 << 20];

pub fn rows(options: &Options) {
    options.head("", &["half", "ndarray", "candle"]);
    for len in LENGTHS {
        macro_rules! both_ways {
            ($($t:ident, $dtype:expr, $narrow:path, $widen:path;)*) => { $(
                row(options, DType::F32, $dtype, len, || {
                    let x = numbers(len);
                    let array = Array1::from_vec(x.clone());
                    let ndarray = run(move || array.mapv($t::from_f32), |y| y.iter().map(|y| y.to_f32()).collect());
                    let precast = into(x.clone(), vec![$t::ZERO; len], $narrow, $t::to_f32);
                    [precast, into(x, vec![$t::ZERO; len], |x, y| y.convert_from_f32_slice(x), $t::to_f32), ndarray]
                });
                row(options, $dtype, DType::F32, len, || {
                    let x: Vec<$t> = numbers(len).into_iter().map($t::from_f32).collect();
                    let array = Array1::from_vec(x.clone());
                    let ndarray = run(move || array.mapv($t::to_f32), |y| y.to_vec());
                    let precast = into(x.clone(), vec![0f32; len], $widen, f32::from);
                    [precast, into(x, vec![0f32; len], |x, y| x.convert_to_f32_slice(y), f32::from), ndarray]
                });
            )* };
        }
        both_ways! {
            f16, DType::F16, bench::f32_to_f16, bench::f16_to_f32;
            bf16, DType::Bf16, bench::f32_to_bf16, bench::bf16_to_f32;
        }
    }
}

/// Makes a `Run` of a cast from a slice into existing memory.
fn into<A: 'static, B: Copy + 'static>(x: Vec<A>, mut y: Vec<B>, cast: fn(&[A], &mut [B]), wide: fn(B) -> f32) -> Run {
    Box::new(move |tell| {
        cast(&x, &mut y);
        Ok(tell.then(|| y.iter().map(|&y| wide(y)).collect()))
    })
}

/// Prints one row; `sides` returns precast, half and ndarray.
fn row(options: &Options, from: DType, to: DType, len: usize, sides: impl FnOnce() -> [Run; 3]) {
    let name = format!("cast {from} to {to} {len}");
    if !options.wants(&name) {
        return;
    }
    let x = candle(&[len], from);
    let candle = try_run(move || x.to_dtype(candle_dtype(to)), read_candle);
    let [precast, half, ndarray] = sides();
    // Each is rounded once, so the results must be identical.
    options.row(&name, 0.0, precast, vec![Some(half), Some(ndarray), Some(candle)]);
}
