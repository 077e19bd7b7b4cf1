//! The random Hadamard transform of NVFP4, which spreads outliers over a block before it is quantized.

/// Numbers that are transformed together.
pub(crate) const WIDTH: usize = 16;

/// Signs of the numbers of a block before the transform: those of Transformer Engine, lowest bit first, 1 for minus.
const SIGNS: u16 = 0b1101_0111_1110_1000;

/// Transforms each 16 numbers of a row: signs, the Hadamard matrix of order 16 in Sylvester's order, and a quarter of that,
/// which makes it orthogonal. So a product of two transformed operands is the product of the operands. The length is a
/// multiple of 16.
///
/// The order of sums is that of the fast transform: pairs at distance 1, then 2, 4 and 8.
pub(crate) fn transform(row: &mut [f32]) {
    for block in row.chunks_exact_mut(WIDTH) {
        for (i, x) in block.iter_mut().enumerate() {
            *x = if SIGNS >> i & 1 == 1 { -*x } else { *x };
        }
        for distance in [1, 2, 4, 8] {
            for i in (0..WIDTH).filter(|i| i & distance == 0) {
                (block[i], block[i + distance]) = (block[i] + block[i + distance], block[i] - block[i + distance]);
            }
        }
        block.iter_mut().for_each(|x| *x *= 0.25);
    }
}
