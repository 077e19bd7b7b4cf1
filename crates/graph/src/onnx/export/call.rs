//! A node of a graph that is written as nodes of ONNX.

use super::{
    message::{Attr, Val},
    writer::Writer,
};
use crate::{Dim, Node, Output};
use precast::{
    DType, Tensor,
    catalogue::{Attribute, Attributes},
    error::{Error, Result},
};

/// Writes a node, and returns its outputs in the dtype of the call. None of them: the op has no counterpart in this
/// form, and is to be written with the ops of which it is composed.
pub(super) type Emit = fn(&mut Call<'_>) -> Result<Vec<Val>>;

/// A node with its inputs.
pub(super) struct Call<'a> {
    pub writer: &'a mut Writer,
    pub node: &'a Node,
    /// The inputs, floating ones in the dtype of the call.
    pub x: Vec<Val>,
    /// The types of the inputs in the graph.
    pub types: Vec<&'a Output>,
    /// The dtype in which it computes.
    pub dtype: DType,
    /// For a recurrent layer, the inputs that are 0 everywhere.
    pub zero: Vec<bool>,
    /// The low dtype to which each step of a sequence is rounded by casts, if any.
    pub rounds_to: Option<DType>,
}

/// Returns the one output of a node.
pub(super) fn one(x: Result<Val>) -> Result<Vec<Val>> {
    Ok(vec![x?])
}

