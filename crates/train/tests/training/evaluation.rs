//! Scores in detail, by their definitions. The network returns its inputs, so the outputs are those of the data.

use precast::prelude::*;
use precast_train::{
    ClassScores, Evaluation, NumberScores, Score, accuracy,
    data::{Dataset, IGNORED, Inputs, Standardization, Targets},
    mean_squared_error,
};

fn net() -> Child<Identity> {
    Child::new(Identity)
}

/// Returns examples whose highest input is that of the answer.
fn answered(pairs: &[(i64, i64)], classes: usize) -> Dataset {
    let one = |&(_, answer): &(i64, i64)| (0..classes as i64).map(move |class| f32::from(u8::from(class == answer)));
    let inputs = pairs.iter().flat_map(one).collect();
    Dataset::new(inputs, &[classes], pairs.iter().map(|(label, _)| *label).collect()).unwrap()
}

fn classes(evaluation: Evaluation) -> ClassScores {
    let Evaluation::Classes(scores) = evaluation else { panic!("{evaluation:?}") };
    scores
}

fn numbers(evaluation: Evaluation) -> NumberScores {
    let Evaluation::Numbers(scores) = evaluation else { panic!("{evaluation:?}") };
    scores
}

/// The values of `precision_recall_fscore_support(y, answers, zero_division=0)`, as fractions.
#[test]
fn each_class_has_precision_recall_and_f1() {
    // Targets 0 0 0 0 2 2 3, answers 0 0 2 1 2 0 2: class 1 is only answered, class 3 is never answered, 4 is absent.
    let data = answered(&[(0, 0), (0, 0), (0, 2), (0, 1), (2, 2), (2, 0), (3, 2)], 5);
    for batch in [1, 3, 7] {
        let found = Evaluation::of(&net(), &data, batch).unwrap();
        assert_eq!(found.score().accuracy(), accuracy(&net(), &data, batch).ok());
        let scores = classes(found);
        assert_eq!((scores.count, scores.accuracy, scores.not_finite), (7, 3.0 / 7.0, 0));
        let of_class: Vec<(usize, usize, f64, f64, f64)> =
            scores.classes.iter().map(|of| (of.index, of.count, of.precision, of.recall, of.f1)).collect();
        let two = 2.0 / 3.0;
        let f1 = 4.0 / 7.0;
        let expected =
            [(0, 4, two, 0.5, f1), (1, 0, 0.0, 0.0, 0.0), (2, 2, 1.0 / 3.0, 0.5, 0.4), (3, 1, 0.0, 0.0, 0.0)];
        assert_eq!(of_class, expected);
        assert!((scores.macro_f1 - (f1 + 0.4) / 4.0).abs() < 1e-15);
        assert_eq!(scores.confusion, [[2, 1, 1, 0], [0, 0, 0, 0], [1, 0, 1, 0], [0, 0, 1, 0]]);
    }
}

#[test]
fn answers_that_are_not_finite_are_wrong_and_of_no_class() {
    // The logarithm of a negative number is NaN.
    #[derive(Cell, Debug)]
    struct Log;
    impl Forward for Log {
        fn forward(&self, x: &Tensor) -> Result<Tensor> {
            x.log()
        }
    }
    let data = Dataset::new(vec![1.0, 2.0, -1.0, -1.0, 3.0, 1.0], &[2], vec![1, 1, 0]).unwrap();
    let net = Child::new(Log);
    let found = Evaluation::of(&net, &data, 2).unwrap();
    assert_eq!((found.score().accuracy(), found.score().not_finite()), (accuracy(&net, &data, 2).ok(), 1));
    let scores = classes(found);
    assert_eq!((scores.not_finite, scores.accuracy), (1, 2.0 / 3.0));
    assert_eq!(scores.confusion, [[1, 0], [0, 1]]);
    assert_eq!((scores.classes[1].precision, scores.classes[1].recall), (1.0, 0.5));
}

#[test]
fn ignored_places_of_sequences_do_not_count() {
    // One sequence of three places with two classes; the network returns [n, places, classes].
    let inputs = Inputs::Numbers(vec![1.0, 0.0, 0.0, 1.0, 1.0, 0.0]);
    let targets = Targets::Classes { shape: vec![3], values: vec![0, IGNORED, 1] };
    let data = Dataset::of(inputs, &[3, 2], targets).unwrap();
    let scores = classes(Evaluation::of(&net(), &data, 1).unwrap());
    assert_eq!((scores.count, scores.accuracy), (2, 0.5));
    assert_eq!(scores.confusion, [[1, 0], [1, 0]]);
}

