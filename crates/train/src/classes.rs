//! Notes on classes that a run cannot learn, and on names that may be of one class.

use std::collections::{BTreeMap, BTreeSet};

use precast_base::printable;

use crate::{data::Dataset, training::Loss};

/// Maximum number of classes in a note.
const SHOWN: usize = 5;

/// Returns a note on the classes of a part that no training example has and the loss counts, with the number of its examples
/// of each.
pub(super) fn never_trained(train: &Dataset, loss: Option<&Loss>, key: &str, part: &Dataset) -> Option<String> {
    let trained: BTreeSet<i64> = train.labels().iter().copied().collect();
    let mut missing: BTreeMap<i64, usize> = BTreeMap::new();
    let counts = |label: i64| loss.map_or(label >= 0, |loss| loss.counts_class(label));
    for &label in part.labels().iter().filter(|label| counts(**label) && !trained.contains(label)) {
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

/// Returns a note on numbers of classes that are left out below the largest one, of which a network has outputs all the same.
pub(super) fn left_out(train: &Dataset, loss: Option<&Loss>) -> Option<String> {
    let counts = |label: i64| loss.map_or(label >= 0, |loss| loss.counts_class(label));
    let trained: BTreeSet<i64> = train.labels().iter().copied().filter(|label| counts(*label)).collect();
    let largest = *trained.last()?;
    let all = usize::try_from(largest).ok()?.saturating_add(1);
    if trained.len() >= all || train.class_names().len() >= all {
        return None;
    }
    let missing = (0..largest).filter(|label| !trained.contains(label) && counts(*label));
    let shown = missing.clone().take(SHOWN).map(|label| format!("`{label}`")).collect::<Vec<_>>().join(", ");
    let more = if trained.len() + SHOWN < all { " and others" } else { "" };
    let cure = match trained.first() {
        Some(1) if trained.len() + 1 == all => "; if classes count from 1 in the file, subtract 1",
        _ => "",
    };
    (!shown.is_empty()).then(|| {
        format!("no training example has the class {shown}{more}, and one has `{largest}`: outputs for all up to it are needed, and those learn nothing{cure}")
    })
}

/// Returns a note for each set of classes, or of groups of rows, whose names differ by little: case, spaces, characters
/// without width, the notation of a number, or the form in which a letter and its accent are written.
pub(super) fn alike(what: &str, names: &[String]) -> Vec<String> {
    let mut groups: BTreeMap<String, Vec<&str>> = BTreeMap::new();
    for name in names {
        groups.entry(form(name)).or_default().push(name);
    }
    let note = |names: Vec<&str>| {
        let shown = names.iter().map(|name| format!("`{}`", visible(name))).collect::<Vec<_>>().join(", ");
        format!("{shown} are different {what}; if they are one, write them in one way")
    };
    groups.into_values().filter(|names| names.len() > 1).map(note).collect()
}

/// Returns what a name of a group has in common with those that differ by little, and with the same number.
pub(super) fn form(name: &str) -> String {
    let folded = folded(name);
    let is_number = folded.bytes().all(|byte| byte.is_ascii_digit() || b"+-.".contains(&byte));
    folded.parse::<f64>().ok().filter(|_| is_number).map_or(folded, |number| (number + 0.0).to_string())
}

/// Returns a name with characters that nobody sees written out.
pub(super) fn visible(name: &str) -> String {
    let shown = |c: char| if has_no_width(c) || is_accent(c) { c.escape_unicode().to_string() } else { c.to_string() };
    printable(&name.chars().map(shown).collect::<String>()).into()
}

/// Returns whether a character is a zero-width space or joiner, a soft hyphen, or a mark of direction or byte order.
pub(crate) fn has_no_width(c: char) -> bool {
    matches!(c, '\u{ad}' | '\u{200b}'..='\u{200f}' | '\u{2060}' | '\u{feff}')
}

/// Returns whether a character looks like a part of another, or like another: an accent that is written behind its letter, a
/// part of a syllable, a full-width form.
fn is_accent(c: char) -> bool {
    matches!(c, '\u{300}'..='\u{36f}' | '\u{1100}'..='\u{11ff}' | '\u{3099}' | '\u{309a}' | '\u{ff01}'..='\u{ff5e}')
}

/// Small letters with marks: the mark, then pairs of the letter without and with it.
const MARKED: &[(char, &str)] = &[
    ('\u{300}', "aàeèiìoòuùnǹâầêềôồăằơờưừ"),
    ('\u{301}', "aáeéiíoóuúyýcćlĺnńrŕsśzźâấêếôốăắơớưứαάεέηήιίοόυύωώ"),
    ('\u{302}', "aâcĉeêgĝhĥiîjĵoôsŝuûwŵyŷạậẹệọộ"),
    ('\u{303}', "aãeẽiĩnñoõuũyỹâẫêễôỗăẵơỡưữ"),
    ('\u{304}', "aāeēiīoōuū"),
    ('\u{306}', "aăeĕgğiĭoŏuŭийуўạặ"),
    ('\u{307}', "cċeėgġzż"),
    ('\u{308}', "aäeëiïoöuüyÿеёіїιϊυϋ"),
    ('\u{309}', "aảeẻiỉoỏuủyỷâẩêểôổăẳơởưử"),
    ('\u{30a}', "aåuů"),
    ('\u{30b}', "oőuű"),
    ('\u{30c}', "cčdďeěnňrřsštťzž"),
    ('\u{31b}', "oơuư"),
    ('\u{323}', "aạeẹiịoọuụyỵơợưự"),
    ('\u{326}', "sștț"),
    ('\u{327}', "cçgģkķlļnņrŗsştţ"),
    ('\u{328}', "aąeęiįuų"),
];

/// Returns the character that a small letter, a Kana or a Hangul syllable makes with the next one, as in the normal form
/// of macOS.
fn composed(before: Option<char>, c: char) -> Option<char> {
    let before = before?;
    let of = |code: u32| char::from_u32(code);
    match (before as u32, c as u32) {
        // Leading consonants with vowels, and syllables without a final consonant with one.
        (l @ 0x1100..0x1113, v @ 0x1161..0x1176) => of(0xac00 + ((l - 0x1100) * 21 + v - 0x1161) * 28),
        (lv @ 0xac00..0xd7a4, t @ 0x11a8..0x11c3) if (lv - 0xac00).is_multiple_of(28) => of(lv + t - 0x11a7),
        (0x3046 | 0x30a6, 0x3099) => of(before as u32 + 0x4e),
        (kana @ (0x304b..0x306f | 0x30ab..0x30cf), 0x3099) => of(kana + 1),
        (kana @ (0x306f..0x307c | 0x30cf..0x30dc), mark @ (0x3099 | 0x309a)) => of(kana + mark - 0x3098),
        _ => {
            let (_, pairs) = MARKED.iter().find(|(mark, _)| *mark == c)?;
            let pairs: Vec<char> = pairs.chars().collect();
            pairs.chunks_exact(2).find(|pair| pair[0] == before).map(|pair| pair[1])
        }
    }
}

/// Returns what a name has in common with those that differ by little.
fn folded(name: &str) -> String {
    let mut folded = String::new();
    for c in name.chars().filter(|c| !has_no_width(*c)).flat_map(char::to_lowercase) {
        // Full-width forms of ASCII.
        let c = if let '\u{ff01}'..='\u{ff5e}' = c { char::from_u32(c as u32 - 0xfee0).unwrap_or(c) } else { c };
        match composed(folded.chars().next_back(), c) {
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
    fn names_of_one_number_are_noted() {
        let names = |all: &[&str]| alike("classes", &all.iter().map(|name| name.to_string()).collect::<Vec<_>>());
        assert_eq!(names(&["1", "1.0", "2", "+2"]).len(), 2);
        assert_eq!(names(&["1", "1.5", "-1", "a1"]), Vec::<String>::new());
    }

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
            // The forms NFC and NFD of Python's `unicodedata.normalize`.
            ("b\u{e5}t", "ba\u{30a}t"),
            ("\u{1ebf}", "e\u{302}\u{301}"),
            ("\u{1ed9}", "o\u{323}\u{302}"),
            ("\u{439}", "\u{438}\u{306}"),
            ("\u{ac01}", "\u{1100}\u{1161}\u{11a8}"),
            ("\u{304c}", "\u{304b}\u{3099}"),
            ("\u{3071}", "\u{306f}\u{309a}"),
            ("\u{3094}", "\u{3046}\u{3099}"),
            ("\u{ff21}\u{ff11}", "a1"),
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
