//! Unrecorded cases, with MindSpore's numbers computed by plain loops: a transposed convolution and a group norm at
//! level auto. The reader must explain them by name.

use precast::{DType, Tensor};
use serde_json::{Value, json};

use crate::common::golden::left_out;
use crate::mindspore::{
    golden::{Golden, Mode, Net, Record},
    judge,
};
use crate::replay::Verdict;

fn f16(x: f64) -> f64 {
    Tensor::scalar(x, DType::F16).item().unwrap()
}

fn numbers(net: &Net, name: &str) -> Vec<f64> {
    net.params[name].tensor().to_f64()
}

/// Makes the recording expected at level auto: no cell is wrapped.
fn record(net: &Net, shape: &[usize], out: Vec<f64>, cells: Value, ops: Value) -> Record {
    let rows: Vec<Value> =
        net.original_cells.iter().map(|row| json!({"path": row.path, "class": row.class, "flag": null})).collect();
    let out = json!({"dtype": "f32", "shape": shape, "data": out});
    let run = json!({"out": out, "cells": cells, "ops": ops});
    serde_json::from_value(json!({"cells": rows, "param_dtypes": ["f32"], "pynative": run})).unwrap()
}

fn explained_by(name: &str, net: &Net, record: &Record, difference: &str) {
    match judge(name, "auto/f16", net, record, Mode::PyNative, &mut 0) {
        Ok(Verdict::OnPurpose(names)) => assert_eq!(names, [difference]),
        Ok(Verdict::Agree) => panic!("{name}: our numbers are MindSpore's"),
        other => panic!("{name}: {other:?}"),
    }
}

/// The convolution runs in f16, the norm in f32 on parameters rounded to f16.
#[test]
fn a_group_norm_at_level_auto() {
    let Some(mut golden) = Golden::read() else { return };
    let Some(net) = golden.nets.remove("groupnorm") else { return left_out("the network groupnorm") };
    let x = net.inputs[0].leaves()[0].tensor().to_f64();
    let (w, gamma, beta) = (numbers(&net, "conv.weight"), numbers(&net, "gn.gamma"), numbers(&net, "gn.beta"));
    let conv = |at: usize| (0..2).map(|c| f16(w[2 * (at / 9) + c]) * f16(x[9 * c + at % 9])).sum::<f64>();
    let h: Vec<f64> = (0..36).map(|at| f16(conv(at))).collect();
    let mut out = vec![];
    for (group, h) in h.chunks(18).enumerate() {
        let mean = h.iter().sum::<f64>() / 18.0;
        let variance = h.iter().map(|x| x * x).sum::<f64>() / 18.0 - mean * mean;
        out.extend(h.iter().enumerate().map(|(i, x)| {
            let c = 2 * group + i / 9;
            ((x - mean) / (variance + 1e-5).sqrt() * f16(gamma[c]) + f16(beta[c])).max(0.0)
        }));
    }
    let cells = json!([
        ["<root>", ["f32"], ["f32"]],
        ["conv", ["f32"], ["f16"]],
        ["gn", ["f16"], ["f32"]],
        ["inorm", ["f32"], ["f32"]],
        ["relu", ["f32"], ["f32"]]
    ]);
    let ops = json!([
        ["conv", "Conv2D", ["f16", "f16"], ["f16"]],
        ["gn", "GroupNorm", ["f32", "f32", "f32"], ["f32", "f32", "f32"]],
        ["relu", "ReLU", ["f32"], ["f32"]]
    ]);
    let record = record(&net, &[1, 4, 3, 3], out, cells, ops);
    explained_by("groupnorm", &net, &record, "a norm reads its parameters as they are");
}

/// The 1-d layer calls an unlisted op and stays f32; the 2-d layer runs in f16, its bias in f32.
#[test]
fn transposed_convolutions_at_level_auto() {
    let Some(mut golden) = Golden::read() else { return };
    let Some(net) = golden.nets.remove("convtranspose") else { return left_out("the network convtranspose") };
    let x = net.inputs[0].leaves()[0].tensor().to_f64();
    let (w1, w2, bias) = (numbers(&net, "t1.weight"), numbers(&net, "t2.weight"), numbers(&net, "t2.bias"));
    // [2, 4] by [2, 2, 3] to [2, 6].
    let mut h = [0.0; 12];
    for (c, o, at, k) in (0..48).map(|i| (i / 24, i / 12 % 2, i / 3 % 4, i % 3)) {
        h[6 * o + at + k] += x[4 * c + at] * w1[6 * c + 3 * o + k];
    }
    // [2, 6] by [2, 3, 3] to [2, 4, 8].
    let mut y = [0.0; 64];
    for (o, at, k) in (0..216).map(|i| (i / 108, i / 9 % 12, i % 9)) {
        let (row, column) = (at / 6 + k / 3, at % 6 + k % 3);
        y[32 * o + 8 * row + column] += f16(h[at]) * f16(w2[9 * o + k]);
    }
    let out = y.iter().enumerate().map(|(i, y)| (f16(*y) + bias[i / 32]).max(0.0)).collect();
    let cells = json!([
        ["<root>", ["f32"], ["f32"]],
        ["t1", ["f32"], ["f32"]],
        ["t2", ["f32"], ["f32"]],
        ["relu", ["f32"], ["f32"]]
    ]);
    let ops = json!([
        ["t1", "ExpandDims", ["f32"], ["f32"]],
        ["t1", "Conv2DBackpropInput", ["f32", "f32"], ["f32"]],
        ["t1", "Squeeze", ["f32"], ["f32"]],
        ["<root>", "ExpandDims", ["f32"], ["f32"]],
        ["t2", "Conv2DTranspose", ["f16", "f16"], ["f16"]],
        ["t2", "BiasAdd", ["f32", "f32"], ["f32"]],
        ["relu", "ReLU", ["f32"], ["f32"]]
    ]);
    let record = record(&net, &[1, 2, 4, 8], out, cells, ops);
    explained_by("convtranspose", &net, &record, "one op under two names is treated alike");
}
