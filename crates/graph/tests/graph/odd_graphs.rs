//! Painting of inconsistent, odd and large graphs.

use precast::{DType, Result, policy::Pack};
use precast_graph::{
    GraphList, GraphPolicy, Port,
    conformance::{Device, Painting, TypeAttr, TypeGraph, casts, paint},
};

fn lists() -> GraphPolicy {
    GraphPolicy::from_pack(DType::F16, Pack::named("tensorflow-2.21-fp16").unwrap()).unwrap()
}

fn painted(graph: &TypeGraph) -> Result<Painting> {
    paint(graph, &lists(), &Device::any())
}

fn message(graph: &TypeGraph) -> String {
    painted(graph).unwrap_err().to_string()
}

/// Builds a graph of nodes given by name, op and the nodes they read, in any order.
fn graph(nodes: &[(&str, &str, &[&str])]) -> TypeGraph {
    let place = |name: &str| nodes.iter().position(|node| node.0 == name).unwrap();
    let mut graph = TypeGraph::default();
    for (name, op, _) in nodes {
        graph.add(name, op, DType::F32, &[]).unwrap();
    }
    for (node, (_, _, inputs)) in graph.nodes.iter_mut().zip(nodes) {
        node.inputs = inputs.iter().map(|name| Port { node: place(name), port: 0 }).collect();
        node.in_types = vec![0; inputs.len()];
    }
    graph
}

/// Builds a chain that cycles through these ops.
fn chain(length: usize, ops: &[&str]) -> TypeGraph {
    let mut graph = TypeGraph::default();
    let mut last = None;
    for i in 0..length {
        let inputs: Vec<Port> = last.into_iter().collect();
        last = Some(graph.add(&format!("n{i}"), ops[i % ops.len()], DType::F32, &inputs).unwrap());
    }
    graph
}

fn is_low(painting: &Painting, name: &str) -> bool {
    painting.vertices.iter().find(|vertex| *vertex.node == *name).unwrap().low.is_some()
}

const ONLY_LOOPS: &str = "only a loop is a circle: a NextIteration that a Merge reads";

#[test]
fn a_circle_is_an_error_that_names_its_nodes() {
    // `x` leads into the cycle, and `d` depends on it.
    let circle = graph(&[
        ("x", "Placeholder", &[]),
        ("a", "Add", &["x", "c"]),
        ("b", "MatMul", &["a", "a"]),
        ("c", "Relu", &["b"]),
        ("d", "Tanh", &["c"]),
    ]);
    let circles = [["a", "c", "b"], ["c", "b", "a"], ["b", "a", "c"]];
    let said = circles.map(|[a, b, c]| {
        format!("a circle of nodes, each of which reads the next: `{a}`, `{b}`, `{c}`, `{a}`; {ONLY_LOOPS}")
    });
    assert!(said.contains(&message(&circle)), "{}", message(&circle));
    // Also where nothing would run low.
    assert!(message(&graph(&[("a", "Foo", &["b"]), ("b", "Foo", &["a"])])).contains("`a`, `b`, `a`"));
    let own = graph(&[("x", "MatMul", &[]), ("y", "Relu", &["y"])]);
    assert_eq!(message(&own), format!("node `y` reads its own output; {ONLY_LOOPS}"));
    assert_eq!(message(&graph(&[("m", "Merge", &["m"])])), format!("node `m` reads its own output; {ONLY_LOOPS}"));
    // Through a NextIteration, but not into a Merge.
    let round = graph(&[("n", "NextIteration", &["r"]), ("r", "Relu", &["n"])]);
    assert!(message(&round).starts_with("a circle of nodes"), "{}", message(&round));
    // Only some nodes of a large cycle are named.
    let mut large = chain(100_000, &["Relu", "MatMul"]);
    large.nodes[0].inputs.push(Port { node: 99_999, port: 0 });
    large.nodes[0].in_types.push(0);
    let said = message(&large);
    assert!(said.contains("`n0`, `n99999`, `n99998`") && said.contains("and 99992 more, up to `n0`"), "{said}");
}

