//! MindSpore 2.10's recorded behaviour compared with ours, case by case.
//!
//! A folder may lack cases; a case that is present but not recognized fails. `PRECAST_GOLDENS_VERBOSE=1` prints a line
//! for each case.

mod calls;
mod case;
mod compare;
mod exact;
mod golden;
mod kept;
pub mod misc;
mod networks;
mod on_purpose;
mod rule;
mod training;
mod unfused;

use crate::common::golden::left_out;
use crate::replay::{Judged, Tally, Verdict, replay};
use case::{Case, Effect};
use compare::compare;
use golden::{Golden, Lowering, Mode, lowering};
use networks::Kit;
use precast::{DType, Op, Tensor};

/// Judges one case in one mode, and adds to `fused` the number of layers compared with the library's own.
fn judge(name: &str, key: &str, net: &golden::Net, record: &golden::Record, mode: Mode, fused: &mut usize) -> Judged {
    let Some((lowering, low)) = lowering(key) else {
        return Err("the case is not understood".into());
    };
    let case = Case { name, net, record, mode, lowering, low };
    let ours = case.run(Kit::Unfused);
    let mut failures = second_alone(&case);
    if let Some(frame) = precast::precision::current() {
        failures.push(format!("a region is left open: {frame:?}"));
    }
    if let Ok(ours) = &ours {
        let (_, calls) = calls::watched(|| case.run(Kit::Unfused));
        failures.extend(rule::broken(&case, ours, &calls));
        failures.extend(kept::broken(&case, ours));
        let (layers, too_far) = own_cells(&case, ours);
        *fused += layers;
        failures.extend(too_far);
    }
    let found = compare(&case, ours.as_ref().map_err(Clone::clone));
    failures.extend(found.wrong);
    // Values differ because of the other points, if there are any; alone, they are close.
    if found.differ.is_empty() {
        failures.extend(found.far.iter().cloned());
    }
    let agrees = found.differ.is_empty() && found.values.is_empty() && found.far.is_empty();
    if failures.is_empty() { Ok(Verdict::of(agrees)) } else { Err(failures.join("\n    ")) }
}

/// Counts and lists the deviations of the network of the library's own cells, which round product and bias together,
/// from the one of single ops, beyond 2 units in the last place of the coarsest dtype for each such cell. At level auto
/// a product is on the white list and the addition of an f32 bias promotes, so single ops return f32 where the one op
/// here returns its rounded result: there, and only there, the dtype may be low.
fn own_cells(case: &Case<'_>, unfused: &case::Ours) -> (usize, Vec<String>) {
    let library = match case.run(Kit::Library) {
        Ok(library) => library,
        Err(error) => return (0, vec![format!("with the library's cells: {error}")]),
    };
    let fused = |kind: &str| kind == "Dense" || kind.starts_with("Conv") || kind.ends_with("Cell");
    let cells = library.plan.decisions.iter().filter(|d| fused(&d.kind)).count();
    let coarsest = unfused.trace.ops.iter().map(|op| op.output.epsilon()).fold(0.0, f64::max);
    let returns_low = matches!(case.effect(), Effect::EachOp(_))
        && library.trace.ops.iter().any(|op| rounds_with_bias(op.op) && op.output == case.low);
    let too_far = match (&unfused.outputs, &library.outputs) {
        (Ok(unfused), Ok(library)) => {
            let mut failures = vec![];
            for (leaf, (a, b)) in unfused.iter().zip(library).enumerate() {
                let (off, largest) = (compare::largest_difference(&a.to_f64(), &b.to_f64()), compare::magnitude(a));
                let allowed = 2.0 * cells as f64 * coarsest * largest;
                let stays_low = (a.dtype(), b.dtype()) == (DType::F32, case.low) && returns_low;
                if (a.dtype() != b.dtype() && !stays_low) || a.shape() != b.shape() {
                    let of = |y: &Tensor| format!("{} {:?}", y.dtype(), y.shape());
                    failures.push(format!("output {leaf}: {}, with the library's cells {}", of(a), of(b)));
                }
                if off.is_nan() || off > allowed {
                    failures.push(format!("output {leaf} with the library's cells: off by {off:.3e} of {allowed:.3e}"));
                }
            }
            failures
        }
        (Err(a), Err(b)) if a.kind() == b.kind() => vec![],
        (Err(a), Err(b)) => vec![format!("with the library's cells: {a}; with single ops only: {b}")],
        (Ok(_), Err(error)) => vec![format!("with the library's cells: {error}")],
        (Err(error), Ok(_)) => vec![format!("with single ops only: {error}")],
    };
    (cells, too_far)
}

/// Returns whether the op takes a bias and rounds product and bias together.
fn rounds_with_bias(op: Op) -> bool {
    matches!(op, Op::Linear | Op::Conv2d | Op::Conv3d | Op::ConvTranspose2d | Op::ConvTranspose3d)
}

