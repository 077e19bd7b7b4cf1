//! Batches of examples.

use std::cell::Cell;

use precast::{
    Child, Tensor, TensorElement,
    cell::AsCell,
    error::{Error, Result},
    observe::warn,
};
use rand::{SeedableRng, seq::SliceRandom};
use rand_chacha::ChaCha8Rng;

use super::{
    dataset::{Dataset, Inputs},
    elements::elements_in_memory,
    targets::Targets,
};

/// A batch of examples as tensors.
#[derive(Clone, Debug)]
pub struct Batch {
    /// Inputs: f32 or i64 `[n, ...]`.
    pub x: Tensor,
    /// [Further inputs](Dataset::with_further): f32 or i64 `[n, ...]`.
    pub further: Vec<Tensor>,
    /// Targets: classes are i64 `[n, ...]`, `[n]` for one per example; numbers are f32 `[n, ...]`.
    pub y: Tensor,
}

impl Batch {
    /// Returns all inputs, in the order in which a network takes them.
    pub fn inputs(&self) -> Vec<Tensor> {
        std::iter::once(&self.x).chain(&self.further).cloned().collect()
    }

    /// Calls a network on the inputs.
    ///
    /// # Errors
    /// [`ErrorKind::Shape`](precast::ErrorKind::Shape) unless it has one output; and the errors of the network, such as
    /// those of one that takes another number of inputs.
    pub fn call<C: ?Sized + AsCell>(&self, net: &Child<C>) -> Result<Tensor> {
        call(net, &self.inputs())
    }
}

/// Calls a network with one output on some inputs.
///
/// # Errors
/// As [`Batch::call`].
pub fn call<C: ?Sized + AsCell>(net: &Child<C>, inputs: &[Tensor]) -> Result<Tensor> {
    if let [x] = inputs {
        return net.call(x);
    }
    let mut outputs = net.call_many(inputs)?;
    match (outputs.pop(), outputs.len()) {
        (Some(output), 0) => Ok(output),
        (popped, rest) => {
            let count = rest + usize::from(popped.is_some());
            Err(Error::shape(format!("the network returned {count} outputs; expected one, for the loss")))
        }
    }
}

impl Dataset {
    /// Returns all examples in batches of `size`, in order; the last batch may be smaller.
    ///
    /// # Errors
    /// [`ErrorKind::Value`](precast::ErrorKind::Value) for a batch size of 0, [`ErrorKind::Data`](precast::ErrorKind::Data)
    /// when the examples have no targets or are [stored](Dataset::stored).
    pub fn batches(&self, size: usize) -> Result<impl Iterator<Item = Batch>> {
        self.check_targets()?;
        self.check_in_memory("try_batches")?;
        check_batch(size)?;
        Ok(self.in_batches((0..self.len()).collect(), size, self.len().div_ceil(size)))
    }

    /// Returns the inputs of all examples in batches of `size`, in order, f32 or i64 `[n, ...]`; the last may be
    /// smaller.
    ///
    /// # Errors
    /// [`ErrorKind::Value`](precast::ErrorKind::Value) for a batch size of 0, [`ErrorKind::Data`](precast::ErrorKind::Data)
    /// for examples with [further](Dataset::with_further) inputs; see
    /// [`batches_of_inputs`](Dataset::batches_of_inputs). Also for a table, and for examples that are
    /// [stored](Dataset::stored).
    pub fn input_batches(&self, size: usize) -> Result<impl Iterator<Item = Tensor>> {
        if !self.further().is_empty() {
            let inputs = 1 + self.further().len();
            let words = format!("the examples have {inputs} inputs; `batches_of_inputs` returns all of them");
            return Err(Error::data(words));
        }
        Ok(self.batches_of_inputs(size)?.map(|mut inputs| inputs.swap_remove(0)))
    }

    /// Returns all inputs of all examples in batches of `size`, in order, each f32 or i64 `[n, ...]`; the last may be
    /// smaller. [`Child::call_many`] takes them.
    ///
    /// # Errors
    /// [`ErrorKind::Value`](precast::ErrorKind::Value) for a batch size of 0, [`ErrorKind::Data`](precast::ErrorKind::Data)
    /// for a table, and for examples that are [stored](Dataset::stored).
    pub fn batches_of_inputs(&self, size: usize) -> Result<impl Iterator<Item = Vec<Tensor>>> {
        check_batch(size)?;
        self.check_encoded()?;
        self.check_in_memory("try_batches_of_inputs")?;
        let all: Vec<usize> = (0..self.len()).collect();
        let part = move |i: usize| self.inputs_of(&all[i * size..all.len().min((i + 1) * size)]);
        Ok((0..self.len().div_ceil(size)).map(part))
    }

