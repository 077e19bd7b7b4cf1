//! The harness of all replays: reads the cases of a recorded file, and compares their verdicts with the expected ones.
//!
//! `tests/verdicts/SYSTEM-FILE.txt` holds the expected verdict of every case: each intentional difference, named as in
//! COMPARE.md, with the cases in which it shows; uncovered cases with the reason; all others agree. A test says whether a
//! case agrees; which difference explains one that does not is read from this file alone. So whatever is listed must
//! differ, and whatever differs must be listed: a new case that differs is added to its difference by hand. A test that
//! finds a difference has compared our result with the one that our rule demands.
//!
//! A case that changes its verdict fails. `PRECAST_VERDICTS=write` rewrites the file; review the difference before
//! committing it. Another folder of cases (`PRECAST_GOLDENS`) has no such file: its cases are looked up in this one.

use std::{
    collections::{BTreeMap, BTreeSet},
    env,
    fmt::Display,
    fs,
    io::Write,
    path::{Path, PathBuf},
};

use serde::de::DeserializeOwned;
use serde_json::Value;

/// Replays a recording of a system, and compares the verdicts of its cases with those of `tests/verdicts`. `None` is a
/// recording that the folder lacks.
pub fn replay<R>(system: &'static str, file: &str, recording: Option<R>, judge: impl FnOnce(&R, &mut Tally)) {
    if let Some(recording) = recording {
        let mut tally = Tally::new(system, file);
        judge(&recording, &mut tally);
        tally.close();
    }
}

