//! `precast show`, `ops` and `cells`: the lists of levels, ops, packs, kinds of cells and shipped files.

use std::fs;

use precast::{
    DType, Level,
    io::models,
    policy::{Pack, PolicyFile},
    precision::Treatment,
};

use crate::program::{Folder, json, json_of, precast, precast_in, root, rows, text};

#[test]
fn levels_are_listed_with_their_policies_and_lists() {
    let shown = text(precast(&["show", "levels"]));
    let levels = json(precast(&["show", "levels", "--format", "json"]));
    assert_eq!(levels["levels"].as_array().unwrap().len(), Level::ALL.len());
    for (row, level) in levels["levels"].as_array().unwrap().iter().zip(Level::ALL) {
        assert_eq!((row["level"].as_str(), row["meaning"].as_str()), (Some(level.name()), Some(level.meaning())));
        assert!(shown.contains(level.meaning()));
    }
    assert!(levels["graph"]["level"].is_null() && shown.contains("| graph: {}"), "{shown}");
    assert_eq!(levels["graph"]["policies"][0], serde_json::json!({"name": "graph", "dtype": "float16"}));
    assert_eq!(levels["levels"][2]["policies"][1], serde_json::json!({"name": "o2-bf16", "dtype": "bfloat16"}));
    // The lists of `white_list` and `black_list`, and no others.
    let cells = |i: usize| -> Vec<&str> {
        levels["lists"][i]["cells"].as_array().unwrap().iter().map(|cell| cell.as_str().unwrap()).collect()
    };
    assert!(cells(0).into_iter().eq(precast::policy::low_list().cells().keys()));
    assert!(cells(1).into_iter().eq(precast::policy::full_list().cells().keys()));
    let pack = Pack::named(Pack::DEFAULT).unwrap();
    for (i, treatment) in [Treatment::Low, Treatment::Full, Treatment::Widest].into_iter().enumerate() {
        let names: Vec<&str> = pack.region(None).unwrap().ops_with(treatment).map(|op| op.name()).collect();
        let row = serde_json::json!({"list": treatment.name(), "level": "auto", "cells": [], "ops": names});
        assert_eq!(levels["lists"][2 + i], row);
    }
}

#[test]
fn an_op_is_shown_in_all_packs_side_by_side() {
    let shown = text(precast(&["show", "ops", "aten::softmax"]));
    assert!(shown.starts_with("op          Softmax\nkernel      yes\n"), "{shown}");
    assert!(shown.contains("\nmindspore   Softmax\npaddle      softmax\n"), "{shown}");
    let rows = rows(&shown);
    let of = |pack: &str, level: &str| {
        let row = rows.iter().find(|row| (row[0], row[1]) == (pack, level)).unwrap_or_else(|| panic!("{pack} {level}"));
        [row[2], row[3]]
    };
    // The behaviour of the systems, by their own lists.
    assert_eq!(of("mindspore-2.10", "auto"), ["full", "full"]);
    assert_eq!(of("paddle-3.3", "O1"), ["full", "full"]);
    assert_eq!(of("paddle-3.3", "O2"), ["gray", "gray"]);
    assert_eq!(of("torch-2.15-cpu", "auto"), ["as_is", "as_is"]);
    assert_eq!(of("torch-2.15-cuda", "auto"), ["full", "full"]);
    assert_eq!(of("tensorflow-2.21-fp16", "auto"), ["infer", "-"]);
    // Every pack with lists of ops has its rows, and JSON has the same.
    let json = json_of(&["show", "ops", "aten::softmax", "--format", "json"]);
    let decisions = json["ops"][0]["decisions"].as_array().unwrap();
    assert_eq!(decisions.len(), rows.iter().filter(|row| !row[0].is_empty()).count());
    for name in Pack::names() {
        let pack = Pack::named(name).unwrap();
        let lists_ops = pack.levels.values().any(|lists| !lists.ops().is_empty()) || !pack.regions.is_empty();
        let shown = decisions.iter().any(|decision| decision["pack"] == name);
        assert_eq!(shown, lists_ops || pack.graph.is_some(), "{name}");
    }
    assert_eq!((&json["ops"][0]["op"], &json["ops"][0]["kernel"]), (&"Softmax".into(), &true.into()));
    assert_eq!(json["ops"][0]["names"]["torch"], serde_json::json!(["softmax", "_softmax"]));
}

