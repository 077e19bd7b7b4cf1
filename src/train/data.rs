//! Examples with what is to be learnt of them, and the handwritten digits that come with the library.

use std::{io::Read, path::Path};

use flate2::read::GzDecoder;
use rand::{SeedableRng, seq::SliceRandom};
use rand_chacha::ChaCha8Rng;

use crate::{
    Tensor,
    error::{Error, Result},
    io::files,
    printable::printable,
};

/// Examples of one shape, each with its target: the index of a class, or numbers.
#[derive(Clone, PartialEq)]
pub struct Dataset {
    /// Shape of one example.
    shape: Vec<usize>,
    values: Vec<f32>,
    targets: Targets,
}

/// What is to be learnt of each example.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Targets {
    /// Its class: classification.
    Classes(Vec<i64>),
    /// Numbers: regression.
    Numbers {
        /// Shape of the target of one example; empty for a single number.
        shape: Vec<usize>,
        /// The targets, one after another.
        values: Vec<f32>,
    },
}

/// Training examples and test examples.
#[derive(Clone, Debug, PartialEq)]
pub struct Split {
    /// The training examples.
    pub train: Dataset,
    /// The test examples.
    pub test: Dataset,
}

/// Some examples as tensors.
#[derive(Clone, Debug)]
pub struct Batch {
    /// The examples: f32 `[n, ...]`.
    pub x: Tensor,
    /// Their targets: classes are i64 `[n]`, numbers f32 `[n, ...]`.
    pub y: Tensor,
}

impl Dataset {
    /// Examples of the given shape, one after another, with their classes.
    ///
    /// # Errors
    /// [`ErrorKind::Data`](crate::ErrorKind::Data) when the values are not one example for each label, one of them
    /// is not finite, or a class is negative.
    pub fn new(values: Vec<f32>, shape: &[usize], labels: Vec<i64>) -> Result<Self> {
        Dataset { shape: shape.to_vec(), values, targets: Targets::Classes(labels) }.checked()
    }

    /// Examples of the given shape, one after another, with targets that are numbers: a tensor of `target_shape` for each
    /// example. It is the shape that a network returns for one example, `[1]` for a last `Dense` with one output.
    ///
    /// ```
    /// # use precast::data::Dataset;
    /// // y = 2 x1 + x2 at three points.
    /// let data = Dataset::regression(vec![0.0, 1.0, 1.0, 0.0, 1.0, 1.0], &[2], vec![1.0, 2.0, 3.0], &[1])?;
    /// let batch = data.batches(3)?.next().unwrap();
    /// assert_eq!((batch.x.shape(), batch.y.shape()), (&[3, 2][..], &[3, 1][..]));
    /// # Ok::<(), precast::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`ErrorKind::Data`](crate::ErrorKind::Data) when the values are not one example for each target, a value or a target
    /// is not finite, or the targets are not of their shape.
    pub fn regression(values: Vec<f32>, shape: &[usize], targets: Vec<f32>, target_shape: &[usize]) -> Result<Self> {
        let whole = elements(target_shape).is_some_and(|each| each > 0 && targets.len().is_multiple_of(each));
        if !whole {
            return Err(Error::data(format!("{} numbers are no targets of shape {target_shape:?}", targets.len())));
        }
        let targets = Targets::Numbers { shape: target_shape.to_vec(), values: targets };
        Dataset { shape: shape.to_vec(), values, targets }.checked()
    }

    fn checked(self) -> Result<Self> {
        let (n, shape) = (self.len(), &self.shape);
        if elements(shape).and_then(|each| each.checked_mul(n)) != Some(self.values.len()) {
            return Err(Error::data(format!("{} values are not {n} examples of shape {shape:?}", self.values.len())));
        }
        match &self.targets {
            Targets::Classes(labels) => {
                if let Some((i, label)) = labels.iter().enumerate().find(|(_, label)| **label < 0) {
                    return Err(Error::data(format!("label {i} is {label}; classes count from 0")));
                }
            }
            Targets::Numbers { values, .. } => all_finite("target", values, n)?,
        }
        all_finite("value", &self.values, n)?;
        Ok(self)
    }

