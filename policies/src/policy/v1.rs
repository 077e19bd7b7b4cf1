//! Version 1 of policy files: the document structure and its conversion to and from a [`Policy`].

use std::{collections::BTreeMap, fmt};

use serde::{
    Deserialize, Deserializer, Serialize,
    de::{self, MapAccess, Visitor},
};
use serde_yaml::{Location, Spanned};

use super::{
    Entry, GraphLevel, Level, Lists, NO_PREFERENCE, NO_RULES, Origin, Pack, Policy, Rule, RunAs, Select, check_low,
    lists::{LISTS, Listed},
    loss_scale_v1::{self, LossScaleV1},
};
use crate::{
    DType, Op,
    document::{Document, Source},
    error::{Error, ErrorKind, Result, by_name, did_you_mean},
    precision::Treatment,
};

/// Value with its position in the file.
pub(super) type At<T> = Spanned<T>;

/// Policy document.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct PolicyV1 {
    version: At<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    name: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pack: Option<At<String>>,
    level: At<String>,
    dtype: At<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    prefer: Option<At<String>>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    rules: Vec<At<RuleV1>>,
    #[serde(default, skip_serializing_if = "CellsV1::is_empty")]
    cells: CellsV1,
    #[serde(default, skip_serializing_if = "OpsV1::is_empty")]
    ops: OpsV1,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    graph: Option<At<GraphV1>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    loss_scale: Option<At<LossScaleV1>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    scaler: Option<At<String>>,
}

impl Document for PolicyV1 {
    const WHAT: &'static str = "policy";
    const KIND: ErrorKind = ErrorKind::Policy;
    const REQUIRED: &'static [&'static str] = &["version", "level", "dtype"];

    fn version(&self) -> &At<u32> {
        &self.version
    }

    fn elsewhere(key: &str) -> Option<&'static str> {
        Some(match key {
            "value" | "loss_scale" | "loss_scale_value" => "scale",
            "init_scale" | "initial_scale" | "init_loss_scaling" => "init",
            "growth_factor" | "scale_factor" | "incr_ratio" | "multiplier" => "growth",
            "backoff_factor" | "decr_ratio" => "backoff",
            "growth_interval" | "scale_window" | "incr_every_n_steps" | "growth_steps" => "interval",
            "recompute" => "checkpoint",
            _ => return None,
        })
    }

    fn is_synonym(key: &str) -> bool {
        matches!(key, "white" | "black" | "promote")
    }

    fn allowed(key: &str) -> &'static str {
        match key {
            "level" => "O0, O1, O2, O3, auto, graph",
            "dtype" => "float16, bfloat16",
            "forward" => "low",
            "weight_grad" => "float32, low",
            "kind" => "none, fixed, dynamic",
            _ => "",
        }
    }

    fn example(key: &str) -> &'static str {
        match key {
            "loss_scale" => "`{kind: dynamic}` or `{kind: fixed, scale: 1024}`",
            "low" | "full" | "widest" | "white" | "black" | "promote" => "`{add: [Softmax]}`",
            _ => "",
        }
    }
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct RuleV1 {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    path: Option<At<String>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    kind: Option<At<String>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    run: Option<At<RunV1>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    checkpoint: Option<bool>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    because: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    expect: Option<At<usize>>,
}

/// Word, or one word for each direction.
#[derive(Serialize)]
#[serde(untagged)]
enum RunV1 {
    Word(String),
    ByDirection { forward: String, weight_grad: String },
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ByDirectionV1 {
    forward: String,
    weight_grad: String,
}

impl<'de> Deserialize<'de> for RunV1 {
    /// Deserializes by hand, so that messages name the keys of the map.
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Reader;
        impl<'de> Visitor<'de> for Reader {
            type Value = RunV1;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("float32, float32-out, low, inherit, or { forward: low, weight_grad: float32 }")
            }

            fn visit_str<E: de::Error>(self, word: &str) -> Result<RunV1, E> {
                Ok(RunV1::Word(word.into()))
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<RunV1, A::Error> {
                let read = ByDirectionV1::deserialize(de::value::MapAccessDeserializer::new(map))?;
                Ok(RunV1::ByDirection { forward: read.forward, weight_grad: read.weight_grad })
            }
        }
        deserializer.deserialize_any(Reader)
    }
}

