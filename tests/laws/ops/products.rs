//! Products over selected axes and of many factors: definitions, refusals.

use precast::{DType, ErrorKind, Result, Tensor};

use crate::ops::inputs::Draw;

#[test]
fn they_follow_their_definitions() -> Result<()> {
    let mut draw = Draw::new(1);
    let (a, b) = (draw.tensor(&[2, 3, 4], -2.0..2.0), draw.tensor(&[4, 5, 3], -2.0..2.0));
    let same = |a: &Tensor, b: &Tensor| {
        assert_eq!(a.shape(), b.shape());
        assert!(a.to_f64().iter().zip(b.to_f64()).all(|(a, b)| (a - b).abs() < 1e-12), "{a:?} {b:?}");
    };
    same(&a.tensordot(&b, &[1, 2], &[2, 0])?, &Tensor::einsum("ijk,klj->il", &[&a, &b])?);
    same(&a.tensordot(&b, &[], &[])?, &Tensor::einsum("abc,def->abcdef", &[&a, &b])?);
    same(&a.inner(&b.permute(&[1, 2, 0])?)?, &Tensor::einsum("abk,cdk->abcd", &[&a, &b.permute(&[1, 2, 0])?])?);
    let (m, n) = (draw.tensor(&[2, 3], -2.0..2.0), draw.tensor(&[4], -2.0..2.0));
    let (x, y, kron) = (m.to_f64(), n.to_f64(), m.kron(&n)?);
    assert_eq!(kron.shape(), [2, 12]);
    for (at, got) in kron.to_f64().into_iter().enumerate() {
        assert_eq!(got, x[at / 12 * 3 + at % 12 / 4] * y[at % 4]);
    }
    let [p, q, r] = [[2, 3], [3, 4], [4, 1]].map(|shape| draw.tensor(&shape, -2.0..2.0));
    same(&Tensor::multi_dot(&[&p, &q, &r])?, &p.matmul(&q)?.matmul(&r)?);
    let [u, v, w] = [vec![2, 3], vec![2, 4], vec![5, 3, 4]].map(|shape| draw.tensor(&shape, -2.0..2.0));
    same(&u.bilinear(&v, &w, None)?, &Tensor::einsum("ni,oij,nj->no", &[&u, &w, &v])?);
    let square = draw.tensor(&[3, 3], -2.0..2.0);
    assert_eq!(square.trace()?.item()?, [0, 4, 8].map(|i| square.to_f64()[i]).iter().sum::<f64>());
    Ok(())
}

#[test]
fn sixteen_bit_results_are_those_of_f32_rounded_once() -> Result<()> {
    let mut draw = Draw::new(2);
    for low in DType::LOW {
        let [a, b, c] = [[5, 40], [40, 40], [40, 3]].map(|shape| draw.tensor(&shape, -1.0..1.0).cast(low));
        let wide = [&a, &b, &c].map(|x| x.cast(DType::F32));
        let all = |a: &Tensor, b: &Tensor, c: &Tensor| -> Result<Vec<Tensor>> {
            Ok(vec![
                a.tensordot(b, &[1], &[0])?,
                Tensor::multi_dot(&[a, b, c])?,
                b.trace()?,
                a.bilinear(a, &b.unsqueeze(0)?, None)?,
            ])
        };
        for (got, want) in all(&a, &b, &c)?.iter().zip(all(&wide[0], &wide[1], &wide[2])?) {
            assert_eq!((got.dtype(), got.to_f64()), (low, want.cast(low).to_f64()));
        }
    }
    Ok(())
}

#[test]
fn refusals_say_what_was_met() {
    let refused = |result: Result<Tensor>, words: &str| {
        let error = result.unwrap_err();
        assert!(error.kind() == ErrorKind::Shape && error.to_string().contains(words), "{error}");
    };
    let x = Tensor::zeros(&[2, 3], DType::F32);
    refused(x.tensordot(&x, &[0], &[1]), "Tensordot: the axes [0] of [2, 3] do not pair with [1] of [2, 3]");
    refused(x.tensordot(&x, &[0, -2], &[0, 1]), "axis 0 is named twice");
    refused(x.tensordot(&x, &[2], &[0]), "axis 2 is out of range");
    refused(x.inner(&x.t().unwrap()), "Inner: the last axes of [2, 3] and [3, 2] differ");
    refused(Tensor::multi_dot(&[&x]), "needs at least two matrices, got 1");
    refused(Tensor::multi_dot(&[&x, &x.at(0, 0).unwrap()]), "needs matrices, got [3]");
    refused(x.addr(&x, &x), "needs two vectors");
    refused(x.bilinear(&x, &x, None), "needs [..., i], [..., j] and [o, i, j]");
    refused(x.trace(), "needs a square matrix, got [2, 3]");
    let error = x.tensordot(&x.cast(DType::F16), &[1], &[1]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::DType);
}
