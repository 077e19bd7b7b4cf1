//! Random changes of training examples.

use precast::{
    Tensor,
    error::{Error, Result},
    options::options,
};
use rand::{RngCore, SeedableRng, seq::SliceRandom};
use rand_chacha::ChaCha8Rng;
use rand_distr::{Beta, Distribution};

use crate::data::{Batch, Dataset, Inputs};

/// Random changes of training examples, drawn anew in each epoch. They depend on the seed of the run, the epoch and the
/// example, so that a resumed run makes the same ones. The examples for validation and for testing stay as they are.
#[options(written, called = "the augmentation")]
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Augment {
    /// `true` to mirror half of the images left to right.
    #[option(default = false)]
    pub flip: bool,
    /// Pixels of zeros around an image, from which a part of its size is cut at random. (He et al. 2016, "Deep residual
    /// learning for image recognition", section 4.2, with 4.) Zero is black, or the mean of standardized inputs.
    #[option(default = 0)]
    pub crop: usize,
    /// Largest number that is added to all values of an image, or subtracted from them, in the units in which the network
    /// takes them: 0 to 1 for images that are not standardized. At most the difference of the largest and the smallest one.
    #[option(default = 0.0, at_least = 0)]
    pub brightness: f64,
    /// Both parameters of a beta distribution, from which the share of each example in a mixture with another one of its
    /// batch is drawn; the loss is mixed likewise. (Zhang et al. 2018, "mixup: beyond empirical risk minimization",
    /// equation 1, with 0.1 to 0.4.) 0 mixes nothing.
    #[option(default = 0.0, at_least = 0)]
    pub mixup: f64,
}

/// A batch, and perhaps other targets with the share of the first ones in the loss.
#[derive(Debug)]
pub(super) struct Mixed {
    pub batch: Batch,
    pub others: Option<(Tensor, f64)>,
}

/// Streams of random numbers of examples and of batches, apart from those of the orders of epochs.
const OF_EXAMPLES: u64 = 1 << 63;
const OF_BATCHES: u64 = OF_EXAMPLES | 1 << 62;

fn rng(seed: u64, kind: u64, epoch: usize, place: usize) -> ChaCha8Rng {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    rng.set_stream(kind | (epoch as u64) << 32 | place as u64);
    rng
}

/// Returns a whole number below `count`.
fn below(rng: &mut ChaCha8Rng, count: usize) -> usize {
    ((u64::from(rng.next_u32()) * count as u64) >> 32) as usize
}

impl Augment {
    fn changes_images(&self) -> bool {
        self.flip || self.crop > 0 || self.brightness > 0.0
    }

    /// Checks that examples can be changed.
    ///
    /// # Errors
    /// [`ErrorKind::Data`](precast::ErrorKind::Data) for indices, for images of another shape than
    /// `[channels, height, width]`, and for a brightness beyond the range of their values.
    pub fn check(&self, data: &Dataset) -> Result<()> {
        self.check_form(data)?;
        self.check_brightness(data)
    }

    /// Checks examples as [`check`](Augment::check) does, without a look at their values.
    pub(super) fn check_form(&self, data: &Dataset) -> Result<()> {
        let shape = data.shape();
        if self.changes_images() && !matches!((data.form(), shape), (Inputs::Numbers(_), [_, _, _])) {
            return Err(Error::data(format!(
                "`flip`, `crop` and `brightness` are for images [channels, height, width]; the examples have the shape \
                 {shape:?}"
            )));
        }
        if let &[_, height, width] = shape
            && self.crop >= height.min(width)
            && self.crop > 0
        {
            return Err(Error::data(format!(
                "`crop` is {}, and the images have {height} x {width} pixels; allowed: less than a side",
                self.crop
            ))
            .about("crop"));
        }
        if self.mixup > 0.0 && !matches!(data.form(), Inputs::Numbers(_)) {
            return Err(Error::data("`mixup` is for numbers; the inputs are indices").about("mixup"));
        }
        if self.mixup > 0.0 && !data.further().is_empty() {
            return Err(Error::data("`mixup` is for examples with one input; these have further ones").about("mixup"));
        }
        Ok(())
    }

