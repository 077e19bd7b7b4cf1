//! Hazards of quantized operands, as a lint names them.

use precast::prelude::*;
use precast_diagnose::lint::{Finding, Lint, Rule, Severity};

/// Lints three layers of 64 features, whose weights are 1 on the diagonal, with these rules.
fn found(rules: &str, x: &Tensor) -> Vec<Finding> {
    let rng = &mut Rng::seed(1);
    let mut net = Child::of(sequential![
        first: Dense::new(64, 64, rng),
        middle: Dense::new(64, 64, rng),
        last: Dense::new(64, 64, rng),
    ]);
    let eye: Vec<f64> = (0..64 * 64).map(|i| f64::from(u8::from(i % 65 == 0))).collect();
    let eye = Tensor::from_f64(&eye, &[64, 64], DType::F32).unwrap();
    for (path, param) in net.named_params() {
        let value = if path.ends_with("weight") { eye.clone() } else { Tensor::zeros(&[64], DType::F32) };
        param.set(&value).unwrap();
    }
    let text = format!("version: 1\nlevel: O2\ndtype: bfloat16\nrules: [{rules}]\n");
    let policy = Policy::parse(&text, "operands.yaml").unwrap();
    Lint::new().under(&policy, &mut net, |net| net.call(x)?.mean_all()).unwrap()
}

fn of(found: &[Finding], rule: Rule) -> Vec<&Finding> {
    found.iter().filter(|finding| finding.rule == rule).collect()
}

/// A step of int8 is a 127th of the largest number: 1 next to 1000 is 0, and next to 200 it is one step.
#[test]
fn numbers_that_become_0_are_counted() {
    let row = |largest: f64| {
        let numbers: Vec<f64> = (0..4 * 64).map(|i| if i % 64 == 5 { largest } else { 1.0 }).collect();
        Tensor::from_f64(&numbers, &[4, 64], DType::F32).unwrap()
    };
    let findings = found("{ path: middle, operands: int8 }", &row(1000.0));
    let [lost] = of(&findings, Rule::FlushedCodes)[..] else { panic!("{findings:?}") };
    assert_eq!((lost.severity, lost.number, lost.limit), (Severity::Warning, 63.0 / 64.0, 0.01));
    assert!(
        lost.what.starts_with("98.4 % of the numbers other than 0 of the input of `middle` become 0 (int8"),
        "{lost}"
    );
    assert_eq!(lost.write, "rules: [{ path: \"middle\", operands: none }]");
    assert!(of(&found("{ path: middle, operands: int8 }", &row(200.0)), Rule::FlushedCodes).is_empty());
    // Blocks without the large number keep theirs: 31 of 64 share its block. 6 of e2m1 is 1000 there.
    let findings = found("{ path: middle, operands: mxfp4 }", &row(1000.0));
    let [lost] = of(&findings, Rule::FlushedCodes)[..] else { panic!("{findings:?}") };
    assert_eq!(lost.number, 31.0 / 64.0);
    assert!(found("{ path: middle, operands: none }, { path: '**', run: low }", &row(1000.0)).is_empty());
}

#[test]
fn ends_and_few_digits_are_named() {
    let x = Tensor::ones(&[4, 64], DType::F32);
    let findings = found("{ path: '**', operands: tensorwise }", &x);
    let ends = of(&findings, Rule::QuantizedEnd);
    assert_eq!(
        ends.iter().map(|end| (&*end.cell, end.severity)).collect::<Vec<_>>(),
        [("first", Severity::Information), ("last", Severity::Information)]
    );
    assert!(
        ends[1].what.starts_with("the last product, Linear in `last`, has quantized operands (tensorwise)"),
        "{findings:?}"
    );
    let rules = "{ path: first, operands: none }, { path: last, operands: none }";
    assert!(found(&format!("{rules}, {{ path: '**', operands: tensorwise }}"), &x).is_empty());
    let custom = "{ forward: e5m2, backward: e5m2, scale: rows, rounding: nearest }";
    let findings = found(&format!("{rules}, {{ path: '**', operands: {custom} }}"), &x);
    let [few] = of(&findings, Rule::FewDigits)[..] else { panic!("{findings:?}") };
    assert_eq!((&*few.cell, few.severity, few.number), ("middle", Severity::Warning, 0.125));
}
