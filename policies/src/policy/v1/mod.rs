//! Version 1 of policy files: the document structure and its conversion to and from a policy.
//!
//! A file has `level`, for cells, or `graph`, for graphs. All other keys have one reader and one writer for both.

mod changes;
mod loss_scale;
mod rules;

use precast_base::{
    DType, Error, ErrorKind, Result,
    document::{At, Document, Place, Source, placeless},
    names::did_you_mean,
};
use serde::{Deserialize, Deserializer, Serialize};

use self::{
    changes::{ChangesV1, Changing, Written},
    loss_scale::LossScaleV1,
    rules::RuleV1,
};
use super::{
    GraphLevel, GraphPolicy, Keep, Level, LossScaleSpec, Pack, Policy, Scaler, check_low, either::PolicyFile,
    lists::Reader,
};
use crate::{Op, precision::Treatment};

/// Policy document.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct PolicyV1 {
    version: At<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    name: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pack: Option<At<String>>,
    #[serde(default, deserialize_with = "some", skip_serializing_if = "Option::is_none")]
    level: Option<At<String>>,
    dtype: At<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    prefer: Option<At<String>>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    rules: Vec<At<RuleV1>>,
    #[serde(default, skip_serializing_if = "CellsV1::is_empty")]
    cells: CellsV1,
    #[serde(default, skip_serializing_if = "OpsV1::is_empty")]
    ops: OpsV1,
    #[serde(default, deserialize_with = "some", skip_serializing_if = "Option::is_none")]
    graph: Option<At<GraphV1>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    loss_scale: Option<At<LossScaleV1>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    keep: Option<At<KeepV1>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    scaler: Option<At<String>>,
}

/// Deserializes a key that may be left out but has a value where it is given.
fn some<'de, D: Deserializer<'de>, T: Deserialize<'de>>(deserializer: D) -> Result<Option<T>, D::Error> {
    T::deserialize(deserializer).map(Some)
}

impl Document for PolicyV1 {
    const WHAT: &'static str = "policy";
    const KIND: ErrorKind = ErrorKind::Policy;
    const REQUIRED: &'static [&'static str] = &["version", "dtype"];

    fn elsewhere(key: &str) -> &'static [&'static str] {
        match key {
            "value" | "loss_scale" | "loss_scale_value" => &["scale"],
            "init_scale" | "initial_scale" | "init_loss_scaling" => &["init"],
            "growth_factor" | "scale_factor" | "incr_ratio" | "multiplier" => &["growth"],
            "backoff_factor" | "decr_ratio" => &["backoff"],
            "growth_interval" | "scale_window" | "incr_every_n_steps" | "growth_steps" => &["interval"],
            "recompute" => &["checkpoint"],
            "steps" => &["step"],
            "on_stall" | "stall" | "if_stalled" => &["after_stall"],
            _ => &[],
        }
    }

    fn is_synonym(key: &str) -> bool {
        matches!(key, "white" | "black" | "promote")
    }

    fn place(key: &str, allowed: &[&str]) -> String {
        match key {
            "data" | "model" | "policy" if allowed.contains(&"level") => {
                "this looks like a run file, and a policy is wanted".into()
            }
            "net" | "input" if allowed.contains(&"level") => "this looks like a model, and a policy is wanted".into(),
            _ => String::new(),
        }
    }

    fn allowed(key: &str) -> &'static str {
        match key {
            "dtype" => "float16, bfloat16",
            "forward" => "low",
            "weight_grad" => "float32, low",
            "after_stall" => "raise",
            "step" => "a number of steps, such as 500",
            "kind" => "none, fixed, dynamic",
            _ => "",
        }
    }

    fn example(key: &str) -> &'static str {
        match key {
            "loss_scale" => "`{kind: dynamic}`, `{kind: none}` or `{kind: fixed, scale: 1024}`",
            "low" | "full" | "widest" | "white" | "black" | "promote" => "`{add: [Softmax]}`",
            "until" => "`{step: 500}`",
            "run" => "`{forward: low, weight_grad: float32}`",
            "operands" => "`{forward: e4m3, backward: e5m2, scale: rows}`, or the name of a recipe",
            "keep" => "`{initialisers: {beyond: 60000}, values: {beyond: 2048}, reduce_over: 4096}`",
            "initialisers" => "`{beyond: 60000, below: 1e-6}`",
            "values" => "`{beyond: 2048}`",
            "graph" => "`{}` or `{infer: {remove: [Softmax]}}`",
            _ => "",
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

/// Limits of a policy for graphs.
#[derive(Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct KeepV1 {
    #[serde(skip_serializing_if = "Option::is_none")]
    initialisers: Option<BetweenV1>,
    #[serde(skip_serializing_if = "Option::is_none")]
    values: Option<BeyondV1>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reduce_over: Option<At<usize>>,
}

