//! Losses of rows and of probabilities: definitions written out, refusals.

use precast::{DType, ErrorKind, Reduction, Result, Tensor};

use crate::ops::inputs::Draw;

const REDUCTIONS: [Reduction; 3] = [Reduction::Mean, Reduction::Sum, Reduction::None];

fn of(data: &[f64], shape: &[usize]) -> Tensor {
    Tensor::from_vec(data.to_vec(), shape).unwrap()
}

fn indices(data: &[i64], shape: &[usize]) -> Tensor {
    Tensor::from_vec(data.to_vec(), shape).unwrap()
}

fn close(got: &Tensor, want: &[f64]) {
    let got = got.to_f64();
    assert_eq!(got.len(), want.len());
    assert!(got.iter().zip(want).all(|(a, b)| (a - b).abs() <= 1e-12 * b.abs().max(1.0)), "{got:?} {want:?}");
}

/// Draws 1 or -1 for each position.
fn refused(result: Result<Tensor>, kind: ErrorKind, words: &str) {
    let error = result.unwrap_err();
    assert!(error.kind() == kind && error.to_string().contains(words), "{error}");
}

fn signs(draw: &mut Draw, shape: &[usize]) -> Tensor {
    let n = shape.iter().product();
    indices(&(0..n).map(|_| draw.size(0..=1) as i64 * 2 - 1).collect::<Vec<_>>(), shape)
}

#[test]
fn pairs_follow_their_definitions() -> Result<()> {
    use Reduction::{Mean, None, Sum};
    let (x, t) = (of(&[1.0, -2.0, 0.25], &[3]), of(&[0.0, 1.0, 0.0], &[3]));
    close(&x.huber_loss(&t, 0.5, None)?, &[0.5 * (1.0 - 0.25), 0.5 * (3.0 - 0.25), 0.25 * 0.25 / 2.0]);
    close(&x.huber_loss(&t, 1.0, Sum)?, &[x.smooth_l1_loss(&t, 1.0, Sum)?.item()?]);
    let p = of(&[0.25, 0.5, 1.0, 0.0], &[4]);
    let y = of(&[1.0, 0.0, 1.0, 1.0], &[4]);
    // The logarithm of 0 is clamped to -100, and so is the divisor of its slope.
    close(&p.binary_cross_entropy(&y, None)?, &[4f64.ln(), 2f64.ln(), 0.0, 100.0]);
    let logits = of(&[0.3, -1.2, 2.0, 0.7], &[4]);
    let by_logits = logits.bce_with_logits(&y, Mean)?.item()?;
    close(&logits.sigmoid()?.binary_cross_entropy(&y, Mean)?, &[by_logits]);
    close(&x.poisson_nll_loss(&t, true, None)?, &[1f64.exp(), (-2f64).exp() + 2.0, 0.25f64.exp()]);
    close(&of(&[2.0], &[1]).poisson_nll_loss(&of(&[3.0], &[1]), false, Sum)?, &[2.0 - 3.0 * (2.0 + 1e-8f64).ln()]);
    let signs = indices(&[1, -1, -1], &[3]);
    close(&x.soft_margin_loss(&signs, None)?, &[(-1f64).exp().ln_1p(), (-2f64).exp().ln_1p(), 0.25f64.exp().ln_1p()]);
    assert_eq!(of(&[-800.0], &[1]).soft_margin_loss(&of(&[1.0], &[1]), Sum)?.item()?, 800.0);
    close(&x.hinge_embedding_loss(&signs, 1.0, None)?, &[1.0, 3.0, 0.75]);
    let others = of(&[0.5, 0.0, 0.0], &[3]);
    close(&x.margin_ranking_loss(&others, &signs, 0.1, None)?, &[0.0, 0.0, 0.35]);
    close(
        &x.gaussian_nll_loss(&t, &of(&[1.0, 4.0, 0.0], &[3]), 0.25, None)?,
        &[0.5, 0.5 * (4f64.ln() + 9.0 / 4.0), 0.5 * (0.25f64.ln() + 0.0625 / 0.25)],
    );
    Ok(())
}

