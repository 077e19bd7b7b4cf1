//! Errors with a source position: `file:line:column: message`, then the line with a caret under the position.

use std::{borrow::Cow, sync::Arc};

use granit_parser::Marker;

use crate::{
    error::Error,
    printable::{printable, printable_lines},
};

/// Text with a name for messages.
#[derive(Debug)]
pub struct Source<'a> {
    /// The name, usually the path of a file.
    pub name: Arc<str>,
    /// The text, without a byte order mark.
    pub text: &'a str,
    /// Byte at which each line starts, with the line breaks of YAML.
    starts: Vec<usize>,
}

/// Position in a text. Both numbers start at 1, and the column counts characters.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Place {
    /// Number of the line.
    pub line: usize,
    /// Number of the character on the line.
    pub column: usize,
}

impl Place {
    /// Returns the position of a mark of the parser.
    pub(super) fn of(marker: &Marker) -> Self {
        Place { line: marker.line().max(1), column: marker.col() + 1 }
    }

    /// The first character of a text.
    pub const START: Place = Place { line: 1, column: 1 };
}

/// Byte order mark.
const MARK: char = '\u{feff}';

/// Number of characters shown of a line.
const SHOWN: usize = 100;
/// Number of characters shown of a message.
const LONGEST: usize = 400;

impl<'a> Source<'a> {
    /// Creates a source from a name and a text, without the byte order mark.
    pub fn new(name: &str, text: &'a str) -> Self {
        let text = text.strip_prefix(MARK).unwrap_or(text);
        let bytes = text.as_bytes();
        let ends_line = |at: &usize| match bytes[*at] {
            b'\n' => true,
            // The line feed after it ends the line.
            b'\r' => bytes.get(*at + 1) != Some(&b'\n'),
            _ => false,
        };
        let starts = std::iter::once(0).chain((0..bytes.len()).filter(ends_line).map(|at| at + 1)).collect();
        Source { name: name.into(), text, starts }
    }
}

