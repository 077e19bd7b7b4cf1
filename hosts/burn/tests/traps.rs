//! Modules and weights that burn cannot run in 16 bits, and mistakes of users.

mod networks;

use burn::{
    module::{Module, Param},
    nn::{
        LayerNorm, LayerNormConfig, Linear, LinearConfig, Lstm, LstmConfig, PositionalEncoding,
        PositionalEncodingConfig,
        transformer::{TransformerEncoder, TransformerEncoderConfig, TransformerEncoderInput},
    },
    optim::{ModuleOptimizer, SgdConfig},
    tensor::{DType, Device, FloatDType, Tensor},
};
use networks::{Mlp, device, rows};
use precast_burn::{Amp, Forward, LossScale, Policy, graph::Graph};

fn policy(rules: &str) -> Policy {
    let text = format!("version: 1\nlevel: O2\ndtype: float16\nrules: [{rules}]\n");
    Policy::parse(&text, "rules.yaml").unwrap()
}

#[derive(Module, Debug)]
struct Sequence {
    places: Amp<PositionalEncoding>,
    rnn: Amp<Lstm>,
    head: Linear,
}

fn sequence() -> Amp<Sequence> {
    let device = Device::default();
    Amp::new(Sequence {
        places: PositionalEncodingConfig::new(4).with_max_sequence_size(8).init(&device).into(),
        rnn: LstmConfig::new(4, 6, true).init(&device).into(),
        head: LinearConfig::new(6, 2).init(&device),
    })
}

/// burn creates the first state of an LSTM and the table of positions in f32.
#[test]
fn modules_that_create_f32_tensors_are_refused_in_16_bits() {
    let refused = |rules: &str| policy(rules).apply(&mut sequence()).unwrap_err().to_string();
    let text = refused("");
    assert!(text.starts_with("`places` (PositionalEncoding) cannot run in f16"), "{text}");
    assert!(text.contains("{ path: places, run: float32-inside }"), "{text}");
    let text = refused("{ path: places, run: float32-inside }");
    assert!(text.starts_with("`rnn` (Lstm) cannot run in f16"), "{text}");
    let o1 = Policy::named("o1").unwrap().apply(&mut sequence()).unwrap_err().to_string();
    assert!(o1.starts_with("`rnn` (Lstm) cannot run in f16"), "{o1}");

    let mut net = sequence();
    let rules = "{ path: places, run: float32-inside }, { path: rnn, run: float32-inside }";
    let _applied = policy(rules).apply(&mut net).unwrap();
    let forward = |net: Amp<Sequence>, device: &Device| {
        net.with(Tensor::<3>::ones([2, 5, 4], device), |net, x| {
            let x = net.places.with(x, |places, x| places.forward(x));
            net.head.forward(net.rnn.with(x, |rnn, x| rnn.forward(x, None).0))
        })
    };
    Graph::record(&net, forward).unwrap().check().unwrap();
    assert_eq!(forward(net, &Device::default()).dtype(), DType::F32);
}

#[test]
fn fields_of_burns_own_modules_are_kept_by_a_rule() {
    #[derive(Module, Debug)]
    struct Encoder {
        encoder: TransformerEncoder,
        norms: Vec<LayerNorm>,
    }
    let device = Device::default();
    let new = || {
        Amp::new(Encoder {
            encoder: TransformerEncoderConfig::new(8, 16, 2, 1).init(&device),
            norms: vec![LayerNormConfig::new(8).init(&device)],
        })
    };
    let text = policy("").apply(&mut new()).unwrap_err().to_string();
    assert!(text.contains("`norm_1` is a field of burn's TransformerEncoderLayer"), "{text}");
    assert!(
        text.contains("`norms.0` (LayerNorm) runs f32, returns f16: wrap each in its list, as `Vec<Amp<LayerNorm>>`"),
        "{text}"
    );
    // The rules that the message and the guide give.
    for rules in [
        "{ path: '**.norm_1', run: inherit }, { path: '**.norm_2', run: inherit }, { path: 'norms.*', run: inherit }",
        "{ kind: LayerNorm, run: inherit }",
    ] {
        let mut net = new();
        let _applied = policy(rules).apply(&mut net).unwrap();
        let y = net.with(Tensor::<3>::ones([1, 3, 8], &device), |net, x| {
            net.norms[0].forward(net.encoder.forward(TransformerEncoderInput::new(x)))
        });
        assert_eq!(y.dtype(), DType::F32);
    }
}

