//! Norms, deviations and quotients by them, for numbers whose squares leave the range of their type: correct whenever
//! the result is in range.

use precast::{Adafactor, DType, Lamb, Muon, Optimizer, Param, Reduction, Result, Tensor, cell::Params};

type Call = fn(&Tensor) -> Result<Tensor>;

/// Dtypes, each with a power of ten whose square is infinite there, or 0 if divided by it.
const SIZES: [(DType, f64); 6] = [
    (DType::F32, 1e20),
    (DType::F32, 1e-25),
    (DType::F32, 1e37),
    (DType::Bf16, 1e30),
    (DType::F64, 1e200),
    (DType::F64, 1e-200),
];

#[track_caller]
fn near(name: &str, got: &[f64], want: &[f64], dtype: DType) {
    assert_eq!(got.len(), want.len(), "{name} in {dtype}: {got:?}");
    for (g, w) in got.iter().zip(want) {
        let bound = 16.0 * dtype.epsilon() * w.abs().max(0.5 * want.iter().fold(0.0, |m: f64, w| m.max(w.abs())));
        assert!((g - w).abs() <= bound, "{name} in {dtype}: {got:?}, right {want:?}");
    }
}

/// Returns the value of a function, and the gradient of the sum of it times 1, 2, 3, ...
fn both(x: &Tensor, f: impl Fn(&Tensor) -> Result<Tensor>) -> [Vec<f64>; 2] {
    let x = x.requires_grad();
    let y = f(&x).unwrap();
    let seed: Vec<f64> = (1..=y.len()).map(|i| i as f64).collect();
    let grads = y.backward_from(&Tensor::from_f64(&seed, y.shape(), y.dtype()).unwrap()).unwrap();
    [y.to_f64(), grads.of(&x).unwrap().to_f64()]
}

const NUMBERS: [f64; 12] = [3.0, -4.0, 1.0, 2.5, 0.5, -1.0, -2.0, 1.5, 2.0, 3.5, -0.5, 1.0];

/// For functions f with `f(s x) = s^k f(x)`, the value and gradient at large and small numbers follow from those at
/// usual ones in f64.
#[test]
fn powers_of_ten_can_be_taken_out() {
    let functions: &[(&str, i32, Call)] = &[
        ("2-norm", 1, |x| x.norm(2.0, &[1], false)),
        ("2-norm of all", 1, |x| x.norm(2.0, &[], false)),
        ("3-norm", 1, |x| x.norm(3.0, &[1], false)),
        ("1-norm", 1, |x| x.norm(1.0, &[1], false)),
        ("half-norm", 1, |x| x.norm(0.5, &[1], false)),
        ("largest", 1, |x| x.norm(f64::INFINITY, &[1], false)),
        ("std", 1, |x| x.std(&[1], 1, false)),
        ("std of all", 1, |x| x.std(&[], 0, false)),
        ("normalize", 0, |x| x.normalize(2.0, 1, 0.0)),
        ("normalize by p = 3", 0, |x| x.normalize(3.0, 1, 0.0)),
        ("layer_norm", 0, |x| x.layer_norm(&[4], None, None, 0.0)),
        ("rms_norm", 0, |x| x.rms_norm(None, 0.0)),
        ("batch_norm", 0, |x| Ok(x.batch_norm_train(None, None, 0.0)?.0)),
        ("group_norm", 0, |x| x.group_norm(1, None, None, 0.0)),
        ("instance_norm", 0, |x| x.reshape(&[1, 3, 4])?.instance_norm(None, None, 0.0)?.reshape(&[3, 4])),
        ("cdist", 1, |x| x.cdist(&x.detach().mul(&Tensor::scalar(-0.5, x.dtype()))?, 2.0)),
        ("pdist", 1, |x| x.pdist(2.0)),
        ("dist", 1, |x| x.dist(&x.detach().mul(&Tensor::scalar(-0.5, x.dtype()))?, 2.0)),
        ("cosine_similarity", 0, |x| {
            x.cosine_similarity(&Tensor::from_f64(&[1.0, 2.0, 0.5, 1.0], &[4], x.dtype())?, 1, 0.0)
        }),
        ("hypot", 1, |x| x.hypot(&x.detach())),
        ("atan2", 0, |x| x.atan2(&x.detach().abs()?)),
    ];
    for (name, power, f) in functions {
        let usual = Tensor::from_f64(&NUMBERS, &[3, 4], DType::F64).unwrap();
        for (dtype, size) in SIZES {
            let x = usual.mul(&Tensor::scalar(size, DType::F64)).unwrap().cast(dtype);
            // The numbers after rounding.
            let rounded: Vec<f64> = x.to_f64().iter().map(|x| x / size).collect();
            let [value, gradient] = both(&Tensor::from_f64(&rounded, &[3, 4], DType::F64).unwrap(), f);
            let [got_value, got_gradient] = both(&x, f);
            let scaled = |x: Vec<f64>, power: i32| x.into_iter().map(|x| x * size.powi(power)).collect::<Vec<_>>();
            let wanted = scaled(gradient, power - 1);
            // Some results are themselves out of range.
            let [least, largest] = if dtype == DType::F64 { [1e-300, f64::MAX] } else { [1e-36, f32::MAX.into()] };
            let in_range = |x: &[f64]| x.iter().all(|x| *x == 0.0 || x.abs() > least && x.abs() < largest);
            let value = scaled(value, *power);
            if in_range(&value) {
                near(name, &got_value, &value, dtype);
            }
            if in_range(&wanted) {
                near(&format!("gradient of {name}"), &got_gradient, &wanted, dtype);
            }
        }
    }
}

