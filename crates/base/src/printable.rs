//! Text from files and arguments, made safe to print, and numbers in words.

use std::borrow::Cow;

/// Returns the text on one line, without characters that could control a terminal, change the writing direction, or
/// break an SVG document: these are escaped, a line end as `\n`, an escape as `\u{1b}`.
///
/// ```
/// assert_eq!(precast_base::printable("a\n\u{1b}[2Jb"), r"a\n\u{1b}[2Jb");
/// assert_eq!(precast_base::printable("größer <b>"), "größer <b>");
/// ```
pub fn printable(text: &str) -> Cow<'_, str> {
    escaped(text, |_| false)
}

/// Escapes control characters, as [`printable`] does, but keeps line breaks.
pub fn printable_lines(text: &str) -> Cow<'_, str> {
    escaped(text, |c| c == '\n')
}

/// Returns the text in double quotes, on one line, as YAML and JSON read it. What [`printable`] escapes is escaped here as well,
/// as both formats escape it.
///
/// ```
/// assert_eq!(precast_base::quoted("a\n\u{1b}\"b\""), r#""a\u000a\u001b\"b\"""#);
/// assert_eq!(precast_base::quoted("größer 🙂"), "\"größer 🙂\"");
/// ```
pub fn quoted(text: &str) -> String {
    let mut quoted = String::with_capacity(text.len() + 2);
    quoted.push('"');
    for c in text.chars() {
        match c {
            '"' | '\\' => quoted.extend(['\\', c]),
            // A byte order mark is not text everywhere. All of these have at most four digits.
            c if is_unsafe(c) || c == '\u{feff}' => quoted.push_str(&format!("\\u{:04x}", u32::from(c))),
            c => quoted.push(c),
        }
    }
    quoted.push('"');
    quoted
}

fn escaped(text: &str, keep: impl Fn(char) -> bool) -> Cow<'_, str> {
    if !text.chars().any(|c| is_unsafe(c) && !keep(c)) {
        return text.into();
    }
    let mut shown = String::with_capacity(text.len() + 8);
    for c in text.chars() {
        if is_unsafe(c) && !keep(c) { shown.extend(c.escape_default()) } else { shown.push(c) }
    }
    shown.into()
}

/// Returns whether a character is a control character, a line or paragraph separator, a mark of direction, or one of
/// the two that XML forbids.
fn is_unsafe(c: char) -> bool {
    let direction =
        matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    c.is_control() || direction || matches!(c, '\u{2028}' | '\u{2029}' | '\u{fffe}' | '\u{ffff}')
}

/// Formats a number for people: with the digits of f32 if it is one, and with an exponent if it would otherwise take
/// many digits.
pub fn number(x: impl Into<f64>) -> String {
    let x = x.into();
    let narrow = x as f32;
    let size = narrow.abs();
    let plain = size == 0.0 || (1e-4..1e9).contains(&size);
    match (f64::from(narrow) == x, plain) {
        (true, true) => narrow.to_string(),
        (true, false) => format!("{narrow:e}"),
        (false, true) => x.to_string(),
        (false, false) => format!("{x:e}"),
    }
}

/// Formats a time: `41230` nanoseconds as `41.2 us`.
pub fn time(nanos: u64) -> String {
    match nanos as f64 {
        // A value that would be rounded up to 1000 gets the next unit.
        n if n < 999_950.0 => format!("{:.1} us", n / 1e3),
        n if n < 999_995_000.0 => format!("{:.2} ms", n / 1e6),
        n => format!("{:.2} s", n / 1e9),
    }
}

/// Formats a number of bytes: `1536` as `1.5 KiB`.
pub fn bytes(bytes: u64) -> String {
    match bytes as f64 {
        b if b < 1024.0 => format!("{b} B"),
        b if b < 1023.95 * 1024.0 => format!("{:.1} KiB", b / 1024.0),
        b => format!("{:.1} MiB", b / 1024.0 / 1024.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_many_digits_have_an_exponent() {
        for (x, text) in [(0.0, "0"), (65536.0, "65536"), (1e-4, "0.0001"), (1e-5, "1e-5"), (-1e30, "-1e30")] {
            assert_eq!(number(x), text);
        }
        assert_eq!([number(1e-4f32), number(70000.1f32), number(1e300)], ["0.0001", "70000.1", "1e300"]);
    }

    #[test]
    fn what_could_forge_a_line_or_drive_a_terminal_is_escaped() {
        assert_eq!(printable("one\ntwo\r\n\tthree"), r"one\ntwo\r\n\tthree");
        assert_eq!(printable("\u{1b}[31mred\u{9b}2J\u{7f}"), r"\u{1b}[31mred\u{9b}2J\u{7f}");
        assert_eq!(printable("a\u{202e}b\u{2028}c\u{ffff}"), r"a\u{202e}b\u{2028}c\u{ffff}");
        assert_eq!(printable_lines("one\ntwo\u{7}"), "one\ntwo\\u{7}");
        assert!(matches!(printable("C:\\Ü ✓ 数"), Cow::Borrowed(r"C:\Ü ✓ 数")), "all else is as it was");
    }
}
