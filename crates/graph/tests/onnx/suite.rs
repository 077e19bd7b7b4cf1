//! Folders of cases with a table of them, such as `tools/peers/onnx_suite.py` writes.

use std::{collections::BTreeMap, env, fs, path::Path};

use super::cases::{Bound, Verdict, run};

/// The results of one family.
#[derive(Default)]
struct Family {
    agree: usize,
    wrong: Vec<String>,
    refused: Vec<(String, String)>,
    panics: Vec<String>,
}

impl Family {
    fn count(&self) -> usize {
        self.agree + self.wrong.len() + self.refused.len() + self.panics.len()
    }
}

/// Runs the cases of a folder whose names have some words in them.
fn families(folder: &Path, only: &str) -> BTreeMap<String, Family> {
    let table = fs::read_to_string(folder.join("cases.tsv")).expect("the folder has cases.tsv");
    let mut families: BTreeMap<String, Family> = BTreeMap::new();
    for line in table.lines() {
        let [family, name, relative, absolute, reason] = line.split('\t').collect::<Vec<_>>()[..] else {
            panic!("a line of cases.tsv has five columns: {line}");
        };
        if !name.contains(only) {
            continue;
        }
        let number = |text: &str| text.parse::<f64>().expect("a tolerance is a number");
        let (relative, absolute) = (number(relative), number(absolute));
        let bound = match relative == 0.0 {
            true => Bound { relative: 1e-5, absolute: 1e-12, largest: true },
            false => Bound { relative, absolute, largest: false },
        };
        let group = if reason.is_empty() { family.to_string() } else { format!("{family} ({reason})") };
        let verdict = run(&folder.join(family).join(name), bound);
        let into = families.entry(group).or_default();
        match verdict {
            Verdict::Agrees => into.agree += 1,
            Verdict::Wrong(words) => into.wrong.push(format!("{name}: {words}")),
            Verdict::Refused(words) => into.refused.push((name.to_string(), words)),
            Verdict::Panics(words) => into.panics.push(format!("{name}: {words}")),
        }
    }
    families
}

#[test]
fn a_share_of_the_suite_agrees() {
    for (family, verdicts) in families(Path::new("tests/onnx/data/suite"), "") {
        let (wrong, refused, panics) = (&verdicts.wrong, &verdicts.refused, &verdicts.panics);
        let all = verdicts.agree == verdicts.count() && verdicts.agree > 0;
        assert!(all, "{family}: wrong {wrong:?}, refused {refused:?}, panics {panics:?}");
    }
}

/// Runs the cases of the folder in `PRECAST_ONNX_SUITE` and prints the verdicts. `PRECAST_ONNX_ONLY` selects by words
/// in a name.
#[test]
#[ignore = "runs a folder of cases; `cargo xtask onnx` makes one"]
fn suite() {
    let folder = env::var("PRECAST_ONNX_SUITE").expect("PRECAST_ONNX_SUITE names a folder");
    let only = env::var("PRECAST_ONNX_ONLY").unwrap_or_default();
    // A panic is a verdict here.
    std::panic::set_hook(Box::new(|_| {}));
    let families = families(Path::new(&folder), &only);
    drop(std::panic::take_hook());
    let mut bad = 0;
    for (group, family) in &families {
        println!(
            "onnx {group}: {} of {} agree, {} wrong, {} refused, {} panics",
            family.agree,
            family.count(),
            family.wrong.len(),
            family.refused.len(),
            family.panics.len()
        );
        family.wrong.iter().for_each(|words| println!("  wrong    {words}"));
        family.panics.iter().for_each(|words| println!("  panics   {words}"));
        family.refused.iter().for_each(|(name, words)| println!("  refused  {name}: {words}"));
        // Cases that the import cannot represent are shown, and do not count.
        let counts = !group.contains('(');
        bad += family.panics.len() + if counts { family.wrong.len() } else { 0 };
    }
    assert_eq!(bad, 0, "cases that are wrong or panic");
}
