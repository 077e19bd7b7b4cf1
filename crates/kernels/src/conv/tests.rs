//! Checks every path against the convolution's definition: bit for bit in the documented order of sums, and close to
//! the exact sums.

use half::{bf16, f16};
use precast_base::Element;
use rand::{Rng, SeedableRng};

use super::{vector_axis::VectorAxis, *};
use crate::{
    amx,
    float::{Float, VectorFloat},
    gemm::{blocking::KC, pairs::Multiply},
    simd, threads,
};

fn random<T: Float<Wide = f32>>(len: usize, seed: u64) -> Vec<T> {
    let mut rng = rand_chacha::ChaCha8Rng::seed_from_u64(seed);
    (0..len).map(|_| T::narrow(rng.random_range(-1.0..1.0))).collect()
}

/// Returns a geometry of one axis each: input, kernel, stride, dilation, padding before and after.
fn geometry(batch: usize, groups: usize, channels: (usize, usize), axes: [[usize; 6]; 3]) -> Geometry {
    let of = |i: usize| axes.map(|axis| axis[i]);
    let output = axes.map(|[input, kernel, stride, dilation, before, behind]| {
        (input + before + behind - (kernel - 1) * dilation - 1) / stride + 1
    });
    let (in_channels, out_channels) = channels;
    let (input, kernel, stride, dilation, before) = (of(0), of(1), of(2), of(3), of(4));
    Geometry { batch, groups, in_channels, out_channels, input, output, kernel, stride, dilation, before }
}

fn geometries() -> Vec<Geometry> {
    let one = [1, 1, 1, 1, 0, 0];
    let mut all = vec![
        geometry(2, 1, (1, 1), [one, one, one]),
        geometry(2, 1, (1, 6), [one, [9, 5, 1, 1, 2, 2], [28, 5, 1, 1, 2, 2]]),
        geometry(3, 1, (6, 16), [one, [5, 5, 1, 1, 0, 0], [14, 5, 1, 1, 0, 0]]),
        geometry(1, 1, (2, 9), [one, [3, 3, 1, 1, 1, 1], [45, 3, 1, 1, 1, 1]]),
        geometry(2, 1, (3, 5), [one, [7, 3, 2, 1, 1, 1], [38, 3, 2, 1, 1, 0]]),
        geometry(2, 1, (2, 3), [one, [9, 2, 3, 2, 0, 3], [11, 3, 2, 3, 4, 1]]),
        geometry(2, 1, (2, 3), [one, [8, 1, 3, 1, 0, 0], [9, 2, 4, 1, 0, 0]]),
        geometry(5, 1, (30, 37), [one, [4, 3, 1, 1, 1, 1], [4, 3, 1, 1, 1, 1]]),
        geometry(3, 1, (4, 40), [one, [6, 3, 2, 1, 1, 1], [7, 3, 2, 1, 1, 1]]),
        geometry(2, 5, (1, 1), [one, [6, 3, 1, 1, 1, 1], [19, 3, 1, 1, 1, 1]]),
        geometry(2, 3, (2, 4), [one, [5, 3, 2, 1, 1, 1], [6, 2, 1, 2, 1, 1]]),
        geometry(2, 1, (3, 4), [one, one, [40, 4, 3, 2, 5, 2]]),
        geometry(2, 1, (2, 3), [[4, 2, 1, 1, 0, 1], [5, 3, 2, 1, 1, 1], [6, 3, 1, 2, 2, 2]]),
        geometry(1, 1, (1, 2), [[7, 7, 1, 1, 3, 3], [7, 7, 1, 1, 3, 3], [8, 7, 1, 1, 3, 3]]),
    ];
    // Miri takes minutes for the large ones.
    all.retain(|g| !cfg!(miri) || g.work() < 5000);
    all
}

