//! Normalization by sample and by batch.

use precast::{
    cell::{Adapter, Cast},
    prelude::*,
};

use super::{assert_close, indices, param, random, tensor, values};

/// Normalizes the elements of each group to mean 0 and variance 1, then multiplies by `weight[c]` and adds `bias[c]`.
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

/// Sets weight and bias to values that differ between channels.
fn spread_affine(net: &Child) -> (Vec<f64>, Vec<f64>) {
    let shape = param(net, "weight").shape();
    param(net, "weight").set(&random(&shape, 11)).unwrap();
    param(net, "bias").set(&random(&shape, 12)).unwrap();
    (values(net, "weight"), values(net, "bias"))
}

#[test]
fn norms_by_the_sample_follow_their_definition() {
    let x = random(&[2, 4, 3, 2], 1);

    let net = Child::of(LayerNormSpec::new([3, 2]).eps(1e-3).build().unwrap());
    let (w, b) = spread_affine(&net);
    let expected = normalised(&x, 1e-3, |i| i[..2].to_vec(), |i| (w[2 * i[2] + i[3]], b[2 * i[2] + i[3]]));
    assert_close(&net.call(&x).unwrap(), &expected, 1e-5);

    let net = Child::of(GroupNorm::new(2, 4));
    let (w, b) = spread_affine(&net);
    let expected = normalised(&x, 1e-5, |i| vec![i[0], i[1] / 2], |i| (w[i[1]], b[i[1]]));
    assert_close(&net.call(&x).unwrap(), &expected, 1e-5);

    let net = Child::of(InstanceNorm2d::new(4));
    let (w, b) = spread_affine(&net);
    let expected = normalised(&x, 1e-5, |i| i[..2].to_vec(), |i| (w[i[1]], b[i[1]]));
    assert_close(&net.call(&x).unwrap(), &expected, 1e-5);
    let error = net.call(&random(&[2, 4, 3], 1)).unwrap_err().to_string();
    assert!(error.contains("takes [batch, 4, ...] with 2 spatial axes, got [2, 4, 3]"), "{error}");

    let net = Child::of(RmsNormSpec::new(2).eps(0.5).build().unwrap());
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
fn batch_norm_uses_the_batch_or_the_running_statistics() {
    let mut net = Child::of(BatchNorm2dSpec::new(3).momentum(0.25).build().unwrap());
    let (w, b) = spread_affine(&net);
    let x = random(&[2, 3, 2, 2], 1);

    // Evaluation: mean 0 and variance 1 initially.
    let scale = 1.0 / (1.0f64 + 1e-5).sqrt();
    let channel = |i: usize| i / 4 % 3;
    let expected: Vec<f64> =
        x.to_f64().iter().enumerate().map(|(i, x)| x * scale * w[channel(i)] + b[channel(i)]).collect();
    assert_close(&net.call(&x).unwrap(), &expected, 1e-6);
    assert_eq!(values(&net, "running_mean"), [0.0; 3]);

    net.set_train(true);
    let expected = normalised(&x, 1e-5, |i| vec![i[1]], |i| (w[i[1]], b[i[1]]));
    assert_close(&net.call(&x).unwrap(), &expected, 1e-5);
    // A quarter of the batch's mean and unbiased variance (8 values per channel), three quarters of 0 and 1.
    let data = x.to_f64();
    let of_channel = |c: usize| -> Vec<f64> { (0..24).filter(|&i| channel(i) == c).map(|i| data[i]).collect() };
    let mean: Vec<f64> = (0..3).map(|c| of_channel(c).iter().sum::<f64>() / 8.0).collect();
    let var = |c: usize| of_channel(c).iter().map(|x| (x - mean[c]).powi(2)).sum::<f64>() / 7.0;
    assert_close(&param(&net, "running_mean").value(), &mean.iter().map(|m| m / 4.0).collect::<Vec<_>>(), 1e-6);
    assert_close(&param(&net, "running_var").value(), &(0..3).map(|c| 0.75 + var(c) / 4.0).collect::<Vec<_>>(), 1e-6);

    // Back in evaluation, the buffers do not change.
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
            slot.set_adapter(Some(Adapter::Cast(Cast { inward: DType::F16, outward: DType::F32 }))).unwrap();
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
        (
            &[1, 2][..],
            "a BatchNorm1d in training needs at least 2 values for each channel, got [1, 2]; allowed: a larger batch, or evaluation",
        ),
        (
            &[0, 2],
            "a BatchNorm1d in training needs at least 2 values for each channel, got [0, 2]; allowed: a larger batch, or evaluation",
        ),
        (&[3, 4], "takes [batch, 2, ...] with at most 1 spatial axis, got [3, 4]"),
        (&[3], "takes [batch, 2, ...] with at most 1 spatial axis, got [3]"),
        (&[1, 2, 2, 2], "takes [batch, 2, ...] with at most 1 spatial axis, got [1, 2, 2, 2]"),
    ] {
        let error = net.call(&Tensor::zeros(shape, DType::F32)).unwrap_err().to_string();
        assert_eq!(error, format!("in cell `0`: {message}"));
    }
    assert_eq!(values(&net, "0.running_mean"), [0.0; 2]);
}
