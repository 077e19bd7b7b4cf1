//! Data that is read while a run trains: its results have the bits of those of data in memory.

use std::{fmt::Write as _, fs, io::Write as _, ops::ControlFlow, path::Path};

use precast::{ErrorKind, io::models::Model};
use precast_train::{
    EndReason, Memory, Predictor, Run, RunFile,
    data::{Csv, Images, Npy, write_npz},
};
use precast_train::{
    Event,
    data::{Dataset, Encoding, Inputs, Standardization},
};

use crate::{
    common::{folder::Folder, metrics::metrics},
    readers::{images::png, npy::npy},
};

/// A run: the data, further keys, and the model.
struct Case {
    name: &'static str,
    data: &'static str,
    keys: &'static str,
    model: &'static str,
}

const CASES: &[Case] = &[
    Case {
        name: "numbers with many digits",
        data: "{csv: {file: numbers.csv, target: [y, z]}}",
        keys: "standardize: true, standardize_targets: true, accumulate: 3, validation: 0.2",
        model: "input: [3], net: {kind: Sequential, cells: [{kind: Dense, in_features: 3, out_features: 2}]}",
    },
    Case {
        name: "words and empty cells",
        data: "{csv: {file: words.csv, target: y, one_hot: [city, garden], empty: median, missing: [NA]}}",
        keys: "standardize: true, validation: 0.2",
        model: "input: [8], net: {kind: Sequential, cells: [{kind: Dense, in_features: 8, out_features: 3}]}",
    },
    Case {
        name: "indices of words",
        data: "{csv: {file: words.csv, target: y, indices: [city, garden], empty: mean, ignore: area}}",
        keys: "accumulate: 2",
        model: "input: [2], net: {kind: Sequential, cells: [{kind: Embedding, vocab_size: 9, embedding_size: 4}, \
                {kind: Flatten}, {kind: Dense, in_features: 8, out_features: 3}]}",
    },
    Case {
        name: "indices beside numbers",
        data: "{csv: {file: words.csv, target: y, indices: [city, garden], empty: mean, missing: [NA]}}",
        keys: "standardize: true, validation: 0.2",
        model: "input: [2], net: {kind: Sequential, cells: [{kind: ColumnEmbedding, vocab_sizes: [4, 4], \
                embedding_sizes: [2, 1]}, {kind: Dense, in_features: 5, out_features: 3}]}",
    },
    Case {
        name: "a packed table",
        data: "{csv: {file: classes.csv.gz, target: y}}",
        keys: "test: classes.csv.gz2, augment: {mixup: 0.3}",
        model: "input: [3], net: {kind: Sequential, cells: [{kind: Dense, in_features: 3, out_features: 3}]}",
    },
    Case {
        name: "an array of f32",
        data: "{npy: {inputs: f32.npy, targets: classes.npy}}",
        keys: "validation: 0.2",
        model: "input: [3, 2], net: {kind: Sequential, cells: [{kind: Flatten}, {kind: Dense, in_features: 6, \
                out_features: 3}]}",
    },
    Case {
        name: "an array of f64 in the other order",
        data: "{npy: {inputs: f64.npy, targets: numbers.npy}}",
        keys: "standardize: true",
        model: "input: [6], net: {kind: Sequential, cells: [{kind: Dense, in_features: 6, out_features: 1}]}",
    },
    Case {
        name: "indices in an array",
        data: "{npy: {inputs: i64.npy, targets: classes.npy}}",
        keys: "accumulate: 2",
        model: "input: [6], net: {kind: Sequential, cells: [{kind: Embedding, vocab_size: 100, embedding_size: 4}, \
                {kind: Flatten}, {kind: Dense, in_features: 24, out_features: 3}]}",
    },
    Case {
        name: "an archive",
        data: "{npy: {file: data.npz, inputs: x, targets: y}}",
        keys: "standardize: true",
        model: "input: [2], net: {kind: Sequential, cells: [{kind: Dense, in_features: 2, out_features: 3}]}",
    },
    Case {
        name: "images",
        data: "{images: {folder: photos}}",
        keys: "standardize: true, augment: {flip: true, crop: 2, brightness: 0.1, mixup: 0.2}",
        model: "input: [3, 7, 5], net: {kind: Sequential, cells: [{kind: Flatten}, {kind: Dense, in_features: 105, \
                out_features: 2}]}",
    },
];

const ROWS: usize = 90;

/// A number that looks random, from 0 to 1.
fn noise(i: usize) -> f64 {
    ((i * 7919 + 17) % 1009) as f64 / 1009.0
}

