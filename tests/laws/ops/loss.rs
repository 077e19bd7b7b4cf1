//! Values of the losses: definitions written out, closed forms, one rounding, ignored and weighted samples, refusals.

use precast::{CrossEntropy, DType, ErrorKind, Reduction, Result, Tensor, layers::Rng};

fn of(data: &[f64], shape: &[usize]) -> Tensor {
    Tensor::from_vec(data.to_vec(), shape).unwrap()
}

fn indices(data: &[i64], shape: &[usize]) -> Tensor {
    Tensor::from_vec(data.to_vec(), shape).unwrap()
}

/// Returns logits for 2 samples, 3 classes and 4 positions, and a class for each sample and position.
fn problem() -> (Vec<f64>, Vec<i64>) {
    ((0..24).map(|i| (i as f64 * 1.3).sin() * 4.0).collect(), (0..8).map(|i| i * 5 % 3).collect())
}

/// Computes the definition: for each sample, minus the sum over classes of target * weight * log probability.
fn by_definition(logits: &[f64], target: impl Fn(usize, usize) -> f64, weight: &[f64]) -> Vec<f64> {
    let logit = |sample: usize, class: usize| logits[sample / 4 * 12 + class * 4 + sample % 4];
    let loss = |sample: usize| -> f64 {
        let whole: f64 = (0..3).map(|c| logit(sample, c).exp()).sum();
        (0..3).map(|c| -target(sample, c) * weight[c] * (logit(sample, c).exp() / whole).ln()).sum()
    };
    (0..8).map(loss).collect()
}

fn close(got: &[f64], want: &[f64]) {
    assert_eq!(got.len(), want.len());
    assert!(got.iter().zip(want).all(|(a, b)| (a - b).abs() <= 1e-13 * b.abs().max(1.0)), "{got:?} {want:?}");
}

#[test]
fn cross_entropy_is_its_definition() -> Result<()> {
    let (logits, classes) = problem();
    let (x, t) = (of(&logits, &[2, 3, 4]), indices(&classes, &[2, 4]));
    let weight = [0.5, 2.0, 1.25];
    let hot = |sample: usize, class: usize| (classes[sample] == class as i64) as u8 as f64;
    for smoothing in [0.0, 0.3] {
        for weight in [[1.0; 3], weight] {
            let each = by_definition(&logits, |s, c| hot(s, c) * (1.0 - smoothing) + smoothing / 3.0, &weight);
            let options = |reduction, ignore_index| {
                CrossEntropy::default()
                    .reduction(reduction)
                    .ignore_index(ignore_index)
                    .label_smoothing(smoothing)
                    .weight(Some(of(&weight, &[3])))
            };
            let loss = |reduction, ignore| x.cross_entropy_with(&t, &options(reduction, ignore)).unwrap().to_f64();
            close(&loss(Reduction::None, None), &each);
            close(&loss(Reduction::Sum, None), &[each.iter().sum()]);
            let weights: f64 = classes.iter().map(|&c| weight[c as usize]).sum();
            close(&loss(Reduction::Mean, None), &[each.iter().sum::<f64>() / weights]);
            let left: Vec<usize> = (0..8).filter(|&i| classes[i] != 1).collect();
            let weights: f64 = left.iter().map(|&i| weight[classes[i] as usize]).sum();
            close(&loss(Reduction::Mean, Some(1)), &[left.iter().map(|&i| each[i]).sum::<f64>() / weights]);
            let kept: Vec<f64> = (0..8).map(|i| if classes[i] == 1 { 0.0 } else { each[i] }).collect();
            close(&loss(Reduction::None, Some(1)), &kept);
        }
    }
    Ok(())
}

#[test]
fn probabilities_as_targets() -> Result<()> {
    let (logits, classes) = problem();
    let x = of(&logits, &[2, 3, 4]);
    let hot: Vec<f64> = (0..24).map(|i| (classes[i / 12 * 4 + i % 4] == (i / 4 % 3) as i64) as u8 as f64).collect();
    let by_index = x.cross_entropy(&indices(&classes, &[2, 4]))?.item()?;
    close(&[x.cross_entropy(&of(&hot, &[2, 3, 4]))?.item()?], &[by_index]);
    // Against its own distribution, the cross entropy is the entropy: ln 4 for four equal classes.
    let even = Tensor::full(&[5, 4], 0.25, DType::F64);
    close(&[Tensor::zeros(&[5, 4], DType::F64).cross_entropy(&even)?.item()?], &[4f64.ln()]);
    Ok(())
}

