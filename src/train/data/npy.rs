//! Arrays of NumPy.

use std::{
    borrow::Cow,
    io::{Cursor, Read},
    path::{Path, PathBuf},
};

use half::f16;
use ndarray::{Array, IxDyn, ShapeBuilder};
use serde::{Deserialize, Serialize};
use zip::ZipArchive;

use super::{Dataset, Inputs, MOST_BYTES, Targets};
use crate::{
    error::{Error, Result, did_you_mean_or_some},
    io::files,
    printable::printable,
};

/// Arrays of NumPy: two `.npy` files, or two entries of one `.npz` file. The first axis counts the examples.
///
/// | dtype | inputs | targets |
/// | --- | --- | --- |
/// | `float16`, `float32`, `float64` | numbers | numbers; those of shape `[n]` are read as `[n, 1]` |
/// | `int32`, `int64` | indices | classes |
/// | other integers, `bool` | numbers, as they are: `uint8` from 0 to 255 | classes |
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Npy {
    /// An `.npz` file. Without it, inputs and targets are files of their own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file: Option<PathBuf>,
    /// The inputs: a `.npy` file, or the name of an entry of the `.npz` file.
    pub inputs: PathBuf,
    /// The targets, in the same way. Without it, examples have no targets.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub targets: Option<PathBuf>,
}

impl Npy {
    /// Two `.npy` files.
    pub fn new(inputs: impl Into<PathBuf>, targets: impl Into<PathBuf>) -> Self {
        Npy { file: None, inputs: inputs.into(), targets: Some(targets.into()) }
    }

    /// An `.npz` file, with entries `x` and `y` unless others are said.
    pub fn npz(file: impl Into<PathBuf>) -> Self {
        Npy { file: Some(file.into()), ..Npy::new("x", "y") }
    }

    /// Sets [`inputs`](Npy::inputs).
    pub fn inputs(self, inputs: impl Into<PathBuf>) -> Self {
        Npy { inputs: inputs.into(), ..self }
    }

    /// Sets [`targets`](Npy::targets).
    pub fn targets(self, targets: impl Into<PathBuf>) -> Self {
        Npy { targets: Some(targets.into()), ..self }
    }

    /// The arrays as examples.
    ///
    /// # Errors
    /// [`ErrorKind::Io`](crate::ErrorKind::Io) when a file cannot be read or is longer than 1 GiB,
    /// [`ErrorKind::Data`](crate::ErrorKind::Data) with file or entry for what is no array of NumPy, is of another dtype, or has
    /// not as many bytes as its header says; for arrays of different lengths, numbers that are not finite, and negative indices
    /// or classes.
    pub fn read(&self) -> Result<Dataset> {
        let inputs = self.array(&self.inputs)?;
        let Some(name) = &self.targets else { return dataset(inputs, None) };
        let targets = self.array(name)?;
        dataset(inputs, Some(targets))
    }

    /// As [`read`](Npy::read), without targets, which may be missing.
    ///
    /// # Errors
    /// As [`read`](Npy::read).
    pub fn read_inputs(&self) -> Result<Dataset> {
        dataset(self.array(&self.inputs)?, None)
    }

    /// From the bytes of an `.npz` file, or of a `.npy` file of inputs; then there are no targets. The names of both files are
    /// used in errors alone.
    ///
    /// # Errors
    /// As [`read`](Npy::read).
    pub fn parse(&self, bytes: &[u8]) -> Result<Dataset> {
        let Some(file) = &self.file else { return dataset(parsed(bytes, shown(&self.inputs))?, None) };
        let inputs = entry(bytes, file, &self.inputs)?;
        let targets = self.targets.as_ref().map(|name| entry(bytes, file, name));
        dataset(inputs, targets.transpose()?)
    }

    /// An array by its file, or by its entry.
    fn array(&self, name: &Path) -> Result<NpyArray> {
        match &self.file {
            None => parsed(&files::read_within(name, MOST_BYTES)?, shown(name)),
            Some(file) => entry(&files::read_within(file, MOST_BYTES)?, file, name),
        }
    }

