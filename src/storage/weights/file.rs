//! The safetensors format: bytes to tensors and back.

use precast_tensor::internals::TensorInternals as _;
use std::{
    borrow::{Borrow, Cow},
    cmp::Reverse,
    collections::{BTreeMap, HashSet},
    io::Write as _,
    path::Path,
};

use half::{bf16, f16};
use precast_base::formats::{self, Reader};
use precast_kernels::{memory, unknown};
use safetensors::{
    Dtype, SafeTensors,
    tensor::{Metadata, TensorInfo},
};

use crate::{
    DType, Tensor,
    error::{Error, Result},
    io::{files, json},
};

/// Metadata entry that lists the paths sharing a parameter.
const TIED: &str = "tied";
/// Metadata entry of weights written by a training run.
pub(crate) const OF_RUN: &str = "precast_run";

/// Metadata entry of the checksum, in files with a metadata entry of their own.
pub(crate) const CHECKSUM: &str = "crc32";

/// Metadata entry that marks the framework of the tensors; some libraries reject files without it.
pub(crate) const FORMAT: (&str, &str) = ("format", "pt");

/// Maximum length of a header, as in the format.
pub(crate) const MAX_HEADER_BYTES: u64 = 100_000_000;

/// Contents of a file other than tensors.
#[derive(Clone, Debug, Default)]
pub(crate) struct File {
    /// Map from each tied name to the name under which its tensor is stored.
    pub tied: BTreeMap<String, String>,
    /// Optional metadata entry. A file with one also has a checksum of it and all tensors.
    pub words: Option<(&'static str, String)>,
}

impl File {
    /// Writes a file atomically, a part of a tensor at a time.
    ///
    /// # Errors
    /// As [`weights::write`](super::write).
    pub fn write<T: Borrow<Tensor>>(&self, path: &Path, tensors: &[(String, T)]) -> Result<()> {
        let (head, tensors) = self.head(tensors).map_err(|e| e.in_file(path.display()))?;
        files::replace_by(path, |file| {
            let mut put = |bytes: &[u8]| file.write_all(bytes).map_err(|e| Error::io(path, &e));
            put(&head)?;
            tensors.iter().try_for_each(|(_, tensor)| each_part(tensor, &mut put))
        })?;
        tracing::info!(target: "precast", file = %path.display(), bytes = std::fs::metadata(path).map_or(0, |met| met.len()), "weights written");
        Ok(())
    }

    /// Returns the bytes of a file.
    ///
    /// # Errors
    /// As [`weights::write`](super::write).
    pub fn encode<T: Borrow<Tensor>>(&self, tensors: &[(String, T)]) -> Result<Vec<u8>> {
        let (mut bytes, tensors) = self.head(tensors)?;
        bytes.reserve_exact(tensors.iter().map(|(_, tensor)| size(tensor)).sum());
        for (_, tensor) in tensors {
            each_part(tensor, &mut |part| {
                bytes.extend_from_slice(part);
                Ok(())
            })?;
        }
        Ok(bytes)
    }

    /// Returns the bytes before the tensors, and the tensors in the order of the file: wide ones first, so that each is
    /// aligned to the size of its elements.
    fn head<'a, T: Borrow<Tensor>>(&self, tensors: &'a [(String, T)]) -> Result<(Vec<u8>, Vec<Named<'a>>)> {
        let mut names = HashSet::new();
        if let Some((twice, _)) = tensors.iter().find(|(name, _)| !names.insert(name)) {
            return Err(Error::weights(format!("two tensors have the name `{twice}`")));
        }
        // `__metadata__` is reserved by the format. A file with a tensor of that name could not be read.
        if names.contains(&"__metadata__".to_string()) {
            return Err(Error::weights("no tensor can have the name `__metadata__`, which is the file's own"));
        }
        let failed = |e: &dyn std::fmt::Display| Error::weights(e.to_string());
        let mut tensors: Vec<Named<'a>> = tensors.iter().map(|(name, tensor)| (&name[..], tensor.borrow())).collect();
        tensors.sort_by_key(|(name, _)| *name);
        let mut metadata = BTreeMap::from([(FORMAT.0.to_string(), FORMAT.1.to_string())]);
        if !self.tied.is_empty() {
            metadata.insert(TIED.to_string(), serde_json::to_string(&self.tied).map_err(|e| failed(&e))?);
        }
        if let Some((entry, words)) = &self.words {
            let mut sum = Checksum::new(words);
            for (name, tensor) in &tensors {
                sum.begin(name, dtype_in_file(tensor.dtype()), tensor.shape());
                each_part(tensor, &mut |part| {
                    sum.0.update(part);
                    Ok(())
                })?;
            }
            metadata.insert(CHECKSUM.to_string(), sum.text());
            metadata.insert(entry.to_string(), words.clone());
        }
        tensors.sort_by_key(|(_, tensor)| Reverse(dtype_in_file(tensor.dtype())));
        let mut start = 0;
        let infos = tensors.iter().map(|(name, tensor)| {
            let data_offsets = (start, start + size(tensor));
            start = data_offsets.1;
            let (dtype, shape) = (dtype_in_file(tensor.dtype()), tensor.shape().to_vec());
            (name.to_string(), TensorInfo { dtype, shape, data_offsets })
        });
        let infos = Metadata::new(None, infos.collect()).map_err(|e| failed(&e))?;
        // The format's own writer has metadata entries in arbitrary order. Sorted by name, equal files have equal bytes.
        let (metadata, infos) =
            (serde_json::to_string(&metadata), serde_json::to_string(&infos).map_err(|e| failed(&e))?);
        let comma = if tensors.is_empty() { "" } else { "," };
        let text = format!("{{\"__metadata__\":{}{comma}{}", metadata.map_err(|e| failed(&e))?, &infos[1..]);
        Ok((with_length(text)?, tensors))
    }
}

