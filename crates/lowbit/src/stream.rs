//! Random bits as a function of a key and a counter, so that no bit depends on the order of work.

/// Random bits of one tensor in one step: element `i` has the same bits on any number of threads and ranks, and after a
/// restart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stream {
    key: [u32; 2],
    step: u32,
}

/// Elements that share calls of [`Stream::draw`]: the first half has the first word of each, the second half the second.
const BLOCK: usize = 64;

impl Stream {
    /// Creates the stream of a seed, the name of the tensor, and the number of the step. Step 2^32 has the bits of the first.
    pub fn new(seed: u64, tensor: &str, step: u64) -> Self {
        // FNV-1a.
        let hash = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        let key = seed ^ tensor.bytes().fold(0xcbf2_9ce4_8422_2325, hash);
        Stream { key: [key as u32, (key >> 32) as u32], step: step as u32 }
    }

    /// Returns the 64 random bits of a counter.
    #[inline(always)]
    pub fn draw(self, counter: u32) -> [u32; 2] {
        threefry(self.key, [counter, self.step])
    }

    /// Writes the random bits of the elements that begin with number `first` of the tensor. Element 2^33 has the bits of
    /// the first.
    ///
    /// ```
    /// use precast_lowbit::Stream;
    ///
    /// let stream = Stream::new(7, "fc.weight", 1);
    /// let (mut all, mut part) = ([0; 100], [0; 30]);
    /// stream.fill(0, &mut all);
    /// stream.fill(70, &mut part);
    /// assert_eq!(all[70..], part);
    /// ```
    #[inline(always)]
    pub fn fill(self, first: usize, random: &mut [u32]) {
        let mut at = first;
        let mut rest = random;
        while !rest.is_empty() {
            let skipped = at % BLOCK;
            let block = self.block(at / BLOCK);
            let (part, after) = rest.split_at_mut((BLOCK - skipped).min(rest.len()));
            part.copy_from_slice(&block[skipped..skipped + part.len()]);
            at += part.len();
            rest = after;
        }
    }

    #[inline(always)]
    fn block(self, number: usize) -> [u32; BLOCK] {
        let mut words = [0; BLOCK];
        let (first, second) = words.split_at_mut(BLOCK / 2);
        let counter = (number * (BLOCK / 2)) as u32;
        for (i, (first, second)) in first.iter_mut().zip(second).enumerate() {
            [*first, *second] = self.draw(counter.wrapping_add(i as u32));
        }
        words
    }
}

/// Computes Threefry-2x32 with 20 rounds (J. Salmon, M. Moraes, R. Dror, D. Shaw, "Parallel random numbers: as easy as
/// 1, 2, 3", 2011).
#[inline(always)]
fn threefry(key: [u32; 2], counter: [u32; 2]) -> [u32; 2] {
    const ROTATIONS: [[u32; 4]; 2] = [[13, 15, 26, 6], [17, 29, 16, 24]];
    let keys = [key[0], key[1], 0x1bd1_1bda ^ key[0] ^ key[1]];
    let [mut x, mut y] = [counter[0].wrapping_add(keys[0]), counter[1].wrapping_add(keys[1])];
    for group in 0..5 {
        for by in ROTATIONS[group % 2] {
            x = x.wrapping_add(y);
            y = y.rotate_left(by) ^ x;
        }
        x = x.wrapping_add(keys[(group + 1) % 3]);
        y = y.wrapping_add(keys[(group + 2) % 3]).wrapping_add(group as u32 + 1);
    }
    [x, y]
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Checks known answers of Random123, the authors' library (`kat_vectors`, threefry 2x32 20).
    #[test]
    fn threefry_gives_the_known_answers() {
        assert_eq!(threefry([0; 2], [0; 2]), [0x6b20_0159, 0x99ba_4efe]);
        assert_eq!(threefry([u32::MAX; 2], [u32::MAX; 2]), [0x1cb9_96fc, 0xbb00_2be7]);
        assert_eq!(threefry([0x1319_8a2e, 0x0370_7344], [0x243f_6a88, 0x85a3_08d3]), [0xc492_3a9c, 0x483d_f7a0]);
    }

    #[test]
    fn bits_depend_on_seed_tensor_step_and_place_alone() {
        let bits = |stream: Stream, first: usize, len: usize| {
            let mut random = vec![0; len];
            stream.fill(first, &mut random);
            random
        };
        let stream = Stream::new(1, "w", 1);
        let all = bits(stream, 0, 1000);
        for (first, len) in [(0, 1), (1, 63), (63, 2), (64, 64), (100, 700), (999, 1), (7, 0)] {
            assert_eq!(bits(stream, first, len), all[first..first + len]);
        }
        for other in [(2, "w", 1), (1 << 32, "w", 1), (1, "v", 1), (1, "w", 2)] {
            assert_ne!(bits(Stream::new(other.0, other.1, other.2), 0, 1000), all);
        }
        let mut sorted = all.clone();
        sorted.sort_unstable();
        sorted.dedup();
        assert_eq!(sorted.len(), all.len(), "two elements share bits");
    }
}
