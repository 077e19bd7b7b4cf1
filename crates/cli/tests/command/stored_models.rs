//! The command `precast` on weights from other tools: plan, explain, diff, convert and export.

use std::{fs, path::Path};

use precast::{DType, Plan, Tensor, storage::weights};
use serde_json::Value;

use crate::program::{Folder, error, json, json_of, precast, precast_in, root, text};

/// State dict of a torch encoder.
const ENCODER: &str = "docs/guide/torch-encoder.safetensors";

/// Writes a file with a layer, a norm and something unidentifiable.
fn small(folder: &Folder) -> String {
    let of = |shape: &[usize], value: f64| Tensor::full(shape, value, DType::F32);
    let file = folder.0.join("small.safetensors");
    weights::write(
        &file,
        [("fc.weight", of(&[2, 3], 0.1)), ("norm.weight", of(&[3], 1.0)), ("gate.scale", of(&[3], 3.0))],
    )
    .unwrap();
    file.to_str().unwrap().to_string()
}

#[test]
fn cells_of_a_weight_file_are_planned_explained_and_compared() {
    let shown = text(precast(&["plan", ENCODER, "--policy", "o2"]));
    let head = format!(
        "model   {ENCODER}\npolicy  o2 (built in)\ncells   inferred from the names and shapes of 26 tensors\no2: level O2"
    );
    assert!(shown.starts_with(&head), "{shown}");
    assert!(shown.contains("norm1        LayerNorm          * runs f32, returns f16  full list, precast-1"), "{shown}");
    let table = text(precast(&["plan", ENCODER, "--policy", "o2", "--format", "table"]));
    assert!(table.contains("| layers.1.self_attn.out_proj | Dense "), "{table}");

    // JSON is a plan, along with the inferred parts.
    let json = json_of(&["plan", ENCODER, "--policy", "o2", "--format", "json"]);
    assert_eq!(json["inferred"], serde_json::json!({"tensors": 26, "unknown": []}));
    let plan: Plan = serde_json::from_value(json).unwrap();
    assert_eq!(plan.decision("layers.0.linear1").unwrap().kind, "Dense");

    let shown = text(precast(&["explain", ENCODER, "norm", "--policy", "o2"]));
    assert!(shown.contains("norm (LayerNorm)\n") && shown.contains("because  full list, precast-1"), "{shown}");
    let message = error(2, precast(&["explain", ENCODER, "nrm", "--policy", "o2"]));
    assert!(message.contains("no cell at `nrm` (did you mean `norm`?)"), "{message}");
    let shown = text(precast(&["diff", ENCODER, "--policy", "o2", "--policy", "o3"]));
    assert!(shown.contains("5 of 17 cells differ"), "{shown}");
}

#[test]
fn what_cannot_be_told_is_named() {
    let folder = Folder::new("files-unknown");
    let file = small(&folder);
    let shown = text(precast(&["plan", &file, "--policy", "o2"]));
    assert!(shown.contains("cells   inferred from the names and shapes of 3 tensors; 1 Unknown: gate\n"), "{shown}");
    assert!(shown.contains("├─ gate  Unknown     runs f16, keeps scale  level O2"), "{shown}");
    let json = json_of(&["plan", &file, "--policy", "o2", "--format", "json"]);
    assert_eq!(json["inferred"]["unknown"], serde_json::json!(["gate"]));
}

#[test]
fn what_needs_a_call_says_so() {
    let folder = Folder::new("files-call");
    let speed = folder.write("speed.yaml", "version: 1\nlevel: O2\ndtype: float16\nprefer: speed\n");
    for (args, says) in [
        (&["plan", ENCODER, "--policy", "graph"][..], "a policy for graphs rewrites the graph of a call, and "),
        (&["explain", ENCODER, "norm", "--policy", "graph"], "is weights without code"),
        (&["diff", ENCODER, "--policy", "graph", "--policy", "o2"], "is weights without code"),
        (&["plan", ENCODER, "--policy", "o2", "--predict"], "a prediction is of a call, and "),
        (&["plan", ENCODER, "--policy", &speed], "is weights without code"),
        (&["plan", ENCODER, "--policy", "graph", "--summary"], "--summary is of cells"),
        (&["convert", ENCODER, "/nowhere/x", "--policy", &speed], "prefers speed, which is decided by a call"),
        (&["convert", ENCODER, "/nowhere/x", "--policy", "graph"], "graph (built in) is a policy for graphs"),
        (&["export", ENCODER, "--policy", "graph", "--to", "torch"], "this command takes one with a level"),
        (&["plan", "no.safetensors", "--policy", "o2"], "no.safetensors: No such file"),
        (&["plan", "README.md", "--policy", "o2"], "README.md"),
    ] {
        let message = error(2, precast(args));
        assert!(message.contains(says), "{args:?}: {message}");
    }
    let pickle = folder.write("model.safetensors", "PK\u{3}\u{4}....");
    assert!(error(2, precast(&["plan", &pickle, "--policy", "o2"])).contains("a file of `torch.save`"));
}