#[derive(Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct BetweenV1 {
    #[serde(skip_serializing_if = "Option::is_none")]
    beyond: Option<At<f64>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    below: Option<At<f64>>,
}

#[derive(Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct BeyondV1 {
    #[serde(skip_serializing_if = "Option::is_none")]
    beyond: Option<At<f64>>,
}

impl KeepV1 {
    fn read(self, source: &Source<'_>) -> Result<Keep> {
        let size = |written: Option<At<f64>>| match written {
            Some(at) if at.value.is_nan() || at.value <= 0.0 => {
                let words = format!("{} is not a magnitude; allowed: numbers above 0", at.value);
                Err(source.error(at.place, Error::policy(words)))
            }
            written => Ok(written.map(|at| at.value)),
        };
        let initialisers = self.initialisers.unwrap_or_default();
        Ok(Keep {
            initialisers_beyond: size(initialisers.beyond)?,
            initialisers_below: size(initialisers.below)?,
            values_beyond: size(self.values.unwrap_or_default().beyond)?,
            reduce_over: self.reduce_over.map(|at| at.value),
        })
    }

    fn written(keep: &Keep) -> Self {
        let (beyond, below) = (keep.initialisers_beyond.map(placeless), keep.initialisers_below.map(placeless));
        let has = beyond.is_some() || below.is_some();
        KeepV1 {
            initialisers: has.then_some(BetweenV1 { beyond, below }),
            values: keep.values_beyond.map(|beyond| BeyondV1 { beyond: Some(placeless(beyond)) }),
            reduce_over: keep.reduce_over.map(placeless),
        }
    }
}

/// Lists of a policy for graphs, which has this block in place of a level.
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

// The changes by list, in the order of `Reader::named_lists`.

impl CellsV1 {
    fn changes(&self) -> [&ChangesV1; 2] {
        [&self.low, &self.full]
    }

    fn is_empty(&self) -> bool {
        self.changes().iter().all(|changes| changes.is_empty())
    }
}

impl OpsV1 {
    fn changes(&self) -> [&ChangesV1; 3] {
        [&self.low, &self.full, &self.widest]
    }

    fn is_empty(&self) -> bool {
        self.changes().iter().all(|changes| changes.is_empty())
    }
}

impl GraphV1 {
    fn changes(&self) -> [&ChangesV1; 4] {
        [&self.allow, &self.infer, &self.deny, &self.clear]
    }
}

/// Converts a document into a policy, and returns it with the position of the key that decides which kind it is: the
/// level, or the block for graphs. The order of checks is fixed: dtype, level, then the rest in key order.
pub(super) fn read(mut document: PolicyV1, source: &Source<'_>) -> Result<(PolicyFile, Place)> {
    let dtype = low_dtype(&document.dtype.value).map_err(|error| source.error(document.dtype.place, error))?;
    let level = document.level.take().map(|level| {
        let parsed = level.value.parse::<Level>().map_err(|error| source.error(level.place, error))?;
        Ok::<_, Error>((parsed, level.place))
    });
    match (level.transpose()?, document.graph.take()) {
        (Some((level, place)), None) => Ok((PolicyFile::Cells(cells(document, level, dtype, source)?), place)),
        (None, Some(graph)) => {
            let place = graph.place;
            Ok((PolicyFile::Graph(self::graph(document, graph.value, dtype, source)?), place))
        }
        (Some(_), Some(graph)) => {
            let words = "a policy has `level`, for cells, or `graph`, for graphs, and not both";
            Err(source.error(graph.place, Error::policy(words)))
        }
        (None, None) => {
            let levels = Level::ALL.map(Level::name).join(", ");
            let words = format!(
                "the key `level` is missing from this map; allowed: {levels}, or `graph: {{}}` in place of `level` in a \
                 policy for graphs"
            );
            Err(source.error(source.first(), Error::policy(words)))
        }
    }
}

