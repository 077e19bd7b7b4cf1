//! Laws of quantization.

use precast_lowbit::{
    Format, Granularity, Matrix, MxMode, Nvfp4, Operand, Recipe, Rounding, ScaleRule, Scales, Stream, pack_nibbles,
    unpack_nibbles,
};

/// Numbers of several magnitudes, with zeros of both signs.
fn numbers(len: usize) -> Vec<f32> {
    (0..len)
        .map(|i| match i % 17 {
            3 => 0.0,
            5 => -0.0,
            k => (i as f32 * 0.61803).sin() * 2f32.powi(k as i32 - 8),
        })
        .collect()
}

fn random() -> Stream {
    Stream::new(3, "x", 5)
}

/// Operands with each kind of scale and each granularity, in formats that they allow.
fn operands() -> Vec<Operand> {
    let block = |rows, columns| Granularity::Block { rows, columns };
    let groups = [Granularity::Tensor, Granularity::Rows, block(1, 32), block(4, 16)];
    let rules = [true, false].map(|power_of_two| ScaleRule::F32 { power_of_two, eps: 0.0 }).into_iter();
    let modes = [MxMode::Floor, MxMode::RCeil, MxMode::Ceil, MxMode::Even].map(ScaleRule::Mx);
    let rules: Vec<ScaleRule> = rules.chain(modes).collect();
    let plain = Format::NUMBERS.into_iter().flat_map(|format| rules.iter().map(move |&rule| (format, rule)));
    let nvfp4 = [Nvfp4::TransformerEngine, Nvfp4::OneLevel].map(|order| (Format::E2M1, ScaleRule::Nvfp4(order)));
    plain.chain(nvfp4).flat_map(|(format, rule)| groups.map(|group| Operand::new(format, group, rule))).collect()
}

/// With power-of-two scales the decoded numbers are those of the format times the scale, so they keep their codes. An integer
/// that saturates at -128 or -8 has a larger magnitude than the largest, and another scale.
#[test]
fn quantizing_twice_is_quantizing_once() {
    let x = numbers(8 * 64);
    let is_symmetric = |operand: &Operand| {
        !(matches!(operand.format, Format::Int8 | Format::Int4)
            && matches!(operand.scale, ScaleRule::Mx(MxMode::Floor | MxMode::Even)))
    };
    for operand in operands().into_iter().filter(is_symmetric) {
        let exact = match operand.scale {
            ScaleRule::F32 { power_of_two, .. } => power_of_two,
            ScaleRule::Mx(_) => true,
            _ => false,
        };
        let once = operand.quantize(Matrix::new(&x, 8, 64).unwrap(), random()).unwrap();
        let decoded = once.decode();
        let twice = operand.quantize(Matrix::new(&decoded, 8, 64).unwrap(), random()).unwrap();
        if exact {
            assert_eq!(twice.decode(), decoded, "{operand:?}");
        } else {
            // A scale that is not a power of two is rounded again; a number moves by roundings of f32 alone.
            let near = |(x, y): (&f32, &f32)| (x - y).abs() <= 1e-6 * x.abs();
            let all_near = twice.decode().iter().zip(&decoded).all(near);
            assert!(all_near || matches!(operand.scale, ScaleRule::Nvfp4(_)), "{operand:?}");
        }
    }
}

#[test]
fn a_power_of_two_commutes() {
    let x = numbers(8 * 64);
    for factor in [2f32.powi(-20), 0.5, 2f32.powi(13)] {
        let scaled: Vec<f32> = x.iter().map(|x| x * factor).collect();
        for operand in operands() {
            // The least scale of a block is absolute.
            if operand.scale == ScaleRule::Nvfp4(Nvfp4::OneLevel) {
                continue;
            }
            let [of_x, of_scaled] =
                [&x, &scaled].map(|x| operand.quantize(Matrix::new(x, 8, 64).unwrap(), random()).unwrap());
            assert_eq!(of_scaled.codes(), of_x.codes(), "{operand:?} {factor}");
            let expected: Vec<f32> = of_x.decode().iter().map(|x| x * factor).collect();
            assert_eq!(of_scaled.decode(), expected, "{operand:?} {factor}");
        }
    }
}

#[test]
fn rows_do_not_depend_on_the_batch() {
    let x = numbers(8 * 64);
    let of_rows = |operand: &Operand| match operand.granularity {
        Granularity::Rows | Granularity::Block { rows: 1, .. } => {
            !matches!(operand.scale, ScaleRule::Nvfp4(Nvfp4::TransformerEngine))
        }
        _ => false,
    };
    for operand in operands().into_iter().filter(of_rows) {
        for operand in [operand, operand.rounded(Rounding::Stochastic)] {
            let whole = operand.quantize(Matrix::new(&x, 8, 64).unwrap(), random()).unwrap();
            let part = Matrix::new(&x[3 * 64..5 * 64], 2, 64).unwrap().starting_at(3 * 64);
            let part = operand.quantize(part, random()).unwrap();
            assert_eq!(part.codes(), &whole.codes()[3 * 64..5 * 64], "{operand:?}");
        }
    }
}

