//! A run resumed from a checkpoint is bitwise identical to one that was not stopped; a checkpoint that is damaged or
//! belongs to another run is refused, and nothing is changed.

use std::fs;

use precast::{
    prelude::*,
    storage::weights::{self, LoadOptions},
};

use crate::common::folder::Folder;

/// Makes a network with running statistics, dropout and a parameter used twice.
fn net(seed: u64) -> Child {
    let rng = &mut Rng::seed(seed);
    let tied = Child::new(Dense::new(64, 64, rng));
    let again = tied.clone();
    let mut net = Child::of(sequential![
        Dense::new(4, 64, rng),
        BatchNorm1d::new(64),
        tied,
        Dropout::new(0.3, rng),
        again,
        Dense::new(64, 3, rng)
    ]);
    net.set_train(true);
    net
}

/// Storage and stepping of a run.
#[derive(Clone, Copy, Debug)]
enum Way {
    F32,
    O2(DType),
    Masters,
    Stochastic,
    Kahan,
    EightBit,
}

const WAYS: [Way; 7] =
    [Way::F32, Way::O2(DType::F16), Way::O2(DType::Bf16), Way::Masters, Way::Stochastic, Way::Kahan, Way::EightBit];

struct Run {
    net: Child,
    optimizer: Adam,
    scale: LossScale,
    step: u64,
}

impl Run {
    /// Makes a run. The seed does not matter when a checkpoint is restored.
    fn new(way: Way, seed: u64) -> Run {
        let mut net = net(seed);
        let bf16 = || Decorate::new(DType::Bf16);
        let storage = match way {
            Way::Masters => Some(Decorate::new(DType::F16)),
            Way::Stochastic => Some(bf16().masters(false).stochastic_rounding(5)),
            Way::Kahan => Some(bf16().masters(false).kahan()),
            Way::F32 | Way::O2(_) | Way::EightBit => None,
        };
        if let Some(storage) = storage {
            decorate(&net, storage.exclude_kind("BatchNorm1d")).unwrap();
        }
        match way {
            Way::F32 | Way::EightBit => {}
            Way::O2(dtype) => drop(auto_mixed_precision(&mut net, Level::O2, dtype).unwrap()),
            Way::Masters => drop(auto_mixed_precision(&mut net, Level::O2, DType::F16).unwrap()),
            Way::Stochastic | Way::Kahan => drop(auto_mixed_precision(&mut net, Level::O2, DType::Bf16).unwrap()),
        }
        let optimizer = Adam::new(net.params(), 0.01);
        let optimizer = if matches!(way, Way::EightBit) { optimizer.state_8bit(true) } else { optimizer };
        let scale = match way {
            Way::O2(DType::F16) | Way::Masters => LossScale::dynamic(),
            _ => LossScale::none(),
        };
        Run { net, optimizer, scale, step: 0 }
    }

    fn train(&mut self, steps: u64) {
        for _ in 0..steps {
            let x = Tensor::randn(&[5, 4], &mut Rng::seed(100 + self.step)).unwrap();
            let y = Tensor::from_vec(vec![0i64, 1, 2, 0, 1], &[5]).unwrap();
            let loss = self.net.call(&x).unwrap().cross_entropy(&y).unwrap();
            let _outcome = self.scale.step(&mut self.optimizer, &loss).unwrap();
            self.step += 1;
        }
    }

    fn checkpoint(&self) -> Checkpoint {
        Checkpoint::of(&self.net, &[&self.optimizer], &self.scale).counting("step", self.step)
    }

    fn restore(&mut self, checkpoint: &Checkpoint) -> Result<()> {
        checkpoint.restore(&mut self.net, &mut [&mut self.optimizer], &mut self.scale)?;
        self.step = checkpoint.count("step").unwrap();
        Ok(())
    }

    /// Returns all bits of the parameters, the masters and the optimizer.
    fn bits(&self) -> Vec<(String, Vec<u64>)> {
        let of = |name: String, x: &Tensor| (name, x.to_f64().into_iter().map(f64::to_bits).collect());
        let params = self.net.named_params();
        let mut all: Vec<_> = params.iter().map(|(path, param)| of(path.clone(), &param.value())).collect();
        all.extend(params.iter().filter_map(|(path, param)| Some(of(format!("{path} master"), &param.master()?))));
        all.extend(self.optimizer.state().tensors.into_iter().map(|(name, x)| of(name, &x)));
        all
    }
}

