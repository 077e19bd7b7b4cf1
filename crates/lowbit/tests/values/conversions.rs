//! Conversions between f32 and codes.

use half::{bf16, f16};
use precast_lowbit::{Format, Overflow, Stream};

use crate::data::{Runs, text};

const FLOATS: [Format; 5] = [Format::E4M3, Format::E5M2, Format::E3M2, Format::E2M3, Format::E2M1];

fn overflow(name: &str) -> Overflow {
    match name {
        "saturate" => Overflow::Saturate,
        "nonfinite" => Overflow::NonFinite,
        other => panic!("{other}"),
    }
}

/// Returns whether a code is one for NaN. Systems differ in the code, and in its sign.
fn is_nan(format: Format, code: u8) -> bool {
    format.decode(&[code])[0].is_nan()
}

fn has_nan(format: Format) -> bool {
    matches!(format, Format::E4M3 | Format::E5M2 | Format::E8M0)
}

#[test]
fn every_16_bit_number_has_the_recorded_code() {
    let mut compared = 0;
    for line in text("conversions.txt").lines() {
        let mut words = line.split(' ');
        let [format, source, mode] = [(); 3].map(|()| words.next().unwrap());
        let format: Format = format.parse().unwrap();
        for (first, last, expected) in Runs::read(words).all(0xffff) {
            let x: Vec<f32> = (first..=last)
                .map(|bits| match source {
                    "f16" => f16::from_bits(bits as u16).to_f32(),
                    _ => bf16::from_bits(bits as u16).to_f32(),
                })
                .collect();
            for (x, code) in x.iter().zip(format.encode(&x, overflow(mode))) {
                let right = match x.is_nan() {
                    true if has_nan(format) => is_nan(format, code),
                    true => code == 0,
                    false => code == expected || (is_nan(format, code) && is_nan(format, expected)),
                };
                assert!(right, "{format} {source} {mode}: {x} is {code:#x}, expected {expected:#x}");
                compared += 1;
            }
        }
    }
    assert_eq!(compared, 65536 * 22);
}

/// Compares each run of equal codes at its ends, or everywhere.
fn compare_f32(everywhere: bool) {
    let mut compared = 0u64;
    for line in text("f32.txt").lines() {
        let mut words = line.split(' ');
        let [format, mode] = [(); 2].map(|()| words.next().unwrap());
        let (format, mode): (Format, _) = (format.parse().unwrap(), overflow(mode));
        let compare = |patterns: &[u32], expected: u8| {
            let x: Vec<f32> = patterns.iter().map(|&bits| f32::from_bits(bits)).collect();
            let codes = format.encode(&x, mode);
            let wrong = codes.iter().position(|&code| code != expected);
            let wrong = wrong.map(|at| (x[at], codes[at]));
            assert_eq!(wrong, None, "{format} {mode:?}: expected {expected:#x} for all of {:#x?}", patterns.first());
            patterns.len() as u64
        };
        for (first, last, expected) in Runs::read(words).all(u32::MAX) {
            if !everywhere {
                compared += compare(&[first, last], expected);
                continue;
            }
            for first in (first..=last).step_by(1 << 16) {
                let patterns: Vec<u32> = (first..=last.min(first.saturating_add((1 << 16) - 1))).collect();
                compared += compare(&patterns, expected);
            }
        }
    }
    assert!(if everywhere { compared == 4 << 32 } else { compared > 1000 }, "{compared}");
}

#[test]
fn f32_numbers_next_to_a_change_of_the_code_have_the_recorded_one() {
    compare_f32(false);
}

#[test]
#[ignore = "minutes: a part of `cargo xtask nightly`"]
fn every_f32_number_has_the_recorded_code() {
    compare_f32(true);
}

/// (-1)^s 2^(e - bias) (1 + m / 2^M), or 2^(1 - bias) m / 2^M where e is 0.
#[test]
fn codes_have_the_numbers_of_their_fields() {
    for (format, exponent, mantissa, bias) in [
        (Format::E4M3, 4, 3, 7),
        (Format::E5M2, 5, 2, 15),
        (Format::E3M2, 3, 2, 3),
        (Format::E2M3, 2, 3, 1),
        (Format::E2M1, 2, 1, 1),
    ] {
        assert_eq!(format.bits(), 1 + exponent + mantissa);
        let mut largest: f64 = 0.0;
        for code in 0..1 << format.bits() {
            let sign = if code >> (exponent + mantissa) == 1 { -1.0 } else { 1.0 };
            let (e, m) = (code >> mantissa & ((1 << exponent) - 1), code & ((1 << mantissa) - 1));
            let fraction = f64::from(m) / f64::from(1 << mantissa);
            let number =
                sign * if e == 0 { 2f64.powi(1 - bias) * fraction } else { 2f64.powi(e - bias) * (1.0 + fraction) };
            let met = f64::from(format.decode(&[code as u8])[0]);
            match (format, e, m) {
                (Format::E4M3, 15, 7) | (Format::E5M2, 31, 1..) => assert!(met.is_nan()),
                (Format::E5M2, 31, 0) => assert_eq!(met, sign * f64::INFINITY),
                _ => {
                    assert_eq!(met.to_bits(), number.to_bits(), "{format} {code:#x}");
                    largest = largest.max(number);
                }
            }
        }
        assert_eq!(f64::from(format.largest()), largest);
    }
    for code in 0..=255u8 {
        let met = f64::from(Format::E8M0.decode(&[code])[0]);
        assert!(if code == 255 { met.is_nan() } else { met == 2f64.powi(i32::from(code) - 127) });
        assert_eq!(Format::Int8.decode(&[code]), [f32::from(code as i8)]);
        let low = i32::from(code & 15);
        assert_eq!(Format::Int4.decode(&[code]), [(low - if low > 7 { 16 } else { 0 }) as f32]);
    }
}

