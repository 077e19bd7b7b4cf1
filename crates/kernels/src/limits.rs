//! Peak rates of this machine, for comparison with those of the kernels.

use std::{hint::black_box, sync::OnceLock, time::Instant};

use super::{
    amx,
    gemm::micro_kernel::{Paired, Terms, Wide},
    memory::with_scratch,
    simd::{self, Kernel, PairKernel, Pairs, Simd, TileKernel, Tiles},
};

/// Loop of fused multiply-adds in registers.
struct MultiplyAdd {
    rounds: usize,
}

impl Kernel for MultiplyAdd {
    /// Number of floating-point operations performed.
    type Output = f64;
    #[inline(always)]
    fn run<S: Simd>(self, simd: S) -> f64 {
        self.chains(simd, Wide)
    }
}

impl PairKernel for MultiplyAdd {
    /// Number of floating-point operations performed.
    type Output = f64;
    #[inline(always)]
    fn run<S: Simd, P: Pairs<S>>(self, simd: S, pairs: P) -> f64 {
        self.chains(simd, Paired(pairs))
    }
}

impl TileKernel for MultiplyAdd {
    /// Number of floating-point operations performed.
    type Output = f64;
    #[inline(always)]
    fn run<S: Simd, P: Pairs<S>, X: Tiles<S>>(self, _: S, _: P, tiles: X) -> f64 {
        // Operands that fit in the nearest cache.
        const STEPS: usize = 4;
        const LEN: usize = STEPS * 32 * 16;
        let mut to = [[0f32; 32]; 32];
        with_scratch(|[operand]| {
            let operand = operand.uninit(LEN);
            // Pairs of ones.
            operand.fill(f32::from_bits(0x3f80_3f80));
            let operand = black_box(operand.as_ptr());
            for _ in 0..self.rounds {
                // SAFETY: each operand has 32 rows of 16 pairs for each step, and there are 32 rows of sums.
                unsafe { tiles.multiply(STEPS, (32, 32), operand, operand, to.as_mut_ptr()) };
                black_box(&to);
            }
        });
        (2 * 32 * 32 * 32 * STEPS * self.rounds) as f64
    }
}

impl MultiplyAdd {
    /// Runs more independent chains than the latency of a multiply-add in cycles times two units, and no more than fit into
    /// registers beside both factors.
    #[inline(always)]
    fn chains<S: Simd, M: Terms<S>>(self, simd: S, terms: M) -> f64 {
        if S::REGISTERS == 16 {
            self.run_chains::<S, M, 12>(simd, terms)
        } else {
            self.run_chains::<S, M, 16>(simd, terms)
        }
    }

    // Without iterators, as in the micro-kernel.
    #[inline(always)]
    fn run_chains<S: Simd, M: Terms<S>, const CHAINS: usize>(self, simd: S, terms: M) -> f64 {
        let mut out = [0f32; 16];
        // SAFETY: `out` has room for the widest vector.
        unsafe {
            let (a, b) = (simd.splat(black_box(0.999)), simd.splat(black_box(1e-3)));
            let mut sums = [simd.splat(1.0); CHAINS];
            for _ in 0..self.rounds {
                for i in 0..CHAINS {
                    sums[i] = terms.mul_add(simd, a, b, sums[i]);
                }
            }
            for i in 0..CHAINS {
                simd.store_f32(sums[i], out.as_mut_ptr());
                black_box(&out);
            }
        }
        (2 * CHAINS * S::LANES * M::IN_LANE * self.rounds) as f64
    }
}

/// Returns the operations per second.
fn rate(run: impl FnOnce() -> Option<f64>) -> Option<f64> {
    let start = Instant::now();
    Some(run()? / start.elapsed().as_secs_f64())
}

/// Returns whether this machine multiplies pairs of bf16 faster than f32. Measured once, in a fifth of a millisecond,
/// because the instruction is said to be slow on some machines.
pub fn pairs_pay() -> bool {
    static PAY: OnceLock<bool> = OnceLock::new();
    *PAY.get_or_init(|| pairs_speedup().is_some_and(|speedup| speedup > 1.1))
}