/// The sizes of inferred cells are those of their tensors; what only a call knows is missing, and why is said.
#[test]
fn a_summary_of_weights_has_no_shapes() {
    let shown = text(precast(&["plan", ENCODER, "--policy", "o2", "--summary"]));
    assert!(
        shown.contains("| layers.0.linear1            | Dense              |        108 | f16   |   216 |"),
        "{shown}"
    );
    let unknown = format!("shapes and multiply-adds are unknown: {ENCODER} is weights without code\n");
    assert!(shown.ends_with(&unknown), "{shown}");
    let json = json_of(&["plan", ENCODER, "--summary", "--format", "json"]);
    let numbers: usize = weights::read(root().join(ENCODER)).unwrap().values().map(Tensor::len).sum();
    assert_eq!(json["parameters"], numbers);
    assert_eq!(json["bytes"], 4 * numbers);
    assert!(json["unknown"].as_str().unwrap().ends_with("is weights without code") && json["multiply_adds"].is_null());
}

#[test]
fn a_conversion_is_reported_as_text_json_and_a_page() {
    let folder = Folder::new("files-convert");
    let file = small(&folder);
    let run = |args: &[&str]| precast_in(&folder.0, &[&["convert", &file], args].concat());
    let shown = text(run(&["out.safetensors", "--policy", "o2", "--html", "report.html"]));
    assert!(shown.contains("| fc.weight   | [2, 3] | f32 -> f16 | 1.000e-1 |"), "{shown}");
    assert!(shown.contains("| norm.weight | [3]    | f32        |  1.000e0 |          0 |           - |"), "{shown}");
    assert!(shown.ends_with("1 of 3 tensors changed; 48 B before, 36 B after\nwritten: out.safetensors\n"), "{shown}");
    let page = fs::read_to_string(folder.0.join("report.html")).unwrap();
    assert!(page.contains("<td>fc.weight</td>") && page.contains("prefers-color-scheme: dark"), "{page}");
    assert!(!page.contains("http"), "it needs no other file");
    let written = weights::read(folder.0.join("out.safetensors")).unwrap();
    assert_eq!((written["fc.weight"].dtype(), written["norm.weight"].dtype()), (DType::F16, DType::F32));

    // Existing files stay, unless replacing them is requested.
    let message = error(2, run(&["out.safetensors", "--policy", "o2-bf16"]));
    assert_eq!(message, "error: TO: `out.safetensors` already exists; --force replaces it\n");
    let report = json(run(&["out.safetensors", "--policy", "o2-bf16", "--force", "--format", "json"]));
    assert_eq!((&report["policy"]["name"], &report["bytes_after"]), (&"o2-bf16".into(), &36.into()));
    let of = |name: &str| -> Value {
        let tensors = report["tensors"].as_array().unwrap();
        tensors.iter().find(|tensor| tensor["name"] == name).unwrap().clone()
    };
    assert_eq!((&of("fc.weight")["before"], &of("fc.weight")["after"]), (&"f32".into(), &"bf16".into()));
    let widened =
        precast_in(&folder.0, &["convert", "out.safetensors", "f32.safetensors", "--policy", "o0", "--widen"]);
    assert!(text(widened).contains("| fc.weight   | [2, 3] | bf16 -> f32 |"));
    assert!(error(2, run(&[&file, "--policy", "o2", "--force"])).contains("FROM and TO name one file"));
}

#[test]
fn an_overflow_names_the_tensors_and_both_ways_out() {
    let folder = Folder::new("files-overflow");
    let large = folder.0.join("large.safetensors");
    weights::write(&large, [("fc.weight", Tensor::full(&[2, 2], 1e5, DType::F32))]).unwrap();
    let run = |more: &[&str]| {
        precast_in(&folder.0, &[&["convert", "large.safetensors", "out.safetensors", "--policy", "o2"], more].concat())
    };
    let message = error(1, run(&[]));
    assert!(message.contains("- `fc.weight`: 4 of its values, up to 1e5\n--allow-overflow writes them"), "{message}");
    assert_eq!(folder.names(), ["large.safetensors"]);
    assert!(text(run(&["--allow-overflow"])).contains("values: 4 became infinite"));
}

