//! A graph as a cell of a tree.

use std::{
    collections::HashMap,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use serde::{Deserialize, Serialize};

use super::graph::{Graph, Kind};
use precast::{
    Cell, Child, DType, Param, Tensor,
    cell::{AsCell, Copies, Forward, Member, Part, PartMut, ran_in_evaluation},
    error::{Error, Result},
    policy::{GraphPolicy, Scaler},
    recording,
};

/// A network that runs as a graph, with the parameters of the original network under the same paths.
///
/// It holds two graphs: of a call in training and of one in evaluation. It trains, saves and loads like any cell.
/// Inputs are cast to the dtypes with which the graph was traced, and regions have no effect inside it. A plan that
/// lowers the surrounding cells rounds only its inputs and outputs.
///
/// In files it is `{kind: GraphCell, evaluation: {...}, training: {...}}`, each graph in the form of
/// [`Graph::to_json`]. `training` is omitted if both are the same.
#[derive(Cell, Clone, Debug, Serialize, Deserialize)]
#[cell(saved)]
#[serde(try_from = "Graphs", into = "Graphs")]
pub struct GraphCell {
    graphs: Graphs,
    trains: bool,
    /// Number of calls in training so far, shared by clones.
    runs: Arc<AtomicU64>,
}

/// The two graphs, which share the parameters of the network under its paths.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Graphs {
    evaluation: Graph,
    /// Set if a call in training differs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    training: Option<Graph>,
}

