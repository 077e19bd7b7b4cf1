//! The options of a user's kind, found by reading cells of it.

use serde_json::{Value, json};

use super::{in_yaml, read_yaml};
use crate::{
    cell::{Asked, Wrong},
    layers::Rng,
    options::OptionInfo,
};

/// Reads a type from fields.
type Ask = fn(&[(&str, Value)]) -> Asked;

/// Values to try, with the words for an option that takes them. A number without a fraction is also one with.
fn values() -> [(Value, &'static str); 7] {
    let cell = json!({"kind": "Identity"});
    [
        (0.5.into(), "a number"),
        (8.into(), "a whole number of at least 0"),
        (true.into(), "true or false"),
        ("text".into(), "text"),
        (json!([8]), "a list"),
        (json!([cell]), "a list of cells"),
        (cell, "a cell"),
    ]
}

/// Returns an example, and the options with their defaults as far as an example can be read.
pub(super) fn describe(kind: &str, ask: Ask, documented: Option<String>) -> (Option<String>, Vec<OptionInfo>) {
    let ask = |fields: &[(&str, Value)]| Rng::seed(0).reading(|| ask(fields));
    let Asked { fields, .. } = ask(&[]);
    let taken = |name: &'static str| {
        let fits = |value: &Value| ask(&[(name, value.clone())]).read != Err(Wrong::Value(name.into()));
        values().into_iter().find(|(value, _)| fits(value))
    };
    // Each missing field gets the first value that it takes.
    let (mut made_up, mut missing): (Vec<(&str, Value)>, Vec<&str>) = Default::default();
    while let Err(Wrong::Missing(name)) = ask(&made_up).read {
        missing.push(name);
        let Some((value, _)) = taken(name) else { break };
        made_up.push((name, value));
    }
    let example = documented.or_else(|| {
        let fields = made_up.iter().map(|(name, value)| format!(", {name}: {}", in_yaml(value)));
        let text = format!("{{kind: {kind}{}}}", fields.collect::<String>());
        read_yaml(&text).is_ok().then_some(text)
    });
    let written = example.as_ref().and_then(|text| serde_json::to_value(read_yaml(text).ok()?).ok());
    let option = |name: &&'static str| {
        let required = missing.contains(name);
        OptionInfo {
            name: name.to_string(),
            about: String::new(),
            takes: taken(name).map_or("(not known)", |(_, words)| words).into(),
            required,
            default: written.as_ref().filter(|_| !required).and_then(|cell| cell.get(name).cloned()),
            shown: "by the others".into(),
            schema: Value::Bool(true),
        }
    };
    (example, fields.iter().map(option).collect())
}
