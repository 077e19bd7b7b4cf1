//! Networks and layers run as graphs, bit for bit, in training and in evaluation.

use precast::{
    Grads,
    observe::{Listener, OpCall, listen},
    prelude::*,
};
use precast_graph::{Graph, GraphCell};

use crate::{
    common::tensors::{assert_same, bits, random},
    nets::{self, Task},
};

/// Returns outputs and gradients of all parameters, for the sum of the outputs with fixed weights.
fn call(net: &Child, inputs: &[Tensor]) -> (Vec<Tensor>, Grads) {
    let outputs = net.call_many(inputs).unwrap();
    let weights = random(outputs[0].shape(), 99).cast(outputs[0].dtype());
    let grads = outputs[0].backward_from(&weights).unwrap();
    (outputs, grads)
}

/// Compares a network with its graph on inputs.
fn same_as_its_graph(net: &Child, graph: &Graph, inputs: &[Tensor], what: &str) {
    let outputs = net.call_many(inputs).unwrap();
    let found = graph.run(inputs).unwrap_or_else(|e| panic!("{what}: {e}\n{graph}"));
    assert_eq!(outputs.len(), found.len());
    for (output, found) in outputs.iter().zip(&found) {
        assert_same(output, found, what);
    }
    let weights = random(outputs[0].shape(), 99).cast(outputs[0].dtype());
    let (wanted, found) = (outputs[0].backward_from(&weights).unwrap(), found[0].backward_from(&weights).unwrap());
    for (path, param) in net.named_params() {
        match (wanted.get(&param), found.get(&param)) {
            (None, None) => {}
            (Some(a), Some(b)) => assert_same(&a, &b, &format!("{what}: gradient of {path}")),
            (a, b) => panic!("{what}: gradient of {path}: {a:?} against {b:?}"),
        }
    }
}

/// Returns inputs with another batch size.
fn other_batch(inputs: &[Tensor], size: usize) -> Vec<Tensor> {
    let batch = inputs[0].shape()[0];
    let resized = |(i, x): (usize, &Tensor)| {
        if x.shape()[0] != batch {
            return x.clone();
        }
        match x.dtype() {
            DType::I64 => Tensor::concat(&vec![&x.slice(0, 0..1).unwrap(); size], 0).unwrap(),
            _ => random(&[&[size], &x.shape()[1..]].concat(), 30 + i as u64),
        }
    };
    inputs.iter().enumerate().map(resized).collect()
}

#[test]
fn every_layer_is_its_graph() {
    let mut rng = Rng::seed(4);
    let r = &mut rng;
    let ids = Tensor::from_vec(vec![1i64, 0, 1], &[3]).unwrap();
    let (row, image) = (random(&[4, 3], 1), random(&[2, 2, 6, 5], 2));
    let (step, sequence) = (random(&[4, 2], 3), random(&[2, 5, 4], 4));
    let nets: Vec<(Child, Vec<Tensor>)> = vec![
        (Dense::new(3, 2, r).into(), vec![row.clone()]),
        (Conv1d::new(5, 2, 3, r).into(), vec![sequence.clone()]),
        (Conv2d::new(2, 2, 2, r).into(), vec![image.clone()]),
        (Conv3d::new(1, 2, 2, r).into(), vec![random(&[2, 1, 3, 3, 2], 5)]),
        (Conv1dTranspose::new(5, 1, 2, r).into(), vec![sequence.clone()]),
        (Conv2dTranspose::new(2, 2, 2, r).into(), vec![image.clone()]),
        (Conv3dTranspose::new(1, 1, 2, r).into(), vec![random(&[2, 1, 2, 2, 2], 7)]),
        (RNNCell::new(3, 2, r).into(), vec![row.clone(), step.clone()]),
        (GRUCell::new(3, 2, r).into(), vec![row.clone(), step.clone()]),
        (LSTMCell::new(3, 2, r).into(), vec![row.clone(), step.clone(), random(&[4, 2], 10)]),
        (RNN::new(4, 2, r).into(), vec![sequence.clone()]),
        (GRU::new(4, 2, r).into(), vec![sequence.clone()]),
        (LSTM::new(4, 2, r).into(), vec![sequence.clone()]),
        (
            MultiheadAttentionSpec::new(4, 2).build(r).unwrap().into(),
            vec![sequence.clone(), sequence.clone(), random(&[2, 5, 4], 12)],
        ),
        (BatchNorm1d::new(3).into(), vec![row.clone()]),
        (BatchNorm2d::new(2).into(), vec![image.clone()]),
        (LayerNorm::new(&[3]).into(), vec![row.clone()]),
        (GroupNorm::new(1, 2).into(), vec![image.clone()]),
        (InstanceNorm2d::new(2).into(), vec![image.clone()]),
        (RmsNorm::new(3).into(), vec![row.clone()]),
        (Embedding::new(2, 3, r).into(), vec![ids]),
        (PReLU::new(3).into(), vec![row.clone()]),
        (MaxPool2d::new(2).into(), vec![image.clone()]),
        (AvgPool2d::new(2).into(), vec![image.clone()]),
        (Dropout::new(0.5, r).into(), vec![image.clone()]),
        (GELU::default().into(), vec![row.clone()]),
        (Softmax::default().into(), vec![row.clone()]),
    ];
    for (mut net, inputs) in nets {
        let kind = net.slot().cell.kind();
        for training in [false, true] {
            net.set_train(training);
            let what = format!("{kind}, training {training}");
            let inputs: Vec<Tensor> =
                inputs.iter().map(|x| if x.dtype().is_float() { x.requires_grad() } else { x.clone() }).collect();
            let graph = Graph::trace(&net, &inputs).unwrap_or_else(|e| panic!("{what}: {e}"));
            let graph: Graph = if net.named_params().is_empty() {
                Graph::from_json(&graph.to_json().unwrap()).unwrap()
            } else {
                graph
            };
            assert_eq!(graph.only_batch(), None, "{what}\n{graph}");
            for size in [inputs[0].shape()[0], 3, 7] {
                // A second call of dropout drops other elements.
                let mut fresh_seed = None;
                if kind == "Dropout" && training {
                    fresh_seed = Some(Graph::trace(&net, &inputs).unwrap());
                }
                let inputs = if size == inputs[0].shape()[0] { inputs.clone() } else { other_batch(&inputs, size) };
                let inputs: Vec<Tensor> =
                    inputs.iter().map(|x| if x.dtype().is_float() { x.requires_grad() } else { x.clone() }).collect();
                same_as_its_graph(&net, fresh_seed.as_ref().unwrap_or(&graph), &inputs, &what);
            }
        }
    }
}