#[test]
fn loops_are_circles_that_are_allowed() {
    let mut once = graph(&[
        ("x", "MatMul", &[]),
        ("enter", "Enter", &["x"]),
        ("merge", "Merge", &["enter", "next"]),
        ("switch", "Switch", &["merge"]),
        ("body", "MatMul", &["switch", "switch"]),
        ("next", "NextIteration", &["body"]),
        ("exit", "Exit", &["switch"]),
        ("y", "MatMul", &["exit", "exit"]),
    ]);
    assert!(is_low(&painted(&once).unwrap(), "next"));
    // A nested loop: the body is a loop as well.
    let nested = graph(&[
        ("x", "MatMul", &[]),
        ("outer", "Merge", &["x", "next_outer"]),
        ("inner", "Merge", &["outer", "next_inner"]),
        ("body", "MatMul", &["inner", "inner"]),
        ("next_inner", "NextIteration", &["body"]),
        ("next_outer", "NextIteration", &["body"]),
    ]);
    assert!(painted(&nested).is_ok());
    // A NextIteration that feeds another node besides its Merge.
    once.nodes[7].inputs[0] = Port { node: 5, port: 0 };
    assert_eq!(message(&once), "`next` is a NextIteration and feeds `y`, a MatMul; it may feed only a Merge");
}

#[test]
fn ports_and_names_that_do_not_fit_are_errors() {
    let mut graph = TypeGraph::default();
    let error = graph.add("x", "Relu", DType::F32, &[Port { node: 0, port: 0 }]).unwrap_err();
    assert_eq!(error.to_string(), "`x` reads output 0 of node 0: there is none");
    assert!(graph.nodes.is_empty());
    let x = graph.add("x", "MatMul", DType::F32, &[]).unwrap();
    assert!(graph.add("y", "Relu", DType::F32, &[Port { port: 1, ..x }]).is_err());
    graph.add("x", "Relu", DType::F32, &[x]).unwrap();
    assert_eq!(message(&graph), "node `x`: another node has this name");
    for (change, words) in [
        (Port { node: 7, port: 0 }, "node `n1`: it reads node 7, and there are 3"),
        (Port { node: 0, port: 2 }, "node `n1`: it reads output 2 of `n0`, which has 1"),
        (Port { node: usize::MAX, port: usize::MAX }, "node `n1`: it reads node 18446744073709551615, and there are 3"),
    ] {
        let mut graph = chain(3, &["MatMul"]);
        graph.nodes[1].inputs[0] = change;
        assert_eq!(message(&graph), words);
    }
}

/// An unknown op is on no list: it stays f32 and ends every walk.
#[test]
fn ops_that_nobody_knows_stay_f32() {
    let graph = graph(&[
        ("a", "MatMul", &[]),
        ("odd", "MyOp:1.2", &["a"]),
        ("relu", "Relu", &["odd"]),
        ("empty", "", &["relu"]),
        ("b", "MatMul", &["empty", "empty"]),
    ]);
    let painting = painted(&graph).unwrap();
    for (name, low) in [("a", true), ("odd", false), ("relu", false), ("empty", false), ("b", true)] {
        assert_eq!(is_low(&painting, name), low, "{name}");
    }
    assert_eq!(painting.explain("odd").unwrap(), "odd is f32: on no list");
    assert_eq!(casts(&graph, &painting).len(), 2);
    assert!(painting.explain("od").unwrap_err().to_string().contains("did you mean `odd`"));
    // Each of many unknown ones is looked up quickly.
    let many: Vec<String> = (0..100_000).map(|i| format!("MatMull{i}")).collect();
    let ops: Vec<&str> = many.iter().map(String::as_str).collect();
    assert!(painted(&chain(100_000, &ops)).unwrap().vertices.iter().all(|vertex| vertex.low.is_none()));
}

#[test]
fn graphs_of_little() {
    let empty = painted(&TypeGraph::default()).unwrap();
    assert!(empty.vertices.is_empty() && casts(&TypeGraph::default(), &empty).is_empty());
    assert!(empty.explain("x").unwrap_err().to_string().contains("no node is called `x`"));
    // An unread node, and one without any type.
    let mut lone = graph(&[("a", "MatMul", &[]), ("b", "Relu", &[]), ("c", "NoOp", &[])]);
    (lone.nodes[2].types, lone.nodes[2].out_types) = (vec![], vec![]);
    let painting = painted(&lone).unwrap();
    assert!(is_low(&painting, "a") && !is_low(&painting, "b") && painting.vertices.len() == 2);
    assert!(casts(&lone, &painting).is_empty());
}

