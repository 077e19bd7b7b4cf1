//! Scales and codes of torchao 0.18 and Transformer Engine: equal.

use precast_lowbit::{
    Format, Granularity, Matrix, MxMode, Nvfp4, Operand, Quantized, Recipe, ScaleRule, Scales, Stream, amax_to_scale,
    pack_nibbles,
};

use crate::data::Arrays;

fn random() -> Stream {
    Stream::new(0, "x", 0)
}

fn quantized(operand: Operand, x: Matrix<'_>) -> Quantized {
    operand.quantize(x, random()).unwrap()
}

fn f32_scales(quantized: &Quantized) -> &[f32] {
    let Scales::F32(scales) = quantized.scales() else { panic!("{:?}", quantized.scales()) };
    scales
}

fn blocks(rows: usize, columns: usize) -> Granularity {
    Granularity::Block { rows, columns }
}

#[test]
fn an_amax_has_the_recorded_scale() {
    let (torchao, te) = (Arrays::read("scaling-torchao.txt"), Arrays::read("scaling-te.txt"));
    let amax = te.floats("amax");
    let mut compared = 0;
    for (format, name) in [(Format::E4M3, "e4m3fn"), (Format::E5M2, "e5m2")] {
        for (power_of_two, suffix) in [(false, ""), (true, ".pow2")] {
            for (eps, recorded) in [
                (1e-12, torchao.floats(&format!("torchao_amax_to_scale.{name}{suffix}"))),
                (1e-12, te.floats(&format!("te.scale.{name}{suffix}.eps1e-12"))),
                (0.0, te.floats(&format!("te.scale.{name}{suffix}.eps0"))),
            ] {
                for (&amax, expected) in amax.iter().zip(recorded) {
                    match amax_to_scale(format, amax, power_of_two, eps) {
                        Ok(scale) => {
                            assert_eq!(scale, expected, "{name}{suffix} eps {eps}: amax {amax}");
                            compared += 1;
                        }
                        // They differ here: 0, NaN or 0.5.
                        Err(_) => assert!(!amax.is_finite()),
                    }
                }
            }
        }
    }
    assert_eq!(compared, 12 * 19);
}

#[test]
fn tensors_rows_and_columns_have_the_codes_of_torchao() {
    let data = Arrays::read("scaling-torchao.txt");
    let x = data.floats("x.f32");
    let x = Matrix::new(&x, 4, 64).unwrap();
    let f32_rule = |power_of_two| ScaleRule::F32 { power_of_two, eps: 1e-12 };
    for (name, format, granularity, power_of_two, x) in [
        ("tensorwise.e4m3fn", Format::E4M3, Granularity::Tensor, false, x),
        ("tensorwise.e5m2", Format::E5M2, Granularity::Tensor, false, x),
        ("rowwise.e4m3fn.pow2", Format::E4M3, Granularity::Rows, true, x),
        ("columnwise.e4m3fn.pow2", Format::E4M3, Granularity::Rows, true, x.t()),
    ] {
        let met = quantized(Operand::new(format, granularity, f32_rule(power_of_two)), x);
        let scales: Vec<f32> = data.floats(&format!("torchao.{name}.scale")).iter().map(|scale| 1.0 / scale).collect();
        assert_eq!(f32_scales(&met), scales, "{name}");
        let codes = data.bytes(&format!("torchao.{name}.codes"));
        let is_columnwise = x.rows() == 64;
        // Recorded in the order of the matrix.
        let at = |i: usize| if is_columnwise { i % 64 * 4 + i / 64 } else { i };
        let met: Vec<u8> = (0..256).map(|i| met.codes()[at(i)]).collect();
        assert_eq!(met, codes, "{name}");
    }
}

#[test]
fn rows_of_int8_have_the_codes_of_torchao() {
    let data = Arrays::read("scaling-torchao.txt");
    let x = data.floats("int8.x.f32");
    let met = quantized(Recipe::INT8.output.left, Matrix::new(&x, 7, 64).unwrap());
    assert_eq!(f32_scales(&met), data.floats("int8.rowwise.scale"));
    assert_eq!(met.codes(), data.bytes("int8.rowwise.codes"));
}

#[test]
fn mx_blocks_have_the_codes_of_torchao() {
    let data = Arrays::read("scaling-torchao.txt");
    let x = data.floats("x.f32");
    let x = Matrix::new(&x, 4, 64).unwrap();
    let modes = [("floor", MxMode::Floor), ("rceil", MxMode::RCeil), ("ceil", MxMode::Ceil), ("even", MxMode::Even)];
    let formats = [
        ("e4m3fn", Format::E4M3),
        ("e5m2", Format::E5M2),
        ("e3m2fn", Format::E3M2),
        ("e2m3fn", Format::E2M3),
        ("e2m1fn", Format::E2M1),
    ];
    for (mode, rule) in modes {
        for (name, format) in formats {
            let met = quantized(Operand::new(format, blocks(1, 32), ScaleRule::Mx(rule)), x);
            let scales = data.bytes(&format!("mx.{mode}.{name}.scale_e8m0"));
            assert_eq!(*met.scales(), Scales::E8M0(scales), "{mode} {name}");
            let (codes, key) = match format {
                Format::E2M1 => (pack_nibbles(met.codes()), "codes_packed"),
                _ => (met.codes().to_vec(), "codes"),
            };
            assert_eq!(codes, data.bytes(&format!("mx.{mode}.{name}.{key}")), "{mode} {name}");
        }
    }
}

