//! Laws of rewriting over random trees and random policies: the plan agrees with a second implementation of the
//! precedence list, and with the traced run, cell by cell; applying k times equals applying once; undo restores
//! structure, parameters and outputs bit for bit.
//!
//! `PROPTEST_CASES=20000` tries more.

use crate::common::speeds::rates;
use precast::layers::Rng;
use precast::{
    cell::{Adapter, Cast},
    cost::{Rate, Speeds},
    plan::{Reason, Region},
    policy::{Entry, Lists, Prefer, Rule, RunAs},
    precision::{OpRules, Treatment},
    prelude::*,
};
use proptest::prelude::{
    Just, ProptestConfig, Strategy, TestCaseError, any, prop_assert, prop_assert_eq, prop_oneof, proptest,
};

/// A tree, before it is built.
#[derive(Clone, Debug)]
enum Tree {
    Leaf {
        kind: usize,
        to_float: Option<DType>,
    },
    Branch {
        children: Vec<Tree>,
        to_float: Option<DType>,
    },
    /// One cell at several places, which share its parameters.
    Tied {
        kind: usize,
        to_floats: Vec<Option<DType>>,
    },
    /// A cell with two inputs, both the same tensor, inside a cell with one.
    Twofold {
        inner: Option<DType>,
        to_float: Option<DType>,
    },
}

fn to_float() -> impl Strategy<Value = Option<DType>> {
    prop_oneof![6 => Just(None), 1 => Just(Some(DType::F32)), 1 => Just(Some(DType::F16)), 1 => Just(Some(DType::Bf16))]
}

fn trees() -> impl Strategy<Value = Tree> {
    let leaf = prop_oneof![
        6 => (0..KINDS.len(), to_float()).prop_map(|(kind, to_float)| Tree::Leaf { kind, to_float }),
        1 => (0..KINDS.len(), proptest::collection::vec(to_float(), 2..4))
            .prop_map(|(kind, to_floats)| Tree::Tied { kind, to_floats }),
        1 => (to_float(), to_float()).prop_map(|(inner, to_float)| Tree::Twofold { inner, to_float }),
    ];
    leaf.prop_recursive(4, 24, 4, |inner| {
        (proptest::collection::vec(inner, 1..4), to_float())
            .prop_map(|(children, to_float)| Tree::Branch { children, to_float })
    })
}

/// A cell that calls ops directly.
#[derive(Cell, Clone, Debug)]
struct Direct {
    w: Param,
}

impl Forward for Direct {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        x.matmul(&self.w.tensor())?.relu()? + x
    }
}

/// A cell with two inputs, which cannot be called with one.
#[derive(Cell, Clone, Debug)]
struct Blend {}

impl Forward for Blend {
    fn forward_many(&self, inputs: &[Tensor]) -> Result<Vec<Tensor>> {
        Ok(vec![(&inputs[0] * &inputs[1])?])
    }
}

#[derive(Cell, Clone, Debug)]
struct Twofold {
    blend: Child<Blend>,
}

impl Forward for Twofold {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        Ok(self.blend.call_many(&[x.clone(), x.clone()])?.swap_remove(0))
    }
}

/// Kinds of leaves, each with the number of ops it runs.
const KINDS: &[(&str, usize)] = &[
    ("Dense", 1),
    ("LayerNorm", 1),
    ("BatchNorm1d", 1),
    ("RmsNorm", 1),
    ("Tanh", 1),
    ("ReLU", 1),
    ("GELU", 1),
    ("Sigmoid", 1),
    ("Identity", 0),
    ("Dropout", 0),
    ("Direct", 3),
];

