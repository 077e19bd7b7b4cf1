//! The schema of run files, by which editors complete and check them, agrees with the reader.

use std::path::Path;

use precast_train::RunFile;
use serde_json::Value;

use crate::common::json_schema::fault;

/// A run file with one more line.
fn with(line: &str) -> String {
    format!("version: 1\nmodel: m\npolicy: o2\n{line}\n")
}

fn digits(line: &str) -> String {
    with(&format!("data: digits\n{line}"))
}

/// Returns the names that the reader allows at a position, from its message about an unknown one.
fn allowed(text: &str) -> Vec<String> {
    let message = RunFile::parse(text, "run.yaml").expect_err(text).to_string();
    let first = message.lines().next().unwrap();
    let (_, names) = first.split_once("; allowed: ").unwrap_or_else(|| panic!("{message}"));
    let mut names: Vec<String> = names.split(", ").map(String::from).collect();
    names.sort();
    names
}

fn keys(value: &Value) -> Vec<String> {
    value.as_object().unwrap().keys().cloned().collect()
}

fn names(value: &Value) -> Vec<String> {
    value.as_array().unwrap().iter().map(|name| name.as_str().unwrap().to_string()).collect()
}

/// A key is declared with the options or the run file, and in the document, and exchanged between both.
#[test]
fn a_key_is_named_in_at_most_three_places() {
    let code: Vec<String> = ["run_file.rs", "training/fit/options.rs"]
        .iter()
        .flat_map(|file| {
            let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("src").join(file);
            std::fs::read_to_string(file).unwrap().lines().map(String::from).collect::<Vec<_>>()
        })
        .filter(|line| !line.trim_start().starts_with("//") && !line.trim_start().starts_with("#["))
        .collect();
    let names =
        |line: &str, key: &str| line.split(|c: char| !(c.is_alphanumeric() || c == '_')).any(|word| word == key);
    for key in [
        "average",
        "checkpoint",
        "clip",
        "lint",
        "memory",
        "monitor",
        "seed",
        "shard_optimizer",
        "shards",
        "standardize",
        "standardize_targets",
        "warm_up",
        "weights",
    ] {
        let places: Vec<&String> = code.iter().filter(|line| names(line, key)).collect();
        assert!((2..=3).contains(&places.len()), "{key}: {places:#?}");
    }
}

#[test]
fn the_schema_knows_the_keys_and_names_that_the_reader_knows() {
    let schema = RunFile::schema();
    assert_eq!(keys(&schema["properties"]), allowed(&digits("zzz: 1")));
    assert_eq!(keys(&schema["properties"]["checkpoint"]["properties"]), allowed(&digits("checkpoint: {zzz: 1}")));
    let mut maps = 0;
    for key in ["data", "storage", "optimizer", "schedule", "loss"] {
        let file = |value: &str| match key {
            "data" => with(&format!("data: {value}")),
            _ => digits(&format!("{key}: {value}")),
        };
        let [alone, map] = &schema["properties"][key]["anyOf"].as_array().unwrap()[..] else { panic!("{key}") };
        let with_options = keys(&map["properties"]);
        let mut all = [names(&alone["enum"]), with_options.clone()].concat();
        all.sort();
        all.dedup();
        assert_eq!(all, allowed(&file("zzz")), "{key}");
        for name in with_options {
            let options = &map["properties"][&name];
            let required = options.get("required").map(names).unwrap_or_default();
            assert_eq!(required.is_empty(), names(&alone["enum"]).contains(&name), "{name} alone");
            assert!(options["description"].as_str().unwrap().len() > 3, "{name}");
            let known = keys(&options["properties"]);
            if !known.is_empty() {
                assert_eq!(known, allowed(&file(&format!("{{{name}: {{zzz: 1}}}}"))), "{name}");
                maps += 1;
            }
        }
    }
    assert_eq!(maps, 5 + 4 + 9 + 4 + 2);
    let items = |key: &str, at: &str| keys(&schema.pointer(&format!("/properties/{key}{at}")).unwrap()["properties"]);
    assert_eq!(items("groups", "/items"), allowed(&digits("groups: [{path: a, zzz: 1}]")));
    assert_eq!(items("weights", "/anyOf/1"), allowed(&digits("weights: {file: a, zzz: 1}")));
    let adamw = allowed(&digits("optimizer: {adamw: {zzz: 1}}"));
    let muon = &schema["properties"]["optimizer"]["anyOf"][1]["properties"]["muon"];
    assert_eq!(keys(&muon["properties"]["others"]["properties"]), adamw);
}

