//! torch, in a separate process. Both sides write messages: a line of JSON with the lengths of the arrays that follow,
//! and the arrays as little-endian f64, which represents every number of every dtype exactly.

use std::{
    io::{BufRead, BufReader, BufWriter, Read, Write},
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
};

use serde_json::{Value, json};

/// A running torch process, and its self-description.
pub struct Peer {
    process: Child,
    ask: BufWriter<ChildStdin>,
    answers: BufReader<ChildStdout>,
    pub version: String,
    pub vectors: String,
}

impl Peer {
    pub fn start(python: &str) -> Result<Peer, String> {
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/torch/peer.py");
        let mut process = Command::new(python)
            .args(["-B", "-W", "ignore", script])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|error| {
                format!("{python}: {error}; --python needs the path of a Python that has torch and numpy")
            })?;
        let ask = BufWriter::new(process.stdin.take().expect("it is piped"));
        let answers = BufReader::new(process.stdout.take().expect("it is piped"));
        let mut peer = Peer { process, ask, answers, version: String::new(), vectors: String::new() };
        let (about, _) = peer.read()?;
        let word = |name: &str| about[name].as_str().unwrap_or("unknown").to_string();
        (peer.version, peer.vectors) = (word("version"), word("vectors"));
        Ok(peer)
    }

    /// Sends a question, and reads the answer.
    pub fn ask(&mut self, mut question: Value, arrays: &[Vec<f64>]) -> Result<(Value, Vec<Vec<f64>>), String> {
        question["lengths"] = arrays.iter().map(Vec::len).collect();
        self.write(&question, arrays).map_err(|error| format!("torch's process takes no question: {error}"))?;
        self.read()
    }

    fn write(&mut self, question: &Value, arrays: &[Vec<f64>]) -> std::io::Result<()> {
        writeln!(self.ask, "{question}")?;
        for array in arrays {
            let bytes: Vec<u8> = array.iter().flat_map(|x| x.to_le_bytes()).collect();
            self.ask.write_all(&bytes)?;
        }
        self.ask.flush()
    }

    fn read(&mut self) -> Result<(Value, Vec<Vec<f64>>), String> {
        let mut line = String::new();
        self.answers.read_line(&mut line).map_err(|error| error.to_string())?;
        let head: Value = serde_json::from_str(&line).map_err(|_| "torch's process has ended".to_string())?;
        if let Some(why) = head.get("error") {
            return Err(format!("torch: {}", why.as_str().unwrap_or_default()));
        }
        let mut array = |length: &Value| {
            let mut bytes = vec![0; 8 * length.as_u64().unwrap_or(0) as usize];
            self.answers.read_exact(&mut bytes).map_err(|error| error.to_string())?;
            let number = |bytes: &[u8]| f64::from_le_bytes(bytes.try_into().expect("eight bytes"));
            Ok(bytes.chunks_exact(8).map(number).collect())
        };
        let lengths = head["lengths"].as_array().cloned().unwrap_or_default();
        let arrays = lengths.iter().map(&mut array).collect::<Result<_, String>>()?;
        Ok((head, arrays))
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        // The process ends when its input ends.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Describes a tensor for torch.
pub fn about(x: &precast::Tensor, wants_gradient: bool) -> Value {
    json!({"shape": x.shape(), "dtype": x.dtype().to_string(), "grad": wants_gradient})
}