/// Returns the speedup of pairs over f32; `None` if the machine multiplies no pairs.
fn pairs_speedup() -> Option<f64> {
    const ROUNDS: usize = 1000;
    let (mut best, mut best_pairs) = (0f64, 0f64);
    for _ in 0..5 {
        best = best.max(rate(|| simd::run(MultiplyAdd { rounds: ROUNDS }).ok())?);
        best_pairs = best_pairs.max(rate(|| simd::run_pairs(MultiplyAdd { rounds: ROUNDS }).ok())?);
    }
    Some(best_pairs / best)
}

/// Returns the peak operations per second of one thread on tiles of bf16 if they are allowed, else on pairs; `None` if the
/// machine multiplies no pairs.
pub fn bf16_multiply_adds() -> Option<f64> {
    if amx::uses_amx() {
        let run = || rate(|| simd::run_tiles(MultiplyAdd { rounds: 100_000 }).ok());
        return (0..20).filter_map(|_| run()).reduce(f64::max);
    }
    (0..20).filter_map(|_| rate(|| simd::run_pairs(MultiplyAdd { rounds: 1_000_000 }).ok())).reduce(f64::max)
}

/// Returns the peak f32 operations per second of one thread; `None` if there are no vectors.
pub fn multiply_adds() -> Option<f64> {
    (0..20).filter_map(|_| rate(|| simd::run(MultiplyAdd { rounds: 1_000_000 }).ok())).reduce(f64::max)
}

/// Returns the name of the vector instructions used by the kernels.
pub fn vectors() -> &'static str {
    match simd::widest() {
        simd::Width::One => "no vectors",
        simd::Width::Four => "NEON",
        simd::Width::Eight => "AVX2, FMA, F16C",
        simd::Width::Sixteen if amx::uses_amx() => "AVX-512 with AMX",
        simd::Width::Sixteen if simd::has_tiles() => "AVX-512, AMX not allowed (PRECAST_AMX=1 allows it)",
        simd::Width::Sixteen if simd::tiles_exist() => "AVX-512, AMX not permitted by the system",
        simd::Width::Sixteen if pairs_pay() => "AVX-512 with BF16",
        simd::Width::Sixteen => "AVX-512",
    }
}

/// Returns whether kernels use vectors at all.
pub fn has_vectors() -> bool {
    simd::widest() != simd::Width::One
}

/// Returns the bytes per second that one thread copies between slices of `bytes`, counting reads and writes, measured
/// for `seconds`.
pub fn copied(bytes: usize, seconds: f64) -> f64 {
    let from = vec![1u8; bytes];
    let mut to = vec![0u8; bytes];
    best(seconds, || black_box(&mut to).copy_from_slice(black_box(&from)), 2 * bytes)
}

/// Kernel that reads a slice by summing it.
struct Read<'a>(&'a [f32]);

impl Kernel for Read<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        let mut out = [0f32; 16];
        let step = S::LANES * 4;
        // SAFETY: whole steps are inside the slice, and `out` has room for the widest vector.
        unsafe {
            let mut sums = [simd.splat(0.0); 4];
            let mut at = 0;
            while at + step <= self.0.len() {
                for (i, sum) in sums.iter_mut().enumerate() {
                    *sum = simd.add(*sum, simd.load_f32(self.0.as_ptr().add(at + i * S::LANES)));
                }
                at += step;
            }
            for sum in sums {
                simd.store_f32(sum, out.as_mut_ptr());
                black_box(&out);
            }
        }
    }
}

/// Returns the bytes per second that one thread reads from a slice of `bytes`.
pub fn read(bytes: usize) -> f64 {
    let from = vec![1f32; bytes / 4];
    let plain = || _ = black_box(from.iter().sum::<f32>());
    best(0.25, || simd::run(Read(black_box(&from))).unwrap_or_else(|_| plain()), bytes)
}

/// Returns the best rate, at `work` units per call, within `seconds`.
pub fn best(seconds: f64, mut f: impl FnMut(), work: usize) -> f64 {
    let begin = Instant::now();
    let mut least = f64::INFINITY;
    loop {
        let start = Instant::now();
        f();
        least = least.min(start.elapsed().as_secs_f64());
        if begin.elapsed().as_secs_f64() > seconds {
            return work as f64 / least;
        }
    }
}