fn cells(document: PolicyV1, level: Level, dtype: DType, source: &Source<'_>) -> Result<Policy> {
    let (pack, at_pack) = pack(document.pack.as_ref(), source)?;
    let mut policy = Policy::from_pack(level, dtype, pack.clone()).map_err(at_pack)?;
    policy.name = document.name;
    if let Some(prefer) = document.prefer {
        policy.prefer = prefer.value.parse().map_err(|error| source.error(prefer.place, error))?;
    }
    if let Some(keep) = &document.keep {
        let words = "`keep` is for policies for graphs, which have `graph` in place of `level`";
        return Err(source.error(keep.place, Error::policy(words)));
    }
    for written in document.rules {
        let place = written.value.place().unwrap_or(written.place);
        let rule = rules::read(written, false, source)?;
        let checked = policy.check_end(&rule);
        policy = checked.and_then(|()| policy.rule(rule)).map_err(|error| source.error(place, error))?;
    }
    let changing = Changing { pack: &pack, reader: Reader::Level(level), dtype, source };
    changing.apply::<String>(&mut policy.lists, &document.cells.changes())?;
    changing.apply::<Op>(&mut policy.lists, &document.ops.changes())?;
    read_scale(document.loss_scale, document.scaler, source, (&mut policy.loss_scale, &mut policy.scaler))?;
    Ok(policy)
}

fn graph(document: PolicyV1, graph: GraphV1, dtype: DType, source: &Source<'_>) -> Result<GraphPolicy> {
    let (pack, at_pack) = pack(document.pack.as_ref(), source)?;
    let mut policy = GraphPolicy::from_pack(dtype, pack.clone()).map_err(at_pack)?;
    policy.name = document.name;
    let first = |changes: &[&ChangesV1]| changes.iter().find_map(|changes| changes.first()).map(|name| name.place);
    let of_cells = [
        ("prefer", document.prefer.as_ref().map(|prefer| prefer.place)),
        ("cells", first(&document.cells.changes())),
        ("ops", first(&document.ops.changes())),
    ];
    if let Some((key, place)) = of_cells.into_iter().find_map(|(key, place)| Some((key, place?))) {
        let words = format!(
            "`{key}` is for policies with a level; a policy for graphs has the lists under `graph`: allow, infer, deny, clear"
        );
        return Err(source.error(place, Error::policy(words)));
    }
    let changing = Changing { pack: &pack, reader: Reader::Graph, dtype, source };
    changing.apply::<Op>(&mut policy.lists, &graph.changes())?;
    for written in document.rules {
        let place = written.value.place().unwrap_or(written.place);
        let rule = rules::read(written, true, source)?;
        policy = policy.rule(rule).map_err(|error| source.error(place, error))?;
    }
    if let Some(keep) = document.keep {
        policy.keep = keep.value.read(source)?;
    }
    if let Some(level) = graph.level {
        let set = level.value.parse().and_then(|parsed| policy.level(parsed));
        policy = set.map_err(|error| source.error(level.place, error))?;
    }
    read_scale(document.loss_scale, document.scaler, source, (&mut policy.loss_scale, &mut policy.scaler))?;
    Ok(policy)
}

