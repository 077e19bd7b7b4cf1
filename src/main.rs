//! The command `precast`; `precast --help` tells what it does.

mod cli;

fn main() -> std::process::ExitCode {
    cli::main()
}