#[test]
fn the_norm_of_two_numbers() -> Result<()> {
    for (dtype, x) in
        [(DType::F32, 1e20), (DType::Bf16, 1e20), (DType::F64, 1e200), (DType::F32, 1e-25), (DType::F64, 1e-320)]
    {
        let [value, gradient] = both(&Tensor::from_f64(&[x, -x], &[2], dtype)?, |x| x.norm(2.0, &[], false));
        let root = 0.5f64.sqrt();
        let bound = if x == 1e-320 { 1e-3 } else { 2.0 * dtype.epsilon() };
        assert!((value[0] / x / 2f64.sqrt() - 1.0).abs() <= bound, "{dtype} {value:?}");
        assert!((gradient[0] - root).abs() <= bound && (gradient[1] + root).abs() <= bound, "{dtype} {gradient:?}");
    }
    Ok(())
}

/// A norm beyond the largest number is infinite, while its gradient and quotients by it are in range.
#[test]
fn gradients_of_a_norm_out_of_range() -> Result<()> {
    for p in [2.0, 3.0] {
        let [value, gradient] = both(&Tensor::full(&[4], 3e38, DType::F32), |x| x.norm(p, &[], false));
        assert_eq!(value, [f64::INFINITY]);
        near("gradient", &gradient, &[0.25f64.powf(1.0 - 1.0 / p); 4], DType::F32);
    }
    Ok(())
}

#[test]
fn rows_are_kept_short_at_every_size() {
    for (dtype, size) in SIZES.into_iter().filter(|(_, size)| *size > 1.0 && *size < 1e36 || *size > 1e100) {
        let x = Tensor::from_f64(&[3.0 * size, 4.0 * size], &[1, 2], dtype).unwrap();
        let [value, gradient] = both(&x, |x| x.renorm(2.0, 0, 1.0)?.slice(1, 0..1));
        near("renorm", &value, &[0.6], dtype);
        near("gradient of renorm", &gradient, &[0.128 / size, -0.096 / size], dtype);
    }
}

#[test]
fn a_norm_is_not_rounded_before_it_divides() -> Result<()> {
    for (dtype, x) in [(DType::F16, 60000.0), (DType::Bf16, 5e37), (DType::F16, 6e-8), (DType::F16, 1.0)] {
        for (p, want) in [(2.0, 0.5), (1.0, 0.25), (f64::INFINITY, 1.0)] {
            let y = Tensor::full(&[2, 4], x, dtype).normalize(p, -1, 1e-12)?;
            assert_eq!((y.dtype(), y.to_f64()), (dtype, vec![want; 8]), "{x} p = {p}");
        }
    }
    let [_, gradient] = both(&Tensor::from_f64(&[30000.0, 40000.0], &[2], DType::F16)?, |x| {
        x.normalize(2.0, 0, 1e-12)?.cast(DType::F32).slice(0, 0..1)
    });
    near("gradient", &gradient, &[0.64 / 50000.0, -0.48 / 50000.0], DType::F16);
    Ok(())
}