#[test]
fn one_sample_alone_and_extreme_logits() -> Result<()> {
    close(&[of(&[0., 3f64.ln()], &[2]).cross_entropy(&indices(&[1], &[]))?.item()?], &[-(0.75f64.ln())]);
    let far = of(&[1e5, 0., f64::NEG_INFINITY], &[1, 3]).requires_grad();
    for (class, loss) in [(0, 0.0), (1, 1e5), (2, f64::INFINITY)] {
        assert_eq!(far.cross_entropy(&indices(&[class], &[1]))?.item()?, loss);
    }
    let grads = far.cross_entropy(&indices(&[1], &[1]))?.backward()?;
    assert_eq!(grads.of(&far).unwrap().to_f64(), [1., -1., 0.]);
    assert!(far.cross_entropy(&indices(&[-100], &[1]))?.item()?.is_nan());
    assert!(Tensor::zeros(&[0, 3], DType::F32).cross_entropy(&indices(&[], &[0]))?.item()?.is_nan());
    Ok(())
}

#[test]
fn class_minus_100_is_ignored_unless_another_is() -> Result<()> {
    let (x, rest) = (of(&[0.5, -1., 2., 0., 3., 1.], &[3, 2]).requires_grad(), of(&[0.5, -1., 3., 1.], &[2, 2]));
    let (target, targets) = (indices(&[1, -100, 0], &[3]), indices(&[1, 0], &[2]));
    for (loss, of_rest) in [
        (x.cross_entropy(&target)?, rest.cross_entropy(&targets)?),
        (x.nll_loss(&target, Reduction::Mean)?, rest.nll_loss(&targets, Reduction::Mean)?),
    ] {
        assert_eq!(loss.item()?, of_rest.item()?);
        let grad = loss.backward()?.of(&x).unwrap().to_f64();
        let rows: Vec<f64> = grad.chunks(2).map(|row| row.iter().map(|grad| grad.abs()).sum()).collect();
        assert!(rows[0] > 0.1 && rows[1] == 0.0 && rows[2] > 0.1, "{grad:?}");
    }
    assert_eq!(x.nll_loss(&target, Reduction::None)?.to_f64(), [1., 0., -3.]);
    let other = CrossEntropy::default().ignore_index(0);
    assert!(x.cross_entropy_with(&target, &other).unwrap_err().to_string().contains("class index -100"));
    Ok(())
}

#[test]
fn low_losses_are_the_f32_ones_rounded_once() -> Result<()> {
    let (logits, classes) = problem();
    let t = indices(&classes, &[2, 4]);
    for low in DType::LOW {
        let x = of(&logits, &[2, 3, 4]).cast(low);
        let full = Tensor::from_f64(&x.to_f64(), &[2, 3, 4], DType::F32)?;
        let y = (&x * 0.5)?;
        let full_y = Tensor::from_f64(&y.to_f64(), &[2, 3, 4], DType::F32)?;
        for reduction in [Reduction::Mean, Reduction::Sum, Reduction::None] {
            let options = CrossEntropy::default().reduction(reduction).label_smoothing(0.1);
            let pairs = [
                (x.cross_entropy_with(&t, &options)?, full.cross_entropy_with(&t, &options)?),
                (x.nll_loss(&t, reduction)?, full.nll_loss(&t, reduction)?),
                (x.mse_loss(&y, reduction)?, full.mse_loss(&full_y, reduction)?),
                (x.smooth_l1_loss(&y, 1.0, reduction)?, full.smooth_l1_loss(&full_y, 1.0, reduction)?),
                (x.bce_with_logits(&y, reduction)?, full.bce_with_logits(&full_y, reduction)?),
            ];
            for (low_loss, loss) in pairs {
                assert_eq!((low_loss.dtype(), low_loss.to_f64()), (low, loss.cast(low).to_f64()));
            }
        }
    }
    Ok(())
}