/// On a disk of 64 KiB, where one can be mounted.
#[test]
#[cfg(target_os = "linux")]
fn a_full_disk_leaves_nothing() {
    use std::process::Command;
    struct Mounted<'a>(&'a Path);
    impl Drop for Mounted<'_> {
        fn drop(&mut self) {
            let _ = Command::new("umount").arg(self.0).status();
        }
    }
    let folder = Folder::new("files-full");
    let disk = folder.0.join("disk");
    fs::create_dir(&disk).unwrap();
    let mount = Command::new("mount").args(["-t", "tmpfs", "-o", "size=64k", "tmpfs"]).arg(&disk).output();
    if !mount.is_ok_and(|mount| mount.status.success()) {
        println!("no small disk can be mounted here");
        return;
    }
    let _mounted = Mounted(&disk);
    let file = folder.0.join("large.safetensors");
    weights::write(&file, [("fc.weight", Tensor::ones(&[1000, 100], DType::F32))]).unwrap();
    let message = error(1, precast_in(&folder.0, &["convert", "large.safetensors", "disk/out", "--policy", "o2"]));
    assert!(message.contains("disk/out: ") && message.contains("space"), "{message}");
    // A folder as well.
    fs::create_dir(folder.0.join("model")).unwrap();
    fs::copy(&file, folder.0.join("model/model.safetensors")).unwrap();
    let message = error(1, precast_in(&folder.0, &["convert", "model", "disk/out", "--policy", "o2"]));
    assert!(message.contains("space"), "{message}");
    assert_eq!(fs::read_dir(&disk).unwrap().count(), 0);
}

#[test]
#[cfg(unix)]
fn a_folder_that_cannot_be_written_says_so() {
    use std::os::unix::fs::PermissionsExt;
    let folder = Folder::new("files-read-only");
    let file = small(&folder);
    let closed = folder.0.join("closed");
    fs::create_dir(&closed).unwrap();
    fs::set_permissions(&closed, PermissionsExt::from_mode(0o555)).unwrap();
    if fs::write(closed.join("x"), "").is_ok() {
        println!("this user writes everywhere");
        return;
    }
    let message = error(1, precast_in(&folder.0, &["convert", &file, "closed/out", "--policy", "o2"]));
    assert!(message.contains("closed/out: "), "{message}");
}

#[test]
fn decisions_are_exported_with_what_cannot_be_said() {
    let of = |to: &str, policy: &str| text(precast(&["export", ENCODER, "--policy", policy, "--to", to]));
    // Reads the table of a Python file.
    let table = |text: &str| -> Value {
        let table = text.split("json.loads(r\"\"\"").nth(1).unwrap().split("\"\"\")").next().unwrap();
        serde_json::from_str(table).unwrap()
    };
    let torch = of("torch", "o2");
    let modules = table(&torch);
    assert_eq!(modules[""], serde_json::json!({"dtype": "float16", "inward": "float16", "outward": "float32"}));
    assert_eq!(modules["norm"], serde_json::json!({"dtype": "float32", "inward": "float32", "outward": "float16"}));
    assert_eq!(modules["layers.0.linear1"], serde_json::json!({"dtype": "float16"}));
    assert!(torch.contains("# What this file cannot say:\n# - float32 masters"), "{torch}");
    assert!(!torch.contains("# - 0 cells"), "{torch}");
    assert_eq!(table(&of("torch", "o1"))["norm"], Value::Null, "at O1 a norm goes by lists of ops");
    assert!(of("torch", "o1").contains("whose ops go by lists"));

    let keras = table(&of("keras", "o2-bf16"));
    assert_eq!((&keras["layers/0/linear1"], &keras["norm"]), (&"mixed_bfloat16".into(), &"float32".into()));

    let rules = "version: 1\nlevel: O2\ndtype: float16\nrules: [{path: layers.0.linear1, run: float32}]\n";
    let folder = Folder::new("files-export");
    let rules = folder.write("rules.yaml", rules);
    // A rule for a part of a run, and one for a stall, are listed among what is not in the file.
    let schedule = "version: 1\nlevel: O2\ndtype: float16\nrules:\n- {path: norm, run: low, until: {step: 9}}\n\
                    - {path: layers.0.linear1, after_stall: raise}\n";
    let schedule = folder.write("schedule.yaml", schedule);
    for to in ["torch", "keras", "torchao", "deepspeed"] {
        let exported = of(to, &schedule);
        for line in [
            "the rule for the path norm (run: low) until step 9: this is what holds after it",
            "1 cell with `after_stall: raise`: no stall raises them",
        ] {
            assert!(exported.contains(line), "{to}: {exported}");
        }
    }
    let torchao = table(&of("torchao", &rules));
    assert_eq!((&torchao["layers.0.linear1"], &torchao["layers.0.linear2"]), (&false.into(), &true.into()));
    let deepspeed: Value = serde_json::from_str(&of("deepspeed", &rules)).unwrap();
    let autocast = serde_json::json!({
        "enabled": true, "dtype": "float16", "lower_precision_safe_modules": ["torch.nn.MultiheadAttention"],
    });
    assert_eq!(deepspeed["torch_autocast"], autocast);
    let lines = deepspeed["_precast"]["cannot_say"].as_array().unwrap();
    let line = "5 of 6 cells of the class torch.nn.Linear run low: the class is left out";
    assert!(lines.iter().any(|met| met == line), "{lines:?}");
    // A class is on the list if all its cells run low, and not if none does.
    for policy in ["o0", "o2"] {
        let all: Value = serde_json::from_str(&of("deepspeed", policy)).unwrap();
        let lines = all["_precast"]["cannot_say"].to_string();
        assert!(!lines.contains("of the class"), "{policy}: {lines}");
    }
    assert_eq!(serde_json::from_str::<Value>(&of("deepspeed", "o0")).unwrap()["torch_autocast"]["enabled"], false);

    // Into a file, and for a network of this library.
    let output = folder.0.join("precision.py");
    let args = ["export", "lenet5_bn", "--policy", "o2", "--to", "torch", "--output", output.to_str().unwrap()];
    let shown = text(precast(&args));
    assert!(shown.contains("\ntorch cannot say:\n- float32 masters"), "{shown}");
    assert_eq!(table(&fs::read_to_string(&output).unwrap())["1"]["dtype"], "float32");
    assert!(error(2, precast(&args)).contains("already exists; --force replaces it"));
    let message = error(2, precast(&["export", ENCODER, "--policy", "o2", "--to", "trch"]));
    assert!(message.contains("unknown library `trch` (did you mean `torch`?); allowed: torch, keras"), "{message}");
}

