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

use serde::{
    Deserialize, Serialize,
    de::{Error as _, IgnoredAny},
};
use serde_yaml::{Spanned, budget::BudgetBreach};

use crate::{
    Child, DType, Tensor,
    cell::{AsCell, Part, Slot, known_kinds, writing},
    error::{Error, Result, did_you_mean},
    io::{
        document::{self, Place, Source},
        files,
        kinds::{named_elsewhere, unknown},
    },
    layers::{Rng, kinds},
    logging::event,
};

/// Format version written.
const VERSION: u32 = 1;

/// Maximum length of a file, read or written.
const MAX_BYTES: usize = 1 << 20;
/// Maximum nesting depth of lists and maps.
const MAX_DEPTH: usize = 64;
/// Maximum number of values, lists and maps in a file.
const MAX_NODES: usize = 65_536;

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
struct Head {
    version: Spanned<u32>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct V1 {
    #[serde(rename = "version")]
    _version: u32,
    name: Option<String>,
    input: Option<Vec<usize>>,
    input_dtype: Option<InputDtype>,
    net: Child,
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
    /// [`ErrorKind::Model`](crate::ErrorKind::Model) for an unknown name, with the nearest and all names.
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
        let text = files::read_text(path, MAX_BYTES)?;
        let model = Model::parse(&text, &path.display().to_string(), seed)?;
        event!(DEBUG, file = %path.display(), "model read");
        Ok(model)
    }

    /// Parses a text as [`parse`] does, keeping all its entries.
    ///
    /// # Errors
    /// As [`parse`].
    pub fn parse(text: &str, origin: &str, seed: u64) -> Result<Self> {
        not_too_long(text, origin)?;
        kinds()?;
        let head: Head = read(text, origin)?;
        match head.version.value {
            VERSION => {
                let V1 { name, input, input_dtype, net, .. } = Rng::seed(seed).reading(|| read_cells(text, origin))?;
                let input_dtype = match input_dtype {
                    None | Some(InputDtype::Float32) => DType::F32,
                    Some(InputDtype::Int64) => DType::I64,
                };
                Ok(Model { name, input, input_dtype, net })
            }
            other => {
                let words = format!("version {other} is not one that is read here ({VERSION})");
                Err(Source::new(origin, text).error(head.version.referenced, Error::model(words)))
            }
        }
    }
}

/// Reads a network from an architecture file. The weights are initialized from the seed, reproducibly.
///
/// # Errors
/// [`ErrorKind::Io`](crate::ErrorKind::Io) when the file cannot be read or is longer than 1 MiB, else as [`parse`].
pub fn load(path: impl AsRef<Path>, seed: u64) -> Result<Child> {
    Model::load(path, seed).map(|model| model.net)
}

/// Reads a network from the text of an architecture file; `origin` names it in errors.
///
/// # Errors
/// [`ErrorKind::Model`](crate::ErrorKind::Model), with line and column, for a text that is not YAML, has anchors,
/// aliases or tags, is longer than 1 MiB or nested deeper than 64, or whose parameters would have more than 2^30
/// numbers (4 GiB); for an unknown version, kind or option, and for incompatible options.
pub fn parse(text: &str, origin: &str, seed: u64) -> Result<Child> {
    Model::parse(text, origin, seed).map(|model| model.net)
}

/// Returns the architecture file of a network.
///
/// # Errors
/// [`ErrorKind::Model`](crate::ErrorKind::Model) when one of the program's own cells is not saved, with its path; when
/// two types have the same kind; and for a network too large or nested too deep to be read back, by the limits of
/// [`parse`].
pub fn to_yaml<C: ?Sized + AsCell>(net: &Child<C>) -> Result<String> {
    write(net, Beside::default())
}

/// Writes the architecture file of a network, using the file name as its name.
///
/// # Errors
/// As [`to_yaml`], and [`ErrorKind::Io`](crate::ErrorKind::Io) when the file cannot be written; an existing file is
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
    if deepest >= MAX_DEPTH {
        return Err(Error::model(format!("{WRITTEN}: {}", too_deep())));
    }
    kinds()?;
    let text =
        writing(|| serde_yaml::to_string(&V1Ref { version: VERSION, name, input, input_dtype, net: net.slot() }))
            .map_err(|(e, slot)| match slot.and_then(|slot| net.path_of(slot)) {
                Some(path) if !path.is_empty() => Error::model(format!("cell `{path}`: {e}")),
                _ => Error::model(e.to_string()),
            })?;
    not_too_long(&text, WRITTEN)?;
    read::<IgnoredAny>(&text, WRITTEN)?;
    Ok(text)
}

/// Name of the written text in errors.
const WRITTEN: &str = "the file of the network";

fn not_too_long(text: &str, origin: &str) -> Result<()> {
    match text.len() > MAX_BYTES {
        true => Err(Error::model(format!("{origin}: {} bytes long; at most {MAX_BYTES} are read", text.len()))),
        false => Ok(()),
    }
}

fn too_deep() -> String {
    format!("lists and maps are nested deeper than {MAX_DEPTH}")
}

/// Reads one document, with limits checked during parsing.
fn read<'de, T: Deserialize<'de>>(text: &'de str, origin: &str) -> Result<T> {
    serde_yaml::from_str_with_options(text, options()).map_err(|e| in_our_words(&e, &Source::new(origin, text)))
}

