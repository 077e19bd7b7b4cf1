//! Errors with a source position: `file:line:column: message`, then the line with a caret under the position.

use std::{borrow::Cow, fmt::Write as _, sync::Arc};

use granit_parser::Marker;

use crate::{error::Error, printable::printable};

/// Text with a name for messages.
#[derive(Debug)]
#[doc(hidden)]
pub struct Source<'a> {
    pub name: Arc<str>,
    pub text: &'a str,
}

/// Position in a text. Both numbers start at 1, and the column counts characters.
#[derive(Clone, Copy, Debug, PartialEq)]
#[doc(hidden)]
pub struct Place {
    pub line: usize,
    pub column: usize,
}

impl From<&Marker> for Place {
    fn from(marker: &Marker) -> Self {
        Place { line: marker.line().max(1), column: marker.col() + 1 }
    }
}

impl Place {
    pub const START: Place = Place { line: 1, column: 1 };

    /// Returns the position of a byte in a text.
    pub fn of_byte(text: &[u8], byte: usize) -> Self {
        let before = String::from_utf8_lossy(&text[..byte]);
        let line = before.matches('\n').count() + 1;
        let column = before.chars().rev().take_while(|c| *c != '\n').count() + 1;
        Place { line, column }
    }
}

/// Number of characters shown of a line.
const SHOWN: usize = 100;
/// Number of characters shown of a message.
const LONGEST: usize = 400;

impl<'a> Source<'a> {
    /// Creates a source from a name and a text, without the byte order mark.
    pub fn new(name: &str, text: &'a str) -> Self {
        Source { name: name.into(), text: text.strip_prefix('\u{feff}').unwrap_or(text) }
    }
}

impl Source<'_> {
    /// Returns the error with the position prepended and the line appended.
    pub fn error(&self, place: impl Into<Place>, error: Error) -> Error {
        let Place { line, column } = place.into();
        let met = self.line(line);
        // For a very long line, show only the part around the position.
        let skip = if column > SHOWN { column - SHOWN / 2 } else { 0 };
        let shown: String = met.chars().skip(skip).take(SHOWN).map(|c| if c.is_control() { ' ' } else { c }).collect();
        let margin = " ".repeat(line.to_string().len());
        let caret = " ".repeat(column - 1 - skip);
        let mut text = format!("{}:{line}:{column}: ", printable(&self.name));
        text.push_str(&shortened(&printable(&error.to_string())));
        let shown = shown.trim_end();
        write!(text, "\n{margin} |\n{line} | {shown}\n{margin} | {caret}^").expect("writing to a string");
        Error::new(error.kind(), text)
    }

    /// Returns the position of the first line that is neither blank nor a comment.
    pub fn first(&self) -> Place {
        let says = |line: &str| !line.trim().is_empty() && !line.trim_start().starts_with('#');
        let line = self.text.lines().position(says).unwrap_or(0) + 1;
        Place { line, column: 1 }
    }

    /// Returns the text before a position on its line.
    pub fn before(&self, place: Place) -> String {
        self.line(place.line).chars().take(place.column - 1).collect()
    }

    /// Returns the key whose value is at a position: before it on its line, or at the end of a line above.
    pub fn key_of(&self, place: Place) -> String {
        let before = self.before(place);
        let above = || (1..place.line).rev().map(|line| self.line(line)).find(|line| line.trim_end().ends_with(':'));
        let before = if before.trim().is_empty() { above().unwrap_or_default() } else { before };
        before.trim_end().trim_end_matches(':').rsplit(['{', ',', ' ']).next().unwrap_or_default().to_string()
    }

    /// Returns the position of the first tab from a line on, outside quotes and comments.
    pub fn first_tab(&self, from: usize) -> Option<Place> {
        let text = self.text.replace("\r\n", "\n").replace('\r', "\n");
        let (mut quote, mut is_comment, mut before) = (None, false, '\n');
        for (byte, c) in text.char_indices() {
            match (c, quote) {
                ('\n', _) => is_comment = false,
                _ if is_comment => {}
                ('\t', None) => {
                    let place = Place::of_byte(text.as_bytes(), byte);
                    if place.line >= from {
                        return Some(place);
                    }
                }
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
        let text = self.text.replace("\r\n", "\n").replace('\r', "\n");
        for (i, line) in text.split('\n').enumerate().skip(place.line - 1) {
            let (line, first) = (line.chars().collect::<Vec<char>>(), i + 1 == place.line);
            let indent = line.iter().take_while(|c| **c == ' ').count();
            if !first && indent < line.len() && indent + 1 < place.column {
                break;
            }
            let skip = if first { place.column - 1 } else { 0 };
            if let Some(column) = column_of(&line, skip, &word.chars().collect::<Vec<char>>()) {
                return Place { line: i + 1, column };
            }
        }
        place
    }

    /// Returns the value at a position, up to the end of the value on its line.
    pub fn value_at(&self, place: Place) -> String {
        let line = self.line(place.line);
        let rest: String = line.chars().skip(place.column - 1).collect();
        let rest = rest.split(" #").next().unwrap_or("");
        let end = rest.find([',', ']', '}']).unwrap_or(rest.len());
        rest[..end].trim_matches([' ', ':']).chars().take(40).collect()
    }

    /// Returns a line by its number from 1, with the line breaks of YAML.
    fn line(&self, number: usize) -> String {
        let text = self.text.replace("\r\n", "\n").replace('\r', "\n");
        text.split('\n').nth(number - 1).unwrap_or("").to_string()
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
        let source = Source { name: "p.yaml".into(), text: "version: 1\r\nlevel: O4\r\n" };
        let error = source.error(Place { line: 2, column: 8 }, Error::level("unknown level `O4`"));
        assert_eq!(error.to_string(), "p.yaml:2:8: unknown level `O4`\n  |\n2 | level: O4\n  |        ^");
        assert_eq!(error.kind(), crate::ErrorKind::Level);
    }

    #[test]
    fn a_word_is_found_within_its_value() {
        let text = "check: {every: 0, keep: 2}\nsource:\n  csv:\n    file: a.csv\n    target: kind\nevery: 3\n";
        let source = Source { name: "p".into(), text };
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
        let message = Source { name: "p".into(), text: &text }
            .error(Place { line: 1, column: 5001 }, Error::policy("here"))
            .to_string();
        let lines: Vec<&str> = message.lines().collect();
        assert!(lines[2].len() < 120, "{message}");
        assert_eq!(lines[2].find('X'), lines[3].find('^'), "{message}");
    }

    #[test]
    fn control_characters_do_not_reach_the_terminal() {
        let source = Source { name: "p".into(), text: "\u{1b}[31mred" };
        let message = source.error(Place::START, Error::policy("met `\u{1b}[31m`")).to_string();
        assert!(!message.contains('\u{1b}'), "{message:?}");
    }
}