impl RunV1 {
    fn run(&self) -> Result<RunAs> {
        match self {
            RunV1::Word(word) => word.parse(),
            RunV1::ByDirection { forward, weight_grad } => {
                by_name(forward, ["low"], |name| name, "unknown word for `forward`").map_err(Error::policy)?;
                let grads = ["float32", "low"];
                match by_name(weight_grad, grads, |name| name, "unknown word for `weight_grad`")
                    .map_err(Error::policy)?
                {
                    "low" => Ok(RunAs::Low),
                    _ => Ok(RunAs::LowForward),
                }
            }
        }
    }

    fn written(run: RunAs) -> Self {
        match run {
            RunAs::LowForward => RunV1::ByDirection { forward: "low".into(), weight_grad: "float32".into() },
            word => RunV1::Word(word.to_string()),
        }
    }
}

#[derive(Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct CellsV1 {
    #[serde(alias = "white", skip_serializing_if = "ChangesV1::is_empty")]
    low: ChangesV1,
    #[serde(alias = "black", skip_serializing_if = "ChangesV1::is_empty")]
    full: ChangesV1,
}

#[derive(Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct OpsV1 {
    #[serde(alias = "white", skip_serializing_if = "ChangesV1::is_empty")]
    low: ChangesV1,
    #[serde(alias = "black", skip_serializing_if = "ChangesV1::is_empty")]
    full: ChangesV1,
    #[serde(alias = "promote", skip_serializing_if = "ChangesV1::is_empty")]
    widest: ChangesV1,
}

/// Lists of level graph, which reads them in place of `ops`.
#[derive(Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct GraphV1 {
    #[serde(skip_serializing_if = "ChangesV1::is_empty")]
    allow: ChangesV1,
    #[serde(skip_serializing_if = "ChangesV1::is_empty")]
    infer: ChangesV1,
    #[serde(skip_serializing_if = "ChangesV1::is_empty")]
    deny: ChangesV1,
    #[serde(skip_serializing_if = "ChangesV1::is_empty")]
    clear: ChangesV1,
    #[serde(skip_serializing_if = "Option::is_none")]
    level: Option<At<String>>,
}

/// Changes to one list of the pack. Names are checked against the list of the pack, so their order does not matter.
#[derive(Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct ChangesV1 {
    #[serde(skip_serializing_if = "Vec::is_empty")]
    add: Vec<At<String>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    remove: Vec<At<String>>,
}

impl CellsV1 {
    fn is_empty(&self) -> bool {
        self.low.is_empty() && self.full.is_empty()
    }

    /// Returns the changes by color, in the order of [`LISTS`].
    fn changes(&self) -> [&ChangesV1; 2] {
        [&self.low, &self.full]
    }
}

impl OpsV1 {
    fn is_empty(&self) -> bool {
        self.changes().iter().all(|changes| changes.is_empty())
    }

    /// Returns the changes by color, in the order of [`LISTS`].
    fn changes(&self) -> [&ChangesV1; 3] {
        [&self.low, &self.full, &self.widest]
    }
}

impl GraphV1 {
    fn is_empty(&self) -> bool {
        self.level.is_none() && self.changes().iter().all(|changes| changes.is_empty())
    }

    /// Returns the changes by list, in the order of [`Level::named_lists`].
    fn changes(&self) -> [&ChangesV1; 4] {
        [&self.allow, &self.infer, &self.deny, &self.clear]
    }
}

impl ChangesV1 {
    fn is_empty(&self) -> bool {
        self.first().is_none()
    }

    fn first(&self) -> Option<&At<String>> {
        self.add.first().or(self.remove.first())
    }
}

