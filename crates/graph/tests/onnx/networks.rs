//! Networks that torch exported, with its outputs: run, planned, traced, trained.

use std::path::PathBuf;

use precast::{Child, DType, Level, Optimizer, Policy, Result, Sgd, Tensor};
use precast_graph::{
    Graph,
    onnx::{ImportOptions, OnnxModel, OnnxNetwork},
};

use super::{
    build::{BOOL, FLOAT, Message, body, floats, graph, int, model, node, value},
    cases::{Bound, Verdict, difference, run, tensors},
    pb,
};

/// Returns the names of the networks. `PRECAST_ONNX_EXPORTS` names a folder with others.
fn networks() -> Vec<String> {
    let entries = std::fs::read_dir(folder("")).expect("a folder of networks");
    let mut names: Vec<String> =
        entries.map(|entry| entry.expect("an entry").file_name().into_string().expect("a name")).collect();
    names.sort();
    names
}

fn folder(name: &str) -> PathBuf {
    let exports = std::env::var("PRECAST_ONNX_EXPORTS").unwrap_or_else(|_| "tests/onnx/data/exports".into());
    PathBuf::from(exports).join(name)
}

fn network(name: &str) -> (Child<OnnxNetwork>, Vec<Tensor>) {
    let model = OnnxModel::open(folder(name).join("model.onnx")).expect("a model");
    let network = model.import(&ImportOptions::new()).expect("a network");
    (network, tensors(&folder(name), "input").expect("its inputs"))
}

#[test]
fn exports_compute_what_torch_computes() {
    let bound = Bound { relative: 1e-5, absolute: 1e-12, largest: true };
    for name in &networks() {
        match run(&folder(name), bound) {
            Verdict::Agrees => {}
            Verdict::Wrong(words) | Verdict::Refused(words) | Verdict::Panics(words) => panic!("{name}: {words}"),
        }
    }
}

#[test]
fn parameters_have_the_names_of_the_model() {
    let (resnet, _) = network("resnet-script");
    let names: Vec<String> = resnet.named_params().into_iter().map(|(name, _)| name).collect();
    for expected in ["fc.weight", "fc.bias", "l.0.c1.onnx::Conv_66"] {
        assert!(names.iter().any(|name| name == expected), "{expected} is not in {names:?}");
    }
    let kind = |path: &str| resnet.at(path, |slot| slot.cell.kind()).expect("a cell");
    assert_eq!([kind("fc"), kind("stem.0"), kind("l.1.d.0")], ["Dense", "Conv2d", "Conv2d"]);
}

#[test]
fn every_level_plans_and_runs() -> Result<()> {
    for name in &networks() {
        for level in [Level::O0, Level::O1, Level::O2, Level::O3, Level::Auto] {
            let (mut network, inputs) = network(name);
            let exact = network.call_many(&inputs)?[0].to_f64();
            let applied = Policy::new(level, DType::Bf16)?.plan(&network)?.apply(&mut network)?;
            let low = network.call_many(&inputs)?[0].to_f64();
            let largest = exact.iter().fold(0.0f64, |most, x| most.max(x.abs()));
            assert!(low.iter().all(|x| x.is_finite()), "{name} at {level}: a number is not finite");
            let off = exact.iter().zip(&low).fold(0.0f64, |most, (a, b)| most.max((a - b).abs()));
            assert!(off <= 0.1 * largest, "{name} at {level}: off by {off} of {largest}");
            assert!(level == Level::O0 || off > 0.0, "{name} at {level} is not rounded");
            applied.undo(&mut network)?;
        }
    }
    Ok(())
}

#[test]
fn a_graph_has_the_outputs_of_the_network_for_every_batch() -> Result<()> {
    for name in &networks() {
        let (network, inputs) = network(name);
        let traced = Graph::trace(&network, &inputs)?;
        if std::env::var_os("PRECAST_ONNX_EXPORTS").is_some() && traced.only_batch().is_some() {
            // The file itself has one batch.
            continue;
        }
        assert_eq!(traced.only_batch(), None, "{name}");
        let once = |x: &Tensor| if x.rank() > 0 { x.slice(0, 0..1) } else { Ok(x.clone()) };
        let shorter = inputs.iter().map(once).collect::<Result<Vec<Tensor>>>()?;
        for inputs in [&inputs, &shorter] {
            let (run, called) = (traced.run(inputs)?, network.call_many(inputs)?);
            assert_eq!(run[0].to_f64(), called[0].to_f64(), "{name}");
        }
    }
    Ok(())
}

