//! Hugging Face folders: the weight files and the files next to them.

use std::{
    collections::{BTreeMap, BTreeSet, HashSet},
    fs,
    path::{Component, Path, PathBuf},
};

use serde::Deserialize;
use serde_json::{Map, Value};

use super::WeightFile;
use precast_base::formats::OF_TORCH;

use crate::{
    DType,
    error::{Error, Result},
    io::{files, json::read as read_json},
    printable::printable,
};

const WEIGHTS: &str = "model.safetensors";
const INDEX: &str = ".safetensors.index.json";
const CONFIG: &str = "config.json";
/// Maximum length of an index. That of a model of 100,000 tensors has some 10 MB.
pub(super) const MAX_INDEX_BYTES: usize = 100_000_000;
pub(super) const MAX_CONFIG_BYTES: usize = 1 << 24;
/// Maximum length of other files that are copied along with the weights.
const MAX_COPIED_BYTES: u64 = 64 << 20;
/// Maximum depth of nested folders searched.
const MAX_DEPTH: usize = 4;
/// Extensions of weight files, including other formats.
const OTHER_WEIGHTS: [&str; 9] = ["safetensors", "bin", "pt", "pth", "ckpt", "h5", "msgpack", "onnx", "gguf"];

/// Contents of a folder other than weights.
#[derive(Clone, Debug)]
pub(super) struct Folder {
    path: PathBuf,
    /// Name and contents of the index.
    index: Option<(String, Index)>,
    config: Option<Value>,
}

/// Map from tensors to files.
#[derive(Clone, Debug, Deserialize)]
struct Index {
    weight_map: BTreeMap<String, String>,
    #[serde(flatten)]
    others: Map<String, Value>,
}

/// Files of a folder that hold no weights of the model.
pub(super) struct Beside {
    /// Files to copy, as paths inside the folder.
    pub copied: Vec<PathBuf>,
    /// Files not copied.
    pub left_out: Vec<PathBuf>,
}

