//! Elements in another order, repeated, kept on one side of a diagonal, found, and drawn: values, refusals, gradients.

use precast::{DType, Result, Tensor, layers::Rng};

const DTYPES: [DType; 6] = [DType::F64, DType::F32, DType::F16, DType::Bf16, DType::I64, DType::Bool];

/// Returns 0, 1, 2, ... in this shape.
fn counted(shape: &[usize]) -> Tensor {
    Tensor::arange(shape.iter().product()).reshape(shape).unwrap()
}

/// Returns the elements of `x` at the place that `from` gives for each place of the result.
fn by_places(x: &Tensor, to: &[usize], from: impl Fn(&[usize]) -> Vec<usize>) -> Vec<f64> {
    let (data, shape) = (x.to_f64(), x.shape());
    let place = |mut offset: usize| {
        let mut place = vec![0; to.len()];
        for axis in (0..to.len()).rev() {
            place[axis] = offset % to[axis];
            offset /= to[axis];
        }
        place
    };
    let at = |place: Vec<usize>| data[place.iter().zip(shape).fold(0, |offset, (at, len)| offset * len + at)];
    (0..to.iter().product()).map(|offset| at(from(&place(offset)))).collect()
}

#[test]
fn moved_elements_are_those_of_the_definitions_in_every_dtype() -> Result<()> {
    for dtype in DTYPES {
        for shape in [&[1, 1][..], &[3, 4], &[2, 3, 5], &[4, 1, 2], &[0, 3], &[2, 0]] {
            let x = counted(shape).cast(dtype);
            let (rank, last) = (shape.len(), shape.len() - 1);
            let with = |place: &[usize], axis: usize, at: usize| {
                let mut place = place.to_vec();
                place[axis] = at;
                place
            };
            let flipped = by_places(&x, shape, |p| with(p, last, shape[last] - 1 - p[last]));
            assert_eq!(x.flip(&[-1])?.to_f64(), flipped, "{dtype} {shape:?}");
            assert_eq!(x.flip(&[])?.to_f64(), x.to_f64());
            assert_eq!(x.flip(&[0])?.flip(&[-(rank as isize)])?.to_f64(), x.to_f64());
            for by in [-7isize, -1, 0, 1, 2, 9] {
                let from = |p: &[usize]| (p[0] as isize - by).rem_euclid(shape[0] as isize) as usize;
                let rolled = by_places(&x, shape, |p| with(p, 0, from(p)));
                assert_eq!(x.roll(&[by], &[0])?.to_f64(), rolled, "{dtype} {shape:?} by {by}");
                assert_eq!(x.roll(&[by, -by], &[1, 1])?.to_f64(), x.to_f64());
            }
            let to: Vec<usize> = shape.iter().enumerate().map(|(axis, len)| len * (axis + 1)).collect();
            let repeats: Vec<usize> = (1..=rank).collect();
            let tiled = by_places(&x, &to, |p| p.iter().zip(shape).map(|(at, len)| at % len).collect());
            let y = x.tile(&repeats)?;
            assert_eq!((y.shape(), y.to_f64(), y.dtype()), (&to[..], tiled, dtype));
            for diagonal in -5isize..=5 {
                let kept = |lower: bool| -> Vec<f64> {
                    let (rows, columns) = (shape[rank - 2], shape[rank - 1]);
                    let keep = |i: usize| {
                        let (row, column) = ((i / columns % rows) as isize, (i % columns) as isize);
                        if lower { column <= row + diagonal } else { column >= row + diagonal }
                    };
                    x.to_f64().into_iter().enumerate().map(|(i, x)| if keep(i) { x } else { 0.0 }).collect()
                };
                assert_eq!(x.tril(diagonal)?.to_f64(), kept(true), "{dtype} {shape:?} {diagonal}");
                assert_eq!(x.triu(diagonal)?.to_f64(), kept(false), "{dtype} {shape:?} {diagonal}");
            }
        }
    }
    assert_eq!(counted(&[2]).tile(&[2, 1, 2])?.shape(), [2, 1, 4]);
    assert_eq!(counted(&[2, 2]).tile(&[0])?.shape(), [2, 0]);
    assert_eq!(counted(&[3]).repeat_interleave(2, -1)?.to_f64(), [0., 0., 1., 1., 2., 2.]);
    assert_eq!(counted(&[2, 2]).repeat_interleave(2, 0)?.to_f64(), [0., 1., 0., 1., 2., 3., 2., 3.]);
    assert_eq!(counted(&[2, 3, 4]).move_axis(0, -1)?.shape(), [3, 4, 2]);
    assert_eq!(counted(&[2, 3, 4]).move_axis(2, 0)?.shape(), [4, 2, 3]);
    let rows: Vec<Vec<f64>> = counted(&[2, 3]).unbind(0)?.iter().map(Tensor::to_f64).collect();
    assert_eq!(rows, [[0., 1., 2.], [3., 4., 5.]]);
    let x = counted(&[2, 3, 4]);
    assert_eq!(x.diagonal(0)?.to_f64(), [0., 5., 10., 12., 17., 22.]);
    assert_eq!((x.diagonal(-2)?.to_f64(), x.diagonal(4)?.shape().to_vec()), (vec![8., 20.], vec![2, 0]));
    for dtype in DTYPES {
        let x = counted(&[2, 2]).cast(dtype);
        assert_eq!(x.diag_embed()?.diagonal(0)?.to_f64(), x.to_f64(), "{dtype}");
        assert_eq!(x.diag_embed()?.to_f64().iter().filter(|x| **x != 0.0).count(), x.count_nonzero(), "{dtype}");
    }
    Ok(())
}

