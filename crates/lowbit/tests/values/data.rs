//! The recordings in `tests/data`.

use std::{collections::BTreeMap, fs, path::PathBuf};

/// Returns the text of a recording.
pub fn text(name: &str) -> String {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/data").join(name);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Arrays by their names.
pub struct Arrays(BTreeMap<String, Vec<u32>>);

impl Arrays {
    /// Reads lines of a name, `u8` or `f32`, and elements in hexadecimal.
    pub fn read(name: &str) -> Self {
        let line = |line: &str| {
            let [name, kind, hex] = line.split(' ').collect::<Vec<_>>()[..] else { panic!("{line}") };
            let width = if kind == "f32" { 8 } else { 2 };
            let words = hex.as_bytes().chunks(width).map(|word| hexadecimal(str::from_utf8(word).unwrap()));
            (name.to_string(), words.collect())
        };
        Arrays(text(name).lines().map(line).collect())
    }

    fn words(&self, name: &str) -> &[u32] {
        self.0.get(name).unwrap_or_else(|| panic!("no array {name}"))
    }

    pub fn bytes(&self, name: &str) -> Vec<u8> {
        self.words(name).iter().map(|&word| u8::try_from(word).unwrap()).collect()
    }

    pub fn floats(&self, name: &str) -> Vec<f32> {
        self.words(name).iter().map(|&word| f32::from_bits(word)).collect()
    }
}

/// Reads a number in hexadecimal.
pub fn hexadecimal(text: &str) -> u32 {
    u32::from_str_radix(text, 16).unwrap_or_else(|error| panic!("{text}: {error}"))
}

/// A step function of patterns: the code of each run, with its first pattern.
pub struct Runs(Vec<(u32, u8)>);

impl Runs {
    /// Reads `pattern:code` pairs.
    pub fn read<'a>(words: impl Iterator<Item = &'a str>) -> Self {
        let run = |word: &str| {
            let (first, code) = word.split_once(':').unwrap();
            (hexadecimal(first), hexadecimal(code) as u8)
        };
        Runs(words.map(run).collect())
    }

    /// Returns the runs: first pattern, last pattern, code.
    pub fn all(&self, last: u32) -> impl Iterator<Item = (u32, u32, u8)> + '_ {
        let ends = self.0.iter().skip(1).map(|(next, _)| next - 1).chain([last]);
        self.0.iter().zip(ends).map(|(&(first, code), last)| (first, last, code))
    }
}
