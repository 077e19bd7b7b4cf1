//! User mistakes in code, and their error messages. The snapshot is the table: one mistake, one message.
//!
//! Mistakes in files are in `tests/policies/bad`, `tests/files/models.rs` and `tests/conformance/torch/weights.rs`; those of the command
//! line in `crates/cli/tests/command/commands.rs` and its neighbours; those that do not compile in `tests/ui`.

use std::fmt::Write;

use precast::{
    Grads, Muon,
    cell::Pattern,
    compat::mindspore::{CustomLists, custom_mixed_precision},
    io::models,
    policy::{DynamicScale, LossScaleSpec, Pack, Rule, RunAs, Scaler},
    prelude::*,
    scale::ScaleState,
    storage::weights,
};

/// One mistake: a description, and the code that returns the error.
type Mistake = (&'static str, fn() -> Result<()>);

/// Discards the value of a mistake that is not an error.
fn of<T>(result: Result<T>) -> Result<()> {
    result.map(drop)
}

fn ones(shape: &[usize]) -> Tensor {
    Tensor::ones(shape, DType::F32)
}

fn rng() -> Rng {
    Rng::seed(1)
}

fn mlp() -> Child {
    let rng = &mut rng();
    Child::of(sequential![Dense::new(4, 8, rng), ReLU, LayerNorm::new(&[8]), Dense::new(8, 2, rng)])
}

fn o2() -> Policy {
    Policy::new("O2", DType::Bf16).unwrap()
}

fn f16() -> Policy {
    Policy::new("O2", DType::F16).unwrap()
}

fn folder(name: &str, text: &str) -> std::path::PathBuf {
    let folder = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("mistakes");
    std::fs::create_dir_all(&folder).unwrap();
    let file = folder.join(name);
    std::fs::write(&file, text).unwrap();
    file
}

#[derive(Cell, Debug)]
struct NotSaved {
    fc: Child<Dense>,
}

impl Forward for NotSaved {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        self.fc.call(x)
    }
}

/// A cell whose forward is missing.
#[derive(Cell, Debug)]
struct Nothing {
    fc: Child<Dense>,
}

impl Forward for Nothing {}

fn not_saved() -> Child<NotSaved> {
    Child::new(NotSaved { fc: Child::new(Dense::new(2, 2, &mut rng())) })
}

