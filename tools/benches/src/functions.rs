//! Functions of whole tensors compared with ndarray and candle.

use half::{bf16, f16};
use ndarray::{Array2, Axis};
use num_traits::Float;
use precast::{DType, Tensor};

use crate::{
    Options, Run,
    noise::{DTYPES, bf16s, candle, f16s, numbers, ours, read_candle, read_ours},
    run, try_run,
};

type Ours = fn(&[Tensor; 3]) -> precast::Result<Tensor>;
type Candle = fn(&[candle_core::Tensor; 3]) -> candle_core::Result<candle_core::Tensor>;

const SIDE: usize = 512;
/// Shapes of a matrix, and of a weight and a bias for each of its columns.
const SHAPES: [&[usize]; 3] = [&[SIDE, SIDE], &[SIDE], &[SIDE]];

const FUNCTIONS: [(&str, Ours, Candle); 7] = [
    ("add", |[x, ..]| x.add(x), |[x, ..]| x + x),
    ("relu", |[x, ..]| x.relu(), |[x, ..]| x.relu()),
    ("exp", |[x, ..]| x.exp(), |[x, ..]| x.exp()),
    ("gelu", |[x, ..]| x.gelu(), |[x, ..]| x.gelu_erf()),
    ("softmax", |[x, ..]| x.softmax(-1), |[x, ..]| candle_nn::ops::softmax_last_dim(x)),
    ("sum of rows", |[x, ..]| x.sum(&[-1], false), |[x, ..]| x.sum(1)),
    (
        "layer norm",
        |[x, w, b]| x.layer_norm(&[SIDE], Some(w), Some(b), 1e-5),
        |[x, w, b]| candle_nn::ops::layer_norm(x, w, b, 1e-5),
    ),
];

pub fn rows(options: &Options) {
    options.head("512 rows of 512", &["ndarray", "candle"]);
    for (function, precast, candle_s) in FUNCTIONS {
        for (dtype, tolerance) in DTYPES {
            let name = format!("{function} {dtype}");
            if !options.wants(&name) {
                continue;
            }
            let x = SHAPES.map(|shape| ours(shape, dtype));
            let precast = try_run(move || precast(&x), |y| Ok(read_ours(y)));
            let len = SIDE * SIDE;
            let ndarray = match dtype {
                DType::F16 => by_ndarray::<f16>(function, f16s(len)),
                DType::Bf16 => by_ndarray::<bf16>(function, bf16s(len)),
                _ => by_ndarray::<f32>(function, numbers(len)),
            };
            let x = SHAPES.map(|shape| candle(shape, dtype));
            let candle = try_run(move || candle_s(&x), read_candle);
            options.row(&name, tolerance, precast, vec![ndarray, Some(candle)]);
        }
    }
}

/// Runs the function in ndarray, which has no error function, and no softmax or norms over rows.
fn by_ndarray<T: Float + 'static>(function: &str, x: Vec<T>) -> Option<Run> {
    let x = Array2::from_shape_vec((SIDE, SIDE), x).expect("as many as the shape has");
    let read = |x: &T| x.to_f32().expect("it is a float");
    let map = |f: fn(T) -> T, x: Array2<T>| run(move || x.mapv(f), move |y| y.iter().map(read).collect());
    Some(match function {
        "add" => run(move || &x + &x, move |y| y.iter().map(read).collect()),
        "relu" => map(|x| if x > T::zero() { x } else { T::zero() }, x),
        "exp" => map(T::exp, x),
        "sum of rows" => run(move || x.sum_axis(Axis(1)), move |y| y.iter().map(read).collect()),
        _ => return None,
    })
}
