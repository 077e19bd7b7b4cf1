//! Hazards of quantized operands, as a lint names them and a monitor counts them.

use precast::no_grad;
use precast::prelude::*;
use precast_diagnose::{
    Monitor,
    lint::{Finding, Lint, Rule, Severity},
};

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

/// The monitor counts the same in a step, and what a delayed scale, 1 before the first step, cuts off at 448.
#[test]
fn the_monitor_counts_codes_of_operands() {
    let numbers: Vec<f64> = (0..4 * 64).map(|i| if i % 64 == 5 { 1000.0 } else { 1.0 }).collect();
    let x = Tensor::from_f64(&numbers, &[4, 64], DType::F32).unwrap();
    for (recipe, format, zero, saturated) in
        [("int8", "int8", 63.0 / 64.0, 0.0), ("delayed", "e4m3", 0.0, 1.0 / 64.0), ("tensorwise", "e4m3", 0.0, 0.0)]
    {
        let mut net = Child::new(sequential![Dense::new(64, 64, &mut Rng::seed(1)), ReLU]);
        let text = format!("version: 1\nlevel: O2\ndtype: bfloat16\nrules: [{{ path: '0', operands: {recipe} }}]\n");
        Policy::parse(&text, "operands.yaml").unwrap().apply(&mut net).unwrap();
        let mut monitor = Monitor::default();
        let y = monitor.watch(&net, |net| no_grad(|| net.call(&x))).unwrap();
        assert_eq!(y.shape(), [4, 64]);
        let headroom = monitor.headroom(&net);
        let of_cell = headroom.iter().find(|of| of.cell == "0").unwrap();
        let input = of_cell.operands.iter().find(|of| of.operand == "input").unwrap();
        assert_eq!((&*input.format, input.zero, input.saturated), (format, zero, saturated), "{of_cell}");
        let words = of_cell.to_string();
        assert!(words.contains(&format!("; input in {format}: {:.1} % became 0", 100.0 * zero)), "{words}");
        assert_eq!(words.contains("1.6 % saturated"), saturated > 0.0, "{words}");
        // It counts in every 16th step, and keeps what it counted.
        let _ = monitor.watch(&net, |net| no_grad(|| net.call(&x.mul(&x).unwrap()))).unwrap();
        assert_eq!(monitor.headroom(&net).iter().find(|of| of.cell == "0").unwrap().operands, of_cell.operands);
    }
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
