//! Architecture files: a network as YAML.
//!
//! ```
//! let text = "
//! version: 1
//! name: tiny
//! net:
//!   kind: Sequential
//!   cells:
//!   - {kind: Dense, in_features: 4, out_features: 8}
//!   - {kind: ReLU}
//!   - {kind: Dense, in_features: 8, out_features: 2}
//! ";
//! let net = precast::io::models::parse(text, "tiny.yaml", 0)?;
//! assert_eq!(net.params().len(), 4);
//! # Ok::<(), precast::Error>(())
//! ```
//!
//! Each cell is a map of its `kind` and its options, described by [`kinds`](crate::io::kinds);
//! `{to_float: float32, cell: {...}}` requests a precision. The kinds are those of
//! [`layers::kinds`](crate::layers::kinds), including the program's own cells marked `#[cell(saved)]`. A file holds no
//! weights: they are initialized from the seed, and [`weights`](crate::storage::weights) saves and loads them. A file cannot
//! express that two cells share a parameter. The key `input` gives the shape of one example, without the batch axis:
//! `input: [1, 32, 32]`. Examples are f32; `input_dtype: int64` is for words and other indices.

use std::path::Path;

use precast_base::names::did_you_mean;
use serde::{Deserialize, Deserializer, Serialize, de::Error as _};

use crate::{
    Child, DType, Tensor,
    cell::{AsCell, Part, Slot, known_kinds, writing},
    error::{Error, ErrorKind, Result},
    io::{
        document::{self, Document, Source},
        files,
        kinds::{named_elsewhere, unknown},
    },
    layers::{Rng, kinds},
};

/// Format version written.
const VERSION: u32 = 1;

/// Models shipped with the library.
const EMBEDDED: [(&str, &str); 4] = [
    ("lenet5", include_str!("../../models/lenet5.yaml")),
    ("lenet5_8x8", include_str!("../../models/lenet5_8x8.yaml")),
    ("lenet5_bn", include_str!("../../models/lenet5_bn.yaml")),
    ("mlp", include_str!("../../models/mlp.yaml")),
];

/// A network with the other entries of its architecture file.
#[derive(Debug)]
#[non_exhaustive]
pub struct Model {
    /// Human-readable name.
    pub name: Option<String>,
    /// Shape of one example, without the batch axis.
    pub input: Option<Vec<usize>>,
    /// Dtype of the examples: f32, or i64 for words and other indices.
    pub input_dtype: DType,
    /// The network.
    pub net: Child,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct V1 {
    #[serde(rename = "version")]
    _version: u32,
    name: Option<String>,
    input: Option<Vec<usize>>,
    input_dtype: Option<InputDtype>,
    #[serde(deserialize_with = "cells")]
    net: Child,
}

/// Reads a network by the code that reads cells inside cells.
fn cells<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Child, D::Error> {
    erased_serde::deserialize(&mut <dyn erased_serde::Deserializer>::erase(deserializer)).map_err(D::Error::custom)
}

impl Document for V1 {
    const WHAT: &'static str = "model";
    const KIND: ErrorKind = ErrorKind::Model;
    const MAX_BYTES: usize = 1 << 20;
    const MAX_NODES: usize = 65_536;
    const MAX_DEPTH: usize = 64;
    const REQUIRED: &'static [&'static str] = &["version", "net"];

    fn unknown(kind: &str, allowed: &[&'static str]) -> Option<String> {
        let kinds = kinds().unwrap_or_default();
        if allowed != kinds {
            return None;
        }
        Some(match (known_kinds().any(|known| known == kind), named_elsewhere(kind)) {
            (true, _) => format!("`{kind}` is not read from files; mark its type `#[cell(saved)]`"),
            (false, Some((here, who))) => {
                format!("no kind of cell is called `{kind}`; what {who} calls so is `{here}` here")
            }
            (false, None) => unknown(kind, &kinds),
        })
    }

    fn place(key: &str, allowed: &[&str]) -> String {
        match key {
            "level" | "dtype" | "pack" | "rules" | "loss_scale" if allowed.contains(&"net") => {
                "this looks like a policy, and a model is wanted".into()
            }
            "data" | "model" if allowed.contains(&"net") => "this looks like a run file, and a model is wanted".into(),
            _ => String::new(),
        }
    }
}

/// Dtypes allowed for examples.
#[derive(Clone, Copy, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum InputDtype {
    Float32,
    Int64,
}