    /// Returns the batches of a training epoch, in an order determined by the seed and the epoch. A single example left
    /// at the end joins the last batch: a batch norm cannot be trained on a single example, and its gradient would
    /// weigh as much as that of a whole batch.
    ///
    /// # Errors
    /// As [`batches`](Dataset::batches).
    #[doc(alias = "DataLoader")]
    pub fn shuffled_batches(&self, size: usize, seed: u64, epoch: u64) -> Result<impl Iterator<Item = Batch>> {
        self.check_targets()?;
        self.check_in_memory("try_shuffled_batches")?;
        check_batch(size)?;
        self.check_epoch(seed, epoch)?;
        Ok(self.in_batches(self.order(seed, epoch), size, batches_of_epoch(self.len(), size)))
    }

    /// Refuses an epoch without examples, and warns of one that is drawn again and again.
    pub(crate) fn check_epoch(&self, seed: u64, epoch: u64) -> Result<()> {
        thread_local! {
            /// The last epoch of a data set, and how often it was drawn in a row.
            static LAST: Cell<(usize, u64, u64, u32)> = const { Cell::new((0, 0, 0, 0)) };
        }
        if self.is_empty() {
            return Err(Error::data("there are no examples, so an epoch has no batch"));
        }
        let (data, last) = (std::ptr::from_ref(self).addr(), LAST.get());
        let times = if (data, seed, epoch) == (last.0, last.1, last.2) { last.3.saturating_add(1) } else { 1 };
        LAST.set((data, seed, epoch, times));
        if times == 3 {
            warn(&format!(
                "the batches of epoch {epoch} were drawn three times in a row, in the same order: pass the number of each epoch to \
                 `shuffled_batches`"
            ));
        }
        Ok(())
    }

    pub(crate) fn check_targets(&self) -> Result<()> {
        match self.targets() {
            Targets::None => Err(Error::data("the examples have no targets, so nothing can be learnt of them")),
            _ => self.check_encoded(),
        }
    }

    /// Refuses stored examples, whose reading may fail.
    fn check_in_memory(&self, other: &str) -> Result<()> {
        match self.inputs() {
            Inputs::Stored(_) => Err(Error::data(format!("the examples are not in memory; `{other}` reads them"))),
            _ => Ok(()),
        }
    }

    /// Refuses a table, whose cells may be words.
    pub(super) fn check_encoded(&self) -> Result<()> {
        match self.form() {
            Inputs::Table(_) => Err(Error::data(
                "the inputs are a table, whose cells may be words or empty; `encoded` makes numbers of it by an \
                 `Encoding` of the training examples",
            )),
            _ => Ok(()),
        }
    }

    /// Returns `batches` batches of `size`, the last with the rest.
    fn in_batches(&self, order: Vec<usize>, size: usize, batches: usize) -> impl Iterator<Item = Batch> {
        (0..batches).map(move |place| self.some(part_of(&order, size, batches, place)))
    }

    /// Returns the batch at a position from 0 of a training epoch, in the [`order`](Dataset::order) of that epoch.
    pub(crate) fn batch(&self, order: &[usize], size: usize, place: usize) -> Batch {
        self.some(part_of(order, size, batches_of_epoch(order.len(), size), place))
    }

    /// Reads the batch at a position of a training epoch, that of [`batch`](Dataset::batch).
    pub(crate) fn read_batch(&self, order: &[usize], size: usize, place: usize) -> Result<Batch> {
        let read = self.read(part_of(order, size, batches_of_epoch(order.len(), size), place))?;
        Ok(read.some(&(0..read.len()).collect::<Vec<_>>()))
    }

