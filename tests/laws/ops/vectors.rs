//! Cross products, distances, and sums with a product or a quotient: values, one rounding, refusals.

use precast::{DType, ErrorKind, Result, Tensor};

use crate::ops::inputs::Draw;

#[test]
fn a_cross_product_is_orthogonal_and_turns_right() -> Result<()> {
    let unit = |i: usize| Tensor::from_f64(&[0, 1, 2].map(|j| f64::from(i == j)), &[3], DType::F64);
    for i in 0..3 {
        assert_eq!(unit(i)?.cross(&unit((i + 1) % 3)?, 0)?.to_f64(), unit((i + 2) % 3)?.to_f64());
        assert_eq!(unit((i + 1) % 3)?.cross(&unit(i)?, 0)?.to_f64(), unit((i + 2) % 3)?.neg()?.to_f64());
    }
    let mut draw = Draw::new(1);
    let (a, b) = (draw.tensor(&[2, 3, 4], -2.0..2.0), draw.tensor(&[1, 3, 4], -2.0..2.0));
    let c = a.cross(&b, -2)?;
    for x in [&a, &b] {
        assert!(c.mul(x)?.sum(&[1], false)?.to_f64().iter().all(|dot| dot.abs() < 1e-14));
    }
    // |a × b|² = |a|²|b|² - (a · b)²
    let square = |x: &Tensor| x.square()?.sum(&[1], false);
    let want = square(&a)?.mul(&square(&b)?)?.sub(&a.mul(&b)?.sum(&[1], false)?.square()?)?;
    assert!(square(&c)?.sub(&want)?.to_f64().iter().all(|difference| difference.abs() < 1e-12));
    Ok(())
}

#[test]
fn distances_follow_the_definition() -> Result<()> {
    let mut draw = Draw::new(2);
    for p in [0.5, 1.0, 2.0, 2.5, f64::INFINITY] {
        let (a, b) = (draw.tensor(&[2, 3, 4], -2.0..2.0), draw.tensor(&[5, 4], -2.0..2.0));
        let (x, y, found) = (a.to_f64(), b.to_f64(), a.cdist(&b, p)?);
        assert_eq!(found.shape(), [2, 3, 5]);
        for (at, found) in found.to_f64().into_iter().enumerate() {
            let (i, j) = (at / 5, at % 5);
            let gaps = (0..4).map(|c| (x[i * 4 + c] - y[j * 4 + c]).abs());
            let want = match p.is_infinite() {
                true => gaps.fold(0.0, f64::max),
                false => gaps.map(|gap| gap.powf(p)).sum::<f64>().powf(1.0 / p),
            };
            assert!((found - want).abs() < 1e-13 * want, "{p}: {found} instead of {want}");
        }
    }
    // At distance 0 the gradient is 0.
    let x = draw.tensor(&[3, 2], -1.0..1.0).requires_grad();
    let grads =
        x.cdist(&x.detach(), 2.0)?.mul(&Tensor::from_vec(vec![1f64, 0., 0., 0., 1., 0., 0., 0., 1.], &[3, 3])?)?;
    assert_eq!(grads.sum_all()?.backward()?.of(&x).unwrap().to_f64(), [0.0; 6]);
    assert_eq!(Tensor::zeros(&[2, 0], DType::F32).cdist(&Tensor::zeros(&[3, 0], DType::F32), 2.0)?.to_f64(), [0.0; 6]);
    Ok(())
}