/// The networks of the benches, bare and wrapped at O1 and O2.
#[test]
fn every_network_is_its_graph_at_every_level() {
    for name in nets::NAMES {
        for (level, dtype) in [(Level::O0, DType::F16), (Level::O1, DType::F16), (Level::O2, DType::Bf16)] {
            let Task { mut net, x, .. } = nets::task(name, 1).unwrap();
            let x = x.slice(0, 0..2).unwrap();
            for training in [false, true] {
                net.set_train(training);
                let _applied = Policy::new(level, dtype).unwrap().apply(&mut net).unwrap();
                let what = format!("{name} at {level}, training {training}");
                let graph = Graph::trace(&net, std::slice::from_ref(&x)).unwrap();
                assert_eq!(graph.only_batch(), None, "{what}");
                same_as_its_graph(&net, &graph, std::slice::from_ref(&x), &what);
                let paths: Vec<String> = graph.named_params().into_iter().map(|(path, _)| path).collect();
                let own: Vec<String> = net.named_params().into_iter().map(|(path, _)| path).collect();
                assert!(paths.iter().all(|path| own.contains(path)), "{what}: {paths:?}");
            }
        }
    }
}

/// Dropout and batch norm change from step to step, in a network as in its graph.
#[test]
fn a_graph_cell_trains_as_its_network() {
    let net = |seed| {
        let r = &mut Rng::seed(seed);
        let net = Sequential::new(vec![
            Conv2d::new(1, 4, 3, r).into(),
            BatchNorm2d::new(4).into(),
            ReLU.into(),
            Dropout::new(0.3, r).into(),
            Flatten::default().into(),
            Dense::new(4 * 6 * 6, 3, r).into(),
        ]);
        Child::of(net)
    };
    let (mut plain, mut traced) = (net(7), net(7));
    let inputs = |step| {
        (
            random(&[6, 1, 8, 8], 50 + step as u64),
            Tensor::from_vec((0..6i64).map(|i| (i + step) % 3).collect(), &[6]).unwrap(),
        )
    };
    let mut graph = Child::of(GraphCell::trace(&mut traced, &[inputs(0).0]).unwrap());
    let steps = |net: &mut Child| {
        net.set_train(true);
        let mut optimizer = Sgd::new(net.params(), 0.1).momentum(0.9);
        (0..4).for_each(|step| {
            let (x, y) = inputs(step);
            let loss = net.call(&x).unwrap().cross_entropy(&y).unwrap();
            optimizer.update(&loss.backward().unwrap()).unwrap();
        });
        net.set_train(false);
        net.named_params()
    };
    let (wanted, found) = (steps(&mut plain), steps(&mut graph));
    assert_eq!(wanted.len(), found.len());
    let found: std::collections::BTreeMap<String, Param> = found.into_iter().collect();
    for (path, param) in &wanted {
        assert_same(&param.value(), &found[path].value(), path);
    }
    let x = inputs(9).0;
    assert_same(&plain.call(&x).unwrap(), &graph.call(&x).unwrap(), "in evaluation");
}

