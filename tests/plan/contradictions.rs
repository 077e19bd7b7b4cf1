//! Plans are truthful: a contradiction is an error, when the plan is made, when it is applied, when the network is
//! called, or when a traced run is checked against it.

use precast::{
    policy::{Rule, RunAs},
    prelude::*,
};

use crate::{
    common::contradicting::{Bypass, HIDDEN, Hides},
    nets::{self, Task},
};

fn x() -> Tensor {
    Tensor::ones(&[3, 4], DType::F32)
}

fn dense(rng: &mut Rng) -> Child {
    Dense::new(4, 4, rng).into()
}

/// A list of blocks, a head, and an op of its own.
#[derive(Cell, Debug)]
struct Net {
    blocks: Child<CellList>,
    head: Child<Dense>,
}

impl Net {
    fn new() -> Child<Net> {
        let rng = &mut Rng::seed(1);
        let blocks = Child::new(CellList::new(vec![dense(rng), dense(rng)]));
        Child::new(Net { blocks, head: Child::new(Dense::new(4, 2, rng)) })
    }
}

impl Forward for Net {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let x = self.blocks.with(x, |blocks, x| blocks.iter().try_fold(x, |x, block| block.call(&x)))?;
        self.head.call(&x.relu()?)
    }
}

/// The same, with the list iterated from outside.
#[derive(Cell, Debug)]
struct Past {
    blocks: Child<CellList>,
}

impl Forward for Past {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        self.blocks.cell().iter().try_fold(x.clone(), |x, block| block.call(&x))
    }
}

fn policy(level: Level) -> Policy {
    Policy::new(level, DType::Bf16).unwrap()
}

fn rule(path: &str, run: RunAs) -> Rule {
    Rule::path(path, run).unwrap()
}

/// Returns the message of an error about a plan.
fn refused<T: std::fmt::Debug>(result: Result<T>) -> String {
    let error = result.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Plan, "{error}");
    error.to_string()
}

#[test]
fn a_list_is_not_iterated_past_its_adapter() {
    let rng = &mut Rng::seed(1);
    let mut net = Child::new(Past { blocks: Child::new(CellList::new(vec![dense(rng), dense(rng)])) });
    let before = net.call(&x()).unwrap();
    // The list has its own adapter, which the call bypasses.
    let applied = policy(Level::O3).rule(rule("blocks", RunAs::Full)).unwrap().apply(&mut net).unwrap();
    assert_eq!(
        refused(net.call(&x())),
        "in cell `blocks.0`: `blocks.0` is called past the slot of `blocks`, whose precision the applied plan changes; call it by `part` of the \
         network, or inside of `call` or `with` of that slot, or apply the policy to the network as it is now"
    );
    applied.undo(&mut net).unwrap();
    assert_eq!(net.call(&x()).unwrap().to_f64(), before.to_f64());
    // Here it has none: the enclosing region is the one that the plan gives its cells.
    policy(Level::O3).apply(&mut net).unwrap();
    let (result, trace) = net.trace(|net| net.call(&x()));
    result.unwrap();
    policy(Level::O3).plan(&net).unwrap().check(&trace).unwrap();
}

#[test]
fn no_cell_is_called_past_the_network() {
    for level in [Level::O1, Level::O2, Level::O3, Level::Auto] {
        let mut net = Net::new();
        let applied = policy(level).apply(&mut net).unwrap();
        let message = refused(net.cell().head.call(&x()));
        assert!(
            message.starts_with("in the root cell: `head` is called past the slot of the root cell"),
            "{level}: {message}"
        );
        net.with(x(), |net, x| net.head.call(&x)).unwrap();
        // In another thread, where no region is entered, and with the regions of this one.
        net.with(x(), |net, x| {
            let here = precast::precision::carry();
            std::thread::scope(|threads| {
                let bare = threads.spawn(|| net.head.call(&x)).join().unwrap();
                assert!(refused(bare).contains("called past"), "{level}");
                threads.spawn(|| here.run(|| net.head.call(&x))).join().unwrap()
            })
        })
        .unwrap();
        applied.undo(&mut net).unwrap();
        net.cell().head.call(&x()).unwrap();
    }
}

