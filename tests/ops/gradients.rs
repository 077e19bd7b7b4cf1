//! Gradients of the elementwise ops, the reductions and the losses against central differences.

use precast::{CrossEntropy, DType, Reduction, Result, Tensor};

use crate::draw::{Draw, check, check_within};

/// Random cases for each op.
const CASES: u64 = 24;

type Unary = (&'static str, fn(&Tensor) -> Result<Tensor>, std::ops::Range<f64>, &'static [f64]);

// Sigmoid and tanh keep their rounded output for the way back. Where that saturates, 1 - y is a difference of
// nearly equal numbers, and an output of one element has no larger gradient to be measured against: so they are checked
// where they bend.

#[test]
fn unary_ops() {
    let ops: &[Unary] = &[
        ("relu", |x| x.relu(), -3.0..3.0, &[0.0]),
        ("relu6", |x| x.relu6(), -3.0..9.0, &[0.0, 6.0]),
        ("leaky_relu", |x| x.leaky_relu(0.1), -3.0..3.0, &[0.0]),
        ("elu", |x| x.elu(0.7), -3.0..3.0, &[0.0]),
        ("selu", |x| x.selu(), -3.0..3.0, &[0.0]),
        ("celu", |x| x.celu(0.7), -3.0..3.0, &[0.0]),
        ("softsign", |x| x.softsign(), -3.0..3.0, &[0.0]),
        ("tanh_shrink", |x| x.tanh_shrink(), 0.4..3.0, &[]),
        ("softshrink", |x| x.softshrink(0.5), -2.0..2.0, &[-0.5, 0.5]),
        ("gelu", |x| x.gelu(), -4.0..4.0, &[]),
        ("gelu_tanh", |x| x.gelu_tanh(), -4.0..4.0, &[]),
        ("silu", |x| x.silu(), -6.0..6.0, &[]),
        ("sigmoid", |x| x.sigmoid(), -1.8..1.8, &[]),
        ("tanh", |x| x.tanh(), -1.2..1.2, &[]),
        ("softplus", |x| x.softplus(), -6.0..6.0, &[]),
        ("log_sigmoid", |x| x.log_sigmoid(), -6.0..6.0, &[]),
        ("mish", |x| x.mish(), -6.0..6.0, &[]),
        ("hard_sigmoid", |x| x.hard_sigmoid(), -5.0..5.0, &[-3.0, 3.0]),
        ("hard_swish", |x| x.hard_swish(), -5.0..5.0, &[-3.0, 3.0]),
        ("hard_tanh", |x| x.hard_tanh(), -3.0..3.0, &[-1.0, 1.0]),
        ("exp", |x| x.exp(), -3.0..3.0, &[]),
        ("expm1", |x| x.expm1(), -3.0..3.0, &[]),
        ("log", |x| x.log(), 0.1..5.0, &[]),
        ("log2", |x| x.log2(), 0.1..5.0, &[]),
        ("log10", |x| x.log10(), 0.1..5.0, &[]),
        ("log1p", |x| x.log1p(), -0.8..5.0, &[]),
        ("sqrt", |x| x.sqrt(), 0.1..5.0, &[]),
        ("rsqrt", |x| x.rsqrt(), 0.2..5.0, &[]),
        ("reciprocal", |x| x.reciprocal(), 0.2..5.0, &[]),
        ("square", |x| x.square(), -3.0..3.0, &[]),
        ("abs", |x| x.abs(), -3.0..3.0, &[0.0]),
        ("neg", |x| x.neg(), -3.0..3.0, &[]),
        ("sign", |x| x.sign(), -3.0..3.0, &[0.0]),
        ("floor", |x| x.floor(), -2.0..2.0, &[-2.0, -1.0, 0.0, 1.0, 2.0]),
        ("ceil", |x| x.ceil(), -2.0..2.0, &[-2.0, -1.0, 0.0, 1.0, 2.0]),
        ("round", |x| x.round(), -2.0..2.0, &[-1.5, -0.5, 0.5, 1.5]),
        ("sin", |x| x.sin(), -3.0..3.0, &[]),
        ("cos", |x| x.cos(), -3.0..3.0, &[]),
        ("tan", |x| x.tan(), -1.2..1.2, &[]),
        ("asin", |x| x.asin(), -0.9..0.9, &[]),
        ("acos", |x| x.acos(), -0.9..0.9, &[]),
        ("atan", |x| x.atan(), -3.0..3.0, &[]),
        ("sinh", |x| x.sinh(), -3.0..3.0, &[]),
        ("cosh", |x| x.cosh(), -3.0..3.0, &[]),
        ("asinh", |x| x.asinh(), -3.0..3.0, &[]),
        ("acosh", |x| x.acosh(), 1.2..4.0, &[]),
        ("atanh", |x| x.atanh(), -0.9..0.9, &[]),
        ("erfc", |x| x.erfc(), -2.0..2.0, &[]),
        ("trunc", |x| x.trunc(), -2.0..2.0, &[-2.0, -1.0, 0.0, 1.0, 2.0]),
        ("erf", |x| x.erf(), -2.0..2.0, &[]),
        ("erfinv", |x| x.erfinv(), -0.9..0.9, &[]),
        ("clamp", |x| x.clamp(-1.0, 2.0), -3.0..4.0, &[-1.0, 2.0]),
        ("powf", |x| x.powf(2.5), 0.1..3.0, &[]),
        ("powf of a negative", |x| x.powf(3.0), -2.0..2.0, &[]),
    ];
    for (name, f, range, kinks) in ops {
        for case in 0..CASES {
            let mut draw = Draw::new(case);
            let shape = draw.shape(0..=4);
            let x = draw.away(&shape, range.clone(), kinks);
            check(name, &[x], |xs| f(&xs[0]));
        }
    }
}

