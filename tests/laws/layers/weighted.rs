//! Products, convolutions and tables, compared with their definitions.

use precast::{Padding, prelude::*};

use super::{assert_close, indices, param, random, values};

#[test]
fn dense_is_a_weighted_sum_over_the_last_axis() {
    let mut rng = Rng::seed(1);
    for bias in [true, false] {
        let net = Child::of(DenseSpec::new(3, 2).bias(bias).build(&mut rng).unwrap());
        let x = random(&[2, 2, 3], 2);
        let (w, b) = (values(&net, "weight"), if bias { values(&net, "bias") } else { vec![0.0; 2] });
        let expected: Vec<f64> = (x.to_f64().chunks(3))
            .flat_map(|x| [0, 1].map(|o| b[o] + (0..3).map(|i| x[i] * w[3 * o + i]).sum::<f64>()))
            .collect();
        let y = net.call(&x).unwrap();
        assert_eq!(y.shape(), [2, 2, 2]);
        assert_close(&y, &expected, 1e-6);
        assert_eq!(net.named_params().len(), 1 + usize::from(bias));
    }
}

fn at(data: &[f64], shape: &[usize], index: &[usize]) -> f64 {
    data[shape.iter().zip(index).fold(0, |flat, (n, i)| flat * n + i)]
}

/// Computes a convolution straight from its definition, with the padding before each axis.
#[allow(clippy::too_many_arguments)]
fn convolve(
    x: &Tensor,
    weight: &Tensor,
    bias: &[f64],
    out: &[usize],
    stride: &[usize],
    before: &[usize],
    dilation: &[usize],
    groups: usize,
) -> Vec<f64> {
    let (xs, ws) = (x.shape(), weight.shape());
    let (data, weights) = (x.to_f64(), weight.to_f64());
    let (per_group_in, per_group_out) = (ws[1], ws[0] / groups);
    let output_shape = [&[xs[0], ws[0]], out].concat();
    let sum = |index: &Vec<usize>| {
        let (n, o, place) = (index[0], index[1], &index[2..]);
        let mut sum = bias.get(o).copied().unwrap_or(0.0);
        for tap in indices(&ws[1..]) {
            let position = place.iter().enumerate().map(|(a, &p)| {
                (p * stride[a] + tap[a + 1] * dilation[a]).checked_sub(before[a]).filter(|&i| i < xs[a + 2])
            });
            let Some(position) = position.collect::<Option<Vec<usize>>>() else { continue };
            let channel = o / per_group_out * per_group_in + tap[0];
            let x = at(&data, xs, &[&[n, channel], &position[..]].concat());
            sum += x * at(&weights, ws, &[&[o], &tap[..]].concat());
        }
        sum
    };
    indices(&output_shape).iter().map(sum).collect()
}

#[test]
fn convolutions_follow_their_definition() {
    let mut rng = Rng::seed(3);
    let weight_of = |net: &Child| param(net, "weight").value();

    // Plain: 7 elements under a window of 3 give 5.
    let net = Child::of(Conv1d::new(2, 3, 3, &mut rng));
    let x = random(&[2, 2, 7], 1);
    let expected = convolve(&x, &weight_of(&net), &values(&net, "bias"), &[5], &[1], &[0], &[1], 1);
    assert_close(&net.call(&x).unwrap(), &expected, 1e-6);

    // Same padding with stride 2: ceil(5 / 2) = 3 and ceil(4 / 2) = 2; odd padding goes to the end.
    let spec = Conv2dSpec::new(1, 2, [3, 3]).stride(2).padding(Padding::Same);
    let net = Child::of(spec.build(&mut rng).unwrap());
    let x = random(&[1, 1, 5, 4], 2);
    let expected = convolve(&x, &weight_of(&net), &values(&net, "bias"), &[3, 2], &[2, 2], &[1, 0], &[1, 1], 1);
    assert_close(&net.call(&x).unwrap(), &expected, 1e-6);

    // Unequal axes, dilation, padding on one side, groups, no bias.
    let spec = Conv2dSpec::new(4, 6, [2, 3])
        .stride([1, 2])
        .padding(Padding::Explicit(vec![(2, 0), (1, 1)]))
        .dilation([2, 1])
        .groups(2)
        .bias(false);
    let net = Child::of(spec.build(&mut rng).unwrap());
    let x = random(&[2, 4, 5, 6], 3);
    let expected = convolve(&x, &weight_of(&net), &[], &[5, 3], &[1, 2], &[2, 1], &[2, 1], 2);
    assert_close(&net.call(&x).unwrap(), &expected, 1e-6);

    let net = Child::of(Conv3d::new(1, 2, [2, 1, 3], &mut rng));
    let x = random(&[1, 1, 3, 2, 4], 4);
    let expected = convolve(&x, &weight_of(&net), &values(&net, "bias"), &[2, 2, 2], &[1; 3], &[0; 3], &[1; 3], 1);
    assert_close(&net.call(&x).unwrap(), &expected, 1e-6);
}

