//! Numeric targets: they are split and shuffled as classes are, training follows closed forms, and mismatches are
//! refused.

use precast::{
    Child, DType, Error, ErrorKind, Policy, Result, Tensor,
    io::models,
    layers::{Dense, Rng},
    optim::{Method, SgdOptions},
    sequential,
};
use precast_train::{
    FitOptions, History, Score, accuracy,
    data::{Dataset, Split, Targets},
    fit, mean_squared_error,
};

use crate::curve::{CURVE, curve, points};

/// Returns the same examples for training and testing.
fn both(data: Dataset) -> Split {
    Split { train: data.clone(), test: data }
}

/// Returns options for gradient descent with all examples in each step.
fn descent(epochs: usize, lr: f64, momentum: f64) -> FitOptions {
    FitOptions::default()
        .epochs(epochs)
        .lr(lr)
        .batch(usize::MAX)
        .method(Method::Sgd(SgdOptions { momentum, ..SgdOptions::default() }))
}

fn train(net: &mut Child, data: &Split, options: &FitOptions) -> Result<History> {
    fit(net, data, options, &mut |_| {})
}

fn weights(net: &Child) -> Vec<f64> {
    net.params().iter().flat_map(|(_, param)| param.value().to_f64()).collect()
}

fn close(met: f64, expected: f64, tolerance: f64) -> bool {
    (met - expected).abs() <= tolerance * expected.abs().max(1e-3)
}

/// The targets number the examples, so that each batch reveals its order.
#[test]
fn numbers_are_split_and_shuffled_as_classes_are() {
    for (n, size) in [(10, 3), (13, 4), (13, 5), (9, 4), (7, 1), (5, 8)] {
        let x: Vec<f32> = (0..2 * n).map(|x| x as f32).collect();
        let classes = Dataset::new(x.clone(), &[2], (0..n as i64).collect()).unwrap();
        let numbers = Dataset::regression(x, &[2], (0..n).map(|i| i as f32).collect(), &[]).unwrap();
        assert_eq!((numbers.len(), numbers.classes(), numbers.labels()), (n, 0, &[][..]));
        let course = |data: &Dataset| -> Vec<(Vec<f64>, Vec<f64>)> {
            let split = data.split(n - 2, 3).unwrap();
            let batches = split.train.shuffled_batches(size, 1, 5).unwrap().chain(split.test.batches(size).unwrap());
            batches.map(|batch| (batch.x.to_f64(), batch.y.to_f64())).collect()
        };
        assert_eq!(course(&classes), course(&numbers), "{n} examples in batches of {size}");
    }
    let pairs = Dataset::regression(points(12), &[4], points(18), &[3, 2]).unwrap();
    let batch = pairs.batches(2).unwrap().last().unwrap();
    assert_eq!((batch.y.shape(), batch.y.dtype()), (&[1, 3, 2][..], DType::F32));
    let Targets::Numbers { shape, values } = pairs.targets() else { panic!("{pairs:?}") };
    assert_eq!((&shape[..], batch.y.to_vec::<f32>().unwrap()), (&[3, 2][..], values[12..].to_vec()));
    assert_eq!(pairs.clone().reshape(&[2, 2]).unwrap().resize(4, 4).unwrap().targets(), pairs.targets());
    assert_eq!(format!("{pairs:?}"), "Dataset(3 of shape [4] with targets of shape [3, 2])");
}

/// One weight w, all examples in each step: w - w* shrinks by the factor 1 - 2 lr mean(x²), where w* = sum(x y) /
/// sum(x²), and the loss is that of w* plus mean(x²) (w - w*)².
#[test]
fn a_slope_is_learnt_as_its_closed_form_says() {
    let (x, noise) = (points(40), points(80));
    let y: Vec<f32> = x.iter().zip(&noise[40..]).map(|(x, noise)| 3.0 * x + 0.25 * noise).collect();
    let mean = |f: &dyn Fn(f64, f64) -> f64| {
        x.iter().zip(&y).map(|(&x, &y)| f(x.into(), y.into())).sum::<f64>() / x.len() as f64
    };
    let curvature = mean(&|x, _| x * x);
    let best = mean(&|x, y| x * y) / curvature;
    let least = mean(&|x, y| (y - best * x).powi(2));

    let slope = "{version: 1, name: slope, net: {kind: Dense, in_features: 1, out_features: 1, bias: false}}";
    let mut net: Child = models::parse(slope, "slope", 1).unwrap();
    let start = weights(&net)[0];
    let data = both(Dataset::regression(x.clone(), &[1], y.clone(), &[1]).unwrap());
    let history = train(&mut net, &data, &descent(30, 0.3, 0.0)).unwrap();
    let error_after = |steps: i32| {
        let distance = (start - best) * (1.0 - 2.0 * 0.3 * curvature).powi(steps);
        (best + distance, least + curvature * distance * distance)
    };
    assert_eq!(history.steps.len(), 30);
    for (t, (step, epoch)) in history.steps.iter().zip(&history.epochs).enumerate() {
        let (before, after) = (error_after(t as i32).1, error_after(t as i32 + 1).1);
        assert!(close(step.loss, before, 1e-5), "step {t}: {} {before}", step.loss);
        let score = epoch.score.mean_squared_error().unwrap();
        assert!(close(score, after, 1e-5), "step {t}: {score} {after}");
    }
    assert!(close(weights(&net)[0], error_after(30).0, 1e-5), "{} {}", weights(&net)[0], error_after(30).0);
}