/// Returns why the schema refuses a file.
fn refusal(text: &str) -> Option<String> {
    let value: Value = precast_base::document::from_str(text).unwrap_or_else(|error| panic!("{text}: {error}"));
    let schema = RunFile::schema();
    fault(&schema, &schema, &value)
}

#[test]
fn the_schema_accepts_and_refuses_what_the_reader_accepts_and_refuses() {
    let good = [
        "test: 0.5",
        "test: 3",
        "test: other.csv",
        "validation: 0.25",
        "validation: 3",
        "validation: other.csv",
        "memory: 256 MiB",
        "memory: 0",
        "standardize: true",
        "storage: kahan",
        "storage: {masters: {dtype: bfloat16, exclude: ['head.**']}}",
        "optimizer: lion",
        "optimizer: {sgd: {momentum: 0.5, dampening: 0.25}}",
        "optimizer: {adafactor: {eps: [0.1, 0.2]}}",
        "optimizer: {muon: {rounds: 4, others: {betas: [0.8, 0.9], state_8bit: true}}}",
        "lr: 0.125",
        "schedule: one-cycle",
        "schedule: {step: {every: 7, factor: 0.5}}",
        "schedule: inverse-sqrt",
        "schedule: {inverse-sqrt: {timescale: 400}}",
        "schedule: {restarts: {every: 7, growth: 2}}",
        "schedule: plateau",
        "schedule: {plateau: {patience: 2, factor: 0.5, least: 0.01}}",
        "weights: a.safetensors",
        "weights: {file: a.safetensors, torch: true, cast: true, ignore: [step], transpose: ['*.weight'], partial: ['1.*']}",
        "weights: {file: a, rename: [{from: 'h.**', to: '**'}], split: [{from: qkv, to: [q, k, v], axis: 1}]}",
        "freeze: ['0.**', '**.bias']",
        "freeze: encoder",
        "storage: {masters: {exclude: head}}",
        "weights: {file: a, ignore: step, partial: head}",
        "groups: [{path: '**.bias', lr_factor: 2, weight_decay: 0}, {path: '0.*', lr_factor: 0}]",
        "clip: 0.5",
        "accumulate: 4",
        "shards: 8",
        "wire: bfloat16",
        "shard_optimizer: true",
        "average: 0.99",
        "loss: l1",
        "loss: {mse: {}}",
        "loss: {cross_entropy: {label_smoothing: 0.1, ignore_index: -1, weight: [1, 2]}}",
        "checkpoint: {every: 5}",
        "patience: 4",
        "name: first",
    ];
    let good_sources = [
        "data: {csv: {file: a.csv, target: [x, 2], as: numbers, header: false, delimiter: \";\", decimal: \",\"}}",
        "data: {csv: {file: a.csv, target: 3, columns: a, ignore: [1], class_names: [a, b], thousands: \"'\"}}",
        "data: {csv: {file: a.csv, target: y, missing: NA, empty: mean}}",
        "data: {csv: {file: a.csv, target: y, missing: [NA, '?'], empty: mean}}",
        "data: {images: {folder: a, pixels: grey, resize: [8, 9], class_names: [a]}}",
        "data: {npy: {file: a.npz, inputs: x, targets: y}}",
        "data: {npy: {inputs: x.npy}}",
        "data: {text: {file: a.txt, tokens: chars, length: 3, stride: 1, characters: abc}}",
        "data: {addition: {digits: 9, examples: 7, seed: 3}}",
    ];
    for text in good.map(digits).into_iter().chain(good_sources.map(with)) {
        let file = RunFile::parse(&text, "run.yaml").unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(refusal(&text), None, "{text}");
        let written = file.to_yaml().unwrap();
        assert_eq!(refusal(&written), None, "{written}");
    }
    let bad = [
        "test: 1.5",
        "test: 0",
        "test: [1]",
        "validation: 0",
        "validation: 1.5",
        "memory: -1",
        "memory: [1]",
        "standardize: 1",
        "storage: master",
        "storage: {float32: {dtype: bfloat16}}",
        "storage: {low: {dtype: float32}}",
        "storage: {masters: {exclude: {head: true}}}",
        "optimizer: adm",
        "optimizer: {adam: 0.001}",
        "optimizer: {adam: {betas: [0.9]}}",
        "optimizer: {adamw: {betas: [0.9, 1.0]}}",
        "optimizer: {adam: {weight_decay: -1}}",
        "optimizer: {adam: {amsgrad: 1}}",
        "optimizer: {adam: {}, sgd: {}}",
        "optimizer: {muon: {rounds: 100}}",
        "lr: 0",
        "lr: fast",
        "schedule: step",
        "schedule: {step: {every: 1}}",
        "schedule: {step: {every: 0, factor: 0.1}}",
        "schedule: restarts",
        "schedule: {restarts: {every: 4, growth: 0}}",
        "schedule: {inverse-sqrt: {timescale: 0}}",
        "schedule: {plateau: {factor: 1}}",
        "schedule: {plateau: {least: 2}}",
        "weights: 3",
        "weights: {torch: true}",
        "weights: {file: a, ignore: {step: 1}}",
        "weights: {file: a, rename: [{from: a}]}",
        "weights: {file: a, split: [{from: a, to: [b], axis: -1}]}",
        "freeze: {encoder: true}",
        "groups: [{lr_factor: 2}]",
        "groups: [{path: a, lr_factor: -1}]",
        "groups: {path: a}",
        "clip: 0",
        "accumulate: 0",
        "shards: 0",
        "wire: float16",
        "wire: 16",
        "shard_optimizer: 1",
        "average: 1",
        "average: true",
        "loss: cross-entropy",
        "loss: {huber: {delta: 0}}",
        "loss: {cross_entropy: {label_smoothing: 1.5}}",
        "loss: {cross_entropy: {weight: [1, -1]}}",
        "epochs: 0",
        "batch: 1.5",
        "batch: 0",
        "warm_up: -1",
        "checkpoint: {keep: 0}",
        "checkpoint: {every: 0}",
        "checkpoint: 100",
        "patience: 0",
    ];
    let bad_sources = [
        "data: csv",
        "data: {csv: {target: y}}",
        "data: {csv: {file: a.csv, as: words}}",
        "data: {csv: {file: a.csv, delimiter: abc}}",
        "data: {images: {folder: a, pixels: blue}}",
        "data: {images: {folder: a, resize: [8]}}",
        "data: {npy: {targets: y}}",
        "data: {text: {file: a.txt, tokens: words}}",
        "data: {text: {file: a.txt, length: 0}}",
        "data: {text: {file: a.txt, stride: 0}}",
        "data: addition",
        "data: {addition: {digits: 0}}",
        "data: {addition: {digits: 10}}",
        "data: {addition: {digits: 1, examples: 0}}",
        "data: {digits: {folder: a}}",
    ];
    for text in bad.map(digits).into_iter().chain(bad_sources.map(with)) {
        assert!(RunFile::parse(&text, "run.yaml").is_err(), "the reader takes {text}");
        assert!(refusal(&text).is_some(), "the schema takes {text}");
    }
    assert!(RunFile::parse("version: 2\nmodel: m\npolicy: o2\ndata: digits\n", "run.yaml").is_err());
    assert!(refusal("version: 2\nmodel: m\npolicy: o2\ndata: digits\n").is_some());
}

