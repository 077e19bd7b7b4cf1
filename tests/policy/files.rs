//! Policy files: their words, their meaning, and the messages for broken ones.

use std::{fs, path::PathBuf};

use precast::{
    Child, DType, ErrorKind, Level, Op, Policy,
    layers::{Dense, Rng},
    policy::{
        DynamicScale, Entry, Forgive, Format, GraphList, GraphPolicy, Kept, Lists, LossScaleSpec, Operands, Origin,
        Pack, PolicyFile, Prefer, Rounding, Rule, RunAs, Scaler, Scaling, Select,
    },
    precision::Treatment,
};

use crate::{
    common::folder::Folder,
    shipped::{folder, shipped},
};

#[test]
fn dtype_is_checked_before_the_level() {
    assert_eq!(Policy::new("O9", DType::F32).unwrap_err().kind(), ErrorKind::DType);
    assert_eq!(Policy::new(Level::O0, DType::F32).unwrap_err().kind(), ErrorKind::DType);
    assert_eq!(Policy::new("o1", DType::F16).unwrap_err().kind(), ErrorKind::Level);
    let text = "version: 1\nlevel: O9\ndtype: float32\npack: nobody\n";
    assert_eq!(Policy::parse(text, "p").unwrap_err().kind(), ErrorKind::DType);
    let text = text.replace("float32", "float16");
    assert_eq!(Policy::parse(&text, "p").unwrap_err().kind(), ErrorKind::Level);
    assert_eq!(Policy::parse(&text.replace("O9", "O1"), "p").unwrap_err().kind(), ErrorKind::List);
}

fn assert_points_into(file: &str, message: &str) {
    let place =
        message.strip_prefix(file).and_then(|rest| rest.strip_prefix(':')).unwrap_or_else(|| panic!("{message}"));
    let numbers: Vec<usize> = place.splitn(3, ':').take(2).map(|n| n.parse().unwrap()).collect();
    assert!(numbers.len() == 2 && numbers.iter().all(|n| *n >= 1), "{message}");
    assert!(message.lines().count() == 4 && message.ends_with('^'), "the line with a caret is missing: {message}");
}

/// One file for each possible mistake, and one snapshot for its message.
#[test]
fn every_broken_policy_is_answered_with_place_and_reason() {
    let mut files: Vec<PathBuf> =
        fs::read_dir(folder("tests/policies/bad")).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    assert!(files.len() >= 60);
    let answers = fs::read_dir(folder("tests/policies/answers")).unwrap();
    let answers = answers.filter(|entry| entry.as_ref().unwrap().path().extension().is_some_and(|end| end == "snap"));
    assert_eq!(answers.count(), files.len(), "every answer belongs to a file");
    insta::with_settings!({ snapshot_path => "../policies/answers", prepend_module_to_snapshot => false, omit_expression => true }, {
        for path in files {
            let file = path.file_name().unwrap().to_str().unwrap();
            let message = Policy::parse(&fs::read_to_string(&path).unwrap(), file).expect_err(file).to_string();
            assert_points_into(file, &message);
            insta::assert_snapshot!(path.file_stem().unwrap().to_str().unwrap(), message);
        }
    });
}

/// Returns the meaning of a policy: everything but its source positions.
fn meaning(policy: &Policy) -> String {
    let cells = policy.lists.cells().iter().map(|(kind, entry)| (kind, entry.treatment));
    let ops = policy.lists.ops().iter().map(|(op, entry)| (op, entry.treatment));
    let rules = policy.rules.iter().map(|r| {
        let changes = (r.until, r.raise_after_stall, r.operands, r.min_k, r.min_n, r.kept);
        format!("{} {:?} {:?} {changes:?} {:?} {:?}", r.select, r.run, r.checkpoint, r.because, r.expect)
    });
    format!(
        "{:?} {:?} {} {} {} {:?} {:?} {:?} {:?}",
        policy.name,
        policy.pack,
        policy.level,
        policy.dtype,
        policy.prefer,
        rules.collect::<Vec<_>>(),
        cells.collect::<Vec<_>>(),
        ops.collect::<Vec<_>>(),
        (&policy.loss_scale, policy.scaler)
    )
}

