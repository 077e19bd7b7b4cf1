//! Writing of elements at indices, and sorting.

use precast::{DType, ErrorKind, Tensor};

use crate::layer_ops::{
    errors::refused,
    random::{Random, many},
    values::{assert_near, places},
};

fn dot(a: &Tensor, b: &Tensor) -> f64 {
    a.to_f64().iter().zip(b.to_f64()).map(|(a, b)| a * b).sum()
}

/// Draws a tensor, an axis, an index that fits it along the axis, and values of the index's shape.
fn along(r: &Random) -> (Tensor, usize, Tensor, Tensor) {
    let shape = r.sizes(r.size(1, 3), 1, 4);
    let axis = r.size(0, shape.len() - 1);
    let mut index: Vec<usize> = shape.iter().map(|&len| r.size(1, len)).collect();
    index[axis] = r.size(0, 6);
    (r.tensor(&shape), axis, r.indices(shape[axis], &index), r.tensor(&index))
}

#[test]
fn scatter_add_is_the_adjoint_of_gather() {
    many(|r| {
        let (x, axis, index, src) = along(r);
        let at = axis as isize;
        let zero = Tensor::zeros(x.shape(), DType::F64);
        let scattered = zero.scatter_add(at, &index, &src).unwrap();
        assert_near("adjoint", &[dot(&scattered, &x)], &[dot(&src, &x.gather(at, &index).unwrap())], 1e-14);
        let sum = x.scatter_add(at - x.rank() as isize, &index, &src).unwrap();
        assert_near("sum", &sum.to_f64(), &x.add(&scattered).unwrap().to_f64(), 1e-14);
    });
    // Ones added at one position: an f16 sum would stop at 2048.
    let (index, ones) = (Tensor::zeros(&[4096], DType::I64), Tensor::ones(&[4096], DType::F16));
    let sums = Tensor::ones(&[2], DType::F16).scatter_add(0, &index, &ones).unwrap();
    assert_eq!(sums.to_f64(), [4096.0, 1.0], "4097 is not an f16 and rounds to even");
}

#[test]
fn index_put_puts_slices() {
    many(|r| {
        let shape = r.sizes(r.size(1, 3), 1, 4);
        let rank = r.size(0, 2);
        let index = r.indices(shape[0], &r.sizes(rank, 0, 3));
        let (x, values) = (r.tensor(&shape), r.tensor(&[index.shape(), &shape[1..]].concat()));
        let run: usize = shape[1..].iter().product();
        let (mut replaced, mut added) = (x.to_f64(), x.to_f64());
        for (n, row) in index.to_vec::<i64>().unwrap().into_iter().enumerate() {
            for i in 0..run {
                replaced[row as usize * run + i] = values.to_f64()[n * run + i];
                added[row as usize * run + i] += values.to_f64()[n * run + i];
            }
        }
        assert_near("replaced", &x.index_put(&index, &values, false).unwrap().to_f64(), &replaced, 0.0);
        assert_near("added", &x.index_put(&index, &values, true).unwrap().to_f64(), &added, 1e-15);
    });
    let flags = Tensor::zeros(&[3], DType::Bool);
    let index = Tensor::from_vec(vec![2i64], &[1]).unwrap();
    let put = flags.index_put(&index, &Tensor::ones(&[1], DType::Bool), false).unwrap();
    assert_eq!(put.to_vec::<bool>().unwrap(), [false, false, true]);
}

