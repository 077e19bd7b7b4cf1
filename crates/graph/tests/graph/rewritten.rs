//! Rewritten networks: casts, parameters, files, and learning.

use precast::{prelude::*, storage::weights};
use precast_graph::{Graph, GraphCell, GraphPolicy, rewrite};

use crate::{
    common::{folder::Folder, tensors::bits},
    nets::{self, Task},
};

fn lenet5() -> (Child, Tensor) {
    let Task { net, x, .. } = nets::task("lenet5", 1).unwrap();
    (net, x.slice(0, 0..4).unwrap())
}

#[test]
fn rewritten_networks_share_parameters_and_return_f32() {
    let (mut net, x) = lenet5();
    let low = rewrite(&mut net, std::slice::from_ref(&x), &GraphPolicy::named("graph").unwrap()).unwrap();
    let paths = |params: Vec<(String, Param)>| params.into_iter().map(|(path, _)| path).collect::<Vec<_>>();
    assert_eq!(paths(low.named_params()), paths(net.named_params()));
    for ((_, a), (_, b)) in low.named_params().iter().zip(net.named_params()) {
        assert!(a.is_same(&b) && a.dtype() == DType::F32);
    }
    let (y, wanted) = (low.call(&x).unwrap(), net.call(&x).unwrap());
    assert_eq!(y.dtype(), DType::F32);
    // Five layers of f16 products: each element within some epsilons of the largest.
    let largest = wanted.to_f64().iter().fold(0.0, |m: f64, x| m.max(x.abs()));
    for (a, b) in y.to_f64().iter().zip(wanted.to_f64()) {
        assert!((a - b).abs() < 16.0 * largest / 1024.0, "{a} against {b}");
    }
    assert_ne!(bits(&y), bits(&wanted));
}

/// Casts of activations in a step: a graph lowers once at its entry and widens once at its end; O1 does so at each
/// layer.
#[test]
fn a_graph_casts_less_than_o1() {
    for name in ["lenet5", "mlp", "gpt"] {
        let Task { mut net, x, .. } = nets::task(name, 1).unwrap();
        let x = [x.slice(0, 0..2).unwrap()];
        let graph = rewrite(&mut net, &x, &GraphPolicy::named("graph").unwrap()).unwrap();
        let of_graph = graph.trace(|net| net.call_many(&x).unwrap()).1.casts();
        // Low copies of parameters are kept, so a separate network is counted.
        let mut net = nets::task(name, 1).unwrap().net;
        let _applied = Policy::new(Level::O1, DType::F16).unwrap().apply(&mut net).unwrap();
        let of_o1 = net.trace(|net| net.call_many(&x).unwrap()).1.casts();
        println!("casts of a forward pass of {name}: graph {of_graph}, O1 {of_o1}");
        // O1 lowers everything between the layers of the mlp as well.
        let fewer = of_graph < of_o1 || (name == "mlp" && of_graph == of_o1);
        assert!(fewer, "{name}: {of_graph} casts, at O1 {of_o1}");
    }
}

