//! Data sources in files.

use std::path::Path;

use precast_base::document::from_str as read;
use precast_train::data::{Addition, Csv, Images, Npy, Source, Text, digits};

use crate::readers::{Folder, inputs};

fn source(yaml: &str) -> Source {
    read(yaml).unwrap_or_else(|error| panic!("{yaml}: {error}"))
}

#[test]
fn every_source_is_written_and_read() {
    let options = [
        ("digits", Source::Digits),
        ("{csv: {file: a.csv, target: y}}", Source::Csv(Csv::new("a.csv").target("y"))),
        (
            "{csv: {file: a.csv, target: [3, b], as: numbers, header: false, ignore: 1}}",
            Source::Csv(Csv::new("a.csv").target(vec![3.into(), "b".into()]).numbers().header(false).ignore(1)),
        ),
        (
            "{csv: {file: a.csv, columns: [b, a], class_names: [x], as: classes, delimiter: ';'}}",
            Source::Csv(Csv::new("a.csv").columns(["b", "a"]).class_names(["x"]).classes().delimiter(';')),
        ),
        (
            "{csv: {file: a.csv, delimiter: ';', decimal: ',', thousands: '.'}}",
            Source::Csv(Csv::new("a.csv").delimiter(';').decimal(',').thousands('.')),
        ),
        (
            "{csv: {file: a.csv, thousands: ' ', ignore: ['']}}",
            Source::Csv(Csv::new("a.csv").thousands(' ').ignore("")),
        ),
        ("{images: {folder: a, pixels: grey, resize: [3, 4]}}", Source::Images(Images::new("a").grey().resize(3, 4))),
        ("{npy: {inputs: x.npy, targets: y.npy}}", Source::Npy(Npy::new("x.npy", "y.npy"))),
        ("{npy: {file: a.npz, inputs: x, targets: y}}", Source::Npy(Npy::npz("a.npz"))),
        (
            "{text: {file: a.txt, tokens: chars, length: 8, stride: 2}}",
            Source::Text(Text::new("a.txt").chars().length(8).stride(2)),
        ),
        ("{addition: {digits: 3, examples: 50}}", Source::Addition(Addition::new(3).examples(50))),
    ];
    for (text, meant) in options {
        assert_eq!(source(text), meant);
        assert_eq!(source(&serde_yaml::to_string(&meant).unwrap()), meant);
        assert_eq!(serde_json::from_str::<Source>(&serde_json::to_string(&meant).unwrap()).unwrap(), meant);
    }
    let written = serde_json::to_value(Source::Csv(Csv::new("a.csv").target("y"))).unwrap();
    let shortest = serde_json::json!({"csv": {"file": "a.csv", "target": "y", "header": true, "delimiter": ","}});
    assert_eq!(written, shortest, "empty lists are left out");
    let refused = |yaml: &str| read::<Source>(yaml).unwrap_err().to_string();
    let message = refused("csv: {file: a.csv, targets: y}");
    assert!(message.contains("UnknownKey(\"targets\", [\"file\", \"target\", \"as\""), "{message}");
    let message = refused("mnist");
    assert!(message.contains("mnist") && message.contains("digits"), "{message}");
    let message = refused("csv: {file: a.csv, target: 1.5}");
    assert!(message.contains("the name of a column, or its number, counted from 1"), "{message}");
}

#[test]
fn paths_start_from_the_folder() {
    let folder = Folder::new("source");
    folder.file("in/a.csv", "x,y\n1,no\n2,yes\n");
    let csv = source("{csv: {file: in/a.csv, target: y}}");
    let data = csv.read(&folder.0).unwrap();
    assert_eq!((inputs(&data), data.labels()), (vec![1.0, 2.0], &[0, 1][..]));
    let new = folder.file("new.csv", "x\n5\n");
    assert_eq!(inputs(&csv.found(&data).read_inputs(&new).unwrap()), [5.0]);

    folder.file("a.txt", "abab");
    let text = source("{text: {file: a.txt, tokens: chars, length: 2}}");
    let data = text.read(&folder.0).unwrap();
    assert_eq!((text.vocabulary(), text.found(&data).vocabulary().unwrap().size()), (None, 2));
    assert_eq!(source("{addition: {digits: 1}}").vocabulary().unwrap().size(), 12);
    assert_eq!(Source::Digits.read(Path::new("nowhere")).unwrap(), digits().unwrap());
    assert!(Source::Addition(Addition::new(1)).read_inputs(&new).is_err());
}
