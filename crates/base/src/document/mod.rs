//! Hand-written YAML, read within limits, with the position of every mistake reported.

mod at;
mod choice;
mod de;
mod mistake;
mod scalar;
mod source;
mod tree;

use std::{
    io::{self, Read as _},
    path::Path,
};

use serde::de::DeserializeOwned;

use self::mistake::{CHARACTER, Form, Mistake, NUMBER};
pub use self::{
    at::{At, placeless},
    choice::{Choice, Words, words},
    source::{Place, Source},
};
use crate::{
    error::{Error, ErrorKind, Result},
    files,
    names::did_you_mean,
};

/// Document with a version, and the wording of messages about it.
pub trait Document: DeserializeOwned {
    /// Name of the document type, such as `policy`.
    const WHAT: &'static str;
    /// Kind of its errors.
    const KIND: ErrorKind;

    /// Maximum size of a file. Documents are written by hand, so anything larger is not one.
    const MAX_BYTES: usize = 64 * 1024;

    /// Maximum number of values, lists and maps in a file.
    const MAX_NODES: usize = 4096;

    /// Maximum nesting depth of lists and maps.
    const MAX_DEPTH: usize = 32;

    /// Keys required in every file.
    const REQUIRED: &'static [&'static str];

    /// Returns the allowed values of a missing key, for messages. Empty if no hint helps.
    fn allowed(_key: &str) -> &'static str {
        ""
    }

    /// Returns the keys or names equivalent to one of another system or to a similar word; the first that is allowed in a
    /// map is meant.
    fn elsewhere(_key: &str) -> &'static [&'static str] {
        &[]
    }

    /// Returns whether an accepted key is another system's word for one of the keys. Messages leave it out.
    fn is_synonym(_key: &str) -> bool {
        false
    }

    /// Returns a hint on where a misplaced key or name belongs; `allowed` are those of the map. Empty if there is none.
    fn place(_key: &str, _allowed: &[&str]) -> String {
        String::new()
    }

    /// Returns the message for an unknown name of a list of names with messages of its own.
    fn unknown(_name: &str, _allowed: &[&'static str]) -> Option<String> {
        None
    }

    /// Returns an example of a map under a key, for messages. Empty if no example helps.
    fn example(_key: &str) -> &'static str {
        ""
    }
}

/// Reads the text of a file. `hint` extends the error message for a file that cannot be read.
///
/// # Errors
/// [`ErrorKind::Io`] when the file cannot be read; the kind of the document when it is too large or not UTF-8.
pub fn load<T: Document>(path: &Path, hint: impl FnOnce(&io::Error) -> String) -> Result<String> {
    let name = path.display().to_string();
    // One byte more than allowed, to stop reading an endless file.
    let read = std::fs::File::open(path).and_then(|file| {
        let mut bytes = Vec::new();
        file.take(T::MAX_BYTES as u64 + 1).read_to_end(&mut bytes)?;
        files::not_a_pointer(bytes)
    });
    let bytes = read.map_err(|error| Error::io_with(path, &error, &hint(&error)))?;
    // The limit may cut a character, so check the size before the encoding.
    let too_large = bytes.len() > T::MAX_BYTES;
    let (byte, words) = match std::str::from_utf8(&bytes) {
        _ if too_large => (0, too_large_words::<T>()),
        Ok(text) => return Ok(text.to_string()),
        Err(error) => (error.valid_up_to(), format!("a byte that is not UTF-8; {} files are UTF-8 text", T::WHAT)),
    };
    let text = String::from_utf8_lossy(&bytes);
    let source = Source::new(&name, &text);
    // A source has no byte order mark.
    let place = source.place(byte.saturating_sub(text.len() - source.text.len()));
    Err(source.error(place, Error::new(T::KIND, words)))
}