#[test]
fn a_cell_that_moved_is_not_called_where_it_was_not_planned() {
    let mut net = Net::new();
    policy(Level::O3).apply(&mut net).unwrap();
    let Child { .. } = net;
    let mut other = Net::new();
    std::mem::swap(&mut net.cell_mut().head, &mut other.cell_mut().head);
    assert!(refused(other.call(&x())).starts_with("in cell `head`: `head` is called past the slot of the root cell"));
    policy(Level::O3).apply(&mut other).unwrap();
    other.call(&x()).unwrap();
}

#[test]
fn to_float_after_the_plan_is_told() {
    let mut net = Net::new();
    let plan = policy(Level::O2).plan(&net).unwrap();
    net.cell_mut().head.set_to_float(Some(DType::F32)).unwrap();
    assert_eq!(
        refused(plan.apply(&mut net)),
        "`head` has the `to_float` float32, and the plan was made when it had none; make the plan again"
    );
    assert_eq!(plan.wrapped(), 1);
    assert!(net.slot().adapter.is_none(), "nothing was changed");

    let asked = policy(Level::O2).apply(&mut net).unwrap();
    net.call(&x()).unwrap();
    net.cell_mut().head.set_to_float(Some(DType::F16)).unwrap();
    assert_eq!(
        refused(net.call(&x())),
        "in cell `head`: `to_float(float16)` was asked for after a plan was applied, which does not know it; apply the policy again"
    );
    net.cell_mut().head.set_to_float(None).unwrap();
    assert!(refused(net.call(&x())).starts_with("in cell `head`: `to_float` was taken back after a plan was applied"));
    assert!(
        refused(asked.plan.apply(&mut net))
            .contains("has the `to_float` none, and the plan was made when it had float32")
    );
    // As when the plan was made.
    net.cell_mut().head.set_to_float(Some(DType::F32)).unwrap();
    net.call(&x()).unwrap();
    asked.undo(&mut net).unwrap();
    net.cell_mut().head.set_to_float(None).unwrap();
    net.call(&x()).unwrap();
}

#[test]
fn an_earlier_plan_is_known_again_when_a_later_one_is_undone() {
    let mut net = Net::new();
    let first = policy(Level::O2).apply(&mut net).unwrap();
    let second = policy(Level::O3).rule(rule("blocks", RunAs::Full)).unwrap().apply(&mut net).unwrap();
    second.undo(&mut net).unwrap();
    net.call(&x()).unwrap();
    assert!(refused(net.cell().head.call(&x())).contains("called past"));
    net.cell_mut().head.set_to_float(Some(DType::F32)).unwrap();
    assert!(refused(net.call(&x())).contains("does not know"));
    net.cell_mut().head.set_to_float(None).unwrap();
    first.undo(&mut net).unwrap();
    precast::plan::undo(&mut net);
    net.cell().head.call(&x()).unwrap();
}

#[test]
fn a_trace_that_contradicts_the_plan_is_found() {
    let mut net = Net::new();
    let plan = policy(Level::O1).rule(rule("head", RunAs::Full)).unwrap().plan(&net).unwrap();
    let run = |net: &Child<Net>| net.trace(|net| net.call(&x()).unwrap()).1;
    assert_eq!(
        refused(plan.check(&run(&net))),
        "Linear of `blocks.0` (Dense) ran in f32; the plan says bf16; Linear of `blocks.1` (Dense) ran in f32; the plan says \
         bf16; Relu of the root cell (Net) ran in f32; the plan says bf16 (no op ran as planned: is the plan applied to this \
         network?)"
    );
    plan.apply(&mut net).unwrap();
    plan.check(&run(&net)).unwrap();
    let other = policy(Level::O3).plan(&net).unwrap();
    let message = refused(other.check(&run(&net)));
    assert_eq!(message, "Linear of `head` (Dense) ran in f32; the plan says bf16");

    let another = Child::of(sequential![Dense::new(4, 4, &mut Rng::seed(1))]);
    let trace = another.trace(|net| net.call(&x()).unwrap()).1;
    let error = plan.check(&trace).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Path);
    assert!(error.to_string().starts_with("the trace is of another network"), "{error}");
}

