//! A message to be written: bytes copied from the model, new bytes, and the numbers of tensors, which are read while
//! they are written.

use std::io::Write;

use half::{bf16, f16, slice::HalfFloatSliceExt as _};

use super::{
    model::OnnxModel,
    tensor::Tensor,
    wire::{Span, put_bytes, put_head, put_int},
};
use precast::{
    DType,
    error::{Error, Result},
};

/// Bytes that are copied at once.
const CHUNK: usize = 1 << 20;

/// A message, or a part of one.
#[derive(Debug, Default)]
pub(super) struct Body<'a> {
    pieces: Vec<Piece<'a>>,
    pub len: u64,
}

#[derive(Debug)]
enum Piece<'a> {
    Copy(Span),
    Bytes(Vec<u8>),
    Body(Body<'a>),
    Numbers(Numbers<'a>),
}

/// The numbers of a tensor as raw data.
#[derive(Clone, Copy, Debug)]
pub(super) struct Numbers<'a> {
    pub tensor: &'a Tensor,
    /// The dtype to which float32 is rounded; `None` for the numbers as they are.
    pub to: Option<DType>,
}

impl Numbers<'_> {
    /// Returns the length in bytes.
    pub fn len(&self) -> Result<u64> {
        match self.to {
            Some(_) => Ok(self.tensor.count()? * 2),
            None => self.tensor.bytes()?.ok_or_else(|| self.tensor.wrong("its type has no raw form")),
        }
    }

    /// Writes the numbers.
    pub fn write(&self, model: &OnnxModel, out: &mut dyn Write, progress: &mut dyn FnMut(u64)) -> Result<()> {
        let failed = |e: std::io::Error| Error::new(precast::ErrorKind::Io, e.to_string());
        let Some(to) = self.to else { return self.copy(model, out, progress) };
        let (mut half, mut brain, mut bytes) = (Vec::new(), Vec::new(), Vec::new());
        model.floats(self.tensor, |numbers| {
            bytes.resize(numbers.len() * 2, 0u8);
            match to {
                DType::F16 => {
                    half.resize(numbers.len(), f16::ZERO);
                    half.convert_from_f32_slice(numbers);
                    put(&mut bytes, half.reinterpret_cast());
                }
                _ => {
                    brain.resize(numbers.len(), bf16::ZERO);
                    brain.convert_from_f32_slice(numbers);
                    put(&mut bytes, brain.reinterpret_cast());
                }
            }
            progress(numbers.len() as u64 * 4);
            out.write_all(&bytes).map_err(failed)
        })
    }

    fn copy(&self, model: &OnnxModel, out: &mut dyn Write, progress: &mut dyn FnMut(u64)) -> Result<()> {
        let span = model.read_numbers(self.tensor, |source| self.tensor.span_in(source))?;
        let span = span.ok_or_else(|| self.tensor.wrong("its numbers are not raw"))?;
        let mut read = |at, into: &mut [u8]| model.read_numbers(self.tensor, |source| source.read_at(at, into));
        copy(span, &mut read, out, progress)
    }
}

/// Writes numbers of 16 bits in little-endian order.
fn put(bytes: &mut [u8], bits: &[u16]) {
    for (bytes, bits) in bytes.as_chunks_mut().0.iter_mut().zip(bits) {
        *bytes = bits.to_le_bytes();
    }
}

/// Copies a range. Files are locked by `read` alone, so that `progress` may use the model.
fn copy(
    span: Span,
    read: &mut dyn FnMut(u64, &mut [u8]) -> Result<()>,
    out: &mut dyn Write,
    progress: &mut dyn FnMut(u64),
) -> Result<()> {
    let mut bytes = vec![0; CHUNK.min(span.len as usize)];
    let mut at = span.start;
    while at < span.end() {
        let now = bytes.len().min((span.end() - at) as usize);
        read(at, &mut bytes[..now])?;
        out.write_all(&bytes[..now]).map_err(|e| Error::new(precast::ErrorKind::Io, e.to_string()))?;
        progress(now as u64);
        at += now as u64;
    }
    Ok(())
}

impl<'a> Body<'a> {
    /// Appends bytes of the model. Adjacent ones become one piece.
    pub fn copy(&mut self, span: Span) {
        self.len += span.len;
        match self.pieces.last_mut() {
            Some(Piece::Copy(last)) if last.end() == span.start => last.len += span.len,
            _ => self.pieces.push(Piece::Copy(span)),
        }
    }

    /// Appends new bytes.
    pub fn bytes(&mut self, bytes: &[u8]) {
        self.len += bytes.len() as u64;
        match self.pieces.last_mut() {
            Some(Piece::Bytes(last)) => last.extend_from_slice(bytes),
            _ => self.pieces.push(Piece::Bytes(bytes.to_vec())),
        }
    }

    /// Returns a message that is copied whole.
    pub fn of(span: Span) -> Self {
        let mut body = Body::default();
        body.copy(span);
        body
    }

    /// Appends a field of bytes, such as a name.
    pub fn field(&mut self, number: u32, value: &[u8]) {
        let mut field = Vec::new();
        put_bytes(&mut field, number, value);
        self.bytes(&field);
    }

    /// Appends a field with a number.
    pub fn int(&mut self, number: u32, value: i64) {
        let mut field = Vec::new();
        put_int(&mut field, number, value);
        self.bytes(&field);
    }

    /// Appends a field with a message.
    pub fn message(&mut self, number: u32, body: Body<'a>) {
        let mut head = Vec::new();
        put_head(&mut head, number, body.len);
        self.bytes(&head);
        self.len += body.len;
        self.pieces.push(Piece::Body(body));
    }

    /// Appends a field with the numbers of a tensor.
    pub fn numbers(&mut self, number: u32, numbers: Numbers<'a>) -> Result<()> {
        let len = numbers.len()?;
        let mut head = Vec::new();
        put_head(&mut head, number, len);
        self.bytes(&head);
        self.len += len;
        self.pieces.push(Piece::Numbers(numbers));
        Ok(())
    }

    /// Writes the message.
    pub fn write(&self, model: &OnnxModel, out: &mut dyn Write, progress: &mut dyn FnMut(u64)) -> Result<()> {
        for piece in &self.pieces {
            match piece {
                Piece::Copy(span) => {
                    copy(*span, &mut |at, into| model.files().model.read_at(at, into), out, progress)?;
                }
                Piece::Bytes(bytes) => {
                    out.write_all(bytes).map_err(|e| Error::new(precast::ErrorKind::Io, e.to_string()))?;
                }
                Piece::Body(body) => body.write(model, out, progress)?,
                Piece::Numbers(numbers) => numbers.write(model, out, progress)?,
            }
        }
        Ok(())
    }
}
