//! Processes that are killed between any two of their changes to a folder.

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
};

use super::folder::Folder;

/// Folder of the process that is killed, and the call of its callback that ends it.
const FOLDER: &str = "PRECAST_TEST_FOLDER";
const CALL: &str = "PRECAST_TEST_CALL";

/// Writes that are killed. The test of the given name, which calls [`run`](Killed::run), runs again in processes of its
/// own.
pub struct Killed<'a> {
    /// Path of the test in its program.
    pub test: &'a str,
    /// Fills a folder with the old files.
    pub old: &'a dyn Fn(&Path),
    /// Writes the new files, and calls the callback where the writer has one.
    pub write: &'a dyn Fn(&Path, &mut dyn FnMut()),
    /// Checks a folder that a killed process has left.
    pub check: &'a dyn Fn(&Path),
}

impl Killed<'_> {
    /// Kills the writer at each call of its callback, then as soon as each change of the folder is seen.
    pub fn run(&self) {
        if let Some(folder) = env::var_os(FOLDER) {
            let mut left: Option<u32> = env::var(CALL).ok().map(|number| number.parse().unwrap());
            return (self.write)(&PathBuf::from(folder), &mut || {
                if let Some(left) = &mut left {
                    if *left == 0 {
                        std::process::abort();
                    }
                    *left -= 1;
                }
            });
        }
        let folder = Folder::new("killed");
        for call in 0.. {
            (self.old)(&folder);
            let ended = self.child(&folder, Some(call)).wait().unwrap();
            (self.check)(&folder);
            if ended.success() {
                assert!(call > 0, "no process was killed: `{}` is not a test, or calls nothing", self.test);
                break;
            }
            assert!(ended.code().is_none(), "not killed: the writer has failed");
        }
        // A process can be faster than it is watched: each change is tried twice, and the next one may be seen instead.
        for change in (1..).flat_map(|change| [change; 2]) {
            (self.old)(&folder);
            let (mut child, mut seen, mut changes) = (self.child(&folder, None), entries(&folder), 0);
            let ended = loop {
                let now = entries(&folder);
                changes += usize::from(now != seen);
                seen = now;
                if changes >= change {
                    child.kill().unwrap();
                }
                if let Some(status) = child.try_wait().unwrap() {
                    break status;
                }
            };
            (self.check)(&folder);
            if ended.success() {
                break;
            }
            assert!(ended.code().is_none(), "not killed: the writer has failed");
        }
    }

    fn child(&self, folder: &Path, call: Option<u32>) -> Child {
        let mut command = Command::new(env::current_exe().unwrap());
        command.args([self.test, "--exact", "--nocapture"]).env(FOLDER, folder);
        if let Some(call) = call {
            command.env(CALL, call.to_string());
        }
        command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
    }
}

/// Returns the names in a folder and below, each with a number that a replaced file changes.
fn entries(folder: &Path) -> Vec<(PathBuf, u64)> {
    let mut all = Vec::new();
    // Entries may be removed meanwhile.
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() {
            all.extend(entries(&path));
        }
        all.push((path, std::os::unix::fs::DirEntryExt::ino(&entry)));
    }
    all.sort();
    all
}
