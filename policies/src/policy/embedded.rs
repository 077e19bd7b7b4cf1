//! Files of `policies/` that are part of the library, by name.

use crate::error::did_you_mean;

/// Embeds `policies/FOLDER/NAME.yaml` for each name: name and text.
macro_rules! embedded {
    ($folder:literal, $($name:literal),* $(,)?) => {
        [$(($name, include_str!(concat!("../../", $folder, $name, ".yaml")))),*]
    };
}
pub(super) use embedded;

/// Where the file of a name stands among those embedded; else a message with all names and the one nearest to what is meant.
pub(super) fn position(files: &[(&str, &str)], name: &str, meant: &str, unknown: &str) -> Result<usize, String> {
    files.iter().position(|(known, _)| *known == name).ok_or_else(|| {
        let allowed: Vec<&str> = files.iter().map(|(known, _)| *known).collect();
        let near = did_you_mean(meant, allowed.iter().copied());
        format!("{unknown} `{name}`{near}; allowed: {}", allowed.join(", "))
    })
}
