//! Laws of rewriting over random trees and random policies: apply k times = apply once; undo restores structure,
//! parameters and outputs bit for bit; the plan equals what a traced run executes, cell by cell.

#[path = "common/speeds.rs"]
mod made_up;

use made_up::rates;
use precast::cells::Rng;
use precast::{
    Plan,
    host::{Rate, Speeds},
    policy::{List, Prefer, Rule, Run},
    precision::Treatment,
    prelude::*,
    rewrite::{Reason, Region},
};
use proptest::prelude::{
    Just, ProptestConfig, Strategy, TestCaseError, any, prop_assert, prop_assert_eq, prop_oneof, proptest,
};

/// A tree, before it is built.
#[derive(Clone, Debug)]
enum Tree {
    Leaf { kind: usize, to_float: Option<DType> },
    Branch { children: Vec<Tree>, to_float: Option<DType> },
}

fn to_float() -> impl Strategy<Value = Option<DType>> {
    prop_oneof![6 => Just(None), 1 => Just(Some(DType::F32)), 1 => Just(Some(DType::F16)), 1 => Just(Some(DType::Bf16))]
}

fn trees() -> impl Strategy<Value = Tree> {
    let leaf = (0..4usize, to_float()).prop_map(|(kind, to_float)| Tree::Leaf { kind, to_float });
    leaf.prop_recursive(4, 24, 4, |inner| {
        (proptest::collection::vec(inner, 1..4), to_float())
            .prop_map(|(children, to_float)| Tree::Branch { children, to_float })
    })
}

fn build(tree: &Tree, rng: &mut Rng) -> Child {
    let (mut child, request): (Child, _) = match tree {
        Tree::Leaf { kind: 0, to_float } => (Dense::new(3, 3, rng).into(), to_float),
        Tree::Leaf { kind: 1, to_float } => (LayerNorm::new(&[3]).into(), to_float),
        Tree::Leaf { kind: 2, to_float } => (Tanh.into(), to_float),
        Tree::Leaf { to_float, .. } => (ReLU.into(), to_float),
        Tree::Branch { children, to_float } => {
            (Sequential::new(children.iter().map(|child| build(child, rng)).collect()).into(), to_float)
        }
    };
    child.set_to_float(*request).unwrap();
    child
}

/// A policy with rules that are sure to match something.
fn policies() -> impl Strategy<Value = (usize, bool, u8, Vec<(usize, u8, u8)>)> {
    (0..Level::ALL.len(), any::<bool>(), 0..8u8, proptest::collection::vec((any::<usize>(), 0..3u8, 0..3u8), 0..3))
}

fn policy(net: &Child, (level, bf16, lists, rules): &(usize, bool, u8, Vec<(usize, u8, u8)>)) -> Policy {
    let low = if *bf16 { DType::Bf16 } else { DType::F16 };
    let level = Level::ALL[*level];
    let mut policy = match lists {
        0..4 => Policy::new(level, low).unwrap(),
        4 => Policy::with_lists(level, low, List::new().cell("Tanh"), List::new().cell("Sequential")).unwrap(),
        5 => Policy::with_lists(level, low, List::new().cell("Sequential"), List::new().cell("Dense")).unwrap(),
        6 => Policy::with_lists(level, low, List::new().op("Tanh").unwrap(), List::new()).unwrap(),
        _ => Policy::with_lists(level, low, List::new(), List::new()).unwrap(),
    };
    let mut cells = Vec::new();
    net.walk(&mut |entry| cells.push((entry.path.to_string(), entry.slot.cell.kind())));
    for (which, how, run) in rules {
        let (path, kind) = &cells[which % cells.len()];
        let run = [Run::Full, Run::Low, Run::Inherit][*run as usize];
        let rule = match how {
            0 if !path.is_empty() => Rule::path(path, run).unwrap(),
            1 => Rule::path("**", run).unwrap(),
            _ => Rule::kind(*kind, run),
        };
        // Two rules for one exact path are refused; that is another test's matter.
        if let Ok(with_rule) = policy.clone().rule(rule) {
            policy = with_rule;
        }
    }
    policy
}

fn adapters(net: &Child) -> Vec<(String, Option<precast::cell::Adapter>)> {
    let mut found = Vec::new();
    net.walk(&mut |entry| found.push((entry.path.to_string(), entry.slot.adapter.cloned())));
    found
}

fn bits(tensor: &Tensor) -> (DType, Vec<u64>) {
    (tensor.dtype(), tensor.to_f64().into_iter().map(f64::to_bits).collect())
}

fn parameters(net: &Child) -> Vec<(String, DType, Vec<u64>)> {
    let of = |(path, param): (String, Param)| {
        let (dtype, bits) = bits(&param.value());
        (path, dtype, bits)
    };
    net.named_params().into_iter().map(of).collect()
}

