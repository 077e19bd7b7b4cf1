//! Weights from other tools: the information in their names, and the output of a conversion. Rounding is compared with
//! the crate `half`, the files with the crate `safetensors`.

use std::{
    alloc::{GlobalAlloc, Layout, System},
    cell::Cell,
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};

use half::{bf16, f16};
use precast::{
    ErrorKind,
    io::models::Model,
    prelude::*,
    storage::{
        stored::{ConvertOptions, Converted, ConvertedTensor, StoredModel},
        weights,
    },
};
use safetensors::{Dtype, SafeTensors, serialize, tensor::TensorView};
use serde_json::{Value, json};

use crate::common::folder::{Folder, names};

thread_local! {
    static LARGEST: Cell<usize> = const { Cell::new(0) };
}

struct Measuring;

// SAFETY: it is the system's allocator, called with unchanged arguments.
unsafe impl GlobalAlloc for Measuring {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let _ = LARGEST.try_with(|largest| largest.set(largest.get().max(layout.size())));
        // SAFETY: as above.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // SAFETY: as above.
        unsafe { System.dealloc(block, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Measuring = Measuring;

/// Returns the result of `f`, and the largest block of memory that this thread allocated meanwhile.
fn largest_block<R>(f: impl FnOnce() -> R) -> (R, usize) {
    LARGEST.set(0);
    let answer = f();
    (answer, LARGEST.get())
}

/// A tensor of a file to be made.
type Made = (&'static str, Dtype, Vec<usize>, Vec<u8>);

fn f32s(name: &'static str, shape: &[usize], values: &[f32]) -> Made {
    (name, Dtype::F32, shape.to_vec(), values.iter().flat_map(|x| x.to_le_bytes()).collect())
}

/// Returns numbers of many magnitudes, some of them beyond 16 bits.
fn numbers(count: usize, seed: u64) -> Vec<f32> {
    let mut rng = Rng::seed(seed);
    let number = |rng: &mut Rng| (rng.bits() as i32 as f32 / 2e9) * 2f32.powi((rng.bits() % 36) as i32 - 26);
    (0..count).map(|_| number(&mut rng)).collect()
}

fn file(tensors: &[Made]) -> Vec<u8> {
    let view = |(name, dtype, shape, data): &'_ Made| {
        let data: &'static [u8] = Box::leak(data.clone().into_boxed_slice());
        (*name, TensorView::new(*dtype, shape.clone(), data).unwrap())
    };
    serialize(tensors.iter().map(view), Some([("format".to_string(), "pt".to_string())].into())).unwrap()
}

fn convert(from: &Path, to: &Path, policy: &str, options: ConvertOptions) -> Result<Converted> {
    let model = StoredModel::open(from)?;
    let policy = match Policy::names().any(|name| name == policy) {
        true => Policy::named(policy)?,
        false => Policy::parse(policy, "policy.yaml")?,
    };
    let (mut told, plan) = (0, policy.plan_outline(model.outline())?);
    let converted = plan.convert_with(&model, to, options, &mut |bytes| told += bytes)?;
    assert_eq!(told, model.bytes(), "progress tells of every byte");
    Ok(converted)
}

fn row<'a>(converted: &'a Converted, name: &str) -> &'a ConvertedTensor {
    converted.tensors.iter().find(|tensor| tensor.name == name).unwrap()
}

#[test]
fn converted_tensors_have_the_bits_of_one_rounding() {
    let folder = Folder::new("bits");
    // More than a chunk of 4 MiB, and not a multiple of anything.
    let weight = numbers(1_100_003, 1);
    let bias: Vec<f32> = numbers(17, 2);
    let tensors = vec![
        f32s("big.weight", &[1_100_003, 1], &weight),
        f32s("norm.weight", &[17], &bias),
        f32s("norm.bias", &[17], &bias),
        f32s("empty.weight", &[0, 4], &[]),
        ("half.weight", Dtype::F16, vec![3, 1], [0x3c00u16, 0x0001, 0x7c01].map(u16::to_le_bytes).concat()),
        ("double.weight", Dtype::F64, vec![1, 1], 0.1f64.to_le_bytes().to_vec()),
        ("ids", Dtype::I64, vec![2], [1i64, -1].map(i64::to_le_bytes).concat()),
        ("mask", Dtype::BOOL, vec![3], vec![0, 1, 1]),
        ("eight.weight", Dtype::F8_E4M3, vec![2, 2], vec![1, 2, 3, 255]),
    ];
    fs::write(folder.at("in"), file(&tensors)).unwrap();
    for (policy, low) in [("o2", Dtype::F16), ("o2-bf16", Dtype::BF16)] {
        let to = folder.at(policy);
        let (converted, block) = largest_block(|| convert(&folder.at("in"), &to, policy, ConvertOptions::new()));
        let converted = converted.unwrap();
        assert!(block <= 4 << 20, "a block of {block} bytes");
        let bytes = fs::read(&to).unwrap();
        let read = SafeTensors::deserialize(&bytes).unwrap();
        assert_eq!(read.len(), tensors.len());
        let (_, header) = SafeTensors::read_metadata(&bytes).unwrap();
        assert_eq!(header.metadata().as_ref().unwrap()["format"], "pt");
        let rounded = |values: &[f32]| -> Vec<u8> {
            let bits =
                |x: &f32| if low == Dtype::F16 { f16::from_f32(*x).to_bits() } else { bf16::from_f32(*x).to_bits() };
            values.iter().flat_map(|x| bits(x).to_le_bytes()).collect()
        };
        for (name, dtype, shape, data) in &tensors {
            let met = read.tensor(name).unwrap();
            assert_eq!(met.shape(), shape);
            let expected = match *name {
                "big.weight" => rounded(&weight),
                // An f16 with a signalling NaN; in bf16 it has the same three values, rounded.
                "half.weight" if low == Dtype::BF16 => {
                    [1.0, 2f32.powi(-24)].map(|x| bf16::from_f32(x).to_le_bytes()).concat()
                }
                _ => data.clone(),
            };
            let wanted = if ["big.weight", "empty.weight", "half.weight"].contains(name) { low } else { *dtype };
            assert_eq!(met.dtype(), wanted, "{name}");
            assert!(met.data().starts_with(&expected), "{name}");
        }
        // Each is aligned to its element size.
        let starts = read.tensors().into_iter().map(|(name, view)| {
            let start = view.data().as_ptr() as usize - bytes.as_ptr() as usize;
            (name, start % (view.dtype().bitsize() / 8))
        });
        assert!(starts.into_iter().all(|(_, rest)| rest == 0));
        let total: usize = read.tensors().iter().map(|(_, view)| view.data().len()).sum();
        assert_eq!(converted.bytes_after, total as u64);
    }
}

#[test]
fn what_is_lost_is_counted_by_its_definition() {
    let folder = Folder::new("lost");
    let values = numbers(70_001, 3);
    fs::write(folder.at("in"), file(&[f32s("fc.weight", &[70_001, 1], &values)])).unwrap();
    let converted = convert(&folder.at("in"), &folder.at("out"), "o3", ConvertOptions::new()).unwrap();
    let met = row(&converted, "fc.weight");
    let count = |lost: &dyn Fn(f32, f32) -> bool| {
        values.iter().filter(|x| lost(**x, f16::from_f32(**x).to_f32())).count() as u64
    };
    assert_eq!(met.to_infinity, 0);
    assert_eq!(met.to_zero, count(&|x, y| x != 0.0 && y == 0.0));
    assert_eq!(met.to_subnormal, count(&|x, y| y != 0.0 && y.abs() < 2f32.powi(-14) && x != y));
    assert_eq!(met.largest, values.iter().map(|x| x.abs()).reduce(f32::max));
    assert!(met.to_zero > 100 && met.to_subnormal > 1000 && met.relative_error == 1.0, "{met:?}");
    assert_eq!((met.before.as_ref(), met.after.as_ref()), ("f32", "f16"));
}

#[test]
fn values_that_become_infinite_are_refused_unless_allowed() {
    let folder = Folder::new("overflow");
    let large = [1e5f32, -7e4, 1.0, f32::INFINITY];
    let tensors =
        [f32s("a.b.weight", &[4, 1], &large), f32s("c.weight", &[4, 1], &large), f32s("d.weight", &[1, 1], &[1.0])];
    fs::write(folder.at("in"), file(&tensors)).unwrap();
    let error = convert(&folder.at("in"), &folder.at("out"), "o2", ConvertOptions::new()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Value);
    let message = error.to_string();
    assert!(
        message.contains("would become infinite in f16; a rule keeps a cell in float32, `{ path: a.b, run: float32 }`")
    );
    assert!(
        message.contains("\n- `a.b.weight`: 2 of its values, up to 1e5\n- `c.weight`: 2 of its values"),
        "{message}"
    );
    assert_eq!(folder.names(), ["in"], "nothing is left");
    // The rule named by the message keeps the cell.
    let rules =
        "version: 1\nlevel: O2\ndtype: float16\nrules: [{ path: a.b, run: float32 }, { path: c, run: float32 }]\n";
    let converted = convert(&folder.at("in"), &folder.at("ruled"), rules, ConvertOptions::new()).unwrap();
    let changed: Vec<&str> = converted.tensors.iter().filter(|t| t.changed()).map(|t| t.name.as_str()).collect();
    assert_eq!(changed, ["d.weight"]);
    let allowed = ConvertOptions::new().allow_overflow(true);
    let converted = convert(&folder.at("in"), &folder.at("out"), "o2", allowed).unwrap();
    let met = row(&converted, "c.weight");
    assert_eq!((met.to_infinity, met.not_finite, met.largest), (2, Some(1), Some(1e5)));
    convert(&folder.at("in"), &folder.at("bf16"), "o2-bf16", ConvertOptions::new()).unwrap();
}

#[test]
fn tensors_are_widened_only_when_that_is_asked_for() {
    let folder = Folder::new("widen");
    let values = [1.0f32, 6.0e-8, -65504.0];
    fs::write(folder.at("f32"), file(&[f32s("fc.weight", &[3, 1], &values), f32s("norm.weight", &[3], &values)]))
        .unwrap();
    convert(&folder.at("f32"), &folder.at("f16"), "o3", ConvertOptions::new()).unwrap();
    let dtypes = |to: &str, policy: &str, options: ConvertOptions| -> Vec<String> {
        let converted = convert(&folder.at("f16"), &folder.at(to), policy, options).unwrap();
        ["fc.weight", "norm.weight"].map(|name| row(&converted, name).after.to_string()).to_vec()
    };
    assert_eq!(dtypes("o0", "o0", ConvertOptions::new()), ["f16", "f16"]);
    assert_eq!(dtypes("o2", "o2", ConvertOptions::new()), ["f16", "f16"], "a norm runs in f32, and its tensor stays");
    let widen = ConvertOptions::new().widen(true);
    assert_eq!(dtypes("o2w", "o2", widen), ["f16", "f32"]);
    assert_eq!(dtypes("o0w", "o0", widen), ["f32", "f32"]);
    let bytes = fs::read(folder.at("o0w")).unwrap();
    let read = SafeTensors::deserialize(&bytes).unwrap();
    let expected: Vec<u8> = values.iter().flat_map(|x| f16::from_f32(*x).to_f32().to_le_bytes()).collect();
    assert_eq!(read.tensor("fc.weight").unwrap().data(), expected);
}

/// Writes a Hugging Face folder with two shards and all the usual other files.
fn model_folder(folder: &Path) {
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

fn json_of(path: PathBuf) -> Value {
    serde_json::from_slice(&fs::read(path).unwrap()).unwrap()
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
    assert!(again(ConvertOptions::new()).unwrap_err().ends_with("is there already"));
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

#[test]
fn a_plan_of_another_model_and_a_checkpoint_are_refused() {
    let folder = Folder::new("refused");
    fs::write(folder.at("a"), file(&[f32s("a.weight", &[1, 1], &[1.0])])).unwrap();
    fs::write(folder.at("b"), file(&[f32s("b.weight", &[1, 1], &[1.0])])).unwrap();
    let [a, b] = ["a", "b"].map(|name| StoredModel::open(folder.at(name)).unwrap());
    let plan = Policy::named("o2").unwrap().plan_outline(a.outline()).unwrap();
    let error = plan.convert(&b, folder.at("out")).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Path);
    let sum = Some([("crc32".to_string(), "00000000".to_string())].into());
    fs::write(folder.at("c"), serialize(Vec::<(&str, TensorView<'_>)>::new(), sum).unwrap()).unwrap();
    let message = convert(&folder.at("c"), &folder.at("out"), "o2", ConvertOptions::new()).unwrap_err().to_string();
    assert!(message.contains("a checkpoint with a checksum"), "{message}");
    let speed = "version: 1\nlevel: O2\ndtype: float16\nprefer: speed\n";
    let message = convert(&folder.at("a"), &folder.at("out"), speed, ConvertOptions::new()).unwrap_err().to_string();
    assert!(message.contains("there is only its outline"), "{message}");
    assert_eq!(folder.names(), ["a", "b", "c"]);
}

/// Opens a file, and converts it if that succeeds. Neither panics, and no block of memory is much larger than the file.
fn feed(folder: &Folder, bytes: &[u8]) -> bool {
    fs::write(folder.at("in"), bytes).unwrap();
    let (opened, block) = largest_block(|| StoredModel::open(folder.at("in")).map(|model| model.outline()));
    assert!(block <= 64 * 1024 + 4 * bytes.len(), "a block of {block} bytes for a file of {}", bytes.len());
    if opened.is_err() {
        return false;
    }
    let options = ConvertOptions::new().replace(true).allow_overflow(true);
    convert(&folder.at("in"), &folder.at("out"), "o2", options).unwrap();
    SafeTensors::deserialize(&fs::read(folder.at("out")).unwrap()).unwrap();
    true
}

fn small_file() -> Vec<u8> {
    file(&[
        f32s("layers.0.fc.weight", &[2, 3], &[0.5; 6]),
        f32s("layers.0.norm.weight", &[3], &[1.0; 3]),
        ("ids", Dtype::I64, vec![1], vec![0; 8]),
    ])
}

#[test]
fn a_file_that_is_cut_off_is_refused_wherever_it_ends() {
    let folder = Folder::new("cut");
    let whole = small_file();
    assert!(feed(&folder, &whole));
    for len in 0..whole.len() {
        assert!(!feed(&folder, &whole[..len]), "{len} of {} bytes", whole.len());
    }
    assert!(!feed(&folder, &[&whole[..], &[0]].concat()));
}

#[test]
fn one_wrong_bit_in_the_header_panics_nowhere() {
    let folder = Folder::new("bit");
    let whole = small_file();
    let header = 8 + u64::from_le_bytes(whole[..8].try_into().unwrap()) as usize;
    let read = (0..header * 8).filter(|bit| {
        let mut bytes = whole.clone();
        bytes[bit / 8] ^= 1 << (bit % 8);
        feed(&folder, &bytes)
    });
    // A flipped bit in a name makes another name, and one in a shape or an offset contradicts the others.
    let (read, all) = (read.count(), header * 8);
    assert!(read > 0 && read < all / 2, "{read} of {all} were read");
}

/// `PRECAST_HEADERS=100000` sets the number.
#[test]
fn mutated_headers_panic_nowhere() {
    const WORDS: [&str; 14] = [
        "{",
        "}",
        "[",
        "]",
        ",",
        ":",
        "\"",
        "18446744073709551615",
        "-1",
        "1e9",
        "null",
        "\"dtype\"",
        "\"data_offsets\":[0,4]",
        "\\u0000",
    ];
    let count = std::env::var("PRECAST_HEADERS").ok().and_then(|text| text.parse().ok()).unwrap_or(2000);
    let folder = Folder::new("mutated");
    let whole = small_file();
    let length = u64::from_le_bytes(whole[..8].try_into().unwrap()) as usize;
    let mut rng = Rng::seed(11);
    for _ in 0..count {
        let mut header = whole[8..8 + length].to_vec();
        for _ in 0..1 + rng.bits() % 3 {
            let at = (rng.bits() as usize) % header.len();
            match rng.bits() % 4 {
                0 => header[at] = rng.bits() as u8,
                1 => drop(header.remove(at)),
                2 => drop(header.splice(at..at, WORDS[rng.bits() as usize % WORDS.len()].bytes())),
                _ => drop(header.splice(at..(at + 3).min(header.len()), [b'0' + (rng.bits() % 10) as u8])),
            }
            header.push(b' ');
        }
        // Sometimes the length is wrong, too.
        let said = if rng.bits().is_multiple_of(8) { rng.bits() >> (rng.bits() % 64) } else { header.len() as u64 };
        feed(&folder, &[&said.to_le_bytes()[..], &header, &whole[8 + length..]].concat());
    }
}

#[derive(Cell, Debug)]
struct Named {
    embed: Child<Embedding>,
    encoder: Child<TransformerEncoderLayer>,
    lstm: Child<LSTM>,
    gru: Child<GRU>,
    rms_norm: Child<RmsNorm>,
    group_norm: Child<GroupNorm>,
    layers: Vec<Child>,
    deconv: Child<Conv1dTranspose>,
    head: Child<Dense>,
}

impl Forward for Named {}

/// The weights of a network alone lead to the same decisions as the network itself.
#[test]
fn inferred_cells_are_decided_as_the_cells_themselves() {
    let folder = Folder::new("same");
    let rng = &mut Rng::seed(1);
    let own = Child::of(Named {
        embed: Child::new(Embedding::new(9, 6, rng)),
        encoder: Child::new(TransformerEncoderLayerSpec::new(6, 2).build(rng).unwrap()),
        lstm: Child::new(LSTM::new(6, 5, rng)),
        gru: Child::new(GRU::new(5, 4, rng)),
        rms_norm: Child::new(RmsNorm::new(4)),
        group_norm: Child::new(GroupNorm::new(2, 4)),
        layers: vec![Child::of(Conv1d::new(4, 4, 3, rng)), Child::of(BatchNorm1d::new(4))],
        deconv: Child::new(Conv1dTranspose::new(4, 2, 3, rng)),
        head: Child::new(Dense::new(2, 3, rng)),
    });
    let models = Model::names().map(|name| (name, Model::named(name, 1).unwrap().net));
    let mut compared = 0;
    for (name, net) in models.chain([("own", own)]) {
        weights::save(&net, folder.at(name)).unwrap();
        let outline = StoredModel::open(folder.at(name)).unwrap().outline();
        let has_tensors = |kind: &str| kind != "Container" && kind != "Unknown";
        for policy in ["o1", "o2", "o3-bf16"].map(|policy| Policy::named(policy).unwrap()) {
            let (plan, inferred) = (policy.plan(&net).unwrap(), policy.plan_outline(outline.clone()).unwrap());
            for decision in inferred.decisions.iter().filter(|decision| has_tensors(&decision.kind)) {
                // A cell inside attention in a file may be a parameter here.
                let above = decision.path.match_indices('.').map(|(at, _)| &decision.path[..at]).rev();
                let own = [decision.path.as_str()].into_iter().chain(above).find_map(|path| plan.decision(path).ok());
                let own = own.unwrap();
                assert_eq!(decision.run, own.run, "{name}: {} ({}, {})", own.path, own.kind, decision.kind);
                compared += 1;
            }
        }
    }
    assert!(compared > 60, "{compared} cells were compared");
}

/// The state dicts of torch's own layers, whose kinds are known.
#[test]
fn state_dicts_of_torch_tell_their_layers() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/guide/torch-encoder.safetensors");
    let outline = StoredModel::open(folder).unwrap().outline();
    let kind = |path: &str| outline.cells().iter().find(|cell| cell.path == path).unwrap().kind.to_string();
    assert_eq!(kind("layers.0.self_attn"), "MultiheadAttention");
    assert_eq!(kind("layers.1.linear2"), "Dense");
    assert_eq!(kind("layers.1.norm2"), "LayerNorm");
    assert!(outline.cells().iter().all(|cell| cell.kind != "Unknown"));
}

/// Returns the storage dtype of each tensor of a file under a policy.
fn stored_as(tensors: &[Made], policy: &str) -> (BTreeMap<String, String>, Converted) {
    let folder = Folder::new("stored-as");
    fs::write(folder.at("in"), file(tensors)).unwrap();
    let _ = fs::remove_file(folder.at("out"));
    let converted = convert(&folder.at("in"), &folder.at("out"), policy, ConvertOptions::new()).unwrap();
    let bytes = fs::read(folder.at("out")).unwrap();
    let read = SafeTensors::deserialize(&bytes).unwrap();
    for (name, dtype, _, data) in tensors {
        let met = read.tensor(name).unwrap();
        assert!(met.dtype() != *dtype || met.data() == data, "{name} keeps every bit");
    }
    (converted.tensors.iter().map(|t| (t.name.clone(), t.after.to_string())).collect(), converted)
}

/// Numbers that are not weights keep their digits, even if everything around them runs low.
#[test]
fn weights_are_lowered_and_nothing_else() {
    let inv_freq: Vec<f32> = (0..16).map(|i| 10000f64.powf(-2.0 * f64::from(i) / 32.0) as f32).collect();
    let eight = |name: &'static str| (name, Dtype::F8_E4M3, vec![2, 2], vec![56; 4]);
    let ints = |name: &'static str| (name, Dtype::I32, vec![2, 2], vec![0; 16]);
    let kept = [
        f32s("model.layers.0.self_attn.rotary_emb.inv_freq", &[16], &inv_freq),
        f32s("model.rotary_emb.original_inv_freq", &[16], &inv_freq),
        f32s("fp8.weight_scale_inv", &[1, 1], &[3.7e-6]),
        f32s("fp8.weight_scale", &[2, 1], &[3.7e-6; 2]),
        f32s("fp8.input_scale", &[], &[3.7e-6]),
        f32s("gptq.scales", &[1, 2], &[3.7e-6; 2]),
        f32s("int8.SCB", &[2], &[3.7e-6; 2]),
        f32s("nf4.weight.absmax", &[2], &[3.7e-6; 2]),
        f32s("model_ema.decay", &[], &[0.9999]),
        f32s("model_ema.fcweight", &[2, 2], &[0.1; 4]),
        f32s("ema.fc.weight", &[2, 2], &[0.1; 4]),
        f32s("mixer.A_log", &[2, 2], &[0.1; 4]),
        f32s("mixer.D", &[2], &[0.1; 2]),
        f32s("mixer.dt_bias", &[2], &[0.1; 2]),
        f32s("att.time_decay", &[2], &[0.1; 2]),
        f32s("att.time_first", &[2, 1], &[0.1; 2]),
        f32s("betas", &[2], &[1e-4; 2]),
        f32s("alphas_cumprod", &[2], &[0.9999, 1e-8]),
        f32s("logit_scale", &[], &[4.6052]),
        f32s("bn.running_mean", &[2], &[0.1; 2]),
        f32s("bn.running_var", &[2], &[1e-9; 2]),
        f32s("bn.num_batches_tracked", &[], &[70000.0]),
        f32s("criterion.weight", &[2], &[0.1; 2]),
        f32s("h.attn.bias", &[1, 1, 2, 2], &[1.0; 4]),
        f32s("h.attn.masked_bias", &[], &[-1e9]),
        f32s("pos_encoder.pe", &[1, 2, 2], &[0.1; 4]),
        f32s("router.e_score_correction_bias", &[2], &[0.1; 2]),
    ];
    let lowered = [
        f32s("model.layers.0.self_attn.q_proj.weight", &[2, 2], &[0.1; 4]),
        f32s("fp8.bias", &[2], &[0.1; 2]),
        f32s("gptq.bias", &[2], &[0.1; 2]),
        f32s("mixer.conv1d.weight", &[2, 1, 2], &[0.1; 4]),
        f32s("mixer.conv1d.bias", &[2], &[0.1; 2]),
        f32s("bn.weight", &[2], &[0.1; 2]),
        f32s("bn.bias", &[2], &[0.1; 2]),
        f32s("rnn.weight_ih_l0", &[8, 2], &[0.1; 16]),
        f32s("rnn.weight_hh_l0", &[8, 2], &[0.1; 16]),
        f32s("rnn.bias_hh_l1_reverse", &[8], &[0.1; 8]),
        f32s("router.weight", &[2, 2], &[0.1; 4]),
        f32s("experts.gate_up_proj", &[2, 2, 2], &[0.1; 8]),
    ];
    let same = [eight("fp8.weight"), ints("gptq.qweight"), ints("gptq.g_idx"), ints("int8.weight"), ints("nf4.weight")];
    let all: Vec<Made> = kept.iter().chain(&lowered).chain(&same).cloned().collect();
    for (policy, low) in [("o3", "f16"), ("o3-bf16", "bf16")] {
        let (met, converted) = stored_as(&all, policy);
        let check = |tensors: &[Made], dtype: &str, is_kept: bool| {
            for (name, ..) in tensors {
                let why = row(&converted, name).kept.as_deref();
                assert_eq!((met[*name].as_str(), why.is_some()), (dtype, is_kept), "{name} under {policy}: {why:?}");
            }
        };
        check(&kept, "f32", true);
        check(&lowered, low, false);
        for (name, dtype, ..) in &same {
            assert_eq!(met[*name], if *dtype == Dtype::I32 { "I32" } else { "F8_E4M3" });
        }
        let why = |name: &str| row(&converted, name).kept.clone().unwrap();
        assert_eq!(why("model.layers.0.self_attn.rotary_emb.inv_freq"), "no weight of RotaryEmbedding");
        assert_eq!(
            (why("fp8.weight_scale").as_str(), why("betas").as_str()),
            ("no weight of Dense", "of an Unknown cell")
        );
        assert_eq!(why("ema.fc.weight"), "a moving average");
        let line = precast_train::report::conversion_kept(&converted).unwrap();
        let head = format!("{} tensors of cells that run low stay as they were, not known as weights: `", kept.len());
        assert!(line.starts_with(&head), "{line}");
        assert!(
            line.contains(&format!(" and {} more; a rule names a tensor to store it low: `{{ path: ", kept.len() - 8)),
            "{line}"
        );
    }
}

/// A tensor that is already 16-bit is rounded to another dtype only if it is a weight.
#[test]
fn other_tensors_in_16_bits_stay_too() {
    let half = |name: &'static str, shape: &[usize], x: f32| -> Made {
        let data = bf16::from_f32(x).to_le_bytes().repeat(shape.iter().product());
        (name, Dtype::BF16, shape.to_vec(), data)
    };
    let tensors = [half("fc.weight", &[2, 2], 0.5), half("fc.weight_scale", &[1], 1e-30), half("mask", &[2], -3e38)];
    let (met, _) = stored_as(&tensors, "o2");
    assert_eq!([&met["fc.weight"], &met["fc.weight_scale"], &met["mask"]], ["f16", "bf16", "bf16"]);
}

/// A rule whose path matches no cell applies to tensors.
#[test]
fn a_rule_names_a_tensor() {
    let tensors = [
        f32s("rotary_emb.inv_freq", &[2], &[1.0, 0.5]),
        f32s("fc.weight", &[2, 2], &[0.5; 4]),
        f32s("fc.bias", &[2], &[0.5; 2]),
        f32s("fc.table", &[2], &[0.5; 2]),
        f32s("gate.table", &[2], &[0.5; 2]),
    ];
    let under = |rules: &str| format!("version: 1\nlevel: O2\ndtype: float16\nrules: [{rules}]\n");
    let met = |rules: &str| stored_as(&tensors, &under(rules)).0;
    let names = ["rotary_emb.inv_freq", "fc.weight", "fc.bias", "fc.table", "gate.table"];
    let dtypes = |rules: &str| {
        let met = met(rules);
        names.map(|name| met[name].clone())
    };
    assert_eq!(dtypes(""), ["f32", "f16", "f16", "f32", "f32"]);
    assert_eq!(dtypes("{ path: rotary_emb.inv_freq, run: low }"), ["f16", "f16", "f16", "f32", "f32"]);
    assert_eq!(dtypes("{ path: '*.table', run: low, expect: 2 }"), ["f32", "f16", "f16", "f16", "f16"]);
    assert_eq!(dtypes("{ path: fc.bias, run: float32 }"), ["f32", "f16", "f32", "f32", "f32"]);
    // The exact path takes precedence over the pattern.
    let both = "{ path: '*.table', run: low }, { path: gate.table, run: float32 }";
    assert_eq!(dtypes(both), ["f32", "f16", "f16", "f16", "f32"]);
    // A rule that names a cell applies to the cell.
    assert_eq!(dtypes("{ path: rotary_emb, run: low }"), ["f32", "f16", "f16", "f32", "f32"]);

    let folder = Folder::new("named");
    fs::write(folder.at("in"), file(&tensors)).unwrap();
    let outline = StoredModel::open(folder.at("in")).unwrap().outline();
    let plan = |rules: &str| Policy::parse(&under(rules), "p.yaml").unwrap().plan_outline(outline.clone());
    let shown = plan("").unwrap();
    assert_eq!(shown.decision("rotary_emb").unwrap().effect(), "runs f16, keeps inv_freq");
    assert_eq!(shown.decision("fc").unwrap().effect(), "runs f16, keeps table");
    let shown = plan("{ path: rotary_emb.inv_freq, run: low, because: small }").unwrap();
    assert_eq!(shown.decision("rotary_emb").unwrap().effect(), "runs f16");
    let line = "tensor rotary_emb.inv_freq  stored f16  rule path rotary_emb.inv_freq (run: low), p.yaml:4:9: small";
    assert!(shown.to_string().contains(line), "{shown}");
    let read: precast::Plan = serde_json::from_str(&serde_json::to_string(&shown).unwrap()).unwrap();
    assert_eq!(read, shown);
    let message = plan("{ path: rotary_emb.inv_frq, run: low }").unwrap_err().to_string();
    assert!(message.contains("matches no cell (did you mean `rotary_emb.inv_freq`?)"), "{message}");
    let message = plan("{ path: '*.table', run: low, expect: 3 }").unwrap_err().to_string();
    assert!(message.contains("expects 3 cells and matches 2: fc.table, gate.table"), "{message}");
    // At O0 nothing is lowered.
    let o0 = "version: 1\nlevel: O0\ndtype: float16\nrules: [{ path: fc.bias, run: low }]\n";
    assert_eq!(stored_as(&tensors, o0).0["fc.bias"], "f32");
}

/// Every trained parameter of our own layers is a weight, and no buffer is.
#[test]
fn the_weights_of_our_own_layers_are_known() {
    let folder = Folder::new("own-weights");
    let rng = &mut Rng::seed(1);
    let own = Child::of(sequential![
        Embedding::new(9, 6, rng),
        TransformerEncoderLayerSpec::new(6, 2).build(rng).unwrap(),
        TransformerDecoderLayerSpec::new(6, 2).build(rng).unwrap(),
        LSTM::new(6, 5, rng),
        GRUCell::new(5, 4, rng),
        RmsNorm::new(4),
        GroupNorm::new(2, 4),
        InstanceNorm2d::new(4),
        LayerNorm::new(&[4]),
        Conv3d::new(4, 4, 3, rng),
        Conv2dTranspose::new(4, 2, 3, rng),
        BatchNorm3d::new(2),
        PReLU::new(2),
        LoRA::new(Dense::new(2, 3, rng), 2, 4.0, rng),
        RotaryEmbedding::default()
    ]);
    weights::save(&own, folder.at("in")).unwrap();
    let model = StoredModel::open(folder.at("in")).unwrap();
    let plan = Policy::named("o3").unwrap().plan(&own).unwrap();
    let converted = plan.convert(&model, folder.at("out")).unwrap();
    let mut met = 0;
    for (path, param) in own.named_params() {
        let is_base = path.contains(".base.");
        assert_eq!(row(&converted, &path).after == "f16", param.is_trained() || is_base, "{path}");
        met += 1;
    }
    assert!(met > 60, "{met}");
}

#[test]
fn the_advice_of_an_overflow_fits_the_dtype() {
    let folder = Folder::new("advice");
    let met = |policy: &str, largest: &[f32]| {
        let names = ["fc.weight", "head.weight"];
        let tensors: Vec<Made> = names.iter().zip(largest).map(|(name, &x)| f32s(name, &[1, 2], &[x, 1.0])).collect();
        fs::write(folder.at("in"), file(&tensors)).unwrap();
        let options = ConvertOptions::new().replace(true);
        convert(&folder.at("in"), &folder.at("out"), policy, options).map_err(|error| error.to_string())
    };
    let rule = |dtype: &str, more: &str| {
        format!("infinite in {dtype}; a rule keeps a cell in float32, `{{ path: fc, run: float32 }}`{more}:")
    };
    // The largest bfloat16 is 2^127 * (2 - 2^-7); what is nearer to 2^128 than to that becomes infinite.
    let (fits, beyond) = (f32::from_bits(0x7f7f_7fff), f32::from_bits(0x7f7f_8000));
    for numbers in [&[fits][..], &[1e5, fits]] {
        let message = met("o2", numbers).unwrap_err();
        assert!(message.contains(&rule("f16", ", and bfloat16 holds all of them")), "{message}");
        met("o2-bf16", numbers).unwrap();
    }
    for numbers in [&[beyond][..], &[1e5, beyond], &[3.4e38]] {
        let message = met("o2", numbers).unwrap_err();
        assert!(message.contains(&rule("f16", "")), "{message}");
        assert!(met("o2-bf16", numbers).is_err());
    }
    let message = met("o2-bf16", &[beyond]).unwrap_err();
    assert!(message.contains(&rule("bf16", "")), "{message}");
}

#[test]
fn numbers_that_are_not_finite_are_counted() {
    let (inf, nan) = (f32::INFINITY, f32::NAN);
    let tensors = [
        f32s("fc.weight", &[1, 5], &[1.0, nan, -inf, inf, -2.0]),
        f32s("fc.bias", &[1], &[nan]),
        f32s("fc.table", &[2], &[inf, 3.0]),
        f32s("head.weight", &[1, 1], &[1.0]),
        ("ids", Dtype::I64, vec![1], vec![0; 8]),
    ];
    let (_, converted) = stored_as(&tensors, "o2");
    let met = |name: &str| (row(&converted, name).not_finite, row(&converted, name).largest);
    assert_eq!(met("fc.weight"), (Some(3), Some(2.0)));
    assert_eq!(met("fc.bias"), (Some(1), Some(0.0)));
    assert_eq!(met("fc.table"), (Some(1), Some(3.0)));
    assert_eq!((met("head.weight"), met("ids")), ((Some(0), Some(1.0)), (None, None)));
    let table = precast_train::report::conversion_table(&converted);
    let line = table.lines().find(|line| line.contains("fc.weight")).unwrap();
    let cells: Vec<&str> = line.split_whitespace().filter(|cell| cell.contains(char::is_alphanumeric)).collect();
    let at = cells.iter().position(|cell| *cell == "2.000e0").unwrap();
    assert_eq!(cells[at + 1], "3", "{table}");
    let summary = precast_train::report::conversion_summary(&converted);
    assert!(summary.ends_with("; values: 5 were not finite"), "{summary}");
}

/// Copies of a network and tables may be called `weight`, too.
#[test]
fn averages_states_and_tables_called_weight_are_kept() {
    let two = |name: &'static str| f32s(name, &[2, 2], &[0.1; 4]);
    let kept = [
        (
            "a moving average",
            vec![
                "swa_model.module.fc.weight",
                "averaged_model.fc.weight",
                "averaged.module.fc.weight",
                "avg_model.x.weight",
                "shadow.x.weight",
                "polyak.x.weight",
                "modelEma.x.weight",
                "EMA.x.weight",
                "teacher_ema.0.weight",
            ],
        ),
        (
            "a state of an optimizer",
            vec![
                "optimizer.0.exp_avg_sq.fc.weight",
                "exp_avg.fc.weight",
                "momentum_buffer.fc.weight",
                "moment1.fc.weight",
            ],
        ),
        ("statistics", vec!["stats.mean.weight"]),
        (
            "constants, by the name",
            vec![
                "rotary.weight",
                "rotary_emb.weight",
                "fourier_features.weight",
                "gaussian_fourier_projection.weight",
                "time_proj.weight",
                "sinusoidal.weight",
                "mask.weight",
                "attn.causal_mask.weight",
                "quantizer.scale.weight",
                "act_quant.scale.weight",
                "criterion.weight",
                "loss_fn.weight",
            ],
        ),
    ];
    // Segment Anything, DETR, Mask2Former, Stable Diffusion, Wan, wav2vec, vector quantization, discriminators of a loss.
    let lowered = [
        "mask_downscaling.0.weight",
        "mask_decoder.iou_head.0.weight",
        "mask_tokens.weight",
        "mask_embed.0.weight",
        "mask_head.lay1.weight",
        "mask_features.weight",
        "mask_predictor.conv5_mask.weight",
        "time_embed.0.weight",
        "time_embedding.linear_1.weight",
        "down.0.time_emb_proj.weight",
        "condition.time_proj.weight",
        "condition.time_proj.bias",
        "quantizer.weight_proj.weight",
        "quantize.embedding.weight",
        "loss.discriminator.main.0.weight",
        "average_pool.proj.weight",
        "moving_head.weight",
        "shadow_head.weight",
        "momentum_head.weight",
        "layers.0.swa.q_proj.weight",
        "teacher.fc.weight",
        "fc_mean.weight",
        "mean.weight",
        "to_scale.weight",
        "multi_scale.0.weight",
        "key.weight",
        "rotary_attn.q_proj.weight",
        "fourier.mlp.0.weight",
    ];
    let made = |name: &'static str| if name.ends_with("bias") { f32s(name, &[2], &[0.1; 2]) } else { two(name) };
    let all: Vec<Made> = kept.iter().flat_map(|(_, names)| names).chain(&lowered).map(|name| made(name)).collect();
    let (met, converted) = stored_as(&all, "o2");
    for (why, names) in &kept {
        for name in names {
            assert_eq!((met[*name].as_str(), row(&converted, name).kept.as_deref()), ("f32", Some(*why)), "{name}");
        }
    }
    for name in lowered {
        assert_eq!((met[name].as_str(), &row(&converted, name).kept), ("f16", &None), "{name}");
    }
    let rule = "version: 1\nlevel: O2\ndtype: float16\nrules: [{ path: rotary.weight, run: low }]\n";
    assert_eq!(stored_as(&all, rule).0["rotary.weight"], "f16");
}

#[test]
fn metadata_is_kept_and_the_format_is_added_where_there_is_none() {
    let folder = Folder::new("metadata");
    let weight = 0.5f32.to_le_bytes().repeat(4);
    let view = || TensorView::new(Dtype::F32, vec![2, 2], &weight).unwrap();
    for (metadata, wanted) in [
        (None, vec![("format", "pt")]),
        (Some(("format", "flax")), vec![("format", "flax")]),
        (Some(("a", "b")), vec![("a", "b"), ("format", "pt")]),
    ] {
        let metadata = metadata.map(|(key, value)| [(key.to_string(), value.to_string())].into());
        fs::write(folder.at("in"), serialize([("fc.weight", view())], metadata).unwrap()).unwrap();
        convert(&folder.at("in"), &folder.at("out"), "o2", ConvertOptions::new().replace(true)).unwrap();
        let bytes = fs::read(folder.at("out")).unwrap();
        let (_, header) = SafeTensors::read_metadata(&bytes).unwrap();
        let met: BTreeMap<_, _> = header.metadata().clone().unwrap().into_iter().collect();
        let wanted: BTreeMap<_, _> =
            wanted.into_iter().map(|(key, value)| (key.to_string(), value.to_string())).collect();
        assert_eq!(met, wanted);
    }
}

#[test]
fn an_entry_that_appears_twice_is_refused() {
    let folder = Folder::new("twice");
    let header = r#"{"w":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},"w":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}"#;
    fs::write(folder.at("in"), [&(header.len() as u64).to_le_bytes()[..], header.as_bytes(), &[0; 4]].concat())
        .unwrap();
    let message = StoredModel::open(folder.at("in")).unwrap_err().to_string();
    assert!(message.contains("its header: two entries have the name `w` at line 1 column"), "{message}");
    let model = folder.at("model");
    model_folder(&model);
    let index = model.join("model.safetensors.index.json");
    let text = fs::read_to_string(&index).unwrap();
    fs::write(&index, text.replace("\"norm.weight\"", "\"embed_tokens.weight\"")).unwrap();
    let message = StoredModel::open(&model).unwrap_err().to_string();
    assert!(message.contains("two entries have the name `embed_tokens.weight`"), "{message}");
    fs::write(&index, text).unwrap();
    fs::write(model.join("config.json"), "{\"dtype\": \"float32\", \"dtype\": \"float16\"}").unwrap();
    assert!(StoredModel::open(&model).unwrap_err().to_string().contains("two entries have the name `dtype`"));
}
