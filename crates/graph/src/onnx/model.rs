//! A model, read from its file by position.

use std::{
    collections::HashMap,
    path::{Path, PathBuf},
    sync::{Mutex, MutexGuard},
};

use super::{
    graph::{Function, Graph, Node, opset},
    schema::Schema,
    tensor::{Data, External, Floats, Tensor},
    wire::Source,
};
use precast::error::{Error, ErrorKind, Result};
use precast_base::formats::{self, Reader};

/// An ONNX model. Its weights stay in the file until they are needed.
#[derive(Debug)]
pub struct OnnxModel {
    /// The file it was read from; `None` for bytes.
    pub(super) path: Option<PathBuf>,
    pub(super) files: Mutex<Files>,
    /// The version of each imported domain. The default domain is the empty name.
    pub(super) opsets: HashMap<String, i64>,
    pub(super) graph: Graph,
    /// None when no call is left: see `inline`.
    pub(super) functions: Vec<Function>,
    /// `true` when nodes took the place of calls.
    pub(super) is_inlined: bool,
}

/// The file behind a model, and the data files that were opened so far.
#[derive(Debug)]
pub(super) struct Files {
    pub model: Source,
    pub data: HashMap<String, Source>,
}

impl OnnxModel {
    /// Opens a file and reads all but its weights.
    ///
    /// # Errors
    /// [`ErrorKind::Io`](precast::ErrorKind::Io) when the file cannot be read; [`ErrorKind::Model`](precast::ErrorKind::Model)
    /// for bytes that are not model, with their place.
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        let source = Source::open(path)?;
        let read = OnnxModel::read(source, Some(path.to_path_buf()));
        read.map_err(|e| if e.kind() == precast::ErrorKind::Io { e } else { e.in_file(path.display()) })
    }

    /// Reads a model from bytes. It cannot have data in other files.
    ///
    /// # Errors
    /// As [`open`](OnnxModel::open).
    pub fn from_bytes(bytes: Vec<u8>) -> Result<Self> {
        OnnxModel::read(Source::of_bytes(bytes), None)
    }

    fn read(mut source: Source, path: Option<PathBuf>) -> Result<Self> {
        let all = source.all();
        let (mut opsets, mut graph) = (HashMap::new(), None);
        let (mut functions, mut is_other) = (Vec::new(), true);
        let read = source.fields(all, |source, f| {
            match f.number {
                7 if graph.is_some() => {
                    return Err(Error::model(format!("byte {}: a second graph", f.whole.start)));
                }
                7 => graph = Some(Graph::of_model(source, f.bytes()?)?),
                8 => opset(source, f, &mut opsets)?,
                25 => functions.push(Function::read(source, f.bytes()?)?),
                _ => {}
            }
            // A file of another kind fails before the first field that a model has.
            is_other &= !matches!(f.number, 1..=8 | 14 | 20 | 25 | 26);
            Ok(())
        });
        let read = match (read, graph) {
            (Ok(()), Some(graph)) => Ok(graph),
            (Ok(()), None) if all.len == 0 => {
                return Err(Error::model("an empty file, where an ONNX model is expected"));
            }
            (Ok(()), None) => Err(Error::model("it has no graph").context("not an ONNX model")),
            (Err(error), _) => Err(if is_other { error.context("not an ONNX model") } else { error }),
        };
        let graph = match read {
            Ok(graph) => graph,
            Err(error) => {
                let mut start = vec![0; all.len.min(formats::FIRST as u64) as usize];
                source.read_at(0, &mut start)?;
                let other = formats::other(&start, Reader::Onnx);
                return Err(other.map_or(error, |words| Error::model(words).context("not an ONNX model")));
            }
        };
        let files = Mutex::new(Files { model: source, data: HashMap::new() });
        let mut model = OnnxModel { path, files, opsets, graph, functions, is_inlined: false };
        if !model.opsets.contains_key("") && model.functions.is_empty() && !model.graph.nodes.is_empty() {
            let own = |node: &Node| node.domain.is_empty();
            if model.graph.nodes.iter().any(own) {
                return Err(Error::model("the model does not say which opset it is of"));
            }
        }
        model.inline()?;
        Ok(model)
    }

    /// Names the file in an error about the model, unless one is named.
    pub(super) fn named(&self, error: Error) -> Error {
        let of_model = matches!(error.kind(), ErrorKind::Model | ErrorKind::Unsupported);
        match &self.path {
            Some(path) if of_model && error.location().is_none() => error.in_file(path.display()),
            _ => error,
        }
    }

    /// Returns the version of the default domain, 0 where the model imports none.
    pub fn opset(&self) -> i64 {
        self.opsets.get("").copied().unwrap_or(0)
    }

    /// Returns a note on a version of the default domain that is newer than the newest known.
    pub fn note_on_opset(&self) -> Option<String> {
        let (met, newest) = (self.opset(), Schema::newest());
        let words =
            format!("opset {met} is newer than {newest}, the newest known; its ops are taken for those of {newest}");
        (met > newest).then_some(words)
    }

    /// Returns the length of the file in bytes, without data in other files.
    pub fn bytes(&self) -> u64 {
        self.files().model.all().len
    }

    pub(super) fn files(&self) -> MutexGuard<'_, Files> {
        self.files.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// Calls `read` with the file of a tensor's numbers, which is locked meanwhile.
    pub(super) fn read_numbers<T>(&self, tensor: &Tensor, read: impl FnOnce(&mut Source) -> Result<T>) -> Result<T> {
        let mut files = self.files();
        let files = &mut *files;
        read(match &tensor.data {
            Data::External(place) => data_file(&mut files.data, self.path.as_deref(), tensor, place)?,
            Data::Raw(_) | Data::Typed => &mut files.model,
        })
    }

    /// Calls `each` with the numbers of a tensor of float32, some at a time. No file is locked meanwhile, so that
    /// `each` may use the model.
    pub(super) fn floats(&self, tensor: &Tensor, mut each: impl FnMut(&[f32]) -> Result<()>) -> Result<()> {
        let mut floats = Floats::new(tensor);
        while self.read_numbers(tensor, |source| floats.read(source))? {
            each(&floats.numbers)?;
        }
        Ok(())
    }

    /// Returns the numbers of an attribute of integers; `None` without that attribute.
    pub(super) fn ints(&self, node: &Node, name: &str) -> Result<Option<Vec<i64>>> {
        let Some(attribute) = node.attribute(name) else { return Ok(None) };
        let mut numbers = Vec::new();
        self.files().model.fields(attribute.span, |source, f| match f.number {
            3 | 8 => source.ints(f, |number| numbers.push(number)),
            _ => Ok(()),
        })?;
        Ok(Some(numbers))
    }

    /// Returns the number of an attribute of an integer.
    pub(super) fn int(&self, node: &Node, name: &str) -> Result<Option<i64>> {
        Ok(self.ints(node, name)?.map(|numbers| numbers.last().copied().unwrap_or(0)))
    }

    /// Returns the numbers of an attribute of floats.
    pub(super) fn float_numbers(&self, node: &Node, name: &str) -> Result<Option<Vec<f32>>> {
        let Some(attribute) = node.attribute(name) else { return Ok(None) };
        let mut numbers = Vec::new();
        self.files().model.fields(attribute.span, |source, f| {
            if matches!(f.number, 2 | 7) {
                numbers.extend(source.floats(f)?);
            }
            Ok(())
        })?;
        Ok(Some(numbers))
    }

    /// Returns the text of an attribute of a string.
    pub(super) fn text(&self, node: &Node, name: &str) -> Result<Option<String>> {
        let Some(attribute) = node.attribute(name) else { return Ok(None) };
        let mut text = String::new();
        self.files().model.fields(attribute.span, |source, f| {
            if f.number == 4 {
                text = source.text(f)?;
            }
            Ok(())
        })?;
        Ok(Some(text))
    }
}

/// Returns a data file, opened at its first use.
pub(super) fn data_file<'a>(
    open: &'a mut HashMap<String, Source>,
    model: Option<&Path>,
    tensor: &Tensor,
    place: &External,
) -> Result<&'a mut Source> {
    if !open.contains_key(&place.location) {
        let Some(model) = model else {
            return Err(tensor.wrong("its data is in another file, and the model was read from bytes"));
        };
        let file = Source::open(&model.with_file_name("").join(&place.location))
            .map_err(|e| e.context(format!("tensor `{}`", tensor.name)))?;
        open.insert(place.location.clone(), file);
    }
    Ok(open.get_mut(&place.location).expect("inserted above"))
}
