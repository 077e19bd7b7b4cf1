//! Standardized inputs and targets; scores and predictions in the units of the data.

use std::fs;

use precast::{io::models::Model, prelude::*};
use precast_train::{FitOptions, Loss, fit};
use precast_train::{Prediction, Predictor, Run, RunFile};

use crate::{
    common::folder::Folder,
    folders::{dense, file, model},
};

/// Seconds since 1970, four per second: the first 50 are distinguished from the rest, which f32 could not do.
#[test]
fn numbers_keep_their_digits_until_they_are_standardized() {
    let data = Folder::new("seconds-data");
    let line = |i: u32| format!("{},{}\n", 1.7e9 + f64::from(i) / 4.0, if i < 200 { "a" } else { "b" });
    data.write("time.csv", &["time,side\n".to_string()].into_iter().chain((0..400).map(line)).collect::<String>());
    let text = |standardize: bool, more: &str| {
        format!(
            "{{version: 1, model: m, policy: o0, data: {{csv: {{file: {}, target: side}}}}, \
             standardize: {standardize}, optimizer: adam, lr: 0.1, epochs: 30{more}}}",
            data.at("time.csv").display()
        )
    };
    let begin = |text: &str, to: &Folder| Run::begin(&RunFile::parse(text, "run.yaml").unwrap(), dense(1, 2), to);
    let to = Folder::to_come("seconds");
    let mut run = begin(&text(true, ""), &to).unwrap();
    assert_eq!(run.notes(), [""; 0]);
    let by = run.standardization().unwrap();
    // That of 320 of 400 numbers, a quarter apart.
    assert!((by.deviation[0] - 28.87).abs() < 2.0 && (by.mean[0] - 1.7e9 - 50.0).abs() < 5.0, "{by:?}");
    run.train().unwrap();
    assert!(run.best().unwrap().1.accuracy().unwrap() > 0.97, "{:?}", run.best());
    drop(run);
    let predictor = Predictor::of_folder(&to, dense(1, 2)).unwrap();
    let new = data.write("new.csv", "time\n1700000040.25\n1700000060.25\n");
    let said = predictor.predict(new).unwrap();
    assert!(matches!(&said[..], [Prediction::Class { index: 0, .. }, Prediction::Class { index: 1, .. }]), "{said:?}");

    let to = Folder::to_come("seconds-f32");
    let run = begin(&text(false, ""), &to).unwrap();
    let words = "time.csv: column 1 (`time`): 1700000000 and 1700000000.25 become one number in float32; with \
                 `standardize: true` they stay apart";
    assert!(run.notes()[0].ends_with(words), "{:?}", run.notes());
    // So are the examples of both parts, by their numbers in float32.
    assert!(run.notes().len() == 2 && run.notes()[1].contains("of a training example"), "{:?}", run.notes());
    drop(run);
    // Notes on a separate test file are reported as well.
    data.write("test.csv", "time,side\n1700001000,a\n1700001000.5,b\n");
    let to = Folder::to_come("seconds-test");
    let run = begin(&text(false, &format!(", test: {}", data.at("test.csv").display())), &to).unwrap();
    assert!(run.notes().len() == 2 && run.notes()[1].contains("test.csv: column 1"), "{:?}", run.notes());
}

/// The score is that of the targets in the file: for a constant prediction the variance, which f32 would change by
/// thousands.
#[test]
fn scores_are_of_the_targets_in_the_file() {
    use precast::Child;
    use precast_train::data::Csv;
    use precast_train::mean_squared_error;
    let csv = Csv::new("t.csv").target("y").numbers();
    let data = csv.parse(b"x,y\n0,1700000010\n0,1700000020\n0,1700000030\n").unwrap();
    let net = Child::new(Dense::new(1, 1, &mut Rng::seed(0)));
    for (name, param) in net.named_params().iter() {
        let value = if name.ends_with("bias") { 1.7e9 } else { 0.0 };
        param.set(&precast::Tensor::full(&param.shape(), value, precast::DType::F32)).unwrap();
    }
    // f32 represents 1700000000.
    let error = mean_squared_error(&net, &data, 2).unwrap();
    assert!((error - (100.0 + 400.0 + 900.0) / 3.0).abs() < 1e-6, "{error}");
}