/// Deep, wide and long graphs, each of a hundred thousand nodes.
#[test]
fn large_graphs_are_painted() {
    const NODES: usize = 100_000;
    let long = chain(NODES, &["MatMul", "Relu", "Tanh", "Exp"]);
    let painting = painted(&long).unwrap();
    for node in (4..NODES - 4).step_by(4) {
        assert!(painting.is_low(node, 0) && !painting.is_low(node + 3, 0), "{node}");
    }
    let all_between = chain(NODES + 1, &["MatMul", "Relu", "Relu", "Relu", "Tanh"]);
    assert!(painted(&all_between).unwrap().vertices.iter().all(|vertex| vertex.low.is_some()));
    // One output read by all others, and one node that reads all others.
    let mut wide = TypeGraph::default();
    let x = wide.add("x", "MatMul", DType::F32, &[]).unwrap();
    let readers: Vec<Port> = (1..NODES).map(|i| wide.add(&format!("n{i}"), "Exp", DType::F32, &[x]).unwrap()).collect();
    wide.add("all", "AddN", DType::F32, &readers).unwrap();
    let painting = painted(&wide).unwrap();
    let casts = casts(&wide, &painting);
    assert!(casts.len() == 1 && casts[0].consumers.len() == NODES - 1 && !is_low(&painting, "all"));
    // A variable passed through loop after loop stays f32 all the way.
    let mut handed_on = TypeGraph::default();
    let variable = handed_on.add("v", "VariableV2", DType::F32, &[]).unwrap();
    let mut last = handed_on.add("identity", "Identity", DType::F32, &[variable]).unwrap();
    for i in 2..NODES {
        last = handed_on.add(&format!("n{i}"), "Enter", DType::F32, &[last]).unwrap();
    }
    handed_on.add("product", "MatMul", DType::F32, &[last, last]).unwrap();
    let painting = painted(&handed_on).unwrap();
    assert_eq!(painting.vertices.iter().filter(|vertex| vertex.low.is_some()).count(), 1);
}

/// Elements written to a list and read from it, list after list.
#[test]
fn long_tensor_lists_are_painted_and_endless_ones_are_errors() {
    let lists = |length: usize| {
        let mut graph = TypeGraph::default();
        let element = graph.add("element", "MatMul", DType::F32, &[]).unwrap();
        let mut handle = element;
        for i in 0..length {
            let op = if i < length / 2 { "TensorListPushBack" } else { "TensorListPopBack" };
            let own = graph.add(&format!("list{i}"), op, DType::F32, &[]).unwrap();
            let node = &mut graph.nodes[own.node];
            node.types.push(TypeAttr { name: "variant".into(), dtype: "variant".into(), fixed: true });
            // The handle is the first input and the first output.
            node.out_types = vec![1, 0];
            (node.inputs, node.in_types) = match (i, op) {
                (0, _) => (vec![element], vec![0]),
                (_, "TensorListPushBack") => (vec![handle, element], vec![1, 0]),
                _ => (vec![handle], vec![1]),
            };
            handle = own;
        }
        graph
    };
    let painting = painted(&lists(2_000)).unwrap();
    assert!(painting.vertices.iter().filter(|vertex| vertex.is_f32).all(|vertex| vertex.low.is_some()));
    let said = message(&lists(100_000));
    assert!(said.starts_with("node `list") && said.contains("the tensor lists of this graph are too long"), "{said}");
}

#[test]
fn an_op_is_on_one_list_and_has_a_name() {
    let message = |lists: Result<GraphPolicy>| lists.unwrap_err().to_string();
    assert_eq!(
        message(lists().add(GraphList::Deny, "Tanh")),
        "`Tanh` is on the infer list; it cannot be on the deny list, too"
    );
    assert_eq!(message(lists().remove(GraphList::Deny, "Tanh")), "`Tanh` is not on the deny list");
    assert!(message(lists().add(GraphList::Deny, "Tahn")).contains("did you mean"));
    let moved = lists().remove(GraphList::Infer, "Tanh").and_then(|lists| lists.add(GraphList::Deny, "Tanh")).unwrap();
    assert_eq!(moved.list("Tanh"), Some(GraphList::Deny));
}
