//! TensorFlow's `enable_mixed_precision_graph_rewrite`: an optimizer whose step runs a rewritten graph with a scaled loss.

mod loss_scale;

use std::cell::RefCell;

pub use loss_scale::IntoLossScale;

use crate::{Graph, GraphPolicy, check_not_wrapped};

use precast::{
    Child, DType, LossScale, Optimizer, Outcome, Tensor,
    cell::AsCell,
    error::Result,
    policy::Pack,
    recording::{Evaluated, as_pass},
};

/// Wraps an optimizer so that its [steps](GraphRewrite::step) run the network and its loss as a graph in which f16
/// spreads by TensorFlow 2.21's lists, with the loss scaled. The parameters stay f32, and so does the network when
/// called outside of a step. `loss_scale` is `"dynamic"`, `"none"`, a number, or a [`LossScale`].
///
/// The result is not an [`Optimizer`], so it cannot be wrapped again:
///
/// ```compile_fail
/// # use precast::prelude::*;
/// # use precast_graph::tensorflow::enable_mixed_precision_graph_rewrite;
/// let once = enable_mixed_precision_graph_rewrite(Sgd::new(Default::default(), 0.1), "dynamic").unwrap();
/// let twice = enable_mixed_precision_graph_rewrite(once, "dynamic").unwrap();
/// ```
///
/// # Errors
/// [`ErrorKind::Value`](precast::ErrorKind::Value) for an invalid loss scale.
///
/// ```
/// use precast::{Outcome, layers::{Dense, ReLU, Rng, Softmax}, prelude::*, sequential};
/// use precast_graph::tensorflow::enable_mixed_precision_graph_rewrite;
/// let rng = &mut Rng::seed(1);
/// let net = Child::new(sequential![Dense::new(8, 16, rng), ReLU, Dense::new(16, 4, rng), Softmax::default()]);
/// let (x, y) = (Tensor::ones(&[32, 8], DType::F32), Tensor::full(&[32, 4], 0.25, DType::F32));
///
/// let mut optimizer = enable_mixed_precision_graph_rewrite(Sgd::new(net.params(), 0.1), "dynamic")?;
/// for _ in 0..3 {
///     let outcome = optimizer.step(&net, &[x.clone(), y.clone()], |net, given| {
///         net.call(&given[0])?.mse_loss(&given[1], Reduction::Mean)
///     })?;
///     assert_eq!(outcome, Outcome::Stepped);
/// }
/// assert_eq!(optimizer.global_step(), 3);
/// # Ok::<(), precast::Error>(())
/// ```
pub fn enable_mixed_precision_graph_rewrite<O: Optimizer>(
    optimizer: O,
    loss_scale: impl IntoLossScale,
) -> Result<GraphRewrite<O>> {
    GraphRewrite::new(optimizer, loss_scale, &GraphPolicy::from_pack(DType::F16, Pack::named("tensorflow-2.21-fp16")?)?)
}

/// An optimizer whose steps run rewritten graphs; see [`enable_mixed_precision_graph_rewrite`].
#[derive(Debug)]
pub struct GraphRewrite<O> {
    optimizer: O,
    loss_scale: LossScale,
    policy: GraphPolicy,
    traced: Vec<Traced>,
    steps: u64,
    runs: u64,
    last_loss: Option<f64>,
}

/// The graph of one signature: dtypes and shapes of the inputs, except for the first axis where it is the batch.
#[derive(Debug)]
struct Traced {
    signature: Vec<(DType, Vec<usize>)>,
    graph: Graph,
    /// Cells that were recorded in evaluation mode and behave differently in training.
    evaluated: Evaluated,
}

impl<O: Optimizer> GraphRewrite<O> {
    /// Wraps an optimizer as [`enable_mixed_precision_graph_rewrite`] does, by another policy.
    ///
    /// # Errors
    /// [`ErrorKind::Value`](precast::ErrorKind::Value) for an invalid loss scale, and those of a policy whose fields are
    /// inconsistent.
    pub fn new(optimizer: O, loss_scale: impl IntoLossScale, policy: &GraphPolicy) -> Result<Self> {
        policy.check()?;
        let (loss_scale, policy) = (loss_scale.into_loss_scale()?, policy.clone());
        Ok(GraphRewrite { optimizer, loss_scale, policy, traced: vec![], steps: 0, runs: 0, last_loss: None })
    }