/// Writes a file with a given header and 16 bytes of data.
fn by_hand(folder: &Folder, name: &str, header: &str) -> String {
    let bytes = [&(header.len() as u64).to_le_bytes()[..], header.as_bytes(), &[0; 16]].concat();
    folder.file(name, bytes).to_str().unwrap().to_string()
}

#[test]
fn what_a_plan_keeps_is_told_by_every_command() {
    let folder = Folder::new("files-kept");
    let of = |shape: &[usize]| Tensor::full(shape, 0.1, DType::F32);
    let file = folder.0.join("llama.safetensors");
    let rotary = "model.layers.0.self_attn.rotary_emb";
    weights::write(
        &file,
        [
            ("model.layers.0.self_attn.q_proj.weight".to_string(), of(&[2, 2])),
            (format!("{rotary}.inv_freq"), of(&[16])),
        ],
    )
    .unwrap();
    let run = |args: &[&str]| precast_in(&folder.0, args);
    let shown = text(run(&["plan", "llama.safetensors", "--policy", "o2"]));
    assert!(shown.contains("runs f16, keeps inv_freq  level O2"), "{shown}");
    let shown = text(run(&["explain", "llama.safetensors", rotary, "--policy", "o2"]));
    assert!(shown.contains("effect   runs f16, keeps inv_freq\n"), "{shown}");
    let shown =
        text(run(&["convert", "llama.safetensors", "low.safetensors", "--policy", "o2", "--html", "page.html"]));
    let line = format!(
        "1 tensor of a cell that runs low stays as it was, not known as a weight: `{rotary}.inv_freq` (no weight of \
         RotaryEmbedding); a rule names a tensor to store it low: `{{ path: \"{rotary}.inv_freq\", run: low }}`\n"
    );
    assert!(shown.contains(&line), "{shown}");
    assert!(fs::read_to_string(folder.0.join("page.html")).unwrap().contains("not known as a weight"));
    let written = weights::read(folder.0.join("low.safetensors")).unwrap();
    let inv_freq = &written[&format!("{rotary}.inv_freq")];
    assert_eq!((inv_freq.dtype(), inv_freq.to_f64()), (DType::F32, vec![f64::from(0.1f32); 16]));
    let args = ["convert", "llama.safetensors", "low.safetensors", "--policy", "o2", "--force", "--format", "json"];
    let report = json(run(&args));
    let tensors = report["tensors"].as_array().unwrap();
    let kept: Vec<&Value> = tensors.iter().map(|tensor| &tensor["kept"]).collect();
    assert!(kept.contains(&&Value::Null) && kept.contains(&&"no weight of RotaryEmbedding".into()), "{kept:?}");

    // A file for torch lists the lowered tensors.
    let torch = text(run(&["export", "llama.safetensors", "--policy", "o2", "--to", "torch"]));
    let tables: Vec<Value> = (torch.split("json.loads(r\"\"\"").skip(1))
        .map(|table| serde_json::from_str(table.split("\"\"\")").next().unwrap()).unwrap())
        .collect();
    let weights_of = |path: &str| {
        let groups = tables[1].as_array().unwrap();
        groups.iter().find(|group| group["modules"].as_array().unwrap().contains(&path.into())).unwrap()["weights"]
            .clone()
    };
    assert_eq!(weights_of(rotary), serde_json::json!({}));
    assert_eq!(weights_of("model.layers.0.self_attn.q_proj")["weight"], serde_json::json!([2, 9]));
    let rules = format!("version: 1\nlevel: O2\ndtype: float16\nrules: [{{ path: {rotary}.inv_freq, run: low }}]\n");
    let rules = folder.write("rules.yaml", &rules);
    let torch = text(run(&["export", "llama.safetensors", "--policy", &rules, "--to", "torch"]));
    let named: Value = serde_json::from_str(
        torch.split("NAMED = json.loads(r\"\"\"").nth(1).unwrap().split("\"\"\")").next().unwrap(),
    )
    .unwrap();
    assert_eq!(named, serde_json::json!([[rotary, "inv_freq", "float16"]]));
}

