//! Examples with their targets.

use std::sync::Arc;

use precast::error::{Error, Result};

use super::{
    elements::{all_finite, count, elements, elements_in_memory, rows},
    numbers::Wide,
    origin::{Parts, Read},
    stored::Stored,
    table::Table,
    targets::{IGNORED, Targets},
};

/// Examples of one shape: f32 numbers, or i64 indices such as the words of a sentence. Each has its target: classes,
/// numbers, or none.
#[derive(Clone, PartialEq)]
pub struct Dataset {
    /// Shape of one example.
    shape: Vec<usize>,
    len: usize,
    inputs: Inputs,
    further: Vec<FurtherInputs>,
    /// Shared by what is made of the same examples.
    targets: Arc<Targets>,
    /// Digits of the numbers read from a file that f32 cannot represent.
    pub(super) wide: Parts<Wide>,
    names: Arc<Names>,
    pub(super) read: Arc<Read>,
}

/// Names shared by all examples, and kept by every subset.
#[derive(Clone, Debug, Default, PartialEq)]
struct Names {
    classes: Vec<String>,
    inputs: Vec<String>,
}

/// Inputs of the examples, concatenated.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Inputs {
    /// Finite numbers. Those of a file with more digits are rounded; [`Standardization`](super::Standardization) reads
    /// all digits.
    Numbers(Vec<f32>),
    /// Indices from 0: of words, of characters.
    Indices(Vec<i64>),
    /// Columns of numbers and words, for an [`Encoding`](super::Encoding); batches are made of what it returns.
    Table(Table),
    /// Examples that are not in memory; see [`Dataset::stored`].
    Stored(Stored<Dataset>),
}

/// Further inputs of the examples, in another shape or of another dtype than the first.
#[derive(Clone, Debug, PartialEq)]
pub struct FurtherInputs {
    /// Shape of those of one example.
    pub shape: Vec<usize>,
    /// Those of all examples, concatenated: numbers or indices.
    pub inputs: Inputs,
}

/// Training examples and test examples.
#[derive(Clone, Debug, PartialEq)]
pub struct Split {
    /// The training examples.
    pub train: Dataset,
    /// The test examples.
    pub test: Dataset,
}

impl Dataset {
    /// Creates examples of the given shape from concatenated values, with a class for each.
    ///
    /// # Errors
    /// [`ErrorKind::Data`](precast::ErrorKind::Data) when the number of values does not match the labels, or a value is not
    /// finite.
    pub fn new(values: Vec<f32>, shape: &[usize], labels: Vec<i64>) -> Result<Self> {
        Dataset::of(Inputs::Numbers(values), shape, Targets::Classes { shape: vec![], values: labels })
    }

    /// Creates examples of the given shape from concatenated values, with numeric targets: a tensor of `target_shape`
    /// for each example. This is the shape of a network's output for one example, `[1]` for a final `Dense` with one
    /// output.
    ///
    /// ```
    /// # use precast_train::data::Dataset;
    /// // y = 2 x1 + x2 at three points.
    /// let data = Dataset::regression(vec![0.0, 1.0, 1.0, 0.0, 1.0, 1.0], &[2], vec![1.0, 2.0, 3.0], &[1])?;
    /// let batch = data.batches(3)?.next().unwrap();
    /// assert_eq!((batch.x.shape(), batch.y.shape()), (&[3, 2][..], &[3, 1][..]));
    /// # Ok::<(), precast::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`ErrorKind::Data`](precast::ErrorKind::Data) when the number of values does not match the targets, a value or a
    /// target is not finite, or the targets do not have their shape.
    pub fn regression(values: Vec<f32>, shape: &[usize], targets: Vec<f32>, target_shape: &[usize]) -> Result<Self> {
        let targets = Targets::Numbers { shape: target_shape.to_vec(), values: targets };
        Dataset::of(Inputs::Numbers(values), shape, targets)
    }

