//! The choices of a run: the score of its loss, and examples that have no part in the training.

use std::collections::BTreeSet;

use precast::{io::models::Model, prelude::*};
use precast_train::data::{Dataset, Inputs, Targets};
use precast_train::{EndReason, Generate, Prediction, Predictor, Run, RunFile, data::write_npz};

use crate::common::folder::Folder;

fn dense(inputs: usize, outputs: usize) -> Model {
    let cell = format!("{{kind: Dense, in_features: {inputs}, out_features: {outputs}}}");
    let text = format!("{{version: 1, input: [{inputs}], net: {{kind: Sequential, cells: [{cell}]}}}}");
    Model::parse(&text, "m.yaml", 0).unwrap()
}

/// Begins a run in a new folder inside.
fn begin(folder: &Folder, model: Model, keys: &str) -> precast::Result<Run> {
    let text = format!("{{version: 1, model: m, policy: o0, lint: false, {keys}}}");
    let mut file = RunFile::parse(&text, "run.yaml")?;
    file.folder = folder.0.clone();
    let to = folder.at("run");
    let _ = std::fs::remove_dir_all(&to);
    Run::begin(&file, model, &to)
}

/// Numbers that look random, from -1 to 1.
fn noise(i: usize) -> f64 {
    2.0 * (((i as f64 + 0.5) * 78.233).sin() * 43758.5453).rem_euclid(1.0) - 1.0
}

/// A network that becomes sure of separable targets: the squared error of its logits grows, and its loss falls.
#[test]
fn a_run_of_logits_goes_by_its_loss() {
    let folder = Folder::new("logits");
    let side = |i: usize| f64::from(u8::from(noise(i) + noise(i + 5000) > 0.0));
    let rows: String = (0..300).map(|i| format!("{},{},{:.1}\n", noise(i), noise(i + 5000), side(i))).collect();
    folder.write("d.csv", &format!("a,b,t\n{rows}"));
    let data = "data: {csv: {file: d.csv, target: t, as: numbers}}, loss: bce_with_logits";
    for part in ["test: 0.2", "test: 0.2, validation: 0.2"] {
        let keys = format!("{data}, {part}, optimizer: adam, lr: 0.1, epochs: 20, patience: 3");
        let mut run = begin(&folder, dense(2, 1), &format!("{keys}, schedule: {{plateau: {{patience: 1}}}}")).unwrap();
        assert_eq!(run.train().unwrap(), EndReason::Done);
        let (best, score) = run.best().unwrap();
        assert_eq!((best, score.name()), (19, "binary cross entropy"));
        assert!(score.number() < 0.3, "{score}");
        // The rate has not fallen.
        assert_eq!(run.history().epochs[19].learning_rate, Some(0.1));
        drop(run);
        let predictor = Predictor::of_folder(folder.at("run"), dense(2, 1)).unwrap();
        let new = folder.write("new.csv", "a,b\n0.9,0.9\n-0.9,-0.9\n");
        let said = predictor.predict(new).unwrap();
        let [Prediction::Numbers(sure), Prediction::Numbers(not)] = &said[..] else { panic!("{said:?}") };
        assert!((0.9..=1.0).contains(&sure[0]) && (0.0..0.1).contains(&not[0]), "{said:?}");
        let found = predictor.evaluate(folder.at("d.csv")).unwrap();
        let precast_train::Evaluation::Numbers(scores) = found else { panic!() };
        assert!(scores.total.accuracy > Some(0.95) && scores.total.r_squared > 0.5, "{scores:?}");
    }
}

#[test]
fn a_class_that_the_loss_ignores_is_in_no_score() {
    let folder = Folder::new("unknown");
    let class = |i: usize| {
        if i.is_multiple_of(3) {
            "unknown"
        } else if noise(i) < 0.0 {
            "a"
        } else {
            "b"
        }
    };
    let rows: String = (0..300).map(|i| format!("{},{}\n", noise(i), class(i))).collect();
    folder.write("d.csv", &format!("x,t\n{rows}"));
    let keys = "data: {csv: {file: d.csv, target: t}}, optimizer: adam, lr: 0.2, epochs: 15";
    for loss in ["{ignore_index: 2}", "{weight: [1, 1, 0]}"] {
        let mut run = begin(&folder, dense(1, 3), &format!("{keys}, loss: {{cross_entropy: {loss}}}")).unwrap();
        run.train().unwrap();
        let accuracy = run.best().unwrap().1.accuracy().unwrap();
        assert!(accuracy > 0.95, "{loss}: {accuracy}");
        let scores = precast_train::scores_of(run.folder()).unwrap().unwrap();
        let precast_train::Evaluation::Classes(scores) = scores.test else { panic!() };
        let names: Vec<&str> = scores.classes.iter().map(|class| class.name.as_str()).collect();
        assert_eq!((names, scores.accuracy), (vec!["a", "b"], accuracy));
    }
}

