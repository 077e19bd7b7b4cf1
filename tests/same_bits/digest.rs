//! A number that stands for all bits of some tensors.

use precast::Tensor;

/// FNV-1a, by words of 64 bits in the place of bytes.
pub struct Digest(u64);

impl Default for Digest {
    fn default() -> Self {
        Digest(0xcbf2_9ce4_8422_2325)
    }
}

impl Digest {
    fn add(&mut self, word: u64) {
        // A product moves bits upwards only: the rotation brings them back.
        self.0 = (self.0 ^ word).wrapping_mul(0x0100_0000_01b3).rotate_left(23);
    }

    /// Dtype, shape and every bit: f64 holds each number of the other dtypes.
    pub fn tensor(&mut self, x: &Tensor) {
        self.text(x.dtype().name());
        x.shape().iter().for_each(|len| self.add(*len as u64));
        x.to_f64().iter().for_each(|number| self.add(number.to_bits()));
    }

    pub fn text(&mut self, text: &str) {
        text.bytes().for_each(|byte| self.add(byte.into()));
    }

    pub fn value(&self) -> u64 {
        self.0
    }
}