/// Makes one cell at `n` places.
fn leaves(kind: usize, n: usize, rng: &mut Rng) -> Vec<Child> {
    fn places<C: Cell + Clone>(cell: C, n: usize) -> Vec<Child> {
        let child = Child::new(cell);
        (0..n).map(|_| child.clone().erase()).collect()
    }
    match KINDS[kind].0 {
        "Dense" => places(Dense::new(3, 3, rng), n),
        "LayerNorm" => places(LayerNorm::new(&[3]), n),
        "BatchNorm1d" => places(BatchNorm1d::new(3), n),
        "RmsNorm" => places(RmsNorm::new(3), n),
        "Tanh" => places(Tanh, n),
        "ReLU" => places(ReLU, n),
        "GELU" => places(GELU { approximate: true }, n),
        "Sigmoid" => places(Sigmoid, n),
        "Identity" => places(Identity, n),
        "Dropout" => places(DropoutSpec::new(0.5).build(rng).unwrap(), n),
        _ => {
            let w: Vec<f64> = (0..9).map(|_| rng.uniform(-1.0, 1.0)).collect();
            places(Direct { w: Param::new(Tensor::from_f64(&w, &[3, 3], DType::F32).unwrap()) }, n)
        }
    }
}

fn build(tree: &Tree, rng: &mut Rng) -> Child {
    let (mut child, request): (Child, _) = match tree {
        Tree::Leaf { kind, to_float } => (leaves(*kind, 1, rng).remove(0), to_float),
        Tree::Branch { children, to_float } => {
            (Sequential::new(children.iter().map(|child| build(child, rng)).collect()).into(), to_float)
        }
        Tree::Tied { kind, to_floats } => {
            let mut places = leaves(*kind, to_floats.len(), rng);
            places.iter_mut().zip(to_floats).for_each(|(place, dtype)| place.set_to_float(*dtype).unwrap());
            (Sequential::new(places).into(), &None)
        }
        Tree::Twofold { inner, to_float } => {
            let mut blend = Child::new(Blend {});
            blend.set_to_float(*inner).unwrap();
            (Twofold { blend }.into(), to_float)
        }
    };
    child.set_to_float(*request).unwrap();
    child.set_train(false);
    child
}

/// Cells selected by a rule, as understood by the test.
#[derive(Clone, Debug, PartialEq)]
enum Select {
    Path(String),
    Everything,
    Kind(String),
}

/// A policy, with its rules in the form of the test.
struct Known {
    policy: Policy,
    rules: Vec<(Select, RunAs)>,
}

/// Generates a policy with rules that are sure to match something.
fn policies() -> impl Strategy<Value = (usize, bool, u8, Vec<(usize, u8, u8)>)> {
    (0..Level::ALL.len(), any::<bool>(), 0..9u8, proptest::collection::vec((any::<usize>(), 0..3u8, 0..5u8), 0..4))
}

fn policy(net: &Child, (level, bf16, lists, rules): &(usize, bool, u8, Vec<(usize, u8, u8)>)) -> Known {
    let low = if *bf16 { DType::Bf16 } else { DType::F16 };
    let level = Level::ALL[*level];
    // White at O1, black at O2, and nothing at the levels that read no list of cells.
    let named = |white: &[&str], black: &[&str], ops: &[&str]| {
        let lists = match level {
            Level::O1 => white.iter().fold(Lists::new(), |lists, kind| lists.low(*kind)),
            Level::O2 => black.iter().fold(Lists::new(), |lists, kind| lists.full(*kind)),
            _ => Lists::new(),
        };
        // White at auto, an op would pass a low result to an unlisted product, which refuses it.
        let lists = ops.iter().fold(lists, |lists, op| match level {
            Level::O1 => lists.low_op(op).unwrap(),
            Level::O2 | Level::Auto => lists.full_op(op).unwrap(),
            _ => lists,
        });
        Policy::with_lists(level, low, lists).unwrap()
    };
    let mut policy = match lists {
        0..3 => Policy::new(level, low).unwrap(),
        3 => named(&["Dense"], &["Tanh"], &["Tanh"]),
        4 => named(&["Tanh"], &["Sequential"], &[]),
        5 => named(&["Sequential"], &["Dense"], &[]),
        6 => named(&[], &[], &["Tanh"]),
        7 => named(&["Sequential"], &[], &["MatMul", "Linear"]),
        _ => named(&[], &[], &[]),
    };
    let mut cells = Vec::new();
    net.walk(&mut |entry| cells.push((entry.path.to_string(), entry.slot.cell.kind())));
    let mut known = vec![];
    for (which, how, run) in rules {
        let (path, kind) = &cells[which % cells.len()];
        let run = [RunAs::Full, RunAs::Low, RunAs::Inherit, RunAs::FullOut, RunAs::FullInside][*run as usize];
        let (select, rule) = match how {
            0 if !path.is_empty() => (Select::Path(path.clone()), Rule::path(path, run).unwrap()),
            1 => (Select::Everything, Rule::path("**", run).unwrap()),
            _ => (Select::Kind(kind.to_string()), Rule::kind(*kind, run)),
        };
        // Two rules for one exact path are refused, and so is a rule that decides nothing; another test covers this.
        let Ok(with_rule) = policy.clone().rule(rule) else { continue };
        match (with_rule.clone().with_prefer(Prefer::Memory)).plan(net) {
            Err(error) if error.to_string().contains("decides nothing") => {}
            _ => {
                policy = with_rule;
                known.push((select, run));
            }
        }
    }
    Known { policy, rules: known }
}