#[test]
fn rows_follow_their_definitions() -> Result<()> {
    use Reduction::{Mean, None};
    let (a, b) = (of(&[1.0, 0.0, 3.0, 4.0], &[2, 2]), of(&[1.0, 1.0, -3.0, -4.0], &[2, 2]));
    let half = 0.5f64.sqrt();
    close(&a.cosine_embedding_loss(&b, &indices(&[1, 1], &[2]), 0.0, None)?, &[1.0 - half, 2.0]);
    close(&a.cosine_embedding_loss(&b, &indices(&[-1, -1], &[2]), 0.2, None)?, &[half - 0.2, 0.0]);
    let zero = Tensor::zeros(&[2, 2], DType::F64);
    let far = zero.triplet_margin_loss(&of(&[3.0, 4.0, 0.0, 0.0], &[2, 2]), &a, 1.0, 2.0, None)?.to_f64();
    assert!((far[0] - 5.0).abs() < 1e-5 && far[1] == 0.0, "{far:?}");
    let scores = of(&[0.1, 0.2, 0.4, 0.8], &[1, 4]);
    // The example in torch's documentation of both losses.
    close(&scores.multi_margin_loss(&indices(&[3], &[1]), 1, 1.0, Mean)?, &[0.25 * (0.3 + 0.4 + 0.6)]);
    let named = indices(&[3, 0, -1, 1], &[1, 4]);
    close(&scores.multilabel_margin_loss(&named, Mean)?, &[0.85]);
    // One sample without an axis gives a scalar.
    let alone = scores.squeeze(0)?;
    close(&alone.multi_margin_loss(&indices(&[3], &[]), 2, 1.0, None)?, &[0.25 * (0.09 + 0.16 + 0.36)]);
    assert_eq!(alone.multilabel_margin_loss(&named.squeeze(0)?, None)?.rank(), 0);
    let logits = of(&[0.3, -1.0, 2.0, 0.5], &[2, 2]);
    let target = of(&[1.0, 0.0, 0.0, 1.0], &[2, 2]);
    let want = logits.bce_with_logits(&target, None)?.mean(&[1], false)?.to_f64();
    close(&logits.multilabel_soft_margin_loss(&target, None)?, &want);
    Ok(())
}

/// Where torch raises errors: `torch.nn.functional.binary_cross_entropy` and `gaussian_nll_loss`.
#[test]
fn numbers_outside_of_the_domain_of_a_loss_are_refused() {
    let mean = Reduction::Mean;
    let of = |numbers: &[f64], dtype| Tensor::from_f64(numbers, &[2], dtype).unwrap();
    for dtype in [DType::F64, DType::F32, DType::F16, DType::Bf16] {
        let (p, var) = (of(&[0.25, 1.0], dtype), of(&[0.0, 2.0], dtype));
        for (wrong, place) in [([2.0, 0.5], 0), ([0.0, -1.0], 1), ([1.0, f64::INFINITY], 1)] {
            let x = of(&wrong, dtype);
            let what = |what: &str| format!("BinaryCrossEntropy: {what} {place} is {}; allowed: 0 to 1", wrong[place]);
            refused(p.binary_cross_entropy(&x, mean), ErrorKind::Value, &what("target"));
            refused(x.binary_cross_entropy(&p, mean), ErrorKind::Value, &what("probability"));
        }
        let nan = of(&[f64::NAN, 0.5], dtype);
        refused(p.binary_cross_entropy(&nan, mean), ErrorKind::Value, "target 0 is NaN");
        // An overflow, for which a loss scale skips the step.
        assert!(nan.binary_cross_entropy(&p, mean).unwrap().item().unwrap().is_nan());
        let negative = of(&[1.0, -1.0], dtype);
        refused(
            p.gaussian_nll_loss(&p, &negative, 1e-6, mean),
            ErrorKind::Value,
            "variance 1 is -1; allowed: 0 and above",
        );
        assert!(p.gaussian_nll_loss(&p, &var, 1e-6, mean).is_ok());
    }
    let classes = Tensor::from_vec(vec![0i64, 2], &[2]).unwrap();
    refused(of(&[0.5, 0.5], DType::F32).binary_cross_entropy(&classes, mean), ErrorKind::Value, "target 1 is 2");
}