/// Converts a document into a policy. The order of checks is fixed: dtype, level, then the rest in key order.
pub(super) fn policy(document: PolicyV1, source: &Source<'_>) -> Result<Policy> {
    let PolicyV1 { version: _, name, pack, level, dtype, prefer, rules, cells, ops, graph, loss_scale: scale, scaler } =
        document;
    let dtype = low_dtype(&dtype.value).map_err(|error| source.error(dtype.referenced, error))?;
    let level: Level = level.value.parse().map_err(|error| source.error(level.referenced, error))?;
    let named = pack.as_ref().map_or(Pack::DEFAULT, |named| &named.value);
    let at_pack = |error| pack.as_ref().map_or(Error::clone(&error), |named| source.error(named.referenced, error));
    let pack_itself = Pack::named(named).map_err(at_pack)?;
    let mut policy = Policy::from_pack(level, dtype, pack_itself.clone()).map_err(at_pack)?;
    if level == Level::Graph {
        let unread = prefer.as_ref().map(|prefer| (prefer.referenced, NO_PREFERENCE));
        let unread = unread.or(rules.first().map(|rule| (rule.referenced, NO_RULES)));
        if let Some((place, words)) = unread {
            return Err(source.error(place, Error::policy(words)));
        }
    }
    let changing = Changing { pack: pack_itself, level, dtype, source };
    policy.name = name;
    if let Some(prefer) = prefer {
        policy.prefer = prefer.value.parse().map_err(|error| source.error(prefer.referenced, error))?;
    }
    for written in rules {
        let select = written.value.path.as_ref().or(written.value.kind.as_ref());
        let place = select.map_or(written.referenced, |select| select.referenced);
        policy = policy.rule(rule(written, source)?).map_err(|error| source.error(place, error))?;
    }
    changing.cells(&mut policy.lists, &cells)?;
    if let (Level::Graph, Some(name)) = (level, ops.changes().into_iter().find_map(ChangesV1::first)) {
        let words = "level graph does not read `ops`; its lists are under `graph`: allow, infer, deny, clear";
        return Err(source.error(name.referenced, Error::list(words)));
    }
    changing.ops(&mut policy.lists, &ops.changes())?;
    if let Some(graph) = graph {
        if level != Level::Graph {
            let words = format!("level {level} does not read `graph`; level graph does");
            return Err(source.error(graph.referenced, Error::policy(words)));
        }
        changing.ops(&mut policy.lists, &graph.value.changes())?;
        if let Some(written) = &graph.value.level {
            policy.graph_level = graph_level(&written.value, dtype).map_err(|e| source.error(written.referenced, e))?;
        }
    }
    if let Some(scale) = scale {
        policy.loss_scale = loss_scale_v1::read(scale, source)?;
    }
    if let Some(scaler) = scaler {
        policy.scaler = scaler.value.parse().map_err(|error| source.error(scaler.referenced, error))?;
    }
    Ok(policy)
}

fn graph_level(name: &str, low: DType) -> Result<GraphLevel> {
    let level: GraphLevel = name.parse()?;
    level.check(low)?;
    Ok(level)
}

fn low_dtype(name: &str) -> Result<DType> {
    let near = || {
        let names = DType::LOW.into_iter().flat_map(|dtype| [dtype.long_name(), dtype.name()]);
        let near = did_you_mean(name, names);
        Error::dtype(format!("unknown low dtype `{name}`{near}; allowed: float16 (f16), bfloat16 (bf16)"))
    };
    let dtype = name.parse().map_err(|_| near())?;
    check_low(dtype)?;
    Ok(dtype)
}

fn rule(written: At<RuleV1>, source: &Source<'_>) -> Result<Rule> {
    let RuleV1 { path, kind, run, checkpoint, because, expect } = written.value;
    let fail = |place: Location, words: &str| Err(source.error(place, Error::policy(words)));
    let select = match (path, kind) {
        (Some(path), None) => Select::Path(path.value.parse().map_err(|error| source.error(path.referenced, error))?),
        (None, Some(kind)) if kind.value.is_empty() => return fail(kind.referenced, NO_KIND),
        (None, Some(kind)) => Select::Kind(kind.value),
        (Some(_), Some(kind)) => {
            return fail(kind.referenced, "a rule has `path` or `kind`, not both; write two rules");
        }
        (None, None) => return fail(written.referenced, "a rule needs `path` or `kind`"),
    };
    if run.is_none() && checkpoint.is_none() {
        return fail(
            written.referenced,
            "a rule needs `run` (allowed: float32, float32-out, low, inherit) or `checkpoint`",
        );
    }
    let parse = |run: At<RunV1>| run.value.run().map_err(|error| source.error(run.referenced, error));
    let run = run.map(parse).transpose()?;
    if let Some(expect) = expect.as_ref().filter(|expect| expect.value == 0) {
        return fail(
            expect.referenced,
            "`expect: 0`, but a rule must match something; allowed: a whole number of at least 1",
        );
    }
    let expect = expect.map(|expect| expect.value);
    Ok(Rule { select, run, checkpoint, because, expect, origin: Origin::at(source, written.referenced) })
}

