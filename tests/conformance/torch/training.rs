//! Training under autocast compared with torch 2.15 on a CPU: the same parameters and data, the same dtypes, losses,
//! gradients, skipped steps, scales and final parameters. `train.json` has runs of twenty steps from the same initial
//! parameters; `train_steps.json` has the parameters and gradients of each step, so that each can begin where torch's
//! began.

use precast::{
    Adam, Autocast, ConvOptions, DType, Grads, LossScale, Op, Optimizer, Outcome, Padding, Param, Result, Sgd, Tensor,
    autocast,
    cell::Params,
    observe,
    policy::{DynamicScale, LossScaleSpec},
};
use serde_json::Value;

use crate::common::golden::golden;
use crate::replay::{entries, items};

fn tensor(recorded: &Value) -> Tensor {
    let bits = |v: &Value| f32::from_bits(v.as_u64().unwrap() as u32);
    let data: Vec<f32> = recorded["f32_bits"].as_array().unwrap().iter().map(bits).collect();
    let shape: Vec<usize> =
        recorded["shape"].as_array().unwrap().iter().map(|n| n.as_u64().unwrap() as usize).collect();
    Tensor::from_vec(data, &shape).unwrap()
}

/// A recorded network: its parameters, and its forward pass from the parameters in order.
struct Net {
    params: Params,
    forward: Forward,
    /// Region that it runs in, if any.
    region: Option<Autocast>,
}

type Forward = fn(&[Tensor], &Tensor) -> Result<Tensor>;

fn net(model: &str, init: &Value, low: Option<DType>) -> Net {
    let (names, forward): (_, Forward) = match model {
        "mlp" => (["fc1.weight", "fc1.bias", "fc2.weight", "fc2.bias", "fc3.weight", "fc3.bias"], mlp),
        "cnn" => (["conv.weight", "conv.bias", "bn.weight", "bn.bias", "fc.weight", "fc.bias"], cnn),
        other => panic!("unknown model {other}"),
    };
    let params = names.iter().map(|&name| (name.to_string(), Param::new(tensor(&init[name])))).collect();
    let region = low.map(|low| Autocast::new("torch-2.15-cpu").unwrap().dtype(low));
    Net { params, forward, region }
}

/// Computes Linear, ReLU, Linear, GELU, Linear.
fn mlp(params: &[Tensor], x: &Tensor) -> Result<Tensor> {
    let [w1, b1, w2, b2, w3, b3] = params else { unreachable!("six parameters") };
    x.linear(w1, Some(b1))?.relu()?.linear(w2, Some(b2))?.gelu()?.linear(w3, Some(b3))
}

/// Computes Convolution, BatchNorm in training, ReLU, MaxPool, Linear.
fn cnn(params: &[Tensor], x: &Tensor) -> Result<Tensor> {
    let [conv, bias, gamma, beta, fc, fc_bias] = params else { unreachable!("six parameters") };
    let options = ConvOptions::default().padding(Padding::Explicit(vec![(1, 1)]));
    let (normal, _, _) = x.conv2d(conv, Some(bias), &options)?.batch_norm_train(Some(gamma), Some(beta), 1e-5)?;
    normal.relu()?.max_pool2d(2, 2)?.flatten(1)?.linear(fc, Some(fc_bias))
}

impl Net {
    /// Computes the logits and the loss, both in the region.
    fn loss(&self, x: &Tensor, y: &Tensor) -> Result<(Tensor, Tensor)> {
        let run = || {
            let params: Vec<Tensor> = self.params.iter().map(|(_, param)| param.tensor()).collect();
            let logits = (self.forward)(&params, x)?;
            let loss = logits.cross_entropy(y)?;
            Ok((logits, loss))
        };
        match &self.region {
            Some(region) => autocast(region, run),
            None => run(),
        }
    }

    fn values(&self) -> Vec<f64> {
        self.params.iter().flat_map(|(_, param)| param.value().to_f64()).collect()
    }