    /// Creates examples of numbers or indices, with any targets.
    ///
    /// ```
    /// # use precast_train::data::{Dataset, IGNORED, Inputs, Targets};
    /// // Two sentences of three words, each word with its class; the last word of the first has none.
    /// let words = Inputs::Indices(vec![4, 2, 7, 0, 2, 4]);
    /// let classes = Targets::Classes { shape: vec![3], values: vec![1, 0, IGNORED, 2, 0, 1] };
    /// let data = Dataset::of(words, &[3], classes)?;
    /// assert_eq!((data.len(), data.classes()), (2, 3));
    /// # Ok::<(), precast::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`ErrorKind::Data`](precast::ErrorKind::Data) when there are not as many inputs as targets, either does not have
    /// its shape, a number is not finite, or an index is negative. Also for examples without elements and targets, whose
    /// number is undefined.
    pub fn of(inputs: Inputs, shape: &[usize], targets: Targets) -> Result<Self> {
        let len = match &targets {
            Targets::Classes { shape, values } => count(values.len(), shape, "classes are not targets")?,
            Targets::Numbers { shape, values } => count(values.len(), shape, "numbers are not targets")?,
            Targets::None => count(inputs.len(), shape, "values are not examples")?,
        };
        if elements(shape).and_then(|each| each.checked_mul(len)) != Some(inputs.len()) {
            return Err(Error::data(format!("{} values are not {len} examples of shape {shape:?}", inputs.len())));
        }
        targets.check(len)?;
        if let Inputs::Stored(stored) = &inputs
            && stored.none().shape != shape
        {
            let met = &stored.none().shape;
            return Err(Error::data(format!("stored examples of shape {met:?} are none of shape {shape:?}")));
        }
        inputs.check(len)?;
        let (wide, names, read) = Default::default();
        let (shape, further, targets) = (shape.to_vec(), Vec::new(), Arc::new(targets));
        Ok(Dataset { shape, len, inputs, further, targets, wide, names, read })
    }

    /// Adds further inputs, of the given shape for each example, such as indices beside numbers. A network takes all inputs
    /// in order; see [`Batch::call`](super::Batch::call).
    ///
    /// ```
    /// # use precast::prelude::*;
    /// # use precast_train::data::{Dataset, Inputs};
    /// // Two numbers and one word of each of three houses, and the price.
    /// let numbers = vec![80.0, 2.0, 120.0, 4.0, 45.0, 1.0];
    /// let houses = Dataset::regression(numbers, &[2], vec![3.1, 4.0, 2.2], &[1])?;
    /// let houses = houses.with_further(Inputs::Indices(vec![1, 0, 2]), &[1])?;
    /// let batch = houses.batches(3)?.next().unwrap();
    /// assert_eq!((batch.x.shape(), batch.further[0].shape()), (&[3, 2][..], &[3, 1][..]));
    ///
    /// let rng = &mut Rng::seed(0);
    /// let net: Child = sequential![ColumnEmbedding::new(&[3], &[2], rng), Dense::new(4, 1, rng)].into();
    /// assert_eq!(batch.call(&net)?.shape(), [3, 1]);
    /// # Ok::<(), precast::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`of`](Dataset::of), and for a table.
    pub fn with_further(mut self, inputs: Inputs, shape: &[usize]) -> Result<Self> {
        if !matches!(inputs, Inputs::Numbers(_) | Inputs::Indices(_)) {
            return Err(Error::data("further inputs are numbers or indices in memory"));
        }
        if matches!(self.inputs, Inputs::Table(_) | Inputs::Stored(_)) {
            return Err(Error::data(
                "examples in a table have no further inputs, and those of stored ones are read with them",
            ));
        }
        if elements(shape).and_then(|each| each.checked_mul(self.len)) != Some(inputs.len()) {
            let (met, len) = (inputs.len(), self.len);
            return Err(Error::data(format!(
                "{met} values are not further inputs of {len} examples of shape {shape:?}"
            )));
        }
        inputs.check(self.len)?;
        self.further.push(FurtherInputs { shape: shape.to_vec(), inputs });
        Ok(self)
    }

