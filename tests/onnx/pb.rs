//! Tensors in ONNX's own files: `input_0.pb`, `output_0.pb`.

use half::{bf16, f16};
use precast::{DType, Tensor};

/// The value of a field of a message.
enum Value<'a> {
    Number(u64),
    Bytes(&'a [u8]),
}

/// Reads a number of seven bits a byte.
fn varint(bytes: &mut &[u8]) -> Option<u64> {
    let mut number = 0;
    for shift in (0..64).step_by(7) {
        let (first, rest) = bytes.split_first()?;
        *bytes = rest;
        number |= u64::from(first & 127) << shift;
        if first & 128 == 0 {
            return Some(number);
        }
    }
    None
}

/// Returns the fields of a message.
fn fields(mut bytes: &[u8]) -> Option<Vec<(u64, Value<'_>)>> {
    let mut all = Vec::new();
    while !bytes.is_empty() {
        let key = varint(&mut bytes)?;
        let len = match key & 7 {
            0 => {
                all.push((key >> 3, Value::Number(varint(&mut bytes)?)));
                continue;
            }
            1 => 8,
            2 => usize::try_from(varint(&mut bytes)?).ok()?,
            5 => 4,
            _ => return None,
        };
        let (value, rest) = bytes.split_at_checked(len)?;
        bytes = rest;
        all.push((key >> 3, Value::Bytes(value)));
    }
    Some(all)
}

/// Reads a tensor; `None` for a type that has no tensors here.
pub fn tensor(bytes: &[u8]) -> Option<Tensor> {
    let (mut shape, mut kind, mut raw) = (Vec::new(), 0, None);
    let (mut numbers, mut packed) = (Vec::new(), Vec::new());
    for (number, value) in fields(bytes)? {
        match (number, value) {
            (1, Value::Number(len)) => shape.push(len as usize),
            (1, Value::Bytes(mut lens)) => {
                while !lens.is_empty() {
                    shape.push(varint(&mut lens)? as usize);
                }
            }
            (2, Value::Number(number)) => kind = number,
            (4 | 10, Value::Bytes(bytes)) => packed.extend_from_slice(bytes),
            (5 | 7 | 11, Value::Number(number)) => numbers.push(number as i64),
            (5 | 7 | 11, Value::Bytes(mut bytes)) => {
                while !bytes.is_empty() {
                    numbers.push(varint(&mut bytes)? as i64);
                }
            }
            (9, Value::Bytes(bytes)) => raw = Some(bytes),
            _ => {}
        }
    }
    let shape = &shape[..];
    let is_packed = raw.is_none() && matches!(kind, 1 | 11);
    let bytes = if is_packed { Some(&packed[..]) } else { raw };
    macro_rules! each {
        ($t:ty) => {
            bytes?.as_chunks().0.iter().map(|chunk| <$t>::from_le_bytes(*chunk))
        };
    }
    macro_rules! ints {
        ($t:ty) => {
            match raw {
                Some(_) => each!($t).map(|number| number as i64).collect(),
                None => numbers,
            }
        };
    }
    let ints: Vec<i64> = match kind {
        1 => return Tensor::from_vec(each!(f32).collect(), shape).ok(),
        11 => return Tensor::from_vec(each!(f64).collect(), shape).ok(),
        10 => {
            let half: Vec<f16> = match raw {
                Some(_) => each!(f16).collect(),
                None => numbers.iter().map(|bits| f16::from_bits(*bits as u16)).collect(),
            };
            return Tensor::from_vec(half, shape).ok();
        }
        16 => {
            let half: Vec<bf16> = match raw {
                Some(_) => each!(bf16).collect(),
                None => numbers.iter().map(|bits| bf16::from_bits(*bits as u16)).collect(),
            };
            return Tensor::from_vec(half, shape).ok();
        }
        2 | 9 => ints!(u8),
        3 => ints!(i8),
        4 => ints!(u16),
        5 => ints!(i16),
        6 => ints!(i32),
        7 => ints!(i64),
        12 => ints!(u32),
        13 => ints!(u64),
        _ => return None,
    };
    let x = Tensor::from_vec(ints, shape).ok()?;
    Some(if kind == 9 { x.cast(DType::Bool) } else { x })
}
