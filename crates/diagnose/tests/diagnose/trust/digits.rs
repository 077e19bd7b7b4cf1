//! Lost digits without a reference: two passes with stochastic rounding must name the cell of each planted fault.

use precast::{Op, no_grad, prelude::*};
use precast_diagnose::shadow::{Digits, Shadow};

use super::{
    cases::{Case, plain},
    read,
};

#[test]
fn lost_digits_are_found_without_a_reference() {
    let (mut lost, mut right, mut quiet, mut called) = (0, 0, 0, 0);
    for value in read("faults.jsonl") {
        let case = Case(&value);
        let truth = &value["truth"];
        if truth["kind"] != "lost" && truth["kind"] != "none" {
            continue;
        }
        let net = case.lowered(|policy| policy).unwrap();
        let digits = Digits::of(&net, |net| no_grad(|| net.call(&case.input(0)))).unwrap();
        let cell = digits.lost.as_ref().map(|lost| plain(&lost.cell));
        if truth["kind"] == "none" {
            quiet += 1;
            called += usize::from(cell.is_some());
            if let Some(found) = &digits.lost {
                println!("{}: quiet, but {found}", case.id());
            }
            continue;
        }
        lost += 1;
        match cell {
            Some(cell) if truth["edge"]["cell"] == cell.as_str() => right += 1,
            _ => println!("{}: {digits}; truth {}", case.id(), truth["edge"]),
        }
    }
    println!("trust digits: {right} of {lost} lost, {called} of {quiet} quiet called");
    assert!(lost > 0 && quiet > 0);
    assert!(right as f64 >= 0.95 * lost as f64, "{right} of {lost}");
    assert!(called as f64 <= 0.05 * quiet as f64, "{called} of {quiet}");
}

/// Rows of 2999 and 3001, of which f16, with steps of 2 there, makes 3000; the norm divides by their distance.
fn norm_of_offset_inputs() -> (Child, Tensor) {
    let mut net = Child::of(sequential![LayerNorm::new(&[4]), Tanh]);
    let _ = Policy::new(Level::O2, DType::F16).unwrap().apply(&mut net).unwrap();
    (net, Tensor::from_vec([2999f32, 3001.0].repeat(16), &[8, 4]).unwrap())
}

#[test]
fn the_cast_of_an_input_that_loses_its_digits_is_named() {
    let (net, x) = norm_of_offset_inputs();
    let lost = Digits::of(&net, |net| no_grad(|| net.call(&x))).unwrap().lost.expect("the differences are lost");
    assert_eq!((lost.op, lost.cell.as_str()), (Op::Cast, ""));
    // Without the offset, all digits are there.
    let near = x.sub(&Tensor::scalar(3000.0, DType::F32)).unwrap();
    assert_eq!(Digits::of(&net, |net| no_grad(|| net.call(&near))).unwrap().lost, None);
    // An output that is not finite has no digits.
    let far = Tensor::full(&[8, 4], 1e5, DType::F32);
    let error = Digits::of(&net, |net| no_grad(|| net.call(&far))).unwrap_err().to_string();
    assert!(error.contains("Cast of the input of the root cell"), "{error}");
}

/// Rounded to 3000 each, the numbers of a row have no differences, so that the norm is 0: all of the output is wrong.
#[test]
fn a_shadow_run_has_a_row_for_the_inputs_that_lose_their_digits() {
    let (mut net, x) = norm_of_offset_inputs();
    let policy = Policy::new(Level::O2, DType::F16).unwrap();
    let shadow = Shadow::of(&policy, &mut net, &x).unwrap();
    let input = shadow.input.as_ref().expect("no cell explains the error");
    assert_eq!((shadow.error, input.effect), (1.0, 1.0));
    // One of 3000 in each number.
    assert!((input.local * 3000.0 - 1.0).abs() < 1e-3, "{input:?}");
    assert!(shadow.to_string().contains("| (input) "), "{shadow}");
    let near = x.sub(&Tensor::scalar(3000.0, DType::F32)).unwrap();
    assert!(Shadow::of(&policy, &mut net, &near).unwrap().input.is_none());
}
