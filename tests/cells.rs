//! Each cell against a closed form or a direct loop, and what all cells have in common.

#[path = "common/golden.rs"]
mod golden;

use golden::golden;
use precast::{
    Grads, Padding,
    cell::{Adapter, Cast},
    prelude::*,
};

/// Numbers between -1 and 1, different for each seed.
fn random(shape: &[usize], seed: u64) -> Tensor {
    let mut rng = Rng::seed(seed);
    let data: Vec<f32> = (0..shape.iter().product()).map(|_| rng.uniform(-1.0, 1.0) as f32).collect();
    Tensor::from_vec(data, shape).unwrap()
}

fn tensor(data: &[f64], shape: &[usize]) -> Tensor {
    Tensor::from_f64(data, shape, DType::F32).unwrap()
}

#[track_caller]
fn assert_close(y: &Tensor, expected: &[f64], tolerance: f64) {
    let y = y.to_f64();
    assert_eq!(y.len(), expected.len());
    for (i, (y, e)) in y.iter().zip(expected).enumerate() {
        assert!((y - e).abs() <= tolerance * e.abs().max(1.0), "element {i}: {y} against {e}");
    }
}

fn param(net: &Child, path: &str) -> Param {
    let named = net.named_params();
    named.iter().find(|(found, _)| found == path).unwrap_or_else(|| panic!("{path}: {named:?}")).1.clone()
}

fn values(net: &Child, path: &str) -> Vec<f64> {
    param(net, path).value().to_f64()
}

// ---------------------------------------------------------------- layers with weights

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

/// Every index of a shape, in row-major order.
fn indices(shape: &[usize]) -> Vec<Vec<usize>> {
    (0..shape.iter().product())
        .map(|mut flat: usize| {
            let mut index: Vec<usize> = shape.iter().rev().map(|&n| (flat % n, flat /= n).0).collect();
            index.reverse();
            index
        })
        .collect()
}

fn at(data: &[f64], shape: &[usize], index: &[usize]) -> f64 {
    data[shape.iter().zip(index).fold(0, |flat, (n, i)| flat * n + i)]
}

/// A convolution straight from its definition; the padding is what stands before each axis.
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

    // Same padding with stride 2: ceil(5 / 2) = 3 and ceil(4 / 2) = 2; the odd one of padding goes to the end.
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
        .groups(2usize)
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

/// `<conv(x), y> = <x, conv_transpose(y)>` when the two have one weight and no bias.
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
        Conv1dSpec::new(2, 4, 3).bias(false).groups(2usize).build(&mut rng).unwrap().into(),
        Conv1dTransposeSpec::new(4, 2, 3).bias(false).groups(2usize).build(&mut rng).unwrap().into(),
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

// ---------------------------------------------------------------- normalisation

/// The elements of each group to mean 0 and variance 1, then times `weight[c]` plus `bias[c]`.
fn normalised(
    x: &Tensor,
    eps: f64,
    group: impl Fn(&[usize]) -> Vec<usize>,
    affine: impl Fn(&[usize]) -> (f64, f64),
) -> Vec<f64> {
    let (data, all) = (x.to_f64(), indices(x.shape()));
    let one = |i: usize| {
        let mine = group(&all[i]);
        let same: Vec<f64> = all.iter().zip(&data).filter(|(j, _)| group(j) == mine).map(|(_, x)| *x).collect();
        let mean = same.iter().sum::<f64>() / same.len() as f64;
        let var = same.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / same.len() as f64;
        let (weight, bias) = affine(&all[i]);
        (data[i] - mean) / (var + eps).sqrt() * weight + bias
    };
    (0..data.len()).map(one).collect()
}

/// Gives weight and bias values that differ from channel to channel.
fn spread_affine(net: &Child) -> (Vec<f64>, Vec<f64>) {
    let shape = param(net, "weight").shape();
    param(net, "weight").set(&random(&shape, 11)).unwrap();
    param(net, "bias").set(&random(&shape, 12)).unwrap();
    (values(net, "weight"), values(net, "bias"))
}

