//! Networks as ONNX models: exported, imported again, and checked against the graph.

use std::{collections::BTreeMap, fs, path::Path, slice::from_ref};

use precast::{
    Op,
    catalogue::Attributes,
    io::models::Model,
    no_grad,
    observe::{Listener, OpCall, listen},
    policy::GraphPolicy,
    prelude::*,
    run_with,
};
use precast_graph::{
    Graph, GraphCell, Kind,
    onnx::{self, ExportOptions, ImportOptions, OnnxModel, export_bytes},
};

use super::{
    common::npy::npy,
    nets::{self, Task},
};

/// Returns a network and its inputs: one of the benches, or a shipped model.
fn network(name: &str) -> (Child, Tensor) {
    if nets::NAMES.contains(&name) {
        let Task { net, x, .. } = nets::task(name, 1).expect("a network of the benches");
        return (net, x.slice(0, 0..2).expect("two examples"));
    }
    let name = name.strip_prefix("shipped-").expect("a shipped model");
    let model = Model::named(name, 3).expect("a shipped model");
    let shape = [&[2], &model.input.clone().expect("its input")[..]].concat();
    (model.net, Tensor::randn(&shape, &mut Rng::seed(5)).expect("numbers"))
}

fn names() -> Vec<String> {
    let shipped = Model::names().map(|name| format!("shipped-{name}"));
    nets::NAMES.iter().map(|name| name.to_string()).chain(shipped).collect()
}

/// The policies of the checks.
const POLICIES: [&str; 6] = ["o0", "o2", "o2-bf16", "o1-bf16", "graph", "graph-bf16"];

/// Records a network in evaluation under a policy.
fn traced(net: &mut Child, x: &Tensor, policy: &str) -> Result<Graph> {
    net.set_train(true);
    if policy.starts_with("graph") {
        net.set_train(false);
        return Ok(Graph::trace(net, from_ref(x))?.rewrite(&GraphPolicy::named(policy)?)?.graph);
    }
    let _applied = Policy::named(policy)?.plan(net)?.apply(net)?;
    net.set_train(false);
    Graph::trace(net, from_ref(x))
}

fn imported(graph: &Graph, options: &ExportOptions) -> Result<Child<onnx::OnnxNetwork>> {
    OnnxModel::from_bytes(export_bytes(graph, options)?)?.import(&ImportOptions::new())
}

fn largest(numbers: &[f64]) -> f64 {
    numbers.iter().fold(0.0, |most, x| most.max(x.abs()))
}

/// The largest difference of two results, relative to the largest number of the first.
fn off(a: &Tensor, b: &Tensor) -> f64 {
    assert_eq!((a.dtype(), a.shape()), (b.dtype(), b.shape()));
    let (a, b) = (a.to_f64(), b.to_f64());
    let differences: Vec<f64> = a.iter().zip(&b).map(|(a, b)| a - b).collect();
    largest(&differences) / largest(&a)
}

#[test]
fn an_imported_export_computes_what_the_graph_computes() -> Result<()> {
    for name in names() {
        for policy in POLICIES {
            for explicit in [false, true] {
                let (mut net, x) = network(&name);
                let graph = traced(&mut net, &x, policy)?;
                let options = ExportOptions::new().explicit(explicit);
                let again = imported(&graph, &options).map_err(|e| e.context(format!("{name} {policy}")))?;
                for x in [x.clone(), x.slice(0, 0..1)?] {
                    let (wanted, met) = (graph.run(from_ref(&x))?, no_grad(|| again.call_many(&[x]))?);
                    let off = off(&wanted[0], &met[0]);
                    let bound = match (policy, explicit) {
                        ("o0", _) => 1e-5,
                        // A deviation of one rounding, here and there.
                        (policy, true) => {
                            if policy.ends_with("bf16") {
                                2e-2
                            } else {
                                2e-3
                            }
                        }
                        (policy, false) => {
                            if policy.ends_with("bf16") {
                                5e-2
                            } else {
                                1e-2
                            }
                        }
                    };
                    assert!(off <= bound, "{name} {policy} explicit {explicit}: off by {off}");
                }
            }
        }
    }
    Ok(())
}

#[test]
fn parameters_keep_their_paths_and_their_bits() -> Result<()> {
    for name in names() {
        let (mut net, x) = network(&name);
        let graph = traced(&mut net, &x, "o2")?;
        let again = imported(&graph, &ExportOptions::new())?;
        let all = |params: Vec<(String, Param)>| {
            let entry = |(path, param): (String, Param)| (path, param.value().to_f64());
            params.into_iter().map(entry).collect::<BTreeMap<String, Vec<f64>>>()
        };
        assert_eq!(all(again.named_params()), all(graph.named_params()), "{name}");
    }
    Ok(())
}

