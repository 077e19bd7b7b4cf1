//! Values of the layer ops: compared with loops written from the definitions, with recorded values, and at the edges.

use crate::common::f32_runs::f32_runs;
use crate::common::golden::left_out;
use crate::layer_ops::random::{Random, bits};
use precast::{ConvOptions, ConvTransposeOptions, DType, Padding, PoolOptions, Result, Tensor};

/// Asserts equality up to a tolerance relative to the expected number, or absolute below 1.
pub fn assert_near(name: &str, got: &[f64], want: &[f64], tolerance: f64) {
    assert_eq!(got.len(), want.len(), "{name}");
    for (i, (got, want)) in got.iter().zip(want).enumerate() {
        assert!((got - want).abs() <= tolerance * want.abs().max(1.0), "{name}[{i}]: {got}, expected {want}");
    }
}

/// Iterates over the row-major positions of a shape.
pub fn places(shape: &[usize]) -> impl Iterator<Item = Vec<usize>> + '_ {
    (0..shape.iter().product()).map(|mut i| {
        let mut place = vec![0; shape.len()];
        for (axis, len) in shape.iter().enumerate().rev() {
            place[axis] = i % len;
            i /= len;
        }
        place
    })
}

/// Returns the element at a position, or `None` outside.
fn at(x: &[f64], shape: &[usize], place: &[isize]) -> Option<f64> {
    let inside = shape.iter().zip(place).all(|(&len, &i)| i >= 0 && (i as usize) < len);
    inside.then(|| x[place.iter().zip(shape).fold(0, |offset, (&i, len)| offset * len + i as usize)])
}

/// Computes a convolution by its definition:
/// `y[n, o, p] = sum over c, k of x[n, c, p * stride + k * dilation - before] * w[o, c, k]`.
fn conv_by_definition(x: &Tensor, w: &Tensor, options: &ConvOptions, before: &[usize], output: &[usize]) -> Vec<f64> {
    let (xs, ws) = (x.to_f64(), w.to_f64());
    let (n, outs, ins) = (x.shape()[0], w.shape()[0], w.shape()[1]);
    let kernel = &w.shape()[2..];
    let out_shape = [&[n, outs], output].concat();
    places(&out_shape)
        .map(|p| {
            let group = p[1] / (outs / options.groups);
            let mut sum = 0.0;
            for c in 0..ins {
                for k in places(kernel) {
                    let mut place = vec![p[0] as isize, (group * ins + c) as isize];
                    for i in 0..kernel.len() {
                        let tap = p[2 + i] * options.stride[i] + k[i] * options.dilation[i];
                        place.push(tap as isize - before[i] as isize);
                    }
                    let weight: Vec<isize> = [p[1], c].into_iter().chain(k).map(|i| i as isize).collect();
                    sum += at(&xs, x.shape(), &place).unwrap_or(0.0) * at(&ws, w.shape(), &weight).unwrap();
                }
            }
            sum
        })
        .collect()
}

fn conv(axes: usize, x: &Tensor, w: &Tensor, options: &ConvOptions) -> Result<Tensor> {
    match axes {
        1 => x.conv1d(w, None, options),
        2 => x.conv2d(w, None, options),
        _ => x.conv3d(w, None, options),
    }
}

