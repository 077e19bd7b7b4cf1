//! Values of the reductions and of softmax: closed forms, exact identities, one rounding, empty axes, NaN, refusals.

use half::f16;
use precast::{DType, ErrorKind, Result, Tensor, TensorElement};

fn of<T: TensorElement>(data: &[T], shape: &[usize]) -> Tensor {
    Tensor::from_vec(data.to_vec(), shape).unwrap()
}

/// Returns the gradient of the sum of `f(x)`.
fn slope(x: &Tensor, f: impl Fn(&Tensor) -> Result<Tensor>) -> Result<Vec<f64>> {
    let x = x.requires_grad();
    let grads = f(&x)?.sum_all()?.backward()?;
    Ok(grads.of(&x).expect("the sum depends on x").to_f64())
}

#[test]
fn every_choice_of_axes_sums_what_the_definition_says() -> Result<()> {
    let shape = [2, 3, 4, 2];
    let data: Vec<f64> = (0..48).map(|i| (i * i % 17) as f64).collect();
    let x = of(&data, &shape);
    let index = |i: usize| [i / 24, i / 8 % 3, i / 2 % 4, i % 2];
    for mask in 1..16 {
        let axes: Vec<isize> = (0..4).filter(|i| mask >> i & 1 == 1).collect();
        let left = |i: usize| (0..4).map(|a| if mask >> a & 1 == 1 { 0 } else { index(i)[a] }).collect::<Vec<_>>();
        let mut sums = std::collections::BTreeMap::<Vec<usize>, Vec<f64>>::new();
        (0..48).for_each(|i| sums.entry(left(i)).or_default().push(data[i]));
        let fold =
            |f: fn(f64, f64) -> f64| sums.values().map(|v| v.iter().copied().reduce(f).unwrap()).collect::<Vec<_>>();
        assert_eq!(x.sum(&axes, false)?.to_f64(), fold(|a, b| a + b), "{axes:?}");
        assert_eq!(x.cast(DType::I64).sum(&axes, true)?.to_f64(), fold(|a, b| a + b), "{axes:?}");
        assert_eq!(x.max(&axes, false)?.to_f64(), fold(f64::max), "{axes:?}");
        assert_eq!(x.min(&axes, true)?.to_f64(), fold(f64::min), "{axes:?}");
        assert_eq!(x.sum(&axes, true)?.rank(), 4);
        assert_eq!(x.sum(&axes, false)?.rank(), 4 - axes.len());
    }
    Ok(())
}

#[test]
fn known_values() -> Result<()> {
    let x = of(&[1f64, 2., 3., 4.], &[4]);
    assert_eq!(x.mean_all()?.item()?, 2.5);
    assert_eq!((x.var(&[0], 0, false)?.item()?, x.var(&[0], 1, false)?.item()?), (1.25, 5.0 / 3.0));
    assert_eq!(x.prod(&[], false)?.item()?, 24.0);
    assert_eq!(x.cumsum(0)?.to_f64(), [1., 3., 6., 10.]);
    assert_eq!(x.cumprod(0)?.to_f64(), [1., 2., 6., 24.]);
    let y = of(&[3f64, -4.], &[2]);
    for (p, norm) in
        [(1.0, 7.0), (2.0, 5.0), (f64::INFINITY, 4.0), (3.0, 91f64.cbrt()), (0.5, 7.0 + 2.0 * 12f64.sqrt())]
    {
        assert!((y.norm(p, &[], false)?.item()? - norm).abs() < 1e-13, "{p}");
    }
    // 1e30 cubed overflows f32; the norm does not.
    assert!((of(&[1e30f32; 8], &[8]).norm(3.0, &[], false)?.item()? / 2e30 - 1.0).abs() < 1e-6);
    let ties = of(&[2i64, 5, 5, 1, 1, 3], &[2, 3]);
    assert_eq!(ties.argmax(1, false)?.to_vec::<i64>()?, [1, 2]);
    assert_eq!(ties.argmin(-1, true)?.shape(), [2, 1]);
    assert_eq!(ties.argmin(0, false)?.to_vec::<i64>()?, [1, 1, 1]);
    assert_eq!(of(&[1f32, f32::NAN, 3., f32::NAN], &[4]).argmax(0, false)?.item()?, 1.0);
    Ok(())
}

