//! Elements written, masked, padded, rearranged and resampled: definitions, refusals.

use precast::{DType, ErrorKind, GridPadding, Interpolation, Resize, Result, Tensor};

use crate::ops::inputs::Draw;

fn indices(data: &[i64], shape: &[usize]) -> Tensor {
    Tensor::from_vec(data.to_vec(), shape).unwrap()
}

#[test]
fn what_is_put_where() -> Result<()> {
    let x = Tensor::from_vec((0..6).map(f64::from).collect::<Vec<_>>(), &[2, 3])?;
    let row = Tensor::from_vec(vec![10f64, 20., 30.], &[1, 3])?;
    let twice = Tensor::concat(&[&row, &row], 0)?;
    let last = indices(&[1, 1], &[2]);
    assert_eq!(x.index_add(0, &last, &twice)?.to_f64(), [0., 1., 2., 23., 44., 65.]);
    assert_eq!(x.index_copy(0, &last, &twice)?.to_f64(), [0., 1., 2., 10., 20., 30.]);
    let columns = indices(&[2, 0], &[2]);
    assert_eq!(x.index_copy(-1, &columns, &twice.slice(1, 0..2)?)?.to_f64(), [20., 1., 10., 20., 4., 10.]);
    let each = indices(&[0, 1, 0], &[1, 3]);
    assert_eq!(x.scatter(0, &each, &row)?.to_f64(), [10., 1., 30., 3., 20., 5.]);
    let mask = Tensor::from_vec(vec![false, true, false], &[3])?;
    assert_eq!(x.masked_fill(&mask, 7.0)?.to_f64(), [0., 7., 2., 3., 7., 5.]);
    // Many small values are added in f32 and rounded once.
    let small = Tensor::full(&[4096, 1], 2f64.powi(-8), DType::Bf16);
    let sum = Tensor::ones(&[1, 1], DType::Bf16).index_add(0, &indices(&[0; 4096], &[4096]), &small)?;
    assert_eq!(sum.item()?, 17.0);
    Ok(())
}

#[test]
fn borders_pixels_and_windows() -> Result<()> {
    let x = Tensor::from_vec((0..12).map(f64::from).collect::<Vec<_>>(), &[1, 1, 3, 4])?;
    let reflected = x.reflection_pad(&[(0, 0), (0, 0), (1, 0), (0, 2)])?;
    assert_eq!(reflected.to_f64()[..12], [4., 5., 6., 7., 6., 5., 0., 1., 2., 3., 2., 1.]);
    let replicated = x.replication_pad(&[(0, 0), (0, 0), (0, 1), (1, 0)])?;
    assert_eq!(replicated.to_f64()[10..], [8., 8., 9., 10., 11., 8., 8., 9., 10., 11.]);
    // A convolution is the product of its kernel with the windows.
    let mut draw = Draw::new(3);
    let (x, w) = (draw.tensor(&[2, 3, 5, 6], -1.0..1.0), draw.tensor(&[4, 3, 3, 2], -1.0..1.0));
    let options = precast::ConvOptions::default()
        .stride(vec![2, 1])
        .padding(precast::Padding::Explicit(vec![(1, 1), (2, 2)]))
        .dilation(vec![1, 2]);
    let want = x.conv2d(&w, None, &options)?;
    let columns = x.unfold(&[3, 2], &[2, 1], &[1, 2], &[1, 2])?;
    let got = w
        .reshape(&[4, -1])?
        .matmul_ext(&columns)?
        .reshape(&want.shape().iter().map(|&n| n as isize).collect::<Vec<_>>())?;
    assert!(got.to_f64().iter().zip(want.to_f64()).all(|(a, b)| (a - b).abs() < 1e-12));
    let pixels = Tensor::from_vec((0..8).map(f64::from).collect::<Vec<_>>(), &[1, 4, 1, 2])?;
    let shuffled = pixels.pixel_shuffle(2)?;
    assert_eq!((shuffled.shape(), shuffled.to_f64()), (&[1, 1, 2, 4][..], vec![0., 2., 1., 3., 4., 6., 5., 7.]));
    assert_eq!(shuffled.pixel_unshuffle(2)?.to_f64(), pixels.to_f64());
    let most = x.adaptive_max_pool2d(&[1])?;
    assert_eq!(most.to_f64(), x.max(&[2, 3], false)?.to_f64());
    // The identity reads each pixel at its own position.
    let identity = Tensor::from_vec(vec![1f64, 0., 0., 0., 1., 0.], &[1, 2, 3])?.broadcast_to(&[2, 2, 3])?;
    for corners in [false, true] {
        let grid = identity.affine_grid(x.shape(), corners)?;
        let read = x.grid_sample(&grid, Interpolation::Linear, GridPadding::Zeros, corners)?;
        assert!(read.to_f64().iter().zip(x.to_f64()).all(|(a, b)| (a - b).abs() < 1e-12));
    }
    Ok(())
}

