//! Sources as files say them.

use std::path::Path;

use precast::data::{Addition, Csv, Images, Npy, Source, Text, digits};

use crate::{Folder, inputs};

fn source(text: &str) -> Source {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{text}: {error}"))
}

#[test]
fn every_source_is_written_and_read() {
    let options = [
        (r#""digits""#, Source::Digits),
        (r#"{"csv": {"file": "a.csv", "target": "y"}}"#, Source::Csv(Csv::new("a.csv").target("y"))),
        (
            r#"{"csv": {"file": "a.csv", "target": [3, "b"], "as": "numbers", "header": false, "ignore": 1}}"#,
            Source::Csv(Csv::new("a.csv").target(vec![3.into(), "b".into()]).numbers().header(false).ignore(1)),
        ),
        (
            r#"{"csv": {"file": "a.csv", "columns": ["b", "a"], "class_names": ["x"], "as": "classes", "delimiter": ";"}}"#,
            Source::Csv(Csv::new("a.csv").columns(["b", "a"]).class_names(["x"]).classes().delimiter(';')),
        ),
        (
            r#"{"images": {"folder": "a", "pixels": "grey", "resize": [3, 4]}}"#,
            Source::Images(Images::new("a").grey().resize(3, 4)),
        ),
        (r#"{"npy": {"inputs": "x.npy", "targets": "y.npy"}}"#, Source::Npy(Npy::new("x.npy", "y.npy"))),
        (r#"{"npy": {"file": "a.npz", "inputs": "x", "targets": "y"}}"#, Source::Npy(Npy::npz("a.npz"))),
        (
            r#"{"text": {"file": "a.txt", "tokens": "chars", "length": 8, "stride": 2}}"#,
            Source::Text(Text::new("a.txt").chars().length(8).stride(2)),
        ),
        (r#"{"addition": {"digits": 3, "examples": 50}}"#, Source::Addition(Addition::new(3).examples(50))),
    ];
    for (text, meant) in options {
        assert_eq!(source(text), meant);
        assert_eq!(source(&serde_json::to_string(&meant).unwrap()), meant);
    }
    for text in
        [r#"{"csv": {"file": "a.csv", "targets": "y"}}"#, r#""mnist""#, r#"{"csv": {"file": "a", "target": 1.5}}"#]
    {
        assert!(serde_json::from_str::<Source>(text).is_err(), "{text}");
    }
}

#[test]
fn paths_start_from_the_folder() {
    let folder = Folder::new("source");
    folder.file("in/a.csv", "x,y\n1,no\n2,yes\n");
    let csv = source(r#"{"csv": {"file": "in/a.csv", "target": "y"}}"#);
    let data = csv.read(&folder.0).unwrap();
    assert_eq!((inputs(&data), data.labels()), (vec![1.0, 2.0], &[0, 1][..]));
    let new = folder.file("new.csv", "x\n5\n");
    assert_eq!(inputs(&csv.found(&data).read_inputs(&new).unwrap()), [5.0]);

    folder.file("a.txt", "abab");
    let text = source(r#"{"text": {"file": "a.txt", "tokens": "chars", "length": 2}}"#);
    let data = text.read(&folder.0).unwrap();
    assert_eq!((text.vocabulary(), text.found(&data).vocabulary().unwrap().size()), (None, 2));
    assert_eq!(source(r#"{"addition": {"digits": 1}}"#).vocabulary().unwrap().size(), 12);
    assert_eq!(Source::Digits.read(Path::new("nowhere")).unwrap(), digits().unwrap());
    assert!(Source::Addition(Addition::new(1)).read_inputs(&new).is_err());
}