#[test]
fn deviations_of_large_numbers_that_differ_little() -> Result<()> {
    // Means of 3e38 do not overflow, and differences near the smallest number still count as deviations.
    let x = Tensor::full(&[1, 4], 3e38, DType::F32);
    assert_eq!(x.std(&[1], 0, false)?.to_f64(), [0.0]);
    near("layer_norm", &x.layer_norm(&[4], None, None, 1e-5)?.to_f64(), &[0.0; 4], DType::F32);
    near("rms_norm", &x.rms_norm(None, 1e-6)?.to_f64(), &[1.0; 4], DType::F32);
    let x = Tensor::from_vec(vec![3e38f32, -3e38, 3e38, -3e38], &[1, 4])?;
    near("std", &x.std(&[1], 0, false)?.to_f64(), &[f64::from(3e38f32)], DType::F32);
    let [y, dx] = both(&x, |x| x.layer_norm(&[4], None, None, 1e-5));
    near("layer_norm", &y, &[1.0, -1.0, 1.0, -1.0], DType::F32);
    assert!(dx.iter().all(|dx| dx.is_finite()));
    // The variance is in range where the sum of squares is not.
    let many: Vec<f32> = (0..1000).map(|i| if i % 2 == 0 { 1e19 } else { -1e19 }).collect();
    let many = Tensor::from_vec(many, &[1000])?;
    near("var", &many.var(&[0], 0, false)?.to_f64(), &[f64::from(1e19f32).powi(2)], DType::F32);
    let (_, mean, variance) = many.reshape(&[1000, 1])?.batch_norm_train(None, None, 1e-5)?;
    near("mean", &mean.to_f64(), &[0.0], DType::F32);
    near("variance", &variance.to_f64(), &[f64::from(1e19f32).powi(2)], DType::F32);
    let small = Tensor::from_vec(vec![1e-25f32, -1e-25], &[2])?;
    // With an eps, small rows stay small.
    near("layer_norm", &small.layer_norm(&[2], None, None, 1e-4)?.to_f64(), &[1e-23, -1e-23], DType::F32);
    // NaN and infinity are not hidden.
    for x in [f32::NAN, f32::INFINITY] {
        let x = Tensor::from_vec(vec![x, 1e30, 1.0], &[1, 3])?;
        assert!(x.layer_norm(&[3], None, None, 1e-5)?.to_f64().iter().all(|y| y.is_nan()));
        assert!(x.std(&[1], 0, false)?.item()?.is_nan());
    }
    Ok(())
}

#[test]
fn losses_of_large_and_small_differences() -> Result<()> {
    const NONE: Reduction = Reduction::None;
    for (dtype, size) in SIZES {
        let of = |x: &[f64]| Tensor::from_f64(&x.iter().map(|x| x * size).collect::<Vec<_>>(), &[1, x.len()], dtype);
        let (anchor, alike, apart) = (of(&[3.0, 4.0])?, of(&[0.0, 0.0])?, of(&[3.0, -8.0])?);
        if size > 1.0 {
            let loss = |a: &Tensor, b: &Tensor| anchor.triplet_margin_loss(a, b, 0.0, 2.0, NONE).unwrap().to_f64();
            near("triplet", &loss(&apart, &alike), &[7.0 * size], dtype);
            assert_eq!(loss(&alike, &apart), [0.0]);
        }
        let one = Tensor::ones(&[1], dtype);
        if size > 1e-6 {
            let cosine = anchor.cosine_embedding_loss(&apart, &one, 0.0, NONE)?;
            near("cosine_embedding", &cosine.to_f64(), &[1.0 - (9.0 - 32.0) / 5.0 / 73f64.sqrt()], dtype);
        }
        // d² / (2 beta) with a beta of the magnitude of d.
        let smooth = anchor.smooth_l1_loss(&alike, 8.0 * size, NONE)?;
        near("smooth_l1", &smooth.to_f64(), &[9.0 / 16.0 * size, size], dtype);
        if size > 1.0 {
            let var = of(&[1.0, 2.0])?;
            let likelihood = anchor.gaussian_nll_loss(&alike, &var, 1e-6, NONE)?;
            near("gaussian_nll", &likelihood.to_f64(), &[4.5 * size, 4.0 * size], dtype);
        }
    }
    Ok(())
}

