//! Plans in force on networks of burn: dtypes, values, gradients, undo.

mod networks;

use burn::{
    module::{Module, ModuleVisitor, Param},
    nn::{LayerNorm, LayerNormConfig, Linear, LinearConfig, Relu},
    tensor::{DType, FloatDType, Tensor, TensorData},
};
use networks::{Mlp, Tower, device, images, rows};
use precast_burn::{Amp, ErrorKind, LossScale, Policy};

/// Dtypes of all parameters: as stored, and as the forward pass reads them.
fn dtypes<M: Module>(net: &M) -> Vec<(String, DType)> {
    #[derive(Default)]
    struct Dtypes(Vec<String>, Vec<(String, DType)>);
    impl ModuleVisitor for Dtypes {
        fn enter_module(&mut self, name: &str, _: &str) {
            self.0.push(name.into());
        }
        fn exit_module(&mut self, _: &str, _: &str) {
            self.0.pop();
        }
        fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
            self.1.push((self.0.join("."), param.val().dtype()));
        }
    }
    let mut dtypes = Dtypes::default();
    net.visit(&mut dtypes);
    dtypes.1
}

fn bits(data: TensorData) -> Vec<u8> {
    data.bytes().to_vec()
}

fn policy(text: &str) -> Policy {
    Policy::parse(&format!("version: 1\n{text}"), "test.yaml").unwrap()
}

/// Norms and products in an `Amp` each: at O1 products run low, at O2 all but the norm, and nothing casts where nothing changes.
#[test]
fn one_source_serves_every_level() {
    #[derive(Module, Debug)]
    struct Net {
        norm: Amp<LayerNorm>,
        up: Amp<Linear>,
        act: Relu,
    }
    let device = device();
    for (level, dtypes) in [
        ("O0", [DType::F32; 3]),
        ("O1", [DType::F32; 3]),
        ("O2", [DType::F16, DType::F16, DType::F16]),
        ("O3", [DType::F16, DType::F16, DType::F16]),
    ] {
        let (norm, up) = (LayerNormConfig::new(8).init(&device), LinearConfig::new(8, 16).init(&device));
        let mut net = Amp::new(Net { norm: norm.into(), up: up.into(), act: Relu::new() });
        let _applied = policy(&format!("level: {level}\ndtype: float16\n")).apply(&mut net).unwrap();
        let mut between = Vec::new();
        let y = net.with(rows(&device), |net, x| {
            let x = net.norm.forward(x);
            between.push(x.dtype());
            let x = net.up.forward(x);
            between.push(x.dtype());
            let x = net.act.forward(x);
            between.push(x.dtype());
            x
        });
        assert_eq!((&between[..], y.dtype()), (&dtypes[..], DType::F32), "{level}");
        let weights = [net.inner().norm.inner().gamma.val().dtype(), net.inner().up.inner().weight.val().dtype()];
        let low = |is_low: bool| if is_low { DType::F16 } else { DType::F32 };
        assert_eq!(weights, [low(level == "O3"), low(level != "O0")], "{level}");
    }
}

#[test]
fn a_plan_names_each_module_with_its_reason() {
    let net = Amp::new(Tower::new(&device()));
    let plan = Policy::named("o2").unwrap().plan(&net).unwrap();
    let text = plan.to_string();
    for (path, kind, run) in [
        ("conv", "Conv2d", "f16"),
        ("norm", "BatchNorm", "f32"),
        ("act", "Relu", "f16"),
        ("blocks.0", "Block", "f16"),
        ("blocks.1.norm", "LayerNorm", "f32"),
        ("blocks.1.up", "Linear", "f16"),
        ("blocks.1.act", "Gelu", "f16"),
        ("head", "Linear", "f16"),
    ] {
        let decision = plan.decision(path).unwrap();
        assert_eq!((&*decision.kind, decision.run.to_string().as_str()), (kind, run), "{path}\n{text}");
    }
    assert_eq!(plan.decision("norm").unwrap().because.to_string(), "full list, precast-1");
    assert!(text.contains("Tower"), "{text}");
}

