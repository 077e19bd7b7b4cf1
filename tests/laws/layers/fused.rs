//! Ops that are computed within one pass, compared bit for bit with the same ops each on its own: a listener takes care of
//! that, as it receives every result.

use precast::{
    CrossEntropy, Reduction,
    observe::{Listener, listen},
    prelude::*,
    sequential, twice_differentiable,
};

use super::{param, random};

/// A listener that ignores everything.
struct Nobody;

impl Listener for Nobody {}

/// Place of a norm within a block.
#[derive(Clone, Copy, Debug, PartialEq)]
enum After {
    Relu,
    Sum,
    /// The sum in the other order, whose other term is a norm as well.
    SumOfNorms,
    /// Everything at once.
    Several,
    Nothing,
    /// A view.
    Permuted,
}

const AFTER: [After; 6] = [After::Relu, After::Sum, After::SumOfNorms, After::Several, After::Nothing, After::Permuted];

/// A convolution, a norm, and what follows.
#[derive(Cell, Debug)]
struct Block {
    conv: Child<Conv2d>,
    norm: Child<BatchNorm2d>,
    beside: Child<Sequential>,
    last: Child<Conv2d>,
    after: After,
}

impl Block {
    fn child(after: After, seed: u64) -> Child {
        let rng = &mut Rng::seed(seed);
        let conv = |rng: &mut Rng| Conv2d::new(5, 5, 1, rng);
        let (first, second, last) = (conv(rng), conv(rng), conv(rng));
        Child::of(Block {
            conv: first.into(),
            norm: BatchNorm2d::new(5).into(),
            beside: sequential![second, BatchNorm2d::new(5)].into(),
            last: last.into(),
            after,
        })
    }
}

impl Forward for Block {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let y = self.norm.call(&self.conv.call(x)?)?;
        let y = match self.after {
            After::Relu => y.relu()?,
            After::Sum => y.add(x)?.relu()?,
            After::SumOfNorms => self.beside.call(x)?.add(&y)?.relu()?,
            After::Several => y.relu()?.add(&y)?.mul(&y.add(x)?)?.relu()?.relu()?,
            After::Nothing => y,
            After::Permuted => y.permute(&[0, 1, 3, 2])?.relu()?.permute(&[0, 1, 3, 2])?.relu()?,
        };
        self.last.call(&y)?.add(x)
    }
}

/// Returns the bits of numbers; NaN has those of one NaN.
fn bits(x: &Tensor) -> (DType, Vec<u64>) {
    let one = |x: f64| if x.is_nan() { f64::NAN.to_bits() } else { x.to_bits() };
    (x.dtype(), x.to_f64().into_iter().map(one).collect())
}

/// Returns the bits of the result, of the gradients of input and parameters, and of the running statistics.
fn step(net: &Child, x: &Tensor) -> Vec<(DType, Vec<u64>)> {
    let x = x.requires_grad();
    let y = net.call(&x).unwrap();
    let mut all = vec![bits(&y)];
    let seed = random(y.shape(), 9).cast(y.dtype());
    let grads = y.mul(&seed).unwrap().cast(DType::F32).sum_all().unwrap().into_grads().unwrap();
    all.push(bits(&grads.of(&x).unwrap()));
    for (_, param) in net.named_params() {
        all.push(bits(&param.value()));
        all.extend(grads.get(&param).map(|grad| bits(&grad)));
    }
    all
}

#[track_caller]
fn assert_same(make: impl Fn() -> Child, x: &Tensor, what: &str) {
    let (together, (apart, _)) = (step(&make(), x), listen(Nobody, || step(&make(), x)));
    assert_eq!(together.len(), apart.len(), "{what}");
    for (i, (a, b)) in together.iter().zip(&apart).enumerate() {
        assert_eq!(a, b, "number {i} of {what}");
    }
}

fn at_all_levels(x: &Tensor, prepare: impl Fn(&mut Child), what: &str) {
    for after in AFTER {
        for dtype in [DType::F16, DType::Bf16] {
            for level in [Level::O0, Level::O1, Level::O2, Level::O3] {
                let make = || {
                    let mut net = Block::child(after, 3);
                    param(&net, "norm.weight").set(&random(&[5], 1)).unwrap();
                    param(&net, "norm.bias").set(&random(&[5], 2)).unwrap();
                    prepare(&mut net);
                    let _ = Policy::new(level, dtype).unwrap().apply(&mut net).unwrap();
                    net
                };
                assert_same(make, x, &format!("{what}, {after:?} at {level} in {dtype}"));
            }
        }
    }
}

#[test]
fn training_has_the_bits_of_separate_ops() {
    at_all_levels(&random(&[3, 5, 7, 7], 4), |net| net.set_train(true), "training");
    at_all_levels(&random(&[2, 5, 40, 30], 4), |net| net.set_train(true), "training on larger pictures");
}

#[test]
fn evaluation_has_the_bits_of_separate_ops() {
    let x = random(&[3, 5, 7, 7], 4);
    at_all_levels(&x, |net| net.set_train(false), "evaluation");
    let frozen = |net: &mut Child| {
        net.set_train(true);
        for path in ["norm.weight", "norm.bias", "norm.running_mean", "norm.running_var", "beside.1.bias"] {
            param(net, path).freeze();
        }
    };
    at_all_levels(&x, frozen, "frozen parameters");
}

