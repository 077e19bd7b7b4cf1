//! Plans of candle's networks: kinds, corrections, YAML, and refusals.

mod common;

use candle_core::{DType, Module, Result, Tensor};
use candle_nn::{
    Activation, BatchNorm, Conv2d, VarBuilder, VarMap, batch_norm, conv2d, embedding, linear as candle_linear,
};
use common::{CPU, Net, network, policy};
use precast_candle::{Amp, ErrorKind, Network, Plan, Policy, linear};

/// Returns the plan of a policy of one level with further lines.
fn planned(net: &Network<Net>, text: &str) -> precast_candle::Result<Plan> {
    net.plan(&Policy::parse(&format!("version: 1\nlevel: O2\ndtype: bfloat16\n{text}"), "my.yaml")?)
}

#[test]
fn the_plan_is_printed_in_the_order_of_the_constructor() {
    let (net, _) = network(1);
    let plan = planned(&net, "rules: [{ path: head, run: float32, because: logits }]\n").unwrap();
    let expected = "\
level O2, bfloat16, lists of precast-1
(root)   Net       * runs bf16, returns f32  level O2
├─ up    Dense       runs bf16               level O2
├─ norm  LayerNorm * runs f32, returns bf16  full list, precast-1
└─ head  Dense     * runs f32                rule path head (run: float32), my.yaml:4:9: logits
4 cells (2 bf16, 2 f32), 3 wrapped";
    assert_eq!(plan.to_string().trim_end(), expected);
    assert_eq!(plan.explain("head").unwrap().decision.run.to_string(), "f32");
    let diff = plan.diff(&planned(&net, "").unwrap()).to_string();
    assert!(diff.contains("head") && !diff.contains("norm"), "{diff}");
}

/// Layers of candle by the names and shapes of their variables; of what no name tells, by the type in an `Amp`.
#[test]
fn kinds_follow_from_names_shapes_and_types() {
    struct Gate;
    impl Module for Gate {
        fn forward(&self, x: &Tensor) -> Result<Tensor> {
            Ok(x.clone())
        }
    }
    let build = |vb: VarBuilder| {
        candle_linear(4, 4, vb.pp("fc"))?;
        embedding(4, 4, vb.pp("embed"))?;
        conv2d(1, 2, 3, Default::default(), vb.pp("conv"))?;
        batch_norm(2, 1e-5, vb.pp("bn"))?;
        candle_nn::rms_norm(4, 1e-5, vb.pp("norm"))?;
        candle_nn::group_norm(1, 4, 1e-5, vb.pp("group_norm"))?;
        candle_nn::lstm(4, 4, Default::default(), vb.pp("lstm"))?;
        candle_nn::gru(4, 4, Default::default(), vb.pp("gru"))?;
        vb.get(4, "scale")?;
        Amp::new(vb.pp("act"), |_| Ok(Activation::Relu))?;
        Amp::new(vb.pp("gate"), |vb| candle_linear(4, 4, vb.pp("in")).map(|_| Gate))
    };
    let net = Network::new(&VarMap::new(), CPU, build).unwrap();
    let plan = net.plan(&Policy::named("o2").unwrap()).unwrap();
    let kinds: Vec<(&str, &str)> = plan.decisions.iter().map(|one| (one.path.as_str(), &*one.kind)).collect();
    assert_eq!(
        kinds,
        [
            ("", "Gate"),
            ("fc", "Dense"),
            ("embed", "Embedding"),
            ("conv", "Conv2d"),
            ("bn", "BatchNorm2d"),
            ("norm", "RmsNorm"),
            ("group_norm", "GroupNorm"),
            ("lstm", "LSTM"),
            ("gru", "GRU"),
            ("act", "Activation"),
            ("gate", "Gate"),
            ("gate.in", "Dense"),
        ]
    );
}

