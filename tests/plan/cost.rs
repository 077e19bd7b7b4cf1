//! `prefer: speed`: predictions, and the cells that stay f32 because of them or in spite of them. All machines here are
//! made up, so that every number can be computed by hand; measurements of a real one are only checked for plausibility.

use crate::common::folder::Folder;
use crate::common::speeds::rates;
use precast::{
    Plan,
    cell::{Adapter, Cast},
    cost::{Rate, Speeds},
    plan::{Cost, Predicted, Reason, Region},
    policy::{Entry, Lists, Prefer, Rule, RunAs},
    precision::Treatment,
    prelude::*,
};

/// Returns a machine on which 16 bit is twice as fast as f32, except for casts, which take `cast` per element.
fn speeds(cast: f64) -> Speeds {
    let low = rates(Rate { multiply_add: 3.0, element: 6.0 }, cast);
    Speeds {
        host: "a machine".into(),
        call: 10.0,
        cache: 1e9,
        byte: 0.0,
        parallel: 1.0,
        f32: rates(Rate { multiply_add: 6.0, element: 12.0 }, 0.0),
        f16: low,
        bf16: low,
    }
}

fn policy(level: Level) -> Policy {
    Policy::new(level, DType::F16).unwrap().with_prefer(Prefer::Speed)
}

fn dense(inputs: usize, outputs: usize) -> Dense {
    Dense::new(inputs, outputs, &mut Rng::seed(1))
}

fn plan(policy: &Policy, net: &Child, speeds: &Speeds, input: &[usize]) -> Plan {
    let (called, trace) = net.trace(|net| net.call(&Tensor::ones(input, DType::F32)));
    called.unwrap();
    policy.plan_for(net, &trace, speeds).unwrap()
}

fn reasons(plan: &Plan) -> Vec<String> {
    plan.decisions.iter().map(|d| format!("{}: {}, {}", d.path, d.effect(), d.because)).collect()
}

/// One Dense from 8 to 4 on a batch of 2: 64 multiplications; 16 + 32 + 4 elements read, 8 written; a gradient for the
/// weight and none for the input, so two of three products.
#[test]
fn predictions_are_those_reckoned_by_hand() {
    let net = Child::of(dense(8, 4));
    let passes = |multiply_add: f64, element: f64| 10.0 + 2.0 / 3.0 * (64.0 * multiply_add + 60.0 * element);
    let full = passes(6.0, 12.0);
    assert_eq!(full, 746.0);
    // The weight, the bias, the input and the output are cast, each with a call.
    let lowered = |cast: f64| passes(3.0, 6.0) + 4.0 * 10.0 + (32.0 + 4.0 + 16.0 + 8.0) * cast;
    assert_eq!(lowered(5.0), 378.0 + 340.0);

    let cheap = plan(&policy(Level::O2), &net, &speeds(5.0), &[2, 8]);
    let prediction = cheap.prediction.as_ref().unwrap();
    assert_eq!((prediction.planned.nanos, prediction.lowered.nanos, prediction.full.nanos), (718, 718, 746));
    assert_eq!(reasons(&cheap), [": runs f16, returns f32, level O2"]);

    let dear = plan(&policy(Level::O2), &net, &speeds(6.0), &[2, 8]);
    let prediction = dear.prediction.as_ref().unwrap();
    assert_eq!((prediction.planned.nanos, prediction.lowered.nanos, prediction.full.nanos), (746, 778, 746));
    let cost = Cost { region: Region::Fixed(DType::F16), lowered: 778, full: 746 };
    assert_eq!(dear.decisions[0].because, Reason::Cost(cost));
    assert_eq!(dear.decisions[0].overridden, [Reason::Level(Level::O2)]);
    assert_eq!(reasons(&dear), [": runs f32, cost: f16 would take 0.8 us, f32 0.7 us"]);
    // The input is kept for the gradient of the weight: 16 elements.
    assert_eq!(cheap.decisions[0].predicted, Some(Predicted { nanos: 718, kept: 32 }));
    assert_eq!(dear.decisions[0].predicted, Some(Predicted { nanos: 746, kept: 64 }));

    // With `prefer: memory`, the predictions are the same and no decision changes.
    let memory = policy(Level::O2).with_prefer(Prefer::Memory);
    let lowered = plan(&memory, &net, &speeds(6.0), &[2, 8]);
    assert_eq!(lowered.prediction.as_ref().unwrap().planned.nanos, 778);
    assert_eq!(memory.plan(&net).unwrap().decisions[0].run, lowered.decisions[0].run);
}

