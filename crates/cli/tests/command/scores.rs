//! Validation, scores in detail and the columns of predictions, as a user of the command meets them.

use std::fs;

use crate::program::{Folder, error, folder_of_run, json, messages, points, precast_in, root, text};

const MODEL: &str = "
version: 1
input: [2]
net:
  kind: Sequential
  cells:
  - {kind: Dense, in_features: 2, out_features: 2}
";

const RUN: &str = "
version: 1
model: net.yaml
policy: o2
data: {csv: {file: points.csv, target: side, ignore: id}}
test: 20
validation: 0.1
standardize: true
optimizer: adam
lr: 0.02
epochs: 4
patience: 1
";

fn folder(test: &str, run: &str) -> Folder {
    folder_of_run(test, &points(true), MODEL, run)
}

#[test]
fn the_score_on_held_out_examples_is_told_tabled_and_reported() {
    let folder = folder("fair", RUN);
    let said = text(precast_in(&folder.0, &["train", "run.yaml"]));
    assert!(said.contains("70 training examples, 10 validation examples, 20 test examples of shape [2]"), "{said}");
    assert!(
        said.contains("\nbest validation accuracy: ") && said.contains(", of these weights, scored once\n"),
        "{said}"
    );
    assert!(!said.contains("not a fair one"), "{said}");
    let said = text(precast_in(&folder.0, &["show", "runs"]));
    assert!(
        said.starts_with("| run | accuracy |     test |") || said.starts_with("| run | accuracy |    test |"),
        "{said}"
    );
    let report = fs::read_to_string(folder.0.join("runs/o2/report.html")).unwrap();
    assert!(report.contains("<h2>Test examples, with the best weights") && report.contains("class=\"confusion\""));
    let scores = fs::read_to_string(folder.0.join("runs/o2/scores.json")).unwrap();
    assert!(scores.contains("\"validation\":{\"classes\""), "{scores}");

    // Without validation, the test examples chose the weights.
    folder.write("run.yaml", &RUN.replace("validation: 0.1\n", "name: unfair\n"));
    let said = text(precast_in(&folder.0, &["train", "run.yaml"]));
    assert!(said.contains("the test examples chose these weights, so the score is not a fair one"), "{said}");
    let summary = json(precast_in(&folder.0, &["train", "run.yaml", "--output", "again", "--format", "json"]));
    assert_eq!((summary["chosen_by"].as_str(), summary["test_score"].is_null()), (Some("test"), true));
}

#[test]
fn a_run_that_ends_by_its_patience_says_so() {
    let folder = folder("patience", &RUN.replace("lr: 0.02", "lr: 1.0e-30"));
    let said = text(precast_in(&folder.0, &["train", "run.yaml", "--quiet"]));
    assert!(
        said.contains("\nended after epoch 2 by its patience: 1 epoch without a better score than epoch 1\n"),
        "{said}"
    );
}

#[test]
fn predictions_keep_columns_and_have_all_probabilities() {
    let folder = folder("keep", RUN);
    text(precast_in(&folder.0, &["train", "run.yaml", "--quiet"]));
    let args = ["predict", "runs/o2", "points.csv", "--keep", "id,side", "--probabilities"];
    let said = text(precast_in(&folder.0, &args));
    let mut lines = said.lines();
    assert_eq!(lines.next(), Some("id,side,class,probability,above,below"));
    for (i, line) in lines.enumerate() {
        let rest = line.strip_prefix(&format!("\"p, {i}\",")).unwrap_or_else(|| panic!("{line}"));
        let cells: Vec<&str> = rest.split(',').collect();
        let [above, below] = [3, 4].map(|place| cells[place].parse::<f32>().unwrap());
        assert!((above + below - 1.0).abs() < 1e-6, "{line}");
        let probability: f32 = cells[2].parse().unwrap();
        assert_eq!((cells[1], probability), if above > below { ("above", above) } else { ("below", below) });
    }
    let said = error(2, precast_in(&folder.0, &["predict", "runs/o2", "points.csv", "--keep", "idd"]));
    assert!(said.contains("--keep: points.csv: there is no column `idd` (did you mean `id`?)"), "{said}");
}

/// Squares of targets in thousands are beyond f16.
#[test]
fn a_run_without_a_step_names_what_helps() {
    let run = RUN.replace("side", "large, as: numbers").replace("validation: 0.1\n", "").replace("patience: 1\n", "");
    let folder = folder("remedy", &(run + "lint: false\n"));
    let rows = (0..100).map(|i| format!("{i},{i}.5,1,{}\n", 60_000 + i));
    folder.write("points.csv", &["id,x,y,large\n".to_string()].into_iter().chain(rows).collect::<String>());
    folder.write("net.yaml", &MODEL.replace("out_features: 2", "out_features: 1"));
    let output = precast_in(&folder.0, &["train", "run.yaml", "--quiet", "--lr", "1000000000"]);
    let said = messages(output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("; the learning rate is 1000000000, and 0.001 is usual: try a lower --lr"), "{said}");
    assert!(said.contains("; targets are as large as 60099: `standardize_targets: true`"), "{said}");
    let said = text(precast_in(&folder.0, &["show", "runs"]));
    assert!(said.starts_with("| run | mean squared error |"), "{said}");
}