type Named<'a> = (&'a str, &'a Tensor);

/// Returns the length of a tensor in a file.
fn size(tensor: &Tensor) -> usize {
    tensor.len() * tensor.dtype().bytes()
}

/// Returns a header, filled up to whole elements, after its length.
///
/// # Errors
/// [`ErrorKind::Weights`](crate::ErrorKind::Weights) when it is longer than is read.
pub(crate) fn with_length(header: String) -> Result<Vec<u8>> {
    /// Alignment of the tensors.
    const ALIGNMENT: usize = 8;
    let length = header.len().next_multiple_of(ALIGNMENT);
    if length as u64 > MAX_HEADER_BYTES {
        return Err(Error::weights(format!(
            "the names and shapes take {length} bytes; at most {MAX_HEADER_BYTES} can be read again"
        )));
    }
    let mut bytes = (length as u64).to_le_bytes().to_vec();
    bytes.extend_from_slice(header.as_bytes());
    bytes.resize(size_of::<u64>() + length, b' ');
    Ok(bytes)
}

/// Checksum of the text of a metadata entry and the tensors in name order.
struct Checksum(crc32fast::Hasher);

impl Checksum {
    fn new(words: &str) -> Self {
        let mut sum = crc32fast::Hasher::new();
        sum.update(words.as_bytes());
        Checksum(sum)
    }

    /// Adds what is known of a tensor, before its bytes.
    fn begin(&mut self, name: &str, dtype: Dtype, shape: &[usize]) {
        self.0.update(format!("\n{name} {dtype:?} {shape:?}\n").as_bytes());
    }

    fn text(self) -> String {
        format!("{:08x}", self.0.finalize())
    }
}

/// Returns the text of a metadata entry, if the file has it.
///
/// # Errors
/// [`ErrorKind::Weights`](crate::ErrorKind::Weights) when the checksum does not match the text and the tensors.
pub(super) fn words(bytes: &[u8], entry: &str, tensors: &BTreeMap<String, Stored<'_>>) -> Result<Option<String>> {
    let (_, header) = SafeTensors::read_metadata(bytes).map_err(|e| damaged(&e))?;
    let Some(metadata) = header.metadata() else { return Ok(None) };
    let Some(words) = metadata.get(entry) else { return Ok(None) };
    let mut sum = Checksum::new(words);
    for (name, of) in tensors {
        sum.begin(name, of.dtype, &of.shape);
        sum.0.update(&of.data);
    }
    match metadata.get(CHECKSUM) {
        Some(kept) if *kept == sum.text() => Ok(Some(words.clone())),
        _ => Err(Error::weights("its checksum does not fit: the file is damaged")),
    }
}

/// Rejects files of other formats by their first bytes.
///
/// # Errors
/// [`ErrorKind::Weights`](crate::ErrorKind::Weights) that names the format and the remedy.
pub fn check_is_safetensors(bytes: &[u8]) -> Result<()> {
    match formats::other(bytes, Reader::Weights) {
        Some(words) => Err(Error::weights(words)),
        None => Ok(()),
    }
}

/// Rejects a header with duplicate tensor names (only the last would be read).
fn check_names(header: &[u8]) -> Result<()> {
    let read: serde_json::Result<serde::de::IgnoredAny> = json::read(header);
    read.map(drop).map_err(|e| Error::weights(format!("not a whole safetensors file: its header: {e}")))
}

