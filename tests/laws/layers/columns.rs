//! Lookup tables of columns: the rows of their tables beside the numbers, and the gradients of both.

use precast::prelude::*;

#[test]
fn rows_of_tables_follow_the_numbers_and_get_their_gradients() {
    let net: Child = ColumnEmbedding::new(&[3, 2], &[2, 1], &mut Rng::seed(1)).into();
    let tables = [(vec![1f32, 2.0, 3.0, 4.0, 5.0, 6.0], [3, 2]), (vec![7.0, 8.0], [2, 1])];
    for ((_, param), (values, shape)) in net.named_params().iter().zip(tables) {
        param.set(&Tensor::from_vec(values, &shape).unwrap()).unwrap();
    }
    let numbers = Tensor::from_vec(vec![0.5f32, -0.5], &[2, 1]).unwrap();
    let indices = Tensor::from_vec(vec![2i64, 1, 0, 1], &[2, 2]).unwrap();
    let y = net.call_many(&[numbers, indices.clone()]).unwrap().remove(0);
    assert_eq!(y.to_f64(), [0.5, 5.0, 6.0, 8.0, -0.5, 1.0, 2.0, 8.0]);
    assert_eq!(net.call(&indices).unwrap().to_f64(), [5.0, 6.0, 8.0, 1.0, 2.0, 8.0]);

    // A row has the number of its uses as the gradient of the sum.
    let grads = y.sum_all().unwrap().backward().unwrap();
    let of = |i: usize| grads.get(&net.named_params()[i].1).unwrap().to_f64();
    assert_eq!((of(0), of(1)), (vec![1.0, 1.0, 0.0, 0.0, 1.0, 1.0], vec![0.0, 2.0]));
}

#[test]
fn indices_are_never_rounded_in_a_low_region() {
    let net = || -> Child {
        let rng = &mut Rng::seed(1);
        sequential![ColumnEmbedding::new(&[5000], &[3], rng), Dense::new(4, 1, rng)].into()
    };
    // 4097 and 4096 are the same number in bfloat16.
    let indices = Tensor::from_vec(vec![4097i64, 4096], &[2, 1]).unwrap();
    let numbers = Tensor::zeros(&[2, 1], DType::F32);
    for level in [Level::O0, Level::O1, Level::O2, Level::O3] {
        let mut net = net();
        auto_mixed_precision(&mut net, level, DType::Bf16).unwrap();
        let y = net.call_many(&[numbers.clone(), indices.clone()]).unwrap().remove(0).to_f64();
        assert!((y[0] - y[1]).abs() > 0.1, "{level}: {y:?}");
    }
}

#[test]
fn tables_and_columns_that_do_not_fit_are_told() {
    let build = |rows: &[usize], sizes: Option<Vec<usize>>| {
        let spec = ColumnEmbeddingSpec::new(rows.to_vec());
        let spec = sizes.into_iter().fold(spec, ColumnEmbeddingSpec::embedding_sizes);
        spec.build(&mut Rng::seed(0))
    };
    let told = |rows: &[usize], sizes| build(rows, sizes).unwrap_err().to_string();
    assert!(told(&[], None).contains("`vocab_sizes` is empty"));
    assert!(told(&[3, 4], Some(vec![2])).contains("1 `embedding_sizes` for 2 tables; expected one for each"));
    assert!(told(&[3, 0], None).contains("a table of 0 rows"));
    assert!(told(&[3], Some(vec![0])).contains("a table of 3 rows of 0 numbers; allowed: at least 1 of each"));
    // The rule of fastai, of which 5 for 8 rows and 600 for 10^5 are examples.
    let net: Child = build(&[8, 100_000], None).unwrap().into();
    let widths: Vec<usize> = net.named_params().iter().map(|(_, table)| table.value().shape()[1]).collect();
    assert_eq!(widths, [5, 600]);
    // Index 0 is not trained, and adds nothing.
    for (_, table) in net.named_params() {
        let values = table.value().to_f64();
        let width = table.value().shape()[1];
        assert!(values[..width].iter().all(|&x| x == 0.0) && values[width..].iter().all(|&x| x != 0.0));
    }

    let net: Child = build(&[3, 4], None).unwrap().into();
    let x = Tensor::zeros(&[2, 3], DType::I64);
    let met = net.call(&x).unwrap_err().to_string();
    assert!(met.contains("indices of shape [2, 3]; expected [n, 2], a column for each table"), "{met}");
    let x = Tensor::from_vec(vec![0i64, 4], &[1, 2]).unwrap();
    let met = net.call(&x).unwrap_err().to_string();
    assert!(met.contains("column 2 of 2 of the indices"), "{met}");
    let met = net.call_many(&[x.clone(), x.clone(), x]).unwrap_err().to_string();
    assert!(met.contains("takes numbers and indices, or indices alone; got 3 inputs"), "{met}");
}
