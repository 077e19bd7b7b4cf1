//! The command `precast` on ONNX models: plan, explain, diff, convert and run, and as networks.

use std::fs;

use precast::prelude::*;
use precast_graph::onnx::OnnxModel;
use precast_train::data::{npz_arrays, write_npz};

use crate::program::{Folder, error, json, json_of, precast, precast_in, root, text};

/// A vision transformer, exported by torch.
const VIT: &str = "docs/guide/torch-vit.onnx";

#[test]
fn nodes_are_planned_explained_and_compared() {
    let shown = text(precast(&["plan", VIT, "--policy", "onnx"]));
    assert!(shown.starts_with(&format!("model   {VIT}\npolicy  onnx (built in)\n| node ")), "{shown}");
    assert!(shown.trim_end().ends_with("58 of 63 nodes run in float16; 71 without floats"), "{shown}");
    let json = json_of(&["plan", VIT, "--policy", "onnx", "--format", "json"]);
    assert_eq!((&json["low"], &json["full"]), (&58.into(), &5.into()));

    for name in ["a.Softmax", "/a/Softmax"] {
        let shown = text(precast(&["explain", VIT, name, "--policy", "onnx"]));
        assert!(
            shown.trim_end().ends_with("a.Softmax (Softmax)\n  dtype    f32\n  because  on the deny list"),
            "{shown}"
        );
    }
    let message = error(2, precast(&["explain", VIT, "/a/q", "--policy", "onnx"]));
    assert!(message.contains("`/a/q` is a scope, with the nodes `a.q.MatMul`, `a.q.Add`"), "{message}");
    let message = error(2, precast(&["explain", VIT, "a.Softmx", "--policy", "onnx"]));
    assert!(message.contains("no node with floats is called `a.Softmx` (did you mean `a.Softmax`?)"), "{message}");
    let shown = text(precast(&["diff", VIT, "--policy", "onnx", "--policy", "o0"]));
    assert!(shown.contains("and 2 more\n  - runs f16: on the allow list\n  + runs f32: on no list"), "{shown}");
}

#[test]
fn a_model_is_converted_and_level_o0_copies_it() {
    let folder = Folder::new("onnx-convert");
    let model = root().join(VIT);
    fs::copy(&model, folder.0.join("vit.onnx")).unwrap();
    let shown = text(precast_in(&folder.0, &["convert", "vit.onnx", "low.onnx", "--policy", "onnx"]));
    assert!(
        shown.contains("58 of 63 nodes run in float16") && shown.trim_end().ends_with("written: low.onnx"),
        "{shown}"
    );
    text(precast_in(&folder.0, &["convert", "vit.onnx", "same.onnx", "--policy", "o0"]));
    assert!(fs::read(folder.0.join("same.onnx")).unwrap() == fs::read(folder.0.join("vit.onnx")).unwrap());
    text(precast_in(&folder.0, &["convert", "vit.onnx", "x.onnx", "--policy", "onnx-bf16", "--explicit"]));

    for (arguments, words) in [
        (&["vit.onnx", "low.onnx", "--policy", "onnx"][..], "`low.onnx` already exists; --force replaces it"),
        (&["vit.onnx", "new.onnx", "--policy", "o2"], "is a policy of level O2, which decides by cells"),
        (&["vit.onnx", "new.onnx", "--policy", "onnx", "--widen"], "--widen is for weight files"),
        (&["vit.onnx", "new.onnx", "--policy", "onnx", "--low-io=x1"], "the model has no input or output called `x1`"),
        (&["vit.onnx", "new.onnx", "--policy", "onnx", "--inputs", "none.npz"], "--inputs none.npz: "),
        (&["vit.onnx", "new.npz", "--policy", "onnx"], "expected one that ends in `.onnx`"),
        (&["vit.onnx", "new.onnx", "--policy", "onnx", "--explicit", "--low-io"], "--explicit and --low-io exclude"),
        (&["vit.onnx", "new.onnx", "--policy", "onnx", "--inputs", "new.onnx"], "--inputs and TO name one file"),
        (&["vit.onnx", "none/new.onnx", "--policy", "onnx"], "TO: none/new.onnx: "),
    ] {
        let run = precast_in(&folder.0, &[&["convert"], arguments].concat());
        let message = String::from_utf8(run.stderr).unwrap();
        assert!(!run.status.success() && message.contains(words), "{message}");
    }
    assert!(!folder.0.join("new.onnx").exists());
    fs::write(folder.0.join("cut.onnx"), &fs::read(&model).unwrap()[..1000]).unwrap();
    let message = error(2, precast_in(&folder.0, &["convert", "cut.onnx", "new.onnx", "--policy", "onnx"]));
    assert!(message.contains("cut.onnx: byte "), "{message}");
}

