//! torch in a separate process, which measures on request, so that the two libraries can alternate.

mod times;

use std::{
    io::{BufRead, BufReader, Write},
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
    thread,
    time::Duration,
};

pub use times::{fastest, median};

/// Command-line options of a bench.
pub struct Options {
    /// Path of a Python with torch.
    pub python: Option<String>,
    pub threads: usize,
    pub rounds: usize,
    /// File for a drawing.
    pub svg: Option<String>,
    /// Factor on the batch sizes.
    pub times: usize,
    /// Names to measure; everything when empty.
    pub names: Vec<String>,
}

impl Options {
    pub fn read(rounds: usize) -> Options {
        let mut options = Options { python: None, threads: 1, rounds, svg: None, times: 1, names: Vec::new() };
        let mut args = std::env::args().skip(1);
        while let Some(arg) = args.next() {
            let mut number = || args.next().and_then(|text| text.parse().ok()).expect("a number follows");
            match arg.as_str() {
                "--bench" => {}
                "--threads" => options.threads = number(),
                "--rounds" => options.rounds = number(),
                "--times" => options.times = number(),
                "--svg" => options.svg = args.next(),
                "--python" => options.python = args.next(),
                name => options.names.push(name.to_string()),
            }
        }
        options
    }
}

/// Returns the command for a script of this folder. If precast's vectors are limited to AVX2, so are those of torch and
/// its libraries.
pub fn python(python: &str, script: &str) -> Command {
    let mut command = Command::new(python);
    command.arg(format!("{}/benches/peers/{script}", env!("CARGO_MANIFEST_DIR")));
    if std::env::var("PRECAST_VECTORS").as_deref() == Ok("8") {
        let kept =
            [("ATEN_CPU_CAPABILITY", "avx2"), ("ONEDNN_MAX_CPU_ISA", "AVX2"), ("MKL_ENABLE_INSTRUCTIONS", "AVX2")];
        command.envs(kept);
    }
    command
}

/// A running torch process.
pub struct Torch {
    process: Child,
    ask: ChildStdin,
    answers: BufReader<ChildStdout>,
    threads: usize,
}

impl Torch {
    /// Starts a script of this folder, and returns it with its first line, which is torch's version and vectors.
    pub fn start(python: &str, script: &str, threads: usize) -> std::io::Result<(Torch, String)> {
        let mut process = self::python(python, script).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let ask = process.stdin.take().expect("it is piped");
        let answers = BufReader::new(process.stdout.take().expect("it is piped"));
        let mut torch = Torch { process, ask, answers, threads };
        let version = torch.line()?;
        Ok((torch, version))
    }

    fn line(&mut self) -> std::io::Result<String> {
        let mut line = String::new();
        self.answers.read_line(&mut line)?;
        Ok(line.trim().to_string())
    }

    /// Returns the seconds with which it answers a line, or the reason for failure.
    pub fn time(&mut self, line: &str) -> Result<f64, String> {
        writeln!(self.ask, "{line}").map_err(|e| e.to_string())?;
        let line = self.line().map_err(|e| e.to_string())?;
        if self.threads > 1 {
            // OpenMP's threads keep spinning for 200 ms after their work, on cores that we now use.
            thread::sleep(Duration::from_millis(250));
        }
        line.parse().map_err(|_| line)
    }
}

impl Drop for Torch {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
