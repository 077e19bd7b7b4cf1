//! Traps of candle, each with its remedy here. A trap that candle mends fails these tests, so that the documentation can
//! drop it.

mod common;

use candle_core::{D, DType, Device, Module, Result, Tensor, Var};
use candle_nn::{ModuleT, RNN, VarBuilder, VarMap, batch_norm, ops};
use common::{CPU, floats, tensor};
use precast_candle::{Amp, LayerNorm, Network, Policy, layer_norm, linear, rms_norm, rope, softmax};

/// Returns whether a gradient reaches the input of a function.
fn reaches(run: impl Fn(&Tensor) -> Result<Tensor>) -> bool {
    let x = Var::from_tensor(&tensor(&[1, 2, 3, 4], 1)).unwrap();
    run(&x).unwrap().sqr().unwrap().sum_all().unwrap().backward().unwrap().get(&x).is_some()
}

#[test]
fn fused_ops_cut_gradients_and_ours_do_not() {
    let vars = VarMap::new();
    let vb = VarBuilder::from_varmap(&vars, DType::F32, CPU);
    let (cos, sin) = (tensor(&[3, 2], 2), tensor(&[3, 2], 3));
    let norm = candle_nn::layer_norm(4, 1e-5, vb.pp("a")).unwrap();
    let rms = candle_nn::rms_norm(4, 1e-5, vb.pp("b")).unwrap();
    assert!(!reaches(|x| norm.forward(x)));
    assert!(!reaches(|x| rms.forward(x)));
    assert!(!reaches(ops::softmax_last_dim));
    assert!(!reaches(|x| candle_nn::rotary_emb::rope(x, &cos, &sin)));
    assert!(!reaches(|x| candle_nn::rotary_emb::rope_i(x, &cos, &sin)));
    let norm = layer_norm(4, 1e-5, vb.pp("a")).unwrap();
    let rms = rms_norm(4, 1e-5, vb.pp("b")).unwrap();
    assert!(reaches(|x| norm.forward(x)));
    assert!(reaches(|x| rms.forward(x)));
    assert!(reaches(|x| softmax(x, D::Minus1)));
    assert!(reaches(|x| rope(x, &cos, &sin)));
    assert!(reaches(|x| precast_candle::rope_i(x, &cos, &sin)));
}

/// candle has no promotion; the error does not say which layer, and `Amp` adds that.
#[test]
fn mixed_dtypes_are_an_error_that_says_where() {
    let low = tensor(&[2, 2], 1).to_dtype(DType::BF16).unwrap();
    assert!(tensor(&[2, 2], 1).matmul(&low).is_err() && tensor(&[2, 2], 1).add(&low).is_err());

    struct Two(Amp<candle_nn::Linear>, candle_nn::Linear);
    impl Module for Two {
        fn forward(&self, x: &Tensor) -> Result<Tensor> {
            self.1.forward(&self.0.forward(x)?)
        }
    }
    let build = |vb: VarBuilder| {
        let first = Amp::new(vb.pp("first"), |vb| candle_nn::linear(4, 4, vb))?;
        Ok(Two(first, candle_nn::linear(4, 2, vb.pp("second"))?))
    };
    let run = |rule: &str| -> precast_candle::Result<Tensor> {
        let text = format!("version: 1\nlevel: O2\ndtype: bfloat16\nrules: [{{ path: first, run: {rule} }}]");
        let mut net = Network::new(&VarMap::new(), CPU, build)?;
        net.apply(net.plan(&common::policy(&text))?)?;
        Ok(net.build()?.forward(&tensor(&[3, 4], 1))?)
    };
    let error = run("float32").unwrap_err().to_string();
    for words in
        ["two precisions meet in the network", "float32-inside", "dtype mismatch in matmul, lhs: F32, rhs: BF16"]
    {
        assert!(error.contains(words), "{error}");
    }
    assert_eq!(run("float32-inside").unwrap().dtype(), DType::F32);
}

/// The gradient of a bias is a sum over the batch. Closed form: 1000 ones, in bf16 whose sums of ones end at 256.
#[test]
fn the_gradient_of_a_bias_stagnates_in_bf16_and_ours_does_not() {
    let gradient = |ours: bool| {
        let vars = VarMap::new();
        let mut net = Network::new(&vars, CPU, move |vb| {
            let run: Box<dyn Module> = if ours {
                Box::new(linear(2, 1, vb.pp("fc"))?)
            } else {
                Box::new(candle_nn::linear(2, 1, vb.pp("fc"))?)
            };
            Ok(run)
        })
        .unwrap();
        net.apply(net.plan(&Policy::named("o3-bf16").unwrap()).unwrap()).unwrap();
        let y = net.build().unwrap().call(&tensor(&[1000, 2], 1), |net, x| net.forward(x)).unwrap();
        let grads = net.backward(&precast_candle::ScaleMachine::none(), &y.sum_all().unwrap()).unwrap();
        floats(grads.unscale().unwrap().get("fc.bias").unwrap())[0]
    };
    assert_eq!(gradient(true), 1000.0);
    assert!(gradient(false) <= 512.0, "{}", gradient(false)); // 256, unless a vector unit has several sums
}

/// candle's softmax sums in the dtype of its input.
#[test]
fn softmax_in_bf16_has_a_wrong_sum_and_ours_has_not() {
    let x = Tensor::zeros((1, 1024), DType::BF16, CPU).unwrap();
    assert_eq!(floats(&softmax(&x, 1).unwrap()), [1.0 / 1024.0; 1024]);
    assert!(floats(&ops::softmax(&x, 1).unwrap())[0] >= 1.0 / 512.0);
    let ones = Tensor::ones(4096, DType::F16, CPU).unwrap();
    assert!(floats(&ones.sum_all().unwrap())[0] < 4096.0);
}