/// Returns the decision of the precedence list for each cell, in order of strength: `to_float` in code; a rule for the
/// exact path; the first other matching rule; the enclosing cell, if one of these or a list decided it; the lists of
/// the level; the level. Also returns the resulting adapter.
fn by_precedence(net: &Child, known: &Known) -> Vec<(String, Region, Option<Adapter>)> {
    let Known { policy, rules } = known;
    let (level, low) = (policy.level, policy.dtype);
    let ops_are_listed = !policy.lists.ops().is_empty();
    let lowered = if level == Level::O2 && ops_are_listed { Region::Except(low) } else { Region::Fixed(low) };
    let default = match level {
        Level::O2 | Level::O3 => lowered,
        Level::O1 | Level::Auto if ops_are_listed => Region::Lists(low),
        _ => Region::AsIs,
    };
    let mut said: Vec<(String, Region, bool, Option<Adapter>)> = vec![];
    net.walk(&mut |entry| {
        let (path, kind, asked) = (entry.path.to_string(), entry.slot.cell.kind(), entry.slot.to_float);
        let parent = path.rsplit_once('.').map_or("", |(parent, _)| parent);
        let around = said.iter().find(|(at, ..)| !path.is_empty() && at == parent).map(|found| (found.1, found.2));
        let exact = rules.iter().find(|(select, _)| *select == Select::Path(path.clone()));
        let matching = |select: &Select| match select {
            Select::Path(_) => false,
            Select::Everything => true,
            Select::Kind(named) => named == kind,
        };
        let rule = exact.or_else(|| rules.iter().find(|(select, _)| matching(select))).filter(|_| level != Level::O0);
        let surrounding = around.map_or(Region::AsIs, |(run, _)| run);
        let (run, decided) = if let Some(dtype) = asked {
            (Region::Fixed(dtype), true)
        } else if let Some((_, run)) = rule {
            let run = match run {
                RunAs::Full | RunAs::FullOut | RunAs::FullInside => Region::Fixed(DType::F32),
                RunAs::Low | RunAs::LowForward => lowered,
                RunAs::Inherit => surrounding,
                other => unreachable!("{other}"),
            };
            (run, true)
        } else if let Some((run, true)) = around {
            (run, true)
        } else if level == Level::O1 && policy.lists.cells().contains_key(kind) {
            (Region::Fixed(low), true)
        } else if level == Level::O2 && policy.lists.cells().contains_key(kind) {
            (Region::Fixed(DType::F32), true)
        } else {
            (around.map_or(default, |(run, _)| run), false)
        };
        // A region equal to that of the enclosing cell needs no adapter. The output has the dtype of the enclosing
        // region; if that is not fixed, f32, except for a root with a requested dtype at a level that promises none.
        let adapter = match run {
            _ if level == Level::O0 || run == surrounding => None,
            Region::AsIs => None,
            Region::Lists(_) => Some(Adapter::Ops(rules_of_ops(policy))),
            Region::Fixed(inward) | Region::Except(inward) => {
                let bare = path.is_empty() && asked.is_some() && !matches!(level, Level::O2 | Level::O3);
                let stays = asked.is_none() && matches!(rule, Some((_, RunAs::Full | RunAs::FullOut)));
                let outward = match surrounding {
                    _ if stays => DType::F32,
                    Region::Fixed(dtype) | Region::Except(dtype) => dtype,
                    _ if bare => inward,
                    _ => DType::F32,
                };
                let cast = Cast { inward, outward };
                Some(match run {
                    Region::Except(_) => Adapter::CastOps(cast, rules_of_ops(policy)),
                    _ => Adapter::Cast(cast),
                })
            }
            other => panic!("a region that this test does not know: {other}"),
        };
        said.push((path, run, decided, adapter));
    });
    said.into_iter().map(|(path, run, _, adapter)| (path, run, adapter)).collect()
}

