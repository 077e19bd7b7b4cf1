//! Packs: the lists of one system at one version, as data.

use std::{
    fmt,
    sync::{Arc, OnceLock},
};

use serde::{
    Deserialize, Deserializer,
    de::{MapAccess, Visitor, value::MapAccessDeserializer},
};
use serde_yaml::Spanned;

use super::{Level, List, OpEntry, OpLists, Origin, diagnostic::Source, file};
use crate::{
    DType, Op,
    catalogue::System,
    error::{Error, Result, did_you_mean},
    precision::Treatment,
};

/// Embeds `policies/packs/NAME.yaml` for each name.
macro_rules! embedded {
    ($($name:literal),* $(,)?) => {
        [$(($name, include_str!(concat!("../../policies/packs/", $name, ".yaml")))),*]
    };
}

/// The packs that come with the library.
const EMBEDDED: [(&str, &str); 8] = embedded![
    "precast-1",
    "mindspore-2.10",
    "paddle-3.3",
    "torch-2.15-cpu",
    "torch-2.15-cuda",
    "tensorflow-2.21-fp16",
    "tensorflow-2.21-bf16",
    "tensorflow-2.21-cpu",
];

/// A named, versioned set of lists for cells and ops. A released pack never changes: new lists are a new version.
///
/// ```
/// use precast::{DType, Op, policy::Pack, precision::Treatment};
/// let pack = Pack::named("mindspore-2.10")?;
/// assert!(pack.white.cells().contains_key("Dense") && pack.white.ops().contains_key(&Op::MatMul));
/// assert_eq!(pack.auto().entry(Op::Softmax, DType::F16).unwrap().treatment, Treatment::Full);
/// # Ok::<(), precast::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Pack {
    /// Name with version, as `mindspore-2.10`.
    pub name: Arc<str>,
    /// The system and version whose behaviour it records, for people.
    pub source: String,
    /// Whose names of ops its users speak; `None` for this library's.
    pub system: Option<System>,
    /// The low dtypes it is made for; the first is what a region takes that names none.
    pub dtypes: Vec<DType>,
    /// Cells and ops that run low at O1.
    pub white: List,
    /// Cells that stay f32 at O2.
    pub black: List,
    /// Cells whose parameters stay f32 when a network is stored low, each with the low dtype for which it does (`None`: both).
    pub stays_f32: Vec<(String, Option<DType>)>,
    /// The op lists of code that runs under lists, one for each level that the system has; the first is the usual one.
    pub regions: Vec<OpLists>,
}

impl Pack {
    /// The pack of a [`Policy`](super::Policy) that names none.
    pub const DEFAULT: &str = "precast-1";

