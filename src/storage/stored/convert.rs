//! Conversion of a stored model to other dtypes, one chunk of a tensor at a time.

use std::{
    borrow::Cow,
    collections::BTreeMap,
    fs::{self, File},
    io::{self, Read as _, Seek as _, SeekFrom},
    path::{Path, PathBuf},
};

use half::bf16;
use precast_kernels::counted::{Rounded, convert_counted};
use serde::{Serialize, Serializer};

use super::{Header, StoredModel, StoredTensor, WeightFile, cell_of, folder};
use crate::{
    DType,
    error::{Error, Result},
    io::files::{self, Writer},
    policy::{Rule, RunAs},
    storage::weights::{CHECKSUM, FORMAT, OF_RUN},
};

/// Bytes of a tensor held in memory at a time. A multiple of every element size.
const CHUNK: usize = 4 << 20;
/// Maximum number of tensors named in an error.
const NAMED: usize = 8;

/// Options of [`Plan::convert_with`](crate::Plan::convert_with); [`Plan::convert`](crate::Plan::convert) has the default ones.
///
/// ```
/// use precast::{storage::{stored::StoredModel, weights}, prelude::*};
/// # let folder = std::env::temp_dir().join(format!("precast-doc-convert-{}", std::process::id()));
/// # std::fs::create_dir_all(&folder).unwrap();
/// # let (from, to) = (folder.join("f32.safetensors"), folder.join("f16.safetensors"));
/// let of = |shape: &[usize]| Tensor::full(shape, 0.1, DType::F32);
/// weights::write(&from, [("fc.weight", of(&[2, 3])), ("norm.weight", of(&[3])), ("norm.bias", of(&[3]))])?;
///
/// let model = StoredModel::open(&from)?;
/// let plan = Policy::named("o2")?.plan_outline(model.outline())?;
/// let converted = plan.convert(&model, &to)?;
/// assert_eq!((converted.bytes_before, converted.bytes_after), (48, 36));
///
/// let written = weights::read(&to)?;
/// assert_eq!((written["fc.weight"].dtype(), written["norm.weight"].dtype()), (DType::F16, DType::F32));
/// # std::fs::remove_dir_all(folder).unwrap();
/// # Ok::<(), precast::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[must_use = "options do nothing until something is converted with them"]
pub struct ConvertOptions {
    pub(crate) widen: bool,
    overflow: bool,
    replace: bool,
}

impl ConvertOptions {
    /// Creates the default options: tensors are narrowed and never widened, no finite value becomes infinite, and
    /// nothing existing is replaced.
    pub fn new() -> Self {
        ConvertOptions::default()
    }

    /// Sets whether 16-bit tensors of cells that do not run in low precision are stored in f32.
    pub fn widen(mut self, widen: bool) -> Self {
        self.widen = widen;
        self
    }

    /// Sets whether finite values may become infinite.
    pub fn allow_overflow(mut self, allow: bool) -> Self {
        self.overflow = allow;
        self
    }

    /// Sets whether an existing file or folder is replaced. A folder is replaced only if the new one contains all its
    /// files.
    pub fn replace(mut self, replace: bool) -> Self {
        self.replace = replace;
        self
    }
}

/// Result of a conversion.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct Converted {
    /// Every tensor, file by file, in the order written.
    pub tensors: Vec<ConvertedTensor>,
    /// Total bytes of all tensors before.
    pub bytes_before: u64,
    /// Total bytes of all tensors after.
    pub bytes_after: u64,
    /// Other files of a folder that were copied.
    #[serde(serialize_with = "as_text")]
    pub copied: Vec<PathBuf>,
    /// Other files of a folder that were not copied: weights in other formats, and files of more than 64 MiB.
    #[serde(serialize_with = "as_text")]
    pub left_out: Vec<PathBuf>,
}

