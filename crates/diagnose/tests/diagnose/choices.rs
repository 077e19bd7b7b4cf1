//! Words of the monitor and of the record on numbers that a choice leaves out, and on slopes that are infinite in f32 as well.

use precast::{observe::FaultKind, prelude::*};
use precast_diagnose::{Monitor, Record};

type Choice = fn(&Tensor) -> Result<Tensor>;

#[derive(Cell, Debug)]
struct Net {
    first: Child<Dense>,
    last: Child<Dense>,
    choice: Choice,
}

impl Forward for Net {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        self.last.call(&(self.choice)(&self.first.call(x)?)?)
    }
}

/// Takes a step at a level, and returns its outcome, the faults of the monitor and of the record, and the number of results
/// that are listed as harmless.
fn told(choice: Choice, level: Level) -> (Outcome, [Option<(FaultKind, String)>; 2], usize) {
    let step = |record: bool| {
        let rng = &mut Rng::seed(1);
        let net = Net { first: Dense::new(4, 4, rng).into(), last: Dense::new(4, 2, rng).into(), choice };
        let mut net = Child::new(net);
        let _applied = Policy::new(level, DType::F16).unwrap().apply(&mut net).unwrap();
        net.set_train(true);
        let x = Tensor::from_vec(vec![0.5f32, -1.0, 0.25, 2.0, -0.5, 1.0, 0.75, -2.0], &[2, 4]).unwrap();
        let target = Tensor::from_vec(vec![0.1f32, 0.2, 0.3, 0.4], &[2, 2]).unwrap();
        let (mut optimizer, mut scale) = (Sgd::new(net.params(), 0.01), LossScale::fixed(1.0).unwrap());
        let mut step = |net: &Child<Net>| -> Result<Outcome> {
            scale.step(&mut optimizer, net.call(&x)?.cast(DType::F32).mse_loss(&target, Reduction::Mean)?)
        };
        let words = |fault: precast_diagnose::Fault<'_>| (fault.kind, fault.to_string());
        if record {
            let (outcome, record) = Record::of(&net, |net| step(net));
            let fault = record.fault().filter(|fault| fault.kind.is_overflow()).map(words);
            return (outcome.unwrap(), fault, record.harmless_infinities().count());
        }
        let mut monitor = Monitor::default();
        let outcome = monitor.watch(&net, step).unwrap();
        (outcome, monitor.fault().map(words), monitor.harmless().count())
    };
    let ((outcome, monitored, harmless), (_, recorded, _)) = (step(false), step(true));
    (outcome, [monitored, recorded], harmless)
}

#[test]
fn what_a_choice_leaves_out_is_harmless() {
    let choices: [(&str, Choice); 10] = [
        ("a logarithm", |h| h.gt(0.0)?.select(&h.log()?, &h.zeros_like())),
        ("a root", |h| h.detach().sqrt()?.masked_fill(&h.lt(0.1)?, 0.0)),
        ("a quotient that is scaled", |h| {
            let quotient = h.log()?.add(&h.log()?)?;
            h.gt(0.0)?.select(&quotient, h)
        }),
        ("the larger of two", |h| (h - h)?.log()?.detach().maximum(h)),
        ("rows that are read", |h| Tensor::concat(&[h, &h.detach().log()?], 0)?.slice(0, 0..2)),
        ("chosen by indices", |h| {
            let rows = Tensor::concat(&[h, &h.detach().log()?], 0)?;
            rows.index_select(0, &Tensor::from_vec(vec![1i64, 0], &[2])?)
        }),
        ("a masked row", |h| {
            let hidden = h.detach().masked_fill(&h.gt(-1e9)?, f64::NEG_INFINITY)?.logsumexp(&[-1], true)?;
            h.gt(-1e9)?.select(h, &hidden)
        }),
        // At 0 the slope of the reciprocal times 0 is NaN, which the ReLU stops, as in torch.
        ("a reciprocal behind a ReLU", |h| h.gt(0.1)?.select(&(1.0 / h.relu()?)?, &h.zeros_like())),
        ("a logarithm behind a bound", |h| h.gt(0.1)?.select(&h.clamp(0.0, 9.0)?.log()?, &h.zeros_like())),
        ("a logarithm and its inverse", |h| h.relu()?.log()?.exp()),
    ];
    for (name, choice) in choices {
        for level in [Level::O0, Level::O2] {
            let (outcome, faults, harmless) = told(choice, level);
            assert_eq!((outcome, faults, harmless > 0), (Outcome::Stepped, [None, None], true), "{name}, {level}");
        }
    }
}