#[test]
fn a_graph_cell_goes_through_files() {
    let (mut net, x) = lenet5();
    net.set_train(true);
    let low = rewrite(&mut net, std::slice::from_ref(&x), &GraphPolicy::named("graph").unwrap()).unwrap();
    let folder = Folder::new("graph");
    let file = folder.at("weights.safetensors");
    weights::save(&low, &file).unwrap();
    let json = serde_json::to_string(&low.erase()).unwrap();
    assert!(json.starts_with(r#"{"kind":"GraphCell""#), "{}", &json[..60]);
    let read: Child = serde_json::from_str(&json).unwrap();
    weights::load(&read, &file).unwrap();
    let low = rewrite(&mut net, std::slice::from_ref(&x), &GraphPolicy::named("graph").unwrap()).unwrap();
    assert_eq!(bits(&read.call(&x).unwrap()), bits(&low.call(&x).unwrap()));
    // Weights of the network fit the graph: the paths are the same.
    assert_eq!(read.named_params().len(), net.named_params().len());
}

#[test]
fn casts_that_cancel_can_be_taken_out() {
    let (mut net, x) = lenet5();
    let _applied = Policy::new(Level::O1, DType::F16).unwrap().apply(&mut net).unwrap();
    let graph = Graph::trace(&net, std::slice::from_ref(&x)).unwrap();
    let fewer = graph.with_fewer_casts();
    assert!(fewer.casts() < graph.casts(), "{} of {}", fewer.casts(), graph.casts());
    // Only unread widenings were removed here: the values are the same.
    assert_eq!(bits(&fewer.run(std::slice::from_ref(&x)).unwrap()[0]), bits(&net.call(&x).unwrap()));
}

#[test]
fn drawings_show_cells_casts_and_reasons() {
    let (net, x) = lenet5();
    let graph = Graph::trace(&net, std::slice::from_ref(&x)).unwrap();
    let low = graph.rewrite(&GraphPolicy::named("graph").unwrap()).unwrap();
    let svg = low.to_svg();
    assert!(svg.starts_with("<svg") && svg.trim_end().ends_with("</svg>"));
    for words in ["conv2d_1", "on the allow list", "16 bit", "f16 [b, 6, "] {
        assert!(svg.contains(words), "{words}");
    }
    let dot = low.graph.to_dot();
    assert!(dot.starts_with("digraph {") && dot.matches(" -> ").count() >= low.graph.nodes().len() - 2);
    let _ = GraphCell::trace(&mut lenet5().0, std::slice::from_ref(&x)).unwrap();
}

/// A graph runs in the dtypes it was traced with, whatever encloses it.
#[test]
fn a_graph_cell_in_a_tree_at_o2() {
    let x = Tensor::randn(&[2, 4], &mut Rng::seed(3)).unwrap();
    let mut inner = Child::of(sequential![Dense::new(4, 4, &mut Rng::seed(1)), ReLU]);
    let graph = GraphCell::trace(&mut inner, std::slice::from_ref(&x)).unwrap();
    let mut net = Child::of(sequential![graph, Dense::new(4, 2, &mut Rng::seed(2))]);
    let _applied = Policy::new(Level::O2, DType::F16).unwrap().apply(&mut net).unwrap();
    let (y, trace) = net.trace(|net| net.call(&x));
    assert_eq!(y.unwrap().dtype(), DType::F32);
    let ran = |path: &str| -> Vec<(Op, DType)> {
        let ops = trace.ops.iter().filter(|op| op.path == path);
        ops.map(|op| (op.op, op.output)).filter(|(op, _)| *op != Op::Cast).collect()
    };
    assert_eq!(ran("0"), [(Op::Linear, DType::F32), (Op::Relu, DType::F32)]);
    assert_eq!(ran("1"), [(Op::Linear, DType::F16)]);
    // The plan's casts apply to the inputs of the graph: a number beyond f16 is infinite there.
    let beyond = x.mul(&Tensor::scalar(1e6, DType::F32)).unwrap();
    assert!(net.call(&beyond).unwrap().to_f64().iter().any(|y| !y.is_finite()));
}

/// Files of networks name the kind as any other.
#[test]
fn the_kind_is_registered_and_read_back_as_written() {
    assert!(precast::layers::kinds().unwrap().contains(&"GraphCell"));
    let info = precast::io::kinds::describe("GraphCell").unwrap();
    assert!(!info.about.is_empty() && info.elsewhere.is_some());
    let net = "{kind: GraphCell, evaluation: {precast_graph: 1, batch: 2, inputs: [input], outputs: [relu_1], nodes: [\
               {name: input, op: Input, outputs: [{dtype: float32, shape: [{each: 1, plus: 0}, 3]}]}, \
               {name: relu_1, op: Relu, inputs: [input], outputs: [{dtype: float32, shape: [{each: 1, plus: 0}, 3]}]}]}}";
    let read = |text: &str| precast::io::models::parse(text, "test.yaml", 7).unwrap();
    let net = read(&format!("version: 1\nnet: {net}\n"));
    let written = precast::io::models::to_yaml(&net).unwrap();
    assert_eq!(precast::io::models::to_yaml(&read(&written)).unwrap(), written);
    let x = Tensor::from_f64(&[-1.0, 0.5, 2.0], &[1, 3], DType::F32).unwrap();
    assert_eq!(read(&written).call(&x).unwrap().to_f64(), [0.0, 0.5, 2.0]);
}
