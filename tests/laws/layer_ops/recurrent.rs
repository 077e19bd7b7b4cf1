//! Recurrent layers, compared with torch, and with a loop of single steps.

use precast::{
    DType::{self, Bf16, F16, F32, F64},
    ErrorKind, Op, RecurrentWeights, Result, Tensor,
    prelude::*,
};
use serde_json::Value;

use crate::common::golden::golden;
use crate::layer_ops::errors::refused;

/// Returns the numbers of `goldens/torch/recurrent.json`, which documents their formula: exact in every dtype.
fn pattern(len: usize, seed: usize) -> Vec<f64> {
    (0..len).map(|i| ((i * (37 + 2 * seed) + seed * 101) % 257) as f64).map(|x| (x - 128.0) / 512.0).collect()
}

fn fill(shape: &[usize], seed: usize, dtype: DType) -> Tensor {
    Tensor::from_f64(&pattern(shape.iter().product(), seed), shape, dtype).unwrap()
}

/// A recurrent layer, composed of ops on tensors of any dtype: `weights` are four for each layer and direction.
struct Network {
    kind: String,
    layers: usize,
    directions: usize,
    bias: bool,
}

impl Network {
    /// Returns the output, and the last states.
    fn run(&self, x: &Tensor, states: &[Tensor], weights: &[Tensor]) -> Result<Vec<Tensor>> {
        let mut y = x.clone();
        let mut last: Vec<Vec<Tensor>> = vec![Vec::new(); if self.kind == "LSTM" { 2 } else { 1 }];
        for layer in 0..self.layers {
            let mut outputs = Vec::new();
            for direction in 0..self.directions {
                let index = layer * self.directions + direction;
                let w = &weights[index * if self.bias { 4 } else { 2 }..];
                let biases = if self.bias { Some((&w[2], &w[3])) } else { None };
                let w = RecurrentWeights { ih: &w[0], hh: &w[1], biases };
                let states = states.iter().map(|s| s.at(0, index)).collect::<Result<Vec<_>>>()?;
                let (first, reverse) = (states.first(), direction == 1);
                let (output, end) = match &self.kind[..] {
                    "RNN" => y.rnn(&w, first, false, reverse).map(|(y, h)| (y, vec![h]))?,
                    "RNN relu" => y.rnn(&w, first, true, reverse).map(|(y, h)| (y, vec![h]))?,
                    "GRU" => y.gru(&w, first, reverse).map(|(y, h)| (y, vec![h]))?,
                    _ => {
                        let (y, (h, c)) = y.lstm(&w, first.map(|h| (h, &states[1])), reverse)?;
                        (y, vec![h, c])
                    }
                };
                outputs.push(output);
                last.iter_mut().zip(end).for_each(|(last, end)| last.push(end));
            }
            y = Tensor::concat(&outputs.iter().collect::<Vec<_>>(), -1)?;
        }
        let last = last.iter().map(|of| Tensor::stack(&of.iter().collect::<Vec<_>>(), 0));
        [Ok(y)].into_iter().chain(last).collect()
    }
}

/// Compares with a recorded tensor: its elements, or its products with three patterns.
fn close(what: &str, ours: &Tensor, recorded: &Value, tolerance: f64) {
    let ours = ours.to_f64();
    let dot = |seed: usize| ours.iter().zip(pattern(ours.len(), seed)).map(|(x, p)| x * p).sum();
    let numbers = |json: &Value| -> Vec<f64> { serde_json::from_value(json.clone()).unwrap() };
    let (ours, theirs, size) = match recorded.get("dots") {
        // Over many terms, rounding errors grow as the square root of their number.
        Some(dots) => ((21..24).map(dot).collect(), numbers(dots), (ours.len() as f64).sqrt()),
        None => (ours, numbers(recorded), 1.0),
    };
    assert_eq!(ours.len(), theirs.len(), "{what}");
    let largest = theirs.iter().fold(1.0, |m: f64, x| m.max(x.abs()));
    for (i, (x, y)) in ours.iter().zip(&theirs).enumerate() {
        assert!((x - y).abs() <= tolerance * size * largest, "{what}, {i}: {x} against {y}");
    }
}

