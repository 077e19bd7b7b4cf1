//! Architecture files: accepted contents and error messages.

use precast::{ErrorKind, io::models, prelude::*};

use crate::common::folder::Folder;

fn error(text: &str) -> String {
    let error = models::parse(text, "net.yaml", 0).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Model);
    println!("{error}");
    error.to_string().lines().next().unwrap().to_string()
}

/// As for policies: the line of the mistake, with a caret under the position.
#[test]
fn the_line_of_a_mistake_is_shown() {
    let error = models::parse("version: 1\nnet: {kind: Dens}\n", "net.yaml", 0).unwrap_err().to_string();
    let lines: Vec<&str> = error.lines().collect();
    assert_eq!(lines[1..], ["  |", "2 | net: {kind: Dens}", "  |             ^"]);
}

#[test]
fn mistakes_are_told_with_their_place() {
    let cell = |cell: &str| format!("version: 1\nname: x\nnet:\n  kind: Sequential\n  cells:\n  - {cell}\n");
    assert_eq!(
        error(&cell("kind: Dens\n    in_features: 1")),
        "net.yaml:6:11: no kind of cell is called `Dens` (did you mean `Dense`?)"
    );
    assert_eq!(
        error(&cell("kind: Dense\n    in_feature: 3")),
        "net.yaml:7:5: unknown key `in_feature` (did you mean `in_features`?); allowed: in_features, out_features, bias"
    );
    assert!(error(&cell("{kind: Dense, in_features: 3}")).contains("the key `out_features` is missing from this map"));
    assert_eq!(
        error(&cell("{kind: Dense, in_features: -3, out_features: 2}")),
        "net.yaml:6:32: expected a whole number, got `-3`"
    );
    assert!(
        error(&cell("{kind: Dense, in_features: 99999999999, out_features: 9999999999}"))
            .contains("does not fit into memory")
    );
    assert!(error(&cell("{in_features: 3, out_features: 2}")).contains("the key `kind` is missing from this map"));
    assert!(
        error(&cell("{to_float: int64, cell: {kind: ReLU}}")).contains("to_float takes float32, float16 or bfloat16")
    );
    assert!(error(&cell("{kind: ReLU, kind: Tanh}")).contains("kind"));
}

#[test]
fn versions_are_read_first() {
    assert_eq!(error("version: 2\nnets: 1\n"), "net.yaml:1:10: model files of version 2 are not known; allowed: 1");
    assert!(error("net: {kind: ReLU}\n").contains("the key `version` is missing from this map"));
    assert!(error("version: one\nnet: {kind: ReLU}\n").starts_with("net.yaml:1:10: "));
    assert!(error("version: 1\nnet: {kind: ReLU}\nnets: 1\n").contains("unknown key `nets` (did you mean `net`?)"));
}

#[test]
fn what_yaml_can_do_and_a_model_may_not_is_told_in_our_words() {
    let cases = [
        ("version: 1\nnet: &a {kind: ReLU}\n", "net.yaml:2:9: ", "YAML anchors (`&`) are not allowed here"),
        ("version: 1\nnet: *a\n", "net.yaml:2:6: ", "an unquoted `*` begins a YAML alias, which is not allowed here"),
        ("version: 1\nnet: {kind: ReLU, <<: {a: 1}}\n", "net.yaml:2:19: ", "merge keys (`<<`) are not allowed here"),
        ("version: 1\nnet: {kind: !odd ReLU}\n", "net.yaml:2:", "YAML tags (`!`) are not allowed here"),
        (
            "version: 1\nnet: {kind: ReLU}\n---\nversion: 1\n",
            "net.yaml:3:1: ",
            "a second document begins here; a file has one",
        ),
        ("version: 1\nversion: 1\nnet: {kind: ReLU}\n", "net.yaml:2:1: ", "duplicate key `version`"),
        ("version: 1\nnet: {kind: ReLU}\ninput: 5\n", "net.yaml:3:8: ", "expected a list, `[a, b]`"),
        ("version: 1\nnet: 5\n", "net.yaml:2:6: ", "expected a map, `key: value`"),
        ("version: 1\nnet: {kind: Dropout, p: much}\n", "net.yaml:2:25: ", "expected a finite number, got `much`"),
        ("", "net.yaml:1:1: ", "the file is empty"),
        ("version: 1\nnet: {kind: Sequential, cells: [", "net.yaml:2:", "unclosed bracket '['"),
    ];
    for (text, place, words) in cases {
        let message = error(text);
        assert!(message.starts_with(place) && message.contains(words), "{text:?}: {message}");
    }
    let nested = |levels: usize| {
        let (open, close) = ("{kind: Sequential, cells: [".repeat(levels), "]}".repeat(levels));
        format!("version: 1\nnet: {open}{{kind: ReLU}}{close}\n")
    };
    // On a stack as large as a main thread's: without optimization, these take more than the 2 MiB of a test.
    let deep = std::thread::Builder::new().stack_size(8 << 20).spawn(move || {
        assert!(models::parse(&nested(31), "net.yaml", 0).is_ok());
        assert!(error(&nested(32)).ends_with("lists and maps are nested deeper than 64"));
    });
    deep.unwrap().join().unwrap();
    let wide = format!("version: 1\nnet: {{kind: Sequential, cells: [{}]}}\n", "{kind: ReLU},".repeat(22_000));
    assert!(error(&wide).ends_with("more than 65536 values"));
    assert!(!error("version: 1\nnet: {kind: \"Re\\nLU\\e[2J\"}\n").chars().any(char::is_control));
}

