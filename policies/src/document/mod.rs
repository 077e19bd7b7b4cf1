//! YAML that people write by hand: read within limits, and every mistake told with its place.

mod choice;
mod source;

use std::{
    io::{self, Read as _},
    path::Path,
};

use serde::{Deserialize, de::DeserializeOwned};
use serde_yaml::{
    Spanned, UserMessageFormatter,
    granit_parser::{self, Event, Parser, ScanError},
    options::MergeKeyPolicy,
};

#[doc(hidden)]
pub use self::{
    choice::Choice,
    source::{Place, Source},
};
use crate::{
    error::{Error, ErrorKind, Result, did_you_mean},
    files,
};

/// How deep lists and maps may be nested.
const MAX_DEPTH: usize = 32;

/// A document that says of which version it is, and the words of messages about it.
#[doc(hidden)]
pub trait Document: DeserializeOwned {
    /// What it is called: `policy`.
    const WHAT: &'static str;
    /// The kind of its errors.
    const KIND: ErrorKind;

    /// The largest file. Such a file is written by people; whatever is larger is something else.
    const MAX_BYTES: usize = 64 * 1024;

    /// How many values, lists and maps a file may have.
    const MAX_NODES: usize = 4096;

    /// The keys that every file has.
    const REQUIRED: &'static [&'static str];

    /// Its version.
    fn version(&self) -> &Spanned<u32>;

    /// What may stand under a key that is missing; empty where words do not help.
    fn allowed(_key: &str) -> &'static str {
        ""
    }

    /// What a key of other systems, or a near word, is called here.
    fn elsewhere(_key: &str) -> Option<&'static str> {
        None
    }

    /// Where a key stands that was met in a map which does not have it; empty where it stands nowhere.
    fn place(_key: &str) -> &'static str {
        ""
    }

    /// A map that may stand under a key; empty where an example does not help.
    fn example(_key: &str) -> &'static str {
        ""
    }
}