/// Calls `f(output, row of the im2col matrix, pixel)` with every pixel in an output's patch, as positions in the
/// output's channel, the patch, and the input of one group.
fn patches(g: &Geometry, mut f: impl FnMut(usize, usize, usize)) {
    let place = |at: [usize; 3], size: [usize; 3]| (at[0] * size[1] + at[1]) * size[2] + at[2];
    let all = |size: [usize; 3]| {
        (0..size.iter().product()).map(move |i: usize| [i / (size[1] * size[2]), i / size[2] % size[1], i % size[2]])
    };
    for o in all(g.output) {
        for c in 0..g.in_channels {
            for k in all(g.kernel) {
                let padded: [usize; 3] = std::array::from_fn(|a| o[a] * g.stride[a] + k[a] * g.dilation[a]);
                if (0..3).all(|a| (g.before[a]..g.before[a] + g.input[a]).contains(&padded[a])) {
                    let pixel = std::array::from_fn(|a| padded[a] - g.before[a]);
                    let row = c * g.taps() + place(k, g.kernel);
                    f(place(o, g.output), row, c * g.in_volume() + place(pixel, g.input));
                }
            }
        }
    }
}

/// Returns the terms of each element of a result: their order and the positions of both factors. `index` maps a
/// corresponding output, weight and input, with the output channel and the row of a patch, to the result, the factors
/// and the order.
fn terms(g: &Geometry, result: usize, index: impl Fn([usize; 3], usize, usize) -> [usize; 4]) -> Vec<Vec<[usize; 3]>> {
    let mut terms = vec![Vec::new(); result];
    for image in 0..g.batch {
        for group in 0..g.groups {
            patches(g, |o, row, pixel| {
                for channel in 0..g.out_channels {
                    let out =
                        (image * g.groups + group) * g.out_channels * g.out_volume() + channel * g.out_volume() + o;
                    let weight = (group * g.out_channels + channel) * g.patch() + row;
                    let x = (image * g.groups + group) * g.in_channels * g.in_volume() + pixel;
                    let [to, left, right, order] = index([out, weight, x], channel, row);
                    terms[to].push([order, left, right]);
                }
            });
        }
    }
    terms.iter_mut().for_each(|terms| terms.sort_by_key(|term| term[0]));
    terms
}

fn check_near<T: Element + Float<Wide = f32>>(
    what: &str,
    got: &[T],
    terms: &[Vec<[usize; 3]>],
    a: &[T],
    b: &[T],
    bias: impl Fn(usize) -> f64,
) {
    assert_eq!(got.len(), terms.len());
    for (i, (got, terms)) in got.iter().zip(terms).enumerate() {
        let products = terms.iter().map(|&[_, l, r]| f64::from(a[l].widen()) * f64::from(b[r].widen()));
        let (exact, size) = products.fold((bias(i), bias(i).abs()), |(sum, size), x| (sum + x, size + x.abs()));
        let bound = (terms.len() + 2) as f64 * f64::from(f32::EPSILON) * size + T::DTYPE.epsilon() * exact.abs();
        let got = f64::from(got.widen());
        assert!((got - exact).abs() <= bound, "{what} {i}: {got} for {exact}");
    }
}

/// Sums in blocks of KC terms, numbered by the order of the terms.
fn in_blocks<T: Float<Wide = f32>>(terms: &[[usize; 3]], a: &[T], b: &[T]) -> f32 {
    let mut sum: Option<f32> = None;
    let mut rest = terms;
    let last = terms.last().map_or(0, |term| term[0]);
    for block in 0..=last / KC {
        let count = rest.iter().take_while(|term| term[0] / KC == block).count();
        let part = rest[..count].iter().fold(0f32, |s, &[_, l, r]| a[l].widen().mul_add(b[r].widen(), s));
        sum = Some(sum.map_or(part, |sum| sum + part));
        rest = &rest[count..];
    }
    sum.unwrap_or(0.0)
}

/// Returns the [`terms`] of the elements of a convolution and of its gradients of the input and the weight.
fn definition(g: &Geometry) -> [Vec<Vec<[usize; 3]>>; 3] {
    let [xs, ws, ys] = g.sizes();
    let forward = terms(g, ys, |[out, weight, x], _, row| [out, weight, x, row]);
    let back = terms(g, xs, |[out, weight, x], channel, row| [x, weight, out, channel * g.taps() + row % g.taps()]);
    let of_weight = terms(g, ws, |[out, weight, x], _, _| {
        let image = g.groups * g.out_channels * g.out_volume();
        [weight, out, x, out / image * g.out_volume() + out % g.out_volume()]
    });
    [forward, back, of_weight]
}