#[test]
fn convolutions_follow_the_definition() {
    for seed in 0..60 {
        let r = Random::new(seed);
        let axes = r.size(1, 3);
        let groups = r.size(1, 3);
        let (ins, outs) = (groups * r.size(1, 2), groups * r.size(1, 2));
        let (kernel, pads) = (r.sizes(axes, 1, 3), r.sizes(2 * axes, 0, 2));
        let pairs: Vec<(usize, usize)> = pads.chunks(2).map(|p| (p[0], p[1])).collect();
        let options = ConvOptions::default()
            .stride(r.sizes(axes, 1, 3))
            .padding(Padding::Explicit(pairs.clone()))
            .dilation(r.sizes(axes, 1, 2))
            .groups(groups);
        let reach: Vec<usize> = (0..axes).map(|i| options.dilation[i] * (kernel[i] - 1) + 1).collect();
        let input: Vec<usize> = reach.iter().map(|reach| reach + r.size(0, 3)).collect();
        let x = r.tensor(&[&[r.size(0, 2), ins], &input[..]].concat());
        let w = r.tensor(&[&[outs, ins / groups], &kernel[..]].concat());
        let output: Vec<usize> =
            (0..axes).map(|i| (input[i] + pairs[i].0 + pairs[i].1 - reach[i]) / options.stride[i] + 1).collect();
        let before: Vec<usize> = pairs.iter().map(|p| p.0).collect();
        let want = conv_by_definition(&x, &w, &options, &before, &output);
        let y = conv(axes, &x, &w, &options).unwrap();
        assert_eq!(y.shape()[2..], output);
        assert_near(&format!("{options:?}"), &y.to_f64(), &want, 1e-12);

        // `Same`: the length is ceil(input / stride), and an odd element of padding goes to the end.
        let same = options.padding(Padding::Same);
        let output: Vec<usize> = (0..axes).map(|i| input[i].div_ceil(same.stride[i])).collect();
        let total = |i: usize| ((output[i] - 1) * same.stride[i] + reach[i]).saturating_sub(input[i]);
        let before: Vec<usize> = (0..axes).map(|i| total(i) / 2).collect();
        let want = conv_by_definition(&x, &w, &same, &before, &output);
        assert_near(&format!("{same:?}"), &conv(axes, &x, &w, &same).unwrap().to_f64(), &want, 1e-12);
    }
}

#[test]
fn transposed_convolution_is_the_adjoint() {
    let mut adjoint = 0;
    for seed in 0..80 {
        let r = Random::new(seed);
        let axes = r.size(1, 3);
        let groups = r.size(1, 2);
        let (ins, outs) = (groups * r.size(1, 2), groups * r.size(1, 2));
        let kernel = r.sizes(axes, 1, 3);
        let padding = [Padding::Valid, Padding::Same, Padding::all(1)][r.size(0, 2)].clone();
        let (stride, dilation) = (r.sizes(axes, 1, 3), r.sizes(axes, 1, 2));
        let y = r.tensor(&[vec![2, ins], r.sizes(axes, 2, 4)].concat());
        let w = r.tensor(&[vec![ins, outs / groups], kernel.clone()].concat());
        let options = ConvTransposeOptions::default()
            .stride(stride.clone())
            .padding(padding.clone())
            .dilation(dilation.clone())
            .groups(groups);
        let transposed = match axes {
            1 => y.conv_transpose1d(&w, None, &options),
            2 => y.conv_transpose2d(&w, None, &options),
            _ => y.conv_transpose3d(&w, None, &options),
        };
        let Ok(transposed) = transposed else { continue };
        for i in 0..axes {
            let (len, reach) = (y.shape()[2 + i], dilation[i] * (kernel[i] - 1) + 1);
            let full = (len - 1) * stride[i] + reach;
            let want = match padding {
                Padding::Valid => full.max(len * stride[i]),
                Padding::Same => len * stride[i],
                _ => full - 2,
            };
            assert_eq!(transposed.shape()[2 + i], want);
        }
        // <conv(x), y> = <x, convT(y)> for every x of the transposed result's shape.
        let x = r.tensor(transposed.shape());
        let forward = conv(
            axes,
            &x,
            &w,
            &ConvOptions::default().stride(stride).padding(padding).dilation(dilation).groups(groups),
        )
        .unwrap();
        assert_eq!(forward.shape(), y.shape(), "{options:?}");
        let dot = |a: &Tensor, b: &Tensor| a.to_f64().iter().zip(b.to_f64()).map(|(a, b)| a * b).sum::<f64>();
        assert_near(&format!("{options:?}"), &[dot(&forward, &y)], &[dot(&x, &transposed)], 1e-12);
        adjoint += 1;
    }
    assert!(adjoint >= 40, "only {adjoint} cases were legal");
}