/// Lists the differences of a network lowered twice from one lowered only by the second level.
fn second_alone(case: &Case<'_>) -> Vec<String> {
    if !matches!(case.lowering, Lowering::Twice(..)) {
        return vec![];
    }
    let (twice, once) = (case.run(Kit::Unfused), case.run_as(Kit::Unfused, &case.in_force()));
    let same = match (&twice, &once) {
        (Ok(a), Ok(b)) => {
            let numbers = |ys: &Vec<Tensor>| ys.iter().map(|y| (y.dtype(), y.to_f64())).collect::<Vec<_>>();
            let outputs = a.outputs.as_ref().map(numbers) == b.outputs.as_ref().map(numbers);
            outputs && a.plan == b.plan && a.trace == b.trace
        }
        _ => false,
    };
    if same { vec![] } else { vec!["the second level does not simply replace the first".into()] }
}

/// A result of nested tuples, typed by the call, has every floating-point tensor cast, like the recorded one.
#[test]
fn nested_results_keep_their_nesting() {
    let Some(mut golden) = Golden::read() else { return };
    let Some(net) = golden.nets.remove("tuple_output") else { return left_out("the network tuple_output") };
    for (key, record) in &net.cases {
        let Some((Lowering::Level(level), low)) = lowering(key) else { continue };
        let Some(out) = record.pynative.as_ref().and_then(|run| run.out.as_ref()) else { continue };
        assert_eq!(out.nesting(), "(_ (_ _ _))");
        let mut child = precast::Child::new(networks::TupleNet::new(Kit::Unfused));
        let _applied = case::mindspore(level, low).unwrap().apply(&mut child).unwrap();
        let inputs: Vec<Tensor> = net.inputs.iter().flat_map(|x| x.leaves()).map(|x| x.tensor()).collect();
        let (y, (i, n, z)) = child.with((&inputs[0], &inputs[1]), |net, (x, n)| net.run(&x, &n, None)).unwrap();
        let dtypes: Vec<_> = out.leaves().iter().map(|leaf| golden::dtype(&leaf.dtype)).collect();
        assert_eq!([y, i, n, z].map(|y| y.dtype()).as_slice(), dtypes, "{key}");
    }
}

/// Includes combinations absent from the folder: every network at every level, in every mode recorded for some network.
/// Lowering never fails, and the output of O2 and O3 is f32.
#[test]
fn every_network_runs_at_every_level() {
    let Some(golden) = Golden::read() else { return };
    let record = golden::Record::default();
    let lowerings = || {
        let levels = precast::Level::ALL;
        let twice = levels.into_iter().flat_map(move |a| levels.map(|b| Lowering::Twice(a, b)));
        let lists = [vec![], vec!["Dense"], vec!["LSTMCell"], vec!["BatchNorm1d", "ReLU"], vec!["SequentialCell"]];
        let lists = lists.map(|list| list.into_iter().map(str::to_string).collect::<Vec<_>>());
        let custom = lists.into_iter().flat_map(|list| [Lowering::White(list.clone()), Lowering::Black(list)]);
        levels.map(Lowering::Level).into_iter().chain(twice).chain(custom)
    };
    for (name, net) in golden.nets.iter().filter(|(name, _)| *name != "lenet5") {
        for low in [DType::F16, DType::Bf16] {
            for lowering in lowerings() {
                let case = Case { name, net, record: &record, mode: Mode::PyNative, lowering: lowering.clone(), low };
                let ours = case.run(Kit::Unfused).unwrap_or_else(|e| panic!("{name} {lowering:?} {low}: {e}"));
                let dense_is_lowered = match case.effect() {
                    Effect::Nothing => false,
                    Effect::Listed(list) => list.cells().contains_key("Dense"),
                    Effect::AllBut(_) => true,
                    Effect::EachOp(lists) => lists.op(Op::MatMul, low).is_some(),
                };
                // Two dtypes in a product without a policy: an error, as there.
                if name == "mlp_f16_input" && !dense_is_lowered {
                    assert!(ours.outputs.is_err());
                    continue;
                }
                let (_, calls) = calls::watched(|| case.run(Kit::Unfused));
                let broken = rule::broken(&case, &ours, &calls);
                assert!(broken.is_empty(), "{name} {lowering:?} {low}:\n{}", broken.join("\n"));
                let outputs = ours.outputs.unwrap_or_else(|e| panic!("{name} {lowering:?} {low}: {e}"));
                if matches!(case.effect(), Effect::AllBut(_)) {
                    assert!(outputs.iter().all(|y| !y.dtype().is_low()), "{name} {lowering:?} {low}");
                }
            }
        }
    }
}

/// Judges every case of every network.
fn judge_all(golden: &Golden, tally: &mut Tally) {
    let mut fused = 0;
    let records = golden.nets.iter().flat_map(|(name, net)| net.cases.iter().map(move |case| (name, net, case)));
    for (name, net, (key, record)) in records {
        let (first, second) = record.modes();
        tally.count(format!("{name} {key}"), judge(name, key, net, record, first, &mut fused));
        if let Some(graph) = second {
            tally.count(format!("{name} {key}, as a graph"), judge(name, key, net, record, graph, &mut 0));
        }
    }
    println!("  {fused:4} layers of the library's own, product and bias in one rounding, within 2 units each");
}

#[test]
fn every_recorded_case() {
    replay("mindspore", "golden", Golden::read(), judge_all);
}

/// Single RNN, GRU and LSTM cells of several sizes: MindSpore's f16 results are reproduced from its rounding, down to
/// the splitting of gates.
#[test]
fn recurrent_cells_of_every_size() {
    replay("mindspore", "recurrent", Golden::recurrent(), judge_all);
}