#[test]
fn weights_that_were_read_past_the_slot_are_found() {
    let mut net = Child::new(Bypass { inner: Child::new(Dense::new(4, 4, &mut Rng::seed(1))) });
    let run = |net: &Child<Bypass>| net.trace(|net| net.call(&x()).unwrap()).1;
    let full = policy(Level::O3).rule(rule("inner", RunAs::Full)).unwrap().apply(&mut net).unwrap().plan;
    assert_eq!(
        refused(full.check(&run(&net))),
        "`inner` (Dense) was not called, and its `weight` was read by the root cell (Bypass), which runs bf16; the plan says \
         f32; `inner` (Dense) was not called, and its `bias` was read by the root cell (Bypass), which runs bf16; the plan \
         says f32"
    );
    // If both run alike, a cell may use the weights of another, such as tied ones.
    let low = policy(Level::O3).apply(&mut net).unwrap().plan;
    low.check(&run(&net)).unwrap();
    // And bypassing the slot of the root cell.
    let trace = net.trace(|net| Forward::forward(&**net.cell(), &x()).unwrap()).1;
    assert!(refused(low.check(&trace)).contains("was read by code outside of the network, which runs as is"));
}

/// A cell that calls its child, and reads its weights as well.
#[derive(Cell, Debug)]
struct Both {
    inner: Child<Dense>,
}

impl Forward for Both {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let outside = Forward::forward(&**self.inner.cell(), x)?;
        self.inner.call(x)?.add(&outside)
    }
}

/// A called cell ran as planned; other uses of its weights are not its concern.
#[test]
fn weights_of_a_called_cell_may_be_read_elsewhere() {
    let mut net = Child::new(Both { inner: Child::new(Dense::new(4, 4, &mut Rng::seed(1))) });
    let plan = policy(Level::O3).rule(rule("inner", RunAs::Full)).unwrap().apply(&mut net).unwrap().plan;
    plan.check(&net.trace(|net| net.call(&x()).unwrap()).1).unwrap();
}

const UNKNOWN: &str = "a cell with parameters (Dense) is called that the applied plan does not know: it came into the network \
                       after the plan (then apply the policy again), or the network does not show it (then hold it in a field \
                       of type `Child`, or in a `Vec`, `Option` or `BTreeMap` of these)";

#[test]
fn a_cell_that_the_network_does_not_show_is_found() {
    let mut net = Hides::new();
    // If nothing is cast, the trace reveals it.
    let applied = policy(Level::O0).apply(&mut net).unwrap();
    let trace = net.trace(|net| net.call(&x()).unwrap()).1;
    assert_eq!(refused(applied.plan.check(&trace)), HIDDEN);
    policy(Level::O2).apply(&mut net).unwrap();
    assert!(refused(net.call(&x())).ends_with(UNKNOWN));
}

#[test]
fn a_cell_that_replaces_another_after_the_plan_is_told() {
    let mut net = Net::new();
    policy(Level::O2).rule(rule("head", RunAs::Full)).unwrap().apply(&mut net).unwrap();
    net.cell_mut().head = Child::new(Dense::new(4, 2, &mut Rng::seed(2)));
    assert!(refused(net.call(&x())).ends_with(UNKNOWN));
    policy(Level::O2).apply(&mut net).unwrap();
    net.call(&x()).unwrap();
}

/// A cell that enters its own region.
#[derive(Cell, Debug)]
struct OwnRegion {
    fc: Child<Dense>,
}