#[test]
fn what_reaches_a_gradient_or_the_loss_is_a_fault() {
    // At 0 the logarithm is chosen nowhere, and its gradient is 0 times infinity.
    let (outcome, faults, _) = told(|h| h.gt(1e9)?.select(&(h - h)?.log()?, h), Level::O0);
    for fault in faults {
        let (kind, words) = fault.expect("a fault");
        assert_eq!(kind, FaultKind::Inf, "{words}");
        assert!(words.starts_with("Log in the root cell, forward pass") && words.ends_with("in f32, too"), "{words}");
    }
    assert_ne!(outcome, Outcome::Stepped);
    // The NaN of a logarithm's slope that no op stops.
    let (outcome, faults, _) = told(|h| (h - h)?.log()?.exp(), Level::O0);
    assert!(outcome != Outcome::Stepped && faults.iter().all(Option::is_some), "{faults:?}");
    // A comparison of a number that was rounded to infinity: 70000 is not above 1e5.
    let (outcome, faults, _) = told(
        |h| {
            let bound = (h.abs()?.cast(DType::F16) * 100.0)?;
            Ok((h.ones_like() * 300.0)?.cast(DType::F16).square()?.minimum(&bound)?.cast(DType::F32))
        },
        Level::O0,
    );
    assert_eq!(outcome, Outcome::Stepped);
    assert!(
        faults.iter().all(|fault| fault.as_ref().is_some_and(|(_, words)| words.ends_with("they are finite in f32")))
    );
    // Nobody chooses: a bounded function is not a choice.
    let (outcome, faults, _) = told(|h| (h - h)?.log()?.detach().tanh()?.add(h), Level::O0);
    assert!(outcome == Outcome::Stepped && faults.iter().all(Option::is_some), "{faults:?}");
}

#[test]
fn by_rounding_is_said_of_rounded_numbers_alone() {
    let slopes: [(&str, Choice); 5] = [
        ("a root", |h| h.relu()?.sqrt()),
        ("a power", |h| h.relu()?.pow(&(h.ones_like() * 0.5)?)),
        ("an arc cosine", |h| (h.relu()?.clamp(0.0, 0.0)? + 1.0)?.acos()),
        ("a sum in f32", |h| (h.ones_like() * 3e38)?.sum(&[1], true)?.add(h)),
        ("a product in f32", |h| (h * 1e30)?.square()),
    ];
    for (name, slope) in slopes {
        for fault in told(slope, Level::O0).1 {
            let (_, words) = fault.expect("a fault");
            assert!(words.ends_with("in f32, too"), "{name}: {words}");
        }
    }
    // The slope of a root at 0 is infinite in 16 bits as in f32; a number of 1e8 is not.
    let low: [(Choice, &str); 2] = [
        (|h| Ok(h.relu()?.cast(DType::F16).sqrt()?.cast(DType::F32)), "in f32, too"),
        (|h| (h.ones_like() * 1e4)?.cast(DType::F16).square()?.cast(DType::F32).tanh(), "finite in f32"),
    ];
    for (choice, end) in low {
        for fault in told(choice, Level::O0).1 {
            let (_, words) = fault.expect("a fault");
            assert!(words.ends_with(end), "{words}");
        }
    }
}