    /// The same with files that start from a folder.
    pub(in crate::train) fn starting_from(&self, folder: &Path) -> Npy {
        match &self.file {
            Some(file) => Npy { file: Some(folder.join(file)), ..self.clone() },
            None => {
                let targets = self.targets.as_ref().map(|targets| folder.join(targets));
                Npy { inputs: folder.join(&self.inputs), targets, file: None }
            }
        }
    }

    /// The same with another file of inputs.
    pub(super) fn of_inputs(&self, file: &Path) -> Npy {
        match self.file {
            Some(_) => Npy { file: Some(file.into()), ..self.clone() },
            None => Npy { inputs: file.into(), ..self.clone() },
        }
    }
}

/// A file or an entry, for people.
fn shown(name: &Path) -> String {
    printable(&name.display().to_string()).into_owned()
}

/// An array with the file or the entry from which it came.
struct NpyArray {
    origin: String,
    shape: Vec<usize>,
    dtype: Dtype,
    values: Values,
}

/// The elements of an array, the last axis running fastest.
enum Values {
    Floats(Vec<f32>),
    Integers(Vec<i64>),
}

fn dataset(inputs: NpyArray, targets: Option<NpyArray>) -> Result<Dataset> {
    let [n, shape @ ..] = &inputs.shape[..] else {
        return Err(Error::data(format!("{}: a single number; the first axis counts the examples", inputs.origin)));
    };
    let origin = inputs.origin.clone();
    let values = match (inputs.values, inputs.dtype.is_index()) {
        (Values::Floats(numbers), _) => Inputs::Numbers(numbers),
        (Values::Integers(numbers), false) => Inputs::Numbers(numbers.into_iter().map(|x| x as f32).collect()),
        (Values::Integers(indices), true) => Inputs::Indices(indices),
    };
    let targets = match targets {
        None => Targets::None,
        Some(targets) => {
            let [rows, shape @ ..] = &targets.shape[..] else {
                return Err(Error::data(format!("{}: a single number; the first axis counts", targets.origin)));
            };
            if rows != n {
                return Err(Error::data(format!("{origin} has {n} examples, and {} has {rows}", targets.origin)));
            }
            match targets.values {
                Values::Integers(values) => Targets::Classes { shape: shape.to_vec(), values },
                Values::Floats(values) if shape.is_empty() => Targets::Numbers { shape: vec![1], values },
                Values::Floats(values) => Targets::Numbers { shape: shape.to_vec(), values },
            }
        }
    };
    if *n == 0 {
        return Err(Error::data(format!("{origin}: there are no examples")));
    }
    Dataset::of(values, shape, targets).map_err(|error| error.context(origin))
}

/// An array in an `.npz` file, a zip archive of `.npy` files.
fn entry(bytes: &[u8], file: &Path, name: &Path) -> Result<NpyArray> {
    let file = shown(file);
    let failed = |error: String| Error::data(format!("{file}: {error}"));
    let mut archive = ZipArchive::new(Cursor::new(bytes)).map_err(|error| failed(error.to_string()))?;
    let name = name.to_string_lossy();
    let names: Vec<String> =
        archive.file_names().map(|name| name.map_or_else(|_| String::new(), Cow::into_owned)).collect();
    let arrays = || names.iter().map(|name| name.strip_suffix(".npy").unwrap_or(name));
    let Some(at) = arrays().position(|array| array == name) else {
        let near = did_you_mean_or_some(&name, arrays());
        return Err(failed(format!("there is no array `{}`{near}", printable(&name))));
    };
    let origin = format!("{file}: {}", printable(&name));
    let failed = |error: String| Error::data(format!("{origin}: {error}"));
    let unpacked = archive.by_index(at).map_err(|error| failed(error.to_string()))?;
    let mut array = Vec::new();
    unpacked.take(MOST_BYTES as u64 + 1).read_to_end(&mut array).map_err(|error| failed(error.to_string()))?;
    if array.len() > MOST_BYTES {
        return Err(failed(format!("longer than {} MiB", MOST_BYTES >> 20)));
    }
    parsed(&array, origin)
}