fn input() -> Tensor {
    Tensor::from_f64(&[0.3, -1.7, 0.9, 2.2, 0.01, -0.4], &[2, 3], DType::F32).unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(), ..ProptestConfig::default() })]

    #[test]
    fn apply_is_idempotent_and_undo_exact(tree in trees(), first in policies(), second in policies(), times in 2..10usize) {
        let mut net = build(&tree, &mut Rng::seed(11));
        let (first, second) = (policy(&net, &first), policy(&net, &second));
        let written = (adapters(&net), parameters(&net), bits(&net.call(&input()).unwrap()));

        let once = first.apply(&mut net).unwrap();
        let applied = (adapters(&net), parameters(&net), bits(&net.call(&input()).unwrap()));
        prop_assert_eq!(&applied.1, &written.1);
        for _ in 1..times {
            let again = first.apply(&mut net).unwrap();
            prop_assert_eq!(again.changed, 0);
        }
        prop_assert_eq!(&adapters(&net), &applied.0);
        prop_assert_eq!(&bits(&net.call(&input()).unwrap()), &applied.2);

        // Another policy replaces the first; its undo gives the first back, and the first's undo the network as written.
        let other = second.apply(&mut net).unwrap();
        let mut fresh = build(&tree, &mut Rng::seed(11));
        let _ = second.apply(&mut fresh).unwrap();
        prop_assert_eq!(adapters(&net), adapters(&fresh));
        other.undo(&mut net).unwrap();
        prop_assert_eq!(&adapters(&net), &applied.0);
        once.undo(&mut net).unwrap();
        prop_assert_eq!((adapters(&net), parameters(&net), bits(&net.call(&input()).unwrap())), written);
    }

    #[test]
    fn the_plan_is_what_a_traced_run_executes(tree in trees(), policy_spec in policies()) {
        let mut net = build(&tree, &mut Rng::seed(5));
        let policy = policy(&net, &policy_spec);
        let applied = policy.apply(&mut net).unwrap();
        let ran = holds(&net, &policy, &applied.plan)?;
        let leaves = applied.plan.decisions.iter().filter(|d| d.kind != "Sequential").count();
        prop_assert_eq!(ran, leaves, "every leaf runs one op, and each was held against the plan");
    }

    /// The same laws with cost decisions, on machines of which nothing is known.
    #[test]
    fn they_hold_where_speed_is_preferred(
        tree in trees(), policy_spec in policies(), (low, cast, call) in (0.1..3.0f64, 0.0..2.0f64, 0.0..20.0f64)
    ) {
        let mut net = build(&tree, &mut Rng::seed(11));
        let policy = Policy { prefer: Prefer::Speed, ..policy(&net, &policy_spec) };
        let written = (adapters(&net), parameters(&net), bits(&net.call(&input()).unwrap()));
        let (_, trace) = net.trace(|net| net.call(&input()));
        let speeds = speeds(low, cast, call);
        let plan = policy.plan_for(&net, &trace, &speeds).unwrap();

        let applied = plan.apply(&mut net).unwrap();
        prop_assert_eq!(plan.apply(&mut net).unwrap().changed, 0);
        holds(&net, &policy, &plan)?;
        let prediction = plan.prediction.as_ref().unwrap();
        prop_assert!(prediction.planned.nanos <= prediction.lowered.nanos, "{plan}");
        applied.undo(&mut net).unwrap();
        prop_assert_eq!((adapters(&net), parameters(&net), bits(&net.call(&input()).unwrap())), written);

        // Who is forced runs as without regard to time.
        let plain = Policy { prefer: Prefer::Memory, ..policy }.plan(&net).unwrap();
        for (decision, plain) in plan.decisions.iter().zip(&plain.decisions) {
            if matches!(plain.because, Reason::ToFloat(_) | Reason::Black(_)) {
                prop_assert_eq!((decision.run, &decision.because), (plain.run, &plain.because));
            }
        }
    }
}

/// A machine that does everything in f32 in a nanosecond an element, and in 16 bit in `low`.
fn speeds(low: f64, cast: f64, call: f64) -> Speeds {
    let rates = |element, cast| rates(Rate { multiply_add: 0.0, element }, cast);
    let (host, f32, f16, bf16) = ("a machine".into(), rates(1.0, 0.0), rates(low, cast), rates(low, cast));
    Speeds { host, call, cache: 1e6, byte: 0.1, parallel: 1.0, f32, f16, bf16 }
}

/// Runs a network to which a plan was applied, and holds every op against the plan. How many ops there were.
fn holds(net: &Child, policy: &Policy, plan: &Plan) -> std::result::Result<usize, TestCaseError> {
    let (result, trace) = net.trace(|net| net.call(&input()));
    result.unwrap();
    let ops = trace.ops.iter().filter(|op| op.op != Op::Cast);
    let mut ran = 0;
    for op in ops {
        ran += 1;
        let decision = plan.decision(&op.path).unwrap();
        match decision.run {
            Region::Fixed(dtype) => {
                prop_assert!(op.inputs.iter().all(|d| *d == dtype), "{}: {:?} under {decision:?}", op.path, op);
                prop_assert_eq!(op.output, dtype);
            }
            Region::Ops(low) => {
                let wanted = if policy.white.ops().contains_key(&op.op) { low } else { DType::F32 };
                prop_assert_eq!(op.output, wanted, "{} under {:?}", op.path, decision);
            }
            Region::Auto(low) => {
                match policy.auto.entry(op.op, low).map(|entry| entry.treatment) {
                    Some(Treatment::Low) => prop_assert_eq!(op.output, low),
                    Some(Treatment::Full) => prop_assert_eq!(op.output, DType::F32),
                    // As it comes: what arrived is what leaves.
                    _ => prop_assert_eq!(op.inputs[0], op.output),
                }
            }
            // Nothing is lowered around it, so what arrives is f32.
            Region::AsIs => prop_assert_eq!(op.output, DType::F32, "{} under {:?}", op.path, decision),
        }
    }
    Ok(ran)
}

/// 10,000 as promised; `PROPTEST_CASES` overrides, as usual.
fn cases() -> u32 {
    std::env::var("PROPTEST_CASES").ok().and_then(|n| n.parse().ok()).unwrap_or(10_000)
}