/// The Dense above, called twice: the low copies are made once, and the two gradients of each parameter are added up.
#[test]
fn a_cell_that_is_called_twice_casts_its_parameters_once() {
    let net = Child::of(dense(8, 4));
    let x = || Tensor::ones(&[2, 8], DType::F32);
    let (called, trace) = net.trace(|net| net.call(&x()).and_then(|_| net.call(&x())));
    called.unwrap();
    let plan = policy(Level::O2).plan_for(&net, &trace, &speeds(5.0)).unwrap();
    let copies = 2.0 * 10.0 + (32.0 + 4.0) * 5.0;
    let crossings = 2.0 * (2.0 * 10.0 + (16.0 + 8.0) * 5.0);
    // For each element two are read and one is written, in the backward pass, which is half of all.
    let sums = (32.0 + 4.0) * 1.5 * 6.0;
    let nanos = 2.0 * 378.0 + copies + crossings + sums;
    assert_eq!(plan.decisions[0].predicted, Some(Predicted { nanos: nanos as u64, kept: 2 * 32 }));
}

/// One of the three products of forward and backward pass runs in f32.
#[test]
fn gradients_of_weights_in_f32_take_a_third_of_the_difference() {
    let net = Child::of(dense(8, 4));
    let rule = Rule::path("**", RunAs::LowForward).unwrap();
    let memory = policy(Level::O2).with_prefer(Prefer::Memory).rule(rule).unwrap();
    let found = plan(&memory, &net, &speeds(5.0), &[2, 8]);
    let nanos = 718 + ((746.0 - 378.0) / 3.0f64).round() as u64;
    assert_eq!(found.decisions[0].predicted.unwrap().nanos, nanos);
    assert_eq!(found.prediction.as_ref().unwrap().planned.nanos, nanos);
    // The rule forces it: time changes nothing.
    for cast in [0.0, 5.0, 1e6] {
        let net = Child::of(sequential![dense(8, 4), Tanh, LayerNorm::new(&[4]), dense(4, 2)]);
        let speed = memory.clone().with_prefer(Prefer::Speed);
        let [of_speed, of_memory] = [&speed, &memory].map(|policy| plan(policy, &net, &speeds(cast), &[2, 8]));
        assert_eq!(of_speed.decisions, of_memory.decisions);
        let wide: Vec<bool> = of_speed.decisions.iter().map(|d| d.wide_weight_grads).collect();
        assert_eq!(wide, [false, true, false, false, true]);
    }
}

/// An f32 cell in a low region keeps its input as it came: 16 elements of 2 bytes.
#[test]
fn an_input_that_was_widened_is_kept_as_it_came() {
    let net = Child::of(sequential![dense(8, 8), dense(8, 4)]);
    let rule = Rule::path("1", RunAs::Full).unwrap();
    let memory = policy(Level::O3).with_prefer(Prefer::Memory).rule(rule).unwrap();
    let found = plan(&memory, &net, &speeds(5.0), &[2, 8]);
    let kept: Vec<u64> = found.decisions.iter().map(|d| d.predicted.unwrap().kept).collect();
    assert_eq!(kept, [0, 16 * 2, 16 * 2]);
}

/// A recomputed cell runs forward twice, which is a third more, and keeps only its input.
#[test]
fn recomputing_takes_time_for_memory() {
    let net = Child::of(sequential![dense(8, 4), sequential![dense(4, 6), Tanh, dense(6, 4)], dense(4, 2)]);
    for (level, width) in [(Level::O0, 4), (Level::O2, 2)] {
        let plain = policy(level).with_prefer(Prefer::Memory);
        let lean = plain.clone().rule(Rule::recompute("1").unwrap()).unwrap();
        let [plain, lean] = [&plain, &lean].map(|policy| plan(policy, &net, &speeds(5.0), &[2, 8]));
        let mut sum = Predicted::default();
        for (plain, lean) in plain.decisions.iter().zip(&lean.decisions) {
            let before = plain.predicted.unwrap();
            let after = match lean.path.as_str() {
                // Two rows of four come in.
                "1" => Predicted { nanos: before.nanos + before.nanos / 3, kept: 2 * 4 * width },
                "1.0" | "1.1" | "1.2" => Predicted { nanos: before.nanos + before.nanos / 3, kept: 0 },
                _ => before,
            };
            assert_eq!(lean.predicted, Some(after), "{level} {}", lean.path);
            sum = Predicted { nanos: sum.nanos + after.nanos, kept: sum.kept + after.kept };
        }
        let planned = lean.prediction.unwrap().planned;
        assert_eq!(planned.kept, sum.kept);
        assert!(planned.nanos.abs_diff(sum.nanos) <= 6, "but for roundings: {} {}", planned.nanos, sum.nanos);
    }
}