impl Source<'_> {
    /// Returns the position of a byte of the text.
    pub fn place(&self, byte: usize) -> Place {
        let line = self.starts.partition_point(|start| *start <= byte);
        let start = self.starts[line - 1];
        Place { line, column: self.text[start..].char_indices().take_while(|(at, _)| start + at < byte).count() + 1 }
    }

    /// Returns the error with the position prepended and the line appended.
    pub fn error(&self, place: Place, error: Error) -> Error {
        let Place { line, column } = place;
        let met = self.line(line);
        // For a very long line, show only the part around the position.
        let skip = if column > SHOWN { column - SHOWN / 2 } else { 0 };
        let shown: String = met.chars().skip(skip).take(SHOWN).map(|c| if c.is_control() { ' ' } else { c }).collect();
        let margin = " ".repeat(line.to_string().len());
        let caret = " ".repeat(column - 1 - skip);
        let excerpt = format!("{margin} |\n{line} | {}\n{margin} | {caret}^", printable_lines(shown.trim_end()));
        Error::new(error.kind(), shortened(&printable(&error.to_string())))
            .at(&self.name, line, column)
            .quoting(excerpt)
    }

    /// Returns the position of the first line that is neither blank nor a comment.
    pub fn first(&self) -> Place {
        let says = |line: &usize| {
            let line = self.line(*line).trim_start();
            !line.is_empty() && !line.starts_with('#')
        };
        Place { line: (1..=self.starts.len()).find(says).unwrap_or(1), column: 1 }
    }

    /// Returns the text before a position on its line.
    pub fn before(&self, place: Place) -> String {
        self.line(place.line).chars().take(place.column - 1).collect()
    }

    /// Returns the key whose value is at a position: before it on its line, or at the end of a line above.
    pub fn key_of(&self, place: Place) -> String {
        let before = self.before(place);
        let above = || (1..place.line).rev().map(|line| self.line(line)).find(|line| line.trim_end().ends_with(':'));
        let before = if before.trim().is_empty() { above().unwrap_or_default() } else { &before };
        before.trim_end().trim_end_matches(':').rsplit(['{', ',', ' ']).next().unwrap_or_default().to_string()
    }

    /// Returns the position of the first tab from a line on, outside quotes and comments.
    pub fn first_tab(&self, from: usize) -> Option<Place> {
        let first = self.starts.get(from - 1)?;
        let (mut quote, mut is_comment, mut before) = (None, false, '\n');
        for (byte, c) in self.text.char_indices() {
            match (c, quote) {
                ('\n' | '\r', _) => is_comment = false,
                _ if is_comment => {}
                ('\t', None) if byte >= *first => return Some(self.place(byte)),
                ('#', None) if before.is_whitespace() => is_comment = true,
                ('"' | '\'', None) if !before.is_alphanumeric() => quote = Some(c),
                (c, Some(open)) if c == open => quote = None,
                _ => {}
            }
            before = c;
        }
        None
    }

    /// Returns the position of a word in the value at a position, or of the word's own value if it is a key there. The
    /// position itself if the word is not found.
    pub fn place_in(&self, place: Place, word: &str) -> Place {
        let word: Vec<char> = word.chars().collect();
        for number in place.line..=self.starts.len() {
            let (line, first) = (self.line(number).chars().collect::<Vec<char>>(), number == place.line);
            let indent = line.iter().take_while(|c| **c == ' ').count();
            if !first && indent < line.len() && indent + 1 < place.column {
                break;
            }
            let skip = if first { place.column - 1 } else { 0 };
            if let Some(column) = column_of(&line, skip, &word) {
                return Place { line: number, column };
            }
        }
        place
    }

    /// Returns the value at a position, up to the end of the value on its line.
    pub fn value_at(&self, place: Place) -> String {
        let line = self.line(place.line);
        let rest: String = line.chars().skip(place.column - 1).collect();
        let rest = rest.split(" #").next().unwrap_or("");
        let is_flow = line.chars().take(place.column - 1).any(|c| c == '{' || c == '[');
        let end = rest.find([',', ']', '}']).filter(|_| is_flow).unwrap_or(rest.len());
        rest[..end].trim_matches([' ', ':']).chars().take(40).collect()
    }

    /// Returns a line by its number from 1, with the line breaks of YAML.
    fn line(&self, number: usize) -> &str {
        let Some(&start) = self.starts.get(number - 1) else { return "" };
        let end = self.starts.get(number).copied().unwrap_or(self.text.len());
        self.text[start..end].trim_end_matches(['\n', '\r'])
    }
}

/// Returns the column of a word on a line, or of its value if it is a key.
fn column_of(line: &[char], skip: usize, word: &[char]) -> Option<usize> {
    let in_word = |c: Option<&char>| c.is_some_and(|c| c.is_alphanumeric() || *c == '_');
    let fits = |at: usize| {
        let (before, after) = (at.checked_sub(1).and_then(|i| line.get(i)), line.get(at + word.len()));
        line[at..].starts_with(word) && !in_word(before) && !in_word(after)
    };
    let at = (skip.min(line.len())..line.len()).find(|&at| !word.is_empty() && fits(at))?;
    let rest = &line[at + word.len()..];
    let blanks = rest.iter().skip(1).take_while(|c| **c == ' ').count();
    let has_value = rest.first() == Some(&':') && rest.len() > 1 + blanks;
    Some(if has_value { at + word.len() + 2 + blanks } else { at + 1 })
}