/// y = 1000 x - 5000: the loss is that of standardized targets, scores and predictions are in the units of the data.
#[test]
fn targets_are_standardized_for_training_alone() {
    let data = Folder::to_come("units-data");
    fs::create_dir_all(&data).unwrap();
    let rows = (0..50).map(|i| format!("{i}.0,{}.0\n", 1000 * i - 5000));
    fs::write(data.join("line.csv"), ["x,y\n".to_string()].into_iter().chain(rows).collect::<String>()).unwrap();
    let text = format!(
        "{{version: 1, model: m, policy: o0, data: {{csv: {{file: {}, target: y}}}}, standardize: true, \
         standardize_targets: true, optimizer: {{sgd: {{momentum: 0}}}}, lr: 0.2, epochs: 40, batch: 40, test: 10}}",
        data.join("line.csv").display()
    );
    let line = |seed| Model::new(Dense::new(1, 1, &mut Rng::seed(seed))).input([1]);
    let to = Folder::to_come("units");
    let mut run = Run::begin(&RunFile::parse(&text, "run.yaml").unwrap(), line(0), &to).unwrap();
    // Of 40 of the numbers 0 to 49.
    let by = run.target_standardization().unwrap().clone();
    assert!((by.deviation[0] - 14434.0).abs() < 1500.0 && (by.mean[0] - 19500.0).abs() < 3000.0, "{by:?}");
    let inputs = run.standardization().unwrap();
    assert!((by.mean[0] - (1000.0 * inputs.mean[0] - 5000.0)).abs() < 1e-6);
    assert!((by.deviation[0] - 1000.0 * inputs.deviation[0]).abs() < 1e-6);
    run.train().unwrap();
    let last = run.history().epochs.last().unwrap();
    assert!(run.history().steps[0].loss < 10.0 && last.loss < 1e-6, "{last:?}");
    let error = last.score.mean_squared_error().unwrap();
    assert!(error < 1e-6 * by.deviation[0].powi(2), "{error}");
    let best = run.best().unwrap().1;
    drop(run);

    fs::write(data.join("new.csv"), "x,y\n10,5000.0\n100,95000.0\n").unwrap();
    let predictor = Predictor::of_folder(&to, line(1)).unwrap();
    let said = predictor.predict(data.join("new.csv")).unwrap();
    for (said, expected) in said.iter().zip([5000.0, 95000.0]) {
        let Prediction::Numbers(numbers) = said else { panic!("numbers") };
        assert!((numbers[0] - expected).abs() < 1e-3 * 14434.0, "{numbers:?}");
    }
    // The file of the run has the test examples, too: its error is that of all.
    let score = predictor.score(data.join("line.csv")).unwrap().mean_squared_error().unwrap();
    assert!(score < 10.0 * best.mean_squared_error().unwrap() + 1.0, "{score} {best}");

    let classes = file("o0", ", standardize_targets: true");
    let error = Run::begin(&classes, model(0), Folder::to_come("units-classes")).unwrap_err();
    assert_eq!(
        error.to_string(),
        "`standardize_targets`: targets that are classes have no mean; whole numbers are read as numbers with `as: numbers`"
    );
}

#[test]
fn a_target_outside_of_the_domain_of_the_loss_is_named_before_the_first_step() {
    let data = Folder::new("domain-data");
    data.write("d.csv", "x,share,percent\n0,0.5,0.1\n1,1,0.2\n2,0,50\n3,0.25,1\n4,0.5,0\n");
    data.write("t.csv", "x,share,percent\n0,0.5,0.1\n1,-0.5,0.2\n");
    let begin = |target: &str, outputs: usize, more: &str| {
        let text = format!(
            "{{version: 1, model: m, policy: o0, data: {{csv: {{file: {}, target: {target}, columns: x, as: numbers}}}}, \
             loss: bce_with_logits, epochs: 1{more}}}",
            data.at("d.csv").display()
        );
        Run::begin(&RunFile::parse(&text, "run.yaml").unwrap(), dense(1, outputs), Folder::to_come("domain"))
    };
    assert!(begin("share", 1, "").is_ok());
    let message = begin("[share, percent]", 2, "").err().unwrap().to_string();
    assert!(
        message
            .contains("`data`: `percent` of row 3 is 50; the loss bce_with_logits compares with numbers from 0 to 1"),
        "{message}"
    );
    let message = begin("2", 1, &format!(", test: {}", data.at("t.csv").display())).err().unwrap().to_string();
    assert!(message.contains("`test`: column 2 of row 2 is -0.5; the loss"), "{message}");
    // In scores of a file.
    let folder = Folder::to_come("domain-scored");
    let text = format!(
        "{{version: 1, model: m, policy: o0, data: {{csv: {{file: {}, target: share, columns: x, as: numbers}}}}, \
         loss: bce_with_logits, epochs: 1}}",
        data.at("d.csv").display()
    );
    Run::begin(&RunFile::parse(&text, "run.yaml").unwrap(), dense(1, 1), &folder).unwrap().train().unwrap();
    let message = Predictor::of_folder(&folder, dense(1, 1)).unwrap().score(data.at("t.csv")).unwrap_err().to_string();
    assert!(message.contains("t.csv`: `share` of row 2 is -0.5; the loss"), "{message}");
    // In code.
    let numbers = precast_train::data::Csv::new("d.csv").target("share").numbers();
    let table = numbers.parse(b"x,share\n0,0.5\n1,1.5\n2,0\n3,1\n").unwrap();
    let options = FitOptions::default().loss(Loss::BceWithLogits {}).epochs(1);
    let split = table.split_in_order(3).unwrap();
    let message = fit(&mut dense(1, 1).net, &split, &options, &mut |_| {}).unwrap_err().to_string();
    assert_eq!(message, "target 0 of example 1 is 1.5; the loss bce_with_logits compares with numbers from 0 to 1");
}
