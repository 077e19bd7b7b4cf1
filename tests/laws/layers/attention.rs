//! Attention compared with its formula.

use precast::prelude::*;

use super::{assert_close, random, values};

/// Each head with its own rows of the projections, one sample at a time.
#[test]
fn attention_follows_its_formula() {
    let (features, heads, l, s) = (6, 3, 4, 5);
    for causal in [false, true] {
        let spec = MultiheadAttentionSpec::new(features, heads).causal(causal);
        let make = || Child::new(spec.clone().build(&mut Rng::seed(3)).unwrap());
        let (attention, net) = (make(), make().erase());
        let [q, k, v] = [(l, 1), (s, 2), (s, 3)].map(|(len, seed)| random(&[2, len, features], seed));
        let project = |name: &str, x: &[f64]| -> Vec<f64> {
            let (w, b) = (values(&net, &format!("{name}.weight")), values(&net, &format!("{name}.bias")));
            let row = |x: &[f64], o: usize| (0..features).map(|i| w[o * features + i] * x[i]).sum::<f64>() + b[o];
            x.chunks(features).flat_map(|x| (0..features).map(|o| row(x, o)).collect::<Vec<_>>()).collect()
        };
        let seen: Vec<bool> = (0..l * s).map(|i| i % 7 != 2 || i % s == 0).collect();
        let mask = Tensor::from_vec(seen.clone(), &[l, s]).unwrap();
        let mut expected = vec![];
        for n in 0..2 {
            let of = |x: &Tensor, len: usize| x.to_f64()[n * len * features..(n + 1) * len * features].to_vec();
            let q = project("q_proj", &of(&q, l));
            let (k, v) = (project("k_proj", &of(&k, s)), project("v_proj", &of(&v, s)));
            let part = features / heads;
            let found: Vec<f64> = (0..l * features)
                .map(|at| {
                    let (i, feature) = (at / features, at % features);
                    let own = feature / part * part..(feature / part + 1) * part;
                    let score = |j: usize| own.clone().map(|c| q[i * features + c] * k[j * features + c]).sum::<f64>();
                    let keys = (0..s).filter(|j| seen[i * s + j] && (!causal || *j <= i));
                    let weights: Vec<_> = keys.map(|j| (j, (score(j) / (part as f64).sqrt()).exp())).collect();
                    let total: f64 = weights.iter().map(|w| w.1).sum();
                    weights.iter().map(|&(j, w)| w / total * v[j * features + feature]).sum()
                })
                .collect();
            expected.extend(project("out_proj", &found));
        }
        let y = attention.attend(&q, &k, &v, Some(&mask)).unwrap();
        assert_eq!(y.shape(), [2, l, features]);
        assert_close(&y, &expected, 1e-5);
        let many = net.call_many(&[q.clone(), k, v, mask]).unwrap();
        assert_eq!(many[0].to_f64(), y.to_f64());
        assert_eq!(net.call(&q).unwrap().to_f64(), attention.attend(&q, &q, &q, None).unwrap().to_f64());
    }
}

#[test]
fn attention_names_what_it_refuses() {
    let rng = &mut Rng::seed(0);
    for heads in [4, 0] {
        let words = format!("{heads} heads do not divide 6 features into equal parts");
        assert_eq!(MultiheadAttentionSpec::new(6, heads).build(rng).unwrap_err().to_string(), words);
        let net = Child::of(MultiheadAttention::new(6, heads, rng));
        let message = net.call(&random(&[2, 3, 6], 1)).unwrap_err().to_string();
        assert_eq!(message, format!("in the root cell: {words}"));
    }
    let net = Child::of(MultiheadAttention::new(6, 2, rng));
    let x = random(&[2, 3, 6], 1);
    let refused = |inputs: &[Tensor], words: &str| {
        let message = net.call_many(inputs).unwrap_err().to_string();
        assert!(message.contains(words), "{message}");
    };
    refused(&[x.clone(), x.clone()], "takes one tensor, or queries, keys, values and perhaps a mask, got 2 tensors");
    refused(&[random(&[6], 1)], "attention takes [..., length, 6], got [6]");
    refused(&[x.clone(), random(&[2, 3, 5], 1), x.clone()], "got [2, 3, 5]");
    refused(
        &[x.clone(), x.clone(), x, random(&[4, 3], 1)],
        "the mask [4, 3] does not stretch to the scores [2, 2, 3, 3]",
    );
    assert_eq!(net.call(&Tensor::zeros(&[0, 3, 6], DType::F32)).unwrap().shape(), [0, 3, 6]);
}