#[test]
fn results_and_gradients_are_torchs() {
    let Some(file) = golden("torch/recurrent.json") else { return };
    for case in file["cases"].as_array().unwrap() {
        let sizes: Vec<usize> = serde_json::from_value(case["sizes"].clone()).unwrap();
        let &[batch, time, inputs, hidden] = &sizes[..] else { panic!("four sizes") };
        let (kind, bias) = (case["kind"].as_str().unwrap().to_string(), case["bias"].as_bool().unwrap());
        let directions = if case["bidirectional"].as_bool().unwrap() { 2 } else { 1 };
        let layers = case["layers"].as_u64().unwrap() as usize;
        let gates = match &kind[..] {
            "GRU" => 3,
            "LSTM" => 4,
            _ => 1,
        };
        let small = hidden < 10;
        for dtype in [F64, F32, F16, Bf16].into_iter().filter(|dtype| small || !dtype.is_low()) {
            let mut shapes = Vec::new();
            for index in 0..layers * directions {
                let inputs = if index < directions { inputs } else { hidden * directions };
                shapes.push(vec![gates * hidden, inputs]);
                shapes.push(vec![gates * hidden, hidden]);
                shapes.extend(vec![vec![gates * hidden]; if bias { 2 } else { 0 }]);
            }
            let leaf = |x: Tensor| x.requires_grad();
            let weights: Vec<Tensor> = shapes.iter().enumerate().map(|(i, s)| leaf(fill(s, i, dtype))).collect();
            let x = pattern(batch * time * inputs, 15).into_iter().map(|x| 4.0 * x).collect::<Vec<_>>();
            let x = leaf(Tensor::from_f64(&x, &[batch, time, inputs], dtype).unwrap());
            let states: Vec<Tensor> = match case["state"].as_bool().unwrap() {
                false => vec![],
                true => (0..if gates == 4 { 2 } else { 1 })
                    .map(|k| leaf(fill(&[layers * directions, batch, hidden], 16 + k, dtype)))
                    .collect(),
            };
            let net = Network { kind: kind.clone(), layers, directions, bias };
            let results = net.run(&x, &states, &weights).unwrap();
            // Results are rounded, the state at each step; gradients pass through as many roundings.
            let tolerance = match dtype {
                F64 => 1e-12,
                F32 => 2e-6,
                low => 4.0 * low.epsilon(),
            };
            let what = |part: &str, i: usize| format!("{kind} {sizes:?} {dtype}: {part} {i}");
            for (i, (ours, theirs)) in results.iter().zip(case["results"].as_array().unwrap()).enumerate() {
                assert_eq!(ours.dtype(), dtype);
                close(&what("result", i), ours, theirs, tolerance);
            }
            let weighted = results.iter().enumerate().map(|(i, y)| {
                let sum = y.mul(&fill(y.shape(), 18 + i, dtype))?.cast(if dtype == F64 { F64 } else { F32 });
                sum.sum(&[], false)
            });
            let loss = weighted.reduce(|a, b| a?.add(&b?)).unwrap().unwrap();
            let grads = loss.backward().unwrap();
            let leaves = [&[x][..], &states, &weights].concat();
            for (i, (leaf, theirs)) in leaves.iter().zip(case["grads"].as_array().unwrap()).enumerate() {
                let ours = grads.of(leaf).unwrap();
                assert_eq!((ours.shape(), ours.dtype()), (leaf.shape(), dtype));
                close(&what("gradient", i), &ours, theirs, 4.0 * tolerance);
            }
        }
    }
}