const NO_KIND: &str = "an empty kind; the kind of a cell is the name of its type, as Dense";

/// Returns the ops of a color for a low dtype, with their origins.
fn of_color(lists: &Lists, treatment: Treatment, low: DType) -> BTreeMap<Op, Origin> {
    let counting = lists.ops().keys().filter_map(|op| Some((*op, lists.op(*op, low)?)));
    counting.filter(|(_, entry)| entry.treatment == treatment).map(|(op, entry)| (op, entry.origin.clone())).collect()
}

/// Returns the cell kinds of a color for a low dtype, with their origins.
fn kinds_of_color(lists: &Lists, treatment: Treatment, low: DType) -> BTreeMap<String, Origin> {
    let counting = lists.cells().keys().filter_map(|kind| Some((kind, lists.cell(kind, low)?)));
    let colored = counting.filter(|(_, entry)| entry.treatment == treatment);
    colored.map(|(kind, entry)| (kind.clone(), entry.origin.clone())).collect()
}

/// Ops removed from a list, and ops added to it.
type Changed = (Vec<Op>, Vec<(Op, Origin)>);

/// Context for changes to the lists of a pack. Names are those of the pack's system.
struct Changing<'a> {
    pack: Pack,
    level: Level,
    dtype: DType,
    source: &'a Source<'a>,
}

