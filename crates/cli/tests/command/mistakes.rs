//! Mistakes of newcomers, each with what its answer must contain: what is wrong, its place, and what to do.

use std::fs;

use crate::{
    png::grey,
    program::{Folder, folder_of_run, messages, points, precast_in, text},
};

const MODEL: &str = "version: 1\ninput: [2]\nnet: {kind: Dense, in_features: 2, out_features: 2}\n";

const RUN: &str = "\
version: 1
model: net.yaml
policy: o2-bf16
data: {csv: {file: points.csv, target: side}}
standardize: true
epochs: 2
";

/// Changes of [`RUN`]: the text that is replaced, or nothing for a line at the end; the new text; words of the answer.
type Change<'a> = (&'a str, &'a str, &'a [&'a str]);

fn folder(test: &str) -> Folder {
    folder_of_run(test, &points(false), MODEL, RUN)
}

/// Returns the messages of a command that must fail.
fn said(folder: &Folder, args: &[&str]) -> String {
    let output = precast_in(&folder.0, args);
    let said = messages(output.stderr);
    assert!(!output.status.success(), "{args:?}: {said}");
    said
}

/// Checks the answers to a run file with each of the changes.
fn check(test: &str, changes: &[Change<'_>]) {
    let folder = folder(test);
    for (from, to, answer) in changes {
        let run = if from.is_empty() { format!("{RUN}{to}\n") } else { RUN.replace(from, to) };
        assert_ne!(run, RUN, "{from}");
        folder.write("wrong.yaml", &run);
        let said = said(&folder, &["train", "wrong.yaml", "--quiet", "--output", "wrong"]);
        for words in *answer {
            assert!(said.contains(words), "{from} -> {to}: {words:?} is missing in: {said}");
        }
        let _ = fs::remove_dir_all(folder.0.join("wrong"));
    }
}

/// Checks the answers to keys that other tools have, each with its value in a map.
fn check_keys(test: &str, of: impl Fn(&str) -> String, keys: &[(&str, &str)]) {
    let folder = folder(test);
    for (key, answer) in keys {
        folder.write("wrong.yaml", &of(key));
        let said = said(&folder, &["train", "wrong.yaml", "--quiet", "--output", "wrong"]);
        assert!(said.contains(&format!("unknown key `{key}` ({answer}")), "{key}: {said}");
        assert!(said.starts_with("error: wrong.yaml:"), "{key}: {said}");
    }
}

#[test]
fn yaml_that_is_none_is_told_in_words_of_its_writer() {
    let data = "data: {csv: {file: points.csv, target: side}}";
    let tab = "a tab; YAML is indented by spaces, and a space, no tab, separates a key from its value";
    check(
        "yaml",
        &[
            (data, "data:\n\tcsv: {file: points.csv, target: side}", &["wrong.yaml:5:1: ", tab]),
            ("model:", "\tmodel:", &["wrong.yaml:2:1: ", tab]),
            (data, "data:\n  csv:\n    file: points.csv\n\ttarget: side", &["wrong.yaml:7:1: ", tab]),
            (data, "data:\n  csv:\n\t\tfile: points.csv\n\t\ttarget: side", &["wrong.yaml:6:1: ", tab]),
            (
                "epochs: 2",
                "epochs:2",
                &["wrong.yaml:6:1: ", "expected: a key, then a colon and a space, then its value"],
            ),
            (
                data,
                "data: {csv: {file: points.csv, target: side}",
                &["wrong.yaml:5:1: ", "a bracket before is not closed"],
            ),
            ("net.yaml", "\"net.yaml", &["a quote before is not closed"]),
            (
                data,
                "data:\n  csv:\n    file: points.csv\n   target: side",
                &[
                    "wrong.yaml:7:4: ",
                    "expected: the keys of one map, and the items of one list, begin in the same column",
                ],
            ),
            (data, "data: csv: points.csv", &["wrong.yaml:4:10: ", "a map goes in braces"]),
            (data, "data:\ncsv:\n  file: points.csv", &["wrong.yaml:4:1: ", "got nothing"]),
            ("o2-bf16", "@o2", &["wrong.yaml:3:9: ", "text that begins with this character goes in quotes"]),
            ("epochs: 2", "policy: o1", &["wrong.yaml:6:1: duplicate key `policy`"]),
        ],
    );
}

#[test]
fn a_model_file_that_is_no_yaml_is_told_alike() {
    let folder = Folder::new("model");
    for (model, answer) in [
        ("version: 1\nnet:\n\tkind: Dense\n", "net.yaml:3:1: a tab; YAML is indented by spaces"),
        (
            "version: 1\nnet:\n  kind: Dense\n in_features: 2\n",
            "the keys of one map, and the items of one list, begin in the same column",
        ),
        ("version: 1\nnet: {kind: Swish}\n", "net.yaml:2:13: no kind of cell is called `Swish` (did you mean `SiLU`?)"),
        ("version: 1\nnet: {kind: Linear, in_features: 2, out_features: 2}\n", "what torch calls so is `Dense` here"),
    ] {
        let said = said(&folder, &["plan", &folder.write("net.yaml", model), "-p", "o2"]);
        assert!(said.contains(answer), "{answer:?} is missing in: {said}");
    }
}

#[test]
fn a_value_of_another_form_is_told_with_the_form_that_is_expected() {
    let policy = "expected a policy file, such as mine.yaml, or the name of a built-in policy, such as o2-bf16, got `";
    check(
        "forms",
        &[
            ("policy: o2-bf16", "policy: {level: O2, dtype: bfloat16}", &["wrong.yaml:3:9: ", policy]),
            ("policy: o2-bf16", "policy:\n  level: O2\n  dtype: bfloat16", &["wrong.yaml:4:3: ", policy]),
            ("policy: o2-bf16", "policy: [o1, o2]", &["wrong.yaml:3:9: ", policy]),
            (
                "policy: o2-bf16",
                "",
                &["the key `policy` is missing", "the flag `--policy` of `precast train` takes its place"],
            ),
            ("policy: o2-bf16", "policy: bf16", &["wrong.yaml:3:9: ", "(did you mean `o2-bf16`?)"]),
            ("policy: o2-bf16", "policy: fp16", &["(did you mean `o2`?)"]),
            ("policy: o2-bf16", "policy: O2", &["(did you mean `o2`?)"]),
            ("net.yaml", "{kind: Dense}", &["wrong.yaml:2:9: ", "a network is a file of its own: `model: net.yaml`"]),
            ("", "test: 20%", &["wrong.yaml:7:7: ", "`20%`: a share is a number from 0 to 1, 0.2"]),
            ("epochs: 2", "epochs: many", &["wrong.yaml:6:9: expected a whole number, got `many`"]),
            ("epochs: 2", "epochs: 0", &["wrong.yaml:6:9: `epochs` is 0; allowed: at least 1"]),
            ("true", "yes", &["wrong.yaml:5:14: expected true or false, got `yes`"]),
            (
                "{csv: {file: points.csv, target: side}}",
                "points.csv",
                &[
                    "wrong.yaml:4:7: unknown name `points.csv`",
                    "a file is named with its kind: `csv: {file: iris.csv, target: species}`",
                ],
            ),
            ("{file: points.csv, target: side}", "points.csv", &["such as `csv: {file: iris.csv, target: species}`"]),
            ("{csv: {file: points.csv, target: side}}", "{file: points.csv}", &["the kind of the data comes first"]),
            ("", "optimizer: {name: adam, lr: 0.1}", &["the name of an optimizer is the key of its options"]),
            (
                "",
                "optimizer: adam(lr=0.1)",
                &["options are a map: `{adam: {eps: 1e-6}}`, and `lr` is a key next to it"],
            ),
            ("", "optimizer: {adam: {lr: 0.1}}", &["wrong.yaml:7:20: ", "`lr` is a key of the run, next to"]),
            ("", "optimizer: AdamW", &["(did you mean `adamw`?)"]),
            ("", "schedule: {name: step, every: 3}", &["the name of a schedule is the key of its options"]),
            ("", "schedule: CosineAnnealingLR", &["wrong.yaml:7:11: ", "(did you mean `cosine`?)"]),
            ("side}", "side, as: regression}", &["wrong.yaml:4:50: ", "(did you mean `numbers`?)"]),
            ("side}", "side, missing: -999.0, empty: mean}", &["in a list, `[0.50]`, it is read as it is written"]),
            ("", "loss: mae", &["wrong.yaml:7:7: ", "(did you mean `l1`?)"]),
            ("", "loss: categorical_crossentropy", &["(did you mean `cross_entropy`?)"]),
            ("", "loss: CrossEntropyLoss", &["(did you mean `cross_entropy`?)"]),
            ("", "storage: bf16", &["wrong.yaml:7:10: ", "(did you mean `low`?)"]),
            ("", "storage: float16", &["wrong.yaml:7:10: ", "(did you mean `low`?)"]),
            ("points.csv", "point.csv", &["wrong.yaml:4:7: point.csv: No such file"]),
            ("side", "Side", &["wrong.yaml:4:40: ", "(did you mean `side`?)"]),
            (", target: side", "", &["`below` is not a number", "or is a `target`"]),
            (", target: side", ", ignore: side", &["wrong.yaml:4:7: ", "`target` names the column"]),
        ],
    );
}

#[test]
fn keys_of_other_tools_are_told_by_their_names_here() {
    check_keys(
        "keys",
        |key| format!("{RUN}{key}: 1\n"),
        &[
            ("batch_size", "here it is `batch`)"),
            ("learning_rate", "here it is `lr`)"),
            ("num_epochs", "here it is `epochs`)"),
            ("max_epochs", "here it is `epochs`)"),
            ("random_state", "here it is `seed`)"),
            ("scheduler", "here it is `schedule`)"),
            ("criterion", "here it is `loss`)"),
            ("normalize", "here it is `standardize`)"),
            ("precision", "here it is `policy`)"),
            ("mixed_precision", "here it is `policy`)"),
            ("early_stopping", "here it is `patience`)"),
            ("test_size", "here it is `test`)"),
            ("val_split", "here it is `validation`)"),
            ("dataset", "here it is `data`)"),
            ("gradient_clip_val", "here it is `clip`)"),
            ("accumulate_grad_batches", "here it is `accumulate`)"),
            ("pretrained", "here it is `weights`)"),
            ("save_every", "here it is `checkpoint`)"),
            ("transforms", "here it is `augment`)"),
            ("device", "runs are on the CPU"),
            ("shuffle", "the training examples are shuffled anew in each epoch"),
            ("num_workers", "the environment variable PRECAST_THREADS"),
            ("output_dir", "`precast train --output FOLDER`"),
            ("resume", "`precast train --resume FOLDER`"),
            ("max_steps", "the length of a run is a number of `epochs`"),
            ("weight_decay", "it is an option of the optimizer, as in `optimizer: {adamw: {weight_decay: 0.1}}`"),
            ("loss_scale", "it belongs to a policy, which is a file of its own"),
            ("target", "it belongs to the data, as in `data: {csv: {file: iris.csv, target: species}}`"),
            ("dropout", "it belongs to the model, which is a file of its own"),
        ],
    );
    check_keys(
        "csv-keys",
        |key| RUN.replace("side}", &format!("side, {key}: [x]}}")),
        &[
            ("categorical", "here it is `one_hot`)"),
            ("embedding", "here it is `indices`)"),
            ("impute", "here it is `empty`)"),
            ("fillna", "here it is `empty`)"),
            ("na_values", "here it is `missing`)"),
            ("drop", "here it is `ignore`)"),
            ("usecols", "here it is `columns`)"),
            ("features", "here it is `columns`)"),
            ("sep", "here it is `delimiter`)"),
            ("classes", "here it is `class_names`)"),
            ("normalize", "`standardize` is a key of the run, next to `model` and `data`)"),
            ("batch_size", "`batch` is a key of the run, next to `model` and `data`)"),
            ("test", "`test` is a key of the run, next to `model` and `data`)"),
            ("shuffle", "the training examples are shuffled anew"),
            ("dtype", "`as: classes` or `as: numbers` is the kind of targets)"),
        ],
    );
    let of_pandas = "(in Python, pandas reads it and `to_csv` writes a CSV)";
    check(
        "data-names",
        &[
            ("{csv: {file: points.csv, target: side}}", "{parquet: points.parquet}", &["name `parquet` ", of_pandas]),
            ("{csv: {file: points.csv, target: side}}", "{json: {file: a.json}}", &["name `json` ", of_pandas]),
            ("{csv: {file: points.csv, target: side}}", "points.xlsx", &["name `points.xlsx` ", of_pandas]),
            ("{csv: {file: points.csv, target: side}}", "points.csv", &["a file is named with its kind"]),
        ],
    );
    check_keys(
        "label-keys",
        |key| RUN.replace("target: side", &format!("{key}: side")),
        &[("label", "here it is `target`)"), ("y", "here it is `target`)"), ("target_column", "here it is `target`)")],
    );
}

/// The word `NA` marks an empty cell, in a list or alone.
#[test]
fn a_single_word_is_a_list_of_one() {
    let folder = folder("word");
    folder.write("points.csv", &points(false).replace("\n3.5,2.25,", "\n3.5,NA,"));
    folder.write("net.yaml", &MODEL.replace("[2]", "[3]").replace("in_features: 2", "in_features: 3"));
    for missing in ["NA", "[NA]"] {
        folder.write("run.yaml", &RUN.replace("side}", &format!("side, missing: {missing}, empty: mean}}")));
        text(precast_in(&folder.0, &["train", "run.yaml", "--quiet", "--output", missing]));
    }
}

#[test]
fn columns_and_images_that_do_not_fit_are_told_at_their_key() {
    let folder = folder("fit");
    let rows = (0..40).map(|i| format!("{i},{},{}\n", ["Oslo", "Voss"][i % 2], ["a", "b"][i % 2]));
    folder.write("points.csv", &["x,city,side\n".to_string()].into_iter().chain(rows).collect::<String>());
    for image in 0..12u8 {
        let class = ["cat", "dog"][usize::from(image % 2)];
        folder.file(&format!("photos/{class}/{image}.png"), grey(2, 1, &[image, 255]));
    }
    folder.write("images.yaml", "version: 1\ninput: [3, 1, 2]\nnet: {kind: Sequential, cells: [{kind: Flatten}, {kind: Dense, in_features: 6, out_features: 2}]}\n");
    let images = "version: 1\nmodel: images.yaml\npolicy: o0\ndata: {images: {folder: photos}}\nepochs: 1\n";
    for (run, answer) in [
        (
            RUN.replace("side}", "side, indices: [city]}"),
            &["the data has [1]: `x`; beside it are indices of shape [1], for a `ColumnEmbedding`"][..],
        ),
        (RUN.replace("side}", "side, ignore: x, indices: [city]}"), &["wrong.yaml:4:66: `standardize` is for numbers"]),
        (RUN.replace("side}", "side, one_hot: [cty]}"), &["wrong.yaml:4:56: ", "(did you mean `city`?)"]),
        (
            format!("{images}augment: {{brightness: 50}}\n"),
            &["wrong.yaml:6:23: `brightness` is 50, and the inputs are from 0 to 1; allowed: at most 1"],
        ),
        (format!("{images}augment:\n  flip: true\n  crop: 4\n"), &["wrong.yaml:8:9: `crop` is 4"]),
        (images.replace("photos}", "photos, size: 32}"), &["unknown key `size` (here it is `resize`)"]),
        (images.replace("folder: photos", "path: photos"), &["unknown key `path` (here it is `folder`)"]),
    ] {
        folder.write("wrong.yaml", &run);
        let said = said(&folder, &["train", "wrong.yaml", "--quiet", "--output", "wrong"]);
        answer.iter().for_each(|words| assert!(said.contains(words), "{words:?} is missing in: {said}"));
    }
}

#[test]
fn a_run_that_cannot_learn_is_told_what_to_change() {
    let folder = folder("scales");
    let rows = (0..100).map(|i| format!("{},{},{}.5\n", i % 10, i / 10, 3000 + 40 * i));
    folder.write("points.csv", &["x,y,side\n".to_string()].into_iter().chain(rows).collect::<String>());
    folder.write("net.yaml", &MODEL.replace("out_features: 2", "out_features: 1"));
    let (key, bf16) = ("targets are as large as 6960.5: `standardize_targets: true`", "a policy in bfloat16");
    for (policy, has_bf16) in [("o2", true), ("o2-bf16", false), ("o0", false)] {
        let output = precast_in(
            &folder.0,
            &["train", "run.yaml", "--quiet", "--epochs", "40", "--lr", "3", "-p", policy, "--output", policy],
        );
        let said = messages(output.stderr);
        assert!(said.contains(key) && said.contains(bf16) == has_bf16, "{policy}: {said}");
    }
    // Nothing overflows, and nothing is learnt: Adam moves each weight by about the learning rate in a step.
    folder.write("run.yaml", &format!("{RUN}optimizer: adam\n"));
    let output = precast_in(&folder.0, &["train", "run.yaml", "--quiet", "-p", "o0", "--output", "adam"]);
    let said = messages(output.stderr);
    assert!(output.status.success(), "{said}");
    let note = "note: the best weights predict the test targets no better than their mean does, R² is -";
    assert!(said.starts_with(note) && said.contains(key), "{said}");
    let run = format!("{RUN}standardize_targets: true\noptimizer: adam\nlr: 0.1\n");
    folder.write("run.yaml", &run.replace("epochs: 2\n", "epochs: 20\n"));
    text(precast_in(&folder.0, &["train", "run.yaml", "--quiet", "-p", "o0", "--output", "learnt"]));
}

#[test]
fn files_of_another_kind_are_told_when_predicting() {
    let folder = folder("kinds");
    text(precast_in(&folder.0, &["train", "run.yaml", "--quiet", "--output", "runs/table"]));
    for image in 0..12u8 {
        let class = ["cat", "dog"][usize::from(image % 2)];
        folder.file(&format!("photos/{class}/{image}.png"), grey(2, 1, &[image, 255]));
    }
    let net = "{kind: Sequential, cells: [{kind: Flatten}, {kind: Dense, in_features: 6, out_features: 2}]}";
    folder.write("images.yaml", &format!("version: 1\ninput: [3, 1, 2]\nnet: {net}\n"));
    let run = "version: 1\nmodel: images.yaml\npolicy: o0\ndata: {images: {folder: photos}}\nepochs: 1\n";
    text(precast_in(
        &folder.0,
        &["train", &folder.write("images-run.yaml", run), "--quiet", "--output", "runs/images"],
    ));
    folder.file("new/1.png", grey(2, 1, &[0, 255]));
    folder.file("deep/holidays/1.png", grey(2, 1, &[0, 255]));
    folder.file("large/1.png", grey(4, 4, &[0; 16]));
    folder.file("words/readme.txt", "no image");
    fs::create_dir(folder.0.join("nothing")).unwrap();
    folder.write("lack.csv", "x\n1\n");
    for (args, answer) in [
        (["runs/table", "photos"], "photos: a folder; expected a CSV file, like the data of the run"),
        (["runs/table", "nothing.csv"], "nothing.csv: No such file"),
        (["runs/table", "lack.csv"], "lack.csv: there is no column `y` (there are `x`)"),
        (
            ["runs/images", "points.csv"],
            "points.csv: a file that is not an image; expected an image or a folder of images",
        ),
        (["runs/images", "words"], "words/readme.txt: not a PNG or JPEG image"),
        (["runs/images", "nothing"], "nothing: there are no images"),
        (["runs/images", "missing"], "missing: No such file"),
        (["runs/images", "large"], "; a run with `resize: [1, 2]` in its data takes images of any size"),
        (["runs", "points.csv"], "`run.yaml` is missing; it contains `runs/images`, `runs/table`"),
        (["runs/other", "points.csv"], "runs/other: there is no such folder; expected that of a run, such as runs/o2"),
        (["points.csv", "runs/table"], "points.csv: a file; expected the folder of a run, such as runs/o2"),
    ] {
        let said = said(&folder, &["predict", args[0], args[1]]);
        assert!(said.contains(answer), "{args:?}: {said}");
    }
    // Subfolders need not have the names of classes.
    assert!(text(precast_in(&folder.0, &["predict", "runs/images", "deep"])).contains("\ndeep/holidays/1.png,"));
    let said = said(&folder, &["predict", "runs/images", "deep", "--score"]);
    assert!(said.contains("deep/holidays: there is no class `holidays` (there are `cat`, `dog`)"), "{said}");
}

#[test]
fn scores_and_rows_of_one_file_are_both_to_be_had() {
    let folder = folder("both");
    text(precast_in(&folder.0, &["train", "run.yaml", "--quiet", "--output", "table"]));
    let scores = text(precast_in(&folder.0, &["predict", "table", "points.csv", "--score"]));
    let rows = text(precast_in(&folder.0, &["predict", "table", "points.csv"]));
    let args = ["predict", "table", "points.csv", "--score", "--output", "rows.csv"];
    assert_eq!(text(precast_in(&folder.0, &args)), scores);
    assert_eq!(fs::read_to_string(folder.0.join("rows.csv")).unwrap(), rows);
    let said = said(&folder, &["predict", "table", "points.csv", "--score", "--probabilities"]);
    assert!(said.contains("--score prints scores and no lines of examples; --output FILE writes these"), "{said}");
    // The mean of x is 5, with a deviation of 2.9: 5000 may be in another unit.
    let output = precast_in(&folder.0, &["predict", "table", &folder.write("far.csv", "x,y\n5000,1\n2,3\n")]);
    let said = messages(output.stderr);
    assert!(output.status.success(), "{said}");
    let note =
        "note: column `x`: 1 number is more than 20 deviations from the mean of the training examples, such as 5000;";
    assert!(said.starts_with(note), "{said}");
}

#[test]
fn a_run_is_told_from_weights_and_data_from_a_run_file() {
    let folder = folder("what");
    text(precast_in(&folder.0, &["train", "run.yaml", "--quiet", "--output", "o2"]));
    for (args, answer) in [
        (
            &["convert", "o2", "low", "-p", "o2"][..],
            "o2: the folder of a run; `export o2 --weights compute --output FILE`",
        ),
        (&["export", "o2", "--output", "w"], "of a run, --weights compute (or master, both) writes the weights"),
        (&["train", "o2"], "--resume o2 continues it"),
        (
            &["train", "points.csv"],
            "points.csv: no model and no run file; `precast show run > run.yaml` writes a run file",
        ),
        (&["plan", "net.yaml", "-p", "bf16"], "(did you mean `o2-bf16`?)"),
        (&["plan", "net.yaml"], "--policy is missing"),
        (&["plan", "nett.yaml", "-p", "o2"], "nett.yaml"),
    ] {
        let said = said(&folder, args);
        assert!(said.contains(answer), "{args:?}: {said}");
    }
    // All policies are checked before the first is trained.
    text(precast_in(&folder.0, &["train", "run.yaml", "--quiet", "-p", "o3"]));
    let said = said(&folder, &["train", "run.yaml", "--quiet", "-p", "o1", "-p", "o3"]);
    assert!(said.contains("runs/o3: the folder has a run already") && !folder.0.join("runs/o1").exists(), "{said}");
    // JSON is YAML as well.
    let run = r#"{"version": 1, "model": "net.yaml", "policy": "o0", "data": {"csv": {"file": "points.csv", "target": "side"}}, "epochs": 1}"#;
    text(precast_in(&folder.0, &["train", &folder.write("run.json", run), "--quiet", "--output", "json"]));
}

#[test]
fn subcommands_and_flags_of_other_tools_name_ours() {
    let folder = folder("words");
    for (args, tip) in [
        (&["fit", "run.yaml"][..], "tip: `precast train run.yaml` does this"),
        (&["resume", "runs/o2"], "tip: `precast train --resume runs/NAME` does this"),
        (&["Evaluate", "runs/o2"], "tip: `precast predict runs/NAME FILE --score` does this"),
        (&["init", "lenet5", "my.yaml"], "tip: `--output my.yaml` writes a file"),
        (&["train", "run.yaml", "--max-grad-norm", "1"], "tip: `clip` is a key of run files"),
        (&["train", "run.yaml", "--memory=1GiB"], "tip: `memory` is a key of run files"),
        (&["train", "run.yaml", "--learning-rate", "1"], "tip: `--lr` does this"),
        (
            &["train", "--model", "net.yaml"],
            "tip: models and run files are named without a flag: `precast train run.yaml`",
        ),
        (&["train", "run.yaml", "--gpus", "1"], "tip: precast computes on the CPU"),
        (&["train", "run.yaml", "--num-workers", "4"], "tip: the environment variable PRECAST_THREADS"),
    ] {
        let said = said(&folder, args);
        assert!(said.contains(tip), "{args:?}: {said}");
    }
    folder.write("empty.yaml", "# nothing yet\n\n");
    assert!(said(&folder, &["train", "empty.yaml"]).starts_with("error: empty.yaml:"));
    assert!(said(&folder, &["train", "empty.yaml"]).contains(": the file is empty"));
}
