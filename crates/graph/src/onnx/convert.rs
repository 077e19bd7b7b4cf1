//! Conversion of a model: the file again, with the changes of its plan and all else as it was.

use std::{
    fs,
    io::{BufWriter, Write},
    path::{Path, PathBuf},
};

use super::{
    edits::{Edits, edits},
    model::OnnxModel,
    pieces::{Body, Numbers},
    plan::OnnxPlan,
    rebuild::Rebuilder,
    tensor::{Data, External, Tensor, external_span},
};
use precast::error::{Error, ErrorKind, Result};
use precast_base::files::{Staged, remove, replace_by, stage};

/// Files of protobuf end before 2 GB; a model that would come near has its weights in a file of its own.
const LARGEST: u64 = 1 << 30;

/// Options of [`OnnxPlan::convert`].
#[derive(Clone, Debug, Default, PartialEq)]
pub struct OnnxConvertOptions {
    explicit: bool,
    external: Option<u64>,
    replace: bool,
}

impl OnnxConvertOptions {
    /// Creates the default options.
    pub fn new() -> Self {
        OnnxConvertOptions::default()
    }

    /// Sets the explicit form: each low op computes in float32, and its result is rounded by a cast to the low dtype
    /// and back. This is what precast means by low, and what a runtime without 16-bit arithmetic can check. Default: no.
    pub fn explicit(mut self, yes: bool) -> Self {
        self.explicit = yes;
        self
    }

    /// Sets the length in bytes from which tensors are stored in a data file next to the model; integers, booleans and
    /// single numbers are from 1 KiB on. Default: all tensors that were in one, and all from 1 KiB on when the model would
    /// have more than 1 GiB.
    pub fn external(mut self, bytes: u64) -> Self {
        self.external = Some(bytes);
        self
    }

    /// Sets whether existing files are replaced. Default: no.
    pub fn replace(mut self, yes: bool) -> Self {
        self.replace = yes;
        self
    }
}

/// A converted model.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
#[non_exhaustive]
pub struct OnnxConverted {
    /// Nodes that [compute](crate::NodeDecision::computes) low.
    pub low: usize,
    /// Nodes that compute in float32.
    pub full: usize,
    /// Casts that were inserted.
    pub casts: usize,
    /// Weights that are stored low.
    pub lowered: usize,
    /// Length of the model and its data files before, in bytes.
    pub bytes_before: u64,
    /// Length of the model and its data file after, in bytes.
    pub bytes_after: u64,
    /// Data file that was written, if any.
    pub data: Option<PathBuf>,
}

