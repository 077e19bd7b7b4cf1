//! One test for each difference on purpose from torch; the reasons stand in COMPARE.md.

use precast::{ConvTransposeOptions, DType, Result, Tensor};

use crate::{rounding::patterns, values};

/// torch's transposed convolution rounds each product of an input and a place of the kernel, and then each sum of them:
/// taken here step by step, which gives its numbers bit for bit. Ours is the nearest to the exact result.
#[test]
fn an_op_rounds_once() {
    let Some(recorded) = values::Recorded::read() else { return };
    let (x, w) = (&recorded.inputs["img"], recorded.inputs["k"].transpose(0, 1).unwrap());
    for (low, mode) in [(DType::Bf16, "bf16"), (DType::F16, "fp16")] {
        let (x, w) = (x.cast(low), w.cast(low));
        let ours = x.conv_transpose2d(&w, None, &ConvTransposeOptions::default()).unwrap();
        let wide = [x.cast(DType::F64), w.cast(DType::F64)];
        let exact = wide[0].conv_transpose2d(&wide[1], None, &ConvTransposeOptions::default()).unwrap();
        assert_eq!(patterns(&ours), patterns(&exact.cast(low)), "{mode}");
        let steps = steps_of_a_transposed_convolution(&x, &w).unwrap();
        assert_ne!(patterns(&steps), patterns(&ours));
        if let Some(theirs) = recorded.output("conv_transpose2d", mode) {
            assert_eq!(patterns(&steps), patterns(&theirs), "{mode}");
        }
    }
}

/// Rounded to the inputs' dtype after each step: the products summed over input channels, and each addition into a place
/// of the output.
fn steps_of_a_transposed_convolution(x: &Tensor, w: &Tensor) -> Result<Tensor> {
    let (height, width) = (w.shape()[2], w.shape()[3]);
    let mut sum: Option<Tensor> = None;
    for i in 0..height {
        for j in 0..width {
            let products = Tensor::einsum("nihw,io->nohw", &[x, &w.at(2, i)?.at(2, j)?])?;
            let placed = products.pad(&[(0, 0), (0, 0), (i, height - 1 - i), (j, width - 1 - j)], 0.0)?;
            sum = Some(sum.map_or(Ok(placed.clone()), |sum| sum.add(&placed))?);
        }
    }
    Ok(sum.expect("the kernel has places"))
}

#[test]
fn a_number_takes_the_tensors_dtype() {
    for low in DType::LOW {
        let x = Tensor::arange(64).cast(low);
        let tenth = Tensor::scalar(0.1, low);
        let ours = (&x * 0.1).unwrap();
        assert_eq!(patterns(&ours), patterns(&x.mul(&tenth).unwrap()), "as a tensor of that dtype");
        assert_eq!(ours.dtype(), low);
        // torch multiplies and divides by the number in f32.
        let theirs = (x.cast(DType::F32) * 0.1).unwrap().cast(low);
        assert_ne!(patterns(&ours), patterns(&theirs));
        // It adds and subtracts the number in the tensor's dtype, as is done here throughout.
        let sum = (&x + 1e-3).unwrap();
        assert_eq!(patterns(&sum), patterns(&x.add(&Tensor::scalar(1e-3, low)).unwrap()));
    }
}

/// A low result may be the neighbour only where the exact one lies, but for what f32 arithmetic is off, in their middle.
#[test]
fn f32_results_have_their_own_last_digits() {
    let Some(recorded) = values::Recorded::read() else { return };
    let Some(theirs) = recorded.output("gelu_of_mm", "bf16") else { return };
    let product = recorded.inputs["a"].cast(DType::Bf16).matmul(&recorded.inputs["b"].cast(DType::Bf16)).unwrap();
    let exact = product.cast(DType::F64).gelu().unwrap();
    // GELU is `x / 2 (1 + erf(x / sqrt 2))`; where erf nears -1, that sum loses what f32 does not hold. Here it is computed
    // by the complement: the nearest to the exact one everywhere.
    let ours = product.gelu().unwrap();
    assert_eq!(patterns(&ours), patterns(&exact.cast(DType::Bf16)));
    for ((x, theirs), exact) in product.to_f64().into_iter().zip(theirs.to_f64()).zip(exact.to_f64()) {
        let lost = x.abs() * f32::EPSILON as f64;
        let half = exact.abs() * DType::Bf16.epsilon() / 2.0;
        assert!((theirs - exact).abs() <= half + lost, "GELU of {x}: torch's {theirs}, exactly {exact}");
    }
}
