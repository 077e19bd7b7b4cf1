//! Encodings of texts: UTF-8, those of a mark of the byte order, those that are named, and Windows-1252 as a guess.

use std::borrow::Cow;

use encoding_rs::{Encoding, UTF_8, UTF_16BE, UTF_16LE, WINDOWS_1252};
use precast::error::{Error, Result};
use precast_base::names::did_you_mean;

use super::lines::{end_of, not_utf8};

/// Names for the errors, as of `iconv` and Python. All labels of the Encoding Standard are read.
const NAMES: [&str; 17] = [
    "utf-8",
    "utf-16le",
    "utf-16be",
    "latin1",
    "windows-1250",
    "windows-1251",
    "windows-1252",
    "windows-1253",
    "windows-1254",
    "iso-8859-2",
    "iso-8859-15",
    "koi8-r",
    "macintosh",
    "shift_jis",
    "gb18030",
    "big5",
    "euc-kr",
];

/// Returns the encoding with a name.
///
/// # Errors
/// [`ErrorKind::Value`](precast::ErrorKind::Value) for a name that the Encoding Standard does not have.
pub(super) fn named(name: &str) -> Result<&'static Encoding> {
    let label = match &name.to_lowercase()[..] {
        "utf16" | "utf-16" => "utf-16le".to_string(),
        // Names of Python and iconv.
        label => match label.strip_prefix("cp125") {
            Some(digit) => format!("windows-125{digit}"),
            None => label.replace("cp932", "shift_jis"),
        },
    };
    Encoding::for_label(label.as_bytes()).ok_or_else(|| {
        let near = did_you_mean(&label, NAMES);
        Error::value(format!(
            "no encoding is called `{name}`{near}; allowed: {}, and others of the Encoding Standard",
            NAMES.join(", ")
        ))
        .about("encoding")
    })
}

/// Returns the encoding that the first bytes of a text show, if it is not UTF-8: by a mark, or by a zero in each character.
pub(super) fn shown_by(start: &[u8]) -> Option<&'static Encoding> {
    match start {
        // UTF-32, which is not read.
        [0xff, 0xfe, 0, 0, ..] => None,
        [0xff, 0xfe, ..] => Some(UTF_16LE),
        [0xfe, 0xff, ..] => Some(UTF_16BE),
        [first, 0, second, 0, ..] if first.min(second) >= &b' ' => Some(UTF_16LE),
        [0, first, 0, second, ..] if first.min(second) >= &b' ' => Some(UTF_16BE),
        _ => None,
    }
}

/// Returns whether a text that is not UTF-8 is taken for one in Windows-1252: no character of it is UTF-8 beyond ASCII, and
/// each of its bytes has a meaning there.
pub(super) fn may_be_guessed(bytes: &[u8]) -> bool {
    let is_unused = |byte: &u8| [0, 0x81, 0x8d, 0x8f, 0x90, 0x9d].contains(byte);
    let is_ascii = |chunk: std::str::Utf8Chunk<'_>| chunk.valid().is_ascii();
    !bytes.iter().any(is_unused) && bytes.utf8_chunks().all(is_ascii)
}

/// The encoding that is guessed.
pub(super) const GUESS: &Encoding = WINDOWS_1252;

/// Returns a note on a guess.
pub(super) fn note(origin: &str) -> String {
    format!(
        "{origin}: not UTF-8, and read as windows-1252; `encoding` names another, such as windows-1251 or shift_jis"
    )
}

/// Decodes a text.
///
/// # Errors
/// Number of the valid bytes before one that the encoding does not have.
pub(super) fn decoded<'a>(bytes: &'a [u8], encoding: &'static Encoding) -> Result<Cow<'a, str>, usize> {
    let bytes =
        if encoding == UTF_8 { bytes } else { Encoding::for_bom(bytes).map_or(bytes, |(_, mark)| &bytes[mark..]) };
    encoding.decode_without_bom_handling_and_without_replacement(bytes).ok_or_else(|| {
        let (mut decoder, mut text) = (encoding.new_decoder_without_bom_handling(), String::new());
        text.reserve(decoder.max_utf8_buffer_length_without_replacement(bytes.len()).unwrap_or(bytes.len()));
        decoder.decode_to_string_without_replacement(bytes, &mut text, true).1
    })
}

/// Returns a text in the named encoding, in the one that its first bytes show, or in UTF-8; `origin` names it in errors.
pub(super) fn text<'a>(bytes: &'a [u8], encoding: Option<&str>, origin: &str) -> Result<Cow<'a, str>> {
    let end = |valid: usize| end_of(&String::from_utf8_lossy(&bytes[..valid]));
    match encoding.map(named).transpose()?.or_else(|| shown_by(bytes)) {
        Some(encoding) => decoded(bytes, encoding).map_err(|valid| unfit(encoding).at(origin, end(valid).0, None)),
        None => std::str::from_utf8(bytes).map(Cow::Borrowed).map_err(|error| {
            let (line, column) = end(error.valid_up_to());
            let (before, rest) = bytes.split_at(error.valid_up_to());
            not_utf8(rest, !before.is_ascii()).at(origin, line, column)
        }),
    }
}

/// Returns the error for bytes that an encoding does not have.
pub(super) fn unfit(encoding: &'static Encoding) -> Error {
    Error::data(format!("these bytes are not {}; `encoding` names another", encoding.name()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Bytes are those of `encode` of Python.
    #[test]
    fn texts_are_decoded_as_by_python() {
        for (name, bytes, text) in [
            ("latin1", &b"Citro\xebn"[..], "Citro\u{eb}n"),
            ("cp1252", b"\x80 5", "\u{20ac} 5"),
            ("windows-1251", b"\xf6\xe5\xed\xe0", "\u{446}\u{435}\u{43d}\u{430}"),
            ("cp932", b"\x89\xbf\x8ai", "\u{4fa1}\u{683c}"),
            ("gb18030", b"\xbc\xdb\xb8\xf1", "\u{4ef7}\u{683c}"),
            ("utf-16", b"\xff\xfea\0\xe9\0", "a\u{e9}"),
            ("utf-8", "\u{e9}".as_bytes(), "\u{e9}"),
        ] {
            assert_eq!(decoded(bytes, named(name).unwrap()).unwrap(), text, "{name}");
        }
        assert_eq!(decoded(b"ab\x81", named("gb18030").unwrap()), Err(3));
        let words = named("latin-7").unwrap_err().to_string();
        assert!(
            words.starts_with("no encoding is called `latin-7` (did you mean `latin1`?); allowed: utf-8"),
            "{words}"
        );
    }

    #[test]
    fn only_texts_of_one_byte_for_each_character_are_guessed() {
        assert!(may_be_guessed(b"Citro\xebn;\x80"));
        // In two encodings; in Shift-JIS.
        assert!(!may_be_guessed("\u{eb}".as_bytes().iter().chain(b";\xeb").copied().collect::<Vec<_>>().as_slice()));
        assert!(!may_be_guessed(b"\x83\x81"));
    }
}
