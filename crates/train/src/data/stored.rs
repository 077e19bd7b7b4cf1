//! Examples that are read from their files when they are needed.

use std::{fmt, sync::Arc};

use precast::error::{Error, Result};

type Read<D> = dyn Fn(&[usize]) -> Result<D> + Send + Sync;

/// Examples that are not in memory: a function that reads some of them, and the places of those that belong to this
/// part of the data. Made by [`Dataset::stored`](super::Dataset::stored), where `D` is the [`Dataset`](super::Dataset) of
/// the examples that were read.
pub struct Stored<D> {
    read: Arc<Read<D>>,
    /// Places that `read` knows, one for each example; `None` for all in order.
    places: Option<Arc<Vec<u32>>>,
    len: usize,
    /// No examples, of the same form.
    none: Arc<D>,
}

impl<D: 'static> Stored<D> {
    /// Creates `len` examples, which `read` reads by their places.
    ///
    /// # Errors
    /// [`ErrorKind::Data`](precast::ErrorKind::Data) for more than 2^32 examples, and those of reading none of them.
    pub(super) fn new(len: usize, read: impl Fn(&[usize]) -> Result<D> + Send + Sync + 'static) -> Result<Self> {
        if u32::try_from(len).is_err() {
            return Err(Error::data(format!("{len} examples; allowed: {}", u32::MAX)));
        }
        let none = Arc::new(read(&[])?);
        Ok(Stored { read: Arc::new(read), places: None, len, none })
    }

    /// Returns the number of examples.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Returns no examples, of the form of those that are read.
    pub(super) fn none(&self) -> &D {
        &self.none
    }

    /// Returns some of the examples, without reading them.
    pub(super) fn take(&self, order: &[usize]) -> Self {
        let place = |&i: &usize| self.places.as_ref().map_or(i as u32, |places| places[i]);
        let places = Some(Arc::new(order.iter().map(place).collect()));
        Stored { places, len: order.len(), ..self.clone() }
    }

    /// Changes the examples whenever they are read.
    ///
    /// # Errors
    /// Those of the change of no examples.
    pub(super) fn then(&self, change: impl Fn(D) -> Result<D> + Send + Sync + 'static) -> Result<Self> {
        let read = self.read.clone();
        let changed = move |places: &[usize]| change(read(places)?);
        let none = Arc::new(changed(&[])?);
        Ok(Stored { read: Arc::new(changed), none, ..self.clone() })
    }

    /// Reads some of the examples.
    ///
    /// # Errors
    /// Those of their reader.
    pub(super) fn some(&self, part: &[usize]) -> Result<D> {
        match &self.places {
            None => (self.read)(part),
            Some(places) => (self.read)(&part.iter().map(|&i| places[i] as usize).collect::<Vec<_>>()),
        }
    }
}

impl<D> Clone for Stored<D> {
    fn clone(&self) -> Self {
        let Stored { read, places, len, none } = self;
        Stored { read: read.clone(), places: places.clone(), len: *len, none: none.clone() }
    }
}

/// Examples are equal if they are the same ones of the same file, changed by the same call.
impl<D> PartialEq for Stored<D> {
    fn eq(&self, other: &Self) -> bool {
        let same_places = match (&self.places, &other.places) {
            (Some(these), Some(others)) => Arc::ptr_eq(these, others) || these == others,
            (None, None) => true,
            _ => false,
        };
        Arc::ptr_eq(&self.read, &other.read) && self.len == other.len && same_places
    }
}

impl<D> fmt::Debug for Stored<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Stored").field("len", &self.len).finish_non_exhaustive()
    }
}