/// Reads a document as [`read`] does, by the code that reads cells inside cells.
fn read_cells<'de, T: Deserialize<'de>>(text: &'de str, origin: &str) -> Result<T> {
    let read = |yaml: serde_yaml::Deserializer<'de, '_>| {
        erased_serde::deserialize(&mut <dyn erased_serde::Deserializer>::erase(yaml)).map_err(serde_yaml::Error::custom)
    };
    serde_yaml::with_deserializer_from_str_with_options(text, options(), read)
        .map_err(|e| in_our_words(&e, &Source::new(origin, text)))
}

/// Returns the limits of reading, and the refused forms of YAML.
fn options() -> serde_yaml::Options {
    serde_yaml::options! {
        budget: serde_yaml::budget! {
            max_depth: MAX_DEPTH, max_nodes: MAX_NODES, max_aliases: 0, max_anchors: 0, max_documents: 1, max_merge_keys: 0,
        },
        strict_booleans: true,
        reject_unsupported_tags: true,
        with_snippet: false,
    }
}

/// Converts a parser error, adding its place and the nearest allowed name.
///
/// Cells are read through trait objects, which turn inner errors into text. Each level has appended a place to that
/// text; the first one is the innermost.
fn in_our_words(error: &serde_yaml::Error, source: &Source<'_>) -> Error {
    // The whole file is parsed to read its head, before any cell. A file beyond a limit fails here.
    if let serde_yaml::Error::Budget { breach, location } = error.without_snippet() {
        return source.error(*location, Error::model(over_limit(breach)));
    }
    let text = error.without_snippet().to_string();
    let (mut what, mut place) = (text.as_str(), None);
    while let Some((before, at)) = what.rsplit_once(" at line ")
        && let Some((line, column)) = at.split_once(", column ")
        && let (Ok(line), Ok(column)) = (line.parse(), column.parse())
    {
        (what, place) = (before, Some(Place { line, column }));
    }
    let (met, allowed) = what.split_once("`, expected ").unwrap_or((what, ""));
    let allowed = allowed.trim_start_matches("one of ");
    let kinds = kinds().unwrap_or_default();
    let what = if let Some(kind) = met.strip_prefix("unknown variant `").filter(|_| allowed == kinds.join(", ")) {
        match known_kinds().any(|known| known == kind) {
            true => format!("`{kind}` is not read from files; mark its type `#[cell(saved)]`"),
            false => match named_elsewhere(kind) {
                Some((here, who)) => {
                    format!("no kind of cell is called `{kind}`; what {who} calls so is `{here}` here")
                }
                None => unknown(kind, &kinds),
            },
        }
    } else if let Some(key) = met.strip_prefix("unknown field `") {
        let near = match key {
            "level" | "dtype" | "pack" | "rules" | "loss_scale" if allowed.contains("net") => {
                "; this looks like a policy, and a model is wanted".to_string()
            }
            key => did_you_mean(key, allowed.split(", ")),
        };
        format!("unknown key `{key}`{near}; there may be {allowed}")
    } else if what.starts_with("invalid u") {
        "not a whole number of at least 0".to_string()
    } else if let Some((at, words)) = place.and_then(|place| document::not_yaml(source, place, what)) {
        place = Some(at);
        words
    } else if source.text.lines().map(str::trim).all(|line| line.is_empty() || line.starts_with('#')) {
        "the file is empty".to_string()
    } else {
        reworded(what)
    };
    match place {
        Some(place) => source.error(place, Error::model(what)),
        None => Error::model(what).context(&source.name),
    }
}

/// Rewords the parser's errors, available only as text.
fn reworded(what: &str) -> String {
    if let Some(key) = what.strip_prefix("duplicate mapping key: ") {
        let key = key.split(',').next().unwrap_or(key);
        return format!("duplicate key `{key}`");
    }
    if let Some(key) = what.strip_prefix("missing field `") {
        return format!("the key `{} is missing from this map", key);
    }
    let words = match what {
        "unexpected end of input" => "the text ends here, and something is missing",
        "expected mapping start" => "expected a map, `key: value`",
        "expected sequence start" => "expected a list, `[a, b]` or a line with `- ` for each",
        "expected string scalar" => "expected a single value",
        _ if what.starts_with("alias references unknown anchor") => ANCHORS,
        _ if what.starts_with("unsupported tag") => "YAML tags (`!`) are not allowed here; put text with `!` in quotes",
        _ if what.starts_with("invalid floating point") => "not a number",
        _ if what.starts_with("invalid boolean") => "neither `true` nor `false`",
        other => other,
    };
    words.to_string()
}

const ANCHORS: &str = "YAML anchors (`&`) and aliases (`*`) are not allowed here; put text with them in quotes";

/// Returns the limit that a file exceeds.
fn over_limit(breach: &BudgetBreach) -> String {
    match breach {
        BudgetBreach::Anchors { .. } | BudgetBreach::Aliases { .. } => ANCHORS.to_string(),
        BudgetBreach::MergeKeys { .. } => "merge keys (`<<`) are not allowed here".to_string(),
        BudgetBreach::Depth { .. } => too_deep(),
        BudgetBreach::Nodes { .. } => format!("more than {MAX_NODES} values"),
        BudgetBreach::Documents { .. } => "a second document begins here; a file has one".to_string(),
        _ => "longer or more entangled than an architecture file may be".to_string(),
    }
}
