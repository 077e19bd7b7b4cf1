//! The pack `burn-0.22`: what it says of burn's kernels, and what follows for a network.

mod networks;

use burn::{
    module::Module,
    nn::{GroupNormConfig, InstanceNormConfig, LayerNormConfig, Linear, LinearConfig, Lstm, LstmConfig, RmsNormConfig},
    tensor::{DType, Device, FloatDType, Tensor},
};
use networks::Bare;
use precast_burn::{Amp, Forward, Policy, graph::Graph};

fn policy(level: &str, dtype: &str) -> Policy {
    let text = format!("version: 1\nlevel: {level}\ndtype: {dtype}\npack: burn-0.22\n");
    Policy::parse(&text, "burn.yaml").unwrap()
}

/// A norm of burn needs no casts at its border in f16, since it widens itself, and needs them in bf16.
#[test]
fn norms_run_low_in_f16_and_wide_in_bf16() {
    let device = Device::default();
    let mut net = Amp::new(Bare::new(&device));
    let plan = policy("O2", "float16").plan(&net).unwrap();
    assert_eq!(plan.decision("norm").unwrap().run.to_string(), "f16");
    let _applied = plan.apply(&mut net).unwrap();
    let y = net.forward(networks::rows(&device));
    assert_eq!((net.inner().norm.gamma.val().dtype(), y.dtype()), (DType::F16, DType::F32));

    let mut net = Amp::new(Bare::new(&device));
    let text = policy("O2", "bfloat16").apply(&mut net).unwrap_err().to_string();
    assert!(
        text.contains("`norm` (LayerNorm) runs f32, returns bf16: declare its field as `Amp<LayerNorm>`"),
        "{text}"
    );
}

/// A recurrent layer creates f32 tensors inside: at O2 it stays f32 without a rule, at O1 and O3 an error has the rule.
#[test]
fn recurrent_layers_stay_in_f32() {
    #[derive(Module, Debug)]
    struct Sequence {
        rnn: Amp<Lstm>,
        head: Amp<Linear>,
    }
    let device = Device::default();
    let new = || {
        Amp::new(Sequence {
            rnn: LstmConfig::new(4, 6, true).init(&device).into(),
            head: Amp::new(LinearConfig::new(6, 2).init(&device)),
        })
    };
    let mut net = new();
    let _applied = policy("O2", "bfloat16").apply(&mut net).unwrap();
    let y = net.with(Tensor::<3>::ones([2, 5, 4], &device), |net, x| {
        net.head.forward(net.rnn.with(x, |rnn, x| rnn.forward(x, None).0))
    });
    assert_eq!((y.dims(), y.dtype()), ([2, 5, 2], DType::F32));
    use precast_burn::precast_policy::{Outline, OutlinedCell, catalogue::System};
    for kind in ["BiLstm", "BiGru", "Rnn", "BiRnn", "Gru", "PositionalEncoding", "RotaryEncoding"] {
        let outline = Outline::new([OutlinedCell::new("", "Net"), OutlinedCell::new("part", kind)]).unwrap();
        let plan = policy("O2", "bfloat16").plan_outline(outline.system(System::Burn)).unwrap();
        assert_eq!(plan.decision("part").unwrap().run.to_string(), "f32", "{kind}");
    }
    for level in ["O1", "O3"] {
        let text = policy(level, "bfloat16").apply(&mut new()).unwrap_err().to_string();
        assert!(text.starts_with("`rnn` (Lstm) cannot run in bf16") && text.contains("run: float32-inside"), "{text}");
    }
}

