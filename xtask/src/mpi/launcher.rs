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

/// Returns `mpirun` of `PATH`, if there is one, and those with these paths.
pub fn find(paths: &[PathBuf]) -> Result<Vec<Launcher>> {
    let of_path = env::split_paths(&env::var_os("PATH").unwrap_or_default())
        .map(|folder| folder.join("mpirun"))
        .find(|path| path.is_file());
    let found: Vec<Launcher> = of_path.iter().chain(paths).map(|path| Launcher::new(path)).collect::<Result<_>>()?;
    if found.is_empty() {
        let words =
            "no `mpirun` is in PATH; `apt-get install openmpi-bin` or, with --mpiexec, `pip install mpich` has one";
        return Err(words.into());
    }
    Ok(found)
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