/// Keys' kernel in the form of a polynomial through four points: for a = -3/4, `p(t)` of the values before, at, after
/// and beyond is `v1 + a t ((v0 - v2) ...)`; here written as the Hermite cubic with the slopes -a (v2 - v0) and -a (v3
/// - v1).
#[test]
fn a_cubic_is_the_hermite_polynomial_of_its_neighbours() -> Result<()> {
    let mut draw = Draw::new(5);
    let x = draw.tensor(&[1, 1, 9], -1.0..1.0);
    let (v, to) = (x.to_f64(), 23);
    let at = |i: i64| v[i.clamp(0, 8) as usize];
    for corners in [false, true] {
        let got = x.interpolate(&Resize::To(vec![to]), Interpolation::Cubic, corners)?.to_f64();
        for (i, got) in got.into_iter().enumerate() {
            let i = i as f64;
            let place = if corners { i * 8.0 / 22.0 } else { (i + 0.5) * 9.0 / 23.0 - 0.5 };
            let (k, t) = (place.floor() as i64, place - place.floor());
            let (p, q) = (at(k), at(k + 1));
            let (dp, dq) = (0.75 * (at(k + 1) - at(k - 1)), 0.75 * (at(k + 2) - at(k)));
            let (t2, t3) = (t * t, t * t * t);
            let want =
                (2.0 * t3 - 3.0 * t2 + 1.0) * p + (t3 - 2.0 * t2 + t) * dp + (3.0 * t2 - 2.0 * t3) * q + (t3 - t2) * dq;
            assert!((got - want).abs() < 1e-12, "{corners} {place}: {got}, {want}");
        }
    }
    Ok(())
}

