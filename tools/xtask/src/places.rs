//! `cargo xtask places`: adds an op, a layer, an optimizer, a key of policies and one of run files in a copy of the repository, each in
//! at most four places, and runs a program that uses all of them.

use std::{collections::BTreeSet, fs};

use crate::{
    copy::Tree,
    shell::{Result, check_words, in_file, program, succeed},
};

/// One-line description.
pub const ABOUT: &str =
    "an op, a layer, an optimizer, a key of policies and one of run files, each added in at most four places";

/// Largest number of files of the product to touch.
const MOST: usize = 4;

/// A file, a text that it has once, and the text to write after it; of a new file, no text and the whole.
type Edit = (&'static str, &'static str, &'static str);

const ADDITIONS: &[(&str, &[Edit])] = &[
    (
        "op",
        &[
            (
                "policies/src/catalogue/table.rs",
                "        Neg Keeps Elementwise neg(x) ",
                "[\"\", \"\", \"\", \"\"];\n        Halve Keeps Elementwise halve(x) ",
            ),
            (
                "crates/tensor/src/ops/elementwise/unary.rs",
                "    neg Neg () Direct |x| -x, Nothing |_x| -R::one();\n",
                "    /// Computes `x / 2`.\n    halve Halve () Direct |x| R::of(0.5) * x, Nothing |_x| R::of(0.5);\n",
            ),
            ("crates/tensor/src/ops/gradient/linear.rs", "Cast | Neg | ", "Halve | "),
        ],
    ),
    (
        "layer",
        &[
            (
                "src/layers/halved.rs",
                "",
                "//! A layer that halves its input.

use serde::{Deserialize, Serialize};

use crate::{Cell, Tensor, cell::Forward, error::Result};

/// Computes `x / 2`.
#[derive(Cell, Clone, Debug, Default, Serialize, Deserialize)]
#[cell(saved)]
pub struct Halved {}

impl Forward for Halved {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        x.halve()
    }
}
",
            ),
            ("src/layers/mod.rs", "mod embedding;\n", "mod halved;\npub use halved::Halved;\n"),
            (
                "policies/src/kinds.rs",
                "    row(\"ReLU\", &[\"ReLU\"], &[\"ReLU\"]),\n",
                "    row(\"Halved\", &[], &[]),\n",
            ),
        ],
    ),
    (
        "optimizer",
        &[
            (
                "src/optim/plain.rs",
                "",
                "//! Gradient descent alone.

use precast_kernels::update::{MOMENTS, Multiplied, Values, each};

use super::{
    rule::{Kept, Number, Rule, Step, Whole},
    trained::{Trained, optimizer},
};
use crate::options::options;

/// `p = p - lr * grad`.
#[derive(Clone, Debug)]
pub struct Plain(Trained<PlainOptions>);

/// Options of [`Plain`].
#[options(setters_on(Plain), written)]
#[derive(Clone, Debug, PartialEq)]
pub struct PlainOptions {
    /// Factor of the learning rate.
    #[option(default = 1.0, above = 0)]
    pub factor: f64,
}

optimizer!(new Plain, PlainOptions);

impl Rule for PlainOptions {
    const NAME: &'static str = \"plain\";
    type Known<R: Number> = R;

    fn weight_decay(&self) -> f64 {
        0.0
    }

    fn kept(&self, _: &[usize]) -> Vec<Kept> {
        vec![]
    }

    fn prepare<R: Number>(&self, step: &Step, _: Whole<'_, R>) -> R {
        R::of(step.lr * self.factor)
    }

    fn apply<R: Number>(lr: &R, _: usize, value: &mut Values<'_, R>, grad: Multiplied<'_, R>, _: [&mut [R]; MOMENTS]) {
        let lr = *lr;
        each(value, grad, [], move |p, g, []| (p - lr * g, []));
    }
}
",
            ),
            ("src/optim/mod.rs", "mod overflow;\n", "mod plain;\npub use plain::{Plain, PlainOptions};\n"),
            (
                "src/optim/method.rs",
                "    \"lion\" Lion(LionOptions) 0.0003;\n",
                "    /// [`Plain`](super::Plain).\n    \"plain\" Plain(PlainOptions) 0.1;\n",
            ),
            ("src/optim/method.rs", "use super::{\n", "    PlainOptions,\n"),
        ],
    ),
    (
        "key of policies",
        &[
            (
                "policies/src/policy/mod.rs",
                "    /// Human-readable name, `name:` in the file.\n    pub name: Option<String>,\n",
                "    /// The one who wrote it.\n    pub author: Option<String>,\n",
            ),
            ("policies/src/policy/mod.rs", "        Ok(Policy { name, ", "author: None, "),
            ("policies/src/policy/v1/mod.rs", "    let Policy { name, ", "author, "),
            ("policies/src/policy/v1/mod.rs", "    Ok(PolicyV1 {\n", "        author: author.clone(),\n"),
            ("policies/src/policy/v1/mod.rs", "        version: placeless(1),\n", "        author: None,\n"),
            (
                "policies/src/policy/v1/mod.rs",
                "    version: At<u32>,\n",
                "    #[serde(default, skip_serializing_if = \"Option::is_none\")]\n    author: Option<String>,\n",
            ),
            (
                "policies/src/policy/v1/mod.rs",
                "from_pack(level, dtype, pack.clone()).map_err(at_pack)?;\n",
                "    policy.author = document.author;\n",
            ),
            ("policies/schema.json", "  \"properties\": {\n", "    \"author\": { \"type\": \"string\" },\n"),
        ],
    ),
    (
        "key of run files",
        &[
            (
                "crates/train/src/run_file.rs",
                "    pub patience: Option<usize>,\n",
                "    /// A remark.\n    pub remark: Option<String>,\n",
            ),
            (
                "crates/train/src/run_file.rs",
                "    name: Option<String>,\n",
                "    /// A remark.\n    #[option(default = None)]\n    remark: Option<String>,\n",
            ),
            ("crates/train/src/run_file.rs", "        name = name,\n", "        remark = remark,\n"),
        ],
    ),
];

