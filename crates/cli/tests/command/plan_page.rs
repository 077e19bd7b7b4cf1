//! The page of `--html`: of `plan`, and of the commands that find something at cells.

use std::{collections::HashSet, fs, path::Path};

use precast::Plan;
use serde_json::{Value, json};

use crate::program::{Folder, error, json_of, precast, precast_in, text};

/// Returns the data of a page, which must be HTML that needs nothing else.
fn data_of(page: &Path) -> Value {
    let page = fs::read_to_string(page).unwrap();
    assert!(page.starts_with("<!doctype html>") && page.trim_end().ends_with("</html>"));
    let (head, rest) = page.split_once("<script type=\"application/json\" id=\"data\">").unwrap();
    let (data, code) = rest.split_once("</script>").unwrap();
    for other in ["http:", "https:", "src=", "href=", "url(", "@import", "fetch(", "import(", "innerHTML"] {
        assert!(!head.contains(other) && !code.contains(other), "{other}");
    }
    assert!(!data.contains('<'));
    serde_json::from_str(data).unwrap()
}

/// Checks that one plan of a page has what the text of a plan has of each cell.
fn check_plan(data: &Value, at: usize, expected: &Plan) {
    let text = |place: &Value| data["texts"][place.as_u64().unwrap() as usize].as_str().unwrap().to_string();
    let rows = data["plans"][at]["cells"].as_array().unwrap();
    assert_eq!(rows.len(), expected.decisions.len());
    for ((row, cell), decision) in rows.iter().zip(data["cells"].as_array().unwrap()).zip(&expected.decisions) {
        assert_eq!((cell[0].as_str().unwrap(), text(&cell[1])), (&*decision.path, decision.kind.to_string()));
        let words = [decision.run.to_string(), decision.effect(), decision.reasons(&mut HashSet::new())];
        assert_eq!([0, 1, 2].map(|column| text(&row[column])), words);
        assert_eq!(row[4], u8::from(decision.adapter.is_some()));
        let explanation = expected.explain(&decision.path).unwrap().to_string();
        let lines: Vec<String> = row[6].as_array().unwrap().iter().map(text).collect();
        assert_eq!(lines, explanation.lines().skip(1).map(str::trim_start).collect::<Vec<_>>());
    }
}

/// Returns the casts of a cell in one plan: dtypes, their number, bytes read and written.
fn casts(data: &Value, plan: usize, cell: usize) -> Vec<Value> {
    let text = |place: &Value| data["texts"][place.as_u64().unwrap() as usize].clone();
    let casts = data["plans"][plan]["cells"][cell][7].as_array().unwrap().iter();
    casts.map(|cast| json!([text(&cast[0]), text(&cast[1]), cast[2], cast[3], cast[4]])).collect()
}

fn plan_of(model: &str, policy: &str) -> Plan {
    serde_json::from_value(json_of(&["plan", model, "--policy", policy, "--format", "json"])).unwrap()
}

#[test]
fn a_page_has_the_decisions_and_the_sizes_of_every_cell() {
    let folder = Folder::new("page");
    let file = folder.0.join("a.html");
    let shown = text(precast(&["plan", "lenet5_bn", "-p", "o2", "--html", file.to_str().unwrap()]));
    assert_eq!(shown, text(precast(&["plan", "lenet5_bn", "-p", "o2"])), "the plan is printed as without a page");
    assert_eq!(folder.names(), ["a.html"]);
    let data = data_of(&file);
    check_plan(&data, 0, &plan_of("lenet5_bn", "o2"));

    let summary = json_of(&["plan", "lenet5_bn", "-p", "o2", "--summary", "--format", "json"]);
    assert_eq!((&data["input"], &data["plans"][0]["bytes"]), (&summary["input"], &summary["bytes"]));
    for (i, cell) in summary["cells"].as_array().unwrap().iter().enumerate() {
        let columns = ["parameters", "trained", "calls", "outputs", "multiply_adds"].map(|key| cell[key].clone());
        assert_eq!(json!(data["cells"][i].as_array().unwrap()[2..]), json!(columns));
        assert_eq!(data["plans"][0]["cells"][i][5], cell["bytes"]);
    }

    // The root casts an image of 32 by 32 numbers. Its outputs would be widened by the op that reads them.
    assert_eq!(casts(&data, 0, 0), [json!(["f32", "f16", 1, 4096, 2048])]);
    // The first convolution has low copies of 150 weights and 6 biases.
    assert_eq!(casts(&data, 0, 1), [json!(["f32", "f16", 2, 624, 312])]);
    // The batch norm after it narrows 6 planes of 28 by 28 numbers.
    assert_eq!(casts(&data, 0, 2), [json!(["f32", "f16", 1, 18816, 9408])]);
    assert!(casts(&data, 0, 3).is_empty(), "a ReLU casts nothing");
}

