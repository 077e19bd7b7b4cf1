//! Derived cells: their children, parameters and debug output.

use std::{
    collections::{BTreeMap, HashMap},
    marker::PhantomData,
    sync::Mutex,
};

use precast::{
    ErrorKind,
    cell::{Member, Part, PartMut},
    io::models,
    prelude::*,
};

fn dense() -> Child<Dense> {
    Child::new(DenseSpec::new(1, 1).bias(false).build(&mut Rng::seed(0)).unwrap())
}

fn param() -> Param {
    Param::new(Tensor::ones(&[1], DType::F32))
}

/// Returns the paths of parameters, and of cells in angle brackets, in the order of `visit`.
fn paths(net: impl Cell) -> Vec<String> {
    let mut net = Child::new(net);
    let mut all = vec![];
    net.slot().cell.visit(&mut |name, node| match node {
        Part::Cell(_) => all.push(format!("<{name}>")),
        Part::Param(_) => all.push(name.to_string()),
        _ => unreachable!(),
    });
    let mut again = vec![];
    net.slot_mut().cell.visit_mut(&mut |name, node| match node {
        PartMut::Cell(_) => again.push(format!("<{name}>")),
        PartMut::Param(_) => again.push(name.to_string()),
        _ => unreachable!(),
    });
    assert_eq!(all, again);
    all
}

#[derive(Cell, Debug)]
#[cell(new)]
pub struct Constructed<C> {
    pub head: Child<C>,
    any: Child,
    width: usize,
    norms: Vec<Child<LayerNorm>>,
    r#type: Child<Dense>,
}

impl<C: Cell> Forward for Constructed<C> {}

#[test]
fn constructor_takes_fields_in_order_and_cells_for_slots() {
    let net = Constructed::<Dense>::new(
        dense(),
        ReLU,
        3,
        vec![LayerNorm::new(&[1]).into()],
        DenseSpec::new(1, 1).build(&mut Rng::seed(0)).unwrap(),
    );
    assert_eq!((net.width, net.any.cell().kind(), net.norms.len()), (3, "ReLU", 1));
    assert_eq!(paths(net), ["<head>", "<any>", "<norms.0>", "<type>"]);
    // A slot keeps what it asks for.
    let asking = dense().to_float(DType::F32).unwrap();
    assert_eq!(Constructed::<Dense>::new(asking, ReLU, 0, vec![], dense()).head.requested(), Some(DType::F32));
}

#[derive(Clone, Copy, Debug)]
enum Mode {
    Fast,
}

#[derive(Cell, Debug)]
struct Everything {
    fc: Child<Dense>,
    any: Child,
    weight: Param,
    classes: usize,
    list: Vec<Child<Dense>>,
    none: Option<Child<Dense>>,
    some: Option<Param>,
    mode: Mode,
    pair: (Child<Dense>, Param),
    array: [Child<Dense>; 2],
    map: BTreeMap<String, Vec<Param>>,
    boxed: Box<Child<Dense>>,
    r#type: Child<Dense>,
    counts: Mutex<HashMap<String, Vec<usize>>>,
    #[cell(data)]
    constant: Tensor,
    function: fn(&Tensor) -> Tensor,
}

impl Forward for Everything {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        match self.mode {
            Mode::Fast => self.fc.call(x),
        }
    }
}

#[test]
fn children_and_parameters_are_shown_in_the_order_of_the_fields() {
    let cell = Everything {
        fc: dense(),
        any: ReLU.into(),
        weight: param(),
        classes: 3,
        list: vec![dense(), dense()],
        none: None,
        some: Some(param()),
        mode: Mode::Fast,
        pair: (dense(), param()),
        array: [dense(), dense()],
        map: [("b".to_string(), vec![param()]), ("a".to_string(), vec![param(), param()])].into(),
        boxed: Box::new(dense()),
        r#type: dense(),
        counts: Mutex::default(),
        constant: Tensor::ones(&[1], DType::F32),
        function: Tensor::detach,
    };
    assert_eq!((cell.classes, cell.kind()), (3, "Everything"));
    assert!(cell.saved().is_none() && cell.counts.lock().unwrap().is_empty() && cell.constant.len() == 1);
    assert_eq!((cell.function)(&cell.constant).len(), 1);
    let shown = "<fc> <any> weight <list.0> <list.1> some <pair.0> pair.1 <array.0> <array.1> map.a.0 map.a.1 map.b.0 \
                 <boxed> <type>";
    assert_eq!(paths(cell).join(" "), shown);
}

#[derive(Cell, Debug)]
struct Unit;
impl Forward for Unit {}

#[derive(Cell, Debug)]
struct Tuple(Child<Dense>, usize, Param);
impl Forward for Tuple {}

#[test]
fn unit_and_tuple_structs() {
    assert!(paths(Unit).is_empty());
    let tuple = Tuple(dense(), 1, param());
    assert_eq!(tuple.1, 1);
    assert_eq!(paths(tuple), ["<0>", "2"]);
}

#[derive(Cell, Debug)]
struct Residual<C> {
    inner: Child<C>,
}

impl<C: Cell> Forward for Residual<C> {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        self.inner.call(x)?.add(x)
    }
}

#[derive(Cell, Debug)]
struct Generic<A, B: Cell, T: Copy + Into<f64>, U, M: Member, const N: usize>
where
    A: Clone,
{
    first: Child<A>,
    more: [Vec<Option<Child<B>>>; N],
    around: Child<Residual<Dense>>,
    #[cell(data)]
    by: T,
    #[cell(data)]
    lots: Vec<(T, U)>,
    of: PhantomData<U>,
    member: M,
    length: [usize; N],
}

