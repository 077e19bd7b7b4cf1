//! Datasets whose examples are read when they are needed.

use std::ops::Range;

use precast::{
    Tensor,
    error::{Error, Result},
};

use super::{
    Batch, Dataset, Inputs, Standardization, Targets,
    ahead::Ahead,
    batches::{batches_of_epoch, check_batch, part_of},
    elements::elements_in_memory,
    stored::Stored,
};

/// Bytes of the examples that are read together.
const PART: usize = 1 << 20;

impl Dataset {
    /// Creates `len` examples that are not in memory, with targets that are. `read` returns those at some places,
    /// counted from 0, in this order and without targets; for no places, no examples of the same form. It must return
    /// the same examples whenever it is called, on any thread.
    ///
    /// All that can be done to a dataset can be done to this one: it is applied whenever examples are read, and results
    /// have the same bits as those of the same examples in memory. [`Fit`](crate::training::Fit), scores,
    /// [`try_batches`](Dataset::try_batches) and its kin read a few batches ahead, on a thread.
    ///
    /// ```
    /// use precast_train::data::{Dataset, Inputs, Targets};
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
    /// [`ErrorKind::Data`](precast::ErrorKind::Data) for more than 2^32 examples, as [`of`](Dataset::of) for the targets,
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

    /// Returns the same examples as [`stored`](Dataset::stored) ones that are read from this memory, so that what is made of
    /// them is made when it is needed.
    ///
    /// # Errors
    /// As [`stored`](Dataset::stored).
    pub(crate) fn on_demand(self) -> Result<Dataset> {
        if let Inputs::Stored(_) = self.inputs() {
            return Ok(self);
        }
        let inputs = self.clone().without_targets();
        Ok(self.with_stored(Stored::new(self.len(), move |places| Ok(inputs.take(places)))?))
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
        self.try_batches_of(0..self.len(), size)
    }

    /// Returns batches of some neighbouring examples.
    pub(crate) fn try_batches_of(
        &self,
        examples: Range<usize>,
        size: usize,
    ) -> Result<impl Iterator<Item = Result<Batch>>> {
        self.check_targets()?;
        let batches = examples.len().div_ceil(size.max(1));
        self.read_in_batches(examples.collect(), size, batches)
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
        self.check_epoch(seed, epoch)?;
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

    /// Returns all inputs of all examples in batches as [`batches_of_inputs`](Dataset::batches_of_inputs) does. Stored
    /// examples are read a few batches ahead, on a thread.
    ///
    /// # Errors
    /// As [`batches_of_inputs`](Dataset::batches_of_inputs); each batch, those of reading its examples.
    pub fn try_batches_of_inputs(&self, size: usize) -> Result<impl Iterator<Item = Result<Vec<Tensor>>>> {
        check_batch(size)?;
        self.check_encoded()?;
        let parts = in_parts((0..self.len()).collect(), size, self.len().div_ceil(size));
        let mut ahead = self.ahead(parts.clone())?;
        Ok(parts.map(move |part| match &mut ahead {
            None => Ok(self.inputs_of(&part)),
            Some(ahead) => ahead.part().map(|read| read.inputs_of(&in_order(part.len()))),
        }))
    }

    /// Begins to read parts of stored examples, without their targets; `None` for examples in memory.
    pub(crate) fn ahead(
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
    pub(crate) fn read(&self, part: &[usize]) -> Result<Dataset> {
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
        if let Inputs::Table(table) = self.form() {
            return (0..table.columns().len()).try_for_each(|column| {
                self.each_part(|part| {
                    if let Inputs::Table(table) = part.inputs() {
                        table.bytes(column, put);
                    }
                    Ok(())
                })
            });
        }
        (0..=self.further().len()).try_for_each(|input| {
            self.each_part(|part| {
                let inputs = if input == 0 { part.inputs() } else { &part.further()[input - 1].inputs };
                match inputs {
                    Inputs::Numbers(values) => values.iter().for_each(|value| put(&value.to_le_bytes())),
                    Inputs::Indices(values) => values.iter().for_each(|value| put(&value.to_le_bytes())),
                    Inputs::Table(_) | Inputs::Stored(_) => {}
                }
                Ok(())
            })
        })
    }
}

impl Standardization {
    /// Computes the standardization of stored inputs, with the sums of those in memory.
    pub(super) fn of_stored(data: &Dataset) -> Result<Self> {
        let mut sums = super::sums::Sums::new(data.shape(), data.len() * elements_in_memory(data.shape()))?;
        while sums.is_unfinished() {
            data.each_part(|part| {
                part.exact_inputs().into_iter().flatten().for_each(|x| sums.put(x));
                Ok(())
            })?;
            sums.end_pass();
        }
        Ok(Standardization::of_sums(sums))
    }
}

/// Returns the examples of `batches` batches of `size`, the last with the rest.
fn in_parts(
    order: Vec<usize>,
    size: usize,
    batches: usize,
) -> impl Iterator<Item = Vec<usize>> + Clone + Send + 'static {
    let order = std::sync::Arc::new(order);
    (0..batches).map(move |place| part_of(&order, size, batches, place).to_vec())
}

/// Returns the indices of `n` examples, in order.
pub(crate) fn in_order(n: usize) -> Vec<usize> {
    (0..n).collect()
}

#[cfg(test)]
mod tests {
    use std::sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    };

