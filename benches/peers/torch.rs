//! torch in a process of its own, which is asked for one time after the other.

use std::{
    io::{BufRead, BufReader, Write},
    process::{Child as Process, ChildStdin, ChildStdout, Command, Stdio},
};

/// The process.
pub struct Torch {
    process: Process,
    ask: ChildStdin,
    answers: BufReader<ChildStdout>,
}

impl Torch {
    pub fn start(python: &str) -> std::io::Result<(Torch, String)> {
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/benches/peers/torch_times.py");
        let mut process = Command::new(python).arg(script).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let ask = process.stdin.take().expect("it is piped");
        let answers = BufReader::new(process.stdout.take().expect("it is piped"));
        let mut torch = Torch { process, ask, answers };
        let version = torch.line()?;
        Ok((torch, version))
    }

    fn line(&mut self) -> std::io::Result<String> {
        let mut line = String::new();
        self.answers.read_line(&mut line)?;
        Ok(line.trim().to_string())
    }

    /// Seconds per step of a network, or per call of an op, or why there are none.
    pub fn time(&mut self, name: &str, mode: &str, threads: usize, steps: usize) -> std::result::Result<f64, String> {
        writeln!(self.ask, "{name} {mode} {threads} {steps}").map_err(|e| e.to_string())?;
        let line = self.line().map_err(|e| e.to_string())?;
        line.parse().map_err(|_| line)
    }
}

impl Drop for Torch {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// The middle one.
pub fn median(mut numbers: Vec<f64>) -> f64 {
    numbers.sort_by(f64::total_cmp);
    numbers[numbers.len() / 2]
}