#[test]
fn second_derivatives_of_large_and_small_numbers() -> Result<()> {
    // For the norm: (1 - n nᵀ) / |x| with n = x / |x|; the gradient of the first slope is its first row.
    let functions: &[(&str, Call)] = &[
        ("norm", |x| x.norm(2.0, &[], false)),
        ("std", |x| x.std(&[], 0, false)),
        ("layer_norm", |x| x.layer_norm(&[4], None, None, 0.0)?.slice(0, 0..1)?.sum_all()),
        ("rms_norm", |x| x.rms_norm(None, 0.0)?.slice(0, 0..1)?.sum_all()),
        ("hypot", |x| x.slice(0, 0..1)?.hypot(&x.slice(0, 1..2)?)?.sum_all()),
    ];
    for (name, f) in functions {
        let second = |dtype: DType, size: f64| -> Result<Vec<f64>> {
            let x: Vec<f64> = NUMBERS[..4].iter().map(|x| x * size).collect();
            let x = Tensor::from_f64(&x, &[4], dtype)?.requires_grad();
            let slopes = precast::twice_differentiable(|| f(&x)?.gradients_on_tape(&[&x]))?;
            // Multiplied by the magnitude of x, so that it is in range.
            let scaled = (slopes[0].clone().unwrap() * size)?.slice(0, 0..1)?.sum_all()?;
            Ok(scaled.backward()?.of(&x).unwrap().to_f64().into_iter().map(|x| x * size).collect())
        };
        let degree = if matches!(*name, "norm" | "std" | "hypot") { 1 } else { 0 };
        let right = second(DType::F64, 1.0)?;
        for (dtype, size) in [(DType::F64, 1e160), (DType::F64, 1e-160), (DType::F32, 1e12), (DType::F32, 1e-12)] {
            let want: Vec<f64> = right.iter().map(|x| x * f64::powi(size, degree)).collect();
            let bound = 1e-5 * want.iter().fold(0.0, |m: f64, x| m.max(x.abs()));
            let got = second(dtype, size)?;
            assert!(
                got.iter().zip(&want).all(|(g, w)| (g - w).abs() <= bound),
                "{name} {dtype} {size:e}: {got:?}, {want:?}"
            );
        }
    }
    Ok(())
}

#[test]
fn norms_of_gradients() -> Result<()> {
    for (dtype, size) in SIZES {
        let weight = Param::new(Tensor::from_f64(&[size, size], &[2], dtype)?);
        let factors = Tensor::from_f64(&[3.0 * size, 4.0 * size], &[2], dtype)?;
        let mut grads = weight.tensor().mul(&factors)?.sum_all()?.backward()?;
        let right = factors.norm(2.0, &[], false)?.item()?;
        assert!((grads.norm() / right - 1.0).abs() < 2.0 * dtype.epsilon(), "{dtype} {size:e}: {}", grads.norm());
        if size > 1.0 {
            grads.clip_norm(1.0)?;
            let clipped = grads.get(&weight).unwrap().to_f64();
            assert!(clipped.iter().zip([0.6, 0.8]).all(|(g, w)| (g - w).abs() < 0.01), "{dtype} {size:e}: {clipped:?}");
        }
    }
    Ok(())
}

#[test]
fn norms_in_optimizers() -> Result<()> {
    let stepped = |dtype, weight: &[f64], grad: &[f64], make: fn(Params) -> Box<dyn Optimizer>| -> Result<Vec<f64>> {
        let param = Param::new(Tensor::from_f64(weight, &[1, 2], dtype)?);
        let grad = Tensor::from_f64(grad, &[1, 2], dtype)?;
        let grads = param.tensor().mul(&grad)?.sum_all()?.backward()?;
        make([param.clone()].into_iter().collect()).update(&grads)?;
        Ok(param.value().to_f64())
    };
    for (dtype, size) in SIZES.into_iter().filter(|(dtype, _)| *dtype != DType::Bf16) {
        // A direction of ones, scaled to the length of the weights.
        let lamb = stepped(dtype, &[size; 2], &[1.0; 2], |params| Box::new(Lamb::new(params, 0.125).eps(0.0)))?;
        near("lamb", &lamb, &[0.875 * size; 2], dtype);
        if size > 1.0 {
            // The same, by the root mean square.
            let adafactor = stepped(dtype, &[size; 2], &[1.0; 2], |params| Box::new(Adafactor::new(params, 0.125)))?;
            near("adafactor", &adafactor, &[0.875 * size; 2], dtype);
            // The length of a gradient does not matter.
            let muon = |size: f64| {
                stepped(dtype, &[0.0; 2], &[3.0 * size, 4.0 * size], |params| Box::new(Muon::new(params, 1.0)))
            };
            near("muon", &muon(size)?, &muon(1.0)?, dtype);
        }
    }
    Ok(())
}