/// A program that uses the additions.
const PROGRAM: &str = "use precast::{io::models, optim::Method, prelude::*};

fn main() -> Result<()> {
    let x = Tensor::ones(&[2], DType::F32);
    assert_eq!(x.halve()?.to_f64(), [0.5, 0.5]);
    let model = models::parse(\"version: 1\\nnet:\\n  kind: Halved\\n\", \"model.yaml\", 0)?;
    assert_eq!(model.call(&x)?.to_f64(), [0.5, 0.5]);
    assert_eq!(\"plain\".parse::<Method>()?.name(), \"plain\");
    let policy = Policy::parse(\"version: 1\\nlevel: O2\\ndtype: float16\\nauthor: me\\n\", \"policy.yaml\")?;
    assert_eq!(policy.author.as_deref(), Some(\"me\"));
    assert!(policy.plan(&model)?.to_string().contains(\"Halved\"));
    let run = \"version: 1\\nremark: first\\nmodel: mlp\\npolicy: o2-bf16\\ndata: digits\\n\";
    let run = precast_train::RunFile::parse(run, \"run.yaml\")?;
    assert!(run.to_yaml()?.contains(\"remark: first\"));
    println!(\"all work\");
    Ok(())
}
";

pub fn run(words: &[String]) -> Result {
    check_words(words, &[])?;
    let tree = Tree::copied("places", None)?;
    for (what, edits) in ADDITIONS {
        let files: BTreeSet<&str> = edits.iter().map(|(file, ..)| *file).collect();
        println!("{what}: {} places", files.len());
        if files.len() > MOST {
            return Err(format!("{what}: {} places; at most {MOST} are allowed: {files:?}", files.len()));
        }
        for (file, anchor, text) in *edits {
            let path = tree.path.join(file);
            let failed = |error| in_file(&path, error);
            let new = match anchor.is_empty() {
                true => text.to_string(),
                false => {
                    let old = fs::read_to_string(&path).map_err(failed)?;
                    let (before, after) = old.split_once(anchor).ok_or_else(|| format!("{file} has no {anchor:?}"))?;
                    format!("{before}{anchor}{text}{after}")
                }
            };
            fs::write(&path, new).map_err(failed)?;
        }
    }
    let example = tree.path.join("crates/cli/examples/places.rs");
    fs::write(&example, PROGRAM).map_err(|error| in_file(&example, error))?;
    let build = tree.build.display().to_string();
    let arguments = ["run", "--quiet", "--package", "precast-cli", "--example", "places"];
    let mut command = program("cargo", &arguments, &[("CARGO_TARGET_DIR", &build)]);
    succeed("cargo", command.current_dir(&tree.path))
}