fn check_all<T: Convolve + VectorFloat>() {
    for g in geometries() {
        let [xs, ws, ys] = g.sizes();
        let (x, weight, grad) = (random::<T>(xs, 1), random::<T>(ws, 2), random::<T>(ys, 3));
        let (bias, in_bias) = (random::<T>(g.groups * g.out_channels, 4), random::<T>(g.groups * g.in_channels, 5));
        let of_out = |i: usize| bias[i / g.out_volume() % bias.len()].widen();
        let of_in = |i: usize| in_bias[i / g.in_volume() % in_bias.len()].widen();
        let [forward, back, of_weight] = definition(&g);
        for way in simd::widths().flat_map(|width| [(width, VectorAxis::Channels), (width, VectorAxis::Outputs)]) {
            let what = format!("{way:?} {g:?}");
            let got = windows::forward(way, &g, &x, &weight, Some(&bias));
            check_near(&format!("forward {what}"), &got, &forward, &weight, &x, |i| of_out(i).into());
            for (i, (got, terms)) in got.iter().zip(&forward).enumerate() {
                let want = T::narrow(in_blocks(terms, &weight, &x) + of_out(i));
                assert!(*got == want, "forward {what} {i}: {got:?} for {want:?}");
            }
            let got = windows::input_gradient(way, &g, &grad, &weight, Some(&in_bias));
            check_near(&format!("input gradient {what}"), &got, &back, &weight, &grad, |i| of_in(i).into());
            // With a stride, blocks consist of the terms of a phase.
            for (i, (got, terms)) in got.iter().zip(&back).enumerate().filter(|_| g.stride == [1; 3]) {
                let want = T::narrow(in_blocks(terms, &weight, &grad) + of_in(i));
                assert!(*got == want, "input gradient {what} {i}: {got:?} for {want:?}");
            }
            let got = weight_grad::weight_gradient(way, &g, &x, &grad);
            check_near(&format!("weight gradient {what}"), &got, &of_weight, &grad, &x, |_| 0.0);
            for (i, (got, terms)) in got.iter().zip(&of_weight).enumerate().filter(|_| way.1 == VectorAxis::Channels) {
                let want = T::narrow(in_blocks(terms, &grad, &x));
                assert!(*got == want, "weight gradient {what} {i}: {got:?} for {want:?}");
            }
        }
        check_near("im2col", &im2col::forward(&g, &x, &weight, None), &forward, &weight, &x, |_| 0.0);
        check_near("im2col", &im2col::input_gradient(&g, &grad, &weight, None), &back, &weight, &grad, |_| 0.0);
        check_near("im2col", &im2col::weight_gradient(&g, &x, &grad), &of_weight, &grad, &x, |_| 0.0);
    }
}

#[test]
fn f32_convolutions_are_the_definition() {
    check_all::<f32>();
}

#[test]
fn f16_convolutions_are_the_definition() {
    check_all::<f16>();
}

#[test]
fn bf16_convolutions_are_the_definition() {
    check_all::<bf16>();
}

/// Asserts that two kernels have the same bits: of the convolution (0), or its gradient of the input (1) or the weight (2).
fn assert_same_bits<T: Element + Float<Wide = f32>>((which, g): (usize, &Geometry), got: &[T], want: &[T]) {
    assert_eq!(got.len(), want.len());
    for (j, (a, b)) in got.iter().zip(want).enumerate() {
        assert!(a.widen().to_bits() == b.widen().to_bits(), "{which} {g:?}, {j}: {a:?} for {b:?}");
    }
}

