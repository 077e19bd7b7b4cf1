//! Conversion of folders of a model: shards, their index, and the files beside them.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};

use precast::{
    DType, ErrorKind, Policy, Tensor,
    storage::{
        stored::{ConvertOptions, StoredModel},
        weights,
    },
};
use serde_json::{Value, json};

use super::made::{convert, f32s, file};
use crate::common::folder::{Folder, names};

/// Writes a Hugging Face folder with two shards and all the usual other files.
pub(super) fn model_folder(folder: &Path) {
    fs::create_dir_all(folder.join("1_Pooling")).unwrap();
    let one = [f32s("embed_tokens.weight", &[5, 2], &[0.5; 10]), f32s("norm.weight", &[2], &[1.0; 2])];
    let two = [f32s("layers.0.q_proj.weight", &[2, 2], &[0.25; 4])];
    fs::write(folder.join("model-1.safetensors"), file(&one)).unwrap();
    fs::write(folder.join("model-2.safetensors"), file(&two)).unwrap();
    let index = json!({
        "metadata": {"total_size": 64, "total_parameters": 16},
        "weight_map": {
            "embed_tokens.weight": "model-1.safetensors", "norm.weight": "model-1.safetensors",
            "layers.0.q_proj.weight": "model-2.safetensors",
        },
    });
    fs::write(folder.join("model.safetensors.index.json"), index.to_string()).unwrap();
    let config = json!({"architectures": ["TinyForCausalLM"], "torch_dtype": "float32", "vocab_size": 5});
    fs::write(folder.join("config.json"), config.to_string()).unwrap();
    fs::write(folder.join("tokenizer.json"), "{}").unwrap();
    fs::write(folder.join("1_Pooling/config.json"), "{\"mean\": true}").unwrap();
    fs::write(folder.join("pytorch_model.bin"), "PK").unwrap();
    fs::write(folder.join(".gitattributes"), "x").unwrap();
}

/// Shards, index and configuration are those of one conversion. While the folder is replaced, there may be none.
#[test]
#[cfg(unix)]
fn a_folder_is_replaced_as_a_whole() {
    use precast::storage::weights;

    use crate::common::killed::Killed;

    let to = |folder: &Path| folder.join("low");
    let convert_to = |folder: &Path, policy: &str, kill: &mut dyn FnMut()| {
        let model = StoredModel::open(folder.join("model")).unwrap();
        let plan = Policy::named(policy).unwrap().plan_outline(model.outline()).unwrap();
        plan.convert_with(&model, to(folder), ConvertOptions::new().replace(true), &mut |_| kill()).unwrap();
    };
    Killed {
        test: "converted_folders::a_folder_is_replaced_as_a_whole",
        old: &|folder| {
            for name in names(folder) {
                fs::remove_dir_all(folder.join(name)).unwrap();
            }
            model_folder(&folder.join("model"));
            convert_to(folder, "o2", &mut || ());
        },
        write: &|folder, kill| convert_to(folder, "o2-bf16", kill),
        check: &|folder| {
            let model = match StoredModel::open(to(folder)) {
                Ok(model) => model,
                Err(error) => return assert!(error.to_string().contains("low"), "{error}"),
            };
            let config = json_of(to(folder).join("config.json"));
            let dtype = match config["torch_dtype"].as_str().unwrap() {
                "float16" => DType::F16,
                _ => DType::Bf16,
            };
            assert_eq!(model.bytes(), 36);
            for (shard, name, number) in [(1, "embed_tokens.weight", 0.5), (2, "layers.0.q_proj.weight", 0.25)] {
                let tensor = &weights::read(to(folder).join(format!("model-{shard}.safetensors"))).unwrap()[name];
                assert_eq!(tensor.dtype(), dtype);
                assert!(tensor.to_f64().iter().all(|x| *x == number));
            }
        },
    }
    .run();
}

fn json_of(path: PathBuf) -> Value {
    serde_json::from_slice(&fs::read(path).unwrap()).unwrap()
}