/// The verdict on a case.
#[derive(Clone, Debug, PartialEq)]
pub enum Verdict {
    Agree,
    /// Ours is the result that our rule demands, and theirs is another: `tests/verdicts` names the difference.
    Differs,
    /// Reason for comparing nothing.
    NotCovered(&'static str),
    /// There is nothing of the kind here: `tests/verdicts` has the reason for comparing nothing.
    Absent,
}

impl Verdict {
    /// Returns the verdict on a case in which ours is what our rule demands.
    pub fn of(agrees: bool) -> Self {
        if agrees { Verdict::Agree } else { Verdict::Differs }
    }
}

/// Result of judging; `Err` is the reason why it fails or is not recognized.
pub type Judged = Result<Verdict, String>;

/// A case's name and its verdict.
pub type Case = (String, Judged);

/// Judges the cases under a key, each parsed separately: an unrecognized one fails alone.
pub fn each<T: DeserializeOwned>(recording: &Value, key: &str, judge: impl Fn(T) -> Vec<Case>) -> Vec<Case> {
    let judged = |case: &Value| match serde_json::from_value(case.clone()) {
        Ok(read) => judge(read),
        Err(error) => vec![(case.to_string(), Err(format!("not understood: {error}")))],
    };
    items(&recording[key]).flat_map(judged).collect()
}

/// Iterates over the elements of an array; there are none in any other value.
pub fn items(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

/// Iterates over the entries of an object; there are none in any other value.
pub fn entries(value: &Value) -> impl Iterator<Item = (&String, &Value)> {
    value.as_object().into_iter().flatten()
}

/// Iterates over a table that is written `name: names; name: names`.
pub fn table(text: &'static str) -> impl Iterator<Item = (&'static str, &'static str)> {
    text.split(';').filter_map(|row| row.split_once(':')).map(|(name, names)| (name.trim(), names.trim()))
}

/// Returns whether COMPARE.md has a row of a difference, which begins with the name of the difference or has it in
/// parentheses, or whose test has that name.
fn has_row(compare: &str, difference: &str) -> bool {
    let letters = difference.to_lowercase().replace([' ', '-'], "_");
    let test: String = letters.chars().filter(|c| c.is_ascii_alphanumeric() || *c == '_').collect();
    let tests = |line: &str| line.trim_end_matches(" |").rsplit(" | ").next().unwrap_or_default().to_string();
    let names = |tests: String| tests.contains(&format!("`{test}`")) || tests.contains(&format!("({difference})"));
    let mut rows = compare.lines().filter(|line| line.starts_with('|'));
    rows.any(|line| line.starts_with(&format!("| {difference} |")) || names(tests(line)))
}

/// Counts and verdicts of one file.
pub struct Tally {
    system: &'static str,
    file: String,
    seen: BTreeMap<String, usize>,
    agree: usize,
    /// `true` where a line is printed for each case.
    verbose: bool,
    /// Expected verdicts of the cases that do not agree.
    expected: BTreeMap<String, String>,
    /// Cases by the differences that explain them.
    on_purpose: BTreeMap<String, BTreeSet<String>>,
    /// Cases by the reason for not comparing them, each with the number of values it represents.
    not_covered: BTreeMap<String, BTreeMap<String, usize>>,
    failures: Vec<String>,
}

impl Tally {
    fn new(system: &'static str, file: &str) -> Self {
        Tally {
            system,
            file: file.into(),
            seen: BTreeMap::new(),
            agree: 0,
            verbose: env::var_os("PRECAST_GOLDENS_VERBOSE").is_some_and(|word| word == "1"),
            expected: by_case(&fs::read_to_string(path(system, file)).unwrap_or_default())
                .map(|(under, case)| (case.into(), under.into()))
                .collect(),
            on_purpose: BTreeMap::new(),
            not_covered: BTreeMap::new(),
            failures: vec![],
        }
    }

    /// Returns the name of a case; the second case with a name becomes `NAME #2`.
    fn unique(&mut self, case: impl Into<String>) -> String {
        let case = case.into().replace('\n', " ");
        let times = self.seen.entry(case.clone()).or_default();
        *times += 1;
        if *times == 1 { case } else { format!("{case} #{times}") }
    }

    /// Counts a case.
    pub fn count(&mut self, case: impl Into<String>, judged: Judged) {
        let case = self.unique(case);
        let expected = |kind: &str| self.expected.get(&case)?.strip_prefix(kind).map(String::from);
        let others = env::var_os("PRECAST_GOLDENS").is_some();
        let reason = || match expected("not covered: ") {
            None if others => Some("tests/verdicts does not have the case".into()),
            reason => reason,
        };
        let said = match judged {
            Ok(Verdict::Agree) => {
                self.agree += 1;
                Ok("agree".into())
            }
            Ok(Verdict::Differs) => match expected("differ on purpose: ") {
                Some(differences) => {
                    let said = format!("differ on purpose: {differences}");
                    self.on_purpose.entry(differences).or_default().insert(case.clone());
                    Ok(said)
                }
                None if others => Ok(self.leave_out(&case, "ours is right, and differs from the recording".into())),
                None => Err("differs, and tests/verdicts names no difference".into()),
            },
            Ok(Verdict::NotCovered(why)) => Ok(self.leave_out(&case, why.into())),
            Ok(Verdict::Absent) => match reason() {
                Some(why) => Ok(self.leave_out(&case, why)),
                None => Err("is not understood, and tests/verdicts has no reason".into()),
            },
            Err(why) => Err(why),
        };
        if self.verbose {
            println!("{case}: {}", said.as_ref().map_or("FAIL", |said| said));
        }
        self.failures.extend(said.err().map(|why: String| format!("{case}: {why}")));
    }

    /// Counts a case that is not compared, for a reason.
    fn leave_out(&mut self, case: &str, why: String) -> String {
        let said = format!("not covered: {why}");
        self.not_covered.entry(why).or_default().insert(case.into(), 1);
        said
    }

    /// Counts several cases.
    pub fn count_all(&mut self, cases: Vec<Case>) {
        cases.into_iter().for_each(|(case, judged)| self.count(case, judged));
    }

    /// Counts a case in which the recorded behaviour and ours are the same.
    pub fn agree(&mut self, case: impl Into<String>) {
        self.count(case, Ok(Verdict::Agree));
    }

    /// Counts a case in which ours is what our rule demands, and theirs is something else.
    pub fn differs(&mut self, case: impl Into<String>) {
        self.count(case, Ok(Verdict::Differs));
    }

    /// Counts a case of something that does not exist here.
    pub fn absent(&mut self, case: impl Into<String>) {
        self.count(case, Ok(Verdict::Absent));
    }

    /// Counts a recognized case about something that this library does not do or cannot compare, with the reason.
    pub fn not_covered(&mut self, case: impl Into<String>, why: &'static str) {
        self.count(case, Ok(Verdict::NotCovered(why)));
    }

    /// Counts a case as [`not_covered`](Self::not_covered) does, for one that represents several recorded values.
    pub fn not_covered_values(&mut self, case: impl Into<String>, values: usize, why: &str) {
        let case = self.unique(case);
        self.not_covered.entry(why.to_string()).or_default().insert(case, values);
    }

    pub fn fail(&mut self, case: impl Into<String>, why: impl Display) {
        self.count(case, Err(why.to_string()));
    }

    /// Prints the line of the file. Panics when a case failed, when one changed its verdict, and when a difference has
    /// no row in COMPARE.md.
    fn close(self) {
        let differ: usize = self.on_purpose.values().map(BTreeSet::len).sum();
        let not_covered: usize = self.not_covered.values().flat_map(BTreeMap::values).sum();
        for (difference, cases) in &self.on_purpose {
            println!("  {:4} {difference}", cases.len());
        }
        for (why, cases) in &self.not_covered {
            println!("  {:4} not covered: {why}", cases.values().sum::<usize>());
        }
        // Directly to the stream, which the harness does not capture, so that the line appears in every run.
        let _ = writeln!(
            std::io::stdout(),
            "goldens {} {}: {} agree, {differ} differ on purpose, {} fail, {not_covered} not covered",
            self.system,
            self.file,
            self.agree,
            self.failures.len()
        );
        assert!(self.failures.is_empty(), "{}", self.failures.join("\n"));
        self.check_differences();
        self.check_verdicts();
    }

    /// Checks that each difference has a row in COMPARE.md.
    fn check_differences(&self) {
        let compare = fs::read_to_string(root().join("docs/COMPARE.md")).unwrap();
        for difference in self.on_purpose.keys().flat_map(|names| names.split("; ")) {
            assert!(has_row(&compare, difference), "COMPARE.md has no row for `{difference}`");
        }
    }

    fn check_verdicts(&self) {
        let write = env::var_os("PRECAST_VERDICTS").map(|word| {
            assert!(word == "write", "PRECAST_VERDICTS is {word:?}; allowed: write");
        });
        if env::var_os("PRECAST_GOLDENS").is_some() {
            assert!(
                write.is_none(),
                "PRECAST_VERDICTS writes verdicts of tests/goldens, and PRECAST_GOLDENS names others"
            );
            return;
        }
        let path = path(self.system, &self.file);
        let now = self.verdicts();
        if write.is_some() {
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(&path, now).unwrap();
            return;
        }
        let expected = fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        if now != expected {
            let lines =
                |text: &str| by_case(text).map(|(under, case)| format!("{case}: {under}")).collect::<BTreeSet<_>>();
            let (old, new) = (lines(&expected), lines(&now));
            let gone = old.difference(&new).map(|line| format!("- {line}"));
            let come = new.difference(&old).map(|line| format!("+ {line}"));
            let changed: Vec<String> = gone.chain(come).take(40).collect();
            let changed =
                if changed.is_empty() { "the same lines, in another form".into() } else { changed.join("\n") };
            panic!(
                "{} is not what is met now (- expected, + met; PRECAST_VERDICTS=write writes it anew):\n{changed}",
                path.display()
            );
        }
    }

    /// Returns the text of the file of verdicts.
    fn verdicts(&self) -> String {
        let mut text = format!("{} cases agree: all that are not listed here.\n", self.agree);
        for (difference, cases) in &self.on_purpose {
            text += &format!("\ndiffer on purpose: {difference}\n");
            cases.iter().for_each(|case| text += &format!("  {case}\n"));
        }
        for (why, cases) in &self.not_covered {
            text += &format!("\nnot covered: {why}\n");
            for (case, values) in cases {
                let times = if *values == 1 { String::new() } else { format!(" ({values} values)") };
                text += &format!("  {case}{times}\n");
            }
        }
        text
    }
}

fn root() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
}

fn path(system: &str, file: &str) -> PathBuf {
    root().join(format!("tests/verdicts/{system}-{file}.txt"))
}

/// Iterates over the cases in a file of verdicts, each after its verdict; the line of those that agree comes first.
fn by_case(verdicts: &str) -> impl Iterator<Item = (&str, &str)> {
    let mut under = "";
    verdicts.lines().filter_map(move |line| match line.strip_prefix("  ") {
        Some(case) => Some((under, case)),
        None => {
            under = line;
            line.ends_with("listed here.").then_some(("", line))
        }
    })
}