#[test]
fn pools_follow_the_definition() {
    for seed in 0..60 {
        let r = Random::new(seed);
        let (axes, ceil, include) = (r.size(1, 3), r.flag(), r.flag());
        let kernel = r.sizes(axes, 1, 3);
        let pairs: Vec<(usize, usize)> = kernel.iter().map(|k| (r.size(0, k - 1), r.size(0, k - 1))).collect();
        let stride = r.sizes(axes, 1, 4);
        let input: Vec<usize> = kernel.iter().map(|k| k + r.size(0, 4)).collect();
        let options = PoolOptions::default()
            .kernel(kernel.clone())
            .stride(stride.clone())
            .padding(Padding::Explicit(pairs.clone()))
            .ceil(ceil)
            .count_include_pad(include);
        let x = r.tensor(&[&[r.size(0, 2), 2], &input[..]].concat());
        let output: Vec<usize> = (0..axes)
            .map(|i| {
                let (before, after) = pairs[i];
                let padded = input[i] + before + after;
                let starts = (0..padded).step_by(stride[i]);
                let whole = starts.clone().filter(|start| start + kernel[i] <= padded).count();
                // With `ceil`, the elements not reached by a whole window get one, unless all of it is padding.
                let reached = (whole - 1) * stride[i] + kernel[i] == padded;
                whole + usize::from(ceil && !reached && whole * stride[i] < input[i] + before)
            })
            .collect();
        let xs = x.to_f64();
        let (mut largest, mut means) = (vec![], vec![]);
        for p in places(&[&x.shape()[..2], &output[..]].concat()) {
            let (mut values, mut padded) = (vec![], 0);
            for k in places(&kernel) {
                let mut place = vec![p[0] as isize, p[1] as isize];
                place.extend((0..axes).map(|i| (p[2 + i] * stride[i] + k[i]) as isize - pairs[i].0 as isize));
                let in_padding = (0..axes).all(|i| place[2 + i] < (input[i] + pairs[i].1) as isize);
                padded += usize::from(in_padding);
                values.extend(at(&xs, x.shape(), &place));
            }
            largest.push(values.iter().copied().fold(f64::NEG_INFINITY, f64::max));
            means.push(values.iter().sum::<f64>() / if include { padded } else { values.len() } as f64);
        }
        let (max, average) = match axes {
            1 => (x.max_pool1d_with(&options), x.avg_pool1d_with(&options)),
            2 => (x.max_pool2d_with(&options), x.avg_pool2d_with(&options)),
            _ => (x.max_pool3d_with(&options), x.avg_pool3d_with(&options)),
        };
        let (max, average) = (max.unwrap(), average.unwrap());
        assert_eq!((&max.shape()[2..], &average.shape()[2..]), (&output[..], &output[..]), "{options:?}");
        assert_near(&format!("max {options:?}"), &max.to_f64(), &largest, 0.0);
        assert_near(&format!("average {options:?}"), &average.to_f64(), &means, 1e-14);
    }
}

#[test]
fn adaptive_pool_of_uneven_windows() {
    // 5 elements in 3 windows: [0, 2), [1, 4), [3, 5).
    let x = Tensor::from_vec(vec![1.0, 2.0, 4.0, 8.0, 16.0], &[1, 1, 5]).unwrap();
    let want = [3.0 / 2.0, 14.0 / 3.0, 12.0];
    assert_near("adaptive", &x.adaptive_avg_pool1d(&[3]).unwrap().to_f64(), &want, 1e-15);
    let x = Random::new(1).tensor(&[2, 3, 4, 5]);
    let mean: Vec<f64> = x.to_f64().chunks(20).map(|plane| plane.iter().sum::<f64>() / 20.0).collect();
    assert_near("global", &x.adaptive_avg_pool2d(&[1]).unwrap().to_f64(), &mean, 1e-14);
}

#[test]
fn the_largest_is_nan_where_one_is() {
    let x = Tensor::from_vec(vec![1f32, f32::NAN, 2., f32::NEG_INFINITY, f32::NEG_INFINITY, 3.], &[1, 1, 6]).unwrap();
    for dtype in [DType::F32, DType::F16, DType::Bf16] {
        let y = x.cast(dtype).max_pool1d(2, 2).unwrap().to_f64();
        assert!(y[0].is_nan() && y[1] == 2.0 && y[2] == 3.0, "{y:?}");
    }
    let x = Tensor::from_vec(vec![f32::NEG_INFINITY; 4], &[1, 1, 4]).unwrap().requires_grad();
    let y = x.max_pool1d(4, 4).unwrap();
    assert_eq!(y.to_f64(), [f64::NEG_INFINITY]);
    let grads = y.backward_from(&Tensor::ones(&[1, 1, 1], DType::F32)).unwrap();
    assert_eq!(grads.of(&x).unwrap().to_f64(), [1.0, 0.0, 0.0, 0.0]);
}