    /// The names of the packs that come with the library.
    pub fn names() -> impl Iterator<Item = &'static str> {
        EMBEDDED.into_iter().map(|(name, _)| name)
    }

    /// A pack that comes with the library.
    ///
    /// # Errors
    /// [`ErrorKind::List`](crate::ErrorKind::List) when there is none of that name, with the nearest and all names.
    pub fn named(name: &str) -> Result<Self> {
        Pack::shared(name).map(Arc::unwrap_or_clone)
    }

    /// As [`named`](Pack::named), without a copy: each pack is read once in the life of a program.
    pub(crate) fn shared(name: &str) -> Result<Arc<Self>> {
        static READ: [OnceLock<Arc<Pack>>; EMBEDDED.len()] = [const { OnceLock::new() }; EMBEDDED.len()];
        let Some(at) = EMBEDDED.into_iter().position(|(known, _)| known == name) else {
            let allowed: Vec<&str> = Pack::names().collect();
            let near = did_you_mean(name, allowed.iter().copied());
            return Err(Error::list(format!("no pack is called `{name}`{near}; allowed: {}", allowed.join(", "))));
        };
        if let Some(pack) = READ[at].get() {
            return Ok(pack.clone());
        }
        let pack = Arc::new(Pack::parse(EMBEDDED[at].1, &format!("policies/packs/{name}.yaml"))?);
        Ok(READ[at].get_or_init(|| pack).clone())
    }

    /// What ops do at level auto.
    pub fn auto(&self) -> &OpLists {
        &self.regions[0]
    }

    /// The op lists of a level of this pack.
    ///
    /// # Errors
    /// [`ErrorKind::Level`](crate::ErrorKind::Level) when it has no such level, with those it has.
    pub fn region(&self, level: &str) -> Result<&OpLists> {
        self.regions.iter().find(|lists| &*lists.level == level).ok_or_else(|| {
            let own = self.regions.iter().map(|lists| &*lists.level);
            let levels: Vec<&str> = std::iter::once("O0").chain(own).collect();
            let near = did_you_mean(level, levels.iter().copied());
            Error::level(format!("the pack {} has no level `{level}`{near}; it has: {}", self.name, levels.join(", ")))
        })
    }

    /// Whether a policy of this level and low dtype can go by it.
    ///
    /// # Errors
    /// [`ErrorKind::DType`](crate::ErrorKind::DType) for a dtype it is not made for; [`ErrorKind::Level`](crate::ErrorKind::Level)
    /// for O1 or O2 when it lists no cells, which these levels go by.
    pub fn check_serves(&self, level: Level, dtype: DType) -> Result<()> {
        self.check_dtype(dtype)?;
        let lists = match level {
            Level::O1 => !self.white.is_empty(),
            Level::O2 => !self.black.is_empty(),
            _ => true,
        };
        if lists {
            return Ok(());
        }
        let words =
            format!("the pack {} lists no cells, which level {level} goes by; its levels: O0, O3, auto", self.name);
        Err(Error::level(words))
    }

    /// Whether it is made for a low dtype.
    ///
    /// # Errors
    /// [`ErrorKind::DType`](crate::ErrorKind::DType) when it is not, with those it is made for.
    pub fn check_dtype(&self, dtype: DType) -> Result<()> {
        if self.dtypes.contains(&dtype) {
            return Ok(());
        }
        let dtypes: Vec<&str> = self.dtypes.iter().map(|dtype| dtype.long_name()).collect();
        let words = format!("the pack {} is for {}, not for {}", self.name, dtypes.join(" and "), dtype.long_name());
        Err(Error::dtype(words))
    }

    /// Whether the parameters of a kind of cell stay f32 when a network is stored in this low dtype.
    pub fn keeps_f32(&self, kind: &str, dtype: DType) -> bool {
        self.stays_f32.iter().any(|(kept, only)| kept == kind && only.is_none_or(|only| only == dtype))
    }

    /// The ops of a name, as the users of this pack's system mean it.
    ///
    /// # Errors
    /// [`ErrorKind::List`](crate::ErrorKind::List) when no op has that name.
    pub fn op(&self, name: &str) -> Result<Vec<Op>> {
        match self.system {
            Some(system) => Op::named_in(system, name),
            None => Op::named(name),
        }
    }

    /// Reads a pack file. Every op must be in the catalogue; kinds of cells are open, since users have their own.
    fn parse(text: &str, name: &str) -> Result<Self> {
        let source = Source { name: name.into(), text };
        file::check_form(&source)?;
        file::check_version(&source, "pack")?;
        let read: PackV1 = file::read(&source)?;
        let name: Arc<str> = read.name.as_str().into();
        let mut pack = Pack {
            source: read.source,
            system: read.system,
            dtypes: read.dtypes,
            white: List::new(),
            black: List::new(),
            stays_f32: Vec::new(),
            regions: Vec::new(),
            name: name.clone(),
        };
        let origin = Origin::Pack(name);
        for (list, kinds) in [(&mut pack.white, &read.cells.white), (&mut pack.black, &read.cells.black)] {
            unique(&source, kinds)?.iter().for_each(|kind| list.add_cell(kind.value.name.clone(), origin.clone()));
        }
        for kind in unique(&source, &read.cells.stays_f32)? {
            pack.stays_f32.push((kind.value.name.clone(), kind.value.dtype));
        }
        let ops = |pack: &Pack, entry: &Spanned<EntryV1>| {
            pack.op(&entry.value.name).map_err(|error| source.error(entry.referenced, error))
        };
        for entry in unique(&source, &read.ops.white)? {
            // One op may go by several names of the system, and then comes more than once.
            for op in ops(&pack, entry)? {
                pack.white.add_op(op, origin.clone());
            }
        }
        for region in read.regions {
            let region_name = match (read.name.as_str(), region.level.as_str()) {
                (name, "auto") => name.to_string(),
                (name, level) => format!("{name} {level}"),
            };
            let mut lists = OpLists::new(region_name, region.level.as_str());
            lists.eligible.clone_from(&read.eligible);
            lists.unlisted = region.unlisted;
            lists.unlisted_unpromoted = region.unlisted_unpromoted;
            for entry in unique(&source, &region.by_first)? {
                lists.by_first.extend(ops(&pack, entry)?);
            }
            for (treatment, entries) in [
                (Treatment::Low, &region.low),
                (Treatment::Full, &region.full),
                (Treatment::FullUnlessDtype, &region.full_unless_dtype),
                (Treatment::Widest, &region.widest),
                (Treatment::Banned, &region.banned),
                (Treatment::Infer, &region.infer),
                (Treatment::Clear, &region.clear),
            ] {
                for written in unique(&source, entries)? {
                    let because = written.value.because.as_deref().map(Arc::from);
                    for op in ops(&pack, written)? {
                        let entry = OpEntry {
                            treatment,
                            only: written.value.dtype,
                            because: because.clone(),
                            origin: origin.clone(),
                        };
                        if let Some(earlier) = lists.insert(op, entry)
                            && earlier.treatment != treatment
                        {
                            let words = format!("{op} stands on the list `{}` already", earlier.treatment);
                            return Err(source.error(written.referenced, Error::list(words)));
                        }
                    }
                }
            }
            pack.regions.push(lists);
        }
        if pack.regions.is_empty() || pack.dtypes.is_empty() {
            return Err(Error::list(format!("{}: a pack needs at least one low dtype and one region", source.name)));
        }
        Ok(pack)
    }
}

