//! Hand-written YAML, read within limits, with the position of every mistake reported.

mod choice;
mod source;

use std::{
    io::{self, Read as _},
    path::Path,
};

use serde::{Deserialize, de::DeserializeOwned};
use serde_yaml::{
    Location, Spanned, UserMessageFormatter,
    granit_parser::{self, Event, Parser},
    options::MergeKeyPolicy,
};

#[doc(hidden)]
pub use self::{
    choice::{Choice, Words, words},
    source::{Place, Source},
};
use crate::{
    error::{Error, ErrorKind, Result, did_you_mean},
    files,
};

/// Value with its position in the file.
pub(crate) type At<T> = Spanned<T>;

/// Returns a value without a position, for writing.
pub(crate) fn placeless<T>(value: T) -> At<T> {
    Spanned::new(value, Location::UNKNOWN, Location::UNKNOWN)
}

/// Maximum nesting depth of lists and maps.
const MAX_DEPTH: usize = 32;

/// Document with a version, and the wording of messages about it.
#[doc(hidden)]
pub trait Document: DeserializeOwned {
    /// Name of the document type, such as `policy`.
    const WHAT: &'static str;
    /// Kind of its errors.
    const KIND: ErrorKind;

    /// Maximum size of a file. Documents are written by hand, so anything larger is not one.
    const MAX_BYTES: usize = 64 * 1024;

    /// Maximum number of values, lists and maps in a file.
    const MAX_NODES: usize = 4096;

    /// Keys required in every file.
    const REQUIRED: &'static [&'static str];

    /// Returns the version.
    fn version(&self) -> &Spanned<u32>;

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

    /// Returns an example of a map under a key, for messages. Empty if no example helps.
    fn example(_key: &str) -> &'static str {
        ""
    }
}

/// Reads the text of a file. `hint` extends the error message for a file that cannot be read.
///
/// # Errors
/// [`ErrorKind::Io`] when the file cannot be read; the kind of the document when it is too large or not UTF-8.
#[doc(hidden)]
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
    let (place, words) = match std::str::from_utf8(&bytes) {
        _ if too_large => (Place::START, too_large_words::<T>()),
        Ok(text) => return Ok(text.to_string()),
        Err(error) => (
            Place::of_byte(&bytes, error.valid_up_to()),
            format!("a byte that is not UTF-8; {} files are UTF-8 text", T::WHAT),
        ),
    };
    let text = String::from_utf8_lossy(&bytes);
    Err(Source::new(&name, &text).error(place, Error::new(T::KIND, words)))
}

/// Checks the parser events before anything is built from them: one document, no anchors, aliases, tags or merge keys,
/// and limits on depth and length.
fn check_form<T: Document>(source: &Source<'_>) -> Result<()> {
    let wrong = |words: String| Error::new(T::KIND, words);
    // The parser treats a NUL as the end of the text.
    if let Some(byte) = source.text.bytes().position(|b| b.is_ascii_control() && !matches!(b, b'\t' | b'\n' | b'\r')) {
        let place = Place::of_byte(source.text.as_bytes(), byte);
        let met = source.text.as_bytes()[byte];
        return Err(source.error(place, wrong(format!("a control character, 0x{met:02x}, which YAML forbids"))));
    }
    let options = granit_parser::options! {
        disallow_directives: true,
        emit_unresolved_aliases: true,
        emit_comments: false,
    };
    let refuse = |place: Place, words: String| Err(source.error(place, wrong(words)));
    let (mut depth, mut nodes, mut documents) = (0usize, 0usize, 0usize);
    for event in Parser::new_from_str_with_options(source.text, options) {
        let (event, span) = event.map_err(|error| {
            let (place, info) = (Place::from(error.marker()), error.info());
            let (place, words) = not_yaml(source, place, &info).unwrap_or((place, format!("not YAML: {info}")));
            source.error(place, wrong(words))
        })?;
        let place = Place::from(&span.start);
        let (anchor, tag) = match &event {
            Event::DocumentStart(..) => {
                documents += 1;
                if documents > 1 {
                    return refuse(place, "a second document begins here; a file has one".into());
                }
                continue;
            }
            Event::Alias(..) | Event::UnresolvedAlias(..) => {
                return refuse(
                    place,
                    "an unquoted `*` begins a YAML alias, which is not allowed here; put a pattern in quotes, as \
                     \"*.norm\""
                        .into(),
                );
            }
            Event::Scalar(text, style, anchor, tag) => {
                if text == "<<" && *style == granit_parser::ScalarStyle::Plain {
                    return refuse(place, "merge keys (`<<`) are not allowed here".into());
                }
                (*anchor, tag)
            }
            Event::SequenceStart(_, anchor, tag) | Event::MappingStart(_, anchor, tag) => {
                depth += 1;
                (*anchor, tag)
            }
            Event::SequenceEnd | Event::MappingEnd => {
                depth -= 1;
                continue;
            }
            _ => continue,
        };
        nodes += 1;
        if depth > MAX_DEPTH {
            return refuse(place, format!("lists and maps are nested deeper than {MAX_DEPTH}"));
        }
        if nodes > T::MAX_NODES {
            return refuse(place, format!("more than {} values", T::MAX_NODES));
        }
        if anchor != 0 {
            return refuse(place, "YAML anchors (`&`) are not allowed here; put text with `&` in quotes".into());
        }
        if tag.is_some() {
            return refuse(place, "YAML tags (`!`) are not allowed here; put text with `!` in quotes".into());
        }
    }
    if nodes == 0 {
        return refuse(Place::START, "the file is empty".into());
    }
    Ok(())
}

