//! cargo-deny on licences, sources, duplicates and security advisories, by `deny.toml`.

use crate::shell::{self, Result, works};

pub fn missing() -> Option<String> {
    (!works("cargo", &["deny", "--version"])).then(|| "no cargo-deny: `cargo install --locked cargo-deny`".into())
}

pub fn run() -> Result {
    shell::run("cargo", &["deny", "--locked", "check", "licenses", "bans", "sources"], &[])?;
    // The advisories are in a repository, which a machine without a network cannot fetch.
    if !works("cargo", &["deny", "fetch", "db"]) {
        println!("LEFT OUT: advisories, whose database cannot be fetched here");
        return Ok(());
    }
    shell::run("cargo", &["deny", "--locked", "check", "--disable-fetch", "advisories"], &[])
}
