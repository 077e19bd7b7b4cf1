//! Handling of the bytes of each kind of file, shared by the targets of `cargo fuzz` and the short runs of
//! `crates/train/tests/runs/mutated.rs`. Nothing may panic, and whatever is accepted must hold the guarantees of its documentation.
#![allow(dead_code, reason = "a target feeds one kind")]

use precast::{
    Child, DType, Policy, Tensor,
    cell::Trace,
    cost::Speeds,
    io::models::{self, Model},
    layers::Rng,
    policy::{GraphPolicy, PolicyFile},
    prelude::*,
    storage::{
        stored::{ConvertOptions, StoredModel},
        weights::{self, LoadOptions},
    },
};
use precast_graph::onnx::{ImportOptions, OnnxConvertOptions, OnnxModel};
use precast_train::data::{Csv, Images, Npy};
use precast_train::data::{Dataset, parse_digits};

/// Checks an ONNX model: if it is read and planned, what a conversion writes is read and planned as well, and is converted
/// to itself. It is also imported.
pub fn onnx(bytes: &[u8]) {
    let Ok(model) = OnnxModel::from_bytes(bytes.to_vec()) else { return };
    let _ = model.import(&ImportOptions::new());
    for policy in ["onnx", "onnx-bf16"] {
        let policy = GraphPolicy::named(policy).expect("shipped");
        let Ok(plan) = model.plan(&policy) else { continue };
        for explicit in [false, true] {
            let options = OnnxConvertOptions::new().explicit(explicit);
            // Weights whose numbers are missing are errors here.
            let Ok(written) = plan.to_bytes(&options) else { continue };
            let again = OnnxModel::from_bytes(written.clone()).expect("what was written is read");
            let twice = again.plan(&policy).expect("what was written fits together");
            assert!(explicit || twice.to_bytes(&options).expect("as before") == written, "converted twice");
        }
    }
}

/// Checks a policy file: if it is read, it can be written, and means the same when read again.
pub fn policy(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let Ok(policy) = PolicyFile::parse(text, "fuzz.yaml") else { return };
    let written = policy.to_yaml().expect("what came from a file fits into one");
    let again = PolicyFile::parse(&written, "again.yaml").unwrap_or_else(|error| panic!("{error}\n{written}"));
    assert_eq!(again.to_yaml().expect("as before"), written);
    let PolicyFile::Cells(policy) = policy else { return };
    small().with(|(net, _)| {
        // A rule that matches nothing is an error.
        let Ok(plan) = policy.plan(net) else { return };
        one_line_each(&plan.to_string());
        one_line_each(&plan.explain("").expect("the root is there").to_string());
    });
}

/// Checks an architecture file: if it is read, it can be planned, written, and read again.
pub fn model(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let Ok(model) = Model::parse(text, "fuzz.yaml", 0) else { return };
    let plan = Policy::named("o2").expect("it is built in").plan(&model.net).expect("it has no rules");
    one_line_each(&plan.to_string());
    let written = models::to_yaml(&model.net).expect("what came from a file fits into one");
    let again = models::parse(&written, "again.yaml", 0).unwrap_or_else(|error| panic!("{error}\n{written}"));
    assert_eq!(models::to_yaml(&again).expect("as before"), written);
}

/// Checks a weight file: a network takes all of it or nothing, and keeps its shapes and dtypes.
pub fn weights(bytes: &[u8]) {
    let mut rng = Rng::seed(0);
    let net = Child::of(precast::sequential![Dense::new(3, 2, &mut rng), BatchNorm1d::new(2)]);
    let form = |net: &Child| -> Vec<(Vec<usize>, DType)> {
        net.named_params().iter().map(|(_, param)| (param.shape().to_vec(), param.dtype())).collect()
    };
    let bits = |net: &Child| -> Vec<u64> {
        net.named_params().iter().flat_map(|(_, param)| param.value().to_f64()).map(f64::to_bits).collect()
    };
    let (form_before, bits_before) = (form(&net), bits(&net));
    for cast in [false, true] {
        let read = weights::load_bytes(&net, bytes, &LoadOptions::torch().cast(cast));
        assert_eq!(form(&net), form_before);
        match read {
            Ok(_) => return,
            Err(_) => assert_eq!(bits(&net), bits_before),
        }
    }
}

