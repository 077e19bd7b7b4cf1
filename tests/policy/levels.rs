//! The semantics of levels, lists, rules and `to_float`, point by point, checked on traced runs.

use precast::{
    cell::Adapter,
    compat::mindspore::{CustomLists, auto_mixed_precision_fn, custom_mixed_precision},
    observe,
    plan::{Reason, Region},
    policy::{Entry, Origin, Pack, Rule, RunAs},
    precision::Treatment,
    prelude::*,
};

/// A block that calls listed and unlisted ops itself, along with a listed cell, a black cell and a nested container.
#[derive(Cell, Debug)]
struct Block {
    fc: Child<Dense>,
    norm: Child<LayerNorm>,
    tail: Child,
    weight: Weight,
}

/// A square weight used directly by its cell.
#[derive(Debug, Clone)]
struct Weight(Param, usize);

impl From<usize> for Weight {
    fn from(n: usize) -> Self {
        Weight(Param::new(Tensor::full(&[n, n], 0.3, DType::F32)), n)
    }
}
impl From<Weight> for usize {
    fn from(weight: Weight) -> usize {
        weight.1
    }
}
impl precast::cell::Member for Weight {
    fn visit(&self, name: &str, visitor: &mut dyn FnMut(&str, precast::cell::Part<'_>)) {
        self.0.visit(name, visitor);
    }
    fn visit_mut(&mut self, name: &str, visitor: &mut dyn FnMut(&str, precast::cell::PartMut<'_>)) {
        self.0.visit_mut(name, visitor);
    }
}

impl Forward for Block {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let w = self.weight.0.tensor();
        let x = self.norm.call(&self.fc.call(x)?)?;
        let chain = x.matmul(&w)?.relu()?.matmul(&w)?;
        self.tail.call(&chain.tanh()?)
    }
}

fn net() -> Child<Block> {
    let mut rng = Rng::seed(3);
    let tail = Sequential::new(vec![Dense::new(4, 4, &mut rng).into(), Tanh.into()]);
    Child::new(Block {
        fc: Child::new(Dense::new(4, 4, &mut rng)),
        norm: Child::new(LayerNorm::new(&[4])),
        tail: tail.into(),
        weight: 4.into(),
    })
}

fn input() -> Tensor {
    Tensor::from_f64(&[0.1, -0.7, 1.3, 2.9], &[1, 4], DType::F32).unwrap()
}

/// Returns path, op and output dtype of every op except casts.
fn ran(net: &Child<Block>) -> (Tensor, Vec<(String, String, DType)>) {
    let (y, trace) = net.trace(|net| net.call(&input()));
    let ops = trace.ops.into_iter().filter(|op| op.op != Op::Cast);
    (y.unwrap(), ops.map(|op| (op.path, op.op.to_string(), op.output)).collect())
}

fn dtypes(net: &Child<Block>) -> Vec<String> {
    ran(net).1.into_iter().map(|(path, op, dtype)| format!("{path}:{op}:{dtype}")).collect()
}

const LOW: DType = DType::Bf16;

#[test]
fn o0_changes_nothing() {
    let mut net = net();
    let (before, ops) = ran(&net);
    let applied = auto_mixed_precision(&mut net, Level::O0, LOW).unwrap();
    assert_eq!(applied.changed, 0);
    assert_eq!(before.to_vec::<f32>().unwrap(), ran(&net).0.to_vec::<f32>().unwrap());
    assert!(ops.iter().all(|(_, _, dtype)| *dtype == DType::F32));
}

#[test]
fn at_o0_rules_are_reported_as_overridden() {
    let policy = Policy::new(Level::O0, LOW).unwrap().rule(Rule::kind("Dense", RunAs::Low)).unwrap();
    let explanation = policy.plan(&net()).unwrap().explain("fc").unwrap();
    assert_eq!(explanation.decision.run, Region::AsIs);
    assert!(explanation.to_string().contains("over     rule kind Dense (run: low)"), "{explanation}");
}

#[test]
fn undo_goes_backwards_or_refuses() {
    let mut net = net();
    let first = auto_mixed_precision(&mut net, Level::O2, LOW).unwrap();
    let second = auto_mixed_precision(&mut net, Level::O1, DType::F16).unwrap();
    let before = dtypes(&net);
    let message = first.clone().undo(&mut net).unwrap_err().to_string();
    assert!(message.contains("something else was applied since"), "{message}");
    assert_eq!(dtypes(&net), before);
    second.undo(&mut net).unwrap();
    first.undo(&mut net).unwrap();
    assert!(dtypes(&net).iter().all(|op| op.ends_with(":f32")));
}

#[test]
fn o1_lowers_listed_cells_and_directly_called_listed_ops() {
    let mut net = net();
    auto_mixed_precision(&mut net, Level::O1, LOW).unwrap();
    assert_eq!(
        dtypes(&net),
        [
            "fc:Linear:bf16",
            "norm:LayerNorm:f32",
            ":MatMul:bf16",
            ":Relu:bf16",
            ":MatMul:bf16",
            ":Tanh:f32",
            "tail.0:Linear:bf16",
            "tail.1:Tanh:f32"
        ]
    );
    assert_eq!(ran(&net).0.dtype(), DType::F32);
}

/// MatMul, ReLU, MatMul in one `forward`: nothing is computed in f32 between them, so nothing is cast.
#[test]
fn o1_keeps_the_low_value_within_a_chain() {
    let mut net = net();
    auto_mixed_precision(&mut net, Level::O1, LOW).unwrap();
    let x = input();
    let (_, trace) = net.trace(|net| net.call(&x).unwrap());
    let own: Vec<String> = trace.ops.iter().filter(|op| op.path.is_empty()).map(|op| op.op.to_string()).collect();
    // x and w are lowered once each; only tanh, which is not listed, reads the end of the chain in f32.
    assert_eq!(own, ["Cast", "Cast", "MatMul", "Relu", "MatMul", "Cast", "Tanh"]);
}

#[test]
fn o2_is_one_low_region_with_f32_islands() {
    let mut net = net();
    auto_mixed_precision(&mut net, Level::O2, LOW).unwrap();
    let dtypes = dtypes(&net);
    for op in &dtypes {
        let wanted = if op.starts_with("norm:") { "f32" } else { "bf16" };
        assert!(op.ends_with(wanted), "{op}");
    }
    let y = ran(&net).0;
    assert_eq!(y.dtype(), DType::F32);
    let island = net.at("norm", |slot| slot.adapter.cloned()).unwrap();
    let cast = precast::cell::Cast { inward: DType::F32, outward: LOW };
    assert_eq!(island, Some(Adapter::Cast(cast)));
}

/// Returns for each op of a run its dtype, that of its inputs, and that of its result as read by the next op.
fn o2_with_black_ops(ops: &[&str]) -> (Tensor, Vec<String>, Child<Block>) {
    let mut net = net();
    let lists = ops.iter().fold(Lists::new().full("LayerNorm"), |lists, op| lists.full_op(op).unwrap());
    custom_mixed_precision(&mut net, CustomLists::Black(lists), LOW).unwrap();
    let (y, dtypes) = (ran(&net).0, dtypes(&net));
    (y, dtypes, net)
}

#[test]
fn a_black_op_at_o2_is_f32_and_returns_the_low_dtype() {
    let (y, dtypes, net) = o2_with_black_ops(&["Tanh"]);
    let (_, without) = {
        let mut net = self::net();
        let black = CustomLists::Black(Lists::new().full("LayerNorm"));
        custom_mixed_precision(&mut net, black, LOW).unwrap();
        (ran(&net).0, self::dtypes(&net))
    };
    // The same ops in the same order; each Tanh in f32, everything else unchanged.
    assert_eq!(dtypes.len(), without.len());
    for (with, without) in dtypes.iter().zip(&without) {
        let (place, _) = without.rsplit_once(':').unwrap();
        let expected = if place.ends_with(":Tanh") { format!("{place}:f32") } else { without.clone() };
        assert_eq!(*with, expected);
    }
    assert!(dtypes.iter().any(|op| op.ends_with("Tanh:f32")) && without.iter().any(|op| op.ends_with("Tanh:bf16")));
    assert_eq!(y.dtype(), DType::F32, "O2 returns f32");

    // Its result continues in the low dtype: the f32 result, rounded once.
    let x = Tensor::from_vec(vec![0.3f32, -1.7, 0.9], &[3]).unwrap();
    let mut activation = Child::new(Tanh);
    let black = CustomLists::Black(Lists::new().full_op("Tanh").unwrap());
    let _applied = custom_mixed_precision(&mut activation, black, LOW).unwrap();
    let low = x.cast(LOW);
    let expected = low.cast(DType::F32).tanh().unwrap().cast(LOW).cast(DType::F32);
    assert_eq!(activation.call(&x).unwrap().to_f64(), expected.to_f64());

    // The plan shows it.
    let plan = Policy::with_lists(Level::O2, LOW, Lists::new().full_op("Tanh").unwrap()).unwrap().plan(&net).unwrap();
    assert_eq!(plan.decision("").unwrap().run, Region::Except(LOW));
    assert!(matches!(plan.decision("").unwrap().adapter, Some(Adapter::CastOps(..))));
    let explanation = plan.explain("").unwrap().to_string();
    assert!(explanation.contains("inputs are cast to bf16, outputs to f32; in f32: Tanh"), "{explanation}");
    let table = plan.ops(&net.trace(|net| net.call(&input())).1).unwrap();
    for row in &table.rows {
        let because = row.because.to_string();
        assert_eq!(because == "full list of ops, in code", row.op == Op::Tanh, "{because}");
    }
}

/// A black op is f32 in every region lowered by O2; a `to_float` in code applies to all ops of its cell.
#[test]
fn a_black_op_at_o2_beside_rules_and_to_float() {
    let net = |to_float: Option<DType>| {
        let mut net = net();
        net.cell_mut().tail.set_to_float(to_float).unwrap();
        net
    };
    let lists = Lists::new().full("Sequential").full_op("Tanh").unwrap();
    let policy = Policy::with_lists(Level::O2, LOW, lists).unwrap();
    let tail = |net: &mut Child<Block>, policy: &Policy| {
        let _applied = policy.apply(net).unwrap();
        let dtypes = dtypes(net).into_iter().filter(|op| op.starts_with("tail"));
        dtypes.map(|op| op.rsplit_once(':').unwrap().1.to_string()).collect::<Vec<_>>()
    };
    // tail is Sequential(Dense, Tanh).
    assert_eq!(tail(&mut net(None), &policy), ["f32", "f32"], "a black cell");
    let low = policy.clone().rule(Rule::path("tail", RunAs::Low).unwrap()).unwrap();
    assert_eq!(tail(&mut net(None), &low), ["bf16", "f32"], "a rule makes it low, and the op stays f32");
    assert_eq!(tail(&mut net(Some(LOW)), &policy), ["bf16", "bf16"], "the user asked for the cell");
    assert_eq!(tail(&mut net(Some(DType::F16)), &policy), ["f16", "f16"]);
}

#[test]
fn gradients_flow_through_a_black_op_at_o2() {
    let gradient = |ops: &[&str]| {
        let (_, _, net) = o2_with_black_ops(ops);
        let loss = net.call(&input()).unwrap().sum_all().unwrap();
        let grads = loss.backward().unwrap();
        net.named_params().into_iter().map(|(_, param)| grads.get(&param).unwrap()).collect::<Vec<_>>()
    };
    let (plain, black) = (gradient(&[]), gradient(&["Tanh"]));
    for (plain, black) in plain.iter().zip(&black) {
        assert_eq!((plain.dtype(), black.dtype()), (DType::F32, DType::F32));
        // The same sum except for rounding to bf16, which has a step of 1/128 near 1.
        let largest = plain.to_f64().into_iter().fold(0.0, |most: f64, x| most.max(x.abs()));
        let apart = plain.to_f64().into_iter().zip(black.to_f64()).map(|(a, b)| (a - b).abs());
        assert!(apart.fold(0.0, f64::max) <= 0.05 * largest + 1e-6, "{plain:?} {black:?}");
    }
}

#[test]
fn black_ops_at_o2_can_be_written_in_a_file() {
    let text = "version: 1\nlevel: O2\ndtype: bfloat16\ncells: { black: { add: [Sequential], remove: [] } }\nops: { black: { \
                add: [Tanh] } }\n";
    let policy = Policy::parse(text, "p").unwrap();
    let mut net = net();
    let _applied = policy.apply(&mut net).unwrap();
    let dtypes = dtypes(&net);
    assert!(dtypes.iter().filter(|op| op.contains(":Tanh:")).all(|op| op.ends_with(":f32")), "{dtypes:?}");
    assert!(dtypes.contains(&"fc:Linear:bf16".to_string()), "{dtypes:?}");
    let again = Policy::parse(&policy.to_yaml().unwrap(), "p").unwrap();
    assert_eq!(again.lists.ops()[&Op::Tanh].treatment, precast::precision::Treatment::Full);
}

#[test]
fn o3_is_one_low_region() {
    let mut net = net();
    auto_mixed_precision(&mut net, Level::O3, LOW).unwrap();
    assert!(dtypes(&net).iter().all(|op| op.ends_with(":bf16")));
    assert_eq!(ran(&net).0.dtype(), DType::F32);
}

#[test]
fn auto_treats_every_op_by_its_list_and_wraps_no_cell() {
    let mut net = net();
    let applied = auto_mixed_precision(&mut net, Level::Auto, LOW).unwrap();
    assert_eq!(applied.plan.wrapped(), 1, "the root's region is all there is");
    let (y, ops) = ran(&net);
    let dtypes: Vec<String> = ops.into_iter().map(|(path, op, dtype)| format!("{path}:{op}:{dtype}")).collect();
    assert_eq!(
        dtypes,
        [
            "fc:Linear:bf16",
            "norm:LayerNorm:bf16", // computed in f32 and rounded once, like every op
            ":MatMul:bf16",
            ":Relu:bf16", // on no list: as it comes
            ":MatMul:bf16",
            ":Tanh:bf16",
            "tail.0:Linear:bf16",
            "tail.1:Tanh:bf16"
        ]
    );
    assert_eq!(y.dtype(), LOW, "auto casts no output");
}

#[test]
fn auto_wraps_functions_too_and_the_innermost_wins() {
    let x = Tensor::ones(&[2, 2], DType::F32);
    let product = |x: &Tensor| x.matmul(x);
    let low = auto_mixed_precision_fn(product, Pack::DEFAULT, LOW).unwrap();
    assert_eq!(low.call((&x,)).unwrap().dtype(), LOW);
    assert_eq!(product(&x).unwrap().dtype(), DType::F32, "the region ends with the call");
    let outer = |x: &Tensor| Ok((product(x)?, low.call((x,))?));
    let outer = auto_mixed_precision_fn(outer, Pack::DEFAULT, DType::F16).unwrap();
    let (plain, inner) = outer.call((&x,)).unwrap();
    assert_eq!((plain.dtype(), inner.dtype()), (DType::F16, LOW));
    let refused = |pack, dtype| auto_mixed_precision_fn(product, pack, dtype).err().unwrap();
    assert_eq!(refused(Pack::DEFAULT, DType::F32).kind(), ErrorKind::DType);
    assert_eq!(refused("nobody", DType::F32).kind(), ErrorKind::DType, "the dtype is checked first");
    assert_eq!(refused("nobody", LOW).kind(), ErrorKind::List);
    assert_eq!(refused("mindspore-2.3", LOW).kind(), ErrorKind::Level);
}

/// `f(q, k, scale)` under the lists of several packs: torch on a CPU runs a softmax in the dtype of its input,
/// MindSpore widens it.
#[test]
fn functions_of_several_arguments_run_by_the_lists_of_a_pack() {
    let x = Tensor::ones(&[2, 2], DType::F32);
    let half = Tensor::scalar(0.5, LOW);
    let scores = |q: &Tensor, k: &Tensor, scale: &Tensor| q.matmul(k)?.mul(scale)?.softmax(-1);
    for (pack, expected) in [("torch-2.15-cpu", LOW), ("mindspore-2.4", DType::F32), (Pack::DEFAULT, LOW)] {
        let scores = auto_mixed_precision_fn(scores, pack, LOW).unwrap();
        let (result, ops) = observe::watch(|| scores.call((&x, &x, &half)));
        assert_eq!(result.unwrap().dtype(), expected, "{pack}");
        assert_eq!(ops.iter().find(|event| event.op == Op::MatMul).unwrap().output, LOW, "{pack}");
    }
}

#[test]
fn to_float_wins_at_every_level_and_inside_every_region() {
    for level in Level::ALL {
        let mut net = net();
        net.cell_mut().fc.set_to_float(Some(DType::F32)).unwrap();
        net.cell_mut().tail.set_to_float(Some(DType::F16)).unwrap();
        auto_mixed_precision(&mut net, level, LOW).unwrap();
        let dtypes = dtypes(&net);
        assert!(dtypes.contains(&"fc:Linear:f32".to_string()), "{level}: {dtypes:?}");
        assert!(dtypes.contains(&"tail.0:Linear:f16".to_string()), "{level}: {dtypes:?}");
        assert!(dtypes.contains(&"tail.1:Tanh:f16".to_string()), "{level}: {dtypes:?}");
    }
}

#[test]
fn an_inner_to_float_wins_over_an_outer_one() {
    let mut net = net();
    net.set_to_float(Some(DType::F16)).unwrap();
    net.cell_mut().norm.set_to_float(Some(DType::F32)).unwrap();
    let dtypes = dtypes(&net);
    assert!(dtypes.contains(&"fc:Linear:f16".to_string()) && dtypes.contains(&"norm:LayerNorm:f32".to_string()));
    // A root lowered only by to_float has no enclosing region, so it returns its own dtype.
    assert_eq!(ran(&net).0.dtype(), DType::F16);
}

/// The numbered list at `Policy`: each source of a decision takes precedence over all later ones.
#[test]
fn precedence_is_the_numbered_list() {
    let policy = |rules: Vec<Rule>| {
        let black = Lists::new().full("Dense").full("LayerNorm");
        let mut policy = Policy::with_lists(Level::O2, LOW, black).unwrap();
        for rule in rules {
            policy = policy.rule(rule).unwrap();
        }
        policy
    };
    let run = |net: &Child<Block>, rules: Vec<Rule>, path: &str| {
        let plan = policy(rules).plan(net).unwrap();
        let decision = plan.decision(path).unwrap();
        (decision.run, decision.because.to_string(), decision.overridden.len())
    };
    let low = Region::Fixed(LOW);
    let full = Region::Fixed(DType::F32);
    let (exact, pattern, kind) = (
        || Rule::path("fc", RunAs::Low).unwrap(),
        || Rule::path("*", RunAs::Full).unwrap(),
        || Rule::kind("Dense", RunAs::Inherit),
    );
    let mut asked = net();
    asked.cell_mut().fc.set_to_float(Some(DType::F16)).unwrap();

    // 6 the level's default, 5 the lists
    assert_eq!(run(&net(), vec![], "tail").0, low);
    assert_eq!(run(&net(), vec![], "fc"), (full, "full list, in code".into(), 0));
    // 4 the region of a decided cell above beats the lists
    let above = || Rule::path("tail", RunAs::Low).unwrap();
    assert_eq!(run(&net(), vec![above()], "tail.0"), (low, "inside tail".into(), 1));
    // 3 the first matching rule beats the region and the lists, and later rules
    let (found, because, overridden) = run(&net(), vec![kind(), pattern()], "fc");
    assert_eq!((found, overridden), (low, 2));
    assert!(because.contains("kind Dense"), "{because}");
    let (found, because, _) = run(&net(), vec![pattern(), kind()], "fc");
    assert_eq!(found, full);
    assert!(because.contains("path *"), "{because}");
    // 2 an exact path beats earlier patterns
    let (found, because, overridden) = run(&net(), vec![pattern(), exact()], "fc");
    assert_eq!((found, overridden), (low, 2));
    assert!(because.contains("path fc"), "{because}");
    // 1 to_float beats all
    let (found, because, overridden) = run(&asked, vec![pattern(), exact(), kind()], "fc");
    assert_eq!((found, overridden), (Region::Fixed(DType::F16), 4));
    assert_eq!(because, "to_float(f16)");
}

#[test]
fn rules_that_match_nothing_are_errors_with_the_nearest_name() {
    let error = |rule: Rule| {
        let policy = Policy::new(Level::O2, LOW).unwrap().rule(rule).unwrap();
        policy.plan(&net()).unwrap_err().to_string()
    };
    let message = error(Rule::path("tail.norm", RunAs::Full).unwrap());
    assert!(message.contains("matches no cell"), "{message}");
    let message = error(Rule::kind("LayerNrm", RunAs::Full));
    assert!(message.contains("did you mean `LayerNorm`"), "{message}");
    let message = error(Rule::kind("Dense", RunAs::Full).expect(3));
    assert!(message.contains("expects 3 cells and matches 2: fc, tail.0"), "{message}");
    // At most five are named.
    let message = error(Rule::path("**", RunAs::Full).unwrap().expect(1));
    assert!(message.ends_with("expects 1 cell and matches 6: (root), fc, norm, tail, tail.0, ..."), "{message}");
    assert!(!error(Rule::path("*", RunAs::Full).unwrap().expect(1)).contains("..."), "three");
    // Names from other systems, and names of parameters.
    let message = error(Rule::kind("Linear", RunAs::Full));
    assert!(message.ends_with("matches no cell (what torch calls so is `Dense` here)"), "{message}");
    let message = error(Rule::path("fc.weight", RunAs::Full).unwrap());
    assert!(message.ends_with("(`weight` is a parameter of the cell `fc`, and a rule names cells)"), "{message}");
    assert!(!error(Rule::path("fc.wait", RunAs::Full).unwrap()).contains("is a parameter of"));
    assert!(!error(Rule::path("fd.weight", RunAs::Full).unwrap()).contains("is a parameter of"));
    // A substring is not a match: `no` must not touch `norm`.
    assert!(error(Rule::path("no", RunAs::Full).unwrap()).contains("matches no cell"));
    // The name of a kind, or of a cell further inside, where a path is expected.
    let inner = Sequential::new(vec![Child::of(Dense::new(2, 2, &mut Rng::seed(1)))]);
    let net = Child::of(Sequential::new(vec![Child::of(sequential![lm_head: inner])]));
    let of_path = |path: &str| {
        let policy = Policy::named("o2").unwrap().rule(Rule::path(path, RunAs::Full).unwrap()).unwrap();
        policy.plan(&net).unwrap_err().to_string()
    };
    assert!(
        of_path("Dense").ends_with("matches no cell (it is the kind of `0.lm_head.0`: `kind: Dense`)"),
        "{}",
        of_path("Dense")
    );
    assert!(of_path("lm_head").ends_with("(did you mean `**.lm_head`, as of `0.lm_head`?)"), "{}", of_path("lm_head"));
}

#[test]
fn a_kind_on_a_list_must_exist_somewhere() {
    let mut net = net();
    let list = Lists::new().full("LayerNrom");
    let message = custom_mixed_precision(&mut net, CustomLists::Black(list), LOW).unwrap_err().to_string();
    assert!(message.contains("did you mean `LayerNorm`"), "{message}");
    // User-defined kinds work like the library's, and kinds match exactly.
    let applied = custom_mixed_precision(&mut net, CustomLists::Black(Lists::new().full("Block")), LOW).unwrap();
    assert!(matches!(applied.plan.decision("").unwrap().because, Reason::Listed(_)));
    assert!(dtypes(&net).iter().all(|op| op.ends_with(":f32")));
}

#[test]
fn checks_come_in_order_and_touch_nothing() {
    let mut net = net();
    auto_mixed_precision(&mut net, Level::O2, LOW).unwrap();
    let before = dtypes(&net);
    let error = auto_mixed_precision(&mut net, "O9", DType::I64).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::DType, "the dtype is checked before the level");
    assert_eq!(auto_mixed_precision(&mut net, "O9", DType::F16).unwrap_err().kind(), ErrorKind::Level);
    assert_eq!(auto_mixed_precision(&mut net, "O0", DType::F32).unwrap_err().kind(), ErrorKind::DType);
    let white = Lists::new().low_op("MatMul").unwrap();
    assert_eq!(custom_mixed_precision(&mut net, CustomLists::Black(white), LOW).unwrap_err().kind(), ErrorKind::List);
    assert_eq!(dtypes(&net), before);
}

