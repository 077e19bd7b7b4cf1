//! Single steps of recurrent networks.
//!
//! The formulas and the order of the gates in the weights are torch's (`torch/nn/modules/rnn.py`) and MindSpore's
//! (`nn/layer/rnn_cells.py`).

use serde::{Deserialize, Serialize};

use super::{
    init::{Init, Rng},
    spec::written_as_spec,
};
use crate::{
    Param, RecurrentWeights, Tensor,
    cell::{Cell, Child, Forward},
    error::{Error, Result},
    options::options,
};

/// Options of a recurrent cell with `GATES` gates.
#[options(of_cell)]
#[derive(Clone, Debug, PartialEq)]
pub struct RecurrentSpec<const GATES: usize> {
    /// Length of the last axis of the input.
    pub input_size: usize,
    /// Length of the last axis of the state.
    pub hidden_size: usize,
    /// `true` when biases are added.
    #[option(default = true)]
    pub bias: bool,
}

impl<const GATES: usize> RecurrentSpec<GATES> {
    /// Builds the cell. All its parameters are uniform within `1 / sqrt(hidden_size)`, as in torch and MindSpore.
    ///
    /// # Errors
    /// [`ErrorKind::Shape`](crate::ErrorKind::Shape) when the weights do not fit into memory.
    pub fn build(self, rng: &mut Rng) -> Result<Recurrent<GATES>> {
        let hidden = self.hidden_size;
        let rows = hidden.saturating_mul(GATES);
        let mut draw = |shape: &[usize]| Init::uniform_of(hidden).sample(shape, rng).map(Param::new);
        Ok(Recurrent {
            weight_ih: draw(&[rows, self.input_size])?,
            weight_hh: draw(&[rows, hidden])?,
            bias_ih: self.bias.then(|| draw(&[rows])).transpose()?,
            bias_hh: self.bias.then(|| draw(&[rows])).transpose()?,
            spec: self,
        })
    }
}

/// The weights of one recurrent step: [`RNNCell`], [`GRUCell`] and [`LSTMCell`].
///
/// Inputs are `[..., input_size]`, states `[..., hidden_size]`. Run it through its slot with `step`, or as `dyn Cell`
/// with [`Child::call_many`] on the input and the state. In files:
/// `{kind: LSTMCell, input_size: 8, hidden_size: 16}`, and `bias: false`.
///
/// ```
/// use precast::prelude::*;
/// let lstm = Child::new(LSTMCell::new(8, 16, &mut Rng::seed(0)));
/// let (mut h, mut c) = (Tensor::zeros(&[2, 16], DType::F32), Tensor::zeros(&[2, 16], DType::F32));
/// for x in [Tensor::ones(&[2, 8], DType::F32), Tensor::zeros(&[2, 8], DType::F32)] {
///     (h, c) = lstm.step(&x, (&h, &c))?;
/// }
/// assert_eq!(h.shape(), [2, 16]);
/// # Ok::<(), precast::Error>(())
/// ```
#[derive(Cell, Clone, Debug, Serialize, Deserialize)]
#[cell(saved, kinds(RNNCell, GRUCell, LSTMCell))]
#[serde(try_from = "RecurrentSpec<GATES>", into = "RecurrentSpec<GATES>")]
pub struct Recurrent<const GATES: usize> {
    /// Weights of the input, gate by gate: `[GATES * hidden_size, input_size]`.
    pub weight_ih: Param,
    /// Weights of the state: `[GATES * hidden_size, hidden_size]`.
    pub weight_hh: Param,
    /// `[GATES * hidden_size]`.
    pub bias_ih: Option<Param>,
    /// `[GATES * hidden_size]`.
    pub bias_hh: Option<Param>,
    spec: RecurrentSpec<GATES>,
}

/// One step of an RNN: `h' = tanh(W_ih x + b_ih + W_hh h + b_hh)`.
pub type RNNCell = Recurrent<1>;
/// Options of an [`RNNCell`].
pub type RNNCellSpec = RecurrentSpec<1>;

/// One step of a GRU, with gates in the order r, z, n:
/// `r = sigmoid(i_r + h_r)`, `z = sigmoid(i_z + h_z)`, `n = tanh(i_n + r * h_n)`, `h' = (1 - z) * n + z * h`,
/// with `i = W_ih x + b_ih` and `h_* = W_hh h + b_hh`.
pub type GRUCell = Recurrent<3>;
/// Options of a [`GRUCell`].
pub type GRUCellSpec = RecurrentSpec<3>;