/// Rows of an ignored class change nothing but the inputs that are read: neither the classes, the loss nor the scores.
#[test]
fn rows_of_an_ignored_label_are_as_if_not_there() {
    let folder = Folder::new("ignored-rows");
    let rows = |from: usize, label: Option<&str>| {
        let row = |i: usize| {
            let ignored = label.map_or(String::new(), |label| format!("{},{label}\n", noise(i + 7000)));
            format!("{},{}\n{ignored}", noise(i), u8::from(noise(i) > 0.0))
        };
        (from..from + 20).map(row).collect::<String>()
    };
    let trained = |label: Option<&str>, loss: &str| {
        folder.write("d.csv", &format!("x,t\n{}", rows(0, label)));
        folder.write("t.csv", &format!("x,t\n{}", rows(20, label)));
        let data = "data: {csv: {file: d.csv, target: t}}, test: t.csv, standardize: false";
        let mut run = begin(&folder, dense(1, 2), &format!("{data}, batch: 64, epochs: 5, loss: {loss}")).unwrap();
        let notes = run.notes().to_vec();
        assert!(notes.iter().all(|note| !note.contains("classes")), "{notes:?}");
        run.train().unwrap();
        let losses: Vec<f64> = run.history().steps.iter().map(|step| step.loss).collect();
        drop(run);
        let predictor = Predictor::of_folder(folder.at("run"), dense(1, 2)).unwrap();
        assert_eq!(predictor.class_names(), ["0", "1"]);
        let precast_train::Evaluation::Classes(scores) = predictor.evaluate(folder.at("t.csv")).unwrap() else {
            panic!()
        };
        (notes, losses, scores)
    };
    let (_, losses, scores) = trained(None, "cross_entropy");
    for label in ["-1", "-100", "255"] {
        let (notes, met, found) = trained(Some(label), &format!("{{cross_entropy: {{ignore_index: {label}}}}}"));
        assert!(notes.iter().all(|note| !note.contains("ignore_index")), "{notes:?}");
        assert_eq!(found, scores, "{label}");
        assert!(losses.iter().zip(&met).all(|(a, b)| (a - b).abs() < 1e-6), "{label}: {losses:?} {met:?}");
    }
    let (notes, ..) = trained(None, "{cross_entropy: {ignore_index: -1}}");
    assert!(notes.iter().any(|note| note == "`ignore_index: -1`: no example has this class"), "{notes:?}");
}

/// The ignored label may be a possible index of another class. Expected counts are those of the rows; the same numbers come
/// from an array that marks the ignored rows with -1.
#[test]
fn a_label_that_is_ignored_by_its_name_is_no_index() {
    const ROWS: usize = 24;
    let folder = Folder::new("ignored-by-name");
    let x = |i: usize| noise(i) as f32;
    let classes = |run: &Run| match precast_train::scores_of(run.folder()).unwrap().unwrap().test {
        precast_train::Evaluation::Classes(scores) => scores,
        other => panic!("{other:?}"),
    };
    let trained = |data: &str, keys: &str| {
        let keys = format!("{keys}, standardize: false, batch: 8, epochs: 3, optimizer: adam, lr: 0.1");
        let mut run = begin(&folder, dense(1, 2), &format!("data: {data}, {keys}")).unwrap();
        run.train().unwrap();
        let steps: Vec<_> = run.history().steps.iter().map(|step| (step.weight, step.loss)).collect();
        let scores = classes(&run);
        (steps, scores)
    };
    for (labels, ignored, weight) in [
        (["0", "1", "2"], 0, "1, 1"),
        (["0", "1", "2"], 0, "2, 3"),
        (["0", "1", "2"], 1, "1, 1"),
        (["1", "2", "3"], 1, "1, 1"),
        (["7", "0", "5"], 0, "1, 1"),
        (["cat", "dog", "0"], 0, "1, 1"),
    ] {
        let case = format!("{labels:?} {ignored} {weight}");
        let rows =
            |from: usize| -> String { (from..from + ROWS).map(|i| format!("{},{}\n", x(i), labels[i % 3])).collect() };
        let (train, test) = (folder.write("d.csv", &format!("x,t\n{}", rows(0))), format!("x,t\n{}", rows(ROWS)));
        folder.write("t.csv", &test);
        let mut left: Vec<&str> = labels.into_iter().filter(|label| *label != ignored.to_string()).collect();
        left.sort_unstable();
        let keys = |ignored: i64, test: &str| {
            format!("test: {test}, loss: {{cross_entropy: {{ignore_index: {ignored}, weight: [{weight}]}}}}")
        };
        let csv = format!("{{csv: {{file: {}, target: t}}}}", train);
        let (steps, scores) = trained(&csv, &keys(ignored, "t.csv"));
        let names: Vec<(&str, usize)> = scores.classes.iter().map(|class| (&*class.name, class.count)).collect();
        assert_eq!(names, [(left[0], ROWS / 3), (left[1], ROWS / 3)], "{case}");
        assert_eq!(scores.count, 2 * ROWS / 3, "{case}");
        let each: f64 = weight.split(", ").map(|weight| weight.parse::<f64>().unwrap()).sum();
        let first: f64 = steps[..ROWS / 8].iter().map(|(weight, _)| weight).sum();
        assert_eq!(first, each * (ROWS / 3) as f64, "{case}");

        // The folder alone answers the same, and resumes.
        let predictor = Predictor::of_folder(folder.at("run"), dense(1, 2)).unwrap();
        assert_eq!(predictor.class_names(), left, "{case}");
        let precast_train::Evaluation::Classes(again) = predictor.evaluate(folder.at("t.csv")).unwrap() else {
            panic!()
        };
        assert_eq!(again, scores, "{case}");
        let said = predictor.predict(folder.at("t.csv")).unwrap();
        assert!(
            said.iter().all(|said| matches!(said, Prediction::Class { name, .. } if left.contains(&&**name))),
            "{case}: {said:?}"
        );
        let more = precast_train::Change::default().epochs(4);
        let mut run = Run::resume_with(folder.at("run"), dense(1, 2), more).unwrap();
        run.train().unwrap();
        assert_eq!(run.history().steps.last().unwrap().epoch, 3, "{case}");
        let last: f64 = run.history().steps[9..].iter().map(|step| step.weight).sum();
        assert_eq!((last, classes(&run).count), (first, 2 * ROWS / 3), "{case}");
        drop(run);

        let write = |name: &str, from: usize| {
            let index = |i: usize| left.iter().position(|label| *label == labels[i % 3]).map_or(-1, |at| at as i64);
            let inputs = Tensor::from_vec((from..from + ROWS).map(x).collect(), &[ROWS, 1]).unwrap();
            let targets = Tensor::from_vec((from..from + ROWS).map(index).collect(), &[ROWS]).unwrap();
            write_npz(folder.at(name), [("inputs", &inputs), ("targets", &targets)]).unwrap();
        };
        write("d.npz", 0);
        write("t.npz", ROWS);
        let npz = format!("{{npy: {{file: {}, inputs: inputs, targets: targets}}}}", folder.at("d.npz").display());
        let (of_arrays, found) = trained(&npz, &keys(-1, "t.npz"));
        assert_eq!(of_arrays, steps, "{case}");
        assert_eq!((found.confusion, found.accuracy), (scores.confusion, scores.accuracy), "{case}");
    }
}