#[test]
fn the_schema_has_defaults_and_descriptions() {
    let schema = RunFile::schema();
    let at = |pointer: &str| schema.pointer(pointer).unwrap_or_else(|| panic!("{pointer}"));
    assert_eq!(at("/properties/epochs/default"), 10);
    assert_eq!(at("/properties/batch/minimum"), 1);
    assert_eq!(at("/properties/storage/default"), "float32");
    let optimizer = "The optimizer, with its own options. Default: sgd.";
    assert_eq!(at("/properties/optimizer/description"), optimizer);
    let adam = at("/properties/optimizer/anyOf/1/properties/adam/properties");
    assert_eq!((&adam["betas"]["default"], &adam["eps"]["default"]), (&serde_json::json!([0.9, 0.999]), &1e-8.into()));
    let text = at("/properties/data/anyOf/1/properties/text/properties");
    assert_eq!((&text["length"]["default"], &text["tokens"]["enum"][1]), (&64.into(), &"chars".into()));
}

/// The files that come with precast are read and checked.
#[test]
fn the_schema_accepts_the_files_that_ship() {
    let root = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."));
    for file in ["crates/train/run.yaml", "examples/addition/run.yaml"] {
        let run = RunFile::load(root.join(file)).unwrap();
        run.read_model().unwrap();
        run.read_policy().unwrap();
        assert_eq!(refusal(&std::fs::read_to_string(root.join(file)).unwrap()), None, "{file}");
    }
}
