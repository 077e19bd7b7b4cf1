//! Writing arrays as NumPy reads them.

use std::{
    fs::File,
    io::{self, Write},
    path::Path,
};

use precast::{
    DType, Tensor,
    error::{Error, Result},
    storage::weights::bytes_of,
};
use precast_base::files;
use zip::{CompressionMethod, ZipWriter, write::SimpleFileOptions};

/// Writes tensors into an `.npz` file under their names, which NumPy's `load` reads. The file is whole or absent.
///
/// float16, float32, float64, int64 and bool keep their dtype; bfloat16, which NumPy does not have, becomes float32.
///
/// # Errors
/// [`ErrorKind::Io`](precast::ErrorKind::Io) when the file cannot be written.
pub fn write_npz<'a>(path: impl AsRef<Path>, arrays: impl IntoIterator<Item = (&'a str, &'a Tensor)>) -> Result<()> {
    let path = path.as_ref();
    files::replace_by(path, |file| {
        let mut archive = ZipWriter::new_stream(Quiet { file, failed: None });
        let stored = SimpleFileOptions::default().compression_method(CompressionMethod::Stored).large_file(true);
        let write = || -> io::Result<()> {
            for (name, tensor) in arrays {
                archive.start_file(format!("{name}.npy"), stored)?;
                let (descr, dtype) = in_numpy(tensor.dtype());
                archive.write_all(&header(descr, tensor.shape()))?;
                archive.write_all(&bytes_of(&tensor.cast(dtype)))?;
            }
            Ok(())
        };
        let written = write().and_then(|()| archive.finish()?.into_inner().failed.map_or(Ok(()), Err));
        written.map_err(|error| Error::io(path, &error))
    })
}

/// A file that keeps its first error: an archive that meets one prints to standard error when it is dropped.
struct Quiet<'a> {
    file: &'a mut File,
    failed: Option<io::Error>,
}

impl Write for Quiet<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.failed.is_none() {
            self.failed = self.file.write_all(bytes).err();
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Returns the header of version 1.0 of the format, padded with spaces to a multiple of 64 bytes.
fn header(descr: &str, shape: &[usize]) -> Vec<u8> {
    let lengths = match shape {
        [length] => format!("{length},"),
        _ => shape.iter().map(usize::to_string).collect::<Vec<_>>().join(", "),
    };
    let text = format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': ({lengths}), }}");
    let before = 10 + text.len() + 1;
    let padded = text + &" ".repeat(before.next_multiple_of(64) - before) + "\n";
    let length = u16::try_from(padded.len()).expect("a shape of at most a few axes").to_le_bytes();
    [&b"\x93NUMPY\x01\x00"[..], &length, padded.as_bytes()].concat()
}

/// Returns NumPy's name of a dtype, and the dtype that NumPy has in its place.
fn in_numpy(dtype: DType) -> (&'static str, DType) {
    match dtype {
        DType::F16 => ("<f2", dtype),
        DType::F64 => ("<f8", dtype),
        DType::I64 => ("<i8", dtype),
        DType::Bool => ("|b1", dtype),
        _ => ("<f4", DType::F32),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::readers::npz_arrays;

    /// The headers that NumPy 2 writes.
    #[test]
    fn headers_are_those_of_numpy() {
        for (shape, words) in [(&[][..], "()"), (&[3][..], "(3,)"), (&[3, 4][..], "(3, 4)")] {
            let header = header("<f4", shape);
            assert_eq!(header.len() % 64, 0);
            let text = std::str::from_utf8(&header[10..]).unwrap();
            assert_eq!(text.trim_end(), format!("{{'descr': '<f4', 'fortran_order': False, 'shape': {words}, }}"));
            assert!(text.ends_with('\n'));
        }
    }

    #[test]
    fn arrays_are_read_again() -> Result<()> {
        let folder = std::env::temp_dir().join(format!("precast-npz-{}", std::process::id()));
        std::fs::create_dir_all(&folder).map_err(|error| Error::io(&folder, &error))?;
        let floats = Tensor::from_f64(&[0.5, -1.25, 3.0, 65504.0, 0.0, 2.0], &[2, 3], DType::F32)?;
        let given = [
            ("a", floats.clone()),
            ("b", floats.cast(DType::F16)),
            ("c", floats.cast(DType::Bf16)),
            ("d", Tensor::from_vec(vec![1i64, -(1 << 40)], &[2])?),
            ("e", Tensor::from_vec(vec![true, false], &[2, 1])?),
            ("f", Tensor::full(&[], 7.0, DType::F64)),
        ];
        let file = folder.join("x.npz");
        write_npz(&file, given.iter().map(|(name, x)| (*name, x)))?;
        let met = npz_arrays(&file)?;
        std::fs::remove_dir_all(&folder).ok();
        assert_eq!(met.len(), given.len());
        for ((name, x), (met_name, met)) in given.iter().zip(&met) {
            assert_eq!((*name, x.shape(), x.to_f64()), (&met_name[..], met.shape(), met.to_f64()));
        }
        Ok(())
    }

    #[test]
    fn an_array_is_written_before_the_next_is_taken() -> Result<()> {
        let folder = std::env::temp_dir().join(format!("precast-npz-parts-{}", std::process::id()));
        std::fs::create_dir_all(&folder).map_err(|error| Error::io(&folder, &error))?;
        let files = || std::fs::read_dir(&folder).unwrap();
        let written = || files().map(|file| file.unwrap().metadata().unwrap().len()).sum::<u64>();
        let x = Tensor::ones(&[1 << 16], DType::F32);
        let arrays = ["a", "b", "c"].into_iter().enumerate().map(|(before, name)| {
            assert!(written() >= (before as u64) << 18, "{name}: {}", written());
            (name, &x)
        });
        write_npz(folder.join("x.npz"), arrays)?;
        assert_eq!(npz_arrays(folder.join("x.npz"))?.len(), 3);
        std::fs::remove_dir_all(&folder).map_err(|error| Error::io(&folder, &error))
    }
}
