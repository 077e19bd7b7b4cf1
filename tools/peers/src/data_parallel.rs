//! Steps over ranks compared with torch's `DistributedDataParallel`: the gradients of one batch on 1, 2 and 4 ranks.

use std::{collections::HashSet, fmt::Write as _, time::Duration};

use precast::{Child, CrossEntropy, DType, Error, LossScale, Optimizer, Outcome, Result, Sgd, Tensor};
use precast_mpi::{Ranks, Threads, Wire};
use precast_train::{
    DataParallel,
    data::{Batch, IGNORED},
};
use serde_json::{Value, json};

use crate::{
    draw::{Draw, Values},
    layers::{network, parameters},
    peer::Peer,
    training::{CLASSES, description},
};

const RANKS: [usize; 3] = [1, 2, 4];
const SHARDS: usize = 4;
const EXAMPLES: usize = 32;
/// Targets that are ignored, in each quarter of the batch.
const UNEVEN: [usize; 4] = [7, 0, 3, 5];

/// Bound on the difference of a gradient, relative to the largest number of its tensor.
const BOUND: f64 = 1e-6;
/// The difference from the gradient of the whole batch which a mean of means has at least.
const MEAN_OF_MEANS: f64 = 1e-2;

/// Gradients, one array for each parameter.
type Gradients = Vec<Vec<f64>>;

/// A network and a batch.
struct Run {
    network: &'static str,
    ignored: [usize; SHARDS],
}

/// Gradients on one number of ranks.
struct Divided {
    ranks: usize,
    /// Checksums of all bits.
    torch: u64,
    ours: u64,
    /// Largest difference of ours from those of torch's processes.
    apart: f64,
    /// Largest differences from torch's gradient of the whole batch in one process, in f64.
    torch_from_whole: f64,
    ours_from_whole: f64,
}

/// Compares all runs, and returns a table and what is not as it should be.
pub fn compare(peer: &mut Peer, seed: u64) -> std::result::Result<(String, Vec<String>), String> {
    let runs: Vec<Run> = ["mlp", "normed", "plain cnn"]
        .into_iter()
        .flat_map(|network| [[0; SHARDS], UNEVEN].map(|ignored| Run { network, ignored }))
        .collect();
    let (mut abouts, mut arrays, mut ours) = (Vec::new(), Vec::new(), Vec::new());
    for run in &runs {
        let (about, sent, by_ranks) = run.ours(seed).map_err(|error| format!("{}: {error}", run.name()))?;
        abouts.push(about);
        arrays.extend(sent);
        ours.push(by_ranks);
    }
    let question = json!({"ask": "data parallel", "runs": abouts, "processes": RANKS});
    let mut answer = peer.ask(question, &arrays)?.1.into_iter();
    let mut table = String::from("run\tranks\ttorch\tours\tapart\ttorch_from_whole\tours_from_whole\n");
    let mut failures = Vec::new();
    for (run, ours) in runs.iter().zip(ours) {
        let mut next = || -> Gradients { answer.by_ref().take(ours[0].len()).collect() };
        let whole = next();
        let divided = |(ranks, ours): (usize, &Gradients)| {
            let torch = next();
            Divided {
                ranks,
                torch: checksum(&torch),
                ours: checksum(ours),
                apart: apart(ours, &torch),
                torch_from_whole: apart(&torch, &whole),
                ours_from_whole: apart(ours, &whole),
            }
        };
        let all: Vec<Divided> = RANKS.into_iter().zip(&ours).map(divided).collect();
        for Divided { ranks, torch, ours, apart, torch_from_whole, ours_from_whole } in &all {
            let _ = write!(table, "{}\t{ranks}\t{torch:016x}\t{ours:016x}\t", run.name());
            let _ = writeln!(table, "{apart:.1e}\t{torch_from_whole:.1e}\t{ours_from_whole:.1e}");
        }
        failures.extend(run.judge(&all).map(|why| format!("{}: {why}", run.name())));
    }
    Ok((table, failures))
}

impl Run {
    fn is_even(&self) -> bool {
        self.ignored == [0; SHARDS]
    }

    fn name(&self) -> String {
        let [a, b, c, d] = self.ignored;
        match self.is_even() {
            true => self.network.into(),
            false => format!("{}, {a}, {b}, {c} and {d} of 8 targets ignored", self.network),
        }
    }

