//! Weights to start a run from.

use std::{
    fmt,
    path::{Path, PathBuf},
};

use precast::{
    Child,
    error::{Error, Result},
    options::{Range, Takes, options},
    storage::weights::{self, LoadOptions},
};
use serde::{Deserialize, Deserializer, Serialize, de};
use serde_json::{Value, json};

/// Weights to start from, with the options of [`LoadOptions`].
///
/// In a run file it is a file, or `{file: base.safetensors, rename: [{from: 'bert.**', to: '**'}], partial: ['head.**']}`.
#[options(called = "weights")]
#[derive(Clone, Debug, PartialEq)]
pub struct Weights {
    /// A safetensors file, or a checkpoint.
    pub file: PathBuf,
    /// `true` when the names are those of a state dict of torch; see [`LoadOptions::torch`].
    #[option(default = false)]
    pub torch: bool,
    /// `true` when tensors of another floating-point dtype are rounded or widened.
    #[option(default = false)]
    pub cast: bool,
    /// Tensors of the file that are skipped.
    #[option(default)]
    pub ignore: Vec<String>,
    /// New names of tensors of the file, in order.
    #[option(default)]
    pub rename: Vec<Rename>,
    /// Tensors of the file that are several parameters of the network.
    #[option(default)]
    pub split: Vec<Split>,
    /// Matrices of the network that the file has with swapped axes.
    #[option(default)]
    pub transpose: Vec<String>,
    /// Parameters and buffers of the network that the file may lack, such as a new head.
    #[option(default)]
    pub partial: Vec<String>,
}

/// A new name for tensors of a file; see [`LoadOptions::rename`].
#[options(called = "a rename")]
#[derive(Clone, Debug, PartialEq)]
pub struct Rename {
    /// Pattern of the names in the file.
    pub from: String,
    /// The paths in the network, with the same wildcards.
    pub to: String,
}

/// A tensor of a file that is several parameters; see [`LoadOptions::split`].
#[options(called = "a split")]
#[derive(Clone, Debug, PartialEq)]
pub struct Split {
    /// Pattern of the names, after renames.
    pub from: String,
    /// Paths of the parts, with the same wildcards.
    pub to: Vec<String>,
    /// Axis along which the parts are concatenated.
    #[option(default = 0)]
    pub axis: usize,
}

impl Weights {
    /// Returns the options of loading.
    pub fn load_options(&self) -> LoadOptions {
        let options = if self.torch { LoadOptions::torch() } else { LoadOptions::new() }.cast(self.cast);
        let options = self.ignore.iter().fold(options, LoadOptions::ignore);
        let options = self.rename.iter().fold(options, |options, Rename { from, to }| options.rename(from, to));
        let split = |options: LoadOptions, Split { from, to, axis }: &Split| options.split(from, to, *axis);
        let options = self.split.iter().fold(options, split);
        let options = self.transpose.iter().fold(options, LoadOptions::transpose);
        self.partial.iter().fold(options, LoadOptions::partial)
    }

    /// Loads the weights into a network; a relative path is resolved against the folder.
    pub(crate) fn load(&self, net: &Child, folder: &Path) -> Result<()> {
        weights::load_with(net, folder.join(&self.file), &self.load_options()).map(drop)
    }
}

/// Accepted values of `weights`.
const WEIGHTS: &str = "a file, or a map with `file` and the options of loading";

/// Weights as run files have them: a file alone, a map, or none.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(crate) struct Written(Option<Weights>);

impl From<Option<Weights>> for Written {
    fn from(weights: Option<Weights>) -> Self {
        Written(weights)
    }
}

impl From<Written> for Option<Weights> {
    fn from(Written(weights): Written) -> Self {
        weights
    }
}

impl<'de> Deserialize<'de> for Written {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Reader;
        impl<'de> de::Visitor<'de> for Reader {
            type Value = Option<Weights>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(WEIGHTS)
            }

            fn visit_unit<E: de::Error>(self) -> Result<Self::Value, E> {
                Ok(None)
            }

            fn visit_str<E: de::Error>(self, file: &str) -> Result<Self::Value, E> {
                Ok(Some(Weights::new(file)))
            }

            fn visit_map<A: de::MapAccess<'de>>(self, map: A) -> Result<Self::Value, A::Error> {
                Weights::deserialize(de::value::MapAccessDeserializer::new(map)).map(Some)
            }
        }
        deserializer.deserialize_any(Reader).map(Written)
    }
}

impl Takes for Written {
    fn takes(_: &Range) -> String {
        WEIGHTS.into()
    }

    fn schema(range: &Range) -> Value {
        json!({"anyOf": [{"type": "string"}, Weights::schema(range)]})
    }

    fn out_of_range(&self, name: &str, range: &Range) -> Option<Error> {
        Takes::out_of_range(&self.0, name, range)
    }
}