#[test]
fn sixteen_bit_results_are_those_of_f32_rounded_once() -> Result<()> {
    let mut draw = Draw::new(3);
    type Op = fn(&Tensor, &Tensor) -> Result<Tensor>;
    let ops: [(&str, Op); 4] = [
        ("cross", |a, b| a.cross(b, 1)),
        ("cdist", |a, b| a.cdist(b, 2.0)),
        ("addcmul", |a, b| a.addcmul(b, b, 1.25)),
        ("addcdiv", |a, b| a.addcdiv(a, b, 1.25)),
    ];
    for (name, f) in ops {
        for low in DType::LOW {
            let [a, b] = [(); 2].map(|()| draw.tensor(&[30, 3], 0.5..2.0).cast(low));
            let wide = f(&a.cast(DType::F32), &b.cast(DType::F32))?;
            assert_eq!(f(&a, &b)?.to_f64(), wide.cast(low).to_f64(), "{name} {low}");
        }
    }
    let (a, b) = (Tensor::from_vec(vec![6f64, 1.], &[2])?, Tensor::from_vec(vec![3f64, 4.], &[2])?);
    assert_eq!(Tensor::scalar(1.0, DType::F64).addcmul(&a, &b, 0.5)?.to_f64(), [10., 3.]);
    assert_eq!(Tensor::scalar(1.0, DType::F64).addcdiv(&a, &b, 0.5)?.to_f64(), [2., 1.125]);
    assert_eq!(a.cast(DType::F16).addcmul(&a.cast(DType::F32), &b.cast(DType::F16), 1.0)?.dtype(), DType::F32);
    Ok(())
}

#[test]
fn refusals_say_what_was_met() {
    let zeros = |shape: &[usize]| Tensor::zeros(shape, DType::F32);
    let refused = |result: Result<Tensor>, kind: ErrorKind, words: &str| {
        let error = result.unwrap_err();
        assert!(error.kind() == kind && error.to_string().contains(words), "{error}");
    };
    let x = zeros(&[2, 3]);
    refused(x.cross(&x, 0), ErrorKind::Shape, "Cross: axis 0 of [2, 3] and [2, 3] must have 3 elements");
    refused(x.cross(&zeros(&[3]), -1), ErrorKind::Shape, "different numbers of axes");
    refused(x.cross(&zeros(&[4, 3]), 1), ErrorKind::Shape, "Cross: the shapes [2, 3] and [4, 3] do not broadcast");
    refused(x.cross(&x, isize::MIN), ErrorKind::Shape, "axis");
    refused(x.cdist(&zeros(&[4, 2]), 2.0), ErrorKind::Shape, "vectors of length 3 and 2");
    refused(x.cdist(&zeros(&[3]), 2.0), ErrorKind::Shape, "[..., n, d]");
    refused(zeros(&[2, 1, 3]).cdist(&zeros(&[3, 1, 3]), 2.0), ErrorKind::Shape, "leading axes");
    refused(x.cdist(&x, f64::NAN), ErrorKind::Value, "Cdist: p = NaN");
    refused(x.cdist(&x.cast(DType::I64), 2.0), ErrorKind::DType, "f32, i64");
    refused(x.addcmul(&x, &zeros(&[2]), 1.0), ErrorKind::Shape, "Addcmul: the shapes [2, 3] and [2] do not broadcast");
    refused(x.addcdiv(&x.cast(DType::Bool), &x, 1.0), ErrorKind::DType, "f32, bool, f32");
}

#[test]
fn lengths_and_angles() -> Result<()> {
    let x = Tensor::from_vec(vec![0f64, 0., 3., 4., 0., 8.], &[3, 2])?;
    assert_eq!(x.pdist(2.0)?.to_f64(), [5., 8., 5.]);
    assert_eq!(x.dist(&Tensor::ones(&[2], DType::F64), 1.0)?.item()?, 2. + 5. + 8.);
    assert_eq!(x.normalize(2.0, -1, 1e-12)?.to_f64(), [0., 0., 0.6, 0.8, 0., 1.]);
    let short = x.renorm(2.0, 0, 2.0)?.to_f64();
    assert!(short.iter().zip([0., 0., 1.2, 1.6, 0., 2.]).all(|(a, b)| (a - b).abs() < 1e-6), "{short:?}");
    assert_eq!(x.renorm(2.0, -2, 5.0)?.to_f64()[..4], x.to_f64()[..4]);
    assert!(x.renorm(2.0, 0, -1.0).unwrap_err().to_string().contains("Renorm: max_norm = -1"));
    assert_eq!(x.cosine_similarity(&x, -1, 1e-8)?.to_f64()[0], 0.0);
    Ok(())
}
