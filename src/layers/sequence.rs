//! Recurrent networks over a sequence: `nn.RNN`, `nn.GRU` and `nn.LSTM` of torch and MindSpore, batch first.
//!
//! Dropout between layers is not included: single-layer cells with [`Dropout`](super::Dropout) between them do the
//! same.

use serde::{Deserialize, Serialize};

use super::{
    init::Rng,
    recurrent::{Recurrent, RecurrentSpec, wrong_inputs},
    spec::written_as_spec,
};
use crate::{
    Cell, Tensor,
    cell::{Child, Copies, Forward, Member, Part, PartMut},
    error::{Error, Result},
    options::{Options, options},
};

/// Options of a recurrent network over a sequence, with `GATES` gates.
#[options(of_cell)]
#[derive(Clone, Debug, PartialEq)]
pub struct RecurrentLayersSpec<const GATES: usize> {
    /// Length of the last axis of the input.
    pub input_size: usize,
    /// Length of the last axis of the state.
    pub hidden_size: usize,
    /// Number of layers, each reading the output of the previous one.
    // The bound keeps a few words in a file from exhausting memory.
    #[option(default = 1, at_least = 1, at_most = 4096)]
    pub num_layers: usize,
    /// `true` when biases are added.
    #[option(default = true)]
    pub bias: bool,
    /// `true` when each layer also runs backwards in time, which doubles the length of its output.
    #[option(default = false)]
    pub bidirectional: bool,
    /// `true` when an [`RNN`] uses the rectifier instead of tanh.
    #[option(default = false, no_setter)]
    pub relu: bool,
}

impl<const GATES: usize> RecurrentLayersSpec<GATES> {
    fn directions(&self) -> usize {
        if self.bidirectional { 2 } else { 1 }
    }

    /// Builds the cell. All its parameters are uniform within `1 / sqrt(hidden_size)`, as in torch and MindSpore.
    ///
    /// # Errors
    /// [`ErrorKind::Value`](crate::ErrorKind::Value) for a number of layers outside 1 to 4096, or for `relu` with gates;
    /// [`ErrorKind::Shape`](crate::ErrorKind::Shape) when the weights do not fit into memory.
    pub fn build(self, rng: &mut Rng) -> Result<RecurrentLayers<GATES>> {
        self.check()?;
        if self.relu && GATES != 1 {
            return Err(Error::value("relu is true: only an RNN has a choice"));
        }
        let output_size = self.hidden_size.saturating_mul(self.directions());
        let mut weights = Vec::new();
        for layer in 0..self.num_layers {
            let input_size = if layer == 0 { self.input_size } else { output_size };
            for _ in 0..self.directions() {
                weights.push(RecurrentSpec::new(input_size, self.hidden_size).bias(self.bias).build(rng)?);
            }
        }
        let layers = Layers { weights, directions: self.directions() };
        Ok(RecurrentLayers { layers, spec: self })
    }
}

impl RecurrentLayersSpec<1> {
    /// Sets whether the rectifier replaces tanh.
    #[must_use]
    pub fn relu(mut self, relu: bool) -> Self {
        self.relu = relu;
        self
    }
}

/// Layers of recurrent cells over a sequence: [`RNN`], [`GRU`] and [`LSTM`].
///
/// The input is `[batch, time, input_size]`, the output `[batch, time, hidden_size]`; the backward direction, if any,
/// is concatenated on the last axis. States are `[num_layers * directions, batch, hidden_size]`, by default 0.
/// [`Child::call`] returns the output; `run`, or as `dyn Cell` [`Child::call_many`] on the input and optional states,
/// also returns the last states. The parameters have torch's names: `weight_ih_l0`, `weight_hh_l0`, `bias_ih_l0`,
/// `bias_hh_l0`, then those of `l0_reverse`, `l1` and so on. In files: `{kind: LSTM, input_size: 8, hidden_size: 16}`,
/// and `num_layers: 2`, `bias: false`, `bidirectional: true`, and `relu: true` for an RNN.
///
/// A layer is one op in the dtype of its region. In 16 bit, its products and gates are computed in f32, and c stays in
/// f32 from the first step to the last; the state h is rounded after each step.
///
/// ```
/// use precast::prelude::*;
/// let mut rng = Rng::seed(0);
/// let lstm = Child::new(LSTMSpec::new(8, 16).num_layers(2).build(&mut rng)?);
/// let x = Tensor::ones(&[4, 10, 8], DType::F32);
/// let (y, (h, c)) = lstm.run(&x, None)?;
/// assert_eq!((y.shape(), h.shape(), c.shape()), (&[4, 10, 16][..], &[2, 4, 16][..], &[2, 4, 16][..]));
/// let (more, _) = lstm.run(&x, Some((&h, &c)))?;      // continues where it ended
///
/// let net = Child::of(sequential![GRU::new(8, 16, &mut rng), Dense::new(16, 3, &mut rng)]);
/// assert_eq!(net.call(&x)?.shape(), [4, 10, 3]);
/// # Ok::<(), precast::Error>(())
/// ```
#[derive(Cell, Clone, Debug, Serialize, Deserialize)]
#[cell(saved, kinds(RNN, GRU, LSTM))]
#[serde(try_from = "RecurrentLayersSpec<GATES>", into = "RecurrentLayersSpec<GATES>")]
pub struct RecurrentLayers<const GATES: usize> {
    layers: Layers<GATES>,
    spec: RecurrentLayersSpec<GATES>,
}

