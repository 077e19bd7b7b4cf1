//! `cargo xtask mpi`: whole runs on several ranks, under each launcher of MPI: their bits, ranks that are killed and runs that
//! others continue, and faults, which must end all ranks with words.

mod bits;
mod faults;
mod job;
mod kills;
mod launcher;
mod runs;
mod tally;

use std::{fmt::Display, fs, path::PathBuf};

use self::launcher::Launcher;
use crate::shell::{self, Result, in_file};

/// One-line description.
pub const ABOUT: &str = "[--only bits|kills|faults] [--tries N]: runs on several ranks, their bits, and faults";

const USAGE: &str = "allowed: --only bits, kills or faults, and --tries N";

/// A part, which returns the number of what is wrong. It is called with the number of runs with a fault.
type Part = fn(&Setup, usize) -> Result<usize>;

const PARTS: [(&str, Part); 3] = [("bits", bits::run), ("kills", kills::run), ("faults", faults::run)];

/// Default number of runs with a fault.
const TRIES: usize = 200;

/// Command-line options.
struct Options {
    only: Option<String>,
    tries: usize,
}

/// The programs, the launchers, and the folder for runs of all parts.
struct Setup {
    launchers: Vec<Launcher>,
    precast: PathBuf,
    /// The command with a cell that goes wrong.
    planted: PathBuf,
    folder: PathBuf,
}

impl Setup {
    /// Makes a folder of this name anew, and returns its path.
    fn folder(&self, name: impl Display) -> Result<PathBuf> {
        let folder = self.folder.join(name.to_string());
        let removed = if folder.exists() { fs::remove_dir_all(&folder) } else { Ok(()) };
        removed.and_then(|()| fs::create_dir_all(&folder)).map_err(|error| in_file(&folder, error))?;
        Ok(folder)
    }
}

pub fn missing() -> Option<String> {
    launcher::find().err()
}

pub fn run(words: &[String]) -> Result {
    let Options { only, tries } = options(words)?;
    if !cfg!(target_os = "linux") {
        return Err("ranks are found in /proc, which Linux alone has".into());
    }
    let launchers = launcher::find()?;
    let build = ["build", "--release", "--locked", "--package", "precast-cli", "--package", "planted"];
    shell::run("cargo", &build, &[])?;
    let built = shell::target().join("release");
    let folder = std::env::temp_dir().join(format!("precast-xtask-mpi-{}", std::process::id()));
    let setup = Setup { launchers, precast: built.join("precast"), planted: built.join("planted"), folder };
    let mut wrong = 0;
    for (name, part) in PARTS {
        if only.as_deref().is_none_or(|only| only == name) {
            wrong += part(&setup, tries)?;
        }
    }
    if wrong == 0 {
        return fs::remove_dir_all(&setup.folder).map_err(|error| in_file(&setup.folder, error));
    }
    Err(format!("{wrong} wrong; the last runs are in {}", setup.folder.display()))
}

fn options(words: &[String]) -> Result<Options> {
    let mut options = Options { only: None, tries: TRIES };
    let mut words = words.iter();
    while let Some(word) = words.next() {
        let mut value = || words.next().ok_or(format!("{word} needs a value; {USAGE}"));
        match word.as_str() {
            "--only" => {
                let part = value()?;
                if PARTS.iter().all(|(name, _)| name != part) {
                    return Err(format!("--only takes bits, kills or faults, met `{part}`"));
                }
                options.only = Some(part.clone());
            }
            "--tries" => {
                let number = value()?;
                let tries = number.parse().ok().filter(|tries| *tries > 0);
                options.tries = tries.ok_or(format!("--tries takes a whole number from 1, met `{number}`"))?;
            }
            _ => return Err(format!("met `{word}`; {USAGE}")),
        }
    }
    Ok(options)
}
