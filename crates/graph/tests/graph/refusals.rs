//! Refusals to trace, run or read, and their messages.

use precast::{
    Backward, CustomOp, ErrorKind,
    layers::{BatchNorm1d, Dense, ReLU, Rng, Sequential},
    policy::{LossScaleSpec, Scaler},
    prelude::*,
};
use precast_graph::{Graph, GraphLevel, GraphPolicy, rewrite};

use crate::common::tensors::random;

fn small() -> Child {
    let r = &mut Rng::seed(1);
    Child::of(Sequential::new(vec![Dense::new(4, 8, r).into(), ReLU.into(), Dense::new(8, 2, r).into()]))
}

/// A cell that branches on a number.
#[derive(Cell, Debug)]
struct Chooses;

impl Forward for Chooses {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let doubled = (x * 2.0)?;
        if doubled.sum_all()?.item()? > 0.0 { doubled.relu() } else { doubled.neg() }
    }
}

#[test]
fn control_flow_that_depends_on_data_is_refused_where_it_is() {
    let net = Child::of(Sequential::new(vec![ReLU.into(), Chooses.into()]));
    let error = Graph::trace(&net, &[random(&[2, 3], 1)]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    let message = error.to_string();
    assert!(message.starts_with("the code in cell `1` reads the value of `sum_1`"), "{message}");
}

/// Another number of examples takes another branch of the code.
#[test]
fn a_graph_for_one_size_says_why() {
    let f = |x: &[Tensor]| Ok(vec![if x[0].shape()[0] == 2 { x[0].relu()? } else { x[0].relu()?.neg()? }]);
    let graph = Graph::trace_fn(&Default::default(), &[random(&[2, 3], 1)], f).unwrap();
    assert!(graph.only_batch().is_some());
    assert_eq!(graph.run(&[random(&[2, 3], 2)]).unwrap()[0].shape(), [2, 3]);
    let message = graph.run(&[random(&[3, 3], 2)]).unwrap_err().to_string();
    assert!(message.contains("it runs batches of 2 only"), "{message}");
}

#[test]
fn wrong_inputs_of_a_graph_are_named() {
    let graph = Graph::trace(&small(), &[random(&[2, 4], 1)]).unwrap();
    for (inputs, kind, words) in [
        (vec![], ErrorKind::Shape, "the graph takes 1 input, got 0"),
        (vec![random(&[2, 5], 1)], ErrorKind::Shape, "`input` is [2, 5]; the graph was traced with f32 [b, 4]"),
        (vec![random(&[2, 4], 1).cast(DType::F16)], ErrorKind::DType, "`input` is f16; the graph was traced with f32"),
    ] {
        let error = graph.run(&inputs).unwrap_err();
        assert_eq!((error.kind(), error.to_string()), (kind, words.to_string()));
    }
}

#[test]
fn what_is_low_already_is_not_rewritten() {
    let x = [random(&[2, 4], 1)];
    let policy = GraphPolicy::named("graph").unwrap();
    let mut net = small();
    let applied = Policy::new(Level::O2, DType::F16).unwrap().apply(&mut net).unwrap();
    let error = rewrite(&mut net, &x, &policy).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Value);
    assert!(error.to_string().contains("has an adapter"), "{error}");
    applied.undo(&mut net).unwrap();
    let mut low = rewrite(&mut net, &x, &policy).unwrap();
    let message = rewrite(&mut low, &x, &policy).unwrap_err().to_string();
    assert!(message.contains("is a rewritten graph already"), "{message}");
    // A policy whose fields contradict each other.
    let mut forced = GraphPolicy::new(DType::Bf16).unwrap();
    forced.level = GraphLevel::ForceAll;
    assert_eq!(rewrite(&mut net, &x, &forced).unwrap_err().kind(), ErrorKind::Level);
}