impl Call<'_> {
    pub fn attributes(&self) -> &Attributes {
        &self.node.attributes
    }

    pub fn attr<T: Attribute>(&self, name: &str) -> Result<T> {
        self.node.attributes.get(name)
    }

    /// Returns a word among the attributes.
    pub fn attr_text(&self, name: &str) -> Result<String> {
        let found = self.node.attributes.iter().find(|(other, _)| *other == name).and_then(|(_, value)| value.as_str());
        found.map(str::to_string).ok_or_else(|| Error::value(format!("the attribute `{name}` is not a word")))
    }

    /// Returns the lengths of an input from an axis on, where none depends on the batch.
    pub fn fixed_from(&self, place: usize, axis: usize) -> Result<Vec<usize>> {
        lengths(&self.shape(place)[axis..])
    }

    /// Returns whether an optional input is given.
    pub fn given(&self, name: &str) -> Result<bool> {
        if self.node.attributes.has(name) { self.attr(name) } else { Ok(false) }
    }

    pub fn input(&self, place: usize) -> Result<Val> {
        self.x.get(place).cloned().ok_or_else(|| Error::value(format!("its input {place} is missing")))
    }

    pub fn shape(&self, place: usize) -> &[Dim] {
        self.types.get(place).map_or(&[], |of| &of.shape)
    }

    pub fn rank(&self, place: usize) -> usize {
        self.shape(place).len()
    }

    /// Returns the lengths of an input, where none depends on the batch.
    pub fn fixed(&self, place: usize) -> Result<Vec<usize>> {
        lengths(self.shape(place))
    }

    /// Returns the type of the first output.
    pub fn out(&self) -> &Output {
        &self.node.outputs[0]
    }

    /// Returns the dtype in which the call makes its first output.
    pub fn out_dtype(&self) -> DType {
        if self.out().dtype.is_float() { self.dtype } else { self.out().dtype }
    }

    /// Returns the attribute `axis` from the start, for a tensor of this rank.
    pub fn axis(&self, rank: usize) -> Result<usize> {
        from_start(self.attr("axis")?, rank)
    }

    /// Writes a node whose output has the dtype of the call.
    pub fn node(&mut self, op: &'static str, inputs: &[&Val], attributes: &[(&'static str, Attr)]) -> Result<Val> {
        self.writer.node_of(op, self.dtype, inputs, attributes)
    }

    /// Writes a node of this name for the inputs of the call.
    pub fn same(&mut self, op: &'static str, attributes: &[(&'static str, Attr)]) -> Result<Vec<Val>> {
        let inputs = self.x.clone();
        one(self.node(op, &inputs.iter().collect::<Vec<_>>(), attributes))
    }

    /// Writes a comparison.
    pub fn is(&mut self, op: &'static str, inputs: &[&Val]) -> Result<Val> {
        self.writer.node_of(op, DType::Bool, inputs, &[])
    }

    /// Writes a number of the dtype of the call.
    pub fn number(&mut self, number: f64) -> Result<Val> {
        self.writer.number(number, self.dtype)
    }

    /// Writes a vector of a number repeated.
    pub fn repeated(&mut self, number: f64, shape: &[usize]) -> Result<Val> {
        self.writer.constant(Tensor::try_full(shape, number, self.dtype)?)
    }

    /// Writes numbers of the dtype of the call.
    pub fn numbers(&mut self, numbers: &[f64], shape: &[usize]) -> Result<Val> {
        self.writer.constant(Tensor::from_f64(numbers, shape, self.dtype)?)
    }

    pub fn ints(&mut self, numbers: &[i64]) -> Result<Val> {
        self.writer.ints(numbers)
    }

    /// Writes a reshaping. One length that depends on the batch is left to the runtime, where it follows from the rest.
    pub fn reshape(&mut self, x: &Val, to: &[Dim]) -> Result<Val> {
        let free: Vec<usize> = (0..to.len()).filter(|&axis| to[axis].each != 0).collect();
        let known = |axis: usize| to[axis].each != 0 || to[axis].plus > 0;
        let shape = match free[..] {
            [free] if (0..to.len()).all(known) => {
                let len = |axis: usize| if axis == free { -1 } else { to[axis].plus };
                self.ints(&(0..to.len()).map(len).collect::<Vec<_>>())?
            }
            _ => self.writer.lengths(to)?,
        };
        // A length of 0 copies that of the input, unless the node says otherwise.
        let empty = to.iter().any(|len| len.each == 0 && len.plus == 0);
        if empty && self.writer.opset < 14 {
            return Err(self.refuse("ONNX reshapes to an axis of no elements from opset 14 on"));
        }
        let attributes = if empty { vec![("allowzero", Attr::Int(1))] } else { vec![] };
        self.writer.node_of("Reshape", x.dtype, &[x, &shape], &attributes)
    }

    pub fn transpose(&mut self, x: &Val, axes: &[usize]) -> Result<Val> {
        self.writer.node_of("Transpose", x.dtype, &[x], &[("perm", Attr::lengths(axes))])
    }

    pub fn unsqueeze(&mut self, x: &Val, axes: &[i64]) -> Result<Val> {
        let axes = self.ints(axes)?;
        self.writer.node_of("Unsqueeze", x.dtype, &[x, &axes], &[])
    }

    pub fn squeeze(&mut self, x: &Val, axes: &[i64]) -> Result<Val> {
        let axes = self.ints(axes)?;
        self.writer.node_of("Squeeze", x.dtype, &[x, &axes], &[])
    }

    /// Writes the part of an axis from one place to another.
    pub fn slice(&mut self, x: &Val, axis: usize, range: [Dim; 2]) -> Result<Val> {
        let [start, end] = [self.writer.lengths(&range[..1])?, self.writer.lengths(&range[1..])?];
        let axes = self.ints(&[axis as i64])?;
        self.writer.node_of("Slice", x.dtype, &[x, &start, &end, &axes], &[])
    }

    /// Writes the parts of an axis with these lengths.
    pub fn split(&mut self, x: &Val, axis: usize, lengths: &[usize]) -> Result<Vec<Val>> {
        let dtypes = vec![x.dtype; lengths.len()];
        let lengths = self.ints(&lengths.iter().map(|&len| len as i64).collect::<Vec<_>>())?;
        self.writer.nodes_of("Split", &dtypes, &[x, &lengths], &[("axis", Attr::Int(axis as i64))])
    }

    pub fn concat(&mut self, parts: &[&Val], axis: usize) -> Result<Val> {
        self.writer.node_of("Concat", parts[0].dtype, parts, &[("axis", Attr::Int(axis as i64))])
    }

    /// Writes a reduction, whose axes are an attribute or an input.
    pub fn reduce(&mut self, op: &'static str, x: &Val, axes: &[usize], keep: bool) -> Result<Val> {
        let keep = ("keepdims", Attr::flag(keep));
        let since = if op == "ReduceSum" { 13 } else { 18 };
        if axes.is_empty() {
            return self.writer.node_of(op, x.dtype, &[x], &[keep]);
        }
        if self.writer.opset < since {
            return self.writer.node_of(op, x.dtype, &[x], &[("axes", Attr::lengths(axes)), keep]);
        }
        let axes = self.ints(&axes.iter().map(|&axis| axis as i64).collect::<Vec<_>>())?;
        self.writer.node_of(op, x.dtype, &[x, &axes], &[keep])
    }

    /// Returns an error about a form that cannot be written.
    pub fn refuse(&self, words: &str) -> Error {
        Error::unsupported(words)
    }
}

/// Returns lengths that do not depend on the batch.
pub(super) fn lengths(shape: &[Dim]) -> Result<Vec<usize>> {
    let length = |len: &Dim| match len.each {
        0 => usize::try_from(len.plus).map_err(|_| Error::shape(format!("a length of {len}"))),
        _ => Err(Error::unsupported(format!("the length {len} depends on the batch, and ONNX needs a number here"))),
    };
    shape.iter().map(length).collect()
}

/// Returns an axis counted from the start.
pub(super) fn from_start(axis: isize, rank: usize) -> Result<usize> {
    let at = if axis < 0 { axis + rank as isize } else { axis };
    usize::try_from(at)
        .ok()
        .filter(|&at| at < rank.max(1))
        .ok_or_else(|| Error::shape(format!("axis {axis} of {rank} axes")))
}