/// Result for one tensor.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct ConvertedTensor {
    /// Name of the tensor.
    pub name: String,
    /// Shape of the tensor.
    pub shape: Vec<usize>,
    /// Dtype before: `f32`, or the file's own name for a dtype this library lacks.
    pub before: Cow<'static, str>,
    /// Dtype after.
    pub after: Cow<'static, str>,
    /// Reason for keeping the tensor as it is although its cell runs in low precision: it is not known as a weight.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kept: Option<String>,
    /// Largest absolute value before, for f32, f16 and bf16. Infinity and NaN are ignored.
    pub largest: Option<f32>,
    /// Number of values that were infinite or NaN before, and remain so, for f32, f16 and bf16.
    pub not_finite: Option<u64>,
    /// Number of finite values that became infinite.
    pub to_infinity: u64,
    /// Number of nonzero values that became 0.
    pub to_zero: u64,
    /// Number of values that lost digits because they became subnormal.
    pub to_subnormal: u64,
    /// Largest relative error of values that are finite before and after; 1 where a value became 0.
    pub relative_error: f32,
}

impl ConvertedTensor {
    /// Returns whether the dtype changed.
    pub fn changed(&self) -> bool {
        self.before != self.after
    }
}

fn as_text<S: Serializer>(paths: &[PathBuf], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_seq(paths.iter().map(|path| path.to_string_lossy()))
}

/// Form in which a tensor is stored by the conversion.
pub(crate) enum Target {
    /// Unchanged.
    Same,
    /// Unchanged for this reason, although its cell runs in low precision.
    Kept(String),
    In(DType),
}

type TargetOf<'a> = &'a dyn Fn(&StoredTensor) -> Result<Target>;

/// A conversion in progress.
struct Run<'a> {
    progress: &'a mut dyn FnMut(u64),
    /// Reasons for keeping tensors of low-precision cells unchanged, by name.
    kept: BTreeMap<String, String>,
    done: Vec<ConvertedTensor>,
}

impl StoredModel {
    /// Writes the model to a file, or to a folder if it is a folder. `target_of` is called for each tensor; `progress`
    /// receives the number of bytes read since its previous call.
    pub(crate) fn convert(
        &self,
        to: &Path,
        options: ConvertOptions,
        target_of: TargetOf<'_>,
        progress: &mut dyn FnMut(u64),
    ) -> Result<Converted> {
        self.check_is_no_checkpoint()?;
        let mut kept = BTreeMap::new();
        let targets = self.files.iter().map(|file| targets(file, target_of, &mut kept));
        let files = targets.collect::<Result<Vec<Header>>>()?;
        self.check_target(to, options)?;
        let mut run = Run { progress, kept, done: Vec::new() };
        let (copied, left_out) = match &self.folder {
            None => {
                files::replace_by(to, |out| {
                    run.file(&self.files[0], &files[0], out, to)?;
                    run.check_overflow(options)
                })?;
                Default::default()
            }
            Some(of) => {
                let beside = of.beside(&self.files)?;
                if to.exists() {
                    let new = self.files.iter().map(|file| Path::new(&file.name)).chain(of.index_name().map(Path::new));
                    check_replaced(to, &new.chain(beside.copied.iter().map(PathBuf::as_path)).collect::<Vec<_>>())?;
                }
                files::replace_folder(to, |folder| {
                    for (file, header) in self.files.iter().zip(&files) {
                        let to = folder.join(&file.name);
                        files::replace_by(&to, |out| run.file(file, header, out, &to))?;
                    }
                    run.check_overflow(options)?;
                    let bytes = files.iter().flat_map(|file| &file.tensors).map(|tensor| tensor.bytes).sum();
                    if let Some((name, index)) = of.index(bytes)? {
                        files::replace_within(folder.join(name), &index, folder::MAX_INDEX_BYTES)?;
                    }
                    let config = of.config(most(files.iter().flat_map(|file| &file.tensors)))?;
                    for path in &beside.copied {
                        match &config {
                            Some(config) if path == Path::new("config.json") => {
                                files::replace_within(folder.join(path), config, folder::MAX_CONFIG_BYTES)?;
                            }
                            _ => copy(&self.path.join(path), &folder.join(path))?,
                        }
                    }
                    Ok(())
                })?;
                (beside.copied, beside.left_out)
            }
        };
        let (bytes_before, tensors) = (self.bytes(), run.done);
        let bytes_after = files.iter().flat_map(|file| &file.tensors).map(|tensor| tensor.bytes).sum();
        tracing::info!(target: "precast", file = %to.display(), bytes = bytes_after, "stored model converted");
        Ok(Converted { tensors, bytes_before, bytes_after, copied, left_out })
    }

