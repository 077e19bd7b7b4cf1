//! Source positions of run-file values validated when a run starts, such as the name of a missing file.

use std::sync::Arc;

use super::{RunFile, Test, data};
use crate::{
    error::{Error, ErrorKind},
    io::document::{Place, Source},
};

/// The text of a run file and some positions in it. A run is the same wherever it is written, so any two are equal.
#[derive(Clone, Debug)]
pub(crate) struct Written(Arc<(String, String, Places)>);

/// Values as read, with their positions.
#[derive(Debug)]
pub(super) struct Places {
    pub model: (String, Place),
    pub policy: (String, Place),
    pub data: (data::Source, Place),
    pub test: Option<(Test, Place)>,
}

impl PartialEq for Written {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Written {
    pub(super) fn new(source: &Source<'_>, places: Places) -> Self {
        Written(Arc::new((source.name.to_string(), source.text.to_string(), places)))
    }
}

impl RunFile {
    /// Adds the position of a key's value to an error, if the value is still the one that was read.
    pub(super) fn wrong(&self, key: &str, error: Error) -> Error {
        fn place<T: PartialEq>((read, place): &(T, Place), now: &T) -> Option<Place> {
            (read == now).then_some(*place)
        }
        let (name, text, places) = &*self.written.0;
        let place = match key {
            "model" => place(&places.model, &self.model),
            "policy" => place(&places.policy, &self.policy),
            "data" => place(&places.data, &self.data),
            "test" => places.test.as_ref().and_then(|test| place(test, &self.test)),
            _ => None,
        };
        match place {
            Some(place) => Source::new(name, text).error(place, error),
            None => error,
        }
    }

    /// Adds a position as [`wrong`](RunFile::wrong) does, for a file that cannot be opened. Errors within a file have
    /// their position there.
    pub(super) fn not_there(&self, key: &str, error: Error) -> Error {
        if error.kind() == ErrorKind::Io { self.wrong(key, error) } else { error }
    }
}