#[test]
fn kinds_are_corrected_by_path() {
    let build = |vb: VarBuilder| vb.pp("odd").get(4, "weight");
    let new = || Network::new(&VarMap::new(), CPU, build).unwrap();
    let kind = |net: &Network<Tensor>| net.plan(&Policy::named("o0").unwrap()).unwrap().decisions[1].kind.to_string();
    assert_eq!(kind(&new()), "Unknown");
    assert_eq!(kind(&new().kind("odd", "RmsNorm").unwrap()), "RmsNorm");
    assert_eq!(kind(&new().kind("odd", "Linear").unwrap()), "Dense", "candle's name");
    assert_eq!(kind(&new().kind("odd", "Mine").unwrap()), "Mine");
    let error = new().kind("odd", "layernorm").unwrap_err();
    assert_eq!(error.to_string(), "no kind is called `layernorm` (did you mean `LayerNorm`?)");
}

#[test]
fn misspelt_paths_are_errors() {
    let errors = [
        network(1).0.kind("nrom", "LayerNorm").unwrap_err(),
        network(1).0.to_float("nrom", DType::F32).unwrap_err(),
        network(1).0.by_hand("nrom").unwrap_err(),
        network(1).0.frozen("nrom").unwrap_err(),
        network(1).0.optional("nrom").unwrap_err(),
    ];
    for error in errors {
        assert_eq!(error.kind(), Some(ErrorKind::Path));
        assert!(error.to_string().contains("did you mean `norm`"), "{error}");
    }
    let error = network(1).0.frozen("norm.wieght").unwrap_err().to_string();
    assert_eq!(error, "no variable and no cell with variables at `norm.wieght` (did you mean `norm.weight`?)");
    let error = network(1).0.to_float("norm", DType::U8).unwrap_err().to_string();
    assert_eq!(error, "`norm` cannot run in u8; allowed: f32, f16, bf16");
}

#[test]
fn mistakes_in_yaml_have_a_place_and_a_suggestion() {
    let (net, _) = network(1);
    for (text, words) in [
        ("rules: [{ path: haed, run: float32 }]", &["my.yaml:4:", "matches no cell", "did you mean `head`"][..]),
        ("rules: [{ kind: Linear, run: float32 }]", &["my.yaml:4:", "what torch calls so is `Dense` here"]),
        ("rules: [{ path: head.weight, run: float32 }]", &["my.yaml:4:", "is a parameter of the cell `head`"]),
        ("rules: [{ path: head, run: float23 }]", &["my.yaml:4:", "did you mean `float32`"]),
        ("rulse: []", &["my.yaml:4:", "did you mean `rules`"]),
        ("cells: { full: { add: [LayerNrom] } }", &["my.yaml:4:", "LayerNrom", "did you mean `LayerNorm`"]),
        ("rules: [{ kind: Dense, run: float32, expect: 1 }]", &["my.yaml:4:", "expects 1 cell and matches 2"]),
    ] {
        let error = planned(&net, text).unwrap_err().to_string();
        words.iter().for_each(|word| assert!(error.contains(word), "{text}: {error}"));
    }
}

#[test]
fn what_candle_cannot_do_is_refused() {
    let (net, _) = network(1);
    for (text, words) in [
        (
            "ops: { full: { add: [Tanh] } }",
            "my.yaml:4:22: the op `Tanh` is on a list, and candle's ops cannot be intercepted",
        ),
        ("rules: [{ path: up, checkpoint: true }]", "my.yaml:4:9: the rule for path up recomputes activations"),
        (
            "rules: [{ path: up, run: float32, until: { step: 5 } }]",
            "ends during the run; plan and apply `policy.after_steps(steps)`",
        ),
        ("rules: [{ path: up, after_stall: raise }]", "raises a cell after a stall"),
        (
            "rules: [{ path: up, run: { forward: low, weight_grad: float32 } }]",
            "asks for gradients of weights in float32",
        ),
        ("prefer: speed", "the policy prefers speed"),
    ] {
        let error = planned(&net, text).unwrap_err().to_string();
        assert!(error.contains(words), "{text}: {error}");
    }
    let error = net.plan(&Policy::named("auto").unwrap()).unwrap_err();
    assert_eq!(error.kind(), Some(ErrorKind::Unsupported));
    // Made elsewhere, a plan can have op lists.
    let mut net = net;
    let mut plan = net.plan(&Policy::named("o1").unwrap()).unwrap();
    plan.decisions[0].run =
        precast_candle::precast_policy::plan::Region::Lists(precast_candle::precast_policy::DType::F16);
    assert_eq!(net.apply(plan).unwrap_err().kind(), Some(ErrorKind::Unsupported));
}