/// Checks a weight file read only to its header: if it is opened, it can be planned, shown and converted.
pub fn stored(bytes: &[u8]) {
    let file = |name: &str| std::env::temp_dir().join(format!("precast-fuzz-{name}-{}", std::process::id()));
    let (from, to) = (file("from"), file("to"));
    std::fs::write(&from, bytes).expect("the folder of temporary files is writable");
    if let Ok(model) = StoredModel::open(&from) {
        let plan = Policy::named("o2").expect("it is built in").plan_outline(model.outline()).expect("it has no rules");
        one_line_each(&plan.to_string());
        let options = ConvertOptions::new().replace(true).allow_overflow(true);
        if let Ok(converted) = plan.convert_with(&model, &to, options, &mut |_| ()) {
            one_line_each(&precast_train::report::conversion_table(&converted));
            assert_eq!(StoredModel::open(&to).expect("it was written").bytes(), converted.bytes_after);
        }
    }
    let _ = (std::fs::remove_file(from), std::fs::remove_file(to));
}

/// Checks a file of digits, packed or plain.
pub fn digits(bytes: &[u8]) {
    let Ok(digits) = parse_digits(bytes, "fuzz.csv") else { return };
    assert!(!digits.is_empty() && digits.classes() <= 10 && digits.shape() == [1, 8, 8]);
    for batch in digits.batches(1000).unwrap() {
        assert!(batch.x.to_f64().iter().all(|pixel| (0.0..=1.0).contains(pixel)));
    }
}

/// Checks a table, packed or plain, with and without a header, with targets of every kind.
pub fn csv(bytes: &[u8]) {
    let csv = Csv::new("fuzz.csv");
    let plain = csv.clone().header(false);
    let german = csv.clone().delimiter(';').decimal(',').thousands('.');
    for csv in [
        csv.clone().target("species"),
        csv.numbers().target(["petal", "colour"]),
        plain.clone(),
        plain.target(2),
        german.target("preis"),
    ] {
        let Ok(data) = csv.parse(bytes) else { continue };
        holds(&data);
        data.notes().iter().for_each(|note| one_line_each(note));
        let again = csv.found(&data).parse(bytes).expect("the names that were found");
        assert!(again == data);
    }
}

/// Checks a PNG image, in grey and in colour, at its size and resized.
pub fn images(bytes: &[u8]) {
    let images = Images::new("fuzz");
    for images in [images.clone(), images.clone().grey(), images.resize(2, 3)] {
        let Ok(image) = images.parse(bytes, "fuzz.png") else { continue };
        holds(&image);
        let pixels: Vec<Tensor> = image.input_batches(1).unwrap().collect();
        assert!(pixels.len() == 1 && pixels[0].to_f64().iter().all(|pixel| (0.0..=1.0).contains(pixel)));
    }
}

/// Checks a NumPy array, or several in an archive.
pub fn npy(bytes: &[u8]) {
    for npy in [Npy::new("x.npy", "y.npy"), Npy::npz("fuzz.npz"), Npy::npz("fuzz.npz").targets("z")] {
        if let Ok(data) = npy.parse(bytes) {
            holds(&data);
        }
    }
}

/// Checks the invariants of all examples.
fn holds(data: &Dataset) {
    assert!(!data.is_empty());
    let shape = |x: &Tensor| x.shape()[1..] == *data.shape();
    let batches: Vec<Tensor> = data.input_batches(2).unwrap().collect();
    assert!(batches.iter().all(|x| shape(x) && x.to_f64().iter().all(|x| x.is_finite())));
    assert_eq!(batches.iter().map(|x| x.shape()[0]).sum::<usize>(), data.len());
}

/// Checks a file of speeds: whatever numbers it holds, a plan can be made from them.
pub fn speeds(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let Ok(speeds) = Speeds::parse(text) else { return };
    small().with(|(net, trace)| {
        let policy = Policy::parse("version: 1\nlevel: O2\ndtype: float16\nprefer: speed\n", "p").expect("it is right");
        let plan = policy.plan_for(net, trace, &speeds).expect("the trace is the network's");
        one_line_each(&plan.to_string());
    });
}

/// Checks that no text from a file controls the terminal or begins a line of its own.
fn one_line_each(shown: &str) {
    assert!(shown.chars().all(|c| c == '\n' || !c.is_control()), "{shown:?}");
}

/// Returns a small network and the trace of a training call.
fn small() -> &'static std::thread::LocalKey<(Child, Trace)> {
    thread_local! {
        static SMALL: (Child, Trace) = {
            let mut rng = Rng::seed(0);
            let mut net = Child::of(precast::sequential![
                Dense::new(8, 4, &mut rng),
                BatchNorm1d::new(4),
                ReLU,
                Dense::new(4, 2, &mut rng),
            ]);
            net.set_train(true);
            let (called, trace) = net.trace(|net| net.call(&Tensor::ones(&[4, 8], DType::F32)));
            called.expect("the shapes fit");
            (net, trace)
        };
    }
    &SMALL
}