    /// Runs one training step: evaluates `loss` on the inputs as a rewritten graph, and updates the parameters if every
    /// gradient is finite. A skipped step leaves parameters, optimizer state,
    /// [`global_step`](GraphRewrite::global_step) and running statistics of norms unchanged, and lowers a dynamic loss
    /// scale.
    ///
    /// `loss` receives the inputs, including targets, and returns a scalar. It is called and recorded for each new
    /// combination of input dtypes and shapes; all other steps run the graph without calling it. The graph trains or
    /// evaluates as the network did when recorded. Call [`forget`](GraphRewrite::forget) after changing the network or
    /// the function.
    ///
    /// # Errors
    /// Those of [`Graph::trace`], [`Graph::rewrite`] and [`LossScale::step`];
    /// [`ErrorKind::Value`](precast::ErrorKind::Value) for a network that has adapters, a `to_float` or low weights.
    pub fn step<C: ?Sized + AsCell>(
        &mut self,
        net: &Child<C>,
        inputs: &[Tensor],
        loss: impl Fn(&Child<C>, &[Tensor]) -> Result<Tensor>,
    ) -> Result<Outcome> {
        check_not_wrapped(net)?;
        let known = self.traced.iter().position(|traced| traced.fits(inputs));
        let new = match known {
            Some(_) => None,
            None => {
                let noted = RefCell::new(Evaluated::default());
                let traced = Graph::trace_with(net, inputs, |net, inputs| {
                    let loss = loss(net, inputs)?;
                    noted.replace(Evaluated::of(&loss));
                    Ok(vec![loss])
                })?;
                let graph = traced.rewrite(&self.policy)?.graph;
                let signature = inputs.iter().map(|x| (x.dtype(), x.shape().to_vec())).collect();
                Some(Traced { signature, graph, evaluated: noted.into_inner() })
            }
        };
        let traced = new.as_ref().unwrap_or_else(|| &self.traced[known.unwrap_or_default()]);
        let run = || traced.graph.run_nth(self.runs, inputs).map(|mut outputs| outputs.swap_remove(0));
        let loss = as_pass(net, &traced.evaluated, run)?;
        let value = loss.item()?;
        let outcome = self.loss_scale.step(&mut self.optimizer, loss)?;
        self.last_loss = Some(value);
        // A graph whose loss was rejected is not kept.
        self.traced.extend(new);
        self.runs += 1;
        self.steps += u64::from(outcome == Outcome::Stepped);
        Ok(outcome)
    }

    /// Returns the unscaled loss of the last step; `None` before the first one.
    pub fn last_loss(&self) -> Option<f64> {
        self.last_loss
    }

    /// Returns the number of steps that updated the parameters.
    pub fn global_step(&self) -> u64 {
        self.steps
    }

    /// Returns the loss scale.
    pub fn loss_scale(&self) -> &LossScale {
        &self.loss_scale
    }

    /// Returns the optimizer, for changing its learning rate.
    pub fn optimizer(&mut self) -> &mut O {
        &mut self.optimizer
    }

    /// Iterates over the graphs so far, one per signature of inputs.
    pub fn graphs(&self) -> impl Iterator<Item = &Graph> {
        self.traced.iter().map(|traced| &traced.graph)
    }

    /// Drops all graphs, so that the next step records a new one.
    pub fn forget(&mut self) {
        self.traced.clear();
    }

    /// Returns the wrapped optimizer, whose steps rewrite and scale nothing: TensorFlow's
    /// `disable_mixed_precision_graph_rewrite`.
    pub fn disable(self) -> O {
        self.optimizer
    }
}

impl Traced {
    fn fits(&self, inputs: &[Tensor]) -> bool {
        let (any_batch, batch) = (self.graph.only_batch().is_none(), inputs.iter().find_map(|x| x.shape().first()));
        let traced = self.signature.iter().find_map(|(_, shape)| shape.first());
        let same = |(dtype, shape): &(DType, Vec<usize>), x: &Tensor| {
            let axes = |shape: &[usize], batch: Option<&usize>| -> Vec<Option<usize>> {
                let of = |(axis, &length): (usize, &usize)| {
                    (axis > 0 || !any_batch || Some(&length) != batch).then_some(length)
                };
                shape.iter().enumerate().map(of).collect()
            };
            *dtype == x.dtype() && axes(shape, traced) == axes(x.shape(), batch)
        };
        self.signature.len() == inputs.len() && self.signature.iter().zip(inputs).all(|(known, x)| same(known, x))
    }
}
