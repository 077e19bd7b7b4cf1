//! Runs of imported ONNX models: fine-tuning from the weights of the file.

use std::{fs, ops::ControlFlow, path::Path};

use precast::{no_grad, prelude::*};
use precast_graph::onnx::OnnxModel;
use precast_train::{EndReason, ModelSource, OnnxSource, Predictor, Run, RunFile, data::write_npz};

use crate::common::{folder::Folder, metrics::metrics};

/// A vision transformer of five classes, exported by torch.
fn vit() -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/guide/torch-vit.onnx")
}

/// Writes sixteen images whose class is the brightest of five columns, and the model beside them.
fn prepare(folder: &Path) {
    let rng = &mut Rng::seed(1);
    let noise = Tensor::randn(&[16, 3, 32, 32], rng).unwrap().to_f64();
    let bright = |at: usize| if at % 32 / 6 == at / (3 * 32 * 32) % 5 { 2.0 } else { 0.0 };
    let images: Vec<f64> = noise.iter().enumerate().map(|(at, x)| 0.1 * x + bright(at)).collect();
    let images = Tensor::from_f64(&images, &[16, 3, 32, 32], DType::F32).unwrap();
    let classes = Tensor::from_vec((0..16i64).map(|at| at % 5).collect(), &[16]).unwrap();
    write_npz(folder.join("images.npz"), [("x", &images), ("y", &classes)]).unwrap();
    fs::copy(vit(), folder.join("vit.onnx")).unwrap();
}

fn run_file(folder: &Path, model: &str, policy: &str) -> RunFile {
    let text = format!(
        "{{version: 1, model: {model}, policy: {policy}, data: {{npy: {{file: images.npz, inputs: x, targets: y}}}}, \
         test: 4, epochs: 8, batch: 4, lr: 0.05, optimizer: {{sgd: {{momentum: 0.9}}}}}}"
    );
    fs::write(folder.join("run.yaml"), text).unwrap();
    RunFile::load(folder.join("run.yaml")).unwrap()
}

#[test]
fn a_model_is_trained_from_its_weights_and_resumed_without_its_file() {
    let folder = Folder::new("onnx-run");
    prepare(&folder.0);
    for (name, policy) in [("plain", "o0"), ("low", "o2-bf16")] {
        let file = run_file(&folder.0, "{onnx: vit.onnx}", policy);
        let to = folder.0.join(name);
        let mut run = Run::begin(&file, file.read_model().unwrap(), &to).unwrap();
        // The first loss is that of the model in the file.
        let images = run.data().train.batches(12).unwrap().next().unwrap();
        let net = OnnxModel::open(vit()).unwrap().import(&Default::default()).unwrap();
        let logits = no_grad(|| net.call(&images.x)).unwrap();
        let untrained = logits.cross_entropy(&images.y).unwrap().item().unwrap();
        assert_eq!(run.train().unwrap(), EndReason::Done);
        let losses: Vec<f64> = run.history().epochs.iter().map(|epoch| epoch.loss).collect();
        assert!((losses[0] - untrained).abs() < 0.5 * untrained, "{untrained}: {losses:?}");
        assert!(losses[7] < 0.75 * losses[0], "{losses:?}");
        drop(run);

        // Stopped after each step, and without the file from which it came.
        let stopped = folder.0.join(format!("{name}-stopped"));
        let mut run = Run::begin(&file, file.read_model().unwrap(), &stopped).unwrap();
        fs::rename(folder.0.join("vit.onnx"), folder.0.join("moved.onnx")).unwrap();
        while run.train_with(&mut |_| ControlFlow::Break(())).unwrap() == EndReason::Interrupted {
            drop(run);
            run = Run::resume(&stopped, RunFile::of_folder(&stopped).unwrap().read_model().unwrap()).unwrap();
        }
        drop(run);
        fs::rename(folder.0.join("moved.onnx"), folder.0.join("vit.onnx")).unwrap();
        assert_eq!(metrics(&to), metrics(&stopped));
        assert_eq!(fs::read(stopped.join("model.onnx")).unwrap(), fs::read(vit()).unwrap());
        let source = RunFile::of_folder(&stopped).unwrap();
        let predict = |folder: &Path| {
            let predictor = Predictor::of_folder(folder, source.read_model().unwrap()).unwrap();
            predictor.predict(folder.with_file_name("images.npz")).unwrap()
        };
        assert_eq!(predict(&to), predict(&stopped));
    }

    // Another model in the folder is refused.
    let changed = folder.0.join("low");
    fs::copy(
        vit().with_file_name("../../crates/graph/tests/onnx/data/exports/resnet-script/model.onnx"),
        changed.join("model.onnx"),
    )
    .unwrap();
    let source = RunFile::of_folder(&changed).unwrap();
    let error = Predictor::of_folder(&changed, source.read_model().unwrap()).unwrap_err().to_string();
    assert!(error.contains("`model.onnx` is not the one with which the run began"), "{error}");
}

