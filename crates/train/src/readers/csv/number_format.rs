//! Number formats of tables: a decimal comma, separated thousands.

use std::borrow::Cow;

use precast::error::{Error, Result};

/// Decimal and thousands separators of numbers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct NumberFormat {
    decimal: char,
    thousands: Option<char>,
}

/// Allowed thousands separators, with the plural word for each. A space includes the no-break space, an apostrophe the
/// typographic one.
const THOUSANDS: [(char, &str); 5] =
    [(',', "commas"), ('.', "points"), (' ', "spaces"), ('\'', "apostrophes"), ('_', "underscores")];

/// The minus sign of typesetters, which spreadsheets of some languages write.
pub(super) const MINUS: char = '\u{2212}';

/// The decimal marks and thousands separators of numbers that are not whole, or are large.
pub(super) const POINTS: [char; 5] = ['.', ',', '\u{66b}', '\u{ff0e}', '\u{ff0c}'];

/// The words of [`NumberFormat::told_of`] for a unit.
pub(super) const UNIT: &str = "with a unit";

/// Signs around numbers that some spreadsheets write.
const UNITS: [char; 6] = ['%', '\u{2030}', '$', '\u{20ac}', '\u{a3}', '\u{a5}'];

/// The zeros of scripts with digits of their own (Arabic, Persian, of India, Thai, full-width), which nine digits follow.
const ZEROS: [char; 13] = [
    '\u{660}', '\u{6f0}', '\u{966}', '\u{9e6}', '\u{a66}', '\u{ae6}', '\u{b66}', '\u{be6}', '\u{c66}', '\u{ce6}',
    '\u{d66}', '\u{e50}', '\u{ff10}',
];

impl NumberFormat {
    /// Creates a format from its separators.
    ///
    /// # Errors
    /// [`ErrorKind::Value`](precast::ErrorKind::Value) for a character that is not allowed, and for one in both roles.
    pub fn new(decimal: char, thousands: Option<char>) -> Result<Self> {
        if !matches!(decimal, '.' | ',') {
            let met = decimal.escape_debug();
            return Err(Error::value(format!("`decimal` is `{met}`; allowed: a point or a comma")));
        }
        if let Some(met) = thousands.filter(|met| !THOUSANDS.iter().any(|(allowed, _)| allowed == met)) {
            let met = met.escape_debug();
            let words = "allowed: a comma, a point, a space, an apostrophe or an underscore";
            return Err(Error::value(format!("`thousands` is `{met}`; {words}")));
        }
        if thousands == Some(decimal) {
            return Err(Error::value(format!(
                "`decimal` and `thousands` are both `{decimal}`; one character has one role"
            )));
        }
        Ok(NumberFormat { decimal, thousands })
    }

    /// Parses the number in a cell.
    pub fn number(self, cell: &str) -> Option<f64> {
        self.plain(cell)?.parse().ok()
    }

    /// Parses the integer in a cell.
    pub fn integer(self, cell: &str) -> Option<i128> {
        self.plain(cell)?.parse().ok()
    }