#[test]
fn the_policy_of_the_command_may_be_the_only_one() {
    let folder = folder("policy", &RUN.replace("policy: o2\n", ""));
    let said = error(2, precast_in(&folder.0, &["train", "run.yaml", "--quiet"]));
    assert!(said.contains("run.yaml:2:1: the key `policy` is missing from this map: a policy file"), "{said}");
    let said = text(precast_in(&folder.0, &["train", "run.yaml", "--quiet", "-p", "o0", "-p", "o2-bf16"]));
    assert!(said.contains("\n| o0 ") && said.contains("\n| o2-bf16 "), "{said}");
}

/// The species are all but separable by the bill: linear discriminants are right for 98 % of penguins.
#[test]
fn the_species_of_penguins_are_learnt_from_words_and_incomplete_rows() {
    let folder = Folder::new("penguins");
    for name in ["penguins.csv", "net.yaml", "run.yaml"] {
        folder.write(name, &fs::read_to_string(root().join("examples/penguins").join(name)).unwrap());
    }
    let output = precast_in(&folder.0, &["train", "run.yaml", "--format", "json"]);
    let note =
        "note: `test`: column `body_mass_g`: 1 example has an empty cell and no training example has, read as 4000";
    assert!(messages(output.stderr).contains(note));
    let said: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert!(said["test_score"]["accuracy"].as_f64() > Some(0.9), "{said}");
    // A penguin without measures, of an unknown island, beside one of the table; the columns are in another order.
    folder.write(
        "new.csv",
        "sex,id,bill_length_mm,bill_depth_mm,flipper_length_mm,body_mass_g,island\nmale,a,39.1,18.7,181,3750,Torgersen\n\
         NA,b,NA,NA,NA,NA,Anvers\n",
    );
    let output = precast_in(&folder.0, &["predict", "runs/o2-bf16", "new.csv", "--keep", "id"]);
    let (said, answers) = (messages(output.stderr), String::from_utf8(output.stdout).unwrap());
    assert!(said.starts_with("note: column `island`: 1 example has a word that no training example has"), "{said}");
    let lines: Vec<&str> = answers.lines().collect();
    assert!(
        lines[0] == "id,class,probability" && lines[1].starts_with("a,Adelie,") && lines[2].starts_with("b,"),
        "{answers}"
    );
}

/// Logits are printed as probabilities, with the class of each, and scored as such.
#[test]
fn predictions_of_logits_are_probabilities_and_classes() {
    let rows = (0..80).map(|i| format!("{},{},{}\n", i % 10, i / 10, if i % 10 + i / 10 > 8 { "1.0" } else { "0.0" }));
    let points: String = ["x,y,side\n".to_string()].into_iter().chain(rows).collect();
    let run = RUN
        .replace("target: side, ignore: id", "target: side, as: numbers")
        .replace("lr: 0.02\nepochs: 4", "lr: 0.1\nepochs: 40");
    let folder = folder_of_run(
        "logits",
        &points,
        &MODEL.replace("out_features: 2", "out_features: 1"),
        &run.replace("patience: 1", "loss: bce_with_logits"),
    );
    let said = text(precast_in(&folder.0, &["train", "run.yaml"]));
    assert!(said.contains("\nbest validation binary cross entropy: "), "{said}");
    folder.write("new.csv", "x,y\n9,7\n0,0\n");
    let said = text(precast_in(&folder.0, &["predict", "runs/o2", "new.csv"]));
    let lines: Vec<Vec<&str>> = said.lines().map(|line| line.split(',').collect()).collect();
    assert_eq!(lines[0], ["side", "side_class"]);
    let of = |line: &[&str]| (line[0].parse::<f64>().unwrap(), line[1].to_string());
    assert!(matches!(of(&lines[1]), (p, class) if (0.9..=1.0).contains(&p) && class == "1"), "{said}");
    assert!(matches!(of(&lines[2]), (p, class) if (0.0..0.1).contains(&p) && class == "0"), "{said}");
    let said = text(precast_in(&folder.0, &["predict", "runs/o2", "points.csv", "--score"]));
    assert!(said.starts_with("binary cross entropy: ") && said.contains("accuracy at 0.5"), "{said}");
}