#[test]
fn norms_by_the_sample_follow_their_definition() {
    let x = random(&[2, 4, 3, 2], 1);

    let net = Child::of(LayerNormSpec::new(&[3, 2]).eps(1e-3).build(&mut Rng::seed(0)).unwrap());
    let (w, b) = spread_affine(&net);
    let expected = normalised(&x, 1e-3, |i| i[..2].to_vec(), |i| (w[2 * i[2] + i[3]], b[2 * i[2] + i[3]]));
    assert_close(&net.call(&x).unwrap(), &expected, 1e-5);

    let net = Child::of(GroupNorm::new(2, 4).unwrap());
    let (w, b) = spread_affine(&net);
    let expected = normalised(&x, 1e-5, |i| vec![i[0], i[1] / 2], |i| (w[i[1]], b[i[1]]));
    assert_close(&net.call(&x).unwrap(), &expected, 1e-5);

    let net = Child::of(InstanceNorm2d::new(4));
    let (w, b) = spread_affine(&net);
    let expected = normalised(&x, 1e-5, |i| i[..2].to_vec(), |i| (w[i[1]], b[i[1]]));
    assert_close(&net.call(&x).unwrap(), &expected, 1e-5);
    let error = net.call(&random(&[2, 4, 3], 1)).unwrap_err().to_string();
    assert!(error.contains("takes [batch, 4, ...] with 2 spatial axes, got [2, 4, 3]"), "{error}");

    let net = Child::of(RmsNormSpec::new(2).eps(0.5).build(&mut Rng::seed(0)).unwrap());
    param(&net, "weight").set(&tensor(&[2.0, -3.0], &[2])).unwrap();
    let expected: Vec<f64> = (x.to_f64().chunks(2))
        .flat_map(|x| {
            let rms = ((x[0] * x[0] + x[1] * x[1]) / 2.0 + 0.5).sqrt();
            [x[0] / rms * 2.0, x[1] / rms * -3.0]
        })
        .collect();
    assert_close(&net.call(&x).unwrap(), &expected, 1e-6);
}

#[test]
fn batch_norm_trains_on_the_batch_and_evaluates_on_the_running_statistics() {
    let mut net = Child::of(BatchNorm2dSpec::new(3).momentum(0.25).build(&mut Rng::seed(0)).unwrap());
    let (w, b) = spread_affine(&net);
    let x = random(&[2, 3, 2, 2], 1);

    // Evaluation: mean 0 and variance 1 to begin with.
    let scale = 1.0 / (1.0f64 + 1e-5).sqrt();
    let channel = |i: usize| i / 4 % 3;
    let expected: Vec<f64> =
        x.to_f64().iter().enumerate().map(|(i, x)| x * scale * w[channel(i)] + b[channel(i)]).collect();
    assert_close(&net.call(&x).unwrap(), &expected, 1e-6);
    assert_eq!(values(&net, "running_mean"), [0.0; 3]);

    net.set_train(true);
    let expected = normalised(&x, 1e-5, |i| vec![i[1]], |i| (w[i[1]], b[i[1]]));
    assert_close(&net.call(&x).unwrap(), &expected, 1e-5);
    // A quarter of the batch's mean and unbiased variance (8 values a channel), three quarters of 0 and 1.
    let data = x.to_f64();
    let of_channel = |c: usize| -> Vec<f64> { (0..24).filter(|&i| channel(i) == c).map(|i| data[i]).collect() };
    let mean: Vec<f64> = (0..3).map(|c| of_channel(c).iter().sum::<f64>() / 8.0).collect();
    let var = |c: usize| of_channel(c).iter().map(|x| (x - mean[c]).powi(2)).sum::<f64>() / 7.0;
    assert_close(&param(&net, "running_mean").value(), &mean.iter().map(|m| m / 4.0).collect::<Vec<_>>(), 1e-6);
    assert_close(&param(&net, "running_var").value(), &(0..3).map(|c| 0.75 + var(c) / 4.0).collect::<Vec<_>>(), 1e-6);

    // Back in evaluation the buffers rest.
    let moved = values(&net, "running_mean");
    net.set_train(false);
    net.call(&x).unwrap();
    assert_eq!(values(&net, "running_mean"), moved);
    assert_eq!(net.params().len(), 2);
}

#[test]
fn batch_norm_keeps_f32_statistics_in_a_low_region() {
    let mut net = Child::of(sequential![BatchNorm1d::new(2)]);
    net.set_train(true);
    net.walk_mut(&mut |path, slot| {
        if path == "0" {
            *slot.adapter = Some(Adapter::Cast(Cast { inward: DType::F16, outward: DType::F32 }));
        }
    });
    // The batch is exact in f16, its mean 1/3 is not: rounded to f16 it would be 0.33325.
    net.call(&tensor(&[0.0, 1.0, 0.0, 1.0, 1.0, 1.0], &[3, 2])).unwrap();
    let mean = param(&net, "0.running_mean").value();
    assert_eq!(mean.dtype(), DType::F32);
    assert_close(&mean, &[0.1 / 3.0, 0.1], 1e-7);
}

#[test]
fn batch_norm_refuses_what_has_no_statistics() {
    let mut net = Child::of(sequential![BatchNorm1d::new(2)]);
    net.set_train(true);
    for (shape, message) in [
        (&[1, 2][..], "training needs at least 2 values for each channel, got [1, 2]"),
        (&[0, 2], "training needs at least 2 values for each channel, got [0, 2]"),
        (&[3, 4], "takes [batch, 2, ...] with at most 1 spatial axis, got [3, 4]"),
        (&[3], "takes [batch, 2, ...] with at most 1 spatial axis, got [3]"),
        (&[1, 2, 2, 2], "takes [batch, 2, ...] with at most 1 spatial axis, got [1, 2, 2, 2]"),
    ] {
        let error = net.call(&Tensor::zeros(shape, DType::F32)).unwrap_err().to_string();
        assert_eq!(error, format!("in cell `0`: {message}"));
    }
    assert_eq!(values(&net, "0.running_mean"), [0.0; 2]);
}