impl OnnxPlan<'_> {
    /// Writes the model in its planned precision. A model of which nothing runs low is written byte for byte as it was,
    /// unless tensors are to be in a data file.
    ///
    /// `progress` is called with the bytes of weights that were read or written. It may use the model.
    ///
    /// An existing model is replaced in one step, after its new data file is written. That file is `NAME.data`, or
    /// `NAME.2.data` if the existing model has the former, which is then removed. The model that is converted is never
    /// replaced, nor is one of its data files.
    ///
    /// # Errors
    /// [`ErrorKind::Io`](precast::ErrorKind::Io) when a file cannot be read or written, or exists and is not to be
    /// replaced; [`ErrorKind::Model`](precast::ErrorKind::Model) for weights that cannot be read.
    pub fn convert(
        &self,
        to: impl AsRef<Path>,
        options: &OnnxConvertOptions,
        progress: &mut dyn FnMut(u64),
    ) -> Result<OnnxConverted> {
        let to = to.as_ref();
        check_free(to, options.replace)?;
        self.check_form(options)?;
        let model = self.values.model;
        check_unread(model, to)?;
        let mut report = OnnxConverted {
            low: self.count(self.dtype),
            full: self.count(precast::DType::F32),
            casts: 0,
            lowered: 0,
            bytes_before: model.bytes() + data_files(model)?.iter().map(|(_, len)| len).sum::<u64>(),
            bytes_after: 0,
            data: None,
        };
        if !self.lowers() && options.external.is_none() {
            model.copy(to, options.replace, progress)?;
            report.bytes_after = report.bytes_before;
            return Ok(report);
        }
        let edits = edits(self, options.explicit);
        report.casts = edits.casts();
        report.lowered = edits.initialisers.len() + edits.constants.len();
        self.write(to, &edits, options, report, progress)
    }

    /// Returns the bytes of the model in its planned precision. Data files are written by [`convert`](OnnxPlan::convert)
    /// alone.
    ///
    /// # Errors
    /// [`ErrorKind::Model`](precast::ErrorKind::Model) for weights that cannot be read, or that are in a data file.
    pub fn to_bytes(&self, options: &OnnxConvertOptions) -> Result<Vec<u8>> {
        self.check_form(options)?;
        let model = self.values.model;
        let edits = self.lowers().then(|| edits(self, options.explicit));
        let (body, outside) = match &edits {
            Some(edits) => self.body(edits, options, "")?,
            None => (Body::of(model.files().model.all()), Vec::new()),
        };
        if !outside.is_empty() {
            return Err(Error::model("the weights of the model are in a data file, which bytes do not have"));
        }
        let mut bytes = Vec::new();
        body.write(model, &mut bytes, &mut |_| ())?;
        Ok(bytes)
    }

    fn check_form(&self, options: &OnnxConvertOptions) -> Result<()> {
        match options.explicit && self.low_io {
            true => {
                Err(Error::value("the explicit form takes and gives float32; inputs and outputs cannot be low in it"))
            }
            false => Ok(()),
        }
    }

    /// Returns the message of the changed model, and the tensors of its data file with their places.
    fn body<'a>(
        &'a self,
        edits: &'a Edits,
        options: &OnnxConvertOptions,
        location: &'a str,
    ) -> Result<(Body<'a>, Vec<(Numbers<'a>, u64)>)> {
        let model = self.values.model;
        let external = options.external.or((model.bytes() > LARGEST).then_some(1024));
        let mut rebuilder = Rebuilder::new(self, edits, options.explicit, external, location);
        let graph = rebuilder.graph(0)?.unwrap_or_else(|| Body::of(model.graph.span));
        let all = model.files().model.all();
        let (mut graph, mut whole) = (Some(graph), Body::default());
        for (number, span) in rebuilder.fields(all)? {
            match number {
                7 => graph.take().into_iter().for_each(|graph| whole.message(7, graph)),
                25 if model.functions.is_empty() => {}
                _ => whole.copy(span),
            }
        }
        Ok((whole, rebuilder.outside))
    }

    fn write(
        &self,
        to: &Path,
        edits: &Edits,
        options: &OnnxConvertOptions,
        mut report: OnnxConverted,
        progress: &mut dyn FnMut(u64),
    ) -> Result<OnnxConverted> {
        let model = self.values.model;
        // A crash between the two files must not leave the old model with new data, so these have another name, and the
        // model that is converted keeps its own.
        let old = OnnxModel::open(to).ok();
        let has = |name: &str| old.iter().flat_map(external).any(|(_, place)| place.location == name);
        let read = read_files(model);
        let is_read = |name: &str| to.with_file_name(name).canonicalize().is_ok_and(|path| read.contains(&path));
        let file = to.file_name().unwrap_or_default().to_string_lossy();
        let names = ["", ".2", ".3", ".4", ".5"].map(|number| format!("{file}{number}.data"));
        let location = names.iter().find(|name| !has(name) && !is_read(name)).unwrap_or(&names[0]);
        let data = to.with_file_name(location);
        let (whole, outside) = self.body(edits, options, location)?;
        report.bytes_after = whole.len;
        if let Some((last, at)) = outside.last() {
            check_free(&data, options.replace)?;
            check_unread(model, &data)?;
            report.bytes_after += at + last.len()?;
            write_data(&outside, model, &data, progress)?;
            report.data = Some(data);
        }
        stage_body(&whole, model, to, progress)?.put()?;
        for name in names.iter().filter(|name| has(name) && !is_read(name)) {
            remove(&to.with_file_name(name))?;
        }
        Ok(report)
    }
}

impl OnnxModel {
    /// Writes the model byte for byte as it was, and copies of its data files unless it is written next to them. An
    /// existing model is removed before its data files are replaced.
    ///
    /// # Errors
    /// [`ErrorKind::Io`](precast::ErrorKind::Io) when a file cannot be read or written, or exists and is not to be
    /// replaced; [`ErrorKind::Model`](precast::ErrorKind::Model) when a data file ends before a tensor does.
    pub fn copy(&self, to: impl AsRef<Path>, replace: bool, progress: &mut dyn FnMut(u64)) -> Result<()> {
        let to = to.as_ref();
        check_free(to, replace)?;
        check_unread(self, to)?;
        let (old, new) = (self.path.as_deref().map(folder), folder(to));
        let beside = old.as_deref().is_some_and(|old| fs::canonicalize(old).ok() == fs::canonicalize(&new).ok());
        let mut parts = Vec::new();
        if let (Some(old), false) = (old, beside) {
            for (location, _) in data_files(self)? {
                let (from, into) = (old.join(&location), new.join(&location));
                check_free(&into, replace)?;
                check_unread(self, &into)?;
                if let Some(parent) = into.parent() {
                    fs::create_dir_all(parent).map_err(|e| Error::io(parent, &e))?;
                }
                let (staged, _) = stage(&into, |file| {
                    let mut from = fs::File::open(&from).map_err(|e| Error::io(&from, &e))?;
                    std::io::copy(&mut from, file).map_err(|e| Error::io(&into, &e))
                })?;
                parts.push(staged);
            }
        }
        // The file is locked for one statement at a time.
        let body = Body::of(self.files().model.all());
        stage_body(&body, self, to, progress)?.put_with(parts)
    }

