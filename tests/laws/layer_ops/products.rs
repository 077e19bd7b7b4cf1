//! Matrix products with a sum, products with vectors, and sums of products in Einstein notation.

use precast::{DType, ErrorKind, Tensor};

use crate::layer_ops::{
    errors::refused,
    random::{Random, bits},
    values::{assert_near, places},
};

#[test]
fn they_are_products_and_sums_with_one_rounding() {
    for seed in 0..20 {
        let r = Random::new(seed);
        let [m, k, n, b] = [r.size(1, 5), r.size(0, 5), r.size(1, 5), r.size(0, 3)];
        let (a, c, bias) = (r.tensor(&[m, k]), r.tensor(&[k, n]), r.tensor(&[n]));
        let (v, w) = (r.tensor(&[k]), r.tensor(&[k]));
        let near = |name, got: Tensor, want: Tensor| {
            assert_eq!(got.shape(), want.shape(), "{name}");
            assert_near(name, &got.to_f64(), &want.to_f64(), 1e-14);
        };
        near("addmm", bias.addmm(&a, &c).unwrap(), bias.add(&a.matmul(&c).unwrap()).unwrap());
        near("mv", a.mv(&v).unwrap(), a.mul(&v).unwrap().sum(&[1], false).unwrap());
        let (column, one) = (r.tensor(&[m]), r.tensor(&[1]));
        near("addmv", one.addmv(&a, &v).unwrap(), one.add(&a.mv(&v).unwrap()).unwrap());
        near("dot", v.dot(&w).unwrap(), v.mul(&w).unwrap().sum_all().unwrap());
        near("outer", column.outer(&bias).unwrap(), column.unsqueeze(1).unwrap().mul(&bias).unwrap());
        let (a, c) = (r.tensor(&[b, m, k]), r.tensor(&[b, k, n]));
        let products = a.batch_matmul(&c).unwrap();
        near("baddbmm", bias.baddbmm(&a, &c).unwrap(), bias.add(&products).unwrap());
        near(
            "addbmm",
            bias.addbmm(&a, &c).unwrap(),
            bias.broadcast_to(&[m, n]).unwrap().add(&products.sum(&[0], false).unwrap()).unwrap(),
        );
    }
    let r = Random::new(3);
    let (bias, a, b) = (r.tensor(&[9]), r.tensor(&[7, 33]), r.tensor(&[33, 9]));
    for low in DType::LOW {
        let [bias, a, b] = [&bias, &a, &b].map(|x| x.cast(low));
        let got = bias.addmm(&a, &b).unwrap();
        assert_ne!(bits(&got), bits(&bias.add(&a.matmul(&b).unwrap()).unwrap()), "two roundings differ somewhere");
    }
}

#[test]
fn what_does_not_fit_is_refused() {
    use ErrorKind::{DType as Dtype, Shape};
    let (v, x) = (Tensor::zeros(&[3], DType::F32), Tensor::zeros(&[2, 3], DType::F32));
    let batch = Tensor::zeros(&[2, 3, 3], DType::F32);
    refused(v.addmm(&x, &x), Shape, &["Addmm", "[2, 3]", "3 columns meet 2 rows"]);
    refused(x.addmm(&x, &v), Shape, &["needs a matrix and a matrix", "[3]"]);
    refused(Tensor::zeros(&[4, 1, 3], DType::F32).addmm(&x, &batch.at(0, 0).unwrap()), Shape, &["[4, 1, 3]", "[2, 3]"]);
    refused(v.mv(&v), Shape, &["Mv", "needs a matrix and a vector"]);
    refused(v.dot(&Tensor::zeros(&[2], DType::F32)), Shape, &["Dot", "length 3 and 2"]);
    refused(v.outer(&x), Shape, &["Ger", "a vector and a vector"]);
    refused(v.baddbmm(&batch, &batch.slice(0, 0..1).unwrap()), Shape, &["[2, 3, 3] and [1, 3, 3] differ"]);
    refused(v.addmm(&x.cast(DType::F16), &batch.at(0, 0).unwrap()), Dtype, &["f16"]);
    refused(x.mv(&Tensor::zeros(&[3], DType::I64)), Dtype, &["i64"]);
    assert_eq!(v.cast(DType::F16).dot(&v).unwrap().dtype(), DType::F32, "the dot product promotes");
}

/// Computes the sum over all positions of all letters, by the definition.
fn einsum_by_definition(operands: &[(&str, &Tensor)], output: &str) -> (Vec<usize>, Vec<f64>) {
    let mut letters: Vec<(char, usize)> = vec![];
    for (labels, x) in operands {
        for (c, &len) in labels.chars().zip(x.shape()) {
            if letters.iter().all(|l| l.0 != c) {
                letters.push((c, len));
            }
        }
    }
    let lens: Vec<usize> = letters.iter().map(|l| l.1).collect();
    let axis = |c: char| letters.iter().position(|l| l.0 == c).unwrap();
    let offset =
        |labels: &str, place: &[usize]| labels.chars().fold(0, |offset, c| offset * lens[axis(c)] + place[axis(c)]);
    let shape: Vec<usize> = output.chars().map(|c| lens[axis(c)]).collect();
    let data: Vec<Vec<f64>> = operands.iter().map(|(_, x)| x.to_f64()).collect();
    let mut sums = vec![0.0; shape.iter().product()];
    for place in places(&lens) {
        let factors = operands.iter().zip(&data).map(|((labels, _), data)| data[offset(labels, &place)]);
        sums[offset(output, &place)] += factors.product::<f64>();
    }
    (shape, sums)
}