impl Forward for OwnRegion {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let y = self.fc.call(x)?;
        autocast(Autocast::new("torch-2.15-cpu")?.enabled(false), || y.exp())
    }
}

#[test]
fn a_region_that_code_enters_is_no_contradiction() {
    let mut net = Child::new(OwnRegion { fc: Child::new(Dense::new(4, 4, &mut Rng::seed(1))) });
    let applied = policy(Level::O3).apply(&mut net).unwrap();
    let trace = net.trace(|net| net.call(&x()).unwrap()).1;
    applied.plan.check(&trace).unwrap();
}

/// The networks of the benches at every level, forward and backward, with and without recomputation.
#[test]
fn every_network_runs_as_planned() {
    for name in nets::NAMES {
        for level in [Level::O0, Level::O1, Level::O2, Level::O3, Level::Auto] {
            for dtype in [DType::F16, DType::Bf16] {
                for recompute in [false, true] {
                    let Task { mut net, x, .. } = nets::task(name, 1).unwrap();
                    let x = x.slice(0, 0..2).unwrap();
                    net.set_train(true);
                    net.set_recompute(recompute);
                    let plan = Policy::new(level, dtype).unwrap().apply(&mut net).unwrap().plan;
                    let run = |net: &Child| net.call(&x)?.sum_all()?.backward();
                    let (result, trace) = net.trace(run);
                    result.unwrap();
                    plan.check(&trace).unwrap_or_else(|error| panic!("{name} {level} {dtype} {recompute}: {error}"));
                }
            }
        }
    }
}

#[test]
fn a_rule_that_decides_nothing_is_told() {
    let net = Child::of(sequential![Dense::new(4, 4, &mut Rng::seed(1)), Tanh, Dense::new(4, 4, &mut Rng::seed(1))]);
    let plan = |rules: Vec<Rule>| {
        rules
            .into_iter()
            .try_fold(policy(Level::O2), |policy, rule| policy.rule(rule))
            .and_then(|policy| policy.plan(&net))
    };
    let kind = |run| Rule::kind("Dense", run);
    let error = plan(vec![rule("**", RunAs::Low), kind(RunAs::Full)]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Policy);
    assert_eq!(
        error.to_string(),
        "in code: the rule for kind Dense decides nothing, because the first rule that matches a cell decides, and the rule for \
         path ** (in code) matches before it; put the narrower rule first"
    );
    // The narrower one first, and an exception for one path, at any position.
    plan(vec![kind(RunAs::Full), rule("**", RunAs::Low)]).unwrap();
    plan(vec![rule("**", RunAs::Low), rule("0", RunAs::Full)]).unwrap();
    plan(vec![rule("0", RunAs::Full), rule("2", RunAs::Full), kind(RunAs::Low)]).unwrap();
    // One of the cells of the last rule is an exception, the other belongs to the first rule.
    assert!(plan(vec![rule("**", RunAs::Low), rule("0", RunAs::Full), kind(RunAs::Full)]).is_err());
    // A rule about another property.
    let recompute = |path: &str| Rule::recompute(path).unwrap();
    plan(vec![rule("**", RunAs::Low), recompute("*")]).unwrap();
    assert!(plan(vec![recompute("**"), rule("1", RunAs::Low), recompute("*")]).is_err());
}

/// A map with a key that looks like the path of another cell.
#[derive(Cell, Debug)]
struct Maps {
    heads: std::collections::BTreeMap<String, Child>,
}

impl Forward for Maps {}

#[test]
fn two_cells_at_one_path_are_told() {
    let inner = Maps { heads: [("0".to_string(), Child::of(ReLU))].into() };
    let heads = [("a.heads.0".to_string(), Child::of(Tanh)), ("a".to_string(), Child::of(inner))].into();
    let error = policy(Level::O2).plan(&Child::new(Maps { heads })).unwrap_err();
    assert_eq!(
        error.to_string(),
        "two cells at `heads.a.heads.0`: a key of a map of cells has no dot in it, and is not empty"
    );
}
