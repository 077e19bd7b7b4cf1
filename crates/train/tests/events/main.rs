//! Events of the crate `tracing`, as received by a subscriber.

use std::{
    fmt::{Debug, Write},
    fs,
    sync::{Arc, Mutex},
};

use precast::{policy::LossScaleSpec, prelude::*, storage::weights};
use precast_train as train;
use precast_train::data::Split;
use tracing::{
    Event, Metadata, Subscriber,
    field::{Field, Visit},
    span,
};

#[path = "../../../../tests/common/mod.rs"]
mod common;
use common::folder::Folder;

/// A subscriber that collects events as lines: `INFO plan applied level=O2 ...`.
#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<String>>>);

/// The text of one event, including its field `message`.
#[derive(Default)]
struct Line {
    message: String,
    fields: String,
}

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        match field.name() {
            "message" => write!(self.message, "{value:?}").unwrap(),
            name => write!(self.fields, " {name}={value:?}").unwrap(),
        }
    }
}

impl Subscriber for Lines {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target() == "precast"
    }

    fn event(&self, event: &Event<'_>) {
        let mut line = Line::default();
        event.record(&mut line);
        let level = event.metadata().level();
        self.0.lock().unwrap().push(format!("{level} {}{}", line.message, line.fields));
    }

    fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
        span::Id::from_u64(1)
    }

    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}
    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}
    fn enter(&self, _: &span::Id) {}
    fn exit(&self, _: &span::Id) {}
}

/// Returns the result of `f` along with its events.
fn events<R>(f: impl FnOnce() -> Result<R>) -> (R, Vec<String>) {
    let lines = Lines::default();
    let result = tracing::subscriber::with_default(lines.clone(), f).unwrap();
    let mut lines = lines.0.lock().unwrap().clone();
    // Once in a process, in whichever test is first.
    lines.retain(|line| line != "WARN built without optimization");
    (result, lines)
}

fn dense() -> Child<Dense> {
    Child::new(Dense::new(2, 1, &mut Rng::seed(1)))
}

