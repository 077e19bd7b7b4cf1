//! The command `precast` on ONNX models: plan, explain, diff and convert.

use std::fs;

use crate::program::{Folder, error, json_of, precast, precast_in, root, text};

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
        (&["vit.onnx", "low.onnx", "--policy", "onnx"][..], "`low.onnx` is there already; --force replaces it"),
        (&["vit.onnx", "new.onnx", "--policy", "o2"], "is a policy of level O2, which decides by cells"),
        (&["vit.onnx", "new.onnx", "--policy", "onnx", "--widen"], "--widen is for weight files"),
        (&["vit.onnx", "new.onnx", "--policy", "onnx", "--low-io=x1"], "the model has no input or output called `x1`"),
        (&["vit.onnx", "new.onnx", "--policy", "onnx", "--inputs", "none.npz"], "--inputs none.npz: "),
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

#[test]
fn a_model_is_exported() {
    let folder = Folder::new("onnx-export");
    let args = ["export", "lenet5", "--policy", "o2", "--to", "onnx", "--output", "net.onnx", "--opset", "17"];
    let shown = text(precast_in(&folder.0, &args));
    assert!(shown.contains(" low, ") && shown.trim_end().ends_with("written: net.onnx"), "{shown}");
    let shown = text(precast_in(&folder.0, &["plan", "net.onnx", "--policy", "o0"]));
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