impl Changing<'_> {
    /// Checks that the level reads a changed list. The error points at the first name of the change.
    fn check_reads(&self, listed: Listed, treatment: Treatment, changes: &ChangesV1) -> Result<()> {
        match changes.first() {
            None => Ok(()),
            Some(name) => {
                self.level.check_reads(listed, treatment).map_err(|error| self.source.error(name.referenced, error))
            }
        }
    }

    fn cells(&self, lists: &mut Lists, cells: &CellsV1) -> Result<()> {
        let source = self.source;
        for ((color, treatment), changes) in LISTS.into_iter().zip(cells.changes()) {
            self.check_reads(Listed::Cells, treatment, changes)?;
            let of_pack = kinds_of_color(lists, treatment, self.dtype);
            for kind in &changes.remove {
                if !of_pack.contains_key(&kind.value) || lists.remove_cell(&kind.value).is_none() {
                    let left = kinds_of_color(lists, treatment, self.dtype);
                    let on_it = left.keys().map(String::as_str).collect();
                    return Err(source.error(kind.referenced, not_on_it(&kind.value, color, Listed::Cells, on_it)));
                }
            }
            for kind in &changes.add {
                if kind.value.is_empty() {
                    return Err(source.error(kind.referenced, Error::list(NO_KIND)));
                }
                let added = kinds_of_color(lists, treatment, self.dtype);
                if let Some(earlier) = of_pack.get(&kind.value).or(added.get(&kind.value)) {
                    let error = on_it_already(&kind.value, color, Listed::Cells, earlier);
                    return Err(source.error(kind.referenced, error));
                }
                lists.put_cell(kind.value.clone(), Entry::new(treatment, Origin::at(source, kind.referenced)));
            }
        }
        Ok(())
    }

    fn ops_of(&self, name: &At<String>) -> Result<Vec<Op>> {
        self.pack.op(&name.value).map_err(|error| self.source.error(name.referenced, error))
    }

    /// Returns the ops that a change removes from and adds to a list, like [`cells`](Changing::cells), except that a
    /// name may denote several ops, and those it can change are changed.
    fn changed(&self, of_pack: &BTreeMap<Op, Origin>, changes: &ChangesV1, color: &str) -> Result<Changed> {
        let (mut removed, mut added) = (Vec::new(), Vec::<(Op, Origin)>::new());
        for name in &changes.remove {
            let on_it = |op: &Op| of_pack.contains_key(op) && !removed.contains(op);
            let ops: Vec<Op> = self.ops_of(name)?.into_iter().filter(on_it).collect();
            if ops.is_empty() {
                let left = of_pack.keys().filter(|op| !removed.contains(op)).map(|op| op.name()).collect();
                return Err(self.source.error(name.referenced, not_on_it(&name.value, color, Listed::Ops, left)));
            }
            removed.extend(ops);
        }
        for name in &changes.add {
            let ops = self.ops_of(name)?;
            let earlier = |op: &Op| {
                let before = of_pack.get(op);
                before.or(added.iter().find(|(known, _)| known == op).map(|(_, origin)| origin)).cloned()
            };
            let new: Vec<Op> = ops.iter().copied().filter(|op| earlier(op).is_none()).collect();
            if let (true, Some(earlier)) = (new.is_empty(), ops.first().and_then(earlier)) {
                let error = on_it_already(&name.value, color, Listed::Ops, &earlier);
                return Err(self.source.error(name.referenced, error));
            }
            added.extend(new.into_iter().map(|op| (op, Origin::at(self.source, name.referenced))));
        }
        Ok((removed, added))
    }

    /// Applies changes to the op lists. An op has one entry, so adding it to a list while it is on another is an error.
    ///
    /// The changes are in the order of [`Level::named_lists`].
    fn ops(&self, lists: &mut Lists, changes: &[&ChangesV1]) -> Result<()> {
        let mut additions = Vec::new();
        for (&(color, treatment), changes) in self.level.named_lists().iter().zip(changes) {
            self.check_reads(Listed::Ops, treatment, changes)?;
            let (removed, added) = self.changed(&of_color(lists, treatment, self.dtype), changes, color)?;
            removed.into_iter().for_each(|op| _ = lists.remove_op(op));
            additions.push((color, treatment, changes, added));
        }
        for (color, treatment, changes, added) in additions {
            for name in &changes.add {
                let ops = self.ops_of(name)?;
                let other =
                    self.level.named_lists().iter().filter(|(other, _)| *other != color).find(|(_, treatment)| {
                        let on_it = of_color(lists, *treatment, self.dtype);
                        ops.iter().any(|op| on_it.contains_key(op) && added.iter().any(|(new, _)| new == op))
                    });
                if let Some((other, _)) = other {
                    let words = format!("`{}` is also on the {other} list of ops; remove it there", name.value);
                    return Err(self.source.error(name.referenced, Error::list(words)));
                }
            }
            added.into_iter().for_each(|(op, origin)| _ = lists.put_op(op, Entry::new(treatment, origin)));
        }
        Ok(())
    }
}

fn not_on_it(name: &str, color: &str, what: Listed, on_it: Vec<&str>) -> Error {
    let near = did_you_mean(name, on_it.iter().copied());
    let on_it = if on_it.is_empty() { "nothing".to_string() } else { on_it.join(", ") };
    Error::list(format!("`{name}` is not on the {color} list of {what}{near}; on it: {on_it}"))
}

fn on_it_already(name: &str, color: &str, what: Listed, earlier: &Origin) -> Error {
    Error::list(format!("`{name}` is on the {color} list of {what} already, from {earlier}"))
}