#[derive(Serialize)]
struct V1Ref<'a> {
    version: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    input: Option<&'a [usize]>,
    #[serde(skip_serializing_if = "Option::is_none")]
    input_dtype: Option<InputDtype>,
    net: Slot<'a>,
}

/// Returns the number of columns of indices that a network takes beside its input.
fn index_columns(net: &Child) -> Option<usize> {
    let mut columns = None;
    let mut is_first = true;
    net.walk(&mut |entry| {
        let cell = entry.slot.cell;
        if is_first && cell.kind() == "ColumnEmbedding" {
            let mut tables = 0;
            cell.visit(&mut |_, part| tables += usize::from(matches!(part, Part::Cell(_))));
            columns = Some(tables);
        }
        is_first &= cell.kind() == "Sequential";
    });
    columns
}

impl Model {
    /// Creates a model from a network built in code, without a name or an input shape.
    pub fn new(net: impl Into<Child>) -> Self {
        Model { name: None, input: None, input_dtype: DType::F32, net: net.into() }
    }

    /// Sets the shape of one example, without the batch axis: `[1, 32, 32]`.
    #[must_use]
    pub fn input(mut self, shape: impl Into<Vec<usize>>) -> Self {
        self.input = Some(shape.into());
        self
    }

    /// Sets the dtype of the examples to i64, for words and other indices.
    #[must_use]
    pub fn of_indices(mut self) -> Self {
        self.input_dtype = DType::I64;
        self
    }

    /// Returns a batch of inputs for tracing, the first of the given shape and the model's input dtype: all ones, or all
    /// index 0. If the first cell is a [`ColumnEmbedding`](crate::layers::ColumnEmbedding), its indices follow.
    pub fn sample(&self, shape: &[usize]) -> Vec<Tensor> {
        if self.input_dtype == DType::I64 {
            return vec![Tensor::zeros(shape, DType::I64)];
        }
        let x = Tensor::ones(shape, self.input_dtype);
        let columns = index_columns(&self.net).zip(shape.first());
        let indices = columns.map(|(columns, &n)| Tensor::zeros(&[n, columns], DType::I64));
        std::iter::once(x).chain(indices).collect()
    }

    /// Returns the architecture file, with all entries that [`Model::parse`] reads.
    ///
    /// # Errors
    /// As [`to_yaml`].
    pub fn to_yaml(&self) -> Result<String> {
        let input_dtype = (self.input_dtype == DType::I64).then_some(InputDtype::Int64);
        write(&self.net, Beside { name: self.name.as_deref(), input: self.input.as_deref(), input_dtype })
    }

    /// Returns the names of the models shipped with the library.
    pub fn names() -> impl Iterator<Item = &'static str> {
        EMBEDDED.into_iter().map(|(name, _)| name)
    }

    /// Returns the text of a model shipped with the library.
    pub fn shipped_text(name: &str) -> Option<&'static str> {
        EMBEDDED.into_iter().find(|(known, _)| *known == name).map(|(_, text)| text)
    }

    /// Builds a model shipped with the library, with weights initialized from the seed.
    ///
    /// # Errors
    /// [`ErrorKind::Model`] for an unknown name, with the nearest and all names.
    ///
    /// ```
    /// let lenet5 = precast::io::models::Model::named("lenet5", 0)?;
    /// assert_eq!(lenet5.input.as_deref(), Some(&[1, 32, 32][..]));
    /// # Ok::<(), precast::Error>(())
    /// ```
    pub fn named(name: &str, seed: u64) -> Result<Self> {
        let Some((_, text)) = EMBEDDED.into_iter().find(|(known, _)| *known == name) else {
            let allowed: Vec<&str> = Model::names().collect();
            let near = did_you_mean(name, allowed.iter().copied());
            return Err(Error::model(format!("no model is called `{name}`{near}; allowed: {}", allowed.join(", "))));
        };
        Model::parse(text, &format!("models/{name}.yaml"), seed)
    }

    /// Loads a file as [`load`] does, keeping all its entries.
    ///
    /// # Errors
    /// As [`load`].
    pub fn load(path: impl AsRef<Path>, seed: u64) -> Result<Self> {
        let path = path.as_ref();
        let text = files::read_text(path, V1::MAX_BYTES)?;
        let model = Model::parse(&text, &path.display().to_string(), seed)?;
        tracing::debug!(target: "precast", file = %path.display(), "model read");
        Ok(model)
    }

    /// Parses a text as [`parse`] does, keeping all its entries.
    ///
    /// # Errors
    /// As [`parse`].
    pub fn parse(text: &str, origin: &str, seed: u64) -> Result<Self> {
        kinds()?;
        let read = || document::read(&Source::new(origin, text));
        let V1 { name, input, input_dtype, net, .. } = Rng::seed(seed).reading(read)?;
        let input_dtype = match input_dtype {
            None | Some(InputDtype::Float32) => DType::F32,
            Some(InputDtype::Int64) => DType::I64,
        };
        Ok(Model { name, input, input_dtype, net })
    }
}

