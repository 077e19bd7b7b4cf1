//! The painting of graphs compared with TensorFlow's: the graphs of its own tests and others, with the changed types
//! and the casts that its rewrite produced.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    fs,
    sync::LazyLock,
};

use precast::{DType, Error, ErrorKind, Op, Result, catalogue::System, policy::Pack};
use precast_graph::{
    GraphLevel, GraphList, GraphPolicy, Port,
    conformance::{Device, LowSupport, OpSupport, Painting, TypeAttr, TypeGraph, TypeNode, casts, paint},
};
use serde_json::{Value, json};

use crate::{
    common::golden::golden,
    replay::{Tally, entries, items, replay},
};

/// Changes made by a rewrite: the new types by node and attribute, the casts by name with their inputs, and the new
/// inputs of nodes.
#[derive(Debug, Default, PartialEq)]
struct Rewritten {
    types: BTreeMap<(String, String), String>,
    casts: BTreeMap<String, String>,
    rewired: BTreeMap<String, Vec<String>>,
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_else(|| panic!("a text, got {value}")).to_string()
}

fn texts(value: &Value) -> Vec<String> {
    value.as_array().map_or(vec![], |all| all.iter().map(text).collect())
}

/// Parses `node` and `node:1`; `None` for a control edge.
fn port(input: &str) -> Option<(&str, usize)> {
    match input.rsplit_once(':') {
        _ if input.starts_with('^') => None,
        Some((name, port)) if port.parse::<usize>().is_ok() => Some((name, port.parse().unwrap())),
        _ => Some((input, 0)),
    }
}

/// A recorded graph, with batch norms of the first version converted to the second, as the rewrite does first.
struct Recorded {
    graph: TypeGraph,
    /// Attributes that only the second version has: the rewrite reports them as changed, without painting them.
    added: BTreeSet<(String, String)>,
}

fn read(nodes: &[Value], preserved: &BTreeSet<String>) -> Recorded {
    let places: HashMap<String, usize> = nodes.iter().enumerate().map(|(i, n)| (text(&n["name"]), i)).collect();
    let mut added = BTreeSet::new();
    let mut graph = TypeGraph::default();
    for node in nodes {
        let (name, mut op) = (text(&node["name"]), text(&node["op"]));
        let device = node["device"].as_str().unwrap_or_default();
        let may_change = !preserved.contains(&name) && !op.starts_with("Placeholder") && !device.contains("GPU");
        let (mut ins, mut outs) = (texts(&node["in_ports"]), texts(&node["out_ports"]));
        let mut types: Vec<(String, String)> =
            node["types"].as_object().unwrap().iter().map(|(attr, dtype)| (attr.clone(), text(dtype))).collect();
        let second = match &op[..] {
            "FusedBatchNorm" => Some((["T", "U", "U", "U", "U"], ["T", "U", "U", "U", "U"])),
            "FusedBatchNormGrad" => Some((["T", "T", "=float32", "U", "U"], ["T", "U", "U", "U", "U"])),
            _ => None,
        };
        if let (true, Some((new_ins, new_outs))) = (may_change, second) {
            op += "V2";
            ins = new_ins.map(String::from).to_vec();
            outs = new_outs.map(String::from).to_vec();
            types.push(("U".into(), "float32".into()));
            added.insert((name.clone(), "U".to_string()));
        }
        let mut attrs: Vec<TypeAttr> = vec![];
        let mut place = |id: &str| {
            let (fixed, attr) = id.strip_prefix('=').map_or((false, id), |dtype| (true, dtype));
            let known = attrs.iter().position(|t| t.name == attr && t.fixed == fixed);
            known.unwrap_or_else(|| {
                let dtype = types.iter().find(|(name, _)| name == attr && !fixed).map_or(attr, |(_, dtype)| dtype);
                attrs.push(TypeAttr { name: attr.into(), dtype: dtype.into(), fixed });
                attrs.len() - 1
            })
        };
        let in_types: Vec<usize> = ins.iter().map(|id| place(id)).collect();
        let out_types = outs.iter().map(|id| place(id)).collect();
        types.iter().for_each(|(attr, _)| _ = place(attr));
        let inputs = texts(&node["inputs"]);
        let inputs = inputs.iter().filter_map(|input| port(input));
        let inputs: Vec<Port> = inputs.map(|(node, port)| Port { node: places[node], port }).collect();
        graph.nodes.push(TypeNode { name, op, may_change, types: attrs, inputs, in_types, out_types });
    }
    Recorded { graph, added }
}

