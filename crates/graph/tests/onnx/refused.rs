//! Models that cannot be run, and the words that say so.

use precast::{ErrorKind, Result, Tensor, policy::GraphPolicy};
use precast_graph::{
    Graph,
    onnx::{ImportOptions, OnnxModel},
};

use super::{
    build::{BOOL, FLOAT, INT64, body, bytes, floats, graph, int, ints, model, node, text, value},
    cases::tensors,
};

fn import(model: &OnnxModel) -> (ErrorKind, String) {
    match model.import(&ImportOptions::new()) {
        Ok(_) => panic!("the import succeeds"),
        Err(e) => (e.kind(), e.to_string()),
    }
}

fn x() -> Tensor {
    Tensor::from_vec(vec![1f32, -2., 3., -4., 5., -6.], &[2, 3]).unwrap()
}

/// Imports a model of one input `x` and runs it.
fn run(model: &OnnxModel) -> Result<Tensor> {
    model.import(&ImportOptions::new())?.call(&x())
}

/// Returns a model of one node that reads `x`.
fn of_node(op: &str, more: &[&str], attributes: &[super::build::Message]) -> OnnxModel {
    let inputs = [&["x"], more].concat();
    let constants = [ints("i", &[1], &[7]), floats("w", &[3, 2], &[1., 2., 3., 4., 5., 6.])];
    let io = [value("x", FLOAT, &["n", "3"])];
    model(&graph(&[node(op, &inputs, &["y"], attributes)], &constants, &io, &[value("y", FLOAT, &[])]), 18)
}

#[test]
fn an_error_names_the_node_the_op_and_the_reason() {
    let cases = [
        (of_node("RoiAlign", &[], &[]), "node `my_roialign` (RoiAlign): this op has no counterpart here"),
        (
            of_node("GridSample", &["w"], &[text("mode", "cubic")]),
            "node `my_gridsample` (GridSample): the mode `cubic` has no counterpart here; allowed: linear, nearest",
        ),
        (of_node("Cast", &[], &[int("to", 8)]), "node `my_cast` (Cast): there are no tensors of string"),
    ];
    for (model, expected) in cases {
        let met = match model.import(&ImportOptions::new()) {
            Ok(network) => network.call(&x()).unwrap_err(),
            Err(e) => e,
        };
        assert_eq!(met.kind(), ErrorKind::Unsupported, "{met}");
        assert!(met.to_string().ends_with(expected), "{met}\nexpected: {expected}");
    }
}

/// Nodes in a circle have no order.
#[test]
fn a_circle_is_named() {
    let io =
        |nodes: &[super::build::Message]| graph(nodes, &[], &[value("x", FLOAT, &["3"])], &[value("y", FLOAT, &["3"])]);
    let circle =
        [node("Add", &["x", "b"], &["a"], &[]), node("Relu", &["a"], &["b"], &[]), node("Neg", &["b"], &["y"], &[])];
    let (kind, words) = import(&model(&io(&circle), 18));
    assert_eq!(kind, ErrorKind::Model);
    assert!(words.contains("node `my_add` (Add): it reads `b`, which node `my_relu` makes later"), "{words}");
}

#[test]
fn a_newer_opset_is_noted() {
    let of = |opset| {
        model(
            &graph(
                &[node("Neg", &["x"], &["y"], &[])],
                &[],
                &[value("x", FLOAT, &["3"])],
                &[value("y", FLOAT, &["3"])],
            ),
            opset,
        )
    };
    assert_eq!(of(22).note_on_opset(), None);
    assert!(of(99).note_on_opset().unwrap().starts_with("opset 99 is newer than "));
}

#[test]
fn a_wrong_model_is_an_error() {
    let cases = [
        (of_node("Reshape", &["i"], &[]), "node `my_reshape` (Reshape): "),
        (of_node("MatMul", &["nothing"], &[]), "node `my_matmul` (MatMul): it reads `nothing`, which nothing makes"),
        (of_node("Relu", &[], &[]), ""),
        (
            of_node("LeakyRelu", &[], &[int("alpha", 1)]),
            "node `my_leakyrelu` (LeakyRelu): its attribute `alpha` is an integer; expected a number",
        ),
        (
            of_node("Concat", &["w"], &[int("axis", i64::MIN)]),
            "node `my_concat` (Concat): there is no axis -9223372036854775808 in a tensor of 2 axes",
        ),
        (of_node("Gather", &["w"], &[]), "node `my_gather` (Gather): "),
        (of_node("Add", &[], &[]), "node `my_add` (Add): input 1 is missing"),
        (
            of_node("Split", &[], &[int("num_outputs", -1)]),
            "node `my_split` (Split): -1 is not a length; allowed: 0 or more",
        ),
        (
            of_node("DepthToSpace", &[], &[int("blocksize", i64::MAX)]),
            "node `my_depthtospace` (DepthToSpace): `blocksize` is 9223372036854775807; allowed: 1 to 65535",
        ),
    ];
    for (model, expected) in cases {
        match run(&model) {
            Ok(_) => assert_eq!(expected, ""),
            Err(e) => assert!(!expected.is_empty() && e.to_string().contains(expected), "{e}\nexpected: {expected}"),
        }
    }
}

