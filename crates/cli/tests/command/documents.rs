//! README.md shows the output of the program and the commands. Its Rust is compiled as a doctest, and is
//! `examples/quickstart.rs`.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use crate::program::{Folder, precast, root, text};

mod quickstart {
    include!("../../../../examples/quickstart.rs");

    pub fn run() {
        main().unwrap();
    }
}

fn read(path: impl AsRef<Path>) -> String {
    let path = root().join(path);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// A fenced block of a document.
struct Block {
    language: String,
    text: String,
}

fn blocks(document: &str) -> Vec<Block> {
    let mut parts = document.split("```");
    parts.next();
    let mut blocks = vec![];
    while let (Some(block), Some(_)) = (parts.next(), parts.next()) {
        let (language, text) = block.split_once('\n').expect("a block of more than one line");
        blocks.push(Block { language: language.to_string(), text: text.to_string() });
    }
    blocks
}

fn block(document: &str, language: &str) -> String {
    let mut found = blocks(document).into_iter().filter(|block| block.language == language);
    found.next().unwrap_or_else(|| panic!("no block of {language}")).text
}

/// Returns README.md and so on, COMPARE.md and so on, and the pages of the guide.
fn documents() -> Vec<PathBuf> {
    let markdown = |folder: &Path| -> Vec<PathBuf> {
        let files = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
        files.filter(|path| path.extension().is_some_and(|extension| extension == "md")).collect()
    };
    let mut documents = markdown(root());
    documents.extend(markdown(&root().join("docs")));
    documents.extend(markdown(&root().join("docs/guide")));
    assert!(documents.len() > 15, "{} documents were found", documents.len());
    documents
}

#[test]
fn the_readme_fits_on_a_few_screens() {
    let lines = read("README.md").lines().count();
    assert!(lines <= 160, "README.md has {lines} lines; 160 are allowed");
}

#[test]
fn the_program_of_the_readme_is_the_example() {
    let example = read("examples/quickstart.rs");
    let program: Vec<&str> = example.lines().skip_while(|line| !line.starts_with("use ")).collect();
    assert_eq!(block(&read("README.md"), "rust").trim_end(), program.join("\n"));
}

/// Run by the test below in a separate process, whose standard output is that of the program.
#[test]
#[ignore = "run by the_program_prints_what_it_shows"]
fn the_program() {
    println!("\n-- begin");
    quickstart::run();
    println!("-- end");
}

#[test]
fn the_program_prints_what_it_shows() {
    let mut program = Command::new(std::env::current_exe().unwrap());
    let output = program.args(["--exact", "documents::the_program", "--ignored", "--nocapture"]).output().unwrap();
    let printed = String::from_utf8(output.stdout).unwrap();
    let printed = printed.split_once("-- begin\n").expect("a beginning").1.split_once("-- end").expect("an end").0;
    assert_eq!(block(&read("README.md"), "text"), printed);
}

/// In every document, the text after a line `$ precast ...` is the output of that command.
#[test]
fn commands_print_what_the_documents_show() {
    let mut compared = 0;
    for document in documents() {
        for block in blocks(&read(&document)).iter().filter(|block| block.language == "console") {
            for part in format!("\n{}", block.text).split("\n$ ").skip(1) {
                let (line, shown) = part.split_once('\n').unwrap_or((part, ""));
                // A command whose output is not shown needs no comparison; `train` and `bench` measure times.
                let Some(arguments) = line.strip_prefix("precast ").filter(|_| !shown.trim().is_empty()) else {
                    continue;
                };
                let arguments: Vec<&str> = arguments.split_whitespace().collect();
                let printed = text(precast(&arguments));
                assert_eq!(shown.trim_end(), printed.trim_end(), "{}: {line}", document.display());
                compared += 1;
            }
        }
    }
    assert!(compared >= 3, "{compared} commands were compared");
}

#[test]
fn the_page_on_the_command_has_every_command() {
    let help = text(precast(&["--help"]));
    let listed = help.split_once("Commands:\n").expect("a list of commands").1.split_once("\n\n").expect("its end").0;
    let names = listed.lines().filter_map(|line| line.split_whitespace().next()).filter(|name| *name != "help");
    let names: Vec<&str> = names.collect();
    assert!(names.len() >= 7, "{names:?}");
    let page = read("docs/guide/the-command.md");
    let missing: Vec<&&str> = names.iter().filter(|name| !page.contains(&format!("| `precast {name}"))).collect();
    assert!(missing.is_empty(), "docs/guide/the-command.md does not describe {missing:?}");
}

/// A policy shown in a document can be read, and so can a model and a run.
#[test]
fn policies_in_the_documents_are_policies() {
    let documents = documents();
    let read_policies = documents.iter().flat_map(|document| {
        let blocks = blocks(&read(document)).into_iter();
        let whole = blocks.filter(|block| block.language == "yaml" && block.text.starts_with("version: 1"));
        let (models, rest): (Vec<_>, Vec<_>) = whole.partition(|block| block.text.contains("\nnet:"));
        let (runs, policies): (Vec<_>, Vec<_>) = rest.into_iter().partition(|block| block.text.contains("\ndata:"));
        for run in runs {
            precast_train::RunFile::parse(&run.text, &document.to_string_lossy()).unwrap();
        }
        for model in models {
            precast::io::models::parse(&model.text, &document.to_string_lossy(), 0).unwrap();
        }
        policies
            .into_iter()
            .map(|block| precast::policy::PolicyFile::parse(&block.text, &document.to_string_lossy()).unwrap())
    });
    assert!(read_policies.count() >= 2);
}

/// The bytes kept by the tape depend only on shapes and dtypes, so they can be compared where times cannot.
#[test]
fn half_precision_keeps_half_the_bytes() {
    let folder = Folder::new("readme");
    let output = folder.0.to_str().unwrap();
    let arguments = ["train", "--quiet", "--epochs", "1", "--policy", "o0", "--policy", "o2", "--output", output];
    text(precast(&arguments));
    let metrics: serde_json::Value = serde_json::from_str(&read(folder.0.join("metrics.json"))).unwrap();
    let bytes: Vec<f64> = metrics["runs"].as_array().unwrap().iter().map(activations).collect();
    let row = read("README.md");
    let row = row.lines().find(|line| line.starts_with("| LeNet5, batch 32")).expect("a row of LeNet5");
    let shown: f64 = row.split('|').nth(2).unwrap().trim().parse().unwrap();
    assert_eq!(format!("{:.2}", bytes[1] / bytes[0]), format!("{shown:.2}"), "{bytes:?}");
}

fn activations(run: &serde_json::Value) -> f64 {
    run["activation_bytes"].as_f64().expect("the bytes that the tape kept")
}

#[test]
fn every_page_of_the_guide_is_in_the_documentation() {
    let guide = read("src/guide.rs");
    let pages = fs::read_dir(root().join("docs/guide")).unwrap().map(|entry| entry.unwrap().file_name());
    let pages: Vec<String> = pages
        .map(|name| name.into_string().unwrap())
        .filter(|name| name.ends_with(".md") && name != "README.md")
        .collect();
    assert!(pages.len() >= 12, "{pages:?}");
    let missing: Vec<&String> = pages.iter().filter(|page| !guide.contains(&format!("\"{page}\""))).collect();
    assert!(missing.is_empty(), "src/guide.rs does not include {missing:?}");
    let index = read("docs/guide/README.md");
    let missing: Vec<&String> = pages.iter().filter(|page| !index.contains(&format!("({page})"))).collect();
    assert!(missing.is_empty(), "docs/guide/README.md does not include {missing:?}");
}

#[test]
fn every_file_that_a_document_links_to_is_there() {
    let mut links = 0;
    for document in documents() {
        let text = read(&document);
        for link in text.split("](").skip(1).filter_map(|rest| rest.split_once(')')).map(|(link, _)| link) {
            if link.starts_with("http") || link.starts_with('#') || link.contains("::") {
                continue;
            }
            let file = document.parent().unwrap().join(link.split('#').next().unwrap());
            assert!(file.exists(), "{} links to {link}", document.display());
            links += 1;
        }
    }
    assert!(links > 10, "{links} links were found");
}