/// Norms of numbers whose squares are beyond f16, beside f64: no more than their roundings.
#[test]
fn norms_in_f16_are_wide_inside() {
    let device = Device::default();
    let numbers: Vec<f64> = (0..32).map(|i| f64::from(i * 37 % 64) * 16.0 - 480.0).collect();
    let low = || Tensor::<1>::from_floats(&numbers.iter().map(|x| *x as f32).collect::<Vec<_>>()[..], &device);
    let mean = |row: &[f64]| row.iter().sum::<f64>() / row.len() as f64;
    let normed = |centre: bool, count: usize| -> Vec<f64> {
        let rows = numbers.chunks(count).flat_map(|row| {
            let mean_of = if centre { mean(row) } else { 0.0 };
            let root = (row.iter().map(|x| (x - mean_of).powi(2)).sum::<f64>() / row.len() as f64 + 1e-5).sqrt();
            row.iter().map(move |x| (x - mean_of) / root)
        });
        rows.collect()
    };
    let check = |name: &str, y: Tensor<1>, expected: Vec<f64>| {
        assert_eq!(y.dtype(), DType::F16, "{name}");
        for (y, expected) in y.into_data().convert::<f64>().iter::<f64>().zip(expected) {
            assert!(
                (y - expected).abs() <= 4.0 * 2f64.powi(-11) * expected.abs() + 1e-6,
                "{name}: {y}, not {expected}"
            );
        }
    };
    let f16 = FloatDType::F16;
    let norm = LayerNormConfig::new(8).init(&device);
    let norm = Amp::new(norm);
    let rows = || low().reshape([4, 8]).cast(f16);
    let cast = |module: &dyn Fn(Tensor<2>) -> Tensor<2>| module(rows()).reshape([32]);
    let mut of = norm.clone();
    let _applied = policy("O3", "float16").apply(&mut of).unwrap();
    check("layer", cast(&|x| of.inner().forward(x)), normed(true, 8));
    let mut of = Amp::new(RmsNormConfig::new(8).init(&device));
    let _applied = policy("O3", "float16").apply(&mut of).unwrap();
    check("rms", cast(&|x| of.inner().forward(x)), normed(false, 8));
    let images = || low().reshape([2, 4, 4]).cast(f16);
    let mut of = Amp::new(GroupNormConfig::new(2, 4).init(&device));
    let _applied = policy("O3", "float16").apply(&mut of).unwrap();
    check("group", of.inner().forward(images()).reshape([32]), normed(true, 8));
    let mut of = Amp::new(InstanceNormConfig::new(4).init(&device));
    let _applied = policy("O3", "float16").apply(&mut of).unwrap();
    check("instance", of.inner().forward(images()).reshape([32]), normed(true, 4));
}

