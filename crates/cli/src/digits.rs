//! The handwritten digits in the input shape of a model.

use precast::{Child, Tensor, no_grad};
use precast_train::data::{Dataset, Split};

use super::{Failure, Result};

/// Returns the digits in the input shape of a model. A shape of 64 elements takes the 8 by 8 pixels unchanged; for
/// another shape of one image, such as `[1, 32, 32]`, they are resized.
pub(super) fn shaped(digits: Dataset, shape: &[usize]) -> Result<Dataset> {
    let pixels: usize = digits.shape().iter().product();
    if shape.iter().try_fold(1usize, |all, &axis| all.checked_mul(axis)) == Some(pixels) {
        return Ok(digits.reshape(shape)?);
    }
    match shape {
        [outer @ .., height, width] if outer.iter().all(|&axis| axis == 1) => {
            check_size(digits.len(), *height, *width)?;
            Ok(digits.resize(*height, *width)?.reshape(shape)?)
        }
        _ => Err(Failure::Usage(format!(
            "the model takes examples of shape {shape:?}; digits come as one image, such as [1, 32, 32], or flat, \
             as [64]; other data needs a run file (`show run` prints one)"
        ))),
    }
}

/// The maximum memory of all digits in the shape of a model: 1 GiB, which holds the 1797 at 386 x 386.
const MOST_BYTES: u128 = 1 << 30;

/// Refuses a size that would not fit into memory, before anything is allocated.
fn check_size(digits: usize, height: usize, width: usize) -> Result {
    let bytes = [height, width, size_of::<f32>()].iter().fold(digits as u128, |all, &n| all.saturating_mul(n as u128));
    if bytes <= MOST_BYTES {
        return Ok(());
    }
    let gib = |bytes: u128| bytes as f64 / (1u64 << 30) as f64;
    Err(Failure::Usage(format!(
        "the model takes images of {height} x {width}; {digits} digits of that size would take {:.1} \
         GiB, allowed: {:.1} GiB",
        gib(bytes),
        gib(MOST_BYTES)
    )))
}

/// Checks, before the first step, that a network can be trained with the smallest batch of an epoch, which a batch norm
/// may refuse.
pub(super) fn check_training(net: &mut Child, data: &Split, batch: usize) -> Result {
    net.set_train(true);
    let few = batch.min(2);
    let Some(batch) = data.train.batches(few)?.next() else { return Ok(()) };
    match no_grad(|| batch.call(net)) {
        Ok(_) => Ok(()),
        Err(error) => {
            let by = if batch.y.len() == 1 { "a single example".into() } else { format!("{few} examples") };
            Err(Failure::Usage(format!("the model cannot be trained with {by}: {error}")))
        }
    }
}

/// Checks with two examples that a network accepts the digits and has an output for each class.
pub(super) fn check(net: &Child, data: &Split) -> Result {
    let classes = data.train.classes().max(data.test.classes());
    let Some(batch) = data.test.batches(2)?.next() else { return Ok(()) };
    let outputs = no_grad(|| batch.call(net)).map_err(|error| {
        let shape = data.test.shape();
        Failure::Usage(format!("a call of the model with digits of shape {shape:?}, by its input, fails: {error}"))
    })?;
    let fits = |outputs: &Tensor| outputs.dtype().is_float() && outputs.rank() == 2 && outputs.shape()[1] >= classes;
    if fits(&outputs) && outputs.shape()[0] == batch.y.len() {
        return Ok(());
    }
    Err(Failure::Usage(format!(
        "the model returns {} {:?} for {} digits; it must return {classes} numbers for each, one for each class",
        outputs.dtype(),
        outputs.shape(),
        batch.y.len(),
    )))
}

#[cfg(test)]
mod tests {
    use precast_train::data::digits;

    use super::*;

    #[test]
    fn digits_take_the_shape_that_is_asked_for() {
        for shape in [&[64][..], &[1, 8, 8], &[8, 8], &[4, 16], &[1, 32, 32], &[28, 28], &[1, 1, 5, 7]] {
            let shaped = shaped(digits().unwrap(), shape).unwrap();
            assert_eq!((shaped.shape(), shaped.len()), (shape, 1797));
        }
        let same = shaped(digits().unwrap(), &[1, 8, 8]).unwrap();
        assert!(same == digits().unwrap(), "no resizing where there is nothing to resize");
        for shape in [&[][..], &[65], &[3, 32, 32], &[0], &[1, 0, 4], &[1, 1 << 40, 1 << 40], &[1, 100_000, 100_000]] {
            assert!(matches!(shaped(digits().unwrap(), shape), Err(Failure::Usage(_))), "{shape:?}");
        }
    }
}
