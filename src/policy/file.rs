//! Reading and writing policy files: limits first, then the document, then what it means.

use std::{io::Read, path::Path};

use serde::{Deserialize, de::DeserializeOwned};
use serde_yaml::{
    Spanned, UserMessageFormatter,
    granit_parser::{self, Event, Parser, ScanError},
    options::MergeKeyPolicy,
};

use super::{
    Policy,
    diagnostic::{Place, Source},
    v1,
};
use crate::{
    error::{Error, Result, did_you_mean},
    io::files,
    logging::event,
};

/// The largest policy file. A policy is written by people; whatever is larger is something else.
const MAX_BYTES: usize = 64 * 1024;
/// How deep lists and maps may be nested.
const MAX_DEPTH: usize = 32;
/// How many values, lists and maps a file may have.
const MAX_NODES: usize = 4096;

impl Policy {
    /// Reads a policy file.
    ///
    /// # Errors
    /// Every message about what stands in the file begins with `file:line:column` and shows the line. The kind is
    /// [`Io`](crate::ErrorKind::Io) when the file cannot be read, [`DType`](crate::ErrorKind::DType) and
    /// [`Level`](crate::ErrorKind::Level) for a wrong dtype or level (checked in this order), [`List`](crate::ErrorKind::List)
    /// for what is wrong with the lists, [`Value`](crate::ErrorKind::Value) for numbers of the loss scale, and
    /// [`Policy`](crate::ErrorKind::Policy) for all else.
    pub fn load(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        let name = path.display().to_string();
        // One byte more than allowed, so that an endless file ends here.
        let mut bytes = Vec::new();
        std::fs::File::open(path).and_then(|file| file.take(MAX_BYTES as u64 + 1).read_to_end(&mut bytes)).map_err(
            |error| match (error.kind(), Policy::meant(&name)) {
                (std::io::ErrorKind::NotFound, Some(shipped)) => {
                    let words = format!("; the policy that comes with the library is `Policy::named({shipped:?})`");
                    Error::io_with(path, &error, &words)
                }
                _ => Error::io(path, &error),
            },
        )?;
        // A character may be cut at the limit, so the size comes before the encoding.
        check_size(&bytes, &name)?;
        match std::str::from_utf8(&bytes) {
            Ok(text) => {
                let policy = Policy::parse(text, &name)?;
                event!(DEBUG, file = name, level = %policy.level, dtype = %policy.dtype, "policy read");
                Ok(policy)
            }
            Err(error) => {
                let text = String::from_utf8_lossy(&bytes);
                let place = Place::of_byte(&bytes, error.valid_up_to());
                Err(Source { name: name.into(), text: &text }
                    .error(place, Error::policy("a byte that is not UTF-8; policy files are UTF-8 text")))
            }
        }
    }

    /// Reads the text of a policy file; `name` stands for the file in messages and in [`Origin`](super::Origin)s.
    ///
    /// # Errors
    /// As [`Policy::load`].
    ///
    /// ```
    /// use precast::{Level, Policy};
    /// let text = "version: 1\nlevel: O2\ndtype: bfloat16\nrules: [{ path: head.fc, run: float32 }]\n";
    /// let policy = Policy::parse(text, "inline")?;
    /// assert_eq!(policy.level, Level::O2);
    ///
    /// let error = Policy::parse(&text.replace("O2", "O7"), "inline").unwrap_err();
    /// assert!(error.to_string().starts_with("inline:2:8: unknown level `O7`"));
    /// # Ok::<(), precast::Error>(())
    /// ```
    pub fn parse(text: &str, name: &str) -> Result<Self> {
        check_size(text.as_bytes(), name)?;
        let text = text.strip_prefix('\u{feff}').unwrap_or(text);
        let source = Source { name: name.into(), text };
        v1::policy(document(&source, "policy")?, &source)
    }