/// Writes the data of all cases.
fn write_data(folder: &Folder) {
    let mut numbers = "a,b,c,y,z\n".to_string();
    let mut words = "area,city,garden,y\n".to_string();
    let mut classes = "a,b,c,y\n".to_string();
    for i in 0..ROWS {
        let (x, n) = (noise(i), i % 3);
        writeln!(numbers, "{},{x},{},{},{}", 1_700_000_000.5 + i as f64, i % 4, 3.0 * x, 2e9 + x).unwrap();
        let city = ["Oslo", "Bergen", "\"Voss, Bø\""][i * i % 7 % 3];
        let shown = x.to_string();
        let area = ["", "NA", &shown, "3", "70.25"][i % 5];
        writeln!(words, "{area},{city},{},{}", ["yes", "", "no"][i % 3], ["x", "y", "z"][n]).unwrap();
        writeln!(classes, "{x},{n},{},{}", noise(i + 5), ["x", "y", "z"][n]).unwrap();
    }
    folder.file("numbers.csv", numbers);
    folder.file("words.csv", words);
    for name in ["classes.csv.gz", "classes.csv.gz2"] {
        let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
        packed.write_all(classes.as_bytes()).unwrap();
        folder.file(name, packed.finish().unwrap());
    }
    let bytes = |each: &dyn Fn(usize) -> Vec<u8>, count: usize| (0..count).flat_map(each).collect::<Vec<u8>>();
    let array = |name: &str, dtype: &str, order: &str, shape: &str, data: Vec<u8>| {
        folder.file(name, npy(dtype, order, shape, &data));
    };
    let f32s = bytes(&|i| (noise(i) as f32).to_le_bytes().into(), ROWS * 6);
    array("f32.npy", "<f4", "False", "(90, 3, 2)", f32s);
    array("f64.npy", ">f8", "True", "(90, 2, 3)", bytes(&|i| (1e9 + noise(i)).to_be_bytes().into(), ROWS * 6));
    array("i64.npy", "<i8", "False", "(90, 6)", bytes(&|i| ((i * i % 100) as i64).to_le_bytes().into(), ROWS * 6));
    array("classes.npy", "<i8", "False", "(90,)", bytes(&|i| ((i % 3) as i64).to_le_bytes().into(), ROWS));
    array("numbers.npy", "<f4", "False", "(90,)", bytes(&|i| (noise(i) as f32).to_le_bytes().into(), ROWS));
    let x = precast::Tensor::from_vec((0..ROWS * 2).map(|i| noise(i) as f32).collect(), &[ROWS, 2]).unwrap();
    let y = precast::Tensor::from_vec((0..ROWS).map(|i| (i % 3) as i64).collect(), &[ROWS]).unwrap();
    write_npz(folder.join("data.npz"), [("x", &x), ("y", &y)]).unwrap();
    let jpeg = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/runs/readers/files/jpeg/colours.jpg");
    for i in 0..24 {
        let samples: Vec<u8> = (0..19 * 27 * 3).map(|at| (noise(at + 31 * i) * 255.0) as u8).collect();
        folder.file(&format!("photos/{}/{i}.png", ["cat", "dog"][i % 2]), png(27, 19, 2, &samples));
    }
    fs::copy(jpeg, folder.join("photos/cat/camera.jpg")).unwrap();
}

fn model_of(case: &Case) -> Model {
    Model::parse(&format!("{{version: 1, name: m, {}}}", case.model), "model.yaml", 0).unwrap()
}

fn file_of(case: &Case, folder: &Folder, memory: &str) -> RunFile {
    let Case { data, keys, .. } = case;
    let text = format!(
        "{{version: 1, model: m, policy: o2-bf16, data: {data}, {keys}, memory: {memory}, optimizer: adam, lr: 0.01, epochs: 3, \
         batch: 7, lint: false}}"
    );
    let file = folder.file("run.yaml", text);
    RunFile::load(file).unwrap()
}

/// Checks that two runs have the same weights, metrics, scores and standardization.
fn assert_same(name: &str, one: &Path, other: &Path) {
    for file in ["last.safetensors", "best.safetensors", "scores.json", "standardization.json"] {
        let [these, others] = [one, other].map(|folder| fs::read(folder.join(file)).ok());
        assert!(these == others, "{name}: {file}");
    }
    assert_eq!(metrics(one), metrics(other), "{name}");
}

