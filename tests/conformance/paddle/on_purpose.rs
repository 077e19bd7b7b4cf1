//! Intentional differences from Paddle's regions that recorded cases do not show, or not all of them.

use precast::{Autocast, ConvOptions, DType, ErrorKind, Op, Result, Tensor, autocast, observe, precision};

const LEVELS: [&str; 3] = ["O1", "O2", "OD"];

fn region(level: &str) -> Autocast {
    Autocast::new("paddle-3.3").unwrap().op_level(level).dtype(DType::Bf16)
}

fn square(dtype: DType) -> Tensor {
    Tensor::ones(&[2, 2], dtype)
}

fn dtype(level: &str, f: impl FnOnce() -> Result<Tensor>) -> DType {
    autocast(region(level), || Ok(f()?.dtype())).unwrap()
}

#[test]
fn what_is_one_op_here_is_one_op() {
    let one = Tensor::ones(&[1, 1], DType::F32);
    // The sum of 1 and this is between two numbers of bf16, which are 1/128 apart; it is nearer to the upper one.
    let bias = Tensor::full(&[1], 0.75 / 128.0, DType::F32);
    for level in LEVELS {
        let whole = autocast(region(level), || one.linear(&one, Some(&bias))).unwrap();
        let pieces = autocast(region(level), || one.matmul(&one)?.add(&bias)).unwrap();
        assert_eq!((whole.dtype(), whole.to_f64()), (DType::Bf16, vec![1.0 + 1.0 / 128.0]), "{level}");
        assert_eq!((pieces.dtype(), pieces.to_f64()), (DType::F32, vec![1.0 + 0.75 / 128.0]), "{level}");
    }
    // A convolution with a bias, one along one axis, and attention are one op each as well.
    let (image, kernel) = (Tensor::ones(&[1, 1, 3, 3], DType::F32), Tensor::ones(&[1, 1, 2, 2], DType::F32));
    let (line, taps) = (Tensor::ones(&[1, 1, 3], DType::F32), Tensor::ones(&[1, 1, 2], DType::F32));
    let heads = Tensor::ones(&[1, 1, 2, 2], DType::F32);
    for level in LEVELS {
        assert_eq!(dtype(level, || image.conv2d(&kernel, Some(&bias), &ConvOptions::default())), DType::Bf16);
        assert_eq!(dtype(level, || line.conv1d(&taps, None, &ConvOptions::default())), DType::Bf16);
        let attention = || heads.scaled_dot_product_attention(&heads, &heads, None, false, None);
        assert_eq!(dtype(level, attention), DType::Bf16);
    }
}

/// Paddle's variance is nine ops, ending with a cast back to the dtype of the input.
#[test]
fn a_variance_is_one_op_too() {
    let low = square(DType::Bf16);
    for (level, expected) in [("O1", DType::F32), ("OD", DType::F32), ("O2", DType::Bf16)] {
        assert_eq!(dtype(level, || low.var(&[], 1, false)), expected, "{level}");
        assert_eq!(dtype(level, || low.std(&[], 1, false)), expected, "{level}");
    }
}

/// At each level the parameters of a norm that runs low stay f32, even if a custom list asks for the low dtype.
#[test]
fn a_listed_norm_keeps_its_parameters() {
    let (x, of) = (square(DType::F32), Tensor::ones(&[2], DType::F32));
    for level in LEVELS {
        let norm = || x.layer_norm(&[2], Some(&of), Some(&of), 1e-5);
        let (result, events) = observe::watch(|| autocast(region(level).low(["layer_norm"]), norm));
        assert_eq!(result.unwrap().dtype(), DType::Bf16, "{level}");
        let ran = events.iter().find(|event| event.op == Op::LayerNorm).unwrap();
        assert_eq!(ran.inputs, [DType::Bf16, DType::F32, DType::F32], "{level}");
    }
}

#[test]
fn arithmetic_with_a_number_is_arithmetic() {
    let x = square(DType::F32);
    let listed = |name: &str, f: fn(&Tensor) -> Result<Tensor>| {
        autocast(region("O1").low([name]), || Ok(f(&x)?.dtype())).unwrap()
    };
    // For Paddle all three are `scale`.
    for (name, f) in [
        ("elementwise_add", (|x| x + 1.0) as fn(&Tensor) -> Result<Tensor>),
        ("elementwise_mul", |x| x * 2.0),
        ("Neg", |x| x.neg()),
    ] {
        assert_eq!((listed(name, f), listed("scale", f)), (DType::Bf16, DType::F32), "{name}");
    }
}

#[test]
fn every_op_goes_by_the_lists_and_by_them_alone() {
    // A Paddle graph runs batch norms in the dtype of their input, whatever was listed or disabled.
    let x = Tensor::ones(&[2, 1, 2, 2], DType::F32);
    let of = Tensor::ones(&[1], DType::F32);
    let norm = || x.batch_norm(&of, &of, Some(&of), Some(&of), 1e-5);
    assert_eq!(dtype("O2", norm), DType::F32);
    let run = |region: Autocast| autocast(region, || Ok(norm()?.dtype())).unwrap();
    assert_eq!(run(region("O2").use_promote(false)), DType::Bf16);
    assert_eq!(run(region("O1").low(["batch_norm"])), DType::Bf16);
    // Its median widens low inputs by itself.
    let frame = autocast(region("O2"), || Ok(precast::precision::current())).unwrap();
    let casts = precision::resolve(frame.as_ref(), Op::Median, &[DType::Bf16]).unwrap();
    assert_eq!(casts.after(&[DType::Bf16]), [DType::Bf16]);
}

#[test]
fn a_name_on_a_custom_list_is_heeded() {
    let x = square(DType::F32);
    // Paddle's own lists have `matmul_v2` and `elementwise_add`; the names of its functions have no effect there.
    for name in ["matmul", "matmul_v2", "paddle:matmul", "MatMul"] {
        let product = autocast(region("O1").full([name]), || Ok(x.matmul(&x)?.dtype()));
        assert_eq!(product.unwrap(), DType::F32, "{name}");
    }
    for name in ["add", "elementwise_add", "Add"] {
        let sum = autocast(region("O1").low([name]), || Ok(x.add(&x)?.dtype()));
        assert_eq!(sum.unwrap(), DType::Bf16, "{name}");
    }
    // Unknown names have no effect there, either.
    for name in ["not_an_op", "e", "mat mul"] {
        assert_eq!(region("O1").low([name]).enter().unwrap_err().kind(), ErrorKind::List);
    }
}

#[test]
fn names_are_exact() {
    let error = region("o1").enter().unwrap_err();
    assert!(error.to_string().contains("did you mean `O1`?"), "{error}");
    let error = "BFLOAT16".parse::<DType>().unwrap_err();
    assert!(error.to_string().contains("did you mean `bfloat16`?"), "{error}");
}

/// Paddle's own default is f16 for any region.
#[test]
fn a_region_that_names_no_dtype_takes_that_around_it() {
    let x = square(DType::F32);
    let unnamed = || autocast(Autocast::new("paddle-3.3")?, || Ok(x.matmul(&x)?.dtype()));
    assert_eq!(unnamed().unwrap(), DType::F16);
    assert_eq!(autocast(region("O1"), unnamed).unwrap(), DType::Bf16);
}