#[test]
fn a_transpose_has_the_codes_of_the_transposed_numbers() {
    let x = numbers(16 * 64);
    let transposed: Vec<f32> = (0..64 * 16).map(|i| x[i % 16 * 64 + i / 16]).collect();
    for operand in
        operands().into_iter().filter(|operand| operand.granularity != Granularity::Block { rows: 1, columns: 32 })
    {
        let view = operand.quantize(Matrix::new(&x, 16, 64).unwrap().t(), random()).unwrap();
        let copy = operand.quantize(Matrix::new(&transposed, 64, 16).unwrap(), random()).unwrap();
        assert_eq!(view, copy);
    }
    // A number has the same random bits in both directions.
    let operand = Recipe::TENSORWISE.output.left.rounded(Rounding::Stochastic);
    let straight = operand.quantize(Matrix::new(&x, 16, 64).unwrap(), random()).unwrap();
    let view = operand.quantize(Matrix::new(&x, 16, 64).unwrap().t(), random()).unwrap();
    let back: Vec<u8> = (0..16 * 64).map(|i| view.codes()[i % 64 * 16 + i / 64]).collect();
    assert_eq!(back, straight.codes());
}

#[test]
fn zeros_keep_their_sign_and_a_block_of_zeros_is_zero() {
    let mut x = numbers(4 * 64);
    x[..64].fill(0.0);
    x[7] = -0.0;
    for operand in operands().into_iter().filter(|operand| !matches!(operand.format, Format::Int8 | Format::Int4)) {
        let decoded = operand.quantize(Matrix::new(&x, 4, 64).unwrap(), random()).unwrap().decode();
        let wrong = x.iter().zip(&decoded).position(|(x, y)| *x == 0.0 && y.to_bits() != x.to_bits());
        assert_eq!(wrong, None, "{operand:?}");
    }
}

/// Nothing but the recipe's own least scale and saturation separates a number from its code: half a unit.
#[test]
fn a_number_is_within_half_a_unit() {
    let x = numbers(8 * 64);
    for operand in operands() {
        let saturates = matches!(operand.scale, ScaleRule::Mx(MxMode::Floor | MxMode::Even) | ScaleRule::Nvfp4(_));
        let (mantissa, least) = match operand.format {
            Format::E4M3 => (3, -9),
            Format::E5M2 => (2, -16),
            Format::E3M2 => (2, -4),
            Format::E2M3 => (3, -3),
            Format::E2M1 => (1, -1),
            _ => (30, 0),
        };
        let quantized = operand.quantize(Matrix::new(&x, 8, 64).unwrap(), random()).unwrap();
        let most = match quantized.scales() {
            Scales::F32(scales) => scales.iter().fold(0f32, |most, scale| most.max(*scale)),
            other => other.to_f64().into_iter().fold(0.0, f64::max) as f32,
        };
        for (x, y) in x.iter().zip(quantized.decode()) {
            let unit = (x.abs() * 2f32.powi(-mantissa)).max(most * 2f32.powi(least));
            assert!(saturates || (x - y).abs() <= 0.50001 * unit, "{operand:?}: {x} is {y}");
        }
    }
}

#[test]
fn nibbles_are_packed_and_unpacked() {
    let codes: Vec<u8> = (0..16).collect();
    assert_eq!(unpack_nibbles(&pack_nibbles(&codes)), codes);
    assert_eq!(pack_nibbles(&[0xf3, 0x4]), [0x43]);
    assert_eq!(pack_nibbles(&[]), []);
}

#[test]
fn names_are_read_back() {
    for format in Format::ALL {
        assert_eq!(format.name().parse::<Format>().unwrap(), format);
    }
    for recipe in Recipe::ALL {
        assert_eq!(recipe.name.parse::<Recipe>().unwrap(), recipe);
    }
    for (name, words) in [
        ("tensorwise", "e5m2 by tensor, f32"),
        ("rowwise", "e4m3 by rows, powers of two"),
        ("mxfp4", "e2m1 by blocks of 1 x 32, e8m0"),
        ("nvfp4", "e2m1 by blocks of 1 x 16, e4m3, stochastic"),
        ("delayed", "e5m2 by tensor, delayed"),
    ] {
        assert_eq!(name.parse::<Recipe>().unwrap().grad_input.left.to_string(), words);
    }
    let message = "mxfp9".parse::<Recipe>().unwrap_err().to_string();
    assert!(message.starts_with("unknown recipe `mxfp9` (did you mean `mxfp8`?); allowed: tensorwise"), "{message}");
}