// ---------------------------------------------------------------- cells without weights

#[test]
fn activations_are_their_formulas() {
    let points = [-7.0, -2.5, -0.5, 0.0, 0.25, 2.0, 6.5];
    let sigmoid = |x: f64| 1.0 / (1.0 + (-x).exp());
    let phi = |x: f64| 0.5 * libm::erfc(-x / 2f64.sqrt());
    let tanh_phi = |x: f64| 0.5 * (1.0 + ((2.0 / std::f64::consts::PI).sqrt() * (x + 0.044715 * x.powi(3))).tanh());
    type Formula = Box<dyn Fn(f64) -> f64>;
    let cells: Vec<(Child, Formula)> = vec![
        (ReLU.into(), Box::new(|x| x.max(0.0))),
        (ReLU6.into(), Box::new(|x| x.clamp(0.0, 6.0))),
        (LeakyReLU::default().into(), Box::new(|x| if x > 0.0 { x } else { 0.01 * x })),
        (LeakyReLU { slope: 0.2 }.into(), Box::new(|x| if x > 0.0 { x } else { 0.2 * x })),
        (ELU { alpha: 1.5 }.into(), Box::new(|x| if x > 0.0 { x } else { 1.5 * (x.exp() - 1.0) })),
        (GELU::default().into(), Box::new(move |x| x * phi(x))),
        (GELU { approximate: true }.into(), Box::new(move |x| x * tanh_phi(x))),
        (SiLU.into(), Box::new(move |x| x * sigmoid(x))),
        (Sigmoid.into(), Box::new(sigmoid)),
        (Tanh.into(), Box::new(f64::tanh)),
        (Softplus.into(), Box::new(|x| (1.0 + x.exp()).ln())),
        (HSigmoid.into(), Box::new(|x| (x + 3.0).clamp(0.0, 6.0) / 6.0)),
        (HSwish.into(), Box::new(|x| x * (x + 3.0).clamp(0.0, 6.0) / 6.0)),
        (HardTanh.into(), Box::new(|x| x.clamp(-1.0, 1.0))),
        (PReLU::new(1).into(), Box::new(|x| if x > 0.0 { x } else { 0.25 * x })),
        (Identity.into(), Box::new(|x| x)),
    ];
    for (cell, formula) in cells {
        println!("{}", cell.slot().cell.kind());
        let y = cell.call(&tensor(&points, &[1, 7])).unwrap();
        assert_close(&y, &points.map(&formula), 1e-6);
    }
    // One slope for each channel, which is axis 1.
    let cell = Child::of(PReLU::new(2));
    param(&cell, "weight").set(&tensor(&[0.5, -1.0], &[2])).unwrap();
    let y = cell.call(&tensor(&[-2.0, 4.0, -2.0, 4.0], &[1, 2, 2])).unwrap();
    assert_close(&y, &[-1.0, 4.0, 2.0, 4.0], 0.0);
}

#[test]
fn softmax_runs_along_its_axis() {
    let x = tensor(&[0.0, 2f64.ln(), 0.0, 6f64.ln()], &[2, 2]);
    let last = Child::of(Softmax::default()).call(&x).unwrap();
    assert_close(&last, &[1.0 / 3.0, 2.0 / 3.0, 1.0 / 7.0, 6.0 / 7.0], 1e-6);
    let first = Child::of(Softmax { axis: 0 }).call(&x).unwrap();
    assert_close(&first, &[0.5, 0.25, 0.5, 0.75], 1e-6);
    let log = Child::of(LogSoftmax { axis: 0 }).call(&x).unwrap();
    assert_close(&log, &[0.5f64.ln(), 0.25f64.ln(), 0.5f64.ln(), 0.75f64.ln()], 1e-6);
}

