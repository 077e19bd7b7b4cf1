//! `policies/schema.json`, used by editors to complete and check policy files, agrees with the reader.

use std::{collections::BTreeSet, fs, path::Path};

use precast::{
    DType, Level, Policy,
    policy::{DynamicScale, GraphLevel, Pack, PolicyFile, Prefer},
};
use precast_base::document::from_str;
use serde_json::Value;

use crate::common::json_schema::fault;

fn text(file: impl AsRef<Path>) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(file);
    fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

fn schema() -> Value {
    serde_json::from_str(&text("policies/schema.json")).unwrap()
}

fn names(value: &Value) -> BTreeSet<String> {
    match value {
        Value::Object(map) => map.keys().cloned().collect(),
        Value::Array(items) => items.iter().map(|item| item.as_str().unwrap().to_string()).collect(),
        other => panic!("{other}"),
    }
}

/// Returns the `allowed:` part of the message with which the reader refuses a text.
fn allowed(lines: &str) -> BTreeSet<String> {
    let head = "version: 1\nlevel: O2\ndtype: float16\n";
    let message = Policy::parse(&format!("{head}{lines}\n"), "p").expect_err(lines).to_string();
    let list = message.lines().next().unwrap().rsplit("allowed: ").next().unwrap().to_string();
    list.split(", ").map(String::from).collect()
}

#[test]
fn the_reader_and_the_schema_know_the_same_keys() {
    let schema = schema();
    for (place, lines) in [
        ("/properties", "zz: 1"),
        ("/properties/cells/properties", "cells: { zz: 1 }"),
        ("/properties/ops/properties", "ops: { zz: 1 }"),
        ("/$defs/changes/properties", "cells: { white: { zz: 1 } }"),
        ("/$defs/changes/properties", "cells: { black: { zz: 1 } }"),
        ("/$defs/changes/properties", "ops: { white: { zz: 1 } }"),
        ("/$defs/rule/properties", "rules: [{ zz: 1 }]"),
        ("/$defs/rule/properties/run/oneOf/0/enum", "rules: [{ kind: A, run: zz }]"),
        ("/$defs/until/properties", "rules: [{ kind: A, run: low, until: { zz: 1 } }]"),
        ("/$defs/rule/properties/after_stall/enum", "rules: [{ kind: A, after_stall: zz }]"),
        ("/$defs/rule/properties/operands/oneOf/0/enum", "rules: [{ kind: A, operands: zz }]"),
        ("/$defs/operands_by_direction/properties", "rules: [{ kind: A, operands: { zz: 1 } }]"),
        (
            "/$defs/operands_by_direction/properties/forward/enum",
            "rules: [{ kind: A, operands: { forward: zz, backward: e5m2, scale: rows } }]",
        ),
        (
            "/$defs/operands_by_direction/properties/backward/enum",
            "rules: [{ kind: A, operands: { forward: e4m3, backward: zz, scale: rows } }]",
        ),
        (
            "/$defs/operands_by_direction/properties/scale/enum",
            "rules: [{ kind: A, operands: { forward: e4m3, backward: e5m2, scale: zz } }]",
        ),
        (
            "/$defs/operands_by_direction/properties/rounding/enum",
            "rules: [{ kind: A, operands: { forward: e4m3, backward: e5m2, scale: mx, rounding: zz } }]",
        ),
        ("/$defs/loss_scale/properties", "loss_scale: { zz: 1 }"),
        ("/$defs/loss_scale/properties/kind/enum", "loss_scale: { kind: zz }"),
        ("/properties/pack/enum", "pack: zz"),
        ("/properties/prefer/enum", "prefer: zz"),
        ("/properties/scaler/enum", "scaler: zz"),
        ("/$defs/loss_scale/properties/preset/enum", "loss_scale: { kind: dynamic, preset: zz }"),
        ("/$defs/loss_scale/properties/forgive/enum", "loss_scale: { kind: dynamic, forgive: zz }"),
        ("/properties/graph/properties", "graph: { zz: 1 }"),
        ("/$defs/changes/properties", "graph: { deny: { zz: 1 } }"),
        ("/properties/keep/properties", "keep: { zz: 1 }"),
        ("/properties/keep/properties/initialisers/properties", "keep: { initialisers: { zz: 1 } }"),
        ("/properties/keep/properties/values/properties", "keep: { values: { zz: 1 } }"),
    ] {
        let mut known = names(schema.pointer(place).unwrap());
        // Words of other systems are accepted, and messages do not recommend them.
        known.retain(|name| !["white", "black", "promote"].contains(&name.as_str()));
        assert_eq!(known, allowed(lines), "{place}");
    }
}