/// Solves a small system of linear equations by elimination.
fn solve<const N: usize>(mut a: [[f64; N]; N], mut b: [f64; N]) -> [f64; N] {
    for i in 0..N {
        for row in i + 1..N {
            let (pivot, factor) = (a[i], a[row][i] / a[i][i]);
            a[row].iter_mut().zip(pivot).for_each(|(x, of_pivot)| *x -= factor * of_pivot);
            b[row] -= factor * b[i];
        }
    }
    for i in (0..N).rev() {
        let known: f64 = (i + 1..N).map(|column| a[i][column] * b[column]).sum();
        b[i] = (b[i] - known) / a[i][i];
    }
    b
}

/// Three weights and a bias converge to the solution of the normal equations.
#[test]
fn a_plane_is_learnt_as_least_squares_say() {
    let n = 60;
    let (x, noise) = (points(3 * n), points(4 * n));
    let rows: Vec<[f64; 4]> = x.chunks(3).map(|x| [x[0].into(), x[1].into(), x[2].into(), 1.0]).collect();
    let y: Vec<f32> = rows.iter().zip(&noise[3 * n..]).map(|(x, noise)| (x[0] - 2.0 * x[2]) as f32 + noise).collect();
    let (mut a, mut b) = ([[0.0; 4]; 4], [0.0; 4]);
    for (x, &y) in rows.iter().zip(&y) {
        for p in 0..4 {
            b[p] += x[p] * f64::from(y);
            (0..4).for_each(|q| a[p][q] += x[p] * x[q]);
        }
    }
    let best = solve(a, b);
    let plane = |x: &[f64; 4]| (0..4).map(|p| best[p] * x[p]).sum::<f64>();
    let least = rows.iter().zip(&y).map(|(x, &y)| (plane(x) - f64::from(y)).powi(2)).sum::<f64>() / n as f64;

    let mut net = Child::new(sequential![Dense::new(3, 1, &mut Rng::seed(1))]);
    let data = both(Dataset::regression(x.clone(), &[3], y.clone(), &[1]).unwrap());
    let history = fit(&mut net, &data, &descent(600, 0.1, 0.9), &mut |_| {}).unwrap();
    let met: Vec<f64> = net.params().iter().flat_map(|(_, param)| param.value().to_f64()).collect();
    for (met, best) in met.iter().zip(best) {
        assert!((met - best).abs() < 1e-4, "{met} {best}");
    }
    let score = history.score().and_then(Score::mean_squared_error).unwrap();
    assert!(close(score, least, 1e-5), "{score} {least}");
    assert_eq!(mean_squared_error(&net, &data.test, 7).unwrap(), score, "the batch size does not matter in evaluation");
}

#[test]
fn every_level_learns_what_o0_learns() {
    let rms = |level: &str, dtype: DType| {
        let mut net = models::parse(CURVE, "curve", 7).unwrap();
        let policy = Policy::new(level, dtype).unwrap();
        policy.apply(&mut net).unwrap();
        let options = FitOptions::default().epochs(20).loss_scale(policy.loss_scale.clone());
        let history = train(&mut net, &curve(), &options).unwrap();
        assert!(history.stalled().is_none(), "{level} {dtype}");
        history.score().and_then(Score::mean_squared_error).unwrap().sqrt()
    };
    // The outputs reach 1. One rounding to a dtype is wrong by half of its epsilon; a network of three layers has some.
    let plain = rms("O0", DType::F16);
    assert!(plain < 0.05, "{plain}");
    for (dtype, bound) in [(DType::F16, 0.005), (DType::Bf16, 0.04)] {
        for level in ["O1", "O2"] {
            let low = rms(level, dtype);
            assert!((low - plain).abs() < bound, "{level} {dtype}: {low}, at O0 {plain}");
        }
    }
}