#[test]
fn products_of_tiles_are_the_definition() {
    let one = [1, 1, 1, 1, 0, 0];
    // Whole and partial tiles, several blocks of terms, several images in one row of terms, strides, steps and volumes.
    let more = [
        geometry(5, 1, (24, 40), [one, [8, 3, 1, 1, 1, 1], [8, 3, 1, 1, 1, 1]]),
        geometry(9, 1, (33, 34), [one, [4, 3, 1, 1, 1, 1], [4, 3, 1, 1, 1, 1]]),
        geometry(2, 1, (25, 65), [one, [7, 3, 2, 1, 1, 1], [32, 3, 2, 1, 1, 0]]),
        geometry(2, 1, (24, 27), [one, [9, 4, 3, 1, 0, 2], [11, 2, 3, 2, 2, 0]]),
        geometry(2, 1, (24, 24), [[4, 2, 1, 1, 0, 1], [5, 3, 2, 1, 1, 1], [6, 3, 1, 2, 2, 2]]),
        geometry(3, 1, (40, 17), [one, [7, 1, 1, 1, 0, 0], [7, 1, 2, 1, 0, 0]]),
    ];
    if simd::widest() == simd::Width::One {
        return;
    }
    let with_tiny = [false, true];
    for (g, tiny) in more.into_iter().flat_map(|g| with_tiny.map(|tiny| (g, tiny))) {
        let [xs, ws, ys] = g.sizes();
        let (mut x, weight, grad) = (random::<bf16>(xs, 1), random::<bf16>(ws, 2), random::<bf16>(ys, 3));
        x.iter_mut().skip(3).step_by(700).filter(|_| tiny).for_each(|x| *x = bf16::MIN_POSITIVE_SUBNORMAL);
        let (bias, in_bias) = (random::<bf16>(g.out_channels, 4), random::<bf16>(g.in_channels, 5));
        let [forward, back, of_weight] = definition(&g);
        let what = format!("{g:?}");
        amx::twin::with(|| {
            let got = dispatch::forward(&g, &x, &weight, Some(&bias));
            check_near(&what, &got, &forward, &weight, &x, |i| bias[i / g.out_volume() % bias.len()].into());
            let got = dispatch::input_gradient(&g, &grad, &weight, Some(&in_bias));
            check_near(&what, &got, &back, &weight, &grad, |i| in_bias[i / g.in_volume() % in_bias.len()].into());
            let got = dispatch::weight_gradient(&g, &x, &grad);
            check_near(&what, &got, &of_weight, &grad, &x, |_| 0.0);
        });
    }
}

