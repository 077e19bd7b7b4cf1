//! The precision of every node of a model, with reasons.

use std::collections::{HashMap, HashSet};

use precast_base::names::did_you_mean;

use super::{
    exact,
    facts::Facts,
    keep::{self, Carried, Keep, Kept, Then},
    model::OnnxModel,
    numbers::{self, Limits, Unfit},
    painted::{Painted, Requests},
    ranges::OnnxRanges,
    reasons::{decisions, is_listed, unknown},
    schema::{self, Schema},
    tensor::Elem,
    types,
    values::{Placed, Values},
};
use crate::{NewCast, NodeDecision, Painting, Port, casts, paint_listed, rule, rule_lists};
use precast::{
    DType, Op,
    catalogue::System,
    error::{Error, Result},
    policy::{GraphList, GraphPolicy, Pack, Select},
};

/// Options of [`OnnxModel::plan`].
#[derive(Clone, Debug, Default, PartialEq)]
pub struct OnnxPlanOptions {
    low_io: LowIo,
    ranges: Option<OnnxRanges>,
}

/// Inputs and outputs that take and give the low dtype.
#[derive(Clone, Debug, Default, PartialEq)]
enum LowIo {
    #[default]
    None,
    All,
    Names(Vec<String>),
}

impl OnnxPlanOptions {
    /// Creates the default options.
    pub fn new() -> Self {
        OnnxPlanOptions::default()
    }

    /// Sets all inputs and outputs of float32 to take and give the low dtype. Default: they stay float32.
    pub fn low_io(mut self) -> Self {
        self.low_io = LowIo::All;
        self
    }

    /// Sets the inputs and outputs with these names to take and give the low dtype. Default: none.
    pub fn low_io_of(mut self, names: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.low_io = LowIo::Names(names.into_iter().map(Into::into).collect());
        self
    }

    /// Sets measured ranges: nodes whose values come near the largest number of the low dtype stay f32. Default: none.
    pub fn ranges(mut self, ranges: OnnxRanges) -> Self {
        self.ranges = Some(ranges);
        self
    }
}

/// Planned precision of an ONNX model: the decision for each node that computes in floating point.
pub struct OnnxPlan<'a> {
    pub(super) values: Values<'a>,
    pub(super) elems: Vec<Elem>,
    pub(super) painted: Painted,
    pub(super) painting: Painting,
    pub(super) casts: Vec<NewCast>,
    pub(super) dtype: DType,
    pub(super) decisions: Vec<NodeDecision>,
    /// `true` when inputs or outputs become low.
    pub(super) low_io: bool,
    notes: Vec<String>,
}

impl std::fmt::Debug for OnnxPlan<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("OnnxPlan")
            .field("dtype", &self.dtype)
            .field("decisions", &self.decisions)
            .finish_non_exhaustive()
    }
}

impl OnnxPlan<'_> {
    /// Returns the low dtype.
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// Returns the decisions for the nodes that read or give floating-point numbers, in the order of the file.
    pub fn decisions(&self) -> &[NodeDecision] {
        &self.decisions
    }

    /// Returns the number of nodes that [compute](NodeDecision::computes) in a dtype. Casts and constants do not.
    pub fn count(&self, dtype: DType) -> usize {
        self.decisions.iter().filter(|decision| decision.computes() && decision.dtype == dtype).count()
    }

    /// Returns the number of nodes without floating-point numbers, such as those that compute shapes.
    pub fn others(&self) -> usize {
        self.values.nodes.len() - self.decisions.len()
    }

    /// Returns the decision for a node by its path, or by its name in the file.
    ///
    /// # Errors
    /// [`ErrorKind::Path`](precast::ErrorKind::Path) for a name that no node has, with the nearest one.
    pub fn decision(&self, name: &str) -> Result<&NodeDecision> {
        let dotted: Vec<&str> = name.split(['/', '.']).filter(|part| !part.is_empty()).collect();
        let dotted = dotted.join(".");
        self.decisions.iter().find(|decision| decision.node == name || decision.node == dotted).ok_or_else(|| {
            let near = did_you_mean(&dotted, self.decisions.iter().map(|decision| &decision.node[..]));
            Error::new(precast::ErrorKind::Path, format!("no node with floats is called `{name}`{near}"))
        })
    }

    /// Returns notes on coordinates, boxes and indices that come from products in the low dtype, whose digits may be too few.
    pub fn notes(&self) -> &[String] {
        &self.notes
    }

    /// Returns whether anything runs low.
    pub fn lowers(&self) -> bool {
        self.painting.vertices.iter().any(|vertex| vertex.low.is_some())
    }
}

