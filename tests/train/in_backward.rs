//! Updates in the backward pass, compared with those of a step after it.

use precast::{Adafactor, Grads, Lamb, Muon, Param, cell::Params, optim::OptimizerState, prelude::*};

/// A network with a table that is read twice, running statistics, a frozen cell and one that is not read.
#[derive(Cell, Debug)]
struct Tied {
    table: Child<Embedding>,
    norm: Child<BatchNorm1d>,
    dense: Child<Dense>,
    frozen: Child<Dense>,
    unread: Child<Dense>,
}

impl Forward for Tied {
    fn forward(&self, ids: &Tensor) -> Result<Tensor> {
        let y = self.dense.call(&self.norm.call(&self.table.call(ids)?)?)?.relu()?;
        let y = y.add(&self.frozen.call(&y)?)?;
        y.matmul(&self.table.cell().weight.tensor().cast(y.dtype()).transpose(0, 1)?)
    }
}

type Make = fn(&Child) -> Box<dyn Optimizer>;

fn network(level: Level, storage: Option<Decorate>) -> Result<Child> {
    let r = &mut Rng::seed(3);
    let mut net = Child::of(Tied {
        table: Child::new(Embedding::new(12, 6, r)),
        norm: Child::new(BatchNorm1d::new(6)),
        dense: Child::new(Dense::new(6, 6, r)),
        frozen: Child::new(Dense::new(6, 6, r)),
        unread: Child::new(Dense::new(2, 2, r)),
    });
    let _ = Policy::new(level, DType::Bf16)?.apply(&mut net)?;
    if let Some(storage) = storage {
        decorate(&net, storage)?;
    }
    net.freeze("frozen")?;
    net.set_train(true);
    Ok(net)
}

fn loss(net: &Child, step: i64) -> Result<Tensor> {
    let ids: Vec<i64> = (0..8).map(|i| (5 * i + step) % 11).collect();
    let classes: Vec<i64> = (0..8).map(|i| (i + step) % 12).collect();
    net.call(&Tensor::from_vec(ids, &[8])?)?.cast(DType::F32).cross_entropy(&Tensor::from_vec(classes, &[8])?)
}

/// Returns everything that five steps leave: values, masters, and the state of the optimizer.
fn trained(
    net: &Child,
    mut optimizer: Box<dyn Optimizer>,
    mut scale: LossScale,
    in_backward: bool,
) -> Result<Vec<(String, Vec<f64>)>> {
    for step in 0..5 {
        let loss = loss(net, step)?;
        let outcome = match in_backward {
            true => scale.step_in_backward(&mut *optimizer, loss)?,
            false => scale.step(&mut *optimizer, loss)?,
        };
        assert_eq!(outcome, Outcome::Stepped);
    }
    let both = |(path, param): (String, Param)| {
        let master = param.master().map_or(Vec::new(), |master| master.to_f64());
        [(format!("{path} master"), master), (path, param.value().to_f64())]
    };
    let mut left: Vec<_> = net.named_params().into_iter().flat_map(both).collect();
    let state = optimizer.state();
    left.extend(state.steps.into_iter().map(|(path, steps)| (format!("{path} steps"), vec![steps as f64])));
    left.extend(state.tensors.into_iter().map(|(name, tensor)| (name, tensor.to_f64())));
    Ok(left)
}

#[test]
fn weights_and_state_have_the_bits_of_a_step_after_the_backward_pass() -> Result<()> {
    let optimizers: [Make; 5] = [
        |net| Box::new(Sgd::new(net.params(), 0.05).momentum(0.9)),
        |net| Box::new(AdamW::new(net.params(), 0.01)),
        |net| Box::new(Lamb::new(net.params(), 0.01)),
        |net| Box::new(Adafactor::new(net.params(), 0.01)),
        |net| Box::new(Muon::new(net.params().filter(|_, param| param.shape().len() == 2), 0.01)),
    ];
    let bf16 = || Decorate::new(DType::Bf16);
    let storages = [
        (Level::O0, None),
        (Level::O2, None),
        (Level::O2, Some(bf16())),
        (Level::O2, Some(bf16().stochastic_rounding(7))),
        (Level::O2, Some(bf16().kahan())),
    ];
    for make in optimizers {
        for (level, storage) in &storages {
            for scale in [LossScale::none(), LossScale::fixed(1024.0)?] {
                let [after, within] = [false, true].map(|in_backward| {
                    let net = network(*level, storage.clone())?;
                    trained(&net, make(&net), scale.clone(), in_backward)
                });
                let (after, within) = (after?, within?);
                assert_eq!(after.len(), within.len());
                for (after, within) in after.iter().zip(&within) {
                    assert_eq!(after, within, "{level} {storage:?}");
                }
            }
        }
    }
    Ok(())
}

