//! Positions in text files. A line ends in LF, in CR LF, or in CR alone.

use precast::error::Error;

/// Returns the number of the line on which the text after `text` begins or continues, counted from 1.
pub(super) fn line_behind(text: &[u8]) -> usize {
    let carriage = |(i, byte): (usize, &u8)| *byte == b'\r' && text.get(i + 1) != Some(&b'\n');
    let ends = |(i, byte): (usize, &u8)| *byte == b'\n' || carriage((i, byte));
    1 + text.iter().enumerate().filter(|&place| ends(place)).count()
}

/// Returns line and column of the position after a text, both counted from 1.
pub(super) fn end_of(text: &str) -> (usize, usize) {
    let last = text.rsplit(['\n', '\r']).next().unwrap_or_default();
    (line_behind(text.as_bytes()), 1 + last.chars().count())
}

/// Returns the error for a text that is not UTF-8 from some bytes on. It is mixed if characters before them are.
pub(super) fn not_utf8(bytes: &[u8], is_mixed: bool) -> Error {
    if bytes.starts_with(&[0xff, 0xfe, 0, 0]) {
        return Error::data("a mark of UTF-32 is not UTF-8; `iconv -f UTF-32 -t UTF-8` may convert the file");
    }
    let met = bytes.first().copied().unwrap_or_default();
    if is_mixed {
        return Error::data(format!(
            "the byte 0x{met:02x} is not UTF-8, and characters before it are: a part of the file has another encoding; correct it"
        ));
    }
    let others = "windows-1252, windows-1251 (Cyrillic), shift_jis (Japanese), gb18030 (Chinese)";
    Error::data(format!("the byte 0x{met:02x} is not UTF-8; `encoding` names that of the file, such as {others}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_of_end_ends_one_line() {
        let text = "a\nb\r\nc\rd\r\r\n\ne";
        assert_eq!(line_behind(text.as_bytes()), 7);
        assert_eq!((end_of(text), end_of("a\r"), end_of("")), ((7, 2), (2, 1), (1, 1)));
    }
}