/// Returns the pack of a document, and a function that adds its position to an error.
fn pack<'a>(named: Option<&'a At<String>>, source: &'a Source<'_>) -> Result<(Pack, impl Fn(Error) -> Error + 'a)> {
    let at_pack = move |error| match named {
        Some(named) => source.error(named.place, error),
        None => error,
    };
    let pack = Pack::named(named.map_or(Pack::DEFAULT, |named| &named.value)).map_err(at_pack)?;
    Ok((pack, at_pack))
}

fn read_scale(
    scale: Option<At<LossScaleV1>>,
    scaler: Option<At<String>>,
    source: &Source<'_>,
    (to_scale, to_scaler): (&mut LossScaleSpec, &mut Scaler),
) -> Result<()> {
    if let Some(scale) = scale {
        *to_scale = loss_scale::read(scale, source)?;
    }
    if let Some(scaler) = scaler {
        *to_scaler = scaler.value.parse().map_err(|error| source.error(scaler.place, error))?;
    }
    Ok(())
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

/// Converts a policy into a document.
pub(super) fn written(policy: &Policy) -> Result<PolicyV1> {
    let Policy { name, pack, level, dtype, prefer, rules, lists, loss_scale, scaler } = policy;
    let pack = Pack::named(pack.as_deref().unwrap_or(Pack::DEFAULT))?;
    let changed = Written::new(Reader::Level(*level), &pack, pack.lists(*level)?, lists, *dtype)?;
    let cells = |treatment| changed.changes::<String>(treatment);
    let [low, full, widest] = [Treatment::Low, Treatment::Full, Treatment::Widest].map(|t| changed.changes::<Op>(t));
    Ok(PolicyV1 {
        level: Some(placeless(level.to_string())),
        prefer: (!prefer.is_memory()).then(|| placeless(prefer.to_string())),
        rules: rules.iter().map(|rule| placeless(rules::written(rule, false))).collect(),
        cells: CellsV1 { low: cells(Treatment::Low), full: cells(Treatment::Full) },
        ops: OpsV1 { low, full, widest },
        ..head(name.as_ref(), &pack, *dtype, loss_scale, *scaler)
    })
}

/// Converts a policy for graphs into a document.
pub(super) fn written_graph(policy: &GraphPolicy) -> Result<PolicyV1> {
    let GraphPolicy { name, pack, dtype, lists, level, rules, keep, loss_scale, scaler } = policy;
    let pack = Pack::named(pack.as_deref().unwrap_or(Pack::DEFAULT))?;
    let changed = Written::new(Reader::Graph, &pack, pack.graph_lists()?.clone(), lists, *dtype)?;
    let graph = GraphV1 {
        allow: changed.changes::<Op>(Treatment::Low),
        infer: changed.changes::<Op>(Treatment::Infer),
        deny: changed.changes::<Op>(Treatment::Full),
        clear: changed.changes::<Op>(Treatment::Clear),
        level: (*level != GraphLevel::Usual).then(|| placeless(level.to_string())),
    };
    Ok(PolicyV1 {
        graph: Some(placeless(graph)),
        rules: rules.iter().map(|rule| placeless(rules::written(rule, true))).collect(),
        keep: (*keep != Keep::default()).then(|| placeless(KeepV1::written(keep))),
        ..head(name.as_ref(), &pack, *dtype, loss_scale, *scaler)
    })
}

/// Returns a document with the keys that both kinds of policies have.
fn head(name: Option<&String>, pack: &Pack, dtype: DType, scale: &LossScaleSpec, scaler: Scaler) -> PolicyV1 {
    PolicyV1 {
        version: placeless(1),
        name: name.cloned(),
        pack: Some(placeless(pack.name.to_string())),
        level: None,
        dtype: placeless(dtype.long_name().to_string()),
        prefer: None,
        rules: Vec::new(),
        cells: CellsV1::default(),
        ops: OpsV1::default(),
        graph: None,
        keep: None,
        loss_scale: Some(placeless(loss_scale::written(scale))),
        scaler: (!scaler.is_advised()).then(|| placeless(scaler.to_string())),
    }
}
