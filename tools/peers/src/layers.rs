//! Layers with their options compared with torch.nn: results, gradients of inputs and parameters, and running
//! statistics.

use std::slice;

use precast::{Child, DType, Result, Tensor, io::models};
use serde_json::{Value, json};

use crate::{
    draw::{Draw, Values},
    peer::Peer,
};

/// A layer as described in an architecture file, with its inputs.
pub struct Configuration {
    layer: Value,
    inputs: Vec<Vec<usize>>,
    training: bool,
}

/// Overlays options on others.
fn with(base: &Value, more: &Value) -> Value {
    let mut all = base.as_object().cloned().unwrap_or_default();
    all.extend(more.as_object().cloned().unwrap_or_default());
    Value::Object(all)
}

/// Returns every configuration that is compared.
pub fn configurations() -> Vec<Configuration> {
    let mut all = Vec::new();
    let mut add = |layer: Value, inputs: &[&[usize]], training: bool| {
        let inputs = inputs.iter().map(|shape| shape.to_vec()).collect();
        all.push(Configuration { layer, inputs, training });
    };
    for [inward, outward] in [[4, 5], [1, 1], [33, 17]] {
        for bias in [true, false] {
            let layer = json!({"kind": "Dense", "in_features": inward, "out_features": outward, "bias": bias});
            add(layer.clone(), &[&[3, inward]], true);
            add(layer, &[&[2, 3, inward]], true);
        }
    }
    for axes in 1..=3 {
        let spatial = &[[11, 8, 7], [9, 7, 6], [6, 5, 6]][axes - 1][..axes];
        let input = [&[2, 4], spatial].concat();
        let base = json!({"kind": format!("Conv{axes}d"), "in_channels": 4, "out_channels": 6, "kernel_size": 3});
        for more in [
            json!({}),
            json!({"stride": 2}),
            json!({"padding": 1}),
            json!({"dilation": 2}),
            json!({"groups": 2}),
            json!({"bias": false}),
            json!({"stride": 2, "padding": 2, "dilation": 2, "groups": 2}),
            json!({"kernel_size": 1}),
            json!({"groups": 4, "out_channels": 8}),
            json!({"kernel_size": &[3, 2, 1][..axes], "stride": &[1, 2, 2][..axes]}),
            json!({"padding": "same"}),
        ] {
            add(with(&base, &more), &[&input], true);
        }
        let transposed = with(&base, &json!({"kind": format!("Conv{axes}dTranspose"), "padding": 0}));
        for more in [
            json!({}),
            json!({"stride": 2}),
            json!({"padding": 1}),
            json!({"stride": 2, "output_padding": 1}),
            json!({"dilation": 2}),
            json!({"groups": 2}),
            json!({"bias": false}),
            json!({"stride": 3, "padding": 1, "output_padding": 2, "dilation": 2, "groups": 2}),
        ] {
            add(with(&transposed, &more), &[&input], true);
        }
        for more in [
            json!({"kernel_size": 2}),
            json!({"kernel_size": 3, "stride": 2}),
            json!({"kernel_size": 3, "stride": 2, "padding": 1}),
            json!({"kernel_size": 3, "stride": 2, "ceil": true}),
            json!({"kernel_size": 2, "stride": 1}),
        ] {
            add(with(&json!({"kind": format!("MaxPool{axes}d")}), &more), &[&input], true);
            add(with(&json!({"kind": format!("AvgPool{axes}d")}), &more), &[&input], true);
        }
        let without = json!({"kernel_size": 3, "stride": 2, "padding": 1, "count_include_pad": false});
        add(with(&json!({"kind": format!("AvgPool{axes}d")}), &without), &[&input], true);
        for output in [1, 2, 4] {
            let layer = json!({"kind": format!("AdaptiveAvgPool{axes}d"), "output_size": output});
            add(layer, &[&input], true);
        }
        for more in [json!({}), json!({"affine": false}), json!({"momentum": 0.3}), json!({"eps": 1e-3})] {
            for training in [true, false] {
                let layer = with(&json!({"kind": format!("BatchNorm{axes}d"), "num_features": 4}), &more);
                add(layer, &[&input], training);
            }
        }
        for affine in [true, false] {
            let layer = json!({"kind": format!("InstanceNorm{axes}d"), "num_features": 4, "affine": affine});
            add(layer, &[&input], true);
        }
    }
    for training in [true, false] {
        add(json!({"kind": "BatchNorm1d", "num_features": 5}), &[&[7, 5]], training);
    }
    for (shape, more) in [
        (&[5][..], json!({})),
        (&[3, 5], json!({})),
        (&[5], json!({"affine": false})),
        (&[5], json!({"eps": 1e-3})),
        (&[300], json!({})),
    ] {
        let input = [&[4, 3][..], if shape.len() == 2 { &[5] } else { shape }].concat();
        add(with(&json!({"kind": "LayerNorm", "normalized_shape": shape}), &more), &[&input], true);
    }
    for groups in [1, 2, 4] {
        for affine in [true, false] {
            let layer = json!({"kind": "GroupNorm", "num_groups": groups, "num_channels": 4, "affine": affine});
            add(layer, &[&[3, 4, 5]], true);
        }
    }
    for eps in [1e-5, 1e-3] {
        add(json!({"kind": "RmsNorm", "num_features": 6, "eps": eps}), &[&[4, 6]], true);
    }
    for ids in [&[7][..], &[2, 5]] {
        add(json!({"kind": "Embedding", "vocab_size": 9, "embedding_size": 5}), &[ids], true);
    }
    for channels in [1, 4] {
        add(json!({"kind": "PReLU", "channels": channels}), &[&[3, 4, 5]], true);
    }
    for kind in ["RNN", "GRU", "LSTM"] {
        for num_layers in [1, 2] {
            for (bidirectional, bias) in [(false, true), (true, true), (false, false), (true, false)] {
                let layer = json!({
                    "kind": kind, "input_size": 5, "hidden_size": 4,
                    "num_layers": num_layers, "bidirectional": bidirectional, "bias": bias,
                });
                let (input, state) = ([3, 6, 5], [num_layers * (1 + usize::from(bidirectional)), 3, 4]);
                let states = &[&input[..], &state, &state][..if kind == "LSTM" { 3 } else { 2 }];
                add(layer.clone(), if bias { states } else { &states[..1] }, true);
                if kind == "RNN" {
                    add(with(&layer, &json!({"relu": true})), &states[..1], true);
                }
            }
        }
        for bias in [true, false] {
            let layer = json!({"kind": format!("{kind}Cell"), "input_size": 5, "hidden_size": 4, "bias": bias});
            let states = [&[3, 5][..], &[3, 4], &[3, 4]];
            add(layer, &states[..if kind == "LSTM" { 3 } else { 2 }], true);
        }
    }
    for [embed, heads] in [[8, 2], [6, 3], [4, 1]] {
        for (bias, causal) in [(true, false), (true, true), (false, false), (false, true)] {
            let layer = json!({
                "kind": "MultiheadAttention", "embed_dim": embed, "num_heads": heads, "bias": bias, "causal": causal,
            });
            add(layer.clone(), &[&[3, 5, embed]], true);
            if !causal {
                add(layer, &[&[3, 5, embed], &[3, 7, embed], &[3, 7, embed]], true);
            }
        }
    }
    for activation in [
        json!({"kind": "ReLU"}),
        json!({"kind": "ReLU6"}),
        json!({"kind": "SiLU"}),
        json!({"kind": "Sigmoid"}),
        json!({"kind": "Tanh"}),
        json!({"kind": "Softplus"}),
        json!({"kind": "HSigmoid"}),
        json!({"kind": "HSwish"}),
        json!({"kind": "HardTanh"}),
        json!({"kind": "LeakyReLU"}),
        json!({"kind": "LeakyReLU", "slope": 0.25}),
        json!({"kind": "ELU"}),
        json!({"kind": "ELU", "alpha": 0.5}),
        json!({"kind": "GELU"}),
        json!({"kind": "GELU", "approximate": true}),
        json!({"kind": "Softmax"}),
        json!({"kind": "Softmax", "axis": 1}),
        json!({"kind": "LogSoftmax"}),
        json!({"kind": "LogSoftmax", "axis": 0}),
        json!({"kind": "Flatten"}),
        json!({"kind": "Flatten", "start_axis": 0}),
    ] {
        add(activation, &[&[4, 5, 6]], true);
    }
    all
}

