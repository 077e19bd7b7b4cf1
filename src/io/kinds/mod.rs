//! Kinds of cells in architecture files, with their names in torch and MindSpore and their options.
//!
//! The options of a kind are those that its type states by [`#[options]`](macro@crate::options::options). Those of a
//! user's type without it are found by reading cells of the kind.

mod by_reading;
mod names;

#[cfg(test)]
pub(crate) use names::elsewhere;
pub use names::{Names, named};
pub(crate) use names::{named_elsewhere, unknown};
use serde::Serialize;
use serde_json::Value;

use super::models;
use crate::{
    Child,
    cell::{Described, registered},
    error::{Error, Result},
    options::{OptionInfo, without_links},
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
    let Some(entry) = registered(kind) else { return Err(Error::model(format!("{kind} is not saved"))) };
    let documented = example_in(entry.documentation, kind).filter(|text| read_yaml(text).is_ok());
    let (example, options) = match (entry.described)() {
        Described::Options(options) => {
            let needless = options.iter().all(|option| !option.required);
            (documented.or_else(|| needless.then(|| format!("{{kind: {kind}}}"))), options)
        }
        Described::ByReading(ask) => by_reading::describe(kind, ask, documented),
    };
    Ok(KindInfo { kind, about: about(entry.documentation, kind), elsewhere: names::elsewhere(kind), example, options })
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

/// Formats a value on one line of YAML.
pub fn in_yaml(value: &Value) -> String {
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
    let plain = without_links(text);
    let axes = ["1d", "2d", "3d"].into_iter().find(|axes| kind.contains(axes)).map(|axes| &axes[..1]);
    let plain =
        axes.map_or(plain.clone(), |axes| plain.replace("`N`", axes).replace("1 spatial axes", "1 spatial axis"));
    match plain.split_once(": ") {
        Some((what, kinds)) if kinds.split([',', ' ', '.']).any(|one| one == kind) => format!("{what}."),
        _ => plain.trim().to_string(),
    }
}
