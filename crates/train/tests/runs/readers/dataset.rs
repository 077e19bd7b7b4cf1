//! State of a dataset, and its standardization.

use precast::{DType, ErrorKind};
use precast_train::data::{Dataset, IGNORED, Inputs, Split, Standardization, Targets};
use proptest::prelude::*;

use crate::readers::{inputs, targets};

fn words(examples: usize) -> Dataset {
    let inputs = (0..3 * examples as i64).collect();
    let values = (0..3 * examples as i64).map(|i| if i % 3 == 0 { IGNORED } else { i % 5 }).collect();
    Dataset::of(Inputs::Indices(inputs), &[3], Targets::Classes { shape: vec![3], values }).unwrap()
}

#[test]
fn indices_and_classes_of_a_shape_keep_their_dtype_and_shape() {
    let data = words(4);
    assert_eq!((data.len(), data.classes()), (4, 5));
    let batch = data.batches(3).unwrap().next().unwrap();
    assert_eq!((batch.x.dtype(), batch.x.shape()), (DType::I64, &[3, 3][..]));
    assert_eq!((batch.y.dtype(), batch.y.shape()), (DType::I64, &[3, 3][..]));
    assert_eq!(targets(&data)[..4], [-100.0, 1.0, 2.0, -100.0]);
    assert_eq!(format!("{data:?}"), "Dataset(4 of shape [3] with targets of shape [3] in 5 classes)");
    assert_eq!(data.resize(2, 2).unwrap_err().kind(), ErrorKind::Shape);
}

proptest! {
    /// For any sizes, each example is in one batch, once, with its target.
    #[test]
    fn batches_hold_every_example_once(examples in 1usize..40, size in 1usize..12, seed in 0u64..9) {
        let data = words(examples);
        let pairs = |x: Vec<f64>, y: Vec<f64>| -> Vec<(i64, i64)> {
            x.into_iter().zip(y).map(|(x, y)| (x as i64, y as i64)).collect()
        };
        let mut seen = Vec::new();
        for batch in data.shuffled_batches(size, seed, 0).unwrap() {
            seen.extend(pairs(batch.x.to_f64(), batch.y.to_f64()));
        }
        seen.sort();
        prop_assert_eq!(seen, pairs(inputs(&data), targets(&data)));
        prop_assert_eq!(inputs(&data).len(), 3 * examples);
    }
}

#[test]
fn examples_without_targets_have_inputs_and_no_batches() {
    let data = words(4).without_targets();
    assert_eq!((data.len(), data.classes(), inputs(&data).len()), (4, 0, 12));
    let error = data.batches(2).err().unwrap();
    assert_eq!(error.to_string(), "the examples have no targets, so nothing can be learnt of them");
    assert!(data.shuffled_batches(2, 0, 0).is_err());
    assert_eq!(data.split(3, 0).unwrap().test.len(), 1);
}

#[test]
fn names_of_classes_stay_with_every_part() {
    let names = ["no", "yes", "perhaps"].map(String::from).to_vec();
    let data = Dataset::new(vec![0.0; 16], &[4], vec![0, 1, 1, 0]).unwrap().with_class_names(names.clone()).unwrap();
    assert_eq!((data.classes(), data.class_names()), (3, &names[..]));
    let Split { train, test } = data.split(2, 0).unwrap();
    let resized = test.reshape(&[2, 2]).unwrap().resize(4, 4).unwrap();
    assert_eq!((train.class_names(), resized.class_names(), resized.classes()), (&names[..], &names[..], 3));
    assert!(data.with_class_names(vec!["one".into()]).is_err());
}

#[test]
fn a_split_in_order_shuffles_nothing() {
    let Split { train, test } = words(5).split_in_order(3).unwrap();
    assert_eq!((inputs(&train), inputs(&test)), ((0..9).map(f64::from).collect(), (9..15).map(f64::from).collect()));
    assert!(words(5).split_in_order(5).is_err() && words(5).split_in_order(0).is_err());
}

#[test]
fn standardization_is_by_column_feature_or_channel() {
    let of = |shape: &[usize]| {
        let data =
            Dataset::new((0..16).map(|x| x as f32).collect(), shape, vec![0; 16 / shape.iter().product::<usize>()]);
        Standardization::of(&data.unwrap()).unwrap()
    };
    assert_eq!((of(&[2]).mean, of(&[2]).deviation), (vec![7.0, 8.0], vec![21f64.sqrt(); 2]));
    assert_eq!(of(&[4, 2]), of(&[2]));
    // Channels of 2 x 2 pixels: 0..4 and 8..12, 4..8 and 12..16. The variance within is 1.25, that of 1.5 and 9.5 is
    // 16.
    let channels = of(&[2, 2, 2]);
    assert_eq!(channels.mean, [5.5, 9.5]);
    assert!(channels.deviation.iter().all(|x| (x - 17.25f64.sqrt()).abs() < 1e-12), "{channels:?}");
}

