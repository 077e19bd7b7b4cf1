//! MindSpore's layers op by op, each op rounding its own result, with MindSpore's parameter names.
//!
//! The library's cells of the same kinds compute product and bias in one op with one rounding. These are not written to
//! files, so they may share the kinds of others.

use precast::{
    Cell, ConvOptions, ConvTransposeOptions, DType, Padding, Param, Tensor,
    cell::{Child, Forward, Member, Part, PartMut},
    error::{Error, Result},
    layers::Sequential,
};

use crate::mindspore::calls::op;

/// Makes a parameter of zeros; the recorded values are set later.
pub fn param(shape: &[usize]) -> Param {
    Param::new(Tensor::zeros(shape, DType::F32))
}

/// Defines a cell with one input: its kind, fields (children, parameters, plain data) and body.
macro_rules! layer {
    ($(#[$meta:meta])* $name:ident as $kind:literal {
        $(children $child:ident: $member:ty;)? $(params $($param:ident),+;)? $(data $($data:ident: $type:ty),+;)?
    } |$cell:ident, $x:ident| $body:expr) => {
        layer!(@struct $(#[$meta])* $name as $kind { $(children $child: $member;)? $(params $($param),+;)? $(data $($data: $type),+;)? });
        impl Forward for $name {
            fn forward(&self, $x: &Tensor) -> Result<Tensor> {
                let $cell = self;
                $body
            }
        }
    };
    ($(#[$meta:meta])* $name:ident as $kind:literal { params $($param:ident),+; } many |$cell:ident, $inputs:ident| $body:expr) => {
        layer!(@struct $(#[$meta])* $name as $kind { params $($param),+; });
        impl Forward for $name {
            fn forward_many(&self, $inputs: &[Tensor]) -> Result<Vec<Tensor>> {
                let $cell = self;
                $body
            }
        }
    };
    (@struct $(#[$meta:meta])* $name:ident as $kind:literal {
        $(children $child:ident: $member:ty;)? $(params $($param:ident),+;)? $(data $($data:ident: $type:ty),+;)?
    }) => {
        $(#[$meta])*
        #[derive(Cell, Clone, Debug)]
        #[cell(kind = $kind)]
        pub struct $name {
            $(pub $child: $member,)?
            $($(pub $param: Param,)+)?
            $($(pub $data: $type,)+)?
        }
    };
}

/// Computes `x · wᵀ`: MindSpore's `MatMul` with `transpose_b`.
fn matmul_t(x: &Tensor, weight: &Param) -> Result<Tensor> {
    op([x, &weight.tensor().t()?], |[x, w]| x.matmul(w))
}

fn bias_add(x: &Tensor, bias: &Param) -> Result<Tensor> {
    op([x, &bias.tensor()], |[x, bias]| x.bias_add(bias))
}

fn add(x: &Tensor, y: &Tensor) -> Result<Tensor> {
    op([x, y], |[x, y]| x + y)
}

fn mul(x: &Tensor, y: &Tensor) -> Result<Tensor> {
    op([x, y], |[x, y]| x * y)
}

fn sigmoid(x: &Tensor) -> Result<Tensor> {
    op([x], |[x]| x.sigmoid())
}

fn tanh(x: &Tensor) -> Result<Tensor> {
    op([x], |[x]| x.tanh())
}

layer! {
    /// Inputs of more than two axes are flattened and reshaped back.
    Dense as "Dense" { children activation: Option<Child<Sigmoid>>; params weight, bias; } |cell, x| {
        let last = x.shape()[x.rank() - 1] as isize;
        let rows = if x.rank() > 2 { x.reshape(&[-1, last])? } else { x.clone() };
        let y = bias_add(&matmul_t(&rows, &cell.weight)?, &cell.bias)?;
        let y = match &cell.activation {
            Some(activation) => activation.call(&y)?,
            None => y,
        };
        if x.rank() <= 2 {
            return Ok(y);
        }
        let mut shape: Vec<isize> = x.shape().iter().map(|&len| len as isize).collect();
        *shape.last_mut().expect("more than two axes") = -1;
        y.reshape(&shape)
    }
}

impl Dense {
    pub fn new(inputs: usize, outputs: usize) -> Self {
        Dense { activation: None, weight: param(&[outputs, inputs]), bias: param(&[outputs]) }
    }
}

/// Returns the options for a padding; `pad_mode='same'` is the default in MindSpore, and 'pad' with padding 0 is
/// `valid`.
fn options(same: bool) -> ConvOptions {
    ConvOptions::default().padding(if same { Padding::Same } else { Padding::Valid })
}

fn conv2d(x: &Tensor, weight: &Param, same: bool) -> Result<Tensor> {
    op([x, &weight.tensor()], |[x, w]| x.conv2d(w, None, &options(same)))
}

fn conv_transpose2d(x: &Tensor, weight: &Param) -> Result<Tensor> {
    op([x, &weight.tensor()], |[x, w]| x.conv_transpose2d(w, None, &ConvTransposeOptions::default()))
}

layer! { Conv2dBare as "Conv2d" { params weight; data same: bool; } |cell, x| conv2d(x, &cell.weight, cell.same) }

layer! { Conv1d as "Conv1d" { params weight, bias; } |cell, x| {
    let y = conv2d(&x.unsqueeze(2)?, &cell.weight, true)?;
    bias_add(&y, &cell.bias)?.squeeze(2)
} }

layer! { Conv3d as "Conv3d" { params weight, bias; } |cell, x| {
    let y = op([x, &cell.weight.tensor()], |[x, w]| x.conv3d(w, None, &options(false)))?;
    bias_add(&y, &cell.bias)
} }

layer! { Conv1dTranspose as "Conv1dTranspose" { params weight; } |cell, x| {
    let y = conv_transpose2d(&x.unsqueeze(2)?, &cell.weight)?;
    y.squeeze(2)
} }

layer! { Conv2dTranspose as "Conv2dTranspose" { params weight, bias; } |cell, x| {
    bias_add(&conv_transpose2d(x, &cell.weight)?, &cell.bias)
} }

fn batch_norm(x: &Tensor, [mean, variance, gamma, beta]: [&Param; 4]) -> Result<Tensor> {
    op([x, &mean.tensor(), &variance.tensor(), &gamma.tensor(), &beta.tensor()], |[x, mean, variance, gamma, beta]| {
        x.batch_norm(mean, variance, Some(gamma), Some(beta), 1e-5)
    })
}

layer! { BatchNorm1d as "BatchNorm1d" { params gamma, beta, moving_mean, moving_variance; } |cell, x| {
    let (rows, channels) = (x.shape()[0] as isize, x.shape()[1] as isize);
    let wide = x.reshape(&[rows, channels, 1, -1])?;
    let y = batch_norm(&wide, [&cell.moving_mean, &cell.moving_variance, &cell.gamma, &cell.beta])?;
    y.reshape(&[rows, channels])
} }

layer! { BatchNorm2d as "BatchNorm2d" { params gamma, beta, moving_mean, moving_variance; } |cell, x| {
    batch_norm(x, [&cell.moving_mean, &cell.moving_variance, &cell.gamma, &cell.beta])
} }

layer! {
    /// In MindSpore a cell around a `BatchNorm2d`.
    BatchNorm3d as "BatchNorm3d" { children bn2d: Child<BatchNorm2d>; } |cell, x| {
        let shape: Vec<isize> = x.shape().iter().map(|&len| len as isize).collect();
        let flat = x.reshape(&[shape[0], shape[1], -1, shape[4]])?;
        cell.bn2d.call(&flat)?.reshape(&shape)
    }
}

macro_rules! batch_norm {
    ($($name:ident),*) => { $(
        impl $name {
            pub fn new(channels: usize) -> Self {
                let one = || param(&[channels]);
                $name { gamma: one(), beta: one(), moving_mean: one(), moving_variance: one() }
            }
        }
    )* };
}
batch_norm!(BatchNorm1d, BatchNorm2d);

layer! { LayerNorm as "LayerNorm" { params gamma, beta; } |cell, x| {
    let [gamma, beta] = [cell.gamma.tensor(), cell.beta.tensor()];
    op([x, &gamma, &beta], |[x, gamma, beta]| x.layer_norm(gamma.shape(), Some(gamma), Some(beta), 1e-7))
} }

layer! { GroupNorm as "GroupNorm" { params gamma, beta; data groups: usize; } |cell, x| {
    let [gamma, beta] = [cell.gamma.tensor(), cell.beta.tensor()];
    op([x, &gamma, &beta], |[x, gamma, beta]| x.group_norm(cell.groups, Some(gamma), Some(beta), 1e-5))
} }

layer! { Embedding as "Embedding" { params embedding_table; } |cell, ids| {
    let ids_in_a_row = ids.reshape(&[-1])?;
    let found = ids_in_a_row.embedding(&cell.embedding_table.tensor())?;
    let mut shape: Vec<isize> = ids.shape().iter().map(|&len| len as isize).collect();
    shape.push(-1);
    found.reshape(&shape)
} }

layer! { Sigmoid as "Sigmoid" { } |_cell, x| sigmoid(x) }

layer! { Tanh as "Tanh" { } |_cell, x| tanh(x) }

layer! { Relu as "ReLU" { } |_cell, x| op([x], |[x]| x.relu()) }

layer! { Gelu as "GELU" { } |_cell, x| op([x], |[x]| x.gelu_tanh()) }

layer! { PReLU as "PReLU" { params w; } |cell, x| op([x, &cell.w.tensor()], |[x, w]| x.prelu(w)) }

layer! {
    /// A subclass of `nn.Dense` in MindSpore; here a separate kind with the same body.
    MyDense as "MyDense" { children inner: Same<Dense>; } |cell, x| cell.inner.0.forward(x)
}

layer! {
    /// A subclass of `nn.BatchNorm1d` in MindSpore.
    MyBN as "MyBN" { children inner: Same<BatchNorm1d>; } |cell, x| cell.inner.0.forward(x)
}

/// A cell that provides another with its body and parameters, like a base class: it is not a child.
#[derive(Clone, Debug)]
pub struct Same<C>(pub C);

impl<C: Cell> Member for Same<C> {
    fn visit(&self, _: &str, visitor: &mut dyn FnMut(&str, Part<'_>)) {
        self.0.visit(visitor);
    }
    fn visit_mut(&mut self, _: &str, visitor: &mut dyn FnMut(&str, PartMut<'_>)) {
        self.0.visit_mut(visitor);
    }
}

/// Computes `x · wᵀ + b`.
fn gates(x: &Tensor, weight: &Param, bias: &Param) -> Result<Tensor> {
    add(&matmul_t(x, weight)?, &bias.tensor())
}

fn inputs_of<const N: usize>(inputs: &[Tensor]) -> Result<&[Tensor; N]> {
    inputs.try_into().map_err(|_| Error::shape(format!("needs {N} inputs, got {}", inputs.len())))
}

layer! { RNNCell as "RNNCell" { params weight_ih, weight_hh, bias_ih, bias_hh; } many |cell, inputs| {
    let [x, h] = inputs_of(inputs)?;
    let i = gates(x, &cell.weight_ih, &cell.bias_ih)?;
    let h = gates(h, &cell.weight_hh, &cell.bias_hh)?;
    Ok(vec![tanh(&add(&i, &h)?)?])
} }

layer! { GRUCell as "GRUCell" { params weight_ih, weight_hh, bias_ih, bias_hh; } many |cell, inputs| {
    let [x, h] = inputs_of(inputs)?;
    let (from_x, from_h) = (gates(x, &cell.weight_ih, &cell.bias_ih)?, gates(h, &cell.weight_hh, &cell.bias_hh)?);
    let (from_x, from_h) = (from_x.chunk(3, 1)?, from_h.chunk(3, 1)?);
    let reset = sigmoid(&add(&from_x[0], &from_h[0])?)?;
    let update = sigmoid(&add(&from_x[1], &from_h[1])?)?;
    let new = tanh(&add(&from_x[2], &mul(&reset, &from_h[2])?)?)?;
    let kept = mul(&update, &op([h, &new], |[h, new]| h - new)?)?;
    Ok(vec![add(&new, &kept)?])
} }

layer! { LSTMCell as "LSTMCell" { params weight_ih, weight_hh, bias_ih, bias_hh; } many |cell, inputs| {
    let [x, h, c] = inputs_of(inputs)?;
    let gates = add(&matmul_t(x, &cell.weight_ih)?, &matmul_t(h, &cell.weight_hh)?)?;
    let gates = add(&add(&gates, &cell.bias_ih.tensor())?, &cell.bias_hh.tensor())?.chunk(4, 1)?;
    let (input, forget) = (sigmoid(&gates[0])?, sigmoid(&gates[1])?);
    let (cell, output) = (tanh(&gates[2])?, sigmoid(&gates[3])?);
    let c = add(&mul(&forget, c)?, &mul(&input, &cell)?)?;
    Ok(vec![mul(&output, &tanh(&c)?)?, c])
} }

macro_rules! recurrent {
    ($($name:ident $gates:literal),*) => { $(
        impl $name {
            pub fn new(inputs: usize, hidden: usize) -> Self {
                let rows = $gates * hidden;
                $name {
                    weight_ih: param(&[rows, inputs]),
                    weight_hh: param(&[rows, hidden]),
                    bias_ih: param(&[rows]),
                    bias_hh: param(&[rows]),
                }
            }
        }
    )* };
}
recurrent!(RNNCell 1, GRUCell 3, LSTMCell 4);

/// MindSpore's name for [`Sequential`].
#[derive(Cell, Debug)]
pub struct SequentialCell(pub Same<Sequential>);

impl Forward for SequentialCell {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        self.0.0.forward(x)
    }
}
