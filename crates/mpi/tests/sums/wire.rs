//! The wire: bytes, and the error of 16-bit numbers.

use precast_mpi::{Wire, from_bf16, to_bf16};

use crate::{numbers, sum};

const LEN: usize = 4096;

/// The relative error of a sum, in the L2 norm, against f64.
fn error(met: &[f32], shards: usize, shard: impl Fn(usize) -> Vec<f32>) -> f64 {
    let mut exact = vec![0f64; met.len()];
    for shard in (0..shards).map(shard) {
        exact.iter_mut().zip(shard).for_each(|(sum, number)| *sum += f64::from(number));
    }
    let (mut error, mut norm) = (0.0, 0.0);
    for (met, exact) in met.iter().zip(exact) {
        error += (f64::from(*met) - exact).powi(2);
        norm += exact.powi(2);
    }
    (error / norm).sqrt()
}

#[test]
fn errors_do_not_grow_with_ranks() {
    for ranks in [2, 3, 4, 5, 7, 8, 16, 33, 64] {
        let shard = |at: usize| numbers(at as u64, LEN);
        for (wire, least, most) in
            [(Wire::Float32, 0.0, 2e-7), (Wire::BFloat16, 1e-3, 2.5e-3), (Wire::BFloat16Both, 1e-3, 2.5e-3)]
        {
            let (met, _) = sum(ranks, ranks, wire, 1 << 18, &[], LEN, shard);
            let error = error(&met, ranks, shard);
            assert!((least..=most).contains(&error), "{wire}, {ranks} ranks: {error:e}");
        }
    }
}

#[test]
fn bytes_are_counted() {
    // Each of R ranks sends (R - 1) / R of its numbers there, and R - 1 times its part back.
    let bytes = |ranks: usize, wire| sum(ranks, ranks, wire, 1024, &[], LEN, |at| numbers(at as u64, LEN)).1;
    for ranks in [2, 4] {
        let numbers = (LEN * (ranks - 1) / ranks) as u64;
        assert_eq!(bytes(ranks, Wire::Float32), numbers * (4 + 4));
        assert_eq!(bytes(ranks, Wire::BFloat16), numbers * (2 + 4));
        assert_eq!(bytes(ranks, Wire::BFloat16Both), numbers * (2 + 2));
    }
    assert_eq!(bytes(1, Wire::BFloat16), 0);
}

/// A ring that adds in bf16 returns 1: each addition of 2^-9 is rounded away.
#[test]
fn small_terms_are_not_lost() {
    for ranks in [2, 3, 5, 8, 64] {
        let shard = |at: usize| vec![if at == 0 { 1.0 } else { 2f32.powi(-9) }; 5];
        let exact = 1.0 + (ranks as f32 - 1.0) * 2f32.powi(-9);
        let (met, _) = sum(ranks, ranks, Wire::BFloat16, 2, &[], 5, shard);
        assert_eq!(met, [exact; 5], "{ranks} ranks");
        let (met, _) = sum(ranks, ranks, Wire::BFloat16Both, 2, &[], 5, shard);
        assert_eq!(met, [from_bf16(to_bf16(exact)); 5], "{ranks} ranks, rounded once at the end");
    }
}

#[test]
fn numbers_that_are_not_finite_arrive() {
    for wire in [Wire::Float32, Wire::BFloat16, Wire::BFloat16Both] {
        let shard = |at: usize| match at {
            1 => vec![f32::NAN, f32::INFINITY, f32::NEG_INFINITY, f32::MAX, -0.0],
            _ => vec![1.0, 1.0, 1.0, f32::MAX, -0.0],
        };
        let (met, _) = sum(3, 3, wire, 2, &[], 5, shard);
        assert!(met[0].is_nan(), "{wire}");
        assert_eq!(met[1..4], [f32::INFINITY, f32::NEG_INFINITY, f32::INFINITY], "{wire}");
        assert_eq!(met[4].to_bits(), (-0.0f32).to_bits(), "{wire}");
    }
}
