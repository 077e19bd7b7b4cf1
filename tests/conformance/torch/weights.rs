//! State dicts of torch 2.15, written by `tools/peers/torch/weights.py`, load into our layers, which then compute torch's
//! outputs.

use std::path::PathBuf;

use precast::{
    cell::AsCell,
    prelude::*,
    storage::weights::{self, LoadOptions, Loaded},
};

use crate::common::folder::Folder;

fn file(name: &str) -> PathBuf {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/goldens-extra/torch/weights");
    PathBuf::from(folder).join(format!("{name}.safetensors"))
}

/// Loads a network with torch's names and compares its output with the recorded one.
fn loaded<C: ?Sized + AsCell>(net: &Child<C>, name: &str, options: &LoadOptions) -> Loaded {
    let loaded = weights::load_with(net, file(name), options).unwrap();
    let call = weights::read(file(&format!("{name}-call"))).unwrap();
    let x = call["x"].clone().requires_grad();
    let more = [call.get("memory"), call.get("mask")].into_iter().flatten().cloned();
    let y = net.call_many(&[x.clone()].into_iter().chain(more).collect::<Vec<_>>()).unwrap().swap_remove(0);
    let close = |what: &str, ours: &Tensor, theirs: &Tensor, tolerance: f64| {
        assert_eq!(ours.shape(), theirs.shape(), "{name}, {what}");
        for (ours, theirs) in ours.to_f64().into_iter().zip(theirs.to_f64()) {
            assert!(
                (ours - theirs).abs() <= tolerance * theirs.abs().max(1.0),
                "{name}, {what}: {ours} beside {theirs}"
            );
        }
    };
    close("y", &y, &call["y"], 2e-6);
    let loss = y.mul(&y).unwrap().sum_all().unwrap().mul(&Tensor::scalar(0.5, DType::F32)).unwrap();
    close("dx", &loss.backward().unwrap().of(&x).unwrap(), &call["dx"], 1e-5);
    loaded
}

#[derive(Cell, Debug)]
struct ConvNet {
    features: Child<Sequential>,
    head: Child<Dense>,
}

impl Forward for ConvNet {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        self.head.call(&self.features.call(x)?.relu()?.flatten(1)?)
    }
}

fn conv_net() -> Child<ConvNet> {
    let rng = &mut Rng::seed(1);
    let first = Conv2dSpec::new(2, 4, 3).padding(1).build(rng).unwrap();
    let second = Conv2dSpec::new(4, 6, 3).stride(2).bias(false).build(rng).unwrap();
    let features = sequential![first, BatchNorm2d::new(4), ReLU, second, BatchNorm2d::new(6)];
    Child::new(ConvNet { features: Child::new(features), head: Child::new(Dense::new(24, 3, rng)) })
}

#[test]
fn a_batch_norm_network() {
    let net = conv_net();
    let report = loaded(&net, "convnet", &LoadOptions::torch());
    assert_eq!(report.loaded.len(), net.named_params().len());
    assert_eq!(report.ignored, ["features.1.num_batches_tracked", "features.4.num_batches_tracked"]);
    assert!(report.left.is_empty() && report.renamed.is_empty() && report.split.is_empty());
    // Without the options, exactly these are left over.
    let message = weights::load(&conv_net(), file("convnet")).unwrap_err().to_string();
    assert!(message.contains("2 differences:"), "{message}");
    assert!(message.contains("- `features.4.num_batches_tracked` is not in the network"), "{message}");
}

#[derive(Cell, Debug)]
struct Block {
    norm: Child<LayerNorm>,
    attn: Child<MultiheadAttention>,
}

impl Forward for Block {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        x.add(&self.attn.call(&self.norm.call(x)?)?)
    }
}

#[test]
fn fused_projections_of_attention() {
    let rng = &mut Rng::seed(1);
    let attn = Child::new(MultiheadAttention::new(8, 2, rng));
    let net = Child::new(Block { norm: Child::new(LayerNorm::new(&[8])), attn });
    let report = loaded(&net, "attention", &LoadOptions::torch());
    let parts = ["attn.q_proj.bias", "attn.k_proj.bias", "attn.v_proj.bias"].map(String::from).to_vec();
    assert_eq!(report.split[0], ("attn.in_proj_bias".to_string(), parts));
    assert_eq!(report.loaded.len(), 10);
    // The parts of a key omitted by a user's split are missing.
    let two = LoadOptions::new().split("attn.in_proj_weight", ["attn.q_proj.weight", "attn.v_proj.weight"], 0);
    let message = weights::load_with(&net, file("attention"), &two).unwrap_err().to_string();
    assert!(message.contains("`attn.in_proj_weight` has the shape [24, 8]; its parts"), "{message}");
    assert!(message.contains("`attn.k_proj.weight` is not in the file"), "{message}");
}

