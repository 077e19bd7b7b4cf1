//! Functions composed of several ops of the catalogue. Each op rounds, and the errors meet in differences, so in 16 bit
//! the only bounds are those of each op, which the table holds. Gradients must be present.

use precast::{DType, Reduction, Result, Tensor, gradcheck};

use crate::gradients::inputs::{CASES, Draw};

type Call = Box<dyn Fn(&[Tensor]) -> Result<Tensor>>;

/// Checks a function over the cases of a row.
fn check_function(name: &str, draw: impl Fn(&mut Draw) -> (Vec<Tensor>, Call)) {
    for case in 0..CASES {
        let (inputs, call) = draw(&mut Draw::new(case));
        let found = gradcheck::gradients(&inputs, &call).unwrap_or_else(|e| panic!("{name}, case {case}: {e}"));
        assert!(found.relative <= 1e-6, "{name}, case {case}: {found:?}");
        let found = gradcheck::low_gradients(&inputs, DType::F32, &call).unwrap();
        assert!(found.relative <= 64.0, "{name}, case {case}: {found:?}");
        for low in DType::LOW {
            let found = gradcheck::low_gradients(&inputs, low, &call);
            assert!(found.as_ref().is_ok_and(|found| found.relative.is_finite()), "{name}, case {case}: {found:?}");
        }
    }
}

#[test]
fn gradients() {
    check_function("normalize", |d| {
        let (shape, axis) = d.shape_and_axis(4);
        (vec![d.tensor(&shape, 0.2..2.0)], Box::new(move |x| x[0].normalize(2.0, axis as isize, 1e-12)))
    });
    check_function("kron", |d| {
        let [a, b] = [d.shape(1..=2), d.sizes(2, 1..=3)];
        (vec![d.tensor(&a, -2.0..2.0), d.tensor(&b, -2.0..2.0)], Box::new(|x| x[0].kron(&x[1])))
    });
    check_function("unfold", |d| {
        let shape = [d.samples(2), d.size(1..=2), d.size(2..=4), d.size(1..=4)];
        (vec![d.tensor(&shape, -2.0..2.0)], Box::new(|x| x[0].unfold(&[2, 1], &[1, 2], &[1, 0], &[1])))
    });
    check_function("multilabel_soft_margin_loss", |d| {
        let shape = [d.samples(4), d.size(1..=4)];
        let reduction = d.pick(&[Reduction::Sum, Reduction::None]);
        let inputs = vec![d.tensor(&shape, -1.0..1.0), d.tensor(&shape, 0.1..0.9)];
        (inputs, Box::new(move |x| x[0].multilabel_soft_margin_loss(&x[1], reduction)))
    });
    check_function("a norm by hand", |d| {
        let (shape, axis) = d.shape_and_axis(4);
        let length = move |x: &[Tensor]| x[0].square()?.sum(&[axis as isize], true)?.sqrt();
        (vec![d.away(&shape, -2.0..2.0, &[0.0])], Box::new(length))
    });
    check_function("one of an axis", |d| {
        let (shape, axis) = d.shape_and_axis(4);
        let index = d.number(0..=shape[axis] - 1);
        (vec![d.tensor(&shape, -2.0..2.0)], Box::new(move |x| x[0].at(axis as isize, index)))
    });
}