/// An array from the bytes of a `.npy` file.
fn parsed(bytes: &[u8], origin: String) -> Result<NpyArray> {
    let failed = |words: String| Error::data(format!("{origin}: {words}"));
    let (header, data) = split(bytes).map_err(failed)?;
    let Header { dtype, fortran_order, shape } = Header::of(header).map_err(failed)?;
    let wanted = shape.iter().try_fold(dtype.bytes, |all, &axis| all.checked_mul(axis));
    if wanted != Some(data.len()) {
        let wanted = wanted.map_or("more bytes than can be counted".into(), |wanted| format!("{wanted} bytes"));
        let words = format!("an array of shape {shape:?} takes {wanted}, but {} follow the header", data.len());
        return Err(failed(words));
    }
    let values = dtype.values(data).map_err(failed)?;
    let values = match (values, fortran_order) {
        (values, false) => values,
        (Values::Floats(values), true) => Values::Floats(last_axis_fastest(values, &shape).map_err(failed)?),
        (Values::Integers(values), true) => Values::Integers(last_axis_fastest(values, &shape).map_err(failed)?),
    };
    Ok(NpyArray { origin, shape, dtype, values })
}

/// Elements of which the first axis runs fastest, in the order in which the last one does.
fn last_axis_fastest<T: Copy>(values: Vec<T>, shape: &[usize]) -> Result<Vec<T>, String> {
    let array = Array::from_shape_vec(IxDyn(shape).f(), values).map_err(|error| error.to_string())?;
    Ok(array.iter().copied().collect())
}

/// The longest header, as NumPy has it.
const MOST_HEADER_BYTES: usize = 10_000;

/// The header of a `.npy` file, and what follows.
fn split(bytes: &[u8]) -> Result<(&str, &[u8]), String> {
    let cut = || "the file ends within its header".to_string();
    let Some(rest) = bytes.strip_prefix(b"\x93NUMPY") else { return Err("not an array of NumPy".into()) };
    let (length, rest) = match rest {
        [1, _, a, b, rest @ ..] => (u16::from_le_bytes([*a, *b]) as usize, rest),
        [2 | 3, _, a, b, c, d, rest @ ..] => (u32::from_le_bytes([*a, *b, *c, *d]) as usize, rest),
        [1..=3, ..] | [] => return Err(cut()),
        [version, ..] => return Err(format!("version {version} of the format; allowed: 1 to 3")),
    };
    if length > MOST_HEADER_BYTES {
        return Err(format!("a header of {length} bytes; allowed: {MOST_HEADER_BYTES}"));
    }
    let (header, data) = rest.split_at_checked(length).ok_or_else(cut)?;
    Ok((std::str::from_utf8(header).map_err(|_| "the header is no text")?, data))
}

/// What a header says: a dictionary in Python with these three keys.
struct Header {
    dtype: Dtype,
    fortran_order: bool,
    shape: Vec<usize>,
}

impl Header {
    fn of(text: &str) -> Result<Header, String> {
        let wrong = || format!("the header `{}` is none of a plain array", printable(text.trim_end()));
        let (mut dtype, mut fortran_order, mut shape) = (None, None, None);
        let mut words = Words(text);
        let mut read = || -> Option<()> {
            words.mark('{')?;
            while words.mark('}').is_none() {
                let key = words.text()?;
                words.mark(':')?;
                match key {
                    "descr" => dtype = Some(words.text()?),
                    "fortran_order" => fortran_order = Some(words.name()? == "True"),
                    "shape" => shape = Some(words.numbers()?),
                    _ => return None,
                }
                if words.mark(',').is_none() {
                    words.mark('}')?;
                    break;
                }
            }
            words.0.trim().is_empty().then_some(())
        };
        read().ok_or_else(wrong)?;
        let (Some(dtype), Some(fortran_order), Some(shape)) = (dtype, fortran_order, shape) else {
            return Err(wrong());
        };
        Ok(Header { dtype: Dtype::of(dtype)?, fortran_order, shape })
    }
}

