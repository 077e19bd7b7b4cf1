//! Dtypes of weights, activations and gradients, and networks without a plan.

mod common;

use candle_core::{DType, Module, Result, Tensor};
use candle_nn::{VarBuilder, VarMap, embedding, loss::mse};
use common::{CPU, Net, all_bits, batch, bits, loss, network, policy, tensor};
use precast_candle::{Amp, ErrorKind, Network, Policy, ScaleMachine};

const ONE_IN_F32: &str = "version: 1\nlevel: O2\ndtype: DTYPE\nrules: [{ path: head, run: float32 }]";

#[test]
fn weights_gradients_and_activations_have_their_planned_dtypes() {
    for (name, low) in [("bfloat16", DType::BF16), ("float16", DType::F16)] {
        let (mut net, vars) = network(1);
        net.apply(net.plan(&policy(&ONE_IN_F32.replace("DTYPE", name))).unwrap()).unwrap();
        let model = net.build().unwrap();
        let Net { up, norm, head } = model.inner();
        let dtypes = [up.weight(), up.bias().unwrap(), norm.weight(), norm.bias().unwrap(), head.weight()];
        assert_eq!(dtypes.map(|x| x.dtype()), [low, low, DType::F32, DType::F32, DType::F32]);
        let x = model.input(&batch().0).unwrap();
        let up = up.forward(&x).unwrap();
        let norm = norm.forward(&up).unwrap();
        assert_eq!([x.dtype(), up.dtype(), norm.dtype()], [low; 3]);
        assert_eq!(head.forward(&norm).unwrap().dtype(), DType::F32);

        let grads = net.backward(&ScaleMachine::none(), &loss(&model)).unwrap().unscale().unwrap();
        let met: Vec<(&str, DType)> = grads.iter().map(|(name, grad)| (name, grad.dtype())).collect();
        let names = ["up.weight", "up.bias", "norm.weight", "norm.bias", "head.weight", "head.bias"];
        assert_eq!(met, names.map(|name| (name, DType::F32)));
        assert!(vars.all_vars().iter().all(|var| var.dtype() == DType::F32));
        // A gradient that came through 16 bits has zeros in its lower half; that of the head did not.
        let low_half = |name: &str| bits(grads.get(name).unwrap()).iter().any(|bits| bits & 0x1FFF != 0);
        assert!(!low_half("up.weight") && low_half("head.weight"));
    }
}

/// Computed in f64 from the same rounded numbers: the layers compute what they say.
#[test]
fn outputs_are_those_of_f64_within_the_roundings_of_the_plan() {
    let (mut net, vars) = network(3);
    let value = |name: &str| vars.data().lock().unwrap()[name].as_tensor().to_dtype(DType::F64).unwrap();
    let dense = |x: &Tensor, name: &str| -> Result<Tensor> {
        x.matmul(&value(&format!("{name}.weight")).t()?)?.broadcast_add(&value(&format!("{name}.bias")))
    };
    let exact = || -> Result<Vec<f64>> {
        let h = dense(&batch().0.to_dtype(DType::F64)?, "up")?;
        let h = h.broadcast_sub(&h.mean_keepdim(1)?)?;
        let h = h.broadcast_div(&(h.sqr()?.mean_keepdim(1)? + 1e-5)?.sqrt()?)?;
        dense(&h.relu()?, "head")?.flatten_all()?.to_vec1()
    };
    let exact = exact().unwrap();
    for (name, bound) in [("o0", 1e-6), ("o1", 4e-3), ("o2", 4e-3), ("o3", 4e-3), ("o2-bf16", 3e-2), ("o3-bf16", 3e-2)]
    {
        net.apply(net.plan(&Policy::named(name).unwrap()).unwrap()).unwrap();
        let y = net.build().unwrap().forward(&batch().0).unwrap();
        let worst = common::floats(&y).iter().zip(&exact).map(|(y, x)| (f64::from(*y) - x).abs()).fold(0.0, f64::max);
        assert!(worst < bound && (worst > 1e-5) == (name != "o0"), "{name}: {worst}");
    }
}

#[test]
fn without_a_plan_at_o0_and_after_undo_networks_have_candles_bits() {
    let (mut net, vars) = network(5);
    let before = all_bits(&vars);
    let plain = Net::new(VarBuilder::from_varmap(&vars, DType::F32, CPU)).unwrap();
    let (plain, plain_grads) = (loss(&plain), loss(&plain).backward().unwrap());
    let check = |net: &Network<Net>| {
        let loss = loss(&net.build().unwrap());
        assert_eq!(bits(&loss), bits(&plain));
        let grads = net.backward(&ScaleMachine::none(), &loss).unwrap().unscale().unwrap();
        for (name, grad) in grads.iter() {
            let var = vars.data().lock().unwrap()[name].clone();
            assert_eq!(bits(grad), bits(plain_grads.get(&var).unwrap()), "{name}");
        }
        assert_eq!(grads.iter().count(), 6);
    };
    check(&net);
    net.apply(net.plan(&Policy::named("o2").unwrap()).unwrap()).unwrap();
    assert_ne!(bits(&loss(&net.build().unwrap())), bits(&plain));
    net.apply(net.plan(&Policy::named("o0").unwrap()).unwrap()).unwrap();
    check(&net);
    net.apply(net.plan(&Policy::named("o3-bf16").unwrap()).unwrap()).unwrap();
    net.undo();
    check(&net);
    assert_eq!(all_bits(&vars), before);
}