#[test]
fn groups_on_both_sides_and_steps_of_all_examples_are_noted() {
    let folder = Folder::new("groups-noted");
    let rows = |groups: &[&str]| {
        let row = |(i, group): (usize, &&str)| format!("{},{group},{}\n", noise(i), i % 2);
        format!("x,who,t\n{}", groups.iter().enumerate().map(row).collect::<String>())
    };
    folder.write("d.csv", &rows(&["ann", "bob", "Ann", "ann", "carl", "dora"]));
    folder.write("t.csv", &rows(&["bob", "eve"]));
    let notes = |keys: &str| {
        let data = "data: {csv: {file: d.csv, target: t, ignore: who}}, split: {by: who}";
        let run = begin(&folder, dense(1, 2), &format!("{data}, epochs: 1, {keys}")).unwrap();
        run.notes().iter().filter(|note| !note.starts_with("`test`: of its ")).cloned().collect::<Vec<_>>()
    };
    let alike = "`ann`, `Ann` are different groups of `split`; if they are one, write them in one way";
    let shared = "`test`: 1 of its 2 groups of `split` are also those of training examples, such as `bob`";
    let one_step = |key: &str, met: &str, n: usize| {
        format!("`{key}`: {met} is more than the {n} training examples, so an epoch is one step of all of them")
    };
    assert_eq!(notes("test: t.csv, batch: 2"), [alike, shared]);
    assert_eq!(notes("test: t.csv, batch: 7"), [&one_step("batch", "7", 6), alike, shared]);
    assert_eq!(notes("test: t.csv, batch: 3, accumulate: 2"), [alike, shared]);
    assert_eq!(notes("test: t.csv, batch: 3, accumulate: 3"), [&one_step("accumulate", "3 times 3", 6), alike, shared]);
}

#[test]
fn weights_of_classes_that_cannot_be_are_refused_at_their_place() {
    let folder = Folder::new("class-weights");
    folder.write("d.csv", "x,t\n1.5,a\n2.5,b\n3.5,a\n4.5,b\n");
    for (weight, words) in [
        ("[1, 1, 1]", "`weight` has 3 numbers, and the model returns 2 for each target"),
        ("[0, 0]", "the loss cross_entropy: `weight` is above 0 for no class, so no target counts"),
    ] {
        let keys = format!(
            "loss: {{cross_entropy: {{weight: {weight}}}}}, data: {{csv: {{file: d.csv, target: t}}}}, test: 1"
        );
        let error = begin(&folder, dense(1, 2), &keys).unwrap_err().to_string();
        assert!(error.starts_with(&format!("run.yaml:1:80: {words}\n")), "{error}");
    }
}

fn places(data: &Dataset) -> BTreeSet<i64> {
    let Targets::Classes { values, .. } = data.targets() else { panic!() };
    values.iter().copied().collect()
}

/// Each character of the text occurs once, so that a target is a place.
#[test]
fn windows_that_overlap_are_noted_or_kept_apart() {
    let folder = Folder::new("windows");
    folder.write("t.txt", &(0..300).filter_map(|i| char::from_u32(0x4e00 + i)).collect::<String>());
    let net = "{kind: Sequential, cells: [{kind: Embedding, vocab_size: 300, embedding_size: 2}, \
               {kind: Dense, in_features: 2, out_features: 300}]}";
    let model = |length: usize| {
        let text = format!("{{version: 1, input: [{length}], input_dtype: int64, net: {net}}}");
        Model::parse(&text, "m.yaml", 0).unwrap()
    };
    for (length, stride) in [(8, 1), (8, 3), (12, 5), (8, 8), (4, 6)] {
        for part in ["test: 0.1", "test: 20, validation: 0.2"] {
            if part.contains("20") && stride > 3 {
                continue;
            }
            let data = format!("data: {{text: {{file: t.txt, tokens: chars, length: {length}, stride: {stride}}}}}");
            let run = begin(&folder, model(length), &format!("{data}, {part}")).unwrap();
            let parts = |run: &Run| {
                let validation = run.validation().map(places).unwrap_or_default();
                [places(&run.data().train), validation, places(run.test())]
            };
            let [train, _, test] = parts(&run);
            let noted = run.notes().iter().any(|note| note.starts_with("`test`: ") && note.contains("overlap"));
            assert_eq!(!test.is_disjoint(&train), noted, "{length} {stride}: {:?}", run.notes());
            assert_eq!(noted, stride < length, "{length} {stride}");
            drop(run);
            let run = begin(&folder, model(length), &format!("{data}, {part}, split: in_order")).unwrap();
            let [train, validation, test] = parts(&run);
            assert!(run.notes().iter().all(|note| !note.contains("overlap")), "{:?}", run.notes());
            assert!(train.is_disjoint(&test) && train.is_disjoint(&validation) && validation.is_disjoint(&test));
            assert!(train.last() < test.first(), "the end of the text is for tests");
            // No more are left out than need be: fewer windows than overlap at a boundary.
            let all = (300 - 1 - length) / stride + 1;
            let kept = run.data().train.len() + run.test().len() + run.validation().map_or(0, Dataset::len);
            let boundaries = if part.contains("20") { 2 } else { 1 };
            assert_eq!(all - kept, boundaries * (length.div_ceil(stride) - 1), "{length} {stride}");
        }
    }
    let data = "data: {text: {file: t.txt, tokens: chars, length: 100, stride: 1}}";
    let error = begin(&folder, model(100), &format!("{data}, test: 0.9, split: in_order")).unwrap_err().to_string();
    assert!(error.contains("too few windows"), "{error}");
}

