//! Digests of all bits of some tensors: of results, and of the gradients that come back.

use precast::Tensor;

/// Digests of a workload: its results, and separately the gradients, if there are any.
#[derive(Default)]
pub struct Digests {
    pub results: Digest,
    pub gradients: Option<Digest>,
}

impl Digests {
    pub fn result(&mut self, x: &Tensor) {
        self.results.tensor(x);
    }

    pub fn gradient(&mut self, x: &Tensor) {
        self.gradients.get_or_insert_default().tensor(x);
    }
}

/// FNV-1a, on words of 64 bits instead of bytes.
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

    /// Adds dtype, shape and every bit: f64 represents each number of the other dtypes.
    fn tensor(&mut self, x: &Tensor) {
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