/// Capabilities of the recorded machine, op by op. Another folder of cases, of the same machine, may lack the table.
static OP_SUPPORT: LazyLock<Value> = LazyLock::new(|| {
    golden("tensorflow/op_support.json").unwrap_or_else(|| {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/goldens/tensorflow/op_support.json");
        serde_json::from_str(&fs::read_to_string(path).unwrap_or_else(|e| panic!("{path}: {e}"))).unwrap()
    })
});

/// Returns the capabilities of the recorded machine in a low dtype.
fn device(low: DType) -> Device {
    let ops = OP_SUPPORT["ops"].as_object().unwrap().iter().filter(|(_, op)| op["registered"] == true);
    let ops = ops.map(|(name, op)| {
        let attrs = op["attrs"].as_object().unwrap().iter().map(|(attr, says)| {
            let is = |what: &str| says[what][low.long_name()] == true;
            (attr.clone(), LowSupport { defined: is("allows"), kernel: is("cpu_kernel") })
        });
        // TensorFlow leaves these two out when all ops are forced.
        let left_out = matches!(&name[..], "Const" | "SoftmaxCrossEntropyWithLogits");
        let may_be_forced = !left_out && op["is_stateful"] == false && op["has_ref"] == false;
        (name.clone(), OpSupport { attrs: attrs.collect(), may_be_forced })
    });
    Device::of(ops)
}

/// Returns the lists of a recorded setting: `bf16`, `fp16`, `fp16_LEVEL`,
/// `fp16_DENYLIST_ADD=Tanh,INFERLIST_REMOVE=Tanh`. `None` for an unknown one.
fn lists(setting: &str) -> Option<GraphPolicy> {
    let (mode, rest) = setting.split_once('_').unwrap_or((setting, ""));
    let (pack, low) = if mode == "bf16" { ("bf16", DType::Bf16) } else { ("cpu", DType::F16) };
    let mut lists = GraphPolicy::from_pack(low, Pack::named(&format!("tensorflow-2.21-{pack}")).unwrap()).unwrap();
    if rest.contains('=') {
        // Names removed first can be added to another list.
        let mut changes: Vec<(&str, &str)> = rest.split(',').map(|change| change.split_once('=').unwrap()).collect();
        changes.sort_by_key(|(key, _)| !key.ends_with("_REMOVE"));
        for (key, op) in changes {
            let list = GraphList::ALL.into_iter().find(|list| key.starts_with(&list.name().to_uppercase()))?;
            lists = if key.ends_with("_ADD") { lists.add(list, op) } else { lists.remove(list, op) }.unwrap();
        }
        return Some(lists);
    }
    let level = match rest {
        "" => GraphLevel::Usual,
        "TENSOR_CORES_ONLY" => GraphLevel::TensorCoresOnly,
        "UNSAFE_FORCE_ALL" => GraphLevel::ForceAll,
        "TREAT_INFER_AS_DENY" => GraphLevel::TreatInferAsDeny,
        _ => return None,
    };
    Some(lists.level(level).unwrap())
}

