//! Files packed by gzip.

use std::{
    borrow::Cow,
    io::{self, BufRead as _, BufReader, Read as _},
};

use flate2::bufread::GzDecoder;
use precast::error::{Error, Result};

/// Returns the bytes of a file, unpacked if it is packed by gzip, up to a limit.
///
/// # Errors
/// [`ErrorKind::Data`](precast::ErrorKind::Data) when decompression fails or exceeds the limit.
pub(crate) fn unpacked(bytes: &[u8], limit: usize) -> Result<Cow<'_, [u8]>> {
    let mut unpacked = Cow::Borrowed(bytes);
    if is_packed(bytes) {
        let mut all = Vec::new();
        let read = Members::new(bytes).take(limit as u64 + 1).read_to_end(&mut all);
        read.map_err(|error| Error::data(format!("{error}; a packed file that is cut, or was changed")))?;
        unpacked = Cow::Owned(all);
    }
    match unpacked.len() > limit {
        true => Err(Error::data(format!("longer than {} MiB", limit >> 20))),
        false => Ok(unpacked),
    }
}

/// Returns whether a file that starts with these bytes is packed by gzip.
pub(crate) fn is_packed(start: &[u8]) -> bool {
    start.starts_with(&[0x1f, 0x8b])
}

/// Returns the bytes of a file as they are read, unpacked if it is packed by gzip.
///
/// # Errors
/// When its first bytes cannot be read.
pub(crate) fn unpacking<'a>(file: impl io::Read + 'a) -> io::Result<Box<dyn io::Read + 'a>> {
    let mut file = BufReader::with_capacity(1 << 16, file);
    Ok(if is_packed(file.fill_buf()?) { Box::new(Members::new(file)) } else { Box::new(file) })
}

/// The unpacked members of a file of gzip, one after another. Zeros behind a member are skipped, as by `gzip`: tapes and
/// disks fill blocks with them.
struct Members<R>(Option<GzDecoder<R>>);

impl<R: io::BufRead> Members<R> {
    fn new(packed: R) -> Self {
        Members(Some(GzDecoder::new(packed)))
    }
}

impl<R: io::BufRead> io::Read for Members<R> {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        while let Some(member) = &mut self.0 {
            let count = member.read(to)?;
            if count > 0 || to.is_empty() {
                return Ok(count);
            }
            let packed = self.0.take().map(GzDecoder::into_inner);
            self.0 = packed.map(behind_zeros).transpose()?.flatten().map(GzDecoder::new);
        }
        Ok(0)
    }
}

/// Skips zeros; `None` if nothing follows.
fn behind_zeros<R: io::BufRead>(mut packed: R) -> io::Result<Option<R>> {
    loop {
        let bytes = packed.fill_buf()?;
        let (zeros, all) = (bytes.iter().take_while(|byte| **byte == 0).count(), bytes.len());
        packed.consume(zeros);
        if all == 0 || zeros < all {
            return Ok((all > 0).then_some(packed));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    /// As `gzip -d` and Python's `gzip` read them.
    #[test]
    fn members_of_gzip_are_joined_and_zeros_behind_them_are_skipped() {
        let packed = |text: &str| {
            let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
            packed.write_all(text.as_bytes()).unwrap();
            packed.finish().unwrap()
        };
        let all = [packed("ab"), packed(""), vec![0; 512], packed("c"), vec![0; 100_000]].concat();
        assert_eq!(*unpacked(&all, 3).unwrap(), *b"abc");
        let mut streamed = String::new();
        unpacking(&all[..]).unwrap().read_to_string(&mut streamed).unwrap();
        assert_eq!(streamed, "abc");
        for end in [&b"\0x"[..], b"abc", &packed("d")[..12]] {
            assert!(unpacked(&[&packed("ab"), end].concat(), 9).is_err(), "{end:?}");
        }
    }
}