fn damaged(error: &safetensors::SafeTensorError) -> Error {
    Error::weights(format!("not a whole safetensors file: {error}"))
}

/// A tensor as stored in a file, or a part of one.
#[derive(Clone)]
pub(super) struct Stored<'a> {
    dtype: Dtype,
    pub shape: Vec<usize>,
    /// Row-major, little-endian.
    data: Cow<'a, [u8]>,
}

/// The tensors of a file by name, and a map from each tied name to the stored one.
type Tensors<'a> = (BTreeMap<String, Stored<'a>>, BTreeMap<String, String>);

impl<'a> Stored<'a> {
    /// Reads all tensors of a file.
    pub fn all(bytes: &'a [u8]) -> Result<Tensors<'a>> {
        check_is_safetensors(bytes)?;
        let damaged = |e| damaged(&e);
        let (length, header) = SafeTensors::read_metadata(bytes).map_err(damaged)?;
        check_names(&bytes[8..][..length])?;
        let tied = match header.metadata().as_ref().and_then(|entries| entries.get(TIED)) {
            Some(text) => json::read(text.as_bytes())
                .map_err(|e| Error::weights(format!("the entry `{TIED}` is not a map of paths: {e}")))?,
            None => BTreeMap::new(),
        };
        let mut all = BTreeMap::new();
        let file = SafeTensors::deserialize(bytes).map_err(damaged)?;
        for (name, view) in file.tensors() {
            let stored = Stored { dtype: view.dtype(), shape: view.shape().to_vec(), data: Cow::Borrowed(view.data()) };
            all.insert(name, stored);
        }
        Ok((all, tied))
    }

    /// Returns the numbers of a tensor.
    pub fn of(tensor: &Tensor) -> Stored<'static> {
        let data = Cow::Owned(bytes_of(tensor));
        Stored { dtype: dtype_in_file(tensor.dtype()), shape: tensor.shape().to_vec(), data }
    }

    /// Returns the dtype, if tensors can have it.
    pub fn dtype(&self) -> Option<DType> {
        const ALL: [DType; 6] = [DType::F64, DType::F32, DType::F16, DType::Bf16, DType::I64, DType::Bool];
        ALL.into_iter().find(|dtype| dtype_in_file(*dtype) == self.dtype)
    }

    /// Joins tensors of one dtype along an axis, the inverse of [`parts`](Stored::parts).
    ///
    /// # Errors
    /// [`ErrorKind::Weights`](crate::ErrorKind::Weights) when their other axes differ.
    pub fn joined(parts: &[Stored<'_>], axis: usize) -> Result<Stored<'static>> {
        let first = &parts[0];
        let others = |shape: &[usize]| -> Vec<usize> {
            shape.iter().enumerate().filter(|(at, _)| *at != axis).map(|(_, len)| *len).collect()
        };
        let fits = |part: &&Stored<'_>| part.shape.len() > axis && others(&part.shape) == others(&first.shape);
        if !parts.iter().all(|part| fits(&part)) {
            let shapes: Vec<&[usize]> = parts.iter().map(|part| &part.shape[..]).collect();
            return Err(Error::weights(format!(
                "has parts of the shapes {shapes:?}; they do not join along axis {axis}"
            )));
        }
        let mut shape = first.shape.clone();
        shape[axis] = parts.iter().map(|part| part.shape[axis]).sum();
        let outer: usize = first.shape[..axis].iter().product();
        let mut data = Vec::new();
        for row in 0..outer {
            for part in parts {
                let len = part.data.len() / outer;
                data.extend_from_slice(&part.data[row * len..(row + 1) * len]);
            }
        }
        Ok(Stored { dtype: first.dtype, shape, data: Cow::Owned(data) })
    }

    /// Returns whether both hold the same numbers.
    pub fn is_same(&self, other: &Stored<'_>) -> bool {
        (self.dtype, &self.shape, &self.data) == (other.dtype, &other.shape, &other.data)
    }

    /// Transposes the matrix.
    ///
    /// # Errors
    /// [`ErrorKind::Weights`](crate::ErrorKind::Weights) when it is not a matrix.
    pub fn transposed(self) -> Result<Stored<'a>> {
        let &[rows, columns] = &self.shape[..] else {
            return Err(Error::weights(format!("has the shape {:?}; only a matrix is transposed", self.shape)));
        };
        let size = self.element_size()?;
        let mut data = Vec::with_capacity(self.data.len());
        // Without elements, the other axis may have any length.
        for column in (0..columns).take(self.data.len()) {
            for row in 0..rows {
                let at = (row * columns + column) * size;
                data.extend_from_slice(&self.data[at..at + size]);
            }
        }
        Ok(Stored { dtype: self.dtype, shape: vec![columns, rows], data: Cow::Owned(data) })
    }

    /// Splits the tensor into parts of these lengths along an axis. The lengths must add up to that of the axis.
    pub fn parts(&self, axis: usize, lens: &[usize]) -> Result<Vec<Stored<'static>>> {
        let size = self.element_size()?;
        // Bytes of one step along the axis, and of all; 0 without elements.
        let step: usize =
            if self.data.is_empty() { 0 } else { self.shape[axis + 1..].iter().product::<usize>() * size };
        let whole = step * self.shape[axis];
        let (mut parts, mut start) = (Vec::new(), 0);
        for &len in lens {
            let mut data = Vec::new();
            if whole > 0 {
                self.data.chunks(whole).for_each(|chunk| data.extend_from_slice(&chunk[start..start + len * step]));
            }
            start += len * step;
            let mut shape = self.shape.clone();
            shape[axis] = len;
            parts.push(Stored { dtype: self.dtype, shape, data: Cow::Owned(data) });
        }
        Ok(parts)
    }