/// Writes images for the transformer.
fn images(file: &std::path::Path) {
    let x = Tensor::randn(&[2, 3, 32, 32], &mut Rng::seed(1)).unwrap();
    write_npz(file, [("x0", &x)]).unwrap();
}

#[test]
fn inputs_without_a_range_are_refused() {
    let folder = Folder::new("onnx-no-range");
    fs::copy(root().join(VIT), folder.0.join("vit.onnx")).unwrap();
    for (number, words) in
        [(f32::NAN, "has NaN"), (f32::INFINITY, "has infinities alone"), (f32::NEG_INFINITY, "alone")]
    {
        let x = Tensor::from_vec(vec![number; 2 * 3 * 32 * 32], &[2, 3, 32, 32]).unwrap();
        write_npz(folder.0.join("x.npz"), [("x0", &x)]).unwrap();
        let said = error(2, precast_in(&folder.0, &["plan", "vit.onnx", "-p", "onnx", "--inputs", "x.npz"]));
        assert!(said.contains("--inputs x.npz") && said.contains("`x0`") && said.contains(words), "{said}");
    }
}

#[test]
fn a_model_runs_and_is_compared_with_what_was_made_of_it() {
    let folder = Folder::new("onnx-run");
    fs::copy(root().join(VIT), folder.0.join("vit.onnx")).unwrap();
    images(&folder.0.join("x.npz"));
    let run = |more: &[&str]| precast_in(&folder.0, &[&["run", "vit.onnx", "--inputs", "x.npz"], more].concat());
    let shown = text(run(&["--outputs", "y.npz"]));
    assert!(shown.starts_with("model   vit.onnx\n| output "), "{shown}");
    assert!(shown.contains("| y0 ") && shown.trim_end().ends_with("written: y.npz"), "{shown}");
    if cfg!(target_os = "linux") {
        let said = error(1, run(&["--outputs", "/dev/full"]));
        assert!(said.starts_with("error: /dev/full: ") && said.lines().count() == 1, "{said}");
    }
    let x = npz_arrays(folder.0.join("x.npz")).unwrap().swap_remove(0).1;
    let wanted = OnnxModel::open(root().join(VIT)).unwrap().run(&[("x0", x)]).unwrap();
    let met = npz_arrays(folder.0.join("y.npz")).unwrap();
    assert_eq!((&met[0].0, met[0].1.to_f64()), (&wanted[0].0, wanted[0].1.to_f64()));

    // The model converted to a file, and converted for the run alone.
    text(precast_in(&folder.0, &["convert", "vit.onnx", "low.onnx", "--policy", "onnx"]));
    let differs = |more: &[&str]| {
        let rows = json(run(&[more, &["--format", "json"]].concat()));
        rows[0]["differs"]["largest"].as_f64().unwrap()
    };
    let low = differs(&["--against", "low.onnx"]);
    assert!(low > 0.0 && low < 1e-2, "{low}");
    assert_eq!(differs(&["--policy", "onnx"]), low);
    assert_eq!(differs(&["--against", "vit.onnx"]), 0.0);
    let cells = differs(&["--policy", "o2-bf16"]);
    assert!(cells > 0.0 && cells < 0.1, "{cells}");

    for (more, words) in [
        (&["--against", "x.npz"][..], "`x.npz` is not an ONNX model by its name"),
        (&["--fix", "sr=16000"], "the model has no input `sr`; allowed: x0"),
        (&["--fix", "sr"], "expected NAME=VALUE"),
        (&["--fix", "sr=fast"], "`fast` is not a value; allowed: a number, true or false"),
        (&["--axis", "sequence=12"], "the model has no symbolic axis `sequence`"),
        (&["--axis", "sequence=long"], "`long` is not a length; expected a whole number"),
        (&["--policy", "onyx"], "did you mean `onnx`"),
        (&["--outputs", "none/y.npz"], "none/y.npz"),
        (&["--outputs", "x.npz"], "--inputs and --outputs name one file, `x.npz`"),
        (&["--outputs", "vit.onnx"], "MODEL and --outputs name one file, `vit.onnx`"),
        (&["--against", "low.onnx", "--outputs", "low.onnx"], "--against and --outputs name one file"),
    ] {
        let message = error(2, run(more));
        assert!(message.contains(words), "{message}");
    }
    // The numbers of the model are in a file of their own.
    text(precast_in(
        &folder.0,
        &["convert", "vit.onnx", "parts.onnx", "--policy", "onnx", "--external", "1000", "--quiet"],
    ));
    let data = fs::read(folder.0.join("parts.onnx.data")).unwrap();
    for args in [
        &["run", "parts.onnx", "--inputs", "x.npz", "--outputs", "parts.onnx.data"][..],
        &["graph", "parts.onnx", "--policy", "onnx", "--svg", "./parts.onnx.data"],
        &["export", "parts.onnx", "--policy", "o2", "--to", "torch", "--output", "parts.onnx.data", "--force"],
    ] {
        let message = error(2, precast_in(&folder.0, args));
        assert!(message.contains("parts.onnx.data` is a data file of MODEL, `parts.onnx`, which is read"), "{message}");
    }
    assert!(fs::read(folder.0.join("parts.onnx.data")).unwrap() == data);
    let other = Tensor::ones(&[2, 3, 32, 32], DType::F32);
    write_npz(folder.0.join("z.npz"), [("x", &other)]).unwrap();
    let message = error(2, precast_in(&folder.0, &["run", "vit.onnx", "--inputs", "z.npz"]));
    assert!(message.contains("--inputs for vit.onnx: the model has no input `x`; allowed: x0"), "{message}");
}

