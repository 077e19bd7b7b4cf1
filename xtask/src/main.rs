//! `cargo xtask NAME`: checks that take too long, or need too much, for `cargo test`.

mod peers;
mod shell;

use std::{env, process::ExitCode};

use shell::Result;

/// A named command: what it is called, what it does in a line, and how it is run with the words behind its name.
struct Command {
    name: &'static str,
    about: &'static str,
    run: fn(&[String]) -> Result,
}

const COMMANDS: &[Command] = &[Command {
    name: "peers",
    about: "every op, layer and training step beside torch: --python PATH",
    run: peers::peers,
}];

fn main() -> ExitCode {
    let words: Vec<String> = env::args().skip(1).collect();
    let name = words.first().map_or("", String::as_str);
    let Some(command) = COMMANDS.iter().find(|command| command.name == name) else {
        let asked_for_help = matches!(name, "" | "help" | "-h" | "--help");
        if !asked_for_help {
            eprintln!("no command is called `{name}`; there are:");
        }
        COMMANDS.iter().for_each(|command| eprintln!("  cargo xtask {:<9} {}", command.name, command.about));
        return if asked_for_help { ExitCode::SUCCESS } else { ExitCode::from(2) };
    };
    match (command.run)(&words[1..]) {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("cargo xtask {name}: {why}");
            ExitCode::FAILURE
        }
    }
}
