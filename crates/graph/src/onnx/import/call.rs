//! The call of a node: its inputs, its attributes, its errors.

use super::{
    step::{Attr, Call},
    value::{Item, Value},
};
use crate::onnx::tensor::Elem;
use precast::{
    DType, Tensor,
    error::{Error, Result},
    recording,
};

/// Returns a result of one tensor.
pub(super) fn one(x: Tensor, elem: Elem) -> Result<Vec<Value>> {
    Ok(vec![Item::computed(x, elem).into()])
}

/// Returns a result of one tensor whose numbers are known, whatever the inputs are.
pub(super) fn known(item: Item) -> Result<Vec<Value>> {
    Ok(vec![item.into()])
}

/// Functions that return an attribute of a form, and an error for another form.
macro_rules! attributes {
    ($($name:ident -> $of:ty: $form:ident($value:ident) => $read:expr, $expected:literal;)*) => {
        impl Call<'_> {
            $(pub fn $name(&self, name: &str) -> Result<Option<$of>> {
                match self.attribute(name) {
                    None => Ok(None),
                    Some(Attr::$form($value)) => Ok(Some($read)),
                    Some(other) => {
                        let other = other.called();
                        Err(Error::value(format!("its attribute `{name}` is {other}; expected {}", $expected)))
                    }
                }
            })*
        }
    };
}

attributes! {
    maybe_int -> i64: Int(number) => *number, "an integer";
    ints -> Vec<i64>: Ints(numbers) => numbers.clone(), "a list of integers";
    maybe_float -> f64: Float(number) => shortest(*number), "a number";
    floats -> Vec<f32>: Floats(numbers) => numbers.clone(), "a list of numbers";
    text -> &str: Text(text) => text, "a text";
    texts -> &[String]: Texts(texts) => texts, "a list of texts";
    tensor -> &Item: Tensor(item) => item, "a tensor";
}

