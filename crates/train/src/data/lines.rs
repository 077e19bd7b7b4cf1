//! Lines of text files. A line ends in LF, in CR LF, or in CR alone.

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
        assert_eq!(lines("a\r\n").collect::<Vec<_>>(), ["a"]);
        assert_eq!(lines("").count(), 0);
    }
}
