//! Windows of the rows of a table.

use std::fs;

use precast_train::data::{Columns, Csv, Dataset, Series, Standardization, Targets};

use crate::readers::{Folder, inputs, targets};

fn table(rows: usize) -> String {
    (0..rows).fold("day,load,heat\n".into(), |all, i| all + &format!("d{i},{i}.5,{}\n", 10 * i))
}

fn csv(series: Series) -> Csv {
    Csv::new("series.csv").target("load").ignore("day").series(series)
}

/// Each window has the columns, then the past of the target; its target is that of a later row.
#[test]
fn windows_have_the_past_and_a_later_target() {
    let data = csv(Series::new(3).ahead(2)).parse(table(7).as_bytes()).unwrap();
    assert_eq!((data.len(), data.shape()), (3, &[3, 2][..]));
    assert_eq!(inputs(&data)[..6], [0.0, 0.5, 10.0, 1.5, 20.0, 2.5]);
    assert_eq!(targets(&data), [4.5, 5.5, 6.5]);
    assert_eq!(data.input_names()[3..], ["load, 1 before", "heat", "load"]);
    let apart = csv(Series::new(2).stride(3)).parse(table(9).as_bytes()).unwrap();
    assert_eq!(targets(&apart), [2.5, 5.5, 8.5]);
    assert_eq!(inputs(&apart)[..4], [0.0, 0.5, 10.0, 1.5]);
    // Integers of a series are numbers. Classes have no past among the inputs.
    let of = |csv: Csv| csv.target("heat").columns("load").series(Series::new(2)).parse(table(4).as_bytes()).unwrap();
    assert_eq!(of(Csv::new("a.csv")).shape(), [2, 2]);
    let classes = of(Csv::new("a.csv").classes());
    assert!(classes.shape() == [2, 1] && matches!(classes.targets(), Targets::Classes { .. }));
    // The digits beyond f32 are those of their row.
    let large = (0..5).fold("y\n".to_string(), |all, i| all + &format!("{}\n", 16_777_217 + 2 * i));
    let large = Csv::new("l.csv").target("y").series(Series::new(2)).parse(large.as_bytes()).unwrap();
    let standard = Standardization::of(&large).unwrap();
    // Deviations of 3, 1, 1, 1, 1 and 3 from the mean.
    assert_eq!((large.shape(), &standard.mean[..]), (&[2, 1][..], &[16_777_220.0][..]));
    assert!((standard.deviation[0] - (22.0f64 / 6.0).sqrt()).abs() < 1e-9, "{:?}", standard.deviation);
}

/// Predictions are for the rows after each window, the last of which ends with the file.
#[test]
fn windows_for_predictions_end_with_the_last_row() {
    let folder = Folder::new("series");
    fs::write(folder.at("new.csv"), table(8)).unwrap();
    let series = Series::new(3).ahead(2).stride(2);
    let known = csv(series.clone()).parse(table(9).as_bytes()).unwrap();
    let reader = Csv { file: folder.at("new.csv"), ..csv(series).found(&known) };
    assert_eq!((reader.columns.clone(), reader.target.clone()), (Columns::from("heat"), Columns::from("load")));
    let read = |csv: &Csv| -> Dataset { csv.read_inputs().unwrap() };
    let new = read(&reader);
    assert_eq!((new.len(), &inputs(&new)[12..]), (3, &[50.0, 5.5, 60.0, 6.5, 70.0, 7.5][..]));
    assert_eq!(reader.texts(&"day".into()).unwrap(), [["d3"], ["d5"], ["d7"]]);
}

#[test]
fn mistakes_in_a_series_are_told() {
    let met = |csv: Csv, rows: usize| csv.parse(table(rows).as_bytes()).unwrap_err().to_string();
    assert_eq!(met(csv(Series::new(5).ahead(2)), 6), "series.csv: 6 rows; a window needs 7, by `series`");
    let words = met(Csv::new("a.csv").target("load").one_hot("day").series(Series::new(2)), 6);
    assert_eq!(
        words,
        "a.csv: `series` is of columns of numbers without empty cells, which `empty` does not fill; `ignore` leaves others out"
    );
    let folder = Folder::new("long-series");
    fs::write(folder.at("series.csv"), table(99)).unwrap();
    let long = Csv { file: folder.at("series.csv"), ..csv(Series::new(5)) }.read_within(100).unwrap_err().to_string();
    assert!(long.ends_with("`series` is of a table in memory; a larger `memory` holds it"), "{long}");
}
