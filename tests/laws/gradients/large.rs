//! Gradients at 130 to 600 rows: sums over rows are taken in blocks, which small shapes never fill.

use precast::{CrossEntropy, Reduction, Result, Tensor};

use crate::gradients::{
    inputs::Draw,
    loss,
    row::{Case, ONCE, check_case, check_tall},
};

/// Less than three blocks of 64 rows, only whole ones, and many with a remainder.
const ROWS: [usize; 3] = [130, 256, 600];

/// Checks the case drawn for each number of rows.
fn at_each(name: &str, case: impl Fn(&mut Draw, usize) -> Case) {
    for (number, rows) in ROWS.into_iter().enumerate() {
        check_case(&format!("{name}, {rows} rows"), &case(&mut Draw::new(4 + number), rows));
    }
}

fn wide(d: &mut Draw, shape: &[usize]) -> Tensor {
    d.tensor(shape, -1.0..1.0)
}

#[test]
fn norms() {
    at_each("layer_norm", |d, n| {
        let inputs = [wide(d, &[n, 3]), wide(d, &[3]), wide(d, &[3])];
        Case::new(inputs, |x| x[0].layer_norm(&[3], Some(&x[1]), Some(&x[2]), 0.1))
    });
    at_each("rms_norm", |d, n| Case::new([wide(d, &[n, 3]), wide(d, &[3])], |x| x[0].rms_norm(Some(&x[1]), 0.1)));
    at_each("batch_norm_train", |d, n| {
        let inputs = [wide(d, &[n, 2]), wide(d, &[2]), wide(d, &[2])];
        Case::new(inputs, |x| Ok(x[0].batch_norm_train(Some(&x[1]), Some(&x[2]), 0.1)?.0))
    });
    at_each("batch_norm_train of pictures", |d, n| {
        let inputs = [wide(d, &[n / 2, 2, 2]), wide(d, &[2]), wide(d, &[2])];
        Case::new(inputs, |x| Ok(x[0].batch_norm_train(Some(&x[1]), Some(&x[2]), 0.1)?.0))
    });
    at_each("batch_norm", |d, n| {
        let params = [wide(d, &[2]), d.tensor(&[2], 0.5..2.0), wide(d, &[2]), wide(d, &[2])];
        let inputs = [&[wide(d, &[n, 2])][..], &params].concat();
        Case::new(inputs, |x| x[0].batch_norm(&x[1], &x[2], Some(&x[3]), Some(&x[4]), 0.1))
    });
    at_each("group_norm", |d, n| {
        let inputs = [wide(d, &[n, 4]), wide(d, &[4]), wide(d, &[4])];
        Case::new(inputs, |x| x[0].group_norm(2, Some(&x[1]), Some(&x[2]), 0.1))
    });
    at_each("instance_norm", |d, n| {
        let inputs = [wide(d, &[n / 2, 2, 2]), wide(d, &[2]), wide(d, &[2])];
        Case::new(inputs, |x| x[0].instance_norm(Some(&x[1]), Some(&x[2]), 0.1))
    });
}

#[test]
fn softmaxes() {
    // Rounded intermediate results make them less accurate, as in the table.
    type Along = fn(&Tensor, isize) -> Result<Tensor>;
    let both: [(&str, Along, f64); 2] = [("softmax", Tensor::softmax, 1.0), ("log_softmax", Tensor::log_softmax, 0.5)];
    for (name, f, kept) in both {
        at_each(name, |d, n| Case::new([wide(d, &[n, 3])], move |x| f(&x[0], -1)).low(ONCE + kept));
        at_each(&format!("{name} over the rows"), |d, n| {
            Case::new([wide(d, &[n, 2])], move |x| f(&x[0], 0)).low(ONCE + kept)
        });
    }
}

/// Means, sums, and losses of each sample; plain, transposed and strided.
#[test]
fn losses() {
    check_tall(loss::rows(), ROWS);
}

#[test]
fn cross_entropy_with_every_option() {
    at_each("cross_entropy", |d, n| {
        let options = CrossEntropy::default()
            .reduction(Reduction::Mean)
            .ignore_index(Some(2))
            .label_smoothing(0.1)
            .weight(Some(d.tensor(&[3], 0.5..2.0)));
        let inputs = [wide(d, &[n, 3]), d.indices(3, &[n])];
        Case::new(inputs, move |x| x[0].cross_entropy_with(&x[1], &options))
    });
}

/// Parameters shared by all rows: their gradients are sums over the rows.
#[test]
fn shared_parameters() {
    at_each("linear", |d, n| {
        let inputs = [wide(d, &[n, 2]), wide(d, &[3, 2]), wide(d, &[3])];
        Case::new(inputs, |x| x[0].linear(&x[1], Some(&x[2])))
    });
    at_each("bias_add", |d, n| Case::new([wide(d, &[n, 2]), wide(d, &[2])], |x| x[0].bias_add(&x[1])));
    at_each("mul of a row", |d, n| Case::new([wide(d, &[n, 2]), wide(d, &[2])], |x| x[0].mul(&x[1])));
    at_each("prelu", |d, n| {
        let inputs = [d.away(&[n, 2], -1.0..1.0, &[0.0]), d.tensor(&[2], 0.1..0.5)];
        Case::new(inputs, |x| x[0].prelu(&x[1]))
    });
    at_each("embedding", |d, n| Case::new([d.indices(3, &[n]), wide(d, &[3, 2])], |x| x[0].embedding(&x[1])));
}