    /// Returns all gradients, in the order of the parameters.
    fn gathered(&self, grads: &Grads) -> Vec<f64> {
        self.params.iter().flat_map(|(_, param)| grads.get(param).unwrap().to_f64()).collect()
    }
}

/// Returns the dtype of a mode's region.
fn low(run: &Value) -> Option<DType> {
    match run["mode"].as_str().unwrap() {
        "fp32" => None,
        "bf16" => Some(DType::Bf16),
        "fp16" => Some(DType::F16),
        other => panic!("unknown mode {other}"),
    }
}

/// Returns the tolerance of one step, relative to the largest number: one unit of the rounding of activations and
/// gradients. f32 sums have another order; a low number rounded from one may be the neighbour.
fn unit(low: Option<DType>) -> f64 {
    low.map_or(16.0 * DType::F32.epsilon(), DType::epsilon)
}

fn optimizer(run: &Value, params: &Params) -> Box<dyn Optimizer> {
    let (params, lr) = (params.clone(), run["lr"].as_f64().unwrap());
    match run["opt"].as_str().unwrap() {
        "sgd" => Box::new(Sgd::new(params, lr)),
        "sgdm" => Box::new(Sgd::new(params, lr).momentum(0.9).weight_decay(1e-4)),
        "adam" => Box::new(Adam::new(params, lr)),
        other => panic!("unknown optimizer {other}"),
    }
}

fn loss_scale(run: &Value) -> Result<LossScale> {
    let Some(scaler) = run["scaler"].as_object() else { return Ok(LossScale::none()) };
    let usual = DynamicScale::torch();
    let said = |key: &str| scaler.get(key).map(|number| number.as_f64().unwrap());
    LossScale::new(LossScaleSpec::Dynamic(
        DynamicScale::torch()
            .init(said("init_scale").map_or(usual.init, |init| init as f32))
            .growth(said("growth_factor").unwrap_or(usual.growth))
            .backoff(said("backoff_factor").unwrap_or(usual.backoff))
            .interval(said("growth_interval").map_or(usual.interval, |interval| interval as u32)),
    ))
}

/// Returns the eight examples of a step.
fn batch(model: &Value, step: usize) -> Result<(Tensor, Tensor)> {
    let rows = (step % 4) * 8..(step % 4) * 8 + 8;
    let x = tensor(&model["x"]).slice(0, rows.clone())?;
    let y = &model["y"].as_array().unwrap()[rows];
    Ok((x, Tensor::from_vec(y.iter().map(|y| y.as_i64().unwrap()).collect(), &[8])?))
}

fn norm(numbers: &[f64]) -> f64 {
    numbers.iter().map(|x| x * x).sum::<f64>().sqrt()
}

fn difference(a: &[f64], b: &[f64]) -> Vec<f64> {
    assert_eq!(a.len(), b.len());
    a.iter().zip(b).map(|(a, b)| a - b).collect()
}

/// Returns gradients of a loss scaled by hand, for inspection.
fn scaled(loss: &Tensor, scale: &LossScale) -> Result<Grads> {
    loss.mul(&Tensor::scalar(scale.value().into(), DType::F32))?.backward()
}

fn close(ours: f64, theirs: f64, tolerance: f64, what: &str) {
    assert!((ours - theirs).abs() <= tolerance, "{what}: ours {ours}, torch's {theirs}, within {tolerance:e}");
}

fn largest(gradient: &Tensor) -> f64 {
    gradient.to_f64().into_iter().filter(|g| g.is_finite()).fold(0.0, |m, g| m.max(g.abs()))
}