/// Lengths beyond the largest and below the least normal number divide without loss.
#[test]
fn a_length_out_of_range_still_divides() -> Result<()> {
    let numbers = [4.0, -4.0, 2.0, 1.0];
    let (two, one) = (37f64.sqrt(), 11.0);
    for (dtype, scale) in [
        (DType::F32, 0.8e38),
        (DType::F64, 4e307),
        (DType::Bf16, 2f64.powi(125)),
        (DType::F32, 2f64.powi(-147)),
        // 2^-1072, which `powi` takes for 1 divided by infinity unless the compiler computes it.
        (DType::F64, f64::from_bits(4)),
        (DType::Bf16, 2f64.powi(-133)),
    ] {
        let x = Tensor::from_f64(&numbers.map(|x| x * scale), &[1, 4], dtype)?;
        let over = |length: f64| numbers.map(|x| x / length);
        near("normalize", &x.normalize(2.0, 1, 0.0)?.to_f64(), &over(two), dtype);
        near("normalize by p = 1", &x.normalize(1.0, 1, 0.0)?.to_f64(), &over(one), dtype);
        near("cosine", &x.cosine_similarity(&x, 1, 0.0)?.to_f64(), &[1.0], dtype);
        if scale > 1.0 {
            let target = Tensor::ones(&[1], dtype);
            let loss = x.cosine_embedding_loss(&x, &target, 0.0, Reduction::Sum)?.item()?;
            assert!(loss.abs() <= 4.0 * dtype.epsilon(), "{dtype}: {loss}");
            near("renorm", &x.renorm(2.0, 0, 1.0)?.to_f64(), &over(two), dtype);
            let positive = x.abs()?;
            near("mean", &[positive.mean_all()?.item()? / scale], &[11.0 / 4.0], dtype);
        }
        // A vector's cosine with itself does not depend on its length.
        let leaf = x.requires_grad();
        let grads = leaf.cosine_similarity(&x, 1, 0.0)?.sum_all()?.backward()?;
        assert!(grads.of(&leaf).unwrap().to_f64().iter().all(|grad| !grad.is_nan()), "{dtype} {scale:e}");
        let (a, b) = (Tensor::from_f64(&[3.0 * scale], &[1], dtype)?.requires_grad(), x.slice(1, 0..1)?.detach());
        let grads = a.hypot(&b.reshape(&[1])?)?.sum_all()?.backward()?;
        near("slope of hypot", &grads.of(&a).unwrap().to_f64(), &[0.6], dtype);
    }
    Ok(())
}

/// The sum of a thousand equal numbers is rounded, and what the mean is off by is not a deviation.
#[test]
fn constants_have_no_deviation_and_small_deviations_are_those_of_the_numbers() -> Result<()> {
    for (dtype, constant) in [(DType::F32, 0.1), (DType::F32, 1e6 / 3.0), (DType::F32, 1e30), (DType::F64, 1e15 / 3.0)]
    {
        let constant = Tensor::full(&[1, 1000], constant, dtype);
        assert_eq!(constant.std(&[1], 1, false)?.item()?, 0.0, "{constant:?}");
        let is_zero = |y: Tensor| assert!(y.to_f64().iter().all(|&y| y == 0.0), "{dtype} {constant:?}: {y:?}");
        is_zero(constant.layer_norm(&[1000], None, None, 1e-12)?);
        is_zero(constant.reshape(&[1, 1, 1000])?.group_norm(1, None, None, 1e-12)?);
        is_zero(constant.reshape(&[1000, 1])?.batch_norm_train(None, None, 1e-12)?.0);
    }
    // 2^20 and steps of 1/8: exact in f32, with the variance of 0, 1, ..., 7 in eighths.
    let x: Vec<f64> = (0..4096).map(|i| 2f64.powi(20) + f64::from(i % 8) / 8.0).collect();
    let x = Tensor::from_f64(&x, &[4096], DType::F32)?;
    let variance = x.var(&[0], 0, false)?.item()?;
    let exact = 5.25 / 64.0;
    assert!((variance - exact).abs() <= 0.05 * exact, "{variance}, exact {exact}");
    Ok(())
}