/// Rows of a patient are in one part, whatever the seed; sizes are as near as whole groups allow.
#[test]
fn rows_of_a_group_are_in_one_part() {
    let folder = Folder::new("groups");
    let patient = |i: usize| i * i % 17;
    let rows: String = (0..170).map(|i| format!("p{},{}.5,{}\n", patient(i), i, i % 2)).collect();
    folder.write("d.csv", &format!("who,x,t\n{rows}"));
    let data = "data: {csv: {file: d.csv, target: t, ignore: who}}";
    let of = |part: &Dataset| -> BTreeSet<usize> {
        let Inputs::Numbers(values) = part.inputs() else { panic!() };
        values.iter().map(|&x| patient(x as usize)).collect()
    };
    let mut tests = BTreeSet::new();
    for seed in 0..6 {
        let keys = format!("{data}, split: {{by: who}}, test: 0.3, validation: 20, seed: {seed}");
        let run = begin(&folder, dense(1, 2), &keys).unwrap();
        let parts = [&run.data().train, run.validation().unwrap(), run.test()];
        assert_eq!(parts.iter().map(|part| part.len()).sum::<usize>(), 170);
        assert!(parts[1].len() <= 20 && (30..=51).contains(&parts[2].len()), "{parts:?}");
        let [train, validation, test] = parts.map(of);
        assert!(train.is_disjoint(&test) && train.is_disjoint(&validation) && validation.is_disjoint(&test));
        tests.insert(test.into_iter().collect::<Vec<_>>());
        // Resumed, it has the same parts.
        let (folder, parts) = (run.folder().to_path_buf(), parts.map(Dataset::len));
        drop(run);
        let run = Run::resume(&folder, dense(1, 2)).unwrap();
        assert_eq!([&run.data().train, run.validation().unwrap(), run.test()].map(Dataset::len), parts);
    }
    assert!(tests.len() > 2, "the seed draws the groups");
    let refused = |keys: &str, words: &str| {
        let error = begin(&folder, dense(1, 2), keys).unwrap_err().to_string();
        assert!(error.contains(words), "{error}");
    };
    refused(&format!("{data}, split: {{by: whom}}"), "there is no column `whom` (did you mean `who`?)");
    refused(&format!("{data}, split: in_oder"), "in_order");
    refused("data: digits, split: {by: who}", "is for tables");
    folder.write("one.csv", "who,x,t\na,1,0\na,2,1\na,3,0\n");
    refused("data: {csv: {file: one.csv, target: t, ignore: who}}, split: {by: who}", "1 different word");
}

/// In order, the last rows are for tests.
#[test]
fn rows_in_order_are_divided_by_time() {
    let folder = Folder::new("in-order");
    folder.write(
        "d.csv",
        &(0..20).map(|i| format!("{i}.5,{}\n", i % 2)).fold("x,t\n".into(), |text: String, row| text + &row),
    );
    let keys = "data: {csv: {file: d.csv, target: t}}, test: 4, validation: 3, split: in_order";
    let run = begin(&folder, dense(1, 2), keys).unwrap();
    let of = |part: &Dataset| {
        let Inputs::Numbers(values) = part.inputs() else { panic!() };
        values.iter().map(|&x| x as usize).collect::<Vec<_>>()
    };
    assert_eq!(of(&run.data().train), (0..13).collect::<Vec<_>>());
    assert_eq!((of(run.validation().unwrap()), of(run.test())), (vec![13, 14, 15], vec![16, 17, 18, 19]));
}

/// A sum of shares is 1 but for rounding; a new row whose shares add up to 0.99 is not an outlier.
#[test]
fn a_column_of_rounding_errors_is_only_centred() {
    let folder = Folder::new("shares");
    let row = |i: usize| {
        let parts = [0, 1, 2].map(|k| noise(i + 1000 * k).abs() + 0.1);
        let sum: f64 = parts.iter().sum();
        let [a, b, c] = parts.map(|part| part / sum);
        format!("{a},{b},{},{}\n", a + b + c, if a > b { "a" } else { "b" })
    };
    let rows: String = (0..200).map(row).collect();
    assert!(rows.contains(",0.9999999999999999,") && rows.contains(",1,"));
    folder.write("d.csv", &format!("a,b,total,t\n{rows}"));
    let keys = "data: {csv: {file: d.csv, target: t}}, standardize: true, optimizer: adam, lr: 0.1, epochs: 15";
    let mut run = begin(&folder, dense(3, 2), keys).unwrap();
    assert_eq!(run.standardization().unwrap().deviation[2], 1.0);
    run.train().unwrap();
    drop(run);
    let predictor = Predictor::of_folder(folder.at("run"), dense(3, 2)).unwrap();
    let said = predictor.predict(folder.write("new.csv", "a,b,total\n0.7,0.1,0.99\n0.1,0.7,0.99\n")).unwrap();
    let classes: Vec<_> = said
        .iter()
        .map(|said| if let Prediction::Class { name, .. } = said { name.as_str() } else { "none" })
        .collect();
    assert_eq!(classes, ["a", "b"]);
}

