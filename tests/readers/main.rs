//! Readers of examples: small files whose contents are known, files of other programs, and every mistake with its
//! message.

mod csv;
mod dataset;
mod images;
mod mistakes;
mod npy;
mod source;
mod text;

use std::{
    fs,
    path::{Path, PathBuf},
};

use precast::data::Dataset;

/// A folder of its own for one test, removed at the end.
struct Folder(PathBuf);

impl Folder {
    fn new(test: &str) -> Folder {
        let folder = std::env::temp_dir().join(format!("precast-readers-{test}-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        Folder(folder)
    }

    /// Writes a file, with the folders in which it lies.
    fn file(&self, name: &str, bytes: impl AsRef<[u8]>) -> PathBuf {
        let path = self.0.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, bytes).unwrap();
        path
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn files() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/readers/files"))
}

/// The inputs of all examples, one after another.
fn inputs(data: &Dataset) -> Vec<f64> {
    data.input_batches(7).unwrap().flat_map(|x| x.to_f64()).collect()
}

/// The targets of all examples, one after another.
fn targets(data: &Dataset) -> Vec<f64> {
    data.batches(7).unwrap().flat_map(|batch| batch.y.to_f64()).collect()
}