    /// Refuses a brightness beyond the range of the values, for which it may look at all of them.
    fn check_brightness(&self, data: &Dataset) -> Result<()> {
        if self.brightness > 0.0
            && let Inputs::Numbers(values) = data.inputs()
        {
            // Ends as soon as the range is known to be large enough, which few values show.
            let (mut least, mut largest) = (f64::INFINITY, f64::NEG_INFINITY);
            let is_beyond = values.iter().map(|&x| f64::from(x)).all(|x| {
                (least, largest) = (least.min(x), largest.max(x));
                largest - least < self.brightness
            });
            if is_beyond && !values.is_empty() {
                return Err(Error::data(format!(
                    "`brightness` is {}, and the inputs are from {least} to {largest}; allowed: at most {}, with which an \
                     image can become all black or white",
                    self.brightness,
                    largest - least
                ))
                .about("brightness"));
            }
        }
        Ok(())
    }

    /// Changes batches; `first` is the index of the first one in its epoch, and `examples` are those of all of them.
    pub(super) fn applied(
        &self,
        parts: Vec<Batch>,
        seed: u64,
        epoch: usize,
        (first, examples): (usize, &[usize]),
    ) -> Result<Vec<Mixed>> {
        let mut examples = examples.iter();
        let each = parts.into_iter().enumerate().map(|(i, Batch { x, further, y })| {
            let n = x.shape()[0];
            let of_part: Vec<usize> = examples.by_ref().take(n).copied().collect();
            let x = if self.changes_images() { self.images(&x, seed, epoch, &of_part)? } else { x };
            if self.mixup == 0.0 || n < 2 {
                return Ok(Mixed { batch: Batch { x, further, y }, others: None });
            }
            let mut rng = rng(seed, OF_BATCHES, epoch, first + i);
            let share = Beta::new(self.mixup, self.mixup).map_err(|error| Error::value(format!("`mixup`: {error}")))?;
            let share = share.sample(&mut rng);
            let mut order: Vec<i64> = (0..n as i64).collect();
            order.shuffle(&mut rng);
            let order = Tensor::from_vec(order, &[n])?;
            let scaled = |x: &Tensor, by: f64| x.mul(&Tensor::scalar(by, x.dtype()));
            let mixed = scaled(&x, share)?.add(&scaled(&x.index_select(0, &order)?, 1.0 - share)?)?;
            let others = y.index_select(0, &order)?;
            Ok(Mixed { batch: Batch { x: mixed, further, y }, others: Some((others, share)) })
        });
        each.collect()
    }