/// Returns a loss that weighs every number of the outputs differently.
fn loss(network: &Child<OnnxNetwork>, inputs: &[Tensor]) -> Result<Tensor> {
    let mut sum = Tensor::scalar(0.0, DType::F32);
    for y in network.call_many(inputs)? {
        let weights: Vec<f64> = (0..y.len()).map(|i| ((i * 7 + 3) % 11) as f64 / 11.0 - 0.4).collect();
        sum = sum.add(&y.mul(&Tensor::from_f64(&weights, y.shape(), DType::F32)?)?.sum_all()?)?;
    }
    Ok(sum)
}

#[test]
fn gradients_are_central_differences() -> Result<()> {
    for name in &networks() {
        let (network, inputs) = network(name);
        let grads = loss(&network, &inputs)?.backward()?;
        let params = network.params();
        assert!(params.len() > 5, "{name}");
        for (path, param) in params.iter() {
            let grad = grads.get(param).unwrap_or_else(|| panic!("{name}: no gradient reaches {path}"));
            // Along the gradient itself, the difference is largest.
            let (value, direction) = (param.value(), grad.to_f64());
            let norm = direction.iter().map(|x| x * x).sum::<f64>().sqrt();
            if norm < 1e-3 {
                continue;
            }
            let step = 3e-3 / norm * value.to_f64().iter().map(|x| x * x).sum::<f64>().sqrt().max(0.1);
            let mut losses = [0.0; 2];
            for (loss_at, sign) in losses.iter_mut().zip([1.0, -1.0]) {
                let moved: Vec<f64> = value.to_f64().iter().zip(&direction).map(|(x, d)| x + sign * step * d).collect();
                param.set(&Tensor::from_f64(&moved, value.shape(), DType::F32)?)?;
                *loss_at = loss(&network, &inputs)?.item()?;
            }
            param.set(&value)?;
            let (slope, expected) = ((losses[0] - losses[1]) / (2.0 * step), norm * norm);
            assert!((slope - expected).abs() <= 0.05 * expected, "{name} {path}: {slope}, gradient {expected}");
        }
    }
    Ok(())
}

/// Outputs after three steps, recorded by `tools/peers/torch/onnx_steps.py`.
#[test]
fn three_steps_of_training_are_those_of_torch() -> Result<()> {
    for name in ["gpt2-dynamo", "resnet-script", "vit-script"] {
        let (network, inputs) = network(name);
        let mut optimizer = Sgd::new(network.params(), 0.05);
        for _ in 0..3 {
            optimizer.update(&network.call_many(&inputs)?[0].square()?.mean_all()?.backward()?)?;
        }
        let recorded = std::fs::read(format!("tests/onnx/data/steps/{name}.pb")).expect("a recording");
        let expected = pb::tensor(&recorded).expect("a tensor");
        let bound = Bound { relative: 1e-5, absolute: 1e-12, largest: true };
        assert_eq!(difference(&network.call_many(&inputs)?[0], &expected, bound), None, "{name}");
    }
    Ok(())
}

/// Three steps of a linear layer by the gradients of its squared error, in f64.
#[test]
fn steps_of_training_are_those_of_the_formula() -> Result<()> {
    let (mut w, mut b) = ([[0.5, -0.25], [1.0, 0.75], [-0.5, 0.125]], [0.1, -0.2]);
    let flat: Vec<f32> = w.iter().flatten().map(|x| *x as f32).collect();
    let nodes = [node("Gemm", &["x", "fc.weight", "fc.bias"], &["y"], &[int("transB", 0)])];
    let constants = [floats("fc.weight", &[3, 2], &flat), floats("fc.bias", &[2], &[0.1, -0.2])];
    let io = [value("x", FLOAT, &["n", "3"])];
    let model = model(&graph(&nodes, &constants, &io, &[value("y", FLOAT, &["n", "2"])]), 18);
    let network = model.import(&ImportOptions::new())?;
    let x = [[1.0, -2.0, 0.5], [0.25, 1.5, -1.0]];
    let target = [[1.0, 0.0], [0.0, 1.0]];
    let tensor = |rows: &[f64], shape: &[usize]| Tensor::from_f64(rows, shape, DType::F32);
    let (inputs, targets) = (tensor(&x.concat(), &[2, 3])?, tensor(&target.concat(), &[2, 2])?);
    let mut optimizer = Sgd::new(network.params(), 0.1);
    for _ in 0..3 {
        let loss = network.call(&inputs)?.sub(&targets)?.square()?.mean_all()?;
        optimizer.update(&loss.backward()?)?;
        let (mut dw, mut db) = ([[0.0; 2]; 3], [0.0; 2]);
        for (x, target) in x.iter().zip(&target) {
            for j in 0..2 {
                let y = b[j] + (0..3).map(|i| x[i] * w[i][j]).sum::<f64>();
                let slope = 2.0 * (y - target[j]) / 4.0;
                (0..3).for_each(|i| dw[i][j] += slope * x[i]);
                db[j] += slope;
            }
        }
        for j in 0..2 {
            (0..3).for_each(|i| w[i][j] -= 0.1 * dw[i][j]);
            b[j] -= 0.1 * db[j];
        }
    }
    let bound = Bound { relative: 1e-5, absolute: 1e-7, largest: true };
    for (path, param) in network.params().iter() {
        let expected = if path == "fc.weight" { tensor(&w.concat(), &[3, 2])? } else { tensor(&b, &[2])? };
        assert_eq!(difference(&param.value(), &expected, bound), None, "{path}");
    }
    Ok(())
}