/// Returns the treatment of ops by the lists of O1, O2 and level auto.
fn rules_of_ops(policy: &Policy) -> std::sync::Arc<OpRules> {
    let low = policy.dtype;
    let counts =
        |(op, entry): (&Op, &Entry)| entry.only.is_none_or(|only| only == low).then_some((*op, entry.treatment));
    let ops = policy.lists.ops().iter().filter_map(counts).collect();
    let (back, unlisted) = match policy.level {
        Level::O1 => (Some(DType::F32), Treatment::AsIs),
        Level::O2 => (Some(low), Treatment::Low),
        _ => (None, Treatment::AsIs),
    };
    OpRules { back, unlisted, ops, ..OpRules::new(policy.pack.as_deref().unwrap_or("code"), low) }.into()
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
        let (first, second) = (policy(&net, &first).policy, policy(&net, &second).policy);
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

        // Another policy replaces the first; its undo restores the first, and the first's undo the original network.
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
    fn plans_follow_the_precedence_list_and_match_traced_runs(tree in trees(), spec in policies()) {
        let mut net = build(&tree, &mut Rng::seed(5));
        let known = policy(&net, &spec);
        let applied = known.policy.apply(&mut net).unwrap();
        let said = by_precedence(&net, &known);
        prop_assert_eq!(said.len(), applied.plan.decisions.len());
        for ((path, run, adapter), decision) in said.iter().zip(&applied.plan.decisions) {
            prop_assert_eq!((path, run, adapter), (&decision.path, &decision.run, &decision.adapter), "{:?}", known.rules);
        }
        prop_assert_eq!(adapters(&net), said.iter().map(|(path, _, adapter)| (path.clone(), adapter.clone())).collect::<Vec<_>>());
        let region = |path: &str| said.iter().find(|(at, ..)| at == path).expect("a cell").1;
        let ran = holds(&net, &known.policy, region)?;
        let ops = |kind: &str| match kind {
            "Blend" => 1,
            kind => KINDS.iter().find(|(named, _)| *named == kind).map_or(0, |(_, ops)| *ops),
        };
        let expected: usize = applied.plan.decisions.iter().map(|d| ops(&d.kind)).sum();
        prop_assert_eq!(ran, expected, "every op of every leaf was held against the list");
        let (result, trace) = net.trace(|net| net.call(&input()));
        prop_assert!(result.is_ok() && applied.plan.check(&trace).is_ok(), "{:?}", applied.plan.check(&trace));
        prop_assert!(precast::precision::current().is_none(), "a region is left");
    }

    /// The same laws with cost decisions, on unknown machines.
    #[test]
    fn plans_and_undo_hold_where_speed_is_preferred(
        tree in trees(), policy_spec in policies(), (low, cast, call) in (0.1..3.0f64, 0.0..2.0f64, 0.0..20.0f64)
    ) {
        let mut net = build(&tree, &mut Rng::seed(11));
        let policy = policy(&net, &policy_spec).policy.with_prefer(Prefer::Speed);
        let written = (adapters(&net), parameters(&net), bits(&net.call(&input()).unwrap()));
        let (_, trace) = net.trace(|net| net.call(&input()));
        // The time of a network without ops cannot be predicted.
        if trace.ops.iter().all(|op| op.op == Op::Cast) {
            return Ok(());
        }
        let speeds = speeds(low, cast, call);
        let plan = policy.plan_for(&net, &trace, &speeds).unwrap();

        let applied = plan.apply(&mut net).unwrap();
        prop_assert_eq!(plan.apply(&mut net).unwrap().changed, 0);
        holds(&net, &policy, |path| plan.decision(path).unwrap().run)?;
        let prediction = plan.prediction.as_ref().unwrap();
        prop_assert!(prediction.planned.nanos <= prediction.lowered.nanos, "{plan}");
        applied.undo(&mut net).unwrap();
        prop_assert_eq!((adapters(&net), parameters(&net), bits(&net.call(&input()).unwrap())), written);

        // Forced cells run as without `prefer: speed`.
        let plain = policy.with_prefer(Prefer::Memory).plan(&net).unwrap();
        for (decision, plain) in plan.decisions.iter().zip(&plain.decisions) {
            let black = |entry: &Entry| entry.treatment == Treatment::Full;
            if matches!(&plain.because, Reason::ToFloat(_)) || matches!(&plain.because, Reason::Listed(entry) if black(entry)) {
                prop_assert_eq!((decision.run, &decision.because), (plain.run, &plain.because));
            }
        }
    }
}