#[test]
fn ranges_on_inputs_decide_a_plan() {
    let folder = Folder::new("onnx-ranges");
    let large = Tensor::full(&[2, 3, 32, 32], 60000.0, DType::F32);
    write_npz(folder.0.join("large.npz"), [("x0", &large)]).unwrap();
    let inputs = folder.0.join("large.npz");
    let inputs = inputs.to_str().unwrap();
    let few = |args: &[&str]| json_of(args)["low"].as_u64().unwrap();
    let plan = ["plan", VIT, "--policy", "onnx", "--format", "json"];
    assert!(few(&[&plan[..], &["--inputs", inputs]].concat()) < few(&plan));
    let shown = text(precast(&["explain", VIT, "pe.Conv", "--policy", "onnx", "--inputs", inputs]));
    assert!(shown.contains("reached"), "{shown}");
    for (arguments, words) in [
        (
            &["plan", VIT, "--policy", "o2", "--inputs", inputs][..],
            "--inputs measures an ONNX model for a policy for graphs",
        ),
        (&["plan", "mlp", "--policy", "o2", "--inputs", inputs], "--inputs measures an ONNX model"),
        (&["plan", VIT, "--policy", "onnx", "--predict"], "--predict is about a call"),
        (&["plan", VIT, "--policy", "onnx", "--batch", "3"], "--batch is about a call"),
        (&["explain", VIT, "x", "--policy", "onnx", "--train"], "--train is about a call"),
        (&["plan", VIT], "an ONNX model needs a policy"),
        (&["plan", VIT, "--policy", "onnx", "--inputs", "none.npz"], "--inputs none.npz: "),
    ] {
        let message = error(2, precast(arguments));
        assert!(message.contains(words), "{message}");
    }
}

