//! `cargo xtask mutate`: makes mistakes, one at a time, in a copy of the source, and runs the tests, which must
//! fail.

mod list;

use std::{
    fs,
    io::Write,
    path::Path,
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use self::list::{MUTATIONS, Mutation};
use crate::{
    copy::Tree,
    shell::{Result, program},
};

/// Time after which a suite is considered hung.
const PATIENCE: Duration = Duration::from_secs(30 * 60);

const USAGE: &str = "[--list] [--only WORDS] [--first] [--at REVISION] [--trust]
  --list          name the mutations and stop
  --only WORDS    those whose name has these words
  --first         only the tests that are likely to notice, not the whole suite where they do not
  --at REVISION   the source and the tests of another revision
  --trust         do not run the suite on the unchanged source first";

/// One-line description.
pub const ABOUT: &str = "[--list] [--only WORDS] [--first] [--at REVISION] [--trust]: mistakes that cargo-mutants cannot make, which the tests have to notice";

/// Result of the tests on a mutation.
enum Verdict {
    /// A test failed; its name.
    Caught(String),
    Survived,
    /// The tests crashed or did not end; the place. The cause may be the mistake, or the machine.
    Ended(String),
    /// The text to change is not in the file.
    Misplaced(String),
    /// The changed source does not compile.
    Invalid(String),
}

/// Command-line options.
#[derive(Default)]
struct Options {
    list: bool,
    only: Option<String>,
    first: bool,
    at: Option<String>,
    trust: bool,
}

pub fn run(words: &[String]) -> Result {
    let options = options(words)?;
    let chosen = MUTATIONS.iter().filter(|m| options.only.as_ref().is_none_or(|words| m.name.contains(words.as_str())));
    let chosen: Vec<&Mutation> = chosen.collect();
    if chosen.is_empty() {
        return Err("no mutation has these words in its name; --list names all".into());
    }
    if options.list {
        chosen.iter().for_each(|m| println!("{:60} {}", m.name, m.file));
        return Ok(());
    }
    let tree = Tree::copied("mutate", options.at.as_deref())?;
    if !options.trust {
        eprintln!("the suite on the unchanged source");
        match tree.failure(None)? {
            None => {}
            Some(Verdict::Caught(test)) => return Err(format!("{test} fails before anything is changed")),
            Some(_) => return Err("the tests crash or do not end before anything is changed".into()),
        }
    }
    let (mut caught, mut left_out) = (0, 0);
    let mut missed = Vec::new();
    for (number, mutation) in chosen.iter().enumerate() {
        let since = Instant::now();
        if let Some(lacking) = lacking(mutation) {
            println!("{:2}/{} {:66} left out: {lacking}", number + 1, chosen.len(), mutation.name);
            left_out += 1;
            continue;
        }
        let verdict = tree.judge(mutation, options.first)?;
        let shown = match &verdict {
            Verdict::Caught(by) => format!("caught by {by}"),
            Verdict::Survived => "SURVIVED".into(),
            Verdict::Ended(at) => format!("NO TEST FAILED, and the tests crashed or did not end{at}"),
            Verdict::Misplaced(what) => format!("CANNOT BE MADE: {what}"),
            Verdict::Invalid(why) => format!("DOES NOT COMPILE: {why}"),
        };
        println!("{:2}/{} {:66} {shown} ({} s)", number + 1, chosen.len(), mutation.name, since.elapsed().as_secs());
        let _ = std::io::stdout().flush();
        match verdict {
            Verdict::Caught(_) => caught += 1,
            _ => missed.push(mutation.name),
        }
    }
    println!("mutations: {caught} of {} caught, {left_out} left out", chosen.len());
    if missed.is_empty() { Ok(()) } else { Err(format!("not caught: {}", missed.join("; "))) }
}

/// Returns a missing prerequisite of this machine for running the mutated code.
fn lacking(mutation: &Mutation) -> Option<&'static str> {
    #[cfg(target_arch = "x86_64")]
    let has_avx512 = std::is_x86_feature_detected!("avx512f");
    #[cfg(not(target_arch = "x86_64"))]
    let has_avx512 = false;
    match mutation.file {
        "crates/kernels/src/simd/x86.rs" if !has_avx512 => Some("this machine has no AVX-512"),
        _ => None,
    }
}