/// The text of a file. `hint` adds words to the error of a file that cannot be read.
///
/// # Errors
/// [`ErrorKind::Io`], and of the kind of the document when the file is too large or no UTF-8.
#[doc(hidden)]
pub fn load<T: Document>(path: &Path, hint: impl FnOnce(&io::Error) -> String) -> Result<String> {
    let name = path.display().to_string();
    // One byte more than allowed, so that an endless file ends here.
    let read = std::fs::File::open(path).and_then(|file| {
        let mut bytes = Vec::new();
        file.take(T::MAX_BYTES as u64 + 1).read_to_end(&mut bytes)?;
        files::not_a_pointer(bytes)
    });
    let bytes = read.map_err(|error| Error::io_with(path, &error, &hint(&error)))?;
    // A character may be cut at the limit, so the size comes before the encoding.
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

/// Walks the events of the parser before anything is built from them: one document, no anchors, aliases, tags or merge
/// keys, nothing deep, nothing long.
fn check_form<T: Document>(source: &Source<'_>) -> Result<()> {
    let wrong = |words: String| Error::new(T::KIND, words);
    // The parser takes a NUL for the end of the text.
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
        let (event, span) = event.map_err(|error| source.error(error.marker(), wrong(not_yaml(&error))))?;
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

fn not_yaml(error: &ScanError) -> String {
    let tab = if error.info().contains("tab") { "; YAML is indented by blanks, and not by tabs" } else { "" };
    format!("not YAML: {}{tab}", error.info())
}

/// Checks the form of a text and reads it as a document of version 1.
///
/// A text that is no such document is read again for its version alone: a later version may have other keys, and its reader
/// should be told that, not that a key is unknown.
///
/// # Errors
/// Of the kind of the document, with a place.
#[doc(hidden)]
pub fn read<T: Document>(source: &Source<'_>) -> Result<T> {
    #[derive(Deserialize)]
    struct Head {
        version: Spanned<u32>,
    }
    check_size::<T>(source)?;
    check_form::<T>(source)?;
    match parsed::<T, T>(source) {
        Ok(document) => check_version::<T>(source, document.version()).map(|()| document),
        Err(error) => {
            let Head { version } = parsed::<Head, T>(source)?;
            Err(check_version::<T>(source, &version).err().unwrap_or(error))
        }
    }
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

/// Reads what [`check_form`] has passed.
fn parsed<T: DeserializeOwned, D: Document>(source: &Source<'_>) -> Result<T> {
    let options = serde_yaml::options! {
        strict_booleans: true,
        merge_keys: MergeKeyPolicy::Error,
        with_snippet: false,
        // `check_form` has counted.
        budget: None,
    };
    serde_yaml::from_str_with_options(source.text, options).map_err(|error| {
        let place = error.location().map_or(Place::START, Place::from);
        let place = match error.without_snippet() {
            // The parser tells of a key that the document lacks at its last one.
            serde_yaml::Error::SerdeMissingField { field, .. } if D::REQUIRED.contains(field) => source.first(),
            // It knows where the key of a name begins that it does not know.
            serde_yaml::Error::SerdeUnknownVariant { variant, .. } => source.place_after(place, variant),
            _ => place,
        };
        source.error(place, Error::new(D::KIND, in_our_words::<D>(&error, source, place)))
    })
}

/// The parser's errors in the words of this library: what was expected and what was met.
fn in_our_words<T: Document>(error: &serde_yaml::Error, source: &Source<'_>, place: Place) -> String {
    use serde_yaml::{Error as E, MessageFormatter};
    let expected = |what: &str| match source.value_at(place) {
        met if met.is_empty() => format!("expected {what}, met nothing"),
        met => format!("expected {what}, met `{met}`"),
    };
    match error {
        E::SerdeUnknownField { field, expected, .. } => {
            let near = match T::elsewhere(field).filter(|ours| expected.contains(ours)) {
                Some(ours) => format!(" (here it is `{ours}`)"),
                None => match T::place(field) {
                    "" => did_you_mean(field, expected.iter().copied()),
                    place => format!(" ({place})"),
                },
            };
            format!("unknown key `{field}`{near}; allowed: {}", expected.join(", "))
        }
        E::SerdeUnknownVariant { variant, expected, .. } => {
            let near = did_you_mean(variant, expected.iter().copied());
            format!("unknown name `{variant}`{near}; allowed: {}", expected.join(", "))
        }
        E::SerdeInvalidLength { len, expected, .. } => match expected.strip_prefix("a tuple of size ") {
            Some(size) => format!("expected {size} values, met {len}"),
            None => format!("expected {expected}, met {len} values"),
        },
        E::SerdeInvalidType { unexpected, expected, .. } => format!("expected {expected}, met {unexpected}"),
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
            let before = source.before(place);
            let key = before.trim_end().trim_end_matches(':').rsplit(['{', ',', ' ']).next().unwrap_or_default();
            let example = match T::example(key) {
                "" => ", `key: value`".to_string(),
                example => format!(" such as {example}"),
            };
            expected(&format!("a map{example}"))
        }
        E::Unexpected { expected: "mapping end", .. } => expected("one name with its options and no second one"),
        E::Unexpected { expected: "sequence start", .. } => expected("a list, `[a, b]` or a line with `- ` for each"),
        E::Unexpected { expected: "string scalar", .. } | E::NullIntoString { .. } => expected("a single value"),
        E::InvalidScalar { ty: "u32" | "u64", .. } => expected("a whole number"),
        E::InvalidBooleanStrict { .. } => {
            let near = did_you_mean(&source.value_at(place), ["true", "false"]);
            format!("{}{near}", expected("true or false"))
        }
        E::InvalidScalar { .. } | E::NonFiniteFloat { .. } => expected("a finite number"),
        other => UserMessageFormatter.format_message(other).into_owned(),
    }
}
