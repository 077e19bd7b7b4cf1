//! Reading files within limits, and replacing them in one step.

use std::{
    fs,
    io::{self, Read as _, Write as _},
    path::{Path, PathBuf},
    sync::atomic::{AtomicUsize, Ordering},
};

use crate::error::{Error, Result};

/// The text of a file that is not longer than a limit.
///
/// # Errors
/// [`ErrorKind::Io`](crate::ErrorKind::Io) when it cannot be read, is longer, or is not UTF-8.
pub(crate) fn read_text(path: &Path, limit: usize) -> Result<String> {
    let read = || -> io::Result<String> {
        let mut bytes = Vec::new();
        fs::File::open(path)?.take(limit as u64 + 1).read_to_end(&mut bytes)?;
        if bytes.len() > limit {
            return Err(io::Error::other(format!("longer than {limit} bytes, the most that is read")));
        }
        String::from_utf8(bytes).map_err(|_| io::Error::other("not a text in UTF-8"))
    };
    read().map_err(|e| Error::io(path, &e))
}

/// The bytes of a file.
///
/// # Errors
/// [`ErrorKind::Io`](crate::ErrorKind::Io) when it cannot be read.
pub(crate) fn read(path: &Path) -> Result<Vec<u8>> {
    fs::read(path).map_err(|e| Error::io(path, &e))
}

/// Writes a file in one step: whoever reads it, even after a crash, meets the whole old or the whole new one.
///
/// # Errors
/// [`ErrorKind::Io`](crate::ErrorKind::Io) when it cannot be written; an older file then stays as it was.
pub(crate) fn replace(path: &Path, bytes: &[u8]) -> Result<()> {
    let new = beside(path);
    let write = || -> io::Result<()> {
        let mut file = fs::File::create_new(&new)?;
        file.write_all(bytes)?;
        file.sync_all()?;
        fs::rename(&new, path)
    };
    write().map_err(|e| {
        // What is left of the new file is of no use; that it cannot be removed matters less than why it was not written.
        let _ = fs::remove_file(&new);
        Error::io(path, &e)
    })
}

/// A name in the same folder that nobody else uses.
fn beside(path: &Path) -> PathBuf {
    static COUNT: AtomicUsize = AtomicUsize::new(0);
    let mut name = path.as_os_str().to_owned();
    name.push(format!(".{}-{}.tmp", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed)));
    name.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_replaced_whole_or_not_at_all() {
        let dir = std::env::temp_dir().join(format!("precast-files-{}", std::process::id()));
        fs::create_dir_all(&dir).unwrap();
        let path = dir.join("a.txt");
        replace(&path, b"old").unwrap();
        replace(&path, b"new").unwrap();
        assert_eq!(read_text(&path, 3).unwrap(), "new");
        assert!(read_text(&path, 2).unwrap_err().to_string().contains("longer than 2 bytes"));

        // A folder cannot be replaced by a file: the error names it, and nothing is left beside it.
        let folder = dir.join("folder");
        fs::create_dir_all(folder.join("inside")).unwrap();
        assert!(replace(&folder, b"x").unwrap_err().to_string().contains("folder"));
        assert_eq!(fs::read_dir(&dir).unwrap().count(), 2);
        fs::remove_dir_all(&dir).unwrap();
    }
}