impl Member for Graphs {
    fn visit(&self, _: &str, visitor: &mut dyn FnMut(&str, Part<'_>)) {
        let mut seen = std::collections::HashSet::new();
        for node in self.evaluation.nodes.iter().chain(self.training.iter().flat_map(|graph| &graph.nodes)) {
            if let Kind::Parameter(param) = &node.kind
                && seen.insert(&node.name)
            {
                visitor(&node.name, Part::Param(param));
            }
        }
    }

    fn visit_mut(&mut self, _: &str, visitor: &mut dyn FnMut(&str, PartMut<'_>)) {
        let mut seen: HashMap<String, Param> = HashMap::new();
        for node in self.evaluation.nodes.iter_mut().chain(self.training.iter_mut().flat_map(|graph| &mut graph.nodes))
        {
            if let Kind::Parameter(param) = &mut node.kind {
                match seen.get(&node.name) {
                    Some(shown) => *param = shown.clone(),
                    None => {
                        visitor(&node.name, PartMut::Param(param));
                        seen.insert(node.name.clone(), param.clone());
                    }
                }
            }
        }
    }

    fn copied(&self, copies: &mut Copies) -> Result<Self> {
        Ok(copies.of_clone(self))
    }
}

impl From<GraphCell> for Graphs {
    fn from(cell: GraphCell) -> Self {
        cell.graphs
    }
}

impl TryFrom<Graphs> for GraphCell {
    type Error = Error;

    fn try_from(graphs: Graphs) -> Result<Self> {
        let Graphs { evaluation, mut training } = graphs;
        // Parameters that were shared before are shared again.
        let shared: HashMap<String, Param> = evaluation.named_params().into_iter().collect();
        for node in training.iter_mut().flat_map(|graph| &mut graph.nodes) {
            if let Kind::Parameter(param) = &mut node.kind
                && let Some(first) = shared.get(&node.name)
            {
                if (first.shape(), first.dtype()) != (param.shape(), param.dtype()) {
                    return Err(Error::shape(format!(
                        "the two graphs have a parameter `{}` each, and they differ",
                        node.name
                    )));
                }
                *param = first.clone();
            }
        }
        Ok(GraphCell::of(evaluation, training))
    }
}

/// Traces a network in training and in evaluation, and rewrites both graphs. They use the parameters of the network,
/// which is left in evaluation mode and is otherwise unchanged.
///
/// # Errors
/// Those of [`Graph::trace`] and of [`Graph::rewrite`]; [`ErrorKind::Value`](precast::ErrorKind::Value) for a network that has adapters, a `to_float` or low weights, which
/// would be rewritten twice.
///
/// ```
/// use precast::{layers::{Dense, Rng}, prelude::*};
/// use precast_graph::{GraphPolicy, rewrite};
/// let mut net = Child::new(Dense::new(4, 2, &mut Rng::seed(1)));
/// let low = rewrite(&mut net, &[Tensor::ones(&[3, 4], DType::F32)], &GraphPolicy::named("graph-bf16")?)?;
/// assert_eq!(low.named_params()[0].0, "weight");
/// assert_eq!(low.call(&Tensor::ones(&[5, 4], DType::F32))?.dtype(), DType::F32);
/// # Ok::<(), precast::Error>(())
/// ```
pub fn rewrite<C: ?Sized + AsCell>(
    net: &mut Child<C>,
    inputs: &[Tensor],
    policy: &GraphPolicy,
) -> Result<Child<GraphCell>> {
    check_not_wrapped(net)?;
    let mut cell = GraphCell::trace(net, inputs)?;
    cell.graphs.evaluation = cell.graphs.evaluation.rewrite(policy)?.graph;
    cell.graphs.training =
        cell.graphs.training.map(|graph| Ok::<_, Error>(graph.rewrite(policy)?.graph)).transpose()?;
    let required = policy.scaler == Scaler::Required;
    net.named_params().iter().for_each(|(_, param)| _ = param.require_scaler(required));
    Ok(Child::new(cell))
}

/// Refuses a network whose cells are already cast.
pub(crate) fn check_not_wrapped<C: ?Sized + AsCell>(net: &Child<C>) -> Result<()> {
    let mut wrapped = None;
    net.walk(&mut |entry| {
        let what = match entry.slot {
            _ if wrapped.is_some() => return,
            ref slot if slot.cell.downcast_ref::<GraphCell>().is_some() => {
                "is a rewritten graph already; rewrite the network that it was made of"
            }
            ref slot if slot.adapter.is_some() => {
                "has an adapter; only a network without can be rewritten: undo the plan"
            }
            ref slot if slot.to_float.is_some() => "has a `to_float`; only a network without can be rewritten",
            _ => return,
        };
        let path = if entry.path.is_empty() { "the root cell".into() } else { format!("cell `{}`", entry.path) };
        wrapped = Some(Error::value(format!("{path} {what}")));
    });
    wrapped.map_or(Ok(()), Err)
}

impl GraphCell {
    /// Traces the graphs of a network without rewriting them. The network is left in evaluation mode.
    ///
    /// # Errors
    /// Those of [`Graph::trace`].
    pub fn trace<C: ?Sized + AsCell>(net: &mut Child<C>, inputs: &[Tensor]) -> Result<GraphCell> {
        net.set_train(true);
        let training = Graph::trace(net, inputs);
        net.set_train(false);
        let (training, evaluation) = (training?, Graph::trace(net, inputs)?);
        let differs = training.to_string() != evaluation.to_string();
        Ok(GraphCell::of(evaluation, differs.then_some(training)))
    }

    fn of(evaluation: Graph, training: Option<Graph>) -> GraphCell {
        GraphCell { graphs: Graphs { evaluation, training }, trains: false, runs: Arc::default() }
    }

    /// Returns the current graph: that of training, or that of evaluation.
    pub fn graph(&self) -> &Graph {
        match &self.graphs.training {
            Some(training) if self.trains => training,
            _ => &self.graphs.evaluation,
        }
    }

    fn run(&self, inputs: &[Tensor]) -> Result<Vec<Tensor>> {
        let graph = self.graph();
        let wanted = graph.inputs().iter().map(|&node| graph.nodes()[node].outputs[0].dtype);
        let cast = |(x, to): (&Tensor, DType)| {
            if x.dtype().is_castable() && to.is_castable() { x.cast(to) } else { x.clone() }
        };
        let cast: Vec<Tensor> = match inputs.len() == graph.inputs().len() {
            true => inputs.iter().zip(wanted).map(cast).collect(),
            false => inputs.to_vec(),
        };
        if !self.trains {
            if self.graphs.training.is_some() {
                ran_in_evaluation();
            }
            return graph.run(&cast);
        }
        let run = self.runs.fetch_add(1, Ordering::Relaxed);
        let runs = self.runs.clone();
        recording::on_end(move || _ = runs.fetch_sub(1, Ordering::Relaxed));
        graph.run_nth(run, &cast)
    }
}

impl Forward for GraphCell {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let mut outputs = self.run(std::slice::from_ref(x))?;
        match outputs.len() {
            1 => Ok(outputs.swap_remove(0)),
            n => Err(Error::shape(format!("the graph has {n} outputs; call it with `call_many`"))),
        }
    }

    fn forward_many(&self, inputs: &[Tensor]) -> Result<Vec<Tensor>> {
        self.run(inputs)
    }

    fn counters(&self) -> Vec<u64> {
        vec![self.runs.load(Ordering::Relaxed)]
    }

    fn set_counters(&mut self, counters: &[u64]) -> Result<()> {
        counters.iter().for_each(|runs| self.runs.store(*runs, Ordering::Relaxed));
        Ok(())
    }

    fn on_train(&mut self, training: bool) {
        self.trains = training;
    }
}
