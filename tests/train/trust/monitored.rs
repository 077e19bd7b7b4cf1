//! The planted faults as a [`Monitor`] sees them: infinities and NaN, with the place where they began.

use precast::{
    diagnose::{FaultKind, Monitor},
    prelude::*,
};

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