#[test]
fn numbers_that_are_not_finite_or_vanish_have_the_bits_of_separate_ops() {
    for odd in [f64::NAN, f64::INFINITY, -0.0, 1e30] {
        let mut numbers = random(&[3, 5, 7, 7], 4).to_f64();
        numbers[17] = odd;
        let x = Tensor::from_f64(&numbers, &[3, 5, 7, 7], DType::F32).unwrap();
        at_all_levels(&x, |net| net.set_train(false), &format!("{odd}"));
        // Statistics that are not finite are warned of.
        if odd.is_nan() || odd == 0.0 {
            at_all_levels(&x, |net| net.set_train(true), &format!("training with {odd}"));
        }
    }
    // Products with these weights are rounded to 0, with either sign, or to numbers next to it.
    for tiny in [2f64.powi(-24), 2f64.powi(-25), 2f64.powi(-133), 2f64.powi(-134)] {
        let prepare = |net: &mut Child| {
            net.set_train(true);
            param(net, "norm.weight").set(&Tensor::full(&[5], tiny, DType::F32)).unwrap();
            param(net, "norm.bias").set(&Tensor::full(&[5], -0.0, DType::F32)).unwrap();
        };
        at_all_levels(&random(&[3, 5, 7, 7], 4), prepare, &format!("weights of {tiny}"));
    }
}

#[test]
fn views_have_the_bits_of_separate_ops() {
    let x = random(&[3, 7, 5, 6], 4).permute(&[0, 2, 1, 3]).unwrap();
    at_all_levels(&x, |net| net.set_train(true), "a view");
}

#[test]
fn a_result_that_is_read_in_several_ways_is_the_same_each_time() {
    let x = random(&[3, 5, 7, 7], 4).cast(DType::Bf16);
    let ops = || {
        let (y, ..) = x.cast(DType::F32).batch_norm_train(None, None, 1e-5).unwrap();
        let (low, sum) = (y.cast(DType::F16), y.add(&y).unwrap());
        let (high, other) = (low.cast(DType::F32), low.cast(DType::Bf16));
        let chain = low.add(&low).unwrap().add(&low).unwrap().relu().unwrap();
        let narrowed = sum.cast(DType::Bf16);
        [y.relu().unwrap(), low.relu().unwrap(), sum.relu().unwrap(), y, low, sum, high, other, chain, narrowed]
    };
    let (apart, _) = listen(Nobody, ops);
    for (i, (a, b)) in ops().iter().zip(&apart).enumerate() {
        assert_eq!(bits(a), bits(b), "{i}");
    }
}

#[test]
fn second_derivatives_have_the_bits_of_separate_ops() {
    let x = random(&[3, 5, 2, 2], 4).requires_grad();
    let penalty = || {
        twice_differentiable(|| {
            let (y, ..) = x.batch_norm_train(None, None, 1e-5)?;
            let y = y.add(&x)?.relu()?.square()?.sum_all()?;
            let [Some(grad)] = &y.gradients_on_tape(&[&x])?[..] else { panic!("it has a gradient") };
            grad.relu()?.square()?.sum_all()
        })
    };
    let gradient = || bits(&penalty().unwrap().backward().unwrap().of(&x).unwrap());
    assert_eq!(gradient(), listen(Nobody, gradient).0);
}

#[test]
fn gradients_of_logits_have_the_bits_of_separate_ops() {
    let [classes, samples] = [7, 5];
    let x = random(&[samples, 3], 4);
    let hard = Tensor::from_vec(vec![0i64, 6, 3, 3, 1], &[samples]).unwrap();
    let soft = random(&[samples, classes], 6).softmax(-1).unwrap();
    let smooth = CrossEntropy::default().label_smoothing(0.1).ignore_index(3);
    let options = [CrossEntropy::default(), smooth, CrossEntropy::default().reduction(Reduction::Sum)];
    for (target, options) in [&hard, &soft].into_iter().flat_map(|target| options.iter().map(move |o| (target, o))) {
        for dtype in [DType::F16, DType::Bf16] {
            // Infinite and subnormal gradients in 16 bits, and logits that are not finite.
            for (scale, weight) in [(1.0, 1.0), (1e6, 1.0), (1e-7, 1.0), (1.0, 1e30)] {
                let step = |keep: bool| {
                    let mut net: Child = sequential![Dense::new(3, classes, &mut Rng::seed(3))].into();
                    let wide = param(&net, "0.weight").value().to_f64().iter().map(|x| x * weight).collect::<Vec<_>>();
                    param(&net, "0.weight").set(&Tensor::from_f64(&wide, &[classes, 3], DType::F32).unwrap()).unwrap();
                    let _ = Policy::new(Level::O2, dtype).unwrap().apply(&mut net).unwrap();
                    let logits = net.call(&x).unwrap();
                    assert_eq!(logits.dtype(), DType::F32);
                    let kept = keep.then(|| logits.clone());
                    let loss = (logits.cross_entropy_with(target, options).unwrap() * scale).unwrap();
                    drop(logits);
                    let grads = loss.into_grads().unwrap();
                    drop(kept);
                    net.named_params().iter().map(|(_, p)| bits(&grads.get(p).unwrap())).collect::<Vec<_>>()
                };
                let apart = listen(Nobody, || step(false)).0;
                for keep in [false, true] {
                    assert_eq!(step(keep), apart, "{options:?} in {dtype}, times {scale}, weights times {weight}");
                }
            }
        }
    }
}

#[test]
fn a_block_keeps_one_result_of_norm_and_relu() {
    let x = random(&[3, 5, 7, 7], 4).requires_grad();
    let kept = || x.batch_norm_train(None, None, 1e-5).unwrap().0.relu().unwrap().tape_bytes();
    let bytes = 4 * x.len();
    // The input, the result, and two numbers for each channel.
    assert_eq!((kept(), listen(Nobody, kept).0), (2 * bytes + 2 * 4 * 5, 2 * bytes + 2 * 4 * 5));
}