#[test]
fn runs_on_data_in_memory_and_on_stored_data_have_the_same_bits() {
    let folder = Folder::new("stored");
    write_data(&folder);
    for (i, case) in CASES.iter().enumerate() {
        let [memory, stored] = ["memory", "stored"].map(|name| folder.join(format!("{name}-{i}")));
        let mut run = Run::begin(&file_of(case, &folder, "1 GiB"), model_of(case), &memory)
            .unwrap_or_else(|error| panic!("{}: {error}", case.name));
        assert!(!matches!(run.data().train.inputs(), Inputs::Stored(_)), "{}", case.name);
        assert_eq!(run.train().unwrap(), EndReason::Done);
        drop(run);
        let mut run = Run::begin(&file_of(case, &folder, "0"), model_of(case), &stored).unwrap();
        assert!(matches!(run.data().train.inputs(), Inputs::Stored(_)), "{}", case.name);
        assert_eq!(run.train().unwrap(), EndReason::Done);
        drop(run);
        assert_same(case.name, &memory, &stored);

        // Interrupted often, and continued with the other memory each time.
        let cut = folder.join(format!("cut-{i}"));
        let (mut steps, mut is_stored) = (0, true);
        let mut run = Run::begin(&file_of(case, &folder, "0"), model_of(case), &cut).unwrap();
        loop {
            let ended = run.train_with(&mut |event| {
                steps += usize::from(matches!(event, Event::Step(_)));
                if steps % 5 == 4 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
            });
            if ended.unwrap() == EndReason::Done {
                break;
            }
            drop(run);
            is_stored = !is_stored;
            let mut file = RunFile::of_folder(&cut).unwrap();
            file.memory = if is_stored { Memory(0) } else { Memory::default() };
            file.save(cut.join("run.yaml")).unwrap();
            run = Run::resume(&cut, model_of(case)).unwrap();
            assert_eq!(matches!(run.data().train.inputs(), Inputs::Stored(_)), is_stored);
        }
        drop(run);
        assert_same(case.name, &memory, &cut);
    }
}

#[test]
fn an_error_of_reading_names_the_example_and_loses_no_step() {
    let folder = Folder::new("stored-cut");
    write_data(&folder);
    let case = CASES.iter().find(|case| case.name == "an array of f32").unwrap();
    let straight = folder.join("straight");
    let mut run = Run::begin(&file_of(case, &folder, "0"), model_of(case), &straight).unwrap();
    assert_eq!(run.train().unwrap(), EndReason::Done);
    drop(run);

    let (array, cut) = (folder.join("f32.npy"), folder.join("cut"));
    let bytes = fs::read(&array).unwrap();
    let mut run = Run::begin(&file_of(case, &folder, "0"), model_of(case), &cut).unwrap();
    let mut steps = 0;
    let error = run
        .train_with(&mut |event| {
            steps += usize::from(matches!(event, Event::Step(_)));
            if steps == 4 {
                let file = fs::File::options().write(true).open(&array).unwrap();
                file.set_len(bytes.len() as u64 / 2).unwrap();
            }
            ControlFlow::Continue(())
        })
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Data);
    let told = error.to_string();
    assert!(told.contains("f32.npy: example ") && told.ends_with("was changed or cut while it was in use"), "{told}");
    let done = run.history().steps.len();
    assert!((4..24).contains(&done), "{done} steps");
    drop(run);

    fs::write(&array, bytes).unwrap();
    let mut run = Run::resume(&cut, model_of(case)).unwrap();
    assert_eq!(run.train().unwrap(), EndReason::Done);
    drop(run);
    assert_same(case.name, &straight, &cut);
}

#[test]
fn an_image_that_breaks_is_named() {
    let folder = Folder::new("stored-image");
    write_data(&folder);
    let stored = || Images::new(folder.join("photos")).resize(8, 8).read_within(0).unwrap();
    let data = stored();
    assert_eq!((data.len(), data.shape(), data.class_names().len()), (25, &[3, 8, 8][..], 2));
    folder.file("photos/dog/3.png", b"no image");
    let told = |data: Dataset| data.try_batches(4).unwrap().find_map(Result::err).unwrap().to_string();
    let met = told(data);
    assert!(met.ends_with("3.png: the file was changed or cut while it was in use"), "{met}");
    let met = told(stored());
    assert!(met.ends_with("3.png: not a PNG or JPEG image: it is a text"), "{met}");
    // One of another size.
    folder.file("photos/dog/3.png", png(1, 1, 0, &[0]));
    let data = Images::new(folder.join("photos")).read_within(0).unwrap();
    let told = data.try_batches(4).unwrap().find_map(Result::err).unwrap().to_string();
    assert!(told.contains("3.png: 1 x 1 pixels; ") && told.contains("has 19 x 27"), "{told}");
}

/// Inputs, targets, and the names of classes and inputs.
type All = (Vec<f64>, String, Vec<String>, Vec<String>);

