//! The command `precast`; see `precast --help`.

fn main() -> std::process::ExitCode {
    precast_cli::main()
}