#[test]
fn a_plan_fits_only_its_network() {
    let mut other = Child::new(Dense::new(2, 2, &mut Rng::seed(0)));
    let plan = Policy::new(Level::O2, LOW).unwrap().plan(&net()).unwrap();
    let message = plan.apply(&mut other).unwrap_err().to_string();
    assert!(message.contains("made for another network"), "{message}");
    assert!(other.adapter().is_none());
}

#[test]
fn wrapping_renames_no_parameter() {
    let mut net = net();
    let names = |net: &Child<Block>| net.named_params().into_iter().map(|(path, _)| path).collect::<Vec<_>>();
    let before = names(&net);
    auto_mixed_precision(&mut net, Level::O2, LOW).unwrap();
    assert_eq!(before, names(&net));
    assert!(before.contains(&"fc.weight".to_string()) && before.contains(&"tail.0.bias".to_string()), "{before:?}");
}

#[test]
fn an_error_names_the_cell_and_leaves_no_region_behind() {
    let mut net = net();
    auto_mixed_precision(&mut net, Level::O2, LOW).unwrap();
    let wrong = Tensor::ones(&[1, 5], DType::F32);
    let error = net.call(&wrong).unwrap_err();
    assert_eq!(error.cell(), Some("fc"));
    assert!(error.to_string().starts_with("in cell `fc`: Linear: "), "{error}");
    assert!(precast::precision::current().is_none());
    assert_eq!(wrong.tanh().unwrap().dtype(), DType::F32);
}

