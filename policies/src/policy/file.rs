//! Reading and writing policy files.

use std::path::Path;

use super::{Policy, v1};
use crate::{
    document::{self, Source},
    error::{Error, Result},
    files,
    logging::event,
};

impl Policy {
    /// Reads a policy file.
    ///
    /// # Errors
    /// Every message about the content of the file begins with `file:line:column` and shows the line. The kind is
    /// [`Io`](crate::ErrorKind::Io) when the file cannot be read, [`DType`](crate::ErrorKind::DType) and
    /// [`Level`](crate::ErrorKind::Level) for a wrong dtype or level (checked in this order),
    /// [`List`](crate::ErrorKind::List) for errors in the lists, [`Value`](crate::ErrorKind::Value) for numbers of the
    /// loss scale, and [`Policy`](crate::ErrorKind::Policy) for everything else.
    pub fn load(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        let name = path.display().to_string();
        let text = document::load::<v1::PolicyV1>(path, |error| match Policy::meant(&name) {
            Some(shipped) if error.kind() == std::io::ErrorKind::NotFound => {
                format!("; the policy that comes with the library is `Policy::named({shipped:?})`")
            }
            _ => String::new(),
        })?;
        let policy = Policy::parse(&text, &name)?;
        event!(DEBUG, file = name, level = %policy.level, dtype = %policy.dtype, "policy read");
        Ok(policy)
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
        let source = Source::new(name, text);
        v1::policy(document::read(&source)?, &source)
    }

    /// Returns the text of an equivalent policy file. It is complete: the loss scale is written even if it is the usual
    /// one, and the lists are written as additions to and removals from those of the pack.
    ///
    /// # Errors
    /// [`ErrorKind::List`](crate::ErrorKind::List) when the policy names an unknown pack, or its lists have entries
    /// that its level does not read or a file cannot express.
    pub fn to_yaml(&self) -> Result<String> {
        let written = v1::written(self)?;
        serde_yaml::to_string(&written).map_err(|error| Error::policy(format!("the policy cannot be written: {error}")))
    }

    /// Writes a policy file atomically; see [`Policy::to_yaml`].
    ///
    /// # Errors
    /// As [`Policy::to_yaml`], and [`ErrorKind::Io`](crate::ErrorKind::Io) when the file cannot be written.
    pub fn save(&self, path: impl AsRef<Path>) -> Result<()> {
        files::replace(path, self.to_yaml()?.as_bytes())
    }
}
