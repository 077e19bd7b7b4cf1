//! `cargo xtask deny [--if-present]`: cargo-deny on licences, sources, duplicates and security advisories, by `deny.toml`.

use std::process::Stdio;

use crate::{
    nightly::IF_PRESENT,
    shell::{self, Result, program},
};

pub const ABOUT: &str = "licences, sources and security advisories of all dependencies [--if-present]";

pub fn run(words: &[String]) -> Result {
    let optional = match words {
        [] => false,
        [word] if word == IF_PRESENT => true,
        _ => return Err(format!("met `{}`; allowed: {IF_PRESENT}, or nothing", words.join(" "))),
    };
    let missing = |what: &str| match optional {
        true => {
            println!("LEFT OUT: {what}");
            Ok(())
        }
        false => Err(format!("{what}, or allow it to be missing with {IF_PRESENT}")),
    };
    if !works(&["deny", "--version"]) {
        return missing(
            "nothing was checked: cargo-deny is missing; install it with `cargo install --locked cargo-deny`",
        );
    }
    shell::run("cargo", &["deny", "--locked", "check", "licenses", "bans", "sources"], &[])?;
    // The advisories are in a repository, which a machine without a network cannot fetch.
    if !works(&["deny", "fetch", "db"]) {
        return missing("advisories were not checked: the advisory database cannot be fetched here");
    }
    shell::run("cargo", &["deny", "--locked", "check", "--disable-fetch", "advisories"], &[])
}

fn works(arguments: &[&str]) -> bool {
    let status = program("cargo", arguments, &[]).stdout(Stdio::null()).stderr(Stdio::null()).status();
    status.is_ok_and(|status| status.success())
}