/// `<conv(x), y> = <x, conv_transpose(y)>` when both share one weight and have no bias.
#[test]
fn transposed_convolutions_are_the_adjoint() {
    fn dot(a: &Tensor, b: &Tensor) -> f64 {
        assert_eq!(a.shape(), b.shape());
        a.to_f64().iter().zip(b.to_f64()).map(|(a, b)| a * b).sum()
    }
    let mut rng = Rng::seed(5);
    let check = |conv: Child, transpose: Child, x: Tensor| {
        param(&transpose, "weight").set(&param(&conv, "weight").value()).unwrap();
        let forward = conv.call(&x).unwrap();
        let y = random(forward.shape(), 6);
        let (left, right) = (dot(&forward, &y), dot(&x, &transpose.call(&y).unwrap()));
        assert!((left - right).abs() < 1e-5, "{left} against {right}");
    };
    check(
        Conv1dSpec::new(2, 4, 3).bias(false).groups(2).build(&mut rng).unwrap().into(),
        Conv1dTransposeSpec::new(4, 2, 3).bias(false).groups(2).build(&mut rng).unwrap().into(),
        random(&[2, 2, 7], 1),
    );
    // (6 + 2 * 1 - 3) / 2 + 1 = 3 places; back: (3 - 1) * 2 + 3 - 2 * 1 + 1 = 6.
    check(
        Conv2dSpec::new(1, 2, 3).bias(false).stride(2).padding(Padding::all(1)).build(&mut rng).unwrap().into(),
        Conv2dTransposeSpec::new(2, 1, 3)
            .bias(false)
            .stride(2)
            .padding(Padding::all(1))
            .output_padding(1)
            .build(&mut rng)
            .unwrap()
            .into(),
        random(&[1, 1, 6, 6], 2),
    );
    check(
        Conv3dSpec::new(2, 3, 2).bias(false).dilation([1, 2, 1]).build(&mut rng).unwrap().into(),
        Conv3dTransposeSpec::new(3, 2, 2).bias(false).dilation([1, 2, 1]).build(&mut rng).unwrap().into(),
        random(&[1, 2, 3, 4, 3], 3),
    );

    // The bias is added once to every output.
    let with = Conv2dTranspose::new(1, 1, 2, &mut rng);
    let bias = with.bias.as_ref().unwrap().value().item().unwrap();
    let y = Child::of(with).call(&Tensor::zeros(&[1, 1, 2, 2], DType::F32)).unwrap();
    assert_close(&y, &[bias; 9], 0.0);
}

#[test]
fn an_embedding_is_a_table() {
    let net = Child::of(Embedding::new(5, 3, &mut Rng::seed(1)));
    let ids = Tensor::from_vec(vec![4i64, 0, 4, 1], &[2, 2]).unwrap();
    let table = values(&net, "weight");
    let expected: Vec<f64> = [4, 0, 4, 1].iter().flat_map(|&row| table[3 * row..3 * row + 3].to_vec()).collect();
    let y = net.call(&ids).unwrap();
    assert_eq!(y.shape(), [2, 2, 3]);
    assert_close(&y, &expected, 0.0);
    let error = net.call(&Tensor::from_vec(vec![5i64], &[1]).unwrap()).unwrap_err().to_string();
    assert!(error.starts_with("in the root cell: Embedding: ") && error.contains('5'), "{error}");
}
