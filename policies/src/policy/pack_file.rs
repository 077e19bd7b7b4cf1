//! Version 1 of pack files: the document structure and its conversion to a [`Pack`].

use std::{collections::BTreeMap, fmt, sync::Arc};

use precast_base::{
    DType, Error, ErrorKind, Result,
    document::{self, At, Document, Source},
};
use serde::{
    Deserialize, Deserializer,
    de::{MapAccess, Visitor, value::MapAccessDeserializer},
};

use super::{
    Entry, GraphList, Level, Lists, Origin, Pack,
    lists::{Listed, Reader},
};
use crate::{Op, catalogue::System, precision::Treatment};

impl Pack {
    /// Reads a pack file. Every op must be in the catalogue. Cell kinds are open, since users define their own.
    pub(super) fn parse(text: &str, name: &str) -> Result<Pack> {
        let source = Source::new(name, text);
        let read: PackV1 = document::read(&source)?;
        let name: Arc<str> = read.name.as_str().into();
        let mut pack = Pack {
            source: read.source,
            system: read.system,
            dtypes: read.dtypes,
            levels: BTreeMap::new(),
            stays_f32: Lists::named(name.clone()),
            regions: Vec::new(),
            graph: None,
            name,
        };
        let named = |op_level: &str| {
            let own = pack.name.clone();
            let mut lists = Lists::named(if op_level == "auto" { own } else { format!("{own} {op_level}").into() });
            lists.eligible.clone_from(&read.eligible);
            lists
        };
        let writer = Writer { source: &source, pack: &pack };

        let mut levels = BTreeMap::new();
        for (level, written) in [(Level::O1, &read.levels.o1), (Level::O2, &read.levels.o2)] {
            let Some(written) = written else { continue };
            let mut lists = named("auto");
            for (treatment, entries) in written.cells.lists() {
                check_reads(&source, level, Listed::Cells, treatment, entries)?;
                writer.put_cells(&mut lists, treatment, entries)?;
            }
            for (treatment, entries) in written.ops.lists() {
                check_reads(&source, level, Listed::Ops, treatment, entries)?;
                writer.put_ops(&mut lists, treatment, entries, Treatment::name)?;
            }
            levels.insert(level, lists);
        }
        let mut stays_f32 = pack.stays_f32.clone();
        writer.put_cells(&mut stays_f32, Treatment::Full, &read.stays_f32)?;
        let mut regions = Vec::new();
        for region in &read.regions {
            let mut lists = named(&region.op_level);
            lists.unlisted = region.unlisted;
            lists.unlisted_unpromoted = region.unlisted_unpromoted;
            for entry in unique(&source, &region.by_first)? {
                lists.by_first.extend(writer.ops(entry)?);
            }
            for (treatment, entries) in region.lists() {
                writer.put_ops(&mut lists, treatment, entries, Treatment::name)?;
            }
            regions.push((region.op_level.as_str().into(), lists));
        }
        let graph = read.graph.as_ref().map(|written| -> Result<Lists> {
            let mut own = named("auto");
            for (list, entries) in written.lists() {
                let name = |treatment| GraphList::of(treatment).map_or("", GraphList::name);
                writer.put_ops(&mut own, list.treatment(), entries, name)?;
            }
            let mut lists = named("auto");
            lists.unlisted = written.unlisted.map_or(lists.unlisted, GraphList::treatment);
            let of_region = regions.first().into_iter().flat_map(|(_, region): &(Arc<str>, Lists)| region.ops());
            let of_graph = of_region.filter(|(_, entry)| GraphList::of(entry.treatment).is_some());
            for (op, entry) in of_graph.chain(own.ops()) {
                lists.put_op(*op, entry.clone());
            }
            Ok(lists)
        });
        let graph = graph.transpose()?;
        if pack.dtypes.is_empty() || (levels.is_empty() && regions.is_empty() && graph.is_none()) {
            let words =
                format!("{}: a pack needs at least one low dtype, and a level, a region or a graph", source.name);
            return Err(Error::list(words));
        }
        pack = Pack { levels, stays_f32, regions, graph, ..pack };
        Ok(pack)
    }
}