#[test]
fn refusals_say_what_was_met() {
    let refused = |result: Result<Tensor>, kind: ErrorKind, words: &str| {
        let error = result.unwrap_err();
        assert!(error.kind() == kind && error.to_string().contains(words), "{error}");
    };
    let x = Tensor::zeros(&[2, 3], DType::F32);
    let (one, two) = (indices(&[0], &[1]), indices(&[0, 2], &[2]));
    refused(
        x.index_add(0, &one, &x),
        ErrorKind::Shape,
        "IndexAdd: values of shape [2, 3]; [2, 3] and the index need [1, 3]",
    );
    refused(x.index_copy(0, &two, &x), ErrorKind::Value, "IndexCopy: the index 2 is out of range: 0..2");
    refused(x.index_copy(0, &x, &x), ErrorKind::Shape, "the index must be a vector");
    refused(x.scatter(1, &one, &x), ErrorKind::Shape, "Scatter: the index [1] and the values [2, 3] differ");
    refused(x.index_put(&two, &x, false), ErrorKind::Value, "out of range");
    let mask = Tensor::zeros(&[3, 3], DType::Bool);
    refused(x.masked_fill(&mask, 0.0), ErrorKind::Shape, "the mask [3, 3] does not stretch to [2, 3]");
    refused(x.masked_fill(&x, 0.0), ErrorKind::DType, "boolean");
    refused(
        x.cast(DType::F16).masked_fill(&mask.slice(0, 0..1).unwrap(), 1e9),
        ErrorKind::Value,
        "infinity is allowed",
    );
    refused(x.reflection_pad(&[(2, 0), (0, 0)]), ErrorKind::Shape, "(2, 0) is not shorter than the axis of 2");
    refused(x.reflection_pad(&[(1, 0)]), ErrorKind::Shape, "1 pairs pad 2 axes");
    refused(Tensor::zeros(&[0], DType::F32).replication_pad(&[(1, 0)]), ErrorKind::Shape, "none to repeat");
    refused(x.replication_pad(&[(usize::MAX, 0), (0, 0)]), ErrorKind::Shape, "more than memory can address");
    refused(x.unfold(&[1], &[1], &[0], &[1]), ErrorKind::Shape, "unfold");
    let picture = Tensor::zeros(&[1, 3, 4, 4], DType::F32);
    refused(picture.unfold(&[5], &[1], &[0], &[1]), ErrorKind::Shape, "the window [5, 5] does not fit");
    refused(picture.pixel_shuffle(2), ErrorKind::Shape, "needs [n, c * 2², h, w], got [1, 3, 4, 4]");
    refused(picture.pixel_shuffle(usize::MAX), ErrorKind::Shape, "needs");
    refused(picture.pixel_unshuffle(3), ErrorKind::Shape, "needs [n, c, h * 3, w * 3]");
    refused(picture.affine_grid(&[1, 3, 4, 4], false), ErrorKind::Shape, "needs [1, 2, 3]");
    let grid = Tensor::zeros(&[1, 2, 2, 2], DType::F32);
    refused(picture.grid_sample(&grid, Interpolation::Cubic, GridPadding::Zeros, false), ErrorKind::Value, "cubic");
}

/// An index that repeats along the axes behind is read once for each slice: the bits are those of the ops by slices.
#[test]
fn a_broadcast_index_picks_and_adds_slices() -> Result<()> {
    for (dtype, axis) in [(DType::F32, 0), (DType::Bf16, 0), (DType::F32, 1), (DType::F16, 1)] {
        let shape = if axis == 0 { vec![5, 3, 4] } else { vec![2, 5, 4] };
        let numbers = |len: usize| (0..len).map(|i| ((i * 37) % 61) as f64 / 8.0 - 3.0).collect::<Vec<_>>();
        let x = Tensor::from_f64(&numbers(shape.iter().product()), &shape, dtype)?.requires_grad();
        // One row more than sixteen times.
        let ids: Vec<i64> = (0..40).map(|i| if i % 2 == 0 { 3 } else { i % 5 }).collect();
        let row = Tensor::from_vec(ids, &[40])?;
        let mut many = shape.clone();
        many[axis] = 40;
        let ones: Vec<usize> = (0..3).map(|i| if i == axis { 40 } else { 1 }).collect();
        let index = row.reshape(&ones)?.broadcast_to(&many)?;
        let src = Tensor::from_f64(&numbers(many.iter().product()), &many, dtype)?.requires_grad();
        let along = axis as isize;
        let pairs = [
            (x.gather(along, &index)?, x.index_select(along, &row)?),
            (x.scatter_add(along, &index, &src)?, x.index_add(along, &row, &src)?),
            (x.scatter(along, &index, &src)?, x.index_copy(along, &row, &src)?),
        ];
        for (by_index, by_slices) in pairs {
            assert_eq!(by_index.to_f64(), by_slices.to_f64(), "{dtype} {axis}");
            let seed = Tensor::from_f64(&numbers(by_index.len()), by_index.shape(), dtype)?;
            let [a, b] = [by_index.backward_from(&seed)?, by_slices.backward_from(&seed)?];
            for leaf in [&x, &src] {
                let [a, b] = [&a, &b].map(|grads| grads.of(leaf).map(|grad| grad.to_f64()));
                assert_eq!(a, b, "{dtype} {axis}");
            }
        }
        let error = x.gather(along, &index.add(&Tensor::full(&[], 2.0, DType::I64))?).unwrap_err();
        assert!(error.to_string().contains("the index 5 is out of range: 0..5 is allowed"), "{error}");
    }
    Ok(())
}
