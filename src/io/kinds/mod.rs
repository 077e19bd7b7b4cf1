//! Kinds of cells in architecture files, with their names in torch and MindSpore and their options.
//!
//! Options, their defaults and accepted values are found by reading and writing cells of the kind; they are not listed
//! anywhere else.

mod names;

use std::fmt;

#[cfg(test)]
pub(crate) use names::elsewhere;
pub use names::{Names, named};
pub(crate) use names::{named_elsewhere, unknown};
use serde::{
    Deserialize, Serialize, Serializer,
    de::{Deserializer, MapAccess, Visitor},
};
use serde_json::Value;

use super::models;
use crate::{
    Child,
    cell::documentation,
    error::Result,
    layers::{Rng, with_all_written},
};

/// A kind of cell in architecture files.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct KindInfo {
    /// Name of the kind.
    pub kind: &'static str,
    /// The first paragraph of the documentation of its type.
    pub about: String,
    /// Names in torch and MindSpore; `None` for a program's own kind.
    pub elsewhere: Option<Names>,
    /// A cell of this kind in an architecture file: `{kind: Dense, in_features: 64, out_features: 10}`. `None` when the
    /// documentation has none and none could be generated.
    pub example: Option<String>,
    /// The options, in declaration order.
    pub options: Vec<OptionInfo>,
}

/// An option of a kind.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct OptionInfo {
    /// The key in an architecture file.
    pub name: String,
    /// Accepted values, in words.
    pub takes: String,
    /// `true` when the key must be present.
    pub required: bool,
    /// Default value as a file would write it; `null` if it follows from other options. `None` for a required option,
    /// and when it cannot be determined for a user-defined type.
    pub default: Option<Value>,
}

/// Describes a kind that files can name: one of [`kinds`](crate::layers::kinds), or its name in torch or MindSpore.
///
/// The example is the text between backticks after `In files:` in the documentation of the type. Without one, an
/// example is generated where possible.
///
/// # Errors
/// As [`named`].
///
/// ```
/// let dense = precast::io::kinds::describe("nn.Linear")?;
/// let options: Vec<(&str, bool)> = dense.options.iter().map(|option| (&*option.name, option.required)).collect();
/// assert_eq!((dense.kind, options), ("Dense", vec![("in_features", true), ("out_features", true), ("bias", false)]));
/// assert_eq!((&*dense.options[2].takes, &dense.options[2].default), ("true or false", &Some(true.into())));
/// # Ok::<(), precast::Error>(())
/// ```
pub fn describe(name: &str) -> Result<KindInfo> {
    let kind = named(name)?;
    let documentation = documentation(kind).unwrap_or_default();
    let documented =
        example_in(documentation, kind).and_then(|text| Some((all_fields(&read_yaml(&text).ok()?)?, text)));
    let (fields, example) = match documented {
        Some((fields, text)) => (Some(fields), Some(text)),
        None => made_up(kind).map_or((None, None), |(fields, text)| (Some(fields), Some(text))),
    };
    let options = match &fields {
        Some(fields) => fields.options(),
        None => {
            let missing = Fields::of_kind(kind).read().err().unwrap_or_default();
            let option = |name: String| OptionInfo {
                required: missing_field(&missing) == Some(&name),
                takes: NOT_KNOWN.into(),
                default: None,
                name,
            };
            names_of_options(kind).into_iter().map(option).collect()
        }
    };
    Ok(KindInfo { kind, about: about(documentation, kind), elsewhere: names::elsewhere(kind), example, options })
}

/// Fields of a cell in a file, in order. The first is its kind.
struct Fields(Vec<(String, Value)>);

impl Serialize for Fields {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().map(|(name, value)| (name, value)))
    }
}

impl<'de> Deserialize<'de> for Fields {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct InOrder;

        impl<'de> Visitor<'de> for InOrder {
            type Value = Fields;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a cell")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Fields, A::Error> {
                let mut fields = Vec::new();
                while let Some(field) = map.next_entry()? {
                    fields.push(field);
                }
                Ok(Fields(fields))
            }
        }

        deserializer.deserialize_map(InOrder)
    }
}