impl OnnxModel {
    /// Plans the precision of every node by a policy for graphs.
    ///
    /// # Errors
    /// [`ErrorKind::Model`](precast::ErrorKind::Model) for a model that does not fit together, and for one whose opset does
    /// not have the low dtype; [`ErrorKind::Path`](precast::ErrorKind::Path) for a name of an input or output, or a rule,
    /// that fits nothing.
    ///
    /// ```no_run
    /// use precast::policy::GraphPolicy;
    /// use precast_graph::onnx::OnnxModel;
    /// let model = OnnxModel::open("model.onnx")?;
    /// let plan = model.plan(&GraphPolicy::named("onnx")?)?;
    /// for decision in plan.decisions() {
    ///     println!("{}  {decision}", decision.node);
    /// }
    /// # Ok::<(), precast::Error>(())
    /// ```
    pub fn plan(&self, policy: &GraphPolicy) -> Result<OnnxPlan<'_>> {
        self.plan_with(policy, &OnnxPlanOptions::new(), &mut |_| ())
    }

    /// Plans with options. `progress` is called with the bytes of weights that were read.
    ///
    /// # Errors
    /// As [`plan`](OnnxModel::plan).
    pub fn plan_with(
        &self,
        policy: &GraphPolicy,
        options: &OnnxPlanOptions,
        progress: &mut dyn FnMut(u64),
    ) -> Result<OnnxPlan<'_>> {
        policy.check()?;
        self.planned(policy, options, progress).map_err(|error| self.named(error))
    }

    fn planned(
        &self,
        policy: &GraphPolicy,
        options: &OnnxPlanOptions,
        progress: &mut dyn FnMut(u64),
    ) -> Result<OnnxPlan<'_>> {
        let values = Values::of(self)?;
        let elems = types::infer(&values)?;
        self.check_opset(policy.dtype)?;
        let paths = values.paths();
        let named = paths.iter().zip(&values.nodes).map(|(path, placed)| (&path[..], &placed.node.op[..]));
        let rules = rule_lists(policy, named, paths.len())?;
        let mut lists = lists(&values, &elems, &rules, policy, &|_| policy.unlisted());
        // Numbers move as the op moves them, whatever runs it low.
        let moves = match policy.unlisted() {
            None => lists.clone(),
            Some(_) => {
                let own = GraphPolicy::from_pack(DType::F16, Pack::named(OWN_PACK)?)?;
                self::lists(&values, &elems, &rules, policy, &|op| own.list_of(op?))
            }
        };
        let bounds = &policy.keep;
        let limits = Limits::of(policy.dtype).within(bounds.initialisers_beyond, bounds.initialisers_below);
        let tallies = numbers::tallies(&values, &elems, &limits, progress)?;
        let facts = Facts::of(&values, &elems, tallies, &moves, limits)?;
        let mut keep = Keep::of(&facts, &values, &elems, &lists);
        let is_low = |node: usize| rules[node] == Some(Some(GraphList::Allow));
        for (node, placed) in values.nodes.iter().enumerate() {
            let rule = policy.rule_of(&paths[node], &placed.node.op);
            // A pattern means the nodes of the bodies as well.
            let named = rule.filter(|rule| rule.select.is_exact_path() || matches!(rule.select, Select::Kind(_)));
            if named.is_some() && is_low(node) && (placed.schema.is_none() || !placed.bodies.is_empty()) {
                return Err(placed.node.wrong(match placed.schema {
                    None => {
                        format!("a rule runs it low, and it is {}, which runs as it is", unknown(&values, placed.node))
                    }
                    Some(_) => {
                        "a rule runs it low, and it computes nothing itself; rules for the nodes of its bodies do"
                            .into()
                    }
                }));
            }
            if rules[node] == Some(None) && !placed.bodies.is_empty() {
                keep.carry(placed);
            }
        }
        let Keep { nodes: mut kept, mut carried, .. } = keep;
        let infinite = kept.iter().find(|(node, why)| why.then == Then::Infinite && is_low(**node));
        if let Some((&node, why)) = infinite {
            let words = format!("a rule runs it low, and {}; a finite number must not become infinite", why.because);
            return Err(values.nodes[node].node.wrong(words));
        }
        if let Some(ranges) = &options.ranges {
            kept.extend(ranges.kept(&values, &elems, policy));
        }
        if let Some(most) = bounds.reduce_over {
            kept.extend(keep::deep(&values, most));
        }
        // A rule is the user's own word.
        kept.retain(|&node, _| rules[node].is_none());
        if policy.unlisted().is_some() {
            // An op on no list is no reason to make a finite number infinite.
            let (after, _) = keep::after(&values, &facts.inside, &moves, keep::large(&kept));
            after.into_iter().for_each(|node| lists[node] = moves[node]);
        }
        // Numbers that a body makes in float32, or out of range, leave it so.
        if !facts.inside.is_empty() {
            let denied = (0..lists.len()).filter(|&node| lists[node] == Some(GraphList::Deny) && rules[node].is_none());
            let (_, after) =
                keep::after(&values, &facts.inside, &lists, keep::large(&kept).into_iter().chain(denied).collect());
            let is_out = |value: usize| {
                let (least, most) = facts.fact(value).size;
                limits.may_vanish(least) || limits.may_overflow(most)
            };
            let stays = |value: usize| after.contains(&value) || is_out(value);
            let ends = facts.inside.keys().filter(|value| elems[**value] == Elem::F32 && stays(**value));
            ends.for_each(|&value| _ = carried.entry(value).or_insert(Carried::Exact));
        }
        let low_io = low_io(&values, &elems, &options.low_io)?;
        let is_known =
            |value: &&usize| facts.constants.contains_key(value) && low_io.contains(values.values[**value].name);
        for &output in values.scopes[0].outputs.iter().filter(is_known) {
            if let Some(unfit @ Unfit::Beyond(_)) = facts.constants[&output].unfit(&facts.limits) {
                let name =
                    format!("the output `{}`, which is to be {},", values.values[output].name, facts.limits.dtype());
                return Err(Error::new(precast::ErrorKind::Value, facts.limits.reason(&name, &unfit)));
            }
        }
        let low = policy.dtype;
        let (painted, painting) = loop {
            let requests = Requests {
                lists: &lists,
                kept: &kept,
                carried: &carried,
                low_io: &|name| low_io.contains(name),
                low,
                paths: &paths,
            };
            let painted = Painted::of(&values, &elems, &requests)?;
            let of_nodes = painted.lists.clone();
            let mut painting = paint_listed(&painted.graph, of_nodes, policy, &painted.device)?;
            let decided = paths.iter().zip(&values.nodes).filter(|(_, placed)| placed.schema.is_some());
            painting.rules = decided.filter_map(|(path, placed)| rule(policy, path, &placed.node.op, path)).collect();
            let early = too_early(&painted, &painting, &lists);
            if early.is_empty() {
                break (painted, painting);
            }
            kept.extend(early);
        };
        let casts = casts(&painted.graph, &painting);
        let decisions = decisions(&values, &elems, &painted, &painting, &kept, &paths, policy);
        let low_io = !low_io.is_empty();
        let found = exact::places(&facts, &values, &|value| painted.is_low(&painting, value));
        let bits = if low == DType::F16 { 11 } else { 8 };
        let notes = found.into_iter().map(|(reader, maker, what)| {
            let called = |node: usize| format!("`{}` ({})", paths[node], values.nodes[node].node.op);
            format!(
                "the {what} of {} come from {}, which runs in {} and has {bits} bits; a rule for `{}` with `run: float32` \
                 keeps them",
                called(reader),
                called(maker),
                low.long_name(),
                paths[maker]
            )
        });
        let notes = notes.collect();
        Ok(OnnxPlan { elems, painted, painting, casts, dtype: policy.dtype, decisions, low_io, notes, values })
    }

    /// Checks that the opset of the model has casts to the low dtype.
    fn check_opset(&self, low: DType) -> Result<()> {
        let cast = Schema::of("", "Cast", self.opset());
        if cast.is_none_or(|cast| cast.allows("T2", low)) {
            return Ok(());
        }
        let first = Schema::first_with("Cast", low).unwrap_or(0);
        Err(Error::model(format!(
            "no node can run in {low}: ONNX has it from opset {first} on, and the model is of opset {}; float16 fits any \
             opset",
            self.opset(),
            low = low.long_name()
        )))
    }
}

