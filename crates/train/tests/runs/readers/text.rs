//! Text, its vocabulary, and sums.

use std::collections::HashSet;

use precast::{prelude::*, sequential};
use precast_train::data::{Addition, Text, Vocabulary};
use precast_train::{
    FitOptions, accuracy,
    data::{Dataset, IGNORED, Inputs, Split, Targets},
    fit,
};

use crate::readers::{Folder, inputs, targets};

fn text() -> Text {
    Text::new("text.txt")
}

#[test]
fn the_target_at_each_place_is_the_token_that_follows() {
    let data = text().length(3).parse(b"\x00\x01\x02\x03\x04\x05\xff\x07").unwrap();
    assert_eq!((inputs(&data), targets(&data)), (vec![0., 1., 2., 3., 4., 5.], vec![1., 2., 3., 4., 5., 255.]));
    assert_eq!((data.classes(), data.class_names()[65].as_str(), data.class_names()[10].as_str()), (256, "A", "\\n"));
    // Every position where a window and one more token fit.
    let data = text().length(3).stride(1).parse(&[9; 8]).unwrap();
    assert_eq!((data.len(), data.shape()), (5, &[3][..]));
    assert_eq!(text().length(3).stride(5).parse(&[9; 8]).unwrap().len(), 1);
    assert_eq!(text().length(3).stride(4).parse(&[9; 8]).unwrap().len(), 2);
}

#[test]
fn characters_are_numbered_in_their_order_or_in_the_one_given() {
    let chars = text().chars().length(2);
    let data = chars.parse("bäba".as_bytes()).unwrap();
    assert_eq!(
        (inputs(&data), targets(&data), data.class_names().concat()),
        (vec![1., 2.], vec![2., 1.], "abä".into())
    );
    let found = chars.found(&data);
    assert_eq!(inputs(&found.parse("aäb".as_bytes()).unwrap()), [0., 2.]);
    let vocabulary = found.vocabulary().unwrap();
    assert_eq!((vocabulary.size(), chars.vocabulary()), (3, None));
    let indices = vocabulary.encode("äbab").unwrap();
    assert_eq!((&indices[..], vocabulary.decode(&indices).unwrap().as_str()), (&[2, 1, 0, 1][..], "äbab"));
    let json = serde_json::to_string(&vocabulary).unwrap();
    assert_eq!(json, r#"{"chars":"abä"}"#);
    assert_eq!(serde_json::from_str::<Vocabulary>(&json).unwrap(), vocabulary);
    // A byte order mark is not a character.
    assert_eq!(chars.parse("\u{feff}aba".as_bytes()).unwrap().classes(), 2);
}

#[test]
fn bytes_are_their_own_vocabulary() {
    let bytes = text().vocabulary().unwrap();
    assert_eq!(bytes.encode("aä").unwrap(), [0x61, 0xc3, 0xa4]);
    assert_eq!(bytes.decode(&[0x61, 0xc3, 0xa4, 0xff]).unwrap(), "aä\u{fffd}");
    assert_eq!(bytes.decode(&[256]).unwrap_err().to_string(), "there is no token 256; allowed: 0 to 255");
    assert!(bytes.decode(&[-1]).is_err());
}

#[test]
fn a_prompt_may_be_shorter_than_an_example() {
    let folder = Folder::new("prompt");
    let prompt = Text::new(folder.file("prompt.txt", "abc")).length(10);
    assert_eq!(inputs(&prompt.read_inputs().unwrap()), [97., 98., 99.]);
    assert_eq!(prompt.length(2).read_inputs().unwrap().len(), 1);
}

fn sums(data: &Dataset) -> Vec<(String, String)> {
    let Inputs::Indices(inputs) = data.inputs() else { panic!("{data:?}") };
    let length = data.shape()[0];
    let decode = |indices: &[i64]| Addition::vocabulary().decode(indices).unwrap();
    inputs
        .chunks(length)
        .zip(data.labels().chunks(length))
        .map(|(input, labels)| {
            let question = labels.iter().take_while(|label| **label == IGNORED).count();
            let (text, answer) = (decode(input), decode(&labels[question..]));
            // The input is the question, then the answer without its last digit.
            let (asked, begun) = text.split_once('=').unwrap();
            assert_eq!((asked.len(), begun), (question, &answer[..answer.len() - 1]));
            (asked.to_string(), answer)
        })
        .collect()
}

#[test]
fn every_sum_is_right_and_none_is_asked_twice() {
    for digits in [1, 2, 3, 9] {
        let data = Addition::new(digits).examples(100).seed(7).read().unwrap();
        assert_eq!((data.len(), data.shape(), data.classes()), (100, &[3 * digits + 2][..], 12));
        let sums = sums(&data);
        for (question, answer) in &sums {
            let (a, b) = question.split_once('+').unwrap();
            assert_eq!((a.len(), b.len(), answer.len()), (digits, digits, digits + 1));
            let number = |text: &str| text.parse::<u64>().unwrap();
            assert_eq!(number(a) + number(b), number(answer));
        }
        let questions: HashSet<&String> = sums.iter().map(|(question, _)| question).collect();
        assert_eq!(questions.len(), 100);
        assert_eq!(Addition::new(digits).examples(100).seed(7).read().unwrap(), data, "by the seed alone");
    }
    assert_eq!(Addition::new(2).read().unwrap().len(), 10_000);
    assert_ne!(Addition::new(2).seed(1).read().unwrap(), Addition::new(2).read().unwrap());
}

#[test]
fn the_parts_of_a_split_have_no_question_in_common() {
    let split = Addition::new(2).examples(500).read().unwrap().split(400, 3).unwrap();
    let questions = |data: &Dataset| -> HashSet<String> { sums(data).into_iter().map(|(asked, _)| asked).collect() };
    assert!(questions(&split.train).is_disjoint(&questions(&split.test)));
}

/// A cell that returns the inner outputs `[n, length, classes]` as `[n, classes, length]`.
#[derive(Cell, Debug)]
struct ClassesSecond {
    inside: Child,
}

impl Forward for ClassesSecond {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        self.inside.call(x)?.permute(&[0, 2, 1])
    }
}