const TENSORS: &[Mistake] = &[
    ("values that do not fill the shape", || of(Tensor::from_vec(vec![1f32; 5], &[2, 3]))),
    ("a shape that does not fit into memory", || of(Tensor::try_full(&[1 << 40, 1 << 40], 0.0, DType::F32))),
    ("shapes that do not broadcast", || of(ones(&[2, 3]).add(&ones(&[2, 4])))),
    ("a product of lengths that differ", || of(ones(&[2, 3]).matmul(&ones(&[4, 2])))),
    ("a product of a vector and a scalar", || of(ones(&[3]).matmul(&Tensor::scalar(2.0, DType::F32)))),
    ("a product of two dtypes", || of(ones(&[2, 3]).matmul(&ones(&[3, 2]).cast(DType::F16)))),
    ("a reshape to another number of elements", || of(ones(&[2, 3]).reshape(&[4, 2]))),
    ("an axis that is not there", || of(ones(&[2, 3]).softmax(2))),
    ("an axis that is given twice", || of(ones(&[2, 3]).sum(&[0, 0], false))),
    ("a slice past the end", || of(ones(&[2, 3]).slice(1, 2..5))),
    ("a permutation that is none", || of(ones(&[2, 3]).permute(&[0, 0]))),
    ("a concatenation of shapes that differ elsewhere", || of(Tensor::concat(&[&ones(&[2, 3]), &ones(&[2, 4])], 0))),
    ("a concatenation of nothing", || of(Tensor::concat(&[], 0))),
    ("the number of a tensor of several", || of(ones(&[2, 3]).item())),
    ("an exponential of integers", || of(Tensor::from_vec(vec![1i64, 2], &[2])?.exp())),
    ("an index that is not there", || of(ones(&[3, 2]).index_select(0, &Tensor::from_vec(vec![3i64], &[1])?))),
    ("an index in f32", || of(ones(&[3, 2]).index_select(0, &ones(&[1])))),
    ("an index of other axes than the tensor", || of(ones(&[3, 2]).gather(1, &Tensor::from([0, 1, 0])))),
    ("an index longer than the tensor", || of(ones(&[3, 2]).gather(1, &Tensor::zeros(&[4, 1], DType::I64)))),
    ("a sum of booleans", || of(Tensor::from([true, false]).sum_all())),
    ("a mean of booleans", || of(Tensor::from([true, false]).mean_all())),
    ("a maximum of integers", || of(Tensor::from([1, 2]).max(&[], false))),
    ("a product of integers", || of(Tensor::from([1, 2]).prod(&[], false))),
    ("a comparison of integers with a fraction", || of(Tensor::from([1, 2]).gt(0.5))),
    ("a product of f32 and of numbers without a suffix", || {
        of(ones(&[2, 3]).matmul(&Tensor::from_vec(vec![1.0; 3], &[3, 1])?))
    }),
    ("a pool larger than the image", || of(ones(&[1, 1, 2, 2]).max_pool2d(3, 1))),
    ("an einsum without its arrow's letters", || of(Tensor::einsum("ij,jk->il", &[&ones(&[2, 3]), &ones(&[3, 2])]))),
    ("classes in f32", || of(ones(&[2, 10]).cross_entropy(&ones(&[2])))),
    ("a class that does not exist", || of(ones(&[2, 10]).cross_entropy(&Tensor::from_vec(vec![3i64, 10], &[2])?))),
    ("classes in the last axis", || of(ones(&[2, 5, 3]).cross_entropy(&Tensor::zeros(&[2, 5], DType::I64)))),
    ("targets of another shape", || of(ones(&[2, 10]).mse_loss(&ones(&[2, 1, 10]), Reduction::Mean))),
    ("an input that is a column", || of(ones(&[2, 1]).smooth_l1_loss(&ones(&[2]), 1.0, Reduction::Mean))),
    ("targets that are a column", || of(ones(&[2]).mse_loss(&ones(&[2, 1]), Reduction::Mean))),
    ("targets of other lengths", || of(ones(&[2]).mse_loss(&ones(&[3]), Reduction::Mean))),
    ("a backward pass from several numbers", || of(ones(&[2]).requires_grad().exp()?.backward())),
    ("a backward pass from a constant", || of(ones(&[2]).sum_all()?.backward())),
    ("a backward pass from integers", || of(Tensor::from_vec(vec![1i64], &[])?.backward())),
    ("a probability of dropout above one", || of(DropoutSpec::new(1.5).build(&mut rng()))),
    ("steps of zero", || of(Tensor::range(0.0, 1.0, 0.0))),
];

