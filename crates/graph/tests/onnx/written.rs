//! Models as they are written: one type where an op wants one, small numbers in the model, data files of their own.

use std::{
    fs,
    path::{Path, PathBuf},
};

use precast::{
    DType, ErrorKind, Tensor,
    policy::{GraphPolicy, Pack},
};
use precast_graph::onnx::{OnnxConvertOptions, OnnxModel, OnnxPlanOptions};

use super::{
    build::{self, BOOL, FLOAT, INT64, Message, body, floats, graph, int, ints, node, value},
    pb::Written,
};

/// A folder of a test, removed at its end.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("precast-onnx-written-{name}-{}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        Folder(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn onnx() -> GraphPolicy {
    GraphPolicy::named("onnx").unwrap()
}

fn eye(name: &str) -> Message {
    floats(name, &[2, 2], &[1.0, 0.0, 0.0, 1.0])
}

fn io(name: &str) -> Message {
    value(name, FLOAT, &["2", "2"])
}

fn product(from: &str, to: &str) -> Message {
    node("MatMul", &[from, "eye"], &[to], &[])
}

fn convert(model: &OnnxModel, policy: &GraphPolicy, to: &Path) -> usize {
    let options = OnnxConvertOptions::new().replace(true);
    model.plan(policy).unwrap().convert(to, &options, &mut |_| ()).unwrap().casts
}

/// Between low products there are two casts, one in front of all and one behind: all inputs of the op are low.
#[test]
fn ops_whose_functions_have_one_type_are_low_as_a_whole() {
    let folder = Folder::new("functions");
    let heads = || [int("q_num_heads", 1), int("kv_num_heads", 1)];
    let (q, k, v) = (product("x", "q"), product("x", "k"), product("x", "v"));
    let attention = [q, k, v, node("Attention", &["q", "k", "v"], &["o"], &heads()), product("o", "y")];
    let three = |name| value(name, FLOAT, &["1", "2", "2"]);
    let attention = build::model(&graph(&attention, &[eye("eye")], &[three("x")], &[three("y")]), 23);
    let norm =
        [product("x", "h"), product("x", "g"), node("RMSNormalization", &["h", "g"], &["u"], &[]), product("u", "y")];
    let norm = build::model(&graph(&norm, &[eye("eye")], &[io("x")], &[io("y")]), 23);
    let to = folder.0.join("low.onnx");
    assert_eq!(convert(&attention, &onnx(), &to), 2);
    assert_eq!(convert(&norm, &onnx(), &to), 2);
    // The function has constants of float32.
    let middle = [product("x", "h"), node("MeanVarianceNormalization", &["h"], &["u"], &[]), product("u", "y")];
    let model = build::model(&graph(&middle, &[eye("eye")], &[io("x")], &[io("y")]), 17);
    for pack in ["onnxruntime-1.32", "modelopt-0.47", "onnxconverter-common-1.16"] {
        let policy = GraphPolicy::from_pack(DType::F16, Pack::named(pack).unwrap()).unwrap();
        let plan = model.plan(&policy).unwrap();
        let met = plan.decision("my_meanvariancenormalization").unwrap();
        assert_eq!(met.to_string(), "MeanVarianceNormalization f32: never takes float16", "{pack}");
    }
}

/// A sparse constant of 1 and 2 on the diagonal.
#[test]
fn sparse_constants_are_cast() {
    let sparse = |numbers: &[f32]| {
        let places = ints("places", &[2], &[0, 3]);
        let sparse =
            Message::default().message(1, &floats("values", &[2], numbers)).message(2, &places).int(3, 2).int(3, 2);
        Message::default().bytes(1, "sparse_value").message(22, &sparse).int(20, 11)
    };
    let model = |numbers: &[f32]| {
        let nodes = [
            node("Constant", &[], &["w"], &[sparse(numbers)]),
            node("MatMul", &["x", "w"], &["h"], &[]),
            node("Relu", &["h"], &["y"], &[]),
        ];
        build::model(&graph(&nodes, &[], &[io("x")], &[io("y")]), 17)
    };
    let plan_of = model(&[1.0, 2.0]);
    let bytes = plan_of.plan(&onnx()).unwrap().to_bytes(&OnnxConvertOptions::new()).unwrap();
    let converted = OnnxModel::from_bytes(bytes).unwrap();
    let x = Tensor::from_vec(vec![1.0f32, 2.0, 3.0, 4.0], &[2, 2]).unwrap();
    assert_eq!(converted.run(&[("x", x)]).unwrap()[0].1.to_f64(), [1.0, 4.0, 3.0, 8.0]);
    // The product is low in the converted model, and reads a cast.
    assert_eq!(converted.plan(&onnx()).unwrap().decision("my_matmul").unwrap().dtype, DType::F16);
    let large = model(&[1.0, 1e6]);
    let plan = large.plan(&onnx()).unwrap();
    let met = plan.decision("my_matmul").unwrap().to_string();
    assert_eq!(met, "MatMul f32: constant `w` reaches 1e6, beyond the range of float16");
}

