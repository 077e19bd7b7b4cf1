//! Files that commands write: each has a place of its own, outside the folders of runs, which is checked before the work.

use std::fs;

use crate::program::{Folder, error, precast_in, text};

#[test]
fn names_of_other_formats_are_refused() {
    let folder = Folder::new("endings");
    let weights = precast::layers::Dense::new(2, 2, &mut precast::layers::Rng::seed(0));
    precast::storage::weights::save(&precast::Child::new(weights), folder.0.join("w.safetensors")).unwrap();
    for (arguments, words) in [
        (
            &["convert", "w.safetensors", "out.onnx", "--policy", "o2"][..],
            "TO: `out.onnx` is the name of an ONNX model; expected one that ends in `.safetensors`",
        ),
        (
            &["convert", "w.safetensors", "out.npz", "--policy", "o2"],
            "TO: `out.npz` is the name of an archive of NumPy",
        ),
        (
            &["convert", "w.safetensors", "a.safetensors", "-p", "o2", "--html", "r.json"],
            "--html: `r.json` is the name of",
        ),
        (&["export", "lenet5", "-p", "o2", "--to", "onnx", "-o", "m.safetensors"], "expected one that ends in `.onnx`"),
        (
            &["export", "lenet5", "-p", "o2", "--to", "torch", "-o", "m.onnx"],
            "expected one that ends in `.py` or `.json`",
        ),
        (&["graph", "lenet5", "--svg", "g.dot"], "--svg: `g.dot` is the name of a graph in DOT; expected"),
        (&["graph", "lenet5", "--json", "g.SVG"], "--json: `g.SVG` is the name of a drawing in SVG; expected"),
        (&["plan", "lenet5", "-p", "o2", "--html", "-"], "--html: expected the name of a file, got `-`; `./-` is"),
        (&["init", "lenet5", "-o", "p.onnx"], "--output: `p.onnx` is the name of an ONNX model; expected"),
        (
            &["show", "bench", "--speeds", "s.yaml"],
            "--speeds: `s.yaml` is the name of YAML; expected one that ends in `.json`",
        ),
    ] {
        let said = error(2, precast_in(&folder.0, arguments));
        assert!(said.contains(words), "{said}");
    }
    assert_eq!(fs::read_dir(&folder.0).unwrap().count(), 1);
    text(precast_in(&folder.0, &["graph", "lenet5", "--svg", "g", "--dot", "g.txt"]));
}

#[test]
fn two_outputs_onto_one_file_are_refused() {
    let folder = Folder::new("one-file");
    fs::create_dir(folder.0.join("sub")).unwrap();
    folder.write("taken.svg", "before");
    let tune = ["tune", "lenet5_8x8", "--data", "digits", "--policy", "o2", "--metric", "relative", "--budget", "1"];
    let graph = ["graph", "lenet5"];
    let convert = ["convert", "w.safetensors", "out.safetensors", "--policy", "o2"];
    for (command, outputs, message) in [
        (&tune[..], &["--output", "x.yaml", "--svg", "x.yaml"][..], "--output and --svg name one file, `x.yaml`"),
        (&tune, &["--output", "x.yaml", "--svg", "sub/../x.jsonl"], "--svg and the file of runs name one file"),
        (&tune, &["--output", "taken.svg", "--svg", "./taken.svg", "--force"], "--output and --svg name one file"),
        (&graph, &["--svg", "g", "--dot", "./g"], "--svg and --dot name one file, `./g`"),
        (&graph, &["--dot", "g", "--json", "sub/../g"], "--dot and --json name one file"),
        (&convert, &["--html", "out.safetensors"], "TO and --html name one file"),
        (&convert, &["--html", "w.safetensors"], "FROM and --html name one file"),
        // A file that is read is not replaced, whatever is forced.
        (&["convert", "taken.svg", "taken.svg", "-p", "o2"], &[], "FROM and TO name one file, `taken.svg`"),
        (&["convert", "sub", "./sub", "-p", "o2"], &["--force"], "FROM and TO name one file, `./sub`"),
        (&["init", "taken.svg"], &["--output", "taken.svg", "--force"], "MODEL and --output name one file"),
        (
            &["init", "mlp", "--policy", "taken.svg"],
            &["--output", "sub/../taken.svg", "--force"],
            "--policy and --output name one file",
        ),
        (
            &["export", "taken.svg", "--policy", "o2", "--to", "torch"],
            &["--output", "taken.svg", "--force"],
            "MODEL and --output name one file",
        ),
        (&tune[..], &["--weights", "taken.svg", "--svg", "taken.svg"], "--weights and --svg name one file"),
        (
            &["convert", "w.safetensors", "taken.svg", "--policy", "taken.svg"],
            &["--force"],
            "--policy and TO name one file",
        ),
        (
            &["predict", "run", "taken.svg"],
            &["--output", "taken.svg", "--force"],
            "EXAMPLES and --output name one file",
        ),
        (
            &["predict", "run", "."],
            &["--output", "taken.svg", "--force"],
            "--output: `taken.svg` is in the folder of EXAMPLES, `.`, which is read",
        ),
    ] {
        let said = error(2, precast_in(&folder.0, &[command, outputs].concat()));
        assert!(said.contains(message), "{said}");
    }
    let mut files: Vec<_> = fs::read_dir(&folder.0).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    files.sort();
    assert_eq!(files, ["sub", "taken.svg"]);
    assert_eq!(fs::read_to_string(folder.0.join("taken.svg")).unwrap(), "before");
}