#[test]
fn files_that_are_something_else_are_told_by_name() {
    let folder = Folder::new("files-else");
    let run = |args: &[&str]| precast_in(&folder.0, args);
    let pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:4665\nsize 548105171\n";
    for name in ["pointer.safetensors", "pointer.yaml", "model/model.safetensors"] {
        folder.file(name, pointer);
    }
    let lfs = "a pointer of Git LFS in place of the file itself, which `git lfs pull` fetches";
    for model in ["pointer.safetensors", "pointer.yaml", "model"] {
        assert!(error(2, run(&["plan", model, "--policy", "o2"])).contains(lfs), "{model}");
    }
    assert!(error(2, run(&["plan", "lenet5", "--policy", "pointer.yaml"])).contains(lfs));
    let of_torch =
        "a file of `torch.save`; write the state dict as safetensors, in Python by `safetensors.torch.save_model(";
    for (name, bytes) in [
        ("real.pt", &b"PK\x03\x04...."[..]),
        ("old.bin", b"\x80\x02\x8a\x0al"),
        ("a.pth", b"PK\x03\x04"),
        ("of_protocol_4.pth", b"\x80\x04\x95\x0a\x00\x00\x00\x00"),
        ("x", b"\x80\x02\x8a"),
    ] {
        folder.file(name, bytes);
        for args in [
            &["plan", name, "--policy", "o2"][..],
            &["graph", name],
            &["convert", name, "out", "--policy", "o2"],
            &["export", name, "--policy", "o2", "--to", "torch"],
            &["explain", name, "fc", "--policy", "o2"],
        ] {
            let message = error(2, run(args));
            assert!(message.contains(of_torch) && message.contains(name), "{args:?}: {message}");
        }
    }
    // The first file of an archive names its writer.
    for (first, words) in
        [("layer/kernel.npy", "arrays of NumPy (npz)"), ("metadata.json", "a file of Keras"), ("a/data.pkl", of_torch)]
    {
        let mut bytes = b"PK\x03\x04".to_vec();
        bytes.resize(26, 0);
        bytes.extend([first.len() as u8, 0, 0, 0]);
        bytes.extend(first.as_bytes());
        folder.file("archive", &bytes);
        assert!(error(2, run(&["plan", "archive", "--policy", "o2"])).contains(words), "{first}");
    }
    folder.file("hub/pytorch_model.bin", b"PK\x03\x04....");
    folder.file("hub/config.json", "{}");
    for args in [&["plan", "hub", "--policy", "o2"][..], &["convert", "hub", "out", "--policy", "o2"]] {
        let message = error(2, run(args));
        assert!(
            message.contains("no file ends in `.safetensors`, and `pytorch_model.bin` is a file of `torch.save`"),
            "{message}"
        );
    }
    let entry = r#""w":{"dtype":"F32","shape":[4],"data_offsets":[0,16]}"#;
    let twice = by_hand(&folder, "twice.safetensors", &format!("{{{entry},{entry}}}"));
    assert!(error(2, run(&["plan", &twice, "--policy", "o2"])).contains("two entries have the name `w`"));
}