#[test]
fn hostile_files_are_refused_quickly() {
    assert!(error(&"x".repeat((1 << 20) + 1)).contains("the file is larger than 1024 KiB"));
    assert!(error("version: 1\nnet: &a {kind: ReLU}\n").contains("anchors (`&`)"));
    error("version: 1\nnet: !!map {kind: !odd ReLU}\n");
    error("version: 1\nnet: {kind: ReLU}\n---\nversion: 1\n");
    error("");
    error("\u{0}");
    let deep = "{kind: Sequential, cells: [".repeat(5000);
    error(&format!("version: 1\nnet: {deep}"));
    let closed = format!("{deep}{{kind: ReLU}}{}", "]}".repeat(5000));
    assert!(error(&format!("version: 1\nnet: {closed}\n")).contains("nested deeper than 64"));
    let wide = format!("version: 1\nnet: {{kind: Sequential, cells: [{}]}}\n", "{kind: ReLU},".repeat(70_000));
    assert!(error(&wide).contains("more than 65536 values"));
}

/// Nests `Sequential` cells to the given depth.
fn nested(depth: usize) -> Child {
    (0..depth).fold(Child::of(ReLU), |inner, _| Child::of(Sequential::new(vec![inner])))
}

/// A cell that holds another without a list between, so that each takes one level of a file.
#[derive(Cell, Debug, serde::Serialize, serde::Deserialize)]
#[cell(saved)]
struct Around {
    inner: Child,
}

impl Forward for Around {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        self.inner.call(x)
    }
}

fn around(depth: usize) -> Child {
    (0..depth).fold(Child::of(ReLU), |inner, _| Child::of(Around { inner }))
}

/// In a thread with the default stack size for threads; without optimization each level takes some 50 KiB, so with that
/// of a main thread.
#[test]
fn what_cannot_be_loaded_is_not_saved() {
    let stack = if cfg!(debug_assertions) { 8 << 20 } else { 2 << 20 };
    let limits = std::thread::Builder::new().stack_size(stack).spawn(limits_of_saving).unwrap();
    limits.join().unwrap();
}

fn limits_of_saving() {
    let folder = Folder::new("unsaved");
    let path = folder.at("net.yaml");
    let refused = |net: &Child, why: &str| {
        std::fs::write(&path, "as it was").unwrap();
        for error in [models::save(net, &path).unwrap_err(), models::to_yaml(net).unwrap_err()] {
            assert_eq!(error.kind(), ErrorKind::Model);
            assert!(error.to_string().contains(why), "{error}");
        }
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "as it was");
    };
    // The maximum depth is saved and loaded, one level more is refused, and so is a depth that no stack could write.
    for net in [nested, around] {
        let written = |depth: usize| models::save(&net(depth), &path).is_ok();
        let deepest = (1..80).take_while(|&depth| written(depth)).last().expect("some depth is written");
        assert!((20..64).contains(&deepest), "{deepest}");
        models::save(&net(deepest), &path).unwrap();
        let text = std::fs::read_to_string(&path).unwrap();
        assert_eq!(models::to_yaml(&models::load(&path, 0).unwrap()).unwrap(), text.replace("name: net\n", ""));
        for depth in [deepest + 1, 64, 100, 300, 1000] {
            refused(&net(depth), "nested deeper than 64");
        }
    }
    let dense = || Child::from(Dense::new(1, 1, &mut Rng::seed(0)));
    let wide = Child::of(Sequential::new((0..12_000).map(|_| dense()).collect()));
    refused(&wide, "more than 65536 values");
    let right = Child::of(Sequential::new((0..5_000).map(|_| dense()).collect()));
    models::save(&right, &path).unwrap();
    assert_eq!(models::load(&path, 0).unwrap().params().len(), 10_000);
}