/// Columns of words are made when they are needed, where they would take more than `memory`: also for a file of few
/// words, which become as many columns.
#[test]
fn columns_of_words_are_bounded_by_memory_with_the_same_results() {
    let folder = Folder::new("words");
    let rows: String = (0..400).map(|i| format!("w{},{i},{}\n", i % 300, i % 2)).collect();
    folder.write("d.csv", &format!("w,x,t\n{rows}"));
    folder.write("new.csv", &format!("w,x\n{}", "w7,1\n".repeat(200)));
    let data = "data: {csv: {file: d.csv, target: t, one_hot: w}}, standardize: true, epochs: 2";
    let with = |memory: &str| {
        let mut run = begin(&folder, dense(301, 2), &format!("{data}, memory: {memory}")).unwrap();
        run.train().unwrap();
        let is_stored = matches!(run.data().train.inputs(), Inputs::Stored(_));
        let losses: Vec<u64> = run.history().steps.iter().map(|step| step.loss.to_bits()).collect();
        drop(run);
        let predictor = Predictor::of_folder(folder.at("run"), dense(301, 2)).unwrap();
        let read = predictor.read(folder.at("new.csv")).unwrap();
        let fitted = predictor.examples_of(read.clone()).unwrap();
        assert_eq!(matches!(fitted.inputs(), Inputs::Stored(_)), is_stored);
        (is_stored, losses, predictor.predict_all(read).unwrap())
    };
    let (stored, losses, said) = with("1 GiB");
    let (few_stored, few_losses, few_said) = with("20 kB");
    assert_eq!((stored, few_stored), (false, true));
    assert_eq!((losses, said), (few_losses, few_said));
}

/// A text has capital letters, and they are not a mistake.
#[test]
fn tokens_of_a_text_are_no_names() {
    let folder = Folder::new("tokens");
    folder.write("t.txt", &"Aa Bb Cc 0 00 ".repeat(30));
    let net = "{kind: Sequential, cells: [{kind: Embedding, vocab_size: 256, embedding_size: 2}, \
               {kind: Dense, in_features: 2, out_features: 256}]}";
    let model = Model::parse(&format!("{{version: 1, input: [8], input_dtype: int64, net: {net}}}"), "m.yaml", 0);
    let run = begin(&folder, model.unwrap(), "data: {text: {file: t.txt, length: 8}}").unwrap();
    assert!(run.notes().iter().all(|note| !note.contains("different classes")), "{:?}", run.notes());
}

