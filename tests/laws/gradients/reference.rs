//! Recurrent steps and attention as formulas in f64 that round to 16 bit where the ops round: the state after each
//! step, the numbers kept for the backward pass, and the gradients of gates and scores, which products read. Everything
//! else is exact, so a 16-bit gradient is off by its own rounding.

use precast::{DType, DType::F64, Result, Tensor};

/// Step computed from the gates.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Kind {
    Tanh,
    Relu,
    Gru,
    Lstm,
}

/// Inputs of a layer: `ih` and `hh` are `[gates * hidden, ...]`.
pub struct Layer<'a> {
    pub kind: Kind,
    pub ih: &'a Tensor,
    pub hh: &'a Tensor,
    pub biases: Option<(&'a Tensor, &'a Tensor)>,
    pub low: DType,
}

/// A state, and its value with only h rounded.
#[derive(Clone)]
pub struct State {
    pub h: Tensor,
    /// Cell state of an LSTM: with the rounded value that is kept, and the unrounded one.
    pub c: Option<(Tensor, Tensor)>,
}

/// Returns the expression with another value: gradients flow as before.
fn valued(expression: &Tensor, value: &Tensor) -> Result<Tensor> {
    value.detach().sub(&expression.detach())?.add(expression)
}

/// Returns a function of x with the given value and slope.
fn function(x: &Tensor, value: &Tensor, slope: &Tensor) -> Result<Tensor> {
    valued(&x.mul(&slope.detach())?, value)
}

/// Rounds like a kernel that computed in f32.
fn rounded(x: &Tensor, low: DType) -> Tensor {
    x.detach().cast(DType::F32).cast(low).cast(F64)
}

/// Returns x itself, with its gradient rounded.
fn with_rounded_gradient(x: &Tensor, low: DType) -> Result<Tensor> {
    valued(&x.cast(low).cast(F64), x)
}

/// Computes attention whose backward pass reads rounded weights and rounded gradients of the products of queries and
/// keys. The inputs are queries, keys, values, and an optional mask.
pub fn attention(x: &[Tensor], causal: bool, scale: f64, low: DType) -> Result<Tensor> {
    let products = with_rounded_gradient(&x[0].matmul_ext(&x[1].transpose(-1, -2)?)?, low)?;
    let mut scores = (products * scale)?;
    let [.., queries, keys] = *scores.shape() else { panic!("scores are matrices") };
    let mut seen = Tensor::ones(&[queries, keys], DType::Bool);
    if causal {
        let [queries, keys] = [queries, keys].map(Tensor::arange);
        seen = keys.le(&queries.unsqueeze(-1)?)?;
    }
    match x.get(3) {
        Some(mask) if mask.dtype() == DType::Bool => seen = seen.logical_and(mask)?,
        Some(mask) => scores = scores.add(mask)?,
        None => {}
    }
    // A query that sees no key has weights of 0.
    let scores = seen.select(&scores, &Tensor::scalar(-1e30, F64))?;
    let weights = scores.softmax(-1)?.mul(&seen.cast(F64))?;
    let v = &x[2];
    let of_weights = weights.matmul_ext(&v.detach())?;
    valued(&of_weights.add(&rounded(&weights, low).matmul_ext(v)?)?, &of_weights)
}