#[test]
fn a_wrong_file_is_refused_with_its_place() {
    let graph = Graph::trace(&small(), &[random(&[2, 4], 1)]).unwrap();
    let text = graph.to_json().unwrap();
    let line = text.lines().position(|line| line.contains("\"name\": \"relu_1\"")).unwrap() + 1;
    for (from, to, words) in [
        ("\"op\": \"Relu\"", "\"op\": \"Rellu\"", "node `relu_1`: no op is called `Rellu` (did you mean `Relu`?)"),
        (
            "\"inputs\": [\n        \"relu_1\"",
            "\"inputs\": [\n        \"relu_2\"",
            "no node before it gives `relu_2` (did you mean `relu_1`?)",
        ),
        ("\"precast_graph\": 1", "\"precast_graph\": 9", "a graph of version 9; this precast reads version 1"),
        ("\"name\": \"relu_1\"", "\"nmae\": \"relu_1\"", "unknown field `nmae`"),
        (
            "\"op\": \"Relu\"",
            "\"op\": \"Relu\", \"attributes\": {\"slope\": 1}",
            "node `relu_1`: has no attribute `slope`",
        ),
        ("\"op\": \"Relu\"", "\"op\": \"Unstack\"", "node `relu_1`: Unstack has no kernel"),
    ] {
        assert!(text.contains(from), "{from} in {text}");
        let message = Graph::from_json(&text.replacen(from, to, 1)).unwrap_err().to_string();
        let words = words.replace("node `relu_1`:", &format!("node `relu_1`, line {line}:"));
        assert!(message.contains(&words), "{message}");
    }
    assert!(Graph::from_json("").unwrap_err().to_string().contains("line 1"));
}

#[test]
fn outputs_that_are_inputs_and_empty_functions_are_graphs() {
    let x = random(&[2, 3], 1);
    let graph = Graph::trace_fn(&Default::default(), &[x.clone(), x.clone()], |x| Ok(vec![x[1].clone(), x[0].clone()]))
        .unwrap();
    assert_eq!(graph.nodes().len(), 2);
    let y = random(&[2, 3], 2);
    let outputs = graph.run(&[x.clone(), y.clone()]).unwrap();
    assert_eq!((outputs[0].to_f64(), outputs[1].to_f64()), (y.to_f64(), x.to_f64()));
    let nothing = Graph::trace_fn(&Default::default(), &[], |_| Ok(vec![])).unwrap();
    assert!(nothing.run(&[]).unwrap().is_empty());
    assert!(nothing.to_svg().contains("0 ops, 0 casts"));
    assert_eq!(Graph::from_json(&nothing.to_json().unwrap()).unwrap().nodes().len(), 0);
}

/// An op that halves its input, with a function as its option.
#[derive(Clone)]
struct Halves(fn(f64) -> f64);

impl CustomOp for Halves {
    const NAME: &'static str = "HalvesInAGraph";

    fn forward(&self, x: &[Tensor], _saved: &mut Vec<Tensor>) -> Result<Tensor> {
        &x[0] * (self.0)(1.0)
    }

    fn backward(&self, back: &Backward<'_>) -> Result<Vec<Option<Tensor>>> {
        Ok(vec![Some((back.grad * (self.0)(1.0))?)])
    }
}

/// A custom op runs in a graph, stays f32 in a rewritten one, and cannot be written to a file.
#[test]
fn a_custom_op_runs_and_is_not_written() {
    let net = small();
    let x = random(&[2, 4], 1);
    let f = |net: &Child, x: &[Tensor]| Ok(vec![Halves(|x| x / 2.0).apply(&[&net.call(&x[0])?])?.relu()?]);
    let graph = Graph::trace_with(&net, std::slice::from_ref(&x), f).unwrap();
    let wanted = f(&net, std::slice::from_ref(&x)).unwrap().remove(0);
    let found = graph.run(std::slice::from_ref(&x)).unwrap().remove(0);
    assert_eq!(found.to_f64(), wanted.to_f64());
    let (a, b) = (wanted.sum_all().unwrap().backward().unwrap(), found.sum_all().unwrap().backward().unwrap());
    let (_, weight) = &net.named_params()[0];
    assert_eq!(a.get(weight).unwrap().to_f64(), b.get(weight).unwrap().to_f64());
    let low = graph.rewrite(&GraphPolicy::named("graph").unwrap()).unwrap().graph;
    let place = low.nodes().iter().find(|node| node.op_name() == "HalvesInAGraph").unwrap();
    assert_eq!(place.outputs[0].dtype, DType::F32);
    assert_eq!(low.run(&[x]).unwrap()[0].dtype(), DType::F32);
    let error = graph.to_json().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    assert!(error.to_string().contains("the custom op HalvesInAGraph"), "{error}");
}