#[test]
fn sums_of_16_bit_numbers_are_kept_in_f32_and_rounded_once() -> Result<()> {
    // Accumulated in f16, a sum of ones stays at 2048.
    let many = if cfg!(miri) { 4_000 } else { 40_000 };
    assert_eq!(Tensor::ones(&[many], DType::F16).sum_all()?.item()?, many as f64);
    assert_eq!(Tensor::full(&[5 * many / 2], 1.5, DType::F16).mean_all()?.item()?, 1.5);
    let data: Vec<f16> = (0..1000).map(|i| f16::from_f32((i as f32 * 0.7).sin() * 3.0)).collect();
    let (low, full) = (of(&data, &[10, 100]), of(&data, &[10, 100]).cast(DType::F32));
    type Reduce = fn(&Tensor) -> Result<Tensor>;
    let reductions: [Reduce; 10] = [
        |x| x.sum(&[1], false),
        |x| x.mean(&[0], false),
        |x| x.max(&[1], false),
        |x| x.prod(&[0], false),
        |x| x.var(&[1], 1, false),
        |x| x.norm(2.0, &[0], false),
        |x| x.cumsum(0),
        |x| x.cumprod(0),
        |x| x.softmax(1),
        |x| x.log_softmax(0),
    ];
    for (i, f) in reductions.iter().enumerate() {
        assert_eq!(f(&low)?.to_f64(), f(&full)?.cast(DType::F16).to_f64(), "{i}");
    }
    Ok(())
}

#[test]
fn gradients_at_ties_zeros_and_nan() -> Result<()> {
    let x = of(&[3f64, 1., 3., 3.], &[4]);
    assert_eq!(slope(&x, |x| x.max(&[], false))?, [1. / 3., 0., 1. / 3., 1. / 3.]);
    assert_eq!(slope(&of(&[2f64, 0., 5.], &[3]), |x| x.prod(&[], false))?, [0., 10., 0.]);
    assert_eq!(slope(&of(&[0f64, 0., 5.], &[3]), |x| x.prod(&[], false))?, [0., 0., 0.]);
    // 2 + 2a + 2ab for x = (2, a, b), at a = 0 and b = 5.
    assert_eq!(slope(&of(&[2f64, 0., 5.], &[3]), |x| x.cumprod(0))?, [1., 12., 0.]);
    assert_eq!(slope(&of(&[0f64, 0., 5.], &[3]), |x| x.cumprod(0))?, [1., 0., 0.]);
    for p in [1.0, 1.5, 2.0, f64::INFINITY] {
        assert_eq!(slope(&of(&[0f64, 0.], &[2]), |x| x.norm(p, &[], false))?, [0., 0.], "{p}");
    }
    assert_eq!(slope(&of(&[2f64, -2.], &[2]), |x| x.norm(f64::INFINITY, &[], false))?, [0.5, -0.5]);
    let nan = of(&[1f64, f64::NAN], &[2]);
    assert!(nan.max(&[], false)?.item()?.is_nan() && nan.norm(2.0, &[], false)?.item()?.is_nan());
    Ok(())
}

#[test]
fn empty_axes() -> Result<()> {
    let x = Tensor::zeros(&[2, 0], DType::F32);
    assert_eq!(x.sum(&[1], false)?.to_f64(), [0., 0.]);
    assert_eq!(x.prod(&[1], false)?.to_f64(), [1., 1.]);
    assert_eq!(x.norm(2.0, &[1], false)?.to_f64(), [0., 0.]);
    assert!(x.mean(&[1], false)?.to_f64().iter().all(|x| x.is_nan()));
    assert!(x.var(&[1], 0, false)?.to_f64().iter().all(|x| x.is_nan()));
    assert!(x.max(&[1], false).unwrap_err().to_string().contains("axis 1 of [2, 0] has no elements"));
    assert_eq!(x.argmin(-1, false).unwrap_err().kind(), ErrorKind::Shape);
    assert_eq!(x.max(&[0], false)?.shape(), [0]);
    assert_eq!((x.softmax(1)?.shape(), x.cumsum(0)?.shape()), (&[2, 0][..], &[2, 0][..]));
    assert_eq!(slope(&x, |x| x.mean(&[1], false))?.len(), 0);
    let scalar = Tensor::scalar(3.0, DType::F64);
    assert_eq!((scalar.sum_all()?.item()?, scalar.max(&[], true)?.item()?), (3.0, 3.0));
    Ok(())
}

