//! The network of a run before its first step.

use std::collections::BTreeSet;

use precast::{
    Child, Plan, Policy,
    error::{Error, Result},
    io::models::Model,
    no_grad,
    optim::{Group, Schedule},
    plan::check_run,
    policy::Pattern,
    storage::Decorated,
};
use precast_base::{path::named, printable};

use super::{RunFile, Storage, data::Source};
use crate::{
    data::{Dataset, Split, Targets},
    training::{FitOptions, Loss},
};

/// A network ready to be trained.
pub(super) struct Prepared {
    pub net: Child,
    pub plan: Plan,
    pub storage: Option<Decorated>,
    /// Options with the loss of the data and the loss scale of the policy.
    pub options: FitOptions,
    /// Notes from calling the network on two examples.
    pub notes: Vec<String>,
}

pub(super) fn prepared(file: &RunFile, model: Model, policy: &Policy, data: &Split) -> Result<Prepared> {
    let mut net = model.net;
    file.freeze(&net)?;
    let (plan, storage) = file.wrap(&mut net, policy)?;
    let loss = file.loss().unwrap_or_else(|| Loss::usual(data.train.targets()));
    if file.standardize_targets && matches!(loss, Loss::BceWithLogits {}) {
        let words =
            "the loss bce_with_logits compares with numbers from 0 to 1, which `standardize_targets` would move";
        return Err(file.wrong("loss", Error::data(words)));
    }
    loss.check(data.train.targets()).map_err(|error| file.wrong("loss", error))?;
    file.options.augment.check(&data.train).map_err(|error| file.wrong("augment", error))?;
    let mut notes = check(file, &net, data, &loss)?;
    notes.extend(note_on_warm_up(&file.options, data.train.len()));
    notes.extend(note_on_length(&file.options, data.train.len()));
    notes.extend(note_on_patience(file));
    notes.extend(note_on_batch(&file.options, data.train.len()));
    notes.extend(note_on_statistics(&file.options, &net, data.train.len()));
    notes.extend(note_on_rates(&file.options, &net, data.train.len()));
    notes.extend(note_on_one_class(&data.train, &loss));
    if storage.is_none() && file.storage != Storage::Float32 {
        let words = "level O0 lowers nothing, so parameters are stored in float32";
        notes.push(format!("`storage: {}`: {words}; with a `dtype` they are stored low", file.storage.name()));
    }
    // The check made low-precision copies of the parameters. The first step makes new ones, like every other step.
    for (_, param) in net.params().iter() {
        param.set(&param.full())?;
    }
    let options = file.options.clone().loss(loss).loss_scale(policy.loss_scale.clone());
    Ok(Prepared { net, plan, storage, options, notes })
}

/// Returns the number of classes, without the label that the loss ignores.
fn classes(data: &Dataset, loss: &Loss) -> usize {
    let Loss::CrossEntropy { ignore_index: Some(ignored), .. } = loss else { return data.classes() };
    let labels = data.labels().iter().filter(|label| *label != ignored);
    let counted = labels.max().map_or(0, |&label| usize::try_from(label + 1).unwrap_or(0));
    counted.max(data.class_names().len())
}

/// Returns a note on a step of more examples than there are, unless its size is the default.
fn note_on_batch(options: &FitOptions, examples: usize) -> Option<String> {
    let FitOptions { batch, accumulate, .. } = *options;
    let (key, met) = match accumulate {
        1 if batch == FitOptions::default().batch => return None,
        _ if batch > examples => ("batch", batch.to_string()),
        1 => return None,
        _ => ("accumulate", format!("{accumulate} times {batch}")),
    };
    let words =
        format!("`{key}`: {met} is more than the {examples} training examples, so an epoch is one step of all of them");
    (batch.saturating_mul(accumulate) > examples).then_some(words)
}

/// Examples of which a batch norm takes usable statistics.
const USABLE: usize = 8;