/// An output that is an initialiser is low under its name, and readers in float32 keep its bits.
#[test]
fn outputs_that_are_initialisers_become_low() {
    let nodes = [
        node("MatMul", &["x", "w"], &["h"], &[]),
        node("Exp", &["w"], &["e"], &[]),
        node("Add", &["h", "e"], &["y"], &[]),
    ];
    let numbers = [0.1f32, 0.2, 0.3, 0.4];
    let weight = floats("w", &[2, 2], &numbers);
    let model = build::model(&graph(&nodes, &[weight], &[io("x")], &[io("y"), io("w")]), 17);
    let options = OnnxPlanOptions::new().low_io_of(["w"]);
    let write = |model: &OnnxModel| {
        let plan = model.plan_with(&onnx(), &options, &mut |_| ()).unwrap();
        plan.to_bytes(&OnnxConvertOptions::new()).unwrap()
    };
    let bytes = write(&model);
    let written = Written::of(&bytes);
    let low: Vec<u8> = numbers.iter().flat_map(|number| half::f16::from_f32(*number).to_le_bytes()).collect();
    let wide: Vec<u8> = numbers.iter().flat_map(|number| number.to_le_bytes()).collect();
    let expected = [("w_float32".to_string(), ("float32", wide)), ("w".to_string(), ("float16", low))];
    assert_eq!(written.initialisers, expected);
    assert!(written.io.contains(&("w".into(), "float16")), "{:?}", written.io);
    assert!(write(&OnnxModel::from_bytes(bytes.clone()).unwrap()) == bytes, "a second conversion changes it");
    // A number that float16 does not hold cannot be an output of that dtype.
    let weight = floats("w", &[2, 2], &[0.1, 0.2, 0.3, 1e6]);
    let model = build::model(&graph(&nodes, &[weight], &[io("x")], &[io("y"), io("w")]), 17);
    let error = model.plan_with(&onnx(), &options, &mut |_| ()).err().unwrap().to_string();
    assert_eq!(error, "the output `w`, which is to be float16, reaches 1e6, beyond the range of float16");
}

/// Shapes, conditions, scales and single numbers are in the model whatever the limit is, weights in the data file.
#[test]
fn what_a_runtime_reads_while_it_loads_stays_in_the_model() {
    let folder = Folder::new("external");
    let branch = |op: &str| {
        let inner = [node(op, &["u"], &["b"], &[])];
        graph(&inner, &[], &[], &[value("b", FLOAT, &["1", "1", "4", "4"])])
    };
    let nodes = [
        node("MatMul", &["x", "w"], &["h"], &[]),
        node("Reshape", &["h", "shape"], &["r"], &[]),
        node("Resize", &["r", "", "scales"], &["s"], &[]),
        node("Clip", &["s", "least"], &["u"], &[]),
        node("If", &["yes"], &["y"], &[body("then_branch", &branch("Relu")), body("else_branch", &branch("Neg"))]),
    ];
    let constants = [
        eye("w"),
        ints("shape", &[4], &[1, 1, 2, 2]),
        floats("scales", &[4], &[1.0, 1.0, 2.0, 2.0]),
        floats("least", &[], &[0.0]),
        Message::default().int(2, BOOL).bytes(8, "yes").bytes(9, [1]),
    ];
    let model = build::model(&graph(&nodes, &constants, &[io("x")], &[value("y", FLOAT, &["1", "1", "4", "4"])]), 17);
    let to = folder.0.join("low.onnx");
    let options = OnnxConvertOptions::new().external(0);
    model.plan(&onnx()).unwrap().convert(&to, &options, &mut |_| ()).unwrap();
    let written = Written::of(&fs::read(&to).unwrap());
    let outside = written.initialisers.iter().filter(|(_, (_, raw))| raw.is_empty()).map(|(name, _)| &name[..]);
    assert_eq!(outside.collect::<Vec<_>>(), ["w"]);
}

