//! The nearest of the allowed names, for messages about an unknown one.

use std::collections::HashSet;

/// Returns ` (did you mean ...?)` with the nearest of the allowed names, or nothing when none is near.
///
/// ```
/// use precast_base::names::did_you_mean;
///
/// assert_eq!(did_you_mean("flaot16", ["float16", "float32"]), " (did you mean `float16`?)");
/// assert_eq!(did_you_mean("mae", ["mse", "l1"]), " (did you mean `l1`?)"); // the same loss under another name
/// ```
pub fn did_you_mean<'a>(met: &str, allowed: impl IntoIterator<Item = &'a str>) -> String {
    let allowed: Vec<&str> = allowed.into_iter().collect();
    nearest(met, &allowed, |name| name).map_or(String::new(), |name| format!(" (did you mean `{name}`?)"))
}

/// As [`did_you_mean`]; when none is near, returns ` (there are ...)` with some of the allowed names.
pub fn did_you_mean_or_some<'a>(met: &str, allowed: impl IntoIterator<Item = &'a str>) -> String {
    const SHOWN: usize = 6;
    let mut met_before = HashSet::new();
    let names: Vec<&str> = allowed.into_iter().filter(|name| !name.is_empty() && met_before.insert(*name)).collect();
    let near = did_you_mean(met, names.iter().copied());
    if !near.is_empty() || names.is_empty() {
        return near;
    }
    let some: Vec<String> = names.iter().take(SHOWN).map(|name| format!("`{name}`")).collect();
    let more = match names.len().saturating_sub(SHOWN) {
        0 => String::new(),
        more => format!(", and {more} more"),
    };
    format!(" (there are {}{more})", some.join(", "))
}

/// Words that other systems and people use, in small letters, with names here that mean the same. The first allowed one
/// is suggested, before any name of a similar spelling.
const SYNONYMS: &[(&str, &[&str])] = &[
    ("adamw_torch", &["adamw"]),
    ("bce", &["bce_with_logits"]),
    ("bcewithlogitsloss", &["bce_with_logits"]),
    ("bf16", &["o2-bf16", "low"]),
    ("bfloat16", &["o2-bf16", "low"]),
    ("binary_crossentropy", &["bce_with_logits"]),
    ("categorical_crossentropy", &["cross_entropy"]),
    ("ce", &["cross_entropy"]),
    ("classification", &["classes"]),
    ("color", &["rgb"]),
    ("cosine_annealing", &["cosine"]),
    ("cosineannealinglr", &["cosine"]),
    ("cosineannealingwarmrestarts", &["restarts"]),
    ("f16", &["o2", "low"]),
    ("float16", &["o2", "low"]),
    ("fp16", &["o2", "low"]),
    ("fp32", &["o0", "float32"]),
    ("gray", &["grey"]),
    ("grayscale", &["grey"]),
    ("half", &["o2", "low"]),
    ("l", &["grey"]),
    ("l2", &["mse"]),
    ("mae", &["l1", "L1Loss"]),
    ("mean_absolute_error", &["l1"]),
    ("mean_squared_error", &["mse"]),
    ("nll", &["cross_entropy"]),
    ("onecyclelr", &["one-cycle"]),
    ("reducelronplateau", &["plateau"]),
    ("regression", &["numbers"]),
    ("smooth_l1", &["huber"]),
    ("sparse_categorical_crossentropy", &["cross_entropy"]),
    ("steplr", &["step"]),
    ("swish", &["SiLU"]),
];

/// Returns the item whose name means the same as `met`, is nearest to it or begins with it, the first of several; `None`
/// when none is near.
pub fn nearest<'a, T>(met: &str, all: &'a [T], name: impl Fn(&'a T) -> &'a str) -> Option<&'a T> {
    let met_lower = met.to_lowercase();
    let same = SYNONYMS.iter().find(|(word, _)| *word == met_lower).map_or(&[][..], |(_, same)| same);
    if let Some(one) = same.iter().find_map(|same| all.iter().find(|one| name(one) == *same)) {
        return Some(one);
    }
    // With two letters, one different letter already makes another name.
    let limit = |name: &str| name.len().max(met.len()) / 3;
    let beginning =
        || (met.len() >= 3).then(|| all.iter().find(|one| name(one).to_lowercase().starts_with(&met_lower)));
    all.iter()
        .map(|one| (one, name(one)))
        // The distance is at least the difference in length; without this check a very long name would take seconds.
        .filter(|(_, name)| name.len().abs_diff(met.len()) <= limit(name))
        .map(|(one, name)| (strsim::damerau_levenshtein(&met_lower, &name.to_lowercase()), one, name))
        .filter(|(distance, _, name)| *distance <= limit(name))
        .min_by_key(|(distance, ..)| *distance)
        .map(|(_, one, _)| one)
        .or_else(|| beginning()?)
}

/// Returns the item named `text`; otherwise an error with `unknown` (`unknown level`), the name found, the nearest name
/// and the allowed ones.
pub fn by_name<T: Copy, const N: usize>(
    text: &str,
    all: [T; N],
    name: fn(T) -> &'static str,
    unknown: &str,
) -> Result<T, String> {
    all.into_iter().find(|one| name(*one) == text).ok_or_else(|| {
        let names = all.map(name);
        format!("{unknown} `{text}`{}; allowed: {}", did_you_mean(text, names), names.join(", "))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn suggestions_are_near_or_absent() {
        let names = ["BatchNorm1d", "BatchNorm2d", "Dense"];
        assert_eq!(did_you_mean("dence", names), " (did you mean `Dense`?)");
        assert_eq!(did_you_mean("Softmax", names), "");
    }

    #[test]
    fn a_word_of_another_system_suggests_the_name_that_means_the_same() {
        for (met, names, meant) in [
            ("mae", &["mse", "l1", "huber"][..], "l1"),
            ("float16", &["float32", "masters", "low"], "low"),
            ("Swish", &["HSwish", "SiLU"], "SiLU"),
            ("BF16", &["o2", "o2-bf16"], "o2-bf16"),
        ] {
            assert_eq!(did_you_mean(met, names.iter().copied()), format!(" (did you mean `{meant}`?)"));
        }
        // A synonym that is not allowed suggests nothing.
        assert_eq!(did_you_mean("mae", ["cross_entropy"]), "");
    }
}
