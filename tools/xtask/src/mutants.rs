//! `cargo xtask mutants [FOLDER ...]`: cargo-mutants on the code that decides precision. It replaces bodies of
//! functions, operators and match arms, one at a time; the tests must notice. Survivors are listed in
//! `target/mutants/FOLDER`. The tests next to a folder come first, since they catch most; all tests that decide
//! precision then run on the mutants they miss. Those that no test can notice are listed in `survivors.txt` with their
//! reasons.

use std::{collections::BTreeSet, fs, path::Path};

use crate::{
    copy::Tree,
    mutate::{folder_of, package_of},
    shell::{Result, program, root, works},
};

/// One-line description.
pub const ABOUT: &str = "[FOLDER ...] [--shard K/N]: cargo-mutants on precision, plan, storage, policy and scale";

/// The rooms that decide precision, in the library and in the policies, without the numerics, and the tests next to
/// them, as `target::module`.
const FOLDERS: &[(&str, &[&str])] = &[
    (
        "precision",
        &[
            "conformance::paddle",
            "conformance::torch",
            "plan::custom_ops",
            "plan::regions",
            "plan::weight_grads",
            "policy::capabilities",
            "policy::levels",
        ],
    ),
    ("plan", &["conformance::mindspore", "conformance::packs", "policy::capabilities", "policy::levels"]),
    ("storage", &["train::decorate"]),
    ("policy", &["conformance::packs", "plan::cost", "policy::files", "policy::levels", "policy::schema"]),
    ("scale", &["conformance::scalers", "train::loss_scale", "train::optim", "training::training"]),
];

/// All tests of that code, including recordings of other systems but not the kernels.
const TESTS: &[&str] = &[
    "command::commands",
    "command::graph",
    "command::runs",
    "command::stored_models",
    "conformance::mindspore",
    "conformance::packs",
    "conformance::paddle",
    "conformance::scalers",
    "conformance::tensorflow",
    "conformance::torch",
    "files::weights",
    "laws::layers",
    "laws::messages",
    "laws::second_derivatives",
    "plan::contradictions",
    "plan::cost",
    "plan::custom_ops",
    "plan::properties",
    "plan::recompute",
    "plan::regions",
    "plan::weight_grads",
    "policy::capabilities",
    "policy::files",
    "policy::levels",
    "policy::schema",
    "train::checkpoint",
    "train::decorate",
    "train::loss_scale",
    "train::optim",
    "runs::folders",
    "training::training",
    "training::underflow",
];

/// Mutants that no test can notice: a reason, followed by the mutants as cargo-mutants names them, without line and
/// column.
const SURVIVORS: &str = include_str!("survivors.txt");

pub fn missing() -> Option<String> {
    (!works("cargo", &["mutants", "--version"]))
        .then(|| "no cargo-mutants: `cargo install --locked cargo-mutants`".into())
}

pub fn run(words: &[String]) -> Result {
    let mut folders: Vec<&(&str, &[&str])> = vec![];
    let mut shard = None;
    let mut words = words.iter().map(String::as_str);
    while let Some(word) = words.next() {
        match FOLDERS.iter().find(|(folder, _)| *folder == word) {
            Some(folder) => folders.push(folder),
            None if word == "--shard" => shard = Some(words.next().ok_or("--shard needs K/N, as in 0/4")?),
            None => {
                let names: Vec<&str> = FOLDERS.iter().map(|(folder, _)| *folder).collect();
                return Err(format!("`{word}` is no room that decides precision; allowed: {}", names.join(", ")));
            }
        }
    }
    if folders.is_empty() {
        folders = FOLDERS.iter().collect();
    }
    missing().map_or(Ok(()), Err)?;
    let tree = Tree::copied("mutants", None)?;
    let mut missed = String::new();
    for (folder, near) in folders {
        let found = tree.path.with_file_name(folder);
        let mut chosen = vec![];
        chosen.extend(shard.iter().flat_map(|shard| ["--shard".to_string(), shard.to_string()]));
        let first = mutants(&tree, folder, &found, near, &chosen)?;
        if !first.is_empty() {
            let again: Vec<String> = first.lines().flat_map(|name| ["--re".into(), exactly(name)]).collect();
            missed += &mutants(&tree, folder, &found.join("again"), TESTS, &again)?;
        }
    }
    let new = unexplained(&missed);
    println!("{} that no test can notice, by tools/xtask/src/survivors.txt", missed.lines().count() - new.len());
    if new.is_empty() { Ok(()) } else { Err(format!("not noticed:\n{}", new.join("\n"))) }
}

