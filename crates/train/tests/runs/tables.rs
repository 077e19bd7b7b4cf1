//! Tables with words and empty cells: what is learnt of the training examples, and kept with the run.

use std::{fmt::Write as _, fs, ops::ControlFlow};

use precast::{ErrorKind, io::models::Model};
use precast_train::data::{Dataset, Empty, Encoding, Inputs, Series, Standardization};
use precast_train::{EndReason, Predictor, Run, RunFile, data::Csv};

use crate::common::{folder::Folder, metrics::metrics};

fn houses(text: &str) -> Dataset {
    let csv = Csv::new("houses.csv").target("price").numbers().one_hot("city").missing(["NA"]);
    csv.empty(Empty::Median).parse(text.as_bytes()).unwrap()
}

/// The rows of encoded inputs.
fn rows(data: &Dataset) -> Vec<Vec<f32>> {
    let Inputs::Numbers(values) = data.inputs() else { panic!("{:?}", data.inputs()) };
    values.chunks(data.shape()[0]).map(<[f32]>::to_vec).collect()
}

const HOUSES: &str =
    "price,area,year,city\n1,10,1990,Oslo\n2,,2000,Bergen\n3,30,2020,Oslo\n4,NA,1980,\n5,70,1970,Voss\n";

#[test]
fn cells_become_numbers_of_what_the_training_examples_have() {
    let all = houses(HOUSES);
    assert_eq!(all.shape(), [3]);
    let encoding = Encoding::of(&all).unwrap();
    let names = ["area", "area is empty", "year", "city is empty", "city=Bergen", "city=Oslo", "city=Voss"];
    assert_eq!(encoding.names(), names);
    // The median of 10, 30 and 70.
    let right = [
        [10.0, 0.0, 1990.0, 0.0, 0.0, 1.0, 0.0],
        [30.0, 1.0, 2000.0, 0.0, 1.0, 0.0, 0.0],
        [30.0, 0.0, 2020.0, 0.0, 0.0, 1.0, 0.0],
        [30.0, 1.0, 1980.0, 1.0, 0.0, 0.0, 0.0],
        [70.0, 0.0, 1970.0, 0.0, 0.0, 0.0, 1.0],
    ];
    assert_eq!(rows(&all.encoded(&encoding).unwrap()), right);
    assert_eq!(encoding.notes_on(&all), [""; 0]);

    // Of the first three rows, as many columns; the medians are others, and what was not met is 0.
    let split = all.split_in_order(3).unwrap();
    let encoding = Encoding::of(&split.train).unwrap();
    assert_eq!(encoding.names(), names);
    let right = [[20.0, 1.0, 1980.0, 0.0, 0.0, 0.0, 0.0], [70.0, 0.0, 1970.0, 0.0, 0.0, 0.0, 0.0]];
    assert_eq!(rows(&split.test.encoded(&encoding).unwrap()), right);
    let note = "column `city`: 2 examples have a word that no training example has, such as an empty cell, which \
                becomes 0 in all its columns";
    assert_eq!(encoding.notes_on(&split.test), [note]);
    // A flag that no training example has.
    let split = houses("price,area,city\n1,10,Oslo\n2,20,Oslo\n3,,Oslo\n").split_in_order(2).unwrap();
    let encoding = Encoding::of(&split.train).unwrap();
    assert_eq!(rows(&split.test.encoded(&encoding).unwrap()), [[15.0, 0.0, 1.0]]);
}

#[test]
fn words_become_indices_from_1() {
    let csv = Csv::new("words.csv").target("y").indices(["a", "b"]);
    let all = csv.parse(b"a,b,y\nx,p,0\ny,q,1\nx,r,1\nz,p,0\n").unwrap();
    let split = all.split_in_order(2).unwrap();
    let encoded = |data: &Dataset| data.encoded(&Encoding::of(&split.train).unwrap()).unwrap();
    assert_eq!(*encoded(&split.train).inputs(), Inputs::Indices(vec![1, 1, 2, 2]));
    assert_eq!(*encoded(&split.test).inputs(), Inputs::Indices(vec![1, 0, 0, 1]));
}