    /// Returns the size of one element in bytes; 1 without elements.
    fn element_size(&self) -> Result<usize> {
        if self.data.is_empty() {
            return Ok(1);
        }
        let count = self.shape.iter().product::<usize>();
        if self.data.len().is_multiple_of(count) { Ok(self.data.len() / count) } else { Err(self.not_read()) }
    }

    fn not_read(&self) -> Error {
        Error::weights(format!("is {}; float64, float32, float16, bfloat16, int64 and bool are read", self.dtype))
    }

    /// Converts it to a tensor of its own dtype.
    pub fn tensor(&self) -> Result<Tensor> {
        macro_rules! tensor {
            ($($dtype:ident: $t:ty),*) => {
                match self.dtype {
                    $(Dtype::$dtype => {
                        let (elements, _) = self.data.as_chunks();
                        let mut numbers = memory::reserved(elements.len())
                            .map_err(|_| Error::weights("does not fit into memory"))?;
                        numbers.extend(elements.iter().map(|&bytes| <$t>::from_le_bytes(bytes)));
                        Tensor::from_vec::<$t>(numbers, &self.shape)
                    })*
                    Dtype::BOOL => Tensor::from_vec(self.data.iter().map(|&byte| byte != 0).collect(), &self.shape),
                    _ => Err(self.not_read()),
                }
            };
        }
        tensor!(F64: f64, F32: f32, F16: f16, BF16: bf16, I64: i64)
    }
}

pub(crate) fn dtype_in_file(dtype: DType) -> Dtype {
    match dtype {
        DType::F64 => Dtype::F64,
        DType::F32 => Dtype::F32,
        DType::F16 => Dtype::F16,
        DType::Bf16 => Dtype::BF16,
        DType::I64 => Dtype::I64,
        DType::Bool => Dtype::BOOL,
        other => unknown(other),
    }
}

/// Elements of a tensor that are handed over at once.
const PART: usize = 1 << 16;

/// Calls `each` with the elements in row-major order, little-endian, some at a time.
///
/// # Errors
/// Those of `each`.
pub(crate) fn each_part(value: &Tensor, each: &mut dyn FnMut(&[u8]) -> Result<()>) -> Result<()> {
    let (array, mut bytes) = (value.array().contiguous(), Vec::new());
    macro_rules! parts {
        ($($dtype:ident: $t:ty, $bytes:expr),*) => {
            match value.dtype() {
                $(DType::$dtype => {
                    let view = array.view::<$t>().expect("its own dtype");
                    for part in view.as_slice().expect("contiguous").chunks(PART) {
                        bytes.clear();
                        bytes.extend(part.iter().copied().flat_map($bytes));
                        each(&bytes)?;
                    }
                    Ok(())
                })*
                other => unknown(other),
            }
        };
    }
    parts!(
        F64: f64, f64::to_le_bytes,
        F32: f32, f32::to_le_bytes,
        F16: f16, f16::to_le_bytes,
        Bf16: bf16, bf16::to_le_bytes,
        I64: i64, i64::to_le_bytes,
        Bool: bool, |x| [u8::from(x)]
    )
}

/// Returns the elements in row-major order, little-endian.
pub fn bytes_of(value: &Tensor) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(size(value));
    let whole = each_part(value, &mut |part| {
        bytes.extend_from_slice(part);
        Ok(())
    });
    whole.expect("adding bytes does not fail");
    bytes
}