    /// The text of a policy file of the same meaning. It is complete: the loss scale is written even where it is the usual
    /// one, and the lists as what is added to and removed from those of the pack.
    ///
    /// # Errors
    /// [`ErrorKind::List`](crate::ErrorKind::List) when the policy names an unknown pack, or its lists say what its level does
    /// not read or a file cannot say.
    pub fn to_yaml(&self) -> Result<String> {
        let written = v1::written(self)?;
        serde_yaml::to_string(&written).map_err(|error| Error::policy(format!("the policy cannot be written: {error}")))
    }

    /// Writes a policy file, in one step; see [`Policy::to_yaml`].
    ///
    /// # Errors
    /// As [`Policy::to_yaml`], and [`ErrorKind::Io`](crate::ErrorKind::Io) when the file cannot be written.
    pub fn save(&self, path: impl AsRef<Path>) -> Result<()> {
        files::replace(path, self.to_yaml()?.as_bytes())
    }
}

fn check_size(bytes: &[u8], name: &str) -> Result<()> {
    if bytes.len() <= MAX_BYTES {
        return Ok(());
    }
    let start = String::from_utf8_lossy(&bytes[..MAX_BYTES]);
    let error = Error::policy(format!("the file is larger than {} KiB, the most a policy may have", MAX_BYTES / 1024));
    Err(Source { name: name.into(), text: &start }.error(Place::START, error))
}