/// The cells hold their weights under torch's names and layout, and give its results.
#[test]
fn cells_have_torchs_parameters_and_results() {
    let Some(file) = golden("torch/recurrent.json") else { return };
    for case in file["cases"].as_array().unwrap() {
        let sizes: Vec<usize> = serde_json::from_value(case["sizes"].clone()).unwrap();
        let (kind, flag) = (case["kind"].as_str().unwrap(), |name: &str| case[name].as_bool().unwrap());
        let layers = case["layers"].as_u64().unwrap() as usize;
        let (bias, two, rng) = (flag("bias"), flag("bidirectional"), &mut Rng::seed(1));
        macro_rules! built {
            ($spec:ident) => {
                $spec::new(sizes[2], sizes[3]).num_layers(layers).bias(bias).bidirectional(two)
            };
        }
        let net: Child = match kind {
            "GRU" => built!(GRUSpec).build(rng).unwrap().into(),
            "LSTM" => built!(LSTMSpec).build(rng).unwrap().into(),
            _ => built!(RNNSpec).relu(kind == "RNN relu").build(rng).unwrap().into(),
        };
        let names: Vec<String> = net.named_params().into_iter().map(|(name, _)| name).collect();
        assert_eq!(names, serde_json::from_value::<Vec<String>>(case["names"].clone()).unwrap());
        for (seed, (_, param)) in net.named_params().into_iter().enumerate() {
            param.set(&fill(&param.shape(), seed, F32)).unwrap();
        }
        let mut inputs = vec![(fill(&sizes[..3], 15, F32) * 4.0).unwrap()];
        if flag("state") {
            let shape = [layers * if two { 2 } else { 1 }, sizes[0], sizes[3]];
            inputs.extend((0..if kind == "LSTM" { 2 } else { 1 }).map(|k| fill(&shape, 16 + k, F32)));
        } else {
            close(kind, &net.call(&inputs[0]).unwrap(), &case["results"][0], 2e-6);
        }
        let results = net.call_many(&inputs).unwrap();
        for (ours, theirs) in results.iter().zip(case["results"].as_array().unwrap()) {
            close(kind, ours, theirs, 2e-6);
        }
    }
}

/// Rounding is the same: after each step the state h is rounded; c and the gates are not in a sequence, and c is once
/// per step in a loop.
#[test]
fn a_sequence_is_a_loop_of_steps() {
    let (batch, time, inputs, hidden) = (3, 6, 5, 67);
    for dtype in [F64, F32, F16, Bf16] {
        let tolerance = if dtype.is_low() { 4.0 * dtype.epsilon() } else { 16.0 * dtype.epsilon() };
        let near = |a: &Tensor, b: &Tensor| {
            let near = |(a, b): (f64, f64)| (a - b).abs() <= tolerance * b.abs().max(1.0);
            assert!(a.shape() == b.shape() && a.to_f64().into_iter().zip(b.to_f64()).all(near), "{dtype}");
        };
        let x = fill(&[batch, time, inputs], 1, dtype);
        let (h, c) = (fill(&[batch, hidden], 6, dtype), fill(&[batch, hidden], 7, dtype));
        for gates in [1, 3, 4] {
            let of = |shape: &[usize], seed| fill(shape, seed, dtype);
            let (ih, hh) = (of(&[gates * hidden, inputs], 2), of(&[gates * hidden, hidden], 3));
            let (b, d) = (of(&[gates * hidden], 4), of(&[gates * hidden], 5));
            let w = RecurrentWeights { ih: &ih, hh: &hh, biases: Some((&b, &d)) };
            let (y, last, last_c) = match gates {
                1 => x.rnn(&w, Some(&h), false, false).map(|(y, h)| (y, h, None)),
                3 => x.gru(&w, Some(&h), false).map(|(y, h)| (y, h, None)),
                _ => x.lstm(&w, Some((&h, &c)), false).map(|(y, (h, c))| (y, h, Some(c))),
            }
            .unwrap();
            let (mut state, mut cell) = (h.clone(), c.clone());
            for t in 0..time {
                let x = x.at(1, t).unwrap();
                match gates {
                    1 => state = x.rnn_cell(&w, &state, false).unwrap(),
                    3 => state = x.gru_cell(&w, &state).unwrap(),
                    _ => (state, cell) = x.lstm_cell(&w, (&state, &cell)).unwrap(),
                }
                near(&state, &y.at(1, t).unwrap());
            }
            near(&state, &last);
            last_c.iter().for_each(|c| near(&cell, c));
        }
    }
}