/// Result of comparing a layer: the largest error, in units of f32's epsilon; for a result relative to its largest
/// number, for gradients to the largest of all, since that of a bias before a softmax is 0 except for rounding.
pub struct Compared {
    pub name: String,
    pub ours: f64,
    pub torch: f64,
}

/// Builds a network from its description, with redrawn parameters so that no bias is 0 and no weight 1.
pub fn network(description: &Value, draw: &mut Draw) -> Result<Child> {
    let text = json!({"version": 1, "net": description}).to_string();
    let net = models::parse(&text, "peers", 0)?;
    for (path, param) in net.named_params() {
        let range = if path.ends_with("running_var") { 0.5..2.0 } else { -0.6..0.6 };
        let shift = if path.ends_with("weight") && param.shape().len() == 1 { 1.0 } else { 0.0 };
        param.set(&draw.plain(&param.shape(), range.start + shift..range.end + shift)?)?;
    }
    Ok(net)
}

/// Returns the names and numbers of a network's parameters and buffers, as sent to torch.
pub fn parameters(net: &Child) -> (Vec<Value>, Vec<Vec<f64>>) {
    let params = net.named_params();
    let abouts = params.iter().map(|(path, p)| json!({"path": path, "shape": p.shape(), "trained": p.is_trained()}));
    (abouts.collect(), params.iter().map(|(_, p)| p.value().to_f64()).collect())
}

