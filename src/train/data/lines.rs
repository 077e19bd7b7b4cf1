//! Lines of text files. A line ends in LF, in CR LF, or in CR alone.

/// Returns the number of the line on which the text after `text` begins or continues, counted from 1.
pub(super) fn line_behind(text: &[u8]) -> usize {
    let carriage = |(i, byte): (usize, &u8)| *byte == b'\r' && text.get(i + 1) != Some(&b'\n');
    let ends = |(i, byte): (usize, &u8)| *byte == b'\n' || carriage((i, byte));
    1 + text.iter().enumerate().filter(|&place| ends(place)).count()
}

/// Returns line and column of the position after a text, both counted from 1.
pub(super) fn end_of(text: &str) -> String {
    let last = text.rsplit(['\n', '\r']).next().unwrap_or_default();
    format!("{}:{}", line_behind(text.as_bytes()), 1 + last.chars().count())
}

/// Iterates over the lines of a text, without their ends.
pub(super) fn lines(mut text: &str) -> impl Iterator<Item = &str> {
    std::iter::from_fn(move || {
        if text.is_empty() {
            return None;
        }
        let (line, rest) = text.split_at(text.find(['\n', '\r']).unwrap_or(text.len()));
        text = rest.strip_prefix("\r\n").or_else(|| rest.get(1..)).unwrap_or_default();
        Some(line)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_of_end_ends_one_line() {
        let text = "a\nb\r\nc\rd\r\r\n\ne";
        assert_eq!(lines(text).collect::<Vec<_>>(), ["a", "b", "c", "d", "", "", "e"]);
        assert_eq!(line_behind(text.as_bytes()), 7);
        assert_eq!((end_of(text), end_of("a\r"), end_of("")), ("7:2".into(), "2:1".into(), "1:1".into()));
        assert_eq!(lines("a\r\n").collect::<Vec<_>>(), ["a"]);
        assert_eq!(lines("").count(), 0);
    }
}
