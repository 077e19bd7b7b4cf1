//! The layers with a backward pass: values against f64, gradients against finite differences in f64.

mod common;

use candle_core::{D, DType, Result, Tensor, Var};
use candle_nn::{Module, VarBuilder, VarMap};
use common::{CPU, floats, tensor};
use precast_candle::{
    LayerNorm, RmsNorm, layer_norm, layer_norm_no_bias, linear, linear_no_bias, log_softmax, rms_norm, rope, rope_i,
    softmax,
};

/// A function of tensors by its values in f64: the definition, number by number.
type Exact = dyn Fn(&[Vec<f64>]) -> Vec<f64>;

/// Compares values and gradients in f32, f16 and bf16. The loss is the sum of outputs times fixed numbers.
fn compare(shapes: &[&[usize]], run: impl Fn(&[Tensor]) -> Result<Tensor>, exact: &Exact) {
    for (dtype, bound) in [(DType::F32, 2e-6), (DType::F16, 2e-3), (DType::BF16, 1.6e-2)] {
        // Inputs that have this dtype exactly.
        let inputs: Vec<Var> = shapes
            .iter()
            .zip(1..)
            .map(|(shape, seed)| {
                let x = tensor(shape, seed).to_dtype(dtype).unwrap();
                Var::from_tensor(&x).unwrap()
            })
            .collect();
        let numbers: Vec<Vec<f64>> = inputs.iter().map(|x| floats(x).into_iter().map(f64::from).collect()).collect();
        let args: Vec<Tensor> = inputs.iter().map(|x| x.as_tensor().clone()).collect();
        let y = run(&args).unwrap();
        assert_eq!((y.dtype(), y.dims()), (dtype, shapes[0]));
        let expected = exact(&numbers);
        near(&floats(&y), &expected, bound, "value");

        let weights: Vec<f64> = common::numbers(expected.len(), 99).into_iter().map(f64::from).collect();
        let w = Tensor::from_iter(weights.iter().map(|x| *x as f32), CPU).unwrap().reshape(y.shape()).unwrap();
        let loss = (y.to_dtype(DType::F32).unwrap() * w).unwrap().sum_all().unwrap();
        let grads = loss.backward().unwrap();
        for (i, input) in inputs.iter().enumerate() {
            let grad = grads.get(input).expect("the gradient is cut");
            assert_eq!(grad.dtype(), dtype);
            let loss = |k: usize, step: f64| {
                let mut numbers = numbers.clone();
                numbers[i][k] += step;
                exact(&numbers).iter().zip(&weights).map(|(y, w)| y * w).sum::<f64>()
            };
            let slopes: Vec<f64> = (0..numbers[i].len()).map(|k| (loss(k, 1e-5) - loss(k, -1e-5)) / 2e-5).collect();
            near(&floats(grad), &slopes, 3.0 * bound, &format!("gradient {i} in {dtype:?}"));
        }
    }
}

/// Compares relative to the largest number.
fn near(met: &[f32], expected: &[f64], bound: f64, what: &str) {
    assert_eq!(met.len(), expected.len());
    let most = expected.iter().fold(1e-3f64, |most, x| most.max(x.abs()));
    for (met, expected) in met.iter().zip(expected) {
        assert!((f64::from(*met) - expected).abs() <= bound * most, "{what}: {met} for {expected}");
    }
}

/// Returns the definition of a norm over rows of a length.
fn norm(size: usize, remove_mean: bool) -> Box<Exact> {
    Box::new(move |args| {
        args[0]
            .chunks(size)
            .flat_map(|row| {
                let mean = if remove_mean { row.iter().sum::<f64>() / size as f64 } else { 0.0 };
                let variance = row.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / size as f64;
                (0..size)
                    .map(|k| {
                        let bias = args.get(2).map_or(0.0, |bias| bias[k]);
                        (row[k] - mean) / (variance + 1e-5).sqrt() * args[1][k] + bias
                    })
                    .collect::<Vec<f64>>()
            })
            .collect()
    })
}

#[test]
fn layer_norm_is_its_definition() {
    let run = |x: &[Tensor]| LayerNorm::new(x[1].clone(), x[2].clone(), 1e-5).forward(&x[0]);
    compare(&[&[2, 3, 6], &[6], &[6]], run, &norm(6, true));
    let run = |x: &[Tensor]| LayerNorm::new_no_bias(x[1].clone(), 1e-5).forward(&x[0]);
    compare(&[&[4, 5], &[5]], run, &norm(5, true));
}

#[test]
fn rms_norm_is_its_definition() {
    compare(&[&[2, 3, 6], &[6]], |x| RmsNorm::new(x[1].clone(), 1e-5).forward(&x[0]), &norm(6, false));
}

#[test]
fn softmax_is_its_definition() {
    let rows = |log: bool| -> Box<Exact> {
        Box::new(move |args| {
            args[0]
                .chunks(7)
                .flat_map(|row| {
                    let sum = row.iter().map(|x| x.exp()).sum::<f64>();
                    row.iter().map(|x| if log { x - sum.ln() } else { x.exp() / sum }).collect::<Vec<f64>>()
                })
                .collect()
        })
    };
    compare(&[&[3, 7]], |x| softmax(&x[0], D::Minus1), &rows(false));
    compare(&[&[3, 7]], |x| log_softmax(&x[0], 1), &rows(true));
    // Another axis, and large numbers.
    let x = Tensor::new(&[[60000f32, 0.], [60000., 0.]], CPU).unwrap().to_dtype(DType::F16).unwrap();
    assert_eq!(floats(&softmax(&x, 0).unwrap()), [0.5; 4]);
    assert_eq!(floats(&softmax(&x, 1).unwrap()), [1., 0., 1., 0.]);
}

