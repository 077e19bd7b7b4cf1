//! Tables.

use std::io::Write;

use precast::DType;
use precast_train::data::Csv;
use precast_train::data::{Dataset, Targets};

use crate::readers::{Folder, inputs, targets};

fn parse(csv: Csv, text: &str) -> Dataset {
    csv.parse(text.as_bytes()).unwrap()
}

fn file() -> Csv {
    Csv::new("table.csv")
}

const FLOWERS: &str = "petal,colour,species\n1.5,0,rose\n-2e-1,1,iris\n3,1,rose\n";

#[test]
fn text_in_the_target_column_is_classes_sorted_by_name() {
    let data = parse(file().target("species"), FLOWERS);
    assert_eq!((data.len(), data.shape(), data.labels()), (3, &[2][..], &[1, 0, 1][..]));
    assert_eq!(
        (data.class_names(), data.input_names()),
        (&["iris", "rose"].map(String::from)[..], &["petal", "colour"].map(String::from)[..])
    );
    let batch = data.batches(3).unwrap().next().unwrap();
    assert_eq!((batch.x.dtype(), batch.y.dtype(), batch.y.shape()), (DType::F32, DType::I64, &[3][..]));
    assert_eq!(batch.x.to_vec::<f32>().unwrap(), [1.5, 0.0, -0.2, 1.0, 3.0, 1.0]);
}

#[test]
fn integer_targets_are_classes_sorted_as_numbers() {
    let data = parse(file().header(false).target(1), "10,1\n9,2\n10,3\n");
    assert_eq!((data.labels(), data.class_names().concat()), (&[1, 0, 1][..], "910".to_string()));
    let data = parse(file().header(false).target(1), "10.0,1\n9,2\n");
    assert_eq!(data.targets(), &Targets::Numbers { shape: vec![1], values: vec![10.0, 9.0] });
    let data = parse(file().header(false).target(1).numbers(), "10,1\n9,2\n");
    assert_eq!(targets(&data), [10.0, 9.0]);
    let data = parse(file().header(false).target(1).classes(), "10.0,1\n9,2\n");
    assert_eq!((data.labels(), data.class_names()), (&[0, 1][..], &["10.0", "9"].map(String::from)[..]));
}

#[test]
fn several_targets_are_numbers_in_the_order_asked_for() {
    let data = parse(file().target(["c", "a"]), "a,b,c\n1,2,3\n4,5,6\n");
    assert_eq!((inputs(&data), targets(&data)), (vec![2.0, 5.0], vec![3.0, 1.0, 6.0, 4.0]));
    assert_eq!(data.batches(2).unwrap().next().unwrap().y.shape(), [2, 2]);
}

#[test]
fn columns_are_chosen_ordered_and_ignored() {
    let table = "id,a,b,y\n7,1,2,0\n8,3,4,1\n";
    assert_eq!(inputs(&parse(file().target("y").ignore("id"), table)), [1.0, 2.0, 3.0, 4.0]);
    assert_eq!(inputs(&parse(file().target("y").columns(["b", "a"]), table)), [2.0, 1.0, 4.0, 3.0]);
    assert_eq!(inputs(&parse(file().target(4).columns([3]), table)), [2.0, 4.0]);
    let all = parse(file(), table);
    assert_eq!((all.targets(), all.shape()), (&Targets::None, &[4][..]));
}

#[test]
fn quotes_spaces_marks_and_line_ends_are_those_of_spreadsheets() {
    let text = "\u{feff}\"a\" ; name\r\n 1.5 ;\"x; \"\"y\"\"\"\r\n\r\n2;z";
    let data = parse(file().target("name").delimiter(';'), text);
    assert_eq!((inputs(&data), data.labels()), (vec![1.5, 2.0], &[0, 1][..]));
    assert_eq!(data.class_names(), ["x; \"y\"", "z"]);
}

/// As in Python's `csv`, which also reads sizes in inches.
#[test]
fn quotes_open_at_the_beginning_of_a_cell() {
    let read = |text: &str| file().target("size").parse(text.as_bytes()).map(|data| data.class_names().to_vec());
    assert_eq!(read("x,size\n1,17\n2,15\"\n").unwrap(), ["15\"", "17"]);
    assert_eq!(read("x,size\n1,17\n2,\"1\"\"5\"\"\"").unwrap(), ["1\"5\"", "17"]);
    // The quote in line 2 closes none.
    let error = read("x,size\n1,15\"\n2,\"17\n3,19\n").unwrap_err().to_string();
    assert_eq!(error, "table.csv:3: a quote is not closed");
}

#[test]
fn a_packed_table_is_the_table() {
    let folder = Folder::new("packed");
    let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    packed.write_all(FLOWERS.as_bytes()).unwrap();
    let packed = folder.file("flowers.csv.gz", packed.finish().unwrap());
    let plain = folder.file("flowers.csv", FLOWERS);
    let read = |path| Csv::new(path).target("species").read().unwrap();
    assert_eq!(read(packed), read(plain));
}

#[test]
fn a_prediction_reads_other_files_as_the_training_file_was_read() {
    let folder = Folder::new("prediction");
    let csv = file().target("species").ignore("id");
    let data = parse(csv.clone(), "id,petal,colour,species\n1,1.5,0,rose\n2,2.5,1,iris\n");
    let found = csv.found(&data);
    assert_eq!(found.class_names, ["iris", "rose"]);
    let read = |text: &str| Csv { file: folder.file("new.csv", text), ..found.clone() };
    // Without the target and in another order; with the target; with only one class.
    let new = read("colour,petal\n5,6\n7,8\n").read_inputs().unwrap();
    assert_eq!((inputs(&new), new.targets()), (vec![6.0, 5.0, 8.0, 7.0], &Targets::None));
    assert_eq!(inputs(&read("id,species,petal,colour\n1,?,6,5\n").read_inputs().unwrap()), [6.0, 5.0]);
    let known = read("petal,colour,species,id\n1,1,rose,3\n").read().unwrap();
    assert_eq!((known.labels(), known.classes()), (&[1][..], 2));
    let error = read("petal,color\n1,1\n").read_inputs().unwrap_err().to_string();
    assert!(error.ends_with("new.csv: there is no column `colour` (did you mean `color`?)"), "{error}");
}

#[test]
fn predictions_without_a_header_may_have_targets() {
    let folder = Folder::new("no-header");
    let csv = file().header(false).target(3);
    let found = csv.found(&parse(csv.clone(), "1,2,no\n3,4,yes\n"));
    for text in ["5,6\n", "5,6,?\n"] {
        let new = Csv { file: folder.file("new.csv", text), ..found.clone() };
        assert_eq!(inputs(&new.read_inputs().unwrap()), [5.0, 6.0]);
    }
}