#[test]
fn pools_and_flatten() {
    let row = tensor(&[1.0, 5.0, 2.0, 4.0, 3.0], &[1, 1, 5]);
    let call = |cell: Child, x: &Tensor| cell.call(x).unwrap();
    assert_close(&call(MaxPool1d::new(2).into(), &row), &[5.0, 4.0], 0.0);
    assert_close(&call(MaxPool1d::new(2).stride(PerAxis::from(1)).into(), &row), &[5.0, 5.0, 4.0, 4.0], 0.0);
    assert_close(&call(MaxPool1d::new(2).ceil(true).into(), &row), &[5.0, 4.0, 3.0], 0.0);
    assert_close(&call(AvgPool1d::new(2).into(), &row), &[3.0, 3.0], 0.0);
    let padded = AvgPool1d::new(2).padding(Padding::all(1));
    assert_close(&call(padded.clone().into(), &row), &[0.5, 3.5, 3.5], 0.0);
    assert_close(&call(padded.count_include_pad(false).into(), &row), &[1.0, 3.5, 3.5], 0.0);
    assert_close(&call(AdaptiveAvgPool1d::new(2).into(), &row), &[8.0 / 3.0, 3.0], 1e-6);

    let square = tensor(&[1.0, 2.0, 3.0, 4.0, 5.0, 6.0], &[1, 1, 2, 3]);
    assert_close(&call(MaxPool2d::new([2, 1]).into(), &square), &[4.0, 5.0, 6.0], 0.0);
    assert_close(&call(AvgPool2d::new([1, 3]).into(), &square), &[2.0, 5.0], 0.0);
    assert_close(&call(AdaptiveAvgPool2d::new(1).into(), &square), &[3.5], 0.0);

    let cube = tensor(&[1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0], &[1, 1, 2, 2, 2]);
    assert_close(&call(MaxPool3d::new([1, 2, 2]).into(), &cube), &[4.0, 8.0], 0.0);
    assert_close(&call(AvgPool3d::new(2).into(), &cube), &[4.5], 0.0);
    assert_close(&call(AdaptiveAvgPool3d::new([2, 1, 1]).into(), &cube), &[2.5, 6.5], 0.0);

    assert_eq!(call(Flatten::default().into(), &cube).shape(), [1, 8]);
    assert_eq!(call(Flatten { start_axis: 0 }.into(), &cube).shape(), [8]);
}

#[test]
fn dropout_repeats_itself_for_a_seed_and_rests_in_evaluation() {
    let x = Tensor::ones(&[10_000], DType::F32);
    let make = |seed: u64| {
        let mut net = Child::of(sequential![Dropout::new(0.25, &mut Rng::seed(seed)).unwrap()]);
        assert_close(&net.call(&x).unwrap(), &[1.0; 10_000], 0.0);
        net.set_train(true);
        net
    };
    let run = |net: &Child| net.call(&x).unwrap().to_f64();
    let (a, b, other) = (make(1), make(1), make(2));
    let (first, second) = (run(&a), run(&a));
    assert_ne!(first, second);
    assert_eq!((run(&b), run(&b)), (first.clone(), second));
    assert_ne!(run(&other), first);

    // Kept elements are divided by 0.75; of 10,000 about 2,500 are dropped, give or take five deviations of 43.
    let kept = f64::from((1.0f64 / 0.75) as f32);
    assert!(first.iter().all(|&y| y == 0.0 || (y - kept).abs() < 1e-6));
    let dropped = first.iter().filter(|&&y| y == 0.0).count();
    assert!((2_283..=2_717).contains(&dropped), "{dropped}");
    assert!(Dropout::new(1.5, &mut Rng::seed(0)).unwrap_err().to_string().contains("0 to 1 is allowed"));
    assert!(Dropout::new(f64::NAN, &mut Rng::seed(0)).is_err());
}

// ---------------------------------------------------------------- recurrent cells

struct Weights {
    ih: Vec<f64>,
    hh: Vec<f64>,
    bias_ih: Vec<f64>,
    bias_hh: Vec<f64>,
}

impl Weights {
    fn of(net: &Child) -> Self {
        let get = |path| values(net, path);
        Weights { ih: get("weight_ih"), hh: get("weight_hh"), bias_ih: get("bias_ih"), bias_hh: get("bias_hh") }
    }

    /// What row `i` of the gates gets from the input and from the state.
    fn row(&self, i: usize, x: &[f64], h: &[f64]) -> (f64, f64) {
        let dot = |w: &[f64], x: &[f64]| -> f64 { (0..x.len()).map(|j| w[i * x.len() + j] * x[j]).sum() };
        (dot(&self.ih, x) + self.bias_ih[i], dot(&self.hh, h) + self.bias_hh[i])
    }
}

fn sigmoid(x: f64) -> f64 {
    1.0 / (1.0 + (-x).exp())
}