/// Returns the missed mutants that `survivors.txt` does not explain. Names have no line, so a name counts as often as
/// it is listed.
fn unexplained(missed: &str) -> Vec<&str> {
    let mut known: Vec<&str> = survivors().map(|(_, name)| name).collect();
    let mut explained = |name: &str| {
        let at = known.iter().position(|known| *known == placeless(name));
        at.map(|at| known.swap_remove(at)).is_some()
    };
    missed.lines().filter(|name| !explained(name)).collect()
}

/// Iterates over the reason and the name of each mutant that no test can notice.
fn survivors() -> impl Iterator<Item = (&'static str, &'static str)> {
    let mut reason = "";
    SURVIVORS.lines().filter(|line| !line.starts_with('#')).filter_map(move |line| {
        let name = line.strip_prefix("  ");
        // An empty line ends the mutants of a reason.
        reason = if name.is_none() { line } else { reason };
        Some((reason, name?))
    })
}

/// Strips the place: `src/a.rs:12:9: replace ...` becomes `src/a.rs: replace ...`.
fn placeless(name: &str) -> String {
    let (place, what) = name.split_once(": ").unwrap_or((name, ""));
    format!("{}: {what}", place.split(':').next().unwrap_or(place))
}

/// Runs the `chosen` mutants of a folder, and returns the names of those that no test noticed.
fn mutants(tree: &Tree, folder: &str, found: &Path, tests: &[&str], chosen: &[String]) -> Result<String> {
    let [copy, build, output] = [&tree.path, &tree.build, found].map(|path| path.display().to_string());
    let files = ["src", "policies/src", "crates/tensor/src"]
        .map(|code| [format!("{code}/{folder}/**"), format!("{code}/{folder}.rs")]);
    let mut arguments = vec!["mutants", "--dir", &copy, "--in-place", "--output", &output];
    files.as_flattened().iter().for_each(|files| arguments.extend(["--file", files]));
    let (targets, modules): (BTreeSet<&str>, BTreeSet<&str>) = tests.iter().filter_map(|t| t.split_once("::")).unzip();
    // The tests of the library run policies and tensors.
    let code = ["precast", "precast-policy", "precast-tensor"].map(String::from);
    let packages: BTreeSet<String> = targets.iter().map(|target| package_of_target(target)).chain(code).collect();
    let packages = packages.into_iter().collect::<Vec<_>>().join(",");
    arguments.extend(["--test-package", &packages]);
    arguments.extend(["--no-shuffle", "--minimum-test-timeout", "300", "--colors", "never"]);
    arguments.extend(chosen.iter().map(String::as_str));
    arguments.extend(["--", "--lib"]);
    targets.iter().for_each(|target| arguments.extend(["--test", target]));
    // Skips tests that are slow without optimization and decide nothing.
    arguments.extend(["--", "--skip", "bytes_kept_beside_o0"]);
    // The chosen modules, and the unit tests, whose modules are all called `tests`.
    let modules: Vec<String> = modules.iter().chain(&["tests"]).map(|module| format!("{module}::")).collect();
    arguments.extend(modules.iter().map(String::as_str));
    // Without optimisation, since building takes most of the time.
    let variables = [
        ("CARGO_PROFILE_DEV_DEBUG", "0"),
        ("CARGO_INCREMENTAL", "1"),
        ("CARGO_TARGET_DIR", &build),
        ("PROPTEST_CASES", "100"),
    ];
    fs::create_dir_all(found).map_err(|error| format!("{output}: {error}"))?;
    let mut command = program("cargo", &arguments, &variables);
    ["PRECAST_GOLDENS", "PRECAST_VERDICTS"].iter().for_each(|name| _ = command.env_remove(name));
    let status = command.status().map_err(|error| format!("cargo: {error}"))?;
    // Some were not noticed or timed out, which is a result as well.
    if !matches!(status.code(), Some(0 | 2 | 3)) {
        return Err(format!("cargo mutants ended with {status}"));
    }
    let list = found.join("mutants.out/missed.txt");
    fs::read_to_string(&list).map_err(|error| format!("{}: {error}", list.display()))
}

