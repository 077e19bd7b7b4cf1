//! The planted faults as a [`Monitor`] sees them: infinities and NaN, with the place where they began.

use precast::{
    observe::FaultKind,
    policy::{Rule, RunAs},
    prelude::*,
};
use precast_diagnose::Monitor;

use super::{cases::Case, is_at, read, take};

/// Every fault that a largest magnitude shows is named as by the record, and no quiet step is called faulty.
#[test]
fn a_monitor_names_the_first_number_that_is_not_finite() {
    let (mut right, mut wrong, mut nothing, mut quiet, mut called, mut kinds, mut harmless) = (0, 0, 0, 0, 0, 0, 0);
    let (mut taken, mut masks) = (0, 0);
    for value in read("faults.jsonl") {
        let case = Case(&value);
        let truth = &value["truth"];
        let net = case.lowered(|policy| policy).unwrap();
        let mut monitor = Monitor::default();
        let scale = LossScale::fixed(case.loss_scale()).unwrap();
        let outcome = monitor.watch(&net, |net| take(&case, net, scale));
        let fault = monitor.fault();
        let kind = truth["kind"].as_str().unwrap();
        if kind == "none" {
            quiet += 1;
            if let Some(fault) = fault {
                called += 1;
                println!("{}: quiet, but {fault}", case.id());
            }
            masks += usize::from(truth["infinities"].as_array().is_some_and(|all| !all.is_empty()));
            harmless += usize::from(monitor.harmless().next().is_some());
            continue;
        }
        // Others leave every magnitude finite; a record finds them.
        if kind != "inf" && kind != "nan" {
            continue;
        }
        let edge = &truth["edge"];
        let Some(fault) = fault else {
            nothing += 1;
            println!("{}: nothing found; truth {edge}; {outcome:?}", case.id());
            continue;
        };
        let good = is_at(fault.edge, edge);
        right += usize::from(good);
        wrong += usize::from(!good);
        taken += usize::from(matches!(outcome, Ok(Outcome::Stepped)));
        let is_nan = fault.kind == FaultKind::Nan;
        kinds += usize::from(good && is_nan == (kind == "nan"));
        if !good {
            println!("{}: WRONG {fault}; truth {edge}", case.id());
        }
    }
    println!("trust monitor: {right} right, {wrong} wrong, {nothing} nothing; quiet {called} of {quiet} called faulty");
    println!(
        "trust monitor: {taken} in steps that were taken; {harmless} of {masks} masks are harmless; {kinds} kinds"
    );
    assert!(right * 100 >= (right + wrong + nothing) * 98 && called * 20 <= quiet);
    assert!(kinds * 100 >= right * 98 && harmless == masks);
}

/// Trains nothing: three calls of a network, of which the second has other weights. Returns the fault of each.
fn faults_of(net: &Child, x: &Tensor, weight: &str, value: f64) -> [Option<String>; 3] {
    let mut monitor = Monitor::default();
    [1.0, value, value].map(|value| {
        let (_, param) = net.named_params().into_iter().find(|(path, _)| path == weight).unwrap();
        if param.value().to_f64()[0] != value {
            param.set(&Tensor::full(param.value().shape(), value, DType::F32)).unwrap();
        }
        // The loss itself is of no interest.
        let _ = monitor.watch(net, |net| net.call(x)?.mean_all()).unwrap();
        monitor.fault().map(|fault| fault.to_string())
    })
}

/// A parameter beyond f16 is named by the cast of its low copy, in the step in which it grows and in the steps after it,
/// which keep the copy, although neither step looks at copies otherwise.
#[test]
fn a_weight_that_outgrows_f16_is_named_in_every_step() {
    // 65520 is the first number that f16 rounds to an infinity; of inputs that are 0, it makes NaN.
    let found = faults_of(&net_of_o3(), &Tensor::zeros(&[2, 4], DType::F32), "0.weight", 65520.0);
    let named =
        "Cast of `0.weight`, forward pass: 256 of 256 numbers are infinite, by rounding: they are finite in f32";
    assert_eq!(found, [None, Some(named.into()), Some(named.into())]);
    let found = faults_of(&net_of_o3(), &Tensor::zeros(&[2, 4], DType::F32), "0.weight", 65519.0);
    assert_eq!(found, [None, None, None]);
}

fn net_of_o3() -> Child {
    let rng = &mut Rng::seed(1);
    let mut net = Child::of(sequential![Dense::new(4, 64, rng), ReLU, Dense::new(64, 1, rng)]);
    let _ = Policy::new(Level::O3, DType::F16).unwrap().apply(&mut net).unwrap();
    net
}

/// A large result in f32, which is not read in every step, is named where it overflows, and not where it is cast.
#[test]
fn a_large_result_in_f32_is_named_where_it_overflows() {
    let rng = &mut Rng::seed(1);
    let mut net = Child::of(sequential![Dense::new(4, 128, rng), Dense::new(128, 1, rng)]);
    let policy = Policy::new(Level::O3, DType::F16).unwrap();
    let policy = policy.rule(Rule::path("0", RunAs::Full).unwrap()).unwrap();
    let _ = policy.apply(&mut net).unwrap();
    // 4 * 1e38 is not an f32; 64 rows of 128 are more numbers than are read in every step.
    let found = faults_of(&net, &Tensor::ones(&[64, 4], DType::F32), "0.weight", 1e38);
    let place = found.map(|fault| fault.map(|fault| fault.split(':').next().unwrap().to_string()));
    let named = Some("Linear in `0`, forward pass".to_string());
    assert_eq!(place, [None, named.clone(), named]);
}