/// An error after a file was read names it, once.
#[test]
fn errors_of_plans_and_conversions_name_the_file() {
    let folder = std::env::temp_dir().join(format!("precast-onnx-named-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let path = folder.join("wrong.onnx");
    for (input, opset, policy, words) in [
        ("z", 18, "onnx", "node `my_relu` (Relu): it reads `z`"),
        ("x", 12, "onnx-bf16", "no node can run in bfloat16"),
    ] {
        let io = [value("x", FLOAT, &["n", "3"]), value("y", FLOAT, &[])];
        let graph = graph(&[node("Relu", &[input], &["y"], &[])], &[], &io[..1], &io[1..]);
        std::fs::write(&path, bytes(&graph, opset)).unwrap();
        let model = OnnxModel::open(&path).unwrap();
        let message = model.plan(&GraphPolicy::named(policy).unwrap()).unwrap_err().to_string();
        let start = format!("{}: {words}", path.display());
        assert!(message.starts_with(&start) && message.matches("wrong.onnx").count() == 1, "{message}");
    }
    std::fs::remove_dir_all(folder).unwrap();
}

#[test]
fn absurd_lengths_are_errors() {
    let huge = ints("i", &[3], &[1 << 40, 1 << 40, 3]);
    for op in ["Expand", "Tile", "Reshape"] {
        let nodes = [node(op, &["x", "i"], &["y"], &[])];
        let io = [value("x", FLOAT, &["n", "3"])];
        let model = model(&graph(&nodes, std::slice::from_ref(&huge), &io, &[value("y", FLOAT, &[])]), 18);
        assert!(run(&model).is_err(), "{op}");
    }
    let nodes = [node("ConstantOfShape", &["i"], &["y"], &[])];
    let model = model(&graph(&nodes, &[huge], &[], &[value("y", FLOAT, &[])]), 18);
    let (_, message) = import(&model);
    assert_eq!(
        message,
        "node `my_constantofshape` (ConstantOfShape): a tensor of shape [1099511627776, 1099511627776, 3] does not fit into memory"
    );
}

/// Returns a model whose `If` depends on an input and has these branches.
fn with_choice(then: &str, otherwise: &str) -> OnnxModel {
    let branch = |op: &str| graph(&[node(op, &["x"], &["y"], &[])], &[], &[], &[value("y", FLOAT, &[])]);
    let bodies = [body("then_branch", &branch(then)), body("else_branch", &branch(otherwise))];
    let inputs = [value("x", FLOAT, &["n", "3"]), value("c", BOOL, &[])];
    model(&graph(&[node("If", &["c"], &["z"], &bodies)], &[], &inputs, &[value("z", FLOAT, &[])]), 18)
}

#[test]
fn a_choice_is_made_by_each_call() -> Result<()> {
    let model = with_choice("Relu", "Neg");
    let network = model.import(&ImportOptions::new())?;
    let truth = |holds: bool| Tensor::from_vec(vec![holds], &[]);
    let graph = Graph::trace(&network, &[x(), truth(true)?])?;
    for (condition, expected) in [(true, [1., 0., 3.]), (false, [-1., 2., -3.])] {
        let inputs = [x(), truth(condition)?];
        assert_eq!(network.call_many(&inputs)?[0].to_f64()[..3], expected);
        assert_eq!(graph.run(&inputs)?[0].to_f64()[..3], expected);
    }
    let fixed = model.import(&ImportOptions::new().fix("c", false))?;
    assert_eq!(fixed.cell().inputs().collect::<Vec<_>>(), ["x"]);
    let graph = Graph::trace(&fixed, &[x()])?;
    assert_eq!((graph.nodes().len(), &graph.run(&[x()])?[0].to_f64()[..3]), (2, &[-1., 2., -3.][..]));
    Ok(())
}

#[test]
fn a_graph_selects_only_among_results_of_one_shape() -> Result<()> {
    let model = with_choice("Relu", "Transpose");
    let network = model.import(&ImportOptions::new())?;
    let inputs = [x(), Tensor::from_vec(vec![false], &[])?];
    assert_eq!(network.call_many(&inputs)?[0].shape(), [3, 2]);
    let refused = Graph::trace(&network, &inputs).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Unsupported);
    assert_eq!(
        refused.to_string(),
        "in the root cell: node `my_if` (If): its condition `c` depends on the inputs, so that a graph runs both branches \
         and selects, and the branches have results of float32 [2, 3] and float32 [3, 2]; fix the input that decides it"
    );
    Ok(())
}

#[test]
fn options_are_checked() {
    let model = with_choice("Relu", "Neg");
    let message = |options: ImportOptions| model.import(&options).map(drop).unwrap_err().to_string();
    assert_eq!(message(ImportOptions::new().fix("d", 1)), "the model has no input `d`; allowed: x, c");
    assert_eq!(message(ImportOptions::new().fix("c", 0.5)), "input `c` is of bool; got 0.5");
    assert_eq!(message(ImportOptions::new().axis("m", 4)), "the model has no symbolic axis `m`; allowed: n");
    let network = model.import(&ImportOptions::new().axis("n", 4).fix("c", true)).unwrap();
    let met = network.call(&x()).unwrap_err().to_string();
    assert_eq!(met, "in the root cell: input `x`: its axis `n` is fixed to 4, got 2");
    let network = model.import(&ImportOptions::new()).unwrap();
    let met = network.call(&x()).unwrap_err().to_string();
    assert_eq!(met, "in the root cell: takes 2 inputs (x, c), got 1");
    let ids = Tensor::from_vec(vec![1i64], &[]).unwrap();
    let met = network.call_many(&[x(), ids]).unwrap_err().to_string();
    assert_eq!(met, "in the root cell: input `c` is of bool, got int64");
}

#[test]
fn a_graph_reads_no_numbers_of_inputs() -> Result<()> {
    let nodes = [node("Reshape", &["x", "s"], &["y"], &[])];
    let inputs = [value("x", FLOAT, &["n", "3"]), value("s", INT64, &["2"])];
    let model = model(&graph(&nodes, &[], &inputs, &[value("y", FLOAT, &[])]), 18);
    let network = model.import(&ImportOptions::new())?;
    let inputs = [x(), Tensor::from_vec(vec![3i64, 2], &[2])?];
    assert_eq!(network.call_many(&inputs)?[0].shape(), [3, 2]);
    let refused = Graph::trace(&network, &inputs).unwrap_err().to_string();
    assert_eq!(
        refused,
        "in the root cell: node `my_reshape` (Reshape): the numbers of its input `s` depend on the inputs or the parameters \
         of the model, and a graph has none before it runs"
    );
    Ok(())
}

/// Every truncation of a model, and every byte changed, is an error or a model that runs or fails with an error.
#[test]
fn damaged_models_do_not_panic() {
    let w = floats("w", &[3, 2], &[1., 2., 3., 4., 5., 6.]);
    let nodes = [
        node("MatMul", &["x", "w"], &["h"], &[]),
        node("Softmax", &["h"], &["s"], &[int("axis", -1)]),
        node("Transpose", &["s"], &["t"], &[]),
        node("Concat", &["t", "t"], &["y"], &[int("axis", 0)]),
    ];
    let whole = bytes(&graph(&nodes, &[w], &[value("x", FLOAT, &["n", "3"])], &[value("y", FLOAT, &[])]), 18);
    let attempt = |bytes: Vec<u8>| OnnxModel::from_bytes(bytes).and_then(|model| run(&model));
    assert!(attempt(whole.clone()).is_ok());
    for end in 0..whole.len() {
        drop(attempt(whole[..end].to_vec()));
        for bit in [1, 16, 128] {
            let mut changed = whole.clone();
            changed[end] ^= bit;
            drop(attempt(changed));
        }
    }
}

/// Changes bytes of the shipped models at random. `PRECAST_ONNX_CHANGES` is the number of changes of each model.
#[test]
fn changed_models_do_not_panic() {
    let changes = std::env::var("PRECAST_ONNX_CHANGES").ok().and_then(|count| count.parse().ok()).unwrap_or(4);
    let mut state = 1u64;
    let mut random = |below: usize| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as usize % below.max(1)
    };
    for entry in std::fs::read_dir("tests/onnx/data/suite/node").expect("a folder of cases") {
        let folder = entry.expect("an entry").path();
        let whole = std::fs::read(folder.join("model.onnx")).expect("a model");
        let Some(inputs) = tensors(&folder, "input") else { continue };
        for _ in 0..changes {
            let mut changed = whole.clone();
            for _ in 0..=random(2) {
                let at = random(changed.len());
                changed[at] = match random(3) {
                    0 => changed[at].wrapping_add(1),
                    1 => random(256) as u8,
                    _ => changed[at] ^ (1 << random(8)),
                };
            }
            let run = || OnnxModel::from_bytes(changed.clone())?.import(&ImportOptions::new())?.call_many(&inputs);
            let ended = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| drop(run())));
            assert!(ended.is_ok(), "{}: {changed:?}", folder.display());
        }
    }
}

/// Lengths that a model declares hold for all axes but that of the batch.
#[test]
fn declared_lengths_are_checked() {
    let with = |axes: &[&str], lengths: &[i64]| {
        let nodes = [node("Reshape", &["x", "i"], &["y"], &[])];
        let constants = [ints("i", &[lengths.len() as i64], lengths)];
        let io = ([value("x", FLOAT, axes)], [value("y", FLOAT, &[])]);
        model(&graph(&nodes, &constants, &io.0, &io.1), 18)
    };
    assert_eq!(run(&with(&["1", "3"], &[-1])).unwrap().shape(), [6], "another batch, where the nodes allow it");
    let error = run(&with(&["1", "3"], &[3])).unwrap_err().to_string();
    assert!(error.contains("the model declares a batch of 1 for `x`, got 2: "), "{error}");
    let error = run(&with(&["n", "4"], &[-1])).unwrap_err().to_string();
    assert!(error.ends_with("input `x`: its axis 1 has the length 4, got 3"), "{error}");
}