/// Returns our rewrite in TensorFlow's terms.
fn ours(recorded: &Recorded, nodes: &[Value], painting: &Painting) -> Rewritten {
    let graph = &recorded.graph;
    let mut said = Rewritten::default();
    for (node, n) in graph.nodes.iter().enumerate() {
        for (attr, t) in n.types.iter().enumerate() {
            let id = (n.name.clone(), t.name.clone());
            if painting.is_low(node, attr) {
                said.types.insert(id, painting.dtype.long_name().into());
            } else if recorded.added.contains(&id) {
                said.types.insert(id, "float32".into());
            }
        }
    }
    let output = |port: Port| match (&graph.nodes[port.node].name, port.port) {
        (name, 0) => name.clone(),
        (name, port) => format!("{name}:{port}"),
    };
    let mut reads: HashMap<Port, String> = HashMap::new();
    for cast in casts(graph, painting) {
        let name = format!("{}-AutoMixedPrecision", cast.name);
        cast.consumers.iter().for_each(|input| _ = reads.insert(*input, name.clone()));
        said.casts.insert(name, output(cast.of));
    }
    for (node, n) in nodes.iter().enumerate() {
        let inputs = texts(&n["inputs"]);
        let data = inputs.iter().filter(|input| port(input).is_some());
        let rewired: Vec<String> = data
            .enumerate()
            .map(|(port, input)| reads.get(&Port { node, port }).cloned().unwrap_or_else(|| input.clone()))
            .collect();
        if (0..rewired.len()).any(|port| reads.contains_key(&Port { node, port })) {
            said.rewired.insert(text(&n["name"]), rewired);
        }
    }
    said
}

fn theirs(rewrite: &Value) -> Rewritten {
    let mut said = Rewritten::default();
    for (node, attrs) in rewrite["changed_types"].as_object().unwrap() {
        for (attr, dtype) in attrs.as_object().unwrap() {
            said.types.insert((node.clone(), attr.clone()), text(dtype));
        }
    }
    for cast in rewrite["inserted"].as_array().unwrap() {
        assert_eq!(cast["op"], "Cast");
        let input = text(&cast["inputs"][0]);
        said.casts.insert(text(&cast["name"]), input.strip_suffix(":0").unwrap_or(&input).to_string());
    }
    for (node, inputs) in rewrite["rewired_inputs"].as_object().unwrap() {
        let data = texts(inputs).into_iter().filter(|input| port(input).is_some()).collect();
        said.rewired.insert(node.clone(), data);
    }
    said
}

/// Equivalent errors: TensorFlow's message, and the kind and the message of ours.
const SAME_ERRORS: &[(&str, ErrorKind, &str)] = &[
    ("Failed to set type attribute", ErrorKind::Value, "would have to run low and has a port that is always f32"),
    ("Op lists have conflicting entries", ErrorKind::List, "is also on the "),
    ("cannot be set to UNSAFE_FORCE_ALL when oneDNN is used", ErrorKind::Level, "only float16 can be forced"),
];

fn says_the_same(ours: &Error, theirs: &str) -> bool {
    let same = |(words, kind, our_words): &(&str, ErrorKind, &str)| {
        theirs.contains(words) && ours.kind() == *kind && ours.to_string().contains(our_words)
    };
    SAME_ERRORS.iter().any(same)
}

fn judge(tally: &mut Tally, case: String, nodes: &[Value], fetched: &Value, rewrite: &Value, setting: &str) {
    let Some(lists) = lists(setting) else { return tally.fail(case, "a setting that is not known") };
    let device = device(lists.dtype);
    let recorded = read(nodes, &texts(fetched).into_iter().collect());
    let painting: Result<Painting> = paint(&recorded.graph, &lists, &device);
    match (painting, rewrite["error"].as_str()) {
        (Err(error), Some(theirs)) if says_the_same(&error, theirs) => tally.agree(case),
        (Err(error), Some(theirs)) => tally.fail(case, format!("ours {error}, TensorFlow's {theirs}")),
        (Err(error), None) => tally.fail(case, error),
        (Ok(_), Some(error)) => tally.fail(case, format!("TensorFlow raises {error}")),
        (Ok(painting), None) => {
            let (ours, theirs) = (ours(&recorded, nodes, &painting), theirs(rewrite));
            if ours == theirs {
                tally.agree(case);
            } else {
                tally.fail(case, format!("ours {ours:#?}, TensorFlow's {theirs:#?}"));
            }
        }
    }
}

