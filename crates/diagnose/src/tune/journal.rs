//! The file of runs that makes a search resumable.

use std::{
    collections::HashMap,
    fs::{File, TryLockError},
    io::{self, Write as _},
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};

use precast::error::{Error, Result};

/// One line of the file: the error of one set of lowered cells.
#[derive(Debug, Serialize, Deserialize)]
struct Line {
    /// Hash of the problem: parameters, batches, policy and metric.
    problem: String,
    /// A digit for each cell that can be lowered: 1 if it was. The last is 1 if the root ran in f32.
    low: String,
    /// The error; `None` if it was not finite.
    error: Option<f64>,
    /// Seconds of the run.
    seconds: f64,
}

/// The runs of one problem that are known.
#[derive(Debug, Default)]
pub(super) struct Journal {
    /// The file to which runs are added, locked against other searches while this value lives.
    file: Option<(PathBuf, File)>,
    problem: String,
    known: HashMap<String, f64>,
}

/// The largest file that is read: a hundred thousand runs of a network with ten thousand cells, which no search makes.
const MOST_BYTES: usize = 1 << 30;

/// The first bytes of a line, by which one that was cut off is recognized.
const BEGINS: &str = "{\"problem\":\"";

impl Journal {
    /// Reads the runs of a problem from a file, which is made if there is none. A last line without its end was cut off
    /// when the search was stopped, and is removed.
    pub fn open(file: Option<&Path>, problem: u64) -> Result<Self> {
        let problem = format!("{problem:016x}");
        let mut journal = Journal { problem, ..Journal::default() };
        let Some(path) = file else { return Ok(journal) };
        let failed = |error: io::Error| Error::io(path, &error);
        let file = precast_base::files::open_lines(path)?;
        match file.try_lock() {
            Err(TryLockError::WouldBlock) => {
                let words =
                    format!("{}: another search writes to this file; give one of them another name", path.display());
                return Err(Error::value(words));
            }
            Err(TryLockError::Error(error)) => return Err(failed(error)),
            Ok(()) => {}
        }
        let text = precast_base::files::read_text(path, MOST_BYTES)?;
        let whole = text.rfind('\n').map_or(0, |end| end + 1);
        for (i, text) in text[..whole].lines().enumerate() {
            let line: Line = serde_json::from_str(text).map_err(|error| {
                Error::value(format!("expected a run of a search, got {error}")).at(path.display(), i + 1, None)
            })?;
            if line.problem == journal.problem {
                journal.known.insert(line.low, line.error.unwrap_or(f64::INFINITY));
            }
        }
        if !BEGINS.bytes().zip(text[whole..].bytes()).all(|(expected, met)| expected == met) {
            let line = text[..whole].lines().count() + 1;
            return Err(Error::value(format!("{}:{line}: expected a run of a search", path.display())));
        }
        if whole < text.len() {
            file.set_len(whole as u64).map_err(failed)?;
        }
        journal.file = Some((path.to_path_buf(), file));
        Ok(journal)
    }

    fn digits(low: &[bool]) -> String {
        low.iter().map(|low| if *low { '1' } else { '0' }).collect()
    }

    /// Returns the error of a set that was run before.
    pub fn find(&self, low: &[bool]) -> Option<f64> {
        self.known.get(&Journal::digits(low)).copied()
    }

    /// Adds a run.
    pub fn add(&mut self, low: &[bool], error: f64, seconds: f64) -> Result<()> {
        let low = Journal::digits(low);
        self.known.insert(low.clone(), error);
        let Some((path, file)) = &mut self.file else { return Ok(()) };
        let line = Line { problem: self.problem.clone(), low, error: Some(error).filter(|e| e.is_finite()), seconds };
        let line = serde_json::to_string(&line).map_err(|error| Error::value(error.to_string()))?;
        file.write_all(format!("{line}\n").as_bytes()).map_err(|error| Error::io(path, &error))
    }
}

/// A hash of numbers (FNV-1a).
pub(super) struct Hash(pub u64);

impl Hash {
    pub fn new() -> Self {
        Hash(0xcbf2_9ce4_8422_2325)
    }

    pub fn bytes(&mut self, bytes: &[u8]) {
        self.0 = bytes.iter().fold(self.0, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3));
    }

    pub fn numbers(&mut self, numbers: &[f64]) {
        numbers.iter().for_each(|number| self.bytes(&number.to_bits().to_le_bytes()));
    }
}