#[test]
fn softmax_is_a_distribution_for_any_input() -> Result<()> {
    let data: Vec<f64> = (0..60).map(|i| ((i * 37 % 61) as f64 - 30.0) * 40.0).collect();
    let x = of(&data, &[3, 4, 5]);
    for axis in [0, 1, -1] {
        let sums = x.softmax(axis)?.sum(&[axis], false)?.to_f64();
        assert!(sums.iter().all(|sum| (sum - 1.0).abs() < 1e-15), "{sums:?}");
        // A shift by an integer is exact here, so nothing may change.
        assert_eq!((&x + 4096.0)?.softmax(axis)?.to_f64(), x.softmax(axis)?.to_f64());
        assert_eq!((&x + 4096.0)?.log_softmax(axis)?.to_f64(), x.log_softmax(axis)?.to_f64());
    }
    let y = of(&[0f64, 3f64.ln(), f64::NEG_INFINITY], &[3]);
    let (p, log_p) = (y.softmax(0)?.to_f64(), y.log_softmax(0)?.to_f64());
    assert!((p[0] - 0.25).abs() < 1e-16 && (p[1] - 0.75).abs() < 2e-16 && p[2] == 0.0, "{p:?}");
    assert!((log_p[0] + 4f64.ln()).abs() < 1e-15 && log_p[2] == f64::NEG_INFINITY);
    let masked = Tensor::full(&[2], f64::NEG_INFINITY, DType::F32);
    assert!(masked.softmax(0)?.to_f64().iter().chain(&masked.log_softmax(0)?.to_f64()).all(|p| p.is_nan()));
    Ok(())
}

#[test]
fn refusals_say_what_was_met() {
    let x = Tensor::zeros(&[2, 3], DType::F32);
    let message = |result: Result<Tensor>| result.unwrap_err().to_string();
    assert!(message(x.sum(&[2], false)).starts_with("Sum: axis 2"));
    assert_eq!(message(x.mean(&[1, -1], false)), "Mean: axis 1 is named twice in [1, -1]");
    assert!(message(x.max(&[isize::MIN], false)).starts_with("Max: axis"));
    assert!(message(x.softmax(5)).starts_with("Softmax: axis 5"));
    assert_eq!(message(x.norm(0.0, &[], false)), "Norm: p = 0; allowed: above 0, or infinite");
    assert!(message(Tensor::zeros(&[2], DType::Bool).sum_all()).contains("got bool"));
    assert!(message(Tensor::scalar(0.0, DType::F32).cumsum(0)).contains("scalar"));
}

#[test]
fn an_explicit_dtype_is_the_callers_word_in_every_region() -> Result<()> {
    use precast::precision::{Frame, enter};
    let x = Tensor::from_vec(vec![1f32 + 2f32.powi(-10), 2.0, 3.0], &[3])?;
    for frame in [Frame::Off, Frame::Fixed(DType::Bf16), Frame::Fixed(DType::F32)] {
        let _region = enter(frame);
        for dtype in [DType::F64, DType::F32, DType::F16, DType::Bf16] {
            let y = x.cast(dtype);
            let pairs = [
                (x.softmax_as(0, dtype)?, y.softmax_as(0, dtype)?),
                (x.log_softmax_as(0, dtype)?, y.log_softmax_as(0, dtype)?),
                (x.sum_as(&[], false, dtype)?, y.sum_as(&[], false, dtype)?),
                (x.mean_as(&[], false, dtype)?, y.mean_as(&[], false, dtype)?),
                (x.prod_as(&[], false, dtype)?, y.prod_as(&[], false, dtype)?),
                (x.norm_as(2.0, &[], false, dtype)?, y.norm_as(2.0, &[], false, dtype)?),
                (x.cumsum_as(0, dtype)?, y.cumsum_as(0, dtype)?),
                (x.cumprod_as(0, dtype)?, y.cumprod_as(0, dtype)?),
            ];
            for (named, cast_first) in pairs {
                assert_eq!((named.dtype(), named.to_f64()), (dtype, cast_first.to_f64()));
            }
            // 6 + 2^-10, rounded once.
            let sum = Tensor::scalar(6.0 + 2f64.powi(-10), dtype);
            assert_eq!(x.sum_as(&[], false, dtype)?.item()?, sum.item()?);
        }
    }
    Ok(())
}