#[test]
fn a_parameter_that_is_read_twice_is_updated_once() -> Result<()> {
    let net = network(Level::O2, None)?;
    let mut optimizer = Sgd::new(net.params(), 0.1).momentum(0.9);
    let before = net.params().iter().map(|(path, param)| (path.to_string(), param.value())).collect::<Vec<_>>();
    assert_eq!(LossScale::none().step_in_backward(&mut optimizer, loss(&net, 0)?)?, Outcome::Stepped);
    let steps = optimizer.state().steps;
    assert_eq!((steps["table.weight"], steps["dense.weight"], steps["unread.weight"]), (1, 1, 0));
    for ((path, before), (_, now)) in before.iter().zip(net.params().iter()) {
        let same = before.to_f64() == now.value().to_f64();
        assert_eq!(same, path.starts_with("unread"), "{path}");
    }
    Ok(())
}

#[test]
fn a_dynamic_loss_scale_is_refused() -> Result<()> {
    let net = network(Level::O0, None)?;
    let mut optimizer = Sgd::new(net.params(), 0.1);
    let error = LossScale::dynamic().step_in_backward(&mut optimizer, loss(&net, 0)?).unwrap_err().to_string();
    assert_eq!(
        error,
        "an update in the backward pass cannot be taken back, and a dynamic loss scale skips the steps that overflow; \
         allowed: `LossScale::none()` (bfloat16 needs no scale), `LossScale::fixed(..)`, or `LossScale::step`"
    );
    assert!(optimizer.state().steps.values().all(|&steps| steps == 0));
    Ok(())
}

/// Two weights, one after the other: `second` has its gradient first.
fn chain(first: f32, second: f32) -> (Param, Param) {
    (Param::new(Tensor::from([first])), Param::new(Tensor::from([second])))
}

#[test]
fn a_gradient_that_is_not_finite_stops_all_later_updates() -> Result<()> {
    // The gradient of `second` is finite, that of `first` is the slope of a root at 0.
    let (first, second) = chain(0.0, 2.0);
    let mut optimizer = Sgd::new([first.clone(), second.clone()].into_iter().collect(), 0.5);
    let loss = || first.tensor().sqrt()?.add(&Tensor::from([3f32]))?.mul(&second.tensor())?.sum_all();
    let mut scale = LossScale::none();
    let error = scale.step_in_backward(&mut optimizer, loss()?).unwrap_err().to_string();
    assert_eq!(
        error,
        "1 parameter was updated in this backward pass before the error, those after it were not: a gradient was not finite at \
         loss scale 1, first seen in `0`; continue from the last checkpoint, with `LossScale::step` or a lower scale"
    );
    assert_eq!((first.value().item()?, second.value().item()?), (0.0, 0.5));
    // The same in a step after the backward pass updates nothing.
    assert!(matches!(scale.step(&mut optimizer, loss()?)?, Outcome::Skipped { .. }));
    assert_eq!(second.value().item()?, 0.5);
    Ok(())
}

#[test]
fn nothing_is_updated_if_the_loss_or_the_first_gradient_is_not_finite() -> Result<()> {
    let root = Param::new(Tensor::from([0f32]));
    let mut optimizer = Sgd::new([root.clone()].into_iter().collect(), 0.5);
    let mut scale = LossScale::none();
    let outcome = scale.step_in_backward(&mut optimizer, root.tensor().sqrt()?.sum_all()?)?;
    assert!(matches!(&outcome, Outcome::Skipped { cause } if cause.to_string().contains("`0`")), "{outcome:?}");
    let outcome = scale.step_in_backward(&mut optimizer, root.tensor().log()?.sum_all()?)?;
    assert!(
        matches!(&outcome, Outcome::Skipped { cause } if cause.to_string().contains("the loss itself")),
        "{outcome:?}"
    );
    assert_eq!((root.value().item()?, scale.state().skipped), (0.0, 2));
    assert_eq!(scale.step_in_backward(&mut optimizer, root.tensor().sum_all()?)?, Outcome::Stepped);
    assert_eq!((root.value().item()?, scale.state().skipped), (-0.5, 0));
    Ok(())
}

