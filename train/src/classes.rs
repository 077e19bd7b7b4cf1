//! Notes on classes that a run cannot learn, and on names that may be of one class.

use std::collections::{BTreeMap, BTreeSet};

use precast::data::Dataset;
use precast_policy::printable;

/// Maximum number of classes in a note.
const SHOWN: usize = 5;

/// Returns a note on the classes of a part that no training example has, with the number of its examples of each.
pub(super) fn never_trained(train: &Dataset, key: &str, part: &Dataset) -> Option<String> {
    let trained: BTreeSet<i64> = train.labels().iter().copied().collect();
    let mut missing: BTreeMap<i64, usize> = BTreeMap::new();
    // Those below 0 are ignored.
    for &label in part.labels().iter().filter(|label| **label >= 0 && !trained.contains(label)) {
        *missing.entry(label).or_default() += 1;
    }
    let name = |label: i64| {
        let name = usize::try_from(label).ok().and_then(|label| train.class_names().get(label));
        name.map_or(label.to_string(), |name| printable(name).into_owned())
    };
    let shown =
        missing.iter().take(SHOWN).map(|(&label, count)| format!("`{}` ({count} of its examples)", name(label)));
    let more = missing.len().saturating_sub(SHOWN);
    let more = if more > 0 { format!(" and {more} others") } else { String::new() };
    let shown = shown.collect::<Vec<_>>().join(", ");
    (!missing.is_empty())
        .then(|| format!("{key}: no training example has the class {shown}{more}, so it is not learnt"))
}

/// Returns a note for each group of classes whose names differ by little: case, spaces, characters without width, zeros
/// in front, or the form in which a letter and its accent are written.
pub(super) fn alike(data: &Dataset) -> Vec<String> {
    let mut groups: BTreeMap<String, Vec<&str>> = BTreeMap::new();
    for name in data.class_names() {
        groups.entry(folded(name)).or_default().push(name);
    }
    let note = |names: Vec<&str>| {
        let shown = names.iter().map(|name| format!("`{}`", visible(name))).collect::<Vec<_>>().join(", ");
        format!("{shown} are different classes; if they are one, write them in one way")
    };
    groups.into_values().filter(|names| names.len() > 1).map(note).collect()
}

/// Returns a name with characters that nobody sees written out.
fn visible(name: &str) -> String {
    let shown = |c: char| if has_no_width(c) || is_accent(c) { c.escape_unicode().to_string() } else { c.to_string() };
    printable(&name.chars().map(shown).collect::<String>()).into()
}

/// Returns whether a character is a zero-width space or joiner, a soft hyphen, or a mark of direction or byte order.
fn has_no_width(c: char) -> bool {
    matches!(c, '\u{ad}' | '\u{200b}'..='\u{200f}' | '\u{2060}' | '\u{feff}')
}

/// Returns whether a character is an accent that is written behind its letter.
fn is_accent(c: char) -> bool {
    matches!(c, '\u{300}'..='\u{36f}')
}

/// Accents behind a letter, the letters that have them in European languages, and both in one character.
const COMPOSED: [(char, &str, &str); 9] = [
    ('\u{300}', "aeiou", "àèìòù"),
    ('\u{301}', "aeiouycnslrz", "áéíóúýćńśĺŕź"),
    ('\u{302}', "aeiouwy", "âêîôûŵŷ"),
    ('\u{303}', "ano", "ãñõ"),
    ('\u{308}', "aeiouy", "äëïöüÿ"),
    ('\u{30a}', "au", "åů"),
    ('\u{30b}', "ou", "őű"),
    ('\u{30c}', "cdenrstz", "čďěňřšťž"),
    ('\u{327}', "cst", "çşţ"),
];

/// Returns what a name has in common with those that differ by little.
fn folded(name: &str) -> String {
    let mut folded = String::new();
    for c in name.chars().filter(|c| !has_no_width(*c)).flat_map(char::to_lowercase) {
        let composed = COMPOSED.iter().find(|(accent, ..)| *accent == c).and_then(|(_, letters, both)| {
            let place = letters.chars().position(|letter| folded.ends_with(letter))?;
            both.chars().nth(place)
        });
        match composed {
            Some(both) => {
                folded.pop();
                folded.push(both);
            }
            None if c.is_whitespace() => folded.extend((!folded.ends_with(' ')).then_some(' ')),
            None => folded.push(c),
        }
    }
    let name = folded.trim();
    match !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_digit()) {
        true => format!("0{}", name.trim_start_matches('0')),
        false => name.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_differ_by_little_are_folded_alike() {
        for (a, b) in [
            ("Yes", "yes"),
            ("caf\u{e9}", "cafe\u{301}"),
            ("ma\u{ae}n", "ma\u{ae}n\u{200b}"),
            ("\u{17d}ilina", "Z\u{30c}ilina"),
            ("1", "01"),
            ("0", "000"),
            ("New York", "new\u{a0} york "),
        ] {
            assert_eq!(folded(a), folded(b), "{a} {b}");
        }
        for (a, b) in [
            ("caf\u{e9}", "cafe"),
            ("caf\u{e9}", "cafe\u{300}"),
            ("1", "10"),
            ("1.0", "1.00"),
            ("a b", "ab"),
            ("", "0"),
        ] {
            assert_ne!(folded(a), folded(b), "{a} {b}");
        }
        assert_eq!(visible("a\u{200b}b"), r"a\u{200b}b");
    }
}