/// A cell with direct ops and no inner cell.
#[derive(Cell, Debug)]
struct Chain {}

impl Forward for Chain {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        x.matmul(x)?.tanh()?.softmax(-1)?.relu()
    }
}

/// The dtype of each op of a chain by lists, and the casts between them.
#[test]
fn ops_by_lists_are_predicted_one_after_the_other() {
    let net = Child::new(Chain {});
    let (called, trace) = net.trace(|net| net.call(&Tensor::ones(&[4, 4], DType::F32)));
    called.unwrap();
    let speeds = speeds(5.0);
    let white = Lists::new().low_op("MatMul").unwrap();
    let black = white.clone().full_op("Softmax").unwrap();
    let (full, low) = (DType::F32, DType::F16);
    for (level, lists, dtypes) in [
        // The result of a low op is f32 again, so tanh, which is on no list, is f32.
        (Level::O1, white, [low, full, full, full]),
        // It takes its input unchanged.
        (Level::Auto, black, [low, low, full, full]),
    ] {
        let policy = Policy::with_lists(level, low, lists).unwrap();
        let plan = policy.plan_for(&net, &trace, &speeds).unwrap();
        let ops: Vec<_> = trace.ops.iter().filter(|op| op.op != Op::Cast).collect();
        let nanos: f64 = ops.iter().zip(dtypes).map(|(op, dtype)| speeds.op(op.op, &op.sizes, dtype)).sum();
        // To f16 and back, 16 elements each.
        let casts = 2.0 * (10.0 + 16.0 * 5.0);
        assert_eq!(ops.len(), 4);
        assert_eq!(plan.prediction.unwrap().planned.nanos, (nanos + casts).round() as u64, "{level}");
    }
}

/// Returns a machine on which every cast, however small, takes as long as a small product.
fn slow_to_call() -> Speeds {
    Speeds { call: 1e5, ..speeds(1.0) }
}

/// Makes a network with a large product that pays for its casts, and a small one that does not.
fn small_and_large() -> Child {
    let mut net = sequential![dense(2, 256), dense(256, 256), dense(256, 2)];
    net.push(Sequential::new(vec![Dense::new(2, 2, &mut Rng::seed(2)).into(), Tanh.into()]));
    Child::of(net)
}

#[test]
fn where_casts_are_slow_small_layers_stay_f32() {
    let net = small_and_large();
    let found = plan(&policy(Level::O2), &net, &slow_to_call(), &[8, 2]);
    let runs: Vec<Region> = found.decisions.iter().map(|d| d.run).collect();
    let (full, low) = (Region::Fixed(DType::F32), Region::Fixed(DType::F16));
    assert_eq!(runs, [full, full, low, full, full, full, full]);
    // The network is f32, so that f32 cells need no casts, and the large layer is an island in it.
    assert!(matches!(found.decisions[0].because, Reason::Cost(cost) if cost.full < cost.lowered));
    assert_eq!(found.decisions[1].because.to_string(), "inside (root)");
    assert!(matches!(found.decisions[2].because, Reason::Cost(cost) if cost.lowered < cost.full));
    assert_eq!(found.decisions[2].overridden, [Reason::Level(Level::O2)]);
    let island = Cast { inward: DType::F16, outward: DType::F32 };
    let adapters: Vec<_> = found.decisions.iter().map(|d| d.adapter.clone()).collect();
    assert_eq!(adapters[2], Some(Adapter::Cast(island)));
    assert_eq!(found.decisions.iter().filter(|d| d.adapter.is_some()).count(), 2, "the root is a region, too");

    // With fast casts all is low, and with casts that no layer pays for, nothing.
    assert!(plan(&policy(Level::O2), &net, &speeds(0.1), &[64, 2]).decisions.iter().all(|d| d.run == low));
    assert!(plan(&policy(Level::O2), &net, &speeds(1e6), &[64, 2]).decisions.iter().all(|d| d.run == full));
    // A machine without 16-bit products keeps the products and lowers the ops that only move memory.
    let mut slow = speeds(0.1);
    slow.f16.product = Rate { multiply_add: 60.0, element: 12.0 };
    let found = plan(&policy(Level::O3), &Child::of(sequential![dense(64, 64), ReLU, Tanh, ReLU]), &slow, &[256, 64]);
    assert_eq!(found.decisions.iter().map(|d| d.run).collect::<Vec<_>>(), [low, full, low, low, low]);
    let explained = found.explain("0").unwrap().to_string();
    assert!(
        explained.contains("\n  because  cost: f16 would take ") && explained.ends_with("\n  over     level O3"),
        "{explained}"
    );
}