/// Runs a layer here and in torch.
pub fn compare(peer: &mut Peer, seed: u64, configuration: &Configuration) -> std::result::Result<Compared, String> {
    let Configuration { layer, inputs, training } = configuration;
    let shapes: Vec<String> = inputs.iter().map(|shape| format!("{shape:?}")).collect();
    let name = format!("{layer} {}{}", shapes.join(", "), if *training { "" } else { " in evaluation" });
    let fail = |why: String| format!("{name}: {why}");
    let (ours, question, arrays) = ours(seed, configuration).map_err(|error| fail(error.to_string()))?;
    let outputs = question["outputs"].as_u64().unwrap_or(0) as usize;
    let (_, answer) = peer.ask(question, &arrays).map_err(fail)?;
    if answer.len() != 2 * ours.len() {
        return Err(fail(format!("{} results and gradients, torch has {}", ours.len(), answer.len() / 2)));
    }
    let (exact, torch) = answer.split_at(ours.len());
    let worst = |numbers: &[Vec<f64>]| -> std::result::Result<f64, String> {
        let mut worst = 0.0f64;
        let largest_of = |arrays: &[Vec<f64>]| arrays.iter().flatten().fold(f64::MIN_POSITIVE, |m, x| m.max(x.abs()));
        let gradients = largest_of(&exact[outputs..]);
        for (i, (numbers, exact)) in numbers.iter().zip(exact).enumerate() {
            if numbers.len() != exact.len() {
                return Err(format!("{} numbers, torch has {}", numbers.len(), exact.len()));
            }
            let largest = if i < outputs { largest_of(slice::from_ref(exact)) } else { gradients };
            for (a, b) in numbers.iter().zip(exact) {
                let error = (a - b).abs() / largest / f64::from(f32::EPSILON);
                worst = worst.max(if error.is_nan() { f64::INFINITY } else { error });
            }
        }
        Ok(worst)
    };
    let (ours, torch) = (worst(&ours).map_err(fail)?, worst(torch).map_err(fail)?);
    Ok(Compared { name, ours, torch })
}

/// Our results, the gradients of inputs and parameters, the buffers; the question for torch, and its arrays.
type Ours = (Vec<Vec<f64>>, Value, Vec<Vec<f64>>);

fn ours(seed: u64, configuration: &Configuration) -> Result<Ours> {
    let Configuration { layer, inputs, training } = configuration;
    let mut draw = Draw::new(seed, DType::F32, Values::Plain);
    let mut net = network(layer, &mut draw)?;
    let (abouts, before) = parameters(&net);
    net.set_train(*training);
    let ids = layer["vocab_size"].as_u64();
    let inputs: Vec<Tensor> = inputs
        .iter()
        .map(|shape| match ids {
            Some(n) => draw.indices(shape, n as usize),
            None => Ok(draw.float(shape)?.requires_grad()),
        })
        .collect::<Result<_>>()?;
    let outputs = net.call_many(&inputs)?;
    let mut arrays = before;
    arrays.extend(inputs.iter().map(Tensor::to_f64));
    let mut sum = Tensor::scalar(0.0, DType::F32);
    for output in &outputs {
        let seed = draw.plain(output.shape(), -1.0..1.0)?;
        arrays.push(seed.to_f64());
        sum = sum.add(&output.mul(&seed)?.sum_all()?)?;
    }
    let grads = sum.backward()?;
    let zeros = |n: usize| vec![0.0; n];
    let mut results: Vec<Vec<f64>> = outputs.iter().map(Tensor::to_f64).collect();
    for input in inputs.iter().filter(|x| x.dtype().is_float()) {
        results.push(grads.of(input).map_or(zeros(input.len()), |grad| grad.to_f64()));
    }
    for (_, param) in net.named_params() {
        results.push(if param.is_trained() {
            grads.get(&param).map_or(zeros(param.value().len()), |grad| grad.to_f64())
        } else {
            param.value().to_f64()
        });
    }
    let question = json!({
        "ask": "layer", "layer": layer, "training": training, "parameters": abouts,
        "inputs": inputs.iter().map(|x| crate::peer::about(x, x.dtype().is_float())).collect::<Vec<_>>(),
        "outputs": outputs.len(),
    });
    Ok((results, question, arrays))
}
