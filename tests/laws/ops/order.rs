//! Medians, running extremes, counts, grids and quotients rounded down: values, refusals, gradients.

use precast::{Autocast, DType, Result, Tensor, autocast, layers::Rng};

const NAN: f64 = f64::NAN;

fn same(met: &[f64], expected: &[f64]) -> bool {
    met.len() == expected.len() && met.iter().zip(expected).all(|(x, y)| x == y || x.is_nan() && y.is_nan())
}

/// Returns numbers with repetitions, so that there are equal ones.
fn numbers(shape: &[usize], dtype: DType, seed: u64) -> Tensor {
    Tensor::randint(-4, 5, shape, &mut Rng::seed(seed)).unwrap().cast(dtype)
}

#[test]
fn the_median_is_the_lower_one_in_the_middle() -> Result<()> {
    for dtype in [DType::F64, DType::F32, DType::F16, DType::Bf16, DType::I64] {
        for n in 1..8 {
            let x = numbers(&[3, n, 2], dtype, n as u64);
            let (median, places) = x.median(1, false)?;
            assert_eq!((median.shape(), median.dtype(), places.dtype()), (&[3, 2][..], dtype, DType::I64));
            for (row, column) in (0..3).flat_map(|row| [(row, 0), (row, 1)]) {
                let lane: Vec<f64> = x.at(0, row)?.at(1, column)?.to_f64();
                let mut sorted = lane.clone();
                sorted.sort_by(f64::total_cmp);
                let (met, place) = (median.to_f64()[row * 2 + column], places.to_vec::<i64>()?[row * 2 + column]);
                assert_eq!((met, lane[place as usize]), (sorted[(n - 1) / 2], met), "{dtype} {lane:?}");
            }
        }
    }
    let x = Tensor::from_vec(vec![1f32, f32::NAN, 0.0, 5.0, 3.0, 4.0], &[2, 3])?.requires_grad();
    let (median, places) = x.median(-1, true)?;
    assert!(same(&median.to_f64(), &[NAN, 4.0]) && median.shape() == [2, 1], "{median}");
    assert_eq!(places.to_vec::<i64>()?, [1, 2]);
    let grads = median.backward_from(&Tensor::ones(&[2, 1], DType::F32))?;
    assert_eq!(grads.of(&x).unwrap().to_f64(), [0.0, 1.0, 0.0, 0.0, 0.0, 1.0]);
    let message = Tensor::zeros(&[2, 0], DType::F32).median(1, false).unwrap_err().to_string();
    assert!(message.contains("axis 1 of [2, 0] has no elements"), "{message}");
    Ok(())
}

#[test]
fn running_extremes_are_those_of_a_loop() -> Result<()> {
    for dtype in [DType::F64, DType::F32, DType::F16, DType::Bf16, DType::I64] {
        for n in [0, 1, 2, 3, 5, 8, 13] {
            let x = numbers(&[2, n], dtype, n as u64);
            for is_max in [true, false] {
                let (extreme, places) = if is_max { x.cummax(-1)? } else { x.cummin(-1)? };
                assert_eq!((extreme.shape(), extreme.dtype(), places.dtype()), (&[2, n][..], dtype, DType::I64));
                for row in 0..2 {
                    let lane = x.at(0, row)?.to_f64();
                    let mut best = 0;
                    for (i, &x) in lane.iter().enumerate() {
                        best = if (x >= lane[best]) == is_max || x == lane[best] { i } else { best };
                        assert_eq!(extreme.at(0, row)?.to_f64()[i], lane[best], "{dtype} {lane:?}");
                        assert_eq!(places.at(0, row)?.to_vec::<i64>()?[i], best as i64, "{dtype} {lane:?}");
                    }
                }
            }
        }
    }
    let x = Tensor::from_vec(vec![2f32, f32::NAN, 7.0, f32::NAN], &[4])?;
    let (extreme, places) = x.cummax(0)?;
    assert!(same(&extreme.to_f64(), &[2.0, NAN, NAN, NAN]), "{extreme}");
    assert_eq!(places.to_vec::<i64>()?, [0, 1, 1, 3]);
    // Each result has the gradient of its element.
    let x = Tensor::from_vec(vec![1f32, 3.0, 2.0, 5.0], &[4])?.requires_grad();
    let grads = x.cummax(0)?.0.backward_from(&Tensor::from_vec(vec![1f32, 10.0, 100.0, 1000.0], &[4])?)?;
    assert_eq!(grads.of(&x).unwrap().to_f64(), [1.0, 110.0, 0.0, 1000.0]);
    assert!(Tensor::scalar(1.0, DType::F32).cummax(0).is_err());
    Ok(())
}

