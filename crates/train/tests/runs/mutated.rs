//! Mutated files for every file reader: the short form of `cargo xtask fuzz`, the same in every run.

use std::{
    fs,
    panic::{self, AssertUnwindSafe},
    path::{Path, PathBuf},
};

use precast::layers::Rng;

#[path = "../../../../tools/fuzz/feed.rs"]
mod feed;

/// Number of mutated files of each kind.
const FILES: usize = 3000;

/// Returns the files in folders and their subfolders, sorted.
fn files(folders: &[&str]) -> Vec<Vec<u8>> {
    fn go(folder: &Path, found: &mut Vec<PathBuf>) {
        for entry in fs::read_dir(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display())) {
            let path = entry.unwrap().path();
            if path.is_dir() { go(&path, found) } else { found.push(path) }
        }
    }
    let mut found = Vec::new();
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    folders.iter().for_each(|folder| go(&root.join(folder), &mut found));
    found.sort();
    found.iter().map(|path| fs::read(path).unwrap()).collect()
}

/// Words for mutations: some are meaningful to a reader, others to none.
const WORDS: &[&str] = &[
    "\n",
    "  ",
    "- ",
    ": ",
    "{",
    "}",
    "[",
    "]",
    ",",
    "\"",
    "'",
    "&a ",
    "*a",
    "!t ",
    "<<: ",
    "---\n",
    "# ",
    "|\n",
    "~",
    "null",
    "-1",
    "0",
    "1e999",
    "NaN",
    ".inf",
    "0x7f",
    "\u{feff}",
    "\u{1b}[2J",
    "\\u001b",
    "\u{0}",
    "é",
    "version: 1\n",
    "kind: ",
    "cells: ",
    "to_float: ",
    "float16",
    "rules: ",
    "path: ",
    "\"**\"",
    "F32",
    "BOOL",
    "\"shape\":",
    "[0,",
    "data_offsets",
];

fn below(rng: &mut Rng, limit: usize) -> usize {
    (rng.bits() % limit.max(1) as u64) as usize
}

/// Makes one to four changes to one file.
fn mutated(seeds: &[Vec<u8>], rng: &mut Rng) -> Vec<u8> {
    let mut bytes = seeds[below(rng, seeds.len())].clone();
    for _ in 0..1 + below(rng, 4) {
        let (at, to) = (below(rng, bytes.len() + 1), below(rng, bytes.len() + 1));
        let (from, to) = (at.min(to), at.max(to).min(at.min(to) + 64));
        match below(rng, 7) {
            0 if at < bytes.len() => bytes[at] ^= 1 << below(rng, 8),
            1 if at < bytes.len() => bytes[at] = rng.bits() as u8,
            2 => drop(bytes.drain(from..to)),
            3 => {
                let part = bytes[from..to].to_vec();
                bytes.splice(at..at, part);
            }
            4 => {
                let other = &seeds[below(rng, seeds.len())];
                let part = below(rng, other.len());
                bytes.splice(at..at, other[part..other.len().min(part + 40)].iter().copied());
            }
            5 if below(rng, 4) == 0 => bytes.truncate(at),
            _ => drop(bytes.splice(at..at, WORDS[below(rng, WORDS.len())].bytes())),
        }
    }
    bytes
}

/// Feeds the files unchanged and mutated, and prints the bytes of one that panics.
fn feed_all(seeds: &[Vec<u8>], files: usize, feed: fn(&[u8])) {
    let mut rng = Rng::seed(7);
    let mutants = (0..files).map(|_| mutated(seeds, &mut rng));
    for bytes in seeds.iter().cloned().chain(mutants) {
        if let Err(cause) = panic::catch_unwind(AssertUnwindSafe(|| feed(&bytes))) {
            eprintln!("panicked on {:?}", String::from_utf8_lossy(&bytes));
            panic::resume_unwind(cause);
        }
    }
}

#[test]
fn policies() {
    feed_all(&files(&["policies", "tests/policies", "tools/fuzz/seeds/policy"]), FILES, feed::policy);
}

#[test]
fn models() {
    // A file may ask for 4 GiB of weights, which would take too long to initialize: no number here has more than three
    // digits.
    let feed = |bytes: &[u8]| {
        let mut numbers = bytes.split(|byte| !byte.is_ascii_hexdigit() && *byte != b'_');
        if numbers.all(|number| number.iter().filter(|byte| byte.is_ascii_digit()).count() <= 3) {
            feed::model(bytes);
        }
    };
    // The weights of each readable model are initialized twice, so there are fewer.
    feed_all(&files(&["models", "tools/fuzz/seeds/model"]), FILES / 3, feed);
}

#[test]
fn weights() {
    feed_all(&files(&["tools/fuzz/seeds/weights"]), FILES, feed::weights);
}

/// Returns each seed truncated, and with one bit flipped: all such files if fewer than a thousand, else a thousand.
fn cut_and_turned(seeds: &[Vec<u8>]) -> Vec<Vec<u8>> {
    let mut rng = Rng::seed(11);
    let mut files = Vec::new();
    for seed in seeds {
        let cuts: Vec<usize> = match seed.len() {
            len if len <= 1000 => (0..len).collect(),
            len => (0..1000).map(|_| below(&mut rng, len)).collect(),
        };
        files.extend(cuts.into_iter().map(|len| seed[..len].to_vec()));
        let bits: Vec<usize> = match 8 * seed.len() {
            len if len <= 1000 => (0..len).collect(),
            len => (0..1000).map(|_| below(&mut rng, len)).collect(),
        };
        files.extend(bits.into_iter().map(|bit| {
            let mut file = seed.clone();
            file[bit / 8] ^= 1 << (bit % 8);
            file
        }));
    }
    files
}

/// Feeds the files of a folder unchanged and mutated, then each of them cut and with turned bits.
fn feed_folder(folder: &str, feed: fn(&[u8])) {
    let seeds = files(&[folder]);
    feed_all(&seeds, FILES, feed);
    feed_all(&cut_and_turned(&seeds), 0, feed);
}

#[test]
fn csv() {
    feed_folder("tools/fuzz/seeds/csv", feed::csv);
}

#[test]
fn images() {
    feed_folder("tools/fuzz/seeds/images", feed::images);
}

#[test]
fn npy() {
    feed_folder("tools/fuzz/seeds/npy", feed::npy);
}

#[test]
fn stored() {
    // Each is written to a file and converted, so there are fewer.
    feed_all(&files(&["tools/fuzz/seeds/weights", "tools/fuzz/seeds/stored"]), FILES / 3, feed::stored);
}

#[test]
fn onnx() {
    feed_all(&files(&["tools/fuzz/seeds/onnx"]), FILES / 3, feed::onnx);
}

#[test]
fn digits() {
    feed_all(&files(&["tools/fuzz/seeds/digits"]), FILES, feed::digits);
}

#[test]
fn speeds() {
    feed_all(&files(&["tools/fuzz/seeds/speeds"]), FILES, feed::speeds);
}