#[test]
fn code_has_the_last_word() {
    let (net, _) = network(1);
    let mut net = net.to_float("up", DType::BF16).unwrap();
    net.apply(net.plan(&Policy::named("o0").unwrap()).unwrap()).unwrap();
    let model = net.build().unwrap();
    assert_eq!([model.inner().up.weight(), model.inner().head.weight()].map(|x| x.dtype()), [DType::BF16, DType::F32]);
    assert_eq!(model.inner().up.forward(&batch().0).unwrap().dtype(), DType::F32);
    net.apply(net.plan(&Policy::named("o3").unwrap()).unwrap()).unwrap();
    let model = net.build().unwrap();
    assert_eq!([model.inner().up.weight(), model.inner().head.weight()].map(|x| x.dtype()), [DType::BF16, DType::F16]);
    assert_eq!(model.forward(&batch().0).unwrap().dtype(), DType::F32);
}

/// Token ids stay integers, and f64 stays f64: only f32, f16 and bf16 are cast.
#[test]
fn integers_and_f64_are_not_cast() {
    let build = |vb: VarBuilder| {
        let table = vb.get_with_hints_dtype(3, "f64", Default::default(), DType::F64)?;
        let ids = vb.get_with_hints_dtype(3, "ids", Default::default(), DType::U32)?;
        Ok((embedding(4, 2, vb.pp("embed"))?, table, ids))
    };
    let mut net = Network::new(&VarMap::new(), CPU, build).unwrap();
    net.apply(net.plan(&Policy::named("o3").unwrap()).unwrap()).unwrap();
    let model = net.build().unwrap();
    let (embed, f64s, ids) = model.inner();
    assert_eq!([f64s.dtype(), ids.dtype(), embed.embeddings().dtype()], [DType::F64, DType::U32, DType::F16]);
    let ids = Tensor::new(&[3u32, 0], CPU).unwrap();
    assert_eq!(model.input(&ids).unwrap().dtype(), DType::U32);
    assert_eq!(model.call(&ids, |net, ids| net.0.forward(ids)).unwrap().dtype(), DType::F32);
    let exact = Tensor::new(&[1f64], CPU).unwrap();
    assert_eq!(model.output(&model.input(&exact).unwrap()).unwrap().dtype(), DType::F64);
    assert_eq!(net.vars().len(), 2, "integers are not trained");
}

#[test]
fn a_16_bit_variable_is_refused() {
    let vars = VarMap::new();
    candle_nn::linear(2, 2, VarBuilder::from_varmap(&vars, DType::BF16, CPU).pp("fc")).unwrap();
    let error = Network::new(&vars, CPU, |vb| candle_nn::linear(2, 2, vb.pp("fc"))).unwrap_err();
    assert_eq!(error.kind(), Some(ErrorKind::DType));
    assert!(error.to_string().starts_with("the variable `fc.weight` is bf16"), "{error}");
}

/// The builder's dtype, from which models make masks and tables, is that of the network.
#[test]
fn the_builder_has_the_dtype_of_the_network() {
    let mut net = Network::new(&VarMap::new(), CPU, |vb| Ok((vb.dtype(), vb.get(1, "x")?))).unwrap();
    for (policy, dtype) in [("o2-bf16", DType::BF16), ("o1", DType::F32), ("o0", DType::F32)] {
        net.apply(net.plan(&Policy::named(policy).unwrap()).unwrap()).unwrap();
        assert_eq!(net.build().unwrap().inner().0, dtype, "{policy}");
    }
}

/// One definition of a network serves training and inference.
#[test]
fn wrappers_pass_tensors_as_they_are_without_a_network() {
    let vars = VarMap::new();
    for vb in [VarBuilder::from_varmap(&vars, DType::BF16, CPU), VarBuilder::zeros(DType::BF16, CPU)] {
        let fc = Amp::new(vb.pp("fc"), |vb| candle_nn::linear(4, 2, vb)).unwrap();
        let net = Net::new(vb.pp("net")).unwrap();
        let low = |shape: &[usize]| tensor(shape, 1).to_dtype(DType::BF16).unwrap();
        assert_eq!(fc.forward(&low(&[3, 4])).unwrap().dtype(), DType::BF16);
        assert_eq!(net.forward(&low(&[3, 6])).unwrap().dtype(), DType::BF16);
        assert!(fc.forward(&tensor(&[3, 4], 1)).is_err(), "nothing is cast");
    }
}

/// Renamed and shared variables keep the casts of their paths.
#[test]
fn builders_with_renamed_paths_and_tied_weights_work() {
    let build = |vb: VarBuilder| {
        let norm = precast_candle::layer_norm(
            4,
            1e-5,
            vb.clone().rename_f(|name: &str| name.replace("old", "new")).pp("old"),
        )?;
        let tied = vb.pp("embed").get((4, 4), "weight")?;
        Ok((norm, tied.clone(), vb.pp("embed").get((4, 4), "weight")?))
    };
    let mut net = Network::new(&VarMap::new(), CPU, build).unwrap();
    net.apply(net.plan(&Policy::named("o2").unwrap()).unwrap()).unwrap();
    let model = net.build().unwrap();
    let (norm, first, second) = model.inner();
    let y = norm.forward(&first.to_dtype(DType::F32).unwrap()).unwrap();
    assert_eq!((norm.weight().dtype(), y.dtype()), (DType::F32, DType::F16));
    let loss = mse(&y.matmul(second).unwrap().to_dtype(DType::F32).unwrap(), &tensor(&[4, 4], 2)).unwrap();
    let grads = net.backward(&ScaleMachine::none(), &loss).unwrap().unscale().unwrap();
    assert_eq!(grads.missing(), Vec::<&str>::new());
    assert_eq!(grads.iter().map(|(name, _)| name).collect::<Vec<_>>(), ["new.weight", "new.bias", "embed.weight"]);
}
