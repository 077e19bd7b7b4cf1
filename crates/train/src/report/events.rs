//! Runs as files of events, as TensorBoard reads them.

use std::{fs, io::Read as _, path::Path};

use precast::error::{Error, Result};
use precast_base::files;

use crate::{about_of, history_of, metrics::ends_of_epochs, training::History};

/// Name of the file; TensorBoard reads files whose name contains `tfevents`.
const FILE: &str = "events.out.tfevents.0.precast";

/// Writes the run of a folder into another folder, for TensorBoard: the loss and the loss scale of each step, and after
/// each epoch its mean loss, its score, its learning rate and its skipped steps. A run that is training may be written
/// again later: the file only grows.
///
/// # Errors
/// [`ErrorKind::Run`](precast::ErrorKind::Run) when there is no run or it cannot be read, and when the folder has the
/// events of a run that began at another time;
/// [`ErrorKind::Io`](precast::ErrorKind::Io) when the file cannot be written.
pub fn save_events(run: impl AsRef<Path>, to: impl AsRef<Path>) -> Result<()> {
    let (run, to) = (run.as_ref(), to.as_ref());
    let started = about_of(run)?.started.map_or(0.0, |started| started.as_millisecond() as f64 / 1e3);
    let (events, file) = (events_of(&history_of(run)?, started), to.join(FILE));
    // The first record of both, which has the time of the beginning.
    let mut there = vec![0; events_of(&History::default(), started).len()];
    let read = fs::File::open(&file).and_then(|mut file| file.read_exact(&mut there));
    if read.is_ok() && !events.starts_with(&there) {
        let words = "it has the events of a run that began at another time; write these into another folder";
        return Err(Error::run(words).in_file(file.display()));
    }
    fs::create_dir_all(to).map_err(|error| Error::io(to, &error))?;
    files::replace(file, &events)
}

/// Returns the records of a run. The time of an event is that of the beginning and of the steps since.
fn events_of(history: &History, started: f64) -> Vec<u8> {
    let mut events = Vec::new();
    record(&mut events, &[double(1, started), bytes(3, b"brain.Event:2")].concat());
    let mut time = started;
    let mut put = |time: f64, step: usize, scalars: &[(&str, f64)]| {
        let value = |(tag, number): &(&str, f64)| {
            let value = [bytes(1, tag.as_bytes()), float(2, *number as f32)].concat();
            bytes(1, &value)
        };
        let summary: Vec<u8> = scalars.iter().flat_map(value).collect();
        record(&mut events, &[double(1, time), integer(2, step as u64), bytes(5, &summary)].concat());
    };
    let mut ends = ends_of_epochs(history).peekable();
    for (i, step) in history.steps.iter().enumerate() {
        time += step.seconds;
        put(time, i + 1, &[("step/loss", step.loss), ("step/scale", step.scale.into())]);
        while let Some((epoch, steps, _)) = ends.next_if(|(_, steps, _)| *steps == i + 1) {
            let score = format!("epoch/{}", epoch.score.name().replace(' ', "_"));
            let mut scalars = vec![
                ("epoch/loss", epoch.loss),
                (score.as_str(), epoch.score.number()),
                ("epoch/skipped", epoch.skipped as f64),
            ];
            scalars.extend(epoch.learning_rate.map(|rate| ("epoch/learning_rate", rate)));
            put(time, steps, &scalars);
        }
    }
    events
}

// Fields of a protobuf message.

fn varint(mut number: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    while number >= 0x80 {
        bytes.push(number as u8 | 0x80);
        number >>= 7;
    }
    bytes.push(number as u8);
    bytes
}

fn integer(field: u64, number: u64) -> Vec<u8> {
    [varint(field << 3), varint(number)].concat()
}

fn double(field: u64, number: f64) -> Vec<u8> {
    [varint(field << 3 | 1), number.to_le_bytes().to_vec()].concat()
}

fn bytes(field: u64, content: &[u8]) -> Vec<u8> {
    [varint(field << 3 | 2), varint(content.len() as u64), content.to_vec()].concat()
}

fn float(field: u64, number: f32) -> Vec<u8> {
    [varint(field << 3 | 5), number.to_le_bytes().to_vec()].concat()
}

/// Appends a record: its length and its content, each followed by a checksum.
fn record(to: &mut Vec<u8>, content: &[u8]) {
    let length = (content.len() as u64).to_le_bytes();
    for part in [&length[..], content] {
        to.extend(part);
        to.extend(masked(crc32c(part)).to_le_bytes());
    }
}

/// Returns a checksum as records have it, which is not a checksum of itself.
fn masked(checksum: u32) -> u32 {
    checksum.rotate_right(15).wrapping_add(0xa282_ead8)
}

/// Computes the CRC-32C (Castagnoli), bit by bit: records are short.
fn crc32c(bytes: &[u8]) -> u32 {
    let shift = |crc: u32| if crc & 1 == 1 { crc >> 1 ^ 0x82f6_3b78 } else { crc >> 1 };
    !bytes.iter().fold(!0, |crc, byte| (0..8).fold(crc ^ u32::from(*byte), |crc, _| shift(crc)))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The check value of the catalogue of CRCs, and two of RFC 3720, appendix B.4.
    #[test]
    fn checksums_are_those_of_the_standard() {
        assert_eq!(crc32c(b"123456789"), 0xe306_9283);
        assert_eq!(crc32c(&[0; 32]), 0x8a91_36aa);
        assert_eq!(crc32c(&[0xff; 32]), 0x62a8_ab43);
    }

    #[test]
    fn fields_are_those_of_protobuf() {
        // The example of the protobuf documentation: field 1 is 150.
        assert_eq!(integer(1, 150), [0x08, 0x96, 0x01]);
        assert_eq!(bytes(2, b"testing"), b"\x12\x07testing");
        assert_eq!(float(2, 1.0), [0x15, 0, 0, 0x80, 0x3f]);
        assert_eq!(double(1, 1.0), [0x09, 0, 0, 0, 0, 0, 0, 0xf0, 0x3f]);
    }
}
