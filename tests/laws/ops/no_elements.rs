//! Convolutions without channels, without images and without room: empty sums are 0, and results without a length are
//! refused.

use precast::{ConvOptions, ConvTransposeOptions, DType, ErrorKind, Result, Tensor};

const FLOATS: [DType; 4] = [DType::F64, DType::F32, DType::F16, DType::Bf16];

/// Runs a convolution or its transpose over as many axes as the input has, of ones with a bias of 2.
fn run(transpose: bool, inputs: &[Tensor]) -> Result<Tensor> {
    let ([x, weight, rest @ ..], o, t) = (inputs, ConvOptions::default(), ConvTransposeOptions::default()) else {
        panic!("input and weight")
    };
    let bias = rest.first();
    match (transpose, x.rank()) {
        (false, 3) => x.conv1d(weight, bias, &o),
        (false, 4) => x.conv2d(weight, bias, &o),
        (false, _) => x.conv3d(weight, bias, &o),
        (true, 3) => x.conv_transpose1d(weight, bias, &t),
        (true, 4) => x.conv_transpose2d(weight, bias, &t),
        (true, _) => x.conv_transpose3d(weight, bias, &t),
    }
}

#[test]
fn convolutions_of_no_channels_and_no_images() {
    // Images, input channels, output channels.
    let sizes = [(2, 0, 3), (2, 3, 0), (0, 2, 3), (2, 0, 0), (0, 0, 0), (1, 0, 40), (1, 40, 0)];
    let axes = if cfg!(miri) { 1..=1 } else { 1..=3 };
    for (n, from, to) in sizes {
        for axes in axes.clone() {
            for (transpose, with_bias) in [(false, false), (false, true), (true, false), (true, true)] {
                for dtype in FLOATS {
                    let channels = if transpose { [from, to] } else { [to, from] };
                    let (space, window) = (vec![4; axes], vec![2; axes]);
                    let x = Tensor::ones(&[&[n, from], &space[..]].concat(), dtype).requires_grad();
                    let weight = Tensor::ones(&[&channels, &window[..]].concat(), dtype).requires_grad();
                    let bias = Tensor::full(&[to], 2.0, dtype).requires_grad();
                    let inputs = [&[x, weight][..], if with_bias { std::slice::from_ref(&bias) } else { &[] }].concat();
                    let what = format!("{n} images, {from} to {to} channels, {axes} axes, {transpose}, {dtype}");
                    let y = run(transpose, &inputs).unwrap_or_else(|e| panic!("{what}: {e}"));
                    let length = if transpose { 5usize } else { 3 };
                    assert_eq!(y.shape(), [&[n, to], &vec![length; axes][..]].concat(), "{what}");
                    // No products are summed: only the bias remains.
                    let alone = if with_bias { 2.0 } else { 0.0 };
                    assert!(y.to_f64().iter().all(|&y| y == alone), "{what}");
                    let grads = y.backward_from(&Tensor::ones(y.shape(), dtype)).unwrap();
                    for input in &inputs[..2] {
                        let grad = grads.of(input).unwrap();
                        assert_eq!(grad.shape(), input.shape(), "{what}");
                        assert!(grad.to_f64().iter().all(|&g| g == 0.0), "{what}");
                    }
                    if with_bias {
                        let count = (n * length.pow(axes as u32)) as f64;
                        assert!(grads.of(&bias).unwrap().to_f64().iter().all(|&g| g == count), "{what}");
                    }
                }
            }
        }
    }
}

#[test]
fn an_empty_spatial_axis_is_refused() {
    for transpose in [false, true] {
        for dtype in FLOATS {
            let inputs = [Tensor::ones(&[2, 1, 0, 4], dtype), Tensor::ones(&[1, 1, 2, 2], dtype)];
            let error = run(transpose, &inputs).unwrap_err();
            assert!(error.to_string().contains("the length of a spatial axis 0 is out of range"), "{error}");
            assert_eq!(error.kind(), ErrorKind::Value);
        }
    }
}
