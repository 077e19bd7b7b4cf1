//! Cells inside of a network, called alone: in the precision that they have within it.

use precast::{io::models, prelude::*};

#[derive(Cell, Debug)]
#[cell(new)]
struct Net {
    encoder: Child<Sequential>,
    heads: Vec<Child<Dense>>,
}

impl Forward for Net {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        self.heads[1].call(&self.encoder.call(x)?)
    }
}

fn net(level: &str) -> Child<Net> {
    let rng = &mut Rng::seed(3);
    let encoder = sequential![Dense::new(4, 8, rng), LayerNorm::new(&[8]), Tanh];
    let heads = (0..2).map(|_| Dense::new(8, 2, rng).into()).collect();
    let mut net = Child::new(Net { encoder: encoder.into(), heads });
    Policy::named(level).unwrap().apply(&mut net).unwrap();
    net
}

fn bits(y: &Tensor) -> (DType, Vec<f64>) {
    (y.dtype(), y.to_f64())
}

#[test]
fn a_part_runs_as_by_hand_within_every_slot_around_it() {
    let x = Tensor::randn(&[3, 4], &mut Rng::seed(1)).unwrap();
    for level in ["o0", "o1-bf16", "o2", "o2-bf16", "o3-bf16", "auto-bf16"] {
        let net = net(level);
        let h = net.with(&x, |net, x| net.encoder.call(&x)).unwrap();
        assert_eq!(bits(&net.part("encoder").unwrap().call(&x).unwrap()), bits(&h), "{level}");
        let first = net.with(&x, |net, x| net.encoder.with(&x, |encoder, x| encoder[0].call(&x))).unwrap();
        assert_eq!(bits(&net.part("encoder.0").unwrap().call(&x).unwrap()), bits(&first), "{level}");
        let y = net.with(&h, |net, h| net.heads[1].call(&h)).unwrap();
        let part = net.part("heads.1").unwrap();
        assert_eq!(bits(&part.call(&h).unwrap()), bits(&y), "{level}");
        assert_eq!(bits(&part.call_many(std::slice::from_ref(&h)).unwrap()[0]), bits(&y), "{level}");
        assert_eq!(bits(&net.part("").unwrap().call(&x).unwrap()), bits(&net.call(&x).unwrap()), "{level}");
        assert_eq!(
            bits(&net.call(&x).unwrap()),
            bits(&y),
            "{level}: in f32 between the parts, as the network in its own dtype"
        );
    }
}

#[test]
fn a_part_has_gradients_listeners_and_places_of_errors() {
    let mut net = net("o2-bf16");
    let x = Tensor::randn(&[3, 4], &mut Rng::seed(1)).unwrap();
    let params = net.named_params();
    let grads = |y: Tensor| {
        let grads = y.sum_all().unwrap().backward().unwrap();
        params.iter().map(|(_, param)| grads.get(param).map(|grad| grad.to_f64())).collect::<Vec<_>>()
    };
    let by_hand = grads(net.with(&x, |net, x| net.encoder.call(&x)).unwrap());
    assert_eq!(grads(net.part("encoder").unwrap().call(&x).unwrap()), by_hand);
    assert_eq!(by_hand.iter().filter(|grad| grad.is_some()).count(), 4, "none for the heads");

    let wrong = net.part("encoder").unwrap().call(&Tensor::ones(&[3, 5], DType::F32)).unwrap_err();
    assert_eq!(wrong.cell(), Some("encoder.0"));
    let missing = net.part("encodr").unwrap_err();
    assert_eq!(missing.kind(), ErrorKind::Path);
    assert!(missing.to_string().contains("did you mean `encoder`"), "{missing}");

    net.cell_mut().encoder.set_recompute(true);
    assert_eq!(grads(net.part("encoder").unwrap().call(&x).unwrap()), by_hand);
}

const NAMED: &str = "
version: 1
name: named
net:
  kind: Sequential
  cells:
  - {name: encoder, kind: Sequential, cells: [{kind: Dense, in_features: 4, out_features: 8}, {kind: ReLU}]}
  - {kind: ReLU}
  - {name: head, to_float: float32, cell: {kind: Dense, in_features: 8, out_features: 2}}
";

