//! Reading files within limits, and replacing them in one step.

use std::{
    fs::{self, File},
    io::{self, Read as _, Write as _},
    path::{Path, PathBuf},
    sync::atomic::{AtomicUsize, Ordering},
};

use crate::{
    error::{Error, Result},
    formats,
};

/// Description of a Git LFS pointer, for error messages.
pub const POINTER: &str = "a pointer of Git LFS in place of the file itself, which `git lfs pull` fetches";

/// Returns whether a file is a pointer that Git LFS leaves in place of a large file, judging by its first bytes, at
/// least eight.
pub fn is_pointer(bytes: &[u8]) -> bool {
    const FIRST: &[u8] = b"version https://git-lfs.github.com/spec/";
    bytes.len() >= 8 && bytes.iter().zip(FIRST).all(|(met, first)| met == first)
}

/// Rejects a Git LFS pointer.
pub fn not_a_pointer(bytes: Vec<u8>) -> io::Result<Vec<u8>> {
    if is_pointer(&bytes) { Err(io::Error::other(POINTER)) } else { Ok(bytes) }
}

/// Reads the text of a file that is not longer than a limit.
///
/// # Errors
/// As [`read_within`], and when the text is not UTF-8.
pub fn read_text(path: &Path, limit: usize) -> Result<String> {
    let bytes = read_within(path, limit)?;
    String::from_utf8(bytes).map_err(|error| {
        let bytes = error.as_bytes();
        let words = match (bytes, formats::other(&bytes[..bytes.len().min(formats::FIRST)], formats::Reader::Text)) {
            ([0xff, 0xfe, ..] | [0xfe, 0xff, ..], _) => {
                "a text in UTF-16, as `>` of PowerShell writes it; expected UTF-8, which `| Out-File -Encoding utf8` writes".into()
            }
            (_, Some(words)) => words,
            _ => {
                let valid = error.utf8_error().valid_up_to();
                let line = 1 + bytes[..valid].iter().filter(|byte| **byte == b'\n').count();
                format!("line {line} is not a text in UTF-8")
            }
        };
        Error::io(path, &io::Error::other(words))
    })
}

/// Reads the bytes of a file that is not longer than a limit. A longer file is not read if its length is known. From a
/// pipe, whose length is not known, one byte more than the limit is read.
///
/// # Errors
/// [`ErrorKind::Io`](crate::ErrorKind::Io) when the file cannot be read, is longer, or is a Git LFS pointer.
pub fn read_within(path: &Path, limit: usize) -> Result<Vec<u8>> {
    let read = || -> io::Result<Vec<u8>> {
        let too_long = || io::Error::other(format!("longer than {limit} bytes, the most that is read"));
        let file = File::open(path)?;
        let met = file.metadata()?;
        if met.is_file() && met.len() > limit as u64 {
            return Err(too_long());
        }
        let mut bytes = Vec::new();
        file.take(limit as u64 + 1).read_to_end(&mut bytes)?;
        if bytes.len() > limit { Err(too_long()) } else { not_a_pointer(bytes) }
    };
    read().map_err(|e| Error::io(path, &e))
}

/// Reads the bytes of a file.
///
/// # Errors
/// [`ErrorKind::Io`](crate::ErrorKind::Io) when the file cannot be read, or is a Git LFS pointer.
pub fn read(path: &Path) -> Result<Vec<u8>> {
    fs::read(path).and_then(not_a_pointer).map_err(|e| Error::io(path, &e))
}

/// Writes a file in one step: a reader finds either the complete old file or the complete new one, even after a crash.
/// The bytes are written to a new file in the same folder, which then takes the name and the permissions of the old
/// one. Links are followed. Devices and pipes, such as `/dev/stdout`, cannot be replaced and are written to directly.
///
/// # Errors
/// [`ErrorKind::Io`](crate::ErrorKind::Io) when the file cannot be written or is read-only. An existing file is then
/// unchanged.
pub fn replace(path: impl AsRef<Path>, bytes: &[u8]) -> Result<()> {
    let path = path.as_ref();
    replace_by(path, |file| file.write_all(bytes).map_err(|e| Error::io(path, &e)))
}

/// Writes a file in one step, as [`replace`] does, if it is not longer than [the limit](read_within) within which it is
/// read again.
///
/// # Errors
/// Those of [`replace`], and [`ErrorKind::Io`](crate::ErrorKind::Io) for a longer file.
pub fn replace_within(path: impl AsRef<Path>, bytes: &[u8], limit: usize) -> Result<()> {
    let path = path.as_ref();
    if bytes.len() > limit {
        let words = format!("it would have {} bytes; at most {limit} can be read again", bytes.len());
        return Err(Error::io(path, &io::Error::other(words)));
    }
    replace(path, bytes)
}

