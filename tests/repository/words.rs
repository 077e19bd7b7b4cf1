//! The style sheet of CONTRIBUTING.md, as far as a test can read: no doc block opens with a subordinate clause, and some words are not
//! used, in comments, in messages, and on the pages of the guide.

use std::{
    fs,
    path::{Path, PathBuf},
};

/// Words with which no doc block opens.
const OPENINGS: [&str; 9] = ["What", "Whether", "How", "Where", "Of", "Who", "That", "Which", "Why"];

/// Phrases that are not used, as whole words in lower case.
const PHRASES: [&str; 10] =
    ["stand", "stands", "stood", "is told", "are told", "told once", "goes on", "go on", "shall", "nobody else"];

/// Words before which `is no` is right; `is not a` otherwise.
const AFTER_NO: [&str; 8] = ["longer", "less", "more", "reason", "cure", "faster", "need", "other"];

fn files(folder: &str, extension: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut folders = vec![Path::new(env!("CARGO_MANIFEST_DIR")).join(folder)];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|met| met == extension) {
                found.push(path);
            }
        }
    }
    found.sort();
    found
}

/// The text of a line without what is in backticks.
fn without_code(line: &str) -> String {
    line.split('`').step_by(2).collect::<Vec<_>>().join("`")
}

fn phrases(text: &str) -> impl Iterator<Item = &'static str> {
    let words: Vec<String> =
        text.split(|c: char| !c.is_alphabetic()).filter(|word| !word.is_empty()).map(str::to_lowercase).collect();
    let lower = text.to_lowercase();
    let is_no = ["is no ", "are no "].into_iter().flat_map(|verb| lower.match_indices(verb)).any(|(at, verb)| {
        let after: String = lower[at + verb.len()..].chars().take_while(|c| c.is_alphabetic()).collect();
        !lower[..at].ends_with("there ") && lower[..at].ends_with(' ') && !AFTER_NO.contains(&&*after)
    });
    let text = format!(" {} ", words.join(" "));
    let met = PHRASES.into_iter().filter(move |phrase| text.contains(&format!(" {phrase} ")));
    met.chain(is_no.then_some("is no"))
}

/// The comment of a line, with its mark; of a line of code, the literals in it.
fn comment(line: &str) -> Option<(&str, &str)> {
    ["///", "//!", "//"].into_iter().find_map(|mark| Some((mark, line.trim().strip_prefix(mark)?.trim())))
}

#[test]
fn comments_and_messages_follow_the_style_sheet() {
    let mut wrong = Vec::new();
    for path in "src crates hosts/burn/src hosts/candle/src hosts/python/src hosts/rsmpi/src policies/src"
        .split(' ')
        .flat_map(|folder| files(folder, "rs"))
    {
        let text = fs::read_to_string(&path).unwrap();
        let mut before = "";
        for (at, line) in text.lines().enumerate() {
            let place = || format!("{}:{}: {}", path.display(), at + 1, line.trim());
            let Some((mark, words)) = comment(line) else {
                before = "";
                // Literals are every second part between quotes.
                let literals: Vec<&str> = line.split('"').skip(1).step_by(2).collect();
                wrong
                    .extend(phrases(&without_code(&literals.join(" "))).map(|phrase| format!("{phrase}: {}", place())));
                continue;
            };
            let opening = words.split(|c: char| !c.is_alphabetic()).next().unwrap_or_default();
            if mark != "//" && before != mark && OPENINGS.contains(&opening) {
                wrong.push(format!("opening: {}", place()));
            }
            wrong.extend(phrases(&without_code(words)).map(|phrase| format!("{phrase}: {}", place())));
            before = mark;
        }
    }
    assert!(wrong.is_empty(), "{} places:\n{}", wrong.len(), wrong.join("\n"));
}

#[test]
fn pages_follow_the_style_sheet() {
    let pages = ["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md"].map(PathBuf::from);
    let mut wrong = Vec::new();
    for path in files("docs", "md").into_iter().chain(pages) {
        let text = fs::read_to_string(&path).unwrap();
        let prose = text.split("```").step_by(2);
        for line in prose.flat_map(str::lines) {
            wrong.extend(phrases(&without_code(line)).map(|phrase| format!("{phrase}: {}: {line}", path.display())));
        }
    }
    assert!(wrong.is_empty(), "{} places:\n{}", wrong.len(), wrong.join("\n"));
}

#[test]
fn a_style_that_is_broken_is_found() {
    assert_eq!(phrases("It stands here, and is told so.").collect::<Vec<_>>(), ["stands", "is told"]);
    assert_eq!(phrases("standard; understand; `x`").count(), 0);
    assert_eq!(comment("  /// Whether x."), Some(("///", "Whether x.")));
    assert_eq!(without_code("of `stand` here"), "of ` here");
}