/// Every number but the scales is a bf16, and a product of two is an f32.
#[test]
fn numbers_are_exact_in_bf16_and_products_in_f32() {
    for format in Format::NUMBERS {
        let codes: Vec<u8> = (0..=255).collect();
        let numbers: Vec<f32> = format.decode(&codes).into_iter().filter(|x| x.is_finite()).collect();
        for &x in &numbers {
            assert_eq!(bf16::from_f32(x).to_f32(), x);
            assert!(numbers.iter().all(|&y| f64::from(x) * f64::from(y) == f64::from(x * y)), "{format}: {x}");
        }
    }
}

#[test]
fn a_number_of_the_format_keeps_its_code() {
    let random = [u32::MAX; 256];
    for format in Format::ALL {
        let codes: Vec<u8> = (0..1u32 << format.bits()).map(|code| code as u8).collect();
        let numbers = format.decode(&codes);
        let mut stochastic = vec![0; codes.len()];
        format.encode_stochastic(&numbers, &random[..codes.len()], &mut stochastic).unwrap();
        let nearest = format.encode(&numbers, Overflow::NonFinite);
        for (at, x) in numbers.iter().enumerate() {
            let expected = codes[at];
            if x.is_nan() {
                assert!(is_nan(format, nearest[at]) && is_nan(format, stochastic[at]));
                continue;
            }
            assert_eq!(nearest[at], expected, "{format}: {x}");
            // Infinity saturates.
            let expected = if x.is_infinite() { expected - 1 } else { expected };
            assert_eq!(stochastic[at], expected, "{format}: {x}");
        }
    }
}

#[test]
fn integers_are_rounded_to_even_and_saturate() {
    let x = [0.5, 1.5, -0.5, -2.5, 126.5, 127.5, -128.5, 1e30, f32::NEG_INFINITY, f32::NAN, -0.0];
    let codes = Format::Int8.encode(&x, Overflow::Saturate);
    assert_eq!(Format::Int8.decode(&codes), [0.0, 2.0, 0.0, -2.0, 126.0, 127.0, -128.0, 127.0, -128.0, 0.0, 0.0]);
    let codes = Format::Int4.encode(&x, Overflow::NonFinite);
    assert_eq!(Format::Int4.decode(&codes), [0.0, 2.0, 0.0, -2.0, 7.0, 7.0, -8.0, 7.0, -8.0, 0.0, 0.0]);
}

/// A number between two others becomes the upper one as often as it is near. Five standard deviations are allowed.
#[test]
fn stochastic_rounding_is_unbiased() {
    const N: usize = 1 << 16;
    for format in Format::NUMBERS {
        // Two neighbours among subnormal numbers, two above them, the two largest, and two with a sign.
        let last = format.encode(&[format.largest()], Overflow::Saturate)[0];
        let sign = 1 << (format.bits() - 1);
        for lower in [0, 1, last / 2, last - 1, sign | 2] {
            if matches!(format, Format::Int8 | Format::Int4) && lower >= sign {
                continue;
            }
            let [below, above] = [lower, lower + 1].map(|code| format.decode(&[code])[0]);
            for part in [0.0, 0.125, 0.5, 0.8125] {
                let x = vec![below + (above - below) * part; N];
                let (mut random, mut codes) = (vec![0; N], vec![0; N]);
                Stream::new(11, format.name(), u64::from(lower)).fill(0, &mut random);
                format.encode_stochastic(&x, &random, &mut codes).unwrap();
                let up = codes.iter().filter(|&&code| code == lower + 1).count() as f64;
                assert!(codes.iter().all(|&code| code == lower || code == lower + 1), "{format}: {}", x[0]);
                let (n, p) = (N as f64, f64::from(part));
                assert!((up - n * p).abs() <= 5.0 * (n * p * (1.0 - p)).sqrt(), "{format}: {} up {up} of {n}", x[0]);
            }
        }
    }
}

#[test]
fn stochastic_rounding_saturates_and_keeps_nan() {
    for format in FLOATS {
        let (x, random) = ([format.largest() * 1.01, f32::INFINITY, -1e30, f32::NAN], [u32::MAX; 4]);
        let mut codes = [0; 4];
        format.encode_stochastic(&x, &random, &mut codes).unwrap();
        let numbers = format.decode(&codes);
        assert_eq!(numbers[..3], [format.largest(), format.largest(), -format.largest()]);
        assert!(if has_nan(format) { numbers[3].is_nan() } else { codes[3] == 0 });
    }
}
