//! Mistakes with examples and runs in code, and their messages.

use precast::{optim::Schedule, prelude::*};
use precast_train::{
    FitOptions,
    data::{Dataset, Split, read_digits},
    fit,
};

/// One mistake: a description, the message, and the code that returns the error.
type Mistake = (&'static str, &'static str, fn() -> Result<()>);

fn of<T>(result: Result<T>) -> Result<()> {
    result.map(drop)
}

fn rng() -> Rng {
    Rng::seed(1)
}

fn mlp() -> Child {
    let rng = &mut rng();
    Child::of(sequential![Dense::new(4, 8, rng), ReLU, Dense::new(8, 2, rng)])
}

fn written(name: &str, text: &str) -> std::path::PathBuf {
    let file = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    std::fs::write(&file, text).unwrap();
    file
}

fn examples() -> Dataset {
    Dataset::new(vec![0.5; 40], &[4], (0..10).map(|i| i % 2).collect()).unwrap()
}

fn train(net: &mut Child, options: FitOptions) -> Result<()> {
    let (train, test) = (examples(), examples());
    of(fit(net, &Split { train, test }, &options, &mut |_| {}))
}

const MISTAKES: &[Mistake] = &[
    (
        "a network without parameters",
        "the network has no parameters that are trained, so there is nothing to train: it has none, or all are frozen",
        || train(&mut Child::of(sequential![ReLU]), FitOptions::default()),
    ),
    ("batches of zero", "`batch` is 0; allowed: at least 1", || train(&mut mlp(), FitOptions::default().batch(0))),
    ("a schedule of steps after every zero", "`every` is 0; allowed: at least 1", || {
        train(&mut mlp(), FitOptions::default().schedule(Schedule::Step { every: 0, factor: 0.5 }))
    }),
    ("a network with too few outputs", "CrossEntropy: class index 1 with 1 classes; allowed: 0 to 0", || {
        train(&mut Child::of(sequential![Dense::new(4, 1, &mut rng())]), FitOptions::default())
    }),
    (
        "examples of another width",
        "in cell `0`: Linear: [10, 4] and the weight [2, 5] of [out, in] do not fit: 4 features meet 5",
        || train(&mut Child::of(sequential![Dense::new(5, 2, &mut rng())]), FitOptions::default()),
    ),
    ("labels that are fewer than the examples", "40 values are not 9 examples of shape [4]", || {
        of(Dataset::new(vec![0.5; 40], &[4], vec![0; 9]))
    }),
    ("a split of more examples than there are", "11 of 10 examples cannot be split off; allowed: 1 to 9", || {
        of(examples().split(11, 0))
    }),
    ("digits from a file that is none", "FILE:1: column 3: `x` is not a number from 0 to 16", || {
        of(read_digits(written("digits.csv", "1,2,x\n")))
    }),
];

#[test]
fn every_mistake_has_its_message() {
    for (mistake, expected, make) in MISTAKES {
        let error = make().expect_err(mistake).to_string();
        let met = error.replace(&written("digits.csv", "1,2,x\n").display().to_string(), "FILE");
        assert_eq!(met, *expected, "{mistake}");
    }
}
