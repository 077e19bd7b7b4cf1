//! Twenty training steps beside torch 2.15 on a CPU: the same parameters and data, the same losses, skipped steps, scales
//! and final parameters. Recorded in `tests/goldens/torch/train.json`.

use precast::{
    Adam, DType, Grads, LossScale, Optimizer, Outcome, Param, Result, Sgd, Tensor,
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

/// The recorded MLP: Linear, ReLU, Linear, GELU, Linear. Under torch's autocast all five run low; the loss is f32.
struct Mlp {
    params: Params,
    low: Option<DType>,
}

impl Mlp {
    fn new(init: &Value, low: Option<DType>) -> Mlp {
        let names = ["fc1.weight", "fc1.bias", "fc2.weight", "fc2.bias", "fc3.weight", "fc3.bias"];
        let params = names.iter().map(|&name| (name.to_string(), Param::new(tensor(&init[name])))).collect();
        Mlp { params, low }
    }

    fn cast(&self, x: &Tensor) -> Tensor {
        self.low.map_or(x.clone(), |low| x.cast(low))
    }

    fn loss(&self, x: &Tensor, y: &Tensor) -> Result<Tensor> {
        let params: Vec<Tensor> = self.params.iter().map(|(_, param)| self.cast(&param.tensor())).collect();
        let [w1, b1, w2, b2, w3, b3] = &params[..] else { unreachable!("six parameters") };
        let x = self.cast(x).linear(w1, Some(b1))?.relu()?;
        let x = x.linear(w2, Some(b2))?.gelu()?;
        x.linear(w3, Some(b3))?.cast(DType::F32).cross_entropy(y)
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

fn follow(model: &Value, run: &Value) -> Result<()> {
    let mode = run["mode"].as_str().unwrap();
    let low = match mode {
        "fp32" => None,
        "bf16" => Some(DType::Bf16),
        "fp16" => Some(DType::F16),
        other => panic!("unknown mode {other}"),
    };
    let net = Mlp::new(&model["init"], low);
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
    // f32 sums differ in their order. Rounded to f16, a difference becomes one unit in the last place (2^-11) of an
    // activation here and there, in one of eight examples: far less in the mean loss.
    let tolerance = if mode == "fp16" { 2e-4 } else { 1e-6 };
    let (x, y) = (tensor(&model["x"]).to_vec::<f32>()?, &model["y"].as_array().unwrap());
    for (i, recorded) in run["steps"].as_array().unwrap().iter().enumerate() {
        let what = |what: &str| format!("{mode} {opt} {}, step {i}, {what}", run["scaler"]);
        let rows = (i % 4) * 8..(i % 4) * 8 + 8;
        let batch = Tensor::from_vec(x[rows.start * 8..rows.end * 8].to_vec(), &[8, 8])?;
        let labels = Tensor::from_vec(y[rows].iter().map(|y| y.as_i64().unwrap()).collect(), &[8])?;
        let loss = net.loss(&batch, &labels)?;
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
    for (path, param) in net.params.iter() {
        let theirs = tensor(&run["final_params"][path]).to_f64();
        for (ours, theirs) in param.value().to_f64().iter().zip(theirs) {
            close(*ours, theirs, tolerance, &format!("{mode} {opt} {} at the end, {path}", run["scaler"]));
        }
    }
    Ok(())
}

#[test]
fn twenty_steps_of_an_mlp_go_as_in_torch() {
    let Some(golden) = golden("torch/train.json") else { return };
    let model = &golden["models"]["mlp"];
    for run in model["runs"].as_array().into_iter().flatten() {
        follow(model, run).unwrap();
    }
}
