//! `precast convert`: a weight file, or a folder with such files, in the dtypes that a policy assigns to the cells.

use std::path::PathBuf;

use precast::{
    Policy,
    error::ErrorKind,
    plan::Summary,
    policy::Prefer,
    storage::stored::{ConvertOptions, Converted},
};
use precast_train::{
    is_onnx,
    report::{conversion_html, conversion_kept, conversion_summary, conversion_table_by},
};
use serde::Serialize;

use super::{
    Failure, Format, Result,
    inputs::{self, Read, shown},
    onnx::{self, OnnxArgs},
    outputs::{self, Force},
    print, print_json,
    progress::Bar,
    table::library_table,
};

/// Store a safetensors file, a Hugging Face folder or an ONNX model in the dtypes in which a policy runs it
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  precast convert model.safetensors model-f16.safetensors --policy o2
  precast convert bert-base/ bert-base-bf16/ --policy o2-bf16 --html report.html
  precast convert half.safetensors full.safetensors --policy o0 --widen
  precast convert model.onnx model-f16.onnx --policy onnx

The cells are inferred from the names and shapes of the tensors: `precast plan model.safetensors --policy o2` shows them, and why
each runs as it does. Weights of cells that run low are stored low, all other tensors stay as they are.
Of a folder, the index and the dtype in config.json are kept true, and other small files are copied.")]
pub(super) struct Args {
    /// A safetensors file, a folder with `model.safetensors` or `model.safetensors.index.json`, or an ONNX model
    from: PathBuf,
    /// The file or the folder to write
    to: PathBuf,
    /// A policy file, or the name of a built-in policy
    #[arg(short, long)]
    policy: PathBuf,
    /// Also store 16-bit tensors of cells that do not run low in float32
    #[arg(long)]
    widen: bool,
    /// Write values that become infinite, which is otherwise an error
    #[arg(long)]
    allow_overflow: bool,
    #[command(flatten)]
    force: Force,
    /// Also write the report as an HTML page
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Show no progress
    #[arg(long)]
    quiet: bool,
    #[command(flatten)]
    onnx: OnnxArgs,
    /// Output format of the report
    #[arg(long, default_value = "text")]
    format: Format,
}

/// The output of `--format json`.
#[derive(Serialize)]
struct Report<'a> {
    from: String,
    to: String,
    policy: Summary,
    #[serde(flatten)]
    converted: &'a Converted,
}

pub(super) fn run(args: &Args) -> Result {
    let html = args.html.as_deref();
    let read = [("FROM", Some(&*args.from)), ("--policy", Some(&*args.policy))];
    for input in read {
        outputs::check_distinct(&[input, ("TO", Some(&args.to))])?;
    }
    outputs::check_outside_runs("TO", &args.to)?;
    outputs::check_unread(&[read[0], read[1], ("TO", Some(&args.to))], &[("--html", html)], args.force)?;
    outputs::check_free(&[("TO", Some(&args.to))], args.force)?;
    if args.from.join("run.yaml").is_file() {
        let run = shown(&args.from);
        let words =
            format!("{run}: the folder of a run; `export {run} --weights compute --output FILE` writes its weights");
        return Err(Failure::Usage(words));
    }
    if is_onnx(&args.from) {
        return onnx_model(args);
    }
    onnx::refuse(&args.onnx, &args.from)?;
    if !args.from.is_dir() {
        outputs::check_ending("TO", Some(&args.to), &["safetensors"])?;
    }
    outputs::check_ending("--html", html, &["html", "htm"])?;
    let (model, policy) = (inputs::stored(&args.from)?, inputs::policy(&args.policy)?);
    if policy.value.prefer == Prefer::Speed {
        let words = format!("{policy} prefers speed, which is decided by a call, and {model} is weights without code");
        return Err(Failure::Usage(words));
    }
    let plan = policy.value.in_the_end().plan_outline(model.value.outline())?;
    let options = ConvertOptions::new().widen(args.widen).allow_overflow(args.allow_overflow).replace(args.force.given);
    let bar = if args.quiet { Bar::hidden() } else { Bar::of_bytes(model.value.bytes()) };
    let converted = plan.convert_with(&model.value, &args.to, options, &mut |bytes| bar.advance(bytes));
    bar.finish();
    let converted = converted.map_err(|error| match error.kind() {
        ErrorKind::Value => Failure::Work(format!("{error}\n--allow-overflow writes them")),
        _ => Failure::work(error),
    })?;
    report(args, &model, &policy, &plan.policy, &converted)
}

fn onnx_model(args: &Args) -> Result {
    let others = [("--widen", args.widen), ("--allow-overflow", args.allow_overflow), ("--html", args.html.is_some())];
    if let Some((name, _)) = others.iter().find(|(_, given)| *given) {
        return Err(Failure::Usage(format!(
            "{name} is for weight files, and `{}` is an ONNX model",
            shown(&args.from)
        )));
    }
    if !is_onnx(&args.to) {
        return Err(Failure::Usage(format!(
            "`{}` is the name of no ONNX model; expected one that ends in `.onnx`",
            shown(&args.to)
        )));
    }
    args.onnx.check(&args.to, args.force)?;
    let policy = &inputs::policy_file(&args.policy)?;
    let Args { from, to, force, quiet, format, .. } = args;
    onnx::convert(
        &onnx::Converting { from, to, policy, force: force.given, quiet: *quiet, format: *format },
        &args.onnx,
    )
}

fn report<T>(args: &Args, model: &Read<T>, policy: &Read<Policy>, summary: &Summary, converted: &Converted) -> Result {
    if let Some(page) = &args.html {
        let heads = [
            ("from", shown(&args.from)),
            ("to", shown(&args.to)),
            ("policy", format!("{policy}: {summary}")),
            ("copied", list(&converted.copied)),
            ("left out", list(&converted.left_out)),
        ];
        let heads: Vec<_> = heads.into_iter().filter(|(_, text)| !text.is_empty()).collect();
        outputs::write(page, &conversion_html(converted, &heads))?;
    }
    match args.format {
        Format::Json => print_json(&Report {
            from: args.from.to_string_lossy().into_owned(),
            to: args.to.to_string_lossy().into_owned(),
            policy: summary.clone(),
            converted,
        }),
        Format::Text => {
            let table = conversion_table_by(converted, library_table);
            let mut text = format!("{}{summary}\n{table}\n", inputs::header(model, &[policy]));
            for (what, files) in [("copied", &converted.copied), ("left out", &converted.left_out)] {
                if !files.is_empty() {
                    text += &format!("{what}: {}\n", list(files));
                }
            }
            if let Some(kept) = conversion_kept(converted) {
                text += &format!("{kept}\n");
            }
            text += &format!("{}\nwritten: {}", conversion_summary(converted), shown(&args.to));
            print(text)
        }
    }
}

fn list(files: &[PathBuf]) -> String {
    files.iter().map(|file| shown(file)).collect::<Vec<_>>().join(", ")
}