    /// Sets the names of the classes, in the order of their indices.
    ///
    /// # Errors
    /// [`ErrorKind::Data`](precast::ErrorKind::Data) when there are fewer names than classes.
    pub fn with_class_names(mut self, names: Vec<String>) -> Result<Self> {
        if names.len() < self.classes() {
            return Err(Error::data(format!("{} names for {} classes", names.len(), self.classes())));
        }
        Arc::make_mut(&mut self.names).classes = names;
        Ok(self)
    }

    /// Removes the class of a name: its targets become [`IGNORED`].
    pub(crate) fn without_class(mut self, name: &str) -> Self {
        let Some(at) = self.names.classes.iter().position(|class| class == name) else { return self };
        Arc::make_mut(&mut self.names).classes.remove(at);
        if let Targets::Classes { values, .. } = Arc::make_mut(&mut self.targets) {
            let at = at as i64;
            values.iter_mut().filter(|label| **label >= at).for_each(|label| {
                *label = if *label == at { IGNORED } else { *label - 1 };
            });
        }
        self
    }

    /// Sets the names of the elements of an input, such as the columns of a table.
    pub fn with_input_names(mut self, names: Vec<String>) -> Self {
        Arc::make_mut(&mut self.names).inputs = names;
        self
    }

    /// Replaces the images, each with the new shape.
    pub(super) fn with_images(self, pixels: Vec<f32>, shape: Vec<usize>) -> Self {
        let wide = Parts { inputs: Wide::default(), ..self.wide };
        Dataset { shape, inputs: Inputs::Numbers(pixels), wide, ..self }
    }

    /// Returns the same examples with other numbers as inputs.
    ///
    /// # Errors
    /// [`ErrorKind::Data`](precast::ErrorKind::Data) as [`of`](Dataset::of).
    pub(super) fn with_inputs(&self, values: Vec<f32>) -> Result<Self> {
        all_finite("value", &values, self.len)?;
        let wide = Parts { inputs: Wide::default(), targets: self.wide.targets.clone() };
        let (shape, further, targets) = (self.shape.clone(), self.further.clone(), self.targets.clone());
        let (names, read) = (self.names.clone(), self.read.clone());
        Ok(Dataset { shape, len: self.len, inputs: Inputs::Numbers(values), further, targets, wide, names, read })
    }

    /// Returns the same examples with a table encoded in `width` columns.
    pub(super) fn with_encoded(&self, inputs: Inputs, width: usize, wide: Wide) -> Self {
        let wide = Parts { inputs: wide, targets: self.wide.targets.clone() };
        let (len, targets, names, read) = (self.len, self.targets.clone(), self.names.clone(), self.read.clone());
        Dataset { shape: vec![width], len, inputs, further: Vec::new(), targets, wide, names, read }
    }

    /// Returns the same examples with as many other targets.
    ///
    /// # Errors
    /// [`ErrorKind::Data`](precast::ErrorKind::Data) as [`of`](Dataset::of).
    pub(super) fn with_targets(&self, targets: Targets) -> Result<Self> {
        let new = Dataset::of(self.inputs.clone(), &self.shape, targets)?;
        let wide = Parts { inputs: self.wide.inputs.clone(), targets: Wide::default() };
        let (further, names, read) = (self.further.clone(), self.names.clone(), self.read.clone());
        Ok(Dataset { further, wide, names, read, ..new })
    }

    /// Returns the same examples, stored and of the form of `stored`.
    pub(super) fn with_stored(&self, stored: Stored<Dataset>) -> Self {
        let (len, targets, wide, read) = (self.len, self.targets.clone(), self.wide.clone(), self.read.clone());
        let (mut names, shape) = (self.names.clone(), stored.none().shape.clone());
        let changed = &stored.none().names.inputs;
        if !changed.is_empty() && *changed != names.inputs {
            Arc::make_mut(&mut names).inputs.clone_from(changed);
        }
        Dataset { shape, len, inputs: Inputs::Stored(stored), further: Vec::new(), targets, wide, names, read }
    }

