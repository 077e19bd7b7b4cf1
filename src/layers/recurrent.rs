//! One step of recurrent networks.
//!
//! The formulas and the order of the gates in the weights are torch's (`torch/nn/modules/rnn.py`) and MindSpore's
//! (`nn/layer/rnn_cells.py`). A step is one op. Under lists that do not name that op, as MindSpore's, the step is written
//! with ordinary ops, and each goes by the lists.

use serde::{Deserialize, Serialize};

use super::{
    init::{Init, Rng},
    spec::{is_yes, setters, written_as_spec, yes},
};
use crate::{
    Op, RecurrentWeights, Tensor,
    cell::{Cell, Child, Param},
    children,
    error::{Error, Result},
    precision::{self, Frame},
};

/// Options of a recurrent cell with so many gates.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RecurrentSpec<const GATES: usize> {
    /// Length of the last axis of the input.
    pub input_size: usize,
    /// Length of the last axis of the state.
    pub hidden_size: usize,
    /// Whether biases are added.
    #[serde(default = "yes", skip_serializing_if = "is_yes")]
    pub bias: bool,
}

impl<const GATES: usize> RecurrentSpec<GATES> {
    /// With biases.
    pub fn new(input_size: usize, hidden_size: usize) -> Self {
        RecurrentSpec { input_size, hidden_size, bias: true }
    }

    setters! {
        /// Whether biases are added.
        bias: bool;
    }

    /// The cell, all its parameters uniform within `1 / sqrt(hidden_size)`, as in torch and MindSpore.
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
/// Inputs are `[..., input_size]`, states `[..., hidden_size]`. Run it through its slot with `step`, or behind
/// `dyn Cell` with [`Child::call_many`] on the input and the state. In files:
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
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(try_from = "RecurrentSpec<GATES>", into = "RecurrentSpec<GATES>")]
pub struct Recurrent<const GATES: usize> {
    /// From the input, the gates one after the other: `[GATES * hidden_size, input_size]`.
    pub weight_ih: Param,
    /// From the state: `[GATES * hidden_size, hidden_size]`.
    pub weight_hh: Param,
    /// `[GATES * hidden_size]`.
    pub bias_ih: Option<Param>,
    /// `[GATES * hidden_size]`.
    pub bias_hh: Option<Param>,
    spec: RecurrentSpec<GATES>,
}

/// `h' = tanh(W_ih x + b_ih + W_hh h + b_hh)`.
pub type RNNCell = Recurrent<1>;
/// Options of an [`RNNCell`].
pub type RNNCellSpec = RecurrentSpec<1>;

/// Gates in the order r, z, n:
/// `r = sigmoid(i_r + h_r)`, `z = sigmoid(i_z + h_z)`, `n = tanh(i_n + r * h_n)`, `h' = (1 - z) * n + z * h`,
/// with `i = W_ih x + b_ih` and `h_* = W_hh h + b_hh`.
pub type GRUCell = Recurrent<3>;
/// Options of a [`GRUCell`].
pub type GRUCellSpec = RecurrentSpec<3>;

/// Gates in the order i, f, g, o, all of `W_ih x + b_ih + W_hh h + b_hh`:
/// `c' = sigmoid(f) * c + sigmoid(i) * tanh(g)`, `h' = sigmoid(o) * tanh(c')`.
pub type LSTMCell = Recurrent<4>;
/// Options of an [`LSTMCell`].
pub type LSTMCellSpec = RecurrentSpec<4>;

written_as_spec!(Recurrent<GATES>, RecurrentSpec<GATES>, const GATES);

impl<const GATES: usize> Recurrent<GATES> {
    /// A cell with biases; see [`RecurrentSpec::build`] for the initial values.
    ///
    /// # Panics
    /// When the weights do not fit into memory, as `Vec` does.
    pub fn new(input_size: usize, hidden_size: usize, rng: &mut Rng) -> Self {
        RecurrentSpec::new(input_size, hidden_size).build(rng).expect("weights that fit into memory")
    }

