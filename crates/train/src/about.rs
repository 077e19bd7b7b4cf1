//! The provenance of a run.

use std::{collections::BTreeMap, fs, process::Command};

use jiff::{Timestamp, Unit};
use precast::error::{Error, Result};
use serde::{Deserialize, Serialize};

use super::{
    RunFile,
    data::{self, Dataset, Split},
};

/// Provenance of a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct About {
    /// Version of the library.
    pub precast: String,
    /// Operating system and processor: `linux x86_64, AMD EPYC 9654 96-Core Processor`.
    pub machine: String,
    /// Date and time of the beginning in UTC; not known of runs of earlier versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started: Option<Timestamp>,
    /// Model and policy as named when the run began.
    pub model: String,
    pub policy: String,
    pub train_examples: usize,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub validation_examples: Option<usize>,
    pub test_examples: usize,
    /// Shape of one example as the model takes it, and as in the data.
    pub shape: Vec<usize>,
    pub data_shape: Vec<usize>,
    /// CRC-32 of the examples and their targets.
    pub data_checksum: u32,
    /// [`PIXELS`] of the version that began the run.
    #[serde(default)]
    pub pixels: u32,
    /// `true` if the run multiplies bf16 by AMX.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub amx: bool,
    /// [Settings](RunFile::settings) of the run file; not known of runs of earlier versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub settings: Option<u32>,
    /// CRC-32 by name of the other files in the folder that must not change.
    #[serde(default)]
    pub checksums: BTreeMap<String, u32>,
}

/// Version of the image-to-number conversion: 1 since grey is BT.601 and downscaled images are filtered.
const PIXELS: u32 = 1;

impl About {
    /// Rejects a run begun with a conversion of its images other than the current one.
    pub fn check_pixels(&self, data: &data::Source) -> Result<()> {
        let elements = |shape: &[usize]| shape.iter().product::<usize>();
        let smaller = match (&self.shape[..], &self.data_shape[..]) {
            ([.., h, w], [.., from_h, from_w]) => h < from_h || w < from_w,
            _ => false,
        };
        let resized = smaller && elements(&self.shape) != elements(&self.data_shape);
        if self.pixels == PIXELS || !(resized || data.may_change_pixels()) {
            return Ok(());
        }
        Err(Error::run(
            "the run began when grey was BT.709 and images were made smaller without a filter; its network does not know the \
             pixels of now, so train it anew",
        ))
    }

    /// Multiplies bf16 as when the run began, so that a resumed run has the same bits. Returns a note on what changes
    /// thereby, or why it is not possible.
    pub fn multiply_as_begun(&self) -> Option<String> {
        if precast::uses_amx() == self.amx {
            return None;
        }
        Some(match (self.amx, precast::allow_amx(self.amx)) {
            (true, true) => "bf16 is multiplied by AMX, as when the run began".into(),
            (false, _) => "bf16 is multiplied without AMX, as when the run began".into(),
            (true, false) => {
                "the run began with AMX, and this processor has none, or PRECAST_AMX or PRECAST_VECTORS forbids \
                              it: results in bf16 differ in their last bits from those of a run that was never stopped"
                    .into()
            }
        })
    }

    pub fn of(file: &RunFile, data: &Split, held_out: Option<&Dataset>, data_shape: &[usize]) -> Result<Self> {
        let mut hasher = crc32fast::Hasher::new();
        for part in [&data.train, &data.test].into_iter().chain(held_out) {
            part.bytes(|bytes| hasher.update(bytes))?;
        }
        Ok(About {
            precast: env!("CARGO_PKG_VERSION").into(),
            machine: machine(),
            started: Timestamp::now().round(Unit::Second).ok(),
            model: file.model.to_string(),
            policy: file.policy.clone(),
            train_examples: data.train.len(),
            validation_examples: held_out.map(|_| data.test.len()),
            test_examples: held_out.unwrap_or(&data.test).len(),
            shape: data.train.shape().to_vec(),
            data_shape: data_shape.to_vec(),
            data_checksum: hasher.finalize(),
            pixels: PIXELS,
            amx: precast::uses_amx(),
            settings: None,
            checksums: BTreeMap::new(),
        })
    }
}

/// Returns the operating system and the processor, with the processor's name if the system tells it.
fn machine() -> String {
    let mut machine = format!("{} {}", std::env::consts::OS, std::env::consts::ARCH);
    let name = match std::env::consts::OS {
        "linux" => {
            let text = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
            let name = text.lines().find_map(|line| line.strip_prefix("model name")?.split_once(':'));
            name.map(|(_, name)| name.trim().to_string())
        }
        "macos" => {
            let said = Command::new("sysctl").args(["-n", "machdep.cpu.brand_string"]).output().ok();
            said.and_then(|said| String::from_utf8(said.stdout).ok()).map(|name| name.trim().to_string())
        }
        _ => None,
    };
    if let Some(name) = name.filter(|name| !name.is_empty()) {
        machine += &format!(", {name}");
    }
    machine
}