#[test]
fn a_page_of_two_policies_marks_the_cells_that_differ() {
    let folder = Folder::new("page-two");
    let rules = folder.write(
        "rules.yaml",
        "version: 1\nlevel: O2\ndtype: float16\ncells: { full: { add: [Softmax] } }\nrules:\n\
         - {path: '0', run: float32, because: the first}\n",
    );
    let file = folder.0.join("a.html");
    let args = ["lenet5_bn", "-p", "o2", "-p", &rules];
    let shown = text(precast(&[&["plan"], &args[..], &["--html", file.to_str().unwrap()]].concat()));
    assert_eq!(shown, text(precast(&[&["diff"], &args[..]].concat())));
    let data = data_of(&file);
    check_plan(&data, 0, &plan_of("lenet5_bn", "o2"));
    check_plan(&data, 1, &plan_of("lenet5_bn", &rules));
    assert_eq!(data["differ"], json!([1]));
    // The first convolution has a widened copy of the image, and no low copy of its weights.
    assert_eq!(casts(&data, 1, 1), [json!(["f16", "f32", 1, 2048, 4096])]);
    // A call under one policy leaves no low copies of weights to that under the other.
    for plan in [0, 1] {
        assert_eq!(casts(&data, plan, 5), [json!(["f32", "f16", 2, 4 * 2416, 2 * 2416])]);
    }
    assert_eq!(data["plans"][0]["rules"], json!([["kind BatchNorm2d", "full list", "precast-1", null, 2, 2]]));
    let of_rules = json!([
        ["path 0", "run: float32", format!("{rules}:6:3"), "the first", 1, 1],
        ["kind BatchNorm2d", "full list", "precast-1", null, 2, 2],
        ["kind Softmax", "full list", format!("{rules}:4:24"), null, 0, 0],
    ]);
    assert_eq!(data["plans"][1]["rules"], of_rules);
}

#[test]
fn names_and_reasons_cannot_end_the_data_of_a_page() {
    let folder = Folder::new("page-hostile");
    let hostile = "</script><img src=x onerror=alert(1)>";
    let header =
        json!({format!("{hostile}.weight"): {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]}}).to_string();
    let bytes = [&(header.len() as u64).to_le_bytes(), header.as_bytes(), &[0; 24]].concat();
    folder.file("w.safetensors", bytes);
    let rule = json!({"path": "**", "run": "float32", "because": hostile});
    let policy = json!({"version": 1, "level": "O2", "dtype": "float16", "rules": [rule]});
    folder.write("p.yaml", &policy.to_string());
    text(precast_in(&folder.0, &["plan", "w.safetensors", "-p", "p.yaml", "--html", "a.html"]));
    let data = data_of(&folder.0.join("a.html"));
    assert_eq!(data["cells"][1][0], hostile);
    assert_eq!(data["plans"][0]["rules"][0][3], hostile);
    assert!(data["unknown"].as_str().unwrap().contains("weights without code"), "{}", data["unknown"]);
}

/// The nodes of a recorded graph, and those of an ONNX file; casts are none of the network's own.
#[test]
fn a_page_of_policies_for_graphs_has_their_nodes() {
    let folder = Folder::new("page-nodes");
    let onnx = format!("{}/../../docs/guide/torch-vit.onnx", env!("CARGO_MANIFEST_DIR"));
    for (model, [a, b]) in [("lenet5_bn", ["graph", "graph-bf16"]), (&*onnx, ["onnx", "onnx-bf16"])] {
        text(precast_in(&folder.0, &["diff", model, "-p", a, "-p", b, "--html", "b.html", "--force"]));
        text(precast_in(&folder.0, &["plan", model, "-p", a, "--html", "a.html", "--force"]));
        let [one, two] = ["a.html", "b.html"].map(|page| data_of(&folder.0.join(page)));
        let nodes = json_of(&["plan", model, "-p", a, "--format", "json"])["nodes"].as_array().unwrap().clone();
        let nodes: Vec<&Value> =
            nodes.iter().filter(|node| node["op"] != "Cast" || !node["because"].is_null()).collect();
        for data in [&one, &two] {
            let names = data["cells"].as_array().unwrap()[1..].iter().map(|cell| &cell[0]).collect::<Vec<_>>();
            let expected = nodes.iter().map(|node| &node["node"]).filter(|name| names.contains(name));
            assert!(names.len() > 5 && expected.eq(names.iter().copied()), "{model}");
        }
        assert_eq!((one["plans"].as_array().unwrap().len(), two["plans"].as_array().unwrap().len()), (1, 2));
        assert!(!two["differ"].as_array().unwrap().is_empty());
    }
}

