//! Scalars of YAML 1.2: the core schema, with binary numbers, a `_` between digits, and words in any case.

/// Value of a scalar without quotes.
#[derive(Debug, PartialEq)]
pub(super) enum Scalar<'a> {
    Nothing,
    Truth(bool),
    Unsigned(u64),
    Signed(i64),
    Number(f64),
    Text(&'a str),
}

impl<'a> Scalar<'a> {
    /// Returns the value of a scalar; `None` for a number that is not finite.
    pub fn of(written: &'a str) -> Option<Self> {
        let text = trimmed(written);
        if is_nothing(written) {
            return Some(Scalar::Nothing);
        }
        let whole = || unsigned(text).map(Scalar::Unsigned).or_else(|| signed(text).map(Scalar::Signed));
        if let Some(known) = truth(text).map(Scalar::Truth).or_else(whole) {
            return Some(known);
        }
        match text.parse::<f64>() {
            _ if special(text).is_some() => None,
            Ok(number) if number.is_finite() => Some(Scalar::Number(number)),
            // Digits beyond the largest number; `inf` and `nan` are text.
            Ok(_) if text.trim_start_matches(['+', '-']).starts_with(|c: char| c.is_ascii_digit()) => None,
            _ => Some(Scalar::Text(written)),
        }
    }
}

pub(super) fn trimmed(text: &str) -> &str {
    text.trim_matches([' ', '\t', '\r', '\n'])
}

pub(super) fn is_nothing(text: &str) -> bool {
    text.is_empty() || text == "~" || text.eq_ignore_ascii_case("null")
}

pub(super) fn truth(text: &str) -> Option<bool> {
    if text.eq_ignore_ascii_case("true") { Some(true) } else { text.eq_ignore_ascii_case("false").then_some(false) }
}

/// Returns an infinity or NaN.
pub(super) fn special(text: &str) -> Option<f64> {
    match text.to_ascii_lowercase().as_str() {
        ".nan" | "+.nan" | "-.nan" => Some(f64::NAN),
        ".inf" | "+.inf" => Some(f64::INFINITY),
        "-.inf" => Some(f64::NEG_INFINITY),
        _ => None,
    }
}

pub(super) fn unsigned(text: &str) -> Option<u64> {
    whole(text).filter(|_| !text.starts_with('-')).and_then(|number| number.try_into().ok())
}

pub(super) fn signed(text: &str) -> Option<i64> {
    whole(text).and_then(|number| number.try_into().ok())
}

/// Returns a whole number: decimal, or after `0x`, `0o` or `0b`.
fn whole(text: &str) -> Option<i128> {
    let (sign, text) = match text.strip_prefix('-') {
        Some(rest) => (-1, rest),
        None => (1, text.strip_prefix('+').unwrap_or(text)),
    };
    let (radix, digits) = match text.get(..2).unwrap_or_default() {
        "0x" | "0X" => (16, &text[2..]),
        "0o" | "0O" => (8, &text[2..]),
        "0b" | "0B" => (2, &text[2..]),
        _ if text.len() > 1 && text.starts_with('0') => return None,
        _ => (10, text),
    };
    // The parser of std would accept another sign.
    if digits.split('_').any(|part| part.is_empty() || !part.chars().all(|c| c.is_digit(radix))) {
        return None;
    }
    i128::from_str_radix(&digits.replace('_', ""), radix).ok().map(|number| sign * number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scalars_are_those_of_yaml() {
        for (text, expected) in [
            ("~", Some(Scalar::Nothing)),
            ("TRUE", Some(Scalar::Truth(true))),
            ("yes", Some(Scalar::Text("yes"))),
            ("0x1_F", Some(Scalar::Unsigned(31))),
            ("-0o17", Some(Scalar::Signed(-15))),
            ("18446744073709551615", Some(Scalar::Unsigned(u64::MAX))),
            ("18446744073709551616", Some(Scalar::Number(18446744073709551616.0))),
            ("1__0", Some(Scalar::Text("1__0"))),
            ("+-1", Some(Scalar::Text("+-1"))),
            ("007", Some(Scalar::Number(7.0))),
            ("inf", Some(Scalar::Text("inf"))),
            (".INF", None),
            ("1e999", None),
        ] {
            assert_eq!(Scalar::of(text), expected, "{text}");
        }
    }
}