#[test]
fn rotary_embeddings_are_their_definition() {
    let (heads, length, half) = (2, 3, 2);
    let table = |of: fn(f64) -> f64| {
        let angles = (0..5 * half).map(|i| of((i / half) as f64 * 0.7 + (i % half) as f64) as f32);
        Tensor::from_iter(angles, CPU).unwrap().reshape((5, half)).unwrap()
    };
    let (cos, sin) = (table(f64::cos), table(f64::sin));
    let exact = |neighbours: bool| -> Box<Exact> {
        let (cos, sin) = (floats(&cos), floats(&sin));
        Box::new(move |args| {
            let mut y = args[0].clone();
            for (row, numbers) in y.chunks_mut(2 * half).enumerate() {
                let x = numbers.to_vec();
                for k in 0..half {
                    let (a, b) = if neighbours { (2 * k, 2 * k + 1) } else { (k, k + half) };
                    let angle = (row % length) * half + k;
                    let (cos, sin) = (f64::from(cos[angle]), f64::from(sin[angle]));
                    (numbers[a], numbers[b]) = (x[a] * cos - x[b] * sin, x[a] * sin + x[b] * cos);
                }
            }
            y
        })
    };
    let shape: &[usize] = &[2, heads, length, 2 * half];
    compare(&[shape], |x| rope(&x[0], &cos, &sin), &exact(false));
    compare(&[shape], |x| rope_i(&x[0], &cos, &sin), &exact(true));
    // candle's own, and tables with a batch.
    let x = tensor(shape, 4);
    let batched =
        |table: &Tensor| table.unsqueeze(0).unwrap().broadcast_as((2, 5, half)).unwrap().contiguous().unwrap();
    for (ours, candles) in [
        (rope(&x, &cos, &sin), candle_nn::rotary_emb::rope(&x, &cos, &sin)),
        (rope_i(&x, &cos, &sin), candle_nn::rotary_emb::rope_i(&x, &cos, &sin)),
        (rope(&x, &batched(&cos), &batched(&sin)), candle_nn::rotary_emb::rope(&x, &cos, &sin)),
    ] {
        near(
            &floats(&ours.unwrap()),
            &floats(&candles.unwrap()).iter().map(|x| f64::from(*x)).collect::<Vec<_>>(),
            1e-6,
            "",
        );
    }
    for table in [tensor(&[2, half], 1), tensor(&[5, 3], 1), tensor(&[3, 5, half], 1), tensor(&[5], 1)] {
        let error = rope(&x, &table, &sin).unwrap_err().to_string();
        assert!(error.contains("needs cosines and sines of shape [3, 2] or [2, 3, 2], and got"), "{error}");
    }
}

#[test]
fn linear_is_its_definition() {
    let vars = VarMap::new();
    let exact: &Exact = &|args| {
        let dot = |row: &[f64], out: usize| row.iter().zip(&args[1][out * 4..]).map(|(x, w)| x * w).sum::<f64>();
        args[0].chunks(4).flat_map(|row| (0..4).map(|out| dot(row, out) + args[2][out]).collect::<Vec<_>>()).collect()
    };
    let run = |x: &[Tensor]| {
        let named = [("weight", &x[1]), ("bias", &x[2])].map(|(name, x)| (name.to_string(), x.clone()));
        linear(4, 4, VarBuilder::from_tensors(named.into(), x[0].dtype(), CPU))?.forward(&x[0])
    };
    compare(&[&[3, 4], &[4, 4], &[4]], run, exact);
    let vb = VarBuilder::from_varmap(&vars, DType::F32, CPU);
    assert!(linear_no_bias(4, 4, vb).unwrap().bias().is_none());
}

/// The same constructors with the same arguments read the same variables as candle's, with the same initial values.
#[test]
fn constructors_are_those_of_candle() {
    let (ours, candles) = (VarMap::new(), VarMap::new());
    let at = |vars, path: &str| VarBuilder::from_varmap(vars, DType::F32, CPU).pp(path);
    layer_norm(4, 1e-5, at(&ours, "a")).unwrap();
    candle_nn::layer_norm(4, 1e-5, at(&candles, "a")).unwrap();
    layer_norm_no_bias(4, 1e-5, at(&ours, "b")).unwrap();
    candle_nn::layer_norm_no_bias(4, 1e-5, at(&candles, "b")).unwrap();
    rms_norm(4, 1e-5, at(&ours, "c")).unwrap();
    candle_nn::rms_norm(4, 1e-5, at(&candles, "c")).unwrap();
    assert_eq!(common::all_bits(&ours), common::all_bits(&candles));
    linear(100, 40, at(&ours, "d")).unwrap();
    candle_nn::linear(100, 40, at(&candles, "d")).unwrap();
    // Random numbers: the same spread.
    for name in ["d.weight", "d.bias"] {
        let [ours, candles] = [&ours, &candles].map(|vars| floats(&vars.data().lock().unwrap()[name]));
        let spread = |x: &[f32]| (x.iter().map(|x| x * x).sum::<f32>() / x.len() as f32).sqrt();
        assert!((spread(&ours) / spread(&candles) - 1.0).abs() < 0.5, "{name}");
        assert_eq!(ours.len(), candles.len());
    }
    // Files of old versions of torch.
    let old = [("gamma", 2f32), ("beta", 1.)].map(|(name, x)| (name.to_string(), Tensor::full(x, 4, CPU).unwrap()));
    let norm = layer_norm(4, 1e-5, VarBuilder::from_tensors(old.into(), DType::F32, CPU)).unwrap();
    assert_eq!((floats(norm.weight()), norm.bias().map(floats)), (vec![2.; 4], Some(vec![1.; 4])));
    assert_eq!(norm.eps(), 1e-5);
}