#[test]
fn a_pool_keeps_one_byte_for_each_output() {
    let x = Random::new(2).tensor(&[2, 4, 16, 16]).cast(DType::F16).requires_grad();
    assert_eq!(x.max_pool2d(2, 2).unwrap().tape_bytes(), 2 * 4 * 8 * 8);
    assert_eq!(x.avg_pool2d(2, 2).unwrap().tape_bytes(), 0);
    // A window of more than 256 elements needs two.
    let x = Random::new(2).tensor(&[1, 8, 17, 17]).cast(DType::F16).requires_grad();
    assert_eq!(x.max_pool2d(17, 17).unwrap().tape_bytes(), 8 * 2);
}

/// Computes `(x - mean) / sqrt(var + eps) * gamma + beta` over the elements grouped by `row`.
fn norm_by_definition(
    x: &Tensor,
    eps: f64,
    row: impl Fn(&[usize]) -> Vec<usize>,
    affine: impl Fn(&[usize]) -> (f64, f64),
    centered: bool,
) -> Vec<f64> {
    let xs = x.to_f64();
    let all: Vec<Vec<usize>> = places(x.shape()).collect();
    let mean_over = |row_of: &[usize], f: &dyn Fn(f64) -> f64| {
        let of_row: Vec<f64> = all.iter().zip(&xs).filter(|(p, _)| row(p) == row_of).map(|(_, &x)| f(x)).collect();
        of_row.iter().sum::<f64>() / of_row.len() as f64
    };
    let element = |(p, &x): (&Vec<usize>, &f64)| {
        let mean = if centered { mean_over(&row(p), &|x| x) } else { 0.0 };
        let var = mean_over(&row(p), &|x| (x - mean) * (x - mean));
        let (gamma, beta) = affine(p);
        (x - mean) / (var + eps).sqrt() * gamma + beta
    };
    all.iter().zip(&xs).map(element).collect()
}

#[test]
fn norms_follow_the_definition() {
    for seed in 0..20 {
        let r = Random::new(seed);
        let (groups, per_group) = (r.size(1, 3), r.size(1, 2));
        let c = groups * per_group;
        let shape = [vec![r.size(1, 3), c], r.sizes(r.size(0, 2), 1, 3)].concat();
        let x = r.tensor(&shape);
        let (gamma, beta) = (r.tensor(&[c]), r.tensor(&[c]));
        let (gammas, betas, eps) = (gamma.to_f64(), beta.to_f64(), 1e-3);
        let (g, b) = (Some(&gamma), Some(&beta));
        let channel = |p: &[usize]| (gammas[p[1]], betas[p[1]]);
        let near = |name: &str, got: Tensor, want: Vec<f64>| assert_near(name, &got.to_f64(), &want, 1e-11);

        let (y, mean, var) = x.batch_norm_train(g, b, eps).unwrap();
        near("batch", y.clone(), norm_by_definition(&x, eps, |p| vec![p[1]], channel, true));
        near("evaluation with the batch's statistics", x.batch_norm(&mean, &var, g, b, eps).unwrap(), y.to_f64());
        let want = norm_by_definition(&x, eps, |p| vec![p[0], p[1] / per_group], channel, true);
        near("group", x.group_norm(groups, g, b, eps).unwrap(), want);
        let want = norm_by_definition(&x, eps, |p| vec![p[0], p[1]], channel, true);
        near("instance", x.instance_norm(g, b, eps).unwrap(), want);

        let last = &shape[1..];
        let (gamma, beta) = (r.tensor(last), r.tensor(last));
        let affine = |p: &[usize]| {
            let offset = p[1..].iter().zip(last).fold(0, |offset, (i, len)| offset * len + i);
            (gamma.to_f64()[offset], beta.to_f64()[offset])
        };
        let want = norm_by_definition(&x, eps, |p| vec![p[0]], affine, true);
        near("layer", x.layer_norm(last, Some(&gamma), Some(&beta), eps).unwrap(), want);

        let gamma = r.tensor(&shape[shape.len() - 1..]);
        let affine = |p: &[usize]| (gamma.to_f64()[p[p.len() - 1]], 0.0);
        let want = norm_by_definition(&x, eps, |p| p[..p.len() - 1].to_vec(), affine, false);
        near("root mean square", x.rms_norm(Some(&gamma), eps).unwrap(), want);
    }
}

