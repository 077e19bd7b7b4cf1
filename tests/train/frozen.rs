//! Frozen parameters do not change and keep nothing on the tape; a copy of a network shares nothing with it.

use precast::{ErrorKind, Level, layers::CellList, prelude::*};

fn bits(net: &Child) -> Vec<(String, Vec<u64>)> {
    let of = |param: &Param| param.full().to_f64().iter().map(|x| x.to_bits()).collect();
    net.named_params().into_iter().map(|(path, param)| (path, of(&param))).collect()
}

fn input(rows: usize, width: usize) -> Tensor {
    let numbers: Vec<f64> = (0..rows * width).map(|i| (i as f64 * 0.37).sin()).collect();
    Tensor::from_f64(&numbers, &[rows, width], DType::F32).unwrap()
}

fn step(net: &Child, optimizer: &mut dyn Optimizer, x: &Tensor) {
    let loss = net.call(x).unwrap().cast(DType::F32).square().unwrap().mean_all().unwrap();
    assert_eq!(LossScale::none().step(optimizer, loss).unwrap(), Outcome::Stepped);
}

/// A body with a norm, a dropout and a tied layer, and a head.
fn net() -> Child {
    let rng = &mut Rng::seed(3);
    let tied = Child::new(Dense::new(8, 8, rng));
    let body = sequential![Dense::new(8, 8, rng), BatchNorm1d::new(8), tied.clone(), Dropout::new(0.3, rng), tied];
    Child::of(sequential![body, Dense::new(8, 3, rng)])
}

#[test]
fn frozen_parameters_and_statistics_keep_every_bit_and_have_no_state() {
    for decay in [0.0, 0.5] {
        let mut net = net();
        net.set_train(true);
        // Six of the parameters and two statistics; the tied layer counts once.
        assert_eq!(net.freeze("0").unwrap(), 8);
        let before = bits(&net);
        let mut optimizer = AdamW::new(net.params(), 0.1).weight_decay(decay);
        (0..5).for_each(|_| step(&net, &mut optimizer, &input(4, 8)));
        for ((path, before), (_, after)) in before.iter().zip(bits(&net)) {
            assert_eq!(*before == after, path.starts_with("0."), "{path}");
        }
        let state = optimizer.state();
        assert!(state.tensors.iter().all(|(name, _)| name.starts_with("1.")) && state.steps.len() == 2, "{state:?}");
    }
}

/// An optimizer that had the parameters before they were frozen leaves them alone as well, with momentum and weight decay.
#[test]
fn an_optimizer_made_before_leaves_frozen_parameters_alone() {
    let net = net();
    let mut optimizer = Sgd::new(net.params(), 0.1).momentum(0.9).weight_decay(0.1);
    step(&net, &mut optimizer, &input(4, 8));
    assert_eq!(net.freeze("0.**").unwrap(), 8);
    let before = bits(&net);
    step(&net, &mut optimizer, &input(4, 8));
    assert!(bits(&net).iter().zip(&before).all(|(a, b)| (a == b) == a.0.starts_with("0.")));
    assert_eq!(net.unfreeze("0").unwrap(), 8);
    step(&net, &mut optimizer, &input(4, 8));
    assert_ne!(bits(&net)[0], before[0]);
}

/// Gradients of what is trained are the same bits as without freezing, at every level.
#[test]
fn freezing_changes_no_other_gradient() {
    for level in [Level::O0, Level::O1, Level::O2] {
        let mut net = net();
        auto_mixed_precision(&mut net, level, DType::Bf16).unwrap();
        let grads = || net.call(&input(4, 8)).unwrap().cast(DType::F32).sum_all().unwrap().backward().unwrap();
        let (head, all) = (net.params().filter(|path, _| path.starts_with('1')), grads());
        assert_eq!(net.freeze("0").unwrap(), 8);
        let some = grads();
        assert_eq!(some.len(), 2);
        for (path, param) in head.iter() {
            assert_eq!(some.get(param).unwrap().to_f64(), all.get(param).unwrap().to_f64(), "{path} at {level}");
        }
    }
}

