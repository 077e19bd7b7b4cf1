//! Generated files of each kind, and what pandas, NumPy, Pillow and safetensors read from them. `tools/peers/readers.py`
//! writes both, and reads the tensors that are written here.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};

use precast::{
    Result, Tensor,
    storage::{stored::StoredModel, weights},
};
use precast_train::data::{Cells, Dataset, Empty, Inputs};
use precast_train::data::{Column, Csv, Images, Npy, PixelFormat, npz_arrays, write_npz};
use serde::Deserialize;
use serde_json::{Value, json};

#[derive(Deserialize)]
struct Case {
    reader: String,
    case: String,
    file: PathBuf,
    /// `None` if Python refuses the file.
    answer: Option<Vec<Array>>,
    #[serde(default)]
    options: Value,
}

#[derive(Debug, Deserialize, PartialEq)]
struct Array {
    name: String,
    shape: Vec<usize>,
    /// Little-endian, in hexadecimal digits.
    bytes: String,
}

const READ: &str = "read ";

/// Differences on purpose: beginnings of the reader and the case, words of the error, or [`READ`], and the reason.
const ON_PURPOSE: &[(&str, &str, &str, &str)] = &[
    ("csv numbers", "", "is not a finite number in f32", "numbers are finite in f32"),
    ("csv numbers", "", "and nothing between thousands", "thousands are groups of three digits, for pandas any"),
    ("csv numbers", "1 2", "is not a number", "the same"),
    ("csv numbers", "", "has no name; ", "an index is not an input"),
    ("csv numbers", "", "have the same name", "columns have names of their own"),
    ("csv numbers", "", "the header has numbers and no names", "a header has names"),
    ("csv numbers", "line of spaces", "", "a line of spaces is a row, as in Python's csv"),
    ("csv numbers", " ", READ, "spaces are an empty cell"),
    ("csv numbers", "\u{a0}1", READ, "spaces around a cell are those of Unicode"),
    ("csv numbers", "\u{2212}5", READ, "the minus of typesetters is one"),
    ("csv numbers", "11111", READ, "integers have any length, for pandas 64 bits"),
    ("csv numbers", "18446744073709551616", READ, "the same"),
    ("csv numbers", "", "1 field; the ", "rows have one length, also for Python's csv"),
    ("csv numbers", "", " fields; the ", "the same"),
    ("csv cells", "latin-1", READ, "a text that is not UTF-8 is read as Windows-1252, with a note"),
    ("csv numbers", "latin-1", READ, "the same"),
    ("npy", "()", "a single number", "the first axis counts the examples"),
    ("npy", "(0,)", "there are no examples", "the same"),
    ("npy", "(3, 0)", "0 values are not examples", "examples have values"),
    ("npy", "not finite", "allowed: finite numbers", "numbers are finite in f32"),
    ("npy", "beyond f32", "allowed: numbers of f32", "the same"),
    ("npy", "negative", "indices, which count from 0", "integers of 32 and 64 bits are indices"),
    ("npy", "bytes after", "follow the header", "a file of another length may be damaged"),
    ("npz", "long array", "follow the header", "the same"),
    ("npz", "bzip2", "compression method not supported", "NumPy does not write it"),
    ("npz", "bytes before", READ, "they do no harm"),
    ("png", "no end", "unexpected end of file", "a file of another length may be damaged"),
    ("png", "checksum of pixels", "CRC error", "pixels may be damaged; Pillow checks only headers"),
    ("png", "no palette", "Missing palette", "the standard asks for one"),
    ("safetensors", "same names", "two entries have the name", "only the last would be read"),
    ("safetensors", "header '{\"__metadata__\"", "two entries have the name", "the same"),
];

fn array(name: &str, shape: &[usize], bytes: impl AsRef<[u8]>) -> Array {
    let bytes = bytes.as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
    Array { name: name.into(), shape: shape.into(), bytes }
}