/// Checks that from the same parameters each gradient agrees within two units at the magnitude of the largest of its
/// parameter, and that ours overflow where torch's do.
fn gradients_agree(net: &Net, ours: &Grads, theirs: &[Tensor], low: Option<DType>, what: &str) {
    let of = |path: &str| net.params.iter().position(|(p, _)| p == path).map(|at| largest(&theirs[at]));
    for ((path, param), theirs) in net.params.iter().zip(theirs) {
        let tolerance = match path {
            // The norm after this bias removes its mean. Its gradient is therefore zero except for rounding of the same
            // numbers that the gradient of the weight sums.
            "conv.bias" => 0.5 * unit(low) * of("conv.weight").unwrap(),
            _ => 2.0 * unit(low) * largest(theirs),
        };
        let (ours, theirs) = (ours.get(param).unwrap().to_f64(), theirs.to_f64());
        assert_eq!(ours.len(), theirs.len());
        for (i, (ours, theirs)) in ours.into_iter().zip(theirs).enumerate() {
            let agree = if theirs.is_finite() { (ours - theirs).abs() <= tolerance } else { !ours.is_finite() };
            assert!(agree, "{what}, gradient {i} of {path}: ours {ours}, torch's {theirs}, within {tolerance:e}");
        }
    }
}

/// Checks the first forward pass: every op runs in the dtype in which torch ran it, and the logits are torch's.
fn first_pass_agrees(net: &Net, run: &Value, x: &Tensor, y: &Tensor, what: &str) {
    let (result, events) = observe::watch(|| net.loss(x, y));
    let (logits, loss) = result.unwrap();
    assert_eq!(loss.dtype().name(), run["steps"][0]["loss_dtype"], "{what}");
    for (layer, dtype) in run["act_dtypes"].as_object().unwrap() {
        let op = match layer.trim_end_matches(|c: char| c.is_ascii_digit()) {
            "fc" => Op::Linear,
            "conv" => Op::Conv2d,
            "bn" => Op::BatchNorm,
            "relu" => Op::Relu,
            "gelu" => Op::Gelu,
            "pool" => Op::MaxPool2d,
            other => panic!("unknown layer {other}"),
        };
        let met: Vec<&str> = events.iter().filter(|event| event.op == op).map(|event| event.output.name()).collect();
        assert!(
            !met.is_empty() && met.iter().all(|met| met == dtype),
            "{what}, {layer}: ours {met:?}, torch's {dtype}"
        );
    }
    let theirs = tensor(&run["step0_logits"]).to_f64();
    let largest = theirs.iter().fold(0.0, |m: f64, x| m.max(x.abs()));
    for (ours, theirs) in logits.to_f64().into_iter().zip(theirs) {
        close(ours, theirs, unit(low(run)) * largest, &format!("{what}, logits"));
    }
}

/// Allowed distance of the parameters from torch's after some steps: each gradient is off by at most two units of the
/// largest, and so is a step of SGD. Adam divides by the magnitude of an element's own gradients, so its step is off by
/// more, by the ratio of the largest gradient to a typical one.
struct Apart {
    adam: bool,
    unit: f64,
    /// Norm of all parameters' differences.
    most: f64,
}

impl Apart {
    fn new(run: &Value) -> Self {
        Apart { adam: run["opt"] == "adam", unit: unit(low(run)), most: 0.0 }
    }

    /// Adds a step of this length, taken by these gradients.
    fn step(&mut self, length: f64, grads: &[f64]) {
        let largest = grads.iter().fold(0.0, |m: f64, g| m.max(g.abs()));
        let usual = norm(grads) / (grads.len() as f64).sqrt();
        let larger = if self.adam { largest / usual } else { 1.0 };
        self.most += 2.0 * self.unit * larger * length;
    }
}

