//! The metrics of a run, as compared by tests.

use std::{fs, path::Path};

use serde_json::Value;

/// Returns the metrics of a run without its times.
pub fn metrics(folder: &Path) -> Vec<Value> {
    let text = fs::read_to_string(folder.join("metrics.jsonl")).unwrap();
    let line = |line| {
        let mut value: Value = serde_json::from_str(line).unwrap();
        value.as_object_mut().unwrap().remove("seconds");
        value
    };
    text.lines().map(line).collect()
}
