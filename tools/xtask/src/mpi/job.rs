//! Jobs: several ranks of a command that a launcher starts, or one process without one.

use std::{
    fs::{self, File},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::atomic::{AtomicUsize, Ordering},
    thread,
    time::{Duration, Instant},
};

use crate::shell::Result;
use crate::shell::in_file;

/// The environment variable by which the processes of a job are found.
const JOB: &str = "PRECAST_XTASK_JOB";

/// Time after which a job hangs: far above the deadline of its ranks.
const HANGS: Duration = Duration::from_secs(90);

/// A job under way, which ends with this value.
pub struct Job {
    child: Child,
    name: String,
    begun: Instant,
    /// The files with its words.
    words: [PathBuf; 2],
}

/// The words of a job, and its end.
pub struct Ended {
    /// `None` for one that hangs, and for one that a signal has ended.
    pub code: Option<i32>,
    pub is_hung: bool,
    /// The time for which its end was waited for.
    pub waited: Duration,
    /// Standard output, and standard error.
    pub said: String,
}

impl Job {
    /// Starts a job, whose words are written to files beside `words`.
    pub fn start(command: &mut Command, words: &Path) -> Result<Self> {
        static JOBS: AtomicUsize = AtomicUsize::new(0);
        let name = format!("{}-{}", std::process::id(), JOBS.fetch_add(1, Ordering::Relaxed));
        let words = ["stdout", "stderr"].map(|name| words.with_extension(name));
        let [stdout, stderr] = [0, 1].map(|i| File::create(&words[i]).map_err(|error| in_file(&words[i], error)));
        command.env(JOB, &name).stdin(Stdio::null()).stdout(stdout?).stderr(stderr?);
        let child = command.spawn().map_err(|error| format!("{command:?}: {error}"))?;
        Ok(Job { child, name, begun: Instant::now(), words })
    }

    /// Waits until a condition holds, and returns whether the job is still running then.
    pub fn until(&mut self, condition: impl Fn() -> bool) -> bool {
        while !condition() {
            if self.has_ended() || self.begun.elapsed() > HANGS {
                return false;
            }
            thread::sleep(Duration::from_micros(200));
        }
        !self.has_ended()
    }

    /// Sends a signal to a rank, and returns whether it was there.
    pub fn signal(&self, signal: &str, rank: usize) -> bool {
        self.processes().into_iter().any(|(process, of)| of == Some(rank) && send(signal, process))
    }

    /// Waits for the end, and ends a job that hangs.
    pub fn end(mut self) -> Ended {
        let since = Instant::now();
        while !self.has_ended() && since.elapsed() < HANGS {
            thread::sleep(Duration::from_millis(2));
        }
        let (is_hung, waited) = (!self.has_ended(), since.elapsed());
        self.kill();
        let code = self.child.wait().ok().and_then(|status| status.code()).filter(|_| !is_hung);
        let said = self.words.iter().map(|file| fs::read(file).unwrap_or_default());
        let said = said.map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).collect::<Vec<_>>().join("\n");
        Ended { code, is_hung, waited, said }
    }

    fn has_ended(&mut self) -> bool {
        !matches!(self.child.try_wait(), Ok(None))
    }

    /// Kills what is left of the job.
    fn kill(&mut self) {
        if !self.has_ended() {
            let _ = self.child.kill();
        }
        for (process, _) in self.processes() {
            send("-KILL", process);
        }
    }

    /// Returns the processes of the job, and which rank each of them is.
    fn processes(&self) -> Vec<(u32, Option<usize>)> {
        let of_process = |entry: fs::DirEntry| {
            let process = entry.file_name().to_str()?.parse().ok()?;
            let variables = fs::read(entry.path().join("environ")).ok()?;
            let variables = String::from_utf8_lossy(&variables).into_owned();
            let value = |name: &str| variables.split('\0').find_map(|met| met.strip_prefix(name)?.strip_prefix('='));
            let rank = value("OMPI_COMM_WORLD_RANK").or_else(|| value("PMI_RANK"));
            (value(JOB)? == self.name).then(|| (process, rank.and_then(|rank| rank.parse().ok())))
        };
        fs::read_dir("/proc").into_iter().flatten().flatten().filter_map(of_process).collect()
    }
}

impl Drop for Job {
    fn drop(&mut self) {
        self.kill();
        let _ = self.child.wait();
    }
}

fn send(signal: &str, process: u32) -> bool {
    Command::new("kill").args([signal, &process.to_string()]).stderr(Stdio::null()).status().is_ok_and(|s| s.success())
}

impl Ended {
    /// Returns an error with all words if the job has failed.
    pub fn well(&self) -> Result {
        if self.code == Some(0) { Ok(()) } else { Err(self.shown("the job failed")) }
    }

    /// Returns an error if the job has not failed, or lacks some of these words.
    pub fn badly(&self, words: &[String]) -> Result {
        if self.code == Some(0) {
            return Err("the job ended well".into());
        }
        match words.iter().find(|words| !self.said.contains(*words)) {
            Some(words) => Err(format!("it does not say `{words}`")),
            None => Ok(()),
        }
    }

    /// Returns words about the job, with its own.
    pub fn shown(&self, words: &str) -> String {
        let end = match (self.is_hung, self.code) {
            (true, _) => "it hangs".into(),
            (_, Some(code)) => format!("exit code {code}"),
            (_, None) => "ended by a signal".to_string(),
        };
        format!("{words}; {end}\n{}", self.said)
    }
}
