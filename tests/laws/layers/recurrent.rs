//! Recurrent cells compared with a scalar loop and with MindSpore.

use precast::prelude::*;

use super::{assert_close, random, tensor, values};
use crate::common::golden::{golden, left_out};

use crate::common::f32_runs::f32_runs;

struct Weights {
    ih: Vec<f64>,
    hh: Vec<f64>,
    bias_ih: Vec<f64>,
    bias_hh: Vec<f64>,
}

impl Weights {
    fn of(net: &Child) -> Self {
        let get = |path| values(net, path);
        Weights { ih: get("weight_ih"), hh: get("weight_hh"), bias_ih: get("bias_ih"), bias_hh: get("bias_hh") }
    }

    /// Returns the contributions of the input and of the state to row `i` of the gates.
    fn row(&self, i: usize, x: &[f64], h: &[f64]) -> (f64, f64) {
        let dot = |w: &[f64], x: &[f64]| -> f64 { (0..x.len()).map(|j| w[i * x.len() + j] * x[j]).sum() };
        (dot(&self.ih, x) + self.bias_ih[i], dot(&self.hh, h) + self.bias_hh[i])
    }
}

fn sigmoid(x: f64) -> f64 {
    1.0 / (1.0 + (-x).exp())
}

#[test]
fn recurrent_cells_follow_a_scalar_loop() {
    let (inputs, hidden, batch) = (3, 2, 4);
    let mut rng = Rng::seed(9);
    let (x, h, c) = (random(&[batch, inputs], 1), random(&[batch, hidden], 2), random(&[batch, hidden], 3));
    let rows = |t: &Tensor, len: usize| -> Vec<Vec<f64>> { t.to_f64().chunks(len).map(<[f64]>::to_vec).collect() };
    let (xs, hs, cs) = (rows(&x, inputs), rows(&h, hidden), rows(&c, hidden));
    let each = |f: &dyn Fn(usize, usize) -> f64| -> Vec<f64> {
        (0..batch).flat_map(|n| (0..hidden).map(move |k| (n, k))).map(|(n, k)| f(n, k)).collect()
    };

    let rnn = Child::new(RNNCell::new(inputs, hidden, &mut rng));
    let w = Weights::of(&rnn.clone().erase());
    let expected = each(&|n, k| {
        let (i, h) = w.row(k, &xs[n], &hs[n]);
        (i + h).tanh()
    });
    assert_close(&rnn.step(&x, &h).unwrap(), &expected, 1e-6);

    let gru = Child::new(GRUCell::new(inputs, hidden, &mut rng));
    let w = Weights::of(&gru.clone().erase());
    let expected = each(&|n, k| {
        let gate = |g: usize| w.row(g * hidden + k, &xs[n], &hs[n]);
        let (r, z) = (sigmoid(gate(0).0 + gate(0).1), sigmoid(gate(1).0 + gate(1).1));
        let new = (gate(2).0 + r * gate(2).1).tanh();
        (1.0 - z) * new + z * hs[n][k]
    });
    assert_close(&gru.step(&x, &h).unwrap(), &expected, 1e-6);

    let lstm = Child::new(LSTMCell::new(inputs, hidden, &mut rng));
    let w = Weights::of(&lstm.clone().erase());
    let next = |n: usize, k: usize| {
        let gate = |g: usize| {
            let (i, h) = w.row(g * hidden + k, &xs[n], &hs[n]);
            i + h
        };
        let c = sigmoid(gate(1)) * cs[n][k] + sigmoid(gate(0)) * gate(2).tanh();
        (sigmoid(gate(3)) * c.tanh(), c)
    };
    let (h1, c1) = lstm.step(&x, (&h, &c)).unwrap();
    assert_close(&h1, &each(&|n, k| next(n, k).0), 1e-6);
    assert_close(&c1, &each(&|n, k| next(n, k).1), 1e-6);

    // Through `dyn Cell`, and one sample without a batch.
    let many = lstm.erase().call_many(&[x.clone(), h.clone(), c]).unwrap();
    assert_eq!((many[0].to_f64(), many[1].to_f64()), (h1.to_f64(), c1.to_f64()));
    let many = gru.clone().erase().call_many(&[x.clone(), h.clone()]).unwrap();
    assert_close(&many[0], &expected, 1e-6);
    let one = gru.step(&tensor(&xs[0], &[inputs]), &tensor(&hs[0], &[hidden])).unwrap();
    assert_close(&one, &expected[..hidden], 1e-6);
}

