//! Packs: the lists of one version of a system, as data.

use std::{
    collections::BTreeMap,
    sync::{Arc, OnceLock},
};

use precast_base::{DType, Error, Result, names::did_you_mean};

use super::{
    Level, Lists,
    embedded::{self, embedded},
};
use crate::{Op, catalogue::System};

/// Packs shipped with the library.
const EMBEDDED: [(&str, &str); 17] = embedded!(
    "packs/",
    "precast-1",
    "mindspore-2.10",
    "mindspore-2.4",
    "mindspore-2.3",
    "paddle-3.3",
    "paddle-2.3",
    "torch-2.15-cpu",
    "torch-2.15-cuda",
    "tensorflow-2.21-fp16",
    "tensorflow-2.21-bf16",
    "tensorflow-2.21-cpu",
    "onnx-1",
    "onnxconverter-common-1.16",
    "onnxruntime-1.32",
    "modelopt-0.47",
    "burn-0.22",
    "candle-0.11",
);

/// Named, versioned set of lists for cells and ops. A released pack never changes: new lists get a new version.
///
/// ```
/// use precast_policy::{Level, Op, policy::Pack, precision::Treatment};
/// let pack = Pack::named("mindspore-2.10")?;
/// let o1 = pack.lists(Level::O1)?;
/// assert!(o1.cells().contains_key("Dense") && o1.ops().contains_key(&Op::MatMul));
/// assert_eq!(pack.lists(Level::Auto)?.ops()[&Op::Softmax].treatment, Treatment::Full);
/// # Ok::<(), precast_policy::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Pack {
    /// Name with version, such as `mindspore-2.10`.
    pub name: Arc<str>,
    /// Human-readable system and version whose behaviour the pack records.
    pub source: String,
    /// Naming system of its ops. `None` for the names of this library.
    pub system: Option<System>,
    /// Supported low dtypes. The first is the default for regions.
    pub dtypes: Vec<DType>,
    /// Lists of levels O1 and O2 of a network, if any.
    pub levels: BTreeMap<Level, Lists>,
    /// Cell kinds whose parameters stay f32 when a network is stored in a low dtype.
    pub stays_f32: Lists,
    /// Op lists for regions of code, by op level. The first one is the default, and also serves level auto of a
    /// network. Empty for a system without such regions.
    pub regions: Vec<(Arc<str>, Lists)>,
    /// Lists for graphs: the entries of the first region that a graph has lists for, overridden by the graph entries of
    /// the pack. `None` for a pack without graph entries.
    pub graph: Option<Lists>,
}

impl Pack {
    /// Default pack of a [`Policy`](super::Policy).
    pub const DEFAULT: &str = "precast-1";