/// Truncates a message to a readable length. Messages quote the file, so they may be long.
fn shortened(message: &str) -> Cow<'_, str> {
    match message.char_indices().nth(LONGEST) {
        Some((cut, _)) => format!("{} ...", &message[..cut]).into(),
        None => message.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_caret_stands_under_the_place() {
        let source = Source::new("p.yaml", "version: 1\r\nlevel: O4\r\n");
        let error = source.error(Place { line: 2, column: 8 }, Error::level("unknown level `O4`"));
        assert_eq!(error.to_string(), "p.yaml:2:8: unknown level `O4`\n  |\n2 | level: O4\n  |        ^");
        assert_eq!(error.kind(), crate::ErrorKind::Level);
        let location = error.context("`policy`").location().map(|at| (at.file.clone(), at.line, at.column));
        assert_eq!(location, Some(("p.yaml".to_string(), Some(2), Some(8))));
    }

    #[test]
    fn a_word_is_found_within_its_value() {
        let text = "check: {every: 0, keep: 2}\nsource:\n  csv:\n    file: a.csv\n    target: kind\nevery: 3\n";
        let source = Source::new("p", text);
        let at = |line, column, word| {
            let Place { line, column } = source.place_in(Place { line, column }, word);
            (line, column)
        };
        assert_eq!((at(1, 8, "every"), at(1, 8, "keep")), ((1, 16), (1, 25)));
        assert_eq!((at(3, 3, "target"), at(3, 3, "kind")), ((5, 13), (5, 13)));
        // Beyond the value, and within another word.
        assert_eq!((at(3, 3, "every"), at(3, 3, "arget"), at(1, 8, "")), ((3, 3), (3, 3), (1, 8)));
    }

    #[test]
    fn a_long_line_is_cut_around_the_place() {
        let text = format!("{}X{}", "a".repeat(5000), "b".repeat(5000));
        let message = Source::new("p", &text).error(Place { line: 1, column: 5001 }, Error::policy("here")).to_string();
        let lines: Vec<&str> = message.lines().collect();
        assert!(lines[2].len() < 120, "{message}");
        assert_eq!(lines[2].find('X'), lines[3].find('^'), "{message}");
    }

    #[test]
    fn control_characters_do_not_reach_the_terminal() {
        let source = Source::new("p", "\u{1b}[31mred");
        let message = source.error(Place::START, Error::policy("met `\u{1b}[31m`")).to_string();
        assert!(!message.contains('\u{1b}'), "{message:?}");
    }

    /// Every byte of texts with all line breaks of YAML, placed as a count of their lines and characters places it.
    #[test]
    fn a_byte_has_its_line_and_column() {
        for text in ["", "\n", "a", "a\nb", "a\r\n\r\nb\rc\n", "\r\r\n\n\r", "\tü\n日本\t🙂x\r\nlast", "\u{feff}a\nb"]
        {
            let source = Source::new("p", text);
            let text = source.text;
            assert!(!text.starts_with(MARK));
            for byte in (0..=text.len()).filter(|byte| text.is_char_boundary(*byte)) {
                let (mut line, mut column, mut before) = (1, 1, ' ');
                for c in text[..byte].chars() {
                    if c == '\n' && before == '\r' {
                        // The second half of a line break, whose line begins after it.
                    } else if c == '\n' || c == '\r' {
                        (line, column) = (line + 1, 0);
                    }
                    column = if matches!(c, '\n' | '\r') { 1 } else { column + 1 };
                    before = c;
                }
                // Between both halves of a line break, a byte is still on the line that ends.
                if before == '\r' && text[byte..].starts_with('\n') {
                    continue;
                }
                assert_eq!(source.place(byte), Place { line, column }, "{text:?}, byte {byte}");
            }
            let lines: Vec<String> = text.replace("\r\n", "\n").split(['\n', '\r']).map(String::from).collect();
            let met: Vec<&str> = (1..=lines.len() + 1).map(|line| source.line(line)).collect();
            assert_eq!(
                (&met[..lines.len()], met[lines.len()]),
                (&lines.iter().map(String::as_str).collect::<Vec<_>>()[..], "")
            );
        }
    }

    /// A text of the largest size is looked through once for each question, however many tabs or blank lines it has:
    /// each line is a slice, and its place one of the list of starts.
    #[test]
    fn the_largest_text_is_looked_through_once() {
        const SIZE: usize = 64 * 1024;
        let blank = format!("rules:{}x", "\n".repeat(SIZE - 7));
        let source = Source::new("p", &blank);
        let last = Place { line: SIZE - 6, column: 1 };
        assert_eq!((source.starts.len(), source.place(SIZE - 1)), (last.line, last));
        assert_eq!((source.key_of(last), source.line(last.line)), ("rules".to_string(), "x"));
        assert!(std::ptr::eq(source.line(last.line).as_ptr(), &blank.as_bytes()[SIZE - 1]));
        let tabs = format!("{}\n\t", "\t".repeat(SIZE - 2));
        let source = Source::new("p", &tabs);
        assert_eq!(source.first_tab(2), Some(Place { line: 2, column: 1 }));
        assert_eq!((source.first_tab(1), source.first_tab(3)), (Some(Place::START), None));
    }
}