#[test]
fn counts_are_those_of_a_loop() -> Result<()> {
    let x = Tensor::randint(0, 6, &[4, 25], &mut Rng::seed(3))?;
    let all = x.to_vec::<i64>()?;
    for (least, length) in [(0, all.iter().max().unwrap() + 1), (9, 9)] {
        let counts = (0..length).map(|i| all.iter().filter(|x| **x == i).count() as i64).collect::<Vec<_>>();
        assert_eq!(x.bincount(least)?.to_vec::<i64>()?, counts);
    }
    assert_eq!(Tensor::zeros(&[0], DType::I64).bincount(2)?.to_vec::<i64>()?, [0, 0]);
    let message = |x: Tensor| x.bincount(0).unwrap_err().to_string();
    assert!(message(Tensor::from_vec(vec![3i64, -1], &[2])?).contains("the index -1 is out of range"));
    assert!(message(Tensor::ones(&[3], DType::F32)).contains("indices are i64"));
    assert!(message(Tensor::from_vec(vec![i64::MAX], &[1])?).contains("more than memory can address"));
    // Widths that floats have exactly: 0.25 each.
    let x = Tensor::from_vec(vec![0.0, 0.24, 0.25, 0.5, 0.99, 1.0, 1.01, -0.01, NAN], &[9])?;
    for dtype in [DType::F64, DType::F32] {
        assert_eq!(x.cast(dtype).histc(4, 0.0, 1.0)?.to_vec::<i64>()?, [2, 1, 1, 2], "{dtype}");
    }
    for (bins, least, largest) in [(0, 0.0, 1.0), (3, 1.0, 1.0), (3, 2.0, 1.0), (3, NAN, 1.0), (3, 0.0, f64::INFINITY)]
    {
        assert!(x.histc(bins, least, largest).is_err(), "{bins} {least} {largest}");
    }
    let ends = Tensor::from_vec(vec![-f64::MAX, f64::MAX, 0.0], &[3])?;
    assert_eq!(ends.histc(2, -f64::MAX, f64::MAX)?.to_vec::<i64>()?, [1, 2]);
    Ok(())
}

#[test]
fn places_in_a_sorted_vector_are_those_of_a_loop() -> Result<()> {
    let sorted = numbers(&[20], DType::F32, 5).sort(0, false)?.0;
    let values = numbers(&[3, 4], DType::F16, 6);
    for right in [false, true] {
        let places = sorted.searchsorted(&values, right)?;
        assert_eq!(places.shape(), [3, 4]);
        for (value, place) in values.to_f64().into_iter().zip(places.to_vec::<i64>()?) {
            let before = sorted.to_f64().into_iter().filter(|x| if right { *x <= value } else { *x < value }).count();
            assert_eq!(place, before as i64, "{value}");
        }
    }
    let message = |x: Vec<f32>, shape: &[usize]| {
        let sorted = Tensor::from_vec(x, shape).unwrap();
        sorted.searchsorted(&values, false).unwrap_err().to_string()
    };
    assert!(message(vec![1.0, 3.0, 2.0], &[3]).contains("needs an ascending vector; 3 is before 2"));
    assert!(message(vec![1.0, 3.0], &[1, 2]).contains("searches a vector, got the shape [1, 2]"));
    Ok(())
}