#[test]
fn an_op_that_onnx_alone_names_is_shown() {
    for (name, op) in [("Gemm", "Addmm"), ("GlobalAveragePool", "onnx::GlobalAveragePool")] {
        let json = json_of(&["show", "ops", name, "--format", "json"]);
        assert_eq!(json["ops"][0]["op"], op);
        let decisions = json["ops"][0]["decisions"].as_array().unwrap();
        let of = |pack: &str| &decisions.iter().find(|decision| decision["pack"] == pack).unwrap()["float16"];
        assert_eq!(of("onnxruntime-1.32"), "low", "{name}");
        assert_eq!(of("onnx-1"), if name == "Gemm" { "low" } else { "full" });
    }
    let shown = text(precast(&["show", "ops", "--pack", "onnxruntime-1.32"]));
    assert!(shown.contains("\nany other op: graph low\n"), "{shown}");
    assert_eq!(rows(&shown).iter().find(|row| row[1] == "TreeEnsemble").unwrap()[2], "full");
}

#[test]
fn an_op_in_one_pack_is_named_as_its_users_name_it() {
    // In Paddle `mul` is the old name of a product.
    let json = json_of(&["show", "ops", "mul", "--pack", "paddle-3.3", "--format", "json"]);
    assert_eq!(json["ops"][0]["op"], "MatMul");
    let decisions = json["ops"][0]["decisions"].as_array().unwrap();
    let levels: Vec<&str> = decisions.iter().map(|decision| decision["level"].as_str().unwrap()).collect();
    assert_eq!(levels, ["O1", "O2", "OD"]);
    assert!(decisions.iter().all(|d| d["float16"] == "low" && d["bfloat16"] == "low" && d["listed"] == true));
    // Listed for one dtype only; and an op that is decided but not run.
    let shown = text(precast(&["show", "ops", "fused_attention", "-p", "paddle-3.3"]));
    assert!(shown.contains("kernel      no: "), "{shown}");
    let row = rows(&shown).into_iter().find(|row| row[1] == "O1").unwrap();
    assert_eq!(row[..4], ["paddle-3.3", "O1", "low", "gray"]);
    // The reasons are the pack's own.
    let pack = Pack::named("precast-1").unwrap();
    let because = pack.region(None).unwrap().op(precast::Op::Exp, DType::F16).unwrap().because.clone();
    let json = json_of(&["show", "ops", "Exp", "--pack", "precast-1", "--format", "json"]);
    let words = format!("{}; listed for float16 only", because.unwrap());
    assert_eq!(json["ops"][0]["decisions"][1]["because"], words);
}

#[test]
fn a_pack_is_shown_with_every_op_that_it_lists() {
    for name in Pack::names() {
        let pack = Pack::named(name).unwrap();
        let json = json_of(&["show", "ops", "--pack", name, "--format", "json"]);
        assert_eq!((&json["pack"], &json["source"]), (&name.into(), &pack.source.as_str().into()));
        for (op_level, lists) in &pack.regions {
            assert_eq!(json["unlisted"][&**op_level], lists.unlisted.name());
            for (op, entry) in lists.ops() {
                let row = json["ops"].as_array().unwrap().iter().find(|row| row["op"] == op.name()).unwrap();
                assert_eq!(row["kernel"], op.has_kernel());
                let decided = row["decisions"].as_array().unwrap();
                let decided = decided.iter().rfind(|decision| decision["level"] == **op_level).unwrap();
                let dtype = entry.only.unwrap_or(pack.dtypes[0]).long_name();
                assert_eq!((&decided[dtype], &decided["listed"]), (&entry.treatment.name().into(), &true.into()));
            }
        }
        let shown = text(precast(&["show", "ops", "-p", name]));
        let first = if json["ops"].as_array().unwrap().is_empty() { "cell" } else { "op" };
        let begins = shown.trim_start_matches(&format!("{name}: {}", pack.source)).trim_start();
        assert!(begins.starts_with(&format!("| {first} ")), "{shown}");
        for lists in pack.levels.values() {
            let kinds = || shown.lines().filter_map(|line| line.strip_prefix("| "));
            assert!(lists.cells().keys().all(|kind| kinds().any(|row| row.starts_with(kind.as_str()))), "{shown}");
        }
    }
    let default = text(precast(&["show", "ops"]));
    assert_eq!(default, text(precast(&["show", "ops", "--pack", Pack::DEFAULT])));
    let exp = rows(&default).into_iter().find(|row| row[0] == "Exp").unwrap();
    assert_eq!((exp[1], exp[2], exp[3], exp[5]), ("as_is", "full / as_is", "full", "yes"), "{exp:?}");
}

