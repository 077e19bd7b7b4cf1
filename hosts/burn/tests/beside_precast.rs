//! The same network in precast, with the same weights and the same policy.

use burn::{
    module::Param,
    nn::{LayerNorm, LayerNormConfig, Linear, LinearConfig, Relu},
    prelude::*,
};
use precast::{Child, Tensor as Ours, cell::Params, layers, prelude::Rng, sequential};
use precast_burn::{Amp, Forward, Policy};

#[derive(Module, Debug)]
struct Net {
    up: Linear,
    norm: Amp<LayerNorm>,
    act: Relu,
    down: Linear,
}

impl Forward<Tensor<2>> for Net {
    type Output = Tensor<2>;

    fn forward(&self, x: Tensor<2>) -> Tensor<2> {
        self.down.forward(self.act.forward(self.norm.forward(self.up.forward(x))))
    }
}

fn param<const D: usize>(numbers: &[f32], shape: [usize; D], device: &Device) -> Param<Tensor<D>> {
    Param::from_tensor(Tensor::<1>::from_floats(numbers, device).reshape(shape))
}

/// Weights of both: burn stores a linear layer as input x output, precast as output x input.
fn networks(device: &Device) -> (Amp<Net>, Child) {
    let rng = &mut Rng::seed(3);
    let ours: Child = Child::new(sequential![
        layers::Dense::new(16, 32, rng),
        layers::LayerNorm::new(&[32]),
        layers::ReLU,
        layers::Dense::new(32, 4, rng)
    ])
    .into();
    let params: Params = ours.params();
    let of = |path: &str| -> Vec<f32> {
        let found = params.iter().find(|(at, _)| *at == path).unwrap_or_else(|| panic!("{path}")).1;
        found.tensor().to_f64().into_iter().map(|number| number as f32).collect()
    };
    let linear = |path: &str, from: usize, to: usize| {
        let weight = Tensor::<1>::from_floats(&of(&format!("{path}.weight"))[..], device).reshape([to, from]);
        let mut linear = LinearConfig::new(from, to).init(device);
        linear.weight = Param::from_tensor(weight.transpose());
        linear.bias = Some(param(&of(&format!("{path}.bias")), [to], device));
        linear
    };
    let norm = LayerNormConfig::new(32).init(device);
    let net = Net { up: linear("0", 16, 32), norm: norm.into(), act: Relu::new(), down: linear("3", 32, 4) };
    (Amp::new(net), ours)
}

/// Both round weights and results of layers once, and compute inside in f32 or wider; sums in another order differ in
/// the last bit, which a rounding can make one unit of the low dtype. Three roundings behind each other are at most
/// three units of the largest result.
#[test]
fn results_differ_by_units_of_the_low_dtype() {
    let device = Device::default();
    let x: Vec<f32> = (0..64).map(|i| ((i * 37 % 64) as f32 - 32.0) / 16.0).collect();
    for (level, epsilon) in [("o0", 2f64.powi(-20)), ("o2", 2f64.powi(-10)), ("o2-bf16", 2f64.powi(-7))] {
        let policy = Policy::named(level).unwrap();
        let (mut net, mut ours) = networks(&device);
        let _theirs = policy.apply(&mut net).unwrap();
        let _ours = precast::Policy::named(level).unwrap().apply(&mut ours).unwrap();
        let theirs = net.forward(Tensor::<1>::from_floats(&x[..], &device).reshape([4, 16]));
        let theirs: Vec<f64> = theirs.into_data().convert::<f64>().try_to_vec().unwrap();
        let x = Ours::from_vec(x.clone(), &[4, 16]).unwrap();
        let ours = ours.call(&x).unwrap().to_f64();
        let largest = ours.iter().fold(0f64, |most, y| most.max(y.abs()));
        for (theirs, ours) in theirs.iter().zip(&ours) {
            assert!((theirs - ours).abs() <= 3.0 * epsilon * largest, "{level}: {theirs} {ours}");
        }
    }
}

/// The decisions are the same function's.
#[test]
fn plans_agree() {
    let (net, ours) = networks(&Device::default());
    for name in Policy::names().filter(|name| name.starts_with('o')) {
        let policy = Policy::named(name).unwrap();
        let (theirs, plan) = (policy.plan(&net).unwrap(), precast::Policy::named(name).unwrap().plan(&ours).unwrap());
        for (path, index) in [("up", "0"), ("norm", "1"), ("act", "2"), ("down", "3")] {
            let (theirs, ours) = (theirs.decision(path).unwrap(), plan.decision(index).unwrap());
            assert_eq!((theirs.run, &theirs.because), (ours.run, &ours.because), "{name}: {path}");
        }
    }
}
