//! NumPy arrays.

mod stored;

use std::{
    io::{Cursor, Read, Seek},
    path::{Path, PathBuf},
};

use half::f16;
use ndarray::{Array, IxDyn, ShapeBuilder};
use precast::{
    Tensor,
    error::{Error, Result},
    options::options,
};
use precast_base::{files, names::did_you_mean_or_some, printable};
use zip::ZipArchive;

use super::{
    MOST_BYTES,
    npy_header::{Dtype, Header},
    numbers::Numbers,
};
use crate::data::{
    Dataset, Inputs, Targets,
    numbers::Wide,
    origin::{Parts, Read as HowRead},
};

/// NumPy arrays: two `.npy` files, or two entries of one `.npz` file. The first axis counts the examples.
///
/// | dtype | inputs | targets |
/// | --- | --- | --- |
/// | `float16`, `float32`, `float64` | numbers | numbers; those of shape `[n]` are read as `[n, 1]` |
/// | `int32`, `int64` | indices | classes |
/// | other integers, `bool` | numbers, as they are: `uint8` from 0 to 255 | classes |
///
/// Numbers that f32 cannot represent keep their digits until they are [standardized](Dataset::standardized); see
/// [`Dataset::notes`].
#[options(no_new)]
#[derive(Clone, Debug, PartialEq)]
pub struct Npy {
    /// An `.npz` file. Without it, inputs and targets are separate files.
    #[option(default = None, no_setter)]
    pub file: Option<PathBuf>,
    /// Inputs: a `.npy` file, or the name of an entry of the `.npz` file.
    pub inputs: PathBuf,
    /// Targets: a `.npy` file, or the name of an entry of the `.npz` file. Without them, examples have no targets.
    #[option(default = None)]
    pub targets: Option<PathBuf>,
}

impl Npy {
    /// Creates a reader for two `.npy` files.
    pub fn new(inputs: impl Into<PathBuf>, targets: impl Into<PathBuf>) -> Self {
        Npy { file: None, inputs: inputs.into(), targets: Some(targets.into()) }
    }

    /// Creates a reader for an `.npz` file, with the default entries `x` and `y`.
    pub fn npz(file: impl Into<PathBuf>) -> Self {
        Npy { file: Some(file.into()), ..Npy::new("x", "y") }
    }

    /// Sets the inputs.
    #[must_use]
    pub fn inputs(self, inputs: impl Into<PathBuf>) -> Self {
        Npy { inputs: inputs.into(), ..self }
    }

    /// Reads the arrays as examples.
    ///
    /// # Errors
    /// [`ErrorKind::Io`](precast::ErrorKind::Io) when a file cannot be read or is longer than 1 GiB,
    /// [`ErrorKind::Data`](precast::ErrorKind::Data) with file or entry for one that is not a NumPy array, has another
    /// dtype, or whose length differs from its header; for arrays of different lengths, numbers that are not finite or
    /// beyond the range of f32, and negative indices or classes.
    pub fn read(&self) -> Result<Dataset> {
        self.read_all(MOST_BYTES, true)
    }

    /// Reads inputs as [`read`](Npy::read) does, without targets, which may be missing.
    ///
    /// # Errors
    /// As [`read`](Npy::read).
    pub fn read_inputs(&self) -> Result<Dataset> {
        self.read_all(MOST_BYTES, false)
    }

    /// Reads arrays of files of at most `limit` bytes.
    fn read_all(&self, limit: usize, with_targets: bool) -> Result<Dataset> {
        let inputs = self.array(&self.inputs, limit)?;
        let targets = self.targets.as_ref().filter(|_| with_targets).map(|name| self.array(name, limit));
        dataset(inputs, targets.transpose()?)
    }

    /// Parses the bytes of an `.npz` file, or of a `.npy` file of inputs without targets. The names of both files are
    /// used only in errors.
    ///
    /// # Errors
    /// As [`read`](Npy::read).
    pub fn parse(&self, bytes: &[u8]) -> Result<Dataset> {
        let Some(file) = &self.file else { return dataset(parsed(bytes.to_vec(), shown(&self.inputs))?, None) };
        let inputs = entry(Cursor::new(bytes), file, &self.inputs, MOST_BYTES)?;
        let targets = self.targets.as_ref().map(|name| entry(Cursor::new(bytes), file, name, MOST_BYTES));
        dataset(inputs, targets.transpose()?)
    }

    /// Reads an array from its file or entry.
    fn array(&self, name: &Path, limit: usize) -> Result<NpyArray> {
        match &self.file {
            None => parsed(files::read_within(name, limit)?, shown(name)),
            Some(file) => entry(Cursor::new(&files::read_within(file, limit)?), file, name, limit),
        }
    }

