//! Activations, softmax, pools and dropout.

use precast::{Padding, prelude::*};

use super::{assert_close, param, tensor};

#[test]
fn activations_are_their_formulas() {
    let points = [-7.0, -2.5, -0.5, 0.0, 0.25, 2.0, 6.5];
    let sigmoid = |x: f64| 1.0 / (1.0 + (-x).exp());
    let phi = |x: f64| 0.5 * libm::erfc(-x / 2f64.sqrt());
    let tanh_phi = |x: f64| 0.5 * (1.0 + ((2.0 / std::f64::consts::PI).sqrt() * (x + 0.044715 * x.powi(3))).tanh());
    type Formula = Box<dyn Fn(f64) -> f64>;
    let cells: Vec<(Child, Formula)> = vec![
        (ReLU.into(), Box::new(|x| x.max(0.0))),
        (ReLU6.into(), Box::new(|x| x.clamp(0.0, 6.0))),
        (LeakyReLU::default().into(), Box::new(|x| if x > 0.0 { x } else { 0.01 * x })),
        (LeakyReLU { slope: 0.2 }.into(), Box::new(|x| if x > 0.0 { x } else { 0.2 * x })),
        (ELU { alpha: 1.5 }.into(), Box::new(|x| if x > 0.0 { x } else { 1.5 * (x.exp() - 1.0) })),
        (GELU::default().into(), Box::new(move |x| x * phi(x))),
        (GELU { approximate: true }.into(), Box::new(move |x| x * tanh_phi(x))),
        (SiLU.into(), Box::new(move |x| x * sigmoid(x))),
        (Sigmoid.into(), Box::new(sigmoid)),
        (Tanh.into(), Box::new(f64::tanh)),
        (Softplus.into(), Box::new(|x| (1.0 + x.exp()).ln())),
        (HSigmoid.into(), Box::new(|x| (x + 3.0).clamp(0.0, 6.0) / 6.0)),
        (HSwish.into(), Box::new(|x| x * (x + 3.0).clamp(0.0, 6.0) / 6.0)),
        (HardTanh.into(), Box::new(|x| x.clamp(-1.0, 1.0))),
        (PReLU::new(1).into(), Box::new(|x| if x > 0.0 { x } else { 0.25 * x })),
        (Identity.into(), Box::new(|x| x)),
    ];
    for (cell, formula) in cells {
        println!("{}", cell.slot().cell.kind());
        let y = cell.call(&tensor(&points, &[1, 7])).unwrap();
        assert_close(&y, &points.map(&formula), 1e-6);
    }
    // One slope per channel, which is axis 1.
    let cell = Child::of(PReLU::new(2));
    param(&cell, "weight").set(&tensor(&[0.5, -1.0], &[2])).unwrap();
    let y = cell.call(&tensor(&[-2.0, 4.0, -2.0, 4.0], &[1, 2, 2])).unwrap();
    assert_close(&y, &[-1.0, 4.0, 2.0, 4.0], 0.0);
}

#[test]
fn softmax_runs_along_its_axis() {
    let x = tensor(&[0.0, 2f64.ln(), 0.0, 6f64.ln()], &[2, 2]);
    let last = Child::of(Softmax::default()).call(&x).unwrap();
    assert_close(&last, &[1.0 / 3.0, 2.0 / 3.0, 1.0 / 7.0, 6.0 / 7.0], 1e-6);
    let first = Child::of(Softmax { axis: 0 }).call(&x).unwrap();
    assert_close(&first, &[0.5, 0.25, 0.5, 0.75], 1e-6);
    let log = Child::of(LogSoftmax { axis: 0 }).call(&x).unwrap();
    assert_close(&log, &[0.5f64.ln(), 0.25f64.ln(), 0.5f64.ln(), 0.75f64.ln()], 1e-6);
}