/// Reads a file in memory and example by example, which must agree.
fn of_data(whole: Result<Dataset>, stored: Result<Dataset>) -> Result<Vec<Array>> {
    let array = |data: Dataset| {
        let mut bytes = Vec::new();
        data.bytes(|part| bytes.extend_from_slice(part))?;
        Ok(vec![array("", &[&[data.len()], data.shape()].concat(), bytes)])
    };
    let (whole, stored) = (whole.and_then(array), stored.and_then(array));
    match (&whole, &stored) {
        (Ok(whole), Ok(stored)) => assert_eq!(whole, stored),
        _ => assert_eq!(whole.is_err(), stored.is_err(), "{whole:?}\n{stored:?}"),
    }
    whole
}

fn tensors(file: &Path, written: &Path, read: Vec<(String, Tensor)>) -> Result<Vec<Array>> {
    let stem = written.join(file.file_stem().unwrap());
    write_npz(stem.with_extension("npz"), read.iter().map(|(name, x)| (&name[..], x)))?;
    weights::write(stem.with_extension("safetensors"), read.iter().map(|(name, x)| (name.clone(), x)))?;
    Ok(read.iter().map(|(name, x)| array(name, x.shape(), weights::bytes_of(x))).collect())
}

fn read(case: &Case, file: &Path, written: &Path) -> Result<Vec<Array>> {
    let csv = |more: Value| -> Csv {
        let mut options = json!({"file": file, "delimiter": case.options["delimiter"]});
        options.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        serde_json::from_value(options).unwrap()
    };
    match &case.reader[..] {
        "csv cells" => {
            let width = case.answer.as_ref().map_or(1, |answer| answer[0].shape[1]);
            let rows =
                csv(json!({"header": false})).texts(&(1..=width).map(Column::from).collect::<Vec<_>>().into())?;
            Ok(vec![array("", &[rows.len(), width], rows.concat().join("\u{1f}"))])
        }
        "csv numbers" => {
            let plain = csv(case.options.clone());
            let with_empty = Csv { missing: ["NA", "nan"].map(Into::into).into(), ..plain.clone() }.empty(Empty::Mean);
            let data = with_empty.read()?;
            let Inputs::Table(table) = data.inputs() else { panic!("{data:?}") };
            let of_column = |cells: &Cells| match cells {
                Cells::Numbers { values, .. } => values.clone(),
                _ => panic!("{cells:?}"),
            };
            let columns: Vec<_> = table.columns().iter().map(|column| of_column(&column.cells)).collect();
            let all: Vec<Option<f64>> =
                (0..data.len()).flat_map(|row| columns.iter().map(move |column| column[row])).collect();
            match of_data(plain.read(), plain.read_within(0)) {
                Ok(read) => {
                    let rounded = all.iter().flat_map(|x| (x.unwrap() as f32).to_le_bytes()).collect::<Vec<_>>();
                    assert_eq!(read, [array("", &[data.len(), columns.len()], rounded)]);
                }
                Err(error) => assert!(all.contains(&None), "{}: {error}", file.display()),
            }
            let bytes: Vec<u8> = all.iter().flat_map(|x| x.unwrap_or(f64::NAN).to_le_bytes()).collect();
            Ok(vec![array("", &[data.len(), columns.len()], bytes)])
        }
        "npy" => {
            let npy = Npy { targets: None, ..Npy::new(file, "") };
            of_data(npy.read(), npy.read_within(0))
        }
        "npz" => tensors(file, written, npz_arrays(file)?),
        "safetensors" => tensors(file, written, weights::read(file)?.into_iter().collect()),
        "safetensors header" => {
            let stored = StoredModel::open(file)?;
            let mut all: Vec<_> = stored.tensors().map(|x| array(&x.name, &x.shape, x.bytes.to_le_bytes())).collect();
            all.sort_by(|a, b| a.name.cmp(&b.name));
            Ok(all)
        }
        reader => {
            let pixels = if reader.ends_with("grey") { PixelFormat::Grey } else { PixelFormat::Rgb };
            let images = Images { pixels, ..Images::new(file) };
            let mut read = of_data(images.read_inputs(), images.read_inputs_within(0))?;
            read[0].shape.remove(0);
            Ok(read)
        }
    }
}