/// Returns the ops of a graph with their dtypes. Views come and go, as ONNX needs them, and one product has three names.
fn ops(graph: &Graph) -> Vec<(String, DType)> {
    let views = ["Reshape", "Flatten", "Unsqueeze", "Squeeze"];
    let op = |node: &precast_graph::Node| match node.kind {
        Kind::Op(op) if !views.contains(&op.name()) => {
            let name = if ["MatMul", "BatchMatMul"].contains(&op.name()) { "MatMulExt" } else { op.name() };
            Some((name.to_string(), node.outputs[0].dtype))
        }
        _ => None,
    };
    graph.nodes().iter().filter_map(op).collect()
}

#[test]
fn an_export_imports_to_the_same_graph() -> Result<()> {
    for name in ["lenet5", "mlp", "resnet18"].map(String::from).into_iter().chain(names().split_off(5)) {
        for policy in ["o0", "o2", "graph"] {
            let (mut net, x) = network(&name);
            let graph = traced(&mut net, &x, policy)?;
            // ONNX has GlobalAveragePool for a pool to one place, which is a mean here.
            let mut wanted = ops(&graph);
            wanted.iter_mut().filter(|(op, _)| op == "AdaptiveAvgPool2d").for_each(|(op, _)| *op = "Mean".into());
            let again = imported(&graph, &ExportOptions::new())?;
            let met = Graph::trace(&again, &[x])?;
            assert_eq!(ops(&met), wanted, "{name} {policy}");
            assert_eq!(met.only_batch(), graph.only_batch(), "{name}");
        }
    }
    Ok(())
}

#[test]
fn an_export_has_the_same_bytes_each_time() -> Result<()> {
    for policy in ["o0", "o2", "graph"] {
        let (mut net, x) = network("lenet5");
        let graph = traced(&mut net, &x, policy)?;
        for options in [ExportOptions::new(), ExportOptions::new().explicit(true).opset(13)] {
            assert_eq!(export_bytes(&graph, &options)?, export_bytes(&graph, &options)?);
        }
    }
    Ok(())
}

#[test]
fn every_opset_is_written_and_others_are_refused() -> Result<()> {
    let (mut net, x) = network("gpt");
    let graph = traced(&mut net, &x, "o2-bf16")?;
    let wanted = graph.run(from_ref(&x))?;
    for opset in 13..=24 {
        let model = OnnxModel::from_bytes(export_bytes(&graph, &ExportOptions::new().opset(opset))?)?;
        assert_eq!(model.opset(), opset);
        let met = no_grad(|| model.import(&ImportOptions::new())?.call_many(from_ref(&x)))?;
        let off = off(&wanted[0], &met[0]);
        assert!(off <= 3e-2, "opset {opset}: off by {off}");
    }
    for opset in [-1, 0, 12, 25, i64::MAX] {
        let words = export_bytes(&graph, &ExportOptions::new().opset(opset)).unwrap_err().to_string();
        assert_eq!(words, format!("opset {opset} cannot be written; allowed: 13 to 24"));
    }
    Ok(())
}

#[test]
fn what_cannot_be_exported_is_named_with_its_node() -> Result<()> {
    let refused = |net: &Child, x: &Tensor| {
        let graph = Graph::trace(net, from_ref(x)).expect("a graph");
        export_bytes(&graph, &ExportOptions::new()).unwrap_err().to_string()
    };
    let r = &mut Rng::seed(1);
    let x = Tensor::ones(&[2, 3], DType::F32);
    let mut net: Child = sequential![Dense::new(3, 3, r), Dropout::new(0.5, r)].into();
    net.set_train(true);
    let words = refused(&net, &x);
    assert!(words.starts_with("node `dropout_1` of cell `1` (Dropout): it drops numbers at random"), "{words}");
    let mut net: Child = sequential![BatchNorm1d::new(3)].into();
    net.set_train(true);
    let words = refused(&net, &x);
    assert!(words.starts_with("the graph updates the buffer `0."), "{words}");
    let graph = Graph::trace_fn(&Default::default(), &[x], |x| Ok(vec![x[0].erfinv()?]))?;
    let words = export_bytes(&graph, &ExportOptions::new()).unwrap_err().to_string();
    assert_eq!(words, "node `erfinv_1` (Erfinv): ONNX has no inverse of Erf");
    Ok(())
}

#[test]
fn a_file_is_replaced_only_if_asked() -> Result<()> {
    let folder = std::env::temp_dir().join(format!("precast-export-{}", std::process::id()));
    fs::create_dir_all(&folder).expect("a folder");
    let path = folder.join("model.onnx");
    let (mut net, x) = network("mlp");
    let graph = traced(&mut net, &x, "o0")?;
    onnx::export(&graph, &path, &ExportOptions::new())?;
    assert_eq!(fs::read(&path).expect("a file"), export_bytes(&graph, &ExportOptions::new())?);
    let words = onnx::export(&graph, &path, &ExportOptions::new().replace(false)).unwrap_err().to_string();
    assert!(words.ends_with("model.onnx: already exists"), "{words}");
    assert_eq!(fs::read_dir(&folder).expect("a folder").count(), 1);
    fs::remove_dir_all(&folder).ok();
    Ok(())
}

