//! Files: read within limits and replaced in one step, as by the package `precast-policy`; unpacked, and written in a
//! separate thread.

use std::{
    borrow::Cow,
    fs::File,
    io::{self, BufRead as _, BufReader, Read as _, Write as _},
    panic,
    path::Path,
    sync::mpsc::{self, Receiver, SyncSender},
    thread,
};

use flate2::bufread::GzDecoder;
#[doc(inline)]
pub use precast_base::files::{check_writable, replace};
pub(crate) use precast_base::files::{read, read_text, replace_by, replace_folder, replace_within};

use crate::error::{Error, ErrorKind, Result};

/// Returns the bytes of a file, unpacked if it is packed by gzip, up to a limit.
///
/// # Errors
/// [`ErrorKind::Data`] when decompression fails or exceeds the limit.
#[doc(hidden)]
pub fn unpacked(bytes: &[u8], limit: usize) -> Result<Cow<'_, [u8]>> {
    let mut unpacked = Cow::Borrowed(bytes);
    if is_packed(bytes) {
        let mut all = Vec::new();
        let read = Members::new(bytes).take(limit as u64 + 1).read_to_end(&mut all);
        read.map_err(|error| Error::data(error.to_string()))?;
        unpacked = Cow::Owned(all);
    }
    match unpacked.len() > limit {
        true => Err(Error::data(format!("longer than {} MiB", limit >> 20))),
        false => Ok(unpacked),
    }
}

/// Returns whether a file that starts with these bytes is packed by gzip.
#[doc(hidden)]
pub fn is_packed(start: &[u8]) -> bool {
    start.starts_with(&[0x1f, 0x8b])
}

/// Returns the bytes of a file as they are read, unpacked if it is packed by gzip.
///
/// # Errors
/// When its first bytes cannot be read.
#[doc(hidden)]
pub fn unpacking<'a>(file: impl io::Read + 'a) -> io::Result<Box<dyn io::Read + 'a>> {
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

/// Bytes that are written and not yet on the disk at most; see [`write_behind`].
const UNSYNCED: usize = 64 << 20;

/// Sender of bytes to the writing thread.
pub(crate) struct Writer {
    full: SyncSender<Vec<u8>>,
    empty: Receiver<Vec<u8>>,
}

impl Writer {
    /// Hands over a buffer and returns one for the next bytes. Blocks while two others are unwritten.
    ///
    /// # Errors
    /// When writing has failed. [`write_behind`] reports the cause, even if this error is ignored.
    pub fn put(&mut self, bytes: Vec<u8>) -> Result<Vec<u8>> {
        self.full.send(bytes).map_err(|_| Error::new(ErrorKind::Io, "writing has failed"))?;
        Ok(self.empty.try_recv().unwrap_or_default())
    }
}

/// Writes the buffers that `make` passes to its [`Writer`] to a file, in a separate thread, so that writing one
/// overlaps with making the next.
///
/// # Errors
/// [`ErrorKind::Io`] with this path when the file cannot be written, else that of `make`.
pub(crate) fn write_behind<T>(file: &mut File, path: &Path, make: impl FnOnce(&mut Writer) -> Result<T>) -> Result<T> {
    let ((full, to_write), (written, empty)) = (mpsc::sync_channel::<Vec<u8>>(2), mpsc::channel());
    let write = move || -> io::Result<()> {
        // Pipes and devices have nothing to sync.
        let keeps = file.metadata()?.is_file();
        let mut unsynced = 0;
        for bytes in to_write {
            file.write_all(&bytes)?;
            unsynced += bytes.len();
            if keeps && unsynced >= UNSYNCED {
                file.sync_data()?;
                unsynced = 0;
            }
            // After the last buffer the receiver is gone.
            let _ = written.send(bytes);
        }
        Ok(())
    };
    thread::scope(|scope| {
        let writing = thread::Builder::new().spawn_scoped(scope, write).map_err(|e| Error::io(path, &e))?;
        let made = make(&mut Writer { full, empty });
        match writing.join() {
            Ok(written) => written.map_err(|e| Error::io(path, &e)).and(made),
            Err(cause) => panic::resume_unwind(cause),
        }
    })
}

#[cfg(test)]
mod tests {
    use std::fs;

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

    #[test]
    fn what_is_written_behind_is_complete_and_in_order() {
        let path = std::env::temp_dir().join(format!("precast-files-behind-{}", std::process::id()));
        let written = replace_by(&path, |file| {
            write_behind(file, &path, |writer| {
                let mut bytes = Vec::new();
                for i in 0..100u8 {
                    bytes.clear();
                    bytes.extend([i; 1000]);
                    bytes = writer.put(bytes)?;
                }
                Ok(100)
            })
        });
        assert_eq!(written.unwrap(), 100);
        let expected: Vec<u8> = (0..100u8).flat_map(|i| [i; 1000]).collect();
        assert_eq!(fs::read(&path).unwrap(), expected);
        // The error of the producer, then that of the disk, which takes precedence.
        let refused = write_behind(&mut File::open(&path).unwrap(), &path, |_| Err::<(), _>(Error::value("no more")));
        assert_eq!(refused.unwrap_err().to_string(), "no more");
        let read_only = write_behind(&mut File::open(&path).unwrap(), &path, |writer| {
            (0..100).try_for_each(|_| writer.put(vec![0; 10]).map(drop))
        });
        let message = read_only.unwrap_err().to_string();
        assert!(message.starts_with(&path.display().to_string()), "{message}");
        fs::remove_file(path).unwrap();
    }
}
