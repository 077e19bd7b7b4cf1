//! Policies shipped with the library: each level in each low dtype, and those for graphs.

use precast_base::{Error, Result};

use super::{
    GraphPolicy, Policy,
    either::PolicyFile,
    embedded::{self, embedded},
};

/// Names and texts of those with a level, starting with the policy that lowers least, and then of those for graphs.
const EMBEDDED: [(&str, &str); 13] = embedded!(
    "",
    "o0",
    "o1",
    "o1-bf16",
    "o2",
    "o2-bf16",
    "o3",
    "o3-bf16",
    "auto",
    "auto-bf16",
    "graph",
    "graph-bf16",
    "onnx",
    "onnx-bf16"
);

/// Number of those with a level.
const OF_CELLS: usize = 9;

impl Policy {
    /// Returns the names of the policies shipped with the library: `o2` is level O2 in float16, `o2-bf16` in bfloat16.
    pub fn names() -> impl Iterator<Item = &'static str> {
        embedded::names(EMBEDDED).take(OF_CELLS)
    }

    /// Returns a policy shipped with the library, read from the file of that name in `policies/`.
    ///
    /// # Errors
    /// [`ErrorKind::Policy`](crate::ErrorKind::Policy) for an unknown name, listing the nearest and all names.
    ///
    /// ```
    /// use precast_policy::{DType, Level, Policy};
    /// let policy = Policy::named("o2-bf16")?;
    /// assert_eq!((policy.level, policy.dtype), (Level::O2, DType::Bf16));
    /// # Ok::<(), precast_policy::Error>(())
    /// ```
    pub fn named(name: &str) -> Result<Self> {
        PolicyFile::named(name)?.cells().map_err(|error| error.context(format!("`{name}`")))
    }
}

impl GraphPolicy {
    /// Returns the names of the policies for graphs shipped with the library.
    pub fn names() -> impl Iterator<Item = &'static str> {
        embedded::names(EMBEDDED).skip(OF_CELLS)
    }

    /// Returns a policy for graphs shipped with the library: `graph` is in float16, `graph-bf16` in
    /// bfloat16; `onnx` and `onnx-bf16` are for models of ONNX.
    ///
    /// # Errors
    /// As [`Policy::named`].
    pub fn named(name: &str) -> Result<Self> {
        PolicyFile::named(name)?.graph().map_err(|error| error.context(format!("`{name}`")))
    }
}

impl PolicyFile {
    /// Returns the names of all policies shipped with the library.
    pub fn names() -> impl Iterator<Item = &'static str> {
        embedded::names(EMBEDDED)
    }

    /// Returns the text of a policy shipped with the library.
    pub fn shipped_text(name: &str) -> Option<&'static str> {
        embedded::text(&EMBEDDED, name)
    }

    /// Returns a policy of either kind shipped with the library.
    ///
    /// # Errors
    /// As [`Policy::named`].
    pub fn named(name: &str) -> Result<Self> {
        let at = embedded::position(&EMBEDDED, name, &usual(name), "no policy is called").map_err(Error::policy)?;
        PolicyFile::parse(EMBEDDED[at].1, &format!("policies/{name}.yaml"))
    }

    /// Returns the name of the shipped policy meant by a name: `o2` for `O2`, `02`, `o2-fp16` and `policies/o2.yaml`.
    pub(super) fn meant(name: &str) -> Option<&'static str> {
        let stem = std::path::Path::new(name).file_stem()?.to_str()?;
        let name = usual(stem);
        PolicyFile::names().find(|known| *known == name)
    }
}

/// Normalizes the name of a policy: the level begins with a letter, bfloat16 is `-bf16`, float16 has no suffix.
fn usual(name: &str) -> String {
    let name = name.to_lowercase();
    let (level, dtype) = name.split_once(['-', '_']).unwrap_or((&name, ""));
    let level = match level.as_bytes() {
        [b'0', digit] => format!("o{}", char::from(*digit)),
        _ => level.to_string(),
    };
    match dtype {
        "" | "f16" | "fp16" | "float16" | "half" => level,
        "bf16" | "bfloat16" => format!("{level}-bf16"),
        other => format!("{level}-{other}"),
    }
}

#[cfg(test)]
mod tests {
    use precast_base::DType;

    use super::*;
    use crate::Level;

    #[test]
    fn every_level_has_its_policies_and_the_names_say_which() {
        for file in PolicyFile::names() {
            let policy = PolicyFile::named(file).unwrap();
            let (level, dtype) = file.split_once('-').unwrap_or((file, "f16"));
            assert_eq!(policy.dtype().name(), dtype);
            let (name, begin) = match &policy {
                PolicyFile::Cells(policy) => (&policy.name, policy.level.name().to_lowercase()),
                PolicyFile::Graph(policy) if policy.pack.as_deref() == Some("onnx-1") => (&policy.name, "onnx".into()),
                PolicyFile::Graph(policy) => (&policy.name, "graph".into()),
            };
            assert_eq!((name.as_deref(), begin.as_str()), (Some(file), level));
            let names = if let PolicyFile::Cells(_) = policy {
                Policy::names().collect()
            } else {
                GraphPolicy::names().collect::<Vec<_>>()
            };
            assert!(names.contains(&file));
        }
        for level in Level::ALL {
            let here = Policy::names().map(|name| Policy::named(name).unwrap()).filter(|policy| policy.level == level);
            let dtypes: Vec<DType> = here.map(|policy| policy.dtype).collect();
            assert!(dtypes.contains(&DType::F16) && dtypes.contains(&DType::Bf16) || level == Level::O0, "{level}");
        }
        assert_eq!(
            Policy::named("O2").unwrap_err().to_string(),
            "no policy is called `O2` (did you mean `o2`?); allowed: o0, o1, o1-bf16, o2, o2-bf16, o3, o3-bf16, auto, auto-bf16, \
             graph, graph-bf16, onnx, onnx-bf16"
        );
    }

    #[test]
    fn names_that_others_would_write_are_answered() {
        for (name, meant) in [
            ("O2", "o2"),
            ("02", "o2"),
            ("o2-fp16", "o2"),
            ("O1_bfloat16", "o1-bf16"),
            ("Auto-f16", "auto"),
            ("policies/o3-bf16.yaml", "o3-bf16"),
        ] {
            assert_eq!(PolicyFile::meant(name), Some(meant), "{name}");
        }
        let message = Policy::named("o2-fp16").unwrap_err().to_string();
        assert!(message.starts_with("no policy is called `o2-fp16` (did you mean `o2`?)"), "{message}");
        assert_eq!(PolicyFile::meant("mine.yaml"), None);
    }
}
