//! `precast show`: the files that come with the command, unchanged; what is available; and what was run.

use clap::Subcommand;
use precast::{
    io::models::Model,
    policy::{Pack, PolicyFile, SCHEMA},
};
use precast_base::names::did_you_mean;

use super::{
    Cli, Failure, Result, bench, cells, levels, ops, print, print_as_it_is, print_json, run as runs, shell,
    table::table,
};

/// Print a file that comes with precast, unchanged: a policy, a pack of lists, a model or a run; or what is available: levels,
/// ops, cells, schemas, runs, the speed of this machine
#[derive(Debug, clap::Args)]
#[command(
    args_conflicts_with_subcommands = true,
    after_help = "\
Examples:
  precast show                        the names of all files
  precast show o2 > my-policy.yaml    a policy to begin with
  precast show precast-1              the lists of a pack, with their reasons
  precast show lenet5                 a model file
  precast show run > run.yaml         a run file to begin with
  precast show ops softmax            what every pack of lists does with an op, and why
  precast show runs                   the runs below `runs`"
)]
pub(super) struct Args {
    #[command(subcommand)]
    what: Option<What>,
    /// The name of the file; without it, all names are listed
    name: Option<String>,
}

#[derive(Debug, Subcommand)]
enum What {
    Levels(levels::Args),
    Ops(ops::Args),
    Cells(cells::Args),
    Schema(SchemaArgs),
    Runs(runs::RunsArgs),
    Bench(bench::Args),
    Completions(shell::CompletionsArgs),
    Man(shell::ManArgs),
}

/// A file that comes with the command.
struct Shipped {
    name: &'static str,
    /// Its path in the repository.
    path: String,
    text: &'static str,
}

/// Returns every file, policies first.
fn shipped() -> impl Iterator<Item = Shipped> {
    let file = |folder: &str, name: &'static str, text: Option<&'static str>| {
        text.map(|text| Shipped { name, path: format!("{folder}/{name}.yaml"), text })
    };
    let policies = PolicyFile::names().filter_map(move |name| file("policies", name, PolicyFile::shipped_text(name)));
    let packs = Pack::names().filter_map(move |name| file("policies/packs", name, Pack::shipped_text(name)));
    let models = Model::names().filter_map(move |name| file("models", name, Model::shipped_text(name)));
    let schema = Shipped { name: "schema", path: "policies/schema.json".into(), text: SCHEMA };
    let run = Shipped { name: "run", path: "crates/train/run.yaml".into(), text: precast_train::EXAMPLE };
    policies.chain(packs).chain(models).chain([run, schema])
}

pub(super) fn run(cli: &Cli, args: &Args) -> Result {
    match &args.what {
        Some(What::Levels(args)) => levels::run(args),
        Some(What::Ops(args)) => ops::run(args),
        Some(What::Cells(args)) => cells::run(cli, args),
        Some(What::Schema(args)) => schema(args),
        Some(What::Runs(args)) => runs::runs(args),
        Some(What::Bench(args)) => bench::run(args),
        Some(What::Completions(args)) => shell::completions(cli, args),
        Some(What::Man(args)) => shell::man(cli, args),
        None => file(args),
    }
}

fn file(args: &Args) -> Result {
    let Some(name) = &args.name else {
        let about = |text: &'static str| {
            if text == SCHEMA {
                return "What an editor completes and checks policies by".to_string();
            }
            // The first sentence of the comment at the top.
            let lines = text.lines().skip_while(|line| line.contains("$schema=") || *line == "#");
            let lines = lines.map_while(|line| line.strip_prefix('#')).take_while(|line| !line.is_empty());
            let comment = lines.collect::<String>();
            let first = comment.split(". ").next().unwrap_or_default();
            first.trim().trim_end_matches([':', '.']).to_string()
        };
        let rows = shipped().map(|file| [file.name.to_string(), file.path, about(file.text)]);
        return print(table(&["name", "file", "what it is"], rows, &[]));
    };
    match shipped().find(|file| file.name == name) {
        Some(file) => print_as_it_is(file.text.trim_end()),
        None => {
            let names: Vec<&str> = shipped().map(|file| file.name).collect();
            let show = What::augment_subcommands(clap::Command::new("show"));
            let near =
                did_you_mean(name, names.iter().copied().chain(show.get_subcommands().map(clap::Command::get_name)));
            Err(Failure::Usage(format!("no file is called `{name}`{near}; there are: {}", names.join(", "))))
        }
    }
}

/// Print the JSON schema of policy files or run files, with which editors complete and check them
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Example:
  precast show schema > schema.json          and in a policy beside it: # yaml-language-server: $schema=schema.json
  precast show schema run > run-schema.json  for run files")]
struct SchemaArgs {
    /// The files to describe
    #[arg(default_value = "policy")]
    of: SchemaOf,
}

/// The files that have a schema.
#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum SchemaOf {
    /// Policy files
    Policy,
    /// Run files
    Run,
}

fn schema(args: &SchemaArgs) -> Result {
    match args.of {
        SchemaOf::Policy => print_as_it_is(SCHEMA.trim_end()),
        SchemaOf::Run => print_json(&precast_train::RunFile::schema()),
    }
}