#[test]
fn sources_are_written_as_they_are_read() {
    let folder = Folder::new("onnx-sources");
    for (model, source) in
        [("vit.onnx", ModelSource::from("vit.onnx")), ("{onnx: vit.onnx}", OnnxSource::new("vit.onnx").into())]
    {
        let file = run_file(&folder.0, model, "o0");
        assert_eq!((&file.model, file.model.onnx().unwrap().onnx.to_str()), (&source, Some("vit.onnx")));
        assert_eq!(RunFile::parse(&file.to_yaml().unwrap(), "again").unwrap().model, source);
    }
    let file = run_file(&folder.0, "{onnx: a.onnx, fix: {sr: 16000, gain: 0.5, on: true}, axes: {sequence: 12}}", "o0");
    let text = RunFile::parse(&file.to_yaml().unwrap(), "again").unwrap();
    assert_eq!(text.model, file.model);
    let source = file.model.onnx().unwrap();
    assert_eq!((source.fix.len(), source.axes["sequence"]), (3, 12));
}

#[test]
fn mistakes_are_named_with_their_place() {
    let folder = Folder::new("onnx-mistakes");
    prepare(&folder.0);
    for (model, words) in [
        ("gone.onnx", "run.yaml:1:21: "),
        ("{onnx: gone.onnx}", "gone.onnx: "),
        ("{onnx: vit.onnx, axes: {sequence: 12}}", "the model has no symbolic axis `sequence`"),
        ("{onnx: vit.onnx, fix: {sr: 16000}}", "the model has no input `sr`"),
    ] {
        let error = run_file(&folder.0, model, "o0").read_model().unwrap_err().to_string();
        assert!(error.contains(words), "{model}: {error}");
    }
    for (model, words) in [
        ("{onx: vit.onnx}", "run.yaml:1:22: unknown key `onx` (did you mean `onnx`?)"),
        (
            "[vit.onnx]",
            "expected an architecture file, the name of a built-in model, such as lenet5, or `{onnx: model.onnx}`",
        ),
        ("{onnx: vit.onnx, axes: {sequence: long}}", "run.yaml:1:55: "),
        ("{fix: {sr: 1}}", "`onnx`"),
    ] {
        let text = format!("{{version: 1, model: {model}, policy: o0, data: digits}}");
        let error = RunFile::parse(&text, "run.yaml").unwrap_err().to_string();
        assert!(error.contains(words), "{model}: {error}");
    }
}

/// Runs give one input and take one output, and do not train what is rounded already.
#[test]
fn models_that_a_run_cannot_train_are_refused() {
    let folder = Folder::new("onnx-refused");
    prepare(&folder.0);
    let low = OnnxModel::open(vit()).unwrap();
    let policy = precast::policy::GraphPolicy::named("onnx").unwrap();
    low.plan(&policy).unwrap().convert(folder.0.join("low.onnx"), &Default::default(), &mut |_| ()).unwrap();
    let file = run_file(&folder.0, "low.onnx", "o0");
    let error = Run::begin(&file, file.read_model().unwrap(), folder.0.join("low")).unwrap_err().to_string();
    assert!(error.contains("run.yaml:1:21: weights of the model are in float16, among them `"), "{error}");
    assert!(!folder.0.join("low").exists());

    let two = Path::new(env!("CARGO_MANIFEST_DIR")).join("../graph/tests/onnx/records/two-outputs.onnx");
    fs::copy(two, folder.0.join("two.onnx")).unwrap();
    let error = run_file(&folder.0, "two.onnx", "o0").read_model().unwrap_err().to_string();
    assert!(error.contains("two.onnx: it has 2 outputs (y, a), and the loss of a run is of one"), "{error}");
    let error = run_file(&folder.0, "{onnx: vit.onnx, fix: {x0: 1}}", "o0").read_model().unwrap_err().to_string();
    assert!(error.contains("no input is left, and a run gives one"), "{error}");
    let text = "{version: 1, model: {onnx: vit.onnx, fix: {x0: wide}}, policy: o0, data: digits}";
    let error = RunFile::parse(text, "run.yaml").unwrap_err().to_string();
    assert!(error.contains("expected a number, true or false, got string \"wide\""), "{error}");
}
