//! Networks as people write them: convolutions with a batch norm and a pool, recurrent layers, a transformer block.

mod common;

use candle_core::{D, DType, Module, Result, Tensor};
use candle_nn::{
    AdamW, BatchNorm, Conv2d, Embedding, LSTM, RNN, VarBuilder, VarMap, batch_norm, conv2d, embedding,
    loss::cross_entropy, lstm,
};
use common::{CPU, floats, policy, random, tensor};
use precast_candle::{
    Amp, Linear, Network, Policy, RmsNorm, ScaleMachine, linear, linear_no_bias, rms_norm, rope, softmax,
};

/// Trains by each policy from the same values, and compares the first gradients and the losses with those of f32.
fn trains<N: 'static>(
    build: fn(VarBuilder) -> Result<N>,
    x: &Tensor,
    classes: u32,
    forward: fn(&N, &Tensor) -> Result<Tensor>,
) {
    let mut of_f32 = None;
    for name in ["o0", "o2", "o1", "o2-bf16", "o3-bf16"] {
        let vars = VarMap::new();
        let mut net = Network::new(&vars, CPU, build).unwrap();
        random::seeded(&vars, 3).unwrap();
        let mut policy = Policy::named(name).unwrap();
        if name == "o3-bf16" {
            let rule = "rules: [{ kind: BatchNorm2d, run: float32-inside }]";
            let with_rule = common::policy(&format!("version: 1\nlevel: O3\ndtype: bfloat16\n{rule}"));
            policy = if net.plan(&with_rule).is_ok() { with_rule } else { policy };
        }
        let plan = net.plan(&policy).unwrap();
        if name.ends_with("bf16") && plan.decisions.iter().any(|one| one.kind == "Conv2d") {
            // candle's convolutions have no bf16 on CPUs.
            let error = net.apply(plan).unwrap_err().to_string();
            assert!(error.starts_with("`conv1` would run in bf16, in which the device Cpu has no Conv2d"), "{error}");
            continue;
        }
        net.apply(plan).unwrap();
        let mut scale = ScaleMachine::new(policy.loss_scale.clone()).unwrap();
        let mut adamw = AdamW::new_lr(net.vars(), 0.01).unwrap();
        let rows = x.dim(0).unwrap();
        let y = Tensor::from_iter((0..rows as u32).map(|row| row % classes), CPU).unwrap();
        let loss = |net: &Network<N>| cross_entropy(&net.build().unwrap().call(x, forward).unwrap(), &y).unwrap();
        let grads = net.backward(&ScaleMachine::fixed(128.0).unwrap(), &loss(&net)).unwrap().unscale().unwrap();
        assert_eq!((grads.missing(), grads.first_non_finite()), (Vec::new(), None), "{name}");
        let grads: Vec<Vec<f32>> = grads.iter().map(|(_, grad)| floats(grad)).collect();
        let mut losses = Vec::new();
        for _ in 0..30 {
            let loss = loss(&net);
            assert_eq!(loss.dtype(), DType::F32);
            let _ = net.step(&mut scale, &mut adamw, &loss).unwrap();
            losses.push(loss.to_scalar::<f32>().unwrap());
        }
        assert!(losses[29] < losses[0] / 2.0, "{name}: {losses:?}");
        let (first, of_f32) = of_f32.get_or_insert((losses[0], grads.clone()));
        assert!((losses[0] - *first).abs() < 0.03 * *first, "{name}: {} for {first}", losses[0]);
        for (grad, exact) in grads.iter().zip(of_f32) {
            let dot = |a: &[f32], b: &[f32]| a.iter().zip(b).map(|(a, b)| f64::from(*a) * f64::from(*b)).sum::<f64>();
            let (lengths, product) = ((dot(grad, grad) * dot(exact, exact)).sqrt(), dot(grad, exact));
            // A bias before a batch norm has no slope.
            let none = exact.iter().all(|x| x.abs() < 1e-4);
            assert!(none || product / lengths > 0.97, "{name}: another direction, {}", product / lengths);
        }
    }
}

#[test]
fn convolutions_with_a_batch_norm() {
    struct Net(Amp<Conv2d>, Amp<BatchNorm>, Amp<Conv2d>, Linear);
    let build = |vb: VarBuilder| {
        let config = candle_nn::Conv2dConfig { padding: 1, ..Default::default() };
        Ok(Net(
            Amp::new(vb.pp("conv1"), |vb| conv2d(1, 4, 3, config, vb))?,
            Amp::new(vb.pp("bn"), |vb| batch_norm(4, 1e-5, vb))?,
            Amp::new(vb.pp("conv2"), |vb| conv2d(4, 4, 3, config, vb))?,
            linear(16, 3, vb.pp("head"))?,
        ))
    };
    let forward = |net: &Net, x: &Tensor| {
        let h = net.1.forward_t(&net.0.forward(x)?, true)?.relu()?.max_pool2d(2)?;
        net.3.forward(&net.2.forward(&h)?.relu()?.avg_pool2d(2)?.flatten_from(1)?)
    };
    trains(build, &tensor(&[12, 1, 8, 8], 1), 3, forward);
}