/// A batch of one has no variance: the running statistics would be NaN.
#[test]
fn a_batch_norm_in_a_graph_refuses_what_its_layer_refuses() {
    let mut net = Child::of(Sequential::new(vec![BatchNorm1d::new(4).into()]));
    let mut low = rewrite(&mut net, &[random(&[6, 4], 1)], &GraphPolicy::named("graph").unwrap()).unwrap();
    low.set_train(true);
    let error = low.call(&random(&[1, 4], 2)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Shape);
    assert!(error.to_string().contains("at least 2 values for each channel"), "{error}");
    assert!(low.named_params().iter().all(|(_, param)| param.value().all_finite()));
}

/// A parameter not registered with the graph would be frozen in it.
#[test]
fn a_captured_parameter_is_refused() {
    let captured = Param::new(random(&[3], 1));
    let f = |x: &[Tensor]| Ok(vec![x[0].mul(&captured.tensor())?]);
    let error = Graph::trace_fn(&Default::default(), &[random(&[2, 3], 1)], f).unwrap_err();
    assert!(error.to_string().contains("hand it in as an input, or among the parameters"), "{error}");
    let params = [("w".to_string(), captured.clone())].into_iter().collect();
    let graph = Graph::trace_fn(&params, &[random(&[2, 3], 1)], f).unwrap();
    assert!(graph.named_params()[0].1.is_same(&captured));
}

/// A file whose nodes do not provide the declared outputs is an error at run time, not a panic.
#[test]
fn a_file_that_promises_too_much_is_refused_when_it_runs() {
    let x = random(&[2, 3], 1);
    let graph = Graph::trace_fn(&Default::default(), std::slice::from_ref(&x), |x| Ok(vec![x[0].relu()?]));
    let mut json: serde_json::Value = serde_json::from_str(&graph.unwrap().to_json().unwrap()).unwrap();
    let output = json["nodes"][1]["outputs"][0].clone();
    json["nodes"][1]["outputs"].as_array_mut().unwrap().push(output);
    json["outputs"] = serde_json::json!(["relu_1:1"]);
    let error = Graph::from_json(&json.to_string()).unwrap().run(&[x]).unwrap_err();
    assert_eq!(error.to_string(), "node `relu_1`: gives 1 outputs, and the graph has 2");
}

/// The fields of a policy are public, so a rewrite checks them again.
#[test]
fn a_policy_that_was_changed_is_checked_again() {
    let message = |error: precast::Error| error.to_string();
    let graph = Graph::trace_fn(&Default::default(), &[], |_| Ok(vec![])).unwrap();
    let mut policy = GraphPolicy::new(DType::F16).unwrap();
    policy.lists = Lists::new().full("Dense");
    assert!(message(graph.rewrite(&policy).unwrap_err()).contains("does not read the full list of cells"));
    let mut forced = GraphPolicy::new(DType::Bf16).unwrap();
    forced.level = GraphLevel::ForceAll;
    assert!(message(graph.rewrite(&forced).unwrap_err()).contains("only float16 can be forced"));
    let mut unscaled = GraphPolicy::new(DType::F16).unwrap();
    (unscaled.scaler, unscaled.loss_scale) = (Scaler::Required, LossScaleSpec::None);
    assert!(message(graph.rewrite(&unscaled).unwrap_err()).contains("allowed: fixed, dynamic"));
}