/// MindSpore 2.10 on its CPU, network `rnn_cells`: RNNCell, GRUCell and LSTMCell one after the other.
#[test]
fn recurrent_cells_give_mindspores_numbers() {
    let Some(file) = golden("mindspore/golden.json") else { return };
    let net = &file["nets"]["rnn_cells"];
    let runs = f32_runs(net);
    if runs.is_empty() {
        return left_out("a call of rnn_cells in f32");
    }
    let read = |json: &serde_json::Value| {
        let shape: Vec<usize> = serde_json::from_value(json["shape"].clone()).unwrap();
        let data: Vec<f64> = serde_json::from_value(json["data"].clone()).unwrap();
        tensor(&data, &shape)
    };
    let mut rng = Rng::seed(0);
    let rnn = Child::new(RNNCell::new(3, 4, &mut rng));
    let gru = Child::new(GRUCell::new(4, 4, &mut rng));
    let lstm = Child::new(LSTMCell::new(4, 4, &mut rng));
    let fc = Child::new(Dense::new(4, 2, &mut rng));
    let all = [
        ("rnn", rnn.named_params()),
        ("gru", gru.named_params()),
        ("lstm", lstm.named_params()),
        ("fc", fc.named_params()),
    ];
    for (cell, named) in all {
        for (path, param) in named {
            param.set(&read(&net["params"][&format!("{cell}.{path}")])).unwrap();
        }
    }
    let (x, h) = (read(&net["inputs"][0]), read(&net["inputs"][1]));
    let a = rnn.step(&x, &h).unwrap();
    let b = gru.step(&a, &h).unwrap();
    let (hy, cy) = lstm.step(&b, (&h, &h)).unwrap();
    for (_, out) in runs {
        assert_close(&fc.call(&hy).unwrap(), &read(&out[0]).to_f64(), 5e-7);
        assert_close(&cy, &read(&out[1]).to_f64(), 5e-7);
    }
}

#[test]
fn a_step_does_not_slip_past_the_adapter() {
    let mut lstm = Child::new(LSTMCell::new(2, 2, &mut Rng::seed(0))).to_float(DType::F16).unwrap();
    let (x, h) = (random(&[1, 2], 1), random(&[1, 2], 2));
    let (result, trace) = lstm.trace(|lstm| lstm.step(&x, (&h, &h)).unwrap());
    assert_eq!((result.0.dtype(), result.1.dtype()), (DType::F16, DType::F16));
    let mut others = trace.ops.iter().filter(|op| op.op != precast::Op::Cast);
    assert!(others.all(|op| op.output == DType::F16 && op.inputs.iter().all(|&d| d == DType::F16)));
    lstm.set_to_float(None).unwrap();
    assert_eq!(lstm.step(&x, (&h, &h)).unwrap().0.dtype(), DType::F32);
}

#[test]
fn wrong_inputs_of_recurrent_cells_are_named() {
    let gru = Child::new(GRUCell::new(3, 2, &mut Rng::seed(0)));
    let (x, h) = (random(&[4, 3], 1), random(&[4, 2], 2));
    // A state of batch 1 would broadcast, and silently be wrong.
    let error = gru.step(&x, &random(&[1, 2], 2)).unwrap_err().to_string();
    assert!(error.contains("an input of shape [4, 3] goes with a state of shape [4, 2], got [1, 2]"), "{error}");
    let error = gru.step(&random(&[4, 5], 1), &h).unwrap_err().to_string();
    assert!(error.contains("[4, 5]") && error.contains("[6, 3]"), "{error}");
    let gru = gru.erase();
    assert!(gru.call(&x).unwrap_err().to_string().contains("takes several inputs"));
    assert!(
        gru.call_many(&[x.clone(), h.clone(), h]).unwrap_err().to_string().contains("takes x and h, got 3 tensors")
    );
    let dense = Child::of(Dense::new(3, 2, &mut Rng::seed(0)));
    assert_eq!(dense.call_many(std::slice::from_ref(&x)).unwrap()[0].to_f64(), dense.call(&x).unwrap().to_f64());
    assert!(dense.call_many(&[x.clone(), x]).unwrap_err().to_string().contains("takes 1 input, got 2"));
}
