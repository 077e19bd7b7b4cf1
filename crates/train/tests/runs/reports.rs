//! Reports: a run as a table and as a picture.

use precast::io::models::{self, Model};
use precast_train::report::{TrainingRun, chart, runs_table};
use precast_train::{FitOptions, Score, data::digits, fit};

use crate::curve::{CURVE, curve};

#[test]
fn a_run_is_shown_as_a_table_and_a_picture() {
    let mut net = Model::named("mlp", 7).unwrap().net;
    let data = digits().unwrap().reshape(&[64]).unwrap().split(1500, 0).unwrap();
    let history = fit(&mut net, &data, &FitOptions::default().epochs(2), &mut |_| {}).unwrap();
    let runs = [TrainingRun { name: "O0", history: &history }];
    let row = runs_table(&runs).lines().last().unwrap().to_string();
    let accuracy = format!("{:.2} %", 100.0 * history.accuracy().unwrap());
    assert!(row.contains("O0") && row.contains(&accuracy) && row.contains("94"), "{row}");
    assert!(chart(&runs).unwrap().contains("O0"));
    assert!(serde_json::to_string(&history).unwrap().contains("\"stepped\""));
}

#[test]
fn a_run_is_shown_by_its_squared_error() {
    let mut net = models::parse(CURVE, "curve", 7).unwrap();
    let history = fit(&mut net, &curve(), &FitOptions::default().epochs(1), &mut |_| {}).unwrap();
    let score = history.score().unwrap();
    assert_eq!((history.accuracy(), score.accuracy()), (None, None));
    let table = runs_table(&[TrainingRun { name: "O0", history: &history }]);
    assert!(table.contains("mean squared error") && table.contains(&score.to_string()), "{table}");
    assert!(!table.contains("accuracy"), "{table}");
    assert_eq!(Score::of_squared_error(0.0012341).to_string(), "1.234e-3");
    let epoch = serde_json::to_value(&history.epochs[0]).unwrap();
    assert_eq!(epoch["mean_squared_error"], score.mean_squared_error().unwrap());
    assert!(epoch.get("accuracy").is_none(), "{epoch}");
    // One run of each kind in a table: a column that fits both.
    let mut classes = history.clone();
    classes.epochs[0].score = Score::of_accuracy(0.5);
    let table = runs_table(&[("a", &history), ("b", &classes)].map(|(name, history)| TrainingRun { name, history }));
    assert!(table.contains(" score ") && table.contains("50.00 %"), "{table}");
}
