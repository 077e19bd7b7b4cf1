//! The header of a safetensors file, read and written without the data after it.

use std::{
    borrow::Cow,
    collections::BTreeMap,
    fs::File,
    io::{self, Read as _, Seek as _, SeekFrom},
    path::Path,
};

use safetensors::Dtype;
use serde::{Deserialize, Serialize, Serializer, ser::SerializeMap};

use super::StoredTensor;
use precast_base::formats;

use crate::{
    DType,
    error::{Error, Result},
    io::json,
    printable::printable,
    storage::weights::{MAX_HEADER_BYTES, check_is_safetensors, dtype_in_file, with_length},
};

/// Size in bytes of the length field before the header.
const LENGTH: u64 = 8;

/// Description of the tensors in a safetensors file.
#[derive(Clone, Debug, Default)]
pub(super) struct Header {
    pub metadata: BTreeMap<String, String>,
    /// Tensors in data order.
    pub tensors: Vec<StoredTensor>,
}

impl Header {
    /// Reads the header of a file. Nothing else is read, and no more is allocated than the file is long.
    ///
    /// # Errors
    /// [`ErrorKind::Io`](crate::ErrorKind::Io) when the file cannot be read,
    /// [`ErrorKind::Weights`](crate::ErrorKind::Weights) when it is not a complete safetensors file.
    pub fn read(path: &Path) -> Result<Self> {
        let failed = |e: io::Error| Error::io(path, &e);
        let mut file = File::open(path).map_err(failed)?;
        let met = file.metadata().map_err(failed)?;
        if !met.is_file() {
            return Err(failed(io::Error::other("not a file")));
        }
        let mut start = Vec::new();
        file.by_ref().take(formats::FIRST as u64).read_to_end(&mut start).map_err(failed)?;
        file.seek(SeekFrom::Start(LENGTH)).map_err(failed)?;
        Header::parse(&start, met.len(), |bytes| {
            let mut text = Vec::new();
            file.take(bytes).read_to_end(&mut text).map_err(failed)?;
            Ok(text)
        })
        .map_err(|e| if e.kind() == crate::ErrorKind::Io { e } else { e.in_file(path.display()) })
    }

    /// Reads the header of a file of length `file_bytes` from its first bytes.
    pub fn of_start(start: &[u8], file_bytes: u64) -> Result<Self> {
        let read = |bytes: u64| {
            let after = start.get(LENGTH as usize..).unwrap_or_default();
            Ok(after[..after.len().min(bytes as usize)].to_vec())
        };
        Header::parse(&start[..start.len().min(formats::FIRST)], file_bytes, read)
    }

    /// Parses the header of a file of length `file_bytes` that starts with `start`; `read` returns the given number of
    /// further bytes.
    fn parse(start: &[u8], file_bytes: u64, read: impl FnOnce(u64) -> Result<Vec<u8>>) -> Result<Self> {
        check_is_safetensors(start)?;
        let Some(length) = start.first_chunk().map(|length| u64::from_le_bytes(*length)) else {
            return Err(damaged(format!("it has {} bytes, and the length of the header takes {LENGTH}", start.len())));
        };
        if length > MAX_HEADER_BYTES || length > file_bytes.saturating_sub(LENGTH) {
            return Err(damaged(format!(
                "the header would have {length} bytes, and the file has {file_bytes}; at most {MAX_HEADER_BYTES} are read"
            )));
        }
        let text = read(length)?;
        let Text { metadata, tensors } = json::read(&text).map_err(|e| damaged(format!("its header: {e}")))?;
        let mut tensors: Vec<(String, Entry)> = tensors.into_iter().collect();
        tensors.sort_by_key(|(_, entry)| entry.data_offsets);
        let mut wanted = 0;
        for (name, entry) in &tensors {
            let (start, end) = entry.data_offsets;
            if start != wanted || entry.bytes().is_none_or(|bytes| start.checked_add(bytes) != Some(end)) {
                let Entry { dtype, shape, .. } = entry;
                return Err(damaged(format!(
                    "its header: `{}`, {dtype} of {shape:?}, is at bytes {start} to {end}, where {wanted} is the next",
                    printable(name)
                )));
            }
            wanted = end;
        }
        let met = file_bytes - LENGTH - length;
        if wanted != met {
            return Err(damaged(format!("its tensors take {wanted} bytes, and {met} follow the header")));
        }
        let tensors = tensors.into_iter().map(|(name, Entry { dtype, shape, data_offsets: (start, end) })| {
            StoredTensor { name, dtype, shape, start: LENGTH + length + start, bytes: end - start }
        });
        Ok(Header { metadata: metadata.unwrap_or_default(), tensors: tensors.collect() })
    }

    /// Encodes the header, preceded by its length, for contiguous tensors.
    pub fn bytes(&self) -> Result<Vec<u8>> {
        let json = serde_json::to_string(self).map_err(|e| Error::weights(e.to_string()))?;
        with_length(json)
    }
}

/// The text of a header. Its numbers have 64 bits on every machine: on one of 32 bits, a file may be longer than memory.
#[derive(Deserialize)]
struct Text {
    #[serde(rename = "__metadata__")]
    metadata: Option<BTreeMap<String, String>>,
    #[serde(flatten)]
    tensors: BTreeMap<String, Entry>,
}

#[derive(Deserialize)]
struct Entry {
    dtype: Dtype,
    shape: Vec<usize>,
    data_offsets: (u64, u64),
}