/// Every flag that names a file to write refuses one that is there, before it reads anything.
#[test]
fn no_command_replaces_a_file_unless_it_is_forced() {
    let folder = Folder::new("taken");
    folder.write("taken", "before");
    fs::create_dir(folder.0.join("r")).unwrap();
    folder.write("r/run.yaml", "");
    for (command, flag) in [
        ("show bench", "--speeds"),
        ("convert w.safetensors taken --policy o2", "TO"),
        ("convert model.onnx taken --policy onnx", "TO"),
        ("convert w.safetensors new.safetensors --policy o2", "--html"),
        ("export mlp --policy o2 --to torch", "--output"),
        ("export mlp --policy o2 --to onnx", "--output"),
        ("export r --weights both", "--output"),
        ("graph mlp", "--svg"),
        ("graph mlp", "--dot"),
        ("graph mlp", "--json"),
        ("graph model.onnx --policy onnx", "--svg"),
        ("init mlp", "--output"),
        ("plan mlp --policy o2", "--html"),
        ("predict r new.csv", "--output"),
        ("replay r/faults/step-1 --cure", "--output"),
        ("run model.onnx --inputs x.npz", "--outputs"),
        ("show runs r", "--html"),
        ("tune mlp --data digits --budget 1", "--output"),
        ("tune mlp --data digits --budget 1", "--svg"),
    ] {
        let more = if flag == "TO" { vec![] } else { vec![flag, "taken"] };
        let said = error(2, precast_in(&folder.0, &[command.split(' ').collect(), more].concat()));
        assert_eq!(said, format!("error: {flag}: `taken` already exists; --force replaces it\n"), "{command}");
    }
    assert_eq!(fs::read_to_string(folder.0.join("taken")).unwrap(), "before");

    text(precast_in(&folder.0, &["graph", "mlp", "--svg", "taken", "--force"]));
    assert!(fs::read_to_string(folder.0.join("taken")).unwrap().contains("</svg>"));
    #[cfg(unix)]
    text(precast_in(&folder.0, &["graph", "mlp", "--dot", "/dev/null"]));
}

/// A comparison replaces the results of an earlier one, and no files of others that have their names.
#[test]
fn train_replaces_only_results_of_its_own() {
    let folder = Folder::new("taken-results");
    let train = || {
        let args = ["train", "mlp", "-p", "o2", "--epochs", "1", "--examples", "32", "--quiet", "--save-weights"];
        precast_in(&folder.0, &args)
    };
    text(train());
    text(train());
    for name in ["metrics.json", "plans.txt", "curves.svg", "o2.safetensors"] {
        fs::remove_dir_all(folder.0.join("precast-out")).unwrap();
        fs::create_dir(folder.0.join("precast-out")).unwrap();
        folder.write(&format!("precast-out/{name}"), "before");
        let said = error(2, train());
        assert!(said.contains(&format!("/{name}` already exists, in a folder without results of `train`")), "{said}");
        assert_eq!(fs::read_to_string(folder.0.join("precast-out").join(name)).unwrap(), "before");
    }
}

/// A run keeps its files to the end, so no command writes next to them, whatever its flag is called.
#[test]
fn no_command_writes_into_the_folder_of_a_run() {
    let folder = Folder::new("into-a-run");
    let run = "{version: 1, model: mlp, policy: o2-bf16, data: digits, epochs: 1, batch: 512}";
    folder.write("run.yaml", run);
    text(precast_in(&folder.0, &["train", "run.yaml", "--quiet"]));
    let listed = || {
        let files = fs::read_dir(folder.0.join("runs/o2-bf16")).unwrap();
        let mut files: Vec<_> = files.map(|file| file.unwrap().path()).collect();
        files.sort();
        files.into_iter().filter(|file| file.is_file()).map(|file| (fs::read(&file).unwrap(), file)).collect::<Vec<_>>()
    };
    let before = listed();
    for command in [
        "init mlp --output runs/o2-bf16/new.yaml",
        "init mlp --output runs/o2-bf16/policy.yaml --force",
        "init mlp --output runs/o2-bf16",
        "init mlp --output runs/../runs/o2-bf16/new.yaml",
        "predict runs/o2-bf16 digits.csv --output runs/o2-bf16/run.yaml --force",
        "export mlp --policy o2 --to torch --output runs/o2-bf16/precision.py",
        "export runs/o2-bf16 --weights both --output runs/o2-bf16/best.safetensors --force",
        "tune runs/o2-bf16 --budget 1 --svg runs/o2-bf16/tuned.svg",
        "graph mlp --svg runs/o2-bf16/plan.txt",
        "show runs --html runs/o2-bf16/report.html",
        "show bench --speeds runs/o2-bf16/about.json",
        "convert w.safetensors runs/o2-bf16/w.safetensors --policy o2",
        "train mlp --output runs/o2-bf16",
    ] {
        let said = error(2, precast_in(&folder.0, &command.split(' ').collect::<Vec<_>>()));
        assert!(said.contains("is in the folder of a run, `"), "{command}: {said}");
    }
    assert!(before == listed());
}
