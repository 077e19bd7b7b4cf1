//! The decisions of onnxconverter-common 1.16, recorded, and those of its pack.

use std::{collections::BTreeMap, fs, path::Path};

use precast::policy::GraphPolicy;
use precast_graph::onnx::{OnnxConvertOptions, OnnxModel, OnnxPlanOptions};
use serde_json::{Map, Value};

use super::pb;

/// Differences on purpose: the model, what differs in how many of its records that load, and the reason.
const ON_PURPOSE: &[(&str, &str, usize, &str)] = &[
    ("clamped-values", "initialiser b", 4, IN_RANGE),
    ("clamped-values", "initialiser w", 3, IN_RANGE),
    ("clamped-values", "node add", 4, IN_RANGE),
    ("clamped-values", "node fc", 3, IN_RANGE),
    ("cnn", "initialiser be", 4, NORM),
    ("cnn", "initialiser g", 4, NORM),
    ("cnn", "initialiser m", 4, NORM),
    ("cnn", "initialiser v", 4, NORM),
    ("cnn", "io y", 1, OUTPUT),
    ("constant-node", "node const", 1, CONSTANT),
    ("embedding", "io y", 1, OUTPUT),
    ("lstm", "io y", 1, OUTPUT),
    ("residual", "io y", 1, OUTPUT),
    ("resize", "io y", 3, OUTPUT),
    ("topk-head", "io v", 3, OUTPUT),
];

const IN_RANGE: &str = "numbers that float16 does not hold are not moved to 1e4 and 1e-7: their readers stay float32";
const NORM: &str = "the scale, bias and statistics of a batch norm have types of their own, and stay float32";
const OUTPUT: &str = "an output keeps its type, also that of a node that is blocked";
const CONSTANT: &str = "a constant of a blocked node alone stays float32, as an initialiser does in both";

/// Returns the policy with what a record blocks.
fn policy(record: &Value) -> GraphPolicy {
    let names = |key: &str| {
        let names = record[key].as_array().unwrap().iter().map(|name| name.as_str().unwrap().to_string());
        names.collect::<Vec<_>>()
    };
    let ops = names("blocked_ops").join(", ");
    let mut text = format!(
        "version: 1\npack: onnxconverter-common-1.16\ndtype: float16\ngraph: {{ deny: {{ add: [{ops}] }} }}\nrules:\n"
    );
    let there = names("blocked_nodes").into_iter().filter(|name| record["runs"].get(name).is_some());
    let rules: Vec<String> = there.map(|name| format!("  - {{ path: {name}, run: float32 }}\n")).collect();
    text += &if rules.is_empty() { "  []\n".to_string() } else { rules.concat() };
    GraphPolicy::parse(&text, "record.yaml").unwrap()
}

/// Returns what a model becomes under the pack, in the form of a record: nodes, inputs and outputs, and initialisers.
fn ours(model: &OnnxModel, record: &Value) -> Map<String, Value> {
    let options = OnnxPlanOptions::new();
    let keeps = record["keep_io"].as_bool().unwrap();
    let options = if keeps { options } else { options.low_io() };
    let plan = model.plan_with(&policy(record), &options, &mut |_| ()).unwrap();
    let bytes = plan.to_bytes(&OnnxConvertOptions::new()).unwrap();
    let mut found = Map::new();
    for decision in plan.decisions() {
        found.insert(format!("node {}", decision.node), decision.dtype.long_name().into());
    }
    let written = pb::Written::of(&bytes);
    for (name, elem) in written.constants {
        found.insert(format!("node {name}"), elem.into());
    }
    for (name, elem) in written.io {
        found.insert(format!("io {name}"), elem.into());
    }
    for (name, (elem, raw)) in written.initialisers {
        let bits: String = raw.iter().map(|byte| format!("{byte:02x}")).collect();
        found.insert(format!("initialiser {name}"), vec![elem.to_string(), bits].into());
    }
    found
}

fn recorded(record: &Value) -> impl Iterator<Item = (String, &Value)> {
    [("runs", "node"), ("io", "io"), ("initialisers", "initialiser")].into_iter().flat_map(|(key, word)| {
        record[key].as_object().unwrap().iter().map(move |(name, value)| (format!("{word} {name}"), value))
    })
}

#[test]
fn decisions_are_those_of_onnxconverter_common() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/onnx/records");
    let files = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let (mut compared, mut agreed) = (0, 0);
    let mut differ: BTreeMap<(String, String), Vec<String>> = BTreeMap::new();
    for file in files.filter(|file| file.extension().is_some_and(|extension| extension == "json")) {
        let name = file.file_stem().unwrap().to_string_lossy().into_owned();
        let records: Map<String, Value> = serde_json::from_str(&fs::read_to_string(&file).unwrap()).unwrap();
        let model = OnnxModel::open(file.with_extension("onnx")).unwrap();
        for (setting, record) in records.iter().filter(|(_, record)| record["loads"] == true) {
            compared += 1;
            let found = ours(&model, record);
            for (what, wanted) in recorded(record) {
                match found.get(&what) {
                    Some(met) if met == wanted => agreed += 1,
                    met => differ
                        .entry((name.clone(), what))
                        .or_default()
                        .push(format!("{setting}: {met:?}, recorded {wanted}")),
                }
            }
        }
    }
    assert_eq!(compared, 55, "records that load");
    let known = |(name, what): &(String, String)| ON_PURPOSE.iter().find(|row| row.0 == name && row.1 == what);
    let new: Vec<String> = differ
        .iter()
        .filter(|(key, settings)| known(key).is_none_or(|row| row.2 != settings.len()))
        .map(|((name, what), settings)| format!("{name}: {what}: {}", settings.join("; ")))
        .collect();
    assert!(new.is_empty(), "{agreed} agree; these differ:\n{}", new.join("\n"));
    let gone = ON_PURPOSE.iter().find(|row| !differ.contains_key(&(row.0.to_string(), row.1.to_string())));
    assert_eq!(gone, None, "no difference any more");
    assert_eq!(agreed, 395, "the types of nodes, inputs and outputs, and the bits of initialisers");
}