/// The entries, when no name stands twice.
fn unique<'a>(source: &Source<'_>, entries: &'a [Spanned<EntryV1>]) -> Result<&'a [Spanned<EntryV1>]> {
    for (i, entry) in entries.iter().enumerate() {
        if entries[..i].iter().any(|earlier| earlier.value.name == entry.value.name) {
            let error = Error::list(format!("`{}` stands on this list already", entry.value.name));
            return Err(source.error(entry.referenced, error));
        }
    }
    Ok(entries)
}

/// Version 1 of a pack file.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PackV1 {
    #[serde(rename = "version")]
    _version: u32,
    name: String,
    source: String,
    #[serde(default)]
    system: Option<System>,
    dtypes: Vec<DType>,
    eligible: Vec<DType>,
    #[serde(default)]
    cells: CellsV1,
    #[serde(default)]
    ops: OpsV1,
    regions: Vec<RegionV1>,
}

#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct CellsV1 {
    white: Vec<Spanned<EntryV1>>,
    black: Vec<Spanned<EntryV1>>,
    stays_f32: Vec<Spanned<EntryV1>>,
}

#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct OpsV1 {
    white: Vec<Spanned<EntryV1>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RegionV1 {
    level: String,
    unlisted: Treatment,
    #[serde(default)]
    unlisted_unpromoted: Option<Treatment>,
    #[serde(default)]
    by_first: Vec<Spanned<EntryV1>>,
    #[serde(default)]
    low: Vec<Spanned<EntryV1>>,
    #[serde(default)]
    full: Vec<Spanned<EntryV1>>,
    #[serde(default)]
    full_unless_dtype: Vec<Spanned<EntryV1>>,
    #[serde(default)]
    widest: Vec<Spanned<EntryV1>>,
    #[serde(default)]
    banned: Vec<Spanned<EntryV1>>,
    #[serde(default)]
    infer: Vec<Spanned<EntryV1>>,
    #[serde(default)]
    clear: Vec<Spanned<EntryV1>>,
}

/// An entry of a list: a name, or a map that says more.
struct EntryV1 {
    name: String,
    dtype: Option<DType>,
    because: Option<String>,
}

impl<'de> Deserialize<'de> for EntryV1 {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(deny_unknown_fields)]
        struct Long {
            name: String,
            #[serde(default)]
            dtype: Option<DType>,
            #[serde(default)]
            because: Option<String>,
        }
        struct Either;
        impl<'de> Visitor<'de> for Either {
            type Value = EntryV1;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a name, or { name, dtype, because }")
            }

            fn visit_str<E>(self, name: &str) -> Result<EntryV1, E> {
                Ok(EntryV1 { name: name.into(), dtype: None, because: None })
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<EntryV1, A::Error> {
                let Long { name, dtype, because } = Long::deserialize(MapAccessDeserializer::new(map))?;
                Ok(EntryV1 { name, dtype, because })
            }
        }
        deserializer.deserialize_any(Either)
    }
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
        let head = "version: 1\nname: x\nsource: X\ndtypes: [float16]\neligible: [float32]\n";
        let region = "regions: [{ level: auto, unlisted: as_is, low: [MatMul], full: [Exp, MatMul] }]";
        for (rest, words) in [
            ("ops: { white: [MatMull] }\nregions: []", "p.yaml:6:16: no op is called `MatMull` (did you mean `MatMul`"),
            ("cells: { black: [A, B, A] }\nregions: []", "p.yaml:6:24: `A` stands on this list already"),
            (
                "regions: [{ level: auto, unlisted: as_is, lwo: [] }]",
                "p.yaml:6:43: unknown key `lwo` (did you mean `low`?)",
            ),
            (region, "p.yaml:6:70: MatMul stands on the list `low` already"),
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
