//! Updates of every optimizer, and a training step of each network of the benches.

use precast::{Reduction, cell::Params, prelude::*};

use crate::{
    digest::Digests,
    inputs::Draw,
    nets::{self, Task},
};

/// Hands over each work and its name.
pub type Print<'a> = dyn FnMut(&str, &dyn Fn(&mut Digests)) + 'a;

pub fn all(print: &mut Print) {
    optimizers(print);
    for name in nets::NAMES {
        for (level, dtype) in [(Level::O0, DType::F16), (Level::O1, DType::F16), (Level::O2, DType::Bf16)] {
            print(&format!("{level} {dtype} step of {name}"), &|digest| step(name, level, dtype, digest));
        }
    }
}

/// A step of a network on a few samples: the loss, and all parameters after it.
fn step(name: &str, level: Level, dtype: DType, digest: &mut Digests) {
    let Task { mut net, x, y, adamw } = nets::task(name).unwrap();
    let samples = x.shape()[0];
    let x = x.slice(0, 0..SAMPLES).unwrap();
    let y = y.slice(0, 0..SAMPLES * y.len() / samples).unwrap();
    net.set_train(true);
    let _applied = Policy::new(level, dtype).unwrap().apply(&mut net).unwrap();
    let mut optimizer: Box<dyn Optimizer> = match adamw {
        true => Box::new(Adam::decoupled(net.params(), 1e-3)),
        false => Box::new(Sgd::new(net.params(), 0.01).momentum(0.9)),
    };
    let loss = net.call(&x).unwrap().cross_entropy(&y).unwrap();
    digest.result(&loss);
    let outcome = LossScale::fixed(128.0).unwrap().step(&mut *optimizer, &loss).unwrap();
    digest.results.text(&format!("{outcome:?}"));
    net.named_params().iter().for_each(|(_, param)| digest.gradient(&param.value()));
}

/// Samples of a step.
const SAMPLES: usize = 4;

type Make = fn(Params) -> Box<dyn Optimizer>;

/// Every optimizer with every option: its name holds the options' names.
pub fn optimizers(print: &mut Print) {
    let all: &[(&str, Make)] = &[
        ("Sgd", |params| Box::new(Sgd::new(params, 0.1))),
        ("Sgd weight_decay", |params| Box::new(Sgd::new(params, 0.1).weight_decay(0.01))),
        ("Sgd momentum", |params| Box::new(Sgd::new(params, 0.1).momentum(0.9))),
        ("Sgd momentum dampening", |params| Box::new(Sgd::new(params, 0.1).momentum(0.9).dampening(0.2))),
        ("Sgd momentum nesterov", |params| Box::new(Sgd::new(params, 0.1).momentum(0.9).nesterov())),
        ("Adam", |params| Box::new(Adam::new(params, 0.1))),
        ("Adam betas eps weight_decay", |params| {
            Box::new(Adam::new(params, 0.1).betas(0.8, 0.99).eps(1e-4).weight_decay(0.01))
        }),
        ("Adam decoupled", |params| Box::new(Adam::decoupled(params, 0.1))),
    ];
    for (name, make) in all {
        for dtype in [DType::F32, DType::F16, DType::Bf16, DType::F64] {
            print(&format!("{dtype} {name}"), &|digest| {
                let mut draw = Draw::new(dtype);
                let param = Param::new(draw.noise(&[700, 301]).detach());
                let mut optimizer = make([("w".to_string(), param.clone())].into_iter().collect());
                let towards = draw.noise(&[700, 301]).detach();
                for _ in 0..3 {
                    let loss = param.tensor().mse_loss(&towards, Reduction::Sum).unwrap();
                    optimizer.update(&loss.backward().unwrap()).unwrap();
                }
                digest.result(&param.value());
            });
        }
    }
}
