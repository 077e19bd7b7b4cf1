//! The network of a run.

use std::{
    collections::BTreeMap,
    fmt,
    path::{Path, PathBuf},
    str::FromStr,
};

use precast::{
    Child,
    error::{Error, Result},
    io::models::Model,
    options::{Range, Takes},
};
use precast_base::printable;
use precast_graph::onnx::{Fixed, ImportOptions, OnnxModel, OnnxNetwork};
use serde::{Deserialize, Deserializer, Serialize, de};
use serde_json::{Value, json};

/// The network of a run.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(untagged)]
#[non_exhaustive]
pub enum ModelSource {
    /// An architecture file, an ONNX model, or the name of a built-in model.
    Named(String),
    /// An ONNX model, with what its import fixes.
    Onnx(OnnxSource),
}

/// An ONNX model that is imported.
///
/// In a run file it is `{onnx: model.onnx, fix: {sr: 16000}, axes: {sequence: 128}}`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct OnnxSource {
    /// The file.
    pub onnx: PathBuf,
    /// Values of inputs that steer the model.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub fix: BTreeMap<String, FixedNumber>,
    /// Lengths of symbolic axes.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub axes: BTreeMap<String, usize>,
}

/// A number or a truth value that an import fixes.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(untagged)]
#[non_exhaustive]
pub enum FixedNumber {
    /// A truth value.
    Truth(bool),
    /// An integer.
    Int(i64),
    /// A number.
    Float(f64),
}

impl<'de> Deserialize<'de> for FixedNumber {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Reader;
        impl de::Visitor<'_> for Reader {
            type Value = FixedNumber;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a number, true or false")
            }

            fn visit_bool<E: de::Error>(self, holds: bool) -> Result<FixedNumber, E> {
                Ok(FixedNumber::Truth(holds))
            }

            fn visit_i64<E: de::Error>(self, number: i64) -> Result<FixedNumber, E> {
                Ok(FixedNumber::Int(number))
            }

            fn visit_u64<E: de::Error>(self, number: u64) -> Result<FixedNumber, E> {
                Ok(i64::try_from(number).map_or(FixedNumber::Float(number as f64), FixedNumber::Int))
            }

            fn visit_f64<E: de::Error>(self, number: f64) -> Result<FixedNumber, E> {
                Ok(FixedNumber::Float(number))
            }
        }
        deserializer.deserialize_any(Reader)
    }
}

impl From<FixedNumber> for Fixed {
    fn from(number: FixedNumber) -> Self {
        match number {
            FixedNumber::Truth(holds) => holds.into(),
            FixedNumber::Int(number) => number.into(),
            FixedNumber::Float(number) => number.into(),
        }
    }
}

impl FromStr for FixedNumber {
    type Err = Error;

    /// Parses `true`, `false`, an integer or a number.
    fn from_str(text: &str) -> Result<Self> {
        let truth = || text.parse().map(FixedNumber::Truth).ok();
        let int = || text.parse().map(FixedNumber::Int).ok();
        let float = || text.parse().map(FixedNumber::Float).ok();
        truth().or_else(int).or_else(float).ok_or_else(|| {
            Error::value(format!("`{}` is not a value; allowed: a number, true or false", printable(text)))
        })
    }
}

impl OnnxSource {
    /// Creates a source that fixes nothing.
    pub fn new(onnx: impl Into<PathBuf>) -> Self {
        OnnxSource { onnx: onnx.into(), fix: BTreeMap::new(), axes: BTreeMap::new() }
    }

    /// Imports the model. A relative path is resolved against the folder.
    ///
    /// # Errors
    /// Those of [`OnnxModel::open`] and [`OnnxModel::import`].
    pub fn read(&self, folder: &Path) -> Result<Model> {
        Ok(OnnxNetwork::into_model(self.import(folder)?))
    }