#[test]
fn recurrent_cells_follow_a_scalar_loop() {
    let (inputs, hidden, batch) = (3, 2, 4);
    let mut rng = Rng::seed(9);
    let (x, h, c) = (random(&[batch, inputs], 1), random(&[batch, hidden], 2), random(&[batch, hidden], 3));
    let rows = |t: &Tensor, len: usize| -> Vec<Vec<f64>> { t.to_f64().chunks(len).map(<[f64]>::to_vec).collect() };
    let (xs, hs, cs) = (rows(&x, inputs), rows(&h, hidden), rows(&c, hidden));
    let each = |f: &dyn Fn(usize, usize) -> f64| -> Vec<f64> {
        (0..batch).flat_map(|n| (0..hidden).map(move |k| (n, k))).map(|(n, k)| f(n, k)).collect()
    };

    let rnn = Child::new(RNNCell::new(inputs, hidden, &mut rng));
    let w = Weights::of(&rnn.clone().erase());
    let expected = each(&|n, k| {
        let (i, h) = w.row(k, &xs[n], &hs[n]);
        (i + h).tanh()
    });
    assert_close(&rnn.step(&x, &h).unwrap(), &expected, 1e-6);

    let gru = Child::new(GRUCell::new(inputs, hidden, &mut rng));
    let w = Weights::of(&gru.clone().erase());
    let expected = each(&|n, k| {
        let gate = |g: usize| w.row(g * hidden + k, &xs[n], &hs[n]);
        let (r, z) = (sigmoid(gate(0).0 + gate(0).1), sigmoid(gate(1).0 + gate(1).1));
        let new = (gate(2).0 + r * gate(2).1).tanh();
        (1.0 - z) * new + z * hs[n][k]
    });
    assert_close(&gru.step(&x, &h).unwrap(), &expected, 1e-6);

    let lstm = Child::new(LSTMCell::new(inputs, hidden, &mut rng));
    let w = Weights::of(&lstm.clone().erase());
    let next = |n: usize, k: usize| {
        let gate = |g: usize| {
            let (i, h) = w.row(g * hidden + k, &xs[n], &hs[n]);
            i + h
        };
        let c = sigmoid(gate(1)) * cs[n][k] + sigmoid(gate(0)) * gate(2).tanh();
        (sigmoid(gate(3)) * c.tanh(), c)
    };
    let (h1, c1) = lstm.step(&x, (&h, &c)).unwrap();
    assert_close(&h1, &each(&|n, k| next(n, k).0), 1e-6);
    assert_close(&c1, &each(&|n, k| next(n, k).1), 1e-6);

    // Behind `dyn Cell`, and one sample without a batch.
    let many = lstm.erase().call_many(&[x.clone(), h.clone(), c]).unwrap();
    assert_eq!((many[0].to_f64(), many[1].to_f64()), (h1.to_f64(), c1.to_f64()));
    let many = gru.clone().erase().call_many(&[x.clone(), h.clone()]).unwrap();
    assert_close(&many[0], &expected, 1e-6);
    let one = gru.step(&tensor(&xs[0], &[inputs]), &tensor(&hs[0], &[hidden])).unwrap();
    assert_close(&one, &expected[..hidden], 1e-6);
}

/// MindSpore 2.10 on its CPU, network `rnn_cells`: RNNCell, GRUCell and LSTMCell one after the other.
#[test]
fn recurrent_cells_give_mindspores_numbers() {
    let Some(file) = golden("mindspore/golden.json") else { return };
    let net = &file["nets"]["rnn_cells"];
    let Some(params) = net["params"].as_object() else { return };
    let read = |json: &serde_json::Value| {
        let shape: Vec<usize> = serde_json::from_value(json["shape"].clone()).unwrap();
        let data: Vec<f64> = serde_json::from_value(json["data"].clone()).unwrap();
        tensor(&data, &shape)
    };
    let mut rng = Rng::seed(0);
    let rnn = Child::new(RNNCell::new(3, 4, &mut rng));
    let gru = Child::new(GRUCell::new(4, 4, &mut rng));
    let lstm = Child::new(LSTMCell::new(4, 4, &mut rng));
    let fc = Child::new(Dense::new(4, 2, &mut rng));
    let all = [
        ("rnn", rnn.named_params()),
        ("gru", gru.named_params()),
        ("lstm", lstm.named_params()),
        ("fc", fc.named_params()),
    ];
    for (cell, named) in all {
        for (path, param) in named {
            param.set(&read(&params[&format!("{cell}.{path}")])).unwrap();
        }
    }
    let (x, h) = (read(&net["inputs"][0]), read(&net["inputs"][1]));
    let a = rnn.step(&x, &h).unwrap();
    let b = gru.step(&a, &h).unwrap();
    let (hy, cy) = lstm.step(&b, (&h, &h)).unwrap();
    let out = &net["cases"]["O0/f16"]["pynative"]["out"];
    assert_close(&fc.call(&hy).unwrap(), &read(&out[0]).to_f64(), 5e-7);
    assert_close(&cy, &read(&out[1]).to_f64(), 5e-7);
}

#[test]
fn a_step_does_not_slip_past_the_adapter() {
    let mut lstm = Child::new(LSTMCell::new(2, 2, &mut Rng::seed(0))).to_float(DType::F16).unwrap();
    let (x, h) = (random(&[1, 2], 1), random(&[1, 2], 2));
    let (result, trace) = lstm.trace(|lstm| lstm.step(&x, (&h, &h)).unwrap());
    assert_eq!((result.0.dtype(), result.1.dtype()), (DType::F16, DType::F16));
    let mut others = trace.ops.iter().filter(|op| op.op != precast::Op::Cast);
    assert!(others.all(|op| op.output == DType::F16 && op.inputs.iter().all(|&d| d == DType::F16)));
    lstm.set_to_float(None).unwrap();
    assert_eq!(lstm.step(&x, (&h, &h)).unwrap().0.dtype(), DType::F32);
}