/// Two targets: errors 1, -1, 2 of the first and 0, 0, 3 of the second, whose targets are constant.
#[test]
fn numbers_have_errors_in_total_and_for_each_target() {
    let outputs = vec![2.0, 5.0, 1.0, 5.0, 5.0, 8.0];
    let data = Dataset::regression(outputs, &[2], vec![1.0, 5.0, 2.0, 5.0, 3.0, 5.0], &[2]).unwrap();
    let found = Evaluation::of(&net(), &data, 2).unwrap();
    assert_eq!(found.score().mean_squared_error(), mean_squared_error(&net(), &data, 2).ok());
    let scores = numbers(found.with_target_names(&["a".into(), "b".into()]));
    let [a, b] = &scores.targets[..] else { panic!("{scores:?}") };
    assert_eq!((a.name.as_str(), a.count, a.mean_squared_error, a.mean_absolute_error), ("a", 3, 2.0, 4.0 / 3.0));
    assert_eq!((a.root_mean_squared_error, a.r_squared), (2f64.sqrt(), 1.0 - 6.0 / 2.0));
    assert_eq!((b.mean_squared_error, b.mean_absolute_error, b.r_squared), (3.0, 1.0, 0.0));
    let total = &scores.total;
    assert_eq!((total.count, total.mean_squared_error, total.mean_absolute_error), (6, 2.5, 7.0 / 6.0));
    assert_eq!(total.r_squared, (-2.0 + 0.0) / 2.0);
}

/// By `r2_score`: 1 if all are right, 0 for the mean of the targets; for equal targets 1 or 0; none for one example.
#[test]
fn r_squared_has_the_values_of_its_definition() {
    let of = |outputs: &[f32], targets: &[f32]| {
        let data = Dataset::regression(outputs.to_vec(), &[1], targets.to_vec(), &[1]).unwrap();
        numbers(Evaluation::of(&net(), &data, 2).unwrap()).total.r_squared
    };
    assert_eq!(of(&[1.0, 2.0, 4.0], &[1.0, 2.0, 4.0]), 1.0);
    assert_eq!(of(&[2.0, 2.0, 2.0], &[1.0, 2.0, 3.0]), 0.0);
    assert_eq!((of(&[0.1, 0.1, 0.1], &[0.1, 0.1, 0.1]), of(&[0.1, 0.1, 0.2], &[0.1, 0.1, 0.1])), (1.0, 0.0));
    assert!(of(&[1.0], &[1.0]).is_nan());
}

#[test]
fn numbers_are_in_the_units_of_the_targets() {
    // Outputs 0 and 1 mean 1000 and 1010; the targets are 1001 and 1012.
    let by = Standardization { mean: vec![1000.0], deviation: vec![10.0] };
    let data = Dataset::regression(vec![0.0, 1.0], &[1], vec![1001.0, 1012.0], &[1]).unwrap();
    let found = Evaluation::of_standardized(&net(), &data, 1, Some(&by)).unwrap();
    assert_eq!(found.score(), Score::of_squared_error(2.5));
    let total = numbers(found).total;
    assert_eq!((total.mean_squared_error, total.mean_absolute_error), (2.5, 1.5));
    assert_eq!(total.r_squared, 1.0 - 5.0 / (2.0 * 5.5 * 5.5));
}

/// A file keeps scores, also those that are not finite.
#[test]
fn scores_are_written_and_read() {
    let data = Dataset::regression(vec![1.0], &[1], vec![1.0], &[1]).unwrap();
    let text = serde_json::to_string(&Evaluation::of(&net(), &data, 1).unwrap()).unwrap();
    assert!(text.contains("\"r_squared\":null"), "{text}");
    assert!(numbers(serde_json::from_str(&text).unwrap()).total.r_squared.is_nan());
    let data = answered(&[(0, 1), (1, 1)], 2);
    let found = Evaluation::of(&net(), &data, 1).unwrap();
    assert_eq!(serde_json::from_str::<Evaluation>(&serde_json::to_string(&found).unwrap()).unwrap(), found);
}
