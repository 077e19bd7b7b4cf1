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

    fn differences(self, other: NumberFormat) -> usize {
        usize::from(self.decimal != other.decimal) + usize::from(self.thousands != other.thousands)
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
    fn separators_that_would_be_parts_of_numbers_are_refused() {
        let refused = |decimal, thousands| NumberFormat::new(decimal, thousands).unwrap_err().to_string();
        assert_eq!(refused(';', None), "`decimal` is `;`; allowed: a point or a comma");
        assert!(refused('.', Some('5')).starts_with("`thousands` is `5`; allowed: a comma, a point"));
        assert_eq!(refused(',', Some(',')), "`decimal` and `thousands` are both `,`; one character has one role");
    }
}