/// The op table has the dtype of every op in the trace, and the reason given by the level, the lists and `to_float`.
#[test]
fn a_plan_tells_op_by_op_why() {
    let rows = |level: Level, to_float: Option<DType>| {
        let mut net = net();
        net.cell_mut().tail.set_to_float(to_float).unwrap();
        let plan = auto_mixed_precision(&mut net, level, LOW).unwrap().plan;
        let (_, trace) = net.trace(|net| net.call(&input()).unwrap());
        let table = plan.ops(&trace).unwrap();
        let calls: usize = table.rows.iter().map(|row| row.calls).sum();
        assert_eq!(calls, 8, "every op of the forward pass: {table}");
        let text = serde_json::to_string(&table).unwrap();
        assert_eq!(serde_json::from_str::<precast::plan::OpsTable>(&text).unwrap(), table);
        (
            table.rows.iter().map(|r| format!("{}:{} {}: {}", r.path, r.op, r.output, r.because)).collect::<Vec<_>>(),
            table,
        )
    };
    let (auto, table) = rows(Level::Auto, Some(DType::F16));
    let white = "low list of ops, precast-1";
    assert_eq!(
        auto,
        [
            &format!("fc:Linear bf16: {white}: a product and a bias with one rounding"),
            "norm:LayerNorm bf16: on no list: takes its inputs as they come",
            // The first product reads f32, the second bf16: both are cast to the same, so they share a row.
            &format!(":MatMul bf16: {white}: a product; its sums are float32"),
            ":Relu bf16: on no list: takes its inputs as they come",
            ":Tanh bf16: on no list: takes its inputs as they come",
            "tail.0:Linear f16: region of tail",
            "tail.1:Tanh f16: region of tail",
        ]
    );
    assert_eq!(table.rows[2].calls, 2);
    insta::assert_snapshot!("ops_table", table.to_string());

    assert!(!table.to_string().ends_with('\n'));

    let (o1, _) = rows(Level::O1, None);
    assert_eq!(o1[0], "fc:Linear bf16: region of fc");
    assert_eq!(o1[1], "norm:LayerNorm f32: on no list: takes its inputs as they come");
    assert_eq!(o1[2..4], [format!(":MatMul bf16: {white}"), format!(":Relu bf16: {white}")]);
    let (o2, _) = rows(Level::O2, None);
    assert_eq!(o2[0], "fc:Linear bf16: region of (root)");
    assert_eq!(o2[1], "norm:LayerNorm f32: region of norm");
    let (o0, _) = rows(Level::O0, None);
    assert!(o0.iter().all(|row| row.ends_with("f32: nothing is cast")), "{o0:?}");
}

