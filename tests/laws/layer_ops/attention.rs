//! Scaled dot product attention.

use precast::{DType, ErrorKind, Op, Tensor};

use crate::layer_ops::{
    errors::refused,
    random::{Random, many},
    values::{assert_near, places},
};

/// Computes attention by the definition, for one leading axis: each query's weights are the exponentials of its visible
/// scores, over their sum.
fn attention_by_definition(
    q: &Tensor,
    k: &Tensor,
    v: &Tensor,
    seen: impl Fn(usize, usize) -> bool,
    scale: f64,
) -> Vec<f64> {
    let (&[_, l, d], &[_, s, e]) = (q.shape(), v.shape()) else { panic!("three axes") };
    let (q, k, x) = (q.to_f64(), k.to_f64(), v.to_f64());
    places(&[v.shape()[0], l, e])
        .map(|p| {
            let (b, i) = (p[0], p[1]);
            let score = |j: usize| (0..d).map(|c| q[(b * l + i) * d + c] * k[(b * s + j) * d + c]).sum::<f64>() * scale;
            let weights: Vec<f64> = (0..s).map(|j| if seen(i, j) { score(j).exp() } else { 0.0 }).collect();
            let total: f64 = weights.iter().sum();
            let sum: f64 = (0..s).map(|j| weights[j] * x[(b * s + j) * e + p[2]]).sum();
            if total == 0.0 { 0.0 } else { sum / total }
        })
        .collect()
}

/// Draws queries, keys, values, and a mask in which some rows are all false.
fn draw(r: &Random) -> ([Tensor; 3], Tensor) {
    let [b, l, s, d, e] = [r.size(1, 3), r.size(1, 4), r.size(1, 5), r.size(1, 4), r.size(1, 4)];
    let qkv = [&[b, l, d], &[b, s, d], &[b, s, e]].map(|shape| r.between(-2.0, 2.0, shape));
    let mask = (0..l * s).map(|_| r.size(0, 2) == 0).collect();
    (qkv, Tensor::from_vec::<bool>(mask, &[l, s]).unwrap())
}

#[test]
fn it_follows_the_definition() {
    many(|r| {
        let ([q, k, v], mask) = draw(r);
        let (d, s) = (q.shape()[2], k.shape()[1]);
        let near = |name, got: Tensor, want: Vec<f64>| assert_near(name, &got.to_f64(), &want, 1e-13);
        let scale = 1.0 / (d as f64).sqrt();
        let run = |mask, causal, scale| q.scaled_dot_product_attention(&k, &v, mask, causal, scale).unwrap();
        near("plain", run(None, false, None), attention_by_definition(&q, &k, &v, |_, _| true, scale));
        near("scaled", run(None, false, Some(0.3)), attention_by_definition(&q, &k, &v, |_, _| true, 0.3));
        near("causal", run(None, true, None), attention_by_definition(&q, &k, &v, |i, j| j <= i, scale));
        let seen = mask.to_vec::<bool>().unwrap();
        let want = attention_by_definition(&q, &k, &v, |i, j| seen[i * s + j], scale);
        near("masked", run(Some(&mask), false, None), want.clone());
        let numbers = seen.iter().map(|&seen| if seen { 0.0 } else { f64::NEG_INFINITY }).collect();
        let added = Tensor::from_vec::<f64>(numbers, mask.shape()).unwrap();
        near("added mask", run(Some(&added), false, None), want);
        let both = attention_by_definition(&q, &k, &v, |i, j| seen[i * s + j] && j <= i, scale);
        near("mask and causal", run(Some(&mask), true, None), both);
    });
}

#[test]
fn it_is_one_op_that_keeps_its_inputs() {
    let r = Random::new(1);
    let [q, k, v] = [(); 3].map(|()| r.tensor(&[2, 8, 4]).cast(DType::F16).requires_grad());
    let (y, events) = precast::observe::watch(|| q.scaled_dot_product_attention(&k, &v, None, true, None).unwrap());
    assert_eq!(events.iter().map(|event| event.op).collect::<Vec<_>>(), [Op::ScaledDotProductAttention]);
    assert_eq!(y.tape_bytes(), 3 * 2 * 8 * 4 * 2);
    // Scores beyond the range of f16 do no harm.
    let large = Tensor::full(&[1, 2, 64], 200.0, DType::F16);
    let y = large.scaled_dot_product_attention(&large, &large, None, false, Some(1.0)).unwrap();
    assert_eq!(y.to_f64(), [200.0; 128]);
}