    use super::*;
    use crate::{
        data::Split,
        training::{Augment, Evaluation, Fit, FitOptions},
    };
    use precast::optim::Schedule;
    use precast::{
        Child, ErrorKind,
        layers::{Dense, Flatten, Rng},
        sequential,
    };

    const SHAPE: [usize; 3] = [1, 4, 6];

    /// Images of numbers that look random, with classes.
    fn in_memory(n: usize) -> Dataset {
        let values = (0..n * 24).map(|i| ((i * 7919 + 17) % 1009) as f32 / 100.0 - 3.0).collect();
        Dataset::new(values, &SHAPE, (0..n as i64).map(|i| i * i % 3).collect()).unwrap()
    }

    /// The same examples, stored. They count their reads, and fail from a number of them on.
    fn stored(n: usize, fails: usize) -> (Dataset, Arc<AtomicUsize>) {
        let (memory, reads) = (in_memory(n), Arc::new(AtomicUsize::new(0)));
        let (targets, counted) = (memory.targets().clone(), reads.clone());
        let read = move |places: &[usize]| {
            if !places.is_empty() && counted.fetch_add(1, Relaxed) >= fails {
                return Err(Error::data(format!("example {} is gone", places[0])));
            }
            Ok(memory.take(places).without_targets())
        };
        (Dataset::stored(n, targets, read).unwrap(), reads)
    }

    fn values(data: &Dataset) -> Vec<(Vec<f64>, Vec<f64>)> {
        let batch = |batch: Result<Batch>| batch.map(|batch| (batch.x.to_f64(), batch.y.to_f64())).unwrap();
        let shuffled = data.try_shuffled_batches(4, 3, 5).unwrap();
        data.try_batches(7).unwrap().chain(shuffled).map(batch).collect()
    }

    #[test]
    fn everything_done_to_stored_examples_is_done_to_those_in_memory() {
        type Way = fn(Dataset) -> Result<Dataset>;
        let ways: [(&str, Way); 7] = [
            ("nothing", Ok),
            ("split", |data| Ok(data.split(20, 4)?.train.split_in_order(11)?.test)),
            ("standardized", |data| data.standardized(&Standardization::of(&data)?)),
            ("part", |data| {
                let Split { train, test } = data.split(20, 4)?;
                test.standardized(&Standardization::of(&train)?)?.reshape(&[24])
            }),
            ("resized", |data| data.resize(3, 9)?.split(9, 1).map(|split| split.test)),
            ("fitted", |data| data.fitted(&[1, 2, 2])?.fitted(&[4])),
            ("rounded", |data| Ok(data.in_f32())),
        ];
        for (name, way) in ways {
            let [memory, stored] = [in_memory(31), stored(31, usize::MAX).0].map(|data| way(data).unwrap());
            assert!(matches!(stored.inputs(), Inputs::Stored(_)), "{name}");
            assert_eq!((memory.shape(), memory.len()), (stored.shape(), stored.len()), "{name}");
            assert_eq!(values(&memory), values(&stored), "{name}");
            let [these, others] = [&memory, &stored].map(|data| {
                let mut bytes = Vec::new();
                data.bytes(|more| bytes.extend_from_slice(more)).unwrap();
                bytes
            });
            assert_eq!(these, others, "{name}");
        }
        let (stored, _) = stored(5, usize::MAX);
        assert_eq!(stored, stored.clone());
        assert_ne!(stored.split(3, 0).unwrap().train, stored.split(3, 1).unwrap().train);
        for refused in [stored.batches(2).err(), stored.input_batches(2).err(), stored.shuffled_batches(2, 0, 0).err()]
        {
            assert_eq!(refused.map(|error| error.kind()), Some(ErrorKind::Data));
        }
        assert!(stored.clone().reshape(&[23]).is_err() && stored.fitted(&[2, 2, 2]).is_err());
    }