    /// Calls `f` with the weights; a cell has both biases or none.
    pub(super) fn with_weights<R>(&self, f: impl FnOnce(&RecurrentWeights<'_>) -> R) -> R {
        let (ih, hh) = (self.weight_ih.tensor(), self.weight_hh.tensor());
        let biases = self.bias_ih.as_ref().zip(self.bias_hh.as_ref()).map(|(a, b)| (a.tensor(), b.tensor()));
        f(&RecurrentWeights { ih: &ih, hh: &hh, biases: biases.as_ref().map(|(a, b)| (a, b)) })
    }

    /// Whether a step is run as the ops it is made of: where lists decide and do not name it.
    fn in_pieces(&self, step: Op) -> bool {
        let unnamed = matches!(precision::current(), Some(Frame::Lists(rules)) if !rules.ops.contains_key(&step));
        unnamed || self.bias_ih.is_some() != self.bias_hh.is_some()
    }

    /// What the input and the state bring to the gates, each `[..., GATES * hidden_size]`.
    fn gates(&self, x: &Tensor, h: &Tensor) -> Result<(Tensor, Tensor)> {
        self.check_state(x, h)?;
        let bias = |bias: &Option<Param>| bias.as_ref().map(Param::tensor);
        let from_input = x.linear(&self.weight_ih.tensor(), bias(&self.bias_ih).as_ref())?;
        let from_state = h.linear(&self.weight_hh.tensor(), bias(&self.bias_hh).as_ref())?;
        Ok((from_input, from_state))
    }

    /// A state of another batch would be broadcast in silence.
    fn check_state(&self, x: &Tensor, state: &Tensor) -> Result<()> {
        let batch = x.shape().split_last().map_or(&[][..], |(_, batch)| batch);
        if state.shape().split_last() != Some((&self.spec.hidden_size, batch)) {
            return Err(Error::shape(format!(
                "an input of shape {:?} goes with a state of shape {:?}, got {:?}",
                x.shape(),
                [batch, &[self.spec.hidden_size]].concat(),
                state.shape()
            )));
        }
        Ok(())
    }
}

impl RNNCell {
    fn next(&self, x: &Tensor, h: &Tensor) -> Result<Tensor> {
        if !self.in_pieces(Op::RnnCell) {
            return self.with_weights(|weights| x.rnn_cell(weights, h, false));
        }
        let (from_input, from_state) = self.gates(x, h)?;
        from_input.add(&from_state)?.tanh()
    }
}

impl GRUCell {
    fn next(&self, x: &Tensor, h: &Tensor) -> Result<Tensor> {
        if !self.in_pieces(Op::GruCell) {
            return self.with_weights(|weights| x.gru_cell(weights, h));
        }
        let (from_input, from_state) = self.gates(x, h)?;
        let [i_r, i_z, i_n] = parts(&from_input)?;
        let [h_r, h_z, h_n] = parts(&from_state)?;
        let r = i_r.add(&h_r)?.sigmoid()?;
        let z = i_z.add(&h_z)?.sigmoid()?;
        let n = i_n.add(&r.mul(&h_n)?)?.tanh()?;
        // (1 - z) * n + z * h, with one product less
        n.add(&z.mul(&h.sub(&n)?)?)
    }
}

impl LSTMCell {
    fn next(&self, x: &Tensor, (h, c): (&Tensor, &Tensor)) -> Result<(Tensor, Tensor)> {
        if !self.in_pieces(Op::LstmCell) {
            return self.with_weights(|weights| x.lstm_cell(weights, (h, c)));
        }
        self.check_state(x, c)?;
        let (from_input, from_state) = self.gates(x, h)?;
        let [i, f, g, o] = parts(&from_input.add(&from_state)?)?;
        let c = f.sigmoid()?.mul(c)?.add(&i.sigmoid()?.mul(&g.tanh()?)?)?;
        let h = o.sigmoid()?.mul(&c.tanh()?)?;
        Ok((h, c))
    }
}

/// The gates, which stand one after the other on the last axis.
fn parts<const GATES: usize>(x: &Tensor) -> Result<[Tensor; GATES]> {
    let parts = x.chunk(GATES, -1)?;
    parts.try_into().map_err(|parts: Vec<_>| Error::shape(format!("{GATES} gates expected, got {}", parts.len())))
}

pub(super) fn wrong_inputs(kind: &str, wanted: &str, got: usize) -> Error {
    Error::shape(format!("{kind} takes {wanted}, got {got} tensors"))
}

#[typetag::serde(name = "RNNCell")]
impl Cell for RNNCell {
    children!(Self { weight_ih, weight_hh, bias_ih, bias_hh, spec: _ });

    fn forward_many(&self, inputs: &[Tensor]) -> Result<Vec<Tensor>> {
        match inputs {
            [x, h] => Ok(vec![self.next(x, h)?]),
            _ => Err(wrong_inputs("a RNNCell", "x and h", inputs.len())),
        }
    }
}

#[typetag::serde(name = "GRUCell")]
impl Cell for GRUCell {
    children!(Self { weight_ih, weight_hh, bias_ih, bias_hh, spec: _ });

    fn forward_many(&self, inputs: &[Tensor]) -> Result<Vec<Tensor>> {
        match inputs {
            [x, h] => Ok(vec![self.next(x, h)?]),
            _ => Err(wrong_inputs("a GRUCell", "x and h", inputs.len())),
        }
    }
}

#[typetag::serde(name = "LSTMCell")]
impl Cell for LSTMCell {
    children!(Self { weight_ih, weight_hh, bias_ih, bias_hh, spec: _ });

    fn forward_many(&self, inputs: &[Tensor]) -> Result<Vec<Tensor>> {
        match inputs {
            [x, h, c] => self.next(x, (h, c)).map(|(h, c)| vec![h, c]),
            _ => Err(wrong_inputs("a LSTMCell", "x, h and c", inputs.len())),
        }
    }
}

impl Child<RNNCell> {
    /// One step: `x [..., input_size]` and the state `[..., hidden_size]` give the next state.
    ///
    /// # Errors
    /// [`ErrorKind::Shape`](crate::ErrorKind::Shape) when the shapes do not go together.
    pub fn step(&self, x: &Tensor, h: &Tensor) -> Result<Tensor> {
        self.with((x, h), |cell, (x, h)| cell.next(&x, &h))
    }
}

impl Child<GRUCell> {
    /// One step: `x [..., input_size]` and the state `[..., hidden_size]` give the next state.
    ///
    /// # Errors
    /// [`ErrorKind::Shape`](crate::ErrorKind::Shape) when the shapes do not go together.
    pub fn step(&self, x: &Tensor, h: &Tensor) -> Result<Tensor> {
        self.with((x, h), |cell, (x, h)| cell.next(&x, &h))
    }
}

impl Child<LSTMCell> {
    /// One step: `x [..., input_size]` and the state `(h, c)`, each `[..., hidden_size]`, give the next `(h, c)`.
    ///
    /// # Errors
    /// [`ErrorKind::Shape`](crate::ErrorKind::Shape) when the shapes do not go together.
    pub fn step(&self, x: &Tensor, state: (&Tensor, &Tensor)) -> Result<(Tensor, Tensor)> {
        self.with((x, state), |cell, (x, (h, c))| cell.next(&x, (&h, &c)))
    }
}