#[test]
fn the_schema_has_the_names_and_numbers_of_the_library() {
    let schema = schema();
    let is = |place: &str, expected: Vec<&str>| {
        let expected: BTreeSet<String> = expected.into_iter().map(String::from).collect();
        assert_eq!(names(schema.pointer(place).unwrap()), expected, "{place}");
    };
    is("/properties/level/enum", Level::ALL.map(Level::name).into());
    is("/properties/dtype/enum", DType::LOW.into_iter().flat_map(|d| [d.name(), d.long_name()]).collect());
    is("/properties/pack/enum", Pack::names().collect());
    assert_eq!(schema["properties"]["pack"]["default"], Pack::DEFAULT);
    is("/properties/prefer/enum", Prefer::ALL.map(Prefer::name).into());
    is("/properties/graph/properties/level/enum", GraphLevel::ALL.map(GraphLevel::name).into());
    assert_eq!(schema["properties"]["graph"]["properties"]["level"]["default"], GraphLevel::default().name());
    assert_eq!(schema["properties"]["prefer"]["default"], Prefer::default().name());
    let defaults = serde_json::to_value(DynamicScale::default()).unwrap();
    for (key, default) in defaults.as_object().unwrap() {
        let stated = &schema["$defs"]["loss_scale"]["properties"][key]["default"];
        assert_eq!(stated.as_f64(), default.as_f64(), "{key}");
    }
}

#[test]
fn the_shipped_policies_satisfy_it_and_name_it() {
    let schema = schema();
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("policies");
    let files = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let files: Vec<_> = files.filter(|path| path.extension().is_some_and(|end| end == "yaml")).collect();
    assert!(files.len() >= 7);
    for file in files {
        let text = text(&file);
        assert!(text.starts_with("# yaml-language-server: $schema=schema.json\n"), "{}", file.display());
        let value: Value = from_str(&text).unwrap();
        assert_eq!(fault(&schema, &schema, &value), None, "{}", file.display());
        let written: Value = from_str(&PolicyFile::load(&file).unwrap().to_yaml().unwrap()).unwrap();
        assert_eq!(fault(&schema, &schema, &written), None, "{}, written again", file.display());
    }
}

/// The schema refuses the same values as the reader, except where it would have to know other files or other keys'
/// numbers, and except for YAML forms that we do not allow.
#[test]
fn the_schema_refuses_what_the_reader_refuses() {
    let schema = schema();
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/policies/bad");
    let mut passed = BTreeSet::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if let Ok(value) = from_str::<Value>(&text(&path))
            && fault(&schema, &schema, &value).is_none()
        {
            passed.insert(path.file_stem().unwrap().to_str().unwrap().to_string());
        }
    }
    let blind = [
        // patterns and doubled rules
        "rule-kind-twice",
        "rule-path-empty-segment",
        "rule-path-star-in-name",
        "rule-path-twice",
        "rule-twice-the-first-lasts",
        "rule-until-prefers-speed",
        // the pack's lists and the catalogue of ops
        "cells-add-and-remove",
        "cells-add-there",
        "cells-remove-and-add",
        "cells-remove-from-other",
        "cells-remove-typo",
        "graph-add-there",
        "graph-added-to-two-lists",
        "graph-on-two-lists",
        "graph-pack-of-other-dtype",
        "graph-pack-without-graphs",
        "graph-remove-not-there",
        "graph-unknown-op",
        "ops-add-long-name",
        "ops-add-nonsense",
        "ops-add-there",
        "ops-add-there-other-name",
        "ops-add-two-names",
        "ops-add-unknown",
        "ops-on-two-lists",
        "ops-promote-remove-not-there",
        "ops-promote-unknown",
        "ops-remove-not-there",
        "ops-remove-unknown",
        // what the level reads
        "cells-at-O3",
        "cells-at-auto",
        "cells-black-at-O1",
        "cells-white-at-O2",
        "graph-level-forced-bf16",
        "ops-at-O0",
        "ops-black-at-O1",
        "ops-promote-at-O1",
        "ops-promote-at-O2",
        "ops-white-at-O2",
        // a policy of the other kind
        "graph-for-cells",
        "graph-rules",
        // combinations of numbers
        "scale-init-above-max",
        "scale-min-above-init",
        "scale-min-above-max",
        "scale-too-large",
    ];
    assert_eq!(passed, blind.map(String::from).into());
}

/// In the words used by the library's documentation.
#[test]
fn the_schema_explains_every_level() {
    let words = schema()["properties"]["level"]["description"].as_str().unwrap().to_string();
    let all: Vec<String> = Level::ALL.iter().map(|level| format!("{level}: {}.", level.meaning())).collect();
    assert_eq!(words, all.join(" "));
}