#[test]
fn a_run_goes_on_with_the_same_bits() {
    for way in WAYS {
        let folder = Folder::new(&format!("checkpoint-{way:?}").replace(['(', ')'], "-"));
        let file = &folder.at("run.safetensors");
        let mut whole = Run::new(way, 1);
        whole.train(9);
        for stop in [0, 1, 4, 8] {
            let mut first = Run::new(way, 1);
            first.train(stop);
            first.checkpoint().save(file).unwrap();
            let mut second = Run::new(way, 2);
            second.restore(&Checkpoint::load(file).unwrap()).unwrap();
            assert_eq!(second.bits(), first.bits(), "{way:?} at {stop}");
            second.train(9 - stop);
            assert_eq!(second.bits(), whole.bits(), "{way:?} from {stop}");
            assert_eq!(second.scale, whole.scale, "{way:?} from {stop}");
        }
    }
}

#[test]
fn several_optimizers_and_a_policy_are_kept() {
    let net = net(1);
    let (one, two) = (Sgd::new(net.params(), 0.1).momentum(0.9), Adam::new(net.params(), 0.1));
    let policy = Policy::named("o2-bf16").unwrap();
    let folder = Folder::new("several");
    let path = &folder.at("run.safetensors");
    Checkpoint::of(&net, &[&one, &two], &LossScale::none()).under(&policy).unwrap().save(path).unwrap();
    let checkpoint = Checkpoint::load(path).unwrap();
    assert_eq!(checkpoint.policy().unwrap().unwrap().level, Level::O2);
    assert_eq!(checkpoint.count("epoch"), None);
    let (mut net, mut other) = (super_net(), Adam::new(net.params(), 0.1));
    let (mut a, mut b) = (Sgd::new(net.params(), 0.1).momentum(0.9), Adam::new(net.params(), 0.1));
    let scale = &mut LossScale::none();
    checkpoint.restore(&mut net, &mut [&mut a, &mut b], scale).unwrap();
    let error = checkpoint.restore(&mut net, &mut [&mut b, &mut a], scale).unwrap_err();
    assert!(error.to_string().starts_with("optimizer 0: the state is one of the optimizer `sgd`"), "{error}");
    let error = checkpoint.restore(&mut net, &mut [&mut other], scale).unwrap_err();
    assert_eq!(error.to_string(), "the checkpoint has the state of 2 optimizers, and 1 are given");
}

fn super_net() -> Child {
    net(3)
}

#[test]
fn another_run_is_refused_and_stays_as_it_was() {
    let mut run = Run::new(Way::F32, 1);
    run.train(2);
    let checkpoint = run.checkpoint();

    let mut stored = Run::new(Way::Masters, 2);
    let before = stored.bits();
    let message = stored.restore(&checkpoint).unwrap_err().to_string();
    let words = "- `0.weight` is stored as float32 in the checkpoint, and as float16 with a float32 master here";
    assert!(message.contains(words), "{message}");
    assert_eq!(stored.bits(), before);

    // The optimizer is refused after the network was found to fit: parameters and dropout stay unchanged as well.
    let mut eight = Run::new(Way::EightBit, 2);
    eight.train(1);
    let before = (eight.bits(), eight.net.at("3", |slot| slot.cell.counters()).unwrap());
    let mut sgd = Sgd::new(eight.net.params(), 0.1);
    for i in 0..2 {
        let both: &mut [&mut dyn Optimizer] = if i == 0 { &mut [&mut sgd] } else { &mut [&mut eight.optimizer] };
        let error = checkpoint.restore(&mut eight.net, both, &mut eight.scale).unwrap_err();
        assert!(error.to_string().starts_with("optimizer 0: "), "{error}");
    }
    assert_eq!((eight.bits(), eight.net.at("3", |slot| slot.cell.counters()).unwrap()), before);

    let rng = &mut Rng::seed(1);
    let mut other = Child::of(sequential![Dense::new(4, 64, rng), BatchNorm1d::new(64), Dense::new(64, 5, rng)]);
    let mut optimizer = Adam::new(other.params(), 0.01);
    let error = checkpoint.restore(&mut other, &mut [&mut optimizer], &mut LossScale::none()).unwrap_err();
    assert_eq!(
        error.to_string(),
        "5 differences:\n\
         - `2.weight` is tied to `4.weight` in the checkpoint, and to nothing here\n\
         - `2.bias` is tied to `4.bias` in the checkpoint, and to nothing here\n\
         - `5.bias` is not in the network\n\
         - `5.weight` is not in the network\n\
         - the cell `3` has 2 counters in the checkpoint, and 0 here"
    );
}