#[test]
fn products_of_pairs_have_the_bits_of_the_other_kernels() {
    let one = [1, 1, 1, 1, 0, 0];
    let more = [
        geometry(5, 1, (24, 24), [one, [8, 3, 1, 1, 1, 1], [8, 3, 1, 1, 1, 1]]),
        geometry(9, 1, (32, 33), [one, [4, 3, 1, 1, 1, 1], [4, 3, 1, 1, 1, 1]]),
        // A block of terms ends inside a row of odd length, after an odd and after an even number of its outputs.
        geometry(14, 1, (24, 24), [one, [7, 3, 1, 1, 1, 1], [7, 3, 1, 1, 1, 1]]),
        geometry(3, 1, (26, 40), [one, [6, 1, 1, 1, 0, 0], [7, 1, 1, 1, 0, 0]]),
        geometry(3, 1, (25, 26), [one, [32, 3, 2, 1, 1, 1], [32, 3, 2, 1, 1, 0]]),
        geometry(2, 1, (24, 25), [one, [40, 5, 1, 2, 4, 4], [40, 5, 1, 2, 4, 4]]),
        geometry(2, 1, (24, 27), [one, [9, 3, 1, 1, 0, 2], [11, 3, 1, 1, 2, 0]]),
        geometry(2, 1, (24, 24), [[4, 2, 1, 1, 0, 1], [5, 3, 1, 1, 1, 1], [6, 3, 1, 2, 2, 2]]),
        geometry(2, 1, (24, 24), [one, [1, 1, 2, 1, 1, 0], [9, 1, 2, 1, 0, 0]]),
        geometry(2, 1, (24, 24), [one, one, [300, 4, 3, 2, 5, 2]]),
    ];
    let mut computed = [0; 3];
    let with_tiny = [false, true];
    for (g, tiny) in geometries().into_iter().chain(more).flat_map(|g| with_tiny.map(|tiny| (g, tiny))) {
        let [xs, ws, ys] = g.sizes();
        let (mut x, weight, grad) = (random::<bf16>(xs, 1), random::<bf16>(ws, 2), random::<bf16>(ys, 3));
        // Numbers that the instruction would flush are multiplied in f32.
        let few = if tiny { x.len() } else { 0 };
        x[..few].iter_mut().skip(3).step_by(700).for_each(|x| *x = bf16::MIN_POSITIVE_SUBNORMAL);
        let (bias, in_bias) =
            (random::<bf16>(g.groups * g.out_channels, 4), random::<bf16>(g.groups * g.in_channels, 5));
        let way = (simd::widest(), VectorAxis::Channels);
        if simd::widest() == simd::Width::One {
            return;
        }
        let results = [
            (by_products::forward(&g, &x, &weight, Some(&bias)), windows::forward(way, &g, &x, &weight, Some(&bias))),
            (
                by_products::input_gradient(&g, &grad, &weight, Some(&in_bias)),
                windows::input_gradient(way, &g, &grad, &weight, Some(&in_bias)),
            ),
            (weight_grad::by_pairs(&g, &x, &grad), weight_grad::weight_gradient(way, &g, &x, &grad)),
        ];
        for (i, (got, want)) in results.into_iter().enumerate() {
            let Some(got) = got else { continue };
            computed[i] += 1;
            assert_same_bits((i, &g), &got, &want);
        }
    }
    assert_eq!(computed, [18, 14, 23], "computed by pairs");
}

/// Compares convolutions of one tap with the other kernels, bit for bit.
fn check_one_tap<T: Convolve + VectorFloat + Multiply>() {
    let one = [1, 1, 1, 1, 0, 0];
    let all = [
        geometry(1, 1, (16, 16), [one, one, [16, 1, 1, 1, 0, 0]]),
        geometry(3, 1, (40, 17), [one, [7, 1, 1, 1, 0, 0], [7, 1, 1, 1, 0, 0]]),
        geometry(5, 1, (19, 70), [one, [5, 1, 1, 1, 0, 0], [5, 1, 1, 1, 0, 0]]),
        geometry(2, 1, (33, 34), [one, [14, 1, 2, 1, 0, 0], [13, 1, 2, 1, 0, 0]]),
        geometry(3, 1, (20, 24), [[3, 1, 2, 1, 0, 0], [9, 1, 4, 1, 0, 0], [14, 1, 3, 1, 0, 0]]),
        geometry(2, 1, (300, 16), [one, [4, 1, 1, 1, 0, 0], [7, 1, 1, 1, 0, 0]]),
        geometry(2, 1, (16, 300), [one, [4, 1, 1, 1, 0, 0], [23, 1, 1, 1, 0, 0]]),
    ];
    if simd::widest() == simd::Width::One {
        return;
    }
    for g in all.into_iter().filter(|g| !cfg!(miri) || g.work() < 70_000) {
        let [xs, ws, ys] = g.sizes();
        let (mut x, weight, grad) = (random::<T>(xs, 1), random::<T>(ws, 2), random::<T>(ys, 3));
        // Numbers that are multiplied in f32, whatever their neighbors.
        x.iter_mut().skip(5).step_by(1000).for_each(|x| *x = T::narrow(2f32.powi(-130)));
        let (bias, in_bias) = (random::<T>(g.out_channels, 4), random::<T>(g.in_channels, 5));
        let way = (simd::widest(), VectorAxis::Channels);
        for with_bias in [true, false] {
            let (bias, in_bias) = (with_bias.then_some(&bias[..]), with_bias.then_some(&in_bias[..]));
            let results = [
                (pointwise::forward(&g, &x, &weight, bias), windows::forward(way, &g, &x, &weight, bias)),
                (
                    pointwise::input_gradient(&g, &grad, &weight, in_bias),
                    windows::input_gradient(way, &g, &grad, &weight, in_bias),
                ),
                (pointwise::weight_gradient(&g, &x, &grad), weight_grad::weight_gradient(way, &g, &x, &grad)),
            ];
            for (i, (got, want)) in results.into_iter().enumerate() {
                let got = got.unwrap_or_else(|| panic!("{i} {g:?} is a product"));
                assert_same_bits((i, &g), &got, &want);
            }
        }
    }
}