#[test]
fn indices_are_an_input_of_their_own_beside_numbers() {
    let csv = Csv::new("words.csv").target("y").indices(["a", "c"]).one_hot("d").empty(Empty::Median);
    let all = csv.parse(b"a,b,c,d,y\nx,10,p,u,0\ny,,q,v,1\nx,30,r,u,1\nz,7,p,v,0\n").unwrap();
    let split = all.split_in_order(3).unwrap();
    let encoding = Encoding::of(&split.train).unwrap();
    assert_eq!(encoding.names(), ["b", "b is empty", "d=u", "d=v"]);
    assert_eq!(encoding.indices(), [("a".to_string(), 4), ("c".to_string(), 4)]);
    let train = split.train.encoded(&encoding).unwrap();
    assert_eq!(rows(&train), [[10.0, 0.0, 1.0, 0.0], [20.0, 1.0, 0.0, 1.0], [30.0, 0.0, 1.0, 0.0]]);
    let [further] = train.further() else { panic!("{train:?}") };
    assert_eq!((&further.shape[..], &further.inputs), (&[2][..], &Inputs::Indices(vec![1, 1, 2, 2, 1, 3])));
    let batch = split.test.encoded(&encoding).unwrap().batches(1).unwrap().next().unwrap();
    assert_eq!((batch.x.to_f64(), batch.further[0].to_f64()), (vec![7.0, 0.0, 0.0, 1.0], vec![0.0, 1.0]));

    let words = "the examples have 2 inputs; `batches_of_inputs` returns all of them";
    assert_eq!(train.input_batches(1).err().map(|error| error.to_string()).as_deref(), Some(words));
    // A subset, other targets and standardized inputs keep them.
    let by = Standardization::of(&train).unwrap();
    for data in [train.standardized(&by).unwrap(), train.clone().without_targets(), train.split(2, 0).unwrap().train] {
        assert_eq!(data.further()[0].shape, [2]);
    }
}

#[test]
fn what_an_encoding_cannot_read_is_told() {
    let told = |csv: Csv, text: &str, words: &str| {
        let met = csv.parse(text.as_bytes()).and_then(|data| Encoding::of(&data)).unwrap_err();
        assert_eq!((met.kind(), met.to_string().as_str()), (ErrorKind::Data, words));
    };
    let csv = || Csv::new("h.csv").target("y");
    let cure = "`empty: median` or `empty: mean` replaces the empty cells of the inputs";
    told(csv(), "a,y\n1,0\n,1\n", &format!("h.csv:3: column 1 (`a`): the cell is empty; {cure}"));
    told(
        csv().one_hot("a").missing(["-"]),
        "a,y\nx,0\n-,1\n",
        &format!("h.csv:3: column 1 (`a`): the cell is empty, as `missing` marks `-`; {cure}"),
    );
    told(
        csv(),
        "a,y\n1,0\nOslo,1\n",
        "h.csv:3: column 1 (`a`): `Oslo` is not a number; a column of words belongs under `one_hot`, `indices` or `ignore`, \
         or is a `target`",
    );
    told(
        csv(),
        "a,y\n1,0\nNA,1\n",
        "h.csv:3: column 1 (`a`): `NA` is not a number; if it marks an empty cell: `missing: [\"NA\"]` with `empty: median`",
    );
    told(csv().one_hot("b"), "a,y\n1,0\n", "h.csv: there is no column `b` (there are `a`, `y`)");
    told(csv().one_hot("y"), "a,y\n1,0\n", "h.csv: column 2 (`y`) is in `one_hot` and is not an input");
    told(
        csv().one_hot("a").indices("a"),
        "a,y\n1,0\n",
        "h.csv: column 1 (`a`) is named twice, in `one_hot` and in `indices`",
    );
    told(
        csv().empty(Empty::Mean),
        "a,b,y\n1,,0\n",
        "column `b` is empty in all training examples; `ignore` leaves it out",
    );
    let raw = csv().one_hot("a").parse(b"a,y\nx,0\n").unwrap();
    let words = "the inputs are a table, whose cells may be words or empty; `encoded` makes numbers of it by an `Encoding` \
                 of the training examples";
    assert_eq!(raw.batches(1).err().map(|error| error.to_string()).as_deref(), Some(words));
    assert_eq!(raw.input_batches(1).err().map(|error| error.to_string()).as_deref(), Some(words));
}