fn follow(name: &str, model: &Value, run: &Value) -> Result<()> {
    let low = low(run);
    let net = net(name, &model["init"], low);
    let mut optimizer = optimizer(run, &net.params);
    let mut scale = loss_scale(run)?;
    let run_name = format!("{name} {} {} {} clip {}", run["mode"], run["opt"], run["scaler"], run["clip"]);
    let mut apart = Apart::new(run);
    for (i, recorded) in run["steps"].as_array().unwrap().iter().enumerate() {
        let what = |what: &str| format!("{run_name}, step {i}, {what}");
        let (x, y) = batch(model, i)?;
        if i == 0 {
            first_pass_agrees(&net, run, &x, &y, &run_name);
        }
        let (_, loss) = net.loss(&x, &y)?;
        let raw = scaled(&loss, &scale)?;
        let raw_numbers = net.gathered(&raw);
        if i == 0 {
            let of = |path| {
                let dtype =
                    net.params.iter().find(|(p, _)| p == &path).map(|(_, p)| raw.get(p).unwrap().dtype().name());
                assert_eq!(run["grad_dtypes"][path], dtype.unwrap(), "{}", what(path));
                tensor(&run["step0_raw_grads"][path])
            };
            let theirs: Vec<Tensor> = net.params.iter().map(|(path, _)| of(path)).collect();
            gradients_agree(&net, &raw, &theirs, low, &what("from the first parameters"));
        }
        let slopes: Vec<f64> = raw_numbers.iter().map(|g| g / f64::from(scale.value())).collect();
        // The error of the loss itself, and its change from one place to the other.
        let slope = if norm(&slopes).is_finite() { norm(&slopes) } else { 1.0 };
        let most = apart.unit * loss.item()?.abs().max(1.0) + slope * apart.most;
        close(loss.item()?, recorded["loss"].as_f64().unwrap(), most, &what("loss"));
        let before = net.values();
        let stepped = match run["clip"].as_f64() {
            None => scale.step(optimizer.as_mut(), &loss)? == Outcome::Stepped,
            // Clipping needs the parts of a step: it comes between unscaling and updating.
            Some(most) => {
                let mut grads = scale.scale(&loss)?.backward()?.unscale(&net.params)?;
                let norm = grads.clip_norm(most)?;
                if grads.non_finite().is_none() {
                    let theirs = recorded["grad_norm"].as_f64().unwrap();
                    close(norm, theirs, 2.0 * apart.unit * theirs + apart.most, &what("gradient norm"));
                }
                let outcome = scale.apply(optimizer.as_mut(), &grads)?;
                scale.update()?;
                outcome == Outcome::Stepped
            }
        };
        if stepped {
            apart.step(norm(&difference(&net.values(), &before)), &slopes);
        }
        assert_eq!(stepped, recorded["stepped"].as_bool().unwrap(), "{}", what("stepped"));
        if run["scaler"].is_object() {
            let state = scale.state();
            assert_eq!(f64::from(state.scale), recorded["scale"].as_f64().unwrap(), "{}", what("scale"));
            assert_eq!(u64::from(state.counter), recorded["growth_tracker"].as_u64().unwrap(), "{}", what("counter"));
        }
    }
    // The bias before a norm has no gradient except rounding, and Adam's steps have one length whatever the gradient
    // is, so that bias moves at random.
    let counted = |(path, _): &(&str, &Param)| !(apart.adam && *path == "conv.bias");
    let ours: Vec<f64> = net.params.iter().filter(counted).flat_map(|(_, param)| param.value().to_f64()).collect();
    let end = |run: &Value| -> Vec<f64> {
        let params = net.params.iter().filter(counted);
        params.flat_map(|(path, _)| tensor(&run["final_params"][path]).to_f64()).collect()
    };
    let met = norm(&difference(&ours, &end(run)));
    println!("{run_name}: {met:.1e} apart, of {:.1e}", apart.most);
    assert!(met <= apart.most, "{run_name}: {met:e} apart, not {:e}", apart.most);
    // Ours ends nearer to torch's run than torch's own f32 run does, so the region was active.
    let steps = |run: &Value| run["steps"].as_array().map(Vec::len);
    let alike =
        |other: &&Value| ["opt", "lr", "clip"].iter().all(|key| other[key] == run[key]) && steps(other) == steps(run);
    let wide = model["runs"].as_array().unwrap().iter().filter(alike).find(|other| other["mode"] == "fp32");
    if let (Some(_), Some(wide)) = (low, wide) {
        let far = norm(&difference(&end(wide), &end(run)));
        println!("    in f32 it is {far:.1e} apart");
        assert!(met < far, "{run_name}: {met:e} apart, and {far:e} in f32");
    }
    Ok(())
}