impl Layer<'_> {
    fn rounded(&self, x: &Tensor) -> Tensor {
        rounded(x, self.low)
    }

    fn with_rounded_gradient(&self, x: &Tensor) -> Result<Tensor> {
        with_rounded_gradient(x, self.low)
    }

    /// Computes tanh or sigmoid of x, kept rounded: its value, and the function whose slope is that of the rounded
    /// value.
    fn kept_tanh(&self, x: &Tensor) -> Result<(Tensor, Tensor)> {
        let value = x.detach().tanh()?;
        let kept = self.rounded(&value);
        let slope = (kept.square()?.neg()? + 1.0)?;
        Ok((value, function(x, &kept, &slope)?))
    }

    fn kept_sigmoid(&self, x: &Tensor) -> Result<(Tensor, Tensor)> {
        let value = x.detach().sigmoid()?;
        let kept = self.rounded(&value);
        let slope = kept.sub(&kept.square()?)?;
        Ok((value, function(x, &kept, &slope)?))
    }

    /// Computes one step from a state.
    pub fn step(&self, x: &Tensor, state: &State) -> Result<State> {
        let (of_input, of_state) = match self.biases {
            Some((a, b)) => (Some(a), Some(b)),
            None => (None, None),
        };
        let i = self.with_rounded_gradient(&x.linear(self.ih, of_input)?)?;
        let s = self.with_rounded_gradient(&state.h.linear(self.hh, of_state)?)?;
        let hidden = self.hh.shape()[1];
        let gate = |x: &Tensor, n: usize| x.slice(-1, n * hidden..(n + 1) * hidden);
        let sum = |n: usize| gate(&i, n)?.add(&gate(&s, n)?);
        match self.kind {
            Kind::Tanh => {
                // The rounded output is kept.
                Ok(State { h: self.kept_tanh(&sum(0)?)?.1, c: None })
            }
            Kind::Relu => {
                let h = sum(0)?.relu()?;
                Ok(State { h: valued(&h, &self.rounded(&h))?, c: None })
            }
            Kind::Gru => {
                let (r_value, r) = self.kept_sigmoid(&sum(0)?)?;
                let (z_value, z) = self.kept_sigmoid(&sum(1)?)?;
                let (i, s) = (gate(&i, 2)?, gate(&s, 2)?);
                let kept = valued(&s, &self.rounded(&s))?;
                let before = i.detach().add(&r_value.mul(&s.detach())?)?;
                let (n_value, n) = self.kept_tanh(&valued(&i.add(&r.mul(&kept)?)?, &before)?)?;
                let h = n.add(&z.mul(&state.h.sub(&n)?)?)?;
                let value = n_value.add(&z_value.mul(&state.h.detach().sub(&n_value)?)?)?;
                Ok(State { h: valued(&h, &self.rounded(&value))?, c: None })
            }
            Kind::Lstm => {
                let (c, c_value) = state.c.as_ref().expect("an LSTM has two states");
                let (i_value, i) = self.kept_sigmoid(&sum(0)?)?;
                let (f_value, f) = self.kept_sigmoid(&sum(1)?)?;
                let (g_value, g) = self.kept_tanh(&sum(2)?)?;
                let (o_value, o) = self.kept_sigmoid(&sum(3)?)?;
                let c = f.mul(c)?.add(&i.mul(&g)?)?;
                let c_value = f_value.mul(c_value)?.add(&i_value.mul(&g_value)?)?;
                let c = valued(&c, &self.rounded(&c_value))?;
                let bent = c.detach().tanh()?;
                let h = o.mul(&function(&c, &bent, &(bent.square()?.neg()? + 1.0)?)?)?;
                let h_value = o_value.mul(&c_value.tanh()?)?;
                Ok(State { h: valued(&h, &self.rounded(&h_value))?, c: Some((c, c_value)) })
            }
        }
    }

    /// Computes all steps of `[batch, time, inputs]`: the outputs in time order, and the last state.
    pub fn sequence(&self, x: &Tensor, first: State, reverse: bool) -> Result<(Tensor, State)> {
        let (time, mut state) = (x.shape()[1], first);
        let mut outputs = Vec::new();
        for step in 0..time {
            state = self.step(&x.at(1, if reverse { time - 1 - step } else { step })?, &state)?;
            outputs.push(state.h.clone());
        }
        if reverse {
            outputs.reverse();
        }
        Ok((Tensor::stack(&outputs.iter().collect::<Vec<_>>(), 1)?, state))
    }
}