#[test]
fn an_empty_batch_and_one_of_everything_work() {
    let mut rng = Rng::seed(0);
    let lstm = Child::new(LSTM::new(3, 2, &mut rng));
    let (y, (h, c)) = lstm.run(&Tensor::zeros(&[0, 4, 3], F32), None).unwrap();
    assert_eq!((y.shape(), h.shape(), c.shape()), (&[0, 4, 2][..], &[1, 0, 2][..], &[1, 0, 2][..]));
    let grads = y.sum(&[], false).unwrap().backward().unwrap();
    let zeros = |grad: Tensor| grad.to_f64().iter().all(|&g| g == 0.0);
    assert!(lstm.params().iter().all(|(_, param)| grads.get(param).is_some_and(zeros)));
    // No features: only the biases.
    let gru = Child::new(GRU::new(0, 2, &mut rng));
    assert_eq!(gru.call(&Tensor::zeros(&[2, 3, 0], F32)).unwrap().shape(), [2, 3, 2]);
    let rnn = Child::new(RNN::new(1, 1, &mut rng));
    assert_eq!(rnn.run(&Tensor::ones(&[1, 1, 1], F32), None).unwrap().1.shape(), [1, 1, 1]);
}

#[test]
fn numbers_out_of_range_stay_numbers() {
    for dtype in [F32, F16, Bf16] {
        for value in [f64::INFINITY, f64::NAN, 65504.0, -1e30, 1e-40] {
            for gates in [1, 3, 4] {
                let of = |shape: &[usize]| Tensor::full(shape, value, dtype).requires_grad();
                let (x, ih, hh) = (of(&[2, 3, 4]), of(&[gates * 2, 4]), of(&[gates * 2, 2]));
                let w = RecurrentWeights { ih: &ih, hh: &hh, biases: None };
                let (y, _) = match gates {
                    1 => x.rnn(&w, None, true, false),
                    3 => x.gru(&w, None, false),
                    _ => x.lstm(&w, None, false).map(|(y, (h, _))| (y, h)),
                }
                .unwrap();
                let grads = y.backward_from(&Tensor::full(y.shape(), value, dtype)).unwrap();
                for leaf in [&x, &ih, &hh] {
                    let grad = grads.of(leaf).unwrap();
                    assert_eq!((grad.shape(), grad.dtype()), (leaf.shape(), dtype));
                }
            }
        }
    }
}

