//! Files of `policies/` embedded in the library, by name.

use precast_base::names::did_you_mean;

/// Embeds `policies/FOLDER/NAME.yaml` for each name, as pairs of name and text.
macro_rules! embedded {
    ($folder:literal, $($name:literal),* $(,)?) => {
        [$(($name, include_str!(concat!("../../", $folder, $name, ".yaml")))),*]
    };
}
pub(super) use embedded;

/// Returns the names of embedded files.
pub(super) fn names<const N: usize>(files: [(&'static str, &'static str); N]) -> impl Iterator<Item = &'static str> {
    files.into_iter().map(|(name, _)| name)
}

/// Returns the text of an embedded file.
pub(super) fn text(files: &[(&str, &'static str)], name: &str) -> Option<&'static str> {
    files.iter().find(|(known, _)| *known == name).map(|(_, text)| *text)
}

/// Returns the index of an embedded file by name, or a message with the name nearest to `meant` and all names.
pub(super) fn position(files: &[(&str, &str)], name: &str, meant: &str, unknown: &str) -> Result<usize, String> {
    files.iter().position(|(known, _)| *known == name).ok_or_else(|| {
        let allowed: Vec<&str> = files.iter().map(|(known, _)| *known).collect();
        let near = did_you_mean(meant, allowed.iter().copied());
        format!("{unknown} `{name}`{near}; allowed: {}", allowed.join(", "))
    })
}