#[test]
fn weights_are_stored_in_f32_and_read_in_their_planned_dtype() {
    for (level, low) in [("o2", FloatDType::F16), ("o2-bf16", FloatDType::BF16)] {
        let mut net = Amp::new(Tower::new(&device()));
        let applied = Policy::named(level).unwrap().apply(&mut net).unwrap();
        assert!(applied.notes().is_empty(), "{applied}");
        let tower = net.inner();
        assert_eq!(tower.conv.weight.val().dtype(), low.into());
        assert_eq!(tower.blocks[0].up.weight.val().dtype(), low.into());
        assert_eq!(tower.blocks[0].norm.inner().gamma.val().dtype(), DType::F32);
        assert!(dtypes(&net).iter().all(|(_, dtype)| *dtype == DType::F32), "records and optimizers have f32");
        assert_eq!(net.casts(), Some((low, FloatDType::F32)));
        assert_eq!(tower.norm.casts(), Some((FloatDType::F32, low)));
        let y = net.forward(images(&device()));
        assert_eq!(y.dtype(), DType::F32, "the root returns f32");
        let low_inside = net.inner().with_dtypes(images(&device()).cast(low));
        assert_eq!(low_inside, vec![low.into(); 4], "between the modules everything is low");
    }
}

/// The bound: each of the six layers rounds its weights and its result once to half an ulp, and the norms divide by a
/// deviation near 1.
#[test]
fn low_results_are_within_the_rounding_of_their_dtype() {
    for (level, epsilon) in [("o2", 2f32.powi(-11)), ("o2-bf16", 2f32.powi(-8))] {
        let net = Tower::new(&device());
        let full: Vec<f32> = net.forward_plain(images(&device())).into_data().try_to_vec().unwrap();
        let mut low = Amp::new(net);
        let _applied = Policy::named(level).unwrap().apply(&mut low).unwrap();
        let low: Vec<f32> = low.forward(images(&device())).into_data().try_to_vec().unwrap();
        assert_ne!(full, low, "{level}");
        let largest = full.iter().fold(0f32, |most, y| most.max(y.abs()));
        for (full, low) in full.iter().zip(&low) {
            assert!((full - low).abs() <= 24.0 * epsilon * largest, "{level}: {full} {low}");
        }
    }
}

#[test]
fn undo_gives_back_the_bits() {
    let net = Tower::new(&device());
    let before = bits(net.forward_plain(images(&device())).into_data());
    let mut net = Amp::new(net);
    let applied = Policy::named("o2").unwrap().apply(&mut net).unwrap();
    let low = bits(net.forward(images(&device())).into_data());
    assert_ne!(before, low);
    // Another plan on top, and back, one by one.
    let again = Policy::named("o2-bf16").unwrap().apply(&mut net).unwrap();
    assert_ne!(low, bits(net.forward(images(&device())).into_data()));
    again.undo(&mut net).unwrap();
    assert_eq!(low, bits(net.forward(images(&device())).into_data()));
    applied.undo(&mut net).unwrap();
    assert_eq!(before, bits(net.forward(images(&device())).into_data()));
    assert_eq!(net.casts(), None);
    // The cast that does nothing can be taken off.
    let plain = net.materialize();
    assert_eq!(before, bits(plain.forward(images(&device())).into_data()));
}

#[test]
fn a_clone_keeps_its_own_plan() {
    let mut net = Amp::new(Tower::new(&device()));
    let copy = net.clone();
    let _applied = Policy::named("o2").unwrap().apply(&mut net).unwrap();
    assert_eq!(copy.inner().conv.weight.val().dtype(), DType::F32);
    let evaluated = net.valid();
    assert_eq!(evaluated.inner().conv.weight.val().dtype(), DType::F16);
    assert_eq!(evaluated.casts(), net.casts());
}