/// The tape keeps what a pass without gradients through the body would keep.
#[test]
fn the_tape_keeps_nothing_below_the_first_trained_cell() {
    let rng = &mut Rng::seed(5);
    let body: Vec<Child> = (0..4)
        .map(|_| Child::of(TransformerEncoderLayerSpec::new(32, 4).dim_feedforward(64).build(rng).unwrap()))
        .collect();
    let net = Child::of(sequential![Sequential::new(body), Dense::new(32, 4, rng)]);
    let x = Tensor::ones(&[2, 6, 32], DType::F32);
    let kept = |net: &Child| net.call(&x).unwrap().sum_all().unwrap().tape_bytes();
    let before = kept(&net);
    let _ = net.freeze("0.**").unwrap();
    assert_eq!(kept(&net), 2 * 6 * 32 * 4, "the input of the head");
    assert!(before > 40 * kept(&net), "{before}");
    // A cell in the middle: what comes after it is needed, what comes before is not.
    net.unfreeze("0.3").unwrap();
    assert!((2 * 6 * 32 * 4 + 1..before / 3).contains(&kept(&net)));
}

#[test]
fn a_pattern_names_cells_or_parameters() {
    let net = net();
    let frozen = || net.named_params().iter().filter(|(_, param)| param.is_frozen()).count();
    assert_eq!((net.freeze("**.bias").unwrap(), frozen()), (4, 5));
    assert_eq!((net.unfreeze("**").unwrap(), frozen()), (10, 0));
    for (pattern, words) in [
        ("1.wieght", "`1.wieght` matches no cell and no parameter (did you mean `1.weight`?)"),
        ("head.**", "`head.**` matches no cell and no parameter (there are "),
    ] {
        let error = net.freeze(pattern).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Path);
        assert!(error.to_string().starts_with(words), "{error}");
    }
    assert_eq!(frozen(), 0);
}

/// Masters, ties, counters, adapters and frozen parameters are copied; training one network leaves the other alone.
#[test]
fn a_deep_copy_trains_like_the_original_and_apart_from_it() {
    for level in [Level::O0, Level::O2] {
        let mut net = net();
        net.set_train(true);
        if level != Level::O0 {
            let _ = decorate(&net, Decorate::new(DType::Bf16)).unwrap();
        }
        auto_mixed_precision(&mut net, level, DType::Bf16).unwrap();
        assert_eq!(net.freeze("0.0").unwrap(), 2);
        let x = input(4, 8);
        step(&net, &mut Sgd::new(net.params(), 0.1), &x);
        let copy = net.deep_copy().unwrap();
        let before = bits(&net);
        assert_eq!(bits(&copy), before);
        assert_eq!(copy.params().len(), net.params().len());
        let shared = |(one, two): (&(String, Param), &(String, Param))| one.1.is_same(&two.1);
        assert!(!copy.named_params().iter().zip(&net.named_params()).any(shared));

        (0..3).for_each(|_| step(&copy, &mut Sgd::new(copy.params(), 0.1), &x));
        assert_eq!(bits(&net), before);
        (0..3).for_each(|_| step(&net, &mut Sgd::new(net.params(), 0.1), &x));
        assert_eq!(bits(&net), bits(&copy), "the same dropout, statistics, ties and dtypes");
    }
}

#[test]
fn every_built_in_model_and_container_can_be_copied() {
    for name in ["lenet5", "lenet5_bn", "mlp", "resnet_se"] {
        let Ok(model) = precast::io::models::Model::named(name, 1) else { continue };
        assert_eq!(bits(&model.net.deep_copy().unwrap()), bits(&model.net), "{name}");
    }
    let rng = &mut Rng::seed(1);
    let list: CellList = (0..2).map(|_| LSTM::new(4, 4, rng)).collect();
    let net: Child = Child::of(list);
    assert_eq!(bits(&net.deep_copy().unwrap()), bits(&net));
    let mut layer: Child = Dense::new(4, 4, rng).into();
    LoRA::adapt(&mut layer, 2, 4.0, rng).unwrap();
    assert_eq!(bits(&layer.deep_copy().unwrap()), bits(&layer));
}