impl Call<'_> {
    /// Returns the version of the op's set.
    pub fn opset(&self) -> i64 {
        self.step.opset
    }

    /// Returns an input that may be left out.
    pub fn maybe(&self, index: usize) -> Result<Option<&Item>> {
        match self.inputs.get(index) {
            None | Some(Value::Absent) => Ok(None),
            Some(Value::One(item)) => Ok(Some(item)),
            Some(Value::Many(_)) => Err(Error::value(format!("input {index} is a sequence; expected a tensor"))),
        }
    }

    /// Returns an input.
    pub fn item(&self, index: usize) -> Result<&Item> {
        self.maybe(index)?.ok_or_else(|| Error::value(format!("input {index} is missing")))
    }

    /// Returns the tensor of an input.
    pub fn x(&self, index: usize) -> Result<&Tensor> {
        Ok(&self.item(index)?.x)
    }

    /// Returns the tensor of an input that may be left out.
    pub fn maybe_x(&self, index: usize) -> Result<Option<&Tensor>> {
        Ok(self.maybe(index)?.map(|item| &item.x))
    }

    /// Returns the element type of the first input.
    pub fn elem(&self) -> Result<Elem> {
        Ok(self.item(0)?.elem)
    }

    /// Returns all inputs, each a tensor.
    pub fn all(&self) -> Result<Vec<&Item>> {
        match self.inputs.len() {
            0 => Err(Error::value("it has no input")),
            count => (0..count).map(|index| self.item(index)).collect(),
        }
    }

    /// Returns the numbers of an input as integers. A graph that is being recorded has them only if they are known.
    pub fn numbers(&self, index: usize) -> Result<Vec<i64>> {
        let item = self.readable(index)?;
        match item.x.dtype() {
            DType::I64 => item.x.to_vec::<i64>(),
            DType::Bool => Ok(item.x.to_vec::<bool>()?.into_iter().map(i64::from).collect()),
            _ => Err(Error::dtype(format!("input {index} is of {}; expected integers", item.elem))),
        }
    }

    /// Returns the numbers of an input that may be left out.
    pub fn maybe_numbers(&self, index: usize) -> Result<Option<Vec<i64>>> {
        self.maybe(index)?.map(|_| self.numbers(index)).transpose()
    }

    /// Returns the only number of an input.
    pub fn number(&self, index: usize) -> Result<i64> {
        match self.numbers(index)?[..] {
            [number] => Ok(number),
            ref numbers => Err(Error::shape(format!("input {index} has {} numbers; expected 1", numbers.len()))),
        }
    }

    /// Returns the numbers of an input of any type.
    pub fn reals(&self, index: usize) -> Result<Vec<f64>> {
        Ok(self.readable(index)?.x.to_f64())
    }

    /// Returns the only number of an input of any type.
    pub fn real(&self, index: usize) -> Result<f64> {
        match self.reals(index)?[..] {
            [number] => Ok(number),
            ref numbers => Err(Error::shape(format!("input {index} has {} numbers; expected 1", numbers.len()))),
        }
    }

    /// Returns an input whose numbers can be read here.
    pub fn readable(&self, index: usize) -> Result<&Item> {
        let item = self.item(index)?;
        if !item.known && recording::is_on() {
            let name = self.step.inputs.get(index).map_or("", |name| name);
            return Err(self.refuse(&format!(
                "the numbers of its input `{name}` depend on the inputs or the parameters of the model, and a graph has none \
                 before it runs"
            )));
        }
        Ok(item)
    }

    fn attribute(&self, name: &str) -> Option<&Attr> {
        self.step.attributes.iter().find(|(other, _)| other == name).map(|(_, attr)| attr)
    }

    pub fn has(&self, name: &str) -> bool {
        self.attribute(name).is_some()
    }

    pub fn int(&self, name: &str, default: i64) -> Result<i64> {
        Ok(self.maybe_int(name)?.unwrap_or(default))
    }

    pub fn flag(&self, name: &str, default: bool) -> Result<bool> {
        Ok(self.int(name, i64::from(default))? != 0)
    }

    /// Returns an attribute of lengths.
    pub fn lengths(&self, name: &str) -> Result<Option<Vec<usize>>> {
        self.ints(name)?.map(|numbers| lengths(&numbers)).transpose().map_err(|e| e.context(format!("`{name}`")))
    }

    pub fn float(&self, name: &str, default: f64) -> Result<f64> {
        Ok(self.maybe_float(name)?.unwrap_or(default))
    }

    /// Returns the integers of an input since an opset, of an attribute before it.
    pub fn ints_since(&self, opset: i64, index: usize, name: &str) -> Result<Option<Vec<i64>>> {
        if self.opset() >= opset { self.maybe_numbers(index) } else { self.ints(name) }
    }

    /// Returns an error about something that the import cannot do.
    pub fn refuse(&self, words: &str) -> Error {
        Error::unsupported(words)
    }
}

/// Returns numbers as lengths.
pub(super) fn lengths(numbers: &[i64]) -> Result<Vec<usize>> {
    let length = |number: &i64| {
        usize::try_from(*number).map_err(|_| Error::value(format!("{number} is not a length; allowed: 0 or more")))
    };
    numbers.iter().map(length).collect()
}

/// Returns the number with the fewest decimal digits that rounds to this f32: what the author of an attribute wrote.
fn shortest(number: f32) -> f64 {
    number.to_string().parse().unwrap_or(f64::from(number))
}

/// Returns the position of an axis, which may count from the end.
pub(super) fn axis_of(axis: i64, rank: usize) -> Result<usize> {
    let from_start = if axis < 0 { axis.checked_add(rank as i64) } else { Some(axis) };
    match from_start.and_then(|axis| usize::try_from(axis).ok()) {
        Some(axis) if axis < rank => Ok(axis),
        _ => Err(Error::shape(format!("there is no axis {axis} in a tensor of {rank} axes"))),
    }
}