#[test]
fn pair_losses_have_their_closed_forms() -> Result<()> {
    use Reduction::{Mean, None, Sum};
    let (x, t) = (of(&[1., -2., 0.25], &[3]), of(&[0., 1., 0.], &[3]));
    assert_eq!(x.mse_loss(&t, None)?.to_f64(), [1., 9., 0.0625]);
    assert_eq!(x.l1_loss(&t, Sum)?.item()?, 4.25);
    assert_eq!(x.smooth_l1_loss(&t, 1.0, None)?.to_f64(), [0.5, 2.5, 0.03125]);
    assert_eq!(x.smooth_l1_loss(&t, 0.0, Mean)?.item()?, x.l1_loss(&t, Mean)?.item()?);
    // sigmoid(ln 3) = 3/4
    let logits = of(&[3f64.ln(), 3f64.ln(), 800., -800.], &[4]);
    let loss = logits.bce_with_logits(&of(&[1., 0., 0., 1.], &[4]), None)?;
    close(&loss.to_f64(), &[-(0.75f64.ln()), -(0.25f64.ln()), 800., 800.]);
    let p = of(&[0.25, 0.75, 0.], &[3]);
    let log_q = of(&[0.5f64.ln(), 0.5f64.ln(), f64::NEG_INFINITY], &[3]);
    close(&[log_q.kl_div(&p, Sum)?.item()?], &[0.25 * 0.5f64.ln() + 0.75 * 1.5f64.ln()]);
    let nll = of(&[-1., -2., -3., -4.], &[2, 2]).nll_loss(&indices(&[1, 0], &[2]), Mean)?;
    assert_eq!(nll.item()?, 2.5);
    Ok(())
}

#[test]
fn refusals_say_what_was_met() {
    let x = Tensor::zeros(&[2, 3], DType::F32);
    let refusal = |result: Result<Tensor>| result.unwrap_err();
    let message = refusal(x.cross_entropy(&indices(&[0, 3], &[2]))).to_string();
    assert_eq!(message, "CrossEntropy: class index 3 with 3 classes; allowed: 0 to 2");
    assert_eq!(refusal(x.cross_entropy(&indices(&[0, -1], &[2]))).kind(), ErrorKind::Value);
    assert_eq!(refusal(x.nll_loss(&indices(&[0, 9], &[2]), Reduction::Sum)).kind(), ErrorKind::Value);
    let message = refusal(x.cross_entropy(&indices(&[0], &[1]))).to_string();
    assert!(message.contains("[2, 3]") && message.contains("[1]") && message.contains("[2]"), "{message}");
    let with = |options| refusal(x.cross_entropy_with(&indices(&[0, 1], &[2]), &options)).kind();
    assert_eq!(with(CrossEntropy::default().label_smoothing(1.5)), ErrorKind::Value);
    assert_eq!(with(CrossEntropy::default().label_smoothing(f64::NAN)), ErrorKind::Value);
    assert_eq!(with(CrossEntropy::default().weight(Some(of(&[1.], &[1])))), ErrorKind::Shape);
    assert_eq!(with(CrossEntropy::default().weight(Some(indices(&[1; 3], &[3])))), ErrorKind::DType);
    assert_eq!(refusal(Tensor::scalar(0.0, DType::F32).cross_entropy(&x)).kind(), ErrorKind::Shape);
    assert_eq!(refusal(indices(&[1], &[1]).cross_entropy(&indices(&[0], &[]))).kind(), ErrorKind::DType);
    // Broadcasting a target would hide a forgotten axis.
    let message = refusal(x.mse_loss(&Tensor::zeros(&[3], DType::F32), Reduction::Mean)).to_string();
    assert_eq!(message, "MseLoss: an input of shape [2, 3] and a target of shape [3]; allowed: equal shapes");
    assert_eq!(refusal(x.smooth_l1_loss(&x, -1.0, Reduction::Mean)).kind(), ErrorKind::Value);
}

/// Returns the probability of the labels of one sample: the sum over all paths, each without its repetitions and blanks.
fn of_all_paths(log: &[f64], length: usize, classes: usize, labels: &[i64], blank: i64) -> f64 {
    let mut sum = 0.0;
    for number in 0..classes.pow(length as u32) {
        let path: Vec<i64> = (0..length).map(|t| (number / classes.pow(t as u32) % classes) as i64).collect();
        let mut read = path.clone();
        read.dedup();
        read.retain(|&class| class != blank);
        if read == labels {
            sum += path.iter().enumerate().map(|(t, &class)| log[t * classes + class as usize]).sum::<f64>().exp();
        }
    }
    sum
}