/// Returns the meaning of a policy for graphs: everything but its source positions.
fn meaning_of_graph(policy: &GraphPolicy) -> String {
    let GraphPolicy { name, pack, dtype, lists, level, loss_scale, scaler, .. } = policy;
    let ops: Vec<_> = lists.ops().iter().map(|(op, entry)| (op, entry.treatment)).collect();
    format!("{:?}", (name, pack, dtype, ops, level, loss_scale, scaler))
}

/// A scaler can be required where one is needed: for ops that run in float16.
#[test]
fn a_scaler_that_is_required_is_missed_in_lowered_float16_alone() {
    for (level, dtype, scaled, required) in (0..16).map(|n| (n & 1, n & 2, n & 4 != 0, n & 8 != 0)) {
        let (level, dtype) = ([Level::O0, Level::O2][level], [DType::Bf16, DType::F16][dtype / 2]);
        let mut policy = Policy::new(level, dtype).unwrap();
        policy.loss_scale = if scaled { LossScaleSpec::Fixed { scale: 8.0 } } else { LossScaleSpec::None };
        policy.scaler = if required { Scaler::Required } else { Scaler::Advised };
        let applied = policy.apply(&mut Child::new(Dense::new(2, 2, &mut Rng::seed(1))));
        let missed = level == Level::O2 && dtype == DType::F16 && !scaled && required;
        assert_eq!(applied.is_err(), missed, "{level} {dtype}, scaled: {scaled}, required: {required}");
        if let Err(error) = applied {
            assert_eq!(error.kind(), ErrorKind::Policy);
            assert!(error.to_string().contains("allowed: fixed, dynamic"), "{error}");
        }
    }
}

const FULL: &str = "\
version: 1
name: \"fine: tune #1\"
pack: mindspore-2.10
level: O2
dtype: bfloat16
prefer: speed
rules:
  - path: encoder.layers.*.norm
    run: float32
    because: \"variance: underflows, 100% of the time\"
  - path: \"**.head\"
    run: inherit
  - kind: Embedding
    run: low
    expect: 1
  - path: encoder.layers.*
    checkpoint: true
  - kind: Dense
    operands: { forward: e4m3, backward: e5m2, scale: rows, rounding: stochastic }
    min_k: 256
    min_n: 128
  - path: encoder
    kept: int8-rows
