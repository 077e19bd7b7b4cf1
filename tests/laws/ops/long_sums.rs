//! Sums and products of a million terms, sequentially or at indexed positions: within a millionth of the closed form,
//! for any op.

use precast::{DType, GridPadding, Interpolation, RecurrentWeights, Resize, Result, Tensor};

const N: usize = 1_000_000;

/// Returns N times the f32 nearest to a tenth.
fn tenths() -> Tensor {
    Tensor::full(&[N], 0.1, DType::F32)
}

const TENTH: f64 = 0.1f32 as f64;

#[track_caller]
fn near(name: &str, got: f64, want: f64) {
    assert!(((got - want) / want).abs() <= 1e-6, "{name}: {got}, right {want}");
}

fn at(x: &Tensor, i: usize) -> f64 {
    x.reshape(&[x.len()]).unwrap().slice(0, i..i + 1).unwrap().item().unwrap()
}

/// Returns the gradient of the sum of `f` of a leaf, with each element multiplied by a tenth.
fn gradient(leaf: &Tensor, f: impl FnOnce(&Tensor) -> Result<Tensor>) -> Tensor {
    let leaf = leaf.requires_grad();
    let y = f(&leaf).unwrap();
    let tenths = Tensor::full(y.shape(), 0.1, DType::F32);
    y.backward_from(&tenths).unwrap().of(&leaf).unwrap()
}

#[test]
fn running_sums_and_products() -> Result<()> {
    let x = tenths();
    let sums = x.cumsum(0)?;
    for i in [0, 9, 999, 99_999, N - 1] {
        near("cumsum", at(&sums, i), TENTH * (i + 1) as f64);
    }
    let backward = gradient(&x, |x| x.cumsum(0));
    for i in [0, N / 2, N - 1] {
        near("gradient of cumsum", at(&backward, i), TENTH * (N - i) as f64);
    }
    let grown = f64::from(1.000_000_1f32);
    let y = Tensor::full(&[N], grown, DType::F32);
    near("cumprod", at(&y.cumprod(0)?, N - 1), grown.powi(N as i32));
    near("prod", y.prod(&[], false)?.item()?, grown.powi(N as i32));
    for i in [0, N / 2, N - 1] {
        near("gradient of prod", at(&gradient(&y, |y| y.prod(&[], false)), i), TENTH * grown.powi(N as i32 - 1));
    }
    // The sum of a geometric sequence, and its last term.
    let backward = gradient(&y, |y| y.cumprod(0));
    near("gradient of cumprod", at(&backward, 0), TENTH * (grown.powi(N as i32) - 1.0) / (grown - 1.0));
    near("gradient of cumprod", at(&backward, N - 1), TENTH * grown.powi(N as i32 - 1));
    // Beyond the exact integers of f32.
    let many = 20_000_000;
    near("cumsum of ones", at(&Tensor::ones(&[many], DType::F32).cumsum(0)?, many - 1), many as f64);
    // Along an axis other than the last, on lanes shared by threads.
    let wide = Tensor::full(&[N, 3], 0.1, DType::F32).cumsum(0)?;
    near("cumsum of columns", at(&wide, 3 * N - 1), TENTH * N as f64);
    Ok(())
}

#[test]
fn running_products_leave_the_range_and_return() -> Result<()> {
    let x = Tensor::from_vec(vec![1e30f32, 1e30, 1e-30, 1e-30], &[4])?.requires_grad();
    let y = x.prod(&[], false)?;
    near("prod", y.item()?, 1.0);
    for (got, x) in y.backward()?.of(&x).unwrap().to_f64().into_iter().zip(x.to_f64()) {
        near("gradient of prod", got, 1.0 / x);
    }
    near("cumprod", at(&x.cumprod(0)?, 3), 1.0);
    Ok(())
}

