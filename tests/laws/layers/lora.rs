//! Low-rank adapters: training, merging, and the dtype of each part.

use precast::{io::models, observe, policy::Policy, prelude::*};

use super::{assert_close, random};

fn adapted() -> (Dense, Child<LoRA>) {
    let rng = &mut Rng::seed(1);
    let base = Dense::new(6, 4, rng);
    (base.clone(), Child::new(LoRA::new(base, 2, 4.0, rng)))
}

#[test]
fn only_the_adapter_is_trained() {
    let (base, net) = adapted();
    let x = random(&[3, 6], 1);
    let before = Child::new(base.clone()).call(&x).unwrap().to_f64();
    assert_eq!(net.call(&x).unwrap().to_f64(), before);
    let trained: Vec<String> = net.params().iter().map(|(path, _)| path.to_string()).collect();
    assert_eq!(trained, ["a", "b"]);
    let all: Vec<String> = net.named_params().into_iter().map(|(path, _)| path).collect();
    assert_eq!(all, ["a", "b", "base.weight", "base.bias"]);

    let lora = net.cell();
    let mut optimizer = Sgd::new(net.params(), 0.1);
    for step in 0..3 {
        let y = net.call(&x).unwrap();
        let loss = y.mul(&y).unwrap().sum_all().unwrap();
        let grads = loss.backward().unwrap();
        assert!(grads.get(&lora.base.cell().weight).is_none() && grads.get(&base.weight).is_none());
        // While b is 0, the loss does not depend on a.
        let of_a = grads.get(&lora.a).unwrap().to_f64();
        assert_eq!(of_a.iter().all(|&g| g == 0.0), step == 0);
        optimizer.update(&grads).unwrap();
    }
    assert_eq!(lora.base.cell().weight.value().to_f64(), base.weight.value().to_f64());
    assert_ne!(net.call(&x).unwrap().to_f64(), before);
}

#[test]
fn a_merged_layer_computes_the_same_and_is_trained() {
    let (base, net) = adapted();
    let lora = net.cell();
    lora.b.set(&random(&[4, 2], 5)).unwrap();
    let merged = lora.merge().unwrap();
    // alpha / rank is 2.
    let (w, a, b) = (base.weight.value().to_f64(), lora.a.value().to_f64(), lora.b.value().to_f64());
    let at = |o: usize, i: usize| w[o * 6 + i] + 2.0 * (0..2).map(|r| b[o * 2 + r] * a[r * 6 + i]).sum::<f64>();
    let expected: Vec<f64> = (0..24).map(|flat| at(flat / 6, flat % 6)).collect();
    assert_close(&merged.weight.value(), &expected, 1e-6);
    let x = random(&[3, 6], 1);
    let merged = Child::new(merged);
    assert_close(&merged.call(&x).unwrap(), &net.call(&x).unwrap().to_f64(), 1e-5);
    assert_eq!(merged.params().len(), 2);
}

/// A rule for the base, and one for the adapters around it.
#[test]
fn the_base_runs_low_and_the_adapter_in_f32() {
    let rng = &mut Rng::seed(1);
    let mut lora = || LoRA::new(Dense::new(6, 6, rng), 2, 4.0, rng);
    let mut net = Child::of(sequential![lora(), ReLU, lora()]);
    let text = "version: 1\nlevel: O2\ndtype: bfloat16\nrules:\n\
        - { path: '**.base', run: low, expect: 2 }\n\
        - { kind: LoRA, run: float32 }\n";
    Policy::parse(text, "lora").unwrap().apply(&mut net).unwrap();
    let (y, events) = observe::watch(|| net.call(&random(&[3, 6], 1)));
    assert_eq!(y.unwrap().dtype(), DType::F32);
    let products: Vec<DType> = events.iter().filter(|e| e.op == Op::Linear).map(|e| e.output).collect();
    let (low, full) = (DType::Bf16, DType::F32);
    assert_eq!(products, [full, full, low, full, full, low]);
}

/// The base takes 2 bytes per weight, without a master, and remains the adapted layer.
#[test]
fn the_base_is_stored_low() {
    let (_, net) = adapted();
    let how = Decorate::new(DType::Bf16).masters(false).exclude_path("a").unwrap().exclude_path("b").unwrap();
    decorate(&net, how).unwrap();
    let dtypes: Vec<DType> = net.named_params().iter().map(|(_, param)| param.dtype()).collect();
    assert_eq!(dtypes, [DType::F32, DType::F32, DType::Bf16, DType::Bf16]);
    let merged = net.cell().merge().unwrap();
    assert_eq!(merged.weight.dtype(), DType::F32);
    // b is 0.
    assert_eq!(merged.weight.value().to_f64(), net.cell().base.cell().weight.value().to_f64());
    // A layer stored low with masters is adapted by its masters.
    let dense = Child::new(Dense::new(6, 4, &mut Rng::seed(1)));
    let values = dense.cell().weight.value().to_f64();
    decorate(&dense, Decorate::new(DType::Bf16)).unwrap();
    let again = LoRA::new(dense.cell().clone(), 2, 4.0, &mut Rng::seed(2));
    assert_eq!(again.base.cell().weight.value().to_f64(), values);
}

