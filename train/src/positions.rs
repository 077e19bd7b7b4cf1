//! Errors about values of a run file, with the position of the value.

use precast::error::{Error, ErrorKind};
use precast_policy::document::{Place, Source};

use super::RunFile;

impl RunFile {
    /// Adds the position of a key's value to an error, if the value is still the one that was read.
    pub(super) fn wrong(&self, key: &str, error: Error) -> Error {
        fn place<T: PartialEq>((read, place): &(T, Place), now: &T) -> Option<Place> {
            (read == now).then_some(*place)
        }
        let (name, text, places) = self.written.parts();
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