scaler: required
cells: { black: { add: [\"null\", Norm], remove: [LayerNorm] } }
ops: { black: { add: [Softmax, Gather] } }
loss_scale: { kind: dynamic, init: 1024, growth: 1.5, backoff: 0.25, interval: 7, min: 2, max: 4096.5, hysteresis: 3, forgive: growth }
";

/// A policy whose decisions change during a run.
const CHANGING: &str = "\
version: 1
level: O2
dtype: float16
rules:
  - path: \"**\"
    run: float32
    until: { step: 500 }
  - path: encoder.**
    after_stall: raise
  - path: \"**\"
    run: low
    until: { step: 600 }
";

#[test]
fn rules_end_after_their_steps() {
    let policy = Policy::parse(CHANGING, "changing.yaml").unwrap();
    let expected = [
        Rule::path("**", RunAs::Full).unwrap().until(500),
        Rule::raise_after_stall("encoder.**").unwrap(),
        Rule::path("**", RunAs::Low).unwrap().until(600),
    ];
    let plain = |rule: &Rule| (rule.select.clone(), rule.run, rule.until, rule.raise_after_stall);
    assert!(policy.rules.iter().map(plain).eq(expected.iter().map(plain)), "{:?}", policy.rules);
    assert_eq!(policy.ends().into_iter().collect::<Vec<_>>(), [500, 600]);
    let rules = |steps| policy.after_steps(steps).rules.len();
    assert_eq!([0, 499, 500, 599, 600, usize::MAX].map(rules), [3, 3, 2, 2, 1, 1]);
    assert_eq!(policy.in_the_end().rules, policy.rules[1..2]);
    // The same selection again, for after the first rule alone.
    let again = |until| policy.clone().rule(Rule::path("**", RunAs::Inherit).unwrap().until(until));
    assert!(again(600).is_err() && again(601).is_ok());
}

/// One rule has the precision of these cells, one their recomputation, one the operands of their products, one what they keep, and one what happens if
/// they stall a run.
#[test]
fn rules_about_different_things_may_have_one_path() {
    let rules = "{ path: '**', run: float32 }, { path: '**', checkpoint: true }, { path: '**', after_stall: raise }, \
                 { path: '**', operands: mxfp8 }, { path: '**', kept: none }";
    let text = |more: &str| format!("version: 1\nlevel: O2\ndtype: float16\nrules: [{rules}{more}]\n");
    assert_eq!(Policy::parse(&text(""), "p.yaml").unwrap().rules.len(), 5);
    for again in ["run: low", "checkpoint: true", "operands: int8", "kept: int8-rows", "after_stall: raise"] {
        let error = Policy::parse(&text(&format!(", {{ path: '**', {again} }}")), "p.yaml").unwrap_err();
        assert!(error.to_string().contains("the path ** has a rule already"), "{error}");
    }
}

#[test]
fn a_full_policy_means_what_it_says() {
    let policy = Policy::parse(FULL, "full.yaml").unwrap();
    assert_eq!(policy.name.as_deref(), Some("fine: tune #1"));
    assert_eq!((policy.level, policy.dtype, policy.prefer), (Level::O2, DType::Bf16, Prefer::Speed));
    let operands = Operands::custom(Format::E4M3, Format::E5M2, Scaling::Rows, Rounding::Stochastic).unwrap();
    let mut quantized = Rule::operands("Dense", operands).unwrap().min_k(256).min_n(128);
    quantized.select = Select::Kind("Dense".into());
    let expected = [
        Rule::path("encoder.layers.*.norm", RunAs::Full).unwrap().because("variance: underflows, 100% of the time"),
        Rule::path("**.head", RunAs::Inherit).unwrap(),
        Rule::kind("Embedding", RunAs::Low).expect(1),
        Rule::recompute("encoder.layers.*").unwrap(),
        quantized,
        Rule::kept("encoder", Kept::Int8Rows).unwrap(),
    ];
    assert_eq!(policy.rules.len(), expected.len());
    for (rule, expected) in policy.rules.iter().zip(expected) {
        let mut expected = expected;
        expected.origin = rule.origin.clone();
        assert_eq!(*rule, expected);
    }
    assert_eq!(policy.rules[1].origin.to_string(), "full.yaml:11:5");

    let pack = Pack::named("mindspore-2.10").unwrap();
    let at = |line, column| Origin::File { file: "full.yaml".into(), line, column };
    let put = |lists: &mut Lists, op, treatment, place| {
        assert_eq!(lists.put_op(op, Entry::new(treatment, place)), None);
    };
    let mut black = pack.lists(Level::O2).unwrap();
    assert!(black.remove_cell("LayerNorm").is_some());
    black.put_cell("null".into(), Entry::new(Treatment::Full, at(25, 25)));
    black.put_cell("Norm".into(), Entry::new(Treatment::Full, at(25, 33)));
    put(&mut black, Op::Softmax, Treatment::Full, at(26, 23));
    // In the vocabulary of MindSpore's pack, `Gather` is our `Embedding`.
    put(&mut black, Op::Embedding, Treatment::Full, at(26, 32));
    assert_eq!(policy.lists, black);

    let text = FULL.replace("level: O2", "level: O1");
    let text = text
        .replace("black: { add: [\"null\", Norm], remove: [LayerNorm] }", "white: { add: [Norm], remove: [Dense] }");
    let text = text.replace("black: { add: [Softmax, Gather] }", "white: { add: [Einsum], remove: [PReLU] }");
    let mut white = pack.lists(Level::O1).unwrap();
    assert!(white.remove_cell("Dense").is_some() && white.remove_op(Op::Prelu).is_some());
    white.put_cell("Norm".into(), Entry::new(Treatment::Low, at(25, 25)));
    put(&mut white, Op::Einsum, Treatment::Low, at(26, 23));
    assert_eq!(Policy::parse(&text, "full.yaml").unwrap().lists, white);
    let (hysteresis, forgive) = (3, Forgive::Growth);
    let dynamic = DynamicScale::default()
        .init(1024.0)
        .growth(1.5)
        .backoff(0.25)
        .interval(7)
        .min(2.0)
        .max(4096.5)
        .hysteresis(hysteresis)
        .forgive(forgive);
    assert_eq!(policy.loss_scale, LossScaleSpec::Dynamic(dynamic));
}

#[test]
fn what_is_written_is_read_back() {
    let mut policies: Vec<Policy> = ["o0", "o1", "o2", "o3", "o1-bf16", "o2-bf16", "o3-bf16", "auto", "auto-bf16"]
        .map(shipped)
        .into_iter()
        .collect();
    policies.push(Policy::parse(FULL, "full").unwrap());
    policies.push(Policy::parse(CHANGING, "changing").unwrap());
    let ops = "white: { remove: [Einsum] }, black: { add: [Tanh], remove: [Pow] }, promote: { add: [Einsum, Where] }";
    let auto = format!("version: 1\nlevel: auto\ndtype: float16\nops: {{ {ops} }}\n");
    policies.push(Policy::parse(&auto, "auto").unwrap());
    let mut fixed = Policy::new(Level::O1, DType::F16).unwrap();
    fixed.loss_scale = LossScaleSpec::Fixed { scale: 1024.0 };
    fixed.name = Some("- no: list # at all\n\"quoted\"".into());
    policies.push(fixed.rule(Rule::path("*.fc", RunAs::Low).unwrap().because("null")).unwrap());
    for policy in policies {
        let text = policy.to_yaml().unwrap();
        let again = Policy::parse(&text, "again").unwrap_or_else(|e| panic!("{e}\n{text}"));
        assert_eq!(meaning(&again), meaning(&policy), "{text}");
        assert_eq!(again.to_yaml().unwrap(), text);
    }
    let lists = "infer: { remove: [Softmax] }, deny: { add: [Softmax] }, level: treat_infer_as_deny";
    let graph =
        format!("version: 1\ndtype: float16\npack: tensorflow-2.21-fp16\ngraph: {{ {lists} }}\nscaler: required\n");
    for policy in [GraphPolicy::named("graph").unwrap(), GraphPolicy::parse(&graph, "graph").unwrap()] {
        let text = policy.to_yaml().unwrap();
        let again = GraphPolicy::parse(&text, "again").unwrap_or_else(|e| panic!("{e}\n{text}"));
        assert_eq!(meaning_of_graph(&again), meaning_of_graph(&policy), "{text}");
        assert_eq!(again.to_yaml().unwrap(), text);
        assert_eq!(PolicyFile::parse(&text, "again").unwrap(), PolicyFile::Graph(again));
    }
}

#[test]
fn every_op_and_lists_from_code_can_be_written() {
    for op in Op::ALL {
        for (level, lists, treatment) in [
            (Level::O1, Lists::new().low("Dense"), Treatment::Low),
            (Level::O2, Lists::new().full("Dense"), Treatment::Full),
            (Level::Auto, Lists::new(), Treatment::Widest),
        ] {
            let mut lists = lists;
            lists.put_op(*op, Entry::new(treatment, Origin::Code));
            let policy = Policy::with_lists(level, DType::F16, lists).unwrap();
            let mut again = Policy::parse(&policy.to_yaml().unwrap(), "again").unwrap();
            again.pack = None;
            assert_eq!(meaning(&again), meaning(&policy));
        }
        let mut lists = Lists::new();
        lists.put_op(*op, Entry::new(Treatment::Infer, Origin::Code));
        let policy = GraphPolicy::with_lists(DType::F16, lists).unwrap();
        let mut again = GraphPolicy::parse(&policy.to_yaml().unwrap(), "again").unwrap();
        again.pack = None;
        assert_eq!(meaning_of_graph(&again), meaning_of_graph(&policy));
    }
}

/// A level reads the same keys in code as in files.
#[test]
fn what_a_level_does_not_read_is_refused_in_code() {
    for (level, lists, words) in [
        (
            Level::O1,
            Lists::new().full("Dense"),
            "the entry of `Dense` (in code): level O1 does not read the full list of cells",
        ),
        (
            Level::O2,
            Lists::new().low_op("Gelu").unwrap(),
            "level O2 does not read the low list of ops; it reads the full",
        ),
        (Level::O3, Lists::new().full("Dense"), "level O3 does not read the full list of cells; it reads no list"),
        (Level::O0, Lists::new().low("Dense"), "it reads no list"),
        (
            Level::Auto,
            Lists::new().full("Dense"),
            "it reads the low list of ops, the full list of ops, the widest list",
        ),
    ] {
        let error = Policy::with_lists(level, DType::F16, lists.clone()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::List);
        assert!(error.to_string().contains(words), "{error}");
        // The fields are public, so the check is repeated when a network is planned and when a file is written.
        let mut policy = Policy::new(level, DType::F16).unwrap();
        policy.lists = lists;
        let net = Child::new(Dense::new(1, 1, &mut Rng::seed(1)));
        assert_eq!(policy.plan(&net).unwrap_err(), error);
        assert_eq!(policy.to_yaml().unwrap_err(), error);
    }
}

/// The other kind of policy is refused with words that say what to use.
#[test]
fn policies_for_cells_and_for_graphs_are_told_apart() {
    let cells = |error: precast::Error| {
        assert_eq!(error.kind(), ErrorKind::Policy);
        assert!(error.to_string().contains("a policy for graphs, where one with a level is expected"), "{error}");
        assert!(error.to_string().contains("by `precast graph`, or `precast_graph::rewrite` with"), "{error}");
    };
    let graphs = |error: precast::Error| {
        assert_eq!(error.kind(), ErrorKind::Policy);
        assert!(error.to_string().contains("a policy with a level, where one for graphs is expected"), "{error}");
        assert!(error.to_string().contains("`policy.apply(&mut net)`"), "{error}");
    };
    cells(Policy::named("graph").unwrap_err());
    cells(Policy::load(folder("policies/graph.yaml")).unwrap_err());
    graphs(GraphPolicy::named("o2").unwrap_err());
    let error = GraphPolicy::parse(FULL, "full").unwrap_err();
    assert!(error.to_string().starts_with("full:4:8: a policy with a level"), "{error}");
    graphs(error);
    let error = Policy::new("graph", DType::F16).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Level);
    assert!(error.to_string().contains("has the key `graph` in place of `level`, as in `graph: {}`"), "{error}");
    assert_eq!(
        Policy::names().chain(GraphPolicy::names()).collect::<Vec<_>>(),
        PolicyFile::names().collect::<Vec<_>>()
    );
    for name in PolicyFile::names() {
        assert_eq!(Policy::named(name).is_ok(), GraphPolicy::named(name).is_err(), "{name}");
    }
}

#[test]
fn a_policy_for_graphs_reads_four_lists_of_ops() {
    let message = |error: precast::Error| error.to_string();
    let error = GraphPolicy::with_lists(DType::F16, Lists::new().full("Dense")).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::List);
    let words = "a policy for graphs does not read the full list of cells; it reads the allow list of ops, the infer list of ops";
    assert!(message(error).contains(words));
    // The fields are public, so the checks are repeated when a file is written, and in `precast-graph` when a graph is rewritten.
    let mut policy = GraphPolicy::new(DType::F16).unwrap();
    policy.lists = Lists::new().full("Dense");
    assert!(message(policy.to_yaml().unwrap_err()).contains(words));
    // The lists are the pack's with the changes, read by the rules of the level.
    let text = "version: 1\ndtype: float16\npack: tensorflow-2.21-fp16\ngraph:\n  \
                allow: { add: [Softmax], remove: [Conv2D] }\n  infer: { remove: [Softmax] }\n  level: LEVEL\n";
    let list = |level: &str, name: &str| GraphPolicy::parse(&text.replace("LEVEL", level), "p").unwrap().list(name);
    assert_eq!(list("usual", "Softmax"), Some(GraphList::Allow));
    assert_eq!([list("usual", "Conv2D"), list("usual", "Conv2d"), list("usual", "Nobody")], [None; 3]);
    assert_eq!([list("usual", "Tanh"), list("tensor_cores_only", "Tanh")], [Some(GraphList::Infer), None]);
    assert_eq!(list("treat_infer_as_deny", "Tanh"), Some(GraphList::Deny));
}

#[test]
fn what_a_file_has_no_words_for_is_not_written() {
    let auto = || Policy::new(Level::Auto, DType::F16).unwrap();
    let refused = |policy: Policy| policy.to_yaml().unwrap_err().to_string();
    let mut policy = auto();
    policy.lists.put_op(Op::Relu, Entry::new(Treatment::Infer, Origin::Code));
    assert_eq!(
        refused(policy),
        "the lists differ from those of precast-1 in the entry of Relu, which a policy file cannot say"
    );
    type Change = fn(&mut Lists);
    let changes: [(Change, &str); 4] = [
        (|lists| lists.unlisted = Treatment::Full, "what ops do that are on no list"),
        (|lists| lists.unlisted_unpromoted = Some(Treatment::Full), "what ops do that are on no list"),
        (|lists| lists.eligible.clear(), "which dtypes are cast"),
        (|lists| lists.by_first = [Op::Relu].into(), "which ops go by their first input"),
    ];
    for (change, words) in changes {
        let mut policy = auto();
        change(&mut policy.lists);
        assert!(refused(policy).contains(&format!("in {words}, which")), "{words}");
    }
}

/// Defaults are not written.
#[test]
fn a_file_says_no_more_than_it_has_to() {
    let text = Policy::new(Level::O2, DType::Bf16).unwrap().to_yaml().unwrap();
    let words: Vec<&str> = text.lines().filter(|line| !line.starts_with('#')).collect();
    assert_eq!(
        words,
        ["version: 1", "pack: precast-1", "level: O2", "dtype: bfloat16", "loss_scale:", "  kind: none"],
        "{text}"
    );
    // The lists for graphs are others, and only the differences are written.
    let words = GraphPolicy::new(DType::Bf16).unwrap().to_yaml().unwrap();
    assert!(words.contains("\ngraph: {}\n") && !words.contains("\nlevel:"), "{words}");
    let text = "version: 1\ndtype: bfloat16\ngraph: { level: tensor_cores_only }\n";
    let words = GraphPolicy::parse(text, "p").unwrap().to_yaml().unwrap();
    assert!(words.contains("graph:\n  level: tensor_cores_only\nloss_scale:"), "{words}");
}

/// Terms from other systems at their place, and a dtype where `low` is meant.
#[test]
fn words_of_other_systems_are_known() {
    let head = "version: 1\nlevel: O2\ndtype: float16\n";
    let refused = |rest: String| Policy::parse(&format!("{head}{rest}"), "p").unwrap_err().to_string();
    for (theirs, ours) in [
        ("init_scale initial_scale init_loss_scaling", "init"),
        ("growth_factor scale_factor incr_ratio multiplier", "growth"),
        ("backoff_factor decr_ratio", "backoff"),
        ("growth_interval scale_window incr_every_n_steps growth_steps", "interval"),
    ] {
        for theirs in theirs.split(' ') {
            let message = refused(format!("loss_scale: {{ kind: dynamic, {theirs}: 2 }}\n"));
            assert!(message.contains(&format!("unknown key `{theirs}` (here it is `{ours}`)")), "{message}");
        }
    }
    for theirs in ["value", "loss_scale", "loss_scale_value"] {
        let message = refused(format!("loss_scale: {{ kind: fixed, {theirs}: 2 }}\n"));
        assert!(message.contains(&format!("unknown key `{theirs}` (here it is `scale`)")), "{message}");
    }
    for (text, kind) in [("version: 1\nmodel: lenet5\n", "run file"), ("version: 1\nnet: { kind: ReLU }\n", "model")] {
        let message = Policy::parse(text, "p").unwrap_err().to_string();
        assert!(message.contains(&format!("this looks like a {kind}, and a policy is wanted")), "{message}");
    }
    let message = refused("rules: [{ path: fc, recompute: true }]\n".into());
    assert!(message.contains("unknown key `recompute` (here it is `checkpoint`)"), "{message}");
    let low = "(did you mean `low`, the policy's own dtype?)";
    for (run, near) in [("float16", low), ("bfloat16", low), ("float64", "(did you mean `float32`?)")] {
        let message = refused(format!("rules: [{{ path: fc, run: {run} }}]\n"));
        assert!(message.contains(&format!("unknown `run: {run}` {near}")), "{message}");
    }
    let rule = |run: &str| Policy::parse(&format!("{head}rules: [{{ path: fc, run: {run} }}]\n"), "p").unwrap();
    assert_eq!(rule("{ forward: low, weight_grad: low }").rules[0].run, Some(RunAs::Low));
    assert_eq!(rule("{ forward: low, weight_grad: float32 }").rules[0].run, Some(RunAs::LowForward));
    // Two letters are not the number of a level.
    let message = |level: &str| level.parse::<Level>().unwrap_err().to_string();
    assert!(message("2").contains("did you mean `O2`"), "{}", message("2"));
    assert!(message("02").contains("did you mean `O2`"), "{}", message("02"));
    assert!(!message("x").contains("did you mean"), "{}", message("x"));
}

/// `Exp` is listed only for float16, so it can be added at bfloat16.
#[test]
fn an_entry_for_one_dtype_is_none_for_the_other() {
    let text = "version: 1\nlevel: auto\ndtype: bfloat16\nops: { black: { add: [Exp] } }\n";
    let policy = Policy::parse(text, "p").unwrap();
    assert_eq!(policy.lists.op(Op::Exp, DType::Bf16).unwrap().treatment, Treatment::Full);
    let again = Policy::parse(&policy.to_yaml().unwrap(), "again").unwrap();
    assert_eq!(meaning(&again), meaning(&policy));
    let message = Policy::parse(&text.replace("bfloat16", "float16"), "p").unwrap_err().to_string();
    assert!(message.contains("`Exp` is on the full list of ops already, from precast-1"), "{message}");
}

#[test]
fn the_loss_scale_left_out_is_the_usual_one() {
    let spec =
        |level, dtype| Policy::parse(&format!("version: 1\nlevel: {level}\ndtype: {dtype}\n"), "p").unwrap().loss_scale;
    for level in ["O1", "O2", "O3"] {
        assert_eq!(spec(level, "float16"), LossScaleSpec::Dynamic(DynamicScale::default()));
        assert_eq!(spec(level, "bf16"), LossScaleSpec::None);
    }
    assert_eq!(spec("O0", "f16"), LossScaleSpec::None);
}

#[test]
fn files_are_saved_and_loaded() {
    let folder = Folder::new("policy");
    let file = folder.at("policy.yaml");
    let policy = Policy::parse(FULL, "full").unwrap();
    policy.save(&file).unwrap();
    assert_eq!(meaning(&Policy::load(&file).unwrap()), meaning(&policy));

    for (bytes, place, words) in [
        (b"version: 1\nname: caf\xe9\n".to_vec(), "2:10", "not UTF-8"),
        (b"version: 1\nlevel: O2\0\ndtype: float16\n".to_vec(), "2:10", "control character, 0x00"),
        (b" ".repeat(10 << 20), "1:1", "larger than 64 KiB"),
        ("\u{20ac}".repeat(40_000).into_bytes(), "1:1", "larger than 64 KiB"),
    ] {
        fs::write(&file, bytes).unwrap();
        let message = Policy::load(&file).unwrap_err().to_string();
        assert!(message.starts_with(&format!("{}:{place}: ", file.display())) && message.contains(words), "{message}");
    }
    #[cfg(unix)]
    assert!(Policy::load("/dev/zero").unwrap_err().to_string().contains("larger than 64 KiB"));
    assert_eq!(Policy::load(&folder.0).unwrap_err().kind(), ErrorKind::Io);
    drop(folder);
    assert_eq!(Policy::load(&file).unwrap_err().kind(), ErrorKind::Io);
    assert_eq!(policy.save(&file).unwrap_err().kind(), ErrorKind::Io);
}

/// 700 rules are read again. 2,000 are more text than is read, and 1,000 short ones more values.
#[test]
fn a_policy_that_is_too_long_to_be_read_is_not_written() {
    let of = |rules: usize, name: &str| {
        let policy = Policy::named("o2").unwrap();
        let rule = |at| Rule::path(&format!("{name}{at}"), RunAs::Full).unwrap();
        (0..rules).try_fold(policy, |policy, at| policy.rule(rule(at))).unwrap()
    };
    let policy = of(700, "encoder.layers.");
    assert_eq!(Policy::parse(&policy.to_yaml().unwrap(), "p").unwrap().rules.len(), 700);
    for (rules, name, words) in [
        (2_000, "encoder.layers.", "larger than 64 KiB, the most a policy may have"),
        (1_000, "a", "more than 4096 values"),
    ] {
        let error = of(rules, name).to_yaml().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Policy);
        assert!(
            error.to_string().starts_with("the policy to be written:") && error.to_string().contains(words),
            "{error}"
        );
    }
}