#[test]
fn ctc_counts_every_alignment() -> Result<()> {
    let rng = &mut Rng::seed(5);
    let (length, classes) = (5, 3);
    for blank in [0i64, 2] {
        let (a, b) = if blank == 0 { (1, 2) } else { (0, 1) };
        let labels = [vec![a, b], vec![a, a], vec![], vec![b, b, b], vec![a, b, a, b]];
        let lengths = [5i64, 4, 3, 5, 3];
        let x = Tensor::randn(&[length, labels.len(), classes], rng)?.cast(DType::F64).log_softmax(-1)?;
        let of_sample = |n: usize| {
            let log = x.slice(0, 0..lengths[n] as usize)?.slice(1, n..n + 1)?.to_f64();
            Ok(-of_all_paths(&log, lengths[n] as usize, classes, &labels[n], blank).ln())
        };
        let wanted: Vec<f64> = (0..labels.len()).map(of_sample).collect::<Result<_>>()?;
        let counts: Vec<i64> = labels.iter().map(|labels| labels.len() as i64).collect();
        let in_a_row = indices(&labels.concat(), &[11]);
        let mut padded = vec![-7; 5 * 4];
        labels.iter().enumerate().for_each(|(n, labels)| padded[n * 4..n * 4 + labels.len()].copy_from_slice(labels));
        let (lengths, counts) = (indices(&lengths, &[5]), indices(&counts, &[5]));
        for targets in [in_a_row, indices(&padded, &[5, 4])] {
            let loss =
                |x: &Tensor, zero, reduction| x.ctc_loss(&targets, &lengths, &counts, blank as usize, zero, reduction);
            let met = loss(&x, false, Reduction::None)?.to_f64();
            close(&met[..4], &wanted[..4]);
            assert_eq!((met[4], wanted[4]), (f64::INFINITY, f64::INFINITY), "four labels in three places");
            let finite = loss(&x, true, Reduction::Mean)?.item()?;
            close(&[finite], &[(wanted[0] / 2.0 + wanted[1] / 2.0 + wanted[2] + wanted[3] / 3.0) / 5.0]);
            // After a log_softmax, as in torch: the softmax less the probability of each class over all alignments.
            let logits = x.detach().requires_grad();
            let grad = loss(&logits.log_softmax(-1)?, true, Reduction::Sum)?.backward()?.of(&logits).unwrap();
            close(&grad.sum(&[-1], false)?.to_f64(), &[0.0; 25]);
            let of_impossible = grad.slice(1, 4..5)?.to_f64();
            assert!(of_impossible.iter().all(|grad| *grad == 0.0), "{of_impossible:?}");
        }
    }
    Ok(())
}

#[test]
fn ctc_refuses_what_cannot_be_aligned() {
    let x = Tensor::zeros(&[4, 2, 3], DType::F32);
    let (fours, twos) = (indices(&[4, 4], &[2]), indices(&[2, 2], &[2]));
    let targets = indices(&[1, 2, 2, 1], &[2, 2]);
    let loss = |targets: &Tensor, inputs: &Tensor, counts: &Tensor, blank| {
        x.ctc_loss(targets, inputs, counts, blank, false, Reduction::Mean).map(|_| ()).unwrap_err().to_string()
    };
    for (met, wanted) in [
        (loss(&targets, &fours, &twos, 3), "blank = 3 with 3 classes; allowed: below 3"),
        (loss(&targets, &fours, &twos, 1), "class 1 among the targets; allowed: 0 to 2 but the blank, 1"),
        (loss(&indices(&[1, 3, 1, 1], &[2, 2]), &fours, &twos, 0), "class 3 among the targets"),
        (loss(&targets, &indices(&[5, 4], &[2]), &twos, 0), "5 among the input lengths; allowed: 0 to 4"),
        (loss(&targets, &fours, &indices(&[2, -1], &[2]), 0), "-1 among the target lengths; allowed: 0 to 2"),
        (
            loss(&targets, &fours, &indices(&[2], &[1]), 0),
            "target lengths of shape [1]; one for each of 2 samples: [2]",
        ),
        (
            loss(&indices(&[1, 2, 1], &[3]), &fours, &twos, 0),
            "3 labels in a row, and the target lengths have the sum 4",
        ),
        (loss(&targets.cast(DType::F32), &fours, &twos, 0), "targets and lengths are i64, got float32"),
        (loss(&indices(&[1, 2, 1], &[3, 1]), &fours, &twos, 0), "targets of shape [3, 1]; allowed: [2, longest]"),
    ] {
        assert!(met.contains(wanted), "{met}");
    }
}