/// Encoders and decoders have torch's names, so that nothing is renamed; their fused projections are split.
#[test]
fn transformers() {
    let rng = &mut Rng::seed(1);
    let encoder = || TransformerEncoderLayerSpec::new(8, 2).dim_feedforward(12);
    let decoder = || TransformerDecoderLayerSpec::new(8, 2).dim_feedforward(12);
    let gelu = TransformerActivation::Gelu;
    let masked = encoder().norm_first(true).activation(gelu).build(rng).unwrap();
    let nets: [(&str, Child, usize); 8] = [
        ("encoder-layer", encoder().build(rng).unwrap().into(), 2),
        (
            "encoder-layer-gelu",
            encoder().activation(gelu).layer_norm_eps(1e-3).bias(false).build(rng).unwrap().into(),
            1,
        ),
        ("encoder-layer-norm-first", encoder().norm_first(true).build(rng).unwrap().into(), 2),
        ("encoder-layer-masked", Masked { layer: Child::new(masked) }.into(), 2),
        (
            "encoder",
            TransformerEncoderSpec::new(encoder().norm_first(true), 2).norm(true).build(rng).unwrap().into(),
            4,
        ),
        ("decoder-layer", decoder().build(rng).unwrap().into(), 4),
        ("decoder-layer-norm-first", decoder().norm_first(true).activation(gelu).build(rng).unwrap().into(), 4),
        ("decoder", TransformerDecoderSpec::new(decoder(), 2).build(rng).unwrap().into(), 8),
    ];
    for (name, net, split) in nets {
        let report = loaded(&net, name, &LoadOptions::torch());
        assert_eq!((report.loaded.len(), report.split.len()), (net.named_params().len(), split), "{name}");
        assert!(report.renamed.is_empty() && report.ignored.is_empty() && report.left.is_empty(), "{name}");
    }
}

/// Without an `eps`, torch takes the spacing of f32 at 1.
#[test]
fn a_root_mean_square_norm() {
    let net = Child::new(RmsNormSpec::new(8).eps(f32::EPSILON).build().unwrap());
    assert_eq!(loaded(&net, "rms-norm", &LoadOptions::torch()).loaded, ["weight"]);
}

/// An encoder layer inside another cell.
#[derive(Cell, Debug)]
struct Masked {
    layer: Child<TransformerEncoderLayer>,
}

impl Forward for Masked {
    fn forward_many(&self, inputs: &[Tensor]) -> Result<Vec<Tensor>> {
        Ok(vec![self.layer.encode(&inputs[0], inputs.get(1))?])
    }
}

#[derive(Cell, Debug)]
struct Tagger {
    lstm: Child<LSTM>,
    head: Child<Dense>,
}

impl Forward for Tagger {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        self.head.call(&self.lstm.call(x)?)
    }
}

#[test]
fn a_recurrent_network() {
    let rng = &mut Rng::seed(1);
    let lstm = LSTMSpec::new(3, 5).num_layers(2).bidirectional(true).build(rng).unwrap();
    let net = Child::new(Tagger { lstm: Child::new(lstm), head: Child::new(Dense::new(10, 2, rng)) });
    let report = loaded(&net, "tagger", &LoadOptions::torch());
    assert!(report.renamed.is_empty() && report.loaded.len() == 18);
}

/// The same, step by step.
#[derive(Cell, Debug)]
struct Steps {
    lstm: Child<LSTMCell>,
    head: Child<Dense>,
}

impl Forward for Steps {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let (batch, time) = (x.shape()[0], x.shape()[1]);
        let (mut h, mut c) = (Tensor::zeros(&[batch, 5], DType::F32), Tensor::zeros(&[batch, 5], DType::F32));
        let mut all = Vec::new();
        for t in 0..time {
            (h, c) = self.lstm.step(&x.at(1, t)?, (&h, &c))?;
            all.push(h.clone());
        }
        self.head.call(&Tensor::stack(&all.iter().collect::<Vec<_>>(), 1)?)
    }
}

#[test]
fn a_recurrent_layer_becomes_a_cell() {
    let rng = &mut Rng::seed(1);
    let head = || Child::new(Dense::new(5, 2, &mut Rng::seed(1)));
    let steps = Child::new(Steps { lstm: Child::new(LSTMCell::new(3, 5, rng)), head: head() });
    let report = loaded(&steps, "small-tagger", &LoadOptions::torch());
    assert_eq!(report.renamed[0], ("lstm.bias_hh_l0".to_string(), "lstm.bias_hh".to_string()));
    let layer = Child::new(Tagger { lstm: Child::new(LSTM::new(3, 5, rng)), head: head() });
    assert!(loaded(&layer, "small-tagger", &LoadOptions::torch()).renamed.is_empty());
}

/// A preset gives way to a network that has the name itself.
#[test]
fn prefixes_and_older_names() {
    let folder = Folder::new("torch-names");
    let path = folder.at("net.safetensors");
    let (ones, zeros) = (Tensor::full(&[2], 3.0, DType::F32), Tensor::full(&[2], 4.0, DType::F32));
    weights::write(&path, [("module._orig_mod.0.gamma", &ones), ("module._orig_mod.0.beta", &zeros)]).unwrap();
    let net = Child::of(sequential![LayerNorm::new(&[2])]);
    weights::load_with(&net, &path, &LoadOptions::torch()).unwrap();
    let values: Vec<Vec<f64>> = net.named_params().iter().map(|(_, param)| param.value().to_f64()).collect();
    assert_eq!(values, [[3.0; 2], [4.0; 2]]);

    #[derive(Cell, Debug)]
    struct Module {
        module: Child<LayerNorm>,
    }
    impl Forward for Module {}
    weights::write(&path, [("module.weight", &ones), ("module.bias", &zeros)]).unwrap();
    let net = Child::new(Module { module: Child::new(LayerNorm::new(&[2])) });
    assert!(weights::load_with(&net, &path, &LoadOptions::torch()).unwrap().renamed.is_empty());
}