#[test]
fn a_grid_has_the_coordinates_of_each_place() -> Result<()> {
    let (x, y, z) = (numbers(&[2], DType::F32, 1), numbers(&[3], DType::I64, 2), numbers(&[], DType::F64, 3));
    let grid = Tensor::meshgrid(&[&x, &y, &z])?;
    for (axis, (met, vector)) in grid.iter().zip([&x, &y, &z]).enumerate() {
        assert_eq!((met.shape(), met.dtype()), (&[2, 3, 1][..], vector.dtype()));
        let expected = (0..6).map(|i| vector.to_f64()[[i / 3, i % 3, 0][axis]]).collect::<Vec<_>>();
        assert_eq!(met.to_f64(), expected, "{axis}");
    }
    assert!(Tensor::meshgrid(&[])?.is_empty());
    let message = Tensor::meshgrid(&[&x, &numbers(&[2, 2], DType::F32, 1)]).unwrap_err().to_string();
    assert!(message.contains("a grid is made of vectors, got the shape [2, 2]"), "{message}");
    Ok(())
}

#[test]
fn quotients_are_rounded_down_once() -> Result<()> {
    for dtype in [DType::F64, DType::F32, DType::F16, DType::Bf16] {
        let (a, b) =
            (Tensor::range(-40.0, 40.0, 0.5)?.cast(dtype), Tensor::from_vec(vec![3f64, -0.75], &[2, 1])?.cast(dtype));
        let met = a.floor_divide(&b)?;
        let of = |b: f64| a.to_f64().into_iter().map(move |a| (a / b).floor()).collect::<Vec<_>>();
        assert_eq!((met.dtype(), met.to_f64()), (dtype, [of(3.0), of(-0.75)].concat()), "{dtype}");
    }
    // The quotient of these f32 numbers rounds to 10, and the exact one is below: 1 = 9 * 0.1 + 0.0999...
    let tenth = Tensor::scalar(0.1, DType::F32);
    let one = Tensor::scalar(1.0, DType::F32);
    assert_eq!((one.div(&tenth)?.item()?, one.floor_divide(&tenth)?.item()?), (10.0, 9.0));
    let special =
        [(1.0, 0.0, f64::INFINITY), (-1.0, 0.0, f64::NEG_INFINITY), (0.0, 0.0, NAN), (-5.0, f64::INFINITY, -1.0)];
    for (a, b, expected) in special {
        let met = Tensor::scalar(a, DType::F32).floor_divide(&Tensor::scalar(b, DType::F32))?.to_f64();
        assert!(same(&met, &[expected]), "{a} // {b}: {met:?}");
    }
    let whole = |x: i64| Tensor::from_vec(vec![x], &[1]).unwrap();
    for (a, b) in [(7, 2), (-7, 2), (7, -2), (-7, -2), (6, -2), (i64::MAX, -1), (i64::MIN, 2)] {
        let met = whole(a).floor_divide(&whole(b))?.to_vec::<i64>()?;
        let exact =
            i128::from(a).div_euclid(i128::from(b)) - i128::from(b < 0 && i128::from(a).rem_euclid(i128::from(b)) != 0);
        assert_eq!(met, [exact as i64], "{a} // {b}");
    }
    for (a, b) in [(1, 0), (i64::MIN, -1)] {
        let message = whole(a).floor_divide(&whole(b)).unwrap_err().to_string();
        assert!(message.contains("is not an integer of 64 bits"), "{message}");
    }
    // A region of 16 bits does not lower the quotient.
    let (a, b) = (Tensor::scalar(4097.0, DType::F32), Tensor::scalar(1.0, DType::F32));
    let met = autocast(Autocast::new("torch-2.15-cuda")?, || a.floor_divide(&b))?;
    assert_eq!(met.item()?, 4097.0);
    Ok(())
}