/// Each letter has one that follows it, which a table of letters learns.
#[test]
fn a_run_on_a_text_continues_a_prompt() {
    let folder = Folder::new("generate");
    folder.write("t.txt", &"abc".repeat(200));
    let net = "{kind: Sequential, cells: [{kind: Embedding, vocab_size: 3, embedding_size: 4}, \
               {kind: Dense, in_features: 4, out_features: 5}]}"; // two outputs more than tokens
    let model =
        || Model::parse(&format!("{{version: 1, input: [8], input_dtype: int64, net: {net}}}"), "m.yaml", 0).unwrap();
    let data = "data: {text: {file: t.txt, tokens: chars, length: 8}}, optimizer: adam, lr: 0.1, epochs: 20";
    begin(&folder, model(), data).unwrap().train().unwrap();
    let predictor = Predictor::of_folder(folder.at("run"), model()).unwrap();
    let generate = |prompt: &str, tokens, temperature, seed| {
        let mut options = Generate::default();
        (options.tokens, options.temperature, options.seed) = (tokens, temperature, seed);
        predictor.generate(prompt, &options)
    };
    // Beyond the length of an example as well.
    assert_eq!(generate("ca", 12, 0.0, 0).unwrap(), "bcabcabcabca");
    assert_eq!(generate("a", 0, 1.0, 0).unwrap(), "");
    let hot = |seed| generate("a", 60, 50.0, seed).unwrap();
    assert_eq!(hot(1), hot(1));
    assert!(hot(1) != hot(2) && hot(1) != "bca".repeat(20));
    for (prompt, temperature, words) in [
        ("", 1.0, "the prompt is empty"),
        ("ax", 1.0, "the prompt: 1:2: the vocabulary has no `x`"),
        ("a", -1.0, "a temperature of -1; allowed: 0 and above"),
    ] {
        let error = generate(prompt, 3, temperature, 0).unwrap_err().to_string();
        assert!(error.contains(words), "{error}");
    }
    folder.write("d.csv", "a,t\n1,0\n2,1\n3,0\n4,1\n");
    begin(&folder, dense(1, 2), "data: {csv: {file: d.csv, target: t, as: classes}}, epochs: 1")
        .unwrap()
        .train()
        .unwrap();
    let table = Predictor::of_folder(folder.at("run"), dense(1, 2)).unwrap();
    let error = table.generate("a", &Generate::default()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
}

/// Classes that count from 1, and those with a gap, take outputs that nothing trains.
#[test]
fn numbers_of_classes_that_are_left_out_are_noted() {
    let folder = Folder::new("left-out");
    let notes = |classes: [i64; 6]| {
        let x = Tensor::randn(&[12, 2], &mut Rng::seed(1)).unwrap();
        let y = Tensor::from_vec(classes.repeat(2), &[12]).unwrap();
        write_npz(folder.at("d.npz"), [("inputs", &x), ("targets", &y)]).unwrap();
        let data = format!("{{npy: {{file: {}, inputs: inputs, targets: targets}}}}", folder.at("d.npz").display());
        let run = begin(&folder, dense(2, 6), &format!("data: {data}, epochs: 1, test: 2, seed: 3")).unwrap();
        run.notes().iter().filter(|note| note.contains("learn nothing")).cloned().collect::<Vec<_>>()
    };
    let [from_1] = &notes([1, 2, 3, 3, 2, 1])[..] else { panic!("no note") };
    assert!(from_1.starts_with("no training example has the class `0`") && from_1.ends_with("subtract 1"), "{from_1}");
    let [gap] = &notes([0, 5, 0, 5, 0, 5])[..] else { panic!("no note") };
    assert!(gap.contains("`1`, `2`, `3`, `4`, and one has `5`") && !gap.contains("subtract"), "{gap}");
    assert_eq!(notes([0, 1, 2, 0, 1, 2]), Vec::<String>::new());
}

/// The label of what is not to be learnt, such as the border of an object, is often the largest of a byte.
#[test]
fn an_ignored_label_is_no_class() {
    let folder = Folder::new("ignored-label");
    let write = |ignored: i64| {
        let x = Tensor::randn(&[8, 2], &mut Rng::seed(1)).unwrap();
        let y = Tensor::from_vec(vec![0i64, 1, ignored, 0, 1, ignored, 1, 0], &[8]).unwrap();
        write_npz(folder.at("d.npz"), [("inputs", &x), ("targets", &y)]).unwrap();
    };
    let keys = |more: &str| {
        let data = format!("{{npy: {{file: {}, inputs: inputs, targets: targets}}}}", folder.at("d.npz").display());
        format!("data: {data}, epochs: 1, test: 2{more}")
    };
    for (ignored, words) in [
        (255, "the model returns 2 numbers for each target, and there are 256 classes"),
        (-1, "`data`: target 1 of row 3 is -1; classes count from 0, and the loss ignores -1 with `ignore_index: -1`"),
    ] {
        write(ignored);
        let error = begin(&folder, dense(2, 2), &keys("")).unwrap_err().to_string();
        assert!(error.contains(words), "{error}");
        let loss = format!(", loss: {{cross_entropy: {{ignore_index: {ignored}}}}}");
        let mut run = begin(&folder, dense(2, 2), &keys(&loss)).unwrap();
        assert!(run.notes().iter().all(|note| !note.contains("class")), "{:?}", run.notes());
        run.train().unwrap();
    }
    // -100 is ignored by every cross entropy.
    write(-100);
    begin(&folder, dense(2, 2), &keys("")).unwrap().train().unwrap();
}

/// Copies of training examples are found under any name, and in a table that has each row three times.
#[test]
fn parts_of_training_examples_are_noted() {
    let folder = Folder::new("copies");
    let row = |i: usize| format!("{},{},{:.1}\n", noise(i), noise(i + 5000), noise(i + 9000));
    let rows = |all: &[usize]| all.iter().map(|&i| row(i)).collect::<String>();
    let once: Vec<usize> = (0..60).collect();
    folder.write("once.csv", &format!("a,b,t\n{}", rows(&once)));
    folder.write("copy.csv", &format!("a,b,t\n{}", rows(&once[..20])));
    folder.write("new.csv", &format!("a,b,t\n{}", rows(&(100..120).collect::<Vec<_>>())));
    folder.write("thrice.csv", &format!("a,b,t\n{}", rows(&once.repeat(3))));
    let noted = |file: &str, parts: &str| {
        let data = format!("data: {{csv: {{file: {file}, target: t, as: numbers}}}}, standardize: true, epochs: 1");
        let run = begin(&folder, dense(2, 1), &format!("{data}, {parts}")).unwrap();
        let notes = run.notes().iter().filter(|note| note.contains("have inputs and targets of a"));
        notes.map(|note| note.split(':').next().unwrap().to_string()).collect::<Vec<_>>()
    };
    assert_eq!(noted("once.csv", "test: 0.2"), Vec::<String>::new());
    assert_eq!(noted("once.csv", "test: new.csv, validation: 0.2"), Vec::<String>::new());
    assert_eq!(noted("once.csv", "test: copy.csv"), ["`test`"]);
    assert_eq!(noted("once.csv", "test: new.csv, validation: copy.csv"), ["`validation`"]);
    assert_eq!(noted("thrice.csv", "test: 0.2"), ["`test`"]);
    // Windows of a text are indices.
    let letter = |i: usize| char::from(b'a' + ((noise(i) + 1.0) * 11.4) as u8);
    let letters = |from: usize| (from..from + 600).map(letter).collect::<String>();
    folder.write("text.txt", &letters(0));
    folder.write("same.txt", &letters(0));
    folder.write("part.txt", &(letters(5000)[..40].to_string() + &letters(0)[203..303]));
    folder.write("new.txt", &letters(5000));
    let net = "version: 1\ninput: [16]\ninput_dtype: int64\nnet: {kind: Sequential, cells: [{kind: Embedding, vocab_size: 23, \
               embedding_size: 4}, {kind: Dense, in_features: 4, out_features: 23}]}";
    let noted = |test: &str, stride: usize| {
        let data =
            format!("data: {{text: {{file: text.txt, tokens: chars, length: 16, stride: {stride}}}}}, epochs: 1");
        let net = Model::parse(net, "m.yaml", 0).unwrap();
        let run = begin(&folder, net, &format!("{data}, test: {test}")).unwrap();
        run.notes().iter().find(|note| note.contains("are in the training text")).cloned().unwrap_or_default()
    };
    for (stride, all) in [(16, 37), (5, 117)] {
        assert!(noted("same.txt", stride).contains(&format!("of its {all} examples, {all} are")), "{stride}");
        assert_eq!(noted("new.txt", stride), "");
    }
    // The windows of 16 that begin at 48, 64, 80, 96 and 112, at another place of the text.
    assert!(noted("part.txt", 16).contains("of its 8 examples, 5 are"), "{}", noted("part.txt", 16));
}

/// Expected counts are those of the rows that were written.
#[test]
fn shared_rows_are_counted_in_memory_and_on_disk() {
    let folder = Folder::new("shared-rows");
    let rows = |all: std::ops::Range<usize>| {
        let row = |i: usize| format!("{},{},{:.1}\n", noise(i), ["p", "q"][i % 2], noise(i + 9000));
        all.map(row).collect::<String>()
    };
    let write = |name: &str, rows: &str| folder.write(name, &format!("a,w,t\n{rows}"));
    write("d.csv", &rows(0..120));
    write("half.csv", &(rows(0..30) + &rows(200..230)));
    write("one.csv", &(rows(7..8) + &rows(300..359)));
    write("new.csv", &rows(210..240));
    let noted = |keys: &str| {
        let data = "data: {csv: {file: d.csv, target: t, as: numbers, one_hot: w}}, epochs: 1";
        let run = begin(&folder, dense(3, 1), &format!("{data}, {keys}")).unwrap();
        let notes = run.notes().iter().filter(|note| note.contains("have inputs and targets of a"));
        notes.cloned().collect::<Vec<_>>()
    };
    let note = |key: &str, all: usize, count: usize, other: &str| {
        let words = format!("of its {all} examples, {count} have inputs and targets of a {other} example");
        format!("`{key}`: {words}, so its score is not one of new examples alone")
    };
    for more in
        ["", ", memory: 100", ", standardize: true, standardize_targets: true", ", standardize: true, memory: 100"]
    {
        assert_eq!(noted(&format!("test: half.csv{more}")), [note("test", 60, 30, "training")], "{more}");
        assert_eq!(noted(&format!("test: one.csv{more}")), [note("test", 60, 1, "training")], "{more}");
        let both = [note("validation", 60, 30, "training"), note("test", 30, 20, "validation")];
        assert_eq!(noted(&format!("test: new.csv, validation: half.csv{more}")), both, "{more}");
        assert!(noted(&format!("test: new.csv{more}")).is_empty(), "{more}");
    }
}

#[test]
fn groups_of_files_are_compared_with_those_of_other_parts() {
    let folder = Folder::new("groups-of-files");
    let write = |name: &str, groups: &[&str]| {
        let row = |(i, group): (usize, &&str)| format!("{},{group},{}\n", noise(i + 50 * name.len()), i % 2);
        folder.write(name, &format!("x,who,t\n{}", groups.iter().enumerate().map(row).collect::<String>()));
    };
    write("d.csv", &["ann", "caf\u{e9}", "0", "7", "dora"]);
    write("test.csv", &["Ann", "eve"]);
    write("zeros.csv", &["00", "eve"]);
    write("points.csv", &["0.0", "7.0", "eve"]);
    write("accents.csv", &["cafe\u{301}"]);
    write("others.csv", &["eve", "finn", "gil"]);
    let notes = |keys: &str| {
        let data = "data: {csv: {file: d.csv, target: t, ignore: who}}, split: {by: who}, batch: 2";
        let run = begin(&folder, dense(1, 2), &format!("{data}, epochs: 1, {keys}")).unwrap();
        run.notes().iter().filter(|note| note.contains("groups of `split`")).cloned().collect::<Vec<_>>()
    };
    let alike = |key: &str, counts: &str, names: &str| {
        format!(
            "`{key}`: {counts} groups of `split` are written in another way than those of training examples, such as \
             {names}; if they are one, write them in one way"
        )
    };
    assert_eq!(notes("test: test.csv"), [alike("test", "1 of its 2", "`Ann` and `ann`")]);
    assert_eq!(notes("test: zeros.csv"), [alike("test", "1 of its 2", "`00` and `0`")]);
    assert_eq!(notes("test: points.csv"), [alike("test", "2 of its 3", "`0.0` and `0`")]);
    assert_eq!(notes("test: accents.csv"), [alike("test", "1 of its 1", "`cafe\\u{301}` and `caf\u{e9}`")]);
    assert_eq!(
        notes("test: zeros.csv, validation: others.csv"),
        [
            alike("test", "1 of its 2", "`00` and `0`"),
            "`validation`: 1 of its 3 groups of `split` are also those of test examples, such as `eve`".into()
        ]
    );
    assert!(notes("test: 1, validation: 1").is_empty());
}

#[test]
fn runs_that_can_learn_nothing_are_noted() {
    let folder = Folder::new("nothing-learnt");
    let rows =
        |class: fn(usize) -> &'static str| (0..40).map(|i| format!("{},{}\n", noise(i), class(i))).collect::<String>();
    folder.write("d.csv", &format!("x,t\n{}", rows(|i| ["a", "b"][i % 2])));
    folder.write("one.csv", &format!("x,t\n{}", rows(|_| "a")));
    folder.write("rest.csv", &format!("x,t\n{}", rows(|i| ["5", "9"][i % 2])));
    let notes = |file: &str, keys: &str| {
        let data = format!("data: {{csv: {{file: {file}, target: t}}}}, standardize: false, epochs: 2, test: 0.25");
        let run = begin(&folder, dense(1, 2), &format!("{data}, {keys}")).unwrap();
        let of = |note: &&String| note.contains("the network") || note.contains("tell apart");
        run.notes().iter().filter(of).cloned().collect::<Vec<_>>()
    };
    assert_eq!(notes("d.csv", "lr: 1e-50"), ["`lr`: 1e-50 is 0 in float32, so no step changes the network"]);
    let groups = [
        "`groups`: with `lr_factor`, the learning rate of every parameter is 0 in float32, so no step changes the network",
    ];
    assert_eq!(notes("d.csv", "groups: [{path: '**', lr_factor: 0}]"), groups);
    assert_eq!(notes("d.csv", "groups: [{path: '**', lr_factor: 1}, {path: '0', lr_factor: 1e-60}]"), groups);
    let schedule = |is: &str, from: usize, steps: usize, change: &str| {
        format!(
            "`schedule`: the learning rate is {is} from step {from} of {steps} on, so these steps {change} the \
             network; `every` counts steps, of which an epoch has {}",
            steps / 2
        )
    };
    assert_eq!(
        notes("d.csv", "schedule: {step: {every: 1, factor: 0}}"),
        [schedule("0 in float32", 2, 2, "do not change")]
    );
    // 0.1^7 is above 2^-24, and 0.1^8 below: steps 1 to 16 are the first eight factors, if each lasts for two.
    let steps = "batch: 1, schedule: {step: {every: 2, factor: 0.1}}";
    assert_eq!(notes("d.csv", steps), [schedule("below 2^-24 of `lr`", 17, 60, "hardly change")]);
    let one = "every target of the training examples is of the class `a`, so there is nothing to tell apart";
    assert_eq!(notes("one.csv", "lr: 0.1"), [one]);
    let ignored = "loss: {cross_entropy: {ignore_index: 9}}";
    assert_eq!(notes("rest.csv", ignored), [one.replace("`a`", "`5`")]);
    // These learn: the last group of a parameter decides, and not all are in one.
    for keys in [
        "lr: 1e-40",
        "groups: [{path: '**', lr_factor: 0}, {path: '0.bias', lr_factor: 1}]",
        "groups: [{path: '0.weight', lr_factor: 0}]",
        "freeze: ['0.bias']",
        "schedule: cosine",
        "schedule: one-cycle",
        "schedule: {step: {every: 1, factor: 0.5}}",
        "batch: 1, schedule: {step: {every: 8, factor: 0.1}}",
    ] {
        assert!(notes("d.csv", keys).is_empty(), "{keys}");
    }
}

#[test]
fn labels_of_pandas_are_explained() {
    let folder = Folder::new("labels-of-pandas");
    let refused = |rows: &str| {
        folder.write("d.csv", &format!("x,t\n{rows}"));
        let keys = "data: {csv: {file: d.csv, target: t}}, epochs: 1, test: 2";
        begin(&folder, dense(1, 3), keys).unwrap_err().to_string()
    };
    let row = |label: fn(usize) -> &'static str| (0..12).map(|i| format!("{i},{}\n", label(i))).collect::<String>();
    let error = refused(&row(|i| ["0.0", "1.0", "2.0"][i % 3]));
    assert!(error.contains("; whole numbers are read as classes with `as: classes`"), "{error}");
    // Classes are the numbers that there are, at most one for each output.
    for (label, are_classes) in [
        (&["0.0", "1.0", "3.0"][..], true),
        (&["-1.0", "1.0"], true),
        (&["0.5", "1.0", "2.0"], false),
        (&["0.0", "1.0", "2.0", "3.0"], false),
    ] {
        let rows: String = (0..12).map(|i| format!("{i},{}\n", label[i % label.len()])).collect();
        assert_eq!(refused(&rows).contains("as: classes"), are_classes, "{label:?}");
    }
    let error = refused(&row(|i| ["a", "b", "c", "nan"][i % 4]));
    let words = "d.csv:5: column 2 (`t`): `nan` among words marks a missing label: remove these rows; if it is a class, say `as: \
                 classes`";
    assert!(error.contains(words), "{error}");
}

/// The head on the features is the prediction.
#[test]
fn features_are_what_a_cell_gives() {
    let folder = Folder::new("features");
    let rows = (0..40).map(|i| format!("{},{},{:.3}\n", noise(i), noise(i + 99), noise(i) - noise(i + 99)));
    folder.write("d.csv", &format!("a,b,t\n{}", rows.collect::<String>()));
    let net = "version: 1\nnet: {kind: Sequential, cells: [{kind: Dense, in_features: 2, out_features: 5}, {kind: ReLU}, \
               {kind: Dense, in_features: 5, out_features: 1}]}";
    let net = || Model::parse(net, "m.yaml", 0).unwrap();
    let data = "data: {csv: {file: d.csv, target: t, as: numbers}}, standardize: true, batch: 16, epochs: 2";
    begin(&folder, net(), data).unwrap().train().unwrap();
    let predictor = Predictor::of_folder(folder.at("run"), net()).unwrap();
    let read = || predictor.read(folder.at("d.csv")).unwrap();
    let features = predictor.features("1", read()).unwrap();
    assert!(features.len() == 40 && features.iter().all(|row| row.len() == 5 && row.iter().all(|x| *x >= 0.0)));
    let predictions = predictor.predict_all(read()).unwrap();
    let error = predictor.features("3", read()).unwrap_err().to_string();
    assert_eq!(error, "no cell at `3` (there are `0`, `1`, `2`)");
    let net = predictor.into_net().unwrap();
    let of = |name: &str| net.named_params().into_iter().find(|(path, _)| path == name).unwrap().1.value().to_f64();
    let (weight, bias) = (of("2.weight"), of("2.bias"));
    for (row, said) in features.iter().zip(predictions) {
        let Prediction::Numbers(numbers) = said else { panic!("{said:?}") };
        let wanted: f64 = row.iter().zip(&weight).map(|(x, w)| f64::from(*x) * w).sum::<f64>() + bias[0];
        assert!((f64::from(numbers[0]) - wanted).abs() < 1e-5, "{numbers:?} {wanted}");
    }
}

#[test]
fn batch_norms_of_few_examples_are_noted() {
    let folder = Folder::new("few-examples");
    folder.write("d.csv", &format!("x,t\n{}", (0..40).map(|i| format!("{i},{}\n", i % 2)).collect::<String>()));
    let cells = "{kind: Dense, in_features: 1, out_features: 4}, {kind: BatchNorm1d, num_features: 4}, {kind: Dense, \
                 in_features: 4, out_features: 2}";
    let text = format!("{{version: 1, input: [1], net: {{kind: Sequential, cells: [{cells}]}}}}");
    for (keys, is_noted) in [("batch: 2", true), ("batch: 16, shards: 4", true), ("batch: 8", false)] {
        let keys = format!("data: {{csv: {{file: d.csv, target: t}}}}, epochs: 1, test: 4, {keys}");
        let run = begin(&folder, Model::parse(&text, "m.yaml", 0).unwrap(), &keys).unwrap();
        let notes =
            run.notes().iter().filter(|note| note.contains("BatchNorm1d of `1` takes mean and variance")).count();
        assert_eq!(notes, usize::from(is_noted), "{keys}: {:?}", run.notes());
    }
}