    /// Returns the batch at a position of a training epoch as [`batch`](Dataset::batch) does, in parts of `size` examples,
    /// `many` of them unless it is the last.
    pub(crate) fn batch_in_parts(&self, order: &[usize], size: usize, many: usize, place: usize) -> Vec<Batch> {
        let whole = size.saturating_mul(many);
        let examples = part_of(order, whole, batches_of_epoch(order.len(), whole), place);
        (0..batches_of_epoch(examples.len(), size)).map(|part| self.batch(examples, size, part)).collect()
    }

    /// Makes a batch of some examples, which have targets.
    pub(super) fn some(&self, part: &[usize]) -> Batch {
        let y = match self.targets().take(part) {
            Targets::Classes { shape, values } => tensor(values, part.len(), &shape),
            Targets::Numbers { shape, values } => tensor(values, part.len(), &shape),
            Targets::None => unreachable!("checked before"),
        };
        Batch { x: self.x(part), further: self.further_of(part).collect(), y }
    }

    /// Returns the inputs of some examples.
    fn x(&self, part: &[usize]) -> Tensor {
        self.inputs().take(elements_in_memory(self.shape()), part).tensor(part.len(), self.shape())
    }

    /// Returns all inputs of some examples.
    pub(super) fn inputs_of(&self, part: &[usize]) -> Vec<Tensor> {
        std::iter::once(self.x(part)).chain(self.further_of(part)).collect()
    }

    /// Returns the further inputs of some examples.
    fn further_of(&self, part: &[usize]) -> impl Iterator<Item = Tensor> {
        self.further().iter().map(move |further| further.take(part).inputs.tensor(part.len(), &further.shape))
    }

    /// Returns some examples, in this order, by their indices from 0. An index may occur several times.
    ///
    /// # Errors
    /// [`ErrorKind::Value`](precast::ErrorKind::Value) for an index that is too large.
    ///
    /// ```
    /// use precast_train::data;
    /// let digits = data::digits()?;
    /// let order = digits.order(1, 0);
    /// let some = digits.select(&order[..3])?;
    /// assert_eq!(some.labels(), [0, 1, 2].map(|i| digits.labels()[order[i]]));
    /// # Ok::<(), precast::Error>(())
    /// ```
    #[doc(alias = "Subset")]
    pub fn select(&self, examples: &[usize]) -> Result<Dataset> {
        match examples.iter().find(|index| **index >= self.len()) {
            Some(index) => Err(Error::value(format!("example {index} of {}; they count from 0", self.len()))),
            None => Ok(self.take(examples)),
        }
    }

    /// Returns the order of the examples in an epoch, as [`shuffled_batches`](Dataset::shuffled_batches) and a run take
    /// them.
    pub fn order(&self, seed: u64, epoch: u64) -> Vec<usize> {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        rng.set_stream(epoch);
        let mut order: Vec<usize> = (0..self.len()).collect();
        order.shuffle(&mut rng);
        order
    }
}

impl Inputs {
    /// Returns the inputs of `n` examples as a tensor.
    fn tensor(self, n: usize, shape: &[usize]) -> Tensor {
        match self {
            Inputs::Numbers(values) => tensor(values, n, shape),
            Inputs::Indices(values) => tensor(values, n, shape),
            Inputs::Table(_) | Inputs::Stored(_) => unreachable!("checked before"),
        }
    }
}

fn tensor<T: TensorElement>(values: Vec<T>, n: usize, shape: &[usize]) -> Tensor {
    Tensor::from_vec(values, &[&[n], shape].concat()).expect("whole examples")
}

/// Returns the examples of the batch at a position, of `batches` batches of `size`; the last has the rest.
pub(crate) fn part_of(order: &[usize], size: usize, batches: usize, place: usize) -> &[usize] {
    &order[place * size..if place + 1 >= batches { order.len() } else { (place + 1) * size }]
}

/// Rejects a batch size of 0.
pub(super) fn check_batch(size: usize) -> Result<()> {
    if size > 0 { Ok(()) } else { Err(Error::value("a batch of 0 examples; allowed: at least 1")) }
}

/// Returns the number of batches that [`Dataset::shuffled_batches`] makes of `examples`: one for each `size` of them,
/// and one for the rest, unless that is a single example.
pub fn batches_of_epoch(examples: usize, size: usize) -> usize {
    let size = size.max(1);
    let one_is_left = size > 1 && examples > size && examples % size == 1;
    examples.div_ceil(size) - usize::from(one_is_left)
}
