//! User-defined listeners.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
};

use precast::{
    cell::{Member, Part, PartMut},
    observe::{CastCall, CastRole, CellCall, CellEntry, GradientCall, Listener, OpCall, listen, watch},
    prelude::*,
    recording,
};

/// A listener that records events as short texts.
#[derive(Default)]
struct Log(Vec<String>);

impl Listener for Log {
    fn op(&mut self, call: &OpCall<'_>) {
        let dtypes: Vec<&str> = call.inputs.iter().map(|x| x.dtype().name()).collect();
        let pass = if call.backward { " backward" } else { "" };
        self.0.push(format!("{}({}) = {}{pass}", call.op, dtypes.join(", "), call.output.dtype()));
    }
    fn cast(&mut self, cast: &CastCall<'_>) {
        let role = match cast.of {
            CastRole::IntoCell => "into cell",
            CastRole::OutOfCell => "out of cell",
            CastRole::Gradient => "gradient",
            CastRole::IntoOp(_) => "into op",
            CastRole::Leaf(_) => "leaf",
            _ => "other",
        };
        self.0.push(format!("{role}: {} to {}", cast.input.dtype(), cast.output.dtype()));
    }
    fn enter(&mut self, cell: &CellEntry) {
        self.0.push(format!("enter {}", cell.kind));
    }
    fn leave(&mut self, cell: &CellCall<'_>) {
        let outputs = cell.outputs.map(|outputs| outputs.iter().map(Tensor::to_f64).collect::<Vec<_>>());
        self.0.push(format!("leave {}: {outputs:?}", cell.kind));
    }
    fn gradient(&mut self, call: &GradientCall<'_>) {
        let grads: Vec<_> = call.gradients.iter().flatten().map(Tensor::to_f64).collect();
        self.0.push(format!("gradient of {}: {grads:?}", call.op.map_or("several", Op::name)));
    }
}

/// Makes a network that computes `2 x`, in bf16 by a plan.
fn doubling() -> Child {
    let dense = Dense::new(1, 1, &mut Rng::seed(1));
    dense.weight.set(&Tensor::full(&[1, 1], 2.0, DType::F32)).unwrap();
    dense.bias.as_ref().unwrap().set(&Tensor::zeros(&[1], DType::F32)).unwrap();
    let mut net = Child::of(sequential![dense, ReLU]);
    auto_mixed_precision(&mut net, Level::O1, DType::Bf16).unwrap();
    net
}

#[test]
fn a_step_is_heard_in_order() {
    let net = doubling();
    let x = Tensor::full(&[1, 1], 3.0, DType::F32);
    let (grads, log) = listen(Log::default(), || net.call(&x).unwrap().sum_all().unwrap().backward());
    let forward = [
        "enter Sequential",
        "enter Dense",
        "into cell: f32 to bf16",
        "leaf: f32 to bf16",
        "leaf: f32 to bf16",
        "Linear(bf16, bf16, bf16) = bf16",
        "out of cell: bf16 to f32",
        "leave Dense: Some([[6.0]])",
        "enter ReLU",
        // A widening cast back is the tensor before it, so neither is done. ReLU is in no list: its result returns to f32.
        "Relu(bf16) = bf16",
        "other: bf16 to f32",
        "leave ReLU: Some([[6.0]])",
        "leave Sequential: Some([[6.0]])",
        "Sum(f32) = f32",
        "gradient of Sum: [[1.0]]",
        "gradient: f32 to bf16",
        "gradient of Cast: [[1.0]]",
        "gradient of Relu: [[1.0]]",
        "gradient of Linear: [[3.0], [1.0]]",
    ];
    assert_eq!(log.0[..forward.len()], forward, "{:#?}", log.0);
    assert_eq!(grads.unwrap().of_param(net.params().iter().next().unwrap().1), Some(vec![3.0]));
}

trait OfParam {
    fn of_param(&self, param: &Param) -> Option<Vec<f64>>;
}

impl OfParam for precast::Grads {
    fn of_param(&self, param: &Param) -> Option<Vec<f64>> {
        self.get(param).map(|grad| grad.to_f64())
    }
}

/// A listener that computes with the tensors of its events.
#[derive(Default)]
struct Computing(Vec<(DType, f64, bool)>);

impl Listener for Computing {
    fn op(&mut self, call: &OpCall<'_>) {
        let x = &call.inputs[0];
        let square = x.cast(DType::F32).matmul(&x.cast(DType::F32)).unwrap();
        self.0.push((square.dtype(), square.item().unwrap(), square.is_tracked()));
    }
}

#[test]
fn a_listener_may_compute_and_nothing_changes() {
    let net = doubling();
    let x = Tensor::full(&[1, 1], 3.0, DType::F32);
    let step = || {
        let run = || autocast(Autocast::new("torch-2.15-cpu")?, || net.call(&x)?.matmul(&x)?.sum_all()?.backward());
        let (grads, events) = watch(run);
        let grads: Vec<_> = net.params().iter().map(|(_, param)| grads.as_ref().unwrap().of_param(param)).collect();
        (grads, events)
    };
    // The first step makes low copies of the parameters.
    step();
    let (alone, (heard, computing)) = (step(), listen(Computing::default(), step));
    assert_eq!(alone, heard);
    let forward = &computing.0[..4];
    // Linear of 3, Relu of 6, MatMul of 6 and Sum of 18.
    assert_eq!(forward, [9.0, 36.0, 36.0, 324.0].map(|square| (DType::F32, square, false)));
}

