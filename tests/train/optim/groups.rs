//! Parameter groups.

use precast::prelude::*;

use super::{bits, noise};

fn net() -> Child {
    let rng = &mut Rng::seed(1);
    Child::of(sequential![Dense::new(3, 4, rng), Dense::new(4, 2, rng)])
}

fn grads(net: &Child) -> precast::Grads {
    let mut grads = precast::Grads::default();
    net.params().iter().for_each(|(_, param)| grads.set(param, noise(&param.shape(), 7)));
    grads
}

#[test]
fn a_group_is_as_an_optimizer_of_its_own() {
    let (together, apart) = (net(), net());
    let mut one = AdamW::new(together.params(), 0.1)
        .group("**.bias", |group| group.weight_decay(0.0).lr_factor(0.5))
        .unwrap()
        .group("1.**", |group| group.lr_factor(0.25))
        .unwrap();
    let of = |keep: fn(&str) -> bool| apart.params().filter(|path, _| keep(path));
    let mut several = [
        AdamW::new(of(|path| path == "0.weight"), 0.1),
        AdamW::new(of(|path| path == "0.bias"), 0.05).weight_decay(0.0),
        AdamW::new(of(|path| path == "1.weight"), 0.025),
        // Of two groups for the same parameter, the last applies.
        AdamW::new(of(|path| path == "1.bias"), 0.025).weight_decay(0.0),
    ];
    for _ in 0..3 {
        one.update(&grads(&together)).unwrap();
        several.iter_mut().for_each(|optimizer| optimizer.update(&grads(&apart)).unwrap());
    }
    for ((path, a), (_, b)) in together.params().iter().zip(apart.params().iter()) {
        assert_eq!(bits(&a.value()), bits(&b.value()), "{path}");
    }
    // The factor applies to the current learning rate.
    one.set_lr(0.0);
    let before = together.params();
    let before: Vec<_> = before.iter().map(|(_, param)| bits(&param.value())).collect();
    one.update(&grads(&together)).unwrap();
    let after = together.params();
    assert_eq!(before, after.iter().map(|(_, param)| bits(&param.value())).collect::<Vec<_>>());
}

#[test]
fn a_group_of_a_cell_has_everything_inside_it() {
    let (cell, inside) = (net(), net());
    let one = AdamW::new(cell.params(), 0.1).group("1", |group| group.lr_factor(0.25)).unwrap();
    let other = AdamW::new(inside.params(), 0.1).group("1.**", |group| group.lr_factor(0.25)).unwrap();
    for (net, mut optimizer) in [(&cell, one), (&inside, other)] {
        optimizer.update(&grads(net)).unwrap();
    }
    for ((path, a), (_, b)) in cell.params().iter().zip(inside.params().iter()) {
        assert_eq!(bits(&a.value()), bits(&b.value()), "{path}");
    }
}

#[test]
fn a_group_of_nobody_is_an_error() {
    let message = |pattern| Sgd::new(net().params(), 0.1).group(pattern, |group| group).unwrap_err().to_string();
    assert_eq!(message("0.wieght"), "the group `0.wieght` matches no parameter (did you mean `0.weight`?)");
    let all = message("*.*.bias");
    assert!(all.starts_with("the group `*.*.bias` matches no parameter (there are `0.weight`, `0.bias`, "), "{all}");
    assert!(message("0.we*").contains("has a `*` inside the segment"));
}

/// The second place of a tied parameter names it as well as the first, as for `freeze`.
#[test]
fn a_group_of_a_tied_parameter_has_it_under_each_of_its_paths() {
    let tied = Child::new(Dense::new(2, 2, &mut Rng::seed(1)));
    let net = Child::new(sequential![tied.clone(), ReLU, tied]);
    for pattern in ["0.weight", "2.weight", "2"] {
        let mut sgd = Sgd::new(net.params(), 1.0).group(pattern, |group| group.lr_factor(0.0)).unwrap();
        let before = net.params().iter().map(|(_, param)| param.tensor().to_f64()).collect::<Vec<_>>();
        let loss = net.call(&Tensor::ones(&[1, 2], DType::F32)).unwrap().sum_all().unwrap();
        let _ = LossScale::none().step(&mut sgd, loss).unwrap();
        let after = net.params().iter().map(|(_, param)| param.tensor().to_f64()).collect::<Vec<_>>();
        assert_eq!(before[0], after[0], "{pattern}");
        assert_eq!(before[1] == after[1], pattern == "2", "{pattern}");
    }
    let error = Sgd::new(net.params(), 1.0).group("2.wieght", |group| group).unwrap_err().to_string();
    assert!(error.contains("did you mean `2.weight`?"), "{error}");
}