/// Checks that the level reads a list. The error points at the first entry of the list.
fn check_reads(
    source: &Source<'_>,
    level: Level,
    listed: Listed,
    treatment: Treatment,
    entries: &[At<EntryV1>],
) -> Result<()> {
    match entries.first() {
        None => Ok(()),
        Some(entry) => {
            Reader::Level(level).check_reads(listed, treatment).map_err(|error| source.error(entry.place, error))
        }
    }
}

/// Converter from written entries to list entries.
struct Writer<'a> {
    source: &'a Source<'a>,
    pack: &'a Pack,
}

impl Writer<'_> {
    fn entry(&self, treatment: Treatment, written: &EntryV1) -> Entry {
        let because = written.because.as_deref().map(Arc::from);
        Entry { treatment, only: written.dtype, because, origin: Origin::Pack(self.pack.name.clone()) }
    }

    /// Returns the ops with a name. An op may have several names in a system, and a name may denote several ops.
    fn ops(&self, entry: &At<EntryV1>) -> Result<Vec<Op>> {
        self.pack.op(&entry.value.name).map_err(|error| self.source.error(entry.place, error))
    }

    fn put_cells(&self, lists: &mut Lists, treatment: Treatment, entries: &[At<EntryV1>]) -> Result<()> {
        for kind in unique(self.source, entries)? {
            lists.put_cell(kind.value.name.clone(), self.entry(treatment, &kind.value));
        }
        Ok(())
    }

    /// Adds entries for ops. `names` maps a treatment to the name of its list.
    fn put_ops(
        &self,
        lists: &mut Lists,
        treatment: Treatment,
        entries: &[At<EntryV1>],
        names: fn(Treatment) -> &'static str,
    ) -> Result<()> {
        for written in unique(self.source, entries)? {
            for op in self.ops(written)? {
                let earlier = lists.put_op(op, self.entry(treatment, &written.value));
                if let Some(earlier) = earlier.filter(|earlier| earlier.treatment != treatment) {
                    let words = format!("{op} is already on the list `{}`", names(earlier.treatment));
                    return Err(self.source.error(written.place, Error::list(words)));
                }
            }
        }
        Ok(())
    }
}

/// Returns the entries after checking that no name occurs twice.
fn unique<'a>(source: &Source<'_>, entries: &'a [At<EntryV1>]) -> Result<&'a [At<EntryV1>]> {
    for (i, entry) in entries.iter().enumerate() {
        if entries[..i].iter().any(|earlier| earlier.value.name == entry.value.name) {
            let error = Error::list(format!("`{}` is already on this list", entry.value.name));
            return Err(source.error(entry.place, error));
        }
    }
    Ok(entries)
}

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
    levels: LevelsV1,
    #[serde(default)]
    stays_f32: Vec<At<EntryV1>>,
    #[serde(default)]
    regions: Vec<RegionV1>,
    #[serde(default)]
    graph: Option<GraphV1>,
}

impl Document for PackV1 {
    const WHAT: &'static str = "pack";
    const KIND: ErrorKind = ErrorKind::Policy;
    const REQUIRED: &'static [&'static str] = &["version", "name"];
}

/// Levels of a network that read lists.
#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct LevelsV1 {
    #[serde(rename = "O1")]
    o1: Option<LevelV1>,
    #[serde(rename = "O2")]
    o2: Option<LevelV1>,
}

#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct LevelV1 {
    cells: ByTreatmentV1,
    ops: ByTreatmentV1,
}

#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct ByTreatmentV1 {
    low: Vec<At<EntryV1>>,
    full: Vec<At<EntryV1>>,
}