#[test]
fn pools_and_flatten() {
    let row = tensor(&[1.0, 5.0, 2.0, 4.0, 3.0], &[1, 1, 5]);
    let call = |cell: Child, x: &Tensor| cell.call(x).unwrap();
    assert_close(&call(MaxPool1d::new(2).into(), &row), &[5.0, 4.0], 0.0);
    assert_close(&call(MaxPool1d::new(2).stride(PerAxis::from(1)).into(), &row), &[5.0, 5.0, 4.0, 4.0], 0.0);
    assert_close(&call(MaxPool1d::new(2).ceil(true).into(), &row), &[5.0, 4.0, 3.0], 0.0);
    assert_close(&call(AvgPool1d::new(2).into(), &row), &[3.0, 3.0], 0.0);
    let padded = AvgPool1d::new(2).padding(Padding::all(1));
    assert_close(&call(padded.clone().into(), &row), &[0.5, 3.5, 3.5], 0.0);
    assert_close(&call(padded.count_include_pad(false).into(), &row), &[1.0, 3.5, 3.5], 0.0);
    assert_close(&call(AdaptiveAvgPool1d::new(2).into(), &row), &[8.0 / 3.0, 3.0], 1e-6);

    let square = tensor(&[1.0, 2.0, 3.0, 4.0, 5.0, 6.0], &[1, 1, 2, 3]);
    assert_close(&call(MaxPool2d::new([2, 1]).into(), &square), &[4.0, 5.0, 6.0], 0.0);
    assert_close(&call(AvgPool2d::new([1, 3]).into(), &square), &[2.0, 5.0], 0.0);
    assert_close(&call(AdaptiveAvgPool2d::new(1).into(), &square), &[3.5], 0.0);

    let cube = tensor(&[1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0], &[1, 1, 2, 2, 2]);
    assert_close(&call(MaxPool3d::new([1, 2, 2]).into(), &cube), &[4.0, 8.0], 0.0);
    assert_close(&call(AvgPool3d::new(2).into(), &cube), &[4.5], 0.0);
    assert_close(&call(AdaptiveAvgPool3d::new([2, 1, 1]).into(), &cube), &[2.5, 6.5], 0.0);

    assert_eq!(call(Flatten::default().into(), &cube).shape(), [1, 8]);
    assert_eq!(call(Flatten { start_axis: 0 }.into(), &cube).shape(), [8]);
}

#[test]
fn dropout_repeats_itself_for_a_seed_and_rests_in_evaluation() {
    let x = Tensor::ones(&[10_000], DType::F32);
    let make = |seed: u64| {
        let mut net = Child::of(sequential![Dropout::new(0.25, &mut Rng::seed(seed))]);
        assert_close(&net.call(&x).unwrap(), &[1.0; 10_000], 0.0);
        net.set_train(true);
        net
    };
    let run = |net: &Child| net.call(&x).unwrap().to_f64();
    let (a, b, other) = (make(1), make(1), make(2));
    let (first, second) = (run(&a), run(&a));
    assert_ne!(first, second);
    assert_eq!((run(&b), run(&b)), (first.clone(), second));
    assert_ne!(run(&other), first);

    // Kept elements are divided by 0.75; of 10,000 about 2,500 are dropped, within five standard deviations of 43.
    let kept = f64::from((1.0f64 / 0.75) as f32);
    assert!(first.iter().all(|&y| y == 0.0 || (y - kept).abs() < 1e-6));
    let dropped = first.iter().filter(|&&y| y == 0.0).count();
    assert!((2_283..=2_717).contains(&dropped), "{dropped}");
    for p in [1.5, -0.5, f64::NAN] {
        let rng = &mut Rng::seed(0);
        let words = format!("`p` is {p}; allowed: 0 to 1");
        assert_eq!(DropoutSpec::new(p).build(rng).unwrap_err().to_string(), words);
        let net = Child::of(sequential![ReLU, Dropout::new(p, rng)]);
        let message = net.call(&Tensor::ones(&[2], DType::F32)).unwrap_err().to_string();
        assert_eq!(message, format!("in cell `1`: {words}"));
    }
}
