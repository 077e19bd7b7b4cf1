//! Packs: the lists of one system at one version, as data.

use std::sync::Arc;

use serde::Deserialize;
use serde_yaml::Spanned;

use super::{List, Origin, diagnostic::Source, file};
use crate::{
    Op,
    error::{Error, Result, did_you_mean},
    precision::Treatment,
};

/// The packs that come with the library.
const EMBEDDED: [(&str, &str); 1] = [("mindspore-2.10", include_str!("../../policies/packs/mindspore-2.10.yaml"))];

/// A named, versioned set of lists for cells and ops.
///
/// ```
/// use precast::{Op, policy::Pack};
/// let pack = Pack::named("mindspore-2.10")?;
/// assert!(pack.white.cells().contains_key("Dense") && pack.white.ops().contains_key(&Op::MatMul));
/// assert!(pack.auto.black.ops().contains_key(&Op::Softmax));
/// # Ok::<(), precast::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Pack {
    /// Name with version, as `mindspore-2.10`.
    pub name: Arc<str>,
    /// The system and version whose behaviour it records, for people.
    pub system: String,
    /// Cells and ops that run low at O1.
    pub white: List,
    /// Cells that stay f32 at O2.
    pub black: List,
    /// Lists of ops for code that runs under lists alone, with no cell wrapped.
    pub auto: AutoLists,
}

/// What the ops of a region do that runs under lists alone; an op on none of them takes its inputs as they come.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct AutoLists {
    /// Ops that run in the low dtype.
    pub white: List,
    /// Ops that run in f32.
    pub black: List,
    /// Ops whose floating inputs are cast to the widest of them.
    pub promote: List,
}

impl AutoLists {
    /// How an op on one of the lists is treated, with the entry's origin.
    pub fn treatments(&self) -> impl Iterator<Item = (Op, Treatment, &Origin)> {
        let lists = [(&self.white, Treatment::Low), (&self.black, Treatment::Full), (&self.promote, Treatment::Widest)];
        lists.into_iter().flat_map(|(list, treatment)| list.ops().iter().map(move |(op, at)| (*op, treatment, at)))
    }
}

impl Pack {
    /// The pack of a [`Policy`](super::Policy) that names none.
    pub const DEFAULT: &str = "mindspore-2.10";

    /// The names of the packs that come with the library.
    pub fn names() -> impl Iterator<Item = &'static str> {
        EMBEDDED.into_iter().map(|(name, _)| name)
    }

    /// A pack that comes with the library.
    ///
    /// # Errors
    /// [`ErrorKind::List`](crate::ErrorKind::List) when there is none of that name, with the nearest and all names.
    pub fn named(name: &str) -> Result<Self> {
        let Some((_, text)) = EMBEDDED.into_iter().find(|(known, _)| *known == name) else {
            let allowed: Vec<&str> = Pack::names().collect();
            let near = did_you_mean(name, allowed.iter().copied());
            return Err(Error::list(format!("no pack is called `{name}`{near}; allowed: {}", allowed.join(", "))));
        };
        Pack::parse(text, &format!("policies/packs/{name}.yaml"))
    }

    /// Reads a pack file. Every op must be in the catalogue; kinds of cells are open, since users have their own.
    fn parse(text: &str, name: &str) -> Result<Self> {
        let source = Source { name: name.into(), text };
        file::check_form(&source)?;
        file::check_version(&source, "pack")?;
        let read: PackV1 = file::read(&source)?;
        let origin = Origin::Pack(read.name.as_str().into());
        let list = |cells: &[Spanned<String>], ops: &[Spanned<String>]| -> Result<List> {
            let mut list = List::new();
            for kind in unique(&source, cells)? {
                list.add_cell(kind.value.clone(), origin.clone());
            }
            for name in unique(&source, ops)? {
                // One op may go by several names of the system, and then comes more than once.
                for op in Op::named(&name.value).map_err(|error| source.error(name.referenced, error))? {
                    list.add_op(op, origin.clone());
                }
            }
            Ok(list)
        };
        Ok(Pack {
            system: read.system,
            white: list(&read.cells.white, &read.ops.white)?,
            black: list(&read.cells.black, &[])?,
            auto: AutoLists {
                white: list(&[], &read.auto.white)?,
                black: list(&[], &read.auto.black)?,
                promote: list(&[], &read.auto.promote)?,
            },
            name: read.name.into(),
        })
    }
}

/// The names, when none stands twice.
fn unique<'a>(source: &Source<'_>, names: &'a [Spanned<String>]) -> Result<&'a [Spanned<String>]> {
    for (i, name) in names.iter().enumerate() {
        if names[..i].iter().any(|earlier| earlier.value == name.value) {
            let error = Error::list(format!("`{}` stands on this list already", name.value));
            return Err(source.error(name.referenced, error));
        }
    }
    Ok(names)
}

/// Version 1 of a pack file. What other systems need (more categories of ops, what an unlisted op does) comes as further
/// keys of these structs.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PackV1 {
    #[serde(rename = "version")]
    _version: u32,
    name: String,
    system: String,
    #[serde(default)]
    cells: CellsV1,
    #[serde(default)]
    ops: OpsV1,
    #[serde(default)]
    auto: AutoV1,
}

#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct CellsV1 {
    white: Vec<Spanned<String>>,
    black: Vec<Spanned<String>>,
}

#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct OpsV1 {
    white: Vec<Spanned<String>>,
}

#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct AutoV1 {
    white: Vec<Spanned<String>>,
    black: Vec<Spanned<String>>,
    promote: Vec<Spanned<String>>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_embedded_packs_are_read_under_their_own_names() {
        for name in Pack::names() {
            let pack = Pack::named(name).unwrap();
            assert_eq!(&*pack.name, name);
        }
        assert!(Pack::names().any(|name| name == Pack::DEFAULT));
    }

    #[test]
    fn faults_of_a_pack_are_pointed_at() {
        let head = "version: 1\nname: x\nsystem: X\n";
        for (rest, words) in [
            ("ops: { white: [MatMull] }", "p.yaml:4:16: no op is called `MatMull` (did you mean `MatMul`?)"),
            ("cells: { black: [A, B, A] }", "p.yaml:4:24: `A` stands on this list already"),
            ("auto: { promoted: [] }", "p.yaml:4:9: unknown key `promoted` (did you mean `promote`?)"),
        ] {
            let message = Pack::parse(&format!("{head}{rest}\n"), "p.yaml").unwrap_err().to_string();
            assert!(message.starts_with(words), "{message}");
        }
    }

    #[test]
    fn a_near_name_is_suggested() {
        let message = Pack::named("mindspore-2.1").unwrap_err().to_string();
        assert!(message.contains("did you mean `mindspore-2.10`"), "{message}");
    }
}