#[test]
fn cells_of_a_row_have_names_in_paths_rules_files_and_code() {
    let read = models::parse(NAMED, "named.yaml", 3).unwrap();
    let paths = |net: &Child| net.named_params().into_iter().map(|(path, _)| path).collect::<Vec<_>>();
    assert_eq!(paths(&read), ["encoder.0.weight", "encoder.0.bias", "head.weight", "head.bias"]);
    let text = models::to_yaml(&read).unwrap();
    assert!(text.contains("name: head"), "{text}");
    let again = models::parse(&text, "again.yaml", 3).unwrap();
    assert_eq!(paths(&again), paths(&read));
    assert_eq!(models::to_yaml(&again).unwrap(), text);

    let rng = &mut Rng::seed(1);
    let mut net = Child::of(sequential![encoder: Dense::new(4, 8, rng), act: ReLU, head: Dense::new(8, 2, rng)]);
    let policy = "{version: 1, level: O3, dtype: bfloat16, rules: [{path: head, run: float32}]}";
    let policy = Policy::parse(policy, "policy.yaml").unwrap();
    assert_eq!(policy.plan(&net).unwrap().decision("head").unwrap().run.to_string(), "f32");
    policy.apply(&mut net).unwrap();
    assert_eq!(net.part("encoder").unwrap().call(&Tensor::ones(&[1, 4], DType::F32)).unwrap().shape(), [1, 8]);
    assert_eq!(paths(&net.deep_copy().unwrap()), paths(&net));
}

#[test]
fn names_of_cells_are_refused_with_the_reason() {
    let mut row = Sequential::default();
    row.push_named("head", ReLU).unwrap();
    for (name, why) in [
        ("head", "two cells have the name `head`"),
        ("3", "the name `3` of a cell; allowed: letters"),
        ("", "the name `` of a cell"),
        ("a.b", "the name `a.b` of a cell"),
        ("a*", "the name `a*` of a cell"),
    ] {
        let error = row.push_named(name, ReLU).unwrap_err();
        assert!(error.kind() == ErrorKind::Path && error.to_string().contains(why), "{error}");
    }
    assert_eq!(row.len(), 1, "nothing was added");
    let twice = NAMED.replace("encoder", "head");
    let error = models::parse(&twice, "twice.yaml", 0).unwrap_err();
    assert!(error.to_string().contains("two cells have the name `head`"), "{error}");
    assert_eq!(error.location().unwrap().file, "twice.yaml");
}

/// The network of a file is `dyn Cell` all the way down.
#[test]
fn a_cell_of_a_row_is_replaced_by_its_path() {
    let rng = &mut Rng::seed(5);
    let head = sequential![norm: LayerNorm::new(&[8]), out: Dense::new(8, 2, rng)];
    let mut net = Child::new(sequential![encoder: Dense::new(4, 8, rng), head: head]);
    let policy = Policy::named("o1-bf16").unwrap();
    policy.apply(&mut net).unwrap();
    let x = Tensor::randn(&[3, 4], rng).unwrap();
    let before = net.part("encoder").unwrap().call(&x).unwrap();
    let old = net.part_mut("head.out", |out| std::mem::replace(out, Child::from(Dense::new(8, 5, rng)))).unwrap();
    assert_eq!(old.named_params()[0].1.shape(), [2, 8]);
    policy.apply(&mut net).unwrap();
    assert_eq!(net.call(&x).unwrap().shape(), [3, 5]);
    assert!(net.at("head.out", |slot| slot.adapter.is_some()).unwrap());
    assert_eq!(bits(&net.part("encoder").unwrap().call(&x).unwrap()), bits(&before));
    // A field has its type, and a wrong path its nearest.
    let mut typed = self::net("o2");
    for (path, words) in
        [("encoder", "`encoder` is in no Sequential"), ("encoder.3", "did you mean"), ("", "the network itself")]
    {
        let error = typed.part_mut(path, |_| ()).unwrap_err();
        assert!(error.kind() == ErrorKind::Path && error.to_string().contains(words), "{error}");
    }
    typed.part_mut("encoder.1", |norm| *norm = Child::from(ReLU)).unwrap();
    assert_eq!(typed.cell().encoder.cell()[1].cell().kind(), "ReLU");
}
