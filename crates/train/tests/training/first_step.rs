//! The first step of a run: checked against the plan, and the memory of its parameters.

use precast::{
    policy::{Rule, RunAs},
    prelude::*,
};
use precast_train::{Fit, FitOptions, data::Dataset, fit};

use crate::common::contradicting::{Bypass, HIDDEN, Hides};

/// Returns the message of an error about a plan.
fn refused<T: std::fmt::Debug>(result: Result<T>) -> String {
    let error = result.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Plan, "{error}");
    error.to_string()
}

#[test]
fn training_checks_its_first_step() {
    let inputs: Vec<f32> = (0..40).map(|i| i as f32 / 40.0).collect();
    let data = Dataset::regression(inputs.clone(), &[4], inputs, &[4]).unwrap().split(8, 0).unwrap();
    let options = FitOptions::default().epochs(1);
    assert_eq!(refused(fit(&mut Hides::new(), &data, &options, &mut |_| {})), HIDDEN);

    let mut net = Child::new(Bypass { inner: Child::new(Dense::new(4, 4, &mut Rng::seed(1))) });
    fit(&mut net, &data, &options, &mut |_| {}).unwrap();
    let bypassed = Rule::path("inner", RunAs::Full).unwrap();
    Policy::new(Level::O3, DType::F16).unwrap().rule(bypassed).unwrap().apply(&mut net).unwrap();
    assert!(refused(fit(&mut net, &data, &options, &mut |_| {})).contains("was not called"));
}

#[test]
fn the_bytes_of_a_run_count_masters() {
    let options = FitOptions::default();
    let bytes = |how: Option<Decorate>| {
        let net = Child::of(sequential![Dense::new(10, 10, &mut Rng::seed(1))]);
        if let Some(how) = how {
            decorate(&net, how).unwrap();
        }
        Fit::new(&net, &options).unwrap().history().param_bytes
    };
    assert_eq!(bytes(None), 110 * 4);
    assert_eq!(bytes(Some(Decorate::new(DType::F16))), 110 * (4 + 2));
    assert_eq!(bytes(Some(Decorate::new(DType::F16).masters(false))), 110 * 2);
}