const EMULATED: &str = "every kernel here computes in f32 and rounds, so there is no mode that emulates it";

#[test]
fn graphs_of_tensorflows_own_tests() {
    replay("tensorflow", "cases", golden("tensorflow/cases.json"), |recorded, tally| {
        for case in items(&recorded["cases"]) {
            let nodes = case["nodes"].as_array().unwrap();
            for (key, setting) in [("fp16_cpu_real", "fp16"), ("bf16", "bf16")] {
                let name = format!("{} {setting}", text(&case["name"]));
                judge(tally, name, nodes, &case["fetch"], &case[key], setting);
            }
            if !case["fp16_cpu_emulate"].is_null() {
                tally.not_covered(format!("{} emulated", text(&case["name"])), EMULATED);
            }
        }
    });
}

#[test]
fn rewritten_graphs() {
    replay("tensorflow", "rewrite", golden("tensorflow/rewrite.json"), |recorded, tally| {
        let graphs = recorded["graphs"].as_array().map_or(&[][..], |graphs| graphs);
        for graph in graphs {
            let nodes = graph["nodes"].as_array().unwrap();
            for (setting, rewrite) in graph["rewrites"].as_object().unwrap() {
                let name = format!("{} {setting}", text(&graph["name"]));
                match setting.contains("emulate") {
                    true => tally.not_covered(name, EMULATED),
                    false => judge(tally, name, nodes, &graph["fetch"], rewrite, setting),
                }
            }
        }
        let known = Ports::recorded(graphs);
        for (pipeline, setting) in [("pipeline_bf16", "bf16"), ("pipeline_fp16", "fp16")] {
            for function in items(&recorded[pipeline]["functions"]) {
                for graph in function["graphs"].as_array().unwrap() {
                    let name = format!("{pipeline} {} {}", text(&function["name"]), text(&graph["id"]));
                    match known.complete(graph["nodes_before"].as_array().unwrap()) {
                        Some((nodes, preserved)) => {
                            judge(tally, name, &nodes, &preserved, &graph["rewrite"], setting);
                        }
                        None => tally.not_covered(name, "the types of its ports were not recorded"),
                    }
                }
            }
        }
    });
}

/// The types of the inputs and outputs of ops, by op, from other recorded graphs.
struct Ports(HashMap<String, (Value, Value)>);

impl Ports {
    fn recorded(graphs: &[Value]) -> Self {
        let nodes = graphs.iter().flat_map(|graph| graph["nodes"].as_array().unwrap());
        Ports(nodes.map(|n| (text(&n["op"]), (n["in_ports"].clone(), n["out_ports"].clone()))).collect())
    }

    /// Completes the nodes of a graph of the whole pipeline, for which ports were not recorded, with their ports, and
    /// returns them with the names of the preserved ones, the ends of the graph. `None` if an op has more types than
    /// can be distinguished.
    fn complete(&self, nodes: &[Value]) -> Option<(Vec<Value>, Value)> {
        let read: BTreeSet<String> = nodes
            .iter()
            .flat_map(|node| texts(&node["inputs"]))
            .map(|input| port(&input).map_or(String::new(), |(name, _)| name.to_string()))
            .collect();
        let is_end = |node: &&Value| node["op"] == "_Arg" || !read.contains(&text(&node["name"]));
        let ends = nodes.iter().filter(is_end).map(|node| node["name"].clone()).collect();
        let mut completed = nodes.to_vec();
        for node in &mut completed {
            let inputs = texts(&node["inputs"]).iter().filter(|input| port(input).is_some()).count();
            let (ins, outs) = match self.0.get(&text(&node["op"])) {
                Some((ins, outs)) if ins.as_array()?.len() == inputs => (ins.clone(), outs.clone()),
                _ => Ports::of_types(node, inputs)?,
            };
            node["in_ports"] = ins;
            node["out_ports"] = outs;
        }
        Some((completed, ends))
    }