    /// Refuses to overwrite the model itself, or anything existing unless requested.
    fn check_target(&self, to: &Path, options: ConvertOptions) -> Result<()> {
        let refused = |words: &str| Err(Error::io(to, &io::Error::other(words)));
        let real = |path: &Path| fs::canonicalize(path).map_err(|e| Error::io(path, &e));
        let from = real(&self.path)?;
        // A bare file name is in the current folder.
        let above = to.parent().filter(|above| !above.as_os_str().is_empty()).unwrap_or(Path::new("."));
        if to.exists() && real(to)? == from {
            return refused("it is the model that is read, and is never replaced");
        }
        if self.folder.is_some() && real(above)?.starts_with(&from) {
            return refused("it lies in the folder that is read");
        }
        match (to.exists(), to.is_dir(), self.folder.is_some()) {
            (true, true, false) => refused("a folder; a file is converted to a file"),
            (true, false, true) => refused("a file; a folder is converted to a folder"),
            (true, ..) if !options.replace => refused("already exists"),
            _ => Ok(()),
        }
    }
}

/// Returns the header of the new file: wide tensors first, so that each is aligned to its element size.
fn targets(file: &WeightFile, target_of: TargetOf<'_>, kept: &mut BTreeMap<String, String>) -> Result<Header> {
    let mut tensors = Vec::new();
    for tensor in &file.header.tensors {
        let target = target_of(tensor)?;
        tensors.push(match (tensor.castable(), target) {
            (Some(before), Target::In(after)) if before != after => tensor.stored_as(after),
            (_, target) => {
                if let Target::Kept(why) = target {
                    kept.insert(tensor.name.clone(), why);
                }
                tensor.clone()
            }
        });
    }
    tensors.sort_by_key(|tensor| std::cmp::Reverse(tensor.dtype.bitsize()));
    let mut metadata = file.header.metadata.clone();
    // The checksum of a run's weights covers the unconverted tensors.
    metadata.retain(|entry, _| entry != CHECKSUM && entry != OF_RUN);
    metadata.entry(FORMAT.0.into()).or_insert_with(|| FORMAT.1.into());
    Ok(Header { metadata, tensors })
}

/// Returns the castable dtype with the most elements.
fn most<'a>(tensors: impl Iterator<Item = &'a StoredTensor>) -> Option<DType> {
    let mut counts = BTreeMap::<DType, u64>::new();
    for tensor in tensors {
        if let Some(dtype) = tensor.castable() {
            *counts.entry(dtype).or_default() += tensor.bytes / dtype.bytes() as u64;
        }
    }
    counts.into_iter().max_by_key(|(_, count)| *count).map(|(dtype, _)| dtype)
}

/// Refuses to replace a folder that contains a file missing from the new one.
fn check_replaced(folder: &Path, new: &[&Path]) -> Result<()> {
    let there = folder::within(folder)?;
    match there.iter().find(|(path, _)| !new.contains(&path.as_path())) {
        None => Ok(()),
        Some((path, _)) => {
            let words = format!("the new folder has no `{}`, which would be lost", path.display());
            Err(Error::io(folder, &io::Error::other(words)))
        }
    }
}

