//! Constructors of tensors, and options of layers in all accepted forms.

use precast::{ErrorKind, prelude::*};

#[test]
fn tensors_are_made_as_asked() {
    let numbers = |x: Result<Tensor>| x.map(|x| (x.dtype(), x.shape().to_vec(), x.to_f64())).unwrap();
    assert_eq!(numbers(Tensor::range(0.0, 1.0, 0.5)), (DType::F32, vec![2], vec![0.0, 0.5]));
    assert_eq!(numbers(Tensor::range(1.0, -2.0, -1.0)).2, [1.0, 0.0, -1.0]);
    assert_eq!(numbers(Tensor::range(3.0, 3.0, 1.0)).1, [0]);
    assert_eq!(numbers(Tensor::linspace(-1.0, 1.0, 3)).2, [-1.0, 0.0, 1.0]);
    // The ends are exact, however the step is rounded.
    assert_eq!(numbers(Tensor::linspace(0.0, 0.7, 8)).2[7], f64::from(0.7f32));
    assert_eq!(numbers(Tensor::linspace(5.0, 9.0, 1)).2, [5.0]);
    assert_eq!(numbers(Tensor::linspace(5.0, 9.0, 0)).1, [0]);
    assert_eq!(numbers(Tensor::eye(3)), (DType::F32, vec![3, 3], vec![1.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 1.0]));
    assert_eq!(numbers(Tensor::eye(0)).1, [0, 0]);
    let x = Tensor::zeros(&[2, 1], DType::F16);
    assert_eq!(numbers(Ok(x.full_like(0.5))), (DType::F16, vec![2, 1], vec![0.5; 2]));
    assert_eq!((x.ones_like().to_f64(), x.zeros_like().to_f64()), (vec![1.0; 2], vec![0.0; 2]));
}

#[test]
fn rows_become_tensors_of_their_dtype() {
    let x = Tensor::from([[1i64, 2], [3, 4], [5, 6]]);
    assert_eq!((x.shape(), x.to_vec::<i64>().unwrap()), (&[3, 2][..], vec![1, 2, 3, 4, 5, 6]));
    let x = Tensor::from(vec![[[true], [false]]; 3]);
    assert_eq!((x.shape(), x.dtype()), (&[3, 2, 1][..], DType::Bool));
    assert_eq!((Tensor::from(2f32).shape(), Tensor::from(2f32).dtype()), (&[][..], DType::F32));
    // No rows: the lengths of the other axes are known.
    let none: Tensor = std::iter::empty::<[[f32; 3]; 2]>().collect();
    assert_eq!(none.shape(), [0, 2, 3]);
    assert_eq!(Tensor::from([[0f32; 0]; 2]).shape(), [2, 0]);
}

/// As in torch: the dtype of a literal is f32, and i64 of a whole one.
#[test]
fn literals_without_a_suffix_are_f32_and_i64() {
    let dtypes = |all: &[Tensor]| all.iter().map(Tensor::dtype).collect::<Vec<_>>();
    let floats = [
        Tensor::from(1.5),
        Tensor::from([1.0, 2.0]),
        Tensor::from([[[1.0], [2.0]]]),
        Tensor::from(vec![1.0]),
        Tensor::from(vec![[1.0, 2.0]; 2]),
        [0.5, 1.5].into_iter().collect(),
        (0..2).map(|_| [[0.1], [0.2]]).collect(),
        Tensor::padded(&[vec![0.5], vec![]], 0.0),
        Tensor::unzip([(0.5, true)]).0,
    ];
    assert_eq!(dtypes(&floats), [DType::F32; 9]);
    let whole = [
        Tensor::from(1),
        Tensor::from([[1, 2], [3, 4]]),
        Tensor::from(vec![[1]]),
        (0..3).collect(),
        Tensor::padded(&[vec![1]], 0),
        Tensor::unzip([(0, 1, 2.0)]).1,
    ];
    assert_eq!(dtypes(&whole), [DType::I64; 6]);
}

#[test]
fn rows_of_different_lengths_are_filled_at_the_end() {
    let expected = vec![1, 2, 3, 9, 9, 9, 4, 9, 9];
    let words: Vec<Vec<i64>> = vec![vec![1, 2, 3], vec![], vec![4]];
    let slices: Vec<&[i64]> = words.iter().map(Vec::as_slice).collect();
    for x in [Tensor::padded(&words, 9), Tensor::padded(&slices, 9)] {
        assert_eq!((x.shape(), x.to_vec::<i64>().unwrap()), (&[3, 3][..], expected.clone()));
    }
    // Rows of points: the axis of the points is filled.
    let x = Tensor::padded(&[vec![[1f32, 2.0]], vec![[3.0, 4.0], [5.0, 6.0]]], [0.0, -1.0]);
    assert_eq!((x.shape(), x.to_f64()), (&[2, 2, 2][..], vec![1.0, 2.0, 0.0, -1.0, 3.0, 4.0, 5.0, 6.0]));
    assert_eq!(Tensor::padded::<f32>(&[[0f32; 0]; 0], 0.0).shape(), [0, 0]);
    assert_eq!(Tensor::padded(&[[true; 0]; 2], false).shape(), [2, 0]);
}