    /// Infers the ports of an op: one type applies to all ports. An op with `T` and an index type reads its indices
    /// last, as `Sum` and `Transpose` do.
    fn of_types(node: &Value, inputs: usize) -> Option<(Value, Value)> {
        let types: Vec<&String> = node["types"].as_object()?.keys().collect();
        let outs = if node["op"] == "_Retval" { json!([]) } else { json!([types.first()?]) };
        match types[..] {
            [own] => Some((json!(vec![own; inputs]), outs)),
            [own, index] if own == "T" && inputs == 2 => Some((json!([own, index]), outs)),
            _ => None,
        }
    }
}

/// Returns the pack with the lists of a recorded mode.
fn pack_of(mode: &str) -> Option<(&'static str, DType)> {
    match mode {
        "CUDA (cuda>=9010,cudnn>=8000)" => Some(("tensorflow-2.21-fp16", DType::F16)),
        "BF16 (onednn bfloat16)" => Some(("tensorflow-2.21-bf16", DType::Bf16)),
        mode if mode.contains("onednn_bfloat16") => Some(("tensorflow-2.21-bf16", DType::Bf16)),
        mode if mode.starts_with("CPU (") || mode.contains("auto_mixed_precision_cpu") => {
            Some(("tensorflow-2.21-cpu", DType::F16))
        }
        _ => None,
    }
}

/// Returns a difference between our lists and recorded ones: every name on a list must be on ours, and every op of ours
/// with a name in TensorFlow must be listed there.
fn difference(ours: &GraphPolicy, theirs: &Value) -> Option<String> {
    let recorded = |list: GraphList| texts(&theirs[list.name()]);
    for list in GraphList::ALL {
        if let Some(name) = recorded(list).iter().find(|name| ours.list(name) != Some(list)) {
            return Some(format!("{name} is on the {list} list, and here on {:?}", ours.list(name)));
        }
        let named = |op: &Op| op.names(System::TensorFlow).any(|name| recorded(list).iter().any(|known| known == name));
        let has_name = |op: &&Op| op.names(System::TensorFlow).next().is_some();
        let on_ours = Op::ALL.iter().filter(has_name).filter(|op| ours.list_of(**op) == Some(list));
        if let Some(op) = on_ours.into_iter().find(|op| !named(op)) {
            return Some(format!("{op} is on the {list} list here, and not there"));
        }
    }
    None
}

/// Converts an environment variable to a policy: `DENYLIST_ADD=Tanh` is `deny: { add: [Tanh] }`.
fn policy_of(pack: &str, low: DType, setting: &str) -> Option<String> {
    let variables: Vec<(&str, &str)> = setting.split_whitespace().filter_map(|word| word.split_once('=')).collect();
    let mut lines: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for (key, value) in &variables {
        match key.split_once("LIST_") {
            None if *key == "LEVEL" => _ = lines.insert("level", vec![value.to_lowercase()]),
            None => return None,
            Some((list, change)) => {
                let list = match list {
                    "ALLOW" | "WHITE" => "allow",
                    "INFER" | "GRAY" => "infer",
                    "DENY" | "BLACK" => "deny",
                    "CLEAR" => "clear",
                    _ => return None,
                };
                let (begin, changes) = (format!("{}: [", change.to_lowercase()), lines.entry(list).or_default());
                // A list may be changed by its new and by its old name.
                match changes.iter_mut().find(|said| said.starts_with(&begin)) {
                    Some(said) => said.insert_str(begin.len(), &format!("{value}, ")),
                    None => changes.push(format!("{begin}{value}]")),
                }
            }
        }
    }
    let line = |(key, value): (&&str, &Vec<String>)| match *key {
        "level" => format!("  level: {}\n", value[0]),
        list => format!("  {list}: {{ {} }}\n", value.join(", ")),
    };
    let lines: String = lines.iter().map(line).collect();
    let graph = if lines.is_empty() { return None } else { format!("graph:\n{lines}") };
    Some(format!("version: 1\ndtype: {}\npack: {pack}\n{graph}", low.long_name()))
}