#[test]
fn wrong_inputs_of_recurrent_cells_are_named() {
    let gru = Child::new(GRUCell::new(3, 2, &mut Rng::seed(0)));
    let (x, h) = (random(&[4, 3], 1), random(&[4, 2], 2));
    // A state of batch 1 would broadcast, and be wrong in silence.
    let error = gru.step(&x, &random(&[1, 2], 2)).unwrap_err().to_string();
    assert!(error.contains("an input of shape [4, 3] goes with a state of shape [4, 2], got [1, 2]"), "{error}");
    let error = gru.step(&random(&[4, 5], 1), &h).unwrap_err().to_string();
    assert!(error.contains("[4, 5]") && error.contains("[6, 3]"), "{error}");
    let gru = gru.erase();
    assert!(gru.call(&x).unwrap_err().to_string().contains("a GRUCell has several inputs"));
    assert!(
        gru.call_many(&[x.clone(), h.clone(), h]).unwrap_err().to_string().contains("takes x and h, got 3 tensors")
    );
    let dense = Child::of(Dense::new(3, 2, &mut Rng::seed(0)));
    assert_eq!(dense.call_many(std::slice::from_ref(&x)).unwrap()[0].to_f64(), dense.call(&x).unwrap().to_f64());
    assert!(dense.call_many(&[x.clone(), x]).unwrap_err().to_string().contains("a Dense has 1 input, got 2"));
}

// ---------------------------------------------------------------- attention

/// Each head with the rows of the projections that are its own, one sample at a time.
#[test]
fn attention_follows_its_formula() {
    let (features, heads, l, s) = (6, 3, 4, 5);
    for causal in [false, true] {
        let spec = MultiheadAttentionSpec::new(features, heads).causal(causal);
        let attention = Child::new(spec.build(&mut Rng::seed(3)).unwrap());
        let net = attention.clone().erase();
        let [q, k, v] = [(l, 1), (s, 2), (s, 3)].map(|(len, seed)| random(&[2, len, features], seed));
        let project = |name: &str, x: &[f64]| -> Vec<f64> {
            let (w, b) = (values(&net, &format!("{name}.weight")), values(&net, &format!("{name}.bias")));
            let row = |x: &[f64], o: usize| (0..features).map(|i| w[o * features + i] * x[i]).sum::<f64>() + b[o];
            x.chunks(features).flat_map(|x| (0..features).map(|o| row(x, o)).collect::<Vec<_>>()).collect()
        };
        let seen: Vec<bool> = (0..l * s).map(|i| i % 7 != 2 || i % s == 0).collect();
        let mask = Tensor::from_vec(seen.clone(), &[l, s]).unwrap();
        let mut expected = vec![];
        for n in 0..2 {
            let of = |x: &Tensor, len: usize| x.to_f64()[n * len * features..(n + 1) * len * features].to_vec();
            let q = project("q_proj", &of(&q, l));
            let (k, v) = (project("k_proj", &of(&k, s)), project("v_proj", &of(&v, s)));
            let part = features / heads;
            let found: Vec<f64> = (0..l * features)
                .map(|at| {
                    let (i, feature) = (at / features, at % features);
                    let own = feature / part * part..(feature / part + 1) * part;
                    let score = |j: usize| own.clone().map(|c| q[i * features + c] * k[j * features + c]).sum::<f64>();
                    let keys = (0..s).filter(|j| seen[i * s + j] && (!causal || *j <= i));
                    let weights: Vec<_> = keys.map(|j| (j, (score(j) / (part as f64).sqrt()).exp())).collect();
                    let total: f64 = weights.iter().map(|w| w.1).sum();
                    weights.iter().map(|&(j, w)| w / total * v[j * features + feature]).sum()
                })
                .collect();
            expected.extend(project("out_proj", &found));
        }
        let y = attention.attend(&q, &k, &v, Some(&mask)).unwrap();
        assert_eq!(y.shape(), [2, l, features]);
        assert_close(&y, &expected, 1e-5);
        let many = net.call_many(&[q.clone(), k, v, mask]).unwrap();
        assert_eq!(many[0].to_f64(), y.to_f64());
        assert_eq!(net.call(&q).unwrap().to_f64(), attention.attend(&q, &q, &q, None).unwrap().to_f64());
    }
}