    /// Returns what differs from the bounds, and from what COMPARE.md says of torch.
    fn judge(&self, all: &[Divided]) -> impl Iterator<Item = String> {
        let mut wrong = Vec::new();
        let distinct = |checksum: fn(&Divided) -> u64| all.iter().map(checksum).collect::<HashSet<_>>().len();
        let (ours, torch) = (distinct(|one| one.ours), distinct(|one| one.torch));
        if ours != 1 {
            wrong.push(format!("{ours} results here on {RANKS:?} ranks, 1 expected"));
        }
        if torch != RANKS.len() {
            wrong.push(format!(
                "{torch} results of torch on {RANKS:?} processes, where COMPARE.md says {}",
                RANKS.len()
            ));
        }
        for one in all {
            let ranks = one.ranks;
            let mut bounded = |name: &str, met: f64| {
                if met.is_nan() || met > BOUND {
                    wrong.push(format!("{name} {met:.1e} apart on {ranks} ranks, {BOUND:.0e} allowed"));
                }
            };
            bounded("our gradients and that of the whole batch", one.ours_from_whole);
            if self.is_even() || ranks == 1 {
                bounded("our gradients and torch's", one.apart);
            } else if one.torch_from_whole < MEAN_OF_MEANS {
                wrong.push(format!("torch on {ranks} processes has no mean of means, where COMPARE.md says so"));
            }
        }
        wrong.into_iter()
    }

    /// Returns what torch needs, its arrays, and our gradients for each number of ranks.
    fn ours(&self, seed: u64) -> Result<(Value, Vec<Vec<f64>>, Vec<Gradients>)> {
        let (layer, input) = description(self.network);
        let mut draw = Draw::new(seed, DType::F32, Values::Plain);
        let net = network(&layer, &mut draw)?;
        let (abouts, values) = parameters(&net);
        let x = draw.float(&[&[EXAMPLES], &input[..]].concat())?;
        let mut classes: Vec<i64> = draw.indices(&[EXAMPLES], CLASSES)?.to_vec()?;
        for (quarter, ignored) in classes.chunks_mut(EXAMPLES / SHARDS).zip(self.ignored) {
            quarter[..ignored].fill(IGNORED);
        }
        let batch = Batch { x, further: Vec::new(), y: Tensor::from_vec(classes, &[EXAMPLES])? };
        let mut by_ranks = Vec::new();
        for ranks in RANKS {
            let step = |ranks: &Ranks| gradients(ranks, &layer, seed, &batch);
            let all = Threads::run(ranks, &[], Duration::from_secs(60), step).map_err(Error::ranks)?;
            by_ranks.push(all.into_iter().next().unwrap_or_else(|| Ok(Vec::new()))?);
        }
        let arrays = values.into_iter().chain([batch.x.to_f64(), batch.y.to_f64()]).collect();
        Ok((json!({"layer": layer, "parameters": abouts, "input": input}), arrays, by_ranks))
    }
}

/// Takes a step on a rank, and returns the sum of the gradients of all shards.
fn gradients(ranks: &Ranks, layer: &Value, seed: u64, batch: &Batch) -> Result<Gradients> {
    let mut net = network(layer, &mut Draw::new(seed, DType::F32, Values::Plain))?;
    // The running average of gradients is the gradient itself after one step.
    let (mut optimizer, mut scale) = (Sgd::new(net.params(), 0.01).momentum(0.9), LossScale::none());
    let mut parallel = DataParallel::new(ranks, SHARDS, Wire::Float32)?;
    parallel.begin(&mut net, &mut [&mut optimizer], &mut scale)?;
    net.set_train(true);
    let options = CrossEntropy::default().ignore_index(IGNORED);
    let loss = |net: &Child, shard: &Batch| net.call(&shard.x)?.cross_entropy_with(&shard.y, &options);
    let outcome = parallel.step(&net, &mut optimizer, &mut scale, batch, loss)?;
    if outcome != Outcome::Stepped {
        return Err(Error::gradient("a step was skipped"));
    }
    let state = optimizer.state();
    let average = |path: &str| {
        let of_path = |(name, _): &&(String, Tensor)| name.rsplit_once('/').is_some_and(|(found, _)| found == path);
        let (_, average) =
            state.tensors.iter().find(of_path).ok_or_else(|| Error::gradient(format!("{path} has none")))?;
        Ok(average.to_f64())
    };
    net.named_params().iter().map(|(path, _)| average(path)).collect()
}

/// Returns a checksum of the bits of numbers in f32: FNV-1a over words.
fn checksum(gradients: &Gradients) -> u64 {
    let words = gradients.iter().flatten().map(|x| u64::from((*x as f32).to_bits()));
    words.fold(0xcbf2_9ce4_8422_2325, |sum, word| (sum ^ word).wrapping_mul(0x100_0000_01b3))
}

/// Returns the largest difference from what is expected, relative to the largest number of a tensor.
fn apart(met: &Gradients, expected: &Gradients) -> f64 {
    let of_tensor = |(met, expected): (&Vec<f64>, &Vec<f64>)| {
        let largest = expected.iter().fold(f64::MIN_POSITIVE, |most, x| most.max(x.abs()));
        let differences = met.iter().zip(expected).map(|(a, b)| (a - b).abs() / largest);
        match met.len() == expected.len() {
            true => differences.fold(0.0, |most: f64, x| if x.is_nan() { f64::INFINITY } else { most.max(x) }),
            false => f64::INFINITY,
        }
    };
    met.iter().zip(expected).map(of_tensor).fold(0.0, f64::max)
}
