//! `formula!`: values by hand, what is taken by reference, and places of errors.

use precast::prelude::*;

fn value(x: &Tensor) -> Vec<f64> {
    x.to_f64()
}

#[test]
fn operators_have_their_precedence_and_numbers_of_any_type() {
    let (a, b) = (Tensor::from([1f32, 2.]), Tensor::from([4f32, 8.]));
    let (n, half, whole) = (3usize, 0.5f32, -2i64);
    assert_eq!(value(&formula!(2.0 * a + b / 4.0 - 1).unwrap()), [2., 5.]);
    assert_eq!(value(&formula!(a * n / (half + whole) - -b).unwrap()), [2., 4.]);
    assert_eq!(value(&formula!(-(a - b) * &a).unwrap()), [3., 12.]);
    assert_eq!(formula!((n - 1) / 4).unwrap(), 0.5, "numbers alone are f64");
    assert_eq!(formula!(a * 2).unwrap().dtype(), DType::F32);
    let i = Tensor::from([1i64, 2]);
    assert_eq!(formula!(i * 2 + 1).unwrap().to_vec::<i64>().unwrap(), [3, 5]);
    // No variable was moved.
    drop((a, b, i));
}

#[test]
fn calls_are_opened_where_they_can_fail() {
    struct Pair {
        x: Tensor,
        weight: Param,
    }
    let pair = Pair { x: Tensor::from([[3f32, 4.]]), weight: Param::new(Tensor::from([1f32, 2.])) };
    let twice = |x: &Tensor| formula!(2.0 * x);
    let by_hand = ((pair.x.square().unwrap().sum(&[1], false).unwrap() * 2.0).unwrap()).to_f64();
    assert_eq!(value(&formula!(twice(&pair.x.square()).sum(&[1], false)).unwrap()), by_hand);
    // The calls in the middle return a slice, a number and an option.
    assert_eq!(value(&formula!(pair.x / pair.x.shape().iter().max().copied().unwrap_or(1)).unwrap()), [1.5, 2.]);
    assert_eq!(value(&formula!(pair.weight * pair.x.maximum(&(3.5 + 0.0 * pair.x))).unwrap()), [3.5, 8.]);
    let rows = [Tensor::from([1f32]), Tensor::from([5f32])];
    assert_eq!(value(&formula!(rows[1] - rows[0] * if rows.len() > 1 { 2f32 } else { 0f32 }).unwrap()), [3.]);
    assert_eq!(
        value(&formula!((rows[1].log() / 5f64.ln()).exp()?.neg()).unwrap()),
        [-std::f64::consts::E as f32 as f64]
    );
}

#[test]
fn an_error_names_its_part_and_place() {
    let (a, b) = (Tensor::from([1f32, 2.]), Tensor::from([1f32, 2., 3.]));
    let line = line!() + 1;
    let error = formula!(2.0 * a - (a.exp() + b).tanh()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Shape);
    assert_eq!(error.op(), Some("Add"));
    let place = error.location().unwrap();
    assert!(place.file.ends_with("formulas.rs") && place.line == Some(line as usize), "{place}");
    assert_eq!(place.column, Some(45));
    assert!(error.to_string().contains("`a.exp() + b`"), "{error}");
    let error = formula!(a.reshape(&[5]).exp().sum(&[0], false) * 3).unwrap_err();
    assert!(error.to_string().contains("`a.reshape(&[5])`"), "{error}");
    let error = formula!(0.5 * Tensor::from([1i64])).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::DType);
}

#[test]
fn gradients_and_bits_are_those_of_single_ops() {
    let param = Param::new(Tensor::from([-1.5f32, 0.25, 2.]));
    let x = param.tensor();
    let formula = formula!(0.5 * x * (1.0 + (0.7978845608 * (x + 0.044715 * x * x * x)).tanh())).unwrap();
    let single = || -> Result<Tensor> {
        let half = (&x * 0.5)?;
        let cubic = (((&x * 0.044715)? * &x)? * &x)?;
        let tanh = ((&x + cubic)? * 0.7978845608)?.tanh()?;
        half.mul(&(tanh + 1.0)?)
    };
    let single = single().unwrap();
    assert_eq!(formula.to_vec::<f32>().unwrap(), single.to_vec::<f32>().unwrap());
    let grad = |y: &Tensor| y.sum_all().unwrap().backward().unwrap().get(&param).unwrap().to_vec::<f32>().unwrap();
    assert_eq!(grad(&formula), grad(&single));
}