#[test]
fn a_module_without_its_wrapper_is_named() {
    let mut net = Amp::new(networks::Bare::new(&device()));
    let error = Policy::named("o2").unwrap().apply(&mut net).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    let text = error.to_string();
    assert!(text.contains("`norm` (LayerNorm) runs f32, returns f16: declare its field as `Amp<LayerNorm>`"), "{text}");
    assert_eq!(net.casts(), None, "unchanged");
    assert_eq!(net.inner().fc.weight.val().dtype(), DType::F32, "unchanged");
    // A rule keeps it in the precision around it.
    let inherit = policy("level: O2\ndtype: bfloat16\nrules: [{ path: norm, run: inherit }]\n");
    let _applied = inherit.apply(&mut net).unwrap();
    assert_eq!(net.inner().norm.gamma.val().dtype(), DType::BF16);
    assert_eq!(net.forward(rows(&device())).dtype(), DType::F32);
}

#[test]
fn level_o1_lowers_the_products_alone() {
    let mut net = Amp::new(Mlp::new(&device()));
    let plan = Policy::named("o1").unwrap().plan(&net).unwrap();
    let applied = plan.apply(&mut net).unwrap();
    assert!(applied.to_string().contains("op lists"), "{applied}");
    assert_eq!(net.inner().up.casts(), Some((FloatDType::F16, FloatDType::F32)));
    assert_eq!(net.inner().up.inner().weight.val().dtype(), DType::F16);
    assert_eq!(net.forward(rows(&device())).dtype(), DType::F32);
}

#[test]
fn rules_and_code_keep_a_module_in_f32() {
    let rule = policy("level: O2\ndtype: float16\nrules: [{ path: up, run: float32, because: the test says so }]\n");
    let mut net = Amp::new(Mlp::new(&device()));
    let plan = rule.plan(&net).unwrap();
    assert!(plan.to_string().contains("the test says so"), "{plan}");
    let _applied = plan.apply(&mut net).unwrap();
    assert_eq!(net.inner().up.inner().weight.val().dtype(), DType::F32);
    assert_eq!(net.inner().down.inner().weight.val().dtype(), DType::F16);

    let mut mlp = Mlp::new(&device());
    mlp.up = mlp.up.to_float(precast_burn::DType::F32);
    let mut net = Amp::new(mlp);
    let plan = Policy::named("o2").unwrap().plan(&net).unwrap();
    assert_eq!(plan.decision("up").unwrap().run.to_string(), "f32", "{plan}");
    let _applied = plan.apply(&mut net).unwrap();
    assert_eq!(net.inner().up.inner().weight.val().dtype(), DType::F32);
}

#[test]
fn what_burn_cannot_do_is_refused() {
    let refused = |policy: &Policy, words: &str| {
        let mut net = Amp::new(Tower::new(&device()));
        let text = policy.apply(&mut net).unwrap_err().to_string();
        assert!(text.contains(words), "{text}");
        assert_eq!(net.casts(), None);
        assert_eq!(net.inner().conv.weight.val().dtype(), DType::F32);
    };
    refused(&Policy::named("auto").unwrap(), "level auto decides op by op");
    refused(&Policy::named("o3").unwrap(), "`norm` (BatchNorm) cannot run in f16: the variance");
    refused(&policy("level: O2\ndtype: float16\nrules: [{ path: heat, run: float32 }]\n"), "did you mean");

    let other = Policy::named("o2").unwrap().plan(&Amp::new(Mlp::new(&device()))).unwrap();
    let text = other.apply(&mut Amp::new(Tower::new(&device()))).unwrap_err().to_string();
    assert!(text.starts_with("the plan was made for another network, or for this one"), "{text}");
}