/// Converts a policy into a document.
pub(super) fn written(policy: &Policy) -> Result<PolicyV1> {
    policy.level.check_lists(&policy.lists)?;
    let name = policy.pack.as_deref().unwrap_or(Pack::DEFAULT);
    let pack = Pack::named(name)?;
    let (from, to, low) = (pack.lists(policy.level)?, &policy.lists, policy.dtype);
    check_can_be_written(policy.level, &from, to, name)?;
    let cells = |treatment| {
        let kinds = |lists: &Lists| kinds_of_color(lists, treatment, low);
        changes(kinds(&from), kinds(to), |kind: &String| kind.clone())
    };
    let ops = |treatment| {
        let name = |op: &Op| op.unambiguous_name(pack.system);
        changes(of_color(&from, treatment, low), of_color(to, treatment, low), name)
    };
    let (ops, graph) = match policy.level {
        Level::Graph => {
            let level = Some(policy.graph_level).filter(|level| *level != GraphLevel::Usual);
            let graph = GraphV1 {
                allow: ops(Treatment::Low),
                infer: ops(Treatment::Infer),
                deny: ops(Treatment::Full),
                clear: ops(Treatment::Clear),
                level: level.map(|level| placeless(level.to_string())),
            };
            (OpsV1::default(), Some(graph).filter(|graph| !graph.is_empty()).map(placeless))
        }
        _ => {
            let [low, full, widest] = [Treatment::Low, Treatment::Full, Treatment::Widest].map(ops);
            (OpsV1 { low, full, widest }, None)
        }
    };
    Ok(PolicyV1 {
        version: placeless(1),
        name: policy.name.clone(),
        pack: Some(placeless(name.to_string())),
        level: placeless(policy.level.to_string()),
        dtype: placeless(policy.dtype.long_name().to_string()),
        prefer: (!policy.prefer.is_memory()).then(|| placeless(policy.prefer.to_string())),
        rules: policy.rules.iter().map(|rule| placeless(written_rule(rule))).collect(),
        cells: CellsV1 { low: cells(Treatment::Low), full: cells(Treatment::Full) },
        ops,
        graph,
        loss_scale: Some(placeless(loss_scale_v1::written(&policy.loss_scale))),
        scaler: (!policy.scaler.is_advised()).then(|| placeless(policy.scaler.to_string())),
    })
}

/// Checks that a file can express the lists. It can only add names to colored lists and remove them, not express other
/// changes made in code.
fn check_can_be_written(level: Level, from: &Lists, to: &Lists, pack: &str) -> Result<()> {
    let colored = |entry: &Entry| level.named_lists().iter().any(|(_, treatment)| *treatment == entry.treatment);
    let differs = |op: &&Op| {
        let (before, after) = (from.ops().get(op), to.ops().get(op));
        let same = before.map(|entry| entry.treatment) == after.map(|entry| entry.treatment);
        !same && before.into_iter().chain(after).any(|entry| !colored(entry))
    };
    let word = match from.ops().keys().chain(to.ops().keys()).find(differs) {
        Some(op) => format!("the entry of {op}"),
        None if (from.unlisted, from.unlisted_unpromoted) != (to.unlisted, to.unlisted_unpromoted) => {
            "what ops do that are on no list".to_string()
        }
        None if from.eligible != to.eligible => "which dtypes are cast".to_string(),
        None if from.by_first != to.by_first => "which ops go by their first input".to_string(),
        None => return Ok(()),
    };
    Err(Error::list(format!("the lists differ from those of {pack} in {word}, which a policy file cannot say")))
}

pub(super) fn placeless<T>(value: T) -> At<T> {
    Spanned::new(value, Location::UNKNOWN, Location::UNKNOWN)
}

fn changes<K: Ord>(from: BTreeMap<K, Origin>, to: BTreeMap<K, Origin>, name: impl Fn(&K) -> String) -> ChangesV1 {
    let missing = |of: &BTreeMap<K, Origin>, than: &BTreeMap<K, Origin>| {
        of.keys().filter(|key| !than.contains_key(key)).map(|key| placeless(name(key))).collect()
    };
    ChangesV1 { add: missing(&to, &from), remove: missing(&from, &to) }
}

fn written_rule(rule: &Rule) -> RuleV1 {
    let (path, kind) = match &rule.select {
        Select::Path(pattern) => (Some(placeless(pattern.to_string())), None),
        Select::Kind(kind) => (None, Some(placeless(kind.clone()))),
    };
    RuleV1 {
        path,
        kind,
        run: rule.run.map(|run| placeless(RunV1::written(run))),
        checkpoint: rule.checkpoint,
        because: rule.because.clone(),
        expect: rule.expect.map(placeless),
    }
}
