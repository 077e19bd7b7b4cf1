//! Parts of the folder of a run, read while it may be training.

use std::path::Path;

use precast::error::Result;
use precast_diagnose::Headroom;

use super::{
    about::About,
    folder::{Folder, HEADROOM, METRICS, read_json},
    metrics::read_metrics,
};
use crate::training::History;

/// Reads the provenance of the run in a folder.
pub(crate) fn about_of(path: &Path) -> Result<About> {
    Folder::about(path)
}

/// Reads the range of the results of each cell of the run in a folder, in the steps before its last checkpoint; empty if
/// they were not watched.
///
/// # Errors
/// [`ErrorKind::Run`](precast::ErrorKind::Run) when the file cannot be read.
pub fn headroom_of(path: &Path) -> Result<Vec<Headroom>> {
    let file = path.join(HEADROOM);
    if !file.is_file() {
        return Ok(Vec::new());
    }
    read_json(&file)
}

/// Reads the history so far of the run in a folder.
///
/// # Errors
/// [`ErrorKind::Run`](precast::ErrorKind::Run) when there is no run or a line cannot be read.
pub fn history_of(path: &Path) -> Result<History> {
    Folder::check(path)?;
    let (mut history, _) = read_metrics(&path.join(METRICS), u64::MAX, u64::MAX)?;
    // A run that stalls in its first epoch has no score.
    if let Ok(file) = Folder::run_file(path) {
        history.validated = file.validation.is_some();
        history.measure = file.options.loss.map(|loss| loss.measure());
    }
    Ok(history)
}
