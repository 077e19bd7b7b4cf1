//! The numbers of a model's tensors.

use half::{bf16, f16};

use super::{
    call::lengths,
    value::{Item, dtype_of, room},
};
use crate::onnx::{
    OnnxModel,
    tensor::{Elem, Tensor as Stored, field},
    wire::{Source, Span},
};
use precast::{
    DType, Tensor,
    error::{Error, Result},
};

/// Reads the numbers of a tensor. The data of an unknown or a string type is an error.
pub(super) fn load(model: &OnnxModel, stored: &Stored) -> Result<Item> {
    let wrong = |words: &str| stored.wrong(words);
    dtype_of(stored.elem).map_err(|e| e.context(format!("tensor `{}`", stored.name)))?;
    let count = usize::try_from(stored.count()?).map_err(|_| wrong("more elements than memory can hold"))?;
    let bytes = model.read_numbers(stored, |file| stored.span_in(file)?.map(|span| file.bytes(span)).transpose())?;
    let x = match bytes {
        Some(bytes) => {
            let expected = stored.bytes()?.unwrap_or(0);
            if bytes.len() as u64 != expected {
                return Err(wrong(&format!("its shape takes {expected} bytes, and it has {}", bytes.len())));
            }
            of_bytes(&bytes, stored.elem, count, &stored.dims)?
        }
        None => {
            let numbers = typed(model, stored)?;
            if numbers.len() != count && !(is_small(stored.elem) && numbers.len() == count.div_ceil(2)) {
                return Err(wrong(&format!(
                    "its shape {:?} has {count} numbers, and it has {}",
                    stored.dims,
                    numbers.len()
                )));
            }
            numbers.tensor(stored.elem, count, &stored.dims)?
        }
    };
    Ok(Item::known(x, stored.elem))
}

fn is_small(elem: Elem) -> bool {
    matches!(elem, Elem(21 | 22))
}

fn of_bytes(bytes: &[u8], elem: Elem, count: usize, shape: &[usize]) -> Result<Tensor> {
    macro_rules! of {
        ($t:ty) => {
            bytes.as_chunks().0.iter().map(|bytes| <$t>::from_le_bytes(*bytes))
        };
    }
    macro_rules! ints {
        ($t:ty) => {
            Tensor::from_vec(of!($t).map(|n| n as i64).collect::<Vec<i64>>(), shape)
        };
    }
    match elem {
        Elem::F32 => Tensor::from_vec(of!(f32).collect::<Vec<f32>>(), shape),
        Elem::F64 => Tensor::from_vec(of!(f64).collect::<Vec<f64>>(), shape),
        Elem::F16 => Tensor::from_vec(of!(f16).collect::<Vec<f16>>(), shape),
        Elem::BF16 => Tensor::from_vec(of!(bf16).collect::<Vec<bf16>>(), shape),
        Elem::BOOL => Tensor::from_vec(bytes.iter().map(|byte| *byte != 0).collect::<Vec<bool>>(), shape),
        Elem::INT8 => ints!(i8),
        Elem::UINT8 => ints!(u8),
        Elem::INT16 => ints!(i16),
        Elem::UINT16 => ints!(u16),
        Elem::INT32 => ints!(i32),
        Elem::UINT32 => ints!(u32),
        Elem::UINT64 => ints!(u64),
        Elem(21 | 22) => Tensor::from_vec(halves(bytes.iter().map(|byte| i64::from(*byte)), elem, count), shape),
        _ => ints!(i64),
    }
}

/// Returns integers of four bits, two in a byte, the lower one first.
fn halves(bytes: impl Iterator<Item = i64>, elem: Elem, count: usize) -> Vec<i64> {
    let both = bytes.flat_map(|byte| [byte & 15, (byte >> 4) & 15]);
    both.take(count).map(|half| super::value::wrapped(half, elem)).collect()
}

/// The contents of a field of numbers.
enum Typed {
    Ints(Vec<i64>),
    Floats(Vec<f32>),
    Doubles(Vec<f64>),
}

impl Typed {
    fn len(&self) -> usize {
        match self {
            Typed::Ints(numbers) => numbers.len(),
            Typed::Floats(numbers) => numbers.len(),
            Typed::Doubles(numbers) => numbers.len(),
        }
    }