/// Returns the package of a file.
pub fn package_of(file: &str) -> String {
    match file.split('/').collect::<Vec<_>>()[..] {
        ["crates", folder, ..] => format!("precast-{folder}"),
        ["policies", ..] => "precast-policy".into(),
        _ => "precast".into(),
    }
}

fn options(words: &[String]) -> Result<Options> {
    let mut options = Options::default();
    let mut words = words.iter();
    while let Some(word) = words.next() {
        let mut value =
            || words.next().cloned().ok_or(format!("{word} needs a value\nusage: cargo xtask mutate {USAGE}"));
        match word.as_str() {
            "--list" => options.list = true,
            "--only" => options.only = Some(value()?),
            "--first" => options.first = true,
            "--at" => options.at = Some(value()?),
            "--trust" => options.trust = true,
            _ => return Err(format!("`{word}` is not understood\nusage: cargo xtask mutate {USAGE}")),
        }
    }
    Ok(options)
}

impl Tree {
    /// Makes a mistake, runs the tests, and reverts it.
    fn judge(&self, mutation: &Mutation, only_first: bool) -> Result<Verdict> {
        let file = self.path.join(mutation.file);
        let Ok(right) = fs::read_to_string(&file) else {
            return Ok(Verdict::Misplaced(format!("there is no {}", mutation.file)));
        };
        let wrong = match changed(&right, mutation) {
            Ok(wrong) => wrong,
            Err(why) => return Ok(Verdict::Misplaced(why)),
        };
        fs::write(&file, wrong).map_err(|e| format!("{}: {e}", file.display()))?;
        let verdict = self.verdict(mutation, only_first);
        fs::write(&file, right).map_err(|e| format!("{}: {e}", file.display()))?;
        verdict
    }

    fn verdict(&self, mutation: &Mutation, only_first: bool) -> Result<Verdict> {
        let check = self.cargo(&["check", "--quiet", "--workspace", "--lib"])?;
        if !check.passed {
            let why = check.text.lines().find(|line| line.starts_with("error")).unwrap_or("error").to_string();
            return Ok(Verdict::Invalid(why));
        }
        for first in mutation.first {
            if let Some(found) = self.failure(Some((first, &package_of(mutation.file))))? {
                return Ok(found);
            }
        }
        let found = if only_first { None } else { self.failure(None)? };
        Ok(found.unwrap_or(Verdict::Survived))
    }

    /// Returns the first failure of the whole suite, or of some tests: `target::module`, or the unit tests of a package.
    fn failure(&self, tests: Option<(&str, &str)>) -> Result<Option<Verdict>> {
        let mut arguments = vec!["test"];
        match tests.map(|(tests, package)| (tests.split_once("::"), package)) {
            None => {}
            Some((Some((target, module)), _)) => {
                // Another revision may lack the target.
                if folder_of(&self.path, target).is_none() {
                    return Ok(None);
                }
                arguments.extend(["--test", target, "--", module]);
            }
            Some((None, package)) => arguments.extend(["--package", package, "--lib"]),
        }
        let tests = self.cargo(&arguments)?;
        if tests.passed {
            return Ok(None);
        }
        if tests.text.contains("error: could not compile") {
            return Err("the tests do not compile; see output.txt in the folder of the build".into());
        }
        let failed = tests.text.lines().find_map(|line| line.strip_prefix("test ")?.strip_suffix(" ... FAILED"));
        // The target that ran last: "Running tests/train/main.rs (...)", "Running unittests src/lib.rs (...)".
        let target = tests.text.lines().rev().find_map(|line| line.trim().strip_prefix("Running ")?.split(" (").next());
        let target = target.map_or(String::new(), |target| format!(" ({target})"));
        Ok(Some(match failed {
            Some(test) => Verdict::Caught(format!("{test}{target}")),
            None => Verdict::Ended(target),
        }))
    }

    fn cargo(&self, arguments: &[&str]) -> Result<Ran> {
        // Without optimization, since building takes most of the time.
        let variables = [("CARGO_PROFILE_DEV_DEBUG", "0"), ("CARGO_INCREMENTAL", "1"), ("CARGO_TERM_COLOR", "never")];
        let mut command = program("cargo", arguments, &variables);
        command.current_dir(&self.path).env("CARGO_TARGET_DIR", &self.build);
        ["PRECAST_GOLDENS", "PRECAST_VERDICTS"].iter().for_each(|name| _ = command.env_remove(name));
        patient(command, &self.build.join("output.txt"))
    }
}