#[test]
fn constant_columns_are_only_centred() {
    // The mean of many tenths is not a tenth in floating point.
    let values = (0..1000).flat_map(|i| [0.1, i as f32]).collect();
    let data = Dataset::new(values, &[2], vec![0; 1000]).unwrap();
    let standardization = Standardization::of(&data).unwrap();
    let x = inputs(&data.standardized(&standardization).unwrap());
    assert!(x.iter().step_by(2).all(|x| *x == 0.0));
    let (mean, square) = x.iter().skip(1).step_by(2).fold((0.0, 0.0), |(m, s), x| (m + x / 1000.0, s + x * x / 1000.0));
    assert!(mean.abs() < 1e-6 && (square - 1.0).abs() < 1e-6, "{mean} {square}");

    let text = serde_json::to_string(&standardization).unwrap();
    assert_eq!(serde_json::from_str::<Standardization>(&text).unwrap(), standardization);
    let other = Dataset::new(vec![1.1, 499.5], &[2], vec![0]).unwrap().standardized(&standardization).unwrap();
    assert_eq!(inputs(&other), [f64::from((f64::from(1.1f32) - f64::from(0.1f32)) as f32), 0.0]);
}

#[test]
fn standardized_targets_are_brought_back() {
    let data = Dataset::regression(vec![1.0, 2.0], &[1], vec![1.0, 7.0, 5.0, 7.0], &[2]).unwrap();
    let by = Standardization::of_targets(&data).unwrap();
    assert_eq!((&by.mean[..], &by.deviation[..]), (&[3.0, 7.0][..], &[2.0, 1.0][..]));
    let standardized = data.targets_standardized(&by).unwrap();
    assert_eq!(*standardized.targets(), Targets::Numbers { shape: vec![2], values: vec![-1.0, 0.0, 1.0, 0.0] });
    assert_eq!(inputs(&standardized), inputs(&data));
    let mut numbers = [-1.0, 0.0, 1.0, 0.5];
    by.undo(&mut numbers, &[2]).unwrap();
    assert_eq!(numbers, [1.0, 7.0, 5.0, 7.5]);
    assert!(by.undo(&mut numbers, &[4]).is_err());
    let classes = Dataset::new(vec![1.0], &[1], vec![0]).unwrap();
    assert!(Standardization::of_targets(&classes).is_err() && classes.targets_standardized(&by).is_err());
}

#[test]
fn what_cannot_be_standardized_is_refused() {
    let data = Dataset::new(vec![1.0, 2.0], &[1], vec![0, 1]).unwrap();
    let by = |mean: &[f64], deviation: &[f64]| {
        let by = Standardization { mean: mean.to_vec(), deviation: deviation.to_vec() };
        data.standardized(&by).unwrap_err().to_string()
    };
    assert_eq!(by(&[0.0; 2], &[1.0; 2]), "2 means and 2 deviations for numbers of shape [1], which have 1 features");
    assert_eq!(by(&[0.0], &[0.0]), "value 0 of example 0 is inf; allowed: finite numbers");
    assert!(by(&[f64::NAN], &[1.0]).contains("NaN"));
    let message = Standardization::of(&words(2)).unwrap_err().to_string();
    assert!(
        message.starts_with("inputs that are indices have no mean; an array of NumPy of int32 or int64 is"),
        "{message}"
    );
    assert!(Standardization::of(&Dataset::new(vec![], &[2], vec![]).unwrap()).is_err());
}

/// Axes are joined and split, and not turned.
#[test]
fn examples_of_axes_in_another_order_are_refused() {
    let data = |shape: &[usize]| {
        let count = shape.iter().product::<usize>();
        Dataset::new((0..count).map(|i| i as f32).collect(), shape, vec![0]).unwrap()
    };
    for (from, to) in [
        (&[1, 8, 8][..], &[64][..]),
        (&[64], &[1, 8, 8]),
        (&[8, 8, 1], &[1, 8, 8]),
        (&[2, 3, 4], &[6, 4]),
        (&[3, 64], &[3, 8, 8]),
    ] {
        let fitted = data(from).fitted(to).unwrap();
        assert_eq!((fitted.shape(), inputs(&fitted)), (to, inputs(&data(from))));
    }
    let refused = |from: &[usize], to: &[usize]| data(from).fitted(to).unwrap_err().to_string();
    let words = refused(&[8, 8, 3], &[3, 8, 8]);
    assert!(words.ends_with("in another order: of an array, `x.transpose(0, 3, 1, 2)`"), "{words}");
    assert!(refused(&[6, 2], &[2, 6]).ends_with("`x.transpose(0, 2, 1)`"));
    assert!(!refused(&[6, 4], &[3, 8]).contains("transpose"));
    // Images of another size are resized.
    assert_eq!(data(&[3, 8, 10]).fitted(&[3, 10, 8]).unwrap().shape(), [3, 10, 8]);
}