impl Folder {
    /// Reads the folder, and returns it with the names of its weight files.
    pub fn read(path: &Path) -> Result<(Self, Vec<String>)> {
        let entries = fs::read_dir(path).map_err(|e| Error::io(path, &e))?;
        let names = entries.map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()));
        let names: BTreeSet<String> = names.collect::<std::io::Result<_>>().map_err(|e| Error::io(path, &e))?;
        let config = match names.contains(CONFIG) {
            true => Some(json(&path.join(CONFIG), MAX_CONFIG_BYTES)?),
            false => None,
        };
        let ending = |end: &str| names.iter().filter(|name| name.ends_with(end)).cloned().collect::<Vec<_>>();
        let (indices, weights) = (ending(INDEX), ending(".safetensors"));
        let index = format!("model{INDEX}");
        let of = |index: Option<(String, Index)>| Folder { path: path.to_path_buf(), index, config };
        match (&indices[..], &weights[..]) {
            _ if names.contains(WEIGHTS) => Ok((of(None), vec![WEIGHTS.into()])),
            (_, [only]) if indices.is_empty() => Ok((of(None), vec![only.clone()])),
            (some, _) if some.contains(&index) || some.len() == 1 => {
                let name = if some.contains(&index) { index } else { some[0].clone() };
                let read: Index = json(&path.join(&name), MAX_INDEX_BYTES)?;
                let files: BTreeSet<&String> = read.weight_map.values().collect();
                for file in &files {
                    check_name(file, &path.join(&name))?;
                    if !names.contains(*file) {
                        let words = format!("it names the file `{file}`, which is not there");
                        return Err(Error::weights(words).in_file(path.join(&name).display()));
                    }
                }
                let files = files.into_iter().cloned().collect();
                Ok((of(Some((name, read))), files))
            }
            _ => {
                let met = match weights.len() {
                    0 => match names.iter().find(|name| is_of_torch(name)) {
                        Some(name) => {
                            format!("no file ends in `.safetensors`, and `{}` is {OF_TORCH}", printable(name))
                        }
                        None => "no file ends in `.safetensors`".to_string(),
                    },
                    n => format!("{n} files end in `.safetensors`, and no index says which belong together"),
                };
                let words = format!("no `{WEIGHTS}` and no `{index}` in the folder: {met}");
                Err(Error::weights(words).in_file(path.display()))
            }
        }
    }

    /// Returns a folder of which only `config.json` is known.
    pub fn of_config(config: Option<&[u8]>) -> Result<Self> {
        let read = |bytes| read_json(bytes).map_err(|e| Error::weights(e.to_string()).in_file(CONFIG));
        Ok(Folder { path: PathBuf::new(), index: None, config: config.map(read).transpose()? })
    }

    /// Checks that each file has the tensors listed in the index.
    pub fn check_index(&self, files: &[WeightFile]) -> Result<()> {
        let Some((name, index)) = &self.index else { return Ok(()) };
        let of = |file: &WeightFile| file.header.tensors.iter().map(|t| t.name.clone()).collect::<HashSet<String>>();
        let tensors: BTreeMap<&str, HashSet<String>> =
            files.iter().map(|file| (file.name.as_str(), of(file))).collect();
        let missing = |(tensor, file): &(&String, &String)| {
            !tensors.get(file.as_str()).is_some_and(|tensors| tensors.contains(tensor.as_str()))
        };
        match index.weight_map.iter().find(missing) {
            None => Ok(()),
            Some((tensor, file)) => {
                let words = format!("it says that `{tensor}` is in `{file}`, which has no such tensor");
                Err(Error::weights(words).in_file(self.path.join(name).display()))
            }
        }
    }

    pub fn architecture(&self) -> Option<&str> {
        let config = self.config.as_ref()?;
        // Hugging Face's transformers write the first, diffusers the second.
        config["architectures"][0].as_str().or(config["_class_name"].as_str()).filter(|name| !name.is_empty())
    }

    pub fn index_name(&self) -> Option<&str> {
        self.index.as_ref().map(|(name, _)| name.as_str())
    }

    /// Returns the index for weights of `bytes` bytes, with its name.
    pub fn index(&self, bytes: u64) -> Result<Option<(String, Vec<u8>)>> {
        let Some((name, Index { weight_map, others })) = &self.index else { return Ok(None) };
        let mut index = others.clone();
        if let Some(size) = index.get_mut("metadata").and_then(|metadata| metadata.get_mut("total_size")) {
            *size = bytes.into();
        }
        let of_map = serde_json::to_value(weight_map).map_err(|e| Error::weights(e.to_string()))?;
        index.insert("weight_map".into(), of_map);
        Ok(Some((name.clone(), pretty(&index)?)))
    }

    /// Returns `config.json` with its dtype, if it names one, set to the one with the most elements. `None` if nothing
    /// changes.
    pub fn config(&self, dtype: Option<DType>) -> Result<Option<Vec<u8>>> {
        let (Some(config), Some(dtype)) = (&self.config, dtype) else { return Ok(None) };
        let mut changed = config.clone();
        set_dtype(&mut changed, dtype);
        if changed == *config { Ok(None) } else { pretty(&changed).map(Some) }
    }

    /// Returns the files other than the weights.
    pub fn beside(&self, weights: &[WeightFile]) -> Result<Beside> {
        let ours = |path: &Path| {
            let name = path.to_string_lossy();
            weights.iter().any(|file| file.name == name) || self.index.iter().any(|(index, _)| *index == name)
        };
        let mut beside = Beside { copied: Vec::new(), left_out: Vec::new() };
        for (path, bytes) in within(&self.path)?.into_iter().filter(|(path, _)| !is_hidden(path)) {
            let kind = path.extension().and_then(|end| end.to_str()).unwrap_or_default();
            match bytes {
                _ if ours(&path) => {}
                // An index of other weights would name files that are not there.
                Some(bytes)
                    if bytes <= MAX_COPIED_BYTES
                        && !OTHER_WEIGHTS.contains(&kind)
                        && !path.to_string_lossy().ends_with(".index.json") =>
                {
                    beside.copied.push(path);
                }
                _ => beside.left_out.push(path),
            }
        }
        Ok(beside)
    }
}

