//! Rules about the operands of products: read, decided, explained, compared, refused.

use precast_policy::{
    ErrorKind, Outline, OutlinedCell, Plan, Policy, Result,
    host::{Outlined, Wrap},
    plan::Exporter,
    policy::Operands,
};

/// A network with cells of several kinds: n and k of each weight are known.
fn net() -> Outline {
    Outline::new([
        OutlinedCell::new("", "Model"),
        OutlinedCell::new("embed", "Embedding").weight(&[1000, 64]),
        OutlinedCell::new("conv", "Conv2d").weight(&[32, 3, 3, 3]).weight(&[32]),
        OutlinedCell::new("up", "Conv2dTranspose").weight(&[48, 16, 2, 2]),
        OutlinedCell::new("block", "MyBlock"),
        OutlinedCell::new("block.attention", "MultiheadAttention").weight(&[192, 64]).weight(&[64, 64]),
        OutlinedCell::new("block.norm", "LayerNorm").weight(&[8, 8]),
        OutlinedCell::new("block.fc", "Dense").weight(&[256, 64]).weight(&[256]),
        OutlinedCell::new("block.act", "ReLU"),
        OutlinedCell::new("head", "Dense").weight(&[10, 64]),
    ])
    .unwrap()
}

fn policy(level: &str, rules: &str) -> Result<Policy> {
    Policy::parse(&format!("version: 1\nlevel: {level}\ndtype: bfloat16\nrules: [{rules}]\n"), "p.yaml")
}

fn plan(rules: &str) -> Plan {
    policy("O2", rules).unwrap().plan(&net()).unwrap()
}

/// Returns the cells with quantized operands, in order.
fn quantized(plan: &Plan) -> Vec<String> {
    let words = |of: &precast_policy::plan::Decision| Some(format!("{} {}", of.path, of.quantized()?));
    plan.decisions.iter().filter_map(words).collect()
}

#[test]
fn cells_with_products_are_quantized() {
    let all = ["conv int8", "up int8", "block.attention int8", "block.fc int8", "head int8"];
    assert_eq!(quantized(&plan("{ path: '**', operands: int8 }")), all);
    // Blocks of 32 do not divide the 27 numbers that the convolution sums, nor the 10 outputs of the head.
    let blocks = plan("{ path: '**', operands: mxfp8 }");
    assert_eq!(quantized(&blocks), ["up mxfp8", "block.attention mxfp8", "block.fc mxfp8"]);
    for (path, words) in [("conv", "k 27 is not a multiple of 32"), ("head", "n 10 is not a multiple of 32")] {
        assert_eq!(blocks.decision(path).unwrap().operands.as_ref().unwrap().says.left_out.as_deref(), Some(words));
    }
    // Those inside a cell follow it.
    assert_eq!(quantized(&plan("{ path: block, operands: rowwise }")), ["block.attention rowwise", "block.fc rowwise"]);
    // An exact path wins, and then the first rule.
    let rules = "{ kind: Dense, operands: int8 }, { path: '**', operands: mxfp8 }, { path: head, operands: none }";
    assert_eq!(quantized(&plan(rules)), ["up mxfp8", "block.attention mxfp8", "block.fc int8"]);
    assert!(quantized(&policy("O0", rules).unwrap().plan(&net()).unwrap()).is_empty());
}

#[test]
fn sizes_below_the_least_are_not_quantized() {
    // A convolution sums over its inputs and its kernel; a transposed one has its inputs first.
    let plan = plan("{ path: '**', operands: mxfp8, min_k: 64, min_n: 16 }");
    assert_eq!(quantized(&plan), ["up mxfp8", "block.attention mxfp8", "block.fc mxfp8"]);
    for (path, words) in [("conv", "k 27 is below min_k 64"), ("head", "n 10 is below min_n 16")] {
        let decision = plan.decision(path).unwrap();
        assert_eq!(decision.operands.as_ref().unwrap().says.left_out.as_deref(), Some(words));
        assert_eq!(decision.effect(), "runs bf16");
    }
    let at = |rules: &str| policy("O2", rules).unwrap().plan(&net()).unwrap();
    let just = at("{ path: up, operands: mxfp8, min_k: 192, min_n: 16 }");
    assert_eq!(quantized(&just), ["up mxfp8"]);
    // Sizes that are not known cannot be compared.
    let unknown = Outline::new([OutlinedCell::new("", "Model"), OutlinedCell::new("fc", "Dense").matrices()]).unwrap();
    assert_eq!(
        quantized(&policy("O2", "{ path: fc, operands: mxfp8 }").unwrap().plan(&unknown).unwrap()),
        ["fc mxfp8"]
    );
    let error = policy("O2", "{ path: fc, operands: mxfp8, min_k: 1 }").unwrap().plan(&unknown).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Policy);
    assert!(error.to_string().contains("the sizes of `fc` are not known"), "{error}");
}