#[test]
fn listeners_nest_and_end() {
    let x = Tensor::ones(&[1], DType::F32);
    let (((), inner), outer) = listen(Log::default(), || {
        x.relu().unwrap();
        listen(Log::default(), || _ = x.exp().unwrap())
    });
    assert_eq!(inner.0, ["Exp(f32) = f32"]);
    assert_eq!(outer.0, ["Relu(f32) = f32", "Exp(f32) = f32"]);
    let panics = || listen(Log::default(), || panic!("left by panic"));
    assert!(catch_unwind(AssertUnwindSafe(panics)).is_err());
    let (_, after) = listen(Log::default(), || x.relu());
    assert_eq!(after.0, ["Relu(f32) = f32"]);
}

#[test]
fn a_cell_that_fails_is_left() {
    let net = doubling();
    let (result, log) = listen(Log::default(), || net.call(&Tensor::ones(&[1, 2], DType::F32)));
    result.unwrap_err();
    assert_eq!(log.0.last().unwrap(), "leave Sequential: None");
    assert_eq!(log.0.iter().filter(|event| event.starts_with("enter")).count(), 2);
    assert_eq!(log.0.iter().filter(|event| event.starts_with("leave")).count(), 2);
}

#[test]
fn attributes_and_further_results_are_heard() {
    #[derive(Default)]
    struct Calls(Vec<(String, Vec<Vec<f64>>)>);
    impl Listener for Calls {
        fn op(&mut self, call: &OpCall<'_>) {
            self.0.push((call.attributes.to_string(), call.more.iter().map(Tensor::to_f64).collect()));
        }
    }
    let x = Tensor::from_vec(vec![1f32, 5., 3.], &[1, 3]).unwrap();
    let (_, calls) = listen(Calls::default(), || {
        x.topk(2, -1, true).unwrap();
        x.softmax(1).unwrap()
    });
    let (top, softmax) = (&calls.0[0], &calls.0[1]);
    assert_eq!((top.0.as_str(), &top.1), ("axis: -1, k: 2, largest: true", &vec![vec![1.0, 2.0]]));
    assert_eq!((softmax.0.as_str(), softmax.1.len()), ("axis: 1", 0));
}

/// Whoever begins to listen inside a listener hears, and the outer one does not.
#[test]
fn a_listener_may_listen() {
    #[derive(Default)]
    struct Watching(Vec<usize>);
    impl Listener for Watching {
        fn op(&mut self, call: &OpCall<'_>) {
            let (_, events) = watch(|| call.output.relu().unwrap().exp().unwrap());
            let (_, recorded) = recording::record(|| call.output.relu());
            self.0.extend([events.len(), recorded.calls.len()]);
        }
    }
    let x = Tensor::ones(&[1], DType::F32);
    let (_, watching) = listen(Watching::default(), || x.abs());
    assert_eq!(watching.0, [2, 1], "two ops; one");
}

/// A field without parameters that counts how often a walk looks at it.
#[derive(Debug)]
struct Looks(Arc<AtomicUsize>);

impl Member for Looks {
    fn visit(&self, _: &str, _: &mut dyn FnMut(&str, Part<'_>)) {
        self.0.fetch_add(1, Relaxed);
    }
    fn visit_mut(&mut self, _: &str, _: &mut dyn FnMut(&str, PartMut<'_>)) {}
}

#[derive(Cell, Debug)]
struct Counted {
    looks: Looks,
}

impl Forward for Counted {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        Ok(x.clone())
    }
}

/// A listener that asks each cell whether it has parameters, or does not.
struct Asking(Option<Vec<bool>>);

impl Listener for Asking {
    fn leave(&mut self, cell: &CellCall<'_>) {
        self.0.iter_mut().for_each(|answers| answers.push(cell.has_params()));
    }
}

#[test]
fn a_cell_is_looked_into_only_for_a_listener_that_asks() {
    let looks = Arc::default();
    let counted = || Counted { looks: Looks(Arc::clone(&looks)) };
    let inner = Child::of(sequential![counted(), Dense::new(1, 1, &mut Rng::seed(1)), counted()]);
    let net = Child::of(sequential![counted(), inner, counted(), counted()]);
    let x = Tensor::ones(&[1, 1], DType::F32);
    let heard = |asks: bool| {
        looks.store(0, Relaxed);
        let (result, Asking(answers)) = listen(Asking(asks.then(Vec::new)), || net.call(&x));
        result.unwrap();
        (answers, looks.load(Relaxed))
    };
    assert_eq!(heard(false), (None, 0));
    // Each of the five once for its own answer, the first of `inner` for that of `inner`, and the first two for that of
    // the root, which has its answer within `inner`.
    let (f, t) = (false, true);
    assert_eq!(heard(true), (Some(vec![f, f, t, f, t, f, f, t]), 5 + 1 + 2));
}