/// The index names parts that are not converted.
#[test]
fn a_whole_file_is_converted_without_the_index_of_others() {
    let folder = Folder::new("other-index");
    let from = folder.at("model");
    fs::create_dir_all(&from).unwrap();
    let weight = || [("fc.weight", Tensor::ones(&[2, 2], DType::F32))];
    weights::write(from.join("model.safetensors"), weight()).unwrap();
    weights::write(from.join("model-00001-of-00001.safetensors"), weight()).unwrap();
    let index = r#"{"weight_map": {"fc.weight": "model-00001-of-00001.safetensors"}}"#;
    fs::write(from.join("model.safetensors.index.json"), index).unwrap();
    let to = folder.at("low");
    convert(&from, &to, "o2", ConvertOptions::new()).unwrap();
    let names = fs::read_dir(&to).unwrap().map(|entry| entry.unwrap().file_name());
    assert_eq!(names.collect::<Vec<_>>(), ["model.safetensors"]);
}

#[test]
fn a_folder_is_converted_with_all_that_belongs_to_it() {
    let folder = Folder::new("folder");
    let from = folder.at("model");
    model_folder(&from);
    let model = StoredModel::open(&from).unwrap();
    assert_eq!((model.architecture(), model.bytes(), model.tensors().count()), (Some("TinyForCausalLM"), 64, 3));
    let outline = model.outline();
    let cells: BTreeMap<&str, &str> = outline.cells().iter().map(|cell| (&*cell.path, &*cell.kind)).collect();
    let expected = [
        ("", "TinyForCausalLM"),
        ("embed_tokens", "Embedding"),
        ("layers", "Container"),
        ("layers.0", "Container"),
        ("layers.0.q_proj", "Dense"),
        ("norm", "RmsNorm"),
    ];
    assert_eq!(cells, expected.into());

    let to = folder.at("low");
    let converted = convert(&from, &to, "o2", ConvertOptions::new()).unwrap();
    assert_eq!((converted.bytes_before, converted.bytes_after), (64, 36));
    let text = |paths: &[PathBuf]| paths.iter().map(|path| path.display().to_string()).collect::<Vec<_>>();
    assert_eq!(text(&converted.copied), ["1_Pooling/config.json", "config.json", "tokenizer.json"]);
    assert_eq!(text(&converted.left_out), ["pytorch_model.bin"]);
    let index = json_of(to.join("model.safetensors.index.json"));
    assert_eq!(index["metadata"], json!({"total_size": 36, "total_parameters": 16}));
    assert_eq!(index["weight_map"], json_of(from.join("model.safetensors.index.json"))["weight_map"]);
    let config = json!({"architectures": ["TinyForCausalLM"], "torch_dtype": "float16", "vocab_size": 5});
    assert_eq!(json_of(to.join("config.json")), config);
    assert_eq!(fs::read_to_string(to.join("1_Pooling/config.json")).unwrap(), "{\"mean\": true}");
    assert_eq!(StoredModel::open(&to).unwrap().bytes(), 36);
    assert_eq!(folder.names(), ["low", "model"], "nothing else is left");

    // An existing folder is replaced on request, unless something would be lost.
    let again = |options| convert(&from, &to, "o2-bf16", options).map(drop).map_err(|error| error.to_string());
    assert!(again(ConvertOptions::new()).unwrap_err().ends_with("already exists"));
    let replace = ConvertOptions::new().replace(true);
    again(replace).unwrap();
    assert_eq!(json_of(to.join("config.json"))["torch_dtype"], "bfloat16");
    fs::write(to.join("notes.txt"), "mine").unwrap();
    assert!(again(replace).unwrap_err().ends_with("the new folder has no `notes.txt`, which would be lost"));
    assert_eq!(fs::read_to_string(to.join("notes.txt")).unwrap(), "mine");
    fs::remove_file(to.join("notes.txt")).unwrap();
    fs::create_dir(to.join(".git")).unwrap();
    assert!(again(replace).unwrap_err().ends_with("the new folder has no `.git`, which would be lost"));
    assert_eq!(folder.names(), ["low", "model"]);
}

