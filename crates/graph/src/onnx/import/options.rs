//! Settings of an import.

use crate::onnx::{
    graph::{Axis, ValueInfo},
    tensor::Elem,
};

use precast::{
    DType, Tensor,
    error::{Error, Result},
};

use super::value::{Item, dtype_of};

/// Settings of an import: values of inputs that steer the model, and lengths of axes.
///
/// ```
/// use precast_graph::onnx::ImportOptions;
/// let options = ImportOptions::new().fix("sr", 16000).axis("sequence", 128);
/// ```
#[derive(Clone, Debug, Default)]
pub struct ImportOptions {
    pub(super) fixed: Vec<(String, Fixed)>,
    pub(super) axes: Vec<(String, usize)>,
}

/// The value of an input that is fixed at import: a number, a truth value, or a tensor.
#[derive(Clone, Debug)]
pub struct Fixed(Kind);

#[derive(Clone, Debug)]
enum Kind {
    Int(i64),
    Float(f64),
    Truth(bool),
    Tensor(Tensor),
}

macro_rules! fixed {
    ($($t:ty => $kind:ident),*) => {
        $(impl From<$t> for Fixed {
            fn from(value: $t) -> Self {
                Fixed(Kind::$kind(value.into()))
            }
        })*
    };
}
fixed!(i32 => Int, u32 => Int, i64 => Int, f32 => Float, f64 => Float, bool => Truth, Tensor => Tensor);

impl ImportOptions {
    /// Creates settings that fix nothing.
    pub fn new() -> Self {
        ImportOptions::default()
    }

    /// Fixes the value of an input, which is then no input of the network. A number fills the declared shape, whose
    /// unknown axes get the length 1.
    ///
    /// An `If` that depends only on fixed inputs is replaced by its branch.
    #[must_use]
    pub fn fix(mut self, input: impl Into<String>, value: impl Into<Fixed>) -> Self {
        self.fixed.push((input.into(), value.into()));
        self
    }

    /// Sets the length of a symbolic axis. A call with another length is an error.
    #[must_use]
    pub fn axis(mut self, name: impl Into<String>, length: usize) -> Self {
        self.axes.push((name.into(), length));
        self
    }

    /// Returns the length of a declared axis, where it is known.
    pub(super) fn length(&self, axis: &Axis) -> Option<usize> {
        match axis {
            Axis::Symbol(symbol) => self.axes.iter().rev().find(|(name, _)| name == symbol).map(|(_, length)| *length),
            _ => None,
        }
    }

    /// Returns the value of a fixed input.
    pub(super) fn value(&self, fixed: &Fixed, input: &ValueInfo) -> Result<Item> {
        let elem = input.elem().unwrap_or(Elem::F32);
        let dtype = dtype_of(elem)?;
        let shape: Vec<usize> = input
            .axes
            .iter()
            .flatten()
            .map(|axis| match axis {
                Axis::Known(length) => *length,
                other => self.length(other).unwrap_or(1),
            })
            .collect();
        let count =
            shape.iter().try_fold(1usize, |count, len| count.checked_mul(*len)).filter(|count| *count <= 1 << 24);
        let count = count.ok_or_else(|| Error::shape(format!("the shape {shape:?} is too large to be filled")))?;
        let wrong = |met: &str| Error::dtype(format!("input `{}` is of {elem}; got {met}", input.name));
        let x = match (&fixed.0, dtype) {
            (Kind::Tensor(x), _) if (x.dtype() == DType::I64) == (dtype == DType::I64) => x.cast(dtype),
            (Kind::Tensor(x), _) => return Err(wrong(x.dtype().long_name())),
            (Kind::Int(number), DType::I64) => Tensor::from_vec(vec![*number; count], &shape)?,
            (Kind::Int(0 | 1) | Kind::Truth(_), DType::Bool) => {
                let holds = matches!(fixed.0, Kind::Int(1) | Kind::Truth(true));
                Tensor::from_vec(vec![holds; count], &shape)?
            }
            (Kind::Float(number), DType::I64) if number.fract() == 0.0 => {
                Tensor::from_vec(vec![*number as i64; count], &shape)?
            }
            (Kind::Int(number), _) if dtype.is_float() => Tensor::try_full(&shape, *number as f64, dtype)?,
            (Kind::Float(number), _) if dtype.is_float() => Tensor::try_full(&shape, *number, dtype)?,
            (Kind::Int(number), _) => return Err(wrong(&number.to_string())),
            (Kind::Float(number), _) => return Err(wrong(&number.to_string())),
            (Kind::Truth(holds), _) => return Err(wrong(&holds.to_string())),
        };
        Ok(Item::known(x, elem))
    }
}