#[test]
fn dropout_is_of_the_adapter_alone() {
    let rng = &mut Rng::seed(1);
    let base = Dense::new(6, 4, rng);
    let mut net = Child::new(LoRASpec::new(base.clone(), 2, 4.0).dropout(1.0).build(rng).unwrap());
    net.cell().b.set(&random(&[4, 2], 5)).unwrap();
    let x = random(&[3, 6], 1);
    let of_base = Child::new(base).call(&x).unwrap().to_f64();
    assert_ne!(net.call(&x).unwrap().to_f64(), of_base);
    net.set_train(true);
    assert_eq!(net.call(&x).unwrap().to_f64(), of_base);
}

#[test]
fn options_out_of_range_are_refused() {
    let rng = &mut Rng::seed(1);
    let base = Dense::new(6, 4, rng);
    let mut refused = |rank: usize, alpha: f64, dropout: f64, words: &str| {
        let spec = LoRASpec::new(base.clone(), rank, alpha).dropout(dropout);
        assert_eq!(spec.build(rng).unwrap_err().to_string(), words);
    };
    refused(0, 1.0, 0.0, "`rank` is 0; allowed: at least 1");
    refused(2, f64::NAN, 0.0, "`alpha` is NaN; allowed: a finite number");
    refused(2, 1.0, 1.5, "`dropout` is 1.5; allowed: 0 to 1");
    let net = Child::of(LoRA::new(base, 0, 1.0, rng));
    let message = net.call(&random(&[3, 6], 1)).unwrap_err().to_string();
    assert_eq!(message, "in the root cell: `rank` is 0; allowed: at least 1");
}

/// Adapters in attention, as for tuning large models: everything else is frozen, stored in bf16 and run in bf16.
#[test]
fn adapters_in_attention_are_trained_beside_a_frozen_low_base() {
    let rng = &mut Rng::seed(1);
    let spec = TransformerEncoderLayerSpec::new(8, 2).dim_feedforward(16).dropout(0.0);
    let mut net = Child::new(spec.build(rng).unwrap());
    let names = |net: &Child<_>| net.named_params().into_iter().map(|(path, _)| path).collect::<Vec<String>>();
    assert!(names(&net).contains(&"self_attn.q_proj.weight".to_string()), "torch's name, before it is adapted");
    let x = random(&[2, 3, 8], 1);
    let before = net.call(&x).unwrap().to_f64();

    let attention: &mut MultiheadAttention = net.cell_mut().self_attn.cell_mut();
    for slot in [&mut attention.q_proj, &mut attention.v_proj] {
        LoRA::adapt(slot, 2, 4.0, rng).unwrap();
    }
    LoRA::adapt(&mut net.cell_mut().linear1, 2, 4.0, rng).unwrap();
    assert_eq!(net.call(&x).unwrap().to_f64(), before, "b is 0");
    let adapted = ["self_attn.q_proj", "self_attn.v_proj", "linear1"];
    let wanted: Vec<String> = adapted.iter().flat_map(|path| [format!("{path}.a"), format!("{path}.b")]).collect();
    let trained = net.params().filter(|path, _| path.ends_with(".a") || path.ends_with(".b"));
    assert_eq!(trained.iter().map(|(path, _)| path).collect::<Vec<_>>(), wanted);

    let how = Decorate::new(DType::Bf16).masters(false);
    decorate(&net, how.exclude_path("**.a").unwrap().exclude_path("**.b").unwrap()).unwrap();
    let text = "version: 1\nlevel: O2\ndtype: bfloat16\nrules:\n\
        - { path: '**.base', run: low, expect: 3 }\n\
        - { kind: LoRA, run: float32 }\n";
    Policy::parse(text, "lora").unwrap().apply(&mut net).unwrap();
    let values = |net: &Child<_>| -> Vec<(String, DType, Vec<f64>)> {
        net.named_params().iter().map(|(path, p)| (path.clone(), p.dtype(), p.value().to_f64())).collect()
    };
    let start = values(&net);
    let mut optimizer = Adam::new(trained, 1e-2);
    let target = random(&[2, 3, 8], 2);
    let mut losses = vec![];
    net.set_train(true);
    for _ in 0..20 {
        let loss = net.call(&x).unwrap().mse_loss(&target, precast::Reduction::Mean).unwrap();
        losses.push(loss.item().unwrap());
        assert_eq!(LossScale::none().step(&mut optimizer, &loss).unwrap(), Outcome::Stepped);
    }
    assert!(losses[19] < losses[0], "{losses:?}");
    for ((path, dtype, old), (_, _, new)) in start.iter().zip(values(&net)) {
        assert_eq!(wanted.contains(path), *old != new, "{path}");
        let full = wanted.contains(path) || path.starts_with("norm");
        assert_eq!(*dtype, if full { DType::F32 } else { DType::Bf16 }, "{path}");
    }
    // The options of the layer do not describe what was inserted into it.
    let message = models::to_yaml(&net.erase()).unwrap_err().to_string();
    let words = "`self_attn.q_proj` of the TransformerEncoderLayer is a LoRA";
    assert!(message.contains(words), "{message}");
    let message = LoRA::adapt(&mut Child::of(ReLU), 2, 4.0, rng).unwrap_err().to_string();
    assert_eq!(message, "LoRA adapts a Dense, and a ReLU sits in this slot");
}