#[test]
fn attention_names_what_it_refuses() {
    let rng = &mut Rng::seed(0);
    let message = MultiheadAttention::new(6, 4, rng).unwrap_err().to_string();
    assert!(message.contains("4 heads do not divide 6 features"), "{message}");
    assert!(MultiheadAttention::new(6, 0, rng).is_err());
    let net = Child::of(MultiheadAttention::new(6, 2, rng).unwrap());
    let x = random(&[2, 3, 6], 1);
    let refused = |inputs: &[Tensor], words: &str| {
        let message = net.call_many(inputs).unwrap_err().to_string();
        assert!(message.contains(words), "{message}");
    };
    refused(&[x.clone(), x.clone()], "takes one tensor, or queries, keys, values and perhaps a mask, got 2 tensors");
    refused(&[random(&[6], 1)], "attention takes [..., length, 6], got [6]");
    refused(&[x.clone(), random(&[2, 3, 5], 1), x.clone()], "got [2, 3, 5]");
    refused(
        &[x.clone(), x.clone(), x, random(&[4, 3], 1)],
        "the mask [4, 3] does not stretch to the scores [2, 2, 3, 3]",
    );
    assert_eq!(net.call(&Tensor::zeros(&[0, 3, 6], DType::F32)).unwrap().shape(), [0, 3, 6]);
}

// ---------------------------------------------------------------- what all cells have in common

/// `sum(y * r)` for fixed random r, and its gradients.
fn loss(net: &Child, inputs: &[Tensor]) -> (f64, Grads) {
    let y = net.call_many(inputs).unwrap().remove(0);
    let r = random(y.shape(), 99);
    let value = y.to_f64().iter().zip(r.to_f64()).map(|(y, r)| y * r).sum();
    (value, y.backward_from(&r).unwrap())
}

/// Every parameter's gradient, against the slope of the loss along it.
#[test]
fn every_parameter_gets_its_gradient() {
    let mut rng = Rng::seed(4);
    let ids = Tensor::from_vec(vec![1i64, 0, 1], &[3]).unwrap();
    let nets: Vec<(Child, Vec<Tensor>)> = vec![
        (Dense::new(3, 2, &mut rng).into(), vec![random(&[4, 3], 1)]),
        (Conv1d::new(2, 2, 3, &mut rng).into(), vec![random(&[2, 2, 6], 2)]),
        (Conv2d::new(1, 2, 2, &mut rng).into(), vec![random(&[2, 1, 4, 3], 3)]),
        (Conv3d::new(1, 2, 2, &mut rng).into(), vec![random(&[1, 1, 3, 3, 2], 4)]),
        (Conv1dTranspose::new(2, 1, 2, &mut rng).into(), vec![random(&[2, 2, 4], 5)]),
        (Conv2dTranspose::new(1, 2, 2, &mut rng).into(), vec![random(&[1, 1, 3, 2], 6)]),
        (Conv3dTranspose::new(1, 1, 2, &mut rng).into(), vec![random(&[1, 1, 2, 2, 2], 7)]),
        (RNNCell::new(3, 2, &mut rng).into(), vec![random(&[4, 3], 8), random(&[4, 2], 9)]),
        (GRUCell::new(3, 2, &mut rng).into(), vec![random(&[4, 3], 8), random(&[4, 2], 9)]),
        (LSTMCell::new(3, 2, &mut rng).into(), vec![random(&[4, 3], 8), random(&[4, 2], 9), random(&[4, 2], 10)]),
        // A bias of the keys moves all scores of a query alike: without one.
        (
            MultiheadAttentionSpec::new(4, 2).bias(false).build(&mut rng).unwrap().into(),
            vec![random(&[2, 3, 4], 8), random(&[2, 5, 4], 9), random(&[2, 5, 4], 10)],
        ),
        (BatchNorm1d::new(3).into(), vec![random(&[4, 3], 11)]),
        (LayerNorm::new(&[3]).into(), vec![random(&[4, 3], 12)]),
        (GroupNorm::new(2, 4).unwrap().into(), vec![random(&[2, 4, 3], 13)]),
        (InstanceNorm1d::new(3).into(), vec![random(&[2, 3, 4], 14)]),
        (RmsNorm::new(3).into(), vec![random(&[4, 3], 15)]),
        (Embedding::new(2, 3, &mut rng).into(), vec![ids]),
        (PReLU::new(3).into(), vec![random(&[4, 3], 16)]),
    ];
    for (mut net, inputs) in nets {
        net.set_train(true);
        let kind = net.slot().cell.kind();
        let grads = loss(&net, &inputs).1;
        for (path, param) in net.params().iter() {
            let grad = grads.get(param).unwrap_or_else(|| panic!("{kind} {path}: no gradient"));
            assert_eq!(grad.shape(), param.shape());
            // Along r the slope is <gradient, r>; the loss is near linear in a step of 1/64, which f32 keeps exactly.
            let (old, direction) = (param.value(), random(&param.shape(), 77));
            let slope: f64 = grad.to_f64().iter().zip(direction.to_f64()).map(|(g, d)| g * d).sum();
            let moved = |step: f64| {
                let there: Vec<f64> = old.to_f64().iter().zip(direction.to_f64()).map(|(x, d)| x + step * d).collect();
                param.set(&tensor(&there, old.shape())).unwrap();
                loss(&net, &inputs).0
            };
            let numeric = (moved(1.0 / 64.0) - moved(-1.0 / 64.0)) * 32.0;
            param.set(&old).unwrap();
            assert!(slope.abs() > 1e-3, "{kind} {path}: the gradient vanishes");
            assert!((slope - numeric).abs() < 2e-3 * slope.abs().max(1.0), "{kind} {path}: {slope} against {numeric}");
        }
    }
}