#[test]
fn an_lstm_over_embeddings() {
    struct Net(Embedding, Amp<LSTM>, Linear);
    let build = |vb: VarBuilder| {
        let rnn = Amp::new(vb.pp("lstm"), |vb| lstm(6, 8, Default::default(), vb))?;
        Ok(Net(embedding(10, 6, vb.pp("embed"))?, rnn, linear(8, 3, vb.pp("head"))?))
    };
    let forward = |net: &Net, ids: &Tensor| {
        let last = |lstm: &LSTM, x: &Tensor| Ok(lstm.seq(x)?.last().expect("a sequence").h().clone());
        net.2.forward(&net.1.call(&net.0.forward(ids)?, last)?)
    };
    let ids = (tensor(&[9, 5], 1) * 4.99).unwrap().abs().unwrap().to_dtype(DType::U32).unwrap();
    trains(build, &ids, 3, forward);
}

#[test]
fn a_transformer_block() {
    struct Net(Embedding, RmsNorm, Linear, RmsNorm, Linear, Linear);
    let build = |vb: VarBuilder| {
        Ok(Net(
            embedding(10, 8, vb.pp("embed"))?,
            rms_norm(8, 1e-6, vb.pp("norm1"))?,
            linear_no_bias(8, 24, vb.pp("qkv"))?,
            rms_norm(8, 1e-6, vb.pp("norm2"))?,
            linear_no_bias(8, 16, vb.pp("up"))?,
            linear(16, 3, vb.pp("head"))?,
        ))
    };
    let forward = |net: &Net, ids: &Tensor| {
        let x = net.0.forward(ids)?;
        let (batch, length, _) = x.dims3()?;
        let qkv = net.2.forward(&net.1.forward(&x)?)?.reshape((batch, length, 3, 2, 4))?;
        let part = |i| qkv.narrow(2, i, 1)?.squeeze(2)?.transpose(1, 2)?.contiguous();
        let (cos, sin) = (tensor(&[length, 2], 5).cos()?, tensor(&[length, 2], 5).sin()?);
        let (q, k) = (rope(&part(0)?, &cos, &sin)?, rope(&part(1)?, &cos, &sin)?);
        let y = softmax(&(q.matmul(&k.t()?.contiguous()?)? / 2.0)?, D::Minus1)?.matmul(&part(2)?)?;
        let x = (x + y.transpose(1, 2)?.reshape((batch, length, 8))?)?;
        net.5.forward(&net.4.forward(&net.3.forward(&x)?)?.silu()?.mean(1)?)
    };
    let ids = (tensor(&[9, 5], 1) * 4.99).unwrap().abs().unwrap().to_dtype(DType::U32).unwrap();
    trains(build, &ids, 3, forward);
}

/// A block in a precision of its own, with further inputs.
#[test]
fn a_block_with_two_inputs_runs_in_f32() {
    struct Block(Linear);
    struct Net(Linear, Amp<Block>);
    let build = |vb: VarBuilder| {
        let block = Amp::new(vb.pp("block"), |vb| Ok(Block(linear(4, 4, vb.pp("fc"))?)))?;
        Ok(Net(linear(4, 4, vb.pp("up"))?, block))
    };
    let mut net = Network::new(&VarMap::new(), CPU, build).unwrap();
    let text = "version: 1\nlevel: O3\ndtype: bfloat16\nrules: [{ kind: Block, run: float32-inside }]";
    let plan = net.plan(&policy(text)).unwrap();
    assert_eq!(plan.explain("block").unwrap().decision.effect(), "runs f32, returns bf16");
    net.apply(plan).unwrap();
    let y = net.build().unwrap().call(&tensor(&[2, 4], 1), |net, x| {
        let h = net.0.forward(x)?;
        let y = net.1.call(&h, |block, x| {
            let mask = net.1.input(&h.ones_like()?)?;
            assert_eq!([x.dtype(), mask.dtype(), block.0.weight().dtype()], [DType::F32; 3]);
            block.0.forward(&(x * mask)?)
        })?;
        assert_eq!([h.dtype(), y.dtype()], [DType::BF16; 2]);
        Ok(y)
    });
    assert_eq!(y.unwrap().dtype(), DType::F32);
}