/// The order of `VarMap::all_vars` is that of a hash map; ours is that of the constructor.
#[test]
fn variables_have_an_order() {
    let build = |vb: VarBuilder| (0..40).map(|i| vb.get(i + 1, &format!("v{i}"))).collect::<Result<Vec<_>>>();
    let net = Network::new(&VarMap::new(), CPU, build).unwrap();
    let sizes: Vec<usize> = net.vars().iter().map(|var| var.elem_count()).collect();
    assert_eq!(sizes, (1..=40).collect::<Vec<usize>>());
}

/// candle's `supports_bf16` says no on CPUs, which compute in it.
#[test]
fn bf16_runs_on_cpus() {
    assert!(!Device::Cpu.supports_bf16());
    let mut net = Network::new(&VarMap::new(), CPU, |vb| linear(2, 2, vb.pp("fc"))).unwrap();
    net.apply(net.plan(&Policy::named("o3-bf16").unwrap()).unwrap()).unwrap();
    let model = net.build().unwrap();
    assert_eq!(model.forward(&tensor(&[1, 2], 1)).unwrap().dtype(), DType::F32);
    assert_eq!(model.inner().weight().dtype(), DType::BF16);
}

/// candle's batch norm copies statistics that are not variables, so a network that is built anew would lose them. Ours are
/// handed out as they are.
#[test]
fn running_statistics_survive_the_next_build() {
    let vars = VarMap::new();
    let mut net = Network::new(&vars, CPU, |vb| Amp::new(vb.pp("bn"), |vb| batch_norm(4, 1e-5, vb))).unwrap();
    net.apply(net.plan(&Policy::named("o2").unwrap()).unwrap()).unwrap();
    let x = tensor(&[50, 4], 1);
    let mean = || floats(&vars.data().lock().unwrap()["bn.running_mean"]);
    for step in 1..=2 {
        net.build().unwrap().call(&x, |net, x| net.forward_t(x, true)).unwrap();
        // Closed form: 1 - 0.9^n of the mean of what the norm got.
        let got = floats(&x.to_dtype(DType::F16).unwrap());
        for (column, mean) in mean().iter().enumerate() {
            let exact = got.iter().skip(column).step_by(4).sum::<f32>() / 50.0 * (1.0 - 0.9f32.powi(step));
            assert!((mean - exact).abs() < 1e-6, "step {step}: {mean} for {exact}");
        }
    }
}

/// candle has no convolution in bf16 on CPUs, and its batch norm mixes dtypes in evaluation. Plans that need either are
/// refused: see `networks.rs` and `plan.rs`.
#[test]
fn some_layers_have_no_16_bits() {
    let low = |shape: &[usize], dtype| Tensor::ones(shape, dtype, CPU).unwrap();
    let conv = |dtype| low(&[1, 4, 8, 8], dtype).conv2d(&low(&[4, 4, 3, 3], dtype), 0, 1, 1, 1);
    assert!(conv(DType::BF16).is_err() && conv(DType::F16).is_ok());
    let [ones, zeros] = [Tensor::ones(2, DType::F32, CPU).unwrap(), Tensor::zeros(2, DType::F32, CPU).unwrap()];
    let half = |x: &Tensor| x.to_dtype(DType::F16).unwrap();
    let bn = candle_nn::BatchNorm::new(2, zeros.clone(), ones.clone(), half(&ones), half(&zeros), 1e-5).unwrap();
    let x = half(&tensor(&[5, 2], 1));
    assert!(bn.forward_t(&x, true).is_ok() && bn.forward_t(&x, false).is_err());
    // A norm wants weights of its input's dtype, although it computes in f32.
    let norm = |weight: Tensor| candle_nn::LayerNorm::new_no_bias(weight, 1e-5);
    assert!(norm(ones.clone()).forward(&x).is_err() && norm(half(&ones)).forward(&x).is_ok());
    assert!(LayerNorm::new_no_bias(ones, 1e-5).forward(&x).is_ok());
}

/// Products are safe in 16 bits: their sums are f32. Closed form: 3000 ones, rounded once.
#[test]
fn products_are_summed_in_f32() {
    for (dtype, sum) in [(DType::BF16, 3008.0), (DType::F16, 3000.0)] {
        let [row, column] = [(1, 3000), (3000, 1)].map(|shape| Tensor::ones(shape, dtype, CPU).unwrap());
        assert_eq!(floats(&row.matmul(&column).unwrap()), [sum], "{dtype:?}");
    }
}

/// Some layers make tensors of the builder's dtype: the first state of candle's LSTM.
#[test]
fn an_lstm_in_an_amp_begins_in_its_dtype() {
    let build = |vb: VarBuilder| Amp::new(vb.pp("lstm"), |vb| candle_nn::lstm(2, 2, Default::default(), vb));
    let mut net = Network::new(&VarMap::new(), CPU, build).unwrap();
    net.apply(net.plan(&Policy::named("o1").unwrap()).unwrap()).unwrap();
    let model = net.build().unwrap();
    assert_eq!(model.inner().inner().zero_state(1).unwrap().h().dtype(), DType::F16);
    let plain = candle_nn::lstm(2, 2, Default::default(), VarBuilder::zeros(DType::F32, CPU)).unwrap();
    assert_eq!(plain.zero_state(1).unwrap().h().dtype(), DType::F32);
}