#[test]
fn a_plan_is_reported_when_it_is_applied_and_when_it_is_undone() {
    let mut net = dense();
    let (applied, lines) = events(|| auto_mixed_precision(&mut net, Level::O2, DType::F16));
    assert_eq!(lines, [r#"INFO plan applied level=O2 dtype=f16 cells=1 wrapped=1 changed=1"#]);
    let (_, lines) = events(|| applied.undo(&mut net));
    assert_eq!(lines, ["INFO plan undone level=O2 cells=1"]);
}

#[test]
fn skipped_steps_report_a_cause_and_stalled_ones_an_error() {
    let weight = Param::new(Tensor::ones(&[1], DType::F32));
    let mut optimizer = Sgd::new([weight.clone()].into_iter().collect(), 0.1);
    let loss = |factor: f64| weight.tensor().mul(&Tensor::full(&[1], factor, DType::F32))?.sum_all();
    let mut scale = LossScale::dynamic();
    // 1e36 is finite in f32, and 65536e36 is not.
    let (outcome, lines) = events(|| scale.step(&mut optimizer, &loss(1e36)?));
    assert!(matches!(outcome, Outcome::Skipped { .. }));
    assert_eq!(
        lines,
        [
            "WARN step skipped cause=a gradient was not finite at loss scale 65536, first seen in `0` skipped=1 scale=65536.0",
            "DEBUG loss scale shrinks from=65536.0 to=32768.0",
        ]
    );
    let (_, lines) = events(|| scale.step(&mut optimizer, &loss(1.0)?));
    assert!(lines.is_empty(), "an ordinary step is not reported: {lines:?}");

    let mut none = LossScale::none();
    let (_, lines) = events(|| (0..20).try_for_each(|_| none.step(&mut optimizer, &loss(f64::NAN)?).map(drop)));
    assert_eq!(lines.len(), 20);
    assert!(lines[18].starts_with("WARN step skipped cause=the loss itself was not finite"), "{}", lines[18]);
    assert!(lines[19].starts_with("ERROR training has stalled"), "{}", lines[19]);
    assert!(lines[19].ends_with("skipped=20 scale=1.0"), "{}", lines[19]);
}

#[test]
fn overflows_report_each_skipped_step_and_each_change_of_scale() {
    let weight = Param::new(Tensor::ones(&[1], DType::F32));
    let mut optimizer = Sgd::new([weight.clone()].into_iter().collect(), 0.1);
    let mut scale = LossScale::dynamic();
    // The slope of a root at 0 is infinite at any scale.
    let storm = || {
        (0..1000).try_for_each(|_| {
            let w = weight.tensor();
            let outcome = scale.step(&mut optimizer, &w.sub(&w.detach())?.sqrt()?.sum_all()?)?;
            assert_ne!(outcome, Outcome::Stepped);
            Ok(())
        })
    };
    let (_, lines) = events(storm);
    let count = |begins: &str| lines.iter().filter(|line| line.starts_with(begins)).count();
    // 65536 is 2^16; at 1 the scale stays. 20 steps in a row are a stall.
    let met = (count("DEBUG loss scale shrinks"), count("WARN step skipped"), count("ERROR training has stalled"));
    assert_eq!((met, lines.len()), ((16, 19, 981), 1016));
}

#[test]
fn files_are_reported_with_their_names() {
    let folder = Folder::new("events");
    let (file, policy) = (folder.at("net.safetensors"), folder.at("policy.yaml"));
    let net = dense();
    let (_, lines) = events(|| weights::save(&net, &file));
    let bytes = fs::metadata(&file).unwrap().len();
    assert_eq!(lines, [format!("INFO weights written file={} bytes={bytes}", file.display())]);
    let (_, lines) = events(|| weights::load(&net, &file));
    assert_eq!(lines, [format!("INFO weights read file={} bytes={bytes}", file.display())]);
    fs::write(&policy, "version: 1\nlevel: O2\ndtype: bfloat16\n").unwrap();
    let (_, lines) = events(|| Policy::load(&policy));
    assert_eq!(lines, [format!("DEBUG policy read file={:?} level=O2 dtype=bf16", policy.display().to_string())]);
    // Failures are errors for the caller, not events.
    fs::write(&file, "").unwrap();
    let (refused, lines) = events(|| Ok(weights::load(&net, &file)));
    assert!(refused.is_err() && lines.is_empty(), "{lines:?}");
}

#[test]
fn lost_updates_are_warned_of_once() {
    let net = Child::new(Dense::new(2, 2, &mut Rng::seed(1)));
    decorate(&net, Decorate::new(DType::Bf16).masters(false)).unwrap();
    let mut optimizer = Sgd::new(net.params().filter(|path, _| path == "weight"), 1e-5).count_lost_updates();
    let mut grads = precast::Grads::default();
    grads.set(&net.cell().weight, Tensor::ones(&[2, 2], DType::F32));
    let (_, lines) = events(|| (0..3).try_for_each(|_| optimizer.update(&grads)));
    assert_eq!(lines, ["WARN rounding loses updates path=\"weight\" share=1.0"]);
}

#[test]
fn f16_without_a_loss_scale_is_warned_of_once() {
    let net = dense().to_float(DType::F16).unwrap();
    let mut optimizer = Sgd::new(net.params(), 0.1);
    let loss = net.call(&Tensor::ones(&[1, 2], DType::F32)).unwrap().sum_all().unwrap();
    let grads = loss.backward().unwrap();
    let (_, lines) = events(|| (0..3).try_for_each(|_| optimizer.update(&grads)));
    assert_eq!(lines, ["WARN gradients in float16 without a loss scale cell=\"weight\""]);
}

/// Through casts and changes of shape; what the loss takes is none of its own, and needs no word.
#[test]
fn a_loss_after_the_wrong_op_is_warned_of_once() {
    let rng = &mut Rng::seed(1);
    let x = Tensor::ones(&[2, 3], DType::F32);
    let mut wrong = Child::new(sequential![Dense::new(3, 2, rng), Softmax::default()]);
    auto_mixed_precision(&mut wrong, Level::O2, DType::Bf16).unwrap();
    let classes = Tensor::from([1i64, 0]);
    let (_, lines) =
        events(|| (0..3).try_for_each(|_| wrong.call(&x)?.reshape(&[2, 2])?.cross_entropy(&classes).map(|_| ())));
    assert_eq!(lines, ["WARN loss of another kind of number loss=\"CrossEntropy\" after=\"Softmax\""]);
    let net = Child::new(Dense::new(3, 2, rng));
    let ones = Tensor::ones(&[2, 2], DType::F32);
    let (_, lines) = events(|| {
        let y = net.call(&x)?;
        y.cross_entropy(&classes)?;
        y.log_softmax(-1)?.nll_loss(&classes, Reduction::Mean)?;
        y.sigmoid()?.binary_cross_entropy(&ones, Reduction::Mean)?;
        y.bce_with_logits(&y.sigmoid()?.detach(), Reduction::Mean)
    });
    assert_eq!(lines, [""; 0]);
    let (_, lines) = events(|| net.call(&x)?.sigmoid()?.bce_with_logits(&ones, Reduction::Mean));
    assert_eq!(lines, ["WARN loss of another kind of number loss=\"BceWithLogits\" after=\"Sigmoid\""]);
}

/// Outputs of shape [n, 1] and targets of shape [n] have n² differences. In a cell, and between two results, that is meant.
#[test]
fn a_difference_of_a_column_and_a_row_is_warned_of_once() {
    let net = Child::new(Dense::new(3, 1, &mut Rng::seed(1)));
    let (x, y) = (Tensor::ones(&[4, 3], DType::F32), Tensor::ones(&[4], DType::F32));
    let (_, lines) = events(|| {
        let out = net.call(&x)?;
        out.sub(&out.squeeze(1)?)?;
        out.squeeze(1)?.sub(&y)?;
        out.detach().sub(&y)?;
        net.with(&out, |_, out| out.sub(&y))
    });
    assert_eq!(lines, [""; 0]);
    let (_, lines) = events(|| (0..3).try_for_each(|_| y.sub(&net.call(&x)?)?.square()?.mean_all().map(|_| ())));
    assert_eq!(lines, ["WARN difference of a column and a row n=4"]);
}

#[test]
fn epochs_and_stored_parameters_are_reported() {
    let examples = train::data::Dataset::new(vec![0.0, 1.0, 1.0, 0.0], &[2], vec![0, 1]).unwrap();
    let data = Split { train: examples.clone(), test: examples };
    let mut net = Child::new(Dense::new(2, 2, &mut Rng::seed(1)));
    let options = train::FitOptions::default().epochs(2).loss_scale(LossScaleSpec::None);
    let (history, lines) = events(|| train::fit(&mut net, &data, &options, &mut |_| {}));
    let expected = history.epochs.iter().enumerate().map(|(i, epoch)| {
        format!("INFO epoch finished epoch={i} loss={:?} accuracy={:?}", epoch.loss, epoch.score.accuracy().unwrap())
    });
    assert_eq!(lines, expected.collect::<Vec<_>>());
    let (_, lines) = events(|| decorate(&net, Decorate::new(DType::F16)));
    assert_eq!(lines, ["INFO parameters decorated dtype=f16 stored_low=2 kept=0 masters=true"]);
}

/// Makes a backbone with a batch norm, and a head with dropout, at `0` and `1`.
fn with_modes() -> Child {
    let rng = &mut Rng::seed(1);
    let backbone = sequential![Dense::new(2, 4, rng), BatchNorm1d::new(4)];
    let head = sequential![Dense::new(4, 4, rng), Dropout::new(0.5, rng), Dense::new(4, 1, rng)];
    Child::of(sequential![backbone, head])
}

/// Returns the warnings of steps with one optimizer.
fn warnings(net: &Child, optimizer: &mut Sgd, steps: usize) -> Vec<String> {
    let x = Tensor::from_f64(&[1.0, 2.0, -1.0, 0.5], &[2, 2], DType::F32).unwrap();
    let step = |_| {
        let _outcome = LossScale::none().step(optimizer, &net.call(&x)?.cast(DType::F32).sum_all()?)?;
        Ok(())
    };
    events(|| (0..steps).try_for_each(step)).1
}

#[test]
fn a_rewritten_graph_that_trains_in_evaluation_is_warned_of() {
    let x = Tensor::from_f64(&[1.0, 2.0, -1.0, 0.5], &[2, 2], DType::F32).unwrap();
    for (training, told) in [(false, &["WARN trained in evaluation cell=\"0.1\""][..]), (true, &[])] {
        let mut net = with_modes();
        net.set_train(training);
        let mut step =
            precast_graph::tensorflow::enable_mixed_precision_graph_rewrite(Sgd::new(net.params(), 0.1), "none")
                .unwrap();
        let mut once = || step.step(&net, std::slice::from_ref(&x), |net, x| net.call(&x[0])?.sum_all());
        let (_, lines) = events(|| once().and_then(|_| once()));
        assert_eq!(lines.iter().filter(|line| line.contains("evaluation")).collect::<Vec<_>>(), told);
    }
}

#[test]
fn training_in_evaluation_is_warned_of_once() {
    let told = ["WARN trained in evaluation cell=\"0.1\""];
    let mut net = with_modes();
    let optimizer = |net: &Child| Sgd::new(net.params(), 0.1);
    let mut first = optimizer(&net);
    assert_eq!(warnings(&net, &mut first, 3), told);
    assert_eq!(warnings(&net, &mut first, 1), [""; 0], "once for an optimizer");
    assert_eq!(warnings(&net, &mut optimizer(&net).in_evaluation(), 1), [""; 0], "it is on purpose");
    net.set_train(true);
    let mut trained = optimizer(&net);
    assert_eq!(warnings(&net, &mut trained, 2), [""; 0]);
    // Back in evaluation to look at it, and left there by mistake.
    net.set_train(false);
    assert_eq!(warnings(&net, &mut trained, 2), told);
    // Wrapped, and with recomputed activations.
    let mut lean = with_modes().recompute();
    let mut plain = with_modes();
    auto_mixed_precision(&mut plain, Level::O2, DType::Bf16).unwrap();
    for net in [&mut lean, &mut plain] {
        assert_eq!(warnings(net, &mut optimizer(net), 1), told);
    }
}

/// Adapters and unfrozen cells; parameters left out on purpose and those of another optimizer are no reason.
#[test]
fn parameters_that_came_after_their_optimizer_are_warned_of_once() {
    let rng = &mut Rng::seed(3);
    let mut net = Child::of(sequential![Dense::new(2, 4, rng), Dense::new(4, 2, rng)]);
    net.set_train(true);
    let all = |net: &Child| Sgd::new(net.params(), 0.1);
    let mut whole = all(&net);
    assert_eq!(warnings(&net, &mut whole, 2), [""; 0]);
    let told = |n: usize| vec![format!("WARN trained parameters are in no optimizer parameters={n}")];

    let mut cells: Vec<Child> = vec![Dense::new(2, 4, rng).into(), Dense::new(4, 2, rng).into()];
    let mut part = Sgd::new(cells[0].params(), 0.1);
    LoRA::adapt(&mut cells[1], 2, 4.0, rng).unwrap();
    let net = Child::of(Sequential::new(cells));
    assert_eq!(warnings(&net, &mut part, 3), told(2), "the two matrices of the adapter, once");
    assert_eq!(warnings(&net, &mut all(&net), 1), [""; 0]);

    // Left out on purpose.
    let net = Child::of(sequential![Dense::new(2, 4, rng), Dense::new(4, 2, rng)]);
    let mut head = Sgd::new(net.params().filter(|path, _| path.starts_with('0')), 0.1);
    assert_eq!(warnings(&net, &mut head, 1), [""; 0]);

    let net = Child::of(sequential![Dense::new(2, 4, rng), Dense::new(4, 2, rng)]);
    assert_eq!(net.freeze("0").unwrap(), 2);
    let mut optimizer = all(&net);
    assert_eq!(warnings(&net, &mut optimizer, 1), [""; 0]);
    assert_eq!(net.unfreeze("0.weight").unwrap(), 1);
    assert_eq!(warnings(&net, &mut optimizer, 2), told(1));
}

#[test]
fn a_part_that_is_not_trained_may_be_in_evaluation() {
    let mut net = with_modes();
    let of = |net: &Child, part: &str| Sgd::new(net.params().filter(|path, _| path.starts_with(part)), 0.1);
    // The dropout of the head, as the backbone is not trained.
    assert_eq!(warnings(&net, &mut of(&net, "1."), 1), ["WARN trained in evaluation cell=\"1.1\""]);
    net.walk_mut(&mut |path, slot| slot.cell.on_train(path.starts_with('1')));
    assert_eq!(warnings(&net, &mut of(&net, "1."), 1), [""; 0]);
    assert_eq!(warnings(&net, &mut of(&net, "0."), 1), ["WARN trained in evaluation cell=\"0.1\""]);
    // Nor does a pass off the tape count as training.
    let frozen = with_modes();
    let mut head = Child::of(sequential![Dense::new(1, 1, &mut Rng::seed(2))]);
    head.set_train(true);
    let x = Tensor::ones(&[2, 2], DType::F32);
    let mut optimizer = Sgd::new(head.params(), 0.1);
    let (_, lines) = events(|| {
        let features = precast::no_grad(|| frozen.call(&x))?;
        optimizer.update(&head.call(&features)?.sum_all()?.backward()?)
    });
    assert_eq!(lines, [""; 0]);
}

#[test]
fn accumulated_gradients_and_several_optimizers_remember_it() {
    let net = with_modes();
    let loss = |x: f64| net.call(&Tensor::full(&[2, 2], x, DType::F32))?.sum_all();
    let part = |part: &'static str| Sgd::new(net.params().filter(move |path, _| path.starts_with(part)), 0.1);
    let (mut backbone, mut head) = (part("0."), part("1."));
    let mut scale = LossScale::dynamic();
    let (_, lines) = events(|| {
        let mut sum = scale.scale(&loss(1.0)?)?.backward()?;
        sum.accumulate(scale.scale(&loss(2.0)?)?.backward()?)?;
        for optimizer in [&mut backbone, &mut head] {
            let grads = sum.unscale(optimizer.params())?;
            assert_eq!(scale.apply(optimizer, &grads)?, Outcome::Stepped);
        }
        scale.update()
    });
    assert_eq!(lines, ["0.1", "1.1"].map(|cell| format!("WARN trained in evaluation cell={cell:?}")));
}