/// Returns a machine that takes a nanosecond per element for everything in f32, and `low` in 16 bit.
fn speeds(low: f64, cast: f64, call: f64) -> Speeds {
    let rates = |element, cast| rates(Rate { multiply_add: 0.0, element }, cast);
    let (host, f32, f16, bf16) = ("a machine".into(), rates(1.0, 0.0), rates(low, cast), rates(low, cast));
    Speeds { host, call, cache: 1e6, byte: 0.1, parallel: 1.0, f32, f16, bf16 }
}

/// Runs a network with an applied plan, and checks every op against the region of its cell. Returns the number of ops.
fn holds(net: &Child, policy: &Policy, region: impl Fn(&str) -> Region) -> std::result::Result<usize, TestCaseError> {
    let (result, trace) = net.trace(|net| net.call(&input()));
    result.unwrap();
    let ops = trace.ops.iter().filter(|op| op.op != Op::Cast);
    let mut ran = 0;
    for op in ops {
        ran += 1;
        let region = region(&op.path);
        match region {
            Region::Fixed(dtype) => {
                prop_assert!(op.inputs.iter().all(|d| *d == dtype), "{}: {:?} under {region:?}", op.path, op);
                prop_assert_eq!(op.output, dtype);
            }
            Region::Except(low) => {
                let dtype = if policy.lists.ops().contains_key(&op.op) { DType::F32 } else { low };
                prop_assert!(op.inputs.iter().all(|d| *d == dtype), "{}: {:?} under {region:?}", op.path, op);
                prop_assert_eq!(op.output, dtype);
            }
            Region::Lists(low) => {
                match policy.lists.op(op.op, low).map(|entry| entry.treatment) {
                    Some(Treatment::Low) => prop_assert_eq!(op.output, low),
                    Some(Treatment::Full) => prop_assert_eq!(op.output, DType::F32),
                    // At O1 the result of a listed op is f32 again.
                    _ if policy.level == Level::O1 => prop_assert_eq!(op.output, DType::F32, "{}", op.path),
                    // Unlisted: the output has the dtype of the input.
                    _ => prop_assert_eq!(op.inputs[0], op.output),
                }
            }
            // Nothing is lowered around it, so its inputs are f32.
            Region::AsIs => prop_assert_eq!(op.output, DType::F32, "{} under {:?}", op.path, region),
            other => panic!("a region that this test does not know: {other}"),
        }
    }
    Ok(ran)
}

/// Returns as many cases as take a second or two; `PROPTEST_CASES` overrides, as usual.
fn cases() -> u32 {
    std::env::var("PROPTEST_CASES").ok().and_then(|n| n.parse().ok()).unwrap_or(2_000)
}