const MODEL: &str = "{version: 1, name: m, input: [6], net: {kind: Sequential, cells: [{kind: Dense, in_features: 6, \
                     out_features: 1}]}}";

const ONE_HOT: &str = "one_hot: [city, garden]";

/// A model of the same table, with indices beside its numbers.
const OF_INDICES: &str = "{version: 1, name: m, input: [2], net: {kind: Sequential, cells: [{kind: ColumnEmbedding, \
                          vocab_sizes: [3, 3]}, {kind: Dense, in_features: 8, out_features: 1}]}}";
const INDICES: &str = "indices: [city, garden]";

/// Columns aligned by spaces; what a series and several targets cannot have, with a remedy that they take.
#[test]
fn tables_of_other_shapes_are_read_or_have_a_remedy() {
    let aligned =
        Csv::new("a.txt").target("y").delimiter(' ').parse(b"a      b    y\n1.5    2    0\n10  20    1\n").unwrap();
    assert_eq!((rows(&aligned), aligned.labels()), (vec![vec![1.5, 2.0], vec![10.0, 20.0]], &[0, 1][..]));
    let series = || Csv::new("s.csv").target("y").series(Series::new(1));
    let marked = b"| a | y |\n|---|---|\n| 1 | 0 |\n";
    let markdown =
        "m.md:1: the row of a Markdown table, whose cells are between `|`; expected a table such as CSV: `x,y,side`";
    let number = "`hi` is not a number; ";
    for (met, words) in [
        (Csv::new("m.md").target("y").parse(marked), markdown.to_string()),
        (Csv::new("m.md").target("y").delimiter('|').parse(marked), markdown.into()),
        (
            series().parse(b"a,y\n1,hi\n2,lo\n"),
            format!(
                "s.csv:2: column 2 (`y`): {number}the target of a series is a number, which is also an input: words are classes with \
                 `as: classes`"
            ),
        ),
        (
            series().parse(b"a,y\n1,2\n,3\n"),
            "s.csv:3: column 1 (`a`): the cell is empty; a series has none: write a number, such as that before, or `ignore` leaves the \
             column out"
                .into(),
        ),
        (
            Csv::new("t.csv").target(["y", "z"]).parse(b"a,y,z\n1,hi,2\n"),
            format!(
                "t.csv:2: column 2 (`y`): {number}several targets are numbers: for classes, name one target, and put the others under \
                 `ignore`"
            ),
        ),
    ] {
        assert_eq!(met.unwrap_err().to_string(), words);
    }
    // Words are classes, as the remedy says.
    let classes = series().classes().parse(b"a,y\n1,hi\n2,lo\n3,hi\n").unwrap();
    assert_eq!(classes.class_names(), ["hi", "lo"]);
}

fn model(text: &str) -> Model {
    Model::parse(text, "model.yaml", 0).unwrap()
}

/// Writes a table whose target is 2 for Oslo and 1 for Bergen, plus a tenth of the area, and returns its run file.
fn file(folder: &Folder, words: &str) -> RunFile {
    let mut text = "id,area,city,garden,price\n".to_string();
    for i in 0..60 {
        let (city, of_city) = if i % 3 == 0 { ("Bergen", 1.0) } else { ("Oslo", 2.0) };
        let garden = ["yes", "no"][i % 2];
        let area = if i % 10 == 9 { String::new() } else { (i % 7).to_string() };
        let price = of_city + 0.1 * (i % 7) as f64;
        writeln!(text, "h{i},{area},{city},{garden},{price}").unwrap();
    }
    fs::write(folder.join("houses.csv"), text).unwrap();
    let csv = format!("{{csv: {{file: houses.csv, target: price, {words}, empty: mean, ignore: id}}}}");
    let text = format!(
        "{{version: 1, model: m, policy: o2-bf16, data: {csv}, standardize: true, standardize_targets: true, \
         optimizer: adam, lr: 0.03, epochs: 40, batch: 8, validation: 0.2}}"
    );
    let file = folder.join("run.yaml");
    fs::write(&file, text).unwrap();
    RunFile::load(file).unwrap()
}

