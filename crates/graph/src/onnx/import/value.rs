//! Values of an interpreted model: tensors whose numbers may be known, and lists of them.

use crate::onnx::tensor::Elem;

use precast::{
    DType, Tensor,
    error::{Error, Result},
};

/// The value of a name.
#[derive(Clone, Debug)]
pub(super) enum Value {
    /// An optional input that is left out, or an optional value without an element.
    Absent,
    One(Item),
    /// A sequence.
    Many(Vec<Value>),
}

/// A tensor of a model.
#[derive(Clone, Debug)]
pub(super) struct Item {
    /// The numbers. Integers of every width are i64.
    pub x: Tensor,
    /// The element type that the model gives it. In a region of a low dtype, the tensor is rounded further.
    pub elem: Elem,
    /// `true` when the numbers depend neither on the inputs of the model nor on parameters, so that lengths can be read
    /// from them.
    pub known: bool,
}

impl Item {
    pub fn known(x: Tensor, elem: Elem) -> Self {
        Item { x, elem, known: true }
    }

    pub fn computed(x: Tensor, elem: Elem) -> Self {
        Item { x, elem, known: false }
    }

    /// Creates a known vector of integers.
    pub fn ints(numbers: Vec<i64>) -> Result<Self> {
        let len = numbers.len();
        Ok(Item::known(Tensor::from_vec(numbers, &[len])?, Elem::INT64))
    }

    /// Creates a known integer without axes.
    pub fn int(number: i64) -> Result<Self> {
        Ok(Item::known(Tensor::from_vec(vec![number], &[])?, Elem::INT64))
    }

    /// Creates a known truth value.
    pub fn truth(holds: bool) -> Result<Self> {
        Ok(Item::known(Tensor::from_vec(vec![holds], &[])?, Elem::BOOL))
    }

    pub fn is_float(&self) -> bool {
        self.x.dtype().is_float()
    }

    pub fn is_int(&self) -> bool {
        self.x.dtype() == DType::I64
    }
}

impl From<Item> for Value {
    fn from(item: Item) -> Self {
        Value::One(item)
    }
}

impl Value {
    pub fn is_known(&self) -> bool {
        match self {
            Value::Absent => true,
            Value::One(item) => item.known,
            Value::Many(values) => values.iter().all(Value::is_known),
        }
    }

    /// Returns the value, with numbers that may be read.
    pub fn into_known(self) -> Self {
        match self {
            Value::Absent => Value::Absent,
            Value::One(item) => Value::One(Item { known: true, ..item }),
            Value::Many(values) => Value::Many(values.into_iter().map(Value::into_known).collect()),
        }
    }

    /// Calls `each` with every tensor.
    pub fn each(&self, each: &mut dyn FnMut(&Item)) {
        match self {
            Value::Absent => {}
            Value::One(item) => each(item),
            Value::Many(values) => values.iter().for_each(|value| value.each(each)),
        }
    }

    /// Replaces every tensor by the next of `tensors`.
    pub fn refilled(self, tensors: &mut impl Iterator<Item = Tensor>) -> Self {
        match self {
            Value::One(item) => {
                let x = tensors.next().unwrap_or(item.x);
                Value::One(Item { x, ..item })
            }
            Value::Many(values) => Value::Many(values.into_iter().map(|value| value.refilled(tensors)).collect()),
            Value::Absent => Value::Absent,
        }
    }
}

/// Returns the dtype that holds an element type, where there is one.
pub(super) fn dtype_of(elem: Elem) -> Result<DType> {
    Ok(match elem {
        Elem::F32 => DType::F32,
        Elem::F64 => DType::F64,
        Elem::F16 => DType::F16,
        Elem::BF16 => DType::Bf16,
        Elem::BOOL => DType::Bool,
        _ if elem.is_int() => DType::I64,
        other => return Err(Error::unsupported(format!("there are no tensors of {other}"))),
    })
}

/// Returns a number as an integer type of the model has it after an overflow.
pub(super) fn wrapped(number: i64, elem: Elem) -> i64 {
    match elem {
        Elem::INT8 => i64::from(number as i8),
        Elem::INT16 => i64::from(number as i16),
        Elem::INT32 => i64::from(number as i32),
        Elem::UINT8 => i64::from(number as u8),
        Elem::UINT16 => i64::from(number as u16),
        Elem::UINT32 => i64::from(number as u32),
        Elem(21) => number & 15,
        Elem(22) => (number << 60) >> 60,
        _ => number,
    }
}

/// Checks that a tensor of this shape fits into memory, for shapes that are computed from numbers of a file.
pub(super) fn room(shape: &[usize]) -> Result<()> {
    const LARGE: usize = 1 << 26;
    let count = shape.iter().try_fold(8usize, |count, &len| count.checked_mul(len));
    let fits = match count {
        Some(bytes) if bytes <= LARGE => true,
        Some(bytes) => Vec::<u8>::new().try_reserve_exact(bytes).is_ok(),
        None => shape.contains(&0),
    };
    match fits {
        true => Ok(()),
        false => Err(Error::shape(format!("a tensor of shape {shape:?} does not fit into memory"))),
    }
}
