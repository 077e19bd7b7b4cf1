//! Rotary embedding compared with its formula, and its purpose: products depend on distances.

use precast::prelude::*;

use super::{assert_close, indices, random};

#[test]
fn pairs_are_rotated_by_angles_that_grow_with_the_position() {
    for (interleaved, base, offset) in [(false, 10_000.0, 0), (true, 100.0, 7)] {
        let (shape, half) = ([2, 3, 5, 6], 3);
        let x = random(&shape, 1);
        let at = |index: &[usize], feature: usize| x.to_f64()[((index[0] * 3 + index[1]) * 5 + index[2]) * 6 + feature];
        let expected: Vec<f64> = indices(&shape)
            .iter()
            .map(|index| {
                let (position, feature) = (index[2] + offset, index[3]);
                let (pair, is_first) = match interleaved {
                    true => (feature / 2, feature % 2 == 0),
                    false => (feature % half, feature < half),
                };
                let (first, second) = if interleaved { (2 * pair, 2 * pair + 1) } else { (pair, pair + half) };
                let angle = position as f64 * f64::powf(base, -2.0 * pair as f64 / 6.0);
                let (a, b) = (at(index, first), at(index, second));
                if is_first { a * angle.cos() - b * angle.sin() } else { b * angle.cos() + a * angle.sin() }
            })
            .collect();
        let rotary = Child::new(RotaryEmbedding { base, interleaved });
        let y = rotary.rotate(&x, offset).unwrap();
        assert_eq!((y.shape(), y.dtype()), (&shape[..], DType::F32));
        assert_close(&y, &expected, 1e-6);
        // A rotation preserves lengths.
        let norms = |x: &Tensor| x.mul(x).unwrap().sum(&[-1], false).unwrap();
        assert_close(&norms(&y), &norms(&x).to_f64(), 1e-6);
        if offset == 0 {
            assert_eq!(rotary.call(&x).unwrap().to_f64(), y.to_f64());
        }
    }
}

#[test]
fn products_depend_on_distances_alone() {
    let rotary = Child::new(RotaryEmbedding::default());
    // The same query and key at all positions.
    let [q, k] = [1, 2].map(|seed| random(&[1, 8], seed).broadcast_to(&[12, 8]).unwrap());
    let products = |offset: usize| {
        let [q, k] = [&q, &k].map(|x| rotary.rotate(x, offset).unwrap());
        q.matmul(&k.t().unwrap()).unwrap().to_f64()
    };
    let first = products(0);
    for (i, j) in (1..12).flat_map(|i| (1..12).map(move |j| (i, j))) {
        assert!((first[i * 12 + j] - first[(i - 1) * 12 + j - 1]).abs() < 1e-6, "{i} {j}");
    }
    assert!((first[1] - first[0]).abs() > 1e-3, "distances make a difference");
    for (moved, still) in products(100_000).iter().zip(&first) {
        assert!((moved - still).abs() < 1e-6, "{moved} {still}");
    }
}

/// In a 16-bit region the rotation is computed in f32 and rounded once.
#[test]
fn it_is_f32_inside_of_any_region() {
    for low in DType::LOW {
        let x = random(&[2, 40, 8], 3).cast(low);
        let plain = Child::new(RotaryEmbedding::default());
        let expected = plain.call(&x.cast(DType::F32)).unwrap().cast(low);
        assert_eq!(plain.call(&x).unwrap().to_f64(), expected.to_f64());
        let mut net = Child::of(RotaryEmbedding::default());
        auto_mixed_precision(&mut net, Level::O3, low).unwrap();
        assert_eq!(net.call(&x).unwrap().to_f64(), expected.to_f64());
    }
    let x = random(&[3, 4], 3).cast(DType::F64);
    assert_eq!(Child::new(RotaryEmbedding::default()).call(&x).unwrap().dtype(), DType::F64);
}

#[test]
fn attention_rotates_queries_and_keys_of_each_head() {
    let rotary = RotaryEmbedding { base: 50.0, interleaved: true };
    let attention = MultiheadAttentionSpec::new(8, 2).rotary(rotary).build(&mut Rng::seed(1)).unwrap();
    let (q, kv) = (random(&[2, 4, 8], 1), random(&[2, 5, 8], 2));
    let heads = |projection: &Child, x: &Tensor| {
        projection.call(x).unwrap().reshape(&[2, -1, 2, 4]).unwrap().transpose(1, 2).unwrap()
    };
    let turned = |x: Tensor| x.rotary_embedding(50.0, 0, true).unwrap();
    let (k, v) = (turned(heads(&attention.k_proj, &kv)), heads(&attention.v_proj, &kv));
    let found = turned(heads(&attention.q_proj, &q)).scaled_dot_product_attention(&k, &v, None, false, None).unwrap();
    let joined = found.transpose(1, 2).unwrap().reshape(&[2, 4, 8]).unwrap();
    let expected = attention.out_proj.call(&joined).unwrap();
    assert_eq!(Child::new(attention).attend(&q, &kv, &kv, None).unwrap().to_f64(), expected.to_f64());
}

#[test]
fn what_cannot_be_rotated_is_refused() {
    let net = |base: f64| Child::of(RotaryEmbedding { base, ..RotaryEmbedding::default() });
    let refused = |base: f64, x: Tensor, words: &str| {
        let message = net(base).call(&x).unwrap_err().to_string();
        assert!(message.contains(words), "{message}");
    };
    refused(1e4, random(&[4], 1), "needs [..., length, features], got [4]");
    refused(1e4, random(&[4, 3], 1), "[4, 3] has 3 features; allowed: an even number");
    refused(0.0, random(&[4, 2], 1), "a base of 0; allowed: a finite number above 0");
    refused(f64::NAN, random(&[4, 2], 1), "a base of NaN");
    refused(1e4, Tensor::zeros(&[4, 2], DType::I64), "i64");
    let empty = Tensor::zeros(&[0, 1 << 40, 4], DType::F32);
    assert_eq!(net(1e4).call(&empty).unwrap().shape(), empty.shape());
    let odd = MultiheadAttentionSpec::new(6, 2).rotary(RotaryEmbedding::default()).build(&mut Rng::seed(0));
    assert_eq!(odd.unwrap_err().to_string(), "a head has 3 features; rotary embedding takes an even number");
}