/// Returns a setting without the names of unknown ops.
fn of_known_ops(setting: &str) -> String {
    let is_known = |name: &&str| Op::named_in(System::TensorFlow, name).is_ok();
    let word = |(key, names): (&str, &str)| match key {
        "LEVEL" => format!("{key}={names}"),
        _ => format!("{key}={}", names.split(',').filter(is_known).collect::<Vec<_>>().join(",")),
    };
    let words = setting.split_whitespace().filter_map(|word| word.split_once('='));
    words.map(word).collect::<Vec<_>>().join(" ")
}

fn parsed(policy: &str) -> Result<GraphPolicy> {
    GraphPolicy::parse(policy, "p")
}

fn is_unknown(error: &Error) -> bool {
    error.kind() == ErrorKind::List && error.to_string().contains("no op is called")
}

/// The lists of every mode, and the effect on them of each environment variable, as keys of a policy.
#[test]
fn lists_and_what_the_environment_makes_of_them() {
    replay("tensorflow", "lists", golden("tensorflow/lists.json"), |recorded, tally| {
        let lists_of = |pack: &str, low| GraphPolicy::from_pack(low, Pack::named(pack).unwrap()).unwrap();
        for (section, mode, theirs) in ["header", "binary"]
            .iter()
            .flat_map(|section| entries(&recorded[section]).map(move |(m, t)| (section, m, t)))
            .filter(|(_, mode, _)| *mode != "parts")
        {
            let case = format!("{section} {mode}");
            match pack_of(mode) {
                _ if theirs.get("allow").is_none() => tally.not_covered(case, "no lists were recorded"),
                None => tally.not_covered(case, "there is no pack for these versions or for FP16_CPU"),
                Some((pack, low)) => match difference(&lists_of(pack, low), theirs) {
                    None => tally.agree(case),
                    Some(words) => tally.fail(case, words),
                },
            }
        }
        for (setting, theirs) in entries(&recorded["environment_overrides"]) {
            let case = format!("environment {setting}");
            let Some((pack, low)) = pack_of(theirs["mode"].as_str().unwrap()) else {
                tally.fail(case, "a mode that is not known");
                continue;
            };
            let before = lists_of(pack, low);
            let Some(policy) = policy_of(pack, low, setting) else {
                tally.not_covered(case, "what was set is not recorded");
                continue;
            };
            let status = theirs["status"].as_str().unwrap();
            match parsed(&policy) {
                Err(error) if status != "OK" && says_the_same(&error, status) => tally.agree(case),
                // Without the unknown names, the rest is refused as there.
                Err(error) if status != "OK" => {
                    let rest = policy_of(pack, low, &of_known_ops(setting)).and_then(|policy| parsed(&policy).err());
                    match rest.filter(|rest| is_unknown(&error) && says_the_same(rest, status)) {
                        Some(_) => tally.differs(case),
                        None => tally.fail(case, format!("ours {error}, TensorFlow's {status}")),
                    }
                }
                Err(error) if is_unknown(&error) || error.to_string().contains("unknown level of a graph") => {
                    tally.differs(case);
                }
                Err(error) => tally.fail(case, error),
                Ok(_) if status != "OK" => tally.fail(case, status),
                Ok(_) if theirs.get("allow").is_none() => tally.not_covered(case, "no lists were recorded"),
                // The lists were recorded before this level reads them.
                Ok(_) if setting.to_uppercase().starts_with("LEVEL=TREAT_INFER_AS_DENY") => {
                    tally.not_covered(case, "the recorded lists do not show what the level makes of them");
                }
                Ok(after) => {
                    let changed = |list: GraphList, name: &str| {
                        let of = |key: &str| texts(&theirs[list.name()][key]).iter().any(|known| known == name);
                        let all = theirs[list.name()]["removed"] == "ALL";
                        (of("added"), of("removed") || all && before.list(name) == Some(list))
                    };
                    let wrong = Op::ALL.iter().flat_map(|op| op.names(System::TensorFlow)).find(|name| {
                        let mut expected = before.list(name);
                        for list in GraphList::ALL {
                            let (added, removed) = changed(list, name);
                            expected = if added { Some(list) } else { expected.filter(|is| !(removed && *is == list)) };
                        }
                        after.list(name) != expected
                    });
                    match wrong {
                        None => tally.agree(case),
                        Some(name) => tally.fail(case, format!("{name} is on {:?}", after.list(name))),
                    }
                }
            }
        }
    });
}