impl Entry {
    /// Returns the bytes that the tensor takes; `None` for too many, and for parts of bytes.
    fn bytes(&self) -> Option<u64> {
        let bits = self.dtype.bitsize() as u64;
        let bits = self.shape.iter().try_fold(bits, |bits, &length| bits.checked_mul(length as u64))?;
        bits.is_multiple_of(8).then_some(bits / 8)
    }
}

fn damaged(words: String) -> Error {
    Error::weights(format!("not a whole safetensors file: {words}"))
}

impl Serialize for Header {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct Entry<'a> {
            dtype: Dtype,
            shape: &'a [usize],
            data_offsets: (u64, u64),
        }
        let mut map = serializer.serialize_map(None)?;
        if !self.metadata.is_empty() {
            map.serialize_entry("__metadata__", &self.metadata)?;
        }
        let mut start = 0;
        for StoredTensor { name, dtype, shape, bytes, .. } in &self.tensors {
            let data_offsets = (start, start + bytes);
            map.serialize_entry(name, &Entry { dtype: *dtype, shape, data_offsets })?;
            start += bytes;
        }
        map.end()
    }
}

impl StoredTensor {
    /// Returns the dtype: `f32` and the like for those of this library, else the file's own name, such as `F8_E4M3`.
    pub fn dtype(&self) -> Cow<'static, str> {
        match DType::ALL.into_iter().find(|dtype| dtype_in_file(*dtype) == self.dtype) {
            Some(dtype) => dtype.name().into(),
            None => self.dtype.to_string().into(),
        }
    }

    /// Returns the dtype if a policy may cast it: f32, f16 and bf16.
    pub(crate) fn castable(&self) -> Option<DType> {
        DType::ALL.into_iter().find(|dtype| dtype.is_castable() && dtype_in_file(*dtype) == self.dtype)
    }

    /// Returns whether the elements are floating-point numbers of any dtype.
    pub(super) fn is_float(&self) -> bool {
        use Dtype::*;
        !matches!(self.dtype, BOOL | U8 | I8 | U16 | I16 | U32 | I32 | U64 | I64)
    }

    /// Returns the number of elements.
    pub(super) fn elements(&self) -> u64 {
        self.bytes * 8 / self.dtype.bitsize() as u64
    }

    /// Returns this tensor as described after storing it in another dtype.
    pub(super) fn stored_as(&self, dtype: DType) -> StoredTensor {
        let bytes = self.elements() * dtype.bytes() as u64;
        StoredTensor { dtype: dtype_in_file(dtype), bytes, ..self.clone() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(bytes: &[u8]) -> Result<Header> {
        Header::of_start(bytes, bytes.len() as u64)
    }

    #[test]
    fn what_is_written_is_read_and_the_crate_reads_the_same() {
        let tensor = |name: &str, dtype, shape: &[usize], bytes| StoredTensor {
            name: name.into(),
            dtype,
            shape: shape.into(),
            start: 0,
            bytes,
        };
        let tensors = vec![tensor("b\n\"", Dtype::F32, &[2, 1], 8), tensor("a", Dtype::BF16, &[3], 6)];
        let header = Header { metadata: [("format".to_string(), "pt".to_string())].into(), tensors };
        let mut bytes = header.bytes().unwrap();
        assert_eq!(bytes.len() % 8, 0);
        bytes.extend([0; 14]);
        let read = parse(&bytes).unwrap();
        assert_eq!(read.metadata, header.metadata);
        let places: Vec<_> = read.tensors.iter().map(|t| (t.name.as_str(), t.start, t.bytes)).collect();
        let data = bytes.len() as u64 - 14;
        assert_eq!(places, [("b\n\"", data, 8), ("a", data + 8, 6)]);
        let theirs = safetensors::SafeTensors::deserialize(&bytes).unwrap();
        assert_eq!(theirs.tensor("a").unwrap().shape(), [3]);
    }

    #[test]
    fn a_damaged_header_says_how() {
        let whole = Header { metadata: BTreeMap::new(), tensors: Vec::new() }.bytes().unwrap();
        for (bytes, says) in [
            (&b""[..], "it has 0 bytes"),
            (
                b"\xff\xff\xff\xff\xff\xff\xff\xff",
                "the header would have 18446744073709551615 bytes, and the file has 8",
            ),
            (b"\x04\0\0\0\0\0\0\0{}", "the header would have 4 bytes"),
            (b"\x02\0\0\0\0\0\0\0{}x", "its tensors take 0 bytes, and 1 follow the header"),
            (b"\x02\0\0\0\0\0\0\0[]", "its header: "),
            (
                b"\x36\0\0\0\0\0\0\0{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,4]}}    ",
                "its header: `a`, F32 of [2], is at bytes 0 to 4, where 0 is the next",
            ),
            (b"PK\x03\x04....", "a file of `torch.save`"),
            (b"GGUF\x03\0\0\0\x23\x01", "a GGUF file"),
            (b"PAR1\x15\x04\x15\x10", "a Parquet file; expected a safetensors file"),
            (b"\x89HDF\r\n\x1a\n\0\0\0", "an HDF5 file"),
            (b"\x1c\0\0\0TFL3", "a model of TensorFlow Lite"),
            (b"\x93NUMPY\x01\0v\0{", "an array of NumPy"),
            (b"version https://git-lfs.github.com/spec/v1\noid sha256:4665\nsize 548105171\n", "a pointer of Git LFS"),
            (b"\x12\0\0\0\0\0\0\0{\"a\": {}, \"a\": {}}", "its header: two entries have the name `a` at line 1"),
        ] {
            let message = parse(bytes).unwrap_err().to_string();
            assert!(message.contains(says), "{message}");
        }
        assert!(parse(&whole).unwrap().tensors.is_empty());
    }
}
