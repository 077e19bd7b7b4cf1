//! Bad input is an error.

use precast_base::ErrorKind;
use precast_lowbit::{
    Delayed, DelayedRule, Format, Granularity, Matrix, Operand, Overflow, Recipe, Rounding, ScaleRule, Scales, Scaling,
    Stream, amax_to_scale,
};

fn random() -> Stream {
    Stream::new(0, "x", 0)
}

fn error_of(operand: Operand, x: &[f32], rows: usize) -> (ErrorKind, String) {
    let error = operand.quantize(Matrix::new(x, rows, x.len() / rows).unwrap(), random()).unwrap_err();
    (error.kind(), error.to_string())
}

#[test]
fn a_number_that_is_not_finite_has_its_place() {
    for recipe in Recipe::ALL.into_iter().filter(|recipe| *recipe != Recipe::DELAYED) {
        for (bad, name) in [(f32::NAN, "NaN"), (f32::INFINITY, "inf"), (f32::NEG_INFINITY, "-inf")] {
            let mut x = vec![1.0; 128 * 256];
            x[2 * 256 + 5] = bad;
            let (kind, message) = error_of(recipe.output.right, &x, 128);
            assert_eq!(kind, ErrorKind::Value);
            assert_eq!(message, format!("expected finite numbers, got {name} in row 2, column 5"));
        }
    }
    // Each is finite, their sum is not.
    let (kind, message) = error_of(Recipe::NVFP4.grad_weight.unwrap().right, &[f32::MAX; 16], 1);
    assert_eq!(kind, ErrorKind::Value, "{message}");
}

#[test]
fn a_block_that_does_not_divide_is_an_error() {
    let x = [1.0; 96];
    let (kind, message) = error_of(Recipe::MXFP8.output.left, &x, 2);
    assert_eq!((kind, &*message), (ErrorKind::Shape, "blocks of 1 x 32 do not divide a matrix of shape [2, 48]"));
    let (kind, _) = error_of(Recipe::NVFP4.output.right, &x, 3);
    assert_eq!(kind, ErrorKind::Shape);
    let (kind, _) = error_of(Recipe::NVFP4.grad_weight.unwrap().left, &x, 4);
    assert_eq!(kind, ErrorKind::Shape);
    for (rows, columns) in [(0, 32), (1, 0)] {
        let mut operand = Recipe::MXFP8.output.left;
        operand.granularity = Granularity::Block { rows, columns };
        assert_eq!(error_of(operand, &x, 1).0, ErrorKind::Shape);
    }
}

#[test]
fn a_scale_that_is_no_factor_is_an_error() {
    for scale in [0.0, -1.0, f32::NAN, f32::INFINITY] {
        let x = Matrix::new(&[1.0], 1, 1).unwrap();
        let error = Recipe::DELAYED.output.left.quantize_by(x, scale, random()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Value);
        let delayed = Delayed::new(Format::E4M3, DelayedRule { history: 2, ..DelayedRule::DEFAULT }).unwrap();
        assert!(delayed.clone().with_state(scale, &[0.0; 2]).is_err());
        assert!(delayed.with_state(1.0, &[0.0; 3]).is_err());
    }
    assert!(Delayed::new(Format::E4M3, DelayedRule { history: 0, ..DelayedRule::DEFAULT }).is_err());
    assert_eq!(error_of(Recipe::DELAYED.output.left, &[1.0], 1).0, ErrorKind::Value);
    for amax in [f32::NAN, f32::INFINITY, -1.0] {
        assert_eq!(amax_to_scale(Format::E4M3, amax, false, 0.0).unwrap_err().kind(), ErrorKind::Value);
    }
}

#[test]
fn an_empty_tensor_is_quantized_to_nothing() {
    for recipe in Recipe::ALL.into_iter().filter(|recipe| *recipe != Recipe::DELAYED) {
        for (rows, columns) in [(0, 256), (256, 0), (0, 0)] {
            let x = Matrix::new(&[], rows, columns).unwrap();
            for x in [x, x.t()] {
                let quantized = recipe.output.left.quantize(x, random()).unwrap();
                assert_eq!((quantized.codes(), quantized.decode()), (&[][..], vec![]), "{recipe}");
            }
        }
    }
    let x = Matrix::new(&[], 0, 4).unwrap();
    let [x, w] =
        [x, Matrix::new(&[1.0; 8], 2, 4).unwrap()].map(|x| Recipe::ROWWISE.output.left.quantize(x, random()).unwrap());
    assert_eq!(x.matmul_t(&w).unwrap(), []);
    assert_eq!(*x.scales(), Scales::F32(vec![]));
}

#[test]
fn shapes_and_formats_that_do_not_fit_are_errors() {
    assert_eq!(Matrix::new(&[1.0; 6], 2, 4).unwrap_err().kind(), ErrorKind::Shape);
    assert_eq!(Matrix::new(&[1.0; 6], usize::MAX, 2).unwrap_err().kind(), ErrorKind::Shape);
    let [x, w] = [2, 3].map(|columns| {
        let x = vec![1.0; 4 * columns];
        Recipe::ROWWISE.output.left.quantize(Matrix::new(&x, 4, columns).unwrap(), random()).unwrap()
    });
    assert_eq!(x.matmul_t(&w).unwrap_err().kind(), ErrorKind::Shape);
    let rule = ScaleRule::F32 { power_of_two: false, eps: 0.0 };
    let (kind, _) = error_of(Operand::new(Format::E8M0, Granularity::Tensor, rule), &[1.0], 1);
    assert_eq!(kind, ErrorKind::Unsupported);
    let mut nvfp4 = Recipe::NVFP4.output.left;
    nvfp4.format = Format::E4M3;
    assert_eq!(error_of(nvfp4, &[1.0; 16], 1).0, ErrorKind::Unsupported);
    let custom = Recipe::custom(Format::E4M3, Format::E8M0, Scaling::Rows, Rounding::Nearest);
    assert_eq!(custom.unwrap_err().kind(), ErrorKind::Unsupported);
    assert_eq!(Format::E4M3.encode_into(&[1.0], Overflow::Saturate, &mut []).unwrap_err().kind(), ErrorKind::Shape);
    assert_eq!(Format::E4M3.decode_into(&[1, 2], &mut [0.0]).unwrap_err().kind(), ErrorKind::Shape);
    assert!(Format::E4M3.encode_stochastic(&[1.0], &[], &mut [0]).is_err());
}

/// The largest f32 may be rounded to 2^128, which is not an f32.
#[test]
fn numbers_at_the_ends_of_f32_are_quantized() {
    for (x, most) in [(f32::MAX, f32::INFINITY), (f32::from_bits(1), f32::MAX), (f32::MIN_POSITIVE, f32::MAX)] {
        for recipe in Recipe::ALL.into_iter().filter(|recipe| *recipe != Recipe::DELAYED) {
            let quantized = recipe.output.left.quantize(Matrix::new(&[x; 256], 1, 256).unwrap(), random()).unwrap();
            assert!(quantized.decode().iter().all(|y| (0.0..=most).contains(y)), "{recipe}: {x}");
        }
    }
}
