//! The catalogue of ops beside the code that runs them.

use std::{collections::BTreeSet, fs, path::Path};

use precast::Op;

/// Returns the ops named in the code of `folder`: as `Op::Relu`, or in a macro row, as `relu Relu () |x| ...`.
fn ops_named_in(folder: &Path, found: &mut BTreeSet<&'static str>) {
    for path in fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
        if path.is_dir() {
            ops_named_in(&path, found);
            continue;
        }
        let mut in_rows = false;
        let source = fs::read_to_string(&path).unwrap();
        for line in source.lines().filter(|line| !line.trim_start().starts_with("//")) {
            let invokes = line.split_once("! {").is_some_and(|(name, rest)| {
                rest.is_empty() && !name.is_empty() && name.chars().all(|c| c.is_lowercase() || c == '_')
            });
            in_rows = (in_rows || invokes) && !line.starts_with('}');
            let words: Vec<&str> = line.split(|c: char| !c.is_alphanumeric() && c != '_').collect();
            for pair in words.windows(2) {
                let method = in_rows && pair[0].starts_with(char::is_lowercase);
                let after_op = line.contains(&format!("Op::{}", pair[1]));
                let op = Op::ALL.iter().find(|op| op.name() == pair[1]).filter(|_| method || after_op);
                found.extend(op.map(|op| op.name()));
            }
        }
    }
}

#[test]
fn the_catalogue_knows_which_ops_have_a_kernel() {
    let mut dispatched = BTreeSet::new();
    // Casts are done by the tensor itself.
    for folder in ["ops", "tensor"] {
        ops_named_in(&Path::new(env!("CARGO_MANIFEST_DIR")).join("crates/tensor/src").join(folder), &mut dispatched);
    }
    let with_kernel: BTreeSet<&str> = Op::ALL.iter().filter(|op| op.has_kernel()).map(|op| op.name()).collect();
    assert_eq!(dispatched, with_kernel);
}
