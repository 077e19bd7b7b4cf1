//! The cures that a lint proposes: verified, without those that are set, each once.

use std::collections::BTreeMap;

use precast::{
    policy::{LossScaleSpec, RunAs, Select},
    prelude::*,
};
use precast_diagnose::{
    Cure,
    lint::{Lint, Rule},
};

const F16: DType = DType::F16;

/// The rules that a finding proposes are linted, and grow to the cells that read numbers which still do not fit.
#[test]
fn proposed_rules_hold_under_a_lint_of_their_own() {
    // Each layer doubles a number, so f32 of the first ones only moves the overflow to the next.
    let double = || {
        let layer = Dense::new(1, 1, &mut Rng::seed(1));
        layer.weight.set(&Tensor::full(&[1, 1], 2.0, DType::F32)).unwrap();
        layer
    };
    let mut net = Child::new(sequential![double(), double(), double(), Tanh, double()]);
    let x = Tensor::full(&[4, 1], 40000.0, DType::F32);
    let policy = Policy::new("O3", F16).unwrap().with_loss_scale(LossScaleSpec::Fixed { scale: 1.0 });
    let lint = |policy: &Policy, net: &mut Child<Sequential>| {
        let found = Lint::new().under(policy, net, |net| net.call(&x)?.mean_all()).unwrap();
        found.into_iter().filter(|finding| finding.rule == Rule::Overflow).collect::<Vec<_>>()
    };
    let found = lint(&policy, &mut net);
    let rules = found[0].write.strip_prefix("rules: [").and_then(|text| text.strip_suffix(']')).unwrap();
    assert!(!rules.contains("float32-out") && !rules.contains("\"4\""), "{rules}");
    let text =
        format!("{{version: 1, level: O3, dtype: float16, loss_scale: {{kind: fixed, scale: 1}}, rules: [{rules}]}}");
    assert_eq!(lint(&Policy::parse(&text, "cured.yaml").unwrap(), &mut net), []);
}

/// A layer whose only weight is this number.
fn times(weight: f64) -> Dense {
    let layer = Dense::new(1, 1, &mut Rng::seed(1));
    layer.weight.set(&Tensor::full(&[1, 1], weight, DType::F32)).unwrap();
    layer
}

/// 40000 doubled and halved again overflows in the first layer only. With its rule set, the next cell that reads the
/// number is proposed, and the first is not.
#[test]
fn a_rule_that_is_set_is_not_proposed() {
    let written = |rules: &str| {
        let mut net = Child::new(sequential![times(2.0), times(0.5), times(1.0)]);
        let x = Tensor::full(&[4, 1], 40000.0, DType::F32);
        let policy = format!(
            "{{version: 1, level: O2, dtype: float16, loss_scale: {{kind: fixed, scale: 1}}, rules: [{rules}]}}"
        );
        let policy = Policy::parse(&policy, "p.yaml").unwrap();
        let found = Lint::new().under(&policy, &mut net, |net| net.call(&x)?.mean_all()).unwrap();
        found.into_iter().filter(|finding| finding.rule == Rule::Overflow).map(|of| of.write).collect::<Vec<_>>()
    };
    let (first, second) = ("{ path: \"0\", run: float32 }", "{ path: \"1\", run: float32 }");
    assert_eq!(written(""), [format!("rules: [{first}, {second}]")]);
    assert_eq!(written(first), [format!("rules: [{second}]")]);
    assert_eq!(written(&format!("{first}, {second}")), [""; 0]);
}

/// The gradients of both weights are nearly 32 times the scale of 2^11, and those of the results the scale itself. So
/// the weights have a finding each, and 65504 / 1.5 / 32 = 1365 allows a scale of 1024 for both.
#[test]
fn a_cure_of_several_findings_is_written_once() {
    let mut net = Child::new(sequential![times(1.0), times(1.0)]);
    let policy = Policy::new("O2", F16).unwrap().with_loss_scale(LossScaleSpec::Fixed { scale: 2048.0 });
    let x = Tensor::full(&[1, 1], 32.0, DType::F32);
    let found = Lint::new().under(&policy, &mut net, |net| net.call(&x)?.cast(DType::F32).sum_all());
    let of_gradients = found.unwrap().into_iter().filter(|finding| finding.rule == Rule::GradOverflow);
    let written: Vec<String> = of_gradients.map(|finding| finding.write).collect();
    let [scale, other] = &written[..] else { panic!("{written:?}") };
    assert!(scale.starts_with("loss_scale: { kind: fixed, scale: 1024 }"), "{scale}");
    assert!(scale.ends_with("; for `0`, `1`") && other.is_empty(), "{written:?}");
}

/// Names that YAML could read as something else, and characters that print badly, separated by `§`.
const NAMES: &str = "e\u{301}§a\u{200b}b§it's§say \"hi\"§a: b§&x§-x§!x§yes§null§12§a\nb§\u{2028}§\u{1b}31m§🙂§#c";

/// Cells by any name.
#[derive(Cell, Debug)]
struct Named(BTreeMap<String, Child<Dense>>);

impl Forward for Named {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        self.0.values().try_fold(x.clone(), |x, cell| cell.call(&x))
    }
}

/// Reads lines of a policy file.
fn rules_of(lines: &str) -> Vec<(String, Option<RunAs>, Option<String>)> {
    let text = format!("version: 1\nlevel: O2\ndtype: float16\n{lines}\n");
    let policy = Policy::parse(&text, "lines").unwrap_or_else(|error| panic!("{error}\n{lines}"));
    let rule = |rule: precast::policy::Rule| match rule.select {
        Select::Path(pattern) => (pattern.to_string(), rule.run, rule.because),
        select => panic!("{select}"),
    };
    policy.rules.into_iter().map(rule).collect()
}

#[test]
fn lines_of_cures_are_read_as_they_are_meant() {
    for name in NAMES.split('§') {
        let mut net = Child::new(Named([(name.to_string(), Child::new(times(2.0)))].into()));
        let x = Tensor::full(&[4, 1], 40000.0, DType::F32);
        let policy = Policy::new("O2", F16).unwrap().with_loss_scale(LossScaleSpec::Fixed { scale: 1.0 });
        let found = Lint::new().under(&policy, &mut net, |net| net.call(&x)?.mean_all()).unwrap();
        let write = found.into_iter().find(|finding| finding.rule == Rule::Overflow).unwrap().write;
        let rules = rules_of(&write);
        assert!(rules.iter().any(|(path, run, _)| path.ends_with(name) && *run == Some(RunAs::Full)), "{write}");

        let rule = precast::policy::Rule::path(&format!("a.{name}"), RunAs::LowForward).unwrap().because(name);
        let cure = Cure { rules: vec![rule], ..Cure::default() };
        let rule = (format!("a.{name}"), Some(RunAs::LowForward), Some(name.to_string()));
        assert_eq!(rules_of(&cure.to_string()), [rule], "{cure}");
    }
}
