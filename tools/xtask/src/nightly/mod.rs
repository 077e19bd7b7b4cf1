//! `cargo xtask nightly [PART ...] [--list] [--touched BASE]`: the checks that `.ci/run` leaves out, in parts.

mod parts;

use std::time::Instant;

use self::parts::{FOLDERS, PARTS, Part};
use crate::shell::{Result, output};

pub const ABOUT: &str = "[PART ...] [--list] [--touched BASE]: all checks that `.ci/run` leaves out, or those of folders changed since BASE";

pub fn run(words: &[String]) -> Result {
    let (mut named, mut base) = (Vec::new(), None);
    let mut words = words.iter().map(String::as_str);
    while let Some(word) = words.next() {
        match word {
            "--list" => return list(),
            "--touched" => base = Some(words.next().ok_or("--touched needs a commit")?),
            name if PARTS.iter().any(|part| part.name == name) => named.push(name),
            other => {
                let names: Vec<&str> = PARTS.iter().map(|part| part.name).collect();
                return Err(format!(
                    "met `{other}`; allowed: --list, --touched BASE, and the parts {}",
                    names.join(", ")
                ));
            }
        }
    }
    let touched = base.map(|base| output("git", &["diff", "--name-only", base]).map(|files| touched(&files)));
    let touched = touched.transpose()?;
    let is_chosen = |part: &&Part| match (&touched, named.is_empty()) {
        (Some(touched), none_named) => touched.contains(&part.name) && (none_named || named.contains(&part.name)),
        (None, true) => !part.only_named,
        (None, false) => named.contains(&part.name),
    };
    run_all(&PARTS.iter().filter(is_chosen).collect::<Vec<_>>())
}

/// Runs parts, each even if one before it failed, and prints a table.
fn run_all(parts: &[&Part]) -> Result {
    let mut rows = Vec::new();
    let mut failed = Vec::new();
    for part in parts {
        println!("\n== {}: {}", part.name, part.about);
        let began = Instant::now();
        let result = match (part.missing)() {
            Some(missing) => format!("left out: {missing}"),
            None => match (part.run)() {
                Ok(()) => "passed".into(),
                Err(why) => {
                    failed.push(part.name);
                    format!("FAILED: {why}")
                }
            },
        };
        rows.push(format!("| {} | {result} | {} |", part.name, began.elapsed().as_secs()));
    }
    println!("\n| part | result | seconds |\n| --- | --- | --- |\n{}", rows.join("\n"));
    if failed.is_empty() { Ok(()) } else { Err(format!("failed: {}", failed.join(", "))) }
}

fn list() -> Result {
    for part in PARTS {
        let (missing, hours) = ((part.missing)(), if part.only_named { " (only if named)" } else { "" });
        let missing = missing.map(|missing| format!(" [left out here: {missing}]")).unwrap_or_default();
        println!("{:<12} {}{hours}{missing}", part.name, part.about);
    }
    Ok(())
}

/// Returns the parts of the folders in which these files are, one a line.
fn touched(files: &str) -> Vec<&'static str> {
    let is_in = |file: &str, folder: &str| {
        file.strip_prefix(folder).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    };
    FOLDERS
        .iter()
        .filter(|(folder, _)| files.lines().any(|file| is_in(file, folder)))
        .flat_map(|(_, parts)| parts.iter().copied())
        .collect()
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::shell::root;

    #[test]
    fn changed_files_choose_the_parts_of_their_folders() {
        assert_eq!(touched("hosts/burn/src/lib.rs\nREADME.md"), ["burn"]);
        assert!(touched("src/layers/dense.rs\ncandles.md").is_empty());
        assert_eq!(touched("crates/mpi/src/lib.rs"), ["ranks", "rsmpi"]);
    }

    #[test]
    fn the_tables_of_contributing_are_these() {
        let page = fs::read_to_string(root().join("CONTRIBUTING.md")).unwrap();
        let ticked = |names: &[&str]| names.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ");
        for part in PARTS {
            let name = if part.only_named { format!("`{}`, if named", part.name) } else { format!("`{}`", part.name) };
            let row = format!("| {name} | {} |", part.about);
            assert!(page.contains(&row), "CONTRIBUTING.md has no row\n{row}");
        }
        for (folder, parts) in FOLDERS {
            assert!(root().join(folder).exists(), "there is no {folder}");
            assert!(parts.iter().all(|name| PARTS.iter().any(|part| part.name == *name)), "{parts:?}");
            let row = format!("| `{folder}` | {} |", ticked(parts));
            assert!(page.contains(&row), "CONTRIBUTING.md has no row\n{row}");
        }
    }
}