    /// Returns the names of the packs shipped with the library.
    pub fn names() -> impl Iterator<Item = &'static str> {
        embedded::names(EMBEDDED)
    }

    /// Returns the text of a pack shipped with the library.
    pub fn shipped_text(name: &str) -> Option<&'static str> {
        embedded::text(&EMBEDDED, name)
    }

    /// Returns a pack shipped with the library.
    ///
    /// # Errors
    /// [`ErrorKind::List`](crate::ErrorKind::List) for an unknown name, listing the nearest and all names.
    pub fn named(name: &str) -> Result<Self> {
        Pack::shared(name).map(Arc::unwrap_or_clone)
    }

    /// Returns the same pack as [`named`](Pack::named) without copying it. Each pack is read once per process.
    pub fn shared(name: &str) -> Result<Arc<Self>> {
        static READ: [OnceLock<Arc<Pack>>; EMBEDDED.len()] = [const { OnceLock::new() }; EMBEDDED.len()];
        let at = embedded::position(&EMBEDDED, name, name, "no pack is called").map_err(Error::list)?;
        if let Some(pack) = READ[at].get() {
            return Ok(pack.clone());
        }
        let pack = Arc::new(Pack::parse(EMBEDDED[at].1, &format!("policies/packs/{name}.yaml"))?);
        Ok(READ[at].get_or_init(|| pack).clone())
    }

    /// Returns the lists of a level of a network. They are empty at O0 and O3, which read none.
    ///
    /// # Errors
    /// [`ErrorKind::Level`](crate::ErrorKind::Level) when the pack has no lists for the level, naming those it has.
    pub fn lists(&self, level: Level) -> Result<Lists> {
        self.find(level).ok_or_else(|| {
            let served = Level::ALL.into_iter().filter(|level| self.find(*level).is_some()).map(Level::name);
            let served = served.collect::<Vec<_>>().join(", ");
            Error::level(format!("the pack {} has no lists for level {level}; its levels: {served}", self.name))
        })
    }

    fn find(&self, level: Level) -> Option<Lists> {
        match level {
            Level::O0 | Level::O3 => Some(Lists::named(self.name.clone())),
            Level::Auto => self.regions.first().map(|(_, lists)| lists.clone()),
            level => self.levels.get(&level).cloned(),
        }
    }

    /// Returns the lists for graphs.
    ///
    /// # Errors
    /// [`ErrorKind::List`](crate::ErrorKind::List) when the pack has none, naming the packs that do.
    pub fn graph_lists(&self) -> Result<&Lists> {
        self.graph.as_ref().ok_or_else(|| {
            let has = |name: &&str| Pack::shared(name).is_ok_and(|pack| pack.graph.is_some());
            let packs: Vec<&str> = Pack::names().filter(has).collect();
            Error::list(format!(
                "the pack {} has no lists for graphs; packs with them: {}",
                self.name,
                packs.join(", ")
            ))
        })
    }

    /// Returns the lists of a region of code, by default those of the first op level.
    ///
    /// # Errors
    /// [`ErrorKind::Level`](crate::ErrorKind::Level) when the pack has no such op level, naming those it has.
    pub fn region(&self, op_level: Option<&str>) -> Result<&Lists> {
        let Some((_, usual)) = self.regions.first() else {
            let words = format!("the pack {} has no lists for regions of code, as {} has none", self.name, self.source);
            return Err(Error::level(words));
        };
        let Some(wanted) = op_level else { return Ok(usual) };
        self.regions.iter().find(|(known, _)| **known == *wanted).map(|(_, lists)| lists).ok_or_else(|| {
            let own = self.regions.iter().map(|(known, _)| &**known);
            let levels: Vec<&str> = std::iter::once("O0").chain(own).collect();
            let near = did_you_mean(wanted, levels.iter().copied());
            let levels = levels.join(", ");
            Error::level(format!("the pack {} has no op level `{wanted}`{near}; it has: {levels}", self.name))
        })
    }

    /// Checks that the pack supports a low dtype.
    ///
    /// # Errors
    /// [`ErrorKind::DType`](crate::ErrorKind::DType) when it does not, naming the supported ones.
    pub fn check_dtype(&self, dtype: DType) -> Result<()> {
        if self.dtypes.contains(&dtype) {
            return Ok(());
        }
        let dtypes: Vec<&str> = self.dtypes.iter().map(|dtype| dtype.long_name()).collect();
        let words = format!("the pack {} is for {}, not for {}", self.name, dtypes.join(" and "), dtype.long_name());
        Err(Error::dtype(words))
    }

    /// Returns whether the parameters of a cell kind stay f32 when a network is stored in a low dtype.
    pub fn keeps_f32(&self, kind: &str, dtype: DType) -> bool {
        self.stays_f32.cell(kind, dtype).is_some()
    }

    /// Returns the ops with a name in the naming system of this pack.
    ///
    /// # Errors
    /// [`ErrorKind::List`](crate::ErrorKind::List) when no op has that name.
    pub fn op(&self, name: &str) -> Result<Vec<Op>> {
        match self.system {
            Some(system) => Op::named_in(system, name),
            None => Op::named(name),
        }
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
    fn a_near_name_is_suggested() {
        let message = Pack::named("mindspore-2.1").unwrap_err().to_string();
        assert!(message.contains("did you mean `mindspore-2.10`"), "{message}");
    }

    #[test]
    fn a_pack_says_which_levels_it_serves() {
        let refused = |name, level| Pack::named(name).unwrap().lists(level).unwrap_err().to_string();
        assert_eq!(
            refused("mindspore-2.3", Level::Auto),
            "the pack mindspore-2.3 has no lists for level auto; its levels: O0, O1, O2, O3"
        );
        assert_eq!(
            refused("torch-2.15-cpu", Level::O2),
            "the pack torch-2.15-cpu has no lists for level O2; its levels: O0, O3, auto"
        );
        let message = Pack::named("mindspore-2.3").unwrap().region(None).unwrap_err().to_string();
        assert_eq!(message, "the pack mindspore-2.3 has no lists for regions of code, as MindSpore 2.3 has none");
    }
}