    /// How many examples.
    pub fn len(&self) -> usize {
        match &self.targets {
            Targets::Classes(labels) => labels.len(),
            Targets::Numbers { shape, values } => values.len() / shape.iter().product::<usize>(),
        }
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Shape of one example.
    pub fn shape(&self) -> &[usize] {
        &self.shape
    }

    /// What is to be learnt of the examples, in order.
    pub fn targets(&self) -> &Targets {
        &self.targets
    }

    /// The classes, in order; none where the targets are numbers.
    pub fn labels(&self) -> &[i64] {
        match &self.targets {
            Targets::Classes(labels) => labels,
            Targets::Numbers { .. } => &[],
        }
    }

    /// How many classes: one more than the highest label.
    pub fn classes(&self) -> usize {
        self.labels().iter().max().map_or(0, |&label| label as usize + 1)
    }

    /// The same examples in another shape, such as `[64]` instead of `[1, 8, 8]`.
    ///
    /// # Errors
    /// [`ErrorKind::Shape`](crate::ErrorKind::Shape) when the number of elements differs.
    pub fn reshape(self, shape: &[usize]) -> Result<Self> {
        if elements(shape) != elements(&self.shape) {
            return Err(Error::shape(format!("examples of shape {:?} cannot take the shape {shape:?}", self.shape)));
        }
        Ok(Dataset { shape: shape.to_vec(), ..self })
    }

    /// The same images, `[..., height, width]`, at another size: bilinear between the four nearest pixels, whose centres
    /// lie at half-integer positions (`align_corners = false`); beyond the outer centres the edge is continued.
    ///
    /// # Errors
    /// [`ErrorKind::Shape`](crate::ErrorKind::Shape) unless the examples have two axes of at least one pixel, as has the new size.
    pub fn resize(self, height: usize, width: usize) -> Result<Self> {
        let [outer @ .., h, w] = &self.shape[..] else {
            return Err(Error::shape(format!("examples of shape {:?} are no images [..., height, width]", self.shape)));
        };
        if [height, width, *h, *w].contains(&0) || height.max(width) > MOST_PIXELS {
            return Err(Error::shape(format!(
                "images of {h} x {w} cannot be resized to {height} x {width}; allowed: 1 to {MOST_PIXELS} pixels"
            )));
        }
        let (rows, columns) = (neighbours(*h, height), neighbours(*w, width));
        let len = (height * width).checked_mul(self.values.len() / (h * w));
        let mut values = Vec::new();
        if len.is_none_or(|len| values.try_reserve_exact(len).is_err()) {
            let images = self.values.len() / (h * w);
            return Err(Error::shape(format!("{images} images of {height} x {width} do not fit into memory")));
        }
        for image in self.values.chunks_exact(h * w) {
            for &(top, bottom, down) in &rows {
                for &(left, right, across) in &columns {
                    let row = |y: usize| image[y * w + left] * (1.0 - across) + image[y * w + right] * across;
                    values.push(row(top) * (1.0 - down) + row(bottom) * down);
                }
            }
        }
        let shape = [outer, &[height, width]].concat();
        Ok(Dataset { shape, values, targets: self.targets })
    }

    /// Shuffles by the seed and splits: the first `train` examples are for training, the rest for testing.
    ///
    /// # Errors
    /// [`ErrorKind::Data`](crate::ErrorKind::Data) unless both parts get an example.
    pub fn split(&self, train: usize, seed: u64) -> Result<Split> {
        if train == 0 || train >= self.len() {
            return Err(Error::data(format!(
                "{train} of {} examples cannot be split off; allowed: 1 to {}",
                self.len(),
                self.len().saturating_sub(1)
            )));
        }
        let order = self.order(seed, 0);
        let (train, test) = order.split_at(train);
        Ok(Split { train: self.take(train), test: self.take(test) })
    }

    /// All examples in batches of `size`, in order; the last batch may be smaller.
    ///
    /// # Errors
    /// [`ErrorKind::Value`](crate::ErrorKind::Value) for batches of no examples.
    pub fn batches(&self, size: usize) -> Result<impl Iterator<Item = Batch>> {
        check_batch(size)?;
        Ok(self.in_batches((0..self.len()).collect(), size, self.len().div_ceil(size)))
    }

    /// The batches of an epoch of training: in an order that follows from the seed and the epoch alone. When one example is
    /// left at the end, the last batch takes it in and is larger by one: a batch norm cannot be trained by a single example,
    /// and its gradient would weigh as much as that of a whole batch.
    ///
    /// # Errors
    /// As [`batches`](Dataset::batches).
    pub fn shuffled_batches(&self, size: usize, seed: u64, epoch: u64) -> Result<impl Iterator<Item = Batch>> {
        check_batch(size)?;
        Ok(self.in_batches(self.order(seed, epoch), size, batches_of_epoch(self.len(), size)))
    }

    /// So many batches of `size`, the last of what is left.
    fn in_batches(&self, order: Vec<usize>, size: usize, batches: usize) -> impl Iterator<Item = Batch> {
        (0..batches).map(move |i| {
            let to = if i + 1 == batches { order.len() } else { (i + 1) * size };
            self.of(&order[i * size..to])
        })
    }

    /// The batch of an epoch of training at a place from 0, in an [`order`](Dataset::order).
    pub(super) fn batch(&self, order: &[usize], size: usize, place: usize) -> Batch {
        let last = place + 1 >= batches_of_epoch(order.len(), size);
        self.of(&order[place * size..if last { order.len() } else { (place + 1) * size }])
    }

    /// A batch of some examples.
    fn of(&self, order: &[usize]) -> Batch {
        let part = self.take(order);
        let n = part.len();
        let of = |shape: &[usize]| [&[n], shape].concat();
        let x = Tensor::from_vec(part.values, &of(&part.shape)).expect("whole examples");
        let y = match part.targets {
            Targets::Classes(labels) => Tensor::from_vec(labels, &[n]).expect("one label each"),
            Targets::Numbers { shape, values } => Tensor::from_vec(values, &of(&shape)).expect("whole targets"),
        };
        Batch { x, y }
    }

    /// The order of the examples in an epoch.
    pub(super) fn order(&self, seed: u64, stream: u64) -> Vec<usize> {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        rng.set_stream(stream);
        let mut order: Vec<usize> = (0..self.len()).collect();
        order.shuffle(&mut rng);
        order
    }

    fn take(&self, order: &[usize]) -> Dataset {
        let rows = |shape: &[usize], values: &[f32]| -> Vec<f32> {
            let len = shape.iter().product::<usize>();
            order.iter().flat_map(|&i| &values[i * len..(i + 1) * len]).copied().collect()
        };
        let targets = match &self.targets {
            Targets::Classes(labels) => Targets::Classes(order.iter().map(|&i| labels[i]).collect()),
            Targets::Numbers { shape, values } => {
                Targets::Numbers { shape: shape.clone(), values: rows(shape, values) }
            }
        };
        Dataset { shape: self.shape.clone(), values: rows(&self.shape, &self.values), targets }
    }
}

impl std::fmt::Debug for Dataset {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Dataset({} of shape {:?} ", self.len(), self.shape)?;
        match &self.targets {
            Targets::Classes(_) => write!(f, "in {} classes)", self.classes()),
            Targets::Numbers { shape, .. } => write!(f, "with targets of shape {shape:?})"),
        }
    }
}

/// Refuses batches of no examples.
pub(super) fn check_batch(size: usize) -> Result<()> {
    if size > 0 { Ok(()) } else { Err(Error::value("a batch of 0 examples; allowed: at least 1")) }
}

/// How many batches [`Dataset::shuffled_batches`] makes of so many examples: one for each `size` of them, and one of what is
/// left, unless that is a single example.
pub fn batches_of_epoch(examples: usize, size: usize) -> usize {
    let size = size.max(1);
    let one_is_left = size > 1 && examples > size && examples % size == 1;
    examples.div_ceil(size) - usize::from(one_is_left)
}

/// Longest side of a resized image.
const MOST_PIXELS: usize = 4096;

/// Elements of one example; `None` when there are more than can be counted.
fn elements(shape: &[usize]) -> Option<usize> {
    shape.iter().try_fold(1usize, |all, &axis| all.checked_mul(axis))
}

/// Checks the numbers of `n` examples.
fn all_finite(what: &str, values: &[f32], n: usize) -> Result<()> {
    let Some(i) = values.iter().position(|value| !value.is_finite()) else { return Ok(()) };
    let (example, place, value) = (i / (values.len() / n), i % (values.len() / n), values[i]);
    Err(Error::data(format!("{what} {place} of example {example} is {value}; allowed: finite numbers")))
}

/// For each of `to` pixels along an axis of `from`: its two neighbours, and how far it lies towards the second.
fn neighbours(from: usize, to: usize) -> Vec<(usize, usize, f32)> {
    let last = from - 1;
    let place = |i: usize| {
        let position = ((i as f32 + 0.5) * from as f32 / to as f32 - 0.5).clamp(0.0, last as f32);
        let first = (position.floor() as usize).min(last);
        (first, (first + 1).min(last), position - first as f32)
    };
    (0..to).map(place).collect()
}

/// 1,797 handwritten digits of 13 writers, `[1, 8, 8]` with pixels from 0 to 1: the test set of the UCI "Optical
/// Recognition of Handwritten Digits", as scikit-learn distributes it. See `data/README.md`.
///
/// # Errors
/// As [`read_digits`]; none for the copy that the library carries.
///
/// ```
/// let split = precast::data::digits()?.split(1500, 0)?;
/// assert_eq!((split.train.len(), split.test.len(), split.train.classes()), (1500, 297, 10));
/// # Ok::<(), precast::Error>(())
/// ```
pub fn digits() -> Result<Dataset> {
    parse_digits(include_bytes!("../../data/digits.csv.gz"), "data/digits.csv.gz")
}

/// Reads a file of digits, CSV or gzipped CSV: 64 pixels from 0 to 16 and a digit in each row.
///
/// # Errors
/// [`ErrorKind::Io`](crate::ErrorKind::Io) when the file cannot be read or is longer than 32 MiB,
/// [`ErrorKind::Data`](crate::ErrorKind::Data) with file and line when it does not hold digits, or unpacks to more.
pub fn read_digits(file: impl AsRef<Path>) -> Result<Dataset> {
    let file = file.as_ref();
    parse_digits(&files::read_within(file, MOST_BYTES)?, &file.display().to_string())
}

/// Enough for a hundred times as many digits; what unpacks to more is no file of digits.
const MOST_BYTES: usize = 32 << 20;

/// As [`read_digits`], from the bytes of a file; `origin` is its name in errors.
///
/// # Errors
/// [`ErrorKind::Data`](crate::ErrorKind::Data), as [`read_digits`].
pub fn parse_digits(bytes: &[u8], origin: &str) -> Result<Dataset> {
    let origin = printable(origin);
    let mut text = String::new();
    let read = match bytes {
        [0x1f, 0x8b, ..] => GzDecoder::new(bytes).take(MOST_BYTES as u64 + 1).read_to_string(&mut text),
        _ => bytes.take(MOST_BYTES as u64 + 1).read_to_string(&mut text),
    };
    read.map_err(|e| Error::data(format!("{origin}: {e}")))?;
    if text.len() > MOST_BYTES {
        return Err(Error::data(format!("{origin}: longer than {} MiB", MOST_BYTES >> 20)));
    }
    let (mut values, mut labels) = (Vec::new(), Vec::new());
    for (i, line) in text.lines().enumerate() {
        let at = |e: Error| e.context(format_args!("{origin}:{}", i + 1));
        let row: Vec<f32> = line.split(',').enumerate().map(number).collect::<Result<_>>().map_err(at)?;
        let &[ref pixels @ .., digit] = &row[..] else { unreachable!("a line has at least one field") };
        if pixels.len() != 64 {
            let met = row.len();
            return Err(at(Error::data(format!("{met} numbers; a row holds 65: 64 pixels, then the digit"))));
        }
        if !(digit.fract() == 0.0 && (0.0..=9.0).contains(&digit)) {
            return Err(at(Error::data(format!("the digit is {digit}; allowed: 0 to 9"))));
        }
        values.extend(pixels.iter().map(|pixel| pixel / 16.0));
        labels.push(digit as i64);
    }
    if labels.is_empty() {
        return Err(Error::data(format!("{origin}: no rows")));
    }
    Dataset::new(values, &[1, 8, 8], labels)
}

/// One field of a row: a number from 0 to 16.
fn number((column, field): (usize, &str)) -> Result<f32> {
    let value = field.trim().parse::<f32>().ok().filter(|value| (0.0..=16.0).contains(value));
    value.ok_or_else(|| Error::data(format!("column {}: `{field}` is no number from 0 to 16", column + 1)))
}