    /// Gives examples that were read the targets of these examples.
    pub(crate) fn with_targets_of(self, all: &Dataset, part: &[usize]) -> Self {
        Dataset { targets: Arc::new(all.targets.take(part)), ..self }
    }

    /// Removes the targets.
    pub fn without_targets(self) -> Self {
        let wide = Parts { targets: Wide::default(), ..self.wide };
        Dataset { targets: Arc::new(Targets::None), wide, ..self }
    }

    /// Returns the number of examples.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns whether there are no examples.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the shape of one example.
    pub fn shape(&self) -> &[usize] {
        &self.shape
    }

    /// Returns the inputs of the examples, in order.
    pub fn inputs(&self) -> &Inputs {
        &self.inputs
    }

    /// Returns the further inputs of the examples; see [`with_further`](Dataset::with_further).
    pub fn further(&self) -> &[FurtherInputs] {
        match &self.inputs {
            Inputs::Stored(stored) => &stored.none().further,
            _ => &self.further,
        }
    }

    /// Returns the targets of the examples, in order.
    pub fn targets(&self) -> &Targets {
        &self.targets
    }

    /// Returns the classes, in order; empty if the targets are not classes.
    pub fn labels(&self) -> &[i64] {
        match &*self.targets {
            Targets::Classes { values, .. } => values,
            _ => &[],
        }
    }

    /// Returns the number of classes: that of the class names, or one more than the highest label.
    pub fn classes(&self) -> usize {
        let counted = self.labels().iter().max().map_or(0, |&label| (label + 1).max(0) as usize);
        counted.max(self.names.classes.len())
    }

    /// Returns the names of the classes, in the order of their indices; empty if unnamed.
    pub fn class_names(&self) -> &[String] {
        &self.names.classes
    }

    /// Returns the names of the elements of an input, such as the columns of a table; empty if unnamed.
    pub fn input_names(&self) -> &[String] {
        &self.names.inputs
    }

    /// Passes the bytes of all inputs, then of all targets, to a function, value by value and little-endian: for a
    /// checksum.
    ///
    /// # Errors
    /// Those of reading [stored](Dataset::stored) examples.
    pub fn bytes(&self, mut put: impl FnMut(&[u8])) -> Result<()> {
        self.input_bytes(&mut put)?;
        match &*self.targets {
            Targets::Numbers { values, .. } => values.iter().for_each(|value| put(&value.to_le_bytes())),
            Targets::Classes { values, .. } => values.iter().for_each(|value| put(&value.to_le_bytes())),
            Targets::None => {}
        }
        Ok(())
    }

    /// Reshapes each example, such as to `[64]` from `[1, 8, 8]`.
    ///
    /// # Errors
    /// [`ErrorKind::Shape`](precast::ErrorKind::Shape) when the number of elements differs.
    pub fn reshape(self, shape: &[usize]) -> Result<Self> {
        if elements(shape) != elements(&self.shape) {
            return Err(Error::shape(format!("examples of shape {:?} cannot take the shape {shape:?}", self.shape)));
        }
        if let Inputs::Stored(_) = self.inputs {
            let shape = shape.to_vec();
            return self.later(move |part| part.reshape(&shape));
        }
        Ok(Dataset { shape: shape.to_vec(), ..self })
    }

    /// Shuffles by the seed and splits: the first `train` examples are for training, the rest for testing.
    ///
    /// # Errors
    /// [`ErrorKind::Data`](precast::ErrorKind::Data) unless both parts get an example.
    pub fn split(&self, train: usize, seed: u64) -> Result<Split> {
        self.check_split(train)?;
        Ok(self.parts(self.order(seed, 0), train))
    }