#[test]
fn einsum_follows_the_definition() {
    for seed in 0..200 {
        let r = Random::new(seed);
        let lens = r.sizes(4, 1, 3);
        let letter = |i: usize| b"abcd"[i] as char;
        let count = r.size(1, 3);
        let labels: Vec<Vec<usize>> = (0..count).map(|_| r.sizes(r.size(0, 3), 0, 3)).collect();
        let xs: Vec<Tensor> =
            labels.iter().map(|axes| r.tensor(&axes.iter().map(|&i| lens[i]).collect::<Vec<_>>())).collect();
        let names: Vec<String> = labels.iter().map(|axes| axes.iter().map(|&i| letter(i)).collect()).collect();
        let mut output: Vec<usize> = (0..4).filter(|i| labels.iter().flatten().any(|l| l == i) && r.flag()).collect();
        if r.flag() {
            output.reverse();
        }
        let output: String = output.into_iter().map(letter).collect();
        let equation = format!("{} -> {output}", names.join(", "));
        let operands: Vec<(&str, &Tensor)> = names.iter().map(String::as_str).zip(&xs).collect();
        let (shape, want) = einsum_by_definition(&operands, &output);
        let got =
            Tensor::einsum(&equation, &xs.iter().collect::<Vec<_>>()).unwrap_or_else(|e| panic!("{equation}: {e}"));
        assert_eq!(got.shape(), shape, "{equation}");
        assert_near(&equation, &got.to_f64(), &want, 1e-13);
    }
}

#[test]
fn einsum_fills_in_what_is_not_written() {
    let r = Random::new(5);
    let (a, b) = (r.tensor(&[2, 1, 3, 4]), r.tensor(&[5, 4, 6]));
    let same = |name: &str, got: Tensor, want: Tensor| {
        assert_eq!(got.shape(), want.shape(), "{name}");
        assert_near(name, &got.to_f64(), &want.to_f64(), 1e-14);
    };
    let product = a.matmul_ext(&b).unwrap();
    same("broadcast", Tensor::einsum("...ij,...jk->...ik", &[&a, &b]).unwrap(), product.clone());
    same("implicit ellipsis", Tensor::einsum("...ij,...jk", &[&a, &b]).unwrap(), product.clone());
    same("moved", Tensor::einsum("...ij,...jk->ki...", &[&a, &b]).unwrap(), product.permute(&[3, 2, 0, 1]).unwrap());
    let matrix = r.tensor(&[3, 4]);
    same("sorted letters", Tensor::einsum("ba", &[&matrix]).unwrap(), matrix.t().unwrap());
    same("sum", Tensor::einsum("ij->", &[&matrix]).unwrap(), matrix.sum_all().unwrap());
    let none = Tensor::zeros(&[0, 3], DType::F64);
    same("empty sum", Tensor::einsum("ij,ik->jk", &[&none, &none]).unwrap(), Tensor::zeros(&[3, 3], DType::F64));
}

#[test]
fn einsum_rounds_once_and_is_one_op() {
    let r = Random::new(6);
    let xs = [r.tensor(&[8, 9]), r.tensor(&[9, 7]), r.tensor(&[7, 8])].map(|x| x.cast(DType::Bf16));
    let (y, events) = precast::observe::watch(|| Tensor::einsum("ij,jk,kl->il", &[&xs[0], &xs[1], &xs[2]]).unwrap());
    let wide = xs.each_ref().map(|x| x.cast(DType::F32));
    let want = wide[0].matmul(&wide[1]).unwrap().matmul(&wide[2]).unwrap();
    assert_eq!(bits(&y), bits(&want.cast(DType::Bf16)));
    let ops: Vec<_> = events.iter().map(|event| (event.op, event.output)).collect();
    assert_eq!(ops, [(precast::Op::Einsum, DType::Bf16)]);
    // A deferred widening is seen, though it is done for the ops inside.
    let widened = xs[0].cast(DType::F32);
    let events = precast::observe::watch(|| Tensor::einsum("ij->j", &[&widened]).unwrap()).1;
    assert_eq!(events.iter().map(|e| e.op).collect::<Vec<_>>(), [precast::Op::Cast, precast::Op::Einsum]);
}

#[test]
fn einsum_says_where_an_equation_is_wrong() {
    use ErrorKind::{DType as Dtype, Shape, Value};
    let x = Tensor::zeros(&[2, 3], DType::F32);
    let two = |equation: &str| Tensor::einsum(equation, &[&x, &x]);
    refused(two("ij,j#->i"), Value, &["Einsum", "`#` is out of place at position 4 of `ij,j#->i`"]);
    refused(two("ij,jk->i->k"), Value, &["position 8"]);
    refused(two("ij,jk-i"), Value, &["`-`", "position 5"]);
    refused(two("i.j,ij"), Value, &["`.`", "position 1"]);
    refused(two("......,ij"), Value, &["a second `...`", "position 3"]);
    refused(two("ij,ij->ii"), Value, &["`i` appears twice"]);
    refused(two("ij,ij->k"), Value, &["`k`", "no operand"]);
    refused(two("ij"), Value, &["names 1 operands, 2 are given"]);
    refused(two("...j,...j->j"), Value, &["`...`", "1 axes"]);
    refused(two("ijk,ij"), Shape, &["names 3 axes", "[2, 3]"]);
    refused(two("ij,jk"), Shape, &["`j`", "3 long and 2 long"]);
    refused(Tensor::einsum("ij,ij", &[&x, &x.cast(DType::F16)]), Dtype, &["f32, f16"]);
    refused(Tensor::einsum("ij", &[&x.cast(DType::I64)]), Dtype, &["i64"]);
    refused(Tensor::einsum("", &[]), Dtype, &["Einsum"]);
}
