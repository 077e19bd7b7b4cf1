//! Sampling between elements: `interpolate` and `grid_sample`.

use precast::{DType, ErrorKind, GridPadding, Interpolation, Resize, Tensor};

use crate::layer_ops::{
    errors::refused,
    random::{Random, many},
    values::{assert_near, places},
};

/// Returns the value at a position of an image, by the definition: every element, weighted by its distance along each
/// axis. Outside the value is 0.
fn read(x: &[f64], shape: &[usize], place: &[f64], nearest: bool) -> f64 {
    let weight = |distance: f64| if nearest { f64::from(distance == 0.0) } else { (1.0 - distance.abs()).max(0.0) };
    let place: Vec<f64> = place.iter().map(|p| if nearest { p.round_ties_even() } else { *p }).collect();
    let near = |at: &[usize]| at.iter().zip(&place).map(|(&i, p)| weight(i as f64 - p)).product::<f64>();
    places(shape).zip(x).map(|(at, x)| near(&at) * x).sum()
}

/// Samples `n * c` images, each at the positions.
fn read_all(x: &Tensor, at: impl Fn(usize) -> Vec<Vec<f64>>, nearest: bool) -> Vec<f64> {
    let (data, spatial, channels) = (x.to_f64(), &x.shape()[2..], x.shape()[1]);
    let len: usize = spatial.iter().product();
    let pictures = data.chunks(len).enumerate();
    pictures.flat_map(|(i, x)| at(i / channels).into_iter().map(move |p| read(x, spatial, &p, nearest))).collect()
}

#[test]
fn interpolation_follows_the_definition() {
    many(|r| {
        for axes in 1..=3 {
            let x = r.tensor(&[vec![r.size(1, 2), r.size(1, 2)], r.sizes(axes, 1, 4)].concat());
            let from = &x.shape()[2..];
            let to = r.sizes(axes, 1, 6);
            let scales: Vec<f64> = from.iter().map(|&len| r.size(4 / len + 1, 9) as f64 / 4.0).collect();
            let scaled: Vec<usize> =
                from.iter().zip(&scales).map(|(&len, scale)| (len as f64 * scale) as usize).collect();
            let ratios: Vec<f64> = from.iter().zip(&to).map(|(&from, &to)| from as f64 / to as f64).collect();
            let inverse: Vec<f64> = scales.iter().map(|scale| 1.0 / scale).collect();
            let cases = [(Resize::To(to.clone()), &to, ratios), (Resize::By(scales), &scaled, inverse)];
            for (size, to, ratios) in cases {
                let want = |place: &dyn Fn(usize, usize) -> f64| {
                    let at = |p: Vec<usize>| (0..axes).map(|i| place(i, p[i])).collect();
                    read_all(&x, |_| places(to).map(at).collect(), false)
                };
                let run = |mode, align| x.interpolate(&size, mode, align).unwrap();
                let near = |name: &str, got: Tensor, want: Vec<f64>| {
                    assert_eq!(&got.shape()[2..], to);
                    assert_near(&format!("{name} {from:?} {size:?}"), &got.to_f64(), &want, 1e-13);
                };
                let last = |i: usize| (from[i] - 1) as f64;
                // An axis whose length does not change is copied, whatever the scale.
                let centre = |i: usize, p: usize| match to[i] == from[i] {
                    true => p as f64,
                    false => ((p as f64 + 0.5) * ratios[i] - 0.5).clamp(0.0, last(i)),
                };
                near("linear", run(Interpolation::Linear, false), want(&centre));
                let corner =
                    |i: usize, p: usize| if to[i] == 1 { 0.0 } else { p as f64 * last(i) / (to[i] - 1) as f64 };
                near("corners", run(Interpolation::Linear, true), want(&corner));
                // Slightly more, since the quotient of two integers may round down.
                let below = |i: usize, p: usize| (p as f64 * ratios[i] + 1e-9).floor().min(last(i));
                near("nearest", run(Interpolation::Nearest, false), want(&below));
            }
        }
    });
}

#[test]
fn a_scale_that_leaves_the_length_copies_a_linear_axis() -> precast::Result<()> {
    let x = Tensor::from_vec(vec![1f64, 2., 3., 10., 20., 30.], &[1, 1, 2, 3])?.requires_grad();
    for scales in [[1.25, 1.25], [1.1, 1.0], [1.4, 1.3]] {
        let y = x.interpolate(&Resize::By(scales.to_vec()), Interpolation::Linear, false)?;
        assert_eq!((y.shape(), y.to_f64()), (x.shape(), x.to_f64()));
        let seed = Tensor::from_vec(vec![1f64, 2., 3., 4., 5., 6.], &[1, 1, 2, 3])?;
        assert_eq!(y.backward_from(&seed)?.of(&x).unwrap().to_f64(), [1., 2., 3., 4., 5., 6.]);
    }
    // One axis alone: torch copies [1, 2, 3] by 1.25, and by the nearest element reads at floor(i / 1.25).
    let row = Tensor::from_vec(vec![1f64, 2., 3.], &[1, 1, 3])?;
    let by = Resize::By(vec![1.25]);
    assert_eq!(row.interpolate(&by, Interpolation::Linear, false)?.to_f64(), [1., 2., 3.]);
    assert_eq!(row.interpolate(&by, Interpolation::Nearest, false)?.to_f64(), [1., 1., 2.]);
    Ok(())
}