/// Tracing changes nothing: neither running statistics nor the next dropout.
#[test]
fn tracing_leaves_the_network_as_it_was() {
    let r = &mut Rng::seed(3);
    let mut net = Child::of(Sequential::new(vec![BatchNorm1d::new(3).into(), Dropout::new(0.5, r).into()]));
    net.set_train(true);
    let x = random(&[8, 3], 1);
    let before: Vec<Vec<u64>> = net.named_params().iter().map(|(_, param)| bits(&param.value())).collect();
    let graph = Graph::trace(&net, std::slice::from_ref(&x)).unwrap();
    let after: Vec<Vec<u64>> = net.named_params().iter().map(|(_, param)| bits(&param.value())).collect();
    assert_eq!(before, after);
    let first = call(&net, std::slice::from_ref(&x)).0.remove(0);
    assert_same(&graph.run(std::slice::from_ref(&x)).unwrap()[0], &first, "the first call");
}

/// A traced graph runs on batches of any size, even where the code computes with the size.
#[test]
fn lengths_that_follow_from_the_batch_are_symbols() {
    let graph = Graph::trace_fn(&Default::default(), &[random(&[4, 6], 1)], |x| {
        let batch = x[0].shape()[0] as isize;
        let rows = x[0].reshape(&[batch * 2, 3])?;
        let state = Tensor::zeros(&[batch as usize * 2, 1], DType::F32);
        Ok(vec![rows.add(&state)?.slice(0, 1..batch as usize * 2)?])
    })
    .unwrap();
    assert_eq!(graph.only_batch(), None, "{graph}");
    assert_eq!(format!("{:?}", graph.output(graph.outputs()[0]).shape), "[2b-1, 3]");
    let x = random(&[5, 6], 2);
    let wanted = x.reshape(&[10, 3]).unwrap().slice(0, 1..10).unwrap();
    assert_same(&graph.run(&[x]).unwrap()[0], &wanted, "a batch of five");
}

/// A gradient stopped by the code is stopped in the graph.
#[test]
fn stopped_gradients_stay_stopped() {
    let x = random(&[3], 1).requires_grad();
    for stop in [(|x: &Tensor| x.detach()) as fn(&Tensor) -> Tensor, |x| precast::no_grad(|| x.mul(x).unwrap())] {
        let f = |x: &[Tensor]| Ok(vec![x[0].mul(&stop(&x[0]))?.sum_all()?]);
        let graph = Graph::trace_fn(&Default::default(), std::slice::from_ref(&x), f).unwrap();
        assert!(graph.nodes().iter().any(|node| node.op_name() == "StopGradient"), "{graph}");
        let wanted = f(std::slice::from_ref(&x)).unwrap()[0].backward().unwrap();
        let found = graph.run(std::slice::from_ref(&x)).unwrap()[0].backward().unwrap();
        assert_same(&found.of(&x).unwrap(), &wanted.of(&x).unwrap(), "the gradient");
    }
}

#[test]
fn a_graph_of_medians_and_running_extremes_computes_them_again() -> Result<()> {
    // Numbers with repetitions, so that there are equal ones.
    let numbers = |seed: u64| Tensor::randint(-4, 5, &[3, 7], &mut Rng::seed(seed)).unwrap().cast(DType::F32);
    let f = |x: &Tensor| x.cummax(1)?.0.add(&x.cummin(1)?.0)?.median(1, true)?.0.floor_divide(&x.median(1, true)?.0);
    let inputs = [numbers(1)];
    let graph = Graph::trace_fn(&Default::default(), &inputs, |x| Ok(vec![f(&x[0])?]))?;
    for seed in 2..6 {
        let other = numbers(seed);
        let run = graph.run(std::slice::from_ref(&other))?;
        assert!(run[0].to_f64() == f(&other)?.to_f64(), "{}", run[0]);
    }
    Ok(())
}

#[derive(Default)]
struct Ops(Vec<Op>);

impl Listener for Ops {
    fn op(&mut self, call: &OpCall<'_>) {
        self.0.push(call.op);
    }
}

#[test]
fn a_graph_that_is_recorded_is_heard_and_the_same() {
    let net = Child::of(sequential![Dense::new(1, 1, &mut Rng::seed(1)), ReLU]);
    let trace = || Graph::trace(&net, &[Tensor::ones(&[2, 1], DType::F32)]).unwrap().to_json().unwrap();
    let (alone, (heard, log)) = (trace(), listen(Ops::default(), trace));
    assert_eq!(alone, heard);
    // Called with two examples, and with three.
    assert_eq!(log.0.iter().filter(|op| **op == Op::Linear).count(), 2);
}