#[test]
fn sums_by_scattering() -> Result<()> {
    let (x, index, right) = (tenths(), Tensor::zeros(&[N], DType::I64), TENTH * N as f64);
    let none = Tensor::zeros(&[2], DType::F32);
    near("index_add", at(&none.index_add(0, &index, &x)?, 0), right);
    near("scatter_add", at(&none.scatter_add(0, &index, &x)?, 0), right);
    near("index_put", at(&none.index_put(&index, &x, true)?, 0), right);
    assert_eq!(at(&none.scatter_add(0, &index, &x)?, 1), 0.0);
    // Existing values take part, and so does a position with one term next to that with many.
    let rows = Tensor::full(&[2, 2], 7.0, DType::F32);
    let mut places = vec![0i64; N / 2];
    places[N / 4] = 1;
    let sums = rows.index_add(0, &Tensor::from_vec(places, &[N / 2])?, &x.reshape(&[N / 2, 2])?)?;
    near("crowded row", at(&sums, 1), 7.0 + TENTH * (N / 2 - 1) as f64);
    assert_eq!(at(&sums, 2), f64::from(7.0 + 0.1f32));

    let table = Tensor::ones(&[2, 1], DType::F32);
    near("embedding", at(&gradient(&table, |t| index.embedding(t)), 0), right);
    let line = Tensor::ones(&[2], DType::F32);
    near("gather", at(&gradient(&line, |x| x.gather(0, &index)), 0), right);
    near("index_select", at(&gradient(&line, |x| x.index_select(0, &index)), 0), right);
    let one = Tensor::ones(&[1], DType::F32);
    near("replication_pad", at(&gradient(&one, |x| x.replication_pad(&[(0, N - 1)])), 0), right);
    near(
        "reflection_pad",
        at(&gradient(&Tensor::ones(&[N], DType::F32), |x| x.reflection_pad(&[(N - 1, N - 1)])), 0),
        2.0 * TENTH,
    );
    near(
        "pdist",
        {
            // 1415 points on a line, a million pairs; the first is below all others.
            let points = Tensor::from_vec((0..1415).map(|i| i as f32).collect(), &[1415, 1])?;
            -at(&gradient(&points, |x| x.pdist(1.0)), 0)
        },
        TENTH * 1414.0,
    );
    Ok(())
}

#[test]
fn gradients_of_sampling_and_of_pools() -> Result<()> {
    let right = TENTH * N as f64;
    let pixel = Tensor::ones(&[1, 1, 1], DType::F32);
    let (longer, picture) = (Resize::To(vec![N]), Tensor::ones(&[1, 1, 1, 1], DType::F32));
    let square = Resize::To(vec![1000]);
    near("nearest", at(&gradient(&pixel, |x| x.interpolate(&longer, Interpolation::Nearest, false)), 0), right);
    near("linear", at(&gradient(&pixel, |x| x.interpolate(&longer, Interpolation::Linear, false)), 0), right);
    for mode in [Interpolation::Nearest, Interpolation::Linear, Interpolation::Cubic] {
        near(
            &format!("{mode:?} of both axes"),
            at(&gradient(&picture, |x| x.interpolate(&square, mode, false)), 0),
            right,
        );
    }
    // The weights of the two ends sum to those of all positions.
    let ends = gradient(&Tensor::ones(&[1, 1, 2], DType::F32), |x| x.interpolate(&longer, Interpolation::Linear, true));
    near("linear between two", at(&ends, 0), right / 2.0);

    let middle = Tensor::zeros(&[1, 1, N, 2], DType::F32);
    for mode in [Interpolation::Nearest, Interpolation::Linear] {
        near(
            "grid_sample",
            at(&gradient(&picture, |x| x.grid_sample(&middle, mode, GridPadding::Border, true)), 0),
            right,
        );
    }
    // Each channel of an image that rises by 1 from left to right adds a half to the slope by x.
    let rising = Tensor::full(&[1, N, 1, 2], 0.0, DType::F32).add(&Tensor::from_vec(vec![0f32, 1.], &[2])?)?;
    let place = Tensor::zeros(&[1, 1, 1, 2], DType::F32);
    let slope = gradient(&place, |grid| rising.grid_sample(grid, Interpolation::Linear, GridPadding::Zeros, true));
    near("slope of a grid", at(&slope, 0), right / 2.0);

    let tenths = Tensor::full(&[1, 1, N], 0.1, DType::F32);
    near("avg_pool1d", tenths.avg_pool1d(N, N)?.item()?, TENTH);
    near("adaptive_avg_pool1d", tenths.adaptive_avg_pool1d(&[1])?.item()?, TENTH);
    // An element that is in as many windows as there are; the last is in all of 1000.
    let long = Tensor::ones(&[1, 1, 1999], DType::F32);
    near("gradient of avg_pool1d", at(&gradient(&long, |x| x.avg_pool1d(1000, 1)), 999), TENTH);
    let peak = Tensor::from_vec((0..1999).map(|i| if i == 999 { 1f32 } else { 0.0 }).collect(), &[1, 1, 1999])?;
    near("gradient of max_pool1d", at(&gradient(&peak, |x| x.max_pool1d(1000, 1)), 999), 1000.0 * TENTH);
    Ok(())
}

