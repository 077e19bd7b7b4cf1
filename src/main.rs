//! The command `precast`; see `precast --help`.

mod cli;

fn main() -> std::process::ExitCode {
    cli::main()
}
