//! Damaged files of weights: none panics, and none makes a reader allocate more than the file is worth.

use std::fs;

use precast::{
    prelude::*,
    storage::stored::{ConvertOptions, StoredModel},
};
use safetensors::{Dtype, SafeTensors};

use super::{
    made::{convert, f32s, file},
    measured::largest_block,
};
use crate::common::folder::Folder;

/// Opens a file, and converts it if that succeeds. Neither panics, and no block of memory is much larger than the file.
fn feed(folder: &Folder, bytes: &[u8]) -> bool {
    fs::write(folder.at("in"), bytes).unwrap();
    let (opened, block) = largest_block(|| StoredModel::open(folder.at("in")).map(|model| model.outline()));
    assert!(block <= 64 * 1024 + 4 * bytes.len(), "a block of {block} bytes for a file of {}", bytes.len());
    if opened.is_err() {
        return false;
    }
    let options = ConvertOptions::new().replace(true).allow_overflow(true);
    convert(&folder.at("in"), &folder.at("out"), "o2", options).unwrap();
    SafeTensors::deserialize(&fs::read(folder.at("out")).unwrap()).unwrap();
    true
}

fn small_file() -> Vec<u8> {
    file(&[
        f32s("layers.0.fc.weight", &[2, 3], &[0.5; 6]),
        f32s("layers.0.norm.weight", &[3], &[1.0; 3]),
        ("ids", Dtype::I64, vec![1], vec![0; 8]),
    ])
}

#[test]
fn a_file_that_is_cut_off_is_refused_wherever_it_ends() {
    let folder = Folder::new("cut");
    let whole = small_file();
    assert!(feed(&folder, &whole));
    for len in 0..whole.len() {
        assert!(!feed(&folder, &whole[..len]), "{len} of {} bytes", whole.len());
    }
    assert!(!feed(&folder, &[&whole[..], &[0]].concat()));
}

#[test]
fn one_wrong_bit_in_the_header_panics_nowhere() {
    let folder = Folder::new("bit");
    let whole = small_file();
    let header = 8 + u64::from_le_bytes(whole[..8].try_into().unwrap()) as usize;
    let read = (0..header * 8).filter(|bit| {
        let mut bytes = whole.clone();
        bytes[bit / 8] ^= 1 << (bit % 8);
        feed(&folder, &bytes)
    });
    // A flipped bit in a name makes another name, and one in a shape or an offset contradicts the others.
    let (read, all) = (read.count(), header * 8);
    assert!(read > 0 && read < all / 2, "{read} of {all} were read");
}

/// `PRECAST_HEADERS=100000` sets the number.
#[test]
fn mutated_headers_panic_nowhere() {
    const WORDS: [&str; 14] = [
        "{",
        "}",
        "[",
        "]",
        ",",
        ":",
        "\"",
        "18446744073709551615",
        "-1",
        "1e9",
        "null",
        "\"dtype\"",
        "\"data_offsets\":[0,4]",
        "\\u0000",
    ];
    let count = std::env::var("PRECAST_HEADERS").ok().and_then(|text| text.parse().ok()).unwrap_or(2000);
    let folder = Folder::new("mutated");
    let whole = small_file();
    let length = u64::from_le_bytes(whole[..8].try_into().unwrap()) as usize;
    let mut rng = Rng::seed(11);
    for _ in 0..count {
        let mut header = whole[8..8 + length].to_vec();
        for _ in 0..1 + rng.bits() % 3 {
            let at = (rng.bits() as usize) % header.len();
            match rng.bits() % 4 {
                0 => header[at] = rng.bits() as u8,
                1 => drop(header.remove(at)),
                2 => drop(header.splice(at..at, WORDS[rng.bits() as usize % WORDS.len()].bytes())),
                _ => drop(header.splice(at..(at + 3).min(header.len()), [b'0' + (rng.bits() % 10) as u8])),
            }
            header.push(b' ');
        }
        // Sometimes the length is wrong as well.
        let said = if rng.bits().is_multiple_of(8) { rng.bits() >> (rng.bits() % 64) } else { header.len() as u64 };
        feed(&folder, &[&said.to_le_bytes()[..], &header, &whole[8 + length..]].concat());
    }
}