impl Fields {
    fn of_kind(kind: &str) -> Self {
        Fields(vec![("kind".into(), kind.into())])
    }

    /// Returns these fields with one value replaced or added.
    fn with(&self, name: &str, value: Value) -> Self {
        let mut fields = self.0.clone();
        match fields.iter_mut().find(|(known, _)| known == name) {
            Some((_, old)) => *old = value,
            None => fields.push((name.into(), value)),
        }
        Fields(fields)
    }

    fn without(&self, name: &str) -> Self {
        Fields(self.0.iter().filter(|(known, _)| known != name).cloned().collect())
    }

    fn get(&self, name: &str) -> Option<&Value> {
        self.0.iter().find(|(known, _)| known == name).map(|(_, value)| value)
    }

    /// Reads the cell, or returns the reason for failure, without a place.
    fn read(&self) -> Result<Child, String> {
        let read = Rng::seed(0).reading(|| serde_json::from_str(&serde_json::to_string(self)?));
        read.map_err(|error: serde_json::Error| {
            let words = error.to_string();
            words.split(" at line ").next().unwrap_or_default().to_string()
        })
    }

    fn options(&self) -> Vec<OptionInfo> {
        let kind = self.get("kind").and_then(Value::as_str).unwrap_or_default();
        let mut names = names_of_options(kind);
        let written = self.0.iter().map(|(name, _)| name).filter(|name| *name != "kind" && !names.contains(name));
        let written: Vec<String> = written.cloned().collect();
        names.extend(written);
        names
            .into_iter()
            .map(|name| {
                let read = self.without(&name).read();
                let default = read.as_ref().ok().and_then(|cell| all_fields(cell)?.get(&name).cloned());
                OptionInfo { takes: self.takes(&name), required: read.is_err(), default, name }
            })
            .collect()
    }

    /// Returns the values an option takes, from the reader's error on a wrong one.
    fn takes(&self, name: &str) -> String {
        let met = match self.with(name, WRONG.into()).read() {
            Ok(_) => return "text".into(),
            Err(words) => words,
        };
        let expected = met.split_once("expected ").map_or("", |(_, expected)| expected);
        match expected {
            "usize" | "u8" | "u16" | "u32" | "u64" => "a whole number of at least 0".into(),
            "isize" | "i8" | "i16" | "i32" | "i64" => "a whole number".into(),
            "f64" | "f32" => "a number".into(),
            "a boolean" => "true or false".into(),
            "a sequence" => "a list".into(),
            "" => NOT_KNOWN.into(),
            other => match other.strip_prefix("struct ") {
                // All layers of a stack share one type of options.
                Some("TransformerLayerSpec") => "a map with the options of TransformerEncoderLayer".into(),
                Some(name) => format!("a map with the options of {}", name.strip_suffix("Spec").unwrap_or(name)),
                None => other.to_string(),
            },
        }
    }
}

/// Placeholder for a user-defined type.
const NOT_KNOWN: &str = "(not known)";

/// A name that no option has, and a value accepted only by options that take any text.
const WRONG: &str = "?";

/// Returns the options that a kind lists when it meets an unknown one.
fn names_of_options(kind: &str) -> Vec<String> {
    match Fields::of_kind(kind).with(WRONG, Value::Null).read() {
        Err(words) if words.starts_with("unknown field") => {
            let allowed = words.split_once("expected ").map_or("", |(_, allowed)| allowed);
            allowed.split('`').skip(1).step_by(2).map(String::from).collect()
        }
        _ => Vec::new(),
    }
}

/// Returns all fields of a cell, including those at their default value.
fn all_fields(cell: &Child) -> Option<Fields> {
    serde_json::from_str(&with_all_written(|| serde_json::to_string(cell)).ok()?).ok()
}

fn read_yaml(cell: &str) -> Result<Child> {
    models::parse(&format!("version: 1\nnet: {cell}\n"), "example", 0)
}

/// Returns the example in the documentation of a type, with the name of this kind. Kinds of a generic type share one
/// example.
fn example_in(documentation: &str, kind: &str) -> Option<String> {
    let example = documentation.split("In files:").nth(1)?.split('`').nth(1)?;
    let example = example.split_whitespace().collect::<Vec<_>>().join(" ");
    let options = example.strip_prefix("{kind: ")?.trim_start_matches(|c: char| c.is_alphanumeric() || c == '_');
    Some(format!("{{kind: {kind}{options}"))
}