#[test]
fn what_cannot_be_a_regression_is_refused() {
    let message = |result: Result<Dataset>| {
        let error: Error = result.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Data);
        error.to_string()
    };
    let data = |values: usize, targets: Vec<f32>, shape: &[usize]| {
        Dataset::regression(vec![0.5; values], &[2], targets, shape)
    };
    assert_eq!(message(data(4, vec![1.0; 3], &[2])), "3 numbers are not targets of shape [2]");
    assert_eq!(message(data(4, vec![], &[0])), "0 numbers are not targets of shape [0]");
    assert_eq!(
        message(data(4, vec![1.0], &[usize::MAX, 2])),
        "1 numbers are not targets of shape [18446744073709551615, 2]"
    );
    assert_eq!(message(data(6, vec![1.0; 4], &[2])), "6 values are not 2 examples of shape [2]");
    let nan = data(4, vec![1.0, 2.0, 3.0, f32::NAN], &[2]);
    assert_eq!(message(nan), "target 1 of example 1 is NaN; allowed: finite numbers");
    let infinite = data(4, vec![f32::NEG_INFINITY, 2.0], &[]);
    assert_eq!(message(infinite), "target 0 of example 0 is -inf; allowed: finite numbers");
    let value = Dataset::regression(vec![1.0, f32::NAN], &[1], vec![1.0, 2.0], &[1]);
    assert_eq!(message(value), "value 0 of example 1 is NaN; allowed: finite numbers");
    assert!(data(0, vec![], &[1]).unwrap().is_empty());
}

#[test]
fn what_cannot_be_trained_or_measured_is_refused() {
    let mut net: Child = models::parse(CURVE, "curve", 7).unwrap();
    let (curve, n) = (curve(), 500);
    let classes = Dataset::new(points(n), &[1], vec![0; n]).unwrap();
    let refused = |result: Result<f64>| result.unwrap_err().to_string();
    assert_eq!(
        refused(accuracy(&net, &curve.test, 8)),
        "the accuracy is measured on examples with classes; these have numbers (see `mean_squared_error`)"
    );
    assert_eq!(
        refused(mean_squared_error(&net, &classes, 8)),
        "the squared error is measured on examples with numbers; these have classes (see `accuracy`)"
    );
    let none = Dataset::regression(vec![], &[1], vec![], &[2]).unwrap();
    assert_eq!(refused(mean_squared_error(&net, &none, 8)), "there are no examples to measure the squared error on");
    let flat = Dataset::regression(points(n), &[1], points(n), &[]).unwrap();
    assert_eq!(refused(mean_squared_error(&net, &flat, 8)), "the network returned [8, 2] for targets of shape [8]");

    let before = weights(&net);
    let options = FitOptions::default().epochs(1);
    let mixed = train(&mut net, &Split { train: curve.train.clone(), test: classes }, &options).unwrap_err();
    assert_eq!(mixed.kind(), ErrorKind::Data);
    assert!(mixed.to_string().ends_with("have targets of two kinds, classes and numbers"), "{mixed}");
    let shape = train(&mut net, &both(flat), &options).unwrap_err();
    assert_eq!(shape.kind(), ErrorKind::Shape);
    assert!(shape.to_string().contains("an input of shape [32, 2] and a target of shape [32]"), "{shape}");
    let empty = train(&mut net, &both(none), &options).unwrap_err();
    assert_eq!(empty.kind(), ErrorKind::Data);
    assert_eq!(weights(&net), before);
    // Targets so large that their squares are infinite: nothing is updated, and the run ends.
    let huge = Dataset::regression(points(n), &[1], vec![f32::MAX; n], &[1]).unwrap();
    let mut one = Child::new(sequential![Dense::new(1, 1, &mut Rng::seed(1))]);
    let first = |net: &Child<_>| -> Tensor { net.params().iter().next().unwrap().1.value() };
    let before = first(&one).to_f64();
    let history = fit(&mut one, &both(huge), &options.batch(10), &mut |_| {}).unwrap();
    assert!(history.stalled().is_some(), "{history:?}");
    assert_eq!(first(&one).to_f64(), before);
}
