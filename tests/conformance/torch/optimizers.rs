//! Optimizers compared with trajectories of torch's, recorded by `tools/peers/torch/optimizers.py`.

use std::fs;

use precast::{
    Adafactor, Adagrad, Adam, AdamW, DType, Grads, Muon, Optimizer, Param, RmsProp, Sgd, Tensor, cell::Params,
};
use serde_json::Value;

/// Numbers from a linear congruential generator, as drawn by the recorder.
struct Draw(u64);

impl Draw {
    fn tensor(&mut self, shape: &[usize], dtype: DType, scale: f64) -> Tensor {
        let number = |_| {
            self.0 = (1664525 * self.0 + 1013904223) % (1 << 32);
            ((self.0 >> 8) as f64 / 16777216.0 - 0.5) * scale
        };
        let numbers: Vec<f64> = (0..shape.iter().product()).map(number).collect();
        Tensor::from_f64(&numbers, shape, dtype).unwrap()
    }
}

/// Makes the optimizer of a case. An unknown option fails.
fn optimizer(case: &Value, params: Params) -> Box<dyn Optimizer> {
    let kind = case["optimizer"].as_str().unwrap();
    let options = case["options"].as_object().unwrap();
    let lr = options["lr"].as_f64().unwrap();
    let rest = || options.iter().filter(|(name, _)| *name != "lr").map(|(name, value)| (name.as_str(), value));
    let number = |x: &Value| x.as_f64().unwrap();
    let unknown = |name: &str| -> ! { panic!("{kind}: {name}") };
    macro_rules! adam {
        ($of:ident) => {
            Box::new(rest().fold($of::new(params, lr), |o, (name, x)| match name {
                "weight_decay" => o.weight_decay(number(x)),
                "betas" => o.betas(number(&x[0]), number(&x[1])),
                "eps" => o.eps(number(x)),
                "amsgrad" => o.amsgrad(true),
                _ => unknown(name),
            }))
        };
    }
    match kind {
        "SGD" => Box::new(rest().fold(Sgd::new(params, lr), |o, (name, x)| match name {
            "weight_decay" => o.weight_decay(number(x)),
            "momentum" => o.momentum(number(x)),
            "dampening" => o.dampening(number(x)),
            "nesterov" => o.nesterov(true),
            _ => unknown(name),
        })),
        "Adam" => adam!(Adam),
        "AdamW" => adam!(AdamW),
        "Adagrad" => Box::new(rest().fold(Adagrad::new(params, lr), |o, (name, x)| match name {
            "weight_decay" => o.weight_decay(number(x)),
            "lr_decay" => o.lr_decay(number(x)),
            "initial_accumulator_value" => o.initial_sum(number(x)),
            "eps" => o.eps(number(x)),
            _ => unknown(name),
        })),
        "RMSprop" => Box::new(rest().fold(RmsProp::new(params, lr), |o, (name, x)| match name {
            "weight_decay" => o.weight_decay(number(x)),
            "alpha" => o.alpha(number(x)),
            "eps" => o.eps(number(x)),
            "momentum" => o.momentum(number(x)),
            "centered" => o.centered(true),
            _ => unknown(name),
        })),
        "Adafactor" => Box::new(rest().fold(Adafactor::new(params, lr), |o, (name, x)| match name {
            "weight_decay" => o.weight_decay(number(x)),
            "beta2_decay" => o.beta2_decay(number(x)),
            "eps" => o.eps(number(&x[0]), number(&x[1])),
            "d" => o.threshold(number(x)),
            _ => unknown(name),
        })),
        "Muon" => Box::new(rest().fold(Muon::new(params, lr), |o, (name, x)| match name {
            "weight_decay" => o.weight_decay(number(x)),
            "momentum" => o.momentum(number(x)),
            "nesterov" => o.nesterov(x == true),
            "ns_steps" => o.rounds(x.as_u64().unwrap() as usize),
            "adjust_lr_fn" => o.match_adam(),
            _ => unknown(name),
        })),
        other => panic!("{other}"),
    }
}

/// Returns the largest difference from torch over a trajectory of 100 steps, in units of the dtype's epsilon times the
/// larger of 1 and the largest number.
fn difference(case: &Value, shapes: &[Vec<usize>], steps: &[u64], dtype: DType) -> f64 {
    let mut draw = Draw(1);
    let params: Vec<Param> = shapes.iter().map(|shape| Param::new(draw.tensor(shape, dtype, 1.0))).collect();
    let mut optimizer = optimizer(case, params.iter().cloned().collect());
    let mut recorded = case[dtype.to_string()].as_array().unwrap().iter();
    let mut most: f64 = 0.0;
    for step in 1..=*steps.last().unwrap() {
        let mut grads = Grads::default();
        for (param, shape) in params.iter().zip(shapes) {
            grads.set(param, draw.tensor(shape, dtype, 2f64.powi((step % 7) as i32 - 3)));
        }
        optimizer.update(&grads).unwrap();
        if steps.contains(&step) {
            let ours = params.iter().flat_map(|param| param.value().to_f64());
            let theirs: Vec<f64> =
                recorded.next().unwrap().as_array().unwrap().iter().map(|x| x.as_f64().unwrap()).collect();
            let size = theirs.iter().fold(1.0, |most: f64, x| most.max(x.abs()));
            for (ours, theirs) in ours.zip(theirs) {
                let units = (ours - theirs).abs() / size / dtype.epsilon();
                most = if units.is_nan() { f64::INFINITY } else { most.max(units) };
            }
        }
    }
    most
}

#[test]
fn a_hundred_steps_are_those_of_torch() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/goldens-extra/torch/optimizers.json");
    let recorded: Value = serde_json::from_str(&fs::read_to_string(path).unwrap()).unwrap();
    let shape = |name: &str| -> Vec<usize> { serde_json::from_value(recorded["shapes"][name].clone()).unwrap() };
    let steps: Vec<u64> = serde_json::from_value(recorded["steps"].clone()).unwrap();
    assert_eq!(steps.last(), Some(&100));
    let cases = recorded["cases"].as_array().unwrap();
    assert!(cases.len() >= 22);
    let mut wrong = Vec::new();
    for case in cases {
        let muon = case["optimizer"] == "Muon";
        let shapes = if muon { vec![shape("matrix")] } else { vec![shape("matrix"), shape("vector")] };
        // 100 updates, each rounded: their sum is off by at most 100 half units, if all are rounded the same way.
        for dtype in [DType::F64, DType::F32] {
            let units = difference(case, &shapes, &steps, dtype);
            println!("{} {} {dtype}: {units:.1} units", case["optimizer"], case["options"]);
            if units > 8.0 {
                wrong.push(format!("{} {} {dtype}: {units} units", case["optimizer"], case["options"]));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
