//! Models with data files that are replaced by a process that is killed: the old model, the new one or an error, and
//! never the graph of one with the numbers of another.

use std::{fs, path::Path};

use precast::{DType, Tensor, policy::GraphPolicy};
use precast_graph::onnx::{OnnxConvertOptions, OnnxModel};

use super::{
    build::{self, FLOAT, Message, floats, graph, node, value},
    common::killed::Killed,
};

/// Writes a model that multiplies its input by both numbers, one in the model and one in its data file.
fn write(folder: &Path, inside: f32, outside: f32) {
    let _ = fs::remove_dir_all(folder);
    fs::create_dir_all(folder).unwrap();
    let place = Message::default().bytes(1, "location").bytes(2, "weights.data");
    let weights = [
        floats("inside", &[1, 1], &[inside]),
        Message::default().int(1, 1).int(1, 1).int(2, FLOAT).bytes(8, "outside").message(13, &place).int(14, 1),
    ];
    let nodes = [node("MatMul", &["x", "inside"], &["a"], &[]), node("MatMul", &["a", "outside"], &["y"], &[])];
    let io = |name| value(name, FLOAT, &["n", "1"]);
    fs::write(folder.join("model.onnx"), build::bytes(&graph(&nodes, &weights, &[io("x")], &[io("y")]), 18)).unwrap();
    fs::write(folder.join("weights.data"), outside.to_le_bytes()).unwrap();
}

fn product(file: &Path) -> precast::Result<f64> {
    let outputs = OnnxModel::open(file)?.run(&[("x", Tensor::ones(&[1, 1], DType::F32))])?;
    Ok(outputs[0].1.to_f64()[0])
}

/// Accepts one of some products, or an error that names a file.
fn check(file: &Path, allowed: &[f64]) {
    match product(file) {
        Ok(product) => assert!(allowed.contains(&product), "{product}, allowed: {allowed:?}"),
        Err(error) => assert!(error.to_string().contains(".onnx"), "{error}"),
    }
}

/// Converts a model with this product to a dtype, all weights in a data file.
fn convert(from: &Path, to: &Path, dtype: &str, kill: &mut dyn FnMut()) {
    let model = OnnxModel::open(from).unwrap();
    let policy = GraphPolicy::named(if dtype == "float16" { "onnx" } else { "onnx-bf16" }).unwrap();
    let options = OnnxConvertOptions::new().external(0).replace(true);
    model.plan(&policy).unwrap().convert(to, &options, &mut |_| kill()).unwrap();
}

/// The weights are exact in both dtypes, which have equal lengths: a graph over the other's numbers would run.
#[test]
fn a_converted_model_is_replaced_as_a_whole() {
    let file = |folder: &Path| folder.join("low.onnx");
    Killed {
        test: "killed::a_converted_model_is_replaced_as_a_whole",
        old: &|folder| {
            write(folder, 3.0, 5.0);
            convert(&folder.join("model.onnx"), &file(folder), "float16", &mut || ());
            assert_eq!(product(&file(folder)).unwrap(), 15.0);
        },
        write: &|folder, kill| convert(&folder.join("model.onnx"), &file(folder), "bfloat16", kill),
        check: &|folder| {
            // It is there before and after, so it is never missing.
            assert_eq!(product(&file(folder)).unwrap(), 15.0);
            // Leftovers do no harm, and are gone.
            convert(&folder.join("model.onnx"), &file(folder), "float16", &mut || ());
            convert(&folder.join("model.onnx"), &file(folder), "bfloat16", &mut || ());
            assert_eq!(product(&file(folder)).unwrap(), 15.0);
            let data = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
            let data: Vec<String> = data.filter(|name| name.starts_with("low.onnx.")).collect();
            assert_eq!(data.len(), 1, "{data:?}");
        },
    }
    .run();
}

#[test]
fn a_copied_model_is_replaced_as_a_whole() {
    Killed {
        test: "killed::a_copied_model_is_replaced_as_a_whole",
        old: &|folder| {
            write(&folder.join("from"), 3.0, 5.0);
            write(&folder.join("to"), 2.0, 1.0);
        },
        write: &|folder, kill| {
            let model = OnnxModel::open(folder.join("from/model.onnx")).unwrap();
            model.copy(folder.join("to/model.onnx"), true, &mut |_| kill()).unwrap();
        },
        check: &|folder| check(&folder.join("to/model.onnx"), &[2.0, 15.0]),
    }
    .run();
}
