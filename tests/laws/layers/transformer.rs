//! Transformer layers: masks, stacks, refusals, and training in 16 bits. Comparisons with torch's numbers are in
//! `tests/conformance/torch/weights.rs`.

use precast::{observe, prelude::*};

use super::random;

fn encoder() -> TransformerEncoderLayerSpec {
    TransformerEncoderLayerSpec::new(8, 2).dim_feedforward(12)
}

fn decoder() -> TransformerDecoderLayerSpec {
    TransformerDecoderLayerSpec::new(8, 2).dim_feedforward(12)
}

/// Returns a mask in which query i sees keys up to i.
fn causal_mask(len: usize) -> Tensor {
    Tensor::from_vec((0..len * len).map(|at| at % len <= at / len).collect(), &[len, len]).unwrap()
}

#[test]
fn causal_is_a_mask() {
    let x = random(&[2, 5, 8], 1);
    let mask = causal_mask(5);
    let plain = Child::new(encoder().build(&mut Rng::seed(1)).unwrap());
    let causal = Child::new(encoder().causal(true).build(&mut Rng::seed(1)).unwrap());
    let masked = plain.encode(&x, Some(&mask)).unwrap().to_f64();
    assert_eq!(causal.encode(&x, None).unwrap().to_f64(), masked);
    assert_ne!(plain.encode(&x, None).unwrap().to_f64(), masked);
    assert_eq!(plain.erase().call_many(&[x.clone(), mask.clone()]).unwrap()[0].to_f64(), masked);

    let memory = random(&[2, 3, 8], 2);
    let plain = Child::new(decoder().build(&mut Rng::seed(1)).unwrap());
    let causal = Child::new(decoder().causal(true).build(&mut Rng::seed(1)).unwrap());
    let masked = plain.decode(&x, &memory, Some(&mask), None).unwrap().to_f64();
    assert_eq!(causal.decode(&x, &memory, None, None).unwrap().to_f64(), masked);
    // Masked positions of the memory make no difference.
    let seen = Tensor::from_vec(vec![true, true, false], &[1, 1, 1, 3]).unwrap();
    let two = memory.slice(1, 0..2).unwrap();
    let inputs = [x.clone(), memory, mask.clone(), seen];
    let shorter = plain.decode(&x, &two, Some(&mask), None).unwrap().to_f64();
    let hidden = plain.erase().call_many(&inputs).unwrap()[0].to_f64();
    assert!(hidden.iter().zip(&shorter).all(|(a, b)| (a - b).abs() < 1e-6));
}

#[test]
fn a_stack_runs_its_layers_one_after_the_other() {
    let rng = &mut Rng::seed(1);
    let (x, memory) = (random(&[2, 5, 8], 1), random(&[2, 3, 8], 2));
    let stack = Child::new(TransformerEncoderSpec::new(encoder(), 3).norm(true).build(rng).unwrap());
    let mask = causal_mask(5);
    let one_by_one = stack.cell().layers.iter().try_fold(x.clone(), |x, layer| layer.encode(&x, Some(&mask))).unwrap();
    let expected = stack.cell().norm.as_ref().unwrap().call(&one_by_one).unwrap().to_f64();
    assert_eq!(stack.encode(&x, Some(&mask)).unwrap().to_f64(), expected);
    assert_eq!(stack.erase().call_many(&[x.clone(), mask.clone()]).unwrap()[0].to_f64(), expected);

    let stack = Child::new(TransformerDecoderSpec::new(decoder(), 2).build(rng).unwrap());
    let one_by_one =
        stack.cell().layers.iter().try_fold(x.clone(), |x, layer| layer.decode(&x, &memory, Some(&mask), None));
    let expected = one_by_one.unwrap().to_f64();
    assert_eq!(stack.decode(&x, &memory, Some(&mask), None).unwrap().to_f64(), expected);
    assert_eq!(stack.erase().call_many(&[x, memory, mask]).unwrap()[0].to_f64(), expected);
}

/// Each layer of a stack has its own weights, and every part is a cell that a policy sees under torch's name.
#[test]
fn the_parts_have_torchs_names() {
    let rng = &mut Rng::seed(1);
    let net = Child::of(TransformerDecoderSpec::new(decoder(), 2).norm(true).build(rng).unwrap());
    let mut paths = vec![];
    net.walk(&mut |entry| paths.extend(entry.path.strip_prefix("layers.1.").map(String::from)));
    let attention = |name: &str| ["", ".q_proj", ".k_proj", ".v_proj", ".out_proj"].map(|part| format!("{name}{part}"));
    let rest = ["linear1", "dropout", "linear2", "norm1", "norm2", "norm3", "dropout1", "dropout2", "dropout3"];
    let expected = [&attention("self_attn")[..], &attention("multihead_attn"), &rest.map(String::from)].concat();
    assert_eq!(paths, expected);
    assert_ne!(super::values(&net, "layers.0.linear1.weight"), super::values(&net, "layers.1.linear1.weight"));
}