#[test]
fn twenty_steps_go_as_in_torch() {
    let Some(golden) = golden("torch/train.json") else { return };
    for (name, model) in entries(&golden["models"]) {
        for run in items(&model["runs"]) {
            follow(name, model, run).unwrap();
        }
    }
}

/// Parses numbers of eight hexadecimal digits each.
fn numbers(text: &Value) -> Vec<f32> {
    let digits = text.as_str().unwrap().as_bytes().chunks(8);
    let number = |digits| u32::from_str_radix(str::from_utf8(digits).unwrap(), 16).unwrap();
    digits.map(|digits| f32::from_bits(number(digits))).collect()
}

/// Splits the concatenated numbers of all parameters into a tensor for each.
fn for_each_parameter(params: &Params, all: &[f32]) -> Vec<Tensor> {
    let mut rest = all;
    let tensors = params.iter().map(|(_, param)| {
        let (mine, others) = rest.split_at(param.value().len());
        rest = others;
        Tensor::from_vec(mine.to_vec(), &param.shape()).unwrap()
    });
    let tensors = tensors.collect();
    assert!(rest.is_empty());
    tensors
}

/// Runs each step from torch's parameters, and checks the loss, the gradients, and the optimizer's result for torch's
/// gradients.
fn steps_from_the_recorded(name: &str, model: &Value, run: &Value) -> Result<()> {
    let low = low(run);
    let net = net(name, &model["init"], low);
    let mut optimizer = optimizer(run, &net.params);
    let mut scale = loss_scale(run)?;
    let steps = run["steps"].as_array().unwrap();
    for (i, recorded) in steps.iter().enumerate() {
        let what = format!("{name} {} {} step {i}", run["mode"], run["opt"]);
        let before = numbers(&recorded["params"]);
        for ((_, param), value) in net.params.iter().zip(for_each_parameter(&net.params, &before)) {
            param.set(&value)?;
        }
        let (x, y) = batch(model, i)?;
        let (_, loss) = net.loss(&x, &y)?;
        let theirs = recorded["loss"].as_f64().unwrap();
        close(loss.item()?, theirs, unit(low) * theirs.max(1.0), &what);
        let mut grads = scaled(&loss, &scale)?;
        let theirs = for_each_parameter(&net.params, &numbers(&recorded["grads"]));
        gradients_agree(&net, &grads, &theirs, low, &what);
        // From here on with torch's gradients: the state of the optimizer is torch's, except for the last digits of
        // f32.
        for ((_, param), grad) in net.params.iter().zip(theirs) {
            grads.set(param, grad);
        }
        let grads = scale.already_scaled(grads).unscale(&net.params)?;
        let _ = scale.apply(optimizer.as_mut(), &grads)?;
        scale.update()?;
        let next = steps.get(i + 1).map_or(&run["params_at_the_end"], |next| &next["params"]);
        let lr = run["lr"].as_f64().unwrap();
        for ((ours, theirs), before) in net.values().into_iter().zip(numbers(next)).zip(before) {
            // A unit of the parameter, and some of the step.
            let step = f64::from(theirs - before).abs().max(lr);
            let most = DType::F32.epsilon() * f64::from(theirs.abs()) + 8.0 * DType::F32.epsilon() * step;
            close(ours, theirs.into(), most, &what);
        }
    }
    Ok(())
}

#[test]
fn each_step_goes_as_in_torch() {
    let (Some(golden), Some(steps)) = (golden("torch/train.json"), golden("torch/train_steps.json")) else { return };
    for (name, steps) in entries(&steps["models"]) {
        // It has the data of the model.
        let Some(model) = golden["models"].get(name) else { continue };
        for run in items(&steps["runs"]) {
            steps_from_the_recorded(name, model, run).unwrap();
        }
    }
}
