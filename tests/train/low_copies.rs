//! Low copies of weights: kept with the value, or made again by the backward pass.

use precast::{observe::watch, prelude::*};

/// Returns the number of casts of a forward pass of a dense layer in bf16, and the bits of the gradients of its weight and its
/// input.
fn casts_and_grads(net: &Child, x: &Tensor) -> Result<(usize, Vec<f64>)> {
    let (loss, events) = watch(|| net.call(x)?.square()?.sum_all());
    let casts = events.iter().filter(|event| event.op == Op::Cast && event.sizes.output.len() == 2).count();
    let grads = loss?.into_grads()?;
    let of = |grad: Option<Tensor>| grad.expect("it depends on it").to_f64();
    let weight = net.params().iter().next().map(|(_, param)| param.clone()).expect("a weight");
    Ok((casts, [of(grads.get(&weight)), of(grads.of(x))].concat()))
}

/// Tests that a large weight is cast by its first two forward passes and by no other, and that gradients do not depend on it;
/// the second run of a recomputed cell keeps no copy either.
#[test]
fn a_large_copy_that_is_read_once_is_not_kept() -> Result<()> {
    for (outputs, large, recomputed) in [(1024, true, false), (1024, true, true), (1023, false, false)] {
        let mut net = Child::of(DenseSpec::new(512, outputs).bias(false).build(&mut Rng::seed(1))?);
        let _ = Policy::new(Level::O3, DType::Bf16)?.apply(&mut net)?;
        net.set_train(true);
        net.set_recompute(recomputed);
        let x =
            Tensor::from_f64(&(0..512).map(|i| f64::from(i % 7) - 3.0).collect::<Vec<_>>(), &[1, 512], DType::Bf16)?;
        let x = x.requires_grad();
        let (first, second, third) =
            (casts_and_grads(&net, &x)?, casts_and_grads(&net, &x)?, casts_and_grads(&net, &x)?);
        let again = usize::from(large);
        assert_eq!([first.0 - third.0, second.0 - third.0], [1, again], "{outputs} outputs, {recomputed}");
        assert_eq!(first.1, second.1);
        assert_eq!(first.1, third.1);
    }
    Ok(())
}
