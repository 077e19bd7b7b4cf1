//! Twenty training steps beside torch 2.15 on a CPU: the same parameters and data, the same losses, skipped steps, scales
//! and final parameters. Recorded in `tests/goldens/torch/train.json`.

use precast::{
    Adam, ConvOptions, DType, Grads, LossScale, Optimizer, Outcome, Padding, Param, Result, Sgd, Tensor,
    cell::Params,
    policy::{DynamicScale, LossScaleSpec},
};
use serde_json::Value;

#[path = "common/golden.rs"]
mod golden;
use golden::golden;

fn tensor(recorded: &Value) -> Tensor {
    let bits = |v: &Value| f32::from_bits(v.as_u64().unwrap() as u32);
    let data: Vec<f32> = recorded["f32_bits"].as_array().unwrap().iter().map(bits).collect();
    let shape: Vec<usize> =
        recorded["shape"].as_array().unwrap().iter().map(|n| n.as_u64().unwrap() as usize).collect();
    Tensor::from_vec(data, &shape).unwrap()
}

/// A recorded network: its parameters, and its forward pass from the parameters in order. `Low` casts what torch's
/// autocast casts.
struct Net {
    params: Params,
    forward: Forward,
}

type Forward = fn(&[Tensor], Low, &Tensor) -> Result<Tensor>;

#[derive(Clone, Copy)]
struct Low(Option<DType>);

impl Low {
    fn cast(self, x: &Tensor) -> Tensor {
        self.0.map_or(x.clone(), |low| x.cast(low))
    }

    fn linear(self, x: &Tensor, weight: &Tensor, bias: &Tensor) -> Result<Tensor> {
        self.cast(x).linear(&self.cast(weight), Some(&self.cast(bias)))
    }
}

fn net(model: &str, init: &Value) -> Net {
    let (names, forward): (_, Forward) = match model {
        "mlp" => (["fc1.weight", "fc1.bias", "fc2.weight", "fc2.bias", "fc3.weight", "fc3.bias"], mlp),
        "cnn" => (["conv.weight", "conv.bias", "bn.weight", "bn.bias", "fc.weight", "fc.bias"], cnn),
        other => panic!("unknown model {other}"),
    };
    let params = names.iter().map(|&name| (name.to_string(), Param::new(tensor(&init[name])))).collect();
    Net { params, forward }
}

/// Linear, ReLU, Linear, GELU, Linear.
fn mlp(params: &[Tensor], low: Low, x: &Tensor) -> Result<Tensor> {
    let [w1, b1, w2, b2, w3, b3] = params else { unreachable!("six parameters") };
    let x = low.linear(x, w1, b1)?.relu()?;
    let x = low.linear(&x, w2, b2)?.gelu()?;
    low.linear(&x, w3, b3)
}

/// Convolution, BatchNorm in training, ReLU, MaxPool, Linear. The norm is on none of torch's lists: it takes a low input,
/// computes in f32 with f32 parameters, and answers low.
fn cnn(params: &[Tensor], low: Low, x: &Tensor) -> Result<Tensor> {
    let [conv, bias, gamma, beta, fc, fc_bias] = params else { unreachable!("six parameters") };
    let options = ConvOptions { padding: Padding::Explicit(vec![(1, 1)]), ..ConvOptions::default() };
    let x = low.cast(x).conv2d(&low.cast(conv), Some(&low.cast(bias)), &options)?;
    let (normal, _, _) = x.cast(DType::F32).batch_norm_train(Some(gamma), Some(beta), 1e-5)?;
    let x = normal.cast(x.dtype()).relu()?.max_pool2d(2, 2)?.flatten(1)?;
    low.linear(&x, fc, fc_bias)
}

impl Net {
    fn loss(&self, low: Low, x: &Tensor, y: &Tensor) -> Result<Tensor> {
        let params: Vec<Tensor> = self.params.iter().map(|(_, param)| param.tensor()).collect();
        (self.forward)(&params, low, x)?.cast(DType::F32).cross_entropy(y)
    }
}

/// torch's `clip_grad_norm_`: the total norm, and the gradients scaled down to it.
fn clip(grads: &mut Grads, params: &Params, most: f64) -> Result<f64> {
    let mut sum = 0.0;
    for (_, param) in params.iter() {
        sum += grads.get(param).unwrap().to_f64().iter().map(|g| g * g).sum::<f64>();
    }
    let norm = sum.sqrt();
    let factor = Tensor::scalar((most / (norm + 1e-6)).min(1.0), DType::F32);
    for (_, param) in params.iter() {
        let clipped = grads.get(param).unwrap().mul(&factor)?;
        grads.set(param, clipped);
    }
    Ok(norm)
}

fn close(ours: f64, theirs: f64, tolerance: f64, what: &str) {
    assert!((ours - theirs).abs() <= tolerance * theirs.abs().max(1.0), "{what}: ours {ours}, torch's {theirs}");
}