impl<A: Cell + Clone, B: Cell, T: Copy + Into<f64>, U, M: Member, const N: usize> Forward
    for Generic<A, B, T, U, M, N>
{
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let by = Tensor::scalar(self.by.into(), DType::F32);
        self.around.call(&self.first.call(x)?)?.mul(&by)
    }
}

#[test]
fn generic_cells() {
    let net = Residual { inner: Child::new(Residual { inner: dense() }) };
    assert_eq!(net.kind(), "Residual");
    let mut net = Child::new(net);
    assert_eq!(net.named_params()[0].0, "inner.inner.weight");
    let plan = auto_mixed_precision(&mut net, Level::O2, DType::Bf16);
    plan.unwrap();
    let generic = Generic {
        first: Child::new(ReLU),
        more: [vec![Some(dense()), None], vec![Some(dense())]],
        around: Child::new(Residual { inner: dense() }),
        by: 2.0_f32,
        lots: vec![(1.0, "one")],
        of: PhantomData,
        member: vec![param()],
        length: [1, 2],
    };
    assert_eq!((generic.lots[0].1, generic.length, generic.of), ("one", [1, 2], PhantomData));
    assert_eq!(paths(generic).join(" "), "<first> <more.0.0> <more.1.0> <around> member.0");
}

/// A `Member` written by hand, with names of its own.
#[derive(Debug)]
struct Suffixed(Vec<Param>);

impl Member for Suffixed {
    fn visit(&self, name: &str, visitor: &mut dyn FnMut(&str, Part<'_>)) {
        self.0.iter().enumerate().for_each(|(i, param)| visitor(&format!("{name}_l{i}"), Part::Param(param)));
    }
    fn visit_mut(&mut self, name: &str, visitor: &mut dyn FnMut(&str, PartMut<'_>)) {
        self.0.iter_mut().enumerate().for_each(|(i, param)| visitor(&format!("{name}_l{i}"), PartMut::Param(param)));
    }
}

#[derive(Cell, Debug)]
#[cell(kind = "mine::Layers")]
struct Layers {
    weight: Suffixed,
}
impl Forward for Layers {}

#[test]
fn a_member_by_hand_and_a_kind_of_another_name() {
    let cell = Layers { weight: Suffixed(vec![param(), param()]) };
    assert_eq!(cell.kind(), "mine::Layers");
    assert_eq!(paths(cell), ["weight_l0", "weight_l1"]);
}

#[derive(Cell, Debug, Serialize, Deserialize)]
#[cell(saved, kinds(DenseBlock, ReluBlock))]
struct Block<C> {
    inner: Child<C>,
    times: usize,
}

type DenseBlock = Block<Dense>;
type ReluBlock = Block<ReLU>;

impl<C: Cell> Forward for Block<C> {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        (0..self.times).try_fold(x.clone(), |x, _| self.inner.call(&x))
    }
}

#[derive(Cell, Debug, Serialize, Deserialize)]
#[cell(saved, kind = "Pair")]
struct Both {
    left: Child,
    right: Child,
}
impl Forward for Both {}

#[test]
fn what_is_saved_reads_back() {
    let net = Child::of(Both {
        left: DenseBlock { inner: dense(), times: 2 }.into(),
        right: ReluBlock { inner: Child::new(ReLU), times: 3 }.into(),
    });
    let text = models::to_yaml(&net).unwrap();
    assert!(
        text.contains("kind: Pair") && text.contains("kind: DenseBlock") && text.contains("kind: ReluBlock"),
        "{text}"
    );
    let again = models::parse(&text, "net.yaml", 0).unwrap();
    assert_eq!(models::to_yaml(&again).unwrap(), text);
    assert!(again.at("right", |slot| slot.cell.downcast_ref::<ReluBlock>().is_some()).unwrap());
    assert!(precast::layers::kinds().unwrap().contains(&"DenseBlock"));
}

#[test]
fn what_is_not_saved_is_refused_by_its_path() {
    let refused = |net: Child| {
        let error = models::to_yaml(&net).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Model);
        error.to_string()
    };
    let inner = Sequential::new(vec![ReLU.into(), Unit.into(), Unit.into()]);
    let net = Child::of(Sequential::new(vec![ReLU.into(), Both { left: ReLU.into(), right: inner.into() }.into()]));
    let message = "cell `1.right.1`: a cell of the kind Unit is not written to files; mark its type `#[cell(saved)]`, and \
                   derive Serialize and Deserialize";
    assert_eq!(refused(net), message);
    assert!(refused(Unit.into()).starts_with("a cell of the kind Unit is not written"));
    let requested = Child::new(Unit).to_float(DType::F32).unwrap().erase();
    assert!(refused(Sequential::new(vec![requested]).into()).starts_with("cell `0`: a cell of the kind Unit"));
}

#[test]
fn a_policy_may_name_every_kind_of_the_program() {
    let plan = |kind: &str| {
        let policy = format!("{{version: 1, level: O2, dtype: bfloat16, cells: {{black: {{add: [{kind}]}}}}}}");
        Policy::parse(&policy, "policy.yaml").unwrap().plan(&Child::new(ReLU)).map(|_| ())
    };
    for kind in ["Unit", "Residual", "DenseBlock", "mine::Layers", "Dense"] {
        plan(kind).unwrap();
    }
    assert!(plan("Residuals").unwrap_err().to_string().contains("did you mean `Residual`?"));
}