#[test]
fn columns_of_tuples_become_tensors() {
    let rows = [(1i64, [1f32, 2.0], true), (2, [3.0, 4.0], false)];
    let (a, b, c) = Tensor::unzip(rows);
    assert_eq!((a.shape(), a.to_vec::<i64>().unwrap()), (&[2][..], vec![1, 2]));
    assert_eq!((b.shape(), b.to_vec::<f32>().unwrap()), (&[2, 2][..], vec![1.0, 2.0, 3.0, 4.0]));
    assert_eq!((c.shape(), c.to_vec::<bool>().unwrap()), (&[2][..], vec![true, false]));
    let (a, b) = Tensor::unzip((0..3).map(|i| (i, [[2 * i]])));
    assert_eq!((a.to_f64(), b.shape(), b.to_f64()), (vec![0.0, 1.0, 2.0], &[3, 1, 1][..], vec![0.0, 2.0, 4.0]));
    let (_, _, _, _, e, f) = Tensor::unzip([(1, 2, 3, 4, 5, [6, 7])]);
    assert_eq!((e.to_f64(), f.to_f64()), (vec![5.0], vec![6.0, 7.0]));
    // No rows: the lengths of the other axes are known.
    let (a, b) = Tensor::unzip(std::iter::empty::<(f32, [i64; 4])>());
    assert_eq!((a.shape(), b.shape()), (&[0][..], &[0, 4][..]));
}

#[test]
fn a_tensor_is_compared_with_a_number() {
    let truth = |x: Result<Tensor>| x.unwrap().to_vec::<bool>().unwrap();
    for dtype in [DType::F64, DType::F32, DType::F16, DType::Bf16, DType::I64] {
        let x = Tensor::from([-1, 0, 2]).cast(dtype);
        assert_eq!(truth(x.eq(0)), [false, true, false], "{dtype}");
        assert_eq!(truth(x.ne(0.0)), [true, false, true], "{dtype}");
        assert_eq!(truth(x.lt(2)), [true, true, false], "{dtype}");
        assert_eq!(truth(x.le(0)), [true, true, false], "{dtype}");
        assert_eq!(truth(x.gt(-1.0)), [false, true, true], "{dtype}");
        assert_eq!(truth(x.ge(2)), [false, false, true], "{dtype}");
    }
    assert_eq!(truth(Tensor::from([0.25, 0.75]).gt(0.5)), [false, true]);
    // An i64 is compared with every bit.
    let large = i64::MAX - 1;
    assert_eq!(truth(Tensor::from([large, i64::MAX]).eq(large)), [true, false]);
    let message = |x: Result<Tensor>| x.unwrap_err().to_string();
    assert_eq!(
        message(Tensor::from([2]).lt(0.5)),
        "Less: the number 0.5 meets a tensor of dtype i64; cast the tensor first"
    );
    assert!(message(Tensor::from([true]).eq(1)).contains("the number 1 meets a tensor of dtype bool"));
}

#[test]
fn a_number_may_be_on_either_side_of_an_operator() {
    for dtype in [DType::F64, DType::F32, DType::F16, DType::Bf16] {
        let x = Tensor::from([1f32, -2.0, 4.0]).cast(dtype);
        for (y, expected) in [
            (3.0 + &x, [4.0, 1.0, 7.0]),
            (3.0 - &x, [2.0, 5.0, -1.0]),
            (3.0 * x.clone(), [3.0, -6.0, 12.0]),
            (4.0 / x.clone(), [4.0, -2.0, 1.0]),
            (&x - 3.0, [-2.0, -5.0, 1.0]),
        ] {
            let y = y.unwrap();
            assert_eq!((y.dtype(), y.to_f64()), (dtype, expected.to_vec()));
        }
    }
    assert_eq!((7.0 - Tensor::from([2i64])).unwrap().to_vec::<i64>().unwrap(), [5]);
    let message = |y: Result<Tensor>| y.unwrap_err().to_string();
    let words = "the number 0.5 meets a tensor of dtype i64; cast the tensor first";
    assert_eq!(message(0.5 * Tensor::from([2i64])), format!("Mul: {words}"));
    assert!(message(1.0 - Tensor::from([true])).contains("the number 1 meets a tensor of dtype bool"));
    // The gradient of 1 - w is -1, and that of 2 / w is -2 / w².
    let w = Param::new(Tensor::from([2f32]));
    let grads = (1.0 - w.tensor()).unwrap().add(&(2.0 / w.tensor()).unwrap()).unwrap().sum_all().unwrap();
    assert_eq!(grads.backward().unwrap().get(&w).unwrap().to_f64(), [-1.5]);
}