    /// Returns the names of the data files beside the model, which hold the numbers of some tensors.
    ///
    /// # Errors
    /// [`ErrorKind::Io`](precast::ErrorKind::Io) when one is missing; [`ErrorKind::Model`](precast::ErrorKind::Model) when it
    /// ends before a tensor does.
    pub fn data_files(&self) -> Result<Vec<String>> {
        Ok(data_files(self)?.into_iter().map(|(name, _)| name).collect())
    }
}

/// Refuses to write a file that is there, unless it may be replaced.
pub(super) fn check_free(path: &Path, replace: bool) -> Result<()> {
    match path.exists() && !replace {
        true => Err(Error::new(ErrorKind::Io, format!("{}: already exists", path.display()))),
        false => Ok(()),
    }
}

/// Returns the files that a model is read from, without links: its own first, then its data files.
fn read_files(model: &OnnxModel) -> Vec<PathBuf> {
    let Some(path) = &model.path else { return Vec::new() };
    let data = external(model).into_iter().map(|(_, place)| folder(path).join(&place.location));
    let mut files: Vec<PathBuf> =
        std::iter::once(path.clone()).chain(data).filter_map(|p| p.canonicalize().ok()).collect();
    files.dedup();
    files
}

/// Refuses to replace a file that a model is read from.
fn check_unread(model: &OnnxModel, to: &Path) -> Result<()> {
    let place = to.canonicalize().ok();
    let words = match read_files(model).iter().position(|file| Some(file) == place.as_ref()) {
        None => return Ok(()),
        Some(0) => "it is the model that is read, and is never replaced",
        Some(_) => "is a data file of the model to convert",
    };
    Err(Error::new(ErrorKind::Io, format!("{}: {words}", to.display())))
}

fn stage_body(body: &Body<'_>, model: &OnnxModel, to: &Path, progress: &mut dyn FnMut(u64)) -> Result<Staged> {
    let staged = stage(to, |file| {
        let mut out = BufWriter::with_capacity(1 << 20, file);
        body.write(model, &mut out, progress)?;
        out.flush().map_err(|e| Error::io(to, &e))
    });
    staged.map(|(staged, ())| staged)
}

/// Writes the tensors of a data file at their places.
fn write_data(
    outside: &[(Numbers<'_>, u64)],
    model: &OnnxModel,
    to: &Path,
    progress: &mut dyn FnMut(u64),
) -> Result<()> {
    replace_by(to, |file| {
        let mut out = BufWriter::with_capacity(1 << 20, file);
        let failed = |e: std::io::Error| Error::io(to, &e);
        let mut at = 0;
        for (numbers, start) in outside {
            let gap = vec![0; (start - at) as usize];
            out.write_all(&gap).map_err(failed)?;
            numbers.write(model, &mut out, progress)?;
            at = start + numbers.len()?;
        }
        out.flush().map_err(failed)
    })
}

fn folder(path: &Path) -> PathBuf {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent.to_path_buf(),
        _ => PathBuf::from("."),
    }
}

/// Returns the data files of a model with their lengths, each once. Each must have all that tensors have in it.
fn data_files(model: &OnnxModel) -> Result<Vec<(String, u64)>> {
    let mut found: Vec<(String, u64)> = Vec::new();
    for (tensor, place) in external(model) {
        let len = model.read_numbers(tensor, |file| {
            external_span(tensor, place, file)?;
            Ok(file.all().len)
        })?;
        if !found.iter().any(|(known, _)| *known == place.location) {
            found.push((place.location.clone(), len));
        }
    }
    Ok(found)
}

/// Returns the tensors of a model whose numbers are in data files.
fn external(model: &OnnxModel) -> Vec<(&Tensor, &External)> {
    let (mut found, mut graphs) = (Vec::new(), vec![&model.graph]);
    while let Some(graph) = graphs.pop() {
        let attributes = graph.nodes.iter().flat_map(|node| &node.attributes);
        let tensors = graph.initialisers.iter().chain(attributes.filter_map(|attribute| attribute.tensor.as_ref()));
        found.extend(tensors.filter_map(|tensor| match &tensor.data {
            Data::External(place) => Some((tensor, place)),
            _ => None,
        }));
        graphs.extend(graph.nodes.iter().flat_map(|node| node.bodies().map(|(_, body)| body)));
    }
    found
}