/// The other side of a diagonal is 0, in results and gradients, whatever it was.
#[test]
fn nan_beyond_the_diagonal_is_dropped() -> Result<()> {
    let x = Tensor::full(&[2, 2], f64::NAN, DType::F16).requires_grad();
    let y = x.tril(-2)?;
    assert_eq!(y.to_f64(), [0.0; 4]);
    let grad = y.backward_from(&Tensor::full(&[2, 2], f64::INFINITY, DType::F16))?.of(&x).expect("a gradient");
    assert_eq!(grad.to_f64(), [0.0; 4]);
    Ok(())
}

/// The gradient of a repeated element is the sum of its copies', in f32 and rounded once.
#[test]
fn gradients_of_copies_are_summed_and_rounded_once() -> Result<()> {
    let x = Tensor::ones(&[1], DType::Bf16).requires_grad();
    let grad = x.tile(&[4097])?.backward_from(&Tensor::ones(&[4097], DType::Bf16))?.of(&x).expect("a gradient");
    assert_eq!(grad.item()?, 4096.0);
    let x = counted(&[2, 2]).cast(DType::F32).requires_grad();
    let chosen = x.masked_select(&x.gt(&Tensor::scalar(0.5, DType::F32))?)?;
    assert_eq!(chosen.to_f64(), [1., 2., 3.]);
    assert_eq!(chosen.square()?.sum_all()?.backward()?.of(&x).expect("a gradient").to_f64(), [0., 2., 4., 6.]);
    Ok(())
}