#[test]
fn edges_and_refusals() {
    use ErrorKind::{DType as Dtype, Shape};
    let zeros = |shape: &[usize]| Tensor::zeros(shape, DType::F32);
    let (q, k, v) = (zeros(&[2, 3]), zeros(&[4, 3]), zeros(&[4, 5]));
    let run = |q: &Tensor, k: &Tensor, v: &Tensor, mask: Option<Tensor>| {
        q.scaled_dot_product_attention(k, v, mask.as_ref(), false, None)
    };
    assert_eq!(run(&q, &zeros(&[0, 3]), &zeros(&[0, 5]), None).unwrap().to_f64(), [0.0; 10], "no key");
    assert_eq!(run(&zeros(&[0, 3]), &k, &v, None).unwrap().shape(), [0, 5]);
    let even = run(&zeros(&[2, 0]), &zeros(&[2, 0]), &Tensor::arange(2).cast(DType::F32).unsqueeze(1).unwrap(), None);
    assert_eq!(even.unwrap().to_f64(), [0.5, 0.5], "without features all keys weigh alike");
    refused(run(&q, &v, &v, None), Shape, &["ScaledDotProductAttention", "[2, 3]", "[4, 5]", "3 features meet 5"]);
    refused(run(&q, &k, &zeros(&[5, 5]), None), Shape, &["4 keys meet 5 values"]);
    refused(run(&zeros(&[3]), &k, &v, None), Shape, &["[..., l, d]", "[3]"]);
    refused(run(&zeros(&[2, 2, 3]), &zeros(&[3, 4, 3]), &v, None), Shape, &["do not broadcast"]);
    refused(run(&q, &k, &v, Some(zeros(&[3, 4]))), Shape, &["mask [3, 4]", "[2, 4]"]);
    refused(run(&q, &k, &v, Some(Tensor::arange(4))), Dtype, &["i64"]);
    refused(run(&q, &k, &v.cast(DType::F16), None), Dtype, &["f16"]);
    refused(run(&Tensor::arange(6).reshape(&[2, 3]).unwrap(), &k, &v, None), Dtype, &["i64"]);
}

/// More queries than are computed together, on one thread and several, compared with the formula composed of other ops.
#[test]
fn many_queries_are_many_blocks() {
    let r = Random::new(2);
    let inputs = [r.tensor(&[2, 150, 5]), r.tensor(&[2, 97, 5]), r.tensor(&[2, 97, 3]), r.tensor(&[150, 97])];
    let weights = r.tensor(&[2, 150, 3]);
    let not_after = Tensor::arange(97).le(&Tensor::arange(150).unsqueeze(-1).unwrap()).unwrap();
    let by_ops = |x: &[Tensor], causal: bool| {
        let scores = (x[0].matmul_ext(&x[1].transpose(-1, -2).unwrap()).unwrap() * 0.4).unwrap().add(&x[3]).unwrap();
        let unseen = Tensor::scalar(f64::NEG_INFINITY, scores.dtype());
        let scores = if causal { not_after.select(&scores, &unseen).unwrap() } else { scores };
        scores.softmax(-1).unwrap().matmul_ext(&x[2]).unwrap()
    };
    let attend = |x: &[Tensor], causal| x[0].scaled_dot_product_attention(&x[1], &x[2], Some(&x[3]), causal, Some(0.4));
    let values = |f: &dyn Fn(&[Tensor]) -> Tensor, dtype: DType| {
        let x: Vec<Tensor> = inputs.iter().map(|x| x.cast(dtype).requires_grad()).collect();
        let y = f(&x);
        let grads = y.backward_from(&weights.cast(dtype)).unwrap();
        x.iter().map(|x| grads.of(x).unwrap().to_f64()).chain([y.to_f64()]).collect::<Vec<_>>()
    };
    for causal in [false, true] {
        let want = values(&|x| by_ops(x, causal), DType::F64);
        let names = ["q", "k", "v", "mask", "result"];
        for (name, (got, want)) in
            names.iter().zip(values(&|x| attend(x, causal).unwrap(), DType::F64).iter().zip(&want))
        {
            assert_near(name, got, want, 1e-12);
        }
        for dtype in [DType::F32, DType::Bf16] {
            let runs = [1, 3].map(|threads| {
                precast::set_threads(threads);
                values(&|x| attend(x, causal).unwrap(), dtype)
            });
            assert_eq!(runs[0], runs[1], "{dtype}: no bit depends on the number of threads");
        }
    }
    precast::set_threads(0);
}

/// The gradients of scores are up to 76,800 here, and fit into f16 only after scaling.
#[test]
fn gradients_in_f16_are_scaled_before_they_are_rounded() {
    let of = |shape: &[usize], f: &dyn Fn(usize) -> f64| {
        let x: Vec<f64> = (0..shape.iter().product()).map(f).collect();
        Tensor::from_vec(x, shape).unwrap().cast(DType::F16).requires_grad()
    };
    let row = |i: usize| if i < 64 { 1.0 } else { -1.0 };
    let (q, k, v) = (of(&[1, 64], &|_| 0.0), of(&[2, 64], &|i| row(i) / 64.0), of(&[2, 64], &|i| 30.0 * row(i)));
    let out = q.scaled_dot_product_attention(&k, &v, None, false, None).unwrap();
    let grads = out.backward_from(&of(&[1, 64], &|_| 80.0)).unwrap();
    // Weights of a half; a score's gradient is 0.5 * 80 * 30 * 64, scaled by an eighth, times 1/64 of two keys.
    assert_eq!(grads.of(&q).unwrap().to_f64(), [300.0; 64]);
    assert_eq!(grads.of(&k).unwrap().to_f64(), [0.0; 128]);
}
