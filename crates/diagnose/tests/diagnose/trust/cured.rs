//! Cures of the planted faults that are those of a precision: each is found by running the step again.

use precast::prelude::*;
use precast_diagnose::{Cure, Record};

use super::{cases::Case, read, take};

#[test]
fn faults_of_a_precision_are_cured_by_rules_that_were_run() {
    let (mut faults, mut cured, mut rules) = (0, 0, Vec::new());
    for value in read("faults.jsonl") {
        if value["truth"]["by_precision"] != true {
            continue;
        }
        faults += 1;
        let case = Case(&value);
        let run = |cure: &Cure| {
            let net = case.lowered(|policy| cure.apply(&policy).unwrap())?;
            let scale = LossScale::fixed(cure.loss_scale.unwrap_or(case.loss_scale()))?;
            let (_outcome, record) = Record::of(&net, |net| take(&case, net, scale));
            Ok(record)
        };
        match Cure::find(case.loss_scale(), run).unwrap() {
            Some(cure) => {
                // As printed: it is run once more.
                assert!(run(&cure).unwrap().fault().is_none(), "{}: {cure}", case.id());
                cured += 1;
                rules.push(cure.rules.len());
            }
            None => println!("{}: not cured; {}", case.id(), value["truth"]["edge"]),
        }
    }
    rules.sort_unstable();
    let median = rules.get(rules.len() / 2).copied().unwrap_or(0);
    println!("trust cure: {cured} of {faults} cured, median {median} rules");
    assert!(cured * 100 >= faults * 95 && median <= 2);
}