/// A batch norm that a rule lowers: its running states stay f32, and follow those of a run in f32 up to the roundings of
/// bf16; they would not move at all in bf16, where a tenth of a small difference is lost.
#[test]
fn a_batch_norm_in_bf16_keeps_its_running_states_in_f32() {
    use burn::{
        module::Module,
        nn::{BatchNorm, BatchNormConfig},
    };
    let device = networks::device();
    let numbers = |tensor: Tensor<1>| -> Vec<f64> { tensor.into_data().convert::<f64>().iter::<f64>().collect() };
    // Two channels with means of 4 and -3, and variances of about 4 and 0.04.
    let batch = |step: i32| {
        let of = |channel: i32, i: i32| {
            let x = f64::from((i * 37 + step * 11) % 16) / 8.0 - 15.0 / 16.0;
            if channel == 0 { 4.0 + 3.5 * x } else { -3.0 + 0.35 * x }
        };
        let values: Vec<f32> = (0..16).flat_map(|i| [of(0, i) as f32, of(1, i) as f32]).collect();
        Tensor::<1>::from_floats(&values[..], &device).reshape([16, 2])
    };
    let trained = |dtype: &str, rules: &str| -> Amp<BatchNorm> {
        let mut net: Amp<BatchNorm> = BatchNormConfig::new(2).init(&device).into();
        let text = format!("version: 1\nlevel: O2\ndtype: {dtype}\nrules: [{rules}]\n");
        let _applied = Policy::parse(&text, "norm.yaml").unwrap().apply(&mut net).unwrap();
        for step in 0..40 {
            let y = net.forward(batch(step));
            assert_eq!(y.dtype(), DType::F32, "the root returns f32");
            // The mean of a batch is 0, and its variance 1.
            let y = y.reshape([32]).into_data().convert::<f64>();
            let of = |channel: usize| y.iter::<f64>().skip(channel).step_by(2).collect::<Vec<_>>();
            for y in [of(0), of(1)] {
                let mean = y.iter().sum::<f64>() / 16.0;
                let variance = y.iter().map(|y| (y - mean).powi(2)).sum::<f64>() / 16.0;
                assert!(mean.abs() < 0.2 && (variance - 1.0).abs() < 0.1, "{mean} {variance}");
            }
        }
        net
    };
    let (low, wide) = (
        trained("bfloat16", "{ kind: BatchNorm, run: low }"),
        trained("bfloat16", "{ kind: BatchNorm, run: float32 }"),
    );
    let states = |net: &Amp<BatchNorm>| {
        let (mean, variance) = (net.inner().running_mean.value_sync(), net.inner().running_var.value_sync());
        assert_eq!((mean.dtype(), variance.dtype()), (DType::F32, DType::F32));
        [numbers(mean), numbers(variance)].concat()
    };
    assert_eq!(low.inner().gamma.val().dtype(), DType::BF16);
    for (low, wide) in states(&low).iter().zip(states(&wide)) {
        assert!((low - wide).abs() <= 0.02 * wide.abs(), "{low}, not {wide}");
    }
    // In evaluation, by the running states.
    let (low, wide) = (low.valid(), wide.valid());
    let x = || batch(3).inner();
    for (low, wide) in numbers(low.forward(x()).reshape([32])).iter().zip(numbers(wide.forward(x()).reshape([32]))) {
        assert!((low - wide).abs() < 0.3, "{low}, not {wide}");
    }

    // Without its `Amp`, burn's own call would add two dtypes; in f16 squares overflow.
    #[derive(Module, Debug)]
    struct Bare {
        norm: BatchNorm,
    }
    let refused = |dtype: &str, mut net: Amp<Bare>| policy("O3", dtype).apply(&mut net).unwrap_err().to_string();
    let bare = || Amp::new(Bare { norm: BatchNormConfig::new(2).init(&device) });
    assert!(refused("bfloat16", bare()).contains("`norm` (BatchNorm) cannot run in bf16: its running states stay f32"));
    assert!(refused("float16", bare()).contains("the variance of numbers above 256 is beyond f16"));
}

/// The op lists, for a recording: a softmax is a chain of ops, each rounded.
#[test]
fn ops_of_a_recording_have_reasons_of_burns_kernels() {
    let net = networks::Mlp::new(&Device::default());
    let graph = Graph::record(&net, |net, device| {
        let y = net.forward(Tensor::<2>::zeros([4, 8], device));
        burn::tensor::activation::softmax(y, 1).sum()
    });
    let painted = graph.unwrap().painted(&policy("auto", "bfloat16")).unwrap();
    let of = |name: &str| painted.ops.iter().find(|op| op.name == name).unwrap_or_else(|| panic!("{painted}"));
    assert_eq!(of("Softmax").because, "full list, burn-0.22: on GPUs a chain of ops, each rounded");
    assert_eq!(
        (of("Matmul").output, of("Sum").output),
        (Some(precast_burn::DType::Bf16), Some(precast_burn::DType::F32))
    );
}

/// Each op that the pack names is one of burn's recordings or of precast: no entry is a typing error.
#[test]
fn every_op_of_the_pack_is_known() {
    let pack = precast_burn::precast_policy::policy::Pack::named("burn-0.22").unwrap();
    for op in pack.regions[0].1.ops().keys() {
        let named = op.names(precast_burn::precast_policy::catalogue::System::Burn).count();
        assert!(named > 0, "{op}");
    }
}
