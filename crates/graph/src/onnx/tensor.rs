//! Tensors of a model: what describes them, and where their numbers are.

use std::path::{Component, Path};

use super::wire::{Field, Source, Span};
use precast::error::{Error, Result};

/// An element type by its number in the format.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Elem(pub(super) i32);

impl Elem {
    pub(super) const UNDEFINED: Elem = Elem(0);
    pub(super) const F32: Elem = Elem(1);
    pub(super) const UINT8: Elem = Elem(2);
    pub(super) const INT8: Elem = Elem(3);
    pub(super) const UINT16: Elem = Elem(4);
    pub(super) const INT16: Elem = Elem(5);
    pub(super) const INT32: Elem = Elem(6);
    pub(super) const INT64: Elem = Elem(7);
    pub(super) const STRING: Elem = Elem(8);
    pub(super) const BOOL: Elem = Elem(9);
    pub(super) const F16: Elem = Elem(10);
    pub(super) const F64: Elem = Elem(11);
    pub(super) const UINT32: Elem = Elem(12);
    pub(super) const UINT64: Elem = Elem(13);
    pub(super) const BF16: Elem = Elem(16);

    const NAMES: [&'static str; 27] = [
        "undefined",
        "float32",
        "uint8",
        "int8",
        "uint16",
        "int16",
        "int32",
        "int64",
        "string",
        "bool",
        "float16",
        "float64",
        "uint32",
        "uint64",
        "complex64",
        "complex128",
        "bfloat16",
        "float8e4m3fn",
        "float8e4m3fnuz",
        "float8e5m2",
        "float8e5m2fnuz",
        "uint4",
        "int4",
        "float4e2m1",
        "float8e8m0",
        "uint2",
        "int2",
    ];

    /// Returns the name, such as `float32`.
    pub fn name(self) -> &'static str {
        usize::try_from(self.0).ok().and_then(|number| Self::NAMES.get(number)).copied().unwrap_or("unknown")
    }

    /// Returns whether it is one of integers, of 4 to 64 bits.
    pub(super) fn is_int(self) -> bool {
        matches!(self.0, 2..=7 | 12 | 13 | 21 | 22)
    }

    /// Returns the bits of an element, where it has a fixed number of them.
    pub(super) fn bits(self) -> Option<u64> {
        Some(match self.0 {
            1 | 6 | 12 => 32,
            2 | 3 | 9 | 17..=20 | 24 => 8,
            4 | 5 | 10 | 16 => 16,
            7 | 11 | 13 | 14 => 64,
            15 => 128,
            21..=23 => 4,
            25 | 26 => 2,
            _ => return None,
        })
    }
}

impl std::fmt::Display for Elem {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(self.name())
    }
}

/// Place of the numbers of a tensor.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Data {
    /// Little-endian bytes.
    Raw(Span),
    /// Fields of numbers, such as `float_data`.
    Typed,
    /// Another file, in the folder of the model.
    External(External),
}

/// A place in a data file.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct External {
    pub location: String,
    pub offset: u64,
    pub length: Option<u64>,
}

/// A tensor: an initialiser, or the value of an attribute.
#[derive(Clone, Debug)]
pub(super) struct Tensor {
    pub name: String,
    pub dims: Vec<usize>,
    pub elem: Elem,
    pub data: Data,
    /// The bytes of the message.
    pub span: Span,
}

pub(super) mod field {
    pub const DIMS: u32 = 1;
    pub const DATA_TYPE: u32 = 2;
    pub const FLOAT_DATA: u32 = 4;
    pub const INT32_DATA: u32 = 5;
    pub const INT64_DATA: u32 = 7;
    pub const NAME: u32 = 8;
    pub const RAW_DATA: u32 = 9;
    pub const DOUBLE_DATA: u32 = 10;
    pub const UINT64_DATA: u32 = 11;
    pub const EXTERNAL_DATA: u32 = 13;
    pub const DATA_LOCATION: u32 = 14;
}

impl Tensor {
    pub fn read(source: &mut Source, span: Span) -> Result<Self> {
        let mut tensor =
            Tensor { name: String::new(), dims: Vec::new(), elem: Elem::UNDEFINED, data: Data::Typed, span };
        let (mut external, mut is_external, mut dims) = (External::default(), false, Vec::new());
        source.fields(span, |source, f| {
            match f.number {
                field::DIMS => source.ints(f, |dim| dims.push(dim))?,
                field::DATA_TYPE => tensor.elem = Elem(f.int32()?),
                field::NAME => tensor.name = source.text(f)?,
                field::RAW_DATA => tensor.data = Data::Raw(f.bytes()?),
                field::DATA_LOCATION => is_external = f.int()? == 1,
                field::EXTERNAL_DATA => {
                    let (key, value) = entry(source, f)?;
                    let number = || {
                        let words =
                            || tensor.wrong(&format!("the {key} of its data is `{value}`, which is not a number"));
                        value.parse().map_err(|_| words())
                    };
                    match &key[..] {
                        "location" => external.location = value,
                        "offset" => external.offset = number()?,
                        "length" => external.length = Some(number()?),
                        _ => {}
                    }
                }
                _ => {}
            }
            Ok(())
        })?;
        let size = |dim: &i64| usize::try_from(*dim).map_err(|_| tensor.wrong(&format!("an axis of {dim}")));
        tensor.dims = dims.iter().map(size).collect::<Result<_>>()?;
        if is_external {
            check_location(&external.location).map_err(|words| tensor.wrong(&words))?;
            tensor.data = Data::External(external);
        }
        tensor.check_length()?;
        Ok(tensor)
    }