    /// Returns the same reader with files resolved against a folder.
    pub(crate) fn starting_from(&self, folder: &Path) -> Npy {
        match &self.file {
            Some(file) => Npy { file: Some(folder.join(file)), ..self.clone() },
            None => {
                let targets = self.targets.as_ref().map(|targets| folder.join(targets));
                Npy { inputs: folder.join(&self.inputs), targets, file: None }
            }
        }
    }

    /// Returns the same reader with another file of inputs.
    pub(super) fn of_inputs(&self, file: &Path) -> Npy {
        match self.file {
            Some(_) => Npy { file: Some(file.into()), ..self.clone() },
            None => Npy { inputs: file.into(), ..self.clone() },
        }
    }
}

/// Formats a file or an entry for display.
fn shown(name: &Path) -> String {
    printable(&name.display().to_string()).into_owned()
}

/// An array with the file or the entry it came from.
struct NpyArray {
    origin: String,
    header: Header,
    /// Data of the length given by the header.
    data: Vec<u8>,
    /// Number of examples before these in their file.
    first: usize,
}

impl NpyArray {
    /// Returns the number of examples and the shape of one.
    fn examples(&self) -> Result<(usize, &[usize])> {
        match &self.header.shape[..] {
            [] => Err(self.refused("a single number; the first axis counts the examples")),
            [0, ..] => Err(self.refused("there are no examples")),
            [n, shape @ ..] => Ok((*n, shape)),
        }
    }

    fn refused(&self, words: impl std::fmt::Display) -> Error {
        Error::data(words.to_string()).in_file(&self.origin)
    }

    /// Iterates over the bits of each element, sign-extended to 64 bits.
    fn bits(&self) -> impl Iterator<Item = u64> {
        let Dtype { kind, bytes, big_endian } = self.header.dtype;
        self.data.chunks_exact(bytes).map(move |element| {
            let last = if big_endian { element[0] } else { element[bytes - 1] };
            let mut wide = [if kind == 'i' && last >= 0x80 { 0xff } else { 0 }; 8];
            wide[..bytes].copy_from_slice(element);
            if big_endian {
                wide[..bytes].reverse();
            }
            u64::from_le_bytes(wide)
        })
    }

    /// Returns the numbers, the digits that f32 cannot represent, and notes on those that f64 cannot. `what` is the
    /// word for one of an example.
    fn numbers(&self, what: &str) -> Result<(Vec<f32>, Wide, Vec<String>)> {
        let Dtype { kind, bytes, .. } = self.header.dtype;
        if bytes <= 2 || (kind, bytes) == ('f', 4) {
            let number = |bits: u64| match (kind, bytes) {
                ('f', 2) => f16::from_bits(bits as u16).to_f32(),
                ('f', _) => f32::from_bits(bits as u32),
                ('i', _) => bits as i64 as f32,
                _ => bits as f32,
            };
            return Ok((self.last_axis_fastest(self.bits().map(number).collect())?, Wide::default(), Vec::new()));
        }
        let each: usize = self.header.shape[1..].iter().product();
        let mut numbers = Numbers::new(each);
        let mut add = |i: usize, bits: u64| -> Result<()> {
            match kind {
                'f' => numbers.push(self.in_range(f64::from_bits(bits), what, i, each)?),
                'i' => numbers.push_integer((bits as i64).into()),
                _ => numbers.push_integer(bits.into()),
            }
            Ok(())
        };
        if self.header.fortran_order {
            let ordered = self.last_axis_fastest(self.bits().collect())?;
            ordered.into_iter().enumerate().try_for_each(|(i, bits)| add(i, bits))?;
        } else {
            self.bits().enumerate().try_for_each(|(i, bits)| add(i, bits))?;
        }
        let column = |i: usize| match self.header.shape.len() {
            ..=2 => format!("column {}", i + 1),
            _ => format!("{what} {i} of each example"),
        };
        Ok(numbers.into_parts(&self.origin, column))
    }

    /// Rejects a finite number that overflows f32.
    fn in_range(&self, x: f64, what: &str, i: usize, each: usize) -> Result<f64> {
        if x.is_finite() && (x as f32).is_infinite() {
            let place = format!("{what} {} of example {} is {x:e}", i % each.max(1), self.first + i / each.max(1));
            return Err(self.refused(format!("{place}; allowed: numbers of f32, whose range ends at {:e}", f32::MAX)));
        }
        Ok(x)
    }