#[test]
fn byte_order_marks_and_windows_line_ends_are_read() {
    let policy = Policy::parse(FULL, "p").unwrap();
    let windows = format!("\u{feff}{}", FULL.replace('\n', "\r\n"));
    assert_eq!(Policy::parse(&windows, "p").unwrap(), policy);
    let message = Policy::parse(&windows.replace("level: O2", "level: O7"), "p").unwrap_err().to_string();
    assert!(message.starts_with("p:4:8: unknown level `O7`"), "{message}");
}

/// None of these may take long or much memory, and none may panic or overflow the stack.
#[test]
fn bombs_are_refused() {
    let mut aliases = "version: 1\na0: &a0 [x, x, x, x, x, x, x, x, x, x]\n".to_string();
    for i in 1..9 {
        aliases += &format!("a{i}: &a{i} [{}]\n", vec![format!("*a{}", i - 1); 10].join(", "));
    }
    let deep: String = (0..3000).map(|depth| format!("{}a:\n", " ".repeat(depth % 64))).collect();
    let deeper: String = (0..340).map(|depth| format!("{}a:\n", " ".repeat(depth))).collect();
    let head = "version: 1\nlevel: O2\ndtype: float16\n";
    for (what, text) in [
        ("aliases", aliases),
        ("brackets", "[".repeat(100_000)),
        ("brackets within the size", "[".repeat(60_000)),
        ("braces", "{".repeat(60_000)),
        ("keys of keys", "? ".repeat(30_000)),
        ("dashes", "- ".repeat(30_000)),
        ("flow maps", "{a: ".repeat(15_000)),
        ("many keys", deep),
        ("a staircase", deeper),
        ("many rules", format!("{head}rules: [{}]", "{kind: A, run: low}, ".repeat(3000))),
        ("one long name", format!("{head}ops: {{ white: {{ add: [{}] }} }}", "MatMul".repeat(10_000))),
        ("one long comment", format!("{head}#{}", "x".repeat(100_000))),
        ("documents", "---\n".repeat(16_000)),
        ("quotes", "\"".repeat(60_000)),
        ("nul", "\0".repeat(1000)),
    ] {
        let message = Policy::parse(&text, "bomb").expect_err(what).to_string();
        assert_points_into("bomb", &message);
        assert!(message.len() < 1500, "{what}: {} bytes of message", message.len());
    }
}

