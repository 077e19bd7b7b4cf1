//! Words of other tools on the command line, with what does the same here.

use std::ffi::OsString;

use clap::{
    Command,
    builder::StyledStr,
    error::{ContextKind, ContextValue, Error, ErrorKind},
};
use precast_train::RunFile;

/// Returns the error of a command line with a tip for a subcommand or a flag that other tools have.
pub(super) fn with_tip(mut error: Error, command: &Command, args: &[OsString]) -> Error {
    let program = command.get_name();
    let tip = match (error.kind(), error.get(ContextKind::InvalidSubcommand), error.get(ContextKind::InvalidArg)) {
        (ErrorKind::InvalidSubcommand, Some(ContextValue::String(word)), _) => {
            of_subcommand(&word.to_lowercase(), command)
        }
        (ErrorKind::UnknownArgument, _, Some(ContextValue::String(flag))) => of_flag(flag, command, args),
        _ => None,
    };
    if let Some(tip) = tip {
        let tip: StyledStr = tip.replace("{program}", program).into();
        error.remove(ContextKind::SuggestedSubcommand);
        error.remove(ContextKind::SuggestedArg);
        error.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![tip]));
    }
    error
}

fn of_subcommand(word: &str, command: &Command) -> Option<String> {
    let is_shown = || command.find_subcommand("show").is_some_and(|show| show.find_subcommand(word).is_some());
    let command = match word {
        "fit" | "run-file" | "finetune" | "fine-tune" | "start" => "train run.yaml",
        "resume" | "continue" | "restart" => "train --resume runs/NAME",
        "evaluate" | "eval" | "test" | "score" | "validate" => "predict runs/NAME FILE --score",
        "infer" | "inference" | "apply" => "predict runs/NAME FILE",
        "quantize" | "cast" | "lower" | "half" => "convert WEIGHTS OUTPUT --policy o2",
        "summary" | "describe" | "inspect" | "info" => "plan MODEL --policy o2 --summary",
        "why" => "explain MODEL CELL --policy o2",
        "compare" => "diff MODEL --policy o2 --policy o3",
        "check" | "verify" => "lint MODEL --policy o2",
        "draw" | "visualize" | "plot" => "graph MODEL --policy o2 --svg out.svg",
        "list" | "ls" | "status" | "log" | "logs" | "report" => "show runs",
        "new" | "create" => "init MODEL --output policy.yaml",
        "layers" | "modules" => "show cells",
        "benchmark" | "speed" => "show bench",
        "completions" => "show completions bash",
        _ if is_shown() => &format!("show {word}"),
        _ => return None,
    };
    Some(format!("`{{program}} {command}` does this"))
}

fn of_flag(flag: &str, command: &Command, args: &[OsString]) -> Option<String> {
    let subcommand = args.iter().find_map(|arg| command.find_subcommand(arg));
    let Some(word) = flag.strip_prefix("--") else {
        let writes = subcommand?.get_arguments().any(|arg| arg.get_long() == Some("output"));
        return (writes && !flag.starts_with('-')).then(|| format!("`--output {flag}` writes a file"));
    };
    let word = word.split('=').next()?.replace('-', "_");
    match word.as_str() {
        "model" | "net" | "config" | "file" | "run" => {
            return Some("models and run files are named without a flag: `{program} train run.yaml`".into());
        }
        "device" | "gpu" | "gpus" | "cuda" | "cpu" => {
            return Some("{program} computes on the CPU; precast-burn has its policies on GPUs".into());
        }
        "threads" | "workers" | "num_workers" | "jobs" => {
            return Some("the environment variable PRECAST_THREADS has the number of threads".into());
        }
        _ => {}
    }
    let subcommand = subcommand.filter(|one| one.get_name() == "train")?;
    let key = RunFile::key_like(&word)?;
    let same = key.replace('_', "-");
    if subcommand.get_arguments().any(|arg| arg.get_long() == Some(&same)) {
        return Some(format!("`--{same}` does this"));
    }
    Some(format!("`{key}` is a key of run files; `{{program}} show schema run` describes it"))
}