/// Makes a cell with values for the required options: for each the first of a few that the kind takes.
fn made_up(kind: &str) -> Option<(Fields, String)> {
    let cell = || serde_json::json!({"kind": "Identity"});
    let values =
        || [8.into(), 0.5.into(), true.into(), vec![8].into(), vec![cell()].into(), cell(), Value::from("text")];
    let mut fields = Fields::of_kind(kind);
    loop {
        let words = match fields.read() {
            Ok(cell) => {
                let inside = fields.0.iter().map(|(name, value)| format!("{name}: {}", in_yaml(value)));
                let text = format!("{{{}}}", inside.collect::<Vec<_>>().join(", "));
                return Some((all_fields(&cell)?, text));
            }
            Err(words) => words,
        };
        let name = missing_field(&words)?;
        // A field of the wrong type is reported before a missing one.
        let fits = |value: &Value| match fields.with(name, value.clone()).read() {
            Ok(_) => true,
            Err(words) => missing_field(&words).is_some_and(|next| next != name),
        };
        let value = values().into_iter().find(fits).or_else(|| options_of_all_kinds().find(fits))?;
        fields = fields.with(name, value);
    }
}

/// Values for a slot that takes one kind: the examples in the documentation of that kind, and a list of them.
fn options_of_all_kinds() -> impl Iterator<Item = Value> {
    let of = |kind: &'static str| {
        let example = example_in(documentation(kind)?, kind)?;
        let mut options: serde_json::Map<String, Value> = serde_yaml::from_str(&example).ok()?;
        options.remove("kind");
        let options = Value::Object(options);
        Some([options.clone(), vec![options].into()])
    };
    crate::layers::kinds().unwrap_or_default().into_iter().filter_map(of).flatten()
}

/// Returns the option that a reader reports as missing.
fn missing_field(words: &str) -> Option<&str> {
    words.strip_prefix("missing field `")?.split('`').next()
}

/// Formats a value on one line of YAML.
pub(crate) fn in_yaml(value: &Value) -> String {
    let list = |items: Vec<String>| items.join(", ");
    match value {
        Value::String(text) if text.chars().all(char::is_alphanumeric) => text.clone(),
        Value::Array(items) => format!("[{}]", list(items.iter().map(in_yaml).collect())),
        Value::Object(fields) => {
            let fields = fields.iter().map(|(name, value)| format!("{name}: {}", in_yaml(value)));
            format!("{{{}}}", list(fields.collect()))
        }
        Value::Number(number) => match number.as_f64() {
            Some(small) if small != 0.0 && small.abs() < 1e-3 => format!("{small:e}"),
            _ => number.to_string(),
        },
        other => other.to_string(),
    }
}

/// Returns the first paragraph of a documentation, on one line and without links, worded for this kind where one type
/// has several.
fn about(documentation: &str, kind: &str) -> String {
    let lines =
        documentation.lines().map(str::trim).skip_while(|line| line.is_empty()).take_while(|line| !line.is_empty());
    let text = lines.collect::<Vec<_>>().join(" ");
    // The part about files is shown as the example.
    let text = text.split("In files:").next().unwrap_or_default();
    let mut plain = String::new();
    let mut rest = text;
    while let Some((before, link)) = rest.split_once("[`") {
        let Some((name, after)) = link.split_once("`]") else { break };
        plain += before;
        plain += name;
        let target = after.strip_prefix('(').and_then(|target| target.split_once(')'));
        rest = target.map_or(after, |(_, after)| after);
    }
    plain += rest;
    let axes = ["1d", "2d", "3d"].into_iter().find(|axes| kind.contains(axes)).map(|axes| &axes[..1]);
    let plain =
        axes.map_or(plain.clone(), |axes| plain.replace("`N`", axes).replace("1 spatial axes", "1 spatial axis"));
    match plain.split_once(": ") {
        Some((what, kinds)) if kinds.split([',', ' ', '.']).any(|one| one == kind) => format!("{what}."),
        _ => plain.trim().to_string(),
    }
}