/// The inputs and the targets of all examples, or the error of their reader.
fn all(data: precast::Result<Dataset>) -> Result<All, String> {
    let data = data.map_err(|error| error.to_string())?;
    let names = (data.class_names().to_vec(), data.input_names().to_vec());
    let targets = format!("{:?}", data.targets());
    let data = match data.form() {
        Inputs::Table(_) => data.encoded(&Encoding::of(&data).map_err(|error| error.to_string())?).unwrap(),
        _ => data,
    };
    let mut numbers: Vec<f64> =
        data.try_batches_of_inputs(7).unwrap().flat_map(|x| x.map(|x| x[0].to_f64()).unwrap()).collect();
    // Of all digits.
    if let Ok(by) = Standardization::of(&data) {
        numbers.extend(by.mean.into_iter().chain(by.deviation));
    }
    Ok((numbers, targets, names.0, names.1))
}

#[test]
fn tables_are_read_and_refused_as_in_memory() {
    let folder = Folder::new("stored-tables");
    let long: String = (0..9000).map(|i| format!("{}.5,\"quoted,\n{i}\",{}\r\n", i, ["p", "q"][i % 2])).collect();
    let rows = |end: &str| (0..9000).fold("a,b,y\n".to_string(), |all, i| all + &format!("{i},{},p{end}", i % 9));
    let texts = [
        "a,b,y\n1,2,p\n3,4,q\n".to_string(),
        "\u{feff}a,b,y\n1,2,p\n3,4,q".to_string(),
        "a,b,y\r1,2,p\r\r\r3,x,q\r".to_string(),
        "a,b,y\r\n1,2,p\r\n\r\n3,,q\r\n".to_string(),
        "a,b,y\n".to_string(),
        String::new(),
        "a,b,y\n1,2,p\n3,4\n".to_string(),
        "a,b,y\n1,\"2,p\n3,4,q\n".to_string(),
        "a,a,y\n1,2,p\n".to_string(),
        "1,2,3\n4,5,6\n".to_string(),
        ",b,y\n0,2,p\n1,4,q\n".to_string(),
        "a,b,y\n1,\"1.234,5\",p\n".to_string(),
        "a,b,y\n9007199254740993,1e300,p\n".to_string(),
        "a,b,y\n9007199254740993,16777217,p\n0,1,p\n".to_string(),
        "a,b,y\n1,2,\n".to_string(),
        format!("a,b,y\n{long}"),
        format!("a,b,y\n{long}1,\"2,p\n"),
        rows("\r") + "x,1,p",
        rows("\r\n") + "1,1",
        rows("\n\n") + "1,1,\u{e9}\n1,,p",
    ];
    let csv = Csv::new(folder.join("a.csv"));
    let readers = [
        csv.clone().target("y"),
        csv.clone().target("y").one_hot("b"),
        csv.clone().target("y").empty(precast_train::data::Empty::Mean),
        csv.clone().ignore("y").columns(["b", "a"]),
        csv.clone().target(3).header(false).class_names(["p", "q"]),
    ];
    let mut refused = 0;
    for text in &texts {
        fs::write(folder.join("a.csv"), text).unwrap();
        for reader in &readers {
            let [memory, stored] = [u64::MAX, 0].map(|most| all(reader.read_within(most)));
            refused += usize::from(memory.is_err());
            assert!(memory == stored, "{:.60} {reader:?}: {:?} {:?}", text, memory.err(), stored.err());
        }
    }
    assert!(refused > 20, "{refused}");
    // Neither UTF-8 nor Windows-1252, also across the parts that are read together.
    for at in [0, 7, 65530, 65535, 65536, 65537, 79000] {
        let mut bytes = rows("\n").into_bytes();
        bytes[at] = 0x81;
        fs::write(folder.join("a.csv"), bytes).unwrap();
        let [memory, stored] = [u64::MAX, 0].map(|most| all(readers[0].read_within(most)));
        assert!(memory.is_err() && memory == stored, "{at}: {memory:?} {stored:?}");
    }
}

/// A row is held in memory, whatever the length of the file.
#[test]
fn a_row_without_an_end_is_refused() {
    let folder = Folder::new("stored-row");
    let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    packed.write_all(b"a,y\n1,p\r\n\n2,q\n\"").unwrap();
    (0..80).for_each(|_| packed.write_all(&vec![b'5'; 1 << 20]).unwrap());
    packed.write_all(b"\",p\n").unwrap();
    fs::write(folder.join("a.csv"), packed.finish().unwrap()).unwrap();
    let error = Csv::new(folder.join("a.csv")).target("y").read_within(100).unwrap_err().to_string();
    assert!(error.contains("a.csv:5: the row is longer than 64 MiB"), "{error}");
}