#[test]
fn a_page_that_cannot_be_written_is_refused_before_the_work() {
    let folder = Folder::new("page-wrong");
    folder.write("taken.html", "before");
    folder.write("p.yaml", "version: 1\nlevel: O2\ndtype: float16\n");
    let before = folder.names();
    for (args, words) in [
        ("plan mlp -p o2 --html taken.html", "--html: `taken.html` already exists; --force replaces it"),
        ("plan mlp -p o2 --html p.json", "--html: `p.json` is the name of JSON; expected one that ends in `.html`"),
        ("plan mlp -p p.yaml --html p.yaml --force", "--policy and --html name one file, `p.yaml`"),
        ("plan mlp -p o2 --html no/a.html", "--html: "),
        ("plan mlp -p o2 -p graph --html a.html", "--html compares the decisions of two policies about the same cells"),
        ("diff mlp -p graph -p o1 --html a.html", "--html compares the decisions of two policies about the same cells"),
        ("plan mlp -p o2 -p o3", "--policy was given 2 times; `diff` compares two"),
        ("plan mlp -p o1 -p o2 -p o3 --html a.html", "--policy was given 3 times"),
        ("plan mlp -p o2 --html a.html --summary", "cannot be used with"),
    ] {
        let said = error(2, precast_in(&folder.0, &args.split(' ').collect::<Vec<_>>()));
        assert!(said.contains(words), "{args}: {said}");
    }
    assert_eq!(folder.names(), before);
    assert_eq!(fs::read_to_string(folder.0.join("taken.html")).unwrap(), "before");
    text(precast_in(&folder.0, &["plan", "mlp", "-p", "o2", "--html", "taken.html", "--force"]));
    check_plan(&data_of(&folder.0.join("taken.html")), 0, &plan_of("mlp", "o2"));
}

/// Returns the notes of a page with the paths of their cells.
fn notes(data: &Value) -> Vec<(String, Vec<Value>)> {
    let notes = data["notes"].as_object().unwrap().iter();
    let path = |i: &str| data["cells"][i.parse::<usize>().unwrap()][0].as_str().unwrap().to_string();
    notes.map(|(i, notes)| (path(i), notes.as_array().unwrap().clone())).collect()
}

#[test]
fn a_page_of_two_policies_is_that_of_diff() {
    let folder = Folder::new("page-diff");
    let two = ["lenet5_bn", "-p", "o2", "-p", "o3", "--html"];
    let shown = text(precast_in(&folder.0, &[&["plan"], &two[..], &["plan.html"]].concat()));
    assert_eq!(text(precast_in(&folder.0, &[&["diff"], &two[..], &["diff.html"]].concat())), shown);
    let page = |name: &str| fs::read_to_string(folder.0.join(name)).unwrap();
    assert_eq!(page("diff.html"), page("plan.html"));
    let said = error(2, precast_in(&folder.0, &["diff", "mlp", "-p", "o2", "-p", "graph", "--html", "a.html"]));
    assert!(said.contains("--html compares the decisions of two policies"), "{said}");
}

#[test]
fn a_page_has_what_a_lint_found_at_its_cells() {
    let folder = Folder::new("page-lint");
    let args = ["lint", "lenet5", "-p", "o3", "--all", "--format", "json", "--html", "a.html"];
    let said = precast_in(&folder.0, &args);
    let found: Value = serde_json::from_slice(&said.stdout).unwrap();
    let found = found["findings"].as_array().unwrap();
    assert!(!found.is_empty());
    let shown: Vec<Value> =
        notes(&data_of(&folder.0.join("a.html"))).into_iter().flat_map(|(_, notes)| notes).collect();
    for finding in found {
        let is_it = |note: &&Value| {
            note[0] == finding["severity"] && note[1].as_str().unwrap().contains(finding["what"].as_str().unwrap())
        };
        assert!(shown.iter().any(|note| is_it(&note)), "{finding}: {shown:?}");
    }
}

#[test]
fn a_page_has_the_errors_of_cells_and_the_result_of_a_search() {
    let folder = Folder::new("page-errors");
    let args = ["lenet5_8x8", "--data", "digits", "-p", "o2-bf16", "--html"];
    text(precast_in(&folder.0, &[&["shadow"], &args[..], &["shadow.html"]].concat()));
    let shadow = notes(&data_of(&folder.0.join("shadow.html")));
    assert!(!shadow.is_empty());
    for (path, notes) in &shadow {
        let [mark, text] = [0, 1].map(|column| notes[0][column].as_str().unwrap());
        assert!(mark.starts_with("effect ") && text.contains(" begins here"), "{path}: {notes:?}");
    }
    let said = error(2, precast_in(&folder.0, &[&["shadow", "--digits"], &args[..], &["a.html"]].concat()));
    assert!(said.contains("which --digits does not compare"), "{said}");

    let search = ["tune.html", "--metric", "relative", "--budget", "1", "--format", "json"];
    let found = precast_in(&folder.0, &[&["tune"], &args[..], &search[..]].concat());
    let found: Value = serde_json::from_slice(&found.stdout).unwrap();
    let tuned = notes(&data_of(&folder.0.join("tune.html")));
    assert_eq!(tuned.len(), found["cells"].as_array().unwrap().len());
    for cell in found["cells"].as_array().unwrap() {
        let (_, notes) = tuned.iter().find(|(path, _)| cell["path"] == **path).unwrap();
        assert_eq!(notes[0][0], if cell["low"] == true { "lowered" } else { "kept" });
    }
}