/// Opens a file that grows line by line, or makes it. After a crash, its last line may lack its end.
///
/// # Errors
/// [`ErrorKind::Io`](crate::ErrorKind::Io) when the file can neither be opened nor made.
pub fn open_lines(path: &Path) -> Result<File> {
    File::options().create(true).append(true).read(true).open(path).map_err(|e| Error::io(path, &e))
}

/// Checks that [`replace`] can write a file to a path. Changes nothing.
///
/// # Errors
/// [`ErrorKind::Io`](crate::ErrorKind::Io) when the path is a folder or a read-only file, or no file can be created
/// next to it.
pub fn check_writable(path: impl AsRef<Path>) -> Result<()> {
    let path = path.as_ref();
    let check = || match target(path)? {
        Target::Device => File::options().write(true).open(path).map(drop),
        Target::File(path) if path.is_dir() => Err(io::ErrorKind::IsADirectory.into()),
        Target::File(path) => {
            permissions(&path)?;
            let (file, new) = create_beside(&path)?;
            drop(file);
            fs::remove_file(new)
        }
    };
    check().map_err(|e| Error::io(path, &e))
}

/// Replaces a file, as [`replace`] does, with the bytes that `write` writes to the new one. The file is replaced when
/// `write` succeeds, and is unchanged when it fails.
///
/// # Errors
/// Those of [`replace`] and of `write`.
pub fn replace_by<T>(path: &Path, write: impl FnOnce(&mut File) -> Result<T>) -> Result<T> {
    let (staged, answer) = stage(path, write)?;
    staged.put()?;
    Ok(answer)
}

/// Writes the new contents of a file next to it, without replacing it yet.
///
/// # Errors
/// Those of [`replace`] and of `write`.
pub fn stage<T>(path: &Path, write: impl FnOnce(&mut File) -> Result<T>) -> Result<(Staged, T)> {
    let failed = |e: io::Error| Error::io(path, &e);
    match target(path).map_err(failed)? {
        Target::Device => {
            let answer = write(&mut File::options().write(true).open(path).map_err(failed)?)?;
            Ok((Staged { new: None, to: path.to_path_buf(), path: path.to_path_buf() }, answer))
        }
        Target::File(to) => {
            let permissions = permissions(&to).map_err(failed)?;
            let (mut file, new) = create_beside(&to).map_err(failed)?;
            let staged = Staged { new: Some(new), to, path: path.to_path_buf() };
            permissions.map_or(Ok(()), |permissions| file.set_permissions(permissions)).map_err(failed)?;
            let answer = write(&mut file)?;
            file.sync_all().map_err(failed)?;
            Ok((staged, answer))
        }
    }
}

/// New contents of a file, removed on drop unless they have replaced it.
#[derive(Debug)]
#[must_use = "the file is not replaced yet"]
pub struct Staged {
    /// The file that has them; `None` for a device.
    new: Option<PathBuf>,
    /// The file that is replaced, and the path of which it is the target.
    to: PathBuf,
    path: PathBuf,
}

impl Staged {
    /// Replaces the file.
    ///
    /// # Errors
    /// [`ErrorKind::Io`](crate::ErrorKind::Io) when it cannot be replaced.
    pub fn put(mut self) -> Result<()> {
        let Some(new) = &self.new else { return Ok(()) };
        fs::rename(new, &self.to).and_then(|()| sync_folder(&self.to)).map_err(|e| Error::io(&self.path, &e))?;
        self.new = None;
        Ok(())
    }

    /// Replaces files that belong together: the parts, then this one, which names them. It is removed before, so that a
    /// crash in between leaves no file that names the parts of another.
    ///
    /// # Errors
    /// [`ErrorKind::Io`](crate::ErrorKind::Io) when a file cannot be replaced.
    pub fn put_with(self, parts: Vec<Staged>) -> Result<()> {
        if !parts.is_empty() && self.new.is_some() {
            remove(&self.to)?;
        }
        parts.into_iter().try_for_each(Staged::put)?;
        self.put()
    }
}

impl Drop for Staged {
    fn drop(&mut self) {
        if let Some(new) = &self.new {
            // An error here would hide the cause of the failed write.
            let _ = fs::remove_file(new);
        }
    }
}

/// Removes a file for good, if it is there.
///
/// # Errors
/// [`ErrorKind::Io`](crate::ErrorKind::Io) when it cannot be removed.
pub fn remove(path: &Path) -> Result<()> {
    match fs::remove_file(path).and_then(|()| sync_folder(path)) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(Error::io(path, &error)),
        _ => Ok(()),
    }
}

