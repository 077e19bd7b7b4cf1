//! Saved and restored states.

use precast::{Grads, cell::Params, optim::OptimizerState, prelude::*, storage::Decorate};

use super::{ALL, Make, bits, noise};

/// A matrix that is large enough for an 8-bit state, and a small one.
#[derive(Cell, Debug)]
struct Two {
    large: Child<Dense>,
    small: Child<Dense>,
}

impl Forward for Two {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        self.small.call(&self.large.call(x)?)
    }
}

fn net() -> Child<Two> {
    let rng = &mut Rng::seed(1);
    let dense = |inward, outward, rng: &mut Rng| Child::new(Dense::new(inward, outward, rng));
    Child::new(Two { large: dense(65, 64, rng), small: dense(64, 3, rng) })
}

type Storage = fn() -> Option<Decorate>;

const STORAGES: [(&str, Storage); 6] = [
    ("f32", || None),
    ("f16 with masters", || Some(Decorate::new(DType::F16))),
    ("bf16 with masters", || Some(Decorate::new(DType::Bf16))),
    ("bf16 alone", || Some(Decorate::new(DType::Bf16).masters(false))),
    ("bf16 with stochastic rounding", || Some(Decorate::new(DType::Bf16).stochastic_rounding(5))),
    ("bf16 with Kahan compensation", || Some(Decorate::new(DType::Bf16).kahan())),
];

fn matrices(net: &Child<Two>) -> Params {
    net.params().filter(|path, _| path.ends_with("weight"))
}

fn steps(params: &Params, optimizer: &mut dyn Optimizer, range: std::ops::Range<u64>) {
    for step in range {
        let mut grads = Grads::default();
        for (i, (_, param)) in params.iter().enumerate() {
            grads.set(param, noise(&param.shape(), 100 * step + i as u64));
        }
        optimizer.update(&grads).unwrap();
    }
}

fn values(params: &Params) -> Vec<Vec<u64>> {
    params.iter().map(|(_, param)| bits(&param.value())).collect()
}

/// Trains for some steps, continues with a new optimizer from the saved state, and compares with an uninterrupted run.
fn resumes(name: &str, make: Make, storage: Storage) {
    let stored = || {
        let net = net();
        if let Some(how) = storage() {
            decorate(&net, how).unwrap();
        }
        net
    };
    let (whole, broken) = (stored(), stored());
    let (whole, broken) = (matrices(&whole), matrices(&broken));
    let mut optimizer = make(whole.clone());
    steps(&whole, &mut *optimizer, 0..7);
    let mut first = make(broken.clone());
    steps(&broken, &mut *first, 0..4);
    let state = first.state();
    assert!(
        state.tensors.iter().all(|(path, _)| path.starts_with("large.weight/") || path.starts_with("small.weight/"))
    );
    drop(first);
    let mut second = make(broken.clone());
    second.restore(state).unwrap();
    steps(&broken, &mut *second, 4..7);
    assert_eq!(values(&broken), values(&whole), "{name}");
}

#[test]
fn a_run_goes_on_from_a_state_with_the_same_bits() {
    for (name, make) in ALL {
        for (storage, how) in STORAGES {
            resumes(&format!("{name}, {storage}"), *make, how);
        }
    }
}

/// The state matters: without it the run would differ.
#[test]
fn without_its_state_a_run_is_another() {
    let (a, b) = (net(), net());
    let (a, b) = (matrices(&a), matrices(&b));
    let mut optimizer = Adam::new(a.clone(), 0.01);
    steps(&a, &mut optimizer, 0..4);
    steps(&b, &mut Adam::new(b.clone(), 0.01), 0..2);
    steps(&b, &mut Adam::new(b.clone(), 0.01), 2..4);
    assert_ne!(values(&a), values(&b));
}

fn state_of(change: impl FnOnce(&mut OptimizerState)) -> OptimizerState {
    let net = net();
    let mut optimizer = Adam::new(net.params(), 0.1);
    steps(&net.params(), &mut optimizer, 0..1);
    let mut state = optimizer.state();
    change(&mut state);
    state
}

#[test]
fn states_that_do_not_fit_list_differences_and_change_nothing() {
    let message = |state: OptimizerState| {
        let net = net();
        let mut optimizer = Adam::new(net.params(), 0.1);
        steps(&net.params(), &mut optimizer, 0..2);
        let before = optimizer.state();
        let message = optimizer.restore(state).unwrap_err().to_string();
        let after = optimizer.state();
        assert_eq!(before.steps, after.steps);
        assert!(before.tensors.iter().zip(&after.tensors).all(|(a, b)| a.0 == b.0 && bits(&a.1) == bits(&b.1)));
        message
    };
    let of_sgd = state_of(|state| state.optimizer = "sgd".into());
    assert_eq!(message(of_sgd), "the state is one of the optimizer `sgd`; this is `adam`");
    let several = state_of(|state| {
        state.steps.remove("small.bias");
        state.steps.insert("small.bais".into(), 1);
        state.tensors.retain(|(name, _)| name != "large.bias/mean");
        state.tensors[0].1 = Tensor::zeros(&[2], DType::F32);
        state.tensors[1].1 = state.tensors[1].1.cast(DType::F16);
        state.tensors.push(("small.weight/momentum".into(), Tensor::zeros(&[1], DType::F32)));
    });
    let message = message(several);
    for part in [
        "`small.bais` is not a parameter of the optimizer (did you mean `small.bias`?)",
        "the parameter `small.bias` is missing",
        "`large.bias/mean` is missing",
        "`large.weight/mean` is f32 [2]; the optimizer's is f32 [64, 65]",
        "`large.weight/square` is f16 [64, 65]; the optimizer's is f32 [64, 65]",
        "`small.weight/momentum` is not kept",
    ] {
        assert!(message.contains(part), "{part}\n{message}");
    }
}

#[test]
fn an_8_bit_state_is_no_f32_state() {
    let net = net();
    let mut wide = Adam::new(net.params(), 0.1);
    steps(&net.params(), &mut wide, 0..1);
    let error = Adam::new(net.params(), 0.1).state_8bit(true).restore(wide.state()).unwrap_err().to_string();
    assert!(error.contains("`large.weight/mean.codes` is missing"), "{error}");
    // The small parameters are in f32 in both.
    assert!(!error.contains("small.weight"), "{error}");
}

#[test]
fn parameters_without_a_gradient_are_restored_without_a_state() {
    let net = net();
    let mut optimizer = Adam::new(net.params(), 0.1);
    let mut grads = Grads::default();
    let params = net.params();
    let (_, first) = params.iter().next().unwrap();
    grads.set(first, noise(&first.shape(), 1));
    optimizer.update(&grads).unwrap();
    let state = optimizer.state();
    assert_eq!(state.steps.values().copied().collect::<Vec<_>>(), [0, 1, 0, 0]);
    assert_eq!(state.tensors.len(), 2);
    let mut other = Adam::new(net.params(), 0.1);
    other.restore(state).unwrap();
    assert_eq!(other.state().steps, optimizer.state().steps);
}