#[test]
fn gradients_that_are_summed_over_a_batch() -> Result<()> {
    let right = TENTH * N as f64;
    let bias = Tensor::zeros(&[1], DType::F32);
    let images = Tensor::zeros(&[N / 2, 1, 2], DType::F32);
    near("bias_add", at(&gradient(&bias, |b| images.bias_add(b)), 0), right);
    let (x, weight) = (Tensor::ones(&[N, 1], DType::F32), Tensor::ones(&[1, 1], DType::F32));
    near("bias of linear", at(&gradient(&bias, |b| x.linear(&weight, Some(b))), 0), right);
    near("sum of columns", at(&Tensor::full(&[N, 3], 0.1, DType::F32).sum(&[0], false)?, 1), right);
    let gamma = Tensor::ones(&[1], DType::F32);
    near(
        "beta of group norm",
        {
            let x = Tensor::ones(&[N / 4, 1, 4], DType::F32);
            at(&gradient(&bias, |beta| x.group_norm(1, Some(&gamma), Some(beta), 1e-5)), 0)
        },
        right,
    );
    let filter = Tensor::ones(&[1, 1, 1], DType::F32);
    let pictures = Tensor::ones(&[N / 2, 1, 2], DType::F32);
    near(
        "bias of a convolution",
        at(&gradient(&bias, |b| pictures.conv1d(&filter, Some(b), &Default::default())), 0),
        right,
    );
    Ok(())
}

/// Gates without a product: `h` moves toward tanh(b_n) by `1 - z`, less than half of the last place of a 16-bit `h`.
#[test]
fn a_gru_in_sixteen_bits_moves_by_small_steps() -> Result<()> {
    let (time, bias) = (2000, [0.0, 7.0, 1.0]);
    let z = 1.0 / (1.0 + (-7.0f64).exp());
    for (dtype, bound) in [(DType::F32, 1e-4), (DType::F16, 6e-4), (DType::Bf16, 4.1e-3)] {
        let zeros = |shape: &[usize]| Tensor::zeros(shape, dtype);
        let bias = Tensor::from_vec(bias.to_vec(), &[3])?.cast(dtype);
        let (ih, hh, none) = (zeros(&[3, 1]), zeros(&[3, 1]), zeros(&[3]));
        let weights = RecurrentWeights { ih: &ih, hh: &hh, biases: Some((&bias, &none)) };
        for reverse in [false, true] {
            let (y, last) = zeros(&[2, time, 1]).gru(&weights, None, reverse)?;
            for t in [0, 100, time - 1] {
                let (got, want) =
                    (at(&y, if reverse { time - 1 - t } else { t }), 1f64.tanh() * (1.0 - z.powi(t as i32 + 1)));
                assert!((got - want).abs() <= want * bound, "{dtype} {t}: {got}, right {want}");
            }
            assert_eq!(at(&last, 1), at(&y, if reverse { time } else { 2 * time - 1 }));
        }
    }
    Ok(())
}