#[test]
fn convolutions_of_one_tap_have_the_bits_of_the_other_kernels() {
    check_one_tap::<f32>();
    check_one_tap::<f16>();
    check_one_tap::<bf16>();
}

/// Compares depthwise convolutions with the other kernels, bit for bit.
fn check_depthwise<T: Convolve + VectorFloat>() {
    let one = [1, 1, 1, 1, 0, 0];
    let all = [
        geometry(2, 3, (1, 1), [one, [7, 3, 1, 1, 1, 1], [7, 3, 1, 1, 1, 1]]),
        geometry(9, 2, (1, 1), [one, [20, 3, 1, 1, 1, 1], [56, 3, 1, 1, 1, 1]]),
        geometry(3, 2, (1, 1), [one, [14, 3, 2, 1, 1, 1], [14, 3, 2, 1, 1, 1]]),
        geometry(2, 2, (1, 1), [one, [33, 3, 2, 1, 1, 1], [35, 3, 2, 1, 1, 1]]),
        geometry(2, 2, (1, 1), [one, [9, 5, 1, 2, 4, 4], [50, 5, 1, 2, 4, 4]]),
        geometry(2, 2, (1, 1), [one, [12, 4, 3, 1, 2, 1], [40, 4, 3, 1, 1, 2]]),
        geometry(2, 2, (1, 1), [[4, 2, 1, 1, 0, 1], [5, 3, 2, 1, 1, 1], [6, 3, 1, 2, 2, 2]]),
        geometry(2, 3, (1, 1), [one, [6, 3, 2, 1, 1, 1], [1, 1, 2, 1, 0, 0]]),
        geometry(2, 3, (1, 1), [one, one, [70, 31, 1, 1, 15, 15]]),
        geometry(2, 2, (1, 1), [one, [9, 9, 1, 1, 4, 4], [9, 9, 1, 1, 4, 4]]),
        // The last row and column are not read; then half of them are not, which is left to the other kernel.
        geometry(2, 2, (1, 1), [one, [8, 3, 2, 1, 0, 0], [24, 3, 2, 1, 0, 0]]),
        geometry(2, 2, (1, 1), [one, [8, 1, 2, 1, 0, 0], [24, 1, 2, 1, 0, 0]]),
    ];
    if simd::widest() == simd::Width::One {
        return;
    }
    let mut computed = [0; 3];
    for g in all.into_iter().filter(|g| !cfg!(miri) || g.work() < 5000) {
        let [xs, ws, ys] = g.sizes();
        let (x, weight, grad) = (random::<T>(xs, 1), random::<T>(ws, 2), random::<T>(ys, 3));
        let bias = random::<T>(g.groups, 4);
        let way = (simd::widest(), VectorAxis::Outputs);
        for bias in [Some(&bias[..]), None] {
            let results = [
                (depthwise::forward(&g, &x, &weight, bias), windows::forward(way, &g, &x, &weight, bias)),
                (
                    depthwise::input_gradient(&g, &grad, &weight, bias),
                    windows::input_gradient(way, &g, &grad, &weight, bias),
                ),
                (depthwise_weight::weight_gradient(&g, &x, &grad), weight_grad::weight_gradient(way, &g, &x, &grad)),
            ];
            for (i, (got, want)) in results.into_iter().enumerate() {
                let Some(got) = got else { continue };
                computed[i] += 1;
                assert_same_bits((i, &g), &got, &want);
            }
        }
        // The product of a tap with padding is 0 only if all pixels are finite.
        let mut x = x;
        x[xs - 1] = T::narrow(f32::NEG_INFINITY);
        assert!(depthwise_weight::weight_gradient(&g, &x, &grad).is_none());
    }
    assert!(cfg!(miri) || computed == [24, 22, 24], "computed: {computed:?}");
}