#[test]
fn what_is_found() -> Result<()> {
    let x = Tensor::from_vec(vec![0f32, -0.0, 2.0, f32::NAN, 0.0, -1.0], &[2, 3])?;
    assert_eq!((x.nonzero()?.to_f64(), x.count_nonzero()), (vec![0., 2., 1., 0., 1., 2.], 3));
    assert_eq!(x.nonzero()?.shape(), [3, 2]);
    assert_eq!(Tensor::zeros(&[2, 3], DType::Bool).nonzero()?.shape(), [0, 2]);
    assert_eq!(Tensor::ones(&[], DType::F16).nonzero()?.shape(), [1, 0]);
    assert_eq!(Tensor::zeros(&[0, 3], DType::F32).nonzero()?.shape(), [0, 2]);
    let unique = x.unique().to_f64();
    assert_eq!(unique[..3], [-1., 0., 2.]);
    assert!(unique.len() == 4 && unique[3].is_nan());
    let mask = Tensor::from_vec(vec![true, false, true, true], &[2, 2])?;
    assert_eq!(mask.any(&[0], false)?.to_vec::<bool>()?, [true, true]);
    assert_eq!(mask.all(&[0], false)?.to_vec::<bool>()?, [true, false]);
    assert_eq!(mask.all(&[-1], true)?.shape(), [2, 1]);
    let none = Tensor::zeros(&[0, 2], DType::Bool);
    assert_eq!(none.any(&[0], false)?.to_vec::<bool>()?, [false, false]);
    assert_eq!(none.all(&[0], false)?.to_vec::<bool>()?, [true, true]);
    let labels = Tensor::from_vec(vec![1i64, 0], &[2, 1])?;
    assert_eq!((labels.one_hot(2)?.shape(), labels.one_hot(2)?.to_f64()), (&[2, 1, 2][..], vec![0., 1., 1., 0.]));
    for dtype in [DType::F64, DType::F32, DType::F16, DType::Bf16] {
        let x = Tensor::from_f64(&[f64::NAN, f64::INFINITY, f64::NEG_INFINITY, -0.0, 3.5], &[5], dtype)?;
        assert_eq!(x.is_nan()?.to_f64(), [1., 0., 0., 0., 0.], "{dtype}");
        assert_eq!(x.is_inf()?.to_f64(), [0., 1., 1., 0., 0.], "{dtype}");
        let x = x.requires_grad();
        let y = x.nan_to_num(0.5, 7.0, -7.0)?;
        assert_eq!(y.to_f64(), [0.5, 7.0, -7.0, 0.0, 3.5], "{dtype}");
        let grads = y.backward_from(&Tensor::ones(&[5], dtype))?;
        assert_eq!(grads.of(&x).expect("a gradient").to_f64(), [0., 0., 0., 1., 1.], "{dtype}");
    }
    assert_eq!(labels.is_nan()?.to_f64(), [0., 0.]);
    assert_eq!(Tensor::from_vec(vec![3f32, 1., 2.], &[3])?.argsort(0, true)?.to_f64(), [0., 2., 1.]);
    let of = |numbers: &[f64]| Tensor::from_f64(numbers, &[numbers.len()], DType::F64);
    assert!(of(&[1.0, f64::INFINITY])?.all_close(&of(&[1.001, f64::INFINITY])?, 1e-3, 0.0)?);
    assert!(!of(&[1.0])?.all_close(&of(&[1.002])?, 1e-3, 0.0)?);
    assert!(!of(&[f64::NAN])?.all_close(&of(&[f64::NAN])?, 1.0, 1.0)?);
    assert!(!of(&[1.0])?.all_close(&of(&[f64::INFINITY])?, 1.0, 1.0)?);
    Ok(())
}

#[test]
fn refusals_name_what_was_met() {
    let message = |result: Result<Tensor>| result.unwrap_err().to_string();
    let (x, scalar) = (counted(&[2, 3]), Tensor::scalar(1.0, DType::F32));
    assert_eq!(message(x.flip(&[0, -2])), "Reverse: axis -2 is named twice in [0, -2]");
    assert_eq!(message(x.roll(&[1], &[0, 1])), "Roll: 1 shifts for 2 axes: [0, 1]");
    assert_eq!(message(scalar.tril(0)), "Tril: needs a matrix, got []");
    assert_eq!(message(scalar.diag_embed()), "a scalar has no axis for a diagonal");
    assert!(message(x.tile(&[usize::MAX, 2])).contains("more than memory can address"));
    assert_eq!(message(x.one_hot(3)), "OneHot: the index 3 is out of range: 0..3 is allowed");
    assert_eq!(message(scalar.one_hot(3)), "OneHot: indices are i64, got f32; `cast(DType::I64)` makes indices");
    assert_eq!(message(x.masked_select(&x)), "a mask is boolean, got i64; compare first, or cast");
    assert_eq!(message(x.any(&[], false)), "needs a boolean tensor, got i64; compare first, or cast");
    let mut rng = Rng::seed(1);
    assert_eq!(message(Tensor::randint(3, 3, &[1], &mut rng)), "there is no integer from 3 up to but excluding 3");
    let weights = |numbers: &[f64]| Tensor::from_f64(numbers, &[numbers.len()], DType::F32).unwrap();
    assert_eq!(
        message(weights(&[1.0, 0.0]).multinomial(2, false, &mut rng)),
        "2 of 1 categories with a positive weight"
    );
    assert!(message(weights(&[-1.0]).multinomial(1, true, &mut rng)).starts_with("a weight is -1;"));
    assert!(message(weights(&[f64::NAN]).multinomial(1, true, &mut rng)).starts_with("a weight is NaN;"));
    assert!(message(weights(&[1.5]).bernoulli(&mut rng)).starts_with("1.5 is not a probability"));
    assert!(message(Tensor::randperm(usize::MAX, &mut rng)).ends_with("does not fit into memory"));
}