/// Before any difference is carried on, each gradient agrees within two units of its dtype at the size of the largest
/// (that of a bias before a norm is zero but for rounding); where torch's overflow, ours do.
fn first_gradients_agree(net: &Net, grads: &Grads, run: &Value, low: Low, what: &str) {
    let theirs = |path: &str| tensor(&run["step0_raw_grads"][path]).to_f64();
    let all = net.params.iter().flat_map(|(path, _)| theirs(path));
    let largest = all.filter(|g| g.is_finite()).fold(0.0, |m: f64, g| m.max(g.abs()));
    let tolerance = largest * low.0.map_or(1e-6, |low| 2.0 * low.epsilon());
    for (path, param) in net.params.iter() {
        for (ours, theirs) in grads.get(param).unwrap().to_f64().into_iter().zip(theirs(path)) {
            let agree = if theirs.is_finite() { (ours - theirs).abs() <= tolerance } else { !ours.is_finite() };
            assert!(agree, "{what} of {path}: ours {ours}, torch's {theirs}, largest {largest}");
        }
    }
}

fn follow(name: &str, model: &Value, run: &Value) -> Result<()> {
    let mode = run["mode"].as_str().unwrap();
    let low = Low(match mode {
        "fp32" => None,
        "bf16" => Some(DType::Bf16),
        "fp16" => Some(DType::F16),
        other => panic!("unknown mode {other}"),
    });
    let net = net(name, &model["init"]);
    let lr = run["lr"].as_f64().unwrap();
    let opt = run["opt"].as_str().unwrap();
    let mut optimizer: Box<dyn Optimizer> = match opt {
        "sgd" => Box::new(Sgd::new(net.params.clone(), lr)),
        "sgdm" => Box::new(Sgd::new(net.params.clone(), lr).momentum(0.9).weight_decay(1e-4)),
        "adam" => Box::new(Adam::new(net.params.clone(), lr)),
        other => panic!("unknown optimizer {other}"),
    };
    let mut scale = match run["scaler"].as_object() {
        None => LossScale::none(),
        Some(scaler) => LossScale::new(LossScaleSpec::Dynamic(DynamicScale {
            init: scaler["init_scale"].as_f64().unwrap() as f32,
            interval: scaler["growth_interval"].as_u64().unwrap() as u32,
            max: f32::MAX,
            ..DynamicScale::default()
        }))?,
    };
    // f32 sums differ in their order. Rounded to 16 bit, such a difference becomes one unit in the last place of an
    // activation here and there, in one of eight examples: less than a unit in the mean loss. Momentum and Adam carry it on.
    let carried = if opt == "sgd" { 1.0 } else { 20.0 };
    let tolerance = low.0.map_or(2e-6, |low| carried * low.epsilon());
    let (x, y) = (tensor(&model["x"]), &model["y"].as_array().unwrap());
    for (i, recorded) in run["steps"].as_array().unwrap().iter().enumerate() {
        let what = |what: &str| format!("{name} {mode} {opt} {}, step {i}, {what}", run["scaler"]);
        let rows = (i % 4) * 8..(i % 4) * 8 + 8;
        let batch = x.slice(0, rows.clone())?;
        let labels = Tensor::from_vec(y[rows].iter().map(|y| y.as_i64().unwrap()).collect(), &[8])?;
        let loss = net.loss(low, &batch, &labels)?;
        if i == 0 {
            first_gradients_agree(&net, &scale.scale(&loss)?.backward()?, run, low, &what("gradients"));
        }
        close(loss.item()?, recorded["loss"].as_f64().unwrap(), tolerance, &what("loss"));
        let stepped = match run["clip"].as_f64() {
            None => scale.step(optimizer.as_mut(), &loss)? == Outcome::Stepped,
            // Clipping needs the pieces of a step: it stands between taking the scale out and updating.
            Some(most) => {
                let mut grads = scale.scale(&loss)?.backward()?;
                let finite = scale.unscale(&mut grads, &net.params).is_none();
                if finite {
                    let norm = clip(&mut grads, &net.params, most)?;
                    close(norm, recorded["grad_norm"].as_f64().unwrap(), tolerance, &what("gradient norm"));
                    optimizer.update(&grads)?;
                }
                scale.adjust(finite);
                finite
            }
        };
        assert_eq!(stepped, recorded["stepped"].as_bool().unwrap(), "{}", what("stepped"));
        if run["scaler"].is_object() {
            let state = scale.state();
            assert_eq!(f64::from(state.scale), recorded["scale"].as_f64().unwrap(), "{}", what("scale"));
            assert_eq!(u64::from(state.counter), recorded["growth_tracker"].as_u64().unwrap(), "{}", what("counter"));
        }
    }
    // The bias before a norm has no gradient but rounding, which Adam takes for a full one: its way is chance.
    let chance = |path: &str| opt == "adam" && path == "conv.bias";
    for (path, param) in net.params.iter().filter(|(path, _)| !chance(path)) {
        let theirs = tensor(&run["final_params"][path]).to_f64();
        for (ours, theirs) in param.value().to_f64().iter().zip(theirs) {
            close(*ours, theirs, tolerance, &format!("{name} {mode} {opt} {} at the end, {path}", run["scaler"]));
        }
    }
    Ok(())
}

#[test]
fn twenty_steps_go_as_in_torch() {
    let Some(golden) = golden("torch/train.json") else { return };
    for (name, model) in golden["models"].as_object().into_iter().flatten() {
        for run in model["runs"].as_array().into_iter().flatten() {
            follow(name, model, run).unwrap();
        }
    }
}