    /// Converts a cell to Rust's number format, if it may be a number in this one.
    fn plain(self, cell: &str) -> Option<Cow<'_, str>> {
        if let Some(number) = cell.strip_prefix(MINUS) {
            return self
                .plain(number)
                .filter(|rest| !rest.starts_with(['+', '-']))
                .map(|rest| format!("-{rest}").into());
        }
        let (whole, fraction) = match cell.split_once(self.decimal) {
            Some((whole, fraction)) => (whole, Some(fraction)),
            None => (cell, None),
        };
        let whole = self.without_thousands(whole)?;
        match (fraction, whole) {
            (None, whole) => Some(whole),
            (Some(_), Cow::Borrowed(_)) if self.decimal == '.' => Some(cell.into()),
            (Some(fraction), _) if fraction.contains('.') => None,
            (Some(fraction), whole) => Some(format!("{whole}.{fraction}").into()),
        }
    }

    /// Removes the thousands separators from the integer part; `None` if they do not leave groups of three digits, or
    /// of two except for the last, as in India.
    fn without_thousands(self, whole: &str) -> Option<Cow<'_, str>> {
        if self.decimal != '.' && self.thousands != Some('.') && whole.contains('.') {
            return None;
        }
        let separates = |met: char| match (self.thousands, met) {
            (Some(' '), '\u{a0}' | '\u{202f}' | '\u{2009}') | (Some('\''), '\u{2019}') => true,
            (thousands, met) => thousands == Some(met),
        };
        if !whole.contains(separates) {
            return Some(whole.into());
        }
        let (digits, exponent) = whole.split_at(whole.find(['e', 'E']).unwrap_or(whole.len()));
        let groups: Vec<&str> = digits.trim_start_matches(['+', '-']).split(separates).collect();
        let &[first, ref middle @ .., last] = &groups[..] else { return None };
        let all_digits = groups.iter().all(|group| group.bytes().all(|byte| byte.is_ascii_digit()));
        let lengths = (1..=3).contains(&first.len()) && last.len() == 3;
        if !all_digits || !lengths || !middle.iter().all(|group| matches!(group.len(), 2 | 3)) {
            return None;
        }
        Some(format!("{}{exponent}", digits.replace(separates, "")).into())
    }

    /// Returns the formats closest to this one in which all cells are numbers, if this one does not fit.
    pub fn others(self, cells: &[impl AsRef<str>]) -> Vec<NumberFormat> {
        let may_be_number = |cell: &str| cell.starts_with(|c: char| c.is_ascii_digit() || "+-.,\u{2212}".contains(c));
        if !cells.iter().all(|cell| may_be_number(cell.as_ref())) {
            return Vec::new();
        }
        let thousands = [self.thousands, None].into_iter().chain(THOUSANDS.map(|(met, _)| Some(met)));
        let reads = |format: &NumberFormat| {
            format.thousands != Some(format.decimal)
                && cells.iter().all(|cell| format.number(cell.as_ref()).is_some_and(f64::is_finite))
        };
        let first = |decimal| thousands.clone().map(|thousands| NumberFormat { decimal, thousands }).find(reads);
        let mut found: Vec<NumberFormat> = ['.', ','].into_iter().filter_map(first).collect();
        let least = found.iter().map(|format| self.differences(*format)).min().unwrap_or(0);
        found.retain(|format| self.differences(*format) == least && least > 0);
        found
    }

    /// Returns all formats.
    pub fn all() -> Vec<NumberFormat> {
        let thousands = || [None].into_iter().chain(THOUSANDS.map(|(met, _)| Some(met)));
        let of = |decimal: char| {
            let of = move |thousands| NumberFormat { decimal, thousands };
            thousands().filter(move |met| *met != Some(decimal)).map(of)
        };
        ['.', ','].into_iter().flat_map(of).collect()
    }

    /// Returns the decimal and the thousands separator.
    pub fn separators(self) -> (char, Option<char>) {
        (self.decimal, self.thousands)
    }

    pub fn differences(self, other: NumberFormat) -> usize {
        usize::from(self.decimal != other.decimal) + usize::from(self.thousands != other.thousands)
    }

    /// Describes a number that is written in a way which no format reads, and the way that one does.
    pub fn told_of(self, cell: &str) -> Option<(&'static str, &'static str)> {
        let reads = |bare: &str| self.number(bare).is_some_and(f64::is_finite) || !self.others(&[bare]).is_empty();
        let without = |bare: &str| bare.trim_matches(UNITS).trim().to_string();
        let digit = |met: char| {
            let zero = ZEROS.iter().find(|zero| (**zero..).take(10).any(|digit| digit == met))?;
            char::from_digit(met as u32 - *zero as u32, 10)
        };
        let plain = |met: char| match met {
            '\u{66b}' | '\u{ff0e}' => '.',
            '\u{ff0c}' => ',',
            met => digit(met).unwrap_or(met),
        };
        let in_brackets = cell.strip_prefix('(').and_then(|cell| cell.strip_suffix(')'));
        if in_brackets.is_some_and(|bare| reads(&without(bare))) {
            return Some(("in parentheses", "a negative number has a minus sign in front"));
        }
        if cell.strip_suffix(['-', MINUS]).is_some_and(|bare| reads(&without(bare))) {
            return Some(("with a minus sign behind it", "the sign is in front"));
        }
        let bare = without(cell);
        if bare != cell && reads(&bare) {
            return Some((UNIT, "numbers are written without"));
        }
        let bare: String = cell.chars().map(plain).collect();
        (bare != cell && reads(&bare)).then_some(("in digits of another script", "the digits are 0 to 9"))
    }

    /// Describes how numbers of another format differ from those of this one, with the options that read them.
    pub fn told_apart(self, other: NumberFormat) -> String {
        let mark = if other.decimal == ',' { "comma" } else { "point" };
        let decimal = (self.decimal != other.decimal)
            .then(|| (format!("a decimal {mark}"), format!("`decimal: \"{}\"`", other.decimal)));
        let many = |thousands| THOUSANDS.iter().find(|(met, _)| *met == thousands).map_or("marks", |(_, many)| many);
        let thousands = (self.thousands != other.thousands).then(|| match other.thousands {
            Some(met) => (format!("{} between thousands", many(met)), format!("`thousands: \"{met}\"`")),
            None => ("nothing between thousands".into(), "no `thousands`".into()),
        });
        let (words, options): (Vec<_>, Vec<_>) = [decimal, thousands].into_iter().flatten().unzip();
        format!("{} ({})", words.join(" and "), options.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(decimal: char, thousands: Option<char>, cell: &str) -> Option<f64> {
        NumberFormat::new(decimal, thousands).unwrap().number(cell)
    }

    #[test]
    fn numbers_of_other_countries_are_read() {
        for (decimal, thousands, cell, number) in [
            (',', None, "60,24", 60.24),
            (',', None, "-0,5e-3", -0.5e-3),
            (',', None, "7", 7.0),
            (',', None, ",5", 0.5),
            (',', Some('.'), "1.234,5", 1234.5),
            (',', Some('.'), "-1.234.567", -1_234_567.0),
            (',', Some('.'), "12.345e2", 1_234_500.0),
            (',', Some(' '), "1 234,5", 1234.5),
            (',', Some(' '), "1\u{202f}234\u{a0}567,25", 1_234_567.25),
            ('.', Some('\''), "1'234.5", 1234.5),
            ('.', Some('\''), "1\u{2019}234.5", 1234.5),
            ('.', Some(','), "+1,234.5", 1234.5),
            ('.', Some(','), "12,34,567", 1_234_567.0),
            ('.', Some('_'), "1_000", 1000.0),
            ('.', None, "1.5", 1.5),
            (',', Some('.'), "\u{2212}1.234,5", -1234.5),
        ] {
            assert_eq!(read(decimal, thousands, cell), Some(number), "{cell}");
        }
    }

    #[test]
    fn what_has_separators_elsewhere_is_no_number() {
        for (decimal, thousands, cell) in [
            (',', None, "60.24"),
            (',', None, "1.234,5"),
            (',', None, "1,2,3"),
            (',', Some('.'), "1.23"),
            (',', Some('.'), "1234.567"),
            (',', Some('.'), "1..234"),
            (',', Some('.'), ".234"),
            (',', Some('.'), "1,234.567"),
            ('.', Some(','), "1,23"),
            ('.', Some(','), "1.5,000"),
            ('.', Some(','), "-,234"),
            ('.', Some(','), "--1,234"),
            ('.', None, "1,234"),
            ('.', None, "\u{2212}-1"),
            ('.', None, "\u{2212}\u{2212}1"),
            ('.', None, "\u{2212}"),
        ] {
            assert_eq!(read(decimal, thousands, cell), None, "{cell}");
        }
    }

    #[test]
    fn the_nearest_formats_are_found() {
        let told = |decimal, thousands, cells: &'static [&'static str]| -> Vec<String> {
            let format = NumberFormat::new(decimal, thousands).unwrap();
            format.others(cells).into_iter().map(|other| format.told_apart(other)).collect()
        };
        assert_eq!(told('.', None, &["60,24"]), ["a decimal comma (`decimal: \",\"`)"]);
        let both = ["commas between thousands (`thousands: \",\"`)", "a decimal comma (`decimal: \",\"`)"];
        assert_eq!(told('.', None, &["1,234"]), both);
        assert_eq!(told('.', None, &["1,234", "60,24", "7"]), both[1..]);
        assert_eq!(told('.', None, &["1,234", "60.24"]), both[..1]);
        let german = "a decimal comma and points between thousands (`decimal: \",\"`, `thousands: \".\"`)";
        assert_eq!(told('.', None, &["1.234,5"]), [german]);
        assert_eq!(told(',', None, &["1.234,5"]), ["points between thousands (`thousands: \".\"`)"]);
        assert_eq!(told(',', None, &["1.5"]), ["a decimal point (`decimal: \".\"`)"]);
        assert_eq!(told('.', None, &["1 234"]), ["spaces between thousands (`thousands: \" \"`)"]);
        assert!(told('.', None, &["rose"]).is_empty() && told('.', None, &["1.5", "2"]).is_empty());
    }

    #[test]
    fn numbers_that_no_format_reads_are_told() {
        let format = NumberFormat::new('.', None).unwrap();
        for (cell, what) in [
            ("(1,234.50)", Some("in parentheses")),
            ("($0.25)", Some("in parentheses")),
            ("12.5-", Some("with a minus sign behind it")),
            ("12,5\u{2212}", Some("with a minus sign behind it")),
            ("12.5 %", Some("with a unit")),
            ("-$3.50", None),
            ("\u{661}\u{662}\u{66b}\u{665}", Some("in digits of another script")),
            ("\u{ff11}\u{ff0e}\u{ff15}", Some("in digits of another script")),
            ("\u{967}\u{968}", Some("in digits of another script")),
            ("12.5", None),
            ("(a)", None),
            ("a-", None),
            ("\u{2460}", None),
            ("()", None),
        ] {
            assert_eq!(format.told_of(cell).map(|(what, _)| what), what, "{cell}");
        }
    }

    #[test]
    fn separators_that_would_be_parts_of_numbers_are_refused() {
        let refused = |decimal, thousands| NumberFormat::new(decimal, thousands).unwrap_err().to_string();
        assert_eq!(refused(';', None), "`decimal` is `;`; allowed: a point or a comma");
        assert!(refused('.', Some('5')).starts_with("`thousands` is `5`; allowed: a comma, a point"));
        assert_eq!(refused(',', Some(',')), "`decimal` and `thousands` are both `,`; one character has one role");
    }
}