#[test]
fn statistics_do_not_cancel() {
    // A one-pass variance in f32 would be 0 or worse here: the squares are near 1e8, the variance is 1.25.
    let x = Tensor::from_vec(vec![10000f32, 10001., 10002., 10003.], &[4, 1]).unwrap();
    let (_, mean, var) = x.batch_norm_train(None, None, 1e-5).unwrap();
    assert_eq!((mean.to_f64(), var.to_f64()), (vec![10001.5], vec![1.25]));
    assert_eq!((mean.dtype(), mean.is_tracked()), (DType::F32, false));
    let (y, mean, _) = x.cast(DType::F16).batch_norm_train(None, None, 1e-5).unwrap();
    assert_eq!((y.dtype(), mean.dtype()), (DType::F16, DType::F32));
}

#[test]
fn batch_norm_gives_the_recorded_bits() {
    let Some(golden) = crate::common::golden::golden("mindspore/golden.json") else { return };
    let net = &golden["nets"]["root_batchnorm"];
    let runs = f32_runs(net);
    if runs.is_empty() {
        return left_out("a call of root_batchnorm in f32");
    }
    let read = |x: &serde_json::Value| -> Tensor {
        let data: Vec<f64> = x["data"].as_array().unwrap().iter().map(|x| x.as_f64().unwrap()).collect();
        let shape: Vec<usize> = x["shape"].as_array().unwrap().iter().map(|x| x.as_u64().unwrap() as usize).collect();
        Tensor::from_f64(&data, &shape, DType::F32).unwrap()
    };
    let param = |name: &str| read(&net["params"][name]);
    let (mean, var, gamma, beta) = (param("moving_mean"), param("moving_variance"), param("gamma"), param("beta"));
    let x = read(&net["inputs"][0]);
    let y = x.batch_norm(&mean, &var, Some(&gamma), Some(&beta), 1e-5).unwrap();
    for (case, out) in runs {
        assert_eq!(bits(&y), bits(&read(out)), "{case}");
    }
}

#[test]
fn linear_is_a_product_and_a_bias_with_one_rounding() {
    let r = Random::new(3);
    let (x, w, b) = (r.tensor(&[7, 33]), r.tensor(&[5, 33]), r.tensor(&[5]));
    for low in DType::LOW {
        let [x, w, b] = [&x, &w, &b].map(|t| t.cast(low));
        let [wide_x, wide_w, wide_b] = [&x, &w, &b].map(|t| t.cast(DType::F32));
        let want = wide_x.matmul(&wide_w.t().unwrap()).unwrap().add(&wide_b).unwrap().cast(low);
        let got = x.linear(&w, Some(&b)).unwrap();
        assert_eq!(bits(&got), bits(&want));
        let twice = x.matmul(&w.t().unwrap()).unwrap().add(&b).unwrap();
        assert_ne!(bits(&got), bits(&twice), "two roundings must differ somewhere among 35 results");
    }
}

#[test]
fn sixteen_bit_products_accumulate_in_f32() {
    // 4096 ones: an f16 accumulator would stop at 2048, a bf16 one at 256.
    for low in DType::LOW {
        let (row, column) = (Tensor::ones(&[1, 4096], low), Tensor::ones(&[4096, 1], low));
        assert_eq!(row.matmul(&column).unwrap().to_f64(), [4096.0]);
        let image = Tensor::ones(&[1, 4096, 1], low);
        let y = image.conv1d(&Tensor::ones(&[1, 4096, 1], low), None, &ConvOptions::default()).unwrap();
        assert_eq!(y.to_f64(), [4096.0]);
        assert_eq!(Tensor::ones(&[1, 1, 4096], low).avg_pool1d(4096, 4096).unwrap().to_f64(), [1.0]);
        // The gradient of a row picked 4096 times.
        let table = Tensor::ones(&[1, 1], low).requires_grad();
        let picked = Tensor::zeros(&[4096], DType::I64).embedding(&table).unwrap();
        let grads = picked.backward_from(&Tensor::ones(&[4096, 1], low)).unwrap();
        assert_eq!(grads.of(&table).unwrap().to_f64(), [4096.0]);
    }
}