/// Returns a note on batch norms that take their statistics of very few examples.
fn note_on_statistics(options: &FitOptions, net: &Child, examples: usize) -> Option<String> {
    let batch = options.batch.min(examples).div_ceil(options.shards.max(1));
    let mut norm = None;
    net.walk(&mut |entry| {
        let kind = entry.slot.cell.kind();
        // One of an image has many numbers for each channel.
        if kind == "BatchNorm1d" && norm.is_none() {
            norm = Some(named(entry.path).to_string());
        }
    });
    let norm = norm.filter(|_| batch < USABLE)?;
    Some(format!(
        "`batch`: the BatchNorm1d of {norm} takes mean and variance of {batch} examples, which are mostly noise; allowed: a larger \
         batch, or a LayerNorm, which has no such statistics"
    ))
}

/// Returns a note on a warm-up that the run does not end, or that comes before another one.
fn note_on_warm_up(options: &FitOptions, examples: usize) -> Option<String> {
    let (warm_up, steps) = (options.warm_up, options.steps(examples));
    match options.schedule {
        _ if warm_up > steps => Some(format!(
            "`warm_up`: the run has {steps} steps and a warm-up of {warm_up}, so the learning rate does not reach `lr`"
        )),
        Schedule::OneCycle if warm_up > 0 => {
            Some(format!("`warm_up`: `one-cycle` has a warm-up of its own, which follows the one of {warm_up} steps"))
        }
        _ => None,
    }
}

/// Returns a note on a schedule that begins to act after the end of the run.
fn note_on_length(options: &FitOptions, examples: usize) -> Option<String> {
    let steps = options.steps(examples).saturating_sub(options.warm_up);
    let (met, is_late) = match options.schedule {
        Schedule::Step { every, .. } => (format!("{steps} steps, and `every` is {every}"), every >= steps),
        Schedule::Restarts { every, .. } => (format!("{steps} steps, and `every` is {every}"), every > steps),
        // The rate falls behind the first epoch, those without a better score, and one more.
        Schedule::Plateau { patience, .. } => {
            let epochs = options.epochs;
            (format!("{epochs} epochs, and a patience of {patience}"), patience.saturating_add(2) >= epochs)
        }
        _ => return None,
    };
    let what = match options.schedule {
        Schedule::Restarts { .. } => "no wave ends",
        _ => "the learning rate does not fall",
    };
    (is_late && steps > 0).then(|| format!("`schedule`: the run has {met}, so {what}"))
}

/// Returns a note on a patience that ends no run of so many epochs.
fn note_on_patience(file: &RunFile) -> Option<String> {
    let (patience, epochs) = (file.patience?, file.options.epochs);
    (patience.saturating_add(1) >= epochs).then(|| {
        format!(
            "`patience`: a run of {epochs} epochs ends before {patience} without a better score follow the best one"
        )
    })
}

/// Returns whether targets are whole numbers, one for each example, of which there are at most as many as a model has outputs.
fn are_classes(train: &Dataset, outputs: &[usize]) -> bool {
    let (Targets::Numbers { shape, values }, &[_, classes]) = (train.targets(), outputs) else { return false };
    let different: BTreeSet<u32> = values.iter().map(|number| number.to_bits()).collect();
    let is_whole = |number: &f32| number.fract() == 0.0;
    shape.iter().product::<usize>() == 1 && classes > 1 && different.len() <= classes && values.iter().all(is_whole)
}

/// Number of steps whose learning rates are looked at.
const STEPS: usize = 1 << 16;

/// Share of the full learning rate below which the sum of a step and one at the full rate is the latter, in float32.
const LEAST: f64 = 1.0 / (1u32 << 24) as f64;

