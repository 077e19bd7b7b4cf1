//! Options of layers, optimizers and readers of data, each stated once: a field with its documentation, default and
//! range. `#[options]` makes the rest of it.
//!
//! ```
//! use precast::options::{Options, options};
//!
//! /// Options of a filter.
//! #[options]
//! #[derive(Clone, Debug, PartialEq)]
//! pub struct FilterSpec {
//!     /// Number of channels.
//!     #[option(at_least = 1)]
//!     pub channels: usize,
//!     /// Share of the old value that is kept.
//!     #[option(default = 0.9, at_least = 0, below = 1)]
//!     pub decay: f64,
//! }
//!
//! let spec = FilterSpec::new(3).decay(1.5);
//! assert_eq!(spec.check().unwrap_err().to_string(), "`decay` is 1.5; allowed: 0 up to but not including 1");
//! assert_eq!(serde_json::to_string(&FilterSpec::new(3)).unwrap(), r#"{"channels":3}"#); // the default is left out
//! let decay = &FilterSpec::options()[1];
//! assert_eq!((&*decay.name, &*decay.takes), ("decay", "a number, 0 up to but not including 1"));
//! ```
//!
//! `#[option(..)]` of a field takes:
//!
//! | argument | meaning |
//! | --- | --- |
//! | `default = 1`, `default` | The default; without a value that of the type. A field without it is required. |
//! | `shown = "none"` | The default in words, in place of the expression. |
//! | `note = "as in torch"` | The rest of the sentence on the default. |
//! | `at_least`, `above`, `at_most`, `below`, `finite` | The range of its numbers. |
//! | `no_setter` | The option is set as a field only. |
//! | `left_out` | With `written`: files leave it out at its default. |
//!
//! The setter of a tuple has an argument for each of its numbers; that of a list takes anything that can be iterated, if
//! its items are not numbers.
//!
//! `#[options(..)]` of the struct takes:
//!
//! | argument | meaning |
//! | --- | --- |
//! | `setters_on(Type)` | The setters belong to this type, which has a method `options`. |
//! | `written` | Files have options at their default as well, except `None`. |
//! | `no_new` | The type has a `new` of its own. |
//! | `called = "Name"` | The name in the descriptions of other options. |
//! | `of_cell` | Files are read by one reader, which all such options share: less code than a reader of their own. |
//!
//! The variants of an enum are choices by name. Each has no options, options with names as its fields, or one struct of
//! options. Files have the name in small letters or, with `#[option(name = "..")]`, another one; a method `name` returns
//! it.
//!
//! ```
//! use precast::options::options;
//!
//! /// A filter.
//! #[options]
//! #[derive(Clone, Debug, PartialEq)]
//! pub enum Filter {
//!     /// The mean of a window.
//!     BoxFilter {
//!         /// Length of the window.
//!         #[option(default = 3, at_least = 1)]
//!         length: usize,
//!     },
//!     /// The numbers as they are.
//!     #[option(name = "none")]
//!     Identity {},
//! }
//!
//! let filter: Filter = serde_json::from_str(r#"{"box_filter": {}}"#).unwrap();
//! assert_eq!((filter.name(), &filter), ("box_filter", &Filter::BoxFilter { length: 3 }));
//! assert_eq!(Filter::Identity {}.name(), "none");
//! let error = serde_json::from_str::<Filter>(r#"{"box_filter": {"width": 3}}"#).unwrap_err().to_string();
//! assert!(error.starts_with("unknown field `width`, expected `length`"), "{error}");
//! ```

pub(crate) mod read;
mod takes;

use serde::Serialize;
use serde_json::{Map, Value, json};

pub use precast_derive::options;
pub use takes::Takes;

use crate::error::{Error, Result};

/// Options that are stated once, by [`#[options]`](macro@options).
pub trait Options {
    /// The name of what they are options of.
    const CALLED: &'static str;

    /// Describes the options, in the order of their declaration.
    fn options() -> Vec<OptionInfo>;

    /// Returns the key of the first option with a number outside its range, and the error, which is [about](Error::word) the
    /// option itself if it is inside another one.
    fn out_of_range(&self) -> Option<(&'static str, Error)>;

    /// Checks the ranges.
    ///
    /// # Errors
    /// [`ErrorKind::Value`](crate::ErrorKind::Value) for a number outside its range.
    fn check(&self) -> Result<()> {
        self.out_of_range().map_or(Ok(()), |(_, error)| Err(error))
    }
}

/// Description of an option.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct OptionInfo {
    /// The key in a file.
    pub name: String,
    /// The documentation of the option, as plain text.
    pub about: String,
    /// Accepted values, in words.
    pub takes: String,
    /// `true` when the key must be present.
    pub required: bool,
    /// Default value as a file would write it; `null` if it follows from other options. `None` for a required option,
    /// and when it cannot be determined for a user-defined type.
    pub default: Option<Value>,
    /// The default in words.
    #[serde(skip)]
    pub shown: String,
    /// The accepted values as JSON Schema.
    #[serde(skip)]
    pub schema: Value,
}

impl OptionInfo {
    /// Describes an option of the type `T`; `#[options]` calls it.
    pub fn new<T: Takes + Serialize>(name: &str, about: &str, range: &Range, default: Option<T>, shown: &str) -> Self {
        OptionInfo {
            name: name.into(),
            about: without_links(about),
            takes: T::takes(range),
            required: default.is_none(),
            default: default.as_ref().map(Takes::written),
            shown: shown.into(),
            schema: T::schema(range),
        }
    }
}