    /// Returns the number of elements.
    pub fn count(&self) -> Result<u64> {
        let product = self.dims.iter().try_fold(1u64, |count, &dim| count.checked_mul(dim as u64));
        product.ok_or_else(|| self.wrong("more elements than a computer can count"))
    }

    /// Returns the length of raw data in bytes, where elements have a fixed number of bits.
    pub fn bytes(&self) -> Result<Option<u64>> {
        let Some(bits) = self.elem.bits() else { return Ok(None) };
        let bits = self.count()?.checked_mul(bits).ok_or_else(|| self.wrong("more bytes than a file can have"))?;
        Ok(Some(bits.div_ceil(8)))
    }

    /// Returns the range of the numbers in the file that has them; `None` for fields of numbers.
    pub fn span_in(&self, file: &Source) -> Result<Option<Span>> {
        match &self.data {
            Data::Raw(span) => Ok(Some(*span)),
            Data::External(place) => external_span(self, place, file).map(Some),
            Data::Typed => Ok(None),
        }
    }

    fn check_length(&self) -> Result<()> {
        let met = match &self.data {
            Data::Raw(span) => span.len,
            Data::External(External { length: Some(length), .. }) => *length,
            _ => return self.count().map(drop),
        };
        match self.bytes()? {
            Some(expected) if expected != met => Err(self.wrong(&format!(
                "its {} of the shape {:?} take {expected} bytes, and it has {met}",
                self.elem, self.dims
            ))),
            _ => Ok(()),
        }
    }

    pub fn wrong(&self, words: &str) -> Error {
        Error::model(format!("byte {}: tensor `{}`: {words}", self.span.start, self.name))
    }
}

/// Checks that a data file is in the folder of the model or below it.
fn check_location(location: &str) -> Result<(), String> {
    let inside = |part| matches!(part, Component::Normal(_) | Component::CurDir);
    let is_drive = location.contains([':', '\\']);
    match !location.is_empty() && !is_drive && Path::new(location).components().all(inside) {
        true => Ok(()),
        false => Err(format!("its data is in `{location}`; a data file must be in the folder of the model")),
    }
}

/// Returns the two strings of an entry of metadata.
pub(super) fn entry(source: &mut Source, f: &Field) -> Result<(String, String)> {
    let (mut key, mut value) = (String::new(), String::new());
    source.fields(f.bytes()?, |source, f| {
        match f.number {
            1 => key = source.text(f)?,
            2 => value = source.text(f)?,
            _ => {}
        }
        Ok(())
    })?;
    Ok((key, value))
}

/// Numbers of a tensor of float32 that are read at once.
const CHUNK: u64 = 1 << 18;

/// The numbers of a tensor of float32, read in order, some at a time.
pub(super) struct Floats<'a> {
    tensor: &'a Tensor,
    /// The bytes of numbers, then the fields that are still to be read; `None` before the first are.
    left: Option<(Span, Span)>,
    count: u64,
    bytes: Vec<u8>,
    /// The numbers that were read last.
    pub numbers: Vec<f32>,
}

impl<'a> Floats<'a> {
    pub fn new(tensor: &'a Tensor) -> Self {
        Floats { tensor, left: None, count: 0, bytes: Vec::new(), numbers: Vec::new() }
    }

    /// Reads the next numbers from the file that has them. Returns whether there were any.
    pub fn read(&mut self, source: &mut Source) -> Result<bool> {
        let (mut numbers, mut fields) = match self.left {
            Some(left) => left,
            None => match self.tensor.span_in(source)? {
                Some(numbers) => (numbers, Span::default()),
                None => (Span::default(), self.tensor.span),
            },
        };
        self.bytes.clear();
        while (self.bytes.len() as u64) < CHUNK * 4 && numbers.len + fields.len > 0 {
            if numbers.len == 0 {
                let field = source.field(fields.start, fields.end())?;
                fields = fields.after(field.whole.len);
                if field.number == field::FLOAT_DATA {
                    numbers = field.numbers(4).map_err(|e| e.context(format!("tensor `{}`", self.tensor.name)))?;
                }
                continue;
            }
            let now = numbers.len.min(CHUNK * 4 - self.bytes.len() as u64);
            source.append(Span { len: now, ..numbers }, &mut self.bytes)?;
            numbers = numbers.after(now);
        }
        self.left = Some((numbers, fields));
        self.numbers.clear();
        self.numbers.extend(self.bytes.as_chunks().0.iter().map(|bytes| f32::from_le_bytes(*bytes)));
        self.count += self.numbers.len() as u64;
        let (expected, met, is_over) = (self.tensor.count()?, self.count, self.numbers.is_empty());
        match is_over && expected != met {
            false => Ok(!is_over),
            true => {
                let words = format!("its shape {:?} has {expected} numbers, and it has {met}", self.tensor.dims);
                Err(self.tensor.wrong(&words))
            }
        }
    }
}

/// Returns the range of a data file that a tensor has.
pub(super) fn external_span(tensor: &Tensor, place: &External, data: &Source) -> Result<Span> {
    let len = match (place.length, tensor.bytes()?) {
        (Some(len), _) | (None, Some(len)) => len,
        (None, None) => return Err(tensor.wrong("data of this type cannot be in a file of its own")),
    };
    match place.offset.checked_add(len) {
        Some(end) if end <= data.all().len => Ok(Span { start: place.offset, len }),
        _ => Err(tensor.wrong(&format!(
            "its {len} bytes from byte {} of `{}` are beyond the end of that file, which has {}",
            place.offset,
            place.location,
            data.all().len
        ))),
    }
}