#[test]
fn nvfp4_has_the_codes_of_torchao_and_transformer_engine() {
    let (torchao, te) = (Arrays::read("scaling-torchao.txt"), Arrays::read("scaling-te.txt"));
    let (x, x2) = (torchao.floats("x.f32"), te.floats("x2.f32"));
    let (x, x2) = (Matrix::new(&x, 4, 64).unwrap(), Matrix::new(&x2, 64, 64).unwrap());
    for (data, name, order, group, x) in [
        (&torchao, "nvfp4.torchao.one_level", Nvfp4::OneLevel, blocks(1, 16), x),
        (&torchao, "nvfp4.torchao.two_level", Nvfp4::Torchao, blocks(1, 16), x),
        (&te, "te.nvfp4.1d", Nvfp4::TransformerEngine, blocks(1, 16), x),
        (&te, "te.nvfp4.2d", Nvfp4::TransformerEngine, blocks(16, 16), x2),
    ] {
        let met = quantized(Operand::new(Format::E2M1, group, ScaleRule::Nvfp4(order)), x);
        let Scales::E4M3 { groups, tensor } = met.scales() else { panic!("{:?}", met.scales()) };
        let recorded = data.bytes(&format!("{name}.scale_e4m3"));
        // Scales of 16 x 16 blocks are recorded for each row.
        let rows = x.rows() / (groups.len() / (x.columns() / 16));
        let each_row: Vec<u8> = groups.chunks(x.columns() / 16).flat_map(|row| row.repeat(rows)).collect();
        assert_eq!(each_row, recorded, "{name}");
        assert_eq!(pack_nibbles(met.codes()), data.bytes(&format!("{name}.codes_packed")), "{name}");
        let expected = match order {
            Nvfp4::OneLevel => 1.0,
            Nvfp4::Torchao => data.floats("nvfp4.torchao.two_level.per_tensor_scale")[0],
            Nvfp4::TransformerEngine => 1.0 / (2688.0 / data.floats(&format!("{name}.global_amax"))[0]),
        };
        assert_eq!(*tensor, expected, "{name}");
    }
    let zeros = quantized(Recipe::NVFP4.output.left, Matrix::new(&[0.0; 48], 3, 16).unwrap());
    let Scales::E4M3 { groups, .. } = zeros.scales() else { panic!("{:?}", zeros.scales()) };
    assert_eq!(*groups, te.bytes("te.nvfp4.zeros.scale_e4m3"));
    assert!(zeros.codes().iter().all(|&code| code == te.bytes("te.nvfp4.zeros.codes_packed")[0]));
}

#[test]
fn tensors_and_blocks_have_the_codes_of_transformer_engine() {
    let data = Arrays::read("scaling-te.txt");
    let (x, x2) = (Arrays::read("scaling-torchao.txt").floats("x.f32"), data.floats("x2.f32"));
    let (x, x2) = (Matrix::new(&x, 4, 64).unwrap(), Matrix::new(&x2, 64, 64).unwrap());
    let one = blocks(1, 32);
    for (name, format, granularity, power_of_two, x) in [
        ("te.current.e4m3fn", Format::E4M3, Granularity::Tensor, false, x),
        ("te.current.e5m2", Format::E5M2, Granularity::Tensor, false, x),
        ("te.block1d.tile32.e4m3fn", Format::E4M3, one, false, x),
        ("te.block1d.tile32.e4m3fn.pow2", Format::E4M3, one, true, x),
        ("te.block2d.tile32.e4m3fn", Format::E4M3, blocks(32, 32), false, x2),
        ("te.block2d.tile32.e4m3fn.pow2", Format::E4M3, blocks(32, 32), true, x2),
    ] {
        let met = quantized(Operand::new(format, granularity, ScaleRule::F32 { power_of_two, eps: 0.0 }), x);
        assert_eq!(f32_scales(&met), data.floats(&format!("{name}.scale_inv")), "{name}");
        assert_eq!(met.codes(), data.bytes(&format!("{name}.codes")), "{name}");
    }
}

/// By a scale of 1 in e5m2 the small integers of the transform's matrix are exact.
#[test]
fn the_hadamard_transform_is_that_of_transformer_engine() {
    let data = Arrays::read("scaling-te.txt");
    let signed = data.bytes("te.hadamard16_signed");
    let operand = Operand::new(Format::E5M2, Granularity::Tensor, ScaleRule::F32 { power_of_two: true, eps: 0.0 });
    for row in 0..16 {
        let mut unit = [0.0; 16];
        unit[row] = 4.0;
        let met = operand.transformed().quantize_by(Matrix::new(&unit, 1, 16).unwrap(), 1.0, random()).unwrap();
        let expected: Vec<f32> = signed[row * 16..][..16].iter().map(|&x| f32::from(x as i8)).collect();
        assert_eq!(met.decode(), expected);
    }
    // Transformed numbers, to the error of a code of seven bits, against the recorded ones.
    let x = Arrays::read("scaling-torchao.txt").floats("x.f32");
    let recorded = data.floats("te.rht.f32");
    let operand = Operand::new(Format::Int8, Granularity::Rows, ScaleRule::F32 { power_of_two: false, eps: 0.0 });
    let met = quantized(operand.transformed(), Matrix::new(&x, 16, 16).unwrap());
    let scales = f32_scales(&met).iter().flat_map(|scale| [*scale; 16]);
    for ((met, expected), scale) in met.decode().iter().zip(recorded).zip(scales) {
        assert!((met - expected).abs() <= scale * 0.50001, "{met}, expected {expected}");
    }
}