#[test]
fn arrays_are_read_and_refused_as_in_memory() {
    let folder = Folder::new("stored-arrays");
    let file = folder.join("a.npy");
    let refused = |dtype: &str, order: &str, shape: &str, data: &[u8]| {
        fs::write(&file, npy(dtype, order, shape, data)).unwrap();
        let npy = Npy { targets: None, ..Npy::new(&file, "") };
        let [memory, stored] = [u64::MAX, 0].map(|most| all(npy.read_within(most)));
        assert!(memory == stored, "{dtype} {order} {shape}: {memory:?} {stored:?}");
        memory.err()
    };
    for dtype in ["<f2", ">f4", "<f8", "|u1", "<i2", ">i4", "<i8", "<u8", "|b1"] {
        let size: usize = dtype[2..].parse().unwrap();
        let data: Vec<u8> = (0..24 * size).map(|i| if i % size == 0 { i as u8 % 100 } else { 0 }).collect();
        for (order, shape) in [("False", "(4, 3, 2)"), ("True", "(4, 3, 2)"), ("True", "(24,)"), ("False", "(2, 12)")] {
            assert_eq!(refused(dtype, order, shape, &data), None, "{dtype}");
        }
    }
    let f64s = |numbers: &[f64]| numbers.iter().flat_map(|x| x.to_le_bytes()).collect::<Vec<u8>>();
    for (dtype, shape, data) in [
        ("<f8", "(3, 1)", f64s(&[1.0, 1e300, 2.0])),
        ("<f8", "(3, 1)", f64s(&[1.0, 2.0, f64::NAN])),
        ("<i8", "(2,)", [1i64, -1].iter().flat_map(|x| x.to_le_bytes()).collect()),
        ("<f8", "(4, 1)", f64s(&[1.0, 2.0])),
        ("<f8", "()", f64s(&[1.0])),
        ("<c8", "(1,)", f64s(&[1.0])),
    ] {
        assert!(refused(dtype, "False", shape, &data).is_some(), "{dtype} {shape}");
    }
}

#[test]
fn predictions_for_stored_examples_are_those_in_memory() {
    let folder = Folder::new("stored-predictions");
    write_data(&folder);
    let case = CASES.iter().find(|case| case.name == "words and empty cells").unwrap();
    let at = folder.join("run");
    let mut run = Run::begin(&file_of(case, &folder, "1 GiB"), model_of(case), &at).unwrap();
    assert_eq!(run.train().unwrap(), EndReason::Done);
    drop(run);
    folder.file("new.csv", "garden,city,area\nno,Oslo,3\n,Kiruna,\nyes,Bergen,1e3\n");
    let predictions = [Memory::default(), Memory(0)].map(|memory| {
        let mut file = RunFile::of_folder(&at).unwrap();
        file.memory = memory;
        file.save(at.join("run.yaml")).unwrap();
        let predictor = Predictor::of_folder(&at, model_of(case)).unwrap();
        let examples = predictor.read(folder.join("new.csv")).unwrap();
        let score = predictor.evaluate(folder.join("words.csv")).unwrap();
        (predictor.notes_on(&examples), predictor.predict_all(examples).unwrap(), score)
    });
    assert_eq!(predictions[0], predictions[1]);
    assert_eq!(predictions[0].0.len(), 2, "{:?}", predictions[0].0);
}

#[test]
fn the_memory_is_a_number_of_bytes() {
    for (text, bytes) in [("0", 0), ("1024", 1024), ("256 MiB", 256 << 20), ("1.5GiB", 3 << 29), ("2 mb", 2_000_000)] {
        assert_eq!(text.parse(), Ok(Memory(bytes)), "{text}");
        assert_eq!(Memory(bytes).to_string().parse(), Ok(Memory(bytes)), "{text}");
    }
    let text = |memory: &str| format!("version: 1\nmodel: mlp\npolicy: o2\ndata: digits\nmemory: {memory}\n");
    let file = RunFile::parse(&text("300 MB"), "run.yaml").unwrap();
    assert_eq!(file.memory, Memory(300_000_000));
    assert_eq!(RunFile::parse(&file.to_yaml().unwrap(), "run.yaml").unwrap().memory, file.memory);
    for wrong in ["-1", "lots", "1 MB/s", "0.5.1 GiB", ". GiB", "99999999 TiB", "[1]"] {
        let error = RunFile::parse(&text(wrong), "run.yaml").unwrap_err().to_string();
        assert!(error.starts_with("run.yaml:5:") && error.contains("number of bytes"), "{wrong}: {error}");
    }
}