/// Folders with targets of tests: of the library, and of the packages on top of it.
const TESTS: [&str; 5] =
    ["tests", "crates/diagnose/tests", "crates/graph/tests", "crates/train/tests", "crates/cli/tests"];

/// Returns the folder of a test target, relative to the root.
pub fn folder_of(root: &Path, target: &str) -> Option<String> {
    TESTS.iter().map(|tests| format!("{tests}/{target}")).find(|folder| root.join(folder).join("main.rs").exists())
}

/// Returns a file with a mistake in it.
fn changed(right: &str, mutation: &Mutation) -> Result<String> {
    mutation.changes.iter().try_fold(right.to_string(), |text, (from, to)| match text.matches(from).count() {
        1 => Ok(text.replacen(from, to, 1)),
        times => Err(format!("`{from}` stands {times} times in {}", mutation.file)),
    })
}

/// The output of a program, and whether it succeeded.
struct Ran {
    passed: bool,
    text: String,
}

/// Runs a program until a test fails or time runs out.
fn patient(mut command: Command, log: &Path) -> Result<Ran> {
    let failed = |e: std::io::Error| format!("{}: {e}", log.display());
    if let Some(folder) = log.parent() {
        fs::create_dir_all(folder).map_err(failed)?;
    }
    let file = fs::File::create(log).map_err(failed)?;
    let both = file.try_clone().map_err(failed)?;
    command.stdin(Stdio::null()).stdout(file).stderr(both);
    // A separate process group, so that the tests end with cargo.
    #[cfg(unix)]
    std::os::unix::process::CommandExt::process_group(&mut command, 0);
    let mut child = command.spawn().map_err(|e| format!("cargo: {e}"))?;
    let since = Instant::now();
    let fails = || fs::read_to_string(log).is_ok_and(|text| text.lines().any(|line| line.ends_with(" ... FAILED")));
    let passed = loop {
        match child.try_wait().map_err(failed)? {
            Some(status) => break status.success(),
            None if fails() || since.elapsed() > PATIENCE => {
                end(&mut child);
                break false;
            }
            None => thread::sleep(Duration::from_millis(200)),
        }
    };
    Ok(Ran { passed, text: String::from_utf8_lossy(&fs::read(log).map_err(failed)?).into_owned() })
}

/// Ends a program and its children.
fn end(child: &mut Child) {
    #[cfg(unix)]
    let _ = Command::new("kill").args(["--", &format!("-{}", child.id())]).status();
    #[cfg(not(unix))]
    let _ = child.kill();
    let _ = child.wait();
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;
    use crate::shell::root;

    #[test]
    fn each_mutation_can_be_made_and_names_tests() {
        assert!((15..=40).contains(&MUTATIONS.len()));
        assert_eq!(MUTATIONS.iter().map(|m| m.name).collect::<HashSet<_>>().len(), MUTATIONS.len());
        for mutation in MUTATIONS {
            let right = fs::read_to_string(root().join(mutation.file)).unwrap();
            let wrong = changed(&right, mutation).unwrap_or_else(|why| panic!("{}: {why}", mutation.name));
            assert_ne!(right, wrong, "{}", mutation.name);
            let manifest = Path::new(mutation.file).ancestors().map(|folder| root().join(folder).join("Cargo.toml"));
            let manifest = fs::read_to_string(manifest.into_iter().find(|file| file.exists()).unwrap()).unwrap();
            assert!(manifest.contains(&format!("\nname = \"{}\"\n", package_of(mutation.file))), "{}", mutation.file);
            for first in mutation.first.iter().filter(|first| **first != "lib") {
                let (target, module) = first.split_once("::").unwrap_or_else(|| panic!("{first} names no module"));
                let folder = folder_of(&root(), target).unwrap_or_else(|| panic!("there is no target {target}"));
                let module = root().join(folder).join(module);
                assert!(module.exists() || module.with_extension("rs").exists(), "{first} is not there");
            }
        }
    }
}