/// The bounds of the numbers of an option.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Range {
    /// Smallest number.
    pub at_least: Option<f64>,
    /// Largest number that is too small.
    pub above: Option<f64>,
    /// Largest number.
    pub at_most: Option<f64>,
    /// Smallest number that is too large.
    pub below: Option<f64>,
    /// The range in words; empty where there is none.
    pub words: &'static str,
}

impl Range {
    fn holds(&self, x: f64) -> bool {
        self.words.is_empty()
            || x.is_finite()
                && self.at_least.is_none_or(|least| x >= least)
                && self.above.is_none_or(|above| x > above)
                && self.at_most.is_none_or(|most| x <= most)
                && self.below.is_none_or(|below| x < below)
    }

    /// Returns the error for a number that is outside.
    fn refusal(&self, name: &str, x: f64) -> Option<Error> {
        (!self.holds(x)).then(|| Error::value(format!("`{name}` is {x}; allowed: {}", self.words)).about(name))
    }

    /// Adds the range to the words for a type, such as `a number`.
    fn after(&self, of_type: &str) -> String {
        match self.words {
            "" => of_type.into(),
            words if words.starts_with("a ") => words.into(),
            words if words.starts_with("at least ") => format!("{of_type} of {words}"),
            words => format!("{of_type}, {words}"),
        }
    }

    /// Returns the schema of a number.
    fn schema(&self, of_type: &str) -> Value {
        let mut schema = Map::from_iter([("type".into(), of_type.into())]);
        let bounds = [
            ("minimum", self.at_least),
            ("exclusiveMinimum", self.above),
            ("maximum", self.at_most),
            ("exclusiveMaximum", self.below),
        ];
        for (key, bound) in bounds.into_iter().filter_map(|(key, bound)| Some((key, bound?))) {
            schema.insert(key.into(), whole(bound));
        }
        Value::Object(schema)
    }
}

/// Returns a number without `.0`.
fn whole(x: f64) -> Value {
    if x.fract() == 0.0 && x.abs() < 1e15 { (x as i64).into() } else { x.into() }
}

/// Returns the JSON Schema of a map of options.
pub fn schema_of(options: &[OptionInfo]) -> Value {
    let property = |option: &OptionInfo| {
        let mut schema = option.schema.clone();
        if let Some(fields) = schema.as_object_mut() {
            match option.default.as_ref() {
                // A whole map would be long; the description has it in words.
                Some(Value::Null | Value::Object(_)) | None => {}
                Some(Value::Array(items)) if items.is_empty() => {}
                Some(Value::Number(number)) => {
                    fields.insert("default".into(), number.as_f64().map_or(Value::Null, whole));
                }
                Some(default) => {
                    fields.insert("default".into(), default.clone());
                }
            }
            let about = match &option.default {
                Some(_) if !fields.contains_key("default") => format!("{} Default: {}.", option.about, option.shown),
                _ => option.about.clone(),
            };
            fields.insert("description".into(), about.into());
        }
        (option.name.clone(), schema)
    };
    let required: Vec<&str> = options.iter().filter(|option| option.required).map(|option| &*option.name).collect();
    let mut schema = json!({"type": "object", "additionalProperties": false});
    if !required.is_empty() {
        schema["required"] = required.into();
    }
    schema["properties"] = Value::Object(options.iter().map(property).collect());
    schema
}

/// A choice by name, with its options; `#[options]` of an enum makes it.
#[derive(Debug)]
pub struct Choice {
    /// Name in files.
    pub name: &'static str,
    /// Documentation of the choice.
    pub about: &'static str,
    /// `None` where the name is all.
    pub options: Option<Vec<OptionInfo>>,
}

impl Choice {
    /// Describes the accepted values in words.
    pub fn takes(choices: &[Choice]) -> String {
        let names: Vec<String> = choices.iter().map(|choice| format!("`{}`", choice.name)).collect();
        match choices.iter().all(|choice| choice.options.is_none()) {
            true => names.join(" or "),
            false => format!("{}, or a map of a name and its options", names.join(", ")),
        }
    }

    /// Describes the accepted values as JSON Schema: a name, if it needs no options, or a map of a name and its options.
    pub fn schema(choices: &[Choice]) -> Value {
        let needless = |choice: &&Choice| choice.options.iter().flatten().all(|option| !option.required);
        let names: Vec<&str> = choices.iter().filter(needless).map(|choice| choice.name).collect();
        let names = json!({"enum": names});
        let with_options = |choice: &Choice| {
            let mut schema = schema_of(choice.options.as_ref()?);
            schema["description"] = without_links(choice.about).into();
            Some((choice.name.to_string(), schema))
        };
        let maps: Map<String, Value> = choices.iter().filter_map(with_options).collect();
        if maps.is_empty() {
            return names;
        }
        let mut one = json!({"type": "object", "additionalProperties": false, "minProperties": 1, "maxProperties": 1});
        one["properties"] = maps.into();
        json!({"anyOf": [names, one]})
    }
}

/// Returns the text of a documentation without its links: [`name`], [`name`](place) and [words](place).
pub(crate) fn without_links(text: &str) -> String {
    let mut plain = String::new();
    let mut rest = text;
    while let Some((before, link)) = rest.split_once('[') {
        let Some((words, after)) = link.split_once(']') else { break };
        let target = after.strip_prefix('(').and_then(|target| target.split_once(')'));
        let name = words.strip_prefix('`').and_then(|name| name.strip_suffix('`'));
        plain += before;
        match (name, target) {
            (None, None) => {
                plain.push('[');
                rest = link;
                continue;
            }
            (name, _) => plain += name.unwrap_or(words),
        }
        rest = target.map_or(after, |(_, after)| after);
    }
    plain + rest
}