/// Lists the files in a folder as relative paths with their lengths, sorted. The length is `None` for special files and
/// for folders that are not searched: links, hidden ones, and those nested too deep.
pub(super) fn within(folder: &Path) -> Result<Vec<(PathBuf, Option<u64>)>> {
    fn go(folder: &Path, inside: &Path, depth: usize, found: &mut Vec<(PathBuf, Option<u64>)>) -> std::io::Result<()> {
        for entry in fs::read_dir(folder.join(inside))? {
            let entry = entry?;
            let path = inside.join(entry.file_name());
            // Files of the Hugging Face cache are links.
            match fs::metadata(entry.path()) {
                Ok(met) if met.is_file() => found.push((path, Some(met.len()))),
                Ok(_) if entry.file_type()?.is_dir() && depth < MAX_DEPTH && !is_hidden(&path) => {
                    go(folder, &path, depth + 1, found)?;
                }
                _ => found.push((path, None)),
            }
        }
        Ok(())
    }
    let mut found = Vec::new();
    go(folder, Path::new(""), 0, &mut found).map_err(|e| Error::io(folder, &e))?;
    found.sort();
    Ok(found)
}

/// Returns whether a file is named like those of `torch.save`.
fn is_of_torch(name: &str) -> bool {
    Path::new(name).extension().is_some_and(|end| ["bin", "pt", "pth", "ckpt"].iter().any(|of_torch| end == *of_torch))
}

fn is_hidden(path: &Path) -> bool {
    path.file_name().is_some_and(|name| name.to_string_lossy().starts_with('.'))
}

/// Rejects anything but the name of a file in the folder, such as `../x`.
fn check_name(name: &str, index: &Path) -> Result<()> {
    let mut parts = Path::new(name).components();
    let plain = matches!((parts.next(), parts.next()), (Some(Component::Normal(part)), None) if part == name);
    match plain && !name.contains(['/', '\\']) {
        true => Ok(()),
        false => {
            let words = format!("it names the file `{name}`; only names of files in the same folder are allowed");
            Err(Error::weights(words).in_file(index.display()))
        }
    }
}

/// Sets each entry for the storage dtype: that of the model, and those of its parts.
fn set_dtype(config: &mut Value, dtype: DType) {
    let Value::Object(entries) = config else { return };
    for (key, value) in entries {
        match value {
            Value::String(text) if key == "torch_dtype" || key == "dtype" => {
                let (before, name) = text.rsplit_once('.').map_or(("", &**text), |(before, name)| (before, name));
                if name.parse::<DType>().is_ok_and(DType::is_castable) {
                    *text = if before.is_empty() {
                        dtype.long_name().into()
                    } else {
                        format!("{before}.{}", dtype.long_name())
                    };
                }
            }
            Value::Object(_) if key.ends_with("_config") && key != "quantization_config" => set_dtype(value, dtype),
            _ => {}
        }
    }
}

fn json<T: for<'de> Deserialize<'de>>(path: &Path, limit: usize) -> Result<T> {
    let text = files::read_text(path, limit)?;
    read_json(text.as_bytes()).map_err(|e| Error::weights(e.to_string()).in_file(path.display()))
}

/// Formats JSON as transformers does: indented by two spaces, keys sorted.
fn pretty(value: &impl serde::Serialize) -> Result<Vec<u8>> {
    let mut text = serde_json::to_vec_pretty(value).map_err(|e| Error::weights(e.to_string()))?;
    text.push(b'\n');
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_of_files_in_the_folder_are_taken() {
        for name in ["../x", "/x", "a/b", "..", ".", "", "a\\b", "./a"] {
            assert!(check_name(name, Path::new("index.json")).is_err(), "{name}");
        }
        check_name("model-00001-of-00002.safetensors", Path::new("index.json")).unwrap();
    }

    #[test]
    fn the_dtype_is_kept_true_wherever_the_config_says_it() {
        let mut config = serde_json::json!({
            "torch_dtype": "float32", "dtype": "torch.bfloat16", "other": "float32", "n": 1,
            "text_config": {"dtype": "float32", "layers": ["float32"]},
            "quantization_config": {"dtype": "float32"}, "auto": {"dtype": "float32"},
        });
        set_dtype(&mut config, DType::F16);
        let expected = serde_json::json!({
            "torch_dtype": "float16", "dtype": "torch.float16", "other": "float32", "n": 1,
            "text_config": {"dtype": "float16", "layers": ["float32"]},
            "quantization_config": {"dtype": "float32"}, "auto": {"dtype": "float32"},
        });
        assert_eq!(config, expected);
        let mut odd = serde_json::json!({"torch_dtype": "auto", "dtype": null});
        set_dtype(&mut odd, DType::F16);
        assert_eq!(odd, serde_json::json!({"torch_dtype": "auto", "dtype": null}));
    }
}