#[test]
fn a_run_keeps_the_encoding_and_continues_with_the_same_bits() {
    continued("tables", ONE_HOT, MODEL, "0 in all its columns");
    continued("tables-indices", INDICES, OF_INDICES, "the index 0");
}

fn continued(folder: &str, words: &str, text: &str, becomes: &str) {
    let folder = Folder::new(folder);
    let file = file(&folder, words);
    let straight = folder.join("straight");
    let mut run = Run::begin(&file, model(text), &straight).unwrap();
    assert_eq!(run.train().unwrap(), EndReason::Done);
    drop(run);

    let cut = folder.join("cut");
    let mut steps = 0;
    let mut run = Run::begin(&file, model(text), &cut).unwrap();
    loop {
        let ended = run.train_with(&mut |_| {
            steps += 1;
            if steps % 37 == 0 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
        if ended.unwrap() == EndReason::Done {
            break;
        }
        drop(run);
        run = Run::resume(&cut, model(text)).unwrap();
    }
    drop(run);
    let last = |folder: &std::path::Path| fs::read(folder.join("last.safetensors")).unwrap();
    assert!(last(&straight) == last(&cut));
    assert_eq!(metrics(&straight), metrics(&cut));

    // Columns in another order, an unknown city, an empty area; the id is a column that the run does not know.
    let new = folder.join("new.csv");
    fs::write(&new, "nr,city,garden,area\n1,Oslo,no,3\n2,Bergen,no,3\n3,Voss,yes,\n").unwrap();
    let predictor = Predictor::of_folder(&straight, model(text)).unwrap();
    // A remedy that is a key of the run is none for a file of its predictions.
    fs::write(&new, "area;city;garden\n3;Oslo;no\n").unwrap();
    let said = predictor.read(&new).unwrap_err().to_string();
    assert!(
        said.ends_with(
            "; keys are those of the run, so this file is written as its data are, or another run is trained"
        ),
        "{said}"
    );
    fs::write(&new, "nr,city,garden,area\n1,Oslo,no,3\n2,Bergen,no,3\n3,Voss,yes,\n").unwrap();
    let examples = predictor.read(&new).unwrap();
    let note = format!(
        "column `city`: 1 example has a word that no training example has, such as `Voss`, which becomes {becomes}"
    );
    assert_eq!(predictor.notes_on(&examples), [note]);
    let numbers = predictor.predict_all(examples).unwrap().into_iter().map(|prediction| match prediction {
        precast_train::Prediction::Numbers(numbers) => numbers[0],
        other => panic!("{other:?}"),
    });
    let numbers: Vec<f32> = numbers.collect();
    assert!((numbers[0] - 2.3).abs() < 0.1 && (numbers[1] - 1.3).abs() < 0.1, "{numbers:?}");
}

#[test]
fn a_run_tells_the_columns_that_its_model_does_not_take() {
    let folder = Folder::new("tables-wrong");
    let told = |words: &str, text: &str| {
        Run::begin(&file(&folder, words), model(text), folder.join("run")).unwrap_err().to_string()
    };
    let of_indices = |from: &str, to: &str| told(INDICES, &OF_INDICES.replace(from, to));
    let cure = "`{kind: ColumnEmbedding, vocab_sizes: [3, 3]}`";
    let met = of_indices("[3, 3]", "[3, 2]");
    assert!(
        met.contains(&format!("cell `0`: a table of 2 rows, and column `garden` has 3 indices; expected {cure}")),
        "{met}"
    );
    let met = of_indices("[3, 3]", "[3]");
    assert!(
        met.contains(&format!(
            "cell `0` takes 1 column of indices, and the data has 2 (`city`, `garden`); expected {cure}"
        )),
        "{met}"
    );
    let met = told(INDICES, &MODEL.replace('6', "2"));
    let cure = format!("{cure} as the first cell joins them, or `one_hot` makes numbers of the words");
    assert!(
        met.contains(&format!(
            "the model takes numbers alone, and of the data `city`, `garden` become indices as well; {cure}"
        )),
        "{met}"
    );

    let file = file(&folder, ONE_HOT);
    let model = Model::parse(&MODEL.replace('6', "3"), "model.yaml", 0).unwrap();
    let error = Run::begin(&file, model, folder.join("run")).unwrap_err();
    let words = "the model takes examples of shape [3], and the data has [6]: `area`, `area is empty`, `city=Bergen`, \
                 `city=Oslo`, `garden=no`, `garden=yes`";
    assert_eq!(error.to_string(), words);

    let text = "{version: 1, model: m, policy: o0, data: {csv: {file: houses.csv, ignore: id, one_hot: [city, garden], \
                empty: mean}}}";
    fs::write(folder.join("none.yaml"), text).unwrap();
    let file = RunFile::load(folder.join("none.yaml")).unwrap();
    let error = Run::begin(&file, self::model(MODEL), folder.join("run")).unwrap_err();
    let words = "the data has no targets, so nothing can be learnt of it; `target` names the column that has them";
    assert!(error.to_string().contains(&format!("none.yaml:1:42: {words}")), "{error}");
}

/// A class of the test examples alone, and names that may be of one class.
#[test]
fn classes_that_are_not_learnt_have_a_note() {
    let folder = Folder::new("classes");
    let model =
        "{version: 1, input: [1], net: {kind: Sequential, cells: [{kind: Dense, in_features: 1, out_features: 5}]}}";
    let notes = |rows: &str, words: &str| {
        folder.write("d.csv", &format!("x,t\n{rows}"));
        let text = format!(
            "{{version: 1, model: m, policy: o0, data: {{csv: {{file: d.csv, target: t}}}}, epochs: 1, batch: 4, \
             optimizer: sgd{words}}}"
        );
        let mut file = RunFile::parse(&text, "run.yaml").unwrap();
        file.folder = folder.0.clone();
        let to = folder.at("run");
        let run = Run::begin(&file, Model::parse(model, "m.yaml", 0).unwrap(), &to).unwrap();
        let trained = run.data().train.labels().to_vec();
        let notes = run
            .notes()
            .iter()
            .filter(|note| note.contains(" the class ") || note.contains("different classes"))
            .cloned()
            .collect::<Vec<_>>();
        drop(run);
        fs::remove_dir_all(&to).unwrap();
        (trained, notes)
    };
    let rows: String = (0..40).map(|i| format!("{i},{}\n", ["a", "b"][i % 2])).chain(["7,rare\n".into()]).collect();
    let mut missing = 0;
    for seed in 0..12 {
        let (trained, notes) = notes(&rows, &format!(", test: 0.3, seed: {seed}, lint: false"));
        let note = "`test`: no training example has the class `rare` (1 of its examples), so it is not learnt";
        let expected: &[&str] = if trained.contains(&2) { &[] } else { &[note] };
        assert_eq!(notes, expected, "{seed}");
        missing += expected.len();
    }
    assert!((1..12).contains(&missing), "{missing}");
    let names = ["Yes", "yes", "no", "caf\u{e9}", "cafe\u{301}"];
    let rows: String = (0..50).map(|i| format!("{i},{}\n", names[i % 5])).collect();
    let (_, notes) = notes(&rows, ", test: 0.2, seed: 1, lint: false");
    let is_one = "are different classes; if they are one, write them in one way";
    assert_eq!(notes, [format!("`cafe\\u{{301}}`, `caf\u{e9}` {is_one}"), format!("`Yes`, `yes` {is_one}")]);
}