/// Creates a temporary file that has no name, or loses it when it is closed: nothing is left of it, however the process
/// ends. It is in the folder `TMPDIR`, or else in `/var/tmp`, which is on a disk even where `/tmp` is in memory.
///
/// # Errors
/// [`ErrorKind::Io`](crate::ErrorKind::Io) when it cannot be created.
pub fn temporary() -> Result<File> {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    let on_disk = Path::new("/var/tmp");
    let folder = match std::env::var_os("TMPDIR") {
        None if cfg!(unix) && on_disk.is_dir() => on_disk.to_path_buf(),
        _ => std::env::temp_dir(),
    };
    loop {
        let name = format!("precast-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let path = folder.join(name);
        let mut options = File::options();
        options.read(true).write(true).create_new(true);
        #[cfg(windows)]
        {
            const DELETE_ON_CLOSE: u32 = 0x0400_0000;
            std::os::windows::fs::OpenOptionsExt::custom_flags(&mut options, DELETE_ON_CLOSE);
        }
        match options.open(&path) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(Error::io(&path, &error)),
            Ok(file) => {
                #[cfg(unix)]
                fs::remove_file(&path).map_err(|error| Error::io(&path, &error))?;
                return Ok(file);
            }
        }
    }
}

/// Creates a folder in one step: `write` fills a new folder next to it, which then takes the name. An existing folder
/// of that name is first moved aside and removed at the end; between these two steps there is none.
///
/// # Errors
/// [`ErrorKind::Io`](crate::ErrorKind::Io) when the folder cannot be created, and those of `write`. An existing folder
/// is then unchanged.
pub fn replace_folder<T>(path: &Path, write: impl FnOnce(&Path) -> Result<T>) -> Result<T> {
    let failed = |e: io::Error| Error::io(path, &e);
    let new = make_beside(path).map_err(failed)?;
    let whole = write(&new).and_then(|answer| {
        sync_folder(&new.join("a file")).map_err(failed)?;
        let old = match path.exists() {
            true => {
                let old = make_beside(path).map_err(failed)?;
                fs::remove_dir(&old).and_then(|()| fs::rename(path, &old)).map_err(failed)?;
                Some(old)
            }
            false => None,
        };
        if let Err(error) = fs::rename(&new, path) {
            if let Some(old) = &old {
                let _ = fs::rename(old, path);
            }
            return Err(failed(error));
        }
        sync_folder(path).map_err(failed)?;
        old.map_or(Ok(()), fs::remove_dir_all).map_err(failed)?;
        Ok(answer)
    });
    whole.inspect_err(|_| {
        // An error while removing the incomplete folder would hide the cause of the failure.
        let _ = fs::remove_dir_all(&new);
    })
}

/// Makes the new name of a file durable, where folders can be synced.
fn sync_folder(file: &Path) -> io::Result<()> {
    match file.parent() {
        #[cfg(unix)]
        Some(folder) => File::open(if folder.as_os_str().is_empty() { Path::new(".") } else { folder })?.sync_all(),
        _ => Ok(()),
    }
}

/// The target of a path.
enum Target {
    /// A file, existing or not, with links followed.
    File(PathBuf),
    /// A terminal, a pipe or a device, which cannot be replaced.
    Device,
}

fn target(path: &Path) -> io::Result<Target> {
    match fs::metadata(path) {
        Ok(met) if met.is_file() || met.is_dir() => fs::canonicalize(path).map(Target::File),
        Ok(_) => Ok(Target::Device),
        // A link is followed even if its target does not exist yet. A cycle of links is a separate error.
        Err(error) if error.kind() == io::ErrorKind::NotFound => match fs::read_link(path) {
            Ok(to) => target(&path.parent().unwrap_or(Path::new("")).join(to)),
            Err(_) => Ok(Target::File(path.to_path_buf())),
        },
        Err(error) => Err(error),
    }
}

/// Returns the permissions of the file to be replaced, which the new file takes over.
///
/// # Errors
/// When the file is read-only, even if its folder permits replacing it.
fn permissions(path: &Path) -> io::Result<Option<fs::Permissions>> {
    match fs::metadata(path) {
        Ok(met) if met.is_file() && met.permissions().readonly() => {
            Err(io::Error::new(io::ErrorKind::PermissionDenied, "the file is read-only"))
        }
        Ok(met) if met.is_file() => Ok(Some(met.permissions())),
        _ => Ok(None),
    }
}

/// Creates a new file in the same folder, under an unused name.
fn create_beside(path: &Path) -> io::Result<(File, PathBuf)> {
    beside(path, |new| File::create_new(new))
}

/// Creates a new folder in the same folder, under an unused name.
fn make_beside(path: &Path) -> io::Result<PathBuf> {
    beside(path, |new| fs::create_dir(new)).map(|((), new)| new)
}

fn beside<T>(path: &Path, make: impl Fn(&Path) -> io::Result<T>) -> io::Result<(T, PathBuf)> {
    static COUNT: AtomicUsize = AtomicUsize::new(0);
    loop {
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let new = path.with_file_name(format!(".precast-{}-{count}.tmp", std::process::id()));
        match make(&new) {
            // A leftover of an earlier process with the same id that was killed.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => continue,
            made => return made.map(|made| (made, new)),
        }
    }
}

#[cfg(test)]
mod tests;