#[test]
fn a_model_runs_on_named_inputs() -> Result<()> {
    let nodes = [node("Sub", &["a", "b"], &["y"], &[])];
    let inputs = [value("a", FLOAT, &["n"]), value("b", FLOAT, &["n"])];
    let model = model(&graph(&nodes, &[], &inputs, &[value("y", FLOAT, &["n"])]), 18);
    let number = |x: f64| Tensor::full(&[2], x, DType::F32);
    let outputs = model.run(&[("b", number(1.0)), ("a", number(3.0))])?;
    assert_eq!((&outputs[0].0[..], outputs[0].1.to_f64()), ("y", vec![2.0, 2.0]));
    let message = |inputs: &[(&str, Tensor)]| model.run(inputs).unwrap_err().to_string();
    assert_eq!(message(&[("a", number(1.0))]), "the input `b` is missing");
    assert_eq!(message(&[("c", number(1.0))]), "the model has no input `c`; allowed: a, b");
    Ok(())
}

/// Returns a tensor attribute.
fn tensor(name: &str, value: &Message) -> Message {
    Message::default().bytes(1, name).message(5, value).int(20, 4)
}

#[test]
fn parameters_are_those_of_the_nodes_that_run() -> Result<()> {
    let branch = |name: &str| {
        let weight = floats(name, &[3, 3], &[1., 2., 3., 4., 5., 6., 7., 8., 9.]);
        graph(&[node("MatMul", &["x", name], &["y"], &[])], &[weight], &[], &[value("y", FLOAT, &[])])
    };
    let bodies = [body("then_branch", &branch("wide.weight")), body("else_branch", &branch("narrow.weight"))];
    // A weight in a node, a number alone, and a mask.
    let nodes = [
        node("If", &["c"], &["z"], &bodies),
        node("Constant", &[], &["v"], &[tensor("value", &floats("", &[3, 2], &[1., 0., 0., 1., 1., 1.]))]),
        node("MatMul", &["z", "v"], &["p"], &[]),
        node("Mul", &["p", "half"], &["h"], &[]),
        node("Add", &["h", "mask"], &["s"], &[]),
    ];
    let constants = [floats("half", &[], &[0.5]), floats("mask", &[2], &[0.0, f32::MIN])];
    let inputs = [value("x", FLOAT, &["n", "3"]), value("c", BOOL, &[])];
    let model = model(&graph(&nodes, &constants, &inputs, &[value("s", FLOAT, &[])]), 18);
    let names = |options: &ImportOptions| -> Result<Vec<String>> {
        Ok(model.import(options)?.named_params().into_iter().map(|(name, _)| name).collect())
    };
    assert_eq!(names(&ImportOptions::new())?, ["wide.weight", "narrow.weight", "my_matmul.v"]);
    assert_eq!(names(&ImportOptions::new().fix("c", true))?, ["wide.weight", "my_matmul.v"]);
    assert_eq!(names(&ImportOptions::new().fix("c", false))?, ["narrow.weight", "my_matmul.v"]);
    Ok(())
}

#[test]
fn rules_name_cells_by_the_paths_of_nodes() -> Result<()> {
    let (network, _) = network("vit-script");
    let text = "version: 1\nlevel: O2\ndtype: bfloat16\nrules:\n- path: a.*\n  run: float32\n";
    let plan = Policy::parse(text, "rules.yaml")?.plan(&network)?;
    assert_eq!(plan.decision("a.q")?.run.to_string(), "f32");
    assert_eq!(plan.decision("f1")?.run.to_string(), "bf16");
    assert_eq!(plan.decision("n1")?.because.to_string(), "full list, precast-1");
    Ok(())
}