/// Returns a note on learning rates with which no step changes a parameter, or hardly so in a tenth of the run.
fn note_on_rates(options: &FitOptions, net: &Child, examples: usize) -> Option<String> {
    let FitOptions { lr, schedule, warm_up, ref groups, .. } = *options;
    let steps = options.steps(examples);
    let is_zero = |factor: f64| (lr * factor) as f32 == 0.0;
    let seen = steps.min(STEPS);
    // The number of steps up to the last one with such a factor.
    let until = |enough: &dyn Fn(f64) -> bool| {
        (0..seen).rev().find(|&step| enough(schedule.factor_after(warm_up, step, steps))).map_or(seen, |last| last + 1)
    };
    let (zero, small) = (until(&|factor| !is_zero(factor)), until(&|factor| factor.abs() >= LEAST));
    let words = if is_zero(1.0) {
        format!("`lr`: {lr:e} is 0 in float32")
    } else if zero < seen || 10 * small < 9 * seen {
        let (is, change) = match zero == small {
            true => ("0 in float32", "do not change"),
            false => ("below 2^-24 of `lr`", "hardly change"),
        };
        let cure = match schedule {
            Schedule::Step { .. } => {
                format!("; `every` counts steps, of which an epoch has {}", steps / options.epochs.max(1))
            }
            _ => String::new(),
        };
        let from = small + 1;
        return Some(format!(
            "`schedule`: the learning rate is {is} from step {from} of {steps} on, so these steps {change} the network{cure}"
        ));
    } else {
        // Patterns that cannot be read are refused with the optimizer.
        let patterns = groups.iter().map(|group| group.path.parse().ok()).collect::<Option<Vec<Pattern>>>()?;
        let factor = |path: &str| {
            let mut of = groups.iter().zip(&patterns).rev().filter(|(_, pattern)| Group::has(pattern, path));
            of.find_map(|(group, _)| group.lr_factor).unwrap_or(1.0)
        };
        let params = net.named_params();
        let mut trained = params.iter().filter(|(_, param)| param.is_trained()).peekable();
        if trained.peek().is_none() || !trained.all(|(path, _)| is_zero(factor(path))) {
            return None;
        }
        "`groups`: with `lr_factor`, the learning rate of every parameter is 0 in float32".into()
    };
    Some(format!("{words}, so no step changes the network"))
}

/// Returns a note on training examples of one class, which a network learns without their inputs.
fn note_on_one_class(train: &Dataset, loss: &Loss) -> Option<String> {
    let mut counted = train.labels().iter().filter(|label| loss.counts_class(**label));
    let first = counted.next()?;
    if train.len() < 2 || counted.any(|label| label != first) {
        return None;
    }
    let name = usize::try_from(*first).ok().and_then(|class| train.class_names().get(class));
    let name = name.map_or_else(|| first.to_string(), |name| printable(name).into_owned());
    Some(format!("every target of the training examples is of the class `{name}`, so there is nothing to tell apart"))
}

/// Calls the network on two examples, and returns notes on allowed but probably unintended results.
fn check(file: &RunFile, net: &Child, data: &Split, loss: &Loss) -> Result<Vec<String>> {
    let Some(batch) = data.test.try_batches(2)?.next().transpose()? else { return Ok(Vec::new()) };
    let (result, trace) = net.trace(|net| no_grad(|| batch.call(net)));
    let outputs =
        result.map_err(|e| e.context(format_args!("the model on examples of shape {:?}", data.test.shape())))?;
    check_run(net, &trace)?;
    let classes = classes(&data.train, loss).max(classes(&data.test, loss));
    let met = outputs.shape().last().copied().filter(|_| matches!(loss, Loss::CrossEntropy { .. }));
    let words = |met| {
        let numbers = if met == 1 { "number" } else { "numbers" };
        format!("the model returns {met} {numbers} for each target, and there are {classes} classes")
    };
    if let Some(met) = met.filter(|met| *met < classes) {
        let are_numbers = data.train.class_names().iter().all(|name| name.parse::<i64>().is_ok());
        let cure = match met == 1 && are_numbers {
            true => "; whole numbers are read as numbers, and not as classes, with `as: numbers`",
            false => "",
        };
        return Err(Error::data(format!("{}{cure}", words(met))));
    }
    if let (Loss::CrossEntropy { weight: Some(weight), .. }, Some(met)) = (loss, met)
        && weight.len() != met
    {
        let words = format!("`weight` has {} numbers, and the model returns {met} for each target", weight.len());
        return Err(file.wrong("loss", Error::data(words).about("weight")));
    }
    let _ = loss.of(&outputs, &batch.y).map_err(|error| {
        let error = error.context("the loss of what the model returns");
        match are_classes(&data.train, outputs.shape()) && matches!(file.data, Source::Csv(_)) {
            true => Error::data(format!("{error}; whole numbers are read as classes with `as: classes`")),
            false => error,
        }
    })?;
    Ok(met.filter(|met| outputs.rank() == 2 && *met > classes).map(words).into_iter().collect())
}