/// Makes a network that gives each token logits for the next.
fn bigrams(tokens: usize) -> Child {
    let rng = &mut Rng::seed(1);
    Child::of(sequential![Embedding::new(tokens, 8, rng), Dense::new(8, tokens, rng)])
}

fn both(data: Dataset) -> Split {
    Split { train: data.clone(), test: data }
}

#[test]
fn a_text_in_which_each_character_has_one_successor_is_learnt() {
    let data = both(text().chars().length(5).parse("abcd".repeat(40).as_bytes()).unwrap());
    let options = FitOptions::default().epochs(10).lr(0.5).batch(4);
    let mut last = bigrams(4);
    let history = fit(&mut last, &data, &options, &mut |_| {}).unwrap();
    assert_eq!(history.score().unwrap().accuracy(), Some(1.0));

    let mut second = Child::new(ClassesSecond { inside: bigrams(4) });
    let other = fit(&mut second, &data, &options, &mut |_| {}).unwrap();
    let losses =
        |history: &precast_train::History| -> Vec<f64> { history.steps.iter().map(|step| step.loss).collect() };
    assert_eq!(losses(&history), losses(&other), "the same course, wherever the axis of the classes is");
}

#[test]
fn ignored_targets_count_neither_for_loss_nor_accuracy() {
    // Token 0 is followed by 1, and token 2 by anything, which is ignored.
    let data = |values: [i64; 6]| {
        let targets = Targets::Classes { shape: vec![3], values: values.to_vec() };
        Dataset::of(Inputs::Indices(vec![0, 2, 0, 2, 0, 2]), &[3], targets).unwrap()
    };
    let data = data([1, IGNORED, 1, IGNORED, 1, IGNORED]);
    let mut net = bigrams(3);
    let logits = net.call(&Tensor::from_vec(vec![0i64], &[1, 1]).unwrap()).unwrap().to_f64();
    let loss = logits.iter().map(|x| x.exp()).sum::<f64>().ln() - logits[1];
    let options = FitOptions::default().epochs(40).batch(2).lr(0.5);
    let history = fit(&mut net, &both(data.clone()), &options, &mut |_| {}).unwrap();
    assert!((history.steps[0].loss - loss).abs() < 1e-6, "{} {loss}", history.steps[0].loss);
    assert_eq!(accuracy(&net, &data, 2).unwrap(), 1.0);
    let targets = Targets::Classes { shape: vec![3], values: vec![IGNORED; 6] };
    let nothing = Dataset::of(data.inputs().clone(), &[3], targets).unwrap();
    let error = accuracy(&net, &nothing, 2).unwrap_err().to_string();
    assert_eq!(error, "the classes of all examples are ignored, so there is nothing to measure the accuracy on");
}