const CELLS: &[Mistake] = &[
    ("an input of another width", || of(mlp().call(&ones(&[1, 5])))),
    ("an image for a dense layer", || of(Child::new(Dense::new(4, 2, &mut rng())).call(&ones(&[1, 3, 5, 5])))),
    ("a row for a convolution", || of(Child::new(Conv2d::new(3, 2, 3, &mut rng())).call(&ones(&[1, 27])))),
    ("an image of other channels", || of(Child::new(Conv2d::new(3, 2, 3, &mut rng())).call(&ones(&[1, 1, 8, 8])))),
    (
        "an image smaller than the kernel",
        || of(Child::new(Conv2d::new(1, 2, 5, &mut rng())).call(&ones(&[1, 1, 3, 3]))),
    ),
    ("a stride of zero", || of(Conv2dSpec::new(1, 2, 3).stride(0).build(&mut rng()))),
    ("groups that do not divide the channels", || of(Conv2dSpec::new(4, 6, 3).groups(3).build(&mut rng()))),
    ("two inputs for a cell of one", || of(mlp().call_many(&[ones(&[1, 4]), ones(&[1, 4])]))),
    ("one input for a cell of three", || of(Child::new(LSTMCell::new(3, 2, &mut rng())).call(&ones(&[4, 3])))),
    ("words in f32", || of(Child::new(Embedding::new(10, 4, &mut rng())).call(&ones(&[2, 3])))),
    ("a word that is not in the table", || {
        of(Child::new(Embedding::new(10, 4, &mut rng())).call(&Tensor::from_vec(vec![10i64], &[1])?))
    }),
    ("heads that do not divide the width", || of(MultiheadAttentionSpec::new(10, 3).build(&mut rng()))),
    ("a mask of the keys of each sequence", || {
        let x = ones(&[2, 5, 4]);
        let mask = Tensor::ones(&[2, 5], DType::Bool);
        of(Child::new(MultiheadAttention::new(4, 2, &mut rng())).attend(&x, &x, &x, Some(&mask)))
    }),
    ("a batch norm of another number of features", || of(Child::new(BatchNorm2d::new(3)).call(&ones(&[2, 4, 5, 5])))),
    ("a batch norm that trains by one number", || {
        let mut net = Child::new(BatchNorm1d::new(3));
        net.set_train(true);
        of(net.call(&ones(&[1, 3])))
    }),
    ("a layer norm of another shape", || of(Child::new(LayerNorm::new(&[8])).call(&ones(&[2, 4])))),
    ("a cell without a forward", || {
        of(Child::new(Nothing { fc: Child::new(Dense::new(2, 2, &mut rng())) }).call(&ones(&[1, 2])))
    }),
    ("a list of cells that is called", || of(Child::new(CellList::new(vec![ReLU.into()])).call(&ones(&[1])))),
    ("an adapter around a cell that is not dense", || LoRA::adapt(&mut Child::of(ReLU), 2, 4.0, &mut rng())),
    ("an architecture of an attention with an adapter", || {
        let mut attention = MultiheadAttention::new(4, 2, &mut rng());
        LoRA::adapt(&mut attention.q_proj, 2, 4.0, &mut rng())?;
        of(models::to_yaml(&Child::of(attention)))
    }),
    ("a target network of another shape", || {
        let net = |outputs| Child::of(sequential![Dense::new(2, outputs, &mut rng())]);
        net(4).soft_update(&net(1), 0.5)
    }),
    ("a path that is not there", || of(mlp().at("4", |_| ()))),
    ("a dtype that no cell computes in", || of(mlp().to_float(DType::I64))),
    ("an architecture of a cell that is not saved", || of(models::to_yaml(&not_saved().erase()))),
    ("a kind under torch's name", || {
        of(models::parse("version: 1\nnet: {kind: Linear, in_features: 1, out_features: 1}\n", "net.yaml", 0))
    }),
    ("a parameter of another shape", || Param::new(ones(&[2])).set(&ones(&[3]))),
    ("a parameter of another dtype", || Param::new(ones(&[2])).set(&ones(&[2]).cast(DType::F16))),
];

