use super::*;

/// A folder for one test, removed at the end.
struct Folder(PathBuf);

impl Folder {
    fn new(test: &str) -> Self {
        let folder = std::env::temp_dir().join(format!("precast-files-{test}-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        Folder(folder)
    }

    fn len(&self) -> usize {
        fs::read_dir(&self.0).unwrap().count()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[test]
fn a_file_is_replaced_whole_or_not_at_all() {
    let dir = Folder::new("replace");
    let path = dir.0.join("a.txt");
    check_writable(&path).unwrap();
    assert_eq!(dir.len(), 0, "trying leaves nothing");
    replace(&path, b"old").unwrap();
    replace(&path, b"new").unwrap();
    assert_eq!(read_text(&path, 3).unwrap(), "new");
    assert!(read_text(&path, 2).unwrap_err().to_string().contains("longer than 2 bytes"));

    // A folder cannot be replaced by a file: the error names it, and nothing is left next to it.
    let folder = dir.0.join("folder");
    fs::create_dir_all(folder.join("inside")).unwrap();
    assert!(check_writable(&folder).unwrap_err().to_string().contains("folder"));
    assert!(replace(&folder, b"x").unwrap_err().to_string().contains("folder"));
    assert_eq!(dir.len(), 2);
    let nowhere = dir.0.join("no/such/folder/a.txt");
    assert!(check_writable(&nowhere).is_err() && replace(&nowhere, b"x").is_err());
}

/// As on a full disk: some bytes are written, then no more.
#[test]
fn a_write_that_fails_half_way_leaves_the_old_file_and_nothing_else() {
    let dir = Folder::new("full");
    let path = dir.0.join("metrics.json");
    replace(&path, b"{\"whole\": true}").unwrap();
    let error = replace_by(&path, |file| {
        file.write_all(b"{\"who").unwrap();
        Err::<(), _>(Error::io(&path, &io::ErrorKind::StorageFull.into()))
    });
    let message = error.unwrap_err().to_string();
    assert!(message.starts_with(&path.display().to_string()), "{message}");
    assert_eq!(read_text(&path, 100).unwrap(), "{\"whole\": true}");
    assert_eq!(dir.len(), 1);
}

#[test]
#[cfg(unix)]
fn links_are_followed_and_devices_stay_what_they_are() {
    let dir = Folder::new("links");
    let (file, link) = (dir.0.join("file"), dir.0.join("link"));
    fs::write(&file, "old").unwrap();
    std::os::unix::fs::symlink(&file, &link).unwrap();
    replace(&link, b"new").unwrap();
    assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
    assert_eq!(fs::read_to_string(&file).unwrap(), "new");
    // Also when the target does not exist yet.
    fs::remove_file(&file).unwrap();
    replace(&link, b"again").unwrap();
    assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
    assert_eq!(fs::read_to_string(&file).unwrap(), "again");
    check_writable("/dev/null").unwrap();
    replace("/dev/null", b"gone").unwrap();
    assert!(!fs::metadata("/dev/null").unwrap().is_file());
}

#[test]
#[cfg(unix)]
fn permissions_stay_and_a_read_only_file_is_not_replaced() {
    use std::os::unix::fs::PermissionsExt;
    let dir = Folder::new("permissions");
    let path = dir.0.join("a.txt");
    replace(&path, b"old").unwrap();
    let mode = || fs::metadata(&path).unwrap().permissions().mode() & 0o777;
    fs::set_permissions(&path, PermissionsExt::from_mode(0o600)).unwrap();
    replace(&path, b"new").unwrap();
    assert_eq!(mode(), 0o600);
    fs::set_permissions(&path, PermissionsExt::from_mode(0o444)).unwrap();
    for error in [check_writable(&path).unwrap_err(), replace(&path, b"newer").unwrap_err()] {
        assert!(error.to_string().ends_with("the file is read-only"), "{error}");
    }
    assert_eq!((read_text(&path, 10).unwrap().as_str(), mode(), dir.len()), ("new", 0o444, 1));
}

#[test]
#[cfg(unix)]
fn of_an_endless_file_no_more_than_the_limit_is_read() {
    let message = read_within(Path::new("/dev/zero"), 1000).unwrap_err().to_string();
    assert_eq!(message, "/dev/zero: longer than 1000 bytes, the most that is read");
}

#[test]
fn what_is_too_long_to_be_read_is_not_written() {
    let dir = Folder::new("within");
    let path = dir.0.join("a.json");
    replace_within(&path, b"four", 4).unwrap();
    assert_eq!(read_text(&path, 4).unwrap(), "four");
    let message = replace_within(&path, b"longer", 4).unwrap_err().to_string();
    assert!(message.ends_with("a.json: it would have 6 bytes; at most 4 can be read again"), "{message}");
    assert_eq!(read_text(&path, 4).unwrap(), "four");
}

/// The names of the parts are new, so an old file would name parts that are there and not its own.
#[test]
fn parts_are_replaced_while_the_file_that_names_them_is_absent() {
    let dir = Folder::new("parts");
    let (whole, part) = (dir.0.join("whole"), dir.0.join("part"));
    let staged = |text: &str| {
        let stage = |path: &Path| stage(path, |file| file.write_all(text.as_bytes()).map_err(|e| Error::io(path, &e)));
        (stage(&whole).unwrap().0, stage(&part).unwrap().0)
    };
    let (first, of_first) = staged("1");
    first.put_with(vec![of_first]).unwrap();
    // Nothing changes before all are written, and what is not put is removed.
    drop(staged("2"));
    assert_eq!((fs::read(&whole).unwrap(), fs::read(&part).unwrap(), dir.len()), (b"1".to_vec(), b"1".to_vec(), 2));
    // A part that cannot be replaced: the old file that names it is gone.
    let (third, of_third) = staged("3");
    fs::remove_file(&part).unwrap();
    fs::create_dir_all(part.join("in the way")).unwrap();
    assert!(third.put_with(vec![of_third]).unwrap_err().to_string().contains("part"));
    assert!(!whole.exists());
    assert_eq!(dir.len(), 1);
}