#[test]
fn who_is_forced_is_not_asked_what_it_costs() {
    let decided = |policy: &Policy, net: &Child| plan(policy, net, &speeds(1e6), &[64, 2]);
    let low = Region::Fixed(DType::F16);
    let full = Region::Fixed(DType::F32);
    let net = small_and_large();
    for (rule, path, inside) in [
        (Rule::path("0", RunAs::Low).unwrap(), "0", None),
        (Rule::kind("Tanh", RunAs::Low), "3.1", None),
        (Rule::path("3", RunAs::Low).unwrap(), "3", Some("3.0")),
    ] {
        let found = decided(&policy(Level::O2).rule(rule).unwrap(), &net);
        assert!(matches!(found.decision(path).unwrap().because, Reason::Rule(_)), "{found}");
        assert_eq!(found.decision(path).unwrap().run, low);
        if let Some(inside) = inside {
            assert_eq!(found.decision(inside).unwrap().because, Reason::Inside(path.into()));
            assert_eq!(found.decision(inside).unwrap().run, low);
        }
        assert_eq!(found.decision("1").unwrap().run, full, "others stay f32");
    }
    // `inherit` follows the enclosing region, as decided by cost.
    let found = decided(&policy(Level::O2).rule(Rule::path("1", RunAs::Inherit).unwrap()).unwrap(), &net);
    assert_eq!((found.decisions[2].run, found.decisions[2].adapter.is_none()), (full, true));

    let lowered = Child::of(sequential![Child::of(dense(2, 2)).to_float(DType::F16).unwrap(), dense(2, 2)]);
    let found = decided(&policy(Level::O1), &lowered);
    assert_eq!(found.decisions[1].because, Reason::ToFloat(DType::F16));
    assert!(matches!(found.decisions[2].because, Reason::Cost(_)), "the low list does not force: {found}");
    assert!(matches!(found.decisions[2].overridden[..], [Reason::Listed(_)]), "{found}");
    assert_eq!(found.decisions[2].run, full);

    // Cost does not affect what a full list keeps in f32.
    let normed = Child::of(sequential![dense(2, 2), LayerNorm::new(&[2])]);
    let found = plan(&policy(Level::O2), &normed, &speeds(0.0), &[64, 2]);
    assert!(matches!(found.decisions[2].because, Reason::Listed(Entry { treatment: Treatment::Full, .. })), "{found}");
    // O0 lowers nothing, so there is nothing to weigh.
    let found = plan(&policy(Level::O0), &net, &speeds(0.0), &[64, 2]);
    assert!(found.decisions.iter().all(|d| d.run == Region::AsIs && d.adapter.is_none()));
}