#[test]
fn depthwise_convolutions_have_the_bits_of_the_other_kernels() {
    check_depthwise::<f32>();
    check_depthwise::<f16>();
    check_depthwise::<bf16>();
}

#[test]
fn an_infinite_pixel_reaches_only_the_taps_that_read_it() {
    let axis = [5, 3, 1, 1, 1, 1];
    for channels in [1, 40] {
        let g = geometry(1, 1, (1, channels), [[1, 1, 1, 1, 0, 0], axis, axis]);
        let mut x = vec![f16::ONE; 25];
        x[0] = f16::INFINITY;
        let of_weight = weight_gradient(&g, &x, &vec![f16::ONE; 25 * channels]);
        // The corner is read by the four taps that can fall on it.
        let reached = [true, true, false, true, true, false, false, false, false];
        for (i, x) in of_weight.iter().enumerate() {
            assert_eq!(x.is_infinite(), reached[i % 9], "{channels} channels, {i}: {x}");
            assert!(!x.is_nan());
        }
    }
}

#[test]
fn a_sum_that_underflows_is_positive_without_a_bias() {
    let one = [1, 1, 1, 1, 0, 0];
    let g = geometry(2, 1, (24, 24), [one, [8, 3, 1, 1, 1, 1], [8, 3, 1, 1, 1, 1]]);
    let [xs, ws, ys] = g.sizes();
    let tiny = bf16::from_f64(2f64.powi(-100));
    let (x, weight, grad) = (vec![tiny; xs], vec![-tiny; ws], vec![-tiny; ys]);
    let results = [
        forward(&g, &x, &weight, None),
        input_gradient(&g, &grad, &vec![tiny; ws], None),
        weight_gradient(&g, &x, &grad),
    ];
    for result in results {
        // Without vectors the sums start differently.
        assert!(simd::widest() == simd::Width::One || result.iter().all(|x| x.to_bits() == 0), "{result:?}");
    }
}

#[test]
#[cfg_attr(miri, ignore = "what is worth two threads takes Miri an hour")]
fn the_number_of_threads_changes_no_bit() {
    the_same_with_threads::<f16>();
    the_same_with_threads::<bf16>();
}

fn the_same_with_threads<T: Convolve + VectorFloat>() {
    let one = [1, 1, 1, 1, 0, 0];
    for g in [
        geometry(3, 1, (16, 24), [one, [20, 3, 1, 1, 1, 1], [20, 3, 1, 1, 1, 1]]),
        geometry(1, 1, (16, 64), [one, [20, 3, 1, 1, 1, 1], [20, 3, 1, 1, 1, 1]]),
        geometry(5, 1, (24, 40), [one, [8, 3, 1, 1, 1, 1], [8, 3, 1, 1, 1, 1]]),
        geometry(5, 1, (40, 48), [one, [13, 1, 1, 1, 0, 0], [13, 1, 1, 1, 0, 0]]),
        geometry(3, 1, (40, 48), [one, [25, 1, 2, 1, 0, 0], [25, 1, 2, 1, 0, 0]]),
        geometry(5, 24, (1, 1), [one, [20, 3, 1, 1, 1, 1], [20, 3, 1, 1, 1, 1]]),
    ] {
        let [xs, ws, ys] = g.sizes();
        assert!(g.work() > threads::SMALL, "large enough for threads");
        let (x, weight, grad) = (random::<T>(xs, 1), random::<T>(ws, 2), random::<T>(ys, 3));
        let results = [1, 2, 5].map(|count| {
            threads::set_threads(count);
            (forward(&g, &x, &weight, None), input_gradient(&g, &grad, &weight, None), weight_gradient(&g, &x, &grad))
        });
        threads::set_threads(0);
        assert!(results[0] == results[1] && results[0] == results[2]);
    }
}