#[test]
fn a_damaged_file_is_refused() {
    let folder = Folder::new("damaged");
    let path = &folder.at("run.safetensors");
    let small = Child::new(Dense::new(2, 1, &mut Rng::seed(1)));
    let optimizer = Sgd::new(small.params(), 0.1).momentum(0.9);
    Checkpoint::of(&small, &[&optimizer], &LossScale::none()).save(path).unwrap();
    let whole = fs::read(path).unwrap();
    let read = |bytes: &[u8]| {
        fs::write(path, bytes).unwrap();
        Checkpoint::load(path)
    };
    for len in 0..whole.len() {
        assert!(read(&whole[..len]).is_err(), "cut at {len}");
    }
    // The padding of the header and the names of its entries carry no state of the run: an entry lost by a flipped bit
    // is reported as missing, or the file means the same.
    let same = format!("{:?}", read(&whole).unwrap());
    for i in 0..whole.len() {
        for bit in [0, 3, 7] {
            let mut flipped = whole.clone();
            flipped[i] ^= 1 << bit;
            if let Ok(checkpoint) = read(&flipped) {
                assert_eq!(format!("{checkpoint:?}"), same, "bit {bit} of byte {i}");
            }
        }
    }
}

#[test]
fn weights_alone_are_no_checkpoint_and_a_checkpoint_has_weights() {
    let folder = Folder::new("weights");
    let path = &folder.at("run.safetensors");
    let mut run = Run::new(Way::Masters, 1);
    run.train(1);
    weights::save(&run.net, path).unwrap();
    let error = Checkpoint::load(path).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Weights);
    assert!(
        error.to_string().ends_with("is not a checkpoint; use `weights::load` for files that contain only weights"),
        "{error}"
    );

    run.checkpoint().save(path).unwrap();
    let other = net(2);
    weights::load_with(&other, path, &LoadOptions::new().ignore("@optimizer.**")).unwrap();
    for ((path, param), (_, kept)) in other.named_params().iter().zip(run.net.named_params()) {
        assert_eq!(param.value().to_f64(), kept.master().unwrap_or_else(|| kept.value()).to_f64(), "{path}");
    }
}

/// A run continues in another dtype: its parameters and its optimizer are f32 in both, and the loss scale is that of
/// the new one.
#[test]
fn a_run_goes_on_in_another_dtype() {
    let made = |dtype: Option<DType>| {
        let mut net = Child::new(Dense::new(2, 2, &mut Rng::seed(1)));
        let scale = match dtype {
            None => LossScale::none(),
            Some(dtype) => {
                let policy = Policy::new(Level::O2, dtype).unwrap();
                policy.apply(&mut net).unwrap();
                LossScale::new(policy.loss_scale).unwrap()
            }
        };
        let adam = Adam::new(net.params(), 0.1);
        (net, adam, scale)
    };
    let step = |net: &Child<Dense>, adam: &mut Adam, scale: &mut LossScale| {
        let loss = net.call(&Tensor::ones(&[1, 2], DType::F32)).unwrap().mean_all().unwrap();
        assert_eq!(scale.step(adam, &loss).unwrap(), Outcome::Stepped);
    };
    let folder = Folder::new("checkpoint-dtypes");
    let file = folder.at("a.safetensors");
    let dtypes = [Some(DType::F16), Some(DType::Bf16), None];
    for from in dtypes {
        for to in dtypes {
            let (net, mut adam, mut scale) = made(from);
            step(&net, &mut adam, &mut scale);
            if from == Some(DType::F16) {
                scale.set_scale(1024.0).unwrap();
            }
            Checkpoint::of(&net, &[&adam], &scale).save(&file).unwrap();
            let (mut other, mut its, mut new) = made(to);
            let begun = new.clone();
            Checkpoint::load(&file).unwrap().restore(&mut other, &mut [&mut its], &mut new).unwrap();
            let weight = |net: &Child<Dense>| net.cell().weight.value().to_f64();
            assert_eq!(weight(&other), weight(&net), "{from:?} to {to:?}");
            let means = |adam: &Adam| adam.state().tensors.iter().map(|(_, x)| x.to_f64()).collect::<Vec<_>>();
            assert_eq!(means(&its), means(&adam));
            // A scale of the same kind continues, one of another kind starts fresh.
            let (was_scaled, is_scaled) = (from == Some(DType::F16), to == Some(DType::F16));
            assert_eq!(new, if was_scaled == is_scaled { scale } else { begun }, "{from:?} to {to:?}");
            step(&other, &mut its, &mut new);
        }
    }
}

#[test]
fn a_state_of_another_loss_scale_says_which_side_has_one() {
    let mut dynamic = LossScale::dynamic();
    dynamic.adjust(true);
    let message = LossScale::none().restore(dynamic.state()).unwrap_err().to_string();
    assert!(
        message.contains("a loss scale of 65536 cannot be restored") && message.contains("this run has none"),
        "{message}"
    );
    assert!(message.contains("leave the state out"), "{message}");
    let message = LossScale::fixed(128.0).unwrap().restore(dynamic.state()).unwrap_err().to_string();
    assert!(
        message.starts_with("a dynamic loss scale of 65536 cannot be restored where the scale is fixed: "),
        "{message}"
    );
}
