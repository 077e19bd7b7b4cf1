//! Files of rows of equal length, read by position.

use std::{
    fs::{File, Metadata},
    io::{self, Write},
    time::SystemTime,
};

use precast::error::{Error, Result};
use precast_base::files;

/// A file with a row of equally many bytes for each example.
#[derive(Debug)]
pub(super) struct Rows {
    file: File,
    origin: String,
    /// Position of the first row.
    start: u64,
    /// Bytes of a row.
    each: usize,
    state: State,
    #[cfg(not(any(unix, windows)))]
    lock: std::sync::Mutex<()>,
}

/// State of a file that changes when it is written.
pub(super) type State = (u64, Option<SystemTime>);

/// Words for a file whose state is another one.
pub(super) const CHANGED: &str = "the file was changed or cut while it was in use";

/// Returns the state of a file.
pub(super) fn state_of(of: &Metadata) -> State {
    (of.len(), of.modified().ok())
}

fn state(file: &File) -> io::Result<State> {
    file.metadata().map(|of| state_of(&of))
}

impl Rows {
    /// Reads rows of `each` bytes from a file, the first at `start`; `origin` names the file in errors.
    pub fn of(file: File, origin: &str, start: u64, each: usize) -> Result<Rows> {
        let state = state(&file).map_err(|error| failed(origin, &error))?;
        Ok(Rows {
            file,
            origin: origin.into(),
            start,
            each,
            state,
            #[cfg(not(any(unix, windows)))]
            lock: Default::default(),
        })
    }

    /// Writes rows of `each` bytes to a temporary file, for reading. `write` writes them; `origin` names their source.
    pub fn written<T>(origin: &str, each: usize, write: impl FnOnce(&mut dyn Write) -> Result<T>) -> Result<(Rows, T)> {
        let mut file = io::BufWriter::with_capacity(1 << 16, files::temporary()?);
        let answer = write(&mut file)?;
        let file = file.into_inner().map_err(|error| failed(origin, error.error()))?;
        Ok((Rows::of(file, origin, 0, each)?, answer))
    }

    pub fn origin(&self) -> &str {
        &self.origin
    }

    /// Reads the rows at some places, one after another.
    ///
    /// # Errors
    /// [`ErrorKind::Data`](precast::ErrorKind::Data) with the file and the example if the file was changed since it was
    /// opened, [`ErrorKind::Io`](precast::ErrorKind::Io) if it cannot be read.
    pub fn read(&self, places: &[usize]) -> Result<Vec<u8>> {
        let mut bytes = vec![0; places.len() * self.each];
        let Some(&first) = places.first() else { return Ok(bytes) };
        if state(&self.file).map_err(|error| failed(&self.origin, &error))? != self.state {
            return Err(self.changed(first));
        }
        let mut rest = &mut bytes[..];
        // Rows that follow one another are read together.
        for run in places.chunk_by(|before, next| before + 1 == *next) {
            let (rows, others) = rest.split_at_mut(run.len() * self.each);
            let place = self.start + run[0] as u64 * self.each as u64;
            self.read_at(rows, place).map_err(|error| match error.kind() {
                io::ErrorKind::UnexpectedEof => self.changed(run[0]),
                _ => failed(&format!("{}: example {}", self.origin, run[0]), &error),
            })?;
            rest = others;
        }
        Ok(bytes)
    }

    fn changed(&self, example: usize) -> Error {
        Error::data(format!("{}: example {example} cannot be read: {CHANGED}", self.origin))
    }

    /// Reads bytes from a position of the file.
    #[cfg(unix)]
    pub fn read_at(&self, bytes: &mut [u8], place: u64) -> io::Result<()> {
        std::os::unix::fs::FileExt::read_exact_at(&self.file, bytes, place)
    }

    #[cfg(windows)]
    pub fn read_at(&self, mut bytes: &mut [u8], mut place: u64) -> io::Result<()> {
        while !bytes.is_empty() {
            let read = std::os::windows::fs::FileExt::seek_read(&self.file, bytes, place)?;
            if read == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            (bytes, place) = (&mut bytes[read..], place + read as u64);
        }
        Ok(())
    }

    #[cfg(not(any(unix, windows)))]
    pub fn read_at(&self, bytes: &mut [u8], place: u64) -> io::Result<()> {
        use std::io::{Read as _, Seek as _};
        let _alone = self.lock.lock();
        let mut file = &self.file;
        file.seek(io::SeekFrom::Start(place))?;
        file.read_exact(bytes)
    }
}

/// Describes a failure of reading or writing; `origin` names the file.
pub(super) fn failed(origin: &str, error: &io::Error) -> Error {
    Error::io(origin.as_ref(), error)
}