#[derive(Debug)]
struct NotClone;

#[derive(Cell, Debug)]
struct WithData {
    weight: Param,
    note: NotClone,
}
impl Forward for WithData {}

#[test]
fn data_that_is_not_clone_is_an_error_with_its_cell_and_type() {
    let cell = WithData { weight: Param::new(Tensor::ones(&[1], DType::F32)), note: NotClone };
    let _ = &cell.note;
    let error = Child::of(sequential![cell]).deep_copy().unwrap_err().to_string();
    assert!(error.contains("WithData") && error.contains("NotClone cannot be copied"), "{error}");
}

/// `(1 - share) * target + share * online` in f64, after several updates; statistics are copied.
#[test]
fn a_soft_update_follows_its_formula() {
    let (mut online, target) = (net(), net().deep_copy().unwrap());
    online.set_train(true);
    let mut expected: Vec<Vec<f64>> = target.named_params().iter().map(|(_, param)| param.value().to_f64()).collect();
    for _ in 0..4 {
        step(&online, &mut Sgd::new(online.params(), 0.2), &input(4, 8));
        target.soft_update(&online, 0.25).unwrap();
        for ((path, param), values) in online.named_params().iter().zip(&mut expected) {
            let share = if path.contains("running") { 1.0 } else { 0.25 };
            let toward = |(a, b): (&f64, f64)| (1.0 - share) * a + share * b;
            *values = values.iter().zip(param.value().to_f64()).map(toward).collect();
        }
    }
    for ((path, param), expected) in target.named_params().iter().zip(expected) {
        let near = |(met, expected): (f64, f64)| (met - expected).abs() <= 1e-6 * expected.abs().max(0.1);
        assert!(param.value().to_f64().into_iter().zip(expected).all(near), "{path}");
    }
    target.soft_update(&online, 1.0).unwrap();
    assert_eq!(bits(&target), bits(&online));

    let before = bits(&target);
    let other = Child::of(sequential![Dense::new(8, 3, &mut Rng::seed(1))]);
    assert_eq!(target.soft_update(&other, 0.5).unwrap_err().kind(), ErrorKind::Path);
    assert_eq!(target.soft_update(&online, 1.5).unwrap_err().kind(), ErrorKind::Value);
    let layer = Child::new(Dense::new(2, 1, &mut Rng::seed(0)));
    let error = layer.clone().soft_update(&layer, 0.5).unwrap_err().to_string();
    assert!(error.contains("`deep_copy` makes a network with its own"), "{error}");
    assert_eq!(bits(&target), before);
}

/// A shape that would broadcast is an error as well, for weights and for buffers, and nothing has changed.
#[test]
fn a_soft_update_by_another_shape_is_refused() {
    fn net(first: Param, second: Param) -> Child<WithTwo> {
        Child::new(WithTwo { first, second })
    }
    let ones = |shape: &[usize]| Tensor::ones(shape, DType::F32);
    let weight = |shape: &[usize]| Param::new(ones(shape));
    let target = net(weight(&[2]), weight(&[8, 4]));
    for share in [0.0, 0.5, 1.0] {
        let error = target.soft_update(&net(Param::new(Tensor::from([3.0, 3.0])), weight(&[1, 4])), share).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Shape);
        assert_eq!(
            error.to_string(),
            "soft_update: `second` has the shape [8, 4] in this network and [1, 4] in the other"
        );
    }
    let statistics = |shape: &[usize]| net(weight(&[2]), Param::buffer(ones(shape)));
    let error = statistics(&[8]).soft_update(&statistics(&[1]), 0.5).unwrap_err().to_string();
    assert_eq!(error, "soft_update: `second` has the shape [8] in this network and [1] in the other");
    assert_eq!(target.cell().first.value().to_f64(), [1.0; 2]);
    assert_eq!(target.cell().second.value().to_f64(), [1.0; 32]);
}

#[derive(Cell, Debug)]
struct WithTwo {
    first: Param,
    second: Param,
}
impl Forward for WithTwo {}