/// Fragments that a careless or hostile author may put into a file.
const PIECES: [&str; 24] = [
    "{", "}", "[", "]", ":", ": ", "- ", "\n", "\r", "\t", "  ", "&a ", "*a", "!t ", "\"", "'", "|", ">", "#", "<<: ",
    "\u{feff}", "\0", "\u{2028}", "é",
];

proptest::proptest! {
    #![proptest_config(proptest::test_runner::Config { failure_persistence: None, ..proptest::test_runner::Config::with_cases(10_000) })]

    /// A valid file with a few cuts, duplications and insertions is read or refused with a position, and never panics.
    #[test]
    fn mutated_files_never_panic(
        edits in proptest::collection::vec((0usize..3, 0usize..2000, 0usize..40, 0usize..PIECES.len()), 1..5)
    ) {
        let mut text: Vec<char> = FULL.chars().collect();
        for (what, at, length, piece) in edits {
            let at = at % (text.len() + 1);
            let end = (at + length).min(text.len());
            match what {
                0 => drop(text.drain(at..end)),
                1 => text.splice(at..at, PIECES[piece].chars()).for_each(drop),
                _ => {
                    let copy = text[at..end].to_vec();
                    text.splice(at..at, copy).for_each(drop);
                }
            }
        }
        let text: String = text.into_iter().collect();
        match Policy::parse(&text, "p") {
            Ok(policy) => {
                let again = Policy::parse(&policy.to_yaml().unwrap(), "again").unwrap();
                proptest::prop_assert_eq!(meaning(&again), meaning(&policy));
            }
            Err(error) => assert_points_into("p", &error.to_string()),
        }
    }
}
