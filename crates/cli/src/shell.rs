//! `precast show completions` and `precast show man`: files for shells and `man`.

use std::io;

use clap::builder::PossibleValuesParser;
use clap_complete::Shell;
use precast::policy::PolicyFile;
use precast_base::names::did_you_mean;

use super::{Cli, Failure, Result, print_as_it_is};

/// Print the completions of a shell, to be saved where the shell looks for them
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  source <(precast show completions bash)                                   in this shell only
  precast show completions bash > ~/.local/share/bash-completion/completions/{program}
  precast show completions zsh > ~/.zfunc/_{program}                          with ~/.zfunc in fpath
  precast show completions fish > ~/.config/fish/completions/{program}.fish")]
pub(super) struct CompletionsArgs {
    /// The shell
    shell: Shell,
}

pub(super) fn completions(cli: &Cli, args: &CompletionsArgs) -> Result {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut completed(cli, args.shell), &cli.program, &mut script);
    written(script, |script| script)
}

/// Returns the command line to complete. bash also completes the names that are built in; where none of them matches, it
/// completes files. Other shells complete either names or files, and these arguments are files.
fn completed(cli: &Cli, shell: Shell) -> clap::Command {
    let command = cli.command();
    if shell != Shell::Bash {
        return command;
    }
    let names = |names: Vec<&str>| PossibleValuesParser::new(names.into_iter().map(str::to_string));
    command.mut_subcommands(|command| {
        command.mut_args(|arg| match arg.get_id().as_str() {
            "model" => arg.value_parser(names(cli.model_names())),
            "policy" => arg.value_parser(names(PolicyFile::names().collect())),
            _ => arg,
        })
    })
}

/// Print the manual page of a command; without a name, that of the whole program
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  precast show man | man -l -
  precast show man plan > {program}-plan.1")]
pub(super) struct ManArgs {
    /// A command: `plan`
    command: Option<String>,
}

pub(super) fn man(cli: &Cli, args: &ManArgs) -> Result {
    let mut all = cli.command();
    all.build();
    let command = match &args.command {
        None => all,
        Some(name) => {
            let shown = || all.find_subcommand("show").into_iter().flat_map(clap::Command::get_subcommands);
            let named: Vec<&clap::Command> =
                all.get_subcommands().chain(shown()).filter(|command| command.get_name() != "help").collect();
            let names: Vec<&str> = named.iter().map(|command| command.get_name()).collect();
            let near = did_you_mean(name, names.iter().copied());
            let unknown = format!("no command is called `{name}`{near}; there are: {}", names.join(", "));
            let found = named.iter().find(|command| command.get_name() == name).ok_or(Failure::Usage(unknown))?;
            let is_shown = shown().any(|command| command.get_name() == name);
            let page = format!("{}-{}{name}", cli.program, if is_shown { "show-" } else { "" });
            clap::Command::clone(found).name(page)
        }
    };
    let mut page = Vec::new();
    clap_mangen::Man::new(command).render(&mut page).map_err(|error: io::Error| Failure::work(error))?;
    let see_also = if args.command.is_some() { format!("\n.SH SEE ALSO\n{}(1)\n", cli.program) } else { String::new() };
    written(page, |page| with_examples(&page) + &see_also)
}

/// Gives the text after the options its usual headings, and keeps the lines of its examples apart.
fn with_examples(page: &str) -> String {
    let Some((before, extra)) = page.split_once("\n.SH EXTRA\n") else { return page.to_string() };
    let (extra, after) =
        extra.split_once("\n.SH ").map_or((extra, String::new()), |(extra, rest)| (extra, format!("\n.SH {rest}")));
    let (notes, examples) = extra.split_once("Examples:\n").unwrap_or((extra, ""));
    let section = |heading: &str, text: &str| {
        if text.trim().is_empty() { String::new() } else { format!("\n.SH {heading}\n{}", text.trim_end()) }
    };
    let examples = if examples.is_empty() { String::new() } else { format!(".nf\n{}\n.fi", examples.trim_end()) };
    format!("{before}{}{}{after}", section("NOTES", notes), section("EXAMPLES", &examples))
}

fn written(text: Vec<u8>, say: impl FnOnce(String) -> String) -> Result {
    print_as_it_is(say(String::from_utf8(text).map_err(Failure::work)?).trim_end())
}