/// O1 lowers layers of products; its lists of ops have no effect here, and the plan does not say they had.
#[test]
fn o1_lowers_layers_only() {
    let (mut net, _) = network(1);
    let plan = net.plan(&Policy::named("o1").unwrap()).unwrap();
    let runs: Vec<String> = plan.decisions.iter().map(|one| one.run.to_string()).collect();
    assert_eq!(runs, ["as is", "f16", "as is", "f16"]);
    net.apply(plan).unwrap();
    let model = net.build().unwrap();
    let y = model.inner().up.forward(&common::batch().0).unwrap();
    assert_eq!((model.inner().up.weight().dtype(), y.dtype()), (DType::F16, DType::F32));
    assert_eq!(model.inner().norm.weight().dtype(), DType::F32);
}

/// candle's norms compute in f32 inside, so that its pack keeps only batch norms in f32.
#[test]
fn the_pack_of_candle_keeps_batch_norms_alone_in_f32() {
    let build = |vb: VarBuilder| {
        candle_linear(4, 4, vb.pp("fc"))?;
        batch_norm(2, 1e-5, vb.pp("bn"))?;
        candle_nn::layer_norm(4, 1e-5, vb.pp("layer_norm"))?;
        candle_nn::rms_norm(4, 1e-5, vb.pp("norm"))
    };
    let net = Network::new(&VarMap::new(), CPU, build).unwrap();
    for dtype in ["float16", "bfloat16"] {
        let text = format!("version: 1\nlevel: O2\ndtype: {dtype}\npack: candle-0.11\n");
        let plan = net.plan(&Policy::parse(&text, "candle.yaml").unwrap()).unwrap();
        let wide: Vec<&str> =
            plan.decisions.iter().filter(|one| one.run.to_string() == "f32").map(|one| one.path.as_str()).collect();
        assert_eq!(wide, ["bn"], "{plan}");
    }
    // A layer norm of candle and one of this crate, of numbers whose squares are beyond f16, beside f64.
    let numbers: Vec<f32> = (0..8).map(|i| (i * 37 % 64) as f32 * 16.0 - 480.0).collect();
    let mean = numbers.iter().map(|x| f64::from(*x)).sum::<f64>() / 8.0;
    let root = (numbers.iter().map(|x| (f64::from(*x) - mean).powi(2)).sum::<f64>() / 8.0 + 1e-5).sqrt();
    let x = Tensor::new(&numbers[..], CPU).unwrap().reshape((1, 8)).unwrap().to_dtype(DType::F16).unwrap();
    let one = Tensor::ones(8, DType::F16, CPU).unwrap();
    let zero = one.zeros_like().unwrap();
    for y in [
        candle_nn::LayerNorm::new(one.clone(), zero.clone(), 1e-5).forward(&x).unwrap(),
        precast_candle::LayerNorm::new(one.clone(), zero.clone(), 1e-5).forward(&x).unwrap(),
    ] {
        let y: Vec<f64> = y.to_dtype(DType::F64).unwrap().flatten_all().unwrap().to_vec1().unwrap();
        for (y, x) in y.iter().zip(&numbers) {
            let expected = (f64::from(*x) - mean) / root;
            assert!((y - expected).abs() <= 2f64.powi(-10) * expected.abs() + 1e-6, "{y}, not {expected}");
        }
    }
}