const POLICIES: &[Mistake] = &[
    ("a level in small letters", || of(Policy::new("o2", DType::F16))),
    ("a level with a zero", || of(Policy::new("02", DType::F16))),
    ("a level that is a number", || of(Policy::new("2", DType::F16))),
    ("a level that is not there", || of(Policy::new("O4", DType::F16))),
    ("a low dtype that is not low", || of(Policy::new("O2", DType::F32))),
    ("a policy by the name of its level", || of(Policy::named("O2"))),
    ("a policy with its dtype as others write it", || of(Policy::named("o2-fp16"))),
    ("a policy that ships, taken for a file", || of(Policy::load("o2"))),
    ("a policy that ships, taken for a file in a folder", || of(Policy::load("elsewhere/o2-bf16.yaml"))),
    ("a file that is not there", || of(Policy::load("mine.yaml"))),
    ("a folder", || of(Policy::load("/"))),
    ("a pack that is not there", || of(Pack::named("torch-2.15"))),
    ("a rule for a cell that is not there", || of(o2().rule(Rule::path("head", RunAs::Full)?)?.plan(&mlp()))),
    ("a rule for a kind with a typo", || of(o2().rule(Rule::kind("Dence", RunAs::Full))?.plan(&mlp()))),
    ("two rules for one path", || of(o2().rule(Rule::path("0", RunAs::Full)?)?.rule(Rule::path("0", RunAs::Low)?))),
    ("a rule behind a wider one", || {
        of(o2().rule(Rule::path("**", RunAs::Low)?)?.rule(Rule::kind("Dense", RunAs::Full))?.plan(&mlp()))
    }),
    ("a rule for a number of cells", || of(o2().rule(Rule::kind("Dense", RunAs::Full).expect(3))?.plan(&mlp()))),
    ("a pattern with an empty segment", || of("encoder..fc".parse::<Pattern>())),
    ("a pattern with a star in a name", || of("layer*".parse::<Pattern>())),
    ("a pattern with a range", || of("layers.[0-3].norm".parse::<Pattern>())),
    ("an entry of a kind that is not there", || {
        of(custom_mixed_precision(&mut mlp(), CustomLists::White(Lists::new().low("Dence")), DType::F16))
    }),
    ("an entry of the full list in a low list", || {
        of(custom_mixed_precision(&mut mlp(), CustomLists::White(Lists::new().full("Dense")), DType::F16))
    }),
    ("a policy that prefers speed and knows no machine", || {
        of(o2().with_prefer(precast::policy::Prefer::Speed).plan(&mlp()))
    }),
    ("a level for graphs on cells", || of(Policy::new("graph", DType::Bf16)?.plan(&mlp()))),
    ("an explanation of a cell that is not there", || of(o2().plan(&mlp())?.explain("33"))),
    ("a plan of another network", || of(o2().plan(&mlp())?.apply(&mut not_saved()))),
    ("a plan of a network that has grown", || {
        let mut list = CellList::new(vec![ReLU.into()]);
        let plan = o2().plan(&Child::new(CellList::new(vec![ReLU.into()])))?;
        list.push(ReLU);
        of(plan.apply(&mut Child::new(list)))
    }),
    ("a plan from before a `to_float`", || {
        let net = mlp();
        let plan = o2().plan(&net)?;
        of(plan.apply(&mut net.to_float(DType::F32)?))
    }),
    ("a `to_float` after the plan", || {
        let mut net = mlp();
        o2().apply(&mut net)?;
        of(net.to_float(DType::F16)?.call(&ones(&[1, 4])))
    }),
    ("an undo out of order", || {
        let mut net = mlp();
        let first = o2().apply(&mut net)?;
        f16().apply(&mut net)?;
        first.undo(&mut net)
    }),
    ("a cell that is called past the network", || {
        let mut net = not_saved();
        o2().apply(&mut net)?;
        of(net.cell().fc.call(&ones(&[1, 2])))
    }),
    ("a plan that was not applied", || {
        let (net, plan) = (mlp(), o2().plan(&mlp())?);
        plan.check(&net.trace(|net| net.call(&ones(&[1, 4]))).1)
    }),
    ("parameters in i64", || of(decorate(&mlp(), Decorate::new(DType::I64)))),
    ("stochastic rounding of f16", || of(decorate(&mlp(), Decorate::new(DType::F16).stochastic_rounding(1)))),
    ("an exclusion that is not there", || of(decorate(&mlp(), Decorate::new(DType::Bf16).exclude_kind("Dence")))),
];

const REGIONS: &[Mistake] = &[
    ("a pack under another name", || of(Autocast::new("torch"))),
    ("a dtype that is not low", || autocast(Autocast::new("torch-2.15-cpu")?.dtype(DType::F64), || Ok(()))),
    ("an op level that is not there", || autocast(Autocast::new("paddle-3.3")?.op_level("O5"), || Ok(()))),
    ("an op that is not there", || autocast(Autocast::new("torch-2.15-cpu")?.low(["matmull"]), || Ok(()))),
    ("an op that the pack bans", || {
        let (p, t) = (Tensor::full(&[2], 0.5, DType::F32), ones(&[2]));
        of(autocast(Autocast::new("torch-2.15-cuda")?, || p.binary_cross_entropy(&t, Reduction::Mean)))
    }),
];