#[test]
fn ops_of_another_network_are_refused() {
    let plan = Policy::new(Level::Auto, LOW).unwrap().plan(&Child::new(Dense::new(4, 4, &mut Rng::seed(0)))).unwrap();
    let (_, trace) = net().trace(|net| net.call(&input()).unwrap());
    assert_eq!(plan.ops(&trace).unwrap_err().kind(), ErrorKind::Path);
}

/// The cell that decided is named, however deep it is.
#[test]
fn what_is_inside_names_the_cell_that_decided() {
    let leaf = || Dense::new(4, 4, &mut Rng::seed(1));
    let net = Child::of(sequential![leaf(), sequential![leaf(), sequential![leaf(), sequential![leaf()]]]]);
    let policy = Policy::new(Level::O2, LOW).unwrap().rule(Rule::path("1", RunAs::Full).unwrap()).unwrap();
    let plan = policy.plan(&net).unwrap();
    let inside: Vec<&str> =
        plan.decisions.iter().filter(|d| d.because == Reason::Inside("1".into())).map(|d| d.path.as_str()).collect();
    assert_eq!(inside, ["1.0", "1.1", "1.1.0", "1.1.1", "1.1.1.0"]);
}

/// Reasons of more than forty characters appear once in a plan.
#[test]
fn long_reasons_are_said_once() {
    let net = Child::of(sequential![Tanh, Tanh, Tanh]);
    let long = "the third run of May overflowed in this activation";
    let shown = |because: &str| {
        let rule = Rule::kind("Tanh", RunAs::Full).because(because);
        Policy::new(Level::O2, LOW).unwrap().rule(rule).unwrap().plan(&net).unwrap().to_string()
    };
    let plan = shown(long);
    assert_eq!((plan.matches(long).count(), plan.matches(", as above").count()), (1, 2), "{plan}");
    for (words, once) in [(&long[..41], true), (&long[..40], false), ("short", false)] {
        let plan = shown(words);
        let expected = if once { (1, 2) } else { (3, 0) };
        assert_eq!((plan.matches(words).count(), plan.matches(", as above").count()), expected, "{plan}");
    }
    // The same for an entry of a list.
    let entry = Entry::new(Treatment::Full, Origin::Code).because(long);
    let mut policy = Policy::new(Level::O2, LOW).unwrap();
    policy.lists.put_cell("Tanh".into(), entry);
    let plan = policy.plan(&net).unwrap().to_string();
    assert_eq!((plan.matches(long).count(), plan.matches(", as above").count()), (1, 2), "{plan}");
}