    /// Imports the model for a run, whose data has one input and which has a loss of one output.
    pub(crate) fn read_for_run(&self, folder: &Path) -> Result<Model> {
        let net = self.import(folder)?;
        let wrong = |words: String| Err(Error::run(words).in_file(self.onnx.display()));
        let inputs: Vec<String> = net.cell().inputs().map(|name| printable(name).into_owned()).collect();
        let outputs: Vec<String> = net.cell().outputs().map(|name| printable(name).into_owned()).collect();
        match (inputs.len(), outputs.len()) {
            (1, 1) => Ok(OnnxNetwork::into_model(net)),
            (0, _) => wrong("no input is left, and a run gives one; `fix` leaves one out".into()),
            (1, n) => wrong(format!("it has {n} outputs ({}), and the loss of a run is of one", outputs.join(", "))),
            (n, _) => wrong(format!(
                "it has {n} inputs ({}), and a run gives one; `fix: {{NAME: VALUE}}` gives values to the others",
                inputs.join(", ")
            )),
        }
    }

    fn import(&self, folder: &Path) -> Result<Child<OnnxNetwork>> {
        let file = folder.join(&self.onnx);
        OnnxModel::open(&file)?.import(&self.options()).map_err(|error| error.in_file(file.display()))
    }

    /// Returns the settings of the import.
    pub fn options(&self) -> ImportOptions {
        let fixed = self.fix.iter().fold(ImportOptions::new(), |options, (name, value)| options.fix(name, *value));
        self.axes.iter().fold(fixed, |options, (name, length)| options.axis(name, *length))
    }
}

impl ModelSource {
    /// Returns the ONNX model, if it is one.
    pub fn onnx(&self) -> Option<OnnxSource> {
        match self {
            ModelSource::Onnx(source) => Some(source.clone()),
            ModelSource::Named(name) if is_onnx(Path::new(name)) => Some(OnnxSource::new(name)),
            ModelSource::Named(_) => None,
        }
    }

    /// Returns what it says beside the name or the file.
    pub(crate) fn without_file(&self) -> ModelSource {
        match self.onnx() {
            Some(source) => OnnxSource { onnx: PathBuf::new(), ..source }.into(),
            None => "".into(),
        }
    }

    /// Returns the name or the file.
    pub fn word(&self) -> &Path {
        match self {
            ModelSource::Named(name) => Path::new(name),
            ModelSource::Onnx(source) => &source.onnx,
        }
    }
}

/// Returns whether a path is that of an ONNX model, by its extension.
pub fn is_onnx(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("onnx"))
}

impl fmt::Display for ModelSource {
    /// Writes the name or the file.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.word().display().fmt(f)
    }
}

impl<T: Into<String>> From<T> for ModelSource {
    fn from(name: T) -> Self {
        ModelSource::Named(name.into())
    }
}

impl From<OnnxSource> for ModelSource {
    fn from(source: OnnxSource) -> Self {
        ModelSource::Onnx(source)
    }
}

/// Accepted values of `model`.
const MODEL: &str = "an architecture file, the name of a built-in model, such as lenet5, or `{onnx: model.onnx}`";

impl<'de> Deserialize<'de> for ModelSource {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Reader;
        impl<'de> de::Visitor<'de> for Reader {
            type Value = ModelSource;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(MODEL)
            }

            fn visit_str<E: de::Error>(self, name: &str) -> Result<ModelSource, E> {
                Ok(name.into())
            }

            fn visit_map<A: de::MapAccess<'de>>(self, map: A) -> Result<ModelSource, A::Error> {
                OnnxSource::deserialize(de::value::MapAccessDeserializer::new(map)).map(ModelSource::Onnx)
            }
        }
        deserializer.deserialize_any(Reader)
    }
}

impl Takes for ModelSource {
    fn takes(_: &Range) -> String {
        MODEL.into()
    }

    fn schema(_: &Range) -> Value {
        let number = json!({"anyOf": [{"type": "number"}, {"type": "boolean"}]});
        json!({"anyOf": [{"type": "string"}, {
            "type": "object",
            "properties": {
                "onnx": {"type": "string", "description": "The model file."},
                "fix": {
                    "type": "object",
                    "additionalProperties": number,
                    "description": "Values of inputs that steer the model.",
                },
                "axes": {
                    "type": "object",
                    "additionalProperties": {"type": "integer", "minimum": 1},
                    "description": "Lengths of symbolic axes.",
                },
            },
            "required": ["onnx"],
            "additionalProperties": false,
        }]})
    }
}