#[test]
fn the_model_that_is_read_is_never_written() {
    let folder = Folder::new("itself");
    let model = folder.at("model");
    model_folder(&model);
    let before = names(&model);
    let single = model.join("model-2.safetensors");
    let replace = ConvertOptions::new().replace(true);
    let message = |from: &Path, to: &Path| convert(from, to, "o2", replace).unwrap_err().to_string();
    assert!(message(&model, &model).ends_with("is never replaced"));
    assert!(message(&model, &model.join("../model")).ends_with("is never replaced"));
    assert!(message(&model, &model.join("out")).ends_with("it lies in the folder that is read"));
    assert!(message(&single, &single).ends_with("is never replaced"));
    assert!(message(&single, &model).ends_with("a folder; a file is converted to a file"));
    assert!(message(&model, &single).ends_with("it lies in the folder that is read"));
    let other = folder.at("file");
    fs::write(&other, "x").unwrap();
    assert!(message(&model, &other).ends_with("a file; a folder is converted to a folder"));
    // A folder that contains the model would be lost with it.
    assert!(message(&model, &folder.0).contains("which would be lost"));
    #[cfg(unix)]
    {
        std::os::unix::fs::symlink(&single, folder.at("link")).unwrap();
        assert!(message(&single, &folder.at("link")).ends_with("is never replaced"));
    }
    assert_eq!(names(&model), before);
    assert!(message(&single, &folder.at("no/such/file")).contains("no/such/file: "));
}

/// The files of a folder in the Hugging Face cache are links.
#[test]
#[cfg(unix)]
fn links_to_files_are_followed() {
    let folder = Folder::new("links");
    model_folder(&folder.at("blobs"));
    fs::create_dir(folder.at("snapshot")).unwrap();
    for name in names(&folder.at("blobs")).iter().filter(|name| name.contains('.')) {
        std::os::unix::fs::symlink(folder.at("blobs").join(name), folder.at("snapshot").join(name)).unwrap();
    }
    let converted = convert(&folder.at("snapshot"), &folder.at("out"), "o2", ConvertOptions::new()).unwrap();
    assert_eq!(converted.bytes_after, 36);
    assert!(!fs::symlink_metadata(folder.at("out").join("config.json")).unwrap().is_symlink());
}

#[test]
fn an_index_that_is_wrong_says_where() {
    let folder = Folder::new("index");
    let model = folder.at("model");
    model_folder(&model);
    let index = model.join("model.safetensors.index.json");
    let message = |map: Value| {
        fs::write(&index, json!({"weight_map": map}).to_string()).unwrap();
        StoredModel::open(&model).unwrap_err().to_string()
    };
    let place = index.display().to_string();
    for (map, says) in [
        (json!({"a": "model-3.safetensors"}), "it names the file `model-3.safetensors`, which is not there"),
        (
            json!({"a": "../x.safetensors"}),
            "it names the file `../x.safetensors`; only names of files in the same folder",
        ),
        (json!({"a": "/etc/passwd"}), "only names of files in the same folder"),
        (json!({"a": "model-1.safetensors"}), "it says that `a` is in `model-1.safetensors`, which has no such tensor"),
        (json!({"a": 1}), "invalid type: integer"),
    ] {
        let message = message(map);
        assert!(message.starts_with(&place) && message.contains(says), "{message}");
    }
    fs::write(&index, "{").unwrap();
    assert!(StoredModel::open(&model).unwrap_err().to_string().starts_with(&place));
    fs::remove_file(&index).unwrap();
    let message = StoredModel::open(&model).unwrap_err().to_string();
    assert!(message.contains("2 files end in `.safetensors`, and no index says which belong together"), "{message}");
    let empty = folder.at("empty");
    fs::create_dir(&empty).unwrap();
    assert!(StoredModel::open(&empty).unwrap_err().to_string().contains("no file ends in `.safetensors`"));
    assert_eq!(StoredModel::open(folder.at("nothing")).unwrap_err().kind(), ErrorKind::Io);
}