#[test]
fn op_lists_are_weighed_against_f32() {
    let net = Child::of(sequential![dense(64, 64), ReLU, dense(64, 64)]);
    for level in [Level::O1, Level::Auto] {
        let lowered = plan(&policy(level), &net, &speeds(0.1), &[64, 64]);
        assert_eq!(
            lowered.decisions,
            plan(&policy(level).with_prefer(Prefer::Memory), &net, &speeds(0.1), &[64, 64]).decisions
        );
        let full = plan(&policy(level), &net, &speeds(1e6), &[64, 64]);
        // The root of O1 does nothing itself.
        assert!(full.decisions[1..].iter().all(|d| d.run == Region::Fixed(DType::F32)), "{full}");
        let decided = if level == Level::O1 { 2 } else { 0 };
        assert!(full.decisions[decided].because.to_string().starts_with("cost: op lists f16 "), "{full}");
        if level == Level::Auto {
            assert!(full.decisions[1..].iter().all(|d| d.because.to_string() == "inside (root)"), "{full}");
        }
        let prediction = full.prediction.unwrap();
        assert_eq!(prediction.planned.nanos, prediction.full.nanos);
    }
    // A user list with a composite cell does not force it either.
    let white = Policy::with_lists(Level::O1, DType::F16, Lists::new().low("Sequential")).unwrap();
    let white = white.with_prefer(Prefer::Speed);
    let found = plan(&white, &net, &speeds(1e6), &[64, 64]);
    assert!(found.decisions.iter().all(|d| d.run == Region::Fixed(DType::F32)), "{found}");
}

/// The choice is the best of all: each possible one is made by rules and its time computed.
#[test]
fn no_other_choice_takes_less() {
    let mut rng = Rng::seed(7);
    for case in 0..40 {
        let mut size = || 1 + (rng.uniform(0.0, 5.0).exp() as usize);
        let (a, b, c, batch) = (size(), size(), size(), size());
        let inner = sequential![dense(b, c), Tanh];
        let mut net = Child::of(sequential![dense(a, b), ReLU, inner]);
        let speeds = speeds(rng.uniform(0.0, 5.0).exp());
        let input = [batch, a];
        let best = plan(&policy(Level::O3), &net, &speeds, &input).prediction.unwrap().planned.nanos;
        let mut least = u64::MAX;
        for choice in 0..64u32 {
            let mut forced = policy(Level::O3).with_prefer(Prefer::Memory);
            for (bit, path) in ["0", "1", "2", "2.0", "2.1"].into_iter().enumerate() {
                let run = if choice & (1 << bit) == 0 { RunAs::Full } else { RunAs::Low };
                forced = forced.rule(Rule::path(path, run).unwrap()).unwrap();
            }
            let root = if choice & 32 == 0 { DType::F32 } else { DType::F16 };
            net.set_to_float(Some(root)).unwrap();
            least = least.min(plan(&forced, &net, &speeds, &input).prediction.unwrap().planned.nanos);
        }
        assert!(best.abs_diff(least) <= 1, "case {case}: {best} chosen, {least} possible");
    }
}

#[test]
fn a_plan_with_predictions_is_printed_and_stored() {
    let net = small_and_large();
    let found = plan(&policy(Level::O2), &net, &slow_to_call(), &[8, 2]);
    let read: Plan = serde_json::from_str(&serde_json::to_string(&found).unwrap()).unwrap();
    assert_eq!(read, found);
    let shown = found.to_string();
    let lines: Vec<&str> = shown.lines().collect();
    assert!(lines[0].ends_with("lists of precast-1, prefers speed"), "{shown}");
    assert!(lines[3].contains(" cost: f16 would take ") && lines[3].contains(" ms "), "{shown}");
    let end = &lines[lines.len() - 5..];
    assert_eq!(end[0], "7 cells (1 f16, 6 f32), 2 wrapped", "{shown}");
    assert!(
        end[1].ends_with("this plan") && end[2].ends_with("as the level lowers") && end[3].ends_with("all in f32"),
        "{shown}"
    );
    assert_eq!(end[4], "speeds of a machine");
    // The parts add up to the whole, except for rounding.
    let sum: u64 = found.decisions.iter().map(|d| d.predicted.unwrap().nanos).sum();
    assert!(sum.abs_diff(found.prediction.as_ref().unwrap().planned.nanos) <= 7);
    // Without predictions, none are written.
    let plain = serde_json::to_string(&Policy::new(Level::O2, DType::F16).unwrap().plan(&net).unwrap()).unwrap();
    assert!(!plain.contains("predict") && !plain.contains("prefer"), "{plain}");
}