#[test]
fn order_follows_the_definition() {
    many(|r| {
        let shape = r.sizes(r.size(1, 3), 0, 5);
        let axis = r.size(0, shape.len() - 1);
        let (n, at) = (shape[axis], axis as isize);
        // Integers, so that there are ties.
        let x = r.between(-2.0, 2.0, &shape).round().unwrap();
        for descending in [false, true] {
            let (values, indices) = x.sort(at, descending).unwrap();
            assert_eq!(values.to_f64(), x.gather(at, &indices).unwrap().to_f64());
            let number = |x: &Tensor, place: &[usize]| {
                x.to_f64()[place.iter().zip(&shape).fold(0, |offset, (i, len)| offset * len + i)]
            };
            for place in places(&shape).filter(|place| place[axis] > 0) {
                let mut before = place.clone();
                before[axis] -= 1;
                let (a, b) = (number(&values, &before), number(&values, &place));
                let (i, j) = (number(&indices, &before), number(&indices, &place));
                assert!(if descending { a > b } else { a < b } || a == b && i < j, "{a} at {i}, then {b} at {j}");
            }
            // Every position once: n distinct ones in each lane.
            assert_eq!(
                indices.sort(at, false).unwrap().0.sum_all().unwrap().item().unwrap() as usize,
                x.len() * n.saturating_sub(1) / 2
            );
            let k = r.size(0, n);
            let (top, top_indices) = x.topk(k, at, descending).unwrap();
            assert_eq!(top.to_f64(), values.slice(at, 0..k).unwrap().to_f64());
            assert_eq!(top_indices.to_f64(), indices.slice(at, 0..k).unwrap().to_f64());
        }
    });
}

#[test]
fn nan_is_the_largest() {
    let x = Tensor::from_vec(vec![1f32, f32::NAN, f32::INFINITY, f32::NEG_INFINITY], &[4]).unwrap();
    assert_eq!(x.sort(0, false).unwrap().1.to_vec::<i64>().unwrap(), [3, 0, 2, 1]);
    assert_eq!(x.topk(2, 0, true).unwrap().1.to_vec::<i64>().unwrap(), [1, 2]);
    let large = Tensor::from_vec(vec![(1i64 << 60) + 1, 1 << 60], &[2]).unwrap();
    assert_eq!(large.sort(0, false).unwrap().1.to_vec::<i64>().unwrap(), [1, 0], "as floats they are equal");
}

#[test]
fn what_does_not_fit_is_refused() {
    use ErrorKind::{DType as Dtype, Shape, Value};
    let x = Tensor::zeros(&[2, 3], DType::F32);
    let index = Tensor::zeros(&[2, 3], DType::I64);
    let far = Tensor::from_vec(vec![2i64], &[1]).unwrap();
    refused(x.scatter_add(0, &index, &x.slice(1, 0..2).unwrap()), Shape, &["ScatterAdd", "[2, 3]", "[2, 2]"]);
    refused(x.scatter_add(0, &far, &Tensor::zeros(&[1], DType::F32)), Shape, &["index [1]", "[2, 3]"]);
    refused(x.at(1, 0).unwrap().scatter_add(0, &far, &Tensor::zeros(&[1], DType::F32)), Value, &["index 2", "0..2"]);
    refused(x.scatter_add(2, &index, &x), Shape, &["axis 2"]);
    refused(x.scatter_add(0, &x, &x), Dtype, &["i64", "f32"]);
    refused(x.scatter_add(0, &index, &index), Dtype, &["f32, i64"]);
    refused(x.index_put(&far, &x, false), Shape, &["IndexPut", "[2, 3]", "[1, 3]"]);
    refused(x.index_put(&far, &x.slice(0, 0..1).unwrap(), true), Value, &["index 2", "0..2"]);
    refused(x.index_put(&far, &index.slice(0, 0..1).unwrap(), false), Dtype, &["i64 values", "f32"]);
    refused(index.index_put(&index.slice(1, 0..1).unwrap().flatten(0).unwrap(), &index, true), Dtype, &["floating"]);
    refused(Tensor::scalar(1.0, DType::F32).index_put(&far, &x, false), Shape, &["scalar"]);
    refused(x.topk(4, 1, true), Value, &["TopK", "k = 4", "3 elements along axis 1"]);
    refused(x.sort(2, true), Shape, &["Sort", "axis 2"]);
}