/// Copies a file, creating its parent folder.
fn copy(from: &Path, to: &Path) -> Result<()> {
    if let Some(above) = to.parent() {
        fs::create_dir_all(above).map_err(|e| Error::io(above, &e))?;
    }
    let mut file = File::open(from).map_err(|e| Error::io(from, &e))?;
    files::replace_by(to, |out| io::copy(&mut file, out).map(drop).map_err(|e| Error::io(to, &e)))
}

impl Run<'_> {
    /// Writes one file.
    fn file(&mut self, file: &WeightFile, new: &Header, out: &mut File, to: &Path) -> Result<()> {
        files::write_behind(out, to, |writer| self.tensors(file, new, writer))
    }

    fn tensors(&mut self, file: &WeightFile, new: &Header, writer: &mut Writer) -> Result<()> {
        let unread = |e: io::Error| Error::io(&file.path, &e);
        let old: BTreeMap<&str, &StoredTensor> = file.header.tensors.iter().map(|t| (t.name.as_str(), t)).collect();
        let mut from = File::open(&file.path).map_err(unread)?;
        let (mut bytes, mut converted) = (Vec::new(), writer.put(new.bytes()?)?);
        for new in &new.tensors {
            let old = old[new.name.as_str()];
            let dtypes = old.castable().zip(new.castable());
            let mut rounded = Rounded::default();
            from.seek(SeekFrom::Start(old.start)).map_err(unread)?;
            let mut left = old.bytes as usize;
            while left > 0 {
                let read = left.min(CHUNK);
                bytes.resize(read, 0);
                from.read_exact(&mut bytes).map_err(unread)?;
                match dtypes {
                    Some((before, after)) => {
                        converted.resize(read / before.bytes() * after.bytes(), 0);
                        rounded = rounded.and(convert_counted(before, after, &bytes, &mut converted));
                        converted = writer.put(converted)?;
                    }
                    None => bytes = writer.put(bytes)?,
                }
                left -= read;
                (self.progress)(read as u64);
            }
            let Rounded { largest, not_finite, to_infinity, to_zero, to_subnormal, relative_error } = rounded;
            self.done.push(ConvertedTensor {
                name: old.name.clone(),
                shape: old.shape.clone(),
                before: old.dtype(),
                after: new.dtype(),
                kept: self.kept.remove(&old.name),
                largest: dtypes.map(|_| largest),
                not_finite: dtypes.map(|_| not_finite),
                to_infinity,
                to_zero,
                to_subnormal,
                relative_error,
            });
        }
        Ok(())
    }

    /// Rejects infinities that were finite, with which a network returns NaN. All are found before the first is
    /// reported.
    fn check_overflow(&self, options: ConvertOptions) -> Result<()> {
        let over: Vec<&ConvertedTensor> = self.done.iter().filter(|tensor| tensor.to_infinity > 0).collect();
        let Some(first) = over.first().filter(|_| !options.overflow) else { return Ok(()) };
        let some = over.iter().take(NAMED).map(|tensor| {
            let (values, largest) = (tensor.to_infinity, tensor.largest.unwrap_or_default());
            format!("\n- `{}`: {values} of its values, up to {largest:e}", tensor.name)
        });
        let some: String = some.collect();
        let more = match over.len().saturating_sub(NAMED) {
            0 => String::new(),
            more => format!("\n- and {more} tensors more"),
        };
        let cell = match cell_of(&first.name).0 {
            "" => "**",
            cell => cell,
        };
        let fits = |tensor: &&ConvertedTensor| bf16::from_f32(tensor.largest.unwrap_or_default()).is_finite();
        let other = if over.iter().all(fits) { ", and bfloat16 holds all of them" } else { "" };
        let rule = Rule::path(cell, RunAs::Full).map(|rule| rule.to_line());
        let rule = rule.map_or(String::new(), |rule| format!("; a rule keeps a cell in float32, `{rule}`"));
        Err(Error::value(format!("finite values would become infinite in {}{rule}{other}:{some}{more}", first.after)))
    }
}