/// The pack that knows what each op of ONNX does with its numbers.
const OWN_PACK: &str = "onnx-1";

/// Returns the list of each node: that of the rule for it, or of its op. `unlisted` gives that of an op without an entry.
fn lists(
    values: &Values<'_>,
    elems: &[Elem],
    rules: &[Option<Option<GraphList>>],
    policy: &GraphPolicy,
    unlisted: &dyn Fn(Option<Op>) -> Option<GraphList>,
) -> Vec<Option<GraphList>> {
    let mut by_op: HashMap<&str, Option<GraphList>> = HashMap::new();
    let mut lists = Vec::with_capacity(values.nodes.len());
    for (placed, rule) in values.nodes.iter().zip(rules) {
        let op = &placed.node.op[..];
        let list = *by_op.entry(op).or_insert_with(|| match Op::in_system_of(System::Onnx, op) {
            Some(op) if is_listed(policy, op) => policy.list_of(op),
            op => unlisted(op),
        });
        // Other domains and functions have ops of their own, even under the same names, and an op that cannot be low
        // must not draw its neighbours with it.
        let refused = |list: &GraphList| *list == GraphList::Allow && !can_be_low(placed, elems, policy.dtype);
        lists.push(rule.unwrap_or(list).filter(|list| placed.schema.is_some() && !refused(list)));
    }
    lists
}