    fn tensor(self, elem: Elem, count: usize, shape: &[usize]) -> Result<Tensor> {
        match self {
            Typed::Floats(numbers) => Tensor::from_vec(numbers, shape),
            Typed::Doubles(numbers) => Tensor::from_vec(numbers, shape),
            Typed::Ints(numbers) => match elem {
                Elem::F16 => {
                    let bits = numbers.iter().map(|bits| f16::from_bits(*bits as u16));
                    Tensor::from_vec(bits.collect::<Vec<f16>>(), shape)
                }
                Elem::BF16 => {
                    let bits = numbers.iter().map(|bits| bf16::from_bits(*bits as u16));
                    Tensor::from_vec(bits.collect::<Vec<bf16>>(), shape)
                }
                Elem::BOOL => Tensor::from_vec(numbers.iter().map(|n| *n != 0).collect::<Vec<bool>>(), shape),
                _ if is_small(elem) && numbers.len() != count => {
                    Tensor::from_vec(halves(numbers.into_iter(), elem, count), shape)
                }
                _ => Tensor::from_vec(
                    numbers.into_iter().map(|n| super::value::wrapped(n, elem)).collect::<Vec<i64>>(),
                    shape,
                ),
            },
        }
    }
}

fn typed(model: &OnnxModel, stored: &Stored) -> Result<Typed> {
    let (mut ints, mut floats, mut doubles) = (Vec::new(), Vec::new(), Vec::new());
    let wanted = match stored.elem {
        Elem::F32 => field::FLOAT_DATA,
        Elem::F64 => field::DOUBLE_DATA,
        Elem::INT64 => field::INT64_DATA,
        Elem::UINT32 | Elem::UINT64 => field::UINT64_DATA,
        _ => field::INT32_DATA,
    };
    model.files().model.fields(stored.span, |source, f| match f.number {
        number if number != wanted => Ok(()),
        field::FLOAT_DATA => source.floats(f).map(|more| floats.extend(more)),
        field::DOUBLE_DATA => {
            let bytes = source.bytes(f.numbers(8)?)?;
            doubles.extend(bytes.as_chunks().0.iter().map(|bytes| f64::from_le_bytes(*bytes)));
            Ok(())
        }
        _ => source.ints(f, |number| ints.push(number)),
    })?;
    Ok(match stored.elem {
        Elem::F32 => Typed::Floats(floats),
        Elem::F64 => Typed::Doubles(doubles),
        _ => Typed::Ints(ints),
    })
}

/// A sparse tensor: some of its numbers, and their places.
pub(super) struct Sparse {
    values: Stored,
    places: Stored,
    shape: Vec<i64>,
}

impl Sparse {
    /// Reads the message of a sparse tensor.
    pub fn read(source: &mut Source, span: Span) -> Result<Self> {
        let (mut values, mut places, mut shape) = (None, None, Vec::new());
        source.fields(span, |source, f| {
            match f.number {
                1 => values = Some(Stored::read(source, f.bytes()?)?),
                2 => places = Some(Stored::read(source, f.bytes()?)?),
                3 => source.ints(f, |len| shape.push(len))?,
                _ => {}
            }
            Ok(())
        })?;
        match (values, places) {
            (Some(values), Some(places)) => Ok(Sparse { values, places, shape }),
            _ => Err(Error::model(format!("byte {}: a sparse tensor without values or places", span.start))),
        }
    }

    /// Returns the name and the numbers of the tensor, with its zeros.
    pub fn dense(&self, model: &OnnxModel) -> Result<(String, Item)> {
        let shape = lengths(&self.shape)?;
        room(&shape)?;
        let (values, places) = (load(model, &self.values)?, load(model, &self.places)?);
        let wrong = || self.places.wrong("its places do not fit the tensor");
        let (numbers, flat) = (places.x.to_vec::<i64>()?, places.x.rank() == 1);
        let rank = if flat { 1 } else { shape.len() };
        let size: usize = shape.iter().product();
        if numbers.len() != values.x.len() * rank {
            return Err(wrong());
        }
        let mut all = vec![0.0; size];
        for (value, place) in values.x.to_f64().into_iter().zip(numbers.chunks(rank.max(1))) {
            let at = match flat {
                true => usize::try_from(place[0]).ok(),
                false => place.iter().zip(&shape).try_fold(0usize, |at, (place, len)| {
                    let place = usize::try_from(*place).ok().filter(|place| place < len)?;
                    Some(at * len + place)
                }),
            };
            *at.and_then(|at| all.get_mut(at)).ok_or_else(wrong)? = value;
        }
        let x = Tensor::from_f64(&all, &shape, values.x.dtype())?;
        Ok((self.values.name.clone(), Item::known(x, values.elem)))
    }
}

/// Creates a known tensor of one number.
pub(super) fn filled(shape: &[usize], value: f64, dtype: DType) -> Result<Tensor> {
    room(shape)?;
    Tensor::try_full(shape, value, dtype)
}