/// Returns the words for a key or a name that is unknown.
fn unknown<T: Document>(what: &str, met: &str, allowed: &[&'static str]) -> String {
    let allowed: Vec<&str> = allowed.iter().copied().filter(|key| !T::is_synonym(key)).collect();
    let similar = did_you_mean(met, allowed.iter().copied());
    let near = match T::elsewhere(met).iter().find(|ours| allowed.contains(ours)) {
        Some(ours) => format!(" (here it is `{ours}`)"),
        None => match T::place(met, &allowed).as_str() {
            "" => similar,
            // A word in place of a name is rather a name than a key from elsewhere.
            _ if what == "name" && !similar.is_empty() => similar,
            place => format!(" ({place})"),
        },
    };
    format!("unknown {what} `{met}`{near}; allowed: {}", allowed.join(", "))
}

/// Reads a text as a document of version 1.
///
/// A later version may have other keys, so an unknown version is reported before them.
///
/// # Errors
/// An error of the document's kind, with a position.
pub fn read<T: Document>(source: &Source<'_>) -> Result<T> {
    let tree = tree_of::<T>(source)?;
    let version = de::number_at(&tree, "version");
    if let Ok(At { value, place }) = version
        && value != 1
    {
        let words = format!("{} files of version {value} are not known; allowed: 1", T::WHAT);
        return Err(source.error(place, Error::new(T::KIND, words)));
    }
    de::read(&tree).map_err(|error| match version {
        // An unknown key may be a typo of `version`.
        Err(of_version) if !matches!(error, (Mistake::UnknownKey(..), _)) => placed::<T>(source, of_version),
        _ => placed::<T>(source, error),
    })
}

/// Returns the text of a document. It has the size and the form that are read again.
///
/// # Errors
/// An error of the document's kind.
pub fn written<T: Document + serde::Serialize>(document: &T) -> Result<String> {
    let text = serde_yaml::to_string(document)
        .map_err(|error| Error::new(T::KIND, format!("the {} cannot be written: {error}", T::WHAT)))?;
    let name = format!("the {} to be written", T::WHAT);
    check::<T>(&Source::new(&name, &text))?;
    Ok(text)
}

/// Checks the form of a text, as [`read`] does before it reads a document.
///
/// # Errors
/// As [`read`].
pub fn check<T: Document>(source: &Source<'_>) -> Result<()> {
    tree_of::<T>(source).map(|_| ())
}

fn tree_of<'a, T: Document>(source: &Source<'a>) -> Result<tree::Node<'a>> {
    let read = match source.text.len() > T::MAX_BYTES {
        true => Err((Place::START, too_large_words::<T>())),
        false => tree::tree(source, T::MAX_DEPTH, T::MAX_NODES),
    };
    read.map_err(|(place, words)| source.error(place, Error::new(T::KIND, words)))
}

fn too_large_words<T: Document>() -> String {
    format!("the file is larger than {} KiB, the most a {} may have", T::MAX_BYTES / 1024, T::WHAT)
}

/// Reads a value from a text without a version, for tests.
///
/// # Errors
/// [`ErrorKind::Value`] for a text that is not such a value.
pub fn from_str<T: DeserializeOwned>(text: &str) -> Result<T> {
    let tree = tree::tree(&Source::new("text", text), 64, usize::MAX).map_err(|(_, words)| Error::value(words))?;
    de::read(&tree).map_err(|(mistake, place)| Error::value(format!("{mistake:?} at {place:?}")))
}

/// Adds the position and the line to a mistake, in words.
fn placed<D: Document>(source: &Source<'_>, (mistake, place): (Mistake, Place)) -> Error {
    let place = match mistake {
        Mistake::Missing(ref key) if D::REQUIRED.contains(&key.as_str()) => source.first(),
        _ => place,
    };
    source.error(place, Error::new(D::KIND, words_of::<D>(mistake, source, place)))
}

/// Returns the message for a mistake, with the expected and the actual content.
fn words_of<T: Document>(mistake: Mistake, source: &Source<'_>, place: Place) -> String {
    let expected = |what: &str| match source.value_at(place) {
        met if met.is_empty() => format!("expected {what}, got nothing"),
        met => format!("expected {what}, got `{met}`"),
    };
    match mistake {
        Mistake::UnknownKey(met, allowed) => unknown::<T>("key", &met, allowed),
        Mistake::UnknownName(met, allowed) => {
            T::unknown(&met, allowed).unwrap_or_else(|| unknown::<T>("name", &met, allowed))
        }
        Mistake::Length { met, expected } => match expected.strip_prefix("a tuple of size ") {
            Some(size) => format!("expected {size} values, got {met}"),
            None => format!("expected {expected}, got {met} values"),
        },
        Mistake::Type { met, expected } => format!("expected {expected}, got {met}"),
        Mistake::Missing(key) => {
            let allowed = match (key.as_str(), T::example(&source.key_of(place))) {
                ("version", _) => "; allowed: 1".to_string(),
                (_, example) if !example.is_empty() => format!("; expected a map such as {example}"),
                (key, _) if !T::allowed(key).is_empty() => format!("; allowed: {}", T::allowed(key)),
                _ => String::new(),
            };
            format!("the key `{key}` is missing from this map{allowed}")
        }
        Mistake::Expected(form) => match form {
            Form::Map => match T::example(&source.key_of(place)) {
                "" => expected("a map, `key: value`"),
                example => expected(&format!("a map such as {example}")),
            },
            Form::Single => match T::allowed(&source.key_of(place)) {
                "" => expected("a single value"),
                allowed => expected(allowed),
            },
            Form::Truth => {
                let near = did_you_mean(&source.value_at(place), ["true", "false"]);
                format!("{}{near}", expected("true or false"))
            }
            form @ Form::Other(words) => {
                let met = source.value_at(place);
                let is_number = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
                let hint = match form {
                    CHARACTER if met.starts_with("'\\") => "; such a character is in double quotes, `\"\\t\"`",
                    NUMBER if met.split_once(',').is_some_and(|(a, b)| is_number(a) && is_number(b)) => {
                        "; a number has a decimal point"
                    }
                    _ => "",
                };
                format!("{}{hint}", expected(words))
            }
        },
        Mistake::Words(words) => words,
    }
}