/// An imported model is a network for every command that takes one.
#[test]
fn the_cells_of_an_imported_model_are_planned() {
    let shown = text(precast(&["plan", VIT, "--policy", "o2-bf16"]));
    assert!(shown.contains("Conv2d") && shown.contains("LayerNorm") && shown.contains("Dense"), "{shown}");
    let shown = text(precast(&["diff", VIT, "--policy", "o2", "--policy", "o0"]));
    assert!(shown.contains("- runs"), "{shown}");
    let shown = text(precast(&["graph", VIT]));
    assert!(shown.contains("LayerNorm"), "{shown}");
    let message = error(2, precast(&["diff", VIT, "--policy", "o2", "--policy", "onnx"]));
    assert!(message.contains("o2 (built in) decides by the cells of the imported network"), "{message}");
}

#[test]
fn the_nodes_of_a_file_are_drawn() {
    let folder = Folder::new("onnx-graph");
    let (svg, dot) = (folder.0.join("vit.svg"), folder.0.join("vit.dot"));
    let shown = text(precast(&[
        "graph",
        VIT,
        "--policy",
        "onnx",
        "--svg",
        svg.to_str().unwrap(),
        "--dot",
        dot.to_str().unwrap(),
    ]));
    assert!(shown.trim_end().ends_with("58 of 63 nodes run in float16; 71 without floats"), "{shown}");
    let svg = fs::read_to_string(svg).unwrap();
    assert!(svg.contains("a.Softmax Softmax()\nf32\nin a\nf32: on the deny list"), "{svg}");
    // A cast before the softmax and one after it, and one for each weight that is read low.
    assert!(svg.contains(">to f32</text>") && svg.contains(">to f32 · returned</text>"), "{svg}");
    let dot = fs::read_to_string(dot).unwrap();
    assert!(dot.contains("\"a.Softmax\" -> "), "{dot}");
    for (more, words) in [(&["--fewer-casts"][..], "--fewer-casts is for"), (&["--json", "x.json"], "--json is for")] {
        let message = error(2, precast(&[&["graph", VIT, "--policy", "onnx"], more].concat()));
        assert!(message.contains(words), "{message}");
    }
}

#[test]
fn a_model_is_exported() {
    let folder = Folder::new("onnx-export");
    let args = ["export", "lenet5", "--policy", "o2", "--to", "onnx", "--output", "net.onnx", "--opset", "17"];
    let shown = text(precast_in(&folder.0, &args));
    assert!(shown.contains(" low, ") && shown.trim_end().ends_with("written: net.onnx"), "{shown}");
    let shown = text(precast_in(&folder.0, &["plan", "net.onnx", "--policy", "onnx"]));
    assert!(shown.contains("conv2d_1"), "{shown}");
    text(precast_in(&folder.0, &["export", "mlp", "--to", "onnx", "--output", "plain.onnx"]));

    for (arguments, words) in [
        (&["mlp", "--to", "onnx"][..], "--to onnx writes a file; --output names it"),
        (
            &["mlp", "--to", "onnx", "--output", "new.onnx", "--opset", "12"],
            "opset 12 cannot be written; allowed: 13 to 24",
        ),
        (&["mlp", "--to", "torch", "--policy", "o2", "--explicit"], "--opset and --explicit are for --to onnx"),
        (&["mlp", "--to", "torch"], "--policy and --to say what is exported"),
        (&["mlp", "--to", "onyx", "--output", "new.onnx"], "onnx"),
        (&["net.onnx", "--to", "onnx", "--output", "new.onnx"], "`net.onnx` is an ONNX model already"),
    ] {
        let message = error(2, precast_in(&folder.0, &[&["export"], arguments].concat()));
        assert!(message.contains(words), "{message}");
    }
    assert!(!folder.0.join("new.onnx").exists());
}