/// A model that multiplies by 3, with its weight in a data file of this name.
fn with_data(folder: &Path, data: &str) -> PathBuf {
    let place = Message::default().bytes(1, "location").bytes(2, data);
    let weight = Message::default().int(1, 1).int(1, 1).int(2, FLOAT).bytes(8, "w").message(13, &place).int(14, 1);
    let ends = |name| value(name, FLOAT, &["n", "1"]);
    let nodes = [node("MatMul", &["x", "w"], &["y"], &[]), node("Shape", &["x"], &["n"], &[])];
    let outputs = [ends("y"), value("n", INT64, &["2"])];
    let model = folder.join("source.onnx");
    fs::write(&model, build::bytes(&graph(&nodes, &[weight], &[ends("x")], &outputs), 17)).unwrap();
    fs::write(folder.join(data), 3f32.to_le_bytes()).unwrap();
    model
}

/// The data file of the model that is converted is never replaced, and the new one gets another name.
#[test]
fn a_conversion_keeps_the_files_that_it_reads() {
    let folder = Folder::new("own-data");
    let run = |path: &Path| {
        OnnxModel::open(path).unwrap().run(&[("x", Tensor::ones(&[1, 1], DType::F32))]).unwrap()[0].1.to_f64()
    };
    let options = OnnxConvertOptions::new().replace(true);
    let full = GraphPolicy::with_lists(DType::F16, precast::policy::Lists::named("O0")).unwrap();
    for data in ["low.onnx.data", "low.onnx.2.data"] {
        let source = with_data(&folder.0, data);
        let (model, to) = (OnnxModel::open(&source).unwrap(), folder.0.join("low.onnx"));
        let plan = model.plan(&onnx()).unwrap();
        // Twice: the second one finds the files of the first.
        for _ in 0..3 {
            let written = plan.convert(&to, &options, &mut |_| ()).unwrap();
            assert_ne!(written.data.unwrap(), folder.0.join(data));
            assert_eq!((run(&source), run(&to)), (vec![3.0], vec![3.0]));
        }
        // A model in place of the data file of the one that is read, by both ways of writing.
        for policy in [&onnx(), &full] {
            let plan = model.plan(policy).unwrap();
            let error = plan.convert(folder.0.join(data), &options, &mut |_| ()).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Io);
            assert!(error.to_string().ends_with("is a data file of the model to convert"), "{error}");
        }
        assert_eq!(run(&source), [3.0]);
        fs::remove_file(folder.0.join(data)).unwrap();
        fs::remove_file(&to).unwrap();
    }
    // The model itself, by both ways of writing, and under other names.
    let source = with_data(&folder.0, "source.onnx.data");
    let model = OnnxModel::open(&source).unwrap();
    let mut names = vec![source.clone(), folder.0.join("./source.onnx"), folder.0.join("other/../source.onnx")];
    fs::create_dir(folder.0.join("other")).unwrap();
    #[cfg(unix)]
    {
        names.push(folder.0.join("link.onnx"));
        std::os::unix::fs::symlink(&source, folder.0.join("link.onnx")).unwrap();
        // A copy of the data file would replace the file that the link leads to.
        std::os::unix::fs::symlink(folder.0.join("source.onnx.data"), folder.0.join("other/source.onnx.data")).unwrap();
        let error = model.copy(folder.0.join("other/copy.onnx"), true, &mut |_| ()).unwrap_err().to_string();
        assert!(error.ends_with("is a data file of the model to convert"), "{error}");
    }
    let before = fs::read(&source).unwrap();
    for (policy, to) in [&onnx(), &full].into_iter().flat_map(|policy| names.iter().map(move |to| (policy, to))) {
        let error = model.plan(policy).unwrap().convert(to, &options, &mut |_| ()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Io);
        assert!(error.to_string().ends_with("it is the model that is read, and is never replaced"), "{error}");
    }
    assert!(fs::read(&source).unwrap() == before);
    assert_eq!(run(&source), [3.0]);
}