#[test]
fn a_plan_of_another_network_is_refused() {
    let (mut net, _) = network(1);
    let other = Network::new(&VarMap::new(), CPU, |vb| linear(2, 2, vb.pp("nrom"))).unwrap();
    let o2 = Policy::named("o2").unwrap();
    let error = net.apply(other.plan(&o2).unwrap()).unwrap_err().to_string();
    assert!(error.starts_with("the plan was made for another network, or for this one before it changed: "), "{error}");
    let smaller = Network::new(&VarMap::new(), CPU, |vb| linear(2, 2, vb.pp("up"))).unwrap();
    let error = net.apply(smaller.plan(&o2).unwrap()).unwrap_err().to_string();
    assert!(error.contains("before it changed: the plan has "), "{error}");
    assert!(net.applied().is_none(), "nothing was changed");
}

/// A layer of candle-nn where the precision changes.
#[test]
fn a_cell_that_needs_casts_and_has_none_is_refused() {
    let build = |vb: VarBuilder| {
        candle_linear(4, 4, vb.pp("block").pp("fc"))?;
        candle_nn::layer_norm(4, 1e-5, vb.pp("block").pp("norm")).map(|_| ())
    };
    let new = || Network::new(&VarMap::new(), CPU, build).unwrap();
    let o2 = Policy::named("o2").unwrap();
    let mut net = new();
    let error = net.apply(net.plan(&o2).unwrap()).unwrap_err();
    assert_eq!(error.kind(), Some(ErrorKind::Plan));
    for words in [
        "`block.norm` (runs f32, returns f16): tensors need casts",
        "For `block.norm`, build it by `precast_candle::layer_norm`",
        "or wrap it: `Amp::new(vb.pp(\"norm\"), |vb| ..)?`",
        "by_hand(\"block.norm\")",
    ] {
        assert!(error.to_string().contains(words), "{error}");
    }
    let mut net = new().by_hand("block.norm").unwrap();
    net.apply(net.plan(&o2).unwrap()).unwrap();
    // In a network that is f32 throughout, nothing needs casts.
    let mut net = new();
    net.apply(net.plan(&Policy::named("o0").unwrap()).unwrap()).unwrap();
}

#[test]
fn a_batch_norm_in_16_bits_is_refused() {
    struct Conv(Conv2d, Amp<BatchNorm>);
    let build = |vb: VarBuilder| {
        let conv = conv2d(1, 2, 3, Default::default(), vb.pp("conv"))?;
        Ok(Conv(conv, Amp::new(vb.pp("bn"), |vb| batch_norm(2, 1e-5, vb))?))
    };
    let mut net = Network::new(&VarMap::new(), CPU, build).unwrap();
    let error = net.apply(net.plan(&Policy::named("o3").unwrap()).unwrap()).unwrap_err().to_string();
    assert!(error.contains("add the rule `{ path: bn, run: float32-inside }`"), "{error}");
    let rule = "version: 1\nlevel: O3\ndtype: float16\nrules: [{ path: bn, run: float32-inside }]";
    net.apply(net.plan(&policy(rule)).unwrap()).unwrap();
    let model = net.build().unwrap();
    for train in [true, false] {
        let y = model.call(&common::tensor(&[2, 1, 5, 5], 1), |net, x| net.1.forward_t(&net.0.forward(x)?, train));
        assert_eq!(y.unwrap().dtype(), DType::F32);
    }
}

/// A constructor that asks for other variables when the network is built would have no plan for them.
#[test]
fn a_constructor_that_changes_is_an_error() {
    use std::sync::atomic::{AtomicUsize, Ordering};
    let runs = AtomicUsize::new(0);
    let build = move |vb: VarBuilder| vb.get(2, &format!("run{}", runs.fetch_add(1, Ordering::Relaxed)));
    let net = Network::new(&VarMap::new(), CPU, build).unwrap();
    let error = net.build().unwrap_err().to_string();
    assert!(error.starts_with("the constructor asks for `run1`, and did not when the network was learned"), "{error}");
}