#[test]
fn plans_are_values() {
    let net = net();
    let plan = |level| Policy::new(level, LOW).unwrap().plan(&net).unwrap();
    let text = serde_json::to_string(&plan(Level::O1)).unwrap();
    assert_eq!(serde_json::from_str::<precast::Plan>(&text).unwrap(), plan(Level::O1));
    // The treatment of unlisted ops is written only if it applies.
    let written = |text: &str| serde_json::from_str::<serde_json::Value>(text).unwrap().get("unlisted").is_some();
    assert!(!written(&text));
    let mut other = plan(Level::O1);
    other.unlisted = Treatment::Full;
    let text = serde_json::to_string(&other).unwrap();
    assert_eq!((written(&text), serde_json::from_str::<precast::Plan>(&text).unwrap()), (true, other));
    assert!(plan(Level::O2).diff(&plan(Level::O2)).is_empty());
    let diff = plan(Level::O2).diff(&plan(Level::O3));
    let changed: Vec<&str> = diff.changes.iter().map(|change| change.path.as_str()).collect();
    assert_eq!(changed, ["norm"]);
    insta::assert_snapshot!("plan_tree", plan(Level::O2).to_string());
    insta::assert_snapshot!("plan_diff", diff.to_string());
    insta::assert_snapshot!("explanation", plan(Level::O2).explain("norm").unwrap().to_string());
    assert!(plan(Level::O2).explain("nrom").unwrap_err().to_string().contains("did you mean `norm`"));
}