#[test]
fn a_plan_shows_and_explains_the_operands() {
    let rules = "{ path: block.*, operands: mxfp8, because: wide }, { path: head, run: float32, because: logits }, \
                 { path: '**', operands: tensorwise, min_n: 16 }";
    let plan = plan(rules);
    let text = plan.to_string();
    let line = |name: &str| text.lines().find(|line| line.contains(name)).unwrap().to_string();
    assert!(line("fc  ").contains("runs bf16, operands mxfp8"), "{text}");
    assert!(line("fc  ").ends_with("level O2; rule path block.* (operands: mxfp8), p.yaml:4:9: wide"), "{text}");
    assert!(line("─ head").contains("logits; not quantized, n 10 is below min_n 16: rule path ** (operands"), "{text}");
    let explained = plan.explain("block.fc").unwrap().to_string();
    for words in [
        "\n  effect   runs bf16, operands mxfp8\n",
        "\n  operands rule path block.* (operands: mxfp8), p.yaml:4:9: wide\n",
        "\n           output: x e4m3 by blocks of 1 x 32, e8m0; w e4m3 by blocks of 1 x 32, e8m0\n",
    ] {
        assert!(explained.contains(words), "{explained}");
    }
    let explained = plan.explain("conv").unwrap().to_string();
    assert!(explained.contains("gradient of x: g e5m2 by tensor, f32; w e4m3 by tensor, f32"), "{explained}");
    // As data, and back.
    let json = serde_json::to_string(&plan).unwrap();
    assert!(json.contains(r#""operands":"mxfp8""#), "{json}");
    assert_eq!(serde_json::from_str::<Plan>(&json).unwrap(), plan);
}

#[test]
fn plans_with_other_operands_differ() {
    let (before, after) = (plan("{ path: '**', operands: mxfp8 }"), plan("{ path: '*.fc', operands: mxfp8 }"));
    let diff = before.diff(&after);
    let paths: Vec<&str> = diff.changes.iter().map(|change| &*change.path).collect();
    assert_eq!(paths, ["up", "block.attention"]);
    assert!(
        diff.to_string().contains("- runs bf16, operands mxfp8: level O2; rule path ** (operands: mxfp8), p.yaml:"),
        "{diff}"
    );
    // The same operands by another rule are no difference.
    assert!(before.diff(&plan("{ path: '**', operands: mxfp8, because: a test }")).is_empty());
    let exported = before.export(Exporter::Torch).cannot_say;
    assert!(exported.contains(&"3 cells whose products have quantized operands: they run unquantized".to_string()));
}

/// Each library has its name for a recipe, and says which cells run without one.
#[test]
fn libraries_get_the_recipes_that_they_have() {
    for (recipe, torchao, engine, qwix) in [
        ("tensorwise", Some("tensorwise"), Some("Float8CurrentScaling"), Some("tensorwise")),
        ("rowwise-hp-grad", Some("rowwise_with_gw_hp"), None, None),
        ("mxfp8", None, Some("MXFP8BlockScaling"), Some("mxfp8")),
        ("nvfp4", None, Some("NVFP4BlockScaling"), Some("nvfp4")),
        ("int8", Some("int8"), None, Some("int8")),
    ] {
        let plan = plan(&format!("{{ path: '**', operands: {recipe} }}"));
        let cells = quantized(&plan);
        let dense = cells.iter().filter(|cell| cell.starts_with("block.fc") || cell.starts_with("head")).count();
        for (to, name) in [(Exporter::Torchao, torchao), (Exporter::TransformerEngine, engine), (Exporter::Qwix, qwix)]
        {
            let exported = plan.export(to);
            let path = if to == Exporter::Qwix { "block/fc" } else { "block.fc" };
            let line = format!("\"{path}\": \"{}\"", name.unwrap_or(recipe));
            assert_eq!(exported.text.contains(&line), name.is_some(), "{to}, {recipe}: {}", exported.text);
            // Convolutions and attention have no name in these libraries.
            let left = cells.len() - if name.is_some() { dense } else { 0 };
            let words = format!("{left} cells whose products have quantized operands: they run unquantized");
            assert!(exported.cannot_say.contains(&words), "{to}, {recipe}: {:?}", exported.cannot_say);
        }
    }
}

#[test]
fn formats_may_be_given_by_direction() {
    let table = "{ forward: e4m3, backward: e5m2, scale: rows, rounding: stochastic }";
    let of_head = plan(&format!("{{ path: head, operands: {table} }}")).decision("head").unwrap().clone();
    assert_eq!(of_head.effect(), "runs bf16, operands e4m3 and e5m2 by rows, stochastic");
    let operands = of_head.quantized().unwrap();
    assert_eq!(operands.to_string(), table);
    let recipe = operands.recipe().unwrap();
    assert_eq!(recipe.output.right.to_string(), "e4m3 by rows, powers of two");
    assert_eq!(recipe.grad_weight.unwrap().left.to_string(), "e5m2 by rows, powers of two, stochastic");
    let nearest = plan("{ path: head, operands: { forward: int8, backward: int8, scale: tensor } }");
    assert_eq!(nearest.decision("head").unwrap().effect(), "runs bf16, operands int8 by tensor");
}

#[test]
fn rules_that_reach_no_products_are_errors() {
    for (rules, words) in [
        ("{ path: '**.norm', operands: mxfp8 }", "p.yaml:4:9: the rule for path **.norm is about operands of products"),
        ("{ kind: Embedding, operands: int8 }", "decides for no cell that has any: dense layers, convolutions"),
        ("{ path: bloc, operands: mxfp8 }", "the rule for path bloc matches no cell (did you mean `block`?)"),
        (
            "{ path: '**', operands: mxfp8 }, { kind: Dense, operands: int8 }",
            "the rule for kind Dense decides nothing, because the first rule that matches a cell decides",
        ),
        // Each cell in it has a rule of its own.
        (
            "{ path: block, operands: int8 }, { path: block.*, operands: mxfp8 }",
            "the rule for path block is about operands of products",
        ),
    ] {
        let error = policy("O2", rules).unwrap().plan(&net()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Policy);
        assert!(error.to_string().contains(words), "{error}");
    }
}

#[test]
fn unknown_words_are_named() {
    for (operands, words) in [
        ("mxfp9", "unknown recipe of `operands` `mxfp9` (did you mean `mxfp8`?); allowed: tensorwise, rowwise"),
        (
            "{ forward: e4m4, backward: e5m2, scale: rows }",
            "unknown format for `forward` `e4m4` (did you mean `e4m3`?)",
        ),
        ("{ forward: e8m0, backward: e5m2, scale: rows }", "unknown format for `forward` `e8m0`"),
        ("{ forward: e4m3, backward: e5m2, scale: row }", "unknown word for `scale` `row` (did you mean `rows`?)"),
        ("{ forward: e4m3, backward: e5m2, scale: mx, rounding: up }", "allowed: nearest, stochastic"),
        ("{ forward: e4m3, backward: e5m2, scales: mx }", "unknown key `scales` (did you mean `scale`?)"),
        ("{ forward: e4m3 }", "backward"),
        ("[mxfp8]", "expected a recipe, such as mxfp8, or { forward: e4m3, backward: e5m2, scale: rows }"),
    ] {
        let error = policy("O2", &format!("{{ path: head, operands: {operands} }}")).unwrap_err().to_string();
        assert!(error.starts_with("p.yaml:4:") && error.contains(words), "{error}");
    }
    let error = policy("O2", "{ path: head, run: low, min_k: 5 }").unwrap_err().to_string();
    assert!(error.contains("p.yaml:4:40: `min_k` is the least size for `operands`, which the rule lacks"), "{error}");
    assert!("mxfp8".parse::<Operands>().is_ok() && Operands::NONE.recipe().is_none());
}

/// A network that runs no products with quantized operands, and one that does.
struct Runs<const QUANTIZES: bool>;

impl<const QUANTIZES: bool> Outlined for Runs<QUANTIZES> {
    fn outline(&self) -> Outline {
        net()
    }
}

impl<const QUANTIZES: bool> Wrap for Runs<QUANTIZES> {
    type Applied = usize;
    const QUANTIZES: bool = QUANTIZES;

    fn wrap(&mut self, plan: Plan) -> Result<usize> {
        Ok(quantized(&plan).len())
    }
}

#[test]
fn a_network_that_cannot_run_them_refuses_the_plan() {
    let policy = policy("O2", "{ path: '**', operands: mxfp8 }").unwrap();
    for error in [
        policy.apply(&mut Runs::<false>).unwrap_err(),
        policy.plan(&net()).unwrap().apply(&mut Runs::<false>).unwrap_err(),
    ] {
        assert_eq!(error.kind(), ErrorKind::Unsupported);
        assert!(error.to_string().contains("the plan quantizes operands of `up`"), "{error}");
    }
    let kept = self::policy("O2", "{ path: '**', kept: int8-rows }").unwrap().apply(&mut Runs::<false>).unwrap_err();
    assert!(kept.to_string().contains("the plan quantizes kept activations of"), "{kept}");
    assert_eq!(policy.apply(&mut Runs::<true>).unwrap(), 3);
    assert_eq!(Policy::named("o2").unwrap().apply(&mut Runs::<false>).unwrap(), 0);
}