/// Returns the largest difference of pixels from 0 to 1 and from 0 to 255, without the right and lower edge of JPEG
/// images with halved colours: there the decoder interpolates with the padding of the encoder, and libjpeg repeats the
/// last colour.
fn apart(case: &Case, met: &Array, right: &Array) -> f32 {
    let numbers = |array: &Array| -> Vec<f32> {
        let byte = |at: usize| u8::from_str_radix(&array.bytes[2 * at..2 * at + 2], 16).unwrap();
        (0..array.bytes.len() / 8).map(|i| f32::from_le_bytes([0, 1, 2, 3].map(|at| byte(4 * i + at)))).collect()
    };
    let [_, h, w] = right.shape[..] else { panic!("{:?}", right.shape) };
    let is_compared = |i: usize| !case.case.starts_with("4:2:") || (i % w + 1 < w && i / w % h + 1 < h);
    let both = numbers(met).into_iter().zip(numbers(right)).enumerate().filter(|(i, _)| is_compared(*i));
    both.map(|(_, (x, y))| (255.0 * x - y).abs()).fold(0.0, f32::max)
}

/// Returns whether two answers are equal. Pillow rounds grey. JPEG leaves the rounding of the inverse transform to the
/// decoder: 1 of 255, which the conversion of colours multiplies by at most 1.772 and rounds, as does the interpolation
/// of halved ones.
fn is_equal(case: &Case, met: &[Array], right: &[Array]) -> bool {
    let most = match (&case.reader[..], &case.case[..]) {
        ("png rgb", _) => 0.01,
        ("png grey", _) => 0.51,
        ("jpg rgb" | "jpg grey", "4:2:2" | "4:2:0") => 4.0,
        ("jpg rgb" | "jpg grey", "4:4:4" | "CMYK") => 3.0,
        ("jpg rgb" | "jpg grey", _) => 1.6,
        _ => return met == right,
    };
    met[0].shape == right[0].shape && apart(case, &met[0], &right[0]) <= most
}

#[test]
#[ignore = "reads the files of `tools/peers/readers.py`, with `cargo xtask nightly readers`"]
fn generated_files_are_read_as_python_reads_them() {
    let folder = PathBuf::from(std::env::var("PRECAST_READERS").expect("the folder of the files"));
    let written = folder.join("written");
    let _ = fs::remove_dir_all(&written);
    fs::create_dir_all(&written).unwrap();
    let cases: Vec<Case> = serde_json::from_slice(&fs::read(folder.join("answers.json")).unwrap()).unwrap();
    let mut counts = BTreeMap::<&str, [usize; 4]>::new();
    let mut met = vec![0; ON_PURPOSE.len()];
    for case in &cases {
        let (place, words) = match (read(case, &folder.join(&case.file), &written), &case.answer) {
            (Ok(read), Some(right)) if is_equal(case, &read, right) => (0, String::new()),
            (Err(_), None) => (1, String::new()),
            (Err(error), _) => (3, error.to_string()),
            (Ok(read), right) => (3, format!("{READ}{read:?}\nPython: {right:?}")),
        };
        let known = ON_PURPOSE.iter().position(|(reader, begin, part, _)| {
            place == 3 && case.reader.starts_with(reader) && case.case.starts_with(begin) && words.contains(part)
        });
        counts.entry(&case.reader).or_default()[if known.is_some() { 2 } else { place }] += 1;
        match known {
            Some(known) => met[known] += 1,
            None if place == 3 => eprintln!("{}, {} of {:?}: {words:.600}", case.reader, case.case, case.file),
            None => {}
        }
    }
    println!("| reader | equal | both refuse | on purpose | differ |\n| --- | --- | --- | --- | --- |");
    for (reader, [equal, refused, on_purpose, differ]) in &counts {
        println!("| {reader} | {equal} | {refused} | {on_purpose} | {differ} |");
    }
    for ((reader, case, words, why), met) in ON_PURPOSE.iter().zip(&met) {
        println!("{met} times on purpose: {reader}, {case} ({words}): {why}");
    }
    assert!(counts.values().all(|[.., differ]| *differ == 0) && !met.contains(&0));
}