    #[test]
    fn training_on_stored_examples_has_the_bits_of_training_in_memory() {
        let net = || Child::new(sequential![Flatten::default(), Dense::new(24, 3, &mut Rng::seed(1))]);
        let augment = Augment::default().flip(true).crop(1).mixup(0.2);
        let plain = FitOptions::default().epochs(3).batch(4).seed(2);
        for options in [plain.clone(), plain.clone().accumulate(3).schedule(Schedule::Cosine), plain.augment(augment)] {
            let trained = |data: Dataset, stop: usize| {
                let (split, mut net) = (data.split(22, 9).unwrap(), net());
                let mut fit = Fit::new(&net, &options).unwrap();
                let mut events = 0;
                while fit.advance(&mut net, &split).unwrap().is_some() {
                    events += 1;
                    if events == stop {
                        let checkpoint = fit.checkpoint(&net);
                        fit = Fit::resume(&mut net, &options, &checkpoint, fit.history().clone()).unwrap();
                    }
                }
                let weights: Vec<Vec<f64>> = net.params().iter().map(|(_, param)| param.value().to_f64()).collect();
                (weights, Evaluation::of(&net, &split.test, 4).unwrap(), fit.history().steps.len())
            };
            let memory = trained(in_memory(31), 0);
            for stop in [0, 1, 3, 5] {
                assert_eq!(memory, trained(stored(31, usize::MAX).0, stop));
            }
        }
    }

    #[test]
    fn an_error_of_reading_is_that_of_the_batch_and_ends_the_thread() {
        let (data, reads) = stored(40, 3);
        let told: Vec<String> = data
            .try_batches(4)
            .unwrap()
            .map(|batch| batch.map_or_else(|error| error.to_string(), |_| String::new()))
            .collect();
        assert_eq!(told[..4], ["", "", "", "example 12 is gone"]);
        assert!(told[4..].iter().all(|told| told.contains("to an error")), "{told:?}");
        assert_eq!(reads.load(Relaxed), 4);
        // Not more than a few batches are read ahead, and none after the end.
        let (data, reads) = stored(40, usize::MAX);
        let mut batches = data.try_batches(1).unwrap();
        let _ = batches.next().unwrap().unwrap();
        drop(batches);
        let read = reads.load(Relaxed);
        assert!((1..=5).contains(&read), "{read}");
        assert_eq!(reads.load(Relaxed), read);

        let (data, _) = stored(20, 2);
        let split = data.split(15, 0).unwrap();
        let mut net = Child::new(sequential![Flatten::default(), Dense::new(24, 3, &mut Rng::seed(1))]);
        let mut fit = Fit::new(&net, &FitOptions::default().batch(5).lint(false)).unwrap();
        for _ in 0..2 {
            assert!(fit.advance(&mut net, &split).unwrap().is_some() && !fit.has_not_read());
        }
        for _ in 0..2 {
            assert!(fit.advance(&mut net, &split).is_err() && fit.has_not_read());
        }
        assert_eq!(fit.steps_done(), 2);
        // A panic of a reader is an error.
        let broken = Dataset::stored(3, in_memory(3).targets().clone(), |places| {
            assert!(places.is_empty());
            Ok(in_memory(1).take(&[]).without_targets())
        });
        assert!(broken.unwrap().try_batches(2).unwrap().next().unwrap().is_err());
    }

    #[test]
    fn what_is_read_has_as_many_examples_as_places() {
        let targets = || in_memory(3).targets().clone();
        let short = Dataset::stored(3, targets(), |_| Ok(in_memory(1).take(&[]).without_targets())).unwrap();
        let error = short.try_batches(2).unwrap().next().unwrap().unwrap_err();
        assert_eq!(error.to_string(), "0 examples were read, and 2 wanted");
        let read = |places: &[usize]| Ok(in_memory(9).take(places).without_targets());
        assert!(Dataset::stored(4, targets(), read).is_err());
    }
}