#[test]
fn wrong_inputs_are_named() {
    use ErrorKind::{DType as Dtype, Shape, Value};
    let zeros = |shape: &[usize]| Tensor::zeros(shape, F32);
    let (ih, hh, bias) = (zeros(&[8, 3]), zeros(&[8, 2]), zeros(&[8]));
    let w = RecurrentWeights { ih: &ih, hh: &hh, biases: Some((&bias, &bias)) };
    let x = zeros(&[5, 4, 3]);
    refused(zeros(&[4, 3]).lstm(&w, None, false), Shape, &["FusedRnn", "[batch, time, features]", "[4, 3]"]);
    refused(zeros(&[5, 0, 3]).lstm(&w, None, false), Shape, &["at least one time", "[5, 0, 3]"]);
    refused(zeros(&[]).lstm(&w, None, false), Shape, &["[]"]);
    refused(zeros(&[5, 4, 7]).lstm(&w, None, false), Shape, &["[5, 4, 7]", "[8, 7]", "[8, 3]"]);
    refused(x.gru(&w, None, false), Shape, &["[8, 2]", "[3 * hidden, hidden]"]);
    let state = zeros(&[4, 2]);
    refused(x.lstm(&w, Some((&state, &state)), false), Shape, &["[5, 4, 3]", "[5, 2]", "[4, 2]"]);
    let short = zeros(&[7]);
    let uneven = RecurrentWeights { biases: Some((&bias, &short)), ..w };
    refused(x.lstm(&uneven, None, false), Shape, &["[8]", "[7]"]);
    refused(x.cast(F16).lstm(&w, None, false), Dtype, &["f16", "f32"]);
    let (none, empty) = (zeros(&[0, 0]), zeros(&[0, 3]));
    refused(x.lstm(&RecurrentWeights { ih: &empty, hh: &none, biases: None }, None, false), Shape, &["[0, 0]"]);
    // A shape without elements, whose states would exceed any memory.
    let (huge, nothing) = (zeros(&[1 << 32, 1 << 25, 0]), zeros(&[8, 0]));
    let bare = RecurrentWeights { ih: &nothing, hh: &hh, biases: None };
    let first = zeros(&[1, 2]);
    refused(huge.lstm(&bare, Some((&first, &first)), false), Shape, &["FusedRnn", "[4294967296, 2]"]);
    let (huge, first) = (zeros(&[1, 1 << 57, 0]), zeros(&[1, 2]));
    refused(huge.lstm(&bare, Some((&first, &first)), false), Shape, &["FusedRnn", "memory"]);
    refused(zeros(&[1 << 60, 1, 0]).gru(&bare, None, false), Shape, &["FusedRnn", "memory"]);

    let mut rng = Rng::seed(0);
    let gru = Child::new(GRU::new(3, 2, &mut rng));
    refused(gru.run(&x, Some(&zeros(&[5, 2]))), Shape, &["[5, 4, 3]", "[1, 5, 2]", "[5, 2]"]);
    let gru = gru.erase();
    refused(gru.call_many(&[x.clone(), x.clone(), x.clone()]), Shape, &["a GRU takes x, or x and h, got 3 tensors"]);
    refused(gru.call(&zeros(&[5, 4, 9])), Shape, &["[5, 4, 9]"]);
    for layers in [0, 4097, 1_000_000_000_000] {
        let words = format!("`num_layers` is {layers}; allowed: 1 to 4096");
        refused(RNNSpec::new(3, 2).num_layers(layers).build(&mut rng), Value, &[&words]);
        refused(GRUSpec::new(3, 2).num_layers(layers).build(&mut rng), Value, &[&words]);
        refused(LSTMSpec::new(3, 2).num_layers(layers).build(&mut rng), Value, &[&words]);
    }
    let mut relu = GRUSpec::new(3, 2);
    relu.relu = true;
    refused(relu.build(&mut rng), Value, &["relu", "RNN"]);
}

/// Level O1 lowers the layers, O2 runs them low, and one op per layer returns the result in f32.
#[test]
fn levels_lower_the_layer() {
    for level in [Level::O1, Level::O2, Level::Auto] {
        let mut rng = Rng::seed(0);
        let lstm = LSTMSpec::new(3, 2).num_layers(2).build(&mut rng).unwrap();
        let mut net: Child = sequential![lstm, Dense::new(2, 2, &mut rng)].into();
        let _applied = auto_mixed_precision(&mut net, level, Bf16).unwrap();
        let (y, trace) = net.trace(|net| net.call(&Tensor::ones(&[2, 3, 3], F32)).unwrap());
        let layers: Vec<_> = trace.ops.iter().filter(|op| op.op == Op::FusedRnn).collect();
        assert!(layers.len() == 2 && layers.iter().all(|op| op.output == Bf16), "{level}");
        assert_eq!(y.dtype(), if level == Level::Auto { Bf16 } else { F32 });
    }
}
