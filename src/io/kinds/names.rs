//! The names of kinds, here and elsewhere.

use precast_base::names::nearest;
#[doc(inline)]
pub use precast_policy::kinds::Names;
use precast_policy::kinds::foreign;
pub(crate) use precast_policy::kinds::{elsewhere, named_elsewhere};

use crate::{
    error::{Error, Result},
    layers::kinds,
};

/// The kind of a name: one of [`layers::kinds`](crate::layers::kinds), or what torch or MindSpore call it, as `Linear`
/// or `nn.Linear`.
///
/// # Errors
/// [`ErrorKind::Model`](crate::ErrorKind::Model) for an unknown name, with the nearest one.
///
/// ```
/// use precast::io::kinds::named;
/// assert_eq!((named("Dense")?, named("nn.Linear")?), ("Dense", "Dense"));
/// assert!(named("Linaer").unwrap_err().to_string().contains("did you mean `Linear`, as torch calls Dense?"));
/// # Ok::<(), precast::Error>(())
/// ```
pub fn named(name: &str) -> Result<&'static str> {
    let here = kinds()?;
    if let Some(kind) = here.iter().find(|kind| **kind == name) {
        return Ok(kind);
    }
    if let Some((kind, _)) = named_elsewhere(name) {
        return Ok(kind);
    }
    Err(Error::model(unknown(name, &here)))
}

/// Returns the error text for an unknown name.
pub(crate) fn unknown(name: &str, here: &[&'static str]) -> String {
    let all: Vec<(&str, &str, &str)> = here.iter().map(|kind| (*kind, "", *kind)).chain(foreign()).collect();
    let near = match nearest(name, &all, |(name, ..)| name) {
        None => "; a kind of a program is known to that program's own command".into(),
        Some((near, _, kind)) if near == kind => format!(" (did you mean `{kind}`?)"),
        Some((near, who, kind)) => format!(" (did you mean `{near}`, as {who} calls {kind}?)"),
    };
    format!("no kind of cell is called `{name}`{near}")
}