#[test]
fn an_imported_network_trains_and_is_exported_again() -> Result<()> {
    let (mut net, x) = network("lenet5");
    let graph = traced(&mut net, &x, "o0")?;
    let again = imported(&graph, &ExportOptions::new())?;
    let before = again.call(&x)?;
    let mut optimizer = Sgd::new(again.params(), 0.05);
    optimizer.update(&again.call(&x)?.square()?.mean_all()?.backward()?)?;
    let after = again.call(&x)?;
    assert_ne!(before.to_f64(), after.to_f64());
    let third = imported(&Graph::trace(&again, from_ref(&x))?, &ExportOptions::new())?;
    assert_eq!(third.call(&x)?.to_f64(), after.to_f64());
    Ok(())
}

/// The low calls of a run, each with its inputs and its result.
#[derive(Default)]
struct Low(Vec<(Op, Attributes, Vec<Tensor>, Tensor)>);

impl Listener for Low {
    fn op(&mut self, call: &OpCall<'_>) {
        if call.output.dtype().is_low() && call.op != Op::Cast {
            self.0.push((call.op, call.attributes.clone(), call.inputs.to_vec(), call.output.clone()));
        }
    }
}

/// Writes each low op of a run as a model of its own, so that no op gets what another has rounded otherwise.
fn low_ops(graph: &Graph, x: &Tensor, to: &Path) -> Result<()> {
    let (run, low) = listen(Low::default(), || graph.run(from_ref(x)));
    run?;
    for (place, (op, attributes, inputs, output)) in low.0.iter().enumerate() {
        let low = output.dtype();
        let wide: Vec<Tensor> =
            inputs.iter().map(|x| if x.dtype().is_low() { x.cast(DType::F32) } else { x.clone() }).collect();
        let call = |x: &[Tensor]| {
            let given = |(x, of): (&Tensor, &Tensor)| x.cast(of.dtype());
            let x: Vec<Tensor> = x.iter().zip(inputs).map(given).collect();
            let mut x: Vec<&Tensor> = x.iter().collect();
            if *op == Op::Embedding {
                x.reverse();
            }
            Ok(vec![run_with(*op, attributes, &x)?[0].cast(DType::F32)])
        };
        let graph = Graph::trace_fn(&Default::default(), &wide, call)?;
        let at = to.with_file_name(format!(
            "node-{}-{place}-{}-{op}",
            to.file_name().unwrap_or_default().to_string_lossy(),
            low.name()
        ));
        fs::create_dir_all(&at).expect("a folder");
        onnx::export(&graph, at.join("explicit.onnx"), &ExportOptions::new().explicit(true))?;
        wide.iter().enumerate().for_each(|(index, x)| npy(&at.join(format!("input_{index}.npy")), x));
        npy(&at.join("output_0.npy"), output);
    }
    Ok(())
}

/// Writes each network under each policy into the folder `PRECAST_ONNX_EXPORTED`, with an input and the output of the
/// graph: `cargo xtask onnx --exports --python PATH` runs them in onnxruntime.
#[test]
#[ignore = "writes files for `cargo xtask onnx`"]
fn exports_for_onnxruntime() -> Result<()> {
    let folder = std::env::var("PRECAST_ONNX_EXPORTED").expect("PRECAST_ONNX_EXPORTED names a folder");
    for name in names() {
        for policy in POLICIES {
            let (mut net, _) = network(&name);
            let (_, x) = match nets::NAMES.contains(&&name[..]) {
                true => (0, nets::task(&name, 1)?.x),
                false => (0, network(&name).1),
            };
            let graph = traced(&mut net, &x, policy)?;
            let at = Path::new(&folder).join(format!("{name}-{policy}"));
            fs::create_dir_all(&at).expect("a folder");
            onnx::export(&graph, at.join("model.onnx"), &ExportOptions::new())?;
            onnx::export(&graph, at.join("explicit.onnx"), &ExportOptions::new().explicit(true))?;
            for opset in [13, 17, 24] {
                onnx::export(&graph, at.join(format!("opset-{opset}.onnx")), &ExportOptions::new().opset(opset))?;
            }
            npy(&at.join("input_0.npy"), &x);
            if policy.starts_with("o2") {
                low_ops(&graph, &x, &at)?;
            }
            npy(&at.join("output_0.npy"), &graph.run(&[x])?[0]);
        }
    }
    Ok(())
}

#[test]
fn a_graph_cell_is_exported() -> Result<()> {
    let (mut net, x) = network("mlp");
    net.set_train(false);
    let cell = Child::new(GraphCell::trace(&mut net, from_ref(&x))?);
    let of_cell = Graph::trace(&cell, from_ref(&x))?;
    assert_eq!(ops(&of_cell), ops(&Graph::trace(&net, from_ref(&x))?));
    let (wanted, met) = (cell.call(&x)?, no_grad(|| imported(&of_cell, &ExportOptions::new())?.call(&x))?);
    assert!(off(&wanted, &met) <= 1e-5);
    Ok(())
}