/// Two shapes that broadcast: axes of one shape, some of which are 1 in either, and leading ones dropped.
fn broadcast_pair(draw: &mut Draw) -> [Vec<usize>; 2] {
    let shape = draw.shape(0..=4);
    [0, 1].map(|_| {
        let drop = if draw.size(0..=2) == 0 { draw.size(0..=shape.len()) } else { 0 };
        shape[drop..].iter().map(|&len| if draw.size(0..=3) == 0 { 1 } else { len }).collect()
    })
}

type Binary = (&'static str, fn(&Tensor, &Tensor) -> Result<Tensor>, std::ops::Range<f64>, std::ops::Range<f64>);

#[test]
fn binary_ops() {
    let ops: &[Binary] = &[
        ("add", |a, b| a.add(b), -2.0..2.0, -2.0..2.0),
        ("sub", |a, b| a.sub(b), -2.0..2.0, -2.0..2.0),
        ("mul", |a, b| a.mul(b), -2.0..2.0, -2.0..2.0),
        ("div", |a, b| a.div(b), -2.0..2.0, 0.3..2.0),
        ("pow", |a, b| a.pow(b), 0.3..2.0, -2.0..2.0),
        ("maximum", |a, b| a.maximum(b), -2.0..2.0, -2.0..2.0),
        ("minimum", |a, b| a.minimum(b), -2.0..2.0, -2.0..2.0),
        ("atan2", |a, b| a.atan2(b), -2.0..2.0, 0.3..2.0),
        ("hypot", |a, b| a.hypot(b), -2.0..2.0, 0.3..2.0),
        ("lerp near", |a, b| a.lerp(b, 0.25), -2.0..2.0, -2.0..2.0),
        ("lerp far", |a, b| a.lerp(b, 1.5), -2.0..2.0, -2.0..2.0),
        // The quotient stays away from whole numbers, where the remainder jumps.
        ("fmod", |a, b| a.fmod(b), 2.1..2.9, 0.95..1.02),
        ("remainder", |a, b| a.remainder(b), -2.9..-2.1, 0.95..1.02),
    ];
    for (name, f, a_range, b_range) in ops {
        for case in 0..CASES {
            let mut draw = Draw::new(case);
            let [a, b] = broadcast_pair(&mut draw);
            let (a, b) = (draw.tensor(&a, a_range.clone()), draw.tensor(&b, b_range.clone()));
            check(name, &[a, b], |xs| f(&xs[0], &xs[1]));
        }
    }
}

#[test]
fn choice_and_dropout() {
    for case in 0..CASES {
        let mut draw = Draw::new(case);
        let [a, b] = broadcast_pair(&mut draw);
        let (a, b) = (draw.tensor(&a, -2.0..2.0), draw.tensor(&b, -2.0..2.0));
        let mask = a.gt(&b).unwrap();
        check("select", &[a.clone(), b], |xs| mask.select(&xs[0], &xs[1]));
        check("dropout", &[a], |xs| xs[0].dropout(0.4, case));
    }
}

#[test]
fn sums_of_three() {
    for case in 0..CASES {
        let mut draw = Draw::new(case);
        let [a, b] = broadcast_pair(&mut draw);
        let x = draw.tensor(&b, -2.0..2.0);
        let (a, b) = (draw.tensor(&a, -2.0..2.0), draw.tensor(&b, 0.5..2.0));
        let inputs = [x, a, b];
        check("addcmul", &inputs, |xs| xs[0].addcmul(&xs[1], &xs[2], 0.7));
        check("addcdiv", &inputs, |xs| xs[0].addcdiv(&xs[1], &xs[2], -1.5));
    }
}

#[test]
fn cross_products_and_distances() {
    for case in 0..CASES {
        let mut draw = Draw::new(case);
        let mut shapes = broadcast_pair(&mut draw);
        let rank = shapes[0].len().min(shapes[1].len());
        let axis = draw.size(0..=rank);
        for shape in &mut shapes {
            shape.drain(..shape.len() - rank);
            shape.insert(axis, 3);
        }
        let [a, b] = shapes.each_ref().map(|shape| draw.tensor(shape, -2.0..2.0));
        check("cross", &[a, b], |xs| xs[0].cross(&xs[1], axis as isize));

        let [m, n, d] = [(); 3].map(|()| draw.size(1..=4));
        let batch = draw.shape(0..=2);
        // The two sets lie apart, for at distance 0 there is no slope.
        let a = draw.tensor(&[&batch[..], &[m, d]].concat(), 0.2..2.0);
        let b = draw.tensor(&[&batch[batch.len().min(1)..], &[n, d]].concat(), -2.0..-0.2);
        for p in [1.0, 2.0, 3.0, f64::INFINITY] {
            check("cdist", &[a.clone(), b.clone()], |xs| xs[0].cdist(&xs[1], p));
        }
    }
}

#[test]
fn prelu() {
    for case in 0..CASES {
        let mut draw = Draw::new(case);
        let shape = draw.shape(0..=4);
        let channels = if case % 2 == 0 { 1 } else { shape.get(1).copied().unwrap_or(1) };
        let (x, w) = (draw.away(&shape, -2.0..2.0, &[0.0]), draw.tensor(&[channels], 0.0..0.5));
        check("prelu", &[x, w], |xs| xs[0].prelu(&xs[1]));
    }
}

#[test]
fn reductions() {
    type Reduce = fn(&Tensor, &[isize], bool) -> Result<Tensor>;
    let ops: &[(&str, Reduce)] = &[
        ("sum", |x, axes, keep| x.sum(axes, keep)),
        ("mean", |x, axes, keep| x.mean(axes, keep)),
        ("max", |x, axes, keep| x.max(axes, keep)),
        ("min", |x, axes, keep| x.min(axes, keep)),
        ("var", |x, axes, keep| x.var(axes, 0, keep)),
        ("logsumexp", |x, axes, keep| x.logsumexp(axes, keep)),
        ("norm 1", |x, axes, keep| x.norm(1.0, axes, keep)),
        ("norm 2", |x, axes, keep| x.norm(2.0, axes, keep)),
        ("norm 3", |x, axes, keep| x.norm(3.0, axes, keep)),
        ("norm 1.5", |x, axes, keep| x.norm(1.5, axes, keep)),
        ("norm inf", |x, axes, keep| x.norm(f64::INFINITY, axes, keep)),
    ];
    for (name, f) in ops {
        for case in 0..CASES {
            let mut draw = Draw::new(case);
            let shape = draw.shape(0..=4);
            let mut axes: Vec<isize> = (0..shape.len() as isize).filter(|_| draw.size(0..=1) == 0).collect();
            if case % 3 == 0 {
                axes.iter_mut().for_each(|axis| *axis -= shape.len() as isize);
            }
            let x = draw.away(&shape, -2.0..2.0, &[0.0]);
            check(name, &[x], |xs| f(&xs[0], &axes, case % 2 == 0));
        }
    }
}

#[test]
fn reductions_of_one_axis() {
    for case in 0..CASES {
        let mut draw = Draw::new(case);
        let shape: Vec<usize> = draw.shape(1..=4).into_iter().map(|len| len + 1).collect();
        let axis = draw.size(0..=shape.len() - 1) as isize;
        let x = draw.tensor(&shape, -2.0..2.0);
        check("var", std::slice::from_ref(&x), |xs| xs[0].var(&[axis], 1, case % 2 == 0));
        // Spread out, for the slope is infinite where all are alike.
        let ramp = Tensor::arange(x.shape()[axis as usize]).cast(DType::F64);
        let ramp = ramp.reshape(&[-1, 1, 1, 1][..x.rank() - axis as usize]).unwrap();
        let spread = x.add(&(ramp * 3.0).unwrap()).unwrap();
        check("std", &[spread], |xs| xs[0].std(&[axis], 1, case % 2 == 0));
        check("cumsum", &[x], |xs| xs[0].cumsum(axis));
        // Near 1, so that the product of many stays among the normal numbers of f16.
        let x = draw.tensor(&shape, 0.7..1.4);
        check("prod", std::slice::from_ref(&x), |xs| xs[0].prod(&[axis], case % 2 == 0));
        check("cumprod", &[x], |xs| xs[0].cumprod(axis));
    }
}

#[test]
fn softmaxes() {
    for case in 0..CASES {
        let mut draw = Draw::new(case);
        let shape = draw.shape(1..=4);
        let axis = draw.size(0..=shape.len() - 1) as isize;
        let x = draw.tensor(&shape, -3.0..3.0);
        check("softmax", std::slice::from_ref(&x), |xs| xs[0].softmax(axis));
        check("log_softmax", std::slice::from_ref(&x), |xs| xs[0].log_softmax(axis));
        check("softmin", std::slice::from_ref(&x), |xs| xs[0].softmin(axis));
        let doubled = Tensor::concat(&[&x, &x.neg().unwrap()], axis).unwrap();
        check("glu", &[doubled], |xs| xs[0].glu(axis));
    }
}

const REDUCTIONS: [Reduction; 3] = [Reduction::Mean, Reduction::Sum, Reduction::None];

#[test]
fn pair_losses() {
    type Loss = fn(&Tensor, &Tensor, Reduction) -> Result<Tensor>;
    let losses: &[(&str, Loss)] = &[
        ("mse_loss", |x, t, r| x.mse_loss(t, r)),
        ("l1_loss", |x, t, r| x.l1_loss(t, r)),
        ("smooth_l1_loss", |x, t, r| x.smooth_l1_loss(t, 0.7, r)),
        ("bce_with_logits", |x, t, r| x.bce_with_logits(t, r)),
        ("kl_div", |x, t, r| x.kl_div(t, r)),
        ("huber_loss", |x, t, r| x.huber_loss(t, 0.7, r)),
        ("soft_margin_loss", |x, t, r| x.soft_margin_loss(t, r)),
        ("poisson_nll_loss of logs", |x, t, r| x.poisson_nll_loss(t, true, r)),
        ("poisson_nll_loss", |x, t, r| (x + 4.0)?.poisson_nll_loss(t, false, r)),
    ];
    for (name, loss) in losses {
        for case in 0..CASES {
            let mut draw = Draw::new(case);
            let shape = draw.shape(0..=4);
            let (x, t) = (draw.tensor(&shape, -3.0..0.0), draw.tensor(&shape, 0.05..1.0));
            check(name, &[x, t], |xs| loss(&xs[0], &xs[1], REDUCTIONS[case as usize % 3]));
        }
    }
}

#[test]
fn classification_losses() {
    for case in 0..CASES {
        let mut draw = Draw::new(case);
        let shape = draw.shape(1..=4);
        let axis = 1.min(shape.len() - 1);
        let classes = shape[axis];
        let mut samples = shape.clone();
        samples.remove(axis);
        let indices = (0..samples.iter().product()).map(|_| draw.size(0..=classes - 1) as i64).collect::<Vec<_>>();
        let indices = Tensor::from_vec(indices, &samples).unwrap();
        let (x, soft) = (draw.tensor(&shape, -3.0..3.0), draw.tensor(&shape, 0.0..1.0));
        let reduction = REDUCTIONS[case as usize % 3];
        let options = CrossEntropy {
            reduction,
            // One class of several is ignored, so that some sample is left for the mean.
            ignore_index: (case % 2 == 0 && indices.to_f64().iter().any(|&i| i > 0.0)).then_some(0),
            label_smoothing: if case % 4 < 2 { 0.0 } else { 0.2 },
            weight: (case % 5 < 3).then(|| draw.tensor(&[classes], 0.5..2.0)),
        };
        check("nll_loss", std::slice::from_ref(&x), |xs| xs[0].nll_loss(&indices, reduction));
        check("cross_entropy of indices", std::slice::from_ref(&x), |xs| xs[0].cross_entropy_with(&indices, &options));
        check("cross_entropy of probabilities", &[x, soft], |xs| xs[0].cross_entropy_with(&xs[1], &options));
    }
}

#[test]
fn a_square_root_of_a_sum_of_squares() {
    // Several ops in a row: each rounds its gradient once, so the bound grows with their number.
    for case in 0..CASES {
        let mut draw = Draw::new(case);
        let shape = draw.shape(1..=3);
        let x = draw.away(&shape, -2.0..2.0, &[0.0]);
        check_within("norm by hand", 6.0, &[x], |xs| xs[0].square()?.sum(&[-1], true)?.sqrt());
    }
}
