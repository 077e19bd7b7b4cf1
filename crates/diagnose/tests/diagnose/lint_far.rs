//! Data that is far off, and updates beyond float32, as a lint names them.

use precast::{
    optim::{AdamOptions, Method, SgdOptions},
    prelude::*,
};
use precast_diagnose::lint::{Finding, Lint, Rule, Severity};

const LOW: [DType; 2] = [DType::F16, DType::Bf16];

/// Returns what a rule found in a layer of two inputs and one output.
fn found(rule: Rule, dtype: DType, x: f64, y: f64) -> Vec<Finding> {
    let mut net = Child::new(Dense::new(2, 1, &mut Rng::seed(1)));
    let policy = Policy::new("O2", dtype).unwrap();
    let x = Tensor::from_f64(&[1.0, 1.0, 1.0, x, 1.0, 1.0], &[3, 2], DType::F32).unwrap();
    let y = Tensor::full(&[3, 1], y, DType::F32);
    let found = Lint::new().under(&policy, &mut net, |net| net.call(&x)?.mse_loss(&y, Reduction::Mean)).unwrap();
    found.into_iter().filter(|finding| finding.rule == rule).collect()
}

/// 1e5 is not an f16, and a bf16. The square of 1e30 is not a float32.
#[test]
fn far_inputs_and_targets_are_named_where_numbers_overflow() {
    let [far] = &found(Rule::FarData, DType::F16, 1e5, 0.0)[..] else { panic!("expected one finding") };
    assert_eq!((far.severity, far.number as f32, far.limit), (Severity::Warning, 1e5, 65504.0));
    assert!(far.what.starts_with("the inputs reach 1.00e5 in number 1 of an example, beyond 65504"), "{far}");
    assert!(found(Rule::FarData, DType::F16, 65504.0, 0.0).is_empty());
    assert!(found(Rule::FarData, DType::Bf16, 1e5, 0.0).is_empty());
    for dtype in LOW {
        assert_eq!(found(Rule::NotFinite, dtype, 1.0, 1e30).len(), 1);
        let [far] = &found(Rule::FarData, dtype, 1.0, 1e30)[..] else { panic!("expected one finding") };
        // The fourth root of the largest float32, 2^128.
        assert!((far.limit / 2f64.powi(32) - 1.0).abs() < 1e-7, "{far}");
        assert!(far.what.starts_with("the targets reach 1.00e30 in number 0 of an example"), "{far}");
    }
}

/// The gradient of the weight is the factor. Adam takes a thousandth of its square, which for 1e21 is 1e39, beyond
/// 3.4e38.
#[test]
fn gradients_whose_averaged_squares_are_no_float32_are_an_error() {
    let found = |method: &Method, factor: f64| {
        let net = Child::new(Dense::new(1, 1, &mut Rng::seed(1)));
        let x = Tensor::ones(&[1, 1], DType::F32);
        let loss = |net: &Child<Dense>| net.call(&x)?.mul(&Tensor::scalar(factor, DType::F32))?.sum_all();
        let found = Lint::new().update(method.clone(), 1e-3).run(&net, loss).unwrap();
        found.into_iter().filter(|finding| finding.rule == Rule::UpdateOverflow).collect::<Vec<_>>()
    };
    let (adam, sgd) = (Method::Adam(AdamOptions::default()), Method::Sgd(SgdOptions::default()));
    let [beyond] = &found(&adam, 1e21)[..] else { panic!("expected one finding") };
    assert_eq!((beyond.severity, beyond.number as f32), (Severity::Error, 1e21));
    assert!(beyond.what.contains("no precision is to blame"), "{beyond}");
    assert!(found(&adam, 1e18).is_empty() && found(&sgd, 1e21).is_empty());
}
