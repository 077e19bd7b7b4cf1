//! Reading and writing policy files.

use std::path::Path;

use precast_base::{
    Result,
    document::{self, Place, Source},
    files,
};

use super::{GraphPolicy, Policy, either::PolicyFile, v1};

impl Policy {
    /// Reads a policy file.
    ///
    /// # Errors
    /// Every message about the content of the file begins with `file:line:column` and shows the line. The kind is
    /// [`Io`](crate::ErrorKind::Io) when the file cannot be read, [`DType`](crate::ErrorKind::DType) and
    /// [`Level`](crate::ErrorKind::Level) for a wrong dtype or level (checked in this order),
    /// [`List`](crate::ErrorKind::List) for errors in the lists, [`Value`](crate::ErrorKind::Value) for numbers of the
    /// loss scale, and [`Policy`](crate::ErrorKind::Policy) for everything else, including a policy for graphs, which
    /// [`GraphPolicy::load`] reads.
    pub fn load(path: impl AsRef<Path>) -> Result<Self> {
        load(path.as_ref(), PolicyFile::cells)
    }

    /// Reads the text of a policy file. `name` identifies the file in messages and [`Origin`](super::Origin)s.
    ///
    /// # Errors
    /// As [`Policy::load`].
    ///
    /// ```
    /// use precast_policy::{Level, Policy};
    /// let text = "version: 1\nlevel: O2\ndtype: bfloat16\nrules: [{ path: head.fc, run: float32 }]\n";
    /// let policy = Policy::parse(text, "inline")?;
    /// assert_eq!(policy.level, Level::O2);
    ///
    /// let error = Policy::parse(&text.replace("O2", "O7"), "inline").unwrap_err();
    /// assert!(error.to_string().starts_with("inline:2:8: unknown level `O7`"));
    /// # Ok::<(), precast_policy::Error>(())
    /// ```
    pub fn parse(text: &str, name: &str) -> Result<Self> {
        parse(text, name, PolicyFile::cells)
    }

    /// Returns the text of an equivalent policy file. It is complete: the loss scale is written even if it is the usual
    /// one, and the lists are written as additions to and removals from those of the pack.
    ///
    /// # Errors
    /// [`ErrorKind::List`](crate::ErrorKind::List) when the policy names an unknown pack, or its lists have entries
    /// that its level does not read or a file cannot express; [`ErrorKind::Policy`](crate::ErrorKind::Policy) when the
    /// text is longer than is read.
    pub fn to_yaml(&self) -> Result<String> {
        document::written(&v1::written(self)?)
    }

    /// Writes a policy file atomically; see [`Policy::to_yaml`].
    ///
    /// # Errors
    /// As [`Policy::to_yaml`], and [`ErrorKind::Io`](crate::ErrorKind::Io) when the file cannot be written.
    pub fn save(&self, path: impl AsRef<Path>) -> Result<()> {
        files::replace(path, self.to_yaml()?.as_bytes())
    }
}

impl GraphPolicy {
    /// Reads a policy file for graphs.
    ///
    /// # Errors
    /// As [`Policy::load`], and [`ErrorKind::Policy`](crate::ErrorKind::Policy) for a policy with a level.
    pub fn load(path: impl AsRef<Path>) -> Result<Self> {
        load(path.as_ref(), PolicyFile::graph)
    }

    /// Reads the text of a policy file for graphs. `name` identifies the file in messages.
    ///
    /// # Errors
    /// As [`GraphPolicy::load`].
    pub fn parse(text: &str, name: &str) -> Result<Self> {
        parse(text, name, PolicyFile::graph)
    }

    /// Returns the text of an equivalent policy file; see [`Policy::to_yaml`].
    ///
    /// # Errors
    /// As [`Policy::to_yaml`].
    pub fn to_yaml(&self) -> Result<String> {
        document::written(&v1::written_graph(self)?)
    }

    /// Writes a policy file atomically.
    ///
    /// # Errors
    /// As [`Policy::save`].
    pub fn save(&self, path: impl AsRef<Path>) -> Result<()> {
        files::replace(path, self.to_yaml()?.as_bytes())
    }
}

impl PolicyFile {
    /// Reads a policy file of either kind.
    ///
    /// # Errors
    /// As [`Policy::load`].
    pub fn load(path: impl AsRef<Path>) -> Result<Self> {
        load(path.as_ref(), Ok)
    }

    /// Reads the text of a policy file of either kind. `name` identifies the file in messages.
    ///
    /// # Errors
    /// As [`Policy::load`].
    pub fn parse(text: &str, name: &str) -> Result<Self> {
        parse(text, name, Ok)
    }

    /// Returns the text of an equivalent policy file; see [`Policy::to_yaml`].
    ///
    /// # Errors
    /// As [`Policy::to_yaml`].
    pub fn to_yaml(&self) -> Result<String> {
        match self {
            PolicyFile::Cells(policy) => policy.to_yaml(),
            PolicyFile::Graph(policy) => policy.to_yaml(),
        }
    }
}

/// Reads a policy file of the kind that `expected` accepts.
fn load<T>(path: &Path, expected: impl FnOnce(PolicyFile) -> Result<T>) -> Result<T> {
    let name = path.display().to_string();
    let text = document::load::<v1::PolicyV1>(path, |error| match PolicyFile::meant(&name) {
        Some(shipped) if error.kind() == std::io::ErrorKind::NotFound => {
            let reader = if Policy::names().any(|name| name == shipped) { "Policy" } else { "GraphPolicy" };
            format!("; the policy that comes with the library is `{reader}::named({shipped:?})`")
        }
        _ => String::new(),
    })?;
    parse(&text, &name, |policy| {
        tracing::debug!(target: "precast", file = name, level = policy.level().map(tracing::field::display), dtype = %policy.dtype(), "policy read");
        expected(policy)
    })
}

/// Reads the text of a policy file of the kind that `expected` accepts.
fn parse<T>(text: &str, name: &str, expected: impl FnOnce(PolicyFile) -> Result<T>) -> Result<T> {
    let source = Source::new(name, text);
    let (policy, deciding): (PolicyFile, Place) = v1::read(document::read(&source)?, &source)?;
    expected(policy).map_err(|error| source.error(deciding, error))
}
