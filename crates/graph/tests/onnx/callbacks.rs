//! Callbacks that use the model which calls them.

use std::{
    fs,
    path::{Path, PathBuf},
    sync::{Arc, mpsc},
    thread,
    time::Duration,
};

use precast::{DType, Tensor, policy::GraphPolicy};
use precast_graph::onnx::{ImportOptions, OnnxConvertOptions, OnnxModel, OnnxPlanOptions};

use super::build::{self, FLOAT, Message, floats, graph, node, value};

/// Writes a model with raw numbers, numbers in fields, and numbers in a data file.
fn write(folder: &Path) -> PathBuf {
    fs::create_dir_all(folder).unwrap();
    let shape = || Message::default().int(1, 2).int(1, 2).int(2, FLOAT);
    let numbers: Vec<u8> = [5f32, 6.0, 7.0, 8.0].iter().flat_map(|number| number.to_le_bytes()).collect();
    let place = Message::default().bytes(1, "location").bytes(2, "weights.data");
    let weights = [
        floats("raw", &[2, 2], &[1.0, 2.0, 3.0, 4.0]),
        shape().bytes(8, "typed").bytes(4, &numbers),
        shape().bytes(8, "apart").message(13, &place).int(14, 1),
    ];
    let nodes = [
        node("MatMul", &["x", "raw"], &["a"], &[]),
        node("MatMul", &["a", "typed"], &["b"], &[]),
        node("Gemm", &["b", "apart"], &["y"], &[]),
    ];
    let io = |name| value(name, FLOAT, &["n", "2"]);
    let file = folder.join("model.onnx");
    fs::write(&file, build::bytes(&graph(&nodes, &weights, &[io("x")], &[io("y")]), 18)).unwrap();
    fs::write(folder.join("weights.data"), numbers).unwrap();
    file
}

/// Calls everything that a model and its plan have.
fn use_all(model: &OnnxModel, folder: &Path) {
    let x = || Tensor::ones(&[1, 2], DType::F32);
    assert!(model.bytes() > 0);
    assert_eq!(model.opset(), 18);
    assert_eq!(model.data_files().unwrap(), ["weights.data"]);
    model.copy(folder.join("copy/again.onnx"), true, &mut |_| ()).unwrap();
    model.run(&[("x", x())]).unwrap();
    model.import(&ImportOptions::new()).unwrap();
    model.measure(&[("x".into(), x())]).unwrap();
    let policy = GraphPolicy::named("onnx").unwrap();
    let plan = model.plan(&policy).unwrap();
    model.plan_with(&policy, &OnnxPlanOptions::new(), &mut |_| ()).unwrap();
    assert!(plan.lowers() && plan.count(plan.dtype()) == 3 && plan.others() == 0);
    assert_eq!(plan.decisions().len(), 3);
    plan.decision("my_gemm").unwrap();
    assert!(!plan.to_svg().is_empty() && !plan.to_dot().is_empty());
    plan.convert(folder.join("again.onnx"), &OnnxConvertOptions::new().replace(true), &mut |_| ()).unwrap();
    // Its weights are in a data file, so there are no bytes of the whole.
    plan.to_bytes(&OnnxConvertOptions::new()).unwrap_err();
}

#[test]
fn a_progress_callback_may_use_the_model() {
    let folder = std::env::temp_dir().join(format!("precast-onnx-callbacks-{}", std::process::id()));
    let model = Arc::new(OnnxModel::open(write(&folder)).unwrap());
    fs::create_dir_all(folder.join("copy")).unwrap();
    for name in ["plan_with", "convert", "copy"] {
        let (done, end) = mpsc::channel();
        let (model, folder) = (model.clone(), folder.clone());
        // A thread that hangs is left behind, and this test fails.
        thread::spawn(move || {
            let mut calls = 0;
            let mut progress = |_| {
                calls += 1;
                use_all(&model, &folder);
            };
            let policy = GraphPolicy::named("onnx").unwrap();
            match name {
                "plan_with" => {
                    model.plan_with(&policy, &OnnxPlanOptions::new(), &mut progress).unwrap();
                }
                "convert" => {
                    let plan = model.plan(&policy).unwrap();
                    plan.convert(folder.join("low.onnx"), &OnnxConvertOptions::new(), &mut progress).unwrap();
                }
                _ => model.copy(folder.join("copy/model.onnx"), true, &mut progress).unwrap(),
            }
            done.send(calls).unwrap();
        });
        let calls = end.recv_timeout(Duration::from_secs(120));
        assert!(calls.is_ok_and(|calls| calls > 0), "{name} hangs, or its callback has failed");
    }
    fs::remove_dir_all(folder).unwrap();
}