/// Words of the parser, each with what has probably been written.
const NOT_YAML: &[(&str, &str)] = &[
    ("simple key expected ':'", "expected: a key, then a colon and a space, then its value"),
    ("did not find expected ',' or", "a bracket before is not closed"),
    ("did not find expected", "expected: the keys of one map, and the items of one list, begin in the same column"),
    (
        "mapping values are not allowed",
        "a `: ` inside a value: a map goes in braces, `{key: value}`, or into lines of its own",
    ),
    ("in multiline quoted scalar", "a quote before is not closed"),
    ("unexpected end of stream", "a quote or a bracket is not closed"),
    ("while scanning a quoted scalar", "a quote is not closed"),
    ("unexpected character", "text that begins with this character goes in quotes"),
    ("cannot start any token", "text that begins with this character goes in quotes"),
];

/// Returns the position and the words for a text that the parser refuses at a place, in its words; `None` if it says all.
#[doc(hidden)]
pub fn not_yaml(source: &Source<'_>, place: Place, info: &str) -> Option<(Place, String)> {
    // The parser reports a tab at the end of the value before it, or after it.
    if ["a tab", "tabs "].iter().any(|words| info.contains(words))
        && let Some(tab) = source.first_tab(place.line)
    {
        return Some((
            tab,
            "a tab; YAML is indented by spaces, and a space, no tab, separates a key from its value".into(),
        ));
    }
    let (_, meant) = NOT_YAML.iter().find(|(words, _)| info.contains(words))?;
    Some((place, format!("not YAML: {info}; {meant}")))
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

/// Checks the form of a text and reads it as a document of version 1.
///
/// If this fails, only the version is read again: a later version may have other keys, and should be reported as such
/// rather than as an unknown key.
///
/// # Errors
/// An error of the document's kind, with a position.
#[doc(hidden)]
pub fn read<T: Document>(source: &Source<'_>) -> Result<T> {
    #[derive(Deserialize)]
    struct Head {
        version: Spanned<u32>,
    }
    check_size::<T>(source)?;
    check_form::<T>(source)?;
    let error = match parsed::<T>(source) {
        Ok(document) => return check_version::<T>(source, document.version()).map(|()| document),
        Err(error) => error,
    };
    match parsed::<Head>(source) {
        Ok(Head { version }) => check_version::<T>(source, &version)?,
        // The unknown key may be a typo of `version`.
        Err(_) if matches!(error.without_snippet(), serde_yaml::Error::SerdeUnknownField { .. }) => {}
        Err(error) => return Err(placed::<T>(source, &error)),
    }
    Err(placed::<T>(source, &error))
}

/// Returns the text of a document. It has the size and the form that are read again.
///
/// # Errors
/// An error of the document's kind.
#[doc(hidden)]
pub fn written<T: Document + serde::Serialize>(document: &T) -> Result<String> {
    let text = serde_yaml::to_string(document)
        .map_err(|error| Error::new(T::KIND, format!("the {} cannot be written: {error}", T::WHAT)))?;
    let name = format!("the {} to be written", T::WHAT);
    let source = Source::new(&name, &text);
    check_size::<T>(&source)?;
    check_form::<T>(&source)?;
    Ok(text)
}

fn check_size<T: Document>(source: &Source<'_>) -> Result<()> {
    match source.text.len() > T::MAX_BYTES {
        true => Err(source.error(Place::START, Error::new(T::KIND, too_large_words::<T>()))),
        false => Ok(()),
    }
}

fn too_large_words<T: Document>() -> String {
    format!("the file is larger than {} KiB, the most a {} may have", T::MAX_BYTES / 1024, T::WHAT)
}

fn check_version<T: Document>(source: &Source<'_>, version: &Spanned<u32>) -> Result<()> {
    if version.value == 1 {
        return Ok(());
    }
    let words = format!("{} files of version {} are not known; allowed: 1", T::WHAT, version.value);
    Err(source.error(version.referenced, Error::new(T::KIND, words)))
}

/// Deserializes a text that has passed [`check_form`].
fn parsed<T: DeserializeOwned>(source: &Source<'_>) -> Result<T, serde_yaml::Error> {
    let options = serde_yaml::options! {
        strict_booleans: true,
        merge_keys: MergeKeyPolicy::Error,
        with_snippet: false,
        // `check_form` has already counted.
        budget: None,
    };
    serde_yaml::from_str_with_options(source.text, options)
}

/// Adds the position to an error of the parser, in words of this library.
fn placed<D: Document>(source: &Source<'_>, error: &serde_yaml::Error) -> Error {
    let place = error.location().map_or(Place::START, Place::from);
    let place = match error.without_snippet() {
        // The parser reports a missing key of the document at its last key.
        serde_yaml::Error::SerdeMissingField { field, .. } if D::REQUIRED.contains(field) => source.first(),
        // For an unknown variant, it reports the start of the key.
        serde_yaml::Error::SerdeUnknownVariant { variant, .. } => source.place_after(place, variant),
        _ => place,
    };
    source.error(place, Error::new(D::KIND, in_our_words::<D>(error, source, place)))
}

/// Translates an error of the parser into a message of this library, with the expected and the actual content.
fn in_our_words<T: Document>(error: &serde_yaml::Error, source: &Source<'_>, place: Place) -> String {
    use serde_yaml::{Error as E, MessageFormatter};
    let expected = |what: &str| match source.value_at(place) {
        met if met.is_empty() => format!("expected {what}, got nothing"),
        met => format!("expected {what}, got `{met}`"),
    };
    match error {
        E::SerdeUnknownField { field, expected, .. } => unknown::<T>("key", field, expected),
        E::SerdeUnknownVariant { variant, expected, .. } => unknown::<T>("name", variant, expected),
        E::SerdeInvalidLength { len, expected, .. } => match expected.strip_prefix("a tuple of size ") {
            Some(size) => format!("expected {size} values, got {len}"),
            None => format!("expected {expected}, got {len} values"),
        },
        E::SerdeInvalidType { unexpected, expected, .. } => match unexpected.as_str() {
            "unit value" => format!("expected {expected}, got nothing"),
            unexpected => format!("expected {expected}, got {unexpected}"),
        },
        E::SerdeMissingField { field, .. } => {
            let allowed = match *field {
                "version" => "1",
                field => T::allowed(field),
            };
            let allowed = if allowed.is_empty() { String::new() } else { format!("; allowed: {allowed}") };
            format!("the key `{field}` is missing from this map{allowed}")
        }
        E::DuplicateMappingKey { key: Some(key), .. } => format!("duplicate key `{key}`"),
        E::Unexpected { expected: "mapping start", .. } => {
            let example = match T::example(&source.key_of(place)) {
                "" => ", `key: value`".to_string(),
                example => format!(" such as {example}"),
            };
            expected(&format!("a map{example}"))
        }
        E::Unexpected { expected: "mapping end", .. } => expected("one name with its options and no second one"),
        E::Unexpected { expected: "sequence start", .. } => expected("a list, `[a, b]` or a line with `- ` for each"),
        E::Unexpected { expected: "string scalar", .. } | E::NullIntoString { .. } => {
            match T::allowed(&source.key_of(place)) {
                "" => expected("a single value"),
                allowed => expected(allowed),
            }
        }
        E::InvalidScalar { ty: "u32" | "u64", .. } => expected("a whole number"),
        E::InvalidBooleanStrict { .. } => {
            let near = did_you_mean(&source.value_at(place), ["true", "false"]);
            format!("{}{near}", expected("true or false"))
        }
        E::InvalidScalar { .. } | E::NonFiniteFloat { .. } => expected("a finite number"),
        other => UserMessageFormatter.format_message(other).into_owned(),
    }
}
