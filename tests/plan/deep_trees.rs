//! Trees and tapes that are deeper, wider and longer than anyone writes.

use precast::prelude::*;

/// Runs with the given stack size: deep recursion needs as much as a program gives to the thread that runs such a tree.
fn with_stack(mib: usize, run: impl FnOnce() + Send + 'static) {
    std::thread::Builder::new().stack_size(mib << 20).spawn(run).unwrap().join().unwrap();
}

/// Plans the network, applies the plan, runs both passes and undoes it. `cells` is the number of its cells.
fn rewritten(net: &mut Child, cells: usize) {
    let x = Tensor::ones(&[1, 1], DType::F32).requires_grad();
    let before = net.call(&x).unwrap().to_f64();
    let policy = Policy::new(Level::O2, DType::Bf16).unwrap();
    let plan = policy.plan(net).unwrap();
    assert_eq!(plan.counts(), [("bf16".to_string(), cells)].into());
    let applied = plan.apply(net).unwrap();
    let y = net.call(&x).unwrap();
    assert_eq!((y.dtype(), y.to_f64()), (DType::F32, before.clone()), "ones and their sums are exact in bf16");
    assert!(y.sum_all().unwrap().backward().unwrap().of(&x).is_some());
    applied.undo(net).unwrap();
    assert_eq!(net.call(&x).unwrap().to_f64(), before);
}

#[test]
fn twenty_thousand_cells_one_in_the_other() {
    with_stack(1024, || {
        const DEPTH: usize = 20_000;
        let mut net = (0..DEPTH).fold(Child::of(ReLU), |inner, _| Child::of(Sequential::new(vec![inner])));
        rewritten(&mut net, DEPTH + 1);
    });
}

#[test]
fn a_hundred_thousand_cells_side_by_side() {
    const WIDTH: usize = 100_000;
    let mut net = Child::of(Sequential::new((0..WIDTH).map(|_| Child::of(ReLU)).collect()));
    rewritten(&mut net, WIDTH + 1);
}

#[test]
fn a_hundred_thousand_norms_one_after_the_other() {
    let (mean, variance) = (Tensor::zeros(&[1], DType::F32), Tensor::ones(&[1], DType::F32));
    let x = Tensor::zeros(&[1, 1], DType::F32);
    let norms = |count: usize| {
        (0..count)
            .try_fold(x.clone(), |y, _| y.batch_norm(&mean, &variance, None, None, 1e-5)?.add(&mean.reshape(&[1, 1])?))
    };
    assert_eq!(norms(100_000).unwrap().to_f64(), [0.0]);
    drop(norms(100_000).unwrap());
}

#[test]
fn a_tape_of_a_million_ops() {
    let x = Tensor::ones(&[1], DType::F32).requires_grad();
    let y = (0..1_000_000).try_fold(x.clone(), |y, _| y.neg()).unwrap();
    assert_eq!(y.sum_all().unwrap().backward().unwrap().of(&x).unwrap().to_f64(), [1.0]);
}