/// TensorFlow accepts names of no op, and ignores an unknown level.
#[test]
fn names_that_nobody_knows_are_errors() {
    for (setting, words) in [
        ("DENYLIST_ADD=Tahn", "did you mean `Tanh`"),
        ("ALLOWLIST_REMOVE=Tahn", "did you mean `Tanh`"),
        ("LEVEL=treat_infer_as_denied", "did you mean `treat_infer_as_deny`"),
    ] {
        let policy = policy_of("tensorflow-2.21-fp16", DType::F16, setting).unwrap();
        let message = parsed(&policy).unwrap_err().to_string();
        assert!(message.starts_with("p:5:") && message.contains(words), "{message}");
    }
}

/// A change of a list applies to an op, under any of its names.
#[test]
fn changes_go_by_op() {
    let lists = lists("fp16_CLEARLIST_REMOVE=Snapshot").unwrap();
    assert_eq!([lists.list("Snapshot"), lists.list("Identity"), lists.list_of(Op::Identity)], [None; 3]);
}

/// The environment variables and the keys of a policy have the same effect on every graph recorded for both.
#[test]
fn policy_keys_are_the_environment() {
    for (variables, key) in [
        ("fp16_DENYLIST_ADD=Tanh,INFERLIST_REMOVE=Tanh", "DENYLIST_ADD=Tanh INFERLIST_REMOVE=Tanh"),
        ("fp16_ALLOWLIST_ADD=Softmax,INFERLIST_REMOVE=Softmax", "ALLOWLIST_ADD=Softmax INFERLIST_REMOVE=Softmax"),
        ("fp16_ALLOWLIST_ADD=Relu,CLEARLIST_REMOVE=Relu", "WHITELIST_ADD=Relu CLEARLIST_REMOVE=Relu"),
        ("fp16_TENSOR_CORES_ONLY", "LEVEL=TENSOR_CORES_ONLY"),
        ("fp16_UNSAFE_FORCE_ALL", "LEVEL=UNSAFE_FORCE_ALL"),
        ("fp16_TREAT_INFER_AS_DENY", "LEVEL=TREAT_INFER_AS_DENY"),
    ] {
        let policy = policy_of("tensorflow-2.21-cpu", DType::F16, key).unwrap();
        let (of_policy, of_variables) = (parsed(&policy).unwrap(), lists(variables).unwrap());
        let read =
            |of: &GraphPolicy| (of.dtype, of.level, Op::ALL.iter().map(|op| of.list_of(*op)).collect::<Vec<_>>());
        assert_eq!(read(&of_policy), read(&of_variables), "{variables}");
    }
}

#[test]
fn only_float16_can_be_forced() {
    let bf16 = GraphPolicy::new(DType::Bf16).unwrap();
    let message = bf16.level(GraphLevel::ForceAll).unwrap_err().to_string();
    assert_eq!(message, "only float16 can be forced on all ops, not bfloat16");
}
