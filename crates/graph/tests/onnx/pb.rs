//! Tensors in ONNX's own files: `input_0.pb`, `output_0.pb`; what a model has of them.

use half::{bf16, f16};
use precast::{DType, Tensor};

/// The value of a field of a message.
pub enum Value<'a> {
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
pub fn fields(mut bytes: &[u8]) -> Option<Vec<(u64, Value<'_>)>> {
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

/// Inputs, outputs, initialisers and constants of a written model, with the names of their types.
#[derive(Default)]
pub struct Written {
    pub constants: Vec<(String, &'static str)>,
    pub io: Vec<(String, &'static str)>,
    pub initialisers: Vec<(String, (&'static str, Vec<u8>))>,
}

impl Written {
    pub fn of(model: &[u8]) -> Written {
        let mut written = Written::default();
        for (number, field) in fields(part(model, &[7]).expect("a graph")).expect("fields") {
            let Value::Bytes(bytes) = field else { continue };
            let name = |number| String::from_utf8(part(bytes, &[number]).unwrap_or_default().to_vec()).unwrap();
            match number {
                1 if name(4) == "Constant" => {
                    let tensor = part(bytes, &[5, 5]).expect("a tensor");
                    written.constants.push((name(3), self::number(tensor, 2).map_or("undefined", elem)));
                }
                5 => {
                    let elem = self::number(bytes, 2).map_or("undefined", elem);
                    written.initialisers.push((name(8), (elem, part(bytes, &[9]).unwrap_or_default().to_vec())));
                }
                11 | 12 => {
                    let tensor = part(bytes, &[2, 1]).expect("a tensor");
                    written.io.push((name(1), self::number(tensor, 1).map_or("undefined", elem)));
                }
                _ => {}
            }
        }
        written
    }
}

/// Returns the inputs of the body of the first node with an op, with the names of their types.
pub fn body_inputs(model: &[u8], op: &str) -> Vec<(String, &'static str)> {
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    let fields_of = |bytes| {
        fields(bytes).expect("fields").into_iter().filter_map(|(number, field)| match field {
            Value::Bytes(bytes) => Some((number, bytes)),
            Value::Number(_) => None,
        })
    };
    let nodes = fields_of(part(model, &[7]).expect("a graph")).filter(|(number, _)| *number == 1);
    let node =
        nodes.map(|(_, node)| node).find(|node| part(node, &[4]).map(text).as_deref() == Some(op)).expect("a node");
    let inputs = fields_of(part(node, &[5, 6]).expect("a body")).filter(|(number, _)| *number == 11);
    let typed = |(_, input)| {
        let elem = part(input, &[2, 1]).and_then(|tensor| number(tensor, 1)).map_or("undefined", elem);
        (text(part(input, &[1]).unwrap_or_default()), elem)
    };
    inputs.map(typed).collect()
}

/// Returns the messages of one kind in the graph of a model.
fn of_graph(model: &[u8], wanted: u64) -> Vec<&[u8]> {
    let all = fields(part(model, &[7]).expect("a graph")).expect("fields").into_iter();
    all.filter_map(|(number, field)| match field {
        Value::Bytes(bytes) if number == wanted => Some(bytes),
        _ => None,
    })
    .collect()
}

/// Returns the first outputs of the nodes with an op.
pub fn made_by(model: &[u8], op: &str) -> Vec<String> {
    let nodes = of_graph(model, 1).into_iter().filter(|node| part(node, &[4]) == Some(op.as_bytes()));
    nodes.map(|node| String::from_utf8(part(node, &[2]).unwrap_or_default().to_vec()).unwrap()).collect()
}

/// Returns the declared values of a graph with the names of their types.
pub fn declared(model: &[u8]) -> Vec<(String, &'static str)> {
    let typed = |value: &[u8]| {
        let elem = part(value, &[2, 1]).and_then(|tensor| number(tensor, 1)).map_or("undefined", elem);
        (String::from_utf8(part(value, &[1]).unwrap_or_default().to_vec()).unwrap(), elem)
    };
    of_graph(model, 13).into_iter().map(typed).collect()
}

/// Returns the message at a path of fields.
fn part<'a>(bytes: &'a [u8], path: &[u64]) -> Option<&'a [u8]> {
    path.iter().try_fold(bytes, |bytes, wanted| {
        fields(bytes)?.into_iter().find_map(|(number, value)| match value {
            Value::Bytes(part) if number == *wanted => Some(part),
            _ => None,
        })
    })
}

fn number(bytes: &[u8], wanted: u64) -> Option<u64> {
    fields(bytes)?.into_iter().find_map(|(number, value)| match value {
        Value::Number(value) if number == wanted => Some(value),
        _ => None,
    })
}

fn elem(number: u64) -> &'static str {
    match number {
        1 => "float32",
        7 => "int64",
        9 => "bool",
        10 => "float16",
        _ => "another",
    }
}