/// Returns whether a node can run low: its op takes the dtype, and its results follow the type of its inputs, not an
/// attribute, and are not sequences.
fn can_be_low(placed: &Placed<'_>, elems: &[Elem], low: DType) -> bool {
    let Some(schema) = placed.schema else { return false };
    let takes = schema.own().is_some_and(|own| schema.allows(own, low) && schema.takes(own));
    let nested = placed.inputs.iter().chain(&placed.outputs).flatten().any(|&value| types::is_nested(elems[value]));
    (takes || placed.node.op == "ConstantOfShape") && !nested && placed.bodies.is_empty()
}

/// Finds the nodes on the clear list that would round float32 although something reads their result in float32. The cast
/// after them costs no more than the one before them.
fn too_early(painted: &Painted, painting: &Painting, lists: &[Option<GraphList>]) -> HashMap<usize, Kept> {
    let nodes = &painted.graph.nodes;
    let consumers = painted.graph.consumers();
    let mut early: HashSet<usize> = HashSet::new();
    let mut found = HashMap::new();
    // In the order of the nodes, so that one pass sees what the nodes before it do.
    for (index, &at) in painted.nodes.iter().enumerate() {
        let reads_low = |port: &Port| {
            let attr = nodes[port.node].out_types[port.port];
            !early.contains(&port.node) && nodes[port.node].types[attr].is_f32() && painting.is_low(port.node, attr)
        };
        let read_full = |output: usize| {
            let readers = consumers.get(&Port { node: at, port: output }).map_or(&[][..], Vec::as_slice);
            readers.iter().any(|reader| !painting.is_low(reader.node, nodes[reader.node].in_types[reader.port]))
        };
        let is_early = lists[index] == Some(GraphList::Clear)
            && painting.is_low(at, 0)
            && !nodes[at].inputs.iter().any(reads_low)
            && (0..nodes[at].out_types.len()).any(read_full);
        if is_early {
            early.insert(at);
            found.insert(index, Kept { because: "its result is read in float32, too".into(), then: Then::Free });
        }
    }
    found
}

/// Returns the names of the inputs and outputs that become low.
fn low_io<'a>(values: &Values<'a>, elems: &[Elem], wanted: &LowIo) -> Result<HashSet<&'a str>> {
    let main = &values.scopes[0];
    let all = || main.inputs.iter().chain(&main.outputs).map(|&value| (values.values[value].name, elems[value]));
    let names = || all().map(|(name, _)| name);
    let wrong = |words: String| Error::new(precast::ErrorKind::Path, words);
    match wanted {
        LowIo::None => Ok(HashSet::new()),
        LowIo::All => Ok(names().collect()),
        LowIo::Names(wanted) => wanted
            .iter()
            .map(|name| match all().find(|(known, _)| known == name) {
                Some((known, Elem::F32 | Elem::F16 | Elem::BF16)) => Ok(known),
                Some((known, elem)) => Err(wrong(format!("`{known}` is {elem}, which has no low dtype"))),
                None => {
                    let (near, allowed) = (did_you_mean(name, names()), names().collect::<Vec<_>>().join(", "));
                    let words = format!("the model has no input or output called `{name}`{near}; allowed: {allowed}");
                    Err(wrong(words))
                }
            })
            .collect(),
    }
}

/// Returns the element type of a value after the conversion.
pub(super) fn after(plan: &OnnxPlan<'_>, value: usize) -> Elem {
    if plan.painted.is_low(&plan.painting, value) { schema::elem(plan.dtype) } else { plan.elems[value] }
}