const TRAINING: &[Mistake] = &[
    ("a loss scale of zero", || of(LossScale::fixed(0.0))),
    ("a loss scale that is not finite", || of(LossScale::fixed(f32::INFINITY))),
    ("a growth factor below one", || of(LossScale::new(LossScaleSpec::Dynamic(DynamicScale::default().growth(0.5))))),
    ("a state of another loss scale", || {
        LossScale::none().restore(ScaleState { scale: 8.0, ..LossScale::dynamic().state() })
    }),
    ("an update of the loss scale without gradients", || LossScale::dynamic().update()),
    ("a loss that depends on no parameter", || {
        let net = mlp();
        let loss = no_grad(|| net.call(&ones(&[1, 4]))?.sum_all())?;
        of(LossScale::none().step(&mut Sgd::new(net.params(), 0.1), &loss))
    }),
    ("a loss of several numbers", || {
        let net = mlp();
        of(LossScale::none().step(&mut Sgd::new(net.params(), 0.1), &net.call(&ones(&[1, 4]))?))
    }),
    ("f16 without a loss scale", || {
        let mut net = mlp();
        f16().with_scaler(Scaler::Required).apply(&mut net)?;
        let loss = net.call(&ones(&[1, 4]))?.sum_all()?;
        of(LossScale::none().step(&mut Sgd::new(net.params(), 0.1), &loss))
    }),
    ("gradients of another network", || {
        let net = mlp();
        let grads = mlp().call(&ones(&[1, 4]))?.sum_all()?.backward()?;
        Sgd::new(net.params(), 0.1).update(&grads)
    }),
    ("an update without gradients", || Sgd::new(mlp().params(), 0.1).update(&Grads::default())),
    ("an optimizer without parameters", || {
        let grads = mlp().call(&ones(&[1, 4]))?.sum_all()?.backward()?;
        Sgd::new(Child::new(ReLU).params(), 0.1).update(&grads)
    }),
    ("a loss scale and an optimizer without parameters", || {
        let (net, mut scale) = (mlp(), LossScale::fixed(8.0)?);
        let frozen = net.deep_copy()?;
        frozen.freeze("**")?;
        let loss = net.call(&ones(&[1, 4]))?.sum_all()?;
        of(scale.step(&mut Sgd::new(frozen.params(), 0.1), &loss))
    }),
    ("a negative learning rate", || {
        let net = mlp();
        let grads = net.call(&ones(&[1, 4]))?.sum_all()?.backward()?;
        Sgd::new(net.params(), -0.1).update(&grads)
    }),
    ("a momentum of NaN", || {
        let net = mlp();
        let grads = net.call(&ones(&[1, 4]))?.sum_all()?.backward()?;
        Sgd::new(net.params(), 0.1).momentum(f64::NAN).update(&grads)
    }),
    ("Muon for a bias", || {
        let net = mlp();
        let grads = net.call(&ones(&[1, 4]))?.sum_all()?.backward()?;
        Muon::new(net.params(), 0.1).update(&grads)
    }),
    ("a state of another optimizer", || {
        let net = mlp();
        let state = Sgd::new(net.params(), 0.1).momentum(0.9).state();
        Adam::new(net.params(), 0.1).restore(state)
    }),
    ("gradients clipped to a negative norm", || {
        let net = mlp();
        let mut grads = net.call(&ones(&[1, 4]))?.sum_all()?.backward()?;
        of(grads.clip_norm(-1.0))
    }),
];

const FILES: &[Mistake] = &[
    ("weights from a file that is not there", || of(weights::load(&mlp(), "none.safetensors"))),
    ("weights from a file that is none", || of(weights::load(&mlp(), folder("weights.txt", "version: 1\n")))),
    ("weights of another network", || {
        let file = folder("other.safetensors", "");
        weights::save(&not_saved(), &file)?;
        of(weights::load(&mlp(), file))
    }),
    ("weights into a folder that is not there", || weights::save(&mlp(), "nowhere/at/all.safetensors")),
    ("a model from a file that is not there", || of(models::load("none.yaml", 0))),
    ("a model of a version to come", || of(models::parse("version: 2\nnet: {kind: ReLU}\n", "net.yaml", 0))),
];

#[test]
fn every_mistake_is_told() {
    let mut table = String::new();
    for (part, mistakes) in [
        ("Tensors", TENSORS),
        ("Cells", CELLS),
        ("Policies and plans", POLICIES),
        ("Regions", REGIONS),
        ("Training", TRAINING),
        ("Files", FILES),
    ] {
        writeln!(table, "# {part}\n").unwrap();
        for (what, mistake) in mistakes {
            let Err(error) = mistake() else {
                writeln!(table, "{what}\n    NO ERROR\n").unwrap();
                continue;
            };
            let here = env!("CARGO_TARGET_TMPDIR");
            writeln!(
                table,
                "{what}\n    {:?}: {}\n",
                error.kind(),
                error.to_string().replace(here, "..").replace('\n', "\n    ")
            )
            .unwrap();
        }
    }
    insta::assert_snapshot!(table);
}
