//! `cargo xtask NAME`: checks that take too long, or need too much, for `cargo test`.

mod aarch64;
mod api;
mod convert;
mod copy;
mod deny;
mod export;
mod fuzz;
mod hosts;
mod miri;
mod mpi;
mod mutants;
mod mutate;
mod nightly;
mod notices;
mod onnx;
mod onnx_cases;
mod onnx_exports;
mod package;
mod packs;
mod patterns;
mod peers;
mod places;
mod python;
mod release;
mod sanitizers;
mod shell;
mod site;
mod toolchain;

use std::{
    env,
    io::{self, Write},
    process::ExitCode,
};

use shell::Result;

/// A named command: its name, a one-line description, and its function, called with the arguments after the name.
struct Command {
    name: &'static str,
    about: &'static str,
    run: fn(&[String]) -> Result,
}

const COMMANDS: &[Command] = &[
    Command { name: "aarch64", about: aarch64::ABOUT, run: aarch64::run },
    Command { name: "api", about: api::ABOUT, run: api::run },
    Command { name: "convert", about: convert::ABOUT, run: convert::run },
    Command { name: "export", about: export::ABOUT, run: export::run },
    Command { name: "fuzz", about: fuzz::ABOUT, run: fuzz::run },
    Command { name: "miri", about: miri::ABOUT, run: miri::run },
    Command { name: "mpi", about: mpi::ABOUT, run: mpi::run },
    Command { name: "mutants", about: mutants::ABOUT, run: mutants::run },
    Command { name: "mutate", about: mutate::ABOUT, run: mutate::run },
    Command { name: "nightly", about: nightly::ABOUT, run: nightly::run },
    Command { name: "onnx", about: onnx::ABOUT, run: onnx::run },
    Command { name: "package", about: package::ABOUT, run: package::run },
    Command { name: "packs", about: packs::ABOUT, run: packs::run },
    Command { name: "peers", about: peers::ABOUT, run: peers::run },
    Command { name: "places", about: places::ABOUT, run: places::run },
    Command { name: "python", about: python::ABOUT, run: python::run },
    Command { name: "release", about: release::ABOUT, run: release::run },
    Command { name: "site", about: site::ABOUT, run: site::run },
];

/// Prints text, ignoring a closed pipe.
fn say(text: &str) {
    let _ = writeln!(io::stdout(), "{text}");
}

fn main() -> ExitCode {
    let words: Vec<String> = env::args().skip(1).collect();
    let name = words.first().map_or("", String::as_str);
    let line = |command: &Command| format!("cargo xtask {:<9} {}", command.name, command.about);
    let all: Vec<String> = COMMANDS.iter().map(|command| format!("  {}", line(command))).collect();
    let asks_for_help = |word: &str| matches!(word, "help" | "-h" | "--help");
    if name.is_empty() || asks_for_help(name) {
        say(&all.join("\n"));
        return ExitCode::SUCCESS;
    }
    let Some(command) = COMMANDS.iter().find(|command| command.name == name) else {
        eprintln!("no command is called `{name}`; there are:\n{}", all.join("\n"));
        return ExitCode::FAILURE;
    };
    if words[1..].iter().any(|word| asks_for_help(word)) {
        say(&line(command));
        return ExitCode::SUCCESS;
    }
    match (command.run)(&words[1..]) {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("cargo xtask {name}: {why}");
            ExitCode::FAILURE
        }
    }
}
