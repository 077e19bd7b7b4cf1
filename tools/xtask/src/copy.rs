//! Copies of the repository, so that mutations never touch the repository itself.

use std::{
    collections::HashSet,
    fs,
    path::{Path, PathBuf},
};

use crate::shell::{Result, output, program, root, works};

/// A copy of the repository for mutations.
pub struct Tree {
    /// Folder of the copy.
    pub path: PathBuf,
    /// Build output of the copy.
    pub build: PathBuf,
}

impl Tree {
    /// Copies the working files, or those of another revision, to a folder under `target`.
    pub fn copied(folder: &str, revision: Option<&str>) -> Result<Tree> {
        if let Some(revision) = revision {
            let commit = format!("{revision}^{{commit}}");
            if !works("git", &["rev-parse", "--verify", "--quiet", &commit]) {
                return Err(format!("no revision is called `{revision}`"));
            }
        }
        let folder = root().join("target").join(folder);
        let name = revision.map_or("here".into(), |revision| format!("at-{revision}"));
        let tree = Tree { path: folder.join(&name), build: folder.join(format!("build-{name}")) };
        fs::create_dir_all(&tree.path).map_err(|e| format!("{}: {e}", tree.path.display()))?;
        let listing: &[&str] = match revision {
            Some(revision) => &["ls-tree", "-r", "-z", "--name-only", revision],
            None => &["ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        };
        let files = output("git", listing)?;
        let files: Vec<&str> = files.split('\0').filter(|file| !file.is_empty()).collect();
        for file in &files {
            let content = match revision {
                Some(revision) => {
                    let blob = program("git", &["show", &format!("{revision}:{file}")], &[]).output();
                    blob.map_err(|e| format!("git: {e}"))?.stdout
                }
                // A file that was deleted but not committed is still listed.
                None => match fs::read(root().join(file)) {
                    Ok(content) => content,
                    Err(_) => continue,
                },
            };
            write_if_changed(&tree.path.join(file), &content)?;
        }
        tree.remove_others(&files)?;
        Ok(tree)
    }

    /// Removes files of an earlier copy that this one does not have.
    fn remove_others(&self, files: &[&str]) -> Result {
        let wanted: HashSet<PathBuf> = files.iter().map(|file| self.path.join(file)).collect();
        let mut folders = vec![self.path.clone()];
        while let Some(folder) = folders.pop() {
            let entries = fs::read_dir(&folder).map_err(|e| format!("{}: {e}", folder.display()))?;
            for path in entries.flatten().map(|entry| entry.path()) {
                if path.is_dir() {
                    folders.push(path);
                } else if !wanted.contains(&path) {
                    fs::remove_file(&path).map_err(|e| format!("{}: {e}", path.display()))?;
                }
            }
        }
        Ok(())
    }
}

/// Writes a file unless unchanged, so that its modification time causes no rebuild.
fn write_if_changed(path: &Path, content: &[u8]) -> Result {
    let failed = |e: std::io::Error| format!("{}: {e}", path.display());
    if fs::read(path).is_ok_and(|there| there == content) {
        return Ok(());
    }
    fs::create_dir_all(path.parent().expect("inside of the copy")).map_err(failed)?;
    fs::write(path, content).map_err(failed)
}