/// Reads a network from an architecture file. The weights are initialized from the seed, reproducibly.
///
/// # Errors
/// [`ErrorKind::Io`] when the file cannot be read or is longer than 1 MiB, else as [`parse`].
pub fn load(path: impl AsRef<Path>, seed: u64) -> Result<Child> {
    Model::load(path, seed).map(|model| model.net)
}

/// Reads a network from the text of an architecture file; `origin` names it in errors.
///
/// # Errors
/// [`ErrorKind::Model`], with line and column, for a text that is not YAML, has anchors,
/// aliases or tags, is longer than 1 MiB or nested deeper than 64, or whose parameters would have more than 2^30
/// numbers (4 GiB); for an unknown version, kind or option, and for incompatible options.
pub fn parse(text: &str, origin: &str, seed: u64) -> Result<Child> {
    Model::parse(text, origin, seed).map(|model| model.net)
}

/// Returns the architecture file of a network.
///
/// # Errors
/// [`ErrorKind::Model`] when one of the program's own cells is not saved, with its path; when
/// two types have the same kind; and for a network too large or nested too deep to be read back, by the limits of
/// [`parse`].
pub fn to_yaml<C: ?Sized + AsCell>(net: &Child<C>) -> Result<String> {
    write(net, Beside::default())
}

/// Writes the architecture file of a network, using the file name as its name.
///
/// # Errors
/// As [`to_yaml`], and [`ErrorKind::Io`] when the file cannot be written; an existing file is
/// then unchanged.
pub fn save<C: ?Sized + AsCell>(net: &Child<C>, path: impl AsRef<Path>) -> Result<()> {
    let path = path.as_ref();
    let name = path.file_stem().map(|stem| stem.to_string_lossy().into_owned());
    files::replace(path, write(net, Beside { name: name.as_deref(), ..Beside::default() })?.as_bytes())
}

/// Entries of an architecture file other than the network.
#[derive(Default)]
struct Beside<'a> {
    name: Option<&'a str>,
    input: Option<&'a [usize]>,
    input_dtype: Option<InputDtype>,
}

fn write<C: ?Sized + AsCell>(net: &Child<C>, Beside { name, input, input_dtype }: Beside<'_>) -> Result<String> {
    let mut deepest = 0;
    net.walk(&mut |cell| deepest = deepest.max(cell.depth));
    // Each cell is a map inside the map of its parent, and writing recurses, so the depth is checked first.
    if deepest >= V1::MAX_DEPTH {
        let words = format!("{WRITTEN}: lists and maps are nested deeper than {}", V1::MAX_DEPTH);
        return Err(Error::model(words));
    }
    kinds()?;
    let text =
        writing(|| serde_yaml::to_string(&V1Ref { version: VERSION, name, input, input_dtype, net: net.slot() }))
            .map_err(|(e, slot)| match slot.and_then(|slot| net.path_of(slot)) {
                Some(path) if !path.is_empty() => Error::model(format!("cell `{path}`: {e}")),
                _ => Error::model(e.to_string()),
            })?;
    document::check::<V1>(&Source::new(WRITTEN, &text))?;
    Ok(text)
}

/// Name of the written text in errors.
const WRITTEN: &str = "the file of the network";