#[test]
fn sixteen_bit_losses_are_those_of_f32_rounded_once() -> Result<()> {
    let mut draw = Draw::new(4);
    for low in DType::LOW {
        let [a, b, c] = [(); 3].map(|()| draw.tensor(&[6, 5], 0.1..0.9).cast(low));
        let wide = [&a, &b, &c].map(|x| x.cast(DType::F32));
        let rows = signs(&mut draw, &[6]);
        for reduction in REDUCTIONS {
            let all = |a: &Tensor, b: &Tensor, c: &Tensor| -> Result<Vec<Tensor>> {
                Ok(vec![
                    a.huber_loss(b, 0.3, reduction)?,
                    a.binary_cross_entropy(b, reduction)?,
                    a.gaussian_nll_loss(b, c, 1e-6, reduction)?,
                    a.cosine_embedding_loss(b, &rows, 0.1, reduction)?,
                    a.triplet_margin_loss(b, c, 1.0, 2.0, reduction)?,
                ])
            };
            for (low_loss, loss) in all(&a, &b, &c)?.iter().zip(all(&wide[0], &wide[1], &wide[2])?) {
                assert_eq!((low_loss.dtype(), low_loss.to_f64()), (low, loss.cast(low).to_f64()));
            }
        }
    }
    Ok(())
}

#[test]
fn refusals_say_what_was_met() {
    let x = Tensor::zeros(&[2, 3], DType::F32);
    let mean = Reduction::Mean;
    refused(x.huber_loss(&x, 0.0, mean), ErrorKind::Value, "HuberLoss: delta = 0; allowed: above 0");
    refused(x.gaussian_nll_loss(&x, &x, f64::NAN, mean), ErrorKind::Value, "GaussianNllLoss: eps = NaN");
    refused(x.triplet_margin_loss(&x, &x, 1.0, 0.0, mean), ErrorKind::Value, "p = 0");
    refused(x.triplet_margin_loss(&x, &x.flatten(0).unwrap(), 1.0, 2.0, mean), ErrorKind::Shape, "[6]");
    refused(x.cosine_embedding_loss(&x, &x, 0.0, mean), ErrorKind::Shape, "rows [2, 3] with targets [2, 3]");
    let classes = indices(&[0, 3], &[2]);
    refused(x.multi_margin_loss(&classes, 1, 1.0, mean), ErrorKind::Value, "the index 3 is out of range: 0..3");
    refused(x.multi_margin_loss(&classes, 3, 1.0, mean), ErrorKind::Value, "p = 3; allowed: 1, 2");
    refused(x.multi_margin_loss(&indices(&[0], &[1]), 1, 1.0, mean), ErrorKind::Shape, "classes [1]");
    refused(x.multi_margin_loss(&x, 1, 1.0, mean), ErrorKind::Shape, "do not fit");
    let named = indices(&[0, 1, 9, 0, -1, -1], &[2, 3]);
    refused(x.multilabel_margin_loss(&named, mean), ErrorKind::Value, "the class 9 is out of range: -1 to 2");
    refused(x.multilabel_margin_loss(&x, mean), ErrorKind::DType, "classes are i64, got f32");
    refused(x.margin_ranking_loss(&x, &Tensor::zeros(&[4], DType::F32), 0.0, mean), ErrorKind::Shape, "broadcast");
    refused(x.multilabel_soft_margin_loss(&classes, mean), ErrorKind::Shape, "[2, 3] and [2] differ");
}
