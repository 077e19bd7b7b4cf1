//! The search for the MPI library of the launcher.
#![allow(unsafe_code)]

use std::{
    env,
    error::Error as _,
    fs,
    os::unix::process::parent_id,
    path::{Path, PathBuf},
};

use libloading::os::unix::{Library, RTLD_GLOBAL, RTLD_NOW};

use crate::{
    error::{Error, ErrorKind, Result},
    launcher::variable,
};

/// Binary interfaces of MPI libraries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Abi {
    OpenMpi,
    Mpich,
    /// The ABI of MPI 5.
    Standard,
}

/// Families of MPI libraries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Family {
    OpenMpi,
    /// MPICH and the libraries with its ABI: Intel MPI, MVAPICH, Cray MPICH.
    Mpich,
}

/// Returns the family of the launcher's MPI.
fn family() -> Option<Family> {
    if env::var_os("OMPI_COMM_WORLD_SIZE").is_some() {
        return Some(Family::OpenMpi);
    }
    ["MV2_COMM_WORLD_SIZE", "PMI_SIZE"].into_iter().find_map(env::var_os).map(|_| Family::Mpich)
}

/// Names of libraries, in the order of the search.
fn names(family: Option<Family>) -> Vec<&'static str> {
    let (open_mpi, mpich): (&[&str], &[&str]) = if cfg!(target_os = "macos") {
        (&["libmpi.40.dylib", "libmpi.dylib"], &["libmpi.12.dylib", "libmpich.12.dylib", "libmpi_abi.1.dylib"])
    } else {
        (&["libmpi.so.40", "libmpi.so"], &["libmpi.so.12", "libmpich.so.12", "libmpi_abi.so.1"])
    };
    match family {
        Some(Family::OpenMpi) => open_mpi.to_vec(),
        Some(Family::Mpich) => mpich.to_vec(),
        None => [open_mpi, mpich].concat(),
    }
}

/// Returns the folders of libraries beside that of a program.
fn beside(program: &Path) -> impl Iterator<Item = PathBuf> + use<> {
    let program = fs::canonicalize(program).ok();
    let root = program.and_then(|program| Some(program.parent()?.parent()?.to_path_buf()));
    root.into_iter().flat_map(|root| ["lib", "lib64"].map(|name| root.join(name)))
}

/// Returns the libraries to try: those beside the program that has started this process, those of the system's search,
/// then those beside a launcher in `PATH`.
fn candidates() -> Vec<PathBuf> {
    let names = names(family());
    let in_folder = |folder: PathBuf| {
        let paths: Vec<PathBuf> = names.iter().map(|name| folder.join(name)).filter(|path| path.exists()).collect();
        paths
    };
    let parent = beside(Path::new(&format!("/proc/{}/exe", parent_id()))).flat_map(in_folder);
    let path = env::var_os("PATH").unwrap_or_default();
    let launchers = env::split_paths(&path).flat_map(|folder| ["mpirun", "mpiexec"].map(|name| folder.join(name)));
    let of_path = launchers.flat_map(|launcher| beside(&launcher)).flat_map(in_folder);
    let mut all: Vec<PathBuf> = Vec::new();
    for path in parent.chain(names.iter().map(PathBuf::from)).chain(of_path) {
        if !all.contains(&path) {
            all.push(path);
        }
    }
    all
}

/// Loads the library of `PRECAST_MPI`, or the first one found. It is never unloaded.
pub(super) fn open() -> Result<(&'static Library, Abi, String)> {
    let chosen = env::var_os("PRECAST_MPI").filter(|path| !path.is_empty());
    let candidates = chosen.map_or_else(candidates, |path| vec![PathBuf::from(path)]);
    let mut words = Vec::new();
    for path in candidates {
        // The plugins of Open MPI need the symbols of the library.
        // SAFETY: what an MPI library does when it is loaded is its own; the user or the launcher has chosen it.
        match unsafe { Library::open(Some(&path), RTLD_NOW | RTLD_GLOBAL) } {
            Ok(library) => {
                let library: &'static Library = Box::leak(Box::new(library));
                let abi = abi(library, &path);
                // MPICH would end the process.
                if (abi, family()) == (Abi::Mpich, Some(Family::OpenMpi)) {
                    let words = format!("{} has the ABI of MPICH, and the launcher is Open MPI's", path.display());
                    return Err(Error::new(ErrorKind::Launcher, words));
                }
                return Ok((library, abi, path.display().to_string()));
            }
            Err(error) => {
                let cause = error.source().map(ToString::to_string).unwrap_or_default();
                words.push(format!("{}: {error}: {cause}", path.display()));
            }
        }
    }
    let by = variable().map(|name| format!(", and without `{name}` this process runs alone")).unwrap_or_default();
    let words = format!("no MPI library could be loaded; `PRECAST_MPI` takes a path{by}; met: {}", words.join("; "));
    Err(Error::new(ErrorKind::Library, words))
}

fn abi(library: &Library, path: &Path) -> Abi {
    // SAFETY: the address is not read.
    let of_open_mpi = unsafe { library.get::<*const ()>(b"ompi_mpi_comm_world") }.is_ok();
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    match () {
        () if of_open_mpi => Abi::OpenMpi,
        () if name.contains("mpi_abi") => Abi::Standard,
        () => Abi::Mpich,
    }
}