    /// Changes the images of a batch.
    fn images(&self, x: &Tensor, seed: u64, epoch: usize, examples: &[usize]) -> Result<Tensor> {
        let &[_, _, height, width] = x.shape() else { return Ok(x.clone()) };
        let pixels = x.to_vec::<f32>()?;
        let mut changed = Vec::with_capacity(pixels.len());
        for (image, &example) in pixels.chunks(pixels.len() / examples.len().max(1)).zip(examples) {
            let mut rng = rng(seed, OF_EXAMPLES, epoch, example);
            let is_flipped = below(&mut rng, 2) == 1 && self.flip;
            let [down, right] = [0; 2].map(|_: usize| below(&mut rng, 2 * self.crop + 1));
            let shift = (2.0 * f64::from(rng.next_u32()) / f64::from(u32::MAX) - 1.0) * self.brightness;
            for channel in image.chunks(height * width) {
                for row in 0..height {
                    for column in 0..width {
                        let column = if is_flipped { width - 1 - column } else { column };
                        // Places in the image with zeros around it, less the zeros.
                        let from = ((row + down).checked_sub(self.crop), (column + right).checked_sub(self.crop));
                        let value = match from {
                            (Some(row), Some(column)) if row < height && column < width => {
                                channel[row * width + column]
                            }
                            _ => 0.0,
                        };
                        changed.push((f64::from(value) + shift) as f32);
                    }
                }
            }
        }
        Tensor::from_vec(changed, x.shape())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::{
        data::{Split, Targets},
        training::{Fit, FitOptions, Loss},
    };
    use precast::{
        Child,
        layers::{Dense, Rng},
    };

    /// Images of 2 channels, 2 x 3 pixels: 1 to 12, more by 100 for each example.
    fn images(count: usize) -> Dataset {
        let values = (0..count * 12).map(|i| (100 * (i / 12) + i % 12 + 1) as f32).collect();
        Dataset::new(values, &[2, 2, 3], vec![0; count]).unwrap()
    }

    /// Returns the images of a batch of all examples in an epoch.
    fn changed(augment: &Augment, data: &Dataset, epoch: usize) -> Vec<Vec<f32>> {
        let order: Vec<usize> = (0..data.len()).collect();
        let parts = data.batches(5).unwrap().collect();
        let parts = augment.applied(parts, 7, epoch, (0, &order)).unwrap();
        parts
            .iter()
            .flat_map(|part| part.batch.x.to_vec::<f32>().unwrap())
            .collect::<Vec<_>>()
            .chunks(12)
            .map(<[f32]>::to_vec)
            .collect()
    }

    #[test]
    fn images_are_mirrored_and_cut_from_a_frame() {
        let data = images(400);
        let flip = Augment::default().flip(true);
        let (mut mirrored, mut epochs) = (0, BTreeSet::new());
        for epoch in 0..4 {
            let met = changed(&flip, &data, epoch);
            for (i, image) in met.iter().enumerate() {
                let plain: Vec<f32> = (1..13).map(|x| (100 * i + x) as f32).collect();
                let mirror: Vec<f32> = plain.chunks(3).flat_map(|row| row.iter().rev().copied()).collect();
                assert!(*image == plain || *image == mirror, "{image:?}");
                mirrored += usize::from(*image == mirror);
            }
            assert_eq!(met, changed(&flip, &data, epoch));
            epochs.insert(format!("{met:?}"));
        }
        // 1600 flips of a coin: within four deviations of 20.
        assert!((720..=880).contains(&mirrored) && epochs.len() == 4, "{mirrored}");

        // Each of the nine places is equally likely: 400 / 9 of each, within four deviations.
        let crop = Augment::default().crop(1);
        let mut places = [[0; 3]; 3];
        for (i, image) in changed(&crop, &data, 0).into_iter().enumerate() {
            let is_at = |down: usize, right: usize| {
                image.iter().enumerate().all(|(place, &value)| {
                    let (channel, row, column) = (place / 6, place / 3 % 2 + down, place % 3 + right);
                    let inside = (1..3).contains(&row) && (1..4).contains(&column);
                    let right = if inside { 100 * i + channel * 6 + (row - 1) * 3 + column } else { 0 };
                    value == right as f32
                })
            };
            let met = (0..9).find(|at| is_at(at / 3, at % 3)).unwrap_or_else(|| panic!("{image:?}"));
            places[met / 3][met % 3] += 1;
        }
        assert!(places.as_flattened().iter().all(|count| (19..=70).contains(count)), "{places:?}");
    }

    #[test]
    fn brightness_is_the_same_for_all_pixels_of_an_image() {
        let met = changed(&Augment::default().brightness(0.25), &images(400), 0);
        let shifts: Vec<f32> = met.iter().enumerate().map(|(i, image)| image[0] - (100 * i + 1) as f32).collect();
        for (image, shift) in met.iter().zip(&shifts) {
            assert!(image.windows(2).all(|pair| (pair[1] - pair[0] - 1.0).abs() < 0.01) && shift.abs() < 0.26);
        }
        // The mean of 400 uniform numbers of deviation 0.25 / sqrt 3 is within four deviations of 0.
        let mean = shifts.iter().sum::<f32>() / 400.0;
        assert!(mean.abs() < 4.0 * 0.25 / (3f32 * 400.0).sqrt(), "{mean}");
        assert!(shifts.iter().any(|shift| *shift > 0.2) && shifts.iter().any(|shift| *shift < -0.2));
    }

    /// The loss of a step on mixtures is that of both targets of each, by their shares.
    #[test]
    fn mixtures_have_the_loss_of_both_targets() {
        let values: Vec<f32> = (0..24).map(|i| (i as f32 * 0.7).sin()).collect();
        let data = Dataset::new(values, &[3], vec![0, 1, 2, 1, 0, 2, 2, 1]).unwrap();
        let split = Split { train: data.clone(), test: data.clone() };
        let mut net = Child::new(Dense::new(3, 3, &mut Rng::seed(2)));
        let augment = Augment::default().mixup(0.4);
        let options = FitOptions::default().batch(8).seed(3).augment(augment.clone());

        let order = data.order(3, 0);
        let parts = augment.applied(vec![data.batch(&order, 8, 0)], 3, 0, (0, &order)).unwrap();
        let [Mixed { batch, others: Some((others, share)) }] = &parts[..] else { panic!("{parts:?}") };
        let (plain, x) = (data.batch(&order, 8, 0), batch.x.to_f64());
        let (y, other_y) = (batch.y.to_vec::<i64>().unwrap(), others.to_vec::<i64>().unwrap());
        let of_plain = plain.x.to_f64();
        for (row, other) in x.chunks(3).zip(&other_y).map(|(row, other)| (row, *other)).collect::<Vec<_>>() {
            // Each row is the mixture of two rows of the batch, the second of the class of its other target.
            let is_mixture = |i: usize, j: usize| {
                let mixed = |k: usize| share * of_plain[i * 3 + k] + (1.0 - share) * of_plain[j * 3 + k];
                (0..3).all(|k| (row[k] - mixed(k)).abs() < 1e-6)
            };
            assert!((0..64).any(|pair| is_mixture(pair / 8, pair % 8) && y_of(&plain, pair % 8) == other), "{row:?}");
        }
        let outputs = net.call(&batch.x).unwrap();
        let of = |targets: &Tensor| Loss::cross_entropy().of(&outputs, targets).unwrap().item().unwrap();
        let right = share * of(&batch.y) + (1.0 - share) * of(others);
        assert_eq!(y, plain.y.to_vec::<i64>().unwrap());

        let mut fit = Fit::new(&net, &options).unwrap();
        fit.advance(&mut net, &split).unwrap();
        assert!((fit.history().steps[0].loss - right).abs() < 1e-6, "{} {right}", fit.history().steps[0].loss);
    }

    fn y_of(batch: &Batch, row: usize) -> i64 {
        batch.y.to_vec::<i64>().unwrap()[row]
    }

    #[test]
    fn examples_that_cannot_be_changed_are_refused() {
        let refused = |augment: Augment, data: &Dataset| augment.check(data).unwrap_err().to_string();
        let flat = Dataset::new(vec![0.0; 4], &[4], vec![0]).unwrap();
        let words =
            "`flip`, `crop` and `brightness` are for images [channels, height, width]; the examples have the shape [4]";
        assert_eq!(refused(Augment::default().crop(1), &flat), words);
        let words = "`crop` is 2, and the images have 2 x 3 pixels; allowed: less than a side";
        assert_eq!(refused(Augment::default().crop(2), &images(1)), words);
        let grey = Dataset::new(vec![0.0, 0.25, 1.0, 0.5], &[1, 2, 2], vec![0]).unwrap();
        let words = "`brightness` is 50, and the inputs are from 0 to 1; allowed: at most 1, with which an image can become \
                     all black or white";
        assert_eq!(refused(Augment::default().brightness(50.0), &grey), words);
        assert!(Augment::default().brightness(1.0).check(&grey).is_ok());
        let words = Dataset::of(Inputs::Indices(vec![1, 2]), &[2], Targets::Classes { shape: vec![], values: vec![0] });
        assert_eq!(
            refused(Augment::default().mixup(0.2), &words.unwrap()),
            "`mixup` is for numbers; the inputs are indices"
        );
        assert!(Augment::default().mixup(0.2).check(&flat).is_ok());
    }
}