#[test]
fn what_does_not_go_together_is_refused() {
    let rng = &mut Rng::seed(1);
    let mut refused = |spec: TransformerEncoderLayerSpec, words: &str| {
        assert_eq!(spec.build(rng).unwrap_err().to_string(), words);
    };
    refused(TransformerEncoderLayerSpec::new(8, 3), "3 heads do not divide 8 features into equal parts");
    refused(encoder().dropout(1.5), "`dropout` is 1.5; allowed: 0 to 1");
    refused(encoder().layer_norm_eps(-1.0), "`layer_norm_eps` is -1; allowed: a finite number of at least 0");
    let rng = &mut Rng::seed(1);
    for layers in [0, 5000] {
        let message = TransformerEncoderSpec::new(encoder(), layers).build(rng).unwrap_err().to_string();
        assert_eq!(message, format!("`num_layers` is {layers}; allowed: 1 to 4096"));
    }
    let x = random(&[2, 5, 8], 1);
    let message = |net: &Child, inputs: &[Tensor]| net.call_many(inputs).unwrap_err().to_string();
    let layer = Child::of(encoder().build(rng).unwrap());
    assert!(message(&layer, &[]).contains("a TransformerEncoderLayer takes x, or x and a mask, got 0"));
    let narrow = message(&layer, &[random(&[2, 5, 6], 1)]);
    assert!(narrow.contains("in cell `self_attn`") && narrow.contains("attention takes [..., length, 8]"), "{narrow}");
    let one = message(&Child::of(decoder().build(rng).unwrap()), &[x]);
    assert!(one.contains("takes the target, the memory, and perhaps a mask of each, got 1 tensors"), "{one}");
}

/// torch drops weights of the attention as well.
#[test]
fn dropout_is_behind_each_part_and_between_the_dense_layers() {
    let rng = &mut Rng::seed(1);
    let (x, memory) = (random(&[2, 5, 8], 1), random(&[2, 3, 8], 2));
    let nets: [(Child, &[Tensor], usize); 2] = [
        (encoder().build(rng).unwrap().into(), std::slice::from_ref(&x), 3),
        (decoder().build(rng).unwrap().into(), &[x.clone(), memory], 4),
    ];
    for (mut net, inputs, places) in nets {
        net.set_train(true);
        let (result, events) = observe::watch(|| net.call_many(inputs));
        result.unwrap();
        assert_eq!(events.iter().filter(|event| event.op == Op::Dropout).count(), places);
    }
}

/// A classifier for the feature, of three, with the largest mean over a sequence.
#[derive(Cell, Debug)]
struct Classifier {
    encoder: Child<TransformerEncoder>,
    head: Child<Dense>,
}

impl Forward for Classifier {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        self.head.call(&self.encoder.call(x)?.mean(&[1], false)?)
    }
}

#[test]
fn a_classifier_trains_in_f16() {
    let rng = &mut Rng::seed(3);
    let layer = encoder().norm_first(true).dropout(0.05).rotary(RotaryEmbedding::default());
    let encoder = TransformerEncoderSpec::new(layer, 2).norm(true).build(rng).unwrap();
    let mut net = Child::new(Classifier { encoder: Child::new(encoder), head: Child::new(Dense::new(8, 3, rng)) });
    auto_mixed_precision(&mut net, Level::O2, DType::F16).unwrap();

    let (count, len) = (48, 6);
    let x = Tensor::randn(&[count, len, 8], rng).unwrap();
    let means = x.mean(&[1], false).unwrap().to_f64();
    let class = |features: &[f64]| (0..3).max_by(|&a, &b| features[a].total_cmp(&features[b])).unwrap() as i64;
    let classes: Vec<i64> = means.chunks(8).map(class).collect();
    let y = Tensor::from_vec(classes.clone(), &[count]).unwrap();

    let mut optimizer = Adam::new(net.params(), 0.01);
    let mut scale = LossScale::dynamic();
    net.set_train(true);
    let (mut losses, mut steps) = (vec![], 0);
    for _ in 0..80 {
        let loss = net.call(&x).unwrap().cross_entropy(&y).unwrap();
        losses.push(loss.item().unwrap());
        steps += usize::from(scale.step(&mut optimizer, &loss).unwrap() == Outcome::Stepped);
    }
    assert!(steps >= 70, "{steps} steps");
    net.set_train(false);
    let scores = net.call(&x).unwrap().to_f64();
    let right = scores.chunks(3).zip(&classes).filter(|(scores, wanted)| class(scores) == **wanted).count();
    assert!(losses[79] < 0.3 * losses[0], "{losses:?}");
    assert!(right * 10 >= count * 9, "{right} of {count}");
}