#[test]
fn a_convolution_of_no_channels_trains() {
    let text = "version: 1\ninput: [1, 8, 8]\nnet:\n  kind: Sequential\n  cells:\n  \
        - {kind: Conv2d, in_channels: 1, out_channels: 0, kernel_size: 3}\n  \
        - {kind: Conv2d, in_channels: 0, out_channels: 2, kernel_size: 3}\n  - {kind: Flatten}\n  \
        - {kind: Dense, in_features: 32, out_features: 2}\n";
    let mut net = models::parse(text, "net.yaml", 0).unwrap();
    net.set_train(true);
    let loss = net.call(&Tensor::ones(&[3, 1, 8, 8], DType::F32)).unwrap().sum_all().unwrap();
    assert!(loss.item().unwrap().is_finite());
    assert_eq!(loss.backward().unwrap().len(), 6);
}

#[test]
fn dropout_of_everything_is_the_same_in_code_and_files() {
    let text = "version: 1\nnet:\n  kind: Dropout\n  p: 1.0\n";
    let x = Tensor::ones(&[2, 3], DType::F32);
    for mut net in [models::parse(text, "net.yaml", 0).unwrap(), Dropout::new(1.0, &mut Rng::seed(0)).into()] {
        assert_eq!(models::to_yaml(&net).unwrap(), text);
        assert_eq!(net.call(&x).unwrap().to_f64(), [1.0; 6]);
        net.set_train(true);
        assert_eq!(net.call(&x).unwrap().to_f64(), [0.0; 6]);
    }
    let beyond = text.replace("1.0", "1.5");
    assert!(error(&beyond).contains("allowed: 0 to 1"));
}

#[test]
fn a_request_for_a_precision_reads_and_writes() {
    let text =
        "version: 1\nnet:\n  to_float: float16\n  cell:\n    kind: Dense\n    in_features: 2\n    out_features: 2\n";
    let net = models::parse(text, "net.yaml", 0).unwrap();
    assert_eq!(net.requested(), Some(DType::F16));
    assert_eq!(models::to_yaml(&net).unwrap(), text);
}

#[test]
fn files_are_saved_and_loaded() {
    let folder = Folder::new("models");
    let path = folder.at("tiny.yaml");
    let net = Child::of(sequential![Dense::new(2, 3, &mut Rng::seed(0)), ReLU]);
    models::save(&net, &path).unwrap();
    assert!(std::fs::read_to_string(&path).unwrap().starts_with("version: 1\nname: tiny\nnet:\n  kind: Sequential\n"));
    let (a, b) = (models::load(&path, 3).unwrap(), models::load(&path, 4).unwrap());
    let weight = |net: &Child| net.named_params()[0].1.value().to_f64();
    assert_eq!(weight(&a), weight(&models::load(&path, 3).unwrap()));
    assert_ne!(weight(&a), weight(&b));
    let error = models::load(folder.at("none.yaml"), 0).unwrap_err();
    assert!(error.kind() == ErrorKind::Io && error.to_string().contains("none.yaml"));
}

#[test]
fn the_shipped_networks_run() {
    // Parameters counted by hand: LeNet-5 has 156 + 2416 + 48120 + 10164 + 850.
    let nets = [
        ("models/lenet5.yaml", vec![2, 1, 32, 32], 61_706),
        ("models/lenet5_8x8.yaml", vec![2, 1, 8, 8], 60 + 880 + 7_800 + 10_164 + 850),
        ("models/lenet5_bn.yaml", vec![2, 1, 32, 32], 61_706 + 12 + 32),
        ("models/mlp.yaml", vec![2, 64], 64 * 128 + 128 + 256 + 128 * 64 + 64 + 128 + 650),
    ];
    for (file, shape, count) in nets {
        let mut net = models::load(file, 0).unwrap();
        assert_eq!(net.params().iter().map(|(_, p)| p.value().len()).sum::<usize>(), count, "{file}");
        for training in [false, true] {
            net.set_train(training);
            let y = net.call(&Tensor::ones(&shape, DType::F32)).unwrap();
            assert_eq!(y.shape(), [2, 10], "{file}");
            assert!(y.to_f64().iter().all(|y| y.is_finite()), "{file}");
        }
    }
}