    /// Returns the whole array as a tensor.
    fn tensor(&self) -> Result<Tensor> {
        let shape = &self.header.shape;
        match self.header.dtype.kind {
            'f' => {
                let Dtype { bytes, .. } = self.header.dtype;
                let number = |bits: u64| match bytes {
                    2 => f16::from_bits(bits as u16).to_f32(),
                    4 => f32::from_bits(bits as u32),
                    _ => f64::from_bits(bits) as f32,
                };
                Tensor::from_vec(self.last_axis_fastest(self.bits().map(number).collect())?, shape)
            }
            'b' => Tensor::from_vec(self.last_axis_fastest(self.bits().map(|bits| bits != 0).collect())?, shape),
            _ => Tensor::from_vec(self.integers()?, shape),
        }
    }

    /// Returns the elements of an integer array.
    fn integers(&self) -> Result<Vec<i64>> {
        let signed = self.header.dtype.kind == 'i';
        let integer = |bits: u64| match i64::try_from(bits) {
            Err(_) if !signed => Err(self.refused(format!("the integer {bits}; allowed: at most {}", i64::MAX))),
            _ => Ok(bits as i64),
        };
        self.last_axis_fastest(self.bits().map(integer).collect::<Result<_>>()?)
    }

    /// Reorders elements to row-major order.
    fn last_axis_fastest<T: Copy>(&self, values: Vec<T>) -> Result<Vec<T>> {
        if !self.header.fortran_order {
            return Ok(values);
        }
        let array =
            Array::from_shape_vec(IxDyn(&self.header.shape).f(), values).map_err(|error| self.refused(error))?;
        Ok(array.iter().copied().collect())
    }
}

/// Returns the values of examples, the digits that f32 cannot represent, and notes.
fn inputs_of(array: &NpyArray) -> Result<(Inputs, Wide, Vec<String>)> {
    if !array.header.dtype.is_index() {
        let (values, wide, notes) = array.numbers("value")?;
        return Ok((Inputs::Numbers(values), wide, notes));
    }
    let indices = array.integers()?;
    if let Some(negative) = indices.iter().find(|index| **index < 0) {
        let words = "indices, which count from 0; numbers are saved as float32 or int16";
        return Err(array.refused(format!("{negative} in an array of int32 or int64: these are {words}")));
    }
    Ok((Inputs::Indices(indices), Wide::default(), Vec::new()))
}

fn dataset(inputs: NpyArray, targets: Option<NpyArray>) -> Result<Dataset> {
    let (n, shape) = inputs.examples()?;
    let (values, wide, notes) = inputs_of(&inputs)?;
    with_targets(&inputs.origin, n, targets, (wide, notes), |targets| Dataset::of(values, shape, targets))
}

/// Gives `n` examples of a file their targets.
fn with_targets(
    inputs: &str,
    n: usize,
    targets: Option<NpyArray>,
    (wide, mut notes): (Wide, Vec<String>),
    make: impl FnOnce(Targets) -> Result<Dataset>,
) -> Result<Dataset> {
    let mut wide = Parts { inputs: wide, targets: Wide::default() };
    let mut origin = inputs.to_string();
    let mut origins = Parts { inputs: origin.clone(), targets: String::new() };
    let mut wanted = Targets::None;
    if let Some(targets) = targets {
        let (rows, shape) = targets.examples()?;
        if rows != n {
            return Err(Error::data(format!("{origin} has {n} examples, and {} has {rows}", targets.origin)));
        }
        let shape = shape.to_vec();
        wanted = match targets.header.dtype.kind {
            'f' => {
                let (values, exact, more) = targets.numbers("target")?;
                wide.targets = exact;
                notes.extend(more);
                Targets::Numbers { shape: if shape.is_empty() { vec![1] } else { shape }, values }
            }
            _ => Targets::Classes { shape, values: targets.integers()? },
        };
        origin = format!("{origin} with {}", targets.origin);
        origins.targets = targets.origin;
    }
    let data = make(wanted).map_err(|error| error.context(origin))?;
    Ok(data.with_origin(wide, HowRead { origins, notes }))
}

/// Describes a file that cannot be opened as an archive.
fn no_archive(error: &zip::result::ZipError) -> String {
    format!("no `.npz` archive, as `numpy.savez` writes it, or one that is cut short ({error})")
}

/// Returns the names of the arrays of an archive, in its order.
fn names_in<R: Read + Seek>(archive: &ZipArchive<R>) -> Vec<String> {
    archive.file_names().map(|name| name.strip_suffix(".npy").unwrap_or(name).to_string()).collect()
}

/// Reads an array of at most `limit` bytes from an `.npz` file, a zip archive of `.npy` files.
fn entry(archive: impl Read + Seek, file: &Path, name: &Path, limit: usize) -> Result<NpyArray> {
    let (mut archive, at) = find(archive, file, name)?;
    unpacked(&mut archive, at, entry_of(file, name), limit)
}