#[test]
fn kinds_are_listed_with_their_options_and_other_names() {
    let shown = text(precast(&["show", "cells"]));
    let listed: Vec<String> =
        rows(&shown).iter().map(|row| row[0].to_string()).filter(|kind| !kind.is_empty()).collect();
    // The example above adds a kind of its own.
    let kinds = precast::layers::kinds().unwrap().into_iter().filter(|kind| *kind != "Gate");
    assert_eq!(listed, kinds.collect::<Vec<_>>());
    let row = |kind: &str| rows(&shown).into_iter().find(|row| row[0] == kind).unwrap()[2..].to_vec();
    assert_eq!(row("Dense"), ["Linear", "Dense", "low", "low"]);
    assert_eq!(row("LayerNorm"), ["LayerNorm", "LayerNorm", "-", "float32"]);
    let dense = text(precast(&["show", "cells", "nn.Linear"]));
    assert!(dense.starts_with("`nn.Linear` is Dense here.\n"), "{dense}");
    assert!(dense.contains("example     {kind: Dense, in_features: 64, out_features: 10}"), "{dense}");
    assert_eq!(rows(&dense)[0], ["in_features", "a whole number of at least 1", "(required)"]);
    assert_eq!(rows(&dense)[2], ["bias", "true or false", "true"]);
    assert!(text(precast(&["show", "cells", "ReLU"])).contains("It has no options."));
    let json = json_of(&["show", "cells", "ConvTranspose2d", "--format", "json"]);
    assert_eq!((&json["kind"], &json["o1"], &json["o2"]), (&"Conv2dTranspose".into(), &"low".into(), &"low".into()));
    assert_eq!(json["elsewhere"]["torch"], serde_json::json!(["ConvTranspose2d"]));
    assert_eq!(json["options"][4]["default"], "valid");
    assert_eq!(json_of(&["show", "cells", "--format", "json"])["cells"].as_array().unwrap().len(), listed.len());
}

#[test]
fn shipped_files_are_shown_as_they_are() {
    let file = |path: &str| fs::read_to_string(root().join(path)).unwrap();
    let list = text(precast(&["show"]));
    let mut shown = 0;
    for row in rows(&list).iter().filter(|row| !row[0].is_empty()) {
        assert_eq!(text(precast(&["show", row[0]])), file(row[1]), "{}", row[0]);
        assert!(!row[2].is_empty(), "{}", row[0]);
        shown += 1;
    }
    assert_eq!(shown, PolicyFile::names().count() + Pack::names().count() + models::Model::names().count() + 2);
    assert_eq!(json_of(&["show", "schema", "run"]), precast_train::RunFile::schema());
    assert_eq!(text(precast(&["show", "schema"])), file("policies/schema.json"));
}

#[test]
fn built_in_files_are_found_anywhere_after_files_of_that_name() {
    let folder = Folder::new("anywhere");
    let shown = text(precast_in(&folder.0, &["plan", "mlp", "--policy", "o1-bf16"]));
    assert!(shown.starts_with("model   mlp (built in)\npolicy  o1-bf16 (built in)\n"), "{shown}");
    // A folder, such as one of results, is not a model.
    fs::create_dir(folder.0.join("lenet5")).unwrap();
    text(precast_in(&folder.0, &["plan", "lenet5", "--policy", "o1"]));
    folder.write("mlp", "version: 1\nnet: {kind: Dense, in_features: 64, out_features: 10}\n");
    let shown = text(precast_in(&folder.0, &["plan", "mlp", "--policy", "o1-bf16"]));
    assert!(shown.starts_with("model   mlp\n") && shown.contains("\n1 cell ("), "{shown}");
}