/// Walks the events of the parser before anything is built from them: one document, no anchors, aliases, tags or merge
/// keys, nothing deep, nothing long.
fn check_form(source: &Source<'_>) -> Result<()> {
    // The parser takes a NUL for the end of the text.
    if let Some(byte) = source.text.bytes().position(|b| b.is_ascii_control() && !matches!(b, b'\t' | b'\n' | b'\r')) {
        let place = Place::of_byte(source.text.as_bytes(), byte);
        let met = source.text.as_bytes()[byte];
        return Err(source.error(place, Error::policy(format!("a control character, 0x{met:02x}, which YAML forbids"))));
    }
    let options = granit_parser::options! {
        disallow_directives: true,
        emit_unresolved_aliases: true,
        emit_comments: false,
    };
    let refuse = |place: Place, words: String| Err(source.error(place, Error::policy(words)));
    let (mut depth, mut nodes, mut documents) = (0usize, 0usize, 0usize);
    for event in Parser::new_from_str_with_options(source.text, options) {
        let (event, span) = event.map_err(|error| not_yaml(source, &error))?;
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
        if nodes > MAX_NODES {
            return refuse(place, format!("more than {MAX_NODES} values"));
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

fn not_yaml(source: &Source<'_>, error: &ScanError) -> Error {
    let tab = if error.info().contains("tab") { "; YAML is indented by blanks, and not by tabs" } else { "" };
    source.error(error.marker(), Error::policy(format!("not YAML: {}{tab}", error.info())))
}

/// A document that says of which version it is.
pub(super) trait Versioned: DeserializeOwned {
    fn version(&self) -> &Spanned<u32>;
}

/// Checks the form of a text and reads it as a document of version 1.
///
/// A text that is no such document is read again for its version alone: a later version may have other keys, and its reader
/// should be told that, not that a key is unknown.
pub(super) fn document<T: Versioned>(source: &Source<'_>, what: &str) -> Result<T> {
    #[derive(Deserialize)]
    struct Head {
        version: Spanned<u32>,
    }
    check_form(source)?;
    match read::<T>(source) {
        Ok(document) => check_version(source, document.version(), what).map(|()| document),
        Err(error) => {
            let Head { version } = read(source)?;
            Err(check_version(source, &version, what).err().unwrap_or(error))
        }
    }
}

fn check_version(source: &Source<'_>, version: &Spanned<u32>, what: &str) -> Result<()> {
    if version.value == 1 {
        return Ok(());
    }
    let words = format!("{what} files of version {} are not known; allowed: 1", version.value);
    Err(source.error(version.referenced, Error::policy(words)))
}

/// Reads a document that [`check_form`] has passed.
fn read<T: DeserializeOwned>(source: &Source<'_>) -> Result<T> {
    let options = serde_yaml::options! {
        strict_booleans: true,
        merge_keys: MergeKeyPolicy::Error,
        with_snippet: false,
    };
    serde_yaml::from_str_with_options(source.text, options).map_err(|error| {
        // The parser tells of a key that the document lacks at its last one.
        let place = match &error {
            serde_yaml::Error::SerdeMissingField { field: "version" | "level" | "dtype", .. } => source.first(),
            _ => error.location().map_or(Place::START, Place::from),
        };
        source.error(place, Error::policy(in_our_words(&error, source, place)))
    })
}

/// What a key of other systems, or a near word, is called here.
fn elsewhere(key: &str) -> Option<&'static str> {
    Some(match key {
        "value" | "loss_scale" | "loss_scale_value" => "scale",
        "init_scale" | "initial_scale" | "init_loss_scaling" => "init",
        "growth_factor" | "scale_factor" | "incr_ratio" | "multiplier" => "growth",
        "backoff_factor" | "decr_ratio" => "backoff",
        "growth_interval" | "scale_window" | "incr_every_n_steps" | "growth_steps" => "interval",
        "recompute" => "checkpoint",
        _ => return None,
    })
}

/// The parser's errors in the words of this library: what was expected and what was met.
fn in_our_words(error: &serde_yaml::Error, source: &Source<'_>, place: Place) -> String {
    use serde_yaml::{Error as E, MessageFormatter};
    let expected = |what: &str| match source.value_at(place) {
        met if met.is_empty() => format!("expected {what}, met nothing"),
        met => format!("expected {what}, met `{met}`"),
    };
    match error {
        E::SerdeUnknownField { field, expected, .. } => {
            let near = match elsewhere(field).filter(|ours| expected.contains(ours)) {
                Some(ours) => format!(" (here it is `{ours}`)"),
                None => did_you_mean(field, expected.iter().copied()),
            };
            format!("unknown key `{field}`{near}; allowed: {}", expected.join(", "))
        }
        E::SerdeMissingField { field, .. } => {
            let allowed = match *field {
                "version" => "; allowed: 1",
                "level" => "; allowed: O0, O1, O2, O3, auto, graph",
                "dtype" => "; allowed: float16, bfloat16",
                "run" => "; allowed: float32, low, inherit",
                "kind" => "; allowed: none, fixed, dynamic",
                _ => "",
            };
            format!("the key `{field}` is missing from this map{allowed}")
        }
        E::DuplicateMappingKey { key: Some(key), .. } => format!("the key `{key}` stands here twice"),
        E::Unexpected { expected: "mapping start", .. } => {
            let before = source.before(place);
            let key = before.trim_end().trim_end_matches(':').rsplit(['{', ',', ' ']).next().unwrap_or_default();
            let example = match key {
                "loss_scale" => " such as `{kind: dynamic}` or `{kind: fixed, scale: 1024}`",
                "white" | "black" | "promote" => " such as `{add: [Softmax]}`",
                _ => ", `key: value`",
            };
            expected(&format!("a map{example}"))
        }
        E::Unexpected { expected: "sequence start", .. } => expected("a list, `[a, b]` or a line with `- ` for each"),
        E::Unexpected { expected: "string scalar", .. } | E::NullIntoString { .. } => expected("a single value"),
        E::InvalidBooleanStrict { .. } => {
            let near = did_you_mean(&source.value_at(place), ["true", "false"]);
            format!("{}{near}", expected("true or false"))
        }
        E::InvalidScalar { ty: "u32" | "u64", .. } => expected("a whole number"),
        E::InvalidScalar { .. } | E::NonFiniteFloat { .. } => expected("a finite number"),
        other => UserMessageFormatter.format_message(other).into_owned(),
    }
}
