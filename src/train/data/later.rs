//! Datasets whose examples are read when they are needed.

use super::{
    Batch, Dataset, Inputs, Standardization, Targets,
    ahead::Ahead,
    batches::{batches_of_epoch, check_batch},
    dataset::elements_in_memory,
    stored::Stored,
};
use crate::{
    Tensor,
    error::{Error, Result},
};

/// Bytes of the examples that are read together.
const PART: usize = 1 << 20;

impl Dataset {
    /// Creates `len` examples that are not in memory, with targets that are. `read` returns those at some places,
    /// counted from 0, in this order and without targets; for no places, no examples of the same form. It must return
    /// the same examples whenever it is called, on any thread.
    ///
    /// All that can be done to a dataset can be done to this one: it is applied whenever examples are read, and results
    /// have the same bits as those of the same examples in memory. [`Fit`](crate::train::Fit), scores,
    /// [`try_batches`](Dataset::try_batches) and its kin read a few batches ahead, on a thread.
    ///
    /// ```
    /// use precast::data::{Dataset, Inputs, Targets};
    /// // The numbers 0, 1, 2 and so on, and whether they are odd.
    /// let odd = Targets::Classes { shape: vec![], values: (0..1000).map(|i| i % 2).collect() };
    /// let data = Dataset::stored(1000, odd, |places| {
    ///     let values = places.iter().map(|&place| place as f32).collect();
    ///     Dataset::of(Inputs::Numbers(values), &[1], Targets::None)
    /// })?;
    /// let split = data.split(800, 0)?;
    /// for batch in split.test.try_batches(32)? {
    ///     let batch = batch?;
    ///     let odd: Vec<i64> = batch.x.to_f64().into_iter().map(|x| x as i64 % 2).collect();
    ///     assert_eq!(batch.y.to_vec::<i64>()?, odd);
    /// }
    /// # Ok::<(), precast::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`ErrorKind::Data`](crate::ErrorKind::Data) for more than 2^32 examples, as [`of`](Dataset::of) for the targets,
    /// and the errors of `read` for no places.
    pub fn stored(
        len: usize,
        targets: Targets,
        read: impl Fn(&[usize]) -> Result<Dataset> + Send + Sync + 'static,
    ) -> Result<Dataset> {
        let exact = move |places: &[usize]| {
            let part = read(places)?;
            match part.len() == places.len() {
                true => Ok(part),
                false => Err(Error::data(format!("{} examples were read, and {} wanted", part.len(), places.len()))),
            }
        };
        let stored = Stored::new(len, exact)?;
        let shape = stored.none().shape().to_vec();
        Dataset::of(Inputs::Stored(stored), &shape, targets)
    }

    /// Returns inputs of the form of these: the inputs, or those of no examples if they are
    /// [stored](Dataset::stored).
    pub fn form(&self) -> &Inputs {
        match self.inputs() {
            Inputs::Stored(stored) => stored.none().inputs(),
            inputs => inputs,
        }
    }

    /// Applies a change to stored examples whenever they are read.
    pub(super) fn later(&self, change: impl Fn(Dataset) -> Result<Dataset> + Send + Sync + 'static) -> Result<Dataset> {
        match self.inputs() {
            Inputs::Stored(stored) => Ok(self.with_stored(stored.then(change)?)),
            _ => change(self.clone()),
        }
    }

    /// Returns all examples in batches as [`batches`](Dataset::batches) does. Stored examples are read a few batches
    /// ahead, on a thread.
    ///
    /// # Errors
    /// As [`batches`](Dataset::batches); each batch, those of reading its examples.
    pub fn try_batches(&self, size: usize) -> Result<impl Iterator<Item = Result<Batch>>> {
        self.check_targets()?;
        self.read_in_batches((0..self.len()).collect(), size, self.len().div_ceil(size.max(1)))
    }

    /// Returns the batches of a training epoch as [`shuffled_batches`](Dataset::shuffled_batches) does. Stored examples
    /// are read a few batches ahead, on a thread.
    ///
    /// # Errors
    /// As [`try_batches`](Dataset::try_batches).
    pub fn try_shuffled_batches(
        &self,
        size: usize,
        seed: u64,
        epoch: u64,
    ) -> Result<impl Iterator<Item = Result<Batch>>> {
        self.check_targets()?;
        self.read_in_batches(self.order(seed, epoch), size, batches_of_epoch(self.len(), size))
    }

