//! Launchers of MPI.

use std::{
    env,
    ffi::OsStr,
    path::{Path, PathBuf},
    process::Command,
};

use crate::shell::Result;

/// A program that starts ranks.
pub struct Launcher {
    path: PathBuf,
    pub is_open_mpi: bool,
    /// Its name and version.
    pub name: String,
}

/// Returns the launchers of `PRECAST_MPIRUN`, paths divided as in `PATH`, or `mpirun` of `PATH`.
pub fn find() -> Result<Vec<Launcher>> {
    let paths = |name| env::var_os(name).map_or(Vec::new(), |paths| env::split_paths(&paths).collect::<Vec<_>>());
    let mut found = paths("PRECAST_MPIRUN");
    if found.is_empty() {
        found =
            paths("PATH").iter().map(|folder| folder.join("mpirun")).find(|path| path.is_file()).into_iter().collect();
    }
    if found.is_empty() {
        return Err(
            "no `mpirun` in PATH: `apt-get install openmpi-bin`, or `pip install mpich` and PRECAST_MPIRUN=PATH".into(),
        );
    }
    found.iter().map(|path| Launcher::new(path)).collect()
}

impl Launcher {
    fn new(path: &Path) -> Result<Self> {
        let asked = Command::new(path).arg("--version").output();
        let said = asked.map_err(|error| format!("{}: {error}", path.display()))?.stdout;
        let said = String::from_utf8_lossy(&said);
        let is_open_mpi = said.contains("Open MPI");
        let after = |words: &str| said.split(words).nth(1)?.split_whitespace().next();
        let name = match (after("(Open MPI)"), after("Version:")) {
            (Some(version), _) => format!("Open MPI {version}"),
            (None, Some(version)) => format!("MPICH {version}"),
            (None, None) => path.display().to_string(),
        };
        Ok(Launcher { path: path.to_path_buf(), is_open_mpi, name })
    }

    /// Returns a command that starts so many ranks of a program, also as root and on fewer cores.
    pub fn command(&self, ranks: usize, program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new(&self.path);
        if self.is_open_mpi {
            command.args(["--oversubscribe", "--bind-to", "none"]);
            command.env("OMPI_ALLOW_RUN_AS_ROOT", "1").env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1");
        }
        command.args(["-n", &ranks.to_string()]).arg(program);
        command
    }

    /// Returns the path of its library.
    pub fn library(&self) -> Option<PathBuf> {
        let root = self.path.canonicalize().ok()?.parent()?.parent()?.to_path_buf();
        let name = if self.is_open_mpi { "libmpi.so.40" } else { "libmpi.so.12" };
        let beside = ["lib", "lib64"].map(|folder| root.join(folder).join(name)).into_iter().find(|path| path.exists());
        // That of the system lies elsewhere, where the loader finds it.
        beside.or_else(|| self.is_open_mpi.then(|| name.into()))
    }
}