/// An f32 island keeps its 16-bit input for the backward pass, and widens it again there.
#[test]
fn an_island_keeps_its_input_in_16_bits() {
    let kept = |level: Level| {
        let mut net = Child::of(sequential![BatchNorm2d::new(4), ReLU, BatchNorm2d::new(4)]);
        auto_mixed_precision(&mut net, level, LOW).unwrap();
        net.set_train(true);
        net.call(&Tensor::ones(&[8, 4, 16, 16], DType::F32).requires_grad()).unwrap().sum_all().unwrap().tape_bytes()
    };
    let (full, low) = (kept(Level::O0), kept(Level::O2));
    assert!(low as f64 <= 0.52 * full as f64, "{low} of {full} bytes");
}

/// The last layer of a regression: at O2, an f32 one returns f32, unless its rule says otherwise, or the pack is
/// MindSpore's, whose cells return the enclosing dtype.
#[test]
fn outputs_stay_f32_where_a_rule_says_so() {
    let of = |policy: Policy, run| {
        let rng = &mut Rng::seed(5);
        let mut net = Child::of(sequential![Dense::new(4, 8, rng), Dense::new(8, 3, rng)]);
        let policy = policy.rule(Rule::path("1", run).unwrap()).unwrap();
        let plan = policy.plan(&net).unwrap();
        assert!(plan.apply(&mut net).is_ok());
        let (y, trace) = net.trace(|net| net.call(&Tensor::ones(&[2, 4], DType::F32)));
        plan.check(&trace).unwrap();
        (plan.decision("1").unwrap().effect(), y.unwrap())
    };
    let rounded = |y: &Tensor| y.cast(DType::Bf16).cast(DType::F32).to_vec::<f32>().unwrap();
    let ours = || Policy::new(Level::O2, DType::Bf16).unwrap();
    let theirs = || Policy::from_pack(Level::O2, DType::Bf16, Pack::named("mindspore-2.10").unwrap()).unwrap();
    let (effect, full) = of(ours(), RunAs::FullInside);
    assert_eq!(effect, "runs f32, returns bf16");
    assert_eq!(full.to_vec::<f32>().unwrap(), rounded(&full));
    assert_eq!(of(theirs(), RunAs::Full).0, "runs f32, returns bf16");
    assert_eq!(of(theirs(), RunAs::FullOut).0, "runs f32");
    let (effect, out) = of(ours(), RunAs::Full);
    assert_eq!(effect, "runs f32");
    assert_eq!(of(ours(), RunAs::FullOut).1.to_vec::<f32>(), out.to_vec::<f32>());
    assert_ne!(out.to_vec::<f32>().unwrap(), rounded(&out), "digits that bf16 has not");
    assert_eq!(rounded(&out), full.to_vec::<f32>().unwrap(), "the same numbers before they are rounded");
}