/// The weights, layer by layer, with directions separate.
#[derive(Clone, Debug)]
struct Layers<const GATES: usize> {
    weights: Vec<Recurrent<GATES>>,
    directions: usize,
}

impl<const GATES: usize> Layers<GATES> {
    /// Returns the suffix of torch's parameter names for the i-th layer, counting directions.
    fn suffix(&self, i: usize) -> String {
        format!("_l{}{}", i / self.directions, if i % self.directions == 1 { "_reverse" } else { "" })
    }
}

impl<const GATES: usize> Member for Layers<GATES>
where
    Recurrent<GATES>: Cell,
{
    fn visit(&self, _: &str, visitor: &mut dyn FnMut(&str, Part<'_>)) {
        for (i, layer) in self.weights.iter().enumerate() {
            let suffix = self.suffix(i);
            layer.visit(&mut |name, node| visitor(&format!("{name}{suffix}"), node));
        }
    }

    fn visit_mut(&mut self, _: &str, visitor: &mut dyn FnMut(&str, PartMut<'_>)) {
        for i in 0..self.weights.len() {
            let suffix = self.suffix(i);
            self.weights[i].visit_mut(&mut |name, node| visitor(&format!("{name}{suffix}"), node));
        }
    }

    fn copied(&self, copies: &mut Copies) -> Result<Self> {
        Ok(copies.of_clone(self))
    }
}

/// Layers of [`RNNCell`](super::RNNCell)s.
pub type RNN = RecurrentLayers<1>;
/// Options of an [`RNN`].
pub type RNNSpec = RecurrentLayersSpec<1>;
/// Layers of [`GRUCell`](super::GRUCell)s.
pub type GRU = RecurrentLayers<3>;
/// Options of a [`GRU`].
pub type GRUSpec = RecurrentLayersSpec<3>;
/// Layers of [`LSTMCell`](super::LSTMCell)s.
pub type LSTM = RecurrentLayers<4>;
/// Options of an [`LSTM`].
pub type LSTMSpec = RecurrentLayersSpec<4>;

written_as_spec!(RecurrentLayers<GATES>, RecurrentLayersSpec<GATES>, const GATES);

impl<const GATES: usize> RecurrentLayers<GATES> {
    /// Creates one layer with biases; see [`RecurrentLayersSpec::build`] for the initial values.
    ///
    /// # Panics
    /// When the weights do not fit into memory, as with `Vec`.
    pub fn new(input_size: usize, hidden_size: usize, rng: &mut Rng) -> Self {
        RecurrentLayersSpec::new(input_size, hidden_size).build(rng).expect("weights that fit into memory")
    }

    /// Returns the weights, layer by layer, with directions separate.
    pub fn layers(&self) -> &[Recurrent<GATES>] {
        &self.layers.weights
    }

    /// Returns the output, and the last states of each layer: two for an LSTM.
    fn over(&self, x: &Tensor, states: &[&Tensor]) -> Result<(Tensor, Vec<Vec<Tensor>>)> {
        let wanted = [self.layers.weights.len(), x.shape().first().copied().unwrap_or(0), self.spec.hidden_size];
        if let Some(state) = states.iter().find(|state| state.shape() != wanted) {
            let (x, state) = (x.shape(), state.shape());
            let message = format!("an input of shape {x:?} goes with states of shape {wanted:?}, got {state:?}");
            return Err(Error::shape(message));
        }
        let mut last = Vec::new();
        let mut y = x.clone();
        for layer in self.layers.weights.chunks(self.layers.directions) {
            let mut outputs = Vec::new();
            for (direction, weights) in layer.iter().enumerate() {
                let first = states.iter().map(|state| state.at(0, last.len())).collect::<Result<Vec<_>>>()?;
                let (output, states) = self.one(weights, &y, &first, direction == 1)?;
                outputs.push(output);
                last.push(states);
            }
            y = match &outputs[..] {
                [output] => output.clone(),
                outputs => Tensor::concat(&outputs.iter().collect::<Vec<_>>(), -1)?,
            };
        }
        Ok((y, last))
    }

    /// Runs one layer in one direction.
    fn one(
        &self,
        weights: &Recurrent<GATES>,
        x: &Tensor,
        first: &[Tensor],
        reverse: bool,
    ) -> Result<(Tensor, Vec<Tensor>)> {
        weights.with_weights(|weights| match GATES {
            4 => {
                let first = if let [h, c] = first { Some((h, c)) } else { None };
                x.lstm(weights, first, reverse).map(|(y, (h, c))| (y, vec![h, c]))
            }
            3 => x.gru(weights, first.first(), reverse).map(|(y, h)| (y, vec![h])),
            _ => x.rnn(weights, first.first(), self.spec.relu, reverse).map(|(y, h)| (y, vec![h])),
        })
    }

    /// As [`over`](Self::over), with the states of all layers stacked.
    fn run(&self, x: &Tensor, states: &[&Tensor]) -> Result<Vec<Tensor>> {
        let (y, last) = self.over(x, states)?;
        let mut all = vec![y];
        for state in 0..last[0].len() {
            all.push(Tensor::stack(&last.iter().map(|states| &states[state]).collect::<Vec<_>>(), 0)?);
        }
        Ok(all)
    }
}

macro_rules! forward {
    ($cell:ident, $called:literal, $states:literal, $takes:literal) => {
        impl Forward for $cell {
            fn forward(&self, x: &Tensor) -> Result<Tensor> {
                Ok(self.over(x, &[])?.0)
            }

            fn forward_many(&self, inputs: &[Tensor]) -> Result<Vec<Tensor>> {
                match inputs {
                    [x, states @ ..] if states.is_empty() || states.len() == $states => {
                        self.run(x, &states.iter().collect::<Vec<_>>())
                    }
                    _ => Err(wrong_inputs($called, $takes, inputs.len())),
                }
            }
        }
    };
}
forward!(RNN, "an RNN", 1, "x, or x and h");
forward!(GRU, "a GRU", 1, "x, or x and h");
forward!(LSTM, "an LSTM", 2, "x, or x, h and c");

macro_rules! run_with_one_state {
    ($cell:ident) => {
        impl Child<$cell> {
            /// Runs the whole sequence: `x [batch, time, input_size]` and optional initial states
            /// `[num_layers * directions, batch, hidden_size]` give the output and the last states.
            ///
            /// # Errors
            /// [`ErrorKind::Shape`](crate::ErrorKind::Shape) for incompatible shapes or a time axis of length 0.
            pub fn run(&self, x: &Tensor, h: Option<&Tensor>) -> Result<(Tensor, Tensor)> {
                self.with((x, h), |cell, (x, h)| {
                    let mut all = cell.run(&x, &h.iter().collect::<Vec<_>>())?;
                    let h = all.remove(1);
                    Ok((all.remove(0), h))
                })
            }
        }
    };
}
run_with_one_state!(RNN);
run_with_one_state!(GRU);

impl Child<LSTM> {
    /// Runs the whole sequence: `x [batch, time, input_size]` and optional initial states `(h, c)`, each
    /// `[num_layers * directions, batch, hidden_size]`, give the output and the last states.
    ///
    /// # Errors
    /// [`ErrorKind::Shape`](crate::ErrorKind::Shape) for incompatible shapes or a time axis of length 0.
    pub fn run(&self, x: &Tensor, state: Option<(&Tensor, &Tensor)>) -> Result<(Tensor, (Tensor, Tensor))> {
        self.with((x, state), |cell, (x, state)| {
            let states: Vec<&Tensor> = state.iter().flat_map(|(h, c)| [h, c]).collect();
            let mut all = cell.run(&x, &states)?;
            let (c, h) = (all.remove(2), all.remove(1));
            Ok((all.remove(0), (h, c)))
        })
    }
}
