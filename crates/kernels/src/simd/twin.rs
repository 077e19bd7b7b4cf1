//! Scalar twins of the instructions that multiply pairs and tiles of bf16, for machines that lack them. Like the
//! instructions, they flush subnormals to 0, so that a kernel that should not have used one fails its test here as well.

use half::bf16;

use super::{Kernel, PairKernel, Pairs, Part, Simd, SizeRange, Sizes, TileKernel, Tiles};

/// Adapter that runs a kernel of pairs with vectors of any width.
pub struct WithTwin<K>(pub K);

impl<K: PairKernel> Kernel for WithTwin<K> {
    type Output = K::Output;
    #[inline(always)]
    fn run<S: Simd>(self, simd: S) -> K::Output {
        self.0.run(simd, Twin(simd))
    }
}

/// Adapter that runs a kernel of tiles with vectors of any width.
pub struct WithTiles<K>(pub K);

impl<K: TileKernel> Kernel for WithTiles<K> {
    type Output = K::Output;
    #[inline(always)]
    fn run<S: Simd>(self, simd: S) -> K::Output {
        self.0.run(simd, Twin(simd), Twin(simd))
    }
}

#[derive(Clone, Copy)]
struct Twin<S>(S);

impl<S: Simd> Twin<S> {
    /// Returns the bits of the lanes; those above the vector are 0.
    fn lanes(self, v: S::F32s) -> [u32; 16] {
        let mut lanes = [0f32; 16];
        // SAFETY: there is room for the widest vector.
        unsafe { self.0.store_f32(v, lanes.as_mut_ptr()) };
        lanes.map(f32::to_bits)
    }

    fn vector(self, lanes: [u32; 16]) -> S::F32s {
        let lanes = lanes.map(f32::from_bits);
        // SAFETY: there are numbers for the widest vector.
        unsafe { self.0.load_f32(lanes.as_ptr()) }
    }

    fn sizes(self, v: S::F32s) -> impl Iterator<Item = (usize, [u32; 2])> {
        self.lanes(v).into_iter().map(|pair| [pair >> 16, pair & 0xffff]).enumerate().take(S::LANES)
    }
}

fn flushed(x: f32) -> f32 {
    if x.is_subnormal() { 0f32.copysign(x) } else { x }
}

/// Returns the first and the second number of a pair.
fn numbers(pair: u32) -> [f32; 2] {
    [pair & 0xffff_0000, pair << 16].map(|bits| flushed(f32::from_bits(bits)))
}

impl<S: Simd> Pairs<S> for Twin<S> {
    fn mul_add_pairs(self, a: S::F32s, b: S::F32s, c: S::F32s) -> S::F32s {
        let [a, b, c] = [a, b, c].map(|v| self.lanes(v));
        self.vector(std::array::from_fn(|i| {
            let ([a0, a1], [b0, b1]) = (numbers(a[i]), numbers(b[i]));
            let first = flushed(a0.mul_add(b0, flushed(f32::from_bits(c[i]))));
            flushed(a1.mul_add(b1, first)).to_bits()
        }))
    }

    unsafe fn join<const N: usize>(self, first: [*const bf16; N], second: [*const bf16; N]) -> S::F32s {
        let length = S::LANES / N;
        // SAFETY: guaranteed by the caller.
        let bits = |row: [*const bf16; N], i: usize| u32::from(unsafe { *row[i / length].add(i % length) }.to_bits());
        self.vector(std::array::from_fn(|i| if i < S::LANES { bits(first, i) << 16 | bits(second, i) } else { 0 }))
    }

    unsafe fn load_pairs(self, from: *const bf16, count: usize) -> S::F32s {
        // SAFETY: guaranteed by the caller.
        let row = unsafe { std::slice::from_raw_parts(from, count) };
        let bits = |i: usize| row.get(i).map_or(0, |x| u32::from(x.to_bits()));
        self.vector(std::array::from_fn(|i| bits(2 * i) << 16 | bits(2 * i + 1)))
    }

    fn note(self, pairs: S::F32s, sizes: &mut Sizes<S>) {
        let (mut least, mut most) = (self.lanes(sizes.least_less_one), self.lanes(sizes.most));
        for (i, [first, second]) in self.sizes(pairs) {
            for size in [first, second].map(|number| number & 0x7fff) {
                least[i] = least[i].min(size.wrapping_sub(1));
                most[i] = most[i].max(size);
            }
        }
        (sizes.least_less_one, sizes.most) = (self.vector(least), self.vector(most));
    }

    fn noted(self, sizes: &Sizes<S>) -> SizeRange {
        let (least, most) = (self.lanes(sizes.least_less_one), self.lanes(sizes.most));
        let least = least[..S::LANES].iter().fold(0xffff, |least, &x| x.min(least));
        SizeRange { least: least + 1, most: most[..S::LANES].iter().fold(0, |most, &x| x.max(most)) }
    }

    fn apart<K: Part<S>>(self, simd: S, part: K) -> K::Output {
        simd.apart(part)
    }
}

impl<S: Simd> Tiles<S> for Twin<S> {
    unsafe fn multiply(
        self,
        steps: usize,
        (rows, columns): (usize, usize),
        a: *const f32,
        b: *const f32,
        to: *mut [f32; 32],
    ) {
        // SAFETY: guaranteed by the caller.
        let (a, b, to) = unsafe {
            let a = std::slice::from_raw_parts(a.cast::<u32>(), steps * 32 * 16);
            (a, std::slice::from_raw_parts(b.cast::<u32>(), steps * 16 * S::NR), std::slice::from_raw_parts_mut(to, 32))
        };
        for (row, to) in to.iter_mut().enumerate().take(rows) {
            for (column, to) in to.iter_mut().enumerate().take(columns) {
                *to = (0..steps).fold(0.0, |sum, step| {
                    let mut two = [0f32; 2];
                    for lane in 0..16 {
                        let of_a = numbers(a[(step * 32 + row) * 16 + lane]);
                        let of_b = numbers(b[(step * 16 + lane) * S::NR + column]);
                        for i in 0..2 {
                            two[i] = flushed(of_a[i].mul_add(of_b[i], two[i]));
                        }
                    }
                    flushed(sum + flushed(two[0] + two[1]))
                });
            }
        }
    }
}