    fn read_in_batches(
        &self,
        order: Vec<usize>,
        size: usize,
        batches: usize,
    ) -> Result<impl Iterator<Item = Result<Batch>>> {
        check_batch(size)?;
        let parts = in_parts(order, size, batches);
        let mut ahead = self.ahead(parts.clone())?;
        Ok(parts.map(move |part| match &mut ahead {
            None => Ok(self.some(&part)),
            Some(ahead) => {
                let read = ahead.part()?.with_targets_of(self, &part);
                Ok(read.some(&in_order(part.len())))
            }
        }))
    }

    /// Returns the inputs of all examples in batches as [`input_batches`](Dataset::input_batches) does. Stored examples
    /// are read a few batches ahead, on a thread.
    ///
    /// # Errors
    /// As [`input_batches`](Dataset::input_batches); each batch, those of reading its examples.
    pub fn try_input_batches(&self, size: usize) -> Result<impl Iterator<Item = Result<Tensor>>> {
        check_batch(size)?;
        self.check_encoded()?;
        let parts = in_parts((0..self.len()).collect(), size, self.len().div_ceil(size));
        let mut ahead = self.ahead(parts.clone())?;
        Ok(parts.map(move |part| match &mut ahead {
            None => Ok(self.x(&part)),
            Some(ahead) => ahead.part().map(|read| read.x(&in_order(part.len()))),
        }))
    }

    /// Begins to read parts of stored examples, without their targets; `None` for examples in memory.
    pub(in crate::train) fn ahead(
        &self,
        parts: impl Iterator<Item = Vec<usize>> + Send + 'static,
    ) -> Result<Option<Ahead<Dataset>>> {
        match self.inputs() {
            Inputs::Stored(stored) => Ahead::of(stored, parts).map(Some),
            _ => Ok(None),
        }
    }

    /// Reads some examples into memory.
    ///
    /// # Errors
    /// Those of reading [stored](Dataset::stored) examples.
    pub(in crate::train) fn read(&self, part: &[usize]) -> Result<Dataset> {
        match self.inputs() {
            Inputs::Stored(stored) => Ok(stored.some(part)?.with_targets_of(self, part)),
            _ => Ok(self.take(part)),
        }
    }

    /// Passes all examples to a function, in order, a part of them at a time; targets are left out if they are stored.
    pub(super) fn each_part(&self, mut put: impl FnMut(&Dataset) -> Result<()>) -> Result<()> {
        let size = (PART / size_of::<f64>() / elements_in_memory(self.shape()).max(1)).max(1);
        let (len, mut first) = (self.len(), 0);
        let parts = std::iter::from_fn(move || {
            let part: Vec<usize> = (first..len.min(first + size)).collect();
            first += part.len();
            (!part.is_empty()).then_some(part)
        });
        let Some(mut ahead) = self.ahead(parts)? else { return put(self) };
        (0..len.div_ceil(size)).try_for_each(|_| put(&ahead.part()?))
    }

    /// Passes the bytes of all inputs to a function, value by value; those of a table column by column.
    pub(super) fn input_bytes(&self, put: &mut impl FnMut(&[u8])) -> Result<()> {
        let columns = if let Inputs::Table(table) = self.form() { table.columns().len() } else { 1 };
        (0..columns).try_for_each(|column| {
            self.each_part(|part| {
                match part.inputs() {
                    Inputs::Numbers(values) => values.iter().for_each(|value| put(&value.to_le_bytes())),
                    Inputs::Indices(values) => values.iter().for_each(|value| put(&value.to_le_bytes())),
                    Inputs::Table(table) => table.bytes(column, put),
                    Inputs::Stored(_) => {}
                }
                Ok(())
            })
        })
    }
}

impl Standardization {
    /// Computes the standardization of stored inputs, with the sums of those in memory.
    pub(super) fn of_stored(data: &Dataset) -> Result<Self> {
        let mut sums = super::standardization::Sums::new(data.shape(), data.len() * elements_in_memory(data.shape()))?;
        while sums.is_unfinished() {
            data.each_part(|part| {
                part.exact_inputs().into_iter().flatten().for_each(|x| sums.put(x));
                Ok(())
            })?;
            sums.end_pass();
        }
        Ok(sums.finish())
    }
}

/// Returns the examples of `batches` batches of `size`, the last with the rest.
fn in_parts(
    order: Vec<usize>,
    size: usize,
    batches: usize,
) -> impl Iterator<Item = Vec<usize>> + Clone + Send + 'static {
    let order = std::sync::Arc::new(order);
    (0..batches).map(move |i| {
        let to = if i + 1 == batches { order.len() } else { (i + 1) * size };
        order[i * size..to].to_vec()
    })
}

/// Returns the indices of `n` examples, in order.
pub(in crate::train) fn in_order(n: usize) -> Vec<usize> {
    (0..n).collect()
}