#[test]
fn a_loss_of_other_parameters_is_an_error_as_in_a_step() -> Result<()> {
    let (mine, other) = chain(1.0, 1.0);
    let mut optimizer = Sgd::new([mine].into_iter().collect(), 0.5);
    let [within, after] = [true, false].map(|in_backward| {
        let loss = other.tensor().sum_all().unwrap();
        let mut scale = LossScale::none();
        let outcome =
            if in_backward { scale.step_in_backward(&mut optimizer, loss) } else { scale.step(&mut optimizer, loss) };
        outcome.unwrap_err().to_string()
    });
    assert_eq!(within, after);
    Ok(())
}

#[test]
fn lost_updates_are_those_of_all_parameters() -> Result<()> {
    let count = |in_backward: bool| -> Result<Vec<(String, u64, u64)>> {
        let net = network(Level::O2, Some(Decorate::new(DType::Bf16).masters(false)))?;
        let mut optimizer = Sgd::new(net.params(), 1e-4).count_lost_updates();
        let mut scale = LossScale::none();
        for step in 0..2 {
            let outcome = match in_backward {
                true => scale.step_in_backward(&mut optimizer, loss(&net, step)?)?,
                false => scale.step(&mut optimizer, loss(&net, step)?)?,
            };
            assert_eq!(outcome, Outcome::Stepped);
        }
        let mut lost: Vec<_> =
            optimizer.lost_updates().iter().map(|lost| (lost.path.clone(), lost.updates, lost.lost)).collect();
        lost.sort();
        Ok(lost)
    };
    let after = count(false)?;
    assert!(after.len() > 2 && after.iter().any(|(_, _, lost)| *lost > 0));
    assert_eq!(count(true)?, after);
    Ok(())
}

/// An optimizer of a user, around one of the library, that notes its updates.
#[derive(Debug)]
struct Noting {
    inner: Sgd,
    /// Whole updates, and the places of those of one parameter.
    updates: (usize, Vec<usize>),
    /// `true` when it has no update of one parameter of its own.
    is_plain: bool,
}

impl Optimizer for Noting {
    fn params(&self) -> &Params {
        self.inner.params()
    }
    fn update(&mut self, grads: &Grads) -> Result<()> {
        self.updates.0 += 1;
        self.inner.update(grads)
    }
    fn update_one(&mut self, place: usize, grads: &Grads) -> Result<()> {
        if self.is_plain {
            return self.update(grads);
        }
        let (_, param) = self.params().iter().nth(place).expect("a place of a parameter");
        assert!(grads.len() == 1 && grads.get(param).is_some());
        self.updates.1.push(place);
        self.inner.update_one(place, grads)
    }
    fn check(&self) -> Result<()> {
        self.inner.check()
    }
    fn lr(&self) -> f64 {
        self.inner.lr()
    }
    fn set_lr(&mut self, lr: f64) {
        self.inner.set_lr(lr);
    }
    fn state(&self) -> OptimizerState {
        self.inner.state()
    }
    fn restore(&mut self, state: OptimizerState) -> Result<()> {
        self.inner.restore(state)
    }
}

#[test]
fn an_optimizer_of_a_user_updates_one_parameter_after_the_other() -> Result<()> {
    let run = |is_plain: bool| -> Result<_> {
        let net = network(Level::O0, None)?;
        let inner = Sgd::new(net.params(), 0.1).momentum(0.9);
        let mut optimizer = Noting { inner, updates: Default::default(), is_plain };
        assert_eq!(LossScale::none().step_in_backward(&mut optimizer, loss(&net, 0)?)?, Outcome::Stepped);
        let values: Vec<_> = net.params().iter().map(|(_, param)| param.value().to_f64()).collect();
        optimizer.updates.1.sort_unstable();
        let steps = optimizer.state().steps;
        let paths = net.params();
        let updated = paths.iter().enumerate().filter(|(_, (path, _))| steps[*path] > 0).map(|(place, _)| place);
        Ok((optimizer.updates, values, updated.collect::<Vec<_>>()))
    };
    let ((whole, places), values, with_gradients) = run(false)?;
    assert_eq!((whole, &places), (0, &with_gradients));
    assert_eq!(run(true)?, ((places.len(), vec![]), values, with_gradients));
    Ok(())
}