    /// Splits without shuffling: the first `train` examples are for training, the rest for testing. Use this for
    /// overlapping windows of a text and for time series, where shuffling would leak test examples.
    ///
    /// # Errors
    /// As [`split`](Dataset::split).
    pub fn split_in_order(&self, train: usize) -> Result<Split> {
        self.check_split(train)?;
        Ok(self.parts((0..self.len).collect(), train))
    }

    fn check_split(&self, train: usize) -> Result<()> {
        if train > 0 && train < self.len {
            return Ok(());
        }
        let most = self.len.saturating_sub(1);
        Err(Error::data(format!("{train} of {} examples cannot be split off; allowed: 1 to {most}", self.len)))
    }

    fn parts(&self, mut order: Vec<usize>, train: usize) -> Split {
        let test = self.take(&order[train..]);
        // Before the larger part needs memory for its targets.
        order.truncate(train);
        order.shrink_to_fit();
        Split { train: self.take(&order), test }
    }

    pub(super) fn take(&self, order: &[usize]) -> Dataset {
        Dataset {
            shape: self.shape.clone(),
            len: order.len(),
            inputs: self.inputs.take(elements_in_memory(&self.shape), order),
            further: self.further.iter().map(|further| further.take(order)).collect(),
            targets: Arc::new(self.targets.take(order)),
            wide: Parts { inputs: self.wide.inputs.take(order), targets: self.wide.targets.take(order) },
            names: self.names.clone(),
            read: self.read.clone(),
        }
    }
}

impl Inputs {
    /// Checks that the numbers of `n` examples are finite, and their indices count from 0.
    fn check(&self, n: usize) -> Result<()> {
        match self {
            Inputs::Table(_) | Inputs::Stored(_) => Ok(()), // checked by itself, and when they are read
            Inputs::Numbers(values) => all_finite("value", values, n),
            Inputs::Indices(indices) => {
                let Some((i, index)) = indices.iter().enumerate().find(|(_, index)| **index < 0) else { return Ok(()) };
                let (example, place) = (i / (indices.len() / n), i % (indices.len() / n));
                Err(Error::data(format!("index {place} of example {example} is {index}; indices count from 0")))
            }
        }
    }

    /// Returns the number of elements of all examples together.
    fn len(&self) -> usize {
        match self {
            Inputs::Numbers(values) => values.len(),
            Inputs::Indices(indices) => indices.len(),
            Inputs::Table(table) => table.len() * table.columns().len(),
            Inputs::Stored(stored) => stored.len() * elements_in_memory(&stored.none().shape),
        }
    }

    /// Returns some examples of `each` elements.
    pub(super) fn take(&self, each: usize, order: &[usize]) -> Inputs {
        match self {
            Inputs::Numbers(values) => Inputs::Numbers(rows(values, each, order)),
            Inputs::Indices(indices) => Inputs::Indices(rows(indices, each, order)),
            Inputs::Table(table) => Inputs::Table(table.take(order)),
            Inputs::Stored(stored) => Inputs::Stored(stored.take(order)),
        }
    }
}

impl FurtherInputs {
    /// Returns those of some examples.
    pub(super) fn take(&self, order: &[usize]) -> Self {
        let inputs = self.inputs.take(elements_in_memory(&self.shape), order);
        FurtherInputs { shape: self.shape.clone(), inputs }
    }
}

impl std::fmt::Debug for Dataset {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Dataset({} of shape {:?} ", self.len, self.shape)?;
        match &*self.targets {
            Targets::Classes { shape, .. } if !shape.is_empty() => {
                write!(f, "with targets of shape {shape:?} in {} classes)", self.classes())
            }
            Targets::Classes { .. } => write!(f, "in {} classes)", self.classes()),
            Targets::Numbers { shape, .. } => write!(f, "with targets of shape {shape:?})"),
            Targets::None => write!(f, "without targets)"),
        }
    }
}