/// Draws an image or volume, and a grid that also leaves it.
fn draw(r: &Random, axes: usize) -> [Tensor; 2] {
    let n = r.size(1, 2);
    let x = r.tensor(&[vec![n, r.size(1, 2)], r.sizes(axes, 1, 4)].concat());
    [x, r.between(-1.4, 1.4, &[vec![n], r.sizes(axes, 1, 3), vec![axes]].concat())]
}

const MODES: [Interpolation; 2] = [Interpolation::Nearest, Interpolation::Linear];
const PADDINGS: [GridPadding; 2] = [GridPadding::Zeros, GridPadding::Border];

#[test]
fn grid_sample_follows_the_definition() {
    many(|r| {
        for (axes, case) in [2, 3].into_iter().flat_map(|axes| (0..8).map(move |case| (axes, case))) {
            let (mode, padding, align) = (MODES[case & 1], PADDINGS[case >> 1 & 1], case >> 2 == 1);
            let [x, grid] = draw(r, axes);
            let (spatial, g) = (&x.shape()[2..], grid.to_f64());
            let count = g.len() / x.shape()[0];
            let place = |coordinates: &[f64]| {
                let along = |i: usize| {
                    // The coordinates are those of the axes from the last to the first.
                    let (g, len) = (coordinates[axes - 1 - i], spatial[i] as f64);
                    let p = if align { (g + 1.0) / 2.0 * (len - 1.0) } else { (g + 1.0) / 2.0 * len - 0.5 };
                    if padding == GridPadding::Border { p.clamp(0.0, len - 1.0) } else { p }
                };
                (0..axes).map(along).collect()
            };
            let at = |n: usize| g[n * count..(n + 1) * count].chunks(axes).map(place).collect();
            let y = x.grid_sample(&grid, mode, padding, align).unwrap();
            assert_eq!(y.shape(), [&x.shape()[..2], &grid.shape()[1..=axes]].concat());
            let want = read_all(&x, at, mode == Interpolation::Nearest);
            assert_near(&format!("{mode:?} {padding:?} {align}"), &y.to_f64(), &want, 1e-13);
        }
    });
}

#[test]
fn edges_and_refusals() {
    use ErrorKind::{DType as Dtype, Shape, Value};
    let zeros = |shape: &[usize]| Tensor::zeros(shape, DType::F32);
    let (x, grid) = (zeros(&[2, 3, 4, 5]), zeros(&[2, 6, 7, 2]));
    let run = |x: &Tensor, grid: &Tensor| x.grid_sample(grid, Interpolation::Linear, GridPadding::Zeros, false);
    assert_eq!(run(&zeros(&[0, 3, 4, 5]), &zeros(&[0, 6, 7, 2])).unwrap().shape(), [0, 3, 6, 7]);
    let nan = Tensor::full(&[1, 1, 1, 2], f64::NAN, DType::F32);
    assert!(run(&zeros(&[1, 1, 2, 2]), &nan).unwrap().item().unwrap().is_nan());
    let far = Tensor::full(&[1, 1, 1, 2], f64::INFINITY, DType::F32);
    let border =
        Tensor::ones(&[1, 1, 2, 2], DType::F32).grid_sample(&far, Interpolation::Linear, GridPadding::Border, true);
    assert_eq!(border.unwrap().item().unwrap(), 1.0);
    refused(run(&x, &zeros(&[1, 6, 7, 2])), Shape, &["GridSampler2d", "[1, 6, 7, 2]", "[2, 3, 4, 5]"]);
    refused(run(&x, &zeros(&[2, 6, 7, 3])), Shape, &["2 coordinates"]);
    refused(run(&zeros(&[2, 3, 4, 4, 4]), &grid), Shape, &["GridSampler3d", "3 coordinates"]);
    refused(run(&zeros(&[2, 3]), &grid), Shape, &["[2, 3]"]);
    refused(run(&zeros(&[2, 3, 0, 5]), &grid), Value, &["0 is out of range"]);
    refused(run(&x, &grid.cast(DType::I64)), Dtype, &["i64"]);

    let run = |x: &Tensor, size: Resize| x.interpolate(&size, Interpolation::Linear, false);
    assert_eq!(run(&zeros(&[0, 3, 4]), Resize::To(vec![1 << 30])).unwrap().shape(), [0, 3, 1 << 30]);
    refused(run(&x, Resize::To(vec![1, 2, 3])), Value, &["Interpolate", "3 axes", "2"]);
    refused(run(&x, Resize::To(vec![0])), Value, &["the length 0"]);
    refused(run(&x, Resize::By(vec![0.1])), Value, &["the scaled length 0"]);
    refused(run(&x, Resize::By(vec![f64::NAN])), Value, &["the scale NaN"]);
    refused(run(&zeros(&[2, 3]), Resize::To(vec![1])), Shape, &["1 to 3 spatial axes", "[2, 3]"]);
    refused(run(&x.cast(DType::Bool), Resize::To(vec![1])), Dtype, &["bool"]);
    refused(x.interpolate(&Resize::To(vec![1]), Interpolation::Nearest, true), Value, &["align_corners"]);
}