#[test]
fn constants_are_no_modules_and_are_noted() {
    #[derive(Module, Debug)]
    struct Shifted {
        shift: Tensor<1>,
        fc: Linear,
    }
    let device = Device::default();
    let mut net = Amp::new(Shifted { shift: Tensor::ones([8], &device), fc: LinearConfig::new(8, 2).init(&device) });
    let plan = policy("").plan(&net).unwrap();
    assert!(plan.decision("shift").is_err(), "{plan}");
    let applied = plan.apply(&mut net).unwrap();
    assert!(applied.to_string().contains("`shift` is a tensor and no parameter"), "{applied}");
}

/// 1 - 1e-4 rounds to 1 in bf16, so a bf16 master never moves; an f32 one does.
#[test]
fn weights_that_are_loaded_in_16_bits_become_f32_masters() {
    let device = device();
    let mut mlp = Mlp::new(&device);
    let low = |linear: &Linear| {
        let weight = linear.weight.val().cast(FloatDType::BF16).detach().require_grad();
        Linear { weight: Param::from_tensor(weight), bias: None }
    };
    mlp.up = low(mlp.up.inner()).into();
    mlp.down = low(mlp.down.inner()).into();
    let mut net = Amp::new(mlp);
    let bf16 = Policy::named("o2-bf16").unwrap();
    let applied = bf16.apply(&mut net).unwrap();
    assert!(
        applied.to_string().contains("2 parameters that were stored in 16 bits are stored in f32 now"),
        "{applied}"
    );
    assert_eq!(net.inner().up.inner().weight.base().dtype(), DType::F32);
    let before = net.inner().down.inner().weight.base().into_data();
    let mut optimizer: ModuleOptimizer = SgdConfig::new().init();
    let loss = net.forward(rows(&device)).mean();
    let (net, outcome) = LossScale::new(&bf16).unwrap().step(&mut optimizer, 1e-6, net, loss).unwrap();
    assert!(outcome.is_step());
    assert_ne!(net.inner().down.inner().weight.base().into_data(), before, "a step of 1e-6 is kept");
}

#[test]
fn an_adapted_weight_is_named() {
    use burn::module::Lora;
    let adapted = Mlp::new(&Device::default()).apply_lora(Lora::new(2, 4.0));
    let text = policy("").apply(&mut Amp::new(adapted)).unwrap_err().to_string();
    assert!(text.contains("it has the reparameterization `lora` of burn's"), "{text}");
}

#[test]
fn a_recording_that_fails_says_why() {
    let record = |shape: [usize; 2]| {
        Graph::record(&Mlp::new(&Device::default()), |net, device| net.forward(Tensor::<2>::zeros(shape, device)))
    };
    let text = record([2, 5]).unwrap_err().to_string();
    assert!(text.starts_with("the forward pass failed while it was recorded: ") && text.contains("got 5"), "{text}");
}

#[test]
fn f32_gradients_of_weights_are_noted() {
    let applied = policy("{ path: up, run: { forward: low, weight_grad: float32 } }")
        .apply(&mut Amp::new(Mlp::new(&Device::default())));
    assert!(applied.unwrap().to_string().contains("`weight_grad: float32` has no effect"));
}

#[test]
fn names_of_other_systems_are_answered_with_burns() {
    for (met, burn) in [("GELU", "Gelu"), ("Dense", "Linear"), ("BatchNorm2d", "BatchNorm")] {
        let net = Amp::new(Mlp::new(&Device::default()));
        let text = policy(&format!("{{ kind: {met}, run: float32 }}")).plan(&net).unwrap_err().to_string();
        assert!(text.contains(&format!("calls so is `{burn}` in burn")), "{text}");
    }
}
