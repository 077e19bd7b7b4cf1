//! Files: read within limits and replaced in one step, as by the package `precast-policy`, and written in a separate
//! thread.

use std::{
    fs::File,
    io::{self, Write as _},
    panic,
    path::Path,
    sync::mpsc::{self, Receiver, SyncSender},
    thread,
};

#[doc(inline)]
pub use precast_base::files::{check_writable, replace};
pub(crate) use precast_base::files::{read, read_text, replace_by, replace_folder, replace_within};

use crate::error::{Error, ErrorKind, Result};

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
