//! Updates of every optimizer, and a training step of each network of the benches.

use precast::{Adafactor, Adagrad, Lamb, Lion, Muon, RmsProp, cell::Params, prelude::*};

use crate::{
    digest::Digests,
    inputs::Draw,
    nets::{self, Task},
};

/// A callback that receives each workload and its name.
pub type Print<'a> = dyn FnMut(&str, &dyn Fn(&mut Digests)) + 'a;

pub fn all(print: &mut Print) {
    optimizers(print);
    for name in nets::NAMES {
        for (level, dtype) in [(Level::O0, DType::F16), (Level::O1, DType::F16), (Level::O2, DType::Bf16)] {
            print(&format!("{level} {dtype} step of {name}"), &|digest| step(name, level, dtype, digest));
        }
    }
}

/// Digests a step of a network on a few samples: the loss, and all parameters after it.
fn step(name: &str, level: Level, dtype: DType, digest: &mut Digests) {
    let mut task = nets::task(name, 1).unwrap();
    task.net.set_train(true);
    let _applied = Policy::new(level, dtype).unwrap().apply(&mut task.net).unwrap();
    let mut optimizer = task.optimizer();
    let Task { net, x, y, .. } = task;
    let samples = x.shape()[0];
    let x = x.slice(0, 0..SAMPLES).unwrap();
    let y = y.slice(0, 0..SAMPLES * y.len() / samples).unwrap();
    let loss = net.call(&x).unwrap().cross_entropy(&y).unwrap();
    digest.result(&loss);
    let outcome = LossScale::fixed(128.0).unwrap().step(&mut *optimizer, &loss).unwrap();
    digest.results.text(&format!("{outcome:?}"));
    net.named_params().iter().for_each(|(_, param)| digest.gradient(&param.value()));
}

/// Number of samples per step.
const SAMPLES: usize = 4;

type Make = fn(Params) -> Box<dyn Optimizer>;

/// Every optimizer with every option: its name contains the options' names.
const OPTIMIZERS: &[(&str, Make)] = &[
    ("Sgd", |params| Box::new(Sgd::new(params, 0.1))),
    ("Sgd weight_decay", |params| Box::new(Sgd::new(params, 0.1).weight_decay(0.01))),
    ("Sgd momentum", |params| Box::new(Sgd::new(params, 0.1).momentum(0.9))),
    ("Sgd momentum dampening", |params| Box::new(Sgd::new(params, 0.1).momentum(0.9).dampening(0.2))),
    ("Sgd momentum nesterov", |params| Box::new(Sgd::new(params, 0.1).momentum(0.9).nesterov(true))),
    ("Adam", |params| Box::new(Adam::new(params, 0.1))),
    ("Adam betas eps weight_decay", |params| {
        Box::new(Adam::new(params, 0.1).betas(0.8, 0.99).eps(1e-4).weight_decay(0.01))
    }),
    ("AdamW", |params| Box::new(AdamW::new(params, 0.1))),
    ("AdamW betas eps weight_decay amsgrad", |params| {
        Box::new(AdamW::new(params, 0.1).betas(0.8, 0.99).eps(1e-4).weight_decay(0.1).amsgrad(true))
    }),
    ("AdamW state_8bit", |params| Box::new(AdamW::new(params, 0.1).state_8bit(true))),
    ("Adam amsgrad", |params| Box::new(Adam::new(params, 0.1).amsgrad(true))),
    ("Adam state_8bit", |params| Box::new(Adam::new(params, 0.1).state_8bit(true))),
    ("Adagrad lr_decay initial_sum eps weight_decay", |params| {
        Box::new(Adagrad::new(params, 0.1).lr_decay(0.1).initial_sum(0.5).eps(1e-6).weight_decay(0.01))
    }),
    ("RmsProp alpha eps weight_decay", |params| {
        Box::new(RmsProp::new(params, 0.1).alpha(0.9).eps(1e-6).weight_decay(0.01))
    }),
    ("RmsProp momentum centered", |params| Box::new(RmsProp::new(params, 0.01).momentum(0.9).centered(true))),
    ("Lion betas weight_decay", |params| Box::new(Lion::new(params, 0.1).betas(0.8, 0.9).weight_decay(0.01))),
    ("Lion state_8bit", |params| Box::new(Lion::new(params, 0.1).state_8bit(true))),
    ("Lamb betas eps weight_decay", |params| {
        Box::new(Lamb::new(params, 0.1).betas(0.8, 0.99).eps(1e-4).weight_decay(0.01))
    }),
    ("Adafactor beta2_decay eps threshold weight_decay", |params| {
        Box::new(Adafactor::new(params, 0.1).beta2_decay(-0.5).eps(1e-6, 1e-2).threshold(2.0).weight_decay(0.01))
    }),
    ("Muon", |params| Box::new(Muon::new(params, 0.1))),
    ("Muon bf16 low_products", |params| Box::new(Muon::new(params, 0.1).low_products(true))),
    ("Muon momentum nesterov rounds eps weight_decay match_adam", |params| {
        Box::new(
            Muon::new(params, 0.1).momentum(0.8).nesterov(false).rounds(3).eps(1e-5).weight_decay(0.01).match_adam(),
        )
    }),
];

/// Runs every optimizer on parameters of every dtype, and on parameters in every kind of low-precision storage.
pub fn optimizers(print: &mut Print) {
    for (name, make) in OPTIMIZERS {
        for dtype in [DType::F32, DType::F16, DType::Bf16, DType::F64] {
            print(&format!("{dtype} {name}"), &|digest| {
                let mut draw = Draw::new(dtype);
                let param = Param::new(draw.noise(&[700, 301]).detach());
                updates(*make, &param, &mut draw, digest);
            });
        }
        let stored = [
            ("f16, master", Decorate::new(DType::F16)),
            ("bf16, master", Decorate::new(DType::Bf16)),
            ("bf16, stochastic", Decorate::new(DType::Bf16).stochastic_rounding(3)),
            ("bf16, Kahan", Decorate::new(DType::Bf16).kahan()),
        ];
        for (storage, how) in stored {
            print(&format!("{storage} {name}"), &|digest| {
                let mut draw = Draw::new(DType::F32);
                let net = Child::new(Dense::new(301, 700, &mut Rng::seed(1)));
                let param = &net.cell().weight;
                param.set(&draw.noise(&[700, 301]).detach()).unwrap();
                decorate(&net, how.clone()).unwrap();
                updates(*make, param, &mut draw, digest);
                param.master().iter().for_each(|master| digest.result(master));
            });
        }
    }
}

/// Digests three steps towards other numbers.
fn updates(make: Make, param: &Param, draw: &mut Draw, digest: &mut Digests) {
    let mut optimizer = make([("w".to_string(), param.clone())].into_iter().collect());
    let towards = draw.noise(&[700, 301]).detach().cast(param.dtype());
    for _ in 0..3 {
        let loss = param.tensor().mse_loss(&towards, Reduction::Sum).unwrap();
        optimizer.update(&loss.backward().unwrap()).unwrap();
    }
    digest.result(&param.value());
    optimizer.state().tensors.iter().for_each(|(_, tensor)| digest.result(tensor));
}
