//! Rotary embeddings.

use candle_core::{D, Result, Tensor};

use super::widen;

/// Rotates pairs of numbers by their position, computed in f32, with a backward pass: the first half of the last axis with
/// the second, as `candle_nn::rotary_emb::rope`.
///
/// Shapes: `x` (batch, heads, length, size); `cos` and `sin` (at least length, size / 2), or with a batch in front. The
/// result has the shape and dtype of `x`, which need not be contiguous.
///
/// # Errors
/// Shapes that do not fit; those of candle.
pub fn rope(x: &Tensor, cos: &Tensor, sin: &Tensor) -> Result<Tensor> {
    let (cos, sin) = angles(x, cos, sin)?;
    let half = x.dim(D::Minus1)? / 2;
    let wide = widen(x)?;
    let (a, b) = (wide.narrow(D::Minus1, 0, half)?, wide.narrow(D::Minus1, half, half)?);
    let (a, b) = rotated(&a, &b, &cos, &sin)?;
    Tensor::cat(&[a, b], D::Minus1)?.to_dtype(x.dtype())
}

/// As [`rope`], for pairs of neighbouring numbers, as `candle_nn::rotary_emb::rope_i`.
///
/// # Errors
/// As [`rope`].
pub fn rope_i(x: &Tensor, cos: &Tensor, sin: &Tensor) -> Result<Tensor> {
    let (cos, sin) = angles(x, cos, sin)?;
    let (batch, heads, length, size) = x.dims4()?;
    let pairs = widen(x)?.reshape((batch, heads, length, size / 2, 2))?;
    let part = |i| pairs.narrow(D::Minus1, i, 1)?.squeeze(D::Minus1);
    let (a, b) = rotated(&part(0)?, &part(1)?, &cos, &sin)?;
    Tensor::stack(&[a, b], D::Minus1)?.reshape(x.shape())?.to_dtype(x.dtype())
}

/// Rotates pairs of coordinates.
fn rotated(a: &Tensor, b: &Tensor, cos: &Tensor, sin: &Tensor) -> Result<(Tensor, Tensor)> {
    let x = (a.broadcast_mul(cos)? - b.broadcast_mul(sin)?)?;
    let y = (a.broadcast_mul(sin)? + b.broadcast_mul(cos)?)?;
    Ok((x, y))
}

/// Returns cosines and sines in f32, of the length of `x`, with axes for batch and heads.
fn angles(x: &Tensor, cos: &Tensor, sin: &Tensor) -> Result<(Tensor, Tensor)> {
    let (batch, _, length, size) = x.dims4()?;
    let one = |table: &Tensor| -> Result<Tensor> {
        let fits = match table.dims() {
            [rows, half] => *rows >= length && half * 2 == size,
            [of, rows, half] => *of == batch && *rows >= length && half * 2 == size,
            _ => false,
        };
        if !fits {
            let (met, half) = (table.dims(), size / 2);
            candle_core::bail!(
                "rope: an input of shape {:?} needs cosines and sines of shape [{length}, {half}] or [{batch}, {length}, \
                 {half}], and got {met:?}",
                x.dims()
            )
        }
        let table = widen(table)?.narrow(D::Minus2, 0, length)?;
        // A table without a batch is the same for all.
        if table.rank() == 2 { table.reshape((1, 1, length, size / 2)) } else { table.unsqueeze(1) }
    };
    Ok((one(cos)?, one(sin)?))
}
