//! The files that a command writes, checked before its work begins.

use std::path::{Path, PathBuf};

use precast_base::files;
use precast_graph::onnx::OnnxModel;
use precast_train::is_onnx;

use super::{Failure, Result, inputs::shown, progress};

/// The destination of a command's output.
#[derive(Debug, clap::Args)]
pub(super) struct Output {
    /// The file to write; without it, the text goes to standard output
    #[arg(short = 'o', long = "output", value_name = "FILE")]
    pub file: Option<PathBuf>,
    #[command(flatten)]
    pub force: Force,
}

/// The permission to replace files.
#[derive(Clone, Copy, Debug, clap::Args)]
pub(super) struct Force {
    /// Replace existing files
    #[arg(long = "force")]
    pub given: bool,
}

/// The page of a command.
#[derive(Debug, clap::Args)]
pub(super) struct Page {
    /// Also write a page for a browser, in which the cells with their reasons, sizes and what was found are searched,
    /// folded and filtered. `plan` compares a second `--policy` with the first
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
    #[command(flatten)]
    pub force: Force,
}

impl Page {
    /// Refuses a file as [`check_unread`], and one with the ending of another format.
    pub fn check(&self, read: &[(&str, Option<&Path>)]) -> Result {
        check_unread(read, &[("--html", self.html.as_deref())], self.force)?;
        check_ending("--html", self.html.as_deref(), &["html", "htm"])
    }
}

impl Output {
    /// Refuses a file as [`check_unread`].
    pub fn check(&self, read: &[(&str, Option<&Path>)]) -> Result {
        check_unread(read, &[("--output", self.file.as_deref())], self.force)
    }
}

/// Endings of the names of files, and their formats.
const FORMATS: [(&str, &str); 16] = [
    ("onnx", "an ONNX model"),
    ("safetensors", "a safetensors file"),
    ("npz", "an archive of NumPy"),
    ("npy", "an array of NumPy"),
    ("pt", "a file of torch"),
    ("pth", "a file of torch"),
    ("yaml", "YAML"),
    ("yml", "YAML"),
    ("json", "JSON"),
    ("csv", "a CSV"),
    ("html", "a page of HTML"),
    ("htm", "a page of HTML"),
    ("svg", "a drawing in SVG"),
    ("dot", "a graph in DOT"),
    ("png", "an image"),
    ("py", "a program in Python"),
];

/// Refuses a file whose name ends as that of another format than those which are written, such as `["svg"]`.
pub(super) fn check_ending(flag: &str, file: Option<&Path>, written: &[&str]) -> Result {
    let ending = file.and_then(|file| file.extension()).map(|ending| ending.to_string_lossy().to_lowercase());
    let (Some(file), Some(ending)) = (file, ending) else { return Ok(()) };
    match FORMATS.iter().find(|(other, _)| *other == ending && !written.contains(other)) {
        Some((_, format)) => Err(Failure::Usage(format!(
            "{flag}: `{}` is the name of {format}; expected one that ends in `.{}`",
            shown(file),
            written.join("` or `.")
        ))),
        None => Ok(()),
    }
}

/// Refuses files and folders that are there already, unless it is forced. A device is written to, not replaced.
pub(super) fn check_free(outputs: &[(&str, Option<&Path>)], force: Force) -> Result {
    let mut named = outputs.iter().filter_map(|(flag, path)| Some((flag, (*path)?)));
    match named.find(|(_, path)| (path.is_file() || path.is_dir()) && !force.given) {
        Some((flag, path)) => {
            Err(Failure::Usage(format!("{flag}: `{}` already exists; --force replaces it", shown(path))))
        }
        None => Ok(()),
    }
}

/// Writes a file in addition to what is printed, and says so on standard error.
pub(super) fn write(file: &Path, text: &str) -> Result {
    files::replace(file, text.as_bytes()).map_err(Failure::work)?;
    progress::say(&format!("written: {}", shown(file)));
    Ok(())
}

/// Returns whether a folder is that of a run.
pub(super) fn is_run(folder: &Path) -> bool {
    folder.join("run.yaml").is_file() && folder.join("about.json").is_file()
}

/// Refuses two flags that name one file, `-`, a file inside the folder of a run, whose files are the run's own, one that
/// cannot be written, and one that already exists, unless it is forced.
pub(super) fn check(outputs: &[(&str, Option<&Path>)], force: Force) -> Result {
    check_unread(&[], outputs, force)
}