/// The rest of a header.
struct Words<'a>(&'a str);

impl<'a> Words<'a> {
    fn mark(&mut self, mark: char) -> Option<()> {
        self.0 = self.0.trim_start().strip_prefix(mark)?;
        Some(())
    }

    /// A text in quotes.
    fn text(&mut self) -> Option<&'a str> {
        let rest = self.0.trim_start();
        let quote = rest.chars().next().filter(|c| matches!(c, '\'' | '"'))?;
        let (text, rest) = rest[1..].split_once(quote)?;
        self.0 = rest;
        Some(text)
    }

    /// A word of letters and digits.
    fn name(&mut self) -> Option<&'a str> {
        let rest = self.0.trim_start();
        let (name, rest) = rest.split_at(rest.find(|c: char| !c.is_ascii_alphanumeric()).unwrap_or(rest.len()));
        self.0 = rest;
        (!name.is_empty()).then_some(name)
    }

    /// `(3, 4)`, `(3,)` or `()`.
    fn numbers(&mut self) -> Option<Vec<usize>> {
        let mut numbers = Vec::new();
        self.mark('(')?;
        while self.mark(')').is_none() {
            numbers.push(self.name()?.parse().ok()?);
            if self.mark(',').is_none() {
                self.mark(')')?;
                break;
            }
        }
        Some(numbers)
    }
}

/// The dtype of an array: its kind and its size, and which byte of an element comes first.
#[derive(Clone, Copy)]
struct Dtype {
    kind: char,
    bytes: usize,
    big_endian: bool,
}

impl Dtype {
    /// As NumPy writes it: `<f4`, `|u1`.
    fn of(text: &str) -> Result<Dtype, String> {
        let (big_endian, rest) = match text.strip_prefix('>') {
            Some(rest) => (true, rest),
            None => (false, text.trim_start_matches(['<', '|', '='])),
        };
        let kinds = [("f", [2, 4, 8, 8]), ("i", [1, 2, 4, 8]), ("u", [1, 2, 4, 8]), ("b", [1, 1, 1, 1])];
        let known = kinds.iter().find_map(|(kind, sizes)| {
            let bytes = rest.strip_prefix(kind)?.parse().ok().filter(|bytes| sizes.contains(bytes))?;
            Some(Dtype { kind: kind.chars().next()?, bytes, big_endian })
        });
        known.ok_or_else(|| {
            format!("dtype `{}`; allowed: float16 to float64, integers of 8 to 64 bits, bool", printable(text))
        })
    }

    /// Whether inputs of it are indices.
    fn is_index(self) -> bool {
        self.kind == 'i' && self.bytes >= 4
    }

    /// The elements of an array.
    fn values(self, data: &[u8]) -> Result<Values, String> {
        let elements = data.chunks_exact(self.bytes).map(|element| {
            // Little-endian, the upper bytes filled with the sign.
            let last = if self.big_endian { element[0] } else { element[self.bytes - 1] };
            let mut wide = [if self.kind == 'i' && last >= 0x80 { 0xff } else { 0 }; 8];
            wide[..self.bytes].copy_from_slice(element);
            if self.big_endian {
                wide[..self.bytes].reverse();
            }
            u64::from_le_bytes(wide)
        });
        if self.kind == 'f' {
            let float = |bits: u64| match self.bytes {
                2 => f16::from_bits(bits as u16).to_f32(),
                4 => f32::from_bits(bits as u32),
                _ => f64::from_bits(bits) as f32,
            };
            return Ok(Values::Floats(elements.map(float).collect()));
        }
        let integer = |bits: u64| match self.kind {
            'i' => Ok(bits as i64),
            _ => i64::try_from(bits).map_err(|_| format!("the number {bits}; allowed: at most {}", i64::MAX)),
        };
        Ok(Values::Integers(elements.map(integer).collect::<Result<_, String>>()?))
    }
}