/// Formats an entry of a file for display.
fn entry_of(file: &Path, name: &Path) -> String {
    format!("{}: {}", shown(file), shown(name))
}

/// Opens an archive, and finds an array in it.
fn find<R: Read + Seek>(archive: R, file: &Path, name: &Path) -> Result<(ZipArchive<R>, usize)> {
    let failed = |error: String| Error::data(error).in_file(shown(file));
    let archive = ZipArchive::new(archive).map_err(|error| failed(no_archive(&error)))?;
    let name = name.to_string_lossy();
    let names = names_in(&archive);
    let Some(at) = names.iter().position(|array| *array == name) else {
        let near = did_you_mean_or_some(&name, names.iter().map(String::as_str));
        return Err(failed(format!("there is no array `{}`{near}", printable(&name))));
    };
    Ok((archive, at))
}

/// Unpacks and parses an array of an archive by its index.
fn unpacked<R: Read + Seek>(archive: &mut ZipArchive<R>, at: usize, origin: String, limit: usize) -> Result<NpyArray> {
    let failed = |error: String| Error::data(error).in_file(&origin);
    let unpacked = archive.by_index(at).map_err(|error| failed(error.to_string()))?;
    let mut array = Vec::new();
    unpacked
        .take((limit as u64).saturating_add(1))
        .read_to_end(&mut array)
        .map_err(|error| failed(error.to_string()))?;
    if array.len() > limit {
        return Err(failed(format!("longer than {} MiB", limit >> 20)));
    }
    parsed(array, origin)
}

/// Returns the arrays of an `.npz` file by name, in the order of the file, as tensors: of floats in float32, of integers
/// in int64, of truth values in bool. The first axis is one as the others.
///
/// # Errors
/// [`ErrorKind::Io`](precast::ErrorKind::Io) when the file cannot be read; [`ErrorKind::Data`](precast::ErrorKind::Data)
/// for a file that is not an archive of arrays, and for an array of another dtype.
pub fn npz_arrays(path: impl AsRef<Path>) -> Result<Vec<(String, Tensor)>> {
    let path = path.as_ref();
    let bytes = files::read_within(path, MOST_BYTES)?;
    let failed = |error: String| Error::data(error).in_file(shown(path));
    let mut archive = ZipArchive::new(Cursor::new(&bytes[..])).map_err(|error| failed(no_archive(&error)))?;
    let names = names_in(&archive);
    let read = |(at, name): (usize, String)| {
        let array = unpacked(&mut archive, at, format!("{}: {}", shown(path), printable(&name)), MOST_BYTES)?;
        Ok((name, array.tensor()?))
    };
    names.into_iter().enumerate().map(read).collect()
}

/// Parses an array from the bytes of a `.npy` file.
fn parsed(mut bytes: Vec<u8>, origin: String) -> Result<NpyArray> {
    let failed = |words: String| Error::data(words).in_file(&origin);
    let (header, data) = split(&bytes).map_err(failed)?;
    let header = Header::of(header).map_err(failed)?;
    header.check_length(data.len() as u64).map_err(failed)?;
    let data = bytes.split_off(bytes.len() - data.len());
    Ok(NpyArray { origin, header, data, first: 0 })
}

/// Maximum length of a header, as in NumPy.
const MOST_HEADER_BYTES: usize = 10_000;

/// Splits a `.npy` file into its header and the data.
fn split(bytes: &[u8]) -> Result<(&str, &[u8]), String> {
    let cut = || "the file ends within its header".to_string();
    let Some(rest) = bytes.strip_prefix(b"\x93NUMPY") else { return Err("not an array of NumPy".into()) };
    let (length, rest) = match rest {
        [1, 0, a, b, rest @ ..] => (u16::from_le_bytes([*a, *b]) as usize, rest),
        [2 | 3, 0, a, b, c, d, rest @ ..] => (u32::from_le_bytes([*a, *b, *c, *d]) as usize, rest),
        [1..=3, 0, ..] | [_] | [] => return Err(cut()),
        [major, minor, ..] => return Err(format!("version {major}.{minor} of the format; allowed: 1.0, 2.0 and 3.0")),
    };
    if length > MOST_HEADER_BYTES {
        return Err(format!("a header of {length} bytes; allowed: {MOST_HEADER_BYTES}"));
    }
    let (header, data) = rest.split_at_checked(length).ok_or_else(cut)?;
    Ok((std::str::from_utf8(header).map_err(|_| "the header is not text")?, data))
}
