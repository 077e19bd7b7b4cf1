//! The harness of all replays: reads the cases of a recorded file, and compares their verdicts with the expected ones.
//!
//! `tests/verdicts/SYSTEM-FILE.txt` holds the expected verdict of every case: intentional differences and uncovered
//! cases are listed by name, all others agree. A case that changes its verdict fails. `PRECAST_VERDICTS=write` rewrites
//! the file; review the difference before committing it. Another folder of cases (`PRECAST_GOLDENS`) has no such file.

use std::{
    collections::{BTreeMap, BTreeSet},
    env,
    fmt::Display,
    fs,
    io::Write,
    path::Path,
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
    /// Differences, as named in COMPARE.md. The result required by our rule was computed, and is ours.
    OnPurpose(Vec<&'static str>),
    /// Reason for comparing nothing.
    NotCovered(&'static str),
}

impl Verdict {
    pub fn on_purpose(difference: &'static str) -> Self {
        Verdict::OnPurpose(vec![difference])
    }

    /// Returns the verdict on a case with these differences; without any, it agrees.
    pub fn differing(differences: Vec<&'static str>) -> Self {
        if differences.is_empty() { Verdict::Agree } else { Verdict::OnPurpose(differences) }
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

/// Returns the row of a difference in COMPARE.md, which begins with the name of the difference or whose test has that
/// name.
pub fn row_of<'a>(compare: &'a str, difference: &str) -> Option<&'a str> {
    let begins = format!("| {difference} |");
    let letters = difference.to_lowercase().replace([' ', '-'], "_");
    let test: String = letters.chars().filter(|c| c.is_ascii_alphanumeric() || *c == '_').collect();
    let test = format!("`{test}`");
    let names_test =
        |line: &str| line.trim_end_matches(" |").rsplit(" | ").next().is_some_and(|last| last.contains(&test));
    compare.lines().find(|line| line.starts_with(&begins) || line.starts_with('|') && names_test(line))
}

/// Counts and verdicts of one file.
pub struct Tally {
    system: &'static str,
    file: String,
    seen: BTreeMap<String, usize>,
    agree: usize,
    /// `true` where a line is printed for each case.
    verbose: bool,
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
        let said = match judged {
            Ok(Verdict::Agree) => {
                self.agree += 1;
                "agree".into()
            }
            Ok(Verdict::OnPurpose(differences)) => {
                let differences = differences.join("; ");
                self.on_purpose.entry(differences.clone()).or_default().insert(case.clone());
                format!("differ on purpose: {differences}")
            }
            Ok(Verdict::NotCovered(why)) => {
                self.not_covered.entry(why.into()).or_default().insert(case.clone(), 1);
                format!("not covered: {why}")
            }
            Err(why) => {
                self.failures.push(format!("{case}: {why}"));
                "FAIL".into()
            }
        };
        if self.verbose {
            println!("{case}: {said}");
        }
    }

    /// Counts several cases.
    pub fn count_all(&mut self, cases: Vec<Case>) {
        cases.into_iter().for_each(|(case, judged)| self.count(case, judged));
    }

    /// Counts a case in which the recorded behaviour and ours are the same.
    pub fn agree(&mut self, case: impl Into<String>) {
        self.count(case, Ok(Verdict::Agree));
    }

    /// Counts a case with a difference listed in COMPARE.md.
    pub fn on_purpose(&mut self, case: impl Into<String>, difference: &'static str) {
        self.count(case, Ok(Verdict::on_purpose(difference)));
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
        let compare = fs::read_to_string(root().join("COMPARE.md")).unwrap();
        for difference in self.on_purpose.keys().flat_map(|names| names.split("; ")) {
            assert!(row_of(&compare, difference).is_some(), "COMPARE.md has no row for `{difference}`");
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
        let path = root().join(format!("tests/verdicts/{}-{}.txt", self.system, self.file));
        let now = self.verdicts();
        if write.is_some() {
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(&path, now).unwrap();
            return;
        }
        let expected = fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        if now != expected {
            let (old, new) = (by_case(&expected), by_case(&now));
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
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Returns the lines of a file of verdicts, each with its verdict.
fn by_case(verdicts: &str) -> BTreeSet<String> {
    let mut under = "";
    let mut lines = BTreeSet::new();
    for line in verdicts.lines().filter(|line| !line.is_empty()) {
        match line.strip_prefix("  ") {
            Some(case) => {
                lines.insert(format!("{case}: {under}"));
            }
            None => under = line,
        }
        if line.ends_with("listed here.") {
            lines.insert(line.to_string());
        }
    }
    lines
}