#[test]
fn gradients_arrive_in_f32_at_every_parameter() {
    struct Seen<'a>(&'a burn::optim::GradientsParams, usize);
    impl ModuleVisitor for Seen<'_> {
        fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
            if let Some(grad) = self.0.get::<D>(param.id) {
                assert_eq!(grad.dtype(), DType::F32);
                self.1 += 1;
            }
        }
    }
    for level in ["o2", "o2-bf16"] {
        let mut net = Amp::new(Tower::new(&device()));
        let policy = Policy::named(level).unwrap();
        let _applied = policy.apply(&mut net).unwrap();
        let scale = LossScale::new(&policy).unwrap();
        let loss = net.forward(images(&device())).square().mean();
        let checked = scale.backward(loss, &net).unwrap().unscale(&net);
        assert_eq!(checked.missing, Vec::<String>::new());
        let mut seen = Seen(&checked.grads, 0);
        net.visit(&mut seen);
        assert_eq!(seen.1, 18, "two for the convolution, the batch norm and the head, six for each block");
    }
}

#[test]
fn a_record_has_the_same_names_and_bits_with_and_without_a_plan() {
    let net = Tower::new(&device());
    let mut low = Amp::new(net.clone());
    let _applied = Policy::named("o2").unwrap().apply(&mut low).unwrap();
    let folder = std::env::temp_dir().join(format!("precast-burn-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let (plain, planned) = (folder.join("plain.bpk"), folder.join("planned.bpk"));
    net.clone().save_file(&plain).unwrap();
    low.clone().save_file(&planned).unwrap();
    // Either is loaded by the other.
    let loaded = Tower::new(&device()).load_file(&planned);
    let before = bits(net.forward_plain(images(&device())).into_data());
    assert_eq!(before, bits(loaded.forward_plain(images(&device())).into_data()));
    let mut other = Amp::new(Tower::new(&device()));
    let _applied = Policy::named("o2").unwrap().apply(&mut other).unwrap();
    let other = other.load_file(&plain);
    assert_eq!(other.inner().conv.weight.val().dtype(), DType::F16, "the plan stays in force");
    assert_eq!(bits(low.forward(images(&device())).into_data()), bits(other.forward(images(&device())).into_data()));
    std::fs::remove_dir_all(folder).unwrap();
}

#[test]
fn what_has_no_effect_is_noted() {
    let text = "level: O2\ndtype: float16\nrules:\n- { path: up, run: float32-inside, until: { step: 10 } }\n- { path: down, \
                after_stall: raise }\n- { path: act, checkpoint: true }\n";
    let applied = policy(text).apply(&mut Amp::new(Mlp::new(&device()))).unwrap();
    let notes = applied.to_string();
    assert!(notes.contains("`until` or `after_stall`") && notes.contains("not recomputed"), "{notes}");
}

/// The plan that the README shows.
#[test]
fn the_plan_of_the_readme_is_that_of_its_program() {
    use burn::nn::{
        BatchNorm, BatchNormConfig, Linear, LinearConfig, Relu,
        conv::{Conv2d, Conv2dConfig},
    };
    #[derive(Module, Debug)]
    struct Net {
        conv1: Amp<Conv2d>,
        norm: Amp<BatchNorm>,
        act: Relu,
        head: Linear,
    }
    let readme = include_str!("../README.md");
    let between = |begin: &str, end: &str| readme.split_once(begin).unwrap().1.split_once(end).unwrap().0.to_string();
    let policy = Policy::parse(&between("const POLICY: &str = \"", "\";"), "digits.yaml").unwrap();
    let net = Amp::new(Net {
        conv1: Conv2dConfig::new([1, 16], [3, 3]).init(&device()).into(),
        norm: BatchNormConfig::new(16).init(&device()).into(),
        act: Relu::new(),
        head: LinearConfig::new(576, 10).init(&device()),
    });
    assert_eq!(policy.plan(&net).unwrap().to_string().trim_end(), between("```text\n", "```").trim_end());
}