/// Frequencies of 40,000 draws are within five standard deviations of the probabilities.
#[test]
fn draws_have_their_probabilities() -> Result<()> {
    const COUNT: usize = 40_000;
    let near = |met: usize, p: f64, what: &str| {
        let deviation = (COUNT as f64 * p * (1.0 - p)).sqrt();
        assert!((met as f64 - COUNT as f64 * p).abs() <= 5.0 * deviation, "{what}: {met} of {COUNT} for {p}");
    };
    let count = |all: &[i64], wanted: i64| all.iter().filter(|x| **x == wanted).count();
    let mut rng = Rng::seed(7);
    let dice = Tensor::randint(-2, 4, &[COUNT], &mut rng)?.to_vec::<i64>()?;
    (-2..4).for_each(|side| near(count(&dice, side), 1.0 / 6.0, "a die"));
    let weights = Tensor::from_vec(vec![1f32, 0., 2., 5.], &[4])?;
    let drawn = weights.multinomial(COUNT, true, &mut rng)?.to_vec::<i64>()?;
    for (place, p) in [0.125, 0.0, 0.25, 0.625].into_iter().enumerate() {
        near(count(&drawn, place as i64), p, "with replacement");
    }
    // The first two of each row: the probability of 3 and then 2 is 5/8 · 2/3.
    let pairs = weights.broadcast_to(&[COUNT, 4])?.multinomial(2, false, &mut rng)?.to_vec::<i64>()?;
    let pairs: Vec<&[i64]> = pairs.chunks(2).collect();
    for (pair, p) in [([3, 2], 5.0 / 12.0), ([3, 0], 5.0 / 24.0), ([0, 2], 1.0 / 28.0), ([1, 0], 0.0), ([2, 2], 0.0)] {
        near(pairs.iter().filter(|met| ***met == pair).count(), p, "without replacement");
    }
    let heads = Tensor::full(&[COUNT], 0.3, DType::F64).bernoulli(&mut rng)?.to_f64();
    near(heads.iter().filter(|x| **x == 1.0).count(), 0.3, "a coin");
    let mut order = Tensor::randperm(100, &mut rng)?.to_vec::<i64>()?;
    assert_ne!(order, (0..100).collect::<Vec<_>>());
    order.sort_unstable();
    assert_eq!(order, (0..100).collect::<Vec<_>>());
    let again = || weights.multinomial(3, false, &mut Rng::seed(3)).unwrap().to_f64();
    assert_eq!(again(), again());
    // The largest and the smallest weights of f64 neither overflow nor vanish.
    let extreme = Tensor::from_vec(vec![f64::MAX, f64::MAX, 0.0], &[3])?;
    assert_eq!(extreme.multinomial(2, false, &mut rng)?.to_f64().iter().sum::<f64>(), 1.0);
    let tiny = Tensor::from_vec(vec![0.0, 5e-324], &[2])?;
    assert_eq!(tiny.multinomial(4, true, &mut rng)?.to_f64(), [1.0; 4]);
    Ok(())
}