#[test]
fn what_is_missing_is_said() {
    let mut net = small_and_large();
    let wanting = policy(Level::O2);
    let words = wanting.plan(&net).unwrap_err().to_string();
    assert!(words.contains("prefers speed") && words.contains("plan_for"), "{words}");
    assert_eq!(wanting.apply(&mut net).unwrap_err().to_string(), words);
    let (_, empty) = net.trace(|_| ());
    let error = wanting.plan_for(&net, &empty, &speeds(1.0)).unwrap_err();
    assert!(error.to_string().contains("the trace has no op"), "{error}");
    let (_, trace) = net.trace(|net| net.call(&Tensor::ones(&[2, 2], DType::F32)));
    let error = wanting.plan_for(&Child::of(dense(2, 2)), &trace, &speeds(1.0)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Path, "{error}");
    for wrong in [f64::NAN, -1.0, f64::INFINITY] {
        let error = wanting.plan_for(&net, &trace, &speeds(wrong)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Value, "{error}");
    }
}

#[test]
fn speeds_are_files() {
    let folder = Folder::new("speeds");
    let file = folder.at("deep/speeds.json");
    speeds(2.5).save(&file).unwrap();
    assert_eq!(Speeds::load(&file).unwrap(), speeds(2.5));
    let text = std::fs::read_to_string(&file).unwrap();
    for (broken, words) in [
        (text.replace("2.5", "-2.5"), "invalid speed for"),
        (text.replace("\"call\"", "\"cull\""), "cull"),
        ("{".into(), "EOF"),
        ("[".repeat(100_000), "longer than"),
    ] {
        std::fs::write(&file, broken).unwrap();
        let message = Speeds::load(&file).unwrap_err().to_string();
        assert!(message.contains("speeds.json") && message.contains(words), "{message}");
    }
    drop(folder);
    assert_eq!(Speeds::load(&file).unwrap_err().kind(), ErrorKind::Io);
}

#[test]
fn a_trace_of_another_network_is_refused() {
    let traced = Child::of(sequential![dense(4, 4), ReLU, dense(4, 2)]);
    let (called, trace) = traced.trace(|net| net.call(&Tensor::ones(&[2, 4], DType::F32)));
    called.unwrap();
    let planned = |net: Child| policy(Level::O2).plan_for(&net, &trace, &speeds(1.0)).unwrap_err().to_string();
    let other = planned(Child::of(sequential![dense(4, 4), Tanh, dense(4, 2)]));
    assert!(other.contains("the trace is of another network: at `1` it has a ReLU, this one a Tanh"), "{other}");
    let shorter = planned(Child::of(sequential![dense(4, 4), ReLU]));
    assert!(shorter.contains("the trace is of another network") && shorter.contains("`2`"), "{shorter}");
}

/// The decisions for a machine can be expressed as rules, which give the same plan on any machine.
#[test]
fn a_settled_policy_plans_as_the_one_that_preferred_speed() {
    let rng = &mut Rng::seed(1);
    let net = Child::of(sequential![
        Dense::new(8, 16, rng),
        sequential![Dense::new(16, 64, rng), LayerNorm::new(&[64]), ReLU, Dense::new(64, 16, rng)],
        sequential![ReLU, sequential![Dense::new(16, 2, rng), Sigmoid]],
    ]);
    let mut added = 0;
    for level in [Level::O0, Level::O1, Level::O2, Level::O3, Level::Auto] {
        for cast in [0.0, 1.0, 3.0, 5.0, 6.0, 8.0, 12.0, 20.0, 40.0, 1000.0] {
            let (policy, speeds) = (policy(level), speeds(cast));
            let (called, trace) = net.trace(|net| net.call(&Tensor::ones(&[4, 8], DType::F32)));
            called.unwrap();
            let wanted = policy.plan_for(&net, &trace, &speeds).unwrap();
            let settled = policy.settled(&net, &trace, &speeds).unwrap();
            assert_eq!(settled.prefer, Prefer::Memory);
            // It survives writing and reading.
            let settled = Policy::parse(&settled.to_yaml().unwrap(), "settled").unwrap();
            let plan = settled.plan(&net).unwrap();
            for (met, wanted) in plan.decisions.iter().zip(&wanted.decisions) {
                let of = |d: &precast::plan::Decision| (d.path.clone(), d.run, d.adapter.clone());
                assert_eq!(of(met), of(wanted), "{level} {cast}\n{plan}");
            }
            added += settled.rules.len();
        }
    }
    assert!(added > 20, "{added}");
    let memory = Policy::new(Level::O2, DType::F16).unwrap();
    let (called, trace) = net.trace(|net| net.call(&Tensor::ones(&[4, 8], DType::F32)));
    called.unwrap();
    assert_eq!(memory.settled(&net, &trace, &speeds(1.0)).unwrap(), memory);
}