#[test]
fn random_tensors_have_the_moments_of_their_distribution() {
    let moments = |x: Tensor| {
        assert_eq!((x.dtype(), x.shape()), (DType::F32, &[100, 200][..]));
        let x = x.to_f64();
        let mean = x.iter().sum::<f64>() / x.len() as f64;
        (mean, x.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / x.len() as f64, x)
    };
    let rng = &mut Rng::seed(3);
    let (mean, variance, x) = moments(Tensor::rand(&[100, 200], rng).unwrap());
    assert!((mean - 0.5).abs() < 0.01 && (variance - 1.0 / 12.0).abs() < 0.003, "{mean} {variance}");
    assert!(x.iter().all(|x| (0.0..=1.0).contains(x)));
    let (mean, variance, _) = moments(Tensor::randn(&[100, 200], rng).unwrap());
    assert!(mean.abs() < 0.03 && (variance - 1.0).abs() < 0.04, "{mean} {variance}");
    // The same seed gives the same numbers, and the generator moves on.
    let (a, b) = (&mut Rng::seed(1), &mut Rng::seed(1));
    let first = Tensor::randn(&[4], a).unwrap().to_f64();
    assert_eq!(first, Tensor::randn(&[4], b).unwrap().to_f64());
    assert_ne!(first, Tensor::randn(&[4], a).unwrap().to_f64());
}

#[test]
fn what_does_not_fit_into_memory_is_an_error() {
    let rng = &mut Rng::seed(0);
    let huge = [
        Tensor::try_full(&[usize::MAX, 2], 0.0, DType::F32),
        Tensor::try_full(&[usize::MAX / 2], 0.0, DType::Bool),
        Tensor::try_full(&[0, usize::MAX, 2], 0.0, DType::F64),
        Tensor::try_full(&[1 << 61], 1.0, DType::Bf16),
        Tensor::rand(&[usize::MAX, 2], rng),
        Tensor::randn(&[usize::MAX / 8], rng),
        Tensor::eye(usize::MAX),
        Tensor::linspace(0.0, 1.0, usize::MAX),
        Tensor::range(0.0, 1e30, 1.0),
    ];
    for error in huge {
        let error = error.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Shape);
        assert!(error.to_string().ends_with("does not fit into memory"), "{error}");
    }
    assert_eq!(Tensor::try_full(&[2], 3.0, DType::I64).unwrap().to_f64(), [3.0; 2]);
    // An element count that overflows does not match the given elements.
    assert!(Tensor::from_vec(vec![1f32], &[usize::MAX, 2]).is_err());
    for (start, end, step) in [(0.0, 1.0, 0.0), (0.0, 1.0, -1.0), (0.0, f64::INFINITY, 1.0), (f64::NAN, 1.0, 1.0)] {
        let error = Tensor::range(start, end, step).unwrap_err();
        assert!(error.to_string().starts_with(&format!("a range from {start} to {end} in steps of {step}")), "{error}");
    }
}

/// Code accepts the same forms as files.
#[test]
fn options_per_axis_are_numbers_tuples_and_arrays() {
    let rng = &mut Rng::seed(0);
    let mut shape = |spec: Conv2dSpec| {
        let net = Child::new(spec.build(rng).unwrap());
        net.call(&Tensor::ones(&[1, 2, 8, 8], DType::F32)).unwrap().shape()[2..].to_vec()
    };
    let spec = || Conv2dSpec::new(2, 4, 3);
    assert_eq!(shape(spec().padding(1)), [8, 8]);
    assert_eq!(shape(spec().padding((1, 2))), [8, 10]);
    assert_eq!(shape(spec().padding([0, 1])), [6, 8]);
    assert_eq!(shape(spec().padding([(0, 1), (2, 2)])), [7, 10]);
    assert_eq!(shape(spec().padding(Padding::Same)), [8, 8]);
    assert_eq!(shape(spec().stride((1, 2)).dilation((2, 1)).groups(2)), [4, 3]);
    assert_eq!(shape(Conv2dSpec::new(2, 4, (1, 3))), [8, 6]);
    let pooled = |pool: MaxPool2d| {
        Child::new(pool).call(&Tensor::ones(&[1, 2, 8, 8], DType::F32)).unwrap().shape()[2..].to_vec()
    };
    assert_eq!(pooled(MaxPool2d::new(3).stride(1).padding(1)), [8, 8]);
    assert_eq!(pooled(MaxPool2d::new((2, 4)).stride((4, 1))), [2, 5]);
    let volume = Child::new(AvgPool3d::new((1, 2, 1)).padding((0, 1, 0)));
    assert_eq!(volume.call(&Tensor::ones(&[1, 1, 3, 4, 5], DType::F32)).unwrap().shape(), [1, 1, 3, 3, 5]);
}

#[test]
fn class_labels_are_i64() {
    let logits = Tensor::zeros(&[2, 10], DType::F32);
    let labels = Tensor::zeros(&[2], DType::F32);
    let message = logits.cross_entropy_with(&labels, &CrossEntropy::default()).unwrap_err().to_string();
    let words =
        "targets of dtype f32 and shape [2]; allowed: classes as i64 of shape [2], or probabilities of shape [2, 10]";
    assert!(message.contains(words), "{message}");
    let message = logits.nll_loss(&labels, precast::Reduction::Mean).unwrap_err().to_string();
    assert!(message.contains("targets of dtype f32; allowed: classes as i64 of shape [2]"), "{message}");
}