#[test]
fn initial_weights_lie_within_their_bounds() {
    let mut rng = Rng::seed(2);
    let bounded = |net: Child, path: &str, bound: f64| {
        let largest = values(&net, path).iter().fold(0.0, |m: f64, w| m.max(w.abs()));
        assert!(largest <= bound && largest > 0.9 * bound, "{path}: {largest} against {bound}");
    };
    bounded(Dense::new(25, 40, &mut rng).into(), "weight", 0.2);
    bounded(Dense::new(25, 40, &mut rng).into(), "bias", 0.2);
    // fan-in 8 / 2 * 5 * 5 = 100
    let spec = Conv2dSpec::new(8, 8, 5).groups(2usize);
    bounded(spec.clone().build(&mut rng).unwrap().into(), "weight", 0.1);
    // fan-in of a transpose as torch counts it: out_channels / groups * kernel = 4 * 4
    bounded(Conv1dTranspose::new(16, 4, 4, &mut rng).into(), "weight", 0.25);
    bounded(LSTMCell::new(3, 16, &mut rng).into(), "weight_ih", 0.25);
    bounded(LSTMCell::new(3, 16, &mut rng).into(), "bias_hh", 0.25);
}

#[test]
fn options_that_do_not_go_together_are_refused() {
    let mut rng = Rng::seed(0);
    let rng = &mut rng;
    let messages = [
        (
            Conv2dSpec::new(3, 4, 3).groups(2usize).build(rng).unwrap_err(),
            "2 groups do not divide 3 input and 4 output channels",
        ),
        (
            Conv2dSpec::new(2, 4, 3).groups(0usize).build(rng).unwrap_err(),
            "0 groups do not divide 2 input and 4 output channels",
        ),
        (Conv1dSpec::new(2, 4, 0).build(rng).unwrap_err(), "kernel_size [0]: at least 1 is needed on each axis"),
        (
            Conv2dTransposeSpec::new(2, 4, 1).stride([1, 0]).build(rng).unwrap_err(),
            "stride [1, 0]: at least 1 is needed on each axis",
        ),
        (GroupNorm::new(3, 4).unwrap_err(), "3 groups do not divide 4 channels"),
        (LayerNormSpec::new(&[]).build(rng).unwrap_err(), "normalized_shape has no axis; at least 1 is needed"),
        (
            LayerNormSpec::new(&[2]).eps(-1.0).build(rng).unwrap_err(),
            "eps -1: a finite number of at least 0 is allowed",
        ),
        (
            RmsNormSpec::new(2).eps(f64::NAN).build(rng).unwrap_err(),
            "eps NaN: a finite number of at least 0 is allowed",
        ),
        (BatchNorm1dSpec::new(2).momentum(1.5).build(rng).unwrap_err(), "momentum 1.5: 0 to 1 is allowed"),
        (
            DenseSpec::new(usize::MAX, 2).build(rng).unwrap_err(),
            "a parameter of shape [2, 18446744073709551615] does not fit into memory",
        ),
    ];
    for (error, message) in messages {
        assert_eq!(error.to_string(), message);
    }
    // What `new` cannot refuse is refused when it runs.
    let net = Child::of(Conv1d::new(1, 1, 0, rng));
    assert!(net.call(&random(&[1, 1, 3], 0)).is_err());
}

#[test]
fn rows_of_cells_name_their_places_and_share_clones() {
    let mut rng = Rng::seed(0);
    let shared = Child::new(Dense::new(2, 2, &mut rng));
    let mut seq = sequential![shared.clone(), Tanh, shared];
    seq.push(Dense::new(2, 1, &mut rng));
    assert_eq!((seq.len(), seq.is_empty(), seq.iter().count()), (4, false, 4));
    let net = Child::of(sequential![seq]);
    let paths: Vec<String> = net.named_params().into_iter().map(|(path, _)| path).collect();
    assert_eq!(paths, ["0.0.weight", "0.0.bias", "0.2.weight", "0.2.bias", "0.3.weight", "0.3.bias"]);
    assert_eq!(net.params().len(), 4);
    let error = net.call(&Tensor::ones(&[1, 3], DType::F32)).unwrap_err();
    assert_eq!(error.cell(), Some("0.0"));

    let list = Child::of(CellList::new(vec![ReLU.into()]));
    assert!(list.call(&Tensor::ones(&[1], DType::F32)).unwrap_err().to_string().contains("no forward of its own"));
    assert!(list.call_many(&[]).unwrap_err().to_string().contains("no forward of its own"));
    assert_eq!(Child::of(Sequential::default()).call(&Tensor::ones(&[1], DType::F32)).unwrap().to_f64(), [1.0]);
}