/// One step of an LSTM, with gates in the order i, f, g, o, all of `W_ih x + b_ih + W_hh h + b_hh`:
/// `c' = sigmoid(f) * c + sigmoid(i) * tanh(g)`, `h' = sigmoid(o) * tanh(c')`.
pub type LSTMCell = Recurrent<4>;
/// Options of an [`LSTMCell`].
pub type LSTMCellSpec = RecurrentSpec<4>;

written_as_spec!(Recurrent<GATES>, RecurrentSpec<GATES>, const GATES);

impl<const GATES: usize> Recurrent<GATES> {
    /// Creates a cell with biases; see [`RecurrentSpec::build`] for the initial values.
    ///
    /// # Panics
    /// When the weights do not fit into memory, as with `Vec`.
    pub fn new(input_size: usize, hidden_size: usize, rng: &mut Rng) -> Self {
        RecurrentSpec::new(input_size, hidden_size).build(rng).expect("weights that fit into memory")
    }

    /// Calls `f` with the weights; a cell has both biases or none.
    pub(super) fn with_weights<R>(&self, f: impl FnOnce(&RecurrentWeights<'_>) -> R) -> R {
        let (ih, hh) = (self.weight_ih.tensor(), self.weight_hh.tensor());
        let biases = self.bias_ih.as_ref().zip(self.bias_hh.as_ref()).map(|(a, b)| (a.tensor(), b.tensor()));
        f(&RecurrentWeights { ih: &ih, hh: &hh, biases: biases.as_ref().map(|(a, b)| (a, b)) })
    }
}

impl RNNCell {
    fn next(&self, x: &Tensor, h: &Tensor) -> Result<Tensor> {
        self.with_weights(|weights| x.rnn_cell(weights, h, false))
    }
}

impl GRUCell {
    fn next(&self, x: &Tensor, h: &Tensor) -> Result<Tensor> {
        self.with_weights(|weights| x.gru_cell(weights, h))
    }
}

impl LSTMCell {
    fn next(&self, x: &Tensor, (h, c): (&Tensor, &Tensor)) -> Result<(Tensor, Tensor)> {
        self.with_weights(|weights| x.lstm_cell(weights, (h, c)))
    }
}

pub(super) fn wrong_inputs(kind: &str, wanted: &str, got: usize) -> Error {
    Error::shape(format!("{kind} takes {wanted}, got {got} tensors"))
}

impl Forward for RNNCell {
    fn forward_many(&self, inputs: &[Tensor]) -> Result<Vec<Tensor>> {
        match inputs {
            [x, h] => Ok(vec![self.next(x, h)?]),
            _ => Err(wrong_inputs("a RNNCell", "x and h", inputs.len())),
        }
    }
}

impl Forward for GRUCell {
    fn forward_many(&self, inputs: &[Tensor]) -> Result<Vec<Tensor>> {
        match inputs {
            [x, h] => Ok(vec![self.next(x, h)?]),
            _ => Err(wrong_inputs("a GRUCell", "x and h", inputs.len())),
        }
    }
}

impl Forward for LSTMCell {
    fn forward_many(&self, inputs: &[Tensor]) -> Result<Vec<Tensor>> {
        match inputs {
            [x, h, c] => self.next(x, (h, c)).map(|(h, c)| vec![h, c]),
            _ => Err(wrong_inputs("a LSTMCell", "x, h and c", inputs.len())),
        }
    }
}

impl Child<RNNCell> {
    /// Runs one step: `x [..., input_size]` and the state `[..., hidden_size]` give the next state.
    ///
    /// # Errors
    /// [`ErrorKind::Shape`](crate::ErrorKind::Shape) for incompatible shapes.
    pub fn step(&self, x: &Tensor, h: &Tensor) -> Result<Tensor> {
        self.with((x, h), |cell, (x, h)| cell.next(&x, &h))
    }
}

impl Child<GRUCell> {
    /// Runs one step: `x [..., input_size]` and the state `[..., hidden_size]` give the next state.
    ///
    /// # Errors
    /// [`ErrorKind::Shape`](crate::ErrorKind::Shape) for incompatible shapes.
    pub fn step(&self, x: &Tensor, h: &Tensor) -> Result<Tensor> {
        self.with((x, h), |cell, (x, h)| cell.next(&x, &h))
    }
}

impl Child<LSTMCell> {
    /// Runs one step: `x [..., input_size]` and the state `(h, c)`, each `[..., hidden_size]`, give the next `(h, c)`.
    ///
    /// # Errors
    /// [`ErrorKind::Shape`](crate::ErrorKind::Shape) for incompatible shapes.
    pub fn step(&self, x: &Tensor, state: (&Tensor, &Tensor)) -> Result<(Tensor, Tensor)> {
        self.with((x, state), |cell, (x, (h, c))| cell.next(&x, (&h, &c)))
    }
}