/// Refuses as [`check`], except files that are there already.
fn check_forced(outputs: &[(&str, Option<&Path>)]) -> Result {
    check_distinct(outputs)?;
    for (flag, file) in outputs.iter().filter_map(|(flag, file)| Some((flag, (*file)?))) {
        if file == Path::new("-") {
            return Err(Failure::Usage(format!(
                "{flag}: expected the name of a file, got `-`; `./-` is a file of that name"
            )));
        }
        check_outside_runs(flag, file)?;
        files::check_writable(file).map_err(|error| Failure::Usage(format!("{flag}: {error}")))?;
    }
    Ok(())
}

/// Refuses two arguments that name one file or folder.
pub(super) fn check_distinct(named: &[(&str, Option<&Path>)]) -> Result {
    let named: Vec<_> = named.iter().filter_map(|(flag, path)| Some((flag, (*path)?, place((*path)?)))).collect();
    for (i, (flag, path, place)) in named.iter().enumerate() {
        if let Some((other, ..)) = named[..i].iter().find(|(.., other)| other == place) {
            return Err(Failure::Usage(format!("{other} and {flag} name one file, `{}`", shown(path))));
        }
    }
    Ok(())
}

/// Refuses outputs that name a file which the command reads, or that is in a folder which it reads, and as [`check`].
pub(super) fn check_unread(read: &[(&str, Option<&Path>)], outputs: &[(&str, Option<&Path>)], force: Force) -> Result {
    for output in outputs {
        for input in read {
            check_distinct(&[*input, *output])?;
        }
    }
    check_forced(outputs)?;
    outputs.iter().try_for_each(|output| {
        check_not_inside(read, *output)?;
        check_no_data_file(read, *output)
    })?;
    check_free(outputs, force)
}

/// Refuses to replace a data file of an ONNX model that the command reads.
fn check_no_data_file(read: &[(&str, Option<&Path>)], (flag, file): (&str, Option<&Path>)) -> Result {
    let Some(file) = file.filter(|file| file.exists()) else { return Ok(()) };
    for (name, path) in read.iter().filter_map(|(name, path)| Some((name, path.filter(|path| is_onnx(path))?))) {
        // A model that cannot be read is an error of the command itself.
        let data = OnnxModel::open(path).and_then(|model| model.data_files()).unwrap_or_default();
        if data.iter().any(|data| place(&path.with_file_name(data)) == place(file)) {
            let words = format!("{flag}: `{}` is a data file of {name}, `{}`, which is read", shown(file), shown(path));
            return Err(Failure::Usage(words));
        }
    }
    Ok(())
}

/// Refuses to replace a file in a folder that the command reads.
fn check_not_inside(read: &[(&str, Option<&Path>)], (flag, file): (&str, Option<&Path>)) -> Result {
    let Some(file) = file.filter(|file| file.exists()) else { return Ok(()) };
    let mut folders = read.iter().filter_map(|(name, path)| Some((name, path.filter(|path| path.is_dir())?)));
    match folders.find(|(_, folder)| place(file) != place(folder) && place(file).starts_with(place(folder))) {
        Some((name, folder)) => Err(Failure::Usage(format!(
            "{flag}: `{}` is in the folder of {name}, `{}`, which is read",
            shown(file),
            shown(folder)
        ))),
        None => Ok(()),
    }
}

/// Refuses a file or a folder that is that of a run, or is inside it.
pub(super) fn check_outside_runs(flag: &str, path: &Path) -> Result {
    match place(path).ancestors().find(|folder| is_run(folder)) {
        Some(run) => Err(Failure::Usage(format!(
            "{flag}: `{}` is in the folder of a run, `{}`, which keeps its files to the end; write it elsewhere",
            shown(path),
            shown(run)
        ))),
        None => Ok(()),
    }
}

/// Returns the absolute path of a file that may not exist, without links.
fn place(file: &Path) -> PathBuf {
    let in_folder = || Some(file.parent().map(|folder| folder.join("."))?.canonicalize().ok()?.join(file.file_name()?));
    let absolute = || std::path::absolute(file).unwrap_or_else(|_| file.to_path_buf());
    file.canonicalize().ok().or_else(in_folder).unwrap_or_else(absolute)
}
