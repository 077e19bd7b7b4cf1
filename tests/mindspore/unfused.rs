//! MindSpore's layers op by op, each op rounding its own result, with MindSpore's parameter names.
//!
//! The library's cells of the same kinds do product and bias in one op with one rounding. Nothing is read from files by
//! name here, so that two types carry one kind does no harm.

use precast::{
    ConvOptions, ConvTransposeOptions, DType, Padding, Tensor,
    cell::{Cell, Child, Member, Node, NodeMut, Param},
    cells::Sequential,
    children,
    error::{Error, Result},
};
use serde::{Deserialize, Serialize};

use crate::steps;

/// A parameter in a file is its shape; only the derives of the cells below need it.
pub mod by_shape {
    use precast::{DType, Param, Tensor};
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    pub fn serialize<S: Serializer>(param: &Param, serializer: S) -> Result<S::Ok, S::Error> {
        param.shape().serialize(serializer)
    }
    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Param, D::Error> {
        Vec::deserialize(deserializer).map(|shape| Param::new(Tensor::zeros(&shape, DType::F32)))
    }
}

/// A parameter of zeros; the recorded values are set later.
pub fn param(shape: &[usize]) -> Param {
    Param::new(Tensor::zeros(shape, DType::F32))
}

/// A cell of one input: its kind, fields (children, parameters, plain data) and body.
macro_rules! layer {
    ($(#[$meta:meta])* $name:ident as $kind:literal {
        $(children $child:ident: $member:ty;)? $(params $($param:ident),+;)? $(data $($data:ident: $type:ty),+;)?
    } |$cell:ident, $x:ident| $body:expr) => {
        layer!(@struct $(#[$meta])* $name { $(children $child: $member;)? $(params $($param),+;)? $(data $($data: $type),+;)? });
        #[typetag::serde(name = $kind)]
        impl Cell for $name {
            children!(Self { $($child,)? $($($param,)+)? $($($data: _),+)? });
            fn forward(&self, $x: &Tensor) -> Result<Tensor> {
                let $cell = self;
                $body
            }
        }
    };
    ($(#[$meta:meta])* $name:ident as $kind:literal { params $($param:ident),+; } many |$cell:ident, $inputs:ident| $body:expr) => {
        layer!(@struct $(#[$meta])* $name { params $($param),+; });
        #[typetag::serde(name = $kind)]
        impl Cell for $name {
            children!(Self { $($param),+ });
            fn forward_many(&self, $inputs: &[Tensor]) -> Result<Vec<Tensor>> {
                let $cell = self;
                $body
            }
        }
    };
    (@struct $(#[$meta:meta])* $name:ident {
        $(children $child:ident: $member:ty;)? $(params $($param:ident),+;)? $(data $($data:ident: $type:ty),+;)?
    }) => {
        $(#[$meta])*
        #[derive(Clone, Debug, Serialize, Deserialize)]
        pub struct $name {
            $(pub $child: $member,)?
            $($(#[serde(with = "crate::unfused::by_shape")] pub $param: Param,)+)?
            $($(pub $data: $type,)+)?
        }
    };
}

/// `x · wᵀ`: MindSpore's `MatMul` with `transpose_b`.
fn matmul_t(x: &Tensor, weight: &Param) -> Result<Tensor> {
    x.matmul(&weight.tensor().t()?)
}

layer! {
    /// Inputs of more than two axes are flattened and brought back.
    Dense as "Dense" { children activation: Option<Child<Sigmoid>>; params weight, bias; } |cell, x| {
        let rows = if x.rank() > 2 { x.reshape(&[-1, x.shape()[x.rank() - 1] as isize])? } else { x.clone() };
        let y = steps::settled(matmul_t(&rows, &cell.weight)?.bias_add(&cell.bias.tensor())?)?;
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

/// `pad_mode='same'` is the default in MindSpore; 'pad' with padding 0 is `valid`.
fn options(same: bool) -> ConvOptions {
    ConvOptions { padding: if same { Padding::Same } else { Padding::Valid }, ..ConvOptions::default() }
}

layer! { Conv2dBare as "Conv2d" { params weight; data same: bool; } |cell, x| {
    x.conv2d(&cell.weight.tensor(), None, &options(cell.same))
} }

layer! { Conv1d as "Conv1d" { params weight, bias; } |cell, x| {
    x.unsqueeze(2)?.conv2d(&cell.weight.tensor(), None, &options(true))?.bias_add(&cell.bias.tensor())?.squeeze(2)
} }

layer! { Conv3d as "Conv3d" { params weight, bias; } |cell, x| {
    x.conv3d(&cell.weight.tensor(), None, &options(false))?.bias_add(&cell.bias.tensor())
} }

layer! { Conv1dTranspose as "Conv1dTranspose" { params weight; } |cell, x| {
    x.unsqueeze(2)?.conv_transpose2d(&cell.weight.tensor(), None, &ConvTransposeOptions::default())?.squeeze(2)
} }

layer! { Conv2dTranspose as "Conv2dTranspose" { params weight, bias; } |cell, x| {
    x.conv_transpose2d(&cell.weight.tensor(), None, &ConvTransposeOptions::default())?.bias_add(&cell.bias.tensor())
} }

fn batch_norm(x: &Tensor, [mean, variance, gamma, beta]: [&Param; 4]) -> Result<Tensor> {
    let y = x.batch_norm(&mean.tensor(), &variance.tensor(), Some(&gamma.tensor()), Some(&beta.tensor()), 1e-5)?;
    steps::settled(y)
}

layer! { BatchNorm1d as "BatchNorm1d" { params gamma, beta, moving_mean, moving_variance; } |cell, x| {
    let wide = x.reshape(&[x.shape()[0] as isize, x.shape()[1] as isize, 1, -1])?;
    let y = batch_norm(&wide, [&cell.moving_mean, &cell.moving_variance, &cell.gamma, &cell.beta])?;
    y.reshape(&[x.shape()[0] as isize, x.shape()[1] as isize])
} }

layer! { BatchNorm2d as "BatchNorm2d" { params gamma, beta, moving_mean, moving_variance; } |cell, x| {
    batch_norm(x, [&cell.moving_mean, &cell.moving_variance, &cell.gamma, &cell.beta])
} }

layer! {
    /// In MindSpore a cell around a `BatchNorm2d`.
    BatchNorm3d as "BatchNorm3d" { children bn2d: Child<BatchNorm2d>; } |cell, x| {
        let shape: Vec<isize> = x.shape().iter().map(|&len| len as isize).collect();
        cell.bn2d.call(&x.reshape(&[shape[0], shape[1], -1, shape[4]])?)?.reshape(&shape)
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
    steps::layer_norm(x, &cell.gamma.tensor(), &cell.beta.tensor(), 1e-7)
} }

layer! { GroupNorm as "GroupNorm" { params gamma, beta; data groups: usize; } |cell, x| {
    steps::group_norm(x, cell.groups, &cell.gamma.tensor(), &cell.beta.tensor(), 1e-5)
} }

layer! { Embedding as "Embedding" { params embedding_table; } |cell, ids| {
    let found = ids.reshape(&[-1])?.embedding(&cell.embedding_table.tensor())?;
    let mut shape: Vec<isize> = ids.shape().iter().map(|&len| len as isize).collect();
    shape.push(-1);
    found.reshape(&shape)
} }

layer! { Sigmoid as "Sigmoid" { } |_cell, x| steps::sigmoid(x) }

layer! { Tanh as "Tanh" { } |_cell, x| steps::settled(x.tanh()?) }

layer! { Gelu as "GELU" { } |_cell, x| steps::settled(x.gelu_tanh()?) }

layer! { PReLU as "PReLU" { params w; } |cell, x| x.prelu(&cell.w.tensor()) }

layer! {
    /// A subclass of `nn.Dense` in MindSpore; here a kind of its own, with the same body.
    MyDense as "MyDense" { children inner: Same<Dense>; } |cell, x| cell.inner.0.forward(x)
}

layer! {
    /// A subclass of `nn.BatchNorm1d` in MindSpore.
    MyBN as "MyBN" { children inner: Same<BatchNorm1d>; } |cell, x| cell.inner.0.forward(x)
}

/// A cell that lends another its body and parameters, as a base class does: it is no child.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Same<C>(pub C);

impl<C: Cell> Member for Same<C> {
    fn visit(&self, _: &str, visitor: &mut dyn FnMut(&str, Node<'_>)) {
        self.0.visit(visitor);
    }
    fn visit_mut(&mut self, _: &str, visitor: &mut dyn FnMut(&str, NodeMut<'_>)) {
        self.0.visit_mut(visitor);
    }
}

/// `x · wᵀ + b`.
fn gates(x: &Tensor, weight: &Param, bias: &Param) -> Result<Tensor> {
    matmul_t(x, weight)? + &bias.tensor()
}

fn inputs_of<const N: usize>(inputs: &[Tensor]) -> Result<&[Tensor; N]> {
    inputs.try_into().map_err(|_| Error::shape(format!("needs {N} inputs, got {}", inputs.len())))
}

layer! { RNNCell as "RNNCell" { params weight_ih, weight_hh, bias_ih, bias_hh; } many |cell, inputs| {
    let [x, h] = inputs_of(inputs)?;
    let i = gates(x, &cell.weight_ih, &cell.bias_ih)?;
    let h = gates(h, &cell.weight_hh, &cell.bias_hh)?;
    Ok(vec![(i + &h)?.tanh()?])
} }

layer! { GRUCell as "GRUCell" { params weight_ih, weight_hh, bias_ih, bias_hh; } many |cell, inputs| {
    let [x, h] = inputs_of(inputs)?;
    let (from_x, from_h) = (gates(x, &cell.weight_ih, &cell.bias_ih)?, gates(h, &cell.weight_hh, &cell.bias_hh)?);
    let (from_x, from_h) = (from_x.chunk(3, 1)?, from_h.chunk(3, 1)?);
    let reset = steps::sigmoid(&(&from_x[0] + &from_h[0])?)?;
    let update = steps::sigmoid(&(&from_x[1] + &from_h[1])?)?;
    let new = (&from_x[2] + &(reset * &from_h[2])?)?.tanh()?;
    let kept = (update * &(h - &new)?)?;
    Ok(vec![(new + &kept)?])
} }

layer! { LSTMCell as "LSTMCell" { params weight_ih, weight_hh, bias_ih, bias_hh; } many |cell, inputs| {
    let [x, h, c] = inputs_of(inputs)?;
    let gates = (matmul_t(x, &cell.weight_ih)? + &matmul_t(h, &cell.weight_hh)?)?;
    let gates = ((gates + &cell.bias_ih.tensor())? + &cell.bias_hh.tensor())?.chunk(4, 1)?;
    let (input, forget) = (steps::sigmoid(&gates[0])?, steps::sigmoid(&gates[1])?);
    let (cell, output) = (gates[2].tanh()?, steps::sigmoid(&gates[3])?);
    let c = ((forget * c)? + &(input * &cell)?)?;
    Ok(vec![(output * &c.tanh()?)?, c])
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
#[derive(Debug, Serialize, Deserialize)]
pub struct SequentialCell(pub Sequential);

#[typetag::serde]
impl Cell for SequentialCell {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        self.0.forward(x)
    }
    fn visit(&self, visitor: &mut dyn FnMut(&str, Node<'_>)) {
        self.0.visit(visitor);
    }
    fn visit_mut(&mut self, visitor: &mut dyn FnMut(&str, NodeMut<'_>)) {
        self.0.visit_mut(visitor);
    }
}