/// Returns the package of a test target.
fn package_of_target(target: &str) -> String {
    // Its tests train, and are in the folder of the library.
    if target == "conformance" {
        "precast-train".into()
    } else {
        package_of(&folder_of(&root(), target).unwrap_or_default())
    }
}

/// Returns a regular expression that matches exactly this text.
fn exactly(text: &str) -> String {
    let escape = |c: char| r"\.+*?()|[]{}^$#&-~".contains(c).then_some('\\');
    format!("^{}$", text.chars().flat_map(|c| escape(c).into_iter().chain([c])).collect::<String>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_survivor_is_explained_as_often_as_it_is_listed() {
        let of = |line: usize| {
            format!("policies/src/policy/loss_scale.rs:{line}:9: replace > with >= in LossScaleSpec::fault")
        };
        let (known, other) = (of(207), of(219));
        assert_eq!(unexplained(&known), Vec::<&str>::new());
        assert_eq!(unexplained(&format!("{known}\n{other}")), [other]);
        let unknown = "policies/src/policy/loss_scale.rs:1:1: replace > with == in LossScaleSpec::fault";
        assert_eq!(unexplained(unknown), [unknown]);
    }

    #[test]
    fn chosen_modules_are_there() {
        // It names all its targets.
        let library = fs::read_to_string(root().join("Cargo.toml")).unwrap();
        for test in FOLDERS.iter().flat_map(|(_, near)| *near).chain(TESTS) {
            let (target, module) = test.split_once("::").unwrap_or_else(|| panic!("{test} names no module"));
            let folder = folder_of(&root(), target).unwrap_or_else(|| panic!("there is no target {target}"));
            let module = root().join(folder).join(module);
            assert!(module.exists() || module.with_extension("rs").exists(), "{test} is not there");
            let of_library = library.contains(&format!("\n[[test]]\nname = \"{target}\"\n"));
            assert_eq!(package_of_target(target) == "precast", of_library, "the package of {target}");
        }
    }

    #[test]
    fn survivors_have_reasons_and_stand_in_the_source() {
        assert_eq!(placeless("src/a.rs:12:9: replace f -> u8 with 1"), "src/a.rs: replace f -> u8 with 1");
        assert!(survivors().count() > 0);
        for (reason, name) in survivors() {
            assert!(reason.starts_with(|c: char| c.is_alphanumeric()) && reason.ends_with('.'), "{name} has no reason");
            let (file, what) = name.split_once(": ").unwrap_or_else(|| panic!("{name} names no file"));
            assert!(file.ends_with(".rs"), "{name}: it stands here without line and column");
            let source = fs::read_to_string(root().join(file)).unwrap_or_else(|e| panic!("{file}: {e}"));
            // "replace > with >= in Type::function", "replace Type::function -> u8 with 1", "replace Type::f with ()".
            let function = what.split(" in ").last().and_then(|what| what.split(" -> ").next()).unwrap_or(what);
            let function = function.trim_start_matches("replace ").split(" with ").next().unwrap_or(function);
            let function = function.rsplit("::").next().and_then(|name| name.split('<').next()).unwrap_or(function);
            let is_there = ["(", "<"].iter().any(|next| source.contains(&format!("fn {function}{next}")));
            assert!(is_there, "{file} has no function {function}");
        }
    }
}