impl ByTreatmentV1 {
    fn lists(&self) -> [(Treatment, &[At<EntryV1>]); 2] {
        [(Treatment::Low, &self.low), (Treatment::Full, &self.full)]
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RegionV1 {
    op_level: String,
    unlisted: Treatment,
    #[serde(default)]
    unlisted_unpromoted: Option<Treatment>,
    #[serde(default)]
    by_first: Vec<At<EntryV1>>,
    #[serde(default)]
    low: Vec<At<EntryV1>>,
    #[serde(default)]
    full: Vec<At<EntryV1>>,
    #[serde(default)]
    widest: Vec<At<EntryV1>>,
    #[serde(default)]
    banned: Vec<At<EntryV1>>,
    #[serde(default)]
    infer: Vec<At<EntryV1>>,
    #[serde(default)]
    clear: Vec<At<EntryV1>>,
}

impl RegionV1 {
    fn lists(&self) -> [(Treatment, &[At<EntryV1>]); 6] {
        [
            (Treatment::Low, &self.low),
            (Treatment::Full, &self.full),
            (Treatment::Widest, &self.widest),
            (Treatment::Banned, &self.banned),
            (Treatment::Infer, &self.infer),
            (Treatment::Clear, &self.clear),
        ]
    }
}

/// Entries of a graph rewrite. All other ops follow the lists `low`, `full`, `infer` and `clear` of the first region.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct GraphV1 {
    /// The list of ops on none, if they have one.
    #[serde(default)]
    unlisted: Option<GraphList>,
    #[serde(default)]
    allow: Vec<At<EntryV1>>,
    #[serde(default)]
    infer: Vec<At<EntryV1>>,
    #[serde(default)]
    deny: Vec<At<EntryV1>>,
    #[serde(default)]
    clear: Vec<At<EntryV1>>,
}

impl GraphV1 {
    fn lists(&self) -> [(GraphList, &[At<EntryV1>]); 4] {
        [
            (GraphList::Allow, &self.allow),
            (GraphList::Infer, &self.infer),
            (GraphList::Deny, &self.deny),
            (GraphList::Clear, &self.clear),
        ]
    }
}

/// List entry: a name, or a map with a name, a dtype and a reason.
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
    fn faults_of_a_pack_are_pointed_at() {
        let head = "version: 1\nname: x\nsource: X\ndtypes: [float16]\neligible: [float32]\n";
        let region = "regions: [{ op_level: auto, unlisted: as_is, low: [MatMul], full: [Exp, MatMul] }]";
        for (rest, words) in [
            (
                "levels: { O1: { ops: { low: [MatMull] } } }",
                "p.yaml:6:30: no op is called `MatMull` (did you mean `MatMul`",
            ),
            ("graph: { allow: [[Linear]] }", "p.yaml:6:18: expected a name, or { name, dtype, because }, got sequence"),
            ("levels: { O2: { cells: { full: [A, B, A] } } }", "p.yaml:6:39: `A` is already on this list"),
            (
                "levels: { O2: { cells: { low: [A] } } }",
                "p.yaml:6:32: level O2 does not read the low list of cells; it reads the full list of cells, the full \
                 list of ops",
            ),
            (
                "regions: [{ op_level: auto, unlisted: as_is, lwo: [] }]",
                "p.yaml:6:46: unknown key `lwo` (did you mean `low`?)",
            ),
            (region, "p.yaml:6:73: MatMul is already on the list `low`"),
            ("graph: { allow: [MatMul], deny: [Exp, MatMul] }", "p.yaml:6:39: MatMul is already on the list `allow`"),
            ("graph: { allow: [Linear, Linaer] }", "p.yaml:6:26: no op is called `Linaer` (did you mean `Linear`"),
            ("graph: { allow: [Linear], alow: [] }", "p.yaml:6:27: unknown key `alow` (did you mean `allow`?)"),
            ("", "p.yaml: a pack needs at least one low dtype, and a level, a region or a graph"),
        ] {
            let message = Pack::parse(&format!("{head}{rest}\n"), "p.yaml").unwrap_err().to_string();
            assert!(message.starts_with(words), "{message}");
        }
    }
}
